/* torch_parts.c -- linear layers, norms and attention on the tape. */
#include "model/torch_parts.h"

#include <string.h>

static var tmp(struct tape *t, var used, var result)
{
    drop(t, used);
    return result;
}

/* ---- parameters ---- */

static int first_tensor(const struct model *m, int block)
{
    return block >= 0 ? m->block0 : 0;
}

int piece_tensor(const struct model *m, int block, enum tensor_role role, bool bias)
{
    int at = 0;

    for (int i = first_tensor(m, block); i < m->ntensors; i++) {
        const struct tensor *x = &m->tensors[i];
        if (block >= 0 ? i >= m->block0 + m->per_block : x->block != block)
            continue;
        if (x->role == role && x->is_bias == bias)
            return at;
        at++;
    }
    return -1;
}

int piece_module(const struct model *m, int block, enum tensor_role role)
{
    int at = -1, last = -1;

    for (int i = first_tensor(m, block); i < m->ntensors; i++) {
        const struct tensor *x = &m->tensors[i];
        if (block >= 0 ? i >= m->block0 + m->per_block : x->block != block)
            continue;
        if (x->module != last)
            at++;
        last = x->module;
        if (x->role == role)
            return at;
    }
    return -1;
}

/* A parameter as an operation reads it: under autocast a bf16 copy, made once. */
static var param(struct torch_model *b, enum tensor_role role, bool bias, int64_t numel, bool casts)
{
    struct tape *t = b->t;
    int tensor = piece_tensor(b->m, b->block, role, bias);

    if (role == ROLE_HEAD && tensor < 0 && !bias)
        tensor = TAPE_TIED;
    if (tensor < 0)
        return 0;
    var w = op_param(t, tensor, numel, b->param_dt);
    if (!b->autocast || !casts)
        return w;
    w = op_cast(t, w, DT_BF16);
    if (b->ncasts < (int)(sizeof b->casts / sizeof b->casts[0]))
        b->casts[b->ncasts++] = hold(t, w);
    return w;
}

void leave_autocast(struct torch_model *b)
{
    for (int i = 0; i < b->ncasts; i++)
        drop(b->t, b->casts[i]);
    b->ncasts = 0;
}

var fp32_if_autocast(struct torch_model *b, var x)
{
    return b->autocast ? op_cast(b->t, x, DT_FP32) : hold(b->t, x);
}

static var bf16_if_autocast(struct torch_model *b, var x)
{
    return b->autocast ? op_cast(b->t, x, DT_BF16) : hold(b->t, x);
}

var op_view_add(struct torch_model *b, var x) { return op_add(b->t, "add one", x, 0); }

var op_add_rows(struct torch_model *b, var x, var y)
{
    var rows = op_view(b->t, y, b->p->micro_batch > 1);     /* back: summed over the batch */
    var sum = op_add(b->t, "position add", x, rows);

    drop(b->t, rows);
    return sum;
}

var linear(struct torch_model *b, const struct gemm_names *names, var x, int64_t n, int64_t k,
           enum tensor_role role)
{
    struct tape *t = b->t;

    t->module = piece_module(b->m, b->block, role);
    if (role == ROLE_HEAD && t->module < 0)
        t->module = MODULE_TIED;
    /* Autocast's arguments are cast last to first: addmm(b, x, W), linear(x, W, b). */
    bool conv1d = b->style->conv1d && role != ROLE_HEAD;
    var bias = conv1d ? 0 : param(b, role, true, n, true);
    var w = param(b, role, false, n * k, true);
    var in = bf16_if_autocast(b, x);
    if (conv1d)
        bias = param(b, role, true, n, true);
    var y = op_linear(t, names, in, n, k, w, bias, !bias);
    drop(t, bias);
    drop(t, in);
    drop(t, w);
    t->module = -1;
    return y;
}

/* ---- norms ---- */

/* x32 = x.float(); y = x32 * rsqrt(mean(x32^2)); weight * y.to(x.dtype).  Gemma and OLMo
 * multiply in fp32 and cast last. */
