/* tape_te_mtp.c -- see tape_te_mtp.h.  megatron-core 0.16.1: tensor_parallel/mappings.py, _GatherFromModelParallelRegion;
 * transformer/multi_token_prediction.py, MTPLossAutoScaler. */
#include "model/program/tape_te_mtp.h"

#include "model/plan/plan_groups.h"
#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"

/* What comes lies rank by rank: it is copied column by column. */
var te_gather_columns(struct tape *t, const char *name, var x, int64_t ranks)
{
    enum dtype dt = tape_var_dtype(t, x);
    int64_t numel = tape_var_numel(t, x) * ranks;
    struct node *n = tape_node(t, NODE_TE_COLUMNS, name, KC_COPY);
    int node = t->nnodes - 1;

    tape_edge(t, n, x);
    tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, dt, numel);
    int came = tape_new(t, numel, dt);
    tape_begin(t, name, KC_COPY)->bytes = 2 * numel * dtype_bytes(dt);
    int y = tape_new(t, numel, dt);
    tape_unref(t, came);
    return tape_var(t, y, numel, dt, node, 0);
}

var te_attach_loss(struct tape *t, const char *name, var x, var loss)
{
    struct node *n = tape_node(t, NODE_TE_ATTACHED, name, KC_ELEMENTWISE);
    int node = t->nnodes - 1, store = t->vars[x].store;

    tape_edge(t, n, x);
    tape_edge(t, n, loss);
    tape_save_var(t, n, loss);
    t->stores[store].refs++;
    return tape_var(t, store, tape_var_numel(t, x), tape_var_dtype(t, x), node, 0);
}

void tape_run_te_mtp(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[n->kind == NODE_TE_ATTACHED];
    struct kernel *k = tape_kernel(t, n->name, n->kc);

    k->module = n->module;
    k->half = n->half;
    k->bytes = 2 * e->numel * dtype_bytes(e->dt);
    if (n->kind == NODE_TE_COLUMNS) {
        out[0] = tape_new(t, e->numel, e->dt);
        return;
    }
    out[0] = n->grad[0];
    t->stores[out[0]].refs++;
    out[1] = tape_new(t, e->numel, e->dt);
}
