/* lower_fsdp1.h -- what the files of FSDP1's lowering share.
 *
 *     lower_fsdp1.c          buffers, forward and backward of units, whole steps
 *     lower_fsdp1_unshard.c  gathering and freeing a unit, the rate limiter
 *     lower_fsdp1_grads.c    a unit's gradient: concatenated, reduced, accumulated
 *     lower_fsdp1_adapters.c blocks whose adapters are units of their own
 *     lower_fsdp1_layout.c   which elements of which parameters buffers hold
 *     lower_fsdp1_offload.c  CPUOffload: shards come from the host, gradients go there
 *
 * Function names in comments are those of torch/distributed/fsdp/_runtime_utils.py
 * and _flat_param.py, PyTorch 2.15. */
#ifndef DPX_LOWER_FSDP1_H
#define DPX_LOWER_FSDP1_H

#include "model/framework/torch_fsdp1/flat_param.h"
#include "model/walk/walk.h"

/* Buffer families of one class of units. */
struct fsdp1_families {
    int shard, optimizer;       /* the FlatParameter that persists; its AdamW states */
    /* One for forward and one for backward: what backward gathers does not wait for
     * the last use in forward, so it cannot take the same bytes (record_stream). */
    int mp_shard[2];            /* _mp_shard: the shard in the compute dtype, while it is gathered */
    int full[2];                /* _full_param_padded (NO_SHARD: _mp_shard, which is whole);
                                 * the same where backward finds what forward left */
    int flat, flat_new;         /* unsharded gradient; a second one that is added to it */
    int wide, rs_in, rs_out;    /* in reduce_dtype; padded to equal chunks; reduce-scatter's output */
    int grads, grads_new;       /* what the optimizer reads; a second one that is added to it */
    int init_params, init_flat; /* while the unit is flattened */
    int handed;                 /* of an adapter that is a unit: its gradient, as autograd hands it out */
    /* With CPUOffload, where shard and optimizer are the host's: the shard as it is cut on the device and before it is
     * pinned; its copies to the device in forward and backward; the gradient that the optimizer reads, and zeros for it. */
    int first, born, staged[2], cpu_grad, zeros;
};

/* Free events are reused after so many units: more than are ever waited for. */
enum { RING = 4 };

/* Adapters' modules are called in forward, in backward, and in a forward that backward repeats (checkpoint). */
enum way { WAY_FORWARD, WAY_BACKWARD, WAY_AGAIN, NWAYS };

/* _FreeEventQueue: one event per freed unit; with two or more of them, the next
 * unshard takes the oldest and makes the issuing thread wait for it. */
struct limiter { uint16_t queue[16]; int n; };

/* What changes from entry to entry. */
struct fsdp1_now {
    enum way           way;             /* of the entries being emitted */
    struct limiter     limiter;
    /* The micro-step being emitted: does it reduce; do an unsharded gradient and a
     * reduced one of earlier micro-steps exist; are all units gathered already; are
     * their views made one unit early (forward_prefetch)? */
    bool               reduce, has_unsharded, has_reduced, gathered, views_early;
};

struct fsdp1 {
    struct walk        walk;
    const struct plan *p;
    const struct local_model *local;
    const struct model *m;
    struct schedules  *s;
    struct recipe      r;
    struct flat_rule   rule;
    struct flat_param  size[NUC];
    bool               trains[NUC];     /* any of the unit's tensors does: else it has no gradient */
    enum dtype         kept[NUC];       /* in which the FlatParameter persists */
    struct fsdp1_families fam[NUC];
    int                parts[NPIECE], foreach_temp;
    int                between[NPIECE];     /* gradients of the root's that a block's piece makes, between two units; -1: none */
    int                statistics;      /* buffer of what packed weights have beside their codes; -1: there are none */
    enum group         group;           /* where parameters are sharded, or all of them reduced */
    bool               sharded;         /* false: NO_SHARD */
    bool               hybrid;          /* a second reduction, between replicas */
    bool               frees_after_forward;     /* FULL_SHARD, HYBRID_SHARD: all units but the root */
    bool               offload;         /* CPUOffload(offload_params=True) */
    double             predivide, postdivide;
    uint16_t           ev_forward[RING], ev_backward[RING], ev_root, ev_half;
    uint16_t           ev_adapter[NWAYS][RING][ADAPTERS_MOST];
    int                module[ADAPTERS_MOST];   /* adapters that are units, as kernels count modules; map.nadapters of them */
    struct fsdp1_now   now, begun[2];   /* and as it was where a repeated micro-step, or step, begins */
    int                nbegun;
};

