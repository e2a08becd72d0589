/* ranking.c -- see ranking.h. */
#include "sim/search/ranking.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/room.h"
#include "base/sort.h"
#include "model/memory/evaluate.h"
#include "model/plan/knob.h"
#include "sim/clock/step.h"
#include "sim/search/desks.h"
#include "sim/search/enumerate.h"
#include "sim/search/ties.h"

/* Variants of an idea that are looked at for one nearer to the defaults. */
enum { VARIANTS = 24 };

/* ---- departures ---- */

int ranking_departures(const struct plan *p)
{
    struct plan usual = *p;
    const struct knob *k;
    int n = 0;

    plan_defaults(&usual, p->strategy, p->dialect, p->precision);
    usual.accumulation = p->accumulation;
    usual.kernels = p->kernels;
    usual.clip = p->clip;
    usual.dropout = p->dropout;
    usual.ddp.wrapped = p->ddp.wrapped;
    plan_resolve(&usual);
    for (int i = 0; (k = knob_at(i)); i++)
        if ((k->cells & knob_cell(p)) && k->offset != offsetof(struct plan, reduce_dtype))
            n += knob_get(p, k) < knob_get(&usual, k) || knob_get(p, k) > knob_get(&usual, k);
    return n;
}

/* torch.distributed.fsdp.FullyShardedDataParallel: "FSDP1 is deprecated" (docs, "FSDP1 to FSDP2 migration");
 * torch.nn.DataParallel: "It is recommended to use DistributedDataParallel". */
const char *ranking_deprecated(const struct plan *p)
{
    if (p->dialect == DIALECT_TORCH_FSDP1)
        return "deprecated by PyTorch for fully_shard";
    if (p->strategy == STRAT_DP && p->dialect == DIALECT_TORCH)
        return "deprecated by PyTorch for DistributedDataParallel";
    return NULL;
}

/* ---- ideas ---- */

bool ranking_same_idea(const struct plan *a, const struct plan *b)
{
    return a->strategy == b->strategy && a->dialect == b->dialect && a->micro_batch == b->micro_batch &&
           a->accumulation == b->accumulation && a->recompute == b->recompute &&
           a->recompute_interval == b->recompute_interval && a->shard_group == b->shard_group &&
           a->parallel.tensor == b->parallel.tensor && a->parallel.context == b->parallel.context &&
           a->parallel.expert == b->parallel.expert && a->parallel.expert_tensor == b->parallel.expert_tensor &&
           a->parallel.pipeline == b->parallel.pipeline && a->parallel.pipeline_schedule == b->parallel.pipeline_schedule &&
           enumerate_same_place(a, b);
}

/* What is known of a plan that was looked at. */
struct look {
    double step_s[TIES_VIEWS];
    double retry_s;                 /* simulate_retries_s() */
    double low_s, high_s;
    enum basis basis;
    int64_t taken;                  /* bytes of a GPU that decide, where the allocator was replayed for this look; else 0 */
    bool slower;                    /* than what it was compared with: then nothing else is known */
    bool fits, tight, waits;        /* `fits` as `eval` says it: PyTorch's allocator was replayed */
};

/* A plan that may stand for its idea, with what is known of it. */
struct stand { struct ranked r; struct look look; };

/* An idea: the plan that stands for it; and where that one is tight or waits, the one with room that would (r.found NULL: there is none). */
struct idea { struct stand is, roomy; };

static bool is_slower(const struct look *than, const struct look *l)
{
    return l->step_s[0] - than->step_s[0] > ties_unsure_s(than->step_s, l->step_s);
}

/* What the search has seen of it already. */
static void remember(const struct found *f, const struct look *than, struct look *out)
{
    for (int v = 0; v < TIES_VIEWS; v++)
        out->step_s[v] = f->seen.views[v] + f->retry_s;
    out->retry_s = f->retry_s;
    out->slower = than && is_slower(than, out);
    if (out->slower)
        return;
    out->fits = f->fits;
    out->tight = f->tight;
    out->waits = f->waits;
    out->low_s = f->seen.low_s;
    out->high_s = f->seen.high_s;
    out->basis = f->seen.basis;
}

