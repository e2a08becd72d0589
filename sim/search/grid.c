/* grid.c -- see grid.h. */
#include "sim/search/grid.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/room.h"
#include "base/sort.h"
#include "model/plan/knob.h"
#include "model/plan/local_share.h"
#include "model/plan/megatron_model.h"
#include "model/plan/optimizer_choice.h"
#include "sim/clock/step.h"
#include "sim/search/bounds.h"
#include "sim/search/enumerate.h"
#include "sim/search/found.h"
#include "sim/search/layers.h"
#include "sim/search/nearest.h"
#include "sim/search/programs.h"

/* Frameworks whose plans with tensor, context and pipeline parallelism are searched beside data parallelism alone. */
#define BESIDE_DATA (1u << DIALECT_TORCH | 1u << DIALECT_MEGATRON)

/* DeepSpeed's are, of a mixture: expert parallelism (AutoEP), beside which nothing else is cut. */
static uint64_t beside_data(const struct search_options *o)
{
    return o->dialects & (BESIDE_DATA | (o->model->experts > 0 ? 1u << DIALECT_DEEPSPEED : 0));
}

enum { WAVE = 8 };                     /* plans that are looked at at once */
_Static_assert((int)WAVE <= (int)PROGRAMS_LEAN, "a wave's programs are all there");

/* A plan that a bound of memory cut: with a multiple of its micro-batch as many samples are in flight, and the bound is as high, unless
 * that is all of the batch and no gradients are kept. */
struct hopeless { int64_t pipe, batch; int recompute, schedule; };

struct grid {
    const struct search_options *o;
    uint64_t dialects;
    bool beside;                    /* only what data parallelism alone is not, and only short steps */
    bool collects;                  /* only what was hopeless when they were enumerated before */
    struct found *found;            /* those in question; cut by memory: those that a bound leaves out */
    struct found *cut;
    int64_t n, room, ncut, cut_room, considered, same_cut, too_long;        /* same_cut: hopeless without a look at their programs */
    int64_t shared;                 /* of those considered, those of which no rank has the whole model to compute */
    struct hopeless *hopeless;      /* of one cell, tensor and context */
    int64_t nhopeless, hopeless_room;
    struct programs programs;
    int     first_program;          /* of one cell, tensor, context, micro-batch and recompute */
    struct cost_cache *cache;       /* of the time bounds */
    int64_t from, end;              /* of the wave */
    int64_t evaluated;              /* of those in question, beside data parallelism */
    struct desk { struct cost_cache *cache; struct coll_memo memo; } desk[WAVE];
    double  best_s;                 /* the fastest that fits, when the wave began */
    pthread_t   caller;             /* who called grid_search(), and may be asked whether to go on */
    atomic_bool stopped;
    uint64_t looked;                /* dialects that had a candidate, */
    char    refusal[NDIALECT][256]; /* and why the first of each was refused by plan_check() */
};

/* ---- candidates ---- */

/* Rounding of sizes and how chunks share micro-steps among them: less than this of the limit. */
#define HOPELESS 1.02

/* Ranks compute one copy of the model together. */
static bool is_shared(const struct plan *p) { return !plan_is_data_parallel(p) || p->parallel.expert > 1; }

static bool is_hopeless(const struct grid *g, const struct plan *p, int schedule)
{
    for (int64_t i = 0; i < g->nhopeless; i++) {
        const struct hopeless *h = &g->hopeless[i];
        if (bounds_keeps_grads(p) && h->pipe == p->parallel.pipeline && h->recompute == (int)p->recompute && h->schedule == schedule && p->micro_batch % h->batch == 0)
            return true;
    }
    return false;
}

/* The thread that called asks whether to go on, between plans too: one of them may take a second. */
static bool may_go_on(struct grid *g, int64_t done, int64_t of)
{
    if (g->o->go_on && pthread_equal(g->caller, pthread_self()) && !g->o->go_on(g->o->go_on_of, done, of))
        g->stopped = true;
    return !g->stopped;
}

static int stopped(void) { return fail("search: stopped before all plans were looked at"); }

static void keep_refusal(struct grid *g, enum dialect d, const char *why)
{
    if (!g->refusal[d][0])
        snprintf(g->refusal[d], sizeof g->refusal[d], "%.255s", why);
}

