/* Communication inside blocks: by hand, with times that a reader adds up; and Megatron's two all-reduces of a
 * block's forward and two of its backward, put into the schedules of three unchanged strategies. */
#include <stdlib.h>

#include "model/schedule/schedule_cut.h"
#include "sim/clock/clock.h"
#include "tests/model/happens_before.h"
#include "tests/model/plans.h"
#include "tests/model/random_plan.h"
#include "tests/model/schedule_clock.h"

/* ---- by hand: blocks of kernels of a second each ---- */

enum { MAX = 64 };

static struct schedules s;
static double work[4096], issue[4096];

/* A block's forward of n kernels, each leaving 10 bytes of activations. */
static void block_of(int n)
{
    struct piece *p = &s.program.piece[PIECE_BLOCK];

    hand_begin(&s);
    p->kernels[PASS_FORWARD] = calloc((size_t)n, sizeof **p->kernels);
    for (int i = 0; i < n; i++)
        p->kernels[PASS_FORWARD][i] = (struct kernel){ .name = "kernel", .flops = 1, .module = -1,
                                                       .net = { 10 }, .peak = { 10 }, .ready = { -1, -1, -1, -1 } };
    p->nkernels[PASS_FORWARD] = n;
    empty(&s, SCHED_INIT);
    empty(&s, SCHED_FIRST);
    sched_begin(&s, SCHED_STEADY);
}

/* Becomes kernel `at`, needed first by `needed`; 1000 elements. */
static void all_reduce(int at, int needed)
{
    struct collective c = { .kernel = at, .needed = needed, .op = COLL_ALL_REDUCE, .group = GROUP_DATA,
                            .dtype = DT_BF16, .red = RED_SUM, .stream = STREAM_TENSOR, .elems = 1000 };

    assert_int_equal(program_add_collective(&s.program, PIECE_BLOCK, PASS_FORWARD, "all-reduce", &c), 0);
}

static struct op *forward(int block, int k0, int k1)
{
    struct op *o = sched_compute(&s, PHASE_FORWARD, PIECE_BLOCK, PASS_FORWARD, k0, k1, GRADS_IN_PLACE, CAT_GRADS);

    sched_of(&s, "block", block, 0);
    return o;
}

/* Cut, with a second for each FLOP and so many for each collective inside. */
static double step_of(double collective_s)
{
    struct durations d = { work, issue };
    struct timeline t;

    sched_end(&s, SCHED_STEADY);
    schedules_cut(&s);
    assert_true(s.nops < 4096);
    for (int i = 0; i < s.nops; i++)
        work[i] = s.ops[i].kind == OP_COMPUTE ? s.spans[s.ops[i].u.compute.span].flops
                : s.ops[i].kind == OP_COLL ? collective_s : 0;
    clock_one(&s, SCHED_STEADY, &d, NULL, &t, NULL);
    return t.step_s;
}

static int entries(enum op_kind kind)
{
    int n = 0;

    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        n += s.ops[i].kind == (int)kind;
    return n;
}

/* Kernels 0 and 1, then the collective (2) beside kernel 3, then kernel 4: 2 + max(1.5, 1) + 1. */
static void a_collective_runs_beside_kernels_that_do_not_need_it(void **state)
{
    (void)state;
    block_of(4);
    all_reduce(2, 4);
    forward(0, 0, 5);
    assert_close(step_of(1.5), 4.5, 1e-15);
    assert_int_equal(entries(OP_COMPUTE), 3);
    assert_int_equal(entries(OP_COLL), 1);
}

static void one_that_is_needed_at_once_runs_alone(void **state)
{
    (void)state;
    block_of(4);
    all_reduce(2, 3);
    forward(0, 0, 5);
    assert_close(step_of(1.5), 5.5, 1e-15);
}

/* The entry is two: 0..2 with the collective, 3 and 4; 4 needs it. */
static void the_kernel_that_needs_it_may_be_in_another_entry(void **state)
{
    (void)state;
    block_of(4);
    all_reduce(2, 4);
    forward(0, 0, 3);
    forward(0, 3, 5);
    assert_close(step_of(1.5), 4.5, 1e-15);
}

