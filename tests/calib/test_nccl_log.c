/* Logs are made here in the formats of nccl-tests' src/util.cu of several years, with times that a
 * reader can compute: 10 us and a microsecond for each KiB. */
#include "tests/check.h"
#include "tests/calib/scratch.h"

#include "calib/import/import.h"
#include "calib/import/nccl_log.h"
#include "calib/store/fit.h"
#include "calib/store/query.h"

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

/* A log of one sweep of two sizes: devices as "HOST GPU" in turn, then the table. */
#define HEADER "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
#define ROW "1024 256 float sum -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0\n"
#define WHOLE "4096 1024 float sum -1 14.00 0.29 0.44 0 18.00 0.29 0.44 0\n"
#define H100 "NVIDIA H100 80GB HBM3"

static void put_log(const char *name, const char *hosts, const char *table)
{
    FILE *f = log_file(name);

    fprintf(f, "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n# Collective test starting: all_reduce_perf\n");
    for (int r = 0; hosts[r]; r++)
        fprintf(f, "#  Rank %2d Group  0 Pid %6d on %c device %2d [0000:%02x:00] " H100 "\n", r, 4000 + r, hosts[r], r, r);
    fprintf(f, "%s", table);
    fclose(f);
}

/* What a log of two ranks with this table is refused for; the table begins in line 5. */
static void refused_for(const char *table, const char *words)
{
    struct nccl_log log;

    put_log("refused.log", "aa", table);
    assert_int_equal(nccl_log_read(in_scratch("refused.log"), -1, &log), -1);
    says(words);
}

static void a_file_is_of_one_kind_of_gpu_and_one_communicator(void **state)
{
    (void)state;
    struct nccl_log log;
    FILE *f = log_file("two.log");

    for (int run = 0; run < 2; run++) {
        fprintf(f, "# nccl-tests version 2.17.6\n# Collective test starting: all_reduce_perf\n");
        put_ranks(f, 1, 2, run ? "NVIDIA A100-SXM4-80GB" : H100);
        fprintf(f, HEADER ROW);
    }
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("two.log"), -1, &log), -1);
    says("two.log:11: a run on \"NVIDIA A100-SXM4-80GB\", that of line 4 on \"" H100 "\"");
    says("import them apart");
    f = log_file("mixed.log");
    fprintf(f, "#  Rank  0 Group  0 Pid 1 on a device 0 [0000:01:00] " H100 "\n"
               "#  Rank  1 Group  0 Pid 2 on a device 1 [0000:02:00] NVIDIA H200\n" HEADER ROW);
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("mixed.log"), -1, &log), -1);
    says("mixed.log:2: a rank on \"NVIDIA H200\", the first one on \"" H100 "\"");
    f = log_file("groups.log");
    fprintf(f, "#  Rank  0 Group  0 Pid 1 on a device 0 [0000:01:00] " H100 "\n"
               "#  Rank  1 Group  1 Pid 2 on a device 1 [0000:02:00] " H100 "\n" HEADER ROW);
    fclose(f);
    assert_int_equal(nccl_log_read(in_scratch("groups.log"), -1, &log), -1);
    says("groups.log:2: ranks of groups 0 and 1");
}

static void nodes_are_hosts_in_any_order_of_ranks(void **state)
{
    (void)state;
    struct nccl_log log;

    put_log("cyclic.log", "abab", HEADER ROW);
    assert_int_equal(nccl_log_read(in_scratch("cyclic.log"), -1, &log), 0);
    assert_int_equal(log.sweep[0].ranks, 4);
    assert_int_equal(log.sweep[0].nodes, 2);
    nccl_log_free(&log);
    put_log("uneven.log", "aaab", HEADER ROW);                  /* 4 on 2, and yet not 2 on each */
    assert_int_equal(nccl_log_read(in_scratch("uneven.log"), -1, &log), -1);
    says("3 ranks on node a and 1 on b");
}

