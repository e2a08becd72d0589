/* saving.c -- what lacks memory, with less of it: the variants that save device memory. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/plan/knob.h"
#include "sim/search/bounds.h"
#include "sim/search/enumerate.h"
#include "sim/search/ranking.h"
#include "sim/search/search_internal.h"
#include "sim/search/worth.h"

/* What its step takes at least; the last plan with the same kernels, as many micro-steps and the same framework has the same bound. */
static double bound_of(struct work *w, const struct plan *p, int program)
{
    bool same = w->bounding && w->bounded.program == program && knob_cell(&w->bounded.plan) == knob_cell(p) &&
                w->bounded.plan.accumulation == p->accumulation;

    if (!w->bounding)
        w->bounding = cost_cache_new(p);
    if (!same) {
        cost_cache_use(w->bounding, p);
        w->bounded.s = bounds_step_s(p, w->programs.of[program].program, w->bounding);
        w->bounded.plan = *p;
        w->bounded.program = program;
    }
    return w->bounded.s;
}

/* A plan that needs more than this share of what there is may be refused by the allocator. */
#define FULL 0.9

static bool lacks(const struct found *f)
{
    return f->at_least || !f->fits || (double)f->needed > FULL * (double)f->available;
}

/* The run from `i` on; *usual, *least: of its plans the nearest to the defaults, and the one that needs least, by its bound where that
 * left it out; -1 where one of them has room. */
static int64_t run_from(const struct work *w, int64_t i, int64_t *usual, int64_t *least)
{
    int64_t first = i;
    int fewest = INT_MAX;
    bool room = false;

    *usual = *least = i;
    for (; i < w->n && search_same_run(&w->found[first].plan, &w->found[i].plan); i++) {
        const struct found *f = &w->found[i];
        int departures = ranking_departures(&f->plan);
        room |= f->too_slow || !lacks(f);           /* what saves memory is not faster */
        if (departures < fewest) {
            fewest = departures;
            *usual = i;
        }
        if (f->needed < w->found[*least].needed)
            *least = i;
    }
    if (room)
        *usual = *least = -1;
    return i;
}

/* Where no variant of a smaller micro-batch fits, with as much recompute, none of this one does. */
static bool hopeless(const struct work *w, int64_t n, const struct plan *p)
{
    bool any = false;

    for (int64_t i = n; i < w->n; i++) {
        const struct plan *q = &w->found[i].plan;
        if (knob_cell(q) != knob_cell(p) || q->recompute != p->recompute || q->recompute_interval != p->recompute_interval ||
            q->micro_batch >= p->micro_batch)
            continue;
        if (w->found[i].fits || w->found[i].too_slow)
            return false;
        any = true;
    }
    return any;
}

static bool has_fitting(const struct work *w, int64_t n, const struct plan *p, bool in_place)
{
    for (int64_t i = n; i < w->n; i++)
        if ((w->found[i].fits || w->found[i].too_slow) && !(in_place && w->found[i].elsewhere) && search_same_run(&w->found[i].plan, p))
            return true;
    return false;
}

/* Are all variants too slow that move data?  None has fewer kernels than the same plan without recompute. */
static bool none_may_be_fast(struct work *w, const struct plan *base)
{
    struct plan p = *base;

    if (w->slow_s == INFINITY || !worth_is_in_place(w->found, w->n, base))
        return false;
    p.recompute = RECOMPUTE_NONE;
    p.recompute_interval = 1;
    p = enumerate_in_place(&p);
    int program = programs_of(&w->programs, &p, 0);
    if (program < 0)
        return false;
    w->programs.of[program].used = true;
    return bound_of(w, &p, program) > w->slow_s;
}

/* ---- which of those that a bound left out needs least ---- */

struct least { struct work *w; const struct plan *run; struct plan best; int64_t needed; struct schedules s; };

static int need_less(const struct plan *p, void *arg)
{
    struct least *l = arg;
    struct memory_verdict m;

    if (!search_same_run(p, l->run))
        return 0;
    int program = programs_of(&l->w->programs, p, 0);
    if (program < 0)
        return -1;
    l->w->programs.of[program].used = true;
    const struct program *g = l->w->programs.of[program].program;
    if (bounds_bytes(p, g) >= l->needed)
        return 0;
    if (evaluate_memory(p, g, &l->s, &m) < 0)
        return -1;
    if (m.needed < l->needed) {
        l->needed = m.needed;
        l->best = *p;
    }
    return 0;
}

/* Where a plan fits, the variants of the others only have to be fast: the bound's word on which needs least is enough. */
static bool any_fits(const struct work *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (w->found[i].fits)
            return true;
    return false;
}

