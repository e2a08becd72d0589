/* A search and its ranking are the same for any number of threads, to the last bit: those that have nothing to do look ahead, at grids, at variants
 * of an idea and at what does not fit, and what is not asked for after all must leave no trace. */
#include "tests/model/plans.h"

#include <string.h>

#include "base/parallel.h"
#include "sim/search/ranking.h"
#include "sim/search/search.h"

/* ---- small problems: a few blocks on 4 to 16 GPUs, with and without room ---- */

struct problem {
    struct model   m;
    struct cluster c;
    struct search_options o;
};

static uint32_t state_of_random = 54;

/* One of n: Numerical Recipes' generator. */
static int64_t one_of(int64_t n)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (int64_t)(state_of_random >> 8) % n;
}

static void problem_init(struct problem *p)
{
    static const char *const models[] = { "llama-3.1-8b", "llama-2-7b", "mixtral-8x7b" };
    static const char *const clusters[] = { "1x4xh100", "2x2xa100-40gb", "1x8xh100", "2x4xa100-80gb", "2x8xh100" };
    static const enum grid_use uses[] = { GRID_BESIDE, GRID_BESIDE, GRID_NONE, GRID_NEXT, GRID_ONLY };
    struct model whole;

    memset(p, 0, sizeof *p);
    assert_int_equal(model_load(models[one_of(3)], &whole), 0);
    assert_int_equal(model_with_layers(&whole, 2 + (int)one_of(3), &p->m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load(clusters[one_of(5)], &p->c), 0);
    p->c.memory = (int64_t)(3 + one_of(30)) << 30;
    p->o = (struct search_options){
        .model = &p->m, .cluster = &p->c, .seq = INT64_C(512) << one_of(4), .global_batch = p->c.world_size * (1 + one_of(3)), .strategies = ~0u,
        .dialects = 1u << DIALECT_TORCH | 1u << DIALECT_MEGATRON | (one_of(2) ? 1u << DIALECT_DEEPSPEED : 0), .kernels = KERNELS_TORCH_SDPA,
        .usual_kernels = true, .precision = DT_BF16, .in_place = one_of(2), .grid = uses[one_of(5)],
    };
}

/* ---- an answer ---- */

enum { IDEAS = 10 };

struct answer {
    const struct search_options *o;
    int rc;
    struct search_result r;
    struct ranked of[IDEAS];
    int64_t n, tied;
};

static int answer(void *of, int64_t i)
{
    struct answer *a = of;

    (void)i;
    a->rc = search(a->o, &a->r);
    if (a->rc == 0 && a->r.nfit > 0)
        a->n = ranking(&a->r, a->of, IDEAS, &a->tied);
    return 0;
}

static void answer_by(const struct problem *p, int threads, struct answer *out)
{
    struct search_options o = p->o;

    o.threads = threads;
    *out = (struct answer){ .o = &o };
    assert_int_equal(parallel_each(1, threads, answer, out), 0);
}

#define SAME(field) assert_memory_equal(&a->field, &b->field, sizeof a->field)

static void assert_same_found(const struct found *a, const struct found *b)
{
    assert_string_equal(strategy_name(a->plan.strategy), strategy_name(b->plan.strategy));
    SAME(plan.dialect);
    SAME(plan.micro_batch);
    SAME(plan.accumulation);
    SAME(plan.recompute);
    SAME(plan.parallel.tensor);
    SAME(plan.parallel.pipeline);
    SAME(order);
    SAME(key);
    SAME(needed);
    SAME(available);
    SAME(over);
    SAME(fits);
    SAME(looked_at);
    SAME(tight);
    SAME(elsewhere);
    SAME(at_least);
    SAME(waits);
    SAME(waits_known);
    SAME(taken);
    SAME(stands_for);
    SAME(step_s);
    SAME(retry_s);
    SAME(compute_s);
    SAME(exposed_s);
    SAME(optimizer_s);
    SAME(idle_s);
    SAME(slowest_s);
    SAME(seen.known);
    SAME(seen.views);
    SAME(seen.low_s);
    SAME(seen.high_s);
}

static void assert_same_rank(const struct ranked *a, const struct ranked *b)
{
    assert_same_found(a->found, b->found);
    SAME(departures);
    SAME(variants);
    SAME(tight);
    SAME(waits);
    SAME(tied);
    SAME(by_room);
    SAME(step_s);
    SAME(low_s);
    SAME(high_s);
    SAME(unsure_s);
    SAME(views);
}

static void assert_same_answer(const struct answer *x, const struct answer *y)
{
    const struct search_result *a = &x->r, *b = &y->r;

    assert_int_equal(x->rc, y->rc);
    if (x->rc < 0)
        return;
    SAME(n);
    SAME(nfit);
    SAME(considered);
    SAME(cut);
    SAME(cut_by_time);
    SAME(lowered);
    SAME(elsewhere);
    SAME(nrefused);
    SAME(grid);
    SAME(too_long);
    SAME(looked);
    assert_string_equal(a->alone, b->alone);
    assert_string_equal(a->refused, b->refused);
    for (int d = 0; d < NDIALECT; d++)
        assert_string_equal(a->why_none[d], b->why_none[d]);
    for (int64_t i = 0; i < a->n; i++)
        assert_same_found(&a->found[i], &b->found[i]);
    assert_int_equal(x->n, y->n);
    assert_int_equal(x->tied, y->tied);
    for (int64_t i = 0; i < x->n; i++)
        assert_same_rank(&x->of[i], &y->of[i]);
}

static void answer_free(struct answer *a)
{
    if (a->rc == 0)
        search_free(&a->r);
}

enum { PROBLEMS = 20 };

static void any_number_of_threads_has_the_same_answer(void **state)
{
    static const int threads[] = { 2, 64 };         /* so many begin before anything is known */
    int fit = 0, grids = 0;

    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct problem p;
        struct answer one, more;
        problem_init(&p);
        answer_by(&p, 1, &one);
        for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
            answer_by(&p, threads[k], &more);
            assert_same_answer(&one, &more);
            answer_free(&more);
        }
        fit += one.rc == 0 && one.r.nfit > 0;
        grids += one.rc == 0 && one.r.grid > 0;
        answer_free(&one);
        model_free(&p.m);
    }
    assert_true(fit > PROBLEMS / 3 && fit < PROBLEMS && grids > PROBLEMS / 4);
    print_message("%d of %d fit, %d with grids\n", fit, PROBLEMS, grids);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(any_number_of_threads_has_the_same_answer) };

    return cmocka_run_group_tests_name("sim/threads", tests, NULL, NULL);
}
