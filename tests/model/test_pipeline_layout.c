/* Layouts of a pipeline by megatron-core's own rules: its example, how it writes parts out, what each rank then has; and what is refused. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/knob.h"
#include "model/plan/local_share.h"
#include "model/plan/pipeline_layout.h"
#include "tests/model/plans.h"

static void reads(const char *text, const char *blocks)
{
    struct pipeline_layout l;
    char got[512] = "";

    assert_int_equal(pipeline_layout_read(text, "t", &l), 0);
    for (int s = 0; s < l.stages; s++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", s ? " " : "", (int)l.blocks[s]);
    assert_string_equal(got, blocks);
}

/* parse_str_to_list()'s docstring; and each of the comments beside its patterns. */
static void parts_are_written_out(void **state)
{
    (void)state;
    reads("Ettt|(tt|)*5,L", "3 2 2 2 2 2 0");
    reads("Et*3|(tt|)*2t|L", "3 2 2 1 0");
    reads("E|t|L", "0 1 0");
    reads("Et,t|,tL", "2 1");
    reads("E(t)*4|(t*2|)*2t*3L", "4 2 2 3");
    reads("Ett(t|tt|t)*2,tL", "3 2 2 2 2");
    reads("Ettt|(tt|)*5mL", "3 2 2 2 2 2 0");
}

/* What is written is read as the same. */
static void a_layout_is_written_as_it_is_read(void **state)
{
    static const struct pipeline_layout of[] = {
        { 6, 0, 4, { 0, 1, 1, 1, 1, 0 } }, { 6, 0, 46, { 7, 8, 8, 8, 8, 7 } }, { 6, 0, 6, { 1, 1, 1, 1, 1, 1 } }, { 6, 0, 13, { 3, 2, 2, 1, 1, 4 } },
        { 6, 0, 2, { 2, 0, 0, 0, 0, 0 } }, { 6, 1, 45, { 7, 8, 8, 8, 8, 6 } }, { 6, 2, 5, { 1, 1, 1, 1, 1, 0 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct pipeline_layout l;
        char text[PLAN_MAX_LAYOUT];
        assert_int_equal(pipeline_layout_text(&of[i], text, sizeof text), 0);
        assert_int_equal(pipeline_layout_read(text, "t", &l), 0);
        assert_int_equal(l.stages, 6);
        assert_int_equal(l.mtp, of[i].mtp);
        assert_int_equal(l.layers, of[i].layers);
        for (int s = 0; s < 6; s++)
            assert_int_equal(l.blocks[s], of[i].blocks[s]);
        assert_int_equal(pipeline_layout_text(&of[i], text, 4), -1);
    }
}

static void is_refused(const char *text, const char *says)
{
    struct pipeline_layout l;
    char why[512] = "";

    fail_capture(why, sizeof why);
    int rc = pipeline_layout_read(text, "plan.json", &l);
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    if (!strstr(why, says))
        fail_msg("%s: %s", text, why);
    assert_non_null(strstr(why, "plan.json: megatron.pipeline_model_parallel_layout: "));
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    is_refused("", "needs one embedding (E)");
    is_refused("tt|tL", "embedding (E) has to begin");
    is_refused("|Ett|tL", "embedding (E) has to begin");
    is_refused("Et|Et|tL", "embedding (E) has to begin");
    is_refused("Et|t", "one loss (L)");
    is_refused("EtL|t", "loss (L) has to end");
    is_refused("Et|m|tL", "multi-token prediction (m) comes right before");
    is_refused("Et|m|L", "multi-token prediction (m) comes right before");
    is_refused("Et|xL", "\"x\"");
    is_refused("E((t)*2|)*2L", "no other within");
    is_refused("E(tL", "no other within");
    is_refused("E(t)L", "needs its number");
    is_refused("E()*3L", "no other within");
    is_refused("E(t*60000|)*60000L", "longer than");
}

/* 12 blocks over 4 ranks of 2 chunks: stage s is chunk s / 4 of rank s % 4. */
static void ranks_have_the_blocks_of_their_stages(void **state)
{
    static const int64_t first[8] = { 0, 1, 3, 5, 7, 9, 11, 12 }, blocks[8] = { 1, 2, 2, 2, 2, 2, 1, 0 };
    struct plan p;

    (void)state;
    plan_of(&p, "llama-3.1-8b", 12, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    p.parallel.pipeline = 4;
    p.parallel.pipeline_schedule = PIPELINE_INTERLEAVED;
    p.parallel.virtual_stages = 2;
    p.accumulation = 8;
    knob_follow(&p, NULL, NULL);
    plan_resolve(&p);
    strcpy(p.megatron.pipeline_layout, "Et|(tt|)*5t|L");
    assert_int_equal(plan_check(&p, "t"), 0);
    for (int s = 0; s < 8; s++) {
        struct local_stage at = local_share_stage_of(&p, 8, s);
        assert_int_equal(at.first, first[s]);
        assert_int_equal(at.blocks, blocks[s]);
        struct local_share share = local_share_of(&p, 2 * (s % 4));
        assert_int_equal(share.chunk[s / 4].first, first[s]);
        assert_int_equal(share.chunk[s / 4].blocks, blocks[s]);
    }
    char why[512] = "";
    fail_capture(why, sizeof why);
    strcpy(p.megatron.pipeline_layout, "Et|(tt|)*5tt|L");
    assert_int_equal(plan_check(&p, "t"), -1);
    assert_non_null(strstr(why, "13 blocks (t), but"));
    strcpy(p.megatron.pipeline_layout, "Et|(tt|)*5tL");
    assert_int_equal(plan_check(&p, "t"), -1);
    assert_non_null(strstr(why, "7 stages, but"));
    strcpy(p.megatron.pipeline_layout, "Et*5|(t|)*5|t*2L");
    assert_int_equal(plan_check(&p, "t"), -1);
    assert_non_null(strstr(why, "stage 6 of 8 would have no block"));
    fail_capture(NULL, 0);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_written_out),
        cmocka_unit_test(a_layout_is_written_as_it_is_read),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(ranks_have_the_blocks_of_their_stages),
    };
    return cmocka_run_group_tests_name("model/pipeline_layout", tests, NULL, NULL);
}
