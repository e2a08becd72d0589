/* lower_ds_pipeline.c -- a stage of DeepSpeed's PipelineEngine, around the passes of stage 0, stage 1 and BF16_Optimizer.
 *
 * Source: deepspeed/runtime/pipe/engine.py and module.py of 0.19.6 and 0.19.8; the names below are its own.
 * One buffer of a boundary tensor's size is made at the first message that comes, and kept: activations and gradients are both received
 * there (_allocate_or_extend_buffers(0, ...)).  Activations are cloned out of it (`recvd`, a leaf, until its gradient was sent) and cloned
 * again by _exec_forward_pass(), whose variable holds that until it returns, and autograd longer if the first block saves its input.
 * A stage's output stays until its backward is done.  The last stage's, the logits, stay until a later micro-step of the same pipe buffer
 * has its own, and with them their graph, whose leaf is `recvd` with its .grad; self.loss holds the last graph too. */
#include "model/lower/common/stage_ports.h"
#include "model/lower/deepspeed/lower_ds.h"

#include "base/fail.h"

/* TENSOR_META_SIZE; TrainSchedule.num_pipe_buffers() of the last stage. */
enum { META = 256, LAST_BUFFERS = 2 };

struct stage {
    struct ds *d;
    struct stage_ports ports;
    bool first_step;
    bool met[2];                    /* a message's shape is known: activations; from the stage before */
    void (*pass)(void *arg, const struct micro *m);
    void *arg;
};

static int passed(const struct stage *o, enum pipeline_verb v) { return (int)stage_ports_passed(&o->ports, v, 0); }

static bool is_stage(const struct ds *d) { return d->p->parallel.pipeline > 1; }

static bool is_last(const struct stage *o)  { return o->ports.pipe.rank == o->ports.pipe.ranks - 1; }
static bool is_first(const struct stage *o) { return o->ports.pipe.rank == 0; }

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

/* Before the first activations that are sent, or received. */
static void exchange_shapes(struct stage *o, const struct pipeline_act *a)
{
    bool sends = a->verb == PIPE_SEND_F;

    if (!o->first_step || (a->verb != PIPE_SEND_F && a->verb != PIPE_RECV_F) || o->met[sends])
        return;
    o->met[sends] = true;
    message(o->d, PHASE_FORWARD, &o->ports.pipe, sends, o->ports.pipe.rank + (sends ? 1 : -1), DT_INT32, META);
    if (!sends)
        sched_op(o->d->s, OP_WAIT, STREAM_ISSUE, PHASE_FORWARD, "read the shape")->after = AFTER(STREAM_COMPUTE);
}

static void clone(struct stage *o, const char *what)
{
    sched_copy(o->d->s, STREAM_COMPUTE, PHASE_FORWARD, what, o->d->s->program.boundary, o->d->s->program.boundary);
    sched_does(o->d->s, COPY_NOTHING, 1);
}

/* What is received stands for the buffer that it lies in. */
static void before_message(struct stage *o, const struct pipeline_act *a)
{
    exchange_shapes(o, a);
    if (a->verb == PIPE_RECV_B)
        ds_memory(o->d, PHASE_BACKWARD, "into the receive buffer", ACT_FREE, o->d->pipe.exchange);
}

static void after_message(struct stage *o, const struct pipeline_act *a)
{
    const struct ds_pipe *p = &o->d->pipe;

    if (a->verb == PIPE_WAIT_RECV_F)
        clone(o, "clone what was received");
    if (a->verb != PIPE_WAIT_SEND_B)
        return;
    sched_op(o->d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "drop the stage's input");
    sched_act(o->d->s, ACT_FREE, p->inputs, a->step, 0);
    if (!is_last(o))
        return;
    sched_op(o->d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "its graph keeps the input");
    sched_act(o->d->s, ACT_ALLOC, p->graphs, a->step % LAST_BUFFERS, 0);
}

bool ds_pipe_returns(const struct ds *d) { return is_stage(d) && !d->local->share.heads; }

