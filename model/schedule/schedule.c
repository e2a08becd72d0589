/* schedule.c -- schedules are built entry by entry: buffers, acts, waits, segments, repeats. */
#include "model/schedule/schedule.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"

_Static_assert(NSTREAM <= 16, "AFTER() has 16");

/* ---- building ---- */

/* All but the program, which is long: what lies before it, and behind. */
enum { BEFORE = offsetof(struct schedules, program), BEHIND = BEFORE + sizeof(struct program) };

static void clear(struct schedules *s)
{
    memset(s, 0, BEFORE);
    memset((char *)s + BEHIND, 0, sizeof *s - BEHIND);
}

void schedules_reset(struct schedules *s)
{
    struct schedules kept;

    memcpy(&kept, s, BEFORE);
    memcpy((char *)&kept + BEHIND, (char *)s + BEHIND, sizeof *s - BEHIND);
    if (s->borrowed)
        memset(s->program.piece, 0, sizeof s->program.piece);
    else
        program_free(&s->program);
    clear(s);
    s->bufs  = kept.bufs;   s->cap_bufs  = kept.cap_bufs;
    s->ops   = kept.ops;    s->cap_ops   = kept.cap_ops;
    s->acts  = kept.acts;   s->cap_acts  = kept.cap_acts;
    s->units = kept.units;  s->cap_units = kept.cap_units;
    s->spans = kept.spans;  s->cap_spans = kept.cap_spans;
    s->slices = kept.slices; s->cap_slices = kept.cap_slices; s->layouts = kept.layouts; s->cap_layouts = kept.cap_layouts;
    s->coll_parts = kept.coll_parts; s->cap_coll_parts = kept.cap_coll_parts;
    s->quants = kept.quants; s->cap_quants = kept.cap_quants; s->narrows = kept.narrows; s->cap_narrows = kept.cap_narrows;
    s->parts = kept.parts; s->cap_parts = kept.cap_parts; s->rings = kept.rings; s->cap_rings = kept.cap_rings;
    s->detailed = kept.detailed; s->folds = kept.folds;
}

static void *trimmed(void *array, int64_t n, int64_t *room, size_t size)
{
    void *less = n > 0 && n < *room ? realloc(array, (size_t)n * size) : NULL;

    *room = less ? n : *room;
    return less ? less : array;
}

void schedules_trim(struct schedules *s)
{
    s->bufs  = trimmed(s->bufs,  s->nbufs,  &s->cap_bufs,  sizeof *s->bufs);
    s->ops   = trimmed(s->ops,   s->nops,   &s->cap_ops,   sizeof *s->ops);
    s->acts  = trimmed(s->acts,  s->nacts,  &s->cap_acts,  sizeof *s->acts);
    s->units = trimmed(s->units, s->nunits, &s->cap_units, sizeof *s->units);
    s->spans = trimmed(s->spans, s->nspans, &s->cap_spans, sizeof *s->spans);
    s->parts = trimmed(s->parts, s->nparts, &s->cap_parts, sizeof *s->parts);
}

void schedules_free(struct schedules *s)
{
    schedules_reset(s);
    free(s->bufs);
    free(s->ops);
    free(s->acts);
    free(s->units);
    free(s->spans);
    free(s->slices);
    free(s->layouts);
    free(s->coll_parts);
    free(s->quants);
    free(s->narrows);
    free(s->parts);
    free(s->rings);
    clear(s);
}

int sched_buf(struct schedules *s, enum category cat, const char *what, const char *of,
              int first, int count, int64_t bytes)
{
    int64_t all;

    s->bufs = room_for(s->bufs, s->nbufs, &s->cap_bufs, sizeof *s->bufs);
    if (!checked_mul(bytes, count, &all))
        s->overflow = true;
    s->bufs[s->nbufs] = (struct buf){ .what = what, .of = of, .first = first, .count = count,
                                      .bytes = bytes, .category = cat };
    return s->nbufs++;
}

void sched_cyclic(struct schedules *s, int buf) { s->bufs[buf].cyclic = true; }

int sched_buf_in(struct schedules *s, enum space in, enum category cat, const char *what, const char *of,
                 int first, int count, int64_t bytes)
{
    int b = sched_buf(s, cat, what, of, first, count, bytes);

    s->bufs[b].space = in;
    if (in != SPACE_DEVICE)
        s->spaces |= IN(in);
    return b;
}

