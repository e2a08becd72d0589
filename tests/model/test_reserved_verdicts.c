/* What the replay of PyTorch's allocator makes of a plan: fits, tight, does not fit; not known; an error of dpx. */
#include "tests/model/plans.h"
#include "model/memory/reserved.h"
#include "tests/model/request_plans.h"

#include <jansson.h>

/* Plan 10, fsdp2-gpt2, on a device of so many bytes. */
static enum verdict verdict_with(int64_t memory, double headroom, struct reserved *r)
{
    struct plan p;
    struct evaluation e;

    request_plan(10, &p);
    p.cluster.memory = memory;
    p.cluster.headroom = headroom;
    assert_int_equal(evaluate(&p, &e), 0);
    *r = e.reserved;
    enum verdict v = e.verdict;
    assert_int_equal(e.m.fits, v != VERDICT_DOES_NOT_FIT);
    assert_int_equal(v == VERDICT_DOES_NOT_FIT, e.why_not[0] != 0 && e.first_over.op >= 0);
    assert_int_equal(r->limit, memory - p.cluster.context - e.m.overhead.by[OVERHEAD_OUTSIDE]);
    assert_int_equal(r->driver, r->reserved_peak + e.m.overhead.by[OVERHEAD_OUTSIDE] + p.cluster.gpu.context);
    evaluation_free(&e);
    plan_free(&p);
    return v;
}

/* The limit is what the device has beside context and NCCL: just what is reserved at most fits without headroom and is
 * tight with one; a little less makes the allocator give its cache back; less than is active at most cannot do. */
static void verdicts_go_by_what_is_reserved(void **state)
{
    struct reserved room, r;
    int64_t gib = (int64_t)1 << 30;

    (void)state;
    assert_int_equal(verdict_with(80 * gib, 0.05, &room), VERDICT_FITS);
    assert_true(room.known && room.retries == 0 && !room.out_of_memory);
    assert_true(room.allocated_peak <= room.active_peak && room.active_peak <= room.reserved_peak);
    int64_t beside = 80 * gib - room.limit;
    assert_int_equal(verdict_with(room.reserved_peak + beside, 0, &r), VERDICT_FITS);
    assert_int_equal(r.reserved_peak, room.reserved_peak);
    assert_int_equal(verdict_with(room.reserved_peak + beside, 0.01, &r), VERDICT_TIGHT);
    assert_int_equal(r.retries, 0);
    assert_int_equal(verdict_with(room.reserved_peak + beside - (2 << 20), 0, &r), VERDICT_TIGHT);
    assert_true(r.retries > 0 && r.reserved_peak < room.reserved_peak);
    assert_int_equal(verdict_with(room.active_peak + beside - (2 << 20), 0, &r), VERDICT_DOES_NOT_FIT);
    assert_true(r.out_of_memory);
    assert_int_equal(r.reserved_peak, room.reserved_peak);
    /* What is reserved then is less than the limit by less than the request; what was cached and whole has gone. */
    int64_t limit = room.active_peak - (2 << 20);
    assert_true(r.then_allocated <= r.then_reserved && r.then_reserved <= limit);
    assert_true(r.then_reserved + r.refused + (20 << 20) > limit);
}

/* 256 TiB of addresses do not hold it: it does not fit, and no smaller figure stands for what it would reserve. */
static void what_no_address_space_holds_is_not_known(void **state)
{
    struct plan p;
    struct evaluation e;

    (void)state;
    request_plan(10, &p);
    p.micro_batch = 1 << 20;
    assert_int_equal(evaluate(&p, &e), 0);
    assert_true(e.allocated_peak > (int64_t)1 << 48);
    assert_false(e.reserved.known);
    assert_int_equal(e.verdict, VERDICT_DOES_NOT_FIT);
    evaluation_free(&e);
    plan_free(&p);
}

