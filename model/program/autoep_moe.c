/* autoep_moe.c -- AutoEPMoELayer of DeepSpeed (0.19.8: module_inject/auto_ep_layer.py, moe/ep_router.py, ep_kernels.py, ep_experts.py),
 * which takes the place of transformers' module, with its defaults: torch.distributed's exchanges, weighted_sum, separate products.
 *
 * T tokens choose k experts each: N = T k rows go out, R = N x imbalance come in at the busiest rank, and lie by expert in a buffer that
 * has room to begin each expert's rows at a multiple of ALIGNED.  The host reads how many go where before it can issue the exchange of
 * rows: in every block, forward and recompute. */
#include "model/program/autoep_moe.h"

#include "model/plan/expert_capacity.h"
#include "model/program/tape_dispatch.h"
#include "model/program/tape_experts.h"
#include "model/program/torch_parts.h"

enum { ALIGNED = 8 };               /* TOKEN_GROUP_ALIGN_SIZE_M */

/* Names of forward(). */
struct routed { var scores, index, counts; };

/* TokenChoiceTopKRouter.forward(): the gate in the model's dtype, probabilities in fp32. */
static struct routed route(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t e = b->m->experts, n = b->tokens * b->m->experts_used;
    struct routed r;
    var w = torch_param_of(b, ROLE_ROUTER, e * b->m->hidden), logits = op_linear(t, GEMM("router"), x, e, b->m->hidden, w, 0, true);

    tape_drop(t, w);
    t->module = -1;
    logits = tmp(t, logits, op_cast(t, logits, DT_FP32));
    var all = tmp(t, logits, op_unary(t, "router softmax", KC_ELEMENTWISE, logits, SAVE_OUT));
    var largest = op_new(t, "top-k", KC_ELEMENTWISE, n, DT_FP32);
    r.index = op_new(t, "top-k", KC_ELEMENTWISE, n, DT_INT64);
    r.scores = tape_pick(t, "scores of tokens", all, r.index, n);
    tape_drop(t, largest);
    r.scores = tmp(t, r.scores, tape_normalise(t, r.scores, b->tokens));
    r.scores = tmp(t, r.scores, op_mul_const(t, "route scale", r.scores, 0));
    r.counts = op_new(t, "tokens of experts", KC_ELEMENTWISE, e, DT_INT32);
    tape_drop(t, all);
    return r;
}

/* GroupedExperts.forward(). */
static var experts(struct torch_model *b, var x, int64_t here)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn;

    t->module = torch_piece_module(b->m, b->block, ROLE_EXPERTS_IN, ADAPTER_NONE);
    var offsets = op_new(t, "offsets of experts", KC_ELEMENTWISE, here, DT_INT32), w = torch_param_of(b, ROLE_EXPERTS_IN, here * f * h);
    var gate = tape_grouped(t, GEMM("experts gate"), x, f, h, here, w, offsets);

    tape_drop(t, w);
    w = torch_param_of(b, ROLE_EXPERTS_UP, here * f * h);
    var up = tape_grouped(t, GEMM("experts up"), x, f, h, here, w, offsets);
    tape_drop(t, w);
    var act = torch_activation(b, gate), y = tmp(t, act, op_mul(t, "experts product", act, up));
    tape_drop(t, gate);
    tape_drop(t, up);
    w = torch_param_of(b, ROLE_EXPERTS_OUT, here * f * h);
    y = tmp(t, y, tape_grouped(t, GEMM("experts down"), y, h, f, here, w, offsets));
    tape_drop(t, w);
    tape_drop(t, offsets);
    t->module = -1;
    return y;
}

struct sent { var order, chosen, scores, place; int64_t rows, padded; };

/* Rows by expert, to the experts' ranks, there by expert again (permute_by_local_expert). */
static var dispatch(struct torch_model *b, var x, int64_t here, struct sent *s)
{
    struct tape *t = b->t;
    int64_t n = b->tokens * b->m->experts_used, h = b->m->hidden, ranks = b->p->parallel.expert;
    var sorted = op_new(t, "sort by expert", KC_ELEMENTWISE, n, DT_INT64);

    s->rows = expert_rows_of(b->p, b->tokens).received;
    s->padded = ceil_div(s->rows + here * ALIGNED, ALIGNED) * ALIGNED;
    s->order = op_new(t, "sort by expert", KC_ELEMENTWISE, n, DT_INT64);
    tape_drop(t, sorted);
    s->scores = op_new(t, "scores of rows", KC_ELEMENTWISE, n, DT_FP32);     /* nobody asks for its gradient */
    s->chosen = op_new(t, "experts of rows", KC_ELEMENTWISE, n, DT_INT64);
    var token = op_new(t, "token of a row", KC_ELEMENTWISE, n, DT_INT64), out = tape_pick(t, "rows of experts", x, token, n * h);
    tape_drop(t, token);
    var came = tape_dispatch_numbers(t, "counts to ranks", b->m->experts, DT_INT32), sums = op_new(t, "rows of ranks", KC_ELEMENTWISE, 2 * ranks, DT_INT64);
    tape_await_host(t, "rows of ranks to the host");
    tape_drop(t, sums);
    var rows = tmp(t, out, tape_dispatch(t, "rows to experts", out, s->rows * h));
    s->place = op_new(t, "place of a row", KC_ELEMENTWISE, s->padded, DT_INT32);
    rows = tmp(t, rows, tape_pick(t, "rows by expert", rows, s->place, s->padded * h));
    tape_drop(t, came);
    return rows;
}

/* The way back, and combine_from_routed(): rows as their tokens name them, each times its score in fp32. */
static var combine(struct torch_model *b, var x, const struct routed *r, const struct sent *s)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, n = b->tokens * b->m->experts_used;
    enum dtype dt = tape_var_dtype(t, x);
    var y = tape_pick(t, "rows by rank", x, s->place, s->rows * h);

    y = tmp(t, y, tape_dispatch(t, "rows to tokens", y, n * h));
    y = tmp(t, y, tape_pick(t, "rows of tokens", y, s->order, n * h));
    var weighed = tmp(t, y, tape_weigh(t, "experts weigh", y, r->scores));
    var out = tmp(t, weighed, tape_sum_rows(t, "experts sum", weighed, b->m->experts_used));
    return tmp(t, out, op_cast(t, out, dt));
}

var autoep_moe(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t here = b->m->experts / b->p->parallel.expert;

    t->half = 1;
    struct routed r = route(b, x);
    struct sent s;
    var rows = dispatch(b, x, here, &s), made = experts(b, rows, here);
    tape_drop(t, rows);
    var out = combine(b, made, &r, &s);
    const var names[] = { made, s.order, s.chosen, s.scores, s.place, r.scores, r.index, r.counts };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return out;
}
