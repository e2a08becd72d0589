/* caching_blocks.c -- the blocks of the caching allocator become one, and memory comes from the device and goes back. */
#include <stdlib.h>

#include "base/dtype.h"
#include "model/allocator/caching_allocator_internal.h"

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
    if (o->allocated || o->events > 0 || o->mapped != b->mapped)
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