/* A collective that ends its pass (kernel 2 of 3) is needed by the next block: each costs 2 + 1, and no op
 * waits for the last. */
static void behind_the_pass_whatever_is_computed_next_waits(void **state)
{
    (void)state;
    block_of(2);
    all_reduce(2, 3);
    for (int b = 0; b < 3; b++)
        forward(b, 0, 3);
    assert_close(step_of(1), 3 * 3, 1e-15);
    for (int i = 0; i < s.nops; i++)
        if (s.ops[i].kind == OP_COMPUTE && s.ops[i].unit > 0)
            assert_true(s.ops[i].wait[0] != 0);
}

/* The same in a repeat, whose rounds wait for each other; the clock skips ahead. */
static void a_round_waits_for_what_the_round_before_left(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 100; n = n < 3 ? n + 1 : n + 97) {
        char why[256];
        block_of(2);
        all_reduce(2, 3);
        sched_repeat(&s, n);
        forward(0, 0, 3);
        sched_repeat_end(&s);
        assert_close(step_of(1), 3.0 * (double)n, 1e-12);
        for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
            if (s.ops[i].kind == OP_REPEAT)
                assert_int_equal(s.ops[s.ops[i].u.repeat.other].kind, OP_END);
        /* Nobody frees the activations here: but for that the schedules are sound. */
        if (n > 0 && !schedules_check(&s, why, sizeof why))
            assert_non_null(strstr(why, "leaves"));
    }
}

/* Two under way at once on two streams, and a third that needs the first: it waits itself, compute does not.
 * Kernels 0 | A(1) 2 s | 2 | B(3) 2 s | C(4) needs A: after 3 s, 2 s | 5 | 6 needs C.
 * Compute: 0 to 1, 2 to 2, 5 to 3.  A 1 to 3, C 3 to 5, 6 to 6.  B on another stream, never waited for: 2 to 4. */
static void a_collective_waits_for_another_whose_result_it_moves(void **state)
{
    (void)state;
    block_of(4);
    hand_group(&s, GROUP_SHARD, 2);
    static const struct { int kernel, needed; enum stream stream; enum group group; } c[3] = {
        { 1, 4, STREAM_TENSOR, GROUP_DATA }, { 3, 7, STREAM_GATHER, GROUP_SHARD }, { 4, 6, STREAM_REDUCE, GROUP_DATA },
    };
    for (int i = 0; i < 3; i++)
        all_reduce(c[i].kernel, c[i].kernel + 1);
    for (int i = 0; i < 3; i++) {
        struct collective *of = &s.program.piece[PIECE_BLOCK].collectives[PASS_FORWARD][i];
        of->needed = c[i].needed;
        of->stream = (uint8_t)c[i].stream;
        of->group = (uint8_t)c[i].group;
    }
    forward(0, 0, 7);
    assert_close(step_of(2), 6, 1e-15);
}

/* What is put in before another moves it, and the kernel that needs it. */
static void positions_are_those_of_the_longer_list(void **state)
{
    (void)state;
    block_of(4);
    all_reduce(3, 4);                   /* behind kernel 2, for kernel 3 */
    all_reduce(1, 2);                   /* behind kernel 0, for kernel 1 */
    const struct piece *p = &s.program.piece[PIECE_BLOCK];
    assert_int_equal(p->nkernels[PASS_FORWARD], 6);
    assert_int_equal(p->ncollectives[PASS_FORWARD], 2);
    assert_int_equal(p->collectives[PASS_FORWARD][0].kernel, 1);
    assert_int_equal(p->collectives[PASS_FORWARD][0].needed, 2);
    assert_int_equal(p->collectives[PASS_FORWARD][1].kernel, 4);
    assert_int_equal(p->collectives[PASS_FORWARD][1].needed, 5);
    assert_int_equal(s.program.ncollectives, 2);
}

