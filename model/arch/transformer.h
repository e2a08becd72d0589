/* transformer.h -- a decoder-only transformer as shapes and a tensor table.
 *
 *     struct model m;
 *     if (model_load("llama-3.1-8b", &m) < 0)      a name, config.json or folder; with :score or :value behind it, under that head
 *         return 2;
 *     ... m.params, m.tensors[i].name ...
 *     model_free(&m);
 *
 * The tensor table lists every parameter once, under its Hugging Face
 * (safetensors) name, in the order in which the `transformers` modelling code
 * registers it (the order of model.named_parameters()).  A tied head is not
 * listed a second time.  family.h says which family has which tensors; hf_config.c
 * reads the shape fields below from a Hugging Face config.
 *
 * All blocks hold the same tensors, so those of block b are at  block0 + b*per_block
 * ... + per_block-1, but for models that have experts in some blocks only
 * (model_blocks_differ()): model_block_first() and model_block_tensors() count there.  What is
 * before and after them in registration order belongs to the embedding
 * (block == TENSOR_EMBED) or to the head (block == TENSOR_HEAD): OPT, for
 * instance, registers its final norm, which is TENSOR_HEAD, before its blocks. */
#ifndef DPX_TRANSFORMER_H
#define DPX_TRANSFORMER_H

#include "model/family/model.h"

/* Loads a built-in name, a config.json, or a folder holding one.  0, or -1
 * with the reason reported and nothing to free. */
int model_load(const char *spec, struct model *out);
/* -1, reported: the name is of no model that dpx or the Hugging Face cache has, and of no file; what to do about it. */
int model_unknown(const char *spec);

/* The same from a parsed Hugging Face config; `where` names it in messages. */
int model_from_config(const json_t *config, const char *where, struct model *out);

/* A Hugging Face config that reads back as the same model (new reference). */
json_t *model_to_config(const struct model *m);

/* Makes the tensor and module tables of `m` from its shape fields.  -1 with the
 * reason reported, and no tables, if the parameters are too many to count;
 * `where` names the config in the message. */
int model_tabulate(struct model *m, const char *where);

/* The same shapes, and the same trains, with another number of blocks.  0, or -1 as model_load(). */
int model_with_layers(const struct model *m, int64_t layers, struct model *out);

/* The same blocks under another head; what trains is all of it.  0, or -1 as model_load(). */
int model_with_head(const struct model *m, enum head_kind head, struct model *out);

/* A model of one unit with `params` parameters in one tensor and one block: the
 * synthetic model of `dpxplan limits --states-only`. */
int model_synthetic(int64_t params, struct model *out);

void model_free(struct model *m);

/* Built-in names with one-line descriptions, NULL after the last. */
const char *model_builtin(int i, const char **about);

/* Has this layer experts?  Have some layers experts, and others none? */
bool model_has_experts(const struct model *m, int64_t layer);
static inline bool model_blocks_differ(const struct model *m) { return m->per_dense > 0; }
/* Are blocks of different tensors (a recorded module's, or each of one mixer: hybrid.h), or not one behind the other in the table? */
bool model_is_uneven(const struct model *m);

/* Of a block: its first tensor, and how many it has. */
int  model_block_first(const struct model *m, int64_t block);
int  model_block_tensors(const struct model *m, int64_t block);
/* Blocks that have experts as this one has, or have none as it has none: so many before it, and the first of them. */
int64_t model_place_in_kind(const struct model *m, int64_t block);
int64_t model_first_alike(const struct model *m, int64_t block);
/* Of an uneven model: how far apart in the table those of a sort are, of which `block` is the first. */
int     model_sort_stride(const struct model *m, int64_t block);

/* Blocks with experts, those of multi-token prediction among them. */
int64_t model_routers(const struct model *m);

/* The tensors of a block (`block` >= 0), of the embedding or of the head, one after the other; -1: no more.  However many blocks
 * there are, they are passed by at once.
 *     for (int i = model_next_tensor(m, block, -1); i >= 0; i = model_next_tensor(m, block, i)) */
int model_next_tensor(const struct model *m, int block, int after);

/* Sum of numel over tensors [first, first+n). */
int64_t model_numel(const struct model *m, int first, int n);

#endif
