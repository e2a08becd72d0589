/* search.c -- candidates in waves on all cores: bounds first, then lowering, then the clock, then the fastest kept. */
#include "sim/search/search_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/room.h"
#include "base/sort.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/simulate.h"
#include "sim/search/alike.h"
#include "sim/search/bounds.h"
#include "sim/search/by_time.h"
#include "sim/search/enumerate.h"
#include "sim/search/found.h"
#include "sim/search/programs.h"
#include "sim/search/grid.h"
#include "sim/search/nearest.h"
#include "sim/search/ranking.h"
#include "sim/search/worth.h"

/* Plans with equal kernels follow each other as they are enumerated; variants that save memory may have any before. */
static int program_for(struct work *w, const struct plan *p)
{
    return programs_of(&w->programs, p, w->first_later < 0 ? INT_MAX : 0);
}

bool search_same_run(const struct plan *a, const struct plan *b)
{
    return knob_cell(a) == knob_cell(b) && a->micro_batch == b->micro_batch && a->recompute == b->recompute &&
           a->recompute_interval == b->recompute_interval;
}

/* ---- what cannot fit ---- */

static struct found *push(struct work *w, const struct plan *p, int program)
{
    struct plan in_place = enumerate_in_place(p);

    w->found = room_for(w->found, w->n, &w->room, sizeof *w->found);
    struct found *f = &w->found[w->n++];
    *f = (struct found){ .plan = *p, .order = w->seen++, .program = program, .elsewhere = !enumerate_same_place(p, &in_place) };
    return f;
}

/* One stands for all of its run that a bound leaves out: the one nearest to the defaults.  Its number is not of a program, but of the
 * plan whose bound is least. */
static void leave_out(struct work *w, const struct plan *p, int64_t least)
{
    struct found *f = w->n ? &w->found[w->n - 1] : NULL;

    if (w->first_later < 0 && f && f->at_least && search_same_run(&f->plan, p)) {
        f->stands_for++;
        w->seen++;
        if (least < f->needed) {
            f->needed = least;
            f->over = found_short_by(least, found_limit(p));
            w->least[f->program] = *p;
        }
        return;
    }
    bool refused;
    struct plan usual = w->first_later < 0 ? enumerate_usual(p, &refused) : *p;
    w->least = room_for(w->least, w->nleast, &w->least_room, sizeof *w->least);
    w->least[w->nleast] = *p;
    f = push(w, &usual, (int)w->nleast++);
    f->needed = least;
    f->over = found_short_by(least, found_limit(p));
    f->available = cluster_available(&p->cluster);
    f->at_least = true;
    f->key = hash_mix(0, (uint64_t)f->order);
}

/* Runs of a smaller micro-batch with the same kernels keep too much: so does this one, and none of its plans lacks less.  Where the
 * micro-batch is all of the batch no gradients are kept between micro-steps: then it is looked at. */
static bool is_full(const struct work *w, const struct plan *p)
{
    for (int64_t i = 0; i < w->nfull && p->accumulation > 1; i++)
        if (knob_cell(&w->full[i]) == knob_cell(p) && w->full[i].recompute == p->recompute &&
            w->full[i].recompute_interval == p->recompute_interval && w->full[i].micro_batch < p->micro_batch)
            return true;
    return false;
}

/* A run whose kernels keep too much is left out whole. */
static int take_run(const struct plan *p, void *arg)
{
    struct work *w = arg;
    bool refused;
    struct plan usual = enumerate_usual(p, &refused);

    w->looked |= refused ? 0 : UINT64_C(1) << p->dialect;
    if (w->o->exhaustive || refused || (w->o->accept && !w->o->accept(&usual, w->o->accept_what)))
        return 0;
    if (is_full(w, &usual)) {
        w->cut++;
        w->seen++;
        return 1;
    }
    int program = program_for(w, &usual);
    if (program < 0)
        return -1;
    int64_t least = bounds_activations(&usual, w->programs.of[program].program);
    if (least <= found_limit(&usual))
        return 0;
    leave_out(w, &usual, bounds_bytes(&usual, w->programs.of[program].program));
    w->full = room_for(w->full, w->nfull, &w->full_room, sizeof *w->full);
    w->full[w->nfull++] = usual;
    return 1;
}

