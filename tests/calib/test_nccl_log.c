/* Logs are made here in the formats of nccl-tests' src/util.cu of several years, with times that a
 * reader can compute: 10 us and a microsecond for each KiB. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include "calib/fit.h"
#include "calib/import.h"
#include "calib/nccl_log.h"
#include "calib/query.h"

enum { FIRST = 1024, LAST = 1 << 20 };

static double microseconds(int64_t bytes) { return 10 + (double)bytes / 1024; }

static void put_ranks(FILE *f, int nodes, int per_node, const char *gpu)
{
    fprintf(f, "# Using devices\n");
    for (int r = 0; r < nodes * per_node; r++)
        fprintf(f, "#  Rank %2d Group  0 Pid %6d on %10s%d device %2d [0000:%02x:00] %s\n", r, 4000 + r, "node",
                r / per_node, r % per_node, 4 + r, gpu);
}

/* `factor`: busbw over algbw. */
static void put_half(FILE *f, int64_t bytes, double factor, const char *wrong)
{
    double us = microseconds(bytes), algbw = (double)bytes / us / 1e3;

    fprintf(f, "  %7.2f  %6.2f  %6.2f  %6s", us, algbw, algbw * factor, wrong);
}

static void put_rows(FILE *f, const char *type, const char *redop, const char *root, double factor)
{
    fprintf(f, "#\n#                                                              out-of-place              in-place\n"
               "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw"
               "   busbw  #wrong\n"
               "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)"
               "  (GB/s)\n");
    for (int64_t b = FIRST; b <= LAST; b *= 2) {
        fprintf(f, "%12lld  %12lld  %8s  %6s  %6s", (long long)b, (long long)b / 4, type, redop, root);
        put_half(f, b, factor, "0");
        put_half(f, 2 * b, factor, "0");                /* so that the two can be told apart */
        fprintf(f, "\n");
    }
    fprintf(f, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.3\n#\n");
}

static FILE *log_file(const char *name)
{
    FILE *f = fopen(in_scratch(name), "w");

    assert_non_null(f);
    return f;
}

static void check_sweep(const struct nccl_sweep *s, int op, int64_t ranks, int64_t nodes)
{
    assert_int_equal(s->op, op);
    assert_int_equal(s->ranks, ranks);
    assert_int_equal(s->nodes, nodes);
    assert_int_equal(s->npoints, 11);
    for (int i = 0; i < s->npoints; i++) {
        assert_int_equal(s->point[i].bytes, (int64_t)FIRST << i);
        assert_int_equal(s->point[i].nseconds, 2);
        assert_close(s->point[i].seconds[0], 1e-6 * microseconds((int64_t)FIRST << i), 1e-3);
        assert_close(s->point[i].seconds[1], 1e-6 * microseconds((int64_t)FIRST << (i + 1)), 1e-3);
    }
}

static void says(const char *words)
{
    if (!strstr(said, words) || strchr(said, '\n'))
        fail_msg("'%s' does not say '%s' in one line", said, words);
}

static void a_log_of_today_says_what_it_measured(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("today.log");

    fprintf(f, "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n"
               "# Collective test starting: all_gather_perf\n"
               "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1"
               " validation: 1 graph: 0 unalign: 0\n#\n");
    put_ranks(f, 2, 8, "NVIDIA H100 80GB HBM3");
    put_rows(f, "float", "none", "-1", 15.0 / 16);
    fprintf(f, "# Collective test concluded: all_gather_perf\n");
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("today.log"), -1, &log), 0);
    assert_int_equal(log.nsweeps, 1);
    check_sweep(&log.sweep[0], COLL_ALL_GATHER, 16, 2);
    assert_string_equal(log.sweep[0].device, "NVIDIA H100 80GB HBM3");
    assert_string_equal(log.sweep[0].version, "nccl-tests 2.17.6");
    nccl_log_free(&log);
}

