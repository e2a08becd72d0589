/* Every form of the message since torch 1.0; figures are the digits of the message times its unit. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "sim/plan/oom_message.h"

#define GiB 1073741824.
#define MiB 1048576.

static char said[256];

static int parse(const char *text, struct oom_message *m)
{
    fail_capture(said, sizeof said);
    int rc = oom_message_parse("oom.txt", text, strlen(text), m);
    fail_capture(NULL, 0);
    return rc;
}

static void is(int64_t bytes, double expected) { assert_true(bytes > expected - 1 && bytes < expected + 1); }

static void torch_1_0_says_cached(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; "
                           "6.34 GiB already allocated; 14.75 MiB free; 40.11 MiB cached)", &m), 0);
    is(m.tried, 20 * MiB);
    is(m.total, 7.79 * GiB);
    is(m.allocated, 6.34 * GiB);
    is(m.free, 14.75 * MiB);
    is(m.reserved, 6.34 * GiB + 40.11 * MiB);       /* cached: held and not used */
    assert_int_equal(m.gpu, 0);
    assert_int_equal(m.others, -1);
}

static void torch_1_12_says_reserved_in_total(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 39.59 GiB total capacity; 33.25 GiB already "
                           "allocated; 1.69 GiB free; 20.00 GiB allowed; 36.25 GiB reserved in total by PyTorch) If reserved "
                           "memory is >> allocated memory try setting max_split_size_mb", &m), 0);
    is(m.tried, 2 * GiB);
    is(m.reserved, 36.25 * GiB);
    is(m.allowed, 20 * GiB);
    assert_int_equal(m.gpu, 3);
}

static void torch_2_1_names_processes(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("CUDA out of memory. Tried to allocate 154.84 GiB. GPU 0 has a total capacty of 23.69 GiB of which 13.97 "
                           "GiB is free. Process 2006998 has 256.00 MiB memory in use. Process 7 has 1.00 GiB memory in use. "
                           "Including non-PyTorch memory, this process has 9.45 GiB memory in use. Of the allocated memory 9.15 "
                           "GiB is allocated by PyTorch, and 3.19 MiB is reserved by PyTorch but unallocated. If", &m), 0);
    is(m.total, 23.69 * GiB);
    is(m.free, 13.97 * GiB);
    is(m.others, 256 * MiB + GiB);
    is(m.process, 9.45 * GiB);
    is(m.allocated, 9.15 * GiB);
    is(m.reserved, 9.15 * GiB + 3.19 * MiB);
}

/* Wrapped as a terminal does it, among the lines of a log; a second rank's message does not mix with the first's. */
static void torch_2_9_in_a_log(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("step 3\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 3 has a\n"
                           "total capacity of 79.11 GiB of which 1.18 GiB is free. Including non-PyTorch memory, this process\n"
                           "has 77.92 GiB memory in use. Of the allocated memory 72.10 GiB is allocated by PyTorch, with 512.00\n"
                           "MiB allocated in private pools (e.g., CUDA Graphs), and 4.00 GiB is reserved by PyTorch but\n"
                           "unallocated.\n[rank5]: CUDA out of memory. Tried to allocate 5.00 GiB. GPU 5 has a total capacity of "
                           "10.00 GiB of which 1.00 GiB is free.", &m), 0);
    is(m.tried, 1.96 * GiB);
    is(m.total, 79.11 * GiB);
    is(m.free, 1.18 * GiB);
    is(m.private_pools, 512 * MiB);
    is(m.reserved, 76.1 * GiB);
    assert_int_equal(m.others, 0);                  /* all are named, and none is another */
    assert_int_equal(m.gpu, 3);
}

static void torch_2_15_leaves_the_device_out(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("Out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 47.98 GiB of which 0 bytes is "
                           "free. 24.00 GiB allowed; Of the allocated memory 23.70 GiB is allocated by PyTorch, and 12.00 KiB is "
                           "reserved by PyTorch but unallocated.", &m), 0);
    assert_int_equal(m.free, 0);
    is(m.allowed, 24 * GiB);
    is(m.reserved, 23.7 * GiB + 12 * 1024);
}

