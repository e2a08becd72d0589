/* export_torchtitan.c -- command-line overrides for torchtitan.
 *
 * Names and choices from torchtitan 0.3.0: config/configs.py (TrainingConfig,
 * ParallelismConfig), distributed/activation_checkpoint.py (a tyro subcommand),
 * models/<module>/config_registry.py; and from 0.2.2: config/job_config.py, models/<name>/__init__.py. */
#include "model/exchange/export.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/titan_float8.h"
#include "model/plan/knob.h"

static int refuse(const char *key, const char *why)
{
    return fail("export to torchtitan: %s: %s", key, why);
}

/* config_registry functions, by what identifies the model; `flavor`: its name up to 0.2.2.  `but`: what its model_spec has
 * that no override can switch off. */
static const struct { const char *family; int64_t layers, hidden; const char *module, *config, *flavor, *but; }
registry[] = {
    { "llama", 32, 4096, "llama3", "llama3_8b", "8B", NULL },
    { "llama", 80, 8192, "llama3", "llama3_70b", "70B", NULL },
    { "llama", 126, 16384, "llama3", "llama3_405b", "405B", "float8 linear layers" },
    { "qwen3", 28, 1024, "qwen3", "qwen3_0_6b", "0.6B", NULL },
    { "qwen3", 28, 2048, "qwen3", "qwen3_1_7b", "1.7B", NULL },
    { "qwen3", 40, 5120, "qwen3", "qwen3_14b", "14B", NULL },
    { "qwen3", 64, 5120, "qwen3", "qwen3_32b", "32B", NULL },
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
        return fail("export to torchtitan: strategy: it shards with FSDP2 only "
                    "(fsdp/torch), not %s/%s", strategy_name(p->strategy), dialect_name(p->dialect));
    if (p->fsdp.reshard_after_forward > 1 || p->fsdp.root_reshard_after_forward > 1)
        return refuse("fsdp.reshard_after_forward", "it has default, always and never, not ranks");
    if (p->fsdp.reshard_after_forward == 0 && p->fsdp.root_reshard_after_forward == 1)
        return refuse("fsdp.root_reshard_after_forward", "never holds for its last layers too");
    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_COMPILE)
        return refuse("kernels", "its attention is PyTorch's sdpa");
    if (!p->sync_every_micro_step && p->accumulation > 1 && p->parallel.pipeline == 1)
        return refuse("sync_every_micro_step", "it reduces after every micro-step");
    return 0;
}

/* What 0.2.2 has and 0.3.0 has no more: every how many blocks are recomputed, which products are, and gathers of float8. */
static bool had_once(const struct plan *p, const struct knob *k)
{
    const char *name = k->name;

    return !strcmp(name, "recompute_interval") || !strcmp(name, "enable_fsdp_float8_all_gather") || !strcmp(name, "precompute_float8_dynamic_scale_for_fsdp") ||
           (!strcmp(name, "recompute") && p->recompute == RECOMPUTE_OP);
}

static int check_knobs(const struct plan *p, bool old)
{
    const struct knob *k;
    char key[96];

    for (int i = 0; (k = knob_at(i)); i++) {
        bool compiled = !strcmp(k->name, "loss") && p->loss == LOSS_COMPILED && p->kernels == KERNELS_TORCH_COMPILE;
        if (!knob_concerns(k, &k->titan, knob_cell(p)) || !k->titan.lacks || compiled || knob_sayable(p, k, &k->titan) || (old && had_once(p, k)))
            continue;
        knob_key_text(k, key, sizeof key);
        return refuse(key, k->titan.lacks);
    }
    return 0;
}

/* Always, default and never are of units and root together. */
static const char *reshard(const struct plan *p)
{
    return p->fsdp.reshard_after_forward == 0 ? "never" : p->fsdp.root_reshard_after_forward == 1 ? "always" : "default";
}

/* One override: a word, a count, or a norm; no clipping is a norm that nothing exceeds.  A name that ends
 * in ':' is a subcommand of tyro's. */
