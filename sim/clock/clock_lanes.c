/* clock_lanes.c -- the lanes of a run (clock_lanes.h), entry by entry as the clock ends them. */
#include <math.h>
#include <stdlib.h>

#include "base/room.h"
#include "sim/clock/clock_internal.h"

static void latest(struct lane *to, const struct lane *other)
{
    for (int k = 0; k < LANES; k++)
        to->s[k] = to->s[k] > other->s[k] ? to->s[k] : other->s[k];
}

static void add(struct lane *to, const struct lane *more)
{
    for (int k = 0; k < LANES; k++)
        to->s[k] += more->s[k];
}

/* So many times what was added between the two. */
static void go_on(struct lane *to, double times, const struct lane *now, const struct lane *then)
{
    for (int k = 0; k < LANES; k++)
        to->s[k] += times * (now->s[k] - then->s[k]);
}

void clock_lanes_open(struct actor *a, struct lanes *of)
{
    a->lanes = of ? room_new(1, sizeof *a->lanes) : NULL;
    if (!of)
        return;
    a->lanes->of = of;
    a->lanes->room = a->most + 1 < a->room ? a->most + 1 : a->room;         /* before some are dropped */
    a->lanes->items = malloc((size_t)a->lanes->room * sizeof *a->lanes->items);
    if (!a->lanes->items)
        abort();
    for (int i = 0; i < LANE_PARTS; i++)
        for (int k = 0; k < LANES; k++)
            a->lanes->others[i] |= (unsigned)(of->pick[i][k] != 0) << k;
}

void clock_lanes_close(struct actor *a)
{
    if (!a->lanes)
        return;
    struct lanes *of = a->lanes->of;
    of->end = a->lanes->now.issued;
    of->worked = a->lanes->now.worked;
    for (int k = 0; k < LANES; k++)         /* where links are shared for longer than on the clock, what that costs is not known */
        of->unsure.s[k] += (of->slow.s[k] > 0) * fabs(a->lanes->now.shared.s[k] - a->lanes->now.shared.s[LANE_PREDICTED]);
    for (int u = 0; u < a->nused; u++)
        latest(&of->end, &a->lanes->now.last[a->used[u]]);
    free(a->lanes->items);
    free(a->lanes);
}

void clock_lanes_issue(struct actor *a, int item)
{
    struct actor_lanes *l = a->lanes;
    double issue = a->d->issue[a->items[item].op];

    for (int k = 0; k < LANES; k++)
        l->now.issued.s[k] += issue * l->of->issue.s[k];
    l->items = room_for(l->items, item, &l->room, sizeof *l->items);
    l->items[item] = l->now.issued;
}

/* When the last of what it waits for is done; until then it holds when it was issued. */
static void start(struct actor *a, int item)
{
    const struct item *it = &a->items[item];

    for (int d = it->dep0; d < it->dep0 + it->ndeps; d++)
        latest(&a->lanes->items[item], &a->lanes->items[a->deps[d]]);
}

void clock_lanes_wait(struct actor *a, int item)
{
    start(a, item);
    a->lanes->now.issued = a->lanes->items[item];
}

/* ---- what streams cost each other ---- */

/* Kernels on the compute stream, and all that runs beside them. */
static int side_of(const struct actor *a, const struct item *it)
{
    return it->stream != STREAM_COMPUTE || a->s->ops[it->op].kind == OP_COLL;
}

static bool shares_link(const struct actor *a, int op, int other)
{
    const struct op *o = &a->s->ops[op], *p = &a->s->ops[other];

    return o->kind == OP_COLL && p->kind == OP_COLL && a->role->slow && a->role->slow->shares_link[o->u.coll.group][p->u.coll.group];
}

void clock_lanes_beside(struct actor *a, struct item *it, const int *ops, int n)
{
    for (int i = 0; i < n; i++)
        it->linked |= ops[i] != it->op && shares_link(a, it->op, ops[i]);
}

/* An entry's work: most lanes have the first price of a part. */
static struct lane work_of(const struct actor *a, int op)
{
    const struct lanes *l = a->lanes->of;
    int part = l->part[op];
    double usual = l->work[0][op];
    struct lane of;

    for (int k = 0; k < LANES; k++)
        of.s[k] = usual;
    for (unsigned left = a->lanes->others[part]; left; left &= left - 1) {
        int k = __builtin_ctz(left);
        of.s[k] = l->work[l->pick[part][k]][op];
    }
    return of;
}

/* The two sides overlap for as long as the shorter one takes, and nothing for longer than it takes itself: what an entry loses grows with
 * the shorter side, which is slowed down for more of its time.  A link that is shared halves the rate in every lane. */
static struct lane time_of(struct actor *a, const struct item *it, const struct lane *works, double own, double lost, double part)
{
    const struct actor_lanes *l = a->lanes;
    struct lane work = *works, took = work, grows;
    int side = side_of(a, it), other = !side;
    bool longer = l->beside_s[side] * l->took_s[other] < l->beside_s[other] * l->took_s[side] && l->sum_s[other] > 0;
    double sum_s = l->sum_s[other];

