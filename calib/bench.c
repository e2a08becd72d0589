#include "calib/bench.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/half.h"
#include "exec/lanes.h"
#include "model/fail.h"

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
    void *p = NULL;

    if (posix_memalign(&p, 4096, (size_t)(bytes > 0 ? bytes : 1)) != 0) {
        fail("no memory for %lld bytes of operands", (long long)bytes);
        return NULL;
    }
    memset(p, 0, (size_t)bytes);
    return p;
}

/* A saw tooth of odd length, so that no value is special; once made, it is repeated. */
void bench_fill(void *to, enum dtype t, int64_t n, double scale, double offset)
{
    enum { TOOTH = 4099 * 4 };
    int64_t e = dtype_bytes(t), made = n < TOOTH ? n : TOOTH;

    for (int64_t i = 0; i < made; i++) {
        float v = (float)(offset + scale * ((double)(i * 7919 % 4099) / 2049.0 - 1));
        if (t == DT_BF16)
            ((uint16_t *)to)[i] = half_to_bf16(v);
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

static int open_kernels(struct bench *b)
{
    struct kernels_need need = { .n = 512, .widest_in = 512, .widest_out = 512, .vocab = 512, .seq = 256, .dim = 128,
                                 .threads = b->threads, .at = DT_BF16, .wt = DT_BF16 };
    int64_t bytes = kernels_workspace(&need);

    b->workspace = bench_memory(bytes);
    b->probe = probe_open(b->threads);
    if (!b->workspace || !b->probe)
        return -1;
    b->k = kernels_open(b->threads, b->workspace, bytes, false);
    return b->k ? 0 : -1;
}

static int open_comm(struct bench *b)
{
    int *ranks = malloc((size_t)b->nranks * sizeof *ranks);

    if (!ranks)
        abort();
    for (int i = 0; i < b->nranks; i++)
        ranks[i] = i;
    b->staging = bench_memory(comm_staging(b->nranks));
    if (b->staging)
        b->comm = comm_mpi_open(&(struct comm_args){ .ranks = ranks, .nranks = b->nranks, .staging = b->staging,
                                                     .stop = b->stop, .name = "calibration" });
    free(ranks);
    return b->comm ? 0 : -1;
}

/* Ranks of one machine. */
static int neighbours(int *n)
{
    MPI_Comm node;

    if (MPI_OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node)) < 0)
        return -1;
    MPI_Comm_size(node, n);
    MPI_Comm_free(&node);
    return 0;
}

int bench_open(struct bench *b)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b->nranks);
    if (neighbours(&b->per_node) < 0 || open_kernels(b) < 0 || open_comm(b) < 0)
        return -1;
    b->probe_before_s = probe_take(b->probe, PROBE_BETWEEN);
    return isnan(b->probe_before_s) ? -1 : 0;
}

void bench_close(struct bench *b)
{
    comm_close(b->comm);
    kernels_close(b->k);
    free(b->staging);
    free(b->workspace);
    probe_close(b->probe);
    free(b->pending);
}

/* Its shares are those of what runs alone, and what runs in company takes as long again. */
static const double OVERLAP_TAKES = 2.2;

int bench_run(struct bench *b, const struct bench_item *item, double seconds)
{
    switch (item->kind) {
    case BENCH_OWN:     return bench_own(b, seconds);
    case BENCH_PASSES:  return bench_passes(b, item->dtype, item->largest, seconds);
    case BENCH_PROGRAM: return bench_program(b, item->plan, seconds);
    case BENCH_COLL:    return bench_coll(b, item, seconds);
    case BENCH_OVERLAP: return bench_overlap(b, item->dtype, seconds / OVERLAP_TAKES);
    }
    return fail("no benchmark of kind %d", item->kind);
}
