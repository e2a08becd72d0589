/* grid.c -- see grid.h. */
#include "sim/search/grid_internal.h"

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

/* Frameworks whose plans with tensor, context and pipeline parallelism are searched beside data parallelism alone. */
#define BESIDE_DATA (1u << DIALECT_TORCH | 1u << DIALECT_MEGATRON)

/* DeepSpeed's are, of a mixture: expert parallelism (AutoEP), beside which nothing else is cut. */
static uint64_t beside_data(const struct search_options *o)
{
    return o->dialects & (BESIDE_DATA | (o->model->experts > 0 ? 1u << DIALECT_DEEPSPEED : 0));
}

/* Candidates that are judged by what was known before the first of them; so many waves are begun before the first is over. */
enum { WAVE = 8, AHEAD = 3 };

/* What evaluating a candidate came to.  Threads are ahead of what is settled: a candidate is evaluated with what was known when it was begun,
 * and judged by what a thread by itself would have known. */
struct grid_attempt {
    bool done;
    struct found *unseen;           /* it was near the fastest: the candidate before it was looked at for that.  NULL: it was not */
    char *why;                      /* it could not be planned; NULL: it could */
};

bool grid_may_go_on(struct grid *g, int64_t done, int64_t of)
{
    if (g->o->go_on && pthread_equal(g->caller, pthread_self()) && !g->o->go_on(g->o->go_on_of, done, of))
        g->stopped = true;
    return !g->stopped && !g->unwanted;
}

int grid_stop(void) { return fail("search: stopped before all plans were looked at"); }

/* Of the first dialect that has one; empty: none has. */
static const char *refusal(const struct grid *g)
{
    int d = 0;

    while (d < NDIALECT - 1 && !g->all.refusal[d][0])
        d++;
    return g->all.refusal[d];
}

