/* schedule_check.c -- the invariants of finished schedules, as one check. */
#include "model/schedule/schedule.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const struct schedules *s;
    int64_t *base;              /* index of instance 0 of each family in live[] */
    unsigned char *live;
    unsigned char *recorded;    /* per event: recorded by some entry issued so far */
    enum sched_id sched;
    int64_t inner[NMEM];        /* what compute entries have left behind so far */
    char *why;
    int   size;
};

__attribute__((format(printf, 3, 4)))
static int broken(struct check *c, const struct op *o, const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(c->why, (size_t)c->size, "%s entry %d (%s): ", sched_name(c->sched),
                     (int)(o - c->s->ops) - c->s->begin[c->sched], o->what ? o->what : "?");

    if (n < 0 || n >= c->size)
        return 1;
    va_start(ap, fmt);
    vsnprintf(c->why + n, (size_t)(c->size - n), fmt, ap);
    va_end(ap);
    return 1;
}

static int one_act(struct check *c, const struct op *o, const struct act *a, int64_t iteration, int bit)
{
    if (a->buf < 0 || a->buf >= c->s->nbufs)
        return broken(c, o, "buffer %d of %d", a->buf, c->s->nbufs);
    const struct buf *b = &c->s->bufs[a->buf];
    int64_t at = a->at + a->by * iteration;

    if (at < 0 || at + a->n > b->count)
        return broken(c, o, "%s: instance %" PRId64 " of a family of %d", b->what, at, b->count);
    for (int64_t i = c->base[a->buf] + at; i < c->base[a->buf] + at + a->n; i++) {
        if (bit == ACT_ALLOC && (a->what & ACT_ALLOC)) {
            if (c->live[i])
                return broken(c, o, "%s %" PRId64 " allocated while live", b->what, at);
            c->live[i] = 1;
        }
        if (bit == ACT_USE && !c->live[i])
            return broken(c, o, "%s %" PRId64 " used while not live", b->what, at);
        if (bit == ACT_FREE && (a->what & ACT_FREE)) {
            if (!c->live[i])
                return broken(c, o, "%s %" PRId64 " freed twice", b->what, at);
            c->live[i] = 0;
        }
    }
    return 0;
}

static int check_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct check *c = arg;

    for (int w = 0; w < 2; w++)
        if (o->wait[w] && (o->wait[w] > s->nevents || !c->recorded[o->wait[w]]))
            return broken(c, o, "waits for event %d, which nothing has recorded", o->wait[w]);
    if (o->kind == OP_COLL && s->group_size[o->u.coll.group] < 1)
        return broken(c, o, "a collective in a group that does not exist");
    for (int bit = ACT_ALLOC; bit <= ACT_FREE; bit *= 2)
        for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
            if (one_act(c, o, &s->acts[k], iteration, bit))
                return 1;
    if (o->kind == OP_COMPUTE) {
        int64_t net[NMEM];
        sched_inner(s, o, net);
        for (int i = 0; i < NMEM; i++)
            c->inner[i] += net[i];
    }
    if (o->record)
        c->recorded[o->record] = 1;
    return 0;
}

/* Iterations of a body in which no index moves are alike: two show what the rest do. */
static bool indexed(const struct schedules *s, int open)
{
    for (int i = open + 1; i < s->ops[open].u.repeat.other; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_REPEAT) {
            i = o->u.repeat.other;          /* its indices are its own */
            continue;
        }
        for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
            if (s->acts[k].by)
                return true;
    }
    return false;
}

static bool check_range(struct check *c, int from, int to, int64_t iteration)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &c->s->ops[i];
        if (o->kind != OP_REPEAT) {
            if (o->kind != OP_END && check_op(c->s, o, iteration, c))
                return false;
            continue;
        }
        int64_t n = o->u.repeat.n, run = n > 2 && !indexed(c->s, i) ? 2 : n, before[NMEM];
        for (int64_t k = 0; k < run; k++) {
            memcpy(before, c->inner, sizeof before);
            if (!check_range(c, i + 1, o->u.repeat.other, k))
                return false;
        }
        for (int m = 0; m < NMEM && run < n; m++)
            c->inner[m] += (n - run) * (c->inner[m] - before[m]);
        i = o->u.repeat.other;
    }
    return true;
}

