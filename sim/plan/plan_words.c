/* plan_words.c -- each part of a plan's label, spelled out.
 *
 * A row of the table for each row of the table of knobs that a label may show (tests/sim/test_plan_words.c finds one that lacks).
 * Where the label says nothing of a knob, neither do the words. */
#include "sim/plan/plan_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/columns.h"
#include "base/page.h"
#include "base/room.h"
#include "base/size.h"
#include "model/arch/training.h"
#include "model/plan/optimizer_traits.h"

const char *plan_words_name(enum strategy s, enum dialect d)
{
    static const char *const names[NSTRATEGY][NDIALECT] = {
        [STRAT_DP]    = { [DIALECT_PAPER] = "a textbook parameter server", [DIALECT_TORCH] = "PyTorch DataParallel" },
        [STRAT_DDP]   = { [DIALECT_PAPER] = "textbook DDP", [DIALECT_TORCH] = "PyTorch DDP", [DIALECT_DEEPSPEED] = "DeepSpeed without ZeRO",
                          [DIALECT_MEGATRON] = "Megatron-LM DDP" },
        [STRAT_ZERO1] = { [DIALECT_PAPER] = "textbook ZeRO-1", [DIALECT_TORCH] = "PyTorch ZeroRedundancyOptimizer",
                          [DIALECT_DEEPSPEED] = "DeepSpeed ZeRO-1", [DIALECT_MEGATRON] = "Megatron-LM with its distributed optimizer" },
        [STRAT_ZERO2] = { [DIALECT_PAPER] = "textbook ZeRO-2", [DIALECT_DEEPSPEED] = "DeepSpeed ZeRO-2" },
        [STRAT_ZERO3] = { [DIALECT_PAPER] = "textbook ZeRO-3", [DIALECT_DEEPSPEED] = "DeepSpeed ZeRO-3" },
        [STRAT_FSDP]  = { [DIALECT_PAPER] = "textbook FSDP", [DIALECT_TORCH] = "FSDP2", [DIALECT_TORCH_FSDP1] = "FSDP1" },
    };

    return names[s][d] ? names[s][d] : strategy_name(s);
}

/* "GPU" of 1, "GPUs" of more; on a host "rank", "ranks". */
static const char *gpu_word(const struct plan *p, int64_t n)
{
    return p->cluster.is_host ? n == 1 ? "rank" : "ranks" : n == 1 ? "GPU" : "GPUs";
}

/* ---- parts that several knobs decide ---- */

/* "2nd", "3rd", "4th", "11th" */
static void ordinal(int64_t n, char *to, size_t size)
{
    bool teen = n % 100 / 10 == 1;
    const char *end = n % 10 == 1 && !teen ? "st" : n % 10 == 2 && !teen ? "nd" : n % 10 == 3 && !teen ? "rd" : "th";

    snprintf(to, size, "%" PRId64 "%s", n, end);
}

static int say_batch(const struct plan *p, char *to, size_t size)
{
    int64_t copy = p->parallel.tensor * p->parallel.context;
    const char *samples = p->micro_batch == 1 ? "sample" : "samples";
    char of[48] = "";
    int n;

    if (p->parallel.pipeline > 1)
        return snprintf(to, size, "%" PRId64 " micro-batch%s of %" PRId64 " %s", p->accumulation, p->accumulation == 1 ? "" : "es", p->micro_batch, samples);
    if (copy > 1)
        snprintf(of, sizeof of, "%" PRId64 " ", copy);
    n = snprintf(to, size, "%" PRId64 " %s %s %s%s", p->micro_batch, samples, copy > 1 ? "for each" : "a", of, gpu_word(p, copy));
    return n + (p->accumulation == 1 ? snprintf(to + n, size - (size_t)n, ", no accumulation")
                                     : snprintf(to + n, size - (size_t)n, ", %" PRId64 " accumulation steps", p->accumulation));
}

