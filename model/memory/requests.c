/* requests.c -- see requests.h.  Buffers are struct instance, what kernels allocate struct made. */
#include "model/memory/requests_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/room.h"
#include "model/plan/framework.h"
#include "model/plan/graphs.h"

/* ---- requests ---- */

int requests_request(struct walk *w, int64_t bytes, int stream)
{
    int block;

    if (w->over)
        return NONE;
    block = w->t->allocate(w->t->of, bytes, stream);
    w->out->requests++;
    w->over = block < 0;
    w->out->refused = w->over ? bytes : 0;
    if (w->pasts && !w->over)
        w->trail = hash_mix(w->trail, (uint64_t)w->t->address(w->t->of, block));
    return block;
}

/* A request that is given back at once. */
static void touch(struct walk *w, int64_t bytes, int stream)
{
    if (w->over)
        return;
    w->over = w->t->touch(w->t->of, bytes, stream) < 0;
    w->out->requests++;
    w->out->refused = w->over ? bytes : 0;
}

void requests_give_back(struct walk *w, int block)
{
    if (block != NONE && !w->over)
        w->t->release(w->t->of, block);
}

/* The allocator's stream: what a model is built of, moved and flattened comes from the current one. */
static enum stream pool_of(const struct walk *w, const struct op *o)
{
    bool pair = o->stream == STREAM_PREVIOUS || o->stream == STREAM_NEXT;
    bool current = o->stream == STREAM_ISSUE || o->stream == STREAM_GROUP || pair || w->out->sched == SCHED_INIT;

    return current ? STREAM_COMPUTE : (enum stream)o->stream;
}

/* ---- buffers ---- */

/* The k-th instance that an act is about. */
static int instance_of(const struct walk *w, const struct act *a, int64_t iteration, int k)
{
    const struct buf *b = &w->s->bufs[a->buf];
    int64_t i = sched_instance(w->s, a, iteration) + k;

    return w->first[a->buf] + (int)(b->cyclic ? i % b->count : i);
}

static void add_block(struct instance *x, int block)
{
    x->block = room_for(x->block, x->n, &x->cap, sizeof *x->block);
    x->block[x->n++] = block;
}

/* Each part behind the temporary that it is a copy of. */
static void allocate_copies(struct walk *w, const struct buf *b, struct instance *x, int pool)
{
    int before = NONE;

    for (int i = 0; i < b->nparts; i++) {
        int from = requests_request(w, w->s->parts[b->part0 + i], pool);
        requests_give_back(w, before);
        add_block(x, requests_request(w, w->s->parts[b->part0 + i], pool));
        before = from;
    }
    requests_give_back(w, before);
}

/* The instance's parts but the last `late`, in a row. */
static void allocate_parts(struct walk *w, const struct buf *b, struct instance *x, int pool)
{
    const int64_t *bytes = w->s->parts + b->part0;
    int n = b->nparts - b->late, done;

    if (!w->t->serve || w->over) {
        for (int i = 0; i < n; i++)
            add_block(x, requests_request(w, bytes[i], pool));
        return;
    }
    w->parts = room_for(w->parts, n, &w->cap_parts, sizeof *w->parts);
    x->block = room_for(x->block, x->n + n, &x->cap, sizeof *x->block);
    for (int i = 0; i < n; i++)
        w->parts[i] = (struct caching_step){ bytes[i], i, CACHING_MALLOC };
    done = w->t->serve(w->t->of, w->parts, n, pool, x->block + x->n, w->pasts ? &w->trail : NULL);
    x->n += done;
    w->over = done < n;
    w->out->refused = w->over ? bytes[done] : 0;
    w->out->requests += done + w->over;
}

