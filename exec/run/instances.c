/* instances.c -- where buffers lie and which elements of which tensors they hold. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "exec/run/executor_internal.h"

static const struct layout no_layout;

static const struct layout *layout_of(const struct executor *x, int buf, int own)
{
    int l = own ? own : x->s->bufs[buf].layout;

    return l ? &x->s->layouts[l] : &no_layout;
}

int instances_open(struct executor *x)
{
    x->inst = room_new((size_t)x->s->nbufs, sizeof *x->inst);
    for (int b = 0; b < x->s->nbufs; b++)
        x->inst[b] = room_new((size_t)x->s->bufs[b].count, sizeof **x->inst);
    return 0;
}

/* A file stays: its next user waits for the last one. */
static void forget(struct inst *i, bool file)
{
    struct when last = i->last;

    free(i->piece);
    free(i->kept);
    *i = (struct inst){ 0 };
    if (file)
        i->last = last;
}

void instances_reset(struct executor *x)
{
    for (int b = 0; b < x->s->nbufs; b++)
        for (int i = 0; i < x->s->bufs[b].count; i++)
            forget(&x->inst[b][i], false);
}

void instances_all_done(struct executor *x)
{
    for (int b = 0; b < x->s->nbufs; b++)
        for (int i = 0; i < x->s->bufs[b].count; i++)
            memset(&x->inst[b][i].last, 0, sizeof x->inst[b][i].last);
}

void instances_close(struct executor *x)
{
    if (!x->inst)
        return;
    instances_reset(x);
    for (int b = 0; b < x->s->nbufs; b++)
        free(x->inst[b]);
    free(x->inst);
}

struct inst *inst_of(struct executor *x, const struct act *a, int64_t iteration, int j)
{
    int64_t i = sched_instance(x->s, a, iteration) + j;

    assert(i >= 0 && i < x->s->bufs[a->buf].count);
    return &x->inst[a->buf][i];
}

/* Gradients that kernels will make one by one: nothing is allocated yet. */
static bool is_granted(const struct op *o, const struct buf *b)
{
    return o->kind == OP_COMPUTE && o->u.compute.fate == GRADS_KEEP &&
           b->category == (enum category)o->u.compute.grads;
}

static int alloc_one(struct executor *x, const struct op *o, const struct act *a, struct inst *i)
{
    const struct buf *b = &x->s->bufs[a->buf];
    int slices = layout_of(x, a->buf, 0)->nslices;

    assert(!i->live);
    if (b->space == SPACE_DISK) {
        when_join(&x->need, &i->last);
        when_join(&x->now, &i->last);
        *i = (struct inst){ .live = true, .at = executor_take_file(x, a->buf, i - x->inst[a->buf]) };
        return 0;
    }
    *i = (struct inst){ .live = true, .granted = is_granted(o, b) };
    if (!i->granted) {
        i->at = executor_take_in(x, b->space, b->bytes, b->category);
        return i->at < 0 ? -1 : 0;
    }
    i->piece = room_new((size_t)slices, sizeof *i->piece);
    for (int k = 0; k < slices; k++)
        i->piece[k] = -1;
    return 0;
}

int inst_alloc(struct executor *x, const struct op *o, const struct act *a, int64_t iteration)
{
    if (!buf_is_place(&x->s->bufs[a->buf]))
        return 0;                   /* they come kernel by kernel */
    for (int j = 0; j < a->n; j++)
        if (alloc_one(x, o, a, inst_of(x, a, iteration, j)) < 0)
            return -1;
    return 0;
}

void inst_free(struct executor *x, const struct act *a, int64_t iteration)
{
    enum space in = x->s->bufs[a->buf].space;

    if (!buf_is_place(&x->s->bufs[a->buf]))
        return;
    for (int j = 0; j < a->n; j++) {
        struct inst *i = inst_of(x, a, iteration, j);
        assert(i->live);
        if (in == SPACE_DISK)
            executor_give_file(x, a->buf, &i->last);
        else if (!i->granted)
            executor_give_in(x, in, i->at, &i->last);
        for (int k = 0; i->granted && k < layout_of(x, a->buf, 0)->nslices; k++)
            if (i->piece[k] >= 0)
                executor_give_in(x, in, i->piece[k], &i->last);
        forget(i, in == SPACE_DISK);
    }
}

/* ---- views ---- */

void views_clear(struct views *v) { v->n = 0; }

