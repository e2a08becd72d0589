/* requests_again.c -- iterations of a repeat that begin as one before began.
 *
 * What a walk does next follows from the blocks of the allocator, from which of them are which buffer and tensor, and from the
 * entries.  Buffers of micro-steps are named by how far they are from the iteration: where all of that is, number by number, what it
 * was `apart` iterations before, the next iterations make the same requests as those, and so on: they change no peak.  What is left out is a
 * multiple of `apart`; buffers get the numbers that they would have. */
#include "model/memory/requests_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/room.h"

/* States that are kept, and iterations for which it is worth while. */
enum { STATES = 96, LEAST = 8 };

struct state {
    int64_t *of, n;
    uint64_t hash;
    int64_t iteration, retries, calls, requests, unmatched;
};

struct past {
    int64_t *shift;             /* of each family: instances by which an iteration is further on */
    int64_t steps;              /* micro-steps by which it is */
    int64_t iterations;
    int64_t requested;          /* when the iteration before ended; -1: none has */
    struct state state[STATES];
    int n;
    struct state now;           /* room for the next one */
    int64_t room;
};

/* ---- which instances move ---- */

/* False where the acts on a family, or micro-steps, move differently, or an entry is another block's in each iteration. */
static bool find_shifts(const struct schedules *s, int open, int64_t *shift, int64_t *steps)
{
    bool *seen = room_new((size_t)s->nbufs, sizeof *seen), even = true, passes = false;

    for (int i = open + 1, depth = 0; even && i < s->ops[open].u.repeat.other; i++) {
        const struct op *o = &s->ops[i];
        depth += o->kind == OP_REPEAT ? 1 : o->kind == OP_END ? -1 : 0;
        even = o->kind != OP_COMPUTE || depth || !o->unit_by || !piece_is_block(o->u.compute.piece);
        even &= o->kind != OP_COMPUTE || !passes || *steps == o->step_by;
        if (o->kind == OP_COMPUTE) {
            passes = true;
            *steps = o->step_by;
        }
        for (uint32_t k = o->act0; even && k < o->act0 + o->nacts; k++) {
            const struct act *a = &s->acts[k];
            int by = depth ? 0 : a->by;
            even = s->bufs[a->buf].space == SPACE_DEVICE && !(o->kind == OP_COPY && s->bufs[a->buf].category == CAT_ACTIVATIONS);
            if (!requests_walks(&s->bufs[a->buf]))
                continue;
            even &= !seen[a->buf] || shift[a->buf] == by;
            seen[a->buf] = true;
            shift[a->buf] = by;
        }
    }
    free(seen);
    return even;
}

struct past *requests_past_new(const struct walk *w, int open)
{
    struct past *p;

    if (w->p->parallel.pipeline < 2 || !w->t->state || w->records || w->s->ops[open].u.repeat.n < LEAST)
        return NULL;
    p = room_new(1, sizeof *p);
    p->iterations = w->s->ops[open].u.repeat.n;
    p->requested = -1;
    p->shift = room_new((size_t)w->s->nbufs, sizeof *p->shift);
    if (find_shifts(w->s, open, p->shift, &p->steps))
        return p;
    requests_past_free(p);
    return NULL;
}

void requests_past_free(struct past *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        free(p->state[i].of);
    free(p->now.of);
    free(p->shift);
    free(p);
}

/* ---- a state ---- */

static void put(struct past *p, int64_t number)
{
    p->now.of = room_for(p->now.of, p->now.n, &p->room, sizeof *p->now.of);
    p->now.of[p->now.n++] = number;
}

static void put_block(struct past *p, const struct walk *w, int block) { put(p, block == NONE ? NONE : w->t->address(w->t->of, block)); }

static bool put_target(struct past *p, const struct walk *w)
{
    int64_t n = w->t->state(w->t->of, NULL);

    if (n < 0)
        return false;
    p->now.of = room_for(p->now.of, n, &p->room, sizeof *p->now.of);
    p->now.n = w->t->state(w->t->of, p->now.of);
    return true;
}

static void put_tensors(struct past *p, const struct walk *w, int64_t iterations)
{
    for (int i = w->all.oldest; i != NONE; i = w->tensors[i].in[ALL].newer) {
        const struct made *t = &w->tensors[i];
        put(p, (int64_t)t->tensor << 32 | (int64_t)(uint32_t)t->owner);
        put(p, (int64_t)t->chunk << 32 | (int64_t)(uint32_t)(t->step - p->steps * iterations));
        put(p, t->bytes);
        put(p, (int64_t)t->mem | (int64_t)t->pass << 8 | (int64_t)t->handed_on << 16 | (int64_t)t->left << 17 | (int64_t)t->kept << 19);
        put_block(p, w, t->block);
    }
    put(p, NONE);
}

/* The instance of a family that is `i` after so many iterations, as it would be numbered after none. */
static int64_t before_moves(const struct past *p, const struct walk *w, int family, int64_t i, int64_t iterations)
{
    const struct buf *b = &w->s->bufs[family];
    int64_t was = i - p->shift[family] * iterations;

    return b->cyclic ? (was % b->count + b->count) % b->count : was;
}

