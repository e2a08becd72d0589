/* Prices of kernels are kept for plans that are said to have the same, and these do: one key, figure of the GPU or window of a random plan
 * is changed at a time, and what a cache that served the plan says of the other's passes is what a new one says. */
#include "tests/check.h"
#include "tests/model/random_plan.h"

#include "model/program/program.h"
#include "sim/price/kernel_cost.h"

enum { NMODELS = 4, PLANS = 300 };

static bool same_costs(struct cost_cache *kept, const struct plan *p)
{
    struct cost_cache *fresh = cost_cache_new(p);
    struct schedules s = { .nnotes = 0 };
    bool same = true;

    if (program_build(p, &s.program) == 0) {
        cost_cache_use(kept, p);
        for (int i = 0; i < NPIECE; i++)
            for (int pass = 0; pass < NPASS; pass++) {
                struct op o = { .kind = OP_COMPUTE, .u.compute = { .piece = (uint8_t)i, .pass = (uint8_t)pass,
                                                                   .k1 = (uint16_t)s.program.piece[i].nkernels[pass] } };
                struct cost a, b;
                if (s.program.piece[i].nkernels[pass] == 0)
                    continue;
                op_cost(kept, &s, &o, &a);
                op_cost(fresh, &s, &o, &b);
                same &= !(a.s < b.s) && !(a.s > b.s) && !(a.low_s < b.low_s) && !(a.low_s > b.low_s) && !(a.high_s < b.high_s) &&
                        !(a.high_s > b.high_s);
            }
    }
    program_free(&s.program);
    cost_cache_free(fresh);
    return same;
}

/* Another figure of the GPU or of the model's attention. */
enum { NBESIDE = 12 };
static void beside_keys(struct plan *p, int i)
{
    struct gpu *g = &p->cluster.gpu;

    switch (i) {
    case 0: g->hbm *= 2; break;
    case 1: g->fp32 *= 2; break;
    case 2: g->tf32 *= 2; break;
    case 3: g->bf16 *= 2; break;
    case 4: g->fp16 *= 2; break;
    case 5: g->fp8 *= 2; break;
    case 6: g->sms -= 8; break;
    case 7: g->sm_arch = 80; break;
    case 8: p->cluster.power_limit_w = 400; break;
    case 9: p->model.window = 64; break;
    case 10: p->micro_batch++; break;
    case 11: p->seq *= 2; break;
    }
}

/* How many plans the cache served without costing their kernels anew. */
static int check_plan(const struct plan *p, uint64_t *rng)
{
    struct cost_cache *c = cost_cache_new(p);
    const struct knob *k;
    int served = 0;

    assert_true(same_costs(c, p));
    for (int i = -NBESIDE; i < 0 || (k = knob_at(i)); i++) {
        struct plan q = *p;
        if (i < 0)
            beside_keys(&q, i + NBESIDE);
        else if (k->cells & knob_cell(p))
            draw_key(&q, k, rng);
        if (!memcmp(p, &q, sizeof q))
            continue;
        plan_resolve(&q);
        if (!draw_accepted(&q))
            continue;
        served += cost_cache_fits(c, &q);
        assert_true(same_costs(c, &q));
        cost_cache_use(c, p);
    }
    cost_cache_free(c);
    return served;
}

static void kept_prices_are_those_of_a_new_cache(void **state)
{
    static const char *const names[NMODELS] = { "gpt2", "llama-3.2-1b", "gemma-3-1b", "mistral-7b" };
    struct model whole, m[NMODELS];
    struct cluster c;
    uint64_t rng = 4711;
    int served = 0;
    char why[512];

    (void)state;
    assert_int_equal(cluster_load("8xh100", &c), 0);
    for (int i = 0; i < NMODELS; i++) {
        assert_int_equal(model_load(names[i], &whole), 0);
        assert_int_equal(model_with_layers(&whole, 4, &m[i]), 0);
        model_free(&whole);
    }
    for (int i = 0; i < PLANS; i++) {
        struct plan p;
        draw_plan(&m[draw(&rng, NMODELS)], &c, &rng, &p);
        fail_capture(why, sizeof why);
        served += check_plan(&p, &rng);
        fail_capture(NULL, 0);
    }
    assert_true(served > 5 * PLANS);
    for (int i = 0; i < NMODELS; i++)
        model_free(&m[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_prices_are_those_of_a_new_cache),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
