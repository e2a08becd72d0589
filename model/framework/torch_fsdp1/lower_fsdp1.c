/* lower_fsdp1.c -- torch.distributed.fsdp.FullyShardedDataParallel (FSDP1).
 *
 * Every wrapped module is a unit: its parameters are one FlatParameter, of which a
 * rank keeps 1/N (flat_param.h).  Order, streams and lifetimes are those of
 * _runtime_utils.py of PyTorch 2.15.
 *
 * Two orders follow from autograd rather than from FSDP.  A unit's gradient is
 * finished when SplitWithSizesBackward has run, and that node is as old as the
 * unit's views: with forward_prefetch these are made before the forward of the unit
 * before it, so that its gradient is reduced, and its parameters are freed, only
 * after the backward of that unit (`views_early`). */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "model/framework/torch_fsdp1/lower_fsdp1.h"

/* ---- forward ---- */

/* _pre_forward_unshard() prefetches the next unit of the order that the first
 * micro-step of all recorded. */
static void prefetch_forward(struct fsdp1 *f, int position, int by)
{
    if (f->now.views_early && position < f->walk.map.n)
        fsdp1_unshard(f, walk_at(&f->walk, position, by), PHASE_FORWARD, false);
}

static void pre_forward(void *fsdp1, struct at u)
{
    struct fsdp1 *f = fsdp1;
    bool root = u.c == UC_ROOT;

    if (root || !f->now.views_early)
        fsdp1_unshard(f, u, PHASE_FORWARD, root);
    fsdp1_await(f, u, PHASE_FORWARD);
    prefetch_forward(f, u.position + 1, u.by);
}

static void post_forward(void *fsdp1, struct at u) { fsdp1_reshard(fsdp1, u, PHASE_FORWARD); }

/* ---- backward ---- */

void fsdp1_prefetch_backward(struct fsdp1 *f, int position, int by)
{
    if (position >= 0 && position < f->walk.map.n)
        fsdp1_unshard(f, walk_at(&f->walk, position, by), PHASE_BACKWARD, false);
}

/* _post_backward_hook() */
static void finish(struct fsdp1 *f, struct at u)
{
    if (f->trains[u.c])             /* else _post_backward_reshard_only_hook(), or _catch_all_reshard() */
        fsdp1_concatenate(f, u);
    fsdp1_reshard(f, u, PHASE_BACKWARD);
    /* With early views the unit before has been unsharded by its own hook. */
    if (f->p->fsdp.backward_prefetch == PREFETCH_POST && u.c != UC_ROOT && !f->now.views_early)
        fsdp1_prefetch_backward(f, u.position - 1, u.by);
    if (!f->trains[u.c])
        return;
    if (f->now.reduce)
        fsdp1_reduce(f, u);
    else
        fsdp1_leave_grads(f, u);
}

/* Does a unit's own _pre_backward_hook() find it prefetched? */
static bool prefetched(const struct fsdp1 *f, int position)
{
    switch (f->p->fsdp.backward_prefetch) {
    case PREFETCH_PRE:  return true;
    case PREFETCH_POST: return position + 1 < f->walk.map.n && !f->now.views_early;
    case PREFETCH_NONE: break;
    }
    return false;
}

/* _pre_backward_hook(); a block's adapters ask for the one before it themselves. */
static void pre_backward(void *fsdp1, struct at u)
{
    struct fsdp1 *f = fsdp1;
    bool root = u.c == UC_ROOT;

    if (root || !prefetched(f, u.position))
        fsdp1_unshard(f, u, PHASE_BACKWARD, false);
    fsdp1_await(f, u, PHASE_BACKWARD);
    if (f->p->fsdp.backward_prefetch == PREFETCH_PRE && (root || !fsdp1_adapters_apart(f)))
        fsdp1_prefetch_backward(f, (root ? f->walk.map.n : u.position) - 1, u.by);
}

/* _post_backward_final_callback(). */
static void final_callback(struct fsdp1 *f)
{
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await reductions")->after = AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE);
}

/* A unit's gradient is finished with it, or with early views one unit later.  A frozen block beside its adapters has none: it is dropped
 * when the one before has been asked for, the first one here (_post_backward_reshard_only_hook(), or _catch_all_reshard()). */
