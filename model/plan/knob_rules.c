/* knob_rules.c -- functions that rows of the table of knobs point to: see knob_rules.h. */
#include "model/plan/knob_rules.h"

#include <stdio.h>

#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/attention.h"
#include "model/plan/framework.h"
#include "model/plan/loss_check.h"

/* ---- defaults ---- */

/* On cores it is dpx that trains, but for recorded modules and Mamba-2, which it cannot run. */
double knob_usual_kernels(const struct plan *p)
{
    if (framework_of(p)->kernels)
        return framework_of(p)->kernels(p);
    return p->cluster.is_host && !p->model.recorded && !p->model.hybrid ? KERNELS_DPX : (double)attention_default(&p->model);
}

double knob_usual_reduce_dtype(const struct plan *p)
{
    return framework_of(p)->reduce_dtype ? framework_of(p)->reduce_dtype(p) : p->precision;
}

double knob_usual_model_dtype(const struct plan *p)
{
    return framework_of(p)->model_dtype ? framework_of(p)->model_dtype(p) : -1;
}

/* As transformers' Trainer has them, where that is planned (train_check.c). */
double knob_usual_wrap_adapters(const struct plan *p)
{
    bool planned = p->unit == UNIT_BLOCK && !p->fsdp.forward_prefetch && p->recompute != RECOMPUTE_SELECTIVE && p->recompute != RECOMPUTE_MODULES && !p->train.modules_to_save[0];

    return training_is_lora(&p->train) && p->kernels != KERNELS_DPX && p->precision == DT_BF16 && planned;
}

double knob_usual_orig_params(const struct plan *p)
{
    return !training_is_all(&p->train);
}

double knob_usual_clip(const struct plan *p)
{
    return plan_version(p) < 19 ? 0 : 1;
}

double knob_usual_dropout(const struct plan *p)
{
    return p->model.dropout;
}

double knob_usual_unit(const struct plan *p)
{
    return plan_shards_grads(p->strategy) ? framework_of(p)->unit : UNIT_MODEL;
}

double knob_usual_shard_group(const struct plan *p)
{
    return (double)plan_data_ranks(p);
}

/* torchtitan's plans; Megatron-LM's first form (Shoeybi et al. 2019) runs norms on all positions, and still does without
 * --sequence-parallel. */
double knob_usual_sequence(const struct plan *p) { return framework_of(p)->sequence; }

/* torch.distributed.tensor.experimental._context_parallel: _ContextParallelOptions.rotate_method; Liu et al. 2023. */
double knob_usual_context_method(const struct plan *p) { return framework_of(p)->context_method; }

/* With Ulysses every rank has all positions of its heads: there is nothing to balance; Megatron-LM deals them out all the same. */
double knob_usual_context_balance(const struct plan *p)
{
    return p->parallel.context_method != CONTEXT_ULYSSES || framework_of(p)->balances_heads;
}

/* torchtitan's "default" (distributed/fsdp: reshard_after_forward = not pp_enabled). */
double knob_usual_reshard(const struct plan *p)
{
    return p->parallel.pipeline > 1 ? 0 : -1;
}

double knob_usual_virtual_stages(const struct plan *p)
{
    return p->parallel.pipeline > 1 ? pipeline_usual_chunks(p->parallel.pipeline_schedule) : 1;
}

/* torchtitan counts the embedding and the head as a block each (pipeline_parallel_first_stage_less_layers), Megatron-LM with
 * --account-for-embedding-in-pipeline-split. */
double knob_usual_stage_less(const struct plan *p) { return framework_of(p)->ends_count; }

/* megatron/core/distributed/distributed_data_parallel.py: max(40000000, 1000000 * dp_group.size()), context-parallel ranks not among
 * them. */
double knob_usual_bucket_size(const struct plan *p)
{
    int64_t each = 1000000 * plan_batch_ranks(p);

    return (double)(each > 40000000 ? each : 40000000);
}

