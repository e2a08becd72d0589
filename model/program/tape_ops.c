/* tape_ops.c -- the operations that modelling code is made of, each with what it
 * saves and what its backward allocates.  What is written here was read off
 * PyTorch's derivatives.yaml and checked against traces (README.md). */
#include <assert.h>

#include "model/program/tape.h"
#include "model/program/tape_internal.h"
#include "model/program/tape_parts.h"

enum saves { KEEPS_NOTHING, KEEPS_INPUT, KEEPS_OUTPUT };

/* Opens the kernel of a forward operation.  A checkpointed recompute ends with the
 * last operation that saves something: before its kernel when it only saves inputs. */
static struct kernel *begin(struct tape *t, const char *name, enum kernel_class kc, enum saves s)
{
    if (t->stopping)
        t->stopped = true;
    if (s != KEEPS_NOTHING && ++t->nsavers == t->stop_after) {
        if (s == KEEPS_INPUT)
            t->stopped = true;
        else
            t->stopping = true;
    }
    return tape_is_fused(t, kc) ? &t->skipped : tape_kernel(t, name, kc);
}

struct kernel *tape_begin(struct tape *t, const char *name, enum kernel_class kc) { return begin(t, name, kc, KEEPS_NOTHING); }

struct kernel *tape_begin_reading(struct tape *t, const char *name, enum kernel_class kc) { return begin(t, name, kc, KEEPS_INPUT); }

struct kernel *tape_begin_saving(struct tape *t, const char *name, enum kernel_class kc) { return begin(t, name, kc, KEEPS_OUTPUT); }

static int store_of(const struct tape *t, var v) { return t->vars[v].store; }

static int alloc(struct tape *t, int64_t numel, enum dtype dt)
{
    return tape_alloc(t, numel, dtype_bytes(dt), MEM_ACTIVATIONS);
}

/* A tensor that the gradient of `other` needs: saved where that is wanted.  A compiled graph decides by itself. */
static void save_for(struct tape *t, struct node *n, var other, var v)
{
    if (t->compiled || tape_wants_grad(t, other))
        tape_save_var(t, n, v);
}

/* A fresh tensor with gradient at the last node, slot 0. */
static var fresh(struct tape *t, int64_t numel, enum dtype dt)
{
    enum kernel_class kc = t->nodes[t->nnodes - 1].kc;
    int store = tape_is_fused(t, kc) ? tape_derive(t, numel, dtype_bytes(dt), t->from, t->nfrom, kc) : alloc(t, numel, dt);

    return tape_var(t, store, numel, dt, t->nnodes - 1, 0);
}

var op_param(struct tape *t, int tensor, int64_t numel, enum dtype dt)
{
    var v = tape_var(t, 0, numel, dt, 0, 0);

    t->vars[v].edge.tensor = tensor;
    return v;
}

var op_new(struct tape *t, const char *name, enum kernel_class kc, int64_t numel, enum dtype dt)
{
    begin(t, name, kc, KEEPS_NOTHING);
    return tape_var(t, alloc(t, numel, dt), numel, dt, 0, 0);
}

void op_scratch(struct tape *t, const char *name, int64_t bytes)
{
    begin(t, name, KC_COPY, KEEPS_NOTHING);
    tape_unref(t, tape_alloc(t, bytes, 1, MEM_TEMPORARIES));
}

var op_unary(struct tape *t, const char *name, enum kernel_class kc, var x, enum op_saves s)
{
    struct kernel *k = begin(t, name, kc, s == SAVE_NONE ? KEEPS_NOTHING :
                             s == SAVE_IN ? KEEPS_INPUT : KEEPS_OUTPUT);
    k->bytes = 2 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_COPY, name, kc);
    tape_edge(t, n, x);
    if (s == SAVE_IN)
        tape_save_var(t, n, x);
    var y = fresh(t, tape_var_numel(t, x), tape_var_dtype(t, x));
    if (s == SAVE_OUT)
        tape_save_var(t, &t->nodes[t->nnodes - 1], y);
    return y;
}

