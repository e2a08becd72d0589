/* The parts of a pipeline's step: values worked out on paper from schedules written by hand. */
#include "tests/check.h"

#include "sim/clock/step.h"
#include "sim/clock/step_ran.h"
#include "tests/sim/pipeline_beds.h"

/* A step of these schedules on a host, whose ranks wait for no slowest one. */
struct bed {
    struct pipe pipe;
    struct plan plan;
    struct step_role role[STAGES];
    struct step step;
};

static void bed_open(struct bed *b, int p)
{
    memset(b, 0, sizeof *b);
    pipe_open(&b->pipe, p);
    b->plan.cluster.is_host = true;
    b->plan.cluster.world_size = p;
}

/* The low end of every entry is half, the high end twice. */
static void bed_end(struct bed *b)
{
    pipe_end(&b->pipe);
    b->step = (struct step){ .p = &b->plan, .role = b->role, .n = b->pipe.p };
    for (int r = 0; r < b->pipe.p; r++) {
        struct stage *g = &b->pipe.stage[r];
        double *ends = calloc(2 * ENTRIES, sizeof *ends);
        assert_non_null(ends);
        for (int i = 0; i < g->s.nops; i++) {
            ends[i] = g->work[i] / 2;
            ends[ENTRIES + i] = g->work[i] * 2;
        }
        b->role[r].s = &g->s;
        b->role[r].prices = (struct priced){ .middle = g->d, .low = { ends, g->issue }, .high = { ends + ENTRIES, g->issue },
                                             .store = ends };
        b->role[r].slow.copy_slow = 1;
        for (int op = 0; op < NCOLL; op++)
            b->role[r].slow.compute_slow[op] = b->role[r].slow.comm_slow[op] = 1;
        snprintf(b->role[r].name, sizeof b->role[r].name, "stage %d", r);
    }
}

static void bed_close(struct bed *b)
{
    for (int r = 0; r < b->pipe.p; r++)
        free(b->role[r].prices.store);
    pipe_close(&b->pipe);
}

/* Asked of its entries as they ran, as of a step that was measured, the parts are the same; also where a receive was called
 * long before, for a message begins when both are there. */
static void same_of_entries(const struct bed *b, struct run *kept, const struct stage_parts *want, double makespan, bool early)
{
    struct step_ran stage[STAGES];
    struct stage_parts got;
    double step_s;

    for (int i = 0; i < b->step.n; i++) {
        for (int64_t k = 0; early && k < kept[i].n; k++)
            if (b->role[i].s->ops[kept[i].ran[k].op].kind == OP_COLL && b->role[i].s->ops[kept[i].ran[k].op].u.coll.op == COLL_RECV)
                kept[i].ran[k].start = 0;
        stage[i] = (struct step_ran){ b->role[i].s, kept[i].ran, kept[i].n };
    }
    step_ran_parts(stage, b->step.n, &got, &step_s);
    assert_close(step_s, makespan, 1e-14);
    assert_int_equal(got.n, want->n);
    for (int i = 0; i < got.n; i++) {
        assert_close(1 + got.stage[i].work_s, 1 + want->stage[i].work_s, 1e-12);
        assert_close(1 + got.stage[i].messages_s, 1 + want->stage[i].messages_s, 1e-12);
        assert_close(1 + got.stage[i].bubble_s, 1 + want->stage[i].bubble_s, 1e-12);
    }
    assert_close(1 + got.imbalance_s, 1 + want->imbalance_s, 1e-12);
}

static void parts_of(const struct bed *b, struct timeline *line, struct stage_parts *parts)
{
    struct timeline lines[STAGES];
    struct run kept[STAGES];
    double makespan;

    assert_int_equal(step_run(&b->step, NULL, lines, kept, &makespan), 0);
    step_parts(&b->step, lines, makespan, line, parts);
    same_of_entries(b, kept, parts, makespan, false);
    same_of_entries(b, kept, parts, makespan, true);
    for (int i = 0; i < b->step.n; i++)
        run_free(&kept[i]);
    for (int i = 0; i < parts->n; i++)
        assert_close(parts->stage[i].work_s + parts->stage[i].messages_s + parts->stage[i].bubble_s, makespan, 1e-14);
    assert_close(line->compute_s + line->optimizer_s + line->exposed_s + line->idle_s + line->bubble_s, line->step_s, 1e-14);
}

/* p equal stages, m micro-steps: bubble / busy = (p - 1)/m.  GPipe with p = m = 4: 3/4, 4/7 = 57 % busy; a naive
 * pipeline of 4: 25 %. */
static void the_bubble_of_equal_stages(void **state)
{
    static const struct pace even[STAGES] = { { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 },
                                              { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 }, { 2, 4, 0 } };

    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int m = 1; m <= 16; m++)
            for (int kind = 0; kind < 2; kind++) {
                struct bed b;
                struct timeline line;
                struct stage_parts parts;
                bed_open(&b, p);
                (kind ? pipe_1f1b : pipe_gpipe)(&b.pipe, even, m);
                bed_end(&b);
                parts_of(&b, &line, &parts);
                assert_close(line.step_s, (m + p - 1) * 6, 1e-14);
                assert_close(line.bubble_s, (p - 1) * 6, 1e-14);
                assert_close(1 + parts.imbalance_s, 1, 1e-12);
                for (int r = 0; r < p; r++) {
                    assert_close(parts.stage[r].work_s, m * 6, 1e-14);
                    assert_close(parts.stage[r].bubble_s / parts.stage[r].work_s, (p - 1.) / m, 1e-13);
                }
                if (p == 4 && (m == 1 || m == 4))
                    assert_close(parts.stage[0].work_s / line.step_s, m == 1 ? 0.25 : 4. / 7, 1e-14);
                bed_close(&b);
            }
}

