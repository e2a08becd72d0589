/* caching_list.c -- free blocks by size, then address.  Sizes are in classes, CACHING_PARTS to each power of two, and the blocks of a class
 * are linked in order: few have more than one or two.  What is added is looked for from where something was added last. */
#include "model/allocator/caching_allocator_internal.h"

/* The class from c on that has blocks; NCLASS: none. */
static inline unsigned class_from(const struct block_list *l, unsigned c)
{
    unsigned word = c / 64;
    uint64_t any = c < CACHING_CLASSES ? l->any[word] >> c % 64 << c % 64 : 0;

    while (any == 0 && ++word < CACHING_CLASSES / 64)
        any = l->any[word];
    return any ? word * 64 + (unsigned)__builtin_ctzll(any) : CACHING_CLASSES;
}

static inline int first_from(const struct block_list *l, unsigned c)
{
    c = class_from(l, c);
    return c < CACHING_CLASSES ? l->first[c] : NO_BLOCK;
}

static inline bool is_before(const struct block *x, const struct block *y)
{
    return x->size == y->size || !x->mapped ? x->addr < y->addr : x->size < y->size;
}

int caching_list_first(const struct block_list *l) { return first_from(l, 0); }

int caching_list_least(const struct caching_allocator *a, const struct block_list *l, int64_t size)
{
    unsigned c = caching_class_of(size);

    if (l->any[c / 64] >> c % 64 & 1)
        for (int i = l->first[c]; i != NO_BLOCK; i = a->blocks[i].after)
            if (a->blocks[i].size >= size)
                return i;
    return first_from(l, c + 1);
}

int caching_list_next(const struct caching_allocator *a, const struct block_list *l, int block)
{
    const struct block *b = &a->blocks[block];

    return b->after != NO_BLOCK ? b->after : first_from(l, caching_class(b) + 1);
}

int caching_list_last(const struct caching_allocator *a, const struct block_list *l)
{
    int last = NO_BLOCK;

    for (unsigned word = CACHING_CLASSES / 64; word-- > 0 && last == NO_BLOCK;)
        if (l->any[word])
            last = l->first[word * 64 + 63 - (unsigned)__builtin_clzll(l->any[word])];
    while (last != NO_BLOCK && a->blocks[last].after != NO_BLOCK)
        last = a->blocks[last].after;
    return last;
}

/* Between two neighbours of its class. */
static void put_between(struct caching_allocator *a, struct block_list *l, unsigned c, int block, int before, int after)
{
    a->blocks[block].before = before;
    a->blocks[block].after = after;
    *(before != NO_BLOCK ? &a->blocks[before].after : &l->first[c]) = block;
    if (after != NO_BLOCK)
        a->blocks[after].before = block;
    l->latest[c] = block;
}

void caching_list_add(struct caching_allocator *a, struct block_list *l, int block)
{
    const struct block *blocks = a->blocks, *b = &blocks[block];
    unsigned c = caching_class(b);

    l->n++;
    if (!(l->any[c / 64] >> c % 64 & 1)) {
        l->any[c / 64] |= (uint64_t)1 << c % 64;
        put_between(a, l, c, block, NO_BLOCK, NO_BLOCK);
        return;
    }
    int at = l->latest[c];
    while (is_before(b, &blocks[at]) && blocks[at].before != NO_BLOCK)
        at = blocks[at].before;
    while (is_before(&blocks[at], b) && blocks[at].after != NO_BLOCK)
        at = blocks[at].after;
    if (is_before(b, &blocks[at]))
        put_between(a, l, c, block, blocks[at].before, at);
    else
        put_between(a, l, c, block, at, blocks[at].after);
}

void caching_list_take(struct caching_allocator *a, struct block_list *l, int block)
{
    struct block *blocks = a->blocks;
    int before = blocks[block].before, after = blocks[block].after;
    unsigned c = caching_class(&blocks[block]);

    l->n--;
    if (before == NO_BLOCK && after == NO_BLOCK) {
        l->any[c / 64] &= ~((uint64_t)1 << c % 64);
        return;
    }
    *(before != NO_BLOCK ? &blocks[before].after : &l->first[c]) = after;
    if (after != NO_BLOCK)
        blocks[after].before = before;
    l->latest[c] = after != NO_BLOCK ? after : before;
}

void caching_list_resize(struct caching_allocator *a, struct block_list *l, int block, int64_t addr, int64_t size)
{
    struct block *b = &a->blocks[block];

    if (caching_class(b) == caching_class_of(size) && b->before == NO_BLOCK && b->after == NO_BLOCK) {
        b->addr = addr;
        b->size = size;
        return;
    }
    caching_list_take(a, l, block);
    b->addr = addr;
    b->size = size;
    caching_list_add(a, l, block);
}
