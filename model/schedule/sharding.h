/* sharding.h -- which elements of which tensors a buffer holds: the one rule of all strategies.  A lowering goes over its tensors in the
 * order in which they lie there, and says of each how it is cut.
 *
 *     struct sharding x = { s, tensors, HOLDS_PARAM, DT_BF16 };        an open layout's slices
 *     for (...) sharding_whole(&x, t, 512);                            allocations of their own
 *     for (...) sharding_part(&x, t, rows * width, rank, bytes);       rows, or equal parts of elements: a rank's
 *     x.from = rank * n, x.n = n;
 *     for (...) sharding_flat(&x, t);                                  tensors as one array: a rank's range of it
 *
 * What is beyond a tensor's end is padding. */
#ifndef DPX_SHARDING_H
#define DPX_SHARDING_H

#include "model/schedule/schedule.h"

struct sharding {
    struct schedules *s;
    const struct tensor *tensors;   /* the model's */
    enum holds holds;
    enum dtype dtype;
    int64_t at;                     /* bytes into the buffer: of the next tensor; flat: of element `from` */
    int64_t from, n;                /* flat: elements [from, from + n) */
    int64_t next;                   /* flat: the next tensor's first element */
};

/* Where a buffer begins that may begin with padding: nothing of its first tensor. */
void sharding_begins(struct sharding *x, int tensor);

/* All of it; its place is rounded up to a multiple of `to` bytes. */
void sharding_whole(struct sharding *x, int tensor, int64_t to);

/* The rank-th of its parts of `part` elements, which takes `room` bytes. */
void sharding_part(struct sharding *x, int tensor, int64_t part, int64_t rank, int64_t room);

/* What the range has of it.  Returns these elements. */
int64_t sharding_flat(struct sharding *x, int tensor);

#endif
