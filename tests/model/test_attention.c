/* Which kernel PyTorch takes for attention, held against its own dispatch code: choices
 * recorded by tests/golden/memory/record_torch_memory.py --cases choices. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "model/attention.h"
#include "model/fail.h"

#define CHOICES "tests/golden/memory/attention_choices.txt"

/* 8 heads of `dim` over 64 tokens: grouped without a mask, with a window, falcon's. */
static int plan_of(const char *gpu, const char *family, const char *precision, int kv, int dim,
                   const char *version, struct plan *p)
{
    json_t *model = json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", family, "hidden_size", 8 * dim,
                              "num_attention_heads", 8, "num_hidden_layers", 2, "vocab_size", 100,
                              "num_key_value_heads", kv);
    char cluster[64];

    if (!strcmp(family, "falcon"))
        json_object_set_new(model, "multi_query", json_boolean(kv == 1));
    else
        json_object_set_new(model, "head_dim", json_integer(dim));
    if (!strcmp(family, "mistral"))
        json_object_set_new(model, "sliding_window", json_integer(16));
    snprintf(cluster, sizeof cluster, "2x%s", gpu);
    json_t *plan = json_pack("{s:i,s:o,s:s,s:s,s:s,s:s,s:i,s:o*}", "dpx_plan", 1, "model", model, "cluster", cluster,
                             "strategy", "fsdp", "dialect", "torch", "precision", precision, "seq", 64,
                             "framework_version", version ? json_string(version) : NULL);
    int rc = plan_from_json(plan, "plan", p);
    json_decref(plan);
    return rc;
}

static const char *const names[] = { "eager", "math", "efficient", "flash", "cudnn" };

static void every_recorded_choice_is_made(void **state)
{
    (void)state;
    char gpu[32], family[32], precision[8], kernel[16];
    FILE *f = fopen(CHOICES, "r");
    int kv, dim, n = 0;
    struct plan p;

    assert_non_null(f);
    while (fscanf(f, "%31s %31s %7s %d %d %15s", gpu, family, precision, &kv, &dim, kernel) == 6) {
        assert_int_equal(plan_of(gpu, family, precision, kv, dim, NULL, &p), 0);
        if (strcmp(names[attention_choice(&p)], kernel))
            fail_msg("%s %s %s kv %d dim %d: %s, PyTorch takes %s", gpu, family, precision, kv, dim,
                     names[attention_choice(&p)], kernel);
        plan_free(&p);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 880);
}

/* pytorch#191085 is in 2.15. */
static void one_head_of_keys_and_fp32_groups_are_not_fused_before_2_15(void **state)
{
    (void)state;
    struct plan p;

    assert_int_equal(plan_of("a100-80gb", "falcon", "bf16", 1, 64, "2.9", &p), 0);
    assert_int_equal(attention_choice(&p), ATTENTION_MATH);
    plan_free(&p);
    assert_int_equal(plan_of("a100-80gb", "llama", "fp32", 2, 64, "2.9", &p), 0);
    assert_int_equal(attention_choice(&p), ATTENTION_MATH);
    plan_free(&p);
    assert_int_equal(plan_of("a100-80gb", "llama", "bf16", 2, 64, "2.9", &p), 0);
    assert_int_equal(attention_choice(&p), ATTENTION_FLASH);
    plan_free(&p);
}

/* A mask is needed from a sequence as long as the window on: kv_length >= local_attention_size. */
static void a_window_counts_from_its_own_length_on(void **state)
{
    (void)state;
    struct plan p;

    assert_int_equal(plan_of("h100", "mistral", "bf16", 2, 64, NULL, &p), 0);
    p.model.window = 65;
    assert_false(attention_masked(&p) || attention_repeats(&p));
    assert_null(attention_note(&p));
    p.model.window = 64;
    assert_true(attention_masked(&p) && attention_repeats(&p));
    assert_non_null(strstr(attention_note(&p), "has not been observed on a GPU"));
    plan_free(&p);
}

/* Blocks with and without a mask under one plan: refused; eager masks are alike. */
static void layers_that_differ_are_refused_under_sdpa(void **state)
{
    (void)state;
    struct plan p;
    char said[512];

    assert_int_equal(plan_of("h100", "mistral", "bf16", 2, 64, NULL, &p), 0);
    p.model.window_from = 1;
    fail_capture(said, sizeof said);
    assert_int_equal(attention_check(&p, "p.json"), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "p.json: seq: torch-sdpa with a window of 16 in 1 of 2 layers"));
    p.kernels = KERNELS_TORCH_EAGER;
    assert_int_equal(attention_check(&p, "p.json"), 0);
    p.kernels = KERNELS_TORCH_SDPA;
    p.seq = 15;
    assert_int_equal(attention_check(&p, "p.json"), 0);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_choice_is_made),
        cmocka_unit_test(one_head_of_keys_and_fp32_groups_are_not_fused_before_2_15),
        cmocka_unit_test(a_window_counts_from_its_own_length_on),
        cmocka_unit_test(layers_that_differ_are_refused_under_sdpa),
    };
    return cmocka_run_group_tests_name("model/attention", tests, NULL, NULL);
}