var op_softmax_in_place(struct tape *t, const char *name, var x)
{
    var y = op_unary(t, name, KC_SOFTMAX, x, SAVE_OUT);

    t->nodes[t->nnodes - 1].kind = NODE_IN_PLACE;
    return y;
}

var op_function(struct tape *t, const char *name, var x, int64_t scratch)
{
    var y = op_unary(t, name, KC_ELEMENTWISE, x, SAVE_IN);

    t->nodes[t->nnodes - 1].kind = NODE_EACH;
    t->nodes[t->nnodes - 1].work = scratch;
    return y;
}

var op_cast(struct tape *t, var x, enum dtype to)
{
    if (tape_var_dtype(t, x) == to)
        return tape_hold(t, x);
    struct kernel *k = begin(t, "cast", KC_COPY, KEEPS_NOTHING);
    k->bytes = tape_var_numel(t, x) * (tape_elem(t, x) + dtype_bytes(to));
    tape_edge(t, tape_node(t, NODE_COPY, "cast", KC_COPY), x);
    int same = tape_same_cast(t, store_of(t, x), to);
    if (same)
        return tape_var(t, tape_share(t, same), tape_var_numel(t, x), to, t->nnodes - 1, 0);
    var y = fresh(t, tape_var_numel(t, x), to);
    tape_note_cast(t, store_of(t, x), store_of(t, y), to);
    return y;
}

var op_cast_weight(struct tape *t, var w, enum dtype to)
{
    if (!t->compiled || t->stopped || tape_var_dtype(t, w) == to)
        return op_cast(t, w, to);
    tape_kernel(t, "fused", KC_ELEMENTWISE)->bytes = tape_var_numel(t, w) * (tape_elem(t, w) + dtype_bytes(to));
    tape_edge(t, tape_node(t, NODE_COPY, "cast", KC_COPY), w);
    int store = alloc(t, tape_var_numel(t, w), to);
    return tape_var(t, store, tape_var_numel(t, w), to, t->nnodes - 1, 0);
}

var op_add(struct tape *t, const char *name, var a, var b)
{
    enum dtype dt = b ? tape_wider(tape_var_dtype(t, a), tape_var_dtype(t, b)) : tape_var_dtype(t, a);
    struct kernel *k = begin(t, name, KC_ELEMENTWISE, KEEPS_NOTHING);

    k->bytes = tape_var_bytes(t, a) + tape_var_bytes(t, b) + tape_var_numel(t, a) * dtype_bytes(dt);
    struct node *n = tape_node(t, NODE_PASS, name, KC_ELEMENTWISE);
    tape_edge(t, n, a);
    tape_edge(t, n, b);
    n->dt = dt;
    return fresh(t, tape_var_numel(t, a), dt);
}

var op_mul(struct tape *t, const char *name, var a, var b)
{
    enum dtype dt = tape_wider(tape_var_dtype(t, a), tape_var_dtype(t, b));
    struct kernel *k = begin(t, name, KC_ELEMENTWISE, KEEPS_INPUT);

    k->bytes = tape_var_bytes(t, a) + tape_var_bytes(t, b) + tape_var_numel(t, a) * dtype_bytes(dt);
    struct node *n = tape_node(t, NODE_MUL, name, KC_ELEMENTWISE);
    tape_edge(t, n, a);
    tape_edge(t, n, b);
    save_for(t, n, b, a);
    save_for(t, n, a, b);
    return fresh(t, tape_var_numel(t, a), dt);
}

var op_mul_const(struct tape *t, const char *name, var a, var c)
{
    struct kernel *k = begin(t, name, KC_ELEMENTWISE, c ? KEEPS_INPUT : KEEPS_NOTHING);

    k->bytes = 2 * tape_var_bytes(t, a);
    struct node *n = tape_node(t, NODE_COPY, name, KC_ELEMENTWISE);
    tape_edge(t, n, a);
    tape_save_var(t, n, c);
    return fresh(t, tape_var_numel(t, a), c ? tape_wider(tape_var_dtype(t, a), tape_var_dtype(t, c)) : tape_var_dtype(t, a));
}

