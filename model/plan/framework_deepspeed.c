/* framework_deepspeed.c -- DeepSpeed: engine.py, runtime/zero/ of 0.19.6 and 0.19.8. */
#include "model/plan/framework.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/plan/attention.h"
#include "model/plan/autoep_check.h"
#include "model/plan/deepspeed_pipeline_check.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_check.h"
#include "model/plan/optimizer_traits.h"
#include "model/plan/parallel_check.h"
#include "model/plan/train_check.h"
#include "model/plan/zero_check.h"

static const struct framework_version versions[] = {
    { "0.19.8", "parameters are broadcast as bytes at construction; compute_grad_norm; stages 1 and 2 accumulate fp32 gradients in the "
                "partition" },
    { "0.19.6", "gradient_clipping 1.0 and bf16 check_grad_overflow by default" },
    { "0.16",   "gradient_clipping 0.0, no bf16 overflow check by default" },
};

/* Memory and most lists were recorded from 0.19.6: a plan that names no version takes that. */
const struct framework_tool framework_deepspeed_tool = {
    .name = "deepspeed", .versions = versions, .nversions = sizeof versions / sizeof *versions, .usual = 1,
};

/* engine._configure_zero_optimizer: fp16 always looks for overflow, fp32 never, bf16 by an option that stages 1 and 2 alone read. */
static double check_overflow(const struct plan *p)
{
    bool reads_option = p->strategy == STRAT_ZERO1 || p->strategy == STRAT_ZERO2;

    if (p->precision == DT_BF16)
        return reads_option && plan_version(p) >= 19;
    return p->precision == DT_FP16;
}

/* seq_parallel_communication_data_type, fp32, takes communication_data_type's place. */
static void resolve(struct plan *p)
{
    p->reduce_dtype = p->parallel.context > 1 ? DT_FP32 : p->ds.communication_dtype >= 0 ? (enum dtype)p->ds.communication_dtype : p->precision;
}

/* DeepSpeed goes by names: set_optimizer_flags(), deepspeed/__init__.py of 0.19.8.  GPT-2's embeddings, wte and wpe, are among its matrices. */
static bool orthogonalises(const struct tensor *t)
{
    return !strstr(t->name, "embed") && !strstr(t->name, "lm_head");
}

/* ---- what is refused ---- */

/* engine.py, _configure_fp16_optimizer(): stage 0 in 16 bits steps FusedAdam in FP16_Optimizer, every other optimizer in
 * FP16_UnfusedOptimizer. */
static int check_form(const struct plan *p, const char *where)
{
    if (p->strategy == STRAT_DDP && p->precision != DT_FP32 && p->optimizer_form != OPTIMIZER_FUSED)
        return fail("%s: optimizer_form: torch's AdamW of stage 0 in %s is in DeepSpeed's FP16_UnfusedOptimizer, which is not modelled: "
                    "leave it out, or take zero1", where, dtype_name(p->precision));
    return 0;
}

/* Asserts of stage_1_and_2.py and stage3.py (__init__, 0.19.6) and of
 * engine._do_optimizer_sanity_check. */
