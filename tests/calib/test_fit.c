/* test_fit.c -- what the clock reads of a calibration: medians, spreads, the nearest ranks and threads, drift, a
 * busy machine. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include <time.h>

#include "calib/store/fit.h"
#include "calib/store/measured_for.h"
#include "calib/store/query.h"
#include "calib/store/series.h"
#include "calib/store/words.h"
#include "model/cluster/cluster.h"

/* ---- calibrations made up for the tests ---- */

static struct calibration some_calibration(void)
{
    static struct cluster here;
    static char host[256];

    cluster_of_host(&here, 1);
    gethostname(host, sizeof host - 1);
    return (struct calibration){ .started = 1.75e9, .host = host, .device = "cpu", .cpu = here.gpu.title, .cores = 2,
                                 .memory = 1 << 30, .source = "dpxcal", .ranks = 2, .threads = 1, .options = "{}",
                                 .dpx_version = "0.1.0", .comm_version = "Open MPI 4.1.4" };
}

static struct series some_series(enum series_kind kind, const char *name, const double *s, int n)
{
    return (struct series){ .kind = kind, .name = name, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .threads = 1,
                            .bytes = 1000, .started = 1.75e9, .probe_before_s = 2e-3, .probe_after_s = 2e-3,
                            .seconds = s, .nsamples = n };
}

static const struct fit_want two_ranks = { .precision = DT_FP32, .ranks = 2 };

static const double constant[] = { 1, 1, 1, 1, 1 };

/* One calibration with these series. */
static int64_t record(struct db *db, const struct series *s, int n)
{
    struct calibration c = some_calibration();
    int64_t id = calibration_begin(db, &c);

    assert_true(id > 0);
    assert_int_equal(series_put(db, id, s, n), 0);
    return id;
}

static struct series kernel(const char *name, enum kernel_fn fn, int64_t n, const double *s, int count)
{
    struct series k = some_series(SERIES_KERNEL, name, s, count);

    k.fn = fn;
    k.class = KC_GEMM;
    k.m = k.k = 10;
    k.n = n;
    k.of_ranks = 1;
    return k;
}

/* ---- tests ---- */

static void a_summary_is_that_of_its_samples(void **state)
{
    (void)state;
    double s[101];
    struct summary of;

    for (int i = 0; i <= 100; i++)
        s[i] = (double)(i * 37 % 101);              /* 0 .. 100 in some order */
    series_summarize(s, 101, &of);
    assert_close(of.median, 50, 0);
    assert_close(of.mean, 50, 0);
    assert_close(of.p05, 5, 1e-12);
    assert_close(of.p95, 95, 1e-12);
    assert_close(of.min, 0, 0);
    /* 0.98 sqrt(101) ranks either side, of 50. */
    assert_close(of.confidence, 0.98 / sqrt(101) * 100 / 50, 1e-12);
    series_summarize(s, 1, &of);
    assert_close(of.median, s[0], 0);
    assert_close(of.p95, s[0], 0);
    memset(s, 0, sizeof s);                             /* below the clock's resolution */
    series_summarize(s, 101, &of);
    assert_close(of.confidence, 0, 0);
}

static void nothing_measured_is_no_error(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("empty.db"));
    struct measured_device m;

    assert_int_equal(fit_read(db, &two_ranks, &m), 0);
    assert_null(m.store);
    record(db, &(struct series){ .kind = SERIES_COLL, .name = "all_reduce", .dtype = DT_FP32, .algorithm = "ring",
                                 .ranks = 2, .bytes = 1, .seconds = constant, .nsamples = 5 }, 1);
    assert_int_equal(fit_read(db, &(struct fit_want){ .device = "h100", .precision = DT_BF16, .ranks = 8 }, &m), 0);
    db_close(db);
}

