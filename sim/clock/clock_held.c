/* clock_held.c -- held memory (held.c) while the clock runs: of a role's entries as they are dropped, so that none has to be kept.
 *
 * An entry is taken when all before it in order of issue are done.  What it changes is settled once nothing that is still to come can
 * change anything earlier.  Where the clock jumps over iterations, what they hold repeats with all else, if a repeat leaves no more than
 * it found. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "sim/clock/clock_internal.h"
#include "sim/clock/held.h"

struct actor_held {
    struct held of;
    int     taken;                  /* items before it are taken */
    int64_t at;                     /* entries so far */
    int64_t live, peak;             /* as far as it is settled: */
    double  until;
    bool    lost;                   /* a change came after a later one was settled, or a repeat leaves more than it found */
};

void clock_held_open(struct actor *a)
{
    a->held = a->role->holds ? room_new(1, sizeof *a->held) : NULL;
    if (a->held)
        held_open(&a->held->of, a->s, IN(SPACE_DEVICE));
}

static void take(struct actor *a, int to)
{
    struct actor_held *h = a->held;

    for (; h->taken < to; h->taken++) {
        const struct item *it = &a->items[h->taken];
        const struct ran ran = { it->op, it->iteration, it->issued, it->start, it->end, it->cause };
        held_take(&h->of, &ran, h->at++);
    }
}

/* All changes before t. */
static void settle(struct actor_held *h, double t)
{
    struct held_changes *l = &h->of.changes;
    int64_t i = 0;

    held_sort(l);
    h->lost |= l->n > 0 && l->c[0].t < h->until;
    for (; i < l->n && l->c[i].t < t; i++) {
        h->live += l->c[i].bytes;
        h->peak = h->live > h->peak ? h->live : h->peak;
    }
    memmove(l->c, l->c + i, (size_t)(l->n - i) * sizeof *l->c);
    l->n -= i;
    h->until = t;
}

void clock_held_forget(const struct clock *k, struct actor *a, int oldest)
{
    double t = k->t;

    if (!a->held)
        return;
    take(a, oldest);
    for (int i = oldest; i < a->n; i++)
        if (a->items[i].state != WAITING && a->items[i].start < t)
            t = a->items[i].start;
    settle(a->held, t);
}

void clock_held_renumber(struct actor *a, int taken)
{
    if (a->held)
        a->held->taken = taken;
}

int64_t clock_held_now(struct actor *a)
{
    if (!a->held)
        return 0;
    take(a, clock_oldest(a));
    int64_t live = a->held->live;
    for (int64_t i = 0; i < a->held->of.changes.n; i++)
        live += a->held->of.changes.c[i].bytes;
    return live;
}

void clock_held_jump(struct actor *a, int64_t now, int64_t then, double by)
{
    if (!a->held)
        return;
    a->held->lost |= now != then;
    for (int64_t i = 0; i < a->held->of.changes.n; i++)
        a->held->of.changes.c[i].t += by;
}

void clock_held_close(struct actor *a)
{
    a->out->held_known = false;
    if (!a->held)
        return;
    take(a, a->n);
    settle(a->held, INFINITY);
    a->out->held_known = !a->held->lost;
    a->out->held_peak = a->held->peak;
    held_close(&a->held->of);
    free(a->held);
}
