/* te_sinks.c -- see te_sinks.h.  megatron-core 0.16.1: models/common/embeddings/rope_utils.py (_apply_rotary_pos_emb_bshd(), which takes the place of
 * Transformer Engine's kernel where mscale is not 1), fusions/{fused_bias_dropout,fused_bias_geglu}.py; Transformer Engine d0067d0d,
 * pytorch/attention/dot_product_attention/dot_product_attention.py (softmax_offset). */
#include "model/program/te_sinks.h"

#include <string.h>

#include "model/program/tape_te.h"
#include "model/program/tape_te_bias.h"

static const struct tensor *tensor_of(const struct torch_model *b, enum tensor_role role, bool bias)
{
    int at = b->block < 0 ? -1 : torch_piece_tensor(b->m, b->block, role, bias);

    return at < 0 ? NULL : &b->m->tensors[model_block_first(b->m, b->block) + at];
}

static var param(struct torch_model *b, enum tensor_role role, bool bias)
{
    const struct tensor *x = tensor_of(b, role, bias);

    if (!x)
        return 0;
    b->t->module = torch_piece_module(b->m, b->block, role, ADAPTER_NONE);
    return torch_param(b, torch_gradient_of(b, role, bias), x->numel);
}

bool te_has_sinks(const struct torch_model *b) { return tensor_of(b, ROLE_SINKS, false) != NULL; }

var te_sinks(struct torch_model *b)
{
    var w = param(b, ROLE_SINKS, false);
    var wide = w ? op_cast(b->t, w, DT_FP32) : 0;

    b->t->module = -1;
    return wide;
}

/* _yarn_get_concentration_factor(): 0.1 ln(factor) + 1. */
static bool scales_rotation(const struct model *m)
{
    const char *type = json_string_value(json_object_get(m->rope_scaling, "rope_type"));

    return type && !strcmp(type, "yarn") && json_number_value(json_object_get(m->rope_scaling, "factor")) > 1;
}

/* x cos + [-second half | first half] sin; a copy, for torch.cat() with what is not rotated: nothing. */
static var rotated_apart(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, x);
    int64_t numel = tape_var_numel(t, x), table = b->p->seq * b->m->head_dim;
    var cos = op_new(t, "rotary cos", KC_ELEMENTWISE, table, dt), sin = op_new(t, "rotary sin", KC_ELEMENTWISE, table, dt), half[2];
    var a = op_mul_const(t, "rotary product", x, cos);

    op_split(t, "rotary halves", x, 2, (int64_t[]){ numel / 2, numel / 2 }, half);
    var minus = op_unary(t, "rotary minus", KC_ELEMENTWISE, half[1], SAVE_NONE), turned = tmp(t, minus, op_cat2(t, "rotary halves", minus, half[0]));
    tape_drop(t, half[0]);
    tape_drop(t, half[1]);
    var c = tmp(t, turned, op_mul_const(t, "rotary product", turned, sin)), y = op_add(t, "rotary sum", a, c);
    tape_drop(t, a);
    tape_drop(t, c);
    tape_drop(t, cos);
    tape_drop(t, sin);
    return tmp(t, y, op_cat2(t, "rotary copy", y, 0));
}

var te_rotated(struct torch_model *b, const char *name, var x)
{
    return te_has_sinks(b) && scales_rotation(b->m) ? rotated_apart(b, x) : te_rotate(b->t, name, x);
}

var te_add_apart(struct torch_model *b, const char *name, var x, enum tensor_role role, var residual)
{
    struct tape *t = b->t;
    var bias = param(b, role, true), y = bias ? te_bias_add(t, "bias add", x, bias) : tape_hold(t, x);

    t->module = -1;
    y = tmp(t, y, op_dropout(t, name, y, b->p->dropout));
    return tmp(t, y, op_add(t, name, residual, y));
}

var te_clamped(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t half = tape_var_numel(t, x) / 2;
    var part[2];

    op_split(t, "gate up split", x, 2, (int64_t[]){ half, half }, part);
    for (int i = 0; i < 2; i++)
        part[i] = tmp(t, part[i], op_unary(t, i ? "clamp up" : "clamp gate", KC_ELEMENTWISE, part[i], SAVE_IN));
    var y = op_cat2(t, "gate and up", part[0], part[1]);
    tape_drop(t, part[0]);
    tape_drop(t, part[1]);
    return y;
}