static var rms_norm(struct torch_model *b, const char *name, var x, int64_t width, var w)
{
    struct tape *t = b->t;
    enum dtype dt = var_dtype(t, x);
    var x32 = op_cast(t, x, DT_FP32);
    var r = op_rms(t, x32, var_numel(t, x) / width);
    var y = op_mul_rows(t, name, x32, r);

    drop(t, x32);
    drop(t, r);
    if (b->style->one_plus_weight) {
        var w32 = op_cast(t, w, DT_FP32);
        var one = op_view_add(b, w32);
        var z = op_scale(t, name, y, one);
        drop(t, w32);
        drop(t, one);
        drop(t, y);
        return tmp(t, z, op_cast(t, z, dt));
    }
    if (b->style->fp32_weight) {
        y = tmp(t, y, op_scale(t, name, y, w));
        return tmp(t, y, op_cast(t, y, dt));
    }
    var z = op_cast(t, y, dt);
    var out = op_scale(t, name, z, w);
    drop(t, y);
    drop(t, z);
    return out;
}

/* x32 = x.float(); (x32 - mean) * rsqrt(mean((x32 - mean)^2)): the difference is taken twice. */
static var centred_norm(struct torch_model *b, const char *name, var x, int64_t width, var w)
{
    struct tape *t = b->t;
    enum dtype dt = var_dtype(t, x);
    var x32 = op_cast(t, x, DT_FP32);
    var squared = op_add(t, name, x32, 0);
    var r = op_rms(t, squared, var_numel(t, x) / width);
    var centred = op_add(t, name, x32, 0);
    var y = op_mul_rows(t, name, centred, r);
    const var names[] = { x32, squared, r, centred };

    for (int i = 0; i < 4; i++)
        drop(t, names[i]);
    var w32 = op_cast(t, w, DT_FP32);
    y = tmp(t, y, op_scale(t, name, y, w32));
    drop(t, w32);
    return tmp(t, y, op_cast(t, y, dt));
}

/* LayerNorm with weight 1 + w.  Under autocast it casts its arguments itself. */
static var layer_norm_1p(struct torch_model *b, const char *name, var x, int64_t width, var w, var bias)
{
    struct tape *t = b->t;
    var one = op_view_add(b, w);

    one = tmp(t, one, bf16_if_autocast(b, one));
    var bias16 = bf16_if_autocast(b, bias), in = bf16_if_autocast(b, x);
    var out = op_layer_norm(t, name, in, var_numel(t, x) / width, one, bias16);
    drop(t, one);
    drop(t, bias16);
    drop(t, in);
    return out;
}

/* Over rows of `width`, with so many weights: more where every head has its own. */
static var norm_of(struct torch_model *b, const char *name, var x, int64_t width, int64_t weights,
                   enum tensor_role role)
{
    struct tape *t = b->t;

    t->module = piece_module(b->m, b->block, role);
    var w = param(b, role, false, weights, false), out;
    if (b->m->norm == NORM_RMS) {
        out = rms_norm(b, name, x, width, w);
    } else if (b->style->centred_by_hand) {
        out = centred_norm(b, name, x, width, w);
    } else if (b->style->layer_norm_1p) {
        out = layer_norm_1p(b, name, x, width, w, param(b, role, true, width, false));
    } else {
        var x32 = fp32_if_autocast(b, x);
        var bias = param(b, role, true, width, false);
        out = op_layer_norm(t, name, x32, var_numel(t, x) / width, w, bias);
        drop(t, x32);
    }
    t->module = -1;
    return out;
}

var norm(struct torch_model *b, const char *name, var x, enum tensor_role role)
{
    return norm_of(b, name, x, b->m->hidden, b->m->hidden, role);
}

/* A LayerNorm for each head, of a view of it; then the heads are put together again.  Here as
 * one norm, whose weights are many. */
static var listed_norm(struct torch_model *b, var x, int64_t width, enum tensor_role role)
{
    struct tape *t = b->t;
    int64_t d = b->m->head_dim;

    t->module = piece_module(b->m, b->block, role);
    var in = op_view(t, x, true);               /* back: the heads' gradients are put together */
    var x32 = fp32_if_autocast(b, in);
    var y = op_layer_norm(t, "qk norm", x32, var_numel(t, x) / d, 0, 0);
    drop(t, in);
    drop(t, x32);
    y = tmp(t, y, op_listed(t, y, piece_tensor(b->m, b->block, role, false), width / d, d, b->param_dt));
    t->module = -1;
    return tmp(t, y, op_cat2(t, "qk norm heads", y, 0));
}

/* ---- attention ---- */

struct qkv { var q, k, v; };

