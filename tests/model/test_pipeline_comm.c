/* What each rank of a pipeline does, against what torch.distributed.pipelining (PyTorch 2.15) does for every
 * schedule, up to 8 ranks, 4 stages a rank and 32 micro-batches: tests/golden/grid/record_pipeline_orders.py. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/lower/common/pipeline_comm.h"

#define RECORDED "tests/golden/grid/pipeline_orders.csv"

static const char *const names[NPIPELINE] = { "gpipe", "1f1b", "interleaved", "looped-bfs", "zb1p", "zbv", "dualpipev" };

/* Text that grows; FNV-1a, 32 bits. */
struct text { char *at; size_t n, room; };

static void add(struct text *t, const char *more)
{
    size_t n = strlen(more);

    if (t->n + n + 1 > t->room) {
        t->room = 2 * (t->n + n + 64);
        t->at = realloc(t->at, t->room);
    }
    memcpy(t->at + t->n, more, n + 1);
    t->n += n;
}

static uint32_t digest(const struct text *t)
{
    uint32_t h = 0x811c9dc5u;

    for (size_t i = 0; i < t->n; i++)
        h = (h ^ (unsigned char)t->at[i]) * 0x01000193u;
    return h;
}

/* PyTorch's word for an act of a stage. */
static void word(struct text *t, int stage, const char *verb, int step)
{
    char one[48];

    if (step < 0)
        snprintf(one, sizeof one, "%d%s", stage, verb);
    else
        snprintf(one, sizeof one, "%d%s%d", stage, verb, step);
    add(t, one);
}

static bool is_wait(int verb) { return verb >= PIPE_WAIT_SEND_F && verb <= PIPE_WAIT_RECV_B; }
static bool is_message(int verb) { return verb >= PIPE_SEND_F && verb <= PIPE_RECV_B; }

/* A multi-stage schedule's list: waits of receives have no action of their own. */
static void runtime_line(struct text *t, const struct pipeline *p, int rank, const struct pipeline_acts *l)
{
    bool first = true, paired = false;

    for (int i = 0; i < l->n; i++) {
        struct pipeline_act a = l->act[i];
        if (a.verb == PIPE_WAIT_RECV_F || a.verb == PIPE_WAIT_RECV_B)
            continue;
        add(t, first ? "" : paired ? ";" : " ");
        first = false;
        if (a.with)
            add(t, "(");
        word(t, pipeline_stage(p, rank, a.chunk), pipeline_verb_name((enum pipeline_verb)a.verb), a.step);
        if (paired)
            add(t, ")OVERLAP_F_B");
        paired = a.with;
    }
    add(t, "\n");
}

/* What ScheduleGPipe's and Schedule1F1B's loops call, and 2.9's lock step: batches in braces; a reduction is one call. */
static void loop_line(struct text *t, const struct pipeline *p, int rank, const struct pipeline_acts *l)
{
    bool first = true, inside = false;

    for (int i = 0; i < l->n; i++) {
        struct pipeline_act a = l->act[i];
        if (a.verb == PIPE_WAIT_REDUCE)
            continue;
        add(t, first ? "" : inside ? "," : " ");
        first = false;
        if (!inside && is_wait(a.verb))
            add(t, "wait");
        if (!inside && (is_wait(a.verb) || is_message(a.verb)))
            add(t, "{");
        word(t, pipeline_stage(p, rank, a.chunk), pipeline_verb_name((enum pipeline_verb)(is_wait(a.verb) ? a.verb - PIPE_WAIT_SEND_F + PIPE_SEND_F
                                                                              : a.verb)), a.step);
        if (!a.with && (is_wait(a.verb) || is_message(a.verb)))
            add(t, "}");
        inside = a.with;
    }
    add(t, "\n");
}

static bool own_loop(const struct pipeline *p) { return p->kind == PIPELINE_GPIPE || p->kind == PIPELINE_1F1B; }

static struct text comms(const struct pipeline *p)
{
    struct pipeline_acts *of = pipeline_acts(p, own_loop(p) ? PIPE_OWN_LOOP : PIPE_RUNTIME);
    struct text t = { 0 };

    for (int r = 0; r < p->ranks; r++) {
        if (own_loop(p))
            loop_line(&t, p, r, &of[r]);
        else
            runtime_line(&t, p, r, &of[r]);
    }
    pipeline_acts_free(of, p);
    return t;
}

static struct text order(const struct pipeline *p)
{
    struct pipeline_pass *pass = malloc((pipeline_room(p) + 1) * sizeof *pass);
    struct text t = { 0 };

