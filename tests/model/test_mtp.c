/* Multi-token prediction in dialect megatron: parameters and what is kept by arithmetic, options, refusals.  What ranks exchange is among the
 * lists of tests/golden/megatron (test_collectives.c). */
#include "tests/model/megatron_text.h"
#include "tests/model/plans.h"

#include <stdlib.h>

#include "model/exchange/megatron_import.h"
#include "model/plan/knob.h"
#include "model/program/program.h"

static void of(struct plan *p, const char *model, int64_t layers, int64_t world, enum strategy s)
{
    plan_of(p, model, layers, world, s, DIALECT_MEGATRON, DT_BF16);
}

static void cut(struct plan *p, int64_t tensor, int64_t pipe, int64_t chunks, int64_t steps)
{
    p->parallel.tensor = tensor;
    p->parallel.sequence = tensor > 1;
    p->parallel.pipeline = pipe;
    p->parallel.pipeline_schedule = chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    p->parallel.virtual_stages = chunks;
    p->accumulation = steps;
    knob_follow(p, NULL, NULL);
    p->parallel.virtual_stages = chunks;
    plan_resolve(p);
}

static void refused(struct plan *p, const char *says)
{
    char why[512] = "";

    fail_capture(why, sizeof why);
    int rc = plan_check(p, "t");
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, says))
        fail_msg("\"%s\" does not say \"%s\"", why, says);
}

/* DeepSeek-V3's has 11.5B parameters of its own (README_WEIGHTS.md of its repository): the last layer once more, 256
 * experts and a shared one of 3 x 7168 x 2048, a router, latent attention; the projection of 2 x 7168 to 7168, three norms. */
static void a_depth_has_a_layer_a_projection_and_three_norms(void **state)
{
    int64_t h = 7168, latent = 1536 * h + 1536 + 1536 * 128 * 192 + 576 * h + 512 + 512 * 128 * 256 + 128 * 128 * h;
    int64_t layer = 257 * 3 * h * 2048 + 256 * h + latent + 2 * h, depth = layer + 2 * h * h + 3 * h;
    struct local_model with, without;
    struct plan p;

    (void)state;
    of(&p, "deepseek-v3", 0, 8, STRAT_ZERO1);
    assert_int_equal(local_model_of(&p, 0, &without), 0);
    p.megatron.mtp_num_layers = 1;
    assert_int_equal(local_model_of(&p, 0, &with), 0);
    assert_int_equal(with.model->params - without.model->params, depth);
    assert_close((double)depth, 11.5e9, 0.01);
    assert_int_equal(model_routers(with.model), 58 + 1);
    local_model_free(&with);
    local_model_free(&without);
    plan_free(&p);
}

/* What stays for backward of a depth: a layer's, and fp32 probabilities of its own logits, which are by far the most of the rest: 15 times b s h
 * of 16 bits are more than all norms' inputs, the projection's input and the states side by side. */
static void a_depth_keeps_logits_of_its_own(void **state)
{
    struct program with = { 0 }, without = { 0 };
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-8b", 4, 8, STRAT_ZERO1);
    assert_int_equal(program_build(&p, &without), 0);
    p.megatron.mtp_num_layers = 1;
    assert_int_equal(program_build(&p, &with), 0);
    int64_t tokens = p.micro_batch * p.seq, more = with.piece[PIECE_HEAD].saved - without.piece[PIECE_HEAD].saved;
    int64_t least = without.piece[PIECE_BLOCK].saved + 4 * tokens * 128256;
    assert_in_range(more, least, least + 15 * 2 * tokens * 4096);
    program_free(&with);
    program_free(&without);
    plan_free(&p);
}

/* Recomputed whole, the layer leaves what it was given, states and embedding, of b s h each; the rest of a depth stays. */
static void a_depth_that_runs_again_keeps_what_it_was_given(void **state)
{
    struct program whole = { 0 }, again = { 0 };
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-8b", 4, 8, STRAT_ZERO1);
    p.megatron.mtp_num_layers = 1;
    assert_int_equal(program_build(&p, &whole), 0);
    p.recompute = RECOMPUTE_FULL;
    assert_int_equal(program_build(&p, &again), 0);
    int64_t less = whole.piece[PIECE_HEAD].saved - again.piece[PIECE_HEAD].saved, one = 2 * p.micro_batch * p.seq * 4096;
    assert_in_range(less, whole.piece[PIECE_BLOCK].saved, whole.piece[PIECE_BLOCK].saved + 8 * one);
    p.megatron.recompute_num_layers = 1;        /* block: that of multi-token prediction does not */
    assert_int_equal(program_build(&p, &again), 0);
    assert_int_equal(again.piece[PIECE_HEAD].saved, whole.piece[PIECE_HEAD].saved);
    program_free(&whole);
    program_free(&again);
    plan_free(&p);
}

