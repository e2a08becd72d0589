/* What a step of the ring of context parallelism takes between ranks: its slowest hop's time. */
#include "tests/plan_words.h"

#include <string.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"
#include "sim/price/coll_cost.h"
#include "sim/price/coll_entry.h"

/* Seconds of a transfer of keys and values, 32 MiB, on two nodes of 8 GPUs with adapters of 50 GB/s each. */
static double hop(const char *words)
{
    struct evaluation e;
    struct coll_memo memo = { 0 };
    struct priced prices;
    double s = 0;

    struct plan p = plan_in_words("{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '2x8xh100', 'strategy': 'fsdp', 'dialect': 'torch',"
                                  " 'kernels': 'torch-sdpa', 'micro_batch': 1, 'precision': 'bf16', %s }", words);
    assert_int_equal(evaluate(&p, &e), 0);
    struct cost_cache *cache = cost_cache_new(&p);
    assert_int_equal(simulate_price(&p, &e.schedules, SCHED_STEADY, cache, &memo, &prices), 0);
    for (int i = e.schedules.begin[SCHED_STEADY]; i < e.schedules.end[SCHED_STEADY] && s <= 0; i++) {
        const struct op *o = &e.schedules.ops[i];
        if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_TO_ALL) {
            assert_int_equal(o->u.coll.elems * dtype_bytes(o->u.coll.dtype), 32 << 20);     /* 2 x 8192 x 8 heads x 128 x 2 bytes */
            s = prices.middle.work[i];
        }
    }
    simulate_priced_free(&prices);
    cost_cache_free(cache);
    evaluation_free(&e);
    plan_free(&p);
    return s;
}

/* Rank 0 sends to a GPU of its node, but rank 7 to the other node, and all wait for it. */
static void a_ring_over_nodes_goes_as_its_slowest_hop(void **state)
{
    double bytes = 32 << 20;
    double within = hop("\"seq\": 65536, \"parallel\": { \"context\": 8, \"context_method\": \"ring\" }");
    double across = hop("\"seq\": 131072, \"parallel\": { \"context\": 16, \"context_method\": \"ring\" }");

    (void)state;
    assert_true(across >= bytes / 50e9);
    assert_true(within >= bytes / 450e9 && within < bytes / 50e9);
}

/* Ranks that enter a ring late do so once: of all its turns together high_s has the skew of one collective.  What is no ring has all of it. */
static void a_ring_is_entered_once(void **state)
{
    static const struct { const char *method; int64_t turns; } of[] = { { "ring", 7 }, { "ulysses", 1 } };
    char words[256];

    (void)state;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct evaluation e;
        struct coll_memo memo = { 0 };
        struct priced prices;
        struct cost alone;
        int n = 0;
        snprintf(words, sizeof words, "{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '1x8xh100', 'strategy': 'zero1', 'dialect': 'megatron', 'kernels': 'te',"
                                      " 'seq': 65536, 'micro_batch': 1, 'precision': 'bf16', 'parallel': { 'context': 8, 'context_method': '%s' } }", of[k].method);
        struct plan p = plan_in_words(words);
        assert_int_equal(evaluate(&p, &e), 0);
        struct cost_cache *cache = cost_cache_new(&p);
        assert_int_equal(simulate_price(&p, &e.schedules, SCHED_STEADY, cache, &memo, &prices), 0);
        for (int i = e.schedules.begin[SCHED_STEADY]; i < e.schedules.end[SCHED_STEADY]; i++) {
            const struct op *o = &e.schedules.ops[i];
            if (o->kind != OP_COLL || o->u.coll.op != COLL_ALL_TO_ALL)
                continue;
            assert_int_equal(coll_cost(&p.cluster, COLL_ALL_TO_ALL, 8, 8, coll_entry_bytes(&p, &e.schedules, o, 8, 8), &alone), 0);
            assert_int_equal(coll_entry_turns(&e.schedules, o, 8), of[k].turns);
            assert_close(prices.middle.work[i], alone.s, 1e-12);
            assert_close((double)of[k].turns * (alone.high_s - prices.high.work[i]), (double)(of[k].turns - 1) * coll_skew_s(&p.cluster), 1e-12);
            n++;
        }
        assert_true(n > 0);
        simulate_priced_free(&prices);
        cost_cache_free(cache);
        evaluation_free(&e);
        plan_free(&p);
    }
}

/* Pairs of ranks on nodes of 3 GPUs: {0,1} lie on one, {2,3} do not, and all wait for those.  Each of the two gets half of what the other
 * sends, and sends half: on whichever rank is asked, it takes as long as an exchange of equal parts of all that the busier way carries. */
static void pairs_that_share_experts_go_as_the_slowest_pair(void **state)
{
    struct plan p = plan_in_words("{ 'dpx_plan': 1, 'model': 'mixtral-8x7b', 'cluster': '2x3xh100', 'strategy': 'zero1', 'dialect': 'megatron',"
                                  " 'kernels': 'te', 'micro_batch': 1, 'precision': 'bf16', 'seq': 1024,"
                                  " 'parallel': { 'expert': 2, 'expert_imbalance': 1.5 } }");
    struct schedules s = { 0 };
    int64_t ranks, per_node;
    int n = 0;

    (void)state;
    for (int64_t rank = 0; rank < 3; rank += 2) {
        assert_int_equal(lower(&p, rank, &s), 0);
        for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
            const struct op *o = &s.ops[i];
            if (o->kind != OP_COLL || o->u.coll.op != COLL_ALL_TO_ALL || !o->u.coll.parts)
                continue;
            const struct coll_part *part = &s.coll_parts[o->u.coll.parts];
            int64_t sent = part[0].sent + part[1].sent, came = part[0].received + part[1].received;
            coll_entry_shape(&p, &s, o, &ranks, &per_node);
            assert_int_equal(ranks, 2);
            assert_int_equal(per_node, 1);
            assert_int_equal(coll_entry_bytes(&p, &s, o, ranks, per_node), (sent > came ? sent : came) * dtype_bytes(o->u.coll.dtype));
            n++;
        }
    }
    assert_true(n > 0);
    schedules_free(&s);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_over_nodes_goes_as_its_slowest_hop),
        cmocka_unit_test(a_ring_is_entered_once),
        cmocka_unit_test(pairs_that_share_experts_go_as_the_slowest_pair),
    };

    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
