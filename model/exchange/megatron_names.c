/* megatron_names.c -- options of Megatron-LM by name: what import applies, what it refuses, what it tells and what changes nothing. */
#include "model/exchange/megatron_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/opts.h"
#include "model/exchange/unread.h"

/* What a plan has no word for, and why; the value that asks for nothing passes. */
static const struct { const char *name, *why; int64_t nothing; } lacks[] = {
    { "fp8_dot_product_attention", "attention in 8 bits is not modelled yet", 0 },
    { "fp8_multi_head_attention", "attention in 8 bits is not modelled yet", 0 },
    { "fp8_output_proj", "a head in 8 bits is not modelled yet", 0 },
    { "fp8_quantizer_factory", "custom recipes of 8-bit floats are not modelled", 0 },
    { "activation_func_fp8_input_store", "it is not modelled yet", 0 },
    { "no_fp8_wgrad", "gradients of weights in 16 bits beside others in 8 are not modelled yet", 0 },
    { "fp4_param", "parameters in 4 bits are not modelled yet", 0 },
    { "fp4_param_gather", "parameters in 4 bits are not modelled yet", 0 },
    { "fp4_quantizer_factory", "custom recipes of 4-bit floats are not modelled", 0 },
    { "keep_fp8_transpose_cache", "that is Megatron-FSDP's, which is not modelled", 0 },
    { "disable_parameter_transpose_cache", "weights cast in each micro-step are not modelled yet", 0 },
    { "moe_use_legacy_grouped_gemm", "other grouped products than Transformer Engine's are not modelled", 0 },
    { "moe_shared_expert_gate", "a gate of shared experts is not modelled", 0 },
    { "moe_latent_size", "experts of fewer dimensions than the model's are not modelled", 0 },
    { "moe_apply_probs_on_input", "weights of experts on what goes into them are not modelled", 0 },
    { "overlap_moe_expert_parallel_comm", "all-to-alls beside another micro-batch's blocks are not modelled yet", 0 },
    { "mla_down_proj_fusion", "down-projections in one product are not modelled yet", 0 },
    { "experimental_attention_variant", "it is not modelled", 0 },
    { "linear_attention_freq", "layers with linear attention are not modelled", 0 },
    { "mtp_standalone", "multi-token prediction on a stage of its own is not modelled yet", 0 },
    { "mtp_use_repeated_layer", "one layer of multi-token prediction for all depths is not modelled", 0 },
    { "distribute_saved_activations", "it is not modelled yet", 0 },
    { "fp32_residual_connection", "residuals in fp32 are not modelled yet", 0 },
    { "fine_grained_activation_offloading", "it is not modelled yet", 0 },
    { "offload_modules", "activations that modules copy to the host are not modelled yet", 0 },
    { "nccl_ub", "buckets in memory that NCCL registers are not modelled yet", 0 },
    { "use_nccl_ub", "buckets in memory that NCCL registers are not modelled yet", 0 },
    { "optimizer_cpu_offload", "it is not modelled yet", 0 },
    { "use_torch_fsdp2", "that is dialect torch", 0 },
    { "use_megatron_fsdp", "Megatron-FSDP is not modelled", 0 },
    { "use_custom_fsdp", "Megatron-FSDP is not modelled", 0 },
    { "use_tp_pp_dp_mapping", "another order of ranks is not modelled on several nodes", 0 },
    { "delay_wgrad_compute", "it is not modelled yet", 0 },
    { "cpu_offloading", "it is not modelled yet", 0 },
    { "cpu_offloading_num_layers", "activations that layers copy to the host are not modelled yet", 0 },
    { "freeze_all_layers", "it is not modelled yet", 0 },
    /* of other programs than pretrain_gpt.py */
    { "vision_model_type", "a model with a vision tower is not planned", 0 },
    { "language_model_type", "a model with a vision tower is not planned", 0 },
    { "freeze_LM", "frozen language models are not planned of Megatron-LM", 0 },
    { "freeze_ViT", "a model with a vision tower is not planned", 0 },
    { "img_h", "a model of pictures is not planned", 0 }, { "img_w", "a model of pictures is not planned", 0 },
    { "encoder_num_layers", "an encoder beside the decoder is not planned", 0 },
    { "decoder_num_layers", "an encoder beside the decoder is not planned", 0 },
    { "decoder_seq_length", "samples of a second length are not planned", 0 },
    { "bert_no_binary_head", "BERT is not planned of Megatron-LM", 0 }, { "bert_binary_head", "BERT is not planned of Megatron-LM", 0 },
    { "hybrid_attention_ratio", "which layers these are is not followed: state hybrid_layer_pattern", 0 },
    { "hybrid_mlp_ratio", "which layers these are is not followed: state hybrid_layer_pattern", 0 },
    { "disable_mamba_mem_eff_path", "Mamba-2 without mamba_ssm's fused function is not modelled", 0 },
    { "mtp_hybrid_override_pattern", "multi-token prediction by layers of several kinds is not modelled", 0 },
    { "retro_add_retriever", "RETRO is not modelled", 0 }, { "perform_rl_step", "steps of reinforcement learning are not planned", 0 },
};

