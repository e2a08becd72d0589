/* tape_te_context.h -- attention of a context group's ranks as Transformer Engine does it with cp_comm_type all_gather and a2a:
 * AttnFuncWithCPAndKVAllGather, AttnFuncWithCPAndQKVOA2A and flash_attn_a2a_communicate() of
 * pytorch/attention/dot_product_attention/context_parallel.py (d0067d0d), positions dealt out head and tail.  Its a2a+p2p is the
 * exchange around te_ring_attention().
 *
 * Gathered: keys, then values, of all ranks come in forward and again in backward, each by a gather that the next operation waits for, and are
 * copied into the sequence's order.  The rank's two chunks of queries meet the keys up to their end, on two streams (here one after the other).
 * Kept are q, the rank's own keys and values, the output, log-sum-exps.  Backward adds up gradients of all keys and scatters them.
 *
 * Exchanged: each tensor is copied so that a rank's heads lie together, goes out beside the copy of the next one, and is copied into
 * the sequence's order when it has come; the output goes back the same way. */
#ifndef DPX_TAPE_TE_CONTEXT_H
#define DPX_TAPE_TE_CONTEXT_H

#include "model/program/tape_ring.h"

/* Of ranks, place, group, lse_numel, scratch, keys and flops; q, k and v each in one piece.  `turns`: samples are outermost, and there
 * are several: what is cut out of positions is copied. */
var  te_gathered_attention(struct tape *t, var q, var k, var v, const struct ring *r, bool turns);

struct te_exchange { int64_t ranks; int group; bool turns; };      /* group: enum group */

/* q, k and v of this rank's positions become all positions of its heads; back the gradients the other way. */
void te_exchange_heads(struct tape *t, const var in[3], const struct te_exchange *x, var out[3]);
/* Of the numbers that attention has beside the scores, one a head, those of this rank's heads: a copy
 * (flash_attn_a2a_communicate_softmax_offset()); back all ranks' gradients are gathered.  Before te_exchange_heads(): its backward comes
 * behind that one's. */
var  te_own_sinks(struct tape *t, var sinks, const struct te_exchange *x);
/* The output of those heads becomes this rank's positions of all heads. */
var  te_exchange_positions(struct tape *t, var o, const struct te_exchange *x);

/* Backward of the nodes that these make. */
void tape_run_te_context(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
