/* torch_rotary.c -- apply_rotary_pos_emb_interleave() of modeling_deepseek_v3.py and _apply_rotary_emb() of modeling_gpt_oss.py
 * (transformers 5.23): the same sums, of every second element or of halves. */
#include "model/program/torch_rotary.h"

#include "model/program/torch_parts.h"

/* x1 a - x2 b, or x1 a + x2 b: the gradient of what is taken away is another tensor. */
static var turn(struct tape *t, var x1, var a, var x2, var b, bool minus)
{
    var first = op_mul_const(t, "rotary mul", x1, a), second = op_mul_const(t, "rotary mul", x2, b);

    if (minus) {
        var negated = op_view(t, second, true);
        tape_drop(t, second);
        second = negated;
    }
    var sum = op_add(t, "rotary add", first, second);
    tape_drop(t, first);
    tape_drop(t, second);
    return sum;
}

var torch_rotary(struct torch_model *b, const var x[2])
{
    struct tape *t = b->t;
    var first = turn(t, x[0], b->cos, x[1], b->sin, true), second = turn(t, x[1], b->cos, x[0], b->sin, false);
    var y = op_cat2(t, "rotary cat", first, second);

    tape_drop(t, first);
    tape_drop(t, second);
    return y;
}

/* ---- llama4 (modeling_llama4.py) ---- */

/* polar(ones_like(freqs), freqs) * attention_scaling: a complex number is two of fp32. */
var torch_angles(struct torch_model *b)
{
    struct tape *t = b->t;
    int64_t n = torch_table_rows(b) * b->m->rotary_dim;
    var freqs = op_new(t, "rotary angles", KC_ELEMENTWISE, n / 2, DT_FP32), ones = op_new(t, "rotary ones", KC_COPY, n / 2, DT_FP32);
    var polar = op_new(t, "rotary polar", KC_ELEMENTWISE, n, DT_FP32);

    tape_drop(t, ones);
    var scaled = op_new(t, "rotary scaling", KC_ELEMENTWISE, n, DT_FP32);
    tape_drop(t, polar);
    tape_drop(t, freqs);
    return scaled;
}

/* apply_rotary_emb(): names last until it returns.  The gradient that comes back to view_as_real() has to lie as it did. */
static void rotate_complex(struct torch_model *b, var *const x[2])
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, *x[0]);
    var wide[2], turned[2], out[2];

    for (int i = 0; i < 2; i++)
        wide[i] = op_cast(t, *x[i], DT_FP32);
    for (int i = 0; i < 2; i++) {
        turned[i] = op_mul_const(t, "rotary complex", wide[i], b->cos);
        turned[i] = tmp(t, turned[i], op_view(t, turned[i], b->p->kernels == KERNELS_TORCH_EAGER));
    }
    for (int i = 0; i < 2; i++)
        out[i] = op_cast(t, turned[i], dt);
    for (int i = 0; i < 2; i++) {
        tape_drop(t, wide[i]);
        tape_drop(t, turned[i]);
        tape_drop(t, *x[i]);
        *x[i] = out[i];
    }
}

void torch_llama4_positions(struct torch_model *b, var *const x[2], var kept[4])
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, *x[0]);
    bool rotates = model_windowed(&b->as->model, b->traced);

    if (rotates)
        rotate_complex(b, x);
    for (int i = 0; i < 2 && rotates && b->m->l2_norm; i++)
        *x[i] = tmp(t, *x[i], torch_l2_norm(b, *x[i]));
    if (rotates || !b->m->tuned)
        return;
    kept[0] = op_new(t, "positions", KC_ELEMENTWISE, b->p->seq, DT_INT64);
    kept[1] = op_new(t, "position scale", KC_ELEMENTWISE, b->p->seq, DT_FP32);
    var scaled = op_mul_const(t, "scale q", *x[0], kept[1]);
    tape_drop(t, *x[0]);
    *x[0] = tmp(t, scaled, op_cast(t, scaled, dt));
}
