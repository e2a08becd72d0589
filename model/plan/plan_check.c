/* plan_check.c -- what a dialect refuses, with the key named.
 *
 * Ranges come from the rows of the table of knobs; here are the rules that join two
 * options, or an option and the model or cluster.  A plan that passes needs no
 * further check by a lowering. */
#include "model/plan/environment.h"
#include "model/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/attention.h"
#include "model/plan/experts_check.h"
#include "model/plan/float8.h"
#include "model/plan/framework.h"
#include "model/plan/graphs.h"
#include "model/plan/knob.h"
#include "model/plan/liger.h"
#include "model/plan/loss_check.h"
#include "model/plan/modules_apart.h"
#include "model/plan/optimizer_check.h"
#include "model/plan/parallel_check.h"
#include "model/plan/qat.h"
#include "model/plan/hybrid_check.h"
#include "model/plan/recorded_check.h"
#include "model/plan/train_check.h"

/* ---- sizes ---- */

/* a*b*c without overflow, or -1: the key that makes the product too large. */
static int check_product(const char *where, const char *key, const char *what,
                         int64_t a, int64_t b, int64_t c)
{
    int64_t ab, abc;

    if (checked_mul(a, b, &ab) && checked_mul(ab, c, &abc))
        return 0;
    return fail("%s: %s: %s exceeds 2^60", where, key, what);
}

/* The largest activation of a block or the head, in elements of 8 bytes: what a
 * lowering multiplies first. */
static int check_sizes(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    int64_t widest = m->vocab > m->ffn ? m->vocab : m->ffn;
    int64_t tokens = p->micro_batch * p->seq;       /* at most 2^44: ranges were checked */

    if (widest < m->hidden)
        widest = m->hidden;
    if (widest < m->experts_used * (2 * m->expert_ffn + m->hidden) + m->experts)       /* at most 2^51: hf_config.c */
        widest = m->experts_used * (2 * m->expert_ffn + m->hidden) + m->experts;
    if (check_product(where, "seq", "micro_batch * seq * the model's widest layer * 8 bytes",
                      tokens, widest, 8) < 0
        || check_product(where, "seq", "micro_batch * heads * seq^2 * 8 bytes",
                         tokens, p->seq * 8, m->heads > 0 ? m->heads : 1) < 0
        || check_product(where, "accumulation", "tokens in a global batch",
                         tokens, p->accumulation, p->cluster.world_size) < 0
        || check_product(where, "cluster", "parameters * 16 bytes * world_size",
                         m->params, 16, p->cluster.world_size) < 0)
        return -1;
    if (family_for(m)->position_table && p->seq > m->context)
        return fail("%s: seq: %" PRId64 " is beyond the %" PRId64 " positions in the table of %s", where, p->seq, m->context, m->name);
    if (m->position == POS_LEARNED && m->positions > 0 && p->seq > m->positions)
        return fail("%s: seq: %" PRId64 " is beyond the %" PRId64 " learned positions of %s",
                    where, p->seq, m->positions, m->name);
    return 0;
}

/* ---- common options ---- */

static int check_version(const struct plan *p, const char *where)
{
    char known[128] = "";
    const char *v;
    size_t n = 0;

    if (!p->framework_version[0])
        return 0;
    for (int i = 0; (v = plan_version_at(p->dialect, i, NULL)) && n < sizeof known; i++) {
        if (!strcmp(v, p->framework_version))
            return 0;
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", v);
    }
    return fail("%s: framework_version: \"%s\" is not known for %s; known: %s", where,
                p->framework_version, dialect_name(p->dialect), known[0] ? known : "none");
}

static int check_dtypes(const struct plan *p, const char *where)
{
    bool wire_follows = p->dialect == DIALECT_PAPER
                     || (p->dialect == DIALECT_TORCH && p->strategy != STRAT_FSDP);
    enum dtype only = p->dialect == DIALECT_PAPER ? p->precision
                    : plan_ddp_wire(p);

    if (p->precision > DT_FP16)
        return fail("%s: precision: expected fp32, bf16 or fp16", where);
    if (p->reduce_dtype > DT_FP16)
        return fail("%s: reduce_dtype: expected fp32, bf16 or fp16", where);
    /* 16-bit types take each other's rate, or fp32's; nothing else has fp32's.  A host states none. */
    if (p->precision == DT_FP32 && !(p->cluster.gpu.fp32 > 0)
        && (p->cluster.gpu.fp16 > 0 || p->cluster.gpu.bf16 > 0))
        return fail("%s: cluster: gpu: \"fp32_tflops\" is missing: a plan in fp32 needs it", where);
    if (wire_follows && p->reduce_dtype != only)
        return fail("%s: reduce_dtype: %s/%s reduces in the %s, %s", where, strategy_name(p->strategy), dialect_name(p->dialect),
                    p->ddp.comm_hook == HOOK_NONE ? "gradients' own dtype" : "dtype of ddp.comm_hook", dtype_name(only));
    return 0;
}

