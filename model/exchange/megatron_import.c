/* megatron_import.c -- see megatron_import.h. */
#include "model/exchange/megatron_import.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/opts.h"
#include "model/exchange/megatron_stages.h"
#include "model/plan/knob.h"
#include "model/plan/megatron_model.h"

struct import { const json_t *from; const char *where; struct plan *p; };

/* What a plan has no word for, and why; the value that asks for nothing passes. */
static const struct { const char *name, *why; int64_t nothing; } lacks[] = {
    { "fp16", "fp16 with loss scaling is not modelled yet", 0 },
    { "fp8_dot_product_attention", "attention in 8 bits is not modelled yet", 0 },
    { "fp8_multi_head_attention", "attention in 8 bits is not modelled yet", 0 },
    { "fp8_output_proj", "a head in 8 bits is not modelled yet", 0 },
    { "fp8_quantizer_factory", "custom recipes of 8-bit floats are not modelled", 0 },
    { "activation_func_fp8_input_store", "it is not modelled yet", 0 },
    { "no_fp8_wgrad", "gradients of weights in 16 bits beside others in 8 are not modelled yet", 0 },
    { "fp4_param_gather", "parameters in 4 bits are not modelled yet", 0 },
    { "fp4_quantizer_factory", "custom recipes of 4-bit floats are not modelled", 0 },
    { "keep_fp8_transpose_cache", "that is Megatron-FSDP's, which is not modelled", 0 },
    { "disable_parameter_transpose_cache", "weights cast in each micro-step are not modelled yet", 0 },
    { "moe_shared_expert_intermediate_size", "shared experts are not read from options yet: write the plan", 0 },
    { "moe_layer_freq", "blocks with experts beside blocks without are not read from options yet: write the plan", 1 },
    { "moe_permute_fusion", "fused permutation of tokens is not modelled yet", 0 },
    { "moe_use_legacy_grouped_gemm", "other grouped products than Transformer Engine's are not modelled", 0 },
    { "multi_latent_attention", "latent attention is not read from options yet: write the plan", 0 },
    { "mtp_num_layers", "multi-token prediction is not planned", 0 },
    { "distribute_saved_activations", "it is not modelled yet", 0 },
    { "num_distributed_optimizer_instances", "several instances are not modelled yet", 1 },
    { "use_precision_aware_optimizer", "states in other formats are not modelled yet", 0 },
    { "optimizer_cpu_offload", "it is not modelled yet", 0 },
    { "use_torch_fsdp2", "that is dialect torch", 0 },
    { "use_megatron_fsdp", "Megatron-FSDP is not modelled", 0 },
    { "use_tp_pp_dp_mapping", "another order of ranks is not modelled yet", 0 },
    { "defer_embedding_wgrad_compute", "it is not modelled yet", 0 },
    { "delay_wgrad_compute", "it is not modelled yet", 0 },
    { "no_gradient_accumulation_fusion", "gradients that are added by a kernel of their own are not modelled yet", 0 },
    { "overlap_p2p_communication_warmup_flush", "it is not modelled yet", 0 },
    { "enable_cuda_graph", "CUDA graphs are not modelled", 0 },
    { "cuda_graph_impl", "CUDA graphs are not modelled", 0 },
    { "cpu_offloading", "it is not modelled yet", 0 },
    { "freeze_all_layers", "it is not modelled yet", 0 },
};

