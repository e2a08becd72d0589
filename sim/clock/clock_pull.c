/* clock_pull.c -- a role's entries, unrolled one by one in issue order. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "sim/clock/clock_internal.h"

_Static_assert(NSTREAM < 32, "a set of streams is 32 bits");

/* ---- repeats ---- */

/* Collectives of a process group follow each other; messages do not. */
static bool in_line(const struct op *o)
{
    return o->kind == OP_COLL && !coll_is_message((enum coll_op)o->u.coll.op);
}

/* Entries that cannot start before a repeat is through: all on its streams, and those that wait for them. */
struct held {
    unsigned streams, groups;
    uint8_t *events;
};

/* Notes what an entry holds back once it is held itself.  False for one that is not held: on a stream of
 * its own it might start while the repeat still runs. */
static bool hold(const struct schedules *s, struct held *h, const struct op *o)
{
    bool held = (h->streams >> o->stream & 1) || (o->after & h->streams) ||
                (in_line(o) && (h->groups >> o->u.coll.group & 1));

    for (int w = 0; w < 2; w++)
        held |= o->wait[w] && h->events[o->wait[w]] && !sched_event_turns(s, o, o->wait[w]);

    if (!held)
        return o->stream == STREAM_ISSUE;
    h->streams |= 1u << o->stream;
    if (in_line(o))
        h->groups |= 1u << o->u.coll.group;
    if (o->record && !sched_event_turns(s, o, o->record))
        h->events[o->record] = 1;
    return true;
}

/* The next entry on a stream or of the issuing thread from ops[i] on; repeats of no iterations are passed by. */
static int next_entry(const struct schedules *s, int i, int to)
{
    while (i < to && (s->ops[i].kind == OP_REPEAT || s->ops[i].kind == OP_END))
        i = s->ops[i].kind == OP_REPEAT && s->ops[i].u.repeat.n == 0 ? s->ops[i].u.repeat.other + 1 : i + 1;
    return i;
}

/* Entries of ops[from, to).  0: one is not held; 1: all are; 2: the issuing thread is held there. */
static int hold_range(const struct schedules *s, struct held *h, int from, int to)
{
    for (int i = next_entry(s, from, to); i < to; i = next_entry(s, i + 1, to)) {
        if (!hold(s, h, &s->ops[i]))
            return 0;
        if (h->streams >> STREAM_ISSUE & 1)
            return 2;
    }
    return 1;
}

/* A repeat's own entries.  An event or a group holds back what waits for it if the last entry that has
 * it is the last on its stream: the next entry is unrolled only after it is done. */
static void hold_body(const struct schedules *s, struct held *h, int from, int to)
{
    int last[NSTREAM];

    memset(h->events, 0, (size_t)s->nevents + 1);
    h->streams = h->groups = 0;
    for (int i = next_entry(s, from, to); i < to; i = next_entry(s, i + 1, to)) {
        h->streams |= 1u << s->ops[i].stream;
        last[s->ops[i].stream] = i;
    }
    h->streams &= ~(1u << STREAM_ISSUE);
    for (int i = next_entry(s, from, to); i < to; i = next_entry(s, i + 1, to)) {
        const struct op *o = &s->ops[i];
        bool is_last = o->stream != STREAM_ISSUE && last[o->stream] == i;
        if (in_line(o))
            h->groups = (h->groups & ~(1u << o->u.coll.group)) | (unsigned)is_last << o->u.coll.group;
        if (o->record && !sched_event_turns(s, o, o->record))
            h->events[o->record] = is_last;
    }
}

/* Is nothing after the repeat able to start before its streams are through?  What comes after is the
 * rest of the repeats around it, their next iteration, and what follows them. */
