/* test_device.c -- device.h on the emulator: order, waits of the host, times, what is left. */
#include "tests/check.h"
#include "base/fail.h"
#include "exec/cuda/device_cuda.h"
#include "exec/device/lanes.h"

#include <emu.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

static struct device *device;

static int open_it(void **state)
{
    (void)state;
    device = device_cuda_open(0);
    return device ? 0 : -1;
}

static int close_it(void **state)
{
    (void)state;
    device_close(device);
    device = NULL;
    return 0;
}

/* ---- work of a known length ---- */

static void sleep_ms(long ms)
{
    struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&ts, NULL);
}

struct work { long ms; const atomic_int *reads; atomic_int *writes; int seen, value; atomic_bool *until; };

/* Sleeps, waits, then reads what another has written, and writes. */
static void run(void *arg)
{
    struct work *w = arg;

    sleep_ms(w->ms);
    while (w->until && !atomic_load(w->until))
        sleep_ms(1);
    if (w->reads)
        w->seen = atomic_load(w->reads);
    if (w->writes)
        atomic_store(w->writes, w->value);
}

static void queue(enum stream s, struct work *w)
{
    assert_int_equal(emu_enqueue(device_cuda_stream(device, s), "work", run, w), cudaSuccess);
}

/* ---- opening ---- */

static void a_device_has_a_name_and_an_id(void **state)
{
    (void)state;
    assert_true(device_async(device));
    assert_true(strlen(device_name(device)) > 0);
    assert_int_equal(strncmp(device->id, "GPU-", 4), 0);
    assert_int_equal(strlen(device->id), 40);
    assert_true(device_cuda_built());
    assert_true(device_cuda_count() >= 1);
}

static void a_device_that_is_not_there_is_refused(void **state)
{
    char why[256];

    (void)state;
    fail_capture(why, sizeof why);
    struct device *none = device_cuda_open(99);
    fail_capture(NULL, 0);
    assert_null(none);
    assert_non_null(strstr(why, "no CUDA device 99"));
}

static void versions_are_told(void **state)
{
    char text[96];

    (void)state;
    device_cuda_versions(device, text, sizeof text);
    assert_int_equal(strncmp(text, "CUDA ", 5), 0);
    assert_non_null(strstr(text, ", sm_"));
}

/* ---- memory ---- */

static void what_is_mapped_is_in_use(void **state)
{
    const int64_t bytes = 64 << 20;

    (void)state;
    int64_t before = device_used(device);
    void *p = device_map(device, bytes);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 256, 0);
    assert_true(device_used(device) >= before + bytes);
    device_unmap(device, p, bytes);
    assert_int_equal(device_used(device), before);
}

static void too_much_is_refused_and_the_device_goes_on(void **state)
{
    char why[256];

    (void)state;
    fail_capture(why, sizeof why);
    void *p = device_map(device, (int64_t)1 << 50);
    fail_capture(NULL, 0);
    assert_null(p);
    assert_non_null(strstr(why, "no memory for"));
    p = device_map(device, 1 << 20);
    assert_non_null(p);
    device_unmap(device, p, 1 << 20);
}

static void bytes_go_there_and_back(void **state)
{
    enum { N = 100003 };
    struct CUstream_st *s = device_cuda_stream(device, STREAM_H2D);
    char *there = device_map(device, N), *a = device_pin(device, N), *b = device_pin(device, N);

    (void)state;
    for (int i = 0; i < N; i++)
        a[i] = (char)(i * 31);
    assert_int_equal(device_store(device, s, there, a, N), 0);
    assert_int_equal(device_fetch(device, s, b, there, N), 0);
    assert_int_equal(device_drain(device, s, NULL), 0);
    assert_memory_equal(a, b, N);
    device_unmap(device, there, N);
    device_unpin(device, a, N);
    device_unpin(device, b, N);
}

/* ---- order ---- */

