/* schedule_states.c -- see schedule_states.h. */
#include "model/schedule/schedule_states.h"

#include <stdlib.h>

#include "model/schedule/schedule_again.h"

enum role { OTHER, PARAMS, BROUGHT, UNSHARDED, GRADS, SUM };

/* What a family is to the pass, and of which unit. */
struct family { uint8_t role; int16_t unit; };

struct pass_over {
    struct schedules *s;
    const struct states_away *w;
    struct again again;
    struct family *family;
    bool *there;                        /* of a unit, what was brought */
    enum sched_id id;
};

static void set_role(struct pass_over *p, int family, enum role role, int unit)
{
    if (family >= 0)
        p->family[family] = (struct family){ (uint8_t)role, (int16_t)unit };
}

static void find_families(struct pass_over *p)
{
    for (int i = 0; i < p->w->nunits; i++) {
        const struct states_unit *u = &p->w->unit[i];
        set_role(p, u->params, PARAMS, i);
        set_role(p, u->brought, BROUGHT, i);
        set_role(p, p->w->apart ? u->unsharded : -1, UNSHARDED, i);
        set_role(p, u->grads, GRADS, i);
        set_role(p, u->sum, SUM, i);
    }
}

static enum role role_of(const struct pass_over *p, const struct act *a) { return (enum role)p->family[a->buf].role; }

static const struct states_unit *unit_of(const struct pass_over *p, const struct act *a) { return &p->w->unit[p->family[a->buf].unit]; }

/* The entry's act with a bit of `what` on a family of that role. */
static const struct act *finds(const struct pass_over *p, const struct op *o, enum role role, int what)
{
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++)
        if (p->again.acts[i].what & what && role_of(p, &p->again.acts[i]) == role)
            return &p->again.acts[i];
    return NULL;
}

/* ---- entries ---- */

/* A copy for entry o, on instance a. */
static struct op *copy(struct pass_over *p, const struct op *o, enum stream st, const char *what, int64_t reads, int64_t writes)
{
    struct op *c = sched_copy(p->s, st, (enum phase)o->phase, what, reads, writes);

    sched_of(p->s, o->of, o->unit, o->unit_by);
    sched_does(p->s, COPY_SET, 1);
    return c;
}

static void hold_issue(struct pass_over *p, enum phase phase, const char *what, uint16_t after)
{
    sched_op(p->s, OP_WAIT, STREAM_ISSUE, phase, what)->after = after;
}

static void hold_if_pageable(struct pass_over *p, const struct op *o)
{
    if (p->w->pageable)
        hold_issue(p, (enum phase)o->phase, "pageable copy", AFTER(o->stream));
}

static void act_parts(struct pass_over *p, int what, const struct states_unit *u, const struct act *a, bool unsharded)
{
    for (int i = 0; i < u->nparts; i++)
        sched_act(p->s, what, unsharded ? u->part[i].unsharded : u->part[i].cast, a->at, a->by);
}

static void act_in_place(struct pass_over *p, const struct act *a, int family)
{
    struct act of = *a;

    of.buf = family;
    sched_act_like(p->s, &of, a->what);
}

static void act(struct pass_over *p, const struct act *a)
{
    const struct states_unit *u = unit_of(p, a);
    bool *there = &p->there[p->family[a->buf].unit];

    switch (role_of(p, a)) {
    case OTHER:
        sched_act_like(p->s, a, a->what);
        break;
    case PARAMS:
        act_parts(p, a->what, u, a, false);
        break;
    case BROUGHT:
        if (a->what & ACT_FREE && *there)
            act_parts(p, ACT_FREE, u, a, false);
        *there = *there && !(a->what & ACT_FREE);
        break;
    case UNSHARDED:
        act_parts(p, a->what, u, a, true);
        break;
    case GRADS: case SUM:
        act_in_place(p, a, u->landing);
        break;
    }
}

static struct op *again(struct pass_over *p, const struct op *o)
{
    int at = p->s->nops;

    again_op(&p->again, o);
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++)
        act(p, &p->again.acts[i]);
    return &p->s->ops[at];
}

/* ---- parameters ---- */

/* One part, and its cast. */
static void bring_part(struct pass_over *p, const struct op *o, const struct states_unit *u, const struct act *a, const struct states_part *t)
{
    copy(p, o, (enum stream)o->stream, "shard to device", t->up, t->up);
    sched_act_as(p->s, ACT_R, u->params, a->at, a->by, t->shard);
    sched_act(p->s, ACT_ALLOC | ACT_W, t->staged, a->at, a->by);
    hold_if_pageable(p, o);
    if (t->cast == t->staged)
        return;
    copy(p, o, (enum stream)o->stream, "cast shard", t->up, t->used);
    sched_act(p->s, ACT_R | ACT_FREE, t->staged, a->at, a->by);
    sched_act(p->s, ACT_ALLOC | ACT_W, t->cast, a->at, a->by);
}

