/* lower_ds_pipeline.c -- a stage of DeepSpeed's PipelineEngine, around the passes of stage 0, stage 1 and BF16_Optimizer.
 *
 * Source: deepspeed/runtime/pipe/engine.py and module.py of 0.19.6 and 0.19.8; the names below are its own.
 * One buffer of a boundary tensor's size is made at the first message that comes, and kept: activations and gradients are both received
 * there (_allocate_or_extend_buffers(0, ...)).  Activations are cloned out of it (`recvd`, a leaf, until its gradient was sent) and cloned
 * again by _exec_forward_pass(), whose variable holds that until it returns, and autograd longer if the first block saves its input.
 * A stage's output stays until its backward is done.  The last stage's, the logits, stay until a later micro-step of the same pipe buffer
 * has its own, and with them their graph, whose leaf is `recvd` with its .grad; self.loss holds the last graph too. */
#include "model/framework/deepspeed/lower_ds.h"

/* TENSOR_META_SIZE; TrainSchedule.num_pipe_buffers() of the last stage. */
enum { META = 256, LAST_BUFFERS = 2 };

static const struct pipeline *pipe_of(const struct ds *d) { return &d->walk.ports.pipe; }

static int passed(const struct ds *d, enum pipeline_verb v) { return (int)stage_ports_passed(&d->walk.ports, v, 0); }

static bool is_stage(const struct ds *d) { return walk_is_stage(&d->walk); }

static bool is_last(const struct ds *d)  { return pipe_of(d)->rank == pipe_of(d)->ranks - 1; }
static bool is_first(const struct ds *d) { return pipe_of(d)->rank == 0; }

static bool is_first_step(const struct ds *d) { return d->walk.step == SCHED_FIRST; }

void ds_pipe_declare(struct ds *d)
{
    struct schedules *s = d->s;
    int64_t boundary = round_up(s->program.boundary, 512), logits = d->p->micro_batch * d->p->seq * d->m->vocab * d->e;

    if (!is_stage(d))
        return;
    d->pipe.exchange = sched_buf(s, CAT_BUCKET, "receive buffer", NULL, 0, 1, boundary);
    d->pipe.inputs = sched_buf(s, CAT_BUCKET, "stage's input", "micro-step", 0, (int)d->p->accumulation, boundary);
    d->pipe.frame = sched_buf(s, CAT_BUCKET, "clone that forward holds", NULL, 0, 1, boundary);
    d->pipe.outputs = sched_buf(s, CAT_BUCKET, "output that is kept", "pipe buffer", 0, LAST_BUFFERS, round_up(logits, 512));
    d->pipe.graphs = sched_buf(s, CAT_BUCKET, "input and gradient of its graph", "pipe buffer", 0, LAST_BUFFERS, 2 * boundary);
    d->pipe.slot = -1;
}

/* Whether blocks keep their input for backward: then one of theirs frees what another piece made in forward. */
static bool saves_input(const struct ds *d)
{
    const struct piece *p = &d->s->program.piece[ds_piece(d, 0)];

    for (int i = 0; i < p->nkernels[PASS_BACKWARD]; i++)
        for (int j = 0; j < p->kernels[PASS_BACKWARD][i].nmoves; j++) {
            const struct move *m = &p->moves[PASS_BACKWARD][p->kernels[PASS_BACKWARD][i].move0 + j];
            if (m->kind == MOVE_FREE_OTHERS && m->pass == PASS_FORWARD && m->bytes == d->s->program.boundary)
                return true;
        }
    return false;
}

bool ds_is_shared(const struct ds *d, int tensor)
{
    return is_stage(d) && d->local->partial && d->local->partial[tensor] & MESH_AXIS(AXIS_PIPE) && !d->m->tensors[tensor].frozen;
}

/* ---- construction ---- */

/* _synchronize_tied_weights(), while the model is as it was made. */
void ds_pipe_construct(const struct ds *d)
{
    for (int t = 0; t < d->m->ntensors; t++)
        if (ds_is_shared(d, t)) {
            sched_coll(d->s, STREAM_COMPUTE, PHASE_INIT, COLL_BROADCAST, GROUP_TIED, DT_FP32, RED_NONE, d->m->tensors[t].numel);
            sched_root(d->s, 0);
            sched_moves(d->s, OF_META);
        }
}

