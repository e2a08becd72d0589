/* lower_megatron.h -- what the files of Megatron-LM's lowering share.
 *
 *     lower_megatron.c           passes, the end of a step, whole steps
 *     lower_megatron_layout.c    buffers of parameters and gradients, buckets, shards
 *     lower_megatron_states.c    what the optimizer keeps, and its kernels
 *     lower_megatron_sync.c      gradients reduced, parameters gathered
 *     lower_megatron_codes.c     weights and scales of 8 and 4 bits
 *     lower_megatron_pipeline.c  hooks of a pipeline's stage */
#ifndef DPX_LOWER_MEGATRON_H
#define DPX_LOWER_MEGATRON_H

#include "model/walk/walk.h"

/* Elements [from, to) of a chunk's buffers, filled up at its end; of how many tensors it has some.  Parameters in 8 bits have a buffer of
 * their own, which comes first; the buckets of the other follow that buffer's last one (partition_buckets()): they are reduced and gathered
 * with it, their `lead`.  Experts that ranks share out have one, too, which comes last. */
/* Of `lead`, the buckets from it to `end` go together; led: tensors of all that it leads. */
struct mega_bucket { int64_t from, to; int tensors; bool codes, experts; int lead, end, led; };

/* A parameter in a buffer: a tensor, or one expert's part of it. */
struct mega_param { int tensor, bucket; int64_t at, numel; };

/* A model chunk, wrapped by a DistributedDataParallel of its own: all that the rank has, or one of its stages. */
struct mega_chunk {
    int      from, to;              /* of the rank's blocks */
    bool     embeds, heads;
    int      nbuckets;
    struct mega_bucket *bucket;     /* in the order in which backward fills them */
    int     *of, *last;             /* first and last bucket of each of the model's tensors; -1: another chunk's */
    struct mega_param *param;       /* as they lie */
    int      nparams;
    int64_t  numel;                 /* of all buffers, */
    int64_t  codes;                 /* of them those of parameters in 8 bits */
    int      params, grads;         /* buffers */
    int      frozen;                /* one of the tensors that do not train; -1: all do */
    int     *pending;               /* per bucket: gradients to come in this backward */
    bool    *reducing, *gathering;  /* its collective was issued */
    uint16_t *gathered;             /* its event */
    bool     called;                /* a pipeline's schedule began its reductions (grad_sync_func), not hooks */
    bool     waits;                 /* this forward waits for gathers */
    bool     casts;                 /* it casts weights: the step's first */
};

struct mega {
    struct walk        walk;
    const struct plan *p;
    const struct local_model *local;
    const struct model *m;
    struct schedules  *s;
    struct recipe      r;
    bool     sharded;               /* the distributed optimizer, */
    int64_t  instances;             /* and how many of it */
    bool     codes;                 /* parameters of linear layers are kept in 8 bits */
    bool     hooks;                 /* buckets are reduced as soon as they are full, in this step's last backward */
    struct mega_chunk chunk[PLAN_MAX_CHUNKS], *at;      /* the one whose turn it is */
    int      nchunks;
    int      weights, scales;       /* buffers: Transformer Engine's codes of weights, its scales; -1: none */
    int      master, moments, wide;         /* buffers: fp32 parameters, Adam's moments, fp32 copies of gradients; -1: not here */
    int      unscaled[2], narrowed;         /* states in fp32 for a step, of what all ranks have, of experts that are shared out; one in 16 bits */
    int      sums;                  /* gradients that are parts of sums over the tensor-parallel ranks */
    int64_t  own_elems, partial;    /* elements that this rank updates; and of those sums */
    int64_t  own_codes;             /* elements of parameters in 8 bits that it updates */
    bool     gathers;               /* of a stage: this step gathers */
    int      held;                  /* buffers: what the output layer's weight gradients wait for; -1: none */
    int64_t  deferred;              /* micro-steps that have one */
};

/* ---- lower_megatron_layout.c ---- */

void megatron_open(struct mega *z);
void megatron_close(struct mega *z);
bool megatron_has(const struct mega_chunk *c, const struct tensor *t);
/* Is the tensor experts that ranks share out, in buffers and with an optimizer of their own? */
bool megatron_shares_out(const struct mega *z, int tensor);
/* The ranks over which a bucket's gradients are reduced, of the distributed optimizer those of an instance, which share its states. */
int64_t megatron_ranks(const struct mega *z, const struct mega_bucket *b);

/* Elements of a parameter that this rank's optimizer has: its run of the bucket. */
int64_t megatron_own(const struct mega *z, const struct mega_chunk *c, const struct mega_param *p);

/* ---- lower_megatron_states.c ---- */

void megatron_declare_states(struct mega *z);
/* Before a step, where FusedAdam does not keep them: fp32 parameters. */
void megatron_copy_params(struct mega *z);
/* FusedAdam's step, and what copies its parameters to the model's. */
void megatron_adam(struct mega *z, bool first_step);

/* ---- lower_megatron_sync.c ---- */

/* The bucket's reduction is issued: start_grad_sync(). */
void megatron_reduce(struct mega *z, struct mega_chunk *c, int bucket);
/* The bucket's gather is issued: start_param_sync(). */
void megatron_gather(struct mega *z, struct mega_chunk *c, int bucket, enum phase phase);
/* Before kernels that read a tensor of this bucket: it is there, the next one is asked for. */
void megatron_await_bucket(struct mega *z, int of);
/* Elements of a bucket that are parameters in 8 bits. */
int64_t megatron_codes_in(const struct mega_chunk *c, int bucket);
/* The coalesced sums over tensor-parallel ranks; a tied embedding's over the pipeline's ends; a division by the batch's tokens. */
void megatron_finalize(struct mega *z);

/* The bucket that another one goes with. */
static inline int megatron_lead(const struct mega_chunk *c, int bucket) { return c->bucket[bucket].lead; }

/* ---- lower_megatron_codes.c ---- */

/* Weights of a block, or of a depth of multi-token prediction (TENSOR_HEAD), to 8 or 4 bits, in the step's first forward. */
void megatron_cast_block(struct mega *z, int block, int by);
/* Delayed scaling: the largest numbers of a pass become scales, once all ranks of the stage have agreed on them. */
void megatron_agree(struct mega *z, enum phase phase);
/* Parameters in 8 bits, of what the optimizer has updated. */
void megatron_cast_params(struct mega *z);
/* What follows the arrival of n gathered parameters: their transposed copies, or mxfp8 of them. */
void megatron_turn(struct mega *z, enum phase phase, int64_t n);

/* ---- passes ---- */

/* A pass of the chunk whose turn it is; `hooks`: a backward in which full buckets are reduced. */
void megatron_begin_pass(struct mega *z, bool hooks);

/* ---- lower_megatron_pipeline.c ---- */

void megatron_begin_stage(struct mega *z);
void megatron_begin_stage_pass(struct mega *z);
/* Hooks, which do nothing where there is no pipeline. */
void megatron_pre_forward(void *mega, struct at root);
void megatron_post_backward(void *mega, struct at root);
void megatron_stage_act(void *mega, const struct pipeline_act *a);
void megatron_end_of_stage(void *mega);
/* What waits for the stage's last backward: its buffers, of a micro-step; its products. */
void megatron_declare_deferred(struct mega *z);
void megatron_hold(struct mega *z, const struct walk_run *r);
void megatron_drain(struct mega *z);

#endif
