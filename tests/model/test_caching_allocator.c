/* The replay of PyTorch's allocator against that allocator: the vectors by name, and random traces whose results
 * released wheels have recorded. */
#include "tests/check.h"
#include "base/fail.h"
#include "model/allocator/caching_allocator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caching_vectors.h"
#include "caching_traces.h"

#define MiB ((int64_t)1 << 20)

enum { NVECTORS = sizeof vectors / sizeof *vectors };
_Static_assert(NVECTORS == 57, "one test for each vector");

static struct caching_allocator *made(const struct vector *v)
{
    struct caching_options o = caching_allocator_defaults();

    o.addresses_rise = true;            /* as those of the stub that the vectors were recorded on */
    o.expandable_segments = v->with.exp;
    if (v->with.max_split)
        o.max_split_size = v->with.max_split * MiB;
    if (v->with.large)
        o.large_segment_size = v->with.large * MiB;
    if (v->with.fraction > 0)
        o.fraction = v->with.fraction;
    o.roundup_power2_divisions = v->with.divisions;
    o.garbage_collection_threshold = v->with.gc;
    return caching_allocator_new((v->with.capacity ? v->with.capacity : 80 << 10) * MiB, &o);
}

/* "30M@1": bytes, and the stream behind the @. */
static int64_t size_of(const char *text, int *stream)
{
    char *end;
    double n = strtod(text, &end);

    if (*end == 'M')
        n *= (double)MiB, end++;
    *stream = *end == '@' ? atoi(end + 1) : 0;
    return (int64_t)n;
}

static void play(struct caching_allocator *a, const char *events)
{
    char text[256], *rest = NULL;
    int block[128], stream;

    snprintf(text, sizeof text, "%s", events);
    for (char *e = strtok_r(text, ";", &rest); e; e = strtok_r(NULL, ";", &rest)) {
        char *words = NULL, *verb = strtok_r(e, " ", &words), *x = strtok_r(NULL, " ", &words);
        char *n = strtok_r(NULL, " ", &words);
        if (!strcmp(verb, "empty"))
            caching_allocator_empty_cache(a);
        else if (!strcmp(verb, "done"))
            caching_allocator_complete(a, atoi(x));
        else if (!strcmp(verb, "r"))
            caching_allocator_record_stream(a, block[(int)*x], atoi(x + 2));
        else if (!strcmp(verb, "many"))
            for (int i = 0; i < atoi(x); i++)
                caching_allocator_malloc(a, atoi(n), 0);
        else if (!strcmp(verb, "f"))
            for (; x; x = n, n = strtok_r(NULL, " ", &words))
                caching_allocator_free(a, block[(int)*x]);
        else {
            int64_t bytes = size_of(n, &stream);
            block[(int)*x] = caching_allocator_malloc(a, bytes, stream);
        }
        assert_true(caching_allocator_check(a));
    }
}

static void a_vector(void **state)
{
    const struct vector *v = *state;
    struct caching_allocator *a = made(v);
    const struct caching_stats *s = caching_allocator_stats(a);

    play(a, v->events);
    assert_int_equal(s->allocated.now, v->allocated);
    assert_int_equal(s->active.now, v->active);
    assert_int_equal(s->reserved.now, v->reserved);
    assert_int_equal(s->allocated.peak, v->allocated_peak ? v->allocated_peak : v->allocated);
    assert_int_equal(s->reserved.peak, v->reserved_peak ? v->reserved_peak : v->reserved);
    assert_int_equal(s->segments, v->segments);
    assert_int_equal(s->ooms, v->ooms);
    assert_int_equal(s->retries, v->retries);
    caching_allocator_delete(a);
}

/* ---- recorded traces ---- */

