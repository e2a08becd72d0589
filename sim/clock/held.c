/* held.c -- held memory by the clock.
 *
 * Physical memory is needed from the moment at which the entry that allocates a
 * buffer starts on its stream (stream-ordered allocation: what was freed before on
 * that stream is reused), until both its free has been reached and its last use on
 * any stream is done. */
#include <stdlib.h>

#include "base/room.h"
#include "base/sort.h"
#include "sim/clock/simulate.h"

struct change { double t; int64_t bytes; int64_t at; };

struct changes { struct change *c; int64_t n, room; };

static void push(struct changes *l, double t, int64_t bytes, int64_t at)
{
    if (bytes == 0)
        return;
    l->c = room_for(l->c, l->n, &l->room, sizeof *l->c);
    l->c[l->n++] = (struct change){ t, bytes, at };
}

/* At one instant what goes, goes first; then in order of issue. */
static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    if ((x->bytes < 0) != (y->bytes < 0))
        return x->bytes < 0 ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

struct life { double last_use; };

static void acts_of(const struct schedules *s, unsigned in, const struct ran *ran, int64_t at, const int64_t *base,
                    struct life *life, struct changes *l)
{
    const struct op *o = &s->ops[ran->op];

    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &s->acts[k];
        const struct buf *b = &s->bufs[a->buf];
        if (!(in & IN(b->space)) || !op_moves(o, b))
            continue;
        for (int j = 0; j < a->n; j++) {
            struct life *f = &life[base[a->buf] + sched_instance(s, a, ran->iteration) + j];
            if (a->what & ACT_ALLOC) {
                push(l, ran->start, b->bytes, at);
                f->last_use = ran->end;
            }
            if (ran->end > f->last_use)
                f->last_use = ran->end;
            if (a->what & ACT_FREE)
                push(l, f->last_use, -b->bytes, at);
        }
    }
    if (o->kind == OP_COMPUTE && (in & IN(SPACE_DEVICE))) {
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
    int64_t *base = calloc((size_t)s->nbufs + 1, sizeof *base), n = 0, live = 0;
    struct changes l = { 0 };
    struct life *life;

    if (!base)
        abort();
    for (int b = 0; b < s->nbufs; b++) {
        base[b] = n;
        n += s->bufs[b].count;
    }
    life = calloc((size_t)n + 1, sizeof *life);
    if (!life)
        abort();
    for (int64_t i = 0; i < r->n; i++)
        acts_of(s, in, &r->ran[i], i, base, life, &l);
    sort_stable(l.c, (size_t)l.n, sizeof *l.c, by_time);
    *out = calloc((size_t)l.n + 1, sizeof **out);
    if (!*out)
        abort();
    for (int64_t i = 0; i < l.n; i++) {
        live += l.c[i].bytes;
        (*out)[i] = (struct held_point){ l.c[i].t, live, l.c[i].at };
    }
    free(base);
    free(life);
    free(l.c);
    return l.n;
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