/* What plan_resolve() derives must not have been set to something else. */
static int check_derived(const struct plan *p, const char *where)
{
    struct plan as_it_is = *p;

    plan_resolve(&as_it_is);
    if (as_it_is.sync_every_micro_step != p->sync_every_micro_step)
        return fail("%s: sync_every_micro_step: %s/%s reduces %s", where,
                    strategy_name(p->strategy), dialect_name(p->dialect),
                    as_it_is.sync_every_micro_step ? "after every micro-step"
                                                   : "after the last micro-step only");
    if (as_it_is.reduce_dtype != p->reduce_dtype)
        return fail("%s: reduce_dtype: deepspeed.communication_data_type says %s", where,
                    dtype_name(as_it_is.reduce_dtype));
    return 0;
}

/* A block compiled by itself is one graph where hooks of FSDP, either one's, stand around it.  FSDP1's must show the original parameters: "FSDP with
 * use_orig_params=False" is among what TorchDynamo does not support (_dynamo/variables/builder.py, wrap_module()).  Inside DDP.forward() TorchDynamo cuts
 * each graph where one of DDP's buckets is full (torch_split.h). */
static int compiles_there(const struct plan *p, const char *where)
{
    if (p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH) {
        if (!plan_is_data_parallel(p))
            return fail("%s: kernels: torch-compile is modelled for ddp/torch in data parallelism alone", where);
        if (training_is_lora(&p->train))
            return fail("%s: kernels: torch-compile beside adapters is modelled for fsdp/torch and fsdp/torch-fsdp1, not for ddp/torch", where);
        if (plan_recipe(p).autocast && family_for(&p->model)->qk_norm_rotated)
            return fail("%s: kernels: torch-compile under autocast is not modelled for %s, which norms q and k behind the rotation", where, p->model.family);
        return 0;
    }
    if (p->strategy != STRAT_FSDP || (p->dialect != DIALECT_TORCH && !framework_of(p)->flat_units))
        return fail("%s: kernels: torch-compile is modelled for ddp/torch, fsdp/torch and fsdp/torch-fsdp1, blocks compiled one by one", where);
    if (!framework_of(p)->flat_units)
        return 0;
    if (!p->fsdp.use_orig_params)
        return fail("%s: fsdp.use_orig_params: kernels \"torch-compile\" take FSDP1's units only where it is true", where);
    if (p->fsdp.wrap_adapters)
        return fail("%s: fsdp.wrap_adapters: units inside a block would break the graph of torch-compile", where);
    return 0;
}

/* Kernel set torch-compile is torchtitan's: each block compiled by itself (fullgraph). */
static int check_compile(const struct plan *p, const char *where)
{
    if (p->kernels != KERNELS_TORCH_COMPILE)
        return 0;
    if (!family_for(&p->model)->compiles)
        return fail("%s: kernels: torch-compile is not modelled for %s", where, p->model.family);
    if (compiles_there(p, where) < 0)
        return -1;
    if (p->unit == UNIT_HALF_BLOCK)
        return fail("%s: unit: torch-compile compiles whole blocks; hooks in the middle would break the graph", where);
    if (p->recompute == RECOMPUTE_SELECTIVE)
        return fail("%s: recompute: with torch-compile none, full or op", where);
    if (p->dropout > 0)
        return fail("%s: dropout: not modelled for torch-compile, which makes its masks by another generator", where);
    if (attention_masked(p) || attention_choice(p) <= ATTENTION_MATH)
        return fail("%s: kernels: torch-compile is modelled for fused attention without a mask", where);
    return 0;
}

static int check_optimizer_form(const struct plan *p, const char *where)
{
    if (p->optimizer_form == OPTIMIZER_FOREACH || !dialect_is_torch(p->dialect))
        return 0;
    if (p->fsdp.cpu_offload)
        return fail("%s: optimizer_form: with fsdp.cpu_offload only foreach is modelled, which on the CPU is a loop", where);
    if (p->kernels == KERNELS_DPX)
        return fail("%s: optimizer_form: kernels \"dpx\" have one AdamW", where);
    return 0;
}

