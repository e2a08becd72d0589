/* nccl_log.h -- what nccl-tests printed (text, or the JSON of its option -J), as sweeps.
 *
 *     struct nccl_log log;
 *     if (nccl_log_read("all_reduce_16.log", -1, &log) < 0)
 *         return 2;
 *     ... log.sweep[i].point[k].seconds ...
 *     nccl_log_free(&log);
 *
 * Every point is a mean over nccl-tests' iterations, of the slowest rank's loop; out of place and
 * in place are two of them, or as many as a per-iteration report lists.  `size` is the full
 * buffer, as dpx counts.  Rows with wrong values, without a time, cut off, or of a type that dpx does
 * not use are left out and counted; a log with figures beyond reason, with ranks of several kinds of
 * GPU or groups is refused.  What a file has measured twice on the same ranks is one sweep with twice
 * the samples. */
#ifndef DPX_NCCL_LOG_H
#define DPX_NCCL_LOG_H

#include <stdint.h>

#include "base/dtype.h"
#include "model/schedule/schedule.h"

struct nccl_point { int64_t bytes; enum dtype dtype; double *seconds; int nseconds; };

/* One run of one program. */
struct nccl_sweep {
    int     op;                 /* enum coll_op; -1: it did not say (only while reading) */
    int64_t ranks, nodes;
    char    program[64], device[64], version[32];
    int     group, line;        /* of the first rank */
    struct nccl_host { char name[64]; int64_t ranks; } *host;       /* `nodes` of them, in any order of ranks */
    struct nccl_point *point;
    int     npoints;
};

/* Left out: how many, and the first one's line, or place in the JSON's "results". */
struct nccl_left { int n, first; };

struct nccl_log {
    struct nccl_sweep *sweep;
    int nsweeps, nwrong, nuntyped;
    char types[64];             /* of those untyped: nccl-tests' words */
    struct nccl_left cut, untimed, sizeless;
};

/* `op`: what to take it for where the file does not say; -1: what its name or its figures say.
 * 0, or -1 with file and line reported and nothing to free. */
int  nccl_log_read(const char *path, int op, struct nccl_log *out);
void nccl_log_free(struct nccl_log *l);

/* Our name of a GPU that calls itself "NVIDIA H100 80GB HBM3"; NULL if none is known. */
const char *nccl_device(const char *device);

#endif
