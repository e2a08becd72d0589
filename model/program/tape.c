/* tape.c -- stores, kernels and the backward engine.  The operations that record
 * nodes are in tape_ops.c.
 *
 * A kernel stays open after its work: what is released before the next one begins
 * belongs to it.  Its peak is taken relative to the live bytes when it began. */
#include "model/program/tape.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/program/tape_internal.h"

/* Room for one more element, which is not set: only element 0, which stays unused in nodes and vars, is zeroed. */
static bool grow(struct tape *t, void *array, int n, int *cap, size_t size)
{
    void **p = array;

    if (n < *cap)
        return true;
    int room = *cap ? 2 * *cap : 512;
    void *more = realloc(*p, (size_t)room * size);
    if (!more) {
        t->bad = true;
        return false;
    }
    if (*cap == 0)
        memset(more, 0, size);
    *p = more;
    *cap = room;
    return true;
}

/* kept[] is 0 where nothing was learnt. */
static bool grow_kept(struct tape *t, int n)
{
    int before = t->cap_kept;

    if (!grow(t, &t->kept, n, &t->cap_kept, sizeof *t->kept))
        return false;
    if (t->cap_kept > before)
        memset(t->kept + before, 0, (size_t)(t->cap_kept - before) * sizeof *t->kept);
    return true;
}

void tape_init(struct tape *t, int64_t rounding)
{
    memset(t, 0, sizeof *t);
    t->rounding = rounding;
    tape_reset(t);
}

void tape_reset(struct tape *t)
{
    t->nstores = t->nvars = t->nnodes = 1;      /* 0 is "none" in all three */
    t->nout = t->nplaces = t->nmoves = t->ncache = t->ncolls = t->nbeside = 0;
    t->caches = t->cached = t->compiled = false;
    t->nfrom = 0;
    t->gathered = (struct tape_gathered){ 0 };
    t->scatters = 0;
    t->scattered = t->unneeded = t->leaves = false;
    t->most_results = -1;
    memset(t->live, 0, sizeof t->live);
    t->open = t->backward = t->forget = t->away = t->autocast = t->dtensor = t->stopped = t->stopping = false;
    t->stop_after = t->nsavers = t->tied_grad = t->ncast = t->nwaits = 0;
    t->module = -1;
    t->half = 0;
    if (!grow(t, &t->stores, 1, &t->cap_stores, sizeof *t->stores) ||
        !grow(t, &t->vars, 1, &t->cap_vars, sizeof *t->vars) ||
        !grow(t, &t->nodes, 1, &t->cap_nodes, sizeof *t->nodes) ||
        !grow(t, &t->out, 1, &t->cap_out, sizeof *t->out) ||
        !grow_kept(t, 1))
        return;
    memset(&t->vars[0], 0, sizeof t->vars[0]);
    t->vars[0].edge.tensor = -1;
}

void tape_free(struct tape *t)
{
    free(t->stores);
    free(t->vars);
    free(t->nodes);
    free(t->out);
    free(t->places);
    free(t->moves);
    free(t->colls);
    free(t->kept);
    free(t->cache);
    free(t->beside);
    memset(t, 0, sizeof *t);
}

/* ---- kernels ---- */

static void close_kernel(struct tape *t)
{
    if (!t->open)
        return;
    struct kernel *k = &t->out[t->nout - 1];
    for (int m = 0; m < NMEM; m++)
        k->net[m] = t->live[m] - t->base[m];
    t->open = false;
}

struct kernel *tape_kernel(struct tape *t, const char *name, enum kernel_class kc)
{
    if (t->stopped && !t->backward)             /* what a recompute skips */
        return &t->skipped;
    close_kernel(t);
    if (!grow(t, &t->out, t->nout, &t->cap_out, sizeof *t->out))
        return &t->out[t->nout - 1];
    struct kernel *k = &t->out[t->nout++];
    memset(k, 0, sizeof *k);
    k->name = name;
    k->kind = kc;
    k->module = t->module;
    k->half = t->half;
    k->place0 = t->nplaces;
    k->move0 = t->nmoves;
    for (int i = 0; i < 4; i++)
        k->ready[i] = -1;
    memcpy(t->base, t->live, sizeof t->base);
    t->open = true;
    return k;
}

