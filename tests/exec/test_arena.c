/* The arena: who may have whose place, what is counted, what is guarded. */
#include "tests/check.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "exec/device/arena.h"

static const struct when start;

/* The moment when n tasks of a stream are done. */
static struct when after(enum stream s, int64_t n)
{
    struct when w = start;

    w.done[s] = n;
    return w;
}

static struct arena *new_arena(bool guarded)
{
    struct arena *a = arena_new(guarded);

    assert_non_null(a);
    return a;
}

/* ---- places ---- */

static void a_place_is_taken_again_only_by_who_waits_for_its_last_use(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    struct when third = after(STREAM_REDUCE, 3), second = after(STREAM_REDUCE, 2);
    int64_t first = arena_take(a, 1000, CAT_BUCKET, &start);

    arena_give(a, first, &third);
    assert_int_not_equal(arena_take(a, 1000, CAT_BUCKET, &start), first);
    assert_int_not_equal(arena_take(a, 1000, CAT_BUCKET, &second), first);
    assert_int_equal(arena_take(a, 1000, CAT_BUCKET, &third), first);
    assert_int_equal(arena_extent(a), 3 * 1024);
    arena_free(a);
}

/* Done on one stream says nothing of another. */
static void moments_of_different_streams_are_not_compared(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    struct when computed = after(STREAM_COMPUTE, 1), much_reduced = after(STREAM_REDUCE, 100);
    int64_t first = arena_take(a, 64, CAT_BUCKET, &start);

    arena_give(a, first, &computed);
    assert_int_not_equal(arena_take(a, 64, CAT_BUCKET, &much_reduced), first);
    when_join(&much_reduced, &computed);
    assert_int_equal(arena_take(a, 64, CAT_BUCKET, &much_reduced), first);
    arena_free(a);
}

static void live_blocks_never_overlap(void **state)
{
    (void)state;
    enum { BLOCKS = 64, ROUNDS = 4000 };
    struct arena *a = new_arena(false);
    struct { int64_t at, bytes; } live[BLOCKS] = { 0 };
    uint32_t random = 1;

    for (int64_t i = 0; i < ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        int k = (int)(random >> 26);
        struct when now = after(STREAM_COMPUTE, i);
        if (live[k].bytes) {
            arena_give(a, live[k].at, &now);
            live[k].bytes = 0;
            continue;
        }
        int64_t bytes = 1 + (random >> 8) % 5000, at = arena_take(a, bytes, CAT_TEMPORARIES, &now);
        assert_int_equal(at % 64, 0);
        for (int j = 0; j < BLOCKS; j++)
            assert_true(!live[j].bytes || at + bytes <= live[j].at || live[j].at + live[j].bytes <= at);
        live[k].at = at;
        live[k].bytes = bytes;
        assert_int_equal(arena_bytes(a, at), bytes);
    }
    arena_free(a);
}

/* Two free neighbours hold one block of both sizes, for a request that waits for both. */
static void free_neighbours_are_one_place(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    struct when one = after(STREAM_COMPUTE, 1), two = after(STREAM_COMPUTE, 2);
    int64_t left = arena_take(a, 640, CAT_PARAMS, &start), right = arena_take(a, 640, CAT_PARAMS, &start);

    arena_give(a, left, &one);
    arena_give(a, right, &two);
    assert_true(arena_take(a, 1280, CAT_PARAMS, &one) >= 1280);
    assert_int_equal(arena_take(a, 1280, CAT_PARAMS, &two), left);
    arena_free(a);
}

/* Of several free places the smallest that is large enough; what is left over stays free. */
static void the_best_fit_is_taken_and_its_rest_kept(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    int64_t large = arena_take(a, 4096, CAT_PARAMS, &start), wall = arena_take(a, 64, CAT_PARAMS, &start);
    int64_t small = arena_take(a, 1024, CAT_PARAMS, &start);

    (void)arena_take(a, 64, CAT_PARAMS, &start);
    arena_give(a, large, &start);
    arena_give(a, small, &start);
    assert_int_equal(arena_take(a, 960, CAT_PARAMS, &start), small);
    assert_int_equal(arena_take(a, 64, CAT_PARAMS, &start), small + 960);
    assert_int_equal(arena_take(a, 4096, CAT_PARAMS, &start), large);
    assert_true(wall > large);
    arena_free(a);
}

