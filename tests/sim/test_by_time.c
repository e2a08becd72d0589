/* What is too slow is not looked at where only the first plan is asked for: the same plan comes first as in the whole search, whatever the
 * number of threads; and the bound of time is below the step.  The ideas of a whole search are those of one that leaves nothing out, but for
 * slower ones that keep data elsewhere than in device memory. */
#include "tests/model/plans.h"

#include <math.h>
#include <string.h>

#include "model/plan/knob.h"
#include "sim/clock/step.h"
#include "sim/search/bounds.h"
#include "sim/search/enumerate.h"
#include "sim/search/ranking.h"

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
    static const char *const models[] = { "llama-3.1-8b", "llama-2-7b", "qwen2.5-7b", "gpt2-xl" };
    static const char *const clusters[] = { "1xh100", "2xh100", "2x2xa100-40gb", "4xh100", "2xl40s" };
    struct model whole;

    memset(p, 0, sizeof *p);
    assert_int_equal(model_load(models[one_of(4)], &whole), 0);
    assert_int_equal(model_with_layers(&whole, 2 + (int)one_of(4), &p->m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load(clusters[one_of(5)], &p->c), 0);
    p->c.memory = (int64_t)(6 + one_of(40)) << 30;
    p->o = (struct search_options){
        .model = &p->m, .cluster = &p->c, .seq = INT64_C(512) << one_of(2), .global_batch = p->c.world_size * (1 + one_of(6)),
        .strategies = ~0u, .dialects = one_of(2) ? 1u << DIALECT_TORCH : 1u << DIALECT_TORCH | 1u << DIALECT_DEEPSPEED | 1u << DIALECT_MEGATRON,
        .kernels = KERNELS_TORCH_SDPA, .usual_kernels = true, .precision = DT_BF16, .in_place = one_of(2), .threads = 1,
        .grid = one_of(3) ? GRID_NONE : GRID_BESIDE,
    };
}

static int64_t first_of(struct problem *p, bool answer_only, int threads, struct search_result *r, struct ranked *first)
{
    int64_t tied;

    p->o.answer_only = answer_only;
    p->o.threads = threads;
    assert_int_equal(search(&p->o, r), 0);
    return r->nfit ? ranking(r, first, 1, &tied) : 0;
}

static void assert_same(const struct ranked *a, const struct ranked *b)
{
    const struct found *f = a->found, *g = b->found;
    char words[2][KNOB_LABEL];

    knob_label(&f->plan, words[0], sizeof words[0]);
    knob_label(&g->plan, words[1], sizeof words[1]);
    assert_string_equal(words[0], words[1]);
    assert_int_equal(f->needed, g->needed);
    assert_int_equal(a->tight, b->tight);
    assert_true(fabs(a->step_s - b->step_s) <= 1e-12 * b->step_s);       /* the retries of the allocator in both */
    assert_true(fabs(a->low_s - b->low_s) <= 1e-12 * b->low_s);      /* sums of other orders */
    assert_memory_equal(&a->low_s, &b->low_s, sizeof a->low_s);
}

enum { PROBLEMS = 40 };

static void the_first_plan_is_that_of_the_whole_search(void **state)
{
    int64_t cut = 0, fitting = 0;

    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct problem p;
        struct search_result all, one, three;
        struct ranked of[3];
        problem_init(&p);
        int64_t n = first_of(&p, false, 1, &all, &of[0]);
        assert_int_equal(first_of(&p, true, 1, &one, &of[1]), n);
        assert_int_equal(first_of(&p, true, 3, &three, &of[2]), n);
        if (n > 0) {
            assert_same(&of[1], &of[0]);
            assert_same(&of[2], &of[0]);
        }
        assert_string_equal(one.alone, all.alone);
        assert_true(one.lowered == three.lowered && one.cut_by_time == three.cut_by_time && one.considered == three.considered);
        assert_int_equal(one.considered, one.cut + one.cut_by_time + one.lowered + one.nrefused);
        fitting += n > 0;
        cut += one.cut_by_time - all.cut_by_time;
        search_free(&all);
        search_free(&one);
        search_free(&three);
        model_free(&p.m);
    }
    assert_true(cut > 0 && fitting > PROBLEMS / 2);
    print_message("%d of %d fit; %d plans not looked at\n", (int)fitting, PROBLEMS, (int)cut);
}

enum { IDEAS = 10 };

static int64_t ideas_of(struct problem *p, bool exhaustive, struct search_result *r, struct ranked of[IDEAS], int64_t *tied)
{
    p->o.exhaustive = exhaustive;
    p->o.answer_only = false;
    assert_int_equal(search(&p->o, r), 0);
    return r->nfit ? ranking(r, of, IDEAS, tied) : 0;
}

/* Can it be on a front: in device memory, not deprecated, and with so much room that the allocator hardly refuses it? */
static bool counts(const struct found *f)
{
    return f->fits && !f->elsewhere && !ranking_deprecated(&f->plan) && (double)f->needed <= .9 * (double)f->available;
}

