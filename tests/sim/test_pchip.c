/* test_pchip.c -- monotone interpolation between measured points. */
#include "tests/check.h"

#include "sim/price/pchip.h"

#define N(a) ((int)(sizeof(a) / sizeof *(a)))

static double through(int n, const double *x, const double *y, double at)
{
    double slope[16];

    pchip_slopes(n, x, y, slope);
    return pchip_eval(n, x, y, slope, at);
}

static void a_straight_line_stays_straight(void **state)
{
    const double x[] = { 0, 1, 3, 4, 10 }, y[] = { 5, 7, 11, 13, 25 };

    (void)state;
    for (double at = 0; at <= 10; at += .125)
        assert_close(through(N(x), x, y, at), 5 + 2 * at, 1e-14);
}

/* Secants 1 and 3, equal steps: the inner slope is their harmonic mean 1.5, the parabola's
 * slope at 0 is 0.  At 1/2: 1 * 1/4 * 2 - 1.5 * 1/8. */
static void three_points_by_hand(void **state)
{
    const double x[] = { 0, 1, 2 }, y[] = { 0, 1, 4 };
    double slope[3];

    (void)state;
    pchip_slopes(3, x, y, slope);
    assert_close(slope[0], 0, 0);
    assert_close(slope[1], 1.5, 1e-15);
    assert_close(slope[2], 4, 1e-15);
    assert_close(pchip_eval(3, x, y, slope, .5), .5 - .1875, 1e-15);
}

/* Steps 1 and 2, secants 1 and 3: weights 2*2+1 = 5 and 2+2*1 = 4, so 9 / (5/1 + 4/3). */
static void unequal_steps_weigh_the_nearer_secant_more(void **state)
{
    const double x[] = { 0, 1, 3 }, y[] = { 0, 1, 7 };
    double slope[3];

    (void)state;
    pchip_slopes(3, x, y, slope);
    assert_close(slope[1], 27. / 19, 1e-15);
}

static void the_points_themselves_are_kept_and_the_ends_hold(void **state)
{
    const double x[] = { 1, 2, 4, 8 }, y[] = { 3, 3, 10, 9 };

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_close(through(4, x, y, x[i]), y[i], 1e-15);
    assert_close(through(4, x, y, -5), 3, 0);
    assert_close(through(4, x, y, 50), 9, 0);
    assert_close(through(1, x, y, 7), 3, 0);
    assert_close(through(2, x + 1, y + 1, 3), 6.5, 1e-15);
}

/* A cubic spline would overshoot at this step. */
static void the_curve_never_leaves_the_values_around_it(void **state)
{
    const double x[] = { 0, 1, 2, 3, 4, 5.5, 7 }, y[] = { 0, 0, 0.1, 10, 10, 10.2, 30 };
    double before = 0;

    (void)state;
    for (double at = 0; at <= 7; at += 1. / 64) {
        double v = through(N(x), x, y, at);
        assert_true(v >= before - 1e-12);
        before = v;
    }
    for (double at = 3; at <= 4; at += 1. / 64)
        assert_close(through(N(x), x, y, at), 10, 1e-14);
}

static void falling_values_are_pooled_to_their_mean(void **state)
{
    double a[] = { 1, 3, 2, 4 }, b[] = { 4, 3, 2, 1 }, c[] = { 1, 2, 1, 0 }, d[] = { 1, 2, 3 };
    const double wa[] = { 1, 2.5, 2.5, 4 };

    (void)state;
    pchip_monotone(4, a);
    pchip_monotone(4, b);
    pchip_monotone(4, c);
    pchip_monotone(3, d);
    for (int i = 0; i < 4; i++) {
        assert_close(a[i], wa[i], 1e-15);
        assert_close(b[i], 2.5, 1e-15);
        assert_close(c[i], 1, 1e-15);
    }
    assert_close(d[2], 3, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_straight_line_stays_straight),
        cmocka_unit_test(three_points_by_hand),
        cmocka_unit_test(unequal_steps_weigh_the_nearer_secant_more),
        cmocka_unit_test(the_points_themselves_are_kept_and_the_ends_hold),
        cmocka_unit_test(the_curve_never_leaves_the_values_around_it),
        cmocka_unit_test(falling_values_are_pooled_to_their_mean),
    };
    return cmocka_run_group_tests_name("sim/pchip", tests, NULL, NULL);
}
