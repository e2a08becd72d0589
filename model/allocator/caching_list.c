/* caching_list.c -- sorted lists of blocks, in runs of at most RUN entries: what an entry moves does not grow with the
 * list.  No run is empty. */
#include <stdlib.h>
#include <string.h>

#include "model/allocator/caching_allocator_internal.h"

enum { RUN = 32 };

/* Size and address as one number: compared without a branch, half of which would be guessed wrong. */
__extension__ typedef unsigned __int128 wide;

static inline wide key_of(int64_t size, int64_t addr) { return (wide)(uint64_t)size << 64 | (uint64_t)addr; }
static inline wide key_at(const struct entry *e) { return key_of(e->size, e->addr); }

/* After its entries changed. */
static void note_last(struct run *r)
{
    r->size = r->at[r->n - 1].size;
    r->addr = r->at[r->n - 1].addr;
}

/* Into the run, the last one if all entries are below. */
static inline struct spot find(const struct block_list *l, int64_t size, int64_t addr)
{
    const wide key = key_of(size, addr);
    int run = 0;

    if (l->nruns == 0)
        return (struct spot){ 0, 0 };
    for (int n = l->nruns - 1; n > 0;) {            /* of so many runs from `run` on */
        int half = n / 2;
        bool below = key_of(l->runs[run + half].size, l->runs[run + half].addr) < key;
        run = below ? run + half + 1 : run;
        n = below ? n - half - 1 : half;
    }
    const struct entry *entries = l->runs[run].at;
    unsigned from = 0, n = (unsigned)l->runs[run].n;
    for (; n > 1; n -= n / 2)
        from += key_at(&entries[from + n / 2 - 1]) < key ? n / 2 : 0;
    return (struct spot){ run, (int)(from + (key_at(&entries[from]) < key)) };
}

struct spot caching_list_find(const struct block_list *l, int64_t size, int64_t addr)
{
    struct spot s = find(l, size, addr);

    return s.run < l->nruns && s.at == l->runs[s.run].n ? (struct spot){ s.run + 1, 0 } : s;
}

/* The first place of the last run that may have an entry of at least `size`, by sizes alone: half the comparison. */
static inline struct spot find_size(const struct block_list *l, int64_t size)
{
    unsigned run = 0, from = 0, n = (unsigned)l->nruns;

    for (; n > 1; n -= n / 2)                       /* of so many runs from `run` on; the last one if all are below */
        run += l->runs[run + n / 2 - 1].size < size ? n / 2 : 0;
    const struct entry *entries = l->runs[run].at;
    for (n = (unsigned)l->runs[run].n; n > 1; n -= n / 2)
        from += entries[from + n / 2 - 1].size < size ? n / 2 : 0;
    return (struct spot){ (int)run, (int)(from + (entries[from].size < size)) };
}

const struct entry *caching_list_least(const struct block_list *l, int64_t size, struct spot *at)
{
    if (l->nruns == 0)
        return NULL;
    *at = find_size(l, size);
    const struct run *r = &l->runs[at->run];
    return at->at < r->n ? &r->at[at->at] : NULL;       /* past its end only in the last run */
}

const struct entry *caching_list_at(const struct block_list *l, struct spot s)
{
    return s.run < l->nruns ? &l->runs[s.run].at[s.at] : NULL;
}

struct spot caching_list_next(const struct block_list *l, struct spot s)
{
    return s.at + 1 < l->runs[s.run].n ? (struct spot){ s.run, s.at + 1 } : (struct spot){ s.run + 1, 0 };
}

const struct entry *caching_list_last(const struct block_list *l)
{
    if (!l->n)
        return NULL;
    const struct run *r = &l->runs[l->nruns - 1];
    return &r->at[r->n - 1];
}

/* An empty run before runs[i]. */
static struct run *new_run(struct block_list *l, int i)
{
    l->runs = caching_grown(l->runs, l->nruns, &l->cap, sizeof *l->runs);
    memmove(l->runs + i + 1, l->runs + i, (size_t)(l->nruns - i) * sizeof *l->runs);
    l->nruns++;
    l->runs[i] = (struct run){ .at = malloc(RUN * sizeof *l->runs[i].at) };
    if (!l->runs[i].at)
        abort();
    return &l->runs[i];
}

/* The second half of a full run moves to a new one behind it. */
static void split(struct block_list *l, int i)
{
    struct run *second = new_run(l, i + 1), *first = &l->runs[i];

    second->n = RUN - RUN / 2;
    first->n = RUN / 2;
    memcpy(second->at, first->at + RUN / 2, (size_t)second->n * sizeof *second->at);
    note_last(second);
    note_last(first);
}

void caching_list_add(struct block_list *l, struct entry e)
{
    struct spot s = find(l, e.size, e.addr);

    if (l->nruns == 0)
        new_run(l, 0);
    if (l->runs[s.run].n == RUN) {
        split(l, s.run);
        if (s.at > RUN / 2)
            s = (struct spot){ s.run + 1, s.at - RUN / 2 };
    }
    struct run *r = &l->runs[s.run];
    memmove(r->at + s.at + 1, r->at + s.at, (size_t)(r->n - s.at) * sizeof *r->at);
    r->at[s.at] = e;
    r->n++;
    l->n++;
    note_last(r);
}

struct spot caching_list_spot(const struct block_list *l, int64_t size, int64_t addr)
{
    return find(l, size, addr);
}

void caching_list_take(struct block_list *l, struct spot s)
{
    struct run *r = &l->runs[s.run];

    r->n--;
    l->n--;
    for (int i = s.at; i < r->n; i++)
        r->at[i] = r->at[i + 1];
    if (r->n > 0) {
        note_last(r);
        return;
    }
    free(r->at);
    l->nruns--;
    memmove(l->runs + s.run, l->runs + s.run + 1, (size_t)(l->nruns - s.run) * sizeof *l->runs);
}

void caching_list_change(struct block_list *l, struct spot s, struct entry e)
{
    struct run *r = &l->runs[s.run];
    struct entry *at = r->at + s.at, *first = r->at, *last = r->at + r->n - 1;
    const wide key = key_at(&e);

    if (key < key_at(at)) {
        if (s.run > 0 && key < key_at(first))
            goto elsewhere;
        for (; at > first && key < key_at(at - 1); at--)
            at[0] = at[-1];
    } else {
        if (s.run + 1 < l->nruns && key_at(last) < key)
            goto elsewhere;
        for (; at < last && key_at(at + 1) < key; at++)
            at[0] = at[1];
    }
    *at = e;
    r->size = last->size;
    r->addr = last->addr;
    return;
elsewhere:
    caching_list_take(l, s);
    caching_list_add(l, e);
}

void caching_list_free(struct block_list *l)
{
    for (int i = 0; i < l->nruns; i++)
        free(l->runs[i].at);
    free(l->runs);
    *l = (struct block_list){ 0 };
}
