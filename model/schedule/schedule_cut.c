/* schedule_cut.c -- see schedule_cut.h. */
#include "model/schedule/schedule_cut.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/schedule/schedule_again.h"

enum { MOST_DUE = 32 };

/* A collective whose result no entry has waited for yet. */
struct due {
    uint16_t event;
    uint8_t  piece, pass;
    int      kernel, needed;
};

struct cut {
    struct schedules *s;
    struct again *again;
    int        *to;                     /* where an entry of them is now; of repeats and ends only */
    uint16_t    event[NPIECE][NPASS];   /* of the first collective of a pass; the others follow */
    struct due  due[MOST_DUE];
    int         ndue;
    bool        dry;                    /* nothing is appended: what would be due? */
};

static const struct piece *piece_of(const struct cut *c, const struct op *o)
{
    return &c->s->program.piece[o->u.compute.piece];
}

/* The collective that kernel k is; NULL. */
static const struct collective *collective_at(const struct cut *c, const struct op *o, int k)
{
    const struct piece *p = piece_of(c, o);

    for (int i = 0; i < p->ncollectives[o->u.compute.pass]; i++)
        if (p->collectives[o->u.compute.pass][i].kernel == k)
            return &p->collectives[o->u.compute.pass][i];
    return NULL;
}

/* ---- what is due ---- */

static bool of_pass(const struct due *d, const struct op *o)
{
    return d->piece == o->u.compute.piece && d->pass == o->u.compute.pass;
}

/* Is d what kernel k of entry o waits for: as a collective, or as where a part begins?  What the pass left
 * before is waited for where it is needed, or where the entry begins if that is passed; what anything else
 * left, where the entry begins. */
static bool waits_now(const struct cut *c, const struct op *o, int k, bool collective, const struct due *d)
{
    bool own = of_pass(d, o) && d->kernel < k, opens = k == o->u.compute.k0;

    if (collective)
        return own && d->needed == k;
    return own ? (d->needed == k && !collective_at(c, o, k)) || (opens && d->needed < k) : opens;
}

/* Moves the events of these to `out`. */
static int take_due(struct cut *c, const struct op *o, int k, bool collective, uint16_t out[MOST_DUE])
{
    int n = 0, kept = 0;

    for (int i = 0; i < c->ndue; i++) {
        struct due d = c->due[i];
        if (waits_now(c, o, k, collective, &d))
            out[n++] = d.event;
        else
            c->due[kept++] = d;
    }
    c->ndue = kept;
    return n;
}

static bool is_due(const struct cut *c, uint16_t event)
{
    for (int i = 0; i < c->ndue; i++)
        if (c->due[i].event == event)
            return true;
    return false;
}

static void put_due(struct cut *c, const struct due *d)
{
    assert(c->ndue < MOST_DUE && !is_due(c, d->event));
    c->due[c->ndue++] = *d;
}

/* Where the part that begins with kernel k0 ends: behind the first collective from there on, or before the first kernel, but for a
 * collective, that waits for one of its pass. */
static int part_end(const struct cut *c, const struct op *o, int k0)
{
    const struct piece *p = piece_of(c, o);
    int end = o->u.compute.k1;

    for (int i = 0; i < p->ncollectives[o->u.compute.pass]; i++) {
        int k = p->collectives[o->u.compute.pass][i].kernel;
        end = k >= k0 && k + 1 < end ? k + 1 : end;
    }
    for (int i = 0; i < c->ndue; i++) {
        const struct due *d = &c->due[i];
        if (of_pass(d, o) && d->needed > k0 && d->needed > d->kernel && d->needed < end && !collective_at(c, o, d->needed))
            end = d->needed;
    }
    return end;
}

/* ---- appending ---- */

/* Events that an entry has no room for: entries before it, on its stream, that only wait. */
static void await(struct cut *c, const struct op *like, enum stream stream, const uint16_t *events, int n)
{
    for (int i = 0; i < n; i += 2) {
        struct op *o = sched_op(c->s, OP_MEMORY, stream, (enum phase)like->phase, "await");
        o->wait[0] = events[i];
        o->wait[1] = i + 1 < n ? events[i + 1] : 0;
    }
}

/* How many of n events find room in the entry, which is not appended yet. */
static int room_for(const struct op *o, int n)
{
    int room = (o->wait[0] == 0) + (o->wait[1] == 0);

    return n < room ? n : room;
}

static void add_waits(struct op *o, const uint16_t *events, int n)
{
    for (int i = 0, w = 0; i < n; w++)
        if (o->wait[w] == 0)
            o->wait[w] = events[i++];
}