/* x * cos + cat(-x2, x1) * sin. */
static var rotate(struct torch_model *b, var x, var cos, var sin)
{
    struct tape *t = b->t;
    int64_t half = var_numel(t, x) / 2;
    var a = op_mul_const(t, "rotary cos", x, cos);
    var x1 = op_slice(t, "rotary half", x, half), x2 = op_slice(t, "rotary half", x, half);
    var neg = op_unary(t, "rotary neg", KC_ELEMENTWISE, x2, SAVE_NONE);

    drop(t, x2);
    var turned = op_cat2(t, "rotary cat", neg, x1);
    drop(t, neg);
    drop(t, x1);
    turned = tmp(t, turned, op_mul_const(t, "rotary sin", turned, sin));
    var y = op_add(t, "rotary add", a, turned);
    drop(t, a);
    drop(t, turned);
    return y;
}

/* The rotated part of every head, in fp32 where the family does so, then what is not rotated.
 * Names that last until attention returns go to `kept`. */
static var rotate_part(struct torch_model *b, var x, var cos, var sin, var kept[2])
{
    struct tape *t = b->t;
    enum dtype dt = var_dtype(t, x);
    int64_t all = var_numel(t, x), turned = all / b->m->head_dim * b->m->rotary_dim;
    bool splits = b->style->partial_rotary && turned < all;
    var part = splits ? op_slice(t, "rotary part", x, turned) : hold(t, x);
    var pass = splits ? op_slice(t, "rotary rest", x, all - turned) : 0;

    if (b->style->rotary_upcast)
        part = tmp(t, part, op_cast(t, part, DT_FP32));
    part = tmp(t, part, rotate(b, part, cos, sin));
    if (b->style->rotary_upcast || b->style->rotary_fp32)
        part = tmp(t, part, op_cast(t, part, dt));
    var y = b->style->partial_rotary ? op_cat2(t, "rotary pass", part, pass) : hold(t, part);
    if (b->style->rotary_names) {
        kept[0] = part, kept[1] = pass;
        return y;
    }
    drop(t, part);
    drop(t, pass);
    return y;
}

/* q and k rotated in place of what they were. */
static void rotate_both(struct torch_model *b, struct qkv *in, var kept[4])
{
    struct tape *t = b->t;
    var cos = hold(t, b->cos), sin = hold(t, b->sin);

    if (torch_casts_tables(b)) {
        cos = tmp(t, cos, op_cast(t, cos, b->dt));
        sin = tmp(t, sin, op_cast(t, sin, b->dt));
    }
    if (b->style->rotary_interleaved) {
        int64_t n = b->p->seq * b->m->rotary_dim;
        enum dtype dt = var_dtype(t, cos);
        cos = tmp(t, cos, op_new(t, "rotary cos", KC_COPY, n, dt));
        sin = tmp(t, sin, op_new(t, "rotary sin", KC_COPY, n, dt));
    }
    var q = rotate_part(b, in->q, cos, sin, kept), k = rotate_part(b, in->k, cos, sin, kept + 2);
    drop(t, in->q);
    drop(t, in->k);
    drop(t, cos);
    drop(t, sin);
    in->q = q;
    in->k = k;
    if (b->style->scaled_rotated) {
        var scale = op_new(t, "position scale", KC_ELEMENTWISE, b->p->seq, b->dt);
        in->q = tmp(t, in->q, op_mul_const(t, "scale q", in->q, scale));
        drop(t, scale);
    }
}

/* The norm of q or k. */
static var qk_norm(struct torch_model *b, var x, int64_t width, enum tensor_role role)
{
    int64_t row = b->style->qk_norm_whole ? width : b->m->head_dim;

    if (b->style->qk_norm_listed)
        return listed_norm(b, x, width, role);
    return norm_of(b, "qk norm", x, row, b->style->centred_by_hand ? width : row, role);
}

/* What projections give, as (batch, heads, seq, head_dim) views.  Their gradients
 * come back in another layout and are copied, unless the attention kernel returns
 * them as they lay. */
