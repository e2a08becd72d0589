/* pipeline_comm.c -- the lists of pipeline_comm.h. */
#include "model/lower/common/pipeline_comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* _PipelineScheduleRuntime's default max_active_stages: stages whose parameters are gathered at a time. */
enum { ACTIVE_STAGES = 3 };

void pipeline_acts_add(struct pipeline_acts *l, enum pipeline_verb verb, int chunk, int step, bool with)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->act = realloc(l->act, (size_t)l->room * sizeof *l->act);
        if (!l->act)
            abort();
    }
    l->act[l->n++] = (struct pipeline_act){ (uint8_t)verb, with, (int16_t)chunk, step };
}

static void put(struct pipeline_acts *l, enum pipeline_verb verb, int chunk, int step, bool with)
{
    pipeline_acts_add(l, verb, chunk, step, with);
}

static bool is_backward(int verb) { return verb == PIPE_BACKWARD || verb == PIPE_INPUT; }

/* ---- a rank by itself: _add_unshard_reshard(), _add_reduce_grad() ---- */

/* Of the rank's `all` chunks the next ACTIVE_STAGES different ones from act i on, a pair counted as one; how many. */
static int next_chunks(const struct pipeline_acts *order, int i, int all, int chunks[ACTIVE_STAGES + 1])
{
    int n = 0;

    for (; i < order->n && n < all; i++) {
        bool seen = false;
        for (int k = 0; k < n; k++)
            seen |= chunks[k] == order->act[i].chunk;
        if (!seen)
            chunks[n++] = order->act[i].chunk;
        if (!order->act[i].with && n >= ACTIVE_STAGES)
            break;
    }
    return n;
}

static bool holds(const int *chunks, int n, int chunk)
{
    for (int i = 0; i < n; i++)
        if (chunks[i] == chunk)
            return true;
    return false;
}

struct gathered { int chunk[ACTIVE_STAGES + 2], n; };

/* What is not among the next goes, what is and is not there yet comes. */
static void gather(struct pipeline_acts *l, struct gathered *g, const struct pipeline_acts *order, int i, int chunks)
{
    int next[ACTIVE_STAGES + 1], n = next_chunks(order, i, chunks, next), kept = 0;

    for (int k = 0; k < g->n; k++) {
        if (holds(next, n, g->chunk[k]))
            g->chunk[kept++] = g->chunk[k];
        else
            put(l, PIPE_RESHARD, g->chunk[k], -1, false);
    }
    g->n = kept;
    for (int k = 0; k < n; k++)
        if (!holds(g->chunk, g->n, next[k])) {
            put(l, PIPE_UNSHARD, next[k], -1, false);
            g->chunk[g->n++] = next[k];
        }
}

static void reduce(struct pipeline_acts *l, int chunk)
{
    put(l, PIPE_REDUCE, chunk, -1, false);
    put(l, PIPE_WAIT_REDUCE, chunk, -1, false);
}

static void with_gathers(const struct pipeline *p, const struct pipeline_acts *order, struct pipeline_acts *l)
{
    int *left = malloc((size_t)p->chunks * sizeof *left);
    struct gathered g = { .n = 0 };

    if (!left)
        abort();
    for (int c = 0; c < p->chunks; c++)
        left[c] = p->steps;
    for (int i = 0; i < order->n; i++) {
        struct pipeline_act a = order->act[i];
        if (i == 0 || !order->act[i - 1].with)
            gather(l, &g, order, i, p->chunks);
        put(l, (enum pipeline_verb)a.verb, a.chunk, a.step, a.with);
        if ((a.verb == PIPE_BACKWARD || a.verb == PIPE_WEIGHT) && --left[a.chunk] == 0)
            reduce(l, a.chunk);
    }
    for (int k = 0; k < g.n; k++)
        put(l, PIPE_RESHARD, g.chunk[k], -1, false);
    free(left);
}

/* ---- all ranks: _add_send_recv(), _add_wait_send() ---- */

enum { HAS_F = 1, HAS_B = 2, RAN_F = 4, RAN_B = 8, SENT_F = 16 };

struct network {
    const struct pipeline *p;
    const struct pipeline_acts *todo;   /* of each rank */
    struct pipeline_acts *out;
    int *at;                            /* the next of todo[] */
    uint8_t *is;                        /* by stage and step: HAS_ and RAN_ */
};

static int nstages(const struct pipeline *p) { return p->ranks * p->chunks; }

