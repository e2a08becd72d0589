/* plan.c -- names, defaults and recipes. */
#include "model/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch/training.h"
#include "model/plan/attention.h"
#include "model/plan/framework.h"
#include "model/plan/knob_rules.h"

static const char *const strategies[NSTRATEGY] = {
    [STRAT_DP] = "dp", [STRAT_DDP] = "ddp", [STRAT_ZERO1] = "zero1",
    [STRAT_ZERO2] = "zero2", [STRAT_ZERO3] = "zero3", [STRAT_FSDP] = "fsdp",
};
static const char *const kernel_sets[NKERNELS + 1] = {
    [KERNELS_DPX] = "dpx", [KERNELS_TORCH_EAGER] = "torch-eager", [KERNELS_TORCH_SDPA] = "torch-sdpa",
    [KERNELS_TORCH_COMPILE] = "torch-compile", [KERNELS_TE] = "te", [KERNELS_MEGATRON_LOCAL] = "megatron-local",
};
static const char *const recomputes[NRECOMPUTE] = {
    [RECOMPUTE_NONE] = "none", [RECOMPUTE_SELECTIVE] = "selective", [RECOMPUTE_FULL] = "full",
    [RECOMPUTE_OP] = "op", [RECOMPUTE_MODULES] = "modules",
    [RECOMPUTE_OFFLOAD] = "offload", [RECOMPUTE_REENTRANT] = "reentrant",
};

const char *strategy_name(enum strategy s)    { return strategies[s]; }
const char *kernels_name(enum kernel_set k)   { return kernel_sets[k]; }
const char *recompute_name(enum recompute r)  { return recomputes[r]; }

static const struct framework_limits limits = {
    .ddp_broadcast = (int64_t)250 << 20, .ddp_first_bucket = (int64_t)1 << 20, .ddp_bucket = (int64_t)25 << 20,
    .dp_coalesce = (int64_t)10 << 20, .ds_allreduce = 500000000,
    .ds_aio_least = (int64_t)1 << 20, .ds_aio_align = 1 << 10,
};

int strategy_parse(const char *s)
{
    for (int i = 0; i < NSTRATEGY; i++)
        if (!strcmp(strategies[i], s))
            return i;
    return -1;
}

bool plan_has_deepspeed_0_19_8(const struct plan *p)
{
    return p->dialect == DIALECT_DEEPSPEED && !strcmp(p->framework_version, "0.19.8");
}

int64_t plan_quantised_node(const struct plan *p)
{
    int64_t node = p->cluster.gpus_per_node;
    return p->ds.zero_quantized_gradients && node < plan_data_ranks(p) ? node : 0;
}

bool plan_quantises(const struct plan *p)
{
    return (p->ds.zero_quantized_weights && plan_data_ranks(p) > 1) || plan_quantised_node(p) > 0;
}

/* The number of at most so many digits that begins here, which *v passes; -1: none does. */
static int number_at(const char **v, int digits)
{
    int n = **v >= '0' && **v <= '9' ? 0 : -1;

    for (; digits > 0 && **v >= '0' && **v <= '9'; digits--, ++*v)
        n = 10 * n + **v - '0';
    return n;
}

int plan_version(const struct plan *p)
{
    const struct framework_tool *tool = framework_tool(p->dialect);
    const char *v = p->framework_version[0] ? p->framework_version : plan_version_at(p->dialect, tool->usual, NULL);
    int major, minor;

    if (!v || (major = number_at(&v, 4)) < 0 || *v++ != '.' || (minor = number_at(&v, 3)) < 0)
        return 0;
    return major * 1000 + minor;
}

bool plan_torch_before(const struct plan *p, int version)
{
    return dialect_is_torch(p->dialect) && plan_version(p) > 0 && plan_version(p) < version;
}

bool plan_has_cuda_12_8(const struct plan *p) { return p->kernels != KERNELS_DPX && !plan_torch_before(p, 2008); }

bool plan_syncs_buffers(const struct plan *p)
{
    return p->ddp.forward_sync_buffers >= 0 ? p->ddp.forward_sync_buffers > 0 : p->ddp.broadcast_buffers;
}

void plan_unit_text(const struct plan *p, char *out, size_t size)
{
    static const char *const words[] = {
        [UNIT_MODEL] = "model", [UNIT_BLOCKS] = "blocks", [UNIT_BLOCK] = "block",
        [UNIT_HALF_BLOCK] = "half-block", [UNIT_TENSOR] = "tensor", [UNIT_MODULE] = "module",
    };

    if (p->unit == UNIT_BLOCKS)
        snprintf(out, size, "%lld blocks", (long long)p->unit_blocks);
    else
        snprintf(out, size, "%s", words[p->unit]);
}