static int check_options(const struct plan *p, const char *where)
{
    bool zero = p->strategy != STRAT_DDP;

    if (zero && p->ds.reduce_scatter && (p->ds.prescale < 1 || p->ds.prescale > 1))
        return fail("%s: deepspeed.gradient_predivide_factor: DeepSpeed takes only 1 together "
                    "with reduce_scatter", where);
    if (p->ds.communication_dtype < -1 || p->ds.communication_dtype > DT_FP16)
        return fail("%s: deepspeed.communication_data_type: expected fp32, bf16, fp16 or null",
                    where);
    if (p->ds.grad_accum_fp32 && p->precision == DT_FP32)
        return fail("%s: deepspeed.grad_accum_dtype: fp32 is the model's own dtype already", where);
    if (p->ds.grad_accum_fp32 && p->strategy == STRAT_ZERO2 && !plan_has_deepspeed_0_19_8(p))
        return fail("%s: deepspeed.grad_accum_dtype: before DeepSpeed 0.19.8 stage 2 accumulates in the model's "
                    "dtype all the same: set framework_version to \"0.19.8\"", where);
    if (knob_has(p, "deepspeed", "compute_grad_norm") && !p->ds.compute_grad_norm) {
        if (!plan_has_deepspeed_0_19_8(p))
            return fail("%s: deepspeed.compute_grad_norm: DeepSpeed has it from 0.19.8 on: set "
                        "framework_version to \"0.19.8\"", where);
        if (p->clip > 0)
            return fail("%s: deepspeed.compute_grad_norm: false requires clip 0", where);
        if (p->strategy == STRAT_ZERO1 && p->precision == DT_BF16 && p->ds.grad_accum_fp32)
            return fail("%s: deepspeed.compute_grad_norm: false does not support BF16_Optimizer, which "
                        "stage 1 takes where grad_accum_dtype is fp32", where);
    }
    if (p->ds.check_grad_overflow != (p->precision == DT_FP16) && p->precision != DT_BF16)
        return fail("%s: deepspeed.check_grad_overflow: fp16 always looks for overflow, fp32 never",
                    where);
    return zero_check(p, where) < 0 ? -1 : check_form(p, where);
}

/* stage_1_and_2.py (__init__), stage3.py, engine._do_optimizer_sanity_check. */
static int check_offload(const struct plan *p, const char *where)
{
    const struct deepspeed_options *ds = &p->ds;
    bool optimizer = ds->offload_optimizer.device != OFFLOAD_NONE, param = ds->offload_param.device != OFFLOAD_NONE;

    if (!optimizer && !param)
        return 0;
    if (plan_version(p) < 19)
        return fail("%s: deepspeed.%s: offload is known of DeepSpeed 0.19.6 and 0.19.8: leave framework_version out or set "
                    "one of them", where, optimizer ? "offload_optimizer" : "offload_param");
    if (optimizer && p->strategy != STRAT_ZERO3 && !ds->compute_grad_norm)
        return fail("%s: deepspeed.compute_grad_norm: false does not support optimizer offload", where);
    if (optimizer && p->strategy == STRAT_ZERO1 && ds->grad_accum_fp32 && !plan_has_deepspeed_0_19_8(p))
        return fail("%s: deepspeed.grad_accum_dtype: with offload_optimizer DeepSpeed 0.19.6 steps each rank's own gradients, "
                    "not their average: set framework_version to \"0.19.8\"", where);
    if (p->strategy == STRAT_ZERO1 && ds->offload_optimizer.device == OFFLOAD_NVME && p->precision == DT_BF16
        && ds->grad_accum_fp32)
        return fail("%s: deepspeed.offload_optimizer.device: with grad_accum_dtype fp32 stage 1 takes BF16_Optimizer, "
                    "which offloads nothing, unless the device is cpu", where);
    return 0;
}

/* Two parameter groups are followed in data parallelism, on the device, with sums in the model's dtype.  dpxrun has one norm a step, where
 * stages 1 and 2 add up one for each group. */
const char *deepspeed_groups_beside(const struct plan *p)
{
    const struct deepspeed_options *ds = &p->ds;

    if (ds->offload_optimizer.device != OFFLOAD_NONE || ds->offload_param.device != OFFLOAD_NONE)
        return "offload";
    if (p->optimizer == OPTIMIZER_MUON)
        return "optimizer muon";
    if (p->model.recorded)
        return "a recorded module";
    if (ds->grad_accum_fp32)
        return "grad_accum_dtype fp32";
    if (p->kernels == KERNELS_DPX && p->strategy != STRAT_ZERO3)
        return "kernels \"dpx\" of stages 1 and 2";
    return plan_is_data_parallel(p) && p->parallel.expert <= 1 ? NULL : "tensor, context, pipeline or expert parallelism";
}

static int check_groups(const struct plan *p, const char *where)
{
    if (!p->ds.decay_groups || !deepspeed_groups_beside(p))
        return 0;
    return fail("%s: deepspeed.decay_groups: two parameter groups beside %s are not modelled yet: leave it out", where, deepspeed_groups_beside(p));
}

static int check(const struct plan *p, const char *where)
{
    return check_options(p, where) < 0 || check_groups(p, where) < 0 ? -1 : check_offload(p, where);
}

