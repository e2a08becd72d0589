/* torch_attention.c -- the attention half of a block on the tape: projections, rotary
 * positions, and the scores by single operations (eager) or a fused kernel (sdpa). */
#include "model/program/torch_parts.h"

#include "model/plan/attention.h"
#include "model/program/tape_parts.h"
#include "model/program/tape_ring.h"
#include "model/program/tape_experts.h"
#include "model/program/torch_latent.h"
#include "model/program/tape_liger.h"
#include "model/program/torch_rotary.h"
#include "model/program/torch_ulysses.h"

static int64_t value_dim(const struct model *m) { return m->value_dim ? m->value_dim : m->head_dim; }

/* chunk(): one tensor joins the halves' gradients. */
static var rotate_halves(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int64_t half = tape_var_numel(t, x) / 2;
    var part[2];

    op_split(t, "rotary halves", x, 2, (int64_t[]){ half, half }, part);
    var y = torch_rotary(b, part);
    tape_drop(t, part[0]);
    tape_drop(t, part[1]);
    return y;
}

/* x * cos + cat(-x2, x1) * sin. */
static var rotate(struct torch_model *b, var x, var cos, var sin)
{
    struct tape *t = b->t;
    int64_t half = tape_var_numel(t, x) / 2;

    if (b->family->half_tables)
        return rotate_halves(b, x);
    var a = op_mul_const(t, "rotary cos", x, cos);
    var x1 = op_slice(t, "rotary half", x, half), x2 = op_slice(t, "rotary half", x, half);
    var neg = op_unary(t, "rotary neg", KC_ELEMENTWISE, x2, SAVE_NONE);

    tape_drop(t, x2);
    var turned = op_cat2(t, "rotary cat", neg, x1);
    tape_drop(t, neg);
    tape_drop(t, x1);
    turned = tmp(t, turned, op_mul_const(t, "rotary sin", turned, sin));
    var y = op_add(t, "rotary add", a, turned);
    tape_drop(t, a);
    tape_drop(t, turned);
    return y;
}

/* What blocks are handed, cast by FSDP2, or a block's own, of halves of the model's. */
static void tables(struct torch_model *b, var *cos, var *sin)
{
    struct tape *t = b->t;

    *cos = tape_hold(t, b->cos), *sin = tape_hold(t, b->sin);
    if (torch_casts_tables(b)) {
        *cos = tmp(t, *cos, op_cast(t, *cos, b->dt));
        *sin = tmp(t, *sin, op_cast(t, *sin, b->dt));
    }
    if (b->family->rotary_interleaved) {
        int64_t n = torch_table_rows(b) * b->m->rotary_dim;
        enum dtype dt = tape_var_dtype(t, *cos);
        *cos = tmp(t, *cos, op_new(t, "rotary cos", KC_COPY, n, dt));
        *sin = tmp(t, *sin, op_new(t, "rotary sin", KC_COPY, n, dt));
    }
}

/* gptj: queries and keys each repeat every number of the model's rows twice. */
static var rotate_by_rows(struct torch_model *b, var x, var rows)
{
    struct tape *t = b->t;
    int64_t n = torch_table_rows(b) * b->m->rotary_dim;
    var sin = op_new(t, "rotary sin", KC_COPY, n, tape_var_dtype(t, rows)), cos = op_new(t, "rotary cos", KC_COPY, n, tape_var_dtype(t, rows));
    var y = rotate(b, x, cos, sin);

    tape_drop(t, cos);
    tape_drop(t, sin);
    return y;
}

/* Queries and keys, rotated in place of what they were: their rotated part, in fp32 where the family
 * does so, then what is not rotated.  Names that last until attention returns go to `kept`. */
