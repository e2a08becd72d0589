/* litgpt's adapters of parts of a layer that is q, k and v in one, beside what its own class holds on the CPU
 * (tests/golden/memory/torch_litgpt_adapter.py). */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

static int64_t number(const json_t *of, const char *key) { return json_integer_value(json_object_get(of, key)); }

/* One layer of attention of a tiny model, its adapters in bf16. */
static int read_plan(const json_t *of, const char *more, struct plan *p, char why[512])
{
    const char *family = json_string_value(json_object_get(of, "family"));
    bool falcon = !strcmp(family, "falcon");
    char text[2048];

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": { \"model_type\": \"%s\", \"num_hidden_layers\": 2, \"hidden_size\": %d, \"%s\": 256, "
             "\"num_attention_heads\": %d, \"vocab_size\": 512, \"max_position_embeddings\": 1024, \"layer_norm_%s\": 1e-5, \"%s\": \"gelu\", "
             "%s \"tie_word_embeddings\": false }, \"cluster\": \"1xh100\", \"seq\": %d, \"precision\": \"bf16\", \"strategy\": \"ddp\", \"dialect\": \"torch\", "
             "\"ddp\": { \"model_dtype\": \"bf16\" }, \"train\": \"lora\", \"lora\": { \"narrow\": true, \"rank\": %d, \"target_modules\": [\"query_key_value\"], "
             "\"qkv_parts\": \"%s\" }%s }", family, (int)number(of, "hidden"), falcon ? "ffn_hidden_size" : "intermediate_size", (int)number(of, "heads"),
             falcon ? "epsilon" : "eps", falcon ? "activation" : "hidden_act",
             falcon ? "\"new_decoder_architecture\": false, \"multi_query\": true, \"parallel_attn\": true, \"bias\": false, \"alibi\": false," : "",
             (int)number(of, "rows"), (int)number(of, "rank"), json_string_value(json_object_get(of, "parts")), more);
    json_t *plan = json_loads(text, 0, NULL);
    if (!plan)
        fail_msg("%s is no JSON", text);
    why[0] = '\0';
    fail_capture(why, 512);
    int rc = plan_from_json(plan, "plan", p);
    fail_capture(NULL, 0);
    json_decref(plan);
    return rc;
}

static int named(const struct piece *of, enum pass pass, const char *name, bool last)
{
    int at = -1;

    for (int i = 0; i < of->nkernels[pass] && (at < 0 || last); i++)
        if (!strcmp(of->kernels[pass][i].name, name))
            at = i;
    return at;
}

/* The most bytes in kernels [first, last] above those before, and what is left of them. */
static int64_t most_of(const struct piece *of, enum pass pass, int first, int last, int64_t *left)
{
    int64_t most = 0;

    assert_true(first >= 0 && last >= first);
    *left = 0;
    for (int i = first; i <= last; i++) {
        const struct kernel *k = &of->kernels[pass][i];
        int64_t up = 0;
        for (int c = 0; c < NMEM; c++)
            up += k->peak[c];
        most = *left + up > most ? *left + up : most;
        for (int c = 0; c < NMEM; c++)
            *left += k->net[c];
    }
    return most;
}

static json_t *next_case(FILE *in)
{
    char line[1024];

    while (fgets(line, sizeof line, in)) {
        json_t *of = json_loads(line, 0, NULL);
        if (json_object_get(of, "family"))
            return of;
        json_decref(of);
    }
    return NULL;
}

/* Trained: a row of A for each part and number of the rank, one of B for each column.  Bytes: an index of 8 bytes a column is rounded up to 512. */
static void parts_hold_what_litgpts_layer_holds(void **state)
{
    FILE *in = fopen("tests/golden/memory/torch_litgpt_adapter.jsonl", "r");
    int seen = 0;
    json_t *of;

    (void)state;
    assert_non_null(in);
    for (; (of = next_case(in)); seen++) {
        struct plan p;
        struct program g = { 0 };
        int64_t left;
        char why[512];
        if (read_plan(of, "", &p, why) < 0)
            fail_msg("%s", why);
        assert_int_equal(p.model.trainable, 2 * number(of, "trains"));
        assert_int_equal(program_build(&p, &g), 0);
        const struct piece *block = &g.piece[PIECE_BLOCK];
        int64_t most = most_of(block, PASS_FORWARD, named(block, PASS_FORWARD, "qkv", false), named(block, PASS_FORWARD, "adapter add", false), &left);
        assert_in_range(most - number(of, "forward") + 512, 0, 1536);
        assert_in_range(left - number(of, "kept") + 512, 0, 1536);
        most = most_of(block, PASS_BACKWARD, named(block, PASS_BACKWARD, "adapter scale", false), named(block, PASS_BACKWARD, "adapter A dW", true), &left);
        assert_in_range(most - number(of, "backward") + 512, 0, 1536);
        program_free(&g);
        plan_free(&p);
        json_decref(of);
    }
    fclose(in);
    assert_int_equal(seen, 8);
}

/* Forward and backward: x by A and its result by B, 2 T r (n h + columns) each, three times (dA, dB and both ways back). */
static void parts_are_multiplied_alone(void **state)
{
    json_t *of = json_loads("{ \"family\": \"falcon\", \"hidden\": 128, \"heads\": 4, \"kv_heads\": 1, \"rank\": 8, \"rows\": 512, \"parts\": \"q+v\" }", 0, NULL);
    struct plan p;
    struct program g = { 0 };
    double all = 0;
    char why[512];

    (void)state;
    assert_int_equal(read_plan(of, "", &p, why), 0);
    assert_int_equal(program_build(&p, &g), 0);
    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[pass]; i++)
            if (!strncmp(g.piece[PIECE_BLOCK].kernels[pass][i].name, "adapter ", 8))
                all += g.piece[PIECE_BLOCK].kernels[pass][i].flops;
    assert_close(all, 3 * 2.0 * 512 * 8 * (2 * 128 + 128 + 32), 1);
    program_free(&g);
    plan_free(&p);
    json_decref(of);
}

static void refuses(const char *family, const char *more, const char *what)
{
    json_t *of = json_pack("{s:s, s:i, s:i, s:i, s:i, s:s}", "family", family, "hidden", 128, "heads", 4, "rank", 8, "rows", 512, "parts", "q");
    struct plan p;
    char why[512];

    if (read_plan(of, more, &p, why) == 0 || !strstr(why, what))
        fail_msg("%s: %s", more, why);
    json_decref(of);
}

static void what_is_refused_has_a_reason(void **state)
{
    (void)state;
    refuses("gpt_neox", ", \"kernels\": \"dpx\"", "lora.qkv_parts");
    refuses("gpt_neox", ", \"recompute\": \"selective\"", "lora.qkv_parts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_hold_what_litgpts_layer_holds), cmocka_unit_test(parts_are_multiplied_alone),
        cmocka_unit_test(what_is_refused_has_a_reason),
    };
    return cmocka_run_group_tests_name("model/litgpt_adapter", tests, NULL, NULL);
}