static void post_backward(void *fsdp1, struct at u)
{
    struct fsdp1 *f = fsdp1;
    struct at next = walk_at(&f->walk, u.position + 1, u.by);

    if (u.c == UC_ROOT) {
        if (f->now.views_early && f->walk.map.n > 0)
            finish(f, next);
        finish(f, u);
        if (f->now.reduce)
            final_callback(f);
    } else if (fsdp1_adapters_apart(f)) {
        if (u.position == 0)
            fsdp1_reshard(f, u, PHASE_BACKWARD);
    } else if (!f->now.views_early) {
        finish(f, u);
    } else if (next.c != UC_ROOT) {
        finish(f, next);
    }
}

/* What runs between two units is the root's. */
static bool is_between(const struct fsdp1 *f, const struct walk_run *r) { return r->u.c == UC_ROOT && f->walk.map.n > 0 && piece_is_block(r->piece); }

/* Gradients of parameters are pieces until the unit's are concatenated. */
static void compute(void *fsdp1, const struct walk_run *r)
{
    struct fsdp1 *f = fsdp1;

    sched_act(f->s, ACT_R, fsdp1_params(f, r->u.c, r->forward ? PHASE_FORWARD : PHASE_BACKWARD), r->u.i, r->u.by);
    if (r->forward || !f->trains[r->u.c])
        return;
    bool between = is_between(f, r);
    if (!between || f->between[r->piece] >= 0)
        sched_act(f->s, ACT_ALLOC | ACT_WRITE, (between ? f->between : f->parts)[r->piece], r->block, r->by);
    if (r->piece == PIECE_EMBED && f->m->tied)
        sched_act(f->s, ACT_W, f->parts[PIECE_HEAD], 0, 0);     /* fsdp1_describe_part() */
}

/* ---- micro-steps ---- */

/* NO_SHARD frees what it casts without an event for the rate limiter, so nothing of FSDP1's makes the issuing thread wait.  What does is
 * CUDA's queue of launches, which is shorter than a backward: when that is issued, the device has come to its start. */
static bool only_the_queue_waits(const struct fsdp1 *f) { return !f->sharded && f->r.used != f->r.kept && !f->offload; }

static void begin_pass(void *fsdp1)
{
    struct fsdp1 *f = fsdp1;

    if (only_the_queue_waits(f) && !f->walk.forward)
        sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "backward begins")->record = f->ev_half;
    f->now.reduce = f->p->sync_every_micro_step || f->walk.last;
}

static void end_of_micro_step(void *fsdp1)
{
    struct fsdp1 *f = fsdp1;

    if (only_the_queue_waits(f))
        sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_BACKWARD, "full queue of launches")->wait[0] = f->ev_half;
    f->now.has_reduced |= f->now.reduce;
    f->now.has_unsharded = !f->now.reduce;
    /* no_sync leaves what SHARD_GRAD_OP gathered: _should_free_in_backward() */
    f->now.gathered = f->sharded && !f->now.reduce && !f->frees_after_forward;
    f->now.views_early = f->p->fsdp.forward_prefetch;
}

static bool same_queue(const struct limiter *a, const struct limiter *b)
{
    return a->n == b->n && !memcmp(a->queue, b->queue, (size_t)a->n * sizeof *a->queue);
}

/* What is run again and again begins with the queue of the rate limiter that it leaves: what was
 * emitted before only filled it.  Micro-steps are repeated within a step that is. */
static bool settled(void *fsdp1, bool begins)
{
    struct fsdp1 *f = fsdp1;
    struct limiter left = f->now.limiter;

    if (begins) {
        assert(f->nbegun < (int)(sizeof f->begun / sizeof *f->begun));
        f->begun[f->nbegun++] = f->now;
        return true;
    }
    if (same_queue(&f->begun[--f->nbegun].limiter, &left))
        return true;
    f->now = f->begun[f->nbegun];
    f->now.limiter = left;
    return false;
}

/* ---- the optimizer, and whole steps ---- */

static void for_all(struct fsdp1 *f, int act, size_t family)
{
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0)
            sched_act_all(f->s, act, *(const int *)((const char *)&f->fam[c] + family));
}

static void for_gradients(struct fsdp1 *f, int act, size_t family)
{
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0 && f->trains[c])
            sched_act_all(f->s, act, *(const int *)((const char *)&f->fam[c] + family));
}

