/* megatron_import.c -- see megatron_import.h. */
#include "model/exchange/megatron_import.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/unread.h"
#include "model/exchange/megatron_graphs.h"
#include "model/exchange/megatron_read.h"
#include "model/exchange/megatron_stages.h"
#include "model/plan/knob.h"

bool import_has(const struct import *in, const char *name) { return json_object_get(in->from, name) != NULL; }

int import_integer(const struct import *in, const char *name, int64_t usual, int64_t *out)
{
    const json_t *v = json_object_get(in->from, name);

    *out = usual;
    if (!v)
        return 0;
    if (json_is_string(v) && json_string_value(v)[0] == '$')
        return fail("%s: %s: %s is a shell's variable that the script does not set: give its value", in->where, name, json_string_value(v));
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return fail("%s: %s: expected a number from 1 on", in->where, name);
    *out = json_integer_value(v);
    return 0;
}

bool import_says(const struct import *in, const char *name, const char *word)
{
    const char *s = json_string_value(json_object_get(in->from, name));

    return s && !strcmp(s, word);
}

static int read_pipeline(struct import *in, int64_t pipe)
{
    struct plan *p = in->p;
    int64_t chunks, layers;

    if (import_integer(in, "num_virtual_stages_per_pipeline_rank", 1, &chunks) < 0 || import_integer(in, "num_layers_per_virtual_pipeline_stage", 0, &layers) < 0)
        return -1;
    p->parallel.first_stage_less = import_has(in, "account_for_embedding_in_pipeline_split");
    p->parallel.last_stage_less = import_has(in, "account_for_loss_in_pipeline_split");
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
    int64_t cut = p->parallel.expert_tensor;
    knob_follow(p, NULL, NULL);
    p->parallel.expert_tensor = cut;            /* read before */
    p->parallel.virtual_stages = chunks;
    p->parallel.first_stage_less = import_has(in, "account_for_embedding_in_pipeline_split");
    p->parallel.last_stage_less = import_has(in, "account_for_loss_in_pipeline_split");
    const json_t *ahead = json_object_get(in->from, "mtp_num_layers");
    if (ahead && !json_is_null(ahead) && (!json_is_integer(ahead) || json_integer_value(ahead) < 0))
        return fail("%s: mtp_num_layers: expected a number from 0 on", in->where);
    p->megatron.mtp_num_layers = json_integer_value(ahead);
    if (megatron_stages_read(in->from, in->where, pipe, chunks, p) < 0)
        return -1;
    p->megatron.overlap_p2p_comm = chunks == 1 || !import_has(in, "no_overlap_p2p_communication");
    return chunks == 1 ? 0 : import_integer(in, "microbatch_group_size_per_virtual_pipeline_stage", pipe, &p->megatron.microbatch_group_size_per_vp_stage);
}

/* The loss that balances experts.  sinkhorn routes otherwise, whatever its coefficient. */
static int read_balance(struct import *in)
{
    const json_t *v = json_object_get(in->from, "moe_aux_loss_coeff");
    const char *type = json_string_value(json_object_get(in->from, "moe_router_load_balancing_type"));

    if (type && !strcmp(type, "sinkhorn"))
        return fail("%s: moe_router_load_balancing_type: sinkhorn is not modelled: aux_loss, seq_aux_loss or none", in->where);
    if (!v)
        return 0;
    if (!json_is_number(v) || json_number_value(v) < 0 || (import_has(in, "moe_router_load_balancing_type") && !type))
        return fail("%s: moe_aux_loss_coeff: expected one number from 0 on: several losses at once are not modelled yet", in->where);
    if (json_number_value(v) > 0 && type && strcmp(type, "none") && strcmp(type, "aux_loss") && strcmp(type, "seq_aux_loss"))
        return fail("%s: moe_router_load_balancing_type: %s is not modelled: aux_loss, seq_aux_loss or none", in->where, type);
    if (json_number_value(v) > 0 && type && !strcmp(type, "seq_aux_loss"))
        in->p->megatron.moe_router_load_balancing_type = BALANCE_SEQ_AUX_LOSS;
    in->p->megatron.moe_aux_loss_coeff = type && !strcmp(type, "none") ? 0 : json_number_value(v);
    return 0;
}

