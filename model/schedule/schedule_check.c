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
    int64_t at = sched_instance(c->s, a, iteration);

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

/* ---- where buffers lie ---- */

/* The spaces in which an entry reads, writes or uses buffers, and in which kernels make gradients: IN() bits. */
static unsigned spaces_of(const struct schedules *s, const struct op *o)
{
    unsigned in = 0;

    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &s->acts[k];
        const struct buf *b = &s->bufs[a->buf];
        bool granted = o->kind == OP_COMPUTE && (a->what & ACT_ALLOC) && b->category == (enum category)o->u.compute.grads;
        if ((a->what & ~(ACT_ALLOC | ACT_FREE)) || granted)
            in |= IN(b->space);
    }
    return in;
}

/* Both sides of a copy are of one space each. */
static bool one_side_each(const struct schedules *s, const struct op *o)
{
    unsigned in[2] = { 0, 0 };

    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        for (int w = 0; w < 2; w++)
            if (s->acts[k].what & (w ? ACT_WRITE | ACT_ADD : ACT_READ))
                in[w] |= IN(s->bufs[s->acts[k].buf].space);
    return !(in[0] & (in[0] - 1)) && !(in[1] & (in[1] - 1));
}

/* Bytes move as they are: PCIe and files neither cast nor add. */
static int check_crossing(struct check *c, const struct op *o, enum space from, enum space to)
{
    enum copy_fn fn = (enum copy_fn)o->u.copy.fn;
    bool device = from == SPACE_DEVICE || to == SPACE_DEVICE, disk = from == SPACE_DISK || to == SPACE_DISK;
    enum stream needs = from == SPACE_DISK ? STREAM_DISK_READ : disk ? STREAM_DISK_WRITE : STREAM_HOST;

    if (disk && device)
        return broken(c, o, "a copy between disk and device memory: it goes through host memory");
    if (device ? stream_is_host(o->stream) : o->stream != needs)
        return broken(c, o, "a copy from %s to %s memory on the %s stream", space_name(from), space_name(to),
                      stream_name(o->stream));
    if (fn != COPY_NOTHING && (fn != COPY_SET || o->u.copy.scale != 1 || o->u.copy.reads != o->u.copy.writes))
        return broken(c, o, "a copy from %s to %s memory that changes what it copies: cast or scale on one side",
                      space_name(from), space_name(to));
    return 0;
}

/* In which memory the entries of a stream work, copies to another aside. */
static unsigned works_in(const struct op *o)
{
    if (o->stream == STREAM_HOST)
        return o->kind == OP_COMPUTE || o->kind == OP_COLL ? 0 : IN_HOST;
    return stream_is_host(o->stream) ? 0 : IN(SPACE_DEVICE);
}

static int check_place(struct check *c, const struct op *o)
{
    static const char *const work[] = { [OP_COMPUTE] = "compute", [OP_COLL] = "a collective", [OP_COPY] = "a copy",
                                        [OP_OPTIMIZER] = "the optimizer", [OP_MEMORY] = "loading weights" };
    unsigned in = spaces_of(c->s, o), wrong = in & ~works_in(o);
    enum space from, to, at = SPACE_DEVICE;

    if (o->kind == OP_WAIT || (o->kind == OP_MEMORY && !(o->flags & OPF_LOAD)))
        return 0;
    if (o->kind == OP_COPY && !one_side_each(c->s, o))
        return broken(c, o, "a copy that reads or writes several memories at once");
    if (wrong && sched_crosses(c->s, o, &from, &to))
        return check_crossing(c, o, from, to);
    while (wrong && !(wrong & IN(at)))
        at++;
    if (wrong)
        return broken(c, o, "%s in %s memory on the %s stream", work[o->kind], space_name(at), stream_name(o->stream));
    if (stream_is_host(o->stream) && !works_in(o))
        return broken(c, o, "%s on the %s stream", work[o->kind], stream_name(o->stream));
    return 0;
}

