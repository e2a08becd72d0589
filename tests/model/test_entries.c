/* Facts in entries, so that neither clock nor executor tests for a framework: an optimizer's bytes and
 * passes, whether a Python hook issues a collective; and in programs: which attention and which kernels run. */
#include "tests/model/plans.h"

/* Calls `see` for every entry of the steady step. */
static int walk(const struct plan *p, int64_t rank, void (*see)(const struct op *o, void *arg), void *arg)
{
    struct schedules s = { 0 };
    int seen = 0;

    lowered(p, rank, &s);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++, seen++)
        see(&s.ops[i], arg);
    schedules_free(&s);
    return seen;
}

struct adamw { int n; uint32_t bytes; int passes, tensors; };

static void see_adamw(const struct op *o, void *arg)
{
    struct adamw *a = arg;

    if (o->kind != OP_OPTIMIZER)
        return;
    assert_true(a->n == 0 || (a->bytes == o->u.optimizer.bytes && a->passes == o->u.optimizer.passes));
    *a = (struct adamw){ a->n + 1, o->u.optimizer.bytes, o->u.optimizer.passes, o->u.optimizer.tensors };
}

static struct adamw adamw_of(enum strategy s, enum dialect d, enum kernel_set k, enum dtype t, bool bf16_model)
{
    struct adamw a = { 0 };
    struct plan p;

    plan_of(&p, "gpt2", 2, 2, s, d, t);
    p.kernels = k;
    if (bf16_model) {
        p.ddp.model_dtype = DT_BF16;
        plan_resolve(&p);
    }
    walk(&p, 0, see_adamw, &a);
    assert_true(a.n > 0);
    assert_int_equal(a.tensors, p.model.ntensors);
    plan_free(&p);
    return a;
}

static void is(struct adamw a, int bytes, int passes)
{
    assert_int_equal(a.bytes, bytes);
    assert_int_equal(a.passes, passes);
}

/* One kernel reads p, m, v, g and writes p, m, v: 7 * 4 bytes, and 2 where it writes a 16-bit copy too;
 * DeepSpeed makes that by a pass which reads the master again: 28 + 4 + 2. */
static void one_kernel_reads_four_and_writes_three(void **state)
{
    (void)state;
    is(adamw_of(STRAT_ZERO2, DIALECT_PAPER, KERNELS_DPX, DT_FP32, false), 28, 1);
    is(adamw_of(STRAT_ZERO2, DIALECT_PAPER, KERNELS_DPX, DT_BF16, false), 30, 1);
    is(adamw_of(STRAT_DP, DIALECT_PAPER, KERNELS_DPX, DT_BF16, false), 30, 1);
    is(adamw_of(STRAT_DDP, DIALECT_DEEPSPEED, KERNELS_TORCH_SDPA, DT_FP32, false), 28, 1);
    for (int s = STRAT_DDP; s <= STRAT_ZERO3; s++)
        is(adamw_of((enum strategy)s, DIALECT_DEEPSPEED, KERNELS_TORCH_SDPA, DT_BF16, false), 34, 2);
}

/* p*= 8 bytes, lerp m 12, v*= 8, addcmul v 12, sqrt 8, /= 8, += 8, addcdiv p 16: 80 in fp32, half of
 * that where parameters and states are 16-bit.  dpx's own kernels make it one pass. */
static void foreach_passes_eight_times(void **state)
{
    (void)state;
    static const struct { enum strategy s; enum dialect d; } cells[] = {
        { STRAT_DP, DIALECT_TORCH }, { STRAT_DDP, DIALECT_TORCH }, { STRAT_ZERO1, DIALECT_TORCH },
        { STRAT_FSDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH_FSDP1 },
    };

    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        is(adamw_of(cells[i].s, cells[i].d, KERNELS_TORCH_SDPA, DT_BF16, false), 80, 8);
        is(adamw_of(cells[i].s, cells[i].d, KERNELS_DPX, DT_BF16, false), 28, 1);
    }
    is(adamw_of(STRAT_DDP, DIALECT_TORCH, KERNELS_TORCH_SDPA, DT_BF16, true), 40, 8);
}

struct issuers { int hooks, others, elsewhere; };

static void see_issuer(const struct op *o, void *arg)
{
    struct issuers *n = arg;

    if (o->kind == OP_COLL)
        (o->flags & OPF_HOOK ? n->hooks++ : n->others++);
    else
        n->elsewhere += (o->flags & OPF_HOOK) != 0;
}

/* FSDP's and DeepSpeed's stages' collectives come from hooks written in Python, all others from C++ or from the
 * optimizer's own code. */