static uint8_t *state(const struct network *w, int stage, int step) { return &w->is[stage * w->p->steps + step]; }

/* The stage at the other end of the message that a pass needs, or sends; -1: there is none. */
static int needs_from(const struct network *w, int verb, int stage)
{
    int from = verb == PIPE_FORWARD ? stage - 1 : is_backward(verb) ? stage + 1 : -1;

    return from >= 0 && from < nstages(w->p) ? from : -1;
}

static int sends_to(const struct network *w, int verb, int stage)
{
    int to = verb == PIPE_FORWARD ? stage + 1 : is_backward(verb) ? stage - 1 : -1;

    return to >= 0 && to < nstages(w->p) && pipeline_rank(w->p, to) != pipeline_rank(w->p, stage) ? to : -1;
}

static bool ready(const struct network *w, int rank, const struct pipeline_act *a)
{
    int stage = pipeline_stage(w->p, rank, a->chunk), from = a->verb <= PIPE_WEIGHT ? needs_from(w, a->verb, stage) : -1;

    if (from < 0)
        return true;
    if (pipeline_rank(w->p, from) != rank)
        return *state(w, stage, a->step) & (a->verb == PIPE_FORWARD ? HAS_F : HAS_B);
    return *state(w, from, a->step) & (a->verb == PIPE_FORWARD ? RAN_F : RAN_B);
}

/* A pass, the compute stream's wait for what it receives before it. */
static void run(struct network *w, int rank, const struct pipeline_act *a)
{
    int stage = pipeline_stage(w->p, rank, a->chunk);

    if (a->verb <= PIPE_WEIGHT) {
        int from = needs_from(w, a->verb, stage);
        if (from >= 0 && pipeline_rank(w->p, from) != rank)
            put(&w->out[rank], a->verb == PIPE_FORWARD ? PIPE_WAIT_RECV_F : PIPE_WAIT_RECV_B, a->chunk, a->step, false);
        if (a->verb != PIPE_WEIGHT)
            *state(w, stage, a->step) |= a->verb == PIPE_FORWARD ? RAN_F : RAN_B;
    }
    put(&w->out[rank], (enum pipeline_verb)a->verb, a->chunk, a->step, a->with);
}

static void message(struct network *w, int rank, const struct pipeline_act *a)
{
    bool forward = a->verb == PIPE_FORWARD;
    int stage = pipeline_stage(w->p, rank, a->chunk), to = a->verb <= PIPE_WEIGHT ? sends_to(w, a->verb, stage) : -1;

    if (to < 0)
        return;
    put(&w->out[rank], forward ? PIPE_SEND_F : PIPE_SEND_B, a->chunk, a->step, false);
    *state(w, stage, a->step) |= forward ? SENT_F : 0;
    put(&w->out[pipeline_rank(w->p, to)], forward ? PIPE_RECV_F : PIPE_RECV_B, to / w->p->ranks, a->step, false);
    *state(w, to, a->step) |= forward ? HAS_F : HAS_B;
}

/* A forward's send is waited for after the backward of its micro-step. */
static void wait_send(struct network *w, int rank, const struct pipeline_act *a)
{
    if (is_backward(a->verb) && *state(w, pipeline_stage(w->p, rank, a->chunk), a->step) & SENT_F)
        put(&w->out[rank], PIPE_WAIT_SEND_F, a->chunk, a->step, false);
}

/* The next act of a rank, with those it is one with, once all can run. */
static bool advance(struct network *w, int rank)
{
    const struct pipeline_act *a = &w->todo[rank].act[w->at[rank]];
    int n = 1;

    for (bool can = ready(w, rank, a); ; can = can && ready(w, rank, &a[n++])) {
        if (!can)
            return false;
        if (!a[n - 1].with)
            break;
    }
    for (int i = 0; i < n; i++)
        run(w, rank, &a[i]);
    for (int i = 0; i < n; i++)
        wait_send(w, rank, &a[i]);
    for (int i = 0; i < n; i++)
        message(w, rank, &a[i]);
    w->at[rank] += n;
    return true;
}

static void wait_sends_left(struct pipeline_acts *l)
{
    for (int i = 0, n = l->n; i < n; i++)
        if (l->act[i].verb == PIPE_SEND_B)
            put(l, PIPE_WAIT_SEND_B, l->act[i].chunk, l->act[i].step, false);
}

