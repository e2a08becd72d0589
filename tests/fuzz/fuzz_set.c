/* Changes of a plan, KEY=VALUE with white space between them: what is taken is a plan that reads back as itself. */
#include "tests/fuzz/fuzz.h"

#include "sim/plan/plan_source.h"

static struct plan plan;

static void set_up(void)
{
    if (plan.seq)
        return;
    must_hold(model_load("gpt2", &plan.model) == 0);
    must_hold(cluster_load("2x4xh100", &plan.cluster) == 0);
    plan.seq = 1024;
    plan.micro_batch = 1;
    plan_defaults(&plan, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    must_hold(plan_check(&plan, "fuzz") == 0);
}

static void check(const struct plan *p)
{
    json_t *once = plan_to_json(p), *twice;
    struct plan again;

    must_hold(plan_check(p, "fuzz") == 0);
    must_hold(plan_from_json(once, "again", &again) == 0);
    twice = plan_to_json(&again);
    must_hold(json_equal(once, twice));
    json_decref(once);
    json_decref(twice);
    plan_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 16 };
    char *text = fuzz_string(data, size), *rest;
    const char *pairs[MOST];
    struct plan p;
    int n = 0;

    fuzz_quiet();
    set_up();
    for (char *pair = strtok_r(text, " \t\r\n", &rest); pair && n < MOST; pair = strtok_r(NULL, " \t\r\n", &rest))
        if (strchr(pair, '='))
            pairs[n++] = pair;
    fuzz_said[0] = '\0';
    if (plan_source_with(&plan, pairs, n, &p) == 0) {
        check(&p);
        plan_free(&p);
    } else
        must_hold(fuzz_said[0]);
    free(text);
    return 0;
}
