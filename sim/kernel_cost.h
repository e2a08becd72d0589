/* kernel_cost.h -- how long anything takes that is not a collective.
 *
 *     struct cost_cache *c = cost_cache_new(&plan, NULL);
 *     struct cost t;
 *     op_cost(c, &schedules, op, &t);             its time on its stream
 *     double cpu = issue_cost(c, &schedules, op);     and on the issuing thread
 *     cost_cache_free(c);
 *
 * GEMMs and unfused attention go by tiles and waves (gemm_cost.h), fused attention by FLOPs
 * at the rate published for its kernel, everything else by bytes over the bandwidth that
 * streaming kernels reach.  Measurements of the machine itself replace each of these where
 * there are any (struct kernel_points).  Derivation, sources and errors: README.md. */
#ifndef DPX_KERNEL_COST_H
#define DPX_KERNEL_COST_H

#include "model/schedule.h"
#include "sim/cost.h"
#include "sim/gemm_cost.h"
#include "sim/gpu_rates.h"

/* Measured seconds of a memory-bound kernel that moves so many bytes. */
struct bytes_point { double bytes, s; };

/* Measured seconds of fused attention of so many FLOPs, counted as struct kernel does. */
struct attention_point { double flops, s; int64_t seq; enum pass pass; };

/* What dpxcal measured on this machine, in the plan's precision.  Any part may be empty.
 * Points of one class are ordered by bytes. */
struct kernel_points {
    const struct gemm_point      *gemm;                 int ngemm;
    const struct attention_point *attention;            int nattention;
    const struct bytes_point     *bytes[NKERNEL_CLASS]; int nbytes[NKERNEL_CLASS];
    const struct bytes_point     *optimizer;            int noptimizer;
};

/* What a kernel alone does not say. */
struct kernel_context {
    const struct kernel_points  *points;    /* NULL: none */
    const struct gemm_residuals *gemm;      /* of kernel_residuals(); NULL: made anew */
    int64_t    seq, head_dim;               /* 0: taken from the kernel's own bytes, 128 */
    double     attention_forward;           /* FLOPs of forward's fused attention; 0: not known */
    enum flash flash;
    bool       sustained;                   /* minutes of it, at the power limit: a training step */
};

/* The time of one kernel as published figures have it, with nothing else known. */
void kernel_cost(const struct gpu *g, enum kernel_set set, enum dtype precision,
                 const struct kernel *k, struct cost *out);
void kernel_cost_in(const struct gpu *g, enum kernel_set set, enum dtype precision,
                    const struct kernel_context *in, const struct kernel *k, struct cost *out);

/* Residuals of products in this precision: the measured ones if any, else the published. */
void kernel_residuals(const struct gpu *g, enum dtype precision,
                      const struct kernel_points *points, struct gemm_residuals *out);

/* GPU kernels that one listed kernel is in reality, and hence is launched as. */
int kernel_launches(enum kernel_set set, enum pass pass, const struct kernel *k);

/* Bytes AdamW moves per element it owns, and the passes over memory in which it does. */
double optimizer_bytes(const struct plan *p, int *passes);

/* What the entries of one plan's schedules cost.  The kernels of a pass are costed once,
 * when first met, and kept as running sums: a segment is one subtraction.  `p` and `points`
 * are kept by reference.  Not for use by two threads at once. */
struct cost_cache;
struct cost_cache *cost_cache_new(const struct plan *p, const struct kernel_points *points);
void cost_cache_free(struct cost_cache *c);

/* Whether the kernels already costed are also those of another plan: same model, GPU,
 * kernels, precision, sequence, micro-batch, dropout, recompute.  cost_cache_use() then
 * turns to that plan and keeps them; else it drops them. */
bool cost_cache_fits(const struct cost_cache *c, const struct plan *p);
void cost_cache_use(struct cost_cache *c, const struct plan *p);

/* Time on its stream of an entry that is not OP_COLL: zero for waits, memory and repeats. */
void op_cost(struct cost_cache *c, const struct schedules *s, const struct op *o,
             struct cost *out);

/* Seconds the issuing thread is busy with any entry, collectives included. */
double issue_cost(struct cost_cache *c, const struct schedules *s, const struct op *o);

#endif
