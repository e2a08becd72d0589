/* program.h -- the block programs: which kernels run in one pass over the
 * embedding, over a block, over the head, and what memory each needs.
 *
 * A program has four pieces.  Identical blocks share one piece; a block whose
 * activations are recomputed has a piece of its own.  Every piece has a forward
 * and a backward list of kernels, in the order in which they are issued.
 * Compute entries of a schedule are segments [k0,k1) of such a list.
 *
 * Memory is counted relative to the moment before the segment:
 *   activations   what autograd keeps for backward (forward adds, backward frees)
 *   temporaries   what lives only while kernels run, gradients of activations too
 *   grads         gradients of parameters as they are produced
 * `peak` is taken at the one moment at which the three together are largest.
 *
 * Which tensors a kernel set saves is that of the named implementation:
 * `torch-eager` and `torch-sdpa` are the transformers modelling code under
 * autograd (sizes rounded up to 512 bytes per storage, as PyTorch's allocator
 * does), `dpx` is exec/'s own kernels.  Sources in README.md. */
#ifndef DPX_PROGRAM_H
#define DPX_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "model/arch/recorded.h"
#include "model/family/hybrid.h"
#include "model/plan/attention.h"

/* Where some layers have a mask and others none (program_attends_twice()), those that have are PIECE_WINDOWED.  PIECE_DENSE is a block
 * without experts where others have some.  PIECE_MIXER + 4 * enum block_kind is one that has that mixer alone (hybrid.h), 1 more is
 * recomputed, 2 more are in 16 bits as PIECE_UNSCALED is.  PIECE_UNSCALED is in 16 bits where others are cast to 8 or 4 (program_unscaled()).  PIECE_FIRST is
 * block 0 where its input needs no gradient, as behind an embedding that does not train.  PIECE_KIND + i: the i-th kind of a recorded
 * model's units. */
enum piece_id { PIECE_EMBED, PIECE_BLOCK, PIECE_BLOCK_RECOMPUTED, PIECE_WINDOWED, PIECE_WINDOWED_RECOMPUTED,
                PIECE_DENSE, PIECE_DENSE_RECOMPUTED, PIECE_MIXER, PIECE_FIRST = PIECE_MIXER + 4 * NBLOCK_KIND, PIECE_FIRST_RECOMPUTED, PIECE_UNSCALED, PIECE_UNSCALED_RECOMPUTED,
                PIECE_KIND, PIECE_HEAD = PIECE_KIND + RECORDED_KINDS, PIECE_RECEIVED, PIECE_SENT, PIECE_BLOCK_SPLIT, PIECE_HEAD_SPLIT, NPIECE };
/* In a pipeline PIECE_RECEIVED stands for the embedding where another stage has it, PIECE_SENT for the head.
 * They compute nothing.  RECEIVED: forward's first kernel allocates what is received, its second is where forward
 * begins; backward frees the gradient that was sent.  SENT: forward frees what was sent; backward's first
 * kernel allocates the gradient that is received, its second is where backward begins. */
/* PIECE_BLOCK_SPLIT and PIECE_HEAD_SPLIT have a backward only, in two halves: kernels [0, split) make gradients of
 * inputs, those from `split` on gradients of weights.  With megatron.defer_embedding_wgrad_compute: the head's backward without its weight's
 * gradient, and that (program_defer.c). */
enum stage_edge { EDGE_TENSORS, EDGE_REST };
enum pass     { PASS_FORWARD, PASS_BACKWARD, NPASS };
enum mem      { MEM_ACTIVATIONS, MEM_TEMPORARIES, MEM_GRADS, NMEM };

enum kernel_class { KC_GEMM, KC_ATTENTION, KC_NORM, KC_ELEMENTWISE, KC_SOFTMAX, KC_EMBEDDING,
                    KC_LOSS, KC_COPY, NKERNEL_CLASS };

