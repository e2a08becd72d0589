/* export_torchtitan.c -- command-line overrides for torchtitan.
 *
 * Names and choices from torchtitan 0.3.0: config/configs.py (TrainingConfig,
 * ParallelismConfig), distributed/activation_checkpoint.py (a tyro subcommand),
 * models/<module>/config_registry.py. */
#include "model/exchange/export.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"

static int refuse(const char *key, const char *why)
{
    return fail("export to torchtitan " TORCHTITAN_VERSION ": %s: %s", key, why);
}

/* config_registry functions, by what identifies the model.  `but`: what its model_spec has
 * that no override can switch off. */
static const struct { const char *family; int64_t layers, hidden; const char *module, *config, *but; }
registry[] = {
    { "llama", 32, 4096, "llama3", "llama3_8b", NULL },
    { "llama", 80, 8192, "llama3", "llama3_70b", NULL },
    { "llama", 126, 16384, "llama3", "llama3_405b", "float8 linear layers" },
    { "qwen3", 28, 1024, "qwen3", "qwen3_0_6b", NULL },
    { "qwen3", 28, 2048, "qwen3", "qwen3_1_7b", NULL },
    { "qwen3", 40, 5120, "qwen3", "qwen3_14b", NULL },
    { "qwen3", 64, 5120, "qwen3", "qwen3_32b", NULL },
};

/* Llama 2 has the layers and widths of Llama 3, but 32,000 tokens. */
static int find(const struct model *m)
{
    for (int i = 0; i < (int)(sizeof registry / sizeof *registry); i++)
        if (!strcmp(m->family, registry[i].family) && m->layers == registry[i].layers
            && m->hidden == registry[i].hidden && m->vocab > 100000)
            return i;
    return -1;
}

static int check_strategy(const struct plan *p)
{
    if (p->dialect != DIALECT_TORCH || p->strategy != STRAT_FSDP)
        return fail("export to torchtitan " TORCHTITAN_VERSION ": strategy: it shards with FSDP2 only "
                    "(fsdp/torch), not %s/%s", strategy_name(p->strategy), dialect_name(p->dialect));
    if (p->unit != UNIT_BLOCK)
        return refuse("unit", "it wraps one block at a time");
    if (p->fsdp.reshard_after_forward > 1 || p->fsdp.root_reshard_after_forward > 1)
        return refuse("fsdp.reshard_after_forward", "it has default, always and never, not ranks");
    if (p->fsdp.reshard_after_forward == 0 && p->fsdp.root_reshard_after_forward == 1)
        return refuse("fsdp.root_reshard_after_forward", "never holds for its last layers too");
    if (p->deterministic)
        return refuse("deterministic", "its debug.deterministic is another thing");
    if (!p->sync_every_micro_step && p->accumulation > 1)
        return refuse("sync_every_micro_step", "it reduces after every micro-step");
    return 0;
}

static int check_numbers(const struct plan *p)
{
    if (p->precision == DT_FP16)
        return refuse("precision", "it computes in bfloat16 or float32");
    if (p->reduce_dtype != DT_FP32)
        return refuse("reduce_dtype", "mixed_precision_reduce is float32 only");
    if (p->dropout > 0)
        return refuse("dropout", "its models have none");
    if (p->recompute == RECOMPUTE_SELECTIVE)
        return refuse("recompute", "its selective checkpointing recomputes every other matmul, "
                                   "not attention");
    if (p->recompute_interval > 1)
        return refuse("recompute_interval", "it recomputes all blocks or none");
    return 0;
}

int export_torchtitan(const struct plan *p, FILE *to)
{
    const char *policy = p->fsdp.reshard_after_forward == 0 ? "never"
                       : p->fsdp.root_reshard_after_forward == 1 ? "always" : "default";
    int known = find(&p->model);

    if (check_strategy(p) < 0 || check_numbers(p) < 0)
        return -1;
    fprintf(to, "# torchtitan %s, on %" PRId64 " nodes of %" PRId64 " GPUs\n", TORCHTITAN_VERSION,
            p->cluster.nodes, p->cluster.gpus_per_node);
    fprintf(to, "# its embedding and its norm with head are units of their own; the plan counts "
                "them in the root\n");
    if (known >= 0 && registry[known].but)
        fprintf(to, "# %s of its registry has %s, which no override switches off: give --module %s and a "
                "--config of your own without them\n", registry[known].config, registry[known].but,
                registry[known].module);
    else if (known >= 0)
        fprintf(to, "--module %s --config %s\n", registry[known].module, registry[known].config);
    else
        fprintf(to, "# no config of its registry is %s: give --module and --config of your own\n",
                p->model.name);
    fprintf(to, "# its configs compute head and loss in chunks of the sequence (ChunkedLossWrapper): less memory at "
                "the head than the plan counts, and its gradients are reduced once a chunk\n");
    fprintf(to, "--training.seq-len %" PRId64 "\n", p->seq);
    fprintf(to, "--training.local-batch-size %" PRId64 "\n", p->micro_batch);
    fprintf(to, "--training.global-batch-size %" PRId64 "\n", plan_global_batch(p));
    /* no clipping is a norm that nothing exceeds */
    if (p->clip > 0)
        fprintf(to, "--training.max-norm %.17g\n", p->clip);
    else
        fprintf(to, "--training.max-norm inf\n");
    fprintf(to, "--training.dtype float32\n");
    fprintf(to, "--training.mixed-precision-param %s\n",
            p->precision == DT_BF16 ? "bfloat16" : "float32");
    fprintf(to, "--training.mixed-precision-reduce float32\n");
    fprintf(to, "--parallelism.data-parallel-shard-degree %" PRId64 "\n", p->shard_group);
    fprintf(to, "--parallelism.data-parallel-replicate-degree %" PRId64 "\n",
            p->cluster.world_size / p->shard_group);
    /* some configs of the registry switch these on */
    fprintf(to, "--parallelism.tensor-parallel-degree 1\n--parallelism.context-parallel-degree 1\n"
                "--parallelism.pipeline-parallel-degree 1\n");
    fprintf(to, "--compile.no-enable\n--compile.no-enable-async-tensor-parallel\n");
    fprintf(to, "--parallelism.fsdp-reshard-after-forward %s\n", policy);
    /* tyro's subcommand comes last */
    fprintf(to, "activation-checkpoint:%s\n", p->recompute == RECOMPUTE_FULL ? "full" : "none");
    return 0;
}
