/* outlives.c -- see outlives.h. */
#include "model/schedule/outlives.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/schedule/ledger.h"

struct range { int64_t from, to; };

/* Of an instance: bytes that this step has written so far, in order and apart; whether what stood there before can still be read. */
struct seen { struct range *written; int n; int64_t room; bool gone, lives; };

struct look { struct seen *of; const int64_t *first; unsigned char *scratch; };

/* ---- bytes ---- */

static void write_range(struct seen *w, struct range r)
{
    int from = 0, to;

    while (from < w->n && w->written[from].to < r.from)
        from++;
    for (to = from; to < w->n && w->written[to].from <= r.to; to++) {
        r.from = w->written[to].from < r.from ? w->written[to].from : r.from;
        r.to = w->written[to].to > r.to ? w->written[to].to : r.to;
    }
    w->written = room_for(w->written, w->n, &w->room, sizeof *w->written);
    memmove(w->written + from + 1, w->written + to, (size_t)(w->n - to) * sizeof *w->written);
    w->written[from] = r;
    w->n += 1 - (to - from);
}

static bool was_written(const struct seen *w, struct range r)
{
    for (int i = 0; i < w->n; i++)
        if (w->written[i].from <= r.from && r.to <= w->written[i].to)
            return true;
    return r.from == r.to;
}

/* ---- acts ---- */

static const struct layout *layout_of(const struct schedules *s, const struct act *a)
{
    int l = a->layout ? a->layout : s->bufs[a->buf].layout;

    return l ? &s->layouts[l] : NULL;
}

static struct range bytes_of(const struct slice *x)
{
    return (struct range){ x->at, x->at + x->n * dtype_bytes((enum dtype)x->dtype) };
}

/* Does the act take only what this step has written? */
static bool reads_its_own(const struct schedules *s, const struct act *a, const struct seen *w)
{
    const struct layout *l = layout_of(s, a);

    for (int i = 0; l && i < l->nslices; i++)
        if (!was_written(w, bytes_of(&s->slices[l->slice0 + i])))
            return false;
    return l != NULL;
}

static void one(struct look *k, const struct schedules *s, const struct op *o, const struct act *a, int64_t instance, bool writes)
{
    int64_t at = k->first[a->buf] + instance;
    struct seen *w = &k->of[at];
    const struct layout *l = layout_of(s, a);
    bool only_writes = (a->what & ACT_WRITE) && !(a->what & (ACT_READ | ACT_ADD));

    if (w->gone)
        return;
    if (!writes) {
        w->gone = a->what & ACT_ALLOC;                      /* it did not live */
        w->lives |= !w->gone;
        if (!w->gone && (a->what & (ACT_USE | ACT_READ | ACT_ADD)) && !only_writes && !reads_its_own(s, a, w))
            k->scratch[at] = 0;
        return;
    }
    for (int i = 0; only_writes && !(o->flags & OPF_GUARDED) && l && i < l->nslices; i++)
        write_range(w, bytes_of(&s->slices[l->slice0 + i]));
    w->gone = a->what & ACT_FREE;
}

/* An entry reads before it writes. */
static int look_at(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    for (int writes = 0; writes < 2; writes++)
        for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
            const struct act *a = &s->acts[i];
            for (int64_t k = 0; k < a->n; k++)
                one(arg, s, o, a, sched_instance(s, a, iteration) + k, writes);
        }
    return 0;
}

/* ---- schedules ---- */

static void look_through(const struct schedules *s, enum sched_id id, struct look *k)
{
    int64_t n = k->first[s->nbufs];

    k->of = room_new((size_t)n + 1, sizeof *k->of);
    sched_walk(s, id, look_at, k);
    for (int64_t i = 0; i < n; i++) {
        k->scratch[i] &= k->of[i].lives;                    /* what no entry names is kept: nothing is known of it */
        free(k->of[i].written);
    }
    free(k->of);
}

unsigned char *outlives_scratch(const struct schedules *s, int64_t *first)
{
    first[0] = 0;
    for (int b = 0; b < s->nbufs; b++)
        first[b + 1] = first[b] + s->bufs[b].count;
    struct look k = { .first = first, .scratch = room_new((size_t)first[s->nbufs] + 1, 1) };
    memset(k.scratch, 1, (size_t)first[s->nbufs]);
    look_through(s, SCHED_STEADY, &k);
    if (sched_has(s, SCHED_EARLY))
        look_through(s, SCHED_EARLY, &k);
    return k.scratch;
}

int64_t outlives_bytes(const struct schedules *s)
{
    int64_t *first = room_new((size_t)s->nbufs + 1, sizeof *first), bytes = 0;
    unsigned char *scratch = outlives_scratch(s, first);

    for (enum space in = 0; in < NSPACE; in++) {
        struct ledger l;
        ledger_run_in(s, IN(in), &l);
        for (int c = 0; c < NCAT; c++)
            bytes += l.persistent[c];
    }
    for (int b = 0; b < s->nbufs; b++)
        for (int64_t i = first[b]; i < first[b + 1]; i++)
            bytes -= scratch[i] ? s->bufs[b].bytes : 0;
    free(scratch);
    free(first);
    return bytes;
}
