/* Context parallelism of our own kernels, by its papers (model/program/program_dpx_context.c): numbers that a reader can redo.
 * A layer of Llama 3.1 8B with 131,072 positions over 8 ranks: a rank's queries are 16,384 x 4,096 elements of bf16, 128 MiB, its
 * keys and values together 16,384 x 2,048, 64 MiB. */
#include "tests/plan_words.h"

#include <string.h>

#include "model/lower/lower.h"
#include "model/schedule/ledger.h"
#include "model/schedule/schedule.h"

#define MIB (1024.0 * 1024.0)

#define PLAN "{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '%s', 'dialect': 'paper', 'kernels': 'dpx', 'micro_batch': 1, %s }"

static struct plan plan_in(const char *where, const char *words) { return plan_in_words(PLAN, where, words); }

static struct plan plan_of(const char *words) { return plan_in("8xh100", words); }

static void refused(const char *words, const char *because)
{
    char all[512];

    snprintf(all, sizeof all, "'seq': 8192, %s", words);
    plan_words_refused(because, PLAN, "8xh100", all);
}

/* ---- what is sent ---- */

/* MiB and calls of one of the 32 layers, forward and backward. */
static void check_sent(const char *method, const char *recompute, double forward, int calls, double backward, int calls_back)
{
    const double want[2] = { forward, backward };
    const int want_calls[2] = { calls, calls_back };
    char words[256];
    struct schedules s = { 0 };

    snprintf(words, sizeof words, "\"strategy\": \"zero3\", \"precision\": \"bf16\", \"seq\": 131072, \"recompute\": \"%s\","
             " \"parallel\": { \"context\": 8, \"context_method\": \"%s\" }", recompute, method);
    struct plan p = plan_of(words);
    assert_int_equal(lower(&p, 0, &s), 0);
    for (int back = 0; back < 2; back++) {
        struct sent_over c = sent_over(&s, GROUP_CONTEXT, back ? PHASE_BACKWARD : PHASE_FORWARD, -1);
        assert_close((double)c.bytes / 32 / MIB, want[back], 1e-12);
        assert_int_equal(c.calls, 32 * want_calls[back]);
    }
    schedules_free(&s);
    plan_free(&p);
}

/* 7 x 64 MiB; back the same, and their gradients, one hop fewer than there are ranks as well: what Transformer Engine's p2p sends. */
static void a_ring_sends_448_mib_forward_and_896_back(void **state)
{
    (void)state;
    check_sent("ring", "none", 448, 7, 896, 14);
}

/* Gathered anew in backward, and gradients added up: Transformer Engine's all_gather. */
static void an_all_gather_sends_448_mib_forward_and_896_back(void **state)
{
    (void)state;
    check_sent("all-gather", "none", 448, 1, 896, 2);
}

/* 7/8 of q, k, v and of the output, (2 x 128 + 64) MiB: 280 either way. */
static void ulysses_sends_280_mib_either_way(void **state)
{
    (void)state;
    check_sent("ulysses", "none", 280, 2, 280, 2);
}

/* The whole forward again; or attention alone, to which Ulysses' q, k and v were kept. */
static void recompute_communicates_again(void **state)
{
    (void)state;
    check_sent("ring", "full", 448, 7, 896 + 448, 21);
    check_sent("ring", "selective", 448, 7, 896 + 448, 21);
    check_sent("all-gather", "full", 448, 1, 896 + 448, 3);
    check_sent("ulysses", "full", 280, 2, 280 + 280, 4);
    check_sent("ulysses", "selective", 280, 2, 280 + 7 * 16, 3);
}

/* ---- what is computed, and when ---- */

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

/* Positions in turn: the last rank has 2 - 1/c of the mean.  Head and tail: every rank has the mean; so with Ulysses. */
static void the_last_rank_has_most_to_do_without_balance(void **state)
{
    static const char *const method[] = { "ring", "all-gather", "ulysses" };

    (void)state;
    for (int c = 2; c <= 8; c *= 2)
        for (int m = 0; m < 5; m++) {
            bool balance = m % 2 == 0;
            char words[256];
            snprintf(words, sizeof words, "\"strategy\": \"ddp\", \"seq\": 8192, \"parallel\": { \"context\": %d, \"context_method\": \"%s\"%s }", c,
                     method[m / 2], balance ? "" : ", \"context_balance\": false");
            struct plan p = plan_of(words);
            assert_int_equal(p.parallel.context_balance, balance && m < 4);
            assert_close(scores(&p) / (8192.0 * 8192.0 / 2 / c), balance ? 1 : 2 - 1.0 / c, 1e-12);
            plan_free(&p);
        }
}

