/* goodput_simulate.c -- a run from interruption to interruption, with nodes that go and come back. */
#include "sim/bill/goodput.h"

#include <math.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/sort.h"

/* splitmix64 (Steele, Lea, Flood 2014): a stream of numbers for each seed. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* In (0, 1]. */
static double uniform(uint64_t *state) { return (double)((draw(state) >> 11) + 1) * 0x1p-53; }

enum { AWAY_MOST = 4096 };

struct simulated {
    const struct long_run *r;
    const struct reserve *reserve;
    uint64_t seed;
    double now;
    int64_t spares;
    double back[AWAY_MOST];         /* when nodes that are repaired come back, in no order */
    int away;
    int64_t missing;                /* nodes that nothing replaced yet (shrink) */
    struct run_time of;
};

/* Steps take as many times longer as nodes are missing. */
static double pace(const struct simulated *s)
{
    return (double)s->reserve->nodes / (double)(s->reserve->nodes - s->missing);
}

/* Preemptions come whatever is left of the job. */
static double preemptions(const struct simulated *s) { return s->r->preempted_s > 0 ? 1 / s->r->preempted_s : 0; }
/* The nodes that are left fail that much more rarely; what they share does not. */
static double failures(const struct simulated *s)
{
    double steady = s->reserve->steady;

    return (steady + (1 - steady) / pace(s)) / s->r->mtbf_s;
}

static double until_next(struct simulated *s) { return -log(uniform(&s->seed)) / (failures(s) + preemptions(s)); }

static bool is_preemption(struct simulated *s)
{
    return preemptions(s) > 0 && uniform(&s->seed) * (failures(s) + preemptions(s)) <= preemptions(s);
}

/* Nodes that are back by now: first where one is missing, then as spares. */
static void take_back(struct simulated *s)
{
    for (int i = 0; i < s->away;)
        if (s->back[i] <= s->now) {
            s->back[i] = s->back[--s->away];
            if (s->missing > 0)
                s->missing--;
            else
                s->spares++;
        } else {
            i++;
        }
}

static double first_back(const struct simulated *s)
{
    double first = INFINITY;

    for (int i = 0; i < s->away; i++)
        first = s->back[i] < first ? s->back[i] : first;
    return first;
}

/* A node that an interruption took: a spare in its place, or one fewer, or the job waits for the first that is repaired. */
static int replace(struct simulated *s)
{
    const struct reserve *v = s->reserve;

    if (v->spares < 0 || uniform(&s->seed) > v->hardware)
        return 0;
    if (s->away == AWAY_MOST)
        return -1;
    s->back[s->away++] = s->now + v->repair_s;
    take_back(s);
    if (s->spares > 0) {
        s->spares--;
    } else if (v->shrink && s->missing + 1 < v->nodes) {
        s->missing++;
    } else {
        double until = first_back(s);
        s->of.waiting_s += until - s->now;
        s->now = until;
        s->spares--;                            /* the one that comes */
        take_back(s);
    }
    return 0;
}

/* Waits for its GPUs, which may be others then, or for a node. */
static int come_back(struct simulated *s, bool preempted)
{
    s->of.interruptions++;
    if (!preempted && !s->r->requeued)
        return replace(s);
    s->now += s->r->queue_s;
    s->of.queued_s += s->r->queue_s;
    take_back(s);
    return 0;
}

/* Restarts until one is not interrupted itself. */
static int restart(struct simulated *s, bool preempted)
{
    for (;; preempted = is_preemption(s)) {
        if (come_back(s, preempted) < 0)
            return -1;
        double until = until_next(s);
        double took = until < s->r->recover_s ? until : s->r->recover_s;
        double warm = took - (s->r->recover_s - s->r->warm_s);
        s->now += took;
        s->of.restarts_s += took - (warm > 0 ? warm : 0);
        s->of.warm_s += warm > 0 ? warm : 0;
        take_back(s);
        if (until >= s->r->recover_s)
            return 0;
    }
}

