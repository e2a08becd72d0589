/* caching_list.c -- free blocks by size, then address.  Sizes are in classes, CACHING_PARTS to each power of two, and the blocks of a class
 * are linked in order: few have more than one or two.  What is added is looked for from where something was added last. */
#include "model/allocator/caching_allocator_internal.h"

/* Sizes are multiples of 512 bytes. */
static inline unsigned class_of(int64_t size)
{
    uint64_t units = (uint64_t)size >> 9;

    if (units < CACHING_PARTS)
        return (unsigned)units;
    unsigned log = 63 - (unsigned)__builtin_clzll(units);
    return (log - 2) * CACHING_PARTS + (unsigned)(units >> (log - 3)) % CACHING_PARTS;
}

static inline bool has(const struct block_list *l, unsigned c) { return l->any[c / 64] >> c % 64 & 1; }

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
    unsigned c = class_of(size);

    if (has(l, c))
        for (int i = l->first[c]; i != NO_BLOCK; i = a->blocks[i].after)
            if (a->blocks[i].size >= size)
                return i;
    return first_from(l, c + 1);
}

int caching_list_next(const struct caching_allocator *a, const struct block_list *l, int block)
{
    const struct block *b = &a->blocks[block];

    return b->after != NO_BLOCK ? b->after : first_from(l, b->class + 1u);
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

static inline void add_to(struct caching_allocator *a, struct block_list *l, unsigned c, int block)
{
    struct block *blocks = a->blocks, *b = &blocks[block];

    b->class = (uint16_t)c;
    if (!has(l, c)) {
        l->any[c / 64] |= (uint64_t)1 << c % 64;
        b->before = b->after = NO_BLOCK;
        l->first[c] = l->latest[c] = block;
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

static inline void take_from(struct caching_allocator *a, struct block_list *l, int block)
{
    struct block *blocks = a->blocks;
    int before = blocks[block].before, after = blocks[block].after;
    unsigned c = blocks[block].class;

    if (before == NO_BLOCK && after == NO_BLOCK) {
        l->any[c / 64] &= ~((uint64_t)1 << c % 64);
        return;
    }
    *(before != NO_BLOCK ? &blocks[before].after : &l->first[c]) = after;
    if (after != NO_BLOCK)
        blocks[after].before = before;
    l->latest[c] = after != NO_BLOCK ? after : before;
}

void caching_list_add(struct caching_allocator *a, struct block_list *l, int block)
{
    const struct block *b = &a->blocks[block];

    l->n++;
    add_to(a, l, b->mapped ? class_of(b->size) : 0, block);
}

void caching_list_take(struct caching_allocator *a, struct block_list *l, int block)
{
    l->n--;
    take_from(a, l, block);
}

void caching_list_cut(struct caching_allocator *a, struct block_list *l, int block, int64_t size)
{
    struct block *b = &a->blocks[block];
    unsigned c = class_of(b->size - size);
    bool stays = c == b->class && b->before == NO_BLOCK && b->after == NO_BLOCK;

    if (!stays)
        take_from(a, l, block);
    b->addr += size;
    b->size -= size;
    if (!stays)
        add_to(a, l, c, block);
}
