/* lower_ddp.c -- torch.nn.parallel.DistributedDataParallel.
 *
 * Sources (PyTorch 2.15): torch/csrc/distributed/c10d/reducer.cpp, nn/parallel/distributed.py.
 *
 * Gradients exist twice: as .grad and in the buckets, unless they are views.  Iteration 1 has one bucket
 * for the whole model (no overlap); the buckets are then rebuilt in the order in which gradients became ready.
 * Buckets are reduced strictly in order, each as soon as its last gradient is there.  A gradient is divided by
 * N while it is copied into its bucket.  Views exist from that copy to zero_grad(set_to_none=True).  What
 * accumulates under no_sync() therefore has storages of its own in every step, each of which goes when the last
 * micro-step has copied it and made .grad the view. */
#include <stdlib.h>

#include "base/room.h"
#include "model/arch/recorded.h"
#include "model/lower/common/lower_internal.h"
#include "model/lower/common/optimizer.h"
#include "model/framework/torch_ddp/lower_ddp.h"

#define MIB (1024.0 * 1024.0)

/* ---- gradients and buckets ---- */

int ddp_instance_of(const struct ddp *d, int tensor)
{
    return d->m->tensors[tensor].block < 0 ? 0 : (int)model_place_in_kind(d->m, d->m->tensors[tensor].block);
}

bool ddp_has(const struct ddp *d, int tensor)
{
    int block = d->m->tensors[tensor].block;

    return block == TENSOR_EMBED ? d->at->embeds : block == TENSOR_HEAD ? d->at->heads : block >= d->at->from && block < d->at->to;
}

/* What the reducer is given: what it may wait for, and what has a place in its buckets. */
static bool registers(const struct ddp *d, int tensor)
{
    const struct tensor *t = &d->m->tensors[tensor];

    return (!t->frozen || t->unused) && ddp_has(d, tensor);
}

bool ddp_owns(const struct ddp *d, int tensor)
{
    return !d->m->tensors[tensor].frozen && zro_owns(&d->zro, tensor);
}

int64_t ddp_grad_bytes(const struct ddp *d, int tensor)
{
    return d->m->tensors[tensor].frozen ? 0 : d->m->tensors[tensor].numel * dtype_bytes((enum dtype)d->dtype[tensor]);
}

int ddp_bucket_buf(const struct ddp *d, int bucket)
{
    return (d->at->now == &d->at->first ? d->at->bucket0_first : d->at->bucket0_steady) + bucket;
}

/* All, or those of the module whose turn it is. */
static void act_grads(struct ddp *d, int what, bool all)
{
    for (int t = 0; t < d->ntensors; t++)
        if (d->m->tensors[t].frozen)
            continue;
        else if (!all && d->nmodules > 1 && ddp_has(d, t))
            sched_act(d->s, what, d->grad_family[t], ddp_instance_of(d, t), 0);
        else if ((all || d->nmodules == 1) && ddp_instance_of(d, t) == 0)
            sched_act_all(d->s, what, d->grad_family[t]);
}

/* Actions of the last entry on the module's buckets and, where they are not views, on its .grad; 0: none. */
static void use_own(struct ddp *d, int on_buckets, int on_grads)
{
    for (int b = 0; b < d->at->now->n && on_buckets; b++)
        sched_act(d->s, on_buckets, ddp_bucket_buf(d, b), 0, 0);
    if (on_grads && !d->view)
        act_grads(d, on_grads, false);
}

/* The same of all modules. */
static void use_all(struct ddp *d, int on_buckets, int on_grads)
{
    for (int i = 0; i < d->nmodules; i++) {
        d->at = &d->module[i];
        use_own(d, on_buckets, 0);
    }
    if (on_grads && !d->view)
        act_grads(d, on_grads, true);
}

void ddp_grad_slice(struct ddp *d, int tensor, int64_t at)
{
    if (d->m->tensors[tensor].frozen)
        return;
    sched_slice(d->s, HOLDS_GRAD, (enum dtype)d->dtype[tensor], tensor, 0, d->m->tensors[tensor].numel, at);
}

struct op *ddp_tell(struct ddp *d, enum phase phase, enum coll_op op, enum dtype t, enum red_op red, int64_t elems)
{
    struct op *o = sched_coll(d->s, STREAM_GROUP, phase, op, GROUP_DATA, t, red, elems);

