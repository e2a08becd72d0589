/* ZeRO++'s codes on the wire: gathers in int8 (qwZ) and reductions in int4 (qgZ).  What they weigh, which they are of, what they keep
 * in memory, what is refused.  DeepSpeed's own lists, recorded with its quantiser in Python, are in test_collectives.c. */
#include "tests/model/zero.h"

#include <jansson.h>

#include "model/arch/training.h"
#include "model/framework/deepspeed_3/lower_zero3.h"

/* Each use is a gather. */
static void every_use(struct plan *p)
{
    p->ds.stage3_prefetch_bucket_size = 0;
    p->ds.stage3_max_reuse_distance = 0;
    p->ds.stage3_param_persistence_threshold = 0;
}

static void int8_of(struct plan *p, int64_t ranks, enum dtype t)
{
    deepspeed(p, "llama-2-7b", 2, ranks, STRAT_ZERO3, t);
    every_use(p);
    p->ds.zero_quantized_weights = true;
}

/* Nodes of eight. */
static void int4_of(struct plan *p, int64_t ranks, enum dtype t)
{
    deepspeed(p, "llama-2-7b", 2, ranks, STRAT_ZERO3, t);
    p->cluster.gpus_per_node = 8;
    p->cluster.nodes = ranks / 8;
    p->ds.zero_quantized_gradients = true;
}

static const char *tensor_of(const struct plan *p, const struct op *o) { return p->model.tensors[o->unit].name; }

static bool ends(const char *name, const char *with)
{
    return strlen(name) >= strlen(with) && !strcmp(name + strlen(name) - strlen(with), with);
}

/* The first call of a schedule, of that kind in that group, dtype and for that tensor. */
static const struct op *call(const struct plan *p, enum sched_id id, enum coll_op op, enum group g, enum dtype t, const char *tensor)
{
    for (int i = s.begin[id]; i < s.end[id]; i++) {
        const struct op *o = &s.ops[i];
        if (o->kind == OP_COLL && o->u.coll.op == op && s.groups.group[o->u.coll.group].is == g && o->u.coll.dtype == t &&
            o->of && o->unit >= 0 && ends(tensor_of(p, o), tensor))
            return o;
    }
    fail_msg("no %s of %s", coll_name(op), tensor);
    return NULL;
}