/* Of a run that bounds left out whole the plan that needs least: a bound does not know all that differs. */
static int least_of_run(struct work *w, const struct plan *p, struct plan *out)
{
    struct least l = { .w = w, .run = p, .best = *p, .needed = INT64_MAX };
    struct search_options one = *w->o;

    one.strategies = UINT64_C(1) << p->strategy;
    one.dialects = UINT64_C(1) << p->dialect;
    one.recompute = UINT64_C(1) << p->recompute;
    one.micro_batch = p->micro_batch;
    int rc = enumerate(&one, need_less, &l);
    l.s.borrowed = true;
    schedules_free(&l.s);
    *out = l.best;
    return rc;
}

/* ---- the variants ---- */

/* Appends the variants that save memory of the runs of one micro-batch that lack it: of the plan nearest to the
 * defaults, or where none of those fits of the one that needs least; of that one without offload where only offload
 * helped the other. */
static int append_saving(struct work *w, int64_t n, int64_t micro_batch, bool least)
{
    int rc = 0;

    for (int64_t i = 0, next, of[2]; i < n && !rc; i = next) {
        int64_t all = w->n;
        next = i + 1;
        if (w->found[i].plan.micro_batch != micro_batch)
            continue;
        w->n = n;                       /* the run is among the first */
        next = run_from(w, i, &of[0], &of[1]);
        w->n = all;
        if (of[0] < 0 || hopeless(w, n, &w->found[i].plan))
            continue;
        const struct found *usual = &w->found[of[0]], *smallest = &w->found[of[1]];
        struct plan base = !least ? usual->plan : smallest->at_least ? w->least[smallest->program] : smallest->plan;
        bool in_place = w->o->in_place || (least && has_fitting(w, n, &base, false)) || none_may_be_fast(w, &base);
        if (least && smallest->at_least && !in_place && !any_fits(w, n))
            rc = least_of_run(w, &w->least[smallest->program], &base);
        if (rc == 0 && (!least || (memcmp(&base, &usual->plan, sizeof base) && !has_fitting(w, n, &base, true))))
            rc = enumerate_saving(w->o, &base, in_place, search_take, w);
    }
    return rc;
}

int saving_look(struct work *w)
{
    int64_t n = w->n, done = 0;
    int rc = 0;

    w->first_later = n;
    w->later = w->seen;
    while (!rc && !w->failed && !w->stopped) {
        int64_t least = INT64_MAX;
        for (int64_t i = 0; i < n; i++)
            if (w->found[i].plan.micro_batch > done && w->found[i].plan.micro_batch < least)
                least = w->found[i].plan.micro_batch;
        if (least == INT64_MAX)
            break;
        done = least;
        for (int k = 0; k < 2 && !rc; k++) {
            w->next = w->n;
            rc = append_saving(w, n, least, k > 0);
            if (!rc)
                search_run_all(w);
        }
    }
    return rc;
}

/* ---- what is not looked at ---- */

/* Distinct ideas among those that fit, and that are not among `before`, up to `most` in all. */
static int64_t ideas_of(const struct found *f, int64_t n, const struct plan **of, int64_t known, int64_t most)
{
    for (int64_t i = 0; i < n && known < most; i++) {
        bool new = f[i].fits && !f[i].refused;
        for (int64_t k = 0; new && k < known; k++)
            new = !ranking_same_idea(of[k], &f[i].plan);
        if (new)
            of[known++] = &f[i].plan;
    }
    return known;
}

static bool has_room(const struct found *f, int64_t n, double best_s)
{
    for (int64_t i = 0; i < n; i++)
        if (f[i].fits && f[i].looked_at && !f[i].tight && f[i].waits_known && !f[i].waits && f[i].step_s <= best_s)
            return true;
    return false;
}

void saving_limit(struct work *w, const struct found *grid, int64_t n)
{
    int64_t most = w->o->ideas > 0 ? w->o->ideas : SEARCH_IDEAS;
    const struct plan **of = room_new((size_t)most, sizeof *of);
    int64_t ideas = ideas_of(grid, n, of, ideas_of(w->found, w->n, of, 0, most), most);

    free(of);
    if (ideas < most || w->o->exhaustive || w->o->answer_only)
        return;
    /* Where the fastest is tight, what has room and is a tie with it is what others are compared with (ranking.h). */
    w->slow_s = SEARCH_NEAR * (has_room(w->found, w->n, w->best_s) || has_room(grid, n, w->best_s) ? 1 : SEARCH_NEAR) * w->best_s;
}

bool saving_is_slow(struct work *w, const struct plan *p, int program)
{
    struct plan in_place = enumerate_in_place(p);

    if (w->first_later < 0 || w->slow_s == INFINITY || enumerate_same_place(p, &in_place) || !worth_is_in_place(w->found, w->n, p))
        return false;
    return bound_of(w, p, program) > w->slow_s;
}
