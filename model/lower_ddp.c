/* lower_ddp.c -- torch.nn.parallel.DistributedDataParallel, and on top of it
 * torch.distributed.optim.ZeroRedundancyOptimizer (zero1).
 *
 * Sources (PyTorch 2.15): torch/csrc/distributed/c10d/reducer.cpp,
 * nn/parallel/distributed.py, optim/zero_redundancy_optimizer.py.
 *
 * Gradients exist twice: as .grad and in the buckets, unless they are views.
 * Iteration 1 has one bucket for the whole model (no overlap); the buckets are
 * then rebuilt in the order in which gradients became ready.  Buckets are reduced
 * strictly in order, each as soon as its last gradient is there.  A gradient is
 * divided by N while it is copied into its bucket. */
#include <stdlib.h>

#include "model/ddp_buckets.h"
#include "model/lower_internal.h"

#define MIB (1024.0 * 1024.0)

struct ddp {
    const struct plan *p;
    struct schedules  *s;
    struct recipe      r;
    bool     view, sharded_optimizer, keeps_first_buckets;
    int      ntensors;
    int     *order;                 /* tensors as their gradients become ready */
    struct buckets  first, steady;
    const struct buckets *now;      /* the ones in use */
    int      bucket0_first, bucket0_steady; /* buffer families of the buckets */
    int      params, optimizer, foreach, module_buffers;
    int     *grad_family;           /* per tensor; tensors of blocks share one per role */
    int      acts[NPIECE];
    int     *pending;               /* per bucket: gradients not ready in this backward */
    int      next;                  /* the bucket to be reduced next */
    int64_t *owner;                 /* ZeroRedundancyOptimizer: rank of each tensor */
    int     *sorted;
    int64_t  own_numel, own_bytes;
};

/* ---- gradients and buckets ---- */

static int instance_of(const struct ddp *d, int tensor)
{
    int block = d->p->model.tensors[tensor].block;
    return block < 0 ? 0 : block;
}

static int64_t bytes_of(const struct ddp *d, int tensor)
{
    return d->p->model.tensors[tensor].numel * dtype_bytes(d->r.grad);
}

static int bucket_buf(const struct ddp *d, int bucket)
{
    return (d->now == &d->first ? d->bucket0_first : d->bucket0_steady) + bucket;
}

static void use_all_grads(struct ddp *d)
{
    for (int b = 0; b < d->now->n; b++)
        sched_act(d->s, ACT_USE, bucket_buf(d, b), 0, 0);
    for (int t = 0; t < d->ntensors && !d->view; t++)
        if (instance_of(d, t) == 0)
            sched_act_all(d->s, ACT_USE, d->grad_family[t]);
}

static void launch(struct ddp *d)
{
    while (d->next < d->now->n && d->pending[d->next] == 0) {
        struct op *o = sched_coll(d->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_WORLD,
                                  d->r.wire_reduce, RED_SUM, d->now->numel[d->next]);
        o->after = AFTER(STREAM_COMPUTE);
        sched_of(d->s, "bucket", d->next, 0);
        sched_act(d->s, ACT_USE, bucket_buf(d, d->next), 0, 0);
        d->next++;
    }
}

/* The entry reads the gradients of kernels [k0,k1) and writes their buckets. */
static void use_ready(struct ddp *d, enum piece_id piece, int block, int k0, int k1)
{
    const struct piece *q = &d->s->program.piece[piece];
    int last = -1;

    for (int k = k0; k < k1; k++)
        for (int i = 0; i < 4 && q->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
            int t = program_tensor(d->p, piece, block, q->kernels[PASS_BACKWARD][k].ready[i]);
            if (!d->view)
                sched_act(d->s, ACT_USE, d->grad_family[t], instance_of(d, t), 0);
            if (d->now->of[t] != last)
                sched_act(d->s, ACT_USE, bucket_buf(d, last = d->now->of[t]), 0, 0);
        }
}

