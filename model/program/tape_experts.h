/* tape_experts.h -- the operations of a mixture of experts: choosing, sorting, grouped products, weighing.
 *
 * Each row of `rows` of grouped products belongs to an expert; tokens are taken to spread evenly, so that every expert has
 * as many.  What these save and allocate was recorded from transformers 5.23 (integrations/moe.py, tests/golden/memory). */
#ifndef DPX_TAPE_EXPERTS_H
#define DPX_TAPE_EXPERTS_H

#include "model/program/tape.h"

/* The same of Transformer Engine's GroupedLinear, which knows the numbers of rows on the host, adds biases (0: none) in the products, the weights'
 * gradients to main_grad by itself, and computes the rows' gradient first. */
var  tape_grouped_fused(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, int64_t experts, var w, var b);

/* The largest `used` of each row of x, of which there are `rows`; *index: their places, int64. */
var  tape_topk(struct tape *t, var x, int64_t rows, int64_t used, var *index);
/* x /= x.sum(-1), in place: its rows, and a copy of x, are saved. */
var  tape_normalise(struct tape *t, var x, int64_t rows);
/* into.scatter_(-1, index, x), of a tensor that needs no gradient: back, what is picked by index. */
var  tape_scatter(struct tape *t, const char *name, var into, var index, var x);
/* x[index]: so many elements; back into zeros of x's size. */
var  tape_pick(struct tape *t, const char *name, var x, var index, int64_t numel);
/* x.index_select(0, index): back by index_add_(), an atomic for each number. */
var  tape_take_rows(struct tape *t, const char *name, var x, var index, int64_t numel);
/* x.gather(0, index) with an index as wide as x's rows: the same, and x is saved, which gather_backward() is handed (derivatives.yaml). */
var  tape_gather_rows(struct tape *t, const char *name, var x, var index, int64_t numel);
/* zeros.scatter_add_(0, index, x) of so many elements, an atomic for each number of x; back by gather(). */
var  tape_add_rows(struct tape *t, const char *name, var x, var index, int64_t numel);
/* Transformer Engine's map of rows, int32[tokens, 2 experts + 1]: the rows to which each token goes, of which experts they are, and how many. */
var  tape_row_map(struct tape *t, int64_t tokens, int64_t experts);
/* Transformer Engine's permute with a map of rows, which it saves: each row of x[tokens, width] goes to the rows of its experts, and its weights beside it,
 * in one kernel.  The rows[rows, width]; *weights becomes their weights[rows]. */
var  tape_permute(struct tape *t, const char *name, var x, var *weights, var map, int64_t rows, int64_t width);
/* y[rows, n] = x[rows, k] W[expert of the row], `experts` products in one kernel; saves `offsets` beside x and w. */
var  tape_grouped(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, int64_t experts, var w, var offsets);
/* torch.baddbmm(w, a, b) of `experts` matrices: w[m, n] beside a[m, k] b[k, n], in a tensor of its own.  w needs no gradient.  `once`: the result
 * goes at once, and nothing of it is kept. */
var  tape_merge(struct tape *t, const char *name, var w, var a, var b, int64_t experts, const int64_t mnk[3], bool once);
/* x times one number a row, in the wider dtype. */
var  tape_weigh(struct tape *t, const char *name, var x, var w);
/* n tensors in one piece; back, a view of the gradient for each. */
var  tape_cat(struct tape *t, const char *name, const var *x, int n);
/* Every `n` rows of x added up; back, each gradient n times. */
var  tape_sum_rows(struct tape *t, const char *name, var x, int64_t n);

/* Backward of tape_weigh()'s node; and what the engine makes of its second gradient once the node has let go of what it saved. */
void tape_weigh_backward(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES]);
void tape_weigh_rows(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