static void own_gradients(struct schedules *s, int what, void *arg)
{
    (void)s;
    for_gradients(arg, what, offsetof(struct fsdp1_families, grads));
}

/* zero_grad(set_to_none=True) drops what the optimizer knows.  With use_orig_params
 * those are views: the FlatParameter keeps the gradient until the next forward
 * notices (_reset_flat_param_grad_info_if_needed). */
static void zero_grad(struct fsdp1 *f, const char *what)
{
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, what);
    for_gradients(f, ACT_FREE, offsetof(struct fsdp1_families, grads));
}

static void optimizer(void *fsdp1)
{
    struct fsdp1 *f = fsdp1;
    bool first = f->walk.step == SCHED_FIRST;
    /* A frozen FlatParameter is none of the optimizer's; where one trains in part, all of it is there. */
    void (*each)(struct fsdp1 *, int, size_t) = fsdp1_adapters_apart(f) ? for_gradients : for_all;
    int64_t elems = 0;

    for (int c = 0; c < NUC; c++)
        elems += f->size[c].optim_numel * f->walk.map.of_class[c];
    if (f->p->clip > 0)             /* FSDP's own clip_grad_norm_(): one sum of squares */
        lower_clip_by_norm(f->s, STREAM_COMPUTE, elems * dtype_bytes(f->r.kept), &(struct norm_sum){ f->group, f->sharded }, 1, false,
                           own_gradients, f);
    lower_torch_adamw(f->s, f->p, elems);
    each(f, ACT_RW, offsetof(struct fsdp1_families, shard));
    own_gradients(f->s, ACT_R, f);
    each(f, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, offsetof(struct fsdp1_families, optimizer));
    sched_act(f->s, ACT_ALLOC | ACT_FREE, f->foreach_temp, 0, 0);    /* _init_group() has made all states by then */
    if (!f->p->fsdp.use_orig_params)
        zero_grad(f, "zero_grad");
}

/* A micro-step finds no gradient of the step before. */
static void begin(void *fsdp1)
{
    struct fsdp1 *f = fsdp1;

    if (f->p->fsdp.use_orig_params && f->walk.step != SCHED_FIRST)
        zero_grad(f, "forward drops .grad");
    f->now.has_reduced = f->now.has_unsharded = f->now.gathered = false;
}

/* FullyShardedDataParallel(model, device_id=...): the module moves to the device, its
 * parameters are copied into one tensor, this rank's shard is cloned out of that. */
static void flatten(struct fsdp1 *f, struct at u)
{
    struct schedules *s = f->s;
    const struct fsdp1_families *m = &f->fam[u.c];
    int64_t e = dtype_bytes(f->kept[u.c]), whole = f->size[u.c].flat * e, shard = f->size[u.c].shard * e;
    int own = f->offload ? m->first : m->shard;
    struct op *o = sched_copy(s, STREAM_H2D, PHASE_INIT, "move to device", f->size[u.c].numel * e,
                              f->size[u.c].numel * e);

    o->after = AFTER(STREAM_COMPUTE);
    o->flags = OPF_LOAD;
    walk_name(&f->walk, u);
    sched_act(s, ACT_ALLOC | ACT_WRITE, m->init_params, u.i, u.by);
    o = sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "flatten", f->size[u.c].numel * e, whole);
    o->after = AFTER(STREAM_H2D);
    walk_name(&f->walk, u);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_ALLOC | ACT_WRITE, f->sharded ? m->init_flat : m->shard, u.i, u.by);
    if (f->sharded) {
        sched_act(s, ACT_R, m->init_params, u.i, u.by);
        sched_set(s, STREAM_COMPUTE, PHASE_INIT, "shard", shard, shard);
        walk_name(&f->walk, u);
        sched_act(s, ACT_ALLOC | ACT_WRITE, own, u.i, u.by);
        sched_act(s, ACT_R | ACT_FREE, m->init_flat, u.i, u.by);
        sched_act(s, ACT_USE | ACT_FREE, m->init_params, u.i, u.by);
        if (f->offload)
            fsdp1_shard_to_host(f, u);
    } else {
        sched_act(s, ACT_R | ACT_FREE, m->init_params, u.i, u.by);
    }
}