static void a_stream_waits_for_the_mark_of_another(void **state)
{
    atomic_int x = 0;
    atomic_bool queued = false, waited = false;
    struct work writes = { .until = &queued, .writes = &x, .value = 7 }, reads = { .reads = &x }, later = { .until = &waited };

    (void)state;
    queue(STREAM_COMPUTE, &writes);
    assert_int_equal(device_mark(device, STREAM_COMPUTE, 1), 0);
    queue(STREAM_COMPUTE, &later);              /* behind the mark: who waited for it would wait for ever */
    assert_int_equal(device_after(device, STREAM_REDUCE, STREAM_COMPUTE, 1), 0);
    queue(STREAM_REDUCE, &reads);
    assert_int_equal(device_mark(device, STREAM_REDUCE, 1), 0);
    atomic_store(&queued, true);                /* all that was only queued */
    assert_int_equal(device_wait(device, STREAM_REDUCE, 1, NULL), 0);
    atomic_store(&waited, true);
    assert_int_equal(reads.seen, 7);
    assert_int_equal(device_drain(device, device_cuda_stream(device, STREAM_COMPUTE), NULL), 0);
}

static void streams_run_side_by_side(void **state)
{
    atomic_bool go = false;
    atomic_int x = 0;
    struct work waits = { .until = &go }, goes = { .writes = &x, .value = 1 };

    (void)state;
    queue(STREAM_COMPUTE, &waits);
    queue(STREAM_GATHER, &goes);
    assert_int_equal(device_mark(device, STREAM_GATHER, 1), 0);
    assert_int_equal(device_wait(device, STREAM_GATHER, 1, NULL), 0);
    assert_int_equal(x, 1);
    go = true;
    assert_int_equal(device_drain(device, device_cuda_stream(device, STREAM_COMPUTE), NULL), 0);
}

/* Three times around the ring. */
static void marks_may_go_on_for_ever(void **state)
{
    atomic_int x = 0;
    struct work w = { .writes = &x };

    (void)state;
    for (int64_t i = 1; i <= 3 * DEVICE_MARKS; i++) {
        assert_int_equal(device_mark(device, STREAM_COMPUTE, i), 0);
        if (i % 1000 != 0)
            continue;
        assert_int_equal(device_after(device, STREAM_REDUCE, STREAM_COMPUTE, i - 900), 0);
        w.value = (int)i;
        queue(STREAM_REDUCE, &w);
        assert_int_equal(device_mark(device, STREAM_REDUCE, i / 1000), 0);
        assert_int_equal(device_wait(device, STREAM_COMPUTE, i - 500, NULL), 0);
        assert_int_equal(device_wait(device, STREAM_REDUCE, i / 1000, NULL), 0);
        assert_int_equal(x, i);
    }
}

/* ---- waits that end ---- */

static void *set_soon(void *flag)
{
    sleep_ms(100);
    atomic_store((atomic_bool *)flag, true);
    return NULL;
}

static void a_wait_ends_when_it_is_told_to(void **state)
{
    atomic_bool go = false, stop = false;
    struct work waits = { .until = &go };
    pthread_t thread;

    (void)state;
    queue(STREAM_COMPUTE, &waits);
    assert_int_equal(device_mark(device, STREAM_COMPUTE, 1), 0);
    pthread_create(&thread, NULL, set_soon, &stop);
    assert_int_equal(device_wait(device, STREAM_COMPUTE, 1, &stop), 0);
    assert_true(atomic_load(&stop));
    assert_int_equal(device_drain(device, device_cuda_stream(device, STREAM_COMPUTE), &stop), -1);
    pthread_join(thread, NULL);
    go = true;
    assert_int_equal(device_drain(device, device_cuda_stream(device, STREAM_COMPUTE), NULL), 0);
}

