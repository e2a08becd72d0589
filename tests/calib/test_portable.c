/* test_portable.c -- calibrations from one database to another as JSON; what is damaged is refused whole. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include "calib/store/portable.h"
#include "calib/store/query.h"
#include "calib/store/series.h"

static bool refusal;

static const double six[] = { 1, 2, 3, 4, 5, 6 };

static struct calibration some_calibration(double started)
{
    return (struct calibration){ .started = started, .host = "node7", .device = "cpu", .cpu = "Some CPU", .cores = 2,
                                 .memory = 1 << 30, .source = "dpxcal", .ranks = 2, .threads = 1,
                                 .options = "{\"quick\":true}", .dpx_version = "0.1.0" };
}

/* A database with one ended calibration of a kernel (two ranks) and a collective (the slowest). */
static struct db *filled(const char *name)
{
    struct db *db = db_open(in_scratch(name));
    struct calibration c = some_calibration(1.75e9);
    struct series s[] = {
        { .kind = SERIES_KERNEL, .name = "mlp up", .fn = FN_LINEAR, .class = KC_GEMM, .dtype = DT_BF16, .ranks = 2,
          .per_node = 2, .threads = 1, .batch = 1, .m = 3, .n = 4, .k = 5, .bytes = 94, .flops = 120, .dropout = true,
          .started = 1.75e9 + 1, .probe_before_s = 0.1, .probe_after_s = NAN, .seconds = six, .nsamples = 6,
          .of_ranks = 2 },
        { .kind = SERIES_COLL, .name = "all_reduce", .dtype = DT_FP32, .algorithm = "ring", .ranks = 2, .per_node = 2,
          .threads = 1, .bytes = 4096, .started = 1.75e9 + 2, .probe_before_s = NAN, .probe_after_s = NAN,
          .seconds = six, .nsamples = 3 },
    };
    int64_t id = calibration_begin(db, &c);

    assert_true(id > 0);
    assert_int_equal(series_put(db, id, s, 2), 0);
    assert_int_equal(calibration_end(db, id, 1.75e9 + 3), 0);
    return db;
}

/* All that the tables say, as one text. */
static char *all_of(struct db *db)
{
    struct query q;
    struct texts *t = NULL;
    char *all;

    query_open(&q, db, "SELECT group_concat(r, '; ') FROM (SELECT printf('%s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s', m.host, m.cpu, m.cores, c.started,"
                       " c.ended, c.options, s.kind, s.name, s.fn, s.class, s.dtype, s.algorithm, s.ranks, s.m, s.n, s.k,"
                       " s.bytes, s.flops, s.dropout, s.probe_before_s, s.median_s, s.p95_s, s.is_now, a.rank, a.i,"
                       " a.seconds) AS r FROM calibration c JOIN machine m ON m.id = c.machine"
                       " JOIN series s ON s.calibration = c.id JOIN sample a ON a.series = s.id"
                       " ORDER BY s.started, a.rank, a.i)");
    assert_true(query_row(&q));
    all = strdup(query_get_text(&q, &t));
    assert_int_equal(query_close(&q), 0);
    query_texts_free(t);
    return all;
}

static void says(const char *words)
{
    if (!strstr(said, words) || strchr(said, '\n'))
        fail_msg("'%s' does not say '%s' in one line", said, words);
}

static void what_is_exported_is_imported(void **state)
{
    (void)state;
    struct db *from = filled("from.db"), *to = db_open(in_scratch("to.db"));
    char *a, *b;
    int known;

    assert_int_equal(portable_export(from, 0, in_scratch("c.json"), &refusal), 1);
    assert_int_equal(portable_import(to, in_scratch("c.json"), &known, &refusal), 1);
    assert_int_equal(known, 0);
    a = all_of(from);
    b = all_of(to);
    assert_string_equal(a, b);
    free(a);
    free(b);

    /* Again: it is there. */
    assert_int_equal(portable_import(to, in_scratch("c.json"), &known, &refusal), 0);
    assert_int_equal(known, 1);
    db_close(from);
    db_close(to);
}

