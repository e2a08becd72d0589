/* requests_again.c -- iterations of a repeat that begin as one before began: micro-steps, and what a pipeline repeats.
 *
 * What a walk does next follows from the blocks of the allocator, from which of them are which buffer and tensor, and from the
 * entries.  Buffers of micro-steps are named by how far they are from the iteration: where all of that is, number by number, what it
 * was `apart` iterations before, the next iterations make the same requests as those, and so on: they change no peak.  What is left out is a
 * multiple of `apart`; buffers get the numbers that they would have.
 *
 * Blocks of the micro-steps under way rotate, for hundreds or thousands of iterations before they come back.  So an iteration leaves
 * its trail, a number for the addresses that it got.  Where trails are those of `apart` iterations before, the state is written down, and
 * compared with the one after `apart` more: the trails say when to look, the states decide.  No address is handed out twice by a device: what
 * an iteration that asked it for memory leaves is the state itself, as one number.
 *
 * Long pipelines hardly ever come back to a state: many requests choose among equal free blocks, and there the address decides.  So a repeat
 * that asked nothing of the device for long enough, twice as many micro-steps as can be under way and at least QUIET of them, is taken to
 * ask nothing to its end, where all but addresses is what it was an iteration before.  That is a rule by measurement
 * (tests/model/test_quiet.c), no proof: after few micro-steps the holes that the optimizer's step finds are not yet those of the end, and with
 * expandable segments they never are, so that the rule is not used there (reserved.c).
 *
 * Micro-steps that name the same buffers mostly leave the state that they found, the first or the second of them: the state is compared at
 * each of the first ends.  With streams that are recorded it has what they wait for: events count by how many were recorded since, and one
 * that is done by no more than that. */
#include "model/memory/requests_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/room.h"

/* Iterations for which it is worth while, trails that are kept at most, and equal ones, or `apart`, before a state is written down; micro-steps
 * after each of which one is. */
enum { LEAST = 8, TRAILS = 1 << 16, ALIKE = 4, EACH = 4, QUIET = 1024 };

struct state {
    int64_t *of, n, room;
    int64_t iteration, retries, calls, requests, unmatched;
};

struct past {
    int64_t *shift;             /* of each family: instances by which an iteration is further on */
    int64_t steps;              /* micro-steps by which it is */
    int64_t iterations;
    uint64_t outer;             /* the trail of the iteration around the repeat */
    uint64_t *trail;            /* of iteration i: trail[i % ntrails] */
    int64_t *latest;            /* 1 + the latest iteration whose trail has this remainder */
    int64_t ntrails;            /* a power of two */
    int64_t apart, alike;       /* the last `alike` iterations left the trails of `apart` before; 0: none did */
    int64_t patience;           /* no state is written down before this iteration */
    int64_t calls;              /* of the device, when the iteration began */
    int64_t quiet, enough;      /* iterations in a row that asked it for nothing and left as much as they found; and so many of them are long enough */
    int64_t live;               /* bytes that are allocated, when it began */
    bool anywhere;              /* a state is taken without the allocator's, and says nothing of where blocks are */
    bool micro;
    bool waits;                 /* for the iteration whose state is compared with `then` */
    struct state then, now;
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

/* Does every iteration name the same instances? */
static bool is_micro_step(const struct schedules *s, int open)
{
    for (int i = open + 1; i < s->ops[open].u.repeat.other; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind == OP_REPEAT) {
            i = o->u.repeat.other;
            continue;
        }
        if (o->unit_by)
            return false;
        for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
            if (s->acts[k].by)
                return false;
    }
    return true;
}

/* Of a repeat whose iterations may come back to a state that is known; NULL: they may not. */
static int64_t *new_shifts(const struct walk *w, int open, int64_t *steps)
{
    const struct op *o = &w->s->ops[open];

    if (w->p->parallel.pipeline < 2 || !w->t->state || w->records || o->u.repeat.n < LEAST || is_micro_step(w->s, open))
        return NULL;
    int64_t *shift = room_new((size_t)w->s->nbufs, sizeof *shift);
    if (find_shifts(w->s, open, shift, steps))
        return shift;
    free(shift);
    return NULL;
}

bool requests_come_again(const struct walk *w, int open)
{
    int64_t steps = 0, *shift = new_shifts(w, open, &steps);

    free(shift);
    return shift != NULL;
}

static bool take_state(struct past *p, const struct walk *w, int64_t iterations);

/* The state that is compared with later ones is the one that was taken last. */
static void set_down(struct past *p)
{
    struct state room = p->then;

    p->then = p->now;
    p->now = room;
}

