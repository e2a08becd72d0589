/* tape_packed.c -- see tape_packed.h. */
#include "model/program/tape_packed.h"

#include "model/arch/packed.h"
#include "model/program/tape_internal.h"

static int64_t rows_of(const struct tape *t, var x, int64_t k) { return tape_var_numel(t, x) / k; }

static int scratch(struct tape *t, int64_t numel, int64_t elem) { return tape_alloc(t, numel, elem, MEM_TEMPORARIES); }

static struct kernel *product(struct tape *t, const char *name, int64_t m, int64_t n, int64_t k, int64_t elem)
{
    struct kernel *at = t->backward ? tape_kernel(t, name, KC_GEMM) : tape_begin(t, name, KC_GEMM);

    at->m = m, at->n = n, at->k = k, at->batch = 1;
    at->flops = 2.0 * (double)m * (double)n * (double)k;
    at->bytes = (m * k + n * k + m * n) * elem;
    return at;
}

static struct kernel *makes(struct tape *t, const char *name, int64_t bytes)
{
    struct kernel *at = t->backward ? tape_kernel(t, name, KC_ELEMENTWISE) : tape_begin(t, name, KC_ELEMENTWISE);

    at->bytes = bytes;
    return at;
}

/* What forward of NF4 makes before its product; the caller frees it. */
static void unpack(struct tape *t, const struct node *n, int64_t elem, bool keeps_maxima, int of[3])
{
    of[0] = of[1] = 0;
    if (n->work > 0) {
        makes(t, "dequantise maxima", n->work / 4 + n->work);
        of[0] = scratch(t, n->work, 1);
        if (keeps_maxima) {
            makes(t, "add mean", 2 * n->work);
            of[1] = scratch(t, n->work, 1);
        }
    }
    makes(t, "dequantise", n->n * n->k / 2 + n->n * n->k * elem);
    of[2] = scratch(t, n->n * n->k, elem);
}

/* torchao's NF4Tensor.get_original_weight(), in PyTorch's operators: sizes are in half bytes a weight.  Shifted codes and the scales of each half go at once,
 * all else has a name until the weight is there; scales of blocks (1/64) are left out. */
static int unpack_torchao(struct tape *t, int64_t numel)
{
    static const struct { const char *name; int reads, makes; bool gone; } steps[] = {
        { "shift codes", 1, 1, true }, { "codes to int64", 1, 8, false }, { "mask codes", 1, 1, true }, { "codes to int64", 1, 8, false },
        { "look up", 8, 2, false }, { "look up", 8, 2, false },
        { "repeat scales", 0, 2, true }, { "scale", 4, 2, false }, { "repeat scales", 0, 2, true }, { "scale", 4, 2, false },
        { "stack halves", 4, 4, false },
    };
    enum { STEPS = sizeof steps / sizeof *steps };
    int64_t half = numel / 2;
    int made[STEPS];

    for (int i = 0; i < STEPS; i++) {
        makes(t, steps[i].name, (steps[i].reads + steps[i].makes) * half);
        made[i] = scratch(t, steps[i].makes * half, 1);
        if (i > 0 && steps[i - 1].gone)
            tape_unref(t, made[i - 1]);
    }
    for (int i = 0; i < STEPS - 1; i++)
        if (!steps[i].gone)
            tape_unref(t, made[i]);
    return made[STEPS - 1];
}

static int nf4_product(struct tape *t, const struct node *n, enum dtype dt)
{
    int made[3] = { 0 }, y;

    if (n->keys == BASE_AO_NF4)
        made[2] = unpack_torchao(t, n->n * n->k);
    else
        unpack(t, n, dtype_bytes(dt), true, made);
    product(t, n->names.forward, n->m, n->n, n->k, dtype_bytes(dt));
    y = tape_alloc(t, n->m * n->n, dtype_bytes(dt), MEM_ACTIVATIONS);
    for (int i = 0; i < 3; i++)
        tape_unref(t, made[i]);
    return y;
}

