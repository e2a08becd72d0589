/* tape_te_grouped.c -- see tape_te_grouped.h. */
#include "model/program/tape_te_grouped.h"

#include "model/program/tape_internal.h"
#include "model/program/tape_te_cast.h"

/* `experts` products of m x n x k, operands in codes; `written`: bytes of the results. */
static void products(struct tape *t, const char *name, enum scaled format, int64_t experts, int64_t m, int64_t n, int64_t k, int64_t written)
{
    int64_t read = experts * (dtype_scaled_bytes(format, m * k) + dtype_scaled_bytes(format, n * k));
    struct kernel *kernel = tape_pass(t, name, KC_GEMM, read + written);

    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = experts;
    kernel->flops = 2.0 * (double)experts * (double)m * (double)n * (double)k;
    kernel->scaled = (uint8_t)format;
    kernel->apart = true;
    kernel->te_module = TE_PYTHON_LINEAR;
}

var te_grouped(struct tape *t, const struct gemm_names *names, const struct te_scaled *f, var x, int64_t n, int64_t k, int64_t experts, var w, var b,
               bool original)
{
    enum dtype dt = tape_var_dtype(t, x);
    int64_t rows = tape_var_numel(t, x) / k, each = ceil_div(rows, experts);
    struct te_codes c = te_cast(t, f, rows * k, dt, original ? TE_ROWS : TE_ROWS | TE_COLUMNS, false, 1);

    products(t, names->forward, (enum scaled)f->format, experts, each, n, k, rows * n * dtype_bytes(dt));
    struct node *node = tape_node(t, NODE_TE_GROUPED, names->forward, KC_GEMM);
    int made = t->nnodes - 1;

    node->names = *names;
    node->m = each, node->n = n, node->k = k, node->batch = experts;
    node->te = (struct te_node){ .weights = 1, .original = original, .scaled = *f };
    tape_edge(t, node, x);
    tape_edge(t, node, w);
    if (b)
        tape_edge(t, node, b);
    if (original)
        tape_save_var(t, node, x);
    else
        tape_save(t, node, c.columns ? c.columns : c.rows);
    var y = tape_var(t, tape_new(t, rows * n, dt), rows * n, dt, made, 0);
    te_drop_codes(t, c);
    return y;
}

static void grouped_back(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct te_scaled *f = &n->te.scaled;
    enum dtype dt = n->edges[0].dt;
    int64_t rows = n->edges[0].numel / n->k;
    struct te_codes dy = te_cast(t, f, rows * n->n, dt, TE_ROWS | TE_COLUMNS, false, 1);

    if (tape_wants(n, 0)) {
        products(t, n->names.dx, (enum scaled)f->format, n->batch, n->m, n->k, n->n, rows * n->k * dtype_bytes(dt));
        out[0] = tape_new(t, rows * n->k, dt);
    }
    struct te_codes x = n->te.original ? te_cast_again(t, f, rows * n->k, dt, 1) : (struct te_codes){ 0, 0 };
    int64_t sums = t->grads_apart ? 0 : 2 * n->edges[1].numel * t->main_grad;
    products(t, n->names.dw, (enum scaled)f->format, n->batch, n->k, n->n, n->m, t->grads_apart ? n->edges[1].numel * dtype_bytes(n->edges[1].dt) : sums);
    t->out[t->nout - 1].sums = sums;
    t->out[t->nout - 1].te_module = t->grads_apart ? TE_PYTHON_GRADS : TE_PYTHON_NONE;
    out[1] = !tape_wants(n, 1) ? 0 : t->grads_apart ? tape_new(t, n->edges[1].numel, n->edges[1].dt) : tape_alloc(t, 0, 1, MEM_GRADS);
    if (tape_wants(n, 2))                    /* made beside the cast ("grad_biases") */
        out[2] = tape_new(t, n->edges[2].numel, n->edges[2].dt);
    tape_unref(t, n->saved[0]);
    t->nodes[n - t->nodes].saved[0] = 0;
    te_drop_codes(t, dy);
    te_drop_codes(t, x);
}

var te_pad_rows(struct tape *t, const char *name, var x, int64_t numel)
{
    enum dtype dt = tape_var_dtype(t, x);

    tape_pass(t, name, KC_COPY, (tape_var_numel(t, x) + numel) * dtype_bytes(dt));
    struct node *n = tape_node(t, NODE_TE_PAD, name, KC_COPY);
    int made = t->nnodes - 1;

    n->n = numel;
    tape_edge(t, n, x);
    return tape_var(t, tape_new(t, numel, dt), numel, dt, made, 0);
}

void tape_run_te_grouped(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    t->module = n->module;
    t->half = n->half;
    if (n->kind == NODE_TE_GROUPED) {
        grouped_back(t, n, out);
        return;
    }
    tape_pass(t, n->name, KC_COPY, (n->edges[0].numel + n->n) * dtype_bytes(n->edges[0].dt));
    out[0] = tape_new(t, n->edges[0].numel, n->edges[0].dt);
}
