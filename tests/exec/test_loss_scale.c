/* Loss scales against torch's GradScaler and DeepSpeed's scalers (tests/golden/parity/scalers.txt, record_scalers.py). */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "base/fail.h"
#include "exec/train/loss_scale.h"

#define GOLDEN "tests/golden/parity/scalers.txt"

static const struct loss_scaling *rule_called(const char *name)
{
    static const char *const names[] = { "torch", "deepspeed", "deepspeed-0" };
    int i = 0;

    while (i < NLOSS_SCALING_RULE && strcmp(names[i], name) != 0)
        i++;
    assert_true(i < NLOSS_SCALING_RULE);
    return loss_scaling_rule((enum loss_scaling_rule)i);
}

/* "torch 65536 3 over 8192 ..." */
static void replay(FILE *f, const char *name, double first)
{
    struct loss_scale l = loss_scale_new(rule_called(name), LOSS_SCALING_FIRST);
    char kind[8];
    double scale;
    int n, parts = 0;
    int64_t skipped = 0;

    assert_close(l.scale, first, 0);
    for (; fscanf(f, "%*[ ]%d %7s %lf", &n, kind, &scale) == 3; parts++) {
        bool over = !strcmp(kind, "over");
        for (int i = 0; i < n; i++)
            assert_int_equal(loss_scale_next(&l, over), 0);
        skipped += over ? n : 0;
        if (l.scale != scale || l.skipped != skipped)
            fail_msg("%s: %.17g, not %.17g, after part %d (%d %s)", name, l.scale, scale, parts + 1, n, kind);
    }
    assert_true(parts >= 4);
}

static void scales_are_the_frameworks(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    char name[16];
    double first;
    int lines = 0;

    (void)state;
    assert_non_null(f);
    for (; fscanf(f, "%15s %lf", name, &first) == 2; lines++)
        replay(f, name, first);
    fclose(f);
    assert_int_equal(lines, 12);
}

/* DeepSpeed's raises at its smallest scale, 1; torch's goes on, down to where 1/scale is no number. */
static void a_scale_that_can_go_no_lower_ends_the_run(void **state)
{
    static const struct { enum loss_scaling_rule rule; int most; } of[] = { { LOSS_SCALING_TORCH, 16 + 126 }, { LOSS_SCALING_DEEPSPEED, 1 + 16 } };
    char why[160];

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct loss_scale l = loss_scale_new(loss_scaling_rule(of[i].rule), LOSS_SCALING_FIRST);
        for (int k = 0; k < of[i].most; k++)
            assert_int_equal(loss_scale_next(&l, true), 0);
        fail_capture(why, sizeof why);
        assert_int_equal(loss_scale_next(&l, true), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, "gradients overflow even with a loss scale of"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_the_frameworks),
        cmocka_unit_test(a_scale_that_can_go_no_lower_ends_the_run),
    };
    return cmocka_run_group_tests_name("exec/loss_scale", tests, NULL, NULL);
}