/* Before 2.17 the program was not named. */
static void an_older_log_is_told_by_its_figures(void **state)
{
    (void)state;
    static const struct { const char *redop, *root; double factor; int op; } cases[] = {
        { "sum", "-1", 2 * 7.0 / 8, COLL_ALL_REDUCE }, { "sum", "-1", 7.0 / 8, COLL_REDUCE_SCATTER },
        { "none", "0", 1, COLL_BROADCAST }, { "sum", "0", 1, COLL_REDUCE },
    };
    struct nccl_log log;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = log_file("old.log");
        fprintf(f, "# nThread 1 nGpus 8 minBytes 1024 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20\n");
        put_ranks(f, 1, 8, "NVIDIA A100-SXM4-80GB");
        put_rows(f, "half", cases[i].redop, cases[i].root, cases[i].factor);
        fclose(f);
        assert_int_equal(nccl_log_read(in_scratch("old.log"), -1, &log), 0);
        check_sweep(&log.sweep[0], cases[i].op, 8, 1);
        assert_int_equal(log.sweep[0].point[0].dtype, DT_FP16);
        nccl_log_free(&log);
    }
}

static void what_mpirun_and_a_shell_leave_around_it_does_not_matter(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("shell.log"), *tagged = log_file("tagged.log");
    char line[1024];

    fprintf(f, "Wed Mar  5 10:00:00 UTC 2025\n+ mpirun -np 4 ./build/reduce_scatter_perf -b 1K -e 1M -f 2\n"
               "NCCL version 2.19.3+cuda12.2\n"
               "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20\n");
    put_ranks(f, 4, 1, "Tesla V100-SXM2-32GB");
    put_rows(f, "bfloat16", "sum", "-1", 0.75);
    fprintf(f, "real 12.3\n");
    fclose(f);
    f = fopen(in_scratch("shell.log"), "r");
    while (fgets(line, sizeof line, f))
        fprintf(tagged, "[1,0]<stdout>:%s", line);
    fclose(f);
    fclose(tagged);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nccl_log_read(in_scratch(i ? "tagged.log" : "shell.log"), -1, &log), 0);
        check_sweep(&log.sweep[0], COLL_REDUCE_SCATTER, 4, 4);
        nccl_log_free(&log);
    }
}

static void several_runs_in_one_file_are_several_sweeps(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("several.log");

    for (int nodes = 1; nodes <= 4; nodes *= 2) {
        fprintf(f, "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n"
                   "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 1024\n#\n");
        put_ranks(f, nodes, 8, "NVIDIA H200");
        put_rows(f, "float", "sum", "-1", 2 * (8.0 * nodes - 1) / (8.0 * nodes));
    }
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("several.log"), -1, &log), 0);
    assert_int_equal(log.nsweeps, 3);
    for (int i = 0; i < 3; i++)
        check_sweep(&log.sweep[i], COLL_ALL_REDUCE, 8 << i, 1 << i);
    nccl_log_free(&log);
}

/* Two runs on the same ranks, the second of them in two cycles: three times the samples. */
static void what_was_measured_again_has_more_samples(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("again.log");

    for (int run = 0; run < 2; run++) {
        fprintf(f, "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n"
                   "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 1024\n#\n");
        put_ranks(f, 1, 8, "NVIDIA H200");
        for (int cycle = 0; cycle <= run; cycle++)
            put_rows(f, "float", "sum", "-1", 2 * 7.0 / 8);
    }
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("again.log"), -1, &log), 0);
    assert_int_equal(log.nsweeps, 2);
    assert_int_equal(log.sweep[0].npoints, 11);
    assert_int_equal(log.sweep[1].npoints, 0);
    for (int i = 0; i < 11; i++)
        assert_int_equal(log.sweep[0].point[i].nseconds, 6);
    assert_close(log.sweep[0].point[0].seconds[4], 1e-6 * microseconds(FIRST), 1e-3);
    nccl_log_free(&log);
}

