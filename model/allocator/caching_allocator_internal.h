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
    struct block_pool *pool;
    int32_t  prev, next;                /* neighbours; `next` links unused blocks */
    int32_t  before, after;             /* in that class */
    int32_t  range;                     /* of an expandable segment, or NO_RANGE */
    int32_t  segment;                   /* NO_SEGMENT in an expandable one */
    uint16_t class;                     /* in the list that it is in */
    bool     allocated, mapped;
    bool     listed;                    /* in a list of its pool: not allocated, and no event pending */
    bool     used;                      /* on another stream: some bit of `uses` */
    bool     moved;                     /* caching_follow.c, and so is twin */
};

_Static_assert(sizeof(struct block) == 64, "a block is a line of the cache");

/* What few requests ask of a block. */
struct aside {
    uint32_t uses;                      /* bit s: record_stream() named stream s */
    int32_t  events;                    /* recorded and not seen completed; both are 0 of an unused block */
    int32_t  number;                    /* in the state that was last written (caching_state.c) */
    int32_t  twin;
    int64_t  inserted;                  /* where garbage is collected: the pool's `lookups` when it became free */
};

/* Classes of sizes: those of a multiple of 512 bytes from 2^k on, up to 2^(k+1), in so many parts. */
enum { CACHING_PARTS = 8, CACHING_CLASSES = 448 };

/* Sorted by size, then address (free blocks), or by address alone (unmapped ones, all in class 0).  Empty: any[] is 0. */
struct block_list {
    uint64_t any[CACHING_CLASSES / 64];         /* bit c: class c has blocks, and then it has these: */
    struct { int32_t first, latest; } of[CACHING_CLASSES];      /* latest: where something was added last, or beside it */
};

struct block_pool {
    struct block_list free, *unmapped;  /* unmapped: of expandable segments, else NULL */
    int64_t least_rest, most_cut;       /* a block is cut for less than most_cut, and where so much is left of it */
    uint8_t stream;
    bool    small;
};

/* Address space of an expandable segment. */
struct range { int64_t addr, size, page; };

/* From cudaMalloc, whether it is still there or not. */
struct segment { int64_t addr, size; uint8_t stream; bool small; };

struct pending { int64_t event; int32_t block; };
struct pending_queue { struct pending *at; int first, n, cap; int64_t recorded, completed; };

/* Where a request's block is. */
struct caching_place { int64_t addr, size; int32_t segment; };

/* Of a segment its twin of the first time, and whose twin it is; blocks of it that are handed out, and that were then of it. */
struct caching_twin { int32_t twin, twin_of, live, lived; };

/* Of caching_follow.c, which says what it is. */
struct caching_follow {
    bool unknown;                       /* no answer is to be expected any more */
    bool second;                        /* the requests are compared */
    struct caching_place *of; int64_t n, room;  /* each request's block */
    struct tie *ties; int64_t nties, cap_ties;
    struct other *others; int64_t nothers, cap_others;
    int64_t at, last;                   /* requests so far the second time; those up to the last that asked the device */
    int64_t moved;
    struct caching_place *held; int nheld;      /* the caller's blocks before the first time */
    int64_t allocated, device_allocs, device_frees;
    struct caching_twin *seg;           /* the second time: of each segment */
    int64_t patience;                   /* the ties are not gone through before this request */
};

struct caching_allocator {
    struct caching_options o;
    struct caching_stats   stats;
    int64_t capacity, used;             /* of the device, in multiples of 2 MiB */
    int64_t allowed;                    /* fraction * capacity; INT64_MAX: not set */
    int64_t next_addr, last_addr;       /* of what rises: ranges of expandable segments; of segments that fall */
    int64_t lookups[2];                 /* requests of a pool, where garbage is collected */
    int     nstreams;                   /* 1 + the highest stream seen */
    int     npending;                   /* events in all queues */
    bool    completes;                  /* some may be done that were not when these were looked at last */
    bool    collects;                   /* garbage */
    bool    plain;                      /* options are those of torch by default, as far as a free block's choice goes */
    uint32_t kept;                      /* bit s: nothing of stream s is given back */
    struct block *blocks; int nblocks, cap_blocks; int32_t unused;
    struct aside *aside; int cap_aside; /* of each block */
    struct range *ranges; int nranges, cap_ranges;
    struct segment *segments; int nsegments, cap_segments;
    struct block_pool   *pool[CACHING_STREAMS][2];      /* [1]: small; NULL from nstreams on */
    struct pending_queue queue[CACHING_STREAMS];
    struct caching_follow *follow;      /* NULL: nobody asked */
};