/* The interval, and whether it waits for memory. */
static int look_closer(const struct found *f, struct step *st, const struct evaluation *e, struct look *out)
{
    struct timing t;
    int rc = f->waits_known ? simulate_interval(st, e, &t) : simulate_step(st, e, &t, NULL);

    out->waits = rc == 0 && (f->waits_known ? f->waits : simulate_waits_for_memory(e, &t));
    out->low_s = t.low_s;
    out->high_s = t.high_s;
    out->basis = t.basis;
    return rc;
}

/* `than`: only a plan that is as fast is of interest; NULL: any. */
static int look_at(struct desk *d, const struct found *f, const struct look *than, struct look *out)
{
    struct evaluation e;
    int rc;

    const struct schedules *of[EVALUATION_STAGES];
    struct step st;

    *out = (struct look){ 0 };
    if (f->seen.known) {
        remember(f, than, out);
        return 0;
    }
    if (evaluate_allocated(&f->plan, &e) < 0)
        return -1;
    cost_cache_use(d->cache, &f->plan);
    if ((rc = step_open(&f->plan, of, evaluation_roles(&e, of), d->cache, &d->memo, &st)) == 0) {
        rc = ties_views_of(&st, out->step_s);
        for (int v = 0; v < TIES_VIEWS; v++)
            out->step_s[v] += f->retry_s;
        out->slower = rc == 0 && than && is_slower(than, out);
        if (rc == 0 && !out->slower) {
            out->taken = search_verdict(f, &e);
            out->fits = e.m.fits;
            out->tight = e.verdict == VERDICT_TIGHT;
        }
        out->retry_s = simulate_retries_s(&e);
        for (int v = 0; v < TIES_VIEWS && out->fits; v++)       /* what the allocator's calls cost may be known only now */
            out->step_s[v] += out->retry_s - f->retry_s;
        out->slower |= out->fits && than && is_slower(than, out);
        if (out->fits)
            rc = look_closer(f, &st, &e, out);
        step_close(&st);
    }
    evaluation_free(&e);
    return rc;
}

static void fill(struct ranked *r, const struct found *f, const struct look *l, int departures)
{
    r->found = f;
    r->departures = departures;
    r->tight = l->tight;
    r->waits = l->waits;
    r->step_s = f->step_s - f->retry_s + l->retry_s;
    r->low_s = l->low_s;
    r->high_s = l->high_s;
    r->basis = l->basis;
    memcpy(r->views, l->step_s, sizeof r->views);
}

/* Of two plans that are a tie: which to tell.  < 0 where the first is. */
static int preferred(const struct ranked *x, const struct ranked *y)
{
    bool old[2] = { ranking_deprecated(&x->found->plan), ranking_deprecated(&y->found->plan) };

    return x->waits != y->waits ? x->waits - y->waits : x->tight != y->tight ? x->tight - y->tight :
           old[0] != old[1] ? old[0] - old[1] : x->departures - y->departures;
}

static bool has_room(const struct ranked *r) { return !r->tight && !r->waits; }

/* Is it tight for certain?  What is allocated needs the headroom. */
static bool is_full(const struct found *f) { return (f->looked_at && f->tight) || f->needed > cluster_available(&f->plan.cluster); }

/* Can the variant change what stands for the idea? */
static bool is_of_interest(const struct idea *idea, const struct found *f, int departures)
{
    const struct ranked *is = &idea->is.r, *roomy = &idea->roomy.r;
    bool nearer = departures < is->departures;

    if (!is->found || is->waits || nearer)
        return true;
    return is->tight && !is_full(f) && (!roomy->found || departures < roomy->departures);
}

/* A variant that fits: it stands for the idea if it is as fast as the fastest and preferred; one that is slower, but has room where that
 * one has not, if it is as fast as the fastest of those and preferred. */
static void compare(struct idea *idea, const struct look *first, const struct stand *with)
{
    bool slower = is_slower(first, &with->look);

    if (!slower && preferred(&with->r, &idea->is.r) < 0)
        idea->is = *with;
    else if (slower && has_room(&with->r) && (!idea->roomy.r.found || preferred(&with->r, &idea->roomy.r) < 0))
        idea->roomy = *with;
}

/* ---- looks ahead ---- */

enum { MOST_AHEAD = 8 };

/* Plans of an idea that may be asked for next, looked at by threads that have nothing else to do.  A look is what it would be then. */
struct ahead {
    const struct search_result *r;
    struct desks *desks;
    int64_t at[MOST_AHEAD];
    int n;
    const struct look *than;
    double than_s[TIES_VIEWS];          /* what they were compared with; unused: nothing */
    bool any;
    struct look look[MOST_AHEAD];
    int rc[MOST_AHEAD];
};

