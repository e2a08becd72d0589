/* Held memory of a run that drops what is done and jumps over iterations (sim/clock/clock_held.c) beside held_peak() of the same step with every
 * entry kept: the same bytes of every stage, on random plans of every cell.  test_held [PLANS [SEED]]. */
#include "tests/check.h"
#include "tests/model/random_plan.h"

#include "base/room.h"
#include "sim/clock/step.h"

enum { NMODELS = 5, NCLUSTERS = 6 };

static int plans = 60;
static uint64_t rng = 20261130;

static const char *const models[NMODELS] = { "gpt2", "llama-3.2-1b", "gemma-3-1b", "mistral-7b", "llama-3.1-8b" };
static const char *const clusters[NCLUSTERS] = { "8xh100", "4x8xh100", "2x4xa100-80gb", "2xrtx4090", "16x8xh200", "8xmi300x" };

/* How many stages there were, of how many of them one run knew it, and one that waits until that repeats. */
struct count { int known, known_later, stages; };

static void compare_stage(const struct step *st, int i, const struct timeline *line, int64_t most, const char *label)
{
    if (line->held_known && line->held_peak != most)
        fail_msg("%s, stage %d of %d: %lld bytes, %lld with every entry kept", label, i, st->n, (long long)line->held_peak, (long long)most);
}

static void compare(struct step *st, const char *label, struct count *of)
{
    struct timeline *lines = room_new((size_t)st->n, sizeof *lines), *later = room_new((size_t)st->n, sizeof *later);
    struct run *kept = room_new((size_t)st->n, sizeof *kept);
    double makespan;

    assert_int_equal(step_predict(st), 0);
    assert_int_equal(step_held(st, later), 0);
    assert_int_equal(step_run(st, NULL, lines, kept, &makespan), 0);
    for (int i = 0; i < st->n && kept[i].n > 0; i++) {
        int64_t at, most = held_peak(st->role[i].s, &kept[i], &at);
        of->stages++;
        of->known += st->lines[i].held_known;
        of->known_later += later[i].held_known;
        compare_stage(st, i, &st->lines[i], most, label);
        compare_stage(st, i, &later[i], most, label);
    }
    for (int i = 0; i < st->n; i++)
        run_free(&kept[i]);
    free(kept);
    free(later);
    free(lines);
}

static bool check_plan(const struct plan *p, struct count *of)
{
    const struct schedules *stage[EVALUATION_STAGES];
    char why[512], label[KNOB_LABEL];
    struct coll_memo memo = { 0 };
    struct evaluation e;
    struct step st;
    bool timed = false;

    fail_capture(why, sizeof why);
    if (evaluate_allocated(p, &e) == 0) {
        struct cost_cache *cache = cost_cache_new(p);
        knob_label(p, label, sizeof label);
        if (step_open(p, stage, evaluation_roles(&e, stage), cache, &memo, &st) == 0) {
            if (step_keeps(&st))
                compare(&st, label, of);
            timed = step_keeps(&st);
            step_close(&st);
        }
        cost_cache_free(cache);
        evaluation_free(&e);
    }
    fail_capture(NULL, 0);
    return timed;
}

static void one_run_holds_what_its_entries_do(void **state)
{
    struct model m[NMODELS];
    struct cluster c[NCLUSTERS];
    struct count of = { 0 };

    (void)state;
    for (int i = 0; i < NMODELS; i++)
        assert_int_equal(model_load(models[i], &m[i]), 0);
    for (int i = 0; i < NCLUSTERS; i++)
        assert_int_equal(cluster_load(clusters[i], &c[i]), 0);
    for (int i = 0; i < plans; ) {
        struct plan p;
        draw_plan(&m[draw(&rng, NMODELS)], &c[draw(&rng, NCLUSTERS)], &rng, &p);
        i += check_plan(&p, &of);
    }
    print_message("%d plans, %d stages: %d known of one run, %d of one that waits\n", plans, of.stages, of.known, of.known_later);
    assert_true(of.known > of.stages / 2 && of.known_later >= of.known);
    for (int i = 0; i < NMODELS; i++)
        model_free(&m[i]);
}

/* The most that a step of so many micro-steps holds. */
static int64_t held_bytes(const struct model *m, const struct cluster *c, int64_t accumulation)
{
    struct plan p = { .model = *m, .cluster = *c, .seq = 4096, .micro_batch = 1 };
    struct evaluation e;
    struct timing t;

    plan_defaults(&p, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.activation_offload = OFFLOAD_STREAMS;
    p.accumulation = accumulation;
    plan_resolve(&p);
    assert_int_equal(plan_check(&p, "test"), 0);
    assert_int_equal(evaluate_allocated(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, &t, NULL), 0);
    evaluation_free(&e);
    return t.held_bytes;
}

/* Activations that go to the host are freed later than they are issued: no jump is told by what is held.  Beyond a million entries none is kept. */
static void more_micro_steps_hold_no_less(void **state)
{
    struct cluster c;
    struct model m;

    (void)state;
    assert_int_equal(model_load("llama-3.1-8b", &m), 0);
    assert_int_equal(cluster_load("4x8xh100", &c), 0);
    for (int64_t n = 1000; n <= 100000; n *= 10)
        assert_int_equal(held_bytes(&m, &c, n), held_bytes(&m, &c, 10));
    model_free(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_run_holds_what_its_entries_do),
        cmocka_unit_test(more_micro_steps_hold_no_less),
    };

    plans = argc > 1 ? atoi(argv[1]) : plans;
    rng = argc > 2 ? strtoull(argv[2], NULL, 10) : rng;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
