/* Orders of pipelines against listings of torch.distributed.pipelining's generators (PyTorch 2.15, 4 ranks,
 * 8 micro-steps), against the closed forms of bubbles and of micro-steps in flight, and against a clock. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/lower/common/pipeline_order.h"

enum { MOST = 8192, RANKS = 16 };
static struct pipeline_pass list[RANKS][MOST];

static int listed(struct pipeline p, int rank)
{
    p.rank = rank;
    assert_true(!pipeline_refused(&p) || pipeline_too_few(&p));
    assert_true(pipeline_room(&p) <= MOST);
    int n = pipeline_order(&p, list[rank]);
    assert_true((size_t)n <= pipeline_room(&p));
    return n;
}

/* "stage, kind, micro-step", as PyTorch prints them. */
static void must_list(enum pipeline_kind kind, int chunks, int rank, const char *want)
{
    struct pipeline p = { kind, 4, rank, chunks, 8, 0 };
    char text[4096] = "", one[32];
    int n = listed(p, rank);

    for (int i = 0; i < n; i++) {
        struct pipeline_pass a = list[rank][i];
        bool second = i > 0 && list[rank][i - 1].paired;
        snprintf(one, sizeof one, "%s%s%d%c%d%s", !i ? "" : second ? ";" : " ", a.paired ? "[" : "",
                 pipeline_stage(&p, rank, a.chunk), "FBIW"[a.kind], (int)a.step, second ? "]" : "");
        strcat(text, one);
    }
    assert_string_equal(text, want);
}

/* Vector 49 of the research; every other order is compared in test_pipeline_comm.c. */
static void orders_are_those_of_pytorch(void **state)
{
    (void)state;
    must_list(PIPELINE_GPIPE, 1, 1, "1F0 1F1 1F2 1F3 1F4 1F5 1F6 1F7 1B0 1B1 1B2 1B3 1B4 1B5 1B6 1B7");
    must_list(PIPELINE_1F1B, 1, 0, "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7");
    must_list(PIPELINE_1F1B, 1, 3, "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7");
    must_list(PIPELINE_INTERLEAVED, 2, 0,
              "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 0B2 0B3 4B4 4B5 4B6 "
              "4B7 0B4 0B5 0B6 0B7");
    must_list(PIPELINE_INTERLEAVED, 2, 3,
              "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 7F7 "
              "7B7 3B4 3B5 3B6 3B7");
    must_list(PIPELINE_LOOPED_BFS, 2, 0,
              "0F0 0F1 0F2 0F3 0F4 0F5 0F6 0F7 4F0 4F1 4F2 4F3 4F4 4F5 4F6 4F7 4B7 4B6 4B5 4B4 4B3 4B2 4B1 4B0 0B7 0B6 0B5 "
              "0B4 0B3 0B2 0B1 0B0");
    must_list(PIPELINE_ZB1P, 1, 0,
              "0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0F6 0I3 0W3 0F7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7");
    must_list(PIPELINE_ZB1P, 1, 3,
              "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 3W5 3W6 3W7");
    must_list(PIPELINE_ZBV, 2, 0,
              "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 7I3 7W3 0F7 0I0 0W0 7F4 7I4 7W4 0I1 0W1 "
              "7F5 7I5 7W5 0I2 0W2 7F6 7I6 7W6 0I3 0W3 7F7 7I7 7W7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7");
    must_list(PIPELINE_ZBV, 2, 3,
              "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0 3F4 3I0 3W0 4F4 4I1 4W1 3F5 3I1 3W1 4F5 4I2 4W2 3F6 3I2 3W2 4F6 4I3 "
              "4W3 3F7 3I3 3W3 4F7 4I4 4W4 3I4 4I5 3I5 4I6 3I6 4I7 3I7 3W4 4W5 4W6 4W7 3W5 3W6 3W7");
    must_list(PIPELINE_DUALPIPEV, 2, 0,
              "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 [0F7;7B3] [7F4;0B0] 7B4 [7F5;0B1] 7B5 "
              "[7F6;0B2] 7B6 [7F7;0B3] 7B7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7");
    must_list(PIPELINE_DUALPIPEV, 2, 3,
              "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 3F4 4B0 [4F4;3B0] [3F5;4B1] [4F5;3B1] [3F6;4B2] [4F6;3B2] [3F7;4B3] [4F7;3B3] "
              "4B4 3B4 4B5 3B5 4I6 3I6 4I7 3I7 4W6 3W6 4W7 3W7");
}

