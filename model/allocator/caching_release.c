/* caching_release.c -- free segments go back to the device: when it is full, when the cache is emptied, or by age (garbage collection). */
#include <assert.h>
#include <stdlib.h>

#include "base/room.h"
#include "model/allocator/caching_list.h"

static void release_segment(struct caching_allocator *a, int block)
{
    caching_block_remove(a, block);
    caching_give(a, a->blocks[block].size);
    a->stats.segments--;
    caching_block_drop(a, block);
}

static bool is_segment(const struct block *b) { return b->range == NO_RANGE && !caching_block_split(b); }

static void release_list(struct caching_allocator *a, struct block_list *l)
{
    int nexpandable = 0, n = 0;

    for (int at = caching_list_first(l); at != NO_BLOCK; at = caching_list_next(a, l, at))
        n++;
    int32_t *expandable = room_new((size_t)n, sizeof *expandable);
    int32_t *all = room_new((size_t)n, sizeof *all);
    for (int i = 0, at = caching_list_first(l); i < n; i++, at = caching_list_next(a, l, at))
        all[i] = at;
    for (int i = 0; i < n; i++)
        if (is_segment(&a->blocks[all[i]]))
            release_segment(a, all[i]);
        else if (a->blocks[all[i]].range != NO_RANGE)
            expandable[nexpandable++] = all[i];
    for (int i = 0; i < nexpandable; i++)
        caching_unmap(a, expandable[i]);
    free(all);
    free(expandable);
}

void caching_allocator_empty_cache(struct caching_allocator *a)
{
    caching_synchronize(a);
    for (int small = 0; small < 2; small++)
        for (int s = 0; s < a->nstreams; s++)
            if (!(a->kept >> s & 1))
                release_list(a, &a->pool[s][small]->free);
}

void caching_allocator_keep(struct caching_allocator *a, int stream)
{
    assert(stream >= 0 && stream < CACHING_STREAMS);
    a->kept |= 1u << stream;
}

/* With max_split_size: enough oversize blocks of the stream for this request, the largest first; none of an expandable segment
 * (release_available_cached_blocks()). */
bool caching_release_available(struct caching_allocator *a, int stream, bool small, int64_t size)
{
    struct block_list *l = &a->pool[stream][small]->free;
    int64_t key = size > a->o.max_split_size ? size : a->o.max_split_size, released = 0;

    if (a->o.max_split_size == INT64_MAX || a->o.expandable_segments || a->kept >> stream & 1)
        return false;
    int b = caching_list_least(a, l, key);
    if (b != NO_BLOCK) {
        release_segment(a, b);
        return true;
    }
    while (released < key && (b = caching_list_last(a, l)) != NO_BLOCK && a->blocks[b].size >= a->o.max_split_size) {
        released += a->blocks[b].size;
        release_segment(a, b);
    }
    return released >= key;
}

/* ---- garbage collection ---- */

/* Unsplit free blocks of the large pool: how many, and in how many requests they were not used. */
struct ages { int64_t total; int n; };

static int64_t age(const struct caching_allocator *a, int block) { return a->lookups[0] - a->aside[block].inserted; }

static struct ages ages(const struct caching_allocator *a)
{
    struct ages sum = { 0 };

    for (int s = 0; s < a->nstreams; s++) {
        if (a->kept >> s & 1)
            continue;
        const struct block_list *l = &a->pool[s][0]->free;
        for (int b = caching_list_first(l); b != NO_BLOCK; b = caching_list_next(a, l, b))
            if (is_segment(&a->blocks[b])) {
                sum.total += age(a, b);
                sum.n++;
            }
    }
    return sum;
}

/* Releases what is at least as old as `oldest`; the bytes. */
static int64_t collect_older(struct caching_allocator *a, double oldest, struct ages *left)
{
    int64_t bytes = 0;

    for (int s = 0; s < a->nstreams; s++) {
        struct block_list *l = &a->pool[s][0]->free;
        for (int b = a->kept >> s & 1 ? NO_BLOCK : caching_list_first(l), next; b != NO_BLOCK; b = next) {
            next = caching_list_next(a, l, b);
            if (!is_segment(&a->blocks[b]) || (double)age(a, b) < oldest)
                continue;
            bytes += a->blocks[b].size;
            left->total -= age(a, b);
            left->n--;
            release_segment(a, b);
        }
    }
    return bytes;
}

void caching_collect(struct caching_allocator *a)
{
    int64_t threshold = (int64_t)(a->o.garbage_collection_threshold * (double)a->allowed);
    int64_t target = a->stats.reserved.now - threshold, reclaimed = 0;
    struct ages left = ages(a);

    while (reclaimed < target && left.n > 0) {
        int64_t bytes = collect_older(a, (double)left.total / left.n, &left);
        if (bytes == 0)
            break;
        reclaimed += bytes;
    }
}
