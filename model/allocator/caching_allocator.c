/* caching_allocator.c -- malloc, free and events as CUDACachingAllocator.cpp does them.  What happens when the device is full:
 * caching_release.c. */
#include "model/allocator/caching_allocator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/room.h"
#include "model/allocator/caching_list.h"

#define MiB ((int64_t)1 << 20)

/* kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kRoundLarge. */
#define MIN_BLOCK     ((int64_t)512)
#define SMALL_SIZE    (1 * MiB)
#define SMALL_SEGMENT (2 * MiB)
#define MIN_LARGE     (10 * MiB)
#define ROUND_LARGE   (2 * MiB)

_Static_assert(CACHING_STREAMS <= 32, "struct aside's uses has a bit for each stream");

/* ---- making one ---- */

struct caching_options caching_allocator_defaults(void)
{
    return (struct caching_options){ .max_split_size = INT64_MAX, .max_non_split_rounding = 20 * MiB,
                                     .large_segment_size = 20 * MiB, .fraction = 1 };
}

void caching_allocator_resize(struct caching_allocator *a, int64_t capacity) { a->capacity = capacity; }

struct caching_allocator *caching_allocator_new(int64_t capacity, const struct caching_options *o)
{
    struct caching_allocator *a = room_new(1, sizeof *a);

    a->o = o ? *o : caching_allocator_defaults();
    a->capacity = capacity;
    a->allowed = a->o.fraction < 1 ? (int64_t)(a->o.fraction * (double)capacity) : INT64_MAX;
    a->collects = a->allowed < INT64_MAX && a->o.garbage_collection_threshold > 0;
    a->plain = !a->collects && !a->o.expandable_segments && a->o.max_split_size == INT64_MAX;
    a->next_addr = SMALL_SEGMENT;
    a->last_addr = CACHING_LAST_ADDR;
    a->unused = NO_BLOCK;
    return a;
}

static struct block_pool *new_pool(const struct caching_options *o, int stream, bool small)
{
    struct block_pool *p = malloc(sizeof *p);

    if (!p)
        abort();
    memset(p->free.any, 0, sizeof p->free.any);
    p->unmapped = o->expandable_segments ? room_new(1, sizeof *p->unmapped) : NULL;
    p->least_rest = small || o->expandable_segments ? MIN_BLOCK : SMALL_SIZE + MIN_BLOCK;
    p->most_cut = small || o->expandable_segments ? INT64_MAX : o->max_split_size;
    p->stream = (uint8_t)stream;
    p->small = small;
    return p;
}

static void add_streams(struct caching_allocator *a, int n)
{
    for (; a->nstreams < n; a->nstreams++)
        for (int small = 0; small < 2; small++)
            a->pool[a->nstreams][small] = new_pool(&a->o, a->nstreams, small);
}

static void delete_pool(struct block_pool *p)
{
    free(p->unmapped);
    free(p);
}

void caching_allocator_delete(struct caching_allocator *a)
{
    if (!a)
        return;
    for (int s = 0; s < CACHING_STREAMS; s++)
        free(a->queue[s].at);
    for (int s = 0; s < a->nstreams; s++)
        for (int small = 0; small < 2; small++)
            delete_pool(a->pool[s][small]);
    free(a->blocks);
    free(a->aside);
    free(a->ranges);
    free(a->segments);
    caching_follow_free(a->follow);
    free(a);
}

const struct caching_stats *caching_allocator_stats(const struct caching_allocator *a) { return &a->stats; }

void caching_allocator_restart_peaks(struct caching_allocator *a)
{
    struct caching_meter *const of[] = { &a->stats.allocated, &a->stats.active, &a->stats.reserved, &a->stats.requested, &a->stats.inactive_split };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        of[i]->peak = of[i]->now;
}

/* ---- sizes ---- */

/* roundup_power2_divisions: the powers of two are cut into so many steps. */
static int64_t round_size(const struct caching_options *o, int64_t bytes)
{
    int64_t d = o->roundup_power2_divisions, power = MIN_BLOCK;

    if (d <= 1 || bytes <= MIN_BLOCK * d)
        return (bytes + MIN_BLOCK - 1) & -MIN_BLOCK;
    while (2 * power <= bytes)
        power *= 2;
    return power == bytes ? bytes : round_up(bytes, power / d);
}

static int64_t segment_size(const struct caching_options *o, int64_t size)
{
    if (size <= SMALL_SIZE)
        return SMALL_SEGMENT;
    return size < MIN_LARGE ? o->large_segment_size : round_up(size, ROUND_LARGE);
}

/* Does what is left of a free block become one of its own? */
static inline bool should_split(const struct block *b, int64_t size)
{
    return b->size - size >= b->pool->least_rest && size < b->pool->most_cut;
}

/* ---- freed blocks ---- */

