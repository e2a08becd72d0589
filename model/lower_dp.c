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
 * once every gradient of every replica exists, so nothing overlaps. */
#include "model/lower_internal.h"

#define COALESCE ((int64_t)10 << 20)    /* comm.broadcast_coalesced(buffer_size=10485760) */

struct dp {
    const struct plan *p;
    struct schedules  *s;
    struct recipe      r;
    bool    server, torch;
    int64_t n, params;
    int     weights, grads, optimizer, replica_grads, staging, outputs, loss, foreach;
    int     acts[NPIECE];
};

/* Calls f for every piece that the coalesced collectives move: tensors are packed
 * while they fit 10 MiB (torch/csrc/utils/tensor_flatten.cpp, take_tensors). */
static void pieces(struct dp *d, enum coll_op op, enum red_op red, enum phase phase)
{
    const struct model *m = &d->p->model;
    int64_t e = dtype_bytes(d->r.kept), packed = 0;
    int number = 0;

    for (int i = 0; i <= m->ntensors; i++) {
        int64_t more = i < m->ntensors ? m->tensors[i].numel : 0;
        bool flush = i == m->ntensors || (packed + more) * e > COALESCE || !d->torch;
        if (!d->torch && i < m->ntensors)
            flush = false;                      /* the server moves one flat buffer */
        if (flush && packed > 0) {
            struct op *o = sched_coll(d->s, STREAM_COMPUTE, phase, op, GROUP_WORLD, d->r.kept, red, packed);
            (void)o;
            sched_of(d->s, "piece", number++, 0);
            if (d->server || op == COLL_BROADCAST)
                sched_act(d->s, ACT_USE, d->weights, 0, 0);
            if (op == COLL_REDUCE)
                sched_act(d->s, ACT_USE, d->replica_grads, 0, 0);
            packed = 0;
        }
        packed += more;
    }
}

static void run(struct dp *d, enum piece_id piece, enum pass pass, int block, int by)
{
    bool forward = pass == PASS_FORWARD, head = piece == PIECE_HEAD;

    sched_compute(d->s, forward ? PHASE_FORWARD : PHASE_BACKWARD, piece, pass, 0, -1,
                  d->torch ? GRADS_KEEP : GRADS_IN_PLACE, CAT_UNSHARDED_GRADS);
    sched_of(d->s, piece == PIECE_EMBED ? "embedding" : head ? "head" : "block", block, by);
    sched_act(d->s, ACT_USE, d->weights, 0, 0);
    sched_act(d->s, forward ? ACT_ALLOC : ACT_FREE, d->acts[piece], block, by);
    if (!forward && head)
        sched_act(d->s, d->torch ? ACT_ALLOC : ACT_USE, d->replica_grads, 0, 0);
}

static void block_forward(void *arg, int b, int by)
{
    struct dp *d = arg;
    run(d, program_piece_of_block(d->p, b), PASS_FORWARD, b, by);
}

static void block_backward(void *arg, int b, int by)
{
    struct dp *d = arg;
    run(d, program_piece_of_block(d->p, b), PASS_BACKWARD, b, by);
}

static void micro_step(struct dp *d, bool first_of_step)
{
    const struct plan *p = d->p;
    int64_t tokens = d->n * p->micro_batch * p->seq;
    int64_t logits = tokens * p->model.vocab;

    if (d->n > 1)
        sched_coll(d->s, STREAM_COMPUTE, PHASE_FORWARD, COLL_SCATTER, GROUP_WORLD, DT_INT64, RED_NONE, tokens);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "replica");
    sched_act(d->s, d->server ? ACT_USE : ACT_ALLOC, d->weights, 0, 0);
    if (d->n > 1)
        pieces(d, COLL_BROADCAST, RED_NONE, PHASE_FORWARD);
    run(d, PIECE_EMBED, PASS_FORWARD, 0, 0);
    blocks_emit(p, d->s, false, block_forward, d);
    run(d, PIECE_HEAD, PASS_FORWARD, 0, 0);
    if (d->n > 1) {
        sched_coll(d->s, STREAM_COMPUTE, PHASE_FORWARD, COLL_GATHER, GROUP_WORLD, DT_FP32, RED_NONE,
                   p->dp.gather_logits ? logits : d->n);
        sched_act(d->s, ACT_ALLOC, d->outputs, 0, 0);
        sched_copy(d->s, STREAM_COMPUTE, PHASE_FORWARD, "loss on rank 0", d->server ? 4 * d->n : 0, 4);
        sched_act(d->s, ACT_ALLOC, d->loss, 0, 0);
        sched_coll(d->s, STREAM_COMPUTE, PHASE_BACKWARD, COLL_SCATTER, GROUP_WORLD, DT_FP32, RED_NONE,
                   p->dp.gather_logits ? logits : d->n);
        sched_act(d->s, ACT_FREE, d->outputs, 0, 0);
        sched_act(d->s, ACT_FREE, d->loss, 0, 0);
    }
    run(d, PIECE_HEAD, PASS_BACKWARD, 0, 0);
    blocks_emit(p, d->s, true, block_backward, d);
    run(d, PIECE_EMBED, PASS_BACKWARD, 0, 0);
    if (d->n > 1)
        pieces(d, COLL_REDUCE, RED_SUM, PHASE_REDUCE);
    if (d->server) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "sum into grads",
                   d->params * dtype_bytes(d->r.kept), d->params * dtype_bytes(d->r.kept));
        sched_act(d->s, ACT_ALLOC | ACT_FREE, d->staging, 0, 0);
        sched_act(d->s, first_of_step && d->torch ? ACT_ALLOC : ACT_USE, d->grads, 0, 0);
    }
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "graph freed");
    if (d->torch)
        sched_act(d->s, ACT_FREE, d->replica_grads, 0, 0);
    if (!d->server)
        sched_act(d->s, ACT_FREE, d->weights, 0, 0);
}

