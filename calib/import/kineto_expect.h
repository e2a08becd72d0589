/* kineto_expect.h -- what a trace of a plan's step must contain, in the order in which it is launched.
 *
 * Products and fused attention are *anchors*: kernels that one recognises by name.  Everything else on the compute
 * stream lies between two anchors and lives off memory: its time is known for each such stretch. */
#ifndef DPX_KINETO_EXPECT_H
#define DPX_KINETO_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

enum expect_kind { EXPECT_PRODUCT, EXPECT_ATTENTION, EXPECT_ATTENTION_BACK, EXPECT_STREAMING, EXPECT_COPY, EXPECT_OPTIMIZER };

struct expected {
    enum expect_kind     kind;
    const struct kernel *kernel;    /* of the block program; NULL for copies and the optimizer */
    enum pass            pass;
    int64_t              bytes;     /* read and written */
};

/* One collective of the step: which, and among whom. */
struct expected_coll { enum coll_op op; enum dtype dtype; int64_t bytes, ranks, per_node; };

struct expectation {
    struct expected *at;    int64_t n, cap;         /* the compute stream, in issue order */
    struct expected *side;  int64_t nside, cap_side;    /* copies on other streams of the device */
    struct expected_coll *coll; int64_t ncolls, cap_colls;
    int64_t nproducts, nattention;                  /* anchors */
    bool    hooks;                                  /* Python hooks gather and reduce */
    int64_t issued[NPASS];                          /* kernels and copies of the device's streams, but the optimizer's */
};

/* 0, or -1 reported: the plan is not for a GPU, or not of PyTorch's kernels. */
int  kineto_expect_check(const struct plan *p);
/* Of a steady step of the rank whose schedules these are. */
void kineto_expect(const struct plan *p, const struct schedules *s, struct expectation *out);
void kineto_expect_free(struct expectation *x);

#endif
