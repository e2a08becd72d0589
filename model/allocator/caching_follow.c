/* caching_follow.c -- when requests are made once more: from which of them on do they meet the state that they met before?
 *
 * Free blocks that touch are always one, so the state follows from the segments (or mapped pages) and the blocks that are handed out.
 * The first time it is written down where each request's block was, and after which request the device was asked last.  The second time
 * each block is compared with the one of the same request.  One segment may play the part of another one of its size: its twin, which is
 * chosen while nothing of either is handed out.  `moved` counts the blocks that are handed out now and lie elsewhere in their segment, or
 * in one that is not the twin.
 *
 * Behind the last request that the device was asked for, with no block moved and no more segments asked for, the states are the same but
 * for the addresses of twins.  These decide one thing, which of equally large blocks is taken: the first.  So ties are written down as
 * well, and those that are yet to come are gone through: the first of the twins must be that of the segment that gave the block, or both
 * these segments were free as a whole, and change twins.  Then all that follows is the same.
 *
 * Ages of free blocks (garbage collection) and events are more state than that: with them the answer is no. */
#include <stdlib.h>

#include "base/room.h"
#include "model/allocator/caching_allocator_internal.h"

/* Blocks that are as large as the one that is taken: kept at most, in all and of one tie. */
enum { MOST_OTHERS = 1 << 20, MOST_OF_TIE = 32 };

/* A request took a block of one segment, and each of these n had one as large, or so many had that they are not known; were they free as a
 * whole? */
struct other { int32_t segment; bool whole; };
struct tie { int64_t request, other0; int32_t taken, n; bool whole, many; };

void caching_follow_free(struct caching_follow *f)
{
    if (!f)
        return;
    free(f->of);
    free(f->ties);
    free(f->others);
    free(f->held);
    free(f->seg);
    free(f);
}

static bool has_events(const struct caching_allocator *a)
{
    for (int s = 0; s < a->nstreams; s++)
        if (a->queue[s].recorded > 0)
            return true;
    return false;
}

/* ---- the first time ---- */

void caching_allocator_watch(struct caching_allocator *a, const int *held, int n)
{
    struct caching_follow *f = room_new(1, sizeof *f);

    caching_follow_free(a->follow);
    a->follow = f;
    f->unknown = a->collects || has_events(a);
    f->allocated = a->stats.allocated.now;
    f->device_allocs = a->stats.device_allocs;
    f->device_frees = a->stats.device_frees;
    f->nheld = n;
    f->held = room_new((size_t)n + 1, sizeof *f->held);
    for (int i = 0; i < n; i++)
        f->held[i] = caching_place_of(a, held[i]);
}

/* Of the segment of a block that is free as large as the one that is taken. */
static void note_other(const struct caching_allocator *a, struct caching_follow *f, struct tie *t, int block)
{
    const struct block *b = &a->blocks[block];

    if (b->segment == t->taken)
        return;
    t->many |= t->n == MOST_OF_TIE;
    if (t->many)
        return;
    f->others = room_for(f->others, f->nothers, &f->cap_others, sizeof *f->others);
    f->others[f->nothers++] = (struct other){ b->segment, !caching_block_split(b) };
    t->n++;
}

void caching_follow_ties(struct caching_allocator *a, int block)
{
    struct caching_follow *f = a->follow;
    const struct block *b = &a->blocks[block];

    if (f->second || f->unknown)
        return;
    struct tie t = { .request = f->n, .other0 = f->nothers, .taken = b->segment, .whole = !caching_block_split(b) };
    for (int i = b->after; i != NO_BLOCK && a->blocks[i].size == b->size && !t.many; i = a->blocks[i].after)
        note_other(a, f, &t, i);
    if (t.n == 0)
        return;
    if (t.many)
        f->nothers = t.other0;
    f->unknown = f->nothers > MOST_OTHERS;
    f->ties = room_for(f->ties, f->nties, &f->cap_ties, sizeof *f->ties);
    f->ties[f->nties++] = t;
}

static void write_down(struct caching_allocator *a, struct caching_follow *f, int block)
{
    f->of = room_for(f->of, f->n, &f->room, sizeof *f->of);
    f->of[f->n++] = block == NO_BLOCK ? (struct caching_place){ 0, 0, NO_SEGMENT } : caching_place_of(a, block);
    if (a->stats.device_allocs != f->device_allocs)
        f->last = f->n;
    f->device_allocs = a->stats.device_allocs;
}

/* ---- the second time ---- */

/* s becomes the twin of t; the one of t before is that of the twin of s before.  All are of one size. */
static void make_twins(struct caching_follow *f, int32_t s, int32_t t)
{
    int32_t before = f->seg[s].twin, other = f->seg[t].twin_of;

    f->seg[other].twin = before;
    f->seg[before].twin_of = other;
    f->seg[s].twin = t;
    f->seg[t].twin_of = s;
}

