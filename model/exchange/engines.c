/* engines.c -- what an engine does of a plan.
 *
 * A list of what is followed, not of what is refused: a key of plan.json or an option of Megatron-LM that a runner does not know of is
 * refused by its name as soon as a plan gives it another value than its default. */
#include "model/exchange/engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/training.h"
#include "model/exchange/accelerate.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/export.h"
#include "model/exchange/megatron_import.h"
#include "model/family/family.h"
#include "model/plan/knob.h"
#include "model/plan/plan_groups.h"

const char *const engine_words[NENGINE + 1] = { "own", "torch", "deepspeed", "accelerate", "torchtitan", "megatron", NULL };

const char *engine_name(enum engine e) { return engine_words[e]; }

/* ---- keys ---- */

static const char *const both[] = { "seq", "micro_batch", "accumulation", "kernels", "precision", "reduce_dtype", "optimizer_form", "clip", "recompute",
                                    "sync_every_micro_step", "framework_version", "train", "lora.rank", "lora.alpha", "lora.dropout",
                                    "lora.target_modules", NULL };
static const char *const torch[] = { "unit", "shard_group", "recompute_interval", "parallel.tensor", "parallel.pipeline", "parallel.pipeline_schedule",
                                     "parallel.sequence", "parallel.loss_parallel", "parallel.first_stage_less_layers", "parallel.last_stage_less_layers",
                                     "ddp.bucket_cap_mb", "ddp.gradient_as_bucket_view", "ddp.static_graph", "ddp.find_unused_parameters",
                                     "ddp.broadcast_buffers", "ddp.parameters_as_bucket_view", "ddp.model_dtype", "fsdp.reshard_after_forward",
                                     "fsdp.root_reshard_after_forward", "fsdp.root_units", "fsdp.keeps_last_unit", "fsdp.backward_prefetch", "fsdp.forward_prefetch", "fsdp.limit_all_gathers",
                                     "fsdp.use_orig_params", "fsdp.sharding_strategy", "fsdp.model_dtype", "fsdp.wrap_adapters", "base_dtype", "fp8", "fp8_filter",
                                     "fsdp.enable_fsdp_float8_all_gather", "fsdp.precompute_float8_dynamic_scale_for_fsdp", NULL };
/* What `dpxplan export --to deepspeed` writes. */
static const char *const deepspeed[] = { "deepspeed.reduce_bucket_size", "deepspeed.allgather_bucket_size", "deepspeed.overlap_comm", "deepspeed.reduce_scatter",
                                         "deepspeed.use_multi_rank_bucket_allreduce", "deepspeed.contiguous_gradients", "deepspeed.round_robin_gradients",
                                         "deepspeed.sub_group_size", "deepspeed.stage3_prefetch_bucket_size", "deepspeed.stage3_param_persistence_threshold",
                                         "deepspeed.stage3_model_persistence_threshold", "deepspeed.stage3_max_live_parameters",
                                         "deepspeed.stage3_max_reuse_distance", "deepspeed.stage3_use_all_reduce_for_fetch_params",
                                         "deepspeed.stage3_allgather_sequential", "deepspeed.grad_accum_dtype", "deepspeed.communication_data_type",
                                         "deepspeed.offload_optimizer.device", "deepspeed.offload_optimizer.pin_memory", "deepspeed.offload_optimizer.ratio",
                                         "deepspeed.offload_param.device", "deepspeed.offload_param.pin_memory", "deepspeed.zero_hpz_partition_size",
                                         "deepspeed.zero_quantized_weights", "deepspeed.zero_quantized_gradients", NULL };
/* What `dpxplan export --to accelerate` writes; the rest is the script's. */
static const char *const accelerate[] = { "unit", "shard_group", "fsdp.reshard_after_forward", "fsdp.root_reshard_after_forward", "fsdp.root_units", "fsdp.backward_prefetch",
                                          "fsdp.forward_prefetch", "fsdp.use_orig_params", "fsdp.sharding_strategy", "fsdp.model_dtype", NULL };
/* What `dpxplan export --to torchtitan` writes. */
static const char *const torchtitan[] = { "unit", "shard_group", "parallel.tensor", "parallel.sequence", "parallel.loss_parallel", "fsdp.reshard_after_forward",
                                          "fsdp.root_reshard_after_forward", "fsdp.root_units", NULL };
