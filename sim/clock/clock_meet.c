/* clock_meet.c -- messages and collectives that span roles: matching, arrival, deadlocks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/memory/evaluate.h"
#include "sim/clock/clock_internal.h"

static int role_of_rank(const struct clock *k, int64_t rank)
{
    for (int r = 0; r < k->n; r++)
        if (k->ranks[r] == rank)
            return r;
    return -1;
}

static void words(const struct clock *k, int actor, char *to, size_t size)
{
    if (k->actors[actor].role->name)
        snprintf(to, size, "%s", k->actors[actor].role->name);
    else
        snprintf(to, size, "rank %" PRId64, k->ranks[actor]);
}

/* ---- channels ---- */

static unsigned bucket_of(bool message, int64_t from, int64_t to, int32_t tag)
{
    uint64_t h = (uint64_t)message + 3 * (uint64_t)from + 1000003 * (uint64_t)to + 7919 * (uint64_t)(uint32_t)tag;

    return (unsigned)((h * 0x9e3779b97f4a7c15u) >> 56);
}

static int channel_find(const struct clock *k, bool message, int64_t from, int64_t to, int32_t tag)
{
    int c = k->buckets[bucket_of(message, from, to, tag)];

    while (c >= 0 && !(k->channels[c].message == message && k->channels[c].from == from &&
                       k->channels[c].to == to && k->channels[c].tag == tag))
        c = k->channels[c].next;
    return c;
}

static int channel_new(struct clock *k, bool message, int64_t from, int64_t to, int32_t tag, int nmembers)
{
    unsigned b = bucket_of(message, from, to, tag);

    k->channels = room_for(k->channels, k->nchannels, &k->room_channels, sizeof *k->channels);
    struct channel *c = &k->channels[k->nchannels];
    *c = (struct channel){ .message = message, .from = from, .to = to, .tag = tag, .nmembers = nmembers,
                           .open = -1, .last = -1, .next = k->buckets[b] };
    c->actors = malloc((size_t)nmembers * sizeof *c->actors);
    c->pulled = calloc((size_t)nmembers, sizeof *c->pulled);
    if (!c->actors || !c->pulled)
        abort();
    k->buckets[b] = k->nchannels;
    return k->nchannels++;
}

/* The channel of a message between two roles; -1 where the peer is none. */
static int message_channel(struct clock *k, const struct actor *a, const struct op *o)
{
    int64_t peer = mesh_member(&sched_group(a->s, o)->of, a->s->rank, o->u.coll.peer);
    bool sends = o->u.coll.op == COLL_SEND;
    int64_t from = sends ? a->s->rank : peer, to = sends ? peer : a->s->rank;
    int other = role_of_rank(k, peer);
    int c;

    if (other < 0 || other == a->index)
        return -1;
    c = channel_find(k, true, from, to, o->u.coll.tag);
    if (c < 0) {
        c = channel_new(k, true, from, to, o->u.coll.tag, 2);
        k->channels[c].actors[0] = sends ? a->index : other;
        k->channels[c].actors[1] = sends ? other : a->index;
    }
    return c;
}

/* In the instance of its group that `rank` is in: a group of some places has ranks beside it that are in none. */
static bool is_with(const struct mesh_group *g, int64_t rank, int64_t other)
{
    int64_t place = mesh_place(g, other);

    return place >= 0 && mesh_member(g, rank, place) == other;
}

/* The channel of a collective of an instance that has several roles; -1 where it has one. */
static int coll_channel(struct clock *k, const struct actor *a, const struct op *o)
{
    const struct mesh_group *g = &sched_group(a->s, o)->of;
    int64_t ranks = mesh_ranks(g), first = mesh_member(g, a->s->rank, 0);
    int n = 0, c;

    for (int r = 0; r < k->n; r++)
        n += is_with(g, a->s->rank, k->ranks[r]);
    if (ranks < 2 || n < 2)
        return -1;
    c = channel_find(k, false, o->u.coll.group, first, 0);
    if (c < 0) {
        c = channel_new(k, false, o->u.coll.group, first, 0, n);
        n = 0;
        for (int r = 0; r < k->n; r++)
            if (is_with(g, a->s->rank, k->ranks[r]))
                k->channels[c].actors[n++] = r;
    }
    return c;
}

