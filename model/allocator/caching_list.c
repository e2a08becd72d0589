/* caching_list.c -- see caching_list.h.  What is added to a class with blocks is looked for from where something was added last. */
#include "model/allocator/caching_list.h"

static inline bool is_before(const struct block *x, const struct block *y)
{
    return x->size == y->size || !x->mapped ? x->addr < y->addr : x->size < y->size;
}

int caching_list_first(const struct block_list *l) { return caching_class_first(l, 0); }

int caching_list_next(const struct caching_allocator *a, const struct block_list *l, int block)
{
    const struct block *b = &a->blocks[block];

    return b->after != NO_BLOCK ? b->after : caching_class_first(l, b->class + 1u);
}

int caching_list_last(const struct caching_allocator *a, const struct block_list *l)
{
    int last = NO_BLOCK;

    for (unsigned word = CACHING_CLASSES / 64; word-- > 0 && last == NO_BLOCK;)
        if (l->any[word])
            last = l->of[word * 64 + 63 - (unsigned)__builtin_clzll(l->any[word])].first;
    while (last != NO_BLOCK && a->blocks[last].after != NO_BLOCK)
        last = a->blocks[last].after;
    return last;
}

/* Between two neighbours of its class. */
static void put_between(struct caching_allocator *a, struct block_list *l, unsigned c, int block, int before, int after)
{
    a->blocks[block].before = before;
    a->blocks[block].after = after;
    *(before != NO_BLOCK ? &a->blocks[before].after : &l->of[c].first) = block;
    if (after != NO_BLOCK)
        a->blocks[after].before = block;
    l->of[c].latest = block;
}

void caching_list_among(struct caching_allocator *a, struct block_list *l, unsigned c, int block)
{
    const struct block *blocks = a->blocks, *b = &blocks[block];
    int at = l->of[c].latest, next;

    if (is_before(b, &blocks[at])) {
        while ((next = blocks[at].before) != NO_BLOCK && is_before(b, &blocks[next]))
            at = next;
        put_between(a, l, c, block, next, at);
    } else {
        while ((next = blocks[at].after) != NO_BLOCK && is_before(&blocks[next], b))
            at = next;
        put_between(a, l, c, block, at, next);
    }
}

void caching_list_from(struct caching_allocator *a, struct block_list *l, int block)
{
    struct block *blocks = a->blocks;
    int before = blocks[block].before, after = blocks[block].after;
    unsigned c = blocks[block].class;

    *(before != NO_BLOCK ? &blocks[before].after : &l->of[c].first) = after;
    if (after != NO_BLOCK)
        blocks[after].before = before;
    l->of[c].latest = after != NO_BLOCK ? after : before;
}