/* Three stages of 3, 3 and 6 seconds a micro-step (forward and backward), GPipe with m = 5: the last one, 5 * 6 = 30,
 * is the busiest; it waits for the first forward through the others, 1 + 1, and at the end for the last backward
 * through them, 2 + 2.  The mean is (15 + 15 + 30)/3 = 20, hence 10 of imbalance. */
static void the_imbalance_of_a_slow_last_stage(void **state)
{
    static const struct pace pace[STAGES] = { { 1, 2, 0 }, { 1, 2, 0 }, { 2, 4, 0 } };
    struct timeline line;
    struct stage_parts parts;
    struct bed b;

    (void)state;
    bed_open(&b, 3);
    pipe_gpipe(&b.pipe, pace, 5);
    bed_end(&b);
    parts_of(&b, &line, &parts);
    assert_int_equal(parts.busiest, 2);
    assert_close(line.step_s, 36, 1e-14);
    assert_close(line.bubble_s, 6, 1e-14);
    assert_close(parts.imbalance_s, 10, 1e-14);
    assert_close(parts.stage[0].bubble_s, 21, 1e-14);
    bed_close(&b);
}

/* One micro-step over two stages, messages of 3: 1 forward, 3 on the way, 1 forward, 2 backward, 3 on the way, 2
 * backward: 12.  The first stage works 3, waits from 1 until the second sends at 7 (its own message is on its way
 * meanwhile), and then for that message, 3.  The second waits 1 for the first, 3 for its message, works 3, sends for
 * 3, and 2 are left until the first is done. */
static void messages_that_nothing_hides(void **state)
{
    static const struct pace pace[STAGES] = { { 1, 2, 3 }, { 1, 2, 3 } };
    struct timeline line;
    struct stage_parts parts;
    struct bed b;

    (void)state;
    bed_open(&b, 2);
    pipe_gpipe(&b.pipe, pace, 1);
    bed_end(&b);
    parts_of(&b, &line, &parts);
    assert_close(line.step_s, 12, 1e-14);
    assert_close(parts.stage[0].work_s, 3, 1e-14);
    assert_close(parts.stage[0].messages_s, 3, 1e-14);
    assert_close(parts.stage[0].bubble_s, 6, 1e-14);
    assert_close(parts.stage[1].work_s, 3, 1e-14);
    assert_close(parts.stage[1].messages_s, 6, 1e-14);
    assert_close(parts.stage[1].bubble_s, 1 + 2, 1e-14);
    bed_close(&b);
}

/* All stages meet in an all-reduce of 1 after work of 1, 5 and 2: it is work of each, the wait before it is not. */
static void a_collective_of_all_stages_is_work(void **state)
{
    static const double ready[3] = { 1, 5, 2 };
    struct timeline line;
    struct stage_parts parts;
    struct bed b;

    (void)state;
    bed_open(&b, 3);
    for (int r = 0; r < 3; r++) {
        stage_work(&b.pipe.stage[r], STREAM_COMPUTE, PHASE_BACKWARD, ready[r]);
        stage_coll(&b.pipe.stage[r], STREAM_GROUP, COLL_ALL_REDUCE, 1)->after = AFTER(STREAM_COMPUTE);
        sched_op(&b.pipe.stage[r].s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "wait")->after = AFTER(STREAM_GROUP);
    }
    bed_end(&b);
    parts_of(&b, &line, &parts);
    for (int r = 0; r < 3; r++) {
        assert_close(parts.stage[r].work_s, ready[r] + 1, 1e-14);
        assert_close(1 + parts.stage[r].bubble_s, 1 + 5 - ready[r], 1e-14);
    }
    assert_int_equal(parts.busiest, 1);
    assert_close(parts.imbalance_s, 6 - (2 + 6 + 3) / 3., 1e-14);
    bed_close(&b);
}

/* GPipe, p = 2, m = 2, f = 1, b = 2, messages of 1 between: a view moves the parts it names and no others.  Forward is
 * written as copies here, so all work is "the rest". */
static void views_move_the_parts_they_name(void **state)
{
    static const struct pace pace[STAGES] = { { 1, 2, 1 }, { 1, 2, 1 } };
    struct bed b;

    (void)state;
    bed_open(&b, 2);
    pipe_gpipe(&b.pipe, pace, 1);
    bed_end(&b);
    /* 2 (1 + 2) of work and 2 messages. */
    assert_close(step_seconds(&b.step, NULL), 8, 1e-14);
    assert_close(step_seconds(&b.step, &(struct step_view){ STEP_COLLECTIVES, false, 1, 1 }), 7, 1e-14);
    assert_close(step_seconds(&b.step, &(struct step_view){ STEP_COLLECTIVES, true, 1, 1 }), 10, 1e-14);
    assert_close(step_seconds(&b.step, &(struct step_view){ STEP_WORK, true, 1, 1 }), 14, 1e-14);
    assert_close(step_seconds(&b.step, &(struct step_view){ STEP_BACKWARD, true, 1, 1 }), 8, 1e-14);
    bed_close(&b);
}

/* A stage that waits for a message which nobody sends. */
static void a_deadlock_is_reported(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, 2);
    stage_message(&b.pipe.stage[1], STREAM_GATHER, COLL_RECV, 0, 5, 1);
    bed_end(&b);
    assert_true(step_seconds(&b.step, NULL) < 0);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bubble_of_equal_stages),
        cmocka_unit_test(the_imbalance_of_a_slow_last_stage),
        cmocka_unit_test(messages_that_nothing_hides),
        cmocka_unit_test(a_collective_of_all_stages_is_work),
        cmocka_unit_test(views_move_the_parts_they_name),
        cmocka_unit_test(a_deadlock_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
