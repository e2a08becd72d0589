/* stage_ports.c -- see stage_ports.h. */
#include "model/lower/common/stage_ports.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/plan/loss_check.h"
#include "model/plan/recorded_check.h"
#include "model/schedule/schedule_fold.h"

/* Iterations of acts that may have to be taken together until their entries repeat: DeepSpeed's last stage takes two buffers in turn. */
enum { STRIDES = 2 };

struct pipeline stage_pipeline(const struct plan *p, int64_t rank)
{
    struct mesh m = plan_mesh(p);

    return (struct pipeline){ p->parallel.pipeline_schedule, (int)m.size[AXIS_PIPE], (int)mesh_digit(&m, rank, AXIS_PIPE),
                              m.size[AXIS_PIPE] > 1 ? (int)p->parallel.virtual_stages : 1, (int)plan_flush_steps(p),
                              (int)p->megatron.microbatch_group_size_per_vp_stage };
}

/* The stage of the model that is a chunk of this rank. */
static int stage_of(const struct stage_ports *o, int chunk) { return pipeline_stage(&o->pipe, o->pipe.rank, chunk); }

static int last_stage(const struct stage_ports *o) { return o->pipe.ranks * o->pipe.chunks - 1; }

bool stage_ports_embeds(const struct stage_ports *o, int chunk) { return stage_of(o, chunk) == 0; }
bool stage_ports_heads(const struct stage_ports *o, int chunk)  { return stage_of(o, chunk) == last_stage(o); }

int stage_ports_block0(const struct stage_ports *o, int chunk)
{
    int64_t n = 0;

    for (int c = 0; c < chunk; c++)
        n += o->local->share.chunk[c].blocks;
    return (int)n;
}

int stage_ports_block1(const struct stage_ports *o, int chunk) { return stage_ports_block0(o, chunk + 1); }

/* Positions of a rank: its context-parallel share and, where norms run on a share of them, of its tensor-parallel ranks. */
static int64_t boundary_elems(const struct local_model *local, const struct schedules *s)
{
    const struct plan *p = local->plan;
    int64_t positions = p->seq / p->parallel.context;

    if (p->model.recorded)
        return s->program.boundary / dtype_bytes(recorded_hands(p));
    return p->micro_batch * (local->share.sequence ? positions / local->share.tensor_ranks : positions) * p->model.hidden;
}

void stage_memory_declare(struct stage_memory *m, const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct pipeline pipe = stage_pipeline(p, local->rank);
    bool old = p->dialect == DIALECT_TORCH && plan_version(p) < 2015;
    int64_t logits = p->micro_batch * plan_rank_seq(p) * (loss_cuts_logits(p) ? local->model : local->whole)->vocab * dtype_bytes(plan_recipe(p).used);
    int64_t boundary = round_up(s->program.boundary, 512);

    *m = (struct stage_memory){ -1, -1, -1, -1 };
    int receives = old ? pipe.chunks - local->share.embeds : 0, returns = old ? pipe.chunks - local->share.heads : 0;
    if (receives > 0)
        m->received = sched_buf(s, CAT_BUCKET, "receive buffer", "micro-step", 0, receives * pipe.steps, boundary);
    if (returns > 0)
        m->gradients = sched_buf(s, CAT_BUCKET, "receive buffer of gradients", "micro-step", 0, returns * pipe.steps, boundary);
    if (local->share.heads && (old || p->logits_kept != LOGITS_DROPPED)) {
        m->outputs = sched_buf(s, CAT_BUCKET, "output that is kept", "micro-step", 0, pipe.steps, round_up(logits, 512));
        m->merged = sched_buf(s, CAT_BUCKET, "merged outputs", NULL, 0, 1, round_up(pipe.steps * logits, 512));
    }
}

/* All instances of a family, where there is one. */
static void all_of(struct stage_ports *o, int what, int family, const char *why)
{
    if (family < 0)
        return;
    sched_op(o->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, why);
    sched_act_all(o->s, what, family);
}

