/* training.h -- what of a model trains: all of it, some of its tensors, or LoRA adapters beside frozen weights.
 *
 *     struct training lora = training_default();
 *     strcpy(lora.what, "lora");
 *     if (training_apply(&m, &lora, "plan.json") < 0)
 *         return 2;
 *     ... m.trainable, m.tensors[i].frozen, m.tensors[i].adapter ...
 *
 * Adapters are tensors of the model, in the order in which PEFT 0.21 registers them: a layer's own weight and bias
 * (`base_layer`), then `lora_A` [rank, in] and `lora_B` [out, rank] (peft/tuners/lora/layer.py, Linear).  A module of
 * modules_to_save stays, frozen and unread, behind it comes a copy that trains (peft/utils/other.py,
 * ModulesToSaveWrapper).  Tensors have the names of the file that they are saved in: those of the base model its own,
 * the others those of adapter_model.safetensors.  Modules have PEFT's. */
#ifndef DPX_TRAINING_H
#define DPX_TRAINING_H

#include "model/arch/transformer.h"

/* PEFT's defaults (LoraConfig: r 8, lora_alpha 8, lora_dropout 0), and everything trains. */
struct training training_default(void);

/* Does all of the model train? */
static inline bool training_is_all(const struct training *t) { return t->what[0] == '\0'; }
static inline bool training_is_lora(const struct training *t)
{
    return t->what[0] == 'l' && t->what[1] == 'o' && t->what[2] == 'r' && t->what[3] == 'a' && t->what[4] == '\0';
}

/* Is it a lora_A, a lora_B or a magnitude of DoRA's?  How many of them a block has, and how many of those can be units of FSDP1 by themselves. */
static inline bool tensor_is_adapter(const struct tensor *t)
{
    return t->adapter == ADAPTER_LORA_A || t->adapter == ADAPTER_LORA_B || t->adapter == ADAPTER_MAGNITUDE;
}
int  training_adapters(const struct model *m);
enum { ADAPTERS_MOST = 16 };

/* The modules that PEFT adapts of a family if it is told none, separated by commas; NULL: it asks for them
 * (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, peft/utils/constants.py). */
const char *training_usual_targets(const char *family);

/* The last parts of the names of all linear layers in blocks, each once, separated by commas: of nn.Linear, and (`children`) of classes made of it.
 * 0, or -1 where they do not fit; nothing is reported. */
int training_linear_names(const struct model *m, bool children, char out[TRAINING_LIST]);

/* litgpt's adapters of parts of a layer that is q, k and v in one (lora.qkv_parts): their columns. */
int64_t training_part_columns(const struct model *m, int parts);

/* "NF4", "int8". */
const char *training_base_name(enum base_dtype base);

/* Makes the table of tensors of a model that has no adapters yet.  0, or -1 with the key named and the model as it
 * was.  Refused: names that match no module; a target that is no linear layer of a block; a tied module to save; blocks
 * that differ in what trains, or of which nothing does; packed weights that would train; mixtures of experts. */
int training_apply(struct model *m, const struct training *t, const char *where);

/* A tied head is no module of the table, but a layer all the same, which may have adapters: what it is called; "": it is not known, or not tied. */
const char *training_tied_head(const struct model *m);

#endif
