/* tape_float8.c -- see tape_float8.h. */
#include "model/program/tape_float8.h"

#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"
#include "model/program/tape_parts.h"

static int make(struct tape *t, int64_t numel, int64_t elem)
{
    return tape_alloc(t, numel, elem, t->backward ? MEM_TEMPORARIES : MEM_ACTIVATIONS);
}

/* A kernel of forward or backward, of a compiled graph too. */
static struct kernel *begin(struct tape *t, const char *name, enum kernel_class kc)
{
    return t->backward || t->compiled ? tape_kernel(t, name, kc) : tape_begin(t, name, kc);
}

static void pass_over(struct tape *t, const char *name, int64_t bytes) { begin(t, name, KC_ELEMENTWISE)->bytes = bytes; }

static bool by_rows(const struct float8_layer *how) { return how->recipe != FLOAT8_TENSORWISE; }

/* Largest values of what each rank has a part of: so many, by DTensor; 0: each has all of it. */
static void agree(struct tape *t, const struct float8_layer *how, int64_t values)
{
    if (how->ranks > 1 && values > 0)
        tape_issue(t, "amax all-reduce", COLL_ALL_REDUCE, RED_MAX, DT_FP64, values);
}

/* How many, of an operand with so many scales.  One scale is for all ranks' shares.  Of scales by rows, those that run along what the
 * layer's ranks share: inner dimensions of products. */
static int64_t shared_values(int64_t scales, bool cut) { return scales == 1 ? 1 : cut ? scales : 0; }

/* An operand in 8-bit floats and its scales, in fp32. */
struct cast { int data, scale; };

static void forget(struct tape *t, struct cast c)
{
    tape_unref(t, c.data);
    tape_unref(t, c.scale);
}

/* hp_tensor_to_float8_dynamic() by single operations. */
static struct cast cast_eager(struct tape *t, int64_t numel, enum dtype dt, int64_t scales, bool cut, const struct float8_layer *how)
{
    int64_t e = dtype_bytes(dt);

    pass_over(t, "abs", 2 * numel * e);
    int magnitude = make(t, numel, e);
    pass_over(t, "largest value", numel * e);
    int most = make(t, scales, e);
    tape_unref(t, magnitude);
    agree(t, how, shared_values(scales, cut));
    pass_over(t, "scale", 8 * scales);
    struct cast c = { .scale = make(t, scales, 4) };
    tape_unref(t, most);
    pass_over(t, "upcast", numel * (e + 4));
    int wide = dt == DT_FP32 ? 0 : make(t, numel, 4);
    pass_over(t, "times scale", 8 * numel);
    int scaled = make(t, numel, 4);
    tape_unref(t, wide);
    pass_over(t, "clamp", 8 * numel);
    int clamped = make(t, numel, 4);
    pass_over(t, "cast to float8", 5 * numel);
    c.data = make(t, numel, 1);
    tape_unref(t, clamped);
    tape_unref(t, scaled);
    return c;
}

/* What a graph's kernels read to have an operand: a parameter has no store. */
static int64_t read_by_graph(const struct tape *t, int store, int64_t numel) { return store ? tape_leaf_bytes(t, store) : 2 * numel; }

/* In a graph, in the order in which it lies.  Of a row a kernel finds the largest value and casts it, unless ranks share the row. */
static struct cast cast_in_graph(struct tape *t, int store, int64_t numel, int64_t scales, bool cut, const struct float8_layer *how)
{
    int64_t in = read_by_graph(t, store, numel), values = shared_values(scales, cut);

    if (values > 0 && (scales == 1 || how->ranks > 1)) {
        pass_over(t, "fused amax", in);
        agree(t, how, values);
    }
    pass_over(t, "fused cast to float8", in + numel);
    return (struct cast){ .data = make(t, numel, 1) };
}

/* The other order: with one scale each element is written where it belongs; with a scale a column a transposed copy in 16 bits comes first.
 * `values`: of those that ranks share. */