static inline void split_meter(struct caching_allocator *a, const struct block *b, int64_t bytes)
{
    if (b->range == NO_RANGE)           /* free pages of an expandable segment can be given back */
        caching_meter_add(&a->stats.inactive_split, bytes);
}

/* A block's neighbour in a segment, where it is free: in its list. */
static inline bool is_listed(const struct caching_allocator *a, int neighbour)
{
    return neighbour != NO_BLOCK && a->blocks[neighbour].listed && a->blocks[neighbour].mapped;
}

/* The block, which is in no list, becomes a part of its free neighbours, which become one: its bytes then. */
static inline int join(struct caching_allocator *a, int i, bool with_prev, bool with_next)
{
    struct block *blocks = a->blocks, *b = &blocks[i];
    struct block_list *l = caching_list_of(b);
    int into = with_prev ? b->prev : b->next;
    int64_t addr = with_prev ? blocks[into].addr : b->addr, size = blocks[into].size + b->size;

    if (with_prev && with_next) {
        int next = b->next;
        size += blocks[next].size;
        b->next = blocks[next].next;
        caching_list_take(a, l, next);
        caching_block_drop(a, next);
    }
    caching_list_move(a, l, into, addr, size);
    if (with_prev) {
        blocks[into].next = b->next;
        if (b->next != NO_BLOCK)
            blocks[b->next].prev = into;
    } else {
        blocks[into].prev = b->prev;
        if (b->prev != NO_BLOCK)
            blocks[b->prev].next = into;
    }
    caching_block_drop(a, i);
    return into;
}

/* No stream needs the block any more.  What it joins was split. */
static inline __attribute__((always_inline)) void release(struct caching_allocator *a, int i)
{
    const struct block *b = &a->blocks[i];
    int64_t size = b->size;
    bool with_prev = is_listed(a, b->prev), with_next = is_listed(a, b->next);

    a->stats.active.now -= size;
    a->stats.requested.now -= b->requested;
    if (with_prev || with_next)
        i = join(a, i, with_prev, with_next);
    else
        caching_list_add(a, caching_list_of(b), i);
    if (a->collects)
        a->aside[i].inserted = a->lookups[a->blocks[i].pool->small];
    split_meter(a, &a->blocks[i], caching_block_split(&a->blocks[i]) ? size : size - a->blocks[i].size);
}

static void record_event(struct caching_allocator *a, int stream, int block)
{
    struct pending_queue *q = &a->queue[stream];

    if (q->first + q->n == q->cap && q->first > q->cap / 2) {
        memmove(q->at, q->at + q->first, (size_t)q->n * sizeof *q->at);
        q->first = 0;
    }
    q->at = caching_grown(q->at, q->first + q->n, &q->cap, sizeof *q->at);
    q->at[q->first + q->n++] = (struct pending){ ++q->recorded, block };
    a->completes |= q->recorded <= q->completed;
    a->aside[block].events++;
    a->npending++;
}

static void release_apart(struct caching_allocator *a, int i) { release(a, i); }

static void pop_event(struct caching_allocator *a, struct pending_queue *q)
{
    int block = q->at[q->first++].block;

    if (--q->n == 0)
        q->first = 0;
    a->npending--;
    if (--a->aside[block].events == 0)
        release_apart(a, block);
}

/* Of each stream, up to the first event that has not completed. */
static void process_events(struct caching_allocator *a)
{
    a->completes = false;
    for (int s = 0; s < a->nstreams; s++) {
        struct pending_queue *q = &a->queue[s];
        while (q->n > 0 && q->at[q->first].event <= q->completed)
            pop_event(a, q);
    }
}

void caching_synchronize(struct caching_allocator *a)
{
    for (int s = 0; s < a->nstreams; s++)
        caching_allocator_complete(a, s);
    process_events(a);
}

/* ---- malloc ---- */

/* The bytes that a free block can grow to. */
static int64_t growable(const struct caching_allocator *a, int block)
{
    const struct block *b = &a->blocks[block];

    return b->size + (b->next != NO_BLOCK && !a->blocks[b->next].mapped ? a->blocks[b->next].size : 0);
}

/* Of expandable segments: a block that can grow counts with what it can grow to. */
static int least_growable(const struct caching_allocator *a, const struct block_list *l, int block)
{
    for (int next; (next = caching_list_next(a, l, block)) != NO_BLOCK && growable(a, next) < growable(a, block);)
        block = next;
    return block;
}

/* What options other than torch's own change: of the smallest free block that fits, the one that is taken, or NO_BLOCK. */
static int find_by_options(struct caching_allocator *a, const struct block_list *l, int i, int64_t size)
{
    if (a->collects)
        a->lookups[size <= SMALL_SIZE]++;
    if (i == NO_BLOCK)
        return NO_BLOCK;
    if (a->o.expandable_segments)
        i = least_growable(a, l, i);
    const struct block *b = &a->blocks[i];
    if (size < a->o.max_split_size ? b->size >= a->o.max_split_size : b->size >= size + a->o.max_non_split_rounding)
        return NO_BLOCK;
    return i;
}

