/* mpi_cores.c -- ranks of one machine keep to cores of their own, as the kernel says.
 *
 *     mpirun -n N mpi_cores           all may use the same: each has its part, and none of another's
 *     mpirun -n N mpi_cores bound     a launcher has bound rank 0 to one CPU: it keeps it, the others
 *                                     divide what they may use among themselves
 *
 * Complaints on stdout. */
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/device/cores.h"
#include "exec/device/host_info.h"

static int rank, ranks, complaints;

static void complain(const char *what, int got, int want)
{
    if (got == want)
        return;
    complaints++;
    printf("rank %d of %d: %s: %d, not %d\n", rank, ranks, what, got, want);
}

static void *mask_of_a_thread(void *out)
{
    sched_getaffinity(0, sizeof(cpu_set_t), out);
    return NULL;
}

/* Rank 0 has one CPU before the others look. */
static void bind_first(const cpu_set_t *all)
{
    cpu_set_t one;
    size_t cpu = 0;

    while (!CPU_ISSET(cpu, all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (rank == 0)
        sched_setaffinity(0, sizeof one, &one);
}

/* Cores of one thread, all alike: only there an even number is all that it takes. */
static bool is_plain(const cpu_set_t *all)
{
    static unsigned char mask[CORES_MOST / 8];
    static struct core cores[CORES_MOST];
    bool plain = true;

    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, all))
            mask[cpu / 8] |= (unsigned char)(1 << cpu % 8);
    int n = cores_in("", mask, cores);
    for (int i = 0; i < n; i++)
        plain &= cores[i].first == cores[i].cpu && cores[i].capacity == cores[0].capacity;
    return plain;
}

/* How many ranks from `first` on have CPU `cpu`. */
static int owners(const cpu_set_t *masks, int first, size_t cpu)
{
    int n = 0;

    for (int r = first; r < ranks; r++)
        n += CPU_ISSET(cpu, &masks[r]) != 0;
    return n;
}

int main(int argc, char **argv)
{
    bool bound = argc > 1 && !strcmp(argv[1], "bound");
    int provided, cores, want = 0;
    cpu_set_t all, mine, threads;
    pthread_t thread;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    sched_getaffinity(0, sizeof all, &all);
    int n = CPU_COUNT(&all), first = bound && n > 1, sharing = ranks - first;
    if (first)
        bind_first(&all);
    sched_getaffinity(0, sizeof mine, &mine);
    double quota = host_quota("");
    cores = CPU_COUNT(&mine);
    if (quota > 0 && quota < cores)
        cores = quota > 1 ? (int)ceil(quota) : 1;
    if (cores_keep_apart() < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    sched_getaffinity(0, sizeof mine, &mine);
    pthread_create(&thread, NULL, mask_of_a_thread, &threads);
    pthread_join(thread, NULL);
    complain("a thread has the rank's cores", CPU_EQUAL(&mine, &threads), 1);
    complain("cores of the machine, afterwards", host_cores(), cores);

    cpu_set_t *masks = calloc((size_t)ranks, sizeof *masks);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, masks, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    /* Every CPU has as many ranks as the next. */
    for (size_t cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            want = seen++ ? want : owners(masks, first, cpu);
            complain("ranks on one CPU", owners(masks, first, cpu), want);
        }
    if (n % sharing == 0 && is_plain(&all))
        complain("ranks on each CPU", want, 1);
    if (sharing % n == 0 && is_plain(&all))
        complain("ranks on each CPU", want, sharing / n);
    if (first)
        complain("CPUs of the rank that was bound", CPU_COUNT(&masks[0]), 1);
    free(masks);
    MPI_Finalize();
    return complaints != 0;
}
