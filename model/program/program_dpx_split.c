/* program_dpx_split.c -- our own executor's backward in two: gradients of inputs first, those of weights later.
 *
 * What a product's dW needs stays until then: its input, and the gradient of its output.  Where that is the residual
 * stream's, which norms behind it change in place, a copy is kept.  A norm's backward makes both in one kernel: the few
 * numbers that are its parameters' gradients wait in a place of their own.  All else goes as soon as in a whole backward.
 *
 * Of tensor-parallel ranks the sum of dX belongs to the inputs' half, the gradients of biases behind a sum to the weights'.  With
 * sequence parallelism the gradient of an output is gathered once, for dX, and waits as it is; what a norm left is the rank's share
 * until it is gathered for dW (as in the zero-bubble schedules' own code: sail-sg/zero-bubble-pipeline-parallelism,
 * megatron/core/tensor_parallel/layers.py, where WeightGradStore keeps grad_output and gathers the input). */
#include "model/program/program_dpx.h"

/* The gradients of outputs that wait. */
struct waits { int dy_down, du, dg, dy_out, dqkv, norm_attn, norm_mlp; };

bool dpx_split_is(const struct dpx *d)
{
    return d->m->norm_place == NORM_FIRST && !d->m->parallel && !d->m->fused_gate_up && !d->m->qk_norm;
}

/* A copy of the residual stream's gradient, through the half's dropout if it has one; where the ranks have shares of the
 * positions, all of them, gathered, and *share goes when that is done. */
static int keep_output_grad(struct dpx *d, const char *name, enum slot slot, enum slot gathered, int *share)
{
    int dy = 0;

    *share = 0;
    if (!d->sequence || d->p->dropout > 0) {
        dpx_kernel(d, FN_OUTPUT_BACK, name, KC_NORM, 3 * d->r * d->h * d->e);
        dy = dpx_temp(d, slot, d->r * d->h, d->e);
    }
    if (!d->sequence)
        return dy;
    *share = dy;
    return dpx_gather(d, dy ? slot : SLOT_DX, gathered);
}

static int64_t grad_bytes(const struct dpx *d)
{
    return dtype_bytes(plan_recipe(d->p).autocast ? DT_FP32 : plan_recipe(d->p).used);
}

/* Weight and bias of a norm, the second behind the first. */
static int norm_inputs(struct dpx *d, const char *name, enum tensor_role role, int which, enum slot slot)
{
    int kept;

    dpx_use(d, role);
    dpx_kernel(d, FN_NORM_BACK_KEPT, name, KC_NORM, 5 * d->r * d->h * d->e);
    kept = dpx_temp(d, slot, 2 * d->h, grad_bytes(d));
    dpx_gone(d, &d->k.stats[which]);
    return kept;
}

static void norm_weights(struct dpx *d, const char *name, enum tensor_role role, int *kept)
{
    dpx_use(d, role);
    dpx_kernel(d, FN_GRAD_KEPT, name, KC_COPY, 4 * d->h * grad_bytes(d));
    dpx_param_grad(d, role, false, d->h);
    dpx_param_grad(d, role, true, d->h);
    dpx_gone(d, kept);
}

/* ---- a block ---- */

static void mlp_inputs(struct dpx *d, struct waits *w)
{
    bool gated = d->m->mlp == MLP_GATED;
    int dn = 0, share;

    d->t.half = 1;
    w->dy_down = keep_output_grad(d, "mlp output dY", SLOT_DY, SLOT_DGATHERED, &share);
    dpx_linear_dx(d, GEMM("mlp down"), ROLE_DOWN, d->h, d->f, &w->du, SLOT_DU);
    dpx_gone(d, &share);
    dpx_kernel(d, FN_ACTIVATION_BACK, "activation backward", KC_ELEMENTWISE, (gated ? 5 : 3) * d->n * d->f * d->e);
    if (gated)
        w->dg = dpx_temp(d, SLOT_DG, d->n * d->f, d->e);
    dpx_gone(d, &d->k.gate);
    dpx_gone(d, &d->k.up);
    dpx_linear_dx(d, GEMM("mlp up"), ROLE_UP, d->f, d->h, &dn, SLOT_DN);
    if (gated)
        dpx_linear_dx(d, GEMM("mlp gate"), ROLE_GATE, d->f, d->h, &dn, SLOT_DN);
    share = dpx_sum_back(d);
    w->norm_mlp = norm_inputs(d, "mlp norm backward", ROLE_NORM_MLP, 1, SLOT_DNORM2);
    dpx_gone(d, &dn);
    dpx_gone(d, &share);
    dpx_gone(d, &d->k.mid);
}

