/* requests_turns.c -- see requests_turns.h. */
#include "model/memory/requests_turns.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/memory/requests_internal.h"
#include "model/plan/framework.h"

struct requests_role {
    struct walk w;
    struct request_report report;
    struct requests_process *process;
    bool stepped;                   /* the first step is done */
};

/* ---- what is shared ---- */

static void take_workspaces(struct walk *w, const struct requests_process *p)
{
    memcpy(w->workspace[0], p->workspace, sizeof p->workspace);
}

static void leave_workspaces(const struct walk *w, struct requests_process *p)
{
    memcpy(p->workspace, w->workspace[0], sizeof p->workspace);
}

/* ---- a forward without gradients ---- */

static void drop(struct walk *w, int i)
{
    requests_give_back(w, w->tensors[i].block);
    requests_tensor_forget(w, i);
}

void requests_drop_input(struct walk *w, const struct op *o, int64_t iteration)
{
    const struct piece *p = &w->s->program.piece[o->u.compute.piece];
    int block = (int)(o->unit + o->unit_by * iteration), before = block > 0 ? block - 1 : EMBEDDING;

    if (!piece_is_block((enum piece_id)o->u.compute.piece) || o->u.compute.pass != PASS_FORWARD || o->u.compute.k1 != p->nkernels[PASS_FORWARD])
        return;
    for (int i = requests_of_owner(w, before)->newest; i != NONE; i = w->tensors[i].in[OWN].older)
        if (w->tensors[i].handed_on && !w->tensors[i].left && w->tensors[i].bytes == w->s->program.boundary) {
            drop(w, i);
            break;
        }
    for (int i = requests_of_owner(w, block)->newest, older; i != NONE; i = older) {
        older = w->tensors[i].in[OWN].older;
        if (!w->tensors[i].handed_on && !w->tensors[i].left)
            drop(w, i);
    }
}

/* The forward has returned: nothing that it made has a name. */
static void drop_all(struct walk *w)
{
    for (int i = w->all.newest, older; i != NONE; i = older) {
        older = w->tensors[i].in[ALL].older;
        drop(w, i);
    }
    for (int i = 0; i < w->first[w->s->nbufs]; i++)
        requests_free_instance(w, i);
}

/* The host has waited for the device. */
static void complete(const struct request_target *t)
{
    for (int s = 0; s < NSTREAM; s++)
        t->complete(t->of, s, t->events(t->of, s));
}

int64_t requests_forward(const struct plan *p, const struct schedules *s, struct request_options o, const struct request_target *t,
                         struct requests_process *process)
{
    struct request_report report = { .sched = SCHED_STEADY };
    struct walk w = { .p = p, .s = s, .t = t, .o = o, .out = &report, .records = framework_of(p)->records_streams, .forward = true };

    complete(t);
    requests_begin(&w);
    take_workspaces(&w, process);
    requests_run(&w, s->begin[SCHED_STEADY], s->end[SCHED_STEADY], 0);
    drop_all(&w);
    leave_workspaces(&w, process);
    requests_end(&w);
    complete(t);
    return w.over ? -1 : report.unmatched;
}

/* ---- a role ---- */

static void walk(struct requests_role *r, enum sched_id id)
{
    r->report.sched = id;
    r->w.met = false;
    take_workspaces(&r->w, r->process);
    requests_run(&r->w, r->w.s->begin[id], r->w.s->end[id], 0);
    leave_workspaces(&r->w, r->process);
}

struct requests_role *requests_role_new(const struct plan *p, const struct schedules *s, struct request_options o, const struct request_target *t,
                                        struct requests_process *process, bool infers)
{
    struct requests_role *r = room_new(1, sizeof *r);

    r->process = process;
    r->w = (struct walk){ .p = p, .s = s, .t = t, .o = o, .out = &r->report, .records = framework_of(p)->records_streams, .forward = infers };
    requests_begin(&r->w);
    walk(r, SCHED_INIT);
    return r;
}

void requests_role_free(struct requests_role *r)
{
    if (r)
        requests_end(&r->w);
    free(r);
}

void requests_role_step(struct requests_role *r)
{
    walk(r, r->stepped ? SCHED_STEADY : SCHED_FIRST);
    r->stepped = true;
    if (r->w.named)                     /* the function that named logits has returned */
        requests_give_back(&r->w, r->w.logits);
    r->w.named = false;
}

int64_t requests_role_wrong(const struct requests_role *r) { return r->w.over ? -1 : r->report.unmatched; }

/* Bytes of an instance's k-th block: parts in the order in which they are asked for, or all of it. */
static int64_t bytes_of(const struct walk *w, const struct buf *b, const struct instance *x, int k)
{
    return b->nparts == x->n ? w->s->parts[b->part0 + k] : b->bytes / x->n;
}

static void move_instance(struct walk *w, const struct buf *b, struct instance *x, bool there)
{
    for (int k = 0; k < x->n; k++) {
        if (there && x->block[k] == NONE)
            x->block[k] = requests_request(w, bytes_of(w, b, x, k), x->stream);
        if (!there && x->block[k] != NONE) {
            requests_give_back(w, x->block[k]);
            x->block[k] = NONE;
        }
    }
}

void requests_role_move(struct requests_role *r, unsigned categories, bool there)
{
    struct walk *w = &r->w;

    for (int b = 0; b < w->s->nbufs; b++)
        for (int i = w->first[b]; i < w->first[b + 1]; i++)
            if (categories >> w->s->bufs[b].category & 1)
                move_instance(w, &w->s->bufs[b], &w->instances[i], there);
}
