/* test_cpu_use.c -- processor time of a machine, of a made-up /proc/stat and of this process. */
#include "tests/check.h"

#include <stdio.h>
#include <unistd.h>

#include "exec/device/cores.h"
#include "exec/device/cpu_use.h"

static const char *file(const char *text)
{
    static char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/tmp/dpx-stat-%d", (int)getpid());
    f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void idle_and_waiting_are_not_used_and_guests_count_once(void **state)
{
    (void)state;
    struct cpu_use u;
    const char *path = file("cpu  1 20 300 4000 50000 600 7000 80000 9 9\n"
                            "cpu0 1 20 300 4000 50000 600 7000 0 9 9\n"
                            "cpu1 0 0 0 0 0 0 0 80000 0 0\n"
                            "intr 5\ncpu7 1 1 1 1\n");

    assert_true(cpu_use_of(path, NULL, &u));
    assert_int_equal(u.cpus, 2);
    assert_close(u.all_s, (1 + 20 + 300 + 600 + 7000 + 80000) / (double)sysconf(_SC_CLK_TCK), 1e-9);
    unlink(path);
}

/* A node of an emulated cluster has some of the processors, and what runs on the others is not beside it. */
static void processors_of_others_do_not_count(void **state)
{
    (void)state;
    const unsigned char second[CORES_MASK] = { 2 }, third[CORES_MASK] = { 4 };
    struct cpu_use u;
    const char *path = file("cpu  9 0 0 0\ncpu0 5 0 0 100\ncpu1 4 1 0 100\n");

    assert_true(cpu_use_of(path, second, &u));
    assert_int_equal(u.cpus, 1);
    assert_close(u.all_s, 5 / (double)sysconf(_SC_CLK_TCK), 1e-12);
    assert_false(cpu_use_of(path, third, &u));
    unlink(path);
}

static void a_kernel_of_before_steal_is_read_and_nonsense_is_not(void **state)
{
    (void)state;
    struct cpu_use u;

    assert_true(cpu_use_of(file("cpu  1 2 3 4\ncpu0 1 2 3 4\n"), NULL, &u));
    assert_close(u.all_s, 6 / (double)sysconf(_SC_CLK_TCK), 1e-12);
    assert_false(cpu_use_of(file("cpu\n"), NULL, &u));
    assert_close(u.all_s, 0, 0);
    const char *path = file("");
    assert_false(cpu_use_of(path, NULL, &u));
    unlink(path);
    assert_false(cpu_use_of(path, NULL, &u));
}

/* What this process uses all processes use. */
static void ours_is_part_of_all(void **state)
{
    (void)state;
    struct cpu_use before, now;
    volatile double x = 1;

    if (!cpu_use_now(NULL, &before))
        skip();
    for (int i = 0; i < 30 * 1000 * 1000; i++)
        x = x * 1.0000001;
    assert_true(cpu_use_now(NULL, &now));
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    assert_true(now.own_s > before.own_s && now.wall_s > before.wall_s);
    /* Each processor may be behind by a tick or two of what it has not counted yet. */
    assert_true(now.all_s - before.all_s > now.own_s - before.own_s - 3 * tick * (now.cpus + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_and_waiting_are_not_used_and_guests_count_once),
        cmocka_unit_test(processors_of_others_do_not_count),
        cmocka_unit_test(a_kernel_of_before_steal_is_read_and_nonsense_is_not),
        cmocka_unit_test(ours_is_part_of_all),
    };
    return cmocka_run_group_tests_name("exec/cpu_use", tests, NULL, NULL);
}
