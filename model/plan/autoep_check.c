/* autoep_check.c -- see autoep_check.h. */
#include "model/plan/autoep_check.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/expert_capacity.h"
#include "model/plan/native_experts.h"

int autoep_check(const struct plan *p, const char *where)
{
    bool params = p->ds.offload_param.device != OFFLOAD_NONE;
    bool states = p->ds.offload_optimizer.device != OFFLOAD_NONE && training_is_all(&p->train);      /* those of adapters are none of experts */

    if (params || states)
        return fail("%s: deepspeed.offload_%s: not planned for a mixture of experts yet", where, params ? "param" : "optimizer");
    return 0;
}

/* Under stage 3: _validate_zero3_moe_compatibility(). */
static int check_autoep_stage3(const struct plan *p, const char *where)
{
    if (p->ds.zero_quantized_gradients)
        return fail("%s: deepspeed.zero_quantized_gradients: DeepSpeed: \"AutoEP with ZeRO Stage 3 does not support "
                    "zero_quantized_gradients yet.\"", where);
    if (p->ds.zero_hpz_partition_size > 1)
        return fail("%s: deepspeed.zero_hpz_partition_size: DeepSpeed: \"AutoEP with ZeRO Stage 3 does not support hpZeRO "
                    "secondary tensor groups yet\"", where);
    if (p->ds.zero_quantized_weights)
        return fail("%s: deepspeed.zero_quantized_weights: with parallel.expert it is not modelled yet", where);
    return 0;
}

/* deepspeed.moe.layer.MoE in the place of a block's mixture: TopKGate's assertion, and what is not modelled. */
static int check_native(const struct plan *p, const char *where)
{
    int64_t here = p->model.experts / p->parallel.expert, tokens = expert_capacity_tokens(p);

    if (here > NATIVE_EXPERTS)
        return fail("%s: parallel.expert: %" PRId64 " modules of experts on a rank are not modelled yet: %d at most", where, here, NATIVE_EXPERTS);
    if (p->model.experts_used == 1 && p->ds.moe_drop_tokens && tokens < p->ds.moe_min_capacity)
        return fail("%s: deepspeed.moe_min_capacity: DeepSpeed: \"No. of tokens (batch-size) should be greater than min_capacity. "
                    "Either set min_capacity to 0 or increase your batch size.\"", where);
    if (p->ds.moe_drop_tokens && p->parallel.expert_imbalance > 1)
        return fail("%s: parallel.expert_imbalance: %g: with deepspeed.moe_drop_tokens every expert gets its capacity of rows: 1", where,
                    p->parallel.expert_imbalance);
    return 0;
}

/* AutoEP (expert_parallel of DeepSpeed's configuration): what DeepSpeed refuses, in its words, and what is not modelled. */
int autoep_check_ranks(const struct plan *p, int64_t sharing, const char *where)
{
    const struct model *m = &p->model;

    (void)sharing;
    if (!family_for(m)->autoep && native_experts_has(p))
        return fail("%s: deepspeed.moe_layer: DeepSpeed's layer is planned in the place of mixtral's and qwen3_moe's mixtures so far, not of %s's", where, m->family);
    if (!family_for(m)->autoep)
        return fail("%s: parallel.expert: AutoEP has no preset for %s: with dialect deepspeed mixtral and qwen3_moe are planned so far", where, m->family);
    if (!training_is_all(&p->train))
        return fail("%s: train: with parallel.expert DeepSpeed is planned when everything trains", where);
    if (native_experts_has(p) && check_native(p, where) < 0)
        return -1;
    if (p->strategy == STRAT_DDP || p->strategy == STRAT_ZERO3)
        return p->strategy == STRAT_DDP ? 0 : check_autoep_stage3(p, where);
    if (!p->ds.contiguous_gradients)
        return fail("%s: deepspeed.contiguous_gradients: DeepSpeed: \"Contiguous Gradients in ZeRO Stage 2 must be set to True for MoE. Other code paths are "
                    "not tested with MoE\"%s", where, p->strategy == STRAT_ZERO1 ? "; at stage 1 it is not modelled yet" : "");
    if (!p->ds.reduce_scatter)
        return fail("%s: deepspeed.reduce_scatter: DeepSpeed: \"Reduce Scatter in ZeRO Stage 2 must be set to True for MoE. Other code paths are not tested "
                    "with MoE\"", where);
    if (p->ds.grad_accum_fp32 || p->ds.round_robin_gradients)
        return fail("%s: deepspeed.%s: with parallel.expert it is not modelled yet", where, p->ds.grad_accum_fp32 ? "grad_accum_dtype fp32" : "round_robin_gradients");
    return 0;
}
