/* gpt_oss in Megatron-core's layers: what its sinks, scaled rotation, clamped experts and biases add to a mixture of the same shape, in bytes by counting;
 * what a rank has; windows; what is refused, and which other mixtures are. */
#include "tests/model/te_built.h"

#include "model/plan/megatron_model.h"
#include "tests/model/plans.h"

/* Tokens; gpt-oss-20b's widths. */
enum { T = 4096, H = 2880, HEADS = 64, KV = 8, D = 64, E = 32, USED = 4, F = 2880, WINDOW = 128, LAYERS = 24 };

#define SHAPE "'num_hidden_layers': 4, 'hidden_size': 2880, 'num_attention_heads': 64, 'num_key_value_heads': 8, 'head_dim': 64, 'intermediate_size': 2880, " \
              "'num_local_experts': 32, 'num_experts_per_tok': 4, 'vocab_size': 201088, 'max_position_embeddings': 131072, 'tie_word_embeddings': false, "   \
              "'rms_norm_eps': 1e-5"

static void of(struct built *x, const char *config)
{
    start(x, config, KERNELS_TE);
    x->plan.seq = T;
    x->plan.micro_batch = 1;
    x->plan.dropout = 0;
    x->plan.parallel.tensor = 1;
    x->plan.parallel.sequence = false;
    x->plan.parallel.expert = 1;
    x->plan.parallel.expert_tensor = 1;
}

static int64_t r512(int64_t bytes) { return (bytes + 511) / 512 * 512; }

/* Beside what a mixture keeps: 64 numbers of fp32; cosines and sines of T positions for queries and again for keys; both halves of the first product
 * once more, clamped.  Biases keep nothing. */
static void a_block_keeps_its_clamped_halves_and_tables(void **state)
{
    struct built x;
    int64_t mixture;

    (void)state;
    of(&x, "{'model_type': 'mixtral', 'sliding_window': null, " SHAPE "}");
    mixture = saved(&x, PIECE_BLOCK);
    finish(&x);
    of(&x, "{'model_type': 'gpt_oss', " SHAPE "}");
    is(saved(&x, PIECE_BLOCK), mixture + r512(4 * HEADS) + 2 * 2 * 2 * T * D + 2 * USED * T * 2 * F);
    is(saved(&x, PIECE_WINDOWED), x.program.piece[PIECE_BLOCK].saved);
    /* Rotated by 1: by Transformer Engine's kernel, which keeps no tables. */
    finish(&x);
    of(&x, "{'model_type': 'gpt_oss', 'rope_scaling': {'rope_type': 'default'}, " SHAPE "}");
    is(saved(&x, PIECE_BLOCK), mixture + r512(4 * HEADS) + 2 * USED * T * 2 * F);
    finish(&x);
}

/* Of T positions each sees 128: 2 T W - W^2 of T^2 scores, as causal ones are counted, in both products. */
static void a_window_computes_a_band(void **state)
{
    struct built x;

    (void)state;
    of(&x, "{'model_type': 'gpt_oss', " SHAPE "}");
    build(&x);
    const double all = 2.0 * HEADS * T * (double)T * 2 * D, band = all / ((double)T * T) * (2.0 * T * WINDOW - (double)WINDOW * WINDOW);
    assert_close(x.program.piece[PIECE_BLOCK].flops[PASS_FORWARD] - x.program.piece[PIECE_WINDOWED].flops[PASS_FORWARD], all - band, 1e-9);
    x.plan.seq = WINDOW - 1;            /* which no window cuts: blocks are of one kind */
    build(&x);
    assert_int_equal(x.program.piece[PIECE_WINDOWED].nkernels[PASS_FORWARD], 0);
    finish(&x);
}

/* ---- what a rank has ---- */

/* Of a layer: queries, keys, values and their biases, and sinks; what goes out; two norms; a router and its bias; of an expert both matrices and
 * biases. */
