/* mpi_alone.c -- rank 0 ends its run, rank 1 waits for it: the watchdog of rank 1 must end the job.
 *
 *     DPX_TIMEOUT=3 mpirun -n 2 mpi_alone */
#include <mpi.h>

#include "exec/run/watchdog.h"

int main(int argc, char **argv)
{
    int provided, rank, never;
    struct watchdog *w;

    watchdog_start();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    w = watchdog_open(MPI_COMM_WORLD, NULL);
    if (!w)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 1) {
        watchdog_rest(w, false);
        MPI_Recv(&never, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    watchdog_close(w);
    MPI_Finalize();
    return 0;
}
