/* A run of weeks: the closed form against Daly's figures, arithmetic and the simulated run. */
#include "tests/check.h"

#include <math.h>

#include "base/duration.h"
#include "base/fail.h"
#include "sim/bill/failures.h"
#include "sim/bill/goodput.h"

/* Daly (FGCS 22, 2006), figures 3 to 5: 500 h, checkpoints of 5 min, restarts of 10 min; the interval that his model predicts. */
static void daly_s_intervals(void **state)
{
    static const struct { double mtbf_min, every_min; } rows[] = { { 24 * 60, 117 }, { 6 * 60, 57 }, { 15, 9.1 } };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct long_run r = { .steps = 500 * 3600, .step_s = 1, .blocked_s = 300, .recover_s = 600, .mtbf_s = rows[i].mtbf_min * 60 };
        assert_close(goodput_daly_s(300, r.mtbf_s) / 60, rows[i].every_min, 0.01);
        assert_close((double)goodput_best_every(&r) / 60, rows[i].every_min, 0.01);
    }
    assert_close(goodput_young_s(300, 24 * 3600) / 60, 120, 1e-9);          /* sqrt(2 x 5 x 1440) */
}

/* Where nothing fails, steps and checkpoints are all there is; one interval is then the whole run. */
static void without_failures_only_checkpoints_add(void **state)
{
    (void)state;
    struct long_run r = { .steps = 1000, .every = 100, .step_s = 2, .blocked_s = 5, .recover_s = 60, .mtbf_s = INFINITY };
    struct run_time t;

    goodput_expect(&r, &t);
    assert_close(t.total_s, 1000 * 2 + 10 * 5, 1e-12);
    assert_true(t.lost_s == 0 && t.restarts_s == 0 && t.interruptions == 0);
    assert_int_equal(goodput_best_every(&r), 1000);
    r.behind_s = 250;                               /* the next one waits until this one is written: 255 s instead of 205 */
    goodput_expect(&r, &t);
    assert_close(t.total_s, 10 * 255.0, 1e-12);
}

/* Rare failures: each costs half an interval and the restart (first order in the rate). */
static void rare_failures_cost_half_an_interval(void **state)
{
    (void)state;
    struct long_run r = { .steps = 1000000, .every = 100, .step_s = 1, .recover_s = 30, .mtbf_s = 1e6 };
    struct run_time t;

    goodput_expect(&r, &t);
    assert_close(t.lost_s, t.interruptions * 50, 1e-3);
    assert_close(t.restarts_s, t.interruptions * 30, 1e-3);
    r.behind_s = 80;                                /* written beside training: as much more is lost, half an interval and 80 s */
    goodput_expect(&r, &t);
    assert_close(t.lost_s, t.interruptions * 130, 1e-3);
}

static double sum(const struct run_time *t)
{
    return t->useful_s + t->blocked_s + t->lost_s + t->restarts_s + t->warm_s + t->waiting_s + t->queued_s;
}

/* 60 runs drawn by a fixed rule: their simulated mean is the closed form's within 1 %, and parts add up. */
static void simulated_runs_have_that_mean(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct long_run r = { .steps = 20000, .every = 20 + 37 * (i % 7), .step_s = 1 + i % 3, .blocked_s = 10 * (i % 4), .behind_s = i % 2 ? 30 * (i % 5) : 0,
                              .recover_s = 100 * (1 + i % 6), .mtbf_s = 1500 * (1 + i % 8) };
        struct reserve always = { .nodes = 16, .spares = -1 };
        struct run_time want, got;
        double at[3];

        r.steps -= r.steps % r.every;
        goodput_expect(&r, &want);
        assert_int_equal(goodput_simulate(&r, &always, 2000, 1e12, &got, at), 0);
        /* The last steps of a run need no checkpoint that is written behind them, which the closed form waits for. */
        double end = want.total_s * r.behind_s / ((double)r.steps * r.step_s);
        if (fabs(got.total_s - want.total_s) > 0.01 * want.total_s + end)
            fail_msg("run %d: simulated %g, expected %g", i, got.total_s, want.total_s);
        assert_close(sum(&got), got.total_s, 1e-9);
        assert_close(sum(&want), want.total_s, 1e-9);
        assert_close(got.useful_s, (double)r.steps * r.step_s, 1e-9);
        assert_close(got.interruptions, got.total_s / r.mtbf_s, 0.03);
        assert_true(at[0] <= at[1] && at[1] <= at[2]);
    }
}

