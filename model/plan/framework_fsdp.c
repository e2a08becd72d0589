/* framework_fsdp.c -- PyTorch's fully_shard() (FSDP2), as torchtitan wraps it, and FullyShardedDataParallel (FSDP1). */
#include "model/plan/framework.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/arch/packed.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/loss_check.h"
#include "model/plan/optimizer_check.h"
#include "model/plan/optimizer_traits.h"
#include "model/plan/root_units.h"
#include "model/plan/titan_check.h"
#include "model/plan/train_check.h"

static const struct framework_version fsdp1_versions[] = {
    { "2.15", "as 2.2" },
    { "2.2",  "scaled_dot_product_attention runs FlashAttention-2" },
    { "2.1",  "hybrid sharding all-reduces on a stream of its own" },
    { "2.0",  "hybrid sharding all-reduces on the reduce-scatter's stream; checkpoints run whole blocks again" },
};

const struct framework_tool framework_fsdp1_tool = {
    .name = "torch-fsdp1", .versions = fsdp1_versions, .nversions = sizeof fsdp1_versions / sizeof *fsdp1_versions, .torch = true,
};

/* ---- number formats ---- */

static bool is_packed(const struct plan *p) { return packed_nf4(p->train.base); }

static double in_16_bits(const struct plan *p)
{
    bool loaded = training_is_lora(&p->train) && p->kernels != KERNELS_DPX;

    return (is_packed(p) || loaded) && p->precision == DT_BF16 ? DT_BF16 : -1;
}

/* FSDP1 flattens what trains with what does not only as tensors of their own. */
static double fsdp1_model_dtype(const struct plan *p)
{
    return is_packed(p) || p->fsdp.wrap_adapters ? in_16_bits(p) : -1;
}

/* Parameters in 16 bits are reduced so, unless adapters beside them are in fp32. */
static bool reduces_as_model(const struct plan *p) { return p->fsdp.model_dtype >= 0 && p->fsdp.model_dtype != DT_FP32 && !plan_has_wide_adapters(p); }

/* FSDP2 filled reduce_dtype from param_dtype up to 2.14, and since then reduces in the parameters' own dtype, which is fp32. */
static double fsdp2_reduce_dtype(const struct plan *p)
{
    if (reduces_as_model(p))
        return p->fsdp.model_dtype;
    if (p->train.base != BASE_PLAIN && in_16_bits(p) >= 0)
        return in_16_bits(p);
    return plan_torch_before(p, 2015) ? p->precision : DT_FP32;
}

/* MixedPrecision.reduce_dtype is filled from param_dtype. */
static double fsdp1_reduce_dtype(const struct plan *p)
{
    if (reduces_as_model(p))
        return p->fsdp.model_dtype;
    return p->train.base != BASE_PLAIN && fsdp1_model_dtype(p) >= 0 ? fsdp1_model_dtype(p) : p->precision;
}

static void recipe(const struct plan *p, struct recipe *r)
{
    r->kept = r->grad = DT_FP32;
    r->optimizer = 8;
    if (p->fsdp.model_dtype < 0 || plan_has_wide_adapters(p))
        return;
    r->kept = r->used = r->grad = r->wire_gather = (enum dtype)p->fsdp.model_dtype;
    r->optimizer = 2 * (int)dtype_bytes(r->kept);
}

/* accelerate leaves what FSDP2 has beside packed weights as PEFT made it (fsdp2_prepare_model()). */
static bool fsdp2_wide_adapters(const struct plan *p)
{
    return p->fsdp.model_dtype >= 0 && !p->train.narrow && (p->train.base == BASE_PLAIN || p->fsdp.autocast_adapter_dtype);
}

static bool fsdp1_wide_adapters(const struct plan *p) { return p->fsdp.model_dtype >= 0; }

/* ---- what is refused ---- */