static void rotate_both(struct torch_model *b, var *const x[2], var kept[4])
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    const struct family *style = b->family;
    enum dtype dt[2] = { tape_var_dtype(t, *x[0]), tape_var_dtype(t, *x[1]) };
    bool splits = style->partial_rotary && m->rotary_dim < m->head_dim;
    var turned[2], pass[2] = { 0 }, cos, sin;

    tables(b, &cos, &sin);
    for (int i = 0; i < 2; i++) {
        int64_t n = tape_var_numel(t, *x[i]), r = n / m->head_dim * m->rotary_dim;
        turned[i] = splits ? op_slice(t, "rotary part", *x[i], r) : tape_hold(t, *x[i]);
        pass[i] = splits ? op_slice(t, "rotary rest", *x[i], n - r) : 0;
    }
    for (int i = 0; i < 2 && style->rotary_upcast; i++)
        turned[i] = tmp(t, turned[i], op_cast(t, turned[i], DT_FP32));
    if (style->position_table) {                /* keys first */
        turned[1] = tmp(t, turned[1], rotate_by_rows(b, turned[1], cos));
        turned[0] = tmp(t, turned[0], rotate_by_rows(b, turned[0], cos));
    }
    for (int i = 0; i < 2 && !style->position_table; i++)
        turned[i] = tmp(t, turned[i], rotate(b, turned[i], cos, sin));
    for (int i = 0; i < 2 && (style->rotary_upcast || style->rotary_fp32); i++)
        turned[i] = tmp(t, turned[i], op_cast(t, turned[i], dt[i]));
    for (int i = 0; i < 2; i++) {
        var y = style->partial_rotary ? op_cat2(t, "rotary pass", turned[i], pass[i]) : tape_hold(t, turned[i]);
        if (style->rotary_names) {
            kept[2 * i] = turned[i], kept[2 * i + 1] = pass[i];
        } else {
            tape_drop(t, turned[i]);
            tape_drop(t, pass[i]);
        }
        turned[i] = y;
    }
    for (int i = 0; i < 2; i++) {
        tape_drop(t, *x[i]);
        *x[i] = turned[i];
    }
    tape_drop(t, cos);
    tape_drop(t, sin);
}

/* ministral3: q times a number for each position. */
static void scale_rotated(struct torch_model *b, var *q)
{
    var scale = op_new(b->t, "position scale", KC_ELEMENTWISE, b->p->seq, b->dt);

    *q = tmp(b->t, *q, op_mul_const(b->t, "scale q", *q, scale));
    tape_drop(b->t, scale);
}

/* FalconAttention._split_heads(): keys and values are picked by index, which copies, and in the
 * new architecture broadcast to every query head, which copies again. */
static struct qkv split_falcon(struct torch_model *b, var all)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t q = b->tokens * m->heads * m->head_dim, kv = b->tokens * m->kv_heads * m->head_dim;
    int64_t group = m->heads / m->kv_heads;
    bool grouped = m->kv_heads > 1 && group > 1;
    struct qkv out = { .q = op_slice(t, "q of qkv", all, q), .all = all };

    out.k = group > 1 ? op_index(t, "k of qkv", all, kv) : op_slice(t, "k of qkv", all, kv);
    out.v = group > 1 ? op_index(t, "v of qkv", all, kv) : op_slice(t, "v of qkv", all, kv);
    if (grouped) {
        var k = op_expand(t, "broadcast k", out.k, group), v = op_expand(t, "broadcast v", out.v, group);
        out.q = tmp(t, out.q, op_copy(t, "flatten q", out.q, true));
        tape_drop(t, out.k);
        tape_drop(t, out.v);
        out.k = tmp(t, k, op_copy(t, "flatten k", k, true));
        out.v = tmp(t, v, op_copy(t, "flatten v", v, true));
    }
    return out;
}

/* Layouts in which the gradient of a projection of (batch, heads, seq, head_dim) has to be copied to be viewed as it was: eager attention's
 * lie by heads, as the ring's do; Ulysses' by positions, then by sequences. */
static bool gradients_move(const struct torch_model *b)
{
    bool moved = torch_is_verls_ulysses(b) ? false : torch_is_ulysses(b) ? b->p->micro_batch > 1 : b->context > 1 && b->m->kv_heads > 1;

    return b->p->kernels == KERNELS_TORCH_EAGER || moved;
}

/* liger_rotary_pos_emb(), in the place of apply_rotary_pos_emb(). */
static void rotate_by_liger(struct torch_model *b, var *const x[2])
{
    var cos, sin;

    tables(b, &cos, &sin);
    op_liger_rope(b->t, "liger rotary", x, cos, sin, b->m->fused_qkv, gradients_move(b));
    tape_drop(b->t, cos);
    tape_drop(b->t, sin);
}

