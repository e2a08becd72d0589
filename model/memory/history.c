/* history.c -- the replay of the allocator (reserved.c) with everything that it does written down.  Events that a request brings about, segments
 * and releases that other streams held up, are seen by comparing the allocator's pieces before and after. */
#include "model/memory/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"

/* So many events at most: a pickle of 200 MB. */
enum { MOST_EVENTS = 1 << 22 };

struct segments { int64_t *addr, *size; int *stream; int64_t n, cap; };
/* Where a block is, how large, and who asked for it; addr -1: it is free. */
struct held { int64_t addr, size; int stream; struct history_place at; };

struct recorder {
    struct caching_allocator *a;
    const struct caching_stats *stats;
    struct request_target replay;
    const struct request_report *r;
    struct history *h;
    struct held *held; int64_t nheld, cap_held;             /* by handle */
    struct held *pending; int64_t npending, cap_pending;    /* released, and other streams hold them up */
    struct segments known;
    int64_t calls, waiting;         /* device_allocs + device_frees; bytes pending: as last looked at */
};

const char *history_name(enum history_what w)
{
    static const char *const names[] = { "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom" };

    return names[w];
}

static struct history_place place(const struct recorder *x)
{
    return (struct history_place){ x->r->iteration, x->r->op, x->r->sched };
}

static void put(struct recorder *x, enum history_what what, int64_t addr, int64_t size, int stream)
{
    struct history *h = x->h;

    if (h->n > MOST_EVENTS)
        return;
    h->event = room_for(h->event, h->n, &h->cap, sizeof *h->event);
    h->event[h->n++] = (struct history_event){ what, stream, addr, size, place(x) };
}

/* ---- what the allocator did by itself ---- */

static void take_segment(void *to, const struct caching_piece *p)
{
    struct segments *s = to;

    if (s->n == 0 || s->addr[s->n - 1] != p->segment) {
        int64_t room = s->cap;
        s->addr = room_for(s->addr, s->n, &room, sizeof *s->addr);
        room = s->cap;
        s->size = room_for(s->size, s->n, &room, sizeof *s->size);
        s->stream = room_for(s->stream, s->n, &s->cap, sizeof *s->stream);
        s->addr[s->n] = p->segment;
        s->size[s->n] = 0;
        s->stream[s->n++] = p->stream;
    }
    s->size[s->n - 1] += p->size;
}

static void segments_free(struct segments *s)
{
    free(s->addr);
    free(s->size);
    free(s->stream);
}

static bool has(const struct segments *s, int64_t addr, int64_t size)
{
    for (int64_t i = 0; i < s->n; i++)
        if (s->addr[i] == addr && s->size[i] == size)
            return true;
    return false;
}

static void put_missing(struct recorder *x, enum history_what what, const struct segments *of, const struct segments *in)
{
    for (int64_t i = 0; i < of->n; i++)
        if (!has(in, of->addr[i], of->size[i]))
            put(x, what, of->addr[i], of->size[i], of->stream[i]);
}

static void see_segments(struct recorder *x)
{
    struct segments now = { 0 };
    int64_t calls = x->stats->device_allocs + x->stats->device_frees;

    if (calls == x->calls)
        return;
    x->calls = calls;
    caching_allocator_each(x->a, take_segment, &now);
    put_missing(x, HISTORY_SEGMENT_FREE, &x->known, &now);
    put_missing(x, HISTORY_SEGMENT_ALLOC, &now, &x->known);
    segments_free(&x->known);
    x->known = now;
}

struct waiting { const struct recorder *x; bool *still; };

static void take_pending(void *to, const struct caching_piece *p)
{
    struct waiting *w = to;

    for (int64_t i = 0; p->pending && i < w->x->npending; i++)
        if (w->x->pending[i].addr == p->addr)
            w->still[i] = true;
}

/* Releases whose streams have come so far. */
static void see_completed(struct recorder *x)
{
    int64_t waiting = x->stats->active.now - x->stats->allocated.now, left = 0;

    if (waiting == x->waiting)
        return;
    x->waiting = waiting;
    struct waiting w = { x, room_new((size_t)x->npending + 1, sizeof *w.still) };
    caching_allocator_each(x->a, take_pending, &w);
    for (int64_t i = 0; i < x->npending; i++)
        if (w.still[i])
            x->pending[left++] = x->pending[i];
        else
            put(x, HISTORY_FREE_COMPLETED, x->pending[i].addr, x->pending[i].size, x->pending[i].stream);
    x->npending = left;
    free(w.still);
}

/* ---- the target ---- */

