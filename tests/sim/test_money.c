/* Days, GPU-hours, cost and energy by multiplication; the deadline by evaluating worlds. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "sim/plan/money.h"
#include "sim/plan/plan_source.h"

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
    assert_false(f.meets);
    assert_int_equal(f.most, 256);
    plan_free(&p);
}

#define TINY "\"model\":{\"model_type\":\"llama\",\"num_hidden_layers\":8,\"hidden_size\":1024,\"num_attention_heads\":8," \
             "\"num_key_value_heads\":8,\"intermediate_size\":4096,\"vocab_size\":32000,\"max_position_embeddings\":2048," \
             "\"tie_word_embeddings\":false},\"cluster\":\"2x8xh100\",\"seq\":2048,\"precision\":\"bf16\""

/* Each with GPUs that work on the same samples: how many. */
static const struct { const char *text; int64_t together; } cut[] = {
    { "{\"dpx_plan\":1," TINY ",\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"micro_batch\":2,\"accumulation\":8,"
      "\"parallel\":{\"tensor\":4}}", 4 },
    { "{\"dpx_plan\":1," TINY ",\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"micro_batch\":1,\"accumulation\":8,"
      "\"parallel\":{\"context\":2}}", 2 },
    { "{\"dpx_plan\":1," TINY ",\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"micro_batch\":2,\"accumulation\":16,"
      "\"parallel\":{\"tensor\":2,\"pipeline\":4,\"pipeline_schedule\":\"1f1b\"}}", 8 },
    { "{\"dpx_plan\":1," TINY ",\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"micro_batch\":1,\"accumulation\":16,"
      "\"parallel\":{\"tensor\":2,\"context\":2,\"pipeline\":2}}", 8 },
    { "{\"dpx_plan\":1,\"model\":{\"model_type\":\"mixtral\",\"num_hidden_layers\":4,\"hidden_size\":512,\"num_attention_heads\":8,"
      "\"num_key_value_heads\":8,\"intermediate_size\":1024,\"vocab_size\":32000,\"max_position_embeddings\":2048,\"num_local_experts\":8,"
      "\"num_experts_per_tok\":2},\"cluster\":\"2x8xh100\",\"seq\":2048,\"precision\":\"bf16\",\"strategy\":\"fsdp\","
      "\"dialect\":\"torch\",\"kernels\":\"torch-eager\",\"micro_batch\":2,\"accumulation\":2,\"parallel\":{\"expert\":4}}", 1 },
    { "{\"dpx_plan\":1," TINY ",\"strategy\":\"zero3\",\"dialect\":\"deepspeed\",\"micro_batch\":3,\"accumulation\":4}", 1 },
};

/* The plan by its own keys on so many nodes, as eval and sweep have it. */
static double days_on(const struct money_question *q, const struct plan *p, const struct money_fewest *f)
{
    char set[4][48];
    const char *pairs[] = { set[0], set[1], set[2], set[3] };
    struct plan at;
    struct timing t;
    struct money m;

    snprintf(set[0], sizeof set[0], "nodes=%d", (int)f->nodes);
    snprintf(set[1], sizeof set[1], "gpus_per_node=%d", (int)(f->gpus / f->nodes));
    snprintf(set[2], sizeof set[2], "micro_batch=%d", (int)f->micro_batch);
    snprintf(set[3], sizeof set[3], "accumulation=%d", (int)f->accumulation);
    assert_int_equal(plan_source_with(p, pairs, 4, &at), 0);
    assert_int_equal(plan_global_batch(&at), plan_global_batch(p));
    step_of(&at, &t);
    money_of(q, &at, &t, &m);
    plan_free(&at);
    return m.days;
}

/* GPUs are not all data-parallel ranks: what is stated for N GPUs is what eval says of N GPUs. */
static void days_of_a_number_of_gpus_are_those_of_the_plan_on_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        struct money_question q = { .tokens = 10000000000, .price = 2, .days = 0 };
        struct money_fewest f;
        struct timing t;
        struct money now;
        struct plan p;

        read_plan(cut[i].text, &p);
        step_of(&p, &t);
        money_of(&q, &p, &t, &now);
        for (int k = -1; k <= 2; k++) {                 /* from a deadline that two GPUs may meet to one that none does */
            q.days = k < 2 ? now.days / (k < 0 ? 0.4 : k + 1.01) : now.days / 1e6;
            assert_int_equal(money_fewest_gpus(&q, &p, &t, &f), 0);
            assert_int_equal(f.most, plan_global_batch(&p) * cut[i].together);
            assert_int_equal(f.meets, k < 2);
            assert_int_equal(f.gpus % cut[i].together, 0);
            assert_int_equal(f.gpus / cut[i].together * f.micro_batch * f.accumulation, plan_global_batch(&p));
            assert_close(f.m.days, days_on(&q, &p, &f), 1e-12);
        }
        q.days = now.days * (1 + 1e-9);                 /* the plan itself meets what it takes */
        assert_int_equal(money_fewest_gpus(&q, &p, &t, &f), 0);
        assert_true(f.meets && f.gpus <= 16 && f.m.days <= q.days);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_products),
        cmocka_unit_test(a_price_needs_tokens),
        cmocka_unit_test(the_fewest_gpus_meet_the_deadline),
        cmocka_unit_test(days_of_a_number_of_gpus_are_those_of_the_plan_on_them),
    };
    return cmocka_run_group_tests_name("sim/money", tests, NULL, NULL);
}
