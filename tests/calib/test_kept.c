/* What was measured on one GPU: exported, taken in, kept as fits, used for plans of that type, and beside it
 * what one GPU cannot measure, which stays published. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "base/notes.h"
#include "calib/store/fit.h"
#include "calib/store/kept.h"
#include "calib/store/kept_file.h"
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

/* In a database, and exported. */
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
    to->measured = measured_for(db, db != NULL, p.precision, p.kernels, &p.cluster, &d) == 1;
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

/* The fits of a database that record() made, in a folder of their own. */
static void keep(const char *db_name, const char *folder, const char *gpu)
{
    struct db *db = db_open_reader(in_scratch(db_name));
    struct kept_fits fits;
    char path[600];

    assert_non_null(db);
    assert_int_equal(kept_fit(db, &fits), 0);
    db_close(db);
    mkdir(folder, 0755);
    snprintf(path, sizeof path, "%s/%s.fits", folder, gpu);
    assert_int_equal(kept_write(&fits, path), 0);
    kept_fits_free(&fits);
}

static void what_is_kept_stands_in_for_a_database(void **state)
{
    char folder[512], path[4096];
    struct told own, kept, other;

    (void)state;
    record("kept.db", "export.json");
    snprintf(folder, sizeof folder, "%s", in_scratch("kept"));
    keep("kept.db", folder, "h200");
    evaluate_on("1xh200@gpubox", in_scratch("kept.db"), &own);
    setenv("XDG_DATA_HOME", in_scratch("nowhere"), 1);
    setenv("DPX_MEASURED", folder, 1);
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
        assert_int_equal(measured_for_threads(NULL, false, DT_FP32, KERNELS_DPX, 0, &c, &d), 1);
        for (int i = 0; i < d.nbytes; i++) {
            enum measured_pass pass = d.bytes[i].pass;
            assert_true(pass != MP_DISK_READ && pass != MP_DISK_WRITE && pass != MP_HOST_ADAMW);
            passes += pass == MP_ADAMW;
        }
        assert_true(passes > 0);
        measured_device_free(&d);
    }
    unsetenv("DPX_MEASURED");
}