    if (!(lost > 0) || !(own > 0))
        return took;
    for (int k = 0; k < LANES; k++)
        grows.s[k] = work.s[k] / own;
    for (int k = 0; k < LANES && !side && sum_s > 0; k++)
        l->of->unsure.s[k] += .5 * lost * fabs(l->sum[other].s[k] / sum_s - grows.s[k]);
    for (int k = 0; k < LANES && longer && !it->linked; k++) {
        double theirs = l->sum[other].s[k] / sum_s, mine = grows.s[k] / part;
        grows.s[k] = theirs < mine ? theirs : mine;
    }
    for (int k = 0; k < LANES; k++) {
        double slow = l->of->slow.s[k];
        took.s[k] += lost * grows.s[k] * (it->linked ? (double)(slow > 0) : slow);
    }
    return took;
}

/* For how long the entry shared its link with the last one of each other stream. */
static void note_sharing(struct actor *a, int item, const struct lane *begun)
{
    struct actor_lanes *l = a->lanes;
    const struct item *it = &a->items[item];

    for (int u = 0; u < a->nused; u++) {
        int st = a->used[u], op = l->last_op[st] - 1;
        if (st == it->stream || op < 0 || !shares_link(a, it->op, op))
            continue;
        for (int k = 0; k < LANES; k++)
            l->now.shared.s[k] += fmax(fmin(l->items[item].s[k], l->now.last[st].s[k]) - fmax(begun->s[k], l->begun[st].s[k]), 0);
    }
}

static void end(struct actor *a, int item, const struct lane *work, const struct lane *took, double own, double s, double beside)
{
    struct actor_lanes *l = a->lanes;
    const struct item *it = &a->items[item];
    struct lane *begun = &l->begun[it->stream];
    int side = side_of(a, it);

    *begun = l->items[item];
    add(&l->items[item], took);
    if (side)
        note_sharing(a, item, begun);
    l->last_op[it->stream] = it->op + 1;
    l->now.last[it->stream] = l->items[item];
    if (!side)
        add(&l->now.worked, took);
    if (side && it->stream == STREAM_COMPUTE)       /* beside no kernel */
        return;
    add(&l->sum[side], work);
    l->sum_s[side] += own;
    l->took_s[side] += s;
    l->beside_s[side] += beside;
}

void clock_lanes_end(struct actor *a, int item, double s, double beside)
{
    double own = a->d->work[a->items[item].op];
    struct lane work = work_of(a, a->items[item].op), took = time_of(a, &a->items[item], &work, own, s - own, s > 0 ? beside / s : 0);

    start(a, item);
    end(a, item, &work, &took, own, s, beside);
}

/* All begin when the last of them can, and take as long as the longest. */
void clock_lanes_meet(struct clock *k, const struct meet *m, double s, double beside)
{
    struct lane begin = { { 0 } }, took = { { 0 } };
    double own = 0;

    for (int i = 0; i < m->nmembers; i++)
        own = fmax(own, k->actors[m->who[i].actor].items[m->who[i].item].left);
    for (int i = 0; i < m->nmembers; i++) {
        struct actor *a = &k->actors[m->who[i].actor];
        struct lane work = work_of(a, a->items[m->who[i].item].op);
        struct lane mine = time_of(a, &a->items[m->who[i].item], &work, own, s - own, s > 0 ? beside / s : 0);
        start(a, m->who[i].item);
        latest(&begin, &a->lanes->items[m->who[i].item]);
        latest(&took, &mine);
    }
    for (int i = 0; i < m->nmembers; i++) {
        struct actor *a = &k->actors[m->who[i].actor];
        struct lane work = work_of(a, a->items[m->who[i].item].op);
        a->lanes->items[m->who[i].item] = begin;
        end(a, m->who[i].item, &work, &took, own, s, beside);
    }
}

/* ---- iterations that are jumped over ---- */

/* In a lane whose streams do not go on at one pace the iterations that are left may take another time than those before.  An issuing
 * thread that is faster than they are only gets further ahead. */
static void note_paces(struct actor *a, const struct lanes_now *now, const struct lanes_now *then, double times)
{
    for (int k = 0; k < LANES; k++) {
        double least = INFINITY, most = now->issued.s[k] - then->issued.s[k];
        for (int u = 0; u < a->nused; u++) {
            double by = now->last[a->used[u]].s[k] - then->last[a->used[u]].s[k];
            least = by > 0 && by < least ? by : least;
            most = by > most ? by : most;
        }
        if (least < INFINITY)
            a->lanes->of->unsure.s[k] += times * (most - least);
    }
}

void clock_lanes_jump(struct actor *a, const struct lanes_now *then, int oldest, double before, double times)
{
    struct actor_lanes *l = a->lanes;
    struct lanes_now now = l->now;

    l->of->jumped = true;
    note_paces(a, &now, then, times);
    for (int i = oldest; i < a->n; i++) {
        const struct item *it = &a->items[i];
        bool issued = it->state != DONE || it->stream == STREAM_ISSUE;
        if (issued)
            go_on(&l->items[i], times, &now.issued, &then->issued);
        else if (it->end > before)
            go_on(&l->items[i], times, &now.last[it->stream], &then->last[it->stream]);
    }
    for (int u = 0; u < a->nused; u++)
        go_on(&l->now.last[a->used[u]], times, &now.last[a->used[u]], &then->last[a->used[u]]);
    go_on(&l->now.issued, times, &now.issued, &then->issued);
    go_on(&l->now.worked, times, &now.worked, &then->worked);
    go_on(&l->now.shared, times, &now.shared, &then->shared);
}
