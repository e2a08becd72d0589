/* program_dpx_block.c -- one block of our own executor: kernels, what each keeps and
 * what each frees.  Bias, residual and dropout belong to the kernel that produces their
 * input; the gradient of the residual stream is one buffer, added to in place. */
#include "model/program/program_dpx.h"

/* Attention and MLP read the output of one norm (Falcon 7B). */
static bool one_norm(const struct dpx *d)
{
    return d->m->parallel && torch_piece_tensor(d->m, 0, ROLE_NORM_MLP, false) < 0;
}

/* ---- forward ---- */

static double attention_flops(const struct dpx *d)
{
    return 4.0 * (double)d->n * (double)d->p->seq * (double)d->q;
}

/* Heads of fewer keys and values read less, and so models of different numbers of heads may read as many bytes: the
 * batch tells them apart. */
struct kernel *dpx_attention(struct dpx *d, enum kernel_fn fn, const char *name, int64_t bytes, double flops, int64_t batch)
{
    struct kernel *k = dpx_kernel(d, fn, name, KC_ATTENTION, bytes);

    k->flops = flops;
    k->batch = batch;
    return k;
}

static int64_t heads_of_samples(const struct dpx *d) { return d->n / d->p->seq * d->m->heads; }

static void attention_core(struct dpx *d)
{
    if (d->context > 1) {
        dpx_context_attention(d);
        return;
    }
    dpx_attention(d, FN_ATTENTION, "attention", d->n * (2 * d->q + 2 * d->kv) * d->e, attention_flops(d), heads_of_samples(d));
    d->k.attn = dpx_keep(d, SLOT_ATTN, d->n * d->q, d->e);
    d->k.lse = dpx_keep(d, SLOT_LSE, d->n * d->m->heads, 4);
}

/* One buffer for q, k and v; a kernel for each module that makes part of it. */
static void project(struct dpx *d)
{
    static const enum tensor_role role[] = { ROLE_Q, ROLE_K, ROLE_V };
    static const char *const name[] = { "q", "k", "v" };
    const int64_t width[] = { d->q, d->kv, d->kv };

    if (d->m->fused_qkv) {
        dpx_adapter_in(d, ROLE_QKV, d->h);
        dpx_float8_in(d, ROLE_QKV, d->h, PASS_FORWARD);
        dpx_use(d, ROLE_QKV);
        dpx_gemm(d, FN_LINEAR, "qkv", d->n, d->q + 2 * d->kv, d->h);
        d->k.qkv = dpx_keep(d, SLOT_QKV, d->n * (d->q + 2 * d->kv), d->e);
        dpx_float8_read(d, ROLE_QKV, PASS_FORWARD);
        dpx_adapter_out(d, ROLE_QKV, d->q + 2 * d->kv);
        return;
    }
    for (int i = 0; i < 3; i++) {
        dpx_adapter_in(d, role[i], d->h);
        dpx_float8_in(d, role[i], d->h, PASS_FORWARD);
        dpx_use(d, role[i]);
        dpx_gemm(d, FN_LINEAR, name[i], d->n, width[i], d->h);
        if (i == 0)
            d->k.qkv = dpx_keep(d, SLOT_QKV, d->n * (d->q + 2 * d->kv), d->e);
        dpx_float8_read(d, role[i], PASS_FORWARD);
        dpx_adapter_out(d, role[i], width[i]);
    }
}

static bool qkv_reads(const struct dpx *d)
{
    return d->m->fused_qkv ? dpx_reads(d, ROLE_QKV) : dpx_reads(d, ROLE_Q) || dpx_reads(d, ROLE_K) || dpx_reads(d, ROLE_V);
}

static bool up_reads(const struct dpx *d)
{
    return d->m->fused_gate_up ? dpx_reads(d, ROLE_GATE_UP)
                               : dpx_reads(d, ROLE_UP) || (d->m->mlp == MLP_GATED && dpx_reads(d, ROLE_GATE));
}

/* Whose bias, dropout and residual are a kernel's of its own. */
static enum kernel_fn row_product(const struct dpx *d, enum tensor_role role)
{
    return d->ranks > 1 || dpx_is_adapted(d, role) ? FN_LINEAR_PART : FN_LINEAR;
}

