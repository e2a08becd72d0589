/* grid_cells.c -- the candidates of a grid: strategies and dialects over tensor x context x pipeline x data ranks. */
#include "sim/search/grid_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/room.h"
#include "model/plan/knob.h"
#include "model/plan/megatron_model.h"
#include "model/plan/optimizer_choice.h"
#include "sim/search/bounds.h"
#include "sim/search/enumerate.h"
#include "sim/search/found.h"
#include "sim/search/layers.h"

/* A plan that a bound of memory cut: with a multiple of its micro-batch as many samples are in flight, and the bound is as high, unless
 * that is all of the batch and no gradients are kept. */
struct hopeless { int64_t pipe, batch; int recompute, schedule; };

/* A strategy in a dialect; those that plan_check() refuses are no candidates. */
struct cell { enum strategy strategy; enum dialect dialect; };

/* All of one cell, tensor and context: they are enumerated by one thread, and know nothing of other parts. */
struct part {
    struct grid *g;
    struct cell cell;
    int64_t tensor, context;
    struct grid_candidates all;
    struct hopeless *hopeless;
    int64_t nhopeless, hopeless_room;
    struct { struct plan plan; struct stored_program *s; } *near;       /* of one micro-batch and recompute */
    int64_t nnear, near_room;
    struct desk *desk;              /* of the time bounds */
};

/* Rounding of sizes and how chunks share micro-steps among them: less than this of the limit. */
#define HOPELESS 1.02

/* Ranks compute one copy of the model together. */
static bool is_shared(const struct plan *p) { return !plan_is_data_parallel(p) || p->parallel.expert > 1; }

static bool is_hopeless(const struct part *g, const struct plan *p, int schedule)
{
    for (int64_t i = 0; i < g->nhopeless; i++) {
        const struct hopeless *h = &g->hopeless[i];
        if (bounds_keeps_grads(p) && h->pipe == p->parallel.pipeline && h->recompute == (int)p->recompute && h->schedule == schedule && p->micro_batch % h->batch == 0)
            return true;
    }
    return false;
}

/* ---- programs ---- */

static void let_go(struct part *g)
{
    while (g->nnear > 0)
        program_store_release(&g->g->programs, g->near[--g->nnear].s);
}

/* NULL: reported. */
static const struct program *program_for(struct part *g, const struct plan *p)
{
    for (int64_t i = g->nnear - 1; i >= 0; i--)
        if (g->near[i].plan.strategy == p->strategy && program_is_shared(&g->near[i].plan, p))
            return &g->near[i].s->program;
    struct stored_program *s = program_store_hold(&g->g->programs, p);
    if (!s)
        return NULL;
    g->near = room_for(g->near, g->nnear, &g->near_room, sizeof *g->near);
    g->near[g->nnear].plan = *p;
    g->near[g->nnear++].s = s;
    return &s->program;
}

/* ---- one candidate ---- */

static void keep_refusal(struct part *g, enum dialect d, const char *why)
{
    if (!g->all.refusal[d][0])
        snprintf(g->all.refusal[d], sizeof g->all.refusal[d], "%.255s", why);
}

static int offer(struct part *g, const struct plan *candidate, int schedule)
{
    struct found f = { .plan = *candidate };
    char why[256];
    int ok;
    bool skipped;

    struct fail_sink before = fail_divert(why, g->all.refusal[f.plan.dialect][0] ? 1 : sizeof why);
    plan_resolve(&f.plan);
    ok = plan_check(&f.plan, "search");
    fail_restore(before);
    if (ok < 0)
        keep_refusal(g, f.plan.dialect, why);
    if (ok < 0 || (g->g->o->accept && !g->g->o->accept(&f.plan, g->g->o->accept_what)))
        return 0;
    g->all.looked |= UINT64_C(1) << f.plan.dialect;
    skipped = !g->g->o->exhaustive && (is_hopeless(g, &f.plan, schedule) || bounds_states(&f.plan) > found_limit(&f.plan));
    if (skipped && !g->g->collects) {
        g->all.considered++;
        g->all.shared += is_shared(&f.plan);
        g->all.same_cut++;
        return 0;
    }
    const struct program *program = program_for(g, &f.plan);
    if (!program)
        return -1;
    int64_t least = bounds_bytes(&f.plan, program);
    f.order = g->all.considered++;
    g->all.shared += is_shared(&f.plan);
    f.key = (uint64_t)f.order;
    if (!g->g->o->exhaustive && least > found_limit(&f.plan)) {
        if (!skipped && (double)least > HOPELESS * (double)found_limit(&f.plan)) {
            g->hopeless = room_for(g->hopeless, g->nhopeless, &g->hopeless_room, sizeof *g->hopeless);
            g->hopeless[g->nhopeless++] = (struct hopeless){ f.plan.parallel.pipeline, f.plan.micro_batch, (int)f.plan.recompute, schedule };
        }
        f.needed = least;
        f.available = cluster_available(&f.plan.cluster);
        f.over = found_short_by(least, found_limit(&f.plan));
        f.at_least = true;
        if (skipped != g->g->collects)
            return 0;
        g->all.cut = room_for(g->all.cut, g->all.ncut, &g->all.cut_room, sizeof *g->all.cut);
        g->all.cut[g->all.ncut++] = f;
        return 0;
    }
    if (g->g->collects)
        return 0;
    if (!g->desk)
        g->desk = desks_take(&g->g->desks, &f.plan);
    cost_cache_use(g->desk->cache, &f.plan);
    f.bound_s = bounds_step_s(&f.plan, program, g->desk->cache);
    g->all.found = room_for(g->all.found, g->all.n, &g->all.room, sizeof *g->all.found);
    g->all.found[g->all.n++] = f;
    return 0;
}