static void the_json_of_option_J_is_read_too(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("one.json");

    fprintf(f, "{\"version\":1,\"args\":[\"./build/broadcast_perf\",\"-J\",\"one.json\"],\"env\":[],\"nccl_version\":22807,"
               "\"config\":{\"nthreads\":1,\"devices\":[{\"rank\":0,\"hostname\":\"a\",\"device_info\":\"NVIDIA B200\"},"
               "{\"rank\":1,\"hostname\":\"a\",\"device_info\":\"NVIDIA B200\"}]},\"results\":[");
    for (int64_t b = FIRST; b <= LAST; b *= 2)
        fprintf(f, "%s{\"size\":%lld,\"count\":%lld,\"type\":\"float\",\"redop\":\"none\",\"root\":\"     0\","
                   "\"out_of_place\":{\"time\":%.6f,\"alg_bw\":1,\"bus_bw\":1,\"nwrong\":0},"
                   "\"in_place\":{\"time\":%.6f,\"alg_bw\":1,\"bus_bw\":1,\"nwrong\":null}}", b > FIRST ? "," : "",
                (long long)b, (long long)b / 4, microseconds(b), microseconds(2 * b));
    fprintf(f, "]}\n");
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("one.json"), -1, &log), 0);
    check_sweep(&log.sweep[0], COLL_BROADCAST, 2, 1);
    nccl_log_free(&log);
}

static void every_iteration_is_kept_where_the_log_has_them(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("each.json");

    fprintf(f, "{\"args\":[\"all_reduce_perf\"],\"config\":{\"devices\":[{\"hostname\":\"a\",\"device_info\":\"x\"},"
               "{\"hostname\":\"b\",\"device_info\":\"x\"}]},\"results\":[{\"size\":4096,\"type\":\"float\","
               "\"redop\":\"sum\",\"root\":\"-1\",\"out_of_place\":{\"time\":5,\"nwrong\":0},\"out_of_place_per_iter\":"
               "{\"times_us\":[4,5,6]},\"in_place\":{\"time\":7,\"nwrong\":3}}]}");
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("each.json"), -1, &log), 0);
    assert_int_equal(log.sweep[0].nodes, 2);
    assert_int_equal(log.sweep[0].point[0].nseconds, 3);
    assert_close(log.sweep[0].point[0].seconds[2], 6e-6, 1e-12);
    assert_int_equal(log.nwrong, 1);
    nccl_log_free(&log);
}

static void wrong_results_are_left_out_and_counted(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("wrong.log");

    fprintf(f, "# Collective test starting: all_reduce_perf\n");
    put_ranks(f, 1, 2, "NVIDIA H100 80GB HBM3");
    fprintf(f, "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n");
    fprintf(f, "1024 256 float sum -1");
    put_half(f, 1024, 1, "17");
    put_half(f, 1024, 1, "N/A");
    fprintf(f, "\n");
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("wrong.log"), -1, &log), 0);
    assert_int_equal(log.nwrong, 1);
    assert_int_equal(log.sweep[0].point[0].nseconds, 1);
    nccl_log_free(&log);
}

static void what_is_no_log_is_refused_by_name(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("notes.txt");

    fprintf(f, "all went well\n1 2 float\n");
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("notes.txt"), -1, &log), -1);
    says("no results of nccl-tests");
    assert_int_equal(nccl_log_read(in_scratch("none.log"), -1, &log), -1);
    says("No such file");

    f = log_file("unnamed.log");
    put_ranks(f, 1, 8, "NVIDIA H100 80GB HBM3");
    put_rows(f, "float", "none", "-1", 7.0 / 8);
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("unnamed.log"), -1, &log), -1);
    says("give --op");
    assert_int_equal(nccl_log_read(in_scratch("unnamed.log"), COLL_ALL_GATHER, &log), 0);
    nccl_log_free(&log);

    f = log_file("alltoall.log");
    fprintf(f, "# Collective test starting: alltoall_perf\n");
    put_ranks(f, 1, 8, "NVIDIA H100 80GB HBM3");
    put_rows(f, "float", "none", "-1", 7.0 / 8);
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("alltoall.log"), -1, &log), -1);
    says("no schedule of dpx");
}

