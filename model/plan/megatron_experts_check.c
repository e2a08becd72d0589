/* megatron_experts_check.c -- see megatron_experts_check.h. */
#include "model/plan/megatron_experts_check.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/plan/expert_capacity.h"
#include "model/plan/local_share.h"

/* gpt_oss: a block's kind goes by its place among the rank's own. */
static int check_sinks(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t stages = of->pipeline > 1 ? of->pipeline * of->virtual_stages : 1, every = p->model.full_every > 1 ? p->model.full_every : 1;

    if (of->expert_tensor != 1)
        return fail("%s: parallel.expert_tensor: Megatron-LM: \"Bias in Moe is only supported when ETP==1\": 1, and parallel.expert over the ranks", where);
    if (of->context > 1 && (of->context_method != CONTEXT_ULYSSES || p->megatron.a2a_ranks > 1))
        return fail("%s: parallel.context_method: Transformer Engine: \"Context parallelism only supports {softmax_type=} with "
                    "cp_comm_type = 'a2a'!\": ulysses", where);
    if (p->recompute == RECOMPUTE_FULL && p->megatron.recompute_num_layers > 0)
        return fail("%s: megatron.recompute_num_layers: of layers with a window and without it is not modelled yet: all, or none", where);
    for (int64_t s = 0; s < stages; s++)
        if (local_share_stage_of(p, stages, s).first % every)
            return fail("%s: parallel.pipeline: a stage that begins at layer %" PRId64 ": of %s every %" PRId64 " layers repeat: stages of whole runs are "
                        "modelled so far", where, local_share_stage_of(p, stages, s).first, p->model.name, every);
    return 0;
}

/* apply_router_token_dropping() pads with other tokens, and permute() views as many as the capacity: there must be. */
static int check_capacity(const struct plan *p, const char *where)
{
    int64_t tokens = expert_capacity_tokens(p), rows = expert_capacity_of(p, tokens);

    if (p->megatron.moe_router_padding_for_quantization && rows > 0)
        return fail("%s: megatron.moe_router_padding_for_quantization: beside moe_expert_capacity_factor it is not modelled yet", where);
    if (!p->megatron.moe_pad_expert_input_to_capacity)
        return 0;
    if (rows > tokens)
        return fail("%s: megatron.moe_expert_capacity_factor: %g: an expert's capacity of %" PRId64 " rows is more than the %" PRId64 " tokens of a rank, "
                    "of which Megatron-LM cannot take as many", where, p->megatron.moe_expert_capacity_factor, rows, tokens);
    if (p->parallel.expert_imbalance > 1)
        return fail("%s: parallel.expert_imbalance: %g: with megatron.moe_pad_expert_input_to_capacity every rank gets as many rows: 1", where,
                    p->parallel.expert_imbalance);
    return 0;
}

/* Experts' products in 8 bits: their widths are multiples of 16, of 32 with mxfp8. */
static int check_experts_codes(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    int64_t unit = expert_rows_unit(p), tensor = p->parallel.tensor > 1 ? p->parallel.tensor : 1;
    int64_t cut = p->parallel.expert_tensor > 1 ? p->parallel.expert_tensor : 1;
    const int64_t widths[] = { m->expert_ffn / cut, m->shared_ffn / tensor, m->q_rank, m->kv_rank, m->kv_rank + m->rope_dim };

    if (plan_scaled(p) == SCALED_NONE)
        return 0;
    if (plan_scaled(p) == SCALED_NVFP4)
        return fail("%s: megatron.fp4_format: experts in 4 bits are not modelled yet", where);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if ((i < 4 || m->kv_rank > 0) && widths[i] % unit)
            return fail("%s: megatron.fp8_format: a layer of %" PRId64 " features on a rank: Transformer Engine asks for multiples of %" PRId64, where,
                        widths[i], unit);
    return 0;
}

int megatron_experts_check(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;

    if (p->kernels != KERNELS_TE)
        return fail("%s: kernels: in dialect megatron experts are planned with te (TEGroupedMLP), not \"%s\"", where, kernels_name(p->kernels));
    if (family_for(&p->model)->sinks && check_sinks(p, where) < 0)
        return -1;
    if (p->model.kv_rank > 0 && p->megatron.tp_comm_overlap)
        return fail("%s: megatron.tp_comm_overlap: with latent attention it is not modelled yet: false", where);
    if (check_experts_codes(p, where) < 0)
        return -1;
    if (p->strategy != STRAT_ZERO1 && of->expert > 1)
        return fail("%s: parallel.expert: with megatron's ddp it is not modelled yet: the distributed optimizer has it (zero1)", where);
    if (of->tensor > 1 && !of->sequence)
        return fail("%s: parallel.sequence: Megatron-LM trains mixtures under tensor parallelism with sequence parallelism alone: true", where);
    if (of->expert_tensor != 1 && of->expert_tensor != of->tensor)
        return fail("%s: parallel.expert_tensor: 1 or parallel.tensor, which is %" PRId64, where, of->tensor);
    if (of->tensor > 1 && of->expert_tensor == 1 && of->expert <= 1)
        return fail("%s: parallel.expert_tensor: whole experts on every tensor-parallel rank, shared out over none, are not planned: set "
                    "parallel.expert", where);
    if (p->megatron.moe_aux_loss_coeff > 0 && of->tensor > 1 && of->context > 1)
        return fail("%s: megatron.moe_aux_loss_coeff: tokens counted over tensor- and context-parallel ranks together are not modelled yet: 0", where);
    if (p->model.expert_ffn % of->expert_tensor)
        return fail("%s: parallel.expert_tensor: the experts' width %" PRId64 " does not divide by %" PRId64, where, p->model.expert_ffn, of->expert_tensor);
    return check_capacity(p, where);
}
