/* found.c -- see found.h. */
#include "sim/search/found.h"

#include <math.h>
#include <string.h>

#include "base/sort.h"
#include "model/memory/evaluate.h"
#include "model/memory/reserved.h"
#include "sim/clock/simulate.h"

int64_t found_limit(const struct plan *p)
{
    return reserved_is_known(p) ? p->cluster.memory - p->cluster.context : cluster_available(&p->cluster);
}

double found_short_by(int64_t needed, int64_t there)
{
    return (double)(needed - there) / (there > 1 ? (double)there : 1);
}

double found_over(const struct memory_verdict *m, int64_t device)
{
    double over = found_short_by(m->needed, device);

    for (int s = SPACE_DEVICE + 1; m->elsewhere && s < NSPACE; s++)
        if (m->spaces.of[s].available > 0)
            over = fmax(over, found_short_by(m->spaces.of[s].peak, m->spaces.of[s].available));
    return over;
}

void found_keep_times(struct found *f, const struct timeline *t, int ngroups)
{
    f->slowest_s = t->slowest_s;
    f->step_s = t->step_s;
    f->compute_s = t->compute_s;
    f->exposed_s = t->exposed_s;
    f->optimizer_s = t->optimizer_s;
    f->idle_s = t->idle_s;
    for (int op = 0; op < NCOLL; op++)
        for (int g = 0; g < ngroups; g++)
            f->exposed_by[op] += t->exposed_by[op][g];
    memcpy(f->away_s, t->away_s, sizeof f->away_s);
}

void found_same_times(struct found *f, const struct found *as)
{
    f->slowest_s = as->slowest_s;
    f->step_s = as->step_s;
    f->compute_s = as->compute_s;
    f->exposed_s = as->exposed_s;
    f->optimizer_s = as->optimizer_s;
    f->idle_s = as->idle_s;
    memcpy(f->exposed_by, as->exposed_by, sizeof f->exposed_by);
    memcpy(f->away_s, as->away_s, sizeof f->away_s);
}

const struct found *found_twin(const struct found *all, int64_t from, int64_t i)
{
    for (const struct found *f = &all[from]; f < &all[i]; f++)
        if (f->fits && !f->refused && f->key == all[i].key && f->needed == all[i].needed)
            return f;
    return NULL;
}

int64_t found_at_the_top(const struct found *ranked, int64_t n, bool fastest_only, bool front, double within_s, int64_t *out)
{
    bool seen[NSTRATEGY][NDIALECT] = { 0 };
    int64_t top = 0, saving = front ? 0 : SEARCH_FRONT, least = INT64_MAX, found = 0;

    for (int64_t i = 0; i < n && ranked[i].fits; i++) {
        const struct found *f = &ranked[i];
        bool *cell = &seen[f->plan.strategy][f->plan.dialect];
        bool saves = saving < SEARCH_FRONT && (double)f->needed < SEARCH_WORTH * (double)least;
        bool fast = top == 0 || (!fastest_only && top < SEARCH_LOOKS && f->step_s <= within_s);
        if ((fast || (!fastest_only && (!*cell || saves))) && !f->looked_at)
            out[found++] = i;
        top++;
        *cell = true;
        saving += saves;
        least = saves ? f->needed : least;
    }
    return found;
}

/* ---- order ---- */

int found_by_rank(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    if (x->fits && x->step_s != y->step_s)
        return x->step_s < y->step_s ? -1 : 1;
    if (x->tight != y->tight)
        return x->tight ? 1 : -1;
    if (!x->fits && x->over != y->over)
        return x->over < y->over ? -1 : 1;
    if (x->needed != y->needed)
        return x->needed < y->needed ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

int found_by_lack(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->over != y->over)
        return x->over < y->over ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int by_key(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

int64_t found_drop_duplicates(struct found *f, int64_t n)
{
    int64_t kept = 0;

    sort_stable(f, (size_t)n, sizeof *f, by_key);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || f[i].key != f[kept - 1].key || f[i].needed != f[kept - 1].needed)
            f[kept++] = f[i];
    return kept;
}

int64_t found_drop_refused(struct found *f, int64_t n)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        if (!f[i].refused && !f[i].too_slow)
            f[kept++] = f[i];
    return kept;
}

int64_t found_keep_assessed(struct found *f, int64_t n, int64_t *fit)
{
    int64_t kept = 0;

    *fit = 0;
    for (int64_t i = 0; i < n; i++)
        if (f[i].assessed || f[i].at_least) {
            *fit += f[i].fits;
            f[kept++] = f[i];
        }
    return kept;
}

/* ---- PyTorch's allocator ---- */

int found_replay(struct found *f, const struct schedules *s, const struct memory_verdict *m)
{
    struct reserved r;

    if (reserved_within(&f->plan, s, &m->overhead, NULL, &r) < 0)
        return -1;
    enum verdict v = reserved_verdict(&r, m->fits);     /* other memories were asked before */
    f->looked_at = true;
    f->fits = v != VERDICT_DOES_NOT_FIT;
    f->tight = v == VERDICT_TIGHT;
    f->steady_retries = r.steady_retries;
    f->steady_calls = r.steady_calls;
    f->retry_s = f->fits ? simulate_retry_s(&r) : 0;
    f->step_s += f->retry_s;
    f->idle_s += f->retry_s;
    f->taken = f->fits ? evaluation_taken(m, &r) : 0;
    if (!f->fits) {
        f->needed = r.limit + r.refused + m->overhead.by[OVERHEAD_OUTSIDE];
        f->available = r.limit + m->overhead.by[OVERHEAD_OUTSIDE];
        f->over = found_short_by(f->needed, f->available);
    }
    return 0;
}

/* ---- waiting for memory ---- */

int found_waits(struct found *f, struct evaluation *e)
{
    search_verdict(f, e);
    f->waits_known = simulate_waits(&f->plan, e, &f->waits) == 0;
    return f->waits_known ? 0 : -1;
}

int found_see(struct found *f, struct evaluation *e, struct step *st)
{
    struct timing t;

    search_verdict(f, e);
    if (ties_views_of(st, f->seen.views) < 0 || simulate_step(st, e, &t, NULL) < 0)
        return -1;
    f->seen.low_s = t.low_s;
    f->seen.high_s = t.high_s;
    f->seen.basis = t.basis;
    f->seen.known = true;
    f->waits = simulate_waits_for_memory(e, &t);
    f->waits_known = true;
    return 0;
}

int found_learn_waits(struct found *f)
{
    struct evaluation e;

    if (f->waits_known)
        return 0;
    if (evaluate_allocated(&f->plan, &e) < 0)
        return -1;
    int rc = found_waits(f, &e);
    evaluation_free(&e);
    return rc;
}
