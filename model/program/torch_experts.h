/* torch_experts.h -- the half of a block that is a mixture of experts. */
#ifndef DPX_TORCH_EXPERTS_H
#define DPX_TORCH_EXPERTS_H

#include "model/program/torch_model.h"

/* What the experts that each token takes add to x. */
var torch_experts(struct torch_model *b, var x);

/* The same of llama4. */
var torch_every_expert(struct torch_model *b, var x);

#endif