/* ---- meets ---- */

static int meet_new(struct clock *k, int channel, int64_t seq)
{
    struct channel *c = &k->channels[channel];
    int m = k->free_meet;

    if (m >= 0) {
        k->free_meet = k->meets[m].next;
    } else {
        int64_t room = k->room_meets;
        k->meets = room_for(k->meets, k->nmeets, &k->room_meets, sizeof *k->meets);
        m = k->nmeets++;
        for (int64_t i = room; i < k->room_meets; i++)
            k->meets[i].who = NULL;
    }
    struct meet *new = &k->meets[m];
    if (!new->who && !(new->who = malloc((size_t)k->n * sizeof *new->who)))
        abort();
    new->channel = channel;
    new->seq = seq;
    new->nmembers = c->nmembers;
    new->arrived = 0;
    new->left = new->beside = 0;
    new->slow = 1;
    for (int i = 0; i < c->nmembers; i++)
        new->who[i] = (struct member){ c->actors[i], -1, 1 };
    new->next = -1;
    *(c->open < 0 ? &c->open : &k->meets[c->last].next) = m;
    c->last = m;
    c->made++;
    return m;
}

/* The channel's meet of this number, which a member that unrolled more entries has made; -1: it is the next. */
static int meet_find(const struct clock *k, const struct channel *c, int64_t seq)
{
    int m = seq < c->made ? c->open : -1;

    while (m >= 0 && k->meets[m].seq != seq)
        m = k->meets[m].next;
    return m;
}

void clock_meet_free(struct clock *k, int meet)
{
    struct channel *c = &k->channels[k->meets[meet].channel];
    int *at = &c->open, before = -1;

    while (*at != meet) {
        before = *at;
        at = &k->meets[before].next;
    }
    *at = k->meets[meet].next;
    if (c->last == meet)
        c->last = before;
    k->meets[meet].next = k->free_meet;
    k->free_meet = meet;
}

/* Two parts of one communication: the same collective of as many bytes (an unequal all-to-all apart). */
static bool fits(const struct op *a, const struct op *b)
{
    enum coll_op op = (enum coll_op)a->u.coll.op;
    bool same = coll_is_message(op) || a->u.coll.op == b->u.coll.op;
    bool parts = op == COLL_ALL_TO_ALL && (a->u.coll.parts || b->u.coll.parts);

    return same && (parts || a->u.coll.elems * dtype_bytes(a->u.coll.dtype) ==
                             b->u.coll.elems * dtype_bytes(b->u.coll.dtype));
}

static void misfit(struct clock *k, const struct actor *a, const struct op *o, const struct actor *b, const struct op *p)
{
    char mine[64], its[64];

    if (k->failed)
        return;
    k->failed = true;
    words(k, a->index, mine, sizeof mine);
    words(k, b->index, its, sizeof its);
    snprintf(k->why, k->why_size, "%s's %s of %" PRId64 " bytes meets %s's %s of %" PRId64 " bytes", mine,
             coll_name((enum coll_op)o->u.coll.op), o->u.coll.elems * dtype_bytes(o->u.coll.dtype), its,
             coll_name((enum coll_op)p->u.coll.op), p->u.coll.elems * dtype_bytes(p->u.coll.dtype));
}

