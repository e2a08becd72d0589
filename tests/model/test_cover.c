/* test_cover.c -- what stretches of time cover, against counting single moments. */
#include "tests/check.h"

#include <stdlib.h>

#include "base/cover.h"

/* 10 to 20 and 15 to 30 are one stretch; 40 to 50 another. */
static void stretches_join_where_they_overlap(void **state)
{
    struct cover c = { 0 };

    (void)state;
    assert_int_equal(cover_free_of(&c, 0, 100), 100);
    cover_add(&c, 10, 20);
    cover_add(&c, 15, 30);
    cover_add(&c, 30, 30);              /* nothing */
    cover_add(&c, 40, 50);
    assert_int_equal(c.n, 2);
    assert_int_equal(cover_free_of(&c, 0, 100), 100 - 20 - 10);
    assert_int_equal(cover_free_of(&c, 12, 45), 10);
    assert_int_equal(cover_free_of(&c, 20, 30), 0);
    assert_int_equal(cover_free_of(&c, 50, 60), 10);
    assert_int_equal(cover_free_of(&c, 25, 25), 0);
    assert_int_equal(cover_free_of(&c, 30, 20), 0);
    cover_free(&c);
    assert_int_equal(c.n, 0);
}

enum { MOMENTS = 64 };

static void it_is_the_number_of_moments_that_nothing_covers(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        char covered[MOMENTS] = { 0 };
        struct cover c = { 0 };
        int from = 0;
        for (int i = 0, n = rand_r(&seed) % 8; i < n; i++) {
            from += rand_r(&seed) % 12;
            int to = from + rand_r(&seed) % 12;
            for (int t = from; t < to && t < MOMENTS; t++)
                covered[t] = 1;
            cover_add(&c, from, to);
        }
        for (int i = 0; i < 20; i++) {
            int a = rand_r(&seed) % MOMENTS, b = a + rand_r(&seed) % (MOMENTS - a), want = 0;
            for (int t = a; t < b; t++)
                want += !covered[t];
            assert_int_equal(cover_free_of(&c, a, b), want);
        }
        cover_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stretches_join_where_they_overlap),
        cmocka_unit_test(it_is_the_number_of_moments_that_nothing_covers),
    };

    return cmocka_run_group_tests_name("base/cover", tests, NULL, NULL);
}
