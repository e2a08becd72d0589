/* te_moe.h -- a mixture of experts as Megatron-LM computes it: MoELayer with the all-to-all dispatcher. */
#ifndef DPX_TE_MOE_H
#define DPX_TE_MOE_H

#include "model/program/torch_model.h"

/* In place of the MLP: what b's tokens get from the experts of all ranks. */
var te_moe(struct torch_model *b, var x);
/* Of it: the shared experts; and what is between the experts' two products (bias_act_func()), of rows and their
 * probabilities. */
var te_shared_experts(struct torch_model *b, var x);
var te_moe_act(struct torch_model *b, var x, var probs);

#endif