/* What of a block runs again. */
static const char *recomputed(const struct plan *p)
{
    static const char *const of[NRECOMPUTE] = {
        [RECOMPUTE_SELECTIVE] = "attention", [RECOMPUTE_MODULES] = "the modules", [RECOMPUTE_OP] = "all but the costly operators",
    };

    return p->recompute == RECOMPUTE_SELECTIVE && p->megatron.recompute_modules[0] ? p->megatron.recompute_modules : of[p->recompute];
}

static int say_recompute(const struct plan *p, char *to, size_t size)
{
    const char *how = p->recompute == RECOMPUTE_OFFLOAD ? ", their inputs kept in host memory"
                    : p->recompute == RECOMPUTE_REENTRANT ? " (reentrant checkpoints)" : "";
    const char *what = recomputed(p);
    char nth[24], of[64];

    if (p->recompute == RECOMPUTE_FULL && p->dialect == DIALECT_MEGATRON && p->megatron.recompute_num_layers > 0)
        return snprintf(to, size, "the first %" PRId64 " block%s of each stage recomputed", p->megatron.recompute_num_layers,
                        p->megatron.recompute_num_layers == 1 ? "" : "s");
    ordinal(p->recompute_interval, nth, sizeof nth);
    snprintf(of, sizeof of, p->recompute_interval > 1 ? "every %s block" : "every block", nth);
    return what ? snprintf(to, size, "%s of %s recomputed%s", what, of, how) : snprintf(to, size, "%s recomputed%s", of, how);
}

/* Stages 1 and 2 of DeepSpeed take nvme for cpu: they have no folder of files. */
static int say_states(const struct plan *p, char *to, size_t size)
{
    static const char *const at[] = { "on the GPU", "in host memory", "on disk" };
    enum offload_device d = p->ds.offload_optimizer.device;
    static const char object[] = "deepspeed.offload_optimizer";

    if (d == OFFLOAD_NVME && knob_find(object, "pin_memory", knob_cell(p)) && !knob_find(object, "nvme_path", knob_cell(p)))
        d = OFFLOAD_CPU;
    return snprintf(to, size, "optimizer states %s", at[d]);
}

static int say_tensor(const struct plan *p, char *to, size_t size)
{
    return snprintf(to, size, "tensors cut over %" PRId64 " %s%s", p->parallel.tensor, gpu_word(p, p->parallel.tensor),
                    p->parallel.sequence ? " with sequence parallelism" : "");
}

static int say_context(const struct plan *p, char *to, size_t size)
{
    static const char *const how[] = { [CONTEXT_ALL_GATHER] = "by all-gather", [CONTEXT_RING] = "in a ring", [CONTEXT_ULYSSES] = "by Ulysses" };

    return snprintf(to, size, "each sample cut over %" PRId64 " %s %s", p->parallel.context, gpu_word(p, p->parallel.context),
                    how[p->parallel.context_method]);
}

static int say_pipeline(const struct plan *p, char *to, size_t size)
{
    static const char *const order[] = {
        [PIPELINE_GPIPE] = "GPipe", [PIPELINE_1F1B] = "1F1B", [PIPELINE_INTERLEAVED] = "interleaved 1F1B", [PIPELINE_LOOPED_BFS] = "looped breadth-first",
        [PIPELINE_ZB1P] = "zero-bubble", [PIPELINE_ZBV] = "zero-bubble V", [PIPELINE_DUALPIPEV] = "DualPipeV",
    };
    char chunks[40] = "", flushes[60] = "";

    if (p->parallel.pipeline_flushes > 1)
        snprintf(flushes, sizeof flushes, ", run %" PRId64 " times a step%s", p->parallel.pipeline_flushes,
                 p->parallel.pipeline_reduce_last ? ", reduced once" : "");
    if (p->parallel.virtual_stages > 1)
        snprintf(chunks, sizeof chunks, ", %" PRId64 " chunks a %s", p->parallel.virtual_stages, gpu_word(p, 1));
    return snprintf(to, size, "a pipeline of %" PRId64 " stages (%s%s%s)", p->parallel.pipeline, order[p->parallel.pipeline_schedule], chunks, flushes);
}

