/* Ranks that share cores: who waits leaves its core to those that compute (crowd.h). */
#include "tests/check.h"

#include "model/schedule/measured.h"
#include "tests/sim/pipeline_beds.h"

/* Four ranks on two cores, which were timed together: 0 and 1 have one, 2 and 3 the other. */
static const struct crowd four_on_two[2] = {
    { .timed = 2, .alone = 1, .by = { 1, 1 } }, { .timed = 2, .alone = 1, .by = { 0, 0, 1, 1 } } };
/* Two ranks, each on a core of its own: two threads of one core, on which either takes .6 of the time while the other sleeps. */
static const struct crowd two_threads[2] = {
    { .timed = 1, .alone = .6, .by = { 1 }, .beside = { 0, 1 } }, { .timed = 1, .alone = .6, .by = { 0, 1 }, .beside = { 1 } } };

static void share(struct pipe *b)
{
    for (int r = 0; r < b->p; r++)
        b->role[r].crowd = &four_on_two[r / 2];
}

static double run(struct pipe *b, struct timeline *lines)
{
    struct clock_result r;

    if (!clock_run(b->role, b->p, SCHED_STEADY, lines, NULL, &r))
        fail_msg("%s", r.why);
    return r.makespan_s;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-9 * (1 + fabs(b)); }

/* One stage at a time computes, and has a core: 4 x (1 + 2) s, in half of the time. */
static void a_stage_that_waits_leaves_its_core(void **state)
{
    (void)state;
    struct pace t[4] = { { 1, 2, 0 }, { 1, 2, 0 }, { 1, 2, 0 }, { 1, 2, 0 } };
    struct timeline lines[4];
    struct pipe b;

    pipe_open(&b, 4);
    pipe_gpipe(&b, t, 1);
    pipe_end(&b);
    assert_true(near(run(&b, lines), 12));
    share(&b);
    assert_true(near(run(&b, lines), 6));
    for (int r = 0; r < 4; r++)
        assert_true(near(lines[r].compute_s, 1.5));
    pipe_close(&b);
}

/* 2 and 4 s of the calibration on either core: for 2 s two share it, as then; the one that is left has it, and does 2 s in 1. */
static void those_that_are_left_go_faster(void **state)
{
    (void)state;
    static const double ends[4] = { 2, 3, 2, 3 };
    struct timeline lines[4];
    struct pipe b;

    pipe_open(&b, 4);
    for (int r = 0; r < 4; r++)
        stage_work(&b.stage[r], STREAM_COMPUTE, PHASE_FORWARD, r % 2 ? 4 : 2);
    pipe_end(&b);
    share(&b);
    assert_true(near(run(&b, lines), 3));
    for (int r = 0; r < 4; r++)
        assert_true(near(lines[r].step_s, ends[r]));
    pipe_close(&b);
}

/* Of 2 and 4 s by the calibration: 2 s both compute, and the 2 s that are left of the longer one take 1.2. */
static void a_core_that_sleeps_leaves_its_share(void **state)
{
    (void)state;
    struct pace t[2] = { { 1, 2, 0 }, { 1, 2, 0 } };
    struct timeline lines[2];
    struct pipe b;

    pipe_open(&b, 2);
    for (int r = 0; r < 2; r++) {
        stage_work(&b.stage[r], STREAM_COMPUTE, PHASE_FORWARD, r ? 4 : 2);
        b.role[r].crowd = &two_threads[r];
    }
    pipe_end(&b);
    assert_true(near(run(&b, lines), 3.2));
    assert_true(near(lines[0].step_s, 2) && near(lines[1].step_s, 3.2));
    pipe_close(&b);
    pipe_open(&b, 2);                   /* one stage at a time: 2 x (1 + 2) s */
    pipe_gpipe(&b, t, 1);
    pipe_end(&b);
    for (int r = 0; r < 2; r++)
        b.role[r].crowd = &two_threads[r];
    assert_true(near(run(&b, lines), .6 * 6));
    pipe_close(&b);
}

/* Messages keep their time: one stage at a time, four times 0.5 + 1 s, and six messages of 0.25 s. */
static void messages_keep_their_time(void **state)
{
    (void)state;
    struct pace t[4] = { { 1, 2, .25 }, { 1, 2, .25 }, { 1, 2, .25 }, { 1, 2, .25 } };
    struct timeline lines[4];
    struct pipe b;

    pipe_open(&b, 4);
    pipe_gpipe(&b, t, 1);
    pipe_end(&b);
    share(&b);
    assert_true(near(run(&b, lines), 6 + 6 * .25));
    pipe_close(&b);
}

/* Repeats that the clock jumps over end when those that it runs one by one do. */
static void jumps_are_exact(void **state)
{
    (void)state;
    struct pace t[4] = { { 1, 2, .1 }, { 1.5, 2.5, .1 }, { 1, 2, .1 }, { .5, 1, .1 } };
    double s[2];

    for (int folded = 0; folded < 2; folded++) {
        struct timeline lines[4];
        struct pipe b;
        pipe_open(&b, 4);
        b.folded = folded;
        pipe_1f1b(&b, t, 40);
        pipe_end(&b);
        share(&b);
        s[folded] = run(&b, lines);
        pipe_close(&b);
    }
    assert_true(near(s[0], s[1]));
}