/* One compute segment, the gradients that it makes, their copies into buckets. */
static void segment(struct ddp *d, enum piece_id piece, int block, int k0, int k1, bool fresh, bool sync,
                    bool last)
{
    const struct piece *q = &d->s->program.piece[piece];
    bool keep = fresh && !d->view;
    int64_t copied = 0;

    sched_compute(d->s, PHASE_BACKWARD, piece, PASS_BACKWARD, k0, k1, keep ? GRADS_KEEP : GRADS_DROP, CAT_GRADS);
    sched_of(d->s, piece == PIECE_EMBED ? "embedding" : piece == PIECE_HEAD ? "head" : "block", block, 0);
    sched_act(d->s, ACT_USE, d->params, 0, 0);
    for (int k = k0; k < k1; k++)
        for (int i = 0; i < 4 && q->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
            int t = program_tensor(d->p, piece, block, q->kernels[PASS_BACKWARD][k].ready[i]);
            if (keep)
                sched_act(d->s, ACT_ALLOC, d->grad_family[t], instance_of(d, t), 0);
            copied += bytes_of(d, t);
            d->pending[d->now->of[t]]--;
        }
    if (last)
        sched_act(d->s, ACT_FREE, d->acts[piece], block, 0);
    if (!sync || copied == 0)
        return;
    sched_copy(d->s, STREAM_COMPUTE, PHASE_BACKWARD, "divide into buckets", copied, copied);
    use_ready(d, piece, block, k0, k1);
    launch(d);
}

/* Backward of a piece, cut after every kernel that completes the bucket whose
 * turn it is. */
static void backward_piece(struct ddp *d, enum piece_id piece, int block, bool fresh, bool sync)
{
    const struct piece *q = &d->s->program.piece[piece];
    int n = q->nkernels[PASS_BACKWARD], from = 0;

    for (int k = 0; k < n; k++) {
        bool cut = k == n - 1;
        if (sync && d->next < d->now->n && !cut) {
            /* How many of the next bucket's gradients come up to kernel k? */
            int due = d->pending[d->next];
            for (int j = from; j <= k; j++)
                for (int i = 0; i < 4 && q->kernels[PASS_BACKWARD][j].ready[i] >= 0; i++)
                    due -= d->now->of[program_tensor(d->p, piece, block,
                                                     q->kernels[PASS_BACKWARD][j].ready[i])] == d->next;
            cut = due == 0 && q->kernels[PASS_BACKWARD][k].ready[0] >= 0;
        }
        if (cut) {
            segment(d, piece, block, from, k + 1, fresh, sync, k == n - 1);
            from = k + 1;
        }
    }
}

/* ---- a micro-step ---- */

static void forward(struct ddp *d, bool sync)
{
    const struct plan *p = d->p;

    if (d->module_buffers > 0 && p->ddp.broadcast_buffers && sync) {
        /* _sync_buffers, only if the previous iteration was synchronised */
        struct op *o = sched_coll(d->s, STREAM_GROUP, PHASE_FORWARD, COLL_BROADCAST, GROUP_WORLD, DT_FP32,
                                  RED_NONE, d->module_buffers);
        o->after = AFTER(STREAM_COMPUTE);
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "await buffers")->after = AFTER(STREAM_GROUP);
    }
    sched_compute(d->s, PHASE_FORWARD, PIECE_EMBED, PASS_FORWARD, 0, -1, GRADS_DROP, CAT_GRADS);
    sched_of(d->s, "embedding", 0, 0);
    sched_act(d->s, ACT_ALLOC, d->acts[PIECE_EMBED], 0, 0);
    forward_blocks(d->s, p, d->acts);
    sched_compute(d->s, PHASE_FORWARD, PIECE_HEAD, PASS_FORWARD, 0, -1, GRADS_DROP, CAT_GRADS);
    sched_of(d->s, "head", 0, 0);
    sched_act(d->s, ACT_ALLOC, d->acts[PIECE_HEAD], 0, 0);
}

static void finalize(struct ddp *d)
{
    int64_t all = d->p->model.params * dtype_bytes(d->r.grad);

    if (d->p->ddp.find_unused_parameters && !d->p->ddp.static_graph) {
        struct op *o = sched_coll(d->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_WORLD, DT_INT32,
                                  RED_SUM, d->ntensors);
        o->after = AFTER(STREAM_COMPUTE);
    }
    if (d->view) {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await buckets")->after = AFTER(STREAM_GROUP);
    } else {
        struct op *o = sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "copy out of buckets", all, all);
        o->after = AFTER(STREAM_GROUP);
        use_all_grads(d);
    }
}

