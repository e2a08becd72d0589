/* probe.c -- a product repeated for a moment, timed: the machine beside what it was when it was calibrated. */
#include "exec/train/probe.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/room.h"
#include "exec/device/lanes.h"

enum { PROBES = 5, PROBES_MOST = 1000 };

/* How large a product, of what, and how many of them make one sample. */
struct kind { int p; enum dtype t; int in_a_row; };
static const struct kind on_host = { 576, DT_FP32, 1 }, on_cuda = { 4096, DT_BF16, 8 };
/* An emulated device, which says that it has little memory, is to end in time. */
static const struct kind on_little = { 64, DT_BF16, 2 };
static const int64_t LITTLE = (int64_t)4 << 30;

struct probe {
    struct device *d;
    struct kind of;
    struct kernels *k;
    void   *workspace;
    int64_t workspace_bytes;
    char   *x;                          /* x, W, y: p p elements each */
    double  s[PROBES_MOST];
};

static int64_t matrix_bytes(const struct probe *p) { return (int64_t)p->of.p * p->of.p * dtype_bytes(p->of.t); }

static float value(int64_t i) { return 0.1f * (float)(i * 7919 % 4099 - 2049) / 2049; }

static int fill(struct probe *p)
{
    int64_t n = 2 * (int64_t)p->of.p * p->of.p;
    float *v = room_new((size_t)n, sizeof *v);
    int rc;

    for (int64_t i = 0; i < n; i++)
        v[i] = value(i);
    rc = kernels_ops(p->k)->load(p->k, n, p->x, p->of.t, v);
    free(v);
    return rc < 0 ? -1 : kernels_ops(p->k)->finish(p->k);
}

static int64_t workspace_bytes(const struct probe *p, int threads)
{
    struct kernels_need need = { .n = p->of.p, .widest_in = p->of.p, .widest_out = p->of.p, .vocab = p->of.p, .seq = 64,
                                 .dim = 64, .threads = threads, .at = p->of.t, .wt = p->of.t };

    return device_async(p->d) ? 64 << 20 : kernels_workspace(&need);
}

struct probe *probe_open(struct device *d, int threads)
{
    struct probe *p = room_new(1, sizeof *p);

    p->d = d;
    p->of = !device_async(d) ? on_host : device_memory(d) >= 0 && device_memory(d) < LITTLE ? on_little : on_cuda;
    p->workspace_bytes = workspace_bytes(p, threads);
    p->x = device_map(d, 3 * matrix_bytes(p));
    p->workspace = device_map(d, p->workspace_bytes);
    if (p->x && p->workspace)
        p->k = kernels_open_on(d, STREAM_COMPUTE, threads, p->workspace, p->workspace_bytes, false);
    if (p->k && fill(p) == 0)
        return p;
    probe_close(p);
    return NULL;
}

void probe_close(struct probe *p)
{
    if (!p)
        return;
    kernels_close(p->k);
    device_unmap(p->d, p->workspace, p->workspace_bytes);
    device_unmap(p->d, p->x, 3 * matrix_bytes(p));
    free(p);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int products(struct probe *p)
{
    int n = p->of.p;
    struct linear l = { .n = n, .in = n, .out = n, .in_out = true, .at = p->of.t, .wt = p->of.t, .gt = p->of.t,
                        .ldx = n, .ldy = n };
    const struct kernel_ops *f = kernels_ops(p->k);

    for (int i = 0; i < p->of.in_a_row; i++)
        if (f->linear(p->k, &l, p->x, p->x + matrix_bytes(p), NULL, p->x + 2 * matrix_bytes(p), NULL, NULL) < 0)
            return -1;
    return f->finish(p->k);
}

/* This rank's products, timed one by one into p->s; how many, -1 reported. */
static int repeat(struct probe *p, double seconds)
{
    double begun = lanes_now();
    int n = 0;

    for (int i = -1; n < PROBES_MOST && (n < PROBES || lanes_now() - begun < seconds); i++) {
        double from = lanes_now();
        if (products(p) < 0)
            return -1;
        if (i >= 0)                     /* the first makes the primitive */
            p->s[n++] = (lanes_now() - from) / p->of.in_a_row;
    }
    return n;
}

/* This rank's median; NaN reported. */
static double take(struct probe *p, double seconds)
{
    int n = repeat(p, seconds);

    if (n < 0)
        return NAN;
    qsort(p->s, (size_t)n, sizeof *p->s, by_value);
    return n % 2 ? p->s[n / 2] : (p->s[n / 2 - 1] + p->s[n / 2]) / 2;
}

double probe_mean(struct probe *p, double seconds)
{
    int n = repeat(p, seconds);
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += p->s[i];
    return n < 0 ? (double)NAN : sum / n;
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