/* Every chunk runs every micro-step once, each pass after those that it needs on its own rank. */
static void every_pass_comes_once_and_in_order(void **state)
{
    (void)state;
    for (int kind = 0; kind < NPIPELINE; kind++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int chunks = 1; chunks <= 4; chunks++)
                for (int steps = 1; steps <= 24; steps++) {
                    struct pipeline p = { (enum pipeline_kind)kind, ranks, 0, chunks, steps, 0 };
                    if (pipeline_refused(&p))
                        continue;
                    for (int r = 0; r < ranks; r++) {
                        int n = listed(p, r), forward = 0, input = 0, weight = 0;
                        char seen[4][24] = { { 0 } };
                        for (int i = 0; i < n; i++) {
                            struct pipeline_pass a = list[r][i];
                            char need[] = { 0, 1, 1, 2 }, then[] = { 1, 3, 2, 3 };
                            assert_int_equal(seen[a.chunk][a.step], need[a.kind]);
                            seen[a.chunk][a.step] = then[a.kind];
                            forward += a.kind == MICRO_FORWARD;
                            input += a.kind == MICRO_INPUT || a.kind == MICRO_BACKWARD;
                            weight += a.kind == MICRO_WEIGHT || a.kind == MICRO_BACKWARD;
                        }
                        assert_int_equal(forward, steps * chunks);
                        assert_int_equal(input, steps * chunks);
                        assert_int_equal(weight, steps * chunks);
                    }
                }
}

/* ---- in flight ---- */

static void must_fly(enum pipeline_kind kind, int ranks, int steps, int chunks, const int *want)
{
    for (int r = 0; r < ranks; r++)
        assert_int_equal(pipeline_in_flight(list[r], listed((struct pipeline){ kind, ranks, r, chunks, steps, 0 }, r), -1),
                         want[r]);
}

/* GPipe m; 1F1B min(m, p-r); interleaved min((v-1) q + 2 (p-1-r) + 1, m v); breadth first m v; of ZB1P each rank
 * as many as there are ranks, of ZBV twice as many. */
static void in_flight_is_what_the_closed_forms_say(void **state)
{
    (void)state;
    must_fly(PIPELINE_GPIPE, 4, 8, 1, (int[]){ 8, 8, 8, 8 });
    must_fly(PIPELINE_1F1B, 4, 8, 1, (int[]){ 4, 3, 2, 1 });
    must_fly(PIPELINE_1F1B, 4, 2, 1, (int[]){ 2, 2, 2, 1 });
    must_fly(PIPELINE_INTERLEAVED, 4, 8, 2, (int[]){ 11, 9, 7, 5 });
    must_fly(PIPELINE_INTERLEAVED, 4, 8, 4, (int[]){ 19, 17, 15, 13 });
    must_fly(PIPELINE_INTERLEAVED, 4, 10, 2, (int[]){ 12, 10, 8, 6 });      /* two rounds of 5 */
    must_fly(PIPELINE_INTERLEAVED, 4, 6, 2, (int[]){ 12, 11, 9, 7 });
    must_fly(PIPELINE_INTERLEAVED, 4, 4, 2, (int[]){ 8, 8, 7, 5 });
    must_fly(PIPELINE_LOOPED_BFS, 4, 8, 2, (int[]){ 16, 16, 16, 16 });
    must_fly(PIPELINE_ZB1P, 4, 8, 1, (int[]){ 4, 4, 4, 4 });
    must_fly(PIPELINE_ZB1P, 4, 8, 2, (int[]){ 8, 8, 8, 8 });
    must_fly(PIPELINE_ZBV, 4, 8, 2, (int[]){ 8, 8, 8, 8 });
    must_fly(PIPELINE_DUALPIPEV, 4, 8, 2, (int[]){ 9, 9, 9, 9 });
    must_fly(PIPELINE_DUALPIPEV, 4, 16, 2, (int[]){ 9, 9, 9, 9 });
    must_fly(PIPELINE_DUALPIPEV, 2, 8, 2, (int[]){ 5, 5 });
    must_fly(PIPELINE_DUALPIPEV, 8, 16, 2, (int[]){ 17, 17, 17, 17, 17, 17, 17, 17 });
    /* vector 46 */
    assert_int_equal(pipeline_in_flight(list[0], listed((struct pipeline){ PIPELINE_INTERLEAVED, 16, 0, 8, 64, 0 }, 0), -1), 143);
    assert_int_equal(pipeline_in_flight(list[15], listed((struct pipeline){ PIPELINE_INTERLEAVED, 16, 15, 8, 64, 0 }, 15), -1),
                     113);
    /* vector 45: warm-ups of 22, 20, ... 8, one more in flight */
    must_fly(PIPELINE_INTERLEAVED, 8, 16, 2, (int[]){ 23, 21, 19, 17, 15, 13, 11, 9 });
    must_fly(PIPELINE_INTERLEAVED, 8, 32, 4, (int[]){ 39, 37, 35, 33, 31, 29, 27, 25 });
    /* rank 0 of 4, chunks 0 and 1: 4 + 3 and 4 */
    int n = listed((struct pipeline){ PIPELINE_INTERLEAVED, 4, 0, 2, 8, 0 }, 0);
    assert_int_equal(pipeline_in_flight(list[0], n, 0), 8);
    assert_int_equal(pipeline_in_flight(list[0], n, 1), 4);
}