    sched_moves(d->s, OF_META);
    return o;
}

/* Reducer::delay_all_reduce: in the first iteration of a static graph the map of used
 * parameters is reduced at the end of backward, before the one bucket. */
static void mark_used(struct ddp *d)
{
    if (!d->at->marks_used)
        return;
    ddp_tell(d, PHASE_REDUCE, COLL_ALL_REDUCE, DT_INT32, RED_SUM, d->at->ntrainable)->after = AFTER(STREAM_COMPUTE);
    d->at->marks_used = false;
}

void ddp_launch(struct ddp *d)
{
    while (d->at->next < d->at->now->n && d->at->pending[d->at->next] == 0) {
        mark_used(d);
        ddp_reduce(d, d->at->next);
        d->at->next++;
    }
}

/* Actions of the last entry on the gradients that kernels [k0,k1) hand out: on .grad, and on
 * their places in the buckets; 0: none. */
static void use_ready(struct ddp *d, enum piece_id piece, int block, int k0, int k1, int on_grads,
                      int on_buckets)
{
    const struct piece *q = &d->s->program.piece[piece];
    int last = -1;

    for (int k = k0; k < k1; k++)
        for (int i = 0; i < 4 && q->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
            int t = program_tensor(d->p, piece, block, q->kernels[PASS_BACKWARD][k].ready[i]);
            if (on_grads)
                sched_act(d->s, on_grads, d->grad_family[t], ddp_instance_of(d, t), 0);
            if (!on_buckets)
                continue;
            if (d->at->now->of[t] != last) {
                last = d->at->now->of[t];
                sched_act_as(d->s, on_buckets, ddp_bucket_buf(d, last), 0, 0, sched_layout(d->s, 0));
            }
            ddp_grad_slice(d, t, d->at->now->at[t] * dtype_bytes((enum dtype)d->dtype[t]));
        }
}

/* Where autograd leaves the gradients of the last entry: as new tensors that become .grad, added
 * to what earlier micro-steps left, or in the buckets that .grad is a view of. */
static void leave_grads(struct ddp *d, enum piece_id piece, int block, int k0, int k1, bool fresh)
{
    if (fresh && d->apart)
        use_ready(d, piece, block, k0, k1, ACT_ALLOC | ACT_WRITE, 0);
    else if (d->s->detailed)
        use_ready(d, piece, block, k0, k1, d->apart ? ACT_A : 0, d->apart ? 0 : fresh ? ACT_W : ACT_A);
}

/* The reducer copies tensor by tensor (reducer.cpp: copy_grad_to_bucket(), copy_bucket_to_grad()); dpx's executor does not. */
static void a_kernel_each(struct ddp *d, int64_t tensors)
{
    if (d->p->kernels != KERNELS_DPX)
        sched_kernels(d->s, tensors);
}

/* ---- a micro-step ---- */

static void begin_pass(void *ddp)
{
    struct ddp *d = ddp;
    struct walk *w = &d->walk;
    bool stage = walk_is_stage(w), once = d->p->accumulation == 1 || d->p->sync_every_micro_step;
    int64_t before = stage ? stage_ports_passed(&w->ports, w->forward ? PIPE_FORWARD : PIPE_BACKWARD, w->chunk) : 0;

    d->at = &d->module[w->chunk];
    w->cuts = !w->forward;
    w->fate = GRADS_DROP;
    if (w->forward) {
        d->syncs = d->alone ? false : stage ? w->step == SCHED_FIRST && before == 0 : once || w->first;
        return;
    }
    d->fresh = stage ? before == 0 : w->first;
    d->sync = d->alone ? false : stage ? before == w->ports.pipe.steps - 1 : once || w->last;
    if (d->late || (d->fresh && d->apart))
        w->fate = GRADS_KEEP;
    for (int b = 0; b < d->at->now->n; b++)
        d->at->pending[b] = d->at->now->tensors[b];
    for (int i = 0; i < d->at->ntrainable; i++)         /* prepare_for_backward(): unused tensors are ready at once */
        d->at->pending[d->at->now->of[d->at->registered[i]]] -= d->m->tensors[d->at->registered[i]].unused;
    d->at->next = 0;
}

/* _sync_buffers, only if the previous iteration was synchronised. */
static void pre_forward(void *ddp, struct at root)
{
    struct ddp *d = ddp;

    (void)root;
    if (d->module_buffers == 0 || !plan_syncs_buffers(d->p) || !d->syncs)
        return;
    ddp_sync_buffers(d);
}

