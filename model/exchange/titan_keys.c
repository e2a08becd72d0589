/* titan_keys.c -- see titan_keys.h.  Names are those of torchtitan's config/job_config.py (2024 to 0.2.2) and config/configs.py (0.3.0). */
#include "model/exchange/titan_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"
#include "model/exchange/unread.h"

#define COUNT(list) (sizeof (list) / sizeof *(list))

/* Keys of [parallelism] that are read, or that say nothing of a plan beside the others. */
static const char *const parallel[] = {
    "data_parallel_replicate_degree", "disable_loss_parallel", "enable_async_tensor_parallel", "module_fqns_per_model_part",
    "pipeline_parallel_layers_per_stage", "pipeline_parallel_schedule_csv", "pipeline_parallel_microbatch_size", "num_pp_microbatches",
    "context_parallel_degree", "context_parallel_load_balancer", "context_parallel_rotate_method", "expert_parallel_degree",
    "expert_tensor_parallel_degree", "enable_sequence_parallel",
};

/* Those that are not read. */
static const char *const beside_parallel[] = {
    "pipeline_parallel_expert_parallel_overlap", "expert_parallel_comm_backend", "enable_compiled_autograd", "spmd_backend",
};

/* Of the other sections, what is read and is no knob. */
static const char *const understood[] = {
    "config", "module", "model.name", "model.flavor", "model.converters", "training.seq_len", "training.batch_size", "training.local_batch_size",
    "training.global_batch_size", "training.mixed_precision_param", "training.dtype", "training.disable_cuda_graphs", "training.compile", "activation_checkpoint.mode",
    "activation_checkpoint.selective_ac_option", "optimizer.name", "optimizer.fused", "compile.enable", "compile.components", "compile.enable_async_tensor_parallel",
    "hf_transformers.model",
};

/* Of [float8] and [quantize.linear.float8]. */
static const char *const float8[] = {
    "enable_float8_linear", "recipe_name", "filter_fqns", "emulate", "enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp",
};

/* What does matter, but for one value, and why it is not in the plan. */
static const struct { const char *key, *usual, *why; } matters[] = {
    { "parallelism.enable_compiled_autograd", NULL, "compiled autograd is not modelled" },
    { "parallelism.pipeline_parallel_expert_parallel_overlap", NULL, "two micro-steps that overlap are not modelled beside experts" },
    { "parallelism.expert_parallel_comm_backend", "standard", "another exchange of tokens than torch's all-to-all is not modelled" },
    { "optimizer.early_step_in_backward", NULL, "the optimizer steps within backward, which frees gradients sooner" },
    { "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", NULL, "planned is its default: routers' products run again, of all others every second" },
    { "activation_checkpoint.early_stop", NULL, "recompute ends with the last tensor that backward needs" },
    { "compile.backend", "inductor", "another backend's kernels are not modelled" },
    { "float8.force_recompute_fp8_weight_in_bwd", NULL, "weights are cast once more in backward" },
    { "float8.moe_fqns_prototype", NULL, "experts in float8 are not planned" },
    { "training.deterministic", NULL, "deterministic kernels take longer" },
    { "debug.deterministic", NULL, "deterministic kernels take longer" },
    { "training.gc_debug", NULL, "Python collects garbage in every step" },
    { "training.norm_type", "rmsnorm", "the norm is the model's own" },
    { "model.norm_type", "rmsnorm", "the norm is the model's own" },
    { "training.fp8_linear", NULL, "its float8 of 2024 is [float8] enable_float8_linear since" },
    { "training.enable_fp8_linear", NULL, "its float8 of 2024 is [float8] enable_float8_linear since" },
    { "fault_tolerance.enable", NULL, "torchft's groups of replicas are not modelled" },
    { "experimental.custom_import", NULL, "code of one's own may change the model" },
    { "experimental.custom_model_path", NULL, "the model is of the plan, not of that file" },
    { "validation.enable", NULL, "validation between steps is not in the plan's step" },
};

/* Names, or (with *) what they begin with, of keys that say nothing of a step. */
static const char *const silent[] = {
    "job.*", "profiling.*", "profiler.*", "metrics.*", "lr_scheduler.*", "checkpoint.*", "comm.*", "memory_estimation.*", "fault_tolerance.*",
    "validation.*", "debug.*", "tokenizer.*", "dataloader.*", "mx.*", "quantize.linear.mx.*", "quantize.grouped_mm.*", "dump_folder", "hf_assets_path",
    "model.tokenizer*", "model.hf_assets_path", "model.print_after_conversion", "training.dataset*", "training.steps", "training.seed",
    "training.gc_freq", "training.warmup_steps", "training.data_parallel_type", "training.enable_loss_parallel", "training.enable_fsdp2",
    "optimizer.lr", "optimizer.beta1", "optimizer.beta2", "optimizer.eps", "optimizer.weight_decay",
    "activation_checkpoint.preserve_rng_state", "activation_checkpoint.determinism_check", "activation_checkpoint.debug",
    "activation_checkpoint.memory_budget", "activation_checkpoint.visualize_memory_budget_pareto", "experimental.custom_args_module",
    "parallelism.spmd_backend", "float8.round_scales_to_power_of_2",
};

