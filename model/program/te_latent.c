/* te_latent.c -- see te_latent.h.  megatron-core 0.16.1, core/transformer/multi_latent_attention.py (MLASelfAttention) with the layers of
 * get_gpt_layer_with_transformer_engine_spec(), qk_layernorm and apply_rope_fusion, which is what the command line gives with YaRN.
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

void te_latent_up(struct torch_model *b, const var low[3], var qkv[3])
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t plain = m->head_dim - m->rope_dim, rows = b->tokens * m->heads;

    qkv[0] = queries(b, tape_hold(t, low[0]));
    var in = te_contiguous(t, "kv in one piece", low[1]);       /* TransformerEngineBaseModule.prepare_forward() */
    in = tmp(t, in, te_norm_of(b, "kv norm", in, ROLE_KV_A_NORM));
    var both = tmp(t, te_last_use(b, ROLE_KV_A_NORM, in), project(b, GEMM("kv up"), in, m->heads * (plain + m->value_dim), m->kv_rank, ROLE_KV_B, false));
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