/* The smallest free block that fits, or NO_BLOCK. */
static inline int find_free(struct caching_allocator *a, const struct block_list *l, int64_t size)
{
    int i = caching_list_least(a, l, size);

    if (!a->plain)
        i = find_by_options(a, l, i, size);
    if (a->follow && i != NO_BLOCK && a->blocks[i].after != NO_BLOCK && a->blocks[a->blocks[i].after].size == a->blocks[i].size)
        caching_follow_ties(a, i);
    return i;
}

/* Where a new segment begins; the caller has seen that there is room. */
static int64_t address_of(struct caching_allocator *a, int64_t bytes)
{
    int64_t first = a->next_addr;

    if (!a->o.addresses_rise)
        return a->last_addr -= bytes;
    a->next_addr += bytes;
    return first;
}

static int new_block(struct caching_allocator *a, int stream, bool small, int64_t size)
{
    int64_t bytes = segment_size(&a->o, size);

    if (a->allowed < INT64_MAX && a->stats.reserved.now + bytes > a->allowed)
        return NO_BLOCK;
    if (a->o.expandable_segments)
        return caching_expand(a, stream, small, size);
    int64_t mapped = round_up(bytes, ROUND_LARGE);
    if (mapped > a->last_addr - a->next_addr || !caching_take(a, bytes))
        return NO_BLOCK;
    a->stats.segments++;
    int b = caching_block_new(a, a->pool[stream][small], address_of(a, mapped), bytes);
    a->segments = caching_grown(a->segments, a->nsegments, &a->cap_segments, sizeof *a->segments);
    a->segments[a->nsegments] = (struct segment){ a->blocks[b].addr, bytes, (uint8_t)stream, small };
    a->blocks[b].segment = a->nsegments++;
    return b;
}

static int new_block_or_retry(struct caching_allocator *a, int stream, bool small, int64_t size)
{
    if (a->collects)
        caching_collect(a);
    int b = new_block(a, stream, small, size);
    if (b == NO_BLOCK && caching_release_available(a, stream, small, size))
        b = new_block(a, stream, small, size);
    if (b != NO_BLOCK)
        return b;
    caching_allocator_empty_cache(a);
    a->stats.retries++;
    return new_block(a, stream, small, size);
}

/* The first `size` bytes of a free block of a list, or all of it. */
static inline int take_listed(struct caching_allocator *a, struct block_list *l, int i, int64_t size)
{
    struct block *b = &a->blocks[i];
    bool split = caching_block_split(b);

    if (!should_split(b, size)) {
        caching_list_take(a, l, i);
        if (split)
            split_meter(a, b, -b->size);
        return i;
    }
    int first = caching_block_cut(a, i, size);
    b = &a->blocks[i];
    caching_list_move(a, l, i, b->addr + size, b->size - size);
    if (a->collects)
        a->aside[i].inserted = a->lookups[b->pool->small];
    split_meter(a, b, split ? -size : b->size);
    return first;
}

/* The same of one that is in none. */
static int take_new(struct caching_allocator *a, int i, int64_t size)
{
    bool split = caching_block_split(&a->blocks[i]);

    if (!should_split(&a->blocks[i], size)) {
        if (split)
            split_meter(a, &a->blocks[i], -a->blocks[i].size);
        return i;
    }
    int first = caching_block_cut(a, i, size);
    struct block *rest = &a->blocks[i];
    rest->addr += size;
    rest->size -= size;
    caching_block_insert(a, i);
    split_meter(a, rest, split ? -size : rest->size);
    return first;
}

static inline void hand_out(struct caching_allocator *a, int b, int64_t bytes)
{
    struct block *of = &a->blocks[b];

    of->allocated = true;
    of->requested = bytes;
    caching_meter_add(&a->stats.allocated, of->size);
    caching_meter_add(&a->stats.active, of->size);
    caching_meter_add(&a->stats.requested, bytes);
}

/* No free block fits. */
static int allocate_new(struct caching_allocator *a, int64_t bytes, int64_t size, int stream, bool small)
{
    struct caching_stats *s = &a->stats;
    int64_t peak = s->reserved.peak;
    int b = new_block_or_retry(a, stream, small, size);

    if (b == NO_BLOCK) {
        s->ooms++;
        return -1;
    }
    b = take_new(a, b, size);
    hand_out(a, b, bytes);
    if (s->reserved.peak > peak)
        s->idle_at_peak = s->reserved.now - s->active.now;
    return b;
}