/* 4 ranks of 1 thread, timed as 4 on 2 cores.  In two stages the two ranks of a stage share a core, which another stage's waiting does not
 * relieve; in four stages it does. */
static void what_a_role_asks_for(void **state)
{
    (void)state;
    struct measured_device m = { .ranks = 4, .threads = 1, .cores = 2 };
    struct plan p = { .kernels = KERNELS_DPX, .strategy = STRAT_DDP, .shard_group = 4,
                      .parallel = { .tensor = 1, .context = 1, .pipeline = 2 },
                      .cluster = { .is_host = 1, .nodes = 1, .gpus_per_node = 4, .world_size = 4, .measured = &m } };
    struct crowd c;

    assert_true(crowd_of(&p, 0, &c));
    assert_true(near(c.timed, 2) && near(c.by[0], 2) && near(c.by[1], 0));
    assert_true(near(crowd_pace(&c, 2, 1), 1) && near(crowd_pace(&c, 1, 1), .5) && near(crowd_pace(&c, .5, 0), .5));
    assert_true(near(c.beside[0], 0) && near(c.beside[1], 1));
    assert_true(crowd_of(&p, 2, &c));
    assert_true(near(c.by[0], 0) && near(c.by[1], 2));
    p.parallel.pipeline = 4;
    assert_true(crowd_of(&p, 1, &c));
    assert_true(near(c.by[0], 1) && near(c.by[1], 1) && near(c.by[2], 0));
    assert_true(crowd_of(&p, 3, &c));
    assert_true(near(c.by[1], 0) && near(c.by[2], 1) && near(c.by[3], 1));
    m.cores = 3;                        /* 4 ranks do not divide: all have all */
    assert_true(crowd_of(&p, 3, &c));
    assert_true(near(c.timed, 4. / 3) && near(c.by[0], 1. / 3) && near(c.by[3], 1. / 3));
    m.cores = 4;                        /* each had a core of its own */
    assert_false(crowd_of(&p, 0, &c));
    m.alone.s = 3e-3;                   /* and they share what cores share: a third less where the others sleep */
    m.together.s = 4.5e-3;
    assert_true(crowd_of(&p, 0, &c));
    assert_true(near(c.timed, 1) && near(c.by[0], 1) && near(c.beside[0], 0) && near(c.beside[3], 1. / 3));
    assert_true(near(c.alone, 2. / 3) && near(crowd_pace(&c, 1, .5), 5. / 6));
    p.parallel.pipeline = 1;            /* ranks of one stage compute at once */
    assert_false(crowd_of(&p, 0, &c));
    p.parallel.pipeline = 4;
    m.cores = 2;                        /* alone it has a core for which two ask else: 1.5 ms of 4.5 are that, the rest is what cores share */
    m.alone.s = 1.5e-3;
    assert_true(crowd_of(&p, 0, &c));
    assert_true(near(c.timed, 2) && near(c.alone, 2. / 3) && near(c.beside[1], 0) && near(c.beside[2], .5));
    m.alone.s = 2.5e-3;                 /* no faster than the core explains */
    assert_true(crowd_of(&p, 0, &c));
    assert_true(near(c.alone, 1));
    p.cluster.node.cores = 4;           /* without a calibration that counts: what the cluster says */
    p.kernels = KERNELS_TORCH_SDPA;
    assert_false(crowd_of(&p, 0, &c));
    p.kernels = KERNELS_DPX;
    p.cluster.measured = NULL;
    assert_false(crowd_of(&p, 0, &c));
}

/* Work is kept: whatever the calibration had, N ranks of one stage on C cores take N / C times what a core's one rank takes, and no less
 * than with fewer of them. */
static void ranks_beyond_the_cores_share_them(void **state)
{
    static const int64_t cores[] = { 1, 2, 4, 6, 64 };
    struct measured_device one = { .ranks = 1, .threads = 1 };

    (void)state;
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        for (int64_t nodes = 1; nodes <= 2; nodes++)
            for (int64_t ranks = 1; ranks <= 256; ranks++)
                for (int known = 0; known < 2; known++) {
                    struct plan p = { .kernels = KERNELS_DPX, .strategy = STRAT_DDP, .shard_group = ranks * nodes,
                                      .parallel = { .tensor = 1, .context = 1, .pipeline = 1 },
                                      .cluster = { .is_host = 1, .nodes = nodes, .gpus_per_node = ranks, .world_size = ranks * nodes,
                                                   .node.cores = (int)cores[i], .measured = known ? &one : NULL } };
                    struct crowd c;
                    one.cores = cores[i];
                    bool shared = crowd_of(&p, ranks * nodes - 1, &c);
                    double asked = (double)ranks / (double)cores[i];
                    assert_true(shared == (asked > 1));
                    if (shared)
                        assert_true(near(crowd_pace(&c, c.by[0], 1), asked));
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_that_waits_leaves_its_core),
        cmocka_unit_test(those_that_are_left_go_faster),
        cmocka_unit_test(a_core_that_sleeps_leaves_its_share),
        cmocka_unit_test(messages_keep_their_time),
        cmocka_unit_test(jumps_are_exact),
        cmocka_unit_test(what_a_role_asks_for),
        cmocka_unit_test(ranks_beyond_the_cores_share_them),
    };
    return cmocka_run_group_tests_name("sim/crowd", tests, NULL, NULL);
}
