/* Modules of Megatron-core's layers that backward runs again (recompute_modules): what a block still keeps, by counting; what runs twice; and that
 * nothing stays.  DeepSeek-V3's widths, and Mixtral's in 8 bits. */
#include "model/plan/megatron_model.h"
#include "tests/model/plans.h"
#include "tests/model/te_built.h"

/* Tokens, hidden; heads of 192 (128 and 64 rotated) and values of 128; down to 1536 and 512 (+ 64); 8 experts of 2048 a token, one shared. */
enum { T = 4096, H = 7168, HEADS = 128, KEY = 192, VALUE = 128, Q_RANK = 1536, KV_RANK = 512, ROPE = 64, FFN = 18432, F = 2048, USED = 8 };

static void deepseek(struct built *x, const char *modules)
{
    memset(x, 0, sizeof *x);
    plan_of(&x->plan, "deepseek-v3", 4, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    x->plan.kernels = KERNELS_TE;
    x->plan.seq = T;
    x->plan.dropout = 0;
    x->plan.parallel.expert = 8;
    x->plan.parallel.expert_tensor = 1;
    x->plan.shard_group = 8;
    x->plan.recompute = *modules ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
    strcpy(x->plan.megatron.recompute_modules, modules);
    assert_int_equal(plan_check(&x->plan, "plan"), 0);
}

static int64_t r512(int64_t bytes) { return (bytes + 511) / 512 * 512; }
/* A norm keeps a number of fp32 for each row. */
static int64_t rows(int64_t n) { return r512(4 * n); }

static int64_t kept(const char *modules, enum piece_id piece)
{
    struct built x;

    deepseek(&x, modules);
    int64_t bytes = saved(&x, piece + (*modules ? PIECE_BLOCK_RECOMPUTED - PIECE_BLOCK : 0));
    finish(&x);
    return bytes;
}

static int64_t spared(const char *modules) { return kept("", PIECE_BLOCK) - kept(modules, PIECE_BLOCK); }

/* A norm that is a module of its own keeps its input alone, which the residual is: not its result, nor 1/sigma.  Before experts and before latent
 * attention. */
static void norms_keep_their_input_alone(void **state)
{
    (void)state;
    is(spared("layernorm"), 2 * (2LL * T * H + rows(T)));
    is(kept("", PIECE_DENSE) - kept("layernorm", PIECE_DENSE), 2LL * T * H + rows(T));
}

/* Rows of 8 experts a token, of the width 2048: the activation's result is not kept; what gate and up gave is. */
static void the_experts_activation_is_not_kept(void **state)
{
    (void)state;
    is(spared("moe_act"), 2LL * USED * T * F);
    is(kept("", PIECE_DENSE), kept("moe_act", PIECE_DENSE));
}

/* In place of what comes down (1536; 512 in one piece), their norms, 1/sigma of both, queries, keys and values: what came down, the keys' 512 as a
 * view of 512 + 64. */
static void heads_are_made_of_low_ranks_again(void **state)
{
    const int64_t without = 2LL * T * (2 * Q_RANK + 2 * KV_RANK) + 2 * rows(T) + 2LL * T * HEADS * (2 * KEY + VALUE);

    (void)state;
    is(spared("mla_up_proj"), without - 2LL * T * (Q_RANK + KV_RANK + ROPE));
    is(spared("mla_up_proj"), kept("", PIECE_DENSE) - kept("mla_up_proj", PIECE_DENSE));
}

/* Gate, up and their product of shared experts; of the first layers' MLP, with its norm; of a mixture all but its input. */
static void mlps_keep_their_input_alone(void **state)
{
    (void)state;
    is(spared("shared_experts"), 2LL * T * 3 * F);
    is(kept("", PIECE_DENSE) - kept("mlp", PIECE_DENSE), 2LL * T * H + rows(T) + 2LL * T * 3 * FFN);
    is(spared("mlp"), 0);
    /* x, norm(x), 1/sigma; and attention, as a layer without experts has it. */
    is(kept("moe", PIECE_BLOCK), kept("", PIECE_DENSE) - 2LL * T * 3 * FFN);
    is(kept("moe,shared_experts,moe_act", PIECE_BLOCK), kept("moe", PIECE_BLOCK));
    is(kept("moe", PIECE_BLOCK) - kept("moe,layernorm", PIECE_BLOCK), spared("layernorm"));
    /* Each spares its own: the core's checkpoint keeps emptied queries, keys and values, too. */
    is(spared("layernorm,moe_act,mla_up_proj,shared_experts,core_attn"),
       spared("layernorm") + spared("moe_act") + spared("mla_up_proj") + spared("shared_experts") + spared("core_attn"));
}

/* The first of a name in backward; -1: none. */
static int place_of(const struct built *x, const char *name)
{
    const struct piece *p = &x->program.piece[PIECE_BLOCK_RECOMPUTED];

    for (int k = 0; k < p->nkernels[PASS_BACKWARD]; k++)
        if (!strcmp(p->kernels[PASS_BACKWARD][k].name, name))
            return k;
    return -1;
}

/* Results are copied, read and written, to where they were: a norm's twice, an activation's, queries, keys and values.  Each comes back before
 * backward of what read it. */
static void results_come_back_before_they_are_read(void **state)
{
    struct built x;
    int64_t bytes = 0;

    (void)state;
    deepseek(&x, "layernorm,moe_act,mla_up_proj");
    build(&x);
    assert_int_equal(kernels_named(&x, PIECE_BLOCK_RECOMPUTED, PASS_BACKWARD, "copy of what ran again", &bytes), 2 + 1 + 3);
    is(bytes, 2 * (2 * 2LL * T * H + 2LL * USED * T * F + 2LL * T * HEADS * (2 * KEY + VALUE)));
    bytes = 0;
    assert_int_equal(kernels_named(&x, PIECE_BLOCK_RECOMPUTED, PASS_FORWARD, "copy of what ran again", &bytes), 0);
    assert_true(place_of(&x, "mlp norm") >= 0 && place_of(&x, "mlp norm") < place_of(&x, "gated activation"));
    assert_true(place_of(&x, "gated activation") < place_of(&x, "experts down dX"));
    assert_true(place_of(&x, "experts down dX") < place_of(&x, "norm"));
    assert_true(place_of(&x, "norm") < place_of(&x, "attention output dX"));
    assert_true(place_of(&x, "attention output dX") < place_of(&x, "q up"));
    assert_true(place_of(&x, "q up") < place_of(&x, "attention"));
    assert_true(place_of(&x, "q up") < place_of(&x, "q up dX"));
    finish(&x);
}

static int exchanges(const char *modules)
{
    enum piece_id id = *modules ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK;
    struct built x;
    int n = 0;

    deepseek(&x, modules);
    build(&x);
    for (int k = 0; k < x.program.piece[id].ncollectives[PASS_BACKWARD]; k++)
        n += x.program.piece[id].collectives[PASS_BACKWARD][k].op == COLL_ALL_TO_ALL;
    finish(&x);
    return n;
}

/* Rows, their probabilities, and what becomes of the rows; a mixture that runs again exchanges all three once more. */
static void a_mixture_that_runs_again_exchanges_again(void **state)
{
    (void)state;
    assert_int_equal(exchanges(""), 3);
    assert_int_equal(exchanges("moe_act,layernorm,mla_up_proj,shared_experts"), 3);
    assert_int_equal(exchanges("moe"), 6);
}

/* Mixtral, 2 rows a token.  What is cast to 8 bits from a result that is not kept is the result itself: no codes of the product of gate and up
 * stay. */
static void in_8_bits_no_codes_stay_of_what_runs_again(void **state)
{
    const int64_t r = 2 * 4096;
    struct built x;

    (void)state;
    start(&x, "{'model_type': 'mixtral', 'num_hidden_layers': 4, 'hidden_size': 4096, 'intermediate_size': 14336, 'num_attention_heads': 32,"
              " 'num_key_value_heads': 8, 'vocab_size': 32000, 'max_position_embeddings': 32768, 'num_local_experts': 8, 'num_experts_per_tok': 2,"
              " 'sliding_window': null, 'tie_word_embeddings': false}", KERNELS_TE);
    x.plan.parallel.tensor = 1;
    x.plan.parallel.sequence = false;
    x.plan.seq = 4096;
    x.plan.megatron.fp8_format = FP8_HYBRID;
    x.plan.megatron.fp8_recipe = FP8_TENSORWISE;
    int64_t all = saved(&x, PIECE_BLOCK);
    x.plan.recompute = RECOMPUTE_SELECTIVE;
    strcpy(x.plan.megatron.recompute_modules, "moe_act");
    is(all - saved(&x, PIECE_BLOCK_RECOMPUTED), r * 14336);
    finish(&x);
}

/* Gradients that backward of a piece hands out, of each tensor. */
static void handed_out(const struct piece *p, int of[64])
{
    memset(of, 0, 64 * sizeof *of);
    for (int k = 0; k < p->nkernels[PASS_BACKWARD]; k++)
        for (int i = 0; i < 4 && p->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++)
            of[p->kernels[PASS_BACKWARD][k].ready[i]]++;
}

/* In combinations of modules; and gradients are as without. */
static void nothing_stays(void **state)
{
    static const char *const modules[] = {
        "layernorm", "moe_act", "mla_up_proj", "shared_experts", "moe", "mlp", "moe,layernorm", "moe,moe_act,shared_experts", "mla_up_proj,core_attn",
        "core_attn,mlp,layernorm,moe,moe_act,shared_experts,mla_up_proj",
    };

    (void)state;
    for (int mode = 0; mode < 10 * 2 * 4; mode++) {
        int once[64], again[64];
        struct built x;
        deepseek(&x, modules[mode % 10]);
        x.plan.seq = 512;
        x.plan.megatron.moe_aux_loss_coeff = mode % 4 ? 0.01 : 0;
        x.plan.parallel.tensor = mode / 10 % 2 ? 2 : 1;
        x.plan.parallel.sequence = mode / 10 % 2;
        x.plan.shard_group = mode / 10 % 2 ? 4 : 8;
        x.plan.megatron.fp8_format = mode / 20 ? FP8_HYBRID : FP8_OFF;
        x.plan.megatron.fp8_recipe = mode / 20 == 1 ? FP8_TENSORWISE : mode / 20 == 2 ? FP8_BLOCKWISE : FP8_MXFP8;
        x.plan.cluster.gpu = *gpu_find(mode / 20 == 3 ? "b200" : "h100");
        build(&x);
        check_nothing_stays(&x, &x.plan);
        struct built without = { .plan = x.plan };
        without.plan.recompute = RECOMPUTE_NONE;
        without.plan.megatron.recompute_modules[0] = '\0';
        build(&without);
        for (int dense = 0; dense < 2; dense++) {
            enum piece_id id = dense ? PIECE_DENSE : PIECE_BLOCK;
            handed_out(&without.program.piece[id], once);
            handed_out(&x.program.piece[id + 1], again);
            assert_memory_equal(again, once, sizeof once);
        }
        program_free(&without.program);         /* the model is the other plan's */
        finish(&x);
    }
}

static void what_cannot_run_again_is_refused(void **state)
{
    struct built x;

    (void)state;
    deepseek(&x, "moe");
    x.plan.megatron.cuda_graph_impl = GRAPHS_LOCAL;
    plan_refused(&x.plan, "megatron.recompute_modules: moe: beside megatron.cuda_graph_impl it is not modelled yet");
    x.plan.megatron.cuda_graph_impl = GRAPHS_NONE;
    x.plan.megatron.fp8_format = FP8_HYBRID;
    x.plan.megatron.fp8_recipe = FP8_DELAYED;
    strcpy(x.plan.megatron.recompute_modules, "moe_act");
    plan_refused(&x.plan, "moe_act: Megatron-LM: \"Delayed scaling does not support moe_act and layernorm recompute for fp8.\"");
    strcpy(x.plan.megatron.recompute_modules, "mla");
    plan_refused(&x.plan, "\"mla\": expected core_attn, mlp, layernorm, moe, moe_act, shared_experts, mla_up_proj");
    plan_free(&x.plan);
}

static void what_a_model_lacks_cannot(void **state)
{
    struct plan p;

    (void)state;
    plan_of(&p, "llama-3.1-8b", 1, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.kernels = KERNELS_TE;
    p.recompute = RECOMPUTE_SELECTIVE;
    strcpy(p.megatron.recompute_modules, "mla_up_proj");
    plan_refused(&p, "only supported with multi_latent_attention");
    strcpy(p.megatron.recompute_modules, "moe_act");
    plan_refused(&p, "only supported with moe_grouped_gemm");
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_keep_their_input_alone),
        cmocka_unit_test(the_experts_activation_is_not_kept),
        cmocka_unit_test(heads_are_made_of_low_ranks_again),
        cmocka_unit_test(mlps_keep_their_input_alone),
        cmocka_unit_test(results_come_back_before_they_are_read),
        cmocka_unit_test(a_mixture_that_runs_again_exchanges_again),
        cmocka_unit_test(in_8_bits_no_codes_stay_of_what_runs_again),
        cmocka_unit_test(nothing_stays),
        cmocka_unit_test(what_cannot_run_again_is_refused),
        cmocka_unit_test(what_a_model_lacks_cannot),
    };
    return cmocka_run_group_tests_name("model/te_again", tests, NULL, NULL);
}