int tape_note_collective(struct tape *t, const struct collective *c)
{
    if (!grow(t, &t->colls, t->ncolls, &t->cap_colls, sizeof *t->colls))
        return 0;
    t->colls[t->ncolls] = *c;
    t->colls[t->ncolls].kernel = t->nout - 1;
    t->colls[t->ncolls].needed = t->nout;
    t->colls[t->ncolls].graph = t->compiled;
    return ++t->ncolls;
}

void tape_needs(struct tape *t, int collective)
{
    if (collective > 0)
        t->colls[collective - 1].needed = t->nout;
}

void tape_needs_at(struct tape *t, int collective, int kernel)
{
    if (collective > 0)
        t->colls[collective - 1].needed = kernel;
}

int tape_cut(struct tape *t)
{
    close_kernel(t);
    return t->nout;
}

static void note_peak(struct tape *t)
{
    if (!t->open)
        return;
    struct kernel *k = &t->out[t->nout - 1];
    int64_t now = 0, top = 0;
    for (int m = 0; m < NMEM; m++) {
        now += t->live[m] - t->base[m];
        top += k->peak[m];
    }
    if (now > top)
        for (int m = 0; m < NMEM; m++)
            k->peak[m] = t->live[m] - t->base[m];
}

/* ---- stores ---- */

void tape_move(struct tape *t, enum move_kind kind, int store)
{
    const struct store *st = &t->stores[store];

    if (!t->open || st->bytes == 0 || !grow(t, &t->moves, t->nmoves, &t->cap_moves, sizeof *t->moves))
        return;
    t->moves[t->nmoves++] = (struct move){ st->bytes, store, (uint8_t)kind, st->cat, 0, false, false, false, 0 };
    t->out[t->nout - 1].nmoves++;
}

int tape_alloc(struct tape *t, int64_t numel, int64_t elem, int cat)
{
    int64_t bytes;

    if (!grow(t, &t->stores, t->nstores, &t->cap_stores, sizeof *t->stores) ||
        !grow_kept(t, t->nstores))
        return 0;
    if (!checked_mul(numel, elem, &bytes) || !checked_add(bytes, t->live[cat], &bytes)) {
        t->bad = true;
        return 0;
    }
    int i = t->nstores++;
    t->stores[i] = (struct store){ .refs = 1, .freed_by = -1, .exact = numel * elem };
    tape_place(t, i, t->stopped && !t->backward ? 0 : round_up(numel * elem, t->rounding), cat);
    return i;
}

void tape_place(struct tape *t, int store, int64_t bytes, int cat)
{
    struct store *st = &t->stores[store];

    if (cat == MEM_ACTIVATIONS && !t->kept[store] && !t->learning)
        cat = MEM_TEMPORARIES;
    st->bytes = bytes;
    st->part = (int16_t)t->part;
    st->cat = (uint8_t)cat;
    t->live[cat] += bytes;
    note_peak(t);
    tape_move(t, MOVE_ALLOC, store);
}

static void place(struct tape *t, const struct store *st, bool comes)
{
    if (!t->open || !st->slot ||
        !grow(t, &t->places, t->nplaces, &t->cap_places, sizeof *t->places))
        return;
    t->places[t->nplaces++] = (struct place){ st->slot, st->cat, comes, st->bytes };
    t->out[t->nout - 1].nplaces++;
}

void tape_name(struct tape *t, int s, enum slot slot)
{
    t->stores[s].slot = (uint8_t)slot;
    place(t, &t->stores[s], true);
}

void tape_unref(struct tape *t, int s)
{
    if (!s)
        return;
    struct store *st = &t->stores[s];
    assert(st->refs > 0);
    if (--st->refs > 0)
        return;
    for (int i = 0; i < st->nleaves; i++)
        tape_unref(t, t->stores[s].leaf[i]);
    st = &t->stores[s];
    st->nleaves = 0;
    int cast = st->float8;
    st->float8 = 0;
    tape_unref(t, cast);
    st = &t->stores[s];
    t->live[st->cat] -= st->bytes;
    st->freed_by = (int16_t)t->part;
    place(t, st, false);
    tape_move(t, MOVE_FREE, s);
}

void tape_keep(struct tape *t, int first)
{
    if (t->learning)
        for (int i = first; i < t->nstores; i++)
            t->kept[i] = t->stores[i].refs > 0 && t->stores[i].freed_by < 0;
}

/* ---- variables ---- */

