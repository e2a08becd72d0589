/* tape_te_adapter.h -- what megatron-core does with a tensor between the two products of an adapter, and behind them (Megatron-Bridge's
 * ParallelLinearAdapter, src/megatron/bridge/peft/utils.py at 067f987d; core/tensor_parallel/mappings.py). */
#ifndef DPX_TAPE_TE_ADAPTER_H
#define DPX_TAPE_TE_ADAPTER_H

#include "model/program/tape.h"

enum te_adapter_move {
    TE_ADAPTER_JOIN,        /* gather_output: all ranks' columns beside each other, gathered and then sorted; back: the rank's own, copied */
    TE_ADAPTER_SLICE,       /* scatter_to_sequence_parallel_region: the rank's share of the positions, a view; back: gathered */
    TE_ADAPTER_EXCHANGE,    /* all2all_hp2sp: columns of all positions for all columns of a share of these; back: the reverse */
};

/* Over `ranks` tensor-parallel ranks, of which there are several. */
var te_adapter_move(struct tape *t, enum te_adapter_move how, var x, int64_t ranks);

/* Backward of the node that it makes. */
void te_adapter_move_back(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