/* Kernels of our own executor: what runs, on whose parameters, and where its operands lie. */
enum kernel_fn {
    FN_NONE,                        /* frees only; or a kernel of another implementation */
    FN_EMBED, FN_POSITIONS, FN_NORM, FN_LINEAR, FN_ROTARY, FN_ATTENTION, FN_ACTIVATION, FN_LOSS,
    FN_EMBED_BACK, FN_POSITIONS_BACK, FN_NORM_BACK, FN_LINEAR_DW, FN_LINEAR_DX, FN_ROTARY_BACK,
    FN_ATTENTION_BACK, FN_ACTIVATION_BACK, FN_OUTPUT_BACK, FN_Q_NORM, FN_Q_NORM_BACK,
    /* Of tensor-parallel ranks: this rank's rows of the vocabulary, a row-parallel product's part of a sum, what follows
     * the sum, that product's bias, cross-entropy of cut logits. */
    FN_EMBED_ROWS, FN_EMBED_ROWS_BACK, FN_LINEAR_PART, FN_RESIDUAL, FN_LINEAR_DB,
    FN_LOGITS_MOST, FN_LOGITS_LABEL, FN_LOGITS_SUM, FN_LOGITS_LOSS, FN_LOGITS_WHOLE,
    FN_NORM_BACK_KEPT,              /* its parameters' gradients wait in a place, until FN_GRAD_KEPT hands them out */
    FN_GRAD_KEPT,
    /* Of context-parallel ranks (program_dpx_context.c). */
    FN_KEYS,                        /* k and v in one piece, to be sent */
    FN_ATTENTION_PART,              /* the queries meet the keys of step `step`; added to what steps before left */
    FN_ATTENTION_SUM,               /* what the steps left in fp32 becomes the output */
    FN_ATTENTION_DELTA, FN_ATTENTION_PART_BACK,
    FN_DKEYS_ADD, FN_DKEYS_JOIN,    /* what other ranks added up; and is the rank's own, with dq in fp32 */
    FN_DEAL, FN_COLLECT,            /* tensor `step` (enum dealt) in parts for each rank; and what came */
    FN_UNPACK,                      /* numbers of a weight's codes */
    FN_ADAPTER_DROP, FN_ADAPTER_DROP_BACK,  /* what an adapter reads, dropped; its gradient, dropped alike, added to the layer's */
    FN_FLOAT8_X, FN_FLOAT8_W, FN_FLOAT8_DY, /* a float8 layer's input, weight and output's gradient, rounded to 8 bits; of a weight that was
                                     * gathered in float8, the numbers of its codes */
    NKERNEL_FN
};

/* What an all-to-all between positions and heads moves. */
enum dealt { DEALT_QKV, DEALT_ATTN, DEALT_DA, DEALT_DQKV };

/* The tensors that pass between kernels of a block.  IDS and DX belong to the micro-step, the
 * others to a block; Y, what a block leaves, is the X of the next. */
enum slot {
    SLOT_NONE, SLOT_IDS, SLOT_X, SLOT_NORM1, SLOT_QKV, SLOT_QK_NORMED, SLOT_ATTN, SLOT_LSE, SLOT_MID,
    SLOT_NORM2, SLOT_GATE, SLOT_UP, SLOT_PRODUCT, SLOT_POST1, SLOT_POST2, SLOT_Y, SLOT_STATS1,
    SLOT_STATS2, SLOT_STATS3, SLOT_STATS4, SLOT_STATS5, SLOT_LOGITS, SLOT_LOSSES, SLOT_DX, SLOT_DN,
    SLOT_DY, SLOT_DU, SLOT_DG, SLOT_DA, SLOT_DELTA, SLOT_DQKV,
    /* Of tensor-parallel ranks: all positions of what a norm left, and of a gradient; a part of a sum; the rank's share of
     * a gradient that was one. */
    SLOT_GATHERED, SLOT_DGATHERED, SLOT_PARTIAL, SLOT_DSHARE,
    /* Of context-parallel ranks: keys and values of this step and of the next, or of all ranks; their gradients of this step and of
     * the next, or for all ranks, and what came of the own; sums in fp32 of the output and of dq. */
    SLOT_KEYS, SLOT_KEYS_NEXT, SLOT_DKEYS, SLOT_DKEYS_NEXT, SLOT_DKEYS_IN, SLOT_ATTN_SUM, SLOT_DQ_SUM,
    /* An all-to-all's parts; all positions of the rank's heads. */
    SLOT_SENT, SLOT_CAME, SLOT_QKV_HEADS, SLOT_ATTN_HEADS, SLOT_DA_HEADS, SLOT_DQKV_HEADS,
    SLOT_LABELS,                    /* where another stage of a pipeline has the ids */
    /* Of a backward in two halves: the gradient of attention's output, and those of norms' parameters, which wait. */
    SLOT_DY_OUT, SLOT_DNORM1, SLOT_DNORM2,
    SLOT_DGATHERED_OUT,             /* SLOT_DY_OUT of all positions */
    /* What an adapter's A leaves, scaled, of each layer that may have one; and its gradient. */
    SLOT_LOW_Q, SLOT_LOW_K, SLOT_LOW_V, SLOT_LOW_OUT, SLOT_LOW_GATE, SLOT_LOW_UP, SLOT_LOW_DOWN, SLOT_DLOW,
    SLOT_DROPPED,                   /* what an adapter's A reads behind its dropout, or the gradient of that */
    SLOT_WEIGHT,                    /* of a frozen weight that is kept in codes, or a float8 layer's: its numbers, for one product */
    SLOT_X8, SLOT_DY8,              /* a float8 layer's input and output's gradient, rounded; as SLOT_WEIGHT is then, with the scale behind */
    NSLOT
};