/* save_on_cpu() around a model of PyTorch's kernels. */
static int check_saved(const struct plan *p, const char *where)
{
    if ((p->activation_offload != OFFLOAD_SAVE_ON_CPU && p->activation_offload != OFFLOAD_SAVE_ON_CPU_PINNED)
        || p->kernels == KERNELS_DPX)
        return 0;
    if (p->kernels != KERNELS_TORCH_EAGER && p->kernels != KERNELS_TORCH_SDPA)
        return fail("%s: activation_offload: save_on_cpu of compiled blocks is not modelled: take torch-sdpa or torch-eager", where);
    if (p->recompute != RECOMPUTE_NONE)
        return fail("%s: activation_offload: save_on_cpu around a model that is recomputed is not modelled: recompute \"offload\" "
                    "keeps the inputs of its blocks on the host", where);
    if (p->dialect == DIALECT_DEEPSPEED && p->strategy == STRAT_ZERO3)
        return fail("%s: activation_offload: save_on_cpu copies parameters, which ZeRO-3 has gathered for the moment: not modelled: "
                    "take \"streams\"", where);
    if (!plan_is_data_parallel(p))
        return fail("%s: activation_offload: save_on_cpu with kernels \"%s\" is modelled for data parallelism alone", where,
                    kernels_name(p->kernels));
    return 0;
}

/* NeMo Automodel's apply_submodule_checkpointing(). */
static int check_modules(const struct plan *p, const char *where)
{
    if (p->dialect != DIALECT_TORCH || (p->strategy != STRAT_FSDP && p->strategy != STRAT_DDP)
        || (p->kernels != KERNELS_TORCH_EAGER && p->kernels != KERNELS_TORCH_SDPA) || p->unit == UNIT_HALF_BLOCK)
        return fail("%s: recompute: \"modules\" (attention, MLP and norms apart) is modelled for fsdp/torch and ddp/torch, kernels torch-sdpa "
                    "and torch-eager, units of whole blocks", where);
    if (!modules_apart_fit(&p->model))
        return fail("%s: recompute: \"modules\" is modelled for dense blocks with one norm before attention and one before the MLP%s: "
                    "take full for %s", where, !p->model.recorded && family_for(&p->model)->keeps_names ? ", which hold no name of their output to the block's end" : "", p->model.name);
    if (p->activation_offload != OFFLOAD_NOTHING || p->train.base == BASE_INT8)
        return fail("%s: recompute: \"modules\" beside offloaded activations or int8 layers is not modelled: take full", where);
    return 0;
}

static int check_common(const struct plan *p, const char *where)
{
    if (p->recompute == RECOMPUTE_NONE && p->recompute_interval != 1)
        return fail("%s: recompute_interval: nothing is recomputed; set recompute or leave it out",
                    where);
    if (p->recompute == RECOMPUTE_OP && (p->kernels == KERNELS_DPX || !dialect_is_torch(p->dialect)))
        return fail("%s: recompute: \"op\" is torchtitan's, of PyTorch's kernels in dialects torch and torch-fsdp1", where);
    if (p->recompute == RECOMPUTE_REENTRANT && (p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH || p->recompute_interval != 1
                                                || (p->kernels != KERNELS_TORCH_EAGER && p->kernels != KERNELS_TORCH_SDPA)))
        return fail("%s: recompute: \"reentrant\" (use_reentrant=True) is modelled for ddp/torch, every block, kernels torch-sdpa and "
                    "torch-eager: take full, which keeps as much but beside int8 layers", where);
    if (p->recompute == RECOMPUTE_MODULES && check_modules(p, where) < 0)
        return -1;
    if (p->recompute_interval > p->model.layers)
        return fail("%s: recompute_interval: the model has %" PRId64 " blocks", where,
                    p->model.layers);
    if (p->activation_offload != OFFLOAD_NOTHING && p->recompute == RECOMPUTE_OFFLOAD)
        return fail("%s: activation_offload: recompute \"offload\" keeps the inputs of recomputed blocks in pinned memory "
                    "already: with recompute \"full\" activation_offload says how all blocks do", where);
    if ((p->activation_offload == OFFLOAD_STREAMS || p->recompute == RECOMPUTE_OFFLOAD) && p->kernels != KERNELS_DPX
        && plan_recipe(p).autocast)
        return fail("%s: %s: under autocast blocks keep casts of their weights, too, which stay on the device: not counted yet "
                    "for kernels \"%s\"", where, p->recompute == RECOMPUTE_OFFLOAD ? "recompute" : "activation_offload",
                    kernels_name(p->kernels));
    if (check_saved(p, where) < 0)
        return -1;
    if (p->dropout >= 1)
        return fail("%s: dropout: must be below 1", where);
    if (p->deterministic && (p->dialect != DIALECT_PAPER || p->strategy == STRAT_DP))
        return fail("%s: deterministic: no framework sums in rank order: dialect \"paper\" does, but for strategy \"dp\"",
                    where);
    if (p->deterministic && p->shard_group != plan_data_ranks(p) && p->strategy != STRAT_DDP)
        return fail("%s: deterministic: not with shard_group: sums within groups round in another order", where);
    return 0;
}

