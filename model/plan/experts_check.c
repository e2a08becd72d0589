/* experts_check.c -- see experts_check.h. */
#include "model/plan/experts_check.h"

#include <string.h>

#include "base/fail.h"

/* Families whose blocks torch_experts.c follows; the others with the reason. */
static const char *why_not(const struct model *m)
{
    static const char *const followed[] = { "mixtral", "qwen3_moe", "granitemoe", "olmoe" };

    if (model_blocks_differ(m))
        return "blocks with experts beside blocks without are not planned yet";
    for (size_t i = 0; i < sizeof followed / sizeof *followed; i++)
        if (!strcmp(followed[i], m->family))
            return NULL;
    return m->kv_rank > 0 ? "multi-head latent attention is not planned yet"
         : !strcmp(m->family, "gpt_oss") ? "its sinks and clamped experts are not planned yet"
         : "transformers' llama4 has every expert compute every token: it is not planned yet";
}

static int check_framework(const struct plan *p, const char *where)
{
    bool torch = p->dialect == DIALECT_TORCH && (p->strategy == STRAT_FSDP || p->strategy == STRAT_DDP);

    if (p->kernels == KERNELS_DPX)
        return fail("%s: kernels: \"dpx\" have no experts: mixtures of experts are planned with torch-sdpa and torch-eager, and not run", where);
    if (!torch && p->dialect != DIALECT_DEEPSPEED)
        return fail("%s: model: mixtures of experts (%s) are planned for fsdp and ddp in dialect torch and for dialect deepspeed so far", where,
                    p->model.family);
    if (p->kernels == KERNELS_TORCH_COMPILE)
        return fail("%s: kernels: experts in compiled blocks are not planned yet: torch-sdpa or torch-eager", where);
    if (!plan_is_data_parallel(p))
        return fail("%s: parallel: tensor, context and pipeline parallelism of a mixture of experts are not planned yet", where);
    return 0;
}

int experts_check(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;

    if (m->experts == 0)
        return 0;
    if (why_not(m))
        return fail("%s: model: %s: %s", where, m->family, why_not(m));
    if (check_framework(p, where) < 0)
        return -1;
    if (plan_recipe(p).autocast || plan_recipe(p).used != DT_BF16)
        return fail("%s: precision: transformers' grouped products of experts are planned in bf16 alone, which torch.autocast does not "
                    "give them: set precision bf16%s", where, p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH ? " and ddp.model_dtype bf16" : "");
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL)
        return fail("%s: recompute: blocks with experts are planned with none and full so far", where);
    if (p->activation_offload != OFFLOAD_NOTHING)
        return fail("%s: activation_offload: not planned for a mixture of experts yet", where);
    if (p->dialect == DIALECT_DEEPSPEED && (p->ds.offload_optimizer.device != OFFLOAD_NONE || p->ds.offload_param.device != OFFLOAD_NONE))
        return fail("%s: deepspeed.offload_%s: not planned for a mixture of experts yet", where,
                    p->ds.offload_param.device != OFFLOAD_NONE ? "param" : "optimizer");
    if (p->optimizer != OPTIMIZER_ADAMW)
        return fail("%s: optimizer: a mixture of experts is planned with adamw alone so far", where);
    return 0;
}