static void init(void *fsdp1)
{
    struct fsdp1 *f = fsdp1;

    lower_load_statistics(f->s, f->statistics);
    if (model_is_uneven(f->m)) {        /* children are wrapped before the root, */
        for (int i = unit_registered_after(&f->walk.map, -1); i >= 0; i = unit_registered_after(&f->walk.map, i))
            flatten(f, walk_at(&f->walk, i, 0));
    } else if (f->walk.map.n > 0) {     /* adapters before their block */
        sched_repeat(f->s, f->walk.map.n);
        for (int i = 0; i < f->walk.map.nadapters; i++)
            flatten(f, (struct at){ .c = (enum unit_class)(UC_ADAPTER + i), .by = 1 });
        flatten(f, (struct at){ .c = UC_FULL, .by = 1 });
        sched_repeat_end(f->s);
    }
    flatten(f, walk_root);
    if (f->offload)
        fsdp1_pin(f);
}

/* ---- setup ---- */

static void declare(struct fsdp1 *f, enum unit_class c)
{
    struct schedules *s = f->s;
    const struct flat_param *z = &f->size[c];
    struct fsdp1_families *m = &f->fam[c];
    const char *of = c == UC_ROOT ? NULL : unit_class_name(c);
    int n = f->walk.map.of_class[c];
    int64_t kept = dtype_bytes(f->kept[c]), used = dtype_bytes(f->r.used);
    int64_t wire = dtype_bytes(f->r.wire_reduce), grads = round512(z->shard * kept);

    if (f->offload) {
        fsdp1_offload_declare(f, c);
    } else {
        m->shard     = sched_buf(s, CAT_PARAMS, "flat params", of, 0, n, round512(z->shard * kept));
        m->optimizer = sched_buf(s, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", of, 0, n,
                                 2 * z->optim_bytes + z->optim_tensors * lower_adamw_step_bytes(f->p));
    }
    for (int i = 0; i < 2; i++) {
        bool again = i == 1 && (f->sharded ? f->frees_after_forward && c != UC_ROOT : fsdp1_casts(f, c));
        m->mp_shard[i] = sched_buf(s, CAT_ALL_GATHER, "cast shard", of, 0, n, round512(z->shard * used));
        m->full[i] = i == 1 && !again ? m->full[0] :
                     sched_buf(s, CAT_UNSHARDED, f->sharded ? "unsharded params" : "cast params", of, 0, n,
                               round512(z->padded * used));
    }
    m->flat      = sched_buf(s, CAT_UNSHARDED_GRADS, "flat grads", of, 0, n, round512(z->flat * used));
    m->flat_new  = sched_buf(s, CAT_UNSHARDED_GRADS, "new flat grads", of, 0, n, round512(z->flat * used));
    m->wide      = sched_buf(s, CAT_REDUCE_SCATTER, "grads in reduce_dtype", of, 0, n,
                             round512(z->flat * wire));
    m->rs_in     = sched_buf(s, CAT_REDUCE_SCATTER, "padded grads", of, 0, n, round512(z->padded * wire));
    m->rs_out    = sched_buf(s, CAT_REDUCE_SCATTER, "reduce-scatter output", of, 0, n,
                             round512(z->shard * wire));
    m->grads     = sched_buf(s, CAT_GRADS, "flat grads for the optimizer", of, 0, n, grads);
    m->grads_new = sched_buf(s, CAT_GRADS, "new flat grads for the optimizer", of, 0, n, grads);
    for (int i = 0; i < 2 && !f->offload; i++)
        sched_part(s, m->optimizer, z->optim_bytes);
    for (int64_t i = 0; i < z->optim_tensors && !f->offload; i++)
        sched_part(s, m->optimizer, lower_adamw_step_bytes(f->p));
    if (unit_is_adapter(c))
        m->handed = sched_buf(s, CAT_UNSHARDED_GRADS, "gradient of an adapter", of, 0, n, round512(z->numel * used));
    m->init_params = sched_buf(s, CAT_TEMPORARIES, "params as built", of, 0, n, z->original_bytes);
    m->init_flat = sched_buf(s, CAT_TEMPORARIES, "flattened params", of, 0, n, round512(z->flat * kept));
    for (int i = 0; i < n; i++)
        sched_unit(s, unit_class_name(c), i, z->numel, z->padded, z->shard);
}