/* The same takes and gives find the same addresses: a dry run tells what will be. */
static void addresses_are_the_same_after_a_reset(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    int64_t at[2][20], extent[2];

    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < 20; i++) {
            struct when now = after(STREAM_COMPUTE, i);
            at[run][i] = arena_take(a, 100 * (1 + i % 7), CAT_PARAMS, &now);
            if (i % 3 == 0)
                arena_give(a, at[run][i], &now);
        }
        extent[run] = arena_extent(a);
        if (run == 0) {
            assert_int_equal(arena_map(a, extent[0]), 0);
            arena_reset(a);
        }
    }
    assert_memory_equal(at[0], at[1], sizeof at[0]);
    assert_int_equal(extent[0], extent[1]);
    arena_free(a);
}

/* Repeated, a take has its like's place, also out of the middle of a free one, if it is large enough and free. */
static void repeated_takes_have_the_places_of_before(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);

    arena_repeat(a);
    int64_t wide = arena_take(a, 1024, CAT_PARAMS, &start), one = arena_take(a, 64, CAT_PARAMS, &start);
    int64_t hole = arena_take(a, 64, CAT_PARAMS, &start);
    (void)arena_take(a, 64, CAT_PARAMS, &start);        /* stays */
    arena_give(a, wide, &start);
    arena_give(a, one, &start);
    arena_give(a, hole, &start);
    arena_settled(a, &start);

    uint64_t nobody_there = arena_layout(a);
    arena_repeat(a);
    assert_int_equal(arena_take(a, 1024, CAT_PARAMS, &start), wide);
    assert_int_equal(arena_take(a, 64, CAT_PARAMS, &start), one);
    assert_int_equal(arena_take(a, 64, CAT_PARAMS, &start), hole);
    arena_give(a, wide, &start);
    arena_give(a, one, &start);
    arena_give(a, hole, &start);
    arena_settled(a, &start);
    assert_int_equal(arena_layout(a), nobody_there);

    arena_repeat(a);
    int64_t inside = arena_take(a, 64, CAT_PARAMS, &start);     /* the best fit of the next is right behind it, not its own place */
    assert_int_equal(inside, wide);
    assert_int_equal(arena_take(a, 64, CAT_PARAMS, &start), one);
    int64_t moved = arena_take(a, 1024, CAT_PARAMS, &start);    /* where the third was 64 are free */
    assert_int_not_equal(moved, hole);
    arena_give(a, inside, &start);
    arena_give(a, one, &start);
    arena_give(a, moved, &start);
    arena_settled(a, &start);
    assert_int_not_equal(arena_layout(a), nobody_there);        /* places to come count */

    arena_repeat(a);
    struct when later = after(STREAM_REDUCE, 1);
    int64_t late = arena_take(a, 64, CAT_PARAMS, &later);
    assert_int_equal(late, wide);
    arena_give(a, late, &later);
    arena_repeat(a);
    assert_int_not_equal(arena_take(a, 64, CAT_PARAMS, &start), wide);      /* its last use is not done */
    arena_free(a);
}

static void what_everybody_has_waited_for_lies_together_again(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    struct when one = after(STREAM_COMPUTE, 1), other = after(STREAM_REDUCE, 1), both = one;
    int64_t left = arena_take(a, 64, CAT_PARAMS, &start), right = arena_take(a, 64, CAT_PARAMS, &start);

    arena_give(a, left, &one);
    arena_give(a, right, &other);
    when_join(&both, &other);
    arena_settled(a, &both);
    assert_int_equal(arena_take(a, 128, CAT_PARAMS, &both), left);
    arena_free(a);
}

/* ---- meters ---- */

static void bytes_are_counted_as_asked_for_by_category(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    const struct arena_meter *m = arena_meter(a);
    int64_t params = arena_take(a, 100, CAT_PARAMS, &start);

    (void)arena_take(a, 7, CAT_BUCKET, &start);

    assert_int_equal(m->live, 107);
    assert_int_equal(m->live_by[CAT_BUCKET], 7);
    assert_int_equal(m->live_by[CAT_PARAMS], 100);
    arena_give(a, params, &start);
    (void)arena_take(a, 50, CAT_PARAMS, &start);
    assert_int_equal(m->live, 57);
    assert_int_equal(m->peak, 107);
    assert_int_equal(m->at_peak[CAT_PARAMS], 100);
    arena_free(a);
}

