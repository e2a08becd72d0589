/* mpi_tcp.c -- what Open MPI has of launch_tune_tcp(), as its own MPI_T interface says.
 *
 *     mpirun -n 1 mpi_tcp     btl_tcp_sndbuf and btl_tcp_flags on a line of stdout */
#include <mpi.h>
#include <stdio.h>

#include "exec/process/launch.h"

/* An integer variable of Open MPI's; -1 if there is none of that name. */
static long value_of(const char *name)
{
    MPI_T_cvar_handle handle;
    int index, count;
    union { int i; unsigned u; unsigned long ul; } value = { .ul = 0 };

    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS)
        return -1;
    MPI_T_cvar_read(handle, &value);
    MPI_T_cvar_handle_free(&handle);
    return value.i;
}

int main(int argc, char **argv)
{
    int provided;

    launch_tune_tcp();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    printf("%ld %ld\n", value_of("btl_tcp_sndbuf"), value_of("btl_tcp_flags"));
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
