/* torch_experts.c -- routers and experts as transformers 5.23 computes them: modeling_{mixtral,qwen3_moe,olmoe,granitemoe,deepseek_v3,gpt_oss,llama4}.py and
 * grouped_mm_experts_forward() of integrations/moe.py, which is what it takes by itself. */
#include "model/program/torch_experts.h"

#include "model/program/tape_experts.h"
#include "model/program/torch_parts.h"

/* The router's weight beside an adapter (ParamWrapper of one matrix): their product, scaled, is added once to see that it fits and once to be read. */
static var router_weight(struct torch_model *b)
{
    struct tape *t = b->t;
    int64_t n = b->m->experts, h = b->m->hidden;
    int a = torch_piece_part(b->m, b->block, ROLE_ROUTER, false, ADAPTER_LORA_A);
    var w = torch_param(b, torch_gradient_of(b, ROLE_ROUTER, false), n * h);

    if (a < 0)
        return w;
    int64_t rank = b->m->tensors[model_next_tensor(b->m, b->block, -1) + a].shape[0];
    var delta = torch_adapter_product(b, ROLE_ROUTER, n, h, rank), sum;
    delta = tmp(t, delta, op_mul_const(t, "adapter scale", delta, 0));
    delta = tmp(t, delta, op_cast(t, delta, b->frozen_dt));
    tape_drop(t, op_new(t, "adapter add", KC_ELEMENTWISE, n * h, b->frozen_dt));
    sum = op_add(t, "adapter add", w, delta);
    tape_drop(t, w);
    tape_drop(t, delta);
    return sum;
}

/* What the block's forward has names for until it returns. */
struct routes { var logits, weights, index; };

