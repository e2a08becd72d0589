/* te_moe.c -- see te_moe.h.  megatron-core 0.16.1, core/transformer/moe/: router.py (TopKRouter), moe_utils.py (permute, sort_chunks_by_idxs,
 * unpermute; fused they are transformer_engine/pytorch/permutation.py of 2.9), token_dispatcher.py (MoEAlltoAllTokenDispatcher), experts.py (TEGroupedMLP), shared_experts.py (SharedExpertMLP, whose
 * layers are the MLP's, before the router).
 *
 * T tokens of a rank (with sequence parallelism its share of the positions) choose k experts each: N = T k rows go out, R = N x imbalance
 * come in at the busiest rank, and where tensor-parallel ranks cut experts it gathers what the others got.  With a capacity an expert takes no
 * more rows of a rank than that, and padded as many (drop and pad).  Probabilities travel beside
 * the rows and are multiplied in between the two products.
 *
 * Products of 8 bits ask for multiples of 16 rows, mxfp8's of 32 (fp8_utils.py, get_fp8_align_size()): each expert's are copied among zeros
 * (Fp8Padding), what comes of them is copied out, and so back.  An expert gets its share of the rows rounded up to such a multiple; only of a
 * capacity that is one already, or where routers fill up (moe_router_padding_for_quantization), is nothing copied. */
#include "model/program/te_moe.h"

#include "model/plan/expert_capacity.h"
#include "model/plan/plan_groups.h"
#include "model/program/tape_dispatch.h"
#include "model/program/tape_experts.h"
#include "model/program/tape_loss.h"
#include "model/program/tape_te_bias.h"
#include "model/program/tape_te_cast.h"
#include "model/program/tape_te_grouped.h"
#include "model/program/tape_te_mtp.h"
#include "model/program/te_again.h"
#include "model/program/te_model.h"
#include "model/program/te_sinks.h"
#include "model/program/torch_experts.h"
#include "model/program/torch_parts.h"

/* 0: the layer has none. */
static var bias(struct torch_model *b, enum tensor_role role, int64_t numel)
{
    return torch_piece_tensor(b->m, b->block, role, true) < 0 ? 0 : torch_param(b, torch_gradient_of(b, role, true), numel);
}

/* capacity: rows that an expert takes of one rank, at most; 0: all.  padded: it gets as many. */
struct moe { int64_t tokens, rows, came, all, ranks, cut, here, capacity, computed; bool padded, copied, fused; };

static struct moe sizes_of(const struct torch_model *b, int64_t tokens)
{
    const struct parallel_options *of = &b->p->parallel;
    struct expert_rows rows = expert_rows_of(b->p, tokens);
    struct moe s = { .tokens = tokens, .ranks = of->expert > 1 ? of->expert : 1, .cut = of->expert_tensor > 1 ? of->expert_tensor : 1,
                     .capacity = expert_capacity_of(b->p, tokens), .padded = b->p->megatron.moe_pad_expert_input_to_capacity,
                     .fused = b->p->megatron.moe_permute_fusion };

    s.here = b->m->experts / s.ranks;
    s.rows = rows.sent;
    s.came = rows.received;
    s.all = s.came * s.cut;
    s.computed = s.all;
    enum scaled format = (enum scaled)te_scaled_of(b).format;
    if (format != SCALED_NONE) {
        s.computed = s.here * round_up(ceil_div(s.all, s.here), expert_rows_unit(b->p));
        s.copied = !(s.padded || b->p->megatron.moe_router_padding_for_quantization) || s.computed != s.all;
    }
    return s;
}

/* topk_routing_with_score_function(): scores of the experts that a token takes, and their places: the largest logits' softmax; */
static var by_softmax(struct torch_model *b, var logits, const struct moe *s, var *index)
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, logits);
    var scores = tape_topk(t, logits, s->tokens, b->m->experts_used, index);

    scores = tmp(t, scores, op_cast(t, scores, DT_FP32));
    scores = tmp(t, scores, op_unary(t, "router softmax", KC_ELEMENTWISE, scores, SAVE_OUT));
    return tmp(t, scores, op_cast(t, scores, dt));
}

