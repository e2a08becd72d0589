/* tape_te_context.c -- see tape_te_context.h. */
#include "model/program/tape_te_context.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_internal.h"

static int issue(struct tape *t, const char *name, enum coll_op op, int group, enum dtype dt, int64_t elems)
{
    struct kernel *k = tape_pass(t, name, KC_COPY, 0);

    return k->collective = tape_note_collective(t, &(struct collective){
        .op = (uint8_t)op, .group = (uint8_t)group, .dtype = (uint8_t)dt, .red = op == COLL_REDUCE_SCATTER ? RED_SUM : RED_NONE,
        .stream = STREAM_CONTEXT, .elems = elems });
}

static int copied(struct tape *t, const char *name, int64_t numel, enum dtype dt)
{
    tape_pass(t, name, KC_COPY, 2 * numel * dtype_bytes(dt));
    return tape_new(t, numel, dt);
}

static int copied_from(struct tape *t, const char *name, int from, int64_t numel, enum dtype dt)
{
    int y = copied(t, name, numel, dt);

    tape_unref(t, from);
    return y;
}

/* ---- all-gather ---- */

/* A run over a rank's two chunks: forward's or backward's. */
struct run {
    struct tape *t;
    struct ring  r;
    enum dtype   dt;
    bool         turns;
    int64_t      nq, no, own[2];        /* elements of q; of the output; of k and of v */
    int          all[2];                /* keys and values of all ranks, in order */
};

/* gather_along_first_dim() of both; then index_select(). */
static void gather(struct run *u)
{
    struct tape *t = u->t;

    for (int i = 0; i < 2; i++) {
        issue(t, i ? "gather values" : "gather keys", COLL_ALL_GATHER, u->r.group, u->dt, u->own[i] * u->r.ranks);
        u->all[i] = tape_new(t, u->own[i] * u->r.ranks, u->dt);
    }
    for (int i = 0; i < 2; i++)
        u->all[i] = copied_from(t, i ? "values in order" : "keys in order", u->all[i], u->own[i] * u->r.ranks, u->dt);
}

/* Chunks of a rank's own two, of 2 n, that are before the end of its first or second chunk. */
static int64_t chunks(const struct run *u, int step) { return step ? 2 * u->r.ranks - u->r.place : u->r.place + 1; }
/* Elements of their keys (0) or values (1). */
static int64_t keys(const struct run *u, int step, int i) { return chunks(u, step) * u->own[i] / 2; }

/* A chunk of queries with the keys up to its end, its own behind the causal mask. */
static void attend(struct run *u, int step)
{
    bool back = u->t->backward;
    int64_t elems = (u->nq / 2 + u->no / 2 + keys(u, step, 0) + keys(u, step, 1)) * (back ? 2 : 1);
    struct kernel *k = tape_pass(u->t, "attention", KC_ATTENTION, elems * dtype_bytes(u->dt));

    k->flops = u->r.flops / 4 * ((double)chunks(u, step) - 0.5) * (back ? 2 : 1);
    k->attends = back ? ATTENDS_ALL_BACK : ATTENDS_ALL;
}

/* Of samples that are outermost chunks do not lie in one piece: q, k, v, in backward the output and its gradient, too. */
static void cut_out(struct run *u, int step, int part[5])
{
    const int64_t numel[5] = { u->nq / 2, keys(u, step, 0), keys(u, step, 1), u->no / 2, u->no / 2 };

    for (int i = 0; i < 5; i++)
        part[i] = u->turns && (i < 3 || u->t->backward) ? copied(u->t, "chunk in one piece", numel[i], u->dt) : 0;
}

static void drop_parts(struct tape *t, int part[5])
{
    for (int i = 0; i < 5; i++)
        tape_unref(t, part[i]);
}