static int say_expert(const struct plan *p, char *to, size_t size)
{
    char busy[48] = "";

    if (p->parallel.expert_imbalance > 1)
        snprintf(busy, sizeof busy, ", the busiest with %.3g times the mean", p->parallel.expert_imbalance);
    return snprintf(to, size, "experts shared out to %" PRId64 " %s%s", p->parallel.expert, gpu_word(p, p->parallel.expert), busy);
}

static int say_expert_tensor(const struct plan *p, char *to, size_t size)
{
    return p->parallel.expert_tensor == 1 ? snprintf(to, size, "each expert whole on its GPU")
                                          : snprintf(to, size, "each expert cut over %" PRId64 " %s", p->parallel.expert_tensor, gpu_word(p, 2));
}

static int say_train(const struct plan *p, char *to, size_t size)
{
    return training_is_lora(&p->train) ? snprintf(to, size, "LoRA of rank %" PRId64, p->train.rank)
                                       : snprintf(to, size, "training only %s", p->train.what);
}

static int say_reshard(const struct plan *p, char *to, size_t size)
{
    int64_t k = p->fsdp.reshard_after_forward;

    return k == 0 ? snprintf(to, size, "parameters stay gathered after forward")
         : k == 1 ? snprintf(to, size, "parameters are freed after forward")
                  : snprintf(to, size, "after forward parameters stay shared by %" PRId64 " %s", k, gpu_word(p, k));
}

static int say_sharding(const struct plan *p, char *to, size_t size)
{
    return p->fsdp.sharding_strategy == FSDP1_NO_SHARD ? snprintf(to, size, "nothing is sharded (NO_SHARD)")
         : snprintf(to, size, "parameters stay gathered after forward (%s)",
                    p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD_ZERO2 ? "_HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP");
}

static int say_overlap(const struct plan *p, char *to, size_t size)
{
    return snprintf(to, size, p->ds.overlap_comm ? "gradients reduced during backward" : "collectives not beside compute (overlap_comm false)");
}

static int say_unit(const struct plan *p, char *to, size_t size)
{
    static const char *const of[] = {
        [UNIT_MODEL] = "the whole model", [UNIT_BLOCK] = "one block", [UNIT_HALF_BLOCK] = "half a block", [UNIT_TENSOR] = "one tensor",
        [UNIT_MODULE] = "one module",
    };

    return p->unit == UNIT_BLOCKS ? snprintf(to, size, "%" PRId64 " blocks gathered at a time", p->unit_blocks)
                                  : snprintf(to, size, "%s gathered at a time", of[p->unit]);
}

/* 0: PyTorch's own number of threads, shared out. */
static int say_threads(const struct plan *p, char *to, size_t size)
{
    return p->host_threads == 0 ? snprintf(to, size, "a rank's share of the cores for the optimizer")
                                : snprintf(to, size, "%" PRId64 " host thread%s for the optimizer", p->host_threads, p->host_threads == 1 ? "" : "s");
}

static int say_form(const struct plan *p, char *to, size_t size)
{
    static const char *const of[] = { [OPTIMIZER_FOREACH] = "foreach", [OPTIMIZER_FUSED] = "fused", [OPTIMIZER_LOOP] = "for-loop" };

    return snprintf(to, size, p->optimizer == OPTIMIZER_ADAMW ? "%s AdamW" : "%s optimizer kernels", of[p->optimizer_form]);
}

static int say_graphs(const struct plan *p, char *to, size_t size)
{
    return snprintf(to, size, "CUDA graphs by %s", p->megatron.cuda_graph_impl == GRAPHS_LOCAL ? "Megatron-core" : "Transformer Engine");
}

