/* exec_linear.c -- linear layers, and adapters beside them: which places, which shape, which products. */
#include "base/fail.h"
#include "exec/run/exec_kernel.h"

/* ---- which places, which shape ---- */

struct linear_place { enum tensor_role role; enum slot x, y, dy, dx, low; };

static const struct linear_place linears[] = {
    { ROLE_QKV,      SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_Q },
    { ROLE_Q,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_Q },
    { ROLE_K,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_K },
    { ROLE_V,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_V },
    { ROLE_ATTN_OUT, SLOT_ATTN,    SLOT_MID,    SLOT_DX,     SLOT_DA, SLOT_LOW_OUT },
    { ROLE_GATE,     SLOT_NORM2,   SLOT_GATE,   SLOT_DG,     SLOT_DN, SLOT_LOW_GATE },
    { ROLE_UP,       SLOT_NORM2,   SLOT_UP,     SLOT_DU,     SLOT_DN, SLOT_LOW_UP },
    { ROLE_DOWN,     SLOT_PRODUCT, SLOT_Y,      SLOT_DX,     SLOT_DU, SLOT_LOW_DOWN },
    { ROLE_HEAD,     SLOT_NORM1,   SLOT_LOGITS, SLOT_LOGITS, SLOT_DX, SLOT_NONE },
};

static const struct linear_place *linear_place(enum tensor_role role)
{
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++)
        if (linears[i].role == role)
            return &linears[i];
    return NULL;
}

static bool in_out(const struct kernel_call *c, enum tensor_role role)
{
    const struct model *m = &c->x->p->model;

    if (c->k->adapter != ADAPTER_NONE)
        return false;
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].role == role && !m->tensors[t].is_bias)
            return m->tensors[t].in_out;
    return false;                   /* a tied head: the embedding's [vocab, hidden] */
}

/* The shape; *column receives where the output begins in a row of q, k, v. */
static struct linear linear_shape(const struct kernel_call *c, enum tensor_role role, int64_t *column)
{
    const struct model *m = &c->x->p->model;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim, h = m->hidden, all = q + 2 * kv;
    struct linear l = { .n = tokens(c), .in = h, .at = act_dtype(c), .wt = c->param_dt, .gt = c->grad[0].dt,
                        .in_out = in_out(c, role) };

    *column = role == ROLE_K ? q : role == ROLE_V ? q + kv : 0;
    switch (role) {
    case ROLE_QKV:      l.out = all; break;
    case ROLE_Q:        l.out = q; break;
    case ROLE_K: case ROLE_V: l.out = kv; break;
    case ROLE_ATTN_OUT: l.in = q; l.out = h; break;
    case ROLE_DOWN:     l.in = m->ffn; l.out = h; break;
    case ROLE_HEAD:     l.out = m->vocab; break;
    default:            l.out = m->ffn; break;
    }
    l.ldx = l.in;
    l.ldy = role == ROLE_Q || role == ROLE_K || role == ROLE_V ? all : l.out;
    if (c->k->adapter == ADAPTER_LORA_A)
        l.out = l.ldy = c->x->p->train.rank;
    if (c->k->adapter == ADAPTER_LORA_B)
        l.in = l.ldx = c->x->p->train.rank;
    return l;
}

/* The weight of a product: where it was in codes, their numbers, [out, in] in the activations' dtype. */
static const void *weight(const struct kernel_call *c, struct linear *l)
{
    if (!c->at[SLOT_WEIGHT])
        return c->param[0];
    l->wt = l->at;
    l->in_out = false;
    return c->at[SLOT_WEIGHT];
}

static bool adds_residual(enum tensor_role role) { return role == ROLE_ATTN_OUT || role == ROLE_DOWN; }

/* What a linear layer reads: all positions of what a norm left, where they have been gathered. */
static const void *input(const struct kernel_call *c, const struct linear_place *at)
{
    return (at->x == SLOT_NORM1 || at->x == SLOT_NORM2) && c->at[SLOT_GATHERED] ? c->at[SLOT_GATHERED] : c->at[at->x];
}

static void *residual_of(const struct kernel_call *c, enum tensor_role role)
{
    return c->at[role == ROLE_DOWN ? SLOT_MID : SLOT_X];
}

static enum site output_site(enum tensor_role role) { return role == ROLE_DOWN ? SITE_MLP : SITE_ATTN_OUT; }

