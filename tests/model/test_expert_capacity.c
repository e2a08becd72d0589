/* How many rows an expert takes of a rank's tokens, at most. */
#include "tests/check.h"

#include "model/plan/expert_capacity.h"

/* Vector 72: 4096 tokens that take 2 of 8 experts, 1.25 times the mean of 1024: 1280 rows by Megatron-LM's rule and by DeepSpeed's. */
static void vector_72_an_expert_takes_1280_rows(void **state)
{
    (void)state;
    assert_int_equal(expert_capacity(4096, 2, 8, 1.25, 0), 1280);
    assert_int_equal(expert_capacity(4096, 2, 8, 1.25, 4), 1280);
}

/* A part of a row counts as one; DeepSpeed's least is 4. */
static void rows_are_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(expert_capacity(100, 2, 8, 1.1, 0), 28);
    assert_int_equal(expert_capacity(8, 1, 8, 1, 0), 1);
    assert_int_equal(expert_capacity(8, 1, 8, 1, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_72_an_expert_takes_1280_rows),
        cmocka_unit_test(rows_are_rounded_up),
    };

    return cmocka_run_group_tests_name("model/expert_capacity", tests, NULL, NULL);
}
