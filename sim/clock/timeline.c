#include "sim/clock/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A point in time and what it is the end of: the collective to charge, and the
 * position of the entry. */
struct tail {
    double t;
    int    coll;                    /* op * groups + group of the collective, -1: none */
    int    ran;                     /* position in run.ran, -1: none */
};

struct clock {
    const struct schedules *s;
    const struct durations *d;
    struct tail issue, stream[NSTREAM], group[PLAN_GROUPS];
    struct tail *event;             /* by number; owned by whoever started the clock */
    double  compute, optimizer, idle, comm;
    double  exposed[NCOLL * PLAN_GROUPS], busy[NSTREAM];
    bool    issue_won;              /* the issuing thread decided a start since last cleared */
    struct run *run;                /* where entries are kept, or NULL */
    int64_t room;
};

static void later(struct tail *best, const struct tail *t)
{
    if (t->t > best->t)
        *best = *t;
}

/* When the entry can start, by what it waits for; the issuing thread loses ties. */
static struct tail ready(struct clock *c, const struct op *o)
{
    struct tail best = { -1, -1, -1 };

    if (o->stream != STREAM_ISSUE)
        later(&best, &c->stream[o->stream]);
    if (o->kind == OP_COLL)
        later(&best, &c->group[o->u.coll.group]);
    for (unsigned st = 0, mask = o->after; mask; st++, mask >>= 1)
        if (mask & 1)
            later(&best, &c->stream[st]);
    for (int w = 0; w < 2; w++)
        if (o->wait[w])
            later(&best, &c->event[o->wait[w]]);
    if (c->issue.t > best.t) {
        best = c->issue;
        c->issue_won = true;
    }
    return best;
}

static int keep(struct clock *c, int i, int64_t iteration, double start, double end, int cause)
{
    struct run *r = c->run;

    if (!r)
        return -1;
    if (r->n == c->room) {
        c->room = c->room ? 2 * c->room : 4096;
        r->ran = realloc(r->ran, (size_t)c->room * sizeof *r->ran);
        if (!r->ran)
            abort();
    }
    r->ran[r->n] = (struct ran){ i, iteration, c->issue.t, start, end, cause };
    return (int)r->n++;
}

/* Time for which the compute stream waited before this entry. */
static void account_gap(struct clock *c, const struct tail *why)
{
    double gap = why->t - c->stream[STREAM_COMPUTE].t;

    if (gap <= 0)
        return;
    if (why->coll >= 0)
        c->exposed[why->coll] += gap;
    else
        c->idle += gap;
}

static void step(struct clock *c, int i, int64_t iteration)
{
    const struct op *o = &c->s->ops[i];
    double work = c->d->work[i];

    c->issue.t += c->d->issue[i];
    struct tail start = ready(c, o);
    if (o->stream == STREAM_ISSUE) {
        /* The issuing thread itself waits; what it waited for is to blame. */
        int at = keep(c, i, iteration, start.t, start.t + work, start.ran);
        c->issue = (struct tail){ start.t + work, start.coll, at };
        return;
    }
    struct tail end = { start.t + work, -1, keep(c, i, iteration, start.t, start.t + work, start.ran) };
    if (o->stream == STREAM_COMPUTE) {
        account_gap(c, &start);
        *(o->phase == PHASE_OPTIMIZER ? &c->optimizer : &c->compute) += work;
        c->issue.coll = -1;             /* what the issuing thread waited for is charged */
    } else {
        /* A copy on a communication stream serves the collective before it. */
        end.coll = c->stream[o->stream].coll;
    }
    if (o->kind == OP_COLL) {
        end.coll = o->u.coll.op * c->s->groups.n + o->u.coll.group;
        c->group[o->u.coll.group] = end;
        c->comm += work;
    }
    c->busy[o->stream] += work;
    c->stream[o->stream] = end;
    if (o->record)
        c->event[o->record] = end;
}

/* ---- skipping ahead ---- */

static struct tail *state_at(struct clock *c, int k)
{
    int groups = c->s->groups.n;

    if (k < NSTREAM)
        return &c->stream[k];
    if (k < NSTREAM + groups)
        return &c->group[k - NSTREAM];
    return &c->event[k - NSTREAM - groups];
}

/* Have all times that can still matter moved by the same amount since `before`?
 * A time that the issuing thread has passed never decides a start again. */
static bool moved_together(struct clock *c, struct clock *before, double *by)
{
    double tolerance = 1e-12 * (c->issue.t + c->stream[STREAM_COMPUTE].t);
    bool found = false;
    int n = NSTREAM + c->s->groups.n + 1 + c->s->nevents;

    for (int k = 0; k < n; k++) {
        double now = state_at(c, k)->t, then = state_at(before, k)->t;
        if (now <= c->issue.t && then <= before->issue.t)
            continue;
        if (found && fabs(now - then - *by) > tolerance)
            return false;
        if (!found)
            *by = now - then;
        found = true;
    }
    double issued = c->issue.t - before->issue.t;
    if (!found)
        *by = issued;
    /* Either the issuing thread moves along, or it decided nothing and only gets
     * further ahead. */
    return fabs(issued - *by) <= tolerance || (!c->issue_won && issued < *by);
}