/* parallel_state.initialize_model_parallel(): expert_tensor_parallel_size. */
double knob_usual_expert_tensor(const struct plan *p)
{
    return knob_idle_whole_experts(p) ? 1 : (double)p->parallel.tensor;
}

double knob_usual_microbatch_group(const struct plan *p) { return (double)p->parallel.pipeline; }

double knob_usual_sync(const struct plan *p)
{
    return p->parallel.pipeline <= 1 && (framework_of(p)->syncs & OF_STRATEGY(p->strategy));
}

double knob_usual_check_overflow(const struct plan *p)
{
    return framework_of(p)->check_overflow && framework_of(p)->check_overflow(p) > 0;
}

/* torch/distributed/run.py: OMP_NUM_THREADS becomes 1 where nproc_per_node is more, unless it is set.  accelerate
 * sets 1 as well, also before DeepSpeed's ranks (utils/launch.py: num_cpu_threads_per_process).  DeepSpeed's own launcher
 * leaves it alone, or divides the cores (--bind_cores_to_rank). */
double knob_usual_host_threads(const struct plan *p)
{
    return dialect_is_torch(p->dialect) && p->cluster.gpus_per_node > 1 && !p->cluster.is_host;
}

/* ---- idle ---- */

bool knob_idle_optimizer(const struct plan *p)
{
    return p->ds.offload_optimizer.device == OFFLOAD_NONE;
}

bool knob_idle_optimizer_disk(const struct plan *p)
{
    return p->ds.offload_optimizer.device != OFFLOAD_NVME;
}

bool knob_idle_away(const struct plan *p) { return !p->fsdp.cpu_offload; }

bool knob_idle_wrapped(const struct plan *p) { return p->ddp.wrapped; }

bool knob_idle_powersgd(const struct plan *p)
{
    return p->ddp.comm_hook != HOOK_POWERSGD;
}

bool knob_idle_full(const struct plan *p) { return p->recompute != RECOMPUTE_FULL; }

bool knob_idle_selective(const struct plan *p) { return p->recompute != RECOMPUTE_SELECTIVE; }

bool knob_idle_param(const struct plan *p)
{
    return p->ds.offload_param.device == OFFLOAD_NONE;
}

bool knob_idle_param_disk(const struct plan *p)
{
    return p->ds.offload_param.device != OFFLOAD_NVME;
}

bool knob_idle_disk(const struct plan *p)
{
    return knob_idle_optimizer_disk(p) && knob_idle_param_disk(p);
}

bool knob_idle_tensor(const struct plan *p)
{
    return p->parallel.tensor <= 1;
}

bool knob_idle_context(const struct plan *p)
{
    return p->parallel.context <= 1;
}

bool knob_idle_no_experts(const struct plan *p)
{
    return p->model.experts == 0;
}

bool knob_idle_balance(const struct plan *p) { return p->megatron.moe_aux_loss_coeff <= 0; }

bool knob_idle_expert_codes(const struct plan *p) { return p->model.experts == 0 || plan_scaled(p) == SCALED_NONE; }

bool knob_idle_capacity(const struct plan *p)
{
    return p->megatron.moe_expert_capacity_factor <= 0;
}

bool knob_idle_whole_experts(const struct plan *p)
{
    return !framework_of(p)->cuts_experts || p->parallel.tensor <= 1 || p->model.experts == 0;
}

bool knob_idle_expert(const struct plan *p)
{
    return p->parallel.expert <= 1;
}

bool knob_idle_whole_mixture(const struct plan *p) { return p->model.experts == 0 || p->parallel.expert > 1; }

bool knob_idle_no_chunks(const struct plan *p) { return p->loss != LOSS_DISTRIBUTED_LATE; }

bool knob_idle_experts_shared(const struct plan *p) { return knob_idle_expert(p) || p->parallel.expert * p->parallel.pipeline != p->cluster.world_size; }

