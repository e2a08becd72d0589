/* programs.h -- the kernels of candidates: those that have the same share one program.
 *
 *     struct programs all = { 0 };
 *     int i = programs_of(&all, &plan, 0);
 *     ... all.of[i].program, all.of[i].used = true ...
 *     programs_free(&all);
 *
 * Numbers are of neighbours of one strategy: two may stand for one program, which is built once. */
#ifndef DPX_PROGRAMS_H
#define DPX_PROGRAMS_H

#include "model/program/program.h"

struct shared_program {
    struct plan    plan;            /* the first candidate with these kernels */
    bool           used;            /* a candidate keeps it; else the next new program takes its place */
    const struct program *program;
    struct built *built;            /* whose it is */
};

struct programs {
    struct shared_program *of; int n; int64_t room;
    struct built **built; int nbuilt; int64_t built_room;
};

/* The number of the plan's program; -1 reported.  It may be the last one or one from number `first` on: the caller knows that
 * the others are of other kernels. */
int  programs_of(struct programs *all, const struct plan *p, int first);
void programs_free(struct programs *all);

#endif