/* Pure bf16: parameters, gradients and states. */
static int check_dtype(const struct plan *p, const char *where)
{
    if (p->fsdp.model_dtype < 0)
        return 0;
    if (p->fsdp.model_dtype != DT_BF16 || p->precision != DT_BF16)
        return fail("%s: fsdp.model_dtype: bf16 with precision bf16, or null", where);
    if (p->kernels == KERNELS_DPX)
        return fail("%s: fsdp.model_dtype: kernels \"dpx\" update weights in fp32 only", where);
    return 0;
}

static int check_reshard_key(const struct plan *p, const char *where, const char *key, int64_t k)
{
    if (k < -1)
        return fail("%s: fsdp.%s: expected null, true, false or ranks", where, key);
    if (k < 2)
        return 0;
    if (k == p->shard_group)
        return fail("%s: fsdp.%s: %" PRId64 " is the whole shard group: write true", where, key, k);
    if (p->shard_group % k)
        return fail("%s: fsdp.%s: %" PRId64 " does not divide the shard group of %" PRId64 " ranks",
                    where, key, k, p->shard_group);
    return 0;
}

/* Its states are torch.optim.AdamW's. */
static int check_states(const struct plan *p, const char *where)
{
    static const char *const key = "fsdp.optimizer_offload";

    if (!p->fsdp.optimizer_offload)
        return 0;
    if (p->fsdp.cpu_offload)
        return fail("%s: %s: with fsdp.cpu_offload the states are the host's already: set one of them to false", where, key);
    if (p->kernels == KERNELS_DPX)
        return fail("%s: %s: kernels \"dpx\" keep states on the device: take torch-sdpa, torch-compile or torch-eager", where, key);
    if (p->optimizer != OPTIMIZER_ADAMW)
        return fail("%s: %s: the states of adamw alone are modelled there", where, key);
    return 0;
}

/* qwen3_moe's router is prime-rl's: softmax before the choice, no bias beside it. */
static int check_grouped(const struct plan *p, const char *where)
{
    static const char *const key = "fsdp.grouped_experts";

    if (!p->fsdp.grouped_experts)
        return 0;
    if (p->kernels == KERNELS_DPX || p->parallel.pipeline > 1)
        return fail("%s: %s: planned with torch-sdpa and torch-eager, without a pipeline", where, key);
    return family_for(&p->model)->autoep && !model_blocks_differ(&p->model) ? 0
         : fail("%s: %s: planned for mixtral and qwen3_moe with experts in every block", where, key);
}

static int check_loop(const struct plan *p, const char *where)
{
    static const char *const key = "fsdp.reads_positions";

    if (!p->fsdp.reads_positions)
        return 0;
    if (p->kernels == KERNELS_DPX)
        return fail("%s: %s: dpx's own executor reads no positions back: set it to false", where, key);
    return p->parallel.pipeline > 1 ? fail("%s: %s: prime-rl's trainer has no pipeline", where, key) : 0;
}

static int check_reshard(const struct plan *p, const char *where)
{
    if (check_reshard_key(p, where, "reshard_after_forward", p->fsdp.reshard_after_forward) < 0)
        return -1;
    return check_reshard_key(p, where, "root_reshard_after_forward",
                             p->fsdp.root_reshard_after_forward);
}

static int check_root_units(const struct plan *p, const char *where)
{
    const char *why = p->fsdp.root_units == ROOT_TOGETHER ? NULL : root_units_refused(p);

    if (!why && p->fsdp.root_units == ROOT_EMBED && p->model.tied)
        why = "a tied embedding belongs to the head's unit, which is the root's here";
    bool called = !why && p->fsdp.root_units == ROOT_EMBED_HEAD && p->loss == LOSS_LINEAR_CHUNKS;
    if (called && p->model.tied)
        why = "of a tied table a head that the loss calls for each chunk is not planned";
    if (called && p->fsdp.root_reshard_after_forward > 1)
        why = "of a head that the loss calls for each chunk fsdp.root_reshard_after_forward of a number is not planned";
    if (called && p->accumulation > 1 && !p->sync_every_micro_step)
        why = "a head that the loss calls for each chunk is planned where each micro-step is reduced (sync_every_micro_step)";
    if (!why && p->fsdp.root_units == ROOT_EMBED_HEAD && loss_reads_head(p->loss))
        why = "this loss does not call the head's module, so that a unit of the head alone is never gathered";
    return why ? fail("%s: fsdp.root_units: %s: leave it at together", where, why) : 0;
}

