/* tape_exchange.c -- see tape_exchange.h. */
#include "model/program/tape_exchange.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_internal.h"

static void collective(struct tape *t, const char *name, enum coll_op op, enum dtype dt, int64_t elems)
{
    struct kernel *k = tape_begin_copy(t, name);
    bool tensor = op == COLL_ALL_REDUCE, adds = tensor || op == COLL_REDUCE_SCATTER;

    if (k != &t->skipped)
        k->collective = tape_note_collective(t, &(struct collective){
            .op = (uint8_t)op, .group = tensor ? GROUP_TENSOR : GROUP_CONTEXT, .dtype = (uint8_t)dt, .red = adds ? RED_SUM : RED_NONE,
            .stream = tensor ? STREAM_TENSOR : STREAM_CONTEXT, .elems = elems });
}

static int copied(struct tape *t, const char *name, int64_t numel, enum dtype dt)
{
    tape_begin_copy(t, name)->bytes = 2 * numel * dtype_bytes(dt);
    return tape_new(t, numel, dt);
}

var tape_exchange(struct tape *t, var x, bool strided)
{
    int64_t numel = tape_var_numel(t, x);
    enum dtype dt = tape_var_dtype(t, x);
    struct node *n = tape_node(t, NODE_EXCHANGE, "all-to-all", KC_COPY);
    int node = t->nnodes - 1;

    tape_edge(t, n, x);
    n->batch = strided;
    collective(t, "all-to-all", COLL_ALL_TO_ALL, dt, numel);
    return tape_var(t, tape_new(t, numel, dt), numel, dt, node, 0);
}

/* The tensors of a list count as one; both lists are gone when the parts are joined. */
static int exchange_lists(struct tape *t, int64_t numel, enum dtype dt, bool copies)
{
    int parts = copies ? copied(t, "parts for each rank", numel, dt) : 0, came = tape_new(t, numel, dt);

    collective(t, "all-to-all", COLL_ALL_TO_ALL, dt, numel);
    int y = copied(t, "join parts", numel, dt);
    tape_unref(t, came);
    tape_unref(t, parts);
    return y;
}

var tape_exchange_lists(struct tape *t, var x, bool copies, bool copies_back)
{
    int64_t numel = tape_var_numel(t, x);
    enum dtype dt = tape_var_dtype(t, x);
    struct node *n = tape_node(t, NODE_EXCHANGE_LISTS, "all-to-all", KC_COPY);
    int node = t->nnodes - 1;

    tape_edge(t, n, x);
    n->batch = copies_back;
    return tape_var(t, exchange_lists(t, numel, dt, copies), numel, dt, node, 0);
}

var tape_gather_joined(struct tape *t, const char *name, var x, int64_t ranks)
{
    int64_t numel = tape_var_numel(t, x) * ranks;
    enum dtype dt = tape_var_dtype(t, x);
    struct node *n = tape_node(t, NODE_GATHER_JOINED, name, KC_COPY);
    int node = t->nnodes - 1;

    tape_edge(t, n, x);
    int all = tape_new(t, numel, dt);
    collective(t, name, COLL_ALL_GATHER, dt, numel);
    int y = copied(t, "join parts", numel, dt);
    tape_unref(t, all);
    return tape_var(t, y, numel, dt, node, 0);
}

/* The list's tensors count as one. */
static var gather_list(struct tape *t, const char *name, int64_t numel, enum dtype dt, int node)
{
    int list = tape_new(t, numel, dt);

    collective(t, name, COLL_ALL_GATHER, dt, numel);
    int flat = tape_new(t, numel, dt);
    tape_begin_copy(t, "into the list")->bytes = 2 * numel * dtype_bytes(dt);
    tape_unref(t, flat);
    return tape_var(t, list, numel, dt, node, 0);
}

var tape_gather_numbers(struct tape *t, const char *name, int64_t numel)
{
    return gather_list(t, name, numel, DT_INT64, 0);
}

var tape_gather_list(struct tape *t, const char *name, var x, int64_t ranks)
{
    struct node *n = tape_node(t, NODE_GATHER_LIST, name, KC_COPY);

    tape_edge(t, n, x);
    n->k = ranks;
    return gather_list(t, name, tape_var_numel(t, x) * ranks, tape_var_dtype(t, x), t->nnodes - 1);
}

var tape_sum_in_place(struct tape *t, var x, bool back)
{
    struct node *n = tape_node(t, NODE_SUM_IN_PLACE, "all-reduce", KC_COPY);
    int node = t->nnodes - 1;

    tape_edge(t, n, x);
    n->batch = back;
    if (!back)
        collective(t, "all-reduce", COLL_ALL_REDUCE, tape_var_dtype(t, x), tape_var_numel(t, x));
    return tape_var(t, tape_share(t, t->vars[x].store), tape_var_numel(t, x), tape_var_dtype(t, x), node, 0);
}

static int exchange_back(struct tape *t, const struct node *n)
{
    const struct edge *e = &n->edges[0];
    int strides = n->batch ? tape_new(t, e->numel, e->dt) : 0;
    int y = strides ? copied(t, "contiguous result", e->numel, e->dt) : 0;

    tape_unref(t, strides);
    int parts = strides ? copied(t, "parts in order", e->numel, e->dt) : 0;
    collective(t, "all-to-all", COLL_ALL_TO_ALL, e->dt, e->numel);
    y = y ? y : tape_new(t, e->numel, e->dt);
    tape_unref(t, parts);
    return y;
}

void tape_run_exchange(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];

    t->module = n->module;
    t->half = n->half;
    if (n->kind == NODE_EXCHANGE) {
        out[0] = exchange_back(t, n);
        return;
    }
    if (n->kind == NODE_EXCHANGE_LISTS || n->kind == NODE_GATHER_JOINED) {
        out[0] = n->kind == NODE_GATHER_JOINED ? copied(t, "own part", e->numel, e->dt) : exchange_lists(t, e->numel, e->dt, n->batch);
        return;
    }
    if (n->kind == NODE_SUM_IN_PLACE) {
        if (n->batch)
            collective(t, "all-reduce", COLL_ALL_REDUCE, e->dt, e->numel);
        out[0] = tape_share(t, n->grad[0]);
        return;
    }
    collective(t, "sum of parts", COLL_REDUCE_SCATTER, e->dt, e->numel * n->k);
    out[0] = tape_new(t, e->numel, e->dt);
}
