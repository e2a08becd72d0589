/* engine_follow.c -- what an engine does of a plan.
 *
 * A list of what is followed, not of what is refused: a key of plan.json that a runner does not know of is refused by its name as
 * soon as a plan gives it another value than its default. */
#include "exec/engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/knob.h"
#include "model/plan/plan_groups.h"

const char *const engine_words[NENGINE + 1] = { "own", "torch", "deepspeed", "accelerate", "torchtitan", "megatron", NULL };

const char *engine_name(enum engine e) { return engine_words[e]; }

/* ---- keys ---- */

static const char *const both[] = { "seq", "micro_batch", "accumulation", "kernels", "precision", "reduce_dtype", "optimizer_form", "clip", "recompute",
                                    "sync_every_micro_step", "framework_version", "train", "lora.rank", "lora.alpha", "lora.dropout",
                                    "lora.target_modules", NULL };
static const char *const torch[] = { "unit", "shard_group", "parallel.tensor", "parallel.pipeline", "parallel.pipeline_schedule", "parallel.sequence", "parallel.loss_parallel", "parallel.first_stage_less_layers", "parallel.last_stage_less_layers",
                                     "ddp.bucket_cap_mb", "ddp.gradient_as_bucket_view", "ddp.static_graph", "ddp.find_unused_parameters",
                                     "ddp.broadcast_buffers", "ddp.parameters_as_bucket_view", "ddp.model_dtype", "fsdp.reshard_after_forward",
                                     "fsdp.root_reshard_after_forward", "fsdp.root_units", "fsdp.backward_prefetch", "fsdp.forward_prefetch", "fsdp.limit_all_gathers",
                                     "fsdp.use_orig_params", "fsdp.sharding_strategy", "fsdp.model_dtype", "fsdp.wrap_adapters", NULL };
/* What `dpxplan export --to deepspeed` writes. */
static const char *const deepspeed[] = { "deepspeed.reduce_bucket_size", "deepspeed.allgather_bucket_size", "deepspeed.overlap_comm", "deepspeed.reduce_scatter",
                                         "deepspeed.use_multi_rank_bucket_allreduce", "deepspeed.contiguous_gradients", "deepspeed.round_robin_gradients",
                                         "deepspeed.sub_group_size", "deepspeed.stage3_prefetch_bucket_size", "deepspeed.stage3_param_persistence_threshold",
                                         "deepspeed.stage3_model_persistence_threshold", "deepspeed.stage3_max_live_parameters",
                                         "deepspeed.stage3_max_reuse_distance", "deepspeed.stage3_use_all_reduce_for_fetch_params",
                                         "deepspeed.stage3_allgather_sequential", "deepspeed.grad_accum_dtype", "deepspeed.communication_data_type", NULL };
/* What `dpxplan export --to accelerate` writes; the rest is the script's. */
static const char *const accelerate[] = { "unit", "shard_group", "fsdp.reshard_after_forward", "fsdp.root_reshard_after_forward", "fsdp.root_units", "fsdp.backward_prefetch",
                                          "fsdp.forward_prefetch", "fsdp.use_orig_params", "fsdp.sharding_strategy", "fsdp.model_dtype", NULL };
static const char *const *const followed[NENGINE] = { [ENGINE_TORCH] = torch, [ENGINE_DEEPSPEED] = deepspeed, [ENGINE_ACCELERATE] = accelerate };

static bool listed(const char *const *list, const char *key)
{
    for (int i = 0; list[i]; i++)
        if (!strcmp(list[i], key))
            return true;
    return false;
}

static int keys_are_followed(const struct engine_job *j)
{
    const struct plan *p = j->plan;
    const struct knob *k;
    char key[128];

    for (int i = 0; (k = knob_at(i)) != NULL; i++) {
        if (!(k->cells & knob_cell(p)) || knob_get(p, k) == knob_default(p, k))
            continue;
        snprintf(key, sizeof key, "%s%s%s", k->object, k->object[0] ? "." : "", k->name);
        if (!listed(both, key) && !listed(followed[j->engine], key))
            return fail("--engine %s: does not follow \"%s\" of the plan yet: leave it at its default", engine_name(j->engine), key);
    }
    return 0;
}

/* ---- values of keys that are followed ---- */

static int refuse(const struct engine_job *j, const char *what, const char *instead)
{
    return fail("--engine %s: does not run %s: %s", engine_name(j->engine), what, instead);
}

static int values_are_followed(const struct engine_job *j)
{
    const struct plan *p = j->plan;

    if (p->kernels != KERNELS_TORCH_EAGER && p->kernels != KERNELS_TORCH_SDPA && (p->kernels != KERNELS_TORCH_COMPILE || j->engine != ENGINE_TORCH))
        return refuse(j, kernels_name(p->kernels), "\"kernels\" of a plan for an engine are torch-eager, torch-sdpa or, of torch, torch-compile");
    if (p->optimizer != OPTIMIZER_ADAMW)
        return refuse(j, "this optimizer yet", "\"optimizer\" must be adamw");
    if (p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL)
        return refuse(j, "this \"recompute\" yet", "none and full are followed");
    if (p->precision == DT_FP16)
        return refuse(j, "fp16 yet", "\"precision\" must be fp32 or bf16");
    if (!training_is_all(&p->train) && !training_is_lora(&p->train))
        return refuse(j, "a list of tensors that train yet", "\"train\" must be all or lora");
    if (p->train.modules_to_save[0] || p->train.target_parameters[0])
        return refuse(j, "lora.modules_to_save and lora.target_parameters yet", "leave them out");
    if (p->model.head != HEAD_LOGITS)
        return refuse(j, "a head of one number yet", "a model with logits is run");
    if (p->model.mtp > 0)
        return refuse(j, "multi-token prediction", "transformers computes none");
    return 0;
}