/* A restart's last part is a figure of its own: what a restart takes in all is the same, and the first start has it as well. */
static void warming_up_is_a_part_of_a_restart(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct long_run r = { .steps = 20000, .every = 100, .step_s = 1, .blocked_s = 10, .recover_s = 400, .warm_s = 100 * (i % 5), .mtbf_s = 800 + 400 * i };
        struct long_run cold = r;
        struct reserve always = { .nodes = 4, .spares = -1 };
        struct run_time want, got, without;
        double at[3];

        cold.warm_s = 0;
        goodput_expect(&r, &want);
        goodput_expect(&cold, &without);
        assert_close(want.total_s, without.total_s + r.warm_s, 1e-12);
        assert_close(want.restarts_s + want.warm_s, without.restarts_s + r.warm_s, 1e-9);
        assert_true(r.warm_s < 400 || want.restarts_s < 1e-6 * want.warm_s);       /* all of a restart is warming up */
        assert_int_equal(goodput_simulate(&r, &always, 1000, 1e12, &got, at), 0);
        assert_close(got.warm_s + 1, want.warm_s + 1, 0.03);
        assert_close(got.restarts_s + 1, want.restarts_s + 1, 0.03);
        assert_close(sum(&got), got.total_s, 1e-9);
        r.mtbf_s = INFINITY;
        goodput_expect(&r, &want);
        assert_close(want.warm_s + 1, r.warm_s + 1, 1e-12);
        assert_close(sum(&want), want.total_s, 1e-12);
    }
}

/* Each failure takes one of 100 nodes for good.  What nodes share fails as often as before, so a failure each 1,000 s of the longer run; nodes
 * fail as often for each of their steps, so a failure each 1,000 steps' seconds. */
static void the_network_fails_as_often_on_fewer_nodes(void **state)
{
    struct long_run r = { .steps = 30000, .every = 1, .step_s = 1, .recover_s = 1e-6, .mtbf_s = 1000 };
    struct reserve fewer = { .nodes = 100, .spares = 0, .hardware = 1, .repair_s = 1e9, .shrink = true };
    struct run_time got;
    double at[3];

    (void)state;
    assert_int_equal(goodput_simulate(&r, &fewer, 400, 1e12, &got, at), 0);
    assert_close(got.interruptions, got.useful_s / 1000, 0.03);
    assert_true(got.total_s > 1.1 * got.useful_s);
    fewer.steady = 1;
    assert_int_equal(goodput_simulate(&r, &fewer, 400, 1e12, &got, at), 0);
    assert_close(got.interruptions, got.total_s / 1000, 0.03);
}

/* Preemptions are interruptions at another rate, and a wait for each of them; without failures as well. */
static void preemptions_wait_in_a_queue(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct long_run r = { .steps = 20000, .every = 100, .step_s = 1, .blocked_s = 10, .recover_s = 200, .mtbf_s = i % 2 ? 9000 : INFINITY,
                              .preempted_s = 3000 + 1000 * i, .queue_s = 500 * (i % 4) };
        struct long_run same = r;
        struct reserve always = { .nodes = 16, .spares = -1 };
        struct run_time want, got, failing;
        double at[3];

        goodput_expect(&r, &want);
        assert_int_equal(goodput_simulate(&r, &always, 2000, 1e12, &got, at), 0);
        assert_close(got.total_s, want.total_s, 0.01);
        assert_close(got.queued_s + 1, want.queued_s + 1, 0.06);         /* some 2,000 to 14,000 preemptions: 4 sigma */
        assert_close(sum(&want), want.total_s, 1e-9);
        assert_close(sum(&got), got.total_s, 1e-9);
        same.mtbf_s = 1 / (1 / r.mtbf_s + 1 / r.preempted_s);
        same.preempted_s = same.queue_s = 0;
        goodput_expect(&same, &failing);
        assert_close(want.total_s - want.queued_s, failing.total_s, 1e-12);
        assert_close(want.queued_s, failing.total_s / r.preempted_s * r.queue_s, 1e-12);
        assert_int_equal(goodput_best_every(&r), goodput_best_every(&same));        /* nobody works in a queue */
    }
}

/* A failed job that goes through the queue is a preempted one, but for its memory. */
static void a_requeued_job_waits_like_a_preempted_one(void **state)
{
    struct long_run failing = { .steps = 20000, .every = 100, .step_s = 1, .blocked_s = 10, .recover_s = 200, .mtbf_s = 4000, .queue_s = 900, .requeued = true };
    struct long_run preempted = failing;
    struct reserve always = { .nodes = 16, .spares = -1 };
    struct run_time a, b, got;
    double at[3];

    (void)state;
    preempted.mtbf_s = INFINITY;
    preempted.preempted_s = 4000;
    preempted.requeued = false;
    goodput_expect(&failing, &a);
    goodput_expect(&preempted, &b);
    assert_close(a.total_s, b.total_s, 1e-12);
    assert_close(a.queued_s, b.queued_s, 1e-12);
    assert_int_equal(goodput_simulate(&failing, &always, 2000, 1e12, &got, at), 0);
    assert_close(got.total_s, a.total_s, 0.01);
    assert_close(got.queued_s, got.interruptions * 900, 1e-9);
}

