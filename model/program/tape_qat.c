/* tape_qat.c -- see tape_qat.h. */
#include "model/program/tape_qat.h"

#include "model/program/tape_internal.h"

/* choose_qparams_affine(): two passes over x, then operations on a number for each group. */
static void choose(struct tape *t, var x, int64_t groups, bool tokens)
{
    const int64_t bytes = tape_var_numel(t, x) * tape_elem(t, x);
    const int small = tokens ? 13 : 11;

    tape_pass(t, "smallest", KC_ELEMENTWISE, bytes);
    tape_pass(t, "largest", KC_ELEMENTWISE, bytes);
    for (int i = 0; i < small; i++)
        tape_pass(t, "scale and zero point", KC_ELEMENTWISE, 8 * groups);
}

/* x times one number a group, in fp32. */
static var times(struct tape *t, const char *name, var x, var c)
{
    int64_t numel = tape_var_numel(t, x);
    var y = op_mul_rows(t, name, x, c);

    t->out[t->nout - 1].bytes = numel * (tape_elem(t, x) + 4);
    return y;
}

static var clamp(struct tape *t, var x)
{
    int64_t numel = tape_var_numel(t, x);
    var y = op_unary(t, "clamp", KC_ELEMENTWISE, x, SAVE_IN);

    t->nodes[t->nnodes - 1].kind = NODE_CLAMP;
    t->nodes[t->nnodes - 1].m = numel;
    return y;
}

/* where((x >= low) & (x <= high), gradient, 0). */
void tape_run_clamp(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    tape_back(t, n, "clamp: low")->bytes = 5 * n->m;
    int low = tape_alloc(t, n->m, 1, MEM_TEMPORARIES);
    tape_back(t, n, "clamp: high")->bytes = 5 * n->m;
    int high = tape_alloc(t, n->m, 1, MEM_TEMPORARIES);
    tape_back(t, n, "clamp: both")->bytes = 3 * n->m;
    tape_unref(t, high);
    tape_back(t, n, n->name)->bytes = 9 * n->m;
    out[0] = tape_wants(n, 0) ? tape_alloc(t, n->m, 4, MEM_TEMPORARIES) : 0;
    tape_unref(t, low);
}

/* input.to(dtype, copy=True): a copy also where it has that dtype. */
static var copy(struct tape *t, var x, enum dtype to) { return tape_var_dtype(t, x) == to ? op_copy(t, "copy", x, true) : op_cast(t, x, to); }

static var dequantised(struct tape *t, var q, int64_t groups, enum dtype dt, var scale)
{
    var y = copy(t, q, dt), z;

    if (dt != DT_FP32)
        tape_pass(t, "cast zero point", KC_ELEMENTWISE, 6 * groups);
    y = tmp(t, y, op_add(t, "subtract zero point", y, 0));
    y = tmp(t, y, times(t, "times scale", y, scale));
    z = op_cast(t, y, dt);
    tape_drop(t, y);
    return z;
}

var tape_rounded(struct tape *t, var x, int64_t groups, bool tokens, bool holds)
{
    choose(t, x, groups, tokens);
    var scale = holds ? op_new(t, "scales", KC_ELEMENTWISE, groups, DT_FP32) : op_param(t, -1, groups, DT_FP32);
    tape_pass(t, "reciprocal", KC_ELEMENTWISE, 8 * groups);
    var inverse = op_new(t, "1 / scale", KC_ELEMENTWISE, groups, DT_FP32);
    var y = times(t, "times 1 / scale", x, inverse);
    tape_drop(t, inverse);
    y = tmp(t, y, op_copy(t, "round", y, true));
    y = tmp(t, y, op_add(t, "add zero point", y, 0));
    y = tmp(t, y, clamp(t, y));
    var z = dequantised(t, y, groups, tape_var_dtype(t, x), scale);
    tape_drop(t, scale);
    tape_drop(t, y);
    return z;
}

/* ---- MSLK's int4 weights ---- */

enum { WIDE, ABOVE, ROUNDED, LESS, LARGEST, SMALLEST, RANGE, SCALE };       /* what its node saves, in this order */

/* A result of one operation that passes over so many bytes. */
static int made(struct tape *t, const char *name, int64_t numel, enum dtype dt, int64_t bytes)
{
    tape_pass(t, name, KC_ELEMENTWISE, bytes);
    return tape_new(t, numel, dt);
}

static int numbers(struct tape *t, const char *name, int64_t numel) { return made(t, name, numel, DT_FP32, 8 * numel); }

/* y, of x, which has no name then. */
static int instead(struct tape *t, int x, int y)
{
    tape_unref(t, x);
    return y;
}

/* Extremes of groups, and what is made of them: of[LARGEST] to of[SCALE] are saved; the zero points. */
static int scales(struct tape *t, int64_t numel, int64_t groups, int of[])
{
    of[LARGEST] = made(t, "largest", groups, DT_FP32, 4 * numel);
    of[SMALLEST] = made(t, "smallest", groups, DT_FP32, 4 * numel);
    of[RANGE] = numbers(t, "range", groups);
    int clamped = numbers(t, "clamp range", groups);
    of[SCALE] = instead(t, clamped, numbers(t, "scale", groups));
    int eight = numbers(t, "eight scales", groups);
    return instead(t, eight, numbers(t, "zero point", groups));
}

