/* dpxrun_device.c -- where this rank computes, and who carries its collectives. */
#include "exec/process/dpxrun.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef DPX_CUDA
#include "exec/cuda/comm_nccl.h"
#endif
#include "base/fail.h"

/* A device of the world, as no two others are called. */
struct seat { char host[64], id[64]; bool open; };

static int local_rank(void)
{
    MPI_Comm node;
    int rank = 0;

    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return fail("MPI_Comm_split_type failed: which ranks are on this machine is not known");
    MPI_Comm_rank(node, &rank);
    MPI_Comm_free(&node);
    return rank;
}

/* Ranks of a machine take its devices in turn. */
static struct device *open_cuda(const struct dpxrun *r)
{
    int devices = device_cuda_count(), local = r->o.comm == COMM_NULL ? 0 : local_rank();

    if (local < 0 || device_cuda_need() < 0)
        return NULL;
    return device_cuda_open(local % devices);
}

/* ---- who shares it ---- */

static bool same_seat(const struct seat *a, const struct seat *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->id, b->id) == 0;
}

/* How many ranks use this rank's device; *most: the most that use any.  -1 when one has none. */
static int sharers(const struct seat *all, int world, int rank, int *most)
{
    int mine = 0;

    *most = 0;
    for (int i = 0; i < world; i++) {
        int n = 0;
        for (int k = 0; k < world; k++)
            n += same_seat(&all[i], &all[k]);
        *most = n > *most ? n : *most;
        mine = i == rank ? n : mine;
        if (!all[i].open)
            return -1;
    }
    return mine;
}

/* Every rank takes part, also one that has no device: they go on together, or not at all. */
static int ask_world(struct dpxrun *r, int *most)
{
    struct seat mine = { .open = r->device != NULL }, *all;
    int world = (int)r->plan.cluster.world_size, n;

    if (r->o.comm == COMM_NULL) {
        *most = r->device ? 1 : 0;
        return r->device ? 1 : -1;
    }
    gethostname(mine.host, sizeof mine.host - 1);
    if (r->device)
        memcpy(mine.id, r->device->id, sizeof mine.id);
    all = calloc((size_t)world, sizeof *all);
    if (!all || MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        n = fail("ranks could not exchange the names of their devices");
    else
        n = sharers(all, world, r->rank, most);
    free(all);
    return n;
}

/* ---- collectives ---- */

/* A late NCCL lets ranks share a GPU if it is asked to. */
static bool may_share(const struct dpxrun *r)
{
#ifdef DPX_CUDA
    return r->o.comm == COMM_NCCL && comm_nccl_check(r->device) == 0;
#else
    (void)r;
    return false;
#endif
}

/* Why NCCL does not carry them; NULL: it can. */
static const char *not_nccl(const struct dpxrun *r, int most)
{
    if (most > 1 && !may_share(r))
        return "ranks share a GPU";
    if (r->plan.deterministic)
        return "\"deterministic\" adds in the order of ranks";
    if (r->o.algorithm || r->o.sum)
        return r->o.algorithm ? "--algorithm is named" : "--bf16-sum is named";
    return NULL;
}

static int choose_comm(struct dpxrun *r, int most)
{
    if (r->o.comm == COMM_NCCL && most > 1 && !may_share(r))
        return EXIT_MISUSE;             /* which said why */
    const char *why = not_nccl(r, most);

    if (r->o.comm == COMM_NCCL && why) {
        if (r->rank == 0)
            fail("--comm nccl: %s, which NCCL does not do: --comm mpi does", why);
        return EXIT_MISUSE;
    }
    if (r->o.comm < 0)
        r->o.comm = why ? COMM_MPI : COMM_NCCL;
    if (r->rank == 0 && r->o.comm == COMM_NCCL)
        fprintf(stderr, "dpx: %s, collectives by NCCL\n", device_name(r->device));
    else if (r->rank == 0 && r->o.comm == COMM_MPI)
        fprintf(stderr, "dpx: %s, collectives by MPI through host memory%s%s\n", device_name(r->device),
                why ? ": " : "", why ? why : "");
    return EXIT_DONE;
}

/* What the plan says of its GPU is believed, unless this one has less; of a plan for cores, nothing. */
static void limit_memory(struct dpxrun *r, int ranks)
{
    struct cluster *c = &r->here.cluster;
    int64_t all = device_memory(r->device), used = device_used(r->device);
    int64_t left = all < 0 || used < 0 ? -1 : (all - used) / ranks;

    if (r->o.memory > 0 || left < 0 || (!c->is_host && cluster_available(c) <= left))
        return;
    c->memory = left;
    c->context = 0;
    c->headroom = 0;
}

int dpxrun_open_device(struct dpxrun *r)
{
    int ranks, most = 0;

    r->device = device_host();
    if (r->o.device == DEVICE_CPU) {
        r->o.comm = r->o.comm < 0 ? COMM_MPI : r->o.comm;
        return EXIT_DONE;
    }
    r->device = open_cuda(r);
    ranks = ask_world(r, &most);
    if (ranks < 0)
        return EXIT_FAILED;
    r->shared_device = ranks > 1;
    limit_memory(r, ranks);
    return choose_comm(r, most);
}