static void only_units_are_fetched_by_hooks(void **state)
{
    (void)state;
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            for (int t = DT_FP32; t <= DT_FP16; t++) {
                struct issuers n = { 0 };
                struct plan p;
                if (!dialect_has((enum dialect)d, (enum strategy)s) || (d == DIALECT_MEGATRON && t == DT_FP16))     /* refused */
                    continue;
                plan_of(&p, "gpt2", 2, 2, (enum strategy)s, (enum dialect)d, (enum dtype)t);
                p.clip = 1;
                walk(&p, 0, see_issuer, &n);
                plan_free(&p);
                bool buckets = d == DIALECT_DEEPSPEED && (s == STRAT_ZERO1 || s == STRAT_ZERO2);      /* a hook copies each gradient, too */
                bool hooked = s == STRAT_FSDP || (s == STRAT_ZERO3 && d == DIALECT_DEEPSPEED);
                assert_true(buckets ? n.hooks > 0 : hooked ? n.hooks > 0 && n.others == 0 : n.hooks == 0 && n.others > 0);
                assert_true(buckets ? n.elsewhere > 0 : n.elsewhere == 0);
            }
}

static enum flash flash_in(enum dialect d, enum kernel_set k, const char *version)
{
    struct program g = { 0 };
    struct plan p;
    enum flash f;

    plan_of(&p, "gpt2", 2, 2, STRAT_FSDP, d, DT_BF16);
    p.kernels = k;
    snprintf(p.framework_version, sizeof p.framework_version, "%s", version);
    assert_int_equal(program_build(&p, &g), 0);
    f = g.flash;
    program_free(&g);
    plan_free(&p);
    return f;
}

/* PyTorch: FlashAttention-2 since 2.2, cuDNN's first since 2.13. */
static void a_program_says_which_attention_it_runs(void **state)
{
    (void)state;
    assert_int_equal(flash_in(DIALECT_TORCH_FSDP1, KERNELS_TORCH_SDPA, "2.1"), FLASH_1);
    assert_int_equal(flash_in(DIALECT_TORCH_FSDP1, KERNELS_TORCH_SDPA, "2.2"), FLASH_2);
    assert_int_equal(flash_in(DIALECT_TORCH, KERNELS_TORCH_SDPA, "2.9"), FLASH_2);
    assert_int_equal(flash_in(DIALECT_TORCH, KERNELS_TORCH_SDPA, "2.15"), FLASH_CUDNN);
    assert_int_equal(flash_in(DIALECT_TORCH, KERNELS_DPX, "2.15"), FLASH_2);
}

/* Equal for plans that differ in what no kernel sees, and no others. */
static void the_keys_of_passes_tell_kernels_apart(void **state)
{
    struct program a = { 0 }, b = { 0 };
    struct plan p, q;

    (void)state;
    plan_of(&p, "gpt2", 2, 2, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    q = p;
    q.accumulation = 4;
    q.unit = UNIT_MODEL;
    assert_int_equal(program_build(&p, &a), 0);
    assert_int_equal(program_build(&q, &b), 0);
    for (int i = 0; i < NPIECE; i++)
        assert_memory_equal(a.piece[i].key, b.piece[i].key, sizeof a.piece[i].key);
    q.micro_batch = 2;
    assert_int_equal(program_build(&q, &b), 0);
    assert_true(a.piece[PIECE_BLOCK].key[PASS_FORWARD] != b.piece[PIECE_BLOCK].key[PASS_FORWARD]);
    assert_true(a.piece[PIECE_HEAD].key[PASS_BACKWARD] != b.piece[PIECE_HEAD].key[PASS_BACKWARD]);
    q.micro_batch = 1;
    q.kernels = KERNELS_TORCH_EAGER;
    assert_int_equal(program_build(&q, &b), 0);
    assert_true(a.piece[PIECE_BLOCK].key[PASS_FORWARD] != b.piece[PIECE_BLOCK].key[PASS_FORWARD]);
    program_free(&a);
    program_free(&b);
    plan_free(&p);
}

struct reads { int waits; int64_t n; };

static void see_reads(const struct op *o, void *arg)
{
    struct reads *r = arg;

    if (o->kind != OP_WAIT || o->u.wait.reads == 0)
        return;
    r->waits++;
    r->n += o->u.wait.reads;
}

/* prime-rl's loop reads each position of a micro-step once, before the last micro-step's backward and before each other. */
static void positions_are_read_once_a_micro_step(void **state)
{
    (void)state;
    for (int reads = 0; reads < 2; reads++) {
        struct reads r = { 0 };
        struct plan p;
        plan_of(&p, "gpt2", 2, 2, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.kernels = KERNELS_TORCH_SDPA;
        p.accumulation = 2;
        p.fsdp.reads_positions = reads;
        walk(&p, 0, see_reads, &r);
        assert_int_equal(r.waits, 2 * reads);
        assert_int_equal(r.n, 2 * reads * p.micro_batch * p.seq);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_kernel_reads_four_and_writes_three),
        cmocka_unit_test(foreach_passes_eight_times),
        cmocka_unit_test(only_units_are_fetched_by_hooks),
        cmocka_unit_test(a_program_says_which_attention_it_runs),
        cmocka_unit_test(the_keys_of_passes_tell_kernels_apart),
        cmocka_unit_test(positions_are_read_once_a_micro_step),
    };

    return cmocka_run_group_tests_name("model/entries", tests, NULL, NULL);
}