var op_mul_rows(struct tape *t, const char *name, var x, var r)
{
    struct kernel *k = begin(t, name, KC_NORM, KEEPS_INPUT);

    k->bytes = 2 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_MUL_ROWS, name, KC_NORM);
    tape_edge(t, n, x);
    tape_edge(t, n, r);
    save_for(t, n, r, x);
    save_for(t, n, x, r);
    n->dt = tape_wider(tape_var_dtype(t, x), tape_var_dtype(t, r));
    return fresh(t, tape_var_numel(t, x), n->dt);
}

var op_view(struct tape *t, var x, bool copies_back)
{
    struct node *n = tape_node(t, copies_back ? NODE_COPY : NODE_PASS, "copy", KC_COPY);

    tape_edge(t, n, x);
    t->stores[store_of(t, x)].refs++;
    return tape_var(t, store_of(t, x), tape_var_numel(t, x), tape_var_dtype(t, x), t->nnodes - 1, 0);
}

var op_copy(struct tape *t, const char *name, var x, bool copies)
{
    if (!copies)
        return tape_hold(t, x);
    begin(t, name, KC_COPY, KEEPS_NOTHING)->bytes = 2 * tape_var_bytes(t, x);
    tape_edge(t, tape_node(t, NODE_PASS, name, KC_COPY), x);
    return fresh(t, tape_var_numel(t, x), tape_var_dtype(t, x));
}

var op_moved(struct tape *t, const char *name, var x, int chunks)
{
    struct kernel *k = begin(t, name, KC_COPY, KEEPS_NOTHING);

    k->bytes = 2 * tape_var_bytes(t, x);
    k->chunks = chunks;
    struct node *n = tape_node(t, NODE_COPY, name, KC_COPY);
    n->batch = chunks;
    tape_edge(t, n, x);
    return fresh(t, tape_var_numel(t, x), tape_var_dtype(t, x));
}

var op_repeat(struct tape *t, const char *name, var x, int64_t times)
{
    begin(t, name, KC_COPY, KEEPS_NOTHING)->bytes = (1 + times) * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_COPY, name, KC_COPY);
    n->m = tape_var_numel(t, x) * times;
    tape_edge(t, n, x);
    return fresh(t, tape_var_numel(t, x) * times, tape_var_dtype(t, x));
}

var op_expand(struct tape *t, const char *name, var x, int64_t times)
{
    tape_edge(t, tape_node(t, NODE_COPY, name, KC_COPY), x);
    t->stores[store_of(t, x)].refs++;
    return tape_var(t, store_of(t, x), tape_var_numel(t, x) * times, tape_var_dtype(t, x), t->nnodes - 1, 0);
}

var op_add_row(struct tape *t, const char *name, var x, var row)
{
    var wide = op_expand(t, name, row, tape_var_numel(t, x) / tape_var_numel(t, row));

    begin(t, name, KC_ELEMENTWISE, KEEPS_NOTHING)->bytes = 2 * tape_var_bytes(t, x) + tape_var_bytes(t, row);
    struct node *n = tape_node(t, NODE_PASS, name, KC_ELEMENTWISE);
    tape_edge(t, n, x);
    tape_edge(t, n, wide);
    tape_drop(t, wide);
    return fresh(t, tape_var_numel(t, x), tape_var_dtype(t, x));
}

var op_add_to(struct tape *t, const char *name, var a, var b)
{
    begin(t, name, KC_ELEMENTWISE, KEEPS_NOTHING)->bytes = 2 * tape_var_bytes(t, a) + tape_var_bytes(t, b);
    struct node *n = tape_node(t, NODE_PASS, name, KC_ELEMENTWISE);
    tape_edge(t, n, a);
    tape_edge(t, n, b);
    t->stores[store_of(t, a)].refs++;
    return tape_var(t, store_of(t, a), tape_var_numel(t, a), tape_var_dtype(t, a), t->nnodes - 1, 0);
}

