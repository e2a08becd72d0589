/* titan_check.c -- see titan_check.h. */
#include "model/plan/titan_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/plan/attention.h"
#include "model/plan/loss_check.h"
#include "model/plan/parallel_check.h"

/* Blocks that torchtitan's plan, or NeMo Automodel's, for transformers' code names (experiments/transformers_modeling_backend of 0.2.2:
 * apply_non_moe_tp). */
static const char *not_in_plan(const struct plan *p)
{
    const struct model *m = &p->model;
    bool apart = p->parallel.inputs_apart;

    if (apart && !family_for(m)->titan_tensor && !family_for(m)->automodel_tensor)
        return "NeMo Automodel's plan is modelled for llama's and phi's layers";
    if (apart && p->parallel.sequence && family_for(m)->automodel_tensor)
        return "NeMo Automodel's plan of these layers is modelled without sequence parallelism";
    if (!apart && !family_for(m)->titan_tensor)
        return "torchtitan's plan is for llama's layers (q_proj to down_proj, two norms)";
    if (m->tied && apart)
        return "NeMo Automodel's plan of a tied embedding and head is not modelled: a model with tie_word_embeddings false is";
    if (m->tied)
        return "torchtitan's plan makes two parameters of a tied embedding: a model with tie_word_embeddings false is what would train";
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].is_bias && !(apart && m->tensors[t].frozen) && (m->tensors[t].role == ROLE_ATTN_OUT || m->tensors[t].role == ROLE_DOWN))
            return "biases of its row-parallel layers are not modelled";
    return NULL;
}

int titan_check_tensor(const struct plan *p, const char *where)
{
    const char *why = not_in_plan(p);

    if (p->parallel.async_tensor && p->kernels != KERNELS_TORCH_COMPILE)
        return fail("%s: parallel.async_tensor: it is a pass of torch.compile (\"Async TP requires compile\", torchtitan 0.2.2): kernels "
                    "\"torch-compile\"", where);
    if (p->parallel.async_tensor && (p->parallel.tensor > p->cluster.gpus_per_node || p->cluster.gpus_per_node % p->parallel.tensor))
        return fail("%s: parallel.async_tensor: its ranks read each other's memory: parallel.tensor %" PRId64 " has to lie within nodes of %"
                    PRId64 " GPUs", where, p->parallel.tensor, (int64_t)p->cluster.gpus_per_node);
    if (p->kernels == KERNELS_DPX)
        return fail("%s: kernels: \"%s\" with parallel.tensor are not modelled in dialect %s: take torch-compile, torch-sdpa or torch-eager",
                    where, kernels_name(p->kernels), dialect_name(p->dialect));
    if (p->kernels == KERNELS_TORCH_COMPILE && !p->parallel.sequence)
        return fail("%s: kernels: \"torch-compile\" with parallel.tensor is modelled with sequence parallelism: parallel.sequence true",
                    where);
    if (p->kernels == KERNELS_TORCH_EAGER && p->parallel.sequence)
        return fail("%s: kernels: transformers' eager attention makes its mask as long as a rank's share of the positions "
                    "(create_causal_mask() of inputs_embeds): take torch-sdpa, or parallel.sequence false", where);
    if (why)
        return fail("%s: parallel.tensor: %s: %s", where, p->model.name, why);
    if (p->strategy != STRAT_FSDP && p->strategy != STRAT_DDP)
        return fail("%s: parallel.tensor: with %s it is not modelled yet: take strategy fsdp", where, strategy_name(p->strategy));
    if (p->strategy == STRAT_DDP && plan_recipe(p).autocast)
        return fail("%s: precision: autocast's casts of DTensors are not modelled yet: fp32, or ddp.model_dtype", where);
    if (p->strategy == STRAT_DDP && (p->ddp.find_unused_parameters || p->ddp.static_graph))
        return fail("%s: ddp.%s: with parallel.tensor it is not modelled yet", where, p->ddp.static_graph ? "static_graph"
                    : "find_unused_parameters");
    if (p->loss == LOSS_COMPUTE && p->parallel.loss_parallel)
        return fail("%s: loss: with parallel.tensor bf16 is of whole logits: set parallel.loss_parallel to false", where);
    if (p->loss != LOSS_FP32 && p->loss != LOSS_COMPUTE)
        return fail("%s: loss: with parallel.tensor fp32, or bf16 of whole logits: other kernels do not take logits that lie on several ranks", where);
    if (attention_masked(p))
        return fail("%s: parallel.tensor: not modelled for attention with a mask", where);
    return 0;
}

