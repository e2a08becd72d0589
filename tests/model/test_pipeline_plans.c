/* Plans with a pipeline, every rank of them: schedules are sound, what one rank sends another receives, the stages together
 * are the model, and what FSDP2 gathers and reduces is counted. */
#include "tests/model/plans.h"

#include <inttypes.h>
#include <stdlib.h>

#include "model/lower/lower.h"
#include "model/plan/loss_check.h"
#include "model/schedule/ledger.h"

static const struct { enum strategy s; enum dialect d; enum dtype t; } cells[] = {
    { STRAT_FSDP, DIALECT_TORCH, DT_BF16 }, { STRAT_FSDP, DIALECT_TORCH, DT_FP32 }, { STRAT_DDP, DIALECT_TORCH, DT_FP32 },
    { STRAT_DDP, DIALECT_PAPER, DT_BF16 }, { STRAT_ZERO1, DIALECT_PAPER, DT_BF16 }, { STRAT_ZERO2, DIALECT_PAPER, DT_BF16 },
    { STRAT_ZERO3, DIALECT_PAPER, DT_FP32 }, { STRAT_FSDP, DIALECT_PAPER, DT_BF16 },
};
enum { NCELLS = sizeof cells / sizeof *cells };

static void piped(struct plan *p, int cell, int64_t layers, int pipe, enum pipeline_kind kind, int chunks, int steps, int data)
{
    plan_of(p, "llama-2-7b", layers, (int64_t)pipe * data, cells[cell].s, cells[cell].d, cells[cell].t);
    p->parallel.pipeline = pipe;
    p->parallel.pipeline_schedule = kind;
    p->parallel.virtual_stages = chunks;
    p->parallel.first_stage_less = p->parallel.last_stage_less = 0;
    p->accumulation = steps;
    p->sync_every_micro_step = false;
    p->shard_group = data;
    if (p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH)
        p->fsdp.reshard_after_forward = 0;
}

/* ---- messages ---- */

struct sent { int peer, tag, recv; int64_t elems; };
struct sents { struct sent of[4096]; int n; };

static int note(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sents *l = arg;

    (void)s, (void)iteration;
    if (o->kind == OP_COLL && coll_is_message((enum coll_op)o->u.coll.op)) {
        assert_true(l->n < 4096);
        l->of[l->n++] = (struct sent){ o->u.coll.peer, o->u.coll.tag, o->u.coll.op == COLL_RECV, o->u.coll.elems };
    }
    return 0;
}

/* The n-th message from a to b with a tag. */
static const struct sent *nth(const struct sents *l, int peer, int tag, int recv, int n)
{
    for (int i = 0; i < l->n; i++)
        if (l->of[i].peer == peer && l->of[i].tag == tag && l->of[i].recv == recv && n-- == 0)
            return &l->of[i];
    return NULL;
}

static void messages_match(const struct sents *all, int ranks)
{
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < all[r].n; i++) {
            const struct sent *m = &all[r].of[i], *other;
            int before = 0;
            for (int k = 0; k < i; k++)
                before += all[r].of[k].peer == m->peer && all[r].of[k].tag == m->tag && all[r].of[k].recv == m->recv;
            other = nth(&all[m->peer], r, m->tag, !m->recv, before);
            assert_non_null(other);
            assert_int_equal(other->elems, m->elems);
        }
}

static void sound(struct plan *p, const char *what)
{
    static struct sents all[8];
    struct schedules s = { 0 };
    char why[512];
    int64_t params = 0;

    if (plan_check(p, what) < 0)
        fail_msg("%s", what);
    for (int r = 0; r < p->parallel.pipeline; r++) {
        struct local_model local;
        int64_t rank = r * plan_data_ranks(p);
        assert_int_equal(lower(p, rank, &s), 0);
        if (!schedules_check(&s, why, sizeof why))
            fail_msg("%s, stage %d: %s", what, r, why);
        all[r].n = 0;
        sched_walk(&s, SCHED_STEADY, note, &all[r]);
        assert_int_equal(local_model_of(p, rank, &local), 0);
        params += local.model->params;
        local_model_free(&local);
    }
    messages_match(all, (int)p->parallel.pipeline);
    assert_int_equal(params, p->model.params);
    schedules_free(&s);
}

