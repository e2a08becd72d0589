/* tape_te_loss.h -- losses of logits that tensor-parallel ranks have cut by vocabulary. */
#ifndef DPX_TAPE_TE_LOSS_H
#define DPX_TAPE_TE_LOSS_H

#include "model/program/tape.h"

/* Cross-entropy of logits that lie cut by vocabulary: Megatron's own operations; its fusion "native"; Transformer Engine's kernel; NeMo-RL's
 * DistributedLogprob, of logits in fp32. */
enum te_loss { TE_LOSS_PLAIN, TE_LOSS_NATIVE, TE_LOSS_TE, TE_LOSS_DISTRIBUTED, TE_LOSS_CHUNKED };
var te_parallel_loss(struct tape *t, enum te_loss kind, var logits, var labels, int64_t ranks);
/* The same of so many elements of the logits, in 16 bits, at a time (ChunkedDistributedLogprob); the whole logits are what stays. */
var te_chunked_loss(struct tape *t, var logits, var labels, int64_t at_once, int64_t ranks);
/* Backward of its node: in place of what forward kept, or a new tensor. */
void te_loss_back(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES]);

#endif