static int turn_in_graph(struct tape *t, int store, int64_t numel, bool columns, int64_t values, const struct float8_layer *how)
{
    int64_t in = read_by_graph(t, store, numel);
    int turned = 0;

    if (values > 0 && how->ranks > 1) {
        pass_over(t, "fused amax", in);
        agree(t, how, values);
    }

    if (columns) {
        pass_over(t, "fused transposition", in + 2 * numel);
        turned = make(t, numel, 2);
        in = 2 * numel;
    }
    pass_over(t, columns ? "fused cast to float8" : "fused cast to float8, transposed", in + numel);
    int data = make(t, numel, 1);
    tape_unref(t, turned);
    return data;
}

/* A copy of 8-bit data in the other order. */
static int copy8(struct tape *t, int64_t numel)
{
    pass_over(t, "transpose float8", 2 * numel);
    return make(t, numel, 1);
}

static void product(struct kernel *k, int64_t m, int64_t n, int64_t inner, double flops, enum scaled scaled)
{
    k->m = m, k->n = n, k->k = inner, k->batch = 1;
    k->flops = flops;
    k->scaled = (uint8_t)scaled;
    k->bytes = (m * inner + n * inner) * (scaled ? 1 : 2) + 2 * m * n;
}

/* ---- forward ---- */

/* An input that several layers read is cast once in a graph, until the last of them has it. */
static struct cast cast_input(struct tape *t, var x, int64_t scales, const struct float8_layer *how)
{
    int store = t->vars[x].store;
    int64_t numel = tape_var_numel(t, x);

    if (t->vars[x].float8)
        return (struct cast){ .data = tape_share(t, store) };
    if (!t->compiled)
        return cast_eager(t, numel, tape_var_dtype(t, x), scales, how->row_parallel, how);
    int made = t->stores[store].float8;
    t->stores[store].float8 = 0;
    if (!made)
        made = cast_in_graph(t, store, numel, scales, how->row_parallel, how).data;
    if (!how->last)
        t->stores[store].float8 = tape_share(t, made);
    return (struct cast){ .data = made };
}

var tape_float8_cast(struct tape *t, var x, const struct float8_layer *how)
{
    struct float8_layer last = *how;

    last.last = true;
    struct cast c = cast_input(t, x, 1, &last);
    struct node *n = tape_node(t, NODE_PASS, "cast to float8", KC_GEMM);
    tape_edge(t, n, x);
    var y = tape_var(t, c.data, tape_var_numel(t, x), tape_var_dtype(t, x), t->nnodes - 1, 0);
    t->vars[y].float8 = true;
    tape_unref(t, c.scale);
    return y;
}

void tape_float8_scattered(struct tape *t, const struct float8_layer *how) { t->nodes[t->nnodes - 1].float8 = *how; }

var tape_float8_gradient(struct tape *t, var x, const struct float8_layer *how)
{
    struct node *n = tape_node(t, NODE_FLOAT8_BACK, "gradient to float8", KC_GEMM);

    n->float8 = *how;
    tape_edge(t, n, x);
    t->stores[t->vars[x].store].refs++;
    return tape_var(t, t->vars[x].store, tape_var_numel(t, x), tape_var_dtype(t, x), t->nnodes - 1, 0);
}

static bool chosen(struct tape *t) { return (t->caches || t->cached) && ++t->products % 2 == 1; }

/* The product's own kernel and result; a selective checkpoint keeps every other one's. */
static int multiply(struct tape *t, const struct gemm_names *names, int operand, int64_t rows, int64_t n, int64_t k, enum scaled scaled)
{
    bool keeps = chosen(t) && !t->leaves, again = keeps && t->cached;
    /* An autograd.Function's tensors are saved when it has run; a graph has its product only where something reads it. */
    struct kernel *at = (t->compiled ? tape_begin_reading : tape_begin_saving)(t, names->forward, KC_GEMM);

    if (!again && !t->unneeded)
        product(at, rows, n, k, 2.0 * (double)rows * (double)n * (double)k, scaled);
    if (t->unneeded)
        return tape_alloc(t, 0, 1, MEM_TEMPORARIES);
    if (again && !t->stopped)
        return tape_kept_result(t);
    int y = make(t, rows * n, 2);
    if (keeps && t->caches)
        tape_keep_result(t, y);
    if (at != &t->skipped)
        tape_product_in_parts(t, operand, DT_FP8);
    return y;
}