/* Attention kernels between a collective and what needs it, and how many such collectives there are. */
static void beside(const struct piece *b, enum pass pass, const char *name, int steps, int calls)
{
    int n = 0;

    for (int i = 0; i < b->ncollectives[pass]; i++) {
        const struct collective *c = &b->collectives[pass][i];
        int k, found = 0;
        if (strcmp(b->kernels[pass][c->kernel].name, name))
            continue;
        for (k = c->kernel; k < c->needed; k++)
            found += b->kernels[pass][k].kind == KC_ATTENTION;
        assert_int_equal(found, steps);
        n++;
    }
    assert_int_equal(n, calls);
}

/* A step's keys travel beside the step before, a step's gradients beside the step behind; the last ones come home alone. */
static void what_travels_does_so_beside_a_step(void **state)
{
    struct plan p = plan_of("\"strategy\": \"ddp\", \"seq\": 8192, \"parallel\": { \"context\": 4 }");
    struct program g = { 0 };
    const struct piece *b = &g.piece[PIECE_BLOCK];

    (void)state;
    assert_int_equal(p.parallel.context_method, CONTEXT_RING);
    assert_int_equal(program_build(&p, &g), 0);
    beside(b, PASS_FORWARD, "send keys and values on", 1, 3);
    beside(b, PASS_BACKWARD, "send keys and values on", 1, 3);
    assert_int_equal(b->ncollectives[PASS_BACKWARD], 6);
    for (int i = 0, n = 0; i < 6; i++) {
        const struct collective *c = &b->collectives[PASS_BACKWARD][i];
        int found = 0;
        if (c->into != SLOT_DKEYS_IN)
            continue;
        for (int k = c->kernel; k < c->needed; k++)
            found += b->kernels[PASS_BACKWARD][k].kind == KC_ATTENTION;
        assert_int_equal(found, n++ < 2);
    }
    program_free(&g);
    plan_free(&p);
}

/* ---- what is kept ---- */

static int64_t kept(const char *words)
{
    struct plan p = plan_of(words);
    struct program g = { 0 };

    assert_int_equal(program_build(&p, &g), 0);
    int64_t saved = g.piece[PIECE_BLOCK].saved;
    program_free(&g);
    plan_free(&p);
    return saved;
}

/* Of a ring what a rank with a fourth of the positions keeps; with Ulysses attention's output a second time, by heads. */
static void a_block_keeps_its_share_of_the_positions(void **state)
{
    int64_t share = kept("\"strategy\": \"ddp\", \"precision\": \"bf16\", \"seq\": 2048");

    (void)state;
    assert_int_equal(kept("\"strategy\": \"ddp\", \"precision\": \"bf16\", \"seq\": 8192, \"parallel\": { \"context\": 4 }"), share);
    assert_int_equal(kept("\"strategy\": \"ddp\", \"precision\": \"bf16\", \"seq\": 8192, \"parallel\": { \"context\": 4, \"context_method\": \"all-gather\" }"),
                     share);
    assert_int_equal(kept("\"strategy\": \"ddp\", \"precision\": \"bf16\", \"seq\": 8192, \"parallel\": { \"context\": 4, \"context_method\": \"ulysses\" }"),
                     share + 2 * 2048 * 4096);
}

/* Temporaries of a block's forward at their most: 2 times the keys and values of the share, or its own and all ranks' (bf16: and the sum of the
 * output, in fp32). */
