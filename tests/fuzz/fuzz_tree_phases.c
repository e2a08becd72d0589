/* A phase plan, changed by its structure: an answer whose figures hold together, or a reason. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <math.h>

#include "sim/plan/commands.h"
#include "sim/plan/phases.h"

const char *const fuzz_words[] = {
    "\"between\": \"host\"", "\"between\": \"weights on host\"", "\"empties_cache\": false", "\"own_process\": true", "\"shares_weights\": true",
    "\"frees_gradients\": true", "\"unpadded\": true", "\"even_experts\": true", "\"place\": \"other\"", "\"places\": {\"other\": \"2xh100\"}", "\"with_before\": true", "\"sleep\": 2",
    "\"tensor\": 8", "\"gpu_memory_utilization\": 0.01", "\"mem_fraction_static\": 0.9", "\"engine\": \"sglang\"", "\"cluster\": \"4xh100\"", "\"epochs\": 3",
    "\"micro_batch\": 64", "\"samples\": 1", "\"beside\": \"reference\"", "\"held_bytes\": 1099511627776", "\"time\": \"5s\"", "\"asynchronous\": true",
    "\"prompt\": 1e300", "\"response\": {\"mean\": 1, \"longest\": 1e9}", "\"kv_cache_dtype\": \"fp8\"", "\"version\": \"0.6\"", "\"bucket_bytes\": 1",
    "\"max_num_seqs\": 1", "\"parallel\": {\"pipeline\": 2}", "\"update\": \"actor\"", "\"forward\": \"actor\"", "\"hand_over\": \"actor\"", NULL
};

static void check_cost(const struct cost *c)
{
    must_hold(isfinite(c->s) && isfinite(c->low_s) && isfinite(c->high_s));
    must_hold(c->s >= 0 && c->low_s >= 0 && c->low_s <= c->high_s * (1 + 1e-9));
}

static void check_moments(const struct phases *p, const struct moment *m, int64_t limit)
{
    for (int k = 0; k < p->plan.nsteps; k++) {
        must_hold(m[k].live >= 0 && m[k].reserved >= 0 && m[k].engine >= 0 && m[k].host >= 0 && m[k].moved >= 0);
        must_hold(m[k].needed <= m[k].taken);
        must_hold(!p->fits || m[k].needed <= limit);
    }
}

static void check(const struct phases *p)
{
    must_hold(p->fits == !p->why_not[0] && (!p->tight || p->fits));
    check_cost(&p->iteration);
    for (int k = 0; k < p->plan.nsteps; k++)
        check_cost(&p->time[k]);
    check_moments(p, p->moment, p->limit);
    for (int i = 1; i < p->plan.nplaces; i++)
        check_moments(p, p->more[i].moment, p->more[i].limit);
    json_t *j = phases_json(p);
    must_hold(j != NULL);
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    struct phases_asked a = PHASES_ASKED;
    struct phases p;

    fuzz_quiet();
    if (!j || !json_object_get(j, "dpx_phases")) {
        json_decref(j);
        return fuzz_count(data, size, false);
    }
    fuzz_said[0] = '\0';
    a.plan.doc = j;
    int rc = phases_answer(&a, &p);
    bool taken = rc == EXIT_DONE || rc == EXIT_NO;
    if (taken) {
        check(&p);
        phases_free(&p);
    } else
        must_hold(fuzz_said[0]);
    json_decref(j);
    return fuzz_count(data, size, taken);
}
