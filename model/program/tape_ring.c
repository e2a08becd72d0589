/* tape_ring.c -- see tape_ring.h.  Names are those that Python holds: a tensor goes when its last one does. */
#include "model/program/tape_ring.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_internal.h"

enum { ROTATES = 1, BALANCED = 2, ONE_KV_HEAD = 4 };

/* One run over the ring: forward's or backward's. */
struct run {
    struct tape   *t;
    struct ring    r;
    enum dtype     dt;
    int64_t        n[3], nkv, nout;     /* elements of q, k and v; of k and v together; of the output, whose heads are as wide as v's */
    int            kv[2];               /* a rank's own k and v, copied; 0: not */
    int            all, next, view;     /* what all ranks sent; what the neighbour sent; what has arrived of that */
    int            used[2];             /* what the last step that computed has read */
    int            sent;                /* the collective that brings it */
};

static int share(struct tape *t, int store)
{
    if (store)
        t->stores[store].refs++;
    return store;
}

/* A name is bound anew. */
static void rebind(struct tape *t, int *name, int store)
{
    tape_unref(t, *name);
    *name = store;
}

static struct kernel *moves(struct tape *t, const char *name, enum kernel_class kc, int64_t bytes)
{
    struct kernel *k = tape_kernel(t, name, kc);

    k->bytes = bytes;
    return k;
}

/* A tensor of `numel` elements in fp32, computed from `operands` such. */
static int computed(struct tape *t, const char *name, int64_t numel, int operands)
{
    moves(t, name, KC_ELEMENTWISE, 4 * numel * (1 + operands));
    return tape_new(t, numel, DT_FP32);
}

static int cast(struct tape *t, int x, int64_t numel, enum dtype from, enum dtype to)
{
    if (from == to)
        return share(t, x);
    moves(t, "cast", KC_COPY, numel * (dtype_bytes(from) + dtype_bytes(to)));
    return tape_new(t, numel, to);
}

static int collective(struct tape *t, const char *name, enum coll_op op, enum dtype dt, int64_t elems)
{
    struct kernel *k = tape_kernel(t, name, KC_COPY);

    if (k == &t->skipped)
        return 0;
    return k->collective = tape_note_collective(t, &(struct collective){
        .op = (uint8_t)op, .group = GROUP_CONTEXT, .dtype = (uint8_t)dt, .stream = STREAM_CONTEXT, .onward = op == COLL_ALL_TO_ALL,
        .elems = elems });
}

/* ---- keys and values ---- */

static void begin(struct run *u)
{
    for (int i = 0; i < 2 && !u->r.one_kv_head; i++) {
        moves(u->t, "contiguous keys, values", KC_COPY, 2 * u->n[1 + i] * dtype_bytes(u->dt));
        u->kv[i] = tape_new(u->t, u->n[1 + i], u->dt);
    }
}

/* Step i reads what has arrived. */
static void arrive(struct run *u, int64_t i)
{
    struct tape *t = u->t;

    if (i == 0)
        return;
    tape_needs(t, u->sent);
    u->sent = 0;
    rebind(t, &u->kv[0], 0);
    rebind(t, &u->kv[1], 0);
    rebind(t, &u->view, share(t, u->next));
}

/* And sends it on, unless it is the last; `joined`: the name of what is sent.  An all-gather is made once, what would be sent
 * in later steps is joined all the same. */
static void depart(struct run *u, int64_t i, int *joined)
{
    struct tape *t = u->t;

    if (i == u->r.ranks - 1)
        return;
    moves(t, "join keys and values", KC_COPY, 2 * u->nkv * dtype_bytes(u->dt));
    rebind(t, joined, tape_new(t, u->nkv, u->dt));
    if (u->r.rotates) {
        u->sent = collective(t, "send keys and values on", COLL_ALL_TO_ALL, u->dt, u->nkv);
        rebind(t, &u->next, tape_new(t, u->nkv, u->dt));
    } else if (i == 0) {
        u->sent = collective(t, "gather keys and values", COLL_ALL_GATHER, u->dt, u->nkv * u->r.ranks);
        u->all = tape_new(t, u->nkv * u->r.ranks, u->dt);
    }
}

