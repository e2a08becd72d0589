/* tape_te_latent.c -- see tape_te_latent.h.  Read at megatron-core 0.16.1.  Both functions save tables of cosines and sines alone. */
#include "model/program/tape_te_latent.h"

#include "model/program/tape_internal.h"

var te_latent_rotate(struct tape *t, const char *name, var x, int64_t numel)
{
    enum dtype dt = tape_var_dtype(t, x);

    tape_begin(t, name, KC_ELEMENTWISE)->bytes = 2 * numel * dtype_bytes(dt);
    struct node *n = tape_node(t, NODE_TE_LATENT, name, KC_ELEMENTWISE);
    tape_edge(t, n, x);
    n->k = numel;
    t->stores[t->vars[x].store].refs++;
    return tape_var(t, t->vars[x].store, tape_var_numel(t, x), dt, t->nnodes - 1, 0);
}

void te_latent_keys(struct tape *t, const char *name, var both, var shared, const int64_t numel[2], var out[2])
{
    enum dtype dt = tape_var_dtype(t, both);
    struct kernel *k = tape_begin(t, name, KC_ELEMENTWISE);

    k->bytes = (tape_var_numel(t, both) + tape_var_numel(t, shared) + numel[0] + numel[1]) * dtype_bytes(dt);
    struct node *n = tape_node(t, NODE_JOIN, name, KC_ELEMENTWISE);
    int node = t->nnodes - 1;
    tape_edge(t, n, both);
    tape_edge(t, n, shared);
    n->nslots = 2;
    for (int i = 0; i < 2; i++)
        out[i] = tape_var(t, tape_alloc(t, numel[i], dtype_bytes(dt), MEM_ACTIVATIONS), numel[i], dt, node, i);
}

void tape_run_te_latent(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    struct kernel *k = tape_kernel(t, n->name, n->kc);

    k->module = n->module;
    k->half = n->half;
    k->bytes = 2 * n->k * dtype_bytes(n->dt);
    out[0] = n->grad[0];
    t->stores[out[0]].refs++;
}
