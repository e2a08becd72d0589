/* te_model.h -- Megatron-core's GPTModel as operations on a tape: te_embed(), te_block() once per block, te_head(), in this order, with
 * what struct torch_model has for them.
 *
 * Kernels `te`: the layers of models/gpt/gpt_layer_specs.py with Transformer Engine (norm and product in one module, fused attention);
 * `megatron-local`: those of transformer_impl "local", as Megatron-LM was before it had either: a norm by itself, attention by
 * single operations.  Both fuse bias and activation, and bias, dropout and residual. */
#ifndef DPX_TE_MODEL_H
#define DPX_TE_MODEL_H

#include "model/program/tape_te.h"
#include "model/program/torch_model.h"

var te_embed(struct torch_model *b);
/* Consumes the name x. */
var te_block(struct torch_model *b, var x);
var te_head(struct torch_model *b, var x);
/* Attention between the projections, of q, k and v (or q alone, all three packed). */
var te_core(struct torch_model *b, var q, var k, var v);
/* The MLP, with Transformer Engine's layers the norm before it, too. */
var te_mlp(struct torch_model *b, var x);

/* Tokens' embeddings as blocks take them: summed over ranks, positions first. */
var te_embedded(struct torch_model *b, var x);

/* Parts of blocks: a linear layer of one fused weight, or of up to three that are kept apart (tape_te.h); a norm. */
struct te_linear te_linear_of(struct torch_model *b, const struct gemm_names *names, int64_t n, int64_t k, const enum tensor_role *roles, int nroles);
var te_norm_of(struct torch_model *b, const char *name, var x, enum tensor_role role);
/* Is the norm one module with the layer behind it (LayerNormLinear)?  Before latent attention, and before a mixture of experts, it is one by itself. */
bool te_is_part_of_layer(const struct torch_model *b, enum tensor_role role);
/* What a layer's products read is cast so; 0: nothing is, and of the head nothing ever. */
struct te_scaled te_scaled_of(const struct torch_model *b);
/* Of a norm's result behind the layer that read it: what there is to drop, 0 where the layer has taken it over as codes. */
var te_last_use(const struct torch_model *b, enum tensor_role norm, var n);

/* Bytes that these kernels take once and keep for ever, on the rank of a local model: Megatron's buffer "mpu", into which
 * the head's input is gathered (and `megatron-local` every input), and a gradient in bf16 of each shape of weight, which Transformer
 * Engine hands to autograd in place of what is in main_grad (get_dummy_wgrad()).  Rounded up to 512 each. */
int64_t te_buffer_bytes(const struct local_model *local);

/* Transformer Engine's codes of linear layers' weights (plan_scaled()).  In how many ways a weight is
 * kept, along rows, along columns; is this tensor cast; how many numbers of a block are (TENSOR_HEAD: of a depth of multi-token prediction; -1: of all). */
int     te_ways(const struct plan *p);
bool    te_is_cast(const struct plan *p, const struct tensor *t);      /* of this plan's model */
int64_t te_cast_numel(const struct local_model *local, int block);
/* Weights in a tensor of a rank: of experts one each. */
int64_t te_weights(const struct tensor *t);
/* Bytes of these codes that stay from the first step on, beside parameters (is_first_microbatch: cast once a step); and of scales and of
 * the largest numbers of steps before: of each linear layer's tensors, input, weight and output, and the two gradients. */
int64_t te_weight_bytes(const struct local_model *local);
int64_t te_scale_bytes(const struct local_model *local);
enum { TE_FORWARD_SCALES = 3, TE_BACKWARD_SCALES = 2 };
/* Linear layers of the rank whose products are of 8 or 4 bits; each expert has its own. */
int64_t te_layers(const struct local_model *local);

#endif