/* 4096^2 / 8 elements are 263 groups of 8000 at least; 512 is the first number from there on that, times 8, divides them. */
static void groups_are_the_first_that_divide(void **state)
{
    static const struct { int64_t n, groups; } want[] = {
        { 2097152, 512 }, { 5636096, 1024 }, { 512, 1 }, { 800000, 100 }, { 16384000, 2048 }, { 33554432, 8192 },
        { 1001, 0 }, { 8, 1 }, { 8 * 7919, 7919 }, { 4, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(z3_int8_groups(want[i].n), want[i].groups);
    for (int64_t n = 8; n < 400000; n += 8 * 37) {          /* the loop as DeepSpeed has it */
        int64_t g = (n + 7999) / 8000;
        while (n % (8 * g))
            g++;
        assert_int_equal(z3_int8_groups(n), g);
        assert_true(n / g < 16000 && n > g);
    }
}

/* 4096^2 elements on eight ranks: as many bytes of codes; 8 x 512 scales of 4 bytes, where bf16 is twice the elements. */
static void a_gather_is_codes_and_scales(void **state)
{
    struct plan p;

    (void)state;
    int8_of(&p, 8, DT_BF16);
    lowered(&p, 0, &s);
    const struct op *codes = call(&p, SCHED_STEADY, COLL_ALL_GATHER, GROUP_DATA, DT_INT8, "q_proj.weight");
    assert_int_equal(codes->u.coll.elems, 16777216);
    assert_int_equal(call(&p, SCHED_STEADY, COLL_ALL_GATHER, GROUP_DATA, DT_FP32, "q_proj.weight")->u.coll.elems * 4, 16384);
    assert_int_equal(sched_sent_bytes(&s, codes), 16777216 / 8 * 7);
    plan_free(&p);
}

static int64_t gathered(enum sched_id id, enum dtype t)
{
    int64_t sum = 0;

    for (int i = s.begin[id]; i < s.end[id]; i++)
        if (s.ops[i].kind == OP_COLL && s.ops[i].u.coll.op == COLL_ALL_GATHER && s.ops[i].u.coll.dtype == t)
            sum += s.ops[i].u.coll.elems;
    return sum;
}

/* Every gather of a step is one of codes, of as many elements as without. */
static void nothing_else_is_gathered(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        static const enum dtype of[] = { DT_FP32, DT_BF16, DT_FP16 };
        struct plan p;
        int8_of(&p, 4, of[i]);
        lowered(&p, 3, &s);
        int64_t codes = gathered(SCHED_STEADY, DT_INT8), numbers = gathered(SCHED_STEADY, of[i]);
        assert_int_equal(i ? numbers : numbers - gathered(SCHED_STEADY, DT_FP32), 0);
        p.ds.zero_quantized_weights = false;
        lowered(&p, 3, &s);
        assert_int_equal(codes, gathered(SCHED_STEADY, of[i]));
        plan_free(&p);
    }
}

/* Parameters that stay whole come after the step as they are. */
static void persistent_parameters_stay_exact(void **state)
{
    struct plan p;
    int64_t norms = 0;

    (void)state;
    int8_of(&p, 4, DT_BF16);
    p.ds.stage3_param_persistence_threshold = 5000;
    for (int t = 0; t < p.model.ntensors; t++)
        norms += p.model.tensors[t].numel <= 5000 ? p.model.tensors[t].numel : 0;
    lowered(&p, 0, &s);
    assert_int_equal(norms, 5 * 4096);
    assert_int_equal(gathered(SCHED_STEADY, DT_BF16), norms);
    plan_free(&p);
}

/* Most bytes that entries allocate and have not freed, from the one before a tensor's codes are made to the one that writes it. */
static int64_t peak_of_a_gather(const struct plan *p, const char *tensor)
{
    int i = (int)(call(p, SCHED_STEADY, COLL_ALL_GATHER, GROUP_DATA, DT_INT8, tensor) - s.ops);
    int64_t live = 0, peak = 0;

    while (strcmp(s.ops[i].what, "gather buffer"))
        i--;
    for (bool done = false; !done; i++) {
        for (int w = 0; w < 2; w++)
            for (uint32_t k = s.ops[i].act0; k < s.ops[i].act0 + s.ops[i].nacts; k++) {
                const struct buf *b = &s.bufs[s.acts[k].buf];
                live += !w && (s.acts[k].what & ACT_ALLOC) ? b->bytes : 0;
                peak = live > peak ? live : peak;
                live -= w && (s.acts[k].what & ACT_FREE) ? b->bytes : 0;
                done |= !strcmp(b->what, "parameter") && (s.acts[k].what & ACT_ALLOC);
            }
    }
    return peak;
}

/* n elements: codes of all ranks, 8 x 512 scales, and the numbers in fp16, which are the parameter or are cast to it.  Then this
 * rank's codes are gone. */
static void a_gather_holds_codes_beside_numbers(void **state)
{
    static const struct { enum dtype t; int64_t bytes; } of[] = { { DT_FP16, 2 }, { DT_BF16, 2 + 2 }, { DT_FP32, 2 + 4 } };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct plan p;
        int64_t n = 4096 * 4096;
        int8_of(&p, 8, of[i].t);
        lowered(&p, 0, &s);
        assert_int_equal(peak_of_a_gather(&p, "q_proj.weight"), n + 16384 + of[i].bytes * n);
        plan_free(&p);
    }
}

