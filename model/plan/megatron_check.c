/* megatron_check.c -- see megatron_check.h. */
#include "model/plan/megatron_check.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/plan/attention.h"
#include "model/plan/megatron_model.h"

static int check_dtypes(const struct plan *p, const char *where)
{
    if (p->precision == DT_FP16)
        return fail("%s: precision: fp16 with Megatron's loss scaling is not modelled: bf16 or fp32", where);
    if (p->reduce_dtype != DT_FP32 && (p->precision != DT_BF16 || p->reduce_dtype != DT_BF16))
        return fail("%s: reduce_dtype: megatron adds up and reduces gradients in fp32, or with precision bf16 in bf16 (--grad-reduce-in-bf16)",
                    where);
    return 0;
}

static int check_memory(const struct plan *p, const char *where)
{
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_SELECTIVE && p->recompute != RECOMPUTE_FULL)
        return fail("%s: recompute: megatron has none, selective (--recompute-modules core_attn) and full (--recompute-method uniform); others are not modelled yet", where);
    if (p->recompute_interval != 1)
        return fail("%s: recompute_interval: megatron recomputes every block, or the first of each stage (--recompute-method block), which is "
                    "not modelled yet: leave it out", where);
    if (p->activation_offload != OFFLOAD_NOTHING)
        return fail("%s: activation_offload: megatron's offloading of activations is not modelled yet: none", where);
    return 0;
}

/* transformer_impl, with cross_entropy_loss_fusion. */
static int check_kernels(const struct plan *p, const char *where)
{
    if (!kernels_are_megatron(p->kernels))
        return fail("%s: kernels: dialect megatron has te (--transformer-impl transformer_engine) and megatron-local (local), not \"%s\"", where,
                    kernels_name(p->kernels));
    if (p->kernels == KERNELS_TE && p->precision == DT_FP32)
        return fail("%s: kernels: Transformer Engine's fused attention takes 16 bits: with precision fp32 take megatron-local", where);
    if (p->kernels != KERNELS_TE && p->megatron.attention_backend)
        return fail("%s: megatron.attention_backend: Transformer Engine's alone: kernels te", where);
    if (attention_masked(p))
        return fail("%s: model: %s has a sliding window that seq %" PRId64 " reaches: not modelled in dialect megatron", where, p->model.name, p->seq);
    if (p->model.mlp == MLP_PLAIN && !p->model.mlp_bias && (p->model.act == ACT_GELU || p->model.act == ACT_GELU_TANH))
        return fail("%s: model: %s has GELU without a bias before it, which Megatron-LM does not fuse: not modelled", where, p->model.name);
    if (p->loss != LOSS_FP32 && p->loss != LOSS_COMPILED && p->loss != LOSS_FUSED)
        return fail("%s: loss: megatron has fp32, compiled (--cross-entropy-loss-fusion, native) and fused (its implementation te)", where);
    return 0;
}

/* --fp8-format, --fp4-format: transformer_config.py, arguments.py, fp8_utils.py; Transformer Engine asks for rows and columns that are
 * multiples of its blocks (assert_dim_for_fp8_exec(), get_align_size_for_quantization()). */
static int check_scaled(const struct plan *p, const char *where)
{
    const struct megatron_options *o = &p->megatron;
    enum scaled s = plan_scaled(p);
    const char *why = gpu_lacks_scaled(&p->cluster.gpu, s);
    int64_t ranks = p->parallel.tensor > 1 ? p->parallel.tensor : 1, unit = s == SCALED_MXFP8 || s == SCALED_NVFP4 ? 32 : 16;
    int64_t tokens = p->micro_batch * plan_rank_seq(p) / (p->parallel.sequence ? ranks : 1);
    const int64_t widths[] = { p->model.hidden, p->model.ffn / ranks, p->model.heads * p->model.head_dim / ranks };

    if (o->fp8_format && o->fp4_format)
        return fail("%s: megatron.fp4_format: beside fp8_format: choose one, as Megatron-LM asks", where);
    if (s == SCALED_NONE)
        return 0;
    if (p->kernels != KERNELS_TE || p->precision != DT_BF16)
        return fail("%s: megatron.%s: it needs Transformer Engine and bf16: kernels te, precision bf16", where, o->fp8_format ? "fp8_format" : "fp4_format");
    if (why)
        return fail("%s: megatron.%s: %s: %s", where, o->fp8_format ? "fp8_recipe" : "fp4_format", p->cluster.gpu.title, why);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i] % unit)
            return fail("%s: megatron.%s: a layer of %" PRId64 " features on a rank: Transformer Engine asks for multiples of %" PRId64, where,
                        o->fp8_format ? "fp8_format" : "fp4_format", widths[i], unit);
    if (tokens % (unit == 32 ? 32 : 8))
        return fail("%s: megatron.%s: %" PRId64 " tokens on a rank: Transformer Engine asks for multiples of %d", where,
                    o->fp8_format ? "fp8_format" : "fp4_format", tokens, unit == 32 ? 32 : 8);
    if (o->first_last_layers_bf16)
        return fail("%s: megatron.first_last_layers_bf16: %s", where, s == SCALED_FP8_TENSOR && o->fp8_recipe == FP8_DELAYED ?
                    "delayed scaling does not support first / last layer in BF16" : "layers in 16 bits beside others are not modelled yet");
    if (o->fp8_param_gather && s == SCALED_MXFP8 && !o->reuse_grad_buf_for_mxfp8_param_ag)
        return fail("%s: megatron.fp8_param_gather: mxfp8's parameters share the gradients' buffer: reuse_grad_buf_for_mxfp8_param_ag true", where);
    return 0;
}