static int kernels_before(const struct piece *p, enum pass pass, int at)
{
    int n = at;

    for (int i = 0; i < p->ncollectives[pass]; i++)
        n -= p->collectives[pass][i].kernel < at;
    return n;
}

/* Of 6 kernels: as many stand before each place where the lowering cuts the pass, wherever a collective is put in. */
static void where_a_pass_is_cut_is_between_the_same_kernels(void **state)
{
    (void)state;
    for (int v = 0; v < 2 * 7; v++) {
        enum pass pass = v % 2 ? PASS_BACKWARD : PASS_FORWARD;
        struct program g = { .returns = { 4, 4 }, .heads = { 2, 2 } };
        struct piece *p = &g.piece[PIECE_HEAD];
        struct collective c = { .kernel = v / 2, .needed = v / 2 + 1, .op = COLL_ALL_REDUCE, .dtype = DT_BF16, .elems = 1 };
        p->outside[pass] = 1;
        p->split = 3;
        p->nkernels[pass] = 6;
        p->kernels[pass] = calloc(6, sizeof **p->kernels);
        for (int i = 0; i < 6; i++)
            p->kernels[pass][i] = (struct kernel){ .name = "kernel", .ready = { -1, -1, -1, -1 } };
        assert_int_equal(program_add_collective(&g, PIECE_HEAD, pass, "all-reduce", &c), 0);
        assert_int_equal(kernels_before(p, pass, g.returns[pass]), 4);
        assert_int_equal(kernels_before(p, pass, g.heads[pass]), 2);
        assert_int_equal(kernels_before(p, pass, pass == PASS_FORWARD ? p->outside[pass] : 7 - p->outside[pass]),
                         pass == PASS_FORWARD ? 1 : 5);
        if (pass == PASS_BACKWARD)
            assert_int_equal(kernels_before(p, pass, p->split), 3);
        program_free(&g);
    }
}

/* 4 kernels of 10 bytes, and 1000 bytes of its own from behind kernel 1 until kernel 3 (the fifth) is done. */
static void a_buffer_of_its_own_lives_until_the_kernel_that_needs_it_is_done(void **state)
{
    struct collective c = { .kernel = 2, .needed = 4, .op = COLL_ALL_GATHER, .group = GROUP_DATA, .dtype = DT_BF16,
                            .stream = STREAM_TENSOR, .elems = 500, .own = 1000 };
    int64_t peak[] = { 10, 20, 1020, 1030, 1040 }, left[] = { 10, 20, 1020, 1030, 40 };

    (void)state;
    block_of(4);
    assert_int_equal(program_add_collective(&s.program, PIECE_BLOCK, PASS_FORWARD, "all-gather", &c), 0);
    for (int k = 0; k < 5; k++) {
        struct span sp;
        program_span(&s.program, PIECE_BLOCK, PASS_FORWARD, 0, k + 1, GRADS_IN_PLACE, &sp);
        assert_int_equal(sp.peak[MEM_ACTIVATIONS] + sp.peak[MEM_TEMPORARIES], peak[k]);
        assert_int_equal(sp.net[MEM_ACTIVATIONS] + sp.net[MEM_TEMPORARIES], left[k]);
    }
}