/* Step i computes with what has arrived. */
static void use(struct run *u)
{
    for (int i = 0; i < 2; i++)
        rebind(u->t, &u->used[i], share(u->t, u->kv[i] ? u->kv[i] : u->view));
}

static void end(struct run *u)
{
    const int held[] = { u->kv[0], u->kv[1], u->all, u->next, u->view, u->used[0], u->used[1] };

    for (int i = 0; i < 7; i++)
        tape_unref(u->t, held[i]);
}

/* What step i computes: all keys lie behind this rank's positions; half of the queries, or of the keys, are enough. */
static bool idle(const struct run *u, int64_t i) { return !u->r.balanced && i > u->r.place; }
static bool half_queries(const struct run *u, int64_t i) { return u->r.balanced && i > u->r.place; }
static bool half_keys(const struct run *u, int64_t i) { return u->r.balanced && i > 0 && i <= u->r.place; }

/* A step's kernel: the own keys, behind the causal mask; all of the square of another rank's, or of half of it. */
static void square(const struct run *u, int64_t i, struct kernel *k)
{
    bool back = u->t->backward;

    k->flops = (i > 0 && u->r.balanced ? 0.5 : 1) * u->r.flops * (back ? 2 : 1);
    k->attends = i == 0 ? ATTENDS_BEFORE : back ? ATTENDS_ALL_BACK : ATTENDS_ALL;
}

/* ---- forward ---- */

struct merge { int out, lse; };         /* in fp32, of the steps so far */

/* _SDPAMerger._merge_one(): out of n rows' elements and lse of rows, of a part of the merger's where `half`. */
static void merge(struct run *u, struct merge *m, int out, int lse, bool half)
{
    struct tape *t = u->t;
    int64_t n = half ? u->nout / 2 : u->nout, rows = half ? u->r.lse_numel / 2 : u->r.lse_numel;

    (void)lse;                          /* read alone */
    int less = computed(t, "merge lse", rows, 2), share_of = computed(t, "merge lse", rows, 1);
    tape_unref(t, less);
    int apart = computed(t, "merge outputs", n, 2), part = computed(t, "merge outputs", n, 1);
    tape_unref(t, share_of);
    tape_unref(t, apart);
    int sum = computed(t, "merge outputs", n, 2);
    tape_unref(t, part);
    less = computed(t, "merge lse", rows, 2);
    int log = computed(t, "merge lse", rows, 1);
    tape_unref(t, less);
    int total = computed(t, "merge lse", rows, 2);
    tape_unref(t, log);
    if (half) {
        rebind(t, &m->lse, computed(t, "merge lse", u->r.lse_numel, 1));
        rebind(t, &m->out, computed(t, "merge outputs", u->nout, 1));
        tape_unref(t, total);
        tape_unref(t, sum);
    } else {
        rebind(t, &m->lse, total);
        rebind(t, &m->out, sum);
    }
    tape_unref(t, out);
}

/* The fused kernel's results: output, log-sum-exp, state of the random generator. */
struct results { int out, lse, state[2]; };

static struct results attend(struct run *u, int64_t i)
{
    struct tape *t = u->t;
    int64_t parts = half_queries(u, i) ? 2 : 1;
    struct kernel *k = i == 0 ? tape_begin_saving(t, "attention", KC_ATTENTION) : tape_kernel(t, "attention of others", KC_ATTENTION);
    struct results out;

    square(u, i, k);
    k->bytes = ((u->n[0] + u->nout) / parts + u->nkv / (half_keys(u, i) ? 2 : 1)) * dtype_bytes(u->dt);
    out.out = tape_new(t, u->nout / parts, u->dt);
    out.lse = tape_new(t, u->r.lse_numel / parts, DT_FP32);
    for (int s = 0; s < 2; s++)
        out.state[s] = tape_new(t, 1, DT_INT64);
    return out;
}

static void let_go(struct tape *t, const struct results *r)
{
    tape_unref(t, r->out);
    tape_unref(t, r->lse);
    tape_unref(t, r->state[0]);
    tape_unref(t, r->state[1]);
}

/* Selective checkpoints keep the operator's results, not those of its steps. */
static struct results go_round(struct run *u)
{
    struct tape *t = u->t;
    struct results now = { 0 }, made, out = { 0 };
    struct merge m = { 0 };
    int joined = 0;