static struct qkv project(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    bool eager = b->p->kernels == KERNELS_TORCH_EAGER, rope = m->position == POS_ROPE;
    int64_t d = m->head_dim, q = m->heads * d, kv = m->kv_heads * d;
    struct qkv out;

    if (m->fused_qkv) {
        var all = linear(b, GEMM("qkv"), x, q + 2 * kv, m->hidden, ROLE_QKV), part[3];
        op_split(t, "qkv split", all, 3,
                 (int64_t[]){ b->tokens * q, b->tokens * kv, b->tokens * kv }, part);
        drop(t, all);
        out.k = tmp(t, part[1], op_view(t, part[1], rope));
        out.v = tmp(t, part[2], op_view(t, part[2], eager));
        out.q = tmp(t, part[0], op_view(t, part[0], rope || eager));
        return out;
    }
    static const enum tensor_role role[3] = { ROLE_Q, ROLE_K, ROLE_V };
    static const enum tensor_role norms[3] = { ROLE_Q_NORM, ROLE_K_NORM };
    const struct gemm_names *const names[3] = { GEMM("q"), GEMM("k"), GEMM("v") };
    const int64_t width[3] = { q, kv, kv };
    const bool copies[3] = { rope || eager, rope, eager };
    var made[3];
    for (int i = 0; i < 3; i++) {
        made[i] = linear(b, names[i], x, width[i], m->hidden, role[i]);
        if (i == 0 && b->style->scaled_query)
            made[i] = tmp(t, made[i], op_mul_const(t, "scale q", made[i], 0));
        if (i < 2 && m->qk_norm && b->style->qk_norm_first)
            made[i] = tmp(t, made[i], qk_norm(b, made[i], width[i], norms[i]));
        if (!m->qk_norm || b->style->qk_norm_first)
            made[i] = tmp(t, made[i], op_view(t, made[i], copies[i]));
    }
    for (int i = 0; i < 3 && m->qk_norm && !b->style->qk_norm_first; i++) {
        if (i < 2 && !b->style->qk_norm_rotated)
            made[i] = tmp(t, made[i], qk_norm(b, made[i], width[i], norms[i]));
        made[i] = tmp(t, made[i], op_view(t, made[i], copies[i]));
    }
    return (struct qkv){ made[0], made[1], made[2] };
}

/* Scores, softmax and weighted sum, each a kernel; the T x T matrices are saved. */
static var eager_core(struct torch_model *b, const struct qkv *in)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t s = b->p->seq, d = m->head_dim, batch = b->p->micro_batch * m->heads;
    int64_t group = m->heads / m->kv_heads;
    bool strided = b->p->micro_batch > 1;       /* a batch of one can be viewed as it lies */
    bool upcasts = !b->style->low_softmax;
    var k = group > 1 ? op_repeat(t, "repeat k", in->k, group) : hold(t, in->k);
    var v = group > 1 ? op_repeat(t, "repeat v", in->v, group) : hold(t, in->v);

    var qc = op_copy(t, "copy q", in->q, strided);
    var kc = op_copy(t, "copy k", k, strided && group == 1);
    var k16 = bf16_if_autocast(b, kc), q16 = bf16_if_autocast(b, qc);
    drop(t, qc);
    drop(t, kc);
    var w = op_matmul(t, "attention scores", q16, k16, batch, s, s, d);
    drop(t, q16);
    drop(t, k16);
    w = tmp(t, w, op_mul_const(t, "scale scores", w, 0));
    if (m->softcap > 0) {               /* Gemma 2 caps its scores as it does its logits */
        w = tmp(t, w, op_mul_const(t, "softcap scores", w, 0));
        w = tmp(t, w, op_unary(t, "softcap tanh", KC_ELEMENTWISE, w, SAVE_OUT));
        w = tmp(t, w, op_mul_const(t, "softcap scores", w, 0));
    }
    w = tmp(t, w, op_add(t, "mask scores", w, b->mask));
    enum dtype dt = var_dtype(t, upcasts ? in->q : in->v);
    var w32 = upcasts || b->autocast ? op_cast(t, w, DT_FP32) : hold(t, w);
    var p = tmp(t, w32, op_unary(t, "softmax", KC_SOFTMAX, w32, SAVE_OUT));
    p = tmp(t, p, op_cast(t, p, dt));
    drop(t, w);
    p = tmp(t, p, op_dropout(t, "attention dropout", p, b->style->attn_dropout ? b->p->dropout : 0));
    var vc = op_copy(t, "copy v", v, strided && group == 1);
    var v16 = bf16_if_autocast(b, vc), p16 = bf16_if_autocast(b, p);
    drop(t, vc);
    var o = op_matmul(t, "attention values", p16, v16, batch, s, d, s);
    drop(t, p16);
    drop(t, v16);
    b->weights = p;                     /* returned beside the output */
    o = tmp(t, o, op_view(t, o, strided));
    o = tmp(t, o, op_copy(t, "merge heads", o, true));
    drop(t, k);
    drop(t, v);
    return o;
}

