/* program_dpx_float8.c -- our own kernels around torchao's float8 linear layers (model/plan/float8.h).
 *
 * A layer's products are of 8-bit floats, as tape_float8.h has them: of x and W in forward, of dy with x and with W in backward.  What is kept
 * for backward is x as it came.  A cast finds the largest magnitudes of its matrix, by tensor, rows or columns, and writes the numbers that the
 * matrix times their scales is rounded to, in the activations' dtype, which holds numbers of 8 bits exactly, and the scales behind them:
 * processors have no products of 8-bit floats.  The product's sums are divided by the scales in fp32.  An input is cast once for all layers
 * that read it one after the other, in forward and again in backward; dy once, or, where its two products want other scales, for each; W
 * before each product that reads it: where FSDP2 gathered it in float8, its codes become numbers. */
#include "model/program/program_dpx.h"

#include "model/plan/float8.h"

/* The weight of a role in the piece that is being built, if the layer is float8; NULL. */
static const struct tensor *float8_weight(const struct dpx *d, enum tensor_role role)
{
    const struct model *m = d->m;

    for (int i = model_next_tensor(m, d->block, -1); i >= 0; i = model_next_tensor(m, d->block, i)) {
        const struct tensor *w = &m->tensors[i];
        if (w->role == role && !w->is_bias && w->adapter == ADAPTER_NONE)
            return float8_converts(d->p, w) ? w : NULL;
    }
    return NULL;
}

/* Numbers of a matrix, and their scales behind them. */
static int cast(struct dpx *d, enum kernel_fn fn, const char *name, enum tensor_role role, enum slot slot, enum float8_by by, int64_t rows,
                int64_t cols)
{
    dpx_use(d, role);
    dpx_kernel(d, fn, name, KC_ELEMENTWISE, 3 * rows * cols * d->e)->step = (int16_t)by;
    return dpx_temp(d, slot, rows * cols + float8_scales(by, rows, cols) * 4 / d->e, d->e);
}

static enum float8_by by(const struct dpx *d, enum float8_product of, bool second) { return float8_by(d->p->float8.recipe, of, second); }

static bool is_rounded(const struct dpx *d, enum tensor_role role, enum float8_product of)
{
    return float8_weight(d, role) && by(d, of, false) != FLOAT8_BY_NONE;
}

void dpx_float8_in(struct dpx *d, enum tensor_role role, int64_t k, enum pass pass)
{
    enum float8_product of = pass == PASS_FORWARD ? FLOAT8_OUTPUT : FLOAT8_DW;

    if (!d->x8 && is_rounded(d, role, of))
        d->x8 = cast(d, FN_FLOAT8_X, "cast input to float8", role, SLOT_X8, by(d, of, of == FLOAT8_DW), d->n, k);
}

/* The next layer reads the same. */
static bool is_shared(const struct dpx *d, enum tensor_role role, enum pass pass)
{
    bool gated = d->m->mlp == MLP_GATED && !d->m->fused_gate_up;

    if (pass == PASS_FORWARD)
        return role == ROLE_Q || role == ROLE_K || role == ROLE_GATE;
    return role == ROLE_V || role == ROLE_K || (role == ROLE_UP && gated);
}

void dpx_float8_read(struct dpx *d, enum tensor_role role, enum pass pass)
{
    if (!is_shared(d, role, pass))
        dpx_gone(d, &d->x8);
}

void dpx_float8_dy(struct dpx *d, enum tensor_role role, int64_t n, bool dx, int *dy8)
{
    enum float8_product of = dx ? FLOAT8_DX : FLOAT8_DW;

    if (dx && by(d, FLOAT8_DX, false) != by(d, FLOAT8_DW, false))
        dpx_gone(d, dy8);
    if (!*dy8 && is_rounded(d, role, of))
        *dy8 = cast(d, FN_FLOAT8_DY, "cast gradient to float8", role, SLOT_DY8, by(d, of, false), d->n, n);
}

int dpx_float8_weight(struct dpx *d, enum kernel_fn fn)
{
    const struct tensor *w = float8_weight(d, d->role);
    enum tensor_role role = d->role;
    int module = d->t.module;

    if ((fn != FN_LINEAR && fn != FN_LINEAR_DX) || !w)
        return 0;
    bool codes = float8_gathers(d->p, w);
    int numbers = cast(d, FN_FLOAT8_W, codes ? "float8 weight" : "cast weight to float8", role, SLOT_WEIGHT,
                       by(d, fn == FN_LINEAR ? FLOAT8_OUTPUT : FLOAT8_DX, true), w->shape[0], w->shape[1]);
    if (codes)
        d->t.out[d->t.nout - 1].bytes = w->numel * (1 + d->e);
    dpx_use(d, role);
    d->t.module = module;
    return numbers;
}
