/* cpu_use.h -- how much of a machine's processors all processes use, and how much of that is this process's.
 *
 *     struct cpu_use before, now;
 *     cpu_use_now(NULL, &before); ... cpu_use_now(NULL, &now);
 *     processors that others used = ((now.all_s - before.all_s) - (now.own_s - before.own_s)) / (now.wall_s - before.wall_s)
 *
 * Source: proc(5), /proc/stat: time in units of 1/sysconf(_SC_CLK_TCK) s.  Steal, what a hypervisor gave to other
 * machines, counts as used by others. */
#ifndef DPX_CPU_USE_H
#define DPX_CPU_USE_H

#include <stdbool.h>

struct cpu_use {
    double wall_s;              /* of a monotonic clock */
    double all_s;               /* seconds of these processors for all processes since the machine began */
    double own_s;               /* of this process, all its threads */
    int    cpus;                /* these processors: logical ones that are on line */
};

/* Of the processors in `only` (CORES_MASK bytes, cores.h), NULL: of all.  False where the kernel does not say; then *out is zeroed. */
bool cpu_use_now(const unsigned char *only, struct cpu_use *out);

/* The same of the file `path` in the format of /proc/stat: only all_s and cpus. */
bool cpu_use_of(const char *path, const unsigned char *only, struct cpu_use *out);

#endif
