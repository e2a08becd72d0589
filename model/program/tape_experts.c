/* tape_experts.c -- see tape_experts.h. */
#include "model/program/tape_experts.h"

#include "model/program/tape_internal.h"

static int alloc(struct tape *t, int64_t numel, enum dtype dt) { return tape_alloc(t, numel, dtype_bytes(dt), MEM_ACTIVATIONS); }

static var result(struct tape *t, int64_t numel, enum dtype dt)
{
    return tape_var(t, alloc(t, numel, dt), numel, dt, t->nnodes - 1, 0);
}

var tape_topk(struct tape *t, var x, int64_t rows, int64_t used, var *index)
{
    int64_t numel = rows * used;

    tape_begin_saving(t, "top-k", KC_ELEMENTWISE)->bytes = tape_var_bytes(t, x) + numel * (tape_elem(t, x) + 8);
    tape_edge(t, tape_node(t, NODE_COPY, "top-k", KC_ELEMENTWISE), x);
    int node = t->nnodes - 1;
    var values = result(t, numel, tape_var_dtype(t, x));
    *index = tape_var(t, alloc(t, numel, DT_INT64), numel, DT_INT64, 0, 0);
    tape_save_var(t, &t->nodes[node], *index);
    return values;
}

var tape_normalise(struct tape *t, var x, int64_t rows)
{
    int64_t numel = tape_var_numel(t, x);
    enum dtype dt = tape_var_dtype(t, x);

    tape_begin_saving(t, "top-k norm", KC_ELEMENTWISE)->bytes = 3 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_EACH, "top-k norm", KC_ELEMENTWISE);
    tape_edge(t, n, x);
    n->work = 3 * tape_var_bytes(t, x);         /* quotients, their product with the gradient */
    for (int i = 0; i < 2; i++) {
        int s = alloc(t, i ? numel : rows, dt);
        tape_save(t, n, s);
        tape_unref(t, s);
    }
    t->stores[t->vars[x].store].refs++;
    return tape_var(t, t->vars[x].store, numel, dt, t->nnodes - 1, 0);
}

/* adds, adds_back: what the kernel of forward and of backward adds by atomics. */
static var picked(struct tape *t, const char *name, var x, var index, int64_t numel, int64_t adds, int64_t adds_back)
{
    int64_t read = tape_var_numel(t, x);
    struct kernel *kernel = tape_begin_reading(t, name, KC_COPY);

    kernel->bytes = (numel + (numel > read ? numel : read)) * tape_elem(t, x);
    kernel->adds = adds;
    struct node *n = tape_node(t, NODE_COPY, name, KC_COPY);
    n->m = numel;
    n->adds = adds_back;
    tape_edge(t, n, x);
    tape_save_var(t, n, index);
    return result(t, numel, tape_var_dtype(t, x));
}

var tape_pick(struct tape *t, const char *name, var x, var index, int64_t numel) { return picked(t, name, x, index, numel, 0, 0); }

var tape_take_rows(struct tape *t, const char *name, var x, var index, int64_t numel) { return picked(t, name, x, index, numel, 0, numel); }

var tape_gather_rows(struct tape *t, const char *name, var x, var index, int64_t numel)
{
    var rows = tape_take_rows(t, name, x, index, numel);

    tape_save_var(t, &t->nodes[t->nnodes - 1], x);
    return rows;
}

var tape_add_rows(struct tape *t, const char *name, var x, var index, int64_t numel)
{
    return picked(t, name, x, index, numel, tape_var_numel(t, x), 0);
}

/* make_row_id_map() of transformer_engine/pytorch/triton/permutation.py: sums in blocks of 1,024 tokens, over all blocks, and each token's rows in front. */
var tape_row_map(struct tape *t, int64_t tokens, int64_t experts)
{
    enum { BLOCK = 1024 };
    int64_t numel = tokens * (2 * experts + 1), bytes = numel * dtype_bytes(DT_INT32);
    int map = alloc(t, numel, DT_INT32), sums = tape_alloc(t, experts * ceil_div(tokens, BLOCK), dtype_bytes(DT_INT32), MEM_TEMPORARIES);

    tape_begin_reading(t, "sums of blocks", KC_ELEMENTWISE)->bytes = bytes / 2 + tokens * experts;
    tape_begin_reading(t, "sums over blocks", KC_ELEMENTWISE)->bytes = bytes;
    tape_begin_reading(t, "map of rows", KC_ELEMENTWISE)->bytes = 2 * bytes;
    tape_unref(t, sums);
    return tape_var(t, map, numel, DT_INT32, 0, 0);
}