enum { QKV = (HEADS + 2 * KV) * D * (H + 1) + HEADS, OUT = HEADS * D * H, WHOLE = H + 2 * H + E * (H + 1), EXPERT = 2 * F * (H + 1) + H * (F + 1) };

static void ranks_have_what_megatron_deals_out(void **state)
{
    const int64_t ends = 2 * 201088LL * H, of_two = 2 * 201216LL * H;    /* 201,216: 786 x 256 */
    struct local_model local;
    struct model table;
    struct plan p;

    (void)state;
    plan_of(&p, "gpt-oss-20b", 0, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.kernels = KERNELS_TE;
    assert_int_equal(megatron_model(&p, &table), 0);
    is(table.params, LAYERS * ((int64_t)QKV + OUT + WHOLE + E * (int64_t)EXPERT) + ends + H);
    is(table.params, p.model.params);   /* 201,088 is a multiple of 128 */
    model_free(&table);
    p.seq = T;
    p.parallel.tensor = 2;
    p.parallel.sequence = true;
    p.parallel.expert = 4;
    p.parallel.expert_tensor = 1;
    p.shard_group = 4;
    assert_int_equal(plan_check(&p, "plan"), 0);
    assert_int_equal(local_model_of(&p, 5, &local), 0);
    is(local.model->params, LAYERS * (((int64_t)QKV + OUT) / 2 + WHOLE + E / 4 * (int64_t)EXPERT) + of_two / 2 + H);
    local_model_free(&local);
    plan_free(&p);
}

/* ---- refused ---- */

static void refused(struct plan *p, const char *word)
{
    char why[512] = "";

    fail_capture(why, sizeof why);
    int rc = plan_check(p, "plan");
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, word))
        fail_msg("no \"%s\" in: %s", word, why);
}

static void what_sinks_are_not_planned_with(void **state)
{
    struct plan whole, p;

    (void)state;
    plan_of(&whole, "gpt-oss-20b", 6, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    whole.kernels = KERNELS_TE;
    whole.parallel.expert = 2;
    whole.parallel.expert_tensor = 1;
    assert_int_equal(plan_check(&whole, "plan"), 0);
    p = whole;
    p.cluster.gpu.sm_arch = 80;
    refused(&p, "not on this GPU");
    p = whole;
    p.megatron.attention_backend = BACKEND_FLASH;
    refused(&p, "not in flash-attn 2");
    p = whole;
    p.parallel.tensor = p.parallel.expert_tensor = 2;
    p.parallel.sequence = true;
    refused(&p, "ETP==1");
    p = whole;
    p.parallel.context = 2;
    refused(&p, "only supports {softmax_type=} with cp_comm_type = 'a2a'");
    p.parallel.context_method = CONTEXT_ULYSSES;
    assert_int_equal(plan_check(&p, "plan"), 0);
    p = whole;
    p.parallel.pipeline = 2;
    p.parallel.pipeline_schedule = PIPELINE_1F1B;
    p.accumulation = 4;
    refused(&p, "begins at layer 3");
    p = whole;
    p.model.qkv_bias = p.model.out_bias = false;
    refused(&p, "its experts have biases");
    plan_free(&whole);
}

static void other_mixtures_are_refused_by_what_lacks(void **state)
{
    static const struct { const char *model, *says; } cases[] = {
        { "olmoe-1b-7b", "of all heads together" }, { "granite-3.0-1b-a400m", "multipliers" }, { "llama-4-scout", "within chunks" },
        { "llama-4-maverick", "within chunks" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        plan_of(&p, cases[i].model, 2, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
        p.kernels = KERNELS_TE;
        p.parallel.expert_tensor = 1;
        refused(&p, cases[i].says);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_keeps_its_clamped_halves_and_tables),
        cmocka_unit_test(a_window_computes_a_band),
        cmocka_unit_test(ranks_have_what_megatron_deals_out),
        cmocka_unit_test(what_sinks_are_not_planned_with),
        cmocka_unit_test(other_mixtures_are_refused_by_what_lacks),
    };

    return cmocka_run_group_tests_name("model/te_sinks", tests, NULL, NULL);
}
