/* schedule_fold.c -- see schedule_fold.h. */
#include "model/schedule/schedule_fold.h"

#include <assert.h>
#include <string.h>

#include "base/room.h"

/* The three entries, or acts, that are one of the repeat's body. */
struct three { const struct op *of[3]; };
struct fold { const struct schedules *s; int64_t n; int by; };

static bool evenly(int64_t a, int64_t b, int64_t c) { return b - a == c - b; }

/* ---- the same work ---- */

static bool same_parts(const struct schedules *s, const struct op *a, const struct op *b)
{
    if (!a->u.coll.parts || !b->u.coll.parts)
        return a->u.coll.parts == b->u.coll.parts;
    for (int64_t i = 0; i < sched_group(s, a)->ranks; i++) {
        const struct coll_part *x = &s->coll_parts[a->u.coll.parts + i], *y = &s->coll_parts[b->u.coll.parts + i];
        if (x->sent != y->sent || x->received != y->received)
            return false;
    }
    return true;
}

static bool same_collective(const struct schedules *s, const struct op *a, const struct op *b)
{
    bool same = a->u.coll.op == b->u.coll.op && a->u.coll.group == b->u.coll.group && a->u.coll.dtype == b->u.coll.dtype &&
                a->u.coll.red == b->u.coll.red && a->u.coll.of == b->u.coll.of && a->u.coll.piece == b->u.coll.piece &&
                a->u.coll.from == b->u.coll.from && a->u.coll.into == b->u.coll.into && a->u.coll.root == b->u.coll.root &&
                a->u.coll.elems == b->u.coll.elems;

    return same && (a->u.coll.op == COLL_ALL_TO_ALL ? same_parts(s, a, b) : a->u.coll.tag == b->u.coll.tag);
}

static bool same_copy(const struct op *a, const struct op *b)
{
    return a->u.copy.reads == b->u.copy.reads && a->u.copy.writes == b->u.copy.writes && a->u.copy.fn == b->u.copy.fn &&
           a->u.copy.quant == b->u.copy.quant && !(a->u.copy.scale < b->u.copy.scale) && !(a->u.copy.scale > b->u.copy.scale) &&
           a->u.copy.kernels == b->u.copy.kernels && a->u.copy.narrow0 == b->u.copy.narrow0 && a->u.copy.narrows == b->u.copy.narrows;
}

static bool same_compute(const struct op *a, const struct op *b)
{
    return a->u.compute.piece == b->u.compute.piece && a->u.compute.pass == b->u.compute.pass && a->u.compute.fate == b->u.compute.fate &&
           a->u.compute.grads == b->u.compute.grads && a->u.compute.k0 == b->u.compute.k0 && a->u.compute.k1 == b->u.compute.k1 &&
           a->u.compute.span == b->u.compute.span && a->u.compute.granted == b->u.compute.granted;
}

static bool same_work(const struct schedules *s, const struct op *a, const struct op *b)
{
    switch ((enum op_kind)a->kind) {
    case OP_COMPUTE:
        return same_compute(a, b);
    case OP_COLL:
        return same_collective(s, a, b);
    case OP_COPY:
        return same_copy(a, b);
    case OP_WAIT:
        return a->u.wait.reads == b->u.wait.reads;
    case OP_MEMORY:
        return true;
    case OP_OPTIMIZER: case OP_REPEAT: case OP_END:
        return false;               /* none is in a pass of a pipeline; in a repeat, indices would be its own */
    }
    return false;
}

static bool same(const struct schedules *s, const struct op *a, const struct op *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->phase == b->phase && a->flags == b->flags && a->after == b->after &&
           a->nacts == b->nacts && a->acting == b->acting && a->chunk == b->chunk && a->what == b->what && a->of == b->of &&
           same_work(s, a, b);
}

/* ---- what moves ---- */

static bool event_moves(const struct fold *f, const struct op *a, uint16_t first, uint16_t second, uint16_t third)
{
    struct op turns = *a;

    turns.step_by = f->by;
    if (first == second && second == third && (!first || f->s->rings[first].n == 1))
        return true;
    return first && second && third && sched_event_at(f->s, &turns, first, 1) == second && sched_event_at(f->s, &turns, first, 2) == third;
}

