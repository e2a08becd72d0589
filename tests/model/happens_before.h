/* happens_before.h -- are the waits of a schedule enough?
 *
 * The order in which entries are issued is not the order in which their work
 * runs.  An entry's work comes after
 *   - everything issued before it on its stream (streams are FIFO),
 *   - earlier collectives of the same group (they never overlap),
 *   - everything issued before it on the streams in `after`,
 *   - the latest recorder of each event in `wait`,
 *   - whatever the issuing thread had waited for before it issued the entry,
 * and after nothing else.  This relation is kept as vector clocks: for an entry,
 * the number of the last entry on each stream that is certainly done.  An entry of
 * kind OP_MEMORY does no work, but what is issued later on its stream waits for
 * what it waited for.
 *
 * What must hold for each instance of a buffer, from ALLOC to FREE:
 *   - its uses are ordered one after the other (a reader after the one that filled
 *     it, a writer after the readers); uses that only read need no order among
 *     themselves: `reads_only` names those, everything else counts as a write;
 *   - the work of the entry that frees it comes after all of them;
 *   - the next life of the instance is used after the last use of this one, unless
 *     `defers`: an allocator that gives a freed buffer's memory out again only when
 *     its users are done (PyTorch's record_stream) starts that life elsewhere.
 *
 *     struct hb h;
 *     hb_init(&h, &schedules);
 *     if (!hb_run(&h)) ... h.why, h.violations
 *     hb_free(&h);
 *
 * A buffer on whose buckets single entries work (Megatron-LM's of gradients and of parameters) is as many buffers, one for each bucket;
 * other entries use all of them.  Which of them a pass computes with is not known here: buckets have to come after the passes before them, and
 * passes are not asked whether the buckets came before.
 *
 * init, first, and steady twice: a step also follows itself. */
#ifndef DPX_TEST_HAPPENS_BEFORE_H
#define DPX_TEST_HAPPENS_BEFORE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/schedule/schedule.h"

struct hb_clock { int64_t done[NSTREAM]; };

/* The uses of one instance that a new use must come after, by stream: their
 * numbers on that stream (0: none).  `what` is the entry, for messages. */
struct hb_uses { int64_t number[NSTREAM]; int what[NSTREAM]; };

enum { HB_BUCKETS = 512 };

struct hb {
    const struct schedules *s;
    struct hb_clock tail[NSTREAM], group[PLAN_GROUPS], *event;
    int64_t         issued[NSTREAM];
    int64_t        *base;               /* instance 0 of each family in the arrays below */
    bool           *cut;                /* it is HB_BUCKETS instances, of its buckets */
    struct hb_uses *writes, *reads;     /* of the present life */
    struct hb_uses *past;               /* of the lives before */
    enum sched_id   sched;
    int64_t         violations;
    bool            defers;
    bool (*reads_only)(const struct schedules *s, const struct op *o, const struct buf *b);
    char            why[512];           /* the first violation */
};

/* Gathering or copying from a shard, computing with parameters, broadcasting them
 * from where they are: parameters change in the optimizer and when they come in. */
static inline bool hb_reads_only(const struct schedules *s, const struct op *o, const struct buf *b)
{
    (void)s;
    if (b->category == CAT_PARAMS || b->category == CAT_UNSHARDED)
        return o->kind == OP_COMPUTE ||
               (o->kind == OP_COPY && o->phase != PHASE_OPTIMIZER && o->phase != PHASE_INIT);
    return false;
}

/* By its acts, where schedules are `detailed`: none of the entry writes into the family. */
static inline bool hb_acts_read(const struct schedules *s, const struct op *o, const struct buf *b)
{
    for (uint32_t i = 0; i < o->nacts; i++) {
        const struct act *a = &s->acts[o->act0 + i];
        if (&s->bufs[a->buf] == b && ((a->what & (ACT_WRITE | ACT_ADD)) || !(a->what & ACT_READ)))
            return false;
    }
    return true;
}

