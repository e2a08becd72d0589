/* native_moe.c -- MOELayer of DeepSpeed (0.19.8, moe/sharded_moe.py, experts.py) with its defaults: no noise on the gate's input, random choice
 * of the tokens that stay (use_rts), a sampled second expert.  Each expert is transformers' gated MLP, gate_proj, up_proj, down_proj.
 *
 * T tokens choose k of E experts.  Every expert takes C rows of every rank, whether as many came or not: E C rows go out and come in, so that
 * no number of rows is exchanged and the host waits for nothing.  Without drop_tokens C is the busiest expert's, on which ranks agree, and for
 * which the host waits. */
#include "model/program/native_moe.h"

#include <assert.h>

#include "model/plan/expert_capacity.h"
#include "model/plan/native_experts.h"
#include "model/program/tape_dispatch.h"
#include "model/program/tape_experts.h"
#include "model/program/torch_parts.h"

struct moe { int64_t tokens, used, experts, here, ranks, capacity, rows; };

static struct moe sizes_of(const struct torch_model *b)
{
    struct moe s = { .tokens = b->tokens, .used = b->m->experts_used, .experts = b->m->experts, .ranks = b->p->parallel.expert,
                     .capacity = expert_capacity_of(b->p, b->tokens), .rows = expert_rows_of(b->p, b->tokens).sent };

    s.here = s.experts / s.ranks;
    return s;
}

static var made(struct torch_model *b, const char *name, int64_t numel, enum dtype dt) { return op_new(b->t, name, KC_ELEMENTWISE, numel, dt); }

static void drop_all(struct tape *t, const var *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tape_drop(t, names[i]);
}

/* ---- TopKGate: a score for each of a token's experts, in fp32 ---- */

/* _capacity(): known on the host, unless no token may be dropped. */
static void settle_capacity(struct torch_model *b)
{
    if (b->p->ds.moe_drop_tokens)
        return;
    tape_agree_on_most(b->t, "largest number of rows");
    tape_await_host(b->t, "capacity to the host");
}

/* The largest C numbers of each expert's column; their places alone are used. */
static var places_within(struct torch_model *b, const struct moe *s)
{
    int64_t taken = (s->capacity < s->tokens ? s->capacity : s->tokens) * s->experts;
    var values = made(b, "tokens that stay", taken, DT_FP32);

    return tmp(b->t, values, made(b, "tokens that stay", taken, DT_INT64));
}

/* top1gating(): of a column's tokens random ones stay. */
static var first_only(struct torch_model *b, var gates, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t all = s->tokens * s->experts;
    var index = made(b, "expert of a token", s->tokens, DT_INT64), mask = made(b, "mask of experts", all, DT_INT64);

    settle_capacity(b);
    var uniform = made(b, "random numbers", all, DT_FP32), ranked = tmp(t, uniform, made(b, "random order", all, DT_FP32));
    var places = places_within(b, s), zeros = made(b, "mask of those that stay", all, DT_INT64);
    mask = tmp(t, mask, made(b, "mask of those that stay", all, DT_INT64));
    tape_drop(t, zeros);
    var rows = made(b, "rows of tokens", all, DT_INT64);
    var kept = op_mul_const(t, "gates within capacity", gates, mask);
    var scores = tmp(t, kept, tape_sum_rows(t, "gate of a token", kept, s->experts));
    const var names[] = { index, mask, ranked, places, rows };

    drop_all(t, names, sizeof names / sizeof *names);
    return scores;
}

/* top2gating(): both masks are kept, by what picks the scores; rows are given out in order. */
static var two(struct torch_model *b, var gates, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t all = s->tokens * s->experts;
    var index = made(b, "expert of a token", 2 * s->tokens, DT_INT64), first = made(b, "mask of experts", all, DT_INT64);
    var noise = made(b, "random numbers", all, DT_FP32), others = made(b, "scores of the others", all, DT_FP32);

    tape_drop(t, noise);
    var second = made(b, "mask of experts", all, DT_INT64), rows = made(b, "rows of tokens", 2 * all, DT_INT64);
    settle_capacity(b);
    var mask[2], score[2];
    for (int i = 0; i < 2; i++)
        mask[i] = made(b, "mask of those that stay", all, DT_FP32);
    for (int i = 0; i < 2; i++)
        score[i] = tape_pick(t, "gate of a token", gates, mask[i], s->tokens);
    var scores = op_cat2(t, "gates of a token", score[0], score[1]);
    const var names[] = { index, first, others, second, rows, mask[0], mask[1], score[0], score[1] };

    drop_all(t, names, sizeof names / sizeof *names);
    return tmp(t, scores, tape_normalise(t, scores, s->tokens));
}

/* topkgating(): by probability. */
static var several(struct torch_model *b, var gates, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t all = s->tokens * s->experts, rows = s->tokens * s->used;
    var top = made(b, "top-k", rows, DT_FP32), index = made(b, "top-k", rows, DT_INT64), mask = made(b, "mask of experts", all, DT_UINT8);

    if (b->p->ds.moe_drop_tokens) {
        var chosen = made(b, "gates of experts", all, DT_FP32), places = places_within(b, s);
        var stay = made(b, "mask of those that stay", all, DT_UINT8);
        tape_drop(t, chosen);
        tape_drop(t, places);
        tape_drop(t, stay);
    } else {
        settle_capacity(b);
    }
    var at = made(b, "rows of tokens", all, DT_INT64), kept = op_mul_const(t, "gates within capacity", gates, mask);
    kept = tmp(t, kept, tape_normalise(t, kept, s->tokens));
    var scores = tape_pick(t, "gates of a token", kept, index, rows);
    const var names[] = { top, index, mask, at, kept };

    drop_all(t, names, sizeof names / sizeof *names);
    return scores;
}

