/* test_fits.c -- laws fitted to sweeps, their residuals and ranges, and that a calibration's end writes them. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include <time.h>

#include "calib/store/fits.h"
#include "calib/store/query.h"
#include "calib/store/schema.h"
#include "calib/store/series.h"

/* ---- lines ---- */

/* 10 us and a nanosecond for each 10 bytes: 10 GB/s. */
static double law(double bytes) { return 10e-6 + bytes / 10e9; }

static void a_law_is_found_again(void **state)
{
    (void)state;
    double x[11], s[11];
    struct table_fit_line l;

    for (int i = 0; i < 11; i++)
        s[i] = law(x[i] = 1024 << i);
    fits_line(x, s, 11, &l);
    assert_close(l.fixed_s, 10e-6, 1e-9);
    assert_close(l.per_s, 1e-10, 1e-9);
    assert_int_equal(l.points, 11);
    assert_close(l.from, 1024, 0);
    assert_close(l.to, 1 << 20, 0);
    assert_true(l.residual < 1e-9 && l.worst < 1e-9);
}

/* One of four points takes half as long again; the law goes by the others as well. */
static void residuals_are_shares_of_the_times(void **state)
{
    (void)state;
    static const double x[] = { 100, 100, 100, 100 }, s[] = { 2, 2, 2, 3 };
    struct table_fit_line l;

    fits_line(x, s, 4, &l);
    /* In proportion: b = sum(x/s) / sum(x^2/s^2), so b x = (3/2 + 1/3) / (3/4 + 1/9) = 66/31. */
    assert_close(l.fixed_s, 0, 0);
    assert_close(100 * l.per_s, 66.0 / 31, 1e-12);
    assert_close(l.worst, 1 - 22.0 / 31, 1e-12);
    assert_close(l.residual, sqrt((3 * (2.0 / 31) * (2.0 / 31) + (9.0 / 31) * (9.0 / 31)) / 4), 1e-12);
    assert_true(isnan(l.left_out));
}

static void neither_part_of_a_law_is_negative(void **state)
{
    (void)state;
    static const double x[] = { 1, 2, 4, 8 }, square[] = { 1, 4, 16, 64 }, falls[] = { 4, 3, 2, 1 };
    static const double none[] = { 0, 0, 0, 0 };
    struct table_fit_line l;

    fits_line(x, square, 4, &l);
    assert_close(l.fixed_s, 0, 0);
    assert_true(l.per_s > 0);
    fits_line(x, falls, 4, &l);
    assert_close(l.per_s, 0, 0);
    /* a = sum(1/s) / sum(1/s^2) = (1/4 + 1/3 + 1/2 + 1) / (1/16 + 1/9 + 1/4 + 1) */
    assert_close(l.fixed_s, (25.0 / 12) / (205.0 / 144), 1e-12);
    fits_line(none, falls, 4, &l);
    assert_true(l.fixed_s > 0);
    assert_close(l.per_s, 0, 0);
    fits_line(x + 1, square + 1, 1, &l);
    assert_close(l.fixed_s + 2 * l.per_s, 4, 1e-12);
    assert_close(l.worst, 0, 1e-12);
}

/* A power of the size is a straight line in logarithms: nothing is lost by leaving a point out. */
static void a_point_that_is_left_out_is_asked_of_its_neighbours(void **state)
{
    (void)state;
    double x[8], s[8];
    struct table_fit_line l;

    for (int i = 0; i < 8; i++)
        s[i] = sqrt(x[i] = 1 << i);
    fits_line(x, s, 8, &l);
    assert_true(l.left_out < 1e-12);
    assert_true(l.worst > 0.1);
    /* The middle one of three takes twice what its neighbours say: half of it is missing. */
    s[1] = 2 * sqrt(2);
    fits_line(x, s, 3, &l);
    assert_close(l.left_out, 0.5, 1e-12);
}

/* ---- the table ---- */

static struct calibration some_calibration(const char *host)
{
    return (struct calibration){ .started = 1.75e9, .host = host, .device = "cpu", .cpu = "Some CPU", .cores = 2,
                                 .memory = 1 << 30, .source = "dpxcal", .ranks = 2, .threads = 1, .options = "{}" };
}

static struct series sized(enum series_kind kind, const char *name, int64_t bytes, double *at)
{
    struct series s = { .kind = kind, .name = name, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .threads = 1,
                        .bytes = bytes, .started = 1.75e9, .probe_before_s = NAN, .probe_after_s = NAN, .seconds = at,
                        .nsamples = 1 };

    *at = law((double)bytes);
    if (kind == SERIES_COLL)
        s.algorithm = "ring";
    return s;
}

/* A calibration of rings from 1 KiB to 1 MiB, of a product, and of an overlap by two. */
static int64_t calibrate(struct db *db, const char *host)
{
    static double at[16], one = 1, two = 2;
    struct calibration c = some_calibration(host);
    struct series s[16];
    int64_t id = calibration_begin(db, &c);
    int n = 0;

    for (; n < 11; n++)
        s[n] = sized(SERIES_COLL, "all_reduce", 1024 << n, &at[n]);
    s[n] = sized(SERIES_KERNEL, "mlp up", 300, &at[n]);
    s[n].fn = FN_LINEAR;
    s[n].class = KC_GEMM;
    s[n].m = s[n].n = s[n].k = 10;
    s[n].flops = 2000;
    s[n++].seconds = &one;
    s[n] = sized(SERIES_OVERLAP, "gemm", 0, &at[n]);
    s[n].beside = "alone before all_reduce";
    s[n++].seconds = &one;
    s[n] = sized(SERIES_OVERLAP, "gemm", 0, &at[n]);
    s[n].beside = "all_reduce";
    s[n++].seconds = &two;
    s[n] = sized(SERIES_OWN, "wake", 0, &at[n]);
    n++;
    assert_int_equal(series_put(db, id, s, n), 0);
    return id;
}