bool knob_idle_all_kept(const struct plan *p) { return p->fsdp.reshard_after_forward == 0 || p->unit == UNIT_MODEL; }

bool knob_idle_native_moe(const struct plan *p)
{
    return knob_idle_expert(p) || p->ds.moe_layer != MOE_NATIVE;
}

bool knob_idle_native_capacity(const struct plan *p)
{
    return knob_idle_native_moe(p) || !p->ds.moe_drop_tokens;
}

bool knob_idle_pipeline(const struct plan *p)
{
    return p->parallel.pipeline <= 1;
}

bool knob_idle_interleaved(const struct plan *p)
{
    return p->parallel.pipeline <= 1 || p->parallel.pipeline_schedule != PIPELINE_INTERLEAVED;
}

bool knob_idle_undeferred(const struct plan *p) { return knob_idle_pipeline(p) || !p->megatron.defer_embedding_wgrad_compute; }

bool knob_idle_no_latent(const struct plan *p) { return p->model.kv_rank == 0; }

bool knob_idle_host(const struct plan *p)
{
    const struct knob *fsdp = knob_find("fsdp", "cpu_offload", knob_cell(p));

    return knob_idle_optimizer(p) && !(fsdp && knob_get(p, fsdp) > 0);
}

bool knob_idle_lora(const struct plan *p)
{
    return !training_is_lora(&p->train);
}

bool knob_idle_base(const struct plan *p)
{
    return training_is_all(&p->train);
}

bool knob_idle_base_head(const struct plan *p)
{
    return knob_idle_base(p) || p->train.base == BASE_PLAIN || p->model.tied;
}

bool knob_idle_fsdp_packed(const struct plan *p)
{
    return knob_idle_lora(p) || p->train.base == BASE_PLAIN || !framework_of(p)->autocasts_adapters;
}

bool knob_idle_narrow(const struct plan *p)
{
    return knob_idle_lora(p) || (p->strategy == STRAT_FSDP ? p->fsdp.model_dtype : p->ddp.model_dtype) < 0;
}

bool knob_idle_fused_parts(const struct plan *p) { return knob_idle_lora(p) || !family_for(&p->model)->fused_qkv; }

bool knob_idle_fp8(const struct plan *p) { return p->megatron.fp8_format == FP8_OFF; }

bool knob_idle_delayed(const struct plan *p) { return knob_idle_fp8(p) || p->megatron.fp8_recipe != FP8_DELAYED; }

bool knob_idle_mxfp8(const struct plan *p) { return knob_idle_fp8(p) || p->megatron.fp8_recipe != FP8_MXFP8 || !p->megatron.fp8_param_gather; }

bool knob_idle_scaled(const struct plan *p) { return plan_scaled(p) == SCALED_NONE; }

bool knob_idle_ends_bf16(const struct plan *p) { return knob_idle_scaled(p) || !p->megatron.first_last_layers_bf16; }

bool knob_idle_float8(const struct plan *p) { return p->float8.recipe == FLOAT8_NONE; }

bool knob_idle_qat(const struct plan *p) { return p->qat.kind == QAT_NONE; }

bool knob_idle_float8_gather(const struct plan *p) { return !p->fsdp.float8_all_gather; }

bool knob_idle_eager(const struct plan *p) { return p->kernels != KERNELS_TORCH_COMPILE; }

bool knob_idle_no_logits(const struct plan *p)
{
    return p->model.head != HEAD_LOGITS || loss_reads_head(p->loss) || p->loss == LOSS_LINEAR_CHUNKS;
}

bool knob_idle_no_kept(const struct plan *p) { return p->logits_kept == LOGITS_DROPPED; }

bool knob_idle_no_alloc_conf(const struct plan *p) { return !*p->environment.alloc_conf; }
bool knob_idle_no_workspace(const struct plan *p) { return !*p->environment.cublas_workspace; }
bool knob_idle_no_connections(const struct plan *p) { return p->environment.max_connections == 0; }
bool knob_idle_no_nvls(const struct plan *p) { return p->cluster.nccl.nvls == NVLS_AUTO; }
bool knob_idle_no_buffsize(const struct plan *p) { return p->cluster.nccl.buffsize == 0; }