static void print_knob(const struct plan *p, const struct knob *k, FILE *to)
{
    const char *name = knob_spelt(k, &k->titan), *last = strrchr(name, '.');
    double v = knob_get(p, k);

    if (k->type == KNOB_BOOL) {     /* tyro's pair of flags */
        fprintf(to, "%.*s%s%s\n", (int)(last + 1 - name), name, v > 0 ? "" : "no-", last + 1);
        return;
    }
    fprintf(to, "%s%s", name, strchr(name, ':') ? "" : " ");
    if (k->type == KNOB_RESHARD)
        fprintf(to, "%s\n", reshard(p));
    else if (k->titan.words)
        fprintf(to, "%s\n", k->titan.words[(int)v]);
    else if (k->type == KNOB_INT)
        fprintf(to, "%" PRId64 "\n", (int64_t)v);
    else if (v > 0)
        fprintf(to, "%.17g\n", v);
    else
        fprintf(to, "inf\n");
}

/* The knobs that torchtitan has; the subcommand comes last.  In 0.2.2 tensor parallelism has its sequence, always. */
static void print_knobs(const struct plan *p, bool subcommand, bool old, FILE *to)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (knob_concerns(k, &k->titan, knob_cell(p)) && k->titan.section && !knob_idle(p, k) &&
            (strchr(knob_spelt(k, &k->titan), ':') != NULL) == subcommand && !(old && !strcmp(k->name, "sequence")))
            print_knob(p, k, to);
}

/* Up to 0.2.2 an option: "selective" is every how many blocks, or every other product ("op"). */
static void print_recompute(const struct plan *p, FILE *to)
{
    bool some = p->recompute == RECOMPUTE_FULL && p->recompute_interval > 1;

    fprintf(to, "--activation-checkpoint.mode %s\n", p->recompute == RECOMPUTE_NONE ? "none" : some || p->recompute == RECOMPUTE_OP ? "selective" : "full");
    if (some)
        fprintf(to, "--activation-checkpoint.selective-ac-option %" PRId64 "\n", p->recompute_interval);
    else if (p->recompute == RECOMPUTE_OP)
        fprintf(to, "--activation-checkpoint.selective-ac-option op\n");
}

/* Blocks a stage, by which it counts the stages, embedding and head among the blocks (distributed/pipeline_parallel.py):
 * 0 where it makes as many without; -1: it cannot make so many stages. */
static int64_t layers_per_stage(const struct plan *p)
{
    const struct parallel_options *of = &p->parallel;
    int64_t all = p->model.layers + of->first_stage_less + of->last_stage_less, stages = of->pipeline * of->virtual_stages;
    int64_t each = (all + stages - 1) / stages;

    if (of->virtual_stages == pipeline_usual_chunks(of->pipeline_schedule))
        return 0;
    return (all + each - 1) / each == stages ? each : -1;
}

/* Its local batch is a pipeline's whole step, which it cuts into micro-batches of so many samples. */
static void print_pipeline(const struct plan *p, FILE *to)
{
    if (p->parallel.pipeline == 1)
        return;
    fprintf(to, "--parallelism.pipeline-parallel-microbatch-size %" PRId64 "\n", p->micro_batch);
    if (layers_per_stage(p) > 0)
        fprintf(to, "--parallelism.pipeline-parallel-layers-per-stage %" PRId64 "\n", layers_per_stage(p));
}

/* The blocks; and the loss, which it compiles too unless it is told what to compile. */
static void print_compile(const struct plan *p, bool old, FILE *to)
{
    bool compiles = p->kernels == KERNELS_TORCH_COMPILE;

    fprintf(to, "--compile.%senable\n--%s.%senable-async-tensor-parallel\n", compiles ? "" : "no-", old ? "parallelism" : "compile",
            p->parallel.async_tensor ? "" : "no-");
    if (compiles && p->loss != LOSS_COMPILED)
        fprintf(to, "--compile.components model\n");
}