int megatron_check(const struct plan *p, const char *where)
{
    const char *why = megatron_model_refused(&p->model);

    if (why)
        return fail("%s: model: dialect megatron: %s: %s", where, p->model.name, why);
    if (check_kernels(p, where) < 0)
        return -1;
    if (check_dtypes(p, where) < 0 || check_memory(p, where) < 0 || check_scaled(p, where) < 0)
        return -1;
    if (p->megatron.overlap_param_gather && !p->megatron.overlap_grad_reduce)
        return fail("%s: megatron.overlap_param_gather: must use it with overlap_grad_reduce", where);
    if (p->parallel.context > 1 && p->kernels != KERNELS_TE)
        return fail("%s: parallel.context: Megatron-LM has context parallelism with Transformer Engine alone: kernels te", where);
    if (p->parallel.context > 1 && (p->parallel.context_method != CONTEXT_RING || !p->parallel.context_balance))
        return fail("%s: parallel.context_method: in dialect megatron ring (--cp-comm-type p2p) with context_balance; all_gather and a2a are "
                    "not modelled yet", where);
    if (p->megatron.tp_comm_overlap && (!p->parallel.sequence || p->kernels != KERNELS_TE))
        return fail("%s: megatron.tp_comm_overlap: it needs sequence parallelism and Transformer Engine: parallel.sequence true, kernels te", where);
    if (p->megatron.tp_comm_overlap && (p->parallel.tensor > p->cluster.gpus_per_node || p->cluster.gpus_per_node % p->parallel.tensor))
        return fail("%s: megatron.tp_comm_overlap: its ranks write to each other's memory: parallel.tensor %" PRId64 " has to lie within nodes of %"
                    PRId64 " GPUs", where, p->parallel.tensor, (int64_t)p->cluster.gpus_per_node);
    return 0;
}

/* forward_backward_pipelining_with_interleaving(). */
static int check_groups(const struct plan *p, const char *where)
{
    int64_t group = p->megatron.microbatch_group_size_per_vp_stage, pipe = p->parallel.pipeline, rest = p->accumulation % group;

    if (group > p->accumulation || group < pipe)
        return fail("%s: megatron.microbatch_group_size_per_vp_stage: %" PRId64 " should be from %" PRId64 " (parallel.pipeline) to %" PRId64
                    " (accumulation)", where, group, pipe, p->accumulation);
    if (rest > 0 && rest < pipe)
        return fail("%s: accumulation: %" PRId64 " micro-steps in groups of %" PRId64 " leave %" PRId64 ", which should be none or at least the %"
                    PRId64 " ranks of the pipeline", where, p->accumulation, group, rest, pipe);
    return 0;
}

int megatron_check_pipeline(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t stages = of->pipeline * of->virtual_stages, layers = p->model.layers + of->first_stage_less + of->last_stage_less;

    if (of->pipeline_schedule != PIPELINE_1F1B && of->pipeline_schedule != PIPELINE_INTERLEAVED)
        return fail("%s: parallel.pipeline_schedule: megatron has 1f1b and interleaved, not %s", where, pipeline_name(of->pipeline_schedule));
    if ((of->pipeline_schedule == PIPELINE_1F1B) != (of->virtual_stages == 1))
        return fail("%s: parallel.virtual_stages: 1f1b has one stage a rank, interleaved several", where);
    if (layers % stages)
        return fail("%s: parallel.pipeline: %" PRId64 " layers (those that first_stage_less_layers and last_stage_less_layers take off among them) "
                    "do not divide by %" PRId64 " stages, as Megatron-LM requires", where, layers, stages);
    if (p->sync_every_micro_step)
        return fail("%s: sync_every_micro_step: megatron reduces gradients after the last backward", where);
    return of->virtual_stages > 1 ? check_groups(p, where) : 0;
}
