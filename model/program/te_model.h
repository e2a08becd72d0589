/* te_model.h -- Megatron-core's GPTModel as operations on a tape: te_embed(), te_block() once per block, te_head(), in this order, with
 * what struct torch_model has for them.
 *
 * Kernels `te`: the layers of models/gpt/gpt_layer_specs.py with Transformer Engine (norm and product in one module, fused attention);
 * `megatron-local`: those of transformer_impl "local", as Megatron-LM was before it had either: a norm by itself, attention by
 * single operations.  Both fuse bias and activation, and bias, dropout and residual. */
#ifndef DPX_TE_MODEL_H
#define DPX_TE_MODEL_H

#include "model/program/torch_model.h"

var te_embed(struct torch_model *b);
/* Consumes the name x. */
var te_block(struct torch_model *b, var x);
var te_head(struct torch_model *b, var x);
/* Attention between the projections, of q, k and v (or q alone, all three packed): what selective recompute runs again. */
var te_core(struct torch_model *b, var q, var k, var v);
/* The MLP, with Transformer Engine's layers the norm before it, too: what recompute of "mlp" runs again. */
var te_mlp(struct torch_model *b, var x);

/* Bytes that these kernels take once and keep for ever, on the rank of a local model: Megatron's buffer "mpu", into which
 * the head's input is gathered (and `megatron-local` every input), and a gradient in bf16 of each shape of weight, which Transformer
 * Engine hands to autograd in place of what is in main_grad (get_dummy_wgrad()).  Rounded up to 512 each. */
int64_t te_buffer_bytes(const struct local_model *local);

#endif