static int say_bucket(int64_t elements, char *to, size_t size) { return snprintf(to, size, "buckets of %s elements", count_text(elements).s); }
static int say_megatron_bucket(const struct plan *p, char *to, size_t size) { return say_bucket(p->megatron.ddp_bucket_size, to, size); }
static int say_deepspeed_bucket(const struct plan *p, char *to, size_t size) { return say_bucket(p->ds.reduce_bucket_size, to, size); }

static int say_reuse(const struct plan *p, char *to, size_t size)
{
    int64_t n = p->ds.stage3_max_reuse_distance;

    return n == 0 ? snprintf(to, size, "parameters freed at once")
                  : snprintf(to, size, "parameters kept that are used again within %s elements", count_text(n).s);
}

static int say_hook(const struct plan *p, char *to, size_t size) { return snprintf(to, size, "%s", comm_hook(p->ddp.comm_hook)->said); }

static int say_alloc_conf(const struct plan *p, char *to, size_t size) { return snprintf(to, size, "PyTorch's allocator with %s", p->environment.alloc_conf); }

static int say_optimizer(const struct plan *p, char *to, size_t size)
{
    return snprintf(to, size, "%s", optimizer_traits(p->optimizer)->words);
}

static int say_parts(const struct plan *p, char *to, size_t size)
{
    return snprintf(to, size, "adapters of %s alone in the layer that is q, k and v", knob_find("lora", "qkv_parts", knob_cell(p))->words[p->train.qkv_parts]);
}

/* ---- the table ---- */

static const char *const losses[] = {
    "loss in fp32", "loss in 16 bits", "flash-attn's loss kernel", "compiled loss", "loss in chunks", "loss without logits (fused-linear)",
    "Liger-Kernel's loss", "Apple's cut cross-entropy",
    "head and loss in chunks", "flash-attn's loss kernel in place", "flash-attn's loss kernel, and the logits' entropy",
    "verl's loss of 512 rows at a time", "verl's loss kernel without logits", "TRL's loss of tiles of logits",
    "flash-attn's loss kernel, and the logits' entropy by single operations",
    "NeMo-RL's loss of logits in fp32", "NeMo-RL's loss of logits in 16 bits", "flash-attn's loss kernel of logits in fp32",
};
_Static_assert(sizeof losses / sizeof *losses == NLOSS, "each loss has words");
static const char *const kept[] = { "", "logits kept through backward", "logits kept in fp32 through backward", "logits and their shifted copy kept through backward" };
static const char *const until[] = { "", "freed when backward ends" };
static const char *const bases[] = {
    "", "frozen weights in 4 bits (NF4)", "frozen weights in 4 bits (NF4, double quantization)", "frozen weights in 8 bits",
    "frozen weights in 8 bits (torchao)", "frozen weights in 4 bits (torchao)", "frozen weights in 4 bits (torchao, tiled)",
    "frozen weights in 4 bits (torchao's NF4)",
};
_Static_assert(sizeof bases / sizeof *bases == NBASE, "each base has words");
static const char *const float8[] = { "", "8-bit floats in linear layers, one scale a tensor", "8-bit floats in linear layers, one scale a row",
                                      "8-bit floats in linear layers but weights' gradients" };
static const char *const fakes[] = { "", "trained for 4-bit weights and 8-bit activations (fake quantisation)",
                                     "trained for 4-bit weights and 8-bit activations (fake quantisation, MSLK)" };
_Static_assert(sizeof fakes / sizeof *fakes == NQAT, "each rounding has words");
static const char *const activations[] = { "", "activations on the host (save_on_cpu)", "activations in pinned host memory (save_on_cpu)",
                                           "activations copied to the host beside compute" };
static const char *const formats[] = { "", "8-bit floats in linear layers (e4m3)", "8-bit floats in linear layers (hybrid)" };
static const char *const scales[] = { "scaled by earlier steps", "scaled by tensor", "scaled by blocks of 128", "scaled by 32 numbers (mxfp8)" };
static const char *const roots[] = { "", "the embedding, and norm with head, units of their own", "the embedding a unit of its own",
                                     "the embedding and the head units of their own" };