static void compute(void *ddp, const struct walk_run *r)
{
    struct ddp *d = ddp;

    sched_act(d->s, ACT_R, d->params, 0, 0);
    if (!r->forward && d->late)
        ddp_late_grads(d, r);
    else if (!r->forward)
        leave_grads(d, r->piece, r->block, r->k0, r->k1, d->fresh);
}

/* Backward is cut after every kernel that completes the bucket whose turn it is. */
static bool cut(void *ddp, const struct walk_run *r, int k)
{
    struct ddp *d = ddp;
    const struct kernel *of = &d->s->program.piece[r->piece].kernels[PASS_BACKWARD][k];

    if (d->in_backward)
        return ddp_has_ready(d, r, k);
    if (d->late || !d->sync || d->at->next >= d->at->now->n)
        return false;
    /* How many of the next bucket's gradients come after kernel k? */
    d->due = r->k0 == k ? d->at->pending[d->at->next] : d->due;
    for (int i = 0; i < 4 && of->ready[i] >= 0; i++)
        d->due -= d->at->now->of[program_tensor(d->p, r->piece, r->block, of->ready[i])] == d->at->next;
    return d->due == 0 && of->ready[0] >= 0;
}

/* The gradients that an entry of backward made are copied into buckets; what is full is reduced. */
static void post_run(void *ddp, const struct walk_run *r)
{
    struct ddp *d = ddp;
    const struct piece *q = &d->s->program.piece[r->piece];
    int64_t copied = 0, tensors = 0;

    if (d->in_backward && !r->forward)
        ddp_update_ready(d, r);
    if (r->forward || d->late || d->alone)
        return;
    for (int k = r->k0; k < r->k1; k++)
        for (int i = 0; i < 4 && q->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
            int t = program_tensor(d->p, r->piece, r->block, q->kernels[PASS_BACKWARD][k].ready[i]);
            copied += ddp_grad_bytes(d, t);
            tensors++;
            d->at->pending[d->at->now->of[t]]--;
        }
    if (!d->sync || copied == 0)
        return;
    if (!d->hooked || d->fresh || d->apart) {   /* a hook divides; what was added up in a bucket stays as it is */
        sched_copy(d->s, STREAM_COMPUTE, PHASE_BACKWARD, d->hooked ? "copy into buckets" : "divide into buckets", copied, copied);
        sched_does(d->s, COPY_SET, d->hooked ? 1 : 1.0 / (double)d->local->data_ranks);
        a_kernel_each(d, tensors);
        use_ready(d, r->piece, r->block, r->k0, r->k1, !d->apart ? 0 : d->view ? ACT_R | ACT_FREE : ACT_R, d->apart ? ACT_W : ACT_RW);
    }
    ddp_launch(d);
}

static void finalize(struct ddp *d)
{
    int64_t all = d->at->trainable;
    uint16_t reduced = AFTER(STREAM_GROUP) | (d->hooked ? AFTER(STREAM_REDUCE) : 0);

    if (d->p->ddp.find_unused_parameters && !d->p->ddp.static_graph)
        ddp_tell(d, PHASE_REDUCE, COLL_ALL_REDUCE, DT_INT32, RED_SUM, d->at->ntrainable)->after = AFTER(STREAM_COMPUTE);
    if (d->view) {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await buckets")->after = reduced;
    } else {
        struct op *o = sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "copy out of buckets", all, all);
        o->after = reduced;
        sched_does(d->s, COPY_SET, 1);
        a_kernel_each(d, d->at->ntrainable);
        use_own(d, ACT_R, ACT_W);
    }
    ddp_hook_settle(d);
}

static void post_backward(void *ddp, struct at root)
{
    struct ddp *d = ddp;

    (void)root;
    if (d->late)
        ddp_late_settle(d);
    if (d->sync)
        finalize(d);
}

/* Reducer::rebuild_buckets, at the start of iteration 2 (3 with static_graph): rank 0's order
 * is broadcast, the old buckets go before the new ones come.  Between micro-steps of one step
 * their views are .grad, and initialize_bucket_views() copies what they hold first. */