/* One of m for each chunk that has any: the first one of a rank that embeds receives nothing, and no gradients come for the last. */
static void one_of(struct stage_ports *o, int what, int family, const struct pipeline_act *a, const char *why)
{
    int before = family == o->memory.received ? a->chunk - o->local->share.embeds : family == o->memory.gradients ? a->chunk : 0;

    if (family < 0 || before < 0 || (family == o->memory.gradients && stage_ports_heads(o, a->chunk)))
        return;
    sched_op(o->s, OP_MEMORY, STREAM_COMPUTE, a->verb == PIPE_BACKWARD ? PHASE_BACKWARD : PHASE_FORWARD, why);
    sched_act(o->s, what, family, before * o->pipe.steps + a->step, 0);
}

int stage_ports_open(struct stage_ports *o, const struct local_model *local, struct schedules *s, enum pipeline_code code,
                     const struct stage_memory *m, bool first, bool keeps)
{
    const struct plan *p = local->plan;

    *o = (struct stage_ports){ .local = local, .s = s, .pipe = stage_pipeline(p, local->rank), .keeps = keeps,
                               .elems = boundary_elems(local, s), .memory = *m, .acts = o->acts };
    o->batches = code == PIPE_MEGATRON || code == PIPE_LOCK_STEP_29;
    o->both_ways = code == PIPE_MEGATRON_OVERLAPS;
    o->dtype = p->model.recorded ? recorded_hands(p) : s->program.boundary == o->elems * dtype_bytes(DT_FP32) ? DT_FP32 : plan_recipe(p).used;
    if (o->acts.acts.n == 0)
        (s->folds ? pipeline_folded : pipeline_unfolded)(&o->pipe, code, &o->acts);
    o->event = room_new((size_t)(PIPE_WAYS * o->pipe.chunks), sizeof *o->event);
    o->passed = room_new((size_t)(NPIPE_VERB * o->pipe.chunks), sizeof *o->passed);
    if (first) {
        all_of(o, ACT_ALLOC, m->received, "receive buffers");
        all_of(o, ACT_ALLOC, m->gradients, "receive buffers");
    } else {
        all_of(o, ACT_FREE, m->outputs, "clear_runtime_states");
    }
    return 0;
}

void stage_ports_close(struct stage_ports *o)
{
    free(o->event);
    free(o->passed);
    sched_in_flight(o->s, 0, 0);
}

void stage_ports_free(struct stage_ports *o) { pipeline_fold_free(&o->acts); }

/* ---- the first step ---- */

static void meta(struct stage_ports *o, enum red_op red)
{
    sched_coll(o->s, STREAM_GROUP, PHASE_FORWARD, COLL_ALL_REDUCE, GROUP_PIPE, DT_INT32, red, 1);
    sched_moves(o->s, OF_META);
}

/* By pair of ranks, whether they hold neighbouring stages. */
static bool *neighbours(const struct stage_ports *o)
{
    int n = o->pipe.ranks;
    bool *are = room_new((size_t)(n * n), sizeof *are);

    for (int s = 0; s < last_stage(o); s++) {
        int a = pipeline_rank(&o->pipe, s), b = pipeline_rank(&o->pipe, s + 1);
        are[a * n + b] = are[b * n + a] = true;
    }
    return are;
}

static void greet(struct stage_ports *o, int a, int b)
{
    bool sends = o->pipe.rank == a;

    if (o->pipe.rank != a && o->pipe.rank != b)
        return;
    sched_message(o->s, STREAM_GROUP, PHASE_FORWARD, sends ? COLL_SEND : COLL_RECV, GROUP_PIPE, sends ? b : a,
                  2 * last_stage(o) + 2, DT_INT32, 1);
    sched_moves(o->s, OF_META);
}

/* Pairs in order of their ranks, each in the first round in which both are free. */
void stage_ports_connect(struct stage_ports *o)
{
    int n = o->pipe.ranks;
    bool *to_greet = neighbours(o), *busy = room_new((size_t)n, sizeof *busy), more = true;

    meta(o, RED_MIN);
    sched_op(o->s, OP_WAIT, STREAM_ISSUE, PHASE_FORWARD, "how shapes are inferred")->after = AFTER(STREAM_GROUP);
    for (;;) {
        memset(busy, 0, (size_t)n);
        more = false;
        for (int a = 0; a < n; a++)
            for (int b = a + 1; b < n; b++) {
                if (!to_greet[a * n + b] || busy[a] || busy[b])
                    continue;
                to_greet[a * n + b] = false;
                more = busy[a] = busy[b] = true;
                greet(o, a, b);
            }
        if (!more)
            break;
        meta(o, RED_SUM);
    }
    free(to_greet);
    free(busy);
}

