/* test_percent.c -- ratios in words. */
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/chart/unit.h"
#include "base/percent.h"

static void ratios_are_percentages_as_far_as_they_can_be_read(void **state)
{
    (void)state;
    assert_string_equal(percent_share(0.123).s, "12.3 %");
    assert_string_equal(percent_change(1.123).s, "+12.3 %");
    assert_string_equal(percent_change(0.5).s, "-50.0 %");
    assert_string_equal(percent_change(66860.326).s, "66860 times");          /* once "+6686032.6 %" */
    assert_string_equal(percent_change(12.34).s, "12.3 times");
    assert_string_equal(percent_share(12.34).s, "12.3 times");
    assert_string_equal(percent_faster(1.123).s, "12.3 % faster");
    assert_string_equal(percent_faster(20).s, "20 times faster");
    assert_string_equal(percent_share(NAN).s, "-");
    assert_string_equal(percent_change(INFINITY).s, "-");
}

/* Whatever the ratio, no number before a percent sign has more than three digits before its point. */
static void no_percentage_is_above_999(void **state)
{
    (void)state;
    for (double x = 1e-6; x < 1e15; x *= 1.37) {
        char texts[5][64];
        snprintf(texts[0], 64, "%s", percent_share(x).s);
        snprintf(texts[1], 64, "%s", percent_change(x).s);
        snprintf(texts[2], 64, "%s", percent_faster(1 + x).s);
        snprintf(texts[3], 64, "%s", unit_shown(UNIT_SHARE, x).s);
        snprintf(texts[4], 64, "%s", unit_shown(UNIT_CHANGE, x).s);
        for (int i = 0; i < 5; i++)
            if (strchr(texts[i], '%') && strspn(texts[i] + strcspn(texts[i], "0123456789"), "0123456789") > 3)
                fail_msg("%s of %g", texts[i], x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratios_are_percentages_as_far_as_they_can_be_read),
        cmocka_unit_test(no_percentage_is_above_999),
    };
    return cmocka_run_group_tests_name("base/percent", tests, NULL, NULL);
}
