/* megatron_check.c -- see megatron_check.h. */
#include "model/plan/megatron_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/attention.h"
#include "model/plan/graphs.h"
#include "model/plan/loss_check.h"
#include "model/plan/megatron_model.h"
#include "model/plan/pipeline_layout.h"

static int check_dtypes(const struct plan *p, const char *where)
{
    if (p->precision == DT_FP16 && plan_scaled(p) != SCALED_NONE)
        return fail("%s: precision: products in 8 or 4 bits are planned beside bf16", where);
    if (p->reduce_dtype != DT_FP32 && (p->precision == DT_FP32 || p->reduce_dtype != p->precision))
        return fail("%s: reduce_dtype: megatron adds up and reduces gradients in fp32, or in the precision's 16 bits (--grad-reduce-in-bf16; fp16 "
                    "without --accumulate-allreduce-grads-in-fp32)", where);
    return 0;
}

/* --use-precision-aware-optimizer; without it its keys are not in the plan. */
static int check_states(const struct plan *p, const char *where)
{
    if (!p->megatron.use_precision_aware_optimizer)
        return 0;
    if (p->strategy != STRAT_ZERO1)
        return fail("%s: megatron.use_precision_aware_optimizer: Megatron-LM: \"--use-precision-aware-optimizer only supported with distributed "
                    "optimizer\": strategy zero1", where);
    if (p->precision != DT_BF16)
        return fail("%s: megatron.use_precision_aware_optimizer: with precision %s it is not modelled yet: bf16", where, dtype_name(p->precision));
    if (p->megatron.fp8_param_gather && p->megatron.fp8_format)
        return fail("%s: megatron.use_precision_aware_optimizer: beside fp8_param_gather it is not modelled yet", where);
    return 0;
}

/* A module of --recompute-modules that this model, or these kernels, do not have. */
static int check_module(const struct plan *p, const char *module, const char *where)
{
    bool norm = !strcmp(module, "layernorm");

    if (!strcmp(module, "mla_up_proj") && p->model.kv_rank == 0)
        return fail("%s: megatron.recompute_modules: Megatron-LM: \"mla_up_proj in recompute_modules is only supported with multi_latent_attention.\"",
                    where);
    if (!strcmp(module, "moe_act") && p->model.experts == 0)
        return fail("%s: megatron.recompute_modules: Megatron-LM: \"moe_act in recompute_modules is only supported with moe_grouped_gemm.\"", where);
    if ((norm || !strcmp(module, "moe_act")) && p->megatron.fp8_format && p->megatron.fp8_recipe == FP8_DELAYED)
        return fail("%s: megatron.recompute_modules: %s: Megatron-LM: \"Delayed scaling does not support moe_act and layernorm recompute for "
                    "fp8.\": another megatron.fp8_recipe, or without it", where, module);
    if (norm && p->kernels == KERNELS_MEGATRON_LOCAL)
        return fail("%s: megatron.recompute_modules: layernorm: with kernels megatron-local, whose norms are modules of their own, it is not "
                    "modelled yet", where);
    if (graphs_has(p) && strcmp(module, "core_attn") && strcmp(module, "mlp"))
        return fail("%s: megatron.recompute_modules: %s: beside megatron.cuda_graph_impl it is not modelled yet", where, module);
    return 0;
}

/* With Transformer Engine a dense block's norms are inside its linear layers: there layernorm changes nothing
 * (core/transformer/transformer_layer.py: IdentityOp); nor do moe and shared_experts where there are none. */
static int check_modules(const struct plan *p, const char *where)
{
    static const char *const has[] = { "core_attn", "mlp", "layernorm", "moe", "moe_act", "shared_experts", "mla_up_proj" };
    const char *at = p->megatron.recompute_modules;

    for (size_t n; *at; at += n + (at[n] == ',')) {
        const char *module = NULL;
        n = strcspn(at, ",");
        for (size_t i = 0; i < sizeof has / sizeof *has; i++)
            if (strlen(has[i]) == n && !strncmp(at, has[i], n))
                module = has[i];
        if (!module)
            return fail("%s: megatron.recompute_modules: \"%.*s\": expected core_attn, mlp, layernorm, moe, moe_act, shared_experts, mla_up_proj", where,
                        (int)n, at);
        if (check_module(p, module, where) < 0)
            return -1;
    }
    return 0;
}

