/* op_cost_internal.h -- what op_cost.c and issue_cost.c share: running sums of a pass's kernels. */
#ifndef DPX_OP_COST_INTERNAL_H
#define DPX_OP_COST_INTERNAL_H

#include "sim/price/gemm_cost.h"
#include "sim/price/kernel_cost.h"
#include "sim/price/measured_cost.h"

enum source { SOURCE_GEMM, SOURCE_ATTENTION, SOURCE_MEMORY, NSOURCE };

struct running {
    double s, less[NSOURCE], more[NSOURCE];     /* s - low_s, high_s - s */
    double less2[NSOURCE], more2[NSOURCE];      /* and the sums of their squares */
    double streams;                             /* of s, in kernels that live off memory */
    double ready;                               /* bytes of gradients that are complete */
    enum basis basis;
    bool   outside;
    double variance;
};

struct sums {
    struct running *at;         /* at[i]: kernels 0 .. i-1 */
    int         *launches;      /* of kernels that no CUDA graph holds, */
    double      *more;          /* units that these take beside their launches, */
    int         *replays;       /* and graphs that begin: at their first kernel */
    int          n;
    uint64_t     key;           /* of the kernels (struct piece), */
    enum hooks_of hooked;       /* which hooks of Python gather and reduce, */
    enum flash   flash;         /* and what their fused attention is, */
    bool         cuda_12_8;     /* and their products */
    double       common;        /* share of the variance of one source that its kernels have in common */
    struct cost  all;           /* the whole pass, as most entries are */
    double      *held[2];       /* of products and attention, as `at`, while a collective leaves them left[i] multiprocessors; */
    int          left[2];       /* NULL: not asked for yet */
};

/* All that the sums of a pass depend on beside its kernels, compared byte by byte.  Made by price_inputs() alone, which sets every
 * byte of it. */
struct price_inputs {
    struct gpu gpu;
    enum kernel_set set;
    enum dtype precision;
    int64_t  seq, head_dim;
    double   attention_forward, limited;        /* struct kernel_context */
    bool     dropout, is_host;
    bool     masked[NPIECE];        /* the blocks of a piece hand sdpa a mask */
    const struct measured_device *measured;     /* of the executor's own kernels; NULL: nothing */
    const struct measured_device *traced;       /* of a framework's; NULL: nothing */
};

struct cost_cache {
    const struct plan          *p;
    const struct measured_device *measured;     /* of the executor's own kernels; NULL: nothing */
    const struct measured_device *traced;       /* of a framework's; NULL: nothing */
    struct kernel_context       in;
    struct gemm_residuals       gemm;
    enum hooks_of               hooked;         /* of the schedules at hand: schedules.hooks */
    struct sums                 pass[NPIECE][NPASS];
    struct price_inputs         of;     /* what the sums are of; no pointer is followed */
};

/* The sums of an entry's pass, made when first asked for. */
struct sums *op_sums_of(struct cost_cache *c, const struct schedules *s, const struct op *o);

/* As a trace has it, one thing of its kind; 0: not known.  Was a training with hooks traced? */
double op_traced_issue(const struct cost_cache *c, enum traced_issue what);
bool op_traced_with_hooks(const struct cost_cache *c);

/* Units of the issuing thread that the many things of one kernel take beside its launch. */
double op_issue_one_by_one(enum pass pass, const struct kernel *k);

#endif
