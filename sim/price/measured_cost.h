/* measured_cost.h -- the price of one thing, from what was measured on the machine itself.
 *
 *     if (measured_kernel(device, &gemm_device, &query, &e))
 *         ... e.s, e.error ...
 *
 * A point with the same key is taken as it is; between points the price is interpolated, beyond
 * them extrapolated, and `error` grows with the distance.  False where nothing of the kind was
 * measured: the caller then has its prior.  Derivation: README.md, "Measured". */
#ifndef DPX_MEASURED_COST_H
#define DPX_MEASURED_COST_H

#include "model/cluster/cluster.h"
#include "model/schedule/measured.h"
#include "sim/price/cost.h"
#include "sim/price/gemm_cost.h"

/* `error` is half of a 90 % interval, as a share of s; `outside`: beyond the measured range; `spread`:
 * of the samples, as measured.h counts. */
struct estimate { double s, error; bool outside; double spread; };

/* A spread is 1.645 standard deviations, if times were normal. */
static inline double estimate_variance(const struct estimate *e)
{
    double sigma = e->spread / 1.645 * e->s;

    return sigma * sigma;
}

/* A kernel and what its struct does not say. */
struct kernel_query {
    const struct kernel *k;
    int64_t seq, dim;           /* attention */
    bool    dropout;            /* the plan drops */
    enum kernel_set set;        /* others than KERNELS_DPX: of a framework's program, timed by a trace */
    enum pass pass;             /* of those */
};

bool measured_kernel(const struct measured_device *d, const struct gemm_device *on, const struct kernel_query *q,
                     struct estimate *out);
bool measured_pass(const struct measured_device *d, enum kernel_set set, enum measured_pass pass, double bytes,
                   struct estimate *out);

/* A collective of a group; false also where only other tiers or operations were measured. */
struct coll_query {
    enum coll_op op;
    enum dtype   dtype;
    bool         star;
    int64_t      ranks, per_node, bytes;
};
bool measured_coll(const struct cluster *c, const struct coll_query *q, struct estimate *out);

/* Slow-downs while kernels of a class and a copy on another stream run together.  False where that was
 * not measured. */
bool measured_beside_copy(const struct measured_device *d, enum kernel_class kind, double *compute, double *copy);

/* The same of a collective that takes `alone_s` by itself.  On shared cores it loses no rate but time:
 * so many waits for its turn, however small it is; compute loses what the collective works. */
bool measured_beside(const struct cluster *c, const struct coll_query *q, enum kernel_class kind, double alone_s,
                     double *compute, double *coll);

#endif
