/* comm_nccl.h -- the collectives over NCCL; only where CUDA is built in (DPX_CUDA). */
#ifndef DPX_COMM_NCCL_H
#define DPX_COMM_NCCL_H

#include "exec/comm.h"
#include "exec/device.h"

enum { COMM_NCCL_ID = 128 };            /* bytes: ncclUniqueId */

/* A new id, made by one rank of a group and told to the others.  0, or -1 reported. */
int comm_nccl_id(uint8_t id[COMM_NCCL_ID]);
/* Every rank of the group must call it, with the same id.  NULL reported. */
struct comm *comm_nccl_open(const struct comm_args *a, struct device *d, const uint8_t id[COMM_NCCL_ID]);

#endif