/* The stream's pools are there. */
static inline int allocate(struct caching_allocator *a, struct block_pool *const *pools, int64_t bytes, int stream)
{
    int64_t size = round_size(&a->o, bytes);
    bool small = size <= SMALL_SIZE;

    assert(bytes > 0);
    if (a->completes)
        process_events(a);
    struct block_list *l = &pools[small]->free;
    int b = find_free(a, l, size);
    if (b == NO_BLOCK)
        return allocate_new(a, bytes, size, stream, small);
    b = take_listed(a, l, b, size);
    hand_out(a, b, bytes);
    return b;
}

/* The block was used on other streams: it is free when what they were given until now is done. */
static void record_events(struct caching_allocator *a, int block)
{
    uint32_t uses = a->aside[block].uses;

    a->aside[block].uses = 0;
    a->blocks[block].used = false;
    for (int s = 0; uses >> s; s++)
        if (uses >> s & 1)
            record_event(a, s, block);
}

static inline void give_back(struct caching_allocator *a, int block)
{
    struct block *b = &a->blocks[block];

    assert(b->allocated);
    b->allocated = false;
    a->stats.allocated.now -= b->size;
    if (b->used)
        record_events(a, block);
    else
        release(a, block);
}

static inline void see_peak(struct caching_meter *m, int64_t more)
{
    if (m->now + more > m->peak)
        m->peak = m->now + more;
}

/* What malloc and free leave of it: peaks. */
static inline void pass_by(struct caching_allocator *a, const struct block *b, int64_t size, int64_t bytes)
{
    int64_t taken = should_split(b, size) ? size : b->size;

    see_peak(&a->stats.allocated, taken);
    see_peak(&a->stats.active, taken);
    see_peak(&a->stats.requested, bytes);
    if (b->range == NO_RANGE && !caching_block_split(b))
        see_peak(&a->stats.inactive_split, b->size - taken);
}

/* false where it must be done for real: it finds no block, or would be counted. */
static inline bool touch(struct caching_allocator *a, struct block_pool *const *pools, int64_t bytes)
{
    int64_t size = round_size(&a->o, bytes);

    if (a->completes)
        process_events(a);
    int b = a->collects ? NO_BLOCK : find_free(a, &pools[size <= SMALL_SIZE]->free, size);
    if (b != NO_BLOCK)
        pass_by(a, &a->blocks[b], size, bytes);
    return b != NO_BLOCK;
}

static void take_back(struct caching_allocator *a, int block)
{
    a->blocks[block].allocated = false;
    a->stats.allocated.now -= a->blocks[block].size;
    release_apart(a, block);
}

/* All that is asked of an allocator comes here (caching_calls.c), and what is short is inline: most of a walk's time goes by in it. */
int caching_allocator_serve(struct caching_allocator *a, const struct caching_step *steps, int n, int stream, int *block, uint64_t *trail)
{
    assert(stream >= 0 && stream < CACHING_STREAMS);
    if (stream >= a->nstreams)
        add_streams(a, stream + 1);
    struct block_pool *const *pools = a->pool[stream];

    for (const struct caching_step *s = steps; s < steps + n; s++) {
        int b = NO_BLOCK;
        if (s->what == CACHING_FREE) {
            b = block[s->at];
            if (a->follow)
                caching_follow_release(a, b);
            give_back(a, b);
            continue;
        }
        bool touches = s->what == CACHING_TOUCH;
        if (!touches || !touch(a, pools, s->bytes)) {
            b = allocate(a, pools, s->bytes, stream);
            if (!touches)
                block[s->at] = b;
            if (b < 0)
                return (int)(s - steps);
            if (touches)
                take_back(a, b);
        }
        if (a->follow)
            caching_follow_request(a, touches ? NO_BLOCK : b);
        if (trail && !touches)
            *trail = hash_mix(*trail, (uint64_t)a->blocks[b].addr);
    }
    return n;
}

void caching_allocator_record_stream(struct caching_allocator *a, int block, int stream)
{
    assert(stream >= 0 && stream < CACHING_STREAMS && a->blocks[block].allocated);
    if (stream >= a->nstreams)
        add_streams(a, stream + 1);
    if (stream == a->blocks[block].pool->stream)
        return;
    a->blocks[block].used = true;
    a->aside[block].uses |= 1u << stream;
}

void caching_allocator_complete(struct caching_allocator *a, int stream)
{
    caching_allocator_complete_until(a, stream, a->queue[stream].recorded);
}

void caching_allocator_complete_until(struct caching_allocator *a, int stream, int64_t event)
{
    if (event > a->queue[stream].completed) {
        a->queue[stream].completed = event;
        a->completes = true;
    }
}

int64_t caching_allocator_events(const struct caching_allocator *a, int stream) { return a->queue[stream].recorded; }
int64_t caching_allocator_completed(const struct caching_allocator *a, int stream) { return a->queue[stream].completed; }
