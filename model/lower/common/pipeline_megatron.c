/* pipeline_megatron.c -- passes and messages of Megatron-LM's two pipelines.
 *
 * Source: megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving() and
 * ..._with_interleaving(), and p2p_communication.py, of megatron-core 0.16.1, with deallocate_pipeline_outputs and without
 * overlap_p2p_comm_warmup_flush, their defaults.  An exchange is issued as one batch and waited for; with overlap_p2p_comm each
 * message is issued by itself, ranks of even and of odd number in another order, and waited for where it is needed. */
#include "model/lower/common/pipeline_comm.h"

#include <stdlib.h>

#include "base/room.h"

enum { NONE = -1 };

struct loop {
    const struct pipeline *p;
    struct pipeline_acts *l;
    int  rank;
    bool overlaps;
    int *received[2];           /* by chunk, messages so far: activations, gradients */
    struct pipeline_acts due[2];            /* receives, and how many of them were waited for */
    int  came[2];
    struct pipeline_act sent[2];            /* the last send that is under way; step NONE: none is */
};

static bool is_first(const struct loop *o) { return o->rank == 0; }
static bool is_last(const struct loop *o)  { return o->rank == o->p->ranks - 1; }

static void run(struct loop *o, enum pipeline_verb v, struct turn t) { pipeline_acts_add(o->l, v, t.chunk, t.step, false); }

static enum pipeline_verb wait_of(int verb) { return (enum pipeline_verb)(verb + PIPE_WAIT_SEND_F - PIPE_SEND_F); }

/* ---- exchanges ---- */

/* What goes and comes in one call: chunks; NONE: nothing.  Steps of what is sent; what is received is the next of its chunk. */
struct exchange { struct turn send_f, send_b; int recv_f, recv_b; };

static const struct turn nothing = { NONE, NONE };

static int collect(struct loop *o, const struct exchange *x, struct pipeline_act act[4])
{
    /* One by one odd ranks receive first; a batch is send_prev, recv_prev, send_next, recv_next on all. */
    static const enum pipeline_verb order[3][4] = { { PIPE_SEND_F, PIPE_RECV_F, PIPE_SEND_B, PIPE_RECV_B },
                                                    { PIPE_RECV_F, PIPE_SEND_F, PIPE_RECV_B, PIPE_SEND_B },
                                                    { PIPE_SEND_B, PIPE_RECV_F, PIPE_SEND_F, PIPE_RECV_B } };
    int n = 0;

    for (int i = 0; i < 4; i++) {
        enum pipeline_verb v = order[o->overlaps ? o->rank % 2 : 2][i];
        bool gradient = v == PIPE_SEND_B || v == PIPE_RECV_B;
        struct turn t = v == PIPE_SEND_F ? x->send_f : v == PIPE_SEND_B ? x->send_b : (struct turn){ gradient ? x->recv_b : x->recv_f, 0 };
        if (t.chunk == NONE)
            continue;
        if (v == PIPE_RECV_F || v == PIPE_RECV_B)
            t.step = o->received[gradient][t.chunk]++;
        act[n++] = (struct pipeline_act){ .verb = (uint8_t)v, .chunk = (int16_t)t.chunk, .step = t.step };
    }
    return n;
}

/* Issued and waited for: a batch, or with overlap_p2p_comm one by one. */
static void exchange(struct loop *o, struct exchange x)
{
    struct pipeline_act a[4];
    int n = collect(o, &x, a);

    for (int i = 0; i < n; i++)
        pipeline_acts_add(o->l, (enum pipeline_verb)a[i].verb, a[i].chunk, a[i].step, !o->overlaps && i + 1 < n);
    for (int i = 0; i < n; i++)
        pipeline_acts_add(o->l, wait_of(a[i].verb), a[i].chunk, a[i].step, !o->overlaps && i + 1 < n);
}

static void await_sent(struct loop *o, bool gradient)
{
    struct pipeline_act *a = &o->sent[gradient];

    if (a->step != NONE)
        pipeline_acts_add(o->l, wait_of(a->verb), a->chunk, a->step, false);
    a->step = NONE;
}

/* Issued alone; the send before it is waited for. */
static void begin(struct loop *o, struct exchange x)
{
    struct pipeline_act a[4];
    int n = collect(o, &x, a);
    bool gradient = n > 0 && (a[0].verb == PIPE_SEND_B || a[0].verb == PIPE_RECV_B);

    for (int i = 0; i < n; i++)
        pipeline_acts_add(o->l, (enum pipeline_verb)a[i].verb, a[i].chunk, a[i].step, false);
    if (n > 0)
        await_sent(o, gradient);
    for (int i = 0; i < n; i++)
        if (a[i].verb == PIPE_SEND_F || a[i].verb == PIPE_SEND_B)
            o->sent[gradient] = a[i];
        else
            pipeline_acts_add(&o->due[gradient], (enum pipeline_verb)a[i].verb, a[i].chunk, a[i].step, false);
}

/* The oldest receive that is under way. */
static void await_received(struct loop *o, bool gradient)
{
    const struct pipeline_act *a;

    if (o->came[gradient] == o->due[gradient].n)
        return;
    a = &o->due[gradient].act[o->came[gradient]];
    pipeline_acts_add(o->l, wait_of(a->verb), a->chunk, a->step, false);
    o->came[gradient]++;
}

/* ---- one stage a rank ---- */

static void receive(struct loop *o, bool gradient)
{
    bool there = gradient ? is_last(o) : is_first(o);

    if (!there)
        exchange(o, (struct exchange){ nothing, nothing, gradient ? NONE : 0, gradient ? 0 : NONE });
}

