/* caching_state.c -- what decides how the caching allocator answers from now on, as numbers. */
#include <stdlib.h>

#include "base/sort.h"
#include "model/allocator/caching_allocator_internal.h"

enum { OF_BLOCK = 3, OF_RANGE = 3, OF_ALL = 6 };

static int by_address(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Events are counted without end, and so are lookups. */
static bool is_counting(const struct caching_allocator *a)
{
    for (int s = 0; s < a->nstreams; s++)
        if (a->queue[s].n > 0)
            return true;
    return a->o.garbage_collection_threshold > 0 && a->o.fraction < 1;
}

static int64_t kind_of(const struct block *b)
{
    return (int64_t)b->stream | (int64_t)b->small << 8 | (int64_t)b->allocated << 9 | (int64_t)b->mapped << 10 |
           (int64_t)(b->prev != NO_BLOCK) << 11 | (int64_t)(b->range + 1) << 12;
}

int64_t caching_allocator_state(const struct caching_allocator *a, int64_t *out)
{
    int64_t n = OF_ALL + (int64_t)a->nranges * OF_RANGE, blocks = n;

    if (is_counting(a))
        return -1;
    for (int i = 0; i < a->nblocks; i++) {
        const struct block *b = &a->blocks[i];
        if (b->size == 0)               /* no block */
            continue;
        if (b->events > 0 || b->uses)
            return -1;
        if (out) {
            out[n] = b->addr;
            out[n + 1] = b->size;
            out[n + 2] = kind_of(b);
        }
        n += OF_BLOCK;
    }
    if (!out)
        return n;
    const int64_t all[OF_ALL] = { a->used, a->next_addr, a->last_addr, a->nstreams, (int64_t)a->kept, a->stats.requested.now };
    for (int i = 0; i < OF_ALL; i++)
        out[i] = all[i];
    for (int i = 0; i < a->nranges; i++) {
        out[OF_ALL + i * OF_RANGE] = a->ranges[i].addr;
        out[OF_ALL + i * OF_RANGE + 1] = a->ranges[i].size;
        out[OF_ALL + i * OF_RANGE + 2] = a->ranges[i].page;
    }
    sort_stable(out + blocks, (size_t)(n - blocks) / OF_BLOCK, OF_BLOCK * sizeof *out, by_address);
    return n;
}

int64_t caching_allocator_address(const struct caching_allocator *a, int block) { return a->blocks[block].addr; }