/* What follows a row-parallel product, or one whose dropout is not of one stretch: bias, dropout, residual. */
static int add_residual(const struct kernel_call *c, struct kernels *k, const struct linear_place *at)
{
    int64_t h = c->x->p->model.hidden;
    struct stretch s;

    for (int64_t row = 0; row < rows(c); row += s.n) {
        s = exec_stretch(c, output_site(at->role), row);
        if (kernels_ops(k)->residual(k, s.n, h, offset(c->at[at->y], row * h, act_dtype(c)), act_dtype(c), c->param[1], c->param_dt,
                                     offset(residual_of(c, at->role), row * h, act_dtype(c)), &s.drop) < 0)
            return -1;
    }
    return 0;
}

/* The gradient of what a half added to the residual, of all positions, where it has been gathered; NULL. */
static void *gathered_grad(const struct kernel_call *c, const struct linear_place *at)
{
    if (at->dy != SLOT_DX)
        return NULL;
    return c->at[at->role == ROLE_ATTN_OUT && c->at[SLOT_DGATHERED_OUT] ? SLOT_DGATHERED_OUT : SLOT_DGATHERED];
}

/* Of this rank's positions: among all, through its dropout or kept for later, or the residual's. */
static void *own_output_grad(const struct kernel_call *c, const struct linear_place *at)
{
    void *all = gathered_grad(c, at);

    if (all)
        return offset(all, first_row(c) * c->x->p->model.hidden, act_dtype(c));
    if (at->role == ROLE_ATTN_OUT && c->at[SLOT_DY_OUT])
        return c->at[SLOT_DY_OUT];
    return at->dy == SLOT_DX && c->at[SLOT_DY] ? c->at[SLOT_DY] : c->at[at->dy];
}

static void *output_grad(const struct kernel_call *c, const struct linear_place *at)
{
    void *all = gathered_grad(c, at);

    return all ? all : own_output_grad(c, at);
}

/* What an adapter's A left, or the gradient that B handed it, counts alpha / rank. */
static int scale_low(const struct kernel_call *c, struct kernels *k, void *low)
{
    const struct training *t = &c->x->p->train;
    enum dtype at = act_dtype(c);

    return kernels_ops(k)->copy(k, tokens(c) * t->rank, low, at, low, at, t->alpha / (double)t->rank, false);
}

/* What A reads, dropped; or what its backward left, dropped and added to the gradient of the layer's input. */
static int adapter_drop(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    bool back = c->k->fn == FN_ADAPTER_DROP_BACK;
    void *dropped = c->at[SLOT_DROPPED];
    enum dtype t = act_dtype(c);
    int64_t column, n;
    struct linear l = linear_shape(c, at->role, &column);
    struct dropout d = exec_adapter_dropout(c, at->low, l.in);

    n = l.n * l.in;
    if (!back && kernels_ops(k)->copy(k, n, dropped, t, input(c, at), t, 1, false) < 0)
        return -1;
    if (kernels_ops(k)->dropout_back(k, n, dropped, t, &d) < 0)
        return -1;
    return back ? kernels_ops(k)->copy(k, n, c->at[at->dx], t, dropped, t, 1, true) : 0;
}

static const void *adapter_input(const struct kernel_call *c, const struct linear_place *at)
{
    return c->at[SLOT_DROPPED] ? c->at[SLOT_DROPPED] : input(c, at);
}

/* Its A reads what the layer does; its B adds to what the layer left. */
static int adapter(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    const struct dropout none = { 0 };
    void *low = c->at[at->low];
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    if (c->k->adapter == ADAPTER_LORA_A)
        return kernels_ops(k)->linear(k, &l, adapter_input(c, at), c->param[0], NULL, low, NULL, &none) < 0 ? -1 : scale_low(c, k, low);
    void *y = offset(c->at[at->y], column, l.at);
    return kernels_ops(k)->linear(k, &l, low, c->param[0], NULL, y, y, &none);
}

static int adapter_dw(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    bool a = c->k->adapter == ADAPTER_LORA_A;
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    return kernels_ops(k)->linear_dw(k, &l, a ? adapter_input(c, at) : c->at[at->low],
                                     a ? c->at[SLOT_DLOW] : offset(output_grad(c, at), column, l.at), c->grad[0].p, NULL,
                                     c->grad[0].into);
}