/* Plans that passed the checks can be planned; of variants that save memory, where the cluster says what they need. */
void search_cannot(struct work *w, int64_t i, const char why[256])
{
    bool refused = w->first_later >= 0 && i >= w->first_later;

    w->found[i].refused = refused;
    pthread_mutex_lock(&w->lock);
    if (refused ? w->refused == 0 || i < w->first_refused : w->failed == 0)
        memcpy(refused ? w->why_refused : w->why, why, 256);
    if (refused && (w->refused == 0 || i < w->first_refused))
        w->first_refused = i;
    ++*(refused ? &w->refused : &w->failed);
    pthread_mutex_unlock(&w->lock);
}

int search_take(const struct plan *p, void *arg)
{
    struct work *w = arg;

    if (w->whole && !search_same_run(&w->whole->plan, p))
        return 0;
    w->looked |= UINT64_C(1) << p->dialect;
    int program = program_for(w, p);
    if (program < 0)
        return -1;
    const struct program *g = w->programs.of[program].program;
    int64_t least = w->o->exhaustive ? 0 : bounds_bytes(p, g);
    bool over = least > found_limit(p);
    char why[256];
    if (w->whole && !over)
        return 0;
    if (!w->o->exhaustive && bounds_host_is_short(p, g)) {
        w->cut++;
        w->seen++;
    } else if (over && !w->whole) {
        leave_out(w, p, least);
    } else {
        struct found *f = push(w, p, program);
        w->programs.of[program].used = true;
        f->too_slow = !w->whole && saving_is_slow(w, p, program);
        f->over = over ? found_short_by(least, found_limit(p)) : 0;
        f->needed = least;
        if (w->first_later >= 0 && !w->o->exhaustive && unpriced_is(&w->unpriced, p, g, why))
            search_cannot(w, w->n - 1, why);
    }
    return 0;
}

/* ---- one candidate ---- */

int search_assess(struct work *w, int64_t from, int64_t i, struct schedules *s, struct desk *desk)
{
    struct found *f = &w->found[i];
    struct memory_verdict m;
    struct priced prices;
    struct contention slow;
    struct timeline t;

    if (evaluate_memory(&f->plan, w->programs.of[f->program].program, s, &m) < 0)
        return -1;
    f->needed = m.needed;
    f->available = m.available;
    bool decides = reserved_is_known(&f->plan);
    f->over = found_over(&m, found_limit(&f->plan));
    f->looked_at = !decides || 2 * m.needed <= m.available;
    f->fits = (decides ? m.needed <= found_limit(&f->plan) : m.fits) &&
              (!m.elsewhere || spaces_short(&m.spaces) < 0);
    f->key = alike_key(s, f->program);
    if (!f->fits)
        return 0;
    if (!desk)
        return fail("a plan that fits was left out by a bound: it needs %" PRId64 " bytes", m.needed);
    const struct found *twin = found_twin(w->found, from, i);
    if (twin) {
        found_same_times(f, twin);
        return 0;
    }
    cost_cache_use(desk->cache, &f->plan);
    if (simulate_price(&f->plan, s, SCHED_STEADY, desk->cache, &desk->memo, &prices) < 0)
        return -1;
    simulate_contention(&f->plan, s, &prices, &slow);
    clock_one(s, SCHED_STEADY, &prices.middle, &slow, &t, NULL);
    simulate_priced_free(&prices);
    simulate_slowest(&f->plan, &t);
    found_keep_times(f, &t, s->groups.n);
    return 0;
}

/* ---- PyTorch's allocator ---- */

static int look_at(const struct work *w, struct found *f, struct schedules *s)
{
    struct memory_verdict m;

    return evaluate_memory(&f->plan, w->programs.of[f->program].program, s, &m) < 0 ? -1 : found_replay(f, s, &m);
}

