/* recipe.h -- a plan from a fine-tuning recipe.
 *
 *     json_t *config = yaml_read_file("qlora.yml");
 *     p.model, p.cluster are set (recipe_model(config) is the recipe's own name of a model), p.seq where the caller knows it
 *     if (recipe_import(config, "qlora.yml", &p) < 0)
 *         return 2;
 *
 * Forms, told apart by their keys:
 *
 *     transformers    TrainingArguments 5.23 as JSON (to_json_string()) or YAML; the model and the samples' length are the
 *                     script's; everything trains
 *     LLaMA-Factory   a YAML of `llamafactory-cli train`: model_name_or_path (hparams/ of 2025)
 *     axolotl         a YAML of `axolotl train`: base_model
 *     torchtitan      its sections ([training], [parallelism] ...) in YAML: titan_import.h
 *
 * The first three are transformers' Trainer: plain DDP, or what "deepspeed" and "fsdp" say (ds_config.h, accelerate.h;
 * files they name are looked for beside the recipe).  Keys that are not understood are listed, those first that matter to memory
 * or time; recipe_keys.c has the tables. */
#ifndef DPX_RECIPE_H
#define DPX_RECIPE_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

enum recipe_form { RECIPE_TRANSFORMERS, RECIPE_FACTORY, RECIPE_AXOLOTL, RECIPE_TITAN, NRECIPE };

enum recipe_form recipe_form(const json_t *config);
/* "LLaMA-Factory" */
const char *recipe_form_name(enum recipe_form form);

/* The model that the recipe names, or NULL. */
const char *recipe_model(const json_t *config);

/* p.model and p.cluster are set and kept, but for what trains of the model; p.seq, micro_batch and accumulation where they are
 * given in the recipe's place (0: not).  0, or -1 with the key reported. */
int recipe_import(const json_t *config, const char *where, struct plan *p);
int recipe_read(const json_t *config, const char *where, struct plan *p, struct notes *notes);

/* ---- recipe_keys.c ---- */

/* What a recipe says, in any of the forms. */
enum recipe_word {
    SAYS_MODEL, SAYS_SEQ, SAYS_BATCH, SAYS_ACCUMULATION, SAYS_BF16, SAYS_FP16, SAYS_CHECKPOINT, SAYS_NO_CHECKPOINT, SAYS_OPTIM,
    SAYS_CLIP, SAYS_DEEPSPEED, SAYS_FSDP, SAYS_FSDP_CONFIG, SAYS_FSDP_VERSION, SAYS_KIND, SAYS_RANK, SAYS_ALPHA, SAYS_DROPOUT,
    SAYS_TARGETS, SAYS_ALL_LINEAR, SAYS_SAVED, SAYS_4BIT, SAYS_8BIT, SAYS_BITS, SAYS_DOUBLE, SAYS_PURE, SAYS_BUCKET, SAYS_UNUSED,
    SAYS_BUFFERS, SAYS_STATIC, SAYS_EAGER, SAYS_ATTENTION, NSAYS
};

/* The form's key for it; NULL: it has none. */
const char *recipe_key(enum recipe_form form, enum recipe_word word);

/* Lists what of the config was not read. */
void recipe_list_rest(const json_t *config, enum recipe_form form, struct notes *notes);

#endif
