/* tape.h -- which bytes are live while PyTorch's autograd runs a piece of a model.
 *
 * Modelling code is replayed as a sequence of op_ calls.  Every call appends a
 * kernel, makes its outputs, and remembers what autograd would: the tensors saved
 * for backward and where gradients go.  tape_backward() then runs the nodes as the
 * engine does, last created first.  Bytes follow from reference counts alone: of
 * the caller's variables (a Python name holds a tensor until it is rebound or the
 * function returns: tape_drop()), of what is saved, and of gradients on their way.
 *
 * Views share the storage of what they view; only storages have bytes, rounded up
 * to `rounding`.  Gradients that meet are added in place when no other name holds the
 * first, as the engine does.  A failed allocation or a size above SIZE_LIMIT sets
 * `bad`, and everything after is harmless.
 *
 * Where `compiled` is set the operations are those of a graph that torch.compile() compiles (tape_compile.c). */
#ifndef DPX_TAPE_H
#define DPX_TAPE_H

#include "model/program/program.h"

typedef int var;                        /* index into vars[]; 0 is "none" */

enum { TAPE_SAVED = 8, TAPE_EDGES = 8, TAPE_SLOTS = 64, TAPE_LEAVES = 16, TAPE_CASTS = 64 };      /* slots: parts of a tensor; of a mixture one for each local expert */

struct store {
    int64_t bytes;
    int     refs;
    int16_t part, freed_by;             /* t->part when it was made and when it went; -1: it is there */
    uint8_t cat, slot;                  /* slot: enum slot, of `dpx` */
    int     float8;                     /* compiled: it in 8-bit floats, as some products read it; a reference */
    bool    view;                       /* a gradient that is a view of another name's tensor: what is added to it is added out of place */
    bool    derived, norm;              /* compiled: has no memory, can be computed from leaf[]; by a reduction over rows */
    bool    held;                       /* a node's own attribute keeps it until backward is over (tape_hold_beside()) */
    int16_t module;                     /* derived by a norm: whose parameters it reads; else -1 */
    uint8_t nleaves;
    bool    whole;                      /* derived: what is computed from it saves it, not what it is computed from (tape_stay_whole()) */
    int     leaf[TAPE_LEAVES];
    int64_t size;                       /* bytes that it would take */
    int64_t exact;                      /* its bytes without rounding; 0: derived */
};

struct edge {                           /* where the gradient of an operand goes */
    int        node, slot;              /* node 0: nowhere */
    int        tensor;                  /* >= 0: a parameter of the piece, or TAPE_TIED */
    int64_t    numel;
    enum dtype dt;
    bool       wide;                    /* of a parameter: a part of a sum over tensor-parallel ranks, handed out in fp32 */
};

/* float8: what it names is a Float8TrainingTensor, a byte an element, which says that it is of edge.dt. */
struct vari { int store; struct edge edge; bool float8; };

enum node_kind {
    NODE_PASS,          /* the gradient goes on as it is, to every edge: add, views */
    NODE_IN_PLACE,      /* the gradient is written over by a kernel that reads what was saved, and goes on */
    NODE_COPY,          /* one new tensor of the operand's size: most elementwise ops */
    NODE_EACH,          /* one new tensor per operand: mul, cat */
    NODE_MUL,           /* two operands, each needing the other */
    NODE_MUL_ROWS,      /* the second operand is one number a row */
    NODE_LINEAR, NODE_MATMUL, NODE_LAYER_NORM, NODE_SCALE, NODE_RMS, NODE_POWER,
    NODE_EMBEDDING, NODE_JOIN,
    NODE_MADE,          /* forward made the gradients: saved[i] is that of operand i */
    NODE_CUT_LOSS,      /* tape_loss.c */
    NODE_ACTOR_CHUNKS, NODE_ACTOR_KERNEL, NODE_CHUNKED_LOGPROB,       /* tape_actor.c */
    NODE_LIGER_NORM, NODE_LIGER_GLU, NODE_LIGER_ROPE,       /* tape_liger.c */
    NODE_LISTED,        /* the gradient goes on; `batch` parameters from tensor `m` on get theirs, of k elements */
    NODE_COLLECTIVE, NODE_PARALLEL_LOSS,    /* tape_collective.c */
    NODE_RING,          /* tape_ring.c */
    NODE_EXCHANGE, NODE_EXCHANGE_LISTS, NODE_GATHER_LIST, NODE_GATHER_JOINED, NODE_SUM_IN_PLACE,     /* tape_exchange.c */
    NODE_PACKED,        /* tape_packed.c */
    NODE_TE_NORM, NODE_TE_COLUMN, NODE_TE_ROW, NODE_TE_ADD, NODE_TE_ACTIVATION, NODE_TE_MOVE, NODE_TE_LOSS,     /* tape_te.c */
    NODE_TE_LATENT,     /* tape_te_latent.c */
    NODE_TE_BIAS,       /* tape_te_bias.c */
    NODE_TE_ADAPTER,    /* tape_te_adapter.c */
    NODE_TE_GROUPED, NODE_TE_PAD,       /* tape_te_grouped.c */
    NODE_TE_COLUMNS, NODE_TE_ATTACHED,      /* tape_te_mtp.c */
    NODE_TE_RING,       /* tape_te_ring.c */
    NODE_TE_GATHERED, NODE_TE_HEADS, NODE_TE_POSITIONS, NODE_TE_SINKS,      /* tape_te_context.c */
    NODE_WEIGH,         /* tape_experts.c */
    NODE_DISPATCH,      /* tape_dispatch.c */
    NODE_PUT,           /* tape_put.c */
    NODE_FLOAT8, NODE_FLOAT8_BACK,      /* tape_float8.c */
    NODE_CLAMP, NODE_MSLK,      /* tape_qat.c */
    NODE_ADAPTER_PARTS, NODE_SPREAD,    /* tape_adapter.c */
    NODE_ADAPTER_ROW,   /* tape_adapter_row.c */
    NODE_MAMBA,         /* tape_mamba.c */
};

