/* Context parallelism, as torch.distributed.tensor.experimental has it: numbers that a reader can redo, and the memory of steps
 * that PyTorch's own trackers recorded (tests/golden/grid/record_context_memory.py).  Collectives are compared entry for
 * entry in test_collectives.c. */
#include "tests/plan_words.h"

#include <string.h>

#include "model/lower/lower.h"
#include "model/plan/attention.h"
#include "model/schedule/ledger.h"
#include "model/schedule/schedule.h"

#define MIB (1024.0 * 1024.0)

/* ---- plans ---- */

#define PLAN(more) "{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '8xh100', 'strategy': 'fsdp', 'dialect': 'torch'," more " 'micro_batch': 1, %s }"

static struct plan plan_of(const char *words) { return plan_in_words(PLAN("'kernels': 'torch-sdpa', 'precision': 'bf16',"), words); }

static void refused(const char *words, const char *because) { plan_words_refused(because, PLAN(""), words); }

/* ---- what is sent: a layer of 8B with 131072 positions over 8 ranks has keys and values of 64 MiB a rank ---- */

/* In one of the 32 layers. */
static void layer_sends(const struct schedules *s, enum phase phase, double mib, int calls)
{
    struct sent_over all = sent_over(s, GROUP_CONTEXT, phase, -1);

    assert_close((double)all.bytes / 32 / MIB, mib, 1e-12);
    assert_int_equal(all.calls, 32 * calls);
}

static void check_sent(const char *method, int forward_calls, int backward_calls)
{
    char words[256];
    struct schedules s = { 0 };

    snprintf(words, sizeof words, "\"seq\": 131072, \"parallel\": { \"context\": 8, \"context_method\": \"%s\" }", method);
    struct plan p = plan_of(words);
    assert_int_equal(lower(&p, 0, &s), 0);
    layer_sends(&s, PHASE_FORWARD, 448, forward_calls);         /* 7 x 64 MiB */
    layer_sends(&s, PHASE_BACKWARD, 1472, backward_calls);      /* and 8 x 128 MiB of fp32 */
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
    refused("\"seq\": 8192, \"parallel\": { \"context\": 2, \"tensor\": 2, \"context_method\": \"ulysses\" }", "parallel.context_method");
    refused("\"seq\": 8192, \"parallel\": { \"context\": 2, \"context_method\": \"ulysses\", \"context_balance\": true }", "parallel.context_balance");
    refused("\"seq\": 8192, \"recompute\": \"selective\", \"parallel\": { \"context\": 2, \"context_method\": \"ulysses\" }", "recompute: selective");
    refused("\"seq\": 8192, \"loss\": \"liger\", \"parallel\": { \"context\": 2, \"context_method\": \"ulysses\" }", "loss");
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
    bool ulysses = p->parallel.context_method == CONTEXT_ULYSSES;       /* all positions of some heads */
    int64_t among = ulysses ? p->parallel.context : p->parallel.tensor > 1 ? p->parallel.tensor : 1;

    of.seq = ulysses ? p->seq : plan_rank_seq(p);
    of.model.heads = ceil_div(p->model.heads, among);
    of.model.kv_heads = ceil_div(p->model.kv_heads, among);
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

static int steps_agree(const char *path)
{
    FILE *f = fopen(path, "r");
    json_t *head, *first;
    int n = 0;

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
    json_decref(head);
    fclose(f);
    return n;
}

static void steps_take_what_pytorch_counted(void **state)
{
    (void)state;
    assert_true(steps_agree("tests/golden/grid/context_memory.jsonl") >= 30);
}

/* Whose experts see the rank's own positions. */
static void steps_of_mixtures_take_what_pytorch_counted(void **state)
{
    (void)state;
    assert_true(steps_agree("tests/golden/grid/context_mixtures.jsonl") >= 6);
}

/* verl's Ulysses: all ranks of a context group take the same, and one of them is recorded. */
static int steps_of_one_rank_agree(const char *path)
{
    FILE *f = fopen(path, "r");
    json_t *head, *line;
    int n = 0;

    assert_non_null(f);
    for (head = next_line(f); (line = next_line(f)) != NULL; n++) {
        step_agrees(line, line, json_object_get(head, "models"));
        json_decref(line);
    }
    json_decref(head);
    fclose(f);
    return n;
}

static void steps_of_verl_take_what_pytorch_counted(void **state)
{
    (void)state;
    assert_true(steps_of_one_rank_agree("tests/golden/grid/verl_memory.jsonl") >= 32);
    assert_true(steps_of_one_rank_agree("tests/golden/grid/verl_fsdp1.jsonl") >= 18);
    assert_true(steps_of_one_rank_agree("tests/golden/grid/verl_lora.jsonl") >= 32);
    assert_true(steps_of_one_rank_agree("tests/golden/grid/verl_lora_fsdp1.jsonl") >= 6);
}

/* Of a layer of Llama 3.1 8B with 131,072 positions over 8 ranks: queries and output are 128 MiB in bf16, keys and values 32 each, of which a rank
 * sends 7 of 8 parts: 280 MiB, and their gradients as much.  Every layer gathers all positions' numbers, of 8 bytes; the step the losses, of 4. */
static void verls_exchanges_are_what_it_says(void **state)
{
    struct schedules s = { 0 };

    (void)state;
    struct plan p = plan_of("\"seq\": 131072, \"loss\": \"fused\", \"parallel\": { \"context\": 8, \"context_method\": \"ulysses\" }");
    assert_int_equal(lower(&p, 0, &s), 0);
    for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
        struct sent_over c = sent_over(&s, GROUP_CONTEXT, (enum phase)phase, COLL_ALL_TO_ALL);
        assert_int_equal(c.calls, 4 * 32);
        assert_int_equal(c.bytes, (int64_t)32 * 280 << 20);
    }
    struct sent_over g = sent_over(&s, GROUP_CONTEXT, PHASE_FORWARD, COLL_ALL_GATHER);
    assert_int_equal(g.calls, 32 + 1);
    assert_int_equal(g.bytes, (int64_t)131072 * (32 * 8 + 4) * 7 / 8);
    schedules_free(&s);
    plan_free(&p);
}

/* With the entropy in the loss (entropy_coeff) two numbers of a token are gathered, of 4 bytes: softmax and logsumexp give fp32 under
 * verl's autocast. */
static void verls_actor_gathers_entropies_too(void **state)
{
    struct schedules s = { 0 };

    (void)state;
    struct plan p = plan_of("\"seq\": 131072, \"loss\": \"fused-entropy\", \"train\": \"lora\", \"parallel\": { \"context\": 8, \"context_method\": \"ulysses\" }");
    assert_int_equal(lower(&p, 0, &s), 0);
    struct sent_over g = sent_over(&s, GROUP_CONTEXT, PHASE_FORWARD, COLL_ALL_GATHER);
    assert_int_equal(g.calls, 32 + 2);
    assert_int_equal(g.bytes, (int64_t)131072 * (32 * 8 + 4 + 4) * 7 / 8);
    schedules_free(&s);
    plan_free(&p);
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
        cmocka_unit_test(steps_of_mixtures_take_what_pytorch_counted),
        cmocka_unit_test(steps_of_verl_take_what_pytorch_counted),
        cmocka_unit_test(verls_exchanges_are_what_it_says),
        cmocka_unit_test(verls_actor_gathers_entropies_too),
    };
    return cmocka_run_group_tests_name("context parallelism", tests, NULL, NULL);
}