/* "SEED HASH ALLOCATED ACTIVE RESERVED REQUESTED RETRIES OOMS" a line. */
static int same_as_recorded(const char *line)
{
    unsigned long long seed, hash, got;
    struct trace_counters w, c;

    if (*line == '#')
        return 0;
    assert_int_equal(sscanf(line, "%llu %llx %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64,
                            &seed, &hash, &w.allocated, &w.active, &w.reserved, &w.requested, &w.retries, &w.ooms), 8);
    got = trace_through_replay(seed, false, &c);
    if (got != hash)
        print_error("trace %llu differs from the recorded one\n", seed);
    assert_int_equal(c.allocated, w.allocated);
    assert_int_equal(c.active, w.active);
    assert_int_equal(c.reserved, w.reserved);
    assert_int_equal(c.requested, w.requested);
    assert_int_equal(c.retries, w.retries);
    assert_int_equal(c.ooms, w.ooms);
    assert_true(got == hash);               /* after each operation, with segments, splits and peaks */
    return 1;
}

static void random_traces_are_those_of_torch(void **state)
{
    FILE *f = fopen("tests/golden/allocator/traces.txt", "r");
    char line[512];
    int n = 0;

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        n += same_as_recorded(line);
    fclose(f);
    assert_true(n >= 1000);
}

static void the_invariants_hold_after_every_operation(void **state)
{
    struct trace_counters c;

    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++)
        trace_through_replay(seed, true, &c);
}

/* 64 + 10 of 100 MiB: the first 64 are active when the rest is reserved. */
static void what_is_idle_at_the_peak(void **state)
{
    struct caching_allocator *a = caching_allocator_new(1024 * MiB, NULL);
    int x = caching_allocator_malloc(a, 64 * MiB, 0);

    (void)state;
    caching_allocator_malloc(a, 10 * MiB, 0);
    caching_allocator_free(a, x);
    assert_int_equal(caching_allocator_stats(a)->idle_at_peak, 0);
    caching_allocator_malloc(a, 80 * MiB, 0);
    assert_int_equal(caching_allocator_stats(a)->reserved.peak, 154 * MiB);
    assert_int_equal(caching_allocator_stats(a)->idle_at_peak, 64 * MiB);
    caching_allocator_delete(a);
}

/* 100 MiB are free twice: behind 20 in use in the first segment, and as the whole second one.  Addresses fall, so that the second is taken and no
 * segment is left to give back; where they rise it is the first, and the second can be. */
static void of_equal_blocks_the_lowest_address_is_taken(void **state)
{
    (void)state;
    for (int rise = 0; rise < 2; rise++) {
        struct caching_options o = caching_allocator_defaults();
        o.addresses_rise = rise;
        struct caching_allocator *a = caching_allocator_new(1024 * MiB, &o);
        int whole = caching_allocator_malloc(a, 120 * MiB, 0), second = caching_allocator_malloc(a, 100 * MiB, 0);

        caching_allocator_free(a, whole);
        assert_true(caching_allocator_malloc(a, 20 * MiB, 0) >= 0);
        caching_allocator_free(a, second);
        assert_true(caching_allocator_malloc(a, 100 * MiB, 0) >= 0);
        caching_allocator_empty_cache(a);
        assert_int_equal(caching_allocator_stats(a)->reserved.now, (rise ? 120 : 220) * MiB);
        caching_allocator_delete(a);
    }
}

static void options_are_written_as_pytorch_has_them(void **state)
{
    static const char *const wrong[] = { "expandable_segments", "expandable_segments:yes", "max_split_size_mb:19",
                                         "max_split_size_mb:20.5", "roundup_power2_divisions:3", "backend:cudaMallocAsync",
                                         "garbage_collection_threshold:2", "max_split_size_mb:" };
    struct caching_options o = caching_allocator_defaults();
    char why[512];

    (void)state;
    assert_false(o.expandable_segments);
    assert_int_equal(caching_allocator_configure(&o, "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:8,"
                     "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9,large_segment_size_mb:32"), 0);
    assert_true(o.expandable_segments);
    assert_int_equal(o.max_split_size, 64 * MiB);
    assert_int_equal(o.large_segment_size, 32 * MiB);
    assert_int_equal(o.roundup_power2_divisions, 8);
    assert_close(o.garbage_collection_threshold, 0.5, 0);
    assert_close(o.fraction, 0.9, 0);
    fail_capture(why, sizeof why);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(caching_allocator_configure(&o, wrong[i]), -1);
    fail_capture(NULL, 0);
}