static void nothing_at_all_is_a_place_too(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);
    int64_t one = arena_take(a, 0, CAT_PARAMS, &start), two = arena_take(a, 0, CAT_PARAMS, &start);

    assert_int_not_equal(one, two);
    assert_int_equal(arena_meter(a)->peak, 0);
    arena_give(a, one, &start);
    arena_give(a, two, &start);
    arena_free(a);
}

/* ---- memory ---- */

static void a_mapped_arena_grows_when_it_must(void **state)
{
    (void)state;
    struct arena *a = new_arena(false);

    assert_int_equal(arena_map(a, 4096), 0);
    (void)arena_take(a, 4096, CAT_PARAMS, &start);
    int64_t more = arena_take(a, 4096, CAT_PARAMS, &start);
    assert_int_equal(more, 4096);
    memset(arena_at(a, more), 1, 4096);
    arena_free(a);
}

static sigjmp_buf caught;
static void catch_fault(int signal) { siglongjmp(caught, signal); }

static bool faults(volatile char *at)
{
    struct sigaction old, catching = { .sa_handler = catch_fault };
    volatile bool did = true;

    sigaction(SIGSEGV, &catching, &old);
    if (sigsetjmp(caught, 1) == 0) {
        *at = 1;
        did = false;
    }
    sigaction(SIGSEGV, &old, NULL);
    return did;
}

static void a_guarded_block_ends_where_nobody_may_write(void **state)
{
    (void)state;
    struct arena *a = new_arena(true);

    assert_int_equal(arena_map(a, 64 * 4096), 0);
    char *block = arena_at(a, arena_take(a, 128, CAT_PARAMS, &start));
    assert_false(faults(block + 127));
    assert_true(faults(block + 128));
    arena_free(a);
}

/* A guarded block that comes back is where it was: its guard page stays. */
static void guarded_blocks_keep_their_size(void **state)
{
    (void)state;
    struct arena *a = new_arena(true);
    int64_t one = arena_take(a, 5000, CAT_PARAMS, &start);

    arena_give(a, one, &start);
    assert_int_not_equal(arena_take(a, 100, CAT_PARAMS, &start), one);
    assert_int_equal(arena_take(a, 5000, CAT_PARAMS, &start), one);
    arena_free(a);
}

static bool is_nan(const struct arena *a, int64_t at)
{
    float x;

    memcpy(&x, arena_at(a, at), sizeof x);
    return x != x;
}

static void guarded_bytes_that_nobody_wrote_are_not_numbers(void **state)
{
    (void)state;
    struct arena *a = new_arena(true);
    int64_t at = arena_take(a, 64, CAT_PARAMS, &start);

    assert_int_equal(arena_map(a, arena_extent(a)), 0);
    arena_reset(a);
    assert_int_equal(arena_take(a, 64, CAT_PARAMS, &start), at);
    assert_true(is_nan(a, at));
    memset(arena_at(a, at), 0, 64);
    assert_false(is_nan(a, at));
    arena_poison(a, at, 64);
    assert_true(is_nan(a, at));
    assert_true(is_nan(a, arena_take(a, 64, CAT_PARAMS, &start)));     /* grown */
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_is_taken_again_only_by_who_waits_for_its_last_use),
        cmocka_unit_test(moments_of_different_streams_are_not_compared),
        cmocka_unit_test(live_blocks_never_overlap),
        cmocka_unit_test(free_neighbours_are_one_place),
        cmocka_unit_test(the_best_fit_is_taken_and_its_rest_kept),
        cmocka_unit_test(addresses_are_the_same_after_a_reset),
        cmocka_unit_test(repeated_takes_have_the_places_of_before),
        cmocka_unit_test(what_everybody_has_waited_for_lies_together_again),
        cmocka_unit_test(bytes_are_counted_as_asked_for_by_category),
        cmocka_unit_test(nothing_at_all_is_a_place_too),
        cmocka_unit_test(a_mapped_arena_grows_when_it_must),
        cmocka_unit_test(a_guarded_block_ends_where_nobody_may_write),
        cmocka_unit_test(guarded_blocks_keep_their_size),
        cmocka_unit_test(guarded_bytes_that_nobody_wrote_are_not_numbers),
    };
    return cmocka_run_group_tests_name("exec/arena", tests, NULL, NULL);
}
