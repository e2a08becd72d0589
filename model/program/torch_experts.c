/* torch_experts.c -- routers and experts as transformers 5.23 computes them: modeling_{mixtral,qwen3_moe,olmoe,granitemoe}.py and
 * grouped_mm_experts_forward() of integrations/moe.py, which is what it takes by itself. */
#include "model/program/torch_experts.h"

#include "model/program/tape_experts.h"
#include "model/program/torch_parts.h"

static var tmp(struct tape *t, var used, var result)
{
    tape_drop(t, used);
    return result;
}

/* What the block's forward has names for until it returns. */
struct routes { var logits, weights, index; };

/* Probabilities of all experts, of which a token takes the largest; or the largest scores, made probabilities. */
static struct routes route(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t rows = b->tokens, used = b->m->experts_used;
    enum dtype dt = tape_var_dtype(t, x);
    var logits = torch_linear(b, GEMM("router"), x, b->m->experts, b->m->hidden, ROLE_ROUTER), index, values;

    t->module = torch_piece_module(b->m, b->block, ROLE_ROUTER, ADAPTER_NONE);
    if (b->style->routes_first) {
        logits = tmp(t, logits, op_cast(t, logits, DT_FP32));
        var scores = tape_topk(t, logits, rows, used, &index);
        values = tmp(t, scores, op_unary(t, "router softmax", KC_ELEMENTWISE, scores, SAVE_OUT));
    } else {
        var wide = op_cast(t, logits, DT_FP32);
        var all = tmp(t, wide, op_unary(t, "router softmax", KC_ELEMENTWISE, wide, SAVE_OUT));
        values = tape_topk(t, all, rows, used, &index);
        if (b->m->topk_norm)
            values = tmp(t, values, tape_normalise(t, values, rows));
        tape_drop(t, all);
    }
    if (!b->style->routes_fp32)
        values = tmp(t, values, op_cast(t, values, dt));
    return (struct routes){ logits, values, index };
}

static var weight(struct torch_model *b, enum tensor_role role, int64_t numel)
{
    return torch_param(b, torch_gradient_of(b, role, false), numel);
}

/* silu(gate) * up of halves of one tensor. */
static var gate(struct torch_model *b, var both)
{
    struct tape *t = b->t;
    int64_t half = tape_var_numel(t, both) / 2;
    var part[2];

    op_split(t, "gate up split", both, 2, (int64_t[]){ half, half }, part);
    var act = torch_activation(b, part[0]);
    var y = op_mul(t, "experts product", act, part[1]);
    tape_drop(t, act);
    tape_drop(t, part[0]);
    tape_drop(t, part[1]);
    return y;
}

var torch_experts(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn, n = b->m->experts, used = b->m->experts_used, rows = b->tokens * used;
    enum dtype dt = tape_var_dtype(t, x);

    t->half = 1;
    struct routes r = route(b, x);
    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var sorted = op_new(t, "sort by expert", KC_ELEMENTWISE, rows, DT_INT64), order = op_new(t, "sort by expert", KC_ELEMENTWISE, rows, DT_INT64);
    var token = op_new(t, "token of a row", KC_ELEMENTWISE, rows, DT_INT64);
    var in = tape_pick(t, "rows of experts", x, token, rows * h);
    tape_drop(t, token);
    var weights = tape_pick(t, "weights of rows", r.weights, order, rows);
    var counted = op_new(t, "tokens of experts", KC_ELEMENTWISE, rows, DT_INT32);
    var counts = op_new(t, "tokens of experts", KC_ELEMENTWISE, n, DT_INT32), offsets = op_new(t, "offsets of experts", KC_ELEMENTWISE, n, DT_INT32);

    var w = weight(b, ROLE_EXPERTS_IN, n * 2 * f * h);
    var y = tape_grouped(t, GEMM("experts gate up"), in, 2 * f, h, n, w, offsets);
    tape_drop(t, w);
    y = tmp(t, y, gate(b, y));
    w = weight(b, ROLE_EXPERTS_OUT, n * f * h);
    y = tmp(t, y, tape_grouped(t, GEMM("experts down"), y, h, f, n, w, offsets));
    tape_drop(t, w);
    var weighed = tape_weigh(t, "experts weigh", y, weights);
    tape_drop(t, y);
    var inverse = op_new(t, "inverse order", KC_ELEMENTWISE, rows, DT_INT64), range = op_new(t, "range", KC_ELEMENTWISE, rows, DT_INT64);
    tape_drop(t, range);
    weighed = tmp(t, weighed, tape_pick(t, "rows of tokens", weighed, inverse, rows * h));
    var out = tape_sum_rows(t, "experts sum", weighed, used);
    out = tmp(t, out, op_cast(t, out, dt));
    const var names[] = { sorted, order, in, weights, counted, counts, offsets, weighed, inverse, r.logits, r.weights, r.index };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    t->module = -1;
    return out;
}
