/* mpi_pace.c -- by hand: what waiting costs the rank that waits, and what not blocking costs.
 *
 *     mpirun -n 2 mpi_pace
 *
 * Each rank computes in one thread.  In another rank 0 waits in an all-reduce that rank 1
 * joins only when both have computed: its compute should take as long as without (1.05 times at
 * most, on as many cores as ranks).  Then the time of an all-reduce of 28 MB, beside Open MPI's
 * own, and of one of 4 bytes.  Best of several, for noise only adds. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/mpi/group.h"

enum { REPEAT = 7, ELEMS = 7 << 20 };

static struct test_group group;
static float *data, *more;

static void reduce(int64_t elems, enum coll_algo algo)
{
    const struct coll_call a = { .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .red = RED_SUM, .algo = algo,
                                 .elems = elems, .send = data, .recv = more };

    if (comm_call(group.comm, &a) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Of a core while it waits; does not depend on what else the machine does. */
static double share = 1;

static double own_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *wait_for_it(void *arg)
{
    double start = MPI_Wtime(), own = own_time(), used;

    reduce(1, ALGO_RING);
    used = (own_time() - own) / (MPI_Wtime() - start);
    share = used < share ? used : share;
    return arg;
}

/* Seconds of the same arithmetic each time, all in registers and the first cache. */
static double compute(void)
{
    static volatile float sink;
    float x[64];
    double start = MPI_Wtime();

    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
    for (int k = 0; k < 80000000; k++)
        for (int i = 0; i < 64; i++)
            x[i] = x[i] * 0.999f + 1;
    sink = x[7];
    (void)sink;
    return MPI_Wtime() - start;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* Compute of rank 0 while it waits, over compute alone. */
static void waiting(int rank)
{
    double alone = 1e9, beside = 1e9, t;
    pthread_t thread;

    for (int i = 0; i < REPEAT; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        alone = least(alone, compute());
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            pthread_create(&thread, NULL, wait_for_it, NULL);
        t = compute();
        beside = least(beside, t);
        if (rank == 0)
            pthread_join(thread, NULL);
        else
            reduce(1, ALGO_RING);
    }
    if (rank == 0)
        printf("compute of a waiting rank: %.3f s alone, %.3f s beside the waiting, %.3f times; "
               "waiting takes %.2f %% of a core\n", alone, beside, beside / alone, 100 * share);
}

static double timed(int64_t elems, enum coll_algo algo, int times)
{
    double best = 1e9, start;

    for (int i = 0; i < REPEAT; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        for (int k = 0; k < times; k++)
            reduce(elems, algo);
        best = least(best, (MPI_Wtime() - start) / times);
    }
    return best;
}

int main(int argc, char **argv)
{
    int provided, rank, n;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);

    group = group_world(argc > 1 ? atoi(argv[1]) << 10 : 0, NULL);
    data = calloc(ELEMS, sizeof *data);
    more = calloc(ELEMS, sizeof *more);
    if (!data || !more)
        MPI_Abort(MPI_COMM_WORLD, 1);

    for (int algo = 0; algo < NCOLL_ALGO; algo++)
        if (algo != ALGO_HALVING || (n & (n - 1)) == 0) {
            double large = timed(ELEMS, algo, 1), small = timed(1, algo, 20);

            if (rank == 0)
                printf("%-8s all-reduce of 28 MB %6.2f ms, of 4 bytes %6.1f us\n", coll_algo_name(algo),
                       1e3 * large, 1e6 * small);
        }
    waiting(rank);
    group_close(&group);
    free(data);
    free(more);
    MPI_Finalize();
    return 0;
}
