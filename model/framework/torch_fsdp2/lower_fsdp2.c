/* lower_fsdp2.c -- torch.distributed.fsdp.fully_shard (FSDP2), and HSDP.
 *
 * Source: torch/distributed/fsdp/_fully_shard/_fsdp_state.py of PyTorch 2.15: what its hooks around modules do, in their order.
 * What they do to one unit, its FSDPParamGroup, is in lower_fsdp2_group.c.  The names of its functions stand at the entries. */
#include <stddef.h>

#include "model/lower/common/optimizer.h"
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

/* First units of which no input wants a gradient: autograd does not come to their post_backward; their turn comes in the root's final
 * callback, behind the root's own. */
static int late_units(const struct fsdp2 *f)
{
    bool frozen_half = f->walk.map.kind == UNIT_HALF_BLOCK && f->size[UC_ATTENTION].trained == 0;

    return f->walk.map.n == 0 || !program_first_differs(f->p) ? 0 : frozen_half ? 2 : 1;
}

/* Is a unit such? */
static bool is_late(const struct fsdp2 *f, int position)
{
    return f->m->recorded ? position >= 0 && f->m->recorded->turn[position] == REC_LATE : position < late_units(f);
}

/* Of units from `position` on, and a head apart, the one that backward reduced last: a unit without anything that trains reduces nothing.
 * NULL: there is none. */
static const struct at *reduced_last(const struct fsdp2 *f, int position, int by, struct at *u)
{
    for (; position < f->walk.map.n; position++) {
        *u = walk_at(&f->walk, position, by);
        if (f->size[u->c].trained > 0 && (!f->m->recorded || f->m->recorded->turn[position] == REC_TURN))
            return u;
    }
    *u = fsdp2_heads(f);
    return u->c != NUC && f->size[u->c].trained > 0 ? u : NULL;
}

/* The unit that forward gathered before this one. */
static struct at gathered_before(const struct fsdp2 *f, struct at u)
{
    if (u.position > 0 || u.c == fsdp2_heads(f).c)
        return walk_at(&f->walk, u.position > 0 ? u.position - 1 : f->walk.map.n - 1, u.by);
    return u.position == 0 ? fsdp2_embeds(f) : walk_root;
}

/* Is the unit freed after forward?  The last one may stay, as backward begins with it. */
static bool reshards(const struct fsdp2 *f, struct at u)
{
    if (u.position == f->walk.map.n - 1 && u.position >= 0 && f->p->fsdp.keeps_last_unit)
        return false;
    return u.c == UC_ROOT && fsdp2_has_tail(f) ? false : fsdp2_has_head(u.c) ? f->root_reshard : f->reshard;
}

/* ---- hooks ---- */

static void pre_forward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;

    bool first = u.c == fsdp2_first(f).c;

    if (f->walk.map.of_class[u.c] == 0)
        return;
    if (f->walk.calls > 0) {
        fsdp2_call(f, u, true);
        return;
    }
    if (u.c != UC_ROOT && fsdp2_has_experts(f)) {
        fsdp2_pre_forward_with_experts(f, u);
        return;
    }
    fsdp2_unshard(f, u, PHASE_FORWARD, first, false);
    if (!first && f->nshard > 1)
        fsdp2_release(f, gathered_before(f, u));
    fsdp2_copy_out(f, u, PHASE_FORWARD, false);
    if (u.c == UC_ROOT && fsdp2_has_experts(f))
        fsdp2_prefetch_with_experts(f, walk_at(&f->walk, 0, 0), PHASE_FORWARD);
}