/* CUDA keeps it as the thread's last error, which a launch asks for. */
static void having_waited_is_no_error(void **state)
{
    struct work w = { .ms = 20 };

    (void)state;
    queue(STREAM_COMPUTE, &w);
    assert_int_equal(device_mark(device, STREAM_COMPUTE, 1), 0);
    assert_int_equal(device_wait(device, STREAM_COMPUTE, 1, NULL), 0);
    queue(STREAM_COMPUTE, &w);
    assert_int_equal(device_drain(device, device_cuda_stream(device, STREAM_COMPUTE), NULL), 0);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void what_was_given_up_does_not_pass_for_done(void **state)
{
    char why[256];

    (void)state;
    assert_int_equal(device_mark(device, STREAM_COMPUTE, 1), 0);
    assert_int_equal(device_wait(device, STREAM_COMPUTE, 1, NULL), 0);
    device_cuda_break(device, "rank 3 is lost");
    device_cuda_break(device, "and more");
    fail_capture(why, sizeof why);
    int rc = device_wait(device, STREAM_COMPUTE, 1, NULL);
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    assert_string_equal(why, "rank 3 is lost");
}

/* ---- times ---- */

static void tasks_are_timed_on_the_hosts_clock(void **state)
{
    struct work w = { .ms = 40 };
    double start[3], end[3];

    (void)state;
    assert_int_equal(device_anchor(device), 0);
    double from = lanes_now();
    for (int64_t i = 1; i <= 2; i++) {
        assert_int_equal(device_begin(device, STREAM_COMPUTE, i), 0);
        queue(STREAM_COMPUTE, &w);
        assert_int_equal(device_mark(device, STREAM_COMPUTE, i), 0);
    }
    assert_int_equal(device_wait(device, STREAM_COMPUTE, 2, NULL), 0);
    double to = lanes_now();
    for (int64_t i = 1; i <= 2; i++)
        assert_int_equal(device_times(device, STREAM_COMPUTE, i, &start[i], &end[i]), 0);
    assert_true(start[1] > from - 0.005 && end[2] < to + 0.005);
    assert_true(end[1] - start[1] >= 0.0399 && end[2] - start[2] >= 0.0399);
    assert_true(start[2] >= end[1] - 1e-6);
    assert_true(end[2] - start[1] < to - from + 0.005);
}

/* After tasks that were timed come tasks that are not, in the same places of the ring. */
static void after_timed_tasks_come_others(void **state)
{
    atomic_int x = 0;
    struct work w = { .ms = 20, .writes = &x, .value = 5 };

    (void)state;
    assert_int_equal(device_anchor(device), 0);
    assert_int_equal(device_begin(device, STREAM_COMPUTE, 1), 0);
    assert_int_equal(device_mark(device, STREAM_COMPUTE, 1), 0);
    assert_int_equal(device_wait(device, STREAM_COMPUTE, 1, NULL), 0);
    queue(STREAM_COMPUTE, &w);
    assert_int_equal(device_mark(device, STREAM_COMPUTE, 1 + DEVICE_MARKS), 0);
    assert_int_equal(device_wait(device, STREAM_COMPUTE, 1 + DEVICE_MARKS, NULL), 0);
    assert_int_equal(x, 5);
}

/* ---- the end ---- */

static void closing_gives_everything_back(void **state)
{
    (void)state;
    struct emu_alive before = emu_alive();
    struct device *d = device_cuda_open(0);
    for (int64_t i = 1; i <= 10; i++)
        assert_int_equal(device_mark(d, STREAM_COMPUTE, i), 0);
    assert_int_equal(device_anchor(d), 0);
    assert_int_equal(device_begin(d, STREAM_COMPUTE, 11), 0);
    device_close(d);
    struct emu_alive after = emu_alive();
    assert_int_equal(after.streams, before.streams);
    assert_int_equal(after.events, before.events);
    assert_int_equal(after.device_memory, before.device_memory);
}

#define ON_A_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_it, close_it)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_DEVICE(a_device_has_a_name_and_an_id),
        ON_A_DEVICE(a_device_that_is_not_there_is_refused),
        ON_A_DEVICE(versions_are_told),
        ON_A_DEVICE(what_is_mapped_is_in_use),
        ON_A_DEVICE(too_much_is_refused_and_the_device_goes_on),
        ON_A_DEVICE(bytes_go_there_and_back),
        ON_A_DEVICE(a_stream_waits_for_the_mark_of_another),
        ON_A_DEVICE(streams_run_side_by_side),
        ON_A_DEVICE(marks_may_go_on_for_ever),
        ON_A_DEVICE(a_wait_ends_when_it_is_told_to),
        ON_A_DEVICE(having_waited_is_no_error),
        ON_A_DEVICE(what_was_given_up_does_not_pass_for_done),
        ON_A_DEVICE(tasks_are_timed_on_the_hosts_clock),
        ON_A_DEVICE(after_timed_tasks_come_others),
        cmocka_unit_test(closing_gives_everything_back),
    };
    return cmocka_run_group_tests_name("emu/device", tests, NULL, NULL);
}