static void every_cell_and_schedule_is_sound(void **state)
{
    static const struct { enum pipeline_kind kind; int pipe, chunks, steps; } of[] = {
        { PIPELINE_GPIPE, 2, 1, 1 }, { PIPELINE_GPIPE, 4, 1, 4 }, { PIPELINE_1F1B, 2, 1, 5 }, { PIPELINE_1F1B, 4, 1, 8 },
        { PIPELINE_INTERLEAVED, 2, 2, 4 }, { PIPELINE_INTERLEAVED, 2, 3, 6 }, { PIPELINE_INTERLEAVED, 4, 2, 8 },
        { PIPELINE_ZB1P, 2, 1, 3 }, { PIPELINE_ZB1P, 4, 2, 8 }, { PIPELINE_ZBV, 2, 2, 2 }, { PIPELINE_ZBV, 4, 2, 8 },
        { PIPELINE_DUALPIPEV, 2, 2, 4 }, { PIPELINE_DUALPIPEV, 4, 2, 9 }, { PIPELINE_LOOPED_BFS, 2, 2, 3 }, { PIPELINE_LOOPED_BFS, 4, 2, 4 }, { PIPELINE_LOOPED_BFS, 2, 4, 3 },
    };
    static const int64_t data[] = { 1, 2 };
    (void)state;

    for (int c = 0; c < NCELLS; c++)
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            for (int k = 0; k < 4; k++) {
                struct plan p;
                char what[128];
                bool split = pipeline_splits(of[i].kind);
                if (cells[c].s == STRAT_DDP && cells[c].d == DIALECT_TORCH && (of[i].chunks > 1 || split))
                    continue;
                piped(&p, c, 8, of[i].pipe, of[i].kind, of[i].chunks, of[i].steps, (int)data[k & 1]);
                if (k & 2 && !split)
                    p.recompute = RECOMPUTE_FULL;
                p.clip = k & 1;
                snprintf(what, sizeof what, "%s/%s %s p %d v %d m %d data %d", strategy_name(p.strategy), dialect_name(p.dialect),
                         pipeline_name(of[i].kind), of[i].pipe, of[i].chunks, of[i].steps, (int)data[k & 1]);
                sound(&p, what);
                plan_free(&p);
            }
}

/* ---- counts ---- */

struct count { enum coll_op op; enum group group; int n; int64_t elems; };

static int add(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct count *c = arg;

    (void)iteration;
    if (o->kind == OP_COLL && o->u.coll.op == c->op && sched_group(s, o)->is == c->group) {
        c->n++;
        c->elems += o->u.coll.elems;
    }
    return 0;
}

static int counted(const struct plan *p, int64_t rank, enum coll_op op)
{
    struct count c = { op, GROUP_DATA, 0, 0 };
    struct schedules s = { 0 };

    assert_int_equal(lower(p, rank, &s), 0);
    sched_walk(&s, SCHED_STEADY, add, &c);
    schedules_free(&s);
    return c.n;
}

/* Vectors 51 and 52: 2 ranks, 4 micro-batches, 2 blocks a stage.  Kept after forward, each of 3 units (a root, two
 * blocks) is gathered once and reduced once.  Resharded, blocks are gathered at F0 F1 B0 B1 B2 on the first stage, which has
 * 2 micro-batches in flight, and at F0 B0 B1 B2 B3 on the last: with w in flight w forwards and the m - w + 1 backwards that
 * follow a forward find nothing, m + 1 in all; the root once. */
static void units_are_gathered_once_or_as_micro_steps_pass(void **state)
{
    (void)state;
    struct plan p;

    piped(&p, 0, 4, 2, PIPELINE_1F1B, 1, 4, 2);
    for (int stage = 0; stage < 2; stage++) {
        assert_int_equal(counted(&p, 2 * stage, COLL_ALL_GATHER), 3);
        assert_int_equal(counted(&p, 2 * stage, COLL_REDUCE_SCATTER), 3);
    }
    p.fsdp.reshard_after_forward = 1;
    assert_int_equal(counted(&p, 0, COLL_ALL_GATHER), 2 * 5 + 1);
    assert_int_equal(counted(&p, 2, COLL_ALL_GATHER), 2 * 5 + 1);
    assert_int_equal(counted(&p, 0, COLL_REDUCE_SCATTER), 3);
    plan_free(&p);
}

