/* The table of knobs, walked: every row must read and write its values, refuse others by name, survive
 * plan.json, describe itself, and survive each framework's config that has a key for it. */
#include "tests/model/knob_values.h"

#include "model/exchange/accelerate.h"
#include "model/exchange/ds_config.h"
#include "model/exchange/export.h"
#include "model/plan/knob_rules.h"

static void for_each_cell(uint64_t cells, const struct knob *k, bool (*try)(const struct plan *p, const struct knob *k))
{
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if ((cells & CELL(s, d)) && !in_cell(k, s, d, try) && !not_modelled)
                fail_msg("%s.%s: no value in %s/%s", k->object, k->name, strategy_name((enum strategy)s),
                         dialect_name((enum dialect)d));
}

/* ---- the row itself ---- */

static void every_row_says_what_it_is(void **state)
{
    const struct knob *k;
    char key[96], text[512];

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++) {
        knob_key_text(k, key, sizeof key);
        if (!k->about || !k->about[0] || !k->cells)
            fail_msg("%s: no sentence or no cell", key);
        if (!k->usual != !k->usually)
            fail_msg("%s: a rule for the default, but no words for it", key);
        knob_range_text(k, text, KNOB_RANGE_TEXT);
        assert_true(text[0] != '\0' && strlen(text) + 1 < KNOB_RANGE_TEXT);          /* all of it */
        knob_default_text(k, text, sizeof text);
        assert_true(text[0] != '\0');
        assert_true((k->object[0] == '\0') == !knob_is_object(k->object));
    }
}

/* host_threads 0 is a rank's share of the cores, not a number of threads; torchrun's one is usual, and not said. */
static void a_label_has_no_0_threads(void **state)
{
    static const char *const words[] = { ", host threads by cores", "", ", 2 host threads" };

    (void)state;
    for (int n = 0; n < 3; n++) {
        struct plan p = { .strategy = STRAT_FSDP, .dialect = DIALECT_TORCH, .host_threads = n, .fsdp.cpu_offload = true, .cluster.gpus_per_node = 2 };
        char text[64] = "";
        knob_say_threads(&p, text, sizeof text);
        assert_string_equal(text, words[n]);
    }
}

static void every_row_reads_its_own_default(void **state)
{
    const struct knob *k;

    (void)state;
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            for (int i = 0; (k = knob_at(i)) && dialect_has((enum dialect)d, (enum strategy)s); i++) {
                struct plan p, q;
                json_t *v;
                if (!(k->cells & CELL(s, d)) || k->required)
                    continue;
                plan_in(&p, s, d, 0);
                q = p;
                v = knob_write(&p, k);
                if (knob_read(v, "t", k, &q) < 0 || !same_value(&p, &q, k))
                    fail_msg("%s.%s: its default is not read", k->object, k->name);
                json_decref(v);
            }
}

static void refuses_value(const struct knob *k, json_t *v)
{
    char key[96], want[128];
    struct plan p;
    int rc;

    plan_in(&p, 0, 0, 0);
    knob_key_text(k, key, sizeof key);
    snprintf(want, sizeof want, "t.json: %s: ", key);
    fail_capture(said, sizeof said);
    rc = knob_read(v, "t.json", k, &p);
    fail_capture(NULL, 0);
    if (rc == 0 || strncmp(said, want, strlen(want)))
        fail_msg("%s: %s, says \"%s\"", key, rc ? "refused" : "accepted", rc ? said : "");
    json_decref(v);
}

static void every_row_refuses_by_name_what_it_cannot_be(void **state)
{
    const struct knob *k;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++) {
        refuses_value(k, json_array());
        switch (k->type) {
        case KNOB_INT:
            refuses_value(k, json_integer(k->lo - 1));
            if (k->hi < INT64_MAX)
                refuses_value(k, json_integer(k->hi + 1));
            break;
        case KNOB_REAL:
            refuses_value(k, json_real((double)k->lo - (k->above ? 0 : 1)));
            refuses_value(k, json_real((double)k->hi + 1));
            break;
        case KNOB_RESHARD:
            refuses_value(k, json_integer(1));
            break;
        case KNOB_BOOL: case KNOB_FLAG:
            refuses_value(k, json_integer(1));
            break;
        default:
            refuses_value(k, json_string("no such word in any framework, nor any version, nor a path of a length that a plan "
                                         "can hold, which is one less than PLAN_MAX_PATH characters"));
        }
        if (k->null == KNOB_NULL_REFUSED)
            refuses_value(k, json_null());
    }
}

