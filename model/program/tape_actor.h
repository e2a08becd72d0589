/* tape_actor.h -- log-probabilities of the labels by hidden states and a head's weight, without whole logits: verl's two (January 2026) and TRL's
 * (1.15).  Of each row they have the entropy, too, which no gradient reaches here. */
#ifndef DPX_TAPE_ACTOR_H
#define DPX_TAPE_ACTOR_H

#include "model/program/tape_loss.h"

enum { ACTOR_CHUNK = 512, ACTOR_READS = 1024, ACTOR_COLUMNS = 9504 };     /* rows at a time; columns of a part of forward, and of backward */

/* FusedLinearForPPOFunction (utils/experimental/torch_functional.py): ACTOR_CHUNK rows of logits at a time by PyTorch's operations in fp32, and again in
 * backward. */
var  tape_actor_chunks(struct tape *t, const struct head_loss *h, var labels);
/* LinearCrossEntropy (utils/kernel/): Triton's kernel keeps three numbers a row; backward makes ACTOR_COLUMNS of the vocabulary's columns of the
 * logits' gradient at a time.  Where `ranks` share the vocabulary three all-reduces join what they have; 0: its group is none. */
var  tape_actor_kernel(struct tape *t, const struct head_loss *h, var labels, int64_t ranks);

/* ChunkedLogProbFunction (trl/kernels/chunked_logprob.py of 1.15 and 1.16): LOGPROB_ROWS x LOGPROB_COLUMNS logits at a time, folded into sums of
 * rows by Triton's kernel; backward makes each tile once more, its gradient in its place, and adds both products to sums in fp32. */
enum { LOGPROB_ROWS = 4096, LOGPROB_COLUMNS = 32768 };
var  tape_actor_tiles(struct tape *t, const struct head_loss *h, var labels);

/* Backward of the three. */
void tape_run_actor(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