static void put_instance(struct past *p, const struct walk *w, int family, int64_t i, int64_t iterations)
{
    const struct instance *x = &w->instances[w->first[family] + i];

    if (x->n == 0 && x->pending == 0)
        return;
    put(p, (int64_t)family << 32 | (int64_t)x->stream << 16 | x->uses);
    put(p, before_moves(p, w, family, i, iterations));
    put(p, x->pending);
    put(p, x->n);
    for (int k = 0; k < x->n; k++)
        put_block(p, w, x->block[k]);
}

/* In the order in which they were numbered at first. */
static void put_instances(struct past *p, const struct walk *w, int64_t iterations)
{
    for (int f = 0; f < w->s->nbufs; f++) {
        const struct buf *b = &w->s->bufs[f];
        int64_t from = b->cyclic ? (p->shift[f] * iterations % b->count + b->count) % b->count : 0;
        for (int64_t i = 0; i < b->count && requests_walks(b); i++)
            put_instance(p, w, f, (from + i) % b->count, iterations);
    }
}

static int family_of(const struct walk *w, int instance)
{
    int low = 0, high = w->s->nbufs;

    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(w->first[middle] <= instance ? &low : &high) = middle;
    }
    return low;
}

static bool take_state(struct past *p, const struct walk *w, int64_t iterations)
{
    if (!put_target(p, w))
        return false;
    put_tensors(p, w, iterations);
    put_instances(p, w, iterations);
    for (int i = 0; i < w->npending; i++) {
        int f = family_of(w, w->pending[i]);
        put(p, (int64_t)f << 32 | before_moves(p, w, f, w->pending[i] - w->first[f], iterations));
    }
    for (int i = 0; i < NPOOL * NPASS; i++)
        put_block(p, w, w->workspace[i / NPASS][i % NPASS]);
    put(p, w->captures);
    p->now.hash = HASH_BEGIN;
    for (int64_t i = 0; i < p->now.n; i++)
        p->now.hash = hash_mix(p->now.hash, (uint64_t)p->now.of[i]);
    p->now.iteration = iterations;
    p->now.retries = w->t->stats->retries;
    p->now.calls = requests_device_calls(w->t->stats);
    p->now.requests = w->out->requests;
    p->now.unmatched = w->out->unmatched;
    return true;
}

/* The same state of before; NULL. */
static const struct state *find(const struct past *p)
{
    for (int i = p->n - 1; i >= 0; i--) {
        const struct state *s = &p->state[i];
        if (s->hash == p->now.hash && s->n == p->now.n && !memcmp(s->of, p->now.of, (size_t)s->n * sizeof *s->of))
            return s;
    }
    return NULL;
}

/* ---- a jump ---- */

/* Instances of a family get the numbers that they have so many iterations later. */
static void renumber(const struct past *p, struct walk *w, int family, int64_t iterations)
{
    const struct buf *b = &w->s->bufs[family];
    struct instance *from = &w->instances[w->first[family]], *to = room_new((size_t)b->count, sizeof *to);

    for (int64_t i = 0; i < b->count; i++) {
        int64_t at = before_moves(p, w, family, i, -iterations);
        if (at >= 0 && at < b->count)
            to[at] = from[i];
        else
            free(from[i].block);        /* long dead: room for its blocks alone */
    }
    memcpy(from, to, (size_t)b->count * sizeof *to);
    free(to);
}

static void jump(const struct past *p, struct walk *w, const struct state *then, int64_t times)
{
    int64_t iterations = times * (p->now.iteration - then->iteration);

    for (int i = 0; i < w->npending; i++) {
        int f = family_of(w, w->pending[i]);
        w->pending[i] = w->first[f] + (int)before_moves(p, w, f, w->pending[i] - w->first[f], -iterations);
    }
    for (int f = 0; f < w->s->nbufs; f++)
        if (p->shift[f] && requests_walks(&w->s->bufs[f]))
            renumber(p, w, f, iterations);
    requests_tensors_shift(w, p->steps * iterations);
    w->skipped_retries += times * (p->now.retries - then->retries);
    w->skipped_calls += times * (p->now.calls - then->calls);
    w->out->requests += times * (p->now.requests - then->requests);
    w->out->unmatched += times * (p->now.unmatched - then->unmatched);
}

int64_t requests_past_skip(struct past *p, struct walk *w, int64_t i)
{
    int64_t left = p->iterations - (i + 1), requested = w->t->stats->requested.now;
    bool grows = requested != p->requested;     /* then the state does, too, and cannot be one of before */

    p->requested = requested;
    if (left < 1 || grows || !take_state(p, w, i + 1))
        return 0;
    const struct state *then = find(p);
    if (then) {
        int64_t apart = i + 1 - then->iteration, times = left / apart;
        jump(p, w, then, times);
        p->iterations = 0;              /* what is left is less than `apart` */
        return times * apart;
    }
    if (p->n == STATES) {               /* the older half goes */
        for (int k = 0; k < STATES / 2; k++)
            free(p->state[k].of);
        memmove(p->state, p->state + STATES / 2, STATES / 2 * sizeof *p->state);
        p->n = STATES / 2;
    }
    p->state[p->n++] = p->now;
    p->now = (struct state){ 0 };
    p->room = 0;
    return 0;
}
