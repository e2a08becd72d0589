/* experts_check.c -- see experts_check.h. */
#include "model/plan/experts_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/expert_capacity.h"
#include "model/plan/framework.h"
#include "model/plan/megatron_model.h"
#include "model/plan/native_experts.h"
#include "model/plan/optimizer_traits.h"
#include "model/plan/plan_groups.h"

static bool is_llama4(const struct model *m) { return family_for(m)->every_expert; }

/* Blocks without experts are pieces of one kind (program.h). */
static int check_llama4(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    int64_t dense = 0, windowed = 0;

    for (int64_t b = 0; b < m->layers; b++)
        if (!model_has_experts(m, b)) {
            dense++;
            windowed += model_windowed(m, b);
        }
    if (windowed > 0 && windowed < dense)
        return fail("%s: model: llama4_text: of the layers without experts some have rotary positions and some have none: not planned yet", where);
    return 0;
}

/* Latent attention, shared experts, and blocks without experts beside those that have some, are planned where torch_model.c's blocks run
 * whole: FSDP2's unit is a block or the model. */
static int check_kinds(const struct plan *p, const char *where)
{
    const struct framework *f = framework_of(p);
    const struct model *m = &p->model;
    bool megatron = !megatron_model_refused(m);
    const char *what = model_blocks_differ(m) ? "blocks with experts beside blocks without" : m->kv_rank > 0 ? "multi-head latent attention"
                     : family_for(m)->sinks ? "attention sinks and clamped experts"
                     : is_llama4(m) ? "experts that all compute every token" : m->shared_ffn > 0 ? "shared experts" : NULL;

    bool apart = model_blocks_differ(m) || m->kv_rank > 0 || (m->shared_ffn > 0 && !is_llama4(m));              /* planned where torch_model.c's blocks run whole */
    if (!what || (f->megatron_layers && !megatron))         /* megatron_check() says why */
        return 0;
    if (apart && f->mixtures != MIXTURES_ANY)
        return fail("%s: model: %s: %s: planned for fsdp and ddp in dialect torch%s so far", where, m->family, what,
                    apart && megatron ? " and in dialect megatron" : apart ? "" : " and torch-fsdp1, and in dialects deepspeed and megatron");
    if (!f->megatron_layers && p->parallel.expert > 1 && (p->dialect != DIALECT_TORCH || is_llama4(m) || m->moe_every > 1))
        return fail("%s: parallel.expert: %s: not planned yet with %s", where, m->family, what);
    if (is_llama4(m) && check_llama4(p, where) < 0)
        return -1;
    if (!model_blocks_differ(m))
        return 0;
    if (model_routers(m) == 0)
        return fail("%s: model: none of the %" PRId64 " layers has experts: the first %" PRId64 " are said to have none", where, m->layers, m->dense_first);
    if (m->dense_first > 0 && m->moe_every > 1)
        return fail("%s: model: every %" PRId64 "-th layer with experts behind %" PRId64 " without is not planned yet", where, m->moe_every, m->dense_first);
    if (f->megatron_layers && m->moe_every > 1)
        return fail("%s: model: experts in every %" PRId64 "-th layer are not planned yet in dialect megatron: in all layers behind the first ones",
                    where, m->moe_every);
    if (m->moe_every > 2)
        return fail("%s: model: experts in every %" PRId64 "-th layer are not planned yet: in all of them, or in every second", where, m->moe_every);
    if (p->strategy == STRAT_FSDP && p->unit != UNIT_BLOCK && p->unit != UNIT_MODEL)
        return fail("%s: unit: %s: \"block\" or \"model\" so far", where, what);
    return 0;
}

/* Experts see the rank's own positions; attention is as of a dense model.  FSDP1 has Ulysses alone, as verl has it. */
static int check_context(const struct plan *p, const char *where)
{
    bool verls = p->dialect == DIALECT_TORCH_FSDP1 && p->parallel.context_method == CONTEXT_ULYSSES;
    bool planned = p->strategy == STRAT_FSDP && (p->dialect == DIALECT_TORCH || verls);

    if (planned && p->parallel.expert > 1 && p->parallel.context_method != CONTEXT_ULYSSES)
        return 0;
    if (!planned || p->parallel.expert > 1 || !family_for(&p->model)->autoep || model_blocks_differ(&p->model))
        return fail("%s: parallel.context: of a mixture of experts context parallelism is planned for mixtral and qwen3_moe with experts in every block, "
                    "under fsdp/torch and Ulysses of fsdp/torch-fsdp1 without parallel.expert", where);
    return 0;
}

/* A stage is a model of its own, of which FSDP2 has the units; its experts are dealt out within the stage. */
static int check_pipeline(const struct plan *p, const char *where)
{
    if (p->strategy != STRAT_FSDP || p->dialect != DIALECT_TORCH)
        return fail("%s: parallel.pipeline: stages of a mixture of experts are planned for fsdp in dialect torch, and in dialect megatron", where);
    if (p->parallel.expert > 1 && plan_torch_before(p, 2015))
        return fail("%s: framework_version: experts of other ranks are a part of a stage's unit since PyTorch 2.15: not planned before", where);
    if (pipeline_splits(p->parallel.pipeline_schedule))
        return fail("%s: parallel.pipeline_schedule: %s computes weights' gradients apart, which is not planned of a mixture of experts yet", where,
                    pipeline_name(p->parallel.pipeline_schedule));
    if (is_llama4(&p->model) || p->model.moe_every > 1)
        return fail("%s: parallel.pipeline: %s: stages of layers that differ by turns are not planned yet", where, p->model.family);
    return 0;
}

