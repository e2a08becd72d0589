/* trace.h -- random requests to a caching allocator, from a seed: C and C++, for the replay's test and for the
 * witness, which know nothing of each other.
 *
 * A seed decides the options, the device's size and 400 operations.  After each operation the counters go into a
 * hash: equal hashes mean equal counters all the way. */
#ifndef DPX_ALLOCATOR_TRACE_H
#define DPX_ALLOCATOR_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TRACE_OPERATIONS = 400, TRACE_STREAMS = 4, TRACE_KINDS = 10 };

struct trace_options {
    bool    expandable;
    int64_t max_split_mb, roundup_divisions, large_segment_mb;      /* 0: as the allocator has it */
    double  gc_threshold, fraction;                                 /* 0: none */
    int64_t capacity;
};

struct trace_counters {
    int64_t allocated, active, reserved, requested, inactive_split, segments, retries, ooms;
    int64_t allocated_peak, active_peak, reserved_peak;
};

struct trace_target {
    void *of;
    int  (*allocate)(void *of, int64_t bytes, int stream);          /* a handle, -1: out of memory */
    void (*release)(void *of, int handle);
    void (*record)(void *of, int handle, int stream);
    void (*complete)(void *of, int stream);
    void (*empty)(void *of);
    void (*count)(void *of, struct trace_counters *c);
};

/* Knuth's MMIX generator; the high bits. */
static inline uint64_t trace_next(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

static inline struct trace_options trace_options_of(uint64_t seed)
{
    struct trace_options o;
    uint64_t r = seed * 2654435761u + 12345;
    int kind = (int)(seed % TRACE_KINDS);

    memset(&o, 0, sizeof o);
    trace_next(&r, 2);
    o.capacity = kind % 2 ? (int64_t)(300 + 2 * trace_next(&r, 600)) << 20 : (int64_t)64 << 30;
    o.expandable = kind == 2 || kind == 3 || kind == 9;
    if (kind == 4 || kind == 5)
        o.max_split_mb = 20 + (int64_t)trace_next(&r, 200);
    if (kind == 6)
        o.roundup_divisions = 2 << trace_next(&r, 4);
    if (kind == 7) {
        o.gc_threshold = 0.3 + 0.1 * (double)trace_next(&r, 6);
        o.fraction = 0.5 + 0.125 * (double)trace_next(&r, 4);
    }
    if (kind == 8 || kind == 9)
        o.large_segment_mb = 22 + 2 * (int64_t)trace_next(&r, 40);
    return o;
}

/* As often small, middling and large, and now and then just at a limit of the allocator's. */
static inline int64_t trace_size(uint64_t *r)
{
    static const int64_t limits[] = { 512, 1 << 20, 2 << 20, 10 << 20, 20 << 20, 64 << 20 };
    const int64_t KiB = 1 << 10;

    switch (trace_next(r, 7)) {
    case 0: case 1: return 1 + (int64_t)trace_next(r, 1 << 20);
    case 2:         return KiB * (1 + (int64_t)trace_next(r, 10 << 10));
    case 3:         return 512 * (1 + (int64_t)trace_next(r, 40 << 10));
    case 4: case 5: return KiB * ((8 << 10) + (int64_t)trace_next(r, 100 << 10));
    default:        break;
    }
    int64_t limit = limits[trace_next(r, 6)];
    return limit - 1 + (int64_t)trace_next(r, 3);
}

static inline void trace_hash(uint64_t *hash, const struct trace_counters *c)
{
    const int64_t all[] = { c->allocated, c->active, c->reserved, c->requested, c->inactive_split, c->segments,
                            c->retries, c->ooms, c->allocated_peak, c->active_peak, c->reserved_peak };

    for (int i = 0; i < 11; i++)
        *hash = (*hash ^ (uint64_t)all[i]) * 1099511628211u;        /* FNV-1a, a number at a time */
}

/* Plays a seed's operations; the hash, and the last counters. */
static inline uint64_t trace_play(uint64_t seed, const struct trace_target *t, struct trace_counters *c)
{
    int live[TRACE_OPERATIONS], n = 0;
    uint64_t r = seed, hash = 14695981039346656037u;

    for (int i = 0; i < TRACE_OPERATIONS; i++) {
        uint64_t what = trace_next(&r, 100);
        if (what < 52 || n == 0) {
            int stream = (int)trace_next(&r, 6);
            int64_t bytes = trace_size(&r);
            int h = t->allocate(t->of, bytes, stream < TRACE_STREAMS ? stream : 0);
            if (h >= 0)
                live[n++] = h;
        } else if (what < 88) {
            int k = (int)trace_next(&r, (uint64_t)n);
            t->release(t->of, live[k]);
            live[k] = live[--n];
        } else if (what < 95) {
            int k = (int)trace_next(&r, (uint64_t)n);
            t->record(t->of, live[k], (int)trace_next(&r, TRACE_STREAMS));
        } else if (what < 99) {
            t->complete(t->of, (int)trace_next(&r, TRACE_STREAMS));
        } else {
            t->empty(t->of);
        }
        t->count(t->of, c);
        trace_hash(&hash, c);
    }
    return hash;
}

#endif
