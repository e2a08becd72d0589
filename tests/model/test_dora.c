/* DoRA beside what torchtune's own layer holds on the CPU (tests/golden/memory/torch_dora.py), and its tensors. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

static int64_t number(const json_t *of, const char *key) { return json_integer_value(json_object_get(of, key)); }

/* Two blocks of a tiny Llama whose down_proj has the layer's sizes. */
static int read_plan(const json_t *of, const char *more, struct plan *p, char why[512])
{
    char text[2048];

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": { \"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": %d, \"intermediate_size\": %d, "
             "\"num_attention_heads\": 4, \"vocab_size\": 512, \"max_position_embeddings\": 4096, \"tie_word_embeddings\": false }, \"cluster\": \"1xh100\", "
             "\"seq\": %d, \"precision\": \"bf16\", \"strategy\": \"ddp\", \"dialect\": \"torch\", \"ddp\": { \"model_dtype\": \"bf16\" }, \"train\": \"lora\", "
             "\"lora\": { \"narrow\": true, \"use_dora\": true, \"rank\": %d, \"target_modules\": [\"down_proj\"] }%s }",
             (int)number(of, "out"), (int)number(of, "in"), (int)number(of, "rows"), (int)number(of, "rank"), more);
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

/* The first kernel of that name from `from` on. */
static int named(const struct piece *of, enum pass pass, const char *name, int from)
{
    for (int i = from; i < of->nkernels[pass]; i++)
        if (!strcmp(of->kernels[pass][i].name, name))
            return i;
    fail_msg("no kernel %s from %d on", name, from);
    return -1;
}

/* The most bytes in kernels [first, last] above those before, and what is left of them. */
static int64_t most_of(const struct piece *of, enum pass pass, int first, int last, int64_t *left)
{
    int64_t most = 0;

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
        if (json_object_get(of, "rows"))
            return of;
        json_decref(of);
    }
    return NULL;
}

/* Allocations are rounded up to 512 bytes: vectors of a number for each output, several of them. */
enum { ROUNDED = 512, VECTORS = 12 };

static void check_close(const char *what, int64_t got, int64_t want)
{
    if (got < want - ROUNDED || got > want + VECTORS * ROUNDED)
        fail_msg("%s: %lld, torchtune's layer %lld", what, (long long)got, (long long)want);
}

static void a_layer_holds_what_torchtunes_holds(void **state)
{
    FILE *in = fopen("tests/golden/memory/torch_dora.jsonl", "r");
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
        int first = named(block, PASS_FORWARD, "mlp down", 0), norm = named(block, PASS_FORWARD, "norm of rows", first);
        int sum = named(block, PASS_FORWARD, "adapter add", norm);      /* of both products, then the result's */
        check_close("forward", most_of(block, PASS_FORWARD, first, sum + 1, &left), number(of, "forward"));
        check_close("kept", left + 2 * number(of, "rows") * number(of, "out"), number(of, "kept"));   /* the MLP's input, in hidden numbers, goes when it returns */
        first = named(block, PASS_BACKWARD, "adapter scale", 0);
        check_close("backward", most_of(block, PASS_BACKWARD, first, named(block, PASS_BACKWARD, "mlp down dX", first), &left), number(of, "backward"));
        program_free(&g);
        plan_free(&p);
        json_decref(of);
    }
    fclose(in);
    assert_int_equal(seen, 6);
}

static double adapters_flops(const struct program *g, enum pass pass)
{
    double all = 0;

    for (int i = 0; i < g->piece[PIECE_BLOCK].nkernels[pass]; i++)
        if (!strncmp(g->piece[PIECE_BLOCK].kernels[pass][i].name, "adapter ", 8))
            all += g->piece[PIECE_BLOCK].kernels[pass][i].flops;
    return all;
}

/* Forward multiplies the rows and a unit matrix of `in` rows by A and by B; backward the rows alone, for both weights and both inputs. */
static void a_unit_matrix_is_multiplied_in_forward(void **state)
{
    json_t *of = json_loads("{ \"in\": 256, \"out\": 128, \"rank\": 8, \"rows\": 512 }", 0, NULL);
    struct plan p;
    struct program g = { 0 };
    char why[512];

    (void)state;
    assert_int_equal(read_plan(of, "", &p, why), 0);
    assert_int_equal(program_build(&p, &g), 0);
    assert_close(adapters_flops(&g, PASS_FORWARD), 2.0 * (512 + 256) * 8 * (256 + 128), 1);
    assert_close(adapters_flops(&g, PASS_BACKWARD), 2 * 2.0 * 512 * 8 * (256 + 128), 1);
    program_free(&g);
    plan_free(&p);
    json_decref(of);
}

/* NF4 makes the weight once more for its norm, and keeps none of it. */
static void of_packed_weights_as_much_is_kept(void **state)
{
    json_t *of = json_loads("{ \"in\": 1024, \"out\": 512, \"rank\": 8, \"rows\": 512 }", 0, NULL);
    int64_t kept[2], most[2];
    char why[512];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan p;
        struct program g = { 0 };
        if (read_plan(of, i ? ", \"base_dtype\": \"nf4-double\"" : "", &p, why) < 0)
            fail_msg("%s", why);
        assert_int_equal(program_build(&p, &g), 0);
        const struct piece *block = &g.piece[PIECE_BLOCK];
        int norm = named(block, PASS_FORWARD, "norm of rows", 0), eye = named(block, PASS_FORWARD, "unit matrix", 0);
        most[i] = most_of(block, PASS_FORWARD, eye, named(block, PASS_FORWARD, "adapter add", norm) + 1, &kept[i]);
        program_free(&g);
        plan_free(&p);
    }
    assert_int_equal(kept[0], kept[1]);
    assert_int_equal(most[1] - most[0], 2 * 1024 * 512);
    json_decref(of);
}

static void refuses(const char *more, const char *what)
{
    json_t *of = json_pack("{s:i, s:i, s:i, s:i}", "in", 256, "out", 128, "rank", 8, "rows", 512);
    struct plan p;
    char why[512];

    if (read_plan(of, more, &p, why) == 0 || !strstr(why, what))
        fail_msg("%s: %s", more, why);
    json_decref(of);
}

static void what_is_refused_has_a_reason(void **state)
{
    (void)state;
    refuses(", \"kernels\": \"dpx\"", "lora.use_dora");
    refuses(", \"recompute\": \"selective\"", "lora.use_dora");
    refuses(", \"base_dtype\": \"int8\"", "lora.use_dora");
    refuses(", \"qat\": \"8da4w\", \"qat_group\": 64", "no magnitudes");
    refuses(", \"lora\": { \"use_dora\": true }", "lora.narrow");
    refuses(", \"cluster\": \"2xh100\", \"strategy\": \"fsdp\", \"ddp\": {}, \"parallel\": { \"tensor\": 2, \"inputs_apart\": true, \"sequence\": false, "
            "\"loss_parallel\": false }", "lora.use_dora");
    refuses(", \"lora\": { \"narrow\": true, \"use_dora\": true, \"target_modules\": [\"q_proj\", \"lm_head\"] }", "of blocks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_holds_what_torchtunes_holds), cmocka_unit_test(a_unit_matrix_is_multiplied_in_forward),
        cmocka_unit_test(of_packed_weights_as_much_is_kept), cmocka_unit_test(what_is_refused_has_a_reason),
    };
    return cmocka_run_group_tests_name("model/dora", tests, NULL, NULL);
}
