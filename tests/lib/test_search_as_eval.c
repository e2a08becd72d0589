/* What search lists, eval says of the same plan: drawn questions, and every plan of each answer as it is written there, by itself.
 *
 *     build/tests/lib/test_search_as_eval [SEARCHES [SEED]]           (so many that have an answer; refusals cost nothing) */
#include "tests/check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "lib/dpx.h"

/* Seconds and what follows from them; all else is equal to the last bit. */
#define REL 1e-12

static int searches = 45;
static uint64_t seed = 20;

/* ---- what is drawn ---- */

#define TINY "\"hidden_size\": 256, \"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"vocab_size\": 1000," \
             " \"max_position_embeddings\": 4096"

/* Every head its own keys, few of them or one; learned positions, windows; experts; Mamba-2.  Tiny to 8e9 parameters. */
static const char *const models[] = {
    "\"pythia-14m\"", "\"gpt2\"", "\"opt-350m\"", "\"bloom-560m\"", "\"smollm2-135m\"", "\"qwen3-0.6b\"", "\"gemma-3-1b\"", "\"llama-3.2-1b\"",
    "\"olmo-2-1b\"", "\"phi-2\"", "\"falcon-7b\"", "\"mistral-7b\"", "\"llama-3.1-8b\"", "\"glm-4-9b\"",
    "\"granite-3.0-1b-a400m\"", "\"olmoe-1b-7b\"", "\"mixtral-8x7b\"", "\"gpt-oss-20b\"", "\"nemotron-h-4b\"",
    "{\"model_type\": \"llama\", \"intermediate_size\": 688, " TINY "}",
    "{\"model_type\": \"mixtral\", \"intermediate_size\": 512, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, " TINY "}",
    "{\"model_type\": \"nemotron_h\", \"intermediate_size\": 1024, \"hybrid_override_pattern\": \"M-M*\", \"mamba_num_heads\": 8,"
    " \"mamba_head_dim\": 64, \"n_groups\": 2, \"ssm_state_size\": 64, " TINY "}",
};
static const char *const clusters[] = { "h100", "l4", "rtx-4090", "2xa100", "2xl4", "2xv100", "8xh100", "8xa100-40gb", "8xv100", "8xl4", "8xb200", "8xmi250x",
                                        "2x4xa100", "2x8xh100", "2x8xv100", "2x8xh200" };
static const char *const seqs[] = { "128", "500", "1024", "2048" };
static const char *const batches[] = { "4", "16", "24", "48", "64", "256" };
static const char *const frameworks[] = { "", ", \"framework\": \"torch\"", ", \"framework\": \"deepspeed\"", ", \"framework\": \"megatron\"" };
static const char *const kernels[] = { "", "", ", \"kernels\": \"torch-compile\", \"recompute\": \"none\"", ", \"kernels\": \"torch-eager\"" };
static const char *const trained[] = {
    "", "", "", "", ", \"lora\": 16", ", \"lora\": 8, \"base_dtype\": \"nf4\"", ", \"lora\": 8, \"lora_dropout\": 0.05",
    ", \"optimizer\": \"adamw_bnb_8bit\"", ", \"optimizer\": \"sgd\"", ", \"optimizer\": \"adafactor\"",
};
static const char *const others[] = {
    "", "", "", "", ", \"loss\": \"fused-linear\"", ", \"precision\": \"fp16\"", ", \"precision\": \"fp32\"", ", \"grid\": true",
    ", \"no_grid\": true, \"no_offload\": true", ", \"micro_batch\": 1", ", \"headroom\": 0.15", ", \"memory\": \"8GB\"", ", \"memory\": \"4GB\"",
};

static uint32_t draw(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}
#define ONE_OF(list) list[draw(sizeof list / sizeof *list)]

/* ---- the two answers ---- */

struct seen { int answers, rows, front, lacking, adapted, compiled, grids, dialects; };

/* NULL: no such plan, which *why says. */
static json_t *eval_of(const json_t *plan, char **why)
{
    json_t *asked = json_pack("{s:O}", "plan", plan);
    char *request = json_dumps(asked, JSON_REAL_PRECISION(17));
    int rc = dpx_eval(request, why);
    json_t *doc = rc == DPX_DONE || rc == DPX_NO ? json_loads(*why, 0, NULL) : NULL;

    free(request);
    json_decref(asked);
    return doc;
}

/* Says where, and ends the test. */
static void differ(const char *question, const json_t *row, const char *what, const json_t *is, const json_t *alone)
{
    char *x = is ? json_dumps(is, JSON_ENCODE_ANY) : NULL, *y = alone ? json_dumps(alone, JSON_ENCODE_ANY) : NULL;
    char *plan = json_dumps(json_object_get(row, "plan"), 0);

    fail_msg("%s\n%s: %s is %.300s, alone %.300s\n%s", question, json_string_value(json_object_get(row, "label")), what, x ? x : "absent",
             y ? y : "absent", plan);
}

/* Null, which search has for what it did not ask, stands for anything. */
static bool is_same(const json_t *x, const json_t *y)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_null(x))
        return true;
    if (json_is_number(x) && json_is_number(y)) {
        double a = json_number_value(x), b = json_number_value(y);
        return json_is_integer(x) && json_is_integer(y) ? json_integer_value(x) == json_integer_value(y) : fabs(a - b) <= REL * fabs(b);
    }
    if (json_is_object(x)) {
        json_object_foreach((json_t *)x, key, value)
            if (!is_same(value, json_object_get(y, key)))
                return false;
        return json_is_object(y);
    }
    if (json_is_array(x)) {
        json_array_foreach(x, i, value)
            if (!is_same(value, json_array_get(y, i)))
                return false;
        return json_is_array(y) && json_array_size(x) == json_array_size(y);
    }
    return json_equal(x, y);
}

