/* torch_mamba.c -- see torch_mamba.h. */
#include "model/program/torch_mamba.h"

#include "model/program/tape_mamba.h"
#include "model/program/torch_parts.h"

struct mamba_shape torch_mamba_shape(const struct torch_model *b)
{
    const struct model *m = b->m;

    return (struct mamba_shape){ .batch = b->p->micro_batch, .seq = b->p->seq, .heads = m->ssm_heads, .head_dim = m->ssm_head_dim, .groups = m->ssm_groups,
                                 .state = m->ssm_state, .chunk = m->ssm_chunk, .taps = m->ssm_conv, .hidden = m->hidden, .sms = b->p->cluster.gpu.sms };
}

var torch_mamba_a(struct torch_model *b)
{
    struct tape *t = b->t;
    var a = torch_param_of(b, ROLE_SSM_A, b->m->ssm_heads);

    a = tmp(t, a, op_cast(t, a, DT_FP32));
    a = tmp(t, a, op_unary(t, "mamba A", KC_ELEMENTWISE, a, SAVE_OUT));
    a = tmp(t, a, op_unary(t, "mamba A", KC_ELEMENTWISE, a, SAVE_NONE));
    t->module = -1;
    return a;
}

/* The projection back and the norm are functions' arguments: their modules are not called.  Nothing of the mixer is named behind it. */
var torch_mamba(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t inner = m->ssm_heads * m->ssm_head_dim, conv = inner + 2 * m->ssm_groups * m->ssm_state;
    struct mamba_shape shape = torch_mamba_shape(b);
    struct mamba_inputs in = { .zxbcdt = torch_linear(b, GEMM("mamba in"), x, inner + conv + m->ssm_heads, m->hidden, ROLE_SSM_IN) };

    in.a = torch_mamba_a(b);
    in.conv = torch_param_of(b, ROLE_SSM_CONV, conv * m->ssm_conv);
    in.conv = tmp(t, in.conv, op_view(t, in.conv, false));      /* squeeze(1) */
    in.conv_bias = m->ssm_conv_bias ? torch_param(b, torch_gradient_of(b, ROLE_SSM_CONV, true), conv) : 0;
    in.dt_bias = torch_param_of(b, ROLE_SSM_DT, m->ssm_heads);
    in.d = torch_param_of(b, ROLE_SSM_D, m->ssm_heads);
    in.norm = torch_param_of(b, ROLE_SSM_NORM, inner);
    in.out = torch_param_of(b, ROLE_SSM_OUT, m->hidden * inner);
    var y = tape_mamba(t, &shape, &in);
    t->module = -1;
    const var names[] = { in.zxbcdt, in.a, in.conv, in.conv_bias, in.dt_bias, in.d, in.norm, in.out };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return y;
}
