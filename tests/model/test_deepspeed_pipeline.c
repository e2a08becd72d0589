/* DeepSpeed's PipelineModule: stages, order, memory of its own, config and refusals, in numbers that DeepSpeed's functions gave or a reader
 * can redo.  Lists that its engine issued are in test_collectives.c (golden/collectives/deepspeed/pipeline.txt). */
#include "tests/plan_words.h"

#include <stdlib.h>
#include <string.h>

#include "model/exchange/ds_config.h"
#include "model/lower/common/pipeline_comm.h"
#include "model/lower/lower.h"
#include "model/plan/deepspeed_stages.h"

#define PLAN "{ 'dpx_plan': 1, 'cluster': '2x8xh100', 'dialect': 'deepspeed', 'micro_batch': 1, 'precision': 'bf16', 'seq': 1024, %s }"
#define PIPE2 "\"model\": \"gpt2\", \"parallel\": { \"pipeline\": 2 }, \"accumulation\": 4"

static struct plan plan_of(const char *words) { return plan_in_words(PLAN, words); }

static void refused(const char *words, const char *because) { plan_words_refused(because, PLAN, words); }

/* ---- which blocks a stage has ---- */

/* Blocks among layers [a, b) of the list. */
static int64_t blocks_of(const struct model *m, int64_t lead, long a, long b)
{
    int64_t from = a > lead ? a : lead, to = b < lead + m->layers ? b : lead + m->layers;

    return to > from ? to - from : 0;
}

static void follows(const char *line)
{
    char name[64], method[64], words[200], *at;
    int stages, used;
    long parts[17];
    struct plan p;

    assert_int_equal(sscanf(line, "%63[^,],%63[^,],%d,%n", name, method, &stages, &used), 3);
    at = (char *)(uintptr_t)line + used;
    for (int s = 0; s <= stages; s++)
        parts[s] = strtol(at, &at, 10);
    snprintf(words, sizeof words, "\"model\": \"%s\", \"strategy\": \"zero1\"", name);
    p = plan_of(words);
    p.parallel.pipeline = stages;
    p.ds.partition_method = !strcmp(method, "uniform") ? PARTITION_UNIFORM : !strcmp(method, "parameters") ? PARTITION_PARAMETERS : PARTITION_BLOCKS;
    int64_t lead = p.model.position == POS_LEARNED ? 2 : 1;
    for (int s = 0; s < stages; s++)
        if (deepspeed_stage(&p, stages, s).blocks != blocks_of(&p.model, lead, parts[s], parts[s + 1]))
            fail_msg("%s: stage %d has %d blocks", line, s, (int)deepspeed_stage(&p, stages, s).blocks);
    bool apart = parts[stages - 1] > lead + p.model.layers || parts[1] < lead;
    assert_int_equal(deepspeed_stages_refused(&p) != NULL, apart);
    plan_free(&p);
}

static void stages_are_those_of_its_own_functions(void **state)
{
    FILE *f = fopen("tests/golden/grid/deepspeed_parts.csv", "r");
    char line[256];
    int n = 0;

    (void)state;
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n++)
        follows(line);
    fclose(f);
    assert_int_equal(n, 90);
}

/* ---- order: 4 stages, 8 micro-steps (the research notes' vector 54: 22 steps; 4, 3, 2 and 2 buffers) ---- */

enum { STAGES = 4, MICRO_STEPS = 8 };
static const struct pipeline four = { PIPELINE_1F1B, .ranks = STAGES, .chunks = 1, .steps = MICRO_STEPS };

/* Two sides of a message: who sends it on which verb. */
static bool meets(const struct pipeline_act *send, const struct pipeline_act *recv)
{
    return recv->verb == send->verb + PIPE_RECV_F - PIPE_SEND_F && recv->step == send->step;
}

/* One time step: each stage's messages, which take no time and wait for their other side, then at most one pass. */
static bool time_step(const struct pipeline_acts *of, int at[STAGES])
{
    bool passed[STAGES] = { false }, any = false, moved = true;

    while (moved) {
        moved = false;
        for (int r = 0; r < STAGES; r++) {
            if (at[r] == of[r].n)
                continue;
            const struct pipeline_act *a = &of[r].act[at[r]];
            int peer = a->verb == PIPE_SEND_F ? r + 1 : r - 1;
            if (a->verb >= PIPE_WAIT_SEND_F) {
                at[r]++;
                moved = true;
            } else if (a->verb <= PIPE_BACKWARD && !passed[r]) {
                at[r]++;
                passed[r] = any = moved = true;
            } else if ((a->verb == PIPE_SEND_F || a->verb == PIPE_SEND_B) && at[peer] < of[peer].n && !passed[r] && !passed[peer]
                       && meets(a, &of[peer].act[at[peer]])) {
                at[r]++;
                at[peer]++;
                moved = true;
            }
        }
    }
    return any;
}