static void step(struct dp *d, enum sched_id id)
{
    int64_t bytes = d->params * dtype_bytes(d->r.kept);

    sched_begin(d->s, id);
    micro_step(d, true);
    if (d->p->accumulation > 1) {
        sched_repeat(d->s, d->p->accumulation - 1);
        micro_step(d, false);
        sched_repeat_end(d->s);
    }
    if (d->server) {
        if (d->p->clip > 0)
            clip_by_norm(d->s, bytes, GROUP_WORLD, 0);
        struct op *o = sched_op(d->s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, "AdamW");
        o->u.optimizer.elems = d->params;
        sched_act(d->s, id == SCHED_FIRST ? ACT_ALLOC : ACT_USE, d->optimizer, 0, 0);
        sched_act(d->s, ACT_ALLOC | ACT_FREE, d->foreach, 0, 0);
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
        sched_act(d->s, d->torch ? ACT_FREE : ACT_USE, d->grads, 0, 0);
    }
    read_loss(d->s);
    sched_end(d->s, id);
}

static int64_t rounded(const struct dp *d, int64_t bytes_per)
{
    int64_t sum = 0;

    for (int i = 0; i < d->p->model.ntensors; i++) {
        int64_t b = d->p->model.tensors[i].numel * bytes_per;
        sum += d->torch ? round512(b) : b;
    }
    return sum;
}

static void declare(struct dp *d)
{
    struct schedules *s = d->s;
    const struct plan *p = d->p;
    int64_t weights = rounded(d, dtype_bytes(d->r.kept));
    int64_t rows = p->dp.gather_logits && d->server ? p->micro_batch * p->seq * p->model.vocab * 4 : 0;
    bool own = d->server;

    d->weights = sched_buf(s, own ? CAT_PARAMS : CAT_UNSHARDED, own ? "params" : "replica", NULL, 0, 1, weights);
    d->grads = sched_buf(s, CAT_GRADS, "grads", NULL, 0, 1, weights);
    /* The server of the paper adds its own gradients where they lie and the
     * others' from one staging buffer; torch reduces all replicas' into new ones. */
    d->replica_grads = d->torch || !own
                     ? sched_buf(s, CAT_UNSHARDED_GRADS, "replica's grads", NULL, 0, 1, weights) : d->grads;
    d->staging = sched_buf(s, CAT_BUCKET, d->torch ? "coalescing buffer" : "incoming grads", NULL, 0, 1,
                           d->n == 1 ? 0 : d->torch && weights > COALESCE ? COALESCE : weights);
    d->optimizer = sched_buf(s, CAT_OPTIMIZER, "optimizer states", NULL, 0, 1,
                             d->torch ? 2 * rounded(d, 4) : d->params * d->r.optimizer);
    d->foreach = sched_buf(s, CAT_TEMPORARIES, "foreach temporaries", NULL, 0, 1, d->torch ? rounded(d, 4) : 0);
    d->outputs = sched_buf(s, CAT_TEMPORARIES, "gathered outputs", NULL, 0, 1, own && d->n > 1
                           ? (p->dp.gather_logits ? d->n * rows : round512(4 * d->n)) : 0);
    /* The loss of the other ranks' samples: log-softmax and its gradient. */
    d->loss = sched_buf(s, CAT_TEMPORARIES, "loss of the gathered batch", NULL, 0, 1, 2 * (d->n - 1) * rows);
    declare_activations(s, p, d->acts);
}

int lower_dp(const struct plan *p, int64_t rank, struct schedules *s)
{
    struct dp d = { .p = p, .s = s, .r = plan_recipe(p), .server = rank == 0,
                    .torch = p->dialect == DIALECT_TORCH, .n = p->cluster.world_size,
                    .params = p->model.params };

    s->star = !d.torch;
    declare(&d);
    sched_begin(s, SCHED_INIT);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model");
    if (d.server)
        sched_act(s, ACT_ALLOC, d.weights, 0, 0);
    if (!d.torch)
        sched_act(s, ACT_ALLOC, d.replica_grads, 0, 0);
    sched_end(s, SCHED_INIT);
    step(&d, SCHED_FIRST);
    step(&d, SCHED_STEADY);
    return 0;
}
