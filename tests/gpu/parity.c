/* parity.c -- tests/mpi/mpi_parity.c, which has no ranks, where there is no MPI. */
#include "tests/mpi/mpi_parity.c"