static bool closes(const struct clock_loops *loops, const struct loop *l, int begin, struct held *h)
{
    const struct schedules *s = loops->s;
    int at = s->ops[l->open].u.repeat.other + 1, open = l->open;

    hold_body(s, h, open + 1, at - 1);
    if (!h->streams)
        return false;
    for (;;) {
        int outer = open - 1, depth = 0;
        while (outer >= begin && !(s->ops[outer].kind == OP_REPEAT && depth == 0)) {
            depth += s->ops[outer].kind == OP_END ? 1 : s->ops[outer].kind == OP_REPEAT ? -1 : 0;
            outer--;
        }
        int to = outer >= begin ? s->ops[outer].u.repeat.other : loops->end;
        int all = hold_range(s, h, at, to);
        if (all != 1 || outer < begin)
            return all > 0;
        /* Another iteration of the repeat around it, or what follows that: what the first holds back
         * is not held on the way to the second. */
        struct held again = { h->streams, h->groups, h->events + s->nevents + 1 };
        memcpy(again.events, h->events, (size_t)s->nevents + 1);
        if (!hold_range(s, &again, outer + 1, open))
            return false;
        open = outer;
        at = to + 1;
    }
}

struct clock_loops *clock_loops_new(const struct schedules *s, enum sched_id id)
{
    struct clock_loops *all = room_new(1, sizeof *all);
    struct held h = { 0 };
    int64_t room = 0;

    *all = (struct clock_loops){ .s = s, .end = s->end[id] };
    for (int i = s->begin[id]; i < all->end; i++)
        if (s->ops[i].kind == OP_REPEAT) {
            all->of = room_for(all->of, all->n, &room, sizeof *all->of);
            struct loop *l = &all->of[all->n++];
            *l = (struct loop){ .open = i };
            int to = s->ops[i].u.repeat.other;
            for (int j = next_entry(s, i + 1, to); j < to; j = next_entry(s, j + 1, to))
                l->streams |= 1u << s->ops[j].stream;
            l->streams &= ~(1u << STREAM_ISSUE);
        }
    if (!all->n)
        return all;
    h.events = malloc(2 * ((size_t)s->nevents + 1));        /* and a copy */
    if (!h.events)
        abort();
    for (int i = 0; i < all->n; i++)
        all->of[i].closed = closes(all, &all->of[i], s->begin[id], &h);
    free(h.events);
    return all;
}

void clock_loops_free(struct clock_loops *l)
{
    if (!l)
        return;
    free(l->of);
    free(l);
}

/* Streams that have to have a head: those of the repeats around the next entry, up to one that
 * lets nothing behind it start early.  Outside of such a repeat, whatever comes. */
static void look_ahead(struct actor *a)
{
    a->want = 0;
    for (int level = a->depth - 1; level >= 0; level--) {
        const struct loop *l = &a->loops->of[a->at[level].loop];
        a->want |= l->streams;
        if (l->closed)
            return;
    }
    a->want = ~0u;
}

static void enter(struct clock *k, struct actor *a)
{
    const struct op *o = &a->s->ops[a->pc];
    int loop = 0;

    if (o->u.repeat.n == 0) {
        a->pc = o->u.repeat.other + 1;
        return;
    }
    assert(a->depth < DEPTH);
    while (a->loops->of[loop].open != a->pc)
        loop++;
    a->at[a->depth].open = a->pc;
    a->at[a->depth].loop = loop;
    a->at[a->depth].i = 0;
    a->entered[a->depth] = (struct since){ .first = a->n };
    a->at[a->depth].n = o->u.repeat.n;
    clock_skip_forget(k, a, a->depth);
    a->depth++;
    a->pc++;
    look_ahead(a);
}

static void leave(struct actor *a)
{
    int level = a->depth - 1;

    if (++a->at[level].i < a->at[level].n) {
        a->pc = a->at[level].open + 1;
        if (a->passed < 0 || level < a->passed)
            a->passed = level;
        return;
    }
    a->pc++;
    a->depth = level;
    look_ahead(a);
}

/* ---- items ---- */

static void depend(struct actor *a, struct item *it, int on)
{
    if (on < 0)
        return;
    a->deps = room_for(a->deps, a->ndeps, &a->deps_room, sizeof *a->deps);
    a->deps[a->ndeps++] = on;
    it->ndeps++;
}

