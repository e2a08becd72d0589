/* fixture.h -- databases for reports: a few runs of made-up plans, with everything that dpxrun and
 * dpxcal record, in numbers that no two places share. */
#ifndef DPX_FIXTURE_H
#define DPX_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "calib/store/runs.h"
#include "calib/store/runs_memory.h"
#include "calib/store/series.h"

struct made {
    const char *model, *strategy, *dialect, *host;
    int world, micro_batch;
    bool predicted, finished;
};

static inline void made_plan(const struct made *m, char *to, size_t size)
{
    char name[600];
    size_t n = 0;

    for (const char *s = m->model; *s && n + 2 < sizeof name; s++) {
        if (*s == '"' || *s == '\\')
            name[n++] = '\\';
        name[n++] = *s == '\n' ? ' ' : *s;
    }
    name[n] = '\0';
    snprintf(
        to, size,
        "{\"dpx_plan\": 1, \"model\": {\"_name_or_path\": \"%s\"}, \"strategy\": \"%s\", \"dialect\": \"%s\","
        " \"seq\": 128, \"micro_batch\": %d, \"accumulation\": 1, \"precision\": \"fp32\", \"recompute\": "
        "\"none\","
        " \"cluster\": {\"world_size\": %d}}",
        name, m->strategy, m->dialect, m->micro_batch, m->world);
}

/* A number of its own for run `id`: 1 + small, exact in binary. */
static inline double odd(int64_t id, int k) { return 1 + (double)id / 16 + (double)k / 256; }

static inline int made_entries(struct db *db, int64_t id, bool predicted)
{
    static const char *const stream[] = { "gather", "compute", "compute", "reduce", "compute" };
    static const char *const kind[] = { "collective", "compute", "compute", "collective", "optimizer" };
    static const char *const what[] = { "all_gather", "forward", "backward", "reduce_scatter", "AdamW" };
    struct run_entry e[15];

    for (int k = 0; k < 15; k++) {
        double at = 0.25 * k + 0.03125 * (double)id;
        e[k] = (struct run_entry){ .step = 2,
                                   .rank = 0,
                                   .position = k,
                                   .entry = k % 5,
                                   .iteration = k / 5,
                                   .schedule = "steady",
                                   .stream = stream[k % 5],
                                   .kind = kind[k % 5],
                                   .what = what[k % 5],
                                   .unit = "block",
                                   .start_s = at,
                                   .end_s = at + odd(id, k) / 4,
                                   .predicted_start_s = predicted ? at / 2 : NAN,
                                   .predicted_end_s = predicted ? at / 2 + odd(id, k) / 8 : NAN };
        /* The compute stream does one thing at a time. */
        for (int b = 0; b < k; b++)
            if (!strcmp(e[k].stream, e[b].stream)) {
                e[k].start_s = fmax(e[k].start_s, e[b].end_s);
                e[k].end_s = fmax(e[k].end_s, e[k].start_s + 0.0625);
                if (predicted) {
                    e[k].predicted_start_s = fmax(e[k].predicted_start_s, e[b].predicted_end_s);
                    e[k].predicted_end_s = fmax(e[k].predicted_end_s, e[k].predicted_start_s + 0.03125);
                }
            }
    }
    return runs_entries(db, id, e, 15);
}

static inline int made_memory(struct db *db, int64_t id, bool predicted, int world)
{
    static const char *const category[] = { "params", "optimizer", "unsharded params" };
    struct run_part part[24];
    struct run_moment moment[15];
    struct run_memory ranks[8];
    int64_t total = 0;
    int n = 0;

    for (int rank = 0; rank < world && rank < 8; rank++)
        for (int c = 0; c < 3; c++, n++) {
            int64_t bytes = (int64_t)(odd(id, 3 * rank + c) * (1 << 20)) * (c + 1);
            total += rank == 0 ? bytes : 0;
            part[n] = (struct run_part){ 0, rank, category[c], predicted && rank == 0 ? bytes : -1, bytes };
        }
    for (int rank = 0; rank < world && rank < 8; rank++)
        ranks[rank] = (struct run_memory){ rank, "node7", 2 * total, total - rank, 3 * total };
    for (int k = 0; k < 15; k++)
        moment[k] = (struct run_moment){ "steady", k, predicted ? total - 1000 * k : -1, total - 1000 * k };
    struct run_memory_side side = { 8 * total, part, moment, predicted ? 3 : 0, predicted ? 15 : 0 };
    if (runs_memory_predicted(db, id, &side) < 0)
        return -1;
    side.nparts = n;
    side.nmoments = 15;
    return runs_memory_measured(db, id, &side) < 0 || runs_memory(db, id, ranks, world < 8 ? world : 8) < 0
               ? -1
               : 0;
}