static void rebuild(struct ddp *d, bool within_step)
{
    bool copies = within_step && d->view;
    int64_t all = d->at->trainable;

    if (d->keeps_first_buckets)
        return;
    ddp_tell(d, PHASE_INIT, COLL_BROADCAST, DT_INT32, RED_NONE, d->at->ntrainable + 1)->after = AFTER(STREAM_COMPUTE);
    ddp_tell(d, PHASE_INIT, COLL_BROADCAST, DT_INT32, RED_NONE, d->at->steady.n);
    sched_op(d->s, OP_WAIT, STREAM_ISSUE, PHASE_INIT, "bucket sizes")->after = AFTER(STREAM_GROUP);
    if (copies) {
        sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "rebuild buckets", all, all);
    } else {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "rebuild buckets: free the old");
    }
    use_own(d, copies ? ACT_R | ACT_FREE : ACT_FREE, 0);
    if (!copies)
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "rebuild buckets");
    d->at->now = &d->at->steady;
    use_own(d, copies ? ACT_ALLOC | ACT_WRITE : ACT_ALLOC, 0);
}

/* The first step rebuilds buckets between micro-steps where enough reduce: so many come before, and differ from those after. */
static void begin(void *ddp)
{
    struct ddp *d = ddp;
    int64_t m = d->p->accumulation;
    bool every = d->alone || d->p->sync_every_micro_step || m == 1, first = d->walk.step == SCHED_FIRST;

    d->updated = !first;

    for (int i = 0; i < d->nmodules; i++) {
        d->module[i].marks_used = d->p->ddp.static_graph && first;
        if (d->walk.step == SCHED_STEADY)
            d->module[i].now = d->keeps_first_buckets ? &d->module[i].first : &d->module[i].steady;
    }
    d->at = &d->module[0];
    d->walk.apart = every && first && d->p->ddp.static_graph ? 2 : 1;
    d->walk.last_differs = !every;
    d->rebuilds = !d->alone && every && first && m > d->walk.apart;
}

static void end_of_micro_step(void *ddp)
{
    struct ddp *d = ddp;

    if (d->rebuilds && d->walk.number + 1 == d->walk.apart)
        rebuild(d, true);
}

/* ---- the optimizer ---- */

static void free_grads(struct ddp *d)
{
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
    if (!d->view)                   /* else only the views go */
        act_grads(d, ACT_FREE, true);
}

static void own_gradients(struct schedules *s, int what, void *arg)
{
    struct ddp *d = arg;

    (void)s;
    use_all(d, d->view ? what : 0, what);
}

static void optimizer(void *ddp)
{
    struct ddp *d = ddp;
    bool first = d->walk.step == SCHED_FIRST;
    int64_t grads = 0;

    for (int t = 0; t < d->ntensors; t++)
        grads += ddp_grad_bytes(d, t);
    if (d->in_backward)
        return;
    lower_before_step(d->s, &(struct step_gradients){ d->p, STREAM_COMPUTE, grads, NULL, 0,
                                                      own_gradients, d });      /* every rank has all of them */
    lower_torch_adamw(d->s, d->p, d->own_numel)->flags |= lower_guard(d->p);
    sched_act(d->s, ACT_RW, d->params, 0, 0);
    use_all(d, d->view ? ACT_R : ACT_USE, ACT_R);
    sched_act(d->s, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, d->optimizer, 0, 0);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, d->foreach, 0, 0);
    if (d->paged_bytes > 0 && first) {      /* then the driver's: its pages are where kernels need them */
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "managed memory");
        sched_act(d->s, ACT_ALLOC, d->paged, 0, 0);
    }
    if (d->zro.on)
        zro_broadcast(&d->zro, d->s, d->p, &(struct zro_params){ d->params, d->r.kept, ddp_param_slice, d });
    free_grads(d);
}

/* What opens a module's second step, and only that.  With PowerSGD, reductions of whole buckets come before: the first step has one of
 * them, and those that are left are a schedule of their own. */
static void end(void *ddp)
{
    struct ddp *d = ddp;

    for (int i = 0; i < d->nmodules && d->walk.step == SCHED_FIRST; i++) {
        d->at = &d->module[i];
        if (d->at->now == &d->at->first)
            rebuild(d, false);
        ddp_hook_begins(d);
    }
    if (d->walk.step == SCHED_STEADY && d->compresses) {
        d->compresses = false;
        d->s->early = d->p->ddp.powersgd.start - 1;
    }
}

/* ---- construction ---- */