static int allocate(void *of, int64_t bytes, int stream)
{
    struct recorder *x = of;
    int block = x->replay.allocate(x->replay.of, bytes, stream);

    see_completed(x);
    see_segments(x);
    if (block < 0) {
        put(x, HISTORY_OOM, 0, bytes, stream);
        return block;
    }
    int64_t addr = caching_allocator_address(x->a, block);
    while (x->nheld <= block) {
        x->held = room_for(x->held, x->nheld, &x->cap_held, sizeof *x->held);
        x->held[x->nheld++] = (struct held){ .addr = -1 };
    }
    x->held[block] = (struct held){ addr, bytes, stream, place(x) };
    put(x, HISTORY_ALLOC, addr, bytes, stream);
    return block;
}

static void release(void *of, int block)
{
    struct recorder *x = of;
    struct held h = x->held[block];
    int64_t active = x->stats->active.now;

    x->held[block].addr = -1;
    put(x, HISTORY_FREE_REQUESTED, h.addr, h.size, h.stream);
    x->replay.release(x->replay.of, block);
    if (x->stats->active.now < active) {
        put(x, HISTORY_FREE_COMPLETED, h.addr, h.size, h.stream);
        return;
    }
    x->pending = room_for(x->pending, x->npending, &x->cap_pending, sizeof *x->pending);
    x->pending[x->npending++] = h;
    x->waiting = active - x->stats->allocated.now;
}

static void empty(void *of)
{
    struct recorder *x = of;

    x->replay.empty(x->replay.of);
    see_completed(x);
    see_segments(x);
}

static void record(void *of, int block, int stream)             { struct recorder *x = of; x->replay.record(x->replay.of, block, stream); }
static void complete(void *of, int stream, int64_t event)       { struct recorder *x = of; x->replay.complete(x->replay.of, stream, event); }
static int64_t events(void *of, int stream)                     { struct recorder *x = of; return x->replay.events(x->replay.of, stream); }
static void keep(void *of, int stream)                          { struct recorder *x = of; x->replay.keep(x->replay.of, stream); }
static void begin(void *of)                                     { ((struct recorder *)of)->h->n = 0; }

/* ---- what is held at the end ---- */

static void take_piece(void *to, const struct caching_piece *p)
{
    struct recorder *x = to;
    struct history *h = x->h;

    h->piece = room_for(h->piece, h->npieces, &h->cap_pieces, sizeof *h->piece);
    h->piece[h->npieces++] = (struct history_piece){ *p, { .op = -1 } };
}

static int by_address(const void *a, const void *b)
{
    const struct history_piece *x = a, *y = b;

    return x->is.addr < y->is.addr ? -1 : x->is.addr > y->is.addr;
}

/* Pieces are sorted by address. */
static void name_pieces(struct history *h, const struct held *of, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct history_piece key = { .is.addr = of[i].addr };
        struct history_piece *p = of[i].addr < 0 ? NULL : bsearch(&key, h->piece, (size_t)h->npieces, sizeof key, by_address);
        if (p)
            p->at = of[i].at;
    }
}

static int walk(const struct plan *p, const struct schedules *s, int64_t capacity, struct history *out)
{
    struct caching_allocator *a = caching_allocator_new(capacity, NULL);
    struct request_report r = { 0 };
    struct recorder x = { .a = a, .stats = caching_allocator_stats(a), .replay = reserved_target(a), .r = &r, .h = out };
    struct request_target t = { .of = &x, .allocate = allocate, .release = release, .record = record, .complete = complete, .events = events,
                                .stats = x.stats, .empty = empty, .keep = keep, .begin = begin };
    struct request_options options = reserved_options(p);

    requests_walk(p, s, options, &t, &r);
    out->out_of_memory = r.out_of_memory;
    out->free = capacity - x.stats->reserved.now;
    caching_allocator_each(a, take_piece, &x);
    name_pieces(out, x.held, x.nheld);
    name_pieces(out, x.pending, x.npending);
    caching_allocator_delete(a);
    free(x.held);
    free(x.pending);
    segments_free(&x.known);
    if (r.unmatched > 0)
        return fail("internal error: the replay of PyTorch's allocator frees tensors that were never made: please report this plan");
    return out->n <= MOST_EVENTS ? 0 : fail("the step makes more than %d requests: give fewer accumulation steps", MOST_EVENTS);
}

int history_of(const struct plan *p, const struct schedules *s, const struct overhead *o, struct history *out)
{
    int64_t limit = p->cluster.memory - p->cluster.context - o->by[OVERHEAD_OUTSIDE];

    memset(out, 0, sizeof *out);
    if (!reserved_is_known(p))
        return fail("a snapshot is of PyTorch's allocator on a GPU: this plan's kernels are dpx's own, its ranks are on the host, or it is a "
                    "pipeline of dialect paper");
    if (limit <= 0)
        return fail("nothing is left for PyTorch's allocator beside NCCL and the CUDA context");
    if (walk(p, s, limit, out) == 0)
        return 0;
    history_free(out);
    return -1;
}

void history_free(struct history *h)
{
    free(h->event);
    free(h->piece);
    memset(h, 0, sizeof *h);
}
