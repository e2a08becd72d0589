/* arena.c -- see arena.h.  Blocks cover [0, extent) without a gap, in order of address.  Free
 * neighbours stay apart as long as they may be taken at different moments. */
#define _GNU_SOURCE                 /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "exec/device/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/room.h"
#include "exec/device/device.h"
#include "exec/device/pages.h"

enum { ALIGN = 64 };

struct block {
    int64_t at, size;               /* as cut */
    int64_t bytes;                  /* as asked for */
    struct when last;               /* free: its uses are done then */
    enum category cat;
    bool live;
};

struct arena {
    bool   guarded;
    int    align;
    struct block *blocks;
    int     n;
    int64_t room;
    int64_t extent, mapped, reserved;
    char  *base;
    struct device *device;          /* base is its memory, or pinned for it; NULL: the host's */
    bool   pinned;
    int64_t *had, nhad, room_had, turn;     /* since arena_repeat(): where the n-th take was the last time; of the next one */
    bool   repeats;
    struct arena_meter meter;
};

struct arena *arena_new(bool guarded)
{
    struct arena *a = calloc(1, sizeof *a);

    if (!a)
        fail("out of memory for an arena");
    else
        *a = (struct arena){ .guarded = guarded, .align = ALIGN };
    return a;
}

void arena_align(struct arena *a, int align) { a->align = align; }

void arena_free(struct arena *a)
{
    if (!a)
        return;
    if (a->device && a->pinned)
        device_unpin(a->device, a->base, a->mapped);
    else if (a->device)
        device_unmap(a->device, a->base, a->mapped);
    else if (a->base)
        munmap(a->base, (size_t)a->reserved);
    free(a->blocks);
    free(a->had);
    free(a);
}

void arena_reset(struct arena *a)
{
    a->n = 0;
    a->extent = 0;
    a->nhad = a->turn = 0;
    a->repeats = false;
    memset(&a->meter, 0, sizeof a->meter);
}

/* ---- blocks ---- */

static struct block *insert(struct arena *a, int i)
{
    a->blocks = room_for(a->blocks, a->n, &a->room, sizeof *a->blocks);
    memmove(a->blocks + i + 1, a->blocks + i, (size_t)(a->n - i) * sizeof *a->blocks);
    a->n++;
    return &a->blocks[i];
}

static void erase(struct arena *a, int i)
{
    a->n--;
    memmove(a->blocks + i, a->blocks + i + 1, (size_t)(a->n - i) * sizeof *a->blocks);
}

/* The block in which a byte of the region lies. */
static int find(const struct arena *a, int64_t offset)
{
    int lo = 0, hi = a->n - 1;

    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (a->blocks[mid].at <= offset)
            lo = mid;
        else
            hi = mid - 1;
    }
    assert(a->n > 0 && a->blocks[lo].at <= offset);
    return lo;
}

static int find_live(const struct arena *a, int64_t offset)
{
    int i = find(a, offset);

    assert(a->blocks[i].live);
    return i;
}

static int64_t page(void) { return sysconf(_SC_PAGESIZE); }

/* Bytes cut from the region, and where in them the block begins: guarded, it ends at a page
 * of its own. */
static int64_t cut(const struct arena *a, int64_t bytes)
{
    if (a->guarded)
        return round_up(bytes, page()) + page();
    return bytes ? round_up(bytes, a->align) : a->align;
}

static int64_t begin(const struct arena *a, const struct block *b)
{
    return a->guarded ? b->at + b->size - page() - round_up(b->bytes, ALIGN) : b->at;
}

/* ---- taking and giving ---- */

static void count(struct arena *a, enum category cat, int64_t bytes)
{
    struct arena_meter *m = &a->meter;

    m->live += bytes;
    m->live_by[cat] += bytes;
    if (m->live > m->most)
        m->most = m->live;
    if (m->live > m->peak) {
        m->peak = m->live;
        memcpy(m->at_peak, m->live_by, sizeof m->at_peak);
    }
}

/* The smallest run of free neighbours that is large enough and whose uses are all done: where it begins; -1: none.  The run
 * at the end of the region comes last, however small: it can grow, and taken first a step's addresses would depend on how
 * far the steps before extended it.  `top`: where it begins, `room`: its bytes (top is a->n where it is empty). */
