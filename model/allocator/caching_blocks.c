/* caching_blocks.c -- the blocks of the caching allocator become one, memory comes from the device and goes back, and what always holds. */
#include <stdlib.h>

#include "base/dtype.h"
#include "model/allocator/caching_list.h"

enum { MAP_GRAIN = 2 << 20 };           /* the driver hands out memory in multiples of it */

void *caching_grown(void *array, int n, int *cap, unsigned long size)
{
    if (n < *cap)
        return array;
    *cap = *cap ? 2 * *cap : 64;
    array = realloc(array, (size_t)*cap * size);
    if (!array)
        abort();
    return array;
}

int caching_block_more(struct caching_allocator *a)
{
    a->blocks = caching_grown(a->blocks, a->nblocks, &a->cap_blocks, sizeof *a->blocks);
    a->aside = caching_grown(a->aside, a->nblocks, &a->cap_aside, sizeof *a->aside);
    a->aside[a->nblocks] = (struct aside){ 0 };
    return a->nblocks++;
}

bool caching_take(struct caching_allocator *a, int64_t bytes)
{
    int64_t real = round_up(bytes, MAP_GRAIN);

    if (real > a->capacity - a->used)
        return false;
    a->used += real;
    caching_meter_add(&a->stats.reserved, bytes);
    a->stats.device_allocs++;
    return true;
}

void caching_give(struct caching_allocator *a, int64_t bytes)
{
    a->used -= round_up(bytes, MAP_GRAIN);
    caching_meter_add(&a->stats.reserved, -bytes);
    a->stats.device_frees++;
}

int64_t caching_block_merge(struct caching_allocator *a, int into, int other)
{
    if (other == NO_BLOCK)
        return 0;
    struct block *b = &a->blocks[into], *o = &a->blocks[other];
    if (o->allocated || a->aside[other].events > 0 || o->mapped != b->mapped)
        return 0;
    caching_block_remove(a, other);
    if (b->prev == other) {
        b->addr = o->addr;
        caching_block_link(a, into, o->prev, b->next);
    } else {
        caching_block_link(a, into, b->prev, o->next);
    }
    int64_t bytes = o->size;
    b->size += bytes;
    caching_block_drop(a, other);
    return bytes;
}

/* ---- invariants ---- */

/* *n: and so many more are listed. */
static bool list_is_sound(const struct caching_allocator *a, const struct block_list *l, bool mapped, int *n)
{
    const struct block *before = NULL;

    for (int i = caching_list_first(l); i != NO_BLOCK; i = caching_list_next(a, l, i)) {
        const struct block *b = &a->blocks[i];
        if (b->allocated || a->aside[i].events || !b->listed || b->mapped != mapped)
            return false;
        if (before && (mapped && before->size != b->size ? before->size > b->size : before->addr >= b->addr))
            return false;
        before = b;
        ++*n;
    }
    return true;
}

bool caching_allocator_check(const struct caching_allocator *a)
{
    int64_t mapped = 0, allocated = 0, active = 0, split = 0;
    int listed = 0, n = 0;

    for (int i = 0; i < a->nblocks; i++) {
        const struct block *b = &a->blocks[i];
        if (b->size == 0)
            continue;                   /* unused */
        if (b->next != NO_BLOCK && (a->blocks[b->next].prev != i || a->blocks[b->next].addr != b->addr + b->size))
            return false;
        mapped += b->mapped ? b->size : 0;
        listed += b->listed;
        allocated += b->allocated ? b->size : 0;
        bool events = a->aside[i].events > 0;
        active += b->allocated || events ? b->size : 0;
        split += !b->allocated && !events && b->range == NO_RANGE && caching_block_split(b) ? b->size : 0;
    }
    for (int s = 0; s < a->nstreams; s++)
        for (int small = 0; small < 2; small++)
            if (!list_is_sound(a, &a->pool[s][small]->free, true, &n) ||
                (a->pool[s][small]->unmapped && !list_is_sound(a, a->pool[s][small]->unmapped, false, &n)))
                return false;
    return n == listed && mapped == a->stats.reserved.now && allocated == a->stats.allocated.now &&
           active == a->stats.active.now && split == a->stats.inactive_split.now;
}
