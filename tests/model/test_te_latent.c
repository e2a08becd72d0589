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

static int named(const struct piece *p, enum pass pass, const char *name, bool last)
{
    int at = -1;

    for (int i = 0; i < p->nkernels[pass] && (at < 0 || last); i++)
        if (!strcmp(p->kernels[pass][i].name, name))
            at = i;
    assert_true(at >= 0);
    return at;
}

/* The most bytes of the kernels [first, end) above those before them, and what is left of it. */
static int64_t most_of(const struct piece *p, enum pass pass, int first, int end, int64_t *left)
{
    int64_t live = 0, most = 0;

    for (int i = first; i < end; i++) {
        int64_t up = 0, net = 0;
        for (int c = 0; c < NMEM; c++) {
            up += p->kernels[pass][i].peak[c];
            net += p->kernels[pass][i].net[c];
        }
        most = live + up > most ? live + up : most;
        live += net;
    }
    *left = live;
    return most;
}

static int64_t of(const json_t *line, const char *key) { return json_integer_value(json_object_get(line, key)); }

/* Rotary positions by single operations, beside what megatron-core's own Python holds (tests/golden/memory/torch_latent_rope.py): what the up-projections
 * gave goes behind them; there it stays. */
static void rotary_positions_in_steps_hold_what_megatrons_make(void **state)
{
    FILE *in = fopen("tests/golden/memory/torch_latent_rope.jsonl", "r");
    char text[1024], line[1024];
    int seen = 0;

    (void)state;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        json_t *l = json_loads(line, 0, NULL);
        struct built x;
        int64_t left, grads;
        if (!json_object_get(l, "seq")) {
            json_decref(l);
            continue;
        }
        snprintf(text, sizeof text, "{'model_type': 'deepseek_v3', 'num_hidden_layers': 2, 'hidden_size': 512, 'intermediate_size': 1024, 'moe_intermediate_size': "
                 "128, 'n_routed_experts': 8, 'num_experts_per_tok': 2, 'n_shared_experts': 1, 'first_k_dense_replace': 1, 'num_attention_heads': %d, "
                 "'num_key_value_heads': %d, 'q_lora_rank': 256, 'kv_lora_rank': 128, 'qk_nope_head_dim': %d, 'qk_rope_head_dim': %d, 'v_head_dim': %d, "
                 "'vocab_size': 1024, 'n_group': 2, 'topk_group': 1, 'max_position_embeddings': 4096}", (int)of(l, "heads"), (int)of(l, "heads"),
                 (int)of(l, "plain"), (int)of(l, "rotated"), (int)of(l, "value"));
        start(&x, text, KERNELS_TE);
        x.plan.parallel.tensor = 1;
        x.plan.parallel.sequence = false;
        x.plan.micro_batch = of(l, "batch");
        x.plan.seq = of(l, "seq");
        x.plan.dropout = 0;
        x.plan.megatron.attention_backend = BACKEND_UNFUSED;
        x.plan.megatron.apply_rope_fusion = false;
        build(&x);
        const struct piece *p = &x.program.piece[PIECE_DENSE];
        int64_t most = most_of(p, PASS_FORWARD, named(p, PASS_FORWARD, "rotary q", false), named(p, PASS_FORWARD, "values", false) + 1, &left);
        is(left + 2 * x.plan.micro_batch * x.plan.seq * of(l, "heads") * (2 * of(l, "plain") + of(l, "rotated") + of(l, "value")), of(l, "kept"));
        is(most, of(l, "forward"));
        int first = named(p, PASS_BACKWARD, "attention dA", true) + 1;
        most = most_of(p, PASS_BACKWARD, first, named(p, PASS_BACKWARD, "kv up dX", false), &grads);
        is(most, of(l, "backward"));
        check_nothing_stays(&x, &x.plan);
        x.plan.recompute = RECOMPUTE_SELECTIVE;             /* made again, they go again */
        strcpy(x.plan.megatron.recompute_modules, "mla_up_proj");
        build(&x);
        check_nothing_stays(&x, &x.plan);
        finish(&x);
        json_decref(l);
        seen++;
    }
    fclose(in);
    assert_int_equal(seen, 3);
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
        cmocka_unit_test(rotary_positions_in_steps_hold_what_megatrons_make),
        cmocka_unit_test(tensor_parallel_ranks_gather_what_came_down),
        cmocka_unit_test(ranks_have_what_megatron_deals_out),
        cmocka_unit_test(what_latent_attention_is_not_planned_with),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