static inline void hb_join(struct hb_clock *into, const struct hb_clock *c)
{
    for (int i = 0; i < NSTREAM; i++)
        if (c->done[i] > into->done[i])
            into->done[i] = c->done[i];
}

static inline bool hb_of_bucket(const struct op *o) { return o->of && !strcmp(o->of, "bucket"); }

static inline void hb_cut(struct hb *h, const struct schedules *s)
{
    for (int i = 0; i < s->nops; i++)
        for (uint32_t k = 0; k < s->ops[i].nacts && hb_of_bucket(&s->ops[i]); k++) {
            int b = s->acts[s->ops[i].act0 + k].buf;
            h->cut[b] = s->bufs[b].count == 1;
        }
}

/* The instances in the arrays that the entry's work on one of the buffer's is about: [from, to). */
static inline void hb_instances(const struct hb *h, const struct op *o, int buf, int64_t at, int64_t *from, int64_t *to)
{
    int64_t i = h->base[buf] + at;
    bool one = hb_of_bucket(o) && h->cut[buf];

    *from = one ? i + o->unit % HB_BUCKETS : i;
    *to = h->cut[buf] && !one ? i + HB_BUCKETS : *from + 1;
}

static inline void hb_init(struct hb *h, const struct schedules *s)
{
    int64_t n = 0;

    memset(h, 0, sizeof *h);
    h->s = s;
    h->reads_only = hb_reads_only;
    h->base = calloc((size_t)s->nbufs + 1, sizeof *h->base);
    h->cut = calloc((size_t)s->nbufs + 1, sizeof *h->cut);
    if (h->cut)
        hb_cut(h, s);
    for (int b = 0; h->base && h->cut && b < s->nbufs; b++) {
        h->base[b] = n;
        n += h->cut[b] ? HB_BUCKETS : s->bufs[b].count;
    }
    h->event = calloc((size_t)s->nevents + 1, sizeof *h->event);
    h->writes = calloc((size_t)n + 1, sizeof *h->writes);
    h->reads = calloc((size_t)n + 1, sizeof *h->reads);
    h->past = calloc((size_t)n + 1, sizeof *h->past);
    if (!h->base || !h->cut || !h->event || !h->writes || !h->reads || !h->past)
        abort();
}

static inline void hb_free(struct hb *h)
{
    free(h->base);
    free(h->cut);
    free(h->event);
    free(h->writes);
    free(h->reads);
    free(h->past);
}

static inline void hb_say(struct hb *h, const struct op *o, int64_t iteration, int other, const char *what,
                          const struct buf *b, int64_t at)
{
    const struct op *q = &h->s->ops[other];

    if (h->violations++)
        return;
    snprintf(h->why, sizeof h->why, "%s entry %d, %s %s %d (iteration %" PRId64 ", on %s) %s %s %s %" PRId64
             " without waiting for entry %d, %s %s %d (on %s)", sched_name(h->sched),
             (int)(o - h->s->ops), o->what, o->of ? o->of : "", o->unit, iteration, stream_name(o->stream),
             what, b->what, b->of ? b->of : "", at, other, q->what, q->of ? q->of : "", q->unit,
             stream_name(q->stream));
}

/* Everything in `uses`, but by this entry itself, must be done at `clock`. */
static inline void hb_after(struct hb *h, const struct op *o, int64_t iteration, const struct hb_clock *clock,
                            const struct hb_uses *uses, const char *what, const struct buf *b, int64_t at)
{
    for (int st = 0; st < NSTREAM; st++)
        if (uses->number[st] > clock->done[st] && !(st == o->stream && uses->number[st] == h->issued[st]))
            hb_say(h, o, iteration, uses->what[st], what, b, at);
}

static inline bool hb_works(const struct op *o)
{
    return o->kind == OP_COMPUTE || o->kind == OP_COLL || o->kind == OP_COPY || o->kind == OP_OPTIMIZER;
}