/* FSDPState._post_forward. */
static void post_forward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;
    struct at last = fsdp2_heads(f);

    if (f->walk.calls > 0) {
        fsdp2_called(f, u, true);
        return;
    }
    last = last.c == NUC || fsdp2_calls_head(f) ? walk_at(&f->walk, f->walk.map.n - 1, 0) : last;
    last = fsdp2_shards_experts(f, last) ? fsdp2_experts(last) : last;
    if (u.c == UC_ROOT && fsdp2_ranks(f, last.c) > 1)
        fsdp2_release(f, last);
    if (reshards(f, u))
        fsdp2_reshard(f, u);
    if (fsdp2_shards_experts(f, u) && reshards(f, u))
        fsdp2_reshard(f, fsdp2_experts(u));
}

/* One unit of backward prefetch: the root's, or a head's that is apart from it, prefetches the last one. */
static void prefetch(struct fsdp2 *f, struct at next)
{
    if (reshards(f, next) && fsdp2_has_experts(f))
        fsdp2_prefetch_with_experts(f, next, PHASE_BACKWARD);
    else if (reshards(f, next))
        fsdp2_unshard(f, next, PHASE_BACKWARD, false, true);
}

static void pre_backward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;
    bool head = fsdp2_has_head(u.c), both = !fsdp2_is_end(u.c) && walk_needs_both(&f->walk, u);
    struct at next = walk_at(&f->walk, head ? f->walk.map.n - 1 : u.position - 1, u.by);

    if (f->walk.calls > 0) {
        fsdp2_call(f, u, false);
        return;
    }
    if ((u.c == UC_ROOT && fsdp2_has_tail(f) && !fsdp2_calls_head(f)) || fsdp2_is_prefetched_in_vain(f, u))
        return;
    if (u.position == 0)
        next = fsdp2_embeds(f);
    if ((head && reshards(f, u)) || (u.position >= 0 && reshards(f, u) && fsdp2_is_forward_only(f, u.position + 1)))      /* no other has gathered it */
        fsdp2_unshard(f, u, PHASE_BACKWARD, false, true);
    if (reshards(f, u) && (!both || u.c == UC_MLP))
        fsdp2_regather(f, u);
    if (reshards(f, u) && fsdp2_shards_experts(f, u))
        fsdp2_regather(f, fsdp2_experts(u));
    if (!fsdp2_has_head(next.c))
        prefetch(f, next);
    if (f->reshard && both && u.c == UC_MLP)
        fsdp2_regather(f, next);
}

/* _root_post_backward_final_callback. */
static void final_callback(struct fsdp2 *f, const struct at *reduced)
{
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await reductions")->after = AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE);
    if (reduced)
        sched_act(f->s, ACT_FREE, f->fam[reduced->c].rs_in, reduced->i, 0);
    if (f->hybrid && (f->cast_grads || f->has_sharded || f->offload))
        for (int c = 0; c < NUC; c++)       /* AllReduceState holds these until now */
            if (f->walk.map.of_class[c] > 0 && f->size[c].trained > 0 && !fsdp2_ignores(f, (enum unit_class)c))
                sched_act_all(f->s, ACT_FREE, f->fam[c].rs_out);
}

/* The root's inputs, and an embedding's, need no gradient: their turn comes in the final callback, after all of backward, and that of late
 * units behind it. */
static void post_backward_of_root(struct fsdp2 *f)
{
    int late = late_units(f);
    struct at last, ends[2];
    const struct at *reduced = reduced_last(f, f->m->recorded ? 0 : late, 0, &last);
    int n = fsdp2_last_ends(f, ends);

    for (int i = -n; i < (f->m->recorded ? f->walk.map.n : late); i++) {
        struct at u = i < 0 ? ends[n + i] : walk_at(&f->walk, i, 0);
        if (i >= 0 && !is_late(f, i) && (f->reshard || !fsdp2_is_forward_only(f, i)))
            continue;
        if (i >= 0 || !fsdp2_is_prefetched_in_vain(f, u))
            fsdp2_post_backward_with_experts(f, u, reduced);
        if (f->size[u.c].trained > 0) {
            last = u;
            reduced = &last;
        }
    }
    if (f->reduce)
        final_callback(f, reduced);
    if (fsdp2_is_prefetched_in_vain(f, fsdp2_embeds(f)))
        fsdp2_drop_prefetched(f, fsdp2_embeds(f));
    for (int i = 0; i < f->walk.map.n && f->reshard; i++)
        if (fsdp2_is_forward_only(f, i) && !fsdp2_is_forward_only(f, i + 1))
            fsdp2_drop_prefetched(f, walk_at(&f->walk, i, 0));
}

