/* The search over tensor, context and pipeline parallelism against exhaustion, and its bounds against the truth. */
#include "tests/model/plans.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "sim/search/bounds.h"
#include "sim/search/ranking.h"
#include "sim/search/grid.h"
#include "sim/search/search.h"

/* ---- small problems: a few of llama's blocks on 4 to 16 GPUs ---- */

struct problem {
    struct model   m;
    struct cluster c;
    struct search_options o;
};

static uint32_t state_of_random = 22;

/* One of n: Numerical Recipes' generator. */
static int64_t one_of(int64_t n)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (int64_t)(state_of_random >> 8) % n;
}

static void problem_init(struct problem *p)
{
    static const char *const models[] = { "llama-3.1-8b", "llama-2-7b", "qwen2.5-7b" };
    static const char *const clusters[] = { "1x4xh100", "2x2xa100-40gb", "1x8xh100", "2x4xa100-80gb", "2x8xh100", "4x4xh100" };
    struct model whole;

    memset(p, 0, sizeof *p);
    assert_int_equal(model_load(models[one_of(3)], &whole), 0);
    assert_int_equal(model_with_layers(&whole, 2 + (int)one_of(5), &p->m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load(clusters[one_of(6)], &p->c), 0);
    p->c.memory = (int64_t)(8 + one_of(25)) << 30;
    p->o = (struct search_options){
        .model = &p->m, .cluster = &p->c, .seq = one_of(12) ? INT64_C(512) << one_of(5) : 32768,
        .global_batch = p->c.world_size * (1 + one_of(3)) / (one_of(2) ? 1 : 4), .strategies = one_of(3) ? 1u << STRAT_FSDP : ~0u,
        .dialects = 1u << DIALECT_TORCH, .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16, .threads = 1, .grid = GRID_ONLY,
    };
    p->o.global_batch += p->o.global_batch == 1;        /* of one sample nodes of 2 may have no plan */
    if (!one_of(5)) {
        p->o.dialects = 1u << DIALECT_PAPER;
        p->o.global_batch = p->c.world_size * 2;
        p->o.kernels = KERNELS_DPX;
        p->o.strategies = ~0u;
    }
}

static struct search_result searched(const struct problem *p)
{
    struct search_result r;

    if (search(&p->o, &r) < 0)
        fail_msg("not searched: %s, %lld layers, %s, seq %lld, batch %lld, dialects %llx", p->m.name, (long long)p->m.layers, p->c.name,
                 (long long)p->o.seq, (long long)p->o.global_batch, (unsigned long long)p->o.dialects);
    return r;
}

static void assert_same(const struct found *a, const struct found *b)
{
    assert_true(a->order == b->order && a->needed == b->needed && a->tight == b->tight);
    assert_memory_equal(&a->step_s, &b->step_s, sizeof a->step_s);
}

/* The first line is not always the fastest plan: plans may tie. */
static void assert_same_answer(const struct search_result *a, const struct search_result *b)
{
    struct ranked x, y;
    int64_t tied[2];

    assert_int_equal(ranking(a, &x, 1, &tied[0]), 1);
    assert_int_equal(ranking(b, &y, 1, &tied[1]), 1);
    assert_same(x.found, y.found);
    assert_int_equal(tied[0], tied[1]);
}

static void assert_bounds_memory(const struct found *f)
{
    struct program g = { 0 };

    assert_int_equal(program_build(&f->plan, &g), 0);
    assert_true(bounds_bytes(&f->plan, &g) <= f->needed);
    program_free(&g);
}

enum { PROBLEMS = 100 };

static void winner_is_that_of_exhaustion(void **state)
{
    int64_t cut = 0, cut_by_time = 0, fitting = 0;

    (void)state;
    for (int i = 0; i < PROBLEMS; i++) {
        struct problem p;
        problem_init(&p);
        struct search_result r = searched(&p);
        p.o.exhaustive = true;
        struct search_result all = searched(&p);
        assert_int_equal(r.considered, all.considered);
        assert_int_equal(r.considered, r.cut + r.cut_by_time + r.lowered);
        assert_true(all.cut == 0 && all.cut_by_time == 0 && (r.nfit > 0) == (all.nfit > 0));
        for (int64_t k = 0; k < all.nfit; k++)
            assert_bounds_memory(&all.found[k]);
        for (int64_t k = 0; k < all.nfit; k++)
            if (all.found[k].bound_s > all.found[k].step_s)
                fail_msg("problem %d, plan %lld: a bound of %g s above the step of %g s", i, (long long)all.found[k].order,
                         all.found[k].bound_s, all.found[k].step_s);
        if (all.nfit > 0) {
            assert_same(&r.found[0], &all.found[0]);
            assert_same_answer(&r, &all);
            fitting++;
        } else {
            assert_int_equal(r.found[0].order, all.found[0].order);
        }
        cut += r.cut;
        cut_by_time += r.cut_by_time;
        search_free(&r);
        search_free(&all);
        model_free(&p.m);
    }
    assert_true(cut > 0 && cut_by_time > 0 && fitting > PROBLEMS / 2 && fitting < PROBLEMS);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct problem p;
        problem_init(&p);
        struct search_result one = searched(&p);
        for (p.o.threads = 2; p.o.threads <= 3; p.o.threads++) {
            struct search_result r = searched(&p);
            assert_true(r.n == one.n && r.nfit == one.nfit && r.cut == one.cut && r.cut_by_time == one.cut_by_time);
            for (int64_t k = 0; k < r.n; k++)
                assert_same(&r.found[k], &one.found[k]);
            search_free(&r);
        }
        search_free(&one);
        model_free(&p.m);
    }
}