/* or sigmoids, chosen with a bias from the best groups, made to add up to one and scaled. */
static var by_sigmoid(struct torch_model *b, var logits, const struct moe *s, var *index)
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, logits);
    var all = op_cast(t, logits, DT_FP32);

    all = tmp(t, all, op_unary(t, "router sigmoid", KC_ELEMENTWISE, all, SAVE_OUT));
    all = tmp(t, all, op_cast(t, all, dt));
    *index = torch_choose_experts(b, s->tokens);
    var scores = tmp(t, all, tape_pick(t, "router gather", all, *index, s->tokens * b->m->experts_used));
    scores = tmp(t, scores, tape_normalise(t, scores, s->tokens));
    return tmp(t, scores, op_mul_const(t, "routed scale", scores, 0));
}

/* Probabilities and a map, tokens by experts; returns the logits. */
static var route(struct torch_model *b, var x, const struct moe *s, var *probs, var *map)
{
    struct tape *t = b->t;
    int64_t e = b->m->experts, h = b->m->hidden, all = s->tokens * e;
    var w = torch_param_of(b, ROLE_ROUTER, e * h), logits = op_linear(t, GEMM("router"), x, e, h, w, bias(b, ROLE_ROUTER, e), true), index;

    if (t->nout > 0)
        t->out[t->nout - 1].te_module = t->forget ? TE_PYTHON_DISPATCH_BARE : TE_PYTHON_DISPATCH;
    tape_drop(t, w);
    var scores = b->m->route_groups > 0 ? by_sigmoid(b, logits, s, &index) : by_softmax(b, logits, s, &index);
    *probs = tape_pick(t, "probabilities by expert", scores, index, all);
    var ones = op_new(t, "routing map", KC_ELEMENTWISE, all, DT_INT32);
    *map = op_new(t, "routing map", KC_ELEMENTWISE, all, DT_UINT8);
    tape_drop(t, ones);
    tape_drop(t, scores);
    tape_drop(t, index);
    return logits;
}

/* apply_router_token_dropping(), by probability: a column's largest stay; without padding of these who chose it. */
static var drop_tokens(struct torch_model *b, const struct moe *s, var probs, var *map)
{
    struct tape *t = b->t;
    enum dtype dt = tape_var_dtype(t, probs);
    int64_t all = s->tokens * b->m->experts, taken = s->capacity * b->m->experts;
    bool drops = s->capacity <= s->tokens;
    var largest = drops ? op_new(t, "tokens of experts", KC_ELEMENTWISE, taken, dt) : 0;
    var index = drops ? op_new(t, "tokens of experts", KC_ELEMENTWISE, taken, DT_INT64) : 0;
    var zeros = drops ? op_new(t, "zeros of probabilities", KC_ELEMENTWISE, all, dt) : 0, marks = op_new(t, "capacity mask", KC_ELEMENTWISE, all, dt);

    tape_drop(t, zeros);
    var kept = tmp(t, marks, op_new(t, "capacity mask", KC_ELEMENTWISE, all, DT_UINT8));
    if (!s->padded)
        kept = tmp(t, kept, op_new(t, "chosen within capacity", KC_ELEMENTWISE, all, DT_UINT8));
    var out = op_mul_const(t, "probabilities within capacity", probs, kept);
    tape_drop(t, largest);
    tape_drop(t, index);
    tape_drop(t, probs);
    tape_drop(t, *map);
    *map = kept;
    return out;
}

/* Scores of all experts (compute_routing_scores_for_aux_loss()). */
static var scores_of_all(struct torch_model *b, var logits, const struct moe *s)
{
    struct tape *t = b->t;

    if (b->m->route_groups == 0) {
        var wide = op_cast(t, logits, DT_FP32);
        return tmp(t, wide, op_unary(t, "aux softmax", KC_ELEMENTWISE, wide, SAVE_OUT));
    }
    var scores = op_unary(t, "aux sigmoid", KC_ELEMENTWISE, logits, SAVE_OUT);
    return tmp(t, scores, tape_normalise(t, scores, s->tokens));
}

/* _apply_aux_loss(), _apply_seq_aux_loss(): tokens that would choose an expert (of each sample), counted over the ranks that share samples, times
 * its scores, added up.  A first run that backward repeats has none (torch.is_grad_enabled()). */