/* Of the options that `dpxplan export --to megatron` writes. */
static const char *const megatron[] = {
    "--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--num-query-groups", "--kv-channels",
    "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--recompute-num-layers",
    "--microbatch-group-size-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--norm-epsilon",
    "--hidden-dropout", "--attention-dropout", "--normalization", "--recompute-granularity", "--recompute-method",
    "--sequence-parallel", "--bf16", "--swiglu", "--qk-layernorm", "--add-qkv-bias", "--disable-bias-linear",
    "--calculate-per-token-loss", "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split", "--vocab-size",
    "--max-position-embeddings", "--make-vocab-size-divisible-by", "--position-embedding-type", "--rotary-base", "--use-rope-scaling",
    "--untie-embeddings-and-output-weights", "--seq-length", "--micro-batch-size", "--global-batch-size", "--transformer-impl",
    "--clip-grad", "--group-query-attention", "--use-distributed-optimizer", "--ddp-bucket-size", "--ddp-average-in-collective",
    "--ddp-pad-buckets-for-high-nccl-busbw", "--overlap-grad-reduce", "--overlap-param-gather", "--no-check-for-nan-in-loss-and-grad",
    "--no-gradient-accumulation-fusion", "--no-bias-swiglu-fusion", "--no-overlap-p2p-communication", "--grad-reduce-in-bf16",
    "--recompute-modules", "--pipeline-model-parallel-layout", "--init-method-std", NULL
};
static const char *const *const followed[NENGINE] = { [ENGINE_TORCH] = torch, [ENGINE_DEEPSPEED] = deepspeed, [ENGINE_ACCELERATE] = accelerate,
                                                 [ENGINE_TORCHTITAN] = torchtitan };

static bool listed(const char *const *list, const char *key)
{
    for (int i = 0; list[i]; i++)
        if (!strcmp(list[i], key))
            return true;
    return false;
}

static int keys_are_followed(enum engine e, const struct plan *p)
{
    const struct knob *k;
    char key[128];

    for (int i = 0; (k = knob_at(i)) != NULL; i++) {
        if (!(k->cells & knob_cell(p)) || knob_get(p, k) == knob_default(p, k))
            continue;
        snprintf(key, sizeof key, "%s%s%s", k->object, k->object[0] ? "." : "", k->name);
        if (!listed(both, key) && !listed(followed[e], key))
            return fail("--engine %s: does not follow \"%s\" of the plan yet: leave it at its default", engine_name(e), key);
    }
    return 0;
}

/* ---- values of keys that are followed ---- */

static int refuse(enum engine e, const char *what, const char *instead)
{
    return fail("--engine %s: does not run %s: %s", engine_name(e), what, instead);
}

static int values_are_followed(enum engine e, const struct plan *p)
{
    if (p->kernels != KERNELS_TORCH_EAGER && p->kernels != KERNELS_TORCH_SDPA && (p->kernels != KERNELS_TORCH_COMPILE || e != ENGINE_TORCH))
        return refuse(e, kernels_name(p->kernels), "\"kernels\" of a plan for an engine are torch-eager, torch-sdpa or, of torch, torch-compile");
    if (p->optimizer != OPTIMIZER_ADAMW)
        return refuse(e, "this optimizer yet", "\"optimizer\" must be adamw");
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL && (p->recompute != RECOMPUTE_OP || e != ENGINE_TORCH))
        return refuse(e, "this \"recompute\" yet", "none, full and, of torch, op are followed");
    if (p->fsdp.reads_positions)
        return refuse(e, "loops that read positions back", "\"fsdp.reads_positions\" must be false");
    if (p->fsdp.grouped_experts)
        return refuse(e, "torchtitan's experts", "\"fsdp.grouped_experts\" must be false");
    if (p->attention != ATTENTION_BY_SDPA)
        return refuse(e, "flash-attn's attention", "\"attention\" must be sdpa");
    if (p->logits_kept != LOGITS_DROPPED)
        return refuse(e, "loops that keep logits", "\"logits_kept\" must be none");
    if (p->precision == DT_FP16)
        return refuse(e, "fp16 yet", "\"precision\" must be fp32 or bf16");
    if (!training_is_all(&p->train) && !training_is_lora(&p->train))
        return refuse(e, "a list of tensors that train yet", "\"train\" must be all or lora");
    if (p->train.modules_to_save[0] || p->train.target_parameters[0])
        return refuse(e, "lora.modules_to_save and lora.target_parameters yet", "leave them out");
    if (p->model.head != HEAD_LOGITS)
        return refuse(e, "a head of one number yet", "a model with logits is run");
    if (p->model.mtp > 0)
        return refuse(e, "multi-token prediction", "transformers computes none");
    return 0;
}

