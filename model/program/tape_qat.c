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
