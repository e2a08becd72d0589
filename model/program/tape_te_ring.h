/* tape_te_ring.h -- attention of a context group's ranks as Transformer Engine does it with cp_comm_type p2p, Megatron-LM's default:
 * AttnFuncWithCPAndKVP2P of pytorch/attention/dot_product_attention/context_parallel.py (d0067d0d), positions dealt out head and tail.
 *
 * Forward: n steps; in each keys and values go on to the next rank beside the step's attention, n - 1 times, each into a buffer of its own.
 * What the steps leave is put together at the end, in fp32.  Kept are q, the last keys and values that came, output and log-sum-exp.
 * Backward: n steps the other way; in each goes on what the step reads (but for the last) and what was added up of its gradients (but for the
 * first), in the activations' dtype. */
#ifndef DPX_TAPE_TE_RING_H
#define DPX_TAPE_TE_RING_H

#include "model/program/tape_ring.h"

/* Of ranks, place, lse_numel, scratch, keys and flops; q, k and v each in one piece. */
var  te_ring_attention(struct tape *t, var q, var k, var v, const struct ring *r);

/* Backward of the node that it makes. */
void tape_run_te_ring(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
