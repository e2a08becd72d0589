/* test_ddp_hook.c -- DDP's communication hooks: what they send, keep and refuse.  Lists and peaks of PyTorch itself are compared in
 * test_collectives.c (30 plans) and test_torch_memory.c (24). */
#include "tests/model/plans.h"

#include "model/schedule/ledger.h"

static struct schedules s;

struct sent { int64_t calls, elems, bytes; };

static struct sent reduced(enum sched_id id)
{
    struct sent sum = { 0 };

    for (int i = s.begin[id]; i < s.end[id]; i++) {
        const struct op *o = &s.ops[i];
        if (o->kind != OP_COLL || o->u.coll.op != COLL_ALL_REDUCE)
            continue;
        sum.calls++;
        sum.elems += o->u.coll.elems;
        sum.bytes += o->u.coll.elems * dtype_bytes((enum dtype)o->u.coll.dtype);
    }
    return sum;
}

/* GPT-2 124M: 124,439,808 parameters in 13 buckets (test_ddp.c). */
static void compression_halves_the_bytes_and_keeps_the_calls(void **state)
{
    (void)state;
    struct plan p;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    lowered(&p, 0, &s);
    struct sent plain = reduced(SCHED_STEADY);
    for (int hook = HOOK_FP16; hook <= HOOK_BF16; hook++) {
        p.ddp.comm_hook = (enum comm_hook)hook;
        plan_resolve(&p);
        assert_int_equal(p.reduce_dtype, hook == HOOK_FP16 ? DT_FP16 : DT_BF16);
        lowered(&p, 0, &s);
        struct sent now = reduced(SCHED_STEADY);
        assert_int_equal(now.calls, plain.calls);
        assert_int_equal(now.elems, 124439808);
        assert_int_equal(2 * now.bytes, plain.bytes);
    }
    plan_free(&p);
}

/* Matrices of a block of GPT-2, rows and columns: 768 x 2304, 768 x 768, 768 x 3072, 3072 x 768; wte 50257 x 768, wpe 1024 x 768.  Each
 * becomes (rows + columns) r numbers; vectors, 13 of 768 elements a block but for 2304 and 3072 of two biases, go as they are:
 * a block 4 x 768 of norms, 2304 + 768 + 3072 + 768 of biases; 2 x 768 of the last norm. */
static void powersgd_sends_two_narrow_matrices_for_each(void **state)
{
    (void)state;
    const int64_t block = 3072 + 1536 + 3840 + 3840, ends = 50257 + 768 + 1024 + 768;
    const int64_t vectors = 12 * (4 * 768 + 2304 + 768 + 3072 + 768) + 2 * 768;
    struct plan p;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    lowered(&p, 0, &s);
    struct sent plain = reduced(SCHED_STEADY), first = reduced(SCHED_FIRST);
    p.ddp.comm_hook = HOOK_POWERSGD;
    for (int64_t r = 1; r <= 32; r *= 2) {
        p.ddp.powersgd.rank = r;
        lowered(&p, 0, &s);
        struct sent now = reduced(SCHED_STEADY), begins = reduced(SCHED_FIRST);
        assert_int_equal(now.calls, 3 * plain.calls);
        assert_int_equal(now.elems, (12 * block + ends) * r + vectors);
        assert_int_equal(now.bytes, 4 * now.elems);
        assert_memory_equal(&begins, &first, sizeof first);
    }
    plan_free(&p);
}