static const char *const fours[] = { "", "4-bit floats in linear layers" };
static const char *const attentions[] = { "", "flash-attn 2", "flash-attn 3", "flash-attn 4" };
static const char *const backends[] = { "", "flash-attn's attention", "cuDNN's attention", "attention by single products" };
static const char *const parameters[] = { "parameters on the GPU", "parameters in host memory", "parameters on disk" };
static const char *const partitions[] = { "", "stages of as many layers", "stages of as many blocks" };
static const char *const mains[] = { "fp32 master weights", "fp16 master weights" };
static const char *const adam_mean[] = { "Adam's mean in fp32", "Adam's mean in bf16", "Adam's mean in fp16", "Adam's mean in fp8" };
static const char *const nvls[] = { "NVLink SHARP where it is there", "NVLink SHARP required", "no NVLink SHARP" };
static const char *const adam_square[] = { "Adam's squares in fp32", "Adam's squares in bf16", "Adam's squares in fp16", "Adam's squares in fp8" };

struct part {
    const char *object, *name;
    bool        core;                   /* plan_words(), else plan_words_settings() */
    const char *format;                 /* with %g for the value; "": another row says it */
    const char *const *of;              /* or the words of each value */
    int       (*say)(const struct plan *p, char *to, size_t size);
};

#define SAID ""

