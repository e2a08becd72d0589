/* kineto_print.h -- the comparison of a trace with a plan, as text and as JSON. */
#ifndef DPX_KINETO_PRINT_H
#define DPX_KINETO_PRINT_H

#include <stdio.h>

#include <jansson.h>

#include "calib/trace/kineto_load.h"
#include "reports/kineto/kineto_plan.h"

/* `p` is NULL where the trace stands alone. */
void    kineto_print(const char *path, const struct kineto *k, const struct kineto_plan *p, FILE *to);
json_t *kineto_json(const char *path, const struct kineto *k, const struct kineto_plan *p);

/* What the reader of the figures must know: where trace and plan are not of the same training, and
 * what is not known.  Sentences into `notes`, each of at most NOTE_SIZE; returns how many. */
enum { NOTES = 12, NOTE_SIZE = 256 };
int kineto_notes(const struct kineto *k, const struct kineto_plan *p, char notes[NOTES][NOTE_SIZE]);

/* 1: backward prefetches, 0: it does not, -1: not known. */
int kineto_prefetch(const struct measures *m);

/* Bytes a second over each link, as nccl-tests counts them; NAN where something is not known. */
double kineto_busbw(const struct kineto_kernel *k);

#endif
