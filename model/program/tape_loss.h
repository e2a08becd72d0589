/* tape_loss.h -- cross-entropies on the tape: of logits, or of hidden states and the head's weight without logits. */
#ifndef DPX_TAPE_LOSS_H
#define DPX_TAPE_LOSS_H

#include "model/program/tape_internal.h"

/* Mean negative log likelihood of log-probabilities. */
var  op_nll(struct tape *t, var logp, var labels);
/* A number from every element; back, as many gradients. */
var  op_mean(struct tape *t, const char *name, var x);
/* Cross-entropy of rows of logits by one kernel each way: keeps logits, labels and so many numbers a row.  `named`: the training loop has a name for these very
 * logits until the next ones are there (loss_kept_bytes()), and they are not counted twice. */
var  op_fused_loss(struct tape *t, const char *name, var logits, var labels, int64_t width, int numbers, bool named);
/* The same where backward writes the gradient over the logits (flash-attn's inplace_backward). */
var  op_fused_loss_in_place(struct tape *t, const char *name, var logits, var labels, int64_t width);
/* verl's entropy_from_logits() by torch.compile: of each row the largest logit, the sum and their logarithm are kept beside the logits. */
var  op_entropy(struct tape *t, const char *name, var logits, int64_t width);
/* The same uncompiled. */
var  op_entropy_eager(struct tape *t, var logits, int64_t width);
/* Liger-Kernel's LigerCrossEntropyFunction: forward writes the gradient over rows of `width` logits, and keeps that alone. */
var  op_in_place_loss(struct tape *t, const char *name, var logits, int64_t width);

/* Logits of x[rows, k] and W[n, k]. */
struct head_loss {
    const struct gemm_names *names;
    const char *name;
    var         x, w;
    int64_t     n, k;
    int64_t     chunk;              /* op_linear_loss: rows at a time */
    bool        autocast;           /* products are in bf16, whatever x and W are in */
    bool        narrow_sums;        /* products of 16 bits cannot add to a gradient in fp32 (before compute capability 8, PyTorch 2.8) */
};

/* Liger-Kernel's LigerFusedLinearCrossEntropyFunction: logits of some rows at a time, whose gradients go into those of x and W in forward.
 * *cast: autocast's copy of W, which it keeps until it is left (the caller drops it); 0: none. */
var  op_linear_loss(struct tape *t, const struct head_loss *h, var *cast);
/* Apple's cut cross-entropy (cut_cross_entropy.LinearCrossEntropyFunction) of x and W in 16 bits: logits stay on the processors, forward keeps
 * the log-sum-exp of rows, backward computes logits again and adds to both gradients. */
var  op_cut_loss(struct tape *t, const struct head_loss *h, var labels);

/* Backward of op_cut_loss(), and of losses whose forward made the gradients (NODE_MADE). */
void tape_run_loss(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