static int check_last(const struct plan *p, const char *where)
{
    return p->fsdp.keeps_last_unit && p->unit == UNIT_HALF_BLOCK
         ? fail("%s: fsdp.keeps_last_unit: of halves of blocks it is not modelled: unit \"block\", or blocks", where) : 0;
}

/* Nothing casts what FSDP ignores. */
static int check_ignored(const struct plan *p, const char *where)
{
    struct recipe r = plan_recipe(p);

    return p->fsdp.ignores_experts && r.frozen != r.used
         ? fail("%s: fsdp.ignores_experts: experts outside of FSDP's units are kept in the dtype that computes: fsdp.model_dtype \"bf16\"", where) : 0;
}

static int check_fsdp2(const struct plan *p, const char *where)
{
    return check_dtype(p, where) < 0 || check_ignored(p, where) < 0 || check_last(p, where) < 0 || check_states(p, where) < 0 || check_loop(p, where) < 0 || check_grouped(p, where) < 0 ? -1 : check_root_units(p, where);
}

static int check_fsdp1_group(const struct plan *p, const char *where)
{
    bool hybrid = p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD
               || p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD_ZERO2;

    if (!hybrid && p->shard_group != plan_data_ranks(p))
        return fail("%s: shard_group: %" PRId64 " of %" PRId64 " ranks needs "
                    "fsdp.sharding_strategy HYBRID_SHARD or _HYBRID_SHARD_ZERO2", where,
                    p->shard_group, plan_data_ranks(p));
    return 0;
}

/* fully_sharded_data_parallel.py: "Gradient accumulation outside no_sync() does not work with CPU offloading".  Without shards
 * what forward saves keeps each unit's copy on the device until backward, beside a second one. */
static int check_offload(const struct plan *p, const char *where)
{
    bool hybrid = p->fsdp.sharding_strategy >= FSDP1_HYBRID_SHARD;

    if (!p->fsdp.cpu_offload)
        return 0;
    if (p->accumulation > 1 && p->sync_every_micro_step)
        return fail("%s: sync_every_micro_step: with fsdp.cpu_offload FSDP1 accumulates gradients only within no_sync(): set it to "
                    "false", where);
    if (p->fsdp.sharding_strategy == FSDP1_NO_SHARD || (hybrid ? p->shard_group : p->cluster.world_size) == 1)
        return fail("%s: fsdp.cpu_offload: FSDP1's NO_SHARD, which one rank alone means too, keeps two copies of each unit on the "
                    "device: not modelled; take dialect torch", where);
    return 0;
}

static int check_fsdp1(const struct plan *p, const char *where)
{
    if (p->fsdp.use_orig_params && p->optimizer_form == OPTIMIZER_LOOP)
        return fail("%s: optimizer_form: foreach and fused are modelled for fsdp.use_orig_params, whose shards are of unequal tensors",
                    where);
    return check_dtype(p, where) < 0 ? -1 : check_offload(p, where);
}

