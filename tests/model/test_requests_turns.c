/* Models that take turns on one allocator: identities between a turn, a step and the plan's own replay. */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "model/memory/evaluate.h"
#include "model/memory/requests_turns.h"
#include "model/memory/reserved.h"

#define ROOM ((int64_t)1 << 48)

/* A process with one role, of a plan. */
struct turn {
    struct plan p;
    struct evaluation e;
    struct caching_allocator *a;
    const struct caching_stats *c;
    struct request_target t;
    struct requests_process own;
    struct requests_role *r;
};

static void open_turn(struct turn *x, const char *keys, bool infers)
{
    json_t *doc = json_loads(keys, 0, NULL);

    assert_non_null(doc);
    json_object_update_missing(doc, json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:s}", "dpx_plan", 1, "model", "llama-3.2-1b", "cluster", "4xh100", "seq", 2048,
                                              "micro_batch", 2, "accumulation", 1, "precision", "bf16"));
    memset(x, 0, sizeof *x);
    assert_int_equal(plan_from_json(doc, "plan", &x->p), 0);
    json_decref(doc);
    assert_int_equal(evaluate(&x->p, &x->e), 0);
    x->a = caching_allocator_new(ROOM, NULL);
    x->c = caching_allocator_stats(x->a);
    x->t = reserved_target(x->a);
    x->own = (struct requests_process){ { -1, -1 } };
    x->r = requests_role_new(&x->p, &x->e.schedules, reserved_options(&x->p), &x->t, &x->own, infers);
}

static void close_turn(struct turn *x)
{
    assert_int_equal(requests_role_wrong(x->r), 0);
    requests_role_free(x->r);
    caching_allocator_delete(x->a);
    evaluation_free(&x->e);
    plan_free(&x->p);
}

static int64_t forward(struct turn *x) { return requests_forward(&x->p, &x->e.schedules, reserved_options(&x->p), &x->t, &x->own); }

/* Strategies of each framework, with tensors, experts, adapters and states elsewhere. */
static const char *const plans[] = {
    "{\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"recompute\":\"full\"}",
    "{\"strategy\":\"fsdp\",\"dialect\":\"torch-fsdp1\",\"recompute\":\"full\"}",
    "{\"strategy\":\"ddp\",\"dialect\":\"torch\",\"recompute\":\"full\"}",
    "{\"strategy\":\"zero1\",\"dialect\":\"deepspeed\",\"recompute\":\"full\"}",
    "{\"strategy\":\"zero2\",\"dialect\":\"deepspeed\",\"recompute\":\"full\"}",
    "{\"strategy\":\"zero3\",\"dialect\":\"deepspeed\",\"recompute\":\"full\"}",
    "{\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"recompute\":\"full\",\"parallel\":{\"tensor\":2,\"sequence\":true}}",
    "{\"strategy\":\"zero1\",\"dialect\":\"megatron\",\"recompute\":\"full\",\"model\":\"llama-3.2-1b:value\"}",
    "{\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"recompute\":\"full\",\"train\":\"lora\"}",
    "{\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"recompute\":\"full\",\"model\":\"qwen2.5-0.5b:value\"}",
    "{\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"recompute\":\"full\",\"fsdp\":{\"cpu_offload\":true}}",
    "{\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"recompute\":\"full\",\"model\":\"olmoe-1b-7b\"}",
};
enum { PLANS = sizeof plans / sizeof *plans };

/* Weights, a first step and a steady one are all that the plan's own replay walks. */
static void a_role_alone_reserves_what_its_plan_does(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        struct turn x;
        open_turn(&x, plans[i], false);
        requests_role_step(x.r);
        requests_role_step(x.r);
        requests_role_step(x.r);
        assert_false(x.e.reserved.out_of_memory);
        assert_int_equal(x.c->reserved.peak, x.e.reserved.reserved_peak);
        assert_int_equal(x.c->allocated.peak, x.e.reserved.allocated_peak);
        close_turn(&x);
    }
}

/* Of a forward nothing stays, but cuBLAS's workspace where it is kept; another one asks the device for nothing. */
static void of_a_forward_nothing_stays(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        struct turn x;
        open_turn(&x, plans[i], true);
        int64_t before = x.c->allocated.now;
        assert_int_equal(forward(&x), 0);
        int64_t once = x.c->reserved.now, stays = x.c->allocated.now - before;
        assert_true(stays == 0 || stays == reserved_options(&x.p).workspace);
        assert_true(x.c->allocated.peak > x.c->allocated.now);
        assert_int_equal(forward(&x), 0);
        assert_int_equal(x.c->reserved.now, once);
        assert_int_equal(x.c->allocated.now - before, stays);
        close_turn(&x);
    }
}