/* A device of 100 MiB of which 40 were a graph's: 80 more find room only where those can be given back. */
static void a_graphs_pool_is_never_given_back(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        struct caching_allocator *a = caching_allocator_new(100 * MiB, NULL);
        int graph = caching_allocator_malloc(a, 40 * MiB, 16);
        if (kept)
            caching_allocator_keep(a, 16);
        caching_allocator_free(a, graph);
        assert_int_equal(caching_allocator_malloc(a, 80 * MiB, 0) >= 0, !kept);
        assert_int_equal(caching_allocator_stats(a)->retries, 1);
        caching_allocator_empty_cache(a);
        assert_int_equal(caching_allocator_stats(a)->reserved.now, kept ? 40 * MiB : 80 * MiB);
        assert_int_equal(caching_allocator_malloc(a, 40 * MiB, 16) >= 0, kept);        /* the graph's next replay finds it */
        assert_true(caching_allocator_check(a));
        caching_allocator_delete(a);
    }
}

static int64_t state_of(struct caching_allocator *a, int64_t **out)
{
    int64_t n = caching_allocator_state(a, NULL);

    *out = n > 0 ? calloc((size_t)n, sizeof **out) : NULL;
    return n > 0 ? caching_allocator_state(a, *out) : n;
}

/* Requests that end where they began leave the state of before, whatever handles they had; one block more, or elsewhere, is another. */
static void a_state_comes_back_with_what_is_allocated(void **state)
{
    struct caching_allocator *a = caching_allocator_new((int64_t)1 << 34, NULL);
    int64_t *before, *after, n;
    int kept = caching_allocator_malloc(a, 3 << 20, 0), gone = caching_allocator_malloc(a, 5 << 20, 0);

    (void)state;
    caching_allocator_free(a, gone);
    n = state_of(a, &before);
    for (int i = 0; i < 3; i++) {
        int x = caching_allocator_malloc(a, 1000, 0), y = caching_allocator_malloc(a, (4 + i) << 20, 0);
        if (i == 0) {               /* the small one is in a segment that was not there */
            caching_allocator_free(a, x);
            caching_allocator_free(a, y);
            free(before);
            n = state_of(a, &before);
            continue;
        }
        assert_int_not_equal(state_of(a, &after), n);
        free(after);
        caching_allocator_free(a, i == 1 ? x : y);
        caching_allocator_free(a, i == 1 ? y : x);
        assert_int_equal(state_of(a, &after), n);
        assert_memory_equal(before, after, (size_t)n * sizeof *before);
        free(after);
    }
    int64_t at = caching_allocator_address(a, kept);
    int other = caching_allocator_malloc(a, 3 << 20, 0);
    caching_allocator_free(a, kept);
    assert_int_not_equal(caching_allocator_address(a, other), at);
    if (state_of(a, &after) == n)
        assert_memory_not_equal(before, after, (size_t)n * sizeof *before);
    free(after);
    free(before);
    caching_allocator_delete(a);
}

/* A block that is freed while another stream has an event to come: the state is the same for the next such block, whatever the number of its
 * event, and another one once the event is done. */
static void a_state_comes_back_with_what_streams_wait_for(void **state)
{
    struct caching_allocator *a = caching_allocator_new((int64_t)1 << 34, NULL);
    int64_t *before = NULL, *now, n = -1;

    (void)state;
    caching_allocator_free(a, caching_allocator_malloc(a, 1000, 0));    /* both segments are there */
    for (int64_t i = 1; i <= 3; i++) {
        int x = caching_allocator_malloc(a, 3 << 20, 0);
        caching_allocator_record_stream(a, x, 3);
        caching_allocator_free(a, x);
        assert_int_equal(caching_allocator_events(a, 3), i);
        if (i == 1)
            n = state_of(a, &before);
        assert_int_equal(state_of(a, &now), n);
        assert_memory_equal(before, now, (size_t)n * sizeof *before);
        free(now);
        caching_allocator_complete_until(a, 3, i);
        assert_int_equal(caching_allocator_completed(a, 3), i);
        state_of(a, &now);
        assert_memory_not_equal(before, now, (size_t)n * sizeof *before);
        free(now);
        caching_allocator_free(a, caching_allocator_malloc(a, 1000, 0));        /* sees that it is done */
    }
    free(before);
    caching_allocator_delete(a);
}

