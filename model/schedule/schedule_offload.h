/* schedule_offload.h -- what blocks keep from forward to backward waits in host memory: one pass over finished
 * schedules, whatever the strategy.
 *
 * Behind the last entry of a block's forward follows a copy of all that the block keeps, which frees it on the device;
 * before the first entry of its backward a copy that brings it back.  Where kernels copy what they save, tensor by tensor, the
 * copies of a pass are one entry: as each holds the thread, or the stream, their time and bytes add up.
 *
 *   blocking   torch.autograd.graph.save_on_cpu(): `packed.copy_(tensor)` holds the issuing thread until the copy is done;
 *              the way back is on the compute stream, and holds the thread too where the memory is pageable.
 *   streams    both ways have a stream.  The next block computes while a block's activations leave; the one after it
 *              waits for them.  A block's come back while the block behind it runs backward.  So at most those of two
 *              blocks are on the device. */
#ifndef DPX_SCHEDULE_OFFLOAD_H
#define DPX_SCHEDULE_OFFLOAD_H

#include "model/schedule/schedule.h"

struct offload_way {
    enum space to;                  /* SPACE_PINNED or SPACE_HOST */
    bool streams;
    bool recomputed;                /* blocks that are recomputed alone */
    bool saved;                     /* what the kernels say that they copy (struct kernel's `copied`), of all pieces: their memory on
                                     * the device is the program's */
    bool rounds;                    /* with `saved`: each tensor takes a power of two there */
    int64_t (*room)(int64_t bytes); /* of one tensor there */
};

void schedules_offload(struct schedules *s, const struct offload_way *way);

#endif
