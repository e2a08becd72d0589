/* tape_adapter.c -- see tape_adapter.h.  What convolutions copy and what cuDNN works in is left out. */
#include "model/program/tape_adapter.h"

#include "model/program/tape_internal.h"

static void product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, int64_t batch, int64_t size)
{
    struct kernel *kernel = tape_either(t, name, KC_GEMM);

    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = batch;
    kernel->flops = 2.0 * (double)batch * (double)m * (double)n * (double)k;
    kernel->bytes = batch * (m * k + n * k + m * n) * size;
}

var tape_adapter_matrix(struct tape *t, const struct gemm_names *names, int64_t m, int64_t n, int64_t k, enum dtype dt)
{
    product(t, names->forward, m, n, k, 1, dtype_bytes(dt));
    return tape_var(t, tape_new(t, m * n, dt), m * n, dt, 0, 0);
}

static int64_t columns_of(const struct node *n) { return n->columns[0] + n->columns[1] + n->columns[2]; }

/* Made of what each part has. */
static int joined(struct tape *t, const char *name, const int *each, int64_t parts, int64_t numel, enum dtype dt)
{
    tape_pass(t, name, KC_COPY, 2 * numel * dtype_bytes(dt));
    int out = tape_new(t, numel, dt);
    for (int64_t i = 0; i < parts; i++)
        tape_unref(t, each[i]);
    return out;
}

static int convolved(struct tape *t, const struct node *n, enum dtype dt)
{
    int64_t size = dtype_bytes(dt), all = n->m * columns_of(n);
    int each[3] = { 0 };

    if (!n->joins) {
        product(t, n->names.forward, n->m, n->columns[0], n->k, n->batch, size);
        return tape_new(t, all, dt);
    }
    for (int64_t i = 0; i < n->batch; i++) {
        product(t, n->names.forward, n->m, n->columns[i], n->k, 1, size);
        each[i] = tape_new(t, n->m * n->columns[i], dt);
    }
    return joined(t, "adapter parts", each, n->batch, all, dt);
}

var tape_adapter_parts(struct tape *t, const struct adapter_parts *of, var x, var w)
{
    enum dtype dt = tape_var_dtype(t, x);
    int64_t rows = tape_var_numel(t, x) / (of->n * of->rank);

    tape_begin_saving(t, "adapter turn", KC_COPY)->bytes = 0;
    struct node *n = tape_node(t, NODE_ADAPTER_PARTS, of->names->forward, KC_GEMM);
    int at = t->nnodes - 1;
    n->names = *of->names;
    n->m = rows, n->k = of->rank, n->batch = of->n;
    n->joins = !of->grouped;
    for (int i = 0; i < of->n; i++)
        n->columns[i] = of->columns[i];
    tape_edge(t, n, x);
    tape_edge(t, n, w);
    tape_save_var(t, n, x);
    tape_save_var(t, n, w);
    struct node *own = &t->nodes[at];
    int out = convolved(t, own, dt);
    return tape_var(t, out, rows * columns_of(&t->nodes[at]), dt, at, 0);
}

/* The index is a copy of the layer's buffer (lora_ind). */
var tape_spread(struct tape *t, const char *name, var x, int64_t numel, int64_t columns)
{
    enum dtype dt = tape_var_dtype(t, x);

    tape_begin_saving(t, name, KC_COPY)->bytes = numel * dtype_bytes(dt) + 2 * tape_var_bytes(t, x) + 16 * columns;
    struct node *n = tape_node(t, NODE_SPREAD, name, KC_COPY);
    int at = t->nnodes - 1;
    tape_edge(t, n, x);
    tape_save_var(t, n, x);                     /* for its shape alone */
    int out = tape_new(t, numel, dt), index = tape_new(t, columns, DT_INT64);
    tape_save(t, &t->nodes[at], index);
    tape_unref(t, index);
    return tape_var(t, out, numel, dt, at, 0);
}

static int weight_gradient(struct tape *t, const struct edge *e)
{
    return tape_alloc(t, e->numel, dtype_bytes(e->dt), e->tensor >= 0 && !t->main_grad ? MEM_GRADS : MEM_TEMPORARIES);
}

/* Of convolutions of chunks both gradients come part by part, and are joined. */
static void parts_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    enum dtype dt = n->edges[0].dt;
    int64_t size = dtype_bytes(dt);
    int dx[3] = { 0 }, dw[3] = { 0 };

    if (!n->joins) {
        product(t, n->names.dx, n->m, n->k, n->columns[0], n->batch, size);
        out[0] = tape_new(t, n->edges[0].numel, dt);
        product(t, n->names.dw, n->columns[0], n->k, n->m, n->batch, size);
        out[1] = weight_gradient(t, &n->edges[1]);
        return;
    }
    for (int64_t i = n->batch; i-- > 0;) {
        product(t, n->names.dx, n->m, n->k, n->columns[i], 1, size);
        dx[i] = tape_new(t, n->m * n->k, dt);
        product(t, n->names.dw, n->columns[i], n->k, n->m, 1, size);
        dw[i] = tape_new(t, n->columns[i] * n->k, dt);
    }
    struct node *own = &t->nodes[n - t->nodes];         /* the convolutions are done, and the gradient goes */
    tape_unref(t, own->grad[0]);
    own->grad[0] = 0;
    tape_pass(t, "adapter join dW", KC_COPY, 2 * n->edges[1].numel * size);
    out[1] = weight_gradient(t, &n->edges[1]);
    out[0] = joined(t, "adapter join dX", dx, n->batch, n->edges[0].numel, dt);
    for (int64_t i = 0; i < n->batch; i++)
        tape_unref(t, dw[i]);
}

void tape_run_adapter(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    t->module = n->module;
    if (n->kind == NODE_ADAPTER_PARTS) {
        parts_back(t, n, out);
        return;
    }
    tape_pass(t, n->name, KC_COPY, 2 * n->edges[0].numel * dtype_bytes(n->edges[0].dt));
    out[0] = tape_new(t, n->edges[0].numel, n->edges[0].dt);
}