static void message(const struct ds *d, enum phase ph, const struct pipeline *pipe, bool sends, int peer, enum dtype dt, int64_t elems)
{
    int lower = peer < pipe->rank ? peer : pipe->rank;

    sched_message(d->s, peer > pipe->rank ? STREAM_NEXT : STREAM_PREVIOUS, ph, sends ? COLL_SEND : COLL_RECV, GROUP_PIPE, peer,
                  2 * pipe->ranks + lower, dt, elems)->after = AFTER(STREAM_COMPUTE);
    sched_moves(d->s, OF_META);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, ph, sends ? "await send" : "await receive")->after =
        AFTER(peer > pipe->rank ? STREAM_NEXT : STREAM_PREVIOUS);
}

/* PipelineEngine.__init__: parameters are counted, neighbours exchange a number. */
void ds_pipe_greet(const struct ds *d)
{
    struct pipeline pipe = stage_pipeline(d->p, d->local->rank);
    int up = pipe.rank + 1 < pipe.ranks ? pipe.rank + 1 : -1, down = pipe.rank - 1;

    if (!is_stage(d))
        return;
    sched_coll(d->s, STREAM_COMPUTE, PHASE_INIT, COLL_ALL_REDUCE, GROUP_PIPE, DT_INT64, RED_SUM, 2);
    sched_moves(d->s, OF_META);
    if (pipe.rank % 2 == 0 && up >= 0)
        message(d, PHASE_INIT, &pipe, true, up, DT_FP32, 1);
    if (down >= 0)
        message(d, PHASE_INIT, &pipe, false, down, DT_FP32, 1);
    if (pipe.rank % 2 == 1 && up >= 0)
        message(d, PHASE_INIT, &pipe, true, up, DT_FP32, 1);
}

/* ---- a step ---- */

void ds_pipe_begin(struct ds *d)
{
    d->pipe.met[0] = d->pipe.met[1] = false;
    if (is_stage(d) && is_first_step(d))
        ds_memory(d, PHASE_FORWARD, "receive buffer", ACT_ALLOC, d->pipe.exchange);
}

/* Before the first activations that are sent, or received. */
static void exchange_shapes(struct ds *d, const struct pipeline_act *a)
{
    bool sends = a->verb == PIPE_SEND_F;

    if (!is_first_step(d) || (a->verb != PIPE_SEND_F && a->verb != PIPE_RECV_F) || d->pipe.met[sends])
        return;
    d->pipe.met[sends] = true;
    message(d, PHASE_FORWARD, pipe_of(d), sends, pipe_of(d)->rank + (sends ? 1 : -1), DT_INT32, META);
    if (!sends)
        sched_op(d->s, OP_WAIT, STREAM_ISSUE, PHASE_FORWARD, "read the shape")->after = AFTER(STREAM_COMPUTE);
}

static void clone(const struct ds *d, const char *what)
{
    sched_copy(d->s, STREAM_COMPUTE, PHASE_FORWARD, what, d->s->program.boundary, d->s->program.boundary);
    sched_does(d->s, COPY_NOTHING, 1);
}

/* What is received stands for the buffer that it lies in. */
void ds_pipe_pre_act(void *ds, const struct pipeline_act *a)
{
    struct ds *d = ds;

    exchange_shapes(d, a);
    if (a->verb == PIPE_RECV_B)
        ds_memory(d, PHASE_BACKWARD, "into the receive buffer", ACT_FREE, d->pipe.exchange);
}

void ds_pipe_act(void *ds, const struct pipeline_act *a)
{
    struct ds *d = ds;

    if (a->verb == PIPE_WAIT_RECV_F)
        clone(d, "clone what was received");
    if (a->verb != PIPE_WAIT_SEND_B)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "drop the stage's input");
    sched_act(d->s, ACT_FREE, d->pipe.inputs, a->step, 0);
    if (!is_last(d))
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "its graph keeps the input");
    sched_act(d->s, ACT_ALLOC, d->pipe.graphs, a->step % LAST_BUFFERS, 0);
}