static void norm_qk(struct dpx *d)
{
    dpx_use(d, ROLE_Q_NORM);
    dpx_kernel(d, FN_Q_NORM, "q norm", KC_NORM, 2 * d->n * d->q * d->e);
    d->k.qk_normed = dpx_keep(d, SLOT_QK_NORMED, d->n * (d->q + d->kv), d->e);
    d->k.stats[4] = dpx_keep(d, SLOT_STATS5, d->n * (d->m->heads + d->m->kv_heads), 4);
    dpx_use(d, ROLE_K_NORM);
    dpx_kernel(d, FN_Q_NORM, "k norm", KC_NORM, 2 * d->n * d->kv * d->e);
}

static void attention_half(struct dpx *d)
{
    d->t.half = 0;
    d->k.norm1 = dpx_norm(d, "norm", ROLE_NORM_ATTN, 0, SLOT_NORM1);
    int all = dpx_gather(d, SLOT_NORM1, SLOT_GATHERED);
    project(d);
    dpx_gone(d, &all);
    if (d->recompute || !dpx_reaches(d, DPX_NORM1))
        dpx_gone(d, &d->k.stats[0]);
    if ((d->recompute && !one_norm(d)) || !qkv_reads(d))
        dpx_gone(d, &d->k.norm1);
    if (d->m->qk_norm)
        norm_qk(d);
    if (d->m->position == POS_ROPE)
        dpx_kernel(d, FN_ROTARY, "rotary", KC_ELEMENTWISE, 2 * d->n * (d->q + d->kv) * d->e);
    attention_core(d);
    if (d->recompute || !dpx_reaches(d, DPX_QKV)) {
        dpx_gone(d, &d->k.qkv), dpx_gone(d, &d->k.qk_normed);
        dpx_gone(d, &d->k.lse), dpx_gone(d, &d->k.stats[4]);
        dpx_gone(d, &d->k.qkv_heads), dpx_gone(d, &d->k.attn_heads);
    }
    dpx_adapter_in(d, ROLE_ATTN_OUT, d->q);
    dpx_float8_in(d, ROLE_ATTN_OUT, d->q, PASS_FORWARD);
    dpx_use(d, ROLE_ATTN_OUT);
    dpx_gemm(d, row_product(d, ROLE_ATTN_OUT), "attention output", d->n, d->h, d->q);
    d->k.mid = d->ranks > 1 ? dpx_sum(d, ROLE_ATTN_OUT, SLOT_MID, dpx_keep) : d->m->parallel ? dpx_hand_on(d, SLOT_MID, d->n * d->h, d->e) :
                                dpx_keep(d, SLOT_MID, d->n * d->h, d->e);
    dpx_float8_read(d, ROLE_ATTN_OUT, PASS_FORWARD);
    dpx_adapter_out(d, ROLE_ATTN_OUT, d->h);
    dpx_adapter_residual(d, ROLE_ATTN_OUT);
    if (d->recompute || (!dpx_reaches(d, DPX_QKV) && !dpx_reads(d, ROLE_ATTN_OUT)))
        dpx_gone(d, &d->k.attn);
    if (!d->recompute && !dpx_reaches(d, DPX_NORM1))
        dpx_gone(d, &d->k.x);
    if (d->m->norm_place == NORM_AROUND) {
        d->k.post1 = d->k.mid;
        d->k.mid = dpx_norm(d, "post norm", ROLE_NORM_ATTN_POST, 2, SLOT_MID);
        if (d->recompute)
            dpx_gone(d, &d->k.post1), dpx_gone(d, &d->k.stats[2]);
    }
}

