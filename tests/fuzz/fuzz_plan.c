/* fuzz_plan.c -- any bytes as a plan. */
#include "tests/fuzz/fuzz.h"

#include "model/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j, *once, *twice;
    struct plan p, q;

    j = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (!j)
        return 0;
    fuzz_quiet();
    if (plan_from_json(j, "fuzz", &p) < 0) {
        must_hold(fuzz_said[0]);
    } else {
        must_hold(plan_check(&p, "fuzz") == 0);
        once = plan_to_json(&p);
        must_hold(once && plan_from_json(once, "again", &q) == 0);
        twice = plan_to_json(&q);
        must_hold(json_equal(once, twice));
        json_decref(once);
        json_decref(twice);
        plan_free(&q);
        plan_free(&p);
    }
    json_decref(j);
    return 0;
}
