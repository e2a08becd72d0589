/* checkpoint.h -- the whole training state in a folder, so that a run that was killed goes on bit for bit.
 *
 *     FOLDER/step-00000040/checkpoint.json       the step, the loss scale, what the run was given, each rank's bytes and hash
 *     FOLDER/step-00000040/rank-00003.state      what outlives a step on that rank (exec_state_out()), part by part
 *
 * Each rank writes its own file, so a replica's state is written once a rank.  A checkpoint is whole or not there: ranks write into
 * step-00000040.partial, every file is on disk (fsync) before rank 0 writes checkpoint.json, and only then the folder is renamed.  What
 * a run that was killed left half written is removed by the next save.  The last two checkpoints are kept.
 *
 * All ranks must see the folder.  A file is checked part by part as it is read (XXH64): a checkpoint that is damaged is refused. */
#ifndef DPX_CHECKPOINT_H
#define DPX_CHECKPOINT_H

#include <jansson.h>

#include "exec/train/train.h"

enum { CHECKPOINTS_KEPT = 2 };

/* One save or load: seconds until all ranks were done; bytes of all ranks' buffers. */
struct checkpoint_moved { int64_t step, bytes; double seconds; };

/* After a step, on every rank.  `run`: what must be the same in a run that goes on; rank 0's.  0, or -1 on all ranks. */
int checkpoint_save(struct train *t, const char *folder, int rank, json_t *run, struct checkpoint_moved *out);

/* The newest checkpoint of a folder: its step into *step, 0: there is none; *run: what its run was given (a new reference; NULL where
 * there is none).  0, or -1 reported: it cannot be read. */
int checkpoint_newest(const char *folder, int64_t *step, json_t **run);

/* In the place of the steps up to `step`, on every rank; the train was opened with `resume`.  0, or -1 on all ranks. */
int checkpoint_load(struct train *t, const char *folder, int rank, int64_t step, struct checkpoint_moved *out);

#endif