static void allocate_instance(struct walk *w, const struct buf *b, struct instance *x, const struct op *o)
{
    int pool = (w->captures && graphs_of_step(w->p) && op_is_of_passes(o)) ? GRAPH_POOL : (int)pool_of(w, o);

    x->stream = (uint8_t)pool_of(w, o);
    x->uses = 0;
    if (b->copied) {
        allocate_copies(w, b, x, pool);
        return;
    }
    if (b->nparts > b->late)
        allocate_parts(w, b, x, pool);
    if (b->nparts == 0 && b->bytes > 0)
        add_block(x, requests_request(w, b->bytes, pool));
}

/* What of the buffers of acts [from, to) comes behind all of them. */
static void allocate_late(struct walk *w, const struct op *o, int64_t iteration, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const struct act *a = &w->s->acts[i];
        const struct buf *b = &w->s->bufs[a->buf];
        for (int k = 0; k < a->n && a->what & ACT_ALLOC && b->late && b->space == SPACE_DEVICE; k++)
            for (int part = b->nparts - b->late; part < b->nparts; part++)
                add_block(&w->instances[instance_of(w, a, iteration, k)], requests_request(w, w->s->parts[b->part0 + part], (int)pool_of(w, o)));
    }
}

/* A buffer of gradients that the kernels of this and later entries bring. */
static void await_gradients(struct walk *w, const struct buf *b, int instance)
{
    struct instance *x = &w->instances[instance];

    x->stream = STREAM_COMPUTE;
    x->uses = 0;
    x->pending = b->bytes;
    if (b->bytes == 0)
        return;
    w->pending = room_for(w->pending, w->npending, &w->cap_pending, sizeof *w->pending);
    w->pending[w->npending++] = instance;
}

static void stop_awaiting(struct walk *w, int i)
{
    w->npending--;
    memmove(w->pending + i, w->pending + i + 1, (size_t)(w->npending - i) * sizeof *w->pending);
}

/* A buffer that stands for the head's part of a tied gradient: the tensor that waits for the embedding's. */
static void free_waiting(struct walk *w, int64_t bytes);

void requests_free_instance(struct walk *w, int instance)
{
    struct instance *x = &w->instances[instance];

    for (int i = 0; i < x->n; i++) {
        for (unsigned uses = w->records && !w->over ? x->uses : 0; uses; uses &= uses - 1)
            w->t->record(w->t->of, x->block[i], __builtin_ctz(uses));
        requests_give_back(w, x->block[i]);
    }
    x->n = 0;
    if (x->pending == 0)
        return;
    free_waiting(w, x->pending);
    x->pending = 0;
    for (int i = 0; i < w->npending; i++)
        if (w->pending[i] == instance)
            stop_awaiting(w, i);
}

/* Buffers that one stream fills for another: gathered parameters, gradients to be reduced, and collective buffers. */
static bool is_recorded(const struct buf *b)
{
    return b->category >= CAT_UNSHARDED && b->category <= CAT_BUCKET;
}

_Static_assert(CAT_UNSHARDED < CAT_UNSHARDED_GRADS && CAT_UNSHARDED_GRADS < CAT_ALL_GATHER &&
               CAT_ALL_GATHER < CAT_REDUCE_SCATTER && CAT_REDUCE_SCATTER < CAT_BUCKET, "is_recorded()");

static bool is_granted(const struct op *o, const struct buf *b)
{
    return o->kind == OP_COMPUTE && o->u.compute.fate == GRADS_KEEP && b->category == (enum category)o->u.compute.grads;
}

/* ---- moves to and from other memories ---- */

static void move_tensor(struct walk *w, const struct op *o, int what, struct made *t)
{
    if (what == ACT_FREE) {
        requests_give_back(w, t->block);
        t->block = NONE;
    } else {
        t->block = requests_request(w, t->bytes, pool_of(w, o));
    }
}

/* What a block keeps leaves the device, or comes back: its own tensors, and its input, the newest that the piece before handed on: an embedding
 * hands on what it added up as well. */
