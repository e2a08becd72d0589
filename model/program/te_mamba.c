/* te_mamba.c -- see te_mamba.h.  Read at Megatron-LM d98e8a64: core/ssm/{mamba_layer,mamba_mixer}.py, core/models/hybrid/hybrid_layer_specs.py.
 * use_mamba_mem_eff_path: mamba_ssm's fused function with the gate within the scan; the norm of all heads of a group and the product behind it are
 * modules of their own. */
#include "model/program/te_mamba.h"

#include "model/program/tape_mamba.h"
#include "model/program/te_adapter.h"
#include "model/program/te_model.h"
#include "model/program/torch_mamba.h"

/* Positions come first everywhere else: with several samples a copy each way. */
static var sequences_first(struct torch_model *b, const char *name, var x)
{
    return b->p->micro_batch > 1 ? te_contiguous(b->t, name, x) : tape_hold(b->t, x);
}

static var scan(struct torch_model *b, var zxbcdt)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t conv = m->ssm_heads * m->ssm_head_dim + 2 * m->ssm_groups * m->ssm_state;
    struct mamba_shape shape = torch_mamba_shape(b);
    struct mamba_inputs in = { .zxbcdt = sequences_first(b, "sequences first", zxbcdt) };

    in.a = torch_mamba_a(b);
    in.conv = torch_param_of(b, ROLE_SSM_CONV, conv * m->ssm_conv);
    in.conv = tmp(t, in.conv, op_view(t, in.conv, false));
    in.conv_bias = torch_param(b, torch_gradient_of(b, ROLE_SSM_CONV, true), conv);
    in.dt_bias = torch_param_of(b, ROLE_SSM_DT, m->ssm_heads);
    in.dt_bias = tmp(t, in.dt_bias, op_cast(t, in.dt_bias, DT_FP32));
    in.d = torch_param_of(b, ROLE_SSM_D, m->ssm_heads);
    t->module = -1;
    var y = tape_mamba(t, &shape, &in);
    const var names[] = { in.a, in.conv, in.conv_bias, in.dt_bias, in.d };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    y = tmp(t, y, sequences_first(b, "positions first", y));
    tape_drop(t, in.zxbcdt);
    return y;
}

/* RMSNormGated without a gate: layernorm_fn() of each group. */
static var group_norm(struct torch_model *b, var y)
{
    struct tape *t = b->t;
    var w = torch_param_of(b, ROLE_SSM_NORM, b->m->ssm_heads * b->m->ssm_head_dim);

    y = te_norm(t, "mamba norm", y, b->tokens * b->m->ssm_groups, w, 0, true, &(struct te_scaled){ 0 }, false);
    tape_drop(t, w);
    t->module = -1;
    return y;
}

var te_mamba(struct torch_model *b, var x)
{
    static const enum tensor_role in[] = { ROLE_SSM_IN }, out[] = { ROLE_SSM_OUT };
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t inner = m->ssm_heads * m->ssm_head_dim, width = 2 * inner + 2 * m->ssm_groups * m->ssm_state + m->ssm_heads;
    var n = te_norm_of(b, "norm", x, ROLE_NORM_ATTN);
    struct te_linear l = te_linear_of(b, GEMM("mamba in"), width, m->hidden, in, 1);
    var all = te_column(t, &l, n);

    t->module = -1;
    tape_drop(t, te_last_use(b, ROLE_NORM_ATTN, n));
    var y = scan(b, all);
    y = tmp(t, y, group_norm(b, y));
    l = te_linear_of(b, GEMM("mamba out"), m->hidden, inner, out, 1);
    y = tmp(t, y, te_row(t, &l, y));
    t->module = -1;
    tape_drop(t, all);
    return y;
}