static void backward(struct ddp *d, bool fresh, bool sync)
{
    for (int b = 0; b < d->now->n; b++)
        d->pending[b] = d->now->tensors[b];
    d->next = 0;
    backward_piece(d, PIECE_HEAD, 0, fresh, sync);
    for (int b = (int)d->p->model.layers - 1; b >= 0; b--)
        backward_piece(d, program_piece_of_block(d->p, b), b, fresh, sync);
    backward_piece(d, PIECE_EMBED, 0, fresh, sync);
    if (sync)
        finalize(d);
}

static void micro_step(struct ddp *d, bool fresh, bool after_sync, bool sync)
{
    forward(d, after_sync);
    backward(d, fresh, sync);
}

/* Reducer::rebuild_buckets, at the start of iteration 2 (3 with static_graph):
 * rank 0's order is broadcast, the old buckets go before the new ones come. */
static void rebuild(struct ddp *d)
{
    struct op *o;

    if (d->keeps_first_buckets)
        return;
    o = sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_BROADCAST, GROUP_WORLD, DT_INT32, RED_NONE, d->ntensors + 1);
    o->after = AFTER(STREAM_COMPUTE);
    sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_BROADCAST, GROUP_WORLD, DT_INT32, RED_NONE, d->steady.n);
    sched_op(d->s, OP_WAIT, STREAM_ISSUE, PHASE_INIT, "bucket sizes")->after = AFTER(STREAM_GROUP);
    for (int i = 0; i < d->first.n; i++) {
        if (i == 0)
            sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "rebuild buckets: free the old");
        sched_act(d->s, ACT_FREE, d->bucket0_first + i, 0, 0);
    }
    for (int i = 0; i < d->steady.n; i++) {
        if (i == 0)
            sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "rebuild buckets");
        sched_act(d->s, ACT_ALLOC, d->bucket0_steady + i, 0, 0);
    }
    d->now = &d->steady;
}

static void micro_steps(struct ddp *d, bool first_step)
{
    int64_t m = d->p->accumulation;
    bool every = d->p->sync_every_micro_step || m == 1;

    if (d->p->ddp.static_graph && first_step) {
        struct op *o = sched_coll(d->s, STREAM_GROUP, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_WORLD, DT_INT32,
                                  RED_SUM, d->ntensors);
        o->after = AFTER(STREAM_COMPUTE);
    }
    micro_step(d, true, true, every);
    if (m > 1 && every && first_step)
        rebuild(d);
    if (m > 2 || (m == 2 && every)) {
        sched_repeat(d->s, every ? m - 1 : m - 2);
        micro_step(d, false, every, every);
        sched_repeat_end(d->s);
    }
    if (m > 1 && !every)
        micro_step(d, false, false, true);
}

/* ---- the optimizer ---- */

/* _sync_params: every rank's updated parameters, one broadcast each or, with
 * parameters_as_bucket_view, one a rank. */
static void broadcast_params(struct ddp *d)
{
    const struct model *m = &d->p->model;
    int64_t world = d->p->cluster.world_size;

    for (int64_t r = 0; r < world && r < d->ntensors; r++) {
        int64_t packed = 0;
        for (int i = 0; i < d->ntensors; i++) {
            int t = d->sorted[i];
            if (d->owner[t] != r)
                continue;
            packed += m->tensors[t].numel;
            if (d->p->ddp.parameters_as_bucket_view)
                continue;
            sched_coll(d->s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_BROADCAST, GROUP_WORLD, d->r.kept, RED_NONE,
                       m->tensors[t].numel)->after = AFTER(STREAM_COMPUTE);
            sched_of(d->s, "rank", (int)r, 0);
            sched_act(d->s, ACT_USE, d->params, 0, 0);
        }
        if (d->p->ddp.parameters_as_bucket_view && packed > 0) {
            sched_coll(d->s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_BROADCAST, GROUP_WORLD, d->r.kept, RED_NONE,
                       packed)->after = AFTER(STREAM_COMPUTE);
            sched_of(d->s, "rank", (int)r, 0);
            sched_act(d->s, ACT_USE, d->params, 0, 0);
        }
    }
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "await parameters")->after = AFTER(STREAM_GROUP);
}

static void free_grads(struct ddp *d)
{
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
    if (d->view)
        return;                     /* only the views go */
    for (int t = 0; t < d->ntensors; t++)
        if (instance_of(d, t) == 0)
            sched_act_all(d->s, ACT_FREE, d->grad_family[t]);
}

