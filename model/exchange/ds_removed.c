/* ds_removed.c -- the keys that DeepSpeed removed, by version, refused by name. */
#include "model/exchange/ds_removed.h"

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

int ds_removed_check(const json_t *config, const char *where, const struct plan *p)
{
    const json_t *section = json_object_get(config, "zero_optimization");

    if (!plan_has_deepspeed_0_19_8(p))
        return 0;
    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        if (json_object_get(config, top[i].name))
            return fail("%s: %s: DeepSpeed 0.19.8 refuses this key: %s", where, top[i].name, top[i].why);
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
        if (json_object_get(section, zero[i].name))
            return fail("%s: zero_optimization.%s: DeepSpeed 0.19.8 refuses this key: %s", where,
                        zero[i].name, zero[i].why);
    return 0;
}