static int check_memory(const struct plan *p, const char *where)
{
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_SELECTIVE && p->recompute != RECOMPUTE_FULL)
        return fail("%s: recompute: megatron has none, selective (megatron.recompute_modules) and full (all blocks, or the first "
                    "megatron.recompute_num_layers of each chunk); others are not modelled yet", where);
    if (p->recompute_interval != 1)
        return fail("%s: recompute_interval: megatron recomputes every block, or the first megatron.recompute_num_layers of each chunk: leave it "
                    "out", where);
    if (check_modules(p, where) < 0)
        return -1;
    if (p->activation_offload != OFFLOAD_NOTHING)
        return fail("%s: activation_offload: megatron's offloading of activations is not modelled yet: none", where);
    return 0;
}

/* verl/models/mcore/model_forward_fused.py: the gradient of the hidden states is summed over tensor-parallel ranks by the gather in front of the loss
 * alone, which sequence parallelism has. */
static int check_actor(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;

    if (m->tied || m->mtp > 0)
        return fail("%s: loss: actor-triton of %s is not modelled", where, m->tied ? "a head that is the embedding" : "multi-token prediction");
    return p->parallel.tensor > 1 && !p->parallel.sequence
         ? fail("%s: loss: actor-triton with parallel.tensor and without parallel.sequence: verl leaves the hidden states' gradient unsummed", where) : 0;
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
    if (p->megatron.attention_backend == BACKEND_UNFUSED && (p->parallel.context > 1 || family_for(&p->model)->sinks))
        return fail("%s: megatron.attention_backend: unfused is not modelled beside context parallelism and sinks", where);
    if (p->model.kv_rank > 0 && attention_choice(p) != ATTENTION_CUDNN && p->megatron.attention_backend != BACKEND_UNFUSED)
        return fail("%s: model: %s: Transformer Engine has a fused kernel for keys of %" PRId64 " and values of %" PRId64 " elements from cuDNN alone, "
                    "%s: others are not modelled", where, p->model.name, p->model.head_dim, p->model.value_dim,
                    p->megatron.attention_backend == BACKEND_FLASH ? "not from flash-attn 2 (megatron.attention_backend)" : "and not on this GPU");
    if (family_for(&p->model)->sinks && attention_choice(p) != ATTENTION_CUDNN)
        return fail("%s: model: %s: Transformer Engine has attention sinks in cuDNN's fused kernel, %s: others are not modelled", where, p->model.name,
                    p->megatron.attention_backend == BACKEND_FLASH ? "not in flash-attn 2 (megatron.attention_backend)" : "not on this GPU");
    if (attention_masked(p) && !family_for(&p->model)->sinks)
        return fail("%s: model: %s has a sliding window that seq %" PRId64 " reaches: not modelled in dialect megatron", where, p->model.name, p->seq);
    if (p->loss != LOSS_FP32 && p->loss != LOSS_COMPILED && p->loss != LOSS_FUSED && p->loss != LOSS_ACTOR_KERNEL && !loss_is_distributed(p->loss))
        return fail("%s: loss: megatron has fp32, compiled (--cross-entropy-loss-fusion, native), fused (its implementation te), verl's "
                    "actor-triton, and NeMo-RL's distributed-logprob and distributed-logprob-late", where);
    if (loss_is_distributed(p->loss) && p->megatron.mtp_num_layers > 0)
        return fail("%s: loss: distributed-logprob beside multi-token prediction is not modelled", where);
    if (p->megatron.scale_logits && (p->loss == LOSS_ACTOR_KERNEL || p->model.head != HEAD_LOGITS || p->megatron.mtp_num_layers > 0))
        return fail("%s: megatron.scale_logits: beside %s it is not modelled", where, p->loss == LOSS_ACTOR_KERNEL ? "a loss that has no logits" :
                    p->model.head != HEAD_LOGITS ? "a head of numbers" : "multi-token prediction");
    return p->loss == LOSS_ACTOR_KERNEL ? check_actor(p, where) : 0;
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
    int64_t most = p->model.layers / (p->parallel.pipeline > 1 ? p->parallel.pipeline : 1);
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
    if (o->first_last_layers_bf16 && s == SCALED_FP8_TENSOR && o->fp8_recipe == FP8_DELAYED)
        return fail("%s: megatron.first_last_layers_bf16: delayed scaling does not support first / last layer in BF16", where);
    for (int i = 0; i < 2 && o->first_last_layers_bf16; i++)
        if ((i ? o->num_layers_at_end_in_bf16 : o->num_layers_at_start_in_bf16) > most)
            return fail("%s: megatron.num_layers_at_%s_in_bf16: must be between 0 and number of layers per pipeline stage (%" PRId64 ")", where,
                        i ? "end" : "start", most);
    if (o->fp8_param_gather && s == SCALED_MXFP8 && !o->reuse_grad_buf_for_mxfp8_param_ag)
        return fail("%s: megatron.fp8_param_gather: mxfp8's parameters share the gradients' buffer: reuse_grad_buf_for_mxfp8_param_ag true", where);
    return 0;
}