/* ---- caching_allocator.c ---- */

/* The host waits for all streams. */
void caching_synchronize(struct caching_allocator *a);

/* ---- caching_release.c ---- */

/* With max_split_size: enough oversize blocks of the stream for this request go back. */
bool caching_release_available(struct caching_allocator *a, int stream, bool small, int64_t size);
/* Garbage collection. */
void caching_collect(struct caching_allocator *a);

/* ---- caching_blocks.c ---- */

/* Room for one more element of an array of n. */
void *caching_grown(void *array, int n, int *cap, unsigned long size);
/* One block more. */
int caching_block_more(struct caching_allocator *a);
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

/* The number of a block that is not in use, of which nothing is set. */
static inline int caching_block_unused(struct caching_allocator *a)
{
    int i = a->unused;

    if (i == NO_BLOCK)
        return caching_block_more(a);
    a->unused = a->blocks[i].next;
    return i;
}

static inline int caching_block_new(struct caching_allocator *a, struct block_pool *pool, int64_t addr, int64_t size)
{
    int i = caching_block_unused(a);

    a->blocks[i] = (struct block){ .addr = addr, .size = size, .prev = NO_BLOCK, .next = NO_BLOCK,
                                   .range = NO_RANGE, .segment = NO_SEGMENT, .pool = pool, .mapped = true };
    return i;
}

/* A block for the first `size` bytes of another one, linked before it, which still has them. */
static inline int caching_block_cut(struct caching_allocator *a, int block, int64_t size)
{
    int i = caching_block_unused(a);
    struct block *b = &a->blocks[i], *rest = &a->blocks[block];
    *b = *rest;
    b->size = size;
    b->listed = false;
    b->next = block;
    rest->prev = i;
    if (b->prev != NO_BLOCK)
        a->blocks[b->prev].next = i;
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

static inline struct block_list *caching_list_of(const struct block *b) { return b->mapped ? &b->pool->free : b->pool->unmapped; }

/* ---- caching_follow.c ---- */

/* A request is served by this free block, and the one after it is as large.  It got this block; NO_BLOCK: one that it gave back at once.  A
 * block is freed, the second time. */
void caching_follow_ties(struct caching_allocator *a, int block);
void caching_follow_other(struct caching_allocator *a, int block);
void caching_follow_taken_back(struct caching_allocator *a, int block);
void caching_follow_free(struct caching_follow *f);         /* accepts NULL */

static inline struct caching_place caching_place_of(const struct caching_allocator *a, int block)
{
    const struct block *b = &a->blocks[block];

    return (struct caching_place){ b->addr, b->size, b->segment };
}

/* The first time, and where the device was asked for nothing: no more than where the block is. */
static inline void caching_follow_request(struct caching_allocator *a, int block)
{
    struct caching_follow *f = a->follow;

    if (!f->second && f->n < f->room && a->stats.device_allocs == f->device_allocs)
        f->of[f->n++] = block == NO_BLOCK ? (struct caching_place){ 0, 0, NO_SEGMENT } : caching_place_of(a, block);
    else
        caching_follow_other(a, block);
}

static inline void caching_follow_release(struct caching_allocator *a, int block)
{
    if (a->follow->second)
        caching_follow_taken_back(a, block);
}

/* ---- caching_expandable.c ---- */

/* A free block of at least `size` by mapping pages, taken out of its list; NO_BLOCK: the device is full. */
int  caching_expand(struct caching_allocator *a, int stream, bool small, int64_t size);
/* Gives back the pages that lie wholly inside a free block. */
void caching_unmap(struct caching_allocator *a, int block);

#endif