/* What costs memory or time, and a plan has no word for, but is followed by none of our schedules: told, unless it asks for nothing. */
static const struct { const char *name, *why; } matters[] = {
    { "moe_z_loss_coeff", "a loss of the router's logits takes kernels of its own" },
    { "moe_router_fusion", "the router's kernels are taken one by one" },
    { "moe_router_pre_softmax", "the softmax is taken of the chosen experts, not of all" },
    { "moe_shared_expert_overlap", "shared experts run on a stream of their own, beside the all-to-alls; taken before the router" },
    { "moe_input_jitter_eps", "the router's input is a copy" },
    { "no_bias_gelu_fusion", "bias and activation are planned as one kernel" },
    { "overlap_p2p_communication_warmup_flush", "a pipeline's fill and drain are planned with each receive in its turn: it issues them a pass ahead, waits less, and holds "
      "one more receive buffer" },
    { "overlap_param_gather_with_optimizer_step", "the first chunk's parameters are gathered after the optimizer's whole step, not beside the rest of it" },
    { "log_max_attention_logit", "each attention gives its heads' largest logits, too, and each step waits for those of every layer" },
    { "deterministic_mode", "PyTorch fills the memory that it allocates and adds up by index in order, and attention's backward takes its deterministic kernels: longer than planned" },
    { "error_injection_rate", "a step into which an error is put runs again" },
    { "tp_comm_overlap_cfg", "how userbuffers cut each product, and on how many multiprocessors, is Transformer Engine's default" },
};