/* What verl patches transformers' flash attention with (verl/utils/ulysses.py), around FSDP of all ranks. */
static int check_verls_ulysses(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;

    if (p->strategy != STRAT_FSDP || of->tensor > 1 || of->pipeline > 1 || of->expert > 1)
        return fail("%s: parallel.context_method: ulysses of dialect %s is verl's, under fsdp alone and without tensor, pipeline and expert parallelism",
                    where, dialect_name(p->dialect));
    if (of->context_balance)
        return fail("%s: parallel.context_balance: with ulysses every rank has all positions of its heads: there is nothing to balance", where);
    if (p->recompute == RECOMPUTE_SELECTIVE)
        return fail("%s: recompute: selective would repeat Ulysses' exchanges in backward, which is not modelled: take full, or none", where);
    if (p->loss != LOSS_FP32 && p->loss != LOSS_FUSED && p->loss != LOSS_FUSED_IN_PLACE && p->loss != LOSS_FUSED_ENTROPY && p->loss != LOSS_FUSED_ENTROPY_EAGER && !loss_is_of_actor(p->loss))
        return fail("%s: loss: with ulysses verl has a loss of each token of its logits: fp32, or flash-attn's (fused, fused-in-place, fused-entropy, fused-entropy-eager), or its own (actor-chunks, actor-triton)", where);
    return parallel_check_heads(p, of->context, true, where);
}

int titan_check_context(const struct plan *p, const char *where)
{
    bool ulysses = p->parallel.context_method == CONTEXT_ULYSSES;

    if (ulysses && check_verls_ulysses(p, where) < 0)
        return -1;
    if (p->strategy != STRAT_FSDP)
        return fail("%s: parallel.context: torchtitan applies FSDP wherever context parallelism is (ParallelDims of 0.2.2), and "
                    "PyTorch's own beside DDP is not modelled yet: take strategy fsdp, or 1", where);
    /* _attention.py of 2.5.1; _ContextParallelOptions has both in 2.6.0. */
    if (!ulysses && plan_version(p) <= 2005 && (p->parallel.context_balance || p->parallel.context_method != CONTEXT_RING))
        return fail("%s: parallel.context_%s: until 2.5 PyTorch's ring had neither a balance nor an all-gather: context_method \"ring\" with "
                    "context_balance false, or framework_version 2.9", where, p->parallel.context_balance ? "balance" : "method");
    if (p->kernels != KERNELS_TORCH_SDPA)
        return fail("%s: kernels: context parallelism replaces scaled_dot_product_attention(): take torch-sdpa, not \"%s\"", where,
                    kernels_name(p->kernels));
    if (attention_masked(p))
        return fail("%s: parallel.context: %s's attention gets a mask here, and PyTorch's ring takes none (\"attn_bias is not "
                    "supported yet\")", where, p->model.name);
    if (attention_choice(p) <= ATTENTION_MATH)
        return fail("%s: parallel.context: no fused kernel takes %s's attention, and PyTorch's ring is over these alone (\"CP only "
                    "supports flash attention and memory efficient attention now\")", where, p->model.name);
    if (p->model.position == POS_LEARNED || p->model.position == POS_ALIBI)
        return fail("%s: parallel.context: modelled for rotary positions", where);
    if (p->model.attn_dropout > 0 && p->dropout > 0 && !ulysses)       /* there the same kernel sees whole sequences of fewer heads */
        return fail("%s: dropout: attention's is not modelled with parallel.context, but for ulysses", where);
    return 0;
}

int titan_check_pipeline(const struct plan *p, const char *where)
{
    enum pipeline_kind kind = p->parallel.pipeline_schedule;

    if (p->model.tied)
        return fail("%s: parallel.pipeline: torchtitan has no weight tying under a pipeline, and %s ties its head to its "
                    "embedding", where, p->model.name);
    if (pipeline_splits(kind) && p->strategy == STRAT_DDP)
        return fail("%s: parallel.pipeline_schedule: %s computes weights' gradients by autograd.grad(), which runs no hooks: "
                    "torch's DDP would not reduce them", where, pipeline_name(kind));
    if (plan_recipe(p).autocast)
        return fail("%s: precision: torchtitan has mixed precision under a pipeline only with FSDP: fp32, or ddp.model_dtype",
                    where);
    return 0;
}

/* torchtitan's FSDP of experts: a block is a unit, and a dimension beyond the first is cut evenly (FSDPParam). */
int titan_check_experts(const struct plan *p, int64_t sharing, const char *where)
{
    const struct model *m = &p->model;

    if (p->unit != UNIT_BLOCK)
        return fail("%s: unit: with parallel.expert torchtitan's is \"block\"", where);
    if (p->fsdp.reshard_after_forward > 1 || p->fsdp.cpu_offload)
        return fail("%s: fsdp.%s: with parallel.expert it is not modelled yet", where, p->fsdp.cpu_offload ? "cpu_offload" : "reshard_after_forward k");
    if (p->parallel.expert * sharing > m->experts && (m->expert_ffn % sharing || m->hidden % sharing))
        return fail("%s: parallel.expert: %" PRId64 " ranks share the experts of each rank, more than it has, and do not divide their widths %" PRId64
                    " and %" PRId64 ": FSDP2 cuts no other dimension than the first unevenly", where, sharing, m->expert_ffn, m->hidden);
    return 0;
}