/* Every unit's collectives come once in each run of the schedule; what is sent is what as many micro-steps send. */
static void each_flush_gathers_and_reduces(void **state)
{
    static const struct { enum pipeline_kind kind; int chunks; } of[] = {
        { PIPELINE_GPIPE, 1 }, { PIPELINE_1F1B, 1 }, { PIPELINE_INTERLEAVED, 2 }, { PIPELINE_ZB1P, 2 }, { PIPELINE_ZBV, 2 }, { PIPELINE_LOOPED_BFS, 2 },
    };
    (void)state;

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int flushes = 1; flushes <= 3; flushes++) {
            struct plan p;
            piped(&p, 0, 8, 2, of[i].kind, of[i].chunks, 4 * flushes, 2);
            p.parallel.pipeline_flushes = flushes;
            sound(&p, "flushes");
            for (int stage = 0; stage < 2; stage++) {       /* 4 blocks and an end; a V's first rank has both ends, its second none */
                int units = of[i].kind == PIPELINE_ZBV ? stage ? 4 : 6 : 5;
                assert_int_equal(counted(&p, 2 * stage, COLL_ALL_GATHER), flushes * units);
                assert_int_equal(counted(&p, 2 * stage, COLL_REDUCE_SCATTER), flushes * units);
            }
            p.shard_group = 1;
            sound(&p, "flushes, DDP's");
            plan_free(&p);
        }
}

/* Reduced once: each unit is gathered and reduced once a step, however often the schedule runs. */
static void what_is_reduced_last_is_gathered_once(void **state)
{
    static const struct { enum pipeline_kind kind; int chunks; } of[] = { { PIPELINE_GPIPE, 1 }, { PIPELINE_1F1B, 1 }, { PIPELINE_INTERLEAVED, 2 } };
    (void)state;

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int flushes = 1; flushes <= 3; flushes++) {
            struct plan p;
            piped(&p, 0, 8, 2, of[i].kind, of[i].chunks, 4 * flushes, 2);
            p.parallel.pipeline_flushes = flushes;
            p.parallel.pipeline_reduce_last = true;
            sound(&p, "reduced last");
            for (int stage = 0; stage < 2; stage++) {
                assert_int_equal(counted(&p, 2 * stage, COLL_ALL_GATHER), 5);
                assert_int_equal(counted(&p, 2 * stage, COLL_REDUCE_SCATTER), 5);
            }
            p.shard_group = 1;
            sound(&p, "reduced last, DDP's");
            plan_free(&p);
        }
}

static int64_t peak_of(const struct plan *p, int64_t rank)
{
    struct schedules s = { 0 };
    struct ledger l;

    assert_int_equal(lower(p, rank, &s), 0);
    ledger_run(&s, &l);
    int64_t bytes = l.phase[SCHED_STEADY].bytes;
    schedules_free(&s);
    return bytes;
}

/* At the peak of the second run the sharded gradients of the first are there: 4 bytes of each parameter of a rank.  The first
 * stage has Llama 2 7B's table of 32000 x 4096 and four blocks of 4 x 4096 x 4096 + 3 x 4096 x 11008 + 2 x 4096, over two ranks. */
static void gradients_of_the_flush_before_are_there(void **state)
{
    struct plan p;
    (void)state;

    piped(&p, 0, 8, 2, PIPELINE_1F1B, 1, 4, 2);
    p.micro_batch = 4;
    int64_t once = peak_of(&p, 0), grads = (131072000 + 4 * 202383360LL) / 2 * 4;
    p.accumulation = 8;
    p.parallel.pipeline_flushes = 2;
    int64_t twice = peak_of(&p, 0);
    assert_true(llabs(twice - once - grads) <= 1 << 20);
    p.parallel.pipeline_reduce_last = true;     /* then there are none */
    assert_int_equal(peak_of(&p, 0), once);
    plan_free(&p);
}

