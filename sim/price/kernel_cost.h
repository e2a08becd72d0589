/* kernel_cost.h -- seconds of every entry but collectives, and of issuing any entry.
 *
 *     struct cost_cache *c = cost_cache_new(&plan);
 *     struct cost t;
 *     op_cost(c, &schedules, op, &t);             its time on its stream
 *     double cpu = op_issue_cost(c, &schedules, op);     and on the issuing thread
 *     cost_cache_free(c);
 *
 * GEMMs and unfused attention go by tiles and waves (gemm_cost.h), fused attention by FLOPs
 * at the rate published for its kernel, everything else by bytes over the bandwidth that
 * streaming kernels reach.  Measurements of the machine itself replace each of these where
 * there are any (measured_cost.h): the executor's own kernels, or a framework's by a trace.  Derivation, sources and errors: README.md. */
#ifndef DPX_KERNEL_COST_H
#define DPX_KERNEL_COST_H

#include "model/schedule/schedule.h"
#include "sim/price/cost.h"
#include "sim/price/gemm_cost.h"
#include "sim/price/gpu_rates.h"

/* What a kernel alone does not say. */
struct kernel_context {
    const struct measured_device *measured; /* NULL: nothing */
    enum kernel_set set;                    /* of what was measured: the executor's own kernels, or a framework's */
    enum pass  pass;                        /* of a framework's kernel */
    const struct gemm_residuals *gemm;      /* of kernel_residuals(); NULL: made anew */
    int64_t    seq, head_dim;               /* 0: taken from the kernel's own bytes, 128 */
    bool       dropout;
    double     attention_forward;           /* FLOPs of forward's fused attention; 0: not known */
    enum flash flash;
    bool       masked;                      /* an additive mask: the kernel computes every score, half of them for nothing */
    bool       sustained;                   /* minutes of it, at the power limit: a training step */
    bool       cuda_12_8;                   /* products of this CUDA or a later one */
    double     limited;                     /* gpu_power_share() under a limit below the board's own; 0: there is none */
};

/* The time of one kernel as published figures have it, with nothing else known. */
void kernel_cost(const struct gpu *g, enum kernel_set set, enum dtype precision,
                 const struct kernel *k, struct cost *out);
void kernel_cost_in(const struct gpu *g, enum kernel_set set, enum dtype precision,
                    const struct kernel_context *in, const struct kernel *k, struct cost *out);

/* How many times longer a kernel takes while others hold all but sms[i] multiprocessors: a product by its waves, attention,
 * whose blocks are many, in proportion; what lives off memory no longer. */
void kernel_held(const struct gpu *g, enum dtype precision, const struct kernel_context *in, const struct kernel *k, const int sms[2],
                 double out[2]);

/* Published residuals of products in this precision. */
void kernel_residuals(const struct gpu *g, enum dtype precision, struct gemm_residuals *out);

/* GPU kernels that one listed kernel is in reality, and hence is launched as. */
int kernel_launches(enum kernel_set set, enum pass pass, const struct kernel *k);

/* What the entries of one plan's schedules cost.  The kernels of a pass are costed once,
 * when first met (a pass's key tells), and kept as running sums: a segment is one subtraction.
 * `p` and what its cluster was measured to be are kept by reference.  Not for use by two threads
 * at once. */
struct cost_cache;
struct cost_cache *cost_cache_new(const struct plan *p);
void cost_cache_free(struct cost_cache *c);

/* Whether kernels already costed cost the same in another plan: all that prices read beside kernels is the same.  cost_cache_use() then
 * turns to that plan and keeps them; else it drops them. */
bool cost_cache_fits(const struct cost_cache *c, const struct plan *p);
void cost_cache_use(struct cost_cache *c, const struct plan *p);

/* Time on its stream of an entry that is not OP_COLL: zero for waits, memory and repeats. */
void op_cost(struct cost_cache *c, const struct schedules *s, const struct op *o,
             struct cost *out);

/* Of that time, the share in which memory sets the pace: 0 to 1. */
double op_streams(struct cost_cache *c, const struct schedules *s, const struct op *o);

/* A compute entry while a collective leaves it left[i] multiprocessors, as parts of its time alone: products and attention,
 * and kernels that live off memory.  An entry of another kind is all of the latter. */
struct op_held { double products[2], streams; };
void op_held(struct cost_cache *c, const struct schedules *s, const struct op *o, const int left[2], struct op_held *out);

/* Seconds the issuing thread is busy with any entry, collectives included. */
double op_issue_cost(struct cost_cache *c, const struct schedules *s, const struct op *o);

/* Seconds of the unit that its ratios are in: a kernel of a forward without gradients. */
double issue_unit_of(const struct cluster *c);

#endif
