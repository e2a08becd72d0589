/* ledger.c -- see ledger.h.  Invariant: total equals the sum over categories at
 * every entry; a repeat's iterations all move the same bytes, hence running the
 * first and the last one is enough. */
#include "model/schedule/ledger.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"

struct meter {
    const struct schedules *s;
    unsigned in;                    /* spaces of this account */
    uint8_t touches;                /* ACTS_ bits of entries that may move bytes of it */
    enum sched_id sched;
    int64_t live[NCAT], total;
    struct peak *peak;              /* of the running schedule */
    int64_t *most;                  /* per category, or NULL */
    int64_t limit;                  /* stop at the first entry above it; INT64_MAX: never */
    bool    over;
    unsigned rose;                  /* categories of which more is live than when `most` was last looked at, one bit each */
    int64_t highest;                /* over the entries of the repeat's body that is running */
    bool    left;                   /* what is live was not noted since a compute entry, or a skip of iterations */
};

static struct meter meter_of(const struct schedules *s, unsigned in, int64_t limit)
{
    bool device = in & IN(SPACE_DEVICE), elsewhere = in & ~IN(SPACE_DEVICE);

    return (struct meter){ .s = s, .in = in, .touches = (uint8_t)((device ? ACTS_DEVICE : 0) | (elsewhere ? ACTS_ELSEWHERE : 0)), .limit = limit };
}

static void add(struct meter *m, int cat, int64_t bytes)
{
    m->rose |= (unsigned)(bytes > 0) << cat;
    m->live[cat] += bytes;
    m->total += bytes;
}

/* Does the entry hold memory of this account beyond its buffers? */
static bool has_inner(const struct meter *m, const struct op *o)
{
    return o->kind == OP_COMPUTE && (m->in & IN(SPACE_DEVICE));
}

static void move_all(struct meter *m, const struct op *o, int bit, int sign)
{
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &m->s->acts[i];
        const struct buf *b = &m->s->bufs[a->buf];
        if ((a->what & bit) && (m->in & IN(b->space)) && op_moves(o, b))
            add(m, (int)b->category, sign * b->bytes * a->n);
    }
}

static inline void move(struct meter *m, const struct op *o, int bit, int sign)
{
    if ((o->acting & bit) && (o->acting & m->touches))
        move_all(m, o, bit, sign);
}

/* What is live at the fullest moment inside an entry, after its allocations: in all, and
 * what the inside adds by MEM_. */
static int64_t fullest(const struct meter *m, const struct op *o, int64_t inner[NMEM])
{
    memset(inner, 0, NMEM * sizeof *inner);
    if (!has_inner(m, o))
        return m->total;
    sched_inner_peak(m->s, o, inner);
    return m->total + inner[MEM_ACTIVATIONS] + inner[MEM_TEMPORARIES] + inner[MEM_GRADS];
}

enum { ALL_CATEGORIES = (1u << NCAT) - 1 };

/* Categories that an entry's inside adds to. */
static unsigned inner_categories(const struct op *o)
{
    return 1u << CAT_ACTIVATIONS | 1u << CAT_TEMPORARIES | 1u << o->u.compute.grads;
}

static void by_category(const struct meter *m, const struct op *o, const int64_t inner[NMEM], int64_t by[NCAT])
{
    memcpy(by, m->live, sizeof m->live);
    if (!has_inner(m, o))
        return;
    by[CAT_ACTIVATIONS] += inner[MEM_ACTIVATIONS];
    by[CAT_TEMPORARIES] += inner[MEM_TEMPORARIES];
    by[o->u.compute.grads] += inner[MEM_GRADS];
}

static inline void see_most(struct meter *m, int c, int64_t bytes)
{
    if (bytes > m->most[c])
        m->most[c] = bytes;
}

/* Of categories of which there is more than when they were looked at last, and of those that the entry's inside adds to. */
static void note_most(struct meter *m, const struct op *o, const int64_t inner[NMEM], unsigned inside)
{
    int grads = inside ? (int)o->u.compute.grads : NCAT;

    for (unsigned look = m->rose | inside; look; look &= look - 1) {
        int c = __builtin_ctz(look);
        int64_t more = (c == CAT_ACTIVATIONS ? inner[MEM_ACTIVATIONS] : c == CAT_TEMPORARIES ? inner[MEM_TEMPORARIES] : 0) +
                       (c == grads ? inner[MEM_GRADS] : 0);
        see_most(m, c, m->live[c] + more);
    }
}

