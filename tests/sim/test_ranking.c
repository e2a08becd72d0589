/* What may be called a tie, and in which order ideas are told. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "base/room.h"
#include "sim/search/ranking.h"
#include "sim/search/ties.h"

/* ---- the difference of two steps ---- */

/* Both plans have 8 s of work that may take 2 s less or more: what they share says nothing of which is faster.
 * What is left is 1 % of the shorter step. */
static void errors_that_both_share_cancel(void **state)
{
    const double a[TIES_VIEWS] = { 10, 10, 10, 8, 12, 10, 10, 10, 10 };
    const double b[TIES_VIEWS] = { 11, 11, 11, 9, 13, 11, 11, 11, 11 };

    (void)state;
    assert_close(ties_unsure_s(a, b), .1, 1e-12);
    assert_close(ties_unsure_s(b, a), .1, 1e-12);
}

/* b alone has exposed collectives, 1 s that may be 0.4 less or 0.3 more, and loses 0.3 s to streams or 0.9:
 * sqrt(0.4^2 + 0.3^2 + 0.1^2) of a step of 10. */
static void errors_of_one_alone_add_as_squares(void **state)
{
    const double a[TIES_VIEWS] = { 10, 10, 10, 10, 10, 10, 10, 10, 10 };
    const double b[TIES_VIEWS] = { 11, 10.6, 11.3, 11, 11, 10.7, 11.3, 11, 11 };

    (void)state;
    assert_close(ties_unsure_s(a, b), sqrt(.16 + .09 + .01), 1e-12);
}

/* ---- ideas ---- */

struct search_space { struct model m; struct cluster c; struct search_options o; struct search_result r; };

static void space_with(struct search_space *s, const char *cluster, int64_t memory)
{
    struct model whole;

    memset(s, 0, sizeof *s);
    assert_int_equal(model_load("gpt2", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 4, &s->m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load(cluster, &s->c), 0);
    s->c.memory = memory ? memory : s->c.memory;
    s->o = (struct search_options){
        .model = &s->m, .cluster = &s->c, .seq = 1024, .global_batch = 64, .strategies = ~0ull, .dialects = ~0ull,
        .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16, .recompute = 7, .threads = 1,
    };
    assert_int_equal(search(&s->o, &s->r), 0);
}

static void space_init(struct search_space *s, const char *cluster) { space_with(s, cluster, 0); }

static void space_free(struct search_space *s)
{
    search_free(&s->r);
    model_free(&s->m);
}

static bool same_idea(const struct plan *a, const struct plan *b)
{
    return a->strategy == b->strategy && a->dialect == b->dialect && a->micro_batch == b->micro_batch &&
           a->recompute == b->recompute && a->recompute_interval == b->recompute_interval && a->shard_group == b->shard_group;
}

static void ideas_are_distinct_and_ties_come_first(void **state)
{
    enum { MOST = 12 };
    struct ranked of[MOST];
    struct search_space s;

    (void)state;
    space_init(&s, "2x2xa100-40gb");
    int64_t n = ranking(&s.r, of, MOST), tied = 0;
    assert_int_equal(n, MOST);
    assert_true(of[0].tied);
    for (int64_t i = 0; i < n; i++) {
        const struct ranked *k = &of[i];
        tied += k->tied;
        assert_true(k->low_s <= k->found->step_s && k->found->step_s <= k->high_s);
        assert_int_equal(k->departures, ranking_departures(&k->found->plan));
        for (int64_t j = 0; j < i; j++)
            assert_false(same_idea(&k->found->plan, &of[j].found->plan));
        if (i == 0)
            continue;
        assert_true(k[-1].tied >= k->tied || k[-1].waits < k->waits);
        if (k->tied && k[-1].tied && !k->waits && !k[-1].waits && k->tight == k[-1].tight)
            assert_true(k[-1].departures <= k->departures);
    }
    assert_true(tied >= 1 && tied < n);
    space_free(&s);
}

/* Every fitting plan of an idea is the one told or one of its variants. */
static void variants_are_counted(void **state)
{
    struct ranked of[4];
    struct search_space s;

    (void)state;
    space_init(&s, "2x2xa100-40gb");
    int64_t n = ranking(&s.r, of, 4);
    for (int64_t i = 0; i < n; i++) {
        int64_t all = 0;
        for (int64_t k = 0; k < s.r.nfit; k++)
            all += same_idea(&s.r.found[k].plan, &of[i].found->plan);
        assert_int_equal(of[i].variants, all - 1);
    }
    space_free(&s);
}

/* Where the allocator decides: what is told fits, tight where it is, whatever the search has replayed.  Memories from
 * one where most plans fit down to one where few do. */
static void what_is_told_has_the_allocators_verdict(void **state)
{
    enum { MOST = 12 };
    int64_t tight = 0;

    (void)state;
    for (int64_t mib = 12 << 10; mib >= 3 << 10; mib -= 1536) {
        struct ranked of[MOST];
        struct search_space s;
        space_with(&s, "2x2xa100-40gb", mib << 20);
        int64_t n = ranking(&s.r, of, MOST);
        for (int64_t i = 0; i < n; i++) {
            struct evaluation e;
            assert_int_equal(evaluate(&of[i].found->plan, &e), 0);
            assert_true(e.m.fits);
            assert_int_equal(of[i].tight, e.verdict == VERDICT_TIGHT);
            tight += of[i].tight;
            if (i > 0 && of[i].tied && !of[i].waits)
                assert_true(of[i - 1].tight <= of[i].tight);
            evaluation_free(&e);
        }
        space_free(&s);
    }
    assert_true(tight > 0);
}

static void a_default_plan_departs_from_nothing(void **state)
{
    struct plan p = { 0 };

    (void)state;
    assert_int_equal(model_load("gpt2", &p.model), 0);
    assert_int_equal(cluster_load("2x8xh100", &p.cluster), 0);
    p.seq = 1024;
    p.micro_batch = 4;
    plan_defaults(&p, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.accumulation = 2;
    assert_int_equal(ranking_departures(&p), 0);
    p.fsdp.reshard_after_forward = 0;
    assert_int_equal(ranking_departures(&p), 1);
    p.recompute = RECOMPUTE_FULL;
    assert_int_equal(ranking_departures(&p), 2);
    assert_null(ranking_deprecated(&p));
    plan_defaults(&p, STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_BF16);
    assert_non_null(strstr(ranking_deprecated(&p), "fully_shard"));
    plan_free(&p);
}

/* Sent at different widths, half of what sets FSDP1 and FSDP2 apart would be the width. */
static void both_fsdps_reduce_alike(void **state)
{
    int seen[2] = { 0 };
    struct search_space s;

    (void)state;
    space_init(&s, "2x2xa100-40gb");
    for (int64_t i = 0; i < s.r.nfit; i++) {
        const struct plan *p = &s.r.found[i].plan;
        if (p->strategy != STRAT_FSDP || p->dialect == DIALECT_PAPER)
            continue;
        assert_int_equal(p->reduce_dtype, DT_FP32);
        seen[p->dialect == DIALECT_TORCH_FSDP1]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
    space_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_that_both_share_cancel),
        cmocka_unit_test(errors_of_one_alone_add_as_squares),
        cmocka_unit_test(ideas_are_distinct_and_ties_come_first),
        cmocka_unit_test(variants_are_counted),
        cmocka_unit_test(what_is_told_has_the_allocators_verdict),
        cmocka_unit_test(a_default_plan_departs_from_nothing),
        cmocka_unit_test(both_fsdps_reduce_alike),
    };
    return cmocka_run_group_tests_name("sim/ranking", tests, NULL, NULL);
}