/* What is applied below. */
static const char *const known[] = {
    "tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
    "context_parallel_size", "cp_comm_type", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "micro_batch_size", "global_batch_size", "step_batch_size_schedule",
    "seq_length", "bf16", "fp16", "use_distributed_optimizer", "num_distributed_optimizer_instances", "overlap_grad_reduce", "overlap_param_gather", "ddp_bucket_size", "ddp_average_in_collective", "defer_embedding_wgrad_compute", "wgrad_deferral_limit", "use_mup", "mup_base_hidden_size", "mup_output_mult", "mup_embedding_mult",
    "mup_base_head_dim", "mup_attn_scale_power",
    "no_gradient_accumulation_fusion",
    "no_bias_swiglu_fusion", "ddp_pad_buckets_for_high_nccl_busbw", "no_check_for_nan_in_loss_and_grad", "no_overlap_p2p_communication", "microbatch_group_size_per_virtual_pipeline_stage",
    "make_vocab_size_divisible_by", "grad_reduce_in_bf16", "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_activations", "clip_grad",
    "hidden_dropout", "attention_dropout", "transformer_impl", "cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "num_layers", "hidden_size", "ffn_hidden_size",
    "num_attention_heads", "num_query_groups", "optimizer", "tp_comm_overlap", "fp8", "fp8_format", "fp8_recipe", "fp8_param_gather",
    "reuse_grad_buf_for_mxfp8_param_ag", "tp_only_amax_red", "fp8_amax_history_len", "first_last_layers_bf16", "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16", "fp4_format", "fp4_recipe", "attention_backend",
    "recompute_modules", "moe_layer_recompute", "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "calculate_per_token_loss", "loss_scale", "hierarchical_context_parallel_sizes", "mtp_num_layers",
    "world_size", "partly_stated", "in_sections", "rope_fusion_stated", "peft", "empty_unused_memory_level", "num_experts", "moe_router_topk", "moe_ffn_hidden_size",
    "is_hybrid_model", "hybrid_layer_pattern", "hybrid_override_pattern", "mamba_num_heads", "mamba_head_dim", "mamba_num_groups", "mamba_state_dim",
    "moe_layer_freq", "moe_shared_expert_intermediate_size", "moe_router_score_function", "moe_router_num_groups", "moe_router_group_topk",
    "moe_router_enable_expert_bias", "multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim",
    "rope_type", "no_rope_fusion", "moe_router_dtype", "softmax_type", "window_size", "window_attn_skip_freq", "quick_geglu", "glu_linear_offset", "activation_func_clamp_value", "no_bias_dropout_fusion",
    "moe_token_dispatcher_type", "moe_grouped_gemm", "moe_permute_fusion", "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_token_drop_policy",
    "moe_router_padding_for_quantization", "moe_router_padding_for_fp8", "moe_aux_loss_coeff", "moe_router_load_balancing_type",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl",
    "cuda_graph_scope", "cuda_graph_modules", "moe_pad_experts_for_cuda_graph_inference", "main_grads_dtype", "main_params_dtype", "exp_avg_dtype",
    "exp_avg_sq_dtype", "use_precision_aware_optimizer", "accumulate_allreduce_grads_in_fp32", "no_store_param_remainders",
    "log_params_norm", "log_num_zeros_in_grad", "distributed_backend", "ddp_num_buckets", "timing_log_level", "rampup_batch_size", NULL
};

/* Those of them without a value. */
static const char *const flags[] = {
    "sequence_parallel", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "bf16", "fp16", "use_distributed_optimizer",
    "overlap_grad_reduce", "overlap_param_gather", "ddp_average_in_collective", "no_gradient_accumulation_fusion", "no_bias_swiglu_fusion", "ddp_pad_buckets_for_high_nccl_busbw", "tp_comm_overlap",
    "no_check_for_nan_in_loss_and_grad", "no_overlap_p2p_communication", "defer_embedding_wgrad_compute", "use_mup", "grad_reduce_in_bf16", "recompute_activations", "cross_entropy_loss_fusion",
    "fp8_param_gather", "reuse_grad_buf_for_mxfp8_param_ag", "tp_only_amax_red", "first_last_layers_bf16",
    "calculate_per_token_loss", "moe_layer_recompute", "moe_grouped_gemm", "moe_permute_fusion", "moe_pad_expert_input_to_capacity", "moe_router_padding_for_quantization",
    "moe_router_padding_for_fp8", "multi_latent_attention", "quick_geglu", "no_bias_dropout_fusion",
    "use_precision_aware_optimizer", "accumulate_allreduce_grads_in_fp32", "no_store_param_remainders",
    "moe_router_enable_expert_bias", "enable_cuda_graph", "external_cuda_graph", "moe_pad_experts_for_cuda_graph_inference",
    "log_params_norm", "log_num_zeros_in_grad", "no_rope_fusion",
};

static bool one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, list[i]))
            return true;
    return false;
}

static int lack_of(const char *name)
{
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if (!strcmp(name, lacks[i].name))
            return (int)i;
    return -1;
}

