/* handover.h -- how a trainer's weights reach an engine: bytes, seconds, and what is held on the way.
 *
 *     struct handover h;
 *     if (handover_of(&plan, &engine, kept, &(struct handover_way){ .apart = &both }, &h) < 0)
 *         return 2;
 *
 * 1. Weights that are shared out (FSDP, ZeRO-3) are gathered over all ranks, a tensor at a time or in buckets, in the dtype in which they are
 *    kept: TRL param.full_tensor() or FSDP.summon_full_params() (trl/generation/vllm_generation.py: _iter_named_params()), verl
 *    full_tensor() into buckets of update_weights_bucket_megabytes.
 *    Megatron-LM's are broadcast, each rank's part, from the stage of a pipeline that has them, and gathered over expert ranks and tensor
 *    ranks (verl 0.7.0, utils/megatron_utils.py: per_tensor_generator()).
 * 2. Colocated, each rank of the engine takes its part: a copy within the GPU, read once and written once (load_weights(); between processes
 *    by a handle of CUDA IPC, which copies nothing).  Apart, one rank broadcasts each tensor to all ranks of all engines
 *    (trl/generation/vllm_client.py: update_named_params()): every byte crosses the network once.
 * 3. Overlapped, the next bucket is gathered while the last one is on its way and loaded, and apart all ranks of both sides take part in the broadcast,
 *    which so has all adapters of a node (NeMo-RL from 0.4 on: utils/packed_tensor.py, models/policy/utils.py: stream_weights_via_ipc_zmq_impl(),
 *    distributed/stateless_process_group.py): the longest of the three decides.
 *
 * On the way a rank holds one bucket, or the largest tensor, in the dtype in which it is kept, and in the engine's where that is another. */
#ifndef DPX_HANDOVER_H
#define DPX_HANDOVER_H

#include "model/plan/plan.h"
#include "sim/phases/engine.h"
#include "sim/price/cost.h"

struct handover {
    int64_t bytes;                  /* of the whole model, in the engine's dtype */
    int64_t gathered;               /* in the trainer's: 0 where every rank has all of it */
    int64_t calls;                  /* of the gather */
    int64_t tensors;                /* of a checkpoint, each expert's its own: the frameworks take a while for each (handover.c) */
    int64_t peak;                   /* on a rank of the trainer, on top of what it holds */
    struct cost time;
};

struct handover_way {
    const struct cluster *apart;    /* GPUs of both sides together; NULL: they share them */
    int64_t bucket;                 /* bytes; 0: a tensor at a time */
    bool    overlapped;
};

/* `kept`: bytes of an element as the trainer keeps it.  0, or -1 reported. */
int handover_of(const struct plan *p, const struct engine *e, int64_t kept, const struct handover_way *way, struct handover *out);

#endif