/* ---- all candidates ---- */

enum { RUN = 4 };                       /* candidates that a thread takes at a time */

/* The thread that called search() asks whether it may go on: its language may have a word to say (Python's signals are
 * handled in one thread only). */
static void ask_on(struct work *w)
{
    int64_t done = w->next;

    if (w->o->go_on && pthread_equal(w->caller, pthread_self()) && !w->o->go_on(w->o->go_on_of, done < w->n ? done : w->n, w->n))
        w->stopped = 1;
}

static void one(struct work *w, int64_t from, int64_t i, struct desk *d, const char why[256])
{
    if (!w->found[i].at_least && !w->found[i].refused && !w->found[i].too_slow && search_assess(w, from, i, &d->s, d) < 0)
        search_cannot(w, i, why);
    w->found[i].assessed = true;
    ask_on(w);
}

/* Candidates are taken in runs, so that neighbours with equal kernels meet the same prices. */
static int some(void *of, int64_t run)
{
    struct work *w = of;
    char why[256];

    ask_on(w);                              /* the others may leave this one nothing */
    int64_t from = atomic_fetch_add(&w->next, RUN);
    if (from >= w->n || w->failed || w->stopped)
        return 0;
    struct fail_sink before = fail_divert(why, sizeof why);
    struct desk *d = desks_take(&w->desks, &w->found[from].plan);
    for (int64_t i = from; i < from + RUN && i < w->n && !w->stopped; i++)
        one(w, from, i, d, why);
    desks_give(&w->desks, d);
    fail_restore(before);
    (void)run;
    return 0;
}

/* Is it the fastest so far?  It must not leave out others by its time where PyTorch's allocator refuses it, or where it waits: then it
 * comes behind all of them. */
static int learn_best(const struct work *w, struct found *f, double *best_s)
{
    struct evaluation e;

    if (!f->fits || f->step_s >= *best_s)
        return 0;
    if (evaluate_using(&f->plan, w->programs.of[f->program].program, &e) < 0)
        return -1;
    int rc = f->looked_at ? 0 : found_replay(f, &e.schedules, &e.m);
    if (rc == 0 && f->fits)
        rc = found_waits(f, &e);
    evaluation_free(&e);
    if (rc == 0 && f->fits && !f->waits && f->step_s < *best_s)
        *best_s = f->step_s;
    return rc;
}

static int look(void *of, int64_t i, struct desk *d)
{
    struct work *w = of;
    char why[256];

    if (w->failed || w->stopped)
        return 0;
    struct fail_sink before = fail_divert(why, sizeof why);
    one(w, i, i, d, why);
    fail_restore(before);
    return 0;
}

static int learn(void *of, int64_t i, double *best_s)
{
    struct work *w = of;

    return w->failed || w->stopped ? -1 : learn_best(w, &w->found[i], best_s);
}

static void run_by_time(struct work *w)
{
    char why[256];
    struct fail_sink before = fail_divert(why, sizeof why);
    int rc = by_time_run(&(struct by_time){ w, w->found, w->next, w->n, &w->programs, &w->desks, w->o->threads, look, learn, NULL }, &w->best_s);

    fail_restore(before);
    if (rc < 0 && !w->stopped && atomic_fetch_add(&w->failed, 1) == 0)
        memcpy(w->why, why, sizeof why);
    w->next = w->n;
}

void search_run_all(struct work *w)
{
    int64_t left = w->n - w->next;

    if (left <= 0)
        return;
    if (w->o->answer_only && !w->o->exhaustive)
        run_by_time(w);
    else
        parallel_each((left + RUN - 1) / RUN, w->o->threads, some, w);
    desks_clear(&w->desks);
}

/* ---- the top of the ranking ---- */

struct looks { struct work *w; const int64_t *at; };

static int look_at_one(void *of, int64_t i)
{
    const struct looks *l = of;
    struct schedules s = { 0 };
    int rc = look_at(l->w, &l->w->found[l->at[i]], &s);

    schedules_free(&s);
    return rc;
}

