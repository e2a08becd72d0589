/* pipeline_beds.h -- pipelines written by hand: a few entries for each stage, from no plan, with
 * durations of their own. */
#ifndef DPX_PIPELINE_BEDS_H
#define DPX_PIPELINE_BEDS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/clock/clock.h"
#include "tests/hand_group.h"

enum { STAGES = 8, ENTRIES = 16384 };
enum { FORWARD_TAG, BACKWARD_TAG };

/* One stage; ranks are stages, and the world group is the pipeline. */
struct stage {
    struct schedules s;
    double *work, *issue;
    struct durations d;
    char name[24];
    int act;                        /* its family of activations, one for each micro-step; -1: none */
    int live;
};

struct pipe {
    int p;
    bool folded;                    /* repeats are written as such */
    int blocks;                     /* small entries before each forward: a repeat within the repeat */
    double block_s;
    bool reduces;                   /* all stages meet after each backward */
    struct stage stage[STAGES];
    struct role role[STAGES];
};

static inline void pipe_open(struct pipe *b, int p)
{
    memset(b, 0, sizeof *b);
    b->p = p;
    for (int r = 0; r < p; r++) {
        struct stage *g = &b->stage[r];
        g->s.rank = r;
        g->s.world_size = p;
        hand_group(&g->s, GROUP_DATA, p);
        g->work = calloc(ENTRIES, sizeof *g->work);
        g->issue = calloc(ENTRIES, sizeof *g->issue);
        g->d = (struct durations){ g->work, g->issue };
        g->act = -1;
        snprintf(g->name, sizeof g->name, "stage %d", r);
        b->role[r] = (struct role){ .s = &g->s, .d = &g->d, .name = g->name };
        for (int id = 0; id <= SCHED_STEADY; id++) {
            sched_begin(&g->s, (enum sched_id)id);
            if (id < SCHED_STEADY)
                sched_end(&g->s, (enum sched_id)id);
        }
    }
}

static inline void pipe_close(struct pipe *b)
{
    for (int r = 0; r < b->p; r++) {
        schedules_free(&b->stage[r].s);
        free(b->stage[r].work);
        free(b->stage[r].issue);
    }
}

static inline void pipe_end(struct pipe *b)
{
    for (int r = 0; r < b->p; r++)
        sched_end(&b->stage[r].s, SCHED_STEADY);
}

static inline struct op *stage_work(struct stage *g, enum stream st, enum phase phase, double seconds)
{
    g->work[g->s.nops] = seconds;
    return sched_copy(&g->s, st, phase, phase == PHASE_FORWARD ? "forward" : "backward", 0, 0);
}

static inline struct op *stage_message(struct stage *g, enum stream st, enum coll_op op, int peer, int tag, double seconds)
{
    g->work[g->s.nops] = seconds;
    return sched_message(&g->s, st, PHASE_FORWARD, op, GROUP_DATA, peer, tag, DT_BF16, 1000);
}

static inline struct op *stage_coll(struct stage *g, enum stream st, enum coll_op op, double seconds)
{
    g->work[g->s.nops] = seconds;
    return sched_coll(&g->s, st, PHASE_REDUCE, op, GROUP_DATA, DT_FP32, RED_SUM, 1000);
}

/* Seconds of a stage's forward and backward, and of a message. */
struct pace { double forward, backward, send; };

/* Each kind of message has a stream; what arrives is waited for by compute. */
static inline void stage_forward(struct pipe *b, int r, const struct pace *t, int micro)
{
    struct stage *g = &b->stage[r];
    struct op *o;

    if (r > 0)
        stage_message(g, STREAM_COPY_IN, COLL_RECV, r - 1, FORWARD_TAG, t->send);
    if (b->blocks && b->folded)
        sched_repeat(&g->s, b->blocks);
    for (int i = 0; i < (b->folded && b->blocks ? 1 : b->blocks); i++)
        stage_work(g, STREAM_COMPUTE, PHASE_FORWARD, b->block_s);
    if (b->blocks && b->folded)
        sched_repeat_end(&g->s);
    o = stage_work(g, STREAM_COMPUTE, PHASE_FORWARD, t->forward);
    o->after = r > 0 ? AFTER(STREAM_COPY_IN) : 0;
    if (g->act >= 0)
        sched_act(&g->s, ACT_ALLOC, g->act, micro, 0);
    if (r < b->p - 1)
        stage_message(g, STREAM_GATHER, COLL_SEND, r + 1, FORWARD_TAG, t->send)->after = AFTER(STREAM_COMPUTE);
}

static inline void stage_backward(struct pipe *b, int r, const struct pace *t, int micro)
{
    struct stage *g = &b->stage[r];
    struct op *o;

    if (r < b->p - 1)
        stage_message(g, STREAM_REDUCE, COLL_RECV, r + 1, BACKWARD_TAG, t->send);
    o = stage_work(g, STREAM_COMPUTE, PHASE_BACKWARD, t->backward);
    o->after = r < b->p - 1 ? AFTER(STREAM_REDUCE) : 0;
    if (g->act >= 0)
        sched_act(&g->s, ACT_USE | ACT_FREE, g->act, micro, 0);
    if (r > 0)
        stage_message(g, STREAM_ALL_REDUCE, COLL_SEND, r - 1, BACKWARD_TAG, t->send)->after = AFTER(STREAM_COMPUTE);
    if (b->reduces)
        stage_coll(g, STREAM_GROUP, COLL_ALL_REDUCE, t->send)->after = AFTER(STREAM_COMPUTE);
}

