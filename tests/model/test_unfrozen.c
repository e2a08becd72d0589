/* axolotl's unfrozen_parameters, beside what its own freeze_layers_except() leaves to train (tests/golden/tune/record_unfrozen.py). */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/arch/transformer.h"
#include "model/exchange/recipe_unfrozen.h"
#include "model/plan/plan.h"

#define RECORDED "tests/golden/tune/unfrozen.jsonl"

static json_t *config;

static json_t *next_line(FILE *in)
{
    static char line[1 << 15];

    return fgets(line, sizeof line, in) ? json_loads(line, 0, NULL) : NULL;
}

/* A weight's name as PyTorch has it: adapters' with their own. */
static void torchs_name(const struct tensor *t, char out[160])
{
    const char *end = strrchr(t->name, '.');

    snprintf(out, 160, tensor_is_adapter(t) ? "%.*s.default%s" : "%.*s%s", (int)(end - t->name), t->name, end);
}

static bool has(const json_t *names, const char *name)
{
    const json_t *one;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)names, i, one)
        if (!strcmp(json_string_value(one), name))
            return true;
    return false;
}

static void same_weights(const struct model *m, const json_t *trains)
{
    size_t n = 0;

    for (int i = 0; i < m->ntensors; i++) {
        char name[160];
        torchs_name(&m->tensors[i], name);
        if (has(trains, name) == m->tensors[i].frozen)
            fail_msg("%s: %s", name, m->tensors[i].frozen ? "frozen, and trains" : "trains, and is frozen");
        n += !m->tensors[i].frozen;
    }
    assert_int_equal(n, json_array_size(trains));
}

/* Do as many weights of the first block train as of the last? */
static bool alike(const json_t *trains)
{
    size_t n[2] = { 0, 0 }, i;
    const json_t *one;

    json_array_foreach((json_t *)(uintptr_t)trains, i, one) {
        n[0] += strstr(json_string_value(one), ".0.") != NULL;
        n[1] += strstr(json_string_value(one), ".11.") != NULL;
    }
    return n[0] == n[1];
}

static void each_case(const json_t *of)
{
    const json_t *targets = json_object_get(of, "targets"), *trains = json_object_get(of, "trains");
    json_t *recipe = json_pack("{s:O}", "unfrozen_parameters", json_object_get(of, "patterns"));
    struct training t = training_default();
    struct notes notes = { 0 };
    struct model m;
    char why[512] = "";

    assert_int_equal(model_from_config(config, "config", &m), 0);
    if (json_is_array(targets)) {
        snprintf(t.what, sizeof t.what, "lora");
        snprintf(t.target_modules, sizeof t.target_modules, "q_proj,v_proj");
        assert_int_equal(training_apply(&m, &t, "plan"), 0);
    }
    fail_capture(why, sizeof why);
    int rc = recipe_unfrozen(recipe, "recipe", &m, json_is_array(targets), &t, &notes);
    fail_capture(NULL, 0);
    if (rc == 0) {
        if (!json_is_array(targets))
            assert_int_equal(training_apply(&m, &t, "plan"), 0);
        same_weights(&m, trains);
    } else if (json_array_size(trains) == 0) {
        if (!strstr(why, "nothing trains"))
            fail_msg("%s", why);
    } else if (json_is_array(targets) ? !strstr(why, "some of the adapters") : alike(trains) || !strstr(why, "blocks that differ")) {
        fail_msg("%s", why);
    }
    model_free(&m);
    json_decref(recipe);
}

static void what_trains_is_what_axolotl_leaves(void **state)
{
    FILE *in = fopen(RECORDED, "r");
    int seen = 0;

    (void)state;
    assert_non_null(in);
    for (json_t *of; (of = next_line(in)) != NULL; seen++) {
        if (seen == 0)
            config = json_incref(json_object_get(of, "model"));
        else
            each_case(of);
        json_decref(of);
    }
    json_decref(config);
    fclose(in);
    assert_int_equal(seen, 1 + 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_trains_is_what_axolotl_leaves) };
    return cmocka_run_group_tests_name("model/unfrozen", tests, NULL, NULL);
}