static var balance(struct torch_model *b, var logits, var probs, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t samples = b->p->megatron.moe_router_load_balancing_type == BALANCE_SEQ_AUX_LOSS ? b->p->micro_batch : 1;
    int64_t e = b->m->experts * samples, all = s->tokens * b->m->experts, chosen = s->tokens * b->m->experts_used;
    var scores = scores_of_all(b, logits, s), top = op_new(t, "aux top-k", KC_ELEMENTWISE, chosen, tape_var_dtype(t, scores));
    var index = op_new(t, "aux top-k", KC_ELEMENTWISE, chosen, DT_INT64);

    tape_drop(t, top);
    var ones = op_new(t, "aux routing map", KC_ELEMENTWISE, all, DT_INT32), map = op_new(t, "aux routing map", KC_ELEMENTWISE, all, DT_UINT8);
    tape_drop(t, ones);
    tape_drop(t, index);
    var counts = tmp(t, map, op_new(t, "aux tokens of experts", KC_ELEMENTWISE, e, DT_INT64));
    if (b->ranks > 1 || b->context > 1)
        tape_sum_counts(t, "aux tokens of ranks", e, b->ranks > 1 ? GROUP_TENSOR : GROUP_CONTEXT);
    var loss = tmp(t, scores, op_mean(t, "aux loss", scores));
    var out = tmp(t, probs, te_attach_loss(t, "aux loss", probs, loss));
    tape_drop(t, loss);
    tape_drop(t, counts);
    return out;
}

/* pad_routing_map(): tokens that did not choose an expert, the first of them, are given to it until its rows are a multiple. */
static void fill_up(struct torch_model *b, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t all = s->tokens * b->m->experts;
    var is_zero = op_new(t, "tokens not chosen", KC_ELEMENTWISE, all, DT_UINT8), number = op_new(t, "tokens not chosen", KC_ELEMENTWISE, all, DT_INT32);
    var ranks = op_new(t, "rank of a token not chosen", KC_ELEMENTWISE, all, DT_INT64), mask = op_new(t, "tokens to fill up with", KC_ELEMENTWISE, all, DT_UINT8);
    const var names[] = { is_zero, number, ranks, mask };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
}

/* probs.T.contiguous(): of its gradient backward makes a view. */
static var turned_over(struct tape *t, const char *name, var x) { return op_copy(t, name, x, true); }

/* Chunks of rows in another order, unfused: torch.cat() of torch.split()'s views (sort_chunks_by_idxs()).  In backward CatBackward's parts are views
 * and SplitWithSizesBackward joins them by at::cat() (split_with_sizes_backward(), FunctionsManual.cpp): one more copy of all rows.  Padded,
 * view().transpose().contiguous().flatten(): ViewBackward reshapes a transposed gradient, which is a copy, too. */
static var in_order(struct tape *t, const char *name, var x, const struct moe *s)
{
    return op_moved(t, name, x, s->padded ? 0 : (int)(s->here * s->ranks * s->cut));
}

static var product(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k, const struct moe *s, enum tensor_role role, var bias)
{
    struct te_scaled f = te_scaled_of(b);
    bool original = role == ROLE_EXPERTS_OUT && plan_recomputes_module(b->p, "moe_act") && te_may_cast_again(&f);
    var w = torch_param_of(b, role, s->here * n * k);
    var y = f.format ? te_grouped(b->t, names, &f, x, n, k, s->here, w, bias, original) : tape_grouped_fused(b->t, names, x, n, k, s->here, w, bias);

    tape_drop(b->t, w);
    return y;
}

var te_moe_act(struct torch_model *b, var x, var probs)
{
    struct tape *t = b->t;

    if (b->m->mlp == MLP_PLAIN) {       /* the function, and a product of its result (experts.py, bias_act_func()) */
        var a = te_activation(t, "activation", x, 0, false);
        return tmp(t, a, op_mul_rows(t, "weigh rows", a, probs));
    }
    var y = te_has_sinks(b) ? te_clamped(b, x) : tape_hold(b->t, x);

    return tmp(b->t, y, te_weighted_activation(b->t, "gated activation", y, probs));
}

/* The experts' two products and what is between them, of rows as these take them. */
static var products(struct torch_model *b, var x, var probs, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->expert_ffn / s->cut, first = b->m->mlp == MLP_GATED ? 2 * f : f;
    var y = product(b, b->m->mlp == MLP_GATED ? GEMM("experts gate up") : GEMM("experts up"), x, first, h, s, ROLE_EXPERTS_IN,
                    bias(b, ROLE_EXPERTS_IN, s->here * first));

    const var in[TE_MODULE_VARS] = { y, probs };
    var act[TE_MODULE_VARS] = { 0 };
    int region;
    te_module(b, TE_MOE_ACT, in, act, &region);
    tape_drop(t, y);
    y = tmp(t, act[0], product(b, GEMM("experts down"), act[0], h, f, s, ROLE_EXPERTS_OUT, 0));
    te_discard(b, region);
    var of_rows = bias(b, ROLE_EXPERTS_OUT, s->here * h);
    return of_rows ? tmp(t, y, te_bias_of_experts(t, "experts bias", y, of_rows, probs, s->here)) : y;
}

