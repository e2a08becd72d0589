/* tape_te_bias.c -- see tape_te_bias.h. */
#include "model/program/tape_te_bias.h"

#include "model/program/tape_internal.h"

static struct node *begin(struct tape *t, const char *name, var x, var b, int64_t passes)
{
    tape_begin(t, name, KC_ELEMENTWISE)->bytes = passes * tape_var_numel(t, x) * dtype_bytes(tape_var_dtype(t, x));
    struct node *n = tape_node(t, NODE_TE_BIAS, name, KC_ELEMENTWISE);

    tape_edge(t, n, x);
    tape_edge(t, n, b);
    return n;
}

var te_bias_add(struct tape *t, const char *name, var x, var b)
{
    int64_t numel = tape_var_numel(t, x);

    begin(t, name, x, b, 2);
    int node = t->nnodes - 1;
    return tape_var(t, tape_new(t, numel, tape_var_dtype(t, x)), numel, tape_var_dtype(t, x), node, 0);
}

/* An expert's product of bias and weights goes when it has been added; the sums, when they lie in one piece. */
var te_bias_of_experts(struct tape *t, const char *name, var x, var b, var w, int64_t experts)
{
    int64_t numel = tape_var_numel(t, x), each = ceil_div(numel, experts);
    enum dtype dt = tape_var_dtype(t, x);
    struct node *n = begin(t, name, x, b, 4);

    tape_edge(t, n, w);
    tape_save_var(t, n, w);
    n->k = each;
    int node = t->nnodes - 1, sums = tape_new(t, numel, dt), product = tape_new(t, each, dt);
    tape_unref(t, product);
    tape_begin(t, "rows in one piece", KC_COPY)->bytes = 2 * numel * dtype_bytes(dt);
    int y = tape_new(t, numel, dt);
    tape_unref(t, sums);
    return tape_var(t, y, numel, dt, node, 0);
}

/* The rows' gradient goes on; of experts, times weights and times biases one expert after the other. */
void tape_run_te_bias(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    int64_t size = dtype_bytes(n->edges[0].dt);
    struct kernel *k = tape_kernel(t, n->name, n->kc);

    k->module = n->module;
    k->half = n->half;
    k->bytes = (n->nedges > 2 ? 6 : 1) * n->edges[0].numel * size;
    out[0] = n->grad[0];
    t->stores[out[0]].refs++;
    for (int i = 1; i < n->nedges; i++)
        out[i] = tape_wants(n, i) ? tape_new(t, n->edges[i].numel, n->edges[i].dt) : 0;
    for (int i = 0; i < 2 && n->k > 0; i++)
        tape_unref(t, tape_new(t, n->k, n->edges[0].dt));
}