/* Rank by rank, an act of each that can run; again until all have run. */
static void connect(const struct pipeline *p, const struct pipeline_acts *todo, struct pipeline_acts *out)
{
    size_t stages = (size_t)nstages(p);
    struct network w = { p, todo, out, calloc((size_t)p->ranks, sizeof(int)), calloc(stages * (size_t)p->steps, 1) };
    bool moved = true;

    if (!w.at || !w.is)
        abort();
    while (moved) {
        moved = false;
        for (int r = 0; r < p->ranks; r++)
            if (w.at[r] < todo[r].n)
                moved |= advance(&w, r);
    }
    for (int r = 0; r < p->ranks; r++) {
        assert(w.at[r] == todo[r].n);       /* every generator's order can be connected: test_pipeline_order.c */
        wait_sends_left(&out[r]);
    }
    free(w.at);
    free(w.is);
}

/* ---- one stage a rank: _step_microbatches() of ScheduleGPipe and Schedule1F1B ---- */

struct loop {
    struct pipeline_acts *l;
    bool first, last;           /* stage */
    int steps;
    bool reduces;               /* in the last backward: 2.9 */
};

static bool has(const struct loop *o, enum pipeline_verb v)
{
    return v == PIPE_SEND_F || v == PIPE_RECV_B ? !o->last : !o->first;
}

/* The messages of a batch that this stage has (step < 0: none), then the compute stream's waits for them. */
static void issue(const struct loop *o, enum pipeline_verb a, int i, enum pipeline_verb b, int j)
{
    bool two = i >= 0 && j >= 0 && has(o, a) && has(o, b);

    if (i >= 0 && has(o, a))
        put(o->l, a, 0, i, two);
    if (j >= 0 && has(o, b))
        put(o->l, b, 0, j, false);
}

static enum pipeline_verb wait_of(enum pipeline_verb v) { return (enum pipeline_verb)(v + PIPE_WAIT_SEND_F - PIPE_SEND_F); }

static void await(const struct loop *o, enum pipeline_verb a, int i, enum pipeline_verb b, int j)
{
    bool two = i >= 0 && j >= 0 && has(o, a) && has(o, b);

    if (i >= 0 && has(o, a))
        put(o->l, wait_of(a), 0, i, two);
    if (j >= 0 && has(o, b))
        put(o->l, wait_of(b), 0, j, false);
}

static void receive(const struct loop *o, enum pipeline_verb v, int i)
{
    issue(o, v, i, v, -1);
    await(o, v, i, v, -1);
}

static void backward(const struct loop *o, int i)
{
    put(o->l, PIPE_BACKWARD, 0, i, false);
    if (o->reduces && i == o->steps - 1)
        reduce(o->l, 0);
}

static void gpipe(const struct loop *o)
{
    for (int i = 0; i < o->steps; i++) {
        receive(o, PIPE_RECV_F, i);
        put(o->l, PIPE_FORWARD, 0, i, false);
        issue(o, PIPE_SEND_F, i, PIPE_SEND_F, -1);
    }
    for (int i = 0; i < o->steps; i++)
        await(o, PIPE_SEND_F, i, PIPE_SEND_F, -1);
    for (int i = 0; i < o->steps; i++) {
        receive(o, PIPE_RECV_B, i);
        backward(o, i);
        issue(o, PIPE_SEND_B, i, PIPE_SEND_B, -1);
    }
    for (int i = 0; i < o->steps; i++)
        await(o, PIPE_SEND_B, i, PIPE_SEND_B, -1);
}

/* A send shares a batch with the receive of the other direction. */
static void one_f_one_b(const struct loop *o, int warm_up)
{
    int f = 0, b = 0;

    for (; f < warm_up; f++) {
        receive(o, PIPE_RECV_F, f);
        put(o->l, PIPE_FORWARD, 0, f, false);
        await(o, PIPE_SEND_F, f - 1, PIPE_SEND_F, -1);
        if (f < warm_up - 1)
            issue(o, PIPE_SEND_F, f, PIPE_SEND_F, -1);
    }
    for (;;) {
        issue(o, PIPE_SEND_F, f - 1, PIPE_RECV_B, b);
        await(o, PIPE_SEND_F, f - 1, PIPE_RECV_B, b);
        backward(o, b++);
        if (f == o->steps)
            break;
        issue(o, PIPE_SEND_B, b - 1, PIPE_RECV_F, f);
        await(o, PIPE_SEND_B, b - 1, PIPE_RECV_F, f);
        put(o->l, PIPE_FORWARD, 0, f++, false);
    }
    issue(o, PIPE_SEND_B, b - 1, PIPE_SEND_B, -1);
    for (; b < o->steps; b++) {
        receive(o, PIPE_RECV_B, b);
        backward(o, b);
        await(o, PIPE_SEND_B, b - 1, PIPE_SEND_B, -1);
        issue(o, PIPE_SEND_B, b, PIPE_SEND_B, -1);
    }
    await(o, PIPE_SEND_B, b - 1, PIPE_SEND_B, -1);
}

