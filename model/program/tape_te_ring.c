/* tape_te_ring.c -- see tape_te_ring.h. */
#include "model/program/tape_te_ring.h"

#include <stdlib.h>

#include "model/plan/plan_groups.h"
#include "model/program/tape_internal.h"

/* One run over the ring: forward's or backward's. */
struct run {
    struct tape *t;
    struct ring  r;
    enum dtype   dt;
    int64_t      nq, nkv, no;           /* elements of q, of k and v together, and of the output: values may have another width than keys */
    int          sent;                  /* the exchange that is under way */
};

static int exchange(struct run *u, const char *name, int64_t elems)
{
    struct kernel *k = tape_pass(u->t, name, KC_COPY, 0);

    return k->collective = tape_note_collective(u->t, &(struct collective){
        .op = COLL_ALL_TO_ALL, .group = (uint8_t)u->r.group, .dtype = (uint8_t)u->dt, .stream = STREAM_CONTEXT, .onward = true, .elems = elems });
}

/* What a step computes: the own keys behind the causal mask; half of the keys of a rank before this one; of one behind it all, for half of
 * the queries. */
enum part { OWN, HALF_KEYS, HALF_QUERIES };

static int64_t queries(const struct run *u, enum part part) { return part == HALF_QUERIES ? u->nq / 2 : u->nq; }
static int64_t outputs(const struct run *u, enum part part) { return part == HALF_QUERIES ? u->no / 2 : u->no; }
static int64_t keys(const struct run *u, enum part part) { return part == HALF_KEYS ? u->nkv / 2 : u->nkv; }

static void attend(struct run *u, enum part part)
{
    bool back = u->t->backward;
    int64_t elems = (queries(u, part) + outputs(u, part) + keys(u, part)) * (back ? 2 : 1);
    struct kernel *k = tape_pass(u->t, part == OWN ? "attention" : "attention of others", KC_ATTENTION, elems * dtype_bytes(u->dt));

    k->flops = (part == OWN ? 1 : 0.5) * u->r.flops * (back ? 2 : 1);
    k->attends = part == OWN ? ATTENDS_BEFORE : back ? ATTENDS_ALL_BACK : ATTENDS_ALL;
}

/* ---- forward ---- */

/* The outputs of steps, each times what the sum of all makes of its share. */
static void put_together(struct run *u, int64_t i, int64_t n)
{
    tape_pass(u->t, "output correction", KC_ELEMENTWISE, n * (dtype_bytes(u->dt) + (i ? 8 : 4)));
}

static int go_round(struct run *u, int kept[4])
{
    struct tape *t = u->t;
    int64_t n = u->r.ranks, size = dtype_bytes(u->dt);
    int *held = calloc((size_t)(3 * n), sizeof *held), wide = 0;

    if (!held) {
        t->bad = true;
        return 0;
    }
    int *kv = held, *out = held + n, *lse = held + 2 * n;
    tape_pass(t, "keys and values in one piece", KC_COPY, 2 * u->nkv * size);
    kv[0] = tape_new(t, u->nkv, u->dt);
    for (int64_t i = 0; i < n; i++) {
        enum part part = i == 0 ? OWN : i <= u->r.place ? HALF_KEYS : HALF_QUERIES;
        int before = u->sent;
        if (i < n - 1) {
            u->sent = exchange(u, "send keys and values on", u->nkv);
            kv[i + 1] = tape_new(t, u->nkv, u->dt);
        }
        tape_needs(t, before);
        attend(u, part);
        out[i] = tape_new(t, outputs(u, part), u->dt);
        lse[i] = tape_new(t, part == HALF_QUERIES ? u->r.lse_numel / 2 : u->r.lse_numel, DT_FP32);
        tape_pass(t, "lse correction", KC_ELEMENTWISE, (i ? 12 : 8) * u->r.lse_numel);
        if (i == 0)
            kept[2] = tape_new(t, u->r.lse_numel, DT_FP32);
    }
    for (int64_t i = 0; i < n; i++) {
        put_together(u, i, outputs(u, i <= u->r.place ? OWN : HALF_QUERIES));
        if (i == 0)
            wide = tape_new(t, u->no, DT_FP32);
    }
    tape_pass(t, "cast", KC_COPY, u->no * (4 + size));
    kept[1] = tape_new(t, u->no, u->dt);
    kept[0] = kv[n - 1];
    kv[n - 1] = 0;
    kept[3] = tape_new(t, 64 * n, DT_INT64);        /* a random generator's state of each step, 512 bytes each */
    tape_unref(t, wide);
    for (int64_t i = 0; i < 3 * n; i++)
        tape_unref(t, held[i]);
    free(held);
    return kept[1];
}

