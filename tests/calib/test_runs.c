/* test_runs.c -- runs, predictions and steps in the database; a prediction is never changed afterwards. */
#include "tests/check.h"
#include "calib/store/query.h"
#include "calib/store/runs_checkpoints.h"
#include "calib/store/runs_ranks.h"
#include "calib/store/runs_stages.h"
#include "tests/calib/scratch.h"

#include <time.h>

static const struct run_end finished = {
    .outcome = RUN_FINISHED, .ended = 1.75e9 + 10, .step_s = 1.25, .p10_s = 1, .p90_s = 1.5,
    .tokens_per_s = 400,
};

static struct db *fresh(const char *name)
{
    struct db *db = db_open(in_scratch(name));

    if (!db)
        fail_msg("%s", said);
    return db;
}

static void what_a_run_was_comes_back(void **state)
{
    (void)state;
    struct db *db = fresh("start.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 3);
    struct run_record r;

    assert_int_equal(runs_end(db, id, &finished), 0);
    assert_int_equal(runs_load(db, id, &r), 0);
    assert_int_equal(r.row.id, id);
    assert_string_equal(r.row.start.host, "node7");
    assert_string_equal(r.row.start.plan, PLAN);
    assert_string_equal(r.row.start.options, "{\"steps\": 3}");
    assert_null(r.row.start.kernels_version);
    assert_true(r.row.start.started == 1.75e9 && r.row.start.world_size == 4 && r.row.start.seed == 42);
    assert_string_equal(r.row.model, "gpt2");
    assert_string_equal(r.row.strategy, "zero3");
    assert_string_equal(r.row.dialect, "paper");
    assert_int_equal(r.row.end.outcome, RUN_FINISHED);
    assert_null(r.row.end.reason);
    assert_true(r.row.end.step_s == 1.25 && r.row.end.p10_s == 1 && r.row.end.tokens_per_s == 400);
    assert_int_equal(r.nstep, 3);
    assert_string_equal(r.step[0].schedule, "first");
    assert_true(r.step[2].loss == 2.5 && r.step[2].seconds == 1.375 && r.step[2].tokens == 512);
    run_record_free(&r);
    db_close(db);
}

/* What a framework's ranks recorded: what was predicted of them stays. */
static void what_each_rank_recorded_comes_back(void **state)
{
    (void)state;
    struct db *db = fresh("ranks.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 0);
    const struct run_rank_phase before[] = { { 0, "init", 10, -1, -1, -1, -1 }, { 0, "first", 20, -1, -1, -1, -1 }, { 1, "init", 11, -1, -1, -1, -1 } };
    struct run_rank_phase after[] = { { 0, "init", 99, 12, 13, 14, 0 }, { 1, "init", 99, 15, -1, -1, -1 } };
    struct run_rank_step steps[] = { { 0, 1, 7.5, 0.25 }, { 1, 1, NAN, 0.5 } };
    struct run_rank_part parts[] = { { 1, 0.5, 0.25, 0.125, 1 } };
    struct run_rank_clock clocks[] = { { 1, 1755, 1980, 2619, -1 } };
    struct run_ranks r;

    assert_int_equal(runs_ranks_predicted(db, id, before, 3), 0);
    assert_int_equal(runs_ranks_measured(db, id, &(struct run_ranks){ .phase = after, .nphases = 2, .step = steps, .nsteps = 2, .part = parts, .nparts = 1,
                                                                      .clock = clocks, .nclocks = 1 }), 0);
    assert_int_equal(runs_ranks(db, id, &r), 0);
    assert_int_equal(r.nphases, 3);
    assert_string_equal(r.phase[1].phase, "first");
    assert_true(r.phase[0].predicted_allocated == 10 && r.phase[0].allocated == 12 && r.phase[0].active == 13 && r.phase[0].reserved == 14);
    assert_true(r.phase[1].predicted_allocated == 20 && r.phase[1].allocated == -1);
    assert_true(r.phase[2].rank == 1 && r.phase[2].predicted_allocated == 11 && r.phase[2].allocated == 15 && r.phase[2].retries == -1);
    assert_true(r.nsteps == 2 && r.step[0].loss == 7.5 && isnan(r.step[1].loss) && r.step[1].seconds == 0.5);
    assert_true(r.nclocks == 1 && r.clock[0].rank == 1 && r.clock[0].sm == 1755 && r.clock[0].sm_most == 1980 && r.clock[0].memory == 2619 &&
                r.clock[0].memory_most == -1);
    assert_true(r.nparts == 1 && r.part[0].rank == 1 && r.part[0].exposed == 0.25 && r.part[0].idle == 1);
    run_ranks_free(&r);
    db_close(db);
}

static void measured_stands_beside_predicted(void **state)
{
    (void)state;
    struct db *db = fresh("beside.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 0);
    const struct run_comm comm[] = { { "all_gather", "world", "bf16", 25, 7 },
                                     { "broadcast", "world", "fp32", 1, 9 } };
    const struct run_phase phases[] = { { "backward", 0.75 }, { "data", 0.0625 } };
    const struct run_memory memory[] = { { 1, "b", 900, 950, -1 }, { 0, NULL, 800, 990, 5000 } };
    struct run_record r;

    assert_int_equal(runs_comm(db, id, comm, 2), 0);
    assert_int_equal(runs_phases(db, id, phases, 2), 0);
    assert_int_equal(runs_memory(db, id, memory, 2), 0);
    assert_int_equal(runs_load(db, id, &r), 0);

    assert_true(r.row.has_prediction && r.row.predicted.low_s == 0.5 && r.row.predicted.rank == 3);
    assert_true(r.row.predicted.held_bytes == 1000 && r.row.predicted.process_bytes == -1);
    /* all_gather has both sides, broadcast only the measured, reduce_scatter only the predicted. */
    assert_int_equal(r.ncomm, 3);
    assert_true(r.comm[0].count == 25 && r.comm[0].predicted_count == 24);
    assert_true(r.comm[0].bytes == 7 && r.comm[0].predicted_bytes == 1 << 20);
    assert_true(r.comm[1].count == 1 && r.comm[1].predicted_count == -1);
    assert_true(r.comm[2].count == -1 && r.comm[2].predicted_bytes == 2 << 20);
    assert_int_equal(r.nphase, 4);
    assert_true(isnan(r.phase[0].seconds) && r.phase[0].predicted_s == 0.25);
    assert_true(r.phase[1].seconds == 0.75 && r.phase[1].predicted_s == 0.5);
    assert_string_equal(r.phase[3].name, "data");
    assert_true(isnan(r.phase[3].predicted_s));
    assert_int_equal(r.nmemory, 2);
    assert_true(r.memory[0].rank == 0 && r.memory[0].host == NULL && r.memory[1].process_bytes == -1);
    /* Of the fullest rank, meter by meter. */
    assert_true(r.row.held_bytes == 900 && r.row.allocated_bytes == 990 && r.row.process_bytes == 5000);
    run_record_free(&r);
    db_close(db);
}

static void entries_come_back_in_order_of_issue(void **state)
{
    (void)state;
    struct db *db = fresh("entries.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 1);
    struct run_entry e[2] = {
        { .step = 3, .position = 1, .entry = 7, .iteration = 2, .schedule = "steady", .stream = "compute",
          .kind = "compute", .what = "block forward", .unit = NULL, .pass = "forward", .micro_step = 5, .predicted_start_s = 0.5,
          .predicted_end_s = 0.75, .start_s = 0.5, .end_s = 1, .met_s = 0.625 },
        { .step = 3, .position = 0, .entry = 7, .iteration = 1, .schedule = "steady", .stream = "comm world",
          .kind = "all_gather", .unit = "block 3", .micro_step = -1, .predicted_start_s = NAN, .predicted_end_s = NAN,
          .start_s = 0, .end_s = 0.5, .met_s = NAN },
    };
    struct run_record r;

    assert_int_equal(runs_entries(db, id, e, 2), 0);
    assert_int_equal(runs_load(db, id, &r), 0);
    assert_int_equal(r.nentry, 2);
    assert_true(r.entry[0].position == 0 && r.entry[1].position == 1 && r.entry[1].iteration == 2);
    assert_string_equal(r.entry[0].unit, "block 3");
    assert_true(isnan(r.entry[0].predicted_start_s) && r.entry[0].end_s == 0.5);
    assert_true(r.entry[1].predicted_end_s == 0.75 && r.entry[1].end_s == 1);
    assert_null(r.entry[1].unit);
    assert_true(isnan(r.entry[0].met_s) && r.entry[1].met_s == 0.625);
    assert_true(r.entry[0].micro_step == -1 && r.entry[1].micro_step == 5);
    assert_null(r.entry[0].pass);
    assert_string_equal(r.entry[1].pass, "forward");
    run_record_free(&r);
    db_close(db);
}

/* In the order of the run: it went on from step 4, saved after 6 and 8.  A state is not recorded twice. */
static void checkpoints_come_back(void **state)
{
    static const struct run_checkpoint made[] = { { 6, false, 100, 90, 0.5, NAN }, { 4, true, 100, 90, 0.25, 0.2 }, { 8, false, 101, 90, 0.75, 0.4 } };
    static const int order[] = { 1, 0, 2 };
    struct db *db = fresh("checkpoints.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 0);
    struct run_checkpoints got;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(runs_checkpoint(db, id, &made[i]), 0);
    assert_int_equal(runs_checkpoint(db, id, &made[0]), -1);
    assert_int_equal(runs_checkpoints(db, id, &got), 0);
    assert_int_equal(got.n, 3);
    for (int i = 0; i < 3; i++) {
        const struct run_checkpoint *g = &got.of[i], *m = &made[order[i]];
        assert_true(g->step == m->step && g->loaded == m->loaded && g->bytes == m->bytes && g->predicted_bytes == m->predicted_bytes);
        assert_true(g->seconds == m->seconds && (g->predicted_s == m->predicted_s || (isnan(g->predicted_s) && isnan(m->predicted_s))));
    }
    run_checkpoints_free(&got);
    assert_int_equal(runs_checkpoints(db, id + 1, &got), 0);
    assert_int_equal(got.n, 0);
    db_close(db);
}

/* Two stages of a step of 10: bubbles of 1 and 3 are 20 % of it on average. */
static void stages_have_both_sides(void **state)
{
    (void)state;
    struct db *db = fresh("stages.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 1);
    const struct run_stage s[2] = { { 0, 0, { 8, 1, 1 }, { 6, 2, 2 } }, { 1, 4, { 7, 0, 3 }, { 5, 0, 5 } } };
    struct run_stages got;

    assert_int_equal(runs_stages(db, id, &got), 0);
    assert_int_equal(got.n, 0);
    assert_true(isnan(runs_stages_bubble(got.stage, got.n, true)));
    assert_int_equal(runs_stages_predicted(db, id, s, 2), 0);
    assert_int_equal(runs_stages(db, id, &got), 0);
    assert_true(isnan(got.stage[1].measured.work) && isnan(runs_stages_bubble(got.stage, got.n, false)));
    run_stages_free(&got);
    assert_int_equal(runs_stages_measured(db, id, s, 2), 0);
    assert_int_equal(db_exec(db, "UPDATE stage SET predicted_bubble_s = 0"), -1);
    assert_int_equal(runs_stages(db, id, &got), 0);
    assert_int_equal(got.n, 2);
    assert_true(got.stage[1].rank == 4 && got.stage[1].predicted.bubble == 3 && got.stage[1].measured.bubble == 5);
    assert_true(got.stage[0].predicted.messages == 1 && got.stage[0].measured.messages == 2);
    assert_close(runs_stages_bubble(got.stage, got.n, true), 0.2, 1e-12);
    assert_close(runs_stages_bubble(got.stage, got.n, false), 0.35, 1e-12);
    run_stages_free(&got);
    db_close(db);
}

static void a_loss_that_is_no_number_is_kept_as_such(void **state)
{
    (void)state;
    struct db *db = fresh("nan.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 0);
    struct run_step bad[2] = { some_step(1), some_step(2) };
    struct run_record r;

    bad[0].loss = NAN;
    bad[1].loss = INFINITY;
    assert_int_equal(runs_steps(db, id, bad, 2), 0);
    assert_int_equal(runs_load(db, id, &r), 0);
    assert_true(isnan(r.step[0].loss) && isinf(r.step[1].loss) && isnan(r.step[1].grad_norm));
    run_record_free(&r);
    db_close(db);
}

static void a_plan_and_a_machine_are_kept_once(void **state)
{
    (void)state;
    struct db *db = fresh("once.db");
    struct run_start start = some_run();
    struct run_list l;

    record_run(db, &start, 0);
    record_run(db, &start, 0);
    start.plan = "{\"model\": \"gpt2-xl\", \"strategy\": \"ddp\"}";
    start.host = "elsewhere";
    record_run(db, &start, 0);
    assert_int_equal(runs_list(db, &l), 0);
    assert_int_equal(l.n, 3);
    assert_string_equal(l.run[1].model, "gpt2");
    assert_string_equal(l.run[2].model, "gpt2-xl");
    assert_null(l.run[2].dialect);
    assert_string_equal(l.run[2].start.host, "elsewhere");
    run_list_free(&l);
    db_close(db);
}

static void a_run_whose_process_died_is_open_and_has_a_median(void **state)
{
    (void)state;
    struct db *db = fresh("died.db");
    struct run_start start = some_run();
    struct run_list l;

    record_run(db, &start, 4);
    assert_int_equal(runs_list(db, &l), 0);
    assert_int_equal(l.run[0].end.outcome, RUN_OPEN);
    assert_true(isnan(l.run[0].end.ended) && l.run[0].steps == 4);
    /* Steady steps took 1.25, 1.375 and 1.5 s; the first one does not count. */
    assert_true(l.run[0].end.step_s == 1.375);
    run_list_free(&l);
    db_close(db);
}

static void a_run_without_prediction_is_listed(void **state)
{
    (void)state;
    struct db *db = fresh("unpredicted.db");
    struct run_start start = some_run();
    struct run_list l;
    int64_t id;

    start.options = NULL;
    id = runs_begin(db, &start, NULL);
    assert_int_equal(runs_end(db, id, &(struct run_end){ .outcome = RUN_FAILED, .reason = "rank 2: killed",
        .ended = 1, .step_s = NAN, .p10_s = NAN, .p90_s = NAN, .tokens_per_s = NAN }), 0);
    assert_int_equal(runs_list(db, &l), 0);
    assert_false(l.run[0].has_prediction);
    assert_true(isnan(l.run[0].end.step_s) && l.run[0].held_bytes == -1);
    assert_int_equal(l.run[0].end.outcome, RUN_FAILED);
    assert_string_equal(l.run[0].end.reason, "rank 2: killed");
    assert_string_equal(l.run[0].start.options, "{}");
    run_list_free(&l);
    db_close(db);
}

static void a_batch_is_recorded_whole_or_not_at_all(void **state)
{
    (void)state;
    struct db *db = fresh("whole.db");
    struct run_start start = some_run();
    int64_t id = record_run(db, &start, 2);
    struct run_step again[2] = { some_step(3), some_step(2) };

    assert_int_equal(runs_steps(db, id, again, 2), -1);
    assert_non_null(strstr(said, "recording steps of run 1"));
    assert_int_equal(steps_of(in_scratch("whole.db"), id), 2);
    /* The connection is as good as before. */
    again[1] = some_step(4);
    assert_int_equal(runs_steps(db, id, again, 2), 0);
    assert_int_equal(steps_of(in_scratch("whole.db"), id), 4);
    db_close(db);
}

static void what_is_not_there_is_refused_by_name(void **state)
{
    (void)state;
    struct db *db = fresh("refused.db");
    struct run_start start = some_run();
    struct run_step s = some_step(1);
    struct run_record r;
    int64_t id = record_run(db, &start, 0);

    assert_int_equal(runs_load(db, 77, &r), -1);
    assert_non_null(strstr(said, "there is no run 77"));
    assert_int_equal(runs_steps(db, 77, &s, 1), -1);
    assert_int_equal(runs_end(db, id, &finished), 0);
    assert_int_equal(runs_end(db, id, &finished), -1);
    assert_non_null(strstr(said, "has ended already"));
    start.plan = "{ no JSON";
    assert_int_equal(runs_begin(db, &start, NULL), -1);
    db_close(db);
}

static void names_may_have_any_characters(void **state)
{
    (void)state;
    static const char odd[] = "Größe 模型 \xf0\x9f\x90\x8d '\"; DROP TABLE run; -- <script> %s\n\t";
    struct db *db = db_open(in_scratch("Größe 模型 '%#?&.db"));
    struct run_start start = some_run();
    struct run_record r;
    int64_t id;

    assert_non_null(db);
    start.host = start.cpu = odd;
    id = record_run(db, &start, 1);
    assert_int_equal(runs_end(db, id, &(struct run_end){ .outcome = RUN_INTERRUPTED, .reason = odd }), 0);
    db_close(db);
    db = db_open_reader(in_scratch("Größe 模型 '%#?&.db"));
    assert_int_equal(runs_load(db, id, &r), 0);
    assert_string_equal(r.row.start.host, odd);
    assert_string_equal(r.row.end.reason, odd);
    run_record_free(&r);
    db_close(db);
}

static int record_many(void)
{
    struct db *db = db_open(in_scratch("writers.db"));
    struct run_start start = some_run();

    for (int i = 0; db && i < 10; i++)
        if (record_run(db, &start, 5) < 0)
            return 1;
    db_close(db);
    return db ? 0 : 2;
}

/* Two writers create the file, its schema and all rows at once. */
static void two_writers_and_a_reader_work_at_once(void **state)
{
    (void)state;
    pid_t pid[2];
    int status, seen = 0, ended = 0;

    for (int i = 0; i < 2; i++)
        if ((pid[i] = fork()) == 0)
            _exit(record_many());
    while (ended < 2) {
        bool begun = access(in_scratch("writers.db-wal"), F_OK) == 0;
        struct db *db = begun ? db_open_reader(in_scratch("writers.db")) : NULL;
        struct run_list l;
        if (db && runs_list(db, &l) == 0) {
            assert_true(l.n >= seen);
            seen = (int)l.n;
            run_list_free(&l);
        }
        db_close(db);
        if (waitpid(pid[ended], &status, WNOHANG) == pid[ended]) {
            assert_int_equal(status, 0);
            ended++;
        }
    }
    assert_int_equal(steps_of(in_scratch("writers.db"), 20), 5);
    assert_int_equal(steps_of(in_scratch("writers.db"), 21), -1);
}

/* Commits a run with two steps, says so, and is killed amid a batch without end. */
static int record_for_ever(int told)
{
    enum { MANY = 200000 };
    struct db *db = db_open(in_scratch("killed.db"));
    struct run_start start = some_run();
    static struct run_step s[MANY];

    if (!db || record_run(db, &start, 2) != 1 || write(told, "1", 1) != 1)
        return 1;
    for (int i = 0; i < MANY; i++)
        s[i] = some_step(3 + i);
    for (int64_t from = 3;; from += MANY) {
        runs_steps(db, 1, s, MANY);
        for (int i = 0; i < MANY; i++)
            s[i].step += MANY;
    }
}

static void a_killed_writer_leaves_what_it_had_committed(void **state)
{
    (void)state;
    const struct timespec amid = { 0, 60 * 1000 * 1000 };
    struct run_start start = some_run();
    struct db *db;
    char go;
    int told[2];
    pid_t pid;

    assert_int_equal(pipe(told), 0);
    if ((pid = fork()) == 0)
        _exit(record_for_ever(told[1]));
    close(told[1]);
    assert_int_equal(read(told[0], &go, 1), 1);
    nanosleep(&amid, NULL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal((steps_of(in_scratch("killed.db"), 1) - 2) % 200000, 0);
    /* And the next writer goes on. */
    db = db_open(in_scratch("killed.db"));
    assert_int_equal(record_run(db, &start, 1), 2);
    db_close(db);
}

/* Of the processor: others may use this machine. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 9,999 more runs like the first: as many commits would take long. */
static const char many_more[] =
    "WITH RECURSIVE n (i) AS (VALUES (2) UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
    " INSERT INTO run (started, machine, plan, world_size, seed, options)"
    " SELECT i, 1, 1, 4, i, \"{}\" FROM n;"
    "INSERT INTO prediction SELECT id, \"datasheet\", 1, 1, 1, 0, 1, 1, 1 FROM run WHERE id > 1;"
    "INSERT INTO step SELECT id, step, schedule, loss, seconds, lr, grad_norm, tokens"
    " FROM run JOIN step ON run = 1 WHERE id > 1;"
    "UPDATE run SET outcome = \"finished\", step_s = 1.5";

static void ten_thousand_runs_are_listed_fast(void **state)
{
    (void)state;
    struct db *db = fresh("many.db");
    struct run_start start = some_run();
    struct run_list l;
    char command[1024];
    double began;

    if (system("command -v sqlite3 >/dev/null") != 0)
        skip();
    record_run(db, &start, 20);
    snprintf(command, sizeof command, "sqlite3 '%s' '%s'", db_path(db), many_more);
    assert_int_equal(system(command), 0);
    began = now();
    assert_int_equal(runs_list(db, &l), 0);
    assert_int_equal(l.n, 10000);
    assert_true(l.run[9999].steps == 20 && l.run[9999].end.step_s == 1.5);
    print_message("10,000 runs of 20 steps: listed in %.2f s of the processor\n", now() - began);
    assert_true(now() - began < 2);
    run_list_free(&l);
    db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_run_was_comes_back),
        cmocka_unit_test(what_each_rank_recorded_comes_back),
        cmocka_unit_test(measured_stands_beside_predicted),
        cmocka_unit_test(entries_come_back_in_order_of_issue),
        cmocka_unit_test(checkpoints_come_back),
        cmocka_unit_test(stages_have_both_sides),
        cmocka_unit_test(a_loss_that_is_no_number_is_kept_as_such),
        cmocka_unit_test(a_plan_and_a_machine_are_kept_once),
        cmocka_unit_test(a_run_whose_process_died_is_open_and_has_a_median),
        cmocka_unit_test(a_run_without_prediction_is_listed),
        cmocka_unit_test(a_batch_is_recorded_whole_or_not_at_all),
        cmocka_unit_test(what_is_not_there_is_refused_by_name),
        cmocka_unit_test(names_may_have_any_characters),
        cmocka_unit_test(two_writers_and_a_reader_work_at_once),
        cmocka_unit_test(a_killed_writer_leaves_what_it_had_committed),
        cmocka_unit_test(ten_thousand_runs_are_listed_fast),
    };
    return cmocka_run_group_tests_name("calib/runs", tests, scratch_make, scratch_remove);
}