static int torch_follows(const struct plan *p)
{
    bool axes = p->parallel.tensor > 1 || p->parallel.pipeline > 1;

    if (p->dialect != DIALECT_TORCH && p->dialect != DIALECT_TORCH_FSDP1)
        return fail("--engine torch: the plan is in dialect %s: --engine torch runs torch and torch-fsdp1%s", dialect_name(p->dialect),
                    p->dialect == DIALECT_DEEPSPEED ? ", --engine deepspeed runs this one" : "");
    if (p->strategy == STRAT_DP)
        return refuse(ENGINE_TORCH, "DataParallel", "it has one process for all GPUs; \"ddp\" is run");
    if (p->strategy == STRAT_FSDP && p->unit != UNIT_MODEL && p->unit != UNIT_BLOCKS && p->unit != UNIT_BLOCK)
        return refuse(ENGINE_TORCH, "this \"unit\" yet", "model, block and <n> blocks are followed");
    if (axes && !family_for(&p->model)->engine_axes)
        return refuse(ENGINE_TORCH, "tensor and pipeline parallelism of this family", "llama, qwen2, qwen3 and mistral are cut by torch's own API");
    if (p->kernels == KERNELS_TORCH_COMPILE && (axes || p->model.experts > 0 || p->dialect != DIALECT_TORCH || p->strategy != STRAT_FSDP))
        return refuse(ENGINE_TORCH, "torch-compile here yet", "FSDP2 of dense models runs compiled, without tensor and pipeline parallelism");
    if (p->parallel.tensor > 1 && p->parallel.pipeline > 1)
        return refuse(ENGINE_TORCH, "stages whose tensors are cut yet", "parallel.tensor or parallel.pipeline must be 1");
    if (p->dialect == DIALECT_TORCH_FSDP1 && training_is_lora(&p->train) && p->fsdp.wrap_adapters)
        return refuse(ENGINE_TORCH, "adapters that are units of their own yet", "\"fsdp.wrap_adapters\" must be false");
    if (p->train.base != BASE_PLAIN && p->train.base != BASE_NF4 && p->train.base != BASE_NF4_DOUBLE)
        return refuse(ENGINE_TORCH, "this \"base_dtype\" yet", "nf4 and nf4-double are followed");
    if (p->train.base != BASE_PLAIN && p->strategy != STRAT_DDP)
        return refuse(ENGINE_TORCH, "frozen weights in 4 bits under FSDP yet", "under ddp they are followed");
    if (p->parallel.async_tensor)
        return refuse(ENGINE_TORCH, "\"parallel.async_tensor\" yet", "it must be false");
    if (p->parallel.pipeline > 1 && p->parallel.pipeline_schedule != PIPELINE_GPIPE && p->parallel.pipeline_schedule != PIPELINE_1F1B)
        return refuse(ENGINE_TORCH, "this \"pipeline_schedule\" yet", "gpipe and 1f1b are followed");
    return 0;
}

static int deepspeed_follows(const struct plan *p)
{
    if (p->dialect != DIALECT_DEEPSPEED)
        return fail("--engine deepspeed: the plan is in dialect %s: --engine %s runs that", dialect_name(p->dialect),
                    p->dialect == DIALECT_MEGATRON ? "megatron" : "torch");
    if (p->ds.offload_optimizer.device == OFFLOAD_NVME || p->ds.offload_param.device == OFFLOAD_NVME)
        return refuse(ENGINE_DEEPSPEED, "states or parameters on a disk yet", "\"device\": \"cpu\" is followed");
    return 0;
}

/* What its configuration says, engine_config() refuses where it cannot. */
static int accelerate_follows(const struct plan *p)
{
    if (p->dialect == DIALECT_DEEPSPEED && p->strategy == STRAT_DDP)
        return refuse(ENGINE_ACCELERATE, "DeepSpeed's stage 0", "zero1, zero2 and zero3 are followed");
    if (p->kernels == KERNELS_TORCH_COMPILE)
        return refuse(ENGINE_ACCELERATE, "torch-compile", "its configuration compiles whole models: --engine torch compiles blocks");
    if (p->strategy == STRAT_FSDP && training_is_lora(&p->train))
        return refuse(ENGINE_ACCELERATE, "adapters under FSDP yet", "--engine torch runs them");
    return 0;
}

/* What its options say, engine_config() refuses where it cannot. */
static int torchtitan_follows(const struct plan *p)
{
    enum engine e = ENGINE_TORCHTITAN;

    if (p->dialect != DIALECT_TORCH || p->strategy != STRAT_FSDP)
        return refuse(e, "this dialect or strategy", "it has FSDP2: \"fsdp\" of dialect torch");
    if (!family_for(&p->model)->engine_titan || p->model.rope_scaling || p->model.qkv_bias || p->model.out_bias || p->model.mlp_bias ||
        p->model.attn_dropout > 0)
        return refuse(e, "this model yet", "llama is followed, without scaled positions, biases and dropout");
    if (p->kernels != KERNELS_TORCH_SDPA)
        return refuse(e, kernels_name(p->kernels), "\"kernels\" must be torch-sdpa");
    if (p->clip <= 0)
        return refuse(e, "a step without the norm of gradients", "it computes one always: \"clip\" must be a number");
    if (p->model.tied)
        return refuse(e, "a tied head yet", "torchtitan 0.3 gathers it beside the embedding, as no plan does: \"tie_word_embeddings\" must be false");
    if (!training_is_all(&p->train))
        return refuse(e, "adapters yet", "--engine torch runs them");
    if (p->unit != UNIT_BLOCK || p->parallel.pipeline > 1)
        return refuse(e, "this \"unit\" or a pipeline yet", "\"unit\" must be block, parallel.pipeline 1");
    return 0;
}

