/* The waits of every lowering, and that the checker sees a missing one. */
#include "tests/model/happens_before.h"
#include "tests/model/plans.h"
#include "tests/model/random_plan.h"

static struct schedules s;

/* Plans of each cell, and which: argv. */
static int each = 40, seed = 0;

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

static const char *const families[] = { "gpt2", "llama-3.2-1b", "opt-125m", "gemma-2-2b", "bloom-560m", "llama-3.1-8b", "mistral-7b" };
static const int64_t sizes[] = { 1, 2, 3, 4, 6, 8, 8, 12, 16 };

static const char mixture[] =
    "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 4, \"hidden_size\": 256, \"intermediate_size\": 512, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"vocab_size\": 1024, \"max_position_embeddings\": 512, \"num_local_experts\": 8, \"num_experts_per_tok\": 2}";

static void load(const char *family, struct model *out)
{
    json_t *config = family ? NULL : json_loads(mixture, 0, NULL);

    assert_int_equal(family ? model_load(family, out) : model_from_config(config, "mixtral", out), 0);
    json_decref(config);
}

/* A model that the cell may have: of its families, or a mixture; with adapters or frozen tensors where it plans them. */
static void draw_cell_model(enum strategy st, enum dialect d, uint64_t *rng, struct model *m)
{
    bool megatron = d == DIALECT_MEGATRON, mixes = megatron || d == DIALECT_DEEPSPEED || (d == DIALECT_TORCH && st != STRAT_ZERO1);
    const char *family = mixes && draw(rng, 4) == 0 ? NULL : megatron ? families[draw(rng, 2) * 5] : families[draw(rng, 7)];
    struct model whole, cut;

    load(family, &whole);
    assert_int_equal(model_with_layers(&whole, 1 + draw(rng, 8), &cut), 0);
    if (knob_find("", "train", CELL(st, d)) && family && draw(rng, 2)) {
        (megatron ? draw_bridge : draw_model)(&cut, rng, m);
        model_free(&cut);
    } else {
        *m = cut;
    }
    model_free(&whole);
}

static void say_plan(const struct plan *p, int64_t rank, const char *why)
{
    json_t *j = plan_to_json(p);

    json_object_del(j, "model");
    json_object_del(j, "cluster");
    char *text = json_dumps(j, JSON_COMPACT);
    print_error("%s of %d, rank %d of %d: %s\n", p->model.name, (int)p->model.layers, (int)rank, (int)p->cluster.world_size, text);
    free(text);
    json_decref(j);
    fail_msg("%s", why);
}

/* Random plans of one cell. */
static void check_cell(enum strategy st, enum dialect d, int plans)
{
    uint64_t rng = 7 + 10 * (uint64_t)st + (uint64_t)d + 100 * (uint64_t)seed;
    char why[512];
    int checked = 0;

    for (int done = 0; done < plans; done++) {
        struct model m;
        struct cluster c;
        struct plan p;
        draw_cell_model(st, d, &rng, &m);
        world_of(&c, sizes[draw(&rng, 9)]);
        if (draw_plan_of(&m, &c, &rng, st, d, &p)) {
            draw_limits(&p, &rng);
            p.micro_batch = 1 + p.micro_batch % 4;
            p.accumulation = p.parallel.pipeline > 1 ? p.accumulation : 1 + p.accumulation % 4;
            fail_capture(why, sizeof why);
            int64_t rank = draw(&rng, (uint32_t)c.world_size);
            int rc = plan_check(&p, "plan") < 0 ? -1 : lower(&p, rank, &s);
            fail_capture(NULL, 0);
            checked += rc == 0;
            if (rc == 0 && (!schedules_check(&s, why, sizeof why) || !ordered(why, sizeof why)))
                say_plan(&p, rank, why);
        }
        model_free(&m);
    }
    if (checked < plans / 2)                    /* some models are not the cell's, or plans refused */
        fail_msg("%d plans of %d", checked, plans);
}