static void move_kept(struct walk *w, const struct op *o, int what, int block)
{
    const int before = block > 0 ? block - 1 : EMBEDDING;
    const bool there = what == ACT_FREE;

    for (int i = requests_of_owner(w, before)->newest; i != NONE; i = w->tensors[i].in[OWN].older) {
        struct made *t = &w->tensors[i];
        bool handed_on = requests_is_of_pass(w, t) && t->mem == MEM_ACTIVATIONS && !t->left && t->handed_on;
        if (handed_on && t->bytes == w->s->program.boundary && (t->block != NONE) == there) {
            move_tensor(w, o, what, t);
            break;
        }
    }
    for (int i = requests_of_owner(w, block)->oldest; i != NONE; i = w->tensors[i].in[OWN].newer) {
        struct made *t = &w->tensors[i];
        if (requests_is_of_pass(w, t) && t->mem == MEM_ACTIVATIONS && !t->left && !t->handed_on && (t->block != NONE) == there)
            move_tensor(w, o, what, t);
    }
}

/* Only what lies in device memory is PyTorch's allocator's. */
static void act_on(struct walk *w, const struct op *o, int what, int64_t iteration)
{
    uint32_t alike = o->act0;           /* since when acts are on buffers of one category */
    bool late = false;                  /* some of these have parts that come behind them all */

    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &w->s->acts[i];
        const struct buf *b = &w->s->bufs[a->buf];
        if (what == ACT_ALLOC && b->category != w->s->bufs[w->s->acts[alike].buf].category) {
            if (late)
                allocate_late(w, o, iteration, alike, i);
            alike = i;
            late = false;
        }
        late |= b->late > 0;
        if (!(a->what & what) || b->space != SPACE_DEVICE || b->stands || (w->forward && category_is_of_training(b->category)))
            continue;
        if (b->category == CAT_ACTIVATIONS) {
            if (o->kind == OP_COPY && what != ACT_USE)
                move_kept(w, o, what, (int)sched_instance(w->s, a, iteration));
            continue;
        }
        for (int k = 0; k < a->n; k++) {
            int instance = instance_of(w, a, iteration, k);
            struct instance *x = &w->instances[instance];
            if (what == ACT_FREE)
                requests_free_instance(w, instance);
            else if (what == ACT_USE && is_recorded(b) && pool_of(w, o) != x->stream)
                x->uses |= AFTER(pool_of(w, o));
            else if (what == ACT_ALLOC && is_granted(o, b))
                await_gradients(w, b, instance);
            else if (what == ACT_ALLOC)
                allocate_instance(w, b, x, o);
        }
    }
    if (what == ACT_ALLOC && late)
        allocate_late(w, o, iteration, alike, o->act0 + o->nacts);
}

/* ---- what kernels allocate ---- */

static void free_tensor(struct walk *w, int i)
{
    if (i == NONE) {
        w->out->unmatched++;
        return;
    }
    requests_give_back(w, w->tensors[i].block);
    requests_tensor_forget(w, i);
}

static bool waits(const struct made *t) { return t->mem == MEM_GRADS && t->handed_on; }

/* One tensor, or several: of the root's gradients that a recorded unit's backward makes. */
static void free_waiting(struct walk *w, int64_t bytes)
{
    for (int i = w->all.newest; i != NONE; i = w->tensors[i].in[ALL].older)
        if (waits(&w->tensors[i]) && w->tensors[i].bytes == bytes) {
            free_tensor(w, i);
            return;
        }
    for (int i = w->all.newest, older; i != NONE && bytes > 0; i = older) {
        older = w->tensors[i].in[ALL].older;
        if (waits(&w->tensors[i]) && w->tensors[i].bytes <= bytes) {
            bytes -= w->tensors[i].bytes;
            free_tensor(w, i);
        }
    }
    if (bytes > 0)
        free_tensor(w, NONE);
}

static int request_tensor(struct walk *w, const struct op *o, const struct move *m)
{
    if (m->mem == MEM_GRADS && o->u.compute.fate == GRADS_IN_PLACE)
        return NONE;
    return requests_request(w, m->bytes, w->captured ? GRAPH_POOL : STREAM_COMPUTE);
}

