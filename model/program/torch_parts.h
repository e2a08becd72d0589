/* torch_parts.h -- what the blocks of all families share: linear layers, norms and
 * attention, with autocast where it applies. */
#ifndef DPX_TORCH_PARTS_H
#define DPX_TORCH_PARTS_H

#include "model/program/torch_model.h"

/* A linear layer of the current piece by role; role ROLE_HEAD of a tied model reads the
 * token embedding. */
var torch_linear(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k,
           enum tensor_role role);
/* A parameter of the current piece as an operation reads it: a bf16 copy under autocast where the operation casts; 0: the model has none. */
var torch_read_param(struct torch_model *b, enum tensor_role role, bool bias, int64_t numel, bool casts);
/* The weight of a role, read by several operations, and a linear layer with it. */
var torch_weight(struct torch_model *b, enum tensor_role role, int64_t numel, bool casts);
/* An adapter of the head that several products share, until it is dropped; y with its product of x added (takes y). */
void torch_share_head_adapter(struct torch_model *b);
void torch_drop_head_adapter(struct torch_model *b);
var  torch_adapted(struct torch_model *b, var y, var x, int64_t n, int64_t k, enum tensor_role role);
var torch_linear_with(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, var w,
                      enum tensor_role role);
/* B A of a role's adapter, [n, k]: what PEFT adds to a matrix that is no layer's. */
var torch_adapter_product(struct torch_model *b, enum tensor_role role, int64_t n, int64_t k, int64_t rank);
var torch_norm(struct torch_model *b, const char *name, var x, enum tensor_role role);
/* The same over rows of `width`. */
var torch_norm_rows(struct torch_model *b, const char *name, var x, int64_t width, enum tensor_role role);
/* Llama4TextL2Norm: over heads, without weights. */
var torch_l2_norm(struct torch_model *b, var x);
/* The norm of q or k, whose heads are `width` elements together. */
var torch_qk_norm(struct torch_model *b, var x, int64_t width, enum tensor_role role);
/* What norms and residuals have, as the products of a block need it: all positions; and back, what each rank has a part
 * of, added up.  The same tensors where nothing is cut. */
var torch_enter(struct torch_model *b, var x, enum tensor_role first);     /* first: of the layers that read it */
/* Is that gather joined with the layers that read it (tape_parts.h)? */
bool torch_joins(const struct torch_model *b, enum tensor_role first);
var torch_leave(struct torch_model *b, var x);
/* The layer whose result leaves. */
var torch_linear_leaving(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, enum tensor_role role);
/* The attention half between its norm and the residual. */
var torch_attention(struct torch_model *b, var x);

/* Scores, softmax and values (or the fused kernel) of q, k, v. */
var torch_attention_core(struct torch_model *b, var q, var k, var v);

/* x + 1: a new tensor, nothing saved. */
var op_view_add(struct torch_model *b, var x);
/* x[rows, h] + y[seq, h], broadcast over the micro-batch. */
var op_add_rows(struct torch_model *b, var x, var y);
/* x in fp32 under autocast, else x itself. */
var torch_fp32_if_autocast(struct torch_model *b, var x);
/* x in bf16 under autocast, else x itself. */
var torch_bf16_if_autocast(struct torch_model *b, var x);
/* The cached casts of weights go. */
void torch_leave_autocast(struct torch_model *b);

#endif
