/* clock_held.c -- held memory (held.c) while the clock runs: of a role's entries as they are dropped, so that none has to be kept.
 *
 * An entry is taken when all before it in order of issue are done.  What it changes is settled once nothing that is still to come can
 * change anything earlier.  Where the clock jumps over iterations, each holds what the last one did, and what that left on top. */
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
    int64_t most[DEPTH];            /* since the last state of that level was recorded */
    bool    lost;                   /* a change came after a later one was settled, or iterations are alike in time and not yet in what they hold */
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
    int64_t i = 0, most = INT64_MIN;

    held_sort(l);
    h->lost |= l->n > 0 && l->c[0].t < h->until;
    for (; i < l->n && l->c[i].t < t; i++) {
        h->live += l->c[i].bytes;
        most = h->live > most ? h->live : most;
    }
    memmove(l->c, l->c + i, (size_t)(l->n - i) * sizeof *l->c);
    l->n -= i;
    h->until = t > h->until ? t : h->until;
    h->peak = most > h->peak ? most : h->peak;
    for (int level = 0; level < DEPTH; level++)
        h->most[level] = most > h->most[level] ? most : h->most[level];
}

/* Nothing from `oldest` on can change anything before it has started. */
static void settle_before(const struct clock *k, struct actor *a, int oldest)
{
    double t = k->t;

    take(a, oldest);
    for (int i = oldest; i < a->n; i++)
        if (a->items[i].state != WAITING && a->items[i].start < t)
            t = a->items[i].start;
    settle(a->held, t);
}

void clock_held_forget(const struct clock *k, struct actor *a, int oldest)
{
    if (a->held)
        settle_before(k, a, oldest);
}

void clock_held_renumber(struct actor *a, int taken)
{
    if (a->held)
        a->held->taken = taken;
}

void clock_held_note(const struct clock *k, struct actor *a, int level, struct held_now *to)
{
    struct actor_held *h = a->held;

    if (!h)
        return;
    settle_before(k, a, clock_oldest(a));
    *to = (struct held_now){ h->live, h->most[level], 0, h->until };
    for (int64_t i = 0; i < h->of.changes.n; i++)
        to->unsettled += h->of.changes.c[i].bytes;
    h->most[level] = INT64_MIN;
}

void clock_held_since(struct held_now *was, bool last, const struct held_now *now)
{
    was->most = last || now->most > was->most ? now->most : was->most;
}

bool clock_held_again(const struct held_now *now, const struct held_now *then, double by)
{
    return now->unsettled == then->unsettled && fabs(now->until - then->until - by) <= CLOCK_SAME * now->until;
}

void clock_held_jump(struct actor *a, const struct held_now *now, const struct held_now *then, double by, int64_t times)
{
    struct actor_held *h = a->held;

    if (!h)
        return;
    int64_t left = times * (now->live + now->unsettled - then->live - then->unsettled), most = then->most;
    h->lost |= !clock_held_again(now, then, by);
    h->peak = left > 0 && most + left > h->peak ? most + left : h->peak;
    for (int level = 0; level < DEPTH; level++)
        h->most[level] = left > 0 && most + left > h->most[level] ? most + left : h->most[level];
    h->live += left;
    h->until += (double)times * by;
    for (int64_t i = 0; i < h->of.changes.n; i++)
        h->of.changes.c[i].t += (double)times * by;
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
