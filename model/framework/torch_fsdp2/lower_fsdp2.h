/* lower_fsdp2.h -- what the files of FSDP2's lowering share.
 *
 *     lower_fsdp2.c          hooks around modules, whole steps
 *     lower_fsdp2_group.c    entries of one unit
 *     lower_fsdp2_ends.c     units of what is outside of the blocks
 *     lower_fsdp2_pipeline.c hooks of a pipeline's stage
 *     lower_fsdp2_layout.c   sizes of shards, and which rows of which tensor lie where
 *     lower_fsdp2_offload.c  CPUOffloadPolicy: shards come from the host, gradients go there
 *     lower_fsdp2_states.c   states wait on the host but in the optimizer's step
 *     lower_fsdp2_float8.c   weights that are cast to 8-bit floats before they are gathered
 *     lower_fsdp2_muon.c     optimizers: Muon's entries and what a step takes
 *     lower_fsdp2_tensor.c   tensors that are a tensor-parallel rank's share
 *     lower_fsdp2_experts.c  blocks whose experts other ranks share */
#ifndef DPX_LOWER_FSDP2_H
#define DPX_LOWER_FSDP2_H

#include "model/arch/recorded.h"
#include "model/schedule/schedule_states.h"
#include "model/walk/walk.h"

/* Elements and bytes of one unit, per class. */
struct sizes {
    int64_t numel, padded, local;           /* elements: true, with padding, of this rank without */
    int64_t trained, reduced, stepped;      /* the same of what trains: of the unsharded gradients, the reduction, the optimizer */
    int64_t shard_bytes, optimizer_bytes, foreach_bytes;
    int64_t used, cast;                     /* bytes of all ranks' shards as they are gathered; of those that are cast before */
    int64_t cast_work;                      /* bytes that casting the rank's shard takes beside its result */
    int     float8;                         /* weights that are gathered in float8 */
    int64_t unsharded_bytes, kept_bytes, grads_bytes, grads_wide_bytes, host_grads_bytes;
};

/* Buffer families of one class of units. */
struct families {
    int shard, optimizer, gathered, unsharded, cast, cast_work, post_forward;
    int grads_full, grads_wide, rs_in, rs_out, grads, grads_new;
    int states_home;                /* with optimizer_offload: where states wait */
    int own, own_kept;              /* layouts: this rank's part of the all-gather's output, before and
                                     * after forward kept only 1/k of the unit */
    int gathered_kept;              /* its output then */
};

/* Bytes that a tensor of so many takes where it lies. */
typedef int64_t fsdp2_room(int64_t bytes);

/* A stage's units, by position + 1, roots first and last; what it holds (lower_fsdp2_pipeline.c). */
struct fsdp2_stage {
    bool old;                       /* PyTorch before 2.15 */
    struct { bool there, coming; uint16_t gathered, experts; } *unit;
    struct at held;                 /* unit whose all-gather's output is still there; held.c NUC: none */
    bool first_gather;              /* of this forward: after the optimizer, or what came before */
};

struct fsdp2 {
    struct walk        walk;
    const struct plan *p;
    const struct local_model *local;
    const struct model *m;
    struct schedules  *s;
    struct recipe      r;
    int statistics;                 /* buffer of what packed weights have beside their codes; -1: there are none */
    int64_t            nshard, rank_in_group;
    struct sizes       size[NUC];
    struct families    fam[NUC];
    int                foreach_temp;
    enum group         group;               /* where parameters are sharded */
    bool               hybrid, reshard, root_reshard, wide_grads, cast_grads;
    int64_t            reshard_ranks, root_ranks;   /* reshard_after_forward = k, else 0 */
    uint16_t           ev_copy_out, ev_gather, ev_gather_experts, ev_reduce;
    uint16_t           ev_kept, ev_root_kept;   /* _reshard_after_forward_event */
    int64_t            table;               /* elements of the token embedding's gradient where it is of more than the rank's
                                             * rows; 0: it is not.  Of this, of what accumulates, of the rank's rows: */
    int                table_grads, table_wide, table_own;
    bool               offload;             /* CPUOffloadPolicy, by a pass behind the walk: */
    enum space         home;                /* of shards and gradients; states are in pageable memory */
    fsdp2_room        *param_room, *state_room, *grad_room;
    struct states_unit away[NUC];
    int                states_staged;       /* with optimizer_offload: a state on the host before it is pinned; bytes of all states: */
    int64_t            states_bytes;
    /* The micro-step being emitted: does it reduce, do unsharded gradients of an
     * earlier one exist, and sharded ones? */
    bool               reduce, has_unsharded, has_sharded;
    bool               has_ignored;         /* of experts that FSDP ignores: gradients of an earlier micro-step */
    enum stream        copy_in;
    struct fsdp2_stage stage;
};

