/* framework_megatron.c -- megatron-core's DistributedDataParallel and distributed optimizer, in Megatron-LM's training loop. */
#include "model/plan/framework.h"

#include "model/plan/megatron_check.h"
#include "model/plan/megatron_states.h"

static const struct framework_version versions[] = {
    { "0.16.1", "megatron-core, and Megatron-LM's training loop around it" },
};

const struct framework_tool framework_megatron_tool = {
    .name = "megatron", .versions = versions, .nversions = sizeof versions / sizeof *versions,
};

static double kernels(const struct plan *p) { return p->precision == DT_FP32 ? KERNELS_MEGATRON_LOCAL : KERNELS_TE; }

/* Gradients are added up and reduced in fp32 unless told --grad-reduce-in-bf16 (training/arguments.py: accumulate_allreduce_grads_in_fp32). */
static double reduce_dtype(const struct plan *p)
{
    (void)p;
    return DT_FP32;
}

/* main_grad. */
static void recipe(const struct plan *p, struct recipe *r)
{
    r->grad = p->reduce_dtype;
    if (p->megatron.use_precision_aware_optimizer)
        r->optimizer = megatron_main_bytes(p) + megatron_moment_bytes(p, p->megatron.exp_avg_dtype) +
                       megatron_moment_bytes(p, p->megatron.exp_avg_sq_dtype);
}

/* Positions are dealt out in balance whatever the context's method (core/utils.py, get_batch_on_this_cp_rank()). */
const struct framework framework_megatron = {
    .tool = &framework_megatron_tool, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCK), .units_text = "",
    .kernels = kernels, .reduce_dtype = reduce_dtype, .context_method = CONTEXT_RING, .balances_heads = true, .cuts_experts = true,
    .check_first = megatron_check, .check_pipeline = megatron_check_pipeline, .runs_pipelines = true, .ends_alone = true,
    .pipelines_fold = OF_PIPELINE(PIPELINE_1F1B) | OF_PIPELINE(PIPELINE_INTERLEAVED),
    .recipe = recipe,
};