static void append_part(struct cut *c, const struct op *o, int k0, int k1, const uint16_t *events, int n)
{
    bool first = k0 == o->u.compute.k0, last = k1 == o->u.compute.k1;
    struct op none = { 0 };
    int own = room_for(first ? o : &none, n);
    struct op *p;

    sched_in_flight(c->s, o->chunk, o->step);
    await(c, o, STREAM_COMPUTE, events + own, n - own);
    p = sched_compute(c->s, (enum phase)o->phase, (enum piece_id)o->u.compute.piece, (enum pass)o->u.compute.pass,
                      k0, k1, (enum grad_fate)o->u.compute.fate, (enum category)o->u.compute.grads);
    p->flags = o->flags;
    p->what = o->what;
    p->of = o->of;
    p->unit = o->unit;
    p->unit_by = o->unit_by;
    p->step_by = o->step_by;
    if (first) {
        p->after = o->after;
        memcpy(p->wait, o->wait, sizeof p->wait);
    }
    if (last)
        p->record = o->record;
    add_waits(p, events, own);
    again_acts(c->again, o, ~((first ? 0 : ACT_ALLOC) | (last ? 0 : ACT_FREE)));
}

/* All of an all-to-all to the next rank of the group, from the one before. */
static void send_onward(struct schedules *s, const struct op *o)
{
    const struct mesh_group *g = &sched_group(s, o)->of;
    int64_t n = mesh_ranks(g), place = mesh_place(g, s->rank);
    struct coll_part *parts = calloc((size_t)n, sizeof *parts);

    if (!parts)
        abort();
    parts[(place + 1) % n].sent = o->u.coll.elems;
    parts[(place + n - 1) % n].received = o->u.coll.elems;
    sched_parts(s, parts, (int)n);
    free(parts);
}

/* Equal parts go out, others come in. */
static void share_out(struct schedules *s, const struct op *o, int64_t came)
{
    int64_t n = sched_group(s, o)->ranks, sent = o->u.coll.elems;
    struct coll_part *parts = calloc((size_t)n, sizeof *parts);

    if (!parts)
        abort();
    for (int64_t i = 0; i < n; i++)
        parts[i] = (struct coll_part){ sent / n + (i < sent % n), came / n + (i < came % n) };
    sched_parts(s, parts, (int)n);
    free(parts);
}

/* The host reads what the kernels before have made. */
static void append_wait(struct cut *c, const struct op *o)
{
    struct op *p = sched_op(c->s, OP_WAIT, STREAM_ISSUE, (enum phase)o->phase, "sizes to the host");

    p->after = AFTER(STREAM_COMPUTE);
    p->of = o->of;
    p->unit = o->unit;
    p->unit_by = o->unit_by;
    p->step_by = o->step_by;
}

/* Before that kernel, or behind the last one. */
static bool in_graph(const struct piece *p, int pass, int kernel)
{
    return p->kernels[pass][kernel < p->nkernels[pass] ? kernel : p->nkernels[pass] - 1].captured;
}

static void append_collective(struct cut *c, const struct op *o, const struct collective *k, uint16_t event,
                              const uint16_t *events, int n)
{
    enum stream stream = (enum stream)k->stream;
    struct op none = { 0 }, *p;
    int own = room_for(&none, n);

    sched_in_flight(c->s, o->chunk, o->step);
    await(c, o, stream, events + own, n - own);
    p = sched_coll(c->s, stream, (enum phase)o->phase, (enum coll_op)k->op, (enum group)k->group,
                   (enum dtype)k->dtype, (enum red_op)k->red, k->elems);
    p->after = stream == STREAM_COMPUTE ? 0 : AFTER(STREAM_COMPUTE);
    p->record = event;
    p->flags |= k->engine ? OPF_ENGINE : 0;
    p->flags &= (uint8_t)(k->graph ? ~OPF_HOOK : ~0);
    if (c->s->dtensors && k->group == GROUP_TENSOR && !k->graph)
        p->flags = (uint8_t)((p->flags & ~OPF_HOOK) | OPF_LAYER);
    p->flags |= in_graph(piece_of(c, o), o->u.compute.pass, k->kernel) ? OPF_GRAPH : 0;
    if (k->onward)
        send_onward(c->s, p);
    if (k->came)
        share_out(c->s, p, k->came);
    p->of = o->of;
    p->unit = o->unit;
    p->unit_by = o->unit_by;
    p->step_by = o->step_by;
    add_waits(p, events, own);
    sched_moves_places(c->s, (enum piece_id)o->u.compute.piece, (enum slot)k->from, (enum slot)k->into);
}

/* ---- one entry ---- */