/* ---- lower_fsdp2_ends.c: the root, and what it is taken apart into ---- */

/* The units that may follow fsdp.root_reshard_after_forward; has the plan a unit of the head? */
static inline bool fsdp2_has_head(enum unit_class c) { return c == UC_ROOT || c == UC_OUTPUT; }
static inline bool fsdp2_has_tail(const struct fsdp2 *f) { return f->walk.map.of_class[UC_OUTPUT] > 0; }
/* Not a unit of blocks. */
static inline bool fsdp2_is_end(enum unit_class c) { return c <= UC_OUTPUT; }
/* The unit that has the token embedding; the one whose head is behind the blocks, c NUC where there is none; of forward's gathers the first. */
struct at fsdp2_embeds(const struct fsdp2 *f);
struct at fsdp2_heads(const struct fsdp2 *f);
struct at fsdp2_first(const struct fsdp2 *f);
/* Those whose turn in backward comes in the root's final callback, in its order: how many. */
int  fsdp2_last_ends(const struct fsdp2 *f, struct at to[2]);
/* Has a recorded unit no backward (REC_FORWARD_ONLY)? */
bool fsdp2_is_forward_only(const struct fsdp2 *f, int position);
/* Of an embedding that is resharded and does not train, or of such a unit: the unit behind it prefetches it in backward, and nothing waits for it. */
bool fsdp2_is_prefetched_in_vain(const struct fsdp2 *f, struct at u);
void fsdp2_drop_prefetched(struct fsdp2 *f, struct at u);
/* Is the head a unit that the loss calls for each part of the tokens?  Such a call, or its backward, begins; and ends. */
static inline bool fsdp2_calls_head(const struct fsdp2 *f) { return f->s->program.ncalls > 0; }
void fsdp2_call(struct fsdp2 *f, struct at u, bool forward);
void fsdp2_called(struct fsdp2 *f, struct at u, bool forward);
/* The last entry, of a piece outside of the blocks, reads what the root has left, and leaves its gradients. */
void fsdp2_compute_rest(struct fsdp2 *f, const struct walk_run *r);

/* Ranks that share what a unit keeps after forward; 0: its whole shard group. */
static inline int64_t fsdp2_kept_ranks(const struct fsdp2 *f, enum unit_class c)
{
    return fsdp2_has_head(c) ? f->root_ranks : f->reshard_ranks;
}

/* The ranks that share a unit, this rank's place among them, and their group; are there units of experts? */
static inline bool fsdp2_has_experts(const struct fsdp2 *f) { return f->p->parallel.expert > 1; }
static inline int64_t fsdp2_ranks(const struct fsdp2 *f, enum unit_class c)
{
    return c == UC_EXPERTS ? f->local->expert_data_ranks : f->nshard;
}
static inline int64_t fsdp2_rank(const struct fsdp2 *f, enum unit_class c)
{
    return c == UC_EXPERTS ? f->local->expert_data_rank : f->rank_in_group;
}

/* The dtype in which a tensor's shard persists. */
static inline enum dtype fsdp2_kept(const struct fsdp2 *f, const struct tensor *t) { return plan_kept(&f->r, t); }

/* ---- lower_fsdp2_experts.c ---- */