static void post_backward(void *fsdp2, struct at u)
{
    struct fsdp2 *f = fsdp2;
    struct at prev;

    if (f->walk.calls > 0)
        fsdp2_called(f, u, false);
    else if (u.c == UC_ROOT)
        post_backward_of_root(f);
    else if (fsdp2_has_experts(f) && !is_late(f, u.position))
        fsdp2_post_backward_with_experts(f, u, reduced_last(f, u.position + 1, u.by, &prev));
    else if (fsdp2_has_experts(f))
        return;
    else if (u.c == fsdp2_heads(f).c)
        fsdp2_post_backward(f, u, NULL);
    else if (!fsdp2_is_end(u.c) && !is_late(f, u.position) && !fsdp2_is_forward_only(f, u.position))
        fsdp2_post_backward(f, u, reduced_last(f, u.position + 1, u.by, &prev));
}

/* Where autograd leaves the gradients of the last entry: in new tensors, or added to what earlier
 * micro-steps left. */
void fsdp2_leave_grads(struct fsdp2 *f, struct at u)
{
    const struct families *m = &f->fam[u.c];

    if (f->size[u.c].trained == 0)
        return;
    if (f->has_unsharded)
        sched_act(f->s, ACT_A, f->wide_grads ? m->grads_wide : m->grads_full, u.i, u.by);
    else
        sched_act(f->s, ACT_W, m->grads_full, u.i, u.by);
}

/* The trainer's loss reads no parameters: they may be resharded. */
void fsdp2_compute(void *fsdp2, const struct walk_run *r)
{
    struct fsdp2 *f = fsdp2;
    bool experts = fsdp2_with_experts(f, r->u);

    if (!r->loss && (r->forward || !fsdp2_is_prefetched_in_vain(f, r->u)))
        sched_act(f->s, ACT_R, f->fam[r->u.c].unsharded, r->u.i, r->u.by);
    if (!r->loss && f->walk.calls == 0 && (r->u.c == UC_EMBED || r->u.c == UC_OUTPUT))
        fsdp2_compute_rest(f, r);
    if (experts)
        sched_act(f->s, ACT_R, f->fam[UC_EXPERTS].unsharded, r->u.i, r->u.by);
    if (r->both)
        sched_act(f->s, ACT_R, f->fam[UC_ATTENTION].unsharded, r->u.i, r->u.by);
    if (!r->weights || r->loss)
        return;
    if (r->opens && !f->has_unsharded && f->size[r->u.c].trained > 0)
        sched_act(f->s, ACT_ALLOC, f->fam[r->u.c].grads_full, r->u.i, r->u.by);
    if (experts && fsdp2_ignores(f, UC_EXPERTS)) {
        fsdp2_leave_ignored(f, r->u);
        experts = false;
    }
    if (experts && !f->has_unsharded && f->size[UC_EXPERTS].trained > 0)
        sched_act(f->s, ACT_ALLOC, f->fam[UC_EXPERTS].grads_full, r->u.i, r->u.by);
    fsdp2_leave_grads(f, r->u);
    if (experts)
        fsdp2_leave_grads(f, fsdp2_experts(r->u));
    if (r->piece == PIECE_EMBED)
        fsdp2_table_left(f);
}

void fsdp2_finds_unsharded(struct fsdp2 *f, bool has)
{
    f->has_unsharded = has;
    f->walk.fate = has ? GRADS_DROP : GRADS_KEEP;
}

