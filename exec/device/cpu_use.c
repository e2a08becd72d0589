/* cpu_use.c -- /proc/stat and this process's own clock. */
#include "exec/device/cpu_use.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/device/lanes.h"

bool cpu_use_of(const char *path, struct cpu_use *out)
{
    /* user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice already. */
    unsigned long long t[8] = { 0 };
    char line[512];
    FILE *f = fopen(path, "r");
    bool found = false;

    memset(out, 0, sizeof *out);
    while (f && fgets(line, sizeof line, f) && !strncmp(line, "cpu", 3)) {
        if (line[3] != ' ')
            out->cpus++;
        else
            found = sscanf(line + 4, "%llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5],
                           &t[6], &t[7]) >= 4;
    }
    if (f)
        fclose(f);
    out->all_s = (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)sysconf(_SC_CLK_TCK);
    found = found && out->cpus > 0;
    if (!found)
        memset(out, 0, sizeof *out);
    return found;
}

bool cpu_use_now(struct cpu_use *out)
{
    struct timespec own;

    if (!cpu_use_of("/proc/stat", out) || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0) {
        memset(out, 0, sizeof *out);
        return false;
    }
    out->wall_s = lanes_now();
    out->own_s = (double)own.tv_sec + 1e-9 * (double)own.tv_nsec;
    return true;
}
