/* Context parallelism, as torch.distributed.tensor.experimental has it: numbers that a reader can redo, and the memory of steps
 * that PyTorch's own trackers recorded (tests/golden/grid/record_context_memory.py).  Collectives are compared entry for
 * entry in test_collectives.c. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/plan/attention.h"
#include "model/schedule/ledger.h"
#include "model/schedule/schedule.h"

#define MIB (1024.0 * 1024.0)

/* ---- plans ---- */

static struct plan plan_of(const char *words)
{
    char text[1024];
    struct plan p;
    json_t *j;

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"strategy\": \"fsdp\", \"dialect\": \"torch\","
             " \"kernels\": \"torch-sdpa\", \"micro_batch\": 1, \"precision\": \"bf16\", %s }", words);
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    return p;
}

/* What plan_from_json() says of a plan that it refuses. */
static void refused(const char *words, const char *because)
{
    char text[1024], why[512] = "";
    struct plan p;

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"strategy\": \"fsdp\", \"dialect\": \"torch\","
             " \"micro_batch\": 1, %s }", words);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    fail_capture(why, sizeof why);
    assert_int_equal(plan_from_json(j, "plan", &p), -1);
    fail_capture(NULL, 0);
    if (!strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
    json_decref(j);
}

/* ---- what is sent: a layer of 8B with 131072 positions over 8 ranks has keys and values of 64 MiB a rank ---- */

struct sent { enum phase phase; int64_t bytes, calls; };

static int add_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct sent *c = arg;

    (void)iteration;
    if (o->kind == OP_COLL && sched_group(s, o)->is == GROUP_CONTEXT && o->phase == c->phase) {
        c->bytes += sched_sent_bytes(s, o);
        c->calls++;
    }
    return 0;
}

/* Of one of the 32 layers. */
static struct sent sent_in(const struct schedules *s, enum phase phase)
{
    struct sent c = { .phase = phase };

    sched_walk(s, SCHED_STEADY, add_op, &c);
    assert_int_equal(c.bytes % 32, 0);
    assert_int_equal(c.calls % 32, 0);
    return (struct sent){ phase, c.bytes / 32, c.calls / 32 };
}

static void check_sent(const char *method, int forward_calls, int backward_calls)
{
    char words[256];
    struct schedules s = { 0 };

    snprintf(words, sizeof words, "\"seq\": 131072, \"parallel\": { \"context\": 8, \"context_method\": \"%s\" }", method);
    struct plan p = plan_of(words);
    assert_int_equal(lower(&p, 0, &s), 0);
    struct sent forward = sent_in(&s, PHASE_FORWARD), back = sent_in(&s, PHASE_BACKWARD);
    assert_close((double)forward.bytes / MIB, 448, 1e-12);      /* 7 x 64 MiB */
    assert_close((double)back.bytes / MIB, 1472, 1e-12);        /* and 8 x 128 MiB of fp32 */
    assert_int_equal(forward.calls, forward_calls);
    assert_int_equal(back.calls, backward_calls);
    schedules_free(&s);
    plan_free(&p);
}

static void an_all_gather_sends_448_mib_forward_and_1472_back(void **state)
{
    (void)state;
    check_sent("all-gather", 1, 1 + 8);
}

static void a_ring_sends_as_much_in_steps(void **state)
{
    (void)state;
    check_sent("ring", 7, 7 + 8);
}

/* Its group contains the context's ranks: units and their shards are those of 8 ranks that take other samples. */
static void fsdp_shards_over_the_contexts_ranks(void **state)
{
    struct plan alone = plan_of("\"seq\": 8192"), p = plan_of("\"seq\": 8192, \"parallel\": { \"context\": 4 }");
    struct schedules a = { 0 }, s = { 0 };
    struct ledger la, ls;

    (void)state;
    assert_int_equal(lower(&alone, 0, &a), 0);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&a, &la);
    ledger_run(&s, &ls);
    assert_int_equal(la.persistent[CAT_PARAMS], ls.persistent[CAT_PARAMS]);
    assert_int_equal(la.most[CAT_ALL_GATHER], ls.most[CAT_ALL_GATHER]);
    assert_int_equal(plan_global_batch(&alone), 8);
    assert_int_equal(plan_global_batch(&p), 2);
    schedules_free(&a);
    schedules_free(&s);
    plan_free(&alone);
    plan_free(&p);
}

/* ---- what is computed ---- */

/* Scores that a block's attention is after, 4 d FLOPs each and head. */
static double scores(const struct plan *p)
{
    struct program g = { 0 };
    double flops = 0;

    assert_int_equal(program_build(p, &g), 0);
    for (int i = 0; i < g.piece[PIECE_BLOCK].nkernels[PASS_FORWARD]; i++) {
        const struct kernel *k = &g.piece[PIECE_BLOCK].kernels[PASS_FORWARD][i];
        if (k->kind == KC_ATTENTION)
            flops += k->flops * (k->attends == ATTENDS_BEFORE ? 0.5 : 1);
    }
    program_free(&g);
    return flops / (4.0 * (double)p->model.head_dim * (double)p->model.heads);
}

/* Positions in turn: the last rank has 2 - 1/c of the mean.  Head and tail: every rank has the mean. */
static void the_last_rank_has_most_to_do_without_balance(void **state)
{
    (void)state;
    for (int c = 2; c <= 8; c *= 2)
        for (int balance = 0; balance < 2; balance++) {
            char words[256];
            snprintf(words, sizeof words, "\"seq\": 8192, \"parallel\": { \"context\": %d, \"context_balance\": %s }", c, balance ? "true" : "false");
            struct plan p = plan_of(words);
            double mean = 8192.0 * 8192.0 / 2 / c;
            assert_close(scores(&p) / mean, balance ? 1 : 2 - 1.0 / c, 1e-12);
            plan_free(&p);
        }
}

