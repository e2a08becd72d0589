/* lower_dp.c -- one process drives all: torch.nn.DataParallel, and the parameter
 * server of the textbooks with rank 0 both serving and working.
 *
 * Rank 0 keeps parameters, gradients and optimizer states; the others hold a copy
 * of the parameters and their own gradients.  Every micro-step sends all
 * parameters out and all gradients in: accumulation saves nothing.
 *
 * Source for `torch`: torch/nn/parallel/data_parallel.py, _functions.py
 * (Broadcast, ReduceAddCoalesced, Gather, Scatter) and nn/parallel/comm.py, whose
 * coalescing buffer is 10 MiB.  ReduceAddCoalesced is one autograd node: it runs
 * once every gradient of every replica exists, so nothing overlaps.
 *
 * The mean over replicas is taken of their losses, on rank 0; their gradients are summed. */
#include "model/arch/recorded.h"
#include "model/plan/recorded_check.h"
#include "model/schedule/sharding.h"
#include "model/walk/walk.h"

struct dp {
    struct walk walk;
    const struct plan *p;
    const struct model *m;
    struct schedules  *s;
    struct recipe      r;
    bool    server, torch;
    int64_t n, params;
    int     weights, grads, optimizer, replica_grads, staging, outputs, loss, foreach;
};

/* ---- pieces ---- */

/* Tensors [first,end) that a coalesced collective moves together: in torch they are packed while
 * they fit 10 MiB (torch/csrc/utils/tensor_flatten.cpp, take_tensors), so only one alone may be
 * larger; the server moves one flat buffer. */
struct part {
    int     number, first, end;
    int64_t elems;
    int64_t packed, apart;      /* bytes before it where parts, or single tensors, are allocations */
};

static int64_t allocated(const struct dp *d, int64_t bytes)
{
    return d->torch ? round512(bytes) : bytes;
}

/* From a part, or all zero, to the next; false after the last. */
static bool next_part(const struct dp *d, struct part *q)
{
    const struct model *m = d->m;
    int64_t e = dtype_bytes(d->r.kept), packed = 0;
    int t = q->end;

    q->packed += allocated(d, q->elems * e);
    for (int i = q->first; i < q->end; i++)
        q->apart += allocated(d, m->tensors[i].numel * e);
    while (t < m->ntensors && (packed == 0 || !d->torch || (packed + m->tensors[t].numel) * e <= d->p->limits.dp_coalesce))
        packed += m->tensors[t++].numel;
    q->number += q->end > 0;
    q->first = q->end;
    q->end = t;
    q->elems = packed;
    return packed > 0;
}

/* Slices of tensors [first,end), each an allocation of its own or end to end. */
static void slices(struct dp *d, enum holds h, enum dtype dt, int first, int end, bool apart, int64_t at)
{
    struct sharding x = { d->s, d->m->tensors, h, dt, .at = at };

    for (int t = first; t < end && d->s->detailed; t++) {
        int64_t n = d->m->tensors[t].numel;
        sharding_part(&x, t, n, 0, apart ? allocated(d, n * dtype_bytes(dt)) : n * dtype_bytes(dt));
    }
}

/* Action of the last entry on a part of a buffer: its tensors from byte `at`. */
static void act_part(struct dp *d, const struct part *q, int what, int buf, enum holds h, bool apart,
                     int64_t at)
{
    sched_act_as(d->s, what, buf, 0, 0, sched_layout(d->s, 0));
    slices(d, h, d->r.kept, q->first, q->end, apart, at);
}

/* A collective on a part, from or to rank 0. */
static void move_part(struct dp *d, const struct part *q, enum phase phase, enum coll_op op, enum red_op red)
{
    sched_coll(d->s, STREAM_COMPUTE, phase, op, GROUP_DATA, d->r.kept, red, q->elems);
    sched_of(d->s, "piece", q->number, 0);
}

static void broadcast(struct dp *d)
{
    for (struct part q = { 0 }; next_part(d, &q);) {
        move_part(d, &q, PHASE_FORWARD, COLL_BROADCAST, RED_NONE);
        act_part(d, &q, ACT_RW, d->weights, HOLDS_PARAM, false, q.packed);
    }
}

/* replicate() sends a recorded module's buffers behind the parameters, in the order of their dtypes' numbers (c10::ScalarType); a group ends
 * with the tensor that fills 10 MiB. */
static bool another_of(const struct recorded *r, int64_t i)
{
    for (int64_t k = i + 1; k < r->nbuffers; k++)
        if (r->buffer[k].kind == r->buffer[i].kind)
            return true;
    return false;
}