static void drop_graph(const struct ds *d)
{
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "drop the graph before");
    sched_act(d->s, ACT_FREE, d->pipe.graphs, d->pipe.slot, 0);
}

/* The logits are there, the loss is not. */
void ds_pipe_before(const struct ds *d, enum pass pass, enum piece_id piece)
{
    if (!is_stage(d) || pass != PASS_FORWARD || piece != PIECE_HEAD || d->pipe.slot < 0)
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

void ds_pipe_after(const struct ds *d, enum pass pass, enum piece_id piece, int block)
{
    if (pass == PASS_BACKWARD && piece_is_block(piece) && block == d->layers - 1)
        gradient_stays(d);
}

static void keep_output(struct stage *o)
{
    const struct ds *d = o->d;

    if (d->pipe.slot >= 0 && d->pipe.keeps_graph)
        drop_graph(d);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "keep the output");
    sched_act(d->s, ACT_ALLOC, d->pipe.outputs, passed(o, PIPE_FORWARD) % LAST_BUFFERS, 0);
}

/* Which output of a pipe buffer the next one follows; self.loss is the last micro-step's. */
static void find_output(struct stage *o)
{
    struct ds_pipe *p = &o->d->pipe;
    int slots = o->ports.pipe.steps < LAST_BUFFERS ? o->ports.pipe.steps : LAST_BUFFERS, forwards = passed(o, PIPE_FORWARD);
    bool any = is_last(o) && (!o->first_step || forwards >= slots);

    p->slot = any ? forwards % LAST_BUFFERS : -1;
    p->keeps_graph = forwards == 0 && (o->ports.pipe.steps - 1) % LAST_BUFFERS == 0;
}

static void one_forward(struct stage *o, const struct pipeline_act *a)
{
    struct ds *d = o->d;
    bool holds = !is_first(o) && !saves_input(d);

    if (!is_first(o)) {
        clone(o, "clone the input");
        sched_act(d->s, ACT_ALLOC, d->pipe.inputs, a->step, 0);
    }
    if (holds)
        sched_act(d->s, ACT_ALLOC, d->pipe.frame, 0, 0);
    find_output(o);
    stage_ports_begin(&o->ports, a);
    o->pass(o->arg, &(struct micro){ .pass = MICRO_FORWARD, .at = a->step });
    stage_ports_end(&o->ports, a);
    if (is_last(o))
        keep_output(o);
    if (holds)
        ds_memory(d, PHASE_FORWARD, "forward returns", ACT_FREE, d->pipe.frame);
}

static void one_backward(struct stage *o, const struct pipeline_act *a)
{
    int before = passed(o, PIPE_BACKWARD);

    stage_ports_begin(&o->ports, a);
    o->pass(o->arg, &(struct micro){ .pass = MICRO_BACKWARD, .at = a->step, .first = before == 0,
                                     .last = before == o->ports.pipe.steps - 1 });
    if (o->d->layers == 0)          /* the embedding alone */
        gradient_stays(o->d);
    stage_ports_end(&o->ports, a);
}

static void act(void *stage, const struct pipeline_act *a)
{
    struct stage *o = stage;

    before_message(o, a);
    if (stage_ports_does(&o->ports, a)) {
        after_message(o, a);
        return;
    }
    o->d->kept_blocks = o->d->layers * a->step;
    o->d->kept_ends = a->step;
    (a->verb == PIPE_FORWARD ? one_forward : one_backward)(o, a);
}

int ds_pipe_passes(struct ds *d, bool first_step, void (*pass)(void *arg, const struct micro *m), void *arg)
{
    struct stage_memory none = { -1, -1, -1, -1 };
    struct stage o = { .d = d, .first_step = first_step, .pass = pass, .arg = arg };
    int rc = stage_ports_open(&o.ports, d->local, d->s, PIPE_DEEPSPEED, &none, first_step, true);

    if (rc == 0 && first_step)
        ds_memory(d, PHASE_FORWARD, "receive buffer", ACT_ALLOC, d->pipe.exchange);
    if (rc == 0)
        stage_ports_run(&o.ports, act, &o);
    stage_ports_close(&o.ports);
    return rc;
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