static void own_loop(const struct pipeline *p, int rank, bool reduces, struct pipeline_acts *l)
{
    struct loop o = { l, rank == 0, rank == p->ranks - 1, p->steps, reduces };

    if (p->kind == PIPELINE_GPIPE)
        gpipe(&o);
    else
        one_f_one_b(&o, p->steps < p->ranks - rank ? p->steps : p->ranks - rank);
    if (!reduces)
        reduce(l, 0);
}

/* ---- lock step: PipelineScheduleMulti._step_microbatches() of 2.9 ---- */

enum { NO_PASS = NPIPE_VERB };          /* of a time step */

static void rest(struct pipeline_acts *l, int n)
{
    for (int i = 0; i < n; i++)
        put(l, (enum pipeline_verb)NO_PASS, 0, 0, false);
}

/* A rank's passes by time step: _get_1f1b_rank_ops(), ScheduleLoopedBFS._calculate_single_rank_operations(). */
static void time_steps(const struct pipeline *p, int rank, const struct pipeline_acts *order, struct pipeline_acts *out)
{
    struct pipeline of = *p;
    int n = p->steps * p->chunks, behind = p->ranks - 1 - rank, backwards = 0;

    of.rank = rank;
    bool turns = p->kind == PIPELINE_INTERLEAVED;
    int warm_up = turns ? pipeline_warm_up(&of) : n, gap = turns ? p->chunks * p->ranks + 2 * behind - warm_up - rank : 2 * behind;
    rest(out, rank);
    for (int i = 0; i < order->n; i++) {
        const struct pipeline_act *a = &order->act[i];
        if (i == warm_up && warm_up > 0)
            rest(out, gap);
        if (a->verb == PIPE_BACKWARD && turns && backwards++ >= n - warm_up)
            rest(out, 1);
        put(out, (enum pipeline_verb)a->verb, a->chunk, a->step, false);
    }
}

struct batch { struct pipeline_act of[4]; int n; };

static void join_batch(struct batch *b, enum pipeline_verb verb, int chunk, int step)
{
    b->of[b->n++] = (struct pipeline_act){ (uint8_t)verb, false, (int16_t)chunk, step };
}

/* What `rank` receives of another's time step: what a neighbouring stage of its own needs. */
static void join_receive(const struct pipeline *p, int rank, int other, const struct pipeline_acts *of, int t, int verb, struct batch *b)
{
    const struct pipeline_act *a = t < of->n ? &of->act[t] : NULL;

    if (!a || a->verb != verb)
        return;
    int stage = pipeline_stage(p, other, a->chunk) + (verb == PIPE_FORWARD ? 1 : -1);
    if (stage >= 0 && stage < nstages(p) && pipeline_rank(p, stage) == rank)
        join_batch(b, verb == PIPE_FORWARD ? PIPE_RECV_F : PIPE_RECV_B, stage / p->ranks, a->step);
}

static void lock_step(const struct pipeline *p, const struct pipeline_acts *todo, int rank, struct pipeline_acts *l)
{
    int *left = malloc((size_t)p->chunks * sizeof *left), last = nstages(p) - 1;

    if (!left)
        abort();
    for (int c = 0; c < p->chunks; c++)
        left[c] = p->steps;
    for (int t = 0; t < todo[rank].n; t++) {
        struct pipeline_act a = todo[rank].act[t];
        struct batch b = { .n = 0 };
        if (a.verb != NO_PASS) {
            int stage = pipeline_stage(p, rank, a.chunk);
            put(l, (enum pipeline_verb)a.verb, a.chunk, a.step, false);
            if (a.verb == PIPE_BACKWARD && --left[a.chunk] == 0)
                reduce(l, a.chunk);
            if (a.verb == PIPE_FORWARD ? stage < last : stage > 0)
                join_batch(&b, a.verb == PIPE_FORWARD ? PIPE_SEND_F : PIPE_SEND_B, a.chunk, a.step);
        }
        int before = (rank + p->ranks - 1) % p->ranks, after = (rank + 1) % p->ranks;
        join_receive(p, rank, before, &todo[before], t, PIPE_FORWARD, &b);
        join_receive(p, rank, after, &todo[after], t, PIPE_BACKWARD, &b);
        for (int i = 0; i < b.n; i++)
            put(l, (enum pipeline_verb)b.of[i].verb, b.of[i].chunk, b.of[i].step, i + 1 < b.n);
        for (int i = 0; i < b.n; i++)
            put(l, wait_of((enum pipeline_verb)b.of[i].verb), b.of[i].chunk, b.of[i].step, i + 1 < b.n);
    }
    free(left);
}