/* 4 blocks of llama-3.1-8b on 8 GPUs: 7 samples are no multiple of 8 ranks, but a pipeline of 8, or of 4 with tensor 2, takes them;
 * and DDP's 16 bytes of each of 1.9e9 parameters do not fit into 24 GiB, while those of a quarter do. */
static void what_data_parallelism_cannot_do_a_grid_does(void **state)
{
    struct problem p;
    struct search_result r;
    char why[256];

    (void)state;
    problem_init(&p);
    model_free(&p.m);
    struct model whole;
    assert_int_equal(model_load("llama-3.1-8b", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 4, &p.m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load("8xh100", &p.c), 0);
    p.o = (struct search_options){ .model = &p.m, .cluster = &p.c, .seq = 2048, .global_batch = 7, .strategies = ~0u, .in_place = true,
                                   .dialects = 1u << DIALECT_TORCH, .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16 };
    fail_capture(why, sizeof why);
    assert_int_equal(search(&p.o, &r), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "not a multiple of the 8 ranks"));
    p.o.grid = GRID_NEXT;
    r = searched(&p);
    assert_string_equal(r.alone, why);
    assert_true(r.nfit > 0 && r.found[0].plan.parallel.tensor * r.found[0].plan.parallel.pipeline == 8);
    search_free(&r);

    p.o.global_batch = 8;
    p.o.strategies = 1u << STRAT_DDP;
    p.o.dialects = 1u << DIALECT_PAPER;
    p.o.kernels = KERNELS_DPX;
    p.c.memory = INT64_C(24) << 30;
    r = searched(&p);
    assert_string_equal(r.alone, "nothing fits");
    assert_true(r.nfit > 0 && r.found[0].plan.strategy == STRAT_DDP && plan_data_ranks(&r.found[0].plan) < 8);
    search_free(&r);

    p.c.memory = INT64_C(60) << 30;     /* data parallelism has a plan: nothing else is looked at */
    r = searched(&p);
    assert_true(!r.alone[0] && r.nfit > 0 && plan_data_ranks(&r.found[0].plan) == 8);
    search_free(&r);
    model_free(&p.m);
}

/* The fastest of a result that is, or is not, data parallelism alone; INFINITY: none fits. */
static double fastest(const struct search_result *r, bool alone)
{
    for (int64_t i = 0; i < r->nfit; i++)
        if (plan_is_data_parallel(&r->found[i].plan) == alone && r->found[i].looked_at)
            return r->found[i].step_s;
    return INFINITY;
}