/* _verify_param_shape_across_processes, _sync_module_states, the first buckets. */
static void init(void *ddp)
{
    struct ddp *d = ddp;
    const struct model *m = d->m;

    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model")->flags = OPF_LOAD;
    sched_act(d->s, ACT_ALLOC | ACT_WRITE, d->params, 0, 0);
    for (int i = 0; i < d->nmodules; i++) {
        int64_t dims = 0;
        d->at = &d->module[i];
        for (int t = 0; t < d->ntensors; t++)
            dims += registers(d, t) ? 2 * m->tensors[t].ndim : 0;       /* sizes and strides */
        if (d->alone)
            continue;
        ddp_tell(d, PHASE_INIT, COLL_ALL_GATHER, DT_INT64, RED_NONE, d->local->data_ranks);
        ddp_tell(d, PHASE_INIT, COLL_BROADCAST, DT_INT64, RED_NONE, dims);
        ddp_broadcast_model(d);
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "buckets")->after = AFTER(STREAM_GROUP);
        use_own(d, ACT_ALLOC, 0);
    }
    if (d->zro.packed)
        zro_pack(&d->zro, d->s, d->r.kept);
}

/* Behind what gets a gradient: buckets are not rebuilt where any tensor gets none. */
static void order_unused(struct ddp_module *of, const struct model *m)
{
    int n = of->ntrainable;

    for (int i = of->ntrainable - 1; i >= 0; i--)
        if (m->tensors[of->registered[i]].unused)
            of->order[--n] = of->registered[i];
}

static void assign_buckets(struct ddp *d)
{
    const struct ddp_options *o = &d->p->ddp;
    bool given = o->bucket_cap_mb >= 0;
    int64_t cap = given ? (int64_t)(o->bucket_cap_mb * MIB) : d->p->limits.ddp_bucket;
    bool always_small = plan_version(d->p) < 2005;      /* until then, with a cap given too */
    int64_t limits[2] = { given && !always_small ? cap : d->p->limits.ddp_first_bucket, cap };
    int64_t one[2] = { INT64_MAX, INT64_MAX };
    bool unused = o->find_unused_parameters && !o->static_graph;
    struct ddp_module *of = d->at;

    for (int t = 0; t < d->ntensors; t++)
        if (registers(d, t)) {
            of->registered[of->ntrainable++] = t;
            of->trainable += d->m->tensors[t].unused ? 0 : d->m->tensors[t].numel * dtype_bytes((enum dtype)d->dtype[t]);
        }
    if (d->alone)
        of->ntrainable = 0;         /* no buckets */
    /* _ddp_init_helper: one bucket when no parameter can be unused, else by size
     * over registration order, the last first; those are never rebuilt. */
    buckets_assign_mixed(d->m, of->registered, of->ntrainable, d->dtype, unused ? limits : one, false, &of->first);
    buckets_reverse(&of->first, d->ntensors);
    if (d->late)
        ddp_late_order(d);
    else
        buckets_ready_order(d->local, &d->s->program, of->from, of->to, of->embeds, of->heads, of->order);
    order_unused(of, d->m);
    buckets_assign_mixed(d->m, of->order, of->ntrainable, d->dtype, limits, true, &of->steady);
    d->keeps_first_buckets = unused || d->alone;
    of->now = &of->first;
}

static void own(struct ddp *d)
{
    const struct model *m = d->m;

    for (int t = 0; t < d->ntensors; t++)
        if (ddp_owns(d, t)) {
            d->own_numel += m->tensors[t].numel;
            d->own_bytes += round512(m->tensors[t].numel * dtype_bytes(plan_kept(&d->r, &m->tensors[t])));
            d->own_states += lower_state_bytes(d->p, &m->tensors[t], m->tensors[t].shape[0]);
            d->paged_bytes += optimizer_paged(d->p, &m->tensors[t]);
            d->own_tensors++;
        }
}

static void *room(const struct ddp *d, size_t size) { return room_new((size_t)d->ntensors + 1, size); }

