/* host_info.h -- the machine that a run is recorded with, and what this process takes of it.
 *
 *     struct host_info h;
 *     if (host_info(&h) < 0)
 *         ...
 *     host_reset_peak();           (after what is not to be counted)
 *     ...
 *     printf("%" PRId64 "\n", host_resident_peak());
 */
#ifndef DPX_HOST_INFO_H
#define DPX_HOST_INFO_H

#include <stdint.h>

#include "base/host_limits.h"

struct host_info {
    char    host[256];          /* its name */
    char    cpu[64];            /* "AMD EPYC 9654", as /proc/cpuinfo has it */
    int     cores;              /* host_cores() */
    int64_t memory;             /* bytes in all, or what a control group allows */
    int64_t available;          /* bytes, now */
    char    mpi[64];            /* "Open MPI 4.1.4" */
    char    onednn[64];         /* "oneDNN 2.6.3" */
};

/* 0, or -1 with the reason reported.  Needs no MPI_Init. */
int host_info(struct host_info *out);

/* Threads for the compute of one of `ranks` ranks on this machine: OMP_NUM_THREADS if set,
 * else its share of the cores, at least 1. */
int host_threads(int ranks);

/* Bytes of this process in memory now (VmRSS), and the most since it began or since
 * host_reset_peak() (VmHWM).  -1 with the reason reported. */
int64_t host_resident(void);
int64_t host_resident_peak(void);

/* 0, or -1 with the reason reported (a kernel without /proc/self/clear_refs). */
int host_reset_peak(void);

#endif