static void hand_out(struct caching_allocator *a, struct caching_follow *f, int block, struct caching_place was)
{
    struct block *b = &a->blocks[block];
    int32_t s = b->segment, t = was.segment;

    a->aside[block].twin = s == NO_SEGMENT ? NO_SEGMENT : t;
    if (s == NO_SEGMENT || t == NO_SEGMENT) {        /* of an expandable segment, which is its own twin */
        b->moved = b->addr != was.addr || b->size != was.size;
    } else {
        const struct segment *now = &a->segments[s], *then = &a->segments[t];
        if (f->seg[s].live++ == 0 && f->seg[t].lived == 0 && now->size == then->size)
            make_twins(f, s, t);
        f->seg[t].lived++;
        b->moved = f->seg[s].twin != t || b->size != was.size || b->addr - now->addr != was.addr - then->addr;
    }
    f->moved += b->moved;
}

static int handed_out(const struct caching_allocator *a)
{
    int n = 0;

    for (int i = 0; i < a->nblocks; i++)
        n += a->blocks[i].size > 0 && a->blocks[i].allocated;
    return n;
}

bool caching_allocator_follow(struct caching_allocator *a, const int *held, int n)
{
    struct caching_follow *f = a->follow;
    size_t segments = (size_t)a->nsegments + 1;

    if (!f || f->unknown || has_events(a) || n != f->nheld || n != handed_out(a) || a->stats.allocated.now != f->allocated ||
        a->stats.device_frees != f->device_frees)
        return false;
    f->seg = room_new(segments, sizeof *f->seg);
    for (int32_t s = 0; s < a->nsegments; s++)
        f->seg[s].twin = f->seg[s].twin_of = s;
    for (int i = 0; i < n; i++)
        hand_out(a, f, held[i], f->held[i]);
    f->second = true;
    f->device_allocs = a->stats.device_allocs;
    return true;
}

/* Who is whose twin at a request that is yet to come; how many segments of each pool are not their own. */
struct twins { const struct caching_allocator *a; int32_t *of; int moved[CACHING_STREAMS][2]; };

static int64_t twins_addr(const struct twins *x, int32_t segment) { return x->a->segments[x->of[segment]].addr; }

static int *moved_beside(struct twins *x, int32_t segment)
{
    const struct segment *s = &x->a->segments[segment];

    return &x->moved[s->stream][s->small];
}

static void change_twins(struct twins *x, int32_t s, int32_t t)
{
    int32_t twin = x->of[s];
    int *moved = moved_beside(x, s);

    *moved -= (x->of[s] != s) + (x->of[t] != t);
    x->of[s] = x->of[t];
    x->of[t] = twin;
    *moved += (x->of[s] != s) + (x->of[t] != t);
}

/* Does a request with a tie take the same block, given the twins?  These change where it is as good as the same. */
static bool takes_same(struct twins *x, const struct tie *t, const struct other *others)
{
    const struct other *first = NULL;
    int64_t addr = twins_addr(x, t->taken);

    if (t->many)
        return *moved_beside(x, t->taken) == 0;
    for (int i = 0; i < t->n; i++)
        if (twins_addr(x, others[i].segment) < addr) {
            first = &others[i];
            addr = twins_addr(x, first->segment);
        }
    if (first)
        change_twins(x, t->taken, first->segment);
    return !first || (t->whole && first->whole);
}

/* Do all requests from here on take the same block? */
static bool take_same(const struct caching_allocator *a, struct caching_follow *f)
{
    struct twins x = { .a = a, .of = room_new((size_t)a->nsegments + 1, sizeof *x.of) };
    int64_t i = f->nties;
    bool same = true;

    for (int32_t s = 0; s < a->nsegments; s++)
        x.of[s] = f->seg[s].twin_of;
    for (int32_t s = 0; s < a->nsegments; s++)
        *moved_beside(&x, s) += x.of[s] != s;
    while (i > 0 && f->ties[i - 1].request >= f->at)
        i--;
    for (; same && i < f->nties; i++) {
        same = takes_same(&x, &f->ties[i], f->others + f->ties[i].other0);
        if (!same)                      /* and twice as far, so that they are not gone through at each request */
            f->patience = 2 * (f->ties[i].request + 1) - f->at;
    }
    free(x.of);
    return same;
}

bool caching_allocator_met(const struct caching_allocator *a)
{
    struct caching_follow *f = a->follow;

    return f && f->second && !f->unknown && f->moved == 0 && f->at >= f->last && f->at >= f->patience && take_same(a, f);
}

/* ---- both times ---- */

void caching_follow_other(struct caching_allocator *a, int block)
{
    struct caching_follow *f = a->follow;

    if (f->second)
        f->unknown |= f->at >= f->n || a->stats.device_allocs != f->device_allocs || a->stats.device_frees != f->device_frees;
    if (f->unknown)
        return;
    if (!f->second) {
        write_down(a, f, block);
        return;
    }
    struct caching_place was = f->of[f->at++];
    if (block != NO_BLOCK)
        hand_out(a, f, block, was);
}

void caching_follow_taken_back(struct caching_allocator *a, int block)
{
    struct caching_follow *f = a->follow;
    const struct block *b = &a->blocks[block];

    if (f->unknown)
        return;
    f->moved -= b->moved;
    if (a->aside[block].twin != NO_SEGMENT) {
        f->seg[b->segment].live--;
        f->seg[a->aside[block].twin].lived--;
    }
}