static void attention_inputs(struct dpx *d, struct waits *w)
{
    int da = 0, dn = 0, attn = d->k.attn, share;

    d->t.half = 0;
    d->t.stores[attn].refs++;           /* attention's backward lets it go, its output's dW does not yet */
    w->dy_out = keep_output_grad(d, "attention output dY", SLOT_DY_OUT, SLOT_DGATHERED_OUT, &share);
    dpx_linear_dx(d, GEMM("attention output"), ROLE_ATTN_OUT, d->h, d->q, &da, SLOT_DA);
    dpx_gone(d, &share);
    w->dqkv = dpx_block_attention_back(d, &da);
    d->k.attn = attn;
    if (d->m->fused_qkv) {
        dpx_linear_dx(d, GEMM("qkv"), ROLE_QKV, d->q + 2 * d->kv, d->h, &dn, SLOT_DN);
    } else {
        dpx_linear_dx(d, GEMM("v"), ROLE_V, d->kv, d->h, &dn, SLOT_DN);
        dpx_linear_dx(d, GEMM("k"), ROLE_K, d->kv, d->h, &dn, SLOT_DN);
        dpx_linear_dx(d, GEMM("q"), ROLE_Q, d->q, d->h, &dn, SLOT_DN);
    }
    share = dpx_sum_back(d);
    w->norm_attn = norm_inputs(d, "norm backward", ROLE_NORM_ATTN, 0, SLOT_DNORM1);
    dpx_gone(d, &dn);
    dpx_gone(d, &share);
    dpx_gone(d, &d->k.x);
}

static void mlp_weights(struct dpx *d, struct waits *w)
{
    bool gated = d->m->mlp == MLP_GATED;

    d->t.half = 1;
    dpx_bias_back(d, "mlp down db", ROLE_DOWN);
    dpx_linear_dw(d, GEMM("mlp down"), ROLE_DOWN, d->h, d->f, &d->k.product);
    dpx_gone(d, &w->dy_down);
    int all = dpx_gather(d, SLOT_NORM2, SLOT_GATHERED);
    dpx_linear_dw(d, GEMM("mlp up"), ROLE_UP, d->f, d->h, gated ? NULL : &d->k.norm2);
    dpx_gone(d, &w->du);
    if (gated)
        dpx_linear_dw(d, GEMM("mlp gate"), ROLE_GATE, d->f, d->h, &d->k.norm2);
    dpx_gone(d, &w->dg);
    dpx_gone(d, &all);
    norm_weights(d, "mlp norm dW", ROLE_NORM_MLP, &w->norm_mlp);
}

static void attention_weights(struct dpx *d, struct waits *w)
{
    d->t.half = 0;
    dpx_bias_back(d, "attention output db", ROLE_ATTN_OUT);
    dpx_linear_dw(d, GEMM("attention output"), ROLE_ATTN_OUT, d->h, d->q, &d->k.attn);
    dpx_gone(d, &w->dy_out);
    int all = dpx_gather(d, SLOT_NORM1, SLOT_GATHERED);
    if (d->m->fused_qkv) {
        dpx_linear_dw(d, GEMM("qkv"), ROLE_QKV, d->q + 2 * d->kv, d->h, &d->k.norm1);
    } else {
        dpx_linear_dw(d, GEMM("v"), ROLE_V, d->kv, d->h, NULL);
        dpx_linear_dw(d, GEMM("k"), ROLE_K, d->kv, d->h, NULL);
        dpx_linear_dw(d, GEMM("q"), ROLE_Q, d->q, d->h, &d->k.norm1);
    }
    dpx_gone(d, &w->dqkv);
    dpx_gone(d, &all);
    norm_weights(d, "norm dW", ROLE_NORM_ATTN, &w->norm_attn);
}

int dpx_split_block(struct dpx *d)
{
    struct waits w = { 0 };
    int split;

    mlp_inputs(d, &w);
    attention_inputs(d, &w);
    split = tape_cut(&d->t);
    mlp_weights(d, &w);
    attention_weights(d, &w);
    return split;
}

/* ---- the head ---- */

int dpx_split_head(struct dpx *d, struct dpx_head *h)
{
    int split, kept, all;

    d->t.half = 0;
    dpx_logits_dx(d, NULL);
    dpx_gone(d, &h->losses);
    kept = norm_inputs(d, "final norm backward", ROLE_NORM_FINAL, 0, SLOT_DNORM1);      /* in place */
    dpx_gone(d, &h->x);
    split = tape_cut(&d->t);
    all = dpx_gather(d, SLOT_NORM1, SLOT_GATHERED);
    dpx_linear_dw(d, GEMM("logits"), ROLE_HEAD, d->m->vocab, d->h, &h->y);
    dpx_gone(d, &all);
    dpx_gone(d, &h->logits);
    norm_weights(d, "final norm dW", ROLE_NORM_FINAL, &kept);
    return split;
}
