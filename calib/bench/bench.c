/* bench.c -- what the benchmarks share: timing on all ranks, their slowest time, samples on their way to the database. */
#include "calib/bench/bench.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "exec/device/lanes.h"
#include "exec/device/pages.h"
#include "exec/kernels/half.h"
#include "exec/kernels/rng.h"

/* Of a probe between series, in seconds: some forty products.  Five were off by 5 % as often as not. */
#define PROBE_BETWEEN .1

static int mpi_ok(int status, const char *call)
{
    char why[MPI_MAX_ERROR_STRING];
    int n;

    if (status == MPI_SUCCESS)
        return 0;
    MPI_Error_string(status, why, &n);
    return fail("%s: %s", call, why);
}

#define MPI_OK(call) mpi_ok((call), #call)

int bench_barrier(void)
{
    return MPI_OK(MPI_Barrier(MPI_COMM_WORLD));
}

double bench_wall_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_max(double mine)
{
    double all = NAN;

    return MPI_OK(MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD)) < 0 ? (double)NAN : all;
}

int bench_reps(double slice, double each, int least, int most)
{
    double n = -bench_max(-slice / fmax(each, 1e-9));   /* ranks differ in both: the fewest */

    return n < least ? least : n > most ? most : (int)n;
}

/* ---- memory ---- */

void *bench_memory(int64_t bytes)
{
    void *p = pages_allocate(bytes);

    if (!p) {
        fail("no memory for %lld bytes of operands", (long long)bytes);
        return NULL;
    }
    memset(p, 0, (size_t)bytes);
    return p;
}

/* Even; once made, it is repeated. */
void bench_fill(void *to, enum dtype t, int64_t n, double scale, double offset)
{
    uint64_t key = rng_key(1, RNG_BENCH, 0);
    int64_t e = dtype_bytes(t), made = n < BENCH_FILLED ? n : BENCH_FILLED;

    for (int64_t i = 0; i < made; i++) {
        float v = (float)(offset + scale * (2 * rng_uniform(key, (uint64_t)i) - 1));
        if (t == DT_BF16)
            ((uint16_t *)to)[i] = half_to_bf16(v);
        else if (t == DT_FP16)
            ((uint16_t *)to)[i] = half_to_fp16(v);
        else
            ((float *)to)[i] = v;
    }
    for (int64_t i = made; i < n; i += made)
        memcpy((char *)to + i * e, to, (size_t)((n - i < made ? n - i : made) * e));
}

/* ---- samples ---- */

int bench_known(struct bench *b, const struct series *s)
{
    int known = b->rank == 0 ? series_known(b->db, b->calibration, s) : 0;

    return MPI_OK(MPI_Bcast(&known, 1, MPI_INT, 0, MPI_COMM_WORLD)) < 0 ? -1 : known;
}

