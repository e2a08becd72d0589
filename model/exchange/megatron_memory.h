/* megatron_memory.h -- Megatron-LM's own theoretical memory report (megatron/training/theoretical_memory_usage.py), to the last bit of its
 * floating point.
 *
 *     struct megatron_report r;
 *     if (megatron_report_of(&plan, &r) < 0)
 *         return 2;
 *
 * It takes the fullest rank to be one of the first stage, and knows two kinds of activations: those of sequence parallelism with selective
 * recompute (Korthikanti et al. 2022, Table 2: s b h (18 + 4 f/h) / t a layer), and, whatever else was asked for, those of tensor parallelism
 * alone with 5 % for the rest.  Neither buffers, gathered tensors nor what fused kernels do not keep are in it. */
#ifndef DPX_MEGATRON_MEMORY_H
#define DPX_MEGATRON_MEMORY_H

#include "model/plan/plan.h"

struct megatron_report {
    double weights;             /* bytes: weights, gradients and optimizer states */
    double activations;         /* bytes */
    bool   by_positions;        /* activations are those of sequence parallelism and selective recompute */
};

/* Of a plan in dialect megatron.  0, or -1 reported. */
int megatron_report_of(const struct plan *p, struct megatron_report *out);

#endif