/* The last row, or one with other output in it, is left out; its busbw is no time. */
static void a_row_of_other_columns_is_left_out_and_told(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "4096 1024 float sum -1 14.00 0.29 0.44 0 18.00 0.29", "4096 1024 float sum -1 14.00 0.29",
        "4096 1024 float sum -1 14.00\n", "4096 1024 float sum -1 14.00 0.29 0.44 0 18.00 0.29 0.44",
        "4096 1024 float sum -1 14.00 0.29 0.44 0 18.00 0.29 0.44 N",
        "4096 1024 float sum -1 NCCL WARN foo 14.00 0.29 0.44 0 18.00 0.29 0.44 0\n",
    };
    char table[512];
    struct nccl_log log;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(table, sizeof table, HEADER ROW "%s", rows[i]);
        put_log("cut.log", "aa", table);
        assert_int_equal(nccl_log_read(in_scratch("cut.log"), -1, &log), 0);
        assert_int_equal(log.sweep[0].npoints, 1);
        assert_int_equal(log.nwrong, 0);
        assert_int_equal(log.cut.n, 1);
        assert_int_equal(log.cut.first, 7);
        nccl_log_free(&log);
    }
    refused_for("#  Rank  2 Group  0 Pid 4002 on a device 2 [0000:02:00] NVIDIA H1", "no results of nccl-tests");
    refused_for(HEADER "1024 256 float sum -1 11.0 1.0 1.5\n", "refused.log:6: a row with another number of columns");
}

/* One half, in place only, without a reduction, and with a timestamp. */
static void tables_of_other_widths_are_read_by_their_header(void **state)
{
    (void)state;
    static const struct { const char *table; int n; double first; } cases[] = {
        { "# size count type redop root time algbw busbw #wrong\n1024 256 float sum -1 11.00 0.09 0.14 0\n", 1, 11e-6 },
        { HEADER "1024 256 float sum -1 12.00 0.09 0.14 0\n", 1, 12e-6 },
        { HEADER "1024 256 float -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0\n", 2, 11e-6 },
        { "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp\n"
          "1024 256 float sum -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0 2025-03-05 10:00:00\n", 2, 11e-6 },
        { "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max "
          "i_p99 i_cv%\n1024 256 float sum -1 11.00 0.09 0.14 0 1 2 3 4 12.00 0.09 0.14 0 1 2 3 4\n", 2, 11e-6 },
    };
    struct nccl_log log;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_log("wide.log", "aa", cases[i].table);
        assert_int_equal(nccl_log_read(in_scratch("wide.log"), -1, &log), 0);
        assert_int_equal(log.sweep[0].point[0].nseconds, cases[i].n);
        assert_close(log.sweep[0].point[0].seconds[0], cases[i].first, 1e-9);
        assert_close(log.sweep[0].point[0].seconds[cases[i].n - 1], cases[i].n > 1 ? 12e-6 : cases[i].first, 1e-9);
        nccl_log_free(&log);
    }
    refused_for("#  size count type redop root algbw busbw time #wrong algbw busbw time #wrong\n"
                "1024 256 float sum -1 1.0 1.5 11.0 0 1.0 1.5 11.0 0\n", "refused.log:5: columns in another order");
}

static void figures_beyond_reason_are_refused_with_their_line(void **state)
{
    (void)state;
    static const char *const times[] = { "inf", "1e400", "1e300", "8.7e10", "1e-300", "0.00", "-5" };
    static const char *const words[] = { "abc", "11.0x", "0x10", "11,00" };
    char table[512];

    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        snprintf(table, sizeof table, HEADER WHOLE "1024 256 float sum -1 %s 0.09 0.14 0 12.00 0.09 0.14 0\n", times[i]);
        refused_for(table, "refused.log:7: a time of ");
        says("a nanosecond (0.001) to a day");
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        snprintf(table, sizeof table, HEADER WHOLE "1024 256 float sum -1 %s 0.09 0.14 0 12.00 0.09 0.14 0\n", words[i]);
        refused_for(table, "expected a decimal number");
        says(words[i]);
    }
    refused_for(HEADER "1024 256 float sum -1 11.00 0.09 0.14 bad 12.00 0.09 0.14 0\n", "refused.log:6: \"bad\" for #wrong");
    refused_for(HEADER "1125899906842625 9 float sum -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0\n", "at most 2^50");
    refused_for(HEADER "1000000000000000000000000000000 9 float sum -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0\n",
                "refused.log:6: a size of 1000000000000000000000000000000 bytes");
}

