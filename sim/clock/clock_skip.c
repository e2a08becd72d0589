/* clock_skip.c -- a state that comes back: the rest of a repeat is one jump.
 *
 * A state decides all that follows: the next entry of each role, its entries under way with the work that
 * they have left, which partners have arrived.  Its discrete part is a hash; the rest is compared number
 * by number, relative to the clock. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "sim/clock/clock_internal.h"

/* Relative difference of two equal times that rounding may cause. */
#define ROUNDING 2e-14
/* Most entries of one role that are under way in a state; where there are several roles: a stage that runs ahead of the next one without end
 * never comes back to one. */
enum { WINDOW = 1 << 17, AHEAD = 1 << 14 };
/* Iterations that a run waits for what roles hold to repeat, in all its repeats together. */
#define PATIENCE 8

struct actor_state {
    int      depth;
    int64_t  at[DEPTH];             /* iterations of the repeats around the next entry */
    double   rest[NSTREAM];         /* until what runs ends at its rate; of what has arrived, less than 0: since when */
    double   issue_at, compute_end;
    int64_t  wins;
    int      oldest;                /* item under way */
    struct held_now held;
    struct timeline sums;
    struct lanes_now lanes;         /* where there are any */
};

struct snap {
    double   t;
    uint64_t hash;
    struct actor_state *of;         /* of each role */
};