/* Vector 40: a boundary tensor has (samples, positions, hidden) elements. */
static int boundary(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    const struct plan *p = arg;

    (void)s, (void)iteration;
    if (o->kind == OP_COLL && coll_is_message((enum coll_op)o->u.coll.op)) {
        assert_int_equal(o->u.coll.elems, p->micro_batch * p->seq * p->model.hidden);
        assert_int_equal(o->u.coll.dtype, DT_BF16);
    }
    return 0;
}

static void a_boundary_tensor_is_what_a_block_hands_on(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct plan p;

    piped(&p, 0, 4, 2, PIPELINE_1F1B, 1, 4, 1);
    p.micro_batch = 3;
    assert_int_equal(lower(&p, 0, &s), 0);
    sched_walk(&s, SCHED_STEADY, boundary, &p);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- memory ---- */

/* What is live of a category after each entry of a step, at most. */
struct kept { enum mem of; int64_t now, most; };

static int follow(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct kept *l = arg;
    int64_t net[NMEM];

    (void)iteration;
    if (o->kind != OP_COMPUTE)
        return 0;
    sched_inner(s, o, net);
    l->now += net[l->of];
    l->most = l->now > l->most ? l->now : l->most;
    return 0;
}

/* Activations of 1F1B, 4 ranks, 8 micro-steps: of a middle stage 3 micro-steps are in flight, of the one after it 2.  The
 * difference is what a micro-step keeps: what it received and its two blocks' activations, less its output, which is sent. */
static void activations_are_those_of_micro_steps_in_flight(void **state)
{
    (void)state;
    int64_t most[4];
    struct plan p;

    piped(&p, 0, 8, 4, PIPELINE_1F1B, 1, 8, 1);
    struct schedules s = { 0 };
    for (int r = 0; r < 4; r++) {
        struct kept l = { MEM_ACTIVATIONS, 0, 0 };
        assert_int_equal(lower(&p, r, &s), 0);
        sched_walk(&s, SCHED_STEADY, follow, &l);
        assert_int_equal(l.now, 0);
        most[r] = l.most;
    }
    int64_t one = s.program.piece[PIECE_RECEIVED].saved + 2 * s.program.piece[PIECE_BLOCK].saved - s.program.boundary;
    assert_int_equal(most[1] - most[2], one);
    schedules_free(&s);
    plan_free(&p);
}

/* Vectors 41 and 42: 2.9 keeps a receive buffer for each micro-step and direction, and the last stage every micro-step's
 * logits; 2.15 neither. */
static int64_t family_bytes(const struct schedules *s, const char *what)
{
    int64_t bytes = 0;

    for (int i = 0; i < s->nbufs; i++)
        if (!strcmp(s->bufs[i].what, what))
            bytes += s->bufs[i].count * s->bufs[i].bytes;
    return bytes;
}

/* 2.9 in lock step, ranks of two and three chunks: schedules are sound, messages match, and receive buffers are those of each chunk: m for
 * all but the model's first, and for gradients all but the last. */
static void in_lock_step_schedules_are_sound(void **state)
{
    static const struct { enum pipeline_kind kind; int pipe, chunks, steps; } of[] = {
        { PIPELINE_INTERLEAVED, 2, 2, 4 }, { PIPELINE_INTERLEAVED, 4, 2, 8 }, { PIPELINE_INTERLEAVED, 2, 3, 6 }, { PIPELINE_LOOPED_BFS, 2, 2, 3 },
    };

    (void)state;
    for (int cell = 0; cell < 3; cell++)
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            struct schedules s = { 0 };
            struct plan p;
            piped(&p, cell, 8, of[i].pipe, of[i].kind, of[i].chunks, of[i].steps, 2);
            strcpy(p.framework_version, "2.9");
            sound(&p, "lock step");
            assert_int_equal(lower(&p, 0, &s), 0);
            assert_int_equal(family_bytes(&s, "receive buffer"), (of[i].chunks - 1) * of[i].steps * s.program.boundary);
            assert_int_equal(family_bytes(&s, "receive buffer of gradients"), of[i].chunks * of[i].steps * s.program.boundary);
            schedules_free(&s);
            plan_free(&p);
        }
}

