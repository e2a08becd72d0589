/* kineto_load.h -- what a trace of PyTorch's profiler says of training steps.
 *
 *     struct kineto k;
 *     if (kineto_load("rank0.pt.trace.json.gz", &k) < 0)
 *         return 2;
 *     ... k.median.v[M_STEP], k.kernel[i] ...
 *     kineto_free(&k);
 *
 * On a GPU the kernels count: NCCL's (or RCCL's) are collectives, all others compute; copies and
 * sets of memory are neither.  A kernel belongs to the step, and to forward, backward or the
 * optimizer, in which the host launched it.  Without a GPU, gloo's own events are the collectives
 * and ATen's operators compute.
 *
 * Steps are what the profiler marked (ProfilerStep#7); else they end with the optimizer's step;
 * else they are what repeats. */
#ifndef DPX_KINETO_LOAD_H
#define DPX_KINETO_LOAD_H

#include "calib/trace/kineto_step.h"
#include "calib/trace/trace_read.h"

/* All calls of one collective of one size in the steps. */
struct kineto_kernel {
    const char *name;               /* as the trace has it, without its parameters */
    const char *dtype;              /* "": not known */
    int         op, group_size;     /* 0: not known */
    int64_t     bytes;              /* of one; -1: not known */
    double      calls, seconds;     /* calls of a step; mean of one */
};

/* A copy between the host's memory and the device's. */
struct kineto_copy { int64_t bytes; double seconds; bool to_host; };

/* The dimensions of a call of a product: `batch` times [m, k] by [k, n].  Products of groups of rows (_grouped_mm) are one,
 * of all rows. */
struct kineto_product { int64_t m, n, k, batch; bool convolution; };

struct kineto {
    struct trace_info info;
    bool   gpu;
    bool   phases;                  /* forward and backward could be told apart */
    const char *steps_by;           /* "ProfilerStep", "optimizer", "repetition" */
    int    nsteps;
    struct window   *window;
    struct measures *step;          /* of each */
    struct measures  median;
    struct kineto_kernel *kernel;   /* longest together first */
    int    nkernels;
    struct work_list work;
    struct kineto_copy *copy; int64_t ncopies, cap_copies;      /* from or into pinned memory, in order of the trace */
    struct kineto_product *product; int64_t nproducts, cap_products;    /* work[].product counts them from 1 */
    char **names;                   /* of collectives, with the type of their elements: what kernel[] */
    char (*dtypes)[20];             /* points into */
    int    nnames;
};

/* 0, or -1 with the reason reported and nothing to free. */
int  kineto_load(const char *path, struct kineto *out);
void kineto_free(struct kineto *k);

/* Which collective a name speaks of, such as ncclDevKernel_AllGather_RING_LL(...), gloo:all_reduce,
 * c10d::_reduce_scatter_base_; COLL_OTHER where it is none that a plan has. */
int kineto_coll(const char *name);

/* Bytes of an element of this type as PyTorch spells it ("Float", "c10::BFloat16"); 0: unknown. */
int kineto_dtype_bytes(const char *dtype);

#endif