/* A tensor comes (before the kernel runs) or goes (after it). */
struct place { uint8_t slot, mem; bool comes; int64_t bytes; };

/* A kernel's requests to PyTorch's allocator, in order; for kernels of PyTorch.  A tensor's name holds within its
 * piece, forward and backward.  A tensor that no pass of its piece frees (a block's output) is freed by another
 * piece, which finds it by its size and the pass that made it. */
enum move_kind {
    MOVE_ALLOC,
    MOVE_FREE,
    MOVE_FREE_OTHERS,               /* a tensor of another piece, made in pass `pass` */
    MOVE_FREE_LEFT,                 /* all tensors marked LEFT_TO_HEAD of all blocks */
    MOVE_FREE_HELD,                 /* the same, LEFT_TO_END */
    MOVE_GRAD,                      /* a temporary becomes a gradient of a parameter */
    MOVE_READY,                     /* a gradient is handed out */
};
/* A tensor that every block makes and none frees: the head's forward does, or the embedding's backward, the last of it all. */
enum left { LEFT_NOT, LEFT_TO_HEAD, LEFT_TO_END };
/* experts: what is handed out is of weights of experts, which may be a unit of their own. */
struct move { int64_t bytes; int32_t tensor; uint8_t kind, mem, pass, left; bool handed_on, experts; int16_t param; };   /* param: the piece's tensor, of MOVE_READY */

/* Which scores a fused attention is after: half of a square, behind the causal mask; or all, of other context ranks' keys. */
enum attends { ATTENDS_BEFORE, ATTENDS_ALL, ATTENDS_ALL_BACK };

/* Modules of Transformer Engine, whose Python the issuing thread runs; gradients of weights that a hook adds to main_grad one by one; and Megatron-core's
 * router and dispatcher of a mixture, with gradients and without. */
enum te_python { TE_PYTHON_NONE, TE_PYTHON_LINEAR, TE_PYTHON_NORM, TE_PYTHON_ATTENTION, TE_PYTHON_GRADS, TE_PYTHON_DISPATCH, TE_PYTHON_DISPATCH_BARE };

