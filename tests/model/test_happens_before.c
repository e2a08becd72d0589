/* The waits of every lowering, and that the checker sees a missing one. */
#include "tests/model/happens_before.h"
#include "tests/model/plans.h"
#include "tests/model/random_plan.h"

static struct schedules s;

static bool defers;                 /* the allocator of the lowering under test */

static bool ordered(char *why, size_t size)
{
    struct hb h;

    hb_init(&h, &s);
    h.defers = defers;
    bool yes = hb_run(&h);
    snprintf(why, size, "%s", h.why);
    hb_free(&h);
    return yes;
}

static void must_order(const char *what)
{
    char why[512];

    if (!ordered(why, sizeof why))
        fail_msg("%s: %s", what, why);
}

static void must_see(const char *word)
{
    char why[512];

    if (ordered(why, sizeof why))
        fail_msg("nothing found; it lacks \"%s\"", word);
    if (!strstr(why, word))
        fail_msg("says \"%s\", which lacks \"%s\"", why, word);
}

/* ---- the checker ---- */

/* A gather fills b on its stream, compute reads and frees it; `how` of four ways to wait. */
enum how { BY_NOTHING, BY_AFTER, BY_EVENT, BY_MEMORY_ENTRY, BY_BLOCKING, BY_STALE_EVENT };

static void gather_and_use(enum how how)
{
    hand_begin(&s);
    int b = sched_buf(&s, CAT_UNSHARDED, "b", NULL, 0, 1, 100);
    uint16_t e = sched_event(&s);
    empty(&s, SCHED_INIT);
    empty(&s, SCHED_FIRST);
    sched_begin(&s, SCHED_STEADY);
    struct op *o = sched_copy(&s, STREAM_GATHER, PHASE_FORWARD, "before", 0, 0);
    o->record = e;
    o = sched_coll(&s, STREAM_GATHER, PHASE_FORWARD, COLL_ALL_GATHER, GROUP_DATA, DT_FP32, RED_NONE, 25);
    o->after = AFTER(STREAM_COMPUTE);
    if (how != BY_STALE_EVENT)
        o->record = e;
    sched_act(&s, ACT_ALLOC, b, 0, 0);
    if (how == BY_MEMORY_ENTRY)
        sched_op(&s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "await")->wait[0] = e;
    if (how == BY_BLOCKING)
        sched_op(&s, OP_WAIT, STREAM_ISSUE, PHASE_FORWARD, "block")->after = AFTER(STREAM_GATHER);
    o = sched_copy(&s, STREAM_COMPUTE, PHASE_FORWARD, "use", 0, 0);
    if (how == BY_AFTER)
        o->after = AFTER(STREAM_GATHER);
    if (how == BY_EVENT || how == BY_STALE_EVENT)
        o->wait[0] = e;
    sched_act(&s, ACT_USE | ACT_FREE, b, 0, 0);
    sched_end(&s, SCHED_STEADY);
}

static void a_use_that_waits_in_any_way_is_ordered(void **state)
{
    (void)state;
    for (enum how how = BY_AFTER; how <= BY_BLOCKING; how++) {
        gather_and_use(how);
        must_order("by hand");
    }
}

static void a_use_that_waits_for_nothing_is_seen(void **state)
{
    (void)state;
    gather_and_use(BY_NOTHING);
    must_see("use");
}

static void an_event_recorded_before_the_gather_is_not_enough(void **state)
{
    (void)state;
    gather_and_use(BY_STALE_EVENT);
    must_see("use");
}

/* Without `after`, the next step's gather overwrites what compute still reads. */
static void overwriting_what_is_still_read_is_seen(void **state)
{
    (void)state;
    gather_and_use(BY_EVENT);
    s.ops[1].after = 0;
    must_see("reuses b");
}

static void freeing_what_another_stream_still_uses_is_seen(void **state)
{
    (void)state;
    hand_begin(&s);
    int b = sched_buf(&s, CAT_UNSHARDED, "b", NULL, 0, 1, 100);
    for (int id = 0; id < NSCHED; id++) {
        sched_begin(&s, (enum sched_id)id);
        sched_copy(&s, STREAM_REDUCE, PHASE_REDUCE, "fill", 0, 0);
        sched_act(&s, ACT_ALLOC, b, 0, 0);
        sched_op(&s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "drop");
        sched_act(&s, ACT_FREE, b, 0, 0);
        sched_op(&s, OP_WAIT, STREAM_ISSUE, PHASE_REDUCE, "end")->after = AFTER(STREAM_REDUCE);
        sched_end(&s, (enum sched_id)id);
    }
    must_see("frees b");
}