static int64_t bytes(const json_t *memory, const char *key) { return json_integer_value(json_object_get(memory, key)); }

/* A plan of one line.  It needs what is allocated and what libraries take beside the allocator, which is all that is taken but not reserved. */
static void brief_is_same(const char *question, const json_t *row, const json_t *alone)
{
    const json_t *memory = json_object_get(alone, "memory"), *time = json_object_get(alone, "time");
    json_t *plan = json_object_get(row, "plan"), *taken = json_object_get(row, "taken_bytes");
    bool replayed = json_is_integer(json_object_get(memory, "reserved_peak_bytes"));

    if (!json_is_true(json_object_get(alone, "fits")))
        differ(question, row, "fits", json_true(), json_object_get(alone, "why_not"));
    if (!is_same(json_object_get(row, "step_s"), json_object_get(time, "step_s")))
        differ(question, row, "step_s", json_object_get(row, "step_s"), json_object_get(time, "step_s"));
    if (replayed && bytes(row, "needed_bytes") != bytes(memory, "allocated_peak_bytes") + bytes(memory, "taken_bytes") - bytes(memory, "reserved_peak_bytes"))
        differ(question, row, "needed_bytes", json_object_get(row, "needed_bytes"), memory);
    if (!is_same(taken, json_object_get(memory, "taken_bytes")))
        differ(question, row, "taken_bytes", taken, json_object_get(memory, "taken_bytes"));
    if (!is_same(plan, json_object_get(alone, "plan")))
        differ(question, row, "plan", plan, json_object_get(alone, "plan"));
}

/* One of `plans`, with all its figures. */
static void full_is_same(const char *question, const json_t *row, const json_t *alone)
{
    static const char *const keys[] = { "label", "words", "plan", "fits", "why_not", "first_over", "memory", "comm", "time" };

    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (!is_same(json_object_get(row, keys[k]), json_object_get(alone, keys[k])))
            differ(question, row, keys[k], json_object_get(row, keys[k]), json_object_get(alone, keys[k]));
}

static void row_is_same(const char *question, const char *list, const json_t *row, struct seen *seen)
{
    const json_t *plan = json_object_get(row, "plan");
    bool fits = strcmp(list, "plans") || json_is_true(json_object_get(row, "fits"));
    char *why = NULL;
    json_t *alone = eval_of(plan, &why);

    if (alone && !strcmp(list, "plans"))
        full_is_same(question, row, alone);
    else if (alone)
        brief_is_same(question, row, alone);
    else if (fits || !strstr(why, "is not known"))      /* what does not fit has no time, and may want a rate that the cluster does not say */
        fail_msg("%s\n%s: %s", question, json_string_value(json_object_get(row, "label")), why);
    seen->rows++;
    seen->front += !strcmp(list, "pareto");
    seen->lacking += !fits;
    seen->adapted += json_is_object(json_object_get(plan, "lora"));
    seen->compiled += !strcmp(json_string_value(json_object_get(plan, "kernels")), "torch-compile");
    seen->grids += json_integer_value(json_object_get(json_object_get(plan, "parallel"), "tensor")) > 1;
    const char *dialect = json_string_value(json_object_get(plan, "dialect"));
    seen->dialects |= !strncmp(dialect, "torch", 5) ? 1 : !strcmp(dialect, "deepspeed") ? 2 : 4;
    dpx_free(why);
    json_decref(alone);
}

static void each_listed_plan_is_what_eval_says_of_it(void **state)
{
    static const char *const lists[] = { "plans", "runners_up", "pareto" };
    struct seen seen = { 0 };
    int tries;

    (void)state;
    for (tries = 0; seen.answers < searches && tries < 6 * searches; tries++) {
        char question[2048], *text = NULL;
        const char *model = ONE_OF(models), *cluster = ONE_OF(clusters), *seq = ONE_OF(seqs), *batch = ONE_OF(batches), *framework = ONE_OF(frameworks);
        const char *with = ONE_OF(kernels), *what = ONE_OF(trained), *other = ONE_OF(others);
        snprintf(question, sizeof question, "{\"model\": %s, \"cluster\": \"%s\", \"seq\": %s, \"global_batch\": %s, \"top\": 4%s%s%s%s}", model, cluster, seq,
                 batch, framework, with, what, other);
        int rc = dpx_search(question, NULL, &text);
        json_t *doc = rc == DPX_DONE || rc == DPX_NO ? json_loads(text, 0, NULL) : NULL, *row;
        size_t k;
        if (rc == DPX_FAILED)
            fail_msg("%s: %s", question, text);
        seen.answers += doc != NULL;
        for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
            json_array_foreach(json_object_get(doc, lists[l]), k, row)
                row_is_same(question, lists[l], row, &seen);
        dpx_free(text);
        json_decref(doc);
    }
    print_message("%d of %d have answers; of %d plans %d on a front, %d that do not fit, %d with adapters, %d compiled, %d of grids\n", seen.answers, tries,
                  seen.rows, seen.front, seen.lacking, seen.adapted, seen.compiled, seen.grids);
    assert_true(seen.answers == searches && seen.rows > 5 * searches);
    if (searches >= 40) {
        assert_true(seen.front && seen.lacking && seen.adapted && seen.compiled && seen.grids);
        assert_int_equal(seen.dialects, 7);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_listed_plan_is_what_eval_says_of_it) };

    searches = argc > 1 ? atoi(argv[1]) : searches;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