static double *gather(struct bench *b, const double *mine, int n, bool slowest)
{
    double *all = malloc((size_t)n * (size_t)(slowest ? 1 : b->nranks) * sizeof *all);
    int rc;

    if (!all)
        abort();
    rc = slowest ? MPI_OK(MPI_Reduce(mine, all, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD))
                 : MPI_OK(MPI_Gather(mine, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    if (rc == 0)
        return all;
    free(all);
    return NULL;
}

int bench_keep(struct bench *b, const struct series *s, const double *seconds, int n, bool slowest)
{
    enum { ROOM = 512 };
    double *all = gather(b, seconds, n, slowest);

    if (!all)
        return -1;
    if (b->rank != 0) {
        free(all);
        return 0;
    }
    if (!b->pending && !(b->pending = calloc(ROOM, sizeof *b->pending)))
        abort();
    struct series *p = &b->pending[b->npending++];
    *p = *s;
    p->seconds = all;
    p->of_ranks = slowest ? 0 : b->nranks;
    p->nsamples = slowest ? n : n * b->nranks;
    p->probe_before_s = b->probe_before_s;
    return b->npending == ROOM ? fail("more than %d series at once", ROOM) : 0;
}

int bench_flush(struct bench *b)
{
    double after = probe_take(b->probe, PROBE_BETWEEN);
    int rc = isnan(after) ? -1 : 0;

    for (int i = 0; i < b->npending; i++)
        b->pending[i].probe_after_s = after;
    if (rc == 0 && b->npending > 0)
        rc = series_put(b->db, b->calibration, b->pending, b->npending);
    for (int i = 0; i < b->npending; i++)
        free((void *)(uintptr_t)b->pending[i].seconds);
    b->npending = 0;
    b->probe_before_s = after;
    return rc;
}

/* ---- opening, running ---- */

/* Shapes of the kernels that are timed by themselves; a device's has room for all of them. */
static int64_t workspace_bytes(const struct bench *b)
{
    struct kernels_need need = { .n = 512, .widest_in = 512, .widest_out = 512, .vocab = 512, .seq = 256, .dim = 128,
                                 .threads = b->threads, .at = DT_BF16, .wt = DT_BF16 };

    return device_async(b->device) ? 128 << 20 : kernels_workspace(&need);
}

static int open_kernels(struct bench *b)
{
    b->workspace_bytes = workspace_bytes(b);
    b->workspace = device_map(b->device, b->workspace_bytes);
    if (!b->workspace)
        return -1;
    if (!device_async(b->device))
        memset(b->workspace, 0, (size_t)b->workspace_bytes);
    b->k = kernels_open_on(b->device, STREAM_COMPUTE, b->threads, b->workspace, b->workspace_bytes, false);
    return b->k ? bench_timer_open(b) : -1;
}

static int open_comm(struct bench *b)
{
    int *ranks, apart = device_async(b->device) ? bench_apart(b) : 1;

    if (apart < 0)
        return -1;
    b->carries = apart && b->nranks > 1;
    if (!apart && b->rank == 0)
        fprintf(stderr, "dpxcal: ranks share a GPU: NCCL's collectives are not timed\n");
    if (device_async(b->device) && !b->carries)
        return 0;
    ranks = malloc((size_t)b->nranks * sizeof *ranks);
    if (!ranks)
        abort();
    for (int i = 0; i < b->nranks; i++)
        ranks[i] = i;
    b->comm = bench_comm(b, ranks, b->nranks, "calibration", &b->staging);
    free(ranks);
    return b->comm ? 0 : -1;
}

/* Ranks of one machine: how many, which this is, and what they compute on: two emulated machines have halves of one's processors. */
static int neighbours(struct bench *b)
{
    MPI_Comm node;

    if (MPI_OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node)) < 0)
        return -1;
    MPI_Comm_size(node, &b->per_node);
    MPI_Comm_rank(node, &b->local);
    cores_mask(b->cpus);
    int rc = MPI_OK(MPI_Allreduce(MPI_IN_PLACE, b->cpus, CORES_MASK, MPI_BYTE, MPI_BOR, node));
    MPI_Comm_free(&node);
    return rc;
}

static int open_probe(struct bench *b)
{
    b->probe = probe_open(b->device, b->threads);
    b->probe_before_s = b->probe ? probe_take(b->probe, PROBE_BETWEEN) : (double)NAN;
    return isnan(b->probe_before_s) ? -1 : 0;
}

int bench_open(struct bench *b)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b->nranks);
    if (neighbours(b) < 0)
        return -1;
    b->device = b->cuda ? bench_device_open(b->local) : device_host();
    if (!b->device || open_kernels(b) < 0 || open_comm(b) < 0)
        return -1;
    return open_probe(b);
}

void bench_close(struct bench *b)
{
    comm_close(b->comm);
    probe_close(b->probe);
    bench_timer_close(b);
    kernels_close(b->k);
    if (b->device)
        device_unmap(b->device, b->workspace, b->workspace_bytes);
    device_close(b->device);
    free(b->staging);
    free(b->pending);
}

/* Its shares are in part for what runs alone, and what runs in company takes as long twice: without rests,
 * with them (bench_overlap.c, pair()). */
static const double OVERLAP_TAKES = 2.7;

/* Ranks read clocks of their own; what a rank decides by its share (to leave a size out, to repeat the
 * warm-up) all have to decide alike, or one waits for ever. */
int bench_run(struct bench *b, const struct bench_item *item, double seconds)
{
    seconds = bench_max(seconds);
    if (isnan(seconds))
        return -1;
    switch (item->kind) {
    case BENCH_OWN:     return bench_own(b, seconds);
    case BENCH_PASSES:  return bench_passes(b, item->dtype, item->largest, seconds);
    case BENCH_PROGRAM: return bench_program(b, item->plan, seconds);
    case BENCH_COLL:    return bench_coll(b, item, seconds);
    case BENCH_OVERLAP: return bench_overlap(b, item->dtype, seconds / OVERLAP_TAKES);
    case BENCH_HOST:    return bench_host(b, item->largest, seconds);
    case BENCH_DISK:    return bench_disk(b, item, seconds);
    }
    return fail("no benchmark of kind %d", item->kind);
}