/* All of a unit's, and then the entry, which reads what was brought. */
static void bring(struct pass_over *p, const struct op *o, const struct states_unit *u, const struct act *a)
{
    int first = p->s->nops;

    for (int i = 0; i < u->nparts; i++)
        bring_part(p, o, u, a, &u->part[i]);
    p->s->ops[first].after = o->after;
    p->there[u - p->w->unit] = true;
    struct op *n = again(p, o);
    n->after = 0;
    n->u.copy.reads = n->u.copy.writes;
}

/* One after another in place of the entry, which copies them: what was brought goes when its name is bound to the next. */
static void bring_apart(struct pass_over *p, const struct op *o, const struct states_unit *u, const struct act *a)
{
    for (int i = 0; i < u->nparts; i++) {
        const struct states_part *t = &u->part[i];
        bool last = i == u->nparts - 1;
        bring_part(p, o, u, a, t);
        if (i > 0) {
            sched_op(p->s, OP_MEMORY, (enum stream)o->stream, (enum phase)o->phase, "release");
            sched_of(p->s, o->of, o->unit, o->unit_by);
            sched_act(p->s, ACT_FREE, t[-1].cast, a->at, a->by);
        }
        struct op *c = copy(p, o, (enum stream)o->stream, o->what, t->used, t->used);
        c->flags |= i == 0 ? o->flags : 0;
        c->record = last ? o->record : 0;
        sched_act(p->s, last ? ACT_R | ACT_FREE : ACT_R, t->cast, a->at, a->by);
        sched_act(p->s, ACT_ALLOC | ACT_W, t->unsharded, a->at, a->by);
    }
}

/* ---- gradients ---- */

/* The issuing thread waits for the copy and adds. */
static void add_on_host(struct pass_over *p, const struct op *o, const struct states_unit *u, const struct act *a, const struct states_part *t)
{
    hold_issue(p, PHASE_REDUCE, "gradient to host", AFTER(o->stream));
    copy(p, o, STREAM_HOST, "add to grads", 2 * t->down, t->down);
    sched_does(p->s, COPY_ADD, 1);
    sched_act_as(p->s, ACT_R | ACT_FREE, u->arrived, a->at, a->by, t->arrived);
    sched_act_as(p->s, ACT_A, u->home, a->at, a->by, t->grad);
    hold_issue(p, PHASE_REDUCE, "add to grads", AFTER(STREAM_HOST));
}

/* They have landed, and go to the host: what the entry frees of them goes with the last.  Parts that do not train have none. */
static void send(struct pass_over *p, const struct op *o, const struct states_unit *u, const struct act *a, bool adds)
{
    int first = 0, last = u->nparts - 1;

    while (!u->part[first].trains)
        first++;
    while (!u->part[last].trains)
        last--;
    for (int i = first; i <= last; i++) {
        const struct states_part *t = &u->part[i];
        if (!t->trains)
            continue;
        copy(p, o, (enum stream)o->stream, "gradient to host", t->down, t->down);
        sched_act_as(p->s, i < last || p->w->held ? ACT_R : ACT_R | ACT_FREE, u->landing, a->at, a->by, t->reduced);
        if (adds) {
            sched_act_as(p->s, ACT_ALLOC | ACT_W, u->arrived, a->at, a->by, t->arrived);
            add_on_host(p, o, u, a, t);
        } else {
            sched_act_as(p->s, i == first && !p->w->stays ? ACT_ALLOC | ACT_W : ACT_W, u->home, a->at, a->by, t->grad);
        }
    }
    if (!adds)
        hold_if_pageable(p, o);
}

/* Does the next entry work on these gradients as well? */
static bool goes_on(const struct pass_over *p, const struct op *o)
{
    return o[1].phase == PHASE_REDUCE && o + 1 < p->again.ops + p->again.end[p->id] && finds(p, o + 1, GRADS, ACT_WRITE | ACT_ADD);
}

/* The end of a backward: compute waits for all reductions. */
static bool ends_backward(const struct op *o)
{
    return o->kind == OP_MEMORY && o->stream == STREAM_COMPUTE && o->phase == PHASE_REDUCE && o->after & AFTER(STREAM_REDUCE);
}