static void torch_2_9_keeps_receive_buffers_and_logits(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct plan p;
    int64_t boundary = 64 * 4096 * 2, logits = 64 * 32000 * 2;
    char why[512];

    piped(&p, 0, 6, 3, PIPELINE_1F1B, 1, 5, 1);
    for (int old = 0; old < 2; old++) {
        strcpy(p.framework_version, old ? "2.9" : "2.15");
        assert_int_equal(lower(&p, 1, &s), 0);
        assert_true(schedules_check(&s, why, sizeof why));
        assert_int_equal(family_bytes(&s, "receive buffer"), old * 5 * boundary);
        assert_int_equal(family_bytes(&s, "receive buffer of gradients"), old * 5 * boundary);
        assert_int_equal(lower(&p, 2, &s), 0);
        assert_true(schedules_check(&s, why, sizeof why));
        assert_int_equal(family_bytes(&s, "receive buffer of gradients"), 0);
        assert_int_equal(family_bytes(&s, "output that is kept"), old * 5 * logits);
        assert_int_equal(family_bytes(&s, "merged outputs"), old * 5 * logits);
    }
    schedules_free(&s);
    plan_free(&p);
}

/* A loop whose schedule.step() leaves return_outputs as it is (NeMo Automodel's): 2.15 keeps every micro-step's logits of a run, 2 bytes of each of 64 x 32,000,
 * on the last stage alone, until the next run begins, and makes one tensor of them behind the last backward; a step of two runs has half of its
 * micro-steps in each.  Two ranks that share the vocabulary have half of it, also where the loss gathers them (inputs_apart).  Receive buffers are as without. */
static void outputs_that_a_schedule_returns_are_kept(void **state)
{
    static const struct { enum pipeline_kind kind; int chunks, steps, runs, tensor; bool gathers; } of[] = {
        { PIPELINE_1F1B, 1, 5, 1, 1, false }, { PIPELINE_1F1B, 1, 8, 2, 1, false }, { PIPELINE_GPIPE, 1, 4, 1, 1, false },
        { PIPELINE_INTERLEAVED, 2, 6, 1, 1, false }, { PIPELINE_1F1B, 1, 5, 1, 2, false }, { PIPELINE_1F1B, 1, 5, 1, 2, true },
    };
    int64_t logits = 64 * 32000 * 2;
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct schedules s = { 0 };
        struct plan p;
        piped(&p, 0, 6, 3, of[i].kind, of[i].chunks, of[i].steps, of[i].tensor);
        p.shard_group = 1;
        p.parallel.tensor = of[i].tensor;
        if (of[i].tensor > 1)
            p.parallel.sequence = true, p.parallel.loss_parallel = !of[i].gathers, p.parallel.inputs_apart = of[i].gathers;
        p.parallel.pipeline_flushes = of[i].runs;
        p.logits_kept = LOGITS_AS_MADE;
        assert_int_equal(plan_check(&p, "kept"), 0);
        assert_int_equal(loss_kept_bytes(&p), 0);
        for (int stage = 0; stage < 3; stage++) {
            int64_t bytes = stage == 2 ? of[i].steps / of[i].runs * logits / of[i].tensor : 0;
            assert_int_equal(lower(&p, stage * of[i].tensor, &s), 0);
            if (!schedules_check(&s, why, sizeof why))
                fail_msg("%d: %s", (int)i, why);
            assert_int_equal(family_bytes(&s, "output that is kept"), bytes);
            assert_int_equal(family_bytes(&s, "merged outputs"), bytes);
            assert_int_equal(family_bytes(&s, "receive buffer"), 0);
        }
        schedules_free(&s);
        plan_free(&p);
    }
}

/* Vector 38: 405B in 16 stages, 8 tensor-parallel ranks.  A stage between has 8 blocks, of which a rank has 3,187,933,184 parameters: whole in
 * bf16, and their gradients in fp32, 19,127,599,104 bytes (each of 72 tensors in whole units of 512). */