    begin(u);
    for (int64_t i = 0; i < u->r.ranks; i++) {
        arrive(u, i);
        depart(u, i, &joined);
        rebind(t, &joined, 0);
        if (idle(u, i))
            continue;
        use(u);
        made = attend(u, i);
        let_go(t, &now);
        now = made;
        int64_t n = half_queries(u, i) ? u->nout / 2 : u->nout;
        int wide = cast(t, now.out, n, u->dt, DT_FP32);
        if (i > 0) {
            merge(u, &m, wide, now.lse, half_queries(u, i));
        } else {
            m = (struct merge){ wide, share(t, now.lse) };
            out.state[0] = share(t, now.state[0]);
            out.state[1] = share(t, now.state[1]);
        }
    }
    out.out = cast(t, m.out, u->nout, DT_FP32, u->dt);
    out.lse = m.lse;
    tape_unref(t, m.out);
    let_go(t, &now);
    end(u);
    if (t->caches) {
        tape_keep_result(t, out.out);
        tape_keep_result(t, out.lse);
        tape_keep_result(t, out.state[0]);
        tape_keep_result(t, out.state[1]);
    }
    return out;
}

static struct results kept(struct run *u)
{
    struct results out;

    tape_begin_saving(u->t, "attention", KC_ATTENTION);
    out.out = tape_kept_result(u->t);
    out.lse = tape_kept_result(u->t);
    out.state[0] = tape_kept_result(u->t);
    out.state[1] = tape_kept_result(u->t);
    return out;
}

/* Heads of v may be narrower than those of q and k. */
static void measure(struct run *u)
{
    u->nkv = u->n[1] + u->n[2];
    u->nout = u->n[0] / u->n[1] * u->n[2];
}

var tape_ring_attention(struct tape *t, const var in[3], const struct ring *r)
{
    struct run u = { .t = t, .r = *r, .dt = tape_var_dtype(t, in[0]),
                     .n = { tape_var_numel(t, in[0]), tape_var_numel(t, in[1]), tape_var_numel(t, in[2]) } };

    measure(&u);
    struct results out = t->cached && !t->stopped ? kept(&u) : go_round(&u);
    struct node *n = tape_node(t, NODE_RING, "attention", KC_ATTENTION);

    n->m = r->ranks, n->n = r->place, n->k = r->lse_numel;
    n->batch = (r->rotates ? ROTATES : 0) | (r->balanced ? BALANCED : 0) | (r->one_kv_head ? ONE_KV_HEAD : 0);
    n->flops = r->flops;
    n->work = r->scratch;
    n->keys = r->keys;
    for (int i = 0; i < 3; i++) {
        tape_edge(t, n, in[i]);
        tape_save_var(t, n, in[i]);
    }
    var y = tape_var(t, out.out, u.nout, u.dt, t->nnodes - 1, 0);
    n = &t->nodes[t->nnodes - 1];
    const int saved[] = { out.out, out.lse, out.state[0], out.state[1] };
    for (int i = 0; i < 4; i++)
        tape_save(t, n, saved[i]);
    for (int i = 1; i < 4; i++)
        tape_unref(t, saved[i]);
    return y;
}

/* ---- backward ---- */

/* Gradients in fp32 of q, k, v; those of the step; those of keys and values on their way round the ring. */
struct grads {
    int sum[3], step[3];
    int lse, moving, joined, arrived;
    int sent;
};

static void step_back(struct run *u, struct grads *g, int64_t i)
{
    struct tape *t = u->t;
    int64_t qs = half_queries(u, i) ? 2 : 1, ks = half_keys(u, i) ? 2 : 1;
    int made[3];

    if (idle(u, i)) {
        for (int j = 0; j < 3; j++) {
            moves(t, "zero gradients", KC_ELEMENTWISE, 4 * u->n[j]);
            rebind(t, &g->step[j], tape_new(t, u->n[j], DT_FP32));
        }
        return;
    }
    int lse = half_queries(u, i) ? computed(t, "half of lse", u->r.lse_numel / 2, 1) : 0;
    use(u);
    rebind(t, &g->lse, lse);
    struct kernel *k = tape_kernel(t, i == 0 ? "attention" : "attention of others", KC_ATTENTION);
    square(u, i, k);
    k->bytes = ((u->n[0] + u->nout) / qs + 2 * u->nkv / ks) * dtype_bytes(u->dt);
    for (int j = 0; j < 3; j++)
        made[j] = tape_new(t, u->n[j] / (j ? ks : qs), u->dt);
    if (u->r.scratch + u->r.keys)
        tape_unref(t, tape_alloc(t, u->r.scratch / qs + u->r.keys / ks, 1, MEM_TEMPORARIES));
    for (int j = 0; j < 3; j++)
        rebind(t, &g->step[j], made[j]);
}

