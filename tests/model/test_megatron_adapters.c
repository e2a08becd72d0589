/* Megatron-Bridge's LoRA, by counting: what blocks keep, what trains, what a rank has, which products there are.
 * Llama-3 70B, h 8192, ffn 28672, over 8 tensor-parallel ranks with sequence parallelism; A is [rank, in], B [out, rank]. */
#include "tests/model/megatron_text.h"
#include "tests/model/refused.h"
#include "tests/model/te_built.h"

#include "model/arch/training.h"
#include "model/arch/training_bridge.h"
#include "model/lower/lower.h"
#include "model/plan/megatron_model.h"

enum { RANK = 16, H = 8192, F = 28672, RANKS = 8, ALL = 8192, OWN = ALL / RANKS };

static void adapt(struct plan *p, const char *targets)
{
    strcpy(p->train.what, "lora");
    strcpy(p->train.target_modules, targets);
    p->train.rank = RANK;
    p->train.alpha = 32;
    p->train.bridge = true;
    assert_int_equal(training_apply(&p->model, &p->train, "test"), 0);
}

/* ---- what blocks keep ---- */

/* Of all positions in 16 bits: what A reads, gathered, beside the norm's own output; what it makes, for B.  A frozen layer keeps nothing, but
 * one with the norm in it what it hands out.  Everything else is kept as where everything trains: there each layer keeps what it reads. */
static void adapters_keep_what_they_read(void **state)
{
    static const int64_t low = 2 * ALL * RANK, read = 2 * ALL * H, own = 2 * OWN * H, middle = 2 * ALL * F / RANKS;
    static const struct { const char *targets; int64_t more; } cases[] = {
        { "linear_qkv", read + low - own - middle },                    /* linear_fc1 and linear_fc2 keep nothing */
        { "linear_proj", low - 2 * own - middle },                      /* attention keeps what linear_proj reads */
        { "linear_fc1", read + low - own - middle },
        { "linear_fc2", low - 2 * own },
        { "", 2 * read + 4 * low },
    };
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    int64_t full = saved(&x, PIECE_BLOCK);
    finish(&x);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llama70b(&x, KERNELS_TE);
        adapt(&x.plan, cases[i].targets);
        is(saved(&x, PIECE_BLOCK), full + cases[i].more);
        check_nothing_stays(&x, &x.plan);
        finish(&x);
    }
}

/* With tensor parallelism in several forms, in 16 and 8 bits, recomputed or not, by either kind of layers. */
static void nothing_stays_behind_a_step(void **state)
{
    static const enum recompute again[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };

    (void)state;
    for (int i = 0; i < 2 * 3 * 3 * 2; i++) {
        struct built x;
        bool local = i % 2, fp8 = i / 18 && !local;
        llama70b(&x, local ? KERNELS_MEGATRON_LOCAL : KERNELS_TE);
        x.plan.seq = 1024;
        x.plan.parallel.tensor = i / 2 % 3 ? 8 : 1;
        x.plan.parallel.sequence = i / 2 % 3 == 2;
        x.plan.recompute = again[i / 6 % 3];
        x.plan.train.dropout = i % 5 ? 0 : 0.1;
        x.plan.train.dropout_position = i % 10 ? DROPOUT_PRE : DROPOUT_POST;
        x.plan.train.a2a_experimental = i / 18;
        x.plan.megatron.fp8_format = fp8 ? FP8_HYBRID : FP8_OFF;
        x.plan.megatron.fp8_recipe = i % 4 ? FP8_DELAYED : FP8_TENSORWISE;
        adapt(&x.plan, "");
        build(&x);
        check_nothing_stays(&x, &x.plan);
        finish(&x);
    }
}

/* ---- products ---- */

static int count(const struct built *x, enum piece_id piece, enum pass pass, const char *name)
{
    int64_t bytes = 0;

    return kernels_named(x, piece, pass, name, &bytes);
}