static void a_stage_of_405b_holds_six_bytes_a_parameter_unsharded(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct plan p;
    int64_t grads, params;

    plan_of(&p, "llama-3.1-405b", 126, 256, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.seq = 8192;
    p.parallel.tensor = 8;
    p.parallel.sequence = p.parallel.loss_parallel = true;
    p.parallel.pipeline = 16;
    p.parallel.pipeline_schedule = PIPELINE_1F1B;
    p.parallel.first_stage_less = p.parallel.last_stage_less = 1;
    p.accumulation = 16;
    p.sync_every_micro_step = false;
    p.shard_group = 2;
    p.fsdp.reshard_after_forward = 0;
    assert_int_equal(plan_check(&p, "t"), 0);
    assert_int_equal(lower(&p, 5 * 16, &s), 0);
    params = family_bytes(&s, "unsharded params");
    grads = family_bytes(&s, "accumulated unsharded grads");
    assert_in_range(params, 2 * INT64_C(3187933184), 2 * INT64_C(3187933184) + 72 * 512);
    assert_in_range(params + grads, INT64_C(19127599104), INT64_C(19127599104) + 2 * 72 * 512);
    schedules_free(&s);
    plan_free(&p);
}

/* What waits between the halves of a block of Llama 2, 64 tokens in bf16: f 11008, h 4096, 32 heads.  Autograd: nothing that
 * was saved goes; down, gate, up, out, q, k, v and two norms keep what arrives at each.  Our own: inputs of products stay (two
 * norms' outputs, attention's, the product), and the gradients of their outputs (2 h, 2 f, 3 h); norms have 2 h numbers that
 * wait; the block's input and middle (2 h), q, k, v (3 h), gate and up (2 f), log-sum-exp and the norms' statistics go. */
static void check_halfway(const struct span *inputs, bool own)
{
    enum { N = 64, E = 2, F = 11008, H = 4096, HEADS = 32 };

    assert_int_equal(inputs->net[MEM_TEMPORARIES], own ? N * E * (2 * F + 5 * H) + 2 * E * 2 * H : N * E * (2 * F + 7 * H));
    assert_int_equal(inputs->net[MEM_ACTIVATIONS], own ? -N * (E * (2 * F + 5 * H) + 4 * HEADS + 2 * 4) : 0);
}

/* The last stage of ZB1P keeps a micro-step's activations from forward until the gradients of its weights, 4 micro-steps later
 * (4 in flight); of its inputs' half alone nothing goes but the loss.  All goes with the last weight.  Our own kernels read and
 * write more: copies of the residual's gradient (3 N h for each half of a block), gradients of norms (4 h each). */
static void halves_of_backward_add_up(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct plan p;

    for (int kernels = 0; kernels < 2; kernels++) {
        piped(&p, 0, 8, 4, PIPELINE_ZB1P, 1, 8, 1);
        p.kernels = kernels ? KERNELS_DPX : KERNELS_TORCH_SDPA;
        assert_int_equal(lower(&p, 3, &s), 0);
        for (int i = 0; i < 2; i++) {
            enum piece_id whole = i ? PIECE_HEAD : PIECE_BLOCK, split = i ? PIECE_HEAD_SPLIT : PIECE_BLOCK_SPLIT;
            const struct piece *b = &s.program.piece[split];
            struct span all, one[2];
            program_span(&s.program, whole, PASS_BACKWARD, 0, s.program.piece[whole].nkernels[PASS_BACKWARD], GRADS_KEEP, &all);
            program_span(&s.program, split, PASS_BACKWARD, 0, b->split, GRADS_KEEP, &one[0]);
            program_span(&s.program, split, PASS_BACKWARD, b->split, b->nkernels[PASS_BACKWARD], GRADS_KEEP, &one[1]);
            for (int m = 0; m < NMEM; m++)
                assert_int_equal(one[0].net[m] + one[1].net[m], all.net[m]);
            assert_int_equal(one[0].net[MEM_GRADS], 0);
            if (!kernels) {             /* gradients that are added elsewhere all go, a norm's with the residual's addition behind it */
                program_span(&s.program, split, PASS_BACKWARD, b->split, b->nkernels[PASS_BACKWARD], GRADS_DROP, &one[1]);
                assert_int_equal(one[1].net[MEM_GRADS], 0);
            }
            int64_t more = i ? 4 * 4096 * 2 : 2 * 3 * 64 * 4096 * 2 + 2 * 4 * 4096 * 2;
            assert_close(one[0].flops + one[1].flops, all.flops, 1e-12);
            assert_int_equal(one[0].bytes + one[1].bytes, all.bytes + (kernels ? more : 0));
            if (!i)
                check_halfway(&one[0], kernels);
        }
        plan_free(&p);
    }
    schedules_free(&s);
}

/* ---- tied embeddings ---- */

struct tied { int64_t sums, sum_elems, gathers, scatters; };

enum { TIED = 50257 * 768 };            /* GPT-2's embedding; 768 divides by 3 */

static int note_tied(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct tied *t = arg;

    (void)iteration;
    if (o->kind != OP_COLL)
        return 0;
    if (sched_group(s, o)->is == GROUP_TIED) {
        t->sums++;
        t->sum_elems += o->u.coll.elems;
    }
    t->gathers += o->u.coll.op == COLL_ALL_GATHER && o->u.coll.elems == TIED;
    t->scatters += o->u.coll.op == COLL_REDUCE_SCATTER && o->u.coll.elems == TIED;
    return 0;
}

static struct tied tied_of(const struct plan *p, int64_t stage)
{
    struct schedules s = { 0 };
    struct tied t = { 0 };
    char why[512];

    assert_int_equal(plan_check(p, "t"), 0);
    assert_int_equal(lower(p, stage * plan_data_ranks(p), &s), 0);
    if (!schedules_check(&s, why, sizeof why))
        fail_msg("stage %d: %s", (int)stage, why);
    sched_walk(&s, SCHED_STEADY, note_tied, &t);
    schedules_free(&s);
    return t;
}

/* The embedding is a unit of its own on both ends.  Of 4 micro-steps each gathers it where it is used, reduces it where its gradient
 * is made, and what a rank keeps of the sum, a third, is added up over the two ends once.  A V's ends are on one rank. */
static void a_tied_embedding_is_added_up_as_shards(void **state)
{
    static const int sharded[] = { 5, 6, 7 };

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int v = 0; v < 2; v++) {
            struct plan p;
            plan_of(&p, "gpt2", 12, 6, cells[sharded[i]].s, cells[sharded[i]].d, cells[sharded[i]].t);
            p.parallel.pipeline = 2;
            p.parallel.pipeline_schedule = v ? PIPELINE_ZBV : PIPELINE_1F1B;
            p.parallel.virtual_stages = 1 + v;
            p.accumulation = 4;
            p.sync_every_micro_step = false;
            p.shard_group = 3;
            for (int stage = 0; stage < 2; stage++) {
                struct tied t = tied_of(&p, stage);
                int ends = v ? (stage == 0 ? 2 : 0) : 1;
                assert_int_equal(t.sums, v ? 0 : 1);
                assert_int_equal(t.sum_elems, v ? 0 : TIED / 3);
                assert_int_equal(t.gathers, p.strategy == STRAT_ZERO2 ? stage == 0 || !v : 8 * ends);
                assert_int_equal(t.scatters, 4 * ends);
            }
            plan_free(&p);
        }
}

