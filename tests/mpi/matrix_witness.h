/* matrix_witness.h -- what a program itself gives to MPI: the counter that elsewhere is loaded
 * before a program, within it; and with DPX_DELAY_US, messages that are late. */
#ifndef DPX_TESTS_MPI_MATRIX_WITNESS_H
#define DPX_TESTS_MPI_MATRIX_WITNESS_H

#include <stddef.h>

/* MPI is not instrumented: ThreadSanitizer sees what is sent as read, and what is received as written, by the thread that
 * calls MPI for it. */
#ifdef __SANITIZE_THREAD__
void __tsan_read_range(void *at, unsigned long bytes);
void __tsan_write_range(void *at, unsigned long bytes);
#define AT_SEND(b, bytes) __tsan_read_range((void *)(b), (unsigned long)(bytes))
#define AT_RECV(b, bytes) __tsan_write_range((b), (unsigned long)(bytes))
#endif

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
