/* test_belongs.c -- whose calibration a cluster gets: every sort of cluster beside every set of calibrations. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include <unistd.h>

#include "base/notes.h"
#include "calib/store/belongs.h"
#include "calib/store/measured_for.h"
#include "calib/store/series.h"

/* A calibration of one all-reduce of 1 MiB on 16 ranks, which takes `s`. */
static void put(struct db *db, const char *name, const char *device, const char *cpu, const char *source, double s)
{
    struct calibration c = { .started = 1.8e9 + s, .host = name, .device = device, .cpu = cpu, .source = source, .options = "{}",
                             .threads = 1, .ranks = 16 };
    struct series one = { .kind = SERIES_COLL, .name = "all_reduce", .dtype = DT_FP32, .algorithm = "nccl", .ranks = 16, .per_node = 8,
                          .bytes = 1 << 20, .started = c.started, .probe_before_s = NAN, .probe_after_s = NAN, .seconds = &s,
                          .nsamples = 1 };
    int64_t id = calibration_begin(db, &c);

    assert_true(id > 0);
    assert_int_equal(series_put(db, id, &one, 1), 0);
    assert_int_equal(calibration_end(db, id, c.started + 1), 0);
}

static char here[256], cpu[64], basis[256];

static void know_this_host(void)
{
    struct cluster c;

    gethostname(here, sizeof here - 1);
    assert_int_equal(cluster_of_host(&c, 1), 0);
    snprintf(cpu, sizeof cpu, "%s", c.gpu.title);
}

/* Seconds of that all-reduce for a cluster; 0: nothing was measured for it, -1: refused. */
static double seconds_for(const char *db, const char *spec)
{
    struct measured_device d;
    struct cluster c;
    double s;

    assert_int_equal(cluster_load(spec, &c), 0);
    fail_capture(said, sizeof said);
    said[0] = '\0';
    int found = measured_for(in_scratch(db), true, DT_FP32, KERNELS_DPX, &c, &d);
    fail_capture(NULL, 0);
    if (found <= 0)
        return found;
    assert_int_equal(d.ncoll, 1);
    s = d.coll[0].s;
    snprintf(basis, sizeof basis, "%s", d.basis);
    measured_device_free(&d);
    return s;
}

/* A cluster file with these keys beside its GPUs. */
static const char *file(const char *name, const char *keys)
{
    const char *path = in_scratch(name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fprintf(f, "{ \"nodes\": 2, \"gpus_per_node\": 8, \"gpu\": \"h200\"%s }", keys);
    fclose(f);
    return path;
}

static struct db *database(const char *name)
{
    struct db *db = db_open(in_scratch(name));

    assert_non_null(db);
    return db;
}

/* The log of one cluster says nothing of another's plans, however new it is. */
static void a_calibration_moves_the_plans_that_name_it_alone(void **state)
{
    struct db *db = database("one.db");

    (void)state;
    put(db, "atlas", "h200", "", "nccl-tests", 1);
    db_close(db);
    assert_close(seconds_for("one.db", "2x8xh200"), 0, 0);
    assert_close(seconds_for("one.db", "dgx-h200"), 0, 0);
    assert_close(seconds_for("one.db", file("borg.json", ", \"name\": \"borg\"")), 0, 0);
    assert_close(seconds_for("one.db", "2x8xh200@atlas"), 1, 0);
    assert_close(seconds_for("one.db", "4x8xh200@atlas"), 1, 0);
    assert_close(seconds_for("one.db", file("atlas.json", ", \"name\": \"atlas\"")), 1, 0);
    assert_close(seconds_for("one.db", file("x.json", ", \"calibration\": \"atlas\"")), 1, 0);
    assert_close(seconds_for("one.db", file("y.json", ", \"name\": \"atlas\", \"calibration\": \"none\"")), 0, 0);
    assert_close(seconds_for("one.db", "2x8xh200@none"), 0, 0);
    assert_close(seconds_for("one.db", "2x8xh100"), 0, 0);
}

static void a_name_that_is_not_there_is_refused_with_those_that_are(void **state)
{
    (void)state;
    assert_close(seconds_for("one.db", "2x8xh200@atlsa"), -1, 0);
    assert_non_null(strstr(said, "calibration \"atlsa\": none of this name for h200 in"));
    assert_non_null(strstr(said, "; there are atlas"));
    assert_close(seconds_for("one.db", "2x8xh100@atlas"), -1, 0);
}

/* Without a database there is nothing to name: also not in the usual one, which need not exist. */
static void a_name_needs_a_database(void **state)
{
    struct measured_device d;
    struct cluster c;

    (void)state;
    setenv("XDG_DATA_HOME", in_scratch("nowhere"), 1);
    assert_int_equal(cluster_load("8xh200@atlas", &c), 0);
    fail_capture(said, sizeof said);
    assert_int_equal(measured_for(NULL, false, DT_FP32, KERNELS_DPX, &c, &d), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "calibration \"atlas\": none of this name"));
    assert_int_equal(cluster_load("8xh200@none", &c), 0);
    assert_int_equal(measured_for(NULL, false, DT_FP32, KERNELS_DPX, &c, &d), 0);
}

