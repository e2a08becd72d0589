/* pmpi_die.c -- a rank that is killed while rank 0 waits for its message: preloaded, it stands before MPI.
 *
 *     DPX_DIE=1 LD_PRELOAD=pmpi_die.so dpxrun ...         rank 1, when it first sends something to rank 0
 *
 * Whether Open MPI then lets rank 0 wait or returns an error depends on what it was doing; the error, which
 * is rare, is what rank 0 gets here, from then on. */
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static bool gone;               /* on rank 0: the other is */

static bool dies(int rank)
{
    const char *who = getenv("DPX_DIE");

    return who && atoi(who) == rank;
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    int me;

    PMPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (dies(me))
        kill(getpid(), SIGKILL);
    return PMPI_Send(buf, count, type, to, tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *st)
{
    if (!dies(from) || tag == 0)                /* 0: the watchdog's */
        return PMPI_Recv(buf, count, type, from, tag, comm, st);
    gone = true;
    return MPI_ERR_OTHER;
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return gone ? MPI_ERR_OTHER : PMPI_Allreduce(in, out, count, type, op, comm);
}
