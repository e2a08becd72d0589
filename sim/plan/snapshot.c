/* snapshot.c -- see snapshot.h.  Keys are those of torch/csrc/cuda/memory_snapshot.cpp; a viewer's numbers have 53 bits, so addresses are
 * taken modulo 2^47, which is more memory than a device has. */
#include "sim/plan/snapshot.h"

#include <stdio.h>

#include "base/output.h"
#include "base/pickle.h"
#include "model/memory/evaluate.h"
#include "model/memory/history.h"

#define ADDRESSES ((int64_t)1 << 47)

struct writer { struct pickle p; const struct schedules *s; const struct history *h; };

static void number(struct writer *w, const char *key, int64_t v)
{
    pickle_text(&w->p, key);
    pickle_int(&w->p, v);
}

static void text(struct writer *w, const char *key, const char *v)
{
    pickle_text(&w->p, key);
    pickle_text(&w->p, v);
}

/* PyTorch's default stream, on which all but collectives and copies are, is 0. */
static void stream(struct writer *w, int of) { number(w, "stream", of == STREAM_COMPUTE ? 0 : of); }
static void address(struct writer *w, const char *key, int64_t v) { number(w, key, v & (ADDRESSES - 1)); }

/* One frame; none of what is free. */
static void frames(struct writer *w, const struct history_place *at)
{
    char words[96], where[64];

    pickle_text(&w->p, "frames");
    pickle_open(&w->p, PICKLE_LIST);
    if (at && at->op >= 0) {
        evaluation_op_in_words(w->s, at->op, at->iteration, words, sizeof words);
        snprintf(where, sizeof where, "dpx, %s step", sched_name(at->sched));
        pickle_open(&w->p, PICKLE_DICT);
        text(w, "name", words);
        text(w, "filename", where);
        number(w, "line", at->op);
        pickle_close(&w->p, PICKLE_DICT);
    }
    pickle_close(&w->p, PICKLE_LIST);
}

/* ---- what is held at the end ---- */

static void block(struct writer *w, const struct history_piece *b)
{
    pickle_open(&w->p, PICKLE_DICT);
    address(w, "address", b->is.addr);
    number(w, "size", b->is.size);
    number(w, "requested_size", b->is.requested);
    text(w, "state", b->is.allocated ? "active_allocated" : b->is.pending ? "active_pending_free" : "inactive");
    frames(w, &b->at);
    pickle_close(&w->p, PICKLE_DICT);
}

/* Pieces [from, to) of one segment. */
static void segment(struct writer *w, int64_t from, int64_t to)
{
    const struct history_piece *b = w->h->piece;
    int64_t total = 0, allocated = 0, active = 0, requested = 0;

    for (int64_t i = from; i < to; i++) {
        total += b[i].is.size;
        allocated += b[i].is.allocated ? b[i].is.size : 0;
        active += b[i].is.allocated || b[i].is.pending ? b[i].is.size : 0;
        requested += b[i].is.requested;
    }
    pickle_open(&w->p, PICKLE_DICT);
    number(w, "device", 0);
    address(w, "address", b[from].is.segment);
    number(w, "total_size", total);
    number(w, "allocated_size", allocated);
    number(w, "active_size", active);
    number(w, "requested_size", requested);
    stream(w, b[from].is.stream);
    text(w, "segment_type", b[from].is.small ? "small" : "large");
    pickle_text(&w->p, "is_expandable");
    pickle_false(&w->p);
    frames(w, NULL);
    pickle_text(&w->p, "blocks");
    pickle_open(&w->p, PICKLE_LIST);
    for (int64_t i = from; i < to; i++) {
        pickle_element(&w->p, i - from);
        block(w, &b[i]);
    }
    pickle_close(&w->p, PICKLE_LIST);
    pickle_close(&w->p, PICKLE_DICT);
}

static void segments(struct writer *w)
{
    int64_t n = 0;

    pickle_text(&w->p, "segments");
    pickle_open(&w->p, PICKLE_LIST);
    for (int64_t from = 0, to; from < w->h->npieces; from = to) {
        for (to = from + 1; to < w->h->npieces && w->h->piece[to].is.segment == w->h->piece[from].is.segment;)
            to++;
        pickle_element(&w->p, n++);
        segment(w, from, to);
    }
    pickle_close(&w->p, PICKLE_LIST);
}

/* ---- what was done ---- */

static void event(struct writer *w, const struct history_event *e)
{
    pickle_open(&w->p, PICKLE_DICT);
    text(w, "action", history_name(e->what));
    if (e->what == HISTORY_OOM)
        number(w, "device_free", w->h->free);
    else
        address(w, "addr", e->addr);
    number(w, "size", e->size);
    stream(w, e->stream);
    frames(w, &e->at);
    pickle_close(&w->p, PICKLE_DICT);
}

static void traces(struct writer *w)
{
    pickle_text(&w->p, "device_traces");
    pickle_open(&w->p, PICKLE_LIST);
    pickle_open(&w->p, PICKLE_LIST);
    for (int64_t i = 0; i < w->h->n; i++) {
        pickle_element(&w->p, i);
        event(w, &w->h->event[i]);
    }
    pickle_close(&w->p, PICKLE_LIST);
    pickle_close(&w->p, PICKLE_LIST);
}

int snapshot_write(const struct plan *p, const struct schedules *s, const struct overhead *o, const char *path)
{
    struct history h;
    struct output out;
    int rc = -1;

    if (history_of(p, s, o, &h) < 0)
        return -1;
    if (output_open(&out, path) == 0) {
        struct writer w = { pickle_begin(out.f), s, &h };
        pickle_open(&w.p, PICKLE_DICT);
        segments(&w);
        traces(&w);
        pickle_close(&w.p, PICKLE_DICT);
        pickle_end(&w.p);
        rc = output_close(&out);
    }
    history_free(&h);
    return rc;
}