static var experts(struct torch_model *b, var x, var probs, const struct moe *s)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden;

    if (!s->copied)
        return products(b, x, probs, s);
    t->module = -1;
    var rows = te_pad_rows(t, "rows up to a multiple", x, s->computed * h), p = te_pad_rows(t, "probabilities up to a multiple", probs, s->computed);
    var y = products(b, rows, p, s);
    tape_drop(t, rows);
    tape_drop(t, p);
    t->module = -1;
    return tmp(t, y, te_pad_rows(t, "rows that came", y, s->all * h));
}

var te_shared_experts(struct torch_model *b, var x)
{
    static const enum tensor_role both[] = { ROLE_SHARED_GATE_UP }, one[] = { ROLE_SHARED_UP }, out[] = { ROLE_SHARED_DOWN };
    struct tape *t = b->t;
    int64_t h = b->m->hidden, f = b->m->shared_ffn;
    bool gated = b->m->mlp == MLP_GATED;

    struct te_linear l = te_linear_of(b, gated ? GEMM("shared gate up") : GEMM("shared up"), gated ? 2 * f : f, h, gated ? both : one, 1);
    l.plain = true;
    l.original = te_may_cast_again(&l.scaled) && !plan_recomputes_module(b->p, "shared_experts");    /* the router keeps x */
    var y = te_column(t, &l, x);
    t->module = -1;
    y = tmp(t, y, te_activation(t, gated ? "gated activation" : "activation", y, 0, gated));
    l = te_linear_of(b, GEMM("shared down"), h, f, out, 1);
    y = tmp(t, y, te_row(t, &l, y));
    t->module = -1;
    return y;
}

/* preprocess(): how many rows each rank sends to each expert; padded all know it.  *others: what others say. */
static var count_rows(struct tape *t, int64_t experts, const struct moe *s, var *others)
{
    var counts = op_new(t, "rows of experts", KC_ELEMENTWISE, s->padded ? experts * s->cut : experts, DT_INT64);

    *others = 0;
    if (s->ranks * s->cut > 1 && !s->padded)
        *others = tape_gather_counts(t, "rows of ranks", experts, s->ranks * s->cut, s->cut == 1 ? GROUP_EXPERT : GROUP_EXPERT_TENSOR);
    return counts;
}

/* Of permute(): what names the probabilities of rows, and *numbers, the rows' tokens.  Padded, each column of the map is sorted. */
static var places_of_rows(struct tape *t, int64_t experts, const struct moe *s, var *numbers)
{
    int64_t all = s->tokens * experts;
    var by_expert = op_new(t, "map by expert", KC_COPY, all, DT_UINT8);

    if (!s->padded) {
        *numbers = op_new(t, "token of a row", KC_ELEMENTWISE, s->rows, DT_INT64);
        return by_expert;
    }
    by_expert = tmp(t, by_expert, op_new(t, "map by expert", KC_COPY, all, DT_UINT8));
    var sorted = op_new(t, "sort tokens of experts", KC_ELEMENTWISE, all, DT_UINT8), order = op_new(t, "sort tokens of experts", KC_ELEMENTWISE, all, DT_INT64);
    tape_drop(t, sorted);
    *numbers = tmp(t, order, op_new(t, "token of a row", KC_ELEMENTWISE, s->rows, DT_INT64));
    tape_drop(t, by_expert);
    return 0;
}

/* moe_permute_fusion: by Transformer Engine's kernels.  *numbers: its map of rows. */
static var rows_by_map(struct torch_model *b, var x, var probs, const struct moe *s, var *p, var *numbers)
{
    *numbers = tape_row_map(b->t, s->tokens, b->m->experts);
    *p = probs;
    var rows = tape_permute(b->t, "rows by expert", x, p, *numbers, s->rows, b->m->hidden);
    if (!s->padded)
        tape_await_host(b->t, "rows of ranks to the host");
    return rows;
}