void sched_part(struct schedules *s, int buf, int64_t bytes)
{
    struct buf *b = &s->bufs[buf];

    if (bytes == 0)
        return;
    assert(b->late == 0);
    s->parts = room_for(s->parts, s->nparts, &s->cap_parts, sizeof *s->parts);
    if (b->nparts++ == 0)
        b->part0 = s->nparts;
    assert(b->part0 + b->nparts == s->nparts + 1);
    s->parts[s->nparts++] = bytes;
}

void sched_part_late(struct schedules *s, int buf, int64_t bytes)
{
    struct buf *b = &s->bufs[buf];
    int late = b->late;

    b->late = 0;
    sched_part(s, buf, bytes);
    b->late = late + (bytes > 0);
}

void sched_begin(struct schedules *s, enum sched_id id) { s->begin[id] = s->nops; }
void sched_end(struct schedules *s, enum sched_id id)   { s->end[id] = s->nops; }

struct op *sched_op(struct schedules *s, enum op_kind kind, enum stream stream,
                    enum phase phase, const char *what)
{
    s->ops = room_for(s->ops, s->nops, &s->cap_ops, sizeof *s->ops);
    s->ops[s->nops] = (struct op){ .kind = (uint8_t)kind, .stream = (uint8_t)stream,
                                   .phase = (uint8_t)phase, .what = what, .chunk = s->chunk, .step = s->step,
                                   .act0 = (uint32_t)s->nacts, .unit = -1 };
    return &s->ops[s->nops++];
}

static struct op *last(struct schedules *s)
{
    assert(s->nops > 0);
    return &s->ops[s->nops - 1];
}

void sched_in_flight(struct schedules *s, int chunk, int step)
{
    assert(chunk <= UINT8_MAX);
    s->chunk = (uint8_t)chunk;
    s->step = step;
}

void sched_of(struct schedules *s, const char *of, int unit, int by)
{
    struct op *o = last(s);

    o->of = of;
    o->unit = unit;
    o->unit_by = by;
}

static void act(struct schedules *s, int what, int buf, int at, int by, int n, int layout)
{
    struct op *o = last(s);
    const struct buf *b = &s->bufs[buf];

    assert(o->act0 + o->nacts == (uint32_t)s->nacts);
    s->acts = room_for(s->acts, s->nacts, &s->cap_acts, sizeof *s->acts);
    s->acts[s->nacts++] = (struct act){ .buf = buf, .at = at, .by = by, .n = n, .layout = layout,
                                        .what = (uint8_t)what };
    o->nacts++;
    o->acting |= op_acting(o, what, b);
    if (o->kind == OP_COMPUTE && (what & ACT_ALLOC) && b->category == (enum category)o->u.compute.grads)
        o->u.compute.granted += b->bytes * n;
}

void sched_act(struct schedules *s, int what, int buf, int at, int by)
{
    act(s, what, buf, at, by, 1, 0);
}

void sched_act_as(struct schedules *s, int what, int buf, int at, int by, int layout)
{
    act(s, what, buf, at, by, 1, layout);
}

void sched_act_all(struct schedules *s, int what, int buf)
{
    act(s, what, buf, 0, 0, s->bufs[buf].count, 0);
}

void sched_act_like(struct schedules *s, const struct act *a, int what)
{
    if (what)
        act(s, what, a->buf, a->at, a->by, a->n, a->layout);
}

int sched_layout(struct schedules *s, int stride)
{
    if (!s->detailed)
        return 0;
    if (s->nlayouts == 0)               /* 0 is "none" */
        s->nlayouts = 1;
    s->layouts = room_for(s->layouts, s->nlayouts, &s->cap_layouts, sizeof *s->layouts);
    s->layouts[s->nlayouts] = (struct layout){ s->nslices, 0, stride };
    return s->nlayouts++;
}

void sched_slice(struct schedules *s, enum holds h, enum dtype t, int tensor, int64_t from, int64_t n,
                 int64_t at)
{
    if (!s->detailed || n < 0)
        return;
    s->slices = room_for(s->slices, s->nslices, &s->cap_slices, sizeof *s->slices);
    s->slices[s->nslices++] = (struct slice){ tensor, (uint8_t)h, (uint8_t)t, from, n, at };
    s->layouts[s->nlayouts - 1].nslices++;
}

void sched_holds(struct schedules *s, int buf, int layout)
{
    s->bufs[buf].layout = layout;
}