static void note_peak(struct meter *m, int i, int64_t iteration)
{
    const struct op *o = &m->s->ops[i];
    int64_t inner[NMEM], by[NCAT], bytes = fullest(m, o, inner);

    if (bytes > m->highest)
        m->highest = bytes;
    if (bytes > m->limit)
        m->over = true;
    bool new_peak = bytes > m->peak->bytes || m->peak->op < 0;
    unsigned inside = has_inner(m, o) ? inner_categories(o) : 0;
    bool most = m->most && (m->rose | inside);
    if (!most && !new_peak)
        return;
    if (most)
        note_most(m, o, inner, inside);
    m->rose = inside;               /* inside there may have been less than there is at the next entry */
    if (new_peak) {
        by_category(m, o, inner, by);
        m->peak->bytes = bytes;
        memcpy(m->peak->by, by, sizeof by);
        m->peak->sched = m->sched;
        m->peak->op = i;
        m->peak->iteration = iteration;
    }
}

/* What is live was as much before, and nothing comes inside the entry: there is nothing to note. */
static inline bool is_quiet(const struct meter *m, const struct op *o)
{
    return !m->left && !has_inner(m, o) && m->total <= m->highest && m->total <= m->peak->bytes && m->peak->op >= 0 && !(m->most && m->rose);
}

static void step(struct meter *m, int i, int64_t iteration)
{
    const struct op *o = &m->s->ops[i];

    move(m, o, ACT_ALLOC, 1);
    if (!is_quiet(m, o))
        note_peak(m, i, iteration);
    m->left = has_inner(m, o);
    if (m->left) {
        int64_t net[NMEM];
        sched_inner(m->s, o, net);
        add(m, CAT_ACTIVATIONS, net[MEM_ACTIVATIONS]);
        add(m, CAT_TEMPORARIES, net[MEM_TEMPORARIES]);
        add(m, o->u.compute.grads, net[MEM_GRADS]);
    }
    move(m, o, ACT_FREE, -1);
}

static void run(struct meter *m, int from, int to, int64_t iteration);

/* The first and the last iteration, or the first that goes over the limit: each
 * has `each` bytes more than the one before it. */
static void run_repeat(struct meter *m, int i)
{
    const struct op *o = &m->s->ops[i];
    int64_t n = o->u.repeat.n, k = n - 1, total = m->total, highest = m->highest, before[NCAT];

    memcpy(before, m->live, sizeof before);
    m->highest = INT64_MIN;
    if (n > 0)
        run(m, i + 1, o->u.repeat.other, 0);
    int64_t each = m->total - total;
    if (n > 1 && !m->over) {
        if (each > 0 && m->limit < INT64_MAX && m->highest > INT64_MIN &&
            (m->limit - m->highest) / each < k)
            k = (m->limit - m->highest) / each + 1;
        m->total = 0;
        for (int c = 0; c < NCAT; c++) {
            m->live[c] = before[c] + k * (m->live[c] - before[c]);
            m->total += m->live[c];
        }
        m->left = true;
        m->rose = ALL_CATEGORIES;
        run(m, i + 1, o->u.repeat.other, k);
    }
    if (highest > m->highest)
        m->highest = highest;
}

static void run(struct meter *m, int from, int to, int64_t iteration)
{
    for (int i = from; i < to && !m->over; i++) {
        const struct op *o = &m->s->ops[i];
        if (o->kind == OP_REPEAT) {
            run_repeat(m, i);
            i = o->u.repeat.other;
        } else if (o->kind != OP_END && ((o->acting & m->touches) || !is_quiet(m, o))) {
            step(m, i, iteration);
        }
    }
}

static void run_all(struct meter *m, struct peak phase[NSCHED])
{
    for (int i = 0; i < NSCHED && !m->over; i++) {
        enum sched_id id = sched_in_turn(i);
        m->sched = id;
        m->peak = &phase[id];
        *m->peak = (struct peak){ .in = m->in, .op = -1 };
        run(m, m->s->begin[id], m->s->end[id], 0);
    }
}

