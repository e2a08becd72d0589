/* Plans that are said to have the same program have it: one key of a random plan is changed at a time, and both are built. */
#include "tests/check.h"
#include "tests/model/random_plan.h"

#include "model/program/program.h"

enum { NMODELS = 4, PLANS = 400 };

static void same_kernel(const struct kernel *a, const struct kernel *b)
{
    assert_string_equal(a->name, b->name);
    assert_true(a->flops == b->flops && a->bytes == b->bytes);
    assert_memory_equal(a->peak, b->peak, sizeof a->peak);
    assert_memory_equal(a->net, b->net, sizeof a->net);
    assert_true(a->scaled == b->scaled && a->captured == b->captured && a->rough == b->rough && a->attends == b->attends);
    assert_true(a->module == b->module && a->half == b->half && a->sums == b->sums && a->collective == b->collective);
    assert_true(a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch);
    assert_true(a->copied == b->copied && a->pinned == b->pinned && a->nplaces == b->nplaces);
    assert_true(a->ready_bytes == b->ready_bytes && !memcmp(a->ready, b->ready, sizeof a->ready));
}

/* What the allocator is asked for, in its order; dpx's own kernels have places in its stead. */
static void same_moves(const struct piece *a, const struct piece *b, int pass)
{
    assert_true(!a->moves[pass] == !b->moves[pass]);
    if (!a->moves[pass])
        return;
    for (int k = 0; k < a->nkernels[pass]; k++) {
        const struct kernel *x = &a->kernels[pass][k], *y = &b->kernels[pass][k];
        assert_int_equal(x->nmoves, y->nmoves);
        for (int i = 0; i < x->nmoves; i++) {
            const struct move *m = &a->moves[pass][x->move0 + i], *n = &b->moves[pass][y->move0 + i];
            assert_true(m->kind == n->kind && m->bytes == n->bytes);
        }
    }
}

static void same_piece(const struct piece *a, const struct piece *b)
{
    assert_true(a->saved == b->saved && a->outlives == b->outlives && a->held == b->held && a->split == b->split && a->pinned == b->pinned);
    for (int s = 0; s < NPASS; s++) {
        assert_int_equal(a->nkernels[s], b->nkernels[s]);
        assert_int_equal(a->ncollectives[s], b->ncollectives[s]);
        for (int k = 0; k < a->nkernels[s]; k++)
            same_kernel(&a->kernels[s][k], &b->kernels[s][k]);
        same_moves(a, b, s);
    }
}

static void same_program(const struct program *a, const struct program *b)
{
    for (int i = 0; i < NPIECE; i++)
        same_piece(&a->piece[i], &b->piece[i]);
    assert_true(!memcmp(a->returns, b->returns, sizeof a->returns));
    assert_true(a->boundary == b->boundary && a->flash == b->flash && a->cuda_12_8 == b->cuda_12_8);
}

/* The plan with that key drawn anew; false: it has not changed, or is refused. */
static bool with_key(const struct plan *p, const struct knob *k, uint64_t *rng, struct plan *out)
{
    *out = *p;
    for (int tries = 0; tries < 3 && !memcmp(p, out, sizeof *p); tries++)
        draw_key(out, k, rng);
    if (!memcmp(p, out, sizeof *p))
        return false;
    plan_resolve(out);
    return draw_accepted(out);
}

/* What a search varies most may not cost it a program each; buckets cut the graphs of blocks that are compiled under DDP. */
static bool moves_states(const struct plan *p, const struct knob *k)
{
    static const char *const names[] = { "accumulation", "clip", "unit", "bucket_cap_mb", "reshard_after_forward", "sharding_strategy",
                                         "reduce_bucket_size", "stage3_max_live_parameters", "ddp_bucket_size" };

    if (!strcmp(k->name, "bucket_cap_mb") && p->kernels == KERNELS_TORCH_COMPILE && p->strategy == STRAT_DDP)
        return false;
    return draw_named(k, names, (int)(sizeof names / sizeof *names));
}

/* The same plan in the other strategies of its dialect. */
static int check_strategies_of(const struct plan *p, const struct program *mine, struct program *other)
{
    int shared = 0;

    for (int s = 0; s < NSTRATEGY; s++) {
        struct plan q = *p;
        if (s == (int)p->strategy || !dialect_has(p->dialect, (enum strategy)s))
            continue;
        q.strategy = (enum strategy)s;
        plan_resolve(&q);
        if (!draw_accepted(&q) || !program_is_shared(p, &q))
            continue;
        assert_int_equal(program_build(&q, other), 0);
        same_program(mine, other);
        shared++;
    }
    return shared;
}

static int strategies_shared;

static int check_keys_of(const struct plan *p, uint64_t *rng)
{
    struct program mine = { 0 }, other = { 0 };
    const struct knob *k;
    struct plan q;
    int shared = 0;

    if (program_build(p, &mine) < 0)
        return 0;
    strategies_shared += check_strategies_of(p, &mine, &other);
    for (int i = 0; (k = knob_at(i)); i++) {
        if (!(k->cells & knob_cell(p)) || !with_key(p, k, rng, &q))
            continue;
        if (!program_is_shared(p, &q)) {
            assert_false(moves_states(p, k));
            continue;
        }
        assert_int_equal(program_build(&q, &other), 0);
        same_program(&mine, &other);
        shared++;
    }
    program_free(&other);
    program_free(&mine);
    return shared;
}

/* A plan whose blocks are compiled under DDP, of which few are drawn. */
static bool draw_compiled(const struct model *m, const struct cluster *c, uint64_t *rng, struct plan *p)
{
    if (!draw_plan_of(m, c, rng, STRAT_DDP, DIALECT_TORCH, p))
        return false;
    p->kernels = KERNELS_TORCH_COMPILE;
    p->dropout = 0;
    plan_resolve(p);
    return draw_accepted(p);
}

static void a_program_is_shared_only_by_plans_that_have_it(void **state)
{
    static const char *const names[NMODELS] = { "gpt2", "llama-3.2-1b", "qwen3-0.6b", "mixtral-8x7b" };
    struct model whole, m[NMODELS];
    struct cluster c;
    uint64_t rng = 12345;
    int shared = 0, compiled = 0;
    char why[512];

    (void)state;
    assert_int_equal(cluster_load("8xh100", &c), 0);
    for (int i = 0; i < NMODELS; i++) {
        assert_int_equal(model_load(names[i], &whole), 0);
        assert_int_equal(model_with_layers(&whole, 4, &m[i]), 0);
        model_free(&whole);
    }
    for (int i = 0; i < PLANS; i++) {
        struct plan p;
        const struct model *of = &m[draw(&rng, NMODELS)];
        fail_capture(why, sizeof why);
        if (i % 2 == 0 && draw_compiled(of, &c, &rng, &p))
            compiled++;
        else
            draw_plan(of, &c, &rng, &p);
        fail_capture(why, sizeof why);
        shared += check_keys_of(&p, &rng);
        fail_capture(NULL, 0);
    }
    assert_true(shared > 5 * PLANS);
    assert_true(compiled > 10);
    assert_true(strategies_shared > PLANS / 10);
    for (int i = 0; i < NMODELS; i++)
        model_free(&m[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_is_shared_only_by_plans_that_have_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