static const struct part parts[] = {
    { "parallel", "tensor", true, .say = say_tensor },
    { "parallel", "sequence", true, .format = SAID },
    { "parallel", "inputs_apart", true, .format = "inputs of layers apart" },
    { "parallel", "context", true, .say = say_context },
    { "parallel", "context_method", true, .format = SAID },
    { "parallel", "pipeline", true, .say = say_pipeline },
    { "parallel", "pipeline_schedule", true, .format = SAID },
    { "parallel", "virtual_stages", true, .format = SAID },
    { "parallel", "pipeline_flushes", true, .format = SAID },
    { "parallel", "pipeline_reduce_last", true, .format = SAID },
    { "parallel", "expert", true, .say = say_expert },
    { "parallel", "expert_imbalance", true, .format = SAID },
    { "", "shard_group", true, .format = "sharded in groups of %g" },
    { "", NULL, true, .say = say_batch },
    { "", "recompute", true, .say = say_recompute },
    { "", "recompute_interval", true, .format = SAID },
    { "megatron", "recompute_num_layers", true, .format = SAID },
    { "", "train", true, .say = say_train },
    { "", "base_dtype", true, .of = bases },
    { "", "optimizer", true, .say = say_optimizer },
    { "", "fp8", true, .of = float8 },
    { "megatron", "fp8_format", true, .of = formats },
    { "megatron", "fp4_format", true, .of = fours },
    { "", "qat", true, .of = fakes },
    { "", "activation_offload", true, .of = activations },
    { "fsdp", "cpu_offload", true, .format = "parameters and optimizer states in host memory" },
    { "fsdp", "keeps_last_unit", true, .format = "last unit kept after forward" },
    { "fsdp", "ignores_experts", true, .format = "experts outside of FSDP's units" },
    { "fsdp", "grouped_experts", true, .format = "torchtitan's experts" },
    { "fsdp", "reads_positions", true, .format = "positions read back one by one" },
    { "fsdp", "optimizer_offload", true, .format = "optimizer states in host memory between steps" },
    { "deepspeed.offload_optimizer", "device", true, .say = say_states },
    { "deepspeed.offload_param", "device", true, .of = parameters },

    { "", "compile_mode", false, .format = "CUDA graphs (torch.compile reduce-overhead)" },
    { "", "attention", false, .of = attentions },
    { "", "optimizer_form", false, .say = say_form },
    { "", "loss", false, .of = losses },
    { "megatron", "logprob_chunk_size", false, .format = "log-probabilities of %g positions at once" },
    { "", "logits_kept", false, .of = kept },
    { "", "logits_until", false, .of = until },
    { "liger", "rope", false, .format = "Liger rotary embedding" },
    { "liger", "rms_norm", false, .format = "Liger norms" },
    { "liger", "glu_activation", false, .format = "Liger SwiGLU" },
    { "", "unit", false, .say = say_unit },
    { "", "sync_every_micro_step", false, .format = "gradients reduced once a step" },
    { "", "host_threads", false, .say = say_threads },
    { "lora", "autocast_adapter_dtype", false, .format = "adapters in fp32" },
    { "lora", "dropout_position", false, .format = "dropout on what adapters add" },
    { "lora", "a2a_experimental", false, .format = "adapters exchange columns for positions" },
    { "lora", "qkv_parts", false, .say = say_parts },
    { "lora", "use_dora", false, .format = "DoRA" },
    { "", "base_head", false, .format = "head in 4 bits" },
    { "lora", "narrow", false, .format = "adapters in 16 bits" },
    { "parallel", "loss_parallel", false, .format = "whole logits for the loss" },
    { "parallel", "async_tensor", false, .format = "products overlap their collectives" },
    { "parallel", "context_balance", false, .format = "positions not balanced over ranks" },
    { "parallel", "first_stage_less_layers", false, .format = "blocks fewer in the first stage: %g" },
    { "parallel", "last_stage_less_layers", false, .format = "blocks fewer in the last stage: %g" },
    { "parallel", "expert_tensor", false, .say = say_expert_tensor },
    { "ddp", "bucket_cap_mb", false, .format = "buckets of %g MiB" },
    { "ddp", "gradient_as_bucket_view", false, .format = "gradients are views of buckets" },
    { "ddp", "wrapped", true, .format = SAID },
    { "ddp", "optimizer_in_backward", true, .format = "each weight updated as its gradient is made" },
    { "ddp", "comm_hook", true, .say = say_hook },
    { "ddp.PowerSGDState", "matrix_approximation_rank", true, .format = "PowerSGD's rank %g" },
    { "fsdp", "reshard_after_forward", false, .say = say_reshard },
    { "fsdp", "root_units", false, .of = roots },
    { "fsdp", "wrap_adapters", false, .format = "each adapter a unit" },
    { "fsdp", "enable_fsdp_float8_all_gather", false, .format = "weights gathered in 8 bits" },
    { "fsdp", "precompute_float8_dynamic_scale_for_fsdp", false, .format = "scales computed once a step" },
    { "fsdp", "sharding_strategy", false, .say = say_sharding },
    { "fsdp", "backward_prefetch", false, .format = "no prefetch in backward" },
    { "fsdp", "forward_prefetch", false, .format = "prefetch in forward" },
    { "megatron", "overlap_grad_reduce", false, .format = "gradients reduced during backward" },
    { "megatron", "overlap_param_gather", false, .format = "parameters gathered during forward" },
    { "megatron", "ddp_bucket_size", false, .say = say_megatron_bucket },
    { "megatron", "tp_comm_overlap", false, .format = "products overlap their collectives (tp_comm_overlap)" },
    { "megatron", "attention_backend", false, .of = backends },
    { "megatron", "defer_embedding_wgrad_compute", false, .format = "the head's weight gradients behind the last backward" },
    { "megatron", "wgrad_deferral_limit", false, .format = "of %g micro-batches" },
    { "megatron", "fp8_recipe", false, .of = scales },
    { "megatron", "fp8_param_gather", false, .format = "weights kept and gathered in 8 bits" },
    { "megatron", "first_last_layers_bf16", false, .format = "first and last layers in bf16" },
    { "megatron", "hierarchical_a2a_ranks", false, .format = "heads exchanged among %g" },
    { "megatron", "moe_expert_capacity_factor", false, .format = "experts take %g times the mean at most" },
    { "megatron", "moe_pad_expert_input_to_capacity", false, .format = "experts' inputs padded" },
    { "megatron", "moe_permute_fusion", false, .format = "permutation of rows fused" },
    { "megatron", "moe_router_padding_for_quantization", false, .format = "routers pad for 8 bits" },
    { "megatron", "mtp_num_layers", false, .format = "%g multi-token prediction layers" },
    { "megatron", "cuda_graph_impl", false, .say = say_graphs },
    { "megatron", "use_precision_aware_optimizer", false, .format = "precision-aware optimizer" },
    { "megatron", "main_params_dtype", false, .of = mains },
    { "megatron", "exp_avg_dtype", false, .of = adam_mean },
    { "megatron", "exp_avg_sq_dtype", false, .of = adam_square },
    { "megatron", "pipeline_model_parallel_layout", false, .format = "uneven stages" },
    { "deepspeed", "reduce_bucket_size", false, .say = say_deepspeed_bucket },
    { "deepspeed", "overlap_comm", false, .say = say_overlap },
    { "deepspeed", "decay_groups", false, .format = "two parameter groups, with and without weight decay" },
    { "deepspeed", "stage3_max_reuse_distance", false, .say = say_reuse },
    { "deepspeed", "zero_hpz_partition_size", false, .format = "a second copy of the parameters in every %g (hpZ)" },
    { "deepspeed", "zero_quantized_weights", true, .format = "parameters gathered in int8 (ZeRO++)" },
    { "deepspeed", "zero_quantized_gradients", true, .format = "gradients reduced in int4 (ZeRO++)" },
    { "deepspeed", "zero_quantized_nontrainable_weights", false, .format = "frozen weights in int8" },
    { "deepspeed", "partition_method", false, .of = partitions },
    { "deepspeed", "moe_layer", false, .format = "DeepSpeed's MoE layers" },
    { "deepspeed", "moe_capacity_factor", false, .format = "experts take %g times the mean at most" },
    { "deepspeed", "moe_min_capacity", false, .format = "experts take %g rows at least" },
    { "deepspeed", "moe_drop_tokens", false, .format = "no token dropped" },
    { "deepspeed.offload_optimizer", "pin_memory", false, .format = "states not pinned" },
    { "deepspeed.offload_optimizer", "ratio", false, .format = "a share of %g of the states offloaded" },
    { "deepspeed.offload_optimizer", "buffer_count", false, .format = "%g host buffers" },
    { "deepspeed.offload_optimizer", "pipeline_read", false, .format = "reads during the step" },
    { "deepspeed.offload_optimizer", "pipeline_write", false, .format = "writes during the step" },
    { "deepspeed.offload_param", "pin_memory", false, .format = "parameters not pinned" },
    { "environment", "PYTORCH_ALLOC_CONF", false, .say = say_alloc_conf },
    { "environment", "NCCL_NVLS_ENABLE", false, .of = nvls },
};