static void make_tensor(struct walk *w, const struct op *o, const struct move *m, int owner)
{
    struct made t = {
        .tensor = m->tensor, .bytes = m->bytes, .owner = owner, .mem = m->mem, .block = request_tensor(w, o, m), .pass = o->u.compute.pass,
        .handed_on = m->handed_on, .left = m->left, .chunk = o->chunk, .step = w->step,
        .kept = o->u.compute.fate == GRADS_KEEP };

    requests_tensor_add(w, &t);
}

static void free_left(struct walk *w, enum left which)
{
    for (int i = w->all.newest, older; i != NONE; i = older) {
        older = w->tensors[i].in[ALL].older;
        if (w->tensors[i].left == which)
            free_tensor(w, i);
    }
}

/* 2: the entry allocates the buffer, 1: it names it, 0: neither. */
static int names(const struct walk *w, const struct op *o, int64_t iteration, int instance)
{
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &w->s->acts[i];
        for (int k = 0; requests_walks(&w->s->bufs[a->buf]) && k < a->n; k++)
            if (instance == instance_of(w, a, iteration, k))
                return a->what & ACT_ALLOC ? 2 : 1;
    }
    return 0;
}

/* The buffer that waits for so many bytes: first choice is one of experts' gradients for those, then one that the entry allocates or names,
 * then one of exactly these bytes, then the oldest. */
static int awaiting(const struct walk *w, const struct op *o, int64_t bytes, bool experts)
{
    int best = NONE, score = -1;

    for (int i = 0; i < w->npending; i++) {
        int64_t room = w->instances[w->pending[i]].pending;
        bool apart = w->s->bufs[w->instances[w->pending[i]].family].experts;
        int s = 8 * apart + 2 * names(w, o, w->iteration, w->pending[i]) + (room == bytes);
        if (room >= bytes && s > score && (experts || !apart)) {
            best = i;
            score = s;
        }
    }
    return best;
}

static void to_buffer(struct walk *w, const struct op *o, const struct made *t, bool experts)
{
    int to = awaiting(w, o, t->bytes, experts);

    if (to == NONE) {
        w->out->unmatched++;
        requests_give_back(w, t->block);
        return;
    }
    struct instance *x = &w->instances[w->pending[to]];
    add_block(x, t->block);
    x->pending -= t->bytes;
    if (x->pending == 0)
        stop_awaiting(w, to);
}

static void hand_out(struct walk *w, const struct op *o, int i, bool experts)
{
    if (i == NONE) {
        w->out->unmatched++;
        return;
    }
    if (o->u.compute.fate == GRADS_KEEP) {
        to_buffer(w, o, &w->tensors[i], experts);
    } else {
        w->dropped = room_for(w->dropped, w->ndropped, &w->cap_dropped, sizeof *w->dropped);
        w->dropped[w->ndropped++] = w->tensors[i].block;
    }
    requests_tensor_forget(w, i);
}

static void become_gradient(struct walk *w, const struct op *o, int i)
{
    if (i == NONE) {
        w->out->unmatched++;
        return;
    }
    w->ngrads += w->tensors[i].mem != MEM_GRADS;
    w->tensors[i].mem = MEM_GRADS;
    if (o->u.compute.fate == GRADS_IN_PLACE) {
        requests_give_back(w, w->tensors[i].block);
        w->tensors[i].block = NONE;
    }
}

/* The head's part of a tied gradient for which a buffer of the schedule stands. */
static bool stands_apart(const struct walk *w, const struct op *o, int mem)
{
    return mem == MEM_GRADS && w->s->tied_apart && o->u.compute.fate != GRADS_KEEP;
}

/* Kernels of a piece that an entry runs: their steps are [from, to). */
struct run { const struct op *o; const struct move *moves; struct steps *steps; int from, to, owner; };

/* Is what the i-th step makes or frees made, freed, and used by these kernels alone? */
static bool is_within(const struct run *r, int i) { return r->steps->of[i].mate >= r->from && r->steps->of[i].mate < r->to; }