/* A schedule numbers its messages in 16 bits: the longest steps that are planned have numbers for all of theirs, in every dialect.  Those of
 * Megatron-LM come again and again: it has a limit of its own (test_pipeline_folded.c). */
static void the_longest_step_has_an_event_for_each_message(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct schedules s = { 0 };
        struct plan p;
        plan_of(&p, "llama-3.1-8b", 8, 4, i ? STRAT_ZERO1 : STRAT_FSDP, i ? DIALECT_MEGATRON : DIALECT_TORCH, DT_BF16);
        p.parallel.pipeline = 2;
        p.parallel.virtual_stages = 2;
        p.parallel.first_stage_less = p.parallel.last_stage_less = 0;
        p.parallel.pipeline_schedule = PIPELINE_INTERLEAVED;
        p.shard_group = p.cluster.world_size / 2;
        p.sync_every_micro_step = false;
        p.accumulation = PIPELINE_MOST_PASSES / 2;
        if (i) {
            p.kernels = KERNELS_TE;
            p.megatron.overlap_grad_reduce = p.megatron.overlap_param_gather = true;
        }
        p.megatron.microbatch_group_size_per_vp_stage = 2;
        plan_resolve(&p);
        assert_int_equal(plan_check(&p, "t"), 0);
        assert_int_equal(lower(&p, 1, &s), 0);
        schedules_free(&s);
        p.accumulation += 2;
        if (i)
            p.accumulation = 65538;
        plan_refused(&p, i ? "a pipeline of 2 chunks a rank is planned with at most 65536 micro-steps, not 65538" :
                     "a pipeline of 2 chunks a rank, whose passes are not all alike, is planned with at most 1536 micro-steps, not 1538");
        plan_free(&p);
    }
}