static int fsdp1_check_run(const struct plan *p)
{
    if (p->shard_group == 1 && p->cluster.world_size > 1 && p->fsdp.sharding_strategy >= FSDP1_HYBRID_SHARD)
        return fail("a shard group of one rank: FSDP1 never averages gradients between replicas then, so they would "
                    "train apart");
    if (!training_is_all(&p->train) && !p->fsdp.wrap_adapters)
        return fail("train: under torch-fsdp1 dpxrun trains adapters that are units of their own (fsdp.wrap_adapters), and no other part of a "
                    "model; under fsdp of dialect torch it does");
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

/* DTensors of a mesh of one dimension. */
static int check_dtensor_muon(const struct plan *p, const char *where)
{
    if (p->shard_group != plan_data_ranks(p))
        return fail("%s: optimizer: muon of matrices on a mesh of two dimensions (HSDP) is not modelled: leave shard_group out", where);
    if (p->fsdp.cpu_offload)
        return fail("%s: optimizer: muon of matrices on the host is not modelled: leave fsdp.cpu_offload out", where);
    if (plan_version(p) < 2015)
        return fail("%s: optimizer: muon of FSDP2's DTensors is known of PyTorch 2.15: leave framework_version out", where);
    if (p->float8.recipe != FLOAT8_NONE)
        return fail("%s: optimizer: muon of weights that FSDP2 gathers in 8 bits is not modelled: leave fp8 out", where);
    return check_rows(p, where);
}

static int check_dtensor_optimizer(const struct plan *p, const char *where, const char *word)
{
    const char *not = optimizer_traits(p->optimizer)->not_fsdp2;
    bool muon = p->optimizer == OPTIMIZER_MUON;

    if (not)
        return fail("%s: optimizer: %s of FSDP2's sharded tensors (DTensor) %s", where, word, not);
    if (muon && (optimizer_check_whole(p, where) < 0 || check_dtensor_muon(p, where) < 0))
        return -1;
    return optimizer_check_torch(p, where, word);
}

/* Adapters that are units of their own, inside their block's (lower_fsdp1_adapters.c). */
static int check_wrapped(const struct plan *p, const char *where)
{
    const char *needs = p->unit != UNIT_BLOCK ? "unit block"
                      : p->fsdp.forward_prefetch ? "fsdp.forward_prefetch false"
                      : p->recompute == RECOMPUTE_SELECTIVE || p->recompute == RECOMPUTE_MODULES ? "recompute none or full" : NULL;

    if (needs)
        return fail("%s: fsdp.wrap_adapters: adapters as units of their own need %s", where, needs);
    if (training_adapters(&p->model) > ADAPTERS_MOST)
        return fail("%s: fsdp.wrap_adapters: %d matrices of adapters in a block; up to %d are supported", where, training_adapters(&p->model),
                    ADAPTERS_MOST);
    return 0;
}

/* Beside adapters and frozen weights. */
static int fsdp1_check_train(const struct plan *p, const char *where)
{
    if (p->fsdp.wrap_adapters && train_adapters_at(p).ends)
        return fail("%s: lora.target_modules: adapters of the embedding and the head are not planned as units of their own yet "
                    "(fsdp.wrap_adapters)", where);
    if (!p->fsdp.use_orig_params && !p->fsdp.wrap_adapters)
        return fail("%s: fsdp.use_orig_params: FSDP1 flattens tensors that train with frozen ones only with it: set it%s to true", where,
                    training_is_lora(&p->train) ? ", or wrap_adapters," : "");
    if (plan_has_wide_adapters(p) && !p->fsdp.wrap_adapters)
        return fail("%s: fsdp.model_dtype: FSDP1 flattens a unit's tensors in one dtype (\"Must flatten tensors with uniform dtype\"): adapters "
                    "in fp32 beside frozen weights in %s need fsdp.wrap_adapters true", where, dtype_name(plan_recipe(p).frozen));
    if (p->train.modules_to_save[0])
        return fail("%s: lora.modules_to_save: with FSDP1 frozen originals beside their copies get gradients of zeros: not modelled yet",
                    where);
    return p->fsdp.wrap_adapters ? check_wrapped(p, where) : 0;
}

/* ---- groups ---- */

/* FSDP2's reshard_after_forward k, of the units or, where they have none, of the root: a run of k inside
 * the shard group; and the root's own where it is another. */
static void fsdp2_groups(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t units = p->fsdp.reshard_after_forward, root = p->fsdp.root_reshard_after_forward;
    int64_t shard_ranks = m->size[AXIS_SHARD] * m->size[AXIS_CONTEXT];
    int64_t k[2] = { units > 1 ? units : root, units > 1 && root != units ? root : 0 };

    plan_groups_hybrid(m, m->size[AXIS_REPLICA] > 1, m->size[AXIS_REPLICA] > 1, out);
    for (int i = 0; i < 2; i++)
        if (k[i] > 1 && shard_ranks % k[i] == 0)
            plan_groups_add(out, m, i ? GROUP_ROOT_RESHARD : GROUP_RESHARD,
                            (struct group_rule){ .axes = PLAN_SHARDED, .run = k[i] });
}

/* There are two where the strategy is a hybrid one, whatever their sizes; a shard group of one rank falls back to NO_SHARD, without
 * replicas. */
static void fsdp1_groups(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    enum fsdp1_sharding how = p->fsdp.sharding_strategy;
    bool two = how == FSDP1_HYBRID_SHARD || how == FSDP1_HYBRID_SHARD_ZERO2;

    plan_groups_hybrid(m, two, two && m->size[AXIS_SHARD] * m->size[AXIS_CONTEXT] > 1, out);
}

/* ---- rows ---- */

static const struct unit_tried fsdp2_units[] = {
    { UNIT_BLOCK, 1 }, { UNIT_BLOCKS, 2 }, { UNIT_BLOCKS, 4 }, { UNIT_BLOCKS, 8 }, { UNIT_HALF_BLOCK, 1 }, { UNIT_MODEL, 1 },
};
static const struct unit_tried fsdp1_units[] = { { UNIT_BLOCK, 1 }, { UNIT_MODEL, 1 } };

const struct framework framework_fsdp2 = {
    .tool = &framework_torch_tool,
    .syncs = EVERY_STRATEGY, .sync_is_choice = EVERY_STRATEGY, .group_is_choice = EVERY_STRATEGY, .tries_groups = true,
    .state_groups = fsdp2_groups,
    .unit = UNIT_BLOCK, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCKS) | OF_UNIT(UNIT_BLOCK) | OF_UNIT(UNIT_HALF_BLOCK),
    .units_text = "model, <n> blocks, block, half-block", .unit_tries = fsdp2_units, .nunit_tries = sizeof fsdp2_units / sizeof *fsdp2_units,
    .reduce_dtype = fsdp2_reduce_dtype, .model_dtype = in_16_bits, .sequence = true, .context_method = CONTEXT_ALL_GATHER, .ends_count = true,
    .mixtures = MIXTURES_ANY, .check_expert_ranks = titan_check_experts, .check = check_fsdp2, .check_group = check_reshard,
    .check_optimizer = check_dtensor_optimizer, .check_tensor = titan_check_tensor, .check_context = titan_check_context,
    .check_pipeline = titan_check_pipeline, .pipelines_fold = OF_PIPELINE(PIPELINE_1F1B),
    .recipe = recipe, .wide_adapters = fsdp2_wide_adapters, .autocasts_adapters = true,
};