void ledger_run(const struct schedules *s, struct ledger *out) { ledger_run_in(s, IN(SPACE_DEVICE), out); }

void ledger_run_in(const struct schedules *s, unsigned in, struct ledger *out)
{
    struct meter m = meter_of(s, in, INT64_MAX);

    memset(out, 0, sizeof *out);
    for (int i = 0; i < NSCHED; i++) {
        enum sched_id id = sched_in_turn(i);
        m.sched = id;
        m.peak = &out->phase[id];
        *m.peak = (struct peak){ .in = in, .op = -1 };
        m.most = id == SCHED_STEADY ? out->most : NULL;
        m.rose = ALL_CATEGORIES;
        run(&m, s->begin[id], s->end[id], 0);
        if (id == 0 || out->phase[id].bytes > out->peak.bytes)
            out->peak = out->phase[id];
    }
    memcpy(out->persistent, m.live, sizeof m.live);
}

int ledger_first_over(const struct schedules *s, int64_t limit, struct peak *at)
{
    return ledger_first_over_in(s, IN(SPACE_DEVICE), limit, at);
}

int ledger_first_over_in(const struct schedules *s, unsigned in, int64_t limit, struct peak *at)
{
    struct peak phase[NSCHED];
    struct meter m = meter_of(s, in, limit);

    run_all(&m, phase);
    if (!m.over)
        return -1;
    *at = *m.peak;
    return at->op;
}

/* ---- what is live at one entry ---- */

/* Walks to one meeting of one entry without unrolling: counts of live instances, like
 * bytes, change by the same amount in every iteration of a repeat. */
struct seek {
    struct meter m;
    const struct peak *until;
    struct peak ignored;
    int64_t *instances;             /* live instances of each family */
};

static void count(struct seek *k, const struct op *o, int bit, int sign)
{
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++)
        if (k->m.s->acts[i].what & bit)
            k->instances[k->m.s->acts[i].buf] += sign * k->m.s->acts[i].n;
}

/* Bytes alone do not tell the meetings of an entry in nested repeats apart, but any with
 * as many bytes as the peak answers the question. */
static bool is_it(const struct seek *k, const struct op *o)
{
    int64_t inner[NMEM];
    struct meter probe = k->m;

    move(&probe, o, ACT_ALLOC, 1);
    return fullest(&probe, o, inner) == k->until->bytes;
}

static bool seek(struct seek *k, int from, int to, int64_t iteration);

/* The state before the body is `instances` and m; runs it once to see what it moves. */
static bool seek_repeat(struct seek *k, int open)
{
    const struct op *o = &k->m.s->ops[open];
    int close = o->u.repeat.other, target = k->until->op;
    size_t room = (size_t)k->m.s->nbufs + 1;
    int64_t *before = malloc(2 * room * sizeof *before), *each = before + room;
    struct meter m = k->m;
    struct peak nowhere = { .op = -1 };
    bool inside = k->m.sched == k->until->sched && target > open && target < close, innermost = true;
    const struct peak *until = k->until;
    int64_t n = o->u.repeat.n;

    if (!before)
        abort();
    memcpy(before, k->instances, room * sizeof *before);
    for (int i = open + 1; i < close; i++)
        if (k->m.s->ops[i].kind == OP_REPEAT && target > i && target < k->m.s->ops[i].u.repeat.other)
            innermost = false;
    k->until = &nowhere;                /* once, only to see what it moves */
    if (n > 0)
        seek(k, open + 1, close, 0);
    k->until = until;
    for (size_t b = 0; b + 1 < room; b++)
        each[b] = k->instances[b] - before[b];
    struct meter after = k->m;
    bool found = false;
    for (int attempt = 0; n > 0 && inside && !found && attempt < 2; attempt++) {
        int64_t at = innermost ? until->iteration : attempt ? n - 1 : 0;
        k->m = m;
        k->m.total = 0;
        for (int c = 0; c < NCAT; c++) {
            k->m.live[c] = m.live[c] + at * (after.live[c] - m.live[c]);
            k->m.total += k->m.live[c];
        }
        for (size_t b = 0; b + 1 < room; b++)
            k->instances[b] = before[b] + at * each[b];
        found = seek(k, open + 1, close, at);
    }
    if (!found) {
        k->m = m;
        k->m.total = 0;
        for (int c = 0; c < NCAT; c++) {
            k->m.live[c] = m.live[c] + n * (after.live[c] - m.live[c]);
            k->m.total += k->m.live[c];
        }
        for (size_t b = 0; b + 1 < room; b++)
            k->instances[b] = before[b] + n * each[b];
    }
    free(before);
    return found;
}