/* ---- messages ---- */

/* The event of a message: the micro-step's of its direction and chunk. */
static uint16_t event_of(struct stage_ports *o, int verb, const struct pipeline_act *a)
{
    int way = verb - PIPE_SEND_F, n = o->acts.under_way[way];
    uint16_t *ring = &o->event[way * o->pipe.chunks + a->chunk];

    if (!*ring && !(*ring = sched_ring(o->s, n)))
        o->s->too_long = true;
    return *ring ? (uint16_t)(*ring + a->step % n) : 0;
}

/* The edge's kernels that allocate or free what is sent and received. */
static void edge(struct stage_ports *o, enum piece_id piece, enum pass pass, int k0, int k1, const struct pipeline_act *a)
{
    sched_compute(o->s, pass == PASS_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD, piece, pass, k0, k1, GRADS_DROP, CAT_GRADS);
    sched_of(o->s, "micro-step", a->step, 0);
}

static bool is_b(int verb) { return verb == PIPE_SEND_B || verb == PIPE_RECV_B; }

/* PyTorch has a communicator for each pair of ranks, with one stream (ProcessGroupNCCL's pointToPoint()).  What a batch
 * sends and receives begins together: its second direction is on the group's own stream.  Megatron-LM's batches have up to four
 * messages; its interleaved loop has two communicators of two ranks, one for what the first sends and one for what it receives
 * (p2p_communication.py, _p2p_ops()). */
static enum stream stream_of(const struct stage_ports *o, int verb, int peer, bool batch)
{
    static const enum stream each[] = { STREAM_NEXT, STREAM_PREVIOUS, STREAM_GROUP, STREAM_ALL_REDUCE };
    bool sends = verb == PIPE_SEND_F || verb == PIPE_SEND_B;

    if (o->batches)
        return each[verb - PIPE_SEND_F];
    if (o->both_ways && o->pipe.ranks == 2)
        return sends == (o->pipe.rank == 0) ? STREAM_NEXT : STREAM_PREVIOUS;
    if (batch && is_b(verb))
        return STREAM_GROUP;
    return peer == (o->pipe.rank + 1) % o->pipe.ranks ? STREAM_NEXT : STREAM_PREVIOUS;
}

static void message(struct stage_ports *o, const struct pipeline_act *a)
{
    bool sends = a->verb == PIPE_SEND_F || a->verb == PIPE_SEND_B, up = a->verb == PIPE_SEND_F || a->verb == PIPE_RECV_B;
    int stage = stage_of(o, a->chunk), other = up ? stage + 1 : stage - 1, peer = pipeline_rank(&o->pipe, other);
    bool batch = a->with || o->coalesced;
    struct op *m;

    if (a->verb == PIPE_RECV_F)         /* what is received stands for its buffer, where that is permanent */
        one_of(o, ACT_FREE, o->memory.received, a, "into its buffer");
    if (a->verb == PIPE_RECV_B)
        one_of(o, ACT_FREE, o->memory.gradients, a, "into its buffer");
    if (a->verb == PIPE_RECV_F)
        edge(o, PIECE_RECEIVED, PASS_FORWARD, EDGE_TENSORS, EDGE_REST, a);
    if (a->verb == PIPE_RECV_B)
        edge(o, PIECE_SENT, PASS_BACKWARD, EDGE_TENSORS, EDGE_REST, a);
    m = sched_message(o->s, stream_of(o, a->verb, peer, batch), is_b(a->verb) ? PHASE_BACKWARD : PHASE_FORWARD,
                      sends ? COLL_SEND : COLL_RECV, GROUP_PIPE, peer, 2 * (stage < other ? stage : other) + is_b(a->verb),
                      o->dtype, o->elems);
    m->after = AFTER(STREAM_COMPUTE);
    m->record = event_of(o, a->verb, a);
    sched_of(o->s, "micro-step", a->step, 0);
    if (is_b(a->verb))
        sched_moves_places(o->s, sends ? PIECE_RECEIVED : PIECE_SENT, SLOT_DX, SLOT_DX);
    else
        sched_moves_places(o->s, sends ? PIECE_SENT : PIECE_RECEIVED, sends ? SLOT_X : SLOT_Y, sends ? SLOT_X : SLOT_Y);
    o->coalesced = a->with;
}

