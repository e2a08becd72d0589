/* Plans with a pipeline: every stage evaluated, timed on one clock, and written as JSON. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fail.h"
#include "sim/clock/simulate.h"
#include "sim/clock/trace.h"
#include "sim/plan/explain.h"

/* Stages are equal where the vocabulary costs nothing beside the blocks: 16 blocks of 4 * 4096^2 + 3 * 4096 * 11008 + 2 * 4096 =
 * 202,383,360 parameters, 64 tokens of 4096. */
#define EVEN "{ 'model_type': 'llama', 'hidden_size': 4096, 'intermediate_size': 11008, 'num_hidden_layers': 16," \
             " 'num_attention_heads': 32, 'vocab_size': 64, 'max_position_embeddings': 4096 }"

#define TIED "{ 'model_type': 'llama', 'hidden_size': 4096, 'intermediate_size': 11008, 'num_hidden_layers': 16," \
             " 'num_attention_heads': 32, 'vocab_size': 64, 'max_position_embeddings': 4096, 'tie_word_embeddings': true }"

struct bed { struct plan plan; struct evaluation e; struct timing t; struct run runs[8]; int n; json_t *doc; };

static void bed_open_as(struct bed *b, const char *strategy, const char *model, const char *cluster, int64_t accumulation,
                        const char *parallel)
{
    char text[2048];
    json_t *j;

    memset(b, 0, sizeof *b);
    snprintf(text, sizeof text, "{ 'dpx_plan': 1, 'model': %s, 'cluster': '%s', %s,"
             " 'kernels': 'torch-sdpa', 'seq': 4096, 'micro_batch': 1, 'accumulation': %lld, 'precision': 'bf16',"
             " 'recompute': 'none', 'parallel': { %s } }", model, cluster, strategy, (long long)accumulation, parallel);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    if (plan_from_json(j, "plan", &b->plan) < 0 || evaluate(&b->plan, &b->e) < 0)
        fail_msg("%s: refused", parallel);
    json_decref(j);
    b->n = b->e.nstages ? b->e.nstages : 1;
    assert_in_range(b->n, 1, 8);
    assert_int_equal(simulate_stages(&b->plan, &b->e, &b->t, b->runs), 0);
    b->doc = evaluation_json(&b->plan, &b->e);
    simulate_timing_into(b->doc, &b->plan, &b->e, &b->t);
}

static void bed_open(struct bed *b, const char *model, const char *cluster, int64_t accumulation, const char *parallel)
{
    bed_open_as(b, "'strategy': 'fsdp', 'dialect': 'torch'", model, cluster, accumulation, parallel);
}

static void bed_close(struct bed *b)
{
    for (int i = 0; i < b->n; i++)
        run_free(&b->runs[i]);
    json_decref(b->doc);
    evaluation_free(&b->e);
    plan_free(&b->plan);
}

static double number(const json_t *doc, const char *object, const char *key)
{
    return json_number_value(json_object_get(json_object_get(doc, object), key));
}

/* The step's parts are the busiest stage's and add up; each stage's do. */
static void parts_add_up(const struct bed *b)
{
    const struct timeline *l = &b->t.line;
    double makespan = l->step_s - l->slowest_s, mean = 0;

    assert_close(l->compute_s + l->optimizer_s + l->exposed_s + l->idle_s + l->bubble_s, makespan, 1e-12);
    for (int i = 0; i < b->n; i++) {
        const struct stage_part *of = &b->t.stages.stage[i];
        assert_close(of->work_s + of->messages_s + of->bubble_s, makespan, 1e-12);
        assert_true(of->work_s <= b->t.stages.stage[b->t.stages.busiest].work_s);
        mean += of->work_s / b->n;
    }
    if (b->n > 1)
        assert_close(1 + b->t.stages.imbalance_s, 1 + b->t.stages.stage[b->t.stages.busiest].work_s - mean, 1e-12);
    assert_true(b->t.low_s <= l->step_s && l->step_s <= b->t.high_s);
}

/* GPipe and 1F1B of equal stages: bubble / work = (p - 1)/m, up to what gathering, reducing and the optimizer, which come
 * once a step, and rates beside other work add: within a tenth of the step. */