static bool act_moves(const struct fold *f, const struct act *a, const struct act *b, const struct act *c)
{
    const struct buf *family = &f->s->bufs[a->buf];
    int64_t last = a->at + (f->n - 1) * (b->at - a->at);

    return a->buf == b->buf && b->buf == c->buf && a->n == b->n && b->n == c->n && a->layout == b->layout && b->layout == c->layout &&
           a->what == b->what && b->what == c->what && !a->by && !b->by && !c->by && evenly(a->at, b->at, c->at) && last >= 0 &&
           last <= INT32_MAX && (family->cyclic || last + a->n <= family->count);
}

static bool moves(const struct fold *f, struct three t)
{
    const struct op *a = t.of[0], *b = t.of[1], *c = t.of[2];
    bool steps = b->step - a->step == (a->step < 0 ? 0 : f->by) && evenly(a->step, b->step, c->step);

    if (!steps || !evenly(a->unit, b->unit, c->unit) || a->unit_by || b->unit_by || c->unit_by)
        return false;
    if (!event_moves(f, a, a->record, b->record, c->record))
        return false;
    for (int w = 0; w < 2; w++)
        if (!event_moves(f, a, a->wait[w], b->wait[w], c->wait[w]))
            return false;
    for (uint32_t i = 0; i < a->nacts; i++)
        if (!act_moves(f, &f->s->acts[a->act0 + i], &f->s->acts[b->act0 + i], &f->s->acts[c->act0 + i]))
            return false;
    return true;
}

/* ---- the repeat ---- */

/* Entries [from, to) say how they and their acts move to those `len` behind. */
static void note_moves(struct schedules *s, int from, int to, int len)
{
    for (int i = from; i < to; i++) {
        struct op *a = &s->ops[i];
        const struct op *b = &s->ops[i + len];
        a->unit_by = b->unit - a->unit;
        a->step_by = b->step - a->step;
        for (uint32_t k = 0; k < a->nacts; k++)
            s->acts[a->act0 + k].by = s->acts[b->act0 + k].at - s->acts[a->act0 + k].at;
    }
}

bool schedule_fold(struct schedules *s, const int at[4], int64_t n, int by)
{
    int len = at[1] - at[0];
    struct fold f = { s, n, by };

    if (len < 1 || at[2] - at[1] != len || at[3] - at[2] != len || n < 3)
        return false;
    for (int i = at[0]; i < at[1]; i++) {
        struct three t = { { &s->ops[i], &s->ops[i + len], &s->ops[i + 2 * len] } };
        if (!same(s, t.of[0], t.of[1]) || !same(s, t.of[1], t.of[2]) || !moves(&f, t))
            return false;
    }
    note_moves(s, at[0], at[1], len);
    s->nacts = (int)s->ops[at[1]].act0;
    memmove(&s->ops[at[0] + 1], &s->ops[at[0]], (size_t)len * sizeof *s->ops);
    s->nops = at[0];
    sched_repeat(s, n);
    s->ops[at[0]].act0 = s->ops[at[0] + 1].act0;
    s->nops += len;
    sched_repeat_end(s);
    return true;
}

void schedule_repeat_since(struct schedules *s, int from, int64_t n)
{
    sched_repeat(s, n);
    struct op open = s->ops[s->nops - 1];

    open.act0 = s->ops[from].act0;
    memmove(&s->ops[from + 1], &s->ops[from], (size_t)(s->nops - 1 - from) * sizeof *s->ops);
    s->ops[from] = open;
    for (int i = from + 1; i < s->nops; i++)
        if (s->ops[i].kind == OP_REPEAT || s->ops[i].kind == OP_END)
            s->ops[i].u.repeat.other++;
    for (size_t h = 0; h < sizeof s->span_at / sizeof *s->span_at; h++)
        s->span_at[h] += s->span_at[h] > from;
    sched_repeat_end(s);
}

void schedule_append(struct schedules *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        s->ops = room_for(s->ops, s->nops, &s->cap_ops, sizeof *s->ops);
        struct op *o = &s->ops[s->nops++];
        *o = s->ops[i];
        assert(o->kind != OP_REPEAT && o->kind != OP_END);
        o->act0 = (uint32_t)s->nacts;
        for (uint32_t k = 0; k < o->nacts; k++) {
            s->acts = room_for(s->acts, s->nacts, &s->cap_acts, sizeof *s->acts);
            s->acts[s->nacts++] = s->acts[s->ops[i].act0 + k];
        }
    }
}
