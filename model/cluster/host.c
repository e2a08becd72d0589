/* host.c -- this machine as a cluster: ranks are processes on its cores.
 *
 * Memory is what the kernel calls available now (MemAvailable: free and reclaimable), or
 * less where a control group allows less, shared evenly by the ranks.  Rates are not known
 * before calibration and stay 0; nothing is guessed from the processor's name. */
#include "model/cluster/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/dtype.h"
#include "base/fail.h"

/* "<key>: <kB> kB" of /proc/meminfo in bytes, -1 if absent. */
static int64_t meminfo(const char *key)
{
    FILE   *f = fopen("/proc/meminfo", "r");
    char    line[256];
    int64_t kib, bytes = -1;
    size_t  n = strlen(key);

    if (!f)
        return -1;
    while (bytes < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && line[n] == ':'
            && sscanf(line + n + 1, "%" SCNd64, &kib) == 1)
            bytes = kib * 1024;
    fclose(f);
    return bytes;
}

/* A control group's file that holds one number; -1 if absent or "max". */
static int64_t group_value(const char *path)
{
    FILE   *f = fopen(path, "r");
    int64_t value = -1;

    if (!f)
        return -1;
    if (fscanf(f, "%" SCNd64, &value) != 1)
        value = -1;
    fclose(f);
    return value;
}

static int64_t available_now(void)
{
    int64_t bytes = meminfo("MemAvailable");
    int64_t limit = group_value("/sys/fs/cgroup/memory.max");
    int64_t used = group_value("/sys/fs/cgroup/memory.current");

    if (limit >= 0 && used >= 0 && used <= limit && (bytes < 0 || limit - used < bytes))
        bytes = limit - used;
    return bytes;
}

static void processor_name(char *out, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char  line[256];
    int   found = 0;

    snprintf(out, size, "%s", "host processor");
    if (!f)
        return;
    while (!found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!strncmp(line, "model name", 10) && colon && strlen(colon) > 2) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(out, size, "%.*s", (int)size - 1, colon + 2);
            found = 1;
        }
    }
    fclose(f);
}

const char *cluster_host_folder(void)
{
    const char *tmp = getenv("TMPDIR");

    return tmp && *tmp ? tmp : "/var/tmp";
}

int64_t cluster_host_disk(void)
{
    struct statvfs v;

    return statvfs(cluster_host_folder(), &v) == 0 ? (int64_t)(v.f_bavail * v.f_frsize) : 0;
}

/* Ranks exchange through shared memory: one copy in, one out, of the order of a core's
 * copy bandwidth.  Assumed, and marked `datasheet` with a wide interval, until this machine is measured. */
#define HOST_LINK 5e9
static const char NOW[] = "MemAvailable of /proc/meminfo, shared by the ranks";

void cluster_over_machines(struct cluster *c, int64_t nodes)
{
    if (!strcmp(c->gpu.source, NOW))
        c->memory = c->gpu.memory = c->memory / c->nodes * nodes;
    c->nodes = nodes;
    c->gpus_per_node = c->world_size / nodes;
    if (!(c->intra > 0))
        c->intra = HOST_LINK;
    if (!(c->inter > 0))
        c->inter = HOST_LINK;
}

int cluster_of_host(struct cluster *c, int64_t ranks)
{
    int64_t bytes = available_now();

    if (bytes <= 0)
        return fail("localhost: /proc/meminfo has no MemAvailable; describe the machine in a "
                    "cluster file");
    memset(c, 0, sizeof *c);
    snprintf(c->gpu.name, sizeof c->gpu.name, "cpu");
    processor_name(c->gpu.title, sizeof c->gpu.title);
    snprintf(c->gpu.source, sizeof c->gpu.source, "%s", NOW);
    c->is_host = 1;
    c->nodes = 1;
    c->gpus_per_node = c->world_size = ranks;
    c->memory = c->gpu.memory = bytes / ranks;
    /* A rank's libraries (MPI, oneDNN) are in it too; the executor measures them. */
    c->context = 0;
    c->headroom = CLUSTER_HEADROOM;
    c->intra = c->inter = HOST_LINK;
    c->nics = 0;
    return 0;
}
