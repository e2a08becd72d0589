/* Samples packed into rows by arithmetic, and which of two layouts is faster where intervals are wide. */
#include "tests/check.h"

#include <string.h>

#include "sim/phases/lengths.h"
#include "sim/plan/phases.h"

/* Responses of one length: a row has as many as fit. */
static void equal_samples_fill_rows(void **state)
{
    struct lengths l = { 900, 900 };

    (void)state;
    assert_int_equal(lengths_rows(&l, 100, 1000, 64), 64);
    assert_int_equal(lengths_rows(&l, 100, 1999, 64), 64);
    assert_int_equal(lengths_rows(&l, 100, 2000, 64), 32);
    assert_int_equal(lengths_rows(&l, 100, 4096, 64), 16);
    assert_int_equal(lengths_rows(&l, 100, 4096, 4096), 1024);
}

/* Evenly spread from 0 to 1000 a long one and a short one make a row: the tokens fill all rows but one at most.  As long as half of a row and more, none
 * finds another. */
static void long_ones_take_short_ones_in(void **state)
{
    struct lengths even = { 500, 1000 };

    (void)state;
    assert_int_equal(lengths_rows(&even, 0, 1000, 512), 256);
    assert_int_equal(lengths_rows(&even, 1001, 2001, 512), 512);
    for (int64_t n = 1; n <= 512; n *= 2) {
        struct lengths l = { 700, 1000 };
        int64_t rows = lengths_rows(&l, 50, 1050, n);
        assert_true((double)rows * 1050 >= 0.99 * 750 * (double)n && rows <= n);
    }
}

static struct phases_layout layout(bool apart, double s, double low, double high)
{
    struct phases_layout l = { .apart = apart, .iteration = { .s = s } };

    for (int i = 0; i < PHASE_CORNERS; i++)
        l.corner[i] = i & PHASE_CORNER_OF_GENERATION ? high : low;
    return l;
}

/* Of one engine both are slow or both are fast: intervals that meet do not hide which is faster, unless it turns with them. */
static void what_both_do_not_know_cancels(void **state)
{
    struct phases_layout a = layout(false, 10, 5, 20), b = layout(true, 12, 6, 24), c = layout(true, 12, 4, 24);

    (void)state;
    assert_int_equal(phases_faster(&a, &b), -1);
    assert_int_equal(phases_faster(&b, &a), 1);
    assert_int_equal(phases_faster(&a, &c), 0);
    assert_int_equal(phases_faster(&a, &a), 0);
    /* Weights are handed over in two ways, of which one may be slow and the other fast. */
    for (int i = 0; i < PHASE_CORNERS; i++)
        b.corner[i] += i & PHASE_CORNER_OF_HAND_OVER ? 3 : 0;
    assert_int_equal(phases_faster(&a, &b), -1);
    for (int i = 0; i < PHASE_CORNERS; i++)
        a.corner[i] += i & PHASE_CORNER_OF_HAND_OVER ? 3 : 0;
    assert_int_equal(phases_faster(&a, &b), 0);
    b.apart = false;
    assert_int_equal(phases_faster(&a, &b), -1);
}

static void the_fastest_of_each_kind(void **state)
{
    struct phases_layout l[] = { layout(true, 1, 1, 1), layout(true, 2, 2, 2), layout(false, 3, 3, 3) };

    (void)state;
    assert_ptr_equal(phases_fastest(l, 3, true), &l[0]);
    assert_ptr_equal(phases_fastest(l, 3, false), &l[2]);
    assert_null(phases_fastest(l, 2, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_samples_fill_rows),
        cmocka_unit_test(long_ones_take_short_ones_in),
        cmocka_unit_test(what_both_do_not_know_cancels),
        cmocka_unit_test(the_fastest_of_each_kind),
    };
    return cmocka_run_group_tests_name("sim/phases_rows", tests, NULL, NULL);
}