/* n micro-steps from `forward` and `backward` on (a negative one: none of these), as a repeat or one by one. */
static inline void stage_micro_steps(struct pipe *b, int r, const struct pace *t, int n, int forward, int backward)
{
    if (b->folded)
        sched_repeat(&b->stage[r].s, n);
    for (int i = 0; i < (b->folded ? 1 : n); i++) {
        if (forward >= 0)
            stage_forward(b, r, t, forward + i);
        if (backward >= 0)
            stage_backward(b, r, t, backward + i);
    }
    if (b->folded)
        sched_repeat_end(&b->stage[r].s);
}

/* m forwards, then m backwards. */
static inline void pipe_gpipe(struct pipe *b, const struct pace *t, int m)
{
    for (int r = 0; r < b->p; r++) {
        stage_micro_steps(b, r, &t[r], m, 0, -1);
        stage_micro_steps(b, r, &t[r], m, -1, 0);
    }
}

/* `warm` forwards, one forward and one backward by turns, the backwards that are left. */
static inline void stage_1f1b(struct pipe *b, int r, const struct pace *t, int m, int warm)
{
    warm = warm < m ? warm : m;
    stage_micro_steps(b, r, t, warm, 0, -1);
    stage_micro_steps(b, r, t, m - warm, warm, 0);
    stage_micro_steps(b, r, t, warm, -1, m - warm);
}

static inline void pipe_1f1b(struct pipe *b, const struct pace *t, int m)
{
    for (int r = 0; r < b->p; r++)
        stage_1f1b(b, r, &t[r], m, b->p - 1 - r);
}

/* ---- an oracle ---- */

/* Ends of all entries of flat schedules that do not slow each other down: each entry is looked at again and again
 * until what it waits for has an end.  Messages, no collectives.  Seconds until all is done; NAN where
 * that never happens. */
static inline double pipe_oracle(const struct pipe *b)
{
    static double end[STAGES][ENTRIES], ready[STAGES][ENTRIES];
    double makespan = 0;
    bool moved = true;

    for (int r = 0; r < b->p; r++)
        for (int i = 0; i < b->stage[r].s.nops; i++)
            end[r][i] = ready[r][i] = NAN;
    while (moved) {
        moved = false;
        for (int r = 0; r < b->p; r++) {
            const struct schedules *s = &b->stage[r].s;
            double tail[NSTREAM] = { 0 }, issued = 0;
            int count[STAGES][2][2] = { 0 };        /* messages so far: peer, tag, direction */
            for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++) {
                const struct op *o = &s->ops[i];
                bool message = o->kind == OP_COLL;
                issued += b->stage[r].issue[i];
                double at = fmax(issued, o->stream == STREAM_ISSUE ? 0 : tail[o->stream]);
                for (int st = 1; st < NSTREAM; st++)
                    if (o->after & AFTER(st))
                        at = isnan(at) || isnan(tail[st]) ? NAN : fmax(at, tail[st]);
                if (isnan(tail[o->stream]))
                    at = NAN;
                if (o->stream == STREAM_ISSUE) {
                    issued = at;
                    continue;
                }
                ready[r][i] = at;
                double start = at;
                if (message) {
                    /* The peer's entry: the n-th of the other direction with this tag. */
                    int peer = o->u.coll.peer, n = count[peer][o->u.coll.tag][o->u.coll.op == COLL_RECV]++;
                    const struct schedules *q = &b->stage[peer].s;
                    for (int j = q->begin[SCHED_STEADY]; j < q->end[SCHED_STEADY]; j++) {
                        const struct op *x = &q->ops[j];
                        if (x->kind == OP_COLL && x->u.coll.op == (o->u.coll.op == COLL_SEND ? COLL_RECV : COLL_SEND) &&
                            x->u.coll.peer == r && x->u.coll.tag == o->u.coll.tag && n-- == 0)
                            start = isnan(at) || isnan(ready[peer][j]) ? NAN : fmax(at, ready[peer][j]);
                    }
                    if (n >= 0)
                        start = NAN;
                }
                double to = start + b->stage[r].work[i];
                moved |= isnan(end[r][i]) && !isnan(to);
                end[r][i] = to;
                tail[o->stream] = to;
            }
        }
    }
    for (int r = 0; r < b->p; r++)
        for (int i = b->stage[r].s.begin[SCHED_STEADY]; i < b->stage[r].s.end[SCHED_STEADY]; i++)
            if (b->stage[r].s.ops[i].stream != STREAM_ISSUE)
                makespan = isnan(end[r][i]) || isnan(makespan) ? NAN : fmax(makespan, end[r][i]);
    return makespan;
}

#endif
