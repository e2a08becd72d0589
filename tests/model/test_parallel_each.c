/* test_parallel_each.c -- pieces of work by several threads. */
#include "tests/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/parallel.h"

enum { N = 1000 };

static int square(void *of, int64_t i)
{
    ((int64_t *)of)[i] = i * i;
    return 0;
}

static void every_piece_is_done_once(void **state)
{
    (void)state;
    int64_t done[N];

    for (int threads = 0; threads <= 4; threads++) {
        memset(done, -1, sizeof done);
        assert_int_equal(parallel_each(N, threads, square, done), 0);
        for (int i = 0; i < N; i++)
            assert_int_equal(done[i], i * i);
    }
    assert_int_equal(parallel_each(0, 0, square, NULL), 0);
}

static int row(void *of, int64_t i)
{
    return parallel_each(N, 0, square, (int64_t *)of + N * i);
}

static void pieces_may_have_pieces(void **state)
{
    (void)state;
    int64_t *done = calloc(4 * N, sizeof *done);

    assert_non_null(done);
    assert_int_equal(parallel_each(4, 4, row, done), 0);
    for (int i = 0; i < 4 * N; i++)
        assert_int_equal(done[i], (i % N) * (i % N));
    free(done);
}

/* Two pieces of which each waits until the other has begun: half a minute at most. */
static int meet(void *of, int64_t i)
{
    atomic_int *here = of;
    const struct timespec rest = { .tv_nsec = 1000000 };

    (void)i;
    atomic_fetch_add(here, 1);
    for (int k = 0; k < 30000 && atomic_load(here) < 2; k++)
        nanosleep(&rest, NULL);
    return atomic_load(here) == 2 ? 0 : fail("alone");
}

static int meeting(void *of, int64_t i)
{
    return i > 0 ? 0 : parallel_each(2, 0, meet, of);
}

/* Whoever has no piece of its own left helps with pieces of pieces, at any depth; and no more threads than were asked for do. */
static void pieces_of_pieces_are_shared_out(void **state)
{
    (void)state;
    atomic_int here = 0;

    assert_int_equal(parallel_each(1, 2, meeting, &here), 0);
    here = 0;
    assert_int_equal(parallel_each(5, 2, meeting, &here), 0);
}

/* Piece 3 of row 2, and later ones. */
struct failing { int64_t row; };

static int from_3(void *of, int64_t i)
{
    const struct failing *f = of;

    return f->row < 2 || i < 3 ? 0 : fail("piece %d of row %d", (int)i, (int)f->row);
}

static int failing_row(void *of, int64_t i)
{
    (void)of;
    return parallel_each(8, 0, from_3, &(struct failing){ i });
}

static void a_failure_goes_up(void **state)
{
    (void)state;
    char said[64];

    for (int threads = 1; threads <= 4; threads++) {
        fail_capture(said, sizeof said);
        assert_int_equal(parallel_each(4, threads, failing_row, NULL), -1);
        fail_capture(NULL, 0);
        assert_string_equal(said, "piece 3 of row 2");
    }
}

static int deeper(void *of, int64_t i)
{
    struct { int64_t depth; atomic_llong *sum; } *d = of, next = { d->depth - 1, d->sum };

    atomic_fetch_add(d->sum, 1);
    (void)i;
    return next.depth ? parallel_each(3, 0, deeper, &next) : 0;
}

static void any_depth_is_done_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        atomic_llong sum = 0;
        struct { int64_t depth; atomic_llong *sum; } d = { 6, &sum };
        assert_int_equal(parallel_each(3, threads, deeper, &d), 0);
        assert_int_equal(sum, 3 + 9 + 27 + 81 + 243 + 729);
    }
}

/* Pieces in turns: each waits for the one before it, which shares out two pieces that have to meet. */
struct turn { atomic_int *done; int64_t i; };

static bool is_my_turn(void *turn)
{
    const struct turn *t = turn;

    return atomic_load(t->done) == t->i;
}

static int in_turn(void *done, int64_t i)
{
    atomic_int here = 0;

    parallel_wait(is_my_turn, &(struct turn){ done, i });
    int rc = parallel_each(2, 0, meet, &here);
    atomic_fetch_add((atomic_int *)done, 1);
    parallel_changed();
    return rc;
}

static void whoever_waits_for_its_turn_helps(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 4; threads++) {
        atomic_int done = 0;
        assert_int_equal(parallel_each(20, threads, in_turn, &done), 0);
        assert_int_equal(done, 20);
    }
}

static int how_many(void *of, int64_t i)
{
    ((int *)of)[i] = parallel_threads();
    return 0;
}

static void a_piece_by_itself_has_all_threads(void **state)
{
    (void)state;
    int n[2] = { 0 };

    assert_int_equal(parallel_each(1, 3, how_many, n), 0);
    assert_int_equal(n[0], 3);
    assert_int_equal(parallel_each(2, 3, how_many, n), 0);
    assert_int_equal(n[0], 1);
}

/* Of 10 and later ones, which all fail, no thread comes to 11 before one is at 10. */
static int from_10(void *of, int64_t i)
{
    (void)of;
    return i < 10 ? 0 : fail("piece %d", (int)i);
}

static void the_first_failure_is_reported(void **state)
{
    (void)state;
    char said[64];

    for (int threads = 1; threads <= 4; threads++) {
        fail_capture(said, sizeof said);
        assert_int_equal(parallel_each(N, threads, from_10, NULL), -1);
        fail_capture(NULL, 0);
        assert_string_equal(said, "piece 10");
    }
}

/* A library's caller has its notes, whichever thread had them; a program prints each once. */
static int say(void *of, int64_t i)
{
    const struct timespec rest = { .tv_nsec = 1000000 };

    notes_say_once("a note of all");
    notes_say_once("a note of %d", (int)i);
    nanosleep(&rest, NULL);
    return of ? parallel_each(4, 0, say, NULL) : 0;
}

static void notes_are_the_callers(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        json_t *notes = json_array(), *before = notes_divert(notes);
        assert_int_equal(parallel_each(20, threads, say, notes), 0);
        notes_divert(before);
        assert_int_equal(json_array_size(notes), 21);
        json_decref(notes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once),
        cmocka_unit_test(pieces_may_have_pieces),
        cmocka_unit_test(pieces_of_pieces_are_shared_out),
        cmocka_unit_test(a_failure_goes_up),
        cmocka_unit_test(whoever_waits_for_its_turn_helps),
        cmocka_unit_test(any_depth_is_done_once),
        cmocka_unit_test(a_piece_by_itself_has_all_threads),
        cmocka_unit_test(the_first_failure_is_reported),
        cmocka_unit_test(notes_are_the_callers),
    };
    return cmocka_run_group_tests_name("base/parallel", tests, NULL, NULL);
}