static const struct part *part_of(const struct knob *k)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].name && !strcmp(parts[i].object, k->object) && !strcmp(parts[i].name, k->name))
            return &parts[i];
    return NULL;
}

bool plan_words_has(const struct knob *k) { return part_of(k) != NULL; }

/* As snprintf(); 0 where the label says nothing of it either. */
static int say(const struct plan *p, const struct part *part, char *to, size_t size)
{
    const struct knob *k = part->name ? knob_find(part->object, part->name, knob_cell(p)) : NULL;
    char label[KNOB_LABEL];

    if (part->name && (!k || knob_label_part(p, k, label, sizeof label) <= 0))
        return 0;
    if (part->say)
        return part->say(p, to, size);
    if (part->of)
        return snprintf(to, size, "%s", part->of[(int)knob_get(p, k)]);
    return snprintf(to, size, part->format, k ? knob_get(p, k) : 0);
}

/* Adds all parts that are core, or all that are not. */
static void list(const struct plan *p, bool core, char *to, size_t size)
{
    size_t at = strlen(to);

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char text[200] = "";
        if (parts[i].core == core && say(p, &parts[i], text, sizeof text) > 0 && text[0] && at < size)
            at += (size_t)snprintf(to + at, size - at, "%s%s", at ? ", " : "", text);
    }
}

