/* simple_clock.h -- an oracle for the clock: one role whose streams do not slow each other down, every
 * iteration unrolled.
 *
 * One pass in issue order: start = max(issue, tail of the stream, tail of the process group, ends of
 * what is waited for).  Since streams are FIFOs and the issuing thread issues in order, that is exact
 * list scheduling.  It shares no code with sim/clock. */
#ifndef DPX_SIMPLE_CLOCK_H
#define DPX_SIMPLE_CLOCK_H

#include <stdlib.h>
#include <string.h>

#include "sim/clock/timeline.h"

/* A point in time, the collective that ended then, and the last stretch for which that, or what it had waited for, waited for the
 * issuing thread alone. */
struct simple_tail {
    double t;
    int    coll;                    /* op * PLAN_GROUPS + group of the collective, -1: none */
    double late_from, late_to;
};

struct simple {
    const struct schedules *s;
    const struct durations *d;
    struct simple_tail issue, stream[NSTREAM], group[PLAN_GROUPS];
    double  waited;                 /* when what the issuing thread waited for last was done; 0: charged, or nothing */
    struct simple_tail *event;             /* by number; owned by the clock's caller */
    double  compute, optimizer, idle, comm;
    double  exposed[NCOLL * PLAN_GROUPS], busy[NSTREAM];
};

static inline void simple_later(struct simple_tail *best, const struct simple_tail *t)
{
    if (t->t > best->t)
        *best = *t;
}

/* When the entry can start, by what it waits for; the issuing thread loses ties.  *issued: then it was that. */
static inline struct simple_tail simple_ready(struct simple *c, const struct op *o, bool *issued)
{
    struct simple_tail best = { .t = -1, .coll = -1 };

    if (o->stream != STREAM_ISSUE)
        simple_later(&best, &c->stream[o->stream]);
    if (o->kind == OP_COLL)
        simple_later(&best, &c->group[o->u.coll.group]);
    for (unsigned st = 0, mask = o->after; mask; st++, mask >>= 1)
        if (mask & 1)
            simple_later(&best, &c->stream[st]);
    for (int w = 0; w < 2; w++)
        if (o->wait[w])
            simple_later(&best, &c->event[o->wait[w]]);
    *issued = c->issue.t - best.t > 1e-12 * c->issue.t;         /* less is a sum in another order */
    return *issued ? c->issue : best;
}

/* Time for which the compute stream waited before this entry; what the issuing thread came to late is no communication.  `done`: when
 * what it waited for, or the issuing thread had waited for, was. */
static inline void simple_account_gap(struct simple *c, const struct simple_tail *why, double done)
{
    double since = c->stream[STREAM_COMPUTE].t, gap = why->t - since, late = 0;

    if (gap <= 0)
        return;
    if (why->coll < 0) {
        c->idle += gap;
        return;
    }
    if (why->late_to > since)
        late += why->late_to - (why->late_from > since ? why->late_from : since);
    if (why->t > done)
        late += why->t - (done > since ? done : since);
    c->idle += late;
    c->exposed[why->coll] += gap - late;
}

static inline void simple_step(struct simple *c, int i)
{
    const struct op *o = &c->s->ops[i];
    double work = c->d->work[i];

    c->issue.t += c->d->issue[i];
    bool issued;
    struct simple_tail start = simple_ready(c, o, &issued);
    if (o->stream == STREAM_ISSUE) {
        /* The issuing thread itself waits; what it waited for is to blame. */
        if (!issued)
            c->waited = start.t;
        c->issue = start;
        c->issue.t += work;
        return;
    }
    struct simple_tail end = { start.t + work, -1, issued ? c->waited : start.late_from, issued ? start.t : start.late_to };
    if (o->stream == STREAM_COMPUTE) {
        simple_account_gap(c, &start, issued ? c->waited : start.t);
        *(o->kind == OP_COLL ? &c->exposed[o->u.coll.op * PLAN_GROUPS + o->u.coll.group] :
          o->phase == PHASE_OPTIMIZER ? &c->optimizer : &c->compute) += work;
        c->issue.coll = -1;             /* what the issuing thread waited for is charged */
        c->waited = 0;
    } else {
        /* A copy on a communication stream serves the collective before it. */
        end.coll = c->stream[o->stream].coll;
    }
    if (o->kind == OP_COLL) {
        end.coll = o->u.coll.op * PLAN_GROUPS + o->u.coll.group;
        c->group[o->u.coll.group] = end;
        c->comm += work;
    }
    c->busy[o->stream] += work;
    c->stream[o->stream] = end;
    if (o->record)
        c->event[o->record] = end;
}

static inline void simple_range(struct simple *c, int from, int to)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &c->s->ops[i];
        if (o->kind != OP_REPEAT) {
            simple_step(c, i);
            continue;
        }
        for (int64_t n = 0; n < o->u.repeat.n; n++)
            simple_range(c, i + 1, o->u.repeat.other);
        i = o->u.repeat.other;
    }
}

static inline void simple_finish(struct simple *c, struct timeline *out)
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
    struct simple_tail last = c->issue;
    for (int st = 0; st < NSTREAM; st++)
        simple_later(&last, &c->stream[st]);
    simple_account_gap(c, &last, last.t > c->issue.t ? last.t : c->waited);
    for (int i = 0; i < NCOLL * PLAN_GROUPS; i++) {
        out->exposed_by[i / PLAN_GROUPS][i % PLAN_GROUPS] = c->exposed[i];
        out->exposed_s += c->exposed[i];
    }
    out->idle_s = c->idle;
    memcpy(out->busy_s, c->busy, sizeof c->busy);
    free(c->event);
}

static inline void simple_clock(const struct schedules *s, enum sched_id id, const struct durations *d, struct timeline *out)
{
    struct simple c = { .s = s, .d = d };

    c.event = calloc((size_t)s->nevents + 1, sizeof *c.event);
    if (!c.event)
        abort();
    c.issue.coll = -1;
    for (int st = 0; st < NSTREAM; st++)
        c.stream[st].coll = -1;
    for (int g = 0; g < PLAN_GROUPS; g++)
        c.group[g].coll = -1;
    for (int e = 0; e <= s->nevents; e++)
        c.event[e].coll = -1;
    simple_range(&c, s->begin[id], s->end[id]);
    simple_finish(&c, out);
}

#endif