var tape_var(struct tape *t, int store, int64_t numel, enum dtype dt, int node, int slot)
{
    if (!grow(t, &t->vars, t->nvars, &t->cap_vars, sizeof *t->vars))
        return 0;
    if (node && !t->nodes[node].wanted)         /* no operand needs a gradient: the result has no history */
        node = slot = 0;
    t->vars[t->nvars] = (struct vari){
        .store = store,
        .edge = { .node = node, .slot = slot, .tensor = -1, .numel = numel, .dt = dt },
    };
    return t->nvars++;
}

var tape_hold(struct tape *t, var v)
{
    struct vari x = t->vars[v];

    if (!v)
        return 0;
    t->stores[x.store].refs++;
    var same = tape_var(t, x.store, x.edge.numel, x.edge.dt, x.edge.node, x.edge.slot);
    t->vars[same].edge = x.edge;
    t->vars[same].float8 = x.float8;
    return same;
}

var tape_hold_part(struct tape *t, var v, int64_t numel)
{
    var part = tape_hold(t, v);

    t->vars[part].edge.numel = numel;
    return part;
}

void tape_drop(struct tape *t, var v)
{
    if (v) {
        tape_unref(t, t->vars[v].store);
        t->vars[v].store = 0;
    }
}

int64_t    tape_var_bytes(const struct tape *t, var v) { return t->stores[t->vars[v].store].bytes; }
int64_t    tape_var_numel(const struct tape *t, var v) { return t->vars[v].edge.numel; }
enum dtype tape_var_dtype(const struct tape *t, var v) { return t->vars[v].edge.dt; }

/* ---- nodes ---- */

struct node *tape_node(struct tape *t, enum node_kind kind, const char *name, enum kernel_class kc)
{
    if (!grow(t, &t->nodes, t->nnodes, &t->cap_nodes, sizeof *t->nodes))
        return &t->nodes[0];
    struct node *n = &t->nodes[t->nnodes++];
    memset(n, 0, sizeof *n);
    n->kind = kind;
    n->name = name;
    n->kc = kc;
    n->nslots = 1;
    n->module = t->module;
    n->half = t->half;
    n->apart = t->dtensor;
    t->nfrom = 0;
    return n;
}

static void reads(struct tape *t, int store)
{
    if (t->compiled && store && t->nfrom < TAPE_LEAVES)
        t->from[t->nfrom++] = store;
}

/* pack_to_cpu(), from the kernel that is open. */
static void send_away(struct tape *t, struct node *n, int64_t bytes)
{
    struct kernel *k = &t->out[t->nout - 1];

    assert(n->naway < TAPE_SAVED);
    n->away[n->naway++] = bytes;
    k->copied += bytes;
    k->pinned += round_up_power(bytes);
}

static void keep_saved(struct tape *t, struct node *n, int store, int64_t bytes)
{
    reads(t, store);
    if (t->forget || !n->wanted)
        return;
    if (t->away && bytes > 0)
        send_away(t, n, bytes);
    if (t->away || !store)
        return;
    assert(n->nsaved < TAPE_SAVED);
    n->saved[n->nsaved++] = store;
    t->stores[store].refs++;
}

/* Is a store saved by one of the nodes? */
static bool is_saved_by(const struct tape *t, int store, int node0)
{
    for (int i = node0; i < t->nnodes; i++)
        for (int k = 0; k < t->nodes[i].nsaved; k++)
            if (t->nodes[i].saved[k] == store)
                return true;
    return false;
}

int64_t tape_saved_since(const struct tape *t, int node0, int store0)
{
    int64_t sum = 0;

    for (int s = store0; s < t->nstores; s++)
        sum += is_saved_by(t, s, node0) ? t->stores[s].bytes : 0;
    return sum;
}

void tape_save(struct tape *t, struct node *n, int store) { keep_saved(t, n, store, t->stores[store].exact); }

void tape_save_var(struct tape *t, struct node *n, var v)
{
    const struct vari *x = &t->vars[v];

    keep_saved(t, n, x->store, x->edge.numel * dtype_bytes(x->edge.dt));
}

void tape_edge(struct tape *t, struct node *n, var v)
{
    assert(n->nedges < TAPE_EDGES);
    reads(t, t->vars[v].store);
    if (n->nedges == 0)
        n->dt = t->vars[v].edge.dt;
    n->wanted |= tape_wants_grad(t, v);
    n->edges[n->nedges++] = t->vars[v].edge;
}

bool tape_wants_grad(const struct tape *t, var v)
{
    return t->vars[v].edge.node != 0 || t->vars[v].edge.tensor >= 0;
}