/* The chunks of a pipeline's rank, or all that it has. */
static void open_modules(struct ddp *d)
{
    struct pipeline pipe = stage_pipeline(d->p, d->local->rank);
    int last = pipe.ranks * pipe.chunks - 1;

    d->nmodules = pipe.chunks;
    for (int c = 0, blocks = 0; c < d->nmodules; c++) {
        struct ddp_module *of = d->at = &d->module[c];
        int stage = pipeline_stage(&pipe, pipe.rank, c);
        *of = (struct ddp_module){ .from = blocks, .to = (int)d->m->layers, .embeds = d->local->share.embeds, .heads = d->local->share.heads };
        if (d->nmodules > 1) {
            of->to = blocks += (int)d->local->share.chunk[c].blocks;
            of->embeds = stage == 0;
            of->heads = stage == last;
        }
        of->order = room(d, sizeof *of->order);
        of->registered = room(d, sizeof *of->registered);
        of->pending = room(d, sizeof *of->pending);
        of->narrow0 = room(d, sizeof *of->narrow0);
        of->rest = room(d, sizeof *of->rest);
        assign_buckets(d);
    }
}

static void close_modules(struct ddp *d)
{
    for (int c = 0; c < d->nmodules; c++) {
        struct ddp_module *of = &d->module[c];
        buckets_free(&of->first);
        buckets_free(&of->steady);
        free(of->order);
        free(of->registered);
        free(of->pending);
        free(of->narrow0);
        free(of->rest);
    }
}

static const struct walk_hooks hooks = {
    .init = init, .begin = begin, .optimizer = optimizer, .end = end, .begin_pass = begin_pass, .end_of_micro_step = end_of_micro_step,
    .pre_forward = pre_forward, .post_backward = post_backward, .compute = compute, .post_run = post_run, .cut = cut, .grads = CAT_GRADS,
};

/* torch/distributed/pipelining/stage.py (PyTorch 2.15; the same in 2.9): every forward and all backwards but the
 * last run under no_sync(); before the last, Reducer::prepare_for_backward() arms the buckets, which are reduced
 * beside it.  The reducer was built from a stage's outputs, which live until their backward.  Each chunk of a rank is wrapped by itself. */
static void open_stage(struct ddp *d)
{
    bool old = plan_version(d->p) < 2015, loop = d->p->parallel.pipeline_schedule <= PIPELINE_1F1B;

    d->walk.stage.code = loop ? old ? PIPE_OWN_LOOP_29 : PIPE_OWN_LOOP : old ? PIPE_LOCK_STEP_29 : PIPE_RUNTIME;
    d->walk.stage.keeps = true;
    d->walk.stage.connects = !old;
}

int lower_ddp(const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct plan whole = *p;
    struct ddp d = { .p = p, .local = local, .m = local->model, .s = s, .r = plan_recipe(p), .view = p->ddp.gradient_as_bucket_view,
                     .hooked = p->ddp.comm_hook != HOOK_NONE, .alone = !p->ddp.wrapped && p->strategy == STRAT_DDP,
                     .in_backward = !p->ddp.wrapped && p->strategy == STRAT_DDP && p->ddp.optimizer_in_backward,
                     .ntensors = local->model->ntensors, 
                     .module_buffers = local->model->recorded ? (int)local->model->recorded->nbuffers : lower_model_buffer_elems(local->model) };
    int rc;

    whole.unit = UNIT_MODEL;
    walk_open(&d.walk, local, &whole, s, &hooks, &d);
    d.walk.first_differs = true;
    open_stage(&d);
    d.grad_family = room(&d, sizeof *d.grad_family);
    zro_open(&d.zro, local);
    d.param_at = room(&d, sizeof *d.param_at);
    d.dtype = room(&d, sizeof *d.dtype);
    for (int t = 0; t < d.ntensors; t++)        /* of a copy beside wide adapters its own */
        d.dtype[t] = (uint8_t)(d.r.copies != d.r.kept ? plan_kept(&d.r, &d.m->tensors[t]) : d.r.grad);
    d.late = local->share.tensor_ranks > 1;
    s->dtensors = d.late;
    d.apart = d.alone || !d.view || (p->accumulation > 1 && !p->sync_every_micro_step);
    open_modules(&d);
    own(&d);
    ddp_declare(&d);
    rc = walk_steps(&d.walk);
    if (d.paged_bytes > 0)
        sched_note(s, "paged states are in managed memory: counted with the host's, where the driver puts them when the device is "
                   "full; timed as if they were on the device, where they stay while there is room");
    close_modules(&d);
    free(d.grad_family);
    zro_close(&d.zro);
    free(d.param_at);
    free(d.dtype);
    return rc;
}
