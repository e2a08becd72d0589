/* framework_megatron.c -- megatron-core's DistributedDataParallel and distributed optimizer, in Megatron-LM's training loop. */
#include "model/plan/framework.h"

#include "model/plan/megatron_check.h"
#include "model/plan/megatron_model.h"
#include "model/plan/megatron_states.h"

static const struct framework_version versions[] = {
    { "0.16.1", "megatron-core, and Megatron-LM's training loop around it" },
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

/* Megatron-LM's groups of the gradient norm (optimizer.py, get_grad_stats_parallel_group()): with the distributed optimizer all ranks,
 * else those that have parts of one model. */
static void of_the_norm(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    unsigned copy = MESH_AXIS(AXIS_PIPE) | MESH_AXIS(AXIS_TENSOR), all = copy | MESH_AXIS(AXIS_REPLICA) | PLAN_SHARDED;

    if (m->size[AXIS_PIPE] * m->size[AXIS_TENSOR] == 1)
        return;
    if (p->strategy == STRAT_ZERO1)
        plan_groups_add(out, m, GROUP_WORLD, (struct group_rule){ .axes = all });
    else
        plan_groups_add(out, m, GROUP_MODEL, (struct group_rule){ .axes = copy });
}

static void copy_groups(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    hierarchy(p, m, out);
    of_the_norm(p, m, out);
}

/* ---- the row ---- */

/* Positions are dealt out in balance whatever the context's method (core/utils.py, get_batch_on_this_cp_rank()). */
const struct framework framework_megatron = {
    .tool = &framework_megatron_tool, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCK), .units_text = "",
    .copy_groups = copy_groups, .experts_span_replicas = true, .biases_routers = true,
    .kernels = kernels, .reduce_dtype = reduce_dtype, .context_method = CONTEXT_RING, .balances_heads = true, .cuts_experts = true,
    .check_first = megatron_check, .check_pipeline = megatron_check_pipeline, .runs_pipelines = true, .ends_alone = true,
    .pipelines_fold = OF_PIPELINE(PIPELINE_1F1B) | OF_PIPELINE(PIPELINE_INTERLEAVED),
    .recipe = recipe, .megatron_layers = true, .registered = megatron_model,
    .not_run = "dpxrun does not run it: its plans are for dpxplan",
};