void clock_meet_join(struct clock *k, struct actor *a, int item)
{
    struct item *it = &a->items[item];
    const struct op *o = &a->s->ops[it->op];
    bool message = coll_is_message((enum coll_op)o->u.coll.op);
    int *instance = &a->instance[o->u.coll.group], place = 0, m;

    if (!message && *instance == -2)
        *instance = coll_channel(k, a, o);
    int channel = message ? message_channel(k, a, o) : *instance;

    if (channel < 0)
        return;
    struct channel *c = &k->channels[channel];
    while (c->actors[place] != a->index)
        place++;
    int64_t seq = c->pulled[place]++;
    m = meet_find(k, c, seq);
    if (m < 0)
        m = meet_new(k, channel, seq);
    it->meet = m;
    struct meet *meet = &k->meets[m];
    meet->who[place].item = item;
    if (it->left > meet->left)
        meet->left = it->left;
    for (int i = 0; i < meet->nmembers; i++)
        if (i != place && meet->who[i].item >= 0) {
            const struct actor *b = &k->actors[meet->who[i].actor];
            const struct op *p = &b->s->ops[b->items[meet->who[i].item].op];
            if (!fits(o, p))
                misfit(k, a, o, b, p);
        }
}

void clock_meet_close(struct clock *k)
{
    for (int m = 0; m < k->room_meets; m++)
        free(k->meets[m].who);
    for (int c = 0; c < k->nchannels; c++) {
        free(k->channels[c].actors);
        free(k->channels[c].pulled);
    }
    free(k->meets);
    free(k->active);
    free(k->ends);
    free(k->channels);
}

/* ---- deadlock ---- */

/* The item with which a role waits for another one; -1. */
static int waits_in(const struct actor *a)
{
    for (int u = 0; u < a->nused; u++) {
        int head = a->head[a->used[u]];
        if (head >= 0 && a->items[head].state == ARRIVED)
            return head;
    }
    return -1;
}

static bool unfinished(const struct actor *a)
{
    return a->pending || a->blocked >= 0 || a->pc < a->end;
}

/* "waits in forward recv of tag 3 from stage 0"; the role that has not come. */
static int say_wait(const struct clock *k, const struct actor *a, int item, char *to, size_t size)
{
    const struct item *it = &a->items[item];
    const struct op *o = &a->s->ops[it->op];
    const struct meet *m = &k->meets[it->meet];
    char entry[128], peer[64];
    int missing = -1;

    for (int i = 0; i < m->nmembers && missing < 0; i++) {
        const struct member *w = &m->who[i];
        if (w->item < 0 || k->actors[w->actor].items[w->item].state == WAITING)
            missing = w->actor;
    }
    evaluation_op_in_words(a->s, it->op, it->iteration, entry, sizeof entry);
    words(k, missing, peer, sizeof peer);
    if (coll_is_message((enum coll_op)o->u.coll.op))
        snprintf(to, size, "waits in %s of tag %d %s %s", entry, o->u.coll.tag,
                 o->u.coll.op == COLL_SEND ? "to" : "from", peer);
    else
        snprintf(to, size, "waits in %s of group %s for %s", entry, sched_group(a->s, o)->name, peer);
    return missing;
}

void clock_meet_deadlock(struct clock *k)
{
    int a = 0;
    size_t at = 0;
    unsigned char *seen = calloc((size_t)k->n, 1);

    if (!seen)
        abort();
    k->failed = true;
    while (a < k->n && waits_in(&k->actors[a]) < 0)
        a++;
    for (const char *lead = ""; a < k->n; lead = ", which") {
        char who[64] = "", what[256];
        int item = waits_in(&k->actors[a]), next = k->n;
        if (!*lead)
            words(k, a, who, sizeof who);
        if (item >= 0)
            next = say_wait(k, &k->actors[a], item, what, sizeof what);
        else
            snprintf(what, sizeof what, unfinished(&k->actors[a]) ? "waits for its own streams" : "is done");
        int n = snprintf(k->why + at, k->why_size - at, "%s%s %s", lead, who, what);
        at += (size_t)n < k->why_size - at ? (size_t)n : k->why_size - at - 1;
        seen[a] = 1;
        a = next < k->n && seen[next] ? k->n : next;
    }
    free(seen);
}
