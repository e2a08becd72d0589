/* Context parallelism of Megatron-core's layers, in bytes: Transformer Engine's p2p, all_gather, a2a and a2a+p2p of one layer of Llama-3-8B with
 * 131,072 positions over eight ranks, by counting. */
#include "tests/model/te_built.h"

/* ---- a context's ranks ---- */

#define MiB ((int64_t)1 << 20)

#define LLAMA_8B "{'model_type': 'llama', 'num_hidden_layers': 32, 'hidden_size': 4096, 'intermediate_size': 14336, 'num_attention_heads': 32," \
                 " 'num_key_value_heads': 8, 'vocab_size': 128256, 'max_position_embeddings': 131072, 'rms_norm_eps': 1e-5," \
                 " 'tie_word_embeddings': false}"

/* One rank of eight that share 131,072 positions: its block; and flops of its products and of attention's scores, all counted, one rank. */
struct eighth { struct built x; const struct piece *p; double products, scores; };

static void of_eight_ranks(struct eighth *e, enum context_method method, int64_t run)
{
    struct built *x = &e->x;

    start(x, LLAMA_8B, KERNELS_TE);
    x->plan.seq = 131072;
    x->plan.parallel.tensor = 1;
    x->plan.parallel.sequence = false;
    build(x);
    e->products = 2.0 * 131072 * (218112000 - 2 * 4096);
    e->scores = x->program.piece[PIECE_BLOCK].flops[PASS_FORWARD] - e->products;
    x->plan.parallel.context = 8;
    x->plan.parallel.context_method = method;
    x->plan.parallel.context_balance = true;
    x->plan.megatron.a2a_ranks = run;
    build(x);
    e->p = &x->program.piece[PIECE_BLOCK];
}

/* Vectors 55 and 57: a layer of Llama-3-8B, 131,072 positions over eight ranks: its keys and values are 64 MiB a rank, its queries 128. */
static void a_ring_sends_seven_and_fourteen_times_its_keys(void **state)
{
    struct eighth e;

    (void)state;
    of_eight_ranks(&e, CONTEXT_RING, 1);
    const struct piece *p = e.p;
    for (int pass = 0; pass < NPASS; pass++) {
        int64_t sent = 0;
        assert_int_equal(p->ncollectives[pass], pass == PASS_FORWARD ? 7 : 8);
        for (int i = 0; i < p->ncollectives[pass]; i++) {
            const struct collective *c = &p->collectives[pass][i];
            assert_true(c->onward && c->op == COLL_ALL_TO_ALL);
            assert_int_equal(p->kernels[pass][c->kernel + 1].kind, KC_ATTENTION);
            assert_true(c->needed > c->kernel + 1);
            sent += 2 * c->elems;
        }
        is(sent, (pass == PASS_FORWARD ? 448 : 896) * MiB);
    }
    /* x and norm(x) twice, q, one rank's keys and values, the output, fc1's two halves and their product; 1/sigma twice, log-sum-exps, 512 a step */
    is(p->saved, 4 * 128 * MiB + 128 * MiB + 64 * MiB + 128 * MiB + 3 * 448 * MiB + 2 * 4 * 16384 + 4 * 32 * 16384 + 8 * 512);
    /* Its share of the products; its own square, and seven halves of one: 8 / 8^2 of the whole, counted full. */
    assert_close(p->flops[PASS_FORWARD], e.products / 8 + e.scores * (1 + 7 * 0.5) / 64, 1e-12);
    finish(&e.x);
}

/* Keys and values of 131,072 positions are 256 MiB each: gathered in forward and again in backward, and their gradients scattered.  A rank
 * keeps its own; two chunks of 8192 queries meet place + 1/2 and 16 - place - 1/2 chunks of keys, 16 of 16^2 in all. */
