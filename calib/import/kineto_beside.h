/* kineto_beside.h -- the collectives of a trace as stretches of time: what ran beside them, and for how long.
 *
 *     struct busies b = beside_busies(&kineto);
 *     int64_t ns = beside_cover(&b, start, end, &op);
 *     free(b.at); */
#ifndef DPX_KINETO_BESIDE_H
#define DPX_KINETO_BESIDE_H

#include "calib/trace/kineto_load.h"

struct busy { int64_t start, end; int op; };
struct busies { struct busy *at; int64_t n, cap; };

/* In order of their start; `at` is the caller's to free. */
struct busies beside_busies(const struct kineto *k);

/* How long collectives ran between start and end, in ns, and which one longest (-1: none).  Few run at a time and
 * none for longer than a step: those that began up to 64 before are looked at. */
int64_t beside_cover(const struct busies *b, int64_t start, int64_t end, int *op);

#endif
