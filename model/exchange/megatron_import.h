/* megatron_import.h -- a plan from the command line of Megatron-LM's pretrain_gpt.py, or the same as YAML; and back.
 *
 * Options of megatron/training/arguments.py (megatron-core 0.16.1), with its defaults; what a plan has no word for is refused by name.
 * A command line may begin with torchrun and its options; in YAML options stand alone or below MODEL_ARGS, as in Megatron-LM's
 * test configs, or under the names of the configuration dataclasses (tensor_model_parallel_size). */
#ifndef DPX_MEGATRON_IMPORT_H
#define DPX_MEGATRON_IMPORT_H

#include <stdio.h>

#include <jansson.h>

#include "model/plan/plan.h"

/* p.model and p.cluster are set and kept; p.seq, if not 0, must be the config's own.  0, or -1 with the option reported. */
int megatron_import(const json_t *options, const char *where, struct plan *p);

/* The options by name ("tensor_model_parallel_size") of a command's words (a list; its first may be the program), or of a document (`words` NULL);
 * one without a value is true.  New reference, or NULL reported. */
json_t *megatron_options(const json_t *words, const json_t *doc, const char *where);

/* Says what stands beside MODEL_ARGS in the files of Megatron-LM's own tests, but for how they are started and judged. */
void megatron_list_beside(const json_t *doc, const char *where);

/* The model that the options describe, as a config.json (new reference): blocks of Llama, Qwen2, Qwen3, Mixtral, Qwen3-MoE or GPT-2.  NULL
 * reported: they describe none of these, or leave its vocabulary open. */
json_t *megatron_config(const json_t *options, const char *where);

/* The plan's options, a line each.  0, or -1 with what the command line has no word for. */
int megatron_export(const struct plan *p, FILE *to);

#endif