var op_index(struct tape *t, const char *name, var x, int64_t numel)
{
    begin(t, name, KC_COPY, KEEPS_OUTPUT)->bytes = 2 * numel * tape_elem(t, x);
    int index = alloc(t, 1, DT_INT64);
    struct node *n = tape_node(t, NODE_COPY, name, KC_COPY);
    tape_edge(t, n, x);
    tape_save(t, n, index);
    tape_unref(t, index);
    return fresh(t, numel, tape_var_dtype(t, x));
}

void op_split(struct tape *t, const char *name, var x, int parts, const int64_t *numel, var *out)
{
    struct node *n = tape_node(t, NODE_JOIN, name, KC_COPY);
    int node = t->nnodes - 1;

    assert(parts <= TAPE_SLOTS);
    tape_edge(t, n, x);
    n->nslots = parts;
    for (int i = 0; i < parts; i++) {
        t->stores[store_of(t, x)].refs++;
        out[i] = tape_var(t, store_of(t, x), numel[i], tape_var_dtype(t, x), node, i);
    }
}

var op_slice(struct tape *t, const char *name, var x, int64_t numel)
{
    struct node *n = tape_node(t, NODE_COPY, name, KC_COPY);

    tape_edge(t, n, x);
    t->stores[store_of(t, x)].refs++;
    return tape_var(t, store_of(t, x), numel, tape_var_dtype(t, x), t->nnodes - 1, 0);
}

var op_cat2(struct tape *t, const char *name, var a, var b)
{
    int64_t numel = tape_var_numel(t, a) + (b ? tape_var_numel(t, b) : 0);

    begin(t, name, KC_COPY, KEEPS_NOTHING)->bytes = 2 * numel * tape_elem(t, a);
    struct node *n = tape_node(t, NODE_PASS, name, KC_COPY);    /* narrow(): views */
    tape_edge(t, n, a);
    if (b)
        tape_edge(t, n, b);
    return fresh(t, numel, tape_var_dtype(t, a));
}

var op_pow(struct tape *t, const char *name, var x)
{
    begin(t, name, KC_ELEMENTWISE, KEEPS_INPUT)->bytes = 2 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_POWER, name, KC_ELEMENTWISE);
    tape_edge(t, n, x);
    tape_save_var(t, n, x);
    return fresh(t, tape_var_numel(t, x), tape_var_dtype(t, x));
}

var op_rms(struct tape *t, var x, int64_t rows)
{
    begin(t, "rms", KC_NORM, KEEPS_OUTPUT)->bytes = 3 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_RMS, "rms", KC_NORM);
    tape_edge(t, n, x);
    tape_save_var(t, n, x);
    int square = t->compiled ? 0 : alloc(t, tape_var_numel(t, x), tape_var_dtype(t, x));
    int mean = t->compiled ? 0 : alloc(t, rows, tape_var_dtype(t, x));
    tape_unref(t, square);
    var r = tape_var(t, alloc(t, rows, tape_var_dtype(t, x)), rows, tape_var_dtype(t, x), t->nnodes - 1, 0);
    tape_unref(t, mean);
    tape_save_var(t, &t->nodes[t->nnodes - 1], r);
    return r;
}

var op_dropout(struct tape *t, const char *name, var x, double p)
{
    if (p <= 0)
        return tape_hold(t, x);
    begin(t, name, KC_ELEMENTWISE, KEEPS_OUTPUT)->bytes = 2 * tape_var_bytes(t, x) + tape_var_numel(t, x);
    struct node *n = tape_node(t, NODE_COPY, name, KC_ELEMENTWISE);
    tape_edge(t, n, x);
    var y = fresh(t, tape_var_numel(t, x), tape_var_dtype(t, x));
    int mask = alloc(t, tape_var_numel(t, x), DT_UINT8);
    tape_save(t, &t->nodes[t->nnodes - 1], mask);
    tape_unref(t, mask);
    return y;
}

/* The result of an operator that a selective checkpoint keeps (`chosen`): made, and kept where it is the first run; or
 * taken from there. */
static int result(struct tape *t, bool chosen, int64_t numel, enum dtype dt)
{
    if (chosen && t->cached && !t->stopped)
        return tape_kept_result(t);
    int store = alloc(t, numel, dt);
    if (chosen && t->caches)
        tape_keep_result(t, store);
    return store;
}

