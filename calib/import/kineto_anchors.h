/* kineto_anchors.h -- a step's kernels as anchors with stretches between them, and which of the plan's anchors each is.
 *
 *     struct anchors a = anchors_of(work, n, &expectation, &busies);
 *     if (anchors_place(&a, &expectation, &kineto, path, step) == 0)
 *         ... a.at[i].which ...
 *     anchors_free(&a);
 *
 * Where the profiler wrote the inputs' dimensions (record_shapes=True), a product is the plan's next one of the same
 * dimensions: a compiled block's backward has weights' gradients in an order of its own.  Without them it is the
 * plan's next product of all. */
#ifndef DPX_KINETO_ANCHORS_H
#define DPX_KINETO_ANCHORS_H

#include "calib/import/kineto_beside.h"
#include "calib/import/kineto_expect.h"

/* Calls of one step's compute stream: an anchor, or what lies between two.  `covered` ns of them ran beside collectives,
 * `op` the last of those (-1: none). */
struct stretch { int64_t ns, covered, optimizer_ns; int op; };

struct anchor {
    enum expect_kind kind;
    int32_t          product;       /* as of struct work */
    int64_t          which;         /* of the plan's anchors, from 0: anchors_place() */
    struct stretch   of, before;
};
struct anchors { struct anchor *at; int64_t n, cap; struct stretch after; };

/* Of n calls of the compute stream, in order of their launch. */
struct anchors anchors_of(const struct work *const *at, int64_t n, const struct expectation *x, const struct busies *b);

/* 0, or -1 with the reason reported: step `step` of the trace `path` is not of this plan. */
int  anchors_place(struct anchors *a, const struct expectation *x, const struct kineto *k, const char *path, int step);
void anchors_free(struct anchors *a);

/* Adds a stretch to one that goes on: times in ns, and the last collective beside either. */
void anchors_more(struct stretch *s, const struct stretch *more);

static inline bool expected_anchor(const struct expected *x)
{
    return x->kind <= EXPECT_ATTENTION_BACK;
}

#endif