/* Of few tokens tensors of all kinds are of one size, 512 bytes: who frees whose is told apart all the same, adapters or none. */
static void a_few_tokens_are_walked_like_many(void **state)
{
    static const char *const models[] = { "gpt2", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b" };
    static const char *const cells[][2] = { { "ddp", "torch" }, { "fsdp", "torch" }, { "fsdp", "torch-fsdp1" }, { "zero2", "deepspeed" },
                                            { "zero3", "deepspeed" }, { "ddp", "megatron" } };
    static const char *const trains[] = { "", ", \"train\": \"lora\", \"lora\": { \"rank\": 1 }" };
    static const char *const recomputes[] = { "none", "full" };
    int n = 0;
    (void)state;

    for (int k = 0; k < 4 * 6 * 2 * 2 * 4; k++) {
        const char *const *cell = cells[k / 4 % 6];
        char text[400];
        struct plan p;
        struct evaluation e;
        bool adapters = k / 24 % 2;
        if (adapters && !strcmp(cell[1], "megatron"))
            continue;
        snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": \"%s\", \"cluster\": \"2xh100\", \"strategy\": \"%s\", \"dialect\": \"%s\", "
                 "\"seq\": %d, \"micro_batch\": 1, \"precision\": \"bf16\", \"recompute\": \"%s\"%s }",
                 models[k % 4], cell[0], cell[1], 1 + k / 96, recomputes[k / 48 % 2], trains[adapters]);
        json_t *j = json_loads(text, 0, NULL);
        assert_non_null(j);
        assert_int_equal(plan_from_json(j, "plan", &p), 0);
        if (evaluate(&p, &e) < 0)
            fail_msg("%s", text);
        assert_true(e.reserved.known && e.reserved.reserved_peak > 0);
        evaluation_free(&e);
        plan_free(&p);
        json_decref(j);
        n++;
    }
    assert_int_equal(n, 4 * 4 * 2 * (6 + 5));
}

static void kernels_of_dpx_have_an_arena(void **state)
{
    struct plan p;
    struct evaluation e;

    (void)state;
    request_plan(NREQUEST_PLANS - 5, &p);           /* paper: it has dpx's kernels */
    p.kernels = KERNELS_DPX;
    assert_int_equal(evaluate(&p, &e), 0);
    assert_false(e.reserved.known);
    assert_int_equal(e.m.fits, e.m.needed <= e.m.available);
    assert_int_equal(e.verdict, e.m.fits ? VERDICT_FITS : VERDICT_DOES_NOT_FIT);
    evaluation_free(&e);
    plan_free(&p);
}

/* A block's kernels make a tensor by another name than they free it by: the plan's figures would be those of a leak. */
static void a_free_of_what_was_never_made_is_an_internal_error(void **state)
{
    struct plan p;
    struct evaluation e;
    struct reserved r;
    char why[512];
    int i = 0;

    (void)state;
    request_plan(10, &p);
    assert_int_equal(evaluate_allocated(&p, &e), 0);
    assert_int_equal(reserved_of(&p, &e.schedules, &e.m.overhead, NULL, &r), 0);
    assert_true(r.known);
    struct move *m = e.schedules.program.piece[PIECE_BLOCK].moves[PASS_FORWARD];
    while (m[i].kind != MOVE_ALLOC)
        i++;
    m[i].tensor += 1 << 20;
    fail_capture(why, sizeof why);
    assert_int_equal(reserved_of(&p, &e.schedules, &e.m.overhead, NULL, &r), -1);
    assert_false(r.known);
    assert_int_equal(evaluation_reserve(&p, &e, NULL), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "internal error: the replay of PyTorch's allocator on rank 0 frees "));
    m[i].tensor -= 1 << 20;
    evaluation_free(&e);
    plan_free(&p);
}

static void what_a_papers_pipeline_reserves_is_not_known(void **state)
{
    struct plan p;

    (void)state;
    request_plan(NREQUEST_PLANS - 4, &p);
    assert_true(p.dialect == DIALECT_PAPER && reserved_is_known(&p));
    p.parallel.pipeline = 2;
    assert_false(reserved_is_known(&p));
    plan_free(&p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_go_by_what_is_reserved),
        cmocka_unit_test(what_no_address_space_holds_is_not_known),
        cmocka_unit_test(a_few_tokens_are_walked_like_many),
        cmocka_unit_test(kernels_of_dpx_have_an_arena),
        cmocka_unit_test(a_free_of_what_was_never_made_is_an_internal_error),
        cmocka_unit_test(what_a_papers_pipeline_reserves_is_not_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