var tape_permute(struct tape *t, const char *name, var x, var *weights, var map, int64_t rows, int64_t width)
{
    enum dtype dt = tape_var_dtype(t, x), of = tape_var_dtype(t, *weights);

    tape_begin_reading(t, name, KC_COPY)->bytes = tape_var_bytes(t, x) + rows * width * dtype_bytes(dt) + 2 * rows * dtype_bytes(of) + tape_var_bytes(t, map);
    struct node *n = tape_node(t, NODE_EACH, name, KC_COPY);
    int at = t->nnodes - 1, came = alloc(t, rows * width, dt), weighs = alloc(t, rows, of);
    n->m = rows * width;
    n->nslots = 2;
    tape_edge(t, n, x);
    tape_edge(t, n, *weights);
    tape_save_var(t, n, map);
    *weights = tape_var(t, weighs, rows, of, at, 1);
    return tape_var(t, came, rows * width, dt, at, 0);
}

var tape_scatter(struct tape *t, const char *name, var into, var index, var x)
{
    int store = t->vars[into].store;

    tape_begin_reading(t, name, KC_COPY)->bytes = 2 * tape_var_bytes(t, x) + tape_var_bytes(t, index);
    struct node *n = tape_node(t, NODE_COPY, name, KC_COPY);
    tape_edge(t, n, x);
    tape_save_var(t, n, index);
    t->stores[store].refs++;
    return tape_var(t, store, tape_var_numel(t, into), tape_var_dtype(t, into), t->nnodes - 1, 0);
}

static var grouped(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, int64_t experts, var w, var offsets, bool apart)
{
    int64_t rows = tape_var_numel(t, x) / k, each = ceil_div(rows, experts);
    struct kernel *kernel = tape_begin_reading(t, names->forward, KC_GEMM);

    kernel->m = each, kernel->n = n, kernel->k = k, kernel->batch = experts;
    kernel->apart = apart;
    kernel->te_module = apart ? TE_PYTHON_LINEAR : TE_PYTHON_NONE;
    kernel->flops = 2.0 * (double)rows * (double)n * (double)k;
    kernel->bytes = (rows * k + experts * n * k + rows * n) * tape_elem(t, x);
    struct node *node = tape_node(t, NODE_LINEAR, names->forward, KC_GEMM);
    node->names = *names;
    node->m = each, node->n = n, node->k = k, node->batch = experts;
    node->flops = kernel->flops;
    node->weight_first = true;
    tape_edge(t, node, x);
    tape_edge(t, node, w);
    tape_save_var(t, node, w);                  /* counted where it is gathered: by its unit */
    if (offsets)
        tape_save_var(t, node, offsets);
    if (tape_wants_grad(t, w))                  /* else aten::_grouped_mm keeps no x (derivatives.yaml) */
        tape_save_var(t, node, x);
    return result(t, rows * n, tape_var_dtype(t, x));
}

var tape_grouped(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, int64_t experts, var w, var offsets)
{
    return grouped(t, names, x, n, k, experts, w, offsets, false);
}

var tape_grouped_fused(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, int64_t experts, var w, var b)
{
    var y = grouped(t, names, x, n, k, experts, w, 0, true);
    struct node *node = &t->nodes[t->nnodes - 1];

    node->weight_first = false;
    node->te.weights = 1;
    if (b)
        tape_edge(t, node, b);
    return y;
}