static int torch_follows(const struct engine_job *j)
{
    const struct plan *p = j->plan;
    bool axes = p->parallel.tensor > 1 || p->parallel.pipeline > 1;

    if (p->dialect != DIALECT_TORCH && p->dialect != DIALECT_TORCH_FSDP1)
        return fail("--engine torch: the plan is in dialect %s: --engine torch runs torch and torch-fsdp1%s", dialect_name(p->dialect),
                    p->dialect == DIALECT_DEEPSPEED ? ", --engine deepspeed runs this one" : "");
    if (p->strategy == STRAT_DP)
        return refuse(j, "DataParallel", "it has one process for all GPUs; \"ddp\" is run");
    if (p->strategy == STRAT_FSDP && p->unit != UNIT_MODEL && p->unit != UNIT_BLOCKS && p->unit != UNIT_BLOCK)
        return refuse(j, "this \"unit\" yet", "model, block and <n> blocks are followed");
    if (axes && !family_for(&p->model)->engine_axes)
        return refuse(j, "tensor and pipeline parallelism of this family", "llama, qwen2, qwen3 and mistral are cut by torch's own API");
    if (p->kernels == KERNELS_TORCH_COMPILE && (axes || p->model.experts > 0 || p->dialect != DIALECT_TORCH))
        return refuse(j, "torch-compile here yet", "FSDP2 of dense models runs compiled, without tensor and pipeline parallelism");
    if (p->parallel.tensor > 1 && p->parallel.pipeline > 1)
        return refuse(j, "stages whose tensors are cut yet", "parallel.tensor or parallel.pipeline must be 1");
    if (p->dialect == DIALECT_TORCH_FSDP1 && training_is_lora(&p->train) && p->fsdp.wrap_adapters)
        return refuse(j, "adapters that are units of their own yet", "\"fsdp.wrap_adapters\" must be false");
    if (p->parallel.async_tensor)
        return refuse(j, "\"parallel.async_tensor\" yet", "it must be false");
    if (p->parallel.pipeline > 1 && p->parallel.pipeline_schedule != PIPELINE_GPIPE && p->parallel.pipeline_schedule != PIPELINE_1F1B)
        return refuse(j, "this \"pipeline_schedule\" yet", "gpipe and 1f1b are followed");
    return 0;
}

static int deepspeed_follows(const struct engine_job *j)
{
    return j->plan->dialect == DIALECT_DEEPSPEED ? 0 : fail("--engine deepspeed: the plan is in dialect %s: --engine %s runs that", dialect_name(j->plan->dialect),
                                                            j->plan->dialect == DIALECT_MEGATRON ? "megatron" : "torch");
}

/* What its configuration says, engine_config() refuses where it cannot. */
static int accelerate_follows(const struct engine_job *j)
{
    const struct plan *p = j->plan;

    if (p->dialect == DIALECT_DEEPSPEED && p->strategy == STRAT_DDP)
        return refuse(j, "DeepSpeed's stage 0", "zero1, zero2 and zero3 are followed");
    if (p->kernels == KERNELS_TORCH_COMPILE)
        return refuse(j, "torch-compile", "its configuration compiles whole models: --engine torch compiles blocks");
    if (p->strategy == STRAT_FSDP && training_is_lora(&p->train))
        return refuse(j, "adapters under FSDP yet", "--engine torch runs them");
    return 0;
}

/* Its options say all of the plan: the runner refuses the first that it has no place for, by its name. */
static int megatron_follows(const struct engine_job *j)
{
    const struct plan *p = j->plan;

    if (p->dialect != DIALECT_MEGATRON)
        return fail("--engine megatron: the plan is in dialect %s: --engine %s runs that", dialect_name(p->dialect),
                    p->dialect == DIALECT_DEEPSPEED ? "deepspeed" : "torch");
    if (!family_for(&p->model)->engine_axes || p->model.experts > 0)
        return refuse(j, "this family yet", "llama, qwen2, qwen3 and mistral are followed");
    if (p->kernels == KERNELS_TE && !j->cuda)
        return refuse(j, "Transformer Engine on the CPU", "its kernels are CUDA: \"kernels\": \"megatron-local\", or --device cuda");
    return 0;
}

/* Of each engine; NULL: none yet. */
static int (*const follows[NENGINE])(const struct engine_job *) = { [ENGINE_TORCH] = torch_follows, [ENGINE_DEEPSPEED] = deepspeed_follows,
                                                                    [ENGINE_ACCELERATE] = accelerate_follows,
                                                                    [ENGINE_MEGATRON] = megatron_follows };

int engine_follows(const struct engine_job *j)
{
    if (!follows[j->engine])
        return fail("--engine %s: not yet: torch, deepspeed, accelerate and megatron run plans (`dpxplan export --to` writes its configuration)", engine_name(j->engine));
    if (follows[j->engine](j) < 0 || (j->engine != ENGINE_MEGATRON && (values_are_followed(j) < 0 || keys_are_followed(j) < 0)))
        return -1;
    json_t *config = engine_config(j);
    json_decref(config);
    return config ? 0 : -1;
}
