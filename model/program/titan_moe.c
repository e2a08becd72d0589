/* titan_moe.c -- torchtitan's MoE with AllToAllTokenDispatcher, line by line (b5bcd76c: models/common/moe.py, token_dispatcher.py), which
 * takes the place of transformers' module (experiments/transformers_modeling_backend/moe_replacement.py).
 *
 * T tokens choose k experts each: N = T k rows go out, R = N x imbalance come in at the busiest rank.  The host reads how many go where
 * before it can issue the exchange of rows: in every block, forward and recompute.  Grouped products are torch._grouped_mm in bf16.
 * gpt_oss's experts have biases and a clamped gate of their own (models/gpt_oss/moe.py); the rest of its block is transformers'. */
#include "model/program/titan_moe.h"

#include "model/plan/expert_capacity.h"
#include "model/program/tape_dispatch.h"
#include "model/program/tape_experts.h"
#include "model/program/torch_experts.h"
#include "model/program/torch_parts.h"

/* Names of MoE.forward and RoutedExperts.forward. */
struct routed { var scores, chosen, index; };

static var in_fp32(struct tape *t, var x) { return x ? tmp(t, x, op_cast(t, x, DT_FP32)) : 0; }

/* The gate's logits in fp32, by autocast. */
static var logits_of(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t e = b->m->experts, h = b->m->hidden;
    var wide = op_cast(t, x, DT_FP32), w = in_fp32(t, torch_param_of(b, ROLE_ROUTER, e * h));
    var bias = b->family->router_bias ? in_fp32(t, torch_param(b, torch_gradient_of(b, ROLE_ROUTER, true), e)) : 0;
    var logits = op_linear(t, GEMM("router"), wide, e, h, w, bias, !bias);

    tape_drop(t, wide);
    tape_drop(t, w);
    tape_drop(t, bias);
    return logits;
}

/* _get_node_limited_routing_scores(): scores with those of all but the best groups at -inf.  Nothing of it is differentiated. */
static var in_best_groups(struct torch_model *b, var scores)
{
    struct tape *t = b->t;
    int64_t tokens = b->tokens, groups = b->m->route_groups;
    var best = op_new(t, "best of groups", KC_ELEMENTWISE, tokens * groups * 2, DT_FP32);
    var places = op_new(t, "best of groups", KC_ELEMENTWISE, tokens * groups * 2, DT_INT64);
    var sums = op_new(t, "scores of groups", KC_ELEMENTWISE, tokens * groups, DT_FP32);
    var largest = op_new(t, "best groups", KC_ELEMENTWISE, tokens * b->m->route_best, DT_FP32);
    tape_drop(t, places);
    var chosen = op_new(t, "best groups", KC_ELEMENTWISE, tokens * b->m->route_best, DT_INT64);
    var mask = op_new(t, "mask of groups", KC_ELEMENTWISE, tokens * groups, DT_UINT8);
    var left = op_new(t, "scores left", KC_ELEMENTWISE, tokens * b->m->experts, DT_FP32);
    const var names[] = { best, sums, largest, chosen, mask, scores };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return left;
}

/* TokenChoiceTopKRouter.forward(): a bias that balances loads beside the scores, of which the k largest are looked up and made to add up
 * to 1. */
static struct routed route(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t e = b->m->experts, n = b->tokens * b->m->experts_used;
    bool groups = b->m->route_groups > 0;
    var logits = logits_of(b, x);
    struct routed r = { .scores = op_unary(t, groups ? "router sigmoid" : "router softmax", KC_ELEMENTWISE, logits, SAVE_OUT) };

    tape_drop(t, logits);
    var biased = op_new(t, "expert bias", KC_ELEMENTWISE, b->tokens * e, DT_FP32);
    biased = groups ? in_best_groups(b, biased) : biased;
    var largest = op_new(t, "top-k", KC_ELEMENTWISE, n, DT_FP32);
    r.index = op_new(t, "top-k", KC_ELEMENTWISE, n, DT_INT64);
    r.chosen = tape_pick(t, "scores of tokens", r.scores, r.index, n);
    if (b->m->topk_norm)
        r.chosen = tmp(t, r.chosen, tape_normalise(t, r.chosen, b->tokens));
    r.chosen = tmp(t, r.chosen, op_mul_const(t, "route scale", r.chosen, 0));
    tape_drop(t, biased);
    tape_drop(t, largest);
    return r;
}

