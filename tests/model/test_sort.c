/* sort_stable(): what compares equal stays in its order. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/sort.h"

struct card { int value, place; char more[20]; };

static int by_value(const void *a, const void *b)
{
    int x = ((const struct card *)a)->value, y = ((const struct card *)b)->value;

    return (x > y) - (x < y);
}

/* Every number of cards up to 200, of few values and of many. */
static void equals_stay_in_their_order(void **state)
{
    (void)state;
    struct card c[200];
    unsigned seed = 1;

    for (int values = 1; values <= 64; values *= 4)
        for (int n = 0; n <= 200; n++) {
            long sum = 0;
            for (int i = 0; i < n; i++) {
                seed = seed * 1103515245u + 12345u;
                c[i] = (struct card){ (int)(seed >> 16) % values, i, "" };
                memset(c[i].more, c[i].value, sizeof c[i].more);
                sum += c[i].value;
            }
            sort_stable(c, (size_t)n, sizeof *c, by_value);
            for (int i = 0; i < n; i++) {
                sum -= c[i].value;
                assert_int_equal(c[i].more[19], c[i].value);    /* a card moves as a whole */
                if (i > 0)
                    assert_true(c[i - 1].value < c[i].value || (c[i - 1].value == c[i].value && c[i - 1].place < c[i].place));
            }
            assert_int_equal(sum, 0);
        }
}

static void nothing_is_sorted_of_nothing(void **state)
{
    (void)state;
    sort_stable(NULL, 0, 8, by_value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_stay_in_their_order),
        cmocka_unit_test(nothing_is_sorted_of_nothing),
    };
    return cmocka_run_group_tests_name("model/sort", tests, NULL, NULL);
}