struct kernel {
    const char       *name;         /* "qkv", "attention", "mlp down dW" ... */
    enum kernel_class kind;
    double            flops;        /* multiply and add count two; causal attention counted full */
    int64_t           bytes;        /* read and written, each operand once */
    int64_t           m, n, k, batch;   /* GEMM: batch times C[m,n] += A[m,k] B[k,n]; else 0, but for
                                         * `dpx` attention: batch, its heads times samples */
    int64_t           sums;         /* of bytes, those of a GEMM's result that it reads and writes, where it adds to it; 0: it writes it alone */
    int               module;       /* whose parameters it reads, as an index of the piece's modules
                                     * (0 = the piece's first); -1 none, MODULE_TIED */
    int               half;         /* 0 attention half of a block, 1 MLP half */
    uint8_t           attends;      /* enum attends */
    uint8_t           scaled;       /* enum scaled: the format of a product's operands */
    bool              captured;     /* a CUDA graph replays it (program_graphs.h) */
    bool              apart;        /* its `batch` products are launched one by one, on streams of their own */
    uint8_t           te_module;    /* enum te_python: it stands for a module of Transformer Engine */
    int64_t           adds;         /* numbers that it adds to memory by an atomic each: scatter_add_(), index_add_() */
    int               chunks;       /* tensors that it joins or cuts apart, which the issuing thread handles one by one; 0: few */
    uint8_t           rough;        /* its time is known within this factor either way; 0: as its class's (program_recorded.c) */
    uint8_t           fn, role, adapter;    /* enum kernel_fn; enum tensor_role and enum adapter of its parameters.  `dpx` only */
    int16_t           step;         /* of a ring: from how many ranks before this one its keys are; of FN_DEAL, FN_COLLECT: enum dealt;
                                     * of FN_FLOAT8_*: enum float8_by */
    int               collective;   /* 1 + which collective of its pass it is, from the tape on; 0: none */
    int               place0, nplaces;  /* its piece's places; gradients of parameters are not among
                                     * them: ready[] tells */
    int               move0, nmoves;    /* its piece's moves */
    int64_t           peak[NMEM];   /* above the live bytes before this kernel, at the fullest moment in it */
    int64_t           net[NMEM];    /* change of the live bytes once it is done; grads: KEEP convention */
    int64_t           copied;       /* saved tensors that it sends to the host, in backward those that it brings back */
    int64_t           pinned;       /* the same as powers of two, each tensor's */
    int64_t           ready_bytes;  /* of the gradients in ready[] */
    int               ready[4];     /* tensors (piece-relative index) whose gradient is complete after it,
                                     * in the order in which autograd hands them out; -1: none */
};

/* Streams of a rank, FIFOs (schedule.h). */
enum stream {
    STREAM_ISSUE, STREAM_COMPUTE,
    STREAM_COPY_IN,         /* casts and copies before an all-gather */
    STREAM_GATHER,          /* all-gather's own stream */
    STREAM_REDUCE,          /* reduce-scatter, or a framework's reduction stream */
    STREAM_ALL_REDUCE,      /* hybrid sharding's second reduction */
    STREAM_GROUP,           /* the process group's internal stream (async collectives) */
    STREAM_H2D, STREAM_D2H,
    STREAM_TENSOR,          /* collectives inside blocks, of the ranks that share a block's tensors */
    STREAM_CONTEXT,         /* the same, of those that share a sequence, or a block's experts */
    STREAM_PREVIOUS, STREAM_NEXT,   /* sends to and receives from a pipeline's neighbours: a communicator for each pair */
    STREAM_HOST,            /* the host's threads: its optimizer, casts and sums */
    STREAM_DISK_READ, STREAM_DISK_WRITE,
    NSTREAM
};

enum coll_op { COLL_ALL_REDUCE, COLL_ALL_GATHER, COLL_REDUCE_SCATTER, COLL_BROADCAST,
               COLL_REDUCE, COLL_SCATTER, COLL_GATHER, COLL_BARRIER,
               COLL_ALL_TO_ALL, COLL_SEND, COLL_RECV, NCOLL };
enum red_op  { RED_NONE, RED_SUM, RED_AVG, RED_PREMUL_SUM, RED_MAX, RED_MIN };

/* A kernel that is a collective.  Its place in the list is where it is issued: it waits for the kernel before
 * it.  It computes nothing; its memory is counted with the kernel, as for any other.
 * model/schedule/schedule_cut.h makes an entry of it. */
struct collective {
    int     kernel;                 /* its index in the list */
    int     needed;                 /* the first kernel that needs its result; the length of the list: the first
                                     * of whatever is computed next */
    uint8_t op, group, dtype, red;  /* enum coll_op, group, dtype, red_op */
    uint8_t stream;                 /* enum stream: where it runs */
    bool    onward;                 /* an all-to-all in which all of it goes to the next rank of the group */
    bool    engine;                 /* copy engines move it: no multiprocessor does */
    bool    graph;                  /* a compiled graph issues it: no Python does */
    uint8_t from, into;             /* enum slot: what it moves, and to where; the same: in place.  `dpx` only */
    bool    waits;                  /* it is none: the issuing thread waits for the kernels before it */
    int64_t elems;                  /* of the full buffer */
    int64_t came;                   /* of an all-to-all: elements that come in, where they are more or fewer; 0: as many */
    int64_t own;                    /* bytes of a buffer of its own for the result: a temporary from its issue until
                                     * kernel `needed` is done; 0: in place */
};

