/* Models with a head of one number (reward models, critics): names, sizes and losses, counted by hand.  Their memory is held against PyTorch's own
 * trackers in test_torch_memory.c (tests/golden/memory/torch_numbers.jsonl). */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/arch/transformer.h"
#include "model/plan/framework.h"
#include "model/plan/local_share.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

static void load(const char *name, struct model *m) { assert_int_equal(model_load(name, m), 0); }

static const struct tensor *last(const struct model *m) { return &m->tensors[m->ntensors - 1]; }

/* Qwen2.5 7B has 152064 rows of 3584 in a head of its own, which a score's 3584 weights replace; a value's have a bias. */
static void one_row_replaces_the_vocabulary(void **state)
{
    struct model whole, score, value;

    (void)state;
    load("qwen2.5-7b", &whole);
    load("qwen2.5-7b:score", &score);
    load("qwen2.5-7b:value", &value);
    assert_int_equal(score.params, whole.params - 152064LL * 3584 + 3584);
    assert_int_equal(value.params, score.params + 1);
    assert_string_equal(last(&score)->name, "score.weight");
    assert_string_equal(last(&value)->name, "score.bias");
    assert_string_equal(score.name, "qwen2.5-7b:score");
    assert_int_equal(last(&score)->shape[0], 1);
    assert_int_equal(last(&score)->shape[1], 3584);
    model_free(&whole);
    model_free(&score);
    model_free(&value);
}

/* A tied model's head is its embedding: nothing goes, and the score comes. */
static void a_tied_model_gets_a_head_of_its_own(void **state)
{
    static const char *const models[] = { "qwen2.5-0.5b", "gpt2", "opt-350m" };
    static const int64_t widths[] = { 896, 768, 512 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct model whole, score;
        char name[40];
        snprintf(name, sizeof name, "%s:score", models[i]);
        load(models[i], &whole);
        load(name, &score);
        assert_true(whole.tied && !score.tied);
        assert_int_equal(score.params, whole.params + widths[i]);
        model_free(&whole);
        model_free(&score);
    }
}

/* What is written reads back as the same model. */
static void a_config_says_the_head(void **state)
{
    static const char *const names[] = { "qwen2.5-7b:score", "llama-3.1-8b:value", "gpt2:value", "phi-2:score", "gemma-2-2b:score" };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model m, again;
        load(names[i], &m);
        json_t *config = model_to_config(&m);
        assert_int_equal(model_from_config(config, names[i], &again), 0);
        assert_int_equal(again.head, m.head);
        assert_int_equal(again.params, m.params);
        assert_int_equal(again.ntensors, m.ntensors);
        assert_string_equal(last(&again)->name, last(&m)->name);
        json_decref(config);
        model_free(&m);
        model_free(&again);
    }
}

static json_t *qwen_config(const char *class, int labels)
{
    struct model m;

    load("qwen2.5-0.5b", &m);
    json_t *config = model_to_config(&m);
    json_object_set_new(config, "architectures", json_pack("[s]", class));
    if (labels)
        json_object_set_new(config, "num_labels", json_integer(labels));
    model_free(&m);
    return config;
}

/* Several labels (2 are usual), and heads of other shapes, are not read as a language model's. */
static void other_heads_are_refused(void **state)
{
    static const struct { const char *class; int labels; } others[] = {
        { "Qwen2ForSequenceClassification", 0 }, { "Qwen2ForTokenClassification", 9 }, { "Qwen2ForRewardModel", 1 }, { "Qwen2ForQuestionAnswering", 1 },
    };
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct model m;
        json_t *config = qwen_config(others[i].class, others[i].labels);
        struct fail_sink before = fail_divert(why, sizeof why);
        int rc = model_from_config(config, "config", &m);
        fail_restore(before);
        assert_int_equal(rc, -1);
        assert_non_null(strstr(why, "architectures"));
        json_decref(config);
    }
    struct model m;
    json_t *config = qwen_config("Qwen2ForCausalLM", 2);        /* a causal model's config may list labels too */
    assert_int_equal(model_from_config(config, "config", &m), 0);
    assert_int_equal(m.head, HEAD_LOGITS);
    model_free(&m);
    json_decref(config);
}

static int plan_of(const char *model, const char *key, json_t *value, struct plan *p)
{
    json_t *doc = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s}", "dpx_plan", 1, "model", model, "cluster", "8xh100", "seq", 2048, "micro_batch", 2, "strategy",
                            "fsdp", "dialect", "torch", "precision", "bf16");

    if (key)
        json_object_set_new(doc, key, value);
    int rc = plan_from_json(doc, "plan", p);
    json_decref(doc);
    return rc;
}

static int count(const struct program *g, const char *name)
{
    int n = 0;

    for (int i = 0; i < g->piece[PIECE_HEAD].nkernels[PASS_FORWARD]; i++)
        n += !strcmp(g->piece[PIECE_HEAD].kernels[PASS_FORWARD][i].name, name);
    return n;
}

/* One product of 4096 tokens with one column, and no cross-entropy. */
static void there_are_no_logits(void **state)
{
    static const char *const models[] = { "qwen2.5-7b:score", "qwen2.5-7b:value" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan p;
        struct program g;
        assert_int_equal(plan_of(models[i], NULL, NULL, &p), 0);
        memset(&g, 0, sizeof g);
        assert_int_equal(program_build(&p, &g), 0);
        assert_int_equal(count(&g, "values"), 1);
        assert_int_equal(count(&g, "logits") + count(&g, "log-softmax") + count(&g, "nll loss"), 0);
        assert_int_equal(count(&g, "last token"), i == 0);
        /* forward, and back the gradients of weights and hidden states */
        assert_close(g.piece[PIECE_HEAD].flops[PASS_FORWARD] + g.piece[PIECE_HEAD].flops[PASS_BACKWARD], 6.0 * 4096 * 3584, 1);
        program_free(&g);
        plan_free(&p);
    }
}