/* Ranks n plans, with the allocator's word on those at the top.  Those that it refuses make room for others. */
static int rank(struct work *w, int64_t n)
{
    int64_t *at = room_new((size_t)n + 1, sizeof *at), more;
    int rc = 0;

    do {
        if (n > 1)
            sort_stable(w->found, (size_t)n, sizeof *w->found, found_by_rank);
        more = found_at_the_top(w->found, n, w->o->answer_only, !w->o->no_front, SEARCH_NEAR * SEARCH_NEAR * w->best_s, at);
        rc = parallel_each(more, w->o->threads, look_at_one, &(struct looks){ w, at });
    } while (more > 0 && rc == 0);
    free(at);
    return rc;
}

/* ---- between what keeps all in device memory and what does not ---- */

/* Plans whose allocator is replayed at once, whatever the number of threads. */
enum { TOGETHER = 4 };

static int by_rank(const void *a, const void *b) { return found_by_rank(*(struct found *const *)a, *(struct found *const *)b); }

/* The fastest that fits, by PyTorch's allocator, and does not wait: into best_s.  Of the first few. */
static int find_fastest(struct work *w)
{
    struct found **of = room_new((size_t)w->n + 1, sizeof *of);
    int64_t at[TOGETHER], more = 0, waiting = 0;
    int rc = 0;

    for (int64_t i = 0; i < w->n; i++)
        of[i] = &w->found[i];
    do {
        if (w->n > 1)
            sort_stable(of, (size_t)w->n, sizeof *of, by_rank);
        more = 0;
        for (int64_t i = waiting; more < TOGETHER && i < w->n && of[i]->fits && !(of[i]->looked_at && !more); i++)
            if (!of[i]->looked_at)
                at[more++] = of[i] - w->found;
        rc = parallel_each(more, w->o->threads, look_at_one, &(struct looks){ w, at });
        if (rc == 0 && more == 0 && waiting < w->n && of[waiting]->fits) {
            rc = found_learn_waits(of[waiting]);
            if (rc == 0 && !of[waiting]->waits)
                w->best_s = of[waiting]->step_s;
            more = ++waiting < SEARCH_LOOKS && w->best_s == INFINITY;
        }
    } while (more > 0 && rc == 0);
    free(of);
    return rc;
}

/* Plans are looked at by their bounds of time while these are within a limit: of what may be a tie with the fastest, which is known or, for all
 * that is allocated, not; once the grids are known, of the ideas that are shown, too. */
struct by_need { struct work *w; const struct found *grid; int64_t ngrid; bool shown; };

static double limit(void *by_need)
{
    const struct by_need *b = by_need;
    const struct work *w = b->w;
    double best_s = w->best_s;

    for (int64_t i = 0; i < w->n && w->best_s == INFINITY; i++)
        best_s = w->found[i].fits && w->found[i].step_s < best_s ? w->found[i].step_s : best_s;
    double shown_s = b->shown ? worth_ideas_s(w->found, w->n, b->grid, b->ngrid, w->o->ideas > 0 ? w->o->ideas : SEARCH_IDEAS) : 0;
    return b->shown && w->best_s == INFINITY ? INFINITY : fmax(SEARCH_NEAR * SEARCH_NEAR * best_s, shown_s);
}

static int look_needed(void *by_need, int64_t i, struct desk *d)
{
    return look(((struct by_need *)by_need)->w, i, d);
}

static struct by_time by_need(struct by_need *b)
{
    return (struct by_time){ b, b->w->found, 0, b->w->n, &b->w->programs, &b->w->desks, b->w->o->threads, look_needed, NULL, limit };
}

static int64_t assessed(const struct work *w)
{
    int64_t n = 0;

    for (int64_t i = 0; i < w->n; i++)
        n += w->found[i].assessed;
    return n;
}