/* Its options say all of the plan: options_are_followed(). */
static int megatron_follows(const struct plan *p)
{
    if (p->dialect != DIALECT_MEGATRON)
        return fail("--engine megatron: the plan is in dialect %s: --engine %s runs that", dialect_name(p->dialect),
                    p->dialect == DIALECT_DEEPSPEED ? "deepspeed" : "torch");
    if (!family_for(&p->model)->engine_axes || p->model.experts > 0)
        return refuse(ENGINE_MEGATRON, "this family yet", "llama, qwen2, qwen3 and mistral are followed");
    return 0;
}

/* Of each engine. */
static int (*const follows[NENGINE])(const struct plan *) = { [ENGINE_TORCH] = torch_follows, [ENGINE_DEEPSPEED] = deepspeed_follows,
                                                              [ENGINE_ACCELERATE] = accelerate_follows, [ENGINE_TORCHTITAN] = torchtitan_follows, [ENGINE_MEGATRON] = megatron_follows };

static int device_runs_it(enum engine e, const struct plan *p, bool cuda)
{
    if (!cuda && e == ENGINE_DEEPSPEED && (p->ds.zero_quantized_weights || p->ds.zero_quantized_gradients))
        return refuse(e, "ZeRO++'s codes on the CPU", "its quantizer is CUDA: --device cuda");
    if (cuda || e != ENGINE_MEGATRON)
        return 0;
    if (p->kernels == KERNELS_TE)
        return refuse(e, "Transformer Engine on the CPU", "its kernels are CUDA: \"kernels\": \"megatron-local\", or --device cuda");
    if (p->megatron.gradient_accumulation_fusion)
        return refuse(e, "fused accumulation of gradients on the CPU", "it is a CUDA kernel: \"megatron\": { \"gradient_accumulation_fusion\": false }");
    return 0;
}

/* ---- configurations ---- */

/* The lines of an export as an array, without its remarks. */
static json_t *lines_of(const struct plan *p, int export(const struct plan *p, FILE *to))
{
    char *text = NULL, *rest = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    int rc = to ? export(p, to) : fail("out of memory");
    json_t *out = NULL;

    if (to)
        fclose(to);
    if (rc == 0)
        out = json_array();
    for (char *line = out ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
        if (*line != '#')
            json_array_append_new(out, json_string(line));
    free(text);
    return out;
}

json_t *engine_config(enum engine e, const struct plan *p)
{
    switch (e) {
    case ENGINE_DEEPSPEED:
        return ds_config_export(p);
    case ENGINE_ACCELERATE:
        return accelerate_export(p);
    case ENGINE_TORCHTITAN:
        return lines_of(p, export_torchtitan);
    case ENGINE_MEGATRON:
        return lines_of(p, megatron_export);
    default:
        return json_null();
    }
}

/* Of Megatron-LM: "--swiglu", "--num-layers 32". */
static int options_are_followed(const json_t *config)
{
    char name[128];
    const json_t *line;
    size_t i;

    json_array_foreach(config, i, line) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(json_string_value(line), " "), json_string_value(line));
        if (!listed(megatron, name))
            return fail("--engine megatron: does not follow %s of the exported options yet: leave it at its default", name);
    }
    return 0;
}

/* The configuration, where its export has nothing to note that it cannot say. */
static json_t *said_in_full(enum engine e, const struct plan *p)
{
    json_t *notes = json_array(), *before = notes_divert(notes), *config = engine_config(e, p);

    notes_divert(before);
    if (config && json_array_size(notes) > 0) {
        const char *first = json_string_value(json_array_get(notes, 0));
        fail("--engine %s: %s", engine_name(e), !strncmp(first, "dpx: ", 5) ? first + 5 : first);
        json_decref(config);
        config = NULL;
    }
    json_decref(notes);
    return config;
}

int engine_follows(enum engine e, const struct plan *p, bool cuda)
{
    if (follows[e](p) < 0 || device_runs_it(e, p, cuda) < 0 || (e != ENGINE_MEGATRON && (values_are_followed(e, p) < 0 || keys_are_followed(e, p) < 0)))
        return -1;
    json_t *config = said_in_full(e, p);
    int rc = !config ? -1 : e == ENGINE_MEGATRON ? options_are_followed(config) : 0;
    json_decref(config);
    return rc;
}
