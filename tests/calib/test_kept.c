/* What was measured on one GPU: kept as an export, taken in, used for plans of that type, and beside it
 * what one GPU cannot measure, which stays published. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include <stdlib.h>
#include <unistd.h>

#include "calib/store/kept.h"
#include "calib/store/measured_for.h"
#include "calib/store/portable.h"
#include "calib/store/query.h"
#include "calib/store/series.h"
#include "calib/store/words.h"
#include "model/memory/evaluate.h"
#include "model/plan/plan.h"
#include "sim/clock/simulate.h"
#include "sim/price/measured_gaps.h"

/* Every kernel at 100 TFLOP/s and 1 TB/s, which no H200 is. */
static double seconds_of(double flops, double bytes) { return flops / 100e12 + bytes / 1e12 + 5e-6; }

/* ---- a plan, and a calibration of all its kernels ---- */

static void make_plan(const char *cluster, struct plan *p)
{
    json_t *c = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "gpt2", "n_embd", 768, "n_head", 12, "n_layer", 12,
                          "vocab_size", 50257, "n_positions", 1024);

    memset(p, 0, sizeof *p);
    assert_int_equal(model_from_config(c, "test", &p->model), 0);
    json_decref(c);
    assert_int_equal(cluster_load(cluster, &p->cluster), 0);
    p->seq = 512;
    p->micro_batch = 4;
    plan_defaults(p, STRAT_DDP, DIALECT_TORCH, DT_BF16);
    p->kernels = KERNELS_DPX;
    assert_int_equal(plan_check(p, "test"), 0);
}

static struct series base(enum series_kind kind, const char *name, enum dtype t, const double *s)
{
    return (struct series){ .kind = kind, .name = name, .dtype = t, .ranks = 1, .per_node = 1, .threads = 1,
                            .started = 1.8e9, .probe_before_s = 2e-4, .probe_after_s = 2e-4, .seconds = s, .nsamples = 1,
                            .of_ranks = 1 };
}

enum { MOST = 400 };
static struct series made[MOST];
static double took[MOST];
static int nmade;

static void add(struct series s, double seconds)
{
    assert_true(nmade < MOST);
    took[nmade] = seconds;
    s.seconds = &took[nmade];
    made[nmade++] = s;
}

static bool is_made(const struct series *s)
{
    for (int i = 0; i < nmade; i++)
        if (!strcmp(made[i].name, s->name) && made[i].fn == s->fn && made[i].m == s->m && made[i].n == s->n &&
            made[i].k == s->k && made[i].bytes == s->bytes)
            return true;
    return false;
}

static void add_kernels(const struct plan *p)
{
    struct program g;

    memset(&g, 0, sizeof g);
    assert_int_equal(program_build(p, &g), 0);
    for (int piece = 0; piece < NPIECE; piece++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int i = 0; i < g.piece[piece].nkernels[pass]; i++) {
                const struct kernel *k = &g.piece[piece].kernels[pass][i];
                struct series s = base(SERIES_KERNEL, k->name, p->precision, NULL);
                s.fn = k->fn;
                s.class = (int)k->kind;
                s.dropout = p->dropout > 0;
                s.batch = k->batch, s.m = k->m, s.n = k->n, s.k = k->k, s.bytes = k->bytes, s.flops = k->flops;
                if (k->kind == KC_ATTENTION)
                    s.seq = p->seq, s.dim = p->model.head_dim;
                if ((k->bytes > 0 || k->flops > 0) && !is_made(&s))
                    add(s, seconds_of(k->flops, (double)k->bytes));
            }
    program_free(&g);
}

static void add_passes(void)
{
    for (int pass = 0; pass < NMEASURED_PASS; pass++)
        for (int64_t bytes = 1 << 20; bytes <= 1 << 28; bytes *= 16) {
            struct series s = base(SERIES_PASS, pass_words[pass], DT_BF16, NULL);
            s.bytes = bytes;
            add(s, seconds_of(0, (double)bytes));
        }
}

/* In a database, and as the file that dpx would keep. */
static void record(const char *db_name, const char *export)
{
    struct calibration c = { .started = 1.8e9, .host = "gpubox", .device = "h200", .cpu = "Some CPU", .cores = 16,
                             .memory = 1 << 30, .source = "dpxcal", .ranks = 1, .threads = 1, .options = "{}",
                             .dpx_version = "0.1.0", .kernels_version = "cuda, CUDA 13.0", .comm_version = "NCCL 2.28" };
    struct db *db = db_open(in_scratch(db_name));
    struct plan p;
    bool refused;

    assert_non_null(db);
    nmade = 0;
    make_plan("1xh200", &p);
    add_kernels(&p);
    add_passes();
    int64_t id = calibration_begin(db, &c);
    assert_true(id > 0);
    assert_int_equal(series_put(db, id, made, nmade), 0);
    assert_int_equal(calibration_end(db, id, 1.8e9 + 60), 0);
    assert_int_equal(portable_export(db, 0, in_scratch(export), &refused), 1);
    db_close(db);
    plan_free(&p);
}

/* ---- what a plan says then ---- */

struct told { struct timing t; struct gap gap[GAPS_MOST]; int ngaps; bool measured; };

static void evaluate_on(const char *cluster, const char *db, struct told *to)
{
    struct measured_device d;
    struct evaluation e;
    struct run run;
    struct plan p;

    memset(to, 0, sizeof *to);
    make_plan(cluster, &p);
    to->measured = measured_for(db, db != NULL, p.precision, &p.cluster, &d) == 1;
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, &to->t, &run), 0);
    run_free(&run);
    to->ngaps = measured_gaps(&p, &e.schedules, to->gap);
    evaluation_free(&e);
    measured_device_free(&d);
    plan_free(&p);
}