/* What projections give, as (batch, heads, seq, head_dim) views.  Their gradients
 * come back in another layout and are copied, unless the attention kernel returns
 * them as they lay. */
static struct qkv project(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    bool eager = b->p->kernels == KERNELS_TORCH_EAGER, rope = m->position == POS_ROPE, liger = b->p->liger.rope;
    int64_t d = m->head_dim, q = m->heads * d, kv = m->kv_heads * d;
    struct qkv out = { 0 };

    if (m->fused_qkv) {
        var all = torch_linear(b, GEMM("qkv"), x, q + 2 * kv, m->hidden, ROLE_QKV), part[3];
        if (b->family->falcon)
            return split_falcon(b, all);
        op_split(t, "qkv split", all, 3,
                 (int64_t[]){ b->tokens * q, b->tokens * kv, b->tokens * kv }, part);
        tape_drop(t, all);
        out.k = tmp(t, part[1], op_view(t, part[1], rope && !liger));
        out.v = tmp(t, part[2], op_view(t, part[2], eager));
        out.q = tmp(t, part[0], op_view(t, part[0], (rope || eager) && !liger));
        return out;
    }
    static const enum tensor_role role[3] = { ROLE_Q, ROLE_K, ROLE_V };
    static const enum tensor_role norms[3] = { ROLE_Q_NORM, ROLE_K_NORM };
    const struct gemm_names *const names[3] = { GEMM("q"), GEMM("k"), GEMM("v") };
    const int64_t width[3] = { q, kv, kv };
    bool late = b->family->complex_rotary;           /* rotated as they were projected, transposed afterwards */
    bool turns = eager && !model_windowed(&b->as->model, b->traced);
    const bool copies[3] = { late ? turns : (rope || eager) && !liger, late ? turns : rope && !liger, gradients_move(b) };
    var made[3];
    for (int i = 0; i < 3; i++) {
        made[i] = torch_linear(b, names[i], x, width[i], m->hidden, role[i]);
        if (i == 0 && b->family->scaled_query)
            made[i] = tmp(t, made[i], op_mul_const(t, "scale q", made[i], 0));
        if (i < 2 && m->qk_norm && b->family->qk_norm_first)
            made[i] = tmp(t, made[i], torch_qk_norm(b, made[i], width[i], norms[i]));
        if (!m->qk_norm || b->family->qk_norm_first)
            made[i] = tmp(t, made[i], op_view(t, made[i], copies[i]));
    }
    for (int i = 0; i < 3 && m->qk_norm && !b->family->qk_norm_first; i++) {
        if (i < 2 && !b->family->qk_norm_rotated)
            made[i] = tmp(t, made[i], torch_qk_norm(b, made[i], width[i], norms[i]));
        made[i] = tmp(t, made[i], op_view(t, made[i], copies[i]));
    }
    return (struct qkv){ .q = made[0], .k = made[1], .v = made[2] };
}

/* repeat_kv(): one head of keys or values is repeated by a view. */
static var repeat_kv(struct torch_model *b, const char *name, var x, int64_t group)
{
    if (group == 1 || (b->family->falcon && b->m->kv_heads > 1))     /* falcon has broadcast them */
        return tape_hold(b->t, x);
    return b->m->kv_heads == 1 ? op_expand(b->t, name, x, group) : op_repeat(b->t, name, x, group);
}

/* The mask added to scores; of mpt the bias, handed to blocks as tables are, then masked_fill(). */
static var mask_scores(struct torch_model *b, var w)
{
    struct tape *t = b->t;

    if (!b->bias)
        return tmp(t, w, op_add(t, "mask scores", w, b->mask));
    var bias = torch_casts_tables(b) ? op_cast(t, b->bias, b->dt) : tape_hold(t, b->bias);
    w = tmp(t, w, op_add(t, "position bias", w, bias));
    w = tmp(t, w, op_mul_const(t, "mask scores", w, b->mask));
    tape_drop(t, bias);
    return w;
}