var tape_float8_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, var w, const struct float8_layer *how)
{
    int64_t rows = tape_var_numel(t, x) / k;
    bool rowwise = by_rows(how);
    bool ends = t->compiled && t->stop_after == t->nsavers + 1;     /* a recompute, before this product */
    struct cast in = { 0 }, of = { 0 };

    if (how->recipe == FLOAT8_ROWWISE_GW_HP)            /* an operand of a product in 16 bits */
        tape_need(t, x);
    if (!ends || how->keeps_cast)
        in = cast_input(t, x, rowwise ? rows : 1, how);
    if (ends)
        ;                               /* its operands are cast where backward reads them */
    else if (!how->gathered && t->compiled)
        of = cast_in_graph(t, 0, n * k, rowwise ? n : 1, how->row_parallel, how);
    else if (!how->gathered)
        of = cast_eager(t, n * k, tape_var_dtype(t, w), rowwise ? n : 1, how->row_parallel, how);
    int operand = t->vars[x].store;
    int y = multiply(t, names, operand, rows, n, k, rowwise ? SCALED_FP8_ROW : SCALED_FP8_TENSOR);
    struct node *node = tape_node(t, NODE_FLOAT8, names->forward, KC_GEMM);
    node->names = *names;
    node->m = rows, node->n = n, node->k = k, node->batch = 1;
    node->flops = 2.0 * (double)rows * (double)n * (double)k;
    node->float8 = *how;
    tape_edge(t, node, x);
    tape_edge(t, node, w);
    node->float8.keeps_cast |= in.data && t->compiled && how->last && !t->caches && !t->cached && !t->stores[operand].derived && how->recipe != FLOAT8_ROWWISE_GW_HP;
    if (node->float8.keeps_cast)
        tape_save(t, node, in.data);
    else
        tape_save_var(t, node, x);
    /* A weight whose scale came by a collective is not cast again. */
    node->float8.keeps_weight = t->compiled && of.data && how->ranks > 1 && !rowwise && !t->caches && !t->cached && !t->forget && !t->unpacked;
    if (node->float8.keeps_weight)
        tape_save(t, node, of.data);
    var out = tape_var(t, y, rows * n, tape_var_dtype(t, x), t->nnodes - 1, 0);
    forget(t, in);
    forget(t, of);
    return out;
}

/* ---- backward ---- */

static int gradient(struct tape *t, const struct node *n, int i)
{
    const struct edge *e = &n->edges[i];

    return tape_wants(n, i) ? tape_alloc(t, e->numel, dtype_bytes(e->dt), e->tensor >= 0 ? MEM_GRADS : MEM_TEMPORARIES) : 0;
}

/* A rowwise product by the kernel that has one scale: what its rows and columns are multiplied by comes behind it, in fp32, in place. */
static int rescale(struct tape *t, const struct float8_layer *how, int64_t numel)
{
    if (!by_rows(how))
        return 0;
    if (t->compiled) {
        pass_over(t, "fused rescale", 4 * numel);
        return 0;
    }
    pass_over(t, "scales", 4 * numel);
    return make(t, numel, 4);
}

static void rescaled(struct tape *t, int scales, int64_t numel)
{
    if (scales)
        pass_over(t, "times scales", 8 * numel);
    tape_unref(t, scales);
}

/* `parts`: an operand that is gathered part by part (tape_parts.h), 0 where none is: all parts come before what follows the product. */
static int multiply_parts(struct tape *t, const struct node *n, const char *name, int i, int64_t rows, int64_t cols, int64_t inner,
                          enum scaled scaled, int parts)
{
    int scales = scaled && !t->compiled ? rescale(t, &n->float8, rows * cols) : 0;

    product(begin(t, name, KC_GEMM), rows, cols, inner, n->flops, scaled);
    int out = gradient(t, n, i);
    if (parts) {
        tape_product_in_parts(t, parts, DT_FP8);
        tape_parts_gathered(t);
    }
    if (scaled && t->compiled)
        rescale(t, &n->float8, rows * cols);
    rescaled(t, scales, rows * cols);
    return out;
}

static int multiply_back(struct tape *t, const struct node *n, const char *name, int i, int64_t rows, int64_t cols, int64_t inner,
                         enum scaled scaled)
{
    return multiply_parts(t, n, name, i, rows, cols, inner, scaled, 0);
}