/* From a checkpoint until the next interruption, or the end.  Returns the rounds that came to count; *ended where all did.  What is done
 * beyond the last one that counts is lost; steps with fewer nodes take longer, which is waiting. */
static int64_t train(struct simulated *s, int64_t rounds, bool *ended)
{
    const struct long_run *r = s->r;
    double slow = pace(s), work = (double)r->every * r->step_s, stretched = work * slow;
    double round = r->blocked_s + (stretched > r->behind_s ? stretched : r->behind_s);
    double until = until_next(s), whole = (double)rounds * round;

    *ended = until >= whole;                        /* the last steps need no checkpoint that is written */
    double took = *ended ? whole : until;
    int64_t counted = *ended ? rounds : until < r->behind_s ? 0 : (int64_t)((until - r->behind_s) / round);
    counted = counted < rounds ? counted : rounds;
    s->now += took;
    s->of.useful_s += (double)counted * work;
    s->of.waiting_s += (double)counted * (stretched - work);
    s->of.blocked_s += (double)counted * (round - stretched);
    s->of.lost_s += took - (double)counted * round;
    take_back(s);
    return counted;
}

/* What lay in memory is gone: back to the last checkpoint on disk.  Returns the rounds to do again, of `done`. */
static int64_t back_to_disk(struct simulated *s, int64_t done, bool preempted)
{
    const struct long_run *r = s->r;
    bool lost = r->disk_each > 0 && (uniform(&s->seed) <= r->memory_lost || preempted);
    int64_t again = lost ? done % r->disk_each : 0;
    double work = (double)again * (double)r->every * r->step_s;

    s->of.useful_s -= work;
    s->of.lost_s += work;
    return again;
}

static int one_run(const struct long_run *r, const struct reserve *reserve, uint64_t seed, double most_s, struct run_time *out)
{
    struct simulated s = { .r = r, .reserve = reserve, .seed = seed, .spares = reserve->spares, .now = r->warm_s, .of.warm_s = r->warm_s };
    int64_t rounds = (r->steps + r->every - 1) / r->every, done = 0;
    bool ended = false;

    while (!ended && s.now <= most_s) {
        done += train(&s, rounds - done, &ended);
        bool preempted = !ended && is_preemption(&s);
        if (!ended)
            done -= back_to_disk(&s, done, preempted);
        if (!ended && restart(&s, preempted) < 0)
            return fail("bill: more than %d nodes are being repaired at once", AWAY_MOST);
    }
    if (!ended)
        return -1;
    double excess = (double)(rounds * r->every - r->steps) * r->step_s;         /* the last round has fewer steps */
    s.of.useful_s -= excess;
    s.of.total_s = s.now - excess;
    *out = s.of;
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int goodput_simulate(const struct long_run *r, const struct reserve *reserve, int runs, double most_s, struct run_time *mean, double percentile[3])
{
    static const double at[3] = { 0.05, 0.5, 0.95 };
    double *totals = calloc((size_t)runs, sizeof *totals);
    int rc = totals ? 0 : -1;

    *mean = (struct run_time){ 0 };
    for (int i = 0; i < runs && rc == 0; i++) {
        struct run_time t;
        rc = one_run(r, reserve, (uint64_t)i * UINT64_C(0xd1342543de82ef95) + 1, most_s, &t);
        if (rc < 0)
            break;
        totals[i] = t.total_s;
        mean->total_s += t.total_s / runs;
        mean->useful_s += t.useful_s / runs;
        mean->blocked_s += t.blocked_s / runs;
        mean->lost_s += t.lost_s / runs;
        mean->restarts_s += t.restarts_s / runs;
        mean->warm_s += t.warm_s / runs;
        mean->waiting_s += t.waiting_s / runs;
        mean->queued_s += t.queued_s / runs;
        mean->interruptions += t.interruptions / runs;
    }
    if (rc == 0) {
        sort_stable(totals, (size_t)runs, sizeof *totals, by_size);
        for (int i = 0; i < 3; i++)
            percentile[i] = totals[(int)(at[i] * (runs - 1) + 0.5)];
    }
    free(totals);
    return rc;
}