static void broadcast_buffers(struct dp *d)
{
    static const uint8_t order[] = { DT_UINT8, DT_INT8, REC_INT16, DT_INT32, DT_INT64, DT_FP16, DT_FP32, DT_FP64, REC_COMPLEX64, REC_COMPLEX128, REC_BOOL, DT_BF16 };
    const struct recorded *r = d->m->recorded;

    for (size_t k = 0; r && k < sizeof order / sizeof *order; k++)
        for (int64_t i = 0, elems = 0, bytes = 0; i < r->nbuffers; i++) {
            const struct rec_buffer *b = &r->buffer[i];
            if (b->kind != order[k])
                continue;
            elems += b->elems;
            bytes += b->bytes;
            if (bytes < d->p->limits.dp_coalesce && another_of(r, i))
                continue;
            sched_coll(d->s, STREAM_COMPUTE, PHASE_FORWARD, COLL_BROADCAST, GROUP_DATA, (enum dtype)b->sent, RED_NONE, elems);
            sched_moves(d->s, OF_META);
            elems = bytes = 0;
        }
}

/* What the replicas are given: tokens, or the batch of a recorded module, which its first kernel makes. */
static void scatter_batch(struct dp *d)
{
    const struct recorded *r = d->m->recorded;
    const struct rec_program *g = r ? recorded_program(r, recorded_precision(d->p), recorded_again(d->p), false) : NULL;
    const struct rec_kernel *batch = g ? &r->kernels[r->pieces[g->first].kernel0[PASS_FORWARD]] : NULL;
    int64_t bytes = 0, n = 0;

    for (int i = 0; batch && i < batch->nmoves; i++)
        bytes += r->moves[batch->move0 + i].does == REC_COMES && recorded_at(r, r->moves[batch->move0 + i].bytes, d->p->micro_batch, d->p->seq, &n) == 0 ? n : 0;
    sched_coll(d->s, STREAM_COMPUTE, PHASE_FORWARD, COLL_SCATTER, GROUP_DATA, r ? DT_UINT8 : DT_INT64, RED_NONE, d->n * (r ? bytes : d->p->micro_batch * d->p->seq));
    sched_moves(d->s, OF_TOKENS);
}

/* ---- reduction ---- */

/* A replica's gradients on rank 0, or their sum over replicas, become .grad or are added to it. */
static void sum_into_grads(struct dp *d, const struct part *q)
{
    int64_t bytes = q->elems * dtype_bytes(d->r.kept);
    bool new = d->walk.first;
    int what = !new ? ACT_A : q->first == 0 ? ACT_ALLOC | ACT_WRITE : ACT_W;

    sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "sum into grads", bytes, bytes);
    sched_of(d->s, "piece", q->number, 0);
    sched_does(d->s, new ? COPY_SET : COPY_ADD, 1);
    act_part(d, q, what, d->grads, HOLDS_GRAD, true, q->apart);
}

/* comm.reduce_add_coalesced: the tensors of a part are made one, unless there is only one. */
static void reduce_part(struct dp *d, const struct part *q)
{
    bool flat = q->end - q->first > 1;
    int buf = flat ? d->staging : d->replica_grads, done = flat ? ACT_FREE : 0;
    int64_t bytes = q->elems * dtype_bytes(d->r.kept), at = flat ? 0 : q->apart;

    if (flat) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "flatten", bytes, bytes);
        sched_of(d->s, "piece", q->number, 0);
        sched_does(d->s, COPY_SET, 1);
        sched_act(d->s, ACT_R, d->replica_grads, 0, 0);
        act_part(d, q, ACT_ALLOC | ACT_WRITE, buf, HOLDS_GRAD, false, at);
    }
    move_part(d, q, PHASE_REDUCE, COLL_REDUCE, RED_SUM);
    act_part(d, q, d->server ? ACT_RW : ACT_RW | done, buf, HOLDS_GRAD, false, at);
    if (d->server) {
        sum_into_grads(d, q);
        act_part(d, q, ACT_R | done, buf, HOLDS_GRAD, false, at);
    }
}

static void reduce_torch(struct dp *d)
{
    const struct part all = { .end = d->m->ntensors, .elems = d->params };

    for (struct part q = { 0 }; d->n > 1 && next_part(d, &q);)
        reduce_part(d, &q);
    if (d->n == 1) {
        sum_into_grads(d, &all);
        sched_act(d->s, ACT_R, d->replica_grads, 0, 0);
    }
}

