/* te_losses.h -- the losses of Megatron-LM's output layer: its own, fused, of Transformer Engine, and those that verl and NeMo-RL put in its place. */
#ifndef DPX_TE_LOSSES_H
#define DPX_TE_LOSSES_H

#include "model/program/te_model.h"

/* Of the head: logits of x by the output layer, and a loss a row. */
var te_losses(struct torch_model *b, const struct te_linear *l, var x, var labels);

#endif