    for (int r = 0; r < p->ranks; r++) {
        struct pipeline of = *p;
        of.rank = r;
        for (int i = 0, n = pipeline_order(&of, pass); i < n; i++) {
            bool second = i > 0 && pass[i - 1].paired;
            add(&t, i == 0 ? "" : second ? ";" : " ");
            add(&t, pass[i].paired ? "(" : "");
            word(&t, pipeline_stage(p, r, pass[i].chunk), pipeline_verb_name((enum pipeline_verb)pass[i].kind), pass[i].step);
            add(&t, second ? ")OVERLAP_F_B" : "");
        }
        add(&t, "\n");
    }
    free(pass);
    return t;
}

static enum pipeline_kind kind_of(const char *name)
{
    for (int k = 0; k < NPIPELINE; k++)
        if (!strcmp(name, names[k]))
            return (enum pipeline_kind)k;
    fail_msg("%s", name);
    return NPIPELINE;
}

/* A line of a recording: the order or a word for it, then messages (empty where there are none).  False at the end. */
struct recording { char line[128], what[32], wire[32]; struct pipeline p; };

static bool next_recorded(FILE *f, struct recording *to)
{
    char kind[32];

    *to = (struct recording){ .wire = "" };
    if (!fgets(to->line, sizeof to->line, f))
        return false;
    assert_true(sscanf(to->line, "%31[^,],%d,%d,%d,%31[^,],%31s", kind, &to->p.ranks, &to->p.chunks, &to->p.steps, to->what, to->wire) >= 5);
    to->p.kind = kind_of(kind);
    return true;
}

static FILE *open_recorded(const char *path)
{
    char head[128];
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_non_null(fgets(head, sizeof head, f));
    return f;
}

/* 3,260 that PyTorch accepts, 3,908 that it refuses. */
static void every_order_and_every_message_is_pytorchs(void **state)
{
    (void)state;
    FILE *f = open_recorded(RECORDED);
    struct recording of;
    int accepted = 0, refused = 0;

    while (next_recorded(f, &of)) {
        if (!strncmp(of.what, "refused", 7)) {
            if (!pipeline_refused(&of.p))
                fail_msg("PyTorch refuses %s", of.line);
            refused++;
            continue;
        }
        if (pipeline_refused(&of.p))
            fail_msg("PyTorch accepts %s", of.line);
        struct text o = order(&of.p), c = comms(&of.p);
        if (digest(&o) != strtoul(of.what, NULL, 16))
            fail_msg("%snot this order:\n%s", of.line, o.at);
        if (digest(&c) != strtoul(of.wire, NULL, 16))
            fail_msg("%snot these messages:\n%s", of.line, c.at);
        free(o.at);
        free(c.at);
        accepted++;
    }
    fclose(f);
    assert_int_equal(accepted + refused, 7 * 8 * 4 * 32);
    assert_int_equal(refused, 3908);
}

/* 2.9's lock step, but for the reductions, which are in its last backward: what it runs too early is refused, and 25 of 1,243 others. */
static void in_lock_step_every_message_is_torch_2_9s(void **state)
{
    (void)state;
    FILE *f = open_recorded("tests/golden/grid/lock_step.csv");
    struct recording line;
    int equal = 0, left_out = 0;

    while (next_recorded(f, &line)) {
        const struct pipeline *p = &line.p;
        if (!strncmp(line.what, "refused", 7)) {
            assert_non_null(pipeline_refused(p));
            continue;
        }
        bool early = !strcmp(line.what, "early");
        if (pipeline_refused_in_step(p)) {
            left_out += !early;
            continue;
        }
        if (early)
            fail_msg("torch 2.9 runs a pass before its input is there: %s", line.line);
        struct pipeline_acts *of = pipeline_acts(p, PIPE_LOCK_STEP_29);
        struct text t = { 0 };
        for (int r = 0; r < p->ranks; r++) {
            int n = 0;
            for (int i = 0; i < of[r].n; i++)
                if (of[r].act[i].verb != PIPE_REDUCE)
                    of[r].act[n++] = of[r].act[i];
            of[r].n = n;
            loop_line(&t, p, r, &of[r]);
        }
        if (digest(&t) != strtoul(line.wire, NULL, 16))
            fail_msg("%snot these messages:\n%s", line.line, t.at);
        free(t.at);
        pipeline_acts_free(of, p);
        equal++;
    }
    fclose(f);
    assert_int_equal(equal + left_out, 431 + 812);
    assert_int_equal(left_out, 25);
}