void sched_does(struct schedules *s, enum copy_fn fn, double scale)
{
    struct op *o = last(s);

    assert(o->kind == OP_COPY);
    o->u.copy.fn = (uint8_t)fn;
    o->u.copy.scale = (float)scale;
}

void sched_kernels(struct schedules *s, int64_t n)
{
    assert(last(s)->kind == OP_COPY);
    last(s)->u.copy.kernels = (int32_t)(n < INT32_MAX ? n : INT32_MAX);
}

void sched_quantises(struct schedules *s, enum copy_fn fn, struct quant q, double scale)
{
    int i = 1;

    for (; i < s->nquants; i++) {
        const struct quant *k = &s->quants[i];
        if (k->elems == q.elems && k->groups == q.groups && k->bits == q.bits && k->ranks == q.ranks && k->nodes == q.nodes)
            break;
    }
    if (i >= s->nquants) {
        s->quants = room_for(s->quants, i, &s->cap_quants, sizeof *s->quants);
        s->nquants = i + 1;
        s->quants[i] = q;
    }
    assert(i <= UINT16_MAX);
    sched_does(s, fn, scale);
    last(s)->u.copy.quant = (uint16_t)i;
}

void sched_narrow(struct schedules *s, const struct narrow *of)
{
    s->narrows = room_for(s->narrows, s->nnarrows, &s->cap_narrows, sizeof *s->narrows);
    s->narrows[s->nnarrows++] = *of;
}

void sched_narrows(struct schedules *s, enum copy_fn fn, int narrow0, int n, double scale)
{
    assert(narrow0 + n <= s->nnarrows);
    sched_does(s, fn, scale);
    last(s)->u.copy.narrow0 = narrow0;
    last(s)->u.copy.narrows = n;
}

void sched_moves(struct schedules *s, enum coll_of of)
{
    assert(last(s)->kind == OP_COLL);
    last(s)->u.coll.of = (uint8_t)of;
}

void sched_root(struct schedules *s, int root)
{
    assert(last(s)->kind == OP_COLL);
    last(s)->u.coll.root = root;
}

void sched_moves_places(struct schedules *s, enum piece_id piece, enum slot from, enum slot into)
{
    sched_moves(s, OF_PLACES);
    last(s)->u.coll.piece = (uint8_t)piece;
    last(s)->u.coll.from = (uint8_t)from;
    last(s)->u.coll.into = (uint8_t)into;
}

struct op *sched_coll(struct schedules *s, enum stream stream, enum phase phase, enum coll_op op,
                      enum group g, enum dtype t, enum red_op red, int64_t elems)
{
    struct op *o = sched_op(s, OP_COLL, stream, phase, coll_name(op));
    int group = plan_groups_find(&s->groups, g);
    int64_t bytes;

    assert(group >= 0);
    o->flags = s->hooks ? OPF_HOOK : 0;
    if (!checked_mul(elems, dtype_bytes(t), &bytes))
        s->overflow = true;
    o->u.coll.op = (uint8_t)op;
    o->u.coll.group = (uint8_t)group;
    o->u.coll.dtype = (uint8_t)t;
    o->u.coll.red = (uint8_t)red;
    o->u.coll.elems = elems;
    s->communicates |= 1u << group;
    return o;
}

struct op *sched_message(struct schedules *s, enum stream stream, enum phase phase, enum coll_op op,
                         enum group g, int peer, int tag, enum dtype t, int64_t elems)
{
    struct op *o = sched_coll(s, stream, phase, op, g, t, RED_NONE, elems);

    assert(coll_is_message(op));
    o->u.coll.peer = peer;
    o->u.coll.tag = tag;
    return o;
}

void sched_parts(struct schedules *s, const struct coll_part *parts, int n)
{
    struct op *o = last(s);
    int64_t bytes;

    assert(o->kind == OP_COLL && o->u.coll.op == COLL_ALL_TO_ALL);
    if (s->ncoll_parts == 0)            /* 0 is "equal" */
        s->ncoll_parts = 1;
    o->u.coll.parts = s->ncoll_parts;
    o->u.coll.elems = 0;
    for (int i = 0; i < n; i++) {
        while (s->ncoll_parts >= s->cap_coll_parts)
            s->coll_parts = room_for(s->coll_parts, s->cap_coll_parts, &s->cap_coll_parts, sizeof *s->coll_parts);
        s->coll_parts[s->ncoll_parts++] = parts[i];
        o->u.coll.elems += parts[i].sent;
    }
    if (!checked_mul(o->u.coll.elems, dtype_bytes(o->u.coll.dtype), &bytes))
        s->overflow = true;
}