bool ds_pipe_returns(const struct ds *d) { return is_stage(d) && !d->local->share.heads; }

static void drop_graph(const struct ds *d)
{
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "drop the graph before");
    sched_act(d->s, ACT_FREE, d->pipe.graphs, d->pipe.slot, 0);
}

/* The logits are there, the loss is not. */
void ds_pipe_before(const struct ds *d, const struct walk_run *r)
{
    if (!is_stage(d) || !r->forward || r->piece != PIECE_HEAD || d->pipe.slot < 0)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "drop the output before");
    sched_act(d->s, ACT_FREE, d->pipe.outputs, d->pipe.slot, 0);
    if (!d->pipe.keeps_graph)
        drop_graph(d);
}

/* What took the gradient that came does not free it: it is the receive buffer. */
static void gradient_stays(const struct ds *d)
{
    if (ds_pipe_returns(d))
        ds_memory(d, PHASE_BACKWARD, "receive buffer stays", ACT_ALLOC, d->pipe.exchange);
}

void ds_pipe_after(const struct ds *d, const struct walk_run *r)
{
    if (!r->forward && piece_is_block(r->piece) && r->block == d->layers - 1)
        gradient_stays(d);
}

/* Of a stage that has the embedding alone. */
void ds_pipe_end_of_backward(const struct ds *d)
{
    if (d->layers == 0)
        gradient_stays(d);
}

/* Which output of a pipe buffer the next one follows; self.loss is the last micro-step's. */
static void find_output(struct ds *d)
{
    struct ds_pipe *p = &d->pipe;
    int steps = pipe_of(d)->steps, slots = steps < LAST_BUFFERS ? steps : LAST_BUFFERS, forwards = passed(d, PIPE_FORWARD);
    bool any = is_last(d) && (!is_first_step(d) || forwards >= slots);

    p->slot = any ? forwards % LAST_BUFFERS : -1;
    p->keeps_graph = forwards == 0 && (steps - 1) % LAST_BUFFERS == 0;
}

static bool holds(const struct ds *d) { return !is_first(d) && !saves_input(d); }

void ds_pipe_begin_pass(struct ds *d)
{
    if (!is_stage(d) || !d->walk.forward)
        return;
    if (!is_first(d)) {
        clone(d, "clone the input");
        sched_act(d->s, ACT_ALLOC, d->pipe.inputs, d->walk.kept_ends, 0);
    }
    if (holds(d))
        sched_act(d->s, ACT_ALLOC, d->pipe.frame, 0, 0);
    find_output(d);
}

static void keep_output(const struct ds *d)
{
    if (d->pipe.slot >= 0 && d->pipe.keeps_graph)
        drop_graph(d);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "keep the output");
    sched_act(d->s, ACT_ALLOC, d->pipe.outputs, passed(d, PIPE_FORWARD) % LAST_BUFFERS, 0);
}

void ds_pipe_end_of_pass(void *ds)
{
    const struct ds *d = ds;

    if (!d->walk.forward)
        return;
    if (is_last(d))
        keep_output(d);
    if (holds(d))
        ds_memory(d, PHASE_FORWARD, "forward returns", ACT_FREE, d->pipe.frame);
}

void ds_pipe_sum_tied(const struct ds *d, int tensor, enum dtype dt)
{
    sched_coll(d->s, STREAM_COMPUTE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TIED, dt, RED_SUM, d->m->tensors[tensor].numel);
}

/* _aggregate_total_loss(). */
void ds_pipe_tell_loss(const struct ds *d)
{
    struct pipeline pipe = stage_pipeline(d->p, d->local->rank);

    if (!is_stage(d))
        return;
    if (d->local->share.heads && d->n > 1) {
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1);
        sched_moves(d->s, OF_META);
    }
    sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_BROADCAST, GROUP_PIPE, DT_FP32, RED_NONE, 2);
    sched_root(d->s, pipe.ranks - 1);
    sched_moves(d->s, OF_META);
}
