/* lower_megatron_pipeline.c -- a stage of Megatron-LM's pipelines.
 *
 * Source: megatron/core/pipeline_parallel/schedules.py (megatron-core 0.16.1), and Megatron-LM's training/training.py, which sets
 * grad_sync_func and, for an interleaved pipeline, param_sync_func (align_grad_reduce, align_param_gather, their defaults).
 * Every batch of messages ends with torch.cuda.synchronize() (batch_p2p_sync).  With overlap_grad_reduce the first of several stages
 * reduces by hooks in its last backward, the others after theirs; of an interleaved pipeline a chunk is reduced by all ranks at
 * the same time, so many turns after its last backward as the rank's number. */
#include "model/lower/megatron/lower_megatron.h"

struct turns { struct mega *z; struct stage_ports ports; const struct pipeline *pipe; bool gathers, overlaps; };

static int passed(const struct turns *o, enum pipeline_verb v)
{
    int64_t n = 0;

    for (int c = 0; c < o->pipe->chunks; c++)
        n += stage_ports_passed(&o->ports, v, c);
    return (int)n;
}

static void synchronize(struct mega *z, enum phase phase)
{
    struct op *o = sched_op(z->s, OP_WAIT, STREAM_ISSUE, phase, "torch.cuda.synchronize");

    o->after = (uint16_t)~AFTER(STREAM_ISSUE) & ((1u << NSTREAM) - 1);
}

static void reduce_chunk(struct mega *z, int chunk)
{
    for (int b = 0; b < z->chunk[chunk].nbuckets; b++)
        if (!z->chunk[chunk].reducing[b])
            megatron_reduce(z, &z->chunk[chunk], b);
}

static void gather_chunk(struct mega *z, int chunk)
{
    for (int b = 0; b < z->chunk[chunk].nbuckets; b++)
        if (!z->chunk[chunk].gathering[b])
            megatron_gather(z, &z->chunk[chunk], b, PHASE_FORWARD);
}

static int turns_of(const struct turns *o) { return o->pipe->steps * o->pipe->chunks; }

/* Before a forward of an interleaved pipeline: the gather of the chunk after the next, by all ranks at once. */
static void gather_ahead(struct turns *o)
{
    int k = passed(o, PIPE_FORWARD) + o->pipe->rank;
    struct turn t = pipeline_turn(o->pipe, k < turns_of(o) ? k : 0, false);

    if (k < turns_of(o) && t.step == 0 && t.chunk + 1 > 1 && t.chunk + 1 < o->pipe->chunks)
        gather_chunk(o->z, t.chunk + 1);
}

/* After a backward. */
static void reduce_behind(struct turns *o)
{
    int k = passed(o, PIPE_BACKWARD) - o->pipe->rank;
    struct turn t = pipeline_turn(o->pipe, k < 0 ? 0 : k, true);

    if (k >= 0 && t.step == o->pipe->steps - 1)
        reduce_chunk(o->z, t.chunk);
}

static void pass(struct turns *o, const struct pipeline_act *a)
{
    struct mega *z = o->z;
    bool interleaved = o->pipe->chunks > 1, overlaps = z->p->megatron.overlap_grad_reduce;

    z->at = &z->chunk[a->chunk];
    z->kept_blocks = (int)z->m->layers * a->step;
    z->kept_ends = a->step;
    stage_ports_begin(&o->ports, a);
    if (a->verb == PIPE_FORWARD) {
        if (interleaved && o->gathers)
            gather_ahead(o);
        megatron_forward(z);
    } else {
        megatron_backward(z, !interleaved && z->hooks && o->pipe->rank == 0 && a->step == o->pipe->steps - 1);
        if (interleaved && overlaps)
            reduce_behind(o);
    }
    stage_ports_end(&o->ports, a);
}

static bool is_wait(const struct pipeline_act *a) { return a->verb >= PIPE_WAIT_SEND_F && a->verb <= PIPE_WAIT_RECV_B; }

static void act(void *turns, const struct pipeline_act *a)
{
    struct turns *o = turns;

    if (!stage_ports_does(&o->ports, a))
        pass(o, a);
    else if (!o->overlaps && is_wait(a) && !a->with)
        synchronize(o->z, a->verb == PIPE_WAIT_SEND_B || a->verb == PIPE_WAIT_RECV_B ? PHASE_BACKWARD : PHASE_FORWARD);
}

int megatron_pipeline(struct mega *z, bool first_step)
{
    struct stage_memory none = { -1, -1, -1, -1 };
    struct turns o = { .z = z, .pipe = &o.ports.pipe, .gathers = z->chunk[0].waits,
                       .overlaps = z->p->parallel.virtual_stages > 1 && z->p->megatron.overlap_p2p_comm };
    int rc = stage_ports_open(&o.ports, z->local, z->s, o.overlaps ? PIPE_MEGATRON_OVERLAPS : PIPE_MEGATRON, &none, first_step, false);

    for (int c = 0; rc == 0 && c < 2 && c < z->nchunks && z->nchunks > 1 && z->chunk[c].waits; c++)
        gather_chunk(z, c);
    if (rc == 0)
        stage_ports_run(&o.ports, act, &o);
    /* What is left: of an interleaved pipeline by chunk; of the others but the first rank, which has hooks once it has counted. */
    for (int c = 0; rc == 0 && c < z->nchunks; c++)
        if (z->p->megatron.overlap_grad_reduce && (z->nchunks > 1 || o.pipe->rank > 0))
            reduce_chunk(z, c);
    stage_ports_close(&o.ports);
    return rc;
}
