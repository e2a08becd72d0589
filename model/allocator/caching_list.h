/* caching_list.h -- free blocks by size, then address: what every request does, inline.
 *
 * Sizes are in classes, CACHING_PARTS to each power of two, and the blocks of a class are linked in order: few have more than one or two. */
#ifndef DPX_CACHING_LIST_H
#define DPX_CACHING_LIST_H

#include "model/allocator/caching_allocator_internal.h"

/* ---- caching_list.c ---- */

/* Each returns a block, or NO_BLOCK: the first one; the one behind another one; the last one. */
int  caching_list_first(const struct block_list *l);
int  caching_list_next(const struct caching_allocator *a, const struct block_list *l, int block);
int  caching_list_last(const struct caching_allocator *a, const struct block_list *l);
/* To class c, which has blocks; out of its class, which has others. */
void caching_list_among(struct caching_allocator *a, struct block_list *l, unsigned c, int block);
void caching_list_from(struct caching_allocator *a, struct block_list *l, int block);

/* ---- classes ---- */

/* Sizes are multiples of 512 bytes: of 2^k of them and more the upper bits that tell CACHING_PARTS apart. */
static inline unsigned caching_class(int64_t size)
{
    uint64_t units = (uint64_t)size >> 9;
    unsigned shift = ((unsigned)__builtin_clzll(units | CACHING_PARTS) ^ 63) - 3;

    return shift * CACHING_PARTS + (unsigned)(units >> shift);
}

_Static_assert(CACHING_PARTS == 8, "caching_class()");

static inline bool caching_class_any(const struct block_list *l, unsigned c) { return l->any[c / 64] >> c % 64 & 1; }

/* The first block of class c, or of the next one that has blocks. */
static inline int caching_class_first(const struct block_list *l, unsigned c)
{
    unsigned word = c / 64;
    uint64_t any = c < CACHING_CLASSES ? l->any[word] >> c % 64 << c % 64 : 0;

    while (any == 0 && ++word < CACHING_CLASSES / 64)
        any = l->any[word];
    return any ? l->of[word * 64 + (unsigned)__builtin_ctzll(any)].first : NO_BLOCK;
}

/* ---- blocks ---- */

/* The first one of at least `size` > 0 bytes. */
static inline int caching_list_least(const struct caching_allocator *a, const struct block_list *l, int64_t size)
{
    unsigned c = caching_class(size);

    if (caching_class_any(l, c))
        for (int i = l->of[c].first; i != NO_BLOCK; i = a->blocks[i].after)
            if (a->blocks[i].size >= size)
                return i;
    return caching_class_first(l, c + 1);
}

static inline bool caching_list_alone(const struct block *b) { return (b->before & b->after) == NO_BLOCK; }

/* Into class c, and out of its class. */
static inline void caching_class_add(struct caching_allocator *a, struct block_list *l, unsigned c, int block)
{
    struct block *b = &a->blocks[block];

    b->class = (uint16_t)c;
    if (caching_class_any(l, c)) {
        caching_list_among(a, l, c, block);
        return;
    }
    l->any[c / 64] |= (uint64_t)1 << c % 64;
    b->before = b->after = NO_BLOCK;
    l->of[c].first = l->of[c].latest = block;
}

static inline void caching_class_take(struct caching_allocator *a, struct block_list *l, int block)
{
    const struct block *b = &a->blocks[block];

    if (caching_list_alone(b))
        l->any[b->class / 64u] &= ~((uint64_t)1 << b->class % 64u);
    else
        caching_list_from(a, l, block);
}

static inline void caching_list_add(struct caching_allocator *a, struct block_list *l, int block)
{
    struct block *b = &a->blocks[block];

    b->listed = true;
    caching_class_add(a, l, b->mapped ? caching_class(b->size) : 0, block);
}

static inline void caching_list_take(struct caching_allocator *a, struct block_list *l, int block)
{
    a->blocks[block].listed = false;
    caching_class_take(a, l, block);
}

/* A mapped block of the list gets another place in its segment. */
static inline void caching_list_move(struct caching_allocator *a, struct block_list *l, int block, int64_t addr, int64_t size)
{
    struct block *b = &a->blocks[block];
    unsigned c = caching_class(size);

    if (c == b->class && caching_list_alone(b)) {
        b->addr = addr;
        b->size = size;
        return;
    }
    caching_class_take(a, l, block);
    b->addr = addr;
    b->size = size;
    caching_class_add(a, l, c, block);
}

/* Into and out of the list of its pool that its state says. */
static inline void caching_block_insert(struct caching_allocator *a, int block)
{
    struct block *b = &a->blocks[block];

    caching_list_add(a, caching_list_of(b), block);
    if (a->collects)
        a->aside[block].inserted = a->lookups[b->pool->small];
}

static inline void caching_block_remove(struct caching_allocator *a, int block) { caching_list_take(a, caching_list_of(&a->blocks[block]), block); }

#endif
