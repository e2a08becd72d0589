/* test_dp.c -- DataParallel and the paper's parameter server. */
#include "tests/model/flows.h"

#include "model/schedule/ledger.h"

static struct schedules s;

static int sum_sent(const struct schedules *q, const struct op *o, int64_t iteration, void *arg)
{
    int64_t *by_op = arg;

    (void)iteration;
    if (o->kind == OP_COLL)
        by_op[o->u.coll.op] += sched_sent_bytes(q, o);
    return 0;
}

/* A parameter server of N ranks: a micro-step sends all parameters from the root
 * to N-1 others, and N-1 sets of gradients back: (N-1) P e each way. */
static void the_server_sends_and_receives_n_minus_1_copies(void **state)
{
    (void)state;
    static const int64_t steps[] = { 1, 2, 5 };

    for (int w = 0; w < NWORLDS; w++)
        for (int i = 0; i < 3; i++) {
            struct plan p;
            int64_t n = worlds[w], m = steps[i], out[NCOLL] = { 0 }, back[NCOLL] = { 0 };
            plan_of(&p, "gpt2", 2, n, STRAT_DP, DIALECT_PAPER, DT_FP32);
            p.accumulation = m;
            lowered(&p, 0, &s);
            int64_t all = m * 4 * p.model.params;
            sched_walk(&s, SCHED_STEADY, sum_sent, out);
            assert_int_equal(out[COLL_BROADCAST], (n - 1) * all);
            assert_int_equal(out[COLL_REDUCE], 0);
            if (n > 1) {
                lowered(&p, n - 1, &s);
                sched_walk(&s, SCHED_STEADY, sum_sent, back);
                assert_int_equal(back[COLL_REDUCE], all);       /* times n-1: what the root takes in */
                assert_int_equal(back[COLL_BROADCAST], 0);
            }
            plan_free(&p);
        }
}

/* torch: tensors in order of registration, packed while they fit 10 MiB: the next
 * one would not have fitted, and only one tensor alone may be larger. */
static void data_parallel_moves_all_parameters_in_pieces(void **state)
{
    (void)state;
    static const char *const models[] = { "gpt2", "gpt2-medium", "opt-125m", "qwen3-0.6b", "gpt-lite" };

    for (int k = 0; k < 5; k++) {
        struct plan p;
        int t = 0;
        plan_of(&p, models[k], 4, 8, STRAT_DP, DIALECT_TORCH, DT_FP32);
        lowered(&p, 0, &s);
        struct tally out = tally_of(&s, SCHED_STEADY, COLL_BROADCAST), in = tally_of(&s, SCHED_STEADY, COLL_REDUCE);
        assert_int_equal(out.bytes, 4 * p.model.params);
        assert_int_equal(in.bytes, 4 * p.model.params);
        assert_int_equal(out.count, in.count);
        for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++) {
            const struct op *o = &s.ops[i];
            int64_t left = o->u.coll.elems;
            int tensors = 0;
            if (o->kind != OP_COLL || o->u.coll.op != COLL_BROADCAST)
                continue;
            for (; left > 0; tensors++)
                left -= p.model.tensors[t++].numel;
            assert_int_equal(left, 0);          /* whole tensors */
            assert_true(tensors == 1 || 4 * o->u.coll.elems <= 10 << 20);
            if (t < p.model.ntensors)
                assert_true(4 * (o->u.coll.elems + p.model.tensors[t].numel) > 10 << 20);
        }
        assert_int_equal(t, p.model.ntensors);
        plan_free(&p);
    }
}

static void rank_0_holds_more_than_the_rest(void **state)
{
    (void)state;
    struct ledger first, other;

    for (int torch = 0; torch < 2; torch++)
        for (int64_t n = 2; n <= 9; n++)
            for (int logits = 0; logits <= torch; logits++) {
                struct plan p;
                plan_of(&p, "gpt2", 3, n, STRAT_DP, torch ? DIALECT_TORCH : DIALECT_PAPER, DT_FP32);
                p.dp.gather_logits = logits;
                lowered(&p, 0, &s);
                ledger_run(&s, &first);
                lowered(&p, 1, &s);
                ledger_run(&s, &other);
                assert_true(first.peak.bytes > other.peak.bytes);
                /* AdamW's two moments in fp32 are on rank 0 alone. */
                assert_true(first.persistent[CAT_OPTIMIZER] >= 8 * p.model.params);
                assert_int_equal(other.persistent[CAT_OPTIMIZER], 0);
                if (torch)              /* nothing persists elsewhere: fresh replicas every forward */
                    for (int c = 0; c < NCAT; c++)
                        assert_int_equal(other.persistent[c], 0);
                plan_free(&p);
            }
}