/* Which of its models, and what it does that a plan has not. */
static void print_model(const struct plan *p, bool old, FILE *to)
{
    int known = find(&p->model);

    if (p->fsdp.root_units == ROOT_TOGETHER)
        fprintf(to, "# its embedding and its norm with head are units of their own; the plan counts\n"
                    "# them in the root\n");
    if (known >= 0 && old)
        fprintf(to, "--model.name %s --model.flavor %s\n", registry[known].module, registry[known].flavor);
    else if (known >= 0 && registry[known].but && p->float8.recipe == FLOAT8_NONE)
        fprintf(to, "# %s of its registry has %s, which no override switches off:\n# give --module %s and a "
                "--config of your own without them\n", registry[known].config, registry[known].but,
                registry[known].module);
    else if (known >= 0)
        fprintf(to, "--module %s --config %s\n", registry[known].module, registry[known].config);
    else
        fprintf(to, "# no config of its registry is %s:\n# give %s of your own\n", p->model.name, old ? "--model.name and --model.flavor" : "--module and --config");
    if (!old)
        fprintf(to, "# its configs compute head and loss in chunks of the sequence\n"
                    "# (ChunkedLossWrapper): less memory at the head than the plan counts, and its\n# gradients are reduced once a chunk\n");
}

static int check(const struct plan *p, bool old)
{
    if (p->model.recorded)
        return refuse("model", "it trains the models of its registry, not a recorded module: export to fsdp");
    if (p->model.head != HEAD_LOGITS)
        return refuse("model", "it trains language models, not a head of one number: export to fsdp");
    if (check_strategy(p) < 0 || check_knobs(p, old) < 0)
        return -1;
    if (old && p->parallel.tensor > 1 && !p->parallel.sequence)
        return refuse("parallel.sequence", "tensor parallelism of 0.2.2 always cuts norms by the sequence");
    if (p->parallel.pipeline > 1 && layers_per_stage(p) < 0)
        return refuse("parallel.virtual_stages", "it counts stages by the blocks of each, and cannot make so many");
    return 0;
}

/* Overrides for 0.3.0, or for 0.2.2 (old). */
static int export_release(const struct plan *p, bool old, FILE *to)
{
    struct plan said = *p;
    char *float8 = NULL;
    size_t size = 0;

    if (check(p, old) < 0)
        return -1;
    if (p->parallel.pipeline > 1)
        said.micro_batch *= p->accumulation;
    FILE *lines = open_memstream(&float8, &size);
    if (!lines)
        return fail("out of memory");
    int rc = titan_float8_write(p, old, lines);
    fclose(lines);
    if (rc < 0) {
        free(float8);
        return -1;
    }
    fprintf(to, "# torchtitan %s, on %" PRId64 " node%s of %" PRId64 " GPUs\n", old ? TORCHTITAN_OLD : TORCHTITAN_VERSION,
            p->cluster.nodes, p->cluster.nodes == 1 ? "" : "s", p->cluster.gpus_per_node);
    if (p->fsdp.cpu_offload)
        fprintf(to, "# started with OMP_NUM_THREADS=%" PRId64 "\n", p->host_threads);
    print_model(p, old, to);
    fputs(float8, to);
    free(float8);
    print_knobs(&said, false, old, to);
    print_pipeline(p, to);
    fprintf(to, "--training.global-batch-size %" PRId64 "\n", plan_global_batch(p));
    fprintf(to, "--training.dtype float32\n");
    /* else 0.3.0 captures forward and backward, which plans do not have; with a pipeline it stops (trainer.py, _validate_cuda_graphs()) */
    if (!old)
        fprintf(to, "--training.disable-cuda-graphs\n");
    fprintf(to, "--parallelism.data-parallel-replicate-degree %" PRId64 "\n",
            plan_data_ranks(p) / p->shard_group);
    /* some configs of the registry switch it on */
    fprintf(to, "--parallelism.context-parallel-degree 1\n");
    print_compile(p, old, to);
    if (old)
        print_recompute(p, to);
    else
        print_knobs(p, true, old, to);
    return 0;
}

int export_torchtitan(const struct plan *p, FILE *to) { return export_release(p, false, to); }
int export_torchtitan_old(const struct plan *p, FILE *to) { return export_release(p, true, to); }
