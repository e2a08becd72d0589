/* What Megatron-LM's precision-aware optimizer keeps of a parameter: bytes by arithmetic. */
#include "tests/model/megatron_text.h"
#include "tests/model/plans.h"
#include <stdlib.h>
#include "model/exchange/export.h"
#include "model/exchange/megatron_import.h"
#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/plan/megatron_model.h"

static int64_t states(const struct schedules *s)
{
    int64_t sum = 0;

    for (int i = 0; i < s->nbufs; i++)
        if (s->bufs[i].category == CAT_PARAMS || s->bufs[i].category == CAT_GRADS || s->bufs[i].category == CAT_OPTIMIZER)
            sum += s->bufs[i].bytes * (strcmp(s->bufs[i].what, "parameters as they were made") != 0);
    return sum;
}

static int64_t buffer(const struct schedules *s, const char *what)
{
    int64_t sum = 0;

    for (int i = 0; i < s->nbufs; i++)
        sum += strcmp(s->bufs[i].what, what) ? 0 : s->bufs[i].bytes;
    return sum;
}

/* Parameters 2, gradients 4 or 2; over d ranks what Adam keeps: of the fp32 parameters the 2 bytes that bf16 lacks (4 where they are not
 * taken apart, 2 in fp16), and two moments of 4, 2, or 1 byte, 8 bits being 2 on a GPU that has a turned copy (Hopper).  In a step every
 * state that is not in fp32 is there in fp32: 4 bytes of each over d; and no gradients are. */
static void bytes_of_a_precision_aware_parameter(void **state)
{
    static const struct { enum dtype grads; enum adam_main main; enum adam_state avg, sq; bool rest; const char *gpu; double kept, own, step; } cases[] = {
        { DT_FP32, MAIN_FP32, ADAM_FP32, ADAM_FP32, true,  "h100", 6, 2 + 4 + 4, 0 },
        { DT_BF16, MAIN_FP32, ADAM_FP32, ADAM_FP32, true,  "h100", 4, 2 + 4 + 4, 0 },
        { DT_BF16, MAIN_FP32, ADAM_FP32, ADAM_FP32, false, "h100", 4, 4 + 4 + 4, 0 },
        { DT_BF16, MAIN_FP32, ADAM_BF16, ADAM_BF16, true,  "h100", 4, 2 + 2 + 2, 4 + 4 },
        { DT_BF16, MAIN_FP16, ADAM_FP16, ADAM_BF16, true,  "h100", 4, 2 + 2 + 2, 4 + 4 + 4 },
        { DT_BF16, MAIN_FP32, ADAM_FP8, ADAM_FP16, false,  "h100", 4, 4 + 2 + 2, 4 + 4 },
        { DT_BF16, MAIN_FP32, ADAM_FP8, ADAM_FP8, true,    "b200", 4, 2 + 1 + 1, 4 + 4 },
    };
    static const char *const models[] = { "gpt2", "llama-3.1-8b" };
    struct schedules s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases * 2; i++) {
        const char *model = models[i % 2];
        int64_t d = i % 4 < 2 ? 1 : 8;
        struct plan p;
        plan_of(&p, model, i % 2 ? 4 : 12, d, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
        p.cluster.gpu = *gpu_find(cases[i / 2].gpu);
        p.reduce_dtype = cases[i / 2].grads;
        p.megatron.use_precision_aware_optimizer = true;
        p.megatron.main_params_dtype = cases[i / 2].main;
        p.megatron.exp_avg_dtype = cases[i / 2].avg;
        p.megatron.exp_avg_sq_dtype = cases[i / 2].sq;
        p.megatron.store_param_remainders = cases[i / 2].rest;
        lowered(&p, 0, &s);
        double n = (double)p.model.params, own = n / (double)d;
        assert_close((double)states(&s) / (n * cases[i / 2].kept + own * cases[i / 2].own), 1, 1e-3);
        assert_close((double)buffer(&s, "states in fp32") / own, cases[i / 2].step, 1e-3 * 12);
        assert_int_equal(buffer(&s, "fp32 gradients"), 0);
        plan_free(&p);
    }
    schedules_free(&s);
}

/* An fp8 recipe that scales at once, beside fp32 parameters, leaves these to Megatron (use_precision_aware_optimizer_no_fp8_or_ds_fp8): 4
 * bytes, and bf16 gradients are copied to fp32.  Of experts that ranks share out the optimizer is another: its states are in fp32 at another time. */