static void what_multi_token_prediction_lacks_is_refused(void **state)
{
    struct plan p;

    (void)state;
    of(&p, "llama-3.1-8b", 8, 8, STRAT_ZERO1);
    p.megatron.mtp_num_layers = 2;
    refused(&p, "more than one depth");
    p.megatron.mtp_num_layers = 1;
    assert_int_equal(plan_check(&p, "t"), 0);
    p.megatron.cuda_graph_impl = GRAPHS_LOCAL;
    refused(&p, "cuda_graph_impl");
    p.megatron.cuda_graph_impl = GRAPHS_NONE;
    p.megatron.fp8_format = FP8_HYBRID;
    p.megatron.fp8_recipe = FP8_TENSORWISE;
    assert_int_equal(plan_check(&p, "t"), 0);
    p.megatron.first_last_layers_bf16 = true;
    refused(&p, "first_last_layers_bf16");
    p.megatron.first_last_layers_bf16 = false;
    p.megatron.fp8_format = FP8_OFF;
    cut(&p, 1, 2, 1, 4);
    strcpy(p.megatron.pipeline_layout, "Ettttt|tttL");
    refused(&p, "0 layers of multi-token prediction (m), but megatron.mtp_num_layers is 1");
    strcpy(p.megatron.pipeline_layout, "Ettttt|tttmL");
    assert_int_equal(plan_check(&p, "t"), 0);
    plan_free(&p);
    of(&p, "gpt2", 2, 8, STRAT_ZERO1);
    p.megatron.mtp_num_layers = 1;
    refused(&p, "learned positions");
    plan_free(&p);
}

/* The command line, a layout with m, fields of a recipe. */
static void its_options_are_read(void **state)
{
    static const struct { const char *text, *as; int64_t depths; } cases[] = {
        { "--micro-batch-size 1 --seq-length 512 --bf16 --mtp-num-layers 1 --mtp-loss-scaling-factor 0.3", "txt", 1 },
        { "--micro-batch-size 1 --seq-length 512 --bf16 --pipeline-model-parallel-size 2 --mtp-num-layers 1 --pipeline-model-parallel-layout Et*5|t*3mL", "txt", 1 },
        { "--micro-batch-size 1 --seq-length 512 --bf16", "txt", 0 },
        { "micro_batch_size: 1\nseq_length: 512\nbf16: true\nmtp_num_layers: 1\n", "yaml", 1 },
        { "micro_batch_size: 1\nseq_length: 512\nbf16: true\nmtp_num_layers: 0\n", "yaml", 0 },
    };
    struct plan model;

    (void)state;
    plan_of(&model, "llama-3.1-8b", 8, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        assert_int_equal(imported(cases[i].text, cases[i].as, &model, &p), 0);
        assert_int_equal(p.megatron.mtp_num_layers, cases[i].depths);
        assert_int_equal(plan_check(&p, "t"), 0);
        plan_free(&p);
    }
    struct plan p;
    char why[512] = "";
    fail_capture(why, sizeof why);
    assert_int_equal(imported("--micro-batch-size 1 --seq-length 512 --bf16 --mtp-num-layers -1", "txt", &model, &p), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "mtp_num_layers: expected a number from 0 on"));
    plan_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_depth_has_a_layer_a_projection_and_three_norms),
        cmocka_unit_test(a_depth_keeps_logits_of_its_own),
        cmocka_unit_test(a_depth_that_runs_again_keeps_what_it_was_given),
        cmocka_unit_test(what_multi_token_prediction_lacks_is_refused),
        cmocka_unit_test(its_options_are_read),
    };
    return cmocka_run_group_tests_name("model/mtp", tests, NULL, NULL);
}
