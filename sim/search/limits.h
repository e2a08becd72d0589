/* limits.h -- how far a strategy reaches: the largest model, the largest
 * micro-batch, the fewest GPUs.  Every answer comes from lowering plans and
 * reading the ledger; nothing is a formula. */
#ifndef DPX_LIMITS_H
#define DPX_LIMITS_H

#include "model/plan/elsewhere.h"
#include "model/plan/plan.h"

struct limit {
    enum strategy strategy;
    enum dialect  dialect;
    double  bytes_per_param;    /* model states of a rank per parameter of the model */
    int64_t max_params;         /* largest model that fits, a recorded one as it is; 0: none */
    int64_t max_layers;         /* with a family: its blocks (0 with states only); with disks at most one in 64 too few */
    int64_t max_micro_batch;    /* of the model as given; 0: it does not fit */
    char    then_short[64];     /* what ends the growth of the model: "device memory", "host memory of a node"; empty: no plan was too large */
    int64_t min_gpus;           /* fewest GPUs that hold the model as given; 0: not found up to 65,536, */
    int64_t min_gpus_recompute; /* and then the fewest with full recompute; 0: neither */
};

/* Model states only: one synthetic unit of P parameters in `memory` bytes over
 * `world` ranks. */
int limit_states(int64_t memory, int64_t world, enum strategy s, enum dialect d, enum dtype precision,
                 struct limit *out);

/* With activations, buffers and workspaces: `base` has model, cluster, seq,
 * kernels, recompute and optimizer set; micro-batch 1 for the first and last question.
 * DataParallel is one process: it is asked about one node of the cluster.  States are kept as `how` says, which the
 * cell has to have (elsewhere.h); host memory and disks are limits then, too. */
int limit_real(const struct plan *base, enum strategy s, enum dialect d, enum dtype precision, enum elsewhere how,
               struct limit *out);

/* The next number of GPUs to ask about after n, of nodes of `per`: doubled up to a node, which is the last of these, then doubled nodes. */
int64_t limit_next_gpus(int64_t n, int64_t per);

/* Are weights in bf16 asked about, and the optimizer's states?  Of a mixture under DDP: autocast does not reach its experts (experts_check.c). */
bool limit_narrow(const struct model *m, enum strategy s, enum dialect d, enum dtype precision);

/* The plan with the largest micro-batch of a limit, accumulation 1, states kept as for it; it shares `base`'s model.  0, or -1 reported. */
int limit_plan(const struct plan *base, const struct limit *l, enum dtype precision, enum elsewhere how, struct plan *out);

#endif