static void a_kept_file_that_is_none_costs_a_warning(void **state)
{
    struct told t;
    FILE *f = fopen(in_scratch("h100.fits"), "w");

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

/* Each is refused by name: samples, another GPU's fits, rows out of order, a word that is none. */
static void what_is_no_fit_of_the_gpu_is_refused(void **state)
{
    static const struct { const char *from, *to, *why; } broken[] = {
        { "dpx_fits 1", "{ \"dpx_calibrations\": 1", "dpx_fits is missing" },
        { "dpx_fits 1", "dpx_fits 2", "of another version" },
        { "passes: pass bytes", "passes: bytes pass", "columns of another version" },
        { "passes: pass bytes s spread", "passes: pass bytes s", "columns of another version" },
        { "device h200", "device h100", "is of h100, not of h200" },
        { "\nzero ", "\nzeal ", "a word that is not known" },
        { "\nzero ", "\ncopy ", "is not in the order" },
        { "\nzero ", "\nzero 3 ", "have more columns" },
        { "\ncores 16", "\ncores -16", "not of its kind" },
        { "\ncores 16", "\ncores 1e3", "not of its kind" },
        { "\ncores 16", "\nkores 16", "cores is missing" },
        { "\nprobe_s ", "\nprobe_s nan\n", "not of its kind" },
        { "\npasses ", "\npasses 9", "a word that is not known" },
        { "\noverlaps 0\n", "\noverlaps 1\n", "a word that is not known" },
    };
    static char text[1 << 20];
    char path[600];

    (void)state;
    record("broken.db", "export.json");
    keep("broken.db", in_scratch("broken"), "h200");
    snprintf(path, sizeof path, "%s/h200.fits", in_scratch("broken"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t size = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[size] = '\0';
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct measured_device d;
        char *at = strstr(text, broken[i].from);
        assert_non_null(at);
        snprintf(path, sizeof path, "%s/%zu.fits", in_scratch("broken"), i);
        f = fopen(path, "w");
        fwrite(text, 1, (size_t)(at - text), f);
        fprintf(f, "%s%s", broken[i].to, at + strlen(broken[i].from));
        fclose(f);
        said[0] = '\0';
        assert_int_equal(kept_read("h200", path, DT_BF16, &d), -1);
        if (!strstr(said, broken[i].why))
            fail_msg("%s for %s", said, broken[i].why);
    }
}

/* ---- what comes with dpx ---- */

#define SAME(field) assert_memory_equal(&a->field, &b->field, sizeof a->field)

static void same_fits(const struct measured_device *x, const struct measured_device *y)
{
    {
        const struct measured_device *a = x, *b = y;
        SAME(nkernel); SAME(nbytes); SAME(ncoll); SAME(noverlap); SAME(traced); SAME(traced_issue); SAME(precision);
        SAME(ranks); SAME(threads); SAME(cores); SAME(alone); SAME(together); SAME(probe_s); SAME(drift); SAME(unsteady); SAME(late);
        SAME(now_s); SAME(taken); SAME(own.issue_kernel); SAME(own.issue_entry); SAME(own.handover); SAME(own.wake); SAME(own.cold);
        SAME(own.step);
        assert_string_equal(a->device, b->device);
        assert_string_equal(a->basis, b->basis);
        assert_string_equal(a->warning, b->warning);
    }
    for (int i = 0; i < x->nkernel; i++) {
        const struct measured_kernel *a = &x->kernel[i], *b = &y->kernel[i];
        SAME(fn); SAME(kind); SAME(set); SAME(what); SAME(batch); SAME(m); SAME(n); SAME(k); SAME(seq); SAME(dim); SAME(scaled);
        SAME(dropout); SAME(bytes); SAME(flops); SAME(s); SAME(spread);
    }
    for (int i = 0; i < x->nbytes; i++) {
        const struct measured_bytes *a = &x->bytes[i], *b = &y->bytes[i];
        SAME(pass); SAME(bytes); SAME(s); SAME(spread); SAME(set);
    }
    for (int i = 0; i < x->ncoll; i++) {
        const struct measured_coll *a = &x->coll[i], *b = &y->coll[i];
        SAME(op); SAME(dtype); SAME(star); SAME(ranks); SAME(per_node); SAME(bytes); SAME(s); SAME(spread); SAME(unsure);
    }
    for (int i = 0; i < x->noverlap; i++) {
        const struct measured_overlap *a = &x->overlap[i], *b = &y->overlap[i];
        SAME(kind); SAME(op); SAME(bytes); SAME(compute); SAME(other); SAME(spread); SAME(alone_s); SAME(ranks); SAME(per_node);
    }
}

static bool is_host(const struct measured_bytes *b)
{
    return b->pass == MP_HOST_ADAMW || b->pass == MP_DISK_READ || b->pass == MP_DISK_WRITE;
}

/* What fit_read() makes of the samples, host and disks left out, is what the shipped file says: bit for bit, for every precision. */
static void shipped_fits_are_those_of_the_samples(void **state)
{
    static const char *const gpus[] = { "h100", "h200" };

    (void)state;
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        char samples[64], shipped[64];
        struct db *db = db_open_memory();
        int known, nprecisions = 0;
        bool refused;
        snprintf(samples, sizeof samples, "tests/calib/measured/%s.json", gpus[g]);
        snprintf(shipped, sizeof shipped, "calib/measured/%s.fits", gpus[g]);
        assert_int_equal(portable_import(db, samples, &known, &refused), 1);
        for (int t = 0; t < NDTYPE; t++) {
            struct fit_want want = { .device = gpus[g], .precision = (enum dtype)t, .ranks = 1 };
            struct measured_device of_samples, kept;
            int found = fit_read(db, &want, &of_samples), n = 0;
            assert_int_equal(kept_read(gpus[g], shipped, (enum dtype)t, &kept), found);
            if (found == 0)
                continue;
            struct measured_bytes *all = (struct measured_bytes *)(uintptr_t)of_samples.bytes;
            for (int i = 0; i < of_samples.nbytes; i++)
                if (!is_host(&all[i]))
                    all[n++] = all[i];
            assert_true(n < of_samples.nbytes || t != DT_FP32);
            of_samples.nbytes = n;
            same_fits(&of_samples, &kept);
            assert_true(kept.nkernel > 100);
            measured_device_free(&of_samples);
            measured_device_free(&kept);
            nprecisions++;
        }
        db_close(db);
        assert_int_equal(nprecisions, 2);
    }
}

/* Folders of before had exports, with their samples. */
static void an_export_in_the_folder_is_said(void **state)
{
    json_t *notes = json_array(), *before = notes_divert(notes);
    struct measured_device d;
    struct cluster c;

    (void)state;
    setenv("XDG_DATA_HOME", in_scratch("nowhere"), 1);
    setenv("DPX_MEASURED", "tests/calib/measured", 1);
    assert_int_equal(cluster_load("8xh100", &c), 0);
    assert_int_equal(measured_for(NULL, false, DT_BF16, KERNELS_DPX, &c, &d), 0);
    assert_int_equal(json_array_size(notes), 1);
    assert_non_null(strstr(json_string_value(json_array_get(notes, 0)), "dpxcal fit"));
    notes_divert(before);
    json_decref(notes);
    unsetenv("DPX_MEASURED");
}

/* Kernels of other sets are none of the executor's: the file is not even looked for. */
static void kernels_of_others_open_no_file(void **state)
{
    struct measured_device d;
    struct cluster c;

    (void)state;
    setenv("XDG_DATA_HOME", in_scratch("nowhere"), 1);
    mkdir(in_scratch("bad"), 0755);
    FILE *f = fopen(in_scratch("bad/h100.fits"), "w");
    assert_non_null(f);
    fputs("no fits at all", f);
    fclose(f);
    setenv("DPX_MEASURED", in_scratch("bad"), 1);
    for (int set = 0; set < NKERNELS; set++) {
        json_t *notes = json_array(), *before = notes_divert(notes);
        assert_int_equal(cluster_load("8xh100", &c), 0);
        assert_int_equal(measured_for(NULL, false, DT_BF16, (enum kernel_set)set, &c, &d), 0);
        notes_divert(before);
        assert_int_equal(json_array_size(notes), set == KERNELS_DPX);
        json_decref(notes);
    }
    unsetenv("DPX_MEASURED");
}

/* ---- once a process ---- */

enum { READERS = 8, TIMES = 50 };

static void *read_often(void *to)
{
    struct measured_device *d = to;

    for (int i = 0; i < TIMES; i++)
        if (kept_read("h100", "calib/measured/h100.fits", i % 2 ? DT_FP32 : DT_BF16, d) != 1)
            return NULL;
    return to;
}

/* All threads get the same arrays, which outlive what one of them gives back. */
static void a_file_is_read_once_by_all_threads(void **state)
{
    struct measured_device d[READERS];
    pthread_t thread[READERS];

    (void)state;
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_often, &d[i]), 0);
    for (int i = 0; i < READERS; i++) {
        void *result;
        pthread_join(thread[i], &result);
        assert_non_null(result);
    }
    for (int i = 1; i < READERS; i++) {
        assert_ptr_equal(d[i].kernel, d[0].kernel);
        measured_device_free(&d[i]);
    }
    assert_true(d[0].kernel[0].s > 0);
}