/* ---- a clock ---- */

/* When all ranks are done: a pass starts when its rank is free and what it needs has ended.  Transfers take
 * no time.  In half units: F and I 2, W `weight`, B both. */
static int makespan(enum pipeline_kind kind, int ranks, int steps, int chunks, int weight)
{
    static int end[2][RANKS * 8][64];       /* of forward, of the inputs' gradient; 0: not yet */
    int n[RANKS], at[RANKS] = { 0 }, free_at[RANKS] = { 0 }, stages = ranks * chunks, last = 0;
    struct pipeline p = { kind, ranks, 0, chunks, steps, 0 };
    bool moved = true;

    memset(end, 0, sizeof end);
    for (int r = 0; r < ranks; r++)
        n[r] = listed(p, r);
    while (moved) {
        moved = false;
        for (int r = 0; r < ranks; r++)
            for (; at[r] < n[r]; at[r]++, moved = true) {
                struct pipeline_pass a = list[r][at[r]];
                int s = pipeline_stage(&p, r, a.chunk), ready = 0;
                bool backward = a.kind == MICRO_BACKWARD || a.kind == MICRO_INPUT;
                if (a.kind == MICRO_FORWARD && s > 0 && !(ready = end[0][s - 1][a.step]))
                    break;
                if (backward && s + 1 < stages && !(ready = end[1][s + 1][a.step]))
                    break;
                free_at[r] = (ready > free_at[r] ? ready : free_at[r]) + (a.kind == MICRO_WEIGHT ? weight :
                             a.kind == MICRO_BACKWARD ? 2 + weight : 2);
                if (a.kind == MICRO_FORWARD && !a.paired)
                    end[0][s][a.step] = free_at[r];
                if (backward)
                    end[1][s][a.step] = free_at[r];
                if (at[r] > 0 && list[r][at[r] - 1].paired) {   /* both are sent after both */
                    struct pipeline_pass f = list[r][at[r] - 1];
                    end[0][pipeline_stage(&p, r, f.chunk)][f.step] = free_at[r];
                }
                last = free_at[r] > last ? free_at[r] : last;
            }
    }
    for (int r = 0; r < ranks; r++)
        assert_int_equal(at[r], n[r]);      /* no deadlock */
    return last;
}