/* ---- units and groups ---- */

static int check_unit(const struct plan *p, const char *where)
{
    char unit[32];

    if (!knob_has(p, "", "unit"))
        return 0;
    plan_unit_text(p, unit, sizeof unit);
    if (!(framework_of(p)->units & OF_UNIT(p->unit)))      /* no lowering gathers tensor by tensor yet */
        return fail("%s: unit: %s has no unit \"%s\"; it has: %s", where,
                    dialect_name(p->dialect), unit, framework_of(p)->units_text);
    if (p->unit == UNIT_HALF_BLOCK && p->model.parallel)
        return fail("%s: unit: the blocks of %s compute attention and MLP from one input: "
                    "they have no halves", where, p->model.family);
    if (p->unit == UNIT_BLOCKS && (p->unit_blocks < 2 || p->unit_blocks > p->model.layers))
        return fail("%s: unit: \"%s\": the model has %" PRId64 " blocks", where, unit,
                    p->model.layers);
    return 0;
}

static int check_group(const struct plan *p, const char *where)
{
    if (!plan_group_is_choice(p->strategy, p->dialect))
        return p->shard_group == plan_data_ranks(p) ? 0
             : fail("%s: shard_group: %s/%s has one group of all %" PRId64 " ranks", where,
                    strategy_name(p->strategy), dialect_name(p->dialect), plan_data_ranks(p));
    if (p->shard_group < 1 || plan_data_ranks(p) % p->shard_group)
        return fail("%s: shard_group: %" PRId64 " does not divide the %s %" PRId64, where, p->shard_group,
                    plan_is_data_parallel(p) ? "world size" : "ranks that have the same tensors,", plan_data_ranks(p));
    if (p->shard_group % p->parallel.context)
        return fail("%s: shard_group: %" PRId64 " ranks, context-parallel ones among them, which are %" PRId64, where,
                    p->shard_group, p->parallel.context);
    return framework_of(p)->check_group ? framework_of(p)->check_group(p, where) : 0;
}

int plan_check(const struct plan *p, const char *where)
{
    const struct framework *f;
    const struct knob *k;

    if (p->strategy >= NSTRATEGY || p->dialect >= NDIALECT || !dialect_has(p->dialect, p->strategy))
        return fail("%s: dialect: has no such strategy", where);
    f = framework_of(p);
    if (family_for(&p->model)->megatron_only && !f->megatron_layers)
        return fail("%s: model: %s is what Megatron-LM's options describe, and no model of transformers: dialect megatron trains it", where, p->model.family);
    if (p->cluster.world_size < 1 || p->model.params < 1)
        return fail("%s: model and cluster must be set", where);
    if (recorded_check(p, where) < 0 || hybrid_check(p, where) < 0 || experts_check(p, where) < 0 || parallel_check_ranks(p, where) < 0)
        return -1;
    for (int i = 0; (k = knob_at(i)); i++)
        if ((k->cells & knob_cell(p)) && knob_check(p, k, where) < 0)
            return -1;
    if (train_check_ranks(p, where) < 0 || (f->check_first && f->check_first(p, where) < 0) || parallel_check(p, where) < 0)
        return -1;
    if (check_group(p, where) < 0 || experts_check_ranks(p, where) < 0)
        return -1;
    if (check_version(p, where) < 0 || attention_check(p, where) < 0 || check_dtypes(p, where) < 0 || check_sizes(p, where) < 0
        || check_derived(p, where) < 0 || check_common(p, where) < 0
        || check_unit(p, where) < 0 || (f->check && f->check(p, where) < 0) || loss_check(p, where) < 0 || liger_check(p, where) < 0
        || check_optimizer_form(p, where) < 0 || check_compile(p, where) < 0 || graphs_check(p, where) < 0
        || environment_check(p, where) < 0 || train_check(p, where) < 0 || optimizer_check(p, where) < 0 || float8_check(p, where) < 0 || qat_check(p, where) < 0)
        return -1;
    return 0;
}