static void values_worth_searching_are_in_range_and_take_turns(void **state)
{
    const struct knob *k, *other;
    struct plan p;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++) {
        assert_true((k->turn > 0) == (k->ntries > 0 || k->try_with != NULL));
        for (int j = i + 1; k->turn && (other = knob_at(j)); j++)
            if ((k->cells & other->cells) && k->turn == other->turn)
                fail_msg("%s and %s: the same turn in one cell", k->name, other->name);
        for (int n = 0; n < k->ntries; n++) {
            plan_in(&p, 0, 0, 0);
            knob_set(&p, k, k->tries[n]);
            assert_int_equal(knob_check(&p, k, "t"), 0);
        }
    }
}

/* ---- plan.json ---- */

static bool survives_json(const struct plan *p, const struct knob *k)
{
    json_t *doc = plan_to_json(p), *again;
    struct plan q;

    if (plan_from_json(doc, "t", &q) < 0)
        fail_msg("%s.%s: a written plan is not read", k->object, k->name);
    if (!same_value(p, &q, k))
        fail_msg("%s.%s: another value after reading", k->object, k->name);
    again = plan_to_json(&q);
    assert_true(json_equal(doc, again));
    json_decref(doc);
    json_decref(again);
    plan_free(&q);
    return true;
}

/* Of plans without an axis and of plans along each: "null" does not say the same in both. */
static void what_search_tries_survives_plan_json(void **state)
{
    const struct knob *k;
    struct plan plain, p;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++)
        for (int s = 0; s < NSTRATEGY; s++)
            for (int d = 0; d < NDIALECT; d++)
                for (int axis = 0; axis < 4; axis++) {
                    if (!k->turn || !(k->cells & CELL(s, d)) || !plan_in(&plain, s, d, VARIANT_GRID + axis * VARIANT_AXIS + DT_BF16))
                        continue;
                    p = plain;
                    for (int n = 0; knob_try(&p, k, n) != KNOB_NO_MORE; n++, p = plain) {
                        plan_resolve(&p);
                        if (accepted(&p))
                            survives_json(&p, k);
                    }
                }
}

/* AdamW is the only optimizer, and a cell has the units and groups that it has. */
static uint64_t cells_with_a_choice(const struct knob *k)
{
    uint64_t cells = k->cells;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++) {
            bool choice = k->type != KNOB_FIXED;
            if (k->type == KNOB_UNIT)
                choice = d != DIALECT_DEEPSPEED;
            if (k->offset == offsetof(struct plan, shard_group))
                choice = plan_group_is_choice((enum strategy)s, (enum dialect)d);
            if (k->offset == offsetof(struct plan, sync_every_micro_step))
                choice = plan_sync_is_choice((enum strategy)s, (enum dialect)d);
            if (k->offset == offsetof(struct plan, deterministic))
                choice = d == DIALECT_PAPER && s != STRAT_DP;
            if (k->offset == offsetof(struct plan, reduce_dtype))   /* elsewhere another key or the dtype says it */
                choice = s == STRAT_FSDP && d != DIALECT_PAPER;
            if (!choice)
                cells &= ~CELL(s, d);
        }
    return cells;
}

static void every_knob_survives_plan_json(void **state)
{
    const struct knob *k;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++)
        if (strcmp(k->name, "precision"))       /* decides others' defaults: plan_in() varies it */
            for_each_cell(cells_with_a_choice(k), k, survives_json);
}

/* ---- other tools ---- */

static bool comes_back_from_deepspeed(const struct plan *p, const struct knob *k)
{
    struct plan q = { .model = p->model, .cluster = p->cluster, .seq = p->seq };
    json_t *doc;

    fail_capture(said, sizeof said);
    doc = ds_config_export(p);
    fail_capture(NULL, 0);
    if (!doc)
        return false;
    if (ds_config_read(doc, "t", &q, NULL) < 0 || !same_value(p, &q, k))
        fail_msg("%s: lost on the way to DeepSpeed and back", k->name);
    json_decref(doc);
    return true;
}

static bool comes_back_from_accelerate(const struct plan *p, const struct knob *k)
{
    struct plan q = { .model = p->model, .cluster = p->cluster, .seq = p->seq, .micro_batch = p->micro_batch };
    struct notes notes = { 0 };
    bool ranks = k->type == KNOB_RESHARD && knob_get(p, k) > 0;     /* true is null there */
    json_t *doc;

    if (p->dialect != DIALECT_DEEPSPEED)
        q.accumulation = p->accumulation;       /* the script's */
    fail_capture(said, sizeof said);
    doc = accelerate_export(p);
    fail_capture(NULL, 0);
    if (!doc)
        return false;
    if (accelerate_read(doc, "t", &q, &notes) < 0 || (!ranks && !same_value(p, &q, k)))
        fail_msg("%s: lost on the way to accelerate and back", k->name);
    json_decref(doc);
    return !ranks;
}