/* A.to(float16); the mask of large values, of its magnitude; codes and maxima; int32; fp16; A's dtype. */
static int int8_product(struct tape *t, const struct node *n, enum dtype dt)
{
    int64_t in = n->m * n->k, out = n->m * n->n;
    int half = 0, wide, narrow, y;

    if (dt != DT_FP16) {
        makes(t, "cast", 4 * in);
        half = scratch(t, in, 2);
    }
    makes(t, "quantise input", 6 * in);
    int maxima = scratch(t, n->m, 4), codes = scratch(t, in, 1), magnitude = scratch(t, in, 2), mask = scratch(t, in, 1);
    tape_unref(t, magnitude);
    tape_unref(t, mask);
    tape_unref(t, half);
    product(t, n->names.forward, n->m, n->n, n->k, 1);
    wide = scratch(t, out, 4);
    makes(t, "dequantise product", 6 * out);
    narrow = dt == DT_FP16 ? 0 : scratch(t, out, 2);
    if (narrow)
        makes(t, "cast", 6 * out);
    y = tape_alloc(t, out, dtype_bytes(dt), MEM_ACTIVATIONS);
    tape_unref(t, wide);
    tape_unref(t, narrow);
    tape_unref(t, codes);
    tape_unref(t, maxima);
    return y;
}

var tape_packed_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, const struct tensor *weight)
{
    enum dtype dt = tape_var_dtype(t, x);
    struct node *node = tape_node(t, NODE_PACKED, names->forward, KC_GEMM);
    int at = t->nnodes - 1, y;

    node->names = *names;
    node->m = rows_of(t, x, k), node->n = n, node->k = k, node->batch = 1;
    node->work = packed_maxima(weight);
    node->keys = weight->packed;
    node->flops = 2.0 * (double)node->m * (double)n * (double)k;
    tape_edge(t, node, x);
    const struct node as = *node;
    bool int8 = as.keys == BASE_INT8;
    if (int8 && as.wanted && t->holds_beside)
        tape_hold_beside(t, t->vars[x].store);
    else if (int8)
        tape_save(t, &t->nodes[at], t->vars[x].store);
    y = int8 ? int8_product(t, &as, dt) : nf4_product(t, &as, dt);
    return tape_var(t, y, as.m * n, dt, at, 0);
}

/* A tensor without history, made of `reads` bytes. */
static var made_of(struct tape *t, const char *name, int64_t reads, int64_t numel, enum dtype dt)
{
    makes(t, name, reads + numel * dtype_bytes(dt));
    return tape_var(t, tape_alloc(t, numel, dtype_bytes(dt), MEM_ACTIVATIONS), numel, dt, 0, 0);
}

var tape_ao_int8_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, bool bias)
{
    enum dtype dt = tape_var_dtype(t, x);
    var weight = made_of(t, "cast codes", n * k, n * k, dt);
    var product = op_linear(t, names, x, n, k, weight, 0, true);
    tape_drop(t, weight);
    var scales = made_of(t, "cast scales", 4 * n, n, dt);
    var y = op_mul_const(t, "scale rows", product, scales);

    tape_drop(t, scales);
    tape_drop(t, product);
    if (bias)
        makes(t, "add bias", 2 * tape_var_bytes(t, y));         /* in place */
    return y;
}

var tape_nf4_torchao_weight(struct tape *t, int64_t numel, enum dtype dt)
{
    return tape_var(t, unpack_torchao(t, numel), numel, dt, 0, 0);
}

void tape_run_packed(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    const struct edge *e = &n->edges[0];
    int64_t elem = dtype_bytes(e->dt);
    int made[3] = { 0 };

    if (!e->node && e->tensor < 0)
        return;
    t->module = n->module;
    t->half = n->half;
    if (n->keys == BASE_AO_NF4) {
        made[2] = unpack_torchao(t, n->n * n->k);
    } else if (n->keys == BASE_INT8) {
        makes(t, "dequantise", n->n * n->k * (1 + elem));
        made[2] = scratch(t, n->n * n->k, elem);
    } else {
        unpack(t, n, elem, false, made);
        tape_unref(t, made[0]);         /* a local of dequantize_4bit() */
    }
    product(t, n->names.dx, n->m, n->k, n->n, elem);
    out[0] = tape_alloc(t, e->numel, elem, MEM_TEMPORARIES);
    tape_unref(t, made[2]);
}