/* The server's own gradients lie where the sum is to be: the reduction, in place, adds up. */
static void reduce_server(struct dp *d)
{
    int64_t bytes = d->params * dtype_bytes(d->r.kept);

    for (struct part q = { 0 }; d->n > 1 && next_part(d, &q);) {
        move_part(d, &q, PHASE_REDUCE, COLL_REDUCE, RED_SUM);
        sched_act(d->s, ACT_RW, d->replica_grads, 0, 0);
    }
    if (d->server) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "sum into grads", bytes, bytes);
        sched_act(d->s, ACT_ALLOC | ACT_FREE, d->staging, 0, 0);
        sched_act(d->s, ACT_USE, d->grads, 0, 0);
    }
}

/* ---- a micro-step ---- */

static void compute(void *dp, const struct walk_run *r)
{
    struct dp *d = dp;
    bool adds = !d->torch && d->server && !d->walk.first;

    sched_act(d->s, ACT_R, d->weights, 0, 0);
    if (!r->forward)
        sched_act(d->s, adds ? ACT_A : d->torch && r->piece == PIECE_HEAD ? ACT_ALLOC | ACT_WRITE : ACT_W, d->replica_grads, 0, 0);
}

/* The replicas' losses go to rank 0, the gradient of their mean comes back.  With gather_logits
 * their logits do: bytes only, for a sample's loss is the same wherever it is computed. */
static void exchange_loss(struct dp *d)
{
    int64_t logits = d->n * d->p->micro_batch * d->p->seq * d->m->vocab;
    int64_t elems = d->p->dp.gather_logits ? logits : d->n;

    sched_coll(d->s, STREAM_COMPUTE, PHASE_FORWARD, COLL_GATHER, GROUP_DATA, DT_FP32, RED_NONE, elems);
    sched_moves(d->s, OF_LOSS);
    sched_act(d->s, ACT_ALLOC, d->outputs, 0, 0);
    sched_copy(d->s, STREAM_COMPUTE, PHASE_FORWARD, "loss on rank 0", d->server ? 4 * d->n : 0, 4);
    if (d->server)
        sched_does(d->s, COPY_LOSS, 1);
    sched_act(d->s, ACT_ALLOC, d->loss, 0, 0);
    sched_coll(d->s, STREAM_COMPUTE, PHASE_BACKWARD, COLL_SCATTER, GROUP_DATA, DT_FP32, RED_NONE, elems);
    sched_moves(d->s, OF_LOSS);
    sched_act(d->s, ACT_FREE, d->outputs, 0, 0);
    sched_act(d->s, ACT_FREE, d->loss, 0, 0);
}

static void pre_forward(void *dp, struct at root)
{
    struct dp *d = dp;

    (void)root;
    if (d->n > 1)
        scatter_batch(d);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "replica");
    sched_act(d->s, d->server ? ACT_USE : ACT_ALLOC, d->weights, 0, 0);
    if (d->n > 1) {
        broadcast(d);
        broadcast_buffers(d);
    }
}

static void post_forward(void *dp, struct at root)
{
    struct dp *d = dp;

    (void)root;
    if (d->n > 1)
        exchange_loss(d);
}

static void post_backward(void *dp, struct at root)
{
    struct dp *d = dp;

    (void)root;
    if (d->torch)
        reduce_torch(d);
    else
        reduce_server(d);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "graph freed");
    if (d->torch)
        sched_act(d->s, ACT_FREE, d->replica_grads, 0, 0);
    if (!d->server)
        sched_act(d->s, ACT_FREE, d->weights, 0, 0);
}

/* ---- whole steps ---- */

static void own_gradients(struct schedules *s, int what, void *arg)
{
    const struct dp *d = arg;

    sched_act(s, what, d->grads, 0, 0);
}

static void optimizer(void *dp)
{
    struct dp *d = dp;
    bool makes_states = d->torch && d->walk.step == SCHED_FIRST;

    if (!d->server)
        return;
    if (d->p->clip > 0)
        lower_clip_by_norm(d->s, STREAM_COMPUTE, d->params * dtype_bytes(d->r.kept), NULL, 0, false, own_gradients, d);
    lower_adamw(d->s, d->p, d->torch ? ADAMW_FOREACH : ADAMW_ONE_KERNEL, d->params);
    sched_act(d->s, ACT_R, d->grads, 0, 0);
    sched_act(d->s, ACT_RW, d->weights, 0, 0);
    sched_act(d->s, makes_states ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, d->optimizer, 0, 0);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, d->foreach, 0, 0);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
    sched_act(d->s, d->torch ? ACT_FREE : ACT_USE, d->grads, 0, 0);
}

static int64_t rounded(const struct dp *d, int64_t bytes_per)
{
    int64_t sum = 0;

    for (int i = 0; i < d->m->ntensors; i++)
        sum += allocated(d, d->m->tensors[i].numel * bytes_per);
    return sum;
}

