/* deepspeed_pipeline_check.c -- PipelineEngine refuses stages 2 and 3; no lowering issues what is named here beside.
 *
 * Source: deepspeed/runtime/pipe/engine.py and module.py of 0.19.6 and 0.19.8. */
#include "model/plan/deepspeed_pipeline_check.h"

#include "base/fail.h"
#include "model/plan/attention.h"
#include "model/plan/deepspeed_stages.h"
#include "model/arch/training.h"

/* Layers that the list of deepspeed_stages.h does not have. */
static const char *not_in_list(const struct model *m)
{
    for (int t = 0; t < m->ntensors; t++) {
        enum tensor_role r = m->tensors[t].role;
        if (r == ROLE_PROJECT_IN || r == ROLE_PROJECT_OUT || r == ROLE_EMBED_NORM)
            return "its embedding is more than tables";
    }
    if (m->experts > 0)
        return "its blocks are mixtures of experts";
    return m->tied && !training_is_all(&m->training) ? "its head is tied and not all of it trains" : NULL;
}

static int check_framework(const struct plan *p, const char *where)
{
    if (plan_version(p) < 19)
        return fail("%s: parallel.pipeline: PipelineModule is known of DeepSpeed 0.19.6 and 0.19.8: leave framework_version out or set one of "
                    "them", where);
    if (p->strategy != STRAT_DDP && p->strategy != STRAT_ZERO1)
        return fail("%s: strategy: PipelineEngine asserts \"ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism\": take zero1, or ddp "
                    "(stage 0)", where);
    if (p->parallel.tensor > 1 || p->parallel.context > 1)
        return fail("%s: parallel.pipeline: beside parallel.%s it is not modelled yet", where, p->parallel.tensor > 1 ? "tensor" : "context");
    if (p->parallel.pipeline_schedule != PIPELINE_1F1B || p->parallel.virtual_stages != 1)
        return fail("%s: parallel.pipeline_schedule: TrainSchedule, DeepSpeed's own, is 1f1b with one stage a rank", where);
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE)
        return fail("%s: deepspeed.offload_optimizer: under a pipeline it is not modelled yet", where);
    return 0;
}

/* Hooks that reduce ask for the boundary, which PipelineEngine sets only once all backwards are done (is_gradient_accumulation_boundary());
 * reduce_gradients() then takes what they left for reduced. */
static int check_gradients(const struct plan *p, const char *where)
{
    if (p->ds.overlap_comm && p->strategy == STRAT_ZERO1)
        return fail("%s: deepspeed.overlap_comm: under a pipeline gradients are reduced after all backwards, and with overlap_comm "
                    "reduce_gradients() leaves that to hooks which had nothing to reduce: false", where);
    if (p->strategy == STRAT_ZERO1 && p->ds.grad_accum_fp32 && p->precision == DT_FP16)
        return fail("%s: deepspeed.grad_accum_dtype: fp32 under fp16 and a pipeline: gradients are not where ReduceTiedGrads looks for them: not "
                    "modelled yet", where);
    return 0;
}

int deepspeed_check_pipeline(const struct plan *p, const char *where)
{
    const char *why = not_in_list(&p->model);

    if (check_framework(p, where) < 0 || check_gradients(p, where) < 0)
        return -1;
    if (why)
        return fail("%s: parallel.pipeline: %s as a PipelineModule is not modelled yet: %s", where, p->model.name, why);
    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER)
        return fail("%s: kernels: PipelineModule is modelled for torch-sdpa and torch-eager", where);
    if (p->loss != LOSS_FP32)
        return fail("%s: loss: with parallel.pipeline fp32", where);
    if (p->recompute != RECOMPUTE_NONE && (p->recompute != RECOMPUTE_FULL || p->recompute_interval != 1))
        return fail("%s: recompute: a PipelineModule's is modelled as \"full\": activation_checkpoint_interval 1 with the blocks as "
                    "checkpointable_layers", where);
    if (p->activation_offload != OFFLOAD_NOTHING)
        return fail("%s: activation_offload: under a pipeline it is not modelled", where);
    if (attention_mixed(p))
        return fail("%s: parallel.pipeline: %s has layers with and without a window: not modelled under a pipeline", where, p->model.name);
    why = deepspeed_stages_refused(p);
    return why ? fail("%s: deepspeed.partition_method: %s", where, why) : 0;
}