static void beside_data_parallelism_the_fastest_of_both_is_first(void **state)
{
    int joined = 0, all = 0;

    (void)state;
    for (int i = 0; all < 6; i++) {
        struct problem p;
        struct search_result r, alone, grid;
        problem_init(&p);
        p.o.in_place = true;
        p.o.grid = GRID_NONE;
        if (p.o.dialects != 1u << DIALECT_TORCH || p.o.global_batch % p.c.world_size) {
            model_free(&p.m);
            continue;
        }
        alone = searched(&p);
        p.o.grid = GRID_BESIDE;
        r = searched(&p);
        p.o.grid = GRID_ONLY;
        p.o.exhaustive = true;
        grid = searched(&p);
        if (alone.nfit > 0) {
            double want = fmin(fastest(&alone, true), fastest(&grid, false));
            assert_memory_equal(&r.found[0].step_s, &want, sizeof want);
            assert_int_equal(r.considered, alone.considered + r.grid);
            assert_true(r.grid > 0 && r.too_long == 0 && r.considered >= r.cut + r.cut_by_time + r.lowered);
            joined += !plan_is_data_parallel(&r.found[0].plan);
            all++;
        }
        search_free(&alone);
        search_free(&grid);
        search_free(&r);
        model_free(&p.m);
    }
    assert_true(joined > 0 && joined < all);
}

/* Experts of a mixture are shared out over every number of ranks that divides them, whole or cut; bounds hold for these plans, too.  Nothing, all, or the
 * modules that cost no exchange are recomputed. */