const struct framework framework_fsdp1 = {
    .tool = &framework_fsdp1_tool,
    .syncs = EVERY_STRATEGY, .sync_is_choice = EVERY_STRATEGY, .group_is_choice = EVERY_STRATEGY, .tries_groups = true,
    .state_groups = fsdp1_groups,
    .unit = UNIT_BLOCK, .units = OF_UNIT(UNIT_MODEL) | OF_UNIT(UNIT_BLOCK),
    .units_text = "model, block (it wraps one module, so not several blocks)",
    .unit_tries = fsdp1_units, .nunit_tries = sizeof fsdp1_units / sizeof *fsdp1_units,
    .reduce_dtype = fsdp1_reduce_dtype, .model_dtype = fsdp1_model_dtype, .sequence = true, .context_method = CONTEXT_ULYSSES,
    .mixtures = MIXTURES_ALIKE, .check = check_fsdp1, .check_group = check_fsdp1_group, .check_train = fsdp1_check_train,
    .check_tensor = titan_check_tensor, .check_context = titan_check_context,
    .pipelines_fold = OF_PIPELINE(PIPELINE_1F1B),
    .recipe = recipe, .wide_adapters = fsdp1_wide_adapters, .flat_units = true, .records_streams = true, .check_run = fsdp1_check_run,
};
