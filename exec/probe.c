#include "exec/probe.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "exec/lanes.h"
#include "exec/room.h"
#include "model/fail.h"

enum { P = 576, PROBES = 5, PROBES_MOST = 1000 };

struct probe {
    struct kernels *k;
    void  *workspace;
    float *x, *w, *y;
    double s[PROBES_MOST];
};

struct probe *probe_open(int threads)
{
    struct kernels_need need = { .n = P, .widest_in = P, .widest_out = P, .vocab = P, .seq = 64, .dim = 64,
                                 .threads = threads, .at = DT_FP32, .wt = DT_FP32 };
    int64_t bytes = kernels_workspace(&need);
    struct probe *p = room(1, sizeof *p);

    p->x = room(3 * P * P, sizeof *p->x);
    p->w = p->x + P * P;
    p->y = p->w + P * P;
    for (int i = 0; i < 2 * P * P; i++)
        p->x[i] = 0.1f * (float)((int64_t)i * 7919 % 4099 - 2049) / 2049;
    if (posix_memalign(&p->workspace, 4096, (size_t)bytes) != 0) {
        p->workspace = NULL;
        fail("no memory for a workspace of %lld bytes", (long long)bytes);
    } else {
        p->k = kernels_open(threads, p->workspace, bytes, false);
    }
    if (p->k)
        return p;
    probe_close(p);
    return NULL;
}

void probe_close(struct probe *p)
{
    if (!p)
        return;
    kernels_close(p->k);
    free(p->workspace);
    free(p->x);
    free(p);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* This rank's median; NaN reported. */
static double take(struct probe *p, double seconds)
{
    struct linear l = { .n = P, .in = P, .out = P, .in_out = true, .ldx = P, .ldy = P };
    double begun = lanes_now();
    int n = 0;

    for (int i = -1; n < PROBES_MOST && (n < PROBES || lanes_now() - begun < seconds); i++) {
        double from = lanes_now();
        if (kernels_ops(p->k)->linear(p->k, &l, p->x, p->w, NULL, p->y, NULL, NULL) < 0)
            return NAN;
        if (i >= 0)                     /* the first makes the primitive */
            p->s[n++] = lanes_now() - from;
    }
    qsort(p->s, (size_t)n, sizeof *p->s, by_value);
    return n % 2 ? p->s[n / 2] : (p->s[n / 2 - 1] + p->s[n / 2]) / 2;
}

double probe_take(struct probe *p, double seconds)
{
    double mine, all = NAN;

    if (MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS) {
        fail("MPI_Barrier failed before the probe");
        return NAN;
    }
    mine = take(p, seconds);
    if (MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS) {
        fail("MPI_Allreduce failed after the probe");
        return NAN;
    }
    return all;
}
