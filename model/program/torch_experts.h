/* torch_experts.h -- the half of a block that is a mixture of experts. */
#ifndef DPX_TORCH_EXPERTS_H
#define DPX_TORCH_EXPERTS_H

#include "model/program/torch_model.h"

/* What the experts that each token takes add to x. */
var torch_experts(struct torch_model *b, var x);

/* The experts that each of `rows` tokens may choose from: of its best groups.  Nothing of it is differentiated, and all of it goes when the
 * router returns.  Leaves the experts' places. */
var torch_choose_experts(struct torch_model *b, int64_t rows);

/* What the expert that every token takes beside adds to x: DeepseekV3MLP, Llama4TextMLP. */
var torch_shared_expert(struct torch_model *b, var x);

/* gpt_oss's gate: every second column is the gate's, the others are `up`, both clamped; glu: the gate times the sigmoid of 1.702 of it. */
struct clamped { var gate, up, glu; };
struct clamped torch_clamp(struct tape *t, var both);
void torch_clamp_drop(struct tape *t, const struct clamped *c);

/* torch_experts() of llama4. */
var torch_every_expert(struct torch_model *b, var x);

#endif