bool knob_idle_form(const struct plan *p)
{
    return p->optimizer != OPTIMIZER_ADAMW || p->ds.offload_optimizer.device != OFFLOAD_NONE || p->kernels == KERNELS_DPX;
}

bool knob_idle_graphs(const struct plan *p) { return p->megatron.cuda_graph_impl == GRAPHS_NONE; }

bool knob_idle_whole_states(const struct plan *p) { return !p->megatron.use_precision_aware_optimizer; }

const char *knob_idle_because(bool (*idle)(const struct plan *p))
{
    static const struct { bool (*idle)(const struct plan *p); const char *since; } because[] = {
        { knob_idle_tensor, "parallel.tensor is 1" },
        { knob_idle_context, "parallel.context is 1" },
        { knob_idle_pipeline, "parallel.pipeline is 1" },
        { knob_idle_expert, "parallel.expert is 1" },
        { knob_idle_no_chunks, "the loss is not \"distributed-logprob-late\"" },
        { knob_idle_experts_shared, "no rank has experts alone" },
        { knob_idle_all_kept, "no unit is freed after forward" },
        { knob_idle_native_moe, "deepspeed.moe_layer is not \"MoE\"" },
        { knob_idle_native_capacity, "deepspeed.moe_layer is not \"MoE\", or moe_drop_tokens is false" },
        { knob_idle_no_experts, "the model has no experts" },
        { knob_idle_whole_mixture, "the model has no experts, or parallel.expert is over 1" },
        { knob_idle_capacity, "megatron.moe_expert_capacity_factor is null" },
        { knob_idle_whole_experts, "parallel.tensor is 1, or the model has no experts" },
        { knob_idle_interleaved, "no interleaved pipeline" },
        { knob_idle_no_latent, "the model has no latent attention" },
        { knob_idle_undeferred, "megatron.defer_embedding_wgrad_compute is false" },
        { knob_idle_fp8, "megatron.fp8_format is none" },
        { knob_idle_delayed, "scales are not delayed" },
        { knob_idle_mxfp8, "no mxfp8 parameters are gathered" },
        { knob_idle_balance, "megatron.moe_aux_loss_coeff is 0" },
        { knob_idle_expert_codes, "no experts' products are of 8 bits" },
        { knob_idle_scaled, "megatron.fp8_format and fp4_format are none" },
        { knob_idle_ends_bf16, "first_last_layers_bf16 is false" },
        { knob_idle_fused_parts, "train is not \"lora\", or q, k and v of the model are layers of their own" },
        { knob_idle_lora, "train is not \"lora\"" },
        { knob_idle_base, "everything trains" },
        { knob_idle_base_head, "everything trains, base_dtype is \"plain\", or the head is the embedding's weight" },
        { knob_idle_fsdp_packed, "train is not \"lora\", or base_dtype is \"plain\"" },
        { knob_idle_narrow, "train is not \"lora\", or the model is in fp32 (model_dtype)" },
        { knob_idle_float8, "fp8 is \"none\"" },
        { knob_idle_float8_gather, "fsdp.enable_fsdp_float8_all_gather is false" },
        { knob_idle_no_alloc_conf, "it is not set" }, { knob_idle_no_workspace, "it is not set" }, { knob_idle_no_connections, "it is not set" },
        { knob_idle_no_nvls, "it is not set" }, { knob_idle_no_buffsize, "it is not set" },
        { knob_idle_no_logits, "the loss has no whole logits" }, { knob_idle_no_kept, "logits_kept is none" },
        { knob_idle_eager, "kernels are not \"torch-compile\"" },
        { knob_idle_graphs, "megatron.cuda_graph_impl is none" },
        { knob_idle_whole_states, "megatron.use_precision_aware_optimizer is false" },
        { knob_idle_full, "recompute is not \"full\"" },
        { knob_idle_selective, "recompute is not \"selective\"" },
        { knob_idle_form, "the optimizer has one form" },
        { knob_idle_wrapped, "ddp.wrapped is true" },
        { knob_idle_powersgd, "ddp.comm_hook is not \"powerSGD_hook\"" },
    };

    for (size_t i = 0; i < sizeof because / sizeof *because; i++)
        if (because[i].idle == idle)
            return because[i].since;
    return "nothing is offloaded there";
}