/* GroupedExperts.forward(). */
static var experts(struct torch_model *b, var x, int64_t here)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn;
    var offsets = op_new(t, "offsets of experts", KC_ELEMENTWISE, here, DT_INT32), w = torch_param_of(b, ROLE_EXPERTS_IN, here * f * h);
    var gate = tape_grouped(t, GEMM("experts gate"), x, f, h, here, w, offsets);

    tape_drop(t, w);
    var act = tmp(t, gate, torch_activation(b, gate));
    w = torch_param_of(b, ROLE_EXPERTS_UP, here * f * h);
    var up = tape_grouped(t, GEMM("experts up"), x, f, h, here, w, offsets);
    tape_drop(t, w);
    var y = op_mul(t, "experts product", act, up);
    tape_drop(t, act);
    tape_drop(t, up);
    w = torch_param_of(b, ROLE_EXPERTS_OUT, here * f * h);
    y = tmp(t, y, tape_grouped(t, GEMM("experts down"), y, h, f, here, w, offsets));
    tape_drop(t, w);
    tape_drop(t, offsets);
    return y;
}

/* GptOssGroupedExperts.forward(): the bias of every row's expert, of biases with a row of zeros behind them for rows that are none's.  Their
 * gradient is taken without that row. */
static var biases_of_rows(struct torch_model *b, enum tensor_role role, int64_t here, int64_t rows, int64_t width, var *all)
{
    struct tape *t = b->t;
    var bias = torch_param(b, torch_gradient_of(b, role, true), here * width);
    *all = op_new(t, "biases and zeros", KC_COPY, (here + 1) * width, tape_var_dtype(t, bias));
    var index = op_new(t, "expert of a row", KC_ELEMENTWISE, rows, DT_INT64), picked = tape_pick(t, "biases of rows", bias, index, rows * width);

    tape_drop(t, bias);
    tape_drop(t, index);
    return picked;
}

/* Its swiglu(): addcmul() adds the gate to its product with the other columns. */
static var clamped_gate(struct tape *t, var both)
{
    struct clamped c = torch_clamp(t, both);
    var product = op_mul(t, "experts product", c.glu, c.up), y = tmp(t, product, op_add_to(t, "experts product", product, c.glu));

    torch_clamp_drop(t, &c);
    return y;
}

static var biased_experts(struct torch_model *b, var x, int64_t here, int64_t rows)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn;
    var offsets = op_new(t, "offsets of experts", KC_ELEMENTWISE, here, DT_INT32), w = torch_param_of(b, ROLE_EXPERTS_IN, here * 2 * f * h);
    var both = tape_grouped(t, GEMM("experts gate up"), x, 2 * f, h, here, w, offsets), b1, b2;
    var in = biases_of_rows(b, ROLE_EXPERTS_IN, here, rows, 2 * f, &b1);

    tape_drop(t, w);
    both = tmp(t, both, op_add(t, "experts bias", both, in));
    var act = clamped_gate(t, both);
    w = torch_param_of(b, ROLE_EXPERTS_OUT, here * f * h);
    var y = tape_grouped(t, GEMM("experts down"), act, h, f, here, w, offsets), out = biases_of_rows(b, ROLE_EXPERTS_OUT, here, rows, h, &b2);
    tape_drop(t, w);
    y = tmp(t, y, op_add(t, "experts bias", y, out));
    const var names[] = { both, in, b1, act, out, b2, offsets };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return y;
}

/* _permute(): for each row where it is, by five passes over whole numbers. */
static var places(struct tape *t, int64_t rows)
{
    var segment = op_new(t, "segment of a row", KC_ELEMENTWISE, rows, DT_INT64), from = op_new(t, "begin of its segment", KC_ELEMENTWISE, rows, DT_INT64);
    var number = op_new(t, "numbers", KC_ELEMENTWISE, rows, DT_INT64), sum = op_new(t, "sum", KC_ELEMENTWISE, rows, DT_INT64);

    tape_drop(t, from);
    tape_drop(t, number);
    from = op_new(t, "begin of its segment", KC_ELEMENTWISE, rows, DT_INT64);
    var place = op_new(t, "place of a row", KC_ELEMENTWISE, rows, DT_INT64);
    tape_drop(t, sum);
    tape_drop(t, from);
    tape_drop(t, segment);
    return place;
}

struct sent { var scores, token, place; int64_t rows; };