/* prime-rl's get_response_lengths(position_ids): `position_ids[i] == 0 and ...` of a tensor on the GPU.  The first read waits for the forward
 * pass, and each waits for its own small kernel and copy: no work of backward is issued before the last.  Of positions before context
 * parallelism cuts them. */
static void read_positions(const struct fsdp2 *f)
{
    sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_FORWARD, "read the first position")->after = AFTER(STREAM_COMPUTE);
    sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_FORWARD, "read all positions")->u.wait.reads = f->p->micro_batch * f->p->seq;
}

static void begin_pass(void *fsdp2)
{
    struct fsdp2 *f = fsdp2;
    bool every = f->p->sync_every_micro_step;

    if (!f->walk.forward && f->p->fsdp.reads_positions)
        read_positions(f);
    f->reduce = every || f->walk.last;
    fsdp2_finds_unsharded(f, !every && !f->walk.first);
    f->has_sharded = every && !f->walk.first;
    f->has_ignored = !f->walk.first;
}

/* ---- the optimizer, and whole steps ---- */

static void for_all(struct fsdp2 *f, int act, size_t family)
{
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0)
            sched_act_all(f->s, act, *(const int *)((const char *)&f->fam[c] + family));
}

static void for_grads(struct fsdp2 *f, int act)
{
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0 && f->size[c].trained > 0)
            sched_act_all(f->s, act, f->fam[c].grads);
}

static void own_gradients(struct schedules *s, int what, void *arg)
{
    (void)s;
    for_grads(arg, what);
}

void fsdp2_optimizer(void *fsdp2)
{
    struct fsdp2 *f = fsdp2;
    bool first = f->walk.step == SCHED_FIRST, away = f->p->fsdp.optimizer_offload;
    int64_t elems = 0;

    for (int c = 0; c < NUC; c++)
        elems += f->size[c].stepped * f->walk.map.of_class[c];
    int experts = fsdp2_expert_tensors(f);
    const struct norm_sum sums[] = {                /* the norms of all, stacked; experts' apart */
        { GROUP_EXPERT_DATA, fsdp2_ranks(f, UC_EXPERTS) > 1 ? experts : 0 }, { GROUP_EXPERT, experts },
        { f->group, f->nshard > 1 ? f->m->ntrainable - experts : 0 },
        { GROUP_TENSOR, f->local->share.tensor_ranks > 1 ? f->m->ntrainable : 0 } };
    lower_before_step(f->s, &(struct step_gradients){ f->p, STREAM_COMPUTE, elems * dtype_bytes(f->r.kept), sums, 4, own_gradients, f });
    if (away && !first)
        fsdp2_states_come(f);
    /* On the CPU it is a loop over parameters: as many passes over memory as the lists take. */
    struct op *step = fsdp2_step(f, elems);
    step->flags |= lower_guard(f->p);
    step->after |= away && !first ? AFTER(STREAM_H2D) : 0;
    for_grads(f, ACT_R);
    for_all(f, ACT_RW, offsetof(struct families, shard));
    for_all(f, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, offsetof(struct families, optimizer));
    sched_act(f->s, ACT_ALLOC | ACT_FREE, f->foreach_temp, 0, 0);    /* _init_group() has made all states by then */
    if (away)
        fsdp2_states_leave(f, first);
    fsdp2_precompute_scales(f);
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
    for_grads(f, ACT_FREE);
}

void fsdp2_init(void *fsdp2)
{
    struct fsdp2 *f = fsdp2;

    /* Built on the meta device, sharded, then materialised: only shards exist. */
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "materialise shards")->flags = OPF_LOAD;
    for_all(f, ACT_ALLOC | ACT_WRITE, offsetof(struct families, shard));
    if (f->statistics >= 0)
        sched_act(f->s, ACT_ALLOC | ACT_WRITE, f->statistics, 0, 0);
}