/* With F = I = W the bubble is (p-1)/m of the work, (p-1)/(v m) interleaved, (p-1)(F+I-W) with ZB1P. */
static void bubbles_are_what_the_closed_forms_say(void **state)
{
    (void)state;
    /* one micro-step: each of 4 stages works a quarter of the time; GPipe with 4 micro-steps: 12 of 21, 57 % */
    assert_int_equal(makespan(PIPELINE_GPIPE, 4, 1, 1, 2), 4 * 2 * 3);
    assert_int_equal(makespan(PIPELINE_GPIPE, 4, 4, 1, 2), 2 * 21);
    /* vector 43, 1F1B; vector 44, interleaved; vector 47, ZB1P; vector 50, 10 micro-steps in 2 rounds of 5 */
    assert_int_equal(makespan(PIPELINE_GPIPE, 4, 8, 1, 2), 2 * 33);
    assert_int_equal(makespan(PIPELINE_1F1B, 4, 8, 1, 2), 2 * 33);
    assert_int_equal(makespan(PIPELINE_1F1B, 8, 8, 1, 2), 2 * 45);
    assert_int_equal(makespan(PIPELINE_1F1B, 2, 4, 1, 2), 2 * 15);
    assert_int_equal(makespan(PIPELINE_1F1B, 8, 32, 1, 2), 2 * 117);
    assert_int_equal(makespan(PIPELINE_1F1B, 16, 16, 1, 2), 2 * 93);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 4, 8, 2, 2), 2 * 57);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 4, 8, 4, 2), 2 * 105);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 4, 10, 2, 2), 2 * 69);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 4, 6, 2, 2), 2 * 45);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 8, 16, 2, 2), 2 * 117);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 8, 32, 4, 2), 2 * 405);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 16, 64, 8, 2), 2 * 1581);
    assert_int_equal(makespan(PIPELINE_LOOPED_BFS, 4, 8, 2, 2), 2 * 57);
    assert_int_equal(makespan(PIPELINE_ZB1P, 4, 8, 1, 2), 2 * 27);
    assert_int_equal(makespan(PIPELINE_ZB1P, 8, 16, 1, 2), 2 * 55);
    assert_int_equal(makespan(PIPELINE_ZB1P, 4, 8, 2, 2), 2 * 51);
    assert_int_equal(makespan(PIPELINE_ZBV, 4, 8, 2, 2), 2 * 51);
    assert_int_equal(makespan(PIPELINE_ZBV, 4, 12, 2, 2), 2 * 75);
    assert_int_equal(makespan(PIPELINE_ZBV, 8, 16, 2, 2), 2 * 103);
    /* vector 48: pairs one after the other */
    assert_int_equal(makespan(PIPELINE_DUALPIPEV, 4, 8, 2, 2), 2 * 54);
    assert_int_equal(makespan(PIPELINE_DUALPIPEV, 4, 16, 2, 2), 2 * 102);
    assert_int_equal(makespan(PIPELINE_DUALPIPEV, 2, 8, 2, 2), 2 * 50);
    assert_int_equal(makespan(PIPELINE_DUALPIPEV, 8, 16, 2, 2), 2 * 110);
    /* weight gradients at half the time */
    assert_int_equal(makespan(PIPELINE_1F1B, 4, 8, 1, 1), 55);
    assert_int_equal(makespan(PIPELINE_INTERLEAVED, 4, 8, 2, 1), 95);
    assert_int_equal(makespan(PIPELINE_ZB1P, 4, 8, 1, 1), 49);
    assert_int_equal(makespan(PIPELINE_ZBV, 4, 8, 2, 1), 86);
    assert_int_equal(makespan(PIPELINE_DUALPIPEV, 4, 8, 2, 1), 95);
}

static void what_does_not_exist_is_refused(void **state)
{
    (void)state;
    assert_non_null(pipeline_refused(&(struct pipeline){ PIPELINE_1F1B, 4, 0, 2, 8, 0 }));
    assert_false(pipeline_too_few(&(struct pipeline){ PIPELINE_1F1B, 4, 0, 2, 3, 0 }));       /* that is not its only fault */
    assert_non_null(pipeline_refused(&(struct pipeline){ PIPELINE_ZBV, 4, 0, 1, 8, 0 }));
    assert_non_null(pipeline_refused(&(struct pipeline){ PIPELINE_DUALPIPEV, 4, 0, 2, 7, 0 }));
    assert_null(pipeline_refused(&(struct pipeline){ PIPELINE_DUALPIPEV, 4, 0, 2, 8, 0 }));
    assert_non_null(pipeline_refused(&(struct pipeline){ PIPELINE_1F1B, 4, 0, 1, 3, 0 }));
    assert_non_null(pipeline_refused(&(struct pipeline){ PIPELINE_INTERLEAVED, 4, 0, 2, 9, 0 }));      /* rounds of 4 and 5 */
    assert_null(pipeline_refused(&(struct pipeline){ PIPELINE_INTERLEAVED, 4, 0, 2, 10, 0 }));
    for (int k = 0; k < NPIPELINE; k++)
        assert_true(pipeline_name((enum pipeline_kind)k)[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_those_of_pytorch),
        cmocka_unit_test(every_pass_comes_once_and_in_order),
        cmocka_unit_test(in_flight_is_what_the_closed_forms_say),
        cmocka_unit_test(bubbles_are_what_the_closed_forms_say),
        cmocka_unit_test(what_does_not_exist_is_refused),
    };
    return cmocka_run_group_tests_name("model/pipeline_order", tests, NULL, NULL);
}
