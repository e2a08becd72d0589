/* flops.h -- model FLOPs per token, by the conventions that published MFUs use.
 *
 * MFU = model FLOPs a second / datasheet peak; HFU counts what is computed twice as well.
 * Two MFUs compare only under one convention, which is therefore named everywhere.
 * Backward is twice forward, of weights that do not train once; causal masks, dropout, norms and softmax count nothing. */
#ifndef DPX_FLOPS_H
#define DPX_FLOPS_H

#include "model/plan/plan.h"

enum flop_convention {
    FLOPS_PALM,         /* 6N + 12 L h_q s: all parameters, full attention (PaLM; llm-foundry) */
    FLOPS_CAUSAL,       /* 6N + 6 L h_q s: attention's lower half (llm.c) */
    FLOPS_MATMUL,       /* 6(N - token embedding) + 12 L h_q s: products only (torchtitan) */
    NFLOP_CONVENTION
};

/* "6N + 12LHQT" and so on, with what N is. */
const char *flop_convention_name(enum flop_convention f);

/* The same for a model: of a mixture of experts N counts the experts that a token takes; weights that do not train have no gradient. */
const char *flop_convention_of(const struct model *m, enum flop_convention f);

/* Forward and backward, FLOPs per token at sequence length seq; h_q = heads * head_dim. */
double flops_per_token(const struct model *m, int64_t seq, enum flop_convention f);

/* With what recomputation repeats: one forward of the blocks' share (`full`), attention's core or the modules that are named
 * (`selective`), products that are not saved (`op`), over every recompute_interval-th block. */
double flops_hardware_per_token(const struct plan *p, enum flop_convention f);

/* The dense datasheet peak that a precision is held against, FLOP/s; 0 on hosts. */
double flops_peak(const struct cluster *c, enum dtype precision);

/* " of the dense bf16 peak, 989.4 TFLOP/s", what the shares below are of; "" on hosts. */
void flops_peak_text(const struct plan *p, char *to, size_t size);

/* Shares of the peak, by tokens per second of one GPU.  0 where there is no peak. */
double flops_mfu(const struct plan *p, enum flop_convention f, double tokens_per_s_per_gpu);
double flops_hfu(const struct plan *p, enum flop_convention f, double tokens_per_s_per_gpu);

#endif
