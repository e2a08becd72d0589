/* pipeline_order.c -- the generators of pipeline_order.h. */
#include "model/lower/common/pipeline_order.h"

/* Each kind of pass of a chunk counts its own micro-steps from 0. */
struct list {
    const struct pipeline *p;
    struct pipeline_pass *out;
    int n;
    int done[NMICRO][2];        /* of the V's two chunks */
    int paid;                   /* DualPipeV: of out[], the oldest whose weights' gradients may be to come */
};

static void put(struct list *l, enum micro_pass kind, int chunk, int step)
{
    l->out[l->n++] = (struct pipeline_pass){ .kind = (uint8_t)kind, .chunk = (int16_t)chunk, .step = step };
}

static int least(int a, int b) { return a < b ? a : b; }

static void gpipe(struct list *l)
{
    for (int i = 0; i < l->p->steps; i++)
        put(l, MICRO_FORWARD, 0, i);
    for (int i = 0; i < l->p->steps; i++)
        put(l, MICRO_BACKWARD, 0, i);
}

static void one_f_one_b(struct list *l)
{
    int m = l->p->steps, forwards = least(m, l->p->ranks - l->p->rank);

    for (int i = 0; i < forwards; i++)
        put(l, MICRO_FORWARD, 0, i);
    for (int i = 0; i < m; i++) {
        put(l, MICRO_BACKWARD, 0, i);
        if (forwards < m)
            put(l, MICRO_FORWARD, 0, forwards++);
    }
}

int pipeline_round(const struct pipeline *p)
{
    int rounds = p->steps / p->ranks;

    if (p->group > 0)
        return p->group;
    return p->steps / (rounds < 1 ? 1 : rounds);
}

struct turn pipeline_turn(const struct pipeline *p, int k, bool backward)
{
    int q = pipeline_round(p), from = k / (q * p->chunks) * q;
    int size = least(q, p->steps - from), at = k - from * p->chunks, chunk = at / size;     /* the last group may be smaller */

    return (struct turn){ backward ? p->chunks - 1 - chunk : chunk, from + at % size };
}

int pipeline_warm_up(const struct pipeline *p)
{
    return least((p->chunks - 1) * pipeline_round(p) + 2 * (p->ranks - 1 - p->rank), p->steps * p->chunks);
}

static void take_turn(struct list *l, enum micro_pass kind, int k)
{
    struct turn t = pipeline_turn(l->p, k, kind != MICRO_FORWARD);

    put(l, kind, t.chunk, t.step);
}

/* _get_1f1b_rank_ops(): forwards first; then one of each in turn. */
static void interleaved(struct list *l, bool zero_bubble)
{
    const struct pipeline *p = l->p;
    int n = p->steps * p->chunks, weights = 0, behind = p->ranks - 1 - p->rank;
    int warm_up = zero_bubble ? least((p->chunks - 1) * pipeline_round(p) + behind, n) : pipeline_warm_up(p);

    for (int k = 0; k < n + warm_up; k++) {
        int b = k - warm_up;
        if (k < n)
            take_turn(l, MICRO_FORWARD, k);
        if (b < 0)
            continue;
        take_turn(l, zero_bubble ? MICRO_INPUT : MICRO_BACKWARD, b);
        if (zero_bubble && b >= p->rank)
            take_turn(l, MICRO_WEIGHT, weights++);
    }
    for (; zero_bubble && weights < n; weights++)
        take_turn(l, MICRO_WEIGHT, weights);
}

static void looped_bfs(struct list *l)
{
    for (int c = 0; c < l->p->chunks; c++)
        for (int i = 0; i < l->p->steps; i++)
            put(l, MICRO_FORWARD, c, i);
    for (int c = l->p->chunks - 1; c >= 0; c--)
        for (int i = l->p->steps - 1; i >= 0; i--)
            put(l, MICRO_BACKWARD, c, i);
}

/* The next of its kind; it is counted, but not run, beyond the last micro-step. */
static void next(struct list *l, enum micro_pass kind, int chunk)
{
    int step = l->done[kind][chunk]++;

    if (step < l->p->steps)
        put(l, kind, chunk, step);
}

static void next_of_each(struct list *l, int chunk, bool forward)
{
    if (forward)
        next(l, MICRO_FORWARD, chunk);
    next(l, MICRO_INPUT, chunk);
    next(l, MICRO_WEIGHT, chunk);
}

