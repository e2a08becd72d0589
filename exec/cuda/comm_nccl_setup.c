/* comm_nccl_setup.c -- what comes before a communicator: its id, and who is on which device. */
#include "exec/cuda/comm_nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/fail.h"
#include "exec/cuda/loaded.h"

static int version(void)
{
    int v = 0;

    return loaded_is_here(LOADED_NCCL) && ncclGetVersion(&v) == ncclSuccess ? v : 0;
}

const char *comm_nccl_version(void)
{
    static char text[32];
    int v = version();

    if (v == 0)
        return "NCCL (not on this machine)";
    snprintf(text, sizeof text, "NCCL %d.%d.%d", v / 10000, v % 10000 / 100, v % 100);
    return text;
}

/* ---- the id ---- */

int comm_nccl_id(uint8_t id[COMM_NCCL_ID])
{
    ncclUniqueId made;

    if (loaded_need(LOADED_NCCL) < 0)
        return -1;
    ncclResult_t r = ncclGetUniqueId(&made);
    if (r != ncclSuccess)
        return fail("NCCL: no id for a group: %s: %s", ncclGetErrorString(r), ncclGetLastError(NULL));
    memcpy(id, made.internal, COMM_NCCL_ID);
    return 0;
}

/* Under another name first: who finds the file finds all of it.  link() refuses where it is there. */
static int write_id(const char *path, const uint8_t id[COMM_NCCL_ID])
{
    char first[4096];
    FILE *f;
    int rc = 0;

    if (snprintf(first, sizeof first, "%s.%ld", path, (long)getpid()) >= (int)sizeof first)
        return fail("%s: too long a path", path);
    if (!(f = fopen(first, "wb")))
        return fail("%s: %s", first, strerror(errno));
    if (fwrite(id, 1, COMM_NCCL_ID, f) != COMM_NCCL_ID)
        rc = fail("%s: %s", first, strerror(errno));
    if (fclose(f) != 0 && rc == 0)
        rc = fail("%s: %s", first, strerror(errno));
    if (rc == 0 && link(first, path) < 0)
        rc = errno == EEXIST ? fail("%s is there: another run's id? remove it", path)
                             : fail("%s: %s", path, strerror(errno));
    unlink(first);
    return rc;
}

static int read_id(const char *path, const atomic_bool *stop, uint8_t id[COMM_NCCL_ID])
{
    const struct timespec ts = { 0, 20000000 };
    FILE *f;

    while (!(f = fopen(path, "rb"))) {
        if (errno != ENOENT)
            return fail("%s: %s", path, strerror(errno));
        if (stop && atomic_load(stop))
            return -1;
        nanosleep(&ts, NULL);
    }
    size_t n = fread(id, 1, COMM_NCCL_ID, f);
    fclose(f);
    return n == COMM_NCCL_ID ? 0 : fail("%s: %zu bytes, an id has %d", path, n, COMM_NCCL_ID);
}

int comm_nccl_id_file(const char *path, int rank, const atomic_bool *stop, uint8_t id[COMM_NCCL_ID])
{
    if (rank != 0)
        return read_id(path, stop, id);
    return comm_nccl_id(id) < 0 ? -1 : write_id(path, id);
}

/* ---- who is on which device ---- */

/* NCCL takes several ranks of a communicator on one device since 2.30, where it is asked to. */
static bool shares(void)
{
    const char *asked = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return version() >= NCCL_VERSION(2, 30, 0) && asked && atoi(asked) != 0;
}

int comm_nccl_sharing(const char (*ids)[64], int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(ids[i], ids[k]) && !shares())
                return fail("ranks %d and %d are both on device %s, which %s does not do%s: give each rank a device, "
                            "or use --comm mpi", k, i, ids[i], comm_nccl_version(),
                            version() >= NCCL_VERSION(2, 30, 0) ? " unless NCCL_MULTI_RANK_GPU_ENABLE=1 is set" : "");
    return 0;
}

/* Rank 0 decides for all: environments may differ. */
int comm_nccl_check(struct device *d)
{
    int rank = 0, n = 1, rc = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    char (*ids)[64] = malloc((size_t)n * sizeof *ids);
    if (!ids)
        rc = fail("out of memory for the devices of %d ranks", n);
    else if (MPI_Gather(d->id, sizeof *ids, MPI_BYTE, ids, sizeof *ids, MPI_BYTE, 0, MPI_COMM_WORLD) != MPI_SUCCESS)
        rc = fail("MPI_Gather failed");
    else if (rank == 0)
        rc = comm_nccl_sharing(ids, n);
    free(ids);
    MPI_Bcast(&rc, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return rc;
}