/* A frozen layer has no product of its weight's gradient; the first block none of its input's, which needs no gradient, above its first adapter. */
static void frozen_layers_have_one_product_in_backward(void **state)
{
    struct built x;

    (void)state;
    llama70b(&x, KERNELS_TE);
    adapt(&x.plan, "linear_qkv");
    build(&x);
    for (int first = 0; first < 2; first++) {
        enum piece_id piece = first ? PIECE_FIRST : PIECE_BLOCK;
        static const char *const frozen[] = { "attention output", "mlp gate up", "mlp down" };
        for (int i = 0; i < 3; i++) {
            char dx[40], dw[40];
            snprintf(dx, sizeof dx, "%s dX", frozen[i]);
            snprintf(dw, sizeof dw, "%s dW", frozen[i]);
            assert_int_equal(count(&x, piece, PASS_BACKWARD, dx), 1);
            assert_int_equal(count(&x, piece, PASS_BACKWARD, dw), 0);
        }
        assert_int_equal(count(&x, piece, PASS_BACKWARD, "qkv dX"), !first);
        assert_int_equal(count(&x, piece, PASS_BACKWARD, "qkv dW"), 0);
        assert_int_equal(count(&x, piece, PASS_BACKWARD, "adapter A dX"), 1);       /* megatron-core's layer: always */
        assert_int_equal(count(&x, piece, PASS_BACKWARD, "adapter A dW"), 1);
        assert_int_equal(count(&x, piece, PASS_BACKWARD, "adapter B dX"), 1);
        assert_int_equal(count(&x, piece, PASS_BACKWARD, "adapter B dW"), 1);
    }
    assert_int_equal(count(&x, PIECE_HEAD, PASS_BACKWARD, "logits dW"), 0);
    finish(&x);
}

/* ---- what a rank has ---- */

