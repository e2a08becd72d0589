/* pmpi_die.c -- a rank that is killed while rank 0 waits for its message: preloaded, it stands before MPI.
 *
 *     DPX_DIE=1 LD_PRELOAD=pmpi_die.so dpxrun ...         rank 1, when it first sends something to rank 0
 *
 *     DPX_SILENT=1 DPX_SILENT_SINCE=FILE ...         rank 1's watchdog hears nothing from the moment that the file is there, as where
 *                                                    it waits within MPI for a rank that is stopped
 *
 *     DPX_DIE_WELCOMED=1 ...          rank 1, after its first message to mpirun, before mpirun has read it
 *
 * Whether Open MPI then lets rank 0 wait or returns an error depends on what it was doing; the error, which
 * is rare, is what rank 0 gets here, from then on. */
#define _GNU_SOURCE             /* RTLD_NEXT, close_range */
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool gone;               /* on rank 0: the other is */

static bool dies(int rank)
{
    const char *who = getenv("DPX_DIE");

    return who && atoi(who) == rank;
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *there, MPI_Status *st)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *silent = getenv("DPX_SILENT"), *since = getenv("DPX_SILENT_SINCE");

    if (rank && silent && since && !strcmp(rank, silent) && access(since, F_OK) == 0) {
        *there = 0;
        return MPI_SUCCESS;
    }
    return PMPI_Iprobe(from, tag, comm, there, st);
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

/* mpirun is stopped while this process sends and is killed; a child that holds nothing open lets it go on. */
static void die_unread(pid_t mpirun)
{
    if (fork() == 0) {
        close_range(0, ~0u, 0);
        usleep(300 * 1000);
        kill(mpirun, SIGCONT);
        _exit(0);
    }
    kill(getpid(), SIGKILL);
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    ssize_t (*next)(int, const void *, size_t, int);
    void *at = dlsym(RTLD_NEXT, "send");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    bool last = getenv("DPX_DIE_WELCOMED") && rank && strcmp(rank, getenv("DPX_DIE_WELCOMED")) == 0;
    pid_t mpirun = getppid();

    memcpy(&next, &at, sizeof next);
    if (last) {
        kill(mpirun, SIGSTOP);
        usleep(100 * 1000);             /* all its threads */
    }
    ssize_t sent = next(fd, buf, n, flags);
    if (last)
        die_unread(mpirun);
    return sent;
}
