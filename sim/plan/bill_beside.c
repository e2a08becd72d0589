/* bill_beside.c -- see bill_beside.h. */
#include "sim/plan/bill_beside.h"

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "sim/clock/passes.h"
#include "sim/clock/simulate.h"

static int step_with(const struct plan *p, double inter, double *step_s)
{
    struct plan at = *p;                /* shares all that it points to */
    struct evaluation e;
    struct timing t;

    at.cluster.inter = inter;
    at.cluster.measured = NULL;
    if (evaluate(&at, &e) < 0)
        return -1;
    int rc = simulate_plan(&at, &e, &t, NULL);
    evaluation_free(&e);
    *step_s = rc < 0 ? 0 : t.line.step_s;
    return rc;
}

int bill_beside_network(const struct plan *p, double rate, double *times)
{
    double all, left;

    if (step_with(p, p->cluster.inter, &all) < 0 || step_with(p, p->cluster.inter - rate, &left) < 0)
        return -1;
    *times = left > all ? left / all : 1;
    return 0;
}

/* The first backward entry's start. */
static double first_backward(const struct schedules *s, const struct run *r)
{
    struct passes at = { 0 };

    for (int64_t i = 0; i < r->n; i++) {
        const struct op *o = &s->ops[r->ran[i].op];
        if (r->ran[i].end > r->ran[i].start && passes_next(&at, s, o, r->ran[i].iteration).kind == PASS_IS_BACKWARD)
            return r->ran[i].start;
    }
    return 0;
}

int bill_forward(const struct plan *p, double *seconds)
{
    struct evaluation e;
    struct timing t;
    struct run r = { .n = 0 };

    if (p->parallel.pipeline > 1)
        return fail("--eval-samples: what a forward pass of a pipeline takes by itself is not known");
    if (evaluate(p, &e) < 0)
        return -1;
    int rc = simulate_plan(p, &e, &t, &r);
    *seconds = rc < 0 ? 0 : first_backward(&e.schedules, &r);
    run_free(&r);
    evaluation_free(&e);
    if (rc == 0 && !(*seconds > 0))
        rc = fail("--eval-samples: the step of this plan has no forward pass that the clock tells apart");
    return rc;
}
