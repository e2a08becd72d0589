/* tape_ring.h -- attention over positions of which the context-parallel ranks have shares each: PyTorch's ring.
 *
 * torch/distributed/tensor/experimental/_context_parallel/_attention.py of 2.15 (_templated_ring_attention() and its
 * backward), operation by operation, as tests/golden/grid/ recorded it.  In n steps a rank's queries meet the keys and
 * values of every rank; partial outputs are merged in fp32.  Keys and values arrive by one all-gather, which is issued beside
 * the first step, or from the neighbour, one step ahead.  Backward does the same, and sends the gradients of keys and values,
 * in fp32, round the whole ring. */
#ifndef DPX_TAPE_RING_H
#define DPX_TAPE_RING_H

#include "model/program/tape.h"

struct ring {
    int64_t ranks, place;       /* of the context's group, and which of them this is */
    bool    rotates;            /* from the neighbour; else by an all-gather */
    bool    balanced;           /* head and tail: every step is half a square; else steps behind the causal mask are none */
    bool    one_kv_head;        /* keys and values lie in one piece: they are not copied before they are sent */
    int     group;              /* enum group: of Transformer Engine's ring; PyTorch's is the context's */
    int64_t lse_numel;          /* of the rank's own rows */
    int64_t scratch, keys;      /* bytes that a whole step's backward takes and gives back: with the queries, with the keys */
    double  flops;              /* of the rank's queries and as many keys, every score counted */
};

/* Elements of the output, whose heads have the width of values: of nq of queries, nk of keys (of the same width) and nv of values. */
static inline int64_t ring_output(int64_t nq, int64_t nk, int64_t nv) { return nv == nk ? nq : nq / nk * nv; }

/* Saves what op_attention() saves: q, k, v of `in`, output, log-sum-exp. */
var  tape_ring_attention(struct tape *t, const var in[3], const struct ring *r);

/* Backward of the node that it makes. */
void tape_run_ring(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