static void who_keeps_the_main_parameters(void **state)
{
    static const struct { enum fp8_format format; enum fp8_recipe recipe; enum adam_main main; double own, copied; } cases[] = {
        { FP8_OFF, FP8_DELAYED, MAIN_FP32, 2 + 2 + 4, 0 }, { FP8_HYBRID, FP8_DELAYED, MAIN_FP32, 2 + 2 + 4, 0 },
        { FP8_HYBRID, FP8_TENSORWISE, MAIN_FP32, 4 + 2 + 4, 4 }, { FP8_HYBRID, FP8_TENSORWISE, MAIN_FP16, 2 + 2 + 4, 0 },
    };
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan_of(&p, "llama-3.1-8b", 4, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
        p.reduce_dtype = DT_BF16;
        p.megatron.use_precision_aware_optimizer = true;
        p.megatron.fp8_format = cases[i].format;
        p.megatron.fp8_recipe = cases[i].recipe;
        p.megatron.main_params_dtype = cases[i].main;
        p.megatron.exp_avg_dtype = ADAM_BF16;
        lowered(&p, 0, &s);
        int64_t sum = 0;
        for (int b = 0; b < s.nbufs; b++)
            sum += s.bufs[b].category == CAT_OPTIMIZER ? s.bufs[b].bytes : 0;
        assert_close((double)sum * 8 / (double)p.model.params, cases[i].own, 1e-3 * 10);
        assert_close((double)buffer(&s, "fp32 gradients") * 8 / (double)p.model.params, cases[i].copied, 1e-3 * 4);
        plan_free(&p);
    }
    plan_of(&p, "qwen3-30b-a3b", 2, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.parallel.expert = 8;
    p.megatron.use_precision_aware_optimizer = true;
    p.megatron.exp_avg_sq_dtype = ADAM_FP16;
    plan_resolve(&p);
    lowered(&p, 0, &s);
    int64_t experts = 2 * 128 * 3 * (int64_t)2048 * 768;
    assert_close((double)buffer(&s, "experts' states in fp32") / (double)(4 * experts / 8), 1, 1e-3);
    assert_close((double)buffer(&s, "states in fp32") / (double)(4 * (p.model.params - experts) / 8), 1, 1e-2);
    plan_free(&p);
    schedules_free(&s);
}

static int64_t elements(const struct schedules *s, enum coll_op op, int *calls)
{
    int64_t sum = 0;

    *calls = 0;
    for (int64_t i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++)
        if (s->ops[i].kind == OP_COLL && s->ops[i].u.coll.op == op) {
            sum += s->ops[i].u.coll.elems;
            ++*calls;
        }
    return sum;
}

/* fp16 is bf16 with gradients reduced in 16 bits, but for one number: whether a gradient is not finite, over the ranks of the norm. */
static void fp16_looks_for_overflow_before_the_norm(void **state)
{
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        struct schedules half = { 0 }, wide = { 0 };
        struct plan p;
        int calls[2], gathers[2];
        plan_of(&p, "gpt2", 4, 8, sharded ? STRAT_ZERO1 : STRAT_DDP, DIALECT_MEGATRON, DT_BF16);
        p.parallel.tensor = 2;
        p.shard_group = 4;
        p.megatron.check_for_nan_in_loss_and_grad = false;
        p.reduce_dtype = DT_BF16;
        plan_resolve(&p);
        lowered(&p, 0, &wide);
        p.precision = p.reduce_dtype = DT_FP16;
        lowered(&p, 0, &half);
        assert_int_equal(elements(&half, COLL_ALL_REDUCE, &calls[0]), elements(&wide, COLL_ALL_REDUCE, &calls[1]) + 1);
        assert_int_equal(calls[0], calls[1] + 1);
        assert_int_equal(elements(&half, COLL_ALL_GATHER, &gathers[0]), elements(&wide, COLL_ALL_GATHER, &gathers[1]));
        assert_int_equal(states(&half), states(&wide));
        assert_int_equal(buffer(&half, "fp32 gradients"), buffer(&wide, "fp32 gradients"));
        assert_true(buffer(&half, "fp32 gradients") > 0);
        plan_free(&p);
        schedules_free(&half);
        schedules_free(&wide);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_a_precision_aware_parameter),
        cmocka_unit_test(who_keeps_the_main_parameters),
        cmocka_unit_test(fp16_looks_for_overflow_before_the_norm),
    };
    return cmocka_run_group_tests_name("model/megatron_states", tests, NULL, NULL);
}
