/* The memory of DDP, ZeroRedundancyOptimizer, FSDP1 and DeepSpeed's stages 0 to 3, held against two
 * real ranks whose storages were counted one by one (tests/golden/memory/record_cpu_ranks.py;
 * README.md there says what is counted). */
#include "tests/check.h"

#include <string.h>

#include "model/lower/lower.h"
#include "model/schedule/ledger.h"

#define GOLDEN "tests/golden/memory/cpu_ranks.jsonl"
#define PEAK 1e-3

struct rank {
    const char      *name;
    int              rank;
    const json_t    *recorded;
    struct plan      plan;
    struct schedules schedules;
    struct ledger    ledger;
};

static const char *const phase_key[NSCHED] = { "init", "first", "steady" };

static int64_t number(const struct rank *r, enum sched_id id, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(r->recorded, phase_key[id]), key));
}

static int64_t category(const struct rank *r, enum sched_id id, const char *table, const char *key)
{
    const json_t *phase = json_object_get(r->recorded, phase_key[id]);

    return json_integer_value(json_object_get(json_object_get(phase, table), key));
}

/* The most that is live before the optimizer's step. */
static int64_t peak_before_step(const struct rank *r, enum sched_id id)
{
    enum { POINTS = 20000 };
    struct point *points = calloc(POINTS, sizeof *points);
    int64_t most = 0;

    assert_non_null(points);
    int64_t n = ledger_curve(&r->schedules, id, points, POINTS);
    assert_true(n < POINTS);
    for (int64_t i = 0; i < n && r->schedules.ops[points[i].op].kind != OP_OPTIMIZER; i++)
        if (r->schedules.ops[points[i].op].phase != PHASE_OPTIMIZER && points[i].peak > most)
            most = points[i].peak;
    free(points);
    return most;
}

static void agrees(const struct rank *r, enum sched_id id, const char *key, int64_t got)
{
    int64_t want = number(r, id, key);
    double error = (double)(got - want) / (double)want;

    if (fabs(error) <= PEAK)
        return;
    const struct peak *p = &r->ledger.phase[id];
    for (int c = 0; c < NCAT; c++)
        if (p->by[c])
            print_error(" %s %lld", category_name((enum category)c), (long long)p->by[c]);
    print_error("\n");
    fail_msg("%s, rank %d, %s: %s of %lld, counted %lld (%+.3f %%); the peak above is at %s", r->name, r->rank,
             phase_key[id], key, (long long)got, (long long)want, 100 * error, r->schedules.ops[p->op].what);
}

static void check_peaks(const struct rank *r)
{
    for (int id = 0; id < NSCHED; id++)
        agrees(r, (enum sched_id)id, "peak", r->ledger.phase[id].bytes);
    for (int id = SCHED_FIRST; id < NSCHED; id++)
        agrees(r, (enum sched_id)id, "peak_before_step", peak_before_step(r, (enum sched_id)id));
}

/* All that is live after a step, less scalars: the loss, norms, what a kernel was told. */
static void check_persistent(const struct rank *r)
{
    const json_t *phase = json_object_get(r->recorded, "steady"), *value;
    int64_t want = 0, got = 0;
    const char *key;
    size_t i;

    json_object_foreach(json_object_get(phase, "persistent"), key, value)
        want += json_integer_value(value);
    json_array_foreach(json_object_get(phase, "other"), i, value)
        if (json_integer_value(value) > 512)
            want += json_integer_value(value);
    for (int c = 0; c < NCAT; c++)
        got += r->ledger.persistent[c];
    if (got != want)
        fail_msg("%s, rank %d: %lld bytes persist, counted %lld", r->name, r->rank, (long long)got, (long long)want);
    assert_int_equal(r->ledger.persistent[CAT_PARAMS] + r->ledger.persistent[CAT_UNSHARDED],
                     category(r, SCHED_STEADY, "persistent", "params"));
}

/* FSDP1 gathers straight into the unsharded parameters. */
static void check_gathered(const struct rank *r)
{
    if (r->plan.dialect != DIALECT_TORCH_FSDP1 || r->plan.fsdp.sharding_strategy == FSDP1_NO_SHARD)
        return;
    assert_int_equal(r->ledger.most[CAT_UNSHARDED], category(r, SCHED_STEADY, "most", "all_gather"));
}

/* Every recorded rank through `check`; returns how many there were. */
static int each_rank(void (*check)(const struct rank *))
{
    static char text[1 << 16];
    FILE *in = fopen(GOLDEN, "r");
    int n = 0;

    assert_non_null(in);
    assert_non_null(fgets(text, sizeof text, in));
    json_t *head = json_loads(text, 0, NULL);
    while (fgets(text, sizeof text, in)) {
        json_t *line = json_loads(text, 0, NULL), *plan = json_object_get(line, "plan"), *recorded;
        size_t i;

        assert_non_null(line);
        json_object_set(plan, "model", json_object_get(json_object_get(head, "models"),
                                                       json_string_value(json_object_get(plan, "model"))));
        json_array_foreach(json_object_get(line, "ranks"), i, recorded) {
            struct rank r = { .name = json_string_value(json_object_get(line, "name")), .rank = (int)i,
                              .recorded = recorded };
            assert_int_equal(plan_from_json(plan, r.name, &r.plan), 0);
            assert_int_equal(lower(&r.plan, r.rank, &r.schedules), 0);
            ledger_run(&r.schedules, &r.ledger);
            check(&r);
            schedules_free(&r.schedules);
            plan_free(&r.plan);
            n++;
        }
        json_decref(line);
    }
    json_decref(head);
    fclose(in);
    return n;
}

static void peaks_of_init_first_and_steady_agree(void **state)
{
    (void)state;
    assert_true(each_rank(check_peaks) >= 48);
}

static void what_persists_agrees_to_the_byte(void **state)
{
    (void)state;
    each_rank(check_persistent);
}

static void the_most_that_fsdp1_gathers_agrees_to_the_byte(void **state)
{
    (void)state;
    each_rank(check_gathered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_of_init_first_and_steady_agree),
        cmocka_unit_test(what_persists_agrees_to_the_byte),
        cmocka_unit_test(the_most_that_fsdp1_gathers_agrees_to_the_byte),
    };
    return cmocka_run_group_tests_name("model/cpu ranks memory", tests, NULL, NULL);
}