/* The first step is one of `start` whole reductions; those behind it send what DDP sends without the hook. */
static void steps_before_the_start_reduce_whole_buckets(void **state)
{
    (void)state;
    struct plan p;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    lowered(&p, 0, &s);
    struct sent plain = reduced(SCHED_STEADY);
    assert_int_equal(s.early, 0);
    assert_int_equal(sched_times(&s, SCHED_STEADY, 10), 9);
    p.ddp.comm_hook = HOOK_POWERSGD;
    for (int64_t start = 2; start <= 20; start += 9) {
        p.ddp.powersgd.start = start;
        lowered(&p, 0, &s);
        struct sent early = reduced(SCHED_EARLY);
        int64_t times[NSCHED] = { 0 };
        assert_int_equal(s.early, start - 1);
        assert_memory_equal(&early, &plain, sizeof plain);
        for (int64_t step = 1; step <= 15; step++)
            times[sched_of_step(&s, step)]++;
        assert_int_equal(times[SCHED_FIRST] + times[SCHED_EARLY], start < 15 ? start : 15);
        for (int id = SCHED_FIRST; id < NSCHED; id++)
            assert_int_equal(sched_times(&s, (enum sched_id)id, 15), times[id]);
    }
    plan_free(&p);
}

/* What the executor is told: of every element a matrix has, or it is reduced as it is; Ps and Qs are what is sent. */
static void matrices_and_the_rest_are_the_bucket(void **state)
{
    (void)state;
    struct plan p;
    int64_t elems = 0, sent = 0, rest = 0;

    plan_of(&p, "gpt2", 2, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.ddp.comm_hook = HOOK_POWERSGD;
    p.ddp.powersgd.rank = 4;
    s.detailed = true;
    lowered(&p, 0, &s);
    for (int i = 0; i < s.nnarrows; i++) {
        const struct narrow *m = &s.narrows[i];
        elems += m->rows * m->cols;
        sent += (m->rows + m->cols) * m->rank;
    }
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
        const struct op *o = &s.ops[i];
        if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_REDUCE && s.bufs[s.acts[o->act0].buf].layout)
            rest += o->u.coll.elems;
    }
    assert_int_equal(elems + rest, p.model.params);
    assert_int_equal(sent + rest, reduced(SCHED_STEADY).elems);
    s.detailed = false;
    plan_free(&p);
}

/* Between steps: an error for each gradient, Ps and Qs (512-byte roundings: at most one a buffer, 3 buffers a bucket of 13). */
static void powersgd_keeps_errors_and_matrices(void **state)
{
    (void)state;
    struct plan p;
    struct ledger plain, now;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    lowered(&p, 0, &s);
    ledger_run(&s, &plain);
    p.ddp.comm_hook = HOOK_POWERSGD;
    p.ddp.powersgd.rank = 4;
    lowered(&p, 0, &s);
    ledger_run(&s, &now);
    int64_t narrow = 4 * 4 * (12 * (3072 + 1536 + 3840 + 3840) + 50257 + 768 + 1024 + 768);
    int64_t more = now.persistent[CAT_BUCKET] - plain.persistent[CAT_BUCKET] - 4 * 124439808 - narrow;
    assert_true(more >= 0 && more < 3 * 13 * 512);
    p.ddp.powersgd.error_feedback = p.ddp.powersgd.warm_start = false;
    lowered(&p, 0, &s);
    ledger_run(&s, &now);
    assert_int_equal(now.persistent[CAT_BUCKET], plain.persistent[CAT_BUCKET]);
    plan_free(&p);
}

enum { MOST = 64 };

/* Elements of the step's collectives of one kind and dtype, in their order. */
static int elems_of(enum coll_op op, enum dtype t, int64_t *elems)
{
    int n = 0;

    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        if (s.ops[i].kind == OP_COLL && s.ops[i].u.coll.op == op && s.ops[i].u.coll.dtype == t) {
            assert_true(n < MOST);
            elems[n++] = s.ops[i].u.coll.elems;
        }
    return n;
}

/* A bucket of n elements is n / 512 + 1 rows of 512 bytes, each with a scale and a zero point in fp32; 8 ranks gather both.  The result is
 * a tensor of its own, which lives until the next step's was copied out: 4 n bytes a bucket beside the bucket. */