/* Three ranks on two cores: what is shorter than a time slice either waits for its core or does not, so that the mean counts. */
static void what_shares_cores_counts_by_its_mean(void **state)
{
    (void)state;
    static const double s[] = { 1, 1, 1, 1, 11 };
    struct series of[] = { kernel("mlp up", FN_LINEAR, 7, s, 5), some_series(SERIES_PASS, "adamw", s, 5) };
    struct measured_device m;

    for (int shared = 0; shared < 2; shared++) {
        struct db *db = db_open(in_scratch(shared ? "shared.db" : "apart.db"));
        for (int i = 0; i < 2; i++)
            of[i].per_node = 2 + shared;
        record(db, of, 2);
        assert_int_equal(fit_read(db, &two_ranks, &m), 1);
        assert_close(m.kernel[0].s, shared ? 3 : 1, 1e-12);
        assert_close(m.bytes[0].s, shared ? 3 : 1, 1e-12);
        measured_device_free(&m);
        db_close(db);
    }
}

static void the_clock_gets_medians_and_spreads(void **state)
{
    (void)state;
    static const double s[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21 };
    struct db *db = db_open(in_scratch("medians.db"));
    struct series of[] = { kernel("mlp up", FN_LINEAR, 7, s, 21), some_series(SERIES_PASS, "adamw", s, 21),
                           some_series(SERIES_COLL, "all_gather", s, 21), some_series(SERIES_OWN, "handover", s, 21),
                           some_series(SERIES_OWN, "alone", s, 3), some_series(SERIES_OWN, "together", s, 5) };
    struct measured_device m;

    of[2].algorithm = "ring";
    record(db, of, 6);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_int_equal(m.nkernel, 1);
    assert_int_equal(m.kernel[0].fn, FN_LINEAR);
    assert_int_equal(m.kernel[0].n, 7);
    assert_close(m.kernel[0].s, 11, 0);
    assert_close(m.kernel[0].spread, (20.0 - 2.0) / 2 / 11, 1e-12);
    assert_int_equal(m.nbytes, 1);
    assert_int_equal(m.bytes[0].pass, MP_ADAMW);
    assert_int_equal(m.ncoll, 1);
    assert_int_equal(m.coll[0].op, COLL_ALL_GATHER);
    assert_false(m.coll[0].star);
    assert_close(m.own.handover.s, 11, 0);
    assert_close(m.own.wake.s, 0, 0);
    assert_close(m.alone.s, 2, 0);
    assert_close(m.together.s, 3, 0);
    assert_int_equal(m.ranks, 2);
    assert_close(m.probe_s, 2e-3, 0);
    assert_close(m.drift, 1 - 1 / 11.0, 1e-12);         /* medians of 11 where the least is 1: others used the cores */
    assert_non_null(strstr(m.basis, "2025-06-15"));
    measured_device_free(&m);
    db_close(db);
}

/* Others had three quarters of the cores: all times may be four times too long, and do not average out. */
static void a_busy_machine_widens_the_interval_and_says_so(void **state)
{
    (void)state;
    static const double even[] = { 1, 1, 1, 1, 1, 1, 1, 1 }, shared[] = { 1, 2, 2, 2, 2, 2, 2, 2 };
    struct series quiet = kernel("mlp up", FN_LINEAR, 7, even, 8), late = kernel("mlp up", FN_LINEAR, 7, shared, 8);
    struct db *db = db_open(in_scratch("busy.db"));
    struct measured_device m;
    int64_t id = record(db, &quiet, 1);

    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_close(m.late, 0, 0);
    assert_close(m.drift, 0, 0);
    assert_string_equal(m.warning, "");
    measured_device_free(&m);

    assert_int_equal(calibration_crowd(db, id, .05), 0);        /* daemons */
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_close(m.late, 0, 0);
    measured_device_free(&m);

    assert_int_equal(calibration_crowd(db, id, .75), 0);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_close(m.late, .75, 1e-12);
    assert_close(m.drift, .75, 1e-12);
    assert_non_null(strstr(m.warning, "busy when it was calibrated: its times are up to 4.0 times as long as when it is quiet"));
    assert_non_null(strstr(m.basis, ", of a busy machine"));
    measured_now(&m, 2e-3);                             /* a probe says what the machine is now, not what it was */
    assert_close(m.drift, .75, 1e-12);
    measured_device_free(&m);

    /* Forgotten, and timed again while half of the samples waited for their turn. */
    assert_int_equal(series_forget(db, id, 0), 0);
    assert_int_equal(series_last(db), 0);
    assert_int_equal(calibration_crowd(db, id, 0), 0);
    assert_int_equal(series_put(db, id, &late, 1), 0);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_close(m.late, 1 - 1 / 2.0, 1e-12);
    measured_device_free(&m);
    db_close(db);
}

