/* LLaMA-Factory's Muon, of a recipe. */
#include "tests/model/plans.h"
#include "tests/model/recipes.h"

#include <stdio.h>

#include "model/exchange/recipe_muon.h"

/* LLaMA-Factory's Muon: what its own step holds of a tensor (tests/golden/tune/record_factory_muon.py), and what a recipe of it becomes. */
static void factorys_muon_is_planned_within_what_it_holds_more(void **state)
{
    FILE *in = fopen("tests/golden/tune/factory_muon.jsonl", "r");
    char line[512];
    struct plan p;
    int seen = 0;

    (void)state;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        json_t *of = json_loads(line, 0, NULL), *shape = json_object_get(of, "shape");
        int64_t a = json_integer_value(json_array_get(shape, 0)), b = json_array_size(shape) > 1 ? json_integer_value(json_array_get(shape, 1)) : 1;
        if (shape)
            assert_int_equal(recipe_muon_moment(a * b, json_is_true(json_object_get(of, "muon")) ? (a < b ? a : b) : 0), json_integer_value(json_object_get(of, "peak")));
        seen += shape != NULL;
        json_decref(of);
    }
    fclose(in);
    assert_int_equal(seen, 7);
    assert_int_equal(read_recipe("model_name_or_path: Qwen/Qwen2-1.5B-Instruct\nfinetuning_type: full\nuse_muon: true\ncutoff_len: 2048\nbf16: true\n", NULL,
                                 "8xh100", 0, &p, NULL), 0);
    assert_int_equal(p.optimizer, OPTIMIZER_MUON);
    /* Two roots of the tied embedding, of 151936 x 1536, less those of all that AdamW steps: 28 blocks' norms and biases of q, k and v, and a norm. */
    assert_close(recipe_muon_more(&p), 8.0 * 151936 * 1536 - 4.0 * (151936 * 1536 + 28 * (2 * 1536 + 1536 + 2 * 256) + 1536), 0);
    plan_free(&p);
}

static void other_ways_of_it_are_refused(void **state)
{
    static const struct { const char *text, *why; } of[] = {
        { "model_name_or_path: gpt2\nfinetuning_type: full\nuse_muon: true\ncutoff_len: 512\nbf16: true\n", "goes by names" },
        { "model_name_or_path: Qwen/Qwen2-1.5B-Instruct\nfinetuning_type: lora\nuse_muon: true\ncutoff_len: 512\nbf16: true\n", "full fine-tuning" },
        { "model_name_or_path: Qwen/Qwen2-1.5B-Instruct\nfinetuning_type: full\nuse_muon: true\ncutoff_len: 512\nbf16: true\nfsdp: full_shard auto_wrap\n", "whole matrices" },
        { "model_name_or_path: Qwen/Qwen2-1.5B-Instruct\nfinetuning_type: full\nuse_muon: 1\ncutoff_len: 512\nbf16: true\n", "true or false" },
    };
    struct plan p;
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        why[0] = '\0';
        fail_capture(why, sizeof why);
        int rc = read_recipe(of[i].text, NULL, "8xh100", 0, &p, NULL);
        fail_capture(NULL, 0);
        if (rc == 0 || !strstr(why, of[i].why))
            fail_msg("%s: %s", of[i].text, rc == 0 ? "is read" : why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(factorys_muon_is_planned_within_what_it_holds_more), cmocka_unit_test(other_ways_of_it_are_refused) };
    return cmocka_run_group_tests_name("model/recipe_muon", tests, NULL, NULL);
}