/* Of the first dialect that has one; empty: none has. */
static const char *refusal(const struct grid *g)
{
    int d = 0;

    while (d < NDIALECT - 1 && !g->refusal[d][0])
        d++;
    return g->refusal[d];
}

static void tell_looked(const struct grid *g, struct search_result *out)
{
    out->looked |= g->looked;
    memcpy(out->why_none, g->refusal, sizeof out->why_none);
}

static int offer(struct grid *g, const struct plan *candidate, int schedule)
{
    struct found f = { .plan = *candidate };
    char why[256];
    int ok;
    bool skipped;

    struct fail_sink before = fail_divert(why, g->refusal[f.plan.dialect][0] ? 1 : sizeof why);
    plan_resolve(&f.plan);
    ok = plan_check(&f.plan, "search");
    fail_restore(before);
    if (ok < 0)
        keep_refusal(g, f.plan.dialect, why);
    if (ok < 0 || (g->o->accept && !g->o->accept(&f.plan, g->o->accept_what)))
        return 0;
    g->looked |= UINT64_C(1) << f.plan.dialect;
    skipped = !g->o->exhaustive && (is_hopeless(g, &f.plan, schedule) || bounds_states(&f.plan) > found_limit(&f.plan));
    if (skipped && !g->collects) {
        g->considered++;
        g->shared += is_shared(&f.plan);
        g->same_cut++;
        return 0;
    }
    f.program = programs_of(&g->programs, &f.plan, g->first_program);
    if (f.program < 0)
        return -1;
    g->programs.of[f.program].used = true;
    const struct program *program = g->programs.of[f.program].program;
    int64_t least = bounds_bytes(&f.plan, program);
    f.order = g->considered++;
    g->shared += is_shared(&f.plan);
    f.key = (uint64_t)f.order;
    if (!g->o->exhaustive && least > found_limit(&f.plan)) {
        if (!skipped && (double)least > HOPELESS * (double)found_limit(&f.plan)) {
            g->hopeless = room_for(g->hopeless, g->nhopeless, &g->hopeless_room, sizeof *g->hopeless);
            g->hopeless[g->nhopeless++] = (struct hopeless){ f.plan.parallel.pipeline, f.plan.micro_batch, (int)f.plan.recompute, schedule };
        }
        f.needed = least;
        f.available = cluster_available(&f.plan.cluster);
        f.over = found_short_by(least, found_limit(&f.plan));
        f.at_least = true;
        if (skipped != g->collects)
            return 0;
        g->cut = room_for(g->cut, g->ncut, &g->cut_room, sizeof *g->cut);
        g->cut[g->ncut++] = f;
        return 0;
    }
    if (g->collects)
        return 0;
    if (!g->cache)
        g->cache = cost_cache_new(&f.plan);
    cost_cache_use(g->cache, &f.plan);
    f.bound_s = bounds_step_s(&f.plan, program, g->cache);
    g->found = room_for(g->found, g->n, &g->room, sizeof *g->found);
    g->found[g->n++] = f;
    return 0;
}

static const struct { enum pipeline_kind kind; int64_t chunks; } schedules[] = {
    { PIPELINE_1F1B, 1 }, { PIPELINE_INTERLEAVED, 2 }, { PIPELINE_ZBV, 2 },
};

/* All schedules of one factorisation; without a pipeline there is none to choose. */
static int take_schedules(struct grid *g, struct plan *p, int variant)
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
static int take_experts(struct grid *g, struct plan *p)
{
    bool shares = p->model.experts > 0 && knob_find("parallel", "expert", knob_cell(p));
    int64_t most = shares ? p->model.experts : 1, tensor = p->parallel.tensor;
    int rc = 0, variant = 0;

    for (int64_t n = 1; n <= most && !rc; n++)
        for (int whole = 0; whole <= (shares && tensor > 1) && !rc && most % n == 0; whole++) {
            p->parallel.expert = n;
            p->parallel.expert_tensor = whole || !shares ? 1 : tensor;
            if (!g->beside || n * tensor * p->parallel.context * p->parallel.pipeline > 1)
                rc = take_schedules(g, p, variant++);
        }
    return rc;
}