static bool misses(const struct told *t, const char *what)
{
    for (int i = 0; i < t->ngaps; i++)
        if (strstr(t->gap[i].what, what))
            return true;
    return false;
}

static void one_gpu_is_measured_through(void **state)
{
    struct told before, now;

    (void)state;
    record("one.db", "one.json");
    evaluate_on("1xh200", in_scratch("none.db"), &before);
    evaluate_on("1xh200@gpubox", in_scratch("one.db"), &now);
    assert_false(before.measured);
    assert_int_equal(before.t.basis, BASIS_PUBLISHED);
    assert_true(now.measured);
    assert_int_equal(now.t.basis, BASIS_MEASURED);
    /* What there is more of than was timed (AdamW over all parameters) goes on from there, and is said. */
    for (int i = 0; i < now.ngaps; i++)
        assert_true(now.gap[i].outside);
    /* 100 TFLOP/s and 1 TB/s are less than an H200 has. */
    assert_true(now.t.line.compute_s > 1.5 * before.t.line.compute_s);
}

static void what_one_gpu_cannot_measure_stays_published(void **state)
{
    struct told one, eight;

    (void)state;
    record("eight.db", "eight.json");
    evaluate_on("1xh200@gpubox", in_scratch("eight.db"), &one);
    evaluate_on("8xh200@gpubox", in_scratch("eight.db"), &eight);
    assert_true(eight.measured);
    assert_int_equal(eight.t.basis, BASIS_PUBLISHED);
    assert_true(misses(&eight, "all_reduce"));
    assert_true(misses(&eight, "among 8 ranks"));
    /* Products are those of the one GPU all the same, but for what overlap takes from them. */
    assert_true(eight.t.line.compute_s >= .99 * one.t.line.compute_s);
    assert_true(eight.t.line.compute_s < 1.6 * one.t.line.compute_s);
    assert_true(eight.t.low_s < eight.t.line.step_s && eight.t.line.step_s < eight.t.high_s);
}

static void an_export_taken_in_says_the_same(void **state)
{
    struct told from, to;
    struct db *db;
    bool refused;
    int known;

    (void)state;
    record("from.db", "h200.json");
    db = db_open(in_scratch("to.db"));
    assert_int_equal(portable_import(db, in_scratch("h200.json"), &known, &refused), 1);
    db_close(db);
    evaluate_on("2xh200@gpubox", in_scratch("from.db"), &from);
    evaluate_on("2xh200@gpubox", in_scratch("to.db"), &to);
    assert_close(to.t.line.step_s, from.t.line.step_s, 1e-12);
    assert_int_equal(to.t.basis, from.t.basis);
}

static void what_is_kept_stands_in_for_a_database(void **state)
{
    struct told own, kept, other;
    char path[4096];

    (void)state;
    record("kept.db", "h200.json");
    evaluate_on("1xh200@gpubox", in_scratch("kept.db"), &own);
    setenv("XDG_DATA_HOME", in_scratch("nowhere"), 1);
    setenv("DPX_MEASURED", scratch, 1);
    assert_true(kept_find("h200", path, sizeof path));
    assert_false(kept_find("h100", path, sizeof path));
    evaluate_on("1xh200", NULL, &kept);
    evaluate_on("1xh100", NULL, &other);
    unsetenv("DPX_MEASURED");
    assert_true(kept.measured);
    assert_false(other.measured);
    assert_close(kept.t.line.step_s, own.t.line.step_s, 1e-12);
    assert_int_equal(access(":memory:", F_OK), -1);         /* nothing is left in the folder where it ran */
}

/* What comes with dpx was measured on somebody's machine, whose files and processors are not the user's. */
static void what_is_kept_says_nothing_of_hosts(void **state)
{
    static const char *const gpus[] = { "1xh100", "1xh200" };

    (void)state;
    setenv("XDG_DATA_HOME", in_scratch("nowhere"), 1);
    setenv("DPX_MEASURED", "calib/measured", 1);
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        struct measured_device d;
        struct cluster c;
        int passes = 0;
        assert_int_equal(cluster_load(gpus[g], &c), 0);
        assert_int_equal(measured_for_threads(NULL, false, DT_FP32, 0, &c, &d), 1);
        for (int i = 0; i < d.nbytes; i++) {
            enum measured_pass pass = d.bytes[i].pass;
            assert_true(pass != MP_DISK_READ && pass != MP_DISK_WRITE && pass != MP_HOST_ADAMW);
            passes += pass == MP_ADAMW;
        }
        assert_true(passes > 0);
        assert_true(d.kept);
        measured_device_free(&d);
    }
    unsetenv("DPX_MEASURED");
}

static void a_kept_file_that_is_none_costs_a_warning(void **state)
{
    struct told t;
    FILE *f = fopen(in_scratch("h100.json"), "w");

    (void)state;
    assert_non_null(f);
    fputs("{}\n", f);
    fclose(f);
    setenv("XDG_DATA_HOME", in_scratch("nowhere"), 1);
    setenv("DPX_MEASURED", scratch, 1);
    evaluate_on("1xh100", NULL, &t);
    unsetenv("DPX_MEASURED");
    assert_false(t.measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_is_measured_through),
        cmocka_unit_test(what_one_gpu_cannot_measure_stays_published),
        cmocka_unit_test(an_export_taken_in_says_the_same),
        cmocka_unit_test(what_is_kept_stands_in_for_a_database),
        cmocka_unit_test(what_is_kept_says_nothing_of_hosts),
        cmocka_unit_test(a_kept_file_that_is_none_costs_a_warning),
    };

    return cmocka_run_group_tests_name("calib/kept", tests, scratch_make, scratch_remove);
}