static void gpus_are_known_by_what_they_call_themselves(void **state)
{
    (void)state;
    assert_string_equal(nccl_device("NVIDIA H100 80GB HBM3"), "h100");
    assert_string_equal(nccl_device("NVIDIA A100-SXM4-80GB"), "a100-80gb");
    assert_string_equal(nccl_device("NVIDIA H200"), "h200");
    assert_string_equal(nccl_device("NVIDIA B200"), "b200");
    assert_string_equal(nccl_device("Tesla V100-SXM2-32GB"), "v100-32gb");
    assert_null(nccl_device("Abacus 9000"));
}

static void imported_sweeps_are_what_the_clock_reads(void **state)
{
    (void)state;
    struct import_nccl how = { .cluster = "imported", .op = -1 };
    struct db *db = db_open(in_scratch("import.db"));
    char today[512], several[512], bad[512];
    char *paths[] = { today, several }, *with_bad[] = { today, bad };
    struct measured_device m;
    bool refused;
    int64_t n;

    snprintf(today, sizeof today, "%s", in_scratch("today.log"));
    snprintf(several, sizeof several, "%s", in_scratch("several.log"));
    snprintf(bad, sizeof bad, "%s", in_scratch("notes.txt"));
    assert_int_equal(import_nccl(db, &how, with_bad, 2, &refused), -1);
    assert_true(refused);
    assert_int_equal(db_value(db, "SELECT count(*) FROM series", &n), 0);
    assert_int_equal(n, 0);                                     /* all of them or none */
    assert_int_equal(import_nccl(db, &how, paths, 2, &refused), 0);
    assert_false(refused);
    assert_int_equal(import_nccl(db, &how, paths, 2, &refused), 0);     /* again: they are there */
    assert_int_equal(db_value(db, "SELECT count(*) FROM calibration", &n), 0);
    assert_int_equal(n, 2);
    /* A law for each: 10 us and 1.5 us for each KiB, halfway between out of place and in place. */
    assert_int_equal(db_value(db, "SELECT count(*) FROM fits", &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(db_value(db, "SELECT min(round(fixed_us) = 10 AND round(1000 * gbs) = 683 AND worst < 0.001) FROM fits",
                              &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(fit_read(db, &(struct fit_want){ .device = "h200", .precision = DT_BF16, .ranks = 16 }, &m), 1);
    assert_int_equal(m.ncoll, 33);
    assert_int_equal(m.coll[0].op, COLL_ALL_REDUCE);
    assert_int_equal(m.coll[0].ranks, 8);
    assert_int_equal(m.coll[0].per_node, 8);
    assert_int_equal(m.coll[32].ranks, 32);
    assert_int_equal(m.coll[32].per_node, 8);
    assert_close(m.coll[0].s, 11.5e-6, 1e-3);                   /* between 11 us out of place and 12 in place */
    assert_int_equal(m.ranks, 0);
    measured_device_free(&m);
    db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_of_today_says_what_it_measured),
        cmocka_unit_test(an_older_log_is_told_by_its_figures),
        cmocka_unit_test(what_mpirun_and_a_shell_leave_around_it_does_not_matter),
        cmocka_unit_test(several_runs_in_one_file_are_several_sweeps),
        cmocka_unit_test(what_was_measured_again_has_more_samples),
        cmocka_unit_test(the_json_of_option_J_is_read_too),
        cmocka_unit_test(every_iteration_is_kept_where_the_log_has_them),
        cmocka_unit_test(wrong_results_are_left_out_and_counted),
        cmocka_unit_test(what_is_no_log_is_refused_by_name),
        cmocka_unit_test(gpus_are_known_by_what_they_call_themselves),
        cmocka_unit_test(imported_sweeps_are_what_the_clock_reads),
    };
    return cmocka_run_group_tests_name("calib/nccl_log", tests, scratch_make, scratch_remove);
}