var te_gathered_attention(struct tape *t, var q, var k, var v, const struct ring *r, bool turns)
{
    struct run u = { .t = t, .r = *r, .dt = tape_var_dtype(t, q), .turns = turns, .nq = tape_var_numel(t, q), .own = { tape_var_numel(t, k), tape_var_numel(t, v) } };
    int own[2] = { 0 }, lse[2], part[2], pieces[2][5];

    u.no = ring_output(u.nq, u.own[0], u.own[1]);
    for (int i = 0; i < 2 && turns; i++)
        own[i] = copied(t, "positions first", u.own[i], u.dt);
    gather(&u);
    int out = tape_new(t, u.no, u.dt);
    tape_pass(t, "zeros", KC_COPY, u.no * dtype_bytes(u.dt));
    int zeros = tape_new(t, u.no, u.dt);
    for (int i = 0; i < 2; i++) {
        cut_out(&u, i, pieces[i]);
        attend(&u, i);
        part[i] = tape_new(t, u.no / 2, u.dt);
        lse[i] = tape_new(t, r->lse_numel / 2, DT_FP32);
        if (i > 0)
            tape_pass(t, "output of a chunk", KC_COPY, u.no * dtype_bytes(u.dt));
    }
    tape_pass(t, "output of a chunk", KC_COPY, u.no * dtype_bytes(u.dt));
    int states = tape_new(t, 2 * 64, DT_INT64);     /* a random generator's, 512 bytes each */
    for (int i = 0; i < 2; i++) {
        tape_unref(t, u.all[i]);
        tape_unref(t, part[i]);
        drop_parts(t, pieces[i]);
    }
    tape_unref(t, zeros);

    struct node *n = tape_node(t, NODE_TE_GATHERED, "attention", KC_ATTENTION);
    const var in[] = { q, k, v };
    const int kept[] = { own[0], own[1], out, lse[0], lse[1], states };
    n->m = r->ranks, n->n = r->place, n->k = turns, n->batch = r->group;
    n->flops = r->flops;
    n->work = r->scratch;
    n->keys = r->keys;
    for (int i = 0; i < 3; i++)
        tape_edge(t, n, in[i]);
    for (int i = 0; i < (turns ? 1 : 3); i++)
        tape_save_var(t, n, in[i]);
    for (int i = 0; i < 6; i++)
        if (kept[i])
            tape_save(t, n, kept[i]);
    for (int i = 0; i < 6; i++)
        if (kept[i] != out)
            tape_unref(t, kept[i]);
    return tape_var(t, out, u.no, u.dt, t->nnodes - 1, 0);
}

/* One chunk's gradients; those of keys lie as q does. */
static void chunk_back(struct run *u, int step, int made[3], int pieces[5])
{
    struct tape *t = u->t;
    int64_t work = u->r.scratch / 2 + u->r.keys / 2 * chunks(u, step);

    cut_out(u, step, pieces);
    attend(u, step);
    made[0] = tape_new(t, u->nq / 2, u->dt);
    for (int i = 1; i < 3; i++)
        made[i] = tape_new(t, keys(u, step, i - 1), u->dt);
    if (work)
        tape_unref(t, tape_alloc(t, work, 1, MEM_TEMPORARIES));
}

static void add_chunk(struct run *u, int step, int made[3])
{
    struct tape *t = u->t;
    int64_t size = dtype_bytes(u->dt);

    tape_pass(t, "dq of a chunk", KC_COPY, u->nq * size);
    for (int i = 1; i < 3; i++) {
        if (u->turns)
            made[i] = copied_from(t, "positions first", made[i], keys(u, step, i - 1), u->dt);
        tape_pass(t, i == 1 ? "add dk" : "add dv", KC_ELEMENTWISE, 3 * keys(u, step, i - 1) * size);
    }
}

static void gathered_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    struct run u = { .t = t, .dt = n->edges[0].dt, .turns = n->k != 0, .nq = n->edges[0].numel, .own = { n->edges[1].numel, n->edges[2].numel },
                     .no = ring_output(n->edges[0].numel, n->edges[1].numel, n->edges[2].numel),
                     .r = { .ranks = n->m, .place = n->n, .group = (int)n->batch, .scratch = n->work, .keys = n->keys, .flops = n->flops } };
    const int64_t all[2] = { u.own[0] * u.r.ranks, u.own[1] * u.r.ranks };
    int sum[2], made[2][3], pieces[2][5];

    for (int i = 0; i < 2; i++) {
        tape_pass(t, "zeros", KC_COPY, all[i] * dtype_bytes(u.dt));
        out[0] = i ? out[0] : tape_new(t, u.nq, u.dt);
        sum[i] = tape_new(t, all[i], u.dt);
    }
    gather(&u);
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            chunk_back(&u, i, made[i], pieces[i]);
        if (i > 0)
            add_chunk(&u, i - 1, made[i - 1]);
    }
    for (int i = 0; i < 2; i++)
        sum[i] = copied_from(t, i ? "dv as it is dealt out" : "dk as it is dealt out", sum[i], all[i], u.dt);
    for (int i = 0; i < 2; i++) {
        issue(t, i ? "scatter dv" : "scatter dk", COLL_REDUCE_SCATTER, u.r.group, u.dt, all[i]);
        out[1 + i] = tape_new(t, u.own[i], u.dt);
        tape_unref(t, sum[i]);
    }
    for (int i = 0; i < 2 && u.turns; i++)
        out[1 + i] = copied_from(t, "samples first", out[1 + i], u.own[i], u.dt);
    for (int i = 0; i < 2; i++) {
        tape_unref(t, u.all[i]);
        drop_parts(t, pieces[i]);
        for (int k = 0; k < 3; k++)
            tape_unref(t, made[i][k]);
    }
}