/* The fastest in device memory that the allocator does not refuse: where it refuses some, more are looked at. */
static int look_for_fastest(struct by_need *b)
{
    struct work *w = b->w;
    struct by_time all = by_need(b);
    int64_t before;
    int rc;

    do {
        before = assessed(w);
        if ((rc = by_time_run(&all, &w->best_s)) < 0 || w->failed || w->stopped)
            break;
        w->best_s = INFINITY;
        rc = find_fastest(w);
    } while (rc == 0 && assessed(w) > before);
    return rc;
}

enum { MORE = 16 };

/* The answer needs the allocator's word on the fastest of each strategy and dialect in any case: once it is known, others are beaten by their
 * bounds. */
static int replay_best(struct work *w)
{
    int64_t at[WORTH_CELLS], n;
    int rc = 0;

    while (rc == 0 && !w->failed && !w->stopped && (n = worth_replays(w->found, w->n, at)) > 0)
        rc = parallel_each(n, w->o->threads, look_at_one, &(struct looks){ w, at });
    return rc;
}

/* What else the answer needs; the rest is too slow. */
static int look_for_more(struct by_need *b)
{
    struct work *w = b->w;
    struct by_time all = by_need(b);
    int64_t at[MORE], n;
    int rc;

    b->shown = true;
    rc = by_time_run(&all, &w->best_s);
    while (rc == 0 && w->best_s < INFINITY && (rc = replay_best(w)) == 0 && !w->failed && !w->stopped &&
           (n = worth_more(w->found, w->n, MORE, at)) > 0)
        rc = by_time_look(&all, at, n);
    for (int64_t i = 0; i < w->n && rc == 0 && !w->stopped; i++)
        w->found[i].too_slow |= !w->found[i].at_least && !w->found[i].assessed;
    w->next = w->n;
    return rc;
}

/* Grids, whose steps to beat are those of data parallelism in device memory; where nothing fits there they come later. */
static int look_beside(struct work *w, struct grid **beside)
{
    struct by_need b = { .w = w };
    bool all = w->o->exhaustive || w->o->answer_only;

    if ((all && !w->o->answer_only && find_fastest(w) < 0) || (!all && look_for_fastest(&b) < 0))
        return -1;
    if (w->best_s < INFINITY && !w->failed && !w->stopped && beside) {
        *beside = w->beside ? w->beside : grid_new(w->o);
        bool taken = w->beside;
        w->beside = NULL;
        if ((!taken && grid_take_cells(*beside) < 0) || grid_beside(*beside, &w->best_s) < 0)
            return -1;
        b.grid = grid_found(*beside, &b.ngrid);
        if (grid_stopped(*beside))
            w->stopped = 1;
    }
    if (!all && !w->failed && !w->stopped && look_for_more(&b) < 0)
        return -1;
    if (w->best_s < INFINITY)
        saving_limit(w, b.grid, b.ngrid);
    return 0;
}

/* Is there a plan that no bound of memory leaves out? */
static bool any_in_question(const struct work *w)
{
    for (int64_t i = 0; i < w->n; i++)
        if (!w->found[i].at_least)
            return true;
    return false;
}

/* Plans of data parallelism alone, and beside them those of grids. */
static int enumerate_one(void *of, int64_t i)
{
    struct work *w = of;

    if (i == 0) {
        int rc = enumerate_runs(w->o, take_run, search_take, w);
        if (w->beside && !any_in_question(w))       /* what is asked for then has other candidates, too */
            grid_is_unwanted(w->beside);
        return rc;
    }
    if (grid_take_cells(w->beside) < 0)         /* it is said where they are looked at */
        w->no_grid = true;
    return 0;
}

static int enumerate_all(struct work *w, bool grids)
{
    w->beside = grids ? grid_new(w->o) : NULL;
    int rc = parallel_each(grids ? 2 : 1, w->o->threads, enumerate_one, w);

    if (w->beside && grid_stopped(w->beside))
        w->stopped = 1;
    if (w->no_grid) {
        grid_drop(w->beside);
        w->beside = NULL;
    }
    return rc;
}