static int look_with_desk(struct ahead *a, int64_t at, const struct look *than, struct look *out)
{
    struct desk *d = desks_take(a->desks, &a->r->found[at].plan);
    int rc = look_at(d, &a->r->found[at], than, out);

    desks_give(a->desks, d);
    return rc;
}

static int look_one_ahead(void *of, int64_t i)
{
    struct ahead *a = of;
    char why[1024];

    struct fail_sink before = fail_divert(why, sizeof why);     /* it is said if it is asked for */
    a->rc[i] = look_with_desk(a, a->at[i], a->than, &a->look[i]);
    fail_restore(before);
    return 0;
}

static int among(const struct ahead *a, int64_t at, const struct look *than)
{
    bool same = than ? a->any && !memcmp(a->than_s, than->step_s, sizeof a->than_s) : !a->any;

    for (int i = 0; i < a->n && same; i++)
        if (a->at[i] == at && a->rc[i] == 0)
            return i;
    return -1;
}

/* ---- one idea ---- */

/* What is known of an idea while its variants are looked at. */
struct settled { const struct search_result *r; int64_t head, variants; int tried; struct look first; };

static bool is_its_variant(const struct settled *s, int64_t i)
{
    return ranking_same_idea(&s->r->found[i].plan, &s->r->found[s->head].plan);
}

/* Is it to be looked at, once so many were?  The first one always is. */
static bool is_asked_for(const struct settled *s, const struct idea *idea, const struct found *f, int tried)
{
    return !idea->is.r.found ||
           (f->step_s <= SEARCH_NEAR * s->first.step_s[0] && tried < VARIANTS && is_of_interest(idea, f, ranking_departures(&f->plan)));
}

/* Looks at plan i, which is asked for, and at those that are next if nothing changes. */
static int look_on(struct ahead *a, const struct settled *s, const struct idea *idea, int64_t i, const struct look *than, struct look *out)
{
    int k = among(a, i, than), idle = k < 0 ? parallel_idle() : 0, most = idle < MOST_AHEAD ? idle + 1 : MOST_AHEAD;

    if (most > 1) {
        a->n = 0;
        for (int64_t j = i; j < s->r->nfit && a->n < most; j++)
            if (j == i || (idea->is.r.found && is_its_variant(s, j) && is_asked_for(s, idea, &s->r->found[j], s->tried + a->n)))
                a->at[a->n++] = j;
        a->than = than;
        a->any = than != NULL;
        if (than)
            memcpy(a->than_s, than->step_s, sizeof a->than_s);
        parallel_each(a->n, 0, look_one_ahead, a);
        k = among(a, i, than);
    }
    if (k < 0)
        return look_with_desk(a, i, than, out);
    *out = a->look[k];
    return 0;
}

/* The idea's fastest plan that fits, or a variant that is as fast for all that the clock can tell and preferred; beside a tight one
 * the same of those with room.  1, 0 when none fits after all, -1. */
static int settle(const struct search_result *r, int64_t head, struct desks *desks, struct idea *out)
{
    struct settled s = { .r = r, .head = head };
    struct ahead ahead = { .r = r, .desks = desks };

    *out = (struct idea){ 0 };
    for (int64_t i = head; i < r->nfit; i++) {
        const struct found *f = &r->found[i];
        bool any = out->is.r.found != NULL;
        if (!is_its_variant(&s, i))
            continue;
        s.variants += any;
        if (!is_asked_for(&s, out, f, s.tried))
            continue;
        const struct look *than = !any ? NULL : has_room(&out->is.r) ? &s.first : out->roomy.r.found ? &out->roomy.look : NULL;
        struct stand with;
        if (look_on(&ahead, &s, out, i, than, &with.look) < 0)
            return -1;
        s.tried += any;
        if (with.look.slower)
            continue;
        if (!with.look.fits) {
            s.variants -= any;
            continue;
        }
        with.r = (struct ranked){ 0 };
        fill(&with.r, f, &with.look, ranking_departures(&f->plan));
        if (any)
            compare(out, &s.first, &with);
        else {
            out->is = with;
            s.first = with.look;
        }
    }
    out->is.r.variants = out->roomy.r.variants = s.variants;
    if (has_room(&out->is.r))
        out->roomy.r.found = NULL;
    return out->is.r.found != NULL;
}

