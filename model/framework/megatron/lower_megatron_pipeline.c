/* lower_megatron_pipeline.c -- a stage of Megatron-LM's pipelines.
 *
 * Source: megatron/core/pipeline_parallel/schedules.py (megatron-core 0.16.1), and Megatron-LM's training/training.py, which sets
 * grad_sync_func and, for an interleaved pipeline, param_sync_func (align_grad_reduce, align_param_gather, their defaults).
 * Every batch of messages ends with torch.cuda.synchronize() (batch_p2p_sync).  With overlap_grad_reduce the first of several stages
 * reduces by hooks in its last backward, the others after theirs; of an interleaved pipeline a chunk is reduced by all ranks at
 * the same time, so many turns after its last backward as the rank's number.  With defer_embedding_wgrad_compute the last stage keeps what the
 * output layer read and its output's gradient, of the first wgrad_deferral_limit micro-steps, and multiplies them behind the last backward
 * (finish_embedding_wgrad_compute()). */
#include "model/framework/megatron/lower_megatron.h"

static const struct pipeline *pipe_of(const struct mega *z) { return &z->walk.ports.pipe; }

static bool interleaved(const struct mega *z) { return pipe_of(z)->chunks > 1; }

static bool overlaps(const struct mega *z) { return z->p->parallel.virtual_stages > 1 && z->p->megatron.overlap_p2p_comm; }

static int passed(const struct mega *z, enum pipeline_verb v)
{
    int64_t n = 0;

    for (int c = 0; c < pipe_of(z)->chunks; c++)
        n += stage_ports_passed(&z->walk.ports, v, c);
    return (int)n;
}

static void reduce_chunk(struct mega *z, int chunk)
{
    for (int b = 0; b < z->chunk[chunk].nbuckets; b++)
        if (!z->chunk[chunk].reducing[b])
            megatron_reduce(z, &z->chunk[chunk], b);
    z->chunk[chunk].called = true;
}

static void gather_chunk(struct mega *z, int chunk)
{
    for (int b = 0; b < z->chunk[chunk].nbuckets; b++)
        if (!z->chunk[chunk].gathering[b])
            megatron_gather(z, &z->chunk[chunk], b, PHASE_FORWARD);
}

void megatron_begin_stage(struct mega *z)
{
    z->walk.stage.code = overlaps(z) ? PIPE_MEGATRON_OVERLAPS : PIPE_MEGATRON;
    z->gathers = z->chunk[0].waits;
    for (int c = 0; c < 2 && c < z->nchunks && z->nchunks > 1 && z->gathers; c++)
        gather_chunk(z, c);
}

void megatron_begin_stage_pass(struct mega *z)
{
    const struct pipeline *pipe = pipe_of(z);

    z->walk.defers = !z->walk.forward && passed(z, PIPE_BACKWARD) < z->deferred;
    megatron_begin_pass(z, !interleaved(z) && z->hooks && pipe->rank == 0 && z->walk.kept_ends == pipe->steps - 1);
}

/* Before a forward of an interleaved pipeline: the gather of the chunk after the next, by all ranks at once. */
void megatron_pre_forward(void *mega, struct at root)
{
    struct mega *z = mega;
    const struct pipeline *pipe = pipe_of(z);

    (void)root;
    if (!walk_is_stage(&z->walk) || !interleaved(z) || !z->gathers)
        return;
    int k = passed(z, PIPE_FORWARD) + pipe->rank, turns = pipe->steps * pipe->chunks;
    struct turn t = pipeline_turn(pipe, k < turns ? k : 0, false);
    if (k < turns && t.step == 0 && t.chunk + 1 > 1 && t.chunk + 1 < pipe->chunks)
        gather_chunk(z, t.chunk + 1);
}

/* After a backward of one. */
void megatron_post_backward(void *mega, struct at root)
{
    struct mega *z = mega;
    const struct pipeline *pipe = pipe_of(z);

    (void)root;
    if (!walk_is_stage(&z->walk) || !interleaved(z) || !z->p->megatron.overlap_grad_reduce)
        return;
    int k = passed(z, PIPE_BACKWARD) - pipe->rank;
    struct turn t = pipeline_turn(pipe, k < 0 ? 0 : k, true);
    if (k >= 0 && t.step == pipe->steps - 1)
        reduce_chunk(z, t.chunk);
}

void megatron_stage_act(void *mega, const struct pipeline_act *a)
{
    struct mega *z = mega;
    bool backward = a->verb == PIPE_WAIT_SEND_B || a->verb == PIPE_WAIT_RECV_B, waits = a->verb >= PIPE_WAIT_SEND_F && a->verb <= PIPE_WAIT_RECV_B;

    if (overlaps(z) || !waits || a->with)
        return;
    sched_op(z->s, OP_WAIT, STREAM_ISSUE, backward ? PHASE_BACKWARD : PHASE_FORWARD, "torch.cuda.synchronize")->after =
        (uint16_t)~AFTER(STREAM_ISSUE) & ((1u << NSTREAM) - 1);
}

/* What is left: of an interleaved pipeline by chunk; of the others but the first rank, which has hooks once it has counted. */
void megatron_end_of_stage(void *mega)
{
    struct mega *z = mega;

    for (int c = 0; c < z->nchunks; c++)
        if (z->p->megatron.overlap_grad_reduce && (z->nchunks > 1 || pipe_of(z)->rank > 0))
            reduce_chunk(z, c);
}

/* ---- the output layer's weight gradients ---- */

static const struct kernel *deferred_product(const struct mega *z)
{
    const struct piece *p = &z->s->program.piece[PIECE_HEAD_SPLIT];

    return &p->kernels[PASS_BACKWARD][p->split];
}

void megatron_declare_deferred(struct mega *z)
{
    int64_t limit = z->p->megatron.wgrad_deferral_limit, steps = z->p->accumulation;
    bool heads = z->chunk[z->nchunks - 1].heads;

    z->held = -1;
    if (!z->p->megatron.defer_embedding_wgrad_compute || !heads)
        return;
    const struct kernel *k = deferred_product(z);
    int64_t e = dtype_bytes(z->r.used), input = round512(k->m * k->k * e), gradient = round512(k->k * k->n * e);
    z->deferred = limit > 0 && limit < steps ? limit : steps;
    z->held = sched_buf(z->s, CAT_BUCKET, "deferred operands of the head", "micro-step", 0, (int)z->deferred, input + gradient);
    sched_part(z->s, z->held, input);
    sched_part(z->s, z->held, gradient);
}

void megatron_hold(struct mega *z, const struct walk_run *r)
{
    if (r->forward || r->piece != PIECE_HEAD || !z->walk.defers)
        return;
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "keep the logits' gradient");
    sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->held, z->walk.kept_ends, 0);
}

void megatron_drain(struct mega *z)
{
    int split = z->s->program.piece[PIECE_HEAD_SPLIT].split;

    if (z->held < 0)
        return;
    sched_repeat(z->s, z->deferred);
    sched_compute(z->s, PHASE_BACKWARD, PIECE_HEAD_SPLIT, PASS_BACKWARD, split, split + 1, GRADS_IN_PLACE, CAT_GRADS);
    sched_of(z->s, "head", 0, 0);
    sched_act(z->s, ACT_R | ACT_FREE, z->held, 0, 1);
    sched_act(z->s, ACT_A, z->chunk[z->nchunks - 1].grads, 0, 0);
    sched_repeat_end(z->s);
}
