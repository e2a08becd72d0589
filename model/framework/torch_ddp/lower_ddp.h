/* lower_ddp.h -- what the files of DDP's lowering share.
 *
 *     lower_ddp.c            buckets, entries, whole steps
 *     lower_ddp_init.c       the first broadcast
 *     lower_ddp_hook.c       what a communication hook does with a bucket
 *     lower_ddp_powersgd.c   the hook that reduces narrow matrices
 *     lower_ddp_tensor.c     backward where a model's tensors are cut
 *     lower_ddp_alone.c      one GPU that no DDP wraps */
#ifndef DPX_LOWER_DDP_H
#define DPX_LOWER_DDP_H

#include "model/framework/torch_ddp/ddp_buckets.h"
#include "model/framework/zero_redundancy/zro.h"
#include "model/walk/walk.h"

/* A module that DDP wraps: the rank's model, or under a pipeline each of its chunks. */
struct ddp_module {
    int      from, to;              /* of the rank's blocks */
    bool     embeds, heads;
    int      ntrainable;
    int64_t  trainable;             /* bytes of gradients */
    int     *order, *registered;    /* tensors that train, as their gradients become ready and as they are registered */
    struct buckets  first, steady;
    const struct buckets *now;      /* the ones in use */
    int      bucket0_first, bucket0_steady; /* buffer families of the buckets, */
    int      number_first, number_steady;   /* and how many buckets other modules have before */
    int      compressed_first, compressed_steady;   /* what a hook has beside them, */
    int      completing_first, completing_steady;   /* gradients that complete buckets, */
    int      powersgd;              /* and PowerSGD's buffers, of each steady bucket several; */
    int     *narrow0, *rest;        /* its first matrix; the layout of what it does not compress */
    int     *pending;               /* per bucket: gradients not ready in this backward */
    int      next;                  /* the bucket to be reduced next */
    bool     marks_used;            /* static_graph: the int32 all-reduce of iteration 1 is due */
};

struct ddp {
    struct walk        walk;
    const struct plan *p;
    const struct local_model *local;
    const struct model *m;
    struct schedules  *s;
    struct recipe      r;
    bool     view, keeps_first_buckets;
    bool     alone;                 /* no DDP: neither buckets nor reductions; */
    bool     in_backward, updated;  /* parameters are updated within backward; some were, and the states are there */
    bool     hooked;                /* a communication hook divides, and may compress; */
    bool     compresses;            /* PowerSGD has begun */
    bool     syncs, fresh, sync;    /* this forward broadcasts the module's buffers first; no gradient was there before this backward; it
                                     * reduces buckets */
    bool     rebuilds;              /* buckets, between this step's micro-steps */
    int      due;                   /* gradients of the next bucket that come after a kernel */
    bool     apart;                 /* backward leaves gradients in .grad's own storages */
    int      ntensors;
    struct ddp_module module[PLAN_MAX_CHUNKS], *at;     /* the one whose turn it is */
    int      nmodules;
    int      params, optimizer, foreach;
    int      module_buffers;        /* their elements; of a recorded module how many there are */
    int     *grad_family;           /* per tensor; tensors of blocks share one per role */
    bool     late;                  /* tensors are cut: gradients reach their parameters at the end of backward */
    int      waiting;               /* the same of gradients that wait to be added: so many families further */
    struct zro zro;                 /* whose optimizer has which tensor */
    int64_t  own_numel, own_bytes, own_states, own_tensors;
    int      paged;                 /* states in managed memory, if there are any */
    int64_t  paged_bytes;
    uint8_t *dtype;                 /* per tensor: enum dtype of its gradient */
    int64_t *param_at;              /* where each tensor lies among the parameters, in bytes */
};

/* Is the tensor of the module whose turn it is? */
bool ddp_has(const struct ddp *d, int tensor);

/* Does this rank update the tensor?  Bytes of its gradient, 0 where it does not train.  Its gradient, `at` bytes from the buffer's
 * begin, in the layout that is being made. */
bool    ddp_owns(const struct ddp *d, int tensor);
int64_t ddp_grad_bytes(const struct ddp *d, int tensor);
void    ddp_grad_slice(struct ddp *d, int tensor, int64_t at);
/* All buffers; the last are activations'. */
void ddp_declare(struct ddp *d);

/* A tensor's instance in its family; the buffer of a bucket in use. */
int  ddp_instance_of(const struct ddp *d, int tensor);
int  ddp_bucket_buf(const struct ddp *d, int bucket);
/* Reduces the buckets whose turn it is and whose gradients are there. */
void ddp_launch(struct ddp *d);

/* Reduces a bucket whose turn it is; declares what the module's hook needs for it. */
void ddp_reduce(struct ddp *d, int bucket);
void ddp_hook_declare(struct ddp *d);
/* After the first step: what the hook keeps from step to step comes. */
void ddp_hook_begins(struct ddp *d);

/* Behind the copies out of the module's buckets. */
void ddp_hook_settle(struct ddp *d);

/* Of a hook: a bucket's number among all modules'; a pass over it; a sum of `elems` elements of a buffer for it. */
int  ddp_bucket_number(const struct ddp *d, int bucket);
void ddp_hook_pass(struct ddp *d, int bucket, enum stream stream, const char *what, int64_t reads, int64_t writes, enum copy_fn fn,
                   double scale);
void ddp_all_reduce(struct ddp *d, int bucket, int buf, int64_t elems, uint16_t after);

/* The same by PowerSGD; what it keeps comes, if it is the hook. */
void ddp_powersgd_declare(struct ddp *d);
void ddp_powersgd_reduce(struct ddp *d, int bucket);
void ddp_powersgd_begins(struct ddp *d);

/* Appends where a parameter lies to the layout that is being made. */
void ddp_param_slice(void *ddp, int tensor);
/* What buffers bucket0, bucket0 + 1 ... hold: the n tensors of buckets b, which were assigned in `order`. */
void ddp_describe_buckets(struct ddp *d, const struct buckets *b, const int *order, int n, int bucket0, enum holds h,
                          int dt);
/* A collective of all ranks on what is neither parameters nor gradients. */
struct op *ddp_tell(struct ddp *d, enum phase phase, enum coll_op op, enum dtype t, enum red_op red, int64_t elems);

/* Before a forward: the module's buffers from rank 0. */
void ddp_sync_buffers(struct ddp *d);
/* Parameters, then buffers, from rank 0, in chunks. */
void ddp_broadcast_model(struct ddp *d);

/* Without DDP, an optimizer within backward: updates what the entry's gradients are of, which go. */
void ddp_update_ready(struct ddp *d, const struct walk_run *r);
bool ddp_has_ready(const struct ddp *d, const struct walk_run *r, int kernel);

/* Of a model that is cut by tensors: what an entry of backward leaves; behind backward, up to the last bucket; the order in which its
 * gradients become ready. */
void ddp_late_grads(struct ddp *d, const struct walk_run *r);
void ddp_late_settle(struct ddp *d);
void ddp_late_order(struct ddp *d);

#endif
