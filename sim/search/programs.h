/* programs.h -- the kernels of candidates: those that have the same share one program.
 *
 *     struct programs all = { 0 };
 *     int i = programs_of(&all, &plan, 0);
 *     ... all.of[i].program, all.of[i].used = true ...
 *     programs_free(&all); */
#ifndef DPX_PROGRAMS_H
#define DPX_PROGRAMS_H

#include "model/program/program.h"

struct shared_program {
    struct plan    plan;            /* the first candidate with these kernels */
    bool           used;            /* a candidate keeps it; else the next new program takes its place */
    struct program program;
};

struct programs { struct shared_program *of; int n; int64_t room; };

/* The number of the plan's program; -1 reported.  It may be the last one or one from number `first` on: the caller knows that
 * the others are of other kernels. */
int  programs_of(struct programs *all, const struct plan *p, int first);
void programs_free(struct programs *all);

#endif
