/* Weights of an engine's ranks, by hand: stages of a pipeline, whole experts, fewer bits. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "sim/phases/engine_weights.h"

static struct model llama;
static struct cluster eight;

static int load(void **state)
{
    (void)state;
    return model_load("llama-3.1-8b", &llama) || cluster_load("8xh100", &eight);
}

static int unload(void **state)
{
    (void)state;
    model_free(&llama);
    return 0;
}

/* As it starts on the eight GPUs. */
static struct engine usual(enum engine_kind kind)
{
    struct engine e = engine_usual(kind);

    engine_fill(&e, &eight.gpu);
    return e;
}

/* 32 layers over 5 stages, by hand from get_pp_indices(): vLLM's two left over go to the fourth and the third, SGLang's to the last two. */
static void stages_have_whole_layers(void **state)
{
    static const int64_t of[NENGINE][5] = { [ENGINE_VLLM] = { 6, 6, 7, 7, 6 }, [ENGINE_SGLANG] = { 6, 6, 6, 7, 7 } };

    (void)state;
    for (int kind = 0; kind < NENGINE; kind++) {
        struct engine e = usual((enum engine_kind)kind);
        int64_t at = 0;
        e.pipeline = 5;
        for (int64_t i = 0; i < 5; i++) {
            struct engine_stage s = engine_stage(&e, &llama, i);
            assert_int_equal(s.from, at);
            assert_int_equal(s.to - s.from, of[kind][i]);
            at = s.to;
        }
    }
}

/* All stages together are the model; of a tied one the last stage has the embedding again. */
static void stages_are_the_model(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    struct engine_memory one, all;
    struct model tied;
    int64_t sum = 0, twice = 0;

    (void)state;
    assert_int_equal(model_load("llama-3.2-1b", &tied), 0);
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &one), 0);
    e.pipeline = 4;
    for (int64_t i = 0; i < 4; i++) {
        sum += engine_weights(&e, &llama, i);
        twice += engine_weights(&e, &tied, i);
    }
    assert_int_equal(sum, one.weights);
    assert_int_equal(twice, 2 * (tied.params + tied.tensors[0].numel));
    assert_int_equal(engine_memory_of(&e, &llama, &eight, 0, &all), 0);
    assert_int_equal(all.kv_token, one.kv_token / 4);
    assert_int_equal(all.kv_tokens, all.kv / all.kv_token);
    assert_int_equal(all.awake, one.awake);         /* the share, and graphs */
    model_free(&tied);
}

/* Mixtral's 8 experts: one a rank is as much as an eighth of each; with attention whole on each rank it is cut no more. */
static void experts_are_shared_out(void **state)
{
    struct engine e = usual(ENGINE_VLLM), cut;
    struct engine_memory m;
    struct model mix;
    int64_t experts = 0;
    char why[600];

    (void)state;
    assert_int_equal(model_load("mixtral-8x7b", &mix), 0);
    for (int i = 0; i < mix.ntensors; i++)
        experts += role_is_of_experts(mix.tensors[i].role) ? mix.tensors[i].numel : 0;
    e.tensor = 8;
    cut = e;
    e.expert = 8;
    assert_int_equal(engine_weights(&e, &mix, 0), engine_weights(&cut, &mix, 0));
    e.tensor = cut.tensor = 1;
    cut.expert = 1;
    assert_int_equal(engine_weights(&cut, &mix, 0) - engine_weights(&e, &mix, 0), 2 * (experts - experts / 8));
    e.tensor = 4;
    e.expert = 2;
    fail_capture(why, sizeof why);
    assert_int_equal(engine_memory_of(&e, &mix, &eight, 0, &m), -1);
    assert_non_null(strstr(why, "must be tensor or a multiple of it"));
    e.expert = 16;
    assert_int_equal(engine_memory_of(&e, &mix, &eight, 0, &m), -1);
    assert_non_null(strstr(why, "has 8 experts"));
    fail_capture(NULL, 0);
    model_free(&mix);
}

/* Llama 3.1 8B's 32 blocks have 2 x 4096 x (4096 + 1024) + 3 x 4096 x 14336 = 218,103,808 elements of products each; embedding, head and norms stay.  4 bits:
 * 1/2 + (2 + 1/2) / 128 bytes; fp8: 1, and 4 / 16384 by block. */
static void quantised_weights_by_hand(void **state)
{
    struct engine e = usual(ENGINE_VLLM);
    int64_t products = INT64_C(32) * 218103808, rest = 2 * (llama.params - products);

    (void)state;
    e.codes = CODES_FP8;
    assert_int_equal(engine_weights(&e, &llama, 0), rest + products);
    e.codes = CODES_FP8_BLOCK;
    assert_int_equal(engine_weights(&e, &llama, 0), rest + products + products / 4096);
    e.codes = CODES_AWQ;
    assert_int_equal(engine_weights(&e, &llama, 0), rest + products / 2 + products / 128 * 5 / 2);
    e.codes = CODES_GPTQ;
    e.tensor = 2;
    int64_t norms = 65 * 4096;
    assert_int_equal(engine_weights(&e, &llama, 0), (rest - 2 * norms + products / 2 + products / 128 * 5 / 2) / 2 + 2 * norms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_whole_layers),
        cmocka_unit_test(stages_are_the_model),
        cmocka_unit_test(experts_are_shared_out),
        cmocka_unit_test(quantised_weights_by_hand),
    };

    return cmocka_run_group_tests_name("sim/engine_weights", tests, load, unload);
}