bool plan_sync_is_choice(enum strategy s, enum dialect d)
{
    return framework_at(s, d) && (framework_at(s, d)->sync_is_choice & OF_STRATEGY(s));
}

bool plan_group_is_choice(enum strategy s, enum dialect d)
{
    return framework_at(s, d) && (framework_at(s, d)->group_is_choice & OF_STRATEGY(s));
}

bool plan_keeps_whole(enum strategy s)
{
    return s != STRAT_ZERO3 && s != STRAT_FSDP;
}

bool plan_shards_grads(enum strategy s) { return s == STRAT_ZERO2 || s == STRAT_ZERO3 || s == STRAT_FSDP; }

void plan_resolve(struct plan *p)
{
    if (framework_of(p)->resolve)
        framework_of(p)->resolve(p);
    if (!plan_sync_is_choice(p->strategy, p->dialect))
        p->sync_every_micro_step = (p->deterministic && p->parallel.pipeline <= 1) || knob_usual_sync(p) > 0;
    knob_reset_idle(p);
}

/* The defaults of a cell: of its rows without a rule, or of those with one.  A rule may read values of the
 * former. */
static void set_defaults(struct plan *p, bool rules)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if ((k->everywhere || (k->cells & knob_cell(p))) && (k->usual != NULL) == rules)
            knob_set(p, k, knob_default(p, k));
}

void plan_defaults(struct plan *p, enum strategy s, enum dialect d, enum dtype precision)
{
    int64_t seq = p->seq, micro_batch = p->micro_batch;
    char version[sizeof p->framework_version];

    memcpy(version, p->framework_version, sizeof version);
    p->strategy = s;
    p->dialect = d;
    memset(&p->parallel, 0, sizeof p->parallel);
    p->parallel.tensor = p->parallel.context = p->parallel.pipeline = p->parallel.virtual_stages = p->parallel.pipeline_flushes = 1;
    memset(&p->ddp, 0, sizeof p->ddp);
    memset(&p->float8, 0, sizeof p->float8);
    memset(&p->fsdp, 0, sizeof p->fsdp);
    memset(&p->ds, 0, sizeof p->ds);
    memset(&p->dp, 0, sizeof p->dp);
    memset(&p->megatron, 0, sizeof p->megatron);
    p->ddp.model_dtype = p->fsdp.model_dtype = p->ds.communication_dtype = -1;
    memset(&p->stated, 0, sizeof p->stated);
    p->optimizer_form = OPTIMIZER_FOREACH;      /* of cells without the key, too */
    p->limits = limits;
    p->train = training_default();
    set_defaults(p, false);
    if (!training_is_all(&p->model.training))
        p->train = p->model.training;
    p->seq = seq;
    p->micro_batch = micro_batch > 0 ? micro_batch : 1;
    p->precision = precision;
    memcpy(p->framework_version, version, sizeof version);
    if (framework_tool(d)->nversions == 0)
        p->framework_version[0] = '\0';
    set_defaults(p, true);
    plan_resolve(p);
}

bool plan_has_wide_adapters(const struct plan *p)
{
    const struct framework *f = framework_of(p);

    return training_is_lora(&p->train) && f->wide_adapters && f->wide_adapters(p);
}

enum dtype plan_ddp_wire(const struct plan *p)
{
    if (comm_hook(p->ddp.comm_hook)->casts)
        return comm_hook(p->ddp.comm_hook)->sends;
    return p->ddp.model_dtype >= 0 && !plan_has_wide_adapters(p) ? (enum dtype)p->ddp.model_dtype : DT_FP32;
}

struct recipe plan_recipe(const struct plan *p)
{
    enum dtype t = p->precision;
    struct recipe r = { .kept = t, .used = t, .grad = t, .wire_gather = t,
                        .wire_reduce = p->reduce_dtype, .optimizer = t == DT_FP32 ? 8 : 12 };

    if (framework_of(p)->recipe)
        framework_of(p)->recipe(p, &r);
    r.frozen = !plan_has_wide_adapters(p) ? r.kept
             : (enum dtype)(p->strategy == STRAT_FSDP ? p->fsdp.model_dtype : p->ddp.model_dtype);
    r.copies = framework_of(p)->narrow_copies ? r.frozen : r.kept;
    return r;
}