/* ---- search ---- */

/* With recompute little is left to move. */
enum knob_tried knob_try_activations(struct plan *p, int i)
{
    if (i >= (p->recompute == RECOMPUTE_NONE ? 2 : 1))
        return KNOB_NO_MORE;
    p->activation_offload = i ? OFFLOAD_STREAMS : OFFLOAD_NOTHING;
    return KNOB_TRIED;
}

/* Stages 1 and 2 take nvme for cpu. */
enum knob_tried knob_try_ds_optimizer(struct plan *p, int i)
{
    static const enum offload_device to[] = { OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };

    if (i >= (p->strategy == STRAT_ZERO3 ? 3 : 2))
        return KNOB_NO_MORE;
    p->ds.offload_optimizer.device = to[i];
    return KNOB_TRIED;
}

/* Parameters go to files only where the far larger states are there. */
enum knob_tried knob_try_ds_param(struct plan *p, int i)
{
    static const enum offload_device to[] = { OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };

    if (i >= (p->ds.offload_optimizer.device == OFFLOAD_NVME ? 3 : 2))
        return KNOB_NO_MORE;
    p->ds.offload_param.device = to[i];
    return KNOB_TRIED;
}

/* Every block, every second, every fourth. */
enum knob_tried knob_try_interval(struct plan *p, int i)
{
    int64_t every = (int64_t)1 << i;

    if (i >= (p->recompute == RECOMPUTE_NONE ? 1 : 3) || every > p->model.layers)
        return KNOB_NO_MORE;
    p->recompute_interval = every;
    return KNOB_TRIED;
}

enum knob_tried knob_try_sync(struct plan *p, int i)
{
    if (i > 1 || p->accumulation == 1 || !plan_sync_is_choice(p->strategy, p->dialect))
        return KNOB_NO_MORE;
    p->sync_every_micro_step = i;
    return KNOB_TRIED;
}

/* All ranks, then nodes by halves down to one node. */
enum knob_tried knob_try_shard_group(struct plan *p, int i)
{
    int64_t world = p->cluster.world_size, per_node = p->cluster.gpus_per_node, group = world;

    if (!framework_of(p)->tries_groups)
        return KNOB_NO_MORE;
    for (; i > 0; i--)
        if (group % (2 * per_node) == 0)
            group /= 2;
        else if (group > per_node && per_node > 1 && world % per_node == 0)
            group = per_node;
        else
            return KNOB_NO_MORE;
    p->shard_group = group;
    return KNOB_TRIED;
}

enum knob_tried knob_try_sharding(struct plan *p, int i)
{
    bool hybrid = p->shard_group < p->cluster.world_size;

    if (i > 1)
        return KNOB_NO_MORE;
    p->fsdp.sharding_strategy = hybrid ? (i ? FSDP1_HYBRID_SHARD_ZERO2 : FSDP1_HYBRID_SHARD)
                                       : (i ? FSDP1_SHARD_GRAD_OP : FSDP1_FULL_SHARD);
    return KNOB_TRIED;
}

enum knob_tried knob_try_unit(struct plan *p, int i)
{
    const struct framework *f = framework_of(p);