/* Beginnings of options that change nothing that a plan describes. */
static const char *const beside[] = {
    "lr", "min_lr", "weight_decay", "start_weight_decay", "end_weight_decay", "adam_", "train_iters", "train_samples", "exit_", "data_", "split", "log_", "save", "load",
    "eval_", "seed", "init_method", "distributed_", "tokenizer", "vocab_", "merge_file", "tensorboard", "wandb", "num_workers", "mock_data", "ckpt", "use_checkpoint", "dist_ckpt",
    "async_", "timing_", "attention_softmax_in_fp32", "no_masked_softmax_fusion", "use_mcore_models", "use_flash_attn", "use_legacy_models",
    "manual_gc", "rampup", "no_load", "no_save", "reset_", "finetune", "override_", "norm_epsilon", "layernorm_epsilon", "rotary_", "use_rotary", "use_rope", "rope_",
    "position_embedding_type", "no_position_embedding", "tiktoken_", "max_position_embeddings", "swiglu", "squared_relu", "normalization", "disable_bias_linear", "add_qkv_bias", "qk_layernorm", "untie_embeddings", "group_query_attention",
    "kv_channels", "apply_layernorm_1p", "no_bias", "no_rope_fusion", "no_create_attention_mask", "check_weight_hash", "local_rank", "straggler", "profile", "nvtx", "num_dataset",
    "ddp_num_buckets", "te_rng", "no_mmap", "legacy", "export_", "router", "accumulate_allreduce_grads_in_fp32", "use_cpu_initialization", "fp8_margin", "fp8_interval", "fp8_amax_compute_algo", "no_initialization", "cross_entropy", "no_persist", "decoupled_", "moe_router_load", "moe_aux_loss_coeff", "moe_z_loss_coeff",
    "moe_router_force",
};

/* What is applied below. */
static const char *const known[] = {
    "tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
    "context_parallel_size", "cp_comm_type", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "micro_batch_size", "global_batch_size",
    "seq_length", "bf16", "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "ddp_bucket_size", "ddp_average_in_collective",
    "ddp_pad_buckets_for_high_nccl_busbw", "no_check_for_nan_in_loss_and_grad", "no_overlap_p2p_communication", "microbatch_group_size_per_virtual_pipeline_stage",
    "make_vocab_size_divisible_by", "grad_reduce_in_bf16", "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_activations", "clip_grad",
    "hidden_dropout", "attention_dropout", "transformer_impl", "cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "num_layers", "hidden_size", "ffn_hidden_size",
    "num_attention_heads", "num_query_groups", "optimizer", "tp_comm_overlap", "fp8", "fp8_format", "fp8_recipe", "fp8_param_gather",
    "reuse_grad_buf_for_mxfp8_param_ag", "tp_only_amax_red", "fp8_amax_history_len", "first_last_layers_bf16", "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16", "fp4_format", "fp4_recipe", "attention_backend",
    "recompute_modules", "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "calculate_per_token_loss", "hierarchical_context_parallel_sizes",
    "world_size", "partly_stated", "empty_unused_memory_level", "num_experts", "moe_router_topk", "moe_ffn_hidden_size",
    "moe_token_dispatcher_type", "moe_grouped_gemm", "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_token_drop_policy", "expert_model_parallel_size", "expert_tensor_parallel_size", NULL
};

/* Those of them without a value. */
static const char *const flags[] = {
    "sequence_parallel", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "bf16", "use_distributed_optimizer",
    "overlap_grad_reduce", "overlap_param_gather", "ddp_average_in_collective", "ddp_pad_buckets_for_high_nccl_busbw", "tp_comm_overlap",
    "no_check_for_nan_in_loss_and_grad", "no_overlap_p2p_communication", "grad_reduce_in_bf16", "recompute_activations", "cross_entropy_loss_fusion",
    "fp8_param_gather", "reuse_grad_buf_for_mxfp8_param_ag", "tp_only_amax_red", "first_last_layers_bf16",
    "calculate_per_token_loss", "moe_grouped_gemm", "moe_pad_expert_input_to_capacity",
};

static bool has(const struct import *in, const char *name) { return json_object_get(in->from, name) != NULL; }

static int integer(const struct import *in, const char *name, int64_t usual, int64_t *out)
{
    const json_t *v = json_object_get(in->from, name);

    *out = usual;
    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return fail("%s: %s: expected a number from 1 on", in->where, name);
    *out = json_integer_value(v);
    return 0;
}

static bool says(const struct import *in, const char *name, const char *word)
{
    const char *s = json_string_value(json_object_get(in->from, name));

    return s && !strcmp(s, word);
}

static bool one_of(const char *name, const char *const *list, size_t n, bool begins)
{
    for (size_t i = 0; i < n; i++)
        if (begins ? !strncmp(name, list[i], strlen(list[i])) : !strcmp(name, list[i]))
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
    return json_is_integer(v) && json_integer_value(v) == lacks[lack].nothing;
}

