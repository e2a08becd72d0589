/* cores.c -- see cores.h.  mpirun could bind ranks, but only those that it starts itself, and not by
 * what taskset leaves of the machine. */
#define _GNU_SOURCE             /* sched_setaffinity */
#include "exec/device/cores.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "base/fail.h"
#include "exec/device/host_info.h"
#include "model/cluster/cluster.h"

/* How many runs of neighbours, all equally long and of one kind, the CPUs are by package or by core; 0:
 * they are not alike. */
static int alike(const struct core *cores, int n, bool by_core)
{
    int runs = 0, length = 0, first = 0;

    for (int i = 1; i <= n; i++) {
        if (i < n && cores[i].capacity != cores[0].capacity)
            return 0;
        if (i < n && cores[i].package == cores[first].package && (!by_core || cores[i].first == cores[first].first))
            continue;
        if (runs > 0 && i - first != length)
            return 0;
        length = i - first;
        first = i;
        runs++;
    }
    return runs;
}

int cores_share(const struct core *cores, int n, int rank, int ranks, int *count)
{
    int whole = alike(cores, n, true), packages = alike(cores, n, false);

    *count = n;
    if (whole == 0 || ranks < 1)
        return 0;
    if (ranks <= whole ? whole % ranks == 0 : n % ranks == 0)
        *count = n / ranks;
    else if (ranks % n == 0)
        *count = 1;
    else if (packages > 1 && ranks % packages == 0)
        *count = n / packages;
    return (int)cluster_first_core(n, *count, rank, ranks);
}

/* ---- the machine's ---- */

/* The first number in a file of a CPU's, -1: none. */
static int number_of(const char *root, int cpu, const char *file)
{
    char path[512];
    int  v = -1;
    FILE *f;

    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/%s", root, cpu, file);
    if ((f = fopen(path, "r"))) {
        if (fscanf(f, "%d", &v) != 1)
            v = -1;
        fclose(f);
    }
    return v;
}

static int by_place(const void *pa, const void *pb)
{
    const struct core *a = pa, *b = pb;

    if (a->package != b->package)
        return a->package < b->package ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->cpu < b->cpu ? -1 : a->cpu > b->cpu;
}

int cores_in(const char *root, const unsigned char *mask, struct core out[CORES_MOST])
{
    int n = 0;

    for (int cpu = 0; cpu < CORES_MOST; cpu++)
        if (cores_has(mask, cpu)) {
            int first = number_of(root, cpu, "topology/thread_siblings_list");
            out[n++] = (struct core){ number_of(root, cpu, "topology/physical_package_id"), first < 0 ? cpu : first, cpu,
                                      number_of(root, cpu, "cpu_capacity") };
        }
    qsort(out, (size_t)n, sizeof *out, by_place);
    return n;
}

/* ---- this rank's ---- */

bool cores_mask(unsigned char mask[CORES_MASK])
{
    cpu_set_t *set = CPU_ALLOC(CORES_MOST);
    size_t size = CPU_ALLOC_SIZE(CORES_MOST);

    if (!set)
        abort();
    bool known = sched_getaffinity(0, size, set) == 0;
    memset(mask, 0, CORES_MASK);
    for (int cpu = 0; known && cpu < CORES_MOST; cpu++)
        if (CPU_ISSET_S((size_t)cpu, size, set))
            mask[cpu / 8] |= (unsigned char)(1 << cpu % 8);
    CPU_FREE(set);
    return known;
}

static void keep_to(const struct core *cores, int n)
{
    cpu_set_t *set = CPU_ALLOC(CORES_MOST);
    size_t size = CPU_ALLOC_SIZE(CORES_MOST);

    if (!set)
        abort();
    CPU_ZERO_S(size, set);
    for (int i = 0; i < n; i++)
        CPU_SET_S((size_t)cores[i].cpu, size, set);
    if (sched_setaffinity(0, size, set) < 0)
        fprintf(stderr, "warning: a rank cannot keep to %d of the cores (%s): steps vary more\n", n,
                strerror(errno));
    CPU_FREE(set);
}

/* Of the machine's ranks with the very same CPUs: how many, and which one this is. */
static int sharers(MPI_Comm machine, const unsigned char mask[CORES_MASK], int *me)
{
    int n, rank, ranks = 0;

    MPI_Comm_size(machine, &n);
    MPI_Comm_rank(machine, &rank);
    unsigned char *all = malloc((size_t)n * CORES_MASK);
    if (!all)
        abort();
    if (MPI_Allgather(mask, CORES_MASK, MPI_BYTE, all, CORES_MASK, MPI_BYTE, machine) != MPI_SUCCESS)
        ranks = fail("MPI_Allgather failed while ranks compared their cores");
    for (int i = 0; ranks >= 0 && i < n; i++)
        if (!memcmp(all + (size_t)i * CORES_MASK, mask, CORES_MASK)) {
            if (i == rank)
                *me = ranks;
            ranks++;
        }
    free(all);
    return ranks;
}

int cores_keep_apart(void)
{
    unsigned char mask[CORES_MASK];
    struct core *cores;
    MPI_Comm machine;
    int me = 0, ranks, count;

    host_cores();                   /* counts what the machine has while it is all there */
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine) != MPI_SUCCESS)
        return fail("MPI_Comm_split_type failed");
    bool known = cores_mask(mask);    /* more than CORES_MOST: all zero, and no rank is bound */
    ranks = sharers(machine, mask, &me);
    MPI_Comm_free(&machine);
    if (ranks < 2 || !known)
        return ranks < 0 ? -1 : 0;
    if (!(cores = malloc(CORES_MOST * sizeof *cores)))
        abort();
    int n = cores_in("", mask, cores), first = cores_share(cores, n, me, ranks, &count);
    if (count < n)
        keep_to(cores + first, count);
    free(cores);
    return 0;
}
