/* tape_te.h -- the autograd functions that Megatron-LM's models are made of: Transformer Engine's and its own.
 *
 * Read at Transformer Engine d0067d0d (pytorch/module/{layernorm_linear,linear,base}.py, pytorch/distributed.py) and Megatron-LM d98e8a64
 * (core/tensor_parallel/{layers,mappings,cross_entropy}.py, core/fusions/).  Positions come first, [s, b, h]: what ranks gather or
 * scatter lies in one piece, and nothing is sorted.
 *
 * A weight's gradient is added to its fp32 `main_grad` by the product itself (gradient_accumulation_fusion): it takes no memory here.
 * Other parameters' gradients are tensors; DistributedDataParallel's hook adds them to main_grad and drops them (tape.h, main_grad). */
#ifndef DPX_TAPE_TE_H
#define DPX_TAPE_TE_H

#include "model/program/tape.h"

/* y = norm(x), a module of its own or part of the layer that reads y: keeps x and a row's 1/sigma, of a LayerNorm its mean too.  `f` is of the layer that reads y: where its scales
 * are known before, y is written as codes. */
var te_norm(struct tape *t, const char *name, var x, int64_t rows, var w, var b, bool rms, const struct te_scaled *f, bool module);

/* What a layer's tensors are, and how ranks share them. */
struct te_linear {
    struct gemm_names names;
    int64_t n, k;                   /* output and input features that this rank has */
    var     weight[3], bias[3];     /* 0: none.  A fused layer has one of each; those that are kept apart count as one */
    int64_t ranks;                  /* tensor-parallel; 1: none */
    bool    sequence;               /* x (column) or y (row) is a share of the positions */
    bool    overlaps;               /* tp_comm_overlap: see te_column(), te_row() */
    bool    buffered;               /* what is gathered lies in Megatron's buffer "mpu" (te_buffer_bytes()), not in a tensor of its own */
    bool    zeroed;                 /* its weight is the embedding's too: a gradient of zeros goes on to autograd (zero_out_wgrad) */
    struct te_scaled scaled;        /* of 8 or 4 bits: te_column() takes over the name x, a norm's result, and keeps its codes; */
    bool    original;               /* with `scaled`: x is kept as it came (set_save_original_input(): something else keeps it too), and backward casts it again */
    bool    frozen;                 /* its weight does not train: it keeps no input, and backward has one product */
    bool    core;                   /* megatron-core's own, whose weight trains: backward makes its input's gradient, wanted or not */
    bool    module;                 /* a module of Transformer Engine's, with its Python; the output layer and adapters are others' */
    bool    returned;               /* LayerNormLinear hands out what its product read, for an adapter: te_column_returning() */
    bool    plain;                  /* where no norm is part of the layer (Linear beside LayerNormLinear) it casts x itself, whose name stays the caller's */
};

/* Column parallel: gathers the positions of x, keeps x as it came.  Backward gathers x again beside the product of x's gradient,
 * and scatters (or, without sequence parallelism, adds up) that beside the product of the weight's.
 *
 * Where the layer overlaps (tp_comm_overlap_ag, _rs; userbuffers' ring), forward's gather and a row-parallel layer's in backward come part by
 * part, each beside the product of the part before it; what a row-parallel product makes goes out part by part, each beside the product of the
 * next, and is added up at the end.  What is gathered lies in userbuffers, which are registered once. */
var te_column(struct tape *t, const struct te_linear *l, var x);
/* The same; what the product read in 16 bits goes to `read`: x, or where the layer gathers without overlap and `returned` is set all positions of it
 * (return_layernorm_output_gathered).  No gradient of what was gathered gets to x: since #1711 Transformer Engine's backward drops it. */
var te_column_returning(struct tape *t, const struct te_linear *l, var x, var *read);
/* Row parallel: y is scattered or added up.  Backward gathers y's gradient first.  Its bias is left to the caller. */
var te_row(struct tape *t, const struct te_linear *l, var x);

/* dropout(x + b) + residual, one kernel (inductor's); keeps a mask where p > 0. */
var te_bias_dropout_add(struct tape *t, const char *name, var x, var b, var residual, double p);
/* An activation with x's bias in one kernel, of x's two halves where `gated`: keeps x. */
var te_activation(struct tape *t, const char *name, var x, var b, bool gated);
/* The same of two halves, a row times its weight `w`: keeps x and w, whose gradients come from one kernel. */
var te_weighted_activation(struct tape *t, const char *name, var x, var w);
/* Rotary positions of a part of a tensor, a copy; and a copy in one piece. */
var te_rotate(struct tape *t, const char *name, var x);
var te_contiguous(struct tape *t, const char *name, var x);

/* Fused attention of q, k and v; or of q alone, in which all three lie (k, v: 0); with a number a head beside the scores (`sinks`), or 0.  `numel`
 * elements of output. */
var te_attention(struct tape *t, var q, var k, var v, var sinks, int64_t numel, int64_t lse_numel, int64_t scratch, double flops);

/* Between the embedding and the blocks. */
enum te_moved {
    TE_SUM,                         /* parts of a sum, added up; back: as it is */
    TE_SCATTER,                     /* the same, a share of the positions; back: gathered */
    TE_SPLIT,                       /* a share of what each rank has, copied; back: gathered */
    TE_GATHER,                      /* what all ranks have; back: parts of a sum, added up, the rank's own */
    TE_GATHER_OWN,                  /* the same, of which all ranks make the same; back: the rank's own, copied */
};
var te_move(struct tape *t, enum te_moved how, var x, int64_t ranks);

/* Rows of this rank's part of the vocabulary. */
var te_embedding(struct tape *t, const char *name, var ids, int64_t width, var w, int64_t ranks);

/* Backward of the nodes that these make. */
void tape_run_te(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES]);

#endif
