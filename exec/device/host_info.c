/* host_info.c -- what a run is recorded with.  Processor and available memory are what
 * model/cluster/host.c plans with; here is what only a running process has. */
#include "exec/device/host_info.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dnnl.h>
#include <mpi.h>

#include "base/fail.h"
#include "model/cluster/cluster.h"

int host_threads(int ranks)
{
    const char *set = getenv("OMP_NUM_THREADS");
    int         share = host_cores() / (ranks > 1 ? ranks : 1);

    if (set && atoi(set) > 0)
        return atoi(set);
    return share > 1 ? share : 1;
}

/* "Open MPI v4.1.4, package: Debian ..." without what follows the version. */
static void mpi_version(char *to, size_t size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int  n;

    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS)
        snprintf(text, sizeof text, "MPI");
    text[strcspn(text, ",\n")] = '\0';
    char *v = strstr(text, " v");
    if (v)
        memmove(v + 1, v + 2, strlen(v + 1));
    snprintf(to, size, "%.*s", (int)size - 1, text);
}

int host_info(struct host_info *out)
{
    const dnnl_version_t *v = dnnl_version();
    struct cluster c;
    double group = host_memory_limit("");

    memset(out, 0, sizeof *out);
    if (cluster_of_host(&c, 1) < 0)
        return -1;
    if (gethostname(out->host, sizeof out->host - 1) < 0)
        return fail("the name of this machine: %s", strerror(errno));
    snprintf(out->cpu, sizeof out->cpu, "%s", c.gpu.title);
    out->cores = host_cores();
    out->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (group > 0 && group < (double)out->memory)
        out->memory = (int64_t)group;
    out->available = c.memory;
    mpi_version(out->mpi, sizeof out->mpi);
    snprintf(out->onednn, sizeof out->onednn, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return 0;
}

/* "VmHWM:     1234 kB" of /proc/self/status, in bytes. */
static int64_t status_bytes(const char *key)
{
    FILE   *f = fopen("/proc/self/status", "r");
    char    line[256];
    int64_t kib, bytes = -1;
    size_t  n = strlen(key);

    while (f && bytes < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && line[n] == ':' && sscanf(line + n + 1, "%" SCNd64, &kib) == 1)
            bytes = kib * 1024;
    if (f)
        fclose(f);
    return bytes >= 0 ? bytes : fail("/proc/self/status has no %s: the memory of this process cannot be "
                                     "measured", key);
}

int64_t host_resident(void)
{
    return status_bytes("VmRSS");
}

int64_t host_resident_peak(void)
{
    return status_bytes("VmHWM");
}

int host_reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    int   rc = -1;

    /* 5: see proc(5). */
    if (f)
        rc = fputs("5", f) < 0 ? -1 : 0;
    if (f && fclose(f) != 0)
        rc = -1;
    return rc < 0 ? fail("/proc/self/clear_refs: %s: the peak of this process cannot be measured",
                         strerror(errno)) : 0;
}