/* What a linear layer's kernels are called: GEMM("mlp down") also names its dX, dW and db. */
struct gemm_names { const char *forward, *dx, *dw, *db; };
#define GEMM(x) (&(const struct gemm_names){ x, x " dX", x " dW", x " db" })

/* Products whose operands Transformer Engine casts (tape_te_cast.h). */
struct te_scaled {
    uint8_t format;                         /* enum scaled; SCALED_NONE: it casts none */
    bool    now;                            /* a tensor's largest number is looked for when it is cast */
    bool    turned;                         /* scaled as a whole: products read rows alone */
};

/* Of a node of tape_te.c. */
struct te_node {
    int64_t ranks;                          /* tensor-parallel */
    int     weights;                        /* edges 1 to `weights` are a layer's weights, those behind them its biases */
    bool    gathers, overlaps, buffered, zeroed;    /* tape_te.h */
    bool    masked;                         /* dropout's mask is saved */
    bool    original;                       /* of products in codes: the input is saved as it came, and cast again in backward */
    bool    frozen, core, module;           /* tape_te.h */
    struct te_scaled scaled;
};

/* Of a node of tape_float8.c. */
struct float8_layer {
    uint8_t recipe;                         /* enum float8_recipe */
    bool    gathered;                       /* its weight comes in float8 */
    bool    keeps_cast, cast_gradient;      /* tensor parallelism: its input is kept in float8; its output's gradient comes so */
    bool    keeps_weight;                   /* a graph keeps its weight in float8 */
    bool    last;                           /* no other layer reads its input */
    bool    row_parallel;                   /* its ranks share the inner dimension of its product */
    int64_t ranks;                          /* that share the layer, and the largest values of what is cast; 1: none */
};

/* A Mamba-2 mixer (tape_mamba.h).  sms: of the GPU, over which the backward kernels split sums over heads. */
struct mamba_shape { int64_t batch, seq, heads, head_dim, groups, state, chunk, taps, hidden, sms; };

struct node {
    enum node_kind kind;
    const char    *name;
    enum kernel_class kc;
    int         saved[TAPE_SAVED], nsaved;
    int64_t     away[TAPE_SAVED];           /* bytes of saved tensors that are on the host */
    int         naway;
    struct edge edges[TAPE_EDGES];
    int         nedges;
    enum dtype  low;                        /* NODE_CHUNKED_LOGPROB: of its products, whatever its operands are in */
    enum dtype  dt;                         /* of its output, hence of its gradient */
    int         grad[TAPE_SLOTS], nslots;   /* stores of arrived gradients */
    int64_t     work;                       /* bytes of scratch that backward needs while it runs */
    int64_t     keys;                       /* of a ring: those that grow with the keys; of a packed weight: its enum base_dtype */
    int64_t     m, n, k, batch;             /* of a product; NODE_COPY, NODE_EACH: m, the numbers of its output where they are more than the operand's */
    double      flops;                      /* of forward */
    int64_t     adds;                       /* of its backward's kernel (struct kernel) */
    int         module, half;
    bool        weight_first;               /* dW before dX */
    bool        sums_views;                 /* the first two gradients that arrive are added out of place */
    bool        apart;                      /* all are: of a DTensor */
    bool        wanted;                     /* an operand needs a gradient: else autograd has no such node */
    struct gemm_names names;                /* of a linear layer */
    struct te_node te;
    struct float8_layer float8;
    struct mamba_shape mamba;
    int64_t     columns[3];             /* of an adapter's parts (tape_adapter.c); each by a product of its own: they are joined */
    bool        joins;
};