static void await(struct stage_ports *o, const struct pipeline_act *a)
{
    static const char *const names[] = { "await send", "await receive", "await send", "await receive" };
    int of = a->verb - PIPE_WAIT_SEND_F + PIPE_SEND_F;

    sched_op(o->s, OP_MEMORY, STREAM_COMPUTE, is_b(of) ? PHASE_BACKWARD : PHASE_FORWARD, names[of - PIPE_SEND_F])->wait[0] =
        event_of(o, of, a);
    sched_of(o->s, "micro-step", a->step, 0);
    if (of == PIPE_SEND_F && !o->keeps)
        edge(o, PIECE_SENT, PASS_FORWARD, 0, -1, a);
    if (of == PIPE_SEND_B)
        edge(o, PIECE_RECEIVED, PASS_BACKWARD, 0, -1, a);
}

/* ---- acts in order ---- */

int64_t stage_ports_passed(const struct stage_ports *o, enum pipeline_verb v, int chunk) { return o->passed[(int)v * o->pipe.chunks + chunk]; }

static void pass_by(struct stage_ports *o, const struct pipeline_act *a, int64_t times) { o->passed[a->verb * o->pipe.chunks + a->chunk] += times; }

struct calls { void (*f)(void *arg, const struct pipeline_act *a); void *arg; };

/* Iteration k of a repeat; r NULL: the one act from `from` on. */
static void run_acts(struct stage_ports *o, const struct pipeline_repeat *r, int from, int k, const struct calls *c)
{
    for (int i = from; i < from + (r ? r->len : 1); i++) {
        struct pipeline_act a = r ? pipeline_fold_act(&o->acts, i, r, k) : o->acts.acts.act[i];
        c->f(c->arg, &a);
        pass_by(o, &a, 1);
    }
}

/* Iterations of which three times `stride` were appended last become a repeat, with all that are left but for what does not make a
 * whole stride: how many of these were not appended, 0 where they are not the same. */
static int fold(struct stage_ports *o, const struct pipeline_repeat *r, const int *begins, int k, int stride)
{
    int first = k - 3 * stride, n = (r->n - first) / stride;
    const int at[4] = { begins[first], begins[first + stride], begins[first + 2 * stride], o->s->nops };

    if (n < 4 || !schedule_fold(o->s, at, n, r->by * stride))
        return 0;
    for (int i = r->from; i < r->from + r->len; i++)
        pass_by(o, &o->acts.acts.act[i], (int64_t)(n - 3) * stride);
    struct pipeline_act last = pipeline_fold_act(&o->acts, r->from + r->len - 1, r, first + n * stride - 1);
    sched_in_flight(o->s, last.chunk, last.step);
    return (n - 3) * stride;
}

/* Each iteration by itself, until those before the next are the same. */
static void run_repeat(struct stage_ports *o, const struct pipeline_repeat *r, const struct calls *c)
{
    int *begins = room_new((size_t)r->n, sizeof *begins), left_out = 0;

    for (int k = 0; k < r->n && !o->s->too_long; ) {
        begins[k] = o->s->nops;
        o->s->too_long = o->s->nops > SCHED_MOST_OPS;
        run_acts(o, r, r->from, k++, c);
        for (int stride = 1; stride <= STRIDES && 3 * stride <= k && !left_out; stride++)
            k += left_out = fold(o, r, begins, k, stride);
    }
    free(begins);
}

void stage_ports_run(struct stage_ports *o, void (*f)(void *arg, const struct pipeline_act *a), void *arg)
{
    struct calls c = { f, arg };
    int next = 0;

    for (int i = 0; i < o->acts.acts.n && !o->s->too_long; ) {
        const struct pipeline_repeat *r = next < o->acts.nrepeats && o->acts.repeat[next].from == i ? &o->acts.repeat[next++] : NULL;
        if (r)
            run_repeat(o, r, &c);
        else
            run_acts(o, NULL, i, 0, &c);
        i += r ? r->len : 1;
    }
}