bool titan_keys_named(const struct knob *k, char section[64], char key[96])
{
    const char *name = knob_spelt(k, &k->titan), *dot = strrchr(name, '.');

    if (!k->titan.section || strncmp(name, "--", 2) || !dot)
        return false;
    snprintf(section, 64, "%.*s", (int)(dot - name - 2), name + 2);
    snprintf(key, 96, "%s", dot + 1);
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
    return true;
}

static bool is_knob(const char *section, const char *key)
{
    char its_section[64], its_key[96];
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (titan_keys_named(k, its_section, its_key) && !strcmp(its_section, section) && !strcmp(its_key, key))
            return true;
    return false;
}

static bool is_parallel(const char *key)
{
    return unread_is_among(key, parallel, COUNT(parallel)) || is_knob("parallelism", key);
}

static const char *nearest(const char *key)
{
    enum { MOST = 64 };
    static _Thread_local char names[MOST][96];
    const char *words[COUNT(parallel) + MOST + 1];
    const struct knob *k;
    char section[64];
    size_t n = 0;

    for (int i = 0; (k = knob_at(i)) && n < MOST; i++)
        if (titan_keys_named(k, section, names[n]) && !strcmp(section, "parallelism")) {
            words[n] = names[n];
            n++;
        }
    memcpy(&words[n], parallel, sizeof parallel);
    words[n + COUNT(parallel)] = NULL;
    return opts_nearest_word(key, words);
}

int titan_keys_check(const json_t *config, const char *where)
{
    const char *key, *near;
    json_t *v;

    if (json_object_get(json_object_get(config, "training"), "num_tokens_per_microbatch_per_dp_rank") ||
        json_object_get(json_object_get(config, "training"), "max_context_length"))
        return fail("%s: training: batches in tokens are of a later torchtitan than 0.3.0: give local_batch_size and seq_len", where);
    json_object_foreach(json_object_get(config, "parallelism"), key, v) {
        if (is_parallel(key) || unread_is_among(key, beside_parallel, COUNT(beside_parallel)))
            continue;
        near = nearest(key);
        return fail("%s: parallelism.%s: unknown key%s%s%s", where, key, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    return 0;
}

/* `path` is section and key; degrees were in [training] and [experimental] in 2024. */
bool titan_keys_reads(const char *path)
{
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    char section[64];

    snprintf(section, sizeof section, "%.*s", dot ? (int)(dot - path) : 0, path);
    if (!strcmp(section, "float8") || !strcmp(section, "quantize.linear.float8"))
        return unread_is_among(key, float8, COUNT(float8));
    if (!strcmp(section, "parallelism") || ((!strcmp(section, "training") || !strcmp(section, "experimental")) && is_parallel(key)))
        return is_parallel(key);
    return unread_is_among(path, understood, COUNT(understood)) || is_knob(section, key);
}

/* NULL: it does not, or asks for what is planned. */
static const char *why_it_matters(const char *path, const json_t *v)
{
    const char *text = json_string_value(v), *of = !strncmp(path, "quantize.linear.", 16) ? path + 16 : path;

    for (size_t i = 0; i < COUNT(matters); i++)
        if (!strcmp(of, matters[i].key))
            return text && matters[i].usual && !strcmp(text, matters[i].usual) ? NULL : matters[i].why;
    return NULL;
}

/* Is it one that would matter, with the value that does not? */
static bool is_usual(const char *path)
{
    for (size_t i = 0; i < COUNT(matters); i++)
        if (!strcmp(path, matters[i].key))
            return true;
    return false;
}

enum { DEEPEST = 4 };

static void list(const json_t *in, const char *path, int depth, struct unread *u)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)in, key, v) {
        char at[256];
        snprintf(at, sizeof at, "%.120s%s%.100s", path, *path ? "." : "", key);
        const char *of = !strncmp(at, "quantize.linear.float8.", 23) ? at + 16 : at;
        bool known = is_usual(of) || unread_is_among(of, silent, COUNT(silent));
        if (json_object_size(v) > 0 && depth < DEEPEST)
            list(v, at, depth + 1, u);
        else if (!titan_keys_reads(at) && (!known || !unread_asks_nothing(v)))
            unread_add(u, at, why_it_matters(at, v), known);
    }
}

void titan_keys_list_rest(const json_t *config, struct notes *notes)
{
    struct unread u = { .notes = notes };

    list(config, "", 0, &u);
    unread_end(&u);
}