static void equal_stages_bubble_as_derived(void **state)
{
    static const char *const schedule[] = { "gpipe", "1f1b" };

    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (int p = 2; p <= 4; p += 2)
            for (int m = p; m <= 16; m *= 2) {
                struct bed b;
                char words[160];
                snprintf(words, sizeof words, "'pipeline': %d, 'pipeline_schedule': '%s', 'first_stage_less_layers': 0,"
                         " 'last_stage_less_layers': 0", p, schedule[kind]);
                bed_open(&b, EVEN, "8xh200", m, words);
                assert_int_equal(b.e.nstages, p);
                parts_add_up(&b);
                double makespan = b.t.line.step_s - b.t.line.slowest_s, want = (p - 1.) / (m + p - 1);
                for (int i = 0; i < p; i++)
                    if (fabs(b.t.stages.stage[i].bubble_s / makespan - want) > 0.1)
                        fail_msg("%s p %d m %d stage %d: bubble %.3f of the step, %.3f derived", schedule[kind], p, m, i,
                                 b.t.stages.stage[i].bubble_s / makespan, want);
                bed_close(&b);
            }
}

/* The sources' figures from a whole plan: on 4 GPUs that are 4 stages and nothing else, a naive pipeline (one micro-step) computes
 * 25 % of the time, GPipe with 4 micro-steps 4/7 (Huang et al. 2019), the optimizer aside, which all stages run at
 * once.  Messages of 32 MiB over NVLink take a hundredth. */
static void naive_25_percent_and_gpipe_57(void **state)
{
    (void)state;
    for (int m = 1; m <= 4; m += 3) {
        struct bed b;
        double busy = 0;
        bed_open_as(&b, "'strategy': 'ddp', 'dialect': 'paper'", EVEN, "4xh200", m, "'pipeline': 4, 'pipeline_schedule': 'gpipe'");
        parts_add_up(&b);
        for (int i = 0; i < 4; i++)
            busy += b.runs[i].total.compute_s / 4;
        busy /= b.t.line.step_s - b.t.line.slowest_s - b.t.line.optimizer_s;
        if (fabs(busy - (m == 1 ? 0.25 : 4. / 7)) > 0.01)
            fail_msg("%d micro-steps: busy %.4f of the time", m, busy);
        bed_close(&b);
    }
}

/* The first and the last stage add up the gradient of a tied embedding, 64 rows of 4096 in bf16, once a step; the stages between
 * them take no part, and nobody waits for them. */
static void tied_ends_meet(void **state)
{
    const char *const strategy[] = { "'strategy': 'ddp', 'dialect': 'paper'", "'strategy': 'zero1', 'dialect': 'paper'" };

    (void)state;
    for (int p = 2; p <= 8; p *= 2)
        for (int i = 0; i < 2; i++) {
            const struct schedules *of[EVALUATION_STAGES];
            char words[32];
            struct bed b;
            snprintf(words, sizeof words, "'pipeline': %d", p);
            bed_open_as(&b, strategy[i], TIED, "8xh200", 8, words);
            assert_int_equal(evaluation_roles(&b.e, of), p);
            parts_add_up(&b);
            for (int r = 0; r < p; r++) {
                int n = 0;
                for (int at = of[r]->begin[SCHED_STEADY]; at < of[r]->end[SCHED_STEADY]; at++) {
                    const struct op *o = &of[r]->ops[at];
                    if (o->kind != OP_COLL || sched_group(of[r], o)->is != GROUP_TIED)
                        continue;
                    assert_int_equal(o->u.coll.elems * dtype_bytes(o->u.coll.dtype), 64 * 4096 * 2);
                    n++;
                }
                assert_int_equal(n, r == 0 || r == p - 1);
            }
            bed_close(&b);
        }
}

/* Every stage has a rank of its own in order, messages between neighbours match in number, the fullest is the one that needs
 * most, and JSON says the same. */
