/* caching_follow.c -- when requests are made once more: from which of them on do they meet the state that they met before?
 *
 * Free blocks that touch are always one, so the state follows from the segments (or mapped pages) and the blocks that are handed out.
 * The first time the address of each request's block is written down, and after which request the device was asked last.  The second time
 * each block is compared with the one of the same request: `moved` counts those that are handed out now and lie elsewhere.  Behind the last
 * request that the device was asked for, with no block moved and no more segments asked for, the states are the same, and so is all that
 * follows.
 *
 * Ages of free blocks (garbage collection) and events are more state than that: with them the answer is no. */
#include <stdlib.h>

#include "base/room.h"
#include "model/allocator/caching_allocator_internal.h"

struct caching_follow {
    bool unknown;                       /* no answer is to be expected any more */
    bool second;                        /* the requests are compared */
    int64_t *addr; int64_t n, room;     /* of each request's block */
    int64_t at, last;                   /* requests so far the second time; those up to the last that asked the device */
    int64_t moved;
    int64_t *held; int nheld;           /* addresses of the caller's blocks before the first time */
    int64_t allocated, device_allocs, device_frees;
};

void caching_follow_free(struct caching_follow *f)
{
    if (!f)
        return;
    free(f->addr);
    free(f->held);
    free(f);
}

static bool has_events(const struct caching_allocator *a)
{
    for (int s = 0; s < a->nstreams; s++)
        if (a->queue[s].recorded > 0)
            return true;
    return false;
}

void caching_allocator_watch(struct caching_allocator *a, const int *held, int n)
{
    struct caching_follow *f = room_new(1, sizeof *f);

    caching_follow_free(a->follow);
    a->follow = f;
    f->unknown = a->collects;
    f->allocated = a->stats.allocated.now;
    f->device_allocs = a->stats.device_allocs;
    f->device_frees = a->stats.device_frees;
    f->nheld = n;
    f->held = room_new((size_t)n + 1, sizeof *f->held);
    for (int i = 0; i < n; i++)
        f->held[i] = a->blocks[held[i]].addr;
}

bool caching_allocator_follow(struct caching_allocator *a, const int *held, int n)
{
    struct caching_follow *f = a->follow;

    if (!f || f->unknown || has_events(a) || n != f->nheld || a->stats.allocated.now != f->allocated ||
        a->stats.device_frees != f->device_frees)
        return false;
    for (int i = 0; i < n; i++) {
        a->blocks[held[i]].moved = a->blocks[held[i]].addr != f->held[i];
        f->moved += a->blocks[held[i]].moved;
    }
    f->second = true;
    f->device_allocs = a->stats.device_allocs;
    return true;
}

bool caching_allocator_met(const struct caching_allocator *a)
{
    const struct caching_follow *f = a->follow;

    return f && f->second && f->moved == 0 && f->at >= f->last && a->stats.device_allocs == f->device_allocs &&
           a->stats.device_frees == f->device_frees;
}

void caching_follow_request(struct caching_allocator *a, int block)
{
    struct caching_follow *f = a->follow;
    int64_t addr = block == NO_BLOCK ? 0 : a->blocks[block].addr;

    if (!f->second) {
        if (f->n == f->room)
            f->addr = room_for(f->addr, f->n, &f->room, sizeof *f->addr);
        f->addr[f->n++] = addr;
        if (a->stats.device_allocs != f->device_allocs)
            f->last = f->n;
        f->device_allocs = a->stats.device_allocs;
        return;
    }
    bool moved = f->at >= f->n || f->addr[f->at] != addr;
    f->at++;
    if (block != NO_BLOCK) {
        a->blocks[block].moved = moved;
        f->moved += moved;
    }
}

void caching_follow_release(struct caching_allocator *a, int block)
{
    struct caching_follow *f = a->follow;

    if (f->second && a->blocks[block].moved)
        f->moved--;
    a->blocks[block].moved = false;
}
