/* cpu_use.c -- /proc/stat and this process's own clock. */
#include "exec/device/cpu_use.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/device/cores.h"
#include "exec/device/lanes.h"

/* One line's seconds in use: user, nice, system, irq, softirq, steal; idle and iowait are not, guests are in user and nice already. */
static bool used(const char *numbers, double *seconds)
{
    unsigned long long t[8] = { 0 };

    if (sscanf(numbers, "%llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 4)
        return false;
    *seconds = (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

/* The lines of single processors are "cpuN ..."; "cpu  ...", before them, is all together. */
bool cpu_use_of(const char *path, const unsigned char *only, struct cpu_use *out)
{
    FILE *f = fopen(path, "r");
    char line[512];
    int cpu, at;
    double s;

    memset(out, 0, sizeof *out);
    while (f && fgets(line, sizeof line, f) && !strncmp(line, "cpu", 3)) {
        if (sscanf(line, "cpu%d%n", &cpu, &at) != 1 || line[3] == ' ' || cpu < 0 || cpu >= CORES_MOST || (only && !cores_has(only, cpu))
            || !used(line + at, &s))
            continue;
        out->cpus++;
        out->all_s += s;
    }
    if (f)
        fclose(f);
    return out->cpus > 0;
}

bool cpu_use_now(const unsigned char *only, struct cpu_use *out)
{
    struct timespec own;

    if (!cpu_use_of("/proc/stat", only, out) || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0) {
        memset(out, 0, sizeof *out);
        return false;
    }
    out->wall_s = lanes_now();
    out->own_s = (double)own.tv_sec + 1e-9 * (double)own.tv_nsec;
    return true;
}
