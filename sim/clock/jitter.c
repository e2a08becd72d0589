/* jitter.c -- the expected slowest of N ranks whose speeds vary, and what waiting for it adds. */
#include "sim/clock/jitter.h"

#include <math.h>
#include <stdlib.h>

#include "base/fail.h"
#include "sim/price/gpu_rates.h"

int jitter_parse(const char *text, struct jitter *out)
{
    double v[4] = { 0 };
    const char *at = text;
    int n = 0;

    for (; n < 4; n++) {
        char *end;
        v[n] = strtod(at, &end);
        if (end == at || !isfinite(v[n]) || v[n] < 0 || (*end && *end != ',') || (*end == ',' && n == 3))
            return fail("--jitter \"%s\": must be SIGMA_P[,SIGMA_T[,LAMBDA,D]], numbers of at least 0: a share of "
                        "the step, seconds, events per rank and step, seconds; such as 0.03,20e-6,1e-6,0.5", text);
        if (!*end)
            break;
        at = end + 1;
    }
    if (n == 2)
        return fail("--jitter \"%s\": LAMBDA needs D, the seconds that an event takes", text);
    if (v[0] >= 1 || v[2] > 1)
        return fail("--jitter \"%s\": %s", text, v[0] >= 1 ? "SIGMA_P is a share of the step, below 1"
                                                           : "LAMBDA is a probability, at most 1");
    *out = (struct jitter){ v[0], v[1], v[2], v[3] };
    return 0;
}

double jitter_as_everywhere(double x)
{
    int exponent;

    x = frexp(x, &exponent);
    return ldexp(round(ldexp(x, 47)), exponent - 47);
}

/* P(max <= x) = F = Phi(x)^n, and the mean of what has distribution F is int_0^inf (1 - F(x)) - F(-x).  What is integrated is even, smooth
 * and soon 0, so the trapezoid rule over all x is exact to the last digits at this step: to 1e-18 for a million ranks.  What is below 2^-60 of
 * what it is taken from or added to, and so would be lost in rounding, is left out: Phi(-x)^n, at most Phi(-x)^(n-1) of 1 - Phi(x)^n, and
 * the end of the sum. */
double jitter_largest(int64_t n)
{
    enum { STEPS = 160 };
    const double reach = 10, h = reach / STEPS, least = exp2(-60. / (double)(n - 1));
    double sum = 0;

    if (n < 2)
        return 0;
    for (int i = 0; i <= STEPS; i++) {
        double x = h * i;
        double above = erfc(x / sqrt(2)) / 2;           /* 1 - Phi(x) = Phi(-x) */
        double below = above < least ? 0 : exp((double)n * log(above));
        if (2 * (double)n * above < 0x1p-60 * sum)
            break;
        sum += (i == 0 ? 0.5 : 1) * (-expm1((double)n * log1p(-above)) - below);
    }
    return jitter_as_everywhere(sum * h);
}

#define SIGMA (0.05 / 2.85)

/* A search asks for one world again and again. */
double jitter_slowest_s(const struct cluster *c, double compute_s)
{
    static _Thread_local struct { int64_t n; double largest; } last;

    if (c->is_host || gpu_is_host(&c->gpu))
        return 0;
    if (last.n != c->world_size) {
        last.n = c->world_size;
        last.largest = jitter_largest(c->world_size);
    }
    return compute_s * SIGMA * last.largest;
}

/* ---- where compute waits for collectives ---- */

/* Position of the latest collective behind each stream and event that no stream that runs
 * kernels has waited for yet, -1: none. */
struct pending { int64_t stream[NSTREAM], *event; };

static void latest(int64_t *at, int64_t other)
{
    if (other > *at)
        *at = other;
}

/* The latest collective that the entry waits for. */
static int64_t awaited(const struct pending *w, const struct schedules *s, const struct op *o, int64_t iteration)
{
    int64_t at = w->stream[o->stream];

    for (unsigned st = 0; st < NSTREAM; st++)
        if (o->after & AFTER(st))
            latest(&at, w->stream[st]);
    for (int k = 0; k < 2; k++)
        if (o->wait[k])
            latest(&at, w->event[sched_event_at(s, o, o->wait[k], iteration)]);
    return at;
}

static double transient(const struct jitter *j, double largest, const struct schedules *s, const struct run *r)
{
    struct pending w;
    int64_t joined = -1;            /* collectives up to here have been waited for */
    double late = 0, entries = 0;

    w.event = calloc((size_t)s->nevents + 1, sizeof *w.event);
    if (!w.event)
        abort();
    for (int st = 0; st < NSTREAM; st++)
        w.stream[st] = -1;
    for (int e = 0; e <= s->nevents; e++)
        w.event[e] = -1;
    for (int64_t i = 0; i < r->n; i++) {
        const struct op *o = &s->ops[r->ran[i].op];
        int64_t at = o->kind == OP_COLL ? i : awaited(&w, s, o, r->ran[i].iteration);
        w.stream[o->stream] = at;
        if (o->record)
            w.event[sched_event_at(s, o, o->record, r->ran[i].iteration)] = at;
        if (o->stream != STREAM_COMPUTE && o->stream != STREAM_ISSUE)
            continue;
        if (at > joined) {
            double slack = fmax(r->ran[i].start - r->ran[at].end, 0);
            late += fmax(sqrt(entries) * j->sigma_t * largest - slack, 0);
            joined = at;
            entries = 0;
        }
        entries += r->ran[i].end > r->ran[i].start && (o->kind == OP_COMPUTE || o->kind == OP_OPTIMIZER);
    }
    free(w.event);
    return late;
}

void jitter_of(const struct jitter *j, int64_t n, const struct schedules *s, const struct run *r,
               struct jitter_added *out)
{
    double largest = jitter_largest(n);

    *out = (struct jitter_added){
        .persistent_s = r->total.step_s * j->sigma_p * largest,
        .transient_s = transient(j, largest, s, r),
        .events_s = (double)n * j->lambda * j->delay,
    };
}

json_t *jitter_json(const struct jitter *j, const struct jitter_added *a, double step_s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "sigma_p", j->sigma_p, "sigma_t", j->sigma_t,
                     "lambda", j->lambda, "delay_s", j->delay, "persistent_s", a->persistent_s, "transient_s",
                     a->transient_s, "events_s", a->events_s, "step_s",
                     step_s + a->persistent_s + a->transient_s + a->events_s);
}