/* Below 0 the factor says none (transformer_config.py); with 0 every capacity is 0 rows (moe_utils.get_capacity()). */
static int read_capacity(struct import *in)
{
    const json_t *v = json_object_get(in->from, "moe_expert_capacity_factor");
    struct megatron_options *o = &in->p->megatron;

    if (v && !json_is_number(v))
        return fail("%s: moe_expert_capacity_factor: expected a number", in->where);
    if (v && json_number_value(v) >= 0 && json_number_value(v) <= 0)
        return fail("%s: moe_expert_capacity_factor: 0: with a capacity of 0 rows Megatron-LM drops every token: above 0, or left out", in->where);
    if (import_has(in, "moe_token_drop_policy") && !import_says(in, "moe_token_drop_policy", "probs"))
        return fail("%s: moe_token_drop_policy: tokens dropped by their position are not modelled: probs, its default, is", in->where);
    o->moe_expert_capacity_factor = v && json_number_value(v) > 0 ? json_number_value(v) : -1;
    o->moe_pad_expert_input_to_capacity = import_has(in, "moe_pad_expert_input_to_capacity");
    if (read_balance(in) < 0)
        return -1;
    o->moe_permute_fusion = import_has(in, "moe_permute_fusion");
    o->moe_router_padding_for_quantization = import_has(in, "moe_router_padding_for_quantization") || import_has(in, "moe_router_padding_for_fp8");
    if (o->moe_pad_expert_input_to_capacity && o->moe_expert_capacity_factor <= 0)
        return fail("%s: moe_pad_expert_input_to_capacity: Megatron-LM: \"moe_expert_capacity_factor must be set to use "
                    "moe_pad_expert_input_to_capacity\"", in->where);
    return 0;
}

/* Megatron-LM's own choices are another dispatcher (allgather) and experts one after the other. */
static int read_experts(struct import *in)
{
    struct plan *p = in->p;

    if (import_integer(in, "expert_model_parallel_size", 1, &p->parallel.expert) < 0)
        return -1;
    if (p->model.experts == 0)
        return 0;
    if (import_integer(in, "expert_tensor_parallel_size", p->parallel.tensor, &p->parallel.expert_tensor) < 0)
        return -1;
    if (p->parallel.expert_tensor != 1 && p->parallel.expert_tensor != p->parallel.tensor)
        return fail("%s: expert_tensor_parallel_size: %" PRId64 ": planned with 1 or tensor_model_parallel_size, which is %" PRId64, in->where,
                    p->parallel.expert_tensor, p->parallel.tensor);
    if (!import_says(in, "moe_token_dispatcher_type", "alltoall"))
        return fail("%s: moe_token_dispatcher_type: of Megatron-LM's dispatchers only alltoall is modelled (without the option it takes allgather)", in->where);
    if (!import_has(in, "moe_grouped_gemm"))
        return fail("%s: moe_grouped_gemm: missing: experts that run one after the other are not modelled", in->where);
    return read_capacity(in) < 0 ? -1 : megatron_check_routers(in);
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

    if (p->parallel.context == 1 || !import_has(in, "cp_comm_type"))
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

    if (import_integer(in, "tensor_model_parallel_size", 1, &p->parallel.tensor) < 0 || import_integer(in, "context_parallel_size", 1, &p->parallel.context) < 0 ||
        import_integer(in, "pipeline_model_parallel_size", 1, &p->parallel.pipeline) < 0)
        return -1;
    knob_follow(p, NULL, NULL);
    p->parallel.sequence = import_has(in, "sequence_parallel") && p->parallel.tensor > 1;
    if (read_experts(in) < 0)
        return -1;
    if (read_context(in) < 0)
        return -1;
    return read_pipeline(in, p->parallel.pipeline);
}

/* "0:384 200B:768 400B:1152": samples of a step from a number of tokens on, whatever global_batch_size says (num_microbatches_calculator.py).
 * Planned is the last. */