/* Iterations of so many micro-steps each. */
static int64_t quiet_enough(const struct plan *p, int64_t steps)
{
    int64_t twice = 4 * p->parallel.pipeline * p->parallel.virtual_stages, each = steps > 1 ? steps : 1;

    return ((twice > QUIET ? twice : QUIET) + each - 1) / each;
}

struct past *requests_past_new(struct walk *w, int open)
{
    bool micro = w->t->state && w->s->ops[open].u.repeat.n > 1 && is_micro_step(w->s, open);
    int64_t steps = 0, *shift = micro ? room_new((size_t)w->s->nbufs, sizeof *shift) : new_shifts(w, open, &steps);

    if (!shift)
        return NULL;
    struct past *p = room_new(1, sizeof *p);
    *p = (struct past){ .shift = shift, .steps = steps, .iterations = w->s->ops[open].u.repeat.n, .outer = w->trail, .micro = micro };
    for (p->ntrails = LEAST; p->ntrails < p->iterations && p->ntrails < TRAILS;)
        p->ntrails *= 2;
    p->trail = room_new((size_t)p->ntrails, sizeof *p->trail);
    p->latest = room_new((size_t)p->ntrails, sizeof *p->latest);
    p->calls = requests_device_calls(w->t->stats);
    p->enough = quiet_enough(w->p, steps);
    p->live = w->t->stats->allocated.now;
    w->trail = HASH_BEGIN;
    w->pasts++;
    if (micro && take_state(p, w, 0))
        set_down(p);
    return p;
}

void requests_past_free(struct past *p, struct walk *w)
{
    if (!p)
        return;
    w->pasts--;
    w->trail = hash_mix(p->outer, w->trail);
    free(p->then.of);
    free(p->now.of);
    free(p->trail);
    free(p->latest);
    free(p->shift);
    free(p);
}

/* ---- trails ---- */

static bool left_trail(const struct past *p, int64_t iteration, uint64_t trail) { return p->trail[iteration & (p->ntrails - 1)] == trail; }

/* Iterations from i back to the latest one that left this trail; 0: none did. */
static int64_t since(const struct past *p, int64_t i, uint64_t trail)
{
    int64_t then = p->latest[trail & (uint64_t)(p->ntrails - 1)] - 1;

    return then >= 0 && i - then < p->ntrails && left_trail(p, then, trail) ? i - then : 0;
}

static void note_trail(struct past *p, int64_t i, uint64_t trail)
{
    if (p->apart && left_trail(p, i - p->apart, trail)) {
        p->alike++;
    } else {
        p->apart = since(p, i, trail);
        p->alike = p->apart > 0;
        p->waits = false;
    }
    p->latest[trail & (uint64_t)(p->ntrails - 1)] = i + 1;
    p->trail[i & (p->ntrails - 1)] = trail;
}

/* ---- a state ---- */

static void put(struct past *p, int64_t number)
{
    p->now.of = room_for(p->now.of, p->now.n, &p->now.room, sizeof *p->now.of);
    p->now.of[p->now.n++] = number;
}

static void put_block(struct past *p, const struct walk *w, int block)
{
    put(p, block == NONE ? NONE : p->anywhere ? 0 : w->t->number(w->t->of, block));
}

/* Events of a stream that something waits for: what is done needs no waiting. */
static void put_events(struct past *p, const struct walk *w, const int64_t of[NSTREAM])
{
    for (int s = 0; s < NSTREAM; s++) {
        int64_t done = w->t->completed(w->t->of, s);
        put(p, (of[s] > done ? of[s] : done) - w->t->events(w->t->of, s));
    }
}

static void put_streams(struct past *p, const struct walk *w)
{
    for (int s = 0; s < NSTREAM; s++)
        put_events(p, w, w->known[s]);
    for (int e = 0; e <= w->s->nevents; e++) {
        put_events(p, w, w->at_event[e]);
        put_events(p, w, w->issued[e]);
    }
    put_events(p, w, w->pace);
}