static void a_ring_holds_two_steps_of_keys_and_an_all_gather_all(void **state)
{
    static const struct { const char *precision, *method; int64_t keys, sum; } row[] = {
        { "fp32", "ring", 2, 0 }, { "fp32", "all-gather", 1 + 4, 0 }, { "bf16", "ring", 2, 4 }, { "bf16", "all-gather", 1 + 4, 4 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t e = i < 2 ? 4 : 2, most = 0, now = 0;
        char words[256];
        snprintf(words, sizeof words, "\"strategy\": \"ddp\", \"precision\": \"%s\", \"seq\": 8192, \"parallel\": { \"context\": 4, \"context_method\": \"%s\" }",
                 row[i].precision, row[i].method);
        struct plan p = plan_of(words);
        struct program g = { 0 };
        assert_int_equal(program_build(&p, &g), 0);
        const struct piece *b = &g.piece[PIECE_BLOCK];
        for (int k = 0; k < b->nkernels[PASS_FORWARD]; k++) {
            now += b->kernels[PASS_FORWARD][k].net[MEM_TEMPORARIES];
            most = now > most ? now : most;
        }
        assert_int_equal(now, 0);
        assert_int_equal(most, 2048 * (2048 * e * row[i].keys + 4096 * row[i].sum));
        program_free(&g);
        plan_free(&p);
    }
}

/* Gradients are averaged over the context's ranks, and states sharded over them: those of 8 ranks that take other samples. */
static void states_are_sharded_over_the_contexts_ranks(void **state)
{
    static const char *const strategy[] = { "ddp", "zero1", "zero2", "zero3", "fsdp" };

    (void)state;
    for (int i = 0; i < 5; i++) {
        char words[256];
        struct schedules a = { 0 }, s = { 0 };
        struct ledger la, ls;
        snprintf(words, sizeof words, "\"strategy\": \"%s\", \"precision\": \"bf16\", \"seq\": 8192", strategy[i]);
        struct plan alone = plan_of(words);
        snprintf(words + strlen(words), sizeof words - strlen(words), ", \"parallel\": { \"context\": 4 }");
        struct plan p = plan_of(words);
        assert_int_equal(lower(&alone, 0, &a), 0);
        assert_int_equal(lower(&p, 0, &s), 0);
        ledger_run(&a, &la);
        ledger_run(&s, &ls);
        for (int c = CAT_PARAMS; c <= CAT_OPTIMIZER; c++)
            assert_int_equal(la.persistent[c], ls.persistent[c]);
        assert_int_equal(plan_global_batch(&alone), 8);
        assert_int_equal(plan_global_batch(&p), 2);
        schedules_free(&a);
        schedules_free(&s);
        plan_free(&alone);
        plan_free(&p);
    }
}

/* ---- with everything else ---- */

/* Every strategy, method, recompute, beside tensor parallelism and in a pipeline: sound schedules, which leave what they found. */
static void it_goes_with_tensors_pipelines_and_recompute(void **state)
{
    static const char *const strategy[] = { "ddp", "zero1", "zero2", "zero3", "fsdp" };
    static const char *const method[] = { "ring", "all-gather", "ulysses" };
    static const char *const recompute[] = { "none", "selective", "full" };
    static const char *const beside[] = { "", ", \"tensor\": 2", ", \"tensor\": 2, \"sequence\": true", ", \"pipeline\": 2",
                                          ", \"pipeline\": 2, \"tensor\": 2", ", \"pipeline\": 2, \"pipeline_schedule\": \"zb1p\"" };

    (void)state;
    for (int i = 0; i < 5 * 3 * 3 * 6; i++) {
        int r = i / 15 % 3, b = i / 45;
        char words[512], why[256];
        struct schedules s = { 0 };
        if (b == 5 && r > 0)                    /* split backward: recompute is refused */
            continue;
        snprintf(words, sizeof words, "\"strategy\": \"%s\", \"precision\": \"%s\", \"seq\": 1024, \"accumulation\": 4, \"recompute\": \"%s\","
                 " \"parallel\": { \"context\": 2, \"context_method\": \"%s\"%s }", strategy[i % 5], i % 2 ? "bf16" : "fp32", recompute[r],
                 method[i / 5 % 3], beside[b]);
        struct plan p = plan_of(words);
        assert_int_equal(lower(&p, 0, &s), 0);
        if (!schedules_check(&s, why, sizeof why))
            fail_msg("%s: %s", words, why);
        schedules_free(&s);
        plan_free(&p);
    }
}

static void what_it_has_not_is_refused_by_name(void **state)
{
    (void)state;
    refused("\"strategy\": \"dp\", \"parallel\": { \"context\": 8 }", "parallel.context: a parameter server");
    refused("\"strategy\": \"ddp\", \"parallel\": { \"context\": 8, \"context_method\": \"ulysses\", \"context_balance\": true }",
            "parallel.context_balance");
    refused("\"strategy\": \"ddp\", \"parallel\": { \"context\": 4, \"tensor\": 4 }", "does not divide");
    refused("\"strategy\": \"ddp\", \"cluster\": \"2x8xh100\", \"parallel\": { \"context\": 16, \"context_method\": \"ulysses\" }",
            "8 key/value heads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_sends_448_mib_forward_and_896_back),
        cmocka_unit_test(an_all_gather_sends_448_mib_forward_and_896_back),
        cmocka_unit_test(ulysses_sends_280_mib_either_way),
        cmocka_unit_test(recompute_communicates_again),
        cmocka_unit_test(the_last_rank_has_most_to_do_without_balance),
        cmocka_unit_test(what_travels_does_so_beside_a_step),
        cmocka_unit_test(a_block_keeps_its_share_of_the_positions),
        cmocka_unit_test(a_ring_holds_two_steps_of_keys_and_an_all_gather_all),
        cmocka_unit_test(states_are_sharded_over_the_contexts_ranks),
        cmocka_unit_test(it_goes_with_tensors_pipelines_and_recompute),
        cmocka_unit_test(what_it_has_not_is_refused_by_name),
    };
    return cmocka_run_group_tests_name("context parallelism of the papers", tests, NULL, NULL);
}