struct op *sched_copy(struct schedules *s, enum stream stream, enum phase phase, const char *what,
                      int64_t reads, int64_t writes)
{
    struct op *o = sched_op(s, OP_COPY, stream, phase, what);

    if (reads < 0 || reads > SIZE_LIMIT || writes < 0 || writes > SIZE_LIMIT)
        s->overflow = true;
    o->u.copy.reads = reads;
    o->u.copy.writes = writes;
    return o;
}

struct op *sched_set(struct schedules *s, enum stream stream, enum phase phase, const char *what, int64_t reads, int64_t writes)
{
    struct op *o = sched_copy(s, stream, phase, what, reads, writes);

    sched_does(s, COPY_SET, 1);
    return o;
}

static bool same_segment(const struct op *a, const struct op *b)
{
    return a->kind == OP_COMPUTE && a->u.compute.piece == b->u.compute.piece &&
           a->u.compute.pass == b->u.compute.pass && a->u.compute.k0 == b->u.compute.k0 &&
           a->u.compute.k1 == b->u.compute.k1 && a->u.compute.fate == b->u.compute.fate;
}

/* The place of the segment's entry in span_at[], or a free one for it: the first from its hash on, or that of the hash where all are taken.
 * A place is free, too, if its entry is not before `o`: a caller took it back. */
static unsigned span_place(const struct schedules *s, const struct op *o)
{
    enum { PLACES = sizeof s->span_at / sizeof *s->span_at };
    unsigned h = o->u.compute.k0 * 31u + o->u.compute.k1 * 7u + o->u.compute.piece * 3u + o->u.compute.pass * 2u + o->u.compute.fate;

    for (unsigned i = 0; i < PLACES; i++) {
        int at = s->span_at[(h + i) % PLACES];
        if (!at || at > o - s->ops || same_segment(&s->ops[at - 1], o))
            return (h + i) % PLACES;
    }
    return h % PLACES;
}

/* The span of a segment, computed once however often blocks repeat it. */
static int span_of(struct schedules *s, const struct op *o)
{
    unsigned h = span_place(s, o);
    struct span sp;

    if (s->span_at[h] && s->span_at[h] <= o - s->ops && same_segment(&s->ops[s->span_at[h] - 1], o))
        return s->ops[s->span_at[h] - 1].u.compute.span;
    program_span(&s->program, o->u.compute.piece, o->u.compute.pass, o->u.compute.k0,
                 o->u.compute.k1, o->u.compute.fate, &sp);
    s->spans = room_for(s->spans, s->nspans, &s->cap_spans, sizeof *s->spans);
    s->spans[s->nspans] = sp;
    s->span_at[h] = (int)(o - s->ops) + 1;
    return s->nspans++;
}

struct op *sched_compute(struct schedules *s, enum phase phase, enum piece_id piece, enum pass pass,
                         int k0, int k1, enum grad_fate fate, enum category grads)
{
    struct op *o = sched_op(s, OP_COMPUTE, STREAM_COMPUTE, phase,
                            pass == PASS_FORWARD ? "forward" : "backward");

    if (k1 < 0)
        k1 = s->program.piece[piece].nkernels[pass];
    o->u.compute.piece = (uint8_t)piece;
    o->u.compute.pass = (uint8_t)pass;
    o->u.compute.fate = (uint8_t)fate;
    o->u.compute.grads = (uint8_t)grads;
    o->u.compute.k0 = (uint16_t)k0;
    o->u.compute.k1 = (uint16_t)k1;
    o->u.compute.span = span_of(s, o);
    return o;
}

void sched_repeat(struct schedules *s, int64_t n)
{
    struct op *o = sched_op(s, OP_REPEAT, STREAM_ISSUE, PHASE_INIT, "repeat");

    assert(n >= 0);
    o->u.repeat.n = n;
    o->u.repeat.other = -1;             /* open until sched_repeat_end() */
}

void sched_repeat_end(struct schedules *s)
{
    int open = s->nops - 1;

    while (open >= 0 && !(s->ops[open].kind == OP_REPEAT && s->ops[open].u.repeat.other < 0))
        open--;
    assert(open >= 0);
    struct op *end = sched_op(s, OP_END, STREAM_ISSUE, PHASE_INIT, "end");
    end->u.repeat.n = s->ops[open].u.repeat.n;
    end->u.repeat.other = open;
    s->ops[open].u.repeat.other = s->nops - 1;
}

