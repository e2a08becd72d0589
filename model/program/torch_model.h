/* torch_model.h -- the transformers modelling code as operations on a tape.
 *
 * Three functions, run in this order, on one tape: torch_embed(), torch_block()
 * once per block, torch_head().  What the Python code keeps a name for across
 * them (input ids, masks, rotary tables) is in struct torch_model. */
#ifndef DPX_TORCH_MODEL_H
#define DPX_TORCH_MODEL_H

#include "model/family/family.h"
#include "model/plan/attention.h"
#include "model/plan/local_model.h"
#include "model/program/tape.h"

/* Inputs of int8 layers outlive the layers' own backward (tape_hold_beside()), of blocks whose layers read what a norm or the block itself
 * made.  Where they read the block's own input they would keep what the block before it made: not followed. */
bool torch_holds_int8_inputs(const struct model *m);
/* Layers with a window and layers without are rotated by tables of their own. */
bool torch_has_two_tables(const struct model *m);

enum { TORCH_ARGS = 7, TORCH_BUFFERS = 7 };     /* of what is checkpointed; what lasts until backward ends */

/* A module of a block that is a checkpoint of its own, or the core of attention. */
enum torch_module { TORCH_CORE, TORCH_NORM_ATTN, TORCH_ATTENTION, TORCH_NORM_MLP, TORCH_MLP };

/* Operations that a checkpoint runs again in backward. */
struct torch_region {
    int node0, node1;           /* nodes of the first run: they saved nothing */
    int savers;
    int cache0, cache1;         /* results that a selective checkpoint keeps */
    var args[TORCH_ARGS], out;           /* what the checkpoint holds, and what it returned */
    enum torch_module module;   /* what it is of */
};

enum { TORCH_REGIONS = 4 };     /* of a block */

/* The same of a module of Megatron's (te_again.h). */
enum { TE_MODULE_VARS = 3, TE_REGIONS = 8 };
struct te_region {
    int module, block, half;            /* enum te_module */
    int node0, node1;
    int hook;                           /* its second run comes before backward of the nodes below this one */
    var in[TE_MODULE_VARS], out[TE_MODULE_VARS];
    int storage[TE_MODULE_VARS];        /* of a result that is emptied; 0: it stays */
};

struct torch_splits;

struct torch_model {
    struct tape       *t;
    const struct plan *p;
    const struct model *m;      /* the rank's own: heads, the MLP's width and the vocabulary are its share */
    const struct model *whole;
    const uint8_t *partial;     /* of m's tensors: struct local_model */
    int64_t     ranks;          /* tensor-parallel ones; 1: none */
    int64_t     context, place; /* context-parallel ones; which of them this is */
    bool        stages;         /* embedding and head are on different ranks (kernels of Megatron) */
    bool        sequence;       /* norms and residuals have a share of the positions */
    const struct family *family;
    enum dtype  dt;             /* of activations outside autocast */
    enum dtype  param_dt;       /* of the parameters that compute reads: adapters', */
    enum dtype  own_dt;         /* those of the model itself, */
    enum dtype  frozen_dt;      /* and of those that do not train */
    enum dtype  adapter_dt;     /* to which PEFT casts what an adapter reads */
    bool        autocast;
    int         block;          /* of the piece being built: TENSOR_EMBED, TENSOR_HEAD, or */
    int         traced;         /* the first block of the kind that is traced */
    int64_t     tokens;         /* micro_batch * seq */
    var         ids, labels, positions, mask, other_mask, cos, sin, bias;    /* bias: of every score (mpt) */
    var         lasting[TORCH_BUFFERS];
    const struct plan *as;          /* the plan, its layers all of the kind that is traced */
    enum attention_kernel kernel;   /* of the attention core */
    int         again_node, again_store;    /* a block runs again: its first node and store; node 0: none does */
    int64_t     outlives;       /* of what it saves stays until its next forward (native_moe.h) */
    bool        unscaled;       /* a block in 16 bits (program_unscaled()) */
    bool        again;          /* a depth of multi-token prediction is checkpointed */
    bool        apart;          /* attention, MLP and norms are checkpoints of their own */
    bool        selective;      /* the attention core is checkpointed, or in Megatron's layers the modules that the plan names */
    struct torch_region region[TORCH_REGIONS];  /* of the block built last, in order */
    int         nregions;
    struct te_region again_module[TE_REGIONS];  /* the same of Megatron's modules */
    int         nagain_modules;
    var         padded;         /* labels that the shifted ones view, until the loss is there */
    var         weights;        /* attention probabilities: `_` in the block until it returns */
    var         held[4];        /* what the model's forward has names for until it returns */
    int         headed[2];      /* the same when the head's module returned, where it is a unit of its own; 0: it was not called */
    int         returned[2];    /* kernels and nodes of the tape when it did, before the loss; 0: after it */
    int         called[HEAD_CALLS][2][2];   /* the same when the loss called such a head, and when that returned */
    int         ncalls;
    var         casts[64];      /* autocast's cache of weights (names), in order of creation */
    int         ncasts;
    struct torch_splits *splits;    /* of compiled blocks under DistributedDataParallel; NULL: none (torch_split.h) */
    var         head_halves[2]; /* of the head's adapter, where several products share them */
};