static bool is_variable(const json_t *v) { return json_is_string(v) && strchr(json_string_value(v), '$'); }

/* What is applied, and what is refused, is known by name; of the rest one line says what was not looked at. */
static int check_names(const struct import *in)
{
    const char *name;
    char rest[400] = "";
    size_t n = 0;
    json_t *v;

    json_object_foreach((json_t *)in->from, name, v) {
        int lack = lack_of(name);
        if (lack >= 0 && !asks_nothing(lack, v))
            return fail("%s: %s: %s", in->where, name, lacks[lack].why);
        bool applied = one_of(name, known, sizeof known / sizeof *known - 1, false);
        if (applied && one_of(name, flags, sizeof flags / sizeof *flags, false) && !json_is_true(v))
            return fail("%s: %s: it is there or not, and has no value (in YAML: true or false)", in->where, name);
        if (applied && is_variable(v))
            return fail("%s: %s: \"%s\": a shell's variable: write its value", in->where, name, json_string_value(v));
        if (applied || lack >= 0 || one_of(name, beside, sizeof beside / sizeof *beside, true))
            continue;
        const char *near = opts_nearest_word(name, known);
        if (near)
            return fail("%s: %s: did you mean %s?", in->where, name, near);
        if (n < sizeof rest)
            n += (size_t)snprintf(rest + n, sizeof rest - n, "%s%s", n ? ", " : "", name);
    }
    if (n)
        notes_say("%s: not looked at, whether or not Megatron-LM has such options: %s", in->where, rest);
    return 0;
}

/* The options that describe the model agree with it. */
static int check_model(const struct import *in)
{
    const struct model *m = &in->p->model;
    const struct { const char *name; int64_t is; } of[] = {
        { "num_layers", m->layers }, { "hidden_size", m->hidden }, { "ffn_hidden_size", m->ffn }, { "num_attention_heads", m->heads },
        { "num_query_groups", m->kv_heads }, { "num_experts", m->experts }, { "moe_router_topk", m->experts_used },
        { "moe_ffn_hidden_size", m->expert_ffn },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        int64_t v;
        if (integer(in, of[i].name, of[i].is, &v) < 0)
            return -1;
        if (v != of[i].is)
            return fail("%s: %s: %" PRId64 ", but %s has %" PRId64, in->where, of[i].name, v, m->name, of[i].is);
    }
    return 0;
}

/* Where the options make a model (num_layers), it is this one. */
static int check_kind(const struct import *in)
{
    const struct model *m = &in->p->model;
    const struct { const char *option; bool given, is; } of[] = {
        { "swiglu", has(in, "swiglu"), m->mlp == MLP_GATED },
        { has(in, "normalization") ? "normalization RMSNorm" : "normalization RMSNorm (left out it is LayerNorm)", says(in, "normalization", "RMSNorm"), m->norm == NORM_RMS },
        { "position_embedding_type rope", says(in, "position_embedding_type", "rope") || has(in, "use_rotary_position_embeddings"), m->position == POS_ROPE },
        { "untie_embeddings_and_output_weights", has(in, "untie_embeddings_and_output_weights"), !m->tied },
        { "disable_bias_linear", has(in, "disable_bias_linear"), !m->mlp_bias },
        { "num_experts", has(in, "num_experts"), m->experts > 0 },
    };
    int64_t vocab, positions;

    if (integer(in, "vocab_size", m->vocab, &vocab) < 0 || integer(in, "max_position_embeddings", in->p->seq, &positions) < 0)
        return -1;
    if (vocab != m->vocab)
        return fail("%s: vocab_size: %" PRId64 ", but %s has %" PRId64, in->where, vocab, m->name, m->vocab);
    if (positions < in->p->seq)
        return fail("%s: max_position_embeddings: %" PRId64 " are fewer than seq_length, %" PRId64, in->where, positions, in->p->seq);
    for (size_t i = 0; i < sizeof of / sizeof *of && has(in, "num_layers") && !has(in, "partly_stated"); i++)
        if (of[i].given != of[i].is)
            return fail("%s: %s: %s %s it: without that these options make another model", in->where, of[i].option, m->name,
                        of[i].is ? "has" : "does not have");
    return 0;
}

