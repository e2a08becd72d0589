/* framework_megatron.c -- megatron-core's DistributedDataParallel and distributed optimizer, in Megatron-LM's training loop. */
#include "model/plan/framework.h"

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/arch/training_bridge.h"
#include "model/plan/megatron_check.h"
#include "model/plan/megatron_experts_check.h"
#include "model/plan/megatron_model.h"
#include "model/plan/megatron_states.h"

static const struct framework_version versions[] = {
    { "0.16.1", "megatron-core, and Megatron-LM's training loop around it" },
    { "0.13",   "beside Transformer Engine before 2.7: gradients that come to frozen layers in 8 bits are transposed, too" },
};

const struct framework_tool framework_megatron_tool = {
    .name = "megatron", .versions = versions, .nversions = sizeof versions / sizeof *versions,
};

static double kernels(const struct plan *p) { return p->precision == DT_FP32 ? KERNELS_MEGATRON_LOCAL : KERNELS_TE; }

/* Gradients are added up and reduced in fp32 unless told --grad-reduce-in-bf16, those of fp16 in fp16 unless told
 * --accumulate-allreduce-grads-in-fp32 (training/arguments.py). */
static double reduce_dtype(const struct plan *p) { return p->precision == DT_FP16 ? DT_FP16 : DT_FP32; }

/* main_grad. */
static void recipe(const struct plan *p, struct recipe *r)
{
    r->grad = p->reduce_dtype;
    if (p->megatron.use_precision_aware_optimizer)
        r->optimizer = megatron_main_bytes(p) + megatron_moment_bytes(p, p->megatron.exp_avg_dtype) +
                       megatron_moment_bytes(p, p->megatron.exp_avg_sq_dtype);
}

/* ---- what is refused beside adapters ---- */

/* CheckpointFunction runs backward where its input needs a gradient; that of the first block's MLP does not where attention has no adapters, and
 * Megatron-Bridge sees to whole blocks alone (peft/recompute.py). */
static bool loses_gradients(const struct plan *p)
{
    bool attention = training_bridge_adapts(&p->train, "linear_qkv") || training_bridge_adapts(&p->train, "linear_proj");

    return p->recompute == RECOMPUTE_SELECTIVE && plan_recomputes_module(p, "mlp") && !attention;
}

/* Megatron-Bridge's adapters of megatron-core's layers, which search does not try: its adapters are PEFT's. */
static int check_train(const struct plan *p, const char *where)
{
    const char *with = p->model.experts ? "mixtures of experts" : p->model.kv_rank > 0 ? "latent attention" : p->megatron.mtp_num_layers > 0 ? "multi-token prediction"
                     : p->megatron.fp4_format ? "megatron.fp4_format" : NULL;

    if (!p->train.bridge || !p->model.training.bridge)
        return fail("%s: train: the model was made for PEFT's adapters: dialect megatron has Megatron-Bridge's", where);
    if (with)
        return fail("%s: train: Megatron-Bridge's adapters beside %s are not planned yet", where, with);
    if (loses_gradients(p))
        return fail("%s: megatron.recompute_modules: mlp: with adapters of the MLP alone those of the first block would get no gradients, for its "
                    "input needs none: adapt linear_qkv too, or recompute full", where);
    if (p->precision == DT_FP32)
        return fail("%s: train: Megatron-Bridge's adapters are planned in 16 bits: set precision bf16", where);
    if (p->parallel.tensor > 1 && p->train.rank % p->parallel.tensor)
        return fail("%s: lora.rank: %lld does not divide by parallel.tensor %lld, over which linear_in is cut", where, (long long)p->train.rank,
                    (long long)p->parallel.tensor);
    return 0;
}

/* ---- groups ---- */

/* create_hierarchical_groups() of megatron/core/parallel_state.py: neighbours exchange heads. */
static void hierarchy(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t run = p->megatron.a2a_ranks;

    if (run <= 1 || m->size[AXIS_CONTEXT] % run)
        return;
    plan_groups_add(out, m, GROUP_CONTEXT_A2A, (struct group_rule){ .axes = MESH_AXIS(AXIS_CONTEXT), .run = run });
    plan_groups_add(out, m, GROUP_CONTEXT_P2P, (struct group_rule){ .axes = MESH_AXIS(AXIS_CONTEXT), .over = run });
}

/* Megatron-LM's groups of the gradient norm (optimizer.py, get_grad_stats_parallel_group()): with the distributed optimizer all ranks, or
 * those of an instance of it; else those that have parts of one model. */
static void of_the_norm(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    unsigned copy = MESH_AXIS(AXIS_PIPE) | MESH_AXIS(AXIS_TENSOR), all = copy | MESH_AXIS(AXIS_REPLICA) | PLAN_SHARDED;

    if (m->size[AXIS_PIPE] * m->size[AXIS_TENSOR] == 1)
        return;
    if (m->size[AXIS_REPLICA] > 1)
        plan_groups_add(out, m, GROUP_INSTANCE, (struct group_rule){ .axes = copy | PLAN_SHARDED });
    else if (p->strategy == STRAT_ZERO1)
        plan_groups_add(out, m, GROUP_WORLD, (struct group_rule){ .axes = all });
    else
        plan_groups_add(out, m, GROUP_MODEL, (struct group_rule){ .axes = copy });
}

static void copy_groups(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    hierarchy(p, m, out);
    of_the_norm(p, m, out);
}

/* Several instances of the distributed optimizer, num_distributed_optimizer_instances. */
static int check_instances(const struct plan *p, const char *where)
{
    if (p->shard_group == plan_data_ranks(p))
        return 0;
    if (p->shard_group == 1)
        return fail("%s: shard_group: 1: an instance of the distributed optimizer on one rank shards nothing: strategy ddp", where);
    if (p->model.experts > 0)
        return fail("%s: shard_group: several instances of the distributed optimizer are not planned for a mixture of experts yet", where);
    if (p->parallel.virtual_stages > 1 && p->megatron.overlap_grad_reduce)
        return fail("%s: shard_group: several instances of the distributed optimizer are not planned in an interleaved pipeline with "
                    "megatron.overlap_grad_reduce yet", where);
    return plan_scaled(p) ? fail("%s: shard_group: several instances of the distributed optimizer are not planned with 8- and 4-bit floats yet", where) : 0;
}

/* ---- the row ---- */

/* Positions are dealt out in balance whatever the context's method (core/utils.py, get_batch_on_this_cp_rank()). */
const struct framework framework_megatron = {
    .tool = &framework_megatron_tool, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCK), .units_text = "",
    .group_is_choice = OF_STRATEGY(STRAT_ZERO1), .check_group = check_instances, .copy_groups = copy_groups, .experts_span_replicas = true, .biases_routers = true,
    .kernels = kernels, .reduce_dtype = reduce_dtype, .context_method = CONTEXT_RING, .balances_heads = true, .cuts_experts = true,
    .mixtures = MIXTURES_ANY, .check_experts = megatron_experts_check, .check_first = megatron_check, .check_train = check_train,
    .check_pipeline = megatron_check_pipeline, .runs_pipelines = true, .ends_alone = true,
    .pipelines_fold = OF_PIPELINE(PIPELINE_1F1B) | OF_PIPELINE(PIPELINE_INTERLEAVED),
    .recipe = recipe, .megatron_layers = true, .numbers_whole = true, .registered = megatron_model,
    .not_run = "dpxrun does not run it: its plans are for dpxplan",
};
