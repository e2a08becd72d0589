/* te_again.h -- modules of Megatron-LM's layers that backward runs again (recompute_granularity selective, recompute_modules).
 *
 * megatron-core 0.16.1, core/tensor_parallel/random.py.  CheckpointFunction keeps what a module is given, and runs it again, all of it, when the
 * gradient of its result is there.  CheckpointWithoutOutput is for a module whose result the modules behind it keep: once these have run the
 * result's storage is emptied (resize_(0)), and when the gradient of *their* result is there the module runs again and its result is copied into
 * the storage that was emptied; the second result stays until the module's own backward is done. */
#ifndef DPX_TE_AGAIN_H
#define DPX_TE_AGAIN_H

#include "model/program/torch_model.h"

enum te_module { TE_CORE_ATTN, TE_MLP, TE_MOE, TE_SHARED_EXPERTS, TE_INPUT_NORM, TE_PRE_MLP_NORM, TE_MOE_ACT, TE_MLA_UP_PROJ, NTE_MODULE };

/* The module's results out[] of its arguments in[], 0 where it has fewer: by a checkpoint where the plan names it (and the block is one that
 * backward runs modules of again), else as it is.  *region: for te_discard(); may be NULL for a module that keeps its result. */
void te_module(struct torch_model *b, enum te_module module, const var in[TE_MODULE_VARS], var out[TE_MODULE_VARS], int *region);

/* The modules that read the result have run, the last node made being theirs: its storage is emptied.  Nothing, where `region` is of none. */
void te_discard(struct torch_model *b, int region);

/* Backward of nodes [node0, node1) of the tape, in which `n` modules run again. */
void te_backward(struct torch_model *b, const struct te_region *regions, int n, int node0, int node1);

#endif
