/* A change that changes nothing: a key set to the value that it has, in random plans of every cell with all keys written.  Each other key stays
 * what it was, however its default comes about.  test_own_value [PLANS [SEED]]. */
#include "tests/check.h"
#include "tests/model/random_plan.h"

#include "sim/plan/plan_source.h"

enum { NMODELS = 3 };

static int plans = 150;
static uint64_t rng = 20261130;

static const char *const models[NMODELS] = { "gpt2", "llama-3.2-1b", "mixtral-8x7b" };

/* The first key in which the two differ; NULL: in none. */
static const char *differs(const json_t *a, const json_t *b, char *at, size_t size)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)a, key, v)
        if (!json_equal(v, json_object_get(b, key))) {
            char *was = json_dumps(v, JSON_ENCODE_ANY), *is = json_dumps(json_object_get(b, key), JSON_ENCODE_ANY);
            snprintf(at, size, "%s: %.200s became %.200s", key, was, is ? is : "nothing");
            free(was);
            free(is);
            return at;
        }
    return NULL;
}

static void check_pair(const struct plan *p, const char *pair)
{
    char why[512], at[600], label[KNOB_LABEL];
    struct plan q;

    knob_label(p, label, sizeof label);
    fail_capture(why, sizeof why);
    int rc = plan_source_with(p, &pair, 1, &q);
    fail_capture(NULL, 0);
    if (rc < 0)
        fail_msg("%s: %s is refused: %s", label, pair, why);
    json_t *before = plan_to_json(p), *after = plan_to_json(&q);
    if (differs(before, after, at, sizeof at))
        fail_msg("%s with %s: %s", label, pair, at);
    json_decref(after);
    json_decref(before);
    plan_free(&q);
}

static void check_plan(const struct plan *drawn)
{
    json_t *doc = plan_to_json(drawn);
    char pair[64];
    struct plan p;

    assert_int_equal(plan_from_json(doc, "test", &p), 0);
    json_decref(doc);
    snprintf(pair, sizeof pair, "clip=%.17g", p.clip);
    if (p.clip > 0)
        check_pair(&p, pair);
    snprintf(pair, sizeof pair, "seq=%lld", (long long)p.seq);
    check_pair(&p, pair);
    snprintf(pair, sizeof pair, "accumulation=%lld", (long long)p.accumulation);
    check_pair(&p, pair);
    snprintf(pair, sizeof pair, "nodes=%lld", (long long)p.cluster.nodes);
    check_pair(&p, pair);
    plan_free(&p);
}

static void a_key_set_to_its_own_value_changes_no_other(void **state)
{
    struct model m[NMODELS];
    struct cluster c;

    (void)state;
    for (int i = 0; i < NMODELS; i++)
        assert_int_equal(model_load(models[i], &m[i]), 0);
    assert_int_equal(cluster_load("2x8xh100", &c), 0);
    for (int i = 0; i < plans; i++) {
        struct plan p;
        draw_plan(&m[draw(&rng, NMODELS)], &c, &rng, &p);
        check_plan(&p);
    }
    for (int i = 0; i < NMODELS; i++)
        model_free(&m[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_set_to_its_own_value_changes_no_other),
    };

    plans = argc > 1 ? atoi(argv[1]) : plans;
    rng = argc > 2 ? strtoull(argv[2], NULL, 10) : rng;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
