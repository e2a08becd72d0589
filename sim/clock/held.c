/* held.c -- held memory by the clock.
 *
 * Physical memory is needed from the moment at which the entry that allocates a
 * buffer starts on its stream (stream-ordered allocation: what was freed before on
 * that stream is reused), until both its free has been reached and its last use on
 * any stream is done. */
#include <stdlib.h>

#include "base/room.h"
#include "base/sort.h"
#include "sim/clock/held.h"
#include "sim/clock/simulate.h"

static void push(struct held_changes *l, double t, int64_t bytes, int64_t at)
{
    if (bytes == 0)
        return;
    l->c = room_for(l->c, l->n, &l->room, sizeof *l->c);
    l->c[l->n++] = (struct held_change){ t, bytes, at };
}

/* At one instant what goes, goes first; then in order of issue. */
static int by_time(const void *a, const void *b)
{
    const struct held_change *x = a, *y = b;

    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    if ((x->bytes < 0) != (y->bytes < 0))
        return x->bytes < 0 ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

void held_sort(struct held_changes *l)
{
    if (l->n > 1)
        sort_stable(l->c, (size_t)l->n, sizeof *l->c, by_time);
}

void held_open(struct held *h, const struct schedules *s, unsigned in)
{
    int64_t n = 0;

    *h = (struct held){ .s = s, .in = in, .base = room_new((size_t)s->nbufs + 1, sizeof *h->base) };
    for (int b = 0; b < s->nbufs; b++) {
        h->base[b] = n;
        n += s->bufs[b].count;
    }
    h->last_use = room_new((size_t)n + 1, sizeof *h->last_use);
}

void held_close(struct held *h)
{
    free(h->base);
    free(h->last_use);
    free(h->changes.c);
}

void held_take(struct held *h, const struct ran *ran, int64_t at)
{
    const struct schedules *s = h->s;
    const struct op *o = &s->ops[ran->op];
    struct held_changes *l = &h->changes;

    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &s->acts[k];
        const struct buf *b = &s->bufs[a->buf];
        if (!(h->in & IN(b->space)) || !op_moves(o, b))
            continue;
        for (int j = 0; j < a->n; j++) {
            double *last_use = &h->last_use[h->base[a->buf] + sched_instance(s, a, ran->iteration) + j];
            if (a->what & ACT_ALLOC) {
                push(l, ran->start, b->bytes, at);
                *last_use = ran->end;
            }
            if (ran->end > *last_use)
                *last_use = ran->end;
            if (a->what & ACT_FREE)
                push(l, *last_use, -b->bytes, at);
        }
    }
    if (o->kind == OP_COMPUTE && (h->in & IN(SPACE_DEVICE))) {
        int64_t peak[NMEM], net[NMEM], up, after;
        sched_inner_peak(s, o, peak);
        sched_inner(s, o, net);
        up = peak[0] + peak[1] + peak[2];
        after = net[0] + net[1] + net[2];
        push(l, ran->start, up, at);
        push(l, ran->end, after - up, at);
    }
}

int64_t held_curve(const struct schedules *s, const struct run *r, struct held_point **out)
{
    return held_curve_in(s, IN(SPACE_DEVICE), r, out);
}

int64_t held_curve_in(const struct schedules *s, unsigned in, const struct run *r, struct held_point **out)
{
    struct held h;
    int64_t live = 0, n;

    held_open(&h, s, in);
    for (int64_t i = 0; i < r->n; i++)
        held_take(&h, &r->ran[i], i);
    held_sort(&h.changes);
    n = h.changes.n;
    *out = room_new((size_t)n + 1, sizeof **out);
    for (int64_t i = 0; i < n; i++) {
        const struct held_change *c = &h.changes.c[i];
        live += c->bytes;
        (*out)[i] = (struct held_point){ c->t, live, c->at };
    }
    held_close(&h);
    return n;
}

int64_t held_peak(const struct schedules *s, const struct run *r, int64_t *at)
{
    return held_peak_in(s, IN(SPACE_DEVICE), r, at);
}

int64_t held_peak_in(const struct schedules *s, unsigned in, const struct run *r, int64_t *at)
{
    struct held_point *p;
    int64_t n = held_curve_in(s, in, r, &p), most = 0;

    *at = -1;
    for (int64_t i = 0; i < n; i++)
        if (p[i].bytes > most) {
            most = p[i].bytes;
            *at = p[i].at;
        }
    free(p);
    return most;
}