static void await_gradients(struct pass_over *p, const struct op *o)
{
    hold_issue(p, PHASE_REDUCE, "gradients on the host", o->after | p->w->also);
    if (!p->w->stays)
        return;
    sched_op(p->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "drop reduced gradients");
    for (int i = 0; i < p->w->nunits; i++)
        if (p->w->unit[i].grads >= 0)
            sched_act_all(p->s, ACT_FREE, p->w->unit[i].landing);
}

/* ---- the step ---- */

static void on_host(struct pass_over *p, const struct op *o)
{
    const struct act *freed = finds(p, o, GRADS, ACT_FREE);

    if (freed && p->w->stays)
        return;
    struct op *n = again_op(&p->again, o);
    n->stream = n->stream == STREAM_COMPUTE ? STREAM_HOST : n->stream;
    if (!(n->after & AFTER(STREAM_HOST)) && n->after & AFTER(STREAM_COMPUTE))
        n->after = (uint16_t)((n->after & ~AFTER(STREAM_COMPUTE)) | AFTER(STREAM_HOST));
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &p->again.acts[i];
        act_in_place(p, a, role_of(p, a) == GRADS ? unit_of(p, a)->home : a->buf);
    }
    if (o->kind == OP_OPTIMIZER)
        hold_issue(p, PHASE_OPTIMIZER, "the CPU's optimizer", AFTER(STREAM_HOST));
}

/* ---- first weights ---- */

static void pin(struct pass_over *p, const struct states_unit *u)
{
    sched_repeat(p->s, p->s->bufs[u->params].count);
    sched_copy(p->s, STREAM_HOST, PHASE_INIT, "pin shards", u->pinned, u->pinned);
    sched_of(p->s, u->name, 0, u->many);
    sched_does(p->s, COPY_SET, 1);
    sched_act(p->s, ACT_R | ACT_FREE, u->born, 0, 1);
    sched_act(p->s, ACT_ALLOC | ACT_W, u->params, 0, 1);
    sched_repeat_end(p->s);
}

/* What is not the host's stays the device's, in an entry of its own. */
static void load_others(struct pass_over *p, const struct op *o)
{
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &p->again.acts[i];
        if (role_of(p, a) == PARAMS)
            continue;
        sched_op(p->s, OP_MEMORY, (enum stream)o->stream, PHASE_INIT, p->s->bufs[a->buf].what)->flags = o->flags;
        sched_act_like(p->s, a, a->what);
    }
}

static void load(struct pass_over *p, const struct op *o)
{
    sched_op(p->s, OP_MEMORY, STREAM_HOST, PHASE_INIT, o->what)->flags = o->flags;
    for (int i = 0; i < p->w->nunits; i++)
        sched_act_all(p->s, ACT_ALLOC | ACT_W, p->w->pageable ? p->w->unit[i].params : p->w->unit[i].born);
    load_others(p, o);
    for (int i = 0; i < p->w->nunits && !p->w->pageable; i++)
        pin(p, &p->w->unit[i]);
    hold_issue(p, PHASE_INIT, "weights on the host", AFTER(STREAM_HOST));
}

/* ---- all ---- */

static void entry(void *pass, const struct op *o)
{
    struct pass_over *p = pass;
    const struct act *a;

    if (o->phase == PHASE_OPTIMIZER) {
        on_host(p, o);
    } else if (o->flags & OPF_LOAD && finds(p, o, PARAMS, ACT_WRITE)) {
        load(p, o);
    } else if ((a = finds(p, o, PARAMS, ACT_READ))) {
        (p->w->apart ? bring_apart : bring)(p, o, unit_of(p, a), a);
    } else if ((a = finds(p, o, GRADS, ACT_ADD)) && !p->w->stays) {
        send(p, o, unit_of(p, a), a, true);
    } else {
        again(p, o);
        if ((a = finds(p, o, GRADS, ACT_WRITE | ACT_ADD)) && !goes_on(p, o))
            send(p, o, unit_of(p, a), a, false);
    }
    if (ends_backward(o))
        await_gradients(p, o);
}

void schedules_states_away(struct schedules *s, const struct states_away *w)
{
    struct pass_over p = { .s = s, .w = w };

    p.family = calloc((size_t)s->nbufs + 1, sizeof *p.family);
    p.there = calloc((size_t)w->nunits + 1, sizeof *p.there);
    if (!p.family || !p.there)
        abort();
    find_families(&p);
    again_open(&p.again, s);
    for (int id = 0; id < NSCHED; id++) {
        p.id = (enum sched_id)id;
        sched_begin(s, p.id);
        again_each(&p.again, p.again.begin[id], p.again.end[id], entry, &p);
        sched_end(s, p.id);
    }
    again_close(&p.again);
    free(p.family);
    free(p.there);
}
