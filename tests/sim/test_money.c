/* Days, GPU-hours, cost and energy by multiplication; the deadline by evaluating worlds. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "sim/plan/money.h"

static void read_plan(const char *text, struct plan *p)
{
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "test", p), 0);
    json_decref(j);
}

#define GPT2 "{\"dpx_plan\":1,\"model\":\"gpt2\",\"cluster\":\"8xh100\",\"seq\":1024,\"micro_batch\":8," \
             "\"accumulation\":4,\"strategy\":\"ddp\",\"dialect\":\"torch\",\"precision\":\"bf16\"}"

/* 8 x 4 x 8 samples of 1024 tokens are 2^18 tokens a step; 2^38 tokens are 2^20 steps; at 0.9 s a step 943718.4 s. */
static void figures_are_products(void **state)
{
    (void)state;
    struct money_question q = { .tokens = INT64_C(1) << 38, .price = 2, .days = -1 };
    struct timing t = { .line.step_s = 0.9, .low_s = 0.8, .high_s = 1.0 };
    struct plan p;
    struct money m;

    read_plan(GPT2, &p);
    money_of(&q, &p, &t, &m);
    assert_int_equal(m.steps, 1 << 20);
    assert_close(m.days, 943718.4 / 86400, 1e-12);
    assert_close(m.low_days, 0.8 * (1 << 20) / 86400, 1e-12);
    assert_close(m.high_days, 1.0 * (1 << 20) / 86400, 1e-12);
    assert_close(m.gpu_hours, 8 * 943718.4 / 3600, 1e-12);
    assert_close(m.cost, 2 * m.gpu_hours, 1e-12);
    assert_close(m.kwh, 0.7 * m.gpu_hours, 1e-12);      /* 700 W */
    q.tokens++;                                         /* the last step is a whole one */
    money_of(&q, &p, &t, &m);
    assert_int_equal(m.steps, (1 << 20) + 1);
    plan_free(&p);
}

static void a_price_needs_tokens(void **state)
{
    (void)state;
    char said[256];
    struct money_question q = MONEY_NONE;

    fail_capture(said, sizeof said);
    assert_int_equal(money_check(&q), 0);
    q.price = 0;
    assert_int_equal(money_check(&q), -1);
    q.price = -1;
    q.days = 3;
    assert_int_equal(money_check(&q), -1);
    q.tokens = 1;
    assert_int_equal(money_check(&q), 0);
    fail_capture(NULL, 0);
}

static double step_of(const struct plan *p, struct timing *t)
{
    struct evaluation e;

    assert_int_equal(evaluate(p, &e), 0);
    assert_true(e.m.fits);
    assert_int_equal(simulate_plan(p, &e, t, NULL), 0);
    evaluation_free(&e);
    return t->line.step_s;
}

/* The answer meets the deadline; it asks for no fewer GPUs than perfect scaling would. */
static void the_fewest_gpus_meet_the_deadline(void **state)
{
    (void)state;
    struct plan p;
    struct timing t;
    struct money now;
    struct money_fewest f;

    read_plan(GPT2, &p);
    step_of(&p, &t);
    struct money_question q = { .tokens = 10000000000, .price = 2, .days = 0 };
    money_of(&q, &p, &t, &now);
    q.days = now.days / 3;
    assert_int_equal(money_fewest_gpus(&q, &p, &t, &f), 0);
    assert_true(f.gpus >= 16 && f.gpus <= 64);
    assert_int_equal(f.gpus, f.nodes * 8);
    assert_true(f.m.days <= q.days);
    assert_int_equal(f.gpus * f.micro_batch * f.accumulation, 256);

    q.days = now.days * 1.01;                           /* what there is, is enough */
    assert_int_equal(money_fewest_gpus(&q, &p, &t, &f), 0);
    assert_true(f.gpus <= 8 && f.gpus >= 7);

    q.days = now.days / 1e6;                            /* 256 samples occupy 256 GPUs at most */
    assert_int_equal(money_fewest_gpus(&q, &p, &t, &f), 0);
    assert_int_equal(f.gpus, 0);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_products),
        cmocka_unit_test(a_price_needs_tokens),
        cmocka_unit_test(the_fewest_gpus_meet_the_deadline),
    };
    return cmocka_run_group_tests_name("sim/money", tests, NULL, NULL);
}