/* permute(): rows by expert, and *p, their probabilities. */
static var rows_by_expert(struct torch_model *b, var x, var probs, const struct moe *s, var *p, var *numbers)
{
    struct tape *t = b->t;

    if (s->fused)
        return rows_by_map(b, x, probs, s, p, numbers);
    var place = places_of_rows(t, b->m->experts, s, numbers), turned = turned_over(t, "probabilities by expert", probs);

    if (!place)
        place = op_new(t, "place of a probability", KC_ELEMENTWISE, s->rows, DT_INT64);
    *p = tape_pick(t, "probabilities of rows", turned, place, s->rows);
    tape_drop(t, turned);
    if (!s->padded)
        tape_await_host(t, "rows of ranks to the host");
    var rows = tape_take_rows(t, "rows by expert", x, *numbers, s->rows * b->m->hidden);
    tape_drop(t, place);
    return rows;
}

/* To the experts' ranks, and there by expert. */
static var to_experts(struct tape *t, var rows, int64_t h, const struct moe *s, var *p)
{
    if (s->ranks > 1) {
        rows = tmp(t, rows, tape_dispatch(t, "rows to experts", rows, s->came * h));
        *p = tmp(t, *p, tape_dispatch(t, "probabilities to experts", *p, s->came));
    }
    if (s->cut > 1) {
        rows = tmp(t, rows, te_move(t, TE_GATHER, rows, s->cut));
        *p = tmp(t, *p, te_move(t, TE_GATHER, *p, s->cut));
    }
    if (s->here == 1 || s->ranks * s->cut == 1)
        return rows;
    if (!s->fused || s->padded) {
        rows = tmp(t, rows, in_order(t, "rows by own expert", rows, s));
        *p = tmp(t, *p, in_order(t, "probabilities by own expert", *p, s));
        return rows;
    }
    var map = op_new(t, "map of chunks", KC_ELEMENTWISE, s->all, DT_INT32), was = *p;
    rows = tmp(t, rows, tape_permute(t, "rows by own expert", rows, p, map, s->all, h));
    tape_drop(t, was);
    tape_drop(t, map);
    return rows;
}

/* The rows as they came, of what the experts made of them. */
static var rows_by_rank(struct tape *t, var y, const struct moe *s)
{
    if (s->here == 1 || s->ranks * s->cut == 1)
        return y;
    if (!s->fused || s->padded)
        return tmp(t, y, in_order(t, "rows by rank", y, s));
    var map = op_new(t, "map of chunks", KC_ELEMENTWISE, s->all, DT_INT32);
    y = tmp(t, y, tape_pick(t, "rows by rank", y, map, tape_var_numel(t, y)));
    tape_drop(t, map);
    return y;
}

var te_moe(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t h = b->m->hidden, e = b->m->experts;
    struct moe s = sizes_of(b, tape_var_numel(t, x) / h);
    const var in[TE_MODULE_VARS] = { x };
    var probs, map, p, numbers, others, shared[TE_MODULE_VARS] = { 0 };

    if (b->m->shared_ffn > 0)
        te_module(b, TE_SHARED_EXPERTS, in, shared, NULL);
    var logits = route(b, x, &s, &probs, &map);
    if (s.capacity > 0)
        probs = drop_tokens(b, &s, probs, &map);
    if (b->p->megatron.moe_aux_loss_coeff > 0 && !t->forget)
        probs = balance(b, logits, probs, &s);
    tape_drop(t, logits);
    t->module = -1;
    if (b->p->megatron.moe_router_padding_for_quantization)
        fill_up(b, &s);
    var counts = count_rows(t, e, &s, &others);
    var rows = rows_by_expert(b, x, probs, &s, &p, &numbers);
    rows = to_experts(t, rows, h, &s, &p);
    var y = experts(b, rows, p, &s);
    tape_drop(t, rows);
    tape_drop(t, p);
    t->module = -1;
    y = rows_by_rank(t, y, &s);
    if (s.cut > 1)
        y = tmp(t, y, te_move(t, TE_SCATTER, y, s.cut));
    if (s.ranks > 1)
        y = tmp(t, y, tape_dispatch(t, "rows to tokens", y, s.rows * h));
    var out = (s.fused ? tape_pick : tape_add_rows)(t, "rows of tokens", y, numbers, s.tokens * h);
    const var names[] = { y, numbers, others, counts, probs, map };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    if (shared[0]) {
        out = tmp(t, out, op_add(t, "shared add", out, shared[0]));
        tape_drop(t, shared[0]);
    }
    return out;
}