var tape_rounded_mslk(struct tape *t, var w, int64_t groups)
{
    enum dtype dt = tape_var_dtype(t, w);
    int64_t n = tape_var_numel(t, w);
    var wide = op_cast(t, w, DT_FP32);
    int of[SCALE + 1] = { 0 };

    tape_begin_saving(t, "int4 weight", KC_ELEMENTWISE)->bytes = 0;
    struct node *node = tape_node_of(t, NODE_MSLK, "int4 weight", KC_ELEMENTWISE, wide);
    int at = t->nnodes - 1;
    node->m = n, node->k = groups, node->dt = dt;
    tape_save_var(t, node, wide);
    int zero = scales(t, n, groups, of);
    of[ABOVE] = numbers(t, "subtract smallest", n);
    tape_save(t, &t->nodes[at], of[ABOVE]);
    int x = instead(t, of[ABOVE], numbers(t, "divide by scale", n));
    of[ROUNDED] = instead(t, x, numbers(t, "round", n));
    tape_save(t, &t->nodes[at], of[ROUNDED]);
    x = instead(t, of[ROUNDED], numbers(t, "clamp", n));
    of[LESS] = instead(t, x, numbers(t, "subtract 8", n));
    tape_save(t, &t->nodes[at], of[LESS]);
    x = instead(t, of[LESS], numbers(t, "times scale", n));
    x = instead(t, x, numbers(t, "add zero point", n));
    int z = instead(t, x, made(t, "cast", n, dt, n * (4 + dtype_bytes(dt))));
    for (int i = LARGEST; i <= SCALE; i++) {
        tape_save(t, &t->nodes[at], of[i]);
        tape_unref(t, of[i]);
    }
    tape_unref(t, zero);
    tape_drop(t, wide);
    return tape_var(t, z, n, dt, at, 0);
}

static int temporary(struct tape *t, const struct node *n, const char *name, int64_t numel, int64_t elem)
{
    tape_back(t, n, name)->bytes = (4 + elem) * numel;
    return tape_alloc(t, numel, elem, MEM_TEMPORARIES);
}

static void forget(struct tape *t, struct node *own, int i)
{
    tape_unref(t, own->saved[i]);
    own->saved[i] = 0;
}

/* The gradient of the extremes: a mask of their places, counted; each takes its share, which is added to what has come. */
static void to_extremes(struct tape *t, const struct node *n)
{
    int mask = temporary(t, n, "extreme: where", n->m, 1), share = temporary(t, n, "extreme: masked", n->m, 4);
    int count = temporary(t, n, "extreme: count", n->k, 4), part = temporary(t, n, "extreme: share", n->m, 4);

    tape_unref(t, share);
    tape_unref(t, count);
    tape_unref(t, mask);
    tape_back(t, n, "grad add")->bytes = 12 * n->m;
    tape_unref(t, part);
}

/* Of the quotient's divisor, which comes before the dividend's: -g * ((x / scale) / scale). */
static int of_divisor(struct tape *t, const struct node *n)
{
    int minus = temporary(t, n, "divide: minus", n->m, 4), once = temporary(t, n, "divide: quotient", n->m, 4);
    int twice = temporary(t, n, "divide: twice", n->m, 4), product = temporary(t, n, "divide: product", n->m, 4);

    tape_unref(t, minus);
    tape_unref(t, once);
    tape_unref(t, twice);
    return product;
}

void tape_run_mslk(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    struct node *own = &t->nodes[n - t->nodes];
    const struct node clamp = { .kind = NODE_CLAMP, .name = "clamp", .kc = KC_ELEMENTWISE, .module = n->module, .half = n->half, .m = n->m,
                                .nedges = 1, .edges = { n->edges[0] } };
    int g = temporary(t, n, "cast", n->m, 4), clamped[TAPE_EDGES] = { 0 };

    tape_unref(t, own->grad[0]);
    own->grad[0] = 0;
    int zero = temporary(t, n, "zero point: sum", n->k, 4);
    int scaled = temporary(t, n, "times scale", n->m, 4), other = temporary(t, n, "times number", n->m, 4), scale = temporary(t, n, "scale: sum", n->k, 4);
    tape_unref(t, other);
    tape_unref(t, g);
    forget(t, own, LESS);
    tape_run_clamp(t, &clamp, clamped);
    tape_unref(t, scaled);
    forget(t, own, ROUNDED);
    other = of_divisor(t, n);
    out[0] = temporary(t, n, "divide by scale", n->m, 4);
    int divisor = temporary(t, n, "divide: sum", n->k, 4);
    tape_unref(t, other);
    tape_unref(t, clamped[0]);
    forget(t, own, ABOVE);
    int minus = temporary(t, n, "smallest: minus", n->m, 4), smallest = temporary(t, n, "smallest: sum", n->k, 4);
    tape_unref(t, minus);
    to_extremes(t, n);
    to_extremes(t, n);
    const int sums[] = { zero, scale, divisor, smallest };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        tape_unref(t, sums[i]);
}