static int read_pipeline(struct import *in, int64_t pipe)
{
    struct plan *p = in->p;
    int64_t chunks, layers;

    if (integer(in, "num_virtual_stages_per_pipeline_rank", 1, &chunks) < 0 || integer(in, "num_layers_per_virtual_pipeline_stage", 0, &layers) < 0)
        return -1;
    p->parallel.first_stage_less = has(in, "account_for_embedding_in_pipeline_split");
    p->parallel.last_stage_less = has(in, "account_for_loss_in_pipeline_split");
    int64_t all = p->model.layers + p->parallel.first_stage_less + p->parallel.last_stage_less;
    if (layers && all % (pipe * layers))
        return fail("%s: num_layers_per_virtual_pipeline_stage: %" PRId64 " layers do not divide into stages of %" PRId64 " on %" PRId64 " ranks", in->where, all, layers,
                    pipe);
    chunks = layers ? all / (pipe * layers) : chunks;
    int64_t laid_out = megatron_stages_chunks(in->from, in->where, pipe);
    if (laid_out < 0)
        return -1;
    chunks = laid_out ? laid_out : chunks;
    if (pipe == 1 && chunks > 1)
        return fail("%s: virtual stages need pipeline_model_parallel_size", in->where);
    p->parallel.pipeline_schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    knob_follow(p, NULL, NULL);
    p->parallel.virtual_stages = chunks;
    p->parallel.first_stage_less = has(in, "account_for_embedding_in_pipeline_split");
    p->parallel.last_stage_less = has(in, "account_for_loss_in_pipeline_split");
    if (megatron_stages_read(in->from, in->where, pipe, chunks, p) < 0)
        return -1;
    p->megatron.overlap_p2p_comm = chunks == 1 || !has(in, "no_overlap_p2p_communication");
    return chunks == 1 ? 0 : integer(in, "microbatch_group_size_per_virtual_pipeline_stage", pipe, &p->megatron.microbatch_group_size_per_vp_stage);
}

/* Below 0 the factor says none (transformer_config.py). */
static int read_capacity(struct import *in)
{
    const json_t *v = json_object_get(in->from, "moe_expert_capacity_factor");
    struct megatron_options *o = &in->p->megatron;

    if (v && !json_is_number(v))
        return fail("%s: moe_expert_capacity_factor: expected a number", in->where);
    if (has(in, "moe_token_drop_policy") && !says(in, "moe_token_drop_policy", "probs"))
        return fail("%s: moe_token_drop_policy: tokens dropped by their position are not modelled: probs, its default, is", in->where);
    o->moe_expert_capacity_factor = v && json_number_value(v) > 0 ? json_number_value(v) : 0;
    o->moe_pad_expert_input_to_capacity = has(in, "moe_pad_expert_input_to_capacity");
    if (o->moe_pad_expert_input_to_capacity && o->moe_expert_capacity_factor <= 0)
        return fail("%s: moe_pad_expert_input_to_capacity: Megatron-LM: \"moe_expert_capacity_factor must be set to use "
                    "moe_pad_expert_input_to_capacity\"", in->where);
    return 0;
}

/* Megatron-LM's own choices are another dispatcher (allgather) and experts one after the other. */
static int read_experts(struct import *in)
{
    struct plan *p = in->p;

    if (integer(in, "expert_model_parallel_size", 1, &p->parallel.expert) < 0)
        return -1;
    if (p->model.experts == 0)
        return 0;
    if (megatron_model_unsaid(&p->model))
        return fail("%s: model: %s: %s: not read from options yet: write the plan", in->where, p->model.name, megatron_model_unsaid(&p->model));
    if (integer(in, "expert_tensor_parallel_size", p->parallel.tensor, &p->parallel.expert_tensor) < 0)
        return -1;
    if (!says(in, "moe_token_dispatcher_type", "alltoall"))
        return fail("%s: moe_token_dispatcher_type: of Megatron-LM's dispatchers only alltoall is modelled (without the option it takes allgather)", in->where);
    if (read_capacity(in) < 0)
        return -1;
    return has(in, "moe_grouped_gemm") ? 0 : fail("%s: moe_grouped_gemm: missing: experts that run one after the other are not modelled", in->where);
}

