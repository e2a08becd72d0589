/* convert.h -- plans from the configs of frameworks, and back: dpxplan import and export, dpx_import() and dpx_export().
 *
 *     struct import_args a = IMPORT_ARGS;
 *     const struct opt opts[] = { IMPORT_OPTS(a), { 0 } };
 *     ... opts_parse() or opts_json() ...
 *     struct plan p;
 *     int rc = convert_import(&a, &p);
 *     if (rc == EXIT_DONE)
 *         ... plan_free(&p) ... */
#ifndef DPX_CONVERT_H
#define DPX_CONVERT_H

#include "base/size.h"
#include "model/exchange/export.h"
#include "model/form/form.h"
#include "model/plan/knob.h"
#include "sim/plan/plan_source.h"
#include "sim/plan/search_args.h"

struct import_args {
    const char *text;                   /* of `file`, which is then only its name */
    const char *file, *ds, *accelerate, *titan, *megatron, *recipe, *model, *cluster, *response;
    const struct json_t *file_doc, *ds_doc, *accelerate_doc, *titan_doc, *megatron_doc, *recipe_doc, *model_doc, *cluster_doc;  /* in the place of files and names */
    bool summary;                                                               /* say in five lines what was understood */
    int precision, recompute;                                                   /* -1: not given */
    int64_t seq, micro_batch, accumulation, global_batch, host_memory;          /* 0: not given */
};

#define IMPORT_ARGS { .precision = -1, .recompute = -1 }
#define IMPORT_OPTS(a) \
    OPTS_EXAMPLE("dpxplan import demo/qwen3-sft.yaml 8xh100 -o plan.json"), \
    OPTS_EXAMPLE("dpxplan import demo/megatron-8b.txt --model llama-3.1-8b --cluster 8xh100"), \
    { "FILE", "what you have: a recipe, a config, a command or its script; its form is found by itself", .str = &(a).file, .doc = &(a).file_doc, .positional = true }, \
    { "ds-config", "the same, where it is known to be DeepSpeed's JSON", .str = &(a).ds, .doc = &(a).ds_doc, .value = "FILE", .group = "The form of the file, where it must be said" }, \
    { "accelerate", "the same, where it is known to be accelerate's YAML", .str = &(a).accelerate, .doc = &(a).accelerate_doc, .value = "FILE", .group = "The form of the file, where it must be said" }, \
    { "torchtitan", "likewise torchtitan's: TOML, or its options", .str = &(a).titan, .doc = &(a).titan_doc, .value = "FILE", .group = "The form of the file, where it must be said" }, \
    { "megatron", "likewise a command line of Megatron-LM, or its options as YAML", .str = &(a).megatron, .doc = &(a).megatron_doc, .value = "FILE", .group = "The form of the file, where it must be said" }, \
    { "recipe", "likewise a recipe of any form", .str = &(a).recipe, .doc = &(a).recipe_doc, .value = "FILE", .group = "The form of the file, where it must be said" }, \
    { "text", "the text of FILE, which is then only its name", .str = &(a).text, .value = "TEXT", .group = "The form of the file, where it must be said" }, \
    { "model", "a built-in name, a config.json or its folder; left out: the file's own", .str = &(a).model, .doc = &(a).model_doc, .names = model_builtin, .often = true }, \
    { "cluster", "a cluster file, a built-in name, 4x8xh100", .str = &(a).cluster, .doc = &(a).cluster_doc, .names = cluster_builtin, .bare = true, .bare_if = cluster_is_spec, .often = true, .value = "CLUSTER" }, \
    { "host-memory", "bytes of a node's host memory, instead of the cluster's", .bytes = &(a).host_memory, .min = MEMORY_LEAST }, \
    { "seq", "tokens per sample; left out: the file's own", .length = &(a).seq, .min = 1, .often = true }, \
    { "response", "of a recipe whose models take turns: tokens of a response on average and at most, such as 700,2048", .str = &(a).response, .value = "MEAN,LONGEST" }, \
    { "micro-batch", "samples per rank, where the config says \"auto\" or nothing", .i = &(a).micro_batch, .min = 1 }, \
    { "accumulation", "micro-steps per optimizer step, likewise", .i = &(a).accumulation, .min = 1 }, \
    { "global-batch", "samples per optimizer step, in the place of --accumulation", .i = &(a).global_batch, .min = 1, .often = true }, \
    { "recompute", "activation recompute, which these configs leave to the model", .word = &(a).recompute, .words = knob_words("recompute") }, \
    { "precision", "fp32, bf16 or fp16, likewise", .word = &(a).precision, .words = knob_words("precision") }

/* Files of frameworks, and jobs that start them (job_export.h); ended by NULL. */
extern const char *const convert_targets[];

struct export_args { struct plan_given plan; const char *to; int64_t steps; };

#define EXPORT_OPTS(a) \
    OPTS_EXAMPLE("dpxplan export demo/8b-fsdp.json --to torchtitan"), \
    { "PLAN.json", "the plan", .str = &(a).plan.path, .doc = &(a).plan.doc, .positional = true, .required = true }, \
    { "to", "deepspeed, accelerate, torchtitan (0.3.0; torchtitan-0.2.2 for that one), fsdp (plain PyTorch), megatron, axolotl (or recipe), llamafactory; as a job: sbatch, mpijob, trainjob", .str = &(a).to, .words = convert_targets, .value = "FRAMEWORK", .required = true, .often = true }, \
    { "steps", "of a job: optimizer steps, for the time that it asks for", .i = &(a).steps, .min = 1 }

/* EXIT_DONE, or another exit status with the reason reported and nothing to free. */
int convert_import(const struct import_args *a, struct plan *out);
/* The same of a file that is open. */
int convert_form(const struct import_args *a, const struct form_file *f, struct plan *out);
/* The model that a file names, which it does.  One that is a path of its author's machine is taken by the name of its folder, where that
 * is known; a note says so. */
const char *convert_model_named(const struct form *form, const struct form_file *f);
/* The target's text into *text, which is to be free()d. */
int convert_export(const struct export_args *a, char **text);

#endif