/* Has a unit's block experts that are a unit beside it?  Theirs: */
static inline bool fsdp2_with_experts(const struct fsdp2 *f, struct at u) { return u.c == UC_FULL && fsdp2_has_experts(f); }
static inline struct at fsdp2_experts(struct at u)
{
    u.c = UC_EXPERTS;
    return u;
}
/* Are they parameters of FSDP's, which it gathers, reshards and reduces?  Those that a rank has alone may not be (ignored_params). */
static inline bool fsdp2_ignores(const struct fsdp2 *f, enum unit_class c) { return c == UC_EXPERTS && f->p->fsdp.ignores_experts; }
static inline bool fsdp2_shards_experts(const struct fsdp2 *f, struct at u) { return fsdp2_with_experts(f, u) && !fsdp2_ignores(f, UC_EXPERTS); }
/* Families of experts that FSDP ignores; the last entry leaves their gradients, or adds to those of earlier micro-steps; behind a unit's backward. */
void fsdp2_declare_ignored(struct fsdp2 *f);
void fsdp2_leave_ignored(struct fsdp2 *f, struct at u);
void fsdp2_add_ignored(struct fsdp2 *f, struct at u);
/* Dimension on which a class's tensors are cut. */
int  fsdp2_dim(const struct fsdp2 *f, enum unit_class c);
/* Tensors of experts that are a unit of their own. */
int  fsdp2_expert_tensors(const struct fsdp2 *f);
/* Before a unit's forward, behind its backward. */
void fsdp2_pre_forward_with_experts(struct fsdp2 *f, struct at u);
void fsdp2_post_backward_with_experts(struct fsdp2 *f, struct at u, const struct at *before);
/* Both parts of a unit are gathered, the experts' first on the way back. */
void fsdp2_prefetch_with_experts(struct fsdp2 *f, struct at u, enum phase phase);

/* Of unit 0 of a class: f->size[c], then (where layouts are asked for) what its buffers hold. */
void fsdp2_measure(struct fsdp2 *f, enum unit_class c);
/* The families of a class; after fsdp2_measure(). */
void fsdp2_declare(struct fsdp2 *f, enum unit_class c);
/* wait_for_unshard() on one rank: each parameter is cast, and copied from there; the cast goes when the next one is there. */
bool fsdp2_casts_alone(const struct fsdp2 *f, enum unit_class c);
/* The single allocations that a class's buffers are, and the optimizer's temporaries. */
void fsdp2_parts(struct fsdp2 *f, enum unit_class c);
void fsdp2_foreach_parts(struct fsdp2 *f);
void fsdp2_describe(struct fsdp2 *f, enum unit_class c);
/* Layout of the i-th tensor of unit 0 alone: this rank's rows of it, `at` bytes into the buffer. */
int  fsdp2_describe_one(struct fsdp2 *f, enum unit_class c, enum holds h, enum dtype dt, int i, int64_t at);
/* The same of the shards' buffer. */
int  fsdp2_describe_shard(struct fsdp2 *f, enum unit_class c, int i);
/* Bytes of each of the states of tensor t on this rank; returns how many there are (OPTIMIZER_PARTS at most). */
int  fsdp2_states(const struct fsdp2 *f, enum unit_class c, int t, int64_t bytes[]);
/* Elements of this rank's shard of tensor t: with and without padding. */
int64_t fsdp2_padded_share(const struct fsdp2 *f, int t);
int64_t fsdp2_local_share(const struct fsdp2 *f, int t);

/* ---- lower_fsdp2_group.c ---- */

void fsdp2_unshard(struct fsdp2 *f, struct at u, enum phase phase, bool root_of_forward, bool again);
void fsdp2_copy_out(struct fsdp2 *f, struct at u, enum phase phase, bool again);
void fsdp2_release(struct fsdp2 *f, struct at prev);
void fsdp2_reshard(struct fsdp2 *f, struct at u);
void fsdp2_regather(struct fsdp2 *f, struct at u);
void fsdp2_accumulate(struct fsdp2 *f, struct at u);
void fsdp2_post_backward(struct fsdp2 *f, struct at u, const struct at *prev);