bool stage_ports_does(struct stage_ports *o, const struct pipeline_act *a)
{
    sched_in_flight(o->s, a->chunk, a->step);
    if (a->verb >= PIPE_SEND_F && a->verb <= PIPE_RECV_B)
        message(o, a);
    else if (a->verb >= PIPE_WAIT_SEND_F && a->verb <= PIPE_WAIT_RECV_B)
        await(o, a);
    else
        return false;
    return true;
}

/* ---- around a pass ---- */

/* Whether the neighbouring stage is this rank's too, a V's bottom: its tensor is handed over. */
static bool is_local(const struct stage_ports *o, int stage)
{
    return stage >= 0 && stage <= last_stage(o) && pipeline_rank(&o->pipe, stage) == o->pipe.rank;
}

bool stage_ports_idle(const struct stage_ports *o, const struct pipeline_act *a)
{
    return a->verb == PIPE_INPUT && stage_ports_embeds(o, a->chunk);
}

bool stage_ports_whole(const struct stage_ports *o, const struct pipeline_act *a)
{
    return a->verb == PIPE_BACKWARD || (a->verb == PIPE_WEIGHT && stage_ports_embeds(o, a->chunk));
}

/* What this rank's other stage left is this one's: it goes there, of the stage before or behind, and comes here. */
static void hand_over(struct stage_ports *o, enum piece_id from, enum piece_id to, enum pass pass, const struct pipeline_act *a)
{
    sched_in_flight(o->s, a->chunk + (pass == PASS_FORWARD ? -1 : 1), a->step);
    edge(o, from, pass, 0, -1, a);
    o->s->ops[o->s->nops - 1].flags |= OPF_LOCAL;
    sched_in_flight(o->s, a->chunk, a->step);
    edge(o, to, pass, EDGE_TENSORS, EDGE_REST, a);
    o->s->ops[o->s->nops - 1].flags |= OPF_LOCAL;
}

void stage_ports_begin(struct stage_ports *o, const struct pipeline_act *a)
{
    int stage = stage_of(o, a->chunk);

    if (a->verb == PIPE_FORWARD && stage > 0) {
        if (is_local(o, stage - 1))
            hand_over(o, PIECE_SENT, PIECE_RECEIVED, PASS_FORWARD, a);
        edge(o, PIECE_RECEIVED, PASS_FORWARD, EDGE_REST, -1, a);
    }
    if (!stage_ports_idle(o, a) && (stage_ports_whole(o, a) || a->verb == PIPE_INPUT) && stage < last_stage(o)) {
        if (is_local(o, stage + 1))
            hand_over(o, PIECE_RECEIVED, PIECE_SENT, PASS_BACKWARD, a);
        edge(o, PIECE_SENT, PASS_BACKWARD, EDGE_REST, -1, a);
    }
}

void stage_ports_end(struct stage_ports *o, const struct pipeline_act *a)
{
    int stage = stage_of(o, a->chunk);

    if (a->verb == PIPE_FORWARD && stage == last_stage(o))
        one_of(o, ACT_ALLOC, o->memory.outputs, a, "keep the output");
    if (a->verb == PIPE_BACKWARD) {
        one_of(o, ACT_ALLOC, o->memory.received, a, "its buffer again");
        one_of(o, ACT_ALLOC, o->memory.gradients, a, "its buffer again");
    }
    if (o->keeps && a->verb == PIPE_BACKWARD && stage < last_stage(o) && !is_local(o, stage + 1))
        edge(o, PIECE_SENT, PASS_FORWARD, 0, -1, a);
}

void stage_ports_finish(struct stage_ports *o)
{
    int64_t bytes;

    if (o->memory.merged < 0)
        return;
    bytes = o->s->bufs[o->memory.merged].bytes;
    sched_copy(o->s, STREAM_COMPUTE, PHASE_BACKWARD, "merge outputs", bytes, bytes);
    sched_act(o->s, ACT_ALLOC | ACT_FREE, o->memory.merged, 0, 0);
}