enum dtype plan_kept(const struct recipe *r, const struct tensor *t) { return t->frozen ? r->frozen : tensor_is_adapter(t) ? r->kept : r->copies; }

double plan_trained_bytes(const struct plan *p)
{
    struct recipe r = plan_recipe(p);
    double bytes = 0, n = 0;

    for (int i = 0; i < p->model.ntensors && r.copies != r.kept; i++)
        if (!p->model.tensors[i].frozen) {
            n += (double)p->model.tensors[i].numel;
            bytes += (double)(p->model.tensors[i].numel * dtype_bytes(plan_kept(&r, &p->model.tensors[i])));
        }
    return n > 0 ? bytes / n : (double)dtype_bytes(r.kept);
}

enum dtype plan_adapter_input(const struct plan *p)
{
    struct recipe r = plan_recipe(p);
    bool shows_shard = framework_of(p)->flat_units && p->fsdp.wrap_adapters && p->fsdp.use_orig_params;

    return shows_shard || r.autocast ? r.kept : r.used;
}

enum scaled plan_scaled(const struct plan *p)
{
    static const enum scaled of[] = { [FP8_DELAYED] = SCALED_FP8_TENSOR, [FP8_TENSORWISE] = SCALED_FP8_TENSOR, [FP8_BLOCKWISE] = SCALED_FP8_BLOCK,
                                      [FP8_MXFP8] = SCALED_MXFP8 };

    return p->megatron.fp4_format ? SCALED_NVFP4 : p->megatron.fp8_format ? of[p->megatron.fp8_recipe] : SCALED_NONE;
}

bool plan_gets_gradient(const struct plan *p, const struct tensor *t)
{
    const struct model *m = &p->model;

    if (!t->frozen || !framework_of(p)->flat_units || p->fsdp.wrap_adapters)
        return !t->frozen;              /* what wrap_adapters leaves in a block's unit is frozen, all of it */
    if (t->block >= 0 || p->unit == UNIT_MODEL)
        return true;                    /* each block has a tensor that trains: training_apply() */
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].block < 0 && !m->tensors[i].frozen)
            return true;
    return false;
}

enum dtype plan_partial_dtype(const struct plan *p)
{
    struct recipe r = plan_recipe(p);

    return plan_version(p) >= 2015 && dtype_bytes(r.wire_reduce) > dtype_bytes(r.used) ? r.wire_reduce : r.used;
}

int64_t plan_global_batch(const struct plan *p)
{
    return p->micro_batch * p->accumulation * plan_batch_ranks(p);
}

/* A degree that is not set yet counts as none. */
static int64_t degree(int64_t ranks)
{
    return ranks > 1 ? ranks : 1;
}

int64_t plan_data_ranks(const struct plan *p)
{
    return p->cluster.world_size / degree(p->parallel.tensor) / degree(p->parallel.pipeline);
}

int64_t plan_batch_ranks(const struct plan *p)
{
    return plan_data_ranks(p) / degree(p->parallel.context);
}

int64_t plan_rank_seq(const struct plan *p)
{
    return p->seq / degree(p->parallel.context);
}

int64_t plan_attention_seq(const struct plan *p)
{
    return p->parallel.context_method == CONTEXT_ULYSSES ? p->seq : plan_rank_seq(p) * degree(p->megatron.a2a_ranks);
}

bool plan_recomputes_module(const struct plan *p, const char *module)
{
    const char *at = p->megatron.recompute_modules[0] ? p->megatron.recompute_modules : "core_attn";
    size_t n = strlen(module);

    if (p->recompute != RECOMPUTE_SELECTIVE)
        return false;
    for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, module, n) && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

bool plan_is_data_parallel(const struct plan *p)
{
    return degree(p->parallel.tensor) == 1 && degree(p->parallel.context) == 1 && degree(p->parallel.pipeline) == 1;
}

bool plan_orthogonalises(const struct plan *p, const struct tensor *t)
{
    const struct framework *f = framework_of(p);

    if (p->optimizer != OPTIMIZER_MUON || t->ndim < 2 || t->frozen)
        return false;
    return f->orthogonalises ? f->orthogonalises(t) : t->ndim == 2 && t->block >= 0;
}

void plan_free(struct plan *p)
{
    model_free(&p->model);
    memset(p, 0, sizeof *p);
}