/* All other ranks are alike. */
static void the_other_ranks_are_equal(void **state)
{
    (void)state;
    struct ledger a, b;

    for (int torch = 0; torch < 2; torch++) {
        struct plan p;
        plan_of(&p, "gpt2", 2, 5, STRAT_DP, torch ? DIALECT_TORCH : DIALECT_PAPER, DT_FP32);
        lowered(&p, 1, &s);
        ledger_run(&s, &a);
        int64_t bytes = sent(&s, SCHED_STEADY);
        lowered(&p, 4, &s);
        ledger_run(&s, &b);
        assert_int_equal(a.peak.bytes, b.peak.bytes);
        assert_int_equal(sent(&s, SCHED_STEADY), bytes);
        plan_free(&p);
    }
}

/* Full logits of the global batch on rank 0: N b s V fp32 more than the loss. */
static void gathering_logits_costs_them_on_rank_0(void **state)
{
    (void)state;
    struct plan p;
    int64_t n = 4, got[2];

    for (int logits = 0; logits < 2; logits++) {
        plan_of(&p, "gpt2", 2, n, STRAT_DP, DIALECT_TORCH, DT_FP32);
        p.dp.gather_logits = logits;
        lowered(&p, 0, &s);
        got[logits] = tally_of(&s, SCHED_STEADY, COLL_GATHER).bytes;
        plan_free(&p);
    }
    assert_int_equal(got[0], 4 * n);
    assert_int_equal(got[1], n * 1 * 64 * 50257 * 4);
}

static void one_rank_alone_sends_nothing(void **state)
{
    (void)state;
    for (int torch = 0; torch < 2; torch++) {
        struct plan p;
        plan_of(&p, "gpt2", 2, 1, STRAT_DP, torch ? DIALECT_TORCH : DIALECT_PAPER, DT_FP32);
        lowered(&p, 0, &s);
        for (int id = 0; id < NSCHED; id++)
            assert_int_equal(sent(&s, (enum sched_id)id), 0);
        plan_free(&p);
    }
}

/* ---- data ---- */

static void flow_on_all_worlds(enum dialect d)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 6, 8 };
    struct model m;

    tiny_model("{'model_type': 'gpt2', 'n_layer': 3, 'n_embd': 8, 'n_head': 2, 'n_positions': 8,"
               " 'vocab_size': 11}", &m);
    for (int v = 0; v < 6 * 3 * 2; v++) {
        struct plan p;
        tiny_plan(&p, &m, sizes[v % 6], STRAT_DP, d, v / 18 ? DT_BF16 : DT_FP32);
        p.accumulation = 1 + v / 6 % 3;
        p.dp.gather_logits = d == DIALECT_TORCH && v % 4 == 1;
        p.clip = v % 5 ? 0 : 10;
        p.recompute = passes_again[v % 7 % 3];
        must_flow(&p, false);
    }
    model_free(&m);
}

static void data_flows_through_data_parallel(void **state)
{
    (void)state;
    flow_on_all_worlds(DIALECT_TORCH);
}

static void data_flows_through_the_server(void **state)
{
    (void)state;
    flow_on_all_worlds(DIALECT_PAPER);
}

/* 4 x 12 x 220,000 bytes are more than the coalescing buffer's 10 MiB. */
static void a_tensor_larger_than_a_piece_is_reduced_where_it_lies(void **state)
{
    (void)state;
    struct model m;
    struct plan p;

    tiny_model("{'model_type': 'gpt2', 'n_layer': 1, 'n_embd': 12, 'n_head': 2, 'n_positions': 8,"
               " 'vocab_size': 220000}", &m);
    tiny_plan(&p, &m, 2, STRAT_DP, DIALECT_TORCH, DT_FP32);
    p.accumulation = 2;
    must_flow(&p, false);
    model_free(&m);
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
        cmocka_unit_test(the_server_sends_and_receives_n_minus_1_copies),
        cmocka_unit_test(data_parallel_moves_all_parameters_in_pieces),
        cmocka_unit_test(rank_0_holds_more_than_the_rest),
        cmocka_unit_test(the_other_ranks_are_equal),
        cmocka_unit_test(gathering_logits_costs_them_on_rank_0),
        cmocka_unit_test(one_rank_alone_sends_nothing),
        cmocka_unit_test(data_flows_through_data_parallel),
        cmocka_unit_test(data_flows_through_the_server),
        cmocka_unit_test(a_tensor_larger_than_a_piece_is_reduced_where_it_lies),
    };
    return cmocka_run_group_tests_name("model/dp", tests, NULL, end);
}