static int adapter_dx(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    void *dlow = c->at[SLOT_DLOW];
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    bool drops = c->at[SLOT_DROPPED];

    if (c->k->adapter == ADAPTER_LORA_A)
        return kernels_ops(k)->linear_dx(k, &l, dlow, c->param[0], drops ? c->at[SLOT_DROPPED] : c->at[at->dx], !drops);
    if (kernels_ops(k)->linear_dx(k, &l, offset(output_grad(c, at), column, l.at), c->param[0], dlow, false) < 0)
        return -1;
    return scale_low(c, k, dlow);
}

static int linear(const struct kernel_call *c, struct kernels *k)
{
    enum tensor_role role = (enum tensor_role)c->k->role;
    const struct linear_place *at = linear_place(role);
    int64_t column;
    struct linear l = linear_shape(c, role, &column);
    struct stretch s = adds_residual(role) ? exec_stretch(c, output_site(role), 0) : (struct stretch){ .n = rows(c) };
    bool one = s.n == rows(c);

    const void *w = weight(c, &l), *x = exec_float8_x(c, &l, input(c, at));

    if (kernels_ops(k)->linear(k, &l, x, w, one ? c->param[1] : NULL, offset(c->at[at->y], column, l.at),
                               one && adds_residual(role) ? residual_of(c, role) : NULL, one ? &s.drop : NULL) < 0)
        return -1;
    return one ? 0 : add_residual(c, k, at);
}

/* Of a sum over ranks, into what came with it: the sum's own place, or one for the part; the bias follows the sum.  Or what an
 * adapter adds to. */
static int linear_part(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);
    void *y = c->at[is_fresh(c, SLOT_PARTIAL) ? SLOT_PARTIAL : at->y];

    const void *w = weight(c, &l);

    return kernels_ops(k)->linear(k, &l, input(c, at), w, c->x->p->parallel.tensor > 1 ? NULL : c->param[1], y, NULL, NULL);
}

static int unpack(const struct kernel_call *c, struct kernels *k)
{
    struct packed_weight w = exec_packed(c->weight, (void *)(uintptr_t)c->param[0]);

    return kernels_ops(k)->unpack(k, &w, c->at[SLOT_WEIGHT], act_dtype(c));
}

static int linear_db(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    l.n = rows(c);
    l.gt = c->grad[1].dt;
    return kernels_ops(k)->linear_db(k, &l, offset(own_output_grad(c, at), column, l.at), c->grad[1].p, c->grad[1].into);
}

static int linear_dw(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    const void *dy = exec_float8_dy(c, &l, offset(output_grad(c, at), column, l.at)), *x = exec_float8_x(c, &l, input(c, at));

    return kernels_ops(k)->linear_dw(k, &l, x, dy, c->grad[0].p, c->grad[1].wanted ? c->grad[1].p : NULL, c->grad[0].into);
}

static int linear_dx(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);
    enum slot dx = at->role == ROLE_HEAD && c->at[SLOT_DN] ? SLOT_DN : at->dx;  /* a sum over ranks leaves DX */

    const void *w = weight(c, &l), *dy = exec_float8_dy(c, &l, offset(output_grad(c, at), column, l.at));

    return kernels_ops(k)->linear_dx(k, &l, dy, w, c->at[dx], !is_fresh(c, dx));
}

static int float8(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    return exec_float8_cast(c, k, &l, c->k->fn == FN_FLOAT8_DY ? offset(output_grad(c, at), column, l.at) : input(c, at));
}

int exec_linear(const struct kernel_call *c, struct kernels *k)
{
    bool lora = c->k->adapter != ADAPTER_NONE;

    switch ((enum kernel_fn)c->k->fn) {
    case FN_LINEAR:       return lora ? adapter(c, k) : linear(c, k);
    case FN_LINEAR_DW:    return lora ? adapter_dw(c, k) : linear_dw(c, k);
    case FN_LINEAR_DX:    return lora ? adapter_dx(c, k) : linear_dx(c, k);
    case FN_LINEAR_PART:  return linear_part(c, k);
    case FN_LINEAR_DB:    return linear_db(c, k);
    case FN_RESIDUAL:     return add_residual(c, k, linear_place((enum tensor_role)c->k->role));
    case FN_UNPACK:       return unpack(c, k);
    case FN_ADAPTER_DROP: case FN_ADAPTER_DROP_BACK:
        return adapter_drop(c, k);
    case FN_FLOAT8_X: case FN_FLOAT8_W: case FN_FLOAT8_DY:
        return float8(c, k);
    default:
        return fail("\"%s\" is no kernel of a linear layer", c->k->name);
    }
}
