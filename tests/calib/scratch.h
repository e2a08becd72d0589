/* scratch.h -- a folder of its own for a test, and databases in it. */
#ifndef DPX_SCRATCH_H
#define DPX_SCRATCH_H

/* mkdtemp(), also where the header is compiled by itself. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "calib/store/runs.h"

static char scratch[] = "/tmp/dpx-calib-XXXXXX", said[1024];

static inline int scratch_make(void **state)
{
    (void)state;
    fail_capture(said, sizeof said);
    /* Also for tests that give up being root. */
    return mkdtemp(scratch) && chmod(scratch, 0755) == 0 ? 0 : -1;
}

static inline int scratch_remove(void **state)
{
    char command[256];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command);
}

/* The same few places in turn, which is enough for one expression. */
static inline const char *in_scratch(const char *name)
{
    static char path[4][512];
    static int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", scratch, name);
    return path[next];
}

#define PLAN "{\"dpx_plan\": 1, \"model\": {\"_name_or_path\": \"gpt2\"}, \"strategy\": \"zero3\"," \
             " \"dialect\": \"paper\"}"

static const struct run_comm some_comm[] = {
    { "all_gather", "world", "bf16", 24, 1 << 20 }, { "reduce_scatter", "world", "fp32", 12, 2 << 20 },
};
static const struct run_phase some_phases[] = {
    { "forward", 0.25 }, { "backward", 0.5 }, { "optimizer", 0.125 },
};
static const struct run_predicted predicted = {
    .basis = "datasheet", .step_s = 1, .low_s = 0.5, .high_s = 2, .rank = 3, .held_bytes = 1000,
    .allocated_bytes = 1100, .process_bytes = -1, .comm = some_comm, .phase = some_phases,
    .ncomm = 2, .nphase = 3,
};

static inline struct run_start some_run(void)
{
    return (struct run_start){
        .started = 1.75e9, .host = "node7", .device = "cpu", .cpu = "Some CPU", .cores = 2,
        .memory = 1 << 30, .dpx_version = "0.1.0", .comm_version = "Open MPI 4.1.4", .plan = PLAN,
        .options = "{\"steps\": 3}", .world_size = 4, .seed = 42,
    };
}

static inline struct run_step some_step(int64_t step)
{
    return (struct run_step){
        .step = step, .schedule = step == 1 ? "first" : "steady", .loss = 5.5 - (double)step,
        .seconds = 1 + 0.125 * (double)step, .lr = 1e-3, .grad_norm = NAN, .tokens = 512,
    };
}

/* The number of a run with `nsteps` steps recorded, not ended. */
static inline int64_t record_run(struct db *db, const struct run_start *start, int nsteps)
{
    int64_t id = runs_begin(db, start, &predicted);

    for (int i = 1; id > 0 && i <= nsteps; i++) {
        struct run_step s = some_step(i);
        if (runs_steps(db, id, &s, 1) < 0)
            return -1;
    }
    return id;
}

static inline int steps_of(const char *path, int64_t run)
{
    struct db *db = db_open_reader(path);
    struct run_record r;
    int n = -1;

    if (db && runs_load(db, run, &r) == 0) {
        n = (int)r.nstep;
        run_record_free(&r);
    }
    db_close(db);
    return n;
}

/* Exit status of a child that runs `f`; 128+N after signal N. */
static inline int in_child(int (*f)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        _exit(f());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Takes back what schemas 7 and 8 brought, so that an older database can be made from a new one. */
#define BACK_TO_6 \
    "DROP VIEW checkpoints; DROP TABLE checkpoint; DROP TABLE rank_phase; DROP TABLE rank_step; DROP TABLE rank_part; DROP TABLE rank_clock;" \
    "ALTER TABLE calibration DROP COLUMN crowd; DROP VIEW stages; DROP VIEW messages; DROP VIEW entries; DROP TABLE stage;" \
    "ALTER TABLE entry DROP COLUMN pass; ALTER TABLE entry DROP COLUMN micro_step; ALTER TABLE entry DROP COLUMN met_s;" \
    "CREATE VIEW entries AS SELECT 1;"

#endif