/* Random requests of a device that is often full, with every pair of options: the allocator's own invariants hold, and no block is
 * handed out twice. */
static void full_devices_keep_their_invariants(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 200; seed++) {
        struct caching_options o = caching_allocator_defaults();
        o.expandable_segments = seed % 2;
        o.max_split_size = seed / 2 % 2 ? 64 << 20 : INT64_MAX;
        o.roundup_power2_divisions = seed / 4 % 2 ? 4 : 0;
        struct caching_allocator *a = caching_allocator_new((int64_t)1 << 31, &o);
        int held[60], n = 0;
        unsigned r = seed * 2654435761u + 1;
        for (int i = 0; i < 300; i++) {
            r = r * 1664525u + 1013904223u;
            int64_t bytes = (int64_t)(1 + (r >> 8) % 600) << 19;
            if (r >> 30 == 0) {
                caching_allocator_touch(a, bytes, 0);
            } else if (n < 60 && r >> 29 & 1) {
                if ((held[n] = caching_allocator_malloc(a, bytes, 0)) >= 0) {
                    for (int k = 0; k < n; k++)
                        assert_int_not_equal(held[k], held[n]);
                    n++;
                }
            } else if (n > 0) {
                int k = (int)((r >> 4) % (unsigned)n);
                caching_allocator_free(a, held[k]);
                held[k] = held[--n];
            }
            assert_true(caching_allocator_check(a));
        }
        caching_allocator_delete(a);
    }
}

/* Two blocks of 100 MiB are freed into the cache of a device of 300.  Others take 150 of it: a block of 120 finds no room until the cache is given back;
 * of 100 more there is none. */
static void others_take_of_the_device(void **state)
{
    struct caching_allocator *a = caching_allocator_new(300 * MiB, NULL);
    int one = caching_allocator_malloc(a, 100 * MiB, 0), two = caching_allocator_malloc(a, 100 * MiB, 0);

    (void)state;
    caching_allocator_free(a, one);
    caching_allocator_free(a, two);
    assert_int_equal(caching_allocator_stats(a)->reserved.now, 200 * MiB);
    caching_allocator_resize(a, 150 * MiB);
    assert_true(caching_allocator_malloc(a, 120 * MiB, 0) >= 0);
    assert_int_equal(caching_allocator_stats(a)->reserved.now, 120 * MiB);
    assert_int_equal(caching_allocator_stats(a)->retries, 1);
    assert_int_equal(caching_allocator_malloc(a, 100 * MiB, 0), -1);
    caching_allocator_delete(a);
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(a_graphs_pool_is_never_given_back),
        cmocka_unit_test(random_traces_are_those_of_torch),
        cmocka_unit_test(the_invariants_hold_after_every_operation),
        cmocka_unit_test(what_is_idle_at_the_peak),
        cmocka_unit_test(of_equal_blocks_the_lowest_address_is_taken),
        cmocka_unit_test(options_are_written_as_pytorch_has_them),
        cmocka_unit_test(others_take_of_the_device),
        cmocka_unit_test(a_state_comes_back_with_what_is_allocated),
        cmocka_unit_test(a_state_comes_back_with_what_streams_wait_for),
        cmocka_unit_test(full_devices_keep_their_invariants),
    };
    enum { NOTHERS = sizeof others / sizeof *others };
    struct CMUnitTest tests[NVECTORS + NOTHERS] = { 0 };

    for (int i = 0; i < NVECTORS; i++)
        tests[i] = (struct CMUnitTest){ .name = vectors[i].name, .test_func = a_vector,
                                        .initial_state = (void *)(uintptr_t)&vectors[i] };
    memcpy(tests + NVECTORS, others, sizeof others);
    return cmocka_run_group_tests_name("model/caching_allocator", tests, NULL, NULL);
}