/* The plan's own model counts adapters by formula, Megatron's has them one by one. */
static void as_many_parameters_train_as_adapters_have(void **state)
{
    static const char *const models[] = { "llama-3.1-8b", "gpt2", "qwen3-8b" };
    static const char *const targets[] = { "", "linear_qkv", "linear_proj,linear_fc1", "linear_fc2" };

    (void)state;
    for (int i = 0; i < 12; i++) {
        struct model made;
        struct plan p;
        plan_of(&p, models[i % 3], 4, RANKS, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
        adapt(&p, targets[i / 3]);
        assert_int_equal(megatron_model(&p, &made), 0);
        is(made.trainable, p.model.trainable);
        assert_int_equal(made.ntrainable, p.model.ntrainable);
        model_free(&made);
        plan_free(&p);
    }
}

/* linear_qkv of llama-3.1-8b, 4 blocks: A 16 x 4096, B (4096 + 2 x 1024) x 16.  2 bytes of what is frozen; of adapters 2, and 4 of gradients, and
 * 12 / 8 of states. */
static void frozen_parameters_have_neither_gradients_nor_states(void **state)
{
    int64_t adapters = INT64_C(4) * RANK * (4096 + 4096 + 2048), frozen, sum = 0;
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    plan_of(&p, "llama-3.1-8b", 4, RANKS, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    frozen = p.model.params;
    adapt(&p, "linear_qkv");
    is(p.model.trainable, adapters);
    plan_resolve(&p);
    lowered(&p, 0, &s);
    for (int b = 0; b < s.nbufs; b++)
        if (s.bufs[b].category == CAT_PARAMS || s.bufs[b].category == CAT_GRADS || s.bufs[b].category == CAT_OPTIMIZER)
            sum += s.bufs[b].bytes * (strcmp(s.bufs[b].what, "parameters as they were made") != 0);
    assert_close((double)sum, 2. * (double)frozen + 7.5 * (double)adapters, 1e-6);
    is(tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).elems, adapters);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- what is refused, and read ---- */

static void refuses(const char *model, const char *more, const char *because)
{
    char text[900];

    snprintf(text, sizeof text, "{\"dpx_plan\": 1, \"model\": \"%s\", \"cluster\": \"8xh100\", \"strategy\": \"zero1\", \"dialect\": \"megatron\", "
             "\"seq\": 512, \"precision\": \"bf16\", \"train\": \"lora\", %s}", model, more);
    refused(json_loads(text, 0, NULL), because);
}

static void what_is_not_planned_is_refused(void **state)
{
    (void)state;
    refuses("llama-3.1-8b", "\"lora\": {\"target_modules\": [\"q_proj\"]}", "layers are Megatron-Bridge's");
    refuses("llama-3.1-8b", "\"lora\": {\"target_modules\": [\"linear_qk\"]}", "\"linear_qk\"");
    refuses("llama-3.1-8b", "\"lora\": {\"modules_to_save\": [\"norm\"]}", "modules_to_save");
    refuses("llama-3.1-8b", "\"lora\": {\"rank\": 9}, \"parallel\": {\"tensor\": 2}", "does not divide by parallel.tensor 2");
    refuses("llama-3.1-8b", "\"lora\": {\"target_modules\": [\"linear_fc1\"]}, \"recompute\": \"selective\", \"megatron\": "
            "{\"recompute_modules\": [\"mlp\"]}", "would get no gradients");
    refuses("mixtral-8x7b", "\"lora\": {}", "beside mixtures of experts");
    refuses("deepseek-v3", "\"lora\": {}", "beside");
}

static void a_recipes_adapters_are_read(void **state)
{
    static const struct { const char *peft, *because; } cases[] = {
        { "  _target_: megatron.bridge.peft.lora.LoRA\n  target_modules: [linear_qkv, linear_fc2]\n  dim: 8\n  alpha: 16\n  dropout: 0.1\n"
          "  dropout_position: post\n  lora_dtype: null\n  exclude_modules: []\n", NULL },
        { "  _target_: megatron.bridge.peft.dora.DoRA\n  dim: 8\n", "as LoRA alone" },
        { "  dim: 8\n  normalize_moe_lora: true\n", "peft.normalize_moe_lora" },
        { "  dim: 0\n", "peft.dim" }, { "  dropout_position: middle\n", "peft.dropout_position" },
        { "  target_modules: linear_qkv\n", "peft.target_modules" },
    };

    struct plan of;

    (void)state;
    plan_of(&of, "llama-3.1-8b", 32, RANKS, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[700], why[512];
        struct plan p;
        snprintf(text, sizeof text, "model:\n  seq_length: 512\n  bf16: true\ntrain:\n  micro_batch_size: 1\n  global_batch_size: 8\nddp:\n"
                 "  use_distributed_optimizer: true\npeft:\n%s", cases[i].peft);
        fail_capture(why, sizeof why);
        int rc = imported(text, "yaml", &of, &p);
        fail_capture(NULL, 0);
        assert_int_equal(rc, cases[i].because ? -1 : 0);
        if (cases[i].because) {
            assert_non_null(strstr(why, cases[i].because));
            continue;
        }
        assert_string_equal(p.train.target_modules, "linear_qkv,linear_fc2");
        assert_int_equal(p.train.rank, 8);
        assert_int_equal(p.train.dropout_position, DROPOUT_POST);
        is(p.model.trainable, INT64_C(32) * 8 * (4096 + 6144 + 14336 + 4096));
        plan_free(&p);
    }
    plan_free(&of);
}

/* On Hopper, whose products read columns, Transformer Engine before 2.7 casts the gradients of frozen layers both ways: a byte more a number of qkv's and
 * fc1's share of columns; of proj and fc2, whose gradients ranks gather, a pass that reads and writes all of them.  On Blackwell codes have no order. */
static void before_2_7_gradients_of_frozen_layers_are_turned(void **state)
{
    enum { QKV = 8192 + 2 * 1024 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t bytes[2] = { 0, 0 }, turned[2] = { 0, 0 };
        for (int old = 0; old < 2; old++) {
            struct built x;
            llama70b(&x, KERNELS_TE);
            assert_int_equal(cluster_load(i ? "8xgb200" : "8xh100", &x.plan.cluster), 0);
            x.plan.megatron.fp8_format = FP8_HYBRID;
            x.plan.megatron.fp8_recipe = FP8_DELAYED;
            strcpy(x.plan.framework_version, old ? "0.13" : "");
            adapt(&x.plan, "linear_qkv");
            build(&x);
            kernels_named(&x, PIECE_BLOCK, PASS_BACKWARD, "cast", &bytes[old]);
            is(kernels_named(&x, PIECE_BLOCK, PASS_BACKWARD, "transposed copy", &turned[old]), old && !i ? 2 : 0);
            check_nothing_stays(&x, &x.plan);
            finish(&x);
        }
        is(bytes[1] - bytes[0], i ? 0 : (int64_t)ALL * (QKV + 2 * F) / RANKS);
        is(turned[1], i ? 0 : INT64_C(2) * 2 * ALL * H);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_keep_what_they_read),
        cmocka_unit_test(nothing_stays_behind_a_step),
        cmocka_unit_test(before_2_7_gradients_of_frozen_layers_are_turned),
        cmocka_unit_test(frozen_layers_have_one_product_in_backward),
        cmocka_unit_test(as_many_parameters_train_as_adapters_have),
        cmocka_unit_test(frozen_parameters_have_neither_gradients_nor_states),
        cmocka_unit_test(what_is_not_planned_is_refused),
        cmocka_unit_test(a_recipes_adapters_are_read),
    };

    return cmocka_run_group_tests_name("model/megatron_adapters", tests, NULL, NULL);
}