static const struct { enum pipeline_kind kind; int64_t chunks; } schedules[] = {
    { PIPELINE_1F1B, 1 }, { PIPELINE_INTERLEAVED, 2 }, { PIPELINE_ZBV, 2 },
};

/* All schedules of one factorisation; without a pipeline there is none to choose. */
static int take_schedules(struct part *g, struct plan *p, int variant)
{
    int all = (int)(sizeof schedules / sizeof *schedules), n = p->parallel.pipeline > 1 ? all : 1, rc = 0;

    for (int i = 0; i < n && !rc; i++) {
        p->parallel.pipeline_schedule = schedules[i].kind;
        p->parallel.virtual_stages = schedules[i].chunks;
        if (p->dialect == DIALECT_MEGATRON)
            layers_divide(p);
        rc = offer(g, p, variant * all + i);
    }
    return rc;
}

/* Of a mixture all numbers of ranks that its experts can be shared out over; beside tensor parallelism cut experts, and whole ones. */
static int take_experts(struct part *g, struct plan *p)
{
    bool shares = p->model.experts > 0 && knob_find("parallel", "expert", knob_cell(p));
    int64_t most = shares ? p->model.experts : 1, tensor = p->parallel.tensor;
    int rc = 0, variant = 0;

    for (int64_t n = 1; n <= most && !rc; n++)
        for (int whole = 0; whole <= (shares && tensor > 1) && !rc && most % n == 0; whole++) {
            p->parallel.expert = n;
            p->parallel.expert_tensor = whole || !shares ? 1 : tensor;
            if (!g->g->beside || n * tensor * p->parallel.context * p->parallel.pipeline > 1)
                rc = take_schedules(g, p, variant++);
        }
    return rc;
}

/* false: the cell has no such optimizer. */
static bool choose_optimizer(struct part *g, struct plan *p)
{
    char why[256];
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = optimizer_choose(p, g->g->o->optimizer, "search") < 0 || enumerate_choose_loss(g->g->o, p) < 0 ? -1 : 0;

    fail_restore(before);
    if (rc < 0)
        keep_refusal(g, p->dialect, why);
    return rc == 0;
}

/* Megatron-LM's mixtures: modules whose second run costs no exchange and few products, as recipes of the largest name them. */
static bool has_modules(const struct search_options *o, struct cell of) { return of.dialect == DIALECT_MEGATRON && o->model->experts > 0; }

static void choose_modules(struct plan *p)
{
    strcpy(p->megatron.recompute_modules, p->model.kv_rank > 0 ? "layernorm,moe_act,mla_up_proj" : "layernorm,moe_act");
}

