/* test_walk.c -- the walk over a step, unrolled, against the order in which autograd comes to modules: nested loops. */
#include "tests/model/plans.h"

#include "model/walk/walk.h"

/* A framework that notes each hook as an entry. */
struct toy { struct walk walk; };

static void note(struct toy *t, const char *what, struct at u)
{
    sched_op(t->walk.s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, what);
    walk_name(&t->walk, u);
}

static void pre_forward(void *toy, struct at u)   { note(toy, "pre_forward", u); }
static void post_forward(void *toy, struct at u)  { note(toy, "post_forward", u); }
static void pre_backward(void *toy, struct at u)  { note(toy, "pre_backward", u); }
static void post_backward(void *toy, struct at u) { note(toy, "post_backward", u); }
static void init(void *toy)                       { note(toy, "init", walk_root); }
static void begin(void *toy)                      { note(toy, "begin", walk_root); }
static void end_of_micro_step(void *toy)          { note(toy, "end_of_micro_step", walk_root); }
static void end_of_backward(void *toy)            { note(toy, "end_of_backward", walk_root); }
static void optimizer(void *toy)                  { note(toy, "optimizer", walk_root); }
static void compute(void *toy, const struct walk_run *r) { (void)toy; (void)r; }

static const struct walk_hooks all_hooks = {
    .init = init, .begin = begin, .end_of_backward = end_of_backward, .optimizer = optimizer, .end_of_micro_step = end_of_micro_step,
    .pre_forward = pre_forward, .post_forward = post_forward, .pre_backward = pre_backward, .post_backward = post_backward,
    .compute = compute, .fate = GRADS_KEEP, .grads = CAT_UNSHARDED_GRADS,
};
static const struct walk_hooks no_hooks = { .compute = compute, .fate = GRADS_KEEP, .grads = CAT_UNSHARDED_GRADS };

/* One that ends an entry behind every third kernel. */
static void begin_cut_pass(void *toy)                       { ((struct toy *)toy)->walk.cuts = true; }
static bool cut(void *toy, const struct walk_run *r, int k) { (void)toy; return (k - r->k0) % 3 == 2; }
static const struct walk_hooks cut_hooks = { .compute = compute, .begin_pass = begin_cut_pass, .cut = cut, .fate = GRADS_KEEP,
                                             .grads = CAT_UNSHARDED_GRADS };

/* The same by a framework that makes the entries of a pass itself. */
static void cut_pass(void *toy, const struct walk_run *r)
{
    struct toy *t = toy;
    struct walk_run now = *r;
    int n = t->walk.s->program.piece[r->piece].nkernels[r->forward ? PASS_FORWARD : PASS_BACKWARD];

    for (int k = 3; now.k0 < n; k += 3)
        walk_to(&t->walk, &now, k < n ? k : n);
    walk_to(&t->walk, &now, n);             /* nothing is left */
}
static const struct walk_hooks pass_hooks = { .compute = compute, .begin_pass = begin_cut_pass, .pass = cut_pass, .fate = GRADS_KEEP,
                                              .grads = CAT_UNSHARDED_GRADS };

/* Entries of a step, a line each. */
struct text { char *at; size_t size; FILE *to; };

static void open_text(struct text *t) { assert_non_null(t->to = open_memstream(&t->at, &t->size)); }

static void line(struct text *t, const char *what, const char *of, int64_t unit) { fprintf(t->to, "%s %s %d\n", what, of, (int)unit); }

static int write_entry(const struct schedules *s, const struct op *o, int64_t iteration, void *text)
{
    (void)s;
    line(text, o->what, o->of ? o->of : "-", o->of ? o->unit + o->unit_by * iteration : -1);
    return 0;
}

static struct schedules s;

/* The toy's schedules. */
static void walked(const struct plan *p, const struct walk_hooks *hooks, bool first_differs, bool last_differs)
{
    struct toy t;
    struct local_model local;
    struct program g = { 0 };

    schedules_reset(&s);
    assert_int_equal(program_build(p, &g), 0);
    program_free(&s.program);
    s.program = g;
    plan_groups(p, &s.groups);
    assert_int_equal(local_model_of(p, 0, &local), 0);
    walk_open(&t.walk, &local, NULL, &s, hooks, &t);
    t.walk.first_differs = first_differs;
    t.walk.last_differs = last_differs;
    lower_declare_activations(&s, &local, t.walk.acts);
    assert_int_equal(walk_steps(&t.walk), 0);
    local_model_free(&local);
}

static void expect_pass(struct text *e, const struct plan *p, bool forward)
{
    static const char *const pre[] = { "pre_backward", "pre_forward" }, *const post[] = { "post_backward", "post_forward" };
    const char *what = forward ? "forward" : "backward";
    struct unit_map m;

    unit_map_of(&m, p);
    line(e, pre[forward], "root", 0);
    line(e, what, forward ? "embedding" : "head", 0);
    for (int i = 0; m.n == 0 && i < (int)p->model.layers; i++)
        line(e, what, "block", forward ? i : (int)p->model.layers - 1 - i);
    for (int i = 0; i < m.n; i++) {
        struct unit_ref u = unit_at(&m, forward ? i : m.n - 1 - i);
        line(e, pre[forward], unit_class_name(u.cls), u.index);
        for (int k = 0; k < u.nblocks; k++)
            line(e, what, "block", forward ? u.block + k : u.block + u.nblocks - 1 - k);
        line(e, post[forward], unit_class_name(u.cls), u.index);
    }
    line(e, what, forward ? "head" : "embedding", 0);
    line(e, post[forward], "root", 0);
}