/* A step's keys travel beside the step before: the all-gather beside the first alone. */
static void keys_travel_beside_the_step_before(void **state)
{
    static const struct { const char *method; int waits[3]; } row[] = { { "all-gather", { 1 } }, { "ring", { 1, 1, 1 } } };

    (void)state;
    for (int m = 0; m < 2; m++) {
        char words[256];
        snprintf(words, sizeof words, "\"seq\": 8192, \"parallel\": { \"context\": 4, \"context_method\": \"%s\" }", row[m].method);
        struct plan p = plan_of(words);
        struct program g = { 0 };
        assert_int_equal(program_build(&p, &g), 0);
        const struct piece *b = &g.piece[PIECE_BLOCK];
        assert_int_equal(b->ncollectives[PASS_FORWARD], m ? 3 : 1);
        for (int i = 0; i < b->ncollectives[PASS_FORWARD]; i++) {
            int steps = 0;
            for (int k = b->collectives[PASS_FORWARD][i].kernel; k < b->collectives[PASS_FORWARD][i].needed; k++)
                steps += b->kernels[PASS_FORWARD][k].kind == KC_ATTENTION;
            assert_int_equal(steps, row[m].waits[i]);
        }
        program_free(&g);
        plan_free(&p);
    }
}

/* ---- what is refused ---- */

static void what_pytorch_has_not_is_refused_by_name(void **state)
{
    (void)state;
    refused("\"seq\": 8200, \"parallel\": { \"context\": 8 }", "parallel.context: seq 8200");
    refused("\"seq\": 8192, \"parallel\": { \"context\": 8, \"context_method\": \"ulysses\" }", "parallel.context_method");
    refused("\"seq\": 8192, \"kernels\": \"torch-eager\", \"parallel\": { \"context\": 8 }", "kernels");
    refused("\"seq\": 8192, \"kernels\": \"dpx\", \"parallel\": { \"context\": 8 }", "kernels");
    refused("\"seq\": 8192, \"framework_version\": \"2.5\", \"parallel\": { \"context\": 8, \"context_method\": \"ring\" }", "parallel.context_balance");
    refused("\"seq\": 8192, \"framework_version\": \"2.5\", \"parallel\": { \"context\": 8, \"context_balance\": false }", "parallel.context_method");
}

/* ---- recorded steps ---- */

/* The trackers go on counting the batch, some kilobytes, after backward has released it here. */
#define FOLLOWED 1e-3

/* What the kernel takes of a rank's share of the positions. */
static double scratch(const struct plan *p)
{
    struct plan of = *p;

    of.seq = plan_rank_seq(p);
    of.model.heads = ceil_div(p->model.heads, p->parallel.tensor > 1 ? p->parallel.tensor : 1);
    of.model.kv_heads = ceil_div(p->model.kv_heads, p->parallel.tensor > 1 ? p->parallel.tensor : 1);
    return (double)attention_scratch(&of);
}

/* Of two recorded ranks dpx has the fuller one, counting what the kernel takes within its call, which the trackers do not see; without
 * balance the last, which has most to do. */
static void step_agrees(const json_t *first, const json_t *last, const json_t *models)
{
    json_t *plan = json_object_get(first, "plan");
    const char *name = json_string_value(json_object_get(first, "name"));
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;

    assert_string_equal(name, json_string_value(json_object_get(last, "name")));
    json_object_set(plan, "model", json_object_get(models, json_string_value(json_object_get(plan, "model"))));
    assert_int_equal(plan_from_json(plan, name, &p), 0);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&s, &l);
    double got = (double)l.phase[SCHED_STEADY].bytes, want = 0;
    const json_t *of[2] = { first, last };
    for (int i = !p.parallel.context_balance; i < 2; i++)
        want = fmax(want, (double)json_integer_value(json_object_get(json_object_get(of[i], "steady"), "peak_total")));
    if (got < want * (1 - FOLLOWED) || got > (want + scratch(&p)) * (1 + FOLLOWED))
        fail_msg("%s: %.0f bytes, PyTorch counts %.0f (%+.3f %%)", name, got, want, 100 * (got - want) / want);
    schedules_free(&s);
    plan_free(&p);
}

static json_t *next_line(FILE *f)
{
    char text[32768];

    return fgets(text, sizeof text, f) ? json_loads(text, 0, NULL) : NULL;
}

static void steps_take_what_pytorch_counted(void **state)
{
    FILE *f = fopen("tests/golden/grid/context_memory.jsonl", "r");
    json_t *head, *first;
    int n = 0;

    (void)state;
    assert_non_null(f);
    head = next_line(f);
    while ((first = next_line(f)) != NULL) {
        json_t *last = next_line(f);
        assert_non_null(last);
        step_agrees(first, last, json_object_get(head, "models"));
        json_decref(first);
        json_decref(last);
        n++;
    }
    assert_true(n >= 30);
    json_decref(head);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_all_gather_sends_448_mib_forward_and_1472_back),
        cmocka_unit_test(a_ring_sends_as_much_in_steps),
        cmocka_unit_test(fsdp_shards_over_the_contexts_ranks),
        cmocka_unit_test(the_last_rank_has_most_to_do_without_balance),
        cmocka_unit_test(keys_travel_beside_the_step_before),
        cmocka_unit_test(what_pytorch_has_not_is_refused_by_name),
        cmocka_unit_test(steps_take_what_pytorch_counted),
    };
    return cmocka_run_group_tests_name("context parallelism", tests, NULL, NULL);
}