/* A forward has less than the step that it is the first part of: weights stand beside it alone, and one block's input of all of them. */
static void a_forward_has_less_than_a_step(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        struct turn x;
        open_turn(&x, plans[i], true);
        assert_int_equal(forward(&x), 0);
        assert_true(x.c->allocated.peak < x.e.reserved.allocated_peak);
        assert_true(x.c->reserved.peak <= x.e.reserved.reserved_peak);
        close_turn(&x);
    }
}

/* Eight blocks more, and their shares of weights: the same forward beside them.  One input more would be 2 x 2048 x 2048 x 2 = 16 MiB a block. */
static void blocks_leave_no_inputs(void **state)
{
    static const char *const models[] = { "llama-3.2-1b", "llama-3.2-1b" };
    int64_t beside[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct turn x;
        struct model m;
        assert_int_equal(model_load(models[i], &m), 0);
        json_t *config = model_to_config(&m), *doc = json_pack("{s:s, s:s, s:s}", "strategy", "fsdp", "dialect", "torch", "recompute", "full");
        json_object_set_new(config, "num_hidden_layers", json_integer(i ? 16 : 8));
        json_object_set_new(doc, "model", config);
        char *text = json_dumps(doc, 0);
        open_turn(&x, text, true);
        free(text);
        json_decref(doc);
        model_free(&m);
        int64_t weights = x.c->allocated.now;
        assert_int_equal(forward(&x), 0);
        beside[i] = x.c->allocated.peak - weights;
        close_turn(&x);
    }
    assert_int_equal(beside[0], beside[1]);
}

/* What goes to host memory comes back as much. */
static void what_goes_comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        struct turn x;
        open_turn(&x, plans[i], false);
        requests_role_step(x.r);
        requests_role_step(x.r);
        const int64_t *p = x.e.m.ledger.persistent;
        int64_t all = x.c->allocated.now;
        requests_role_move(x.r, MOVES_STATES, false);
        int64_t without = x.c->allocated.now;
        assert_true(all - without >= p[CAT_OPTIMIZER] && all - without <= p[CAT_OPTIMIZER] + (p[CAT_OPTIMIZER] ? p[CAT_OPTIMIZER] / 4 + (8 << 20) : 0));
        requests_role_move(x.r, MOVES_WEIGHTS | MOVES_REST, false);
        caching_allocator_empty_cache(x.a);
        assert_true(x.c->allocated.now <= 2 * reserved_options(&x.p).workspace + (64 << 20) && x.c->reserved.now <= x.c->allocated.now + (128 << 20));
        requests_role_move(x.r, MOVES_WEIGHTS | MOVES_STATES | MOVES_REST, true);
        int64_t back = x.c->allocated.now, asked = x.c->requested.now;
        assert_true(back - all < 32 << 20 && all - back < 32 << 20);        /* a block may be up to 1 MiB larger than what is asked for */
        requests_role_move(x.r, MOVES_WEIGHTS | MOVES_STATES | MOVES_REST, false);
        requests_role_move(x.r, MOVES_WEIGHTS | MOVES_STATES | MOVES_REST, true);
        assert_int_equal(x.c->requested.now, asked);
        requests_role_step(x.r);
        assert_true(x.c->allocated.now - all < 32 << 20 && all - x.c->allocated.now < 32 << 20);
        close_turn(&x);
    }
}

/* A forward and a step one after the other, nothing emptied between: at least what the larger one has of tensors, and at most what both reserve alone. */
static void turns_are_between_the_larger_and_the_sum(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        struct turn alone, both;
        open_turn(&alone, plans[i], true);
        assert_int_equal(forward(&alone), 0);
        int64_t first = alone.c->reserved.peak, step = alone.e.reserved.reserved_peak, tensors = alone.e.reserved.allocated_peak;
        close_turn(&alone);
        open_turn(&both, plans[i], false);
        assert_int_equal(forward(&both), 0);
        for (int n = 0; n < 3; n++) {
            requests_role_step(both.r);
            assert_int_equal(forward(&both), 0);
        }
        assert_true(both.c->reserved.peak >= tensors && both.c->reserved.peak <= first + step);
        close_turn(&both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_role_alone_reserves_what_its_plan_does),
        cmocka_unit_test(of_a_forward_nothing_stays),
        cmocka_unit_test(a_forward_has_less_than_a_step),
        cmocka_unit_test(blocks_leave_no_inputs),
        cmocka_unit_test(what_goes_comes_back),
        cmocka_unit_test(turns_are_between_the_larger_and_the_sum),
    };
    return cmocka_run_group_tests_name("model/requests_turns", tests, NULL, NULL);
}
