/* torch_rotary.c -- apply_rotary_pos_emb_interleave() of modeling_deepseek_v3.py and _apply_rotary_emb() of modeling_gpt_oss.py
 * (transformers 5.23): the same sums, of every second element or of halves. */
#include "model/program/torch_rotary.h"

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