struct piece {
    struct kernel *kernels[NPASS];
    int            nkernels[NPASS];
    struct place  *places[NPASS];   /* `dpx` only */
    struct collective *collectives[NPASS];  /* in the order of the list */
    int            ncollectives[NPASS];
    struct move   *moves[NPASS];    /* not `dpx` */
    int            outside[NPASS];  /* of a recorded unit: kernels before the unit is entered in forward, and behind it in backward */
    int            split;           /* where its backward is in two halves: the second's first kernel */
    int64_t        saved;           /* bytes of activations that forward leaves */
    int64_t        outlives;        /* of what a recomputed block saves again: stays until its next forward, whatever backward is done with */
    int64_t        held;            /* of `saved`: bytes marked LEFT_TO_END */
    int64_t        copied[NPASS], pinned;   /* of its kernels; pinned: forward's */
    double         flops[NPASS];
    uint64_t       key[NPASS];      /* equal where the kernels are: what they take on one device is then equal too */
};

/* How long the gradient of a parameter lives once it is produced. */
enum grad_fate {
    GRADS_KEEP,                     /* becomes .grad: stays (first micro-step; FSDP's unsharded gradients) */
    GRADS_DROP,                     /* is added or copied elsewhere and freed at once */
    GRADS_IN_PLACE,                 /* kernels add into a buffer that exists: no memory of its own */
};

struct span {
    int64_t peak[NMEM];             /* above the live bytes before the segment, at its fullest moment */
    int64_t net[NMEM];              /* change over the segment */
    double  flops;
    int64_t bytes;
};

/* Calls of the head's module, one for each part of the tokens that a loss takes at a time. */
enum { HEAD_CALLS = 8 };

struct program {
    struct piece piece[NPIECE];
    int          returns[NPASS];    /* where the loss is the trainer's: kernels of the head's forward before the model
                                     * returns, of its backward before it is entered again; 0: the loss is the model's */
    int          heads[NPASS];      /* likewise before the head's module returns, where it is a unit of its own (fsdp.root_units) */
    int          ncalls;            /* of such a module by a loss in parts, behind the model; in the order of the pass, kernels [from, to): */
    struct { int from, to; } call[NPASS][HEAD_CALLS];
    struct span  whole[NPIECE][NPASS][3];   /* of whole passes, by enum grad_fate: asked for most */
    int64_t      boundary;          /* bytes of the activation handed from block to block */
    enum flash   flash;             /* what its fused attention is */
    bool         cuda_12_8;         /* its products are those of this CUDA or a later one */
    int          ncollectives;      /* of all pieces */
    void        *store;             /* owned */
};

/* Builds the program of a plan (its model, kernels, seq, micro_batch, precision,
 * dropout, recompute) into `out`, which is zeroed or holds an earlier program.  0, or -1
 * with the reason reported. */
int  program_build(const struct plan *p, struct program *out);
void program_free(struct program *g);

/* Puts collective *c into a pass of a piece as kernel c->kernel; what stood there and behind it moves up by one,
 * and c->needed counts it already.  With places its buffer of its own, if it has one, is the slot c->into,
 * which nothing else of the pass may use.  0, or -1 reported. */
int  program_add_collective(struct program *g, enum piece_id piece, enum pass pass, const char *name,
                            const struct collective *c);

/* torch.autograd.graph.save_on_cpu() around the model, with kernels of PyTorch: every tensor that is saved for backward is
 * copied to the host, each time that it is saved, parameters too; and back when its node runs.  The program has that in its
 * kernels (`copied`). */
bool program_saves_on_host(const struct plan *p);

/* All that the program of a plan depends on beside its model and its cluster, to be compared byte by byte. */
struct program_inputs {
    struct plan of;                 /* the plan; keys that no program depends on are cleared, model and cluster too */
    enum dtype  kept, frozen, copies, used; /* of its recipe, which cleared keys may decide */
    enum dtype  adapter;            /* plan_adapter_input() */
    int         autocast;
};

void program_inputs(const struct plan *p, struct program_inputs *out);