static void tell_looked(const struct grid *g, struct search_result *out)
{
    out->looked |= g->all.looked;
    memcpy(out->why_none, g->all.refusal, sizeof out->why_none);
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
static int first_is_over(struct found *f, const struct program *program)
{
    int most = second_is_fuller(&f->plan) ? 2 : 1, rc = 0;
    struct schedules s = { 0 };
    struct memory_verdict m;

    for (int stage = 0; stage < most && rc == 0; stage++) {
        rc = evaluate_stage(&f->plan, program, stage, &s, &m);
        if (rc == 0)
            rc = f->at_least = over_limit(f, m.needed, m.available);
    }
    s.borrowed = true;
    schedules_free(&s);
    return rc;
}

/* Of the stages' allocators the one whose calls take longest: the step waits for it (simulate_retries_s()). */
static const struct reserved *slowest_allocator(const struct evaluation *e)
{
    const struct reserved *slowest = &e->reserved;

    for (int i = 0; i < e->nstages; i++)
        if (simulate_retry_s(&e->stage[i].reserved) > simulate_retry_s(slowest))
            slowest = &e->stage[i].reserved;
    return slowest;
}

/* PyTorch's allocator, which decides. */
static int ask_allocator(struct found *f, struct evaluation *e)
{
    if (evaluation_reserve_within(&f->plan, e) < 0)
        return -1;
    f->looked_at = true;
    f->fits = e->m.fits;
    f->tight = e->verdict == VERDICT_TIGHT;
    f->steady_retries = slowest_allocator(e)->steady_retries;
    f->steady_calls = slowest_allocator(e)->steady_calls;
    f->retry_s = f->fits ? simulate_retries_s(e) : 0;
    f->step_s += f->retry_s;
    f->idle_s += f->retry_s;
    f->taken = f->fits ? evaluation_taken(&e->m, &e->reserved) : 0;
    if (!f->fits)
        over_limit(f, e->reserved.limit + e->reserved.refused + e->m.overhead.by[OVERHEAD_OUTSIDE],
                   e->reserved.limit + e->m.overhead.by[OVERHEAD_OUTSIDE]);
    return 0;
}

/* Where a candidate is evaluated, and the fastest that is known by then. */
struct evaluating { struct desk *desk; double best_s; struct grid_attempt *attempt; };

/* Its times.  A plan whose bound is above the fastest step is rarely near it, and plans that are not near need no views (step_predict()). */
static int predict(const struct found *f, struct step *st, double best_s, struct timeline *t)
{
    struct stage_parts parts;

    if (f->bound_s > best_s) {
        int rc = step_alone(st, t, &parts);
        if (rc < 0 || t->step_s > SEARCH_NEAR * best_s)
            return rc;
    }
    if (step_predict(st) < 0)
        return -1;
    step_parts(st, st->lines, st->makespan_s, t, &parts);
    return 0;
}

/* Prices and times an evaluated plan that fits; one that is near the fastest is looked at for the ranking, too: its schedules are here. */
static int time_it(struct found *f, struct evaluation *e, const struct evaluating *at)
{
    const struct schedules *of[EVALUATION_STAGES];
    struct timeline t;
    struct step st;

    cost_cache_use(at->desk->cache, &f->plan);
    if (step_open(&f->plan, of, evaluation_roles(e, of), at->desk->cache, &at->desk->memo, &st) < 0)
        return -1;
    int rc = predict(f, &st, at->best_s, &t);
    if (rc == 0)
        found_keep_times(f, &t, e->schedules.groups.n);
    bool near = rc == 0 && f->step_s <= SEARCH_NEAR * at->best_s;
    if (near && at->attempt) {
        at->attempt->unseen = room_new(1, sizeof *f);
        *at->attempt->unseen = *f;
    }
    if (near && !f->looked_at)              /* else the allocator's word decides nothing */
        rc = ask_allocator(f, e);
    if (near && rc == 0 && f->fits)
        rc = found_see(f, e, &st);
    step_close(&st);
    return rc;
}

/* `whole`: every stage is lowered, also where the first does not fit. */
static int assess_with(struct found *f, const struct program *program, bool whole, const struct evaluating *at)
{
    struct evaluation e;
    int rc = f->plan.parallel.pipeline > 1 && !whole ? first_is_over(f, program) : 0;

    if (rc)
        return rc < 0 ? -1 : 0;
    if (evaluate_using(&f->plan, program, &e) < 0)
        return -1;
    f->at_least = false;
    f->fits = !over_limit(f, e.m.needed, e.m.available);
    f->looked_at = f->fits && 2 * f->needed <= f->available;            /* so much room is enough: search.h */
    if (f->fits)
        rc = time_it(f, &e, at);
    evaluation_free(&e);
    return rc;
}

static int assess(struct grid *g, struct found *f, bool whole, double best_s, struct grid_attempt *attempt)
{
    struct stored_program *s = program_store_hold(&g->programs, &f->plan);

    if (!s)
        return -1;
    struct desk *d = desks_take(&g->desks, &f->plan);
    int rc = assess_with(f, &s->program, whole, &(struct evaluating){ d, best_s, attempt });
    desks_give(&g->desks, d);
    program_store_release(&g->programs, s);
    return rc;
}

/* ---- all of them ---- */

static int by_bound(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->bound_s != y->bound_s)
        return x->bound_s < y->bound_s ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* ---- with the lock ---- */

static bool is_wanted(const struct grid *g, int64_t i, double best_s)
{
    return g->o->exhaustive || g->all.found[i].bound_s <= SEARCH_NEAR * best_s;
}

static bool is_to_beat(const struct found *f) { return f->looked_at && f->fits && !f->waits; }

/* Of a candidate that is wanted: with `best_s` for the fastest it may not have been near. */
static void settle(struct grid *g, int64_t i, double *best_s)
{
    struct grid_attempt *a = &g->attempt[i];
    struct found *f = &g->all.found[i];

    if (a->why) {
        g->failed = g->closed = true;
        snprintf(g->why, sizeof g->why, "%s", a->why);
        return;
    }
    if (a->unseen && a->unseen->step_s > SEARCH_NEAR * g->best_s)
        *f = *a->unseen;
    free(a->unseen);
    a->unseen = NULL;
    if (is_to_beat(f) && f->step_s < *best_s)
        *best_s = f->step_s;
}

/* Settles all waves of which nothing is missing; what is known grows by a wave at a time. */
static void settle_waves(struct grid *g)
{
    while (!g->closed && g->evaluated < g->all.n) {
        int64_t end = g->evaluated + WAVE < g->all.n ? g->evaluated + WAVE : g->all.n;
        double best_s = g->best_s;
        for (int64_t i = g->evaluated; i < end; i++)
            if (!g->attempt[i].done)
                return;
        for (; g->evaluated < end && !g->closed; g->evaluated += !g->closed) {
            g->closed = !is_wanted(g, g->evaluated, g->best_s);
            if (!g->closed)
                settle(g, g->evaluated, &best_s);
        }
        g->best_s = best_s;
    }
}

/* ---- */

/* The fastest of what is known of the waves before candidate i's, settled or not: what is settled then is no slower, for where i is wanted all
 * before it are. */
static double best_before(const struct grid *g, int64_t i)
{
    double best_s = g->best_s;

    for (int64_t j = g->evaluated; j < i - i % WAVE; j++)
        if (g->attempt[j].done && is_to_beat(&g->all.found[j]) && g->all.found[j].step_s < best_s)
            best_s = g->all.found[j].step_s;
    return best_s;
}

struct turn { struct grid *g; int64_t i; };

/* Behind the first wave candidates wait until some step is known: else each of them would be near the fastest.  Far ahead few are wanted: a thread
 * rather helps with the wave that is not over. */
static bool may_begin(void *turn)
{
    const struct turn *t = turn;
    struct grid *g = t->g;

    pthread_mutex_lock(&g->lock);
    int64_t ahead = t->i - g->evaluated;
    bool may = g->closed || g->stopped || ahead < WAVE || (ahead < AHEAD * WAVE && best_before(g, t->i) < INFINITY);
    pthread_mutex_unlock(&g->lock);
    return may;
}

/* Candidate i, unless it is too slow; what is settled may say so later. */
static int evaluate_one(void *grid, int64_t i)
{
    struct grid *g = grid;
    struct grid_attempt *a = &g->attempt[i];
    char why[sizeof g->why];

    parallel_wait(may_begin, &(struct turn){ g, i });
    pthread_mutex_lock(&g->lock);
    int64_t settled = g->evaluated;
    double best_s = best_before(g, i);
    bool wanted = !g->closed && is_wanted(g, i, best_s);
    pthread_mutex_unlock(&g->lock);
    wanted = wanted && grid_may_go_on(g, settled, g->all.n);
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = wanted ? assess(g, &g->all.found[i], false, best_s, a) : 0;
    fail_restore(before);
    pthread_mutex_lock(&g->lock);
    if (!g->stopped) {
        a->why = rc < 0 ? strdup(why) : NULL;
        a->done = true;
        settle_waves(g);
    }
    pthread_mutex_unlock(&g->lock);
    parallel_changed();
    return g->stopped ? grid_stop() : 0;
}

/* How many were evaluated; -1 reported. */
static int64_t run_all(struct grid *g)
{
    char why[sizeof g->why];

    if (g->all.n > 1)
        sort_stable(g->all.found, (size_t)g->all.n, sizeof *g->all.found, by_bound);
    g->attempt = room_new((size_t)g->all.n, sizeof *g->attempt);
    struct fail_sink before = fail_divert(why, sizeof why);
    parallel_each(g->all.n, g->o->threads, evaluate_one, g);
    fail_restore(before);
    for (int64_t i = 0; i < g->all.n; i++) {
        free(g->attempt[i].unseen);
        free(g->attempt[i].why);
    }
    free(g->attempt);
    if (g->stopped)
        return g->o->keeps ? g->evaluated : grid_stop();
    return g->failed ? fail("a candidate that passed the checks could not be planned: %s", g->why) : g->evaluated;
}

/* Of those of which only a bound is known, all that may lack less than the nearest does. */
static int measure_nearest(struct grid *g)
{
    double least = INFINITY;

    for (int64_t i = 0; i < g->all.n && g->all.found[i].over < least; i++) {
        struct found *f = &g->all.found[i];
        if (g->o->answer_only && f->over > 0)           /* sorted: no other can fit */
            break;
        if (!grid_may_go_on(g, g->all.n, g->all.n))
            return grid_stop();
        if (f->at_least && assess(g, f, true, g->best_s, NULL) < 0)
            return -1;
        least = fmin(least, f->over);
    }
    return 0;
}

/* Nothing fits: what lacks least. */
static int find_nearest(struct grid *g)
{
    g->collects = true;
    g->all.considered = 0;
    if (g->all.same_cut > 0 && grid_take_cells(g) < 0)
        return -1;
    for (int64_t i = 0; i < g->all.ncut; i++) {
        g->all.found = room_for(g->all.found, g->all.n, &g->all.room, sizeof *g->all.found);
        g->all.found[g->all.n++] = g->all.cut[i];
    }
    if (g->all.n == 0)
        return 0;
    sort_stable(g->all.found, (size_t)g->all.n, sizeof *g->all.found, found_by_lack);
    return measure_nearest(g);
}

static int64_t cut_by_memory(const struct grid *g) { return g->all.ncut + g->all.same_cut; }

static int answer(struct grid *g, struct search_result *out)
{
    int64_t evaluated;

    if (!g->all.considered)
        return fail("nothing to search: %s", refusal(g)[0] ? refusal(g) : "no micro-batch divides the global batch on any grid");
    out->considered = g->all.considered;
    tell_looked(g, out);
    if ((evaluated = run_all(g)) < 0)
        return -1;
    out->grid = g->all.shared;
    out->cut = cut_by_memory(g);
    out->cut_by_time = g->all.n - evaluated;
    out->lowered = evaluated;
    g->all.n = evaluated;
    for (int64_t i = 0; i < g->all.n; i++)
        out->nfit += g->all.found[i].fits;
    out->partial = g->stopped;
    if (!out->nfit && g->stopped)
        return grid_stop();
    if (!out->nfit) {
        if (find_nearest(g) < 0)
            return -1;
        for (int64_t i = 0; i < g->all.n; i++)      /* HOPELESS may leave out what fits */
            out->nfit += g->all.found[i].fits;
    }
    if (g->all.n > 1)
        sort_stable(g->all.found, (size_t)g->all.n, sizeof *g->all.found, found_by_rank);
    out->n = out->nfit ? out->nfit : g->all.n;
    if (!out->nfit && !g->o->answer_only && nearest_first(g->o, g->all.found, g->all.n) < 0)
        return -1;
    out->found = g->all.found;
    g->all.found = NULL;
    return 0;
}

static struct grid *grid_of(const struct search_options *o, uint64_t dialects)
{
    struct grid *g = room_new(1, sizeof *g);

    *g = (struct grid){ .o = o, .dialects = dialects, .best_s = INFINITY, .caller = pthread_self(), .programs = PROGRAM_STORE, .desks = DESKS,
                        .lock = PTHREAD_MUTEX_INITIALIZER };
    return g;
}

void grid_drop(struct grid *g)
{
    if (!g)
        return;
    desks_free(&g->desks);
    program_store_free(&g->programs);
    pthread_mutex_destroy(&g->lock);
    free(g->all.found);
    free(g->all.cut);
    free(g);
}

int grid_search(const struct search_options *o, struct search_result *out)
{
    uint64_t dialects = o->dialects & (BESIDE_DATA | 1u << DIALECT_PAPER | 1u << DIALECT_DEEPSPEED);

    memset(out, 0, sizeof *out);
    if (!dialects)
        return fail("--grid: dialect torch, megatron, deepspeed or paper, no other has tensor, context or pipeline parallelism");
    struct grid *g = grid_of(o, dialects);
    int rc = grid_take_cells(g) < 0 ? -1 : answer(g, out);
    grid_drop(g);
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
        if (g->all.found[i].fits && g->all.found[i].looked_at) {
            all[n] = g->all.found[i];
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

struct grid *grid_new(const struct search_options *o)
{
    struct grid *g = grid_of(o, beside_data(o));

    g->beside = true;
    return g;
}

int grid_beside(struct grid *g, double *best_s)
{
    g->best_s = *best_s;
    int rc = g->all.n == 0 || run_all(g) >= 0 || (g->stopped && g->o->keeps) ? 0 : -1;
    *best_s = g->best_s;
    return rc;
}

void grid_is_unwanted(struct grid *g) { g->unwanted = true; }

bool grid_stopped(const struct grid *g) { return g->stopped; }

const struct found *grid_found(const struct grid *g, int64_t *n)
{
    *n = g->evaluated;
    return g->all.found;
}

void grid_join(struct grid *g, struct search_result *out)
{
    join(g, out);
    out->partial |= g->stopped && g->o->keeps;
    out->considered += g->all.considered;
    tell_looked(g, out);
    out->grid = g->all.shared;
    out->too_long = g->all.too_long;
    out->cut += cut_by_memory(g);
    out->cut_by_time += g->all.n - g->evaluated;
    out->lowered += g->evaluated;
    grid_drop(g);
}
