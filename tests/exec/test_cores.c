/* test_cores.c -- how ranks of one machine divide its CPUs, on made-up machines. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/device/cores.h"

static char root[] = "/tmp/dpx-cores-XXXXXX";

static void put(int cpu, const char *file, const char *text)
{
    char path[512], command[600];
    FILE *f;

    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology", root, cpu);
    snprintf(command, sizeof command, "mkdir -p %s", path);
    assert_int_equal(system(command), 0);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", file);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* n CPUs of so many threads a core, so many cores a package. */
static const struct core *machine(int n, int threads, int package)
{
    static struct core cores[64];

    for (int i = 0; i < n; i++)
        cores[i] = (struct core){ i / (threads * package), i / threads * threads, i, -1 };
    return cores;
}

static void shares(const struct core *cores, int n, int ranks, const int *first, int count)
{
    int got;

    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(cores_share(cores, n, rank, ranks, &got), first[rank]);
        assert_int_equal(got, count);
    }
}

static void cores_are_divided_evenly(void **state)
{
    (void)state;
    shares(machine(16, 1, 16), 16, 4, (const int[]){ 0, 4, 8, 12 }, 4);
    shares(machine(4, 1, 4), 4, 4, (const int[]){ 0, 1, 2, 3 }, 1);
    shares(machine(8, 2, 4), 8, 8, (const int[]){ 0, 1, 2, 3, 4, 5, 6, 7 }, 1);    /* more ranks than cores */
}

static void more_ranks_than_cpus_share_one_by_so_many(void **state)
{
    (void)state;
    shares(machine(2, 1, 2), 2, 6, (const int[]){ 0, 0, 0, 1, 1, 1 }, 1);
}

/* Three ranks on two CPUs, or on four; four on six cores of two threads, where equal numbers of threads
 * would be a core and a half each. */
static void what_does_not_divide_is_everybodys(void **state)
{
    (void)state;
    static const int all[4];

    shares(machine(2, 1, 2), 2, 3, all, 2);
    shares(machine(4, 1, 4), 4, 3, all, 4);
    shares(machine(12, 2, 6), 12, 4, all, 12);
    shares(machine(1, 1, 1), 0, 3, all, 0);
}

/* Two packages of 20: six ranks, three on each. */
static void a_package_for_as_many_where_cores_do_not_divide(void **state)
{
    (void)state;
    shares(machine(40, 1, 20), 40, 6, (const int[]){ 0, 0, 0, 20, 20, 20 }, 20);
}

/* A rank on slow cores would hold up all others: cores of two threads beside cores of one, or of another
 * capacity. */
static void cores_that_are_not_alike_are_everybodys(void **state)
{
    (void)state;
    static const int all[2];
    struct core hybrid[] = { { 0, 0, 0, -1 }, { 0, 0, 1, -1 }, { 0, 2, 2, -1 }, { 0, 3, 3, -1 } };
    struct core little[] = { { 0, 0, 0, 1024 }, { 0, 1, 1, 1024 }, { 0, 2, 2, 446 }, { 0, 3, 3, 446 } };

    shares(hybrid, 4, 2, all, 4);
    shares(little, 4, 2, all, 4);
}

/* Eight CPUs as many servers number them: two packages of two cores, the second threads of all cores
 * after the first ones.  Two ranks get a package each, four a core each. */
static void hyperthreads_and_packages_stay_together(void **state)
{
    (void)state;
    static const int expected[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    static const unsigned char all[CORES_MOST / 8] = { 0xff }, some[CORES_MOST / 8] = { 0x31 };
    static struct core cores[CORES_MOST];
    char text[16];

    for (int cpu = 0; cpu < 8; cpu++) {
        put(cpu, "physical_package_id", cpu % 4 < 2 ? "0\n" : "1\n");
        snprintf(text, sizeof text, "%d,%d\n", cpu % 4, cpu % 4 + 4);
        put(cpu, "thread_siblings_list", text);
    }
    assert_int_equal(cores_in(root, all, cores), 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(cores[i].cpu, expected[i]);
    assert_int_equal(cores[3].package, 0);
    assert_int_equal(cores[4].package, 1);
    assert_int_equal(cores_in(root, some, cores), 3);       /* CPUs 0, 4 and 5 */
    assert_true(cores[0].cpu == 0 && cores[1].cpu == 4 && cores[2].cpu == 5);
}

static void a_machine_that_says_nothing_is_one_package(void **state)
{
    (void)state;
    static const unsigned char mask[CORES_MOST / 8] = { [1] = 0x07 };
    static struct core cores[CORES_MOST];

    assert_int_equal(cores_in("/nowhere", mask, cores), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cores[i].cpu, 8 + i);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[600];

    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_divided_evenly),
        cmocka_unit_test(more_ranks_than_cpus_share_one_by_so_many),
        cmocka_unit_test(what_does_not_divide_is_everybodys),
        cmocka_unit_test(a_package_for_as_many_where_cores_do_not_divide),
        cmocka_unit_test(cores_that_are_not_alike_are_everybodys),
        cmocka_unit_test(hyperthreads_and_packages_stay_together),
        cmocka_unit_test(a_machine_that_says_nothing_is_one_package),
    };

    return cmocka_run_group_tests_name("exec/cores", tests, make_root, remove_root);
}