/* Transformer Engine's attn_forward_func_with_cp(): heads are dealt out among the ranks of an all-to-all, on top of those of tensor parallelism. */
static int check_heads(const struct plan *p, int64_t ranks, const char *where)
{
    int64_t all = (p->parallel.tensor > 1 ? p->parallel.tensor : 1) * ranks;
    bool queries = p->model.heads % all == 0;

    if (queries && p->model.kv_heads % all == 0)
        return 0;
    return fail("%s: parallel.context_method: cp_comm_type a2a requires heads to divide by its ranks: the %" PRId64 " %s of %s do not divide by %"
                PRId64 " (tensor x ranks that exchange heads)", where, queries ? p->model.kv_heads : p->model.heads,
                queries ? "key/value heads" : "attention heads", p->model.name, all);
}

/* --cp-comm-type all_gather, p2p, a2a, a2a+p2p. */
static int check_context(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t run = p->megatron.a2a_ranks;

    if (!of->context_balance)
        return fail("%s: parallel.context_balance: Megatron-LM deals out a chunk from the sequence's begin and one from its end: true", where);
    if (run > 1 && of->context_method != CONTEXT_RING)
        return fail("%s: megatron.hierarchical_a2a_ranks: it is of --cp-comm-type a2a+p2p: parallel.context_method \"ring\"", where);
    if (run > 1 && (run >= of->context || of->context % run))
        return fail("%s: megatron.hierarchical_a2a_ranks: %" PRId64 " should divide the %" PRId64 " ranks of parallel.context, and leave runs to "
                    "pass keys between", where, run, of->context);
    return of->context_method == CONTEXT_ULYSSES ? check_heads(p, of->context, where) : run > 1 ? check_heads(p, run, where) : 0;
}

/* --mtp-num-layers: arguments.py asks for rotary positions; the rest is not followed yet. */
static int check_mtp(const struct plan *p, const char *where)
{
    const struct { bool is; const char *what; } cannot[] = {
        { p->megatron.mtp_num_layers > 1, "more than one depth, which is not modelled yet" },
        { p->model.position != POS_ROPE, "learned positions, which Megatron-LM refuses beside it" },
        { p->parallel.context > 1, "parallel.context, whose ranks would pass tokens on: not modelled yet" },
        { plan_scaled(p) == SCALED_NVFP4, "4 bits (fp4_format), which Megatron-LM ignores in it: not modelled yet" },
        { p->megatron.first_last_layers_bf16, "first_last_layers_bf16, which is not modelled beside it yet" },
        { p->megatron.cuda_graph_impl != GRAPHS_NONE, "cuda_graph_impl, which is not modelled beside it yet" },
        { family_for(&p->model)->sinks, "attention sinks and windows, which are not modelled beside it yet" },
        { p->model.experts > 0 && !model_has_experts(&p->model, p->model.layers - 1), "a last layer without experts in a mixture, which is not modelled yet" },
    };

    for (size_t i = 0; i < sizeof cannot / sizeof *cannot && p->megatron.mtp_num_layers > 0; i++)
        if (cannot[i].is)
            return fail("%s: megatron.mtp_num_layers: not with %s", where, cannot[i].what);
    return 0;
}

