/* Published peaks of memory, to which nothing was fitted. */
#include "tests/check.h"

#include <math.h>

#include "tests/accuracy/memory_rows.h"

struct taken { struct memory_errors of[NMETER]; int compared, left_out; };

static void take(const struct memory_row *r, void *arg)
{
    struct taken *t = arg;

    t->compared += !r->left_out;
    t->left_out += r->left_out != NULL;
    for (int m = 0; m < NMETER; m++) {
        assert_true(r->left_out || r->ours[m] > 0);
        /* Fine-tuning, but for bitsandbytes 0.41 (8.5 % below). */
        if (!r->left_out && strstr(r->what, "LoRA") && !strstr(r->what, "NF4") && r->published[m] > 0)
            assert_close((double)r->ours[m], r->published[m], .08);
        memory_errors_add(&t->of[m], r, (enum memory_meter)m);
    }
    assert_true(r->left_out || (r->ours[METER_ALLOCATED] <= r->ours[METER_ACTIVE] && r->ours[METER_ACTIVE] <= r->ours[METER_RESERVED]));
}

/* torchtitan of March 2024 kept the logits in fp32 (torchtitan#391): with them what is active is met within 0.5 %. */
static void take_active(const struct memory_row *r, void *arg)
{
    if (r->left_out || r->published[METER_ACTIVE] <= 0 || r->beside == 0)
        return;
    ++*(int *)arg;
    assert_int_equal(r->beside, 4 * 8 * 2048 * 32000LL);
    assert_close((double)r->ours[METER_ACTIVE], r->published[METER_ACTIVE], .005);
}

static void what_torchtitan_had_active_is_met_with_the_logits_that_it_kept(void **state)
{
    int n = 0;

    (void)state;
    assert_true(memory_each_row(take_active, &n) > 0);
    assert_int_equal(n, 4);
}

static void rows_are_predicted_or_left_out_for_a_reason(void **state)
{
    static struct taken t;

    (void)state;
    assert_true(memory_each_row(take, &t) > 50);
    printf("  %d rows compared, %d left out\n", t.compared, t.left_out);
    for (int m = 0; m < NMETER; m++) {
        double median = memory_errors_median(&t.of[m]);
        printf("  %-9s %2d rows  median %.1f %%  worst %+.1f %%\n", memory_meters[m], t.of[m].n, 100 * median,
               100 * t.of[m].e[t.of[m].n - 1]);
    }
    assert_true(memory_errors_median(&t.of[METER_RESERVED]) < .05);
    assert_true(memory_errors_median(&t.of[METER_ACTIVE]) < .03);
    /* Figure 8(b) of the FSDP paper: what is active agrees, what is allocated is 8 to 15 % below (sim/notebook.md). */
    assert_true(memory_errors_median(&t.of[METER_ALLOCATED]) < .15);
}

struct mean { double sum; int n; };

/* Of dense models with adapters, or whole with compiled blocks, under the loss of reinforcement learning (in chunks). */
static void take_primerl(const struct memory_row *r, void *arg)
{
    struct mean *m = arg;

    if (r->left_out || !strstr(r->what, ", RL,") || strstr(r->what, "-A3B") || strstr(r->what, "-A22B"))
        return;
    double e = (double)r->ours[METER_RESERVED] / r->published[METER_RESERVED] - 1;
    assert_true(fabs(e) < .11);
    m->sum += fabs(e);
    m->n++;
}

static void trainers_of_reinforcement_learning(void **state)
{
    struct mean m = { 0 };

    (void)state;
    assert_int_equal(memory_each_primerl(take_primerl, &m), 58);
    assert_int_equal(m.n, 33);
    printf("  prime-rl: %d dense rows, reserved within %.1f %% on average\n", m.n, 100 * m.sum / m.n);
    assert_true(m.sum / m.n < .042);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trainers_of_reinforcement_learning),
        cmocka_unit_test(rows_are_predicted_or_left_out_for_a_reason),
        cmocka_unit_test(what_torchtitan_had_active_is_met_with_the_logits_that_it_kept),
    };
    return cmocka_run_group_tests_name("sim/memory_published", tests, NULL, NULL);
}