/* Two nodes of eight.  4096 groups: 4096^2 / 2 bytes and 4096 scales to the node, an eighth of both across. */
static void a_reduction_goes_by_the_node_first(void **state)
{
    struct plan p;

    (void)state;
    int4_of(&p, 16, DT_FP16);
    lowered(&p, 5, &s);
    const struct op *codes = call(&p, SCHED_STEADY, COLL_ALL_TO_ALL, GROUP_NODE, DT_INT8, "q_proj.weight");
    const struct op *scales = call(&p, SCHED_STEADY, COLL_ALL_TO_ALL, GROUP_NODE, DT_FP32, "q_proj.weight");
    assert_int_equal(codes->u.coll.elems, 8388608);
    assert_int_equal(scales->u.coll.elems * 4, 16384);
    assert_int_equal(sched_sent_bytes(&s, codes) + sched_sent_bytes(&s, scales), 7354368);
    codes = call(&p, SCHED_STEADY, COLL_ALL_TO_ALL, GROUP_ACROSS, DT_INT8, "q_proj.weight");
    scales = call(&p, SCHED_STEADY, COLL_ALL_TO_ALL, GROUP_ACROSS, DT_FP32, "q_proj.weight");
    assert_int_equal(sched_sent_bytes(&s, codes) + sched_sent_bytes(&s, scales), 525312);
    assert_int_equal(call(&p, SCHED_STEADY, COLL_REDUCE_SCATTER, GROUP_DATA, DT_FP16, "input_layernorm.weight")->u.coll.elems * 2, 8192);
    assert_int_equal(coll_sent_bytes(COLL_REDUCE_SCATTER, 16, 4096 * 4096 * 2), 31457280);
    assert_int_equal(plan_groups_slowest(&p, &s.groups, plan_groups_find(&s.groups, GROUP_NODE)).nodes, 1);
    struct mesh_lie across = plan_groups_slowest(&p, &s.groups, plan_groups_find(&s.groups, GROUP_ACROSS));
    assert_int_equal(across.ranks, 2);
    assert_int_equal(across.nodes, 2);
    plan_free(&p);
}

/* num_nodes > 1 in __avg_scatter_grads. */
static void one_node_reduces_as_without(void **state)
{
    struct plan p;

    (void)state;
    int4_of(&p, 8, DT_FP16);
    lowered(&p, 0, &s);
    assert_int_equal(plan_groups_find(&s.groups, GROUP_NODE), -1);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_ALL_TO_ALL).elems, 0);
    assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).elems, 8 * parts(&p.model, 8));
    plan_free(&p);
}

static void lowering_refuses(struct plan *p, const char *says)
{
    char why[512] = "";
    int rc;

    fail_capture(why, sizeof why);
    rc = plan_check(p, "plan") < 0 ? -1 : lower(p, 0, &s);
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, says))
        fail_msg("expected \"%s\", got \"%s\"", says, why);
}

static void what_deepspeed_does_not_take_is_refused(void **state)
{
    struct plan p;

    (void)state;
    int8_of(&p, 4, DT_BF16);
    p.ds.stage3_allgather_sequential = true;
    lowering_refuses(&p, "stage3_allgather_sequential");
    p.ds.stage3_allgather_sequential = false;
    p.ds.offload_param.device = OFFLOAD_CPU;
    lowering_refuses(&p, "beside offload_param it is not supported yet");
    p.ds.offload_param.device = OFFLOAD_NONE;
    plan_move(&p, 6);
    p.ds.zero_quantized_weights = true;
    every_use(&p);
    lowering_refuses(&p, "6 ranks do not divide");
    plan_free(&p);
    deepspeed(&p, "gpt2", 2, 256, STRAT_ZERO3, DT_BF16);        /* 50257 * 768 / 256 */
    p.ds.zero_quantized_weights = true;
    every_use(&p);
    lowering_refuses(&p, "8 divides what a rank gives to a gather, 150771 elements from transformer.wte.weight");
    plan_free(&p);
    int4_of(&p, 16, DT_FP16);
    p.ds.reduce_scatter = false;
    lowering_refuses(&p, "reduce_scatter should also be enabled");
    plan_free(&p);
    deepspeed(&p, "gpt2", 2, 16, STRAT_ZERO3, DT_FP16);         /* 50257 groups */
    p.cluster.gpus_per_node = 8;
    p.cluster.nodes = 2;
    p.ds.zero_quantized_gradients = true;
    lowering_refuses(&p, "transformer.wte.weight has 50257 scales, which all_to_all_single cannot divide among 16 ranks");
    plan_free(&p);
}