static inline void hb_use(struct hb *h, const struct op *o, int64_t iteration, const struct hb_clock *start,
                          const struct act *a)
{
    const struct buf *b = &h->s->bufs[a->buf];
    bool unknown = h->cut[a->buf] && !hb_of_bucket(o) && (o->phase == PHASE_FORWARD || o->phase == PHASE_BACKWARD);
    bool reads = unknown || (h->reads_only(h->s, o, b) && !(a->what & ACT_ALLOC));

    for (int64_t at = sched_instance(h->s, a, iteration), end = at + a->n; at < end; at++) {
        int64_t i, last;
        if (!hb_works(o) || !(a->what & (ACT_ALLOC | ACT_USE)))
            continue;
        for (hb_instances(h, o, a->buf, at, &i, &last); i < last; i++) {
            if (!h->defers)
                hb_after(h, o, iteration, start, &h->past[i], "reuses", b, at);
            if (!unknown)
                hb_after(h, o, iteration, start, &h->writes[i], "uses", b, at);
            if (!reads)
                hb_after(h, o, iteration, start, &h->reads[i], "overwrites", b, at);
            struct hb_uses *u = reads ? &h->reads[i] : &h->writes[i];
            u->number[o->stream] = h->issued[o->stream];
            u->what[o->stream] = (int)(o - h->s->ops);
        }
    }
}

/* Uses of a life that ends join those of the lives before. */
static inline void hb_pass_on(struct hb_uses *past, const struct hb_uses *u)
{
    for (int st = 0; st < NSTREAM; st++)
        if (u->number[st] > past->number[st]) {
            past->number[st] = u->number[st];
            past->what[st] = u->what[st];
        }
}

static inline void hb_let_go(struct hb *h, const struct op *o, int64_t iteration, const struct hb_clock *end,
                             const struct act *a)
{
    const struct buf *b = &h->s->bufs[a->buf];

    for (int64_t at = sched_instance(h->s, a, iteration), last = at + a->n; at < last; at++) {
        int64_t i, to;
        for (hb_instances(h, o, a->buf, at, &i, &to); i < to; i++) {
            hb_after(h, o, iteration, end, &h->writes[i], "frees", b, at);
            hb_after(h, o, iteration, end, &h->reads[i], "frees", b, at);
            hb_pass_on(&h->past[i], &h->writes[i]);
            hb_pass_on(&h->past[i], &h->reads[i]);
            h->writes[i] = h->reads[i] = (struct hb_uses){ 0 };
        }
    }
}

static inline int hb_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct hb *h = arg;
    struct hb_clock start = h->tail[o->stream];

    hb_join(&start, &h->tail[STREAM_ISSUE]);
    for (int st = 0; st < NSTREAM; st++)
        if (o->after & AFTER(st))
            hb_join(&start, &h->tail[st]);
    for (int w = 0; w < 2; w++)
        if (o->wait[w])
            hb_join(&start, &h->event[o->wait[w]]);
    if (o->kind == OP_COLL)
        hb_join(&start, &h->group[o->u.coll.group]);
    struct hb_clock end = start;
    end.done[o->stream] = ++h->issued[o->stream];
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        hb_use(h, o, iteration, &start, &s->acts[k]);
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        if (s->acts[k].what & ACT_FREE)
            hb_let_go(h, o, iteration, &end, &s->acts[k]);
    h->tail[o->stream] = end;
    if (o->kind == OP_COLL)
        h->group[o->u.coll.group] = end;
    if (o->record)
        h->event[o->record] = end;
    return 0;
}

/* true when nothing is used too early, overwritten too early or freed too early. */
static inline bool hb_run(struct hb *h)
{
    static const enum sched_id order[] = { SCHED_INIT, SCHED_FIRST, SCHED_STEADY, SCHED_STEADY };

    for (int i = 0; i < 4; i++) {
        h->sched = order[i];
        sched_walk(h->s, order[i], hb_op, h);
    }
    return h->violations == 0;
}

#endif
