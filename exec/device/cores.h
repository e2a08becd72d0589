/* cores.h -- ranks of one machine keep to cores of their own.
 *
 *     MPI_Init_thread(...);
 *     if (cores_keep_apart() < 0)
 *         ...                      (before any thread is started: threads inherit)
 *
 * Ranks that may use the same CPUs divide them evenly, or share one by so many where there are more ranks;
 * a rank that a launcher bound to CPUs of its own keeps them.  Left to itself the kernel now
 * and then wakes the threads of two ranks on one core while another idles, and notices some milliseconds
 * later.  Ranks that meet at every unit (ZeRO-3, FSDP) all wait for that each time (`make bench`: ZeRO-3).
 * What cannot be divided into equal parts is not: the slowest rank sets the pace. */
#ifndef DPX_CORES_H
#define DPX_CORES_H

#include <stdbool.h>

enum { CORES_MOST = 8192 };         /* as many CPUs as Linux can have (NR_CPUS of x86-64) */
enum { CORES_MASK = CORES_MOST / 8 };   /* bytes of a set of them; bit c % 8 of byte c / 8 */

static inline bool cores_has(const unsigned char *mask, int cpu) { return mask[cpu / 8] >> cpu % 8 & 1; }

/* The CPUs that the calling thread may use.  False, and none, where the kernel does not say. */
bool cores_mask(unsigned char mask[CORES_MASK]);

/* One logical CPU; those of a package, and of a core in it, are neighbours in this order. */
struct core {
    int package, first;             /* first: the least CPU of its core */
    int cpu, capacity;              /* capacity: cpu_capacity, where a machine has several kinds; else -1 */
};

/* Which of n CPUs the `rank`-th of `ranks` has: *count of them from the one returned on.  Whole cores,
 * or as many threads of cores where there are more ranks than cores, or one CPU for several ranks; where
 * that does not come out even, a package for as many; else, and where cores are not alike, all. */
int cores_share(const struct core *cores, int n, int rank, int ranks, int *count);

/* The CPUs in `mask` (CORES_MOST bits) by package and core, as the machine below `root` ("") has them;
 * returns how many.  What says nothing of its packages is all one. */
int cores_in(const char *root, const unsigned char *mask, struct core out[CORES_MOST]);

/* Leaves the calling thread, and threads that it starts, the rank's share.  All ranks of MPI_COMM_WORLD
 * together.  Where the kernel refuses, a warning, and the ranks share all cores.  0, or -1 with the
 * reason reported. */
int cores_keep_apart(void);

#endif
