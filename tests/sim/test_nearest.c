/* Of plans that do not fit the nearest by what decides: reserved memory, where what is allocated would fit. */
#include "tests/check.h"

#include <string.h>

#include "model/memory/evaluate.h"
#include "sim/search/found.h"
#include "sim/search/nearest.h"
#include "sim/search/search.h"

/* Does it fit on a device with so much more memory, of what its framework may use? */
static bool fits_with(const struct plan *p, double more)
{
    struct plan q = *p;                 /* shares the model */
    struct evaluation e;

    q.cluster.memory += (int64_t)(more * (double)found_limit(p));
    assert_int_equal(evaluate(&q, &e), 0);
    bool fits = e.m.fits;
    evaluation_free(&e);
    return fits;
}

static bool is_refused(const struct found *f) { return f->looked_at && !f->fits && !f->at_least; }

/* Memory shrinks by a sixty-fourth until nothing fits: what is allocated by the smallest plans still does, and PyTorch's allocator
 * refuses them.  The nearest fits on a device larger by what it lacks; none of the others fits on one that is smaller than that by a tenth. */
static void the_nearest_lacks_least_of_what_decides(void **state)
{
    struct model whole, m;
    struct cluster c;
    struct search_options o = {
        .model = &m, .cluster = &c, .seq = 1024, .global_batch = 16, .strategies = 1u << STRAT_FSDP | 1u << STRAT_DDP, .dialects = 1u << DIALECT_TORCH,
        .kernels = KERNELS_TORCH_SDPA, .precision = DT_BF16, .recompute = 1u << RECOMPUTE_FULL, .in_place = true, .threads = 1,
    };
    struct search_result r = { 0 };
    int refused = 0;

    (void)state;
    assert_int_equal(model_load("gpt2", &whole), 0);
    assert_int_equal(model_with_layers(&whole, 4, &m), 0);
    model_free(&whole);
    assert_int_equal(cluster_load("8xh100", &c), 0);
    c.memory = c.context + ((int64_t)4 << 30);
    do {
        search_free(&r);
        c.memory -= (c.memory - c.context) / 64;
        assert_int_equal(search(&o, &r), 0);
    } while (r.nfit > 0);
    assert_true(r.n > 1);
    double over = r.found[0].over;
    assert_true(over > 0 && is_refused(&r.found[0]));
    assert_false(fits_with(&r.found[0].plan, 0));
    assert_true(fits_with(&r.found[0].plan, over + 1e-6));
    for (int64_t i = 1; i < r.n; i++)
        if (is_refused(&r.found[i])) {
            refused++;
            assert_false(fits_with(&r.found[i].plan, .9 * over));
        }
    assert_true(refused > 0);
    search_free(&r);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_nearest_lacks_least_of_what_decides) };

    return cmocka_run_group_tests_name("sim/nearest", tests, NULL, NULL);
}
