/* matrix_witness.h -- what a program itself gives to MPI: the counter that elsewhere is loaded
 * before a program, within it; and with DPX_DELAY_US, messages that are late. */
#ifndef DPX_TESTS_MPI_MATRIX_WITNESS_H
#define DPX_TESTS_MPI_MATRIX_WITNESS_H

#include "tests/mpi/pmpi_delay.c"

/* Payload bytes sent so far on communicators of this name. */
static int64_t witness_sent(const char *name)
{
    int64_t bytes = 0;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < nrecords; i++)
        if (!strcmp(records[i]->name, name))
            bytes = records[i]->sent.bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

#endif