var te_ring_attention(struct tape *t, var q, var k, var v, const struct ring *r)
{
    struct run u = { .t = t, .r = *r, .dt = tape_var_dtype(t, q), .nq = tape_var_numel(t, q), .nkv = tape_var_numel(t, k) + tape_var_numel(t, v),
                     .no = ring_output(tape_var_numel(t, q), tape_var_numel(t, k), tape_var_numel(t, v)) };
    int kept[4] = { 0 }, out = go_round(&u, kept);
    struct node *n = tape_node(t, NODE_TE_RING, "attention", KC_ATTENTION);
    const var in[] = { q, k, v };

    n->m = r->ranks, n->n = r->place, n->k = r->lse_numel, n->batch = r->group;
    n->flops = r->flops;
    n->work = r->scratch;
    n->keys = r->keys;
    for (int i = 0; i < 3; i++)
        tape_edge(t, n, in[i]);
    tape_save_var(t, n, q);
    for (int i = 0; i < 4; i++)
        tape_save(t, n, kept[i]);
    for (int i = 0; i < 4; i++)
        if (kept[i] != out)
            tape_unref(t, kept[i]);
    return tape_var(t, out, u.no, u.dt, t->nnodes - 1, 0);
}

/* ---- backward ---- */

/* A step's gradients, and what they are added to. */
static void step_back(struct run *u, int64_t i)
{
    struct tape *t = u->t;
    int64_t n = u->r.ranks, size = dtype_bytes(u->dt);
    enum part part = i == n - 1 ? OWN : i >= n - u->r.place - 1 ? HALF_KEYS : HALF_QUERIES;
    int64_t work = u->r.scratch / (part == HALF_QUERIES ? 2 : 1) + u->r.keys / (part == HALF_KEYS ? 2 : 1);

    attend(u, part);
    int dq = tape_new(t, queries(u, part), u->dt), dkv = tape_new(t, keys(u, part), u->dt);
    if (work)
        tape_unref(t, tape_alloc(t, work, 1, MEM_TEMPORARIES));
    tape_pass(t, "add dq", KC_ELEMENTWISE, (i ? 3 : 2) * queries(u, part) * size);
    tape_unref(t, dq);
    tape_needs(t, u->sent);
    tape_pass(t, "add dk and dv", KC_ELEMENTWISE, (i ? 3 : 2) * keys(u, part) * size);
    tape_unref(t, dkv);
}

void tape_run_te_ring(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    struct run u = { .t = t, .dt = n->edges[0].dt, .nq = n->edges[0].numel, .nkv = n->edges[1].numel + n->edges[2].numel,
                     .no = ring_output(n->edges[0].numel, n->edges[1].numel, n->edges[2].numel),
                     .r = { .ranks = n->m, .place = n->n, .group = (int)n->batch, .lse_numel = n->k, .scratch = n->work, .keys = n->keys, .flops = n->flops } };
    int dq, both[2];

    t->module = n->module;
    t->half = n->half;
    tape_pass(t, "keys and values to their buffer", KC_COPY, 2 * u.nkv * dtype_bytes(u.dt));
    dq = tape_new(t, u.nq, u.dt);
    for (int i = 0; i < 2; i++)
        both[i] = tape_new(t, 2 * u.nkv, u.dt);     /* keys and values, and their gradients: what is sent, what is received */
    for (int64_t i = 0; i < u.r.ranks; i++) {
        bool first = i == 0, last = i == u.r.ranks - 1;
        u.sent = exchange(&u, first ? "send keys and values on" : last ? "send gradients on" : "send both on", first || last ? u.nkv : 2 * u.nkv);
        step_back(&u, i);
    }
    out[0] = dq;
    out[1] = both[u.r.ranks % 2];               /* views of it */
    out[2] = both[u.r.ranks % 2];
    t->stores[out[1]].refs++;
    tape_unref(t, both[(u.r.ranks + 1) % 2]);
}