/* Probabilities of all experts, of which a token takes the largest; or the largest scores, made probabilities. */
static struct routes route(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t rows = b->tokens, used = b->m->experts_used;
    enum dtype dt = tape_var_dtype(t, x);
    bool wrapped = torch_piece_part(b->m, b->block, ROLE_ROUTER, false, ADAPTER_LORA_A) >= 0;
    var w = wrapped ? router_weight(b) : 0, index, values;
    var logits = wrapped ? torch_linear_with(b, GEMM("router"), x, b->m->experts, b->m->hidden, w, ROLE_ROUTER)
                         : torch_linear(b, GEMM("router"), x, b->m->experts, b->m->hidden, ROLE_ROUTER);
    tape_drop(t, w);

    t->module = torch_piece_module(b->m, b->block, ROLE_ROUTER, ADAPTER_NONE);
    if (b->family->routes_first) {
        if (!b->family->routes_low)
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
    if (!b->family->routes_fp32)
        values = tmp(t, values, op_cast(t, values, dt));
    return (struct routes){ logits, values, index };
}

/* So many groups are chosen as DeepSeek-V3 has it, half of them. */
var torch_choose_experts(struct torch_model *b, int64_t rows)
{
    struct tape *t = b->t;
    int64_t n = b->m->experts, groups = b->m->route_groups, used = b->m->experts_used;
    var biased = op_new(t, "router bias", KC_ELEMENTWISE, rows * n, DT_FP32);
    var best = op_new(t, "best of groups", KC_ELEMENTWISE, rows * groups * 2, DT_FP32);
    var places = op_new(t, "best of groups", KC_ELEMENTWISE, rows * groups * 2, DT_INT64);
    var sums = op_new(t, "scores of groups", KC_ELEMENTWISE, rows * groups, DT_FP32);
    tape_drop(t, best);
    var chosen = op_new(t, "best groups", KC_ELEMENTWISE, rows * ceil_div(groups, 2), DT_INT64);
    var mask = op_new(t, "mask of groups", KC_ELEMENTWISE, rows * groups, DT_FP32);
    var wide = op_new(t, "mask of experts", KC_ELEMENTWISE, rows * n, DT_FP32);
    var is = op_new(t, "mask of experts", KC_ELEMENTWISE, rows * n, DT_UINT8), not = op_new(t, "mask of experts", KC_ELEMENTWISE, rows * n, DT_UINT8);
    tape_drop(t, is);
    var left = op_new(t, "scores left", KC_ELEMENTWISE, rows * n, DT_FP32);
    tape_drop(t, biased);
    var values = op_new(t, "top-k", KC_ELEMENTWISE, rows * used, DT_FP32), index = op_new(t, "top-k", KC_ELEMENTWISE, rows * used, DT_INT64);
    const var names[] = { values, places, sums, chosen, mask, wide, not, left };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return index;
}

/* DeepseekV3TopkRouter: everything in fp32, the weight too; probabilities by themselves, scaled. */
static struct routes route_groups(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t rows = b->tokens, used = b->m->experts_used, n = b->m->experts, h = b->m->hidden;

    t->module = torch_piece_module(b->m, b->block, ROLE_ROUTER, ADAPTER_NONE);
    var wide = op_cast(t, x, DT_FP32), w = torch_param(b, torch_gradient_of(b, ROLE_ROUTER, false), n * h);
    w = tmp(t, w, op_cast(t, w, DT_FP32));
    var logits = op_linear(t, GEMM("router"), wide, n, h, w, 0, true);
    tape_drop(t, wide);
    tape_drop(t, w);
    var scores = op_unary(t, "router sigmoid", KC_ELEMENTWISE, logits, SAVE_OUT);
    var index = torch_choose_experts(b, rows);
    var values = tape_pick(t, "router gather", scores, index, rows * used);
    if (b->m->topk_norm)
        values = tmp(t, values, tape_normalise(t, values, rows));
    values = tmp(t, values, op_mul_const(t, "routed scale", values, 0));
    tape_drop(t, scores);
    return (struct routes){ logits, values, index };
}

var torch_shared_expert(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->shared_ffn;
    var gate = torch_linear(b, GEMM("shared gate"), x, f, h, ROLE_SHARED_GATE);
    var act = tmp(t, gate, torch_activation(b, gate));
    var up = torch_linear(b, GEMM("shared up"), x, f, h, ROLE_SHARED_UP);
    var y = op_mul(t, "shared product", act, up);

    tape_drop(t, act);
    tape_drop(t, up);
    return tmp(t, y, torch_linear(b, GEMM("shared down"), y, h, f, ROLE_SHARED_DOWN));
}

static var weight(struct torch_model *b, enum tensor_role role, int64_t numel)
{
    return torch_param(b, torch_gradient_of(b, role, false), numel);
}

/* ---- adapters of experts' weights: ParamWrapper of peft/tuners/lora/layer.py ----
 *
 * Its forward makes the factors in the weights' dtype, and registers a parametrization, which computes the sum of weights and adapters once to see
 * that it fits.  The layer's own forward computes it again where it first reads the weight; it is kept until the outermost wrapper returns. */

struct merged { var lhs, rhs, sum; int64_t mnk[3]; };

static var factor(struct torch_model *b, enum tensor_role role, enum adapter which, bool copied)
{
    struct tape *t = b->t;
    int tensor = torch_piece_part(b->m, b->block, role, false, which);
    int at = model_next_tensor(b->m, b->block, -1) + tensor;

    t->module = torch_piece_module(b->m, b->block, role, which);
    var view = op_view(t, op_param(t, tensor, b->m->tensors[at].numel, b->param_dt), copied);
    return tmp(t, view, op_cast(t, view, b->frozen_dt));
}

/* A is viewed as it lies, B's view is no view of a gradient's; turned, A's is none either. */
static struct merged factors_of(struct torch_model *b, enum tensor_role role)
{
    int own = torch_piece_tensor(b->m, b->block, role, false), a = torch_piece_part(b->m, b->block, role, false, ADAPTER_LORA_A);
    const struct tensor *w = &b->m->tensors[model_next_tensor(b->m, b->block, -1) + own];
    bool turned = b->family->clamped_gate;       /* gpt_oss's class says is_transposed */
    struct merged f = { 0 };

    if (a < 0)
        return f;
    f.mnk[0] = w->shape[1], f.mnk[1] = w->shape[2], f.mnk[2] = b->m->tensors[model_next_tensor(b->m, b->block, -1) + a].shape[0] / w->shape[0];
    f.lhs = turned ? factor(b, role, ADAPTER_LORA_A, true) : factor(b, role, ADAPTER_LORA_B, true);
    f.rhs = turned ? factor(b, role, ADAPTER_LORA_B, true) : factor(b, role, ADAPTER_LORA_A, false);
    var own_weight = weight(b, role, w->numel);
    tape_merge(b->t, "experts merge", own_weight, f.lhs, f.rhs, b->m->experts, f.mnk, true);
    return f;
}

/* The weights as a product reads them. */
static var merged_weight(struct torch_model *b, struct merged *f, enum tensor_role role, int64_t numel)
{
    var w = weight(b, role, numel);

    if (!f->lhs)
        return w;
    f->sum = tape_merge(b->t, "experts merge", w, f->lhs, f->rhs, b->m->experts, f->mnk, false);
    tape_drop(b->t, w);
    return tape_hold(b->t, f->sum);
}

static void wrapper_returns(struct torch_model *b, struct merged *f)
{
    tape_drop(b->t, f->lhs);
    tape_drop(b->t, f->rhs);
    tape_drop(b->t, f->sum);
}

/* The bias of every row's expert, added in place to what their product left; it keeps its name until the next one is there. */
static var bias_of_rows(struct torch_model *b, enum tensor_role role, int64_t width, var sorted)
{
    int64_t rows = b->tokens * b->m->experts_used;

    if (torch_piece_tensor(b->m, b->block, role, true) < 0)
        return 0;
    return tape_pick(b->t, "biases of rows", torch_param(b, torch_gradient_of(b, role, true), b->m->experts * width), sorted, rows * width);
}

static var add_bias(struct torch_model *b, var y, var bias) { return bias ? tmp(b->t, y, op_add_to(b->t, "experts bias", y, bias)) : y; }

struct clamped torch_clamp(struct tape *t, var both)
{
    int64_t half = tape_var_numel(t, both) / 2;
    struct clamped c = { .gate = op_slice(t, "gate columns", both, half), .up = op_slice(t, "up columns", both, half) };

    c.gate = tmp(t, c.gate, op_unary(t, "clamp gate", KC_ELEMENTWISE, c.gate, SAVE_IN));
    c.up = tmp(t, c.up, op_unary(t, "clamp up", KC_ELEMENTWISE, c.up, SAVE_IN));
    var scaled = op_mul_const(t, "gate scale", c.gate, 0);
    var sigmoid = tmp(t, scaled, op_unary(t, "gate sigmoid", KC_ELEMENTWISE, scaled, SAVE_OUT));
    c.glu = tmp(t, sigmoid, op_mul(t, "gate product", c.gate, sigmoid));
    return c;
}

void torch_clamp_drop(struct tape *t, const struct clamped *c)
{
    tape_drop(t, c->gate);
    tape_drop(t, c->up);
    tape_drop(t, c->glu);
}

/* GptOssExperts._apply_gate() */
static var clamped_gate(struct torch_model *b, var both)
{
    struct tape *t = b->t;
    struct clamped c = torch_clamp(t, both);
    var one = op_view_add(b, c.up);
    var y = tmp(t, one, op_mul(t, "experts product", one, c.glu));

    torch_clamp_drop(t, &c);
    return y;
}

/* silu(gate) * up of halves of one tensor. */
static var gate(struct torch_model *b, var both)
{
    struct tape *t = b->t;
    int64_t half = tape_var_numel(t, both) / 2;
    var part[2];

    if (b->family->clamped_gate)
        return clamped_gate(b, both);
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
    t->uncounted = true;
    struct routes r = b->m->route_groups > 0 ? route_groups(b, x) : route(b, x);
    t->uncounted = false;
    struct merged down = factors_of(b, ROLE_EXPERTS_OUT), up = factors_of(b, ROLE_EXPERTS_IN);
    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var sorted = op_new(t, "sort by expert", KC_ELEMENTWISE, rows, DT_INT64), order = op_new(t, "sort by expert", KC_ELEMENTWISE, rows, DT_INT64);
    var token = op_new(t, "token of a row", KC_ELEMENTWISE, rows, DT_INT64);
    var in = tape_pick(t, "rows of experts", x, token, rows * h);
    tape_drop(t, token);
    var weights = tape_pick(t, "weights of rows", r.weights, order, rows);
    var counted = op_new(t, "tokens of experts", KC_ELEMENTWISE, rows, DT_INT32);
    var counts = op_new(t, "tokens of experts", KC_ELEMENTWISE, n, DT_INT32), offsets = op_new(t, "offsets of experts", KC_ELEMENTWISE, n, DT_INT32);

    var w = merged_weight(b, &up, ROLE_EXPERTS_IN, n * 2 * f * h), bias = bias_of_rows(b, ROLE_EXPERTS_IN, 2 * f, sorted);
    var y = tape_grouped(t, GEMM("experts gate up"), in, 2 * f, h, n, w, offsets);
    tape_drop(t, w);
    y = add_bias(b, y, bias);
    y = tmp(t, y, gate(b, y));
    w = merged_weight(b, &down, ROLE_EXPERTS_OUT, n * f * h);
    bias = tmp(t, bias, bias_of_rows(b, ROLE_EXPERTS_OUT, h, sorted));
    y = tmp(t, y, tape_grouped(t, GEMM("experts down"), y, h, f, n, w, offsets));
    tape_drop(t, w);
    y = add_bias(b, y, bias);
    var weighed = tape_weigh(t, "experts weigh", y, weights);
    tape_drop(t, y);
    var inverse = op_new(t, "inverse order", KC_ELEMENTWISE, rows, DT_INT64), range = op_new(t, "range", KC_ELEMENTWISE, rows, DT_INT64);
    tape_drop(t, range);
    weighed = tmp(t, weighed, tape_pick(t, "rows of tokens", weighed, inverse, rows * h));
    var out = tape_sum_rows(t, "experts sum", weighed, used);
    out = tmp(t, out, op_cast(t, out, dt));
    const var names[] = { sorted, order, in, weights, counted, counts, offsets, bias, weighed, inverse };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    wrapper_returns(b, &up);
    wrapper_returns(b, &down);
    t->module = -1;
    if (b->m->shared_ffn > 0) {
        var more = torch_shared_expert(b, x), sum = op_add(t, "shared add", out, more);
        tape_drop(t, more);
        out = tmp(t, out, sum);
    }
    tape_drop(t, r.logits);
    tape_drop(t, r.weights);
    tape_drop(t, r.index);
    return out;
}

/* Llama4Router: scores of the experts that a token takes; of the others sigmoid(-inf), which is 0. */
static var route_by_sigmoid(struct torch_model *b, var x, var *logits)
{
    struct tape *t = b->t;
    int64_t rows = b->tokens, n = b->m->experts;
    enum dtype dt = tape_var_dtype(t, x);
    var index;

    *logits = torch_linear(b, GEMM("router"), x, n, b->m->hidden, ROLE_ROUTER);
    t->module = torch_piece_module(b->m, b->block, ROLE_ROUTER, ADAPTER_NONE);
    var values = tape_topk(t, *logits, rows, b->m->experts_used, &index);
    var all = op_new(t, "router scores", KC_ELEMENTWISE, rows * n, dt);
    var scores = tmp(t, all, tape_scatter(t, "router scatter", all, index, values));
    scores = tmp(t, scores, op_cast(t, scores, DT_FP32));
    scores = tmp(t, scores, op_unary(t, "router sigmoid", KC_ELEMENTWISE, scores, SAVE_OUT));
    scores = tmp(t, scores, op_cast(t, scores, dt));
    tape_drop(t, values);
    tape_drop(t, index);
    t->module = -1;
    return scores;
}

/* Llama4TextExperts: names last until it returns. */
static var every_expert(struct torch_model *b, var in)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn, n = b->m->experts, half = b->tokens * n * f;
    struct merged down = factors_of(b, ROLE_EXPERTS_OUT), up = factors_of(b, ROLE_EXPERTS_IN);
    var part[2], w = merged_weight(b, &up, ROLE_EXPERTS_IN, n * 2 * f * h);

    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var both = tape_grouped(t, GEMM("experts gate up"), in, 2 * f, h, n, w, 0);
    tape_drop(t, w);
    op_split(t, "gate up split", both, 2, (int64_t[]){ half, half }, part);
    var act = torch_activation(b, part[0]);
    var y = tmp(t, act, op_mul(t, "experts product", part[1], act));
    w = merged_weight(b, &down, ROLE_EXPERTS_OUT, n * f * h);
    y = tmp(t, y, tape_grouped(t, GEMM("experts down"), y, h, f, n, w, 0));
    tape_drop(t, w);
    wrapper_returns(b, &up);
    wrapper_returns(b, &down);
    tape_drop(t, both);
    tape_drop(t, part[0]);
    tape_drop(t, part[1]);
    t->module = -1;
    return y;
}

/* Llama4TextMoe: every expert gets every token, times the token's score for it.  The block has a name for the logits, where it had one for
 * attention's probabilities. */
var torch_every_expert(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t n = b->m->experts;
    var logits, scores;

    t->half = 1;
    scores = route_by_sigmoid(b, x, &logits);
    var in = op_repeat(t, "tokens of experts", x, n), column = op_copy(t, "scores of experts", scores, true);
    in = tmp(t, in, tape_weigh(t, "experts weigh", in, column));
    tape_drop(t, column);
    var routed = every_expert(b, in), out = torch_shared_expert(b, x), sum = tape_sum_rows(t, "experts sum", routed, n);
    out = tmp(t, out, op_add_to(t, "shared add", out, sum));
    const var names[] = { sum, routed, in, scores, b->weights };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    b->weights = logits;
    return out;
}