/* The first part takes what the entry takes and waits for what it waits for, the last gives and records. */
static void buffers_come_with_the_first_part_and_go_with_the_last(void **state)
{
    (void)state;
    block_of(4);
    all_reduce(2, 3);
    int in = sched_buf(&s, CAT_UNSHARDED, "in", NULL, 0, 1, 100), out = sched_buf(&s, CAT_GRADS, "out", NULL, 0, 1, 200);
    uint16_t before[2] = { sched_event(&s), sched_event(&s) }, done = sched_event(&s);
    for (int i = 0; i < 2; i++)
        sched_copy(&s, STREAM_GATHER, PHASE_FORWARD, "before", 0, 0)->record = before[i];
    sched_act(&s, ACT_ALLOC, in, 0, 0);
    struct op *o = forward(0, 0, 5);
    memcpy(o->wait, before, sizeof before);
    o->after = AFTER(STREAM_REDUCE);
    o->record = done;
    sched_act(&s, ACT_R | ACT_FREE, in, 0, 0);
    sched_act(&s, ACT_W | ACT_ALLOC, out, 0, 0);
    step_of(1);
    const struct op *part[2] = { NULL };
    for (int i = 0, n = 0; i < s.nops; i++)
        if (s.ops[i].kind == OP_COMPUTE) {
            assert_true(n < 2);
            part[n++] = &s.ops[i];
        }
    assert_true(part[0]->wait[0] == before[0] && part[0]->wait[1] == before[1]);
    assert_int_equal(part[0]->after, AFTER(STREAM_REDUCE));
    assert_int_equal(part[0]->record, 0);
    assert_int_equal(part[1]->after, 0);
    assert_int_equal(part[1]->record, done);
    assert_int_equal(s.acts[part[0]->act0].what, ACT_R);
    assert_int_equal(s.acts[part[0]->act0 + 1].what, ACT_W | ACT_ALLOC);
    assert_int_equal(s.acts[part[1]->act0].what, ACT_R | ACT_FREE);
    assert_int_equal(s.acts[part[1]->act0 + 1].what, ACT_W);
}

/* Where an entry waits for two events already, a third has an entry of its own before it. */
static void an_entry_without_room_waits_by_one_before_it(void **state)
{
    (void)state;
    block_of(2);
    all_reduce(2, 3);
    uint16_t other[2] = { sched_event(&s), sched_event(&s) };
    for (int i = 0; i < 2; i++)
        sched_copy(&s, STREAM_GATHER, PHASE_FORWARD, "before", 0, 0)->record = other[i];
    forward(0, 0, 3);
    memcpy(forward(1, 0, 3)->wait, other, sizeof other);
    assert_close(step_of(1), 2 * 3, 1e-15);
    assert_int_equal(entries(OP_MEMORY), 1);
}

static void schedules_without_collectives_are_left_alone(void **state)
{
    (void)state;
    block_of(4);
    forward(0, 0, 4);
    sched_end(&s, SCHED_STEADY);
    struct schedules before = s;
    struct op first = s.ops[0];
    schedules_cut(&s);
    assert_memory_equal(&before, &s, sizeof s);
    assert_memory_equal(&first, &s.ops[0], sizeof first);
}

/* ---- Megatron's column-then-row pattern in real plans ---- */

/* A group that none of the plans here has: what is inside blocks waits for no collective of the strategy. */
#define INSIDE GROUP_CONTEXT_A2A

/* The lowering takes the program for one without collectives, until there is such a group. */
static void lower_seeded(const struct plan *p, const struct program *g, struct schedules *of)
{
    struct program plain = *g;

    plain.ncollectives = 0;
    assert_int_equal(lower_using(p, 0, &plain, of), 0);
    of->program.ncollectives = g->ncollectives;
    hand_group(of, INSIDE, 4);
    schedules_cut(of);
}

/* The last kernel of a pass that is called so; -1. */
static int kernel_named(const struct piece *p, enum pass pass, const char *name)
{
    for (int k = p->nkernels[pass]; k-- > 0;)
        if (!strcmp(p->kernels[pass][k].name, name))
            return k;
    return -1;
}

/* An all-reduce of a block's activation behind a kernel, needed by what comes next. */
static int reduce_behind(struct program *g, const struct plan *p, enum piece_id piece, enum pass pass, const char *name)
{
    int k = kernel_named(&g->piece[piece], pass, name);
    struct collective c = { .kernel = k + 1, .needed = k + 2, .op = COLL_ALL_REDUCE, .group = INSIDE,
                            .dtype = p->precision, .red = RED_SUM, .stream = STREAM_TENSOR,
                            .elems = p->micro_batch * p->seq * p->model.hidden };

    if (k < 0)
        return 0;
    assert_int_equal(program_add_collective(g, piece, pass, "all-reduce", &c), 0);
    return 1;
}