static void rows_of_bytes_are_gathered_and_results_stay(void **state)
{
    (void)state;
    struct plan p;
    struct ledger plain, now;
    int64_t n[MOST], scales[MOST], bytes[MOST], kept = 0, sums = 0, sent = 0;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    lowered(&p, 0, &s);
    ledger_run(&s, &plain);
    int buckets = elems_of(COLL_ALL_REDUCE, DT_FP32, n);
    assert_int_equal(buckets, 13);
    p.ddp.comm_hook = HOOK_ROWS;
    lowered(&p, 0, &s);
    ledger_run(&s, &now);
    assert_int_equal(elems_of(COLL_ALL_REDUCE, DT_FP32, scales), 0);
    assert_int_equal(elems_of(COLL_ALL_GATHER, DT_FP32, scales), buckets);
    assert_int_equal(elems_of(COLL_ALL_GATHER, DT_UINT8, bytes), buckets);
    for (int b = 0; b < buckets; b++) {
        int64_t rows = n[b] / 512 + 1;
        assert_int_equal(scales[b], 8 * 2 * rows);
        assert_int_equal(bytes[b], 8 * 512 * rows);
        kept += (4 * n[b] + 511) / 512 * 512;
        sums += 2 * 4 * n[b];                   /* a ring's all-reduce: twice 7/8 of the bytes; */
        sent += 4 * scales[b] + bytes[b];       /* its all-gather: 7/8 of all ranks' */
    }
    assert_int_equal(now.persistent[CAT_BUCKET] - plain.persistent[CAT_BUCKET], kept);
    assert_true(sent > sums);                   /* on 8 GPUs the hook sends more than the sum it replaces: 8 > 2 * 4 */
    plan_free(&p);
}

/* Four kernels a row to make bytes, three a row and rank to read them: of GPT-2's 124M gradients on 8 GPUs seven million. */
static void each_row_is_kernels_of_its_own(void **state)
{
    (void)state;
    struct plan p;
    int64_t n[MOST], kernels = 0, rows = 0;

    plan_of(&p, "gpt2", 0, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    lowered(&p, 0, &s);
    int buckets = elems_of(COLL_ALL_REDUCE, DT_FP32, n);
    for (int b = 0; b < buckets; b++)
        rows += n[b] / 512 + 1;
    p.ddp.comm_hook = HOOK_ROWS;
    lowered(&p, 0, &s);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        if (s.ops[i].kind == OP_COPY && s.ops[i].stream == STREAM_REDUCE)
            kernels += s.ops[i].u.copy.kernels > 1 ? s.ops[i].u.copy.kernels : 1;
    /* beside them: zeros, clamp, cast; a list of 8; the sum's zeros, of each rank cast, zeros, add; the mean */
    assert_int_equal(kernels, (4 + 8 * 3) * rows + buckets * (3 + 8 + 1 + 8 * 3 + 1));
    plan_free(&p);
}

static void refuses(struct plan *p, const char *says)
{
    char why[512] = "";

    fail_capture(why, sizeof why);
    plan_resolve(p);
    int rc = plan_check(p, "test");
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, says))
        fail_msg("expected \"%s\", said \"%s\"", says, why);
}

static void what_is_not_there_is_refused_by_name(void **state)
{
    (void)state;
    struct plan p;

    plan_of(&p, "gpt2", 2, 8, STRAT_DDP, DIALECT_TORCH, DT_FP32);
    p.ddp.comm_hook = HOOK_POWERSGD;
    p.ddp.powersgd.start = 1;
    refuses(&p, "start_powerSGD_iter: above 1");
    p.ddp.powersgd.error_feedback = p.ddp.powersgd.warm_start = false;
    refuses(&p, "start_powerSGD_iter: below 2");
    p.ddp.powersgd.start = 2;
    p.accumulation = 2;
    refuses(&p, "set sync_every_micro_step to false");
    p.sync_every_micro_step = false;
    assert_int_equal(plan_check(&p, "test"), 0);
    p.accumulation = 1;
    p.ddp.static_graph = true;
    refuses(&p, "static_graph");
    p.ddp.static_graph = false;
    p.ddp.comm_hook = HOOK_ROWS;
    p.accumulation = 2;
    p.sync_every_micro_step = true;
    refuses(&p, "quantization_perchannel_hook is modelled with one reduction of a bucket a step");
    p.accumulation = 1;
    p.ddp.model_dtype = DT_BF16;
    p.precision = DT_BF16;
    refuses(&p, "of gradients in fp32, and these are in bf16");
    p.ddp.model_dtype = -1;
    p.precision = DT_FP32;
    p.ddp.comm_hook = HOOK_FP16;
    p.deterministic = true;
    refuses(&p, "deterministic");
    p.deterministic = false;
    p.reduce_dtype = DT_FP32;
    char why[512] = "";
    fail_capture(why, sizeof why);
    assert_int_equal(plan_check(&p, "test"), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "reduces in the dtype of ddp.comm_hook, fp16"));
    plan_free(&p);
}