static int best(const struct arena *a, int64_t size, const struct when *at, int *top, int64_t *room)
{
    int64_t smallest = INT64_MAX, sum;
    int found = -1, next;

    *top = a->n;
    *room = 0;
    for (int i = 0; i < a->n; i = next > i ? next : i + 1) {
        sum = 0;
        for (next = i; next < a->n && !a->blocks[next].live && when_before(&a->blocks[next].last, at); next++)
            sum += a->blocks[next].size;
        if (next == a->n && next > i) {
            *top = i;
            *room = sum;
        } else if (sum >= size && sum < smallest) {
            smallest = sum;
            found = i;
        }
    }
    return found >= 0 ? found : *room >= size ? *top : -1;
}

/* Guarded, blocks keep their sizes: guard pages stay where they are, for tasks that were issued
 * earlier still run. */
static int same_size(const struct arena *a, int64_t size, const struct when *at)
{
    for (int i = 0; i < a->n; i++)
        if (!a->blocks[i].live && a->blocks[i].size == size && when_before(&a->blocks[i].last, at))
            return i;
    return -1;
}

/* Block i becomes `size` bytes of the run that begins there.  What is left is of the run's last block that was needed,
 * and as old as that. */
static void cut_run(struct arena *a, int i, int64_t size)
{
    struct when last = a->blocks[i].last;

    while (a->blocks[i].size < size) {
        last = a->blocks[i + 1].last;
        a->blocks[i].size += a->blocks[i + 1].size;
        when_join(&a->blocks[i].last, &last);
        erase(a, i + 1);
    }
    if (a->blocks[i].size > size) {         /* the rest stays free */
        struct block rest = a->blocks[i];
        rest.last = last;
        rest.at += size;
        rest.size -= size;
        a->blocks[i].size = size;
        *insert(a, i + 1) = rest;
    }
}

/* Where this take's like was the last time, as a block that begins there; -1: it is not free, or nothing is repeated. */
static int again(struct arena *a, int64_t size, const struct when *at)
{
    if (!a->repeats || a->guarded || a->turn >= a->nhad)
        return -1;
    int64_t from = a->had[a->turn];
    int first = find(a, from), i = first;
    for (; i < a->n && a->blocks[i].at < from + size; i++)
        if (a->blocks[i].live || !when_before(&a->blocks[i].last, at))
            return -1;
    if (a->blocks[i - 1].at + a->blocks[i - 1].size < from + size)
        return -1;
    if (a->blocks[first].at == from)
        return first;
    struct block rest = a->blocks[first];
    a->blocks[first].size = from - rest.at;
    rest.size -= a->blocks[first].size;
    rest.at = from;
    *insert(a, first + 1) = rest;
    return first + 1;
}

static void remember(struct arena *a, int64_t at)
{
    if (a->turn == a->nhad) {
        a->had = room_for(a->had, a->nhad, &a->room_had, sizeof *a->had);
        a->nhad++;
    }
    a->had[a->turn++] = at;
}

void arena_repeat(struct arena *a)
{
    a->repeats = true;
    a->turn = 0;
}

static int map_more(struct arena *a, int64_t more)
{
    if (a->device)
        return fail("the arena %s %s has the %lld bytes that a dry run found, and %lld more are needed",
                    a->pinned ? "pinned for" : "on", device_name(a->device), (long long)a->mapped, (long long)more);
    more = round_up(more, page());
    if (a->mapped + more > a->reserved)
        return fail("the arena needs more than %lld bytes, four times what a dry run found",
                    (long long)a->reserved);
    if (mprotect(a->base + a->mapped, (size_t)more, PROT_READ | PROT_WRITE) < 0)
        return fail("no memory for %lld more bytes of the arena: %s", (long long)more, strerror(errno));
    if (a->guarded)
        memset(a->base + a->mapped, 0xff, (size_t)more);
    a->mapped += more;
    return 0;
}

static int extend(struct arena *a, int64_t size)
{
    if (a->base && a->extent + size > a->mapped && map_more(a, a->extent + size - a->mapped) < 0)
        return -1;
    *insert(a, a->n) = (struct block){ .at = a->extent, .size = size };
    a->extent += size;
    if (a->guarded && a->base && mprotect(a->base + a->extent - page(), (size_t)page(), PROT_NONE) < 0)
        return fail("no guard page: %s", strerror(errno));
    return a->n - 1;
}

int64_t arena_take(struct arena *a, int64_t bytes, enum category cat, const struct when *at)
{
    int64_t size = cut(a, bytes), room = 0;
    int top = a->n, i = again(a, size, at);

    assert(bytes >= 0);
    if (i < 0)
        i = a->guarded ? same_size(a, size, at) : best(a, size, at, &top, &room);
    if (i < 0) {
        if (extend(a, size - room) < 0)
            return -1;
        i = top;
    }
    cut_run(a, i, size);
    struct block *b = &a->blocks[i];
    b->live = true;
    b->bytes = bytes;
    b->cat = cat;
    count(a, cat, bytes);
    if (a->repeats)
        remember(a, b->at);
    return begin(a, b);
}