/* A forward's result, or a gradient; and what is received from the same neighbour with it. */
static void send(struct loop *o, bool gradient, int step, bool receives)
{
    struct turn t = { 0, step };

    if (gradient ? is_first(o) : is_last(o))
        return;
    exchange(o, gradient ? (struct exchange){ nothing, t, receives ? 0 : NONE, NONE } : (struct exchange){ t, nothing, NONE, receives ? 0 : NONE });
}

static void without_interleaving(struct loop *o)
{
    int m = o->p->steps, behind = o->p->ranks - o->rank - 1, warm_up = behind < m ? behind : m, left = m - warm_up;

    for (int i = 0; i < warm_up; i++) {
        receive(o, false);
        run(o, PIPE_FORWARD, (struct turn){ 0, i });
        send(o, false, i, false);
    }
    if (left > 0)
        receive(o, false);
    for (int i = 0; i < left; i++) {
        run(o, PIPE_FORWARD, (struct turn){ 0, warm_up + i });
        send(o, false, warm_up + i, true);
        run(o, PIPE_BACKWARD, (struct turn){ 0, i });
        send(o, true, i, i + 1 < left);
    }
    for (int i = left; i < m; i++) {
        receive(o, true);
        run(o, PIPE_BACKWARD, (struct turn){ 0, i });
        send(o, true, i, false);
    }
}

/* ---- several stages a rank ---- */

static int most(const struct loop *o) { return o->p->steps * o->p->chunks; }

/* recv_tensor_from_previous_stage(): the chunk for which a message comes behind turn k; NONE: none comes. */
static int comes(const struct loop *o, int k, bool backward)
{
    int last = backward ? 0 : o->p->chunks - 1, chunk;
    bool leads = backward ? is_last(o) : is_first(o);

    if (k == most(o) - 1)
        return NONE;
    if (!leads)
        return pipeline_turn(o->p, k + 1, backward).chunk;
    if (k < o->p->ranks - 1)
        return NONE;                        /* the rank at the other end has not made any yet */
    chunk = pipeline_turn(o->p, k - (o->p->ranks - 1), backward).chunk;
    return chunk == last ? NONE : backward ? chunk - 1 : chunk + 1;
}

static struct turn sends(const struct loop *o, struct turn t, bool backward)
{
    bool end = backward ? is_first(o) && t.chunk == 0 : is_last(o) && t.chunk == o->p->chunks - 1;

    return end ? nothing : t;
}

static bool needs(const struct loop *o, struct turn t, bool backward)
{
    return !(backward ? is_last(o) && t.chunk == o->p->chunks - 1 : is_first(o) && t.chunk == 0);
}

static void warm_up(struct loop *o, int n, bool all)
{
    int last_chunk = is_last(o) ? NONE : o->p->chunks - 1;

    if (!is_first(o))
        exchange(o, (struct exchange){ nothing, nothing, 0, NONE });
    for (int k = 0; k < n; k++) {
        struct turn t = pipeline_turn(o->p, k, false);
        bool opens = k == n - 1 && !all;            /* the first gradient comes next */
        run(o, PIPE_FORWARD, t);
        exchange(o, (struct exchange){ sends(o, t, false), nothing, comes(o, k, false), opens && !o->overlaps ? last_chunk : NONE });
        if (opens && o->overlaps)
            begin(o, (struct exchange){ nothing, nothing, NONE, last_chunk });
    }
}

static void steady(struct loop *o, int warm)
{
    int n = most(o) - warm;

    for (int k = 0; k < n; k++) {
        struct turn f = pipeline_turn(o->p, warm + k, false), b = pipeline_turn(o->p, k, true);
        int next_f = k == n - 1 ? NONE : comes(o, warm + k, false), next_b = comes(o, k, true);
        if (!o->overlaps) {
            run(o, PIPE_FORWARD, f);
            run(o, PIPE_BACKWARD, b);
            exchange(o, (struct exchange){ sends(o, f, false), sends(o, b, true), next_f, next_b });
            continue;
        }
        if (needs(o, f, false))
            await_received(o, false);
        run(o, PIPE_FORWARD, f);
        begin(o, (struct exchange){ sends(o, f, false), nothing, next_f, NONE });
        if (needs(o, b, true))
            await_received(o, true);
        run(o, PIPE_BACKWARD, b);
        begin(o, (struct exchange){ nothing, sends(o, b, true), NONE, next_b });
    }
    await_sent(o, false);
}

static void cool_down(struct loop *o, int from, bool all)
{
    if (all && !is_last(o))
        exchange(o, (struct exchange){ nothing, nothing, NONE, o->p->chunks - 1 });
    for (int k = from; k < most(o); k++) {
        struct turn t = pipeline_turn(o->p, k, true);
        if (needs(o, t, true) && k != 0)
            await_received(o, true);
        run(o, PIPE_BACKWARD, t);
        exchange(o, (struct exchange){ nothing, sends(o, t, true), NONE, comes(o, k, true) });
    }
    await_sent(o, true);
}

static void with_interleaving(struct loop *o)
{
    struct pipeline p = *o->p;

    p.rank = o->rank;
    int warm = pipeline_warm_up(&p);
    bool all = warm == most(o);
    warm_up(o, warm, all);
    steady(o, warm);
    cool_down(o, most(o) - warm, all);
}

void pipeline_megatron(const struct pipeline *p, int rank, bool overlaps, struct pipeline_acts *out)
{
    struct loop o = { .p = p, .l = out, .rank = rank, .overlaps = overlaps, .sent = { { .step = NONE }, { .step = NONE } } };

    for (int i = 0; i < 2; i++)
        o.received[i] = room_new((size_t)p->chunks, sizeof *o.received[i]);
    if (p->chunks == 1)
        without_interleaving(&o);
    else
        with_interleaving(&o);
    for (int i = 0; i < 2; i++) {
        free(o.received[i]);
        free(o.due[i].act);
    }
}
