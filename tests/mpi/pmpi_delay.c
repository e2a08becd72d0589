/* pmpi_delay.c -- pmpi_count.c, and messages that are late: before it passes a message, a receive or a collective on to MPI it
 * sleeps a random time.
 *
 *     mpirun -x LD_PRELOAD=$PWD/pmpi_delay.so -x DPX_DELAY_US=4000 -x DPX_DELAY_SEED=1 -n 4 program
 *
 * One call in four sleeps up to DPX_DELAY_US microseconds (unset or 0: none does).  How long is a function of the seed, the rank and
 * how many calls the rank has made, so that ranks and threads drift apart in another way with each seed. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L         /* nanosleep() */
#endif
static void late(void);
#define AT_MESSAGE() late()
#include "pmpi_count.c"

#include <stdatomic.h>
#include <time.h>

static uint64_t mixed(uint64_t x)           /* splitmix64's */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void late(void)
{
    static _Atomic uint64_t calls;
    const char *most = getenv("DPX_DELAY_US"), *seed = getenv("DPX_DELAY_SEED");
    uint64_t n = atomic_fetch_add(&calls, 1);
    int rank;

    if (!most || atol(most) <= 0)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t x = mixed(mixed(mixed(seed ? (uint64_t)atol(seed) : 0) + (uint64_t)rank) + n);
    if (x % 4)
        return;
    uint64_t ns = (x >> 8) % (1000 * (uint64_t)atol(most) + 1);
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) }, NULL);
}

int MPI_Irecv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r)
{
    late();
    AT_RECV(b, bytes_of(n, t));
    return PMPI_Irecv(b, n, t, from, tag, c, r);
}

int MPI_Recv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s)
{
    late();
    AT_RECV(b, bytes_of(n, t));
    return PMPI_Recv(b, n, t, from, tag, c, s);
}
