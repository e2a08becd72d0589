/* test_host_info.c -- cores and memory that control groups leave, on a made-up /proc and /sys. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "exec/device/host_info.h"

static char root[] = "/tmp/dpx-host-XXXXXX";

/* A file of a made-up machine below `root`, with the folders above it. */
static void put(const char *path, const char *text)
{
    char  at[512];
    FILE *f;

    snprintf(at, sizeof at, "%s%s", root, path);
    for (char *p = strchr(at + strlen(root) + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdir(at, 0700);
        *p = '/';
    }
    f = fopen(at, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_machine_is_described(void **state)
{
    (void)state;
    struct host_info h;

    assert_int_equal(host_info(&h), 0);
    assert_true(h.host[0] && h.cpu[0]);
    assert_true(h.cores >= 1 && h.cores <= sysconf(_SC_NPROCESSORS_CONF));
    assert_true(h.available > 0 && h.available <= h.memory);
    assert_int_equal(strncmp(h.mpi, "Open MPI ", 9), 0);
    assert_true(h.mpi[9] >= '1' && h.mpi[9] <= '9');
    assert_int_equal(strncmp(h.onednn, "oneDNN ", 7), 0);
}

static void the_least_limit_of_the_groups_above_counts(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a.slice/job\n");
    assert_true(host_quota(root) == 0 && host_memory_limit(root) == 0);
    put("/sys/fs/cgroup/a.slice/job/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a.slice/cpu.max", "250000 100000\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_close(host_quota(root), 2.5, 0);
    put("/sys/fs/cgroup/a.slice/job/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "max\n");
    assert_close(host_memory_limit(root), 1073741824, 0);
}

/* Version 1 in a container: the group's path is the host's, its own folder is the mount. */
static void version_1_has_a_tree_for_each_controller(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:cpuset:/x\n4:cpu,cpuacct:/docker/123\n3:memory:/docker/123\n0::/y\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
    assert_close(host_quota(root), 1.5, 0);
    assert_close(host_memory_limit(root), 4096, 0);
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_true(host_quota(root) == 0);
}

static void threads_are_what_the_user_says_or_a_share(void **state)
{
    (void)state;
    setenv("OMP_NUM_THREADS", "7", 1);
    assert_int_equal(host_threads(1), 7);
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(host_threads(1), host_cores());
    assert_int_equal(host_threads(10000), 1);
}

static void the_peak_is_of_what_was_touched_since_its_reset(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();                             /* freed memory stays resident, in quarantine */
#endif
    enum { BYTES = 32 << 20 };
    int64_t before = host_resident(), after;
    char *big = malloc(BYTES);

    memset(big, 1, BYTES);
    assert_true(host_resident_peak() >= before + BYTES - (1 << 20));
    assert_int_equal(big[BYTES / 2], 1);
    free(big);
    assert_int_equal(host_reset_peak(), 0);
    after = host_resident_peak();
    assert_true(after >= 0 && after < before + BYTES / 2);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[256];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_is_described),
        cmocka_unit_test(the_least_limit_of_the_groups_above_counts),
        cmocka_unit_test(version_1_has_a_tree_for_each_controller),
        cmocka_unit_test(threads_are_what_the_user_says_or_a_share),
        cmocka_unit_test(the_peak_is_of_what_was_touched_since_its_reset),
    };
    return cmocka_run_group_tests_name("exec/host_info", tests, make_root, remove_root);
}
