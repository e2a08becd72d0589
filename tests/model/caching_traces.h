/* caching_traces.h -- a seed's trace (tests/golden/allocator/trace.h) through the replay. */
#ifndef DPX_TEST_CACHING_TRACES_H
#define DPX_TEST_CACHING_TRACES_H

#include "tests/check.h"
#include "model/allocator/caching_allocator.h"
#include "tests/golden/allocator/trace.h"

static inline int traced_allocate(void *of, int64_t bytes, int stream) { return caching_allocator_malloc(of, bytes, stream); }
static inline void traced_release(void *of, int block) { caching_allocator_free(of, block); }
static inline void traced_record(void *of, int block, int stream) { caching_allocator_record_stream(of, block, stream); }
static inline void traced_complete(void *of, int stream) { caching_allocator_complete(of, stream); }
static inline void traced_empty(void *of) { caching_allocator_empty_cache(of); }

static inline void traced_count(void *of, struct trace_counters *c)
{
    const struct caching_stats *s = caching_allocator_stats(of);

    *c = (struct trace_counters){ s->allocated.now, s->active.now, s->reserved.now, s->requested.now,
                                  s->inactive_split.now, s->segments, s->retries, s->ooms,
                                  s->allocated.peak, s->active.peak, s->reserved.peak };
}

static inline void traced_count_and_check(void *of, struct trace_counters *c)
{
    assert_true(caching_allocator_check(of));
    traced_count(of, c);
}

static inline uint64_t trace_through_replay(uint64_t seed, bool checked, struct trace_counters *c)
{
    struct trace_options with = trace_options_of(seed);
    struct caching_options o = caching_allocator_defaults();

    o.addresses_rise = true;            /* as the stub's */
    o.expandable_segments = with.expandable;
    o.roundup_power2_divisions = with.roundup_divisions;
    o.garbage_collection_threshold = with.gc_threshold;
    if (with.max_split_mb)
        o.max_split_size = with.max_split_mb << 20;
    if (with.large_segment_mb)
        o.large_segment_size = with.large_segment_mb << 20;
    if (with.fraction > 0)
        o.fraction = with.fraction;
    struct trace_target t = { caching_allocator_new(with.capacity, &o), traced_allocate, traced_release, traced_record,
                              traced_complete, traced_empty, checked ? traced_count_and_check : traced_count };
    uint64_t hash = trace_play(seed, &t, c);
    caching_allocator_delete(t.of);
    return hash;
}

#endif