static void one_calibration_can_be_chosen(void **state)
{
    (void)state;
    struct db *db = filled("two.db");
    struct calibration c = some_calibration(1.76e9);
    int known;

    assert_int_equal(calibration_begin(db, &c), 2);
    assert_int_equal(portable_export(db, 0, in_scratch("both.json"), &refusal), 2);
    assert_int_equal(portable_export(db, 2, in_scratch("second.json"), &refusal), 1);
    assert_int_equal(portable_export(db, 3, in_scratch("third.json"), &refusal), -1);
    says("has no calibration 3");
    assert_true(refusal);
    assert_int_equal(portable_export(db, 0, in_scratch("no/such/folder.json"), &refusal), -1);
    says("No such file or directory");
    assert_true(refusal);
    assert_int_equal(access(in_scratch("third.json"), F_OK), -1);
    db_close(db);
    db = db_open(in_scratch("other.db"));
    assert_int_equal(portable_import(db, in_scratch("second.json"), &known, &refusal), 1);
    assert_int_equal(portable_import(db, in_scratch("both.json"), &known, &refusal), 1);
    assert_int_equal(known, 1);
    db_close(db);
}

/* A killed calibration, taken in, gives way to the whole one; not the other way round. */
static void a_part_gives_way_to_the_whole(void **state)
{
    (void)state;
    struct db *part = db_open(in_scratch("part.db")), *whole = filled("whole.db"), *to = db_open(in_scratch("grown.db"));
    struct calibration c = some_calibration(1.75e9);        /* as filled() has it, with no end and no series */
    int64_t n;
    int known;

    assert_true(calibration_begin(part, &c) > 0);
    assert_int_equal(portable_export(part, 0, in_scratch("part.json"), &refusal), 1);
    assert_int_equal(portable_export(whole, 0, in_scratch("whole.json"), &refusal), 1);
    assert_int_equal(portable_import(to, in_scratch("part.json"), &known, &refusal), 1);
    assert_int_equal(portable_import(to, in_scratch("whole.json"), &known, &refusal), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(db_value(to, "SELECT count(*) FROM series", &n), 0);
        assert_int_equal(n, 2);
        assert_int_equal(db_value(to, "SELECT count(*) FROM calibration WHERE ended IS NOT NULL", &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(portable_import(to, in_scratch("part.json"), &known, &refusal), 0);
        assert_int_equal(known, 1);
    }
    db_close(part);
    db_close(whole);
    db_close(to);
}

static void a_database_is_not_written_over(void **state)
{
    (void)state;
    struct db *db = filled("mine.db");
    int64_t n;

    assert_int_equal(portable_export(db, 0, in_scratch("mine.db"), &refusal), -1);
    says("is an SQLite database");
    assert_true(refusal);
    db_close(db);
    db = db_open(in_scratch("mine.db"));
    assert_int_equal(db_value(db, "SELECT count(*) FROM series", &n), 0);
    assert_int_equal(n, 2);
    db_close(db);
}

/* Exports of schema 4 say of attention how much it computes, not of how many heads; a host's was of a pattern. */
static void an_older_export_gets_its_heads(void **state)
{
    (void)state;
    static const char *const devices[] = { "h200", "cpu" };

    for (int host = 0; host < 2; host++) {
        struct db *from = db_open(in_scratch(host ? "cpu_from.db" : "gpu_from.db"));
        struct db *to = db_open(in_scratch(host ? "cpu_to.db" : "gpu_to.db"));
        struct calibration c = some_calibration(1.75e9);
        struct series s = { .kind = SERIES_KERNEL, .name = "attention backward", .fn = FN_ATTENTION_BACK,
                            .class = KC_ATTENTION, .dtype = DT_FP32, .ranks = 2, .per_node = 2, .threads = 1, .seq = 16,
                            .dim = 8, .bytes = 1000, .flops = 8.0 * 12 * 16 * 16 * 8, .started = 1.75e9,
                            .probe_before_s = 0.1, .probe_after_s = 0.1, .seconds = six, .nsamples = 3 };
        c.device = devices[host];
        int64_t id = calibration_begin(from, &c), n;
        int known;

        assert_int_equal(series_put(from, id, &s, 1), 0);
        assert_int_equal(calibration_end(from, id, 1.75e9 + 3), 0);
        assert_int_equal(portable_export(from, 0, in_scratch("heads.json"), &refusal), 1);
        assert_int_equal(portable_import(to, in_scratch("heads.json"), &known, &refusal), 1);
        assert_int_equal(db_value(to, "SELECT sum(batch) FROM series", &n), 0);
        assert_int_equal(n, host ? 0 : 12);
        db_close(from);
        db_close(to);
    }
}

static void refused(struct db *db, const char *document, const char *words)
{
    FILE *f = fopen(in_scratch("bad.json"), "w");
    int known;
    int64_t n;

    assert_non_null(f);
    fputs(document, f);
    fclose(f);
    assert_int_equal(portable_import(db, in_scratch("bad.json"), &known, &refusal), -1);
    says(words);
    assert_true(refusal);
    assert_int_equal(db_value(db, "SELECT count(*) FROM calibration", &n), 0);
    assert_int_equal(n, 0);
}

#define CALIBRATION(source, options) \
    "{\"dpx_calibrations\": 1, \"calibrations\": [{\"started\": 1.0, \"host\": \"a\", \"device\": \"cpu\"," \
    "\"cpu\": \"b\", \"cores\": 1, \"memory_bytes\": 1, \"source\": \"" source "\", \"ranks\": 1, \"threads\": 1," \
    "\"options\": \"" options "\""
#define HEAD CALIBRATION("dpxcal", "{}") ", \"series\": [{\"kind\": \"own\", \"name\": \"wake\", \"dtype\": \"fp32\"," \
             "\"algorithm\": \"\", \"beside\": \"\", \"per_node\": 1, \"batch\": 0, \"m\": 0, \"n\": 0, \"k\": 0," \
             "\"seq\": 0, \"dim\": 0, \"bytes\": 0, \"threads\": 1, \"dropout\": 0, \"flops\": 0, \"started\": 1.0,"

static void what_is_damaged_is_refused_whole(void **state)
{
    (void)state;
    struct db *db = db_open(in_scratch("bad.db"));

    refused(db, "{}", "not calibrations that `dpxcal export` wrote");
    refused(db, "", "malformed JSON");
    refused(db, "{\"dpx_calibrations\": 1, \"cali", "malformed JSON");
    refused(db, "{\"dpx_calibrations\": 1}", "\"calibrations\" is missing");
    refused(db, "{\"results\": []}", "`dpxcal import nccl-tests FILE` takes this");
    refused(db, "{\"dpx_calibrations\": 2, \"calibrations\": []}", "a newer dpx");
    refused(db, "{\"dpx_calibrations\": 1, \"calibrations\": [{\"started\": \"soon\"}]}", "\"started\"");
    refused(db, HEAD "\"ranks\": 1, \"of_ranks\": 2, \"seconds\": [1.0, 2.0, 3.0]}]}]}", "3 samples of 2 ranks");
    refused(db, HEAD "\"ranks\": 1, \"of_ranks\": 1, \"seconds\": []}]}]}", "not a list of times");
    refused(db, HEAD "\"ranks\": -1, \"of_ranks\": 1, \"seconds\": [1.0]}]}]}", "\"ranks\"");
    refused(db, HEAD "\"ranks\": 1, \"of_ranks\": 1, \"seconds\": [1.0]}, {}]}]}", "series 2");
    refused(db, HEAD "\"ranks\": 1, \"of_ranks\": 4294967296, \"seconds\": [1.0]}]}]}", "\"of_ranks\" is 4294967296");
    refused(db, HEAD "\"ranks\": 1, \"of_ranks\": 1, \"seconds\": [1e308]}]}]}", "not a list of times (0 to 86400 s)");
    refused(db, HEAD "\"ranks\": 1, \"of_ranks\": 1, \"seconds\": [1e-320]}]}]}", "not a list of times");
    refused(db, CALIBRATION("dpxcal", "{}") ", \"series\": [{\"kind\": \"collective\", \"name\": \"all_reduce\","
            "\"dtype\": \"fp32\", \"algorithm\": \"ring\", \"beside\": \"\", \"per_node\": 4, \"batch\": 0, \"m\": 0,"
            "\"n\": 0, \"k\": 0, \"seq\": 0, \"dim\": 0, \"bytes\": 8, \"threads\": 1, \"dropout\": 0, \"flops\": 0,"
            "\"started\": 1.0, \"ranks\": 2, \"of_ranks\": 0, \"seconds\": [1.0]}]}]}", "2 ranks, 4 on a node");
    refused(db, CALIBRATION("elsewhere", "{}") "}]}", "\"source\" is \"elsewhere\"");
    refused(db, CALIBRATION("dpxcal", "what") "}]}", "\"options\"");
    refused(db, CALIBRATION("dpxcal", "{}") "}]}", "\"series\" is missing");
    db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_exported_is_imported),
        cmocka_unit_test(a_part_gives_way_to_the_whole),
        cmocka_unit_test(a_database_is_not_written_over),
        cmocka_unit_test(one_calibration_can_be_chosen),
        cmocka_unit_test(an_older_export_gets_its_heads),
        cmocka_unit_test(what_is_damaged_is_refused_whole),
    };
    return cmocka_run_group_tests_name("calib/portable", tests, scratch_make, scratch_remove);
}