/* Adapters, frozen weights. */
static int check_train(const struct plan *p, const char *where)
{
    bool params = p->strategy == STRAT_ZERO3 && p->ds.offload_param.device == OFFLOAD_NVME;

    if (params || p->ds.offload_optimizer.device == OFFLOAD_NVME)
        return fail("%s: train: adapters and frozen weights beside deepspeed.%s on a disk are not supported yet: set its device to cpu",
                    where, params ? "offload_param" : "offload_optimizer");
    if (p->strategy == STRAT_ZERO3 && train_adapters_at(p).embedding)
        return fail("%s: lora.target_modules: adapters of the embedding are not planned for DeepSpeed's stage 3 yet", where);
    return 0;
}

/* MuonWithAuxAdam of 0.19.8 under stages 1 and 2. */
static int check_muon(const struct plan *p, const char *where)
{
    const struct deepspeed_options *ds = &p->ds;

    if (p->strategy == STRAT_ZERO3)
        return fail("%s: optimizer: %s", where, knob_lacks("", "optimizer", "muon"));
    if (!plan_has_deepspeed_0_19_8(p))
        return fail("%s: optimizer: muon is known of DeepSpeed 0.19.8: set framework_version to \"0.19.8\"", where);
    if (ds->offload_optimizer.device != OFFLOAD_NONE)
        return fail("%s: optimizer: muon beside deepspeed.offload_optimizer, which gathers gradients and momenta in pieces, is not modelled yet", where);
    if (ds->grad_accum_fp32)
        return fail("%s: optimizer: muon beside deepspeed.grad_accum_dtype fp32 is not modelled yet: leave it out", where);
    if (ds->reduce_scatter && !ds->use_multi_rank_bucket_allreduce)
        return fail("%s: optimizer: muon without deepspeed.use_multi_rank_bucket_allreduce is not modelled: leave it out", where);
    return 0;
}

/* bitsandbytes' optimizers, which a Trainer hands to deepspeed.initialize() (zero_allow_untested_optimizer, which accelerate sets): they step the
 * flat fp32 partitions, in one group where the Trainer has two, one without decay. */
static int check_clients(const struct plan *p, const char *where, const char *word)
{
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE || p->ds.offload_param.device != OFFLOAD_NONE)
        return fail("%s: optimizer: %s beside deepspeed.offload_optimizer or offload_param: DeepSpeed asks for its DeepSpeedCPUAdam "
                    "(zero_force_ds_cpu_optimizer): take adamw", where, word);
    if (p->strategy == STRAT_ZERO1 && p->ds.grad_accum_fp32)
        return fail("%s: optimizer: %s in BF16_Optimizer (grad_accum_dtype fp32) is not modelled yet: leave grad_accum_dtype out", where, word);
    if (p->optimizer_form != OPTIMIZER_FUSED)
        return fail("%s: optimizer_form: %s has one form: leave it out", where, word);
    if (p->kernels == KERNELS_DPX)
        return fail("%s: optimizer: kernels \"dpx\" have no %s of DeepSpeed's partitions: take torch-sdpa or torch-eager", where, word);
    if (!plan_is_data_parallel(p))
        return fail("%s: optimizer: %s beside tensor, context or pipeline parallelism is not modelled yet", where, word);
    return 0;
}

static int check_optimizer(const struct plan *p, const char *where, const char *word)
{
    if (optimizer_traits(p->optimizer)->by == BY_BITSANDBYTES || p->optimizer == OPTIMIZER_AO_ADAMW8 || p->optimizer == OPTIMIZER_AO_ADAMW4)
        return check_clients(p, where, word);
    if (p->optimizer != OPTIMIZER_MUON)
        return fail("%s: optimizer: DeepSpeed is planned with adamw, muon, bitsandbytes' and torchao's of 8 and 4 bits so far, not with %s", where, word);
    if (optimizer_check_whole(p, where) < 0 || check_muon(p, where) < 0)
        return -1;
    return p->kernels == KERNELS_DPX ? optimizer_check_own(p, where, word) : 0;
}

