/* te_latent.c -- see te_latent.h.  megatron-core 0.16.1, core/transformer/multi_latent_attention.py (MLASelfAttention) with the layers of
 * get_gpt_layer_with_transformer_engine_spec() and qk_layernorm; apply_rope_fusion is what the command line gives with YaRN.
 *
 * Down-projections are whole on every tensor-parallel rank (TELinear, "duplicated") and see the rank's positions; up-projections are column
 * parallel, with the norm before them in the same module; the part of a key that all heads share is gathered by itself. */
#include "model/program/te_latent.h"

#include "model/program/tape_te.h"
#include "model/program/tape_te_cast.h"
#include "model/program/tape_te_latent.h"
#include "model/program/te_again.h"
#include "model/program/te_model.h"

/* `whole`: on every tensor-parallel rank.  These, and queries that come from no down-projection, read what a norm by itself gives; where that
 * runs again, these keep it itself (set_for_recompute_input_layernorm()). */
static var project(struct torch_model *b, const struct gemm_names *names, var x, int64_t out, int64_t in, enum tensor_role role, bool whole)
{
    struct te_linear l = te_linear_of(b, names, out, in, &role, 1);

    if (whole) {
        l.ranks = 1;
        l.sequence = false;
        l.original = te_may_cast_again(&l.scaled) && plan_recomputes_module(b->p, "layernorm");
    }
    l.plain = whole || role == ROLE_Q;
    var y = te_column(b->t, &l, x);
    b->t->module = -1;
    return y;
}

/* The down-projection's result, or what the only projection gives. */
static var first_of_queries(struct torch_model *b, var n)
{
    const struct model *m = b->m;

    if (m->q_rank > 0)
        return project(b, GEMM("q down"), n, m->q_rank, m->hidden, ROLE_Q_A, true);
    return tape_hold(b->t, n);
}

static var queries(struct torch_model *b, var low)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t width = m->heads * m->head_dim;

    if (m->q_rank == 0)
        return tmp(t, low, project(b, GEMM("q"), low, width, m->hidden, ROLE_Q, false));
    low = tmp(t, low, te_norm_of(b, "q norm", low, ROLE_Q_A_NORM));
    return tmp(t, te_last_use(b, ROLE_Q_A_NORM, low), project(b, GEMM("q up"), low, width, m->q_rank, ROLE_Q_B, false));
}

/* gather_from_sequence_parallel_region() of a view: of a copy in one piece. */
static var gathered(struct torch_model *b, var shared)
{
    struct tape *t = b->t;

    if (!b->sequence || b->ranks == 1)
        return shared;
    shared = tmp(t, shared, te_contiguous(t, "key's rotated part", shared));
    return tmp(t, shared, te_move(t, TE_GATHER, shared, b->ranks));
}

/* (torch.cos(freqs) * mscale).to(t.dtype). */
static var table(struct torch_model *b, const char *name, enum dtype dt)
{
    struct tape *t = b->t;
    int64_t angles = b->tokens / b->p->micro_batch * b->m->rope_dim;
    var wide = op_new(t, name, KC_ELEMENTWISE, angles, DT_FP32), scaled = op_new(t, name, KC_ELEMENTWISE, angles, DT_FP32);

    tape_drop(t, wide);
    return tmp(t, scaled, op_new(t, name, KC_ELEMENTWISE, angles, dt));
}

/* _apply_rotary_pos_emb_bshd() with multi_latent_attention: even elements and odd ones are joined; then times cosines, and turned by halves times
 * sines.  What is behind the rotated part, of which there is nothing, is joined too, and has a gradient of zeros. */