/* AllToAllTokenDispatcher.dispatch(): rows by expert, then by rank, then again by expert. */
static var dispatch(struct torch_model *b, var x, const struct routed *r, struct sent *s)
{
    struct tape *t = b->t;
    int64_t n = b->tokens * b->m->experts_used, ranks = b->p->parallel.expert;
    var sorted = op_new(t, "sort by expert", KC_ELEMENTWISE, n, DT_INT64), order = op_new(t, "sort by expert", KC_ELEMENTWISE, n, DT_INT64);

    tape_drop(t, sorted);
    s->rows = expert_rows_of(b->p, b->tokens).received;
    s->scores = tape_pick(t, "scores of rows", r->chosen, order, n);
    s->token = tmp(t, order, op_new(t, "token of a row", KC_ELEMENTWISE, n, DT_INT64));
    var out = tape_pick(t, "rows of experts", x, s->token, n * b->m->hidden);
    var counts = tape_dispatch_numbers(t, "counts to ranks", b->m->experts, DT_INT64), sums = op_new(t, "rows of ranks", KC_ELEMENTWISE, 2 * ranks, DT_INT64);
    tape_await_host(t, "rows of ranks to the host");
    tape_drop(t, sums);
    var came = tape_dispatch(t, "rows to experts", out, s->rows * b->m->hidden);
    s->place = places(t, s->rows);
    came = tmp(t, came, tape_pick(t, "rows by expert", came, s->place, s->rows * b->m->hidden));
    tape_drop(t, counts);
    tape_drop(t, out);
    return came;
}

/* combine(): the way back; scores in fp32; a token's rows added up in zeros of its own. */
static var combine(struct torch_model *b, var x, const struct sent *s)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, n = b->tokens * b->m->experts_used;
    enum dtype dt = tape_var_dtype(t, x);
    var by_rank = tape_pick(t, "rows by rank", x, s->place, s->rows * h);
    var y = tmp(t, by_rank, tape_dispatch(t, "rows to tokens", by_rank, n * h));
    var zeros = op_new(t, "zeros", KC_ELEMENTWISE, b->tokens * h, dt), wide = op_cast(t, y, DT_FP32);
    var weighed = tmp(t, wide, op_mul_rows(t, "experts weigh", wide, s->scores));

    y = tmp(t, y, tmp(t, weighed, op_cast(t, weighed, dt)));
    var out = tape_pick(t, "rows of tokens", y, s->token, b->tokens * h);
    tape_drop(t, y);
    tape_drop(t, zeros);
    return out;
}

/* ---- experts of one rank: prime-rl's MoE (trainer/models/layers/moe.py at 32adbba80 and 30bf494fe), a copy of torchtitan's before it had dispatchers ---- */

/* Names of MultiLoRAGroupedExperts.forward(): they last until it returns. */
struct local_names { var held[12]; int n; };

static var name(struct local_names *of, var x) { return of->held[of->n++] = x; }

static var adapter_half(struct torch_model *b, enum tensor_role role, enum adapter which, int64_t numel)
{
    b->t->module = torch_piece_module(b->m, b->block, role, which);
    return op_param(b->t, torch_piece_part(b->m, b->block, role, false, which), numel, b->param_dt);
}

/* A product of experts, and what their adapter adds: two grouped products, the second's result scaled, then added (_run_lora_grouped_mm() of
 * layers/lora/multi_moe.py). */
static var local_product(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, enum tensor_role role, var offsets,
                         struct local_names *of)
{
    struct tape *t = b->t;
    int64_t e = b->m->experts, rank = b->p->train.rank;
    var w = torch_param_of(b, role, e * n * k), y = tape_grouped(t, names, x, n, k, e, w, offsets);

    tape_drop(t, w);
    if (torch_piece_part(b->m, b->block, role, false, ADAPTER_LORA_A) < 0)
        return name(of, y);
    name(of, y);
    w = adapter_half(b, role, ADAPTER_LORA_A, e * rank * k);
    var low = tape_grouped(t, GEMM("adapter A"), x, rank, k, e, w, offsets);
    tape_drop(t, w);
    w = adapter_half(b, role, ADAPTER_LORA_B, e * n * rank);
    var up = name(of, tmp(t, low, tape_grouped(t, GEMM("adapter B"), low, n, rank, e, w, offsets)));
    tape_drop(t, w);
    var scaled = op_mul_const(t, "adapter scale", up, 0);
    return name(of, tmp(t, scaled, op_add(t, "adapter add", y, scaled)));
}