uint16_t sched_ring(struct schedules *s, int n)
{
    uint16_t first = (uint16_t)(s->nevents + 1);

    if (n > UINT16_MAX - s->nevents)
        return 0;
    for (int i = 0; i < n; i++) {
        s->rings = room_for(s->rings, s->nevents + 1, &s->cap_rings, sizeof *s->rings);
        s->rings[++s->nevents] = (struct ring){ first, (uint16_t)n };
    }
    return first;
}

uint16_t sched_event(struct schedules *s)
{
    uint16_t event = sched_ring(s, 1);

    assert(event);
    return event;
}

void sched_note(struct schedules *s, const char *sentence)
{
    if (s->nnotes < (int)(sizeof s->notes / sizeof *s->notes))
        s->notes[s->nnotes++] = sentence;
}

int sched_unit(struct schedules *s, const char *kind, int index, int64_t numel,
               int64_t padded, int64_t shard)
{
    s->units = room_for(s->units, s->nunits, &s->cap_units, sizeof *s->units);
    s->units[s->nunits] = (struct unit){ .kind = kind, .index = index, .numel = numel,
                                         .padded = padded, .shard = shard };
    return s->nunits++;
}

int64_t sched_group_ranks(const struct schedules *s, enum group g)
{
    int at = plan_groups_find(&s->groups, g);

    return at < 0 ? 0 : s->groups.group[at].ranks;
}

/* ---- names ---- */

const char *category_name(enum category c)
{
    static const char *const names[NCAT] = {
        "params", "grads", "optimizer", "activations", "temporaries", "unsharded params",
        "unsharded grads", "all-gather", "reduce-scatter", "bucket", "overhead",
    };
    return names[c];
}

const char *stream_name(enum stream s)
{
    static const char *const names[NSTREAM] = {
        "issue", "compute", "copy-in", "gather", "reduce", "all-reduce", "group", "h2d", "d2h",
        "tensor", "context", "previous", "next", "host", "disk-read", "disk-write",
    };
    return names[s];
}

const char *space_name(enum space s)
{
    static const char *const names[NSPACE] = { "device", "pinned", "host", "disk" };
    return names[s];
}

const char *coll_name(enum coll_op op)
{
    static const char *const names[NCOLL] = {
        "all_reduce", "all_gather", "reduce_scatter", "broadcast",
        "reduce", "scatter", "gather", "barrier", "all_to_all", "send", "recv",
    };
    return names[op];
}

bool coll_is_message(enum coll_op op)
{
    return op == COLL_SEND || op == COLL_RECV;
}

const char *red_name(enum red_op r)
{
    static const char *const names[] = { "", "sum", "avg", "premul_sum", "max", "min" };
    return names[r];
}

const char *phase_name(enum phase p)
{
    static const char *const names[NPHASE] = { "init", "forward", "backward", "reduce", "optimizer" };
    return names[p];
}

int64_t sched_times(const struct schedules *s, enum sched_id id, int64_t steps)
{
    int64_t later = steps > 1 ? steps - 1 : 0, early = later < s->early ? later : s->early;

    switch (id) {
    case SCHED_INIT:   return 1;
    case SCHED_FIRST:  return steps > 0;
    case SCHED_EARLY:  return early;
    case SCHED_STEADY: return later - early;
    case NSCHED:       break;
    }
    return 0;
}

const char *sched_name(enum sched_id id)
{
    static const char *const names[NSCHED] = { "init", "first", "steady", "early" };
    return names[id];
}

/* ---- reading ---- */

const struct plan_group *sched_group(const struct schedules *s, const struct op *o)
{
    return &s->groups.group[o->u.coll.group];
}

static int walk_range(const struct schedules *s, int from, int to, int64_t iteration,
                      int (*f)(const struct schedules *, const struct op *, int64_t, void *),
                      void *arg)
{
    for (int i = from; i < to; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_REPEAT) {
            for (int64_t n = 0; n < o->u.repeat.n; n++) {
                int rc = walk_range(s, i + 1, o->u.repeat.other, n, f, arg);
                if (rc)
                    return rc;
            }
            i = o->u.repeat.other;
            continue;
        }
        int rc = f(s, o, iteration, arg);
        if (rc)
            return rc;
    }
    return 0;
}