/* Two behind the row-parallel products of forward, two behind the gradients of what the column-parallel ones
 * read; what is recomputed has its own.  Returns how many passes over a recomputed block have, together. */
static int seed(struct program *g, const struct plan *p)
{
    static const char *const columns[][2] = { { "mlp gate dX", "mlp up dX" }, { "q dX", "qkv dX" } };
    int again = 0;

    for (int i = PIECE_BLOCK; i < PIECE_HEAD; i++) {
        enum piece_id piece = (enum piece_id)i;
        if (g->piece[i].nkernels[PASS_FORWARD] == 0)
            continue;
        assert_int_equal(reduce_behind(g, p, piece, PASS_FORWARD, "attention output"), 1);
        assert_int_equal(reduce_behind(g, p, piece, PASS_FORWARD, "mlp down"), 1);
        for (int c = 0; c < 2; c++)
            assert_int_equal(reduce_behind(g, p, piece, PASS_BACKWARD, columns[c][0]) ||
                             reduce_behind(g, p, piece, PASS_BACKWARD, columns[c][1]), 1);
        again += reduce_behind(g, p, piece, PASS_BACKWARD, "attention output");
        again += reduce_behind(g, p, piece, PASS_BACKWARD, "mlp down");
    }
    return again;
}

/* How often a block's passes communicate inside, by phase; every block alike. */
static int inside(const struct schedules *of, const struct op *o, int64_t iteration, void *arg)
{
    int64_t (*n)[2] = arg;

    (void)of;
    if (o->kind == OP_COLL && o->u.coll.of == OF_PLACES)
        n[o->unit + o->unit_by * iteration][o->phase == PHASE_BACKWARD]++;
    return 0;
}

static void same_peaks(const struct schedules *a, const struct schedules *b)
{
    struct ledger x, y;

    ledger_run(a, &x);
    ledger_run(b, &y);
    for (int id = 0; id < NSCHED; id++)
        assert_int_equal(y.phase[id].bytes, x.phase[id].bytes);
    for (int c = 0; c < NCAT; c++)
        assert_int_equal(x.persistent[c], y.persistent[c]);
}

static void sound_and_ordered(const struct schedules *of, bool defers)
{
    char why[512];
    struct hb h;

    if (!schedules_check(of, why, sizeof why))
        fail_msg("%s", why);
    hb_init(&h, of);
    h.defers = defers;
    if (!hb_run(&h))
        fail_msg("%s", h.why);
    hb_free(&h);
}

static void check_pattern(struct plan *p)
{
    struct program plain = { 0 }, seeded = { 0 };
    struct schedules whole = { 0 }, parts = { 0 };
    int64_t n[MAX][2] = { { 0 } };
    bool defers = p->dialect == DIALECT_DEEPSPEED;

    assert_int_equal(plan_check(p, "test"), 0);
    assert_int_equal(program_build(p, &plain), 0);
    assert_int_equal(program_build(p, &seeded), 0);
    int again = seed(&seeded, p);
    assert_int_equal(again > 0, p->recompute == RECOMPUTE_FULL);
    assert_int_equal(lower_using(p, 0, &plain, &whole), 0);
    lower_seeded(p, &seeded, &parts);
    sound_and_ordered(&parts, defers);
    same_peaks(&whole, &parts);
    assert_close(clock_of(&parts, false), clock_of(&whole, false), 1e-12);
    assert_close(clock_of(&parts, true), clock_of(&whole, true), 1e-12);
    sched_walk(&parts, SCHED_STEADY, inside, n);
    for (int64_t b = 0; b < p->model.layers; b++) {
        assert_int_equal(n[b][0], 2 * p->accumulation);
        assert_int_equal(n[b][1], (2 + again) * p->accumulation);
    }
    /* The bytes are those of the activation, and nothing else is sent otherwise than before. */
    int64_t each = p->micro_batch * p->seq * p->model.hidden * dtype_bytes(p->precision);
    int64_t more = (4 + again) * p->model.layers * p->accumulation * coll_sent_bytes(COLL_ALL_REDUCE, 4, each);
    assert_int_equal(sent(&parts, SCHED_STEADY), sent(&whole, SCHED_STEADY) + more);
    schedules_free(&whole);
    schedules_free(&parts);
    program_free(&plain);
    program_free(&seeded);
}

