/* Multi-head latent attention and shared experts of Megatron-core's layers (DeepSeek-V3), in bytes by counting; what a rank has of them; what
 * is refused. */
#include "tests/model/te_built.h"

#include "model/plan/megatron_model.h"
#include "model/plan/plan_groups.h"
#include "tests/model/plans.h"

/* Tokens, and DeepSeek-V3's widths: hidden; heads of 192 (128 and 64 rotated) and values of 128; down to 1536 and 512 (+ 64). */
enum { T = 4096, H = 7168, HEADS = 128, KEY = 192, VALUE = 128, Q_RANK = 1536, KV_RANK = 512, FFN = 18432, SHARED = 2048 };

static void deepseek(struct built *x, int64_t world, int64_t tensor)
{
    memset(x, 0, sizeof *x);
    plan_of(&x->plan, "deepseek-v3", 4, world, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    x->plan.kernels = KERNELS_TE;
    x->plan.seq = T;
    x->plan.dropout = 0;
    x->plan.parallel.tensor = tensor;
    x->plan.parallel.sequence = tensor > 1;
    x->plan.parallel.expert_tensor = 1;
    x->plan.parallel.expert = tensor > 1 ? tensor : 1;
    x->plan.shard_group = world / tensor;
}

static int64_t r512(int64_t bytes) { return (bytes + 511) / 512 * 512; }

/* A norm keeps a number of fp32 for each row. */
static int64_t rows(int64_t n) { return r512(4 * n); }

/* Of n tokens that norms and down-projections see, and of `t` ranks that cut heads: x, norm(x), which both down-projections read; what comes
 * down to 1536, and its norm; the same of 512, in one piece; then queries, keys, values, the output, a number for each row and head, and the
 * random generator's two numbers. */
static int64_t latent(int64_t n, int64_t t)
{
    int64_t heads = HEADS / t;

    return 2 * n * (2 * H + 2 * Q_RANK + 2 * KV_RANK) + 3 * rows(n) + 2 * T * heads * (2 * KEY + 2 * VALUE) + r512(4 * T * heads) + 512;
}

/* x, norm(x); gate and up; their product. */
static int64_t dense(int64_t n, int64_t t) { return 2 * n * 2 * H + rows(n) + 2 * T * 3 * FFN / t; }

static void a_block_keeps_its_latents_and_whole_keys(void **state)
{
    struct built x;

    (void)state;
    deepseek(&x, 8, 1);
    is(saved(&x, PIECE_DENSE), latent(T, 1) + dense(T, 1));
    plan_free(&x.plan);
    deepseek(&x, 8, 8);
    is(saved(&x, PIECE_DENSE), latent(T / 8, 8) + dense(T / 8, 8));
    finish(&x);
}

/* Of two ranks that share the positions, each way: what one has of them is kept as by one alone, but for a random generator's state of each of two
 * steps or chunks; a ring's keys and values in one piece are those that came last, and exchanged heads have their output, too, before it is dealt out.  Its messages are keys of 192 and values of 128 of all heads; gathers
 * are of either; exchanged heads go out as queries, keys and values, and come back as values. */
static void a_context_has_keys_wider_than_values(void **state)
{
    static const enum context_method methods[] = { CONTEXT_RING, CONTEXT_ALL_GATHER, CONTEXT_ULYSSES };
    static const int64_t forward[3][4] = { { KEY + VALUE }, { 2 * KEY, 2 * VALUE }, { KEY, KEY, VALUE, VALUE } };
    const int64_t n = T / 2, own = 2 * n * (2 * H + 2 * Q_RANK + 2 * KV_RANK) + 3 * rows(n) + 2 * n * HEADS * (2 * KEY + 2 * VALUE) + r512(4 * n * HEADS),
                  mlp = 2 * n * 2 * H + rows(n) + 2 * n * 3 * FFN;
    struct built x;

    (void)state;
    for (int i = 0; i < 3; i++) {
        deepseek(&x, 8, 1);
        x.plan.parallel.context = 2;
        x.plan.parallel.context_method = methods[i];
        x.plan.parallel.context_balance = true;
        x.plan.megatron.a2a_ranks = 1;
        assert_int_equal(plan_check(&x.plan, "plan"), 0);
        is(saved(&x, PIECE_DENSE), own + mlp + (methods[i] == CONTEXT_ULYSSES ? 512 + 2 * n * HEADS * VALUE : 2 * 512));
        const struct piece *p = &x.program.piece[PIECE_DENSE];
        int sent = methods[i] == CONTEXT_RING ? 1 : methods[i] == CONTEXT_ALL_GATHER ? 2 : 4;
        assert_int_equal(p->ncollectives[PASS_FORWARD], sent);
        for (int k = 0; k < sent; k++)
            is(p->collectives[PASS_FORWARD][k].elems, n * HEADS * forward[i][k]);
        finish(&x);
    }
}

/* The checkpoint of the core keeps q, k, v as they go in, and the next layer what comes out. */
static void recompute_of_the_core_frees_its_rows_alone(void **state)
{
    struct built x;

    (void)state;
    deepseek(&x, 8, 1);
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    is(saved(&x, PIECE_DENSE_RECOMPUTED), latent(T, 1) + dense(T, 1) - r512(4 * T * HEADS) - 512);
    finish(&x);
}

/* In forward: the key's rotated part (64), 1536, 512; the output's sum; then the MLP's gather and sum.  Backward: each column-parallel layer's
 * input again and its gradient, in reverse order. */
static void tensor_parallel_ranks_gather_what_came_down(void **state)
{
    static const int64_t forward[] = { 64, Q_RANK, KV_RANK, H, H, H }, backward[] = { H, H, H, H, KV_RANK, KV_RANK, Q_RANK, Q_RANK, 64 };
    struct built x;

    (void)state;
    deepseek(&x, 8, 8);
    build(&x);
    const struct piece *p = &x.program.piece[PIECE_DENSE];
    assert_int_equal(p->ncollectives[PASS_FORWARD], 6);
    for (int i = 0; i < 6; i++)
        is(p->collectives[PASS_FORWARD][i].elems, T * forward[i]);
    assert_int_equal(p->ncollectives[PASS_BACKWARD], 9);
    for (int i = 0; i < 9; i++)
        is(p->collectives[PASS_BACKWARD][i].elems, T * backward[i]);
    finish(&x);
}

/* ---- what a rank has ---- */

static int64_t held(const struct plan *p, int64_t rank)
{
    struct local_model local;
    int64_t n;

    if (local_model_of(p, rank, &local) < 0)
        fail_msg("no local model");
    n = local.model->params;
    local_model_free(&local);
    return n;
}

/* A block's attention, cut and whole; experts of 3 x 7168 x 2048; a router of 256. */
enum { CUT = HEADS * KEY * Q_RANK + HEADS * (KEY - 64 + VALUE) * KV_RANK + H * HEADS * VALUE,
       WHOLE = Q_RANK * H + (KV_RANK + 64) * H + Q_RANK + KV_RANK + 2 * H, EXPERT = 3 * H * SHARED, ROUTER = 256 * H };

/* Published: 671,026,404,352 in all; the vocabulary of 129,280 divides by 128, and is filled up to 130,048, 127 x 1024, for eight
 * ranks.  In four layers three have no experts. */
static void ranks_have_what_megatron_deals_out(void **state)
{
    const int64_t ends = 129280LL * H, of_eight = 130048LL * H;
    struct model table;
    struct plan p;
    struct built x;

    (void)state;
    plan_of(&p, "deepseek-v3", 0, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.kernels = KERNELS_TE;
    assert_int_equal(megatron_model(&p, &table), 0);
    is(table.params, INT64_C(671026404352));
    is(table.per_dense, 11);
    is(table.per_block, 14);
    is(model_block_first(&table, 5), table.block0 + 3 * 11 + 2 * 14);
    model_free(&table);
    plan_free(&p);
    deepseek(&x, 64, 8);
    is(held(&x.plan, 5), 4 * (CUT / 8 + (int64_t)WHOLE) + 3 * (3LL * H * FFN / 8) + ROUTER + 256 / 8 * (int64_t)EXPERT + EXPERT / 8 + 2 * of_eight / 8 + H);
    x.plan.parallel.tensor = x.plan.parallel.expert = 1;
    x.plan.parallel.sequence = false;
    x.plan.parallel.pipeline = 4;
    x.plan.accumulation = 4;
    is(held(&x.plan, 20), CUT + (int64_t)WHOLE + 3LL * H * FFN);                    /* the second stage: a layer without experts */
    is(held(&x.plan, 63), CUT + (int64_t)WHOLE + ROUTER + 257LL * EXPERT + ends + H);
    plan_free(&x.plan);
}

/* ---- refused ---- */

static void refused(struct plan *p, const char *word)
{
    char why[512] = "";

    fail_capture(why, sizeof why);
    assert_int_equal(plan_check(p, "plan"), -1);
    fail_capture(NULL, 0);
    if (!strstr(why, word))
        fail_msg("no %s in: %s", word, why);
}

static void what_latent_attention_is_not_planned_with(void **state)
{
    struct built x;
    struct plan p;

    (void)state;
    deepseek(&x, 8, 2);
    assert_int_equal(plan_check(&x.plan, "plan"), 0);
    p = x.plan;
    p.megatron.tp_comm_overlap = true;
    refused(&p, "tp_comm_overlap");
    p = x.plan;
    p.megatron.attention_backend = BACKEND_FLASH;
    refused(&p, "flash-attn 2");
    p = x.plan;
    p.cluster.gpu.sm_arch = 80;
    refused(&p, "not on this GPU");
    p = x.plan;
    p.parallel.sequence = false;
    refused(&p, "parallel.sequence");
    p = x.plan;
    p.model.qkv_bias = true;
    refused(&p, "no biases");
    plan_free(&x.plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_keeps_its_latents_and_whole_keys),
        cmocka_unit_test(a_context_has_keys_wider_than_values),
        cmocka_unit_test(recompute_of_the_core_frees_its_rows_alone),
        cmocka_unit_test(tensor_parallel_ranks_gather_what_came_down),
        cmocka_unit_test(ranks_have_what_megatron_deals_out),
        cmocka_unit_test(what_latent_attention_is_not_planned_with),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