/* What TrainSchedule.steps() yields: 2 (m + p - 1), a pass or nothing on each stage in each. */
static void vector_54_takes_22_steps(void **state)
{
    struct pipeline_acts *of = pipeline_acts(&four, PIPE_DEEPSPEED);
    int at[STAGES] = { 0 }, steps = 0;

    (void)state;
    while (time_step(of, at))
        steps++;
    assert_int_equal(steps, 22);
    for (int r = 0; r < STAGES; r++)
        assert_int_equal(at[r], of[r].n);
    pipeline_acts_free(of, &four);
}

/* How many instances of a family of buffers are there at once. */
struct living { int family, now, most; };

static int count_living(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct living *l = arg;

    (void)iteration;
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        if (s->acts[k].buf == l->family)
            l->now += (s->acts[k].what & ACT_ALLOC ? 1 : 0) - (s->acts[k].what & ACT_FREE ? 1 : 0);
    l->most = l->now > l->most ? l->now : l->most;
    return 0;
}

static int most_of(const struct schedules *s, const char *what)
{
    struct living l = { .family = -1 };

    for (int i = 0; i < s->nbufs; i++)
        if (!strcmp(s->bufs[i].what, what))
            l.family = i;
    assert_true(l.family >= 0);
    sched_walk(s, SCHED_FIRST, count_living, &l);
    return l.most;
}

/* num_pipe_buffers() is max(2, min(p - r, m)).  A stage keeps an input for each micro-step in flight, 4 - r; the first one has token ids
 * instead.  The last one has one in flight, but its second buffer keeps the logits of the micro-step before. */