static void step(struct ddp *d, enum sched_id id)
{
    struct op *o;

    sched_begin(d->s, id);
    micro_steps(d, id == SCHED_FIRST);
    if (d->p->clip > 0)
        clip_by_norm(d->s, d->p->model.params * dtype_bytes(d->r.grad), GROUP_WORLD, 0);
    o = sched_op(d->s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, "AdamW");
    o->u.optimizer.elems = d->own_numel;
    sched_act(d->s, ACT_USE, d->params, 0, 0);
    use_all_grads(d);
    sched_act(d->s, id == SCHED_FIRST ? ACT_ALLOC : ACT_USE, d->optimizer, 0, 0);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, d->foreach, 0, 0);
    if (d->sharded_optimizer)
        broadcast_params(d);
    free_grads(d);
    read_loss(d->s);
    if (id == SCHED_FIRST && d->now == &d->first)
        rebuild(d);                 /* opens the second step, and only that */
    sched_end(d->s, id);
}

/* ---- construction ---- */

/* _verify_param_shape_across_processes, then _sync_module_states: parameters and
 * buffers in chunks of 250 MiB. */
static void init(struct ddp *d)
{
    static const int64_t chunk[2] = { (int64_t)250 << 20, (int64_t)250 << 20 };
    const struct model *m = &d->p->model;
    int64_t dims = 0, buffers = d->module_buffers;
    int *registered = calloc((size_t)d->ntensors + 1, sizeof *registered);
    struct buckets b;

    if (!registered)
        abort();
    sched_begin(d->s, SCHED_INIT);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model");
    sched_act(d->s, ACT_ALLOC, d->params, 0, 0);
    for (int t = 0; t < d->ntensors; t++) {
        dims += 2 * m->tensors[t].ndim;     /* sizes and strides */
        registered[t] = t;
    }
    sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_ALL_GATHER, GROUP_WORLD, DT_INT64, RED_NONE,
               d->p->cluster.world_size);
    sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_BROADCAST, GROUP_WORLD, DT_INT64, RED_NONE, dims);
    buckets_assign(m, registered, dtype_bytes(d->r.kept), chunk, &b);
    for (int i = 0; i < b.n; i++) {
        int64_t elems = b.numel[i] + (i == b.n - 1 ? buffers : 0);
        sched_coll(d->s, STREAM_GROUP, PHASE_INIT, COLL_BROADCAST, GROUP_WORLD, d->r.kept, RED_NONE, elems);
        int chunk_buf = sched_buf(d->s, CAT_BUCKET, "broadcast chunk", NULL, 0, 1,
                                  round512(elems * dtype_bytes(d->r.kept)));
        sched_act(d->s, ACT_ALLOC | ACT_FREE, chunk_buf, 0, 0);
    }
    buckets_free(&b);
    free(registered);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "buckets")->after = AFTER(STREAM_GROUP);
    for (int i = 0; i < d->first.n; i++)
        sched_act(d->s, ACT_ALLOC, d->bucket0_first + i, 0, 0);
    sched_end(d->s, SCHED_INIT);
}

static int declare_buckets(struct ddp *d, const struct buckets *b)
{
    int first = d->s->nbufs;

    for (int i = 0; i < b->n; i++) {
        sched_buf(d->s, CAT_BUCKET, "bucket", "bucket", i, 1, round512(b->numel[i] * dtype_bytes(d->r.grad)));
        sched_unit(d->s, "bucket", i, b->numel[i], b->numel[i], b->numel[i]);
    }
    return first;
}