void plan_words(const struct plan *p, char *to, size_t size)
{
    bool alone = knob_has(p, "ddp", "wrapped") && !p->ddp.wrapped;

    snprintf(to, size, "%s", alone ? "PyTorch without DDP" : plan_words_name(p->strategy, p->dialect));
    list(p, true, to, size);
}

void plan_words_settings(const struct plan *p, char *to, size_t size)
{
    to[0] = '\0';
    list(p, false, to, size);
}

void plan_words_into(json_t *doc, const struct plan *p)
{
    char words[PLAN_WORDS];

    plan_words(p, words, sizeof words);
    json_object_set_new(doc, "words", json_string(words));
}

/* ---- the legend ---- */

/* The label's code of a part, those of the parts behind it that it says among them; without the comma. */
static void code_of(const struct plan *p, size_t i, char *to, size_t size)
{
    char text[KNOB_LABEL] = "";
    size_t at = 0, more = i;

    if (!parts[i].name)
        at = (size_t)snprintf(text, sizeof text, "b%" PRId64 "x%" PRId64, p->micro_batch, p->accumulation);
    do {
        const struct knob *k = parts[more].name ? knob_find(parts[more].object, parts[more].name, knob_cell(p)) : NULL;
        at += k && at < sizeof text ? (size_t)knob_label_part(p, k, text + at, sizeof text - at) : 0;
        more++;
    } while (more < sizeof parts / sizeof *parts && parts[more].format && !parts[more].format[0]);
    snprintf(to, size, "%s", text + (text[0] == ',' ? 2 : strspn(text, " ")));
}

void plan_words_legend(const struct plan *const *plans, int64_t n, FILE *to)
{
    static const struct column columns[] = { { "", false, 0 }, { "", false, 0 } };
    struct columns *t = columns_new(columns, 2);
    struct kept { char code[KNOB_LABEL]; } *said = NULL;
    int64_t nsaid = 0, room = 0;

    for (size_t i = 0; i <= sizeof parts / sizeof *parts; i++)
        for (int64_t k = 0; k < n; k++) {
            char code[KNOB_LABEL], words[200] = "";
            bool known = false;
            if (i == 0) {
                snprintf(code, sizeof code, "%s %s", strategy_name(plans[k]->strategy), dialect_name(plans[k]->dialect));
                snprintf(words, sizeof words, "%s", plan_words_name(plans[k]->strategy, plans[k]->dialect));
            } else {
                if (say(plans[k], &parts[i - 1], words, sizeof words) <= 0 || !words[0])
                    continue;
                code_of(plans[k], i - 1, code, sizeof code);
                if (!parts[i - 1].name)
                    snprintf(words, sizeof words, "micro-batches of %" PRId64 " sample%s, %" PRId64 " of them a step", plans[k]->micro_batch,
                             plans[k]->micro_batch == 1 ? "" : "s", plans[k]->accumulation);
            }
            for (int64_t s = 0; s < nsaid && !known; s++)
                known = !strcmp(said[s].code, code);
            if (known)
                continue;
            said = room_for(said, nsaid, &room, sizeof *said);
            snprintf(said[nsaid++].code, sizeof said->code, "%s", code);
            columns_cell(t, "%s", code);
            columns_cell(t, "%s", words);
        }
    free(said);
    columns_print(t, to, page_width(to));
    for (int64_t k = 0; k < n; k++)
        if (plans[k]->megatron.pipeline_layout[0] && plans[k]->parallel.pipeline > 1) {
            fprintf(to, "  In a layout E is the embedding, t a block, m a prediction layer, L the head; | ends a stage, *3 is three times.\n");
            break;
        }
}