static void check_strategy(enum strategy st, enum dialect d)
{
    static const enum kernel_set kernels[] = { KERNELS_DPX, KERNELS_TORCH_SDPA };
    static const char *const models[] = { "gpt2", "llama-3.2-1b" };

    for (int v = 0; v < 16; v++) {
        struct plan p;
        plan_of(&p, models[v / 8], 3, 4, st, d, DT_BF16);
        p.kernels = kernels[v / 4 % 2];
        p.accumulation = 1 + 4 * (v / 2 % 2);
        p.recompute = v % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        if (d == DIALECT_DEEPSPEED)
            p.clip = 1;
        check_pattern(&p);
        plan_free(&p);
    }
}

static void ddp_reduces_inside_blocks_and_does_not_know(void **state)
{
    (void)state;
    check_strategy(STRAT_DDP, DIALECT_TORCH);
}

static void fsdp2_reduces_inside_blocks_and_does_not_know(void **state)
{
    (void)state;
    check_strategy(STRAT_FSDP, DIALECT_TORCH);
}

static void zero3_reduces_inside_blocks_and_does_not_know(void **state)
{
    (void)state;
    check_strategy(STRAT_ZERO3, DIALECT_DEEPSPEED);
}

/* The highest point of a step when every entry from the first to the last of a block's backward has `own` bytes
 * more. */
static int64_t highest_with(const struct schedules *of, int64_t own)
{
    enum { POINTS = 100000 };
    struct point *curve = calloc(POINTS, sizeof *curve);
    int64_t n = ledger_curve(of, SCHED_STEADY, curve, POINTS), most = 0, more = 0;

    assert_true(n < POINTS);
    for (int64_t i = 0; i < n; i++) {
        const struct op *o = &of->ops[curve[i].op];
        bool block = o->kind == OP_COMPUTE && o->u.compute.piece == PIECE_BLOCK && o->u.compute.pass == PASS_BACKWARD;
        if (block && o->u.compute.k0 == 0)
            more = own;
        if (curve[i].peak + more > most)
            most = curve[i].peak + more;
        if (block && o->u.compute.k1 == of->program.piece[PIECE_BLOCK].nkernels[PASS_BACKWARD])
            more = 0;
    }
    free(curve);
    return most;
}

/* A result that lives from before a block's backward's first kernel until its last is done. */
static void own_buffers_are_on_top_of_what_the_uncut_schedule_has(void **state)
{
    static const struct { enum strategy s; enum dialect d; } cells[] = {
        { STRAT_DDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH }, { STRAT_ZERO3, DIALECT_DEEPSPEED },
    };

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int64_t own = 512; own <= 1 << 30; own *= 128) {
            struct program g = { 0 };
            struct schedules of = { 0 };
            struct ledger after;
            struct plan p;
            plan_of(&p, "llama-3.2-1b", 2, 4, cells[i].s, cells[i].d, DT_BF16);
            p.kernels = KERNELS_TORCH_SDPA;
            assert_int_equal(program_build(&p, &g), 0);
            assert_int_equal(lower_using(&p, 0, &g, &of), 0);
            int64_t want = highest_with(&of, own);
            int n = g.piece[PIECE_BLOCK].nkernels[PASS_BACKWARD];
            struct collective c = { .kernel = 0, .needed = n, .op = COLL_ALL_GATHER, .group = INSIDE,
                                    .dtype = DT_BF16, .stream = STREAM_TENSOR, .elems = 4, .own = own };
            assert_int_equal(program_add_collective(&g, PIECE_BLOCK, PASS_BACKWARD, "gather", &c), 0);
            lower_seeded(&p, &g, &of);
            ledger_run(&of, &after);
            assert_int_equal(after.phase[SCHED_STEADY].bytes, want);
            sound_and_ordered(&of, cells[i].d == DIALECT_DEEPSPEED);
            schedules_free(&of);
            program_free(&g);
            plan_free(&p);
        }
}