/* ---- all-to-all ---- */

/* flash_attn_a2a_communicate(): of `n` tensors one is copied, the one before it on its way, the one before that copied where it came.  What was
 * copied stays until all have come. */
static void communicate(struct tape *t, const struct te_exchange *x, bool before, int n, const int64_t *numel, enum dtype dt, int *out)
{
    int copy[3] = { 0 }, came[3] = { 0 }, sent[3] = { 0 };

    for (int i = 0; i < n + 2; i++) {
        if (i > 0 && i < n + 1) {
            sent[i - 1] = issue(t, "all-to-all", COLL_ALL_TO_ALL, x->group, dt, numel[i - 1]);
            came[i - 1] = tape_new(t, numel[i - 1], dt);
        }
        if (i < n && !before) {
            copy[i] = x->turns ? copied(t, "positions first", numel[i], dt) : 0;
            copy[i] = copied_from(t, "positions as dealt out", copy[i], numel[i], dt);
        }
        if (i > 1) {
            tape_needs(t, sent[i - 2]);
            if (before && x->turns)
                came[i - 2] = copied_from(t, "samples first", came[i - 2], numel[i - 2], dt);
            out[i - 2] = copied_from(t, before ? "positions in order" : "heads of a position", came[i - 2], numel[i - 2], dt);
        }
        if (i < n && before)
            copy[i] = copied(t, "heads of each rank", numel[i], dt);
    }
    for (int i = 0; i < n; i++)
        tape_unref(t, copy[i]);
}

static struct node *exchange_node(struct tape *t, enum node_kind kind, const struct te_exchange *x)
{
    struct node *n = tape_node(t, kind, "all-to-all", KC_COPY);

    n->m = x->ranks, n->batch = x->group, n->k = x->turns;
    return n;
}

void te_exchange_heads(struct tape *t, const var in[3], const struct te_exchange *x, var out[3])
{
    enum dtype dt = tape_var_dtype(t, in[0]);
    int64_t numel[3];
    int made[3];

    for (int i = 0; i < 3; i++)
        numel[i] = tape_var_numel(t, in[i]);
    communicate(t, x, true, 3, numel, dt, made);
    struct node *n = exchange_node(t, NODE_TE_HEADS, x);
    n->nslots = 3;
    for (int i = 0; i < 3; i++)
        tape_edge(t, n, in[i]);
    for (int i = 0; i < 3; i++)
        out[i] = tape_var(t, made[i], numel[i], dt, t->nnodes - 1, i);
}

var te_exchange_positions(struct tape *t, var o, const struct te_exchange *x)
{
    enum dtype dt = tape_var_dtype(t, o);
    int64_t numel = tape_var_numel(t, o);
    int made;

    communicate(t, x, false, 1, &numel, dt, &made);
    tape_edge(t, exchange_node(t, NODE_TE_POSITIONS, x), o);
    return tape_var(t, made, numel, dt, t->nnodes - 1, 0);
}

var te_own_sinks(struct tape *t, var sinks, const struct te_exchange *x)
{
    enum dtype dt = tape_var_dtype(t, sinks);
    int64_t own = tape_var_numel(t, sinks) / x->ranks;
    int made = copied(t, "sinks of own heads", own, dt);

    tape_edge(t, exchange_node(t, NODE_TE_SINKS, x), sinks);
    return tape_var(t, made, own, dt, t->nnodes - 1, 0);
}

void tape_run_te_context(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct te_exchange x = { .ranks = n->m, .group = (int)n->batch, .turns = n->k != 0 };
    int64_t numel[3];

    t->module = n->module;
    t->half = n->half;
    if (n->kind == NODE_TE_GATHERED) {
        gathered_back(t, n, out);
        return;
    }
    for (int i = 0; i < n->nedges; i++)
        numel[i] = n->edges[i].numel;
    if (n->kind == NODE_TE_SINKS) {
        issue(t, "gather gradients of sinks", COLL_ALL_GATHER, x.group, n->edges[0].dt, numel[0]);
        out[0] = tape_new(t, numel[0], n->edges[0].dt);
        return;
    }
    communicate(t, &x, n->kind == NODE_TE_POSITIONS, n->nedges, numel, n->edges[0].dt, out);
}