static void a_newer_series_takes_the_place_of_an_older(void **state)
{
    (void)state;
    static const double slow[] = { 8, 8, 8 };
    struct db *db = db_open(in_scratch("newer.db"));
    struct series old = kernel("mlp up", FN_LINEAR, 7, slow, 3), other = kernel("mlp down", FN_LINEAR, 9, slow, 3);
    struct series now = kernel("mlp up", FN_LINEAR, 7, constant, 5);
    struct measured_device m;
    int64_t newer;

    record(db, (struct series[]){ old, other }, 2);
    now.started += 100;
    newer = record(db, &now, 1);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_int_equal(m.nkernel, 2);
    assert_close(m.kernel[0].s, 1, 0);
    assert_close(m.kernel[1].s, 8, 0);
    measured_device_free(&m);

    /* Recorded later, but older: an import. */
    old.started -= 100;
    record(db, &old, 1);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_close(m.kernel[0].s, 1, 0);
    measured_device_free(&m);

    /* Deleted, it gives its place back. */
    char sql[80];
    snprintf(sql, sizeof sql, "DELETE FROM calibration WHERE id = %lld", (long long)newer);
    assert_int_equal(db_exec(db, sql), 0);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_close(m.kernel[0].s, 8, 0);
    measured_device_free(&m);
    db_close(db);
}

static void the_same_kernel_in_two_places_is_one_point(void **state)
{
    (void)state;
    static const double three[] = { 3, 3, 3 };
    struct db *db = db_open(in_scratch("merge.db"));
    struct series of[] = { kernel("q", FN_LINEAR, 10, constant, 5), kernel("attention output", FN_LINEAR, 10, three, 3),
                           kernel("q dW", FN_LINEAR_DW, 10, three, 3) };
    struct measured_device m;

    record(db, of, 3);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_int_equal(m.nkernel, 2);
    assert_close(m.kernel[0].s, 2, 0);
    assert_close(m.kernel[1].s, 3, 0);
    measured_device_free(&m);
    db_close(db);
}

/* 6 heads with keys and values of their own read as much as 8 that share 4 of them: 6 (2 + 2) = 8 (2 + 1). */
static struct series attention(int64_t heads, const double *s, double started)
{
    struct series k = some_series(SERIES_KERNEL, "attention", s, 3);

    k.fn = FN_ATTENTION;
    k.class = KC_ATTENTION;
    k.seq = 256;
    k.dim = 64;
    k.batch = heads;
    k.flops = 4.0 * (double)heads * 256 * 256 * 64;
    k.of_ranks = 1;
    k.started = started;
    return k;
}

static void models_of_as_many_bytes_have_an_attention_each(void **state)
{
    (void)state;
    static const double three[] = { 3, 3, 3 };
    struct db *db = db_open(in_scratch("heads.db"));
    struct measured_device m;

    record(db, (struct series[]){ attention(6, constant, 1.75e9), attention(8, three, 1.75e9) }, 2);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_int_equal(m.nkernel, 2);
    for (int i = 0; i < 2; i++)
        assert_close(m.kernel[i].s, m.kernel[i].flops > 4.0 * 7 * 256 * 256 * 64 ? 3 : 1, 0);
    measured_device_free(&m);
    db_close(db);
}