static int megatron_plan(const char *model, const char *parallel, struct plan *p)
{
    json_t *doc = json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:s, s:o}", "dpx_plan", 1, "model", model, "cluster", "8xh100", "seq", 2048, "micro_batch", 2,
                            "accumulation", 4, "strategy", "zero1", "dialect", "megatron", "precision", "bf16", "parallel", json_loads(parallel, JSON_DECODE_ANY, NULL));
    int rc = plan_from_json(doc, "plan", p);

    json_decref(doc);
    return rc;
}

static int count_back(const struct program *g, const char *name)
{
    int n = 0;

    for (int i = 0; i < g->piece[PIECE_HEAD].nkernels[PASS_BACKWARD]; i++)
        n += !strcmp(g->piece[PIECE_HEAD].kernels[PASS_BACKWARD][i].name, name);
    return n;
}

/* Under Megatron-LM each tensor-parallel rank has the whole row, and a fourth of the positions with sequence parallelism: 4096 tokens' values
 * are gathered, and no gradient of them is added up. */
static void megatron_has_a_row_on_each_rank(void **state)
{
    static const struct { const char *parallel; int64_t ranks; bool sequence; } cases[] = {
        { "{}", 1, false }, { "{\"tensor\": 4}", 4, false }, { "{\"tensor\": 4, \"sequence\": true}", 4, true },
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p;
        struct program g;
        assert_int_equal(megatron_plan("qwen2.5-7b:value", cases[i].parallel, &p), 0);
        memset(&g, 0, sizeof g);
        assert_int_equal(program_build(&p, &g), 0);
        int64_t rows = cases[i].sequence ? 4096 / cases[i].ranks : 4096;
        assert_int_equal(count(&g, "values"), 1);
        assert_int_equal(count(&g, "logits"), 0);
        assert_int_equal(count(&g, "all-gather"), cases[i].sequence);
        assert_int_equal(count_back(&g, "reduce-scatter") + count_back(&g, "all-gather") + count_back(&g, "all-reduce"), 0);
        assert_int_equal(count_back(&g, "own positions"), cases[i].sequence);
        assert_close(g.piece[PIECE_HEAD].flops[PASS_FORWARD] + g.piece[PIECE_HEAD].flops[PASS_BACKWARD], 6.0 * (double)rows * 3584, 1);
        program_free(&g);
        plan_free(&p);
    }
}

/* The last stage has the row in place of the vocabulary's: so much less in parameters, and no bias. */
static void megatron_s_last_stage_has_one_row(void **state)
{
    struct plan p;

    (void)state;
    assert_int_equal(megatron_plan("qwen2.5-7b:value", "{\"tensor\": 2, \"pipeline\": 2}", &p), 0);
    struct model as;
    assert_int_equal(framework_of(&p)->registered(&p, &as), 0);
    assert_string_equal(last(&as)->name, "output_layer.weight");
    assert_int_equal(last(&as)->numel, 3584);
    assert_false(local_share_is_cut(last(&as)));
    assert_int_equal(as.params, p.model.params - 1);        /* transformers' has a bias */
    model_free(&as);
    plan_free(&p);
}

static void of_megatron_a_score_is_refused(void **state)
{
    static const struct { const char *model, *parallel, *says; } cases[] = {
        { "qwen2.5-7b:score", "{}", "a number a token" }, { "qwen2.5-7b:value", "{\"context\": 2}", "without context parallelism" },
    };
    char why[1024];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        struct fail_sink before = fail_divert(why, sizeof why);
        int rc = megatron_plan(cases[i].model, cases[i].parallel, &p);
        fail_restore(before);
        assert_int_equal(rc, -1);
        assert_non_null(strstr(why, cases[i].says));
    }
}

/* Each says what is not planned. */
static void what_is_not_planned_is_refused(void **state)
{
    struct { const char *key, *value, *says; } cases[] = {
        { "parallel", "{\"tensor\": 2}", "parallel" }, { "parallel", "{\"pipeline\": 2}", "parallel" }, { "loss", "\"fused\"", "loss" }, { "kernels", "\"dpx\"", "kernels" },
        { "kernels", "\"torch-compile\"", "kernels" }, { "train", "\"lora\"", "modules_to_save" },
    };
    char why[1024];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        struct fail_sink before = fail_divert(why, sizeof why);
        int rc = plan_of("qwen2.5-7b:value", cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL), &p);
        fail_restore(before);
        assert_int_equal(rc, -1);
        assert_non_null(strstr(why, cases[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_row_replaces_the_vocabulary),
        cmocka_unit_test(a_tied_model_gets_a_head_of_its_own),
        cmocka_unit_test(a_config_says_the_head),
        cmocka_unit_test(other_heads_are_refused),
        cmocka_unit_test(there_are_no_logits),
        cmocka_unit_test(megatron_has_a_row_on_each_rank),
        cmocka_unit_test(megatron_s_last_stage_has_one_row),
        cmocka_unit_test(of_megatron_a_score_is_refused),
        cmocka_unit_test(what_is_not_planned_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
