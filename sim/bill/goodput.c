/* goodput.c -- the mean of a run with interruptions, in closed form, and the interval that makes it least. */
#include "sim/bill/goodput.h"

#include <math.h>

/* Seconds from one checkpoint to the next. */
static double round_s(const struct long_run *r)
{
    double work = (double)r->every * r->step_s;

    return r->blocked_s + (work > r->behind_s ? work : r->behind_s);
}

double goodput_rate(const struct long_run *r) { return 1 / r->mtbf_s + (r->preempted_s > 0 ? 1 / r->preempted_s : 0); }

void goodput_expect(const struct long_run *r, struct run_time *out)
{
    double l = goodput_rate(r), w = round_s(r), rounds = (double)r->steps / (double)r->every;

    *out = (struct run_time){ .useful_s = (double)r->steps * r->step_s, .blocked_s = rounds * (w - (double)r->every * r->step_s),
                              .warm_s = r->warm_s };
    if (!(l > 0)) {
        out->total_s = out->useful_s + out->blocked_s + r->warm_s;
        return;
    }
    out->total_s = rounds * exp(l * r->recover_s) / l * expm1(l * w) * exp(l * r->behind_s);
    out->interruptions = l * out->total_s;
    out->restarts_s = out->total_s * -expm1(-l * r->recover_s);         /* all but 1/l of each e^(l recover_s)/l */
    out->lost_s = out->total_s - out->restarts_s - out->useful_s - out->blocked_s;
    if (!isfinite(out->total_s))
        return;
    out->queued_s = out->total_s * r->queue_s * (r->requeued ? l : r->preempted_s > 0 ? 1 / r->preempted_s : 0);
    double warm = out->total_s * exp(-l * r->recover_s) * expm1(l * r->warm_s);
    out->restarts_s -= warm;
    out->warm_s += warm;
    out->total_s += out->queued_s + r->warm_s;
}

static double total_of(struct long_run r, int64_t every)
{
    struct run_time t;

    r.every = every;
    goodput_expect(&r, &t);
    return t.total_s;
}

/* The mean falls and then rises: candidates 2 % apart, then every number about the best of them. */
int64_t goodput_best_every(const struct long_run *r)
{
    int64_t best = 1, at = 1;

    if (!(goodput_rate(r) > 0))
        return r->steps;
    for (; at <= r->steps; at += at / 50 + 1)
        if (total_of(*r, at) < total_of(*r, best))
            best = at;
    if (total_of(*r, r->steps) < total_of(*r, best))
        best = r->steps;
    int64_t from = best - best / 50 - 1, to = best + best / 50 + 1;
    for (at = from > 1 ? from : 1; at <= to && at <= r->steps; at++)
        if (total_of(*r, at) < total_of(*r, best))
            best = at;
    return best;
}

/* Beyond the best the mean rises. */
int64_t goodput_longest_every(const struct long_run *r, double most)
{
    double limit = most * total_of(*r, r->every);
    int64_t is = r->every, not = r->steps + 1;

    while (is + 1 < not) {
        int64_t at = is < not / 2 ? 2 * is : is + (not - is) / 2;
        if (total_of(*r, at) <= limit)
            is = at;
        else
            not = at;
    }
    return is;
}

double goodput_young_s(double blocked_s, double mtbf_s) { return sqrt(2 * blocked_s * mtbf_s); }

double goodput_daly_s(double blocked_s, double mtbf_s)
{
    double x = sqrt(blocked_s / (2 * mtbf_s));

    return blocked_s < 2 * mtbf_s ? sqrt(2 * blocked_s * mtbf_s) * (1 + x / 3 + x * x / 9) - blocked_s : mtbf_s;
}
