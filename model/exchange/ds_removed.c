/* ds_removed.c -- the keys that DeepSpeed removed, by version, refused by name. */
#include "model/exchange/ds_removed.h"

#include <stdint.h>
#include <string.h>

#include "base/fail.h"

struct removed { const char *name, *why; };

/* runtime/config.py of 0.19.8, in its order. */
static const struct removed top[] = {
    { "nebula", "Nebula checkpointing has been removed" },
    { "compression_training", "the DeepSpeed compression library has been removed" },
    { "amp", "NVIDIA Apex AMP integration has been removed; use fp16, bf16 or torch_autocast" },
    { "quantize_training", "Mixture-of-Quantization (MoQ) has been removed" },
    { "sparse_gradients", "sparse compression of dense torch.nn.Embedding gradients has been removed" },
    { "eigenvalue", "eigenvalue-based Mixture-of-Quantization (MoQ) has been removed" },
    { "sparse_attention", "DeepSpeed Sparse Attention has been removed" },
    { "elasticity", "elastic training has been removed; set train_batch_size, "
      "train_micro_batch_size_per_gpu and gradient_accumulation_steps" },
    { "graph_harvesting", "graph harvesting has been removed" },
    { "curriculum_learning", "legacy top-level curriculum_learning has been removed; use "
      "data_efficiency.data_sampling.curriculum_learning" },
    { "progressive_layer_drop", "Progressive Layer Dropping has been removed" },
};

static const struct removed zero[] = {
    { "mics_shard_size", "MiCS ZeRO-3 sharding has been removed" },
    { "mics_hierarchical_params_gather", "MiCS ZeRO-3 sharding has been removed" },
    { "zeropp_loco_param", "LoCo-Zero++ has been removed" },
};

/* compile/config.py of 0.19.8, CompileConfig, which forbids others: `disable`, `backend` and `kwargs` of 0.13 and 0.14 among them. */
static const char *no_key_of_compile(const json_t *section)
{
    static const char *const known[] = {
        "deepcompile", "autoep_non_moe", "free_activation", "free_activation_threshold", "offload_activation", "offload_activation_pin_memory",
        "offload_opt_states", "double_buffer", "symmetric_memory", "debug_log", "offload_parameters", "sync_before_reduce", "sync_after_reduce",
        "sync_before_allgather", "sync_after_allgather", "keep_int_input_tensors", "keep_all_input_tensors", "passes",
    };
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)section, name, v) {
        bool has = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            has = has || !strcmp(name, known[i]);
        if (!has)
            return name;
    }
    return NULL;
}

int ds_removed_compile(const json_t *section, const char *where, struct notes *notes)
{
    const char *key = no_key_of_compile(section);

    if (json_is_true(json_object_get(section, "deepcompile")))
        return fail("%s: compile.deepcompile: DeepCompile's passes are not planned", where);
    if (key)
        notes_add(notes, "compile.%.60s: DeepSpeed 0.19.8 refuses this key, and does not start; planned as without it: nothing is compiled", key);
    return 0;
}

/* all_gather_dp_groups() of runtime/utils.py divides by it. */
static int check_bucket(const json_t *section, const char *where, const struct plan *p)
{
    const json_t *v = json_object_get(section, "allgather_bucket_size");
    bool gathers = p->strategy == STRAT_ZERO1 || p->strategy == STRAT_ZERO2;

    return gathers && json_is_integer(v) && json_integer_value(v) == 0
         ? fail("%s: zero_optimization.allgather_bucket_size: 0: DeepSpeed divides by it, and stops in its first step", where) : 0;
}

int ds_removed_check(const json_t *config, const char *where, const struct plan *p)
{
    const json_t *section = json_object_get(config, "zero_optimization");

    if (check_bucket(section, where, p) < 0)
        return -1;

    if (!plan_has_deepspeed_0_19_8(p))
        return 0;
    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        if (json_object_get(config, top[i].name))
            return fail("%s: %s: DeepSpeed 0.19.8 refuses this key: %s", where, top[i].name, top[i].why);
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
        if (json_object_get(section, zero[i].name))
            return fail("%s: zero_optimization.%s: DeepSpeed 0.19.8 refuses this key: %s", where,
                        zero[i].name, zero[i].why);
    const char *key = no_key_of_compile(json_object_get(config, "compile"));
    return key ? fail("%s: compile.%.60s: DeepSpeed 0.19.8 refuses this key: \"Extra inputs are not permitted\"", where, key) : 0;
}