/* ---- at random: is the order what the program says? ---- */

struct rest { int64_t number; int stream, piece, pass, kernel, needed, unit; };

struct watch {
    struct hb h;
    struct rest left[32];
    int nleft, seen;
    const struct op *compute;           /* the last compute entry */
    bool wrong;
};

static const struct collective *collective_of(const struct schedules *of, const struct op *o, int k)
{
    const struct piece *p = &of->program.piece[o->u.compute.piece];

    for (int i = 0; i < p->ncollectives[o->u.compute.pass]; i++)
        if (p->collectives[o->u.compute.pass][i].kernel == k)
            return &p->collectives[o->u.compute.pass][i];
    return NULL;
}

static int order_of(const struct schedules *of, const struct op *o, int64_t iteration, void *arg)
{
    struct watch *w = arg;
    int unit = o->unit + o->unit_by * (int)iteration;
    bool inner = o->kind == OP_COLL && o->u.coll.of == OF_PLACES;

    hb_op(of, o, iteration, &w->h);
    const struct hb_clock *now = &w->h.tail[o->stream];
    if (o->kind == OP_COMPUTE) {
        int kept = 0;
        for (int i = 0; i < w->nleft; i++) {
            struct rest l = w->left[i];
            bool on = l.piece == o->u.compute.piece && l.pass == o->u.compute.pass && l.unit == unit &&
                      o->u.compute.k0 > l.kernel;
            if (on && l.needed >= o->u.compute.k1) {
                w->left[kept++] = l;
                continue;
            }
            /* A collective that needs it is issued next: it must wait, this need not. */
            if (on && l.needed == o->u.compute.k1 - 1 && collective_of(of, o, l.needed)) {
                w->left[kept++] = l;
                continue;
            }
            w->wrong |= now->done[l.stream] < l.number;
        }
        w->nleft = kept;
        w->compute = o;
    }
    if (inner) {
        const struct op *before = w->compute;
        const struct collective *c = collective_of(of, before, before->u.compute.k1 - 1);
        int kept = 0;
        w->wrong |= !c || now->done[STREAM_COMPUTE] < w->h.issued[STREAM_COMPUTE];
        for (int i = 0; i < w->nleft; i++) {
            struct rest l = w->left[i];
            if (c && l.needed == c->kernel)
                w->wrong |= now->done[l.stream] < l.number;
            else
                w->left[kept++] = l;
        }
        w->nleft = kept;
        assert_true(w->nleft < 32);
        if (c)
            w->left[w->nleft++] = (struct rest){ w->h.issued[o->stream], o->stream, before->u.compute.piece,
                                                 before->u.compute.pass, c->kernel, c->needed, unit };
        w->seen++;
    }
    return 0;
}

/* `apart`: on a stream of their own. */
static void put_at_random(struct program *g, bool apart, uint64_t *rng)
{
    static const enum stream on[] = { STREAM_TENSOR, STREAM_GATHER, STREAM_GROUP, STREAM_COMPUTE };

    for (int i = 0; i < NPIECE; i++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = (int)draw(rng, 4); k > 0 && g->piece[i].nkernels[pass] > 0; k--) {
                int n = g->piece[i].nkernels[pass], at = (int)draw(rng, (uint32_t)n + 1);
                struct collective c = { .kernel = at, .needed = at + 1 + (int)draw(rng, (uint32_t)(n - at) + 1),
                                        .op = COLL_ALL_REDUCE, .group = INSIDE, .dtype = DT_BF16,
                                        .red = RED_SUM, .stream = (uint8_t)on[apart ? 0 : draw(rng, 4)], .elems = 64 };
                assert_int_equal(program_add_collective(g, (enum piece_id)i, (enum pass)pass, "c", &c), 0);
            }
}