static void gathered_keys_come_twice_and_gradients_go_once(void **state)
{
    static const enum coll_op back[] = { COLL_ALL_GATHER, COLL_ALL_GATHER, COLL_REDUCE_SCATTER, COLL_REDUCE_SCATTER };
    struct eighth e;

    (void)state;
    of_eight_ranks(&e, CONTEXT_ALL_GATHER, 1);
    const struct piece *p = e.p;
    assert_int_equal(p->ncollectives[PASS_FORWARD], 2);
    assert_int_equal(p->ncollectives[PASS_BACKWARD], 4);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < p->ncollectives[pass]; i++) {
            const struct collective *c = &p->collectives[pass][i];
            assert_int_equal(c->op, pass == PASS_FORWARD ? COLL_ALL_GATHER : back[i]);
            is(c->elems * 2, 256 * MiB);
            assert_int_equal(c->group, GROUP_CONTEXT);
            assert_int_equal(c->needed, c->kernel + 1);         /* each blocks */
        }
    is(p->saved, 4 * 128 * MiB + 128 * MiB + 64 * MiB + 128 * MiB + 3 * 448 * MiB + 2 * 4 * 16384 + 4 * 32 * 16384 + 2 * 512);
    assert_close(p->flops[PASS_FORWARD], e.products / 8 + e.scores * 16 / 256, 1e-12);
    finish(&e.x);
}

/* Each tensor goes out once, as large as it is, and its gradient comes back: q 128 MiB, keys and values 32 each, the output 128; forward
 * q, k, v, then the output, backward the output's gradient, then the others'.  The second and third go out before the first is read. */
static void exchanged_heads_go_out_one_beside_the_next(void **state)
{
    static const int64_t forward[] = { 128, 32, 32, 128 }, backward[] = { 128, 128, 32, 32 };
    struct eighth e;

    (void)state;
    of_eight_ranks(&e, CONTEXT_ULYSSES, 1);
    const struct piece *p = e.p;
    for (int pass = 0; pass < NPASS; pass++) {
        int ahead = 0;
        assert_int_equal(p->ncollectives[pass], 4);
        for (int i = 0; i < 4; i++) {
            const struct collective *c = &p->collectives[pass][i];
            assert_int_equal(c->op, COLL_ALL_TO_ALL);
            assert_false(c->onward);
            is(c->elems * 2, (pass == PASS_FORWARD ? forward[i] : backward[i]) * MiB);
            ahead += i < 3 && p->collectives[pass][i + 1].kernel < c->needed;
        }
        assert_int_equal(ahead, 2);                             /* of three that are exchanged together */
    }
    /* As with one rank: q, k, v, the output that goes out and the one that comes back. */
    is(p->saved, 4 * 128 * MiB + 128 * MiB + 64 * MiB + 2 * 128 * MiB + 3 * 448 * MiB + 2 * 4 * 16384 + 4 * 4 * 131072 + 512);
    assert_close(p->flops[PASS_FORWARD], (e.products + e.scores) / 8, 1e-12);
    finish(&e.x);
}

/* Two ranks exchange heads, four runs of them pass keys on: a run's keys and values of half of the heads are as many as a rank's of all. */
static void a_hierarchy_does_both(void **state)
{
    struct eighth e;

    (void)state;
    of_eight_ranks(&e, CONTEXT_RING, 2);
    const struct piece *p = e.p;
    for (int pass = 0; pass < NPASS; pass++) {
        int64_t exchanged = 0, onward = 0;
        int n = 0;
        for (int i = 0; i < p->ncollectives[pass]; i++) {
            const struct collective *c = &p->collectives[pass][i];
            assert_int_equal(c->group, c->onward ? GROUP_CONTEXT_P2P : GROUP_CONTEXT_A2A);
            *(c->onward ? &onward : &exchanged) += 2 * c->elems;
            n += !c->onward;
        }
        assert_int_equal(n, 4);
        is(exchanged, (128 + 32 + 32 + 128) * MiB);
        is(onward, (pass == PASS_FORWARD ? 3 : 6) * 64 * MiB);  /* backward: 1 + 2 * 2 + 1 times */
    }
    /* Of the scores of half of the heads a square of one part in 16, and three halves of one. */
    assert_close(p->flops[PASS_FORWARD], e.products / 8 + e.scores / 2 / 16 * (1 + 3 * 0.5), 1e-12);
    finish(&e.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_sends_seven_and_fourteen_times_its_keys),
        cmocka_unit_test(gathered_keys_come_twice_and_gradients_go_once),
        cmocka_unit_test(exchanged_heads_go_out_one_beside_the_next),
        cmocka_unit_test(a_hierarchy_does_both),
    };
    return cmocka_run_group_tests_name("model/te_context", tests, NULL, NULL);
}