/* Gradients of a piece's parameters, as the program hands them out. */
static void declare_parts(struct fsdp1 *f)
{
    struct schedules *s = f->s;
    struct span sp;

    for (int i = 0; i < NPIECE; i++) {
        bool block = piece_is_block(i);
        if (block && fsdp1_adapters_apart(f))
            continue;
        int n = s->program.piece[i].nkernels[PASS_BACKWARD], own = f->walk.map.n > 0 ? n - s->program.piece[i].outside[PASS_BACKWARD] : n;
        program_span(&s->program, (enum piece_id)i, PASS_BACKWARD, own, n, GRADS_KEEP, &sp);
        f->between[i] = own < n && sp.net[MEM_GRADS] > 0
                            ? sched_buf(s, CAT_UNSHARDED_GRADS, "gradients of parameters", "root", 0, (int)f->m->layers, sp.net[MEM_GRADS]) : -1;
        program_span(&s->program, (enum piece_id)i, PASS_BACKWARD, 0, own, GRADS_KEEP, &sp);
        f->parts[i] = sched_buf(s, CAT_UNSHARDED_GRADS, "gradients of parameters", block ? "block" : NULL,
                                0, block ? (int)f->m->layers : 1, sp.net[MEM_GRADS]);
        if (s->detailed && sp.net[MEM_GRADS] > 0)       /* else the plan has no such piece */
            fsdp1_describe_part(f, (enum piece_id)i);
    }
}

/* DefaultState._get_gradient_predivide_factor(): a power of two near sqrt(n). */
static double predivide_factor(int64_t n)
{
    int64_t factor = 1;

    while (n % factor == 0 && n / factor > factor)
        factor *= 2;
    return (double)factor;
}

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

/* Groups and strategy: _init_core_state() turns whatever has a process group of one
 * rank into NO_SHARD. */
static void set_groups(struct fsdp1 *f)
{
    const struct plan *p = f->p;
    const struct local_model *own = f->local;
    enum fsdp1_sharding how = p->fsdp.sharding_strategy;
    bool two = how == FSDP1_HYBRID_SHARD || how == FSDP1_HYBRID_SHARD_ZERO2;
    int64_t n = two ? own->shard_ranks : own->data_ranks;

    f->sharded = how != FSDP1_NO_SHARD && n > 1;
    f->hybrid = two && f->sharded;
    f->frees_after_forward = f->sharded && (how == FSDP1_FULL_SHARD || how == FSDP1_HYBRID_SHARD);
    f->group = two ? GROUP_SHARD : GROUP_DATA;
    f->predivide = predivide_factor(own->data_ranks);
    f->postdivide = (double)own->data_ranks / f->predivide;
    f->offload = p->fsdp.cpu_offload;
    f->rule = (struct flat_rule){ .orig_params = p->fsdp.use_orig_params, .kept = f->r.kept, .used = f->r.used, .host = f->offload,
                                  .nranks = n, .sharded = f->sharded, .rank = two ? own->shard_rank : own->data_rank };
    if (two && n == 1 && own->data_ranks > 1)
        sched_note(f->s, "a shard group of one rank makes FSDP1 fall back to NO_SHARD inside of it: "
                   "gradients are never averaged between replicas");
}

static int64_t trained(const struct tensor *t, const void *unused)
{
    (void)unused;
    return !t->frozen;
}