static void experts_are_shared_out_as_exhaustion_finds(void **state)
{
    struct problem p;
    struct model whole;
    bool shared[2] = { false };
    unsigned recomputed = 0;

    (void)state;
    assert_int_equal(model_load("mixtral-8x7b", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 4, &p.m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load("8xh100", &p.c), 0);
    p.o = (struct search_options){ .model = &p.m, .cluster = &p.c, .seq = 1024, .global_batch = 16, .strategies = 1u << STRAT_ZERO1, .in_place = true,
                                   .dialects = 1u << DIALECT_MEGATRON, .kernels = KERNELS_TE, .precision = DT_BF16, .grid = GRID_ONLY };
    struct search_result r = searched(&p);
    p.o.exhaustive = true;
    struct search_result all = searched(&p);
    assert_int_equal(r.considered, all.considered);
    assert_true(all.nfit > 0);
    assert_same(&r.found[0], &all.found[0]);
    assert_true(all.grid > 0 && all.grid < all.considered);     /* one plan of each micro-batch shares nothing out */
    for (int64_t i = 0; i < all.nfit; i++) {
        const struct parallel_options *of = &all.found[i].plan.parallel;
        assert_bounds_memory(&all.found[i]);
        assert_true(all.found[i].bound_s <= all.found[i].step_s);
        assert_true(of->expert >= 1 && 8 % of->expert == 0);
        recomputed |= 1u << all.found[i].plan.recompute;
        if (all.found[i].plan.recompute == RECOMPUTE_SELECTIVE)
            assert_string_equal(all.found[i].plan.megatron.recompute_modules, "layernorm,moe_act");
        if (of->expert > 1 && of->tensor > 1)
            shared[of->expert_tensor > 1] = true;
    }
    assert_true(shared[0] && shared[1]);
    assert_int_equal(recomputed, 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL);
    search_free(&r);
    search_free(&all);
    model_free(&p.m);
}

/* DeepSpeed's AutoEP: every number of ranks that divides the experts, under stages 0 to 3; asked for nothing else, a search looks at these
 * beside data parallelism alone. */
static void deepspeed_shares_experts_out_beside_data_parallelism(void **state)
{
    struct problem p;
    struct model whole;
    unsigned seen = 0;

    (void)state;
    assert_int_equal(model_load("mixtral-8x7b", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 2, &p.m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load("8xh100", &p.c), 0);
    p.o = (struct search_options){ .model = &p.m, .cluster = &p.c, .seq = 1024, .global_batch = 16, .in_place = true, .micro_batch = 1,
                                   .strategies = 1u << STRAT_DDP | 1u << STRAT_ZERO1 | 1u << STRAT_ZERO2 | 1u << STRAT_ZERO3,
                                   .dialects = 1u << DIALECT_DEEPSPEED, .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16, .grid = GRID_ONLY };
    assert_true(grid_is_usual(&p.o));
    struct search_result grid = searched(&p);
    p.o.exhaustive = true;
    struct search_result all = searched(&p);
    assert_same(&grid.found[0], &all.found[0]);
    for (int64_t i = 0; i < all.nfit; i++) {
        const struct plan *of = &all.found[i].plan;
        assert_true(of->parallel.tensor * of->parallel.context * of->parallel.pipeline == 1 && 8 % of->parallel.expert == 0);
        assert_bounds_memory(&all.found[i]);
        assert_true(all.found[i].bound_s <= all.found[i].step_s);
        seen |= of->parallel.expert > 1 ? 1u << of->strategy : 0;
    }
    assert_int_equal(seen, p.o.strategies);
    p.o.exhaustive = false;
    p.o.grid = GRID_BESIDE;
    struct search_result r = searched(&p);
    assert_true(r.found[0].step_s <= grid.found[0].step_s && r.found[0].plan.parallel.expert > 1);
    search_free(&grid);
    search_free(&all);
    search_free(&r);
    model_free(&p.m);
    assert_int_equal(model_load("llama-3.1-8b", &p.m), 0);
    assert_false(grid_is_usual(&p.o));
    model_free(&p.m);
}

/* What the search says of a plan that fits is what an evaluation of it says, also where stages with much room were not replayed. */
static bool is_as_alone(const struct found *f)
{
    struct coll_memo memo = { 0 };
    struct stage_parts parts;
    struct evaluation e;
    struct timeline t;

    assert_int_equal(evaluate_allocated(&f->plan, &e), 0);
    struct cost_cache *cache = cost_cache_new(&f->plan);
    assert_int_equal(step_time(&f->plan, &e, cache, &memo, &t, &parts), 0);
    assert_int_equal(f->needed, e.m.needed);
    double step_s = t.step_s + f->retry_s;
    assert_memory_equal(&f->step_s, &step_s, sizeof step_s);
    bool replayed = f->looked_at && f->taken > 0;
    if (replayed) {
        assert_int_equal(evaluation_reserve(&f->plan, &e, NULL), 0);
        assert_true(e.verdict == (f->tight ? VERDICT_TIGHT : VERDICT_FITS));
        assert_int_equal(f->taken, evaluation_taken(&e.m, &e.reserved));
        assert_int_equal(f->steady_retries, e.reserved.steady_retries);
    }
    cost_cache_free(cache);
    evaluation_free(&e);
    return replayed;
}

static void what_is_not_replayed_changes_no_figure(void **state)
{
    int replayed = 0, pipelines = 0;

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct problem p;
        struct model whole;
        assert_int_equal(model_load("llama-3.1-8b", &whole), 0);
        assert_int_equal(model_with_layers(&whole, 8, &p.m), 0);
        model_free(&whole);
        assert_int_equal(cluster_load(i % 2 ? "8xh100" : "4xh100", &p.c), 0);
        p.c.memory = INT64_C(1) << (34 + i % 3);
        p.o = (struct search_options){ .model = &p.m, .cluster = &p.c, .seq = 2048 + 1024 * i, .global_batch = 16, .in_place = true, .micro_batch = 1,
                                       .strategies = 1u << STRAT_DDP | 1u << STRAT_ZERO1, .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_FULL,
                                       .dialects = 1u << DIALECT_MEGATRON, .kernels = KERNELS_TE, .precision = DT_BF16, .grid = GRID_ONLY };
        struct search_result r = searched(&p);
        for (int64_t k = 0; k < r.nfit; k++) {
            bool was = is_as_alone(&r.found[k]);
            replayed += was;
            pipelines += was && r.found[k].plan.parallel.pipeline > 1;
        }
        search_free(&r);
        model_free(&p.m);
    }
    assert_true(replayed > pipelines && pipelines > 0);
    print_message("%d replayed, %d of them pipelines\n", replayed, pipelines);
}

/* 32 blocks and 4,096 micro-steps of a pipeline of 8: 131,072 passes. */
static void steps_that_are_too_long_are_left_out_and_counted(void **state)
{
    struct problem p;
    struct search_result r;

    (void)state;
    problem_init(&p);
    model_free(&p.m);
    assert_int_equal(model_load("llama-3.1-8b", &p.m), 0);
    assert_int_equal(cluster_load("8xh100", &p.c), 0);
    p.o = (struct search_options){ .model = &p.m, .cluster = &p.c, .seq = 1024, .global_batch = 4096, .strategies = 1u << STRAT_FSDP, .in_place = true,
                                   .dialects = 1u << DIALECT_TORCH, .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16, .grid = GRID_BESIDE };
    r = searched(&p);
    assert_true(r.too_long > 0 && r.nfit > 0);
    for (int64_t i = 0; i < r.nfit; i++)
        assert_true(plan_is_data_parallel(&r.found[i].plan) || r.found[i].plan.accumulation * 32 <= 16384);
    search_free(&r);
    model_free(&p.m);
}

/* 6 layers: 2 stages have 3 each; 4 have 2 of the 8 that they are with embedding and head, the outer ones 1 (Megatron-LM divides equally, or
 * so); 8 have one each, the first the embedding alone and the last the head ("num_layers_to_build >= 0", transformer_block.py). */
static void megatrons_ends_count_as_layers_where_they_must(void **state)
{
    struct problem p;
    struct search_result r;
    struct model whole;
    int equal = 0, ends = 0, alone = 0;

    (void)state;
    problem_init(&p);
    model_free(&p.m);
    assert_int_equal(model_load("llama-3.1-8b", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 6, &p.m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load("8xh100", &p.c), 0);
    p.o = (struct search_options){ .model = &p.m, .cluster = &p.c, .seq = 1024, .global_batch = 16, .strategies = 1u << STRAT_ZERO1, .micro_batch = 1,
                                   .dialects = 1u << DIALECT_MEGATRON, .kernels = KERNELS_TE, .precision = DT_BF16, .grid = GRID_ONLY, .exhaustive = true };
    r = searched(&p);
    for (int64_t i = 0; i < r.nfit; i++) {
        const struct parallel_options *of = &r.found[i].plan.parallel;
        int64_t stages = of->pipeline * of->virtual_stages;
        assert_int_equal(of->first_stage_less, stages > 2);
        assert_int_equal(of->last_stage_less, stages > 2);
        assert_true(stages <= 8);
        equal += stages == 2;
        ends += stages == 4;
        alone += stages == 8;
    }
    assert_true(equal > 0 && ends > 0 && alone > 0);
    search_free(&r);
    model_free(&p.m);
}

/* 61 blocks, which no number of stages divides, and 63 with the ends: 16 stages have 4 each, of which the embedding is one of the first, but
 * the last, which has 3 with the loss.  The first three have no experts, so what a rank has of the others is no multiple of its first block. */
static void deepseeks_layers_are_laid_out(void **state)
{
    struct problem p;
    struct search_result r;
    bool laid_out = false;

    (void)state;
    problem_init(&p);
    model_free(&p.m);
    assert_int_equal(model_load("deepseek-v3", &p.m), 0);
    assert_int_equal(cluster_load("32x8xh200", &p.c), 0);
    p.o = (struct search_options){ .model = &p.m, .cluster = &p.c, .seq = 4096, .global_batch = 256, .strategies = 1u << STRAT_ZERO1, .micro_batch = 1,
                                   .dialects = 1u << DIALECT_MEGATRON, .kernels = KERNELS_TE, .precision = DT_BF16, .grid = GRID_ONLY, .threads = 1 };
    r = searched(&p);
    assert_true(r.nfit > 0);
    for (int64_t i = 0; i < r.nfit; i++) {
        const struct plan *q = &r.found[i].plan;
        assert_bounds_memory(&r.found[i]);
        assert_true(r.found[i].bound_s <= r.found[i].step_s);
        if (q->parallel.pipeline == 16 && q->parallel.virtual_stages == 1) {
            laid_out = true;
            assert_string_equal(q->megatron.pipeline_layout, "Et*3|(t*4|)*14t*2L");
        }
    }
    assert_true(laid_out);
    search_free(&r);
    model_free(&p.m);
}

/* Mixtures, dense layers first or none: whole experts over many ranks are what a bound must not count whole. */
static void a_bound_of_a_mixture_is_below_what_it_needs(void **state)
{
    static const char *const models[] = { "deepseek-v3", "qwen3-30b-a3b", "mixtral-8x7b" };

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int tensor = 1; tensor <= 4; tensor *= 4) {
            struct program g = { 0 };
            struct evaluation e;
            struct plan p;
            plan_of(&p, models[i], 5, 256, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
            p.kernels = KERNELS_TE;
            p.seq = 4096;
            p.parallel.tensor = tensor;
            p.parallel.sequence = tensor > 1;
            p.parallel.expert = p.model.experts;
            p.parallel.expert_tensor = 1;
            p.recompute = RECOMPUTE_FULL;
            p.shard_group = plan_data_ranks(&p);
            plan_resolve(&p);
            assert_int_equal(plan_check(&p, models[i]), 0);
            assert_int_equal(program_build(&p, &g), 0);
            assert_int_equal(evaluate_allocated(&p, &e), 0);
            assert_true(bounds_held(&p, &g) <= e.m.ledger.peak.bytes);
            evaluation_free(&e);
            program_free(&g);
            plan_free(&p);
        }
}

/* FSDP2 whose gradients wait for the last micro-step: of experts that are shared out a rank has its own alone. */
static void a_bound_of_shared_experts_is_below_what_they_need(void **state)
{
    (void)state;
    for (int accumulation = 1; accumulation <= 4; accumulation *= 4)
        for (int expert = 1; expert <= 8; expert *= 2) {
            struct program g = { 0 };
            struct evaluation e;
            struct plan p;
            plan_of(&p, "qwen3-30b-a3b", 12, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
            p.kernels = KERNELS_TORCH_SDPA;
            p.seq = 512;
            p.unit = UNIT_BLOCK;
            p.parallel.expert = expert;
            p.accumulation = accumulation;
            p.sync_every_micro_step = false;
            p.shard_group = plan_data_ranks(&p);
            plan_resolve(&p);
            assert_int_equal(plan_check(&p, "qwen3-30b-a3b"), 0);
            assert_int_equal(program_build(&p, &g), 0);
            assert_int_equal(evaluate_allocated(&p, &e), 0);
            if (bounds_held(&p, &g) > e.m.ledger.peak.bytes)
                fail_msg("expert %d, accumulation %d: the bound is %lld, it needs %lld", expert, accumulation, (long long)bounds_held(&p, &g),
                         (long long)e.m.ledger.peak.bytes);
            evaluation_free(&e);
            program_free(&g);
            plan_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bound_of_shared_experts_is_below_what_they_need),
        cmocka_unit_test(winner_is_that_of_exhaustion), cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(what_data_parallelism_cannot_do_a_grid_does),
        cmocka_unit_test(beside_data_parallelism_the_fastest_of_both_is_first),
        cmocka_unit_test(experts_are_shared_out_as_exhaustion_finds),
        cmocka_unit_test(deepspeed_shares_experts_out_beside_data_parallelism),
        cmocka_unit_test(what_is_not_replayed_changes_no_figure),
        cmocka_unit_test(steps_that_are_too_long_are_left_out_and_counted),
        cmocka_unit_test(megatrons_ends_count_as_layers_where_they_must),
        cmocka_unit_test(deepseeks_layers_are_laid_out), cmocka_unit_test(a_bound_of_a_mixture_is_below_what_it_needs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