static int read_schedule(const struct import *in, int64_t *batch)
{
    const json_t *v = json_object_get(in->from, "step_batch_size_schedule");
    const json_t *words = json_is_array(v) ? json_array_get(v, json_array_size(v) - 1) : v;     /* a shell may have cut it at its blanks */
    const char *text = json_string_value(words), *colon = text ? strrchr(text, ':') : NULL;
    char *end = NULL;

    if (!v)
        return 0;
    long long last = colon ? strtoll(colon + 1, &end, 10) : 0;
    if (last < 1 || *end)
        return fail("%s: step_batch_size_schedule: expected THRESHOLD:SAMPLES, one or several", in->where);
    notes_say("%s: step_batch_size_schedule: planned is a step of its last batch, %lld samples", in->where, last);
    *batch = last;
    return 0;
}

static int read_batch(struct import *in)
{
    struct plan *p = in->p;
    int64_t micro = p->micro_batch, steps = p->accumulation, batch, each;

    if (import_integer(in, "micro_batch_size", micro, &p->micro_batch) < 0 || import_integer(in, "seq_length", p->seq, &batch) < 0)
        return -1;
    p->micro_batch = micro > 0 ? micro : p->micro_batch;
    if (p->micro_batch == 0)
        return fail("%s: micro_batch_size: missing: --micro-batch-size N", in->where);
    if (batch == 0)
        return fail("%s: seq_length: missing: --seq-length N, or --seq N beside import", in->where);
    p->seq = p->seq > 0 ? p->seq : batch;
    if (plan_batch_ranks(p) == 0)
        return fail("%s: tensor %" PRId64 " x context %" PRId64 " x pipeline %" PRId64 " ranks are more than the %" PRId64 " of the cluster", in->where,
                    p->parallel.tensor, p->parallel.context, p->parallel.pipeline, p->cluster.world_size);
    each = p->micro_batch * plan_batch_ranks(p);
    if (import_integer(in, "global_batch_size", each, &batch) < 0 || read_schedule(in, &batch) < 0)
        return -1;
    if (steps > 0) {
        p->accumulation = steps;
        return 0;
    }
    if (each == 0 || batch % each)
        return fail("%s: global_batch_size: %" PRId64 " is not a multiple of micro_batch_size x data-parallel ranks, %" PRId64, in->where, batch, each);
    p->accumulation = batch / each;
    return 0;
}

/* recompute_modules, one name or several; core_attn, where the option is left out.  moe_layer_recompute adds moe to them
 * (TransformerConfig.__post_init__()). */
static int read_modules(struct import *in)
{
    const json_t *v = json_object_get(in->from, "recompute_modules");
    char *out = in->p->megatron.recompute_modules;
    size_t n = 0;

    strcpy(out, v ? "" : "core_attn");
    for (size_t i = 0; v && i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        const char *s = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!s || n + strlen(s) + 2 > PLAN_MAX_MODULES)
            return fail("%s: recompute_modules: expected names such as core_attn, mlp, moe_act", in->where);
        n += (size_t)sprintf(out + n, "%s%s", i ? "," : "", s);
    }
    if (import_has(in, "moe_layer_recompute") && !plan_recomputes_module(in->p, "moe")) {
        if (strlen(out) + sizeof ",moe" > PLAN_MAX_MODULES)
            return fail("%s: moe_layer_recompute: too many recompute_modules beside it", in->where);
        strcat(out, *out ? ",moe" : "moe");
    }
    if (!strcmp(out, "core_attn"))
        *out = '\0';
    return 0;
}