/* Another file in the place of one that was read counts from then on; what was read before stays as it was. */
static void another_file_in_its_place_is_read(void **state)
{
    struct measured_device before, after;
    char folder[512], path[600];

    (void)state;
    snprintf(folder, sizeof folder, "%s", in_scratch("replaced"));
    snprintf(path, sizeof path, "%s/h200.fits", folder);
    record("first.db", "export.json");
    keep("first.db", folder, "h200");
    assert_int_equal(kept_read("h200", path, DT_BF16, &before), 1);
    double s = before.kernel[0].s;
    FILE *f = fopen(path, "w");
    fputs("{}\n", f);
    fclose(f);
    assert_int_equal(kept_read("h200", path, DT_BF16, &after), -1);
    assert_true(before.kernel[0].s == s);
    keep("first.db", folder, "h200");
    assert_int_equal(kept_read("h200", path, DT_BF16, &after), 1);
    assert_true(after.kernel[0].s == s);
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
        cmocka_unit_test(what_is_no_fit_of_the_gpu_is_refused),
        cmocka_unit_test(shipped_fits_are_those_of_the_samples),
        cmocka_unit_test(an_export_in_the_folder_is_said),
        cmocka_unit_test(kernels_of_others_open_no_file),
        cmocka_unit_test(a_file_is_read_once_by_all_threads),
        cmocka_unit_test(another_file_in_its_place_is_read),
    };

    return cmocka_run_group_tests_name("calib/kept", tests, scratch_make, scratch_remove);
}