static void communicate(struct cut *c, const struct op *o, const struct collective *k)
{
    enum pass pass = (enum pass)o->u.compute.pass;
    uint16_t events[MOST_DUE], event = c->event[o->u.compute.piece][pass];

    if (k->waits) {
        if (!c->dry)
            append_wait(c, o);
        return;
    }
    int n = take_due(c, o, k->kernel, true, events);

    event = (uint16_t)(event + (k - piece_of(c, o)->collectives[pass]));
    if (!c->dry)
        append_collective(c, o, k, event, events, n);
    put_due(c, &(struct due){ event, o->u.compute.piece, o->u.compute.pass, k->kernel, k->needed });
}

static void cut_compute(struct cut *c, const struct op *o)
{
    int k0 = o->u.compute.k0;

    do {
        uint16_t events[MOST_DUE];
        int n = take_due(c, o, k0, false, events);
        int k1 = part_end(c, o, k0);
        const struct collective *k = k1 > k0 ? collective_at(c, o, k1 - 1) : NULL;
        if (!c->dry)
            append_part(c, o, k0, k1, events, n);
        if (k)
            communicate(c, o, k);
        k0 = k1;
    } while (k0 < o->u.compute.k1);
}

static void copy_entry(struct cut *c, const struct op *o)
{
    if (c->dry)
        return;
    c->to[o - c->again->ops] = c->s->nops;
    again_entry(c->again, o);
}

/* ---- repeats ---- */

static void cut_range(struct cut *c, int from, int to);

/* What an iteration leaves due, the next one waits for.  The first one finds the events recorded as well: by
 * an entry that does nothing, where compute is before the repeat. */
static void carry_round(struct cut *c, int from, int to)
{
    struct cut probe = *c;

    probe.dry = true;
    cut_range(&probe, from, to);
    for (int i = 0; i < probe.ndue; i++)
        if (!is_due(c, probe.due[i].event)) {
            if (!c->dry)
                sched_op(c->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "nothing is due")->record = probe.due[i].event;
            put_due(c, &probe.due[i]);
        }
}

static void cut_repeat(struct cut *c, int open)
{
    int end = c->again->ops[open].u.repeat.other;
    struct cut before;

    carry_round(c, open + 1, end);
    before = *c;
    copy_entry(c, &c->again->ops[open]);
    cut_range(c, open + 1, end);
    copy_entry(c, &c->again->ops[end]);
    if (c->again->ops[open].u.repeat.n == 0) {     /* nothing was done */
        memcpy(c->due, before.due, sizeof c->due);
        c->ndue = before.ndue;
    }
    if (!c->dry) {
        c->s->ops[c->to[open]].u.repeat.other = c->to[end];
        c->s->ops[c->to[end]].u.repeat.other = c->to[open];
    }
}

static void cut_range(struct cut *c, int from, int to)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &c->again->ops[i];
        if (o->kind == OP_REPEAT) {
            cut_repeat(c, i);
            i = o->u.repeat.other;
        } else if (o->kind == OP_COMPUTE) {
            cut_compute(c, o);
        } else {
            copy_entry(c, o);
        }
    }
}

/* ---- all ---- */

static void number_events(struct cut *c)
{
    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < c->s->program.piece[i].ncollectives[pass]; k++) {
                uint16_t event = sched_event(c->s);
                if (k == 0)
                    c->event[i][pass] = event;
            }
}

/* A collective's slots stay in place until an entry has waited for it. */
static void check_places(const struct program *g)
{
    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++) {
            const struct piece *p = &g->piece[i];
            for (int n = 0; p->places[pass] && n < p->ncollectives[pass]; n++) {
                const struct collective *k = &p->collectives[pass][n];
                for (int at = k->kernel; at < k->needed && at < p->nkernels[pass]; at++)
                    for (int j = 0; j < p->kernels[pass][at].nplaces; j++) {
                        const struct place *pl = &p->places[pass][p->kernels[pass][at].place0 + j];
                        assert(pl->comes || (pl->slot != k->from && pl->slot != k->into));
                    }
            }
        }
}

void schedules_cut(struct schedules *s)
{
    struct again again;
    struct cut c = { .s = s, .again = &again };

    if (s->program.ncollectives == 0)
        return;
    check_places(&s->program);
    c.to = calloc((size_t)s->nops + 1, sizeof *c.to);
    if (!c.to)
        abort();
    again_open(&again, s);
    s->nspans = 0;
    number_events(&c);
    for (int id = 0; id < NSCHED; id++) {
        c.ndue = 0;                     /* between steps all streams are idle */
        sched_begin(s, (enum sched_id)id);
        cut_range(&c, again.begin[id], again.end[id]);
        sched_end(s, (enum sched_id)id);
    }
    again_close(&again);
    free(c.to);
}