/* Between steps no activation, temporary or half a gradient is alive. */
static bool nothing_left(struct check *c)
{
    static const char *const names[NMEM] = { "activations", "temporaries", "gradients without a buffer" };

    for (int i = 0; i < NMEM; i++)
        if (c->inner[i]) {
            snprintf(c->why, (size_t)c->size, "%s leaves %" PRId64 " bytes of %s", sched_name(c->sched),
                     c->inner[i], names[i]);
            return false;
        }
    return true;
}

/* Does the repeat at i end where it says, before `end`? */
static bool closes(const struct schedules *s, int i, int end)
{
    int other = s->ops[i].u.repeat.other, depth = 0;

    if (other <= i || other >= end || s->ops[other].kind != OP_END)
        return false;
    for (int k = i; k < other; k++)
        depth += s->ops[k].kind == OP_REPEAT ? 1 : s->ops[k].kind == OP_END ? -1 : 0;
    return depth == 1;
}

static bool repeats_balanced(struct check *c)
{
    for (int id = 0; id < NSCHED; id++) {
        int depth = 0;
        c->sched = (enum sched_id)id;
        for (int i = c->s->begin[id]; i < c->s->end[id]; i++) {
            const struct op *o = &c->s->ops[i];
            depth += o->kind == OP_REPEAT ? 1 : o->kind == OP_END ? -1 : 0;
            if (depth < 0 || (o->kind == OP_REPEAT && !closes(c->s, i, c->s->end[id]))) {
                broken(c, o, "unbalanced repeat");
                return false;
            }
        }
        if (depth) {
            snprintf(c->why, (size_t)c->size, "%s: a repeat without its end", sched_name(c->sched));
            return false;
        }
    }
    return true;
}

/* A family's parts are its bytes. */
static bool parts_add_up(struct check *c)
{
    for (int b = 0; b < c->s->nbufs; b++) {
        const struct buf *buf = &c->s->bufs[b];
        int64_t bytes = 0;
        for (int i = 0; i < buf->nparts; i++)
            bytes += c->s->parts[buf->part0 + i];
        if (buf->nparts && bytes != buf->bytes) {
            snprintf(c->why, (size_t)c->size, "%s: parts of %" PRId64 " bytes in a buffer of %" PRId64, buf->what, bytes,
                     buf->bytes);
            return false;
        }
    }
    return true;
}

bool schedules_check(const struct schedules *s, char *why, int size)
{
    struct check c = { .s = s, .why = why, .size = size };
    int64_t n = 0;
    bool sound = repeats_balanced(&c) && parts_add_up(&c);
    unsigned char *before = NULL;

    c.base = calloc((size_t)s->nbufs + 1, sizeof *c.base);
    for (int b = 0; b < s->nbufs; b++) {
        c.base[b] = n;
        n += s->bufs[b].count;
    }
    c.live = calloc((size_t)n + 1, 1);
    c.recorded = calloc((size_t)s->nevents + 1, 1);
    before = malloc((size_t)n + 1);
    if (!c.base || !c.live || !c.recorded || !before)
        abort();
    for (int id = 0; sound && id < NSCHED; id++) {
        c.sched = (enum sched_id)id;
        memcpy(before, c.live, (size_t)n + 1);
        sound = check_range(&c, s->begin[id], s->end[id], 0) && nothing_left(&c);
        if (sound && id == SCHED_STEADY)
            for (int b = 0; sound && b < s->nbufs; b++)
                for (int i = 0; sound && i < s->bufs[b].count; i++)
                    if (before[c.base[b] + i] != c.live[c.base[b] + i]) {
                        snprintf(why, (size_t)size, "steady leaves %s %d %s", s->bufs[b].what, i,
                                 c.live[c.base[b] + i] ? "live" : "dead");
                        sound = false;
                    }
    }
    free(c.base);
    free(c.live);
    free(c.recorded);
    free(before);
    return sound;
}