/* The run's number. */
static inline int64_t made_run(struct db *db, const struct made *m)
{
    static const struct run_comm comm[] = { { "all_gather", "world", "bf16", 24, 1234567 },
                                            { "reduce_scatter", "world", "fp32", 12, 2345678 } };
    char plan[2048];
    struct run_phase phase[] = { { "compute", 0.5 },
                                 { "exposed communication", 0.25 },
                                 { "optimizer", 0.0625 } };
    struct run_predicted p = { .basis = "datasheet",
                               .step_s = 0.8125,
                               .low_s = 0.75,
                               .high_s = 0.90625,
                               .rank = 0,
                               .held_bytes = 900000000,
                               .allocated_bytes = 700000000,
                               .process_bytes = -1,
                               .comm = comm,
                               .phase = phase,
                               .ncomm = 2,
                               .nphase = 3 };
    struct run_start start = { .started = 1.75e9,
                               .host = m->host,
                               .device = "cpu",
                               .cpu = "Some CPU",
                               .cores = 2,
                               .memory = 1 << 30,
                               .dpx_version = "0.1.0",
                               .plan = plan,
                               .options = "{}",
                               .world_size = m->world,
                               .seed = 1 };

    made_plan(m, plan, sizeof plan);
    int64_t id = runs_begin(db, &start, m->predicted ? &p : NULL);
    for (int k = 1; id > 0 && k <= 4; k++) {
        struct run_step s = {
            k,  k == 1 ? "first" : "steady", 5.5 - k * 0.25 + 0.0078125 * (double)id, odd(id, k), 1e-3, NAN,
            512
        };
        if (runs_steps(db, id, &s, 1) < 0)
            return -1;
    }
    if (id < 0 || !m->finished)
        return id;
    for (int k = 0; k < 3; k++)
        phase[k].seconds *= odd(id, k);
    struct run_end end = { .outcome = RUN_FINISHED,
                           .ended = 1.75e9 + 9,
                           .step_s = odd(id, 3),
                           .p10_s = odd(id, 2),
                           .p90_s = odd(id, 4),
                           .tokens_per_s = 512 / odd(id, 3) };
    if (made_entries(db, id, m->predicted) < 0 || made_memory(db, id, m->predicted, m->world) < 0 ||
        runs_comm(db, id, comm, 2) < 0 || runs_phases(db, id, phase, 3) < 0 || runs_end(db, id, &end) < 0)
        return -1;
    return id;
}

static inline int made_calibration(struct db *db, const char *host)
{
    int64_t c = calibration_begin(db, &(struct calibration){ .started = 1.75e9,
                                                             .host = host,
                                                             .device = "cpu",
                                                             .cpu = "Some CPU",
                                                             .cores = 2,
                                                             .memory = 1 << 30,
                                                             .source = "dpxcal",
                                                             .ranks = 2,
                                                             .threads = 1,
                                                             .options = "{}" });

    for (int k = 0; c > 0 && k < 12; k++) {
        int size = k % 6;
        double s[] = { 1e-5 * (1 + size) + 2e-10 * (1024 << 2 * size) * (1 + k / 6), 0, 0 };
        s[1] = s[0] * 1.125;
        s[2] = s[0] * 0.96875;
        struct series coll = { .kind = SERIES_COLL,
                               .name = k < 6 ? "all_gather" : "all_reduce",
                               .fn = FN_NONE,
                               .class = KC_COPY,
                               .dtype = DT_FP32,
                               .algorithm = "ring",
                               .ranks = 2,
                               .per_node = 2,
                               .threads = 1,
                               .bytes = 1024 << 2 * size,
                               .started = 1.75e9,
                               .probe_before_s = NAN,
                               .probe_after_s = NAN,
                               .seconds = s,
                               .nsamples = 3 };
        struct series gemm = { .kind = SERIES_KERNEL,
                               .name = "mlp up",
                               .fn = FN_NONE,
                               .class = KC_GEMM,
                               .dtype = DT_FP32,
                               .ranks = 2,
                               .threads = 1,
                               .batch = 1,
                               .m = 32 << size,
                               .n = 96,
                               .k = 64 + k,
                               .bytes = 4096,
                               .flops = 2.0 * (32 << size) * 96 * (64 + k),
                               .started = 1.75e9,
                               .probe_before_s = NAN,
                               .probe_after_s = NAN,
                               .seconds = s,
                               .nsamples = 3 };
        if (series_put(db, c, &coll, 1) < 0 || series_put(db, c, &gemm, 1) < 0)
            return -1;
    }
    return c > 0 ? calibration_end(db, c, 1.75e9 + 60) : -1;
}

/* What most tests look at: five plans on two ranks, one of them on one rank too, one that failed. */
static inline int made_database(struct db *db, const char *model, const char *host)
{
    const struct made runs[] = {
        { model, "ddp", "torch", host, 2, 4, true, true },
        { model, "zero1", "torch", host, 2, 4, true, true },
        { model, "zero2", "deepspeed", host, 2, 4, true, true },
        { model, "zero3", "deepspeed", host, 2, 4, true, true },
        { model, "fsdp", "torch", host, 2, 4, false, true },
        { model, "fsdp", "torch", host, 1, 4, true, true },
        { model, "zero1", "paper", host, 2, 4, true, false },
    };

    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (made_run(db, &runs[i]) < 0)
            return -1;
    return made_calibration(db, host);
}

#endif
