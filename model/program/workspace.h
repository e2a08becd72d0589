/* workspace.h -- what the executor's host kernels and collectives work in, beside the arena.
 *
 * exec/kernels/kernels.h and exec/comm/comm.h take these bytes; tests/exec/test_workspace.c holds the two
 * against each other. */
#ifndef DPX_WORKSPACE_H
#define DPX_WORKSPACE_H

#include "model/plan/plan.h"

/* The workspace of a rank's compute stream with so many threads: the largest of what products
 * (tiles of widened operands, oneDNN's scratchpads), attention (packed k and v, a block of
 * scores), norms (partial sums) and embeddings (rows by token) need.  kernels_workspace(). */
int64_t workspace_kernels(const struct plan *p, int threads);

/* On a CUDA device: 32 MiB for cuBLASLt, and the largest of what weights that are cast (autocast) and a
 * strip of a product, sums of columns, norms and embeddings need.  exec/cuda/kernels_cuda.h has the terms,
 * kernels_cuda_workspace(); tests/emu/test_kernels_cuda.c holds the two against each other. */
int64_t workspace_device(const struct plan *p);

/* Staging of one communicator: two areas for pieces of at most 4 MiB on their way; 0 for one
 * rank alone.  comm_staging(). */
int64_t workspace_staging(int64_t ranks);

#endif