/* A gather whose products are in parts (tape_parts.h): its store, 0: none; the first kernel behind it. */
struct tape_gathered { int store, kernel; int64_t ranks, elems; enum dtype dt; };

struct tape {
    int64_t        rounding;
    struct store  *stores; int nstores, cap_stores;
    struct vari   *vars;   int nvars, cap_vars;
    struct node   *nodes;  int nnodes, cap_nodes;
    struct kernel *out;    int nout, cap_out;   /* kernels appended so far */
    uint8_t       *kept;   int cap_kept;        /* stores that outlive their forward: activations */
    struct place  *places; int nplaces, cap_places;     /* of the kernels in out[] */
    struct move   *moves;  int nmoves, cap_moves;       /* the same; `tensor` is a store */
    struct collective *colls; int ncolls, cap_colls;    /* kernels that are collectives, in the order in which they were issued */
    int            part;                        /* the caller's number for what it replays */
    bool           learning;                    /* first pass: kept[] is being found out */
    struct kernel  skipped;
    int64_t        live[NMEM], base[NMEM];
    bool           open;                        /* the last kernel still collects frees */
    bool           backward;
    bool           compiled;
    int            from[TAPE_LEAVES], nfrom;    /* compiled: stores that the operation reads */
    bool           unpacked;                    /* saved tensors come from a checkpoint */
    bool           forget;                      /* checkpointed forward: nothing is saved */
    bool           away;                        /* save_on_cpu(): what is saved goes to the host */
    bool           caches, cached;              /* selective: its operators' results are kept; are taken from there */
    int           *cache; int ncache, cap_cache, at_cache;     /* stores, in order */
    int           *beside; int nbeside, cap_beside;     /* stores that nodes keep as attributes of their own, a reference each */
    int            most_results;                /* so many of them are needed; < 0: not known */
    int            products;                    /* matrix products since the region began */
    bool           uncounted;                   /* those that come now run again and are no turn: a router's */
    int            stop_after;                  /* checkpointed recompute ends with this saver; 0: never */
    int            nsavers;                     /* ops that saved something since tape_mark() */
    bool           stopped, stopping;           /* the last saver is reached; after it has run */
    struct tape_gathered gathered;
    bool           leaves;                      /* compiled: a selective checkpoint saves the consumer's output instead of this one */
    int64_t        scatters;                    /* the linear layer that follows is scattered part by part to so many ranks; 0: not */
    bool           scattered;                   /* it was */
    int            pulled[2];                   /* the last two copies of its parts */
    bool           unneeded;                    /* compiled: nothing reads the result of the linear layer that follows */
    int            module, half;                /* of the ops that follow */
    bool           autocast;                    /* compiled: torch.autocast(bfloat16) is in the graph, whose equal casts are one */
    struct tape_cast { int from, to; enum dtype dt; } cast[TAPE_CASTS]; int ncast;
    bool           at_end;                      /* compiled: a graph's gradients of parameters come when its backward ends */
    struct edge    waits[TAPE_CASTS];           /* they; their stores; nodes that made them, in ascending order */
    int            waiting[TAPE_CASTS], maker[TAPE_CASTS], nwaits, running;     /* running: the node whose backward runs */
    bool           dtensor;                     /* the tensors of what follows are DTensors */
    int            tied;                        /* the piece's tensor that TAPE_TIED stands for */
    int            seed;                        /* the loss's gradient */
    bool           tied_waits;                  /* the first is a tensor that the second is added to, before a hook has it */
    int            tied_grad;                   /* its first gradient, waiting for the second */
    int            main_grad;                   /* bytes an element of what a hook adds gradients to and drops them (Megatron); 0: there is none */
    bool           grads_apart;                 /* with main_grad: products hand out weights' gradients, which the hook adds */
    bool           turns_frozen;                /* Transformer Engine before 2.7: a frozen layer's gradient in 8 bits is cast both ways, as if its weight trained */
    bool           linear_views;                /* linear layers hand out their weight's gradient as a view */
    bool           linear_saves;                /* they save their input though the weight is frozen */
    bool           tied_is_view;                /* tied_grad is one */
    bool           holds_beside;                /* int8 layers keep their input so; else it is saved */
    bool           bad;
};