/* GPT-OSS: a number for each head beside its scores, the largest taken from all of them before the softmax.  Leaves probabilities
 * without that of the number; `combined` keeps its name until attention returns. */
static var softmax_with_sinks(struct torch_model *b, var w, var *combined)
{
    struct tape *t = b->t;
    int64_t s = b->p->seq, heads = b->m->heads, rows = b->p->micro_batch * heads * s;
    var sinks = torch_param(b, torch_gradient_of(b, ROLE_SINKS, false), heads), index;
    var wide = op_expand(t, "sinks", sinks, b->p->micro_batch * s);
    var all = op_cat2(t, "scores and sinks", w, wide);
    var most = tape_topk(t, all, rows, 1, &index);
    tape_drop(t, index);
    var spread = op_expand(t, "largest score", most, s + 1), negated = op_view(t, spread, true);

    *combined = op_add(t, "scores less the largest", all, negated);
    const var names[] = { sinks, wide, all, most, spread, negated };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    var p = op_unary(t, "softmax", KC_SOFTMAX, *combined, SAVE_OUT);
    return tmp(t, p, op_slice(t, "scores of keys", p, rows * s));
}

/* In fp32 where the family multiplies so, which autocast takes back. */
static var widened(struct torch_model *b, var x)
{
    if (!b->family->wide_scores)
        return tape_hold(b->t, x);
    var wide = op_cast(b->t, x, DT_FP32);
    return tmp(b->t, wide, torch_bf16_if_autocast(b, wide));
}

/* Scores, softmax and weighted sum, each a kernel; the T x T matrices are saved. */
static var eager_core(struct torch_model *b, const struct qkv *in)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t s = b->p->seq, d = m->head_dim, batch = b->p->micro_batch * m->heads;
    int64_t group = m->heads / m->kv_heads;
    bool strided = b->p->micro_batch > 1;       /* a batch of one can be viewed as it lies; */
    bool concatenated = m->kv_rank > 0;         /* so can q and k that were concatenated by heads */
    bool upcasts = !b->family->low_softmax;
    bool views = group == 1 || m->kv_heads == 1;        /* not copied by repeat_kv() */
    bool in_place = b->family->falcon;           /* scores /= sqrt(d) */
    bool late = b->family->falcon && m->kv_heads == 1;   /* matmul itself broadcasts */
    var k = repeat_kv(b, "repeat k", in->k, group), v = late ? 0 : repeat_kv(b, "repeat v", in->v, group);

    var wide_q = widened(b, in->q), wide_k = widened(b, k);
    var qc = op_copy(t, "copy q", wide_q, strided && !concatenated);
    var kc = op_copy(t, "copy k", wide_k, strided && views && !concatenated);
    var k16 = torch_bf16_if_autocast(b, kc), q16 = torch_bf16_if_autocast(b, qc);
    tape_drop(t, qc);
    tape_drop(t, kc);
    var w = op_matmul(t, "attention scores", q16, k16, batch, s, s, d);
    const var factors[] = { q16, k16, wide_q, wide_k };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        tape_drop(t, factors[i]);
    w = tmp(t, w, in_place ? op_view(t, w, true) : op_mul_const(t, "scale scores", w, 0));
    if (m->softcap > 0) {               /* Gemma 2 caps its scores as it does its logits */
        w = tmp(t, w, op_mul_const(t, "softcap scores", w, 0));
        w = tmp(t, w, op_unary(t, "softcap tanh", KC_ELEMENTWISE, w, SAVE_OUT));
        w = tmp(t, w, op_mul_const(t, "softcap scores", w, 0));
    }
    w = mask_scores(b, w);
    enum dtype dt = tape_var_dtype(t, upcasts ? in->q : in->v);
    var combined = 0, p;
    if (b->family->sinks) {
        p = softmax_with_sinks(b, w, &combined);
    } else {
        var w32 = upcasts || b->autocast ? op_cast(t, w, DT_FP32) : tape_hold(t, w);
        p = tmp(t, w32, op_unary(t, "softmax", KC_SOFTMAX, w32, SAVE_OUT));
        p = tmp(t, p, op_cast(t, p, dt));
    }
    tape_drop(t, w);
    p = tmp(t, p, op_dropout(t, "attention dropout", p, b->family->attn_dropout ? torch_rate(b, b->m->attn_dropout) : 0));
    v = late ? repeat_kv(b, "repeat v", in->v, group) : v;
    var vc = op_copy(t, "copy v", v, strided && views);
    var v16 = torch_bf16_if_autocast(b, vc), p16 = torch_bf16_if_autocast(b, p);
    tape_drop(t, vc);
    var o = op_matmul(t, "attention values", p16, v16, batch, s, value_dim(m), s);
    tape_drop(t, p16);
    tape_drop(t, v16);
    b->weights = p;                     /* returned beside the output */
    o = tmp(t, o, op_view(t, o, strided));
    o = tmp(t, o, op_copy(t, "merge heads", o, true));
    tape_drop(t, k);
    tape_drop(t, v);
    tape_drop(t, combined);
    return o;
}

