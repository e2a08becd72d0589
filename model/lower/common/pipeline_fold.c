/* pipeline_fold.c -- see pipeline_fold.h. */
#include "model/lower/common/pipeline_fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/room.h"

/* Iterations of a body that are worth a repeat. */
enum { LEAST = 4 };

static bool is_pass(const struct pipeline_act *a) { return a->verb <= PIPE_WEIGHT; }
static bool is_message(const struct pipeline_act *a) { return a->verb >= PIPE_SEND_F && a->verb <= PIPE_RECV_B; }
static bool is_wait(const struct pipeline_act *a) { return a->verb >= PIPE_WAIT_SEND_F && a->verb <= PIPE_WAIT_RECV_B; }

/* Micro-steps after which an order repeats itself. */
static int period_of(const struct pipeline *p)
{
    return p->kind == PIPELINE_INTERLEAVED || p->kind == PIPELINE_ZB1P ? pipeline_round(p) : 1;
}

/* ---- bodies ---- */

static bool again(const struct pipeline_act *a, const struct pipeline_act *b, int by)
{
    return a->verb == b->verb && a->chunk == b->chunk && a->with == b->with && (a->step < 0 ? b->step < 0 : b->step == a->step + by);
}

/* Where an act comes again, looked for once for the whole list; 0: nowhere. */
struct nexts { int *later, *earlier; };         /* a period of micro-steps later, and earlier */

/* The first act of each kind from some act on: an open table. */
struct firsts { struct { uint64_t kind; int at; } *of; size_t mask; };

/* What again() compares, of micro-step `step`; never 0. */
static uint64_t kind_of(const struct pipeline_act *a, int step)
{
    return (uint64_t)(uint32_t)step << 32 | (uint64_t)(uint16_t)a->chunk << 16 | (uint64_t)a->verb << 8 | (uint64_t)a->with << 1 | 1;
}

static size_t place_of(const struct firsts *f, uint64_t kind)
{
    size_t at = (size_t)(hash_mix(0, kind) >> 32) & f->mask;

    while (f->of[at].kind && f->of[at].kind != kind)
        at = (at + 1) & f->mask;
    return at;
}

static int first_of(const struct firsts *f, uint64_t kind)
{
    size_t at = place_of(f, kind);

    return f->of[at].kind ? f->of[at].at : 0;
}

static struct nexts nexts_of(const struct pipeline_acts *l, int period)
{
    struct nexts next = { room_new((size_t)l->n + 1, sizeof *next.later), room_new((size_t)l->n + 1, sizeof *next.earlier) };
    struct firsts f = { .mask = 1 };

    while (f.mask < 2 * (size_t)l->n)
        f.mask *= 2;
    f.of = room_new(f.mask, sizeof *f.of);
    f.mask--;
    for (int i = l->n - 1; i >= 0; i--) {
        const struct pipeline_act *a = &l->act[i];
        if (a->step >= 0) {
            next.later[i] = first_of(&f, kind_of(a, a->step + period));
            next.earlier[i] = first_of(&f, kind_of(a, a->step - period));
        }
        size_t at = place_of(&f, kind_of(a, a->step));
        f.of[at].kind = kind_of(a, a->step);
        f.of[at].at = i;
    }
    free(f.of);
    return next;
}

/* The act that is act i, `by` micro-steps later, near enough to come LEAST times; 0: none is. */
static int next_of(const struct pipeline_acts *l, const struct nexts *next, int i, int by)
{
    int j = (by > 0 ? next->later : next->earlier)[i];

    return j < i + (l->n - i) / (LEAST - 1) ? j : 0;
}

/* How often acts [from, from + len) come one after the other. */
static int times_of(const struct pipeline_acts *l, int from, int len, int by)
{
    int to = from;

    while (to + len < l->n && again(&l->act[to], &l->act[to + len], by))
        to++;
    return (to - from) / len + 1;
}