static void must_do(struct pipeline p, int rank, const char *want)
{
    struct text all = comms(&p);
    char *line = all.at;

    for (int r = 0; r < rank; r++)
        line = strchr(line, '\n') + 1;
    *strchr(line, '\n') = '\0';
    assert_string_equal(line, want);
    free(all.at);
}

/* Vector 53 of the research: interleaved, 2 ranks, 4 micro-batches, 2 stages a rank: PyTorch's own listing. */
static void interleaved_of_two_ranks(void **state)
{
    (void)state;
    must_do((struct pipeline){ PIPELINE_INTERLEAVED, 2, 0, 2, 4, 0 }, 0,
            "0UNSHARD 2UNSHARD 0F0 0SEND_F0 2RECV_F0 0F1 0SEND_F1 2RECV_F1 2F0 2SEND_F0 2F1 2SEND_F1 2RECV_B0 0F2 0SEND_F2 "
            "2B0 2WAIT_SEND_F0 2SEND_B0 2RECV_B1 0F3 0SEND_F3 2RECV_F2 2B1 2WAIT_SEND_F1 2SEND_B1 0RECV_B0 2F2 2SEND_F2 "
            "2RECV_F3 0B0 0WAIT_SEND_F0 0RECV_B1 2F3 2SEND_F3 0B1 0WAIT_SEND_F1 2RECV_B2 2B2 2WAIT_SEND_F2 2SEND_B2 2RECV_B3 "
            "2B3 2WAIT_SEND_F3 2SEND_B3 2REDUCE_GRAD 2WAIT_REDUCE_GRAD 2RESHARD 0RECV_B2 0B2 0WAIT_SEND_F2 0RECV_B3 0B3 "
            "0WAIT_SEND_F3 0REDUCE_GRAD 0WAIT_REDUCE_GRAD 0RESHARD 2WAIT_SEND_B0 2WAIT_SEND_B1 2WAIT_SEND_B2 2WAIT_SEND_B3");
}

/* Of 1F1B a steady send shares a batch with a receive of the other direction. */
static void batches_of_1f1b(void **state)
{
    (void)state;
    must_do((struct pipeline){ PIPELINE_1F1B, 3, 0, 1, 4, 0 }, 1,
            "{1RECV_F0} wait{1RECV_F0} 1F0 {1SEND_F0} {1RECV_F1} wait{1RECV_F1} 1F1 wait{1SEND_F0} {1SEND_F1,1RECV_B0} "
            "wait{1SEND_F1,1RECV_B0} 1B0 {1SEND_B0,1RECV_F2} wait{1SEND_B0,1RECV_F2} 1F2 {1SEND_F2,1RECV_B1} "
            "wait{1SEND_F2,1RECV_B1} 1B1 {1SEND_B1,1RECV_F3} wait{1SEND_B1,1RECV_F3} 1F3 {1SEND_F3,1RECV_B2} "
            "wait{1SEND_F3,1RECV_B2} 1B2 {1SEND_B2} {1RECV_B3} wait{1RECV_B3} 1B3 wait{1SEND_B2} {1SEND_B3} wait{1SEND_B3} "
            "1REDUCE_GRAD");
}

/* ---- what holds in every one ---- */

/* Every pipeline that is not refused, of up to 8 ranks, 4 stages a rank and 24 micro-steps, which torch's recorded ones go on like. */
static void each_pipeline(void (*f)(const struct pipeline *p))
{
    for (enum pipeline_kind kind = 0; kind < NPIPELINE; kind++)
        for (int ranks = 2; ranks <= 8; ranks++)
            for (int chunks = 1; chunks <= 4; chunks++)
                for (int steps = 1; steps <= 24; steps++) {
                    struct pipeline p = { kind, ranks, 0, chunks, steps, 0 };
                    if (!pipeline_refused(&p))
                        f(&p);
                }
}

/* The next message from `a` to `b` at or behind act i of one of the two, as sent or as received; -1: none. */
static int next_message(const struct pipeline *p, const struct pipeline_acts *of, int i, int a, int b, bool sent)
{
    for (; i < of->n; i++) {
        const struct pipeline_act *m = &of->act[i];
        bool up = m->verb == PIPE_SEND_F || m->verb == PIPE_RECV_B, sends = m->verb == PIPE_SEND_F || m->verb == PIPE_SEND_B;
        if (!is_message(m->verb) || sends != sent)
            continue;
        int stage = pipeline_stage(p, sent ? a : b, m->chunk) + (up ? 1 : -1);
        if (pipeline_rank(p, stage) == (sent ? b : a))
            return i;
    }
    return -1;
}

