/* test_trace_read.c -- Chrome traces read event by event, gzipped or not, cut off or nonsense. */
#include "tests/check.h"
#include "base/fail.h"
#include "calib/trace/trace_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <zlib.h>

static char path[] = "/tmp/dpx-trace-XXXXXX";
static char said[512];

static int make_path(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_text(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static struct trace_event seen[8];
static struct trace_info info;

/* Reads the file into `seen`; the number of events, or -1 with the reason in `said`. */
static int read_file(void)
{
    struct trace_event e;
    struct trace_reader *r;
    int rc, n = 0;

    fail_capture(said, sizeof said);
    r = trace_open(path);
    if (!r) {
        fail_capture(NULL, 0);
        return -1;
    }
    while ((rc = trace_next(r, &e)) > 0)
        if (n++ < 8)
            seen[n - 1] = e;
    info = *trace_info(r);
    trace_close(r);
    fail_capture(NULL, 0);
    return rc < 0 ? -1 : n;
}

static int read_text(const char *text)
{
    write_text(text, strlen(text));
    return read_file();
}

#define REFUSED(text, why) \
    do { \
        assert_int_equal(read_text(text), -1); \
        if (!strstr(said, why)) \
            fail_msg("said: %s", said); \
    } while (0)

static void members_come_in_any_order(void **state)
{
    (void)state;
    assert_int_equal(read_text("{\"a\": [1, {\"b\": null}], \"traceEvents\": [{\"args\": {\"x\": {}, \"stream\": 7,"
                               "\"correlation\": \"12\"}, \"dur\": 2.5, \"ts\": 1, \"name\": \"k\", \"ph\": \"X\"}],"
                               "\"distributedInfo\": {\"rank\": 3, \"world_size\": 8, \"backend\": \"nccl\"}}"), 1);
    assert_string_equal(seen[0].name, "k");
    assert_int_equal(seen[0].ph, 'X');
    assert_int_equal(seen[0].ts, 1000);
    assert_int_equal(seen[0].dur, 2500);
    assert_int_equal(seen[0].args.stream, 7);
    assert_int_equal(seen[0].args.correlation, 12);
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.world_size, 8);
    assert_string_equal(info.backend, "nccl");
}

static void a_bare_list_is_a_trace_too(void **state)
{
    (void)state;
    assert_int_equal(read_text("[{\"ph\":\"X\"},{\"ph\":\"i\"}]\n"), 2);
    assert_int_equal(seen[1].ph, 'i');
    assert_int_equal(read_text("[]"), 0);
}

/* 1790857026123456.789 us have more digits than a double: it would be 250 ns off. */
static void times_keep_their_nanoseconds(void **state)
{
    (void)state;
    assert_int_equal(read_text("[{\"ts\": 1790857026123456.789, \"dur\": 0.001},"
                               "{\"ts\": 1661203463042907, \"dur\": -1.5}, {\"ts\": 1.5e3, \"dur\": 3.14159}]"), 3);
    assert_true(seen[0].ts == INT64_C(1790857026123456789));
    assert_int_equal(seen[0].dur, 1);
    assert_true(seen[1].ts == INT64_C(1661203463042907000));
    assert_int_equal(seen[1].dur, -1500);
    assert_int_equal(seen[2].ts, 1500000);
    assert_int_equal(seen[2].dur, 3141);
}

static void what_kineto_writes_besides_json_is_taken(void **state)
{
    (void)state;
    assert_int_equal(read_text("{\"traceEvents\": [{\"name\": \"a\\qb\tc\\u00e9\", \"args\": {\"x\": nan, \"y\": -inf,}},],}"), 1);
    assert_string_equal(seen[0].name, "aqb?c?");
}

static void sizes_of_inputs_are_added_up(void **state)
{
    (void)state;
    assert_int_equal(read_text("[{\"args\": {\"Input type\": [\"TensorList\", \"c10::BFloat16\"], \"Input Dims\":"
                               "[[[4, 5], [6]], [7, 2], [], [9]]}}, {\"args\": {\"Input Dims\": []}}]"), 2);
    assert_int_equal(seen[0].args.dims[0], 26);
    assert_int_equal(seen[0].args.dims[1], 14);
    assert_string_equal(seen[0].args.dtype, "c10::BFloat16");
    assert_int_equal(seen[1].args.dims[0], -1);
}

/* A list of tensors has no dimensions of its own, nor have a number and a tensor of more than three. */
static void dimensions_of_inputs_are_kept(void **state)
{
    (void)state;
    assert_int_equal(read_text("[{\"args\": {\"External id\": 31, \"Input Dims\": [[8192, 512], [4, 512, 96], []]}},"
                               "{\"args\": {\"Input Dims\": [[[4, 5], [6]], [2, 3, 4, 5, 6, 7], [7], [8]]}}]"), 2);
    const struct trace_dims *in = seen[0].args.input;
    assert_int_equal(seen[0].args.external, 31);
    assert_int_equal(in[0].n, 2);
    assert_int_equal(in[0].of[0], 8192);
    assert_int_equal(in[0].of[1], 512);
    assert_int_equal(in[1].n, 3);
    assert_int_equal(in[1].of[2], 96);
    assert_int_equal(in[2].n, -1);
    in = seen[1].args.input;
    assert_int_equal(seen[1].args.external, -1);
    assert_int_equal(in[0].n, -1);
    assert_int_equal(in[1].n, -1);
    assert_int_equal(in[2].n, 1);
    assert_int_equal(in[2].of[0], 7);
}

static void names_are_cut_and_stay_printable(void **state)
{
    char text[3000];

    (void)state;
    snprintf(text, sizeof text, "[{\"name\": \"%02000d\", \"cat\": \"\\u001b[31m\"}]", 7);
    assert_int_equal(read_text(text), 1);
    assert_int_equal(strlen(seen[0].name), sizeof seen[0].name - 1);
    assert_string_equal(seen[0].cat, "?[31m");
}

static void what_is_malformed_is_named_with_line_and_column(void **state)
{
    (void)state;
    REFUSED("", "line 1, column 1: the trace is cut short");
    REFUSED("hello", "line 1, column 1: 'h' where '{'");
    REFUSED("{\"traceEvents\": [\n{\"ph\": \"X\"", "line 2, column 11: the trace is cut short");
    REFUSED("{\"traceEvents\": [{}", "the trace is cut short: a comma or ']' expected");
    REFUSED("{\"traceEvents\": [{} {}]}", "line 1, column 21: '{' where a comma or ']' was expected");
    REFUSED("{\"traceEvents\": [{\"name\": \"abc", "the end of a string");
    REFUSED("{\"traceEvents\": 5}", "'5' where '[', the list of events, was expected");
    REFUSED("{\"traceEvents\": []} x", "'x' where the end of the trace");
    REFUSED("{\"a\": 1}", "there is no \"traceEvents\"");
    REFUSED("[1]", "'1' where '{' was expected");
    REFUSED("{\"a\" 1}", "'1' where ':'");
    REFUSED("{\"a\": }", "'}' where a value");
}

static void depth_is_limited(void **state)
{
    char deep[100001];

    (void)state;
    memset(deep, '[', 100000);
    memcpy(deep, "{\"a\":", 5);
    deep[100000] = '\0';
    REFUSED(deep, "nested too deeply");
}

static void a_file_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    fail_capture(said, sizeof said);
    assert_null(trace_open("/nonexistent/trace.json"));
    fail_capture(NULL, 0);
    assert_string_equal(said, "/nonexistent/trace.json: No such file or directory");
}