static void mlp_half(struct dpx *d)
{
    bool gated = d->m->mlp == MLP_GATED;
    enum tensor_role up = d->m->fused_gate_up ? ROLE_GATE_UP : ROLE_UP;

    d->t.half = 1;
    if (one_norm(d)) {
        d->k.norm2 = d->k.norm1;
        d->t.stores[d->k.norm1].refs++;
    } else {
        d->k.norm2 = dpx_norm(d, "mlp norm", ROLE_NORM_MLP, 1, SLOT_NORM2);
    }
    int all = dpx_gather(d, SLOT_NORM2, SLOT_GATHERED);
    if (gated) {
        enum tensor_role gate = d->m->fused_gate_up ? ROLE_GATE_UP : ROLE_GATE;
        dpx_adapter_in(d, ROLE_GATE, d->h);
        dpx_float8_in(d, gate, d->h, PASS_FORWARD);
        dpx_use(d, gate);
        dpx_gemm(d, FN_LINEAR, "mlp gate", d->n, d->f, d->h);
        d->k.gate = dpx_keep(d, SLOT_GATE, d->n * d->f, d->e);
        dpx_float8_read(d, gate, PASS_FORWARD);
        dpx_adapter_out(d, ROLE_GATE, d->f);
    }
    dpx_adapter_in(d, ROLE_UP, d->h);
    dpx_float8_in(d, up, d->h, PASS_FORWARD);
    dpx_use(d, up);
    dpx_gemm(d, FN_LINEAR, "mlp up", d->n, d->f, d->h);
    d->k.up = dpx_keep(d, SLOT_UP, d->n * d->f, d->e);
    dpx_float8_read(d, up, PASS_FORWARD);
    dpx_adapter_out(d, ROLE_UP, d->f);
    dpx_gone(d, &all);
    if (d->recompute)
        dpx_gone(d, &d->k.norm1);
    if (d->recompute || !dpx_reaches(d, DPX_NORM2))
        dpx_gone(d, &d->k.stats[1]);
    if (d->recompute || !up_reads(d))
        dpx_gone(d, &d->k.norm2);
    if (d->again && !dpx_reads(d, ROLE_DOWN)) {
        if (!dpx_reaches(d, DPX_UP))
            dpx_gone(d, &d->k.gate), dpx_gone(d, &d->k.up);
        return;
    }
    dpx_kernel(d, FN_ACTIVATION, "activation", KC_ELEMENTWISE, (gated ? 3 : 2) * d->n * d->f * d->e);
    d->k.product = dpx_keep(d, SLOT_PRODUCT, d->n * d->f, d->e);
    if (d->recompute || !dpx_reaches(d, DPX_UP))
        dpx_gone(d, &d->k.gate), dpx_gone(d, &d->k.up);
    dpx_adapter_in(d, ROLE_DOWN, d->f);
    if (d->again)
        return;
    dpx_float8_in(d, ROLE_DOWN, d->f, PASS_FORWARD);
    dpx_use(d, ROLE_DOWN);
    dpx_gemm(d, row_product(d, ROLE_DOWN), "mlp down", d->n, d->h, d->f);
}

/* The block's output is kept by its reader: the next block or the head. */
static int block_output(struct dpx *d)
{
    if (d->m->parallel) {               /* added to what attention left */
        int sum = d->k.mid;
        d->k.mid = 0;
        dpx_float8_read(d, ROLE_DOWN, PASS_FORWARD);
        return sum;
    }
    if (d->ranks > 1)
        return dpx_sum(d, ROLE_DOWN, SLOT_Y, dpx_hand_on);
    int out = dpx_hand_on(d, d->m->norm_place == NORM_AROUND ? SLOT_POST2 : SLOT_Y, d->n * d->h, d->e);
    dpx_float8_read(d, ROLE_DOWN, PASS_FORWARD);
    if (d->m->norm_place == NORM_AROUND) {
        d->k.post2 = out;
        dpx_use(d, ROLE_NORM_MLP_POST);
        dpx_kernel(d, FN_NORM, "mlp post norm", KC_NORM, 2 * d->n * d->h * d->e);
        d->k.stats[3] = dpx_keep(d, SLOT_STATS4, d->n, 4);
        out = dpx_hand_on(d, SLOT_Y, d->n * d->h, d->e);
        if (d->recompute)
            dpx_gone(d, &d->k.post2), dpx_gone(d, &d->k.stats[3]);
    }
    dpx_adapter_out(d, ROLE_DOWN, d->h);
    dpx_adapter_residual(d, ROLE_DOWN);
    return out;
}

int dpx_block_forward(struct dpx *d)
{
    attention_half(d);
    mlp_half(d);
    int out = block_output(d);
    if (d->recompute || !dpx_reads(d, ROLE_DOWN))
        dpx_gone(d, &d->k.product);
    if (d->recompute || !dpx_reaches(d, DPX_NORM2))
        dpx_gone(d, &d->k.mid);
    return out;
}

/* ---- backward ---- */

/* The gradient of what a half added to the residual: through its post norm or its
 * dropout into a buffer of its own, else the residual's itself (0). */