    if (i >= f->nunit_tries)
        return KNOB_NO_MORE;
    if (f->unit_tries[i].kind == UNIT_BLOCKS && f->unit_tries[i].blocks >= p->model.layers)
        return KNOB_SKIPPED;
    p->unit = f->unit_tries[i].kind;
    p->unit_blocks = f->unit_tries[i].blocks;
    return KNOB_TRIED;
}

/* Freed after forward, kept, or kept on the node. */
enum knob_tried knob_try_reshard(struct plan *p, int i)
{
    int64_t per_node = p->cluster.gpus_per_node;

    if (i > 2)
        return KNOB_NO_MORE;
    if (i == 2 && (per_node < 2 || per_node >= p->shard_group || p->shard_group % per_node))
        return KNOB_SKIPPED;
    p->fsdp.reshard_after_forward = i == 2 ? per_node : i == 1 ? 0 : p->parallel.pipeline > 1 ? 1 : -1;     /* 1: true, said */
    return KNOB_TRIED;
}

/* Nothing ahead, the default, or forward as well. */
enum knob_tried knob_try_prefetch(struct plan *p, int i)
{
    if (i > 2)
        return KNOB_NO_MORE;
    p->fsdp.backward_prefetch = i ? PREFETCH_PRE : PREFETCH_NONE;
    p->fsdp.forward_prefetch = i == 2;
    return KNOB_TRIED;
}

/* Stage 3's schedules are the longest by far: two corners of its throttles, what the
 * defaults do and what saves memory. */
enum knob_tried knob_try_live(struct plan *p, int i)
{
    if (i > 1)
        return KNOB_NO_MORE;
    p->ds.stage3_max_live_parameters = i ? 300000000 : 1000000000;
    p->ds.stage3_max_reuse_distance = i ? 0 : 1000000000;
    return KNOB_TRIED;
}

/* A node's ranks, where there are several nodes. */
enum knob_tried knob_try_hpz(struct plan *p, int i)
{
    int64_t node = p->cluster.gpus_per_node, ranks = plan_data_ranks(p);

    if (i > (node > 1 && node < ranks && ranks % node == 0))
        return KNOB_NO_MORE;
    p->ds.zero_hpz_partition_size = i ? node : 1;
    return KNOB_TRIED;
}

/* Beside reductions that are overlapped, as arguments.py wants it. */
enum knob_tried knob_try_param_gather(struct plan *p, int i)
{
    if (i > p->megatron.overlap_grad_reduce)
        return KNOB_NO_MORE;
    p->megatron.overlap_param_gather = i;
    return KNOB_TRIED;
}

/* ---- words ---- */

int knob_say_reshard(const struct plan *p, char *to, size_t size)
{
    int64_t k = p->fsdp.reshard_after_forward;

    if (p->parallel.pipeline > 1)       /* units stay after forward unless a plan says otherwise */
        return k > 0 ? snprintf(to, size, ", reshard") : 0;
    if (k == 0)
        return snprintf(to, size, ", no reshard");
    return k > 1 ? snprintf(to, size, ", reshard to %lld", (long long)k) : 0;
}

/* The shard group in the label marks a hybrid one. */
int knob_say_sharding(const struct plan *p, char *to, size_t size)
{
    return p->fsdp.sharding_strategy == FSDP1_SHARD_GRAD_OP ? snprintf(to, size, ", SHARD_GRAD_OP")
         : p->fsdp.sharding_strategy == FSDP1_NO_SHARD ? snprintf(to, size, ", NO_SHARD")
         : p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD_ZERO2 ? snprintf(to, size, ", _HYBRID_SHARD_ZERO2") : 0;
}

int knob_say_no_prefetch(const struct plan *p, char *to, size_t size)
{
    return p->fsdp.backward_prefetch == PREFETCH_NONE ? snprintf(to, size, ", no prefetch") : 0;
}

int knob_say_sequence(const struct plan *p, char *to, size_t size)
{
    if (knob_idle_tensor(p) || p->parallel.sequence == (knob_usual_sequence(p) > 0))
        return 0;
    return snprintf(to, size, p->parallel.sequence ? ", sequence" : ", whole sequence");
}

