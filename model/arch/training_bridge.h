/* training_bridge.h -- Megatron-Bridge's LoRA: adapters of GPTModel's layers, in place of PEFT's of transformers' (training.h).
 *
 * The layers are megatron-core's, which a model's own table does not have: megatron_model() makes theirs, with adapters. */
#ifndef DPX_TRAINING_BRIDGE_H
#define DPX_TRAINING_BRIDGE_H

#include "model/arch/transformer.h"

/* What LoRA() adapts if it is told nothing, and all that it can here. */
#define BRIDGE_TARGETS "linear_qkv,linear_proj,linear_fc1,linear_fc2"

/* Is a layer, by the last part of its module's name, adapted? */
bool training_bridge_adapts(const struct training *t, const char *layer);

/* Freezes the model's own tensors, and counts the adapters among its parameters.  0, or -1 with the key named and the model as it was. */
int training_bridge_apply(struct model *m, const struct training *t, const char *where);

#endif