int sched_walk(const struct schedules *s, enum sched_id id,
               int (*f)(const struct schedules *s, const struct op *op, int64_t iteration, void *arg),
               void *arg)
{
    return walk_range(s, s->begin[id], s->end[id], 0, f, arg);
}

bool sched_crosses(const struct schedules *s, const struct op *o, enum space *from, enum space *to)
{
    int reads = -1, writes = -1;

    if (o->kind != OP_COPY)
        return false;
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &s->acts[i];
        if (a->what & ACT_READ)
            reads = (int)s->bufs[a->buf].space;
        if (a->what & (ACT_WRITE | ACT_ADD))
            writes = (int)s->bufs[a->buf].space;
    }
    bool up = o->stream == STREAM_H2D, down = o->stream == STREAM_D2H;
    *from = reads >= 0 ? (enum space)reads : up ? SPACE_PINNED : down || writes < 0 ? SPACE_DEVICE : (enum space)writes;
    *to = writes >= 0 ? (enum space)writes : down ? SPACE_PINNED : up || reads < 0 ? SPACE_DEVICE : (enum space)reads;
    return *from != *to;
}

int64_t coll_sent_bytes(enum coll_op op, int64_t n, int64_t bytes)
{
    double share = n > 0 ? (double)bytes * (double)(n - 1) / (double)n : 0;

    if (n <= 1)
        return 0;
    switch (op) {
    case COLL_ALL_REDUCE:     return llround(2 * share);
    case COLL_ALL_GATHER:
    case COLL_REDUCE_SCATTER:
    case COLL_ALL_TO_ALL:     return llround(share);
    case COLL_BROADCAST:
    case COLL_REDUCE:
    case COLL_SEND:           return bytes;
    /* A root deals out (or takes in) all but its own part; the busiest rank
     * counts, and for gather that is what the root receives. */
    case COLL_SCATTER:
    case COLL_GATHER:         return llround(share);
    case COLL_RECV:
    case COLL_BARRIER:
    case NCOLL:               break;
    }
    return 0;
}

/* All parts but the rank's own. */
static int64_t sent_in_parts(const struct schedules *s, const struct op *o, int64_t n)
{
    int64_t place = mesh_place(&sched_group(s, o)->of, s->rank), elems = 0;

    for (int64_t i = 0; i < n; i++)
        if (i != place)
            elems += s->coll_parts[o->u.coll.parts + i].sent;
    return elems * dtype_bytes(o->u.coll.dtype);
}

int64_t sched_sent_bytes(const struct schedules *s, const struct op *o)
{
    enum coll_op op = o->u.coll.op;
    int64_t n = sched_group(s, o)->ranks;
    int64_t bytes = o->u.coll.elems * dtype_bytes(o->u.coll.dtype);
    bool from_root = op == COLL_BROADCAST || op == COLL_SCATTER;

    if (op == COLL_ALL_TO_ALL && o->u.coll.parts && n > 1)
        return sent_in_parts(s, o, n);
    if (!s->star || n < 2)
        return coll_sent_bytes(op, n, bytes);
    if ((s->rank == 0) != from_root)
        return 0;
    if (op == COLL_BROADCAST)
        return (n - 1) * bytes;
    return op == COLL_REDUCE ? bytes : from_root ? bytes - bytes / n : bytes / n;
}

/* ---- inside compute entries ---- */

void sched_inner(const struct schedules *s, const struct op *o, int64_t net[NMEM])
{
    const struct span *sp = &s->spans[o->u.compute.span];

    memcpy(net, sp->net, sizeof sp->net);
    if (o->u.compute.fate == GRADS_KEEP)
        net[MEM_GRADS] -= o->u.compute.granted;
    else if (s->tied_apart)
        net[MEM_GRADS] = 0;
}

void sched_inner_peak(const struct schedules *s, const struct op *o, int64_t peak[NMEM])
{
    const struct span *sp = &s->spans[o->u.compute.span];
    int64_t net[NMEM], inside = 0, after = 0;

    memcpy(peak, sp->peak, sizeof sp->peak);
    if (o->u.compute.fate == GRADS_KEEP)
        peak[MEM_GRADS] -= o->u.compute.granted;
    sched_inner(s, o, net);
    for (int i = 0; i < NMEM; i++) {
        inside += peak[i];
        after += net[i];
    }
    if (after > inside)             /* fullest when done */
        memcpy(peak, net, sizeof net);
}
