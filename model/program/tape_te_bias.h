/* tape_te_bias.h -- biases that Megatron-LM adds by kernels of their own: of models whose experts have some, which rules out its fusion of bias,
 * dropout and residual (experts.py, TEGroupedMLP).  megatron-core 0.16.1: fusions/fused_bias_dropout.py, _bias_dropout_add_func();
 * moe/experts.py, _apply_bias(). */
#ifndef DPX_TAPE_TE_BIAS_H
#define DPX_TAPE_TE_BIAS_H

#include "model/program/tape.h"

/* x + b, a new tensor. */
var te_bias_add(struct tape *t, const char *name, var x, var b);
/* Of rows of x by expert, of whom there are so many: each with its expert's bias times its own weight w; then in one piece. */
var te_bias_of_experts(struct tape *t, const char *name, var x, var b, var w, int64_t experts);

/* Backward of the nodes that these make. */
void tape_run_te_bias(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