/* Whether acts [from, to) have the last backward of a chunk: what comes with it does not come again. */
static bool ends_chunk(const struct pipeline_acts *l, int from, int to)
{
    for (int i = from; i < to; i++) {
        const struct pipeline_act *a = &l->act[i];
        bool last = is_pass(a) && a->verb != PIPE_FORWARD;
        for (int j = i + 1; last && j < l->n; j++)
            last = !is_pass(&l->act[j]) || l->act[j].verb == PIPE_FORWARD || l->act[j].chunk != a->chunk;
        if (last)
            return true;
    }
    return false;
}

/* The last pass of acts [from, to); -1. */
static int last_pass(const struct pipeline_acts *l, int from, int to)
{
    while (to > from && !is_pass(&l->act[to - 1]))
        to--;
    return to > from ? to - 1 : -1;
}

/* Whether each iteration finds what the one before it leaves: the first one too. */
static bool follows_itself(const struct pipeline_acts *l, const struct pipeline_repeat *r)
{
    int own = last_pass(l, r->from, r->from + r->len), before = last_pass(l, 0, r->from);

    return own < 0 || (before >= 0 && l->act[own].verb == l->act[before].verb && l->act[own].chunk == l->act[before].chunk);
}

/* A body that begins at act i. */
static bool body_at(const struct pipeline_acts *l, const struct nexts *next, int i, int period, struct pipeline_repeat *r)
{
    int first = i;

    while (first < l->n && l->act[first].step < 0)
        first++;
    if (i == 0 || l->act[i - 1].with || first == l->n)
        return false;
    for (int by = period; by >= -period; by -= 2 * period) {
        int len = next_of(l, next, first, by) - first;
        if (len <= 0)
            continue;
        *r = (struct pipeline_repeat){ i, len, times_of(l, i, len, by), by };
        if (r->n < LEAST || !follows_itself(l, r))
            continue;
        while (r->n >= LEAST && ends_chunk(l, i + (r->n - 1) * len, i + r->n * len))
            r->n--;
        if (r->n >= LEAST)
            return true;
    }
    return false;
}

/* ---- messages under way ---- */

struct way { int *step, n; int64_t room; };

static int span_of(const struct way *w)
{
    int least = w->step[0], most = w->step[0];

    for (int i = 1; i < w->n; i++) {
        least = w->step[i] < least ? w->step[i] : least;
        most = w->step[i] > most ? w->step[i] : most;
    }
    return most - least + 1;
}

static void arrive(struct way *w, int step)
{
    int i = 0;

    while (i < w->n && w->step[i] != step)
        i++;
    if (i < w->n)
        w->step[i] = w->step[--w->n];
}

static void under_way(const struct pipeline_acts *l, int chunks, int most[PIPE_WAYS])
{
    struct way *ways = room_new((size_t)(PIPE_WAYS * chunks), sizeof *ways);

    for (int i = 0; i < PIPE_WAYS; i++)
        most[i] = 1;
    for (int i = 0; i < l->n; i++) {
        const struct pipeline_act *a = &l->act[i];
        if (!is_message(a) && !is_wait(a))
            continue;
        int direction = (a->verb - PIPE_SEND_F) % PIPE_WAYS;
        struct way *w = &ways[direction * chunks + a->chunk];
        if (is_wait(a)) {
            arrive(w, a->step);
            continue;
        }
        w->step = room_for(w->step, w->n, &w->room, sizeof *w->step);
        w->step[w->n++] = a->step;
        int span = span_of(w);
        most[direction] = span > most[direction] ? span : most[direction];
    }
    for (int i = 0; i < PIPE_WAYS * chunks; i++)
        free(ways[i].step);
    free(ways);
}

/* ---- a list ---- */

static void add(struct pipeline_fold *f, struct pipeline_act a)
{
    pipeline_acts_add(&f->acts, (enum pipeline_verb)a.verb, a.chunk, a.step, a.with);
}