static void comes_in_order(const struct plan *p)
{
    struct text want = { 0 };

    open_text(&want);
    line(&want, "begin", "root", 0);
    for (int64_t m = 0; m < p->accumulation; m++) {
        expect_pass(&want, p, true);
        expect_pass(&want, p, false);
        line(&want, "end_of_micro_step", "root", 0);
    }
    line(&want, "end_of_backward", "root", 0);
    line(&want, "optimizer", "root", 0);
    line(&want, "read the loss", "-", -1);
    fclose(want.to);
    for (int differs = 0; differs < 4; differs++) {
        walked(p, &all_hooks, differs & 1, differs & 2);
        for (int id = SCHED_FIRST; id <= SCHED_STEADY; id++) {
            struct text got = { 0 };
            open_text(&got);
            sched_walk(&s, (enum sched_id)id, write_entry, &got);
            fclose(got.to);
            assert_string_equal(got.at, want.at);
            free(got.at);
        }
    }
    free(want.at);
}

/* Layers 1 to 7, each kind of unit, blocks that are computed anew, 1 to 4 micro-steps. */
static void every_plan(void (*f)(const struct plan *p))
{
    for (int layers = 1; layers <= 7; layers++) {
        struct plan p;
        plan_of(&p, "gpt2", layers, 2, STRAT_FSDP, DIALECT_PAPER, DT_FP32);
        p.micro_batch = 1;
        p.seq = 8;
        for (int unit = 0; unit < 5; unit++)
            for (int again = 0; again < 2; again++)
                for (p.accumulation = 1; p.accumulation <= 4; p.accumulation++) {
                    p.unit = unit == 0 ? UNIT_HALF_BLOCK : unit == 1 ? UNIT_MODEL : unit == 2 ? UNIT_BLOCK : UNIT_BLOCKS;
                    p.unit_blocks = p.unit == UNIT_BLOCKS ? unit - 1 : 1;
                    p.recompute = again ? RECOMPUTE_FULL : RECOMPUTE_NONE;
                    if (p.unit_blocks <= layers)
                        f(&p);
                }
        plan_free(&p);
    }
}

static void hooks_come_around_modules_as_autograd_comes_to_them(void **state)
{
    (void)state;
    every_plan(comes_in_order);
}

struct sums { int kept[NPIECE][2]; int64_t kernels[NPASS]; };

static int weigh(const struct schedules *of, const struct op *o, int64_t iteration, void *sums)
{
    struct sums *b = sums;

    (void)iteration;
    if (o->kind != OP_COMPUTE)
        return 0;
    b->kernels[o->u.compute.pass] += o->u.compute.k1 - o->u.compute.k0;
    for (uint32_t i = 0; i < o->nacts; i++)
        b->kept[o->u.compute.piece][of->acts[o->act0 + i].what == ACT_FREE]++;
    return 0;
}

static int64_t kernels_of(const struct plan *p, enum pass pass)
{
    int64_t n = s.program.piece[PIECE_EMBED].nkernels[pass] + s.program.piece[PIECE_HEAD].nkernels[pass];

    for (int b = 0; b < p->model.layers; b++)
        n += s.program.piece[program_piece_of_block(p, b)].nkernels[pass];
    return n * p->accumulation;
}

/* Whatever the units, or where entries end: each kernel once, each block's activations kept once and dropped once. */
static void runs_all_of(const struct plan *p, const struct walk_hooks *hooks)
{
    walked(p, hooks, false, false);
    for (int id = SCHED_FIRST; id <= SCHED_STEADY; id++) {
        struct sums b = { 0 };
        sched_walk(&s, (enum sched_id)id, weigh, &b);
        for (int pass = 0; pass < NPASS; pass++)
            assert_int_equal(b.kernels[pass], kernels_of(p, (enum pass)pass));
        for (int i = 0; i < NPIECE; i++)
            assert_int_equal(b.kept[i][0], b.kept[i][1]);
        assert_int_equal(b.kept[PIECE_EMBED][0], p->accumulation);
    }
}

static void runs_all(const struct plan *p)
{
    runs_all_of(p, &no_hooks);
    if (p->unit != UNIT_MODEL)
        return;
    runs_all_of(p, &cut_hooks);
    runs_all_of(p, &pass_hooks);
}

static void each_kernel_runs_once_and_what_blocks_keep_goes_again(void **state)
{
    (void)state;
    every_plan(runs_all);
}

static int free_all(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_come_around_modules_as_autograd_comes_to_them),
        cmocka_unit_test(each_kernel_runs_once_and_what_blocks_keep_goes_again),
    };
    return cmocka_run_group_tests_name("model/walk", tests, NULL, free_all);
}