/* Each time moves as in the last iteration; one that did not move stays. */
static void jump(struct clock *c, struct clock *before, int64_t n)
{
    double k = (double)n;
    double issued = c->issue.t - before->issue.t;

    for (int i = 0; i < NSTREAM + c->s->groups.n + 1 + c->s->nevents; i++)
        state_at(c, i)->t += k * (state_at(c, i)->t - state_at(before, i)->t);
    c->issue.t += k * issued;
    c->compute += k * (c->compute - before->compute);
    c->optimizer += k * (c->optimizer - before->optimizer);
    c->idle += k * (c->idle - before->idle);
    c->comm += k * (c->comm - before->comm);
    for (int i = 0; i < NCOLL * c->s->groups.n; i++)
        c->exposed[i] += k * (c->exposed[i] - before->exposed[i]);
    for (int i = 0; i < NSTREAM; i++)
        c->busy[i] += k * (c->busy[i] - before->busy[i]);
}

static void run_range(struct clock *c, int from, int to, int64_t iteration);

static void run_repeat(struct clock *c, int open)
{
    const struct op *o = &c->s->ops[open];
    struct clock before;
    struct tail few[32], *kept = few;           /* the events of `before` */
    size_t events = ((size_t)c->s->nevents + 1) * sizeof *kept;
    bool won = c->issue_won;
    double by = 0, last = -1;

    if (events > sizeof few && !(kept = malloc(events)))
        abort();
    for (int64_t i = 0; i < o->u.repeat.n; i++) {
        bool look = !c->run && o->u.repeat.n - i > 2;
        if (look) {
            before = *c;
            before.event = memcpy(kept, c->event, events);
        }
        c->issue_won = false;
        run_range(c, open + 1, o->u.repeat.other, i);
        won |= c->issue_won;
        /* Twice the same step: the differences are those of the iteration before,
         * so every later iteration repeats this one. */
        if (look && moved_together(c, &before, &by)) {
            if (last >= 0 && fabs(by - last) <= 1e-12 * (c->issue.t + c->stream[STREAM_COMPUTE].t)) {
                jump(c, &before, o->u.repeat.n - 1 - i);
                break;
            }
            last = by;
        } else {
            last = -1;
        }
    }
    if (kept != few)
        free(kept);
    c->issue_won = won;
}

static void run_range(struct clock *c, int from, int to, int64_t iteration)
{
    for (int i = from; i < to; i++) {
        if (c->s->ops[i].kind == OP_REPEAT) {
            run_repeat(c, i);
            i = c->s->ops[i].u.repeat.other;
        } else {
            step(c, i, iteration);
        }
    }
}

static void start_clock(struct clock *c, const struct schedules *s, const struct durations *d, struct run *run)
{
    memset(c, 0, sizeof *c);
    c->s = s;
    c->d = d;
    c->run = run;
    c->issue = (struct tail){ 0, -1, -1 };
    c->event = malloc(((size_t)s->nevents + 1) * sizeof *c->event);
    if (!c->event)
        abort();
    for (int k = 0; k < NSTREAM + s->groups.n + 1 + s->nevents; k++)
        *state_at(c, k) = (struct tail){ 0, -1, -1 };
}

static void finish(struct clock *c, struct timeline *out)
{
    double end = c->issue.t;

    for (int st = 0; st < NSTREAM; st++)
        if (c->stream[st].t > end)
            end = c->stream[st].t;
    memset(out, 0, sizeof *out);
    out->step_s = end;
    out->compute_s = c->compute;
    out->optimizer_s = c->optimizer;
    out->comm_s = c->comm;
    /* What comes after the last work on the compute stream. */
    struct tail last = c->issue;
    for (int st = 0; st < NSTREAM; st++)
        later(&last, &c->stream[st]);
    account_gap(c, &last);
    for (int i = 0; i < NCOLL * c->s->groups.n; i++) {
        out->exposed_by[i / c->s->groups.n][i % c->s->groups.n] = c->exposed[i];
        out->exposed_s += c->exposed[i];
    }
    out->idle_s = c->idle;
    memcpy(out->busy_s, c->busy, sizeof c->busy);
    free(c->event);
}

void timeline_run(const struct schedules *s, enum sched_id id, const struct durations *d, struct timeline *out)
{
    struct clock c;

    start_clock(&c, s, d, NULL);
    run_range(&c, s->begin[id], s->end[id], 0);
    finish(&c, out);
}

void timeline_keep(const struct schedules *s, enum sched_id id, const struct durations *d, struct run *out)
{
    struct clock c;

    memset(out, 0, sizeof *out);
    start_clock(&c, s, d, out);
    run_range(&c, s->begin[id], s->end[id], 0);
    finish(&c, &out->total);
}

void run_free(struct run *r)
{
    free(r->ran);
    memset(r, 0, sizeof *r);
}

int64_t run_critical(const struct run *r, int64_t *out, int64_t n)
{
    int64_t at = -1, found = 0;

    for (int64_t i = 0; i < r->n; i++)
        if (at < 0 || r->ran[i].end > r->ran[at].end)
            at = i;
    while (at >= 0 && found < n) {
        out[found++] = at;
        at = r->ran[at].cause;
    }
    return found;
}