/* Hooks that a stage has, too; unsharded gradients of earlier micro-steps are there, or not. */
void fsdp2_init(void *fsdp2);
void fsdp2_optimizer(void *fsdp2);
void fsdp2_compute(void *fsdp2, const struct walk_run *r);
void fsdp2_finds_unsharded(struct fsdp2 *f, bool has);
void fsdp2_leave_grads(struct fsdp2 *f, struct at u);

/* A pipeline's stage: what it has beside other plans, and its hooks. */
void fsdp2_stage_setup(struct fsdp2 *f);
extern const struct walk_hooks fsdp2_stage_hooks;

/* Bytes an element of a tensor as it is gathered; cast_work of a class, and of the codes alone; the dtype in which its units travel, in which
 * struct sizes.used is counted in elements. */
int64_t fsdp2_used_bytes(const struct fsdp2 *f, const struct tensor *t);
int64_t fsdp2_cast_work(const struct fsdp2 *f, enum unit_class c);
int64_t fsdp2_code_bytes(const struct fsdp2 *f, enum unit_class c);
enum dtype fsdp2_wire(const struct fsdp2 *f, enum unit_class c);
/* Before a unit's copy-in: the scales of its float8 weights, unless they are there; whether the copy-in waits for them. */
bool fsdp2_scales(struct fsdp2 *f, struct at u, enum phase phase, uint16_t after);
/* Behind the optimizer: precompute_float8_dynamic_scale_for_fsdp(). */
void fsdp2_precompute_scales(struct fsdp2 *f);

/* The optimizer's entries, of `elems` elements on this rank: returns the last.  The parts of f->foreach_temp, which has those of the
 * list of all tensors. */
struct op *fsdp2_step(struct fsdp2 *f, int64_t elems);
void fsdp2_step_temporaries(struct fsdp2 *f);

/* Elements of the token embedding's gradient where tensor-parallel ranks have all of it; else 0. */
int64_t fsdp2_table_elems(const struct fsdp2 *f);
/* Bytes of a tensor's, and of a unit's, gradients as autograd leaves them, but the whole table's, in dtype dt. */
int64_t fsdp2_grad_bytes(const struct fsdp2 *f, int t, enum dtype dt);
int64_t fsdp2_grads_bytes(const struct fsdp2 *f, enum unit_class c, enum dtype dt);
/* Buffers of the whole table's gradients. */
void fsdp2_tensor_declare(struct fsdp2 *f);
/* The last entry leaves the table's gradient, or adds to what earlier micro-steps left; it is kept in the wider dtype. */
void fsdp2_table_left(struct fsdp2 *f);
void fsdp2_table_widened(struct fsdp2 *f);
/* Gradients in family `from` get the layouts of their parameters.  Whether compute has to wait for STREAM_TENSOR. */
bool fsdp2_lay_out_grads(struct fsdp2 *f, struct at u, int from);

/* Sets home and room, before sizes are measured. */
void fsdp2_offload_setup(struct fsdp2 *f);
/* Families of a class that CPUOffloadPolicy adds, and layouts of its single tensors; after fsdp2_measure(). */
void fsdp2_offload_declare(struct fsdp2 *f, enum unit_class c);
/* Of a rank alone each unsharded parameter is a buffer. */
static inline bool fsdp2_brings_alone(const struct fsdp2 *f) { return f->offload && f->nshard == 1; }
/* The pass over the walk's schedules. */
void fsdp2_offload(struct fsdp2 *f);
/* Bytes that AdamW's loop over parameters takes beside its states. */
int64_t fsdp2_loop_bytes(const struct fsdp2 *f);

/* ---- lower_fsdp2_states.c ---- */

/* With optimizer_offload: the host's families, after all classes are measured; around the optimizer, and behind it. */
void fsdp2_states_declare(struct fsdp2 *f);
void fsdp2_states_come(struct fsdp2 *f);
void fsdp2_states_leave(struct fsdp2 *f, bool first);

#endif
