/* host_limits.c -- what this process may use of its machine: by its affinity and its control group. */
#define _GNU_SOURCE             /* sched_getaffinity */
#include "base/host_limits.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of this process's control group: of version 2 (controller ""), or the one of version
 * 1 that has the controller.  Lines of /proc/self/cgroup are "4:cpu,cpuacct:/path". */
static bool group_of(const char *root, const char *controller, char *path, size_t size)
{
    char  name[512], line[4200], list[128];
    FILE *f;
    bool  found = false;

    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    if (!(f = fopen(name, "r")))
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(list, sizeof list, ",%.*s,", (int)(second - first - 1), first + 1);
        snprintf(name, sizeof name, ",%s,", controller);
        found = strstr(list, name) != NULL;
        if (found)
            snprintf(path, size, "%s", second + 1);
    }
    fclose(f);
    return found;
}

/* The least that `value` finds in the folder of the group and in those above it; a container may
 * see only its own, as the topmost.  0 where none has a limit. */
static double least_above(const char *mount, char *path, double (*value)(const char *folder))
{
    char folder[8192];
    double least = 0;

    for (char *slash; ; *slash = '\0') {
        snprintf(folder, sizeof folder, "%s%s", mount, path);
        double v = value(folder);
        if (v > 0 && (least == 0 || v < least))
            least = v;
        if (!(slash = strrchr(path, '/')))
            return least;
    }
}

/* One or two numbers in a file; how many there were.  "max" is none. */
static int numbers(const char *folder, const char *name, double v[2])
{
    char  path[8300];
    FILE *f;
    int   n;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!(f = fopen(path, "r")))
        return 0;
    n = fscanf(f, "%lf %lf", &v[0], &v[1]);
    fclose(f);
    return n > 0 ? n : 0;
}

static double quota_v2(const char *folder)
{
    double v[2];

    return numbers(folder, "cpu.max", v) == 2 && v[1] > 0 ? v[0] / v[1] : 0;
}

static double quota_v1(const char *folder)
{
    double quota[2], period[2];

    return numbers(folder, "cpu.cfs_quota_us", quota) == 1 && quota[0] > 0
        && numbers(folder, "cpu.cfs_period_us", period) == 1 && period[0] > 0 ? quota[0] / period[0] : 0;
}

static double memory_v2(const char *folder)
{
    double v[2];

    return numbers(folder, "memory.max", v) == 1 ? v[0] : 0;
}

static double memory_v1(const char *folder)
{
    double v[2];

    return numbers(folder, "memory.limit_in_bytes", v) == 1 ? v[0] : 0;
}

static double limit(const char *root, const char *controller, double (*v1)(const char *folder),
                    double (*v2)(const char *folder))
{
    char mount[512], path[4096];

    /* A controller is in one of the versions; a machine may have both mounted. */
    if (group_of(root, controller, path, sizeof path)) {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controller);
        return least_above(mount, path, v1);
    }
    if (!group_of(root, "", path, sizeof path))
        return 0;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
    return least_above(mount, path, v2);
}

double host_quota(const char *root)
{
    return limit(root, "cpu", quota_v1, quota_v2);
}

double host_memory_limit(const char *root)
{
    return limit(root, "memory", memory_v1, memory_v2);
}

/* Logical CPUs that the affinity allows; machines may have more than a cpu_set_t has. */
static int count_cpus(void)
{
    for (size_t room = 1024; room <= 1 << 20; room *= 2) {
        cpu_set_t *set = CPU_ALLOC(room);
        size_t     size = CPU_ALLOC_SIZE(room);
        if (!set)
            abort();
        int rc = sched_getaffinity(0, size, set), n = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return n;
        if (errno != EINVAL)
            break;
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int host_cores(void)
{
    static _Thread_local int at_first;      /* before ranks kept to some of them (cores.h) */
    double quota = host_quota("");
    int    cores = at_first ? at_first : (at_first = count_cpus());

    if (quota > 0 && quota < cores)
        cores = (int)quota + (quota > (int)quota);
    return cores > 1 ? cores : 1;
}