static void what_has_no_time_or_no_type_is_counted(void **state)
{
    (void)state;
    struct nccl_log log;

    put_log("nan.log", "aa", HEADER WHOLE "1024 256 float sum -1 nan nan nan 0 -nan nan nan 0\n"
                                          "1024 256 uint32 sum -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0\n");
    assert_int_equal(nccl_log_read(in_scratch("nan.log"), -1, &log), 0);
    assert_int_equal(log.sweep[0].npoints, 1);
    assert_int_equal(log.untimed.n, 2);
    assert_int_equal(log.untimed.first, 7);
    assert_int_equal(log.nuntyped, 1);
    assert_string_equal(log.types, "uint32");
    nccl_log_free(&log);
    refused_for(HEADER "1024 256 uint32 sum -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0\n"
                       "1024 256 f8e4m3 sum -1 11.00 0.09 0.14 0 12.00 0.09 0.14 0\n", "results of uint32, f8e4m3 only");
    refused_for(HEADER "1024 256 float sum -1 nan nan nan 0 11.00 0.09 0.14 3\n", "1 with wrong values, 1 without a time");
}

/* A JSON of one result on one device; -1: it was refused. */
static int read_one(const char *mark, const char *device, const char *result, struct nccl_log *log)
{
    FILE *f = log_file("result.json");

    fprintf(f, "%s{\"args\":[\"all_reduce_perf\"],\"config\":{\"devices\":[{\"device_info\":\"x\"%s}]},\"results\":["
               "{\"type\":\"float\",\"size\":2048,\"out_of_place\":null,\"in_place\":{\"time\":12}},{\"type\":\"float\",%s}]}",
            mark, device, result);
    fclose(f);
    return nccl_log_read(in_scratch("result.json"), -1, log);
}

static void members_of_another_type_are_counted_or_refused(void **state)
{
    (void)state;
    static const char *const host = ",\"hostname\":\"a\"";
    static const char *const sizes[] = { "\"size\":\"1024\"", "\"size\":1024.5", "\"size\":-1" };
    struct nccl_log log;

    assert_int_equal(read_one("\xef\xbb\xbf", host, "\"size\":1024,\"out_of_place\":{\"time\":\"nan\",\"nwrong\":0},"
                              "\"in_place\":{\"time\":11,\"nwrong\":null}", &log), 0);
    assert_int_equal(log.sweep[0].npoints, 2);
    assert_int_equal(log.sweep[0].point[1].nseconds, 1);
    assert_int_equal(log.untimed.n, 1);
    assert_int_equal(log.untimed.first, 1);
    nccl_log_free(&log);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(read_one("", host, sizes[i], &log), 0);
        assert_int_equal(log.sweep[0].npoints, 1);
        assert_int_equal(log.sizeless.n, 1);
        nccl_log_free(&log);
    }
    assert_int_equal(read_one("", host, "\"size\":1024,\"in_place\":{\"time\":11,\"nwrong\":\"12\"}", &log), -1);
    says("result.json: results[1]: \"nwrong\" of \"in_place\"");
    assert_int_equal(read_one("", host, "\"size\":1024,\"in_place\":{\"time\":1e300}", &log), -1);
    says("results[1]: a time of 1e+300 us");
    assert_int_equal(read_one("", host, "\"size\":1125899906842625", &log), -1);
    says("results[1]: a size of 1125899906842625 bytes");
    assert_int_equal(read_one("", "", "\"size\":1024", &log), -1);
    says("config.devices[0]: no \"hostname\"");
    assert_int_equal(read_one("", ",\"hostname\":\"\"", "\"size\":1024", &log), -1);
    says("config.devices[0]: no \"hostname\"");
    assert_int_equal(read_one("\xef\xbb\xbf", host, "]", &log), -1);
    says("malformed JSON");
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
        cmocka_unit_test(a_file_is_of_one_kind_of_gpu_and_one_communicator),
        cmocka_unit_test(nodes_are_hosts_in_any_order_of_ranks),
        cmocka_unit_test(a_row_of_other_columns_is_left_out_and_told),
        cmocka_unit_test(tables_of_other_widths_are_read_by_their_header),
        cmocka_unit_test(figures_beyond_reason_are_refused_with_their_line),
        cmocka_unit_test(what_has_no_time_or_no_type_is_counted),
        cmocka_unit_test(members_of_another_type_are_counted_or_refused),
        cmocka_unit_test(what_is_no_log_is_refused_by_name),
        cmocka_unit_test(gpus_are_known_by_what_they_call_themselves),
        cmocka_unit_test(imported_sweeps_are_what_the_clock_reads),
    };
    return cmocka_run_group_tests_name("calib/nccl_log", tests, scratch_make, scratch_remove);
}