static int output_grad(struct dpx *d, const char *name, enum tensor_role post, int which, int *kept)
{
    int dy = 0;

    if (d->m->norm_place != NORM_AROUND && d->p->dropout <= 0)
        return 0;
    if (d->m->norm_place == NORM_AROUND)
        dpx_use(d, post);
    dpx_kernel(d, FN_OUTPUT_BACK, name, KC_NORM, 3 * d->r * d->h * d->e);
    dy = dpx_temp(d, SLOT_DY, d->r * d->h, d->e);
    if (d->m->norm_place == NORM_AROUND) {
        dpx_param_grad(d, post, false, d->h);
        dpx_gone(d, kept);
        dpx_gone(d, &d->k.stats[which]);
    }
    return dy;
}

/* The gradient of a norm's input is added to the residual's in place; `dy` goes. */
static void norm_back(struct dpx *d, const char *name, enum tensor_role role, int which, int *dy, int *x)
{
    dpx_norm_back(d, name, role, which);
    dpx_gone(d, dy);
    dpx_gone(d, x);
}

static void gate_up_back(struct dpx *d, int *du, int *dg, int *dn)
{
    if (d->m->mlp == MLP_GATED && d->m->fused_gate_up) {
        dpx_linear_back(d, GEMM("mlp gate up"), ROLE_GATE_UP, 2 * d->f, d->h, &d->k.norm2, dn, SLOT_DN);
    } else {
        bool gated = d->m->mlp == MLP_GATED;
        dpx_linear_back(d, GEMM("mlp up"), ROLE_UP, d->f, d->h, gated ? NULL : &d->k.norm2, dn, SLOT_DN);
        dpx_gone(d, du);
        if (gated)
            dpx_linear_back(d, GEMM("mlp gate"), ROLE_GATE, d->f, d->h, &d->k.norm2, dn, SLOT_DN);
    }
    dpx_gone(d, du);
    dpx_gone(d, dg);
}

static void mlp_back(struct dpx *d)
{
    bool gated = d->m->mlp == MLP_GATED;
    int du = 0, dg = 0, dn = 0;

    d->t.half = 1;
    int dy = output_grad(d, "mlp output dY", ROLE_NORM_MLP_POST, 3, &d->k.post2);
    dpx_bias_back(d, "mlp down db", ROLE_DOWN);
    int all = dpx_gather(d, dy ? SLOT_DY : SLOT_DX, SLOT_DGATHERED);
    dpx_linear_back(d, GEMM("mlp down"), ROLE_DOWN, d->h, d->f, &d->k.product, &du, SLOT_DU);
    dpx_gone(d, &dy);
    dpx_gone(d, &all);
    if (!dpx_reaches(d, DPX_UP))
        return;
    dpx_kernel(d, FN_ACTIVATION_BACK, "activation backward", KC_ELEMENTWISE, (gated ? 5 : 3) * d->n * d->f * d->e);
    if (gated)
        dg = dpx_temp(d, SLOT_DG, d->n * d->f, d->e);
    dpx_gone(d, &d->k.gate);
    dpx_gone(d, &d->k.up);
    all = dpx_gather(d, SLOT_NORM2, SLOT_GATHERED);
    gate_up_back(d, &du, &dg, &dn);
    dpx_gone(d, &all);
    int share = dpx_sum_back(d);
    if (one_norm(d))
        d->dn = dn;                     /* attention's is added to it */
    else if (dpx_reaches(d, DPX_NORM2))
        norm_back(d, "mlp norm backward", ROLE_NORM_MLP, 1, &dn, &d->k.mid);
    dpx_gone(d, &share);
}

static void qkv_back(struct dpx *d, int *dn)
{
    if (d->m->fused_qkv) {
        dpx_linear_back(d, GEMM("qkv"), ROLE_QKV, d->q + 2 * d->kv, d->h, &d->k.norm1, dn, SLOT_DN);
        return;
    }
    dpx_linear_back(d, GEMM("v"), ROLE_V, d->kv, d->h, NULL, dn, SLOT_DN);
    dpx_linear_back(d, GEMM("k"), ROLE_K, d->kv, d->h, NULL, dn, SLOT_DN);
    dpx_linear_back(d, GEMM("q"), ROLE_Q, d->q, d->h, &d->k.norm1, dn, SLOT_DN);
}

