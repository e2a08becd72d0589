/* mpi_stop.c -- a call whose peer never comes ends soon after `stop` is set.
 *
 *     mpirun -n 2 mpi_stop
 *
 * By each algorithm: rank 0 calls, rank 1 does not.  Complaints on stdout. */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/fail.h"
#include "tests/mpi/group.h"

enum { ELEMS = 100000 };

static atomic_bool stop;
static int complaints;

static void *set_stop(void *arg)
{
    const struct timespec wait = { 0, 100000000 };

    nanosleep(&wait, NULL);
    atomic_store(&stop, true);
    return arg;
}

static void complain(const char *algo, const char *what)
{
    complaints++;
    printf("%s: %s\n", algo, what);
}

/* Rank 0's part. */
static void wait_in_vain(struct comm *c, enum coll_algo algo)
{
    static float in[ELEMS], out[ELEMS];
    const struct coll_call a = { .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .red = RED_SUM, .algo = algo,
                                 .elems = ELEMS, .send = in, .recv = out };
    char why[200] = "";
    pthread_t thread;

    pthread_create(&thread, NULL, set_stop, NULL);
    fail_capture(why, sizeof why);
    if (comm_call(c, &a) != -1)
        complain(coll_algo_name(algo), "was not stopped");
    if (why[0])
        complain(coll_algo_name(algo), why);
    if (comm_call(c, &a) != -1 || why[0])
        complain(coll_algo_name(algo), "a second call was not stopped at once");
    pthread_join(thread, NULL);
    atomic_store(&stop, false);
    if (comm_call(c, &a) != -1 || !why[0])
        complain(coll_algo_name(algo), "a third call was not refused with a reason");
    fail_capture(NULL, 0);
}

int main(int argc, char **argv)
{
    struct test_group g[NCOLL_ALGO];
    int provided, rank;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int algo = 0; algo < NCOLL_ALGO; algo++) {
        atomic_store(&stop, false);
        g[algo] = group_world(0, &stop);
        if (rank == 0)
            wait_in_vain(g[algo].comm, algo);
    }
    if (rank == 0)
        printf("%s\n", complaints ? "failed" : "stopped");
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    /* Open MPI would wait for what was never received; dpxrun ends so as well. */
    MPI_Abort(MPI_COMM_WORLD, complaints ? 1 : 0);
    return 1;
}
