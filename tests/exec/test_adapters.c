/* Adapters' first values, and the folders that PEFT writes and reads. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "exec/data/adapter_folder.h"
#include "exec/data/weights.h"
#include "model/arch/training.h"

#define PARITY "tests/golden/parity/"
#define RUNS   "tests/golden/tune/runs/"

static void tuned(struct model *m, const char *of, int64_t rank, double alpha, const char *targets, const char *saves)
{
    struct training t = training_default();

    assert_int_equal(model_load(of, m), 0);
    snprintf(t.what, sizeof t.what, "lora");
    snprintf(t.target_modules, sizeof t.target_modules, "%s", targets);
    snprintf(t.modules_to_save, sizeof t.modules_to_save, "%s", saves);
    t.rank = rank;
    t.alpha = alpha;
    assert_int_equal(training_apply(m, &t, "test"), 0);
}

static int named(const struct model *m, const char *name, bool frozen)
{
    for (int t = 0; t < m->ntensors; t++)
        if (!strcmp(m->tensors[t].name, name) && m->tensors[t].frozen == frozen)
            return t;
    fail_msg("no tensor %s", name);
    return -1;
}

static float *filled(const struct weights *w, const struct model *m, int tensor)
{
    int64_t n = m->tensors[tensor].numel;
    float *x = malloc((size_t)n * sizeof *x);

    assert_non_null(x);
    assert_int_equal(weights_fill(w, tensor, 0, n, x), 0);
    return x;
}

static bool same(const struct weights *a, const struct model *m, int s, const struct weights *b, const struct model *n, int t)
{
    float *x = filled(a, m, s), *y = filled(b, n, t);
    bool equal = m->tensors[s].numel == n->tensors[t].numel && !memcmp(x, y, (size_t)m->tensors[s].numel * sizeof *x);

    free(x);
    free(y);
    return equal;
}

/* ---- first values ---- */

static void the_base_is_the_same_whatever_is_adapted(void **state)
{
    struct model plain, lora;

    (void)state;
    assert_int_equal(model_load(PARITY "llama", &plain), 0);
    tuned(&lora, PARITY "llama", 4, 8, "all-linear", "lm_head");
    struct weights *a = weights_from_seed(&plain, 3), *b = weights_from_seed(&lora, 3);
    for (int t = 0; t < plain.ntensors; t++)
        assert_true(same(a, &plain, t, b, &lora, named(&lora, plain.tensors[t].name, true)));
    assert_true(same(b, &lora, named(&lora, "lm_head.weight", true), b, &lora, named(&lora, "base_model.model.lm_head.weight", false)));
    weights_close(a), weights_close(b);
    model_free(&plain), model_free(&lora);
}

/* B is 0; A uniform in +-1/sqrt(in), of variance 1 / (3 in). */
static void adapters_begin_as_pefts_do(void **state)
{
    struct model m;
    double squares = 0, most = 0;

    (void)state;
    tuned(&m, "gpt2", 16, 16, "", "");
    struct weights *w = weights_from_seed(&m, 3);
    int a = named(&m, "base_model.model.transformer.h.3.attn.c_attn.lora_A.weight", false);
    float *x = filled(w, &m, a), *zero = filled(w, &m, a + 1);
    for (int64_t i = 0; i < 16 * 768; i++) {
        squares += (double)x[i] * (double)x[i];
        most = fmax(most, fabs((double)x[i]));
    }
    assert_true(most < 1 / sqrt(768) && most > 0.99 / sqrt(768));
    assert_close(squares / (16 * 768), 1.0 / 3 / 768, 0.03);
    for (int64_t i = 0; i < m.tensors[a + 1].numel; i++)
        assert_true(zero[i] == 0);
    free(x), free(zero);
    weights_close(w);
    model_free(&m);
}

/* ---- folders ---- */

static void what_peft_saved_is_taken(void **state)
{
    struct model m;
    char path[ADAPTER_PATH];

    (void)state;
    tuned(&m, PARITY "llama", 4, 4, "o_proj,gate_proj", "lm_head");
    struct weights *plain = weights_from_file(&m, PARITY "llama/init.safetensors", 1);
    struct weights *w = weights_from_file(&m, PARITY "llama/init.safetensors", 1);
    assert_non_null(plain);
    assert_int_equal(adapter_folder_check(&m, RUNS "lora-head/adapters"), 0);
    assert_int_equal(adapter_folder_weights(RUNS "lora-head/adapters", path), 0);
    assert_int_equal(weights_take_adapters(w, path), 0);
    for (int t = 0; t < m.ntensors; t++) {
        bool copy = !m.tensors[t].frozen && m.tensors[t].adapter == ADAPTER_NONE;   /* it begins as its original */
        assert_int_equal(same(plain, &m, t, w, &m, t), m.tensors[t].frozen || copy);
    }
    weights_close(plain), weights_close(w);
    model_free(&m);
}

