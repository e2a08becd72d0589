/* test_rendezvous.c -- what it costs that a send waits for its receive.
 *
 * Without the issuing thread's time, and with messages that take none, a step of a pipeline takes as long as its data alone
 * want: each entry begins when the one before it on its stream and what it waits for are done, and a message is there as soon
 * as its sender has come to it.  So the wait of a send (a rendezvous), and the order of messages between two ranks, delay
 * nothing in any of PyTorch's schedules; a split backward or a V is no slower for them. */
#include "tests/plan_words.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/lower/lower.h"
#include "sim/clock/step.h"

enum { STAGES = 4, TAGS = 64, MESSAGES = 512 };

struct stage {
    const struct schedules *s;
    const double *work;
    double tail[NSTREAM], *event, sent[TAGS][MESSAGES];
    int at, nsent[TAGS], nreceived[TAGS];
};

/* When what an entry waits for is done. */
static double asked(const struct stage *g, const struct op *o)
{
    double at = 0;

    for (int st = 0; st < NSTREAM; st++)
        if ((o->after >> st & 1) && g->tail[st] > at)
            at = g->tail[st];
    for (int w = 0; w < 2; w++)
        if (o->wait[w] && g->event[o->wait[w]] > at)
            at = g->event[o->wait[w]];
    return at;
}

/* False where what is received has not been sent. */
static bool does(struct stage *of, struct stage *g)
{
    const struct op *o = &g->s->ops[g->at];
    bool sends = o->kind == OP_COLL && o->u.coll.op == COLL_SEND, receives = o->kind == OP_COLL && o->u.coll.op == COLL_RECV;
    double end = asked(g, o);

    if (sends) {
        assert_in_range(g->nsent[o->u.coll.tag], 0, MESSAGES - 1);
        g->sent[o->u.coll.tag][g->nsent[o->u.coll.tag]++] = end;
    } else if (receives) {
        const struct stage *from = &of[o->u.coll.peer];
        if (g->nreceived[o->u.coll.tag] == from->nsent[o->u.coll.tag])
            return false;
        end = from->sent[o->u.coll.tag][g->nreceived[o->u.coll.tag]++];
    } else {
        end = (end > g->tail[o->stream] ? end : g->tail[o->stream]) + g->work[g->at];
        g->tail[o->stream] = end;
    }
    if (o->record)
        g->event[o->record] = end;
    g->at++;
    return true;
}

static double by_data_alone(const struct step *st)
{
    struct stage *of = room_new((size_t)st->n, sizeof *of);
    double end = 0;
    bool moved = true;

    for (int i = 0; i < st->n; i++) {
        of[i].s = st->role[i].s;
        of[i].work = st->role[i].prices.middle.work;
        of[i].at = of[i].s->begin[SCHED_STEADY];
        of[i].event = room_new((size_t)of[i].s->nevents + 1, sizeof *of[i].event);
    }
    while (moved) {
        moved = false;
        for (int i = 0; i < st->n; i++)
            while (of[i].at < of[i].s->end[SCHED_STEADY] && does(of, &of[i]))
                moved = true;
    }
    for (int i = 0; i < st->n; i++) {
        assert_int_equal(of[i].at, of[i].s->end[SCHED_STEADY]);
        for (int s = 0; s < NSTREAM; s++)
            end = of[i].tail[s] > end ? of[i].tail[s] : end;
        free(of[i].event);
    }
    free(of);
    return end;
}

static void without_messages(struct step *st)
{
    for (int r = 0; r < st->n; r++)
        for (int i = st->role[r].s->begin[SCHED_STEADY]; i < st->role[r].s->end[SCHED_STEADY]; i++) {
            const struct op *o = &st->role[r].s->ops[i];
            if (o->kind == OP_COLL && coll_is_message((enum coll_op)o->u.coll.op))
                ((double *)st->role[r].prices.middle.work)[i] = 0;
        }
}

static void check(const char *schedule, int steps)
{
    struct schedules whole[STAGES] = { { 0 } };         /* entry by entry, as ranks run them */
    const struct schedules *of[EVALUATION_STAGES];
    struct timeline lines[STAGES];
    struct coll_memo memo = { 0 };
    struct evaluation e;
    struct step st;
    double makespan;

    struct plan plan = plan_in_words("{ 'dpx_plan': 1, 'model': 'llama-3.1-8b', 'cluster': '8xh100', 'seq': 4096, 'micro_batch': 1,"
             " 'accumulation': %d, 'strategy': 'fsdp', 'dialect': 'torch', 'kernels': 'torch-sdpa', 'precision': 'bf16',"
             " 'recompute': 'none', 'parallel': { 'tensor': 2, 'pipeline': %d, 'pipeline_schedule': '%s' } }", steps, STAGES, schedule);
    assert_int_equal(evaluate_allocated(&plan, &e), 0);
    struct cost_cache *cache = cost_cache_new(&plan);
    int n = evaluation_roles(&e, of);
    for (int i = 0; i < n; i++) {
        assert_int_equal(lower(&plan, of[i]->rank, &whole[i]), 0);
        of[i] = &whole[i];
    }
    assert_int_equal(step_open(&plan, of, n, cache, &memo, &st), 0);
    without_messages(&st);
    assert_int_equal(step_run(&st, &(struct step_view){ .slow = 0, .issue = 0 }, lines, NULL, &makespan), 0);
    assert_close(makespan, by_data_alone(&st), 1e-12);
    step_close(&st);
    cost_cache_free(cache);
    for (int i = 0; i < n; i++)
        schedules_free(&whole[i]);
    evaluation_free(&e);
}

static void a_rendezvous_delays_no_schedule(void **state)
{
    static const char *const schedules[] = { "gpipe", "1f1b", "interleaved", "looped-bfs", "zb1p", "zbv", "dualpipev" };

    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        check(schedules[i], 8);
        check(schedules[i], 16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rendezvous_delays_no_schedule),
    };
    return cmocka_run_group_tests_name("sim/rendezvous", tests, NULL, NULL);
}