static void collectives_at_random_are_issued_and_awaited_where_they_stand(void **state)
{
    static const char *const names[] = { "gpt2", "llama-3.2-1b", "gemma-3-270m", "qwen3-0.6b" };
    struct model whole[4];
    uint64_t rng = 20;
    int checked = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(model_load(names[i], &whole[i]), 0);
    for (int done = 0; done < 600; done++) {
        struct model m;
        struct cluster c;
        struct plan p;
        char why[512];
        assert_int_equal(model_with_layers(&whole[draw(&rng, 4)], 1 + draw(&rng, 5), &m), 0);
        world_of(&c, 1 + draw(&rng, 8));
        draw_plan(&m, &c, &rng, &p);
        p.micro_batch = 1;
        p.accumulation = 1 + p.accumulation % 4;
        struct program plain = { 0 }, g = { 0 };
        struct schedules before = { 0 }, of = { 0 };
        fail_capture(why, sizeof why);
        /* The collectives that are put in have one place in a pass: passes of a pipeline interleave. */
        bool built = plan_is_data_parallel(&p) && plan_check(&p, "drawn") == 0 && program_build(&p, &plain) == 0 && program_build(&p, &g) == 0 &&
                     lower_using(&p, 0, &plain, &before) == 0;
        fail_capture(NULL, 0);
        if (built) {
            put_at_random(&g, done % 2, &rng);
            lower_seeded(&p, &g, &of);
            struct watch w = { .wrong = false };
            hb_init(&w.h, &of);
            for (int id = 0; id < NSCHED; id++) {
                w.nleft = 0;
                sched_walk(&of, (enum sched_id)id, order_of, &w);
            }
            if (w.wrong || !schedules_check(&of, why, sizeof why))
                fail_msg("plan %d, %s %s: %s", done, strategy_name(p.strategy), dialect_name(p.dialect),
                         w.wrong ? "a wait is missing" : why);
            if (!of.tied_apart)             /* there the ledger counts the head's part twice until its entry ends */
                same_peaks(&before, &of);
            if (done % 2)
                clocks_agree(&p, &of, &before);
            checked += w.seen > 0;
            hb_free(&w.h);
        }
        schedules_free(&before);
        schedules_free(&of);
        program_free(&plain);
        program_free(&g);
        model_free(&m);
    }
    for (int i = 0; i < 4; i++)
        model_free(&whole[i]);
    assert_true(checked > 200);
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_collective_runs_beside_kernels_that_do_not_need_it),
        cmocka_unit_test(one_that_is_needed_at_once_runs_alone),
        cmocka_unit_test(the_kernel_that_needs_it_may_be_in_another_entry),
        cmocka_unit_test(behind_the_pass_whatever_is_computed_next_waits),
        cmocka_unit_test(a_round_waits_for_what_the_round_before_left),
        cmocka_unit_test(a_collective_waits_for_another_whose_result_it_moves),
        cmocka_unit_test(positions_are_those_of_the_longer_list),
        cmocka_unit_test(where_a_pass_is_cut_is_between_the_same_kernels),
        cmocka_unit_test(a_buffer_of_its_own_lives_until_the_kernel_that_needs_it_is_done),
        cmocka_unit_test(buffers_come_with_the_first_part_and_go_with_the_last),
        cmocka_unit_test(an_entry_without_room_waits_by_one_before_it),
        cmocka_unit_test(schedules_without_collectives_are_left_alone),
        cmocka_unit_test(ddp_reduces_inside_blocks_and_does_not_know),
        cmocka_unit_test(fsdp2_reduces_inside_blocks_and_does_not_know),
        cmocka_unit_test(zero3_reduces_inside_blocks_and_does_not_know),
        cmocka_unit_test(own_buffers_are_on_top_of_what_the_uncut_schedule_has),
        cmocka_unit_test(collectives_at_random_are_issued_and_awaited_where_they_stand),
    };
    return cmocka_run_group_tests_name("model/schedule_cut", tests, NULL, end);
}
