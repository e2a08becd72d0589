/* caching_blocks.c -- the blocks of the caching allocator, in and out of the lists of the free ones. */
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

void caching_meter_add(struct caching_meter *m, int64_t bytes)
{
    m->now += bytes;
    if (m->now > m->peak)
        m->peak = m->now;
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

/* ---- blocks ---- */

int caching_block_new(struct caching_allocator *a, int stream, bool small, int64_t addr, int64_t size)
{
    int i = a->unused;

    if (i != NO_BLOCK) {
        a->unused = a->blocks[i].next;
    } else {
        a->blocks = caching_grown(a->blocks, a->nblocks, &a->cap_blocks, sizeof *a->blocks);
        i = a->nblocks++;
    }
    a->blocks[i] = (struct block){ .addr = addr, .size = size, .prev = NO_BLOCK, .next = NO_BLOCK,
                                   .range = NO_RANGE, .stream = (uint8_t)stream, .small = small, .mapped = true };
    return i;
}

void caching_block_drop(struct caching_allocator *a, int block)
{
    a->blocks[block].size = 0;
    a->blocks[block].next = a->unused;
    a->unused = block;
}

void caching_block_link(struct caching_allocator *a, int block, int prev, int next)
{
    a->blocks[block].prev = prev;
    a->blocks[block].next = next;
    if (prev != NO_BLOCK)
        a->blocks[prev].next = block;
    if (next != NO_BLOCK)
        a->blocks[next].prev = block;
}

/* ---- lists ---- */

/* Unmapped blocks have size 0 as a key: they are in the order of their addresses. */
static struct block_list *list_of(struct caching_allocator *a, const struct block *b, int64_t *key)
{
    struct block_pool *p = &a->pool[b->stream];

    *key = b->mapped ? b->size : 0;
    return b->mapped ? &p->free[b->small] : &p->unmapped[b->small];
}

void caching_block_insert(struct caching_allocator *a, int block)
{
    struct block *b = &a->blocks[block];
    int64_t key;
    struct block_list *l = list_of(a, b, &key);

    caching_list_add(l, (struct entry){ key, b->addr, block });
    b->inserted = a->lookups[b->small];
}

void caching_block_remove(struct caching_allocator *a, int block)
{
    const struct block *b = &a->blocks[block];
    int64_t key;
    struct block_list *l = list_of(a, b, &key);

    caching_list_drop(l, key, b->addr);
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
