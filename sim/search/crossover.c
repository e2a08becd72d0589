/* crossover.c -- see crossover.h. */
#include "sim/search/crossover.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/parallel.h"
#include "base/room.h"
#include "model/memory/evaluate.h"
#include "model/schedule/measured.h"
#include "sim/clock/simulate.h"
#include "sim/clock/step.h"

/* Steps that are known by then: the same speeds are asked for again. */
enum { KNOWN = 16 };

struct crossover_plan {
    struct plan plan;
    struct evaluation e;
    bool asked, fits;               /* PyTorch's allocator; what it said */
    pthread_mutex_t lock;           /* of what follows */
    struct { double by, s; } known[KNOWN];
    unsigned nknown;
};

struct crossover_plan *crossover_open(const struct plan *p)
{
    struct crossover_plan *s = room_new(1, sizeof *s);

    s->plan = *p;
    if (evaluate_allocated(&s->plan, &s->e) < 0) {
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void crossover_close(struct crossover_plan *s)
{
    if (!s)
        return;
    evaluation_free(&s->e);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bool crossover_fits(struct crossover_plan *s)
{
    if (!s->asked)
        s->fits = evaluation_reserve_within(&s->plan, &s->e) == 0 && s->e.m.fits;
    s->nknown = s->asked ? s->nknown : 0;           /* what it does again in every step counts from now on */
    s->asked = true;
    return s->fits;
}

/* Of one sweep: sizes of the same operation among the same ranks. */
static bool of_one_sweep(const struct measured_coll *a, const struct measured_coll *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->star == b->star && a->ranks == b->ranks && a->per_node == b->per_node;
}

/* What was measured, on a network of `by` times the speed. */
static struct measured_coll *vary(const struct measured_device *measured, double by, struct measured_device *varied)
{
    struct measured_coll *coll = room_new((size_t)measured->ncoll + 1, sizeof *coll);

    for (int i = 0, first = 0; i < measured->ncoll; i++) {
        const struct measured_coll *was = &measured->coll[i];
        if (!of_one_sweep(was, &measured->coll[first]))
            first = i;
        double least = measured->coll[first].s;
        coll[i] = *was;
        if (was->ranks > was->per_node && was->s > least)
            coll[i].s = least + (was->s - least) / by;
    }
    *varied = *measured;
    varied->coll = coll;
    return coll;
}

static double timed(const struct crossover_plan *s, double by)
{
    struct plan p = s->plan;            /* shares the model; not freed */
    struct measured_device varied;
    struct measured_coll *coll = NULL;
    struct coll_memo memo = { 0 };
    struct stage_parts parts;
    struct timeline t;

    p.cluster.inter *= by;
    if (p.cluster.measured) {
        coll = vary(p.cluster.measured, by, &varied);
        p.cluster.measured = &varied;
    }
    struct cost_cache *cache = cost_cache_new(&p);
    int rc = step_time(&p, &s->e, cache, &memo, &t, &parts);
    cost_cache_free(cache);
    free(coll);
    return rc < 0 ? -1 : t.step_s + simulate_retries_s(&s->e);
}

double crossover_step(struct crossover_plan *s, double by)
{
    double known = 0;

    pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < s->nknown && i < KNOWN; i++)
        known = s->known[i].by == by ? s->known[i].s : known;
    pthread_mutex_unlock(&s->lock);
    if (known > 0)
        return known;
    known = timed(s, by);
    pthread_mutex_lock(&s->lock);
    s->known[s->nknown % KNOWN].by = by;
    s->known[s->nknown++ % KNOWN].s = known;
    pthread_mutex_unlock(&s->lock);
    return known;
}

struct asking { struct crossover_plan *const *of; int64_t n; const double *by; double *out; };

static int ask(void *asking, int64_t i)
{
    const struct asking *a = asking;

    a->out[i] = crossover_step(a->of[i % a->n], a->by[i / a->n]);
    return a->out[i] < 0 ? -1 : 0;
}

/* Of each speed all plans' steps, one after the other. */
static void ask_all(struct crossover_plan *const *of, int n, const double *by, int speeds, double *out)
{
    for (int i = 0; i < n * speeds; i++)
        out[i] = -1;
    parallel_each(n * speeds, 0, ask, &(struct asking){ of, n, by, out });
}

void crossover_steps(struct crossover_plan *const *of, int n, double by, double *out) { ask_all(of, n, &by, 1, out); }

/* How much longer a takes than b, at n speeds; NaN where one cannot be timed. */
static void longer(struct crossover_plan *a, struct crossover_plan *b, const double *by, int n, double *out)
{
    enum { MOST = 2 };
    struct crossover_plan *of[] = { a, b };
    double s[2 * MOST];

    ask_all(of, 2, by, n, s);
    for (int i = 0; i < n; i++)
        out[i] = s[2 * i] < 0 || s[2 * i + 1] < 0 ? NAN : s[2 * i] - s[2 * i + 1];
}

/* Between shares of which a takes longer at one and b at the other.  Guesses take as many runs: below some speed nothing of the wire is hidden,
 * above another one all is, and a line through both ends is zero at neither. */
static double halve(struct crossover_plan *a, struct crossover_plan *b, double low, double high, bool longer_low)
{
    while (high / low > 1.001) {
        double middle = sqrt(low * high), more;
        longer(a, b, &middle, 1, &more);
        if ((more > 0) == longer_low)
            low = middle;
        else
            high = middle;
    }
    return sqrt(low * high);
}

double crossover_share(struct crossover_plan *a, struct crossover_plan *b, bool *slower)
{
    enum { OCTAVES = 10 };
    double here, low, high;

    *slower = false;
    longer(a, b, &(double){ 1 }, 1, &here);
    if (isnan(here))
        return 0;
    low = high = here;
    for (int k = 1; k <= OCTAVES; k++) {
        double far = ldexp(1, k), by[] = { 1 / far, far }, more[2];
        longer(a, b, by, 2, more);
        double below = more[0], above = more[1];
        if (isnan(below) || isnan(above))
            return 0;
        if ((below > 0) != (low > 0)) {
            *slower = below > 0;
            return halve(a, b, 1 / far, 2 / far, below > 0);
        }
        if ((above > 0) != (high > 0)) {
            *slower = high > 0;
            return halve(a, b, far / 2, far, high > 0);
        }
        low = below;
        high = above;
    }
    return 0;
}

double crossover_find(const struct plan *a, const struct plan *b, bool *slower)
{
    struct crossover_plan *x = crossover_open(a), *y = x ? crossover_open(b) : NULL;
    if (x && y) {                   /* where it retries, a step takes longer */
        crossover_fits(x);
        crossover_fits(y);
    }
    double at = x && y ? crossover_share(x, y, slower) * a->cluster.inter : 0;

    crossover_close(x);
    crossover_close(y);
    return at;
}