static void every_stage_is_evaluated(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, "'llama-3.1-8b'", "8xh200", 8, "'pipeline': 4, 'pipeline_schedule': '1f1b'");
    parts_add_up(&b);
    const json_t *memory = json_object_get(b.doc, "memory"), *roles = json_object_get(memory, "roles");
    assert_int_equal(json_array_size(roles), 4);
    assert_int_equal(json_array_size(json_object_get(json_object_get(b.doc, "time"), "stages")), 4);
    int64_t most = 0;
    for (int i = 0; i < 4; i++) {
        const struct evaluation_stage *of = &b.e.stage[i];
        const json_t *role = json_array_get(roles, (size_t)i);
        struct comm_table t;
        assert_int_equal(of->m.rank, 2 * i);                /* pipe is the slowest axis of 4 x 2 */
        assert_int_equal(of->schedules.rank, of->m.rank);
        assert_int_equal(json_integer_value(json_object_get(role, "stage")), i);
        assert_int_equal(json_integer_value(json_object_get(role, "rank")), 2 * i);
        assert_int_equal(json_integer_value(json_object_get(role, "peak_bytes")), b.t.stages.stage[i].held_bytes);
        most = of->m.needed > most ? of->m.needed : most;
        evaluation_comm_count(&of->schedules, SCHED_STEADY, &t);
        int64_t sends = 0, receives = 0;
        for (int k = 0; k < t.n; k++) {
            sends += t.line[k].op == COLL_SEND ? t.line[k].count : 0;
            receives += t.line[k].op == COLL_RECV ? t.line[k].count : 0;
        }
        assert_int_equal(sends, i == 0 || i == 3 ? 8 : 16); /* 8 micro-steps to each neighbour */
        assert_int_equal(receives, sends);
    }
    assert_int_equal(b.e.m.needed, most);
    assert_int_equal(b.e.m.rank, b.e.stage[b.e.fullest].m.rank);
    assert_int_equal(json_integer_value(json_object_get(memory, "peak_bytes")), b.t.held_bytes);
    assert_close(number(b.doc, "time", "compute_s") + number(b.doc, "time", "exposed_comm_s") +
                 number(b.doc, "time", "optimizer_s") + number(b.doc, "time", "idle_s") + number(b.doc, "time", "bubble_s") +
                 number(b.doc, "time", "slowest_rank_s"), number(b.doc, "time", "step_s"), 1e-12);
    bed_close(&b);
}

/* 1F1B keeps min(m, p - stage) micro-steps, GPipe all m: with equal stages the first is the fullest by more than the
 * last, and GPipe's last stage holds what its first does, but for embedding and head. */
static void stages_hold_what_is_in_flight(void **state)
{
    int64_t activations[2][4];

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct bed b;
        bed_open(&b, EVEN, "8xh200", 8, kind ? "'pipeline': 4, 'pipeline_schedule': '1f1b', 'first_stage_less_layers': 0,"
                 " 'last_stage_less_layers': 0" : "'pipeline': 4, 'pipeline_schedule': 'gpipe',"
                 " 'first_stage_less_layers': 0, 'last_stage_less_layers': 0");
        for (int i = 0; i < 4; i++)
            activations[kind][i] = b.e.stage[i].m.ledger.most[CAT_ACTIVATIONS];
        assert_int_equal(b.e.fullest, kind ? 0 : b.e.fullest);
        bed_close(&b);
    }
    for (int i = 0; i < 4; i++) {
        /* 4, 3, 2, 1 micro-steps; 8 in GPipe. */
        double share = (double)activations[1][i] / (double)activations[0][i], want = (4 - i) / 8.;
        if (fabs(share - want) > 0.06)
            fail_msg("stage %d: 1F1B keeps %.3f of GPipe's activations, %.3f derived", i, share, want);
    }
}

/* 24 GPUs in 4 stages of 6, nodes of 8 (of a rack of 72): rank 0 and its peer 6 are on one node, but 2 and 8 are not, and the others wait
 * for them.  8 GPUs in 4 stages lie on one node.  The send of one boundary takes what the clock kept. */
static void a_message_takes_what_the_slowest_pair_takes(void **state)
{
    double took[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct bed b;
        bed_open(&b, EVEN, i ? "3x8xgb200" : "24xgb200", 4, "'pipeline': 4, 'pipeline_schedule': 'gpipe'");
        took[i] = 0;
        for (int64_t k = 0; k < b.runs[0].n; k++) {
            const struct ran *r = &b.runs[0].ran[k];
            const struct op *o = &b.e.stage[0].schedules.ops[r->op];
            if (o->kind == OP_COLL && o->u.coll.op == COLL_SEND)
                took[i] = r->end - r->start;
        }
        bed_close(&b);
    }
    assert_true(took[0] > 0 && took[1] > 2 * took[0]);      /* 900 GB/s a link, 50 GB/s an adapter */
}

/* A stage that does not fit is named. */
static void the_stage_that_does_not_fit_is_named(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, "'llama-3.1-70b'", "8xh100", 8, "'pipeline': 4, 'pipeline_schedule': '1f1b'");
    assert_false(b.e.m.fits);
    assert_non_null(strstr(b.e.why_not, "stage 0 of 4"));
    bed_close(&b);
}