static var gate(struct torch_model *b, var x, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden;
    var wide = op_cast(t, x, DT_FP32), w = torch_param(b, torch_gradient_of(b, ROLE_ROUTER, false), s->experts * h);

    w = tmp(t, w, op_cast(t, w, DT_FP32));
    var logits = op_linear(t, GEMM("router"), wide, s->experts, h, w, 0, true);
    tape_drop(t, w);
    var gates = op_unary(t, "router softmax", KC_ELEMENTWISE, logits, SAVE_OUT);
    if (b->again_node > 0)
        b->outlives = tape_saved_since(t, b->again_node, b->again_store);
    var scores = (s->used == 1 ? first_only : s->used == 2 ? two : several)(b, gates, s);
    tape_drop(t, gates);
    tape_drop(t, logits);
    tape_drop(t, wide);
    return scores;
}

/* ---- Experts ---- */

/* Of expert i the matrix of a role, beside its two others. */
static var weight(struct torch_model *b, enum tensor_role role, int i)
{
    int64_t numel = b->m->hidden * b->m->expert_ffn;

    return torch_param(b, torch_gradient_of(b, role, false) + 3 * i, numel);
}

/* A linear layer reads an expert's rows, of every rank some, as a matrix: a copy, unless it is the only expert. */
static var product(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, enum tensor_role role, int i, bool copies)
{
    struct tape *t = b->t;
    var w = weight(b, role, i), in = copies ? op_copy(t, "rows in one piece", x, false) : tape_hold(t, x);
    var y = op_linear(t, names, in, n, k, w, 0, true);

    tape_drop(t, in);
    tape_drop(t, w);
    return y;
}

static var expert(struct torch_model *b, var x, int i, bool copies)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn;
    var up, y = product(b, GEMM("experts gate"), x, f, h, ROLE_EXPERTS_IN, i, copies);

    y = tmp(t, y, torch_activation(b, y));
    up = product(b, GEMM("experts up"), x, f, h, ROLE_EXPERTS_UP, i, copies);
    var both = op_mul(t, "experts product", y, up);
    tape_drop(t, y);
    tape_drop(t, up);
    y = tmp(t, both, product(b, GEMM("experts down"), both, h, f, ROLE_EXPERTS_OUT, i, false));
    return copies ? tmp(t, y, op_view(t, y, true)) : y;        /* its gradient lies between others' */
}

static var experts(struct torch_model *b, var x, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t each[NATIVE_EXPERTS];
    var in[NATIVE_EXPERTS], out[NATIVE_EXPERTS];
    int n = (int)s->here;

    assert(n <= NATIVE_EXPERTS);
    for (int i = 0; i < n; i++)
        each[i] = tape_var_numel(t, x) / n;
    if (n > 1)
        op_split(t, "rows of experts", x, n, each, in);
    else
        in[0] = tape_hold(t, x);
    for (int i = 0; i < n; i++)
        out[i] = expert(b, in[i], i, n > 1);
    var y = tape_cat(t, "outputs of experts", out, n);
    drop_all(t, in, (size_t)n);
    drop_all(t, out, (size_t)n);
    return y;
}

/* ---- MOELayer ---- */

/* _sparse_encode(): a row of zeros behind the tokens; unused rows are copies of it. */
static var encode(struct torch_model *b, var x, const struct moe *s)
{
    struct tape *t = b->t;
    var source = made(b, "token of a row", s->rows, DT_INT64), padded = op_copy(t, "tokens and zeros", x, false);
    var rows = tape_pick(t, "rows of experts", padded, source, s->rows * b->m->hidden);

    tape_drop(t, padded);
    tape_drop(t, source);
    return rows;
}

/* _sparse_decode(): each of a token's rows times its score, in fp32. */
static var decode(struct torch_model *b, var y, var slots, var scores, const struct moe *s)
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, y);
    var padded = op_copy(t, "rows and zeros", y, false), routed = tape_pick(t, "rows of tokens", padded, slots, s->tokens * s->used * b->m->hidden);
    var weighed = tape_weigh(t, "experts weigh", routed, scores), sum = tmp(t, weighed, tape_sum_rows(t, "experts sum", weighed, s->used));
    var out = op_cast(t, sum, dt);
    const var names[] = { padded, routed, sum };

    drop_all(t, names, sizeof names / sizeof *names);
    return out;
}

var native_moe(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct moe s = sizes_of(b);

    t->half = 1;
    var scores = gate(b, x, &s), slots = made(b, "row of a token", s.tokens * s.used, DT_INT64);
    var rows = encode(b, x, &s), came = tmp(t, rows, tape_dispatch(t, "rows to experts", rows, s.rows * b->m->hidden));
    var y = experts(b, came, &s);
    y = tmp(t, y, tape_dispatch(t, "rows to tokens", y, s.rows * b->m->hidden));
    var out = decode(b, y, slots, scores, &s);
    const var names[] = { y, came, slots, scores };

    drop_all(t, names, sizeof names / sizeof *names);
    return out;
}