void tape_require_grad(struct tape *t, var x)
{
    struct node *n;

    if (tape_wants_grad(t, x))
        return;
    n = tape_node(t, NODE_PASS, "input gradient", KC_COPY);
    n->dt = t->vars[x].edge.dt;
    n->wanted = true;
    t->vars[x].edge.node = t->nnodes - 1;
    t->vars[x].edge.slot = 0;
}

void tape_seed(struct tape *t, var v)
{
    const struct edge *e = &t->vars[v].edge;

    tape_kernel(t, "seed", KC_LOSS);
    t->seed = tape_alloc(t, e->numel, dtype_bytes(e->dt), MEM_TEMPORARIES);
    t->nodes[e->node].grad[e->slot] = t->seed;
    t->stores[t->seed].refs++;          /* backward()'s own name for it */
}

void tape_finish(struct tape *t)
{
    tape_unref(t, t->seed);
    t->seed = 0;
}

void tape_graft(struct tape *t, var from, var to)
{
    const struct edge *f = &t->vars[from].edge, *g = &t->vars[to].edge;

    t->nodes[g->node].grad[g->slot] = t->nodes[f->node].grad[f->slot];
    t->nodes[f->node].grad[f->slot] = 0;
}

int tape_hold_gradient(struct tape *t, var v)
{
    const struct edge *e = &t->vars[v].edge;
    int g = e->node ? t->nodes[e->node].grad[e->slot] : 0;

    t->stores[g].refs += g > 0;
    return g;
}

void tape_drop_store(struct tape *t, int store) { tape_unref(t, store); }

/* ---- what nodes keep as attributes of their own ---- */

/* Of a block that runs again it goes with that run's graph. */
void tape_hold_beside(struct tape *t, int store)
{
    if (!grow(t, &t->beside, t->nbeside, &t->cap_beside, sizeof *t->beside))
        return;
    t->beside[t->nbeside++] = store;
    t->stores[store].refs++;
    t->stores[store].held |= t->part % NPASS == PASS_FORWARD;
}

bool tape_is_held(const struct tape *t, int store) { return t->stores[store].held; }

void tape_drop_beside(struct tape *t, int first)
{
    while (t->nbeside > first)
        tape_unref(t, t->beside[--t->nbeside]);
}

/* ---- storages that are emptied ---- */

void tape_empty(struct tape *t, int store)
{
    struct store *st = &t->stores[store];

    if (!store || st->refs == 0)
        return;
    t->live[st->cat] -= st->bytes;
    st->freed_by = (int16_t)t->part;
    tape_move(t, MOVE_FREE, store);
    t->stores[store].bytes = 0;
}

/* Whoever has `from` has `to` instead. */
static void replace_store(struct tape *t, int from, int to)
{
    for (int i = 1; i < t->nnodes; i++)
        for (int k = 0; k < t->nodes[i].nsaved; k++)
            if (t->nodes[i].saved[k] == from) {
                t->nodes[i].saved[k] = to;
                t->stores[to].refs++;
                tape_unref(t, from);
            }
    for (var v = 1; v < t->nvars; v++)
        if (t->vars[v].store == from) {
            t->vars[v].store = to;
            t->stores[to].refs++;
            tape_unref(t, from);
        }
}

void tape_refill(struct tape *t, int store)
{
    if (!store || t->stores[store].refs == 0)
        return;
    int64_t bytes = t->stores[store].exact;
    tape_kernel(t, "copy of what ran again", KC_COPY)->bytes = 2 * bytes;
    int fresh = tape_alloc(t, bytes, 1, MEM_ACTIVATIONS);
    replace_store(t, store, fresh);
    tape_unref(t, fresh);
}

/* ---- selective checkpoints ---- */

int tape_selective(struct tape *t, int again)
{
    t->caches = again < 0;
    t->cached = again >= 0;
    t->products = 0;
    t->at_cache = again < 0 ? t->ncache : again;
    return t->ncache;
}

void tape_unselective(struct tape *t) { t->caches = t->cached = false; }

void tape_drop_cache(struct tape *t, int first, int end)
{
    for (int i = first; i < end; i++) {
        tape_unref(t, t->cache[i]);
        t->cache[i] = 0;
    }
}

void tape_keep_result(struct tape *t, int store)
{
    if (!grow(t, &t->cache, t->ncache, &t->cap_cache, sizeof *t->cache))
        return;
    bool wanted = t->most_results < 0 || t->ncache - t->at_cache < t->most_results;
    t->cache[t->ncache++] = wanted ? store : 0;
    if (wanted)
        t->stores[store].refs++;
}

