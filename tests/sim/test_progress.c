/* What a long command says of the time that is left (sim/plan/progress.h). */
#include "tests/check.h"

#include "sim/plan/progress.h"

static void what_is_left_takes_as_long_as_what_is_done(void **state)
{
    (void)state;
    assert_float_equal((float)progress_left_s(5, 20, 10, 10), 30, 1e-6f);         /* 2 s each, 15 to go */
    assert_float_equal((float)progress_left_s(5, 20, 10, 13), 27, 1e-6f);         /* 3 s later none is done yet */
    assert_float_equal((float)progress_left_s(9, 10, 9, 10.5), 0, 1e-6f);         /* the last is late by half a second */
}

static void who_cannot_tell_says_nothing(void **state)
{
    (void)state;
    assert_true(progress_left_s(0, 20, 0, 10) < 0);
    assert_true(progress_left_s(3, 20, 6, 6) < 0);                          /* less than a fifth */
    assert_true(progress_left_s(9, 11, 9, 12) < 0);                         /* 9 took 1 s each, this one 3 s already */
    assert_true(progress_left_s(9, 11, 9, 480) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_takes_as_long_as_what_is_done),
        cmocka_unit_test(who_cannot_tell_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