/* Where blocks of several kinds meet, one may have freed a tensor of the embedding's for another one of its size. */
static void move(struct walk *w, const struct run *r, int i)
{
    const struct op *o = r->o;
    const struct move *m = &r->moves[r->steps->of[i].move];
    int at, owner = r->owner;

    switch ((enum move_kind)m->kind) {
    case MOVE_ALLOC:
        if (is_within(r, i))
            r->steps->block[i] = request_tensor(w, o, m);
        else
            make_tensor(w, o, m, owner);
        break;
    case MOVE_FREE:
        if (is_within(r, i)) {
            requests_give_back(w, r->steps->block[r->steps->of[i].mate]);
            break;
        }
        at = requests_find(w, owner, m->tensor);
        free_tensor(w, at == NONE ? requests_find_other(w, m, NOBODY) : at);
        break;
    case MOVE_FREE_OTHERS:
        if (!stands_apart(w, o, m->mem))
            free_tensor(w, requests_find_other(w, m, owner));
        break;
    case MOVE_FREE_LEFT:
        free_left(w, LEFT_TO_HEAD);
        break;
    case MOVE_FREE_HELD:
        free_left(w, LEFT_TO_END);
        break;
    case MOVE_GRAD:
        become_gradient(w, o, requests_find(w, owner, m->tensor));
        break;
    case MOVE_READY:
        hand_out(w, o, requests_find(w, owner, m->tensor), m->experts);
        break;
    }
}

static void workspace(struct walk *w, enum pass pass)
{
    int *kept = &w->workspace[w->captured][pass], pool = w->captured ? GRAPH_POOL : STREAM_COMPUTE;

    if (!w->o.workspace_kept && w->t->touch)
        touch(w, w->o.workspace, pool);
    else if (!w->o.workspace_kept)
        requests_give_back(w, requests_request(w, w->o.workspace, pool));
    else if (*kept == NONE)
        *kept = requests_request(w, w->o.workspace, pool);
}

static void run_step(struct walk *w, const struct run *r, int i)
{
    int what = r->steps->of[i].move;

    w->captured = w->captures && r->steps->of[i].captured;
    if (what == WORKSPACE)
        workspace(w, (enum pass)r->o->u.compute.pass);
    else if (what != KERNEL_ENDS)
        move(w, r, i);
    while (what == KERNEL_ENDS && w->ndropped > 0)
        requests_give_back(w, w->dropped[--w->ndropped]);
}

/* Steps [i, end) are of these kernels alone: all at once. */
static void serve(struct walk *w, const struct run *r, int i, int end)
{
    const struct steps *s = r->steps;
    int pool = w->captures && s->of[i].captured ? GRAPH_POOL : STREAM_COMPUTE;
    int done = i + w->t->serve(w->t->of, s->does + i, end - i, pool, s->block, w->pasts ? &w->trail : NULL);

    w->over = done < end;
    w->out->refused = w->over ? s->does[done].bytes : 0;
    w->out->requests += s->of[done].asked - s->of[i].asked + w->over;
}

static void run_steps(struct walk *w, const struct run *r)
{
    requests_run_of(r->steps, r->from, r->to, r->o->u.compute.fate == GRADS_IN_PLACE);
    for (int i = r->from, end; i < r->to && !w->over; i = end) {
        end = w->t->serve ? requests_own_end(r->steps, i) : i;
        if (end > i)
            serve(w, r, i, end);
        else
            run_step(w, r, end++);
    }
}

/* Does a kernel from k on hand the tensor out? */
static bool is_ready_later(const struct piece *p, enum pass pass, int k, int32_t tensor)
{
    for (; k < p->nkernels[pass]; k++)
        for (int i = 0; i < p->kernels[pass][k].nmoves; i++) {
            const struct move *m = &p->moves[pass][p->kernels[pass][k].move0 + i];
            if (m->kind == MOVE_READY && m->tensor == tensor)
                return true;
        }
    return false;
}

