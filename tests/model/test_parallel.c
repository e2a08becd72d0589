/* "parallel": its keys, their defaults, and what is refused. */
#include "tests/plan_words.h"

#include <string.h>

#include "model/plan/knob.h"
#include "model/plan/local_share.h"
#include "model/plan/plan.h"

/* Of llama-3.1-8b on 16 GPUs with these words in it. */
#define PLAN "{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '2x8xh100', 'seq': 4096, 'precision': 'bf16' %s }"

static struct plan plan_of(const char *words) { return plan_in_words(PLAN, words); }

static void refused(const char *words, const char *because) { plan_words_refused(because, PLAN, words); }

static void one_rank_of_each_is_what_plans_were(void **state)
{
    struct plan p;
    json_t *doc, *parallel;

    (void)state;
    p = plan_of(", \"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 1, \"pipeline\": 1 }");
    assert_true(plan_is_data_parallel(&p));
    assert_int_equal(plan_data_ranks(&p), 16);
    assert_int_equal(plan_batch_ranks(&p), 16);
    assert_int_equal(p.shard_group, 16);
    doc = plan_to_json(&p);
    parallel = json_object_get(doc, "parallel");
    assert_int_equal(json_object_size(parallel), 4);        /* tensor, context, pipeline, expert: what they lead to is idle */
    json_decref(doc);
    plan_free(&p);
}

/* torchtitan: reshard_after_forward "default" is not pp_enabled; null is what the framework does. */
static void units_stay_after_forward_under_a_pipeline(void **state)
{
    static const struct { const char *words; int64_t is; } want[] = {
        { "", -1 }, { ", \"parallel\": { \"pipeline\": 4 }", 0 },
        { ", \"parallel\": { \"pipeline\": 4 }, \"fsdp\": { \"reshard_after_forward\": null }", 0 },
        { ", \"parallel\": { \"pipeline\": 4 }, \"fsdp\": { \"reshard_after_forward\": true }", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct plan p;
        char words[256];
        snprintf(words, sizeof words, ", \"strategy\": \"fsdp\", \"accumulation\": 8%s", want[i].words);
        p = plan_of(words);
        assert_int_equal(p.fsdp.reshard_after_forward, want[i].is);
        plan_free(&p);
    }
}

static void what_says_nothing_without_its_axis_is_refused(void **state)
{
    (void)state;
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"loss_parallel\": false }", "parallel.loss_parallel: says nothing in this plan: parallel.tensor is 1");
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"context_method\": \"ring\" }",
            "parallel.context_method: says nothing in this plan: parallel.context is 1");
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"pipeline_schedule\": \"gpipe\" }",
            "parallel.pipeline_schedule: says nothing in this plan: parallel.pipeline is 1");
}

static void ranks_must_divide_the_world(void **state)
{
    (void)state;
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 3 }", "does not divide the world of 16 ranks");
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 8, \"pipeline\": 4 }", "does not divide the world of 16 ranks");
}

static void models_that_cannot_be_cut_are_refused(void **state)
{
    (void)state;
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 16 }", "key/value heads");
    refused(", \"strategy\": \"fsdp\", \"accumulation\": 64, \"parallel\": { \"pipeline\": 16, \"pipeline_schedule\": \"interleaved\","
            " \"virtual_stages\": 4 }", "would have no block of the 32");
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"pipeline\": 4, \"virtual_stages\": 2 }", "virtual_stages 1");
    refused(", \"strategy\": \"ddp\", \"dialect\": \"paper\", \"parallel\": { \"pipeline\": 4, \"virtual_stages\": 2 }",
            "virtual_stages 1");                            /* one micro-step of four stages: paper allows that, not two chunks */
}

/* Other cells say where the key belongs; other spellings where it is. */
static void other_frameworks_do_not_have_it(void **state)
{
    (void)state;
    refused(", \"strategy\": \"zero3\", \"parallel\": { \"pipeline\": 2 }", "incompatible with pipeline parallelism");
    refused(", \"strategy\": \"fsdp\", \"dialect\": \"torch-fsdp1\", \"parallel\": { \"pipeline\": 2 }", "it belongs to");
    refused(", \"strategy\": \"fsdp\", \"tensor_parallel\": 2", "parallel.tensor");
    refused(", \"strategy\": \"fsdp\", \"parallel\": { \"tensr\": 2 }", "did you mean \"tensor\"?");
}

static void schedules_have_their_chunks(void **state)
{
    (void)state;
    for (int k = 0; k < NPIPELINE; k++) {
        struct pipeline p = { (enum pipeline_kind)k, 4, 0, pipeline_usual_chunks((enum pipeline_kind)k), 8, 0 };
        bool seen[8] = { false };
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < p.chunks; c++) {
                int stage = pipeline_stage(&p, r, c);
                assert_in_range(stage, 0, 4 * p.chunks - 1);
                assert_false(seen[stage]);
                seen[stage] = true;
            }
        assert_int_equal(pipeline_is_v((enum pipeline_kind)k), p.chunks == 2 && pipeline_stage(&p, 0, 1) == 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_of_each_is_what_plans_were),
        cmocka_unit_test(units_stay_after_forward_under_a_pipeline),
        cmocka_unit_test(what_says_nothing_without_its_axis_is_refused),
        cmocka_unit_test(ranks_must_divide_the_world),
        cmocka_unit_test(models_that_cannot_be_cut_are_refused),
        cmocka_unit_test(other_frameworks_do_not_have_it),
        cmocka_unit_test(schedules_have_their_chunks),
    };
    return cmocka_run_group_tests_name("model/parallel", tests, NULL, NULL);
}
