/* The built-in models, held against the parameter counts that their authors
 * publish: papers, model cards ("Number of Parameters"), the totals in the
 * checkpoints' safetensors headers. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/builtin.h"
#include "model/arch/transformer.h"

static int64_t params_of(const char *name)
{
    struct model m;
    int64_t params;

    assert_int_equal(model_load(name, &m), 0);
    params = m.params;
    model_free(&m);
    return params;
}

struct published { const char *name; int64_t params; };

static void check_totals(const struct published *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (params_of(list[i].name) != list[i].params)
            fail_msg("%s has %lld parameters, published are %lld", list[i].name,
                     (long long)params_of(list[i].name), (long long)list[i].params);
}

static void released_models_have_their_published_totals(void **state)
{
    static const struct published list[] = {
        { "redpajama-3b", 2775864320 }, { "mixtral-8x22b-v0.1", 140620634112 }, { "mosaicml-mpt-7b", 6649286656 },
        { "distilgpt2", 81912576 }, { "llama-7b", 6738415616 }, { "llama-13b", 13015864320 }, { "llama-30b", 32528943616 },
        { "llama-65b", 65285660672 }, { "llama-3-8b", 8030261248 }, { "llama-3-70b", 70553706496 },
        { "codellama-7b", 6738546688 }, { "codellama-13b", 13016028160 }, { "codellama-34b", 33743970304 },
        { "tinyllama-1.1b", 1100048384 }, { "mistral-7b-v0.3", 7248023552 }, { "mistral-large-123b", 122610069504 },
        { "smollm2-135m", 134515008 }, { "smollm2-360m", 361821120 }, { "smollm2-1.7b", 1711376384 },
        { "falcon3-1b", 1669408768 }, { "falcon3-3b", 3227655168 }, { "falcon3-7b", 7455550464 }, { "falcon3-10b", 10305653760 },
        { "pythia-70m", 70426624 }, { "pythia-160m", 162322944 }, { "pythia-410m", 405334016 }, { "pythia-1b", 1011781632 },
        { "pythia-1.4b", 1414647808 }, { "pythia-2.8b", 2775208960 }, { "pythia-6.9b", 6857302016 }, { "pythia-12b", 11846072320 },
        { "qwen1.5-0.5b", 463987712 }, { "qwen1.5-1.8b", 1836828672 }, { "qwen1.5-7b", 7721324544 }, { "qwen1.5-14b", 14167290880 },
        { "deepseek-r1-distill-qwen-1.5b", 1777088000 }, { "deepseek-llm-7b", 6910365696 },
        { "deepseek-coder-1.3b", 1346471936 }, { "deepseek-coder-6.7b", 6740512768 }, { "deepseek-coder-33b", 33342991360 },
        { "yi-6b", 6061035520 }, { "yi-34b", 34388917248 }, { "solar-10.7b", 10731524096 }, { "gemma-3-270m", 268098176 },
        { "gpt2", 124439808 }, { "gpt2-medium", 354823168 }, { "gpt2-large", 774030080 },
        { "gpt2-xl", 1557611200 },
        { "opt-125m", 125239296 }, { "opt-1.3b", 1315758080 }, { "opt-6.7b", 6658473984 },
        { "opt-13b", 12853473280 },
        { "llama-2-7b", 6738415616 }, { "llama-2-13b", 13015864320 },
        { "llama-2-70b", 68976648192 },
        { "llama-3.1-8b", 8030261248 }, { "llama-3.1-70b", 70553706496 },
        { "llama-3.1-405b", 405853388800 },
        { "llama-3.2-1b", 1235814400 }, { "llama-3.2-3b", 3212749824 },
        { "llama-3.3-70b", 70553706496 },
        { "qwen2.5-0.5b", 494032768 }, { "qwen2.5-1.5b", 1543714304 },
        { "qwen2.5-3b", 3085938688 }, { "qwen2.5-7b", 7615616512 },
        { "qwen2.5-14b", 14770033664 }, { "qwen2.5-32b", 32763876352 },
        { "qwen2.5-72b", 72706203648 },
        { "qwen3-0.6b", 596049920 }, { "qwen3-1.7b", 1720574976 }, { "qwen3-4b", 4022468096 },
        { "qwen3-8b", 8190735360 }, { "qwen3-14b", 14768307200 }, { "qwen3-32b", 32762123264 },
        { "mistral-7b", 7241732096 }, { "mistral-nemo-12b", 12247782400 },
        { "gemma-2b", 2506172416 }, { "gemma-7b", 8537680896 },
        { "gemma-2-2b", 2614341888 }, { "gemma-2-9b", 9241705984 },
        { "gemma-2-27b", 27227128320 },
        { "phi-3-mini", 3821079552 }, { "phi-4", 14659507200 },
        { "bloom-560m", 559214592 }, { "bloom-7b1", 7069016064 },
        { "bloom-176b", 176247271424 },
        { "starcoder2-3b", 3030371328 }, { "starcoder2-7b", 7173923840 },
        { "starcoder2-15b", 15957889024 },
        { "opt-350m", 331196416 },
        { "mistral-small-3-24b", 23572403200 }, { "ministral-8b", 8019808256 },
        { "olmo-2-1b", 1484916736 }, { "olmo-2-7b", 7298617344 }, { "olmo-2-13b", 13716198400 },
        { "olmo-2-32b", 32234279936 }, { "olmo-3-7b", 7298011136 },
        { "granite-3.1-8b", 8170848256 }, { "smollm3-3b", 3075098624 },
        { "stablelm-3b", 2795443200 }, { "stablelm-2-1.6b", 1644515328 },
        { "stablelm-2-12b", 12143185920 },
        { "command-r-35b", 34980831232 }, { "command-r-plus-104b", 103810674688 },
        { "command-r7b", 8028033024 },
        { "glm-4-9b", 9399951360 }, { "glm-4-9b-0414", 9400279040 }, { "glm-4-32b-0414", 32566081536 },
        { "minitron-4b", 4190509056 }, { "seed-oss-36b", 36151104512 },
        { "exaone-4.0-32b", 32003216384 }, { "ernie-4.5-0.3b", 360748032 },
        { "phi-1.5", 1418270720 }, { "phi-2", 2779683840 }, { "gemma-3-1b", 999885952 },
    };

    (void)state;
    check_totals(list, sizeof list / sizeof *list);
}

/* As the golden configs, whose tensors are transformers' own, groups of experts too. */
static void mixtures_are_their_configs(void **state)
{
    static const char *const names[] = { "deepseek-v3", "moonlight-16b-a3b", "kimi-k2", "glm-4.5", "glm-4.5-air" };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model m, config;
        char path[96];
        snprintf(path, sizeof path, "tests/golden/models/configs/%s.json", names[i]);
        assert_int_equal(model_load(names[i], &m), 0);
        assert_int_equal(model_load(path, &config), 0);
        assert_int_equal(m.params, config.params);
        assert_int_equal(m.route_groups, config.route_groups);
        assert_int_equal(m.route_best, config.route_best);
        assert_int_equal(m.rotary_dim, config.rotary_dim);
        assert_int_equal(m.context, config.context);
        assert_int_equal(m.qk_norm, config.qk_norm);
        model_free(&m);
        model_free(&config);
    }
    /* zai-org/GLM-4.5-Air's checkpoint, 110B, has the layer of MTP with an embedding and a head of its own: 128 experts, a shared one, attention,
     * a router, 2 h x h, and 2 x 151552 x 4096. */
    int64_t h = 4096, f = 1408, mtp = 129 * 3 * h * f + 2 * h * 96 * 128 + 2 * h * 8 * 128 + 128 * h + 2 * h * h + 2 * 151552 * h;
    assert_close((double)(params_of("glm-4.5-air") + mtp) / 110e9, 1, 0.005);
}

