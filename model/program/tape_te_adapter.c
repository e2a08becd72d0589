/* tape_te_adapter.c -- see tape_te_adapter.h. */
#include "model/program/tape_te_adapter.h"

#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"

static void copy(struct tape *t, const char *name, int64_t numel, enum dtype dt) { tape_pass(t, name, KC_COPY, 2 * numel * dtype_bytes(dt)); }

/* What comes, in a tensor of its own, and a copy of it in another order. */
static int sorted(struct tape *t, const char *name, int64_t numel, enum dtype dt)
{
    int came = tape_new(t, numel, dt);

    copy(t, name, numel, dt);
    int in_order = tape_new(t, numel, dt);
    tape_unref(t, came);
    return in_order;
}

static int join(struct tape *t, int64_t numel, enum dtype dt)
{
    tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, dt, numel);
    return sorted(t, "columns in order", numel, dt);
}

/* Of lists of tensors: what goes to a rank lies in one piece where it is positions, and is copied where it is columns. */
static int exchange(struct tape *t, bool columns, int64_t numel, enum dtype dt)
{
    int pieces = 0;

    if (columns) {
        copy(t, "columns of each rank", numel, dt);
        pieces = tape_new(t, numel, dt);
    }
    tape_issue(t, "all-to-all", COLL_ALL_TO_ALL, RED_NONE, dt, numel);
    int out = sorted(t, columns ? "positions in order" : "columns in order", numel, dt);
    tape_unref(t, pieces);
    return out;
}

var te_adapter_move(struct tape *t, enum te_adapter_move how, var x, int64_t ranks)
{
    enum dtype dt = tape_var_dtype(t, x);
    int64_t numel = tape_var_numel(t, x);
    struct node *n = tape_node_of(t, NODE_TE_ADAPTER, "collective", KC_COPY, x);
    int node = t->nnodes - 1;

    n->m = (int64_t)how;
    n->k = numel;
    switch (how) {
    case TE_ADAPTER_JOIN:     return tape_var(t, join(t, numel * ranks, dt), numel * ranks, dt, node, 0);
    case TE_ADAPTER_SLICE:    return tape_var(t, tape_share(t, t->vars[x].store), numel / ranks, dt, node, 0);
    case TE_ADAPTER_EXCHANGE: break;
    }
    return tape_var(t, exchange(t, false, numel, dt), numel, dt, node, 0);
}

void te_adapter_move_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    enum dtype dt = n->edges[0].dt;

    switch ((enum te_adapter_move)n->m) {
    case TE_ADAPTER_JOIN:
        copy(t, "own columns", n->k, dt);
        out[0] = tape_new(t, n->k, dt);
        break;
    case TE_ADAPTER_SLICE:
        tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, dt, n->k);
        out[0] = tape_new(t, n->k, dt);
        break;
    case TE_ADAPTER_EXCHANGE:
        out[0] = exchange(t, true, n->k, dt);
        break;
    }
}