static void vector_54_has_4_3_2_and_2_buffers(void **state)
{
    (void)state;
    for (int r = 0; r < STAGES; r++) {
        struct schedules s = { 0 };
        struct plan p = plan_of("\"strategy\": \"zero1\", \"model\": \"llama-3.1-8b\", \"parallel\": { \"pipeline\": 4 }, \"accumulation\": 8");
        assert_int_equal(lower(&p, 4 * r, &s), 0);
        assert_int_equal(most_of(&s, "stage's input"), r ? STAGES - r : 0);
        assert_int_equal(most_of(&s, "output that is kept"), r == STAGES - 1 ? 2 : 0);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* At most 4, 3, 2, 1 micro-steps wait for their backward; what stage 1 does last is to send a gradient. */
static void in_flight_as_1f1b(void **state)
{
    struct pipeline_acts *of = pipeline_acts(&four, PIPE_DEEPSPEED);

    (void)state;
    for (int r = 0; r < 4; r++) {
        int now = 0, most = 0, messages = 0;
        for (int i = 0; i < of[r].n; i++) {
            now += (of[r].act[i].verb == PIPE_FORWARD) - (of[r].act[i].verb == PIPE_BACKWARD);
            most = now > most ? now : most;
            messages += of[r].act[i].verb >= PIPE_SEND_F && of[r].act[i].verb <= PIPE_RECV_B;
        }
        assert_int_equal(now, 0);
        assert_int_equal(most, 4 - r);
        assert_int_equal(messages, 8 * (r % 3 ? 4 : 2));
    }
    assert_int_equal(of[1].act[of[1].n - 1].verb, PIPE_WAIT_SEND_B);
    pipeline_acts_free(of, &four);
}

/* ---- memory that the engine keeps beside ---- */

static const struct buf *buffer(const struct schedules *s, const char *what)
{
    for (int i = 0; i < s->nbufs; i++)
        if (!strcmp(s->bufs[i].what, what))
            return &s->bufs[i];
    fail_msg("no \"%s\"", what);
    return NULL;
}

/* GPT-2, 1,024 tokens: a boundary is 1,024 x 768 in bf16, logits 1,024 x 50,257; the second bucket has 5e8 elements as the first. */
static void what_the_engine_keeps(void **state)
{
    struct schedules s = { 0 };

    (void)state;
    struct plan p = plan_of("\"strategy\": \"zero1\", " PIPE2);
    assert_int_equal(lower(&p, 8, &s), 0);
    assert_int_equal(buffer(&s, "receive buffer")->bytes, 1024 * 768 * 2);
    assert_int_equal(buffer(&s, "receive buffer")->count, 1);
    assert_int_equal(buffer(&s, "stage's input")->bytes, 1024 * 768 * 2);
    assert_int_equal(buffer(&s, "input and gradient of its graph")->bytes, 2 * 1024 * 768 * 2);
    assert_int_equal(buffer(&s, "output that is kept")->bytes, (1024 * 50257 * 2 + 511) / 512 * 512);
    assert_int_equal(buffer(&s, "output that is kept")->count, 2);
    assert_int_equal(buffer(&s, "bucket that is not used")->bytes, 1000000000);
    schedules_free(&s);
    plan_free(&p);
}

/* BF16_Optimizer at stage 0 too: 8 data-parallel ranks cut the optimizer's states of the last stage, and gradients are in bf16. */
static void stage_0_in_bf16_cuts_the_states(void **state)
{
    struct schedules s = { 0 };

    (void)state;
    struct plan p = plan_of("\"strategy\": \"ddp\", " PIPE2);
    assert_int_equal(lower(&p, 8, &s), 0);
    int64_t numel = s.units[0].numel, part = (numel + 15) / 16 * 16 / 8;
    assert_int_equal(buffer(&s, "fp32 parameters")->bytes, (part * 4 + 511) / 512 * 512);
    assert_int_equal(buffer(&s, "gradients that are added up")->bytes, (part * 8 * 2 + 511) / 512 * 512);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- refusals ---- */

static void refuses_by_name(void **state)
{
    (void)state;
    refused("\"strategy\": \"zero2\", " PIPE2, "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism");
    refused("\"strategy\": \"zero3\", " PIPE2, "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism");
    refused("\"strategy\": \"zero1\", " PIPE2 ", \"deepspeed\": { \"overlap_comm\": true }", "hooks which had nothing to reduce");
    refused("\"strategy\": \"zero1\", " PIPE2 ", \"framework_version\": \"0.16.4\"", "known of DeepSpeed 0.19.6");
    refused("\"strategy\": \"zero1\", " PIPE2 ", \"kernels\": \"dpx\"", "modelled for torch-sdpa and torch-eager");
    refused("\"strategy\": \"zero1\", " PIPE2 ", \"deepspeed\": { \"offload_optimizer\": { \"device\": \"cpu\" } }", "offload_optimizer: under a pipeline");
    refused("\"strategy\": \"zero1\", \"model\": \"llama-3.1-8b\", \"parallel\": { \"pipeline\": 2, \"tensor\": 2 }", "beside parallel.tensor");
    refused("\"strategy\": \"zero1\", \"model\": \"gpt2\", \"parallel\": { \"pipeline\": 16 }", "without the final norm");
    refused("\"strategy\": \"zero1\", \"model\": \"bloom-560m\", \"parallel\": { \"pipeline\": 2 }", "its embedding is more than tables");
    refused("\"strategy\": \"zero1\", \"model\": \"mixtral-8x7b\", \"parallel\": { \"pipeline\": 2 }", "mixture of experts");
}

/* ---- ds_config.json ---- */

static int import(struct plan *p, const char *config)
{
    json_t *j = json_loads(config, 0, NULL);

    assert_non_null(j);
    *p = plan_of("\"strategy\": \"zero1\", \"model\": \"gpt2\"");
    int rc = ds_config_import(j, "ds.json", p);
    json_decref(j);
    return rc;
}

/* 16 ranks, 4 stages: 4 x 2 x 3 = 24 samples a step. */
static void its_config_there_and_back(void **state)
{
    struct plan p, again;

    (void)state;
    assert_int_equal(import(&p, "{ \"pipeline\": { \"stages\": 4, \"partition\": \"type:block\", \"activation_checkpoint_interval\": 1 },"
                                " \"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 2, \"bf16\": { \"enabled\": true },"
                                " \"zero_optimization\": { \"stage\": 1 } }"), 0);
    assert_int_equal(p.parallel.pipeline, 4);
    assert_int_equal(p.accumulation, 3);
    assert_int_equal(p.recompute, RECOMPUTE_FULL);
    assert_int_equal(p.ds.partition_method, PARTITION_BLOCKS);
    json_t *j = ds_config_export(&p);
    assert_non_null(j);
    char *text = json_dumps(j, 0);
    assert_int_equal(import(&again, text), 0);
    assert_int_equal(again.parallel.pipeline, 4);
    assert_int_equal(again.accumulation, 3);
    assert_int_equal(again.recompute, RECOMPUTE_FULL);
    assert_int_equal(again.ds.partition_method, PARTITION_BLOCKS);
    free(text);
    json_decref(j);
    plan_free(&again);
    plan_free(&p);
}

static void import_refused(const char *config, const char *because)
{
    char why[512] = "";
    struct plan p;

    fail_capture(why, sizeof why);
    int rc = import(&p, config);
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
    plan_free(&p);
}

static void its_config_is_refused_by_name(void **state)
{
    (void)state;
    import_refused("{ \"pipeline\": { \"stages\": \"auto\" }, \"train_batch_size\": 16 }", "PipelineModule's num_stages");
    import_refused("{ \"pipeline\": { \"stages\": 4, \"activation_checkpoint_interval\": 2 }, \"train_batch_size\": 16 }", "not modelled yet");
    import_refused("{ \"pipeline\": { \"stages\": 4, \"seats\": 2 }, \"train_batch_size\": 16 }", "pipeline.seats: unknown key");
    import_refused("{ \"pipeline\": { \"stages\": 4 }, \"train_batch_size\": 16, \"zero_optimization\": { \"stage\": 2 } }", "incompatible with pipeline");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_are_those_of_its_own_functions), cmocka_unit_test(vector_54_takes_22_steps),
        cmocka_unit_test(vector_54_has_4_3_2_and_2_buffers), cmocka_unit_test(in_flight_as_1f1b), cmocka_unit_test(what_the_engine_keeps),
        cmocka_unit_test(stage_0_in_bf16_cuts_the_states), cmocka_unit_test(refuses_by_name), cmocka_unit_test(its_config_there_and_back),
        cmocka_unit_test(its_config_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
