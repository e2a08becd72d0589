/* comm_nccl.h -- the collectives over NCCL; only where CUDA is built in (DPX_CUDA).
 *
 *     comm_nccl_check(d)                                   every rank of the world
 *     comm_nccl_id(id)                                     one rank of the group, which tells the others
 *     struct comm *c = comm_nccl_open(&args, d, id);       every rank of the group
 *
 * Calls queue on their `stream` and return when they have been launched.  NCCL chooses the algorithm
 * and how sums are rounded: a call's `algo` and `sum` are not looked at, and what was sent is not
 * counted.
 *
 * A rank that is lost leaves the others' kernels spinning on their devices.  Communicators are
 * non-blocking, and each has a thread that asks NCCL how it is: on an error, and when `stop` is set
 * while something does not end, the communicator is aborted, which ends those kernels; every later
 * call, and every wait on the device (device_cuda_break), then fails. */
#ifndef DPX_COMM_NCCL_H
#define DPX_COMM_NCCL_H

#include "exec/comm/comm.h"
#include "exec/device/device.h"

enum {
    COMM_NCCL_ID = 128,                 /* bytes: ncclUniqueId */
    COMM_NCCL_SCRATCH = 2 << 20,        /* bytes of device memory, and as many pinned, of a comm */
};

/* A new id, made by one rank of a group and sent to the others.  0, or -1 reported. */
int comm_nccl_id(uint8_t id[COMM_NCCL_ID]);
/* The same through a file that all ranks see, where there is no MPI to tell it with: rank 0 makes
 * it, the others wait for it.  It must not be there before (it would be another run's): rank 0
 * refuses that.  The caller removes it when all have opened.  0, or -1 reported or stopped. */
int comm_nccl_id_file(const char *path, int rank, const atomic_bool *stop, uint8_t id[COMM_NCCL_ID]);

/* Whether ranks may share devices the way they do: `ids` has the device of each of n ranks.  NCCL
 * before 2.30 cannot, later ones must be asked by NCCL_MULTI_RANK_GPU_ENABLE.  0, or -1 reported. */
int comm_nccl_sharing(const char (*ids)[64], int n);
/* The same for the world, collectively over MPI_COMM_WORLD; rank 0 alone reports. */
int comm_nccl_check(struct device *d);

/* Every rank of the group must call it, with the same id; the device must outlive it.  `staging` and
 * `piece` are not used.  NULL reported. */
struct comm *comm_nccl_open(const struct comm_args *a, struct device *d, const uint8_t id[COMM_NCCL_ID]);
/* Where MPI does not know the ranks: as rank `rank` of the group; a->ranks is not read. */
struct comm *comm_nccl_open_as(const struct comm_args *a, int rank, struct device *d, const uint8_t id[COMM_NCCL_ID]);

/* A comm that owns `group` and carries its messages on communicators of their own, one for each direction of each
 * pair of ranks (comm_nccl_pairs.c).  comm_nccl_pair() gives it the communicator on which this rank sends to, or
 * receives from, the peer; the sender is its rank 0, and the comm owns it.  On the group's own communicator each
 * message would wait for all collectives launched before it. */
struct comm *comm_nccl_pairs(struct comm *group);
void comm_nccl_pair(struct comm *pairs, bool sends, int peer, struct comm *pair);

const char *comm_nccl_version(void);    /* "NCCL 2.28.9": of the library that was found */

#endif