#define CELL_TEST(name, st, d) \
    static void name(void **state) \
    { \
        (void)state; \
        defers = d == DIALECT_TORCH_FSDP1 || d == DIALECT_DEEPSPEED; /* record_stream */ \
        check_cell(st, d, each); \
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
CELL_TEST(megatron_ddp_waits_for_what_it_uses, STRAT_DDP, DIALECT_MEGATRON)
CELL_TEST(megatrons_distributed_optimizer_waits_for_what_it_uses, STRAT_ZERO1, DIALECT_MEGATRON)

/* A plan of a model with adapters on these layers. */
static void adapted(struct plan *p, enum strategy st, enum dialect d, const char *targets)
{
    plan_of(p, "gpt2", 5, 4, st, d, DT_FP32);
    p->train = training_default();
    strcpy(p->train.what, "lora");
    strcpy(p->train.target_modules, targets);
    assert_int_equal(training_apply(&p->model, &p->train, "test"), 0);
}

/* The root does not train, so that it has no gradient buffer to wait with for those of the micro-step before. */
static void adapters_reduced_each_micro_step_wait_for_their_buffers(void **state)
{
    (void)state;
    defers = false;
    for (enum strategy st = STRAT_ZERO2; st <= STRAT_FSDP; st++)
        for (enum unit_kind unit = UNIT_BLOCK; unit <= UNIT_HALF_BLOCK; unit++) {
            struct plan p;
            adapted(&p, st, DIALECT_PAPER, "c_attn");
            p.unit = unit;
            p.accumulation = 3;
            p.sync_every_micro_step = true;
            lowered(&p, 0, &s);
            must_order(strategy_name(st));
            plan_free(&p);
        }
}

/* A middle stage has no root either. */
static void stages_without_a_root_wait_for_their_buffers(void **state)
{
    (void)state;
    defers = false;
    for (enum strategy st = STRAT_ZERO2; st <= STRAT_FSDP; st++) {
        struct plan p;
        plan_of(&p, "llama-3.1-8b", 6, 6, st, DIALECT_PAPER, DT_FP32);
        p.parallel.pipeline = 3;
        p.accumulation = 6;
        knob_follow(&p, NULL, NULL);
        plan_resolve(&p);
        for (int64_t rank = 0; rank < 6; rank++) {
            lowered(&p, rank, &s);
            must_order(strategy_name(st));
        }
        plan_free(&p);
    }
}

/* One half of each block has adapters: the other's unit has no gradients, hence no reduce-scatter to wait for. */
static void half_blocks_beside_adapters_wait_for_units_that_train(void **state)
{
    static const char *const targets[] = { "c_attn", "c_fc", "c_attn,c_fc" };

    (void)state;
    defers = false;
    for (int v = 0; v < 3 * 3 * 2 * 2; v++) {
        struct plan p;
        adapted(&p, STRAT_FSDP, DIALECT_TORCH, targets[v % 3]);
        p.unit = UNIT_HALF_BLOCK;
        p.accumulation = 1 + v / 3 % 3;
        p.sync_every_micro_step = v / 9 % 2;
        p.recompute = v / 18 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        lowered(&p, 0, &s);
        must_order(targets[v % 3]);
        plan_free(&p);
    }
}

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

/* test_happens_before [PLANS [SEED]]: so many plans of each cell. */
int main(int argc, char **argv)
{
    each = argc > 1 ? atoi(argv[1]) : each;
    seed = argc > 2 ? atoi(argv[2]) : seed;

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
        cmocka_unit_test(megatron_ddp_waits_for_what_it_uses),
        cmocka_unit_test(megatrons_distributed_optimizer_waits_for_what_it_uses),
        cmocka_unit_test(adapters_reduced_each_micro_step_wait_for_their_buffers),
        cmocka_unit_test(stages_without_a_root_wait_for_their_buffers),
        cmocka_unit_test(half_blocks_beside_adapters_wait_for_units_that_train),
    };
    return cmocka_run_group_tests_name("model/happens_before", tests, NULL, end);
}