/* What only all-to-alls, sends and receives have. */
static int check_exchange(struct check *c, const struct op *o)
{
    const struct schedules *s = c->s;
    enum coll_op op = (enum coll_op)o->u.coll.op;
    int64_t n = sched_group(s, o)->ranks, sum = 0;

    if (coll_is_message(op)) {
        if (o->u.coll.peer < 0 || o->u.coll.peer >= n)
            return broken(c, o, "place %d of a group of %" PRId64, o->u.coll.peer, n);
        if (o->u.coll.peer == mesh_place(&sched_group(s, o)->of, s->rank))
            return broken(c, o, "between a rank and itself");
        return 0;
    }
    if (op != COLL_ALL_TO_ALL)
        return 0;
    if (!o->u.coll.parts)
        return o->u.coll.elems % n ? broken(c, o, "%" PRId64 " elements in %" PRId64 " equal parts", o->u.coll.elems, n)
                                   : 0;
    if (o->u.coll.parts < 0 || o->u.coll.parts + n > s->ncoll_parts)
        return broken(c, o, "parts %d to %" PRId64 " of %d", o->u.coll.parts, o->u.coll.parts + n, s->ncoll_parts);
    for (int64_t i = 0; i < n; i++) {
        const struct coll_part *part = &s->coll_parts[o->u.coll.parts + i];
        if (part->sent < 0 || part->received < 0)
            return broken(c, o, "part %" PRId64 " is negative", i);
        sum += part->sent;
    }
    return sum != o->u.coll.elems ? broken(c, o, "parts of %" PRId64 " elements, %" PRId64 " sent", sum, o->u.coll.elems) : 0;
}

static int check_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct check *c = arg;

    for (int w = 0; w < 2; w++)
        if (o->wait[w] && (o->wait[w] > s->nevents || !c->recorded[sched_event_at(s, o, o->wait[w], iteration)]))
            return broken(c, o, "waits for event %d, which nothing has recorded", o->wait[w]);
    if (o->kind == OP_COLL && o->u.coll.group >= s->groups.n)
        return broken(c, o, "a collective in a group that does not exist");
    if (o->kind == OP_COLL && check_exchange(c, o))
        return 1;
    for (int bit = ACT_ALLOC; bit <= ACT_FREE; bit *= 2)
        for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
            if (one_act(c, o, &s->acts[k], iteration, bit))
                return 1;
    if (check_place(c, o))
        return 1;
    if (o->kind == OP_COMPUTE) {
        int64_t net[NMEM];
        sched_inner(s, o, net);
        for (int i = 0; i < NMEM; i++)
            c->inner[i] += net[i];
    }
    if (o->record)
        c->recorded[sched_event_at(s, o, o->record, iteration)] = 1;
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
        if (sched_event_turns(s, o, o->record) || sched_event_turns(s, o, o->wait[0]) || sched_event_turns(s, o, o->wait[1]))
            return true;
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

/* Every entry sums up what its acts do. */
static bool acts_summed_up(struct check *c)
{
    for (int i = 0; i < c->s->nops; i++) {
        const struct op *o = &c->s->ops[i];
        int acting = 0;
        for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
            acting |= op_acting(o, c->s->acts[k].what, &c->s->bufs[c->s->acts[k].buf]);
        if (acting != o->acting) {
            snprintf(c->why, (size_t)c->size, "entry %d, %s: its acts have bits %d, summed up as %d", i, o->what, acting, o->acting);
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
        if (sound && id >= SCHED_STEADY)
            for (int b = 0; sound && b < s->nbufs; b++)
                for (int i = 0; sound && i < s->bufs[b].count; i++)
                    if (before[c.base[b] + i] != c.live[c.base[b] + i]) {
                        snprintf(why, (size_t)size, "%s leaves %s %d %s", sched_name((enum sched_id)id), s->bufs[b].what, i,
                                 c.live[c.base[b] + i] ? "live" : "dead");
                        sound = false;
                    }
    }
    sound = sound && acts_summed_up(&c);
    free(c.base);
    free(c.live);
    free(c.recorded);
    free(before);
    return sound;
}
