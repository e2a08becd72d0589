/* ds_names.c -- see ds_names.h. */
#include "model/exchange/ds_names.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "model/plan/knob.h"

/* runtime/zero/config.py and runtime/tensor_parallel/config.py of DeepSpeed 0.19.8: every field with an alias. */
static const struct name { const char *section, *field, *alias; } names[] = {
    { "zero_optimization", "prefetch_bucket_size", "stage3_prefetch_bucket_size" },
    { "zero_optimization", "param_persistence_threshold", "stage3_param_persistence_threshold" },
    { "zero_optimization", "model_persistence_threshold", "stage3_model_persistence_threshold" },
    { "zero_optimization", "max_live_parameters", "stage3_max_live_parameters" },
    { "zero_optimization", "max_reuse_distance", "stage3_max_reuse_distance" },
    { "zero_optimization", "gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save" },
    { "zero_optimization", "module_granularity_threshold", "stage3_module_granularity_threshold" },
    { "zero_optimization", "use_all_reduce_for_fetch_params", "stage3_use_all_reduce_for_fetch_params" },
    { "zero_optimization", "allgather_sequential", "stage3_allgather_sequential" },
    { "tensor_parallel", "tensor_parallel", "tp" },
    { "tensor_parallel", "replace_with_kernel_inject", "kernel_inject" },
};

static bool is_auto(const json_t *v)
{
    const char *word = json_string_value(v);

    return word && !strcmp(word, "auto");
}

static int to_alias(json_t *section, const struct name *n, const char *where, struct notes *notes)
{
    json_t *v = json_object_get(section, n->field);

    if (!v)
        return 0;
    if (json_object_get(section, n->alias))
        return fail("%s: %s.%s: DeepSpeed refuses it beside %s, its other name", where, n->section, n->field, n->alias);
    if (is_auto(v))
        notes_add(notes, "%s.%s is \"auto\", which is filled in for %s alone: DeepSpeed's default", n->section, n->field, n->alias);
    else
        json_object_set(section, n->alias, v);
    json_object_del(section, n->field);
    return 0;
}

bool ds_names_has_auto(const json_t *config)
{
    const char *key;
    json_t *v;
    bool found = is_auto(config);

    json_object_foreach((json_t *)(uintptr_t)config, key, v)
        found |= strcmp(key, "optimizer") && strcmp(key, "scheduler") && ds_names_has_auto(v);
    return found;
}

json_t *ds_names_aliased(const json_t *config, const char *where, struct notes *notes)
{
    json_t *copy = json_deep_copy(config);

    for (size_t i = 0; copy && i < sizeof names / sizeof *names; i++)
        if (to_alias(json_object_get(copy, names[i].section), &names[i], where, notes) < 0) {
            json_decref(copy);
            return NULL;
        }
    if (!copy)
        fail("%s: out of memory", where);
    return copy;
}

/* The section, or "SECTION.SECTION". */
static json_t *within(const json_t *config, const char *path)
{
    const char *dot = strchr(path, '.');
    char first[64];

    snprintf(first, sizeof first, "%.*s", (int)strcspn(path, "."), path);
    json_t *v = json_object_get(config, first);
    return dot ? json_object_get(v, dot + 1) : v;
}

void ds_names_list_unknown(const json_t *config, struct notes *notes)
{
    static const struct { const char *section, *known[20]; } sections[] = {
        { "optimizer", { "type", "params", "legacy_fusion" } },
        { "optimizer.params", { "lr", "betas", "eps", "weight_decay", "bias_correction", "adam_w_mode", "torch_adam", "fused", "foreach", "amsgrad", "momentum",
                                "ns_method", "ns_steps", "nesterov", "muon_lr", "adam_lr", "per_head_muon", "cuda_aware", "set_grad_none" } },
        { "bf16", { "enabled", "immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads", "bf16_optimizer_states" } },
        { "bfloat16", { "enabled", "immediate_grad_update", "check_grad_overflow" } },
        { "fp16", { "enabled", "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis",
                    "min_loss_scale", "fp16_master_weights_and_grads" } },
        { "data_types", { "grad_accum_dtype", "param_dtype", "buffer_dtype" } },
        { "activation_checkpointing", { "partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "number_checkpoints",
                                        "synchronize_checkpoint_boundary", "profile" } },
    };
    const char *name;
    json_t *v;

    for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
        json_object_foreach(within(config, sections[s].section), name, v) {
            bool known = false;
            for (int k = 0; k < 20 && sections[s].known[k]; k++)
                known = known || !strcmp(name, sections[s].known[k]);
            bool forbids = !strcmp(sections[s].section, "bf16") || !strcmp(sections[s].section, "fp16");
            if (!known)
                notes_add(notes, "%s.%.60s is not known and was ignored%s", sections[s].section, name, forbids
                          ? ", as by older versions: DeepSpeed 0.19.8 stops at it (\"Extra inputs are not permitted\")" : "");
        }
}

void ds_names_list_within(const char *section, const json_t *v, struct notes *notes)
{
    struct unread u = { .notes = notes };

    unread_section(&u, section, v);
    unread_end(&u);
    /* comm/comm.py, timed_op(): get_accelerator().synchronize() behind each collective. */
    if (!strcmp(section, "comms_logger") && json_is_true(json_object_get(v, "enabled")))
        notes_add(notes, "comms_logger is not in the plan: the host and the GPU wait for each collective, so none is hidden behind compute");
}

/* DeepSpeed ignores at this stage what it reads, and so do we; but it reads it (pydantic), and takes no value of another kind. */
int ds_names_check_idle(const char *where, const char *section, const char *name, const json_t *v)
{
    const struct knob *k = knob_named(KNOB_DS, section, name, ~UINT64_C(0));
    bool truth = k && (k->type == KNOB_BOOL || k->type == KNOB_FLAG), number = k && (k->type == KNOB_INT || k->type == KNOB_REAL);

    if (json_is_null(v) || is_auto(v))
        return 0;
    if (truth && !json_is_boolean(v))
        return fail("%s: %s.%s: expected true or false", where, section, name);
    return number && (!json_is_number(v) || json_number_value(v) < 0) ? fail("%s: %s.%s: expected a number from 0 on", where, section, name) : 0;
}
