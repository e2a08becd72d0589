/* titan_moe.c -- torchtitan's MoE with AllToAllTokenDispatcher, line by line (b5bcd76c: models/common/moe.py, token_dispatcher.py), which
 * takes the place of transformers' module (experiments/transformers_modeling_backend/moe_replacement.py).
 *
 * T tokens choose k experts each: N = T k rows go out, R = N x imbalance come in at the busiest rank.  The host reads how many go where
 * before it can issue the exchange of rows: in every block, forward and recompute.  Grouped products are torch._grouped_mm in bf16. */
#include "model/program/titan_moe.h"

#include "model/plan/expert_capacity.h"
#include "model/program/tape_dispatch.h"
#include "model/program/tape_experts.h"
#include "model/program/torch_parts.h"

/* Names of MoE.forward and RoutedExperts.forward. */
struct routed { var scores, chosen, index; };

/* TokenChoiceTopKRouter.forward(): the gate in fp32 by autocast, a bias that balances loads beside the scores, of which the k
 * largest are looked up and made to add up to 1. */
static struct routed route(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t e = b->m->experts, n = b->tokens * b->m->experts_used;
    var wide = op_cast(t, x, DT_FP32), w = torch_param_of(b, ROLE_ROUTER, e * b->m->hidden), w32 = op_cast(t, w, DT_FP32);
    var logits = op_linear(t, GEMM("router"), wide, e, b->m->hidden, w32, 0, true);

    tape_drop(t, wide);
    tape_drop(t, w32);
    tape_drop(t, w);
    struct routed r = { .scores = op_unary(t, "router softmax", KC_ELEMENTWISE, logits, SAVE_OUT) };
    tape_drop(t, logits);
    var biased = op_new(t, "expert bias", KC_ELEMENTWISE, b->tokens * e, DT_FP32), largest = op_new(t, "top-k", KC_ELEMENTWISE, n, DT_FP32);
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

var titan_moe(struct torch_model *b, var x)
{
    struct tape *t = b->t;

    t->half = 1;
    struct routed r = route(b, x);
    struct sent s;
    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var map = op_new(t, "routing map", KC_ELEMENTWISE, b->tokens * b->m->experts, DT_UINT8), counts = op_new(t, "tokens of experts", KC_ELEMENTWISE, b->m->experts, DT_INT64);
    var rows = dispatch(b, x, &r, &s);
    var made = experts(b, rows, b->m->experts / b->p->parallel.expert);
    var out = combine(b, made, &s);
    const var names[] = { rows, made, s.scores, s.token, s.place, map, counts, r.scores, r.chosen, r.index };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    t->module = -1;
    return out;
}