/* sum[j] += step[j]; `half`: to a half of it, and the whole is copied (_partial_update()). */
static void add(struct run *u, struct grads *g, int j, bool half)
{
    struct tape *t = u->t;
    int64_t n = u->n[j], of = half ? n / 2 : n;

    moves(t, "add gradients", KC_ELEMENTWISE, of * (8 + dtype_bytes(u->dt)));
    if (half)
        rebind(t, &g->sum[j], computed(t, "join halves", n, 1));
}

/* What other ranks have added up so far of this step's keys and values. */
static void take_over(struct run *u, struct grads *g)
{
    struct tape *t = u->t;

    tape_needs(t, g->sent);
    rebind(t, &g->joined, 0);           /* next_grad_kv is now what has arrived */
    rebind(t, &g->arrived, share(t, g->moving));
    for (int j = 1; j < 3; j++)
        rebind(t, &g->sum[j], share(t, g->moving));
}

static void hand_on(struct run *u, struct grads *g, bool first)
{
    struct tape *t = u->t;
    int flat[2] = { 0, 0 };

    for (int j = 0; j < 2 && first && !u->r.one_kv_head; j++)   /* they lie as keys and values do, by positions */
        flat[j] = computed(t, "flatten gradients", u->n[1 + j], 1);
    g->joined = computed(t, "join gradients", u->nkv, 1);
    tape_unref(t, flat[0]);
    tape_unref(t, flat[1]);
    rebind(t, &g->arrived, 0);
    g->sent = collective(t, "send gradients on", COLL_ALL_TO_ALL, DT_FP32, u->nkv);
    rebind(t, &g->moving, tape_new(t, u->nkv, DT_FP32));
}

static void go_round_back(struct run *u, struct grads *g)
{
    struct tape *t = u->t;
    int joined = 0;

    for (int j = 0; j < 3; j++) {
        moves(t, "zero gradients", KC_ELEMENTWISE, 4 * u->n[j]);
        g->sum[j] = tape_new(t, u->n[j], DT_FP32);
    }
    begin(u);
    for (int64_t i = 0; i < u->r.ranks; i++) {
        arrive(u, i);
        depart(u, i, &joined);
        step_back(u, g, i);
        if (i > 0)
            take_over(u, g);
        for (int j = 1; j < 3; j++)
            add(u, g, j, half_keys(u, i));
        hand_on(u, g, i == 0);
        add(u, g, 0, half_queries(u, i));
    }
    tape_unref(t, joined);
}

void tape_run_ring(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    struct run u = { .t = t, .dt = n->edges[0].dt, .n = { n->edges[0].numel, n->edges[1].numel, n->edges[2].numel },
                     .r = { .ranks = n->m, .place = n->n, .rotates = n->batch & ROTATES, .balanced = n->batch & BALANCED,
                            .one_kv_head = n->batch & ONE_KV_HEAD, .lse_numel = n->k, .scratch = n->work, .keys = n->keys, .flops = n->flops } };
    struct grads g = { 0 };

    t->module = n->module;
    t->half = n->half;
    measure(&u);
    go_round_back(&u, &g);
    out[0] = cast(t, g.sum[0], u.n[0], DT_FP32, u.dt);
    tape_unref(t, g.sum[0]);
    tape_needs(t, g.sent);
    out[1] = cast(t, g.moving, u.nkv, DT_FP32, u.dt);
    out[2] = share(t, out[1]);          /* both are views of it */
    const int held[] = { g.sum[1], g.sum[2], g.step[0], g.step[1], g.step[2], g.lse, g.moving, g.joined, g.arrived };
    for (int i = 0; i < 9; i++)
        tape_unref(t, held[i]);
    end(&u);
}