/* Whether plans of one model and cluster have the same inputs, hence the same program. */
bool program_is_shared(const struct plan *a, const struct plan *b);

/* Memory and work of the segment [k0,k1) of one pass of a piece. */
void program_span(const struct program *g, enum piece_id piece, enum pass pass,
                  int k0, int k1, enum grad_fate fate, struct span *out);

/* The first kernel of the given half of a block's pass (0 attention, 1 MLP):
 * where half-block units are cut.  Forward runs 0 then 1, backward 1 then 0. */
int  program_half(const struct program *g, enum piece_id piece, enum pass pass, int half);

/* Of a recomputed block's backward: the kernel after those of the forward that is done again, which
 * come first but perhaps for a cast of the gradient. */
int  program_again(const struct piece *p);

/* Is attention of two kinds, each with pieces of its own: with a mask and without (attention_mixed()), or of llama4 with rotary
 * positions and without?  Has a piece's attention the window then? */
bool program_attends_twice(const struct plan *p);
bool program_piece_windowed(const struct plan *p, enum piece_id id);

/* Is block b in 16 bits, with layers beside it that Transformer Engine casts (megatron.first_last_layers_bf16)? */
bool program_unscaled(const struct plan *p, int64_t b);

/* Piece of block b of the model under the plan's recompute and recompute_interval: block b is
 * recomputed when b is a multiple of the interval; with megatron.recompute_num_layers where it is among the first of its chunk. */
enum piece_id program_piece_of_block(const struct plan *p, int64_t b);
/* The same of the block that stands `in_chunk` places behind the first of its chunk. */
enum piece_id program_piece_in_chunk(const struct plan *p, int64_t b, int64_t in_chunk);
/* The piece that block b would be, were none the first. */
enum piece_id program_kind_of_block(const struct plan *p, int64_t b, bool recomputed);
/* Blocks that are recomputed; are all of them? */
int64_t program_recomputed_blocks(const struct plan *p);
bool    program_recomputes_all(const struct plan *p);
/* Is block 0 a piece of its own?  Does the embedding's output need a gradient though nothing of it trains: PEFT has
 * transformers' enable_input_require_grads() called where blocks are checkpointed (peft_model.py), and from transformers 5
 * on so does gradient_checkpointing_enable(), which users of DeepSpeed call (modeling_utils.py). */
bool program_first_differs(const struct plan *p);
bool program_input_requires_grad(const struct plan *p);
/* After so many blocks the pieces repeat, but for the first ones (program_alone()); the number of layers if they do not. */
int program_period(const struct plan *p);
/* So many of the first blocks are not of the pattern: without experts, where the others have some. */
int program_alone(const struct plan *p);
static inline bool piece_is_block(enum piece_id id) { return id > PIECE_EMBED && id < PIECE_HEAD; }
static inline bool piece_has_mixer(enum piece_id id) { return id >= PIECE_MIXER && id < PIECE_FIRST; }
static inline bool piece_is_recomputed(enum piece_id id)
{
    return id == PIECE_BLOCK_RECOMPUTED || id == PIECE_WINDOWED_RECOMPUTED || id == PIECE_DENSE_RECOMPUTED ||
           (piece_has_mixer(id) && (id - PIECE_MIXER) % 2 == 1) || id == PIECE_FIRST_RECOMPUTED || id == PIECE_UNSCALED_RECOMPUTED;
}
/* Of a mixer's piece: which. */
static inline enum block_kind piece_mixer(enum piece_id id) { return (enum block_kind)((id - PIECE_MIXER) / 4); }

/* Tensors of a piece: index of the first one in model->tensors of the given
 * block (ignored for the embedding and the head) and their number.  The
 * embedding's and head's tensors are listed by program_tensor(). */
int  program_ntensors(const struct plan *p, enum piece_id piece);
int  program_tensor(const struct plan *p, enum piece_id piece, int64_t block, int i);

/* FLOPs of forward and backward over one micro-batch, recompute left out: the model
 * FLOPs of MFU.  Attention's two products are counted in full (6 N + 12 L h s a token)
 * or, causal, by half (6 N + 6 L h s). */
double program_flops(const struct program *g, const struct plan *p, bool causal);

/* kernel.module of a tied head: the token embedding, which is in the embedding's piece. */
enum { MODULE_TIED = -2 };

#endif