/* A preempted job loses what lay in its nodes' memory. */
static void a_preemption_takes_the_memory(void **state)
{
    struct long_run r = { .steps = 20000, .every = 10, .step_s = 1, .recover_s = 10, .mtbf_s = INFINITY, .preempted_s = 1000, .disk_each = 10 };
    struct reserve always = { .nodes = 4, .spares = -1 };
    struct run_time got;
    double at[3];

    (void)state;
    assert_int_equal(goodput_simulate(&r, &always, 500, 1e12, &got, at), 0);
    assert_close(got.lost_s / got.interruptions, 50, 0.1);                      /* half of 100 steps between two on disk */
}

/* The best interval is no worse than its neighbours, half and double. */
static void the_best_interval_is_the_best(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct long_run r = { .steps = 100000, .step_s = 0.5 + i % 11, .blocked_s = 1 + i % 13, .behind_s = 7 * (i % 9), .recover_s = 300,
                              .mtbf_s = 2000 + 3000 * (i % 17) };
        int64_t best = r.every = goodput_best_every(&r);
        const int64_t others[] = { best - 1, best + 1, best / 2, 2 * best, best / 3, 5 * best };
        struct run_time least, t;

        goodput_expect(&r, &least);
        int64_t longest = r.every = goodput_longest_every(&r, 1.001);
        goodput_expect(&r, &t);
        assert_true(longest >= best && t.total_s <= 1.001 * least.total_s);
        r.every = longest + 1;
        goodput_expect(&r, &t);
        assert_true(longest == r.steps || t.total_s > 1.001 * least.total_s);
        for (int k = 0; k < 6; k++)
            if (others[k] >= 1 && others[k] <= r.steps) {
                r.every = others[k];
                goodput_expect(&r, &t);
                assert_true(t.total_s >= least.total_s);
            }
    }
}

/* Every interruption takes a node for longer than the run lasts: with two spares the third waits; with `shrink` nobody does and steps
 * take longer. */
static void spares_run_out(void **state)
{
    (void)state;
    struct long_run r = { .steps = 1000, .every = 10, .step_s = 1, .recover_s = 1, .mtbf_s = 300 };
    struct reserve v = { .nodes = 10, .spares = 1000, .hardware = 1, .repair_s = 1e6 };
    struct run_time many, few, fewer;
    double at[3];

    assert_int_equal(goodput_simulate(&r, &v, 200, 1e12, &many, at), 0);
    assert_true(many.waiting_s == 0);
    v.spares = 2;
    assert_int_equal(goodput_simulate(&r, &v, 200, 1e12, &few, at), 0);
    assert_true(few.waiting_s > 1e5);
    assert_close(sum(&few), few.total_s, 1e-9);
    v.shrink = true;
    assert_int_equal(goodput_simulate(&r, &v, 200, 1e12, &fewer, at), 0);
    assert_true(fewer.waiting_s > 0 && fewer.total_s < 1.2 * many.total_s);
}

/* Checkpoints in memory, every tenth on disk; an interruption that takes the memory costs at most nine intervals more. */
static void memory_can_be_lost(void **state)
{
    (void)state;
    struct long_run r = { .steps = 100000, .every = 10, .step_s = 1, .recover_s = 10, .mtbf_s = 2000, .disk_each = 10 };
    struct reserve always = { .nodes = 2, .spares = -1 };
    struct run_time kept, half, all;
    double at[3];

    assert_int_equal(goodput_simulate(&r, &always, 300, 1e12, &kept, at), 0);
    r.memory_lost = 0.5;
    assert_int_equal(goodput_simulate(&r, &always, 300, 1e12, &half, at), 0);
    r.memory_lost = 1;
    assert_int_equal(goodput_simulate(&r, &always, 300, 1e12, &all, at), 0);
    /* On average 4.5 intervals of 10 s each time that memory is lost. */
    assert_close((all.lost_s - all.interruptions * 5) / all.interruptions, 45, 0.05);
    assert_close((half.lost_s - half.interruptions * 5) / half.interruptions, 22.5, 0.1);
    assert_close(kept.lost_s / kept.interruptions, 5, 0.05);
}

static void a_run_that_never_ends_says_so(void **state)
{
    (void)state;
    struct long_run r = { .steps = 1000, .every = 1000, .step_s = 100, .recover_s = 10, .mtbf_s = 100 };
    struct reserve always = { .nodes = 2, .spares = -1 };
    struct run_time t;
    double at[3];

    assert_int_equal(goodput_simulate(&r, &always, 10, 1e6, &t, at), -1);
    goodput_expect(&r, &t);
    assert_true(t.total_s > 1e15);
}