static bool seek(struct seek *k, int from, int to, int64_t iteration)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &k->m.s->ops[i];
        if (o->kind == OP_REPEAT) {
            if (seek_repeat(k, i))
                return true;
            i = o->u.repeat.other;
            continue;
        }
        if (o->kind == OP_END)
            continue;
        count(k, o, ACT_ALLOC, 1);
        if (k->m.sched == k->until->sched && i == k->until->op && iteration == k->until->iteration && is_it(k, o))
            return true;
        step(&k->m, i, iteration);
        count(k, o, ACT_FREE, -1);
    }
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    const struct live *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->buf - y->buf;
}

int ledger_live(const struct schedules *s, const struct peak *at, struct live *out, int n)
{
    struct seek k = { .m = meter_of(s, at->in ? at->in : IN(SPACE_DEVICE), INT64_MAX), .until = at,
                      .ignored = { .op = -1 } };
    struct live *all = calloc((size_t)s->nbufs + 1, sizeof *all);
    int found = 0;

    k.m.peak = &k.ignored;
    k.instances = calloc((size_t)s->nbufs + 1, sizeof *k.instances);
    if (!all || !k.instances)
        abort();
    for (int id = 0; id <= (int)at->sched; id++) {
        k.m.sched = (enum sched_id)id;
        if (seek(&k, s->begin[id], s->end[id], 0))
            break;
    }
    for (int b = 0; b < s->nbufs; b++)
        if (k.instances[b] > 0 && s->bufs[b].bytes > 0 && (k.m.in & IN(s->bufs[b].space)))
            all[found++] = (struct live){ b, k.instances[b], k.instances[b] * s->bufs[b].bytes };
    sort_stable(all, (size_t)found, sizeof *all, by_bytes);
    if (found > n)
        found = n;
    memcpy(out, all, (size_t)found * sizeof *out);
    free(all);
    free(k.instances);
    return found;
}

/* ---- the curve: repeats unrolled ---- */

struct curve {
    struct meter m;
    struct peak ignored;
    struct point *points;
    int64_t (*by)[NCAT];            /* NULL: not wanted */
    int64_t n, room;
};

static int curve_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct curve *c = arg;
    struct meter probe = c->m;
    int64_t inner[NMEM], bytes;

    move(&probe, o, ACT_ALLOC, 1);
    bytes = fullest(&probe, o, inner);
    if (c->by)
        by_category(&probe, o, inner, c->by[c->n]);
    step(&c->m, (int)(o - s->ops), iteration);
    c->points[c->n++] = (struct point){ (int)(o - s->ops), iteration, c->m.total, bytes };
    return c->n == c->room;
}

static int64_t curve(const struct schedules *s, unsigned in, enum sched_id id, struct point *out, int64_t (*by)[NCAT], int64_t n)
{
    struct curve c = { .m = meter_of(s, in, INT64_MAX), .points = out, .by = by, .room = n };

    c.m.peak = &c.ignored;
    c.ignored.op = -1;
    for (int before = 0; before < (int)id; before++)
        run(&c.m, s->begin[before], s->end[before], 0);
    c.m.sched = id;
    if (n > 0)
        sched_walk(s, id, curve_op, &c);
    return c.n;
}

int64_t ledger_curve(const struct schedules *s, enum sched_id id, struct point *out, int64_t n)
{
    return ledger_curve_in(s, IN(SPACE_DEVICE), id, out, n);
}

int64_t ledger_curve_by(const struct schedules *s, enum sched_id id, struct point *out, int64_t (*by)[NCAT], int64_t n)
{
    return curve(s, IN(SPACE_DEVICE), id, out, by, n);
}

int64_t ledger_curve_in(const struct schedules *s, unsigned in, enum sched_id id, struct point *out, int64_t n)
{
    return curve(s, in, id, out, NULL, n);
}