/* What it is: of which two stages, which direction, which micro-step. */
static int64_t message_of(const struct pipeline *p, int rank, const struct pipeline_act *m)
{
    bool up = m->verb == PIPE_SEND_F || m->verb == PIPE_RECV_B, back = m->verb == PIPE_SEND_B || m->verb == PIPE_RECV_B;
    int stage = pipeline_stage(p, rank, m->chunk), lower = up ? stage : stage - 1;

    return ((int64_t)(2 * lower + back) << 32) | m->step;
}

static void check_order_of_messages(const struct pipeline *p, enum pipeline_code code)
{
    struct pipeline_acts *of = pipeline_acts(p, code);

    for (int a = 0; a < p->ranks; a++)
        for (int b = 0; b < p->ranks; b++) {
            int i = -1, j = -1;
            if (a == b)
                continue;
            do {
                i = next_message(p, &of[a], i + 1, a, b, true);
                j = next_message(p, &of[b], j + 1, a, b, false);
                if ((i < 0) != (j < 0) || (i >= 0 && message_of(p, a, &of[a].act[i]) != message_of(p, b, &of[b].act[j])))
                    fail_msg("%s, %d ranks, %d chunks, %d steps: from %d to %d", names[p->kind], p->ranks, p->chunks, p->steps, a, b);
            } while (i >= 0);
        }
    pipeline_acts_free(of, p);
}

static void check_both_codes(const struct pipeline *p)
{
    check_order_of_messages(p, PIPE_RUNTIME);
    if (own_loop(p))
        check_order_of_messages(p, PIPE_OWN_LOOP);
    if ((p->kind == PIPELINE_INTERLEAVED || p->kind == PIPELINE_LOOPED_BFS) && !pipeline_refused_in_step(p))
        check_order_of_messages(p, PIPE_LOCK_STEP_29);
}

/* So that NCCL, whose messages have no tags, can tell them apart. */
static void a_rank_receives_in_the_order_in_which_the_other_sends(void **state)
{
    (void)state;
    each_pipeline(check_both_codes);
}

/* Of gradients of weights: of each stage from the first micro-step to the last, but for looped BFS the other way round. */
static void check_order_of_gradients(const struct pipeline *p)
{
    struct pipeline_pass *pass = malloc((pipeline_room(p) + 1) * sizeof *pass);

    for (int r = 0; r < p->ranks; r++) {
        struct pipeline of = *p;
        int next[4] = { 0 };
        of.rank = r;
        for (int i = 0, n = pipeline_order(&of, pass); i < n; i++) {
            bool weights = pass[i].kind == MICRO_BACKWARD || pass[i].kind == MICRO_WEIGHT;
            int expected = p->kind == PIPELINE_LOOPED_BFS ? p->steps - 1 - next[pass[i].chunk] : next[pass[i].chunk];
            if (weights && pass[i].step != expected)
                fail_msg("%s, %d ranks, %d chunks, %d steps: rank %d, step %d", names[p->kind], p->ranks, p->chunks, p->steps, r, pass[i].step);
            next[pass[i].chunk] += weights;
        }
    }
    free(pass);
}

/* What "deterministic" rests on: sums in the order of micro-steps, as without a pipeline. */
static void gradients_are_added_up_in_the_order_of_micro_steps(void **state)
{
    (void)state;
    each_pipeline(check_order_of_gradients);
}

/* The bottom of a V: rank 3's two stages hand tensors to each other. */
static void the_bottom_of_a_v_sends_nothing(void **state)
{
    (void)state;
    struct pipeline p = { PIPELINE_ZBV, 4, 0, 2, 8, 0 };
    struct pipeline_acts *of = pipeline_acts(&p, PIPE_RUNTIME);

    for (int i = 0; i < of[3].n; i++) {
        struct pipeline_act a = of[3].act[i];
        if (is_message(a.verb))     /* stage 3 receives forward and sends backward, stage 4 the opposite */
            assert_int_equal(a.verb == PIPE_SEND_F || a.verb == PIPE_RECV_B, a.chunk == 1);
    }
    pipeline_acts_free(of, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_and_every_message_is_pytorchs),
        cmocka_unit_test(in_lock_step_every_message_is_torch_2_9s),
        cmocka_unit_test(interleaved_of_two_ranks),
        cmocka_unit_test(batches_of_1f1b),
        cmocka_unit_test(the_bottom_of_a_v_sends_nothing),
        cmocka_unit_test(a_rank_receives_in_the_order_in_which_the_other_sends),
        cmocka_unit_test(gradients_are_added_up_in_the_order_of_micro_steps),
    };
    return cmocka_run_group_tests_name("model/pipeline_comm", tests, NULL, NULL);
}