/* A kernel whose result is there: nothing runs. */
static void skip(struct kernel *k)
{
    k->m = k->n = k->k = k->batch = k->bytes = 0;
    k->flops = 0;
}

/* torchtitan's `selective op`: every other aten.mm from the first, routers' left out (per_op_sac_force_recompute_mm_shapes_by_fqns); a linear
 * layer with a bias is an addmm. */
static bool chosen_product(struct tape *t, bool biased)
{
    return (t->caches || t->cached) && !biased && !t->uncounted && ++t->products % 2 == 1;
}

var op_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, var w, var b,
              bool weight_first)
{
    bool chosen = chosen_product(t, b != 0) && !t->leaves;
    tape_need(t, x);
    tape_need(t, w);
    tape_need(t, b);
    int64_t rows = tape_var_numel(t, x) / k;
    struct kernel *kernel = begin(t, names->forward, KC_GEMM, KEEPS_INPUT);

    kernel->m = rows, kernel->n = n, kernel->k = k, kernel->batch = 1;
    kernel->flops = 2.0 * (double)rows * (double)n * (double)k;
    kernel->bytes = (rows * k + n * k + rows * n) * tape_elem(t, x);
    struct node *node = tape_node(t, NODE_LINEAR, names->forward, KC_GEMM);
    node->names = *names;
    node->m = rows, node->n = n, node->k = k, node->batch = 1;
    node->flops = kernel->flops;
    node->weight_first = weight_first;
    tape_edge(t, node, x);
    tape_edge(t, node, w);
    if (b)
        tape_edge(t, node, b);
    if (t->linear_saves || tape_wants_grad(t, w))
        tape_save_var(t, node, x);
    save_for(t, node, x, w);                    /* counted only when it is a cast copy */
    if ((chosen && t->cached) || t->unneeded)
        skip(kernel);
    int y = t->unneeded ? tape_alloc(t, 0, 1, MEM_TEMPORARIES) : result(t, chosen, rows * n, tape_var_dtype(t, x));
    if (kernel != &t->skipped && !t->unneeded && !(chosen && t->cached))
        tape_product_in_parts(t, store_of(t, x), tape_var_dtype(t, x));
    return tape_var(t, y, rows * n, tape_var_dtype(t, x), t->nnodes - 1, 0);
}

var op_matmul(struct tape *t, const char *name, var a, var b, int64_t batch, int64_t m, int64_t n,
              int64_t k)
{
    struct kernel *kernel = begin(t, name, KC_ATTENTION, KEEPS_INPUT);

    kernel->m = m, kernel->n = n, kernel->k = k, kernel->batch = batch;
    kernel->flops = 2.0 * (double)batch * (double)m * (double)n * (double)k;
    kernel->bytes = batch * (m * k + n * k + m * n) * tape_elem(t, a);
    struct node *node = tape_node(t, NODE_MATMUL, name, KC_ATTENTION);
    node->m = m, node->n = n, node->k = k, node->batch = batch;
    node->flops = kernel->flops;
    tape_edge(t, node, a);
    tape_edge(t, node, b);
    save_for(t, node, b, a);
    save_for(t, node, a, b);
    return fresh(t, batch * m * n, tape_var_dtype(t, a));
}

var op_layer_norm(struct tape *t, const char *name, var x, int64_t rows, var w, var b)
{
    begin(t, name, KC_NORM, KEEPS_OUTPUT)->bytes = 2 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_LAYER_NORM, name, KC_NORM);
    tape_edge(t, n, x);
    if (w)
        tape_edge(t, n, w);
    if (b)
        tape_edge(t, n, b);
    tape_save_var(t, n, x);
    if (w)
        tape_save_var(t, n, w);                 /* counted only when it is computed (1 + w), or on the host */
    if (b)
        tape_save_var(t, n, b);
    var y = fresh(t, tape_var_numel(t, x), tape_var_dtype(t, x));
    for (int i = 0; i < 2; i++) {               /* mean and 1/sigma, fp32 */
        int s = alloc(t, rows, DT_FP32);
        tape_save(t, &t->nodes[t->nnodes - 1], s);
        tape_unref(t, s);
    }
    return y;
}