static void add(struct views *out, const struct view *v)
{
    out->v = room_for(out->v, out->n, &out->room, sizeof *out->v);
    out->v[out->n++] = *v;
}

/* The slice of the family's own layout in which, for instance `index`, elements of a tensor lie; -1:
 * none. */
static int family_slice(const struct executor *x, int buf, int64_t index, const struct slice *c, int tensor)
{
    const struct layout *l = layout_of(x, buf, 0);

    for (int k = 0; k < l->nslices; k++) {
        const struct slice *f = &x->s->slices[l->slice0 + k];
        if (f->tensor + (int)index * l->stride == tensor && f->from <= c->from &&
            c->from + c->n <= f->from + f->n)
            return k;
    }
    return -1;
}

/* Where a granted instance has elements of the tensor of slice k of its family; -1: nowhere yet. */
static int64_t piece_at(const struct executor *x, int buf, const struct inst *i, int k,
                        const struct slice *c)
{
    if (k < 0 || i->piece[k] < 0)
        return -1;
    const struct slice *f = &x->s->slices[layout_of(x, buf, 0)->slice0 + k];
    return i->piece[k] + (c->from - f->from) * dtype_bytes((enum dtype)f->dtype);
}

static void views_of_instance(struct executor *x, const struct act *a, int64_t index, struct inst *i,
                              struct views *out)
{
    const struct layout *l = layout_of(x, a->buf, a->layout);

    for (int k = 0; k < l->nslices; k++) {
        const struct slice *c = &x->s->slices[l->slice0 + k];
        int tensor = c->tensor + (int)index * l->stride;
        int slice = i->granted ? family_slice(x, a->buf, index, c, tensor) : k;
        add(out, &(struct view){ .tensor = tensor, .holds = (enum holds)c->holds,
                                 .dtype = (enum dtype)c->dtype, .from = c->from, .n = c->n, .inst = i,
                                 .slice = slice, .what = a->what, .space = x->s->bufs[a->buf].space,
                                 .at = i->granted ? piece_at(x, a->buf, i, slice, c) : i->at + c->at,
                                 .end = i->granted ? 0 : i->at + x->s->bufs[a->buf].bytes,
                                 .own = a->layout != 0 });
    }
}

void views_of(struct executor *x, const struct op *o, int64_t iteration, int bits, struct views *out)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &x->s->acts[k];
        for (int j = 0; (a->what & bits) && j < a->n; j++)
            views_of_instance(x, a, sched_instance(x->s, a, iteration) + j, inst_of(x, a, iteration, j), out);
    }
}

int views_there(const struct executor *x, const struct op *o, const struct views *v)
{
    for (int i = 0; i < v->n; i++)
        if (v->v[i].at < 0)
            return fail("the schedule's entry \"%s\" is about the gradient of %s, which is not there",
                        o->what, tensor_of(x, v->v[i].tensor)->name);
    return 0;
}

const struct view *view_find(const struct views *v, enum holds h, int tensor, int64_t at)
{
    for (int i = 0; i < v->n; i++)
        if (v->v[i].tensor == tensor && v->v[i].holds == h && at >= v->v[i].from &&
            at < v->v[i].from + v->v[i].n)
            return &v->v[i];
    return NULL;
}

void *view_at(const struct executor *x, const struct view *v, int64_t at)
{
    char *p = arena_at(x->in[v->space], v->at);

    return p ? p + (at - v->from) * dtype_bytes(v->dtype) : NULL;
}

int64_t act_region(struct executor *x, const struct act *a, int64_t iteration)
{
    const struct inst *i = inst_of(x, a, iteration, 0);
    const struct layout *l = layout_of(x, a->buf, a->layout);
    int64_t first = INT64_MAX;

    if (i->granted && l->nslices == 1) {
        int64_t index = sched_instance(x->s, a, iteration);
        const struct slice *c = &x->s->slices[l->slice0];
        int k = family_slice(x, a->buf, index, c, c->tensor + (int)index * l->stride);
        return piece_at(x, a->buf, i, k, c);
    }
    if (i->granted)
        return -1;
    if (!a->layout)
        return i->at;
    for (int k = 0; k < l->nslices; k++)
        if (x->s->slices[l->slice0 + k].at < first)
            first = x->s->slices[l->slice0 + k].at;
    return first == INT64_MAX ? i->at : i->at + first;
}
