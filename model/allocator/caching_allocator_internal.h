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
    int32_t  before, after;             /* in that class */
    int32_t  range;                     /* of an expandable segment, or NO_RANGE */
    int32_t  events;                    /* recorded and not seen completed */
    uint32_t uses;                      /* bit s: record_stream() named stream s */
    uint16_t class;                     /* in the list that it is in */
    uint8_t  stream;
    bool     small, allocated, mapped;
    bool     moved;                     /* caching_follow.c, and so is twin */
    int32_t  segment, twin;             /* segment: NO_SEGMENT in an expandable one */
    int32_t  number;                    /* in the state that was last written (caching_state.c) */
};

/* Classes of sizes: those of a multiple of 512 bytes from 2^k on, up to 2^(k+1), in so many parts. */
enum { CACHING_PARTS = 8, CACHING_CLASSES = 448 };

/* Sorted by size, then address (free blocks), or by address alone (unmapped ones, all in class 0).  Zeros: empty. */
struct block_list {
    uint64_t any[CACHING_CLASSES / 64];         /* bit c: class c has blocks, and then it has these: */
    int32_t  first[CACHING_CLASSES];
    int32_t  latest[CACHING_CLASSES];           /* where something was added last, or beside it */
    int32_t  n;
};

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

/* Each returns a block, or NO_BLOCK: the first one; the first of at least `size` > 0 bytes; the one behind another one; the last one. */
int  caching_list_first(const struct block_list *l);
int  caching_list_least(const struct caching_allocator *a, const struct block_list *l, int64_t size);
int  caching_list_next(const struct caching_allocator *a, const struct block_list *l, int block);
int  caching_list_last(const struct caching_allocator *a, const struct block_list *l);
void caching_list_add(struct caching_allocator *a, struct block_list *l, int block);
void caching_list_take(struct caching_allocator *a, struct block_list *l, int block);
/* A block of the list becomes its last bytes but `size`. */
void caching_list_cut(struct caching_allocator *a, struct block_list *l, int block, int64_t size);

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

static inline struct block_list *caching_list_of(struct caching_allocator *a, const struct block *b)
{
    struct block_pool *p = &a->pool[b->stream];

    return b->mapped ? &p->free[b->small] : &p->unmapped[b->small];
}

/* Into and out of the list of its pool that its state says. */
static inline void caching_block_insert(struct caching_allocator *a, int block)
{
    struct block *b = &a->blocks[block];

    caching_list_add(a, caching_list_of(a, b), block);
    b->inserted = a->lookups[b->small];
}

static inline void caching_block_remove(struct caching_allocator *a, int block) { caching_list_take(a, caching_list_of(a, &a->blocks[block]), block); }

/* ---- caching_follow.c ---- */

/* A request is served by this free block, and the one after it is as large.  It got this block; NO_BLOCK: one that it gave back at once.  A
 * block is freed. */
void caching_follow_ties(struct caching_allocator *a, int block);
void caching_follow_request(struct caching_allocator *a, int block);
void caching_follow_release(struct caching_allocator *a, int block);
void caching_follow_free(struct caching_follow *f);         /* accepts NULL */

/* ---- caching_expandable.c ---- */

/* A free block of at least `size` by mapping pages, taken out of its list; NO_BLOCK: the device is full. */
int  caching_expand(struct caching_allocator *a, int stream, bool small, int64_t size);
/* Gives back the pages that lie wholly inside a free block. */
void caching_unmap(struct caching_allocator *a, int block);

#endif