/* A parameter used by the embedding and by the head; another rank's embedding, of which the head has a copy: no tensor of the piece. */
enum { TAPE_TIED = 1 << 20, TAPE_COPY };

void tape_init(struct tape *t, int64_t rounding);
void tape_free(struct tape *t);
/* Forgets everything but kept[] and the memory itself. */
void tape_reset(struct tape *t);

/* From here on kernels are those of a new list; returns how many there are. */
int  tape_cut(struct tape *t);
/* Stores made since `first` that are still live are activations. */
void tape_keep(struct tape *t, int first);

/* Bytes that nodes from node0 on have saved so far, of stores from store0 on. */
int64_t tape_saved_since(const struct tape *t, int node0, int store0);

/* Runs nodes [first, end) last to first.  A node without a gradient is
 * skipped. */
void tape_backward(struct tape *t, int first, int end);
/* The same for nodes that saved nothing at the end: what backward runs before a
 * checkpoint has to recompute.  Returns the node after which it stopped. */
int  tape_backward_unsaved(struct tape *t, int first);
/* The gradient of v, from nowhere: where backward starts. */
void tape_seed(struct tape *t, var v);
/* backward() returns. */
void tape_finish(struct tape *t);
/* A checkpointed region begins whose matrix products (every second) and attention keep their results: to be run
 * (`again` < 0; returns where its results begin), or run again with those from `again` on. */
int  tape_selective(struct tape *t, int again);
/* It ends. */
void tape_unselective(struct tape *t);
/* Results [first, end) that the second run did not take. */
void tape_drop_cache(struct tape *t, int first, int end);
/* What flows into the node of `from` flows into that of `to` instead. */
void tape_graft(struct tape *t, var from, var to);
/* One more reference to the gradient that has come to v's node; its store, 0: none has. */
int  tape_hold_gradient(struct tape *t, var v);
void tape_drop_store(struct tape *t, int store);

/* A node keeps a store as an attribute of its own (`ctx.tensors = ...`).  Autograd does not know of it: no hook of a checkpoint sees it,
 * and it does not go when the node has run but with the graph, which the loss holds until backward() has returned. */
void tape_hold_beside(struct tape *t, int store);
bool tape_is_held(const struct tape *t, int store);
/* The graphs go whose nodes hold those from `first` on. */
void tape_drop_beside(struct tape *t, int first);

/* untyped_storage().resize_(0): a store's memory goes, while names and nodes still have it. */
void tape_empty(struct tape *t, int store);
/* resize_() and copy_(): these have a new store of the same size, which is copied from one that was computed again. */
void tape_refill(struct tape *t, int store);

int64_t tape_var_bytes(const struct tape *t, var v);
int64_t tape_var_numel(const struct tape *t, var v);
enum dtype tape_var_dtype(const struct tape *t, var v);

/* A parameter: lives elsewhere, its gradient is the piece's tensor `tensor`; < 0: it is frozen. */
var  op_param(struct tape *t, int tensor, int64_t numel, enum dtype dt);
/* A tensor with no history: a model input or a constant. */
var  op_new(struct tape *t, const char *name, enum kernel_class kc, int64_t numel, enum dtype dt);
/* x.requires_grad_(True): its gradient ends here, and is wanted. */
void tape_require_grad(struct tape *t, var x);
/* Does v need a gradient? */
bool tape_wants_grad(const struct tape *t, var v);
var  tape_hold(struct tape *t, var v);       /* one more name for the same tensor */
var  tape_hold_part(struct tape *t, var v, int64_t numel);      /* a view of so many of its elements */
void tape_drop(struct tape *t, var v);       /* a name is gone; 0 is allowed */
/* The result of an operation on what nothing names any more: y = f(g(x)). */
static inline var tmp(struct tape *t, var used, var result)
{
    tape_drop(t, used);
    return result;
}

/* Compiled: x has to lie in memory, as a result of the graph or an operand of a product has. */
void tape_need(struct tape *t, var x);
/* Another graph begins: what names hold lies in memory.  A graph's backward ends: its gradients go. */
void tape_split(struct tape *t);
void tape_hand_out(struct tape *t);
/* ... as one tensor, if another kernel or backward needs it too: a sum of products. */
void tape_stay_whole(struct tape *t, var x);
/* Compiled: gradients that have left for nodes before `first` have to. */
void tape_need_grads(struct tape *t, int first);

