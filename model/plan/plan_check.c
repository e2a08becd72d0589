/* plan_check.c -- what a dialect refuses, with the key named.
 *
 * Ranges come from the rows of the table of knobs; here are the rules that join two
 * options, or an option and the model or cluster.  A plan that passes needs no
 * further check by a lowering. */
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
#include "model/plan/optimizer_traits.h"
#include "model/plan/parallel_check.h"
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

/* Kernel set torch-compile is torchtitan's: FSDP2, each block compiled by itself (fullgraph). */
static int check_compile(const struct plan *p, const char *where)
{
    if (p->kernels != KERNELS_TORCH_COMPILE)
        return 0;
    if (!family_for(&p->model)->compiles)
        return fail("%s: kernels: torch-compile is not modelled for %s", where, p->model.family);
    if (p->strategy != STRAT_FSDP || p->dialect != DIALECT_TORCH)
        return fail("%s: kernels: torch-compile is modelled for fsdp/torch, blocks compiled one by one", where);
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

/* engine.py, _configure_fp16_optimizer(): stage 0 in 16 bits steps FusedAdam in FP16_Optimizer, every other optimizer in
 * FP16_UnfusedOptimizer. */
static int check_deepspeed_form(const struct plan *p, const char *where)
{
    if (p->strategy == STRAT_DDP && p->precision != DT_FP32 && p->optimizer_form != OPTIMIZER_FUSED)
        return fail("%s: optimizer_form: torch's AdamW of stage 0 in %s is in DeepSpeed's FP16_UnfusedOptimizer, which is not modelled: "
                    "leave it out, or take zero1", where, dtype_name(p->precision));
    return 0;
}

static int check_optimizer_form(const struct plan *p, const char *where)
{
    if (p->dialect == DIALECT_DEEPSPEED)
        return check_deepspeed_form(p, where);
    if (p->optimizer_form == OPTIMIZER_FOREACH)
        return 0;
    if (p->fsdp.cpu_offload)
        return fail("%s: optimizer_form: with fsdp.cpu_offload only foreach is modelled, which on the CPU is a loop", where);
    if (p->kernels == KERNELS_DPX)
        return fail("%s: optimizer_form: kernels \"dpx\" have one AdamW", where);
    if (p->dialect == DIALECT_TORCH_FSDP1 && p->fsdp.use_orig_params && p->optimizer_form == OPTIMIZER_LOOP)
        return fail("%s: optimizer_form: foreach and fused are modelled for fsdp.use_orig_params, whose shards are of unequal tensors",
                    where);
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

/* ---- optimizers ---- */

/* Those that dpx has kernels for; of whole tensors: rows and columns, blocks of 256. */
static int check_own_optimizer(const struct plan *p, const char *where, const char *word)
{
    bool whole = p->optimizer == OPTIMIZER_ADAFACTOR || p->optimizer == OPTIMIZER_BNB_ADAMW8;

    if (!whole && p->optimizer != OPTIMIZER_SGD && p->optimizer != OPTIMIZER_BNB_LION)
        return fail("%s: optimizer: kernels \"dpx\" and dialect paper have adamw, sgd, lion_32bit, adafactor and adamw_bnb_8bit, not %s",
                    where, word);
    if (whole && p->strategy != STRAT_DDP)
        return fail("%s: optimizer: %s needs whole tensors, which %s divides among ranks: take strategy ddp", where, word,
                    strategy_name(p->strategy));
    if (whole && !plan_is_data_parallel(p))
        return fail("%s: optimizer: %s needs whole tensors: without tensor, context or pipeline parallelism", where, word);
    if (p->dialect == DIALECT_PAPER && p->ds.offload_optimizer.device != OFFLOAD_NONE)
        return fail("%s: optimizer: with deepspeed.offload_optimizer only adamw is modelled", where);
    return 0;
}

/* Newton-Schulz's products leave matrices with fewer rows than ranks whole, and DTensor adds nothing whole to a part in place
 * ("in-place operations that require placement changes are not supported", 2.15). */
static int check_rows(const struct plan *p, const char *where)
{
    int64_t ranks = plan_data_ranks(p);

    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        if (plan_orthogonalises(p, t) && t->shape[0] < ranks)
            return fail("%s: optimizer: muon: %s has %" PRId64 " rows, fewer than %" PRId64 " ranks: PyTorch cannot add the whole update to its "
                        "parts: take fewer ranks, or another optimizer", where, t->name, t->shape[0], ranks);
    }
    return 0;
}

/* MuonWithAuxAdam of 0.19.8 under stages 1 and 2. */
static int check_deepspeed_muon(const struct plan *p, const char *where)
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
static int check_deepspeed_bnb(const struct plan *p, const char *where, const char *word)
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

/* Of whole matrices under DDP, of DTensors whose mesh has one dimension under FSDP2. */
static int check_muon(const struct plan *p, const char *where)
{
    bool fsdp2 = p->strategy == STRAT_FSDP;

    if (!plan_is_data_parallel(p) || p->parallel.expert > 1)
        return fail("%s: optimizer: muon orthogonalises whole matrices; of matrices that other ranks have a part of by tensor, context, "
                    "pipeline or expert parallelism it is not modelled: leave those out", where);
    if (p->dialect == DIALECT_DEEPSPEED)
        return check_deepspeed_muon(p, where);
    if (fsdp2 && p->shard_group != plan_data_ranks(p))
        return fail("%s: optimizer: muon of matrices on a mesh of two dimensions (HSDP) is not modelled: leave shard_group out", where);
    if (fsdp2 && p->fsdp.cpu_offload)
        return fail("%s: optimizer: muon of matrices on the host is not modelled: leave fsdp.cpu_offload out", where);
    if (fsdp2 && plan_version(p) < 2015)
        return fail("%s: optimizer: muon of FSDP2's DTensors is known of PyTorch 2.15: leave framework_version out", where);
    if (fsdp2 && p->float8.recipe != FLOAT8_NONE)
        return fail("%s: optimizer: muon of weights that FSDP2 gathers in 8 bits is not modelled: leave fp8 out", where);
    return fsdp2 ? check_rows(p, where) : 0;
}

static int check_optimizer(const struct plan *p, const char *where)
{
    enum optimizer_library by = optimizer_traits(p->optimizer)->by;
    bool bnb = by == BY_BITSANDBYTES, torchao = by == BY_TORCHAO;
    const char *word;

    if (p->optimizer == OPTIMIZER_ADAMW)
        return 0;
    word = knob_words("optimizer")[p->optimizer];
    if (p->dialect == DIALECT_PAPER)
        return check_own_optimizer(p, where, word);
    if (p->dialect == DIALECT_DEEPSPEED && bnb)
        return check_deepspeed_bnb(p, where, word);
    if (p->dialect == DIALECT_DEEPSPEED && p->optimizer != OPTIMIZER_MUON)
        return fail("%s: optimizer: DeepSpeed is planned with adamw, muon and bitsandbytes' so far, not with %s", where, word);
    if (p->strategy == STRAT_FSDP && optimizer_traits(p->optimizer)->not_fsdp2)
        return fail("%s: optimizer: %s of FSDP2's sharded tensors (DTensor) %s", where, word, optimizer_traits(p->optimizer)->not_fsdp2);
    if (optimizer_traits(p->optimizer)->whole && (!plan_is_data_parallel(p) || p->parallel.expert > 1))
        return fail("%s: optimizer: %s of tensors that other ranks have a part of is not modelled: leave \"parallel\" out", where, word);
    if (p->optimizer == OPTIMIZER_MUON && check_muon(p, where) < 0)
        return -1;
    if (p->optimizer != OPTIMIZER_SGD && p->dialect != DIALECT_DEEPSPEED && p->optimizer_form != OPTIMIZER_FOREACH)
        return fail("%s: optimizer_form: %s has one form: leave it out", where, word);
    if (p->optimizer == OPTIMIZER_AO_ADAMW && plan_recipe(p).kept != DT_BF16)
        return fail("%s: optimizer: %s rounds parameters kept in bf16: set %s.model_dtype to bf16", where, word,
                    p->strategy == STRAT_FSDP ? "fsdp" : "ddp");
    if (plan_recipe(p).kept != DT_FP32 && !torchao && !bnb &&
        !(p->optimizer == OPTIMIZER_MUON && (p->strategy == STRAT_FSDP || p->dialect == DIALECT_DEEPSPEED)))
        return fail("%s: optimizer: %s of parameters in %s is not modelled yet", where, word, dtype_name(plan_recipe(p).kept));
    if (p->fsdp.cpu_offload && knob_has(p, "fsdp", "cpu_offload"))
        return fail("%s: optimizer: with fsdp.cpu_offload only adamw is modelled", where);
    return p->kernels == KERNELS_DPX ? check_own_optimizer(p, where, word) : 0;
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
    if (recorded_check(p, where) < 0 || experts_check(p, where) < 0 || parallel_check_ranks(p, where) < 0)
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
        || train_check(p, where) < 0 || check_optimizer(p, where) < 0 || float8_check(p, where) < 0)
        return -1;
    return 0;
}
