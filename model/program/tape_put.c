/* tape_put.c -- see tape_put.h.  PyTorch's node is CopySlices (torch/csrc/autograd/functions/tensor.cpp of 2.15):
 * backward copies the whole gradient, clones the part, which is x's gradient, and puts zeros in its place for whoever filled the rest. */
#include "model/program/tape_put.h"

#include "model/program/tape_internal.h"

var tape_put(struct tape *t, const char *name, var into, var x)
{
    tape_begin(t, name, KC_COPY)->bytes = 2 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_PUT, name, KC_COPY);
    tape_edge(t, n, into);
    tape_edge(t, n, x);
    n->m = tape_var_numel(t, into);
    t->stores[t->vars[into].store].refs++;
    return tape_var(t, t->vars[into].store, n->m, tape_var_dtype(t, into), t->nnodes - 1, 0);
}

void tape_put_backward(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *x = &n->edges[1];
    int64_t e = dtype_bytes(n->dt);
    struct kernel *k = tape_kernel(t, n->name, n->kc);

    k->module = n->module;
    k->half = n->half;
    k->bytes = 2 * (n->m + x->numel) * e;
    int whole = tape_alloc(t, n->m, e, MEM_TEMPORARIES);
    out[1] = tape_alloc(t, x->numel, e, MEM_TEMPORARIES);
    if (n->edges[0].node) {
        k->bytes += 3 * x->numel * e;
        tape_unref(t, tape_alloc(t, x->numel, e, MEM_TEMPORARIES));      /* zeros, copied into the part */
        out[0] = whole;
    } else {
        tape_unref(t, whole);
    }
}