/* Bodies of `l` are written once. */
static void fold_list(const struct pipeline_acts *l, const struct pipeline *p, struct pipeline_fold *out)
{
    int64_t room = 0;
    struct pipeline_repeat r;
    struct nexts next = nexts_of(l, period_of(p));

    *out = (struct pipeline_fold){ 0 };
    under_way(l, p->chunks, out->under_way);
    for (int i = 0; i < l->n; ) {
        if (!body_at(l, &next, i, period_of(p), &r)) {
            add(out, l->act[i++]);
            continue;
        }
        out->repeat = room_for(out->repeat, out->nrepeats, &room, sizeof *out->repeat);
        out->repeat[out->nrepeats++] = (struct pipeline_repeat){ out->acts.n, r.len, r.n, r.by };
        for (int k = 0; k < r.len; k++)
            add(out, l->act[i + k]);
        i += r.n * r.len;
    }
    free(next.later);
    free(next.earlier);
}

static void fold_at(const struct pipeline *p, enum pipeline_code code, int steps, struct pipeline_fold *out)
{
    struct pipeline of = *p;
    struct pipeline_acts l = { 0 };

    of.group = period_of(p) > 1 ? period_of(p) : p->group;
    of.steps = steps;
    pipeline_acts_of(&of, code, &l);
    fold_list(&l, &of, out);
    free(l.act);
}

/* ---- any number of micro-steps ---- */

/* `b`, a period of micro-steps more than `a`, differs from it in how often bodies come and in the micro-steps of acts. */
static bool comparable(const struct pipeline_fold *a, const struct pipeline_fold *b)
{
    bool same = a->acts.n == b->acts.n && a->nrepeats == b->nrepeats && a->nrepeats > 0;

    for (int i = 0; same && i < a->nrepeats; i++)
        same = a->repeat[i].from == b->repeat[i].from && a->repeat[i].len == b->repeat[i].len && a->repeat[i].by == b->repeat[i].by;
    for (int i = 0; same && i < a->acts.n; i++)
        same = again(&a->acts.act[i], &b->acts.act[i], b->acts.act[i].step - a->acts.act[i].step);
    return same;
}

/* `a` becomes the list that is k times as far from it as `b`. */
static void extend(struct pipeline_fold *a, const struct pipeline_fold *b, int k, int steps)
{
    for (int i = 0; i < a->nrepeats; i++)
        a->repeat[i].n += k * (b->repeat[i].n - a->repeat[i].n);
    for (int i = 0; i < a->acts.n; i++)
        a->acts.act[i].step += k * (b->acts.act[i].step - a->acts.act[i].step);
    for (int i = 0; i < PIPE_WAYS; i++)
        a->under_way[i] = a->under_way[i] == b->under_way[i] ? a->under_way[i] : steps;
}

void pipeline_folded(const struct pipeline *p, enum pipeline_code code, struct pipeline_fold *out)
{
    int period = period_of(p), enough = period > 1 ? 8 : 4 * p->ranks + 8;

    for (; p->steps / period > enough + 1; enough *= 2) {
        int least = p->steps % period + period * enough;
        struct pipeline_fold more;
        fold_at(p, code, least, out);
        fold_at(p, code, least + period, &more);
        bool found = comparable(out, &more);
        if (found)
            extend(out, &more, (p->steps - least) / period, p->steps);
        pipeline_fold_free(&more);
        if (found)
            return;
        pipeline_fold_free(out);
    }
    fold_at(p, code, p->steps, out);
}

void pipeline_unfolded(const struct pipeline *p, enum pipeline_code code, struct pipeline_fold *out)
{
    *out = (struct pipeline_fold){ 0 };
    for (int i = 0; i < PIPE_WAYS; i++)
        out->under_way[i] = p->steps;
    pipeline_acts_of(p, code, &out->acts);
}

void pipeline_fold_free(struct pipeline_fold *f)
{
    free(f->acts.act);
    free(f->repeat);
    *f = (struct pipeline_fold){ 0 };
}

struct pipeline_act pipeline_fold_act(const struct pipeline_fold *f, int i, const struct pipeline_repeat *r, int k)
{
    struct pipeline_act a = f->acts.act[i];

    if (a.step >= 0)
        a.step += r->by * k;
    return a;
}
