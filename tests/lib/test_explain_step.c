/* What explain's "detail" adds: it must say the same as the rest of the document. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "lib/dpx.h"

#define FORM "{\"plan\": {\"dpx_plan\": 1, \"model\": \"gpt2\", \"cluster\": \"%s\", \"seq\": 512, \"micro_batch\": 1," \
             " \"accumulation\": 4, \"strategy\": \"%s\", \"dialect\": \"%s\", \"precision\": \"bf16\"%s}, \"detail\": true%s}"

static const struct { const char *cluster, *strategy, *dialect, *more; } plans[] = {
    { "2xa100", "ddp", "torch", "" },
    { "8xa100", "fsdp", "torch", "" },
    { "2x8xh100", "fsdp", "torch-fsdp1", "" },
    { "8xh100", "zero3", "deepspeed", "" },
    { "8xh100", "zero1", "megatron", ", \"parallel\": {\"tensor\": 2, \"sequence\": true}" },
    { "8xh100", "ddp", "paper", ", \"parallel\": {\"pipeline\": 4}" },
    { "4xa100", "dp", "paper", "" },
    { "4xa100", "dp", "torch", "" },
};
enum { PLANS = sizeof plans / sizeof *plans };

enum { FULLEST = -1 };

static json_t *explained_rank(int i, int rank)
{
    char request[1024], of_rank[32] = "", *answer;

    if (rank != FULLEST)
        snprintf(of_rank, sizeof of_rank, ", \"rank\": %d", rank);
    snprintf(request, sizeof request, FORM, plans[i].cluster, plans[i].strategy, plans[i].dialect, plans[i].more, of_rank);
    int status = dpx_explain(request, &answer);
    if (status != DPX_DONE)
        fail_msg("%s: %s", request, answer);
    json_t *doc = json_loads(answer, 0, NULL);
    assert_non_null(doc);
    dpx_free(answer);
    return doc;
}
static json_t *explained(int i) { return explained_rank(i, FULLEST); }

static const json_t *of(const json_t *doc, const char *a, const char *b)
{
    doc = json_object_get(doc, a);
    return b ? json_object_get(doc, b) : doc;
}
static json_int_t integer(const json_t *list, size_t i) { return json_integer_value(json_array_get(list, i)); }

/* Of a plan without a pipeline, whose one role is the fullest rank. */
static void categories_sum_to_the_curve_of_memory(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        json_t *doc = explained(i);
        const json_t *roles = of(doc, "step", "roles"), *bytes = of(json_array_get(roles, 0), "memory", "bytes"), *curve = of(doc, "memory_curve_bytes", NULL);
        if (json_array_size(roles) == 1) {
            assert_int_equal(json_array_size(bytes), json_array_size(curve));
            for (size_t c = 0; c < json_array_size(bytes); c++) {
                json_int_t sum = 0;
                for (size_t k = 0; k < json_array_size(json_array_get(bytes, c)); k++)
                    sum += integer(json_array_get(bytes, c), k);
                assert_int_equal(sum, integer(curve, c));
            }
        }
        json_decref(doc);
    }
}

/* A stream is a queue: an entry begins when the one before it has ended, and all end within the step. */
static void entries_of_a_stream_do_not_overlap(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        json_t *doc = explained(i), *role;
        size_t r;
        json_array_foreach(of(doc, "step", "roles"), r, role) {
            const json_t *entries = of(role, "entries", NULL);
            json_int_t step = (json_int_t)(1e9 * json_number_value(of(role, "step_s", NULL))) + 1, last[64] = { 0 };
            assert_true(json_array_size(entries) > 0);
            for (size_t e = 0; e < json_array_size(entries); e++) {
                const json_t *row = json_array_get(entries, e);
                json_int_t stream = integer(row, 0);
                assert_true(stream >= 0 && (size_t)stream < json_array_size(of(role, "streams", NULL)));
                assert_true(integer(row, 1) >= last[stream] && integer(row, 2) >= integer(row, 1) && integer(row, 2) <= step);
                assert_true((size_t)integer(row, 3) < json_array_size(of(role, "words", NULL)));
                assert_true((size_t)integer(row, 4) < json_array_size(of(doc, "step", "kinds")));
                last[stream] = integer(row, 2);
            }
        }
        json_decref(doc);
    }
}

/* A pipeline has a role a stage. */
static void a_stage_is_a_role(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        json_t *doc = explained(i);
        assert_int_equal(json_array_size(of(doc, "step", "roles")), strstr(plans[i].more, "pipeline") ? 4 : 1);
        json_decref(doc);
    }
}

