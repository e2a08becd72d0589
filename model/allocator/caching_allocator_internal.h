/* caching_allocator_internal.h -- blocks and pools, for caching_*.c only.
 *
 * A block is a piece of a segment: [addr, addr+size).  Neighbours in a segment are linked by prev and
 * next.  A block that is free and mapped is in its pool's `free` list, an unmapped one in `unmapped`. */
#ifndef DPX_CACHING_ALLOCATOR_INTERNAL_H
#define DPX_CACHING_ALLOCATOR_INTERNAL_H

#include "model/allocator/caching_allocator.h"

enum { NO_BLOCK = -1, NO_RANGE = -1, NO_SEGMENT = -1 };

/* No address is used twice; none lies above it, so that none wraps on a device of up to 2^60 bytes. */
#define CACHING_LAST_ADDR ((int64_t)1 << 62)

struct block {
    int64_t  addr, size, requested;
    int64_t  inserted;                  /* the pool's `lookups` when it became free */
    int32_t  prev, next;                /* neighbours; `next` links unused blocks */
    int32_t  range;                     /* of an expandable segment, or NO_RANGE */
    int32_t  events;                    /* recorded and not seen completed */
    uint32_t uses;                      /* bit s: record_stream() named stream s */
    uint8_t  stream;
    bool     small, allocated, mapped;
    bool     moved;                     /* caching_follow.c, and so is twin */
    int32_t  segment, twin;             /* segment: NO_SEGMENT in an expandable one */
};

/* Sorted by size, then address (free blocks), or by address alone (unmapped ones). */
struct entry { int64_t size, addr; int32_t block; };
struct run { struct entry *at; int n; int64_t size, addr; };      /* size and addr: its last entry's */
struct block_list { struct run *runs; int nruns, cap, n; };        /* n: entries in all */
struct spot { int run, at; };

struct block_pool { struct block_list free[2], unmapped[2]; };      /* of a stream; [1]: small */

/* Address space of an expandable segment. */
struct range { int64_t addr, size, page; };

/* From cudaMalloc, whether it is still there or not. */
struct segment { int64_t addr, size; uint8_t stream; bool small; };

struct pending { int64_t event; int32_t block; };
struct pending_queue { struct pending *at; int first, n, cap; int64_t recorded, completed; };

struct caching_follow;                  /* caching_follow.c */

struct caching_allocator {
    struct caching_options o;
    struct caching_stats   stats;
    int64_t capacity, used;             /* of the device, in multiples of 2 MiB */
    int64_t allowed;                    /* fraction * capacity; INT64_MAX: not set */
    int64_t next_addr, last_addr;       /* of what rises: ranges of expandable segments; of segments that fall */
    int64_t lookups[2];                 /* requests of a pool, where garbage is collected */
    int     nstreams;                   /* 1 + the highest stream seen */
    int     npending;                   /* events in all queues */
    bool    collects;                   /* garbage */
    uint32_t kept;                      /* bit s: nothing of stream s is given back */
    struct block *blocks; int nblocks, cap_blocks; int32_t unused;
    struct range *ranges; int nranges, cap_ranges;
    struct segment *segments; int nsegments, cap_segments;
    struct block_pool    pool[CACHING_STREAMS];
    struct pending_queue queue[CACHING_STREAMS];
    struct caching_follow *follow;      /* NULL: nobody asked */
};

/* ---- caching_list.c ---- */

/* The first entry whose key is not below (size, addr); what is there, NULL behind the last one; and the one after it.  A change of the
 * list ends the life of all. */
struct spot caching_list_find(const struct block_list *l, int64_t size, int64_t addr);
/* The first entry of at least `size`, and where it is; NULL: there is none. */
const struct entry *caching_list_least(const struct block_list *l, int64_t size, struct spot *at);
const struct entry *caching_list_at(const struct block_list *l, struct spot s);
struct spot caching_list_next(const struct block_list *l, struct spot s);
/* NULL: it is empty. */
const struct entry *caching_list_last(const struct block_list *l);
void caching_list_add(struct block_list *l, struct entry e);
void caching_list_take(struct block_list *l, struct spot at);
/* Another entry in the place of one. */
void caching_list_change(struct block_list *l, struct spot at, struct entry e);
/* Where the entry with this key is, which is there. */
struct spot caching_list_spot(const struct block_list *l, int64_t size, int64_t addr);
void caching_list_free(struct block_list *l);