/* convert_boolean_attn_mask(): a bool mask becomes an additive one, in every layer anew, and is kept
 * for backward.  An additive one (ALiBi) is taken as it is. */
static var additive_mask(struct torch_model *b, enum dtype dt)
{
    struct tape *t = b->t;

    if (!attention_masked(b->as) || !b->mask)
        return 0;
    if (tape_var_dtype(t, b->mask) != DT_UINT8)
        return op_cast(t, b->mask, dt);
    var low = op_new(t, "mask constant", KC_COPY, 1, dt), zero = op_new(t, "mask constant", KC_COPY, 1, dt);
    var mask = op_new(t, "attention mask", KC_ELEMENTWISE, b->p->micro_batch * b->p->seq * b->p->seq, dt);
    tape_drop(t, low);
    tape_drop(t, zero);
    return mask;
}

/* Partial outputs of half the queries are joined by a copy. */
static bool lies_by_heads(const struct torch_model *b)
{
    return b->context > 1 && b->p->parallel.context_balance && b->place < b->context - 1;
}

/* The same among context-parallel ranks. */
static var ring_core(struct torch_model *b, const struct qkv *in, int64_t lse_numel, double flops)
{
    const struct parallel_options *of = &b->p->parallel;
    struct ring r = { .ranks = of->context, .place = b->place, .rotates = of->context_method == CONTEXT_RING,
                      .balanced = of->context_balance, .one_kv_head = b->m->kv_heads == 1, .lse_numel = lse_numel,
                      .scratch = attention_scratch(b->as) - attention_scratch_of_keys(b->as), .keys = attention_scratch_of_keys(b->as),
                      .flops = flops };

    return tape_ring_attention(b->t, (const var[]){ in->q, in->k, in->v }, &r);
}

/* PyTorch's fused kernels.  The memory-efficient one pads its log-sum-exp to 32 rows; FlashAttention-2 keeps seed and offset in one
 * tensor, beside one that is not used. */
static var fused_core(struct torch_model *b, const struct qkv *in)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t s = b->p->seq, heads = b->p->micro_batch * m->heads, group = m->heads / m->kv_heads;
    bool repeats = attention_repeats(b->as), efficient = b->kernel == ATTENTION_EFFICIENT;
    var k1 = repeats ? repeat_kv(b, "repeat k", in->k, group) : tape_hold(t, in->k);
    var v1 = repeats ? repeat_kv(b, "repeat v", in->v, group) : tape_hold(t, in->v);
    var q = torch_bf16_if_autocast(b, in->q), k = torch_bf16_if_autocast(b, k1), v = torch_bf16_if_autocast(b, v1);
    var mask = additive_mask(b, tape_var_dtype(t, q));
    double flops = 2.0 * (double)heads * (double)s * (double)s * (double)(m->head_dim + value_dim(m));
    int64_t lse = heads * (efficient ? round_up(s, 32) : s);
    var o = b->context > 1 ? ring_core(b, &(struct qkv){ .q = q, .k = k, .v = v }, lse, flops)
            : op_attention(t, "attention", (const var[]){ q, k, v, mask }, heads * s * value_dim(m), lse, b->kernel == ATTENTION_FLASH ? 2 : 1,
                           attention_scratch(b->as), flops);

    tape_drop(t, mask);
    tape_drop(t, q);
    tape_drop(t, k);
    tape_drop(t, v);
    /* The output lies as q does, of the memory-efficient kernel with positions outermost: heads are merged by a view, unless q was
     * concatenated by heads, or partial outputs were. */
    bool by_heads = b->family->partial_rotary && !b->family->position_table;
    bool concatenated = (by_heads || m->kv_rank > 0) && !efficient;
    o = tmp(t, o, op_copy(t, "merge heads", o, concatenated || lies_by_heads(b) || torch_joins(b, ROLE_Q)));
    tape_drop(t, k1);
    tape_drop(t, v1);
    return o;
}