static void run_kernels(struct walk *w, const struct op *o, int64_t iteration)
{
    const struct piece *p = &w->s->program.piece[o->u.compute.piece];
    enum pass pass = (enum pass)o->u.compute.pass;
    int owner = o->u.compute.piece == PIECE_EMBED ? EMBEDDING : o->u.compute.piece == PIECE_HEAD || o->u.compute.piece == PIECE_HEAD_SPLIT ? HEAD :
                o->u.compute.piece == PIECE_RECEIVED ? EMBEDDING : o->u.compute.piece == PIECE_SENT ? HEAD :
                (int)(o->unit + o->unit_by * iteration);

    if (o->u.compute.k0 < o->u.compute.k1) {
        struct steps *steps = requests_steps(w, o->u.compute.piece, pass);
        struct run r = { o, p->moves[pass], steps, steps->first[o->u.compute.k0], steps->first[o->u.compute.k1], owner };
        run_steps(w, &r);
    }
    for (int i = requests_of_owner(w, owner)->newest, older; w->s->tied_apart && w->ngrads > 0 && i != NONE; i = older) {
        older = w->tensors[i].in[OWN].older;
        if (requests_is_of_pass(w, &w->tensors[i]) && !w->tensors[i].kept && stands_apart(w, o, w->tensors[i].mem) &&
            !is_ready_later(p, pass, o->u.compute.k1, w->tensors[i].tensor))
            free_tensor(w, i);
    }
}

/* ---- entries ---- */

/* The first micro-step's head has returned: from then on there are logits that the loop names. */
static void name_logits(struct walk *w, const struct op *o)
{
    bool head = o->kind == OP_COMPUTE && (o->u.compute.piece == PIECE_HEAD || o->u.compute.piece == PIECE_HEAD_SPLIT) &&
                o->u.compute.pass == PASS_FORWARD && o->u.compute.k1 == w->s->program.piece[o->u.compute.piece].nkernels[PASS_FORWARD];

    if (!head || w->named || w->o.logits == 0)
        return;
    w->named = true;
    w->logits = requests_request(w, w->o.logits, STREAM_COMPUTE);
}

static void step(struct walk *w, const struct op *o, int64_t iteration)
{
    w->iteration = w->out->iteration = iteration;
    w->step = (int32_t)(o->step + o->step_by * iteration);
    w->chunk = o->chunk;
    if (w->records)
        requests_wait_for(w, o);
    act_on(w, o, ACT_ALLOC, iteration);
    if (w->records)
        act_on(w, o, ACT_USE, iteration);
    if (o->kind == OP_COMPUTE)
        run_kernels(w, o, iteration);
    if (o->kind == OP_COMPUTE && w->forward)
        requests_drop_input(w, o, iteration);
    if (w->records && o->record)
        requests_record(w, o);
    act_on(w, o, ACT_FREE, iteration);
    name_logits(w, o);
    if (o->kind == OP_MEMORY && o->flags & OPF_EMPTIES)
        w->t->empty(w->t->of);
}

/* Iterations are left out that begin as one before. */
static void run_repeat(struct walk *w, int open)
{
    const struct op *o = &w->s->ops[open];
    struct past *past = w->forward ? NULL : requests_past_new(w, open);

    for (int64_t i = 0; i < o->u.repeat.n && !w->over && !w->met; i++) {
        requests_run(w, open + 1, o->u.repeat.other, i);
        if (past && !w->over && !w->met) {
            int64_t skipped = requests_past_skip(past, w, i);
            requests_follow_skip(w, skipped);
            i += skipped;
        }
    }
    requests_past_free(past, w);
}

void requests_run(struct walk *w, int from, int to, int64_t iteration)
{
    for (int i = from; i < to && !w->over && !w->met; i++) {
        const struct op *o = &w->s->ops[i];
        w->met |= w->forward && o->kind == OP_COMPUTE && o->phase == PHASE_BACKWARD;
        if (w->met)
            break;
        if (o->kind == OP_REPEAT) {
            run_repeat(w, i);
            i = o->u.repeat.other;
        } else if (o->kind != OP_END) {
            w->out->op = i;
            step(w, o, iteration);
            w->met = w->follows && w->t->met(w->t->of);
        }
    }
}

