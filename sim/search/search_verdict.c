/* search_verdict.c -- of plans that a search found: what PyTorch's allocator says of one, and which are both small and fast. */
#include "sim/search/search.h"

#include <stdint.h>

/* The replay of a plan without a pipeline. */
static int64_t replay(const struct plan *p, struct evaluation *e)
{
    struct reserved r;
    int rc = reserved_within(p, &e->schedules, &e->m.overhead, NULL, &r);

    e->verdict = rc < 0 ? VERDICT_DOES_NOT_FIT : reserved_verdict(&r, e->m.fits);
    e->reserved.steady_retries = rc < 0 ? 0 : r.steady_retries;
    e->reserved.steady_calls = rc < 0 ? 0 : r.steady_calls;
    return rc < 0 ? 0 : evaluation_taken(&e->m, &r);
}

int64_t search_verdict(const struct found *f, struct evaluation *e)
{
    int64_t taken = 0;

    if (f->looked_at) {
        e->reserved.steady_retries = f->steady_retries;
        e->reserved.steady_calls = f->steady_calls;
        e->verdict = !f->fits ? VERDICT_DOES_NOT_FIT : f->tight ? VERDICT_TIGHT : VERDICT_FITS;
    } else if (!e->nstages) {
        taken = replay(&f->plan, e);
    } else if (evaluation_reserve_within(&f->plan, e) < 0) {
        e->verdict = VERDICT_DOES_NOT_FIT;
    } else {
        taken = evaluation_taken(&e->m, &e->reserved);
    }
    e->m.fits = e->verdict != VERDICT_DOES_NOT_FIT;
    return e->m.fits ? taken : 0;
}

void search_pareto_but(const struct search_result *r, const bool *but, bool *out)
{
    int64_t least = INT64_MAX;

    for (int64_t i = 0; i < r->nfit; i++) {     /* by time: each must be smaller than all before */
        out[i] = r->found[i].needed < least && !(r->elsewhere_left_out && r->found[i].elsewhere) && !(but && but[i]);
        if (out[i])
            least = r->found[i].needed;
    }
}

void search_pareto(const struct search_result *r, bool *out)
{
    search_pareto_but(r, NULL, out);
}