/* full: recompute_method uniform, or block of the first recompute_num_layers. */
static int read_recompute(struct import *in)
{
    int64_t layers;

    if (import_has(in, "moe_layer_recompute") && import_says(in, "recompute_granularity", "full"))
        return fail("%s: moe_layer_recompute: Megatron-LM: \"Do not set --moe-layer-recompute with full recompute granularity. \"", in->where);
    if (import_says(in, "recompute_granularity", "selective") || import_has(in, "recompute_activations") || import_has(in, "moe_layer_recompute")) {
        in->p->recompute = RECOMPUTE_SELECTIVE;
        return read_modules(in);
    }
    if (!import_says(in, "recompute_granularity", "full"))
        return 0;
    in->p->recompute = RECOMPUTE_FULL;
    if (import_integer(in, "recompute_num_layers", 1, &layers) < 0)
        return -1;
    if (import_says(in, "recompute_method", "block"))
        in->p->megatron.recompute_num_layers = layers;
    else if (!import_says(in, "recompute_method", "uniform") || layers != 1)
        return fail("%s: recompute_method: block, or uniform with recompute_num_layers 1: runs of several layers that are recomputed as one are not "
                    "modelled yet", in->where);
    return 0;
}

static int read_compute(struct import *in)
{
    static const char *const numbers[] = { "clip_grad", "hidden_dropout", "attention_dropout" };
    struct plan *p = in->p;
    const json_t *clip = json_object_get(in->from, "clip_grad"), *dropout = json_object_get(in->from, "hidden_dropout");

    const json_t *attention = json_object_get(in->from, "attention_dropout");
    double other = attention ? json_number_value(attention) : 0.1;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const json_t *v = json_object_get(in->from, numbers[i]);
        if (v && !json_is_number(v) && !json_is_null(v))
            return fail("%s: %s: expected a number", in->where, numbers[i]);
    }
    if (import_has(in, "optimizer") && !import_says(in, "optimizer", "adam"))
        return fail("%s: optimizer: dialect megatron has adam alone so far", in->where);
    p->clip = clip ? json_number_value(clip) : 1;
    if (dropout || !import_has(in, "partly_stated"))
        p->dropout = dropout ? json_number_value(dropout) : 0.1;
    else
        other = attention ? other : p->dropout;         /* the model's own */
    if (other != p->dropout)
        return fail("%s: attention_dropout: %g beside hidden_dropout %g (0.1 where one is left out): a plan has one for both", in->where, other, p->dropout);
    bool narrow = p->precision == DT_BF16 && import_has(in, "grad_reduce_in_bf16");      /* an option of bf16 alone, and before the other */
    if (narrow || import_has(in, "accumulate_allreduce_grads_in_fp32"))
        p->reduce_dtype = narrow ? DT_BF16 : DT_FP32;
    if (import_says(in, "transformer_impl", "local"))
        p->kernels = KERNELS_MEGATRON_LOCAL;
    if (import_has(in, "cross_entropy_loss_fusion"))
        p->loss = import_says(in, "cross_entropy_fusion_impl", "te") ? LOSS_FUSED : LOSS_COMPILED;
    return read_recompute(in);
}

/* training.py, train_step(): torch.cuda.empty_cache() after the backward passes (1), and after the optimizer as well (2). */
static int read_emptied(const struct import *in)
{
    const json_t *v = json_object_get(in->from, "empty_unused_memory_level");

    if (v && (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 2))
        return fail("%s: empty_unused_memory_level: expected 0, 1 or 2", in->where);
    if (json_integer_value(v) > 0)
        notes_say("%s: empty_unused_memory_level is not in the plan: PyTorch's cache is given back before the optimizer's step%s, which "
                  "waits for the device, and may lower what is reserved", in->where, json_integer_value(v) > 1 ? " and after it" : "");
    return 0;
}

/* ranks of the data-parallel axis by parts one behind the other (core/parallel_state.py, intra_partial_data_parallel_size).  Without the
 * distributed optimizer megatron-core makes the groups and reduces over all the same. */
static int read_instances(const struct import *in)
{
    int64_t n, data = plan_data_ranks(in->p);

    if (import_integer(in, "num_distributed_optimizer_instances", 1, &n) < 0)
        return -1;
    if (n < 1 || data % n)
        return fail("%s: num_distributed_optimizer_instances: %" PRId64 " does not divide the %" PRId64 " data- and context-parallel ranks", in->where, n, data);
    if (n > 1 && json_is_true(json_object_get(in->from, "reduce_scatter_with_fp32_accumulation")))
        return fail("%s: reduce_scatter_with_fp32_accumulation: megatron-core refuses it beside several num_distributed_optimizer_instances", in->where);
    if (in->p->strategy == STRAT_ZERO1 && n > 1 && n == data)
        return fail("%s: num_distributed_optimizer_instances: %" PRId64 " for as many data-parallel ranks leaves each its states whole: not planned: fewer, or no "
                    "distributed optimizer", in->where, n);
    if (in->p->strategy == STRAT_ZERO1)
        in->p->shard_group = data / n;
    return 0;
}