static void a_compressed_file_may_be_cut_short(void **state)
{
    char text[20000], packed[20000];
    gzFile gz = gzopen(path, "wb");
    FILE *f;
    size_t n;

    (void)state;
    srand(1);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + rand() % 26);
    memcpy(text, "{\"traceEvents\": [{\"name\": \"", 27);
    memcpy(text + sizeof text - 4, "\"}]}", 4);
    assert_int_equal(gzwrite(gz, text, sizeof text), sizeof text);
    assert_int_equal(gzclose(gz), Z_OK);
    assert_int_equal(read_file(), 1);
    f = fopen(path, "rb");
    n = fread(packed, 1, sizeof packed, f);
    fclose(f);
    write_text(packed, n / 2);
    assert_int_equal(read_file(), -1);
    assert_non_null(strstr(said, "cut short"));
    packed[n / 2] ^= 0x55;
    write_text(packed, n);
    assert_int_equal(read_file(), -1);
}

/* Wherever a trace is cut, that is noticed; whatever byte is wrong, nothing worse happens. */
static void every_cut_and_every_wrong_byte_is_survived(void **state)
{
    static const char text[] =
        "{\"a\": [1, -2.5e3, true, \"\\\"\\u0041\"], \"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1.25,"
        "\"args\": {\"Input Dims\": [[2, 3], []], \"dtype\": \"Float\"}}, {\"pid\": \"x\"}]}";
    char changed[sizeof text];

    (void)state;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        write_text(text, n);
        assert_int_equal(read_file(), -1);
    }
    for (size_t i = 0; i < sizeof text - 1; i++)
        for (int b = 0; b < 8; b++) {
            memcpy(changed, text, sizeof text);
            changed[i] ^= (char)(1 << b);
            write_text(changed, sizeof text - 1);
            read_file();
        }
}

/* 64 MB of events take no more memory than one. */
static void memory_does_not_grow_with_the_trace(void **state)
{
    struct rusage before, after;
    gzFile gz = gzopen(path, "wb1");
    enum { N = 400000 };

    (void)state;
    gzputs(gz, "{\"traceEvents\": [\n");
    for (int i = 0; i < N; i++)
        gzprintf(gz, "%s{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add_%d\", \"pid\": 1, \"tid\": 1, \"ts\": %d.5,"
                 " \"dur\": 3, \"args\": {\"External id\": %d, \"Ev Idx\": %d, \"Input Dims\": [[128, 64], [128, 64], []]}}",
                 i ? ",\n" : "", i, i, i, i);
    gzputs(gz, "]}\n");
    gzclose(gz);
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(read_file(), N);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 4096);      /* KiB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_in_any_order),
        cmocka_unit_test(a_bare_list_is_a_trace_too),
        cmocka_unit_test(times_keep_their_nanoseconds),
        cmocka_unit_test(what_kineto_writes_besides_json_is_taken),
        cmocka_unit_test(sizes_of_inputs_are_added_up),
        cmocka_unit_test(dimensions_of_inputs_are_kept),
        cmocka_unit_test(names_are_cut_and_stay_printable),
        cmocka_unit_test(what_is_malformed_is_named_with_line_and_column),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(a_file_that_is_not_there_is_an_error),
        cmocka_unit_test(a_compressed_file_may_be_cut_short),
        cmocka_unit_test(every_cut_and_every_wrong_byte_is_survived),
        cmocka_unit_test(memory_does_not_grow_with_the_trace),
    };
    return cmocka_run_group_tests_name("reports/trace_read", tests, make_path, remove_path);
}
