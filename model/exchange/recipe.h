/* recipe.h -- a plan from a fine-tuning recipe.
 *
 *     json_t *config = yaml_read_file("qlora.yml");
 *     p.model, p.cluster are set (recipe_model(config) is the recipe's own name of a model), p.seq where the caller knows it
 *     if (recipe_read(config, "qlora.yml", &p, &notes) < 0)
 *         return 2;
 *
 * Forms, told apart by keys that only they have (recipe_form.c):
 *
 *     transformers    TrainingArguments 5.23 as JSON (to_json_string()) or YAML; the samples' length is the script's;
 *                     everything trains
 *     LLaMA-Factory   a YAML of `llamafactory-cli train` (hparams/ of 2025)
 *     axolotl         a YAML of `axolotl train`: base_model
 *     TRL             a YAML of `trl sft`, dpo, grpo, reward (1.9), or of alignment-handbook
 *     torchtitan      its sections ([training], [parallelism] ...) in YAML: titan_import.h
 *
 * All but the last are transformers' Trainer: plain DDP, or what "deepspeed" and "fsdp" say (ds_config.h, accelerate.h;
 * files they name are looked for beside the recipe).  Keys that are not understood are listed, those first that matter to memory
 * or time; recipe_keys.c has the tables. */
#ifndef DPX_RECIPE_H
#define DPX_RECIPE_H

#include <jansson.h>

#include "base/notes.h"
#include "model/plan/plan.h"

enum recipe_form { RECIPE_TRANSFORMERS, RECIPE_FACTORY, RECIPE_AXOLOTL, RECIPE_TRL, RECIPE_TITAN, NRECIPE };

/* ---- recipe_form.c ---- */

/* The form, or -1 where the document has no key that only one of them has; nothing is reported. */
int recipe_form(const json_t *config);
/* "LLaMA-Factory" */
const char *recipe_form_name(enum recipe_form form);

/* -1, reported with the forms and their keys. */
int recipe_refuse_unclaimed(const char *where);

/* 0; -1 reported where the recipe trains on pictures or sound (a plan has a text model alone), or weights that it rounds as it goes. */
int recipe_check_text(const json_t *config, enum recipe_form form, const char *where);

/* LLaMA-Factory's second command line (src/llamafactory/v1) has other keys, which are not read. */
bool recipe_is_factorys_second(const json_t *config);

/* TRL's trainers, told apart by the program that a command runs (the reader of commands sets this key: "dpo" of `trl dpo`, of trl/scripts/dpo.py), or
 * by their configs' own keys. */
/* A "loss_type" that no TRL has: the trainer's model returns logits. */
#define RECIPE_LOGITS "whole logits"
#define RECIPE_TRL_PROGRAM "program of TRL"
enum trl_trainer { TRL_SFT, TRL_DPO, TRL_KTO, TRL_REWARD, TRL_GRPO };
enum trl_trainer recipe_trl_trainer(const json_t *config);
/* axolotl's `rl`, or what is left of such a recipe once it is read as one of SFT (phases_trl.c): TRL's trainers run it. */
bool recipe_has_preferences(const json_t *config);
/* The trainer of a program by its name, "sft" or "sft_gpt_oss"; false: one that is not read. */
bool recipe_trl_program(const char *program, enum trl_trainer *out);

/* ---- recipe_import.c ---- */

/* The model that the recipe names, or NULL (no form's recipe names one). */
const char *recipe_model(const json_t *config);

/* p.model and p.cluster are set and kept, but for what trains of the model; p.seq, micro_batch and accumulation where they are
 * given in the recipe's place (0: not).  0, or -1 with the key reported. */
int recipe_read(const json_t *config, const char *where, struct plan *p, struct notes *notes);
/* The same of a recipe that `accelerate launch` runs: who shares what is in accelerate's config (NULL: recipe_read()), but for the
 * number format, which is the recipe's.  `by` names that config. */
int recipe_read_launched(const json_t *config, const char *where, const json_t *launch, const char *by, struct plan *p, struct notes *notes);

/* ---- recipe_keys.c ---- */

/* What a recipe says, in any of the forms. */
enum recipe_word {
    SAYS_MODEL, SAYS_SEQ, SAYS_BATCH, SAYS_ACCUMULATION, SAYS_BF16, SAYS_FP16, SAYS_CHECKPOINT, SAYS_NO_CHECKPOINT, SAYS_OPTIM,
    SAYS_CLIP, SAYS_DEEPSPEED, SAYS_FSDP, SAYS_FSDP_CONFIG, SAYS_FSDP_VERSION, SAYS_KIND, SAYS_RANK, SAYS_ALPHA, SAYS_DROPOUT,
    SAYS_TARGETS, SAYS_ALL_LINEAR, SAYS_SAVED, SAYS_4BIT, SAYS_8BIT, SAYS_BITS, SAYS_DOUBLE, SAYS_PURE, SAYS_BUCKET, SAYS_UNUSED,
    SAYS_BUFFERS, SAYS_STATIC, SAYS_EAGER, SAYS_ATTENTION, SAYS_ADAPTS, SAYS_DTYPE, NSAYS
};

/* The form's key for it as the config spells it (a key may have an older name), else its first name; NULL: it has none. */
const char *recipe_key(const json_t *config, enum recipe_form form, enum recipe_word word);

/* The first key that the form's programs do not have, as far as is known, and how many there are; NULL: there is none. */
const char *recipe_first_unknown(const json_t *config, enum recipe_form form, size_t *n);

/* Lists what of the config was not read. */
void recipe_list_rest(const json_t *config, enum recipe_form form, struct notes *notes);

#endif
