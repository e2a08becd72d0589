/* caching_allocator.c -- malloc, free, events and what happens when the device is full, as
 * CUDACachingAllocator.cpp does them.  Blocks and lists: caching_blocks.c. */
#include "model/allocator/caching_allocator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/room.h"
#include "model/allocator/caching_allocator_internal.h"

#define MiB ((int64_t)1 << 20)

/* kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kRoundLarge. */
#define MIN_BLOCK     ((int64_t)512)
#define SMALL_SIZE    (1 * MiB)
#define SMALL_SEGMENT (2 * MiB)
#define MIN_LARGE     (10 * MiB)
#define ROUND_LARGE   (2 * MiB)

_Static_assert(CACHING_STREAMS <= 32, "struct block's uses has a bit for each stream");

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
    a->next_addr = SMALL_SEGMENT;
    a->last_addr = CACHING_LAST_ADDR;
    a->unused = NO_BLOCK;
    return a;
}

void caching_allocator_delete(struct caching_allocator *a)
{
    if (!a)
        return;
    for (int s = 0; s < CACHING_STREAMS; s++)
        free(a->queue[s].at);
    free(a->blocks);
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

    if (bytes < MIN_BLOCK)
        return MIN_BLOCK;
    if (d <= 1 || bytes <= MIN_BLOCK * d)
        return round_up(bytes, MIN_BLOCK);
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

static bool should_split(const struct caching_allocator *a, const struct block *b, int64_t size)
{
    int64_t rest = b->size - size;

    if (b->small || a->o.expandable_segments)
        return rest >= MIN_BLOCK;
    return size < a->o.max_split_size && rest > SMALL_SIZE;
}

/* ---- freed blocks ---- */

static void split_meter(struct caching_allocator *a, const struct block *b, int64_t bytes)
{
    if (b->range == NO_RANGE)           /* free pages of an expandable segment can be given back */
        caching_meter_add(&a->stats.inactive_split, bytes);
}

/* Free, and of the same kind: a block and its neighbour in a segment, which is in its list. */
static bool joins(const struct caching_allocator *a, const struct block *b, int other)
{
    const struct block *o = other != NO_BLOCK ? &a->blocks[other] : NULL;

    return o && !o->allocated && o->events == 0 && o->mapped == b->mapped;
}

/* The block with its free neighbours becomes one. */
static void join(struct caching_allocator *a, int i, bool with_prev, bool with_next)
{
    struct block *b = &a->blocks[i];
    struct block_list *l = caching_list_of(a, b);
    int prev = b->prev, next = b->next;

    if (with_prev) {
        const struct block *p = &a->blocks[prev];
        caching_list_take(a, l, prev);
        b->addr = p->addr;
        b->size += p->size;
        caching_block_link(a, i, p->prev, b->next);
        caching_block_drop(a, prev);
    }
    if (with_next) {
        const struct block *n = &a->blocks[next];
        caching_list_take(a, l, next);
        b->size += n->size;
        caching_block_link(a, i, b->prev, n->next);
        caching_block_drop(a, next);
    }
}

/* No stream needs the block any more. */
static void release(struct caching_allocator *a, int i)
{
    struct block *b = &a->blocks[i];
    int64_t size = b->size;
    bool with_prev = joins(a, b, b->prev), with_next = joins(a, b, b->next);

    a->stats.active.now -= size;
    a->stats.requested.now -= b->requested;
    if (with_prev || with_next)
        join(a, i, with_prev, with_next);
    caching_block_insert(a, i);
    split_meter(a, b, (caching_block_split(b) ? b->size : 0) - (b->size - size));
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
    a->blocks[block].events++;
    a->npending++;
}

static void pop_event(struct caching_allocator *a, struct pending_queue *q)
{
    int block = q->at[q->first++].block;

    if (--q->n == 0)
        q->first = 0;
    a->npending--;
    if (--a->blocks[block].events == 0)
        release(a, block);
}

/* Of each stream, up to the first event that has not completed. */
static void process_events(struct caching_allocator *a)
{
    for (int s = 0; s < a->nstreams; s++) {
        struct pending_queue *q = &a->queue[s];
        while (q->n > 0 && q->at[q->first].event <= q->completed)
            pop_event(a, q);
    }
}

static void synchronize_events(struct caching_allocator *a)
{
    for (int s = 0; s < a->nstreams; s++)
        caching_allocator_complete(a, s);
    process_events(a);
}

/* ---- giving back to the device ---- */

static void release_segment(struct caching_allocator *a, int block)
{
    caching_block_remove(a, block);
    caching_give(a, a->blocks[block].size);
    a->stats.segments--;
    caching_block_drop(a, block);
}

static bool is_segment(const struct block *b) { return b->range == NO_RANGE && !caching_block_split(b); }

static void release_list(struct caching_allocator *a, struct block_list *l)
{
    int nexpandable = 0, kept = 0, n = l->n;
    int32_t *expandable = room_new((size_t)n, sizeof *expandable);
    int32_t *all = room_new((size_t)n, sizeof *all);

    for (int i = 0, at = caching_list_first(l); i < n; i++, at = caching_list_next(a, l, at))
        all[i] = at;
    for (int i = 0; i < n; i++) {
        const struct block *b = &a->blocks[all[i]];
        if (is_segment(b))
            release_segment(a, all[i]);
        else if (b->range != NO_RANGE)
            expandable[nexpandable++] = all[i];
        else
            kept++;
    }
    assert(l->n == nexpandable + kept);
    for (int i = 0; i < nexpandable; i++)
        caching_unmap(a, expandable[i]);
    free(all);
    free(expandable);
}

void caching_allocator_empty_cache(struct caching_allocator *a)
{
    synchronize_events(a);
    for (int small = 0; small < 2; small++)
        for (int s = 0; s < a->nstreams; s++)
            if (!(a->kept >> s & 1))
                release_list(a, &a->pool[s].free[small]);
}

void caching_allocator_keep(struct caching_allocator *a, int stream)
{
    assert(stream >= 0 && stream < CACHING_STREAMS);
    a->kept |= 1u << stream;
}

/* With max_split_size: enough oversize blocks of the stream for this request, the largest first; none of an expandable segment
 * (release_available_cached_blocks()). */
static bool release_available(struct caching_allocator *a, int stream, bool small, int64_t size)
{
    struct block_list *l = &a->pool[stream].free[small];
    int64_t key = size > a->o.max_split_size ? size : a->o.max_split_size, released = 0;

    if (a->o.max_split_size == INT64_MAX || a->o.expandable_segments || a->kept >> stream & 1)
        return false;
    int b = caching_list_least(a, l, key);
    if (b != NO_BLOCK) {
        release_segment(a, b);
        return true;
    }
    while (released < key && (b = caching_list_last(a, l)) != NO_BLOCK && a->blocks[b].size >= a->o.max_split_size) {
        released += a->blocks[b].size;
        release_segment(a, b);
    }
    return released >= key;
}

/* ---- garbage collection ---- */


/* Unsplit free blocks of the large pool: how many, and in how many requests they were not used. */
struct ages { int64_t total; int n; };

static int64_t age(const struct caching_allocator *a, int block) { return a->lookups[0] - a->blocks[block].inserted; }

static struct ages ages(const struct caching_allocator *a)
{
    struct ages sum = { 0 };

    for (int s = 0; s < a->nstreams; s++) {
        if (a->kept >> s & 1)
            continue;
        const struct block_list *l = &a->pool[s].free[0];
        for (int b = caching_list_first(l); b != NO_BLOCK; b = caching_list_next(a, l, b))
            if (is_segment(&a->blocks[b])) {
                sum.total += age(a, b);
                sum.n++;
            }
    }
    return sum;
}

/* Releases what is at least as old as `oldest`; the bytes. */
static int64_t collect_older(struct caching_allocator *a, double oldest, struct ages *left)
{
    int64_t bytes = 0;

    for (int s = 0; s < a->nstreams; s++) {
        struct block_list *l = &a->pool[s].free[0];
        for (int b = a->kept >> s & 1 ? NO_BLOCK : caching_list_first(l), next; b != NO_BLOCK; b = next) {
            next = caching_list_next(a, l, b);
            if (!is_segment(&a->blocks[b]) || (double)age(a, b) < oldest)
                continue;
            bytes += a->blocks[b].size;
            left->total -= age(a, b);
            left->n--;
            release_segment(a, b);
        }
    }
    return bytes;
}

static void collect(struct caching_allocator *a)
{
    int64_t threshold = (int64_t)(a->o.garbage_collection_threshold * (double)a->allowed);
    int64_t target = a->stats.reserved.now - threshold, reclaimed = 0;
    struct ages left = ages(a);

    while (reclaimed < target && left.n > 0) {
        int64_t bytes = collect_older(a, (double)left.total / left.n, &left);
        if (bytes == 0)
            break;
        reclaimed += bytes;
    }
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

/* The smallest free block that fits, or NO_BLOCK. */
static inline int find_free(struct caching_allocator *a, const struct block_list *l, bool small, int64_t size)
{
    int i = caching_list_least(a, l, size);

    if (a->collects)
        a->lookups[small]++;
    if (i == NO_BLOCK)
        return NO_BLOCK;
    if (a->o.expandable_segments)
        i = least_growable(a, l, i);
    const struct block *b = &a->blocks[i];
    if (size < a->o.max_split_size ? b->size >= a->o.max_split_size : b->size >= size + a->o.max_non_split_rounding)
        return NO_BLOCK;
    if (a->follow && b->after != NO_BLOCK && a->blocks[b->after].size == b->size)
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
    int b = caching_block_new(a, stream, small, address_of(a, mapped), bytes);
    a->segments = caching_grown(a->segments, a->nsegments, &a->cap_segments, sizeof *a->segments);
    a->segments[a->nsegments] = (struct segment){ a->blocks[b].addr, bytes, (uint8_t)stream, small };
    a->blocks[b].segment = a->nsegments++;
    return b;
}

static int new_block_or_retry(struct caching_allocator *a, int stream, bool small, int64_t size)
{
    if (a->collects)
        collect(a);
    int b = new_block(a, stream, small, size);
    if (b == NO_BLOCK && release_available(a, stream, small, size))
        b = new_block(a, stream, small, size);
    if (b != NO_BLOCK)
        return b;
    caching_allocator_empty_cache(a);
    a->stats.retries++;
    return new_block(a, stream, small, size);
}

/* Hands out the first `size` bytes of a block, or all of it.  NULL: it is in no list, else in this one. */
static int take_of(struct caching_allocator *a, int i, int64_t size, struct block_list *l)
{
    bool split = caching_block_split(&a->blocks[i]);

    if (!should_split(a, &a->blocks[i], size)) {
        if (l)
            caching_list_take(a, l, i);
        if (split)
            split_meter(a, &a->blocks[i], -a->blocks[i].size);
        return i;
    }
    int first = caching_block_new(a, a->blocks[i].stream, a->blocks[i].small, a->blocks[i].addr, size);
    struct block *rest = &a->blocks[i];
    a->blocks[first].range = rest->range;
    a->blocks[first].segment = rest->segment;
    caching_block_link(a, first, rest->prev, i);
    if (l) {
        caching_list_cut(a, l, i, size);
        rest->inserted = a->lookups[rest->small];
    } else {
        rest->addr += size;
        rest->size -= size;
        caching_block_insert(a, i);
    }
    split_meter(a, rest, split ? -size : rest->size);
    return first;
}

static int allocate(struct caching_allocator *a, int64_t bytes, int stream)
{
    int64_t size = round_size(&a->o, bytes);
    bool small = size <= SMALL_SIZE;
    struct caching_stats *s = &a->stats;

    assert(bytes > 0 && stream >= 0 && stream < CACHING_STREAMS);
    if (stream >= a->nstreams)
        a->nstreams = stream + 1;
    if (a->npending > 0)
        process_events(a);
    int64_t peak = s->reserved.peak;
    struct block_list *l = &a->pool[stream].free[small];
    int b = find_free(a, l, small, size);
    if (b == NO_BLOCK) {
        l = NULL;
        b = new_block_or_retry(a, stream, small, size);
    }
    if (b == NO_BLOCK) {
        s->ooms++;
        return -1;
    }
    b = take_of(a, b, size, l);
    a->blocks[b].allocated = true;
    a->blocks[b].requested = bytes;
    caching_meter_add(&s->allocated, a->blocks[b].size);
    caching_meter_add(&s->active, a->blocks[b].size);
    caching_meter_add(&s->requested, bytes);
    if (s->reserved.peak > peak)
        s->idle_at_peak = s->reserved.now - s->active.now;
    return b;
}

int caching_allocator_malloc(struct caching_allocator *a, int64_t bytes, int stream)
{
    int b = allocate(a, bytes, stream);

    if (a->follow && b >= 0)
        caching_follow_request(a, b);
    return b;
}

static void give_back(struct caching_allocator *a, int block)
{
    struct block *b = &a->blocks[block];
    uint32_t uses = b->uses;

    assert(b->allocated);
    b->allocated = false;
    b->uses = 0;
    a->stats.allocated.now -= b->size;
    for (int s = 0; uses >> s; s++)
        if (uses >> s & 1)
            record_event(a, s, block);
    if (b->events == 0)
        release(a, block);
}

void caching_allocator_free(struct caching_allocator *a, int block)
{
    if (a->follow)
        caching_follow_release(a, block);
    give_back(a, block);
}

/* What malloc and free leave of it: peaks. */
static void pass_by(struct caching_allocator *a, const struct block *b, int64_t size, int64_t bytes)
{
    bool split = caching_block_split(b), cut = should_split(a, b, size);
    int64_t taken = cut ? size : b->size, rest = b->size - taken;
    const int64_t more[] = { taken, taken, bytes, b->range == NO_RANGE ? split ? -taken : rest : 0 };
    struct caching_stats *s = &a->stats;
    struct caching_meter *const meters[] = { &s->allocated, &s->active, &s->requested, &s->inactive_split };

    for (int i = 0; i < 4; i++)
        if (meters[i]->now + more[i] > meters[i]->peak)
            meters[i]->peak = meters[i]->now + more[i];
}

int caching_allocator_touch(struct caching_allocator *a, int64_t bytes, int stream)
{
    int64_t size = round_size(&a->o, bytes);
    bool small = size <= SMALL_SIZE;

    if (a->npending > 0)
        process_events(a);
    int b = a->collects || stream >= a->nstreams ? NO_BLOCK : find_free(a, &a->pool[stream].free[small], small, size);
    if (b != NO_BLOCK) {
        pass_by(a, &a->blocks[b], size, bytes);
    } else {
        b = allocate(a, bytes, stream);
        if (b >= 0)
            give_back(a, b);
    }
    if (a->follow && b >= 0)
        caching_follow_request(a, NO_BLOCK);
    return b < 0 ? -1 : 0;
}

int caching_allocator_serve(struct caching_allocator *a, const struct caching_step *steps, int n, int stream, int *block, uint64_t *trail)
{
    for (int i = 0; i < n; i++) {
        const struct caching_step *s = &steps[i];
        if (s->what == CACHING_FREE) {
            caching_allocator_free(a, block[s->at]);
        } else if (s->what == CACHING_TOUCH) {
            if (caching_allocator_touch(a, s->bytes, stream) < 0)
                return i;
        } else {
            if ((block[s->at] = caching_allocator_malloc(a, s->bytes, stream)) < 0)
                return i;
            if (trail)
                *trail = hash_mix(*trail, (uint64_t)a->blocks[block[s->at]].addr);
        }
    }
    return n;
}

void caching_allocator_record_stream(struct caching_allocator *a, int block, int stream)
{
    assert(stream >= 0 && stream < CACHING_STREAMS && a->blocks[block].allocated);
    if (stream >= a->nstreams)
        a->nstreams = stream + 1;
    if (stream != a->blocks[block].stream)
        a->blocks[block].uses |= 1u << stream;
}

void caching_allocator_complete(struct caching_allocator *a, int stream)
{
    a->queue[stream].completed = a->queue[stream].recorded;
}

void caching_allocator_complete_until(struct caching_allocator *a, int stream, int64_t event)
{
    if (event > a->queue[stream].completed)
        a->queue[stream].completed = event;
}

int64_t caching_allocator_events(const struct caching_allocator *a, int stream) { return a->queue[stream].recorded; }
int64_t caching_allocator_completed(const struct caching_allocator *a, int stream) { return a->queue[stream].completed; }

/* ---- invariants ---- */

static bool list_is_sound(const struct caching_allocator *a, const struct block_list *l, bool mapped)
{
    const struct block *before = NULL;
    int n = 0;

    for (int i = caching_list_first(l); i != NO_BLOCK; i = caching_list_next(a, l, i), n++) {
        const struct block *b = &a->blocks[i];
        if (b->allocated || b->events || b->mapped != mapped)
            return false;
        if (before && (mapped && before->size != b->size ? before->size > b->size : before->addr >= b->addr))
            return false;
        before = b;
    }
    return n == l->n;
}

bool caching_allocator_check(const struct caching_allocator *a)
{
    int64_t mapped = 0, allocated = 0, active = 0, split = 0;

    for (int i = 0; i < a->nblocks; i++) {
        const struct block *b = &a->blocks[i];
        if (b->size == 0)
            continue;                   /* unused */
        if (b->next != NO_BLOCK && (a->blocks[b->next].prev != i || a->blocks[b->next].addr != b->addr + b->size))
            return false;
        mapped += b->mapped ? b->size : 0;
        allocated += b->allocated ? b->size : 0;
        active += b->allocated || b->events ? b->size : 0;
        split += !b->allocated && !b->events && b->range == NO_RANGE && caching_block_split(b) ? b->size : 0;
    }
    for (int s = 0; s < CACHING_STREAMS; s++)
        for (int small = 0; small < 2; small++)
            if (!list_is_sound(a, &a->pool[s].free[small], true) ||
                !list_is_sound(a, &a->pool[s].unmapped[small], false))
                return false;
    return mapped == a->stats.reserved.now && allocated == a->stats.allocated.now &&
           active == a->stats.active.now && split == a->stats.inactive_split.now;
}