static void refuses(const struct model *m, const char *folder, const char *why)
{
    char said[512] = "", path[ADAPTER_PATH];
    struct weights *w = weights_from_seed(m, 1);

    fail_capture(said, sizeof said);
    int rc = adapter_folder_check(m, folder) < 0 || adapter_folder_weights(folder, path) < 0 || weights_take_adapters(w, path) < 0;
    fail_capture(NULL, 0);
    assert_true(rc);
    if (!strstr(said, why))
        fail_msg("\"%s\" does not say \"%s\"", said, why);
    weights_close(w);
}

static void other_adapters_are_refused(void **state)
{
    static const struct { int64_t rank; double alpha; const char *targets, *why; } others[] = {
        { 4, 8, "o_proj,gate_proj", "lora_alpha is 4, the plan's lora.alpha 8" },
        { 8, 4, "o_proj,gate_proj", "r is 4, the plan's lora.rank 8" },
        { 4, 4, "o_proj,up_proj", "has no tensor" }, { 4, 4, "o_proj", "which model" },
    };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct model m;
        tuned(&m, PARITY "llama", others[i].rank, others[i].alpha, others[i].targets, "lm_head");
        refuses(&m, RUNS "lora-head/adapters", others[i].why);
        model_free(&m);
    }
}

/* Key by key what PEFT wrote of the same adapters, of the keys that dpx writes. */
static void the_config_is_pefts(void **state)
{
    static const struct { const char *run, *model, *targets, *saves; int64_t rank; double alpha; } all[] = {
        { "lora-head", "llama", "o_proj,gate_proj", "lm_head", 4, 4 }, { "lora-gpt2", "gpt2", "", "", 8, 8 },
        { "lora", "llama", "all-linear", "", 4, 8 }, { "lora-conv1d", "gpt2", "c_attn,c_proj,c_fc", "", 2, 6 },
    };
    char folder[] = "/tmp/dpx-adapters-XXXXXX", path[ADAPTER_PATH], theirs_at[ADAPTER_PATH];
    const char *key;
    json_t *value;

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 4; i++) {
        struct model m;
        tuned(&m, i % 2 ? PARITY "gpt2" : PARITY "llama", all[i].rank, all[i].alpha, all[i].targets, all[i].saves);
        assert_int_equal(adapter_folder_write(&m, folder), 0);
        assert_int_equal(adapter_folder_check(&m, folder), 0);
        snprintf(path, sizeof path, "%s/adapter_config.json", folder);
        snprintf(theirs_at, sizeof theirs_at, RUNS "%s/adapters/adapter_config.json", all[i].run);
        json_t *ours = json_load_file(path, 0, NULL), *theirs = json_load_file(theirs_at, 0, NULL);
        assert_non_null(ours);
        assert_non_null(theirs);
        json_object_foreach(ours, key, value) {
            const json_t *want = json_object_get(theirs, key);
            if (!strcmp(key, "base_model_name_or_path"))
                continue;
            assert_non_null(want);
            if (!json_is_array(want)) {
                assert_true(json_is_number(want) ? json_number_value(want) == json_number_value(value) : json_equal(want, value));
                continue;
            }
            assert_int_equal(json_array_size(want), json_array_size(value));        /* a set */
            for (size_t j = 0; j < json_array_size(want); j++) {
                bool found = false;
                for (size_t k = 0; k < json_array_size(value); k++)
                    found |= json_equal(json_array_get(want, j), json_array_get(value, k));
                assert_true(found);
            }
        }
        json_decref(ours), json_decref(theirs);
        model_free(&m);
    }
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_base_is_the_same_whatever_is_adapted),
        cmocka_unit_test(adapters_begin_as_pefts_do),
        cmocka_unit_test(what_peft_saved_is_taken),
        cmocka_unit_test(other_adapters_are_refused),
        cmocka_unit_test(the_config_is_pefts),
    };

    return cmocka_run_group_tests_name("exec/adapters", tests, NULL, NULL);
}