/* core/model_parallel_config.py: "Cannot defer embedding wgrad compute when pipeline model parallel is not used". */
static int read_deferred(struct import *in)
{
    struct megatron_options *o = &in->p->megatron;
    const json_t *limit = json_object_get(in->from, "wgrad_deferral_limit");

    o->defer_embedding_wgrad_compute = import_has(in, "defer_embedding_wgrad_compute");
    if (limit && (!json_is_integer(limit) || json_integer_value(limit) < 0 || json_integer_value(limit) > PLAN_MAX_BATCH))
        return fail("%s: wgrad_deferral_limit: expected a number of micro-batches, 0 for all", in->where);
    if (!o->defer_embedding_wgrad_compute)
        return 0;
    if (in->p->parallel.pipeline == 1)
        return fail("%s: defer_embedding_wgrad_compute: Megatron-LM: \"Cannot defer embedding wgrad compute when pipeline model parallel is not used\"", in->where);
    o->wgrad_deferral_limit = json_integer_value(limit);
    return 0;
}

/* Of latent attention: the command line fuses rotary positions; megatron-core's own default, and that of recipes of DeepSeek's models, is not to
 * (Megatron-Bridge, deepseek_v3_bridge.py). */
static bool fuses_rope(const struct import *in)
{
    bool says = import_has(in, "in_sections") ? import_has(in, "rope_fusion_stated") : true;

    return in->p->model.kv_rank == 0 || (says && !import_has(in, "no_rope_fusion"));
}

/* transformer_config.py, __post_init__(), of Megatron-LM's main (core 0.20): the widths' quotient scales what initialises weights, learning rates and the
 * softmax, which no size depends on, and the logits, which a kernel multiplies unless the number is 1; a multiplier of embeddings adds one too. */
static int read_mup(struct import *in)
{
    static const char *const of[] = { "mup_output_mult", "mup_embedding_mult", "mup_base_head_dim", "mup_attn_scale_power" };
    int64_t base, hidden = in->p->model.hidden;
    double times[4];

    for (int i = 0; i < 4; i++) {
        const json_t *v = json_object_get(in->from, of[i]);
        times[i] = v ? json_number_value(v) : 1;
        if (v && !json_is_number(v))
            return fail("%s: %s: expected a number", in->where, of[i]);
    }
    if (import_integer(in, "mup_base_hidden_size", hidden, &base) < 0)
        return -1;
    if (!import_has(in, "use_mup"))
        return 0;
    if (times[1] < 1 || times[1] > 1)
        return fail("%s: mup_embedding_mult: a kernel that multiplies embeddings is not modelled: 1", in->where);
    in->p->megatron.scale_logits = times[0] < 1 || times[0] > 1 || base != hidden;
    return 0;
}