static bool asks_nothing(int lack, const json_t *v)
{
    return (json_is_integer(v) && json_integer_value(v) == lacks[lack].nothing) || (json_is_array(v) && json_array_size(v) == 0);
}

static bool is_variable(const json_t *v) { return json_is_string(v) && strchr(json_string_value(v), '$'); }

/* Why an option that the import lists matters; NULL: it is none of these, or asks for nothing. */
static const char *why_it_matters(const char *name, const json_t *v)
{
    for (size_t i = 0; i < sizeof matters / sizeof *matters && !unread_asks_nothing(v); i++)
        if (!strcmp(name, matters[i].name))
            return matters[i].why;
    return NULL;
}

static bool is_told(const char *name)
{
    for (size_t i = 0; i < sizeof matters / sizeof *matters; i++)
        if (!strcmp(name, matters[i].name))
            return true;
    return false;
}

/* What a plan has a word for where the model is such. */
static bool is_followed(const struct import *in, const char *name)
{
    bool softmax = !import_says(in, "moe_router_score_function", "sigmoid");    /* topk_routing_with_score_function() */

    return !strcmp(name, "moe_router_pre_softmax") && !softmax;
}

/* Another order of ranks moves groups between nodes: on one node all of them lie alike. */
static bool changes_nothing(const struct import *in, const char *name) { return !strcmp(name, "use_tp_pp_dp_mapping") && in->p->cluster.nodes == 1; }

bool megatron_knows(const char *name)
{
    return one_of(name, known, sizeof known / sizeof *known - 1) || lack_of(name) >= 0 || is_told(name) || megatron_is_beside(name);
}

/* training.py's train() and clip_grads.py's count_zeros_fp32(): a pass over all tensors, whose result the host reads. */
static void say_logs(const struct import *in)
{
    bool norm = import_has(in, "log_params_norm"), zeros = import_has(in, "log_num_zeros_in_grad");

    if (norm || zeros)
        notes_say("%s: %s%s%s %s not in the plan: each step waits for it: it may lengthen each step by some 10 ms (%s)", in->where, norm ? "log_params_norm" : "",
                  norm && zeros ? " and " : "", zeros ? "log_num_zeros_in_grad" : "", norm && zeros ? "are" : "is",
                  norm ? "Megatron's own figure" : "Megatron's own figure of log_params_norm, which is alike");
    if (import_says(in, "rerun_mode", "report_stats"))
        notes_say("%s: rerun_mode: report_stats runs every step again: it takes about twice as long as planned", in->where);
    if (import_has(in, "check_weight_hash_across_dp_replicas_interval"))
        notes_say("%s: check_weight_hash_across_dp_replicas_interval is not in the plan: in each such step all weights go to the host and are hashed there", in->where);
}

/* Queries and keys of a block are read and written once where they are rotated by a kernel; without it five times (rope_utils.py: two halves, their
 * concatenation, two products and a sum), each way. */
static void say_rotations(const struct import *in)
{
    const struct plan *p = in->p;
    const struct model *m = &p->model;
    double bytes = (double)(p->micro_batch * plan_rank_seq(p)) * (double)((m->heads + m->kv_heads) * m->head_dim / p->parallel.tensor) * 2;
    double layers = (double)m->layers / (double)p->parallel.pipeline, s = p->cluster.gpu.hbm > 0 ? 2 * 4 * 2 * bytes * layers / p->cluster.gpu.hbm : 0;

    if (import_has(in, "no_rope_fusion") && m->kv_rank == 0 && s > 0 && m->position == POS_ROPE)
        notes_say("%s: no_rope_fusion is not in the plan: queries and keys are rotated by five kernels, not one: %.2g s more for each micro-batch of a stage", in->where, s);
}