static void unroll(struct clock *k, struct actor *a, int op, int64_t iteration)
{
    const struct op *o = &a->s->ops[op];
    int i = a->n;

    a->items = room_for(a->items, a->n, &a->room, sizeof *a->items);
    struct item *it = &a->items[a->n++];
    a->issue_at += a->d->issue[op];
    *it = (struct item){ .op = op, .iteration = iteration, .left = a->d->work[op], .issued = a->issue_at, .next = -1,
                         .dep0 = a->ndeps, .stream = o->stream, .cause = -1, .coll = -1, .blocked_by = -1,
                         .issue_cause = -1, .meet = -1 };
    if (a->lanes)
        clock_lanes_issue(a, i);
    if (o->stream != STREAM_ISSUE) {
        int before = a->last_on[o->stream];
        if (a->pending >> o->stream & 1) {
            a->items[before].next = i;
        } else {
            if (before < 0) {
                a->place[o->stream] = (uint8_t)a->nused;
                a->used[a->nused++] = o->stream;
            }
            a->head[o->stream] = i;
            a->pending |= 1u << o->stream;
            a->waiting |= 1u << a->place[o->stream];
        }
        it->coll = before >= 0 && o->stream != STREAM_COMPUTE ? a->items[before].coll : -1;
        depend(a, it, before);
        it->issue_cause = a->issue_cause;
        if (o->stream == STREAM_COMPUTE)
            a->issue_cause = -1;
    }
    if (in_line(o)) {
        depend(a, it, a->last_in[o->u.coll.group]);
        a->last_in[o->u.coll.group] = i;
    }
    if (o->kind == OP_COLL)
        it->coll = o->u.coll.op * PLAN_GROUPS + o->u.coll.group;
    for (unsigned st = 0, mask = o->after; mask; st++, mask >>= 1)
        if (mask & 1)
            depend(a, it, a->last_on[st]);
    for (int w = 0; w < 2; w++)
        if (o->wait[w])
            depend(a, it, a->recorded[sched_event_at(a->s, o, o->wait[w], iteration)]);
    if (o->stream != STREAM_ISSUE)
        a->last_on[o->stream] = i;
    else
        a->blocked = i;
    if (o->record)
        a->recorded[sched_event_at(a->s, o, o->record, iteration)] = i;
    if (o->kind == OP_COLL && k->n > 1)
        clock_meet_join(k, a, i);
}

bool clock_pull_next(struct clock *k, struct actor *a)
{
    while (a->pc < a->end) {
        const struct op *o = &a->s->ops[a->pc];
        if (o->kind == OP_REPEAT) {
            enter(k, a);
        } else if (o->kind == OP_END) {
            leave(a);
        } else {
            unroll(k, a, a->pc, a->depth ? a->at[a->depth - 1].i : 0);
            a->pc++;
            return true;
        }
        /* The repeat just left may have needed more streams than are needed now. */
        if (!(a->want & ~a->pending))
            return true;
    }
    a->want = 0;
    return false;
}

/* ---- storage ---- */

double clock_entries(const struct schedules *s, int from, int to)
{
    double n = 0;

    for (int i = from; i < to; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_REPEAT) {
            n += (double)o->u.repeat.n * clock_entries(s, i + 1, o->u.repeat.other);
            i = o->u.repeat.other;
        } else {
            n++;
        }
    }
    return n;
}

void clock_pull_open(struct actor *a, const struct role *r, int nroles, enum sched_id id)
{
    a->role = r;
    a->s = r->s;
    a->d = r->d;
    a->pc = r->s->begin[id];
    a->end = r->s->end[id];
    a->want = ~0u;
    a->passed = a->blocked = a->issue_cause = -1;
    a->most = ITEMS / nroles > LEAST_ITEMS ? ITEMS / nroles : LEAST_ITEMS;
    for (int st = 0; st < NSTREAM; st++)
        a->last_on[st] = a->head[st] = -1;
    for (int g = 0; g < PLAN_GROUPS; g++) {
        a->last_in[g] = -1;
        a->instance[g] = -2;
    }
    double all = clock_entries(r->s, a->pc, a->end), twice = 2 * (double)(a->end - a->pc);     /* repeats settle soon */
    double most = a->whole ? all : fmax(twice, a->most);                                       /* what is not used costs nothing */
    a->room = (int64_t)(all < most ? all : most) + 1;
    a->deps_room = 4 * a->room;
    a->items = malloc((size_t)a->room * sizeof *a->items);
    a->deps = malloc((size_t)a->deps_room * sizeof *a->deps);
    a->recorded = malloc(((size_t)r->s->nevents + 1) * sizeof *a->recorded);
    if (!a->recorded || !a->items || !a->deps)
        abort();
    for (int e = 0; e <= r->s->nevents; e++)
        a->recorded[e] = -1;
    a->own_loops = r->loops ? NULL : clock_loops_new(r->s, id);
    a->loops = r->loops ? r->loops : a->own_loops;
}

