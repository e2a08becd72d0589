/* test_parallel_each.c -- pieces of work by several threads. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once),
        cmocka_unit_test(pieces_may_have_pieces),
        cmocka_unit_test(the_first_failure_is_reported),
    };
    return cmocka_run_group_tests_name("base/parallel", tests, NULL, NULL);
}
