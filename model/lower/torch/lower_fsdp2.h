/* lower_fsdp2.h -- what the files of FSDP2's lowering share.
 *
 *     lower_fsdp2.c          buffers, entries, whole steps
 *     lower_fsdp2_layout.c   sizes of shards, and which rows of which tensor lie where */
#ifndef DPX_LOWER_FSDP2_H
#define DPX_LOWER_FSDP2_H

#include "model/lower/common/lower_internal.h"

/* Elements and bytes of one unit, per class. */
struct sizes {
    int64_t numel, padded, local;           /* elements: true, with padding, of this rank without */
    int64_t shard_bytes, optimizer_bytes, foreach_bytes;
    int64_t unsharded_bytes, kept_bytes, grads_bytes, grads_wide_bytes;
};

/* Buffer families of one class of units. */
struct families {
    int shard, optimizer, gathered, unsharded, cast, post_forward;
    int grads_full, grads_wide, rs_in, rs_out, grads, grads_new;
    int own, own_kept;              /* layouts: this rank's part of the all-gather's output, before and
                                     * after forward kept only 1/k of the unit */
    int gathered_kept;              /* its output then */
};

struct fsdp2 {
    const struct plan *p;
    const struct local_model *local;
    const struct model *m;
    struct schedules  *s;
    struct unit_map    map;
    struct recipe      r;
    int64_t            nshard, rank_in_group;
    struct sizes       size[NUC];
    struct families    fam[NUC];
    int                acts[NPIECE], foreach_temp, norms;
    enum group         group;               /* where parameters are sharded */
    bool               hybrid, reshard, root_reshard, wide_grads, cast_grads;
    int64_t            reshard_ranks, root_ranks;   /* reshard_after_forward = k, else 0 */
    uint16_t           ev_copy_out, ev_gather, ev_reduce;
    uint16_t           ev_kept, ev_root_kept;   /* _reshard_after_forward_event */
    /* The micro-step being emitted: does it reduce, do unsharded gradients of an
     * earlier one exist, and sharded ones? */
    bool               reduce, has_unsharded, has_sharded;
};

/* An instance of a class's families: a unit, and its step inside a repeat. */
struct at { enum unit_class c; int i, by; };

/* Ranks that share what a unit keeps after forward; 0: its whole shard group. */
static inline int64_t fsdp2_kept_ranks(const struct fsdp2 *f, enum unit_class c)
{
    return c == UC_ROOT ? f->root_ranks : f->reshard_ranks;
}

/* Of unit 0 of a class: f->size[c], then (where layouts are asked for) what its buffers hold. */
void fsdp2_measure(struct fsdp2 *f, enum unit_class c);
/* The single allocations that a class's buffers are, and the optimizer's temporaries. */
void fsdp2_parts(struct fsdp2 *f, enum unit_class c);
void fsdp2_foreach_parts(struct fsdp2 *f);
void fsdp2_describe(struct fsdp2 *f, enum unit_class c);

#endif