/* What flash attention's backward allocates inside its kernel call: dQ in fp32 and a
 * row sum, rows rounded up to 128, heads to 32; with grouped queries dK and dV of all
 * heads.  PyTorch's own trackers, which see operators, do not count it. */
static int64_t flash_scratch(const struct torch_model *b)
{
    const struct model *m = b->m;
    int64_t heads = b->p->micro_batch * m->heads, rows = round_up(b->p->seq, 128);
    int64_t dq = 4 * heads * rows * round_up(m->head_dim, 32), sums = 4 * heads * rows;
    int64_t expanded = m->kv_heads == m->heads ? 0 : 2 * 2 * heads * b->p->seq * m->head_dim;

    return dq + sums + expanded;
}

/* Flash attention for 16-bit, the memory-efficient kernel for fp32 (its log-sum-exp
 * is padded to 32 rows). */
static var fused_core(struct torch_model *b, const struct qkv *in)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t s = b->p->seq, heads = b->p->micro_batch * m->heads;
    bool flash = b->autocast || b->dt != DT_FP32;
    var q = bf16_if_autocast(b, in->q), k = bf16_if_autocast(b, in->k), v = bf16_if_autocast(b, in->v);
    double flops = 4.0 * (double)heads * (double)s * (double)s * (double)m->head_dim;
    var o = op_attention(t, "attention", q, k, v, heads * (flash ? s : round_up(s, 32)),
                         flash ? flash_scratch(b) : 0, flops);

    drop(t, q);
    drop(t, k);
    drop(t, v);
    /* The output lies as q does: heads are merged by a view, unless q was concatenated. */
    return tmp(t, o, op_copy(t, "merge heads", o, b->style->partial_rotary));
}

var attention_core(struct torch_model *b, var q, var k, var v)
{
    const struct qkv in = { q, k, v };
    /* In fp32 no fused kernel takes grouped queries: PyTorch falls back to single ones. */
    bool fused = b->p->kernels == KERNELS_TORCH_SDPA &&
                 (b->autocast || b->dt != DT_FP32 || b->m->heads == b->m->kv_heads);

    return fused ? fused_core(b, &in) : eager_core(b, &in);
}

/* The same under torch.utils.checkpoint: only q, k, v and the mask are held. */
static var checkpointed_core(struct torch_model *b, const struct qkv *in)
{
    struct tape *t = b->t;
    struct torch_region *r = &b->core;
    const var args[TORCH_ARGS] = { in->q, in->k, in->v, b->mask };
    int before = t->nsavers;

    *r = (struct torch_region){ .node0 = t->nnodes };
    for (int i = 0; i < TORCH_ARGS; i++)
        r->args[i] = hold(t, args[i]);
    t->forget = true;
    r->out = attention_core(b, in->q, in->k, in->v);
    t->forget = false;
    r->node1 = t->nnodes;
    r->savers = t->nsavers - before;
    return r->out;
}

var attention(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    struct qkv in = project(b, x);
    var kept[4] = { 0 };

    if (m->position == POS_ROPE)
        rotate_both(b, &in, kept);
    if (m->qk_norm && b->style->qk_norm_rotated) {
        in.q = tmp(t, in.q, qk_norm(b, in.q, m->heads * m->head_dim, ROLE_Q_NORM));
        in.k = tmp(t, in.k, qk_norm(b, in.k, m->kv_heads * m->head_dim, ROLE_K_NORM));
    }
    var o = b->selective ? checkpointed_core(b, &in) : attention_core(b, in.q, in.k, in.v);
    o = tmp(t, o, linear(b, GEMM("attention output"), o, m->hidden, m->heads * m->head_dim, ROLE_ATTN_OUT));
    if (b->style->keeps_names)
        o = tmp(t, o, op_dropout(t, "attention output dropout", o, b->p->dropout));
    drop(t, in.q);
    drop(t, in.k);
    drop(t, in.v);
    for (int i = 0; i < 4; i++)
        drop(t, kept[i]);
    return o;
}