/* AutoTP in training, by transformers' plan (engine._apply_autotp_partitioning(), module_inject/ of DeepSpeed 0.19.6). */
static int check_autotp(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    bool biased = false;

    for (int t = m->block0; t < m->block0 + m->per_block; t++)
        biased |= m->tensors[t].is_bias;
    if (plan_version(p) < 19)
        return fail("%s: parallel.tensor: AutoTP is known of DeepSpeed 0.19.6 and 0.19.8: leave framework_version out or set one of them",
                    where);
    if (p->kernels != KERNELS_TORCH_SDPA)
        return fail("%s: kernels: AutoTP is modelled for torch-sdpa, not \"%s\"", where, kernels_name(p->kernels));
    if (!family_for(m)->autotp || biased || m->tied)
        return fail("%s: parallel.tensor: %s: AutoTP is modelled for llama's and mistral's layers without biases and with a head of their own "
                    "so far", where, m->name);
    if (m->vocab % p->parallel.tensor)
        return fail("%s: parallel.tensor: the %" PRId64 " rows of %s's head do not divide by %" PRId64 " ranks: not modelled yet", where, m->vocab,
                    m->name, p->parallel.tensor);
    if (p->ds.offload_optimizer.device != OFFLOAD_NONE || p->ds.offload_param.device != OFFLOAD_NONE || p->ds.zero_hpz_partition_size > 1 ||
        (p->strategy == STRAT_ZERO1 && p->ds.grad_accum_fp32) || p->parallel.context > 1)
        return fail("%s: parallel.tensor: AutoTP beside parallel.context, offload, hpZ, or BF16_Optimizer (grad_accum_dtype fp32 at stage 1) is not "
                    "modelled yet", where);
    if (p->loss != LOSS_FP32)
        return fail("%s: loss: with parallel.tensor fp32", where);
    return attention_masked(p) ? fail("%s: parallel.tensor: not modelled for attention with a mask", where) : 0;
}

/* What stops register_with_transformers() and the attention that it registers (runtime/sequence_parallel/ulysses_sp.py). */
static int check_ulysses_sp(const struct plan *p, const char *where)
{
    if (p->kernels != KERNELS_TORCH_SDPA)
        return fail("%s: kernels: DeepSpeed's Ulysses takes the place of scaled_dot_product_attention(): torch-sdpa, or dpx, not \"%s\"",
                    where, kernels_name(p->kernels));
    if (family_for(&p->model)->no_kv_heads)
        return fail("%s: parallel.context: UlyssesSPAttentionHF reads num_key_value_heads, which the config of %s (%s) does not have",
                    where, p->model.name, p->model.family);
    if (attention_masked(p))
        return fail("%s: parallel.context: %s's attention gets a mask here, which UlyssesSPAttentionHF drops: windows would be ignored",
                    where, p->model.name);
    if (attention_choice(p) <= ATTENTION_MATH)
        return fail("%s: parallel.context: no fused kernel takes %s's attention: not modelled with Ulysses", where, p->model.name);
    if (p->recompute == RECOMPUTE_SELECTIVE)
        return fail("%s: recompute: selective would repeat Ulysses' exchanges in backward, which is not modelled: take full, or none", where);
    return parallel_check_heads(p, p->parallel.context, true, where);
}

/* DeepSpeed-Ulysses: engine.py, runtime/zero/, bf16_optimizer.py of 0.19.6 and 0.19.8. */
static int check_context(const struct plan *p, const char *where)
{
    const struct parallel_options *of = &p->parallel;

    if (plan_version(p) < 19)
        return fail("%s: parallel.context: Ulysses is known of DeepSpeed 0.19.6 and 0.19.8: leave framework_version out or set one of "
                    "them", where);
    if (of->context_method != CONTEXT_ULYSSES || of->context_balance)
        return fail("%s: parallel.context_%s: DeepSpeed has ulysses alone, where every rank has all positions of its heads: %s", where,
                    of->context_balance ? "balance" : "method", of->context_balance ? "false" : "\"ulysses\"");
    if (p->ds.communication_dtype >= 0 && p->ds.communication_dtype != DT_FP32)
        return fail("%s: deepspeed.communication_data_type: with parallel.context DeepSpeed reduces in fp32 all the same "
                    "(seq_parallel_communication_data_type)", where);
    if (p->strategy == STRAT_ZERO1 && p->precision == DT_BF16 && p->ds.grad_accum_fp32)
        return fail("%s: deepspeed.grad_accum_dtype: fp32 makes stage 1 BF16_Optimizer, whose first step fails with parallel.context in "
                    "get_global_norm_of_tensors(): \"%s\" (it takes ranks that share positions for tensor-parallel ones, of which all "
                    "but the first have nothing to add): leave it out", where,
                    plan_has_deepspeed_0_19_8(p) ? "RuntimeError: stack expects a non-empty TensorList" : "IndexError: list index out of range");
    if (p->kernels == KERNELS_DPX)
        return parallel_check_heads(p, of->context, false, where);
    return check_ulysses_sp(p, where);
}