static void value_is(struct db *db, const char *sql, int64_t want)
{
    int64_t v;

    assert_int_equal(db_value(db, sql, &v), 0);
    if (v != want)
        fail_msg("%s: %lld instead of %lld", sql, (long long)v, (long long)want);
}

static void the_end_of_a_calibration_writes_fits(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("fits.db"));
    int64_t id = calibrate(db, "node7"), other;

    value_is(db, "SELECT count(*) FROM fit", 0);
    assert_int_equal(calibration_end(db, id, 1.75e9 + 60), 0);
    value_is(db, "SELECT count(*) FROM fits", 4);
    value_is(db, "SELECT round(1000 * fixed_us) FROM fits WHERE kind = 'collective'", 10000);
    value_is(db, "SELECT round(1000 * gbs) FROM fits WHERE kind = 'collective'", 10000);
    value_is(db, "SELECT residual < 1e-9 AND worst < 1e-9 AND points = 11 AND samples = 11 AND from_x = 1024"
                 " AND to_x = 1048576 AND left_out < 0.1 FROM fits WHERE kind = 'collective'", 1);
    value_is(db, "SELECT round(1e12 * gflops) FROM fits WHERE name = 'linear'", 2000 * 1000);
    value_is(db, "SELECT factor * 1000 FROM fits WHERE kind = 'overlap'", 2000);
    value_is(db, "SELECT round(1000 * fixed_us) FROM fits WHERE name = 'wake'", 10000);

    /* Twice is once; another machine has its own; and they go with their calibration. */
    assert_int_equal(calibration_end(db, id, 1.75e9 + 61), 0);
    value_is(db, "SELECT count(*) FROM fit", 4);
    other = calibrate(db, "node8");
    assert_int_equal(calibration_end(db, other, 1.75e9 + 62), 0);
    value_is(db, "SELECT count(*) FROM fits", 8);
    assert_int_equal(db_exec(db, "DELETE FROM calibration WHERE id = 1"), 0);
    value_is(db, "SELECT count(*) FROM fits", 4);
    db_close(db);
}

/* Only what a calibration has touched is fitted anew, with all that counts: two sizes from before. */
static void a_later_calibration_adds_to_what_counts(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("later.db"));
    int64_t id = calibrate(db, "node7"), later;
    struct calibration c = some_calibration("node7");
    double at;
    struct series s = sized(SERIES_COLL, "all_reduce", 2 << 20, &at);

    assert_int_equal(calibration_end(db, id, 1.75e9 + 60), 0);
    later = calibration_begin(db, &c);
    s.started += 100;
    assert_int_equal(series_put(db, later, &s, 1), 0);
    assert_int_equal(calibration_end(db, later, 1.75e9 + 160), 0);
    value_is(db, "SELECT count(*) FROM fit WHERE calibration = 2", 1);
    value_is(db, "SELECT points = 12 AND to_x = 2097152 FROM fits WHERE kind = 'collective'", 1);
    value_is(db, "SELECT count(*) FROM fits", 4);
    db_close(db);
}

/* What a schema without fits has measured is fitted when it is brought up to date, which a reader of
 * a file that may be written does too. */
static void an_older_database_gets_its_fits(void **state)
{
    (void)state;
    static const char back[] = BACK_TO_6 "DROP VIEW fits; DROP TABLE fit; PRAGMA user_version = 3";
    struct db *db = db_open(in_scratch("older.db"));
    int64_t id = calibrate(db, "node7");

    calibrate(db, "node8");                             /* not ended: nothing of it */
    assert_int_equal(calibration_end(db, id, 1.75e9 + 60), 0);
    for (int reader = 0; reader < 2; reader++) {
        assert_int_equal(db_exec(db, back), 0);
        db_close(db);
        db = reader ? db_open_reader(in_scratch("older.db")) : db_open(in_scratch("older.db"));
        assert_non_null(db);
        value_is(db, "PRAGMA user_version", schema_now.version);
        value_is(db, "SELECT count(*) FROM fits", 4);
        value_is(db, "SELECT count(*) FROM fits WHERE host = 'node7'", 4);
    }
    db_close(db);
}

static void what_takes_no_time_follows_no_law(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("zero.db"));
    struct calibration c = some_calibration("node7");
    double none[] = { 0, 0, 0 };
    struct series s[2] = { sized(SERIES_COLL, "all_reduce", 4, none), sized(SERIES_OWN, "cold", 0, none) };
    int64_t id = calibration_begin(db, &c);

    none[0] = 0;
    s[0].nsamples = s[1].nsamples = 3;
    assert_int_equal(series_put(db, id, s, 2), 0);
    assert_int_equal(calibration_end(db, id, 1.75e9), 0);
    value_is(db, "SELECT count(*) FROM fits WHERE kind = 'own' AND fixed_us = 0 AND residual = 0", 1);
    value_is(db, "SELECT count(*) FROM fits", 1);
    db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_law_is_found_again),
        cmocka_unit_test(residuals_are_shares_of_the_times),
        cmocka_unit_test(neither_part_of_a_law_is_negative),
        cmocka_unit_test(a_point_that_is_left_out_is_asked_of_its_neighbours),
        cmocka_unit_test(the_end_of_a_calibration_writes_fits),
        cmocka_unit_test(a_later_calibration_adds_to_what_counts),
        cmocka_unit_test(an_older_database_gets_its_fits),
        cmocka_unit_test(what_takes_no_time_follows_no_law),
    };
    return cmocka_run_group_tests_name("calib/fits", tests, scratch_make, scratch_remove);
}