static void declare(struct ddp *d)
{
    const struct model *m = &d->p->model;
    int64_t kept = 0;

    for (int t = 0; t < d->ntensors; t++) {
        kept += round512(m->tensors[t].numel * dtype_bytes(d->r.kept));
        if (instance_of(d, t) == 0)
            d->grad_family[t] = sched_buf(d->s, CAT_GRADS, "grad", m->tensors[t].block < 0 ? NULL : "block", 0,
                                          m->tensors[t].block < 0 ? 1 : (int)m->layers, round512(bytes_of(d, t)));
        else
            d->grad_family[t] = d->grad_family[t - m->tensors[t].block * m->per_block];
    }
    d->params = sched_buf(d->s, CAT_PARAMS, "params", NULL, 0, 1, kept);
    d->optimizer = sched_buf(d->s, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", NULL, 0, 1, 2 * d->own_bytes);
    d->foreach = sched_buf(d->s, CAT_TEMPORARIES, "foreach temporaries", NULL, 0, 1, d->own_bytes);
    d->bucket0_first = declare_buckets(d, &d->first);
    d->bucket0_steady = d->keeps_first_buckets ? d->bucket0_first : declare_buckets(d, &d->steady);
    declare_activations(d->s, d->p, d->acts);
}

static void assign_buckets(struct ddp *d)
{
    const struct ddp_options *o = &d->p->ddp;
    bool given = o->bucket_cap_mb >= 0;
    int64_t cap = (int64_t)((given ? o->bucket_cap_mb : 25) * MIB);
    bool always_small = plan_version(d->p) < 2005;      /* until then, with a cap given too */
    int64_t limits[2] = { given && !always_small ? cap : (int64_t)MIB, cap };
    int64_t one[2] = { INT64_MAX, INT64_MAX };
    bool unused = o->find_unused_parameters && !o->static_graph;
    int *registered = calloc((size_t)d->ntensors + 1, sizeof *registered);

    if (!registered)
        abort();
    for (int t = 0; t < d->ntensors; t++)
        registered[t] = t;
    /* _ddp_init_helper: one bucket when no parameter can be unused, else by size
     * over registration order, the last first; those are never rebuilt. */
    buckets_assign(&d->p->model, registered, dtype_bytes(d->r.grad), unused ? limits : one, &d->first);
    buckets_reverse(&d->first, d->ntensors);
    ready_order(d->p, &d->s->program, d->order);
    buckets_assign(&d->p->model, d->order, dtype_bytes(d->r.grad), limits, &d->steady);
    d->keeps_first_buckets = unused;
    d->now = &d->first;
    free(registered);
}

static void own(struct ddp *d, int64_t rank)
{
    const struct model *m = &d->p->model;

    if (d->sharded_optimizer)
        zro_partition(m, d->p->cluster.world_size, d->owner, d->sorted);
    for (int t = 0; t < d->ntensors; t++)
        if (!d->sharded_optimizer || d->owner[t] == rank) {
            d->own_numel += m->tensors[t].numel;
            d->own_bytes += round512(m->tensors[t].numel * dtype_bytes(d->r.kept));
        }
}

int lower_ddp(const struct plan *p, int64_t rank, struct schedules *s)
{
    size_t n = (size_t)p->model.ntensors + 1;
    struct ddp d = { .p = p, .s = s, .r = plan_recipe(p), .view = p->ddp.gradient_as_bucket_view,
                     .sharded_optimizer = p->strategy == STRAT_ZERO1, .ntensors = p->model.ntensors,
                     .order = calloc(n, sizeof *d.order), .grad_family = calloc(n, sizeof *d.grad_family),
                     .pending = calloc(n, sizeof *d.pending), .owner = calloc(n, sizeof *d.owner),
                     .sorted = calloc(n, sizeof *d.sorted),
                     .module_buffers = model_buffer_elems(&p->model) };

    if (!d.order || !d.grad_family || !d.pending || !d.owner || !d.sorted)
        abort();
    assign_buckets(&d);
    own(&d, rank);
    declare(&d);
    init(&d);
    step(&d, SCHED_FIRST);
    d.now = d.keeps_first_buckets ? &d.first : &d.steady;
    if (d.keeps_first_buckets)
        d.bucket0_steady = d.bucket0_first;
    step(&d, SCHED_STEADY);
    buckets_free(&d.first);
    buckets_free(&d.steady);
    free(d.order);
    free(d.grad_family);
    free(d.pending);
    free(d.owner);
    free(d.sorted);
    return 0;
}

int zro_ranks(const struct plan *p, int64_t ranks[4])
{
    size_t n = (size_t)p->model.ntensors + 1;
    int64_t *owner = calloc(n, sizeof *owner), *load = calloc(n, sizeof *load), most = 0;
    int *sorted = calloc(n, sizeof *sorted);

    if (!owner || !load || !sorted)
        abort();
    zro_partition(&p->model, p->cluster.world_size, owner, sorted);
    for (int t = 0; t < p->model.ntensors; t++)
        load[owner[t]] += p->model.tensors[t].numel;
    for (int r = 1; r < p->model.ntensors; r++)
        if (load[r] > load[most])
            most = r;
    free(owner);
    free(load);
    free(sorted);
    ranks[0] = 0;
    ranks[1] = most;
    return most > 0 ? 2 : 1;
}