static void what_does_not_exist_is_refused_by_name(void **state)
{
    (void)state;
    struct plan p;

    piped(&p, 0, 8, 4, PIPELINE_1F1B, 1, 3, 1);
    plan_refused(&p, "must be greater than or equal to the number of stages");
    p.accumulation = 8;
    p.parallel.pipeline_schedule = PIPELINE_INTERLEAVED;
    p.parallel.virtual_stages = 2;
    strcpy(p.framework_version, "2.9");
    assert_int_equal(plan_check(&p, "t"), 0);
    p.accumulation = 3;
    plan_refused(&p, "before what it needs is received");
    p.accumulation = 8;
    p.parallel.pipeline_schedule = PIPELINE_ZB1P;
    plan_refused(&p, "splits backward in lock step");
    p.parallel.pipeline_schedule = PIPELINE_INTERLEAVED;
    p.framework_version[0] = '\0';
    p.model.tied = true;
    plan_refused(&p, "weight tying");
    p.model.tied = false;
    p.sync_every_micro_step = true;
    plan_refused(&p, "sync_every_micro_step");
    plan_free(&p);
    piped(&p, 0, 8, 4, PIPELINE_1F1B, 1, 9, 1);
    p.parallel.pipeline_flushes = 2;
    plan_refused(&p, "do not divide by 2");
    p.parallel.pipeline_flushes = 3;
    plan_refused(&p, "must be greater than or equal to the number of stages");
    plan_free(&p);
    piped(&p, 3, 8, 4, PIPELINE_1F1B, 1, 3, 1);         /* the paper's 1F1B has no such rule */
    assert_int_equal(plan_check(&p, "t"), 0);
    p.deterministic = true;
    assert_int_equal(plan_check(&p, "t"), 0);
    p.model.tied = true;
    plan_refused(&p, "adds up both parts of each");
    p.model.tied = false;
    p.parallel.pipeline_schedule = PIPELINE_LOOPED_BFS;
    p.parallel.virtual_stages = 2;
    p.accumulation = 8;
    plan_refused(&p, "from the last micro-step to the first");
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_and_schedule_is_sound),
        cmocka_unit_test(units_are_gathered_once_or_as_micro_steps_pass),
        cmocka_unit_test(a_boundary_tensor_is_what_a_block_hands_on),
        cmocka_unit_test(activations_are_those_of_micro_steps_in_flight),
        cmocka_unit_test(torch_2_9_keeps_receive_buffers_and_logits), cmocka_unit_test(outputs_that_a_schedule_returns_are_kept),
        cmocka_unit_test(in_lock_step_schedules_are_sound),
        cmocka_unit_test(a_stage_of_405b_holds_six_bytes_a_parameter_unsharded),
        cmocka_unit_test(halves_of_backward_add_up),
        cmocka_unit_test(a_tied_embedding_is_added_up_as_shards),
        cmocka_unit_test(the_longest_step_has_an_event_for_each_message),
        cmocka_unit_test(each_flush_gathers_and_reduces),
        cmocka_unit_test(what_is_reduced_last_is_gathered_once),
        cmocka_unit_test(gradients_of_the_flush_before_are_there),
        cmocka_unit_test(what_does_not_exist_is_refused_by_name),
    };
    return cmocka_run_group_tests_name("model/pipeline_plans", tests, NULL, NULL);
}
