/* torch_number.c -- see torch_number.h.
 *
 * A number a sequence: transformers 5.24's GenericForSequenceClassification takes that of its last token, which it finds by the padding token; the
 * loss is Bradley and Terry's, of pairs (TRL 1.16, reward_trainer.py: compute_loss()).
 *
 * A number a token: GenericForTokenClassification, and the loss of verl 0.7.0's critic (core_algos.py: compute_value_loss()): the larger of the squared
 * errors of the value and of the value clipped to the old one's neighbourhood. */
#include "model/program/torch_number.h"

#include "model/program/tape_loss.h"
#include "model/program/torch_parts.h"

/* The last token that is no padding: a mask, and positions times it. */
static void find_last(struct torch_model *b)
{
    struct tape *t = b->t;
    var mask = op_new(t, "padding mask", KC_COPY, b->tokens, DT_INT32);

    tape_drop(t, op_new(t, "positions of tokens", KC_COPY, b->tokens, DT_INT32));
    tape_drop(t, mask);
}

static var of_pairs(struct torch_model *b, var last)
{
    struct tape *t = b->t;
    var in = op_cast(t, last, DT_FP32), log = op_unary(t, "log-sigmoid", KC_LOSS, in, SAVE_IN);
    var loss = op_mean(t, "mean of pairs", log);

    tape_drop(t, log);
    tape_drop(t, in);
    return loss;
}

static var squared(struct torch_model *b, const char *name, var values)
{
    struct tape *t = b->t;
    var error = op_unary(t, name, KC_LOSS, values, SAVE_NONE);

    return tmp(t, error, op_pow(t, "squared error", error));
}

var torch_number_of_tokens(struct torch_model *b, var values)
{
    struct tape *t = b->t;
    var in = op_cast(t, values, DT_FP32), clipped = op_unary(t, "clip values", KC_LOSS, in, SAVE_IN);
    var far = tmp(t, clipped, squared(b, "error of clipped values", clipped)), near = squared(b, "error of values", in);
    var larger = op_mul(t, "larger error", near, far);          /* maximum keeps both, as a product does */
    var loss = op_mean(t, "mean of errors", larger);

    tape_drop(t, larger);
    tape_drop(t, near);
    tape_drop(t, far);
    tape_drop(t, in);
    return loss;
}

var torch_number_loss(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    var values = torch_linear(b, GEMM("values"), n, 1, b->m->token_width, ROLE_HEAD), l;

    t->module = -1;
    if (b->m->head == HEAD_SCORE) {
        find_last(b);
        var last = op_index(t, "last token", values, b->p->micro_batch);
        l = tmp(t, last, of_pairs(b, last));
    } else
        l = torch_number_of_tokens(b, values);
    tape_drop(t, n);                         /* until forward returns, as with logits */
    tape_drop(t, values);
    return l;
}