/* The one word of an option that has one for all layers, or one for each. */
static const char *word_of_layers(const struct import *in, const char *name)
{
    const json_t *v = json_object_get(in->from, name);
    const char *first = json_string_value(json_is_array(v) ? json_array_get(v, 0) : v);

    for (size_t i = 1; first && i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)) || strcmp(json_string_value(json_array_get(v, i)), first))
            return NULL;
    return first;
}

/* hierarchical_context_parallel_sizes: ranks that exchange heads, ranks that pass keys on. */
static int read_hierarchy(struct import *in)
{
    const json_t *v = json_object_get(in->from, "hierarchical_context_parallel_sizes");
    int64_t run = json_integer_value(json_array_get(v, 0)), ring = json_integer_value(json_array_get(v, 1));

    if (json_array_size(v) != 2 || run < 1 || ring < 1 || run * ring != in->p->parallel.context)
        return fail("%s: hierarchical_context_parallel_sizes: expected two numbers whose product is context_parallel_size %" PRId64
                    ", as cp_comm_type a2a+p2p needs them", in->where, in->p->parallel.context);
    in->p->megatron.a2a_ranks = ring > 1 ? run : 1;
    if (ring == 1)
        in->p->parallel.context_method = CONTEXT_ULYSSES;
    return 0;
}

static int read_context(struct import *in)
{
    static const struct { const char *word; enum context_method is; } of[] = {
        { "p2p", CONTEXT_RING }, { "a2a", CONTEXT_ULYSSES }, { "all_gather", CONTEXT_ALL_GATHER }, { "allgather", CONTEXT_ALL_GATHER },
        { "a2a+p2p", CONTEXT_RING },
    };
    struct plan *p = in->p;

    if (p->parallel.context == 1 || !has(in, "cp_comm_type"))
        return 0;
    const char *word = word_of_layers(in, "cp_comm_type");
    for (size_t i = 0; word && i < sizeof of / sizeof *of; i++)
        if (!strcmp(word, of[i].word)) {
            p->parallel.context_method = of[i].is;
            return strcmp(word, "a2a+p2p") ? 0 : read_hierarchy(in);
        }
    return fail("%s: cp_comm_type: expected p2p, all_gather, a2a or a2a+p2p, the same for all layers", in->where);
}

static int read_parallel(struct import *in)
{
    struct plan *p = in->p;

    if (integer(in, "tensor_model_parallel_size", 1, &p->parallel.tensor) < 0 || integer(in, "context_parallel_size", 1, &p->parallel.context) < 0 ||
        integer(in, "pipeline_model_parallel_size", 1, &p->parallel.pipeline) < 0)
        return -1;
    knob_follow(p, NULL, NULL);
    p->parallel.sequence = has(in, "sequence_parallel") && p->parallel.tensor > 1;
    if (read_experts(in) < 0)
        return -1;
    if (read_context(in) < 0)
        return -1;
    return read_pipeline(in, p->parallel.pipeline);
}

static int read_batch(struct import *in)
{
    struct plan *p = in->p;
    int64_t batch, each;

    if (integer(in, "micro_batch_size", 0, &p->micro_batch) < 0 || integer(in, "seq_length", p->seq, &batch) < 0)
        return -1;
    if (p->micro_batch == 0)
        return fail("%s: micro_batch_size: missing: --micro-batch-size N", in->where);
    if (batch == 0)
        return fail("%s: seq_length: missing: --seq-length N, or --seq N beside import", in->where);
    if (p->seq && p->seq != batch)
        return fail("%s: seq_length: %" PRId64 ", but --seq says %" PRId64, in->where, batch, p->seq);
    p->seq = batch;
    each = p->micro_batch * plan_batch_ranks(p);
    if (integer(in, "global_batch_size", each, &batch) < 0)
        return -1;
    if (each == 0 || batch % each)
        return fail("%s: global_batch_size: %" PRId64 " is not a multiple of micro_batch_size x data-parallel ranks, %" PRId64, in->where, batch, each);
    p->accumulation = batch / each;
    return 0;
}