static void run_eager(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct float8_layer *how = &n->float8;
    bool rowwise = by_rows(how), wide = how->recipe == FLOAT8_ROWWISE_GW_HP;
    struct cast g = { 0 }, w = { 0 }, g2 = { 0 }, x = { 0 };
    int copy;

    if (!how->cast_gradient)
        g = cast_eager(t, n->m * n->n, DT_BF16, rowwise ? n->m : 1, !how->row_parallel, how);
    if (!how->gathered)
        w = cast_eager(t, n->n * n->k, DT_BF16, rowwise && !wide ? n->k : 1, !how->row_parallel, how);
    copy = copy8(t, n->n * n->k);
    out[0] = multiply_back(t, n, n->names.dx, 0, n->m, n->k, n->n, SCALED_FP8_TENSOR);
    tape_unref(t, copy);
    if (wide) {
        out[1] = multiply_back(t, n, n->names.dw, 1, n->n, n->k, n->m, SCALED_NONE);
    } else {
        if (!how->cast_gradient)
            g2 = cast_eager(t, n->m * n->n, DT_BF16, rowwise ? n->n : 1, false, how);
        if (!how->keeps_cast)
            x = cast_eager(t, n->m * n->k, DT_BF16, rowwise ? n->k : 1, false, how);
        int a = copy8(t, n->m * n->n), b = copy8(t, n->m * n->k);
        out[1] = multiply_back(t, n, n->names.dw, 1, n->n, n->k, n->m, SCALED_FP8_TENSOR);
        tape_unref(t, a);
        tape_unref(t, b);
    }
    forget(t, g);
    forget(t, w);
    forget(t, g2);
    forget(t, x);
}

/* In a graph the gradient has no other form than what its products read. */
static void run_in_graph(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct float8_layer *how = &n->float8;
    bool rowwise = by_rows(how), wide = how->recipe == FLOAT8_ROWWISE_GW_HP;
    int64_t numel = n->m * n->n;
    bool parts = t->gathered.store && n->grad[0] == t->gathered.store;
    struct cast g = { .data = how->cast_gradient ? tape_share(t, n->grad[0]) : cast_in_graph(t, n->grad[0], numel, rowwise ? n->m : 1, !how->row_parallel, how).data };
    int turned = 0, w, x = 0;

    if (!wide && !how->cast_gradient)
        turned = turn_in_graph(t, n->grad[0], numel, rowwise, 0, how);
    w = how->gathered || how->keeps_weight ? copy8(t, n->n * n->k)
        : turn_in_graph(t, 0, n->n * n->k, rowwise && !wide, wide ? 1 : rowwise && !how->row_parallel ? n->k : 0, how);
    out[0] = multiply_parts(t, n, n->names.dx, 0, n->m, n->k, n->n, SCALED_FP8_TENSOR, parts ? n->grad[0] : 0);
    tape_unref(t, w);
    forget(t, g);
    if (wide) {
        tape_make(t, &n->grad[0], 1);
        tape_make(t, &n->saved[0], 1);
        out[1] = multiply_back(t, n, n->names.dw, 1, n->n, n->k, n->m, SCALED_NONE);
        return;
    }
    if (how->cast_gradient)
        turned = copy8(t, numel);
    x = how->keeps_cast ? copy8(t, n->m * n->k) : turn_in_graph(t, n->saved[0], n->m * n->k, rowwise, 0, how);
    out[1] = multiply_back(t, n, n->names.dw, 1, n->n, n->k, n->m, SCALED_FP8_TENSOR);
    tape_unref(t, x);
    tape_unref(t, turned);
}

/* NoopFwToFloat8BwDynamic. */
static int run_cast(struct tape *t, const struct node *n)
{
    int64_t numel = n->edges[0].numel;
    struct cast c = t->compiled ? cast_in_graph(t, n->grad[0], numel, 1, true, &n->float8) : cast_eager(t, numel, n->edges[0].dt, 1, true, &n->float8);

    tape_unref(t, c.scale);
    return c.data;
}

void tape_run_float8(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    t->module = n->module;
    t->half = n->half;
    if (n->kind == NODE_FLOAT8_BACK)
        out[0] = run_cast(t, n);
    else
        (t->compiled ? run_in_graph : run_eager)(t, n, out);
}