static int read_data(struct import *in)
{
    struct megatron_options *o = &in->p->megatron;

    o->overlap_grad_reduce = import_has(in, "overlap_grad_reduce");
    o->tp_comm_overlap = import_has(in, "tp_comm_overlap");
    o->apply_rope_fusion = fuses_rope(in);
    o->calculate_per_token_loss = import_has(in, "calculate_per_token_loss");
    o->overlap_param_gather = import_has(in, "overlap_param_gather");
    o->ddp_average_in_collective = import_has(in, "ddp_average_in_collective");
    o->gradient_accumulation_fusion = !import_has(in, "no_gradient_accumulation_fusion");
    o->bias_swiglu_fusion = in->p->model.mlp != MLP_GATED || !import_has(in, "no_bias_swiglu_fusion");
    o->ddp_pad_buckets_for_high_nccl_busbw = import_has(in, "ddp_pad_buckets_for_high_nccl_busbw");
    /* dynamic loss scaling looks for it itself (validate_args()) */
    bool scales = in->p->precision == DT_FP16 && json_number_value(json_object_get(in->from, "loss_scale")) == 0;
    o->check_for_nan_in_loss_and_grad = !scales && !import_has(in, "no_check_for_nan_in_loss_and_grad");
    if (import_integer(in, "ddp_bucket_size", o->ddp_bucket_size, &o->ddp_bucket_size) < 0)
        return -1;
    return read_instances(in) < 0 || read_emptied(in) < 0 || read_deferred(in) < 0 || read_mup(in) < 0 ? -1 : import_integer(in, "make_vocab_size_divisible_by", 128, &o->make_vocab_size_divisible_by);
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

/* A number that may be 0. */
static int read_layers(const struct import *in, const char *name, int64_t *out)
{
    const json_t *v = json_object_get(in->from, name);

    *out = v ? json_integer_value(v) : 1;
    return !v || (json_is_integer(v) && *out >= 0 && *out <= MODEL_MAX_LAYERS) ? 0 : fail("%s: %s: expected a number of layers", in->where, name);
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
    if (import_has(in, "fp4_recipe") && !import_says(in, "fp4_recipe", "nvfp4"))
        return fail("%s: fp4_recipe: only nvfp4 is modelled", in->where);
    if (plan_scaled(in->p) == SCALED_NONE)
        return 0;
    o->fp8_param_gather = import_has(in, "fp8_param_gather");
    o->reuse_grad_buf_for_mxfp8_param_ag = import_has(in, "reuse_grad_buf_for_mxfp8_param_ag");
    o->tp_only_amax_red = import_has(in, "tp_only_amax_red");
    o->first_last_layers_bf16 = import_has(in, "first_last_layers_bf16");
    if (read_layers(in, "num_layers_at_start_in_bf16", &o->num_layers_at_start_in_bf16) < 0 ||
        read_layers(in, "num_layers_at_end_in_bf16", &o->num_layers_at_end_in_bf16) < 0)
        return -1;
    return import_integer(in, "fp8_amax_history_len", 1, &o->fp8_amax_history_len);
}

static enum dtype precision_of(const struct import *in) { return import_has(in, "fp16") ? DT_FP16 : import_has(in, "bf16") ? DT_BF16 : DT_FP32; }

int megatron_import(const json_t *options, const char *where, struct plan *p)
{
    struct import in = { options, where, p };
    struct notes said = { 0 };
    int64_t seq = p->seq, micro = p->micro_batch, steps = p->accumulation, world;

    if (import_has(&in, "fp16") && import_has(&in, "bf16"))
        return fail("%s: fp16: beside bf16: Megatron-LM takes one of them", where);
    if (json_object_size(options) == 0)
        return fail("%s: expected options of Megatron-LM, such as --tensor-model-parallel-size 8", where);
    if (megatron_check_names(&in) < 0 || megatron_check_sizes(&in) < 0 || import_integer(&in, "world_size", p->cluster.world_size, &world) < 0)
        return -1;
    unread_ranks(&said, "trainer.devices x num_nodes", world, p->cluster.world_size);
    notes_print(&said, where);
    p->framework_version[0] = '\0';
    p->seq = seq ? seq : 1;
    plan_defaults(p, import_has(&in, "use_distributed_optimizer") ? STRAT_ZERO1 : STRAT_DDP, DIALECT_MEGATRON, precision_of(&in));
    p->seq = seq;
    p->micro_batch = micro;
    p->accumulation = steps;
    if (read_parallel(&in) < 0 || read_batch(&in) < 0 || read_compute(&in) < 0 || read_data(&in) < 0 || read_scaled(&in) < 0 || megatron_read_states(&in) < 0 ||
        megatron_read_graphs(&in) < 0 || megatron_read_adapters(&in) < 0)
        return -1;
    if (megatron_check_kind(&in) < 0 || megatron_check_said(&in) < 0)
        return -1;
    plan_resolve(p);
    if (plan_check(p, where) < 0)
        return -1;
    megatron_say_costs(&in);
    return 0;
}