/* A plan has one rate, its config's of what attention and MLP add to the residual stream.  Where the config has such a rate and none for the embedding, or
 * for probabilities (`own`), nothing is dropped there. */
static inline double torch_rate(const struct torch_model *b, double own) { return own > 0 || !(b->m->dropout > 0) ? b->p->dropout : 0; }

/* Of what one rank has. */
void torch_model_init(struct torch_model *b, struct tape *t, const struct local_model *local);
var  torch_embed(struct torch_model *b);
/* What a module of a block makes of x, whose name stays; the core of attention is torch_attention_core(). */
var  torch_run_module(struct torch_model *b, enum torch_module module, var x);
/* Consumes the name x. */
var  torch_block(struct torch_model *b, var x);
var  torch_head(struct torch_model *b, var x);
/* DeepSpeed's AutoTP shares the blocks' tensors and the head's out. */
bool torch_is_autotp(const struct torch_model *b);
/* Rows of position ids, and of tables of cosines and sines. */
int64_t torch_table_rows(const struct torch_model *b);
/* The MLP's. */
var  torch_activation(struct torch_model *b, var x);
/* The mask that a block is handed, 0: none. */
var  torch_mask(const struct torch_model *b);
/* FSDP2 hands every block its arguments in the dtype of its parameters, tables (and mpt's bias) in fp32 too. */
bool torch_casts_tables(const struct torch_model *b);
/* Have its blocks linear layers that do not call nn.functional.linear, which ZeRO-3 replaces: GPT-2's Conv1D calls addmm(bias, x,
 * weight), FalconLinear multiplies and adds the bias by itself? */
bool torch_own_linear(const struct model *m);
/* Do these save a view of their weight, not the parameter? */
bool torch_linear_saves_view(const struct model *m);
/* The module of a role's parameters, counted from the piece's first; -1 if the piece
 * has none. */
int  torch_piece_module(const struct model *m, int block, enum tensor_role role, enum adapter as);
/* The piece-relative tensor of a role, or -1. */
int  torch_piece_tensor(const struct model *m, int block, enum tensor_role role, bool bias);
int  torch_piece_part(const struct model *m, int block, enum tensor_role role, bool bias, enum adapter as);
/* The tensor of the piece that the gradient of a role goes to; TAPE_TIED; -1: it is frozen, or there is none. */
int  torch_gradient_of(const struct torch_model *b, enum tensor_role role, bool bias);
/* A parameter whose gradient goes there, in the dtype that it is kept in. */
var  torch_param(const struct torch_model *b, int gradient, int64_t numel);
/* The weight of the block's module with this role, of which the kernels that follow are. */
static inline var torch_param_of(struct torch_model *b, enum tensor_role role, int64_t numel)
{
    b->t->module = torch_piece_module(b->m, b->block, role, ADAPTER_NONE);
    return torch_param(b, torch_gradient_of(b, role, false), numel);
}

#endif