/* ---- a plan ---- */

void requests_begin(struct walk *w)
{
    int n = 0;

    w->first = room_new((size_t)w->s->nbufs + 1, sizeof *w->first);
    for (int b = 0; b < w->s->nbufs; b++) {
        w->first[b] = n;
        n += requests_walks(&w->s->bufs[b]) ? w->s->bufs[b].count : 0;
    }
    w->first[w->s->nbufs] = n;
    w->instances = room_new((size_t)n, sizeof *w->instances);
    for (int b = 0; b < w->s->nbufs; b++)
        for (int i = w->first[b]; i < w->first[b + 1]; i++)
            w->instances[i].family = b;
    w->at_event = room_new((size_t)w->s->nevents + 1, sizeof *w->at_event);
    w->issued = room_new((size_t)w->s->nevents + 1, sizeof *w->issued);
    requests_tensors_begin(w);
    for (int i = 0; i < NPOOL; i++)
        w->workspace[i][PASS_FORWARD] = w->workspace[i][PASS_BACKWARD] = NONE;
}

void requests_end(struct walk *w)
{
    for (int i = 0; i < w->first[w->s->nbufs]; i++)
        free(w->instances[i].block);
    free(w->instances);
    free(w->first);
    requests_tensors_end(w);
    requests_steps_end(w);
    free(w->pending);
    free(w->dropped);
    free(w->parts);
    free(w->at_event);
    free(w->issued);
    requests_state_free(&w->before);
    free(w->skips);
}

/* What is captured behind the first step finds an empty cache: create_cudagraphs() of Megatron-core.  The pool's memory stays. */
static void begin_captures(struct walk *w)
{
    if (graphs_come_later(w->p))
        w->t->empty(w->t->of);
    w->t->keep(w->t->of, GRAPH_POOL);
    w->captures = true;
    for (int i = 0; i < 2 && w->o.statics > 0; i++)
        requests_request(w, w->o.statics / 2, STREAM_COMPUTE);
}

void requests_walk(const struct plan *p, const struct schedules *s, struct request_options o,
                   const struct request_target *t, struct request_report *out)
{
    static const enum sched_id order[] = { SCHED_INIT, SCHED_FIRST, SCHED_STEADY, SCHED_STEADY };
    struct walk w = { .p = p, .s = s, .t = t, .o = o, .out = out, .records = framework_of(p)->records_streams };

    assert(p->kernels != KERNELS_DPX);
    int64_t counted = 0, lost = 0;      /* requests of the last step; of them unmatched */

    memset(out, 0, sizeof *out);
    requests_begin(&w);
    for (int i = 0; i < 4 && !w.over; i++) {
        struct caching_stats before = *t->stats;
        out->sched = order[i];
        if (t->begin)
            t->begin(t->of);
        if (order[i] == SCHED_FIRST && o.emptied)
            t->empty(t->of);
        if (graphs_has(p) && i == (graphs_come_later(p) ? 2 : 1))
            begin_captures(&w);
        w.skipped_retries = w.skipped_calls = 0;
        if (i == 2)
            requests_watch(&w);
        w.follows = i == 3 && requests_follow(&w);
        int64_t requests = out->requests, unmatched = out->unmatched;
        requests_run(&w, s->begin[order[i]], s->end[order[i]], 0);
        out->steady_retries = t->stats->retries - before.retries + w.skipped_retries;
        out->retries += out->steady_retries;
        out->steady_calls = requests_device_calls(t->stats) - requests_device_calls(&before) + w.skipped_calls;
        if (w.met) {                    /* what is left asks nothing of the device */
            out->requests = requests + counted;
            out->unmatched = unmatched + lost;
        }
        counted = out->requests - requests;
        lost = out->unmatched - unmatched;
    }
    out->out_of_memory = w.over;
    requests_end(&w);
}