static void setup(struct fsdp1 *f)
{
    struct schedules *s = f->s;
    int64_t foreach = 0, largest = 0;

    f->r = plan_recipe(f->p);
    set_groups(f);
    s->steps_on_host = f->offload;
    struct flat_rule rule = f->rule;
    /* The events of the rate limiter must differ inside of a repeat. */
    if (f->sharded && f->p->fsdp.limit_all_gathers && f->walk.map.n > 0)
        f->walk.map.period *= RING / gcd(f->walk.map.period, RING);
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0) {
            f->trains[c] = unit_sum(&f->walk.map, (enum unit_class)c, trained, NULL) > 0;
            f->kept[c] = rule.kept = f->trains[c] ? f->r.kept : f->r.frozen;
            f->size[c] = flat_param(&f->walk.map, (enum unit_class)c, &rule);
            if (!f->trains[c])      /* what is frozen is no parameter of the optimizer's */
                f->size[c].optim_numel = f->size[c].optim_bytes = f->size[c].optim_tensors = 0;
            declare(f, (enum unit_class)c);
            if (s->detailed)
                fsdp1_describe(f, (enum unit_class)c);
            foreach += f->size[c].optim_bytes * f->walk.map.of_class[c];
            largest = f->size[c].optim_bytes > largest ? f->size[c].optim_bytes : largest;
        }
    f->statistics = lower_declare_statistics(s, f->local);
    lower_declare_activations(s, f->local, f->walk.acts);
    declare_parts(f);
    fsdp1_adapters_setup(f);
    if (f->offload) {
        f->foreach_temp = sched_buf_in(s, SPACE_HOST, CAT_TEMPORARIES, "AdamW's temporaries", NULL, 0, 1, fsdp1_loop_bytes(f));
    } else {
        f->foreach_temp = sched_buf(s, CAT_TEMPORARIES, "AdamW's temporaries", NULL, 0, 1, foreach);
        lower_adamw_temporaries(s, f->p, f->foreach_temp, largest);
    }
    for (int i = 0; i < RING; i++) {
        f->ev_forward[i] = sched_event(s);
        f->ev_backward[i] = sched_event(s);
    }
    f->ev_root = sched_event(s);
    f->ev_half = sched_event(s);
    if (f->p->fsdp.forward_prefetch)
        sched_note(s, "forward_prefetch makes a unit's views one unit early, so autograd finishes its "
                   "gradient one unit late: three units are live in backward, not two");
    if (f->frees_after_forward && f->p->fsdp.limit_all_gathers &&
        f->p->fsdp.backward_prefetch == PREFETCH_PRE)
        sched_note(s, "backward's prefetch leaves four freed units in the rate limiter's queue: from the "
                   "second step on three units, not two, may be unfinished in forward");
}

/* Bytes of the optimizer's tensors on a rank: what ranks can differ in. */
static int64_t optimizer_bytes(const struct fsdp1 *f, int64_t rank)
{
    struct flat_rule r = f->rule;
    int64_t sum = 0;

    r.rank = rank % r.nranks;
    for (int c = 0; c < NUC; c++)
        if (f->walk.map.of_class[c] > 0)
            sum += flat_param(&f->walk.map, (enum unit_class)c, &r).optim_bytes * f->walk.map.of_class[c];
    return sum;
}

int fsdp1_ranks(const struct local_model *local, int64_t ranks[4])
{
    const struct plan *p = local->plan;
    struct schedules none = { .nnotes = 0 };
    struct fsdp1 f = { .p = p, .local = local, .m = local->model, .s = &none, .r = plan_recipe(p) };

    ranks[0] = 0;
    if (!p->fsdp.use_orig_params)
        return 1;                       /* equal shards, zeros included */
    set_groups(&f);
    unit_map_init(&f.walk.map, local);
    int64_t fullest = 0, most = optimizer_bytes(&f, 0);
    for (int64_t rank = 1; f.sharded && rank < f.rule.nranks; rank++) {
        int64_t bytes = optimizer_bytes(&f, rank);
        if (bytes > most) {
            most = bytes;
            fullest = rank;
        }
    }
    ranks[1] = fullest;
    return fullest > 0 ? 2 : 1;
}

static const struct walk_hooks hooks = {
    .init = init, .begin = begin, .optimizer = optimizer, .begin_pass = begin_pass, .end_of_micro_step = end_of_micro_step,
    .pre_forward = pre_forward, .post_forward = post_forward, .pre_backward = pre_backward, .post_backward = post_backward,
    .compute = compute, .inside = fsdp1_adapters_run, .settled = settled, .fate = GRADS_KEEP, .grads = CAT_UNSHARDED_GRADS,
};

int lower_fsdp1(const struct local_model *local, struct schedules *s)
{
    struct fsdp1 f = { .p = local->plan, .local = local, .m = local->model, .s = s };

    s->hooks = HOOKS_OF_UNITS;
    walk_open(&f.walk, local, NULL, s, &hooks, &f);
    f.walk.first_differs = true;
    f.walk.last_differs = !f.p->sync_every_micro_step;
    setup(&f);
    int rc = walk_steps(&f.walk);
    if (f.offload)
        fsdp1_offload(&f);
    return rc;
}
