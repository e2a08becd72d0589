/* caching_state.c -- what decides how the caching allocator answers from now on, as numbers: the blocks of each segment or range, in the order
 * of addresses, and the events that blocks wait for, by how long ago they were recorded.
 *
 * Addresses decide by their order alone, which of equally large blocks is taken; and a new segment lies below all (or above all) that were
 * there before.  So a segment counts by its place in that order: one that was given back and asked for again leaves the state that it found. */
#include <stdlib.h>

#include "base/room.h"
#include "base/sort.h"
#include "model/allocator/caching_allocator_internal.h"

enum { OF_BLOCK = 3, OF_RANGE = 2, OF_ALL = 4, OF_QUEUE = 2, OF_EVENT = 2 };

struct head { int64_t addr; int block; };

static int by_address(const void *a, const void *b)
{
    const struct head *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool is_block(const struct block *b) { return b->size > 0; }

/* Free blocks get older with each lookup. */
static bool is_counting(const struct caching_allocator *a) { return a->o.garbage_collection_threshold > 0 && a->o.fraction < 1; }

static int64_t kind_of(const struct block *b)
{
    return (int64_t)b->pool->stream | (int64_t)b->pool->small << 8 | (int64_t)b->allocated << 9 | (int64_t)b->mapped << 10 |
           (int64_t)(b->prev != NO_BLOCK) << 11 | (int64_t)(b->range + 1) << 12;
}

/* The first block of each segment or range, sorted: *n of them.  free() them. */
static struct head *heads_of(const struct caching_allocator *a, size_t *n)
{
    struct head *heads = room_new((size_t)a->nblocks + 1, sizeof *heads);

    *n = 0;
    for (int i = 0; i < a->nblocks; i++)
        if (is_block(&a->blocks[i]) && a->blocks[i].prev == NO_BLOCK)
            heads[(*n)++] = (struct head){ a->blocks[i].addr, i };
    sort_stable(heads, *n, sizeof *heads, by_address);
    return heads;
}

void caching_allocator_each(const struct caching_allocator *a, void (*take)(void *to, const struct caching_piece *p), void *to)
{
    size_t n;
    struct head *heads = heads_of(a, &n);

    for (size_t h = 0; h < n; h++)
        for (int i = heads[h].block; i != NO_BLOCK; i = a->blocks[i].next) {
            const struct block *b = &a->blocks[i];
            bool held = b->allocated || a->aside[i].events > 0;
            struct caching_piece p = { heads[h].addr, b->addr, b->size, held ? b->requested : 0, b->pool->stream, b->pool->small, b->allocated,
                                       !b->allocated && a->aside[i].events > 0 };
            if (b->mapped)
                take(to, &p);
        }
    free(heads);
}

/* And numbers them in that order. */
static int64_t *put_blocks(struct caching_allocator *a, int64_t *out)
{
    size_t n;
    struct head *heads = heads_of(a, &n);
    int number = 0;

    for (size_t h = 0; h < n; h++)
        for (int i = heads[h].block; i != NO_BLOCK; i = a->blocks[i].next) {
            const struct block *b = &a->blocks[i];
            const int64_t of[OF_BLOCK] = { b->size, kind_of(b), a->aside[i].uses };
            a->aside[i].number = number++;
            for (int k = 0; k < OF_BLOCK; k++)
                *out++ = of[k];
        }
    free(heads);
    return out;
}

static int64_t *put_queue(const struct caching_allocator *a, const struct pending_queue *q, int64_t *out)
{
    *out++ = q->n;
    *out++ = q->completed - q->recorded;
    for (int i = 0; i < q->n; i++) {
        const struct pending *p = &q->at[q->first + i];
        *out++ = p->event - q->recorded;
        *out++ = a->aside[p->block].number;
    }
    return out;
}

int64_t caching_allocator_state(struct caching_allocator *a, int64_t *out)
{
    int64_t n = OF_ALL + (int64_t)a->nranges * OF_RANGE + (int64_t)a->nstreams * OF_QUEUE + (int64_t)a->npending * OF_EVENT;

    if (is_counting(a))
        return -1;
    for (int i = 0; i < a->nblocks; i++)
        n += is_block(&a->blocks[i]) ? OF_BLOCK : 0;
    if (!out)
        return n;
    const int64_t all[OF_ALL] = { a->used, a->nstreams, (int64_t)a->kept, a->stats.requested.now };
    for (int i = 0; i < OF_ALL; i++)
        *out++ = all[i];
    for (int i = 0; i < a->nranges; i++) {
        *out++ = a->ranges[i].size;
        *out++ = a->ranges[i].page;
    }
    out = put_blocks(a, out);
    for (int s = 0; s < a->nstreams; s++)
        out = put_queue(a, &a->queue[s], out);
    return n;
}

int caching_allocator_number(const struct caching_allocator *a, int block) { return a->aside[block].number; }

int64_t caching_allocator_address(const struct caching_allocator *a, int block) { return a->blocks[block].addr; }