/* The last few, of each level of the lead's repeats. */
struct state {
    struct { struct snap snap[SNAPS]; int n; } level[DEPTH];
    struct actor_state *store;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* The item's meet: which members have arrived, and the work left. */
static uint64_t partners(const struct clock *k, const struct item *it, uint64_t h)
{
    const struct meet *m = &k->meets[it->meet];

    h = mix(h, (uint64_t)m->arrived);
    for (int i = 0; i < m->nmembers; i++) {
        const struct actor *b = &k->actors[m->who[i].actor];
        h = mix(h, m->who[i].item < 0 ? UINT64_MAX : (uint64_t)(b->n - m->who[i].item));
    }
    return h;
}

int clock_oldest(const struct actor *a)
{
    int oldest = a->blocked >= 0 ? a->blocked : a->n;

    for (int u = 0; u < a->nused; u++) {
        int head = a->head[a->used[u]];
        if (head >= 0 && head < oldest)
            oldest = head;
    }
    return oldest;
}

/* The collective that waiting for an item is charged to; -1. */
static int blamed(const struct actor *a, int item)
{
    return item < 0 ? -1 : a->items[item].coll;
}

static uint64_t hash_of(const struct actor *a, const struct item *it, uint64_t h)
{
    return mix(h, (uint64_t)it->op << 32 | (uint64_t)(unsigned)(it->coll + 1) << 16 | (uint64_t)(unsigned)(blamed(a, it->issue_cause) + 1) << 2 | it->state);
}

/* Of items [from, to), which are done: what later ones may blame for waiting.  They are told apart by what they are alone. */
static uint64_t sum_of(const struct actor *a, int from, int to)
{
    uint64_t sum = 0;

    for (int i = from; i < to; i++)
        sum += hash_of(a, &a->items[i], 0);
    return sum;
}

static uint64_t counted(const struct actor *a, const struct since *s, int oldest)
{
    return s->counted + sum_of(a, s->first > a->counted ? s->first : a->counted, oldest);
}

void clock_skip_count(struct actor *a, int oldest)
{
    uint64_t all = sum_of(a, a->counted, oldest);

    for (int i = 0; i < 2 * DEPTH; i++) {
        struct since *s = i < DEPTH ? &a->entered[i] : &a->seen[i - DEPTH];
        s->counted += s->first <= a->counted ? all : sum_of(a, s->first, oldest);
    }
    a->counted = oldest;
}

/* Where item i is after some are dropped, or the first behind it that is left. */
static int place_after(const int *map, int n, int kept, int i)
{
    while (i < n && map[i] < 0)
        i++;
    return i < n ? map[i] : kept;
}

void clock_skip_renumber(struct clock *k, struct actor *a, const int *map, int n, int kept)
{
    a->counted = place_after(map, n, kept, a->counted);
    for (int level = 0; level < DEPTH; level++) {
        a->entered[level].first = place_after(map, n, kept, a->entered[level].first);
        a->seen[level].first = place_after(map, n, kept, a->seen[level].first);
        for (int i = 0; k->states && i < SNAPS && i < k->states->level[level].n; i++) {
            int *oldest = &k->states->level[level].snap[i].of[a->index].oldest;
            *oldest = place_after(map, n, kept, *oldest);
        }
    }
}

/* The entries of a role that are under way, and those that were done since `since`; NULL: none of these.  False where there are too many. */
static bool under_way(const struct clock *k, const struct actor *a, const struct since *since, uint64_t *hash)
{
    int oldest = clock_oldest(a);
    uint64_t h = mix(mix(*hash, (uint64_t)a->pc), (uint64_t)a->depth << 32 | a->pending);

    h = mix(h, (uint64_t)(unsigned)blamed(a, a->issue_cause));
    if (a->n - oldest > (k->n > 1 ? AHEAD : WINDOW))
        return false;
    h = mix(h, since ? counted(a, since, oldest) : 0);
    for (int i = oldest; i < a->n; i++) {
        const struct item *it = &a->items[i];
        h = hash_of(a, it, h);
        if (it->meet >= 0 && it->state != DONE)
            h = partners(k, it, h);
    }
    *hash = h;
    return true;
}

static void note_actor(const struct clock *k, struct actor *a, int of, struct actor_state *to)
{
    to->depth = a->depth;
    for (int level = 0; level < a->depth; level++)
        to->at[level] = a->at[level].i;
    for (int u = 0; u < a->nused; u++) {
        int st = a->used[u], head = a->head[st];
        const struct item *it = head < 0 ? NULL : &a->items[head];
        to->rest[st] = 0;
        if (it && it->state == RUNNING)
            to->rest[st] = (it->meet >= 0 ? k->meets[it->meet].end : it->end) - k->t;
        else if (it && it->state == ARRIVED)
            to->rest[st] = it->since - k->t;
    }
    to->issue_at = a->issue_at;
    to->compute_end = a->compute_end;
    to->wins = a->wins;
    to->oldest = clock_oldest(a);
    clock_held_note(k, a, of, &to->held);
    to->sums = *a->out;
    if (a->lanes)
        to->lanes = a->lanes->now;
}

/* Has the head of a stream yet to be issued? */
static bool awaits_issue(const struct actor *a, double now)
{
    for (int u = 0; u < a->nused; u++) {
        int head = a->head[a->used[u]];
        if (head >= 0 && a->items[head].state == WAITING && a->items[head].issued > now)
            return true;
    }
    return false;
}

/* Does the issuing thread repeat itself?  Yes where it is as far ahead as it was, or where it decided no
 * start and is further ahead; or where it has no more to do. */
static bool same_issuing(const struct actor *a, const struct actor_state *then, double now, double before)
{
    double ahead = a->issue_at - now, was = then->issue_at - before;

    return fabs(ahead - was) <= ROUNDING * now || (!awaits_issue(a, now) && ((a->wins == then->wins && ahead < was) ||
           (a->pc >= a->end && a->blocked < 0)));
}

/* Iterations that the role can jump over if it goes on as between the two states; -1: they are not the
 * same.  *moves: it did something. */
static int64_t repeats(const struct actor *a, const struct actor_state *now, const struct actor_state *then, double t,
                       double before, bool *moves)
{
    int64_t times = -1;

    double worked = now->compute_end - then->compute_end;

    if (now->depth != then->depth || !same_issuing(a, then, t, before) ||
        (worked > 0 && fabs(worked - (t - before)) > ROUNDING * t))
        return -1;
    for (int u = 0; u < a->nused; u++)
        if (fabs(now->rest[a->used[u]] - then->rest[a->used[u]]) > ROUNDING * t)
            return -1;
    *moves = false;
    for (int level = 0; level < now->depth; level++) {
        int64_t by = now->at[level] - then->at[level];
        if (by == 0)
            continue;
        if (by < 0 || *moves)
            return -1;
        *moves = true;
        times = (a->at[level].n - 1 - a->at[level].i) / by;
    }
    return *moves ? times : INT64_MAX;
}

static void add_times(struct timeline *to, const struct timeline *now, const struct timeline *then, double k,
                      int groups)
{
    to->compute_s += k * (now->compute_s - then->compute_s);
    to->optimizer_s += k * (now->optimizer_s - then->optimizer_s);
    to->exposed_s += k * (now->exposed_s - then->exposed_s);
    to->idle_s += k * (now->idle_s - then->idle_s);
    to->bubble_s += k * (now->bubble_s - then->bubble_s);
    to->comm_s += k * (now->comm_s - then->comm_s);
    for (int st = 0; st < NSTREAM; st++)
        to->busy_s[st] += k * (now->busy_s[st] - then->busy_s[st]);
    for (int i = 0; i < NAWAY; i++)
        to->away_s[i] += k * (now->away_s[i] - then->away_s[i]);
    for (int op = 0; op < NCOLL; op++)
        for (int g = 0; g < groups; g++)
            if (now->exposed_by[op][g] > then->exposed_by[op][g])
                to->exposed_by[op][g] += k * (now->exposed_by[op][g] - then->exposed_by[op][g]);
}

/* A time of the repeat comes again with it; an earlier one does not. */
static void jump_late(struct item *it, double before, double by)
{
    if (it->late_to <= before)
        return;
    it->late_from += by;
    it->late_to += by;
}

static int at_turn(int i, int64_t by, int n) { return (int)(((i + by) % n + n) % n); }

/* What recorded the events of a ring recorded those `by` further on. */
static void turn_ring(struct actor *a, const struct ring *r, int64_t by)
{
    int *was = room_new(r->n, sizeof *was);

    memcpy(was, a->recorded + r->first, r->n * sizeof *was);
    for (int i = 0; i < r->n; i++)
        a->recorded[r->first + at_turn(i, by, r->n)] = was[i];
    free(was);
}

/* The rings of the repeat's entries, each once: so many iterations are jumped over. */
static void turn_rings(struct actor *a, int open, int64_t iterations)
{
    const struct schedules *s = a->s;
    unsigned char *turned = room_new((size_t)s->nevents + 1, 1);

    for (int i = open + 1; i < s->ops[open].u.repeat.other; i++) {
        const struct op *o = &s->ops[i];
        const uint16_t events[3] = { o->record, o->wait[0], o->wait[1] };
        for (int e = 0; e < 3 && o->step_by; e++) {
            const struct ring *r = events[e] ? &s->rings[events[e]] : NULL;
            if (r && r->n > 1 && !turned[r->first])
                turn_ring(a, r, o->step_by * iterations);
            turned[r ? r->first : 0] = 1;
        }
    }
    free(turned);
}

static void jump_actor(struct clock *k, struct actor *a, const struct actor_state *now, const struct actor_state *then,
                       double before, double by, int64_t times)
{
    double n = (double)times, issued = n * (now->issue_at - then->issue_at);

    add_times(a->out, &now->sums, &then->sums, n, a->s->groups.n);
    for (int level = 0; level < a->depth; level++) {
        int64_t iterations = times * (now->at[level] - then->at[level]);
        a->at[level].i += iterations;
        if (iterations)
            turn_rings(a, a->at[level].open, iterations);
    }
    for (int u = 0; u < a->nused; u++) {
        int head = a->head[a->used[u]];
        struct item *it = head < 0 ? NULL : &a->items[head];
        if (it && (it->state == RUNNING || it->state == ARRIVED)) {
            it->start += n * by;
            it->since += n * by;
            it->end += n * by;
            jump_late(it, before, n * by);
        }
    }
    if (a->lanes)
        clock_lanes_jump(a, &then->lanes, then->oldest, before, n);
    clock_held_jump(a, &now->held, &then->held, by, times);
    /* What has a time of issue to come keeps its distance to the clock, as does what has ended; what ended earlier decides nothing but what is held. */
    for (int i = then->oldest; i < a->n; i++) {
        struct item *it = &a->items[i];
        if (it->state == WAITING && it->issued > k->t)
            it->issued += issued;
        if (it->state == DONE && (it->end > before || (a->role->waits && i >= now->oldest))) {
            double later = it->stream == STREAM_ISSUE ? issued : n * by;
            it->since += later;
            it->start += later;
            it->end += later;
            jump_late(it, before, later);
        }
    }
    a->issue_at += issued;
    a->compute_end += n * (now->compute_end - then->compute_end);
    bits_set(k->touched, a->index);     /* its next event is looked for again: an issue, or an end */
}

static void jump(struct clock *k, const struct snap *now, const struct snap *then, int64_t times)
{
    double by = now->t - then->t;

    for (int r = 0; r < k->n; r++)
        jump_actor(k, &k->actors[r], &now->of[r], &then->of[r], then->t, by, times);
    for (int i = 0; i < k->nactive; i++) {
        k->meets[k->active[i]].since += (double)times * by;
        k->meets[k->active[i]].end += (double)times * by;
        k->ends[i] = k->meets[k->active[i]].end;
    }
    k->t += (double)times * by;
}

static bool is_later(double t, double was, double by) { return fabs(t - was - by) <= CLOCK_SAME * t; }

/* Did all that is still under way, or done behind what is, start and end `by` later than its like? */
static bool same_times(const struct actor *a, int oldest, int was, double by)
{
    for (int i = oldest; i < a->n; i++) {
        const struct item *it = &a->items[i], *then = &a->items[was + i - oldest];
        if (it->state == WAITING)
            continue;
        if (it->op != then->op || !is_later(it->start, then->start, by) || (it->state == DONE && !is_later(it->end, then->end, by)))
            return false;
    }
    return true;
}

/* Is it worth another iteration that what roles hold repeats as well?  It does soon, or never. */
static bool waits(struct clock *k, const struct snap *now, const struct snap *then)
{
    double by = now->t - then->t;

    for (int r = 0; r < k->n; r++)
        if (k->actors[r].role->waits && !(clock_held_again(&now->of[r].held, &then->of[r].held, by) &&
                                          same_times(&k->actors[r], now->of[r].oldest, then->of[r].oldest, by)))
            return k->waited++ < PATIENCE;
    return false;
}

/* Jumps if `then` is the state of `now`. */
static bool again(struct clock *k, const struct snap *now, const struct snap *then)
{
    int64_t times = INT64_MAX;
    bool any = false;

    if (now->hash != then->hash)
        return false;
    for (int r = 0; r < k->n; r++) {
        bool moves = false;
        int64_t mine = repeats(&k->actors[r], &now->of[r], &then->of[r], now->t, then->t, &moves);
        if (mine < 0)
            return false;
        any |= moves;
        times = mine < times ? mine : times;
    }
    if (!any || times < 1 || waits(k, now, then))
        return false;
    jump(k, now, then, times);
    return true;
}

static struct state *states_of(struct clock *k)
{
    struct state *s;