/* Its config.json names code of its own, which is DeepSeek-V3's. */
static void kimi_k2s_own_config_is_deepseek_v3s(void **state)
{
    json_t *config = json_loads("{\"model_type\":\"kimi_k2\",\"first_k_dense_replace\":1,\"n_routed_experts\":384,\"num_attention_heads\":64,"
                                "\"num_key_value_heads\":64,\"n_group\":1,\"topk_group\":1,\"vocab_size\":163840}", 0, NULL);
    struct model m;

    (void)state;
    assert_int_equal(model_from_config(config, "x", &m), 0);
    json_decref(config);
    assert_string_equal(m.family, "deepseek_v3");
    /* 60 blocks of 385 experts; a dense one; latent attention and two norms in each; router, embedding, head, norm. */
    int64_t h = 7168, expert = 3 * h * 2048, dense = 3 * h * 18432;
    int64_t attention = h * 1536 + 1536 + 1536 * 64 * 192 + h * 576 + 512 + 512 * 64 * 256 + 64 * 128 * h + 2 * h;
    assert_int_equal(m.params, 60 * (385 * expert + 384 * h) + dense + 61 * attention + 2 * 163840 * h + h);
    model_free(&m);
}

static void a_plan_is_no_model(void **state)
{
    char why[256];
    json_t *config = json_loads("{\"dpx_plan\":1,\"model\":\"gpt2\"}", 0, NULL);
    struct model m;

    (void)state;
    fail_capture(why, sizeof why);
    assert_int_equal(model_from_config(config, "x", &m), -1);
    fail_capture(NULL, 0);
    json_decref(config);
    assert_non_null(strstr(why, "x: a plan, not a model"));
}