/* Schema 4 knew no heads: the newer model's attention took the older one's place.  On a host neither counts. */
static void an_older_database_gets_its_heads(void **state)
{
    (void)state;
    static const double three[] = { 3, 3, 3 };
    struct db *db = db_open(in_scratch("heads4.db"));
    struct series six = attention(6, constant, 1.75e9), eight = attention(8, three, 1.75e9 + 100);
    struct measured_device m;
    int64_t n;

    six.batch = eight.batch = 0;
    record(db, &six, 1);
    record(db, &eight, 1);
    eight.fn = FN_ATTENTION_BACK;
    eight.name = "attention backward";
    eight.flops *= 2;
    record(db, &eight, 1);
    assert_int_equal(db_value(db, "SELECT sum(is_now) FROM series", &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(db_exec(db, BACK_TO_6 "PRAGMA user_version = 4"), 0);
    db_close(db);
    db = db_open(in_scratch("heads4.db"));
    assert_int_equal(db_value(db, "SELECT sum(is_now) FROM series", &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(db_value(db, "SELECT count(*) FROM series WHERE name LIKE 'attention%, of a pattern'", &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(fit_read(db, &two_ranks, &m), 0);

    /* The same on a GPU. */
    assert_int_equal(db_exec(db, "UPDATE machine SET device = 'h200'; UPDATE series SET name = substr(name, 1,"
                                 " instr(name, ',') - 1), is_now = id > 1; " BACK_TO_6 "PRAGMA user_version = 4"), 0);
    db_close(db);
    db = db_open(in_scratch("heads4.db"));
    assert_int_equal(db_value(db, "SELECT sum(is_now) FROM series", &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(db_value(db, "SELECT sum(batch * 100 + (fn = 'attention')) FROM series", &n), 0);
    assert_int_equal(n, 600 + 1 + 800 + 1 + 800);
    db_close(db);
}

static void of_several_numbers_of_ranks_the_nearest_counts(void **state)
{
    (void)state;
    static const double three[] = { 3, 3, 3 };
    struct db *db = db_open(in_scratch("ranks.db"));
    struct series two = kernel("q", FN_LINEAR, 10, constant, 5), eight = kernel("q", FN_LINEAR, 10, three, 3);
    struct measured_device m;

    eight.ranks = 8;
    record(db, (struct series[]){ two, eight }, 2);
    for (int64_t ranks = 1; ranks <= 16; ranks *= 2) {
        assert_int_equal(fit_read(db, &(struct fit_want){ .precision = DT_FP32, .ranks = ranks }, &m), 1);
        assert_int_equal(m.nkernel, 1);
        if (ranks != 4)                             /* as near to both */
            assert_close(m.kernel[0].s, ranks < 4 ? 1 : 3, 0);
        measured_device_free(&m);
    }
    db_close(db);
}

/* Both with two ranks; the newer one with two threads each, on a machine of two cores. */
static void of_several_numbers_of_threads_those_that_are_wanted_count(void **state)
{
    (void)state;
    static const double three[] = { 3, 3, 3 };
    struct db *db = db_open(in_scratch("threads.db"));
    struct series one = kernel("q", FN_LINEAR, 10, constant, 5), two = kernel("q", FN_LINEAR, 10, three, 3);
    struct measured_device m;

    two.threads = 2;
    two.started += 10;
    record(db, (struct series[]){ one, two }, 2);
    for (int64_t threads = 0; threads <= 3; threads++) {
        assert_int_equal(fit_read(db, &(struct fit_want){ .precision = DT_FP32, .ranks = 2, .threads = threads }, &m), 1);
        assert_int_equal(m.threads, threads < 2 ? 1 : 2);       /* 0: a core each; 3: the newest */
        assert_close(m.kernel[0].s, threads < 2 ? 1 : 3, 0);
        assert_int_equal(m.cores, 2);
        measured_device_free(&m);
    }
    db_close(db);
}

/* The file says how the machine was calibrated; who asks for another is warned, and gets it. */
static void other_threads_and_ranks_are_warned_of(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("warned.db"));
    struct series one = kernel("q", FN_LINEAR, 10, constant, 5);
    struct cluster c;
    struct measured_device m;

    record(db, &one, 1);
    db_close(db);
    unsetenv("OMP_NUM_THREADS");
    cluster_of_host(&c, 2);
    assert_int_equal(measured_for(in_scratch("warned.db"), true, DT_FP32, KERNELS_DPX, &c, &m), 1);
    assert_string_equal(m.warning, "");
    assert_non_null(strstr(m.basis, "2 x 1 thread"));
    measured_device_free(&m);
    assert_int_equal(measured_for_threads(in_scratch("warned.db"), true, DT_FP32, KERNELS_DPX, 4, &c, &m), 1);
    assert_non_null(strstr(m.warning, "2 ranks x 1 thread, and this is 2 x 4"));
    assert_non_null(strstr(m.warning, "dpxcal run --ranks 2 --threads 4"));
    measured_device_free(&m);
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(measured_for(in_scratch("warned.db"), true, DT_FP32, KERNELS_DPX, &c, &m), 1);
    assert_non_null(strstr(m.warning, "this is 2 x 3"));
    measured_device_free(&m);
    unsetenv("OMP_NUM_THREADS");
    cluster_of_host(&c, 8);
    assert_int_equal(measured_for(in_scratch("warned.db"), true, DT_FP32, KERNELS_DPX, &c, &m), 1);
    assert_non_null(strstr(m.warning, "this is 8 x 1"));
    measured_device_free(&m);
}

static void overlap_is_the_quotient_of_what_ran_together_and_alone(void **state)
{
    (void)state;
    static const double half[] = { 0.5, 0.5 }, two[] = { 1, 3 };
    struct db *db = db_open(in_scratch("overlap.db"));
    struct series of[4] = { some_series(SERIES_OVERLAP, "gemm", constant, 5), some_series(SERIES_OVERLAP, "gemm", two, 2),
                            some_series(SERIES_OVERLAP, "all_reduce", constant, 5),
                            some_series(SERIES_OVERLAP, "all_reduce", half, 2) };
    struct measured_device m;

    of[0].beside = "alone before all_reduce";
    of[1].beside = "all_reduce";
    of[2].beside = "alone before gemm";
    of[3].beside = "gemm";
    for (int i = 0; i < 4; i++)
        of[i].bytes = 0;
    record(db, of, 4);
    record(db, &(struct series){ .kind = SERIES_KERNEL, .name = "q", .fn = FN_LINEAR, .dtype = DT_FP32, .ranks = 2,
                                 .threads = 1, .seconds = constant, .nsamples = 5 }, 1);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_int_equal(m.noverlap, 1);
    assert_int_equal(m.overlap[0].kind, KC_GEMM);
    assert_int_equal(m.overlap[0].op, COLL_ALL_REDUCE);
    assert_close(m.overlap[0].compute, 2, 1e-12);
    assert_close(m.overlap[0].other, 1, 1e-12);         /* nothing gets faster by company */
    measured_device_free(&m);
    db_close(db);
}

/* Alone 1 s, in a row beside compute 4 s, which loses half: 2 s of it, whatever the collective takes.
 * Rested it takes 2.5 s, so compute then goes at 1 + 2 / 2.5. */
static void a_rested_collective_loses_less_and_compute_as_much(void **state)
{
    (void)state;
    static const double more[] = { 1.5, 1.5 }, four[] = { 4, 4 }, rested[] = { 2, 3 };
    struct db *db = db_open(in_scratch("rested.db"));
    struct series of[6] = { some_series(SERIES_OVERLAP, "gemm", constant, 5), some_series(SERIES_OVERLAP, "gemm", more, 2),
                            some_series(SERIES_OVERLAP, "all_gather", constant, 5),
                            some_series(SERIES_OVERLAP, "all_gather", four, 2),
                            some_series(SERIES_OVERLAP, "all_gather", rested, 2), kernel("q", FN_LINEAR, 7, constant, 5) };
    const char *const beside[] = { "alone before all_gather", "all_gather", "alone before gemm", "gemm", "gemm, rested" };
    struct measured_device m;

    for (int i = 0; i < 5; i++) {
        of[i].beside = beside[i];
        of[i].bytes = 1 << 20;
    }
    record(db, of, 6);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_int_equal(m.noverlap, 1);
    assert_int_equal(m.overlap[0].bytes, 1 << 20);
    assert_close(m.overlap[0].other, 2.5, 1e-12);
    assert_close(m.overlap[0].compute, 1 + 2 / 2.5, 1e-12);
    assert_close(m.overlap[0].alone_s, 1, 1e-12);
    assert_int_equal(m.overlap[0].ranks, 2);
    measured_device_free(&m);
    db_close(db);
}

/* Probes of 2 and 2, 2.1 and 2.3, 6 and 2.2 ms: 2, 2.2 and, where they disagree, the quicker one, 2.2: so is
 * the middle.  What took a second while the probe took 2 would have taken 2.2 / 2; what waits does not change.
 * Between probes the machine changed by 0 and by 0.2 of 4.4; once it was not the machine, which does not count.
 * A collective within a node is brought to that pace, one between nodes is not. */
static void series_are_brought_to_one_pace(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("pace.db"));
    struct series of[6] = { kernel("q", FN_LINEAR, 7, constant, 5), kernel("q", FN_LINEAR, 8, constant, 5),
                            kernel("q", FN_LINEAR, 9, constant, 5), some_series(SERIES_OWN, "wake", constant, 5),
                            some_series(SERIES_COLL, "all_gather", constant, 5),
                            some_series(SERIES_COLL, "all_gather", constant, 5) };
    struct measured_device m;

    of[1].probe_before_s = 2.1e-3;
    of[1].probe_after_s = 2.3e-3;
    of[2].probe_before_s = 6e-3;
    of[2].probe_after_s = 2.2e-3;
    of[3].probe_before_s = of[3].probe_after_s = NAN;
    of[4].algorithm = of[5].algorithm = "ring";
    of[4].per_node = 1;
    of[5].probe_before_s = of[5].probe_after_s = 2.4e-3;
    record(db, of, 6);
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    assert_close(m.probe_s, 2.2e-3, 1e-12);
    assert_close(m.unsteady, 0.2 / 4.4, 1e-12);
    assert_close(m.kernel[0].s, 2.2 / 2, 1e-12);
    assert_close(m.kernel[1].s, 1, 1e-12);
    assert_close(m.kernel[2].s, 1, 1e-12);
    assert_close(m.own.wake.s, 1, 0);
    assert_int_equal(m.ncoll, 2);
    for (int i = 0; i < 2; i++)
        assert_close(m.coll[i].s, m.coll[i].per_node == 1 ? 1 : 2.2 / 2.4, 1e-12);
    assert_close(measured_pace(&m), 1, 0);
    m.drift = 1;
    measured_now(&m, 4.4e-3);
    assert_close(measured_pace(&m), 2, 1e-12);
    assert_close(m.drift, m.unsteady, 0);
    assert_non_null(strstr(m.basis, "4.40 ms now, 2.20 ms then"));
    measured_device_free(&m);
    db_close(db);
}

/* A kernel without one could not be recorded. */
static void every_kernel_has_a_word(void **state)
{
    (void)state;
    for (int fn = 0; fn < NKERNEL_FN; fn++) {
        assert_non_null(fn_words[fn]);
        assert_int_equal(word_find(fn_words, fn_words[fn]), fn);
    }
    for (int kind = 0; kind < NKERNEL_CLASS; kind++)
        assert_non_null(class_words[kind]);
    for (int pass = 0; pass < NMEASURED_PASS; pass++)
        assert_non_null(pass_words[pass]);
}

static void runs_are_never_read(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("runs.db"));
    struct run_start start = some_run();
    struct measured_device m;

    assert_int_equal(record_run(db, &start, 3), 1);
    assert_int_equal(fit_read(db, &two_ranks, &m), 0);
    db_close(db);
}

static void an_interrupted_calibration_can_be_continued(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("resume.db"));
    struct calibration c = some_calibration(), later = c, other = c;
    struct series k = kernel("q", FN_LINEAR, 10, constant, 5), none = kernel("q", FN_LINEAR, 11, constant, 5);
    int64_t id = calibration_begin(db, &c);

    assert_int_equal(series_put(db, id, &k, 1), 0);
    later.started += 60;
    other.started += 60;
    other.options = "{\"quick\": true}";
    assert_int_equal(calibration_open_since(db, &later, 3600), id);
    assert_int_equal(calibration_open_since(db, &later, 30), 0);
    assert_int_equal(calibration_open_since(db, &other, 3600), 0);
    assert_int_equal(series_known(db, id, &k), 1);
    assert_int_equal(series_known(db, id, &none), 0);
    assert_int_equal(calibration_end(db, id, 1.75e9 + 70), 0);
    assert_int_equal(calibration_open_since(db, &later, 3600), 0);
    db_close(db);
}

/* 2,500 series of 400 samples each.  Made by SQL, which is faster. */
static void a_million_samples_cost_the_reader_little(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("million.db"));
    struct series k = kernel("q", FN_LINEAR, 10, constant, 5);
    struct measured_device m;
    struct timespec from, to;
    int64_t n, id = record(db, &k, 1);
    double s;

    assert_int_equal(id, 1);
    assert_int_equal(db_exec(db, "PRAGMA synchronous=OFF; BEGIN;"
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 2499) INSERT INTO series"
        " (calibration, machine, kind, name, fn, class, dtype, algorithm, ranks, per_node, threads, batch, m, n, k,"
        " seq, dim, bytes, flops, dropout, beside, started, samples, median_s, mean_s, min_s, p05_s, p95_s,"
        " confidence, is_now) SELECT 1, 1, 'kernel', 'q', 'linear', 'gemm', 'fp32', '', 2, 2, 1, 1, 1, 1, i, 0, 0, i,"
        " 1.0, 0, '', 1.75e9, 400, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1, 1 FROM c;"
        "WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < 399)"
        " INSERT INTO sample SELECT id, 2, i, 1.0 FROM series, c ORDER BY id, i; COMMIT"), 0);
    assert_int_equal(db_value(db, "SELECT count(*) FROM sample", &n), 0);
    assert_true(n >= 1000000);
    db_close(db);

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);     /* others may use this machine */
    db = db_open_reader(in_scratch("million.db"));
    assert_int_equal(fit_read(db, &two_ranks, &m), 1);
    db_close(db);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    assert_int_equal(m.nkernel, 2500);
    measured_device_free(&m);
    s = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    print_message("%lld samples: %.1f ms\n", (long long)n, 1e3 * s);
#if !defined __SANITIZE_ADDRESS__
    assert_true(s < 0.050);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_summary_is_that_of_its_samples),
        cmocka_unit_test(nothing_measured_is_no_error),
        cmocka_unit_test(the_clock_gets_medians_and_spreads),
        cmocka_unit_test(what_shares_cores_counts_by_its_mean),
        cmocka_unit_test(a_busy_machine_widens_the_interval_and_says_so),
        cmocka_unit_test(a_newer_series_takes_the_place_of_an_older),
        cmocka_unit_test(the_same_kernel_in_two_places_is_one_point),
        cmocka_unit_test(models_of_as_many_bytes_have_an_attention_each),
        cmocka_unit_test(an_older_database_gets_its_heads),
        cmocka_unit_test(of_several_numbers_of_ranks_the_nearest_counts),
        cmocka_unit_test(of_several_numbers_of_threads_those_that_are_wanted_count),
        cmocka_unit_test(other_threads_and_ranks_are_warned_of),
        cmocka_unit_test(overlap_is_the_quotient_of_what_ran_together_and_alone),
        cmocka_unit_test(a_rested_collective_loses_less_and_compute_as_much),
        cmocka_unit_test(series_are_brought_to_one_pace),
        cmocka_unit_test(every_kernel_has_a_word),
        cmocka_unit_test(runs_are_never_read),
        cmocka_unit_test(an_interrupted_calibration_can_be_continued),
        cmocka_unit_test(a_million_samples_cost_the_reader_little),
    };
    return cmocka_run_group_tests_name("calib/fit", tests, scratch_make, scratch_remove);
}