int knob_say_loss_parallel(const struct plan *p, char *to, size_t size)
{
    return p->parallel.loss_parallel || knob_idle_tensor(p) ? 0 : snprintf(to, size, ", whole loss");
}

int knob_say_layout(const struct plan *p, char *to, size_t size)
{
    return p->megatron.pipeline_layout[0] && p->parallel.pipeline > 1 ? snprintf(to, size, ", layout %s", p->megatron.pipeline_layout) : 0;
}

int knob_say_alloc_conf(const struct plan *p, char *to, size_t size)
{
    return *p->environment.alloc_conf ? snprintf(to, size, ", %s", p->environment.alloc_conf) : 0;
}

int knob_say_context_balance(const struct plan *p, char *to, size_t size)
{
    return p->parallel.context_balance == (knob_usual_context_balance(p) > 0) || knob_idle_context(p) ? 0 : snprintf(to, size, ", unbalanced");
}

/* Other optimizers than AdamW are named beside it. */
int knob_say_wrapped(const struct plan *p, char *to, size_t size) { return p->ddp.wrapped ? 0 : snprintf(to, size, ", not wrapped"); }

int knob_say_form(const struct plan *p, char *to, size_t size)
{
    const char *form = knob_words("optimizer_form")[p->optimizer_form];

    const struct knob *k = knob_find("", "optimizer_form", knob_cell(p));

    return !k || (int)p->optimizer_form == (int)k->def ? 0 : snprintf(to, size, p->optimizer == OPTIMIZER_ADAMW ? ", AdamW %s" : ", %s", form);
}

int knob_say_recompute(const struct plan *p, char *to, size_t size)
{
    const char *modules = p->recompute == RECOMPUTE_SELECTIVE ? p->megatron.recompute_modules : "";

    return p->recompute == RECOMPUTE_NONE ? 0 : snprintf(to, size, ", recompute %s", *modules ? modules : recompute_name(p->recompute));
}

int knob_say_graphs(const struct plan *p, char *to, size_t size)
{
    const char *impl = p->megatron.cuda_graph_impl == GRAPHS_LOCAL ? "local" : "te", *scope = p->megatron.cuda_graph_scope;

    return p->megatron.cuda_graph_impl == GRAPHS_NONE ? 0 : snprintf(to, size, ", CUDA graphs %s%s%s", impl, *scope ? " of " : "", scope);
}

/* 0 stands for a share of the cores: the label does not say "0 host threads". */
int knob_say_threads(const struct plan *p, char *to, size_t size)
{
    if (knob_idle_host(p) || (double)p->host_threads == knob_usual_host_threads(p))
        return 0;
    return p->host_threads == 0 ? snprintf(to, size, ", host threads by cores") : snprintf(to, size, ", %lld host threads", (long long)p->host_threads);
}

int knob_say_no_sync(const struct plan *p, char *to, size_t size)
{
    bool choice = p->accumulation > 1 && p->parallel.pipeline == 1 && plan_sync_is_choice(p->strategy, p->dialect);

    return choice && !p->sync_every_micro_step ? snprintf(to, size, ", no_sync") : 0;
}

/* ---- "auto" ---- */

int64_t knob_auto_reduce_bucket(int64_t hidden)
{
    return hidden * hidden;
}

int64_t knob_auto_prefetch_bucket(int64_t hidden)
{
    return (int64_t)(0.9 * (double)hidden * (double)hidden);
}

int64_t knob_auto_persistence(int64_t hidden)
{
    return 10 * hidden;
}

int knob_say_train(const struct plan *p, char *to, size_t size)
{
    if (training_is_all(&p->train))
        return 0;
    return training_is_lora(&p->train) ? snprintf(to, size, ", LoRA rank %lld", (long long)p->train.rank)
                                       : snprintf(to, size, ", train %s", p->train.what);
}
