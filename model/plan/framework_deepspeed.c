/* framework_deepspeed.c -- DeepSpeed: engine.py, runtime/zero/ of 0.19.6 and 0.19.8. */
#include "model/plan/framework.h"

#include <string.h>

static const struct framework_version versions[] = {
    { "0.19.8", "parameters are broadcast as bytes at construction; compute_grad_norm; stages 1 and 2 accumulate fp32 gradients in the "
                "partition" },
    { "0.19.6", "gradient_clipping 1.0 and bf16 check_grad_overflow by default" },
    { "0.16",   "gradient_clipping 0.0, no bf16 overflow check by default" },
};

/* Memory and most lists were recorded from 0.19.6: a plan that names no version takes that. */
const struct framework_tool framework_deepspeed_tool = {
    .name = "deepspeed", .versions = versions, .nversions = sizeof versions / sizeof *versions, .usual = 1,
};

/* engine._configure_zero_optimizer: fp16 always looks for overflow, fp32 never, bf16 by an option that stages 1 and 2 alone read. */
static double check_overflow(const struct plan *p)
{
    bool reads_option = p->strategy == STRAT_ZERO1 || p->strategy == STRAT_ZERO2;

    if (p->precision == DT_BF16)
        return reads_option && plan_version(p) >= 19;
    return p->precision == DT_FP16;
}

/* seq_parallel_communication_data_type, fp32, takes communication_data_type's place. */
static void resolve(struct plan *p)
{
    p->reduce_dtype = p->parallel.context > 1 ? DT_FP32 : p->ds.communication_dtype >= 0 ? (enum dtype)p->ds.communication_dtype : p->precision;
}

/* DeepSpeed goes by names: set_optimizer_flags(), deepspeed/__init__.py of 0.19.8.  GPT-2's embeddings, wte and wpe, are among its matrices. */
static bool orthogonalises(const struct tensor *t)
{
    return !strstr(t->name, "embed") && !strstr(t->name, "lm_head");
}

/* engine.allreduce_gradients: stages 2 and 3 reduce each micro-step, 0 and 1 the last. */
#define DEEPSPEED .tool = &framework_deepspeed_tool, .syncs = OF_STRATEGY(STRAT_ZERO2) | OF_STRATEGY(STRAT_ZERO3), \
                  .units = OF_UNIT(UNIT_MODULE), .units_text = "module", .check_overflow = check_overflow, .sequence = true, \
                  .context_method = CONTEXT_ULYSSES, .resolve = resolve, .orthogonalises = orthogonalises

const struct framework framework_deepspeed_012 = { DEEPSPEED, .unit = UNIT_MODEL };
const struct framework framework_deepspeed_3   = { DEEPSPEED, .unit = UNIT_MODULE };