static bool put_target(struct past *p, const struct walk *w)
{
    int64_t n = w->t->state(w->t->of, NULL);

    if (n < 0)
        return false;
    p->now.of = room_for(p->now.of, n, &p->now.room, sizeof *p->now.of);
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

static bool take_state(struct past *p, const struct walk *w, int64_t iterations)
{
    p->now.n = 0;
    if (!p->anywhere && !put_target(p, w))
        return false;
    put_tensors(p, w, iterations);
    put_instances(p, w, iterations);
    for (int i = 0; i < w->npending; i++) {
        int f = w->instances[w->pending[i]].family;
        put(p, (int64_t)f << 32 | before_moves(p, w, f, w->pending[i] - w->first[f], iterations));
    }
    for (int i = 0; i < NPOOL * NPASS; i++)
        put_block(p, w, w->workspace[i / NPASS][i % NPASS]);
    put(p, w->captures);
    if (w->records)
        put_streams(p, w);
    p->now.iteration = iterations;
    p->now.retries = w->t->stats->retries;
    p->now.calls = requests_device_calls(w->t->stats);
    p->now.requests = w->out->requests;
    p->now.unmatched = w->out->unmatched;
    return true;
}

/* ---- a jump ---- */

/* Instances of a family get the numbers that they have so many iterations later. */
static void renumber(const struct past *p, struct walk *w, int family, int64_t iterations)
{
    const struct buf *b = &w->s->bufs[family];
    struct instance *from = &w->instances[w->first[family]], *to = room_new((size_t)b->count, sizeof *to);

    for (int64_t i = 0; i < b->count; i++)
        to[i].family = family;
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

static void jump(const struct past *p, struct walk *w, int64_t times)
{
    const struct state *then = &p->then;
    int64_t iterations = times * p->apart;

    for (int i = 0; i < w->npending; i++) {
        int f = w->instances[w->pending[i]].family;
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

/* The state is the one of `apart` iterations before. */
static bool is_again(struct past *p, const struct walk *w, int64_t iterations)
{
    return take_state(p, w, iterations) && p->now.n == p->then.n && !memcmp(p->now.of, p->then.of, (size_t)p->now.n * sizeof *p->now.of);
}

static void write_down(struct past *p, const struct walk *w, int64_t iterations)
{
    p->waits = take_state(p, w, iterations);
    if (p->waits)
        set_down(p);
    else
        p->patience = 2 * iterations;
}

/* What is left but for less than `apart` is left out. */
static int64_t leave_out(struct past *p, struct walk *w, int64_t left)
{
    int64_t times = left / p->apart;

    jump(p, w, times);
    p->iterations = 0;
    return times * p->apart;
}

/* Iteration i has ended; so many are left out if they are to be expected to ask the device for nothing. */
static int64_t skip_quiet(struct past *p, struct walk *w, int64_t i)
{
    int64_t left = p->iterations - (i + 1), skipped = 0;
    bool alike = requests_device_calls(w->t->stats) == p->calls && w->t->stats->allocated.now == p->live;

    p->quiet = alike ? p->quiet + 1 : 0;
    p->live = w->t->stats->allocated.now;
    if (p->micro || w->o.proven || p->quiet < p->enough || left < 1)
        return 0;
    p->anywhere = true;
    p->waits = false;
    if (p->quiet == p->enough) {
        if (take_state(p, w, i + 1))
            set_down(p);
    } else if (is_again(p, w, i + 1)) {
        p->apart = 1;
        skipped = leave_out(p, w, left);
    } else {
        p->quiet = 0;
    }
    p->anywhere = false;
    return skipped;
}

/* One of the first micro-steps has ended. */
static int64_t skip_alike(struct past *p, struct walk *w, int64_t i)
{
    bool again = is_again(p, w, i + 1);

    p->apart = again;
    if (again)
        return leave_out(p, w, p->iterations - (i + 1));
    set_down(p);
    return 0;
}

static uint64_t trail_of(struct past *p, const struct walk *w, int64_t iterations)
{
    int64_t calls = p->calls;
    uint64_t trail = HASH_BEGIN;

    p->calls = requests_device_calls(w->t->stats);
    if (p->calls == calls || !take_state(p, w, iterations))
        return w->trail;
    for (int64_t k = 0; k < p->now.n; k++)
        trail = hash_mix(trail, (uint64_t)p->now.of[k]);
    return trail;
}

int64_t requests_past_skip(struct past *p, struct walk *w, int64_t i)
{
    int64_t left = p->iterations - (i + 1);

    int64_t quiet = skip_quiet(p, w, i);

    if (quiet > 0)
        return quiet;
    note_trail(p, i, trail_of(p, w, i + 1));
    w->trail = HASH_BEGIN;
    if (p->micro && i < EACH && left > 0)
        return skip_alike(p, w, i);
    if (p->waits && i + 1 == p->then.iteration + p->apart) {
        p->waits = false;
        if (is_again(p, w, i + 1))
            return leave_out(p, w, left);
        p->patience = 2 * (i + 1);
    }
    if (!p->waits && p->apart && left >= 2 * p->apart && i >= p->patience && (p->alike >= ALIKE || p->alike >= p->apart))
        write_down(p, w, i + 1);
    return 0;
}