var torch_attention_core(struct torch_model *b, var q, var k, var v)
{
    const struct qkv in = { .q = q, .k = k, .v = v };

    if (torch_is_ulysses(b))
        return torch_ulysses(b, (const var[]){ q, k, v });
    return b->kernel > ATTENTION_MATH ? fused_core(b, &in) : eager_core(b, &in);
}

/* The same under torch.utils.checkpoint: only q, k, v and the mask are held. */
static var checkpointed_core(struct torch_model *b, const struct qkv *in)
{
    struct tape *t = b->t;
    struct torch_region *r = &b->region[b->nregions++];
    const var args[TORCH_ARGS] = { in->q, in->k, in->v, torch_mask(b), b->bias };
    int before = t->nsavers;

    *r = (struct torch_region){ .node0 = t->nnodes };
    for (int i = 0; i < TORCH_ARGS; i++)
        r->args[i] = tape_hold(t, args[i]);
    t->forget = true;
    r->out = torch_attention_core(b, in->q, in->k, in->v);
    t->forget = false;
    r->node1 = t->nnodes;
    r->savers = t->nsavers - before;
    var out = r->out;
    if (!tape_wants_grad(t, out)) {     /* no node holds what it would need: it is gone when attention returns */
        for (int i = 0; i < TORCH_ARGS; i++)
            tape_drop(t, r->args[i]);
        b->nregions--;
    }
    return out;
}

var torch_attention(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    bool latent = m->kv_rank > 0;
    var kept[4] = { 0 };
    var all = torch_enter(b, x, ROLE_Q);
    struct qkv in = latent ? torch_latent(b, all, kept) : project(b, all);
    tape_parts_gathered(t);

    if (b->family->complex_rotary)
        torch_llama4_positions(b, (var *const[]){ &in.q, &in.k }, kept);
    else if (b->p->liger.rope)
        rotate_by_liger(b, (var *const[]){ &in.q, &in.k });
    else if (m->position == POS_ROPE && !latent)
        rotate_both(b, (var *const[]){ &in.q, &in.k }, kept);
    if (b->family->scaled_rotated)
        scale_rotated(b, &in.q);
    if (m->qk_norm && b->family->qk_norm_rotated) {
        in.q = tmp(t, in.q, torch_qk_norm(b, in.q, m->heads * m->head_dim, ROLE_Q_NORM));
        in.k = tmp(t, in.k, torch_qk_norm(b, in.k, m->kv_heads * m->head_dim, ROLE_K_NORM));
    }
    var o = b->selective ? checkpointed_core(b, &in) : torch_attention_core(b, in.q, in.k, in.v);
    if (t->compiled) {                  /* a graph has no names */
        tape_drop(t, all);
        all = 0;
    }
    t->unneeded = b->ranks > 1 && t->compiled && t->cached && !t->stopped;      /* its sum over the ranks is kept */
    o = tmp(t, o, torch_linear_leaving(b, GEMM("attention output"), o, m->hidden, m->heads * value_dim(m), ROLE_ATTN_OUT));
    t->unneeded = false;
    if (b->family->keeps_names)
        o = tmp(t, o, op_dropout(t, "attention output dropout", o, b->p->dropout));
    tape_drop(t, in.q);
    tape_drop(t, in.k);
    tape_drop(t, in.v);
    tape_drop(t, in.all);
    for (int i = 0; i < 4; i++)
        tape_drop(t, kept[i]);
    tape_drop(t, all);
    return o;
}