void clock_pull_close(struct actor *a)
{
    free(a->items);
    free(a->deps);
    free(a->recorded);
    clock_loops_free(a->own_loops);
}

static void mark(int *map, int item)
{
    if (item >= 0)
        map[item] = 1;
}

static void renumber(const int *map, int *item)
{
    if (*item >= 0)
        *item = map[*item];
}

void clock_pull_forget(struct clock *k, struct actor *a)
{
    int oldest = clock_oldest(a), kept = 0, ndeps = 0, n = a->n;
    int *map = calloc((size_t)a->n + 1, sizeof *map), *deps = malloc(((size_t)a->ndeps + 1) * sizeof *deps);

    if (!map || !deps)
        abort();
    clock_skip_count(a, oldest);
    clock_held_forget(k, a, oldest);
    for (int i = oldest; i < a->n; i++) {
        map[i] = 1;
        for (int d = 0; d < a->items[i].ndeps; d++)
            mark(map, a->deps[a->items[i].dep0 + d]);
        mark(map, a->items[i].issue_cause);
    }
    mark(map, a->issue_cause);
    for (int st = 0; st < NSTREAM; st++)
        mark(map, a->last_on[st]);
    for (int g = 0; g < a->s->groups.n; g++)
        mark(map, a->last_in[g]);
    for (int e = 0; e <= a->s->nevents; e++)
        mark(map, a->recorded[e]);
    for (int i = 0; i < a->n; i++) {
        if (i == oldest)
            clock_held_renumber(a, kept);
        map[i] = map[i] ? kept++ : -1;
    }
    if (oldest == n)
        clock_held_renumber(a, kept);
    for (int i = 0; i < a->n; i++) {
        struct item *it = &a->items[i];
        if (map[i] < 0)
            continue;
        int first = ndeps;
        for (int d = 0; d < it->ndeps && i >= oldest; d++)
            deps[ndeps++] = map[a->deps[it->dep0 + d]];
        it->dep0 = first;
        it->ndeps = (uint8_t)(ndeps - first);
        renumber(map, &it->next);
        renumber(map, &it->cause);
        renumber(map, &it->blocked_by);
        renumber(map, &it->issue_cause);
        if (it->meet >= 0 && it->state != DONE)
            for (int m = 0; m < k->meets[it->meet].nmembers; m++)
                if (k->meets[it->meet].who[m].actor == a->index)
                    k->meets[it->meet].who[m].item = map[i];
        a->items[map[i]] = *it;
        if (a->lanes)
            a->lanes->items[map[i]] = a->lanes->items[i];
    }
    for (int st = 0; st < NSTREAM; st++) {
        renumber(map, &a->last_on[st]);
        renumber(map, &a->head[st]);
    }
    for (int g = 0; g < a->s->groups.n; g++)
        renumber(map, &a->last_in[g]);
    for (int e = 0; e <= a->s->nevents; e++)
        renumber(map, &a->recorded[e]);
    renumber(map, &a->blocked);
    renumber(map, &a->issue_cause);
    memcpy(a->deps, deps, (size_t)ndeps * sizeof *deps);
    clock_skip_renumber(k, a, map, n, kept);
    a->n = kept;
    a->most = 2 * kept > a->most ? 2 * kept : a->most;
    a->ndeps = ndeps;
    free(map);
    free(deps);
}