int tape_kept_result(struct tape *t)
{
    int store = t->cache[t->at_cache];

    t->cache[t->at_cache++] = 0;
    return store;
}

/* ---- backward ---- */

/* Hands gradient `g` (one reference, ours) to where the edge leads. */
static void deliver(struct tape *t, const struct edge *e, int g)
{
    if (!g)
        return;
    if (e->tensor >= 0) {
        (t->compiled && t->at_end ? tape_grad_waits : tape_grad_arrived)(t, e, g);
        return;
    }
    if (!e->node) {
        tape_unref(t, g);
        return;
    }
    int *at = &t->nodes[e->node].grad[e->slot];
    if (!*at) {
        *at = g;
        return;
    }
    if (t->compiled) {
        int sum = tape_derive(t, e->numel, dtype_bytes(e->dt), (const int[]){ *at, g }, 2, KC_ELEMENTWISE);
        tape_unref(t, *at);
        tape_unref(t, g);
        *at = sum;
        return;
    }
    tape_kernel(t, "grad add", KC_ELEMENTWISE)->bytes = 3 * t->stores[g].bytes;
    bool views = t->nodes[e->node].sums_views || t->nodes[e->node].apart || t->stores[*at].view;
    t->nodes[e->node].sums_views = false;
    if (views || t->stores[*at].refs > 1) {     /* something else holds it: not in place */
        int sum = tape_alloc(t, e->numel, dtype_bytes(e->dt), MEM_TEMPORARIES);
        tape_unref(t, *at);
        *at = sum;
    }
    tape_unref(t, g);
}

static void forget_saved(struct tape *t, struct node *n)
{
    for (int i = 0; i < n->nsaved; i++)
        tape_unref(t, n->saved[i]);
    n->nsaved = 0;
}

/* unpack_from_cpu(), of all that the node saved, when its function begins. */
static bool bring_back(struct tape *t, struct node *n)
{
    bool some = n->naway > 0;
    struct kernel *k = some ? tape_kernel(t, "saved tensors to device", KC_COPY) : NULL;

    for (int i = 0; i < n->naway; i++) {
        k->module = -1;
        k->copied += n->away[i];
        n->saved[n->nsaved++] = tape_alloc(t, n->away[i], 1, MEM_TEMPORARIES);
    }
    n->naway = 0;
    return some;
}

void tape_run_node(struct tape *t, struct node *n)
{
    int out[TAPE_EDGES] = { 0 };
    enum dtype got[TAPE_EDGES];

    t->module = n->module;
    t->half = n->half;
    t->running = (int)(n - t->nodes);
    bool brought = bring_back(t, n);
    tape_run(t, n, out, got);
    /* A saved tensor stays until the engine has looked at the results; one that hooks unpacked, from a checkpoint or the
     * host, is gone when the node's own function returns. */
    if (t->unpacked || brought)
        forget_saved(t, n);
    tape_validate(t, n, out, got);
    for (int i = 0; i < n->nslots; i++) {
        tape_unref(t, n->grad[i]);
        n->grad[i] = 0;
    }
    forget_saved(t, n);
    /* The bias is addmm's first operand; the weight may be behind a transpose. */
    int first = n->kind == NODE_LINEAR ? n->nedges - 1 : 0;
    for (int i = 0; i < n->nedges; i++) {
        int at = (i + first) % n->nedges;
        deliver(t, &n->edges[at], out[at]);
    }
}

bool tape_has_gradient(const struct node *n)
{
    for (int i = 0; i < n->nslots; i++)
        if (n->grad[i])
            return true;
    return false;
}

static int run_nodes(struct tape *t, int first, int end, bool stop_at_saved)
{
    t->backward = true;
    int i = end - 1;
    for (; i >= first && !t->bad; i--) {
        struct node *n = &t->nodes[i];
        if (!tape_has_gradient(n))
            continue;
        if (stop_at_saved && n->nsaved)
            break;
        tape_run_node(t, n);
    }
    t->backward = false;
    return i;
}

void tape_backward(struct tape *t, int first, int end)
{
    if (t->compiled)
        tape_backward_fused(t, first, end);
    else
        run_nodes(t, first, end, false);
}


int  tape_backward_unsaved(struct tape *t, int first) { return run_nodes(t, first, t->nnodes, true); }