var tape_merge(struct tape *t, const char *name, var w, var a, var b, int64_t experts, const int64_t mnk[3], bool once)
{
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    struct kernel *kernel = once ? tape_begin(t, name, KC_GEMM) : tape_begin_reading(t, name, KC_GEMM);

    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = experts;
    kernel->flops = 2.0 * (double)experts * (double)m * (double)n * (double)k;
    kernel->bytes = experts * (m * k + k * n + 2 * m * n) * tape_elem(t, w);
    if (once) {
        tape_unref(t, alloc(t, experts * m * n, tape_var_dtype(t, w)));
        return 0;
    }
    struct node *node = tape_node(t, NODE_MATMUL, name, KC_GEMM);
    node->m = m, node->n = n, node->k = k, node->batch = experts;
    node->flops = kernel->flops;
    tape_edge(t, node, a);
    tape_edge(t, node, b);
    if (tape_wants_grad(t, a))
        tape_save_var(t, node, b);
    if (tape_wants_grad(t, b))
        tape_save_var(t, node, a);
    return result(t, experts * m * n, tape_var_dtype(t, w));
}

var tape_weigh(struct tape *t, const char *name, var x, var w)
{
    enum dtype dt = tape_wider(tape_var_dtype(t, x), tape_var_dtype(t, w));

    tape_begin_reading(t, name, KC_ELEMENTWISE)->bytes = tape_var_numel(t, x) * (tape_elem(t, x) + dtype_bytes(dt));
    struct node *n = tape_node(t, NODE_WEIGH, name, KC_ELEMENTWISE);
    tape_edge(t, n, x);
    tape_edge(t, n, w);
    n->dt = dt;
    tape_save_var(t, n, x);
    tape_save_var(t, n, w);
    return result(t, tape_var_numel(t, x), dt);
}

/* MulBackward0 makes both products, of x's size; then the engine casts the first and adds up the rows of the second
 * (validate_outputs()). */
void tape_weigh_backward(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES])
{
    int64_t size = dtype_bytes(n->dt), numel = n->edges[0].numel;
    struct kernel *k = tape_kernel(t, n->name, n->kc);

    k->module = n->module;
    k->half = n->half;
    k->bytes = numel * 4 * size;
    out[1] = tape_alloc(t, numel, size, MEM_TEMPORARIES);
    out[0] = tape_alloc(t, numel, size, MEM_TEMPORARIES);
    got[0] = n->dt;
}

void tape_weigh_rows(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *w = &n->edges[1];
    struct kernel *k = tape_kernel(t, n->name, n->kc);

    k->module = n->module;
    k->half = n->half;
    k->bytes = n->edges[0].numel * dtype_bytes(n->dt);
    int sums = tape_alloc(t, w->numel, dtype_bytes(w->dt), MEM_TEMPORARIES);
    tape_unref(t, out[1]);
    out[1] = sums;
}

/* A node has few operands: of many the first in a node, the next in another, and these in one. */
static var views_of(struct tape *t, const char *name, const var *x, int n, int store, int64_t numel)
{
    enum dtype dt = tape_var_dtype(t, x[0]);
    var part[TAPE_EDGES];
    int each = n <= TAPE_EDGES ? 1 : (n + TAPE_EDGES - 1) / TAPE_EDGES, parts = 0;

    for (int i = 0; i < n; i += each)
        part[parts++] = each == 1 ? x[i] : views_of(t, name, &x[i], n - i < each ? n - i : each, 0, numel);
    struct node *node = tape_node(t, NODE_PASS, name, KC_COPY);
    for (int i = 0; i < parts; i++)
        tape_edge(t, node, part[i]);
    return tape_var(t, store, numel, dt, t->nnodes - 1, 0);
}

var tape_cat(struct tape *t, const char *name, const var *x, int n)
{
    enum dtype dt = tape_var_dtype(t, x[0]);
    int64_t numel = 0;

    for (int i = 0; i < n; i++)
        numel += tape_var_numel(t, x[i]);
    tape_begin(t, name, KC_COPY)->bytes = 2 * numel * dtype_bytes(dt);
    return views_of(t, name, x, n, alloc(t, numel, dt), numel);
}

var tape_sum_rows(struct tape *t, const char *name, var x, int64_t n)
{
    int64_t numel = tape_var_numel(t, x) / n;

    tape_begin(t, name, KC_ELEMENTWISE)->bytes = (tape_var_numel(t, x) + numel) * tape_elem(t, x);
    tape_edge(t, tape_node(t, NODE_COPY, name, KC_ELEMENTWISE), x);
    return result(t, numel, tape_var_dtype(t, x));
}
