/* program_dpx.h -- what program_dpx.c (embedding, head, building) and
 * program_dpx_block.c (the block's kernels) share. */
#ifndef DPX_PROGRAM_DPX_H
#define DPX_PROGRAM_DPX_H

#include "model/program/tape_internal.h"
#include "model/program/torch_model.h"

enum { MAX_NORMS = 5 };        /* the last: of q and k */

/* Stores that one pass leaves for the other. */
struct kept {
    int x, norm1, qkv, qk_normed, attn, lse, mid, norm2, gate, up, product, post1, post2;
    int qkv_heads, attn_heads;  /* all positions of a context-parallel rank's heads */
    int low[SLOT_DLOW - SLOT_LOW_Q];    /* what adapters' A left, by slot */
    int stats[MAX_NORMS];
};

struct dpx {
    struct tape         t;
    const struct plan  *p;
    const struct model *m;
    int64_t n, e, h, q, kv, f;
    int64_t context;            /* ranks that share a sequence */
    int64_t ranks, r;           /* tensor-parallel ranks; positions of norms and residuals: r < n with `sequence` */
    bool    sequence;
    bool    split;              /* backward in two halves */
    bool    stages;             /* the embedding has token ids alone, labels come with the loss */
    const struct model *whole;
    int     block;              /* TENSOR_EMBED, 0, TENSOR_HEAD */
    bool    recompute;
    bool    again;              /* in backward: forward up to what backward reads */
    int     least;              /* backward ends at this part of the block (program_dpx_tune.c) */
    int     dx;                 /* gradient of the residual stream */
    int     dn;                 /* of a norm's output that attention and MLP share */
    int     dgathered;          /* the embedding's gradient, all positions */
    int     weight;             /* what the last product read in place of a weight's codes: it goes before the next kernel */
    int     x8;                 /* what float8 layers read in place of their input */
    enum tensor_role role;      /* of the next kernel */
    enum adapter adapter;       /* likewise */
    struct kept k;
};

static inline enum dtype dpx_dtype(const struct dpx *d) { return d->e == 4 ? DT_FP32 : d->p->precision; }


/* A tensor of the piece that backward needs; while `recompute`, of forward only. */
int  dpx_keep(struct dpx *d, enum slot slot, int64_t numel, int64_t e);
int  dpx_temp(struct dpx *d, enum slot slot, int64_t numel, int64_t e);
/* What a later piece will free: an activation whatever `recompute` says. */
int  dpx_hand_on(struct dpx *d, enum slot slot, int64_t numel, int64_t e);
void dpx_gone(struct dpx *d, int *store);
/* A parameter's gradient, complete after the last kernel. */
void dpx_param_grad(struct dpx *d, enum tensor_role role, bool bias, int64_t numel);
struct kernel *dpx_kernel(struct dpx *d, enum kernel_fn fn, const char *name, enum kernel_class kc, int64_t bytes);
struct kernel *dpx_gemm(struct dpx *d, enum kernel_fn fn, const char *name, int64_t m, int64_t n, int64_t k);
/* The next kernel reads the parameters of this role's module. */
void dpx_use(struct dpx *d, enum tensor_role role);
/* Statistics and output of a norm; which of the block's (0: first). */
int  dpx_norm(struct dpx *d, const char *name, enum tensor_role role, int which, enum slot out);
/* A norm's backward: gradients of its parameters; its statistics go. */
void dpx_norm_back(struct dpx *d, const char *name, enum tensor_role role, int which);
/* Backward of y[N, n] = x[N, k] W: dW and db, then x goes (0: it stays), then dX is
 * allocated, or added to if it exists. */
void dpx_linear_back(struct dpx *d, const struct gemm_names *names, enum tensor_role role, int64_t n,
                     int64_t k, int *x, int *dx, enum slot dx_slot);

/* The two by themselves. */
void dpx_linear_dw(struct dpx *d, const struct gemm_names *names, enum tensor_role role, int64_t n, int64_t k, int *x);
void dpx_linear_dx(struct dpx *d, const struct gemm_names *names, enum tensor_role role, int64_t n, int64_t k, int *dx,
                   enum slot dx_slot);

/* Where not everything trains (program_dpx_tune.c).  The parts of a block, as forward comes to them. */
enum dpx_part { DPX_BELOW = -1, DPX_NORM1, DPX_QKV, DPX_OUT, DPX_NORM2, DPX_UP, DPX_DOWN };
/* Where backward of a block ends: at the first part with something that trains, or below it.  The first block behind an embedding
 * that does not train: `first`. */
