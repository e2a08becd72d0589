/* ranking.c -- see ranking.h. */
#include "sim/search/ranking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/search/ties.h"

/* Variants of an idea that are looked at for one nearer to the defaults, and how much slower they may be
 * for that: what is further away is no tie. */
enum { VARIANTS = 24 };
#define NEAR 1.05

/* ---- departures ---- */

static int leaves(const json_t *j)
{
    const char *key;
    json_t *v;
    int n = 0;

    if (!json_is_object(j))
        return 1;
    json_object_foreach((json_t *)(uintptr_t)j, key, v)
        n += leaves(v);
    return n;
}

static int differences(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    int n = 0;

    if (!json_is_object(a) || !json_is_object(b))
        return !json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b);
    json_object_foreach((json_t *)(uintptr_t)a, key, v) {
        const json_t *w = json_object_get(b, key);
        n += w ? differences(v, w) : leaves(v);
    }
    return n;
}

int ranking_departures(const struct plan *p)
{
    static const char *const same[] = { "model", "cluster", "reduce_dtype" };
    struct plan usual = *p;
    json_t *mine = plan_to_json(p), *theirs;
    int n;

    plan_defaults(&usual, p->strategy, p->dialect, p->precision);
    usual.accumulation = p->accumulation;
    usual.kernels = p->kernels;
    usual.clip = p->clip;
    usual.dropout = p->dropout;
    plan_resolve(&usual);
    theirs = plan_to_json(&usual);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_object_del(mine, same[i]);
        json_object_del(theirs, same[i]);
    }
    n = differences(mine, theirs);
    json_decref(mine);
    json_decref(theirs);
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

static bool same_idea(const struct plan *a, const struct plan *b)
{
    return a->strategy == b->strategy && a->dialect == b->dialect && a->micro_batch == b->micro_batch &&
           a->accumulation == b->accumulation && a->recompute == b->recompute &&
           a->recompute_interval == b->recompute_interval && a->shard_group == b->shard_group;
}

/* What is known of a plan that was looked at. */
struct look {
    double step_s[TIES_VIEWS];
    struct timing t;
    bool waits, tight;
};

struct desk { struct cost_cache *cache; struct coll_memo memo; };

static bool slower(const struct look *than, const struct look *l)
{
    return l->step_s[0] - than->step_s[0] > ties_unsure_s(than->step_s, l->step_s);
}

/* 1; 0 where the plan is slower than `than` (NULL: none) or the allocator refuses it; -1. */
static int look_at(struct desk *d, const struct found *f, const struct look *than, struct look *out)
{
    struct evaluation e;
    int rc;

    if (evaluate_allocated(&f->plan, &e) < 0)
        return -1;
    if (!d->cache)
        d->cache = cost_cache_new(&f->plan);
    rc = ties_views(&f->plan, &e.schedules, d->cache, &d->memo, out->step_s);
    if (rc < 0 || (than && slower(than, out)))
        goto out;
    search_verdict(f, &e);
    if (!e.m.fits)
        goto out;
    rc = simulate_plan(&f->plan, &e, &out->t, NULL) < 0 ? -1 : 1;
    if (rc < 0)
        goto out;
    out->waits = waits_for_memory(&e, &out->t);
    out->tight = e.verdict == VERDICT_TIGHT;
out:
    evaluation_free(&e);
    return rc;
}

static void fill(struct ranked *r, const struct found *f, const struct look *l, int departures)
{
    r->found = f;
    r->departures = departures;
    r->waits = l->waits;
    r->tight = l->tight;
    r->low_s = l->t.low_s;
    r->high_s = l->t.high_s;
    r->basis = l->t.basis;
}

/* The idea's fastest plan, or a variant that is as fast for all that the clock can tell and has fewer
 * departures.  1, or 0 where the allocator refuses the fastest. */
