/* tape_adapter_row.c -- see tape_adapter_row.h. */
#include "model/program/tape_adapter_row.h"

#include "model/plan/cut_adapter.h"
#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"

enum { X, A, B };

static void product_of(struct kernel *kernel, int64_t m, int64_t n, int64_t k, int64_t size)
{
    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = 1;
    kernel->flops = 2.0 * (double)m * (double)n * (double)k;
    kernel->bytes = (m * k + n * k + m * n) * size;
}

static void product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, int64_t size)
{
    product_of(tape_either(t, name, KC_GEMM), m, n, k, size);
}

/* Of what every rank has columns of: all of them. */
static int gathered(struct tape *t, int64_t numel, enum dtype dt)
{
    tape_issue(t, "all-gather", COLL_ALL_GATHER, RED_NONE, dt, numel);
    int parts = tape_new(t, numel, dt);
    tape_pass(t, "join parts", KC_COPY, 2 * numel * dtype_bytes(dt));
    int all = tape_new(t, numel, dt);
    tape_unref(t, parts);
    return all;
}

/* Of parts of sums: this rank's columns of the sums. */
static int scattered(struct tape *t, int64_t numel, int64_t ranks, enum dtype dt)
{
    tape_pass(t, "sort parts", KC_COPY, 2 * numel * dtype_bytes(dt));
    int sorted = tape_new(t, numel, dt);
    tape_issue(t, "reduce-scatter", COLL_REDUCE_SCATTER, RED_SUM, dt, numel);
    int own = tape_new(t, numel / ranks, dt);
    tape_unref(t, sorted);
    return own;
}

/* By B: its result. */
static int expanded(struct tape *t, const struct adapter_row *of, int64_t rows, enum dtype dt)
{
    bool gathers = cut_adapter_gathers(rows, of->n);
    int64_t rank = gathers ? of->rank : of->rank / of->ranks;
    int moved = gathers ? gathered(t, of->n * of->rank, dt) : scattered(t, rows * of->rank, of->ranks, dt);

    t->module = of->modules[1];
    product(t, "adapter B", rows, of->n, rank, dtype_bytes(dt));
    int y = tape_new(t, rows * of->n, dt);
    tape_unref(t, moved);
    return y;
}

var tape_adapter_row(struct tape *t, const struct adapter_row *of, var x, var a, var b)
{
    enum dtype dt = tape_var_dtype(t, x);
    int64_t rows = tape_var_numel(t, x) / of->k, inner = rows * of->rank;

    t->module = of->modules[0];
    product_of(tape_begin_reading(t, "adapter A", KC_GEMM), rows, of->rank, of->k, dtype_bytes(dt));
    struct node *n = tape_node(t, NODE_ADAPTER_ROW, "adapter A", KC_GEMM);
    int at = t->nnodes - 1;
    n->m = rows, n->n = of->n, n->k = of->rank, n->batch = of->ranks, n->keys = of->k;
    n->module = of->modules[0], n->work = of->modules[1];
    tape_edge(t, n, x);
    tape_edge(t, n, a);
    tape_edge(t, n, b);
    tape_save_var(t, n, x);
    tape_save_var(t, n, a);
    tape_save_var(t, n, b);
    int sum = tape_new(t, inner, dt);
    tape_pass(t, "adapter scale", KC_ELEMENTWISE, 2 * inner * dtype_bytes(dt));
    int scaled = tape_new(t, inner, dt);
    tape_unref(t, sum);
    tape_save(t, &t->nodes[at], scaled);
    tape_begin_reading(t, "adapter turn", KC_COPY)->bytes = 0;      /* a recompute ends before what this moves */
    int y = expanded(t, of, rows, dt);
    tape_unref(t, scaled);
    return tape_var(t, y, rows * of->n, dt, at, 0);
}

static int weight_gradient(struct tape *t, int64_t numel, enum dtype dt) { return tape_alloc(t, numel, dtype_bytes(dt), MEM_GRADS); }

void tape_run_adapter_row(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    enum dtype dt = n->edges[X].dt;
    int64_t size = dtype_bytes(dt), own = n->k / n->batch;
    int module[2] = { n->module, (int)n->work };

    t->module = module[1];
    product(t, "adapter B dW", n->n, n->k, n->m, size);
    out[B] = weight_gradient(t, n->n * n->k, dt);       /* of the whole, a part of a sum */
    product(t, "adapter B dX", n->m, own, n->n, size);
    int back = tape_new(t, n->m * own, dt);
    tape_pass(t, "adapter scale", KC_ELEMENTWISE, 2 * n->m * own * size);
    int scaled = tape_new(t, n->m * own, dt);
    tape_unref(t, back);
    t->module = module[0];
    int all = gathered(t, n->m * n->k, dt);
    product(t, "adapter A dW", n->k, n->keys, n->m, size);
    out[A] = weight_gradient(t, n->edges[A].numel, dt);
    tape_unref(t, all);
    if (tape_wants(n, X)) {
        all = gathered(t, n->m * n->k, dt);
        product(t, "adapter A dX", n->m, n->keys, n->k, size);
        out[X] = tape_new(t, n->edges[X].numel, dt);
        tape_unref(t, all);
    }
    tape_unref(t, scaled);
}