/* --no-bias-swiglu-fusion: of experts and in 8 bits other functions compute it. */
static int check_swiglu(const struct plan *p, const char *where)
{
    if (p->megatron.bias_swiglu_fusion)
        return 0;
    if (p->model.mlp != MLP_GATED)
        return fail("%s: megatron.bias_swiglu_fusion: %s has no gated MLP: leave it out", where, p->model.name);
    if (p->model.experts > 0 || p->model.mlp_bias || plan_scaled(p) != SCALED_NONE)
        return fail("%s: megatron.bias_swiglu_fusion: false is not modelled yet %s", where, p->model.experts > 0 ? "of experts" :
                    p->model.mlp_bias ? "of linear layers with biases" : "beside products in 8 or 4 bits");
    return 0;
}

/* core/model_parallel_config.py, __post_init__(); the rest is not followed yet. */
static int check_deferred(const struct plan *p, const char *where)
{
    const struct { bool is; const char *what; } cannot[] = {
        { !p->megatron.gradient_accumulation_fusion, "gradient_accumulation_fusion false: Megatron-LM cannot defer embedding wgrad compute without it" },
        { p->kernels != KERNELS_TE, "kernels megatron-local, whose layers fail: the output layer alone has the buffers (ColumnParallelLinear.forward())" },
        { p->accumulation == 1 || p->megatron.wgrad_deferral_limit == 1, "one micro-step that waits (accumulation 1, or wgrad_deferral_limit 1), in which megatron-core fails (drain_embedding_wgrad_compute())" },
        { p->parallel.virtual_stages > 1, "an interleaved pipeline, which is not modelled beside it yet" },
        { p->parallel.sequence && p->parallel.tensor > 1, "parallel.sequence, whose gathers come behind the last backward: not modelled yet" },
        { p->megatron.overlap_grad_reduce, "overlap_grad_reduce, which is not modelled beside it yet" },
        { p->megatron.mtp_num_layers > 0, "mtp_num_layers, which is not modelled beside it yet" },
        { p->megatron.cuda_graph_impl != GRAPHS_NONE, "cuda_graph_impl, which is not modelled beside it yet" },
        { p->loss == LOSS_ACTOR_KERNEL, "verl's actor-triton, which has no output layer" },
        { p->model.head != HEAD_LOGITS, "a head of numbers, which has no logits" },
        { !training_is_all(&p->train), "adapters: the output layer does not train" },
    };

    for (size_t i = 0; i < sizeof cannot / sizeof *cannot && p->megatron.defer_embedding_wgrad_compute; i++)
        if (cannot[i].is)
            return fail("%s: megatron.defer_embedding_wgrad_compute: not with %s", where, cannot[i].what);
    return 0;
}

