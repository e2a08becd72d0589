/* megatron_refuses.c -- what Megatron-LM refuses of options beside each other, where a plan has no key that would show it: a plan drops what
 * says nothing beside its other keys.  What keys express, plan_check() refuses.  Files and words: core_v0.16.1. */
#include "model/exchange/megatron_read.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"

struct refusal { bool is; const char *option, *why; };

static int first_refusal(const struct import *in, const struct refusal *of, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (of[i].is)
            return fail("%s: %s: %s", in->where, of[i].option, of[i].why);
    return 0;
}

/* Options with few words. */
static int check_words(const struct import *in)
{
    static const struct { const char *option, *words[2], *expected; } of[] = {
        { "recompute_granularity", { "full", "selective" }, "full or selective" },
        { "recompute_method", { "uniform", "block" }, "uniform or block" },
        { "transformer_impl", { "transformer_engine", "local" }, "transformer_engine or local, which train" },
        { "cross_entropy_fusion_impl", { "native", "te" }, "native or te" },
        { "main_grads_dtype", { "fp32", "bf16" }, "fp32 or bf16" }, { "normalization", { "LayerNorm", "RMSNorm" }, "LayerNorm or RMSNorm" },
        { "distributed_backend", { "nccl", "gloo" }, "nccl or gloo" }, { "moe_router_dtype", { "fp32", "fp64" }, "fp32 or fp64" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (import_has(in, of[i].option) && !import_says(in, of[i].option, of[i].words[0]) && !import_says(in, of[i].option, of[i].words[1]))
            return fail("%s: %s: expected %s", in->where, of[i].option, of[i].expected);
    return 0;
}

static int64_t whole(const json_t *v) { return json_is_integer(v) ? (int64_t)json_integer_value(v) : -1; }

/* --rampup-batch-size takes three numbers, --timing-log-level one up to 2, --ddp-num-buckets one from 1 on, without --ddp-bucket-size (training.py). */
static int check_numbers(const struct import *in)
{
    const json_t *ramp = json_object_get(in->from, "rampup_batch_size"), *level = json_object_get(in->from, "timing_log_level");
    const json_t *buckets = json_object_get(in->from, "ddp_num_buckets");
    bool three = !ramp || json_is_null(ramp) || json_array_size(ramp) == 3;

    for (size_t i = 0; i < json_array_size(ramp); i++)
        three = three && whole(json_array_get(ramp, i)) >= 0;
    if (!three)
        return fail("%s: rampup_batch_size: expected three numbers: the first batch, what it grows by, and the samples in which it does", in->where);
    if (level && (whole(level) < 0 || whole(level) > 2))
        return fail("%s: timing_log_level: expected 0, 1 or 2", in->where);
    if (buckets && !json_is_null(buckets) && (whole(buckets) < 1 || import_has(in, "ddp_bucket_size")))
        return fail("%s: ddp_num_buckets: %s", in->where, whole(buckets) < 1 ? "expected a number from 1 on" : "Megatron-LM takes it or ddp_bucket_size");
    return 0;
}

/* training/arguments.py: args.context_parallel_size == prod(args.hierarchical_context_parallel_sizes), whatever cp_comm_type is. */
static int check_hierarchy(const struct import *in)
{
    const json_t *v = json_object_get(in->from, "hierarchical_context_parallel_sizes");
    int64_t context = in->p->parallel.context, left = context;

    if (!v || (json_is_array(v) && json_array_size(v) == 0))
        return 0;
    for (size_t i = 0; i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        int64_t ranks = json_integer_value(json_is_array(v) ? json_array_get(v, i) : v);
        left = ranks > 0 && left % ranks == 0 ? left / ranks : 0;
    }
    return left == 1 ? 0 : fail("%s: hierarchical_context_parallel_sizes: expected numbers whose product is context_parallel_size %" PRId64,
                                in->where, context);
}

/* training/arguments.py, validate_args(), which recipes in sections do not go through: Megatron-Bridge switches tp_comm_overlap off
 * where it cannot be (training/comm_overlap.py), and megatron-core runs the others. */
static int check_arguments(const struct import *in)
{
    const struct plan *p = in->p;
    bool selective = import_says(in, "recompute_granularity", "selective") || import_has(in, "recompute_activations");
    bool graphs = import_says(in, "cuda_graph_impl", "local") || import_has(in, "enable_cuda_graph");
    const struct refusal of[] = {
        { import_has(in, "tp_comm_overlap") && !p->parallel.sequence, "tp_comm_overlap",
          "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is enabled: tensor_model_parallel_size above 1, and "
          "sequence_parallel" },
        { selective && import_has(in, "recompute_method"), "recompute_method",
          "recompute method is not yet supported for selective recomputing granularity: leave it out" },
        { p->parallel.virtual_stages > 1 && !p->megatron.overlap_p2p_comm && p->parallel.pipeline <= 2, "no_overlap_p2p_communication",
          "When interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size should be greater than 2" },
        { import_has(in, "overlap_param_gather") && p->strategy != STRAT_ZERO1, "overlap_param_gather",
          "only supported with distributed optimizer: use_distributed_optimizer" },
        { graphs && p->parallel.expert > 1 && !import_has(in, "moe_pad_experts_for_cuda_graph_inference"), "cuda_graph_impl",
          "--moe-pad-experts-for-cuda-graph-inference must be set when using CUDA graphs with expert parallelism" },
    };

    return import_has(in, "partly_stated") ? 0 : first_refusal(in, of, sizeof of / sizeof *of);
}

/* core/transformer/transformer_config.py, __post_init__(); fp8_param_gather without the distributed optimizer, which training/arguments.py
 * refuses, is not modelled for recipes either. */
static int check_config(const struct import *in)
{
    static const char padding[] = "fp8/fp4 must be specified when moe_router_padding_for_quantization is True: fp8_format, or leave it out";
    const struct plan *p = in->p;
    bool codes = plan_scaled(p) != SCALED_NONE, layers = import_has(in, "recompute_num_layers");
    const struct refusal of[] = {
        { import_has(in, "moe_router_padding_for_fp8") && !codes, "moe_router_padding_for_fp8", padding },
        { import_has(in, "moe_router_padding_for_quantization") && !codes, "moe_router_padding_for_quantization", padding },
        { p->recompute == RECOMPUTE_FULL && !layers, "recompute_num_layers",
          "missing: with recompute_granularity full it must be between 1 and the layers of a pipeline rank" },
        { p->recompute == RECOMPUTE_SELECTIVE && layers, "recompute_num_layers", "must be None with recompute_granularity selective: leave it out" },
        { import_has(in, "fp8_param_gather") && p->megatron.fp8_format == FP8_OFF, "fp8_param_gather",
          "fp8_param must be used together with fp8 mode: fp8_format, or leave it out" },
        { import_has(in, "fp8_param_gather") && p->strategy != STRAT_ZERO1, "fp8_param_gather",
          "only supported with distributed optimizer: use_distributed_optimizer" },
    };

    return first_refusal(in, of, sizeof of / sizeof *of);
}

int megatron_check_said(const struct import *in)
{
    return check_words(in) < 0 || check_numbers(in) < 0 || check_hierarchy(in) < 0 || check_arguments(in) < 0 ? -1 : check_config(in);
}