/* What papers conclude from their own counts: 3.1 h on 16,384 GPUs; 1.8 h predicted for 16,384 of RSC-1's. */
static void published_rates(void **state)
{
    (void)state;
    assert_close(failure_rate_mtbf(failure_rate_find("llama3")) / 16384 / 3600, 54.0 * 24 / 419, 1e-12);
    assert_close(failure_rate_mtbf(failure_rate_find("RSC-1")) / 16384 / 3600, 1.8, 0.01);
    assert_null(failure_rate_find("llama4"));
}

/* Rates add: n / gpu + m / node + 1 / network; a job on one node has no network, and a published rate is its causes' sum. */
static void rates_add(void **state)
{
    struct failures f = { .gpu_s = 6e8, .node_s = 2e8, .network_s = 7e6 }, all = { .all_s = 6e8 };
    double by[FAILURE_CAUSES];

    (void)state;
    assert_close(failures_per_s(&f, 64, 8, by), 64 / 6e8 + 8 / 2e8 + 1 / 7e6, 1e-12);
    assert_close(by[FAILED_GPU] / by[FAILED_NODE], 64 / 6e8 / (8 / 2e8), 1e-12);
    assert_close(failures_take_node(&f, by), (64 / 6e8 + 8 / 2e8) / (64 / 6e8 + 8 / 2e8 + 1 / 7e6), 1e-12);
    assert_close(failures_per_s(&f, 8, 1, by), 8 / 6e8 + 1 / 2e8, 1e-12);
    assert_true(by[FAILED_NETWORK] <= 0);
    assert_close(failures_per_s(&all, 64, 8, by), 64 / 6e8, 1e-12);
    assert_close(failures_take_node(&all, by), 1, 1e-12);
    for (int i = 0; failure_rate_at(i); i++) {
        const struct failure_rate *r = failure_rate_at(i);
        struct failures published = { .published = r, .all_s = failure_rate_mtbf(r) };
        assert_close(failures_per_s(&published, 1000, 125, by), 1000 / failure_rate_mtbf(r), 1e-12);
    }
    struct failures llama3 = { .published = failure_rate_find("llama3"), .all_s = 1 };
    failures_per_s(&llama3, 419, 1, by);            /* 419 a second: each cause as table 5 counts it */
    assert_close(by[FAILED_GPU], 148 + 72 + 19 + 17 + 6 + 6, 1e-12);
    assert_close(by[FAILED_NODE], 32 + 7 + 3 + 3 + 2 + 2 + 2 + 2, 1e-12);
    assert_close(by[FAILED_NETWORK], 35, 1e-12);
    assert_close(by[FAILED_OTHER], 54 + 2 + 7, 1e-12);
}

static void times_are_read_and_written(void **state)
{
    static const struct { const char *text; double seconds; const char *said; } rows[] = {
        { "30min", 1800, "30 min" }, { "2.5 h", 9000, "2.5 hours" }, { "7d", 604800, "7 days" }, { "90s", 90, "90 s" }, { "250ms", 0.25, "250 ms" },
        { "3 years", 3 * 365.25 * 86400, "3 years" }, { "3000 years", 3000 * 365.25 * 86400, "3000 years" }, };
    static const char *const bad[] = { "", "30", "min", "-5min", "5 moons", "nan s", "0s", "1e400s", "1e7years", "0x10s" };
    char why[256];
    double s;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(duration_parse("--t", rows[i].text, &s), 0);
        assert_close(s, rows[i].seconds, 1e-12);
        assert_string_equal(duration_text(s).s, rows[i].said);
    }
    fail_capture(why, sizeof why);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (duration_parse("--t", bad[i], &s) == 0)
            fail_msg("\"%s\" was accepted", bad[i]);
    fail_capture(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(daly_s_intervals),
        cmocka_unit_test(without_failures_only_checkpoints_add),
        cmocka_unit_test(rare_failures_cost_half_an_interval),
        cmocka_unit_test(simulated_runs_have_that_mean),
        cmocka_unit_test(warming_up_is_a_part_of_a_restart),
        cmocka_unit_test(the_network_fails_as_often_on_fewer_nodes),
        cmocka_unit_test(preemptions_wait_in_a_queue),
        cmocka_unit_test(a_requeued_job_waits_like_a_preempted_one),
        cmocka_unit_test(a_preemption_takes_the_memory),
        cmocka_unit_test(the_best_interval_is_the_best),
        cmocka_unit_test(spares_run_out),
        cmocka_unit_test(memory_can_be_lost),
        cmocka_unit_test(a_run_that_never_ends_says_so),
        cmocka_unit_test(published_rates),
        cmocka_unit_test(rates_add),
        cmocka_unit_test(times_are_read_and_written),
    };
    return cmocka_run_group_tests_name("sim/goodput", tests, NULL, NULL);
}