/* Does compute read a unit in another dtype than is kept? */
static inline bool fsdp1_casts(const struct fsdp1 *f, enum unit_class c) { return f->r.used != f->kept[c]; }

/* lower_ranks() of FSDP1: with use_orig_params the optimizer's tensors are the pieces
 * that lie in a rank's shard, and some ranks have more of them. */
int  fsdp1_ranks(const struct local_model *local, int64_t ranks[4]);

/* ---- lower_fsdp1_unshard.c ---- */

/* The family that compute reads. */
int  fsdp1_params(const struct fsdp1 *f, enum unit_class c, enum phase phase);
/* _unshard(): cast, rate limiter, all-gather.  `waits`: root's pre-forward, behind
 * everything that was issued (_root_pre_forward). */
void fsdp1_unshard(struct fsdp1 *f, struct at u, enum phase phase, bool waits);
/* Compute waits for all gathers issued so far. */
void fsdp1_await(struct fsdp1 *f, struct at u, enum phase phase);
/* _reshard() after a unit's forward, and after its backward. */
void fsdp1_reshard(struct fsdp1 *f, struct at u, enum phase phase);

/* ---- lower_fsdp1_grads.c ---- */

/* Autograd's last step: the gradients of a unit's parameters become one. */
void fsdp1_concatenate(struct fsdp1 *f, struct at u);
/* The rest of _post_backward_hook(): reduce and accumulate. */
void fsdp1_reduce(struct fsdp1 *f, struct at u);
/* The same where this micro-step does not reduce (no_sync). */
void fsdp1_leave_grads(struct fsdp1 *f, struct at u);

/* ---- lower_fsdp1.c ---- */

/* _prefetch_handle() in the reverse of the order in which forward ended: the unit at a position. */
void fsdp1_prefetch_backward(struct fsdp1 *f, int position, int by);

/* ---- lower_fsdp1_adapters.c: with fsdp.wrap_adapters ---- */

void fsdp1_adapters_setup(struct fsdp1 *f);
bool fsdp1_adapters_apart(const struct fsdp1 *f);
/* A block's compute entries; its backward comes behind the block's own _pre_backward_hook() but for its prefetch.  A hook: false where
 * adapters are no units. */
bool fsdp1_adapters_run(void *fsdp1, struct at u, bool forward);

/* ---- lower_fsdp1_offload.c: with f->offload ---- */

void    fsdp1_offload_declare(struct fsdp1 *f, enum unit_class c);
/* pre_unshard(): the shard comes to the device, and is cast there.  The family that is then gathered, or dropped. */
void    fsdp1_bring(struct fsdp1 *f, struct at u, enum phase phase, bool waits);
int     fsdp1_brought(const struct fsdp1 *f, enum unit_class c, enum phase phase);
void    fsdp1_drop_brought(struct fsdp1 *f, struct at u, enum phase phase);
/* With use_orig_params and without a cast what was brought lives until parameters are views of the host's shard again:
 * when the unit is resharded, or, where forward leaves it gathered, when backward has brought the next. */
bool    fsdp1_holds_brought(const struct fsdp1 *f, enum unit_class c);
void    fsdp1_release_brought(struct fsdp1 *f, struct at u, enum phase phase);
/* Gradients, and the step: a pass over the walk's schedules. */
void    fsdp1_offload(struct fsdp1 *f);
/* Bytes of AdamW's temporaries on the host. */
int64_t fsdp1_loop_bytes(const struct fsdp1 *f);
/* In the constructor, a unit's shard; then, in the first forward, all of them. */
void    fsdp1_shard_to_host(struct fsdp1 *f, struct at u);
void    fsdp1_pin(struct fsdp1 *f);

/* ---- lower_fsdp1_layout.c: where layouts are asked for ---- */

/* Of the families of a class of units, and of a piece's gradients. */
void fsdp1_describe(struct fsdp1 *f, enum unit_class c);
void fsdp1_describe_part(struct fsdp1 *f, enum piece_id piece);

#endif
