/* A step's interval from one run (sim/clock/clock_lanes.h) beside that of a run for each of its ends, on random plans of every cell: they
 * differ by at most 5 % of the interval's width, but for one plan in a hundred, and by at most 10 % of any.  test_lanes [PLANS [SEED]]. */
#include "tests/check.h"
#include "tests/model/random_plan.h"

#include <math.h>

#include "sim/clock/step.h"

enum { NMODELS = 5, NCLUSTERS = 6, VIEWS = 13 };
#define APART .05
#define AT_MOST .1

static int plans = 40;
static int over;                /* plans of which they differ by more */
static uint64_t rng = 4711;

static const char *const models[NMODELS] = { "gpt2", "llama-3.2-1b", "gemma-3-1b", "mistral-7b", "llama-3.1-8b" };
static const char *const clusters[NCLUSTERS] = { "8xh100", "4x8xh100", "2x4xa100-80gb", "2xrtx4090", "16x8xh200", "8xmi300x" };

/* What the step takes by itself, with neither views nor held memory beside it: the same to the last bit. */
static void is_as_alone(const struct step *st)
{
    struct stage_parts parts[2];
    struct timeline t[2];

    step_parts(st, st->lines, st->makespan_s, &t[0], &parts[0]);
    assert_int_equal(step_alone(st, &t[1], &parts[1]), 0);
    const double a[] = { t[0].step_s, t[0].compute_s, t[0].exposed_s, t[0].optimizer_s, t[0].idle_s, t[0].bubble_s, t[0].slowest_s };
    const double b[] = { t[1].step_s, t[1].compute_s, t[1].exposed_s, t[1].optimizer_s, t[1].idle_s, t[1].bubble_s, t[1].slowest_s };
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(t[0].exposed_by, t[1].exposed_by, sizeof t[0].exposed_by);
    assert_int_equal(parts[0].busiest, parts[1].busiest);
}

/* False: not priced on this cluster.  *one: how many views came of one run. */
static bool time_twice(const struct plan *p, const struct evaluation *e, struct timing t[2], int *one)
{
    const struct schedules *of[EVALUATION_STAGES];
    struct cost_cache *cache = cost_cache_new(p);
    struct coll_memo memo = { 0 };
    bool ran = true;

    for (int apart = 0; apart < 2 && ran; apart++) {
        struct step st;
        if (!(ran = step_open(p, of, evaluation_roles(e, of), cache, &memo, &st) == 0))
            break;
        st.apart |= apart;
        assert_int_equal(step_predict(&st), 0);
        is_as_alone(&st);
        *one = apart ? *one : st.nknown;
        assert_int_equal(simulate_interval(&st, e, &t[apart]), 0);
        step_close(&st);
    }
    cost_cache_free(cache);
    return ran;
}

static bool check_plan(const struct plan *p, int *one)
{
    char why[512], label[KNOB_LABEL];
    struct evaluation e;
    struct timing t[2];
    bool timed = false;

    fail_capture(why, sizeof why);
    if (evaluate_allocated(p, &e) == 0) {
        timed = time_twice(p, &e, t, one);
        evaluation_free(&e);
    }
    fail_capture(NULL, 0);
    if (!timed)
        return false;
    double width = t[1].high_s - t[1].low_s, far = fmax(fabs(t[0].low_s - t[1].low_s), fabs(t[0].high_s - t[1].high_s));
    assert_true(!(t[0].line.step_s < t[1].line.step_s) && !(t[0].line.step_s > t[1].line.step_s));
    knob_label(p, label, sizeof label);
    over += far > APART * width;
    if (far > APART * width)
        print_message("%.1f %% of the width: %s on %s, %s\n", 100 * far / width, p->model.name, p->cluster.name, label);
    if (far > AT_MOST * width)
        fail_msg("%s on %s, %s: step %g s, %g to %g by one run, %g to %g by all", p->model.name, p->cluster.name, label, t[1].line.step_s,
                 t[0].low_s, t[0].high_s, t[1].low_s, t[1].high_s);
    return true;
}

static void one_run_gives_the_interval_of_all(void **state)
{
    struct model m[NMODELS];
    struct cluster c[NCLUSTERS];
    int views = 0;

    (void)state;
    for (int i = 0; i < NMODELS; i++)
        assert_int_equal(model_load(models[i], &m[i]), 0);
    for (int i = 0; i < NCLUSTERS; i++)
        assert_int_equal(cluster_load(clusters[i], &c[i]), 0);
    for (int i = 0, one; i < plans; ) {
        struct plan p;
        draw_plan(&m[draw(&rng, NMODELS)], &c[draw(&rng, NCLUSTERS)], &rng, &p);
        if (!check_plan(&p, &one))
            continue;
        views += one;
        i++;
    }
    print_message("%d plans: %.1f of %d views from one run\n", plans, (double)views / plans, VIEWS);
    assert_true(views > plans * VIEWS / 2);
    assert_true(over <= plans / 100);
    for (int i = 0; i < NMODELS; i++)
        model_free(&m[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_run_gives_the_interval_of_all),
    };

    plans = argc > 1 ? atoi(argv[1]) : plans;
    rng = argc > 2 ? strtoull(argv[2], NULL, 10) : rng;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