/* ---- caching_blocks.c ---- */

/* Room for one more element of an array of n. */
void *caching_grown(void *array, int n, int *cap, unsigned long size);
/* Merges `other`, free and in its list, into its neighbour `into`, which is in none: the bytes added, 0 where
 * they cannot be one block. */
int64_t caching_block_merge(struct caching_allocator *a, int into, int other);
/* `bytes` of the device, or false. */
bool caching_take(struct caching_allocator *a, int64_t bytes);
void caching_give(struct caching_allocator *a, int64_t bytes);

/* What every request does, and is short: */

static inline void caching_meter_add(struct caching_meter *m, int64_t bytes)
{
    m->now += bytes;
    if (m->now > m->peak)
        m->peak = m->now;
}

static inline bool caching_block_split(const struct block *b) { return b->prev != NO_BLOCK || b->next != NO_BLOCK; }

static inline int caching_block_new(struct caching_allocator *a, int stream, bool small, int64_t addr, int64_t size)
{
    int i = a->unused;

    if (i != NO_BLOCK) {
        a->unused = a->blocks[i].next;
    } else {
        a->blocks = caching_grown(a->blocks, a->nblocks, &a->cap_blocks, sizeof *a->blocks);
        i = a->nblocks++;
    }
    a->blocks[i] = (struct block){ .addr = addr, .size = size, .prev = NO_BLOCK, .next = NO_BLOCK,
                                   .range = NO_RANGE, .segment = NO_SEGMENT, .stream = (uint8_t)stream, .small = small, .mapped = true };
    return i;
}

static inline void caching_block_drop(struct caching_allocator *a, int block)
{
    a->blocks[block].size = 0;
    a->blocks[block].next = a->unused;
    a->unused = block;
}

/* Puts `block` between two neighbours. */
static inline void caching_block_link(struct caching_allocator *a, int block, int prev, int next)
{
    a->blocks[block].prev = prev;
    a->blocks[block].next = next;
    if (prev != NO_BLOCK)
        a->blocks[prev].next = block;
    if (next != NO_BLOCK)
        a->blocks[next].prev = block;
}

/* Unmapped blocks have size 0 as a key: they are in the order of their addresses. */
static inline struct block_list *caching_list_of(struct caching_allocator *a, const struct block *b, int64_t *key)
{
    struct block_pool *p = &a->pool[b->stream];

    *key = b->mapped ? b->size : 0;
    return b->mapped ? &p->free[b->small] : &p->unmapped[b->small];
}

/* Into and out of the list of its pool that its state says. */
static inline void caching_block_insert(struct caching_allocator *a, int block)
{
    struct block *b = &a->blocks[block];
    int64_t key;
    struct block_list *l = caching_list_of(a, b, &key);

    caching_list_add(l, (struct entry){ key, b->addr, block });
    b->inserted = a->lookups[b->small];
}

static inline void caching_block_remove(struct caching_allocator *a, int block)
{
    int64_t key;
    struct block_list *l = caching_list_of(a, &a->blocks[block], &key);

    caching_list_take(l, caching_list_spot(l, key, a->blocks[block].addr));
}

/* ---- caching_follow.c ---- */

/* A request is served by the free block at this place of its list.  It got this block; NO_BLOCK: one that it gave back at once.  A block is
 * freed. */
void caching_follow_ties(struct caching_allocator *a, const struct block_list *l, struct spot at);
void caching_follow_request(struct caching_allocator *a, int block);
void caching_follow_release(struct caching_allocator *a, int block);
void caching_follow_free(struct caching_follow *f);         /* accepts NULL */

/* ---- caching_expandable.c ---- */

/* A free block of at least `size` by mapping pages, taken out of its list; NO_BLOCK: the device is full. */
int  caching_expand(struct caching_allocator *a, int stream, bool small, int64_t size);
/* Gives back the pages that lie wholly inside a free block. */
void caching_unmap(struct caching_allocator *a, int block);

#endif