static void words_that_frameworks_have_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct { const char *plan, *says; } of[] = {
        { "{\"strategy\":\"ddp\",\"dialect\":\"torch\",\"ddp\":{\"comm_hook\":\"batched_powerSGD_hook\"}}", "one square matrix" },
        { "{\"strategy\":\"ddp\",\"dialect\":\"torch\",\"ddp\":{\"comm_hook\":\"quantization_pertensor_hook\"}}", "one scale for a whole bucket" },
        { "{\"strategy\":\"ddp\",\"dialect\":\"torch\",\"ddp\":{\"comm_hook\":\"allreduce_hook\"}}", "as DDP does without a hook" },
        { "{\"strategy\":\"ddp\",\"dialect\":\"torch\",\"ddp\":{\"comm_wrapper\":\"fp16\"}}", "comm_wrapper: a hook within" },
        { "{\"strategy\":\"ddp\",\"dialect\":\"torch\",\"ddp\":{\"PowerSGDState\":{\"warm_start\":false}}}", "is not \"powerSGD_hook\"" },
        { "{\"strategy\":\"fsdp\",\"dialect\":\"torch\",\"fsdp\":{\"enable_fsdp_float8_all_gather\":true}}", "fp8 is \"none\"" },
        { "{\"strategy\":\"zero2\",\"dialect\":\"deepspeed\",\"optimizer\":\"OneBitAdam\"}", "1-bit Adam" },
        { "{\"strategy\":\"zero2\",\"dialect\":\"deepspeed\",\"optimizer\":\"OneBitLamb\"}", "1-bit LAMB" },
        { "{\"strategy\":\"zero2\",\"dialect\":\"deepspeed\",\"optimizer\":\"ZeroOneAdam\"}", "0/1 Adam" },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        json_t *j = json_loads(of[i].plan, 0, NULL);
        char why[512] = "";
        struct plan p;
        json_object_set_new(j, "dpx_plan", json_integer(1));
        json_object_set_new(j, "model", json_string("gpt2"));
        json_object_set_new(j, "cluster", json_string("8xh100"));
        json_object_set_new(j, "seq", json_integer(64));
        fail_capture(why, sizeof why);
        int rc = plan_from_json(j, "test", &p);
        fail_capture(NULL, 0);
        json_decref(j);
        if (rc == 0 || !strstr(why, of[i].says))
            fail_msg("%s: said \"%s\"", of[i].plan, why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compression_halves_the_bytes_and_keeps_the_calls),
        cmocka_unit_test(powersgd_sends_two_narrow_matrices_for_each),
        cmocka_unit_test(steps_before_the_start_reduce_whole_buckets),
        cmocka_unit_test(matrices_and_the_rest_are_the_bucket),
        cmocka_unit_test(powersgd_keeps_errors_and_matrices),
        cmocka_unit_test(rows_of_bytes_are_gathered_and_results_stay),
        cmocka_unit_test(each_row_is_kernels_of_its_own),
        cmocka_unit_test(what_is_not_there_is_refused_by_name),
        cmocka_unit_test(words_that_frameworks_have_are_refused_with_a_reason),
    };
    int rc = cmocka_run_group_tests_name("model/ddp hook", tests, NULL, NULL);

    schedules_free(&s);
    return rc;
}