static int check_run(const struct plan *p)
{
    if (p->ds.aio.block_size % 4096)
        return fail("deepspeed.aio.block_size: dpxrun moves files in multiples of 4096 bytes");
    return 0;
}

/* ---- groups of stage 3 ---- */

/* groups._create_zero_param_parallel_group(): runs of at most so many ranks, a communicator of their own also where that is all. */
static void secondary(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t n = p->ds.zero_hpz_partition_size, ranks = plan_data_ranks(p);

    if (n > 1)
        plan_groups_add(out, m, GROUP_SECONDARY, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | PLAN_SHARDED,
                                                                      .run = n < ranks ? n : ranks });
    if (m->size[AXIS_TENSOR] > 1)       /* beside AutoTP barriers, and the comparison of traces, are of all ranks */
        plan_groups_add(out, m, GROUP_WORLD, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | PLAN_SHARDED | MESH_AXIS(AXIS_TENSOR) });
}

/* groups._get_local_all_to_all_group(): the two levels of quantised reductions; on one node they are not used. */
static void levels(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t node = plan_quantised_node(p);
    unsigned all = MESH_AXIS(AXIS_REPLICA) | PLAN_SHARDED;

    if (node == 0)
        return;
    plan_groups_add(out, m, GROUP_NODE, (struct group_rule){ .axes = all, .run = node });
    plan_groups_add(out, m, GROUP_ACROSS, (struct group_rule){ .axes = all, .over = node });
}

static void stage3_groups(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    plan_groups_hybrid(m, m->size[AXIS_REPLICA] > 1, m->size[AXIS_REPLICA] > 1, out);
    secondary(p, m, out);
    levels(p, m, out);
}

/* ---- rows ---- */

/* engine.allreduce_gradients: stages 2 and 3 reduce each micro-step, 0 and 1 the last. */
#define DEEPSPEED .tool = &framework_deepspeed_tool, .syncs = OF_STRATEGY(STRAT_ZERO2) | OF_STRATEGY(STRAT_ZERO3), \
                  .lone_expert_data = true, .units = OF_UNIT(UNIT_MODULE), .units_text = "module", \
                  .check_overflow = check_overflow, .sequence = true, .context_method = CONTEXT_ULYSSES, \
                  .check = check, .check_train = check_train, .check_optimizer = check_optimizer, \
                  .mixtures = MIXTURES_ALIKE, .check_experts = autoep_check, .check_expert_ranks = autoep_check_ranks, \
                  .check_tensor = check_autotp, .check_context = check_context, \
                  .check_pipeline = deepspeed_check_pipeline, .runs_pipelines = true, .ends_alone = true, \
                  .pipelines_fold = OF_PIPELINE(PIPELINE_1F1B), .resolve = resolve, .orthogonalises = orthogonalises, \
                  .meets_tied_grads = true, .runs_context = true, .check_run = check_run

const struct framework framework_deepspeed_0  = { DEEPSPEED, .loss_scaling = LOSS_SCALING_DEEPSPEED_0 };
const struct framework framework_deepspeed_12 = { DEEPSPEED, .loss_scaling = LOSS_SCALING_DEEPSPEED };
const struct framework framework_deepspeed_3  = { DEEPSPEED, .loss_scaling = LOSS_SCALING_DEEPSPEED, .unit = UNIT_MODULE,
                                                  .state_groups = stage3_groups, .records_streams = true };