/* A scratch tensor of a kernel that is gone when it is done. */
void op_scratch(struct tape *t, const char *name, int64_t bytes);

enum op_saves { SAVE_NONE, SAVE_IN, SAVE_OUT };
var  op_unary(struct tape *t, const char *name, enum kernel_class kc, var x, enum op_saves s);
/* An autograd.Function that saves its input and needs `scratch` bytes in backward. */
var  op_function(struct tape *t, const char *name, var x, int64_t scratch);
/* Its result is saved; backward writes over the gradient that comes in. */
var  op_softmax_in_place(struct tape *t, const char *name, var x);
var  op_cast(struct tape *t, var x, enum dtype to);         /* x itself (held) when it has it */
var  op_cast_weight(struct tape *t, var w, enum dtype to);  /* the same of a weight that a product reads: it lies in memory */
var  op_add(struct tape *t, const char *name, var a, var b);
var  op_mul(struct tape *t, const char *name, var a, var b);
/* a times a tensor without gradient. */
var  op_mul_const(struct tape *t, const char *name, var a, var c);
/* A view whose gradient has to be copied (or not) to be viewed back. */
var  op_view(struct tape *t, var x, bool copies_back);
var  op_copy(struct tape *t, const char *name, var x, bool copies);
/* x times one number a row (rows elements). */
var  op_mul_rows(struct tape *t, const char *name, var x, var r);
/* A copy of x in that many chunks; backward copies their gradients once more. */
var  op_moved(struct tape *t, const char *name, var x, int chunks);
/* x repeated n times (a copy), summed on the way back. */
var  op_repeat(struct tape *t, const char *name, var x, int64_t n);
/* The same as a view: expand(). */
var  op_expand(struct tape *t, const char *name, var x, int64_t n);
/* a += b: a's own storage. */
var  op_add_to(struct tape *t, const char *name, var a, var b);
var  op_add_row(struct tape *t, const char *name, var x, var row);      /* to every row */
/* x[[i]], part of x by an index tensor: a copy, the index saved; back into zeros of x's size. */
var  op_index(struct tape *t, const char *name, var x, int64_t numel);
/* n views of x of the given numels; one tensor joins their gradients. */
void op_split(struct tape *t, const char *name, var x, int n, const int64_t *numel, var *out);
/* Half of x along the last dimension, a view whose gradient is padded with zeros. */
var  op_slice(struct tape *t, const char *name, var x, int64_t numel);
/* b 0: a alone, copied. */
var  op_cat2(struct tape *t, const char *name, var a, var b);
var  op_pow(struct tape *t, const char *name, var x);
/* mean(x^2) over rows, then its reciprocal root: rows elements. */
var  op_rms(struct tape *t, var x, int64_t rows);
var  op_dropout(struct tape *t, const char *name, var x, double p);
/* y[rows, n] = x[rows, k] W + b; b 0: none.  weight_first: backward computes dW
 * before dX, as mm does and addmm does not. */
var  op_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, var w, var b,
               bool weight_first);
/* batch times C[m,n] = A[m,k] B[k,n] of activations. */
var  op_matmul(struct tape *t, const char *name, var a, var b, int64_t batch, int64_t m, int64_t n,
               int64_t k);
var  op_layer_norm(struct tape *t, const char *name, var x, int64_t rows, var w, var b);
/* x, made with n parameters of `numel` elements: the piece's tensors from `first` on. */
var  op_listed(struct tape *t, var x, int first, int64_t n, int64_t numel, enum dtype dt);
/* x times a parameter vector. */
var  op_scale(struct tape *t, const char *name, var x, var w);
var  op_embedding(struct tape *t, const char *name, var ids, int64_t width, var w);
/* Fused attention: saves q, k, v, the additive mask (0: none), its output, log-sum-exp, and the state of the random generator,
 * a tensor of `seed_numel` and one of a number.  Its output has `numel` elements. */
var  op_attention(struct tape *t, const char *name, const var in[4], int64_t numel, int64_t lse_numel, int64_t seed_numel,
                  int64_t scratch, double flops);
/* A parameter (or its cast) that several operations read: their gradients are added up before it gets one.  `views`:
 * they are a linear layer's, which are views. */
var  op_shared(struct tape *t, var w, bool views);

#endif