static int by_answer(const void *a, const void *b)
{
    const struct ranked *x = &((const struct idea *)a)->is.r, *y = &((const struct idea *)b)->is.r;

    if (x->waits != y->waits)
        return x->waits ? 1 : -1;
    if (x->tied != y->tied)
        return x->tied ? -1 : 1;
    if (x->tied && preferred(x, y))
        return preferred(x, y);
    if (x->found->step_s != y->found->step_s)
        return x->found->step_s < y->found->step_s ? -1 : 1;
    return x->found->order < y->found->order ? -1 : 1;
}

/* All ideas that matter, by the time of their fastest plan. */
struct ideas {
    const struct search_result *r;
    const struct found **heads;     /* of ideas seen, those that do not fit after all among them */
    struct idea *of;
    int64_t nheads, n, asked, fastest;      /* fastest: of those that do not wait; -1 */
};

static bool is_tied(const struct look *best, const struct look *l)
{
    double apart = fabs(l->step_s[0] - best->step_s[0]);

    return l == best || (apart <= ties_unsure_s(best->step_s, l->step_s) && l->step_s[0] <= SEARCH_NEAR * best->step_s[0]);
}

/* The idea's plan with room; NULL: it has none. */
static struct stand *roomy_of(struct idea *idea)
{
    return has_room(&idea->is.r) ? &idea->is : idea->roomy.r.found ? &idea->roomy : NULL;
}

/* What plans with room are compared with: the fastest of them, where it is at most 5 % slower than the fastest of all.  Reserved memory is
 * predicted within some per cent, and a plan that takes the headroom may end out of memory: that is not worth 5 % of a step.  NULL: there is
 * none. */
static const struct look *with_room(const struct ideas *all)
{
    const struct look *fastest = &all->of[all->fastest].is.look, *best = NULL;

    for (int64_t i = 0; i < all->n; i++) {
        const struct stand *roomy = roomy_of(&all->of[i]);
        if (roomy && roomy->look.step_s[0] <= SEARCH_NEAR * fastest->step_s[0] && (!best || roomy->look.step_s[0] < best->step_s[0]))
            best = &roomy->look;
    }
    return best;
}

/* Which ideas are a tie, and of which of their plans; returns how many. */
static int64_t tie(struct ideas *all)
{
    const struct look *fastest, *room;
    int64_t tied = 0;

    if (all->fastest < 0)               /* all wait */
        return 0;
    fastest = &all->of[all->fastest].is.look;
    room = with_room(all);
    for (int64_t i = 0; i < all->n; i++) {
        struct idea *idea = &all->of[i];
        struct stand *roomy = roomy_of(idea);
        idea->is.r.tied = !idea->is.r.waits && is_tied(fastest, &idea->is.look);
        if (roomy && room && is_tied(room, &roomy->look)) {
            roomy->r.by_room = !is_tied(fastest, &roomy->look);
            roomy->r.tied = true;
        }
    }
    for (int64_t i = 0; i < all->n; i++) {          /* a plan with room stands for its idea, from here on: `room` points into them */
        struct idea *idea = &all->of[i];
        if (idea->roomy.r.tied)
            idea->is = idea->roomy;
        tied += idea->is.r.tied;
    }
    return tied;
}

/* Ideas that are settled at once; each has its own place for what was found out. */
enum { AT_ONCE = 16 };

struct settling {
    const struct search_result *r;
    int64_t head[AT_ONCE];
    struct idea idea[AT_ONCE];
    int     settled[AT_ONCE];
    struct desks desks;
};

static int settle_one(void *of, int64_t i)
{
    struct settling *s = of;

    s->settled[i] = settle(s->r, s->head[i], &s->desks, &s->idea[i]);
    return s->settled[i] < 0 ? -1 : 0;
}

/* Does the answer end before this plan? */
static bool enough(const struct ideas *all, const struct found *f)
{
    if (all->n < all->asked || all->fastest < 0 || f->step_s <= SEARCH_NEAR * all->of[all->fastest].is.look.step_s[0])
        return false;
    const struct look *room = with_room(all);
    return !room || f->step_s > SEARCH_NEAR * room->step_s[0];
}

static bool is_known(const struct ideas *all, const struct found *f)
{
    for (int64_t k = 0; k < all->nheads; k++)
        if (ranking_same_idea(&all->heads[k]->plan, &f->plan))
            return true;
    return false;
}