static json_int_t most_of(const json_t *role)
{
    const json_t *bytes = of(role, "memory", "bytes");
    json_int_t most = 0;

    for (size_t c = 0; c < json_array_size(bytes); c++) {
        json_int_t sum = 0;
        for (size_t k = 0; k < json_array_size(json_array_get(bytes, c)); k++)
            sum += integer(json_array_get(bytes, c), k);
        most = sum > most ? sum : most;
    }
    return most;
}

/* Each rank can be asked for: the fullest of them is the plan's, and no other figure of the document changes. */
static void the_fullest_of_all_ranks_is_the_plans(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        json_t *plan = explained(i), *step = json_incref((json_t *)of(plan, "step", NULL));
        json_int_t peak = json_integer_value(json_object_get(json_array_get(of(plan, "peaks", NULL), 0), "bytes")), most = 0;
        json_int_t fullest = json_integer_value(of(plan, "memory", "rank")), asked = 0;
        json_object_del(plan, "step");
        for (int rank = 0; rank < json_integer_value(json_object_get(json_object_get(of(plan, "plan", NULL), "cluster"), "world_size")); rank++) {
            json_t *doc = explained_rank(i, rank), *role;
            size_t r;
            json_array_foreach(of(doc, "step", "roles"), r, role)
                if (json_integer_value(of(role, "rank", NULL)) == rank) {
                    json_int_t bytes = json_integer_value(of(role, "peak", "bytes"));
                    assert_true(bytes <= peak && most_of(role) <= bytes && most_of(role) > 0);
                    assert_true(rank != fullest || bytes == peak);
                    most = bytes > most ? bytes : most;
                    asked++;
                }
            assert_int_equal(json_array_size(of(doc, "step", "roles")), json_array_size(of(step, "roles", NULL)));
            if (rank == fullest)
                assert_true(json_equal(of(doc, "step", NULL), step));
            json_object_del(doc, "step");
            assert_true(json_equal(doc, plan));
            json_decref(doc);
        }
        assert_int_equal(asked, json_integer_value(json_object_get(json_object_get(of(plan, "plan", NULL), "cluster"), "world_size")));
        assert_int_equal(most, peak);
        json_decref(step);
        json_decref(plan);
    }
}

/* DataParallel's first rank holds the optimizer and everybody's gradients, the others a copy of the weights. */
static void a_worker_of_dataparallel_holds_less(void **state)
{
    (void)state;
    json_t *first = explained_rank(PLANS - 1, 0), *second = explained_rank(PLANS - 1, 1);

    assert_true(most_of(json_array_get(of(first, "step", "roles"), 0)) > most_of(json_array_get(of(second, "step", "roles"), 0)));
    json_decref(first);
    json_decref(second);
}

/* The plan behind an advice is the plan whose peak the advice names. */
static void the_plan_of_an_advice_has_its_peak(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        json_t *doc = explained(i), *way;
        size_t w;
        json_array_foreach(of(doc, "advice", "to_lower_it"), w, way) {
            char *answer, *request;
            json_t *q = json_pack("{s:O}", "plan", json_object_get(way, "plan"));
            assert_non_null(q);
            request = json_dumps(q, 0);
            int status = dpx_explain(request, &answer);
            json_t *changed = json_loads(answer, 0, NULL);
            if (!changed)
                fail_msg("%s: %s", json_string_value(json_object_get(way, "change")), answer);
            assert_true(status == DPX_DONE || status == DPX_NO);
            assert_int_equal(json_integer_value(json_object_get(json_array_get(of(changed, "peaks", NULL), 0), "bytes")),
                             json_integer_value(json_object_get(way, "peak_bytes")));
            assert_int_equal(json_is_true(json_object_get(changed, "fits")), json_is_true(json_object_get(way, "fits")));
            json_decref(changed);
            json_decref(q);
            free(request);
            dpx_free(answer);
        }
        json_decref(doc);
    }
}

static void detail_goes_with_one_plan(void **state)
{
    (void)state;
    char *answer;
    int status = dpx_explain("{\"plan\": \"a.json\", \"other\": \"b.json\", \"detail\": true}", &answer);

    assert_int_equal(status, DPX_MISUSE);
    assert_string_equal(answer, "explain: --detail goes with one plan");
    dpx_free(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(categories_sum_to_the_curve_of_memory),
        cmocka_unit_test(entries_of_a_stream_do_not_overlap),
        cmocka_unit_test(a_stage_is_a_role),
        cmocka_unit_test(the_plan_of_an_advice_has_its_peak),
        cmocka_unit_test(the_fullest_of_all_ranks_is_the_plans),
        cmocka_unit_test(a_worker_of_dataparallel_holds_less),
        cmocka_unit_test(detail_goes_with_one_plan),
    };
    return cmocka_run_group_tests_name("lib/explain_step", tests, NULL, NULL);
}