/* Every rank has all of the model's blocks. */
int search_data(const struct search_options *o, struct grid **beside, struct search_result *out)
{
    struct work w = { .o = o, .first_later = -1, .best_s = INFINITY, .slow_s = INFINITY, .caller = pthread_self(), .lock = PTHREAD_MUTEX_INITIALIZER, .desks = DESKS };
    int64_t fit = 0;
    int rc = -1;

    memset(out, 0, sizeof *out);
    if (o->global_batch % o->cluster->world_size)
        return fail("--global-batch %lld is not a multiple of the %lld ranks of %s", (long long)o->global_batch,
                    (long long)o->cluster->world_size, o->cluster->name);
    int64_t each = o->global_batch / o->cluster->world_size, most = PLAN_MAX_BATCH;
    if (o->micro_batch && each % o->micro_batch)
        return fail("--micro-batch %lld does not divide the %lld samples of each rank", (long long)o->micro_batch,
                    (long long)each);
    if (each > most * (o->micro_batch ? o->micro_batch : most))
        return fail("--global-batch %lld is more than %lld micro-batches on each of %lld ranks",
                    (long long)o->global_batch, (long long)most, (long long)o->cluster->world_size);
    if (enumerate_all(&w, beside && !o->answer_only && !o->exhaustive) < 0)
        goto out;
    if (w.n == 0) {
        fail("nothing to search: no strategy of the chosen frameworks and dialects accepts this model, "
             "batch and precision");
        goto out;
    }
    if (o->exhaustive || o->answer_only)
        search_run_all(&w);
    if (!w.failed && !w.stopped && look_beside(&w, beside) < 0)
        goto out;
    if (!w.failed && saving_look(&w) < 0)
        goto out;
    if (w.stopped && o->keeps && !w.failed)
        w.n = found_keep_assessed(w.found, w.n, &fit);
    out->partial = fit > 0;
    if (w.stopped && !out->partial) {
        out->stopped = true;
        fail("search: stopped before all plans were looked at");
        goto out;
    }
    if (w.failed)
        goto failed;
    for (int64_t i = 0; i < w.n; i++) {
        out->elsewhere += w.found[i].elsewhere;
        out->cut_by_time += w.found[i].too_slow;
        out->nrefused += w.found[i].elsewhere && w.found[i].refused;
    }
    out->elsewhere_left_out = w.slow_s < INFINITY;
    memcpy(out->refused, w.why_refused, sizeof out->refused);
    w.n = found_drop_refused(w.found, w.n);
    w.first_later = w.first_later < w.n ? w.first_later : w.n;     /* what search_find_nearest() adds may be refused, too */
    if (!out->partial && !o->answer_only && search_find_nearest(&w) < 0)
        goto failed;
    w.n = found_drop_refused(w.found, w.n);
    out->considered = w.seen - w.twice;
    out->looked = w.looked;
    out->cut = w.cut;
    for (int64_t i = 0; i < w.n; i++) {
        out->lowered += !w.found[i].at_least;
        out->cut += w.found[i].at_least ? 1 + w.found[i].stands_for : 0;
    }
    out->n = found_drop_duplicates(w.found, w.n);
    if (rank(&w, out->n) < 0)
        goto out;
    out->found = w.found;
    w.found = NULL;
    while (out->nfit < out->n && out->found[out->nfit].fits)
        out->nfit++;
    if ((rc = out->nfit > 0 || out->partial || o->answer_only ? 0 : nearest_first(o, out->found, out->n)) < 0) {
        search_free(out);
        out->stopped = true;
    }
failed:
    if (w.failed)
        fail("a candidate that passed the checks could not be planned: %s", w.why);
out:
    grid_drop(w.beside);
    cost_cache_free(w.bounding);
    desks_free(&w.desks);
    unpriced_free(&w.unpriced);
    programs_free(&w.programs);
    free(w.full);
    free(w.least);
    free(w.found);
    return rc;
}

void search_free(struct search_result *r)
{
    free(r->found);
    memset(r, 0, sizeof *r);
}