/* recompute_modules, one name or several; core_attn, where the option is left out. */
static int read_modules(struct import *in)
{
    const json_t *v = json_object_get(in->from, "recompute_modules");
    char *out = in->p->megatron.recompute_modules;
    size_t n = 0;

    *out = '\0';
    for (size_t i = 0; v && i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        const char *s = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!s || n + strlen(s) + 2 > PLAN_MAX_MODULES)
            return fail("%s: recompute_modules: expected names such as core_attn, mlp, layernorm", in->where);
        n += (size_t)sprintf(out + n, "%s%s", i ? "," : "", s);
    }
    if (!strcmp(out, "core_attn"))
        *out = '\0';
    return 0;
}

/* full: recompute_method uniform, or block of the first recompute_num_layers. */
static int read_recompute(struct import *in)
{
    int64_t layers;

    if (says(in, "recompute_granularity", "selective") || has(in, "recompute_activations")) {
        in->p->recompute = RECOMPUTE_SELECTIVE;
        return read_modules(in);
    }
    if (!says(in, "recompute_granularity", "full"))
        return 0;
    in->p->recompute = RECOMPUTE_FULL;
    if (integer(in, "recompute_num_layers", 1, &layers) < 0)
        return -1;
    if (says(in, "recompute_method", "block"))
        in->p->megatron.recompute_num_layers = layers;
    else if (!says(in, "recompute_method", "uniform") || layers != 1)
        return fail("%s: recompute_method: block, or uniform with recompute_num_layers 1: runs of several layers that are recomputed as one are not "
                    "modelled yet", in->where);
    return 0;
}

static int read_compute(struct import *in)
{
    struct plan *p = in->p;
    const json_t *clip = json_object_get(in->from, "clip_grad"), *dropout = json_object_get(in->from, "hidden_dropout");

    const json_t *attention = json_object_get(in->from, "attention_dropout");
    double other = attention ? json_number_value(attention) : 0.1;

    if (has(in, "optimizer") && !says(in, "optimizer", "adam"))
        return fail("%s: optimizer: dialect megatron has adam alone so far", in->where);
    p->clip = clip ? json_number_value(clip) : 1;
    if (dropout || !has(in, "partly_stated"))
        p->dropout = dropout ? json_number_value(dropout) : 0.1;
    else
        other = attention ? other : p->dropout;         /* the model's own */
    if (other != p->dropout)
        return fail("%s: attention_dropout: %g beside hidden_dropout %g (0.1 where one is left out): a plan has one for both", in->where, other, p->dropout);
    if (has(in, "grad_reduce_in_bf16"))
        p->reduce_dtype = DT_BF16;
    if (says(in, "transformer_impl", "local"))
        p->kernels = KERNELS_MEGATRON_LOCAL;
    if (has(in, "cross_entropy_loss_fusion"))
        p->loss = says(in, "cross_entropy_fusion_impl", "te") ? LOSS_FUSED : LOSS_COMPILED;
    return read_recompute(in);
}

/* training.py, train_step(): torch.cuda.empty_cache() after the backward passes (1), and after the optimizer as well (2). */
static int read_emptied(const struct import *in)
{
    const json_t *v = json_object_get(in->from, "empty_unused_memory_level");

    if (v && (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 2))
        return fail("%s: empty_unused_memory_level: expected 0, 1 or 2", in->where);
    if (json_integer_value(v) > 0)
        notes_say("%s: empty_unused_memory_level matters, and is not followed: PyTorch's cache is given back before the optimizer's step%s, which "
                  "waits for the device, and may lower what is reserved", in->where, json_integer_value(v) > 1 ? " and after it" : "");
    return 0;
}