static int settle(const struct search_result *r, int64_t head, struct desk *d, struct ranked *out, struct look *best)
{
    const struct found *fastest = &r->found[head];
    struct look first, other;
    int tried = 0, fewest = ranking_departures(&fastest->plan);

    int rc = look_at(d, fastest, NULL, &first);
    if (rc <= 0)
        return rc;
    *best = first;
    fill(out, fastest, best, fewest);
    for (int64_t i = head + 1; i < r->nfit; i++) {
        const struct found *f = &r->found[i];
        if (!same_idea(&f->plan, &fastest->plan))
            continue;
        out->variants++;
        if (f->step_s > NEAR * fastest->step_s || tried == VARIANTS)
            continue;
        int departures = ranking_departures(&f->plan);
        if (departures >= fewest && !out->waits && !out->tight)
            continue;
        tried++;
        rc = look_at(d, f, &first, &other);
        if (rc < 0)
            return -1;
        bool better = departures < fewest || out->waits || (out->tight && !other.tight);
        if (rc == 0 || !better || other.waits || (other.tight && !out->tight))
            continue;
        *best = other;
        fewest = departures;
        fill(out, f, best, departures);
    }
    return 1;
}

/* An idea while it is put in order. */
struct idea { struct ranked r; struct look l; };

static int by_answer(const void *a, const void *b)
{
    const struct ranked *x = &((const struct idea *)a)->r, *y = &((const struct idea *)b)->r;

    if (x->waits != y->waits)
        return x->waits ? 1 : -1;
    if (x->tied != y->tied)
        return x->tied ? -1 : 1;
    if (x->tied && x->tight != y->tight)
        return x->tight ? 1 : -1;
    if (x->tied && x->departures != y->departures)
        return x->departures < y->departures ? -1 : 1;
    if (x->found->step_s != y->found->step_s)
        return x->found->step_s < y->found->step_s ? -1 : 1;
    return x->found->order < y->found->order ? -1 : 1;
}

static bool tie(const struct look *a, const struct look *b)
{
    return fabs(a->step_s[0] - b->step_s[0]) <= ties_unsure_s(a->step_s, b->step_s);
}

/* Of the ideas that are slower than the fastest, a tight one comes after those that fit and are a tie with it. */
static void let_fitting_pass(struct idea *of, int64_t n)
{
    for (int64_t i = n - 2; i >= 0; i--)
        for (int64_t k = i; k + 1 < n; k++) {
            struct idea *x = &of[k], *y = &of[k + 1], swap = *x;
            if (x->r.tied || x->r.waits != y->r.waits || !x->r.tight || y->r.tight || !tie(&x->l, &y->l))
                break;
            *x = *y;
            *y = swap;
        }
}

static void compare_with_fastest(struct idea *of, int64_t n, int64_t fastest)
{
    for (int64_t i = 0; i < n; i++) {
        of[i].r.unsure_s = i == fastest ? 0 : ties_unsure_s(of[fastest].l.step_s, of[i].l.step_s);
        of[i].r.tied = i == fastest || tie(&of[i].l, &of[fastest].l);
    }
}

int64_t ranking(const struct search_result *r, struct ranked *out, int64_t n)
{
    struct idea *ideas = room_new((size_t)n + 1, sizeof *ideas);
    struct desk d = { 0 };
    int64_t nideas = 0, fastest = -1;

    for (int64_t i = 0; i < r->nfit && nideas < n; i++) {
        struct idea *x = &ideas[nideas];
        bool known = false;
        for (int64_t k = 0; k < nideas && !known; k++)
            known = same_idea(&ideas[k].r.found->plan, &r->found[i].plan);
        if (known)
            continue;
        x->r = (struct ranked){ 0 };
        int rc = settle(r, i, &d, &x->r, &x->l);
        if (rc < 0) {
            nideas = -1;
            break;
        }
        if (rc == 0)
            continue;                   /* the idea's next plan may fit */
        if (!x->r.waits && (fastest < 0 || x->l.step_s[0] < ideas[fastest].l.step_s[0]))
            fastest = nideas;
        nideas++;
    }
    cost_cache_free(d.cache);
    if (nideas > 0) {
        compare_with_fastest(ideas, nideas, fastest < 0 ? 0 : fastest);     /* < 0: all wait */
        qsort(ideas, (size_t)nideas, sizeof *ideas, by_answer);
        let_fitting_pass(ideas, nideas);
    }
    for (int64_t i = 0; i < nideas; i++)
        out[i] = ideas[i].r;
    free(ideas);
    return nideas;
}