void arena_account(struct arena *a, int64_t bytes, enum category cat) { count(a, cat, bytes); }

void arena_give(struct arena *a, int64_t offset, const struct when *last)
{
    int i = find_live(a, offset);
    struct block *b = &a->blocks[i];

    assert(begin(a, b) == offset);
    count(a, b->cat, -b->bytes);
    b->live = false;
    b->last = *last;
}

void arena_settled(struct arena *a, const struct when *done)
{
    for (int i = 0; i + 1 < a->n && !a->guarded; ) {
        struct block *b = &a->blocks[i], *next = b + 1;
        if (b->live || next->live || !when_before(&b->last, done) || !when_before(&next->last, done)) {
            i++;
            continue;
        }
        b->size += next->size;
        when_join(&b->last, &next->last);
        erase(a, i + 1);
    }
}

void arena_all_done(struct arena *a)
{
    for (int i = 0; i < a->n; i++)
        memset(&a->blocks[i].last, 0, sizeof a->blocks[i].last);
}

int64_t arena_bytes(const struct arena *a, int64_t offset) { return a->blocks[find_live(a, offset)].bytes; }
int64_t arena_extent(const struct arena *a) { return a->extent; }

uint64_t arena_layout(const struct arena *a)
{
    uint64_t h = HASH_BEGIN;

    for (int i = 0; i < a->n; i++)
        h = hash_mix(hash_mix(h, (uint64_t)a->blocks[i].at), (uint64_t)a->blocks[i].size << 1 | a->blocks[i].live);
    for (int64_t i = 0; i < a->nhad; i++)
        h = hash_mix(h, (uint64_t)a->had[i]);
    return h;
}

const struct arena_meter *arena_meter(const struct arena *a) { return &a->meter; }
void arena_mark(struct arena *a) { a->meter.most = a->meter.live; }

/* ---- the region ---- */

/* Addresses that begin with a large page.  NULL with errno. */
static char *reserve(int64_t bytes)
{
    size_t all = (size_t)bytes + LARGE_PAGE;
    char *p = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    size_t before = (LARGE_PAGE - (uintptr_t)p % LARGE_PAGE) % LARGE_PAGE;
    if (before > 0)
        munmap(p, before);
    munmap(p + before + bytes, LARGE_PAGE - before);
    return p + before;
}

int arena_map(struct arena *a, int64_t extent)
{
    extent = round_up(extent > 0 ? extent : 1, page());
    a->reserved = 4 * extent;
    a->base = reserve(a->reserved);
    if (!a->base)
        return fail("no address space for an arena of %lld bytes: %s", (long long)extent, strerror(errno));
    /* Populated now: a page fault must not fall into a timed step. */
    if (mprotect(a->base, (size_t)extent, PROT_READ | PROT_WRITE) < 0)
        return fail("no memory for an arena of %lld bytes: %s", (long long)extent, strerror(errno));
    pages_large(a->base, (size_t)extent);
    if (pages_populate(a->base, (size_t)extent) < 0)
        return fail("no memory for an arena of %lld bytes: %s", (long long)extent, strerror(errno));
    if (a->guarded)
        memset(a->base, 0xff, (size_t)extent);
    a->mapped = extent;
    return 0;
}

int arena_map_on(struct arena *a, struct device *d, int64_t extent)
{
    if (!device_async(d))
        return arena_map(a, extent);
    if (a->guarded)
        return fail("guard pages are for the host's memory, not for %s", device_name(d));
    a->mapped = extent > 0 ? extent : ALIGN;
    a->base = device_map(d, a->mapped);
    a->device = a->base ? d : NULL;
    return a->base ? 0 : -1;
}

int arena_map_pinned(struct arena *a, struct device *d, int64_t extent)
{
    if (!device_async(d))
        return arena_map(a, extent);
    a->mapped = extent > 0 ? extent : ALIGN;
    a->base = device_pin(d, a->mapped);
    a->device = a->base ? d : NULL;
    a->pinned = true;
    return a->base ? 0 : -1;
}

void *arena_at(const struct arena *a, int64_t offset)
{
    return a->base ? a->base + offset : NULL;
}

void arena_poison(const struct arena *a, int64_t offset, int64_t bytes)
{
    if (a->guarded && a->base && !a->device)
        memset(a->base + offset, 0xff, (size_t)bytes);
}