static int read_data(struct import *in)
{
    struct megatron_options *o = &in->p->megatron;

    o->overlap_grad_reduce = has(in, "overlap_grad_reduce");
    o->tp_comm_overlap = has(in, "tp_comm_overlap");
    o->calculate_per_token_loss = has(in, "calculate_per_token_loss");
    o->overlap_param_gather = has(in, "overlap_param_gather");
    o->ddp_average_in_collective = has(in, "ddp_average_in_collective");
    o->ddp_pad_buckets_for_high_nccl_busbw = has(in, "ddp_pad_buckets_for_high_nccl_busbw");
    o->check_for_nan_in_loss_and_grad = !has(in, "no_check_for_nan_in_loss_and_grad");
    if (integer(in, "ddp_bucket_size", o->ddp_bucket_size, &o->ddp_bucket_size) < 0)
        return -1;
    return read_emptied(in) < 0 ? -1 : integer(in, "make_vocab_size_divisible_by", 128, &o->make_vocab_size_divisible_by);
}

/* A word of a key; no such option: as it is. */
static int read_word(const struct import *in, const char *option, const char *key)
{
    const struct knob *k = knob_find("megatron", key, knob_cell(in->p));
    const json_t *v = json_object_get(in->from, option);
    const char *s = json_string_value(v);

    if (!v || json_is_null(v))
        return 0;
    for (int i = 0; s && k->words[i]; i++)
        if (!strcmp(s, k->words[i])) {
            knob_set(in->p, k, i);
            return 0;
        }
    return fail("%s: %s: expected one of the words that `dpxplan list keys` has for megatron.%s", in->where, option, key);
}

/* --fp8 is --fp8-format's older name; NeMo's "fp8" too. */
static int read_scaled(struct import *in)
{
    struct megatron_options *o = &in->p->megatron;

    if (read_word(in, "attention_backend", "attention_backend") < 0)
        return -1;
    if (read_word(in, "fp8", "fp8_format") < 0 || read_word(in, "fp8_format", "fp8_format") < 0 || read_word(in, "fp8_recipe", "fp8_recipe") < 0 ||
        read_word(in, "fp4_format", "fp4_format") < 0)
        return -1;
    if (has(in, "fp4_recipe") && !says(in, "fp4_recipe", "nvfp4"))
        return fail("%s: fp4_recipe: only nvfp4 is modelled", in->where);
    if (plan_scaled(in->p) == SCALED_NONE)
        return 0;
    o->fp8_param_gather = has(in, "fp8_param_gather");
    o->reuse_grad_buf_for_mxfp8_param_ag = has(in, "reuse_grad_buf_for_mxfp8_param_ag");
    o->tp_only_amax_red = has(in, "tp_only_amax_red");
    o->first_last_layers_bf16 = has(in, "first_last_layers_bf16");
    if (integer(in, "num_layers_at_start_in_bf16", 1, &o->num_layers_at_start_in_bf16) < 0 ||
        integer(in, "num_layers_at_end_in_bf16", 1, &o->num_layers_at_end_in_bf16) < 0)
        return -1;
    return integer(in, "fp8_amax_history_len", 1, &o->fp8_amax_history_len);
}

int megatron_import(const json_t *options, const char *where, struct plan *p)
{
    struct import in = { options, where, p };
    int64_t seq = p->seq, world;

    if (json_object_size(options) == 0)
        return fail("%s: expected options of Megatron-LM, such as --tensor-model-parallel-size 8", where);
    if (check_names(&in) < 0 || check_model(&in) < 0 || integer(&in, "world_size", p->cluster.world_size, &world) < 0)
        return -1;
    if (world != p->cluster.world_size)
        return fail("%s: trainer: devices x num_nodes are %" PRId64 " GPUs, but the cluster has %" PRId64, where, world, (int64_t)p->cluster.world_size);
    p->framework_version[0] = '\0';
    p->seq = seq ? seq : 1;
    plan_defaults(p, has(&in, "use_distributed_optimizer") ? STRAT_ZERO1 : STRAT_DDP, DIALECT_MEGATRON, has(&in, "bf16") ? DT_BF16 : DT_FP32);
    p->seq = seq;
    if (read_parallel(&in) < 0 || read_batch(&in) < 0 || read_compute(&in) < 0 || read_data(&in) < 0 || read_scaled(&in) < 0)
        return -1;
    if (check_kind(&in) < 0)
        return -1;
    plan_resolve(p);
    return plan_check(p, where);
}
