/* recipe_refuses.h -- recipes whose step is another's than the plan's: refused by the key that says so, before the model is looked for. */
#ifndef DPX_RECIPE_REFUSES_H
#define DPX_RECIPE_REFUSES_H

#include "model/exchange/recipe.h"

/* Preferences and rewards: a reference model's forward, or another head.  NULL: the step has neither; else the key or program that says so. */
const char *recipe_refers(const json_t *config, enum recipe_form form);

/* GRPO's beta: where the file has none it is 0 since TRL 0.19, and 0.04 in the releases that know vllm_device (0.14 to 0.17; trl/trainer/grpo_config.py) and
 * other keys of its time. */
double recipe_grpo_beta(const json_t *config);

/* 0, or -1 reported: another method, a reference model, another head, a compiled model, float8, a plugin that trains otherwise. */
int recipe_refuse_step(const json_t *config, enum recipe_form form, const char *where);

/* LLaMA-Factory's files of chats, merges and predictions have the model's keys, too: 0, or -1 reported. */
int recipe_check_trains(const json_t *config, enum recipe_form form, const char *where, struct notes *notes);

#endif