/* A Chrome trace has a process for each stage. */
static void the_trace_has_a_process_for_each_stage(void **state)
{
    char path[] = "/tmp/dpx-trace-XXXXXX";
    int file = mkstemp(path), names = 0;
    struct trace_role *roles;
    size_t i;
    struct bed b;
    json_t *doc, *event;

    (void)state;
    assert_true(file >= 0);
    close(file);
    bed_open(&b, EVEN, "8xh200", 4, "'pipeline': 2");
    roles = explain_roles(&b.e, b.runs);
    assert_non_null(roles);
    assert_int_equal(trace_write(roles, 2, path), 0);
    doc = json_load_file(path, 0, NULL);
    assert_non_null(doc);
    json_array_foreach(json_object_get(doc, "traceEvents"), i, event)
        if (!strcmp(json_string_value(json_object_get(event, "name")), "process_name")) {
            char want[24];
            snprintf(want, sizeof want, "stage %d", names++);
            assert_string_equal(json_string_value(json_object_get(json_object_get(event, "args"), "name")), want);
            assert_int_equal(json_integer_value(json_object_get(event, "pid")), names);
        }
    assert_int_equal(names, 2);
    json_decref(doc);
    free(roles);
    unlink(path);
    bed_close(&b);
}

/* The bottleneck with the head is named, and what balances it was evaluated: that plan is as fast as it says. */
static void what_balances_is_what_was_evaluated(void **state)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    double said;
    int64_t first, last;
    struct bed b, c;
    char words[200];

    (void)state;
    bed_open(&b, "'llama-3.1-8b'", "8xh200", 8, "'pipeline': 4, 'first_stage_less_layers': 0, 'last_stage_less_layers': 0");
    explain_pipeline(&b.plan, &b.e, &b.t, b.runs, f);
    fclose(f);
    assert_non_null(strstr(text, "Stage 3 is the bottleneck"));
    char *balance = strstr(text, "Balance: ");
    assert_non_null(balance);
    assert_int_equal(sscanf(balance, "Balance: first_stage_less_layers %ld, last_stage_less_layers %ld (now 0, 0): %lg s", &first,
                            &last, &said), 3);
    snprintf(words, sizeof words, "'pipeline': 4, 'first_stage_less_layers': %ld, 'last_stage_less_layers': %ld", first, last);
    bed_open(&c, "'llama-3.1-8b'", "8xh200", 8, words);
    assert_true(c.t.line.step_s < 0.99 * b.t.line.step_s);
    assert_close(c.t.line.step_s, said, 1e-3);
    bed_close(&b);
    bed_close(&c);
    free(text);
}

/* Where the head is tied to the embedding the first and the last stage of four add up their gradients; those between are in no
 * such group, and nobody waits for them. */
static void ends_of_a_tied_model_meet(void **state)
{
    struct bed b;
    char model[512] = EVEN;

    (void)state;
    snprintf(strchr(model, '}'), 40, ", 'tie_word_embeddings': true }");
    bed_open_as(&b, "'strategy': 'ddp', 'dialect': 'paper'", model, "8xh200", 8, "'pipeline': 4");
    parts_add_up(&b);
    for (int i = 0; i < 4; i++) {
        const struct schedules *s = &b.e.stage[i].schedules;
        int64_t meets = 0;
        for (int64_t k = 0; k < s->nops; k++)
            meets += s->ops[k].kind == OP_COLL && s->ops[k].u.coll.group == plan_groups_find(&s->groups, GROUP_TIED);
        assert_int_equal(meets > 0, i == 0 || i == 3);
    }
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_stages_bubble_as_derived),
        cmocka_unit_test(naive_25_percent_and_gpipe_57),
        cmocka_unit_test(tied_ends_meet),
        cmocka_unit_test(every_stage_is_evaluated),
        cmocka_unit_test(stages_hold_what_is_in_flight),
        cmocka_unit_test(a_message_takes_what_the_slowest_pair_takes),
        cmocka_unit_test(the_stage_that_does_not_fit_is_named),
        cmocka_unit_test(the_trace_has_a_process_for_each_stage),
        cmocka_unit_test(what_balances_is_what_was_evaluated),
        cmocka_unit_test(ends_of_a_tied_model_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
