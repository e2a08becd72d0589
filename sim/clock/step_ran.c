/* step_ran.c -- see step_ran.h. */
#include "sim/clock/step_ran.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "base/sort.h"

/* ---- who met whom, and when ---- */

/* A stage's entry that others take part in: what they have in common, which of its kind it is, when all had come. */
struct met {
    int64_t key[4];                 /* a message: from, to, tag; a collective: group, its instance's first rank, operation */
    int64_t order;                  /* among those of its key on its rank; while they are counted, of its side */
    bool    sends, message;
    int     stage;
    int64_t at;                     /* of its stage's entries */
    double  start, since;
};

static void describe(const struct step_ran *of, int64_t i, struct met *m)
{
    const struct op *o = &of->s->ops[of->ran[i].op];
    const struct mesh_group *g = &sched_group(of->s, o)->of;

    m->message = coll_is_message((enum coll_op)o->u.coll.op);
    m->at = i;
    m->start = m->since = of->ran[i].start;
    if (!m->message) {
        const int64_t key[4] = { 1 + o->u.coll.group, mesh_member(g, of->s->rank, 0), o->u.coll.op, 0 };
        memcpy(m->key, key, sizeof key);
        return;
    }
    int64_t peer = mesh_member(g, of->s->rank, o->u.coll.peer), rank = of->s->rank;
    m->sends = o->u.coll.op == COLL_SEND;
    const int64_t key[4] = { 0, m->sends ? rank : peer, m->sends ? peer : rank, o->u.coll.tag };
    memcpy(m->key, key, sizeof key);
}

#define BY(a, b) if ((a) != (b)) return (a) < (b) ? -1 : 1

static int by_key(const struct met *a, const struct met *b)
{
    for (int i = 0; i < 4; i++)
        BY(a->key[i], b->key[i]);
    return 0;
}

static int by_rank(const void *pa, const void *pb)
{
    const struct met *a = pa, *b = pb;
    int key = by_key(a, b);

    if (key)
        return key;
    BY(a->stage, b->stage);
    BY(a->at, b->at);
    return 0;
}

static int by_order(const void *pa, const void *pb)
{
    const struct met *a = pa, *b = pb;
    int key = by_key(a, b);

    if (key)
        return key;
    BY(a->order, b->order);
    return 0;
}

static int by_place(const void *pa, const void *pb)
{
    const struct met *a = pa, *b = pb;

    BY(a->stage, b->stage);
    BY(a->at, b->at);
    return 0;
}

/* All that communicates, by stage and place, with `since`; *n of them. */
static struct met *meetings(const struct step_ran *stage, int nstages, int64_t *n)
{
    struct met *m = NULL;
    int64_t room = 0;

    *n = 0;
    for (int s = 0; s < nstages; s++)
        for (int64_t i = 0; i < stage[s].n; i++) {
            if (stage[s].s->ops[stage[s].ran[i].op].kind != OP_COLL || isnan(stage[s].ran[i].start))
                continue;
            m = room_for(m, *n, &room, sizeof *m);
            m[*n] = (struct met){ .stage = s };
            describe(&stage[s], i, &m[(*n)++]);
        }
    if (*n == 0)
        return m;
    sort_stable(m, (size_t)*n, sizeof *m, by_rank);
    for (int64_t i = 0; i < *n; i++)
        m[i].order = i > 0 && by_key(&m[i - 1], &m[i]) == 0 && m[i - 1].stage == m[i].stage ? m[i - 1].order + 1 : 0;
    sort_stable(m, (size_t)*n, sizeof *m, by_order);
    for (int64_t from = 0, to; from < *n; from = to) {
        double last = m[from].start;
        for (to = from + 1; to < *n && by_order(&m[from], &m[to]) == 0; to++)
            last = fmax(last, m[to].start);
        for (int64_t i = from; i < to; i++)
            m[i].since = last;
    }
    sort_stable(m, (size_t)*n, sizeof *m, by_place);
    return m;
}

/* ---- a stage's time ---- */

/* What ran beside the compute stream, by its end. */
struct other { double since, end; bool meets, message; };

static int by_end(const void *pa, const void *pb)
{
    const struct other *a = pa, *b = pb;

    BY(a->end, b->end);
    BY(a->meets, b->meets);
    return 0;
}