/* router_gating_linear() (moe_utils.py): tokens by experts, once in forward and twice in backward, at the rate of fp32 instead of tensor cores'. */
static void say_router(const struct import *in)
{
    const struct plan *p = in->p;
    const struct model *m = &p->model;
    bool twice = import_says(in, "moe_router_dtype", "fp64");
    double flops = 6 * (double)(p->micro_batch * plan_rank_seq(p) / p->parallel.tensor) * (double)m->hidden * (double)m->experts * (double)m->layers / (double)p->parallel.pipeline;
    double s = p->cluster.gpu.fp32 > 0 ? flops / p->cluster.gpu.fp32 * (twice ? 2 : 1) : 0;

    if (import_has(in, "moe_router_dtype") && m->experts > 0 && s > 1e-4)
        notes_say("%s: moe_router_dtype is not in the plan: the router's products are in %s, not in 16 bits: %.2g s more for each micro-batch of a stage", in->where,
                  twice ? "fp64" : "fp32", s);
}

void megatron_say_costs(const struct import *in)
{
    const json_t *ramp = json_object_get(in->from, "rampup_batch_size");

    say_rotations(in);
    say_router(in);
    if (import_says(in, "distributed_backend", "gloo"))
        notes_say("%s: distributed_backend: collectives are planned as nccl's: gloo's go by way of the host, many times as long", in->where);
    if (import_has(in, "ddp_num_buckets") && in->p->megatron.overlap_grad_reduce)
        notes_say("%s: ddp_num_buckets is not in the plan: buckets are planned as without it (max(40,000,000, 1,000,000 x ranks) numbers), not as its share of a rank's "
                  "parameters: few buckets leave more of their traffic behind backward: ddp_bucket_size states their size", in->where);
    if (json_integer_value(json_object_get(in->from, "timing_log_level")) == 2)
        notes_say("%s: timing_log_level: the host waits for the GPU around each micro-batch's forward and backward, which the plan has without: longer than planned", in->where);
    if (json_array_size(ramp) == 3 && json_integer_value(json_array_get(ramp, 2)) > 0)
        notes_say("%s: rampup_batch_size: a step begins with %lld samples and grows over %lld: planned is the last", in->where,
                  (long long)json_integer_value(json_array_get(ramp, 0)), (long long)json_integer_value(json_array_get(ramp, 2)));
}

int megatron_check_names(const struct import *in)
{
    const char *name;
    char rest[400] = "";
    size_t n = 0;
    json_t *v;

    json_object_foreach((json_t *)in->from, name, v) {
        int lack = lack_of(name);
        if (lack >= 0 && !asks_nothing(lack, v) && !changes_nothing(in, name))
            return fail("%s: %s: %s", in->where, name, lacks[lack].why);
        bool applied = one_of(name, known, sizeof known / sizeof *known - 1);
        bool stands = json_is_boolean(v) || json_is_null(v) || is_variable(v), bare = megatron_is_bare(name) && !stands;
        if (bare || (applied && one_of(name, flags, sizeof flags / sizeof *flags) && !json_is_true(v)))
            return fail("%s: %s: it is there or not, and has no value (in YAML: true or false)", in->where, name);
        if (applied && is_variable(v))
            return fail("%s: %s: \"%s\": a shell's variable: write its value", in->where, name, json_string_value(v));
        const char *why = why_it_matters(name, v);
        if (why && !is_followed(in, name))
            notes_say("%s: %s is not in the plan: %s", in->where, name, why);
        if (megatron_knows(name))
            continue;
        const char *near = megatron_is_field(name) ? NULL : opts_nearest_word(name, known);
        if (near)
            return fail("%s: %s: did you mean %s?", in->where, name, near);
        if (n < sizeof rest)
            n += (size_t)snprintf(rest + n, sizeof rest - n, "%s%s", n ? ", " : "", name);
    }
    say_logs(in);
    if (n)
        notes_say("%s: not looked at, whether or not Megatron-LM has such options: %s", in->where, rest);
    return 0;
}