/* Two streams, one group: the second collective comes after the first. */
static void collectives_of_one_group_never_overlap(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        hand_begin(&s);
        hand_group(&s, GROUP_SHARD, 4);
        int b = sched_buf(&s, CAT_UNSHARDED, "b", NULL, 0, 1, 100);
        sched_begin(&s, SCHED_INIT);
        sched_coll(&s, STREAM_GATHER, PHASE_INIT, COLL_ALL_GATHER, GROUP_DATA, DT_FP32, RED_NONE, 25);
        sched_act(&s, ACT_ALLOC, b, 0, 0);
        sched_coll(&s, STREAM_REDUCE, PHASE_INIT, COLL_REDUCE_SCATTER, same ? GROUP_DATA : GROUP_SHARD,
                   DT_FP32, RED_SUM, 25);
        sched_act(&s, ACT_USE, b, 0, 0);
        sched_end(&s, SCHED_INIT);
        empty(&s, SCHED_FIRST);
        empty(&s, SCHED_STEADY);
        if (same)
            must_order("one group");
        else
            must_see("uses b");
    }
}

static void reading_on_two_streams_at_once_is_allowed_and_writing_is_not(void **state)
{
    (void)state;
    for (int writes = 0; writes < 2; writes++) {
        hand_begin(&s);
        int b = sched_buf(&s, CAT_PARAMS, "b", NULL, 0, 1, 100);
        sched_begin(&s, SCHED_INIT);
        sched_op(&s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model");
        sched_act(&s, ACT_ALLOC, b, 0, 0);
        sched_copy(&s, STREAM_COMPUTE, PHASE_FORWARD, "read", 0, 0);
        sched_act(&s, ACT_USE, b, 0, 0);
        sched_copy(&s, STREAM_COPY_IN, writes ? PHASE_OPTIMIZER : PHASE_FORWARD, "other", 0, 0);
        sched_act(&s, ACT_USE, b, 0, 0);
        sched_end(&s, SCHED_INIT);
        empty(&s, SCHED_FIRST);
        empty(&s, SCHED_STEADY);
        if (writes)
            must_see("overwrites b");
        else
            must_order("two readers");
    }
}

/* ---- the lowerings ---- */

static const char *const families[] = { "gpt2", "llama-3.2-1b", "opt-125m", "gemma-2-2b", "bloom-560m" };

/* Random plans of one cell. */
static void check_cell(enum strategy st, enum dialect d, int plans)
{
    uint64_t rng = 7 + 10 * (uint64_t)st + (uint64_t)d;
    char why[512], what[900];

    int checked = 0;
    for (int done = 0; done < plans; done++) {
        struct model whole, m;
        struct cluster c;
        struct plan p;
        assert_int_equal(model_load(families[draw(&rng, 5)], &whole), 0);
        assert_int_equal(model_with_layers(&whole, 1 + draw(&rng, 8), &m), 0);
        world_of(&c, 1 + draw(&rng, 12));
        for (int tries = 0; tries < 400; tries++) {
            draw_plan(&m, &c, &rng, &p);
            if (p.strategy == st && p.dialect == d)
                break;
        }
        if (p.strategy == st && p.dialect == d) {
            draw_limits(&p, &rng);
            p.micro_batch = 1;
            p.accumulation = 1 + p.accumulation % 4;
            fail_capture(why, sizeof why);
            int64_t rank = draw(&rng, (uint32_t)c.world_size);
            int rc = plan_check(&p, "plan") < 0 ? -1 : lower(&p, rank, &s);
            fail_capture(NULL, 0);
            checked += rc == 0;
            if (rc == 0 && (!schedules_check(&s, why, sizeof why) || !ordered(why, sizeof why))) {
                json_t *j = plan_to_json(&p);
                json_object_del(j, "model");
                json_object_del(j, "cluster");
                char *text = json_dumps(j, JSON_COMPACT);
                snprintf(what, sizeof what, "%s of %d, world %d: %s", whole.name, (int)m.layers,
                         (int)c.world_size, text);
                print_error("%s\n", what);
                fail_msg("%s", why);
            }
        }
        model_free(&m);
        model_free(&whole);
    }
    assert_true(checked >= plans / 2);          /* some draws are of other cells, or refused */
}

#define CELL_TEST(name, st, d) \
    static void name(void **state) \
    { \
        (void)state; \
        defers = d == DIALECT_TORCH_FSDP1 || d == DIALECT_DEEPSPEED; /* record_stream */ \
        check_cell(st, d, 40); \
    }

CELL_TEST(fsdp2_waits_for_what_it_uses, STRAT_FSDP, DIALECT_TORCH)
CELL_TEST(fsdp1_waits_for_what_it_uses, STRAT_FSDP, DIALECT_TORCH_FSDP1)
CELL_TEST(torch_ddp_waits_for_what_it_uses, STRAT_DDP, DIALECT_TORCH)
CELL_TEST(torch_zero1_waits_for_what_it_uses, STRAT_ZERO1, DIALECT_TORCH)
CELL_TEST(data_parallel_waits_for_what_it_uses, STRAT_DP, DIALECT_TORCH)
CELL_TEST(the_parameter_server_waits_for_what_it_uses, STRAT_DP, DIALECT_PAPER)
CELL_TEST(paper_ddp_waits_for_what_it_uses, STRAT_DDP, DIALECT_PAPER)
CELL_TEST(paper_zero1_waits_for_what_it_uses, STRAT_ZERO1, DIALECT_PAPER)
CELL_TEST(paper_zero2_waits_for_what_it_uses, STRAT_ZERO2, DIALECT_PAPER)
CELL_TEST(paper_zero3_waits_for_what_it_uses, STRAT_ZERO3, DIALECT_PAPER)
CELL_TEST(paper_fsdp_waits_for_what_it_uses, STRAT_FSDP, DIALECT_PAPER)
CELL_TEST(deepspeed_stage_0_waits_for_what_it_uses, STRAT_DDP, DIALECT_DEEPSPEED)
CELL_TEST(deepspeed_stage_1_waits_for_what_it_uses, STRAT_ZERO1, DIALECT_DEEPSPEED)
CELL_TEST(deepspeed_stage_2_waits_for_what_it_uses, STRAT_ZERO2, DIALECT_DEEPSPEED)
CELL_TEST(deepspeed_stage_3_waits_for_what_it_uses, STRAT_ZERO3, DIALECT_DEEPSPEED)

/* Copies of a sharded model in every shape that 8 ranks allow, one rank a copy among them. */
static void hybrid_sharding_waits_for_what_it_uses(void **state)
{
    (void)state;
    static const struct { enum strategy s; enum dialect d; } cells[] = {
        { STRAT_ZERO2, DIALECT_PAPER }, { STRAT_ZERO3, DIALECT_PAPER }, { STRAT_FSDP, DIALECT_PAPER },
        { STRAT_FSDP, DIALECT_TORCH },
    };
    char why[512];
    int checked = 0;

    defers = false;
    for (int i = 0; i < 4; i++)
        for (int v = 0; v < 4 * 3 * 2 * 2; v++) {
            struct plan p;
            plan_of(&p, "gpt2", 5, 8, cells[i].s, cells[i].d, v / 12 % 2 ? DT_BF16 : DT_FP32);
            p.shard_group = 1 << (v % 4);
            p.accumulation = 1 + v / 4 % 3;
            p.sync_every_micro_step = v / 24;
            fail_capture(why, sizeof why);
            int refused = plan_check(&p, "test") < 0;
            fail_capture(NULL, 0);
            if (!refused) {
                lowered(&p, 0, &s);
                must_order("hybrid");
                checked++;
            }
            plan_free(&p);
        }
    assert_true(checked >= 48);
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
        cmocka_unit_test(a_use_that_waits_in_any_way_is_ordered),
        cmocka_unit_test(a_use_that_waits_for_nothing_is_seen),
        cmocka_unit_test(an_event_recorded_before_the_gather_is_not_enough),
        cmocka_unit_test(overwriting_what_is_still_read_is_seen),
        cmocka_unit_test(freeing_what_another_stream_still_uses_is_seen),
        cmocka_unit_test(collectives_of_one_group_never_overlap),
        cmocka_unit_test(reading_on_two_streams_at_once_is_allowed_and_writing_is_not),
        cmocka_unit_test(fsdp2_waits_for_what_it_uses),
        cmocka_unit_test(fsdp1_waits_for_what_it_uses),
        cmocka_unit_test(torch_ddp_waits_for_what_it_uses),
        cmocka_unit_test(torch_zero1_waits_for_what_it_uses),
        cmocka_unit_test(data_parallel_waits_for_what_it_uses),
        cmocka_unit_test(the_parameter_server_waits_for_what_it_uses),
        cmocka_unit_test(paper_ddp_waits_for_what_it_uses),
        cmocka_unit_test(paper_zero1_waits_for_what_it_uses),
        cmocka_unit_test(paper_zero2_waits_for_what_it_uses),
        cmocka_unit_test(paper_zero3_waits_for_what_it_uses),
        cmocka_unit_test(paper_fsdp_waits_for_what_it_uses),
        cmocka_unit_test(hybrid_sharding_waits_for_what_it_uses),
        cmocka_unit_test(deepspeed_stage_0_waits_for_what_it_uses),
        cmocka_unit_test(deepspeed_stage_1_waits_for_what_it_uses),
        cmocka_unit_test(deepspeed_stage_2_waits_for_what_it_uses),
        cmocka_unit_test(deepspeed_stage_3_waits_for_what_it_uses),
    };
    return cmocka_run_group_tests_name("model/happens_before", tests, NULL, end);
}