/* ---- */

static struct pipeline_acts *lists(const struct pipeline *p)
{
    struct pipeline_acts *of = calloc((size_t)p->ranks, sizeof *of);

    if (!of)
        abort();
    return of;
}

/* The order of a rank, as acts. */
static void order_of(const struct pipeline *p, int rank, struct pipeline_acts *out)
{
    struct pipeline of = *p;
    struct pipeline_pass *pass = malloc((pipeline_room(p) + 1) * sizeof *pass);

    if (!pass)
        abort();
    of.rank = rank;
    for (int i = 0, n = pipeline_order(&of, pass); i < n; i++)
        put(out, (enum pipeline_verb)pass[i].kind, pass[i].chunk, pass[i].step, pass[i].paired);
    free(pass);
}

static struct pipeline_acts *by_time(const struct pipeline *p)
{
    struct pipeline_acts *of = lists(p);

    assert(p->kind == PIPELINE_INTERLEAVED || p->kind == PIPELINE_LOOPED_BFS);
    for (int r = 0; r < p->ranks; r++) {
        struct pipeline_acts order = { 0 };
        order_of(p, r, &order);
        time_steps(p, r, &order, &of[r]);
        free(order.act);
    }
    return of;
}

struct pipeline_acts *pipeline_acts(const struct pipeline *p, enum pipeline_code code)
{
    struct pipeline_acts *out = lists(p), *todo;

    if (code >= PIPE_MEGATRON) {
        for (int r = 0; r < p->ranks && code == PIPE_DEEPSPEED; r++)
            pipeline_deepspeed(p, r, &out[r]);
        for (int r = 0; r < p->ranks && code != PIPE_DEEPSPEED; r++)
            pipeline_megatron(p, r, code == PIPE_MEGATRON_OVERLAPS, &out[r]);
        return out;
    }
    if (code == PIPE_LOCK_STEP_29) {
        todo = by_time(p);
        for (int r = 0; r < p->ranks; r++)
            lock_step(p, todo, r, &out[r]);
        pipeline_acts_free(todo, p);
        return out;
    }
    if (code != PIPE_RUNTIME) {
        assert(p->kind == PIPELINE_GPIPE || p->kind == PIPELINE_1F1B);
        for (int r = 0; r < p->ranks; r++)
            own_loop(p, r, code == PIPE_OWN_LOOP_29, &out[r]);
        return out;
    }
    todo = lists(p);
    for (int r = 0; r < p->ranks; r++) {
        struct pipeline_acts order = { 0 };
        order_of(p, r, &order);
        with_gathers(p, &order, &todo[r]);
        free(order.act);
    }
    connect(p, todo, out);
    pipeline_acts_free(todo, p);
    return out;
}

void pipeline_acts_of(const struct pipeline *p, enum pipeline_code code, struct pipeline_acts *out)
{
    if (code == PIPE_DEEPSPEED)
        pipeline_deepspeed(p, p->rank, out);
    else if (code >= PIPE_MEGATRON)
        pipeline_megatron(p, p->rank, code == PIPE_MEGATRON_OVERLAPS, out);
    else if (code == PIPE_OWN_LOOP || code == PIPE_OWN_LOOP_29)
        own_loop(p, p->rank, code == PIPE_OWN_LOOP_29, out);
    else {
        struct pipeline_acts *all = pipeline_acts(p, code);
        *out = all[p->rank];
        all[p->rank].act = NULL;
        pipeline_acts_free(all, p);
    }
}

void pipeline_acts_free(struct pipeline_acts *of, const struct pipeline *p)
{
    for (int r = 0; r < p->ranks; r++)
        free(of[r].act);
    free(of);
}

const char *pipeline_verb_name(enum pipeline_verb v)
{
    static const char *const names[NPIPE_VERB] = {
        "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B",
        "WAIT_SEND_F", "WAIT_RECV_F", "WAIT_SEND_B", "WAIT_RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD",
    };
    return names[v];
}
