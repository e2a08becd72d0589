/* A search that is asked only whether a plan fits, and for the first of the ranking (dpxplan fit). */
#include "tests/model/plans.h"

#include "sim/search/ranking.h"
#include "sim/search/search.h"

/* Four blocks, four GPUs in two nodes, eight samples a step. */
struct search_space {
    struct model   m;
    struct cluster c;
    struct search_options o;
};

static void space_init(struct search_space *s)
{
    struct model whole;

    memset(s, 0, sizeof *s);
    assert_int_equal(model_load("gpt2", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 4, &s->m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load("2x2xa100-40gb", &s->c), 0);
    s->o = (struct search_options){ .model = &s->m, .cluster = &s->c, .seq = 256, .global_batch = 8, .strategies = ~0ull, .dialects = ~0ull,
                                    .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16, .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL, .threads = 1, .in_place = true };
}

static struct search_result searched(struct search_space *s)
{
    struct search_result r;

    if (search(&s->o, &r) < 0)
        fail_msg("not searched");
    return r;
}

/* From memory that holds all plans down to one that holds none; every use of grids meets two of them. */
static void the_answer_alone_is_that_of_the_whole_search(void **state)
{
    static const enum grid_use uses[] = { GRID_NONE, GRID_NEXT, GRID_BESIDE };
    struct search_space s;
    int fitted = 0, none = 0;

    (void)state;
    space_init(&s);
    for (int64_t gib = 32, u = 0; gib >= 1; gib /= 2, u++) {
        struct ranked a = { 0 }, b = { 0 };
        int64_t tied;
        s.c.memory = (gib << 30) + (gib == 1 ? 0 : (int64_t)1 << 29);
        s.o.grid = uses[u % 3];
        s.o.answer_only = false;
        struct search_result whole = searched(&s);
        s.o.answer_only = true;
        struct search_result alone = searched(&s);
        assert_true((whole.nfit > 0) == (alone.nfit > 0));
        if (whole.nfit > 0) {
            assert_int_equal(ranking(&whole, &a, 1, &tied), 1);
            assert_int_equal(ranking(&alone, &b, 1, &tied), 1);
            assert_int_equal(a.found->order, b.found->order);
            assert_memory_equal(&a.found->step_s, &b.found->step_s, sizeof a.found->step_s);
            assert_memory_equal(&a.low_s, &b.low_s, sizeof a.low_s);
            assert_true(a.tight == b.tight && a.waits == b.waits && a.found->needed == b.found->needed);
        }
        fitted += whole.nfit > 0;
        none += whole.nfit == 0;
        search_free(&whole);
        search_free(&alone);
    }
    assert_true(fitted > 0 && none > 0);
    model_free(&s.m);
}

/* Where nothing fits, not with offload either, one search says what one without offload says of the nearest. */
static void the_nearest_in_place_is_that_of_a_search_without_offload(void **state)
{
    static const enum grid_use uses[] = { GRID_NONE, GRID_NEXT, GRID_BESIDE };
    struct search_space s;
    int none = 0;

    (void)state;
    space_init(&s);
    for (int64_t mib = 1024, u = 0; mib >= 256; mib /= 2, u++) {
        s.c.memory = mib << 20;
        s.o.grid = uses[u % 3];
        s.o.in_place = false;
        s.o.answer_only = s.o.nearest_in_place = true;
        struct search_result once = searched(&s);
        s.o.in_place = true;
        s.o.answer_only = s.o.nearest_in_place = false;
        struct search_result whole = searched(&s);
        if (once.nfit == 0) {
            json_t *a = plan_to_json(&once.found[0].plan), *b = plan_to_json(&whole.found[0].plan);
            assert_int_equal(whole.nfit, 0);
            assert_true(json_equal(a, b));
            assert_int_equal(once.found[0].needed, whole.found[0].needed);
            json_decref(a);
            json_decref(b);
            none++;
        }
        search_free(&once);
        search_free(&whole);
    }
    assert_true(none > 0);
    model_free(&s.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_alone_is_that_of_the_whole_search),
        cmocka_unit_test(the_nearest_in_place_is_that_of_a_search_without_offload),
    };
    return cmocka_run_group_tests_name("sim/answer_only", tests, NULL, NULL);
}