/* Of [from, to), in which the compute stream waited for `b` or was it. */
static void wait_for(const struct other *b, double from, double to, struct stage_part *out)
{
    double since = fmin(fmax(b->since, from), to), end = fmin(fmax(b->end, since), to);

    out->bubble_s += since - from;
    if (b->message)
        out->messages_s += end - since;
}

/* The last that ended by `t`, if it ended after `from`: what the compute stream waited for. */
static const struct other *cause(const struct other *b, int64_t n, double from, double t)
{
    int64_t lo = 0, hi = n;

    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (b[mid].end <= t + 1e-12)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && b[lo - 1].end > from ? &b[lo - 1] : NULL;
}

static const struct met *met_at(const struct met *m, int64_t n, int64_t *at, int stage, int64_t i)
{
    while (*at < n && (m[*at].stage < stage || (m[*at].stage == stage && m[*at].at < i)))
        (*at)++;
    return *at < n && m[*at].stage == stage && m[*at].at == i ? &m[*at] : NULL;
}

static struct other other_of(const struct met *m, const struct ran *r)
{
    return (struct other){ m ? m->since : r->start, r->end, m != NULL, m && m->message };
}

/* What runs elsewhere than on the compute stream. */
static struct other *others(const struct step_ran *of, int stage, const struct met *m, int64_t nmet, int64_t *n)
{
    struct other *b = room_new((size_t)of->n + 1, sizeof *b);
    int64_t at = 0;

    *n = 0;
    for (int64_t i = 0; i < of->n; i++) {
        const struct op *o = &of->s->ops[of->ran[i].op];
        const struct met *met = met_at(m, nmet, &at, stage, i);
        if (o->stream != STREAM_COMPUTE && o->stream != STREAM_ISSUE && of->ran[i].end >= of->ran[i].start)
            b[(*n)++] = other_of(met, &of->ran[i]);
    }
    sort_stable(b, (size_t)*n, sizeof *b, by_end);
    return b;
}

static void part(const struct step_ran *of, int stage, const struct met *m, int64_t nmet, double step_s, struct stage_part *out)
{
    double until = 0, end = 0;
    int64_t n, at = 0;
    struct other *b = others(of, stage, m, nmet, &n);

    for (int64_t i = 0; i < of->n; i++) {
        const struct ran *r = &of->ran[i];
        const struct met *met = met_at(m, nmet, &at, stage, i);
        if (isnan(r->start))
            continue;
        end = fmax(end, r->end);
        if (of->s->ops[r->op].stream != STREAM_COMPUTE)
            continue;
        const struct other *why = r->start > until ? cause(b, n, until, r->start) : NULL;
        if (why && why->meets)
            wait_for(why, until, r->start, out);
        if (met)
            wait_for(&(struct other){ met->since, r->end, true, met->message }, r->start, r->end, out);
        until = fmax(until, r->end);
    }
    const struct other *why = end > until ? cause(b, n, until, end) : NULL;
    if (why && why->meets)
        wait_for(why, until, end, out);
    out->bubble_s += step_s - end;
    out->work_s = step_s - out->bubble_s - out->messages_s;
    free(b);
}

void step_ran_parts(const struct step_ran *stage, int n, struct stage_parts *out, double *step_s)
{
    int64_t nmet;
    struct met *m = meetings(stage, n, &nmet);
    double mean = 0;

    *out = (struct stage_parts){ .n = n };
    *step_s = 0;
    for (int s = 0; s < n; s++)
        for (int64_t i = 0; i < stage[s].n; i++)
            *step_s = fmax(*step_s, stage[s].ran[i].end);           /* passes NaN over */
    for (int s = 0; s < n; s++) {
        part(&stage[s], s, m, nmet, *step_s, &out->stage[s]);
        mean += out->stage[s].work_s / n;
        if (out->stage[s].work_s > out->stage[out->busiest].work_s)
            out->busiest = s;
    }
    out->imbalance_s = n > 1 ? out->stage[out->busiest].work_s - mean : 0;
    free(m);
}

void step_ran_since(const struct step_ran *stage, int n, double *const *since)
{
    int64_t nmet;
    struct met *m = meetings(stage, n, &nmet);

    for (int s = 0; s < n; s++)
        for (int64_t i = 0; i < stage[s].n; i++)
            since[s][i] = NAN;
    for (int64_t i = 0; i < nmet; i++)
        since[m[i].stage][m[i].at] = m[i].since;
    free(m);
}
