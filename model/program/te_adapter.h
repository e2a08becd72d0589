/* te_adapter.h -- Megatron-Bridge's LoRA beside a linear layer of megatron-core's (src/megatron/bridge/peft/ at 067f987d: LoRALinear,
 * ParallelLinearAdapter).
 *
 *     column-parallel layer   A [rank/t, in], gathered to [rank]; B [out/t, rank]
 *     row-parallel layer      A [rank, in/t], added up;           B [out/t, rank], gathered to [out], of which a rank takes its positions
 *
 * Both are megatron-core's own layers, never of 8 bits, and never gather positions by themselves. */
#ifndef DPX_TE_ADAPTER_H
#define DPX_TE_ADAPTER_H

#include "model/program/tape_te.h"
#include "model/program/torch_model.h"

/* Has the layer of this role an adapter? */
bool te_is_adapted(const struct torch_model *b, enum tensor_role role);

/* The layer's product of x, with its adapter's added where it has one.  Leaves names as te_column() and te_row() do, but that of x where codes
 * of it would be kept: an adapter's x stays the caller's. */
var te_adapted_column(struct torch_model *b, struct te_linear *l, enum tensor_role role, var x);
var te_adapted_row(struct torch_model *b, const struct te_linear *l, enum tensor_role role, var x);

#endif