static var local_experts(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn;
    struct local_names of = { .n = 0 };
    var offsets = name(&of, op_new(t, "offsets of experts", KC_ELEMENTWISE, b->m->experts, DT_INT32));
    var gate = local_product(b, GEMM("experts gate"), x, f, h, ROLE_EXPERTS_IN, offsets, &of);
    var up = local_product(b, GEMM("experts up"), x, f, h, ROLE_EXPERTS_UP, offsets, &of);
    var act = torch_activation(b, gate), y = name(&of, op_mul(t, "experts product", act, up));

    tape_drop(t, act);
    var out = local_product(b, GEMM("experts down"), y, h, f, ROLE_EXPERTS_OUT, offsets, &of);
    for (int i = 0; i < of.n; i++)
        if (of.held[i] != out)
            tape_drop(t, of.held[i]);
    return out;
}

/* Softmax in fp32, the largest of it, made to add up to 1 (qwen3_moe has no bias beside the choice: load_balance_coeff is None). */
static struct routed local_route(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t rows = b->tokens;
    var logits = torch_linear(b, GEMM("router"), x, b->m->experts, b->m->hidden, ROLE_ROUTER), wide = tmp(t, logits, op_cast(t, logits, DT_FP32));
    struct routed r = { .scores = tmp(t, wide, op_unary(t, "router softmax", KC_ELEMENTWISE, wide, SAVE_OUT)) };

    r.chosen = tape_topk(t, r.scores, rows, b->m->experts_used, &r.index);
    if (b->m->topk_norm)
        r.chosen = tmp(t, r.chosen, tape_normalise(t, r.chosen, rows));
    r.chosen = tmp(t, r.chosen, op_mul_const(t, "route scale", r.chosen, 0));
    tape_drop(t, r.scores);
    r.scores = 0;
    return r;
}

/* gather() of rows by an index that is expanded over their columns, back by scatter_add_(); scores in fp32 behind the experts; scatter_add() into zeros. */
static var local_moe(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, n = b->tokens * b->m->experts_used;
    enum dtype dt = tape_var_dtype(t, x);

    t->half = 1;
    t->uncounted = true;
    struct routed r = local_route(b, x);
    t->uncounted = false;
    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var counts = op_new(t, "tokens of experts", KC_ELEMENTWISE, b->m->experts, DT_INT64);
    var sorted = op_new(t, "sort by expert", KC_ELEMENTWISE, n, DT_INT64), order = op_new(t, "sort by expert", KC_ELEMENTWISE, n, DT_INT64);
    tape_drop(t, sorted);
    var scores = tape_pick(t, "scores of rows", r.chosen, order, n), token = tmp(t, order, op_new(t, "token of a row", KC_ELEMENTWISE, n, DT_INT64));
    var rows = tape_gather_rows(t, "rows of experts", x, token, n * h), y = local_experts(b, rows);
    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var wide = op_cast(t, y, DT_FP32);
    var weighed = tmp(t, wide, tape_weigh(t, "experts weigh", wide, scores));
    y = tmp(t, y, tmp(t, weighed, op_cast(t, weighed, dt)));
    var zeros = op_new(t, "zeros", KC_ELEMENTWISE, b->tokens * h, dt), out = tmp(t, zeros, tape_add_rows(t, "rows of tokens", y, token, b->tokens * h));
    const var names[] = { y, rows, scores, token, counts, r.chosen, r.index };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    t->module = -1;
    return out;
}

var titan_moe(struct torch_model *b, var x)
{
    struct tape *t = b->t;

    if (b->p->parallel.expert <= 1)
        return local_moe(b, x);

    t->half = 1;
    struct routed r = route(b, x);
    struct sent s;
    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var map = op_new(t, "routing map", KC_ELEMENTWISE, b->tokens * b->m->experts, DT_UINT8), counts = op_new(t, "tokens of experts", KC_ELEMENTWISE, b->m->experts, DT_INT64);
    var rows = dispatch(b, x, &r, &s);
    int64_t here = b->m->experts / b->p->parallel.expert;
    var made = b->family->clamped_gate ? biased_experts(b, rows, here, s.rows) : experts(b, rows, here);
    var out = combine(b, made, &s);
    const var names[] = { rows, made, s.scores, s.token, s.place, map, counts, r.scores, r.chosen, r.index };
    for (size_t i = 0; i < 5; i++)          /* those of RoutedExperts.forward() */
        tape_drop(t, names[i]);
    t->module = -1;
    if (b->m->shared_ffn > 0) {
        var more = torch_shared_expert(b, x);
        out = tmp(t, out, op_add(t, "shared add", out, more));
        tape_drop(t, more);
    }
    for (size_t i = 5; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return out;
}