/* In a container NVML gives the own process another number. */
static void a_process_as_large_as_this_one_is_this_one(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("CUDA out of memory. Tried to allocate 3.50 GiB. GPU 0 has a total capacty of 23.64 GiB of which 1.42 GiB is "
                           "free. Process 2722 has 22.22 GiB memory in use. Of the allocated memory 20.13 GiB is allocated by "
                           "PyTorch, and 1.75 GiB is reserved by PyTorch but unallocated.", &m), 0);
    is(m.process, 22.22 * GiB);
    assert_int_equal(m.others, 0);
}

/* Of several one at most is this one: the least that holds what PyTorch reserved. */
static void of_named_processes_one_is_this_one(void **state)
{
    static const char *const form = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which "
        "0 bytes is free. Process 123 has %s memory in use. Process 124 has 39.11 GiB memory in use. Of the allocated memory %s "
        "is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.";
    struct oom_message m;
    char text[512];

    (void)state;
    snprintf(text, sizeof text, form, "40.00 GiB", "38.50 GiB");
    assert_int_equal(parse(text, &m), 0);
    is(m.process, 39.11 * GiB);
    is(m.others, 40 * GiB);
    snprintf(text, sizeof text, form, "3.00 GiB", "38.50 GiB");
    assert_int_equal(parse(text, &m), 0);
    is(m.process, 39.11 * GiB);
    is(m.others, 3 * GiB);
    snprintf(text, sizeof text, form, "40.00 GiB", "60.00 GiB");    /* none can be */
    assert_int_equal(parse(text, &m), 0);
    assert_int_equal(m.process, -1);
    is(m.others, 79.11 * GiB);
}

static void snapshots_and_statistics(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("{\"allocated_bytes.all.peak\": 1024, \"reserved_bytes.all.peak\": 4096, \"num_alloc_retries\": 3}", &m), 0);
    assert_int_equal(m.allocated, 1024);
    assert_int_equal(m.reserved, 4096);
    assert_int_equal(m.retries, 3);
    assert_int_equal(parse("{\"allocated_bytes\": {\"all\": {\"peak\": 5}}, \"reserved_bytes\": {\"all\": {\"peak\": 6}}}", &m), 0);
    assert_int_equal(m.reserved, 6);
    assert_int_equal(parse("{\"segments\": [{\"total_size\": 20, \"allocated_size\": 3}, {\"total_size\": 10, \"allocated_size\": 4}], "
                           "\"device_traces\": [[{\"action\": \"oom\", \"size\": 99, \"device_free\": 1}]]}", &m), 0);
    assert_int_equal(m.allocated, 7);
    assert_int_equal(m.reserved, 30);
    assert_int_equal(m.tried, 99);
    assert_int_equal(m.free, 1);
    assert_int_equal(parse("[{\"total_size\": 20, \"allocated_size\": 3}]", &m), 0);
    assert_int_equal(m.reserved, 20);
}

static void what_is_no_message_is_refused(void **state)
{
    (void)state;
    struct oom_message m;
    assert_int_equal(parse("", &m), -1);
    assert_int_equal(parse("all is well", &m), -1);
    assert_non_null(strstr(said, "oom.txt"));
    assert_int_equal(parse("RuntimeError: CUDA error: out of memory", &m), -1);
    assert_non_null(strstr(said, "without figures"));
    assert_int_equal(parse("Tried to allocate some", &m), -1);
    assert_int_equal(parse("{}", &m), -1);
    assert_int_equal(parse("{\"segments\": [{}]}", &m), -1);
    assert_int_equal(parse("[]", &m), -1);
    assert_non_null(strstr(said, "the snapshot has no segments"));
    assert_int_equal(parse("{", &m), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_1_0_says_cached),
        cmocka_unit_test(torch_1_12_says_reserved_in_total),
        cmocka_unit_test(torch_2_1_names_processes),
        cmocka_unit_test(torch_2_9_in_a_log),
        cmocka_unit_test(torch_2_15_leaves_the_device_out),
        cmocka_unit_test(a_process_as_large_as_this_one_is_this_one),
        cmocka_unit_test(of_named_processes_one_is_this_one),
        cmocka_unit_test(snapshots_and_statistics),
        cmocka_unit_test(what_is_no_message_is_refused),
    };
    return cmocka_run_group_tests_name("sim/oom_message", tests, NULL, NULL);
}