/* All pipelines of one micro-batch. */
static int take_pipelines(struct part *g, int64_t batch)
{
    struct cell of = g->cell;
    int64_t tensor = g->tensor, context = g->context;
    const struct search_options *o = g->g->o;
    uint64_t recompute = o->recompute ? o->recompute : GRID_RECOMPUTE | (has_modules(o, of) ? 1u << RECOMPUTE_SELECTIVE : 0);
    int64_t rest = o->cluster->world_size / (tensor * context);
    int rc = 0;

    for (int r = 0; r < NRECOMPUTE && !rc; r++) {
        let_go(g);
        for (int64_t pipe = 1; pipe <= rest && pipe <= o->model->layers && pipe <= EVALUATION_STAGES && !rc; pipe++) {
            int64_t samples = rest % pipe ? 0 : batch * (rest / pipe);
            if (!(recompute >> r & 1) || samples == 0 || o->global_batch % samples ||
                o->global_batch / samples > PLAN_MAX_BATCH || (g->g->beside && tensor * context * pipe == 1 && o->model->experts == 0))
                continue;
            if (g->g->beside && o->global_batch / samples * o->model->layers > GRID_PASSES) {
                g->all.too_long++;
                continue;
            }
            struct plan p = { .model = *o->model, .cluster = *o->cluster, .seq = o->seq, .micro_batch = batch };
            plan_defaults(&p, of.strategy, of.dialect, o->precision);
            if (!choose_optimizer(g, &p))
                return 0;
            p.parallel.tensor = tensor;
            p.parallel.context = context;
            p.parallel.pipeline = pipe;
            if (of.dialect == DIALECT_MEGATRON && context > 1 && megatron_exchanges_heads(&p.model))
                p.parallel.context_method = CONTEXT_ULYSSES;
            knob_follow(&p, NULL, NULL);
            if (of.dialect == DIALECT_MEGATRON) {       /* as its published runs have it */
                p.parallel.sequence = tensor > 1;
                p.megatron.overlap_grad_reduce = true;
                p.megatron.overlap_param_gather = of.strategy == STRAT_ZERO1;
            }
            if (o->settle)
                o->settle(&p, o->accept_what);
            p.kernels = enumerate_kernels(o, &p);
            p.recompute = (enum recompute)r;
            if (r == RECOMPUTE_SELECTIVE && has_modules(o, of))
                choose_modules(&p);
            p.accumulation = o->global_batch / samples;
            rc = take_experts(g, &p);
        }
    }
    return rc;
}

/* ---- all of them ---- */

static int take_part(void *parts, int64_t i)
{
    struct part *g = (struct part *)parts + i;
    const struct search_options *o = g->g->o;
    int rc = 0;

    for (int64_t b = 1; b <= o->global_batch && b <= PLAN_MAX_BATCH && !rc; b++)
        if (o->global_batch % b == 0 && (!o->micro_batch || b == o->micro_batch))
            rc = grid_may_go_on(g->g, 0, 0) ? take_pipelines(g, b) : grid_stop();
    let_go(g);
    if (g->desk)
        desks_give(&g->g->desks, g->desk);
    free(g->near);
    free(g->hopeless);
    return rc;
}

static struct part *parts_of(struct grid *g, int64_t *n)
{
    const struct search_options *o = g->o;
    const struct cluster *c = o->cluster;
    struct part *of = NULL;
    int64_t room = *n = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            for (int64_t tensor = 1; tensor <= c->gpus_per_node && c->world_size % tensor == 0; tensor *= 2)
                for (int64_t context = 1; c->world_size % (tensor * context) == 0 && (context == 1 || o->seq >= GRID_LONG); context *= 2) {
                    if (!(o->strategies >> s & 1) || !(g->dialects >> d & 1) || !dialect_has((enum dialect)d, (enum strategy)s))
                        continue;
                    of = room_for(of, *n, &room, sizeof *of);
                    of[(*n)++] = (struct part){ .g = g, .cell = { (enum strategy)s, (enum dialect)d }, .tensor = tensor, .context = context };
                }
    return of;
}

static struct found *join(struct found *to, int64_t *n, int64_t *room, const struct found *more, int64_t nmore, int64_t before)
{
    for (int64_t i = 0; i < nmore; i++) {
        to = room_for(to, *n, room, sizeof *to);
        to[*n] = more[i];
        to[*n].order += before;
        to[*n].key = (uint64_t)to[*n].order;
        ++*n;
    }
    return to;
}

/* Parts join in their order, as if one thread had enumerated all of them. */
static void join_part(struct grid_candidates *to, struct grid_candidates *part)
{
    int64_t before = to->considered;

    to->found = join(to->found, &to->n, &to->room, part->found, part->n, before);
    to->cut = join(to->cut, &to->ncut, &to->cut_room, part->cut, part->ncut, before);
    to->considered += part->considered;
    to->same_cut += part->same_cut;
    to->too_long += part->too_long;
    to->shared += part->shared;
    to->looked |= part->looked;
    for (int d = 0; d < NDIALECT; d++)
        if (!to->refusal[d][0])
            memcpy(to->refusal[d], part->refusal[d], sizeof to->refusal[d]);
    free(part->found);
    free(part->cut);
}

int grid_take_cells(struct grid *g)
{
    int64_t n;
    struct part *of = parts_of(g, &n);
    int rc = parallel_each(n, g->o->threads, take_part, of);

    for (int64_t i = 0; i < n; i++)
        join_part(&g->all, &of[i].all);
    free(of);
    return rc;
}