/* What no plan in device memory is both faster and smaller than was looked at; how many there are. */
static int64_t assert_front(const struct search_result *all, const struct search_result *r)
{
    int64_t n = 0;

    for (int64_t i = 0; i < all->nfit; i++) {
        const struct found *f = &all->found[i];
        bool beaten = !counts(f) || !plan_is_data_parallel(&f->plan), there = false;     /* of grids only what may be fast is looked at */
        for (int64_t k = 0; k < i && !beaten; k++)      /* by time */
            beaten = counts(&all->found[k]) && all->found[k].needed <= f->needed;
        for (int64_t k = 0; k < r->nfit && !beaten && !there; k++)
            there = r->found[k].needed == f->needed && fabs(r->found[k].step_s - f->step_s) <= 1e-12 * f->step_s;
        assert_true(beaten || there);
        n += !beaten;
    }
    return n;
}

/* The fastest that fits of a strategy and dialect; NULL: none does. */
static const struct found *best_of(const struct search_result *r, const struct plan *of)
{
    for (int64_t i = 0; i < r->nfit; i++)
        if (r->found[i].fits && r->found[i].plan.strategy == of->strategy && r->found[i].plan.dialect == of->dialect)
            return &r->found[i];
    return NULL;
}

/* Each strategy and dialect that fits somehow has its fastest, but where a slow one with data elsewhere would be that; how many fit
 * only so. */
static int64_t assert_cells(const struct search_result *all, const struct search_result *r)
{
    int64_t only = 0;

    for (int64_t i = 0; i < all->nfit; i++) {
        const struct found *f = &all->found[i], *best = best_of(all, &f->plan), *there = best_of(r, &f->plan);
        if (f != best)
            continue;
        bool in_place = false;
        for (int64_t k = i; k < all->nfit; k++)
            in_place |= all->found[k].fits && !all->found[k].elsewhere && all->found[k].plan.strategy == f->plan.strategy &&
                        all->found[k].plan.dialect == f->plan.dialect;
        assert_non_null(there);
        assert_true((f->elsewhere && in_place) || fabs(there->step_s - f->step_s) <= 1e-12 * f->step_s);
        only += !in_place;
    }
    return only;
}

/* Ties are the same; behind them the same plans come in the same order, but that an idea with data elsewhere may be missing. */
static void the_ideas_are_those_of_an_exhaustive_search(void **state)
{
    int64_t missing = 0, ties = 0, fewer = 0, front = 0, only = 0;

    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct problem p;
        struct search_result r[2];
        struct ranked all[IDEAS], of[IDEAS];
        int64_t tied[2] = { 0, 0 }, k = 0;
        problem_init(&p);
        int64_t n = ideas_of(&p, true, &r[0], all, &tied[0]), m = ideas_of(&p, false, &r[1], of, &tied[1]);
        assert_int_equal(n > 0, m > 0);
        assert_int_equal(tied[0], tied[1]);
        for (int64_t j = 0; j < n && k < m; j++) {
            if (j >= tied[0] && all[j].found->elsewhere && !ranking_same_idea(&all[j].found->plan, &of[k].found->plan)) {
                missing++;
                continue;
            }
            assert_same(&of[k++], &all[j]);
        }
        front += assert_front(&r[0], &r[1]);
        only += assert_cells(&r[0], &r[1]);
        ties += tied[0];
        fewer += r[0].lowered - r[1].lowered;
        search_free(&r[0]);
        search_free(&r[1]);
        model_free(&p.m);
    }
    assert_true(fewer > 0 && ties > PROBLEMS / 2 && only > 0);
    print_message("%d ties, %d plans of fronts and %d strategies that fit with data elsewhere alone; %d plans less looked at, %d slow ideas "
                  "with data elsewhere are missing\n", (int)ties, (int)front, (int)only, (int)fewer, (int)missing);
}

/* Every seventh of the data-parallel plans. */
static int below(const struct plan *p, void *arg)
{
    int64_t *n = arg;
    struct program g = { 0 };
    struct evaluation e;
    struct stage_parts parts;
    struct timeline t;
    struct coll_memo memo = { 0 };

    if ((*n)++ % 7)
        return 0;
    assert_int_equal(program_build(p, &g), 0);
    struct cost_cache *cache = cost_cache_new(p);
    double least = bounds_step_s(p, &g, cache);
    assert_int_equal(evaluate_allocated(p, &e), 0);
    assert_int_equal(step_time(p, &e, cache, &memo, &t, &parts), 0);
    if (least > t.step_s) {
        char words[KNOB_LABEL];
        knob_label(p, words, sizeof words);
        fail_msg("%s: a bound of %g s above the step of %g s", words, least, t.step_s);
    }
    cost_cache_free(cache);
    evaluation_free(&e);
    program_free(&g);
    return 0;
}

static void no_step_is_faster_than_its_bound(void **state)
{
    int64_t n = 0;

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct model whole, m;
        struct cluster c;
        assert_int_equal(model_load(k ? "llama-3.2-1b" : "gpt2", &whole), 0);
        assert_int_equal(model_with_layers(&whole, 4, &m), 0);
        assert_int_equal(cluster_load(k ? "2x2xa100-40gb" : "1xh100", &c), 0);
        struct search_options o = { .model = &m, .cluster = &c, .seq = 256, .global_batch = 8, .strategies = ~0ull, .dialects = ~0ull,
                                    .kernels = k ? KERNELS_TORCH_SDPA : KERNELS_DPX, .precision = DT_BF16, .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL };
        assert_int_equal(enumerate(&o, below, &n), 0);
        model_free(&m);
        model_free(&whole);
    }
    assert_true(n > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_step_is_faster_than_its_bound),
                                        cmocka_unit_test(the_first_plan_is_that_of_the_whole_search),
                                        cmocka_unit_test(the_ideas_are_those_of_an_exhaustive_search) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
