/* group.h -- what the programs under mpirun share: opening a group, with its staging. */
#ifndef DPX_TESTS_MPI_GROUP_H
#define DPX_TESTS_MPI_GROUP_H

#include <mpi.h>
#include <stdlib.h>

#include "exec/comm/comm.h"

struct test_group { struct comm *comm; void *staging; };

/* Every `stride`-th of n ranks from `first`, all else as in `a`; ends the job where it cannot. */
static inline struct test_group group_as(struct comm_args a, int first, int stride, int n)
{
    struct test_group g = { .staging = malloc((size_t)comm_staging(n) + 1) };
    int *ranks = malloc((size_t)n * sizeof *ranks);

    for (int i = 0; ranks && i < n; i++)
        ranks[i] = first + i * stride;
    a.ranks = ranks, a.nranks = n, a.staging = g.staging;
    if (ranks && g.staging)
        g.comm = comm_mpi_open(&a);
    if (!g.comm)
        MPI_Abort(MPI_COMM_WORLD, 1);
    free(ranks);
    return g;
}

static inline struct test_group group_open(const char *name, int first, int stride, int n, int64_t piece,
                                      const atomic_bool *stop)
{
    return group_as((struct comm_args){ .name = name, .piece = piece, .stop = stop }, first, stride, n);
}

static inline struct test_group group_world(int64_t piece, const atomic_bool *stop)
{
    int n;

    MPI_Comm_size(MPI_COMM_WORLD, &n);
    return group_open("world", 0, 1, n, piece, stop);
}

static inline void group_close(struct test_group *g)
{
    comm_close(g->comm);
    free(g->staging);
}

#endif
