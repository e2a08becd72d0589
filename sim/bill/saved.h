/* saved.h -- a checkpoint of the whole training state: its bytes, who writes them, how long that takes.
 *
 *     struct saved c;
 *     struct save_times t;
 *     saved_of(&plan, &c);
 *     saved_times(&plan, &c, &storage, &t);
 *
 * A checkpoint holds the weights as they persist and the optimizer's states (an fp32 master among them), each once; of a plan that
 * trains adapters or a part what trains alone, for the rest is in the model that it began with (PEFT's save_pretrained(); transformers
 * gives DeepSpeed exclude_frozen_parameters).  Counters, random states and the names of tensors are left out: kilobytes.
 *
 *     framework                     what it writes
 *     DataParallel, DDP, ZeroRedundancyOptimizer   rank 0 writes everything (torch.save; consolidate_state_dict())
 *     FSDP1, FSDP2, the paper's     every rank its part, replicas in turns (torch.distributed.checkpoint, DefaultSavePlanner:
 *                                   dedup_save_plans())
 *     DeepSpeed 0                   rank 0 everything (engine.py: save_checkpoint)
 *     DeepSpeed 1, 2                rank 0 the weights, every rank its partition of master and moments (_save_zero_checkpoint)
 *     DeepSpeed 3                   every rank its partition of master and moments; the weights in 16 bits are not written
 *                                   (stage3_gather_16bit_weights_on_model_save is off)
 *     Megatron                      every rank its part (dist_checkpointing, --ckpt-fully-parallel-save is the default) */
#ifndef DPX_SAVED_H
#define DPX_SAVED_H

#include <stdbool.h>

#include "model/plan/plan.h"

struct saved {
    int64_t weights, states;        /* bytes of the checkpoint, each element once */
    int64_t bytes;                  /* their sum */
    int64_t rank, node;             /* of it, what the rank and the node that write most write */
    int64_t writers;                /* ranks that write */
    int64_t read;                   /* bytes that leave the storage when all ranks load it; a file that several ranks of a node read counts once */
    bool    partly;                 /* what is frozen is not in it */
    const char *by;                 /* what writes it: "torch.distributed.checkpoint, every rank its part" */
};

/* 0, or -1 reported: how the framework saves this optimizer is not known. */
int saved_of(const struct plan *p, struct saved *out);

/* Where checkpoints go.  Bytes/s; 0: not known.  `shared`: of all nodes together; `node`: of each. */
struct storage { double shared, node; };

struct save_times {
    double snapshot_s;              /* from device to pinned host memory, on the fullest node */
    double write_s, read_s;         /* below 0: the storage is not known */
};

/* The snapshot at the rate of space_cost.h's links.  Serialising (pickle) is left out. */
void saved_times(const struct plan *p, const struct saved *c, const struct storage *to, struct save_times *out);

#endif