static const char *of(json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text ? text : "";
}

static int64_t count(json_t *row, const char *key) { return json_integer_value(json_object_get(row, key)); }

/* What DeepSpeed does then, run: weights that PEFT froze before initialize() are codes of 0; a base of zero.Init is not quantised; the call
 * asserts fp16, and what it quantises can only be gathered tensor by tensor. */
static void frozen_rows_lose_or_do_nothing(const char *version)
{
    FILE *f = fopen("tests/golden/tune/frozen_int8.jsonl", "r");
    int rows[4] = { 0 };
    json_t *row;

    assert_non_null(f);
    for (; (row = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; json_decref(row)) {
        bool call = !strcmp(of(row, "way"), "zero.Init, call"), half = !strcmp(of(row, "precision"), "fp16");
        if (strcmp(of(row, "deepspeed"), version))
            continue;
        if (!strcmp(of(row, "way"), "frozen first")) {
            assert_int_equal(count(row, "int8"), count(row, "frozen"));
            assert_true(json_is_false(json_object_get(row, "whole")) && json_real_value(json_object_get(row, "zeros")) == 1.0);
            rows[0]++;
        } else if (!call) {
            assert_int_equal(count(row, "int8"), 0);
            assert_true(json_is_true(json_object_get(row, "whole")) && json_is_null(json_object_get(row, "says")));
            rows[1]++;
        } else if (!half) {
            assert_non_null(strstr(of(row, "says"), "expects tensor.dtype == torch.float16, got torch.bfloat16"));
            rows[2]++;
        } else {
            assert_true(count(row, "int8") > 0 && json_is_true(json_object_get(row, "whole")));
            assert_int_equal(strstr(of(row, "says"), "Half != signed char") != NULL, count(row, "prefetch") > 0);
            rows[3]++;
        }
    }
    fclose(f);
    assert_true(rows[0] == 2 && rows[1] == 1 && rows[2] == 1 && rows[3] == 2);
}

static void frozen_partitions_in_int8_are_refused(void **state)
{
    struct plan p;
    static const char *const says[2] = { "whole numbers", "\"expects tensor.dtype == torch.float16\"" };

    (void)state;
    frozen_rows_lose_or_do_nothing("0.19.6");
    frozen_rows_lose_or_do_nothing("0.19.8");
    deepspeed(&p, "llama-2-7b", 2, 4, STRAT_ZERO3, DT_BF16);
    p.ds.zero_quantized_nontrainable_weights = true;
    assert_int_equal(lower(&p, 0, &s), 0);      /* everything trains */
    p.train = training_default();
    strcpy(p.train.what, "lora");
    assert_int_equal(training_apply(&p.model, &p.train, "test"), 0);
    for (int i = 0; i < 4; i++) {
        p.ds.zero_quantized_weights = i >= 2;
        lowering_refuses(&p, says[i % 2]);
    }
    plan_free(&p);
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_the_first_that_divide),
        cmocka_unit_test(a_gather_is_codes_and_scales),
        cmocka_unit_test(nothing_else_is_gathered),
        cmocka_unit_test(persistent_parameters_stay_exact),
        cmocka_unit_test(a_gather_holds_codes_beside_numbers),
        cmocka_unit_test(a_reduction_goes_by_the_node_first),
        cmocka_unit_test(one_node_reduces_as_without),
        cmocka_unit_test(what_deepspeed_does_not_take_is_refused),
        cmocka_unit_test(frozen_partitions_in_int8_are_refused),
    };
    return cmocka_run_group_tests_name("model/zero3_quant", tests, NULL, end);
}
