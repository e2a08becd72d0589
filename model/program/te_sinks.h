/* te_sinks.h -- what Megatron-LM's layers of gpt_oss have that the others have not: attention sinks, rotary positions that YaRN scales, biases
 * everywhere, clamped experts. */
#ifndef DPX_TE_SINKS_H
#define DPX_TE_SINKS_H

#include "model/program/torch_model.h"

/* Has the piece's layer sinks (softmax_type learnable), and with them all of this? */
bool te_has_sinks(const struct torch_model *b);
/* A number of fp32 for each head; 0: none. */
var  te_sinks(struct torch_model *b);
/* Rotary positions, by single operations where YaRN scales what is rotated, else by one kernel. */
var  te_rotated(struct torch_model *b, const char *name, var x);
/* dropout(x + bias of the role's layer) + residual, operation by operation. */
var  te_add_apart(struct torch_model *b, const char *name, var x, enum tensor_role role, var residual);
/* Both halves of x clamped, in one piece. */
var  te_clamped(struct torch_model *b, var x);

#endif