/* A strategy in a dialect; those that plan_check() refuses are no candidates. */
struct cell { enum strategy strategy; enum dialect dialect; };

/* false: the cell has no such optimizer. */
static bool choose_optimizer(struct grid *g, struct plan *p)
{
    char why[256];
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = optimizer_choose(p, g->o->optimizer, "search") < 0 || enumerate_choose_loss(g->o, p) < 0 ? -1 : 0;

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

/* All pipelines of one cell, micro-batch, tensor and context. */
static int take_pipelines(struct grid *g, struct cell of, int64_t batch, int64_t tensor, int64_t context)
{
    const struct search_options *o = g->o;
    uint64_t recompute = o->recompute ? o->recompute : GRID_RECOMPUTE | (has_modules(o, of) ? 1u << RECOMPUTE_SELECTIVE : 0);
    int64_t rest = o->cluster->world_size / (tensor * context);
    int rc = 0;

    for (int r = 0; r < NRECOMPUTE && !rc; r++) {
        g->first_program = g->programs.n;
        for (int64_t pipe = 1; pipe <= rest && pipe <= o->model->layers && pipe <= EVALUATION_STAGES && !rc; pipe++) {
            int64_t samples = rest % pipe ? 0 : batch * (rest / pipe);
            if (!(recompute >> r & 1) || samples == 0 || o->global_batch % samples ||
                o->global_batch / samples > PLAN_MAX_BATCH || (g->beside && tensor * context * pipe == 1 && o->model->experts == 0))
                continue;
            if (g->beside && o->global_batch / samples * o->model->layers > GRID_PASSES) {
                g->too_long++;
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

static int take_cell(struct grid *g, struct cell of)
{
    const struct search_options *o = g->o;
    const struct cluster *c = o->cluster;
    int rc = 0;

    for (int64_t tensor = 1; tensor <= c->gpus_per_node && c->world_size % tensor == 0; tensor *= 2)
        for (int64_t context = 1; c->world_size % (tensor * context) == 0 && (context == 1 || o->seq >= GRID_LONG); context *= 2) {
            g->nhopeless = 0;
            for (int64_t b = 1; b <= o->global_batch && b <= PLAN_MAX_BATCH && !rc; b++)
                if (o->global_batch % b == 0 && (!o->micro_batch || b == o->micro_batch))
                    rc = may_go_on(g, 0, 0) ? take_pipelines(g, of, b, tensor, context) : stopped();
        }
    return rc;
}

static int take_cells(struct grid *g)
{
    int rc = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT && !rc; d++)
            if ((g->o->strategies >> s & 1) && (g->dialects >> d & 1) && dialect_has((enum dialect)d, (enum strategy)s))
                rc = take_cell(g, (struct cell){ (enum strategy)s, (enum dialect)d });
    return rc;
}

/* ---- one candidate ---- */

static bool over_limit(struct found *f, int64_t needed, int64_t available)
{
    int64_t limit = reserved_is_known(&f->plan) ? found_limit(&f->plan) : available;

    f->needed = needed;
    f->available = available;
    f->over = found_short_by(needed, found_limit(&f->plan));
    return needed > limit;
}

/* Has the second stage more blocks than the first, which has the embedding? */
static bool second_is_fuller(const struct plan *p)
{
    int64_t stages = p->parallel.pipeline * p->parallel.virtual_stages;

    return stages > 2 && local_share_stage_of(p, stages, 1).blocks > local_share_stage_of(p, stages, 0).blocks;
}

/* Of a pipeline the first stage is lowered first, which is the fullest of most, and then the second where that may be it: where one of
 * them does not fit no other matters.  1 where that is so: what the plan needs is at least that. */
static int first_is_over(const struct grid *g, struct found *f)
{
    int most = second_is_fuller(&f->plan) ? 2 : 1, rc = 0;
    struct schedules s = { 0 };
    struct memory_verdict m;

    for (int stage = 0; stage < most && rc == 0; stage++) {
        rc = evaluate_stage(&f->plan, g->programs.of[f->program].program, stage, &s, &m);
        if (rc == 0)
            rc = f->at_least = over_limit(f, m.needed, m.available);
    }
    s.borrowed = true;
    schedules_free(&s);
    return rc;
}

/* PyTorch's allocator, which decides. */
static int ask_allocator(struct found *f, struct evaluation *e)
{
    if (evaluation_reserve_within(&f->plan, e) < 0)
        return -1;
    f->looked_at = true;
    f->fits = e->m.fits;
    f->tight = e->verdict == VERDICT_TIGHT;
    f->steady_retries = e->reserved.steady_retries;
    f->steady_calls = e->reserved.steady_calls;
    f->retry_s = f->fits ? simulate_retry_s(&e->reserved) : 0;
    f->step_s += f->retry_s;
    f->idle_s += f->retry_s;
    f->taken = f->fits ? evaluation_taken(&e->m, &e->reserved) : 0;
    if (!f->fits)
        over_limit(f, e->reserved.limit + e->reserved.refused + e->m.overhead.by[OVERHEAD_OUTSIDE],
                   e->reserved.limit + e->m.overhead.by[OVERHEAD_OUTSIDE]);
    return 0;
}

/* Prices and times an evaluated plan that fits; one that is near the fastest, when the wave began, is looked at for the ranking, too: its
 * schedules are here. */
static int time_it(const struct grid *g, struct found *f, struct evaluation *e, struct desk *d)
{
    const struct schedules *of[EVALUATION_STAGES];
    struct stage_parts parts;
    struct timeline t;
    struct step st;

    cost_cache_use(d->cache, &f->plan);
    if (step_open(&f->plan, of, evaluation_roles(e, of), d->cache, &d->memo, &st) < 0)
        return -1;
    int rc = step_predict(&st);
    if (rc == 0) {
        step_parts(&st, st.lines, st.makespan_s, &t, &parts);
        found_keep_times(f, &t, e->schedules.groups.n);
    }
    bool near = rc == 0 && f->step_s <= SEARCH_NEAR * g->best_s;
    if (near && !f->looked_at)              /* else the allocator's word decides nothing */
        rc = ask_allocator(f, e);
    if (near && rc == 0 && f->fits)
        rc = found_see(f, e, &st);
    step_close(&st);
    return rc;
}

/* `whole`: every stage is lowered, also where the first does not fit. */
static int assess(const struct grid *g, struct found *f, bool whole, struct desk *d)
{
    struct evaluation e;
    int rc = f->plan.parallel.pipeline > 1 && !whole ? first_is_over(g, f) : 0;

    if (rc)
        return rc < 0 ? -1 : 0;
    if (evaluate_using(&f->plan, g->programs.of[f->program].program, &e) < 0)
        return -1;
    f->at_least = false;
    f->fits = !over_limit(f, e.m.needed, e.m.available);
    f->looked_at = f->fits && 2 * f->needed <= f->available;            /* so much room is enough: search.h */
    if (f->fits)
        rc = time_it(g, f, &e, d);
    evaluation_free(&e);
    return rc;
}

/* One plan of the wave; prices are kept by slot, each of which one plan at a time has. */
static int one_of_wave(void *of, int64_t i)
{
    struct grid *g = of;
    struct desk *d = &g->desk[i];
    struct found *f = &g->found[g->from + i];

    if (!may_go_on(g, g->from, g->n))
        return stopped();
    if (!d->cache)
        d->cache = cost_cache_new(&f->plan);
    return assess(g, f, false, d);
}

/* ---- all of them ---- */

static int by_bound(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->bound_s != y->bound_s)
        return x->bound_s < y->bound_s ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* How many were evaluated; -1 reported. */
static int64_t run_all(struct grid *g)
{
    char why[256];

    if (g->n > 1)
        sort_stable(g->found, (size_t)g->n, sizeof *g->found, by_bound);
    while (g->from < g->n && (g->o->exhaustive || g->found[g->from].bound_s <= SEARCH_NEAR * g->best_s)) {
        for (g->end = g->from; g->end < g->n && g->end < g->from + WAVE; g->end++)
            if (!g->o->exhaustive && g->found[g->end].bound_s > SEARCH_NEAR * g->best_s)
                break;
        if (!may_go_on(g, g->from, g->n))
            return g->o->keeps ? g->from : stopped();
        struct fail_sink before = fail_divert(why, sizeof why);
        int rc = 0;
        for (int64_t i = g->from; i < g->end && rc == 0; i++)
            rc = programs_need(&g->programs, g->found[i].program);
        rc = rc < 0 ? rc : parallel_each(g->end - g->from, g->o->threads, one_of_wave, g);
        fail_restore(before);
        if (g->stopped)
            return g->o->keeps ? g->from : stopped();
        if (rc < 0)
            return fail("a candidate that passed the checks could not be planned: %s", why);
        for (; g->from < g->end; g->from++) {
            const struct found *f = &g->found[g->from];
            if (f->looked_at && f->fits && !f->waits && f->step_s < g->best_s)
                g->best_s = f->step_s;
        }
    }
    return g->from;
}

/* Of those of which only a bound is known, all that may lack less than the nearest does. */
static int measure_nearest(struct grid *g, struct desk *d)
{
    double least = INFINITY;

    for (int64_t i = 0; i < g->n && g->found[i].over < least; i++) {
        struct found *f = &g->found[i];
        if (g->o->answer_only && f->over > 0)           /* sorted: no other can fit */
            break;
        if (!may_go_on(g, g->n, g->n))
            return stopped();
        if (f->at_least && (programs_need(&g->programs, f->program) < 0 || assess(g, f, true, d) < 0))
            return -1;
        least = fmin(least, f->over);
    }
    return 0;
}

/* Nothing fits: what lacks least. */
static int find_nearest(struct grid *g)
{
    g->collects = true;
    g->considered = 0;
    if (g->same_cut > 0 && take_cells(g) < 0)
        return -1;
    for (int64_t i = 0; i < g->ncut; i++) {
        g->found = room_for(g->found, g->n, &g->room, sizeof *g->found);
        g->found[g->n++] = g->cut[i];
    }
    if (g->n == 0)
        return 0;
    sort_stable(g->found, (size_t)g->n, sizeof *g->found, found_by_lack);
    struct desk desk = { .cache = cost_cache_new(&g->found[0].plan) };
    int rc = measure_nearest(g, &desk);
    cost_cache_free(desk.cache);
    return rc;
}

static int64_t cut_by_memory(const struct grid *g) { return g->ncut + g->same_cut; }

static int answer(struct grid *g, struct search_result *out)
{
    int64_t evaluated;

    if (!g->considered)
        return fail("nothing to search: %s", refusal(g)[0] ? refusal(g) : "no micro-batch divides the global batch on any grid");
    out->considered = g->considered;
    tell_looked(g, out);
    if ((evaluated = run_all(g)) < 0)
        return -1;
    out->grid = g->shared;
    out->cut = cut_by_memory(g);
    out->cut_by_time = g->n - evaluated;
    out->lowered = evaluated;
    g->n = evaluated;
    for (int64_t i = 0; i < g->n; i++)
        out->nfit += g->found[i].fits;
    out->partial = g->stopped;
    if (!out->nfit && g->stopped)
        return stopped();
    if (!out->nfit) {
        if (find_nearest(g) < 0)
            return -1;
        for (int64_t i = 0; i < g->n; i++)      /* HOPELESS may leave out what fits */
            out->nfit += g->found[i].fits;
    }
    if (g->n > 1)
        sort_stable(g->found, (size_t)g->n, sizeof *g->found, found_by_rank);
    out->n = out->nfit ? out->nfit : g->n;
    if (!out->nfit && !g->o->answer_only && nearest_first(g->o, g->found, g->n) < 0)
        return -1;
    out->found = g->found;
    g->found = NULL;
    return 0;
}

static void grid_free(struct grid *g)
{
    cost_cache_free(g->cache);
    for (int i = 0; i < WAVE; i++)
        cost_cache_free(g->desk[i].cache);
    programs_free(&g->programs);
    free(g->hopeless);
    free(g->found);
    free(g->cut);
}

int grid_search(const struct search_options *o, struct search_result *out)
{
    struct grid g = { .o = o, .programs.lean = true, .best_s = INFINITY, .caller = pthread_self(), .dialects = o->dialects & (BESIDE_DATA | 1u << DIALECT_PAPER | 1u << DIALECT_DEEPSPEED) };

    memset(out, 0, sizeof *out);
    if (!g.dialects)
        return fail("--grid: dialect torch, megatron, deepspeed or paper, no other has tensor, context or pipeline parallelism");
    int rc = take_cells(&g) < 0 ? -1 : answer(&g, out);
    grid_free(&g);
    return rc;
}

/* Of two answers in which nothing fits: is the first one's nearest plan nearer? */
static bool lacks_less(const struct search_result *a, const struct search_result *b)
{
    return b->nfit == 0 && a->n > 0 && (b->n == 0 || a->found[0].over < b->found[0].over);
}

int grid_search_next(const struct search_options *o, int rc, const char *why, struct search_result *out)
{
    struct search_result grid;
    char none[256];

    struct fail_sink before = fail_divert(none, sizeof none);
    bool any = grid_search(o, &grid) == 0;
    fail_restore(before);
    if (any && (rc < 0 || grid.nfit > 0 || lacks_less(&grid, out))) {
        grid.looked |= out->looked;
        grid.elsewhere = out->elsewhere;
        grid.nrefused = out->nrefused;
        memcpy(grid.refused, out->refused, sizeof grid.refused);
        if (rc == 0)
            search_free(out);
        *out = grid;
        snprintf(out->alone, sizeof out->alone, "%s", rc < 0 ? why : "nothing fits");
        return 0;
    }
    if (any)
        search_free(&grid);
    else if (grid.considered > 0) {         /* there are grids, and they could not be looked at */
        if (rc == 0)
            search_free(out);
        return fail("%s", none);
    }
    return rc < 0 ? fail("%s", why) : 0;
}

/* ---- beside data parallelism alone ---- */

bool grid_is_usual(const struct search_options *o)
{
    return beside_data(o) && o->kernels != KERNELS_DPX && !o->cluster->is_host && o->cluster->world_size > 1;
}

/* Those of which all is known join the others. */
static void join(struct grid *g, struct search_result *out)
{
    struct found *all = room_new((size_t)(out->n + g->evaluated) + 1, sizeof *all);
    int64_t n = out->nfit;

    if (out->nfit > 0)
        memcpy(all, out->found, (size_t)out->nfit * sizeof *all);
    for (int64_t i = 0; i < g->evaluated; i++)
        if (g->found[i].fits && g->found[i].looked_at) {
            all[n] = g->found[i];
            all[n++].order += out->considered;
        }
    sort_stable(all, (size_t)n, sizeof *all, found_by_rank);
    if (out->n > out->nfit)
        memcpy(&all[n], &out->found[out->nfit], (size_t)(out->n - out->nfit) * sizeof *all);
    out->n += n - out->nfit;
    out->nfit = n;
    free(out->found);
    out->found = all;
}

int grid_beside(const struct search_options *o, double *best_s, struct grid **out)
{
    struct grid *g = room_new(1, sizeof *g);
    int rc;

    *g = (struct grid){ .o = o, .programs.lean = true, .beside = true, .best_s = *best_s, .caller = pthread_self(), .dialects = beside_data(o) };
    if ((rc = take_cells(g)) == 0 && g->n > 0)
        rc = (g->evaluated = run_all(g)) < 0 ? -1 : 0;
    if (rc < 0 && !(g->stopped && o->keeps)) {
        grid_drop(g);
        return -1;
    }
    g->evaluated = g->evaluated < 0 ? 0 : g->evaluated;
    *best_s = g->best_s;
    *out = g;
    return 0;
}

bool grid_stopped(const struct grid *g) { return g->stopped; }

const struct found *grid_found(const struct grid *g, int64_t *n)
{
    *n = g->evaluated;
    return g->found;
}

void grid_join(struct grid *g, struct search_result *out)
{
    join(g, out);
    out->partial |= g->stopped && g->o->keeps;
    out->considered += g->considered;
    tell_looked(g, out);
    out->grid = g->shared;
    out->too_long = g->too_long;
    out->cut += cut_by_memory(g);
    out->cut_by_time += g->n - g->evaluated;
    out->lowered += g->evaluated;
    grid_drop(g);
}

void grid_drop(struct grid *g)
{
    if (g)
        grid_free(g);
    free(g);
}