static void describe(struct dp *d)
{
    struct schedules *s = d->s;
    int n = d->m->ntensors;

    sched_holds(s, d->weights, sched_layout(s, 0));
    for (struct part q = { 0 }; next_part(d, &q);)
        slices(d, HOLDS_PARAM, d->r.kept, q.first, q.end, false, q.packed);
    sched_holds(s, d->grads, sched_layout(s, 0));
    slices(d, HOLDS_GRAD, d->r.grad, 0, n, true, 0);
    sched_holds(s, d->replica_grads, sched_layout(s, 0));
    slices(d, HOLDS_GRAD, d->r.grad, 0, n, true, 0);
    sched_holds(s, d->optimizer, sched_layout(s, 0));
    slices(d, HOLDS_EXP_AVG, DT_FP32, 0, n, true, 0);
    slices(d, HOLDS_EXP_AVG_SQ, DT_FP32, 0, n, true, rounded(d, 4));
    if (!d->torch && d->r.optimizer == 12)
        slices(d, HOLDS_MASTER, DT_FP32, 0, n, true, 2 * rounded(d, 4));
}

static void declare(struct dp *d)
{
    struct schedules *s = d->s;
    const struct plan *p = d->p;
    int64_t weights = rounded(d, dtype_bytes(d->r.kept));
    int64_t rows = p->dp.gather_logits && d->server ? p->micro_batch * p->seq * d->m->vocab * 4 : 0;
    int64_t coalesce = p->limits.dp_coalesce;
    bool own = d->server;

    d->weights = sched_buf(s, own ? CAT_PARAMS : CAT_UNSHARDED, own ? "params" : "replica", NULL, 0, 1, weights);
    d->grads = sched_buf(s, CAT_GRADS, "grads", NULL, 0, 1, weights);
    /* The server of the paper adds its own gradients where they lie and the
     * others' from one staging buffer; torch reduces all replicas' into new ones. */
    d->replica_grads = d->torch || !own
                     ? sched_buf(s, CAT_UNSHARDED_GRADS, "replica's grads", NULL, 0, 1, weights) : d->grads;
    d->staging = sched_buf(s, CAT_BUCKET, d->torch ? "coalescing buffer" : "incoming grads", NULL, 0, 1,
                           d->n == 1 ? 0 : d->torch && weights > coalesce ? coalesce : weights);
    d->optimizer = sched_buf(s, CAT_OPTIMIZER, "optimizer states", NULL, 0, 1,
                             d->torch ? 2 * rounded(d, 4) : d->params * d->r.optimizer);
    d->foreach = sched_buf(s, CAT_TEMPORARIES, "foreach temporaries", NULL, 0, 1, d->torch ? rounded(d, 4) : 0);
    d->outputs = sched_buf(s, CAT_TEMPORARIES, "gathered outputs", NULL, 0, 1, own && d->n > 1
                           ? (p->dp.gather_logits ? d->n * rows : round512(4 * d->n)) : 0);
    /* The loss of the other ranks' samples: log-softmax and its gradient. */
    d->loss = sched_buf(s, CAT_TEMPORARIES, "loss of the gathered batch", NULL, 0, 1, 2 * (d->n - 1) * rows);
    lower_declare_activations(s, d->walk.local, d->walk.acts);
    if (s->detailed)
        describe(d);
}

static void init(void *dp)
{
    struct dp *d = dp;

    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model")->flags = OPF_LOAD;
    if (d->server)
        sched_act(d->s, ACT_ALLOC | ACT_WRITE, d->weights, 0, 0);
    if (!d->torch)
        sched_act(d->s, ACT_ALLOC | ACT_WRITE, d->replica_grads, 0, 0);
    if (!d->torch && d->server)     /* with the fp32 copy of the parameters */
        sched_act(d->s, ACT_ALLOC | ACT_WRITE, d->optimizer, 0, 0);
}

static const struct walk_hooks hooks = {
    .init = init, .optimizer = optimizer, .pre_forward = pre_forward, .post_forward = post_forward, .post_backward = post_backward,
    .compute = compute, .grads = CAT_UNSHARDED_GRADS,
};

int lower_dp(const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct plan whole = *p;
    struct dp d = { .p = p, .m = local->model, .s = s, .r = plan_recipe(p), .server = local->data_rank == 0,
                    .torch = p->dialect == DIALECT_TORCH, .n = local->data_ranks, .params = local->model->params };

    whole.unit = UNIT_MODEL;
    walk_open(&d.walk, local, &whole, s, &hooks, &d);
    d.walk.fate = d.torch ? GRADS_KEEP : GRADS_IN_PLACE;
    d.walk.first_differs = true;
    s->star = !d.torch;
    s->seed /= (double)d.n;
    declare(&d);
    return walk_steps(&d.walk);
}