/* Of transformers' layers. */
static int check_transformers(const struct plan *p, const char *where)
{
    if (p->float8.recipe != FLOAT8_NONE)
        return fail("%s: fp8: experts in 8-bit floats are not planned yet", where);
    if (p->kernels == KERNELS_TORCH_COMPILE)
        return fail("%s: kernels: experts in compiled blocks are not planned yet: torch-sdpa or torch-eager", where);
    if (p->parallel.tensor > 1)
        return fail("%s: parallel.tensor: tensor parallelism of a mixture of experts is not planned yet", where);
    if (p->parallel.pipeline > 1 && check_pipeline(p, where) < 0)
        return -1;
    return p->parallel.context > 1 ? check_context(p, where) : 0;
}

static int check_framework(const struct plan *p, const char *where)
{
    const struct framework *f = framework_of(p);

    if (p->kernels == KERNELS_DPX)
        return fail("%s: kernels: \"dpx\" have no experts: mixtures of experts are planned with torch-sdpa and torch-eager, and not run", where);
    if (f->mixtures == MIXTURES_NONE)
        return fail("%s: model: mixtures of experts (%s) are planned for fsdp and ddp in dialect torch, and in dialects torch-fsdp1, deepspeed and "
                    "megatron", where, p->model.family);
    if (f->check_experts && f->check_experts(p, where) < 0)
        return -1;
    return f->megatron_layers ? 0 : check_transformers(p, where);
}

/* A token sends at most one row to an expert: a rank with `here` experts gets min(used, here) of the `used` rows of every token of all ranks. */
double experts_most_uneven(const struct plan *p)
{
    int64_t here = p->model.experts / p->parallel.expert, used = p->model.experts_used, rows = here < used ? here : used;

    return (double)(rows * p->parallel.expert) / (double)used;
}

static int check_imbalance(const struct plan *p, const char *where)
{
    int64_t here = p->model.experts / p->parallel.expert, used = p->model.experts_used;
    double most = experts_most_uneven(p);

    if (p->parallel.expert_imbalance <= most)
        return 0;
    return fail("%s: parallel.expert_imbalance: %g: all tokens together bring one of %" PRId64 " ranks %g times the mean at most: each chooses %" PRId64
                " experts, of which a rank has %" PRId64, where, p->parallel.expert_imbalance, p->parallel.expert, most, used, here);
}

int experts_check_ranks(const struct plan *p, const char *where)
{
    struct mesh mesh = plan_mesh(p);
    struct mesh_group all = mesh_group(&mesh, plan_expert_axes(p));
    int64_t n = p->parallel.expert;

    if (n <= 1)
        return 0;
    if (p->model.experts == 0)
        return fail("%s: parallel.expert: %s has no experts: leave it out", where, p->model.name);
    if (p->model.experts % n)
        return fail("%s: parallel.expert: the %" PRId64 " experts of a block do not divide by %" PRId64 " ranks", where, p->model.experts, n);
    if (mesh_ranks(&all) % n)
        return fail("%s: parallel.expert: %" PRId64 " does not divide the %" PRId64 " ranks that share %s", where, n, mesh_ranks(&all),
                    framework_of(p)->experts_span_replicas ? "a stage" : "one copy of the states");
    if (check_imbalance(p, where) < 0)
        return -1;
    return framework_of(p)->check_expert_ranks ? framework_of(p)->check_expert_ranks(p, mesh_ranks(&all) / n, where) : 0;
}

const char *experts_routing(const struct model *m)
{
    return is_llama4(m) ? "every expert computes every token" : "tokens are taken to spread evenly over experts";
}

const char *experts_routing_of(const struct plan *p)
{
    bool uneven = p->parallel.expert > 1 && p->parallel.expert_imbalance > 1;

    return uneven ? "tokens are taken to spread evenly over the experts of a rank, but not over ranks" : experts_routing(&p->model);
}

void experts_ranks_words(const struct plan *p, char *to, size_t size)
{
    int64_t tokens = expert_capacity_tokens(p), capacity = expert_capacity_of(p, tokens);
    struct expert_rows rows = expert_rows_of(p, tokens);
    int n;

    *to = '\0';
    if (p->parallel.expert <= 1)
        return;
    if (native_experts_has(p)) {
        snprintf(to, size, "each rank has %" PRId64 " of a block's experts, of which each computes a capacity of %" PRId64 " rows of every rank",
                 p->model.experts / p->parallel.expert, capacity);
        return;
    }
    n = snprintf(to, size, "each rank has %" PRId64 " of a block's experts; the busiest computes %.4g times the rows of the mean "
                 "(parallel.expert_imbalance", p->model.experts / p->parallel.expert, (double)rows.received / (double)rows.sent);
    if (rows.received < expert_rows_received(rows.sent, p->parallel.expert_imbalance))
        n += snprintf(to + n, size - (size_t)n, " %g, as far as a capacity of %" PRId64 " rows lets it", p->parallel.expert_imbalance, capacity);
    snprintf(to + n, size - (size_t)n, ")");
}