    if (k->states)
        return k->states;
    s = k->states = calloc(1, sizeof *s);
    if (!s || !(s->store = malloc((size_t)(DEPTH * SNAPS * k->n) * sizeof *s->store)))
        abort();
    for (int i = 0; i < DEPTH * SNAPS; i++)
        s->level[i / SNAPS].snap[i % SNAPS].of = &s->store[(size_t)i * (size_t)k->n];
    return s;
}

static void forget_all(struct clock *k)
{
    for (int level = 0; k->states && level < DEPTH; level++)
        k->states->level[level].n = 0;
}

/* Iterations of one role are watched: the first that has any, until it has few left or is behind. */
static bool leads(struct clock *k, const struct actor *a)
{
    const struct actor *lead = &k->actors[k->lead];

    if (a == lead) {
        k->silent = 0;
        return true;
    }
    if (lead->depth > 0 && lead->at[0].n - lead->at[0].i > 2 && ++k->silent <= 4 * k->n)
        return false;
    k->lead = a->index;
    k->silent = 0;
    forget_all(k);
    return true;
}

void clock_skip_boundary(struct clock *k, struct actor *a)
{
    int level = a->passed;

    a->passed = -1;
    if (a->whole || level >= a->depth || a->at[level].n - a->at[level].i < 2 || !leads(k, a))
        return;
    struct state *s = states_of(k);
    int n = s->level[level].n++;
    struct snap *now = &s->level[level].snap[n % SNAPS];
    now->t = k->t;
    now->hash = 0;
    for (int r = 0; r < k->n; r++)
        if (!under_way(k, &k->actors[r], n ? &k->actors[r].seen[level] : r == a->index ? &a->entered[level] : NULL, &now->hash)) {
            s->level[level].n = 0;
            return;
        }
    for (int r = 0; r < k->n; r++) {
        note_actor(k, &k->actors[r], level, &now->of[r]);
        k->actors[r].seen[level] = (struct since){ .first = k->actors[r].n };
        for (int i = n - 1; i >= 0 && i > n - SNAPS; i--)
            clock_held_since(&s->level[level].snap[i % SNAPS].of[r].held, i == n - 1, &now->of[r].held);
    }
    for (int i = n - 1; i >= 0 && i > n - SNAPS; i--)
        if (again(k, now, &s->level[level].snap[i % SNAPS])) {
            s->level[level].n = 0;
            return;
        }
}

void clock_skip_forget(struct clock *k, const struct actor *a, int level)
{
    for (; k->states && a->index == k->lead && level < DEPTH; level++)
        k->states->level[level].n = 0;
}

void clock_skip_close(struct clock *k)
{
    if (k->states)
        free(k->states->store);
    free(k->states);
}