static bool is_said_to_torchtitan(const struct plan *p, const struct knob *k)
{
    char *text = NULL, want[160];
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    int rc;

    fail_capture(said, sizeof said);
    rc = export_plan(p, "torchtitan", f);
    fail_capture(NULL, 0);
    fclose(f);
    if (rc == 0) {
        if (k->type == KNOB_INT)
            snprintf(want, sizeof want, "%s %.0f\n", knob_spelt(k, &k->titan), knob_get(p, k));
        else
            snprintf(want, sizeof want, "%s", k->type == KNOB_BOOL && knob_get(p, k) < 1 ? "--training.no-" :
                     knob_spelt(k, &k->titan));
        if (!strstr(text, want))
            fail_msg("torchtitan is not given \"%s\":\n%s", want, text);
    }
    free(text);
    return rc == 0;
}

static bool has_a_choice(const struct knob *k, const struct knob_name *n)
{
    return n->section && strcmp(k->name, "precision") && k->type != KNOB_FIXED;
}

static void every_key_of_deepspeed_comes_back(void **state)
{
    const struct knob *k;
    int n = 0;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++)
        if (has_a_choice(k, &k->ds)) {
            uint64_t cells = k->cells & k->ds.cells;
            if (k->type == KNOB_GRAD_ACCUM)     /* in stage 3 fp32 beside bf16 is another optimizer's */
                assert_true(cells != 0);
            for_each_cell(cells, k, comes_back_from_deepspeed);
            n++;
        }
    assert_true(n >= 25);
}

static void every_key_of_accelerate_comes_back(void **state)
{
    const struct knob *k;
    int n = 0;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++)
        if (has_a_choice(k, &k->accelerate)) {
            for_each_cell(k->cells & k->accelerate.cells, k, comes_back_from_accelerate);
            n++;
        }
    assert_true(n >= 10);
}

static void every_option_of_torchtitan_is_printed(void **state)
{
    const struct knob *k;
    int n = 0;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++)
        if (has_a_choice(k, &k->titan) && strcmp(k->name, "reduce_dtype")) {    /* has one word only */
            for_each_cell(k->cells & k->titan.cells, k, is_said_to_torchtitan);
            n++;
        }
    assert_true(n >= 6);
}

/* Whatever a tool has no word for is refused with the reason of the row. */
static void what_a_tool_cannot_say_is_refused_with_the_rows_reason(void **state)
{
    const struct knob *k;

    (void)state;
    for (int i = 0; (k = knob_at(i)); i++) {
        struct plan plain, p;
        if (!k->titan.lacks || !plan_in(&plain, STRAT_FSDP, DIALECT_TORCH, DT_BF16))
            continue;
        p = plain;
        for (int j = 0; nth_value(&p, k, j); j++, p = plain) {
            FILE *f;
            char *text = NULL;
            size_t size;
            int rc;
            if (knob_sayable(&p, k, &k->titan))
                continue;
            f = open_memstream(&text, &size);
            fail_capture(said, sizeof said);
            rc = export_plan(&p, "torchtitan", f);
            fail_capture(NULL, 0);
            fclose(f);
            free(text);
            if (rc == 0 || !strstr(said, k->titan.lacks) || !strstr(said, k->name))
                fail_msg("%s: says \"%s\"", k->name, rc ? said : "nothing");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_says_what_it_is),
        cmocka_unit_test(a_label_has_no_0_threads), cmocka_unit_test(every_row_reads_its_own_default),
        cmocka_unit_test(every_row_refuses_by_name_what_it_cannot_be),
        cmocka_unit_test(values_worth_searching_are_in_range_and_take_turns),
        cmocka_unit_test(every_knob_survives_plan_json),
        cmocka_unit_test(what_search_tries_survives_plan_json),
        cmocka_unit_test(every_key_of_deepspeed_comes_back),
        cmocka_unit_test(every_key_of_accelerate_comes_back),
        cmocka_unit_test(every_option_of_torchtitan_is_printed),
        cmocka_unit_test(what_a_tool_cannot_say_is_refused_with_the_rows_reason),
    };
    int rc;

    if (!knob_models_load())
        return 1;
    rc = cmocka_run_group_tests_name("model/knobs", tests, NULL, NULL);
    model_free(&llama);
    model_free(&mixtral);
    model_free(&latent);
    model_free(&neox);
    return rc;
}
