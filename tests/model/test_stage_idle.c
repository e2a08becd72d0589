/* What PyTorch's allocator keeps idle in the stages of a pipeline: a search replays it for the fullest stage, and takes for granted that
 * none between the first and the last keeps idle more than twice as much and a quarter of what the fullest needs (has_room_for_idle() of
 * evaluate.c).  Random pipelines of every framework on GPUs with room, stages replayed.
 *
 *     test_stage_idle [PLANS]                          100 */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"

static int plans = 100;
static uint64_t state = 54;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static const struct { const char *keys; int first, orders; } frameworks[] = {
    { "'strategy': 'fsdp', 'dialect': 'torch'", 0, 4 }, { "'strategy': 'ddp', 'dialect': 'torch'", 0, 4 },
    { "'strategy': 'zero1', 'dialect': 'megatron'", 1, 2 }, { "'strategy': 'ddp', 'dialect': 'megatron'", 1, 2 },
    { "'strategy': 'zero1', 'dialect': 'deepspeed'", 1, 0 },
};
static const char *const orders[] = { "gpipe", "1f1b", "interleaved", "zbv" };
static const char *const recompute[] = { "none", "full", "selective" };
static const char *const models[] = { "llama-3.1-8b", "llama-2-13b", "gpt2-xl", "gpt2" };

static bool draw_plan(struct plan *p)
{
    char text[1024], says[128] = "", why[400];
    int with = (int)draw(5), pipe = 2 << draw(4), tensor = 1 << draw(4);

    if (frameworks[with].orders > 0) {
        int order = frameworks[with].first + (int)draw((uint32_t)frameworks[with].orders);
        snprintf(says, sizeof says, "'pipeline_schedule': '%s', 'virtual_stages': %d, ", orders[order], order < 2 ? 1 : 2);
    }
    snprintf(text, sizeof text, "{ 'dpx_plan': 1, 'model': '%s', 'cluster': '%dx8xh200', %s, 'seq': %d, 'micro_batch': %d, 'accumulation': %d,"
             " 'precision': 'bf16', 'recompute': '%s', 'parallel': { %s'pipeline': %d, 'tensor': %d } }",
             models[draw(4)], (pipe * tensor * (1 + (int)draw(2)) + 7) / 8, frameworks[with].keys, 1024 << draw(3), 1 << draw(3),
             pipe * (1 + (int)draw(3)), recompute[draw(3)], says, pipe, tensor);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    struct fail_sink before = fail_divert(why, sizeof why);
    bool ok = plan_from_json(j, "plan", p) == 0 && p->parallel.pipeline > 2;
    fail_restore(before);
    json_decref(j);
    p->cluster.memory = INT64_C(1) << 46;
    return ok;
}

static int64_t idle_of(const struct plan *p, const struct evaluation_stage *g)
{
    struct reserved r;

    assert_int_equal(reserved_within(p, &g->schedules, &g->m.overhead, NULL, &r), 0);
    assert_false(r.out_of_memory);
    return evaluation_taken(&g->m, &r) - g->m.needed;
}

static void no_stage_keeps_more_idle_than_the_fullest_tells(void **unused)
{
    (void)unused;
    for (int done = 0; done < plans; ) {
        struct evaluation e;
        struct plan p;
        if (!draw_plan(&p) || evaluate_allocated(&p, &e) < 0)
            continue;
        int full = 0;
        for (int i = 1; i < e.nstages; i++)
            full = e.stage[i].m.needed > e.stage[full].m.needed ? i : full;
        int64_t most = 2 * idle_of(&p, &e.stage[full]) + e.stage[full].m.needed / 4;
        for (int i = 1; i < e.nstages - 1; i++)
            if (e.nstages <= 4 || i < 2 || i == e.nstages / 2 || i == e.nstages - 2)
                assert_in_range(idle_of(&p, &e.stage[i]), 0, most);
        evaluation_free(&e);
        done++;
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_stage_keeps_more_idle_than_the_fullest_tells) };

    plans = argc > 1 ? atoi(argv[1]) : plans;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