static const struct walk_hooks hooks = {
    .init = fsdp2_init, .optimizer = fsdp2_optimizer, .begin_pass = begin_pass,
    .pre_forward = pre_forward, .post_forward = post_forward, .pre_backward = pre_backward, .post_backward = post_backward,
    .compute = fsdp2_compute, .loss_apart = true, .fate = GRADS_KEEP, .grads = CAT_UNSHARDED_GRADS,
};

static void setup(struct fsdp2 *f)
{
    const struct plan *p = f->p;
    int64_t reshard_arg = p->fsdp.reshard_after_forward, foreach = 0;

    f->r = plan_recipe(p);
    f->nshard = f->local->shard_ranks;
    f->rank_in_group = f->local->shard_rank;
    f->copy_in = STREAM_COPY_IN;
    f->hybrid = f->nshard < f->local->data_ranks;
    f->reshard = reshard_arg != 0;
    /* Before 2.9 the root kept its parameters whatever it was given. */
    f->root_reshard = p->fsdp.root_reshard_after_forward > 0 && (plan_version(p) >= 2009 || fsdp2_has_tail(f));
    f->group = f->hybrid ? GROUP_SHARD : GROUP_DATA;
    f->reshard_ranks = reshard_arg > 1 ? reshard_arg : 0;
    f->wide_grads = f->r.wire_reduce != f->r.used;
    f->cast_grads = f->r.wire_reduce != f->r.kept;
    f->root_ranks = p->fsdp.root_reshard_after_forward > 1 ? p->fsdp.root_reshard_after_forward : 0;
    fsdp2_offload_setup(f);
    f->table = fsdp2_table_elems(f);
    f->statistics = lower_declare_statistics(f->s, f->local);
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0) {
            fsdp2_measure(f, (enum unit_class)c);
            fsdp2_declare(f, (enum unit_class)c);
            fsdp2_parts(f, (enum unit_class)c);
            if (f->s->detailed && !fsdp2_ignores(f, (enum unit_class)c))
                fsdp2_describe(f, (enum unit_class)c);
            if (f->offload)
                fsdp2_offload_declare(f, (enum unit_class)c);
            foreach += f->size[c].foreach_bytes * f->walk.map.of_class[c];
        }
    if (p->fsdp.optimizer_offload)
        fsdp2_states_declare(f);
    if (f->table > 0)
        fsdp2_tensor_declare(f);
    lower_declare_activations(f->s, f->local, f->walk.acts);
    if (walk_is_stage(&f->walk))
        fsdp2_stage_setup(f);
    if (f->offload) {
        f->foreach_temp = sched_buf_in(f->s, SPACE_HOST, CAT_TEMPORARIES, "AdamW's temporaries", NULL, 0, 1, fsdp2_loop_bytes(f));
    } else {
        f->foreach_temp = sched_buf(f->s, CAT_TEMPORARIES, "AdamW's temporaries", NULL, 0, 1, foreach);
        fsdp2_foreach_parts(f);
        fsdp2_step_temporaries(f);
    }
    f->ev_gather = sched_event(f->s);
    f->ev_gather_experts = sched_event(f->s);
    f->ev_copy_out = sched_event(f->s);
    f->ev_reduce = sched_event(f->s);
    f->ev_kept = sched_event(f->s);
    f->ev_root_kept = sched_event(f->s);
}

int lower_fsdp2(const struct local_model *local, struct schedules *s)
{
    struct fsdp2 f = { .p = local->plan, .local = local, .m = local->model, .s = s };
    int rc;

    s->hooks = HOOKS_OF_UNITS;
    s->dtensors = true;
    walk_open(&f.walk, local, NULL, s, f.p->parallel.pipeline > 1 ? &fsdp2_stage_hooks : &hooks, &f);
    f.walk.first_differs = true;
    f.walk.last_differs = !f.p->sync_every_micro_step;
    setup(&f);
    rc = walk_steps(&f.walk);
    if (f.offload)
        fsdp2_offload(&f);
    return rc;
}