int megatron_check(const struct plan *p, const char *where)
{
    const char *why = megatron_model_refused(&p->model);

    if (why)
        return fail("%s: model: dialect megatron: %s: %s", where, p->model.name, why);
    if (check_kernels(p, where) < 0)
        return -1;
    if (check_dtypes(p, where) < 0 || check_states(p, where) < 0 || check_memory(p, where) < 0 || check_scaled(p, where) < 0 || check_mtp(p, where) < 0 ||
        check_swiglu(p, where) < 0 || check_deferred(p, where) < 0)
        return -1;
    if (p->megatron.overlap_param_gather && !p->megatron.overlap_grad_reduce)
        return fail("%s: megatron.overlap_param_gather: must use it with overlap_grad_reduce", where);
    if (p->parallel.context > 1 && p->kernels != KERNELS_TE)
        return fail("%s: parallel.context: Megatron-LM has context parallelism with Transformer Engine alone: kernels te", where);
    if (p->parallel.context > 1 && check_context(p, where) < 0)
        return -1;
    if (p->megatron.calculate_per_token_loss && p->megatron.ddp_average_in_collective)
        return fail("%s: megatron.ddp_average_in_collective: cannot average in collective when calculating per-token loss", where);
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

static int check_layout(const struct plan *p, int64_t stages, const char *where)
{
    struct pipeline_layout l;

    if (pipeline_layout_read(p->megatron.pipeline_layout, where, &l) < 0)
        return -1;
    if (p->parallel.first_stage_less || p->parallel.last_stage_less)
        return fail("%s: parallel.%s_stage_less_layers: megatron.pipeline_model_parallel_layout says how many blocks a stage has: 0", where,
                    p->parallel.first_stage_less ? "first" : "last");
    if (l.stages != stages)
        return fail("%s: megatron.pipeline_model_parallel_layout: %d stages, but parallel.pipeline x virtual_stages are %" PRId64, where, l.stages,
                    stages);
    if (l.mtp != p->megatron.mtp_num_layers)
        return fail("%s: megatron.pipeline_model_parallel_layout: %d layers of multi-token prediction (m), but megatron.mtp_num_layers is %" PRId64, where,
                    l.mtp, p->megatron.mtp_num_layers);
    if (l.layers != p->model.layers)
        return fail("%s: megatron.pipeline_model_parallel_layout: %" PRId64 " blocks (t), but %s has %" PRId64, where, l.layers, p->model.name,
                    p->model.layers);
    return 0;
}

int megatron_check_pipeline(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;
    int64_t stages = of->pipeline * of->virtual_stages, layers = p->model.layers + of->first_stage_less + of->last_stage_less;
    bool laid_out = p->megatron.pipeline_layout[0];

    if (of->pipeline_schedule != PIPELINE_1F1B && of->pipeline_schedule != PIPELINE_INTERLEAVED)
        return fail("%s: parallel.pipeline_schedule: megatron has 1f1b and interleaved, not %s", where, pipeline_name(of->pipeline_schedule));
    if ((of->pipeline_schedule == PIPELINE_1F1B) != (of->virtual_stages == 1))
        return fail("%s: parallel.virtual_stages: 1f1b has one stage a rank, interleaved several", where);
    if (laid_out && check_layout(p, stages, where) < 0)
        return -1;
    if (!laid_out && layers % stages)
        return fail("%s: parallel.pipeline: %" PRId64 " layers (those that first_stage_less_layers and last_stage_less_layers take off among them) "
                    "do not divide by %" PRId64 " stages, as Megatron-LM requires", where, layers, stages);
    if (p->sync_every_micro_step)
        return fail("%s: sync_every_micro_step: megatron reduces gradients after the last backward", where);
    return of->virtual_stages > 1 ? check_groups(p, where) : 0;
}

/* attention.py: get_query_key_value_tensors() splits the product into views and rotates q and k into tensors of their own;
 * _checkpointed_attention_forward() saves what it is given (tensor_parallel/random.py, CheckpointFunction). */
const char *megatron_note(const struct plan *p)
{
    if (p->kernels != KERNELS_TE || attention_choice(p) <= ATTENTION_MATH || !plan_recomputes_module(p, "core_attn"))
        return NULL;
    if (p->model.position == POS_ROPE && p->model.kv_rank == 0)
        return "recompute of the attention core: Transformer Engine's fused attention keeps no scores, so there is a number for each row and head "
               "to save; and the checkpoint keeps the values, a view of the whole product of q, k and v, beside q and k as they were rotated: more "
               "memory than with recompute none";
    return "recompute of the attention core: Transformer Engine's fused attention keeps no scores: there is a number for each row and head to save, and "
           "attention is computed twice for it";
}
