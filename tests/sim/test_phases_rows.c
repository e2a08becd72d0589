/* Samples packed into rows by arithmetic, draws of what is not known, and which of two layouts is faster where intervals are wide. */
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

/* ---- draws of what is not known ---- */

static struct phases plans[2];

/* `n` phases of one kind, and what each takes. */
static void add_phases(struct phases *p, enum phase_does does, int n, struct cost time)
{
    for (int i = 0; i < n; i++) {
        p->plan.step[p->plan.nsteps].does = does;
        p->time[p->plan.nsteps++] = time;
    }
}

static struct phases *open_plan(int i, bool asynchronous)
{
    memset(&plans[i], 0, sizeof plans[i]);
    plans[i].plan.asynchronous = asynchronous;
    return &plans[i];
}

static struct phases_quotient quotient(void)
{
    static struct phases_layout l[2];

    for (int i = 0; i < 2; i++) {
        phases_iterate(&plans[i]);
        l[i].iteration = plans[i].iteration;
        memcpy(l[i].draw, plans[i].draw, sizeof l[i].draw);
    }
    return phases_quotient_of(&l[0], &l[1]);
}

static void is_quotient(double middle, double low, double high, double within)
{
    struct phases_quotient q = quotient();

    assert_close(q.middle, middle, within);
    assert_close(q.low, low, within);
    assert_close(q.high, high, within);
}

static const struct cost update = { .s = 1, .low_s = 0.5, .high_s = 4 }, given = { .s = 1, .low_s = 1, .high_s = 1 };

/* Over what is known an update has its own interval, 90 % of the draws. */
static void a_source_of_one_plan_enters_whole(void **state)
{
    (void)state;
    add_phases(open_plan(0, false), DOES_UPDATE, 1, update);
    add_phases(open_plan(1, false), DOES_NOTHING, 1, given);
    is_quotient(1, 0.5, 4, 0.02);
    /* 1 s on top of both: (1 + 0.5) / 2, (1 + 4) / 2. */
    add_phases(&plans[0], DOES_NOTHING, 1, given);
    add_phases(&plans[1], DOES_NOTHING, 1, given);
    is_quotient(1, 0.75, 2.5, 0.02);
}

/* The same plan takes as long as itself in each draw; twice the work twice as long. */
static void what_both_have_cancels(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        add_phases(open_plan(i, false), DOES_UPDATE, 3, update);
        add_phases(&plans[i], DOES_HAND_OVER, 1, update);
        add_phases(&plans[i], DOES_GENERATE, 2, update);
        plans[i].moves[1] = (struct cost){ .s = 0.2, .low_s = 0.1, .high_s = 0.3 };
    }
    is_quotient(1, 1, 1, 0);
    add_phases(open_plan(0, false), DOES_UPDATE, 4, update);
    add_phases(open_plan(1, false), DOES_UPDATE, 2, update);
    is_quotient(2, 2, 2, 1e-12);
}

/* Two sources in one plan: each is as likely above its middle as below, for itself, so that both are below theirs in a quarter of the draws. */
static void sources_are_independent(void **state)
{
    int below = 0;

    (void)state;
    add_phases(open_plan(0, false), DOES_UPDATE, 1, (struct cost){ .s = 1, .low_s = 0.999, .high_s = 1000 });
    add_phases(&plans[0], DOES_GENERATE, 1, (struct cost){ .s = 1, .low_s = 0.999, .high_s = 1000 });
    phases_iterate(&plans[0]);
    for (int i = 0; i < PHASE_DRAWS; i++)
        below += plans[0].draw[i] < 2;
    assert_in_range(below, PHASE_DRAWS / 4 - PHASE_DRAWS / 50, PHASE_DRAWS / 4 + PHASE_DRAWS / 50);
}

/* Apart the longer side decides: an engine that is done first in every draw is none of the quotient's. */
static void apart_the_longer_side_decides(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        add_phases(open_plan(i, true), DOES_UPDATE, 1 + i, given);
    add_phases(&plans[0], DOES_GENERATE, 1, (struct cost){ .s = 0.1, .low_s = 0.05, .high_s = 0.2 });
    is_quotient(0.5, 0.5, 0.5, 1e-12);
    /* One that is done last has its interval. */
    add_phases(open_plan(0, true), DOES_UPDATE, 1, (struct cost){ .s = 0.01, .low_s = 0.01, .high_s = 0.01 });
    add_phases(&plans[0], DOES_GENERATE, 1, update);
    is_quotient(0.5, 0.25, 2, 0.02);
}

/* ---- which is faster ---- */

static void draws_of(struct phases_layout *l, double s, double spread)
{
    l->iteration.s = s;
    for (int i = 0; i < PHASE_DRAWS; i++)
        l->draw[i] = s * (1 + spread * ((double)i / PHASE_DRAWS - 0.5));
}

/* Draws from 0.5 to 1.5 times by even steps: a twentieth of them, 26 of 521, is below the low end, and as many are above the high one. */
static void the_faster_is_said_where_nearly_all_draws_agree(void **state)
{
    static struct phases_layout a, b, c;

    (void)state;
    draws_of(&a, 10, 1);
    draws_of(&b, 12, 1);
    draws_of(&c, 12, 0);
    assert_int_equal(phases_faster(&a, &b), -1);
    assert_int_equal(phases_faster(&b, &a), 1);
    assert_int_equal(phases_faster(&a, &a), 0);
    assert_int_equal(phases_faster(&a, &c), 0);
    assert_close(phases_quotient_of(&a, &c).low, 10.0 / 12 * (0.5 + 26.0 / 521), 1e-12);
    assert_close(phases_quotient_of(&a, &c).high, 10.0 / 12 * (0.5 + 494.0 / 521), 1e-12);
    draws_of(&b, 10.05, 1);                 /* less than repeats of a run differ by */
    assert_int_equal(phases_faster(&a, &b), 0);
}

static void the_fastest_of_each_kind(void **state)
{
    static struct phases_layout l[3] = { { .apart = true }, { .apart = true }, { .apart = false } };

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
        cmocka_unit_test(a_source_of_one_plan_enters_whole),
        cmocka_unit_test(what_both_have_cancels),
        cmocka_unit_test(sources_are_independent),
        cmocka_unit_test(apart_the_longer_side_decides),
        cmocka_unit_test(the_faster_is_said_where_nearly_all_draws_agree),
        cmocka_unit_test(the_fastest_of_each_kind),
    };
    return cmocka_run_group_tests_name("sim/phases_rows", tests, NULL, NULL);
}