const char *experts_optimizer_refused(const struct model *m, enum optimizer o)
{
    bool other = o != OPTIMIZER_ADAMW && !optimizer_traits(o)->by_element;

    return m->experts > 0 && other && training_is_all(&m->training) ? "a mixture of experts is planned with adamw, torchao's, flash_adamw and te_adamw alone so far" : NULL;
}

/* A rank sends tokens x experts_used rows, and computes as many on average. */
const char *experts_note(const struct plan *p)
{
    int64_t rows = expert_capacity_tokens(p) * p->model.experts_used;

    if (is_llama4(&p->model))
        return "experts: transformers' llama4 has every expert compute every token, times a score that is 0 for experts that the token does "
               "not take: the step pays for all experts, and MFU counts the active parameters";
    if (p->model.experts == 0 || rows % p->model.experts == 0 || (p->dialect == DIALECT_MEGATRON && p->megatron.moe_pad_expert_input_to_capacity))
        return NULL;
    return "experts: a rank's tokens x experts of a token do not divide by the experts of a block: no routing can be even, each rank is taken to "
           "get the mean and each expert's product has that mean's rows, rounded up";
}

const char *experts_base_note(const struct plan *p)
{
    return p->model.experts == 0 || p->train.base == BASE_PLAIN ? NULL
         : "base_dtype: bitsandbytes packs nn.Linear layers alone, which experts are not since transformers 5: they stay in 16 bits";
}

const char *experts_router_note(const struct plan *p)
{
    const struct family *f = family_find(p->model.family);

    if (!f || !f->wide_router || plan_recipe(p).kept != DT_BF16 || (p->dialect != DIALECT_TORCH && p->dialect != DIALECT_TORCH_FSDP1))
        return NULL;
    return p->strategy == STRAT_FSDP
         ? "Routers: all parameters are bf16, by model.to(bfloat16). transformers 5.24 loads routers in fp32, and FSDP then stops: \"FSDP expects "
           "uniform original parameter dtype\"."
         : "Routers: all parameters are bf16, by model.to(bfloat16). transformers 5.24 loads routers in fp32; left so, each of their weights "
           "takes at least 8 bytes more.";
}

/* prime-rl's benchmarks/baselines: 1.0 to 2.7 times as long as planned (tests/accuracy/primerl.py). */
const char *experts_adapters_note(const struct plan *p)
{
    for (int i = 0; i < p->model.ntensors; i++)
        if (role_is_of_experts(p->model.tensors[i].role) && (p->model.tensors[i].adapter == ADAPTER_LORA_A || p->model.tensors[i].adapter == ADAPTER_LORA_B))
            return "Adapters of experts: how long their products take is published nowhere; runs with them took up to 2.7 times as long as planned.";
    return NULL;
}

int experts_check(const struct plan *p, const char *where)
{
    const struct framework *f = framework_of(p);
    const struct model *m = &p->model;

    if (m->experts == 0)
        return 0;
    if (experts_optimizer_refused(m, p->optimizer))
        return fail("%s: optimizer: %s", where, experts_optimizer_refused(m, p->optimizer));
    if (check_framework(p, where) < 0 || check_kinds(p, where) < 0)
        return -1;
    bool narrow = plan_has_wide_adapters(p) ? plan_recipe(p).frozen == DT_BF16 : !plan_recipe(p).autocast && plan_recipe(p).used == DT_BF16;
    if (!narrow)
        return fail("%s: precision: transformers' grouped products of experts are planned in bf16 alone, which torch.autocast does not "
                    "give them: set precision bf16%s", where, p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH ? " and ddp.model_dtype bf16" : "");
    bool by_operator = p->recompute == RECOMPUTE_OP && f->mixtures == MIXTURES_ANY && p->parallel.expert <= 1 && !is_llama4(m);
    if (p->recompute > RECOMPUTE_FULL && p->recompute != RECOMPUTE_OFFLOAD && !by_operator && !f->megatron_layers)
        return fail("%s: recompute: blocks with experts are planned with none, selective (attention's core), full and offload so far%s", where,
                    p->recompute != RECOMPUTE_OP ? "" : is_llama4(m) ? "; op of experts that compute few tokens" : "; op in dialect torch with parallel.expert 1");
    if (p->recompute == RECOMPUTE_SELECTIVE && m->window > 0 && !f->megatron_layers)     /* masks outlive their layers */
        return fail("%s: recompute: selective of a mixture whose layers have windows or chunks is not modelled yet: none, or full", where);
    if (p->activation_offload != OFFLOAD_NOTHING)
        return fail("%s: activation_offload: not planned for a mixture of experts yet", where);
    return 0;
}