var op_scale(struct tape *t, const char *name, var x, var w)
{
    begin(t, name, KC_NORM, KEEPS_INPUT)->bytes = 2 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_SCALE, name, KC_NORM);
    tape_edge(t, n, x);
    tape_edge(t, n, w);
    save_for(t, n, w, x);
    save_for(t, n, x, w);
    return fresh(t, tape_var_numel(t, x), tape_wider(tape_var_dtype(t, x), tape_var_dtype(t, w)));
}

var op_listed(struct tape *t, var x, int first, int64_t n, int64_t numel, enum dtype dt)
{
    for (int64_t i = 0; i < n; i++, t->module++)
        begin(t, "norm of a head", KC_NORM, KEEPS_NOTHING);
    t->module -= (int)n;
    struct node *node = tape_node(t, NODE_LISTED, "norm of a head", KC_NORM);
    node->m = first, node->batch = n, node->k = numel;
    tape_edge(t, node, x);
    t->stores[store_of(t, x)].refs++;
    var y = tape_var(t, store_of(t, x), tape_var_numel(t, x), tape_var_dtype(t, x), t->nnodes - 1, 0);
    t->nodes[t->nnodes - 1].dt = dt;
    return y;
}

var op_embedding(struct tape *t, const char *name, var ids, int64_t width, var w)
{
    int64_t rows = tape_var_numel(t, ids);

    begin(t, name, KC_EMBEDDING, KEEPS_INPUT)->bytes = 2 * rows * width * tape_elem(t, w);
    struct node *n = tape_node(t, NODE_EMBEDDING, name, KC_EMBEDDING);
    tape_edge(t, n, w);
    tape_save_var(t, n, ids);
    return fresh(t, rows * width, tape_var_dtype(t, w));
}

var op_attention(struct tape *t, const char *name, const var in[4], int64_t numel, int64_t lse_numel, int64_t seed_numel,
                 int64_t scratch, double flops)
{
    for (int i = 0; i < 4; i++)
        tape_need(t, in[i]);
    struct kernel *kernel = begin(t, name, KC_ATTENTION, KEEPS_OUTPUT);

    kernel->flops = flops;
    kernel->bytes = numel * tape_elem(t, in[0]);         /* the output */
    struct node *n = tape_node(t, NODE_EACH, name, KC_ATTENTION);
    for (int i = 0; i < 3; i++)                 /* a mask has no gradient */
        tape_edge(t, n, in[i]);
    for (int i = 0; i < 4; i++) {
        kernel->bytes += tape_var_bytes(t, in[i]);
        tape_save_var(t, n, in[i]);
    }
    n->flops = flops;
    n->work = scratch;
    bool chosen = t->caches || t->cached;
    if (t->cached)
        skip(kernel);
    enum dtype dt = tape_var_dtype(t, in[0]);
    var y = tape_var(t, result(t, chosen, numel, dt), numel, dt, t->nnodes - 1, 0);
    n = &t->nodes[t->nnodes - 1];
    tape_save_var(t, n, y);
    int lse = result(t, chosen, lse_numel, DT_FP32);
    tape_save(t, n, lse);
    tape_unref(t, lse);
    for (int i = 0; i < 2; i++) {               /* state of the random generator */
        int s = result(t, chosen, i == 0 ? seed_numel : 1, DT_INT64);
        tape_save(t, n, s);
        tape_unref(t, s);
    }
    return y;
}

var op_shared(struct tape *t, var w, bool views)
{
    struct node *n = tape_node(t, NODE_PASS, "shared weight", KC_COPY);

    tape_edge(t, n, w);
    n->sums_views = views;
    t->stores[store_of(t, w)].refs++;
    return tape_var(t, store_of(t, w), tape_var_numel(t, w), tape_var_dtype(t, w), t->nnodes - 1, 0);
}