/* The next ideas from plan *at on, as many as are wanted in any case, or as there are threads; how many. */
static int64_t next_heads(struct ideas *all, int64_t *at, int64_t head[AT_ONCE])
{
    int64_t most = all->asked - all->n > parallel_threads() ? all->asked - all->n : parallel_threads(), n = 0;

    for (; *at < all->r->nfit && n < most && n < AT_ONCE && !enough(all, &all->r->found[*at]); ++*at)
        if (!is_known(all, &all->r->found[*at])) {
            all->heads[all->nheads++] = &all->r->found[*at];
            head[n++] = *at;
        }
    return n;
}

static int collect(struct ideas *all)
{
    struct settling *s = room_new(1, sizeof *s);
    int rc = 0;

    *s = (struct settling){ .r = all->r, .desks = DESKS };
    for (int64_t at = 0, n; rc == 0 && (n = next_heads(all, &at, s->head)) > 0; ) {
        rc = parallel_each(n, 0, settle_one, s);
        for (int64_t i = 0; i < n && rc == 0 && !enough(all, &all->r->found[s->head[i]]); i++) {
            if (!s->settled[i])
                continue;
            all->of[all->n] = s->idea[i];
            const struct stand *is = &s->idea[i].is;
            if (!is->r.waits && (all->fastest < 0 || is->look.step_s[0] < all->of[all->fastest].is.look.step_s[0]))
                all->fastest = all->n;
            all->n++;
        }
    }
    desks_free(&s->desks);
    free(s);
    return rc;
}

/* Where all that are nearer to the defaults than the first are tight, the nearest of these is the second: whoever reads the answer is to
 * choose between a plain plan with little room and a less usual one with more. */
static void plain_and_tight_second(struct idea *all, int64_t tied)
{
    int64_t at = 0;
    struct idea plain;

    for (int64_t i = 1; i < tied; i++)
        if (all[i].is.r.tight && !ranking_deprecated(&all[i].is.r.found->plan) && all[i].is.r.departures < all[at].is.r.departures)
            at = i;
    if (at < 2 || all[0].is.r.tight)
        return;
    plain = all[at];
    memmove(&all[2], &all[1], (size_t)(at - 1) * sizeof *all);
    all[1] = plain;
}

int64_t ranking(const struct search_result *r, struct ranked *out, int64_t n, int64_t *tied)
{
    struct ideas all = { .r = r, .asked = n, .fastest = -1 };

    all.of = room_new((size_t)r->nfit + 1, sizeof *all.of);
    all.heads = room_new((size_t)r->nfit + 1, sizeof *all.heads);
    int rc = collect(&all);
    *tied = tie(&all);
    if (all.n > 1)
        sort_stable(all.of, (size_t)all.n, sizeof *all.of, by_answer);
    plain_and_tight_second(all.of, *tied);
    n = rc < 0 ? -1 : all.n < n ? all.n : n;
    for (int64_t i = 0; i < n; i++) {
        out[i] = all.of[i].is.r;
        out[i].unsure_s = i ? ties_unsure_s(all.of[0].is.look.step_s, all.of[i].is.look.step_s) : 0;
        struct found *f = &r->found[out[i].found - r->found];
        f->waits = out[i].waits;
        f->waits_known = true;
        f->taken = f->taken ? f->taken : all.of[i].is.look.taken;
    }
    free(all.heads);
    free(all.of);
    return n;
}

struct asides { const struct ranked *first; const struct found *const *f; struct ranked *out; struct desks desks; };

static int one_aside(void *of, int64_t i)
{
    struct asides *b = of;
    struct look l;

    if (b->out[i].found)
        return 0;
    struct desk *d = desks_take(&b->desks, &b->f[i]->plan);
    int rc = look_at(d, b->f[i], NULL, &l);
    desks_give(&b->desks, d);
    if (rc == 0 && l.fits) {
        fill(&b->out[i], b->f[i], &l, ranking_departures(&b->f[i]->plan));
        b->out[i].unsure_s = ties_unsure_s(b->first->views, l.step_s);
    }
    return rc;
}

int ranking_beside(const struct ranked *first, const struct found *const *f, int64_t n, struct ranked *out)
{
    struct asides b = { first, f, out, DESKS };
    int rc = parallel_each(n, 0, one_aside, &b);

    desks_free(&b.desks);
    return rc;
}
