/* mpi_groups.c -- groups that overlap, each used from a thread of its own at the same time.
 *
 *     mpirun -n 4 mpi_groups
 *
 * The world, shards {0, 1} {2, 3}, replicas {0, 2} {1, 3}: a rank is in one of each, and each
 * thread makes its group's calls as fast as they go.  Complaints on stdout. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/mpi/group.h"

enum { CALLS = 300, MOST = 5000, PIECE = 2048 };

struct work {
    struct test_group group;
    const char *name;
    int complaints;
};

/* The k-th call of a group; sizes from nothing to several pieces. */
static int64_t elems_of(int k)
{
    return (int64_t)k * k * 7 % MOST;
}

static void complain(struct work *w, int k, const char *what, float got, float want)
{
    if (w->complaints++ < 4)
        printf("%s rank %d call %d: %s: %g, not %g\n", w->name, w->group.comm->rank, k, what, (double)got,
               (double)want);
}

/* The sum of rank + 1 + k, whatever the algorithm. */
static void sum(struct work *w, int k, float *in, float *out)
{
    int n = w->group.comm->nranks, algo = k % NCOLL_ALGO;
    int64_t elems = elems_of(k);
    float want = (float)(n * (n + 1) / 2 + n * k);

    for (int64_t i = 0; i < elems; i++)
        in[i] = (float)(w->group.comm->rank + 1 + k);
    memset(out, 0, (size_t)elems * sizeof *out);
    if (comm_call(w->group.comm, &(struct coll_call){
            .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .red = RED_SUM, .algo = algo, .elems = elems,
            .root = k % n, .send = in, .recv = out }) < 0)
        complain(w, k, "status", -1, 0);
    for (int64_t i = 0; i < elems; i++)
        if (out[i] < want || out[i] > want)
            complain(w, k, "sum", out[i], want);
}

static void *drive(void *arg)
{
    struct work *w = arg;
    float *in = malloc(MOST * sizeof *in), *out = malloc(MOST * sizeof *out);

    if (!in || !out)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int k = 0; k < CALLS; k++)
        sum(w, k, in, out);
    free(in);
    free(out);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, rank, failed = 0;
    pthread_t thread[3];

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct work work[3] = {
        { .group = group_open("world", 0, 1, 4, PIECE, NULL), .name = "world" },
        { .group = group_open("shard", rank & 2, 1, 2, PIECE, NULL), .name = "shard" },
        { .group = group_open("replica", rank & 1, 2, 2, PIECE, NULL), .name = "replica" },
    };
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, drive, &work[i]);
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        failed |= work[i].complaints;
        group_close(&work[i].group);
    }
    MPI_Finalize();
    return failed != 0;
}