/* The checkpoints' totals, less the vision tower (SigLIP So400m: 416,866,032) and the projector of
 * 1152 rows to the text model's width with its norm of 1152. */
static void gemma_3_text_models_are_the_checkpoints_without_their_vision(void **state)
{
    static const struct { const char *name; int64_t checkpoint, width; } list[] = {
        { "gemma-3-4b", 4300079472, 2560 }, { "gemma-3-12b", 12187325040, 3840 },
        { "gemma-3-27b", 27432406640, 5376 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        assert_int_equal(params_of(list[i].name), list[i].checkpoint - 416866032 - 1152 * list[i].width - 1152);
}

/* The num_params column of llm-foundry's benchmark tables, sequence 2048:
 * V d + S d + L (12 d^2 + 13 d) + 2 d. */
static void mpt_models_have_the_totals_of_the_benchmark_tables(void **state)
{
    static const struct published list[] = {
        { "mpt-125m", 125311488 }, { "mpt-350m", 355985408 }, { "mpt-760m", 760470528 },
        { "mpt-1b", 1315950592 }, { "mpt-7b", 6658859008 }, { "mpt-70b", 64862437376 },
    };

    (void)state;
    check_totals(list, sizeof list / sizeof *list);
}

/* Narayanan et al. 2021, equation 2, which leaves out the last norm:
 * 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)). */
static void megatron_models_follow_the_formula_of_their_paper(void **state)
{
    static const struct { const char *name; int64_t l, h; double billions; } list[] = {
        { "megatron-1.7b", 24, 2304, 1.7 },    { "megatron-3.6b", 30, 3072, 3.6 },
        { "megatron-7.5b", 36, 4096, 7.5 },    { "megatron-18b", 40, 6144, 18.4 },
        { "megatron-39b", 48, 8192, 39.1 },    { "megatron-76b", 60, 10240, 76.1 },
        { "megatron-145b", 80, 12288, 145.6 }, { "megatron-310b", 96, 16384, 310.1 },
        { "megatron-530b", 105, 20480, 529.6 }, { "megatron-1t", 128, 25600, 1008.0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int64_t l = list[i].l, h = list[i].h;
        int64_t paper = 12 * l * h * h + 13 * l * h + (51200 + 2048) * h;
        assert_int_equal(params_of(list[i].name), paper + 2 * h);
        /* The paper prints one digit after the point. */
        assert_true(fabs((double)paper / 1e9 - list[i].billions) <= 0.0501);
    }
}

/* Names of models are rounded; these are within 6 % of theirs. */
static void names_with_a_size_have_about_that_size(void **state)
{
    static const struct { const char *name; double billions; } list[] = {
        { "gpt3-125m", 0.125 }, { "gpt3-350m", 0.355 }, { "gpt3-760m", 0.76 },
        { "gpt3-1.3b", 1.3 }, { "gpt3-2.7b", 2.65 }, { "gpt3-6.7b", 6.65 },
        { "gpt3-13b", 12.85 }, { "gpt3-175b", 174.6 }, { "turing-nlg-17b", 17.2 },
        { "opt-2.7b", 2.65 }, { "opt-30b", 30 }, { "opt-66b", 66 }, { "opt-175b", 175 },
        { "mpt-3b", 2.65 }, { "mpt-13b", 12.9 }, { "mpt-30b", 30 },
        { "falcon-7b", 6.92 }, { "falcon-40b", 41.3 }, { "falcon-180b", 178.6 },
        { "gpt-neox-20b", 20.55 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        assert_close((double)params_of(list[i].name), list[i].billions * 1e9, 0.06);
}

/* The article's tables say 86,607,360: twelve d^2 a block, two vocabularies and
 * the positions, no biases and no norms.  With d = 768 a GPT-2 adds 9 d of biases
 * and 4 d of norms a block, and the last norm. */
static void gpt_lite_is_its_matrices_and_a_gpt2s_biases_and_norms(void **state)
{
    const int64_t d = 768, matrices = 12 * 12 * d * d + (2 * 65 + 2048) * d;

    (void)state;
    assert_int_equal(matrices, 86607360);
    assert_int_equal(params_of("gpt-lite-matrices"), matrices);
    assert_int_equal(params_of("gpt-lite"), matrices + 12 * 13 * d + 2 * d);
}

static void every_builtin_loads_under_its_name_and_reads_back(void **state)
{
    const char *name, *about;

    (void)state;
    for (int i = 0; (name = model_builtin(i, &about)) != NULL; i++) {
        struct model m, back;
        json_t *config;

        assert_true(strlen(about) > 0 && strlen(about) < 80);
        assert_int_equal(model_load(name, &m), 0);
        assert_string_equal(m.name, name);
        config = model_to_config(&m);
        assert_int_equal(model_from_config(config, "written", &back), 0);
        assert_int_equal(back.params, m.params);
        assert_string_equal(back.name, name);
        json_decref(config);
        model_free(&m);
        model_free(&back);
    }
    assert_null(model_builtin(-1, NULL));
}

static void builtin_names_are_unique(void **state)
{
    const char *a, *b;

    (void)state;
    for (int i = 0; (a = model_builtin(i, NULL)) != NULL; i++)
        for (int j = 0; j < i && (b = model_builtin(j, NULL)) != NULL; j++)
            assert_string_not_equal(a, b);
}

static void ids_of_the_hub_name_models_in_any_case(void **state)
{
    (void)state;
    assert_string_equal(hf_ids_find("meta-llama/Llama-3.1-8B"), "llama-3.1-8b");
    assert_string_equal(hf_ids_find("META-LLAMA/LLAMA-3.1-8B"), "llama-3.1-8b");
    assert_string_equal(hf_ids_find("Meta-Llama-3.1-8B-Instruct"), "llama-3.1-8b");
    assert_string_equal(hf_ids_find("GPT2"), "gpt2");
    assert_string_equal(hf_ids_find("meta-llama/Meta-Llama-3-8B"), "llama-3-8b");           /* 8192 positions: another model */
    assert_string_equal(hf_ids_find("mistralai/Mistral-7B-v0.3"), "mistral-7b-v0.3");       /* 32,768 tokens */
    assert_string_equal(hf_ids_find("NousResearch/Llama-2-7b-hf"), "llama-2-7b");           /* a copy */
    assert_string_equal(hf_ids_find("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"), "qwen2.5-32b");
    assert_string_equal(hf_ids_find("ibm-granite/granite-3.3-2b-instruct"), "granite-3.3-2b");
    assert_null(hf_ids_find("someone/gpt2"));
    assert_string_equal(hf_ids_nearest("qwen3-8"), "qwen3-8b");
    assert_string_equal(hf_ids_nearest("qwen/qwen2.5-7b-instrukt"), "Qwen/Qwen2.5-7B-Instruct");
    assert_null(hf_ids_nearest("something-else-entirely"));
}

/* An id that says what a model is made of is refused with that; none that is planned is. */
static void ids_that_say_what_is_not_planned_are_refused_so(void **state)
{
    static const char *const ids[][2] = {
        { "Qwen/Qwen3.5-4B", "linear attention" }, { "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "experts" }, { "tiiuae/Falcon-H1-7B-Base", "state spaces" }, { "Qwen/Qwen2.5-VL-7B-Instruct", "pictures" },
        { "Qwen/Qwen2.5-VL-7B-Instruct", "python -m dpx.record records its module" }, { "LiquidAI/LFM2-350M", "python -m dpx.record records its module" },
        { "TheBloke/Llama-2-7B-GPTQ", "packed" }, { "black-forest-labs/FLUX.1-dev", "diffusion" }, { "zai-org/GLM-4.7-Flash", "experts" },
    };
    const char *known;
    char why[1024];
    struct model m;

    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        fail_capture(why, sizeof why);
        assert_int_equal(model_load(ids[i][0], &m), -1);
        fail_capture(NULL, 0);
        if (!strstr(why, ids[i][1]))
            fail_msg("%s: %s", ids[i][0], why);
    }
    for (int i = 0; (known = model_builtin(i, NULL)); i++)
        if (hf_unplanned(known))
            fail_msg("%s: %s", known, hf_unplanned(known));
}

/* What huggingface_hub leaves behind: refs/main and the snapshot that it names. */
static void a_model_of_the_hubs_cache_is_read(void **state)
{
    static const char revision[] = "0123456789abcdef0123456789abcdef01234567";
    char root[] = "/tmp/dpx-hub-XXXXXX", path[256], command[320];
    struct model m;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(command, sizeof command, "mkdir -p %s/models--acme--own-7b/refs %s/models--acme--own-7b/snapshots/%s", root, root, revision);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/models--acme--own-7b/refs/main", root);
    assert_non_null(f = fopen(path, "w"));
    fputs(revision, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/models--acme--own-7b/snapshots/%s/config.json", root, revision);
    assert_non_null(f = fopen(path, "w"));
    fputs("{\"model_type\": \"llama\", \"num_hidden_layers\": 3, \"hidden_size\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 128,"
          " \"vocab_size\": 100}", f);
    fclose(f);
    setenv("HF_HUB_CACHE", root, 1);
    struct json_t *before = notes_divert(json_array()), *said;
    assert_int_equal(model_load("acme/own-7b", &m), 0);
    said = notes_divert(before);
    assert_int_equal(json_array_size(said), 1);
    json_decref(said);
    assert_int_equal(m.layers, 3);
    assert_string_equal(m.name, "own-7b");
    model_free(&m);
    snprintf(command, sizeof command, "rm %s/models--acme--own-7b/refs/main", root);         /* fetched by its revision */
    assert_int_equal(system(command), 0);
    assert_true(hf_cache_find("acme/own-7b", path, sizeof path));
    snprintf(command, sizeof command, "mkdir %s/models--acme--own-7b/snapshots/another", root);
    assert_int_equal(system(command), 0);
    assert_false(hf_cache_find("acme/own-7b", path, sizeof path));                           /* which of two? */
    assert_false(hf_cache_find("acme/other", path, sizeof path));
    assert_false(hf_cache_find("../own-7b", path, sizeof path));
    unsetenv("HF_HUB_CACHE");
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* What a model's own config says of dropout is that of its name: a tenth everywhere in StarCoder2 15B. */
static void a_name_brings_its_configs_dropout(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(model_load("starcoder2-15b", &m), 0);
    assert_close(m.dropout, 0.1, 1e-9);
    assert_close(m.attn_dropout, 0.1, 1e-9);
    assert_close(m.embed_dropout, 0.1, 1e-9);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_of_the_hubs_cache_is_read), cmocka_unit_test(a_name_brings_its_configs_dropout),
        cmocka_unit_test(ids_that_say_what_is_not_planned_are_refused_so),
        cmocka_unit_test(ids_of_the_hub_name_models_in_any_case),
        cmocka_unit_test(released_models_have_their_published_totals),
        cmocka_unit_test(mixtures_are_their_configs),
        cmocka_unit_test(kimi_k2s_own_config_is_deepseek_v3s),
        cmocka_unit_test(a_plan_is_no_model),
        cmocka_unit_test(gemma_3_text_models_are_the_checkpoints_without_their_vision),
        cmocka_unit_test(mpt_models_have_the_totals_of_the_benchmark_tables),
        cmocka_unit_test(megatron_models_follow_the_formula_of_their_paper),
        cmocka_unit_test(names_with_a_size_have_about_that_size),
        cmocka_unit_test(gpt_lite_is_its_matrices_and_a_gpt2s_biases_and_norms),
        cmocka_unit_test(every_builtin_loads_under_its_name_and_reads_back),
        cmocka_unit_test(builtin_names_are_unique),
    };
    return cmocka_run_group_tests_name("model/builtin", tests, NULL, NULL);
}
