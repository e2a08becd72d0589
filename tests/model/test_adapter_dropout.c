/* Dropout of adapters: on what A reads, as PEFT has it, or on what B gives, as NeMo Automodel has it.  Counted by hand: F.dropout() keeps a mask of a byte an
 * element, and A its input, which layers that read the same tensor share. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/export.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

enum { T = 256, H = 128, KV = 32, F = 384 };

static int read_plan(const char *lora, const char *more, struct plan *p, char why[512])
{
    char text[1024];

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": { \"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": %d, \"intermediate_size\": %d, "
             "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"vocab_size\": 512, \"max_position_embeddings\": 1024, \"rms_norm_eps\": 1e-5, "
             "\"tie_word_embeddings\": false }, \"cluster\": \"1xh100\", \"seq\": %d, \"precision\": \"bf16\", \"strategy\": \"ddp\", \"dialect\": \"torch\", "
             "\"ddp\": { \"model_dtype\": \"bf16\" }, \"train\": \"lora\", \"lora\": { \"narrow\": true, \"rank\": 8, %s }%s }", H, F, T, lora, more);
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

static int64_t keeps(const char *targets, const char *dropout)
{
    struct plan p;
    struct program g = { 0 };
    char why[512], lora[256];

    snprintf(lora, sizeof lora, "\"target_modules\": [%s]%s", targets, dropout);
    if (read_plan(lora, "", &p, why) < 0)
        fail_msg("%s", why);
    assert_int_equal(program_build(&p, &g), 0);
    int64_t saved = g.piece[PIECE_BLOCK].saved;
    program_free(&g);
    plan_free(&p);
    return saved;
}

#define PRE  ", \"dropout\": 0.1"
#define POST ", \"dropout\": 0.1, \"dropout_position\": \"post\""

/* One layer: its input or the dropped copy, two bytes each, and a mask of what the dropout reads.  q, k and v share an input, but no copy of it. */
static void a_mask_is_of_what_dropout_reads(void **state)
{
    const char *q = "\"q_proj\"", *up = "\"up_proj\"", *all = "\"q_proj\", \"k_proj\", \"v_proj\"";
    int64_t tokens = T;

    (void)state;
    assert_int_equal(keeps(q, PRE) - keeps(q, ""), tokens * H);
    assert_int_equal(keeps(q, POST) - keeps(q, ""), tokens * H);
    assert_int_equal(keeps(up, PRE) - keeps(up, ""), tokens * H);
    assert_int_equal(keeps(up, POST) - keeps(up, ""), tokens * F);
    assert_int_equal(keeps(all, PRE) - keeps(all, ""), tokens * H * (3 + 2 * 2));
    assert_int_equal(keeps(all, POST) - keeps(all, ""), tokens * (H + 2 * KV));
}

/* Without dropout the place says nothing. */
static void without_dropout_places_are_alike(void **state)
{
    (void)state;
    assert_int_equal(keeps("\"up_proj\"", ", \"dropout_position\": \"post\""), keeps("\"up_proj\"", ""));
}

static void what_is_not_planned_is_refused(void **state)
{
    static const char *const targets[] = { "fsdp", "axolotl", "llamafactory" };
    struct plan p;
    char why[512];

    (void)state;
    assert_int_equal(read_plan("\"dropout\": 0.1, \"dropout_position\": \"post\", \"use_dora\": true", "", &p, why), -1);
    assert_non_null(strstr(why, "lora.dropout_position: post is planned without DoRA"));
    for (int i = 0; i < 3; i++) {
        const char *pre = "\"narrow\": false, \"dropout\": 0.1", *post = "\"narrow\": false, \"dropout\": 0.1, \"dropout_position\": \"post\"";
        assert_int_equal(read_plan(pre, "", &p, why), 0);
        assert_true(export_can(&p, targets[i]));
        plan_free(&p);
        assert_int_equal(read_plan(post, "", &p, why), 0);
        assert_false(export_can(&p, targets[i]));
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_is_of_what_dropout_reads),
        cmocka_unit_test(without_dropout_places_are_alike),
        cmocka_unit_test(what_is_not_planned_is_refused),
    };
    return cmocka_run_group_tests_name("model/adapter_dropout", tests, NULL, NULL);
}