static void two_that_could_be_meant_are_both_named(void **state)
{
    struct db *db = database("two.db");

    (void)state;
    put(db, "atlas", "h200", "", "nccl-tests", 1);
    put(db, "borg", "h200", "", "nccl-tests", 2);
    db_close(db);
    assert_close(seconds_for("two.db", "2x8xh200"), -1, 0);
    assert_non_null(strstr(said, "calibrations of h200: atlas and borg could be meant"));
    assert_close(seconds_for("two.db", "2x8xh200@atlas"), 1, 0);
    assert_close(seconds_for("two.db", "2x8xh200@borg"), 2, 0);
    assert_close(seconds_for("two.db", "2x8xh200@none"), 0, 0);
    assert_close(seconds_for("two.db", file("third.json", ", \"name\": \"third\"")), 0, 0);
    assert_close(seconds_for("two.db", file("borg.json", ", \"name\": \"borg\"")), 2, 0);
}

/* What was imported without a name is for plans without one. */
static void without_names_both_belong_together(void **state)
{
    struct db *db = database("bare.db");

    (void)state;
    put(db, BELONGS_IMPORTED, "h200", "", "nccl-tests", 1);
    put(db, "borg", "h200", "", "nccl-tests", 2);
    assert_close(seconds_for("bare.db", "2x8xh200"), 1, 0);
    assert_close(seconds_for("bare.db", file("third.json", ", \"name\": \"third\"")), 0, 0);
    put(db, here, "h200", "any", "dpxcal", 3);
    db_close(db);
    assert_close(seconds_for("bare.db", "2x8xh200"), -1, 0);
    assert_non_null(strstr(said, here));
    assert_non_null(strstr(said, "imported could be meant"));
}

/* What dpxcal has measured here is for plans made here that name no other; elsewhere it is another machine's. */
static void a_host_s_own_measurement_is_that_host_s(void **state)
{
    struct db *db = database("own.db");

    (void)state;
    put(db, "elsewhere", "h200", "any", "dpxcal", 1);
    assert_close(seconds_for("own.db", "2x8xh200"), 0, 0);
    put(db, here, "h200", "any", "dpxcal", 2);
    assert_close(seconds_for("own.db", "2x8xh200"), 2, 0);
    assert_close(seconds_for("own.db", "2x8xh200@elsewhere"), 1, 0);
    assert_close(seconds_for("own.db", file("third.json", ", \"name\": \"third\"")), 0, 0);
    put(db, "elsewhere", "cpu", cpu, "dpxcal", 3);
    assert_close(seconds_for("own.db", "localhost:2"), 0, 0);
    put(db, "another", "cpu", cpu, "dpxcal", 4);
    assert_close(seconds_for("own.db", "localhost:2"), 0, 0);       /* this host is what it says */
    assert_close(seconds_for("own.db", "localhost:2@another"), 4, 0);
    put(db, here, "cpu", "Another CPU", "dpxcal", 5);
    assert_close(seconds_for("own.db", "localhost:2"), 0, 0);
    put(db, here, "cpu", cpu, "dpxcal", 6);
    db_close(db);
    assert_close(seconds_for("own.db", "localhost:2"), 6, 0);
}

/* People are told who measured, not what measures usually. */
static void the_words_name_each_source(void **state)
{
    static const char *const words[] = { "series of dpxcal on", "series of nccl-tests on", "series of traces on" };
    struct db *db = database("sources.db");

    (void)state;
    for (int i = 0; i < 3; i++)
        put(db, (const char *[]){ "a", "b", "c" }[i], "h200", "any", calibration_sources[i], 1 + i);
    for (int i = 0; i < 3; i++) {
        char spec[32];
        snprintf(spec, sizeof spec, "2x8xh200@%c", 'a' + i);
        assert_close(seconds_for("sources.db", spec), 1 + i, 0);
        assert_non_null(strstr(basis, words[i]));
    }
    db_close(db);
}

/* A description that is written out and read back names the same one. */
static void the_name_stays_with_the_cluster(void **state)
{
    struct cluster c, back;
    json_t *j;

    (void)state;
    assert_int_equal(cluster_load("4x8xh200@atlas", &c), 0);
    assert_string_equal(c.name, "4x8xh200");
    assert_string_equal(c.calibration, "atlas");
    j = cluster_to_json(&c);
    assert_int_equal(cluster_from_json(j, "c", &back), 0);
    assert_string_equal(back.calibration, "atlas");
    json_decref(j);
    fail_capture(said, sizeof said);
    assert_int_equal(cluster_load("4x8xh200@", &c), -1);
    assert_int_equal(belongs_name_ok(""), -1);
    assert_int_equal(belongs_name_ok("none"), -1);
    assert_int_equal(belongs_name_ok("a@b"), -1);
    assert_int_equal(belongs_name_ok("dgx-h200"), 0);
    fail_capture(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_calibration_moves_the_plans_that_name_it_alone),
        cmocka_unit_test(a_name_that_is_not_there_is_refused_with_those_that_are),
        cmocka_unit_test(a_name_needs_a_database),
        cmocka_unit_test(two_that_could_be_meant_are_both_named),
        cmocka_unit_test(without_names_both_belong_together),
        cmocka_unit_test(a_host_s_own_measurement_is_that_host_s),
        cmocka_unit_test(the_words_name_each_source),
        cmocka_unit_test(the_name_stays_with_the_cluster),
    };

    know_this_host();
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
