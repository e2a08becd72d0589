/* megatron_model.h -- a plan's model as Megatron-LM's GPTModel registers its parameters.
 *
 *     struct model m;
 *     if (megatron_model(&plan, &m) < 0) ...
 *     ... m.vocab, m.tensors[i].name ...
 *     model_free(&m);
 *
 * Sources (megatron-core 0.16.1): models/gpt/gpt_layer_specs.py (with Transformer Engine's layers, or by kernels "megatron-local"),
 * transformer/attention.py, transformer/mlp.py; Transformer Engine's LayerNormLinear for the order in which a fused layer's own
 * parameters come. */
#ifndef DPX_MEGATRON_MODEL_H
#define DPX_MEGATRON_MODEL_H

#include "model/plan/plan.h"

/* Rows of the token embedding and of the head, all tensor-parallel ranks' together: `vocab` filled up to a multiple of `divisor`
 * (--make-vocab-size-divisible-by) for each of them (training/tokenizer, _vocab_size_with_padding()). */
int64_t megatron_vocab(int64_t vocab, int64_t divisor, int64_t tensor_ranks);

/* Why GPTModel has no such model: static, to follow its name; NULL: it has. */
const char *megatron_model_refused(const struct model *m);

/* The model of all ranks: q, k and v in one matrix by groups, gate and up in another, each with the norm before it; attention's
 * output first in a block, as it is registered; a filled-up vocabulary.  0, or -1 reported and nothing to free. */
int megatron_model(const struct plan *p, struct model *out);

/* Transformer Engine has its attention among a context's ranks by exchanging heads (cp_comm_type a2a) alone: that of gpt_oss, with sinks. */
bool megatron_exchanges_heads(const struct model *m);

#endif
