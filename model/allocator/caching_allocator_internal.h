/* caching_allocator_internal.h -- blocks and pools, for caching_*.c only.
 *
 * A block is a piece of a segment: [addr, addr+size).  Neighbours in a segment are linked by prev and
 * next.  A block that is free and mapped is in its pool's `free` list, an unmapped one in `unmapped`. */
#ifndef DPX_CACHING_ALLOCATOR_INTERNAL_H
#define DPX_CACHING_ALLOCATOR_INTERNAL_H

#include "model/allocator/caching_allocator.h"

enum { NO_BLOCK = -1, NO_RANGE = -1 };

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
};

/* Sorted by size, then address (free blocks), or by address alone (unmapped ones). */
struct entry { int64_t size, addr; int32_t block; };
struct run { struct entry *at; int n; int64_t size, addr; };      /* size and addr: its last entry's */
struct block_list { struct run *runs; int nruns, cap, n; };        /* n: entries in all */
struct spot { int run, at; };

struct block_pool { struct block_list free[2], unmapped[2]; };      /* of a stream; [1]: small */

/* Address space of an expandable segment. */
struct range { int64_t addr, size, page; };

struct pending { int64_t event; int32_t block; };
struct pending_queue { struct pending *at; int first, n, cap; int64_t recorded, completed; };

struct caching_allocator {
    struct caching_options o;
    struct caching_stats   stats;
    int64_t capacity, used;             /* of the device, in multiples of 2 MiB */
    int64_t allowed;                    /* fraction * capacity; INT64_MAX: not set */
    int64_t next_addr, last_addr;       /* of what rises: ranges of expandable segments; of segments that fall */
    int64_t lookups[2];                 /* requests of a pool, where garbage is collected */
    int     nstreams;                   /* 1 + the highest stream seen */
    uint32_t kept;                      /* bit s: nothing of stream s is given back */
    struct block *blocks; int nblocks, cap_blocks; int32_t unused;
    struct range *ranges; int nranges, cap_ranges;
    struct block_pool    pool[CACHING_STREAMS];
    struct pending_queue queue[CACHING_STREAMS];
};

/* ---- caching_blocks.c ---- */

int  caching_block_new(struct caching_allocator *a, int stream, bool small, int64_t addr, int64_t size);
void caching_block_drop(struct caching_allocator *a, int block);
/* Into and out of the list of its pool that its state says. */
void caching_block_insert(struct caching_allocator *a, int block);
void caching_block_remove(struct caching_allocator *a, int block);
/* Merges `other`, free and in its list, into its neighbour `into`, which is in none: the bytes added, 0 where
 * they cannot be one block. */
int64_t caching_block_merge(struct caching_allocator *a, int into, int other);
/* Puts `block` between two neighbours. */
void caching_block_link(struct caching_allocator *a, int block, int prev, int next);
static inline bool caching_block_split(const struct block *b) { return b->prev != NO_BLOCK || b->next != NO_BLOCK; }
/* Room for one more element of an array of n. */
void *caching_grown(void *array, int n, int *cap, unsigned long size);
void caching_meter_add(struct caching_meter *m, int64_t bytes);
/* `bytes` of the device, or false. */
bool caching_take(struct caching_allocator *a, int64_t bytes);
void caching_give(struct caching_allocator *a, int64_t bytes);

/* ---- caching_list.c ---- */

/* The first entry whose key is not below (size, addr); what is there, NULL behind the last one; and the one after it.  A
 * change of the list ends the life of both. */
struct spot caching_list_find(const struct block_list *l, int64_t size, int64_t addr);
const struct entry *caching_list_at(const struct block_list *l, struct spot s);
struct spot caching_list_next(const struct block_list *l, struct spot s);
/* NULL: it is empty. */
const struct entry *caching_list_last(const struct block_list *l);
void caching_list_add(struct block_list *l, struct entry e);
/* The entry with that key, which is there. */
void caching_list_drop(struct block_list *l, int64_t size, int64_t addr);
void caching_list_free(struct block_list *l);

/* ---- caching_expandable.c ---- */

/* A free block of at least `size` by mapping pages, taken out of its list; NO_BLOCK: the device is full. */
int  caching_expand(struct caching_allocator *a, int stream, bool small, int64_t size);
/* Gives back the pages that lie wholly inside a free block. */
void caching_unmap(struct caching_allocator *a, int block);

#endif