/* Made for at least 2 ranks - 1 micro-steps; those that there are not are left out. */
static void zbv(struct list *l)
{
    int p = l->p->ranks, r = l->p->rank, n = l->p->steps > 2 * p - 1 ? l->p->steps : 2 * p - 1;
    const int *forwards = l->done[MICRO_FORWARD], *inputs = l->done[MICRO_INPUT], *weights = l->done[MICRO_WEIGHT];

    for (int i = 0; i < 2 * (p - r) - 1; i++)
        next(l, MICRO_FORWARD, 0);
    for (int i = 0; i < r; i++) {
        next(l, MICRO_FORWARD, 1);
        next(l, MICRO_FORWARD, 0);
    }
    for (int i = 0; i < p - r; i++)
        next_of_each(l, 1, true);
    while (forwards[1] < forwards[0] || forwards[0] < n) {
        if (forwards[0] < n)
            next(l, MICRO_FORWARD, 0);
        next_of_each(l, 0, false);
        next_of_each(l, 1, true);
    }
    for (int i = 0; i < r; i++) {
        next(l, MICRO_INPUT, 0);
        next(l, MICRO_INPUT, 1);
    }
    for (int i = 0; i < p - r; i++)
        next_of_each(l, 0, false);
    for (int chunk = 1; chunk >= 0; chunk--)
        while (weights[chunk] < inputs[chunk])
            next(l, MICRO_WEIGHT, chunk);
}

/* Backwards of DualPipeV, whole or split, count their micro-steps together. */
static void backward_of(struct list *l, int chunk, bool split)
{
    put(l, split ? MICRO_INPUT : MICRO_BACKWARD, chunk, l->done[MICRO_BACKWARD][chunk]++);
}

/* The oldest split backward's other half; nothing where there is none. */
static void oldest_weight(struct list *l)
{
    while (l->paid < l->n && l->out[l->paid].kind != MICRO_INPUT)
        l->paid++;
    if (l->paid == l->n)
        return;
    put(l, MICRO_WEIGHT, l->out[l->paid].chunk, l->out[l->paid].step);
    l->paid++;
}

static void pair(struct list *l, int forward, int backward)
{
    next(l, MICRO_FORWARD, forward);
    l->out[l->n - 1].paired = true;
    backward_of(l, backward, false);
}

/* ScheduleDualPipeV._calculate_single_rank_operations(), its eight steps. */
static void dualpipev(struct list *l)
{
    int r = l->p->rank, behind = l->p->ranks - 1 - r, main = l->p->steps - 2 * l->p->ranks + r + 1;
    bool split = false;

    for (int i = 0; i < 2 * behind; i++)
        next(l, MICRO_FORWARD, 0);
    for (int i = 0; i < r + 1; i++) {
        next(l, MICRO_FORWARD, 0);
        next(l, MICRO_FORWARD, 1);
    }
    for (int i = 0; i < behind; i++) {
        backward_of(l, 1, true);
        oldest_weight(l);
        next(l, MICRO_FORWARD, 1);
    }
    for (int i = 0; i < main; i++) {
        if (i == 0 && behind == 0) {        /* not side by side: a smaller bubble */
            next(l, MICRO_FORWARD, 0);
            backward_of(l, 1, false);
        } else {
            pair(l, 0, 1);
        }
        pair(l, 1, 0);
    }
    for (int i = 0; i < behind; i++) {
        backward_of(l, 1, false);
        pair(l, 1, 0);
    }
    for (int i = 0; i < r + 1; i++) {
        split |= i == (r + 1) / 2 && r % 2 == 1;
        backward_of(l, 1, split);
        split |= i == (r + 1) / 2;
        backward_of(l, 0, split);
    }
    for (int i = 0; i < behind; i++) {
        oldest_weight(l);
        backward_of(l, 0, split);
    }
    for (int i = 0; i < r + 1; i++)
        oldest_weight(l);
}

size_t pipeline_room(const struct pipeline *p)
{
    return (size_t)3 * (size_t)p->steps * (size_t)p->chunks;
}

int pipeline_order(const struct pipeline *p, struct pipeline_pass *out)
{
    struct list l = { .p = p, .out = out };

    switch (p->kind) {
    case PIPELINE_GPIPE:       gpipe(&l); break;
    case PIPELINE_1F1B:        one_f_one_b(&l); break;
    case PIPELINE_INTERLEAVED: interleaved(&l, false); break;
    case PIPELINE_LOOPED_BFS:  looped_bfs(&l); break;
    case PIPELINE_ZB1P:        interleaved(&l, true); break;
    case PIPELINE_ZBV:         zbv(&l); break;
    case PIPELINE_DUALPIPEV:   dualpipev(&l); break;
    case NPIPELINE:            break;
    }
    return l.n;
}

int pipeline_in_flight(const struct pipeline_pass *pass, int n, int chunk)
{
    int now = 0, most = 0;

    for (int i = 0; i < n; i++) {
        if (chunk >= 0 && pass[i].chunk != chunk)
            continue;
        now += pass[i].kind == MICRO_FORWARD;
        most = now > most ? now : most;
        now -= pass[i].kind == MICRO_BACKWARD || pass[i].kind == MICRO_WEIGHT;
    }
    return most;
}