static void qk_norm_back(struct dpx *d)
{
    dpx_use(d, ROLE_K_NORM);
    dpx_kernel(d, FN_Q_NORM_BACK, "k norm backward", KC_NORM, 3 * d->n * d->kv * d->e);
    dpx_param_grad(d, ROLE_K_NORM, false, d->m->head_dim);
    dpx_use(d, ROLE_Q_NORM);
    dpx_kernel(d, FN_Q_NORM_BACK, "q norm backward", KC_NORM, 3 * d->n * d->q * d->e);
    dpx_param_grad(d, ROLE_Q_NORM, false, d->m->head_dim);
    dpx_gone(d, &d->k.stats[4]);
}

/* Of one rank's attention. */
static int attention_core_back(struct dpx *d, int *da)
{
    dpx_attention(d, FN_ATTENTION_BACK, "attention backward", d->n * (5 * d->q + 4 * d->kv) * d->e, 2 * attention_flops(d),
                  heads_of_samples(d));
    int delta = dpx_temp(d, SLOT_DELTA, d->n * d->m->heads, 4);
    int dqkv = dpx_temp(d, SLOT_DQKV, d->n * (d->q + 2 * d->kv), d->e);
    int *done[] = { &delta, da, &d->k.attn, &d->k.lse, &d->k.qk_normed };
    for (int i = 0; i < 5; i++)
        dpx_gone(d, done[i]);
    return dqkv;
}

int dpx_block_attention_back(struct dpx *d, int *da)
{
    int dqkv = d->context > 1 ? dpx_context_attention_back(d, da) : attention_core_back(d, da);

    if (d->m->position == POS_ROPE)
        dpx_kernel(d, FN_ROTARY_BACK, "rotary backward", KC_ELEMENTWISE, 2 * d->n * (d->q + d->kv) * d->e);
    if (d->m->qk_norm)
        qk_norm_back(d);
    dpx_gone(d, &d->k.qkv);
    return dqkv;
}

static void attention_back(struct dpx *d)
{
    int da = 0;

    d->t.half = 0;
    int dy = output_grad(d, "attention output dY", ROLE_NORM_ATTN_POST, 2, &d->k.post1);
    if (d->p->recompute == RECOMPUTE_SELECTIVE && !d->k.attn && dpx_reaches(d, DPX_QKV))
        attention_core(d);
    dpx_bias_back(d, "attention output db", ROLE_ATTN_OUT);
    int all = dpx_gather(d, dy ? SLOT_DY : SLOT_DX, SLOT_DGATHERED);
    dpx_linear_back(d, GEMM("attention output"), ROLE_ATTN_OUT, d->h, d->q, NULL, &da, SLOT_DA);
    dpx_gone(d, &dy);
    dpx_gone(d, &all);
    if (!dpx_reaches(d, DPX_QKV)) {
        dpx_gone(d, &d->k.attn);
        return;
    }
    int dqkv = dpx_block_attention_back(d, &da);
    int dn = d->dn;
    d->dn = 0;
    all = dpx_gather(d, SLOT_NORM1, SLOT_GATHERED);
    qkv_back(d, &dn);
    dpx_gone(d, &all);
    dpx_gone(d, &dqkv);
    int share = dpx_sum_back(d);
    if (dpx_reaches(d, DPX_NORM1))
        norm_back(d, "norm backward", ROLE_NORM_ATTN, 0, &dn, &d->k.x);
    dpx_gone(d, &share);
}

/* ---- recompute ---- */

void dpx_forget_attention(struct dpx *d)
{
    d->t.half = 1;
    dpx_kernel(d, FN_NONE, "attention not kept", KC_COPY, 0);
    dpx_gone(d, &d->k.attn);
    dpx_gone(d, &d->k.attn_heads);
    dpx_gone(d, &d->k.lse);
}

void dpx_block_recompute(struct dpx *d)
{
    int k0 = tape_cut(&d->t);

    d->again = true;
    attention_half(d);
    if (d->m->parallel)
        dpx_gone(d, &d->k.mid);         /* part of the output only */
    mlp_half(d);
    if (!dpx_reaches(d, DPX_NORM2))
        dpx_gone(d, &d->k.mid);
    d->again = false;
    for (int i = k0; i < d->t.nout; i++)
        d->t.out[i].half = 1;           /* part of backward's first half */
}

void dpx_block_backward(struct dpx *d)
{
    mlp_back(d);
    if (dpx_reaches(d, DPX_OUT)) {
        attention_back(d);
        return;
    }
    d->t.half = 0;
    dpx_kernel(d, FN_NONE, "nothing below trains", KC_COPY, 0);
}
