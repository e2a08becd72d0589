/* caching_expandable.c -- expandable segments: an address range of 9/8 of the device for each stream and
 * pool, of which pages are mapped as they are needed and given back only when the device is full. */
#include <assert.h>

#include "base/dtype.h"
#include "model/allocator/caching_list.h"

enum { SMALL_PAGE = 2 << 20 };

static bool is_free(const struct caching_allocator *a, int block)
{
    return block != NO_BLOCK && !a->blocks[block].allocated && a->aside[block].events == 0;
}

/* Are there `size` bytes, mapped or not, from this block on? */
static bool has_room(const struct caching_allocator *a, int block, int64_t size)
{
    int64_t bytes = 0;

    for (int b = block; bytes < size && is_free(a, b); b = a->blocks[b].next)
        bytes += a->blocks[b].size;
    return bytes >= size;
}

/* NO_BLOCK: no addresses are left. */
static int reserve_range(struct caching_allocator *a, int stream, bool small)
{
    if (a->next_addr > CACHING_LAST_ADDR)
        return NO_BLOCK;
    int64_t page = small ? SMALL_PAGE : a->o.large_segment_size;
    int64_t size = round_up(a->capacity + a->capacity / 8, page);
    int b = caching_block_new(a, a->pool[stream][small], a->next_addr, size);

    a->ranges = caching_grown(a->ranges, a->nranges, &a->cap_ranges, sizeof *a->ranges);
    a->ranges[a->nranges] = (struct range){ a->next_addr, size, page };
    a->next_addr += size;
    a->blocks[b].range = a->nranges++;
    a->blocks[b].mapped = false;
    caching_block_insert(a, b);
    return b;
}

/* The lowest place with room for `size` bytes: an unmapped block, or the free one before it. */
static int find_place(struct caching_allocator *a, int stream, bool small, int64_t size)
{
    const struct block_list *l = a->pool[stream][small]->unmapped;

    for (int at = caching_list_first(l); at != NO_BLOCK; at = caching_list_next(a, l, at)) {
        int b = is_free(a, a->blocks[at].prev) ? a->blocks[at].prev : at;
        if (has_room(a, b, size))
            return b;
    }
    return reserve_range(a, stream, small);
}

/* Maps whole pages for the first `size` bytes of an unmapped block and puts it, merged, among the free. */
static bool map(struct caching_allocator *a, int block, int64_t size)
{
    struct block *b = &a->blocks[block];
    int64_t bytes = round_up(size, a->ranges[b->range].page);

    if (!caching_take(a, bytes))
        return false;
    caching_block_remove(a, block);
    b->mapped = true;
    if (bytes < b->size) {
        int rest = caching_block_new(a, b->pool, b->addr + bytes, b->size - bytes);
        b = &a->blocks[block];
        a->blocks[rest].range = b->range;
        a->blocks[rest].mapped = false;
        caching_block_link(a, rest, block, b->next);
        caching_block_insert(a, rest);
        b->size = bytes;
    }
    caching_block_merge(a, block, b->prev);
    caching_block_merge(a, block, b->next);
    caching_block_insert(a, block);
    return true;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int caching_expand(struct caching_allocator *a, int stream, bool small, int64_t size)
{
    int b = find_place(a, stream, small, size);

    if (b == NO_BLOCK)
        return NO_BLOCK;
    if (!a->blocks[b].mapped && !map(a, b, least(a->blocks[b].size, size)))
        return NO_BLOCK;
    while (a->blocks[b].size < size) {
        int next = a->blocks[b].next;
        if (!map(a, next, least(size - a->blocks[b].size, a->blocks[next].size)))
            return NO_BLOCK;
        b = next;                       /* it took in the block before it */
    }
    caching_block_remove(a, b);
    return b;
}

/* A part of `block` that stays mapped becomes a free block of its own. */
static void leave_mapped(struct caching_allocator *a, int block, int64_t addr, int64_t size, int prev, int next)
{
    int part = caching_block_new(a, a->blocks[block].pool, addr, size);

    a->blocks[part].range = a->blocks[block].range;
    caching_block_link(a, part, prev, next);
    caching_block_insert(a, part);
}

void caching_unmap(struct caching_allocator *a, int block)
{
    struct block b = a->blocks[block];
    const struct range *r = &a->ranges[b.range];
    int64_t from = r->addr + round_up(b.addr - r->addr, r->page);
    int64_t to = b.addr + b.size - (b.addr + b.size - r->addr) % r->page;

    assert(b.range != NO_RANGE && b.mapped);
    if (from >= to)
        return;
    caching_block_remove(a, block);
    if (from > b.addr)
        leave_mapped(a, block, b.addr, from - b.addr, b.prev, block);
    if (to < b.addr + b.size)
        leave_mapped(a, block, to, b.addr + b.size - to, block, b.next);
    a->blocks[block].addr = from;
    a->blocks[block].size = to - from;
    a->blocks[block].mapped = false;
    caching_block_merge(a, block, a->blocks[block].prev);
    caching_block_merge(a, block, a->blocks[block].next);
    caching_give(a, to - from);
    if (caching_block_split(&a->blocks[block]))
        caching_block_insert(a, block);
    else
        caching_block_drop(a, block);   /* the whole range is unmapped: the segment is gone */
}