static var rotate(struct torch_model *b, const char *name, var x)
{
    struct tape *t = b->t;
    int64_t half = tape_var_numel(t, x) / 2;
    var rest = op_slice(t, name, x, 0), even = op_slice(t, name, x, half), odd = op_slice(t, name, x, half), of[2];
    var both = op_cat2(t, name, even, odd), cos = table(b, name, tape_var_dtype(t, x)), sin = table(b, name, tape_var_dtype(t, x));
    var first = op_mul_const(t, name, both, cos);

    op_split(t, name, both, 2, (int64_t[]){ half, half }, of);         /* torch.chunk() */
    var negated = op_unary(t, name, KC_ELEMENTWISE, of[1], SAVE_NONE), turned = op_cat2(t, name, negated, of[0]);
    tape_drop(t, negated);
    var second = tmp(t, turned, op_mul_const(t, name, turned, sin)), sum = op_add(t, name, first, second);
    const var gone[] = { first, second, of[0], of[1], both };
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        tape_drop(t, gone[i]);
    var out = op_cat2(t, name, sum, rest);
    const var names[] = { sum, rest, even, odd, cos, sin };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return out;
}

/* The same without apply_rope_fusion. */
static void up_in_steps(struct torch_model *b, var q, var both, var shared, var qkv[3])
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t plain = m->head_dim - m->rope_dim, rows = b->tokens * m->heads;
    var of_q[2], of_kv[2];

    op_split(t, "q split", q, 2, (int64_t[]){ rows * plain, rows * m->rope_dim }, of_q);
    op_split(t, "kv split", both, 2, (int64_t[]){ rows * plain, rows * m->value_dim }, of_kv);
    of_q[1] = tmp(t, of_q[1], rotate(b, "rotary q", of_q[1]));
    var turned = rotate(b, "rotary k", shared);
    qkv[0] = op_cat2(t, "queries", of_q[0], of_q[1]);
    var wide = op_expand(t, "key's rotated part", turned, m->heads);
    qkv[1] = op_cat2(t, "keys", of_kv[0], wide);
    qkv[2] = te_contiguous(t, "values", of_kv[1]);
    const var names[] = { of_q[0], of_q[1], of_kv[0], of_kv[1], turned, wide };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
}

void te_latent_up(struct torch_model *b, const var low[3], var qkv[3])
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t plain = m->head_dim - m->rope_dim, rows = b->tokens * m->heads;

    qkv[0] = queries(b, tape_hold(t, low[0]));
    var in = te_contiguous(t, "kv in one piece", low[1]);       /* TransformerEngineBaseModule.prepare_forward() */
    in = tmp(t, in, te_norm_of(b, "kv norm", in, ROLE_KV_A_NORM));
    var both = tmp(t, te_last_use(b, ROLE_KV_A_NORM, in), project(b, GEMM("kv up"), in, m->heads * (plain + m->value_dim), m->kv_rank, ROLE_KV_B, false));
    if (!b->p->megatron.apply_rope_fusion) {
        var q = qkv[0];
        up_in_steps(b, q, both, low[2], qkv);
        tape_drop(t, q);
        tape_drop(t, both);
        return;
    }
    qkv[0] = tmp(t, qkv[0], te_latent_rotate(t, "rotary q", qkv[0], rows * m->rope_dim));
    te_latent_keys(t, "rotary k", both, low[2], (int64_t[]){ rows * m->head_dim, rows * m->value_dim }, qkv + 1);
    tape_drop(t, both);
}

void te_latent(struct torch_model *b, var n, var qkv[3], var *kept, int *up)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t own = b->tokens / (b->sequence ? b->ranks : 1);
    var q = first_of_queries(b, n), both = project(b, GEMM("kv down"), n, m->kv_rank + m->rope_dim, m->hidden, ROLE_KV_A, true), part[2];

    op_split(t, "kv down split", both, 2, (int64_t[]){ own * m->kv_rank, own * m->rope_dim }, part);
    tape_drop(t, both);
    const var low[TE_MODULE_VARS] = { q, part[0], gathered(b, part[1]) };
    *kept = low[1];                                     /* kv_compressed, a view */
    te_module(b, TE_MLA_UP_PROJ, low, qkv, up);
    tape_drop(t, low[0]);
    tape_drop(t, low[2]);
}