int  dpx_least(const struct dpx *d, bool first);
/* Does backward come to this part?  Does the layer hand a gradient on to what it reads? */
bool dpx_reaches(const struct dpx *d, enum dpx_part part);
bool dpx_passes(const struct dpx *d, enum tensor_role role);
/* Does the layer's weight, or its bias, train?  The tied head's is the embedding's. */
bool dpx_trains(const struct dpx *d, enum tensor_role role, bool bias);
/* Does backward of one of these layers read its input? */
bool dpx_reads(const struct dpx *d, enum tensor_role role);
/* An adapter beside the layer y[N, n] = x[N, k] W: low = s x A before it, y += low B behind it; and in backward its gradients
 * from dy, before x goes, and then what it adds to dx.  Without an adapter they do nothing. */
bool dpx_is_adapted(const struct dpx *d, enum tensor_role role);
void dpx_adapter_in(struct dpx *d, enum tensor_role role, int64_t k);
void dpx_adapter_out(struct dpx *d, enum tensor_role role, int64_t n);
void dpx_adapter_back(struct dpx *d, enum tensor_role role, int64_t n, int64_t k, int *dlow);
void dpx_adapter_dx(struct dpx *d, enum tensor_role role, int64_t k, int *dlow);
/* Before a product `fn` with a weight that is kept in codes (arch/packed.h): the store of all of it as numbers; 0. */
int  dpx_unpack(struct dpx *d, enum kernel_fn fn);
/* What follows an adapted layer that adds to the residual stream: its bias, dropout and the residual. */
void dpx_adapter_residual(struct dpx *d, enum tensor_role role);

/* torchao's float8 layers (program_dpx_float8.c).  Of other layers these do nothing, and return 0. */
/* Before a layer's product that reads its input of k numbers a token: that in 8 bits, unless a layer before had it.  Behind it: it goes,
 * unless the next layer of the pass reads it too. */
void dpx_float8_in(struct dpx *d, enum tensor_role role, int64_t k, enum pass pass);
void dpx_float8_read(struct dpx *d, enum tensor_role role, enum pass pass);
/* Before dW, or dX: the gradient of its output of n numbers a token in 8 bits, unless *dy8 is it. */
void dpx_float8_dy(struct dpx *d, enum tensor_role role, int64_t n, bool dx, int *dy8);
/* Before a product `fn` with the weight of the role that dpx_use() was given: the store of that in 8 bits. */
int  dpx_float8_weight(struct dpx *d, enum kernel_fn fn);

/* Tensor parallelism (Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2).  Where the model is not cut
 * these do nothing, and return 0. */
/* The rank's positions in `from` become all in `into`: a temporary. */
int  dpx_gather(struct dpx *d, enum slot from, enum slot into);
/* What the last kernel, a row-parallel product, left is added up, the residual to it, and the bias of `role`: the store of
 * `out`, held by `hold`. */
typedef int dpx_hold(struct dpx *d, enum slot slot, int64_t numel, int64_t e);
int  dpx_sum(struct dpx *d, enum tensor_role role, enum slot out, dpx_hold *hold);
/* The gradient *dn of a column-parallel product's input is added up; in a share of the positions, which is returned. */
int  dpx_sum_back(struct dpx *d);
/* The gradient of a row-parallel product's bias, which every rank adds to its positions. */
void dpx_bias_back(struct dpx *d, const char *name, enum tensor_role role);
/* Embedding, head and loss where the model is cut. */
int  dpx_cut_tokens(struct dpx *d);
void dpx_cut_tokens_back(struct dpx *d);
int  dpx_labels(struct dpx *d);                 /* of the kernel that first reads them, where they come with the loss; 0 */
int64_t dpx_logits(const struct dpx *d);        /* elements of a rank's logits */
int  dpx_cut_loss(struct dpx *d);
void dpx_cut_logits_back(struct dpx *d);
void dpx_logits_dx(struct dpx *d, int *all);    /* the gradient of the head's input, added up; *all goes (NULL: nothing) */

/* Context parallelism (program_dpx_context.c): attention of q, k, v and its output; its backward from da, which goes: the
 * store of dq, dk, dv. */
void dpx_context_attention(struct dpx *d);
int  dpx_context_attention_back(struct dpx *d, int *da);

/* A kernel of attention, every score of its squares counted; batch: heads times samples. */
struct kernel *dpx_attention(struct dpx *d, enum kernel_fn fn, const char *name, int64_t bytes, double flops, int64_t batch);

/* The block: forward returns the store of its output; backward starts from d->dx. */
int  dpx_block_forward(struct dpx *d);
void dpx_block_recompute(struct dpx *d);
void dpx_block_backward(struct dpx *d);
/* Attention's own backward: *da goes, the gradient of q, k and v comes. */
int  dpx_block_attention_back(struct dpx *d, int *da);
/* Backward in two halves, of a block and of the head, whose forward left these; returns the second's first kernel. */
struct dpx_head { int x, y, logits, losses; };
bool dpx_split_is(const struct dpx *d);      /* else there are no such kernels */
int  dpx_split_block(struct dpx *d);
int  dpx_split_head(struct dpx *d, struct dpx_head *h);
/* Selective recompute: the attention's output and log-sum-exp are not kept. */
void dpx_forget_attention(struct dpx *d);

#endif
