/* te_model.c -- see te_model.h.  Read at Megatron-LM d98e8a64: core/models/gpt/gpt_model.py, core/transformer/{transformer_layer,
 * attention,mlp,dot_product_attention}.py, core/models/common/embeddings/language_model_embedding.py; Transformer Engine d0067d0d,
 * pytorch/attention/dot_product_attention/. */
#include "model/program/te_model.h"

#include "model/arch/training.h"
#include "model/plan/plan_groups.h"
#include "model/program/tape_loss.h"
#include "model/program/torch_number.h"
#include "model/program/torch_parts.h"
#include "model/program/tape_te_cast.h"
#include "model/program/tape_te_context.h"
#include "model/program/tape_te_ring.h"
#include "model/program/te_adapter.h"
#include "model/program/te_again.h"
#include "model/program/te_latent.h"
#include "model/program/te_losses.h"
#include "model/program/te_mamba.h"
#include "model/program/te_moe.h"
#include "model/program/te_mtp.h"
#include "model/program/te_sinks.h"

static bool local_kernels(const struct torch_model *b) { return b->p->kernels == KERNELS_MEGATRON_LOCAL; }

/* ---- parameters ---- */

static const struct tensor *tensor_of(const struct torch_model *b, enum tensor_role role, bool bias)
{
    enum piece_id piece = b->block == TENSOR_EMBED ? PIECE_EMBED : b->block <= TENSOR_HEAD ? PIECE_HEAD : PIECE_BLOCK;
    int at = torch_piece_tensor(b->m, b->block, role, bias);

    return at < 0 ? NULL : &b->m->tensors[program_tensor(b->p, piece, b->m->hybrid && b->block >= 0 ? b->block : 0, at)];
}

static var param(const struct torch_model *b, enum tensor_role role, bool bias)
{
    const struct tensor *x = tensor_of(b, role, bias);

    return x ? torch_param(b, torch_gradient_of(b, role, bias), x->numel) : 0;
}

/* Are products given transposed copies?  is_non_tn_fp8_gemm_supported(): from 10.0 to below 12.0. */
static bool te_turns(const struct plan *p)
{
    int arch = p->cluster.gpu.sm_arch;

    return plan_scaled(p) == SCALED_FP8_TENSOR && (arch < 100 || arch >= 120);
}

/* How Transformer Engine casts what the linear layers of blocks read (fp8_utils.py, get_fp8_recipe()); the head is Megatron's own layer. */
static struct te_scaled scaled_of(const struct torch_model *b)
{
    const struct plan *p = b->p;
    enum scaled s = b->block == TENSOR_HEAD || b->unscaled ? SCALED_NONE : plan_scaled(p);
    bool now = s == SCALED_NVFP4 || (s == SCALED_FP8_TENSOR && p->megatron.fp8_recipe == FP8_TENSORWISE);

    return (struct te_scaled){ .format = (uint8_t)s, .now = now, .turned = te_turns(p) };
}

/* The MLP's first layer: of a gated one both halves. */
static enum tensor_role up_of(const struct torch_model *b) { return b->m->mlp == MLP_GATED ? ROLE_GATE_UP : ROLE_UP; }

/* A depth of multi-token prediction has a layer like the decoder's last. */
static bool has_experts(const struct torch_model *b)
{
    return b->block < TENSOR_HEAD ? b->m->experts > 0 : model_has_experts(b->m, b->block);
}

bool te_is_part_of_layer(const struct torch_model *b, enum tensor_role role)
{
    switch (role) {
    case ROLE_NORM_ATTN:                        return b->m->kv_rank == 0;
    case ROLE_NORM_MLP:                         return !has_experts(b);
    case ROLE_Q_A_NORM: case ROLE_KV_A_NORM:    return true;
    default:                                    return false;
    }
}

/* Does the layer behind a norm take over what it wrote as codes?  Where an adapter reads it too it is in 16 bits. */
static bool is_cast(const struct torch_model *b, enum tensor_role norm)
{
    bool adapted = norm == ROLE_NORM_ATTN ? te_is_adapted(b, ROLE_QKV) : norm == ROLE_NORM_MLP && te_is_adapted(b, up_of(b));

    return scaled_of(b).format && te_is_part_of_layer(b, norm) && !adapted;
}

/* TENorm; the others are part of LayerNormLinear. */
static bool norm_is_module(const struct torch_model *b, enum tensor_role role)
{
    bool fused = role == ROLE_NORM_ATTN || role == ROLE_Q_A_NORM || role == ROLE_KV_A_NORM || (role == ROLE_NORM_MLP && !has_experts(b));

    return !local_kernels(b) && !fused;
}

var te_norm_of(struct torch_model *b, const char *name, var x, enum tensor_role role)
{
    const struct tensor *w = tensor_of(b, role, false);
    struct te_scaled f = is_cast(b, role) ? scaled_of(b) : (struct te_scaled){ 0 };

    b->t->module = torch_piece_module(b->m, b->block, role, ADAPTER_NONE);
    var y = te_norm(b->t, name, x, tape_var_numel(b->t, x) / w->numel, param(b, role, false), param(b, role, true), b->m->norm == NORM_RMS, &f,
                    norm_is_module(b, role));
    b->t->module = -1;
    return y;
}

var te_last_use(const struct torch_model *b, enum tensor_role norm, var n)
{
    return is_cast(b, norm) ? 0 : n;
}

struct te_scaled te_scaled_of(const struct torch_model *b) { return scaled_of(b); }

struct te_linear te_linear_of(struct torch_model *b, const struct gemm_names *names, int64_t n, int64_t k, const enum tensor_role *roles, int nroles)
{
    struct te_linear l = { .names = *names, .n = n, .k = k, .ranks = b->ranks, .sequence = b->sequence, .buffered = local_kernels(b),
                           .overlaps = b->p->megatron.tp_comm_overlap && b->block != TENSOR_HEAD,
                           .module = !local_kernels(b) && b->block != TENSOR_HEAD,
                           .scaled = scaled_of(b) };

    l.frozen = !training_is_all(&b->p->train);      /* beside adapters every layer is */
    for (int i = 0; i < nroles; i++) {
        l.weight[i] = param(b, roles[i], false);
        l.bias[i] = param(b, roles[i], true);
        if (l.weight[i])
            b->t->module = torch_piece_module(b->m, b->block, roles[i], ADAPTER_NONE);
    }
    return l;
}

/* ---- attention ---- */

/* Scores, softmax and values by single operations (transformer/dot_product_attention.py, fusions/fused_softmax.py): the mask is in the
 * softmax's kernel. */
static var unfused_core(struct torch_model *b, var q, var k, var v)
{
    struct tape *t = b->t;
    int64_t s = b->p->seq, d = b->m->head_dim, batch = b->p->micro_batch * b->m->heads;
    var w = op_matmul(t, "attention scores", q, k ? k : q, batch, s, s, d);
    var p = tmp(t, w, op_unary(t, "softmax", KC_SOFTMAX, w, SAVE_OUT));

    p = tmp(t, p, op_dropout(t, "attention dropout", p, b->p->dropout));
    var o = op_matmul(t, "attention values", p, v ? v : q, batch, s, d, s);
    return tmp(t, p, o);
}

static int64_t value_dim(const struct model *m) { return m->value_dim > 0 ? m->value_dim : m->head_dim; }

/* Products of every query with every key, and with every value; behind a window twice those that are computed, as causal ones count. */
static double all_scores(const struct plan *p)
{
    double seq = (double)p->seq, window = (double)p->model.window, pairs = p->model.window > 0 && window < seq ? 2 * seq * window - window * window : seq * seq;

    return 2.0 * (double)(p->micro_batch * p->model.heads) * pairs * (double)(p->model.head_dim + value_dim(&p->model));
}

/* attn_forward_func_with_cp(): all-gather; all-to-all; ring; or a ring of runs of ranks that exchange heads, which have more positions of
 * fewer heads. */
static var among_ranks(struct torch_model *b, const var in[3], var sinks, bool turns)
{
    struct tape *t = b->t;
    enum context_method method = b->p->parallel.context_method;
    int64_t run = method == CONTEXT_ULYSSES ? b->context : b->p->megatron.a2a_ranks > 1 ? b->p->megatron.a2a_ranks : 1;
    const struct te_exchange x = { .ranks = run, .group = method == CONTEXT_ULYSSES ? GROUP_CONTEXT : GROUP_CONTEXT_A2A, .turns = turns };
    struct plan as = *b->as;
    var of[3] = { in[0], in[1], in[2] }, own = sinks ? te_own_sinks(t, sinks, &x) : 0, o;

    as.seq *= run;
    as.model.heads /= run;
    as.model.kv_heads /= run;
    if (run > 1)
        te_exchange_heads(t, in, &x, of);
    const struct ring ring = { .ranks = b->context / run, .place = b->place / run, .lse_numel = as.micro_batch * as.model.heads * as.seq,
                               .group = run > 1 ? GROUP_CONTEXT_P2P : GROUP_CONTEXT, .flops = all_scores(&as),
                               .scratch = attention_scratch(&as) - attention_scratch_of_keys(&as), .keys = attention_scratch_of_keys(&as) };
    if (method == CONTEXT_ULYSSES)
        o = te_attention(t, of[0], of[1], of[2], own, tape_var_numel(t, of[0]) / as.model.head_dim * value_dim(&as.model), ring.lse_numel,
                         attention_scratch(&as), ring.flops);
    else if (method == CONTEXT_ALL_GATHER)
        o = te_gathered_attention(t, of[0], of[1], of[2], &ring, turns);
    else
        o = te_ring_attention(t, of[0], of[1], of[2], &ring);
    for (int i = 0; i < 3 && run > 1; i++)
        tape_drop(t, of[i]);
    tape_drop(t, own);
    return run > 1 ? tmp(t, o, te_exchange_positions(t, o, &x)) : o;
}

/* flash-attn takes samples outermost, each of q, k and v in one piece (FlashAttention.forward()); cuDNN's takes them as they lie, packed,
 * or each in one piece (get_qkv_layout()). */
static var fused_core(struct torch_model *b, var q, var k, var v)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    bool flash = b->kernel == ATTENTION_FLASH, turns = flash && b->p->micro_batch > 1;
    int64_t heads = b->p->micro_batch * m->heads, s = b->p->seq;
    var in[3] = { tape_hold(t, q), tape_hold(t, k), tape_hold(t, v) };

    for (int i = 0; i < 3; i++) {
        bool packed = !k, lies = (i < 2 && m->position == POS_ROPE) || m->kv_rank > 0;   /* rotated: a tensor of its own */
        if (in[i] && (packed ? flash : turns || !lies))
            in[i] = tmp(t, in[i], te_contiguous(t, "qkv in one piece", in[i]));
    }
    var sinks = te_sinks(b), o = b->context > 1 ? among_ranks(b, in, sinks, turns)
            : te_attention(t, in[0], in[1], in[2], sinks, b->tokens * m->heads * value_dim(m), heads * s, attention_scratch(b->as), all_scores(b->as));
    tape_drop(t, sinks);
    for (int i = 0; i < 3; i++)
        tape_drop(t, in[i]);
    return turns ? tmp(t, o, te_contiguous(t, "positions first", o)) : o;
}

/* Transformer Engine's UnfusedDotProductAttention (backends.py), whose softmax has the causal mask in its kernel and writes over its gradient
 * (csrc/extensions/softmax.cpp).  The buffer in which it makes the scores takes what their softmax does next, and is not counted. */
static var unfused_te_core(struct torch_model *b, var q, var k, var v)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t s = b->p->seq, d = m->head_dim, batch = b->p->micro_batch * m->heads, group = m->heads / m->kv_heads;
    var keys = k && group > 1 ? op_repeat(t, "repeat keys", k, group) : tape_hold(t, k ? k : q);
    var values = v && group > 1 ? op_repeat(t, "repeat values", v, group) : tape_hold(t, v ? v : q);
    var w = op_matmul(t, "attention scores", q, keys, batch, s, s, d);
    var p = tmp(t, w, op_softmax_in_place(t, "softmax", w));

    p = tmp(t, p, op_dropout(t, "attention dropout", p, b->p->dropout));
    var o = op_matmul(t, "attention values", p, values, batch, s, value_dim(m), s);
    tape_drop(t, keys);
    tape_drop(t, values);
    o = tmp(t, p, o);
    return tmp(t, o, te_contiguous(t, "positions first", o));
}

var te_core(struct torch_model *b, var q, var k, var v)
{
    if (b->kernel > ATTENTION_MATH)
        return fused_core(b, q, k, v);
    return local_kernels(b) ? unfused_core(b, q, k, v) : unfused_te_core(b, q, k, v);
}

/* Views of what the projection gave, normed and rotated where the model does so; Transformer Engine's norm copies a view and keeps the copy
 * (ops/basic/rmsnorm.py, op_forward()).  With as many heads of keys as of queries, and neither, they stay packed, head by head, unless other
 * ranks need the keys. */
static void split(struct torch_model *b, var all, var out[3])
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t q = b->tokens * m->heads * m->head_dim, kv = b->tokens * m->kv_heads * m->head_dim;

    out[0] = tape_hold(t, all);
    out[1] = out[2] = 0;
    if (m->kv_heads == m->heads && m->position != POS_ROPE && !m->qk_norm && b->context == 1)
        return;
    tape_drop(t, out[0]);
    op_split(t, "qkv split", all, 3, (int64_t[]){ q, kv, kv }, out);
    for (int i = 0; i < 2 && m->qk_norm; i++) {
        if (!local_kernels(b))
            out[i] = tmp(t, out[i], te_contiguous(t, "qk norm's input", out[i]));
        out[i] = tmp(t, out[i], te_norm_of(b, "qk norm", out[i], i ? ROLE_K_NORM : ROLE_Q_NORM));
    }
    for (int i = 0; i < 2 && m->position == POS_ROPE; i++)
        out[i] = tmp(t, out[i], te_rotated(b, i ? "rotary k" : "rotary q", out[i]));
}

/* One product of queries, keys and values, split; leaves its name. */
static var project(struct torch_model *b, var n, var qkv[3])
{
    static const enum tensor_role into[] = { ROLE_QKV, ROLE_Q, ROLE_K, ROLE_V };
    const struct model *m = b->m;
    int64_t width = (m->heads + 2 * m->kv_heads) * m->head_dim;
    bool fused = tensor_of(b, ROLE_QKV, false) != NULL;
    struct te_linear l = te_linear_of(b, GEMM("qkv"), width, m->hidden, fused ? into : into + 1, fused ? 1 : 3);
    var all = te_adapted_column(b, &l, ROLE_QKV, n);

    b->t->module = -1;
    split(b, all, qkv);
    return all;
}

static var attention(struct torch_model *b, var n)
{
    static const enum tensor_role out[] = { ROLE_ATTN_OUT };
    struct tape *t = b->t;
    const struct model *m = b->m;
    var qkv[TE_MODULE_VARS], core[TE_MODULE_VARS] = { 0 }, named;
    int up = -1;

    if (m->kv_rank > 0)
        te_latent(b, n, qkv, &named, &up);
    else
        named = project(b, n, qkv);
    te_module(b, TE_CORE_ATTN, qkv, core, NULL);
    te_discard(b, up);
    var o = core[0];
    struct te_linear l = te_linear_of(b, GEMM("attention output"), m->hidden, m->heads * value_dim(m), out, 1);
    l.bias[0] = 0;                      /* skip_bias_add */
    l.original = te_may_cast_again(&l.scaled);      /* attention keeps its result */
    o = tmp(t, o, te_adapted_row(b, &l, ROLE_ATTN_OUT, o));
    t->module = -1;
    for (int i = 0; i < 3; i++)
        tape_drop(t, qkv[i]);
    tape_drop(t, named);
    return o;
}

/* ---- the block ---- */

/* MLP.forward() without bias_activation_fusion (transformer/mlp.py): the halves are views, and silu's result is kept beside them. */
static var gated_in_steps(struct torch_model *b, var y)
{
    int64_t half = tape_var_numel(b->t, y) / 2;
    var part[2];

    op_split(b->t, "gate up split", y, 2, (int64_t[]){ half, half }, part);
    var act = tmp(b->t, part[0], torch_activation(b, part[0]));
    var out = op_mul(b->t, "mlp product", act, part[1]);
    tape_drop(b->t, act);
    tape_drop(b->t, part[1]);
    return out;
}

/* Without a bias before it GELU is not fused (arguments.py): F.gelu() keeps its input, as the fused kernel does. */
static var mlp_of(struct torch_model *b, var n)
{
    static const enum tensor_role fused[] = { ROLE_GATE_UP }, gated[] = { ROLE_GATE, ROLE_UP }, plain[] = { ROLE_UP }, out[] = { ROLE_DOWN };
    struct tape *t = b->t;
    const struct model *m = b->m;
    bool two = m->mlp == MLP_GATED, one = tensor_of(b, ROLE_GATE_UP, false) != NULL;
    struct te_linear l = te_linear_of(b, two ? GEMM("mlp gate up") : GEMM("mlp up"), (two ? 2 : 1) * m->ffn, m->hidden, one ? fused : two ? gated : plain,
                                two && !one ? 2 : 1);
    var bias = l.bias[0];               /* skip_bias_add; of the only one: gate and up are one product */

    l.bias[0] = 0;
    var y = te_adapted_column(b, &l, up_of(b), n);
    t->module = -1;
    y = tmp(t, y, two && !b->p->megatron.bias_swiglu_fusion ? gated_in_steps(b, y) : te_activation(t, two ? "gated activation" : "activation", y, bias, two));
    l = te_linear_of(b, GEMM("mlp down"), m->hidden, m->ffn, out, 1);
    l.bias[0] = 0;
    y = tmp(t, y, te_adapted_row(b, &l, ROLE_DOWN, y));
    t->module = -1;
    return y;
}

/* megatron-core's own norms are modules beside the MLP. */
var te_mlp(struct torch_model *b, var x)
{
    b->t->half = 1;
    if (local_kernels(b))
        return mlp_of(b, x);
    var n = te_norm_of(b, "mlp norm", x, ROLE_NORM_MLP);
    return tmp(b->t, te_last_use(b, ROLE_NORM_MLP, n), mlp_of(b, n));
}

static var add(struct torch_model *b, const char *name, var x, enum tensor_role role, var residual)
{
    if (te_has_sinks(b))
        return tmp(b->t, x, te_add_apart(b, name, x, role, residual));
    return tmp(b->t, x, te_bias_dropout_add(b->t, name, x, param(b, role, true), residual, b->p->dropout));
}

/* The module's one result of one argument. */
static var through(struct torch_model *b, enum te_module module, var x, int *region)
{
    const var in[TE_MODULE_VARS] = { x };
    var out[TE_MODULE_VARS] = { 0 };

    te_module(b, module, in, out, region);
    return out[0];
}

static var mixture(struct torch_model *b, var mid)
{
    int norm;
    var n = through(b, TE_PRE_MLP_NORM, mid, &norm), y = tmp(b->t, n, through(b, TE_MOE, n, NULL));

    te_discard(b, norm);
    return y;
}

static var dense(struct torch_model *b, var mid)
{
    var in = local_kernels(b) ? te_norm_of(b, "mlp norm", mid, ROLE_NORM_MLP) : tape_hold(b->t, mid);

    return tmp(b->t, in, through(b, TE_MLP, in, NULL));
}

/* A layer of one mixer (HybridStack). */
static var mixer_block(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    enum block_kind kind = hybrid_kind(b->m, b->block);
    int norm = -1;
    var y;

    t->half = kind == BLOCK_MLP || kind == BLOCK_EXPERTS;
    if (kind == BLOCK_ATTENTION) {
        var n = through(b, TE_INPUT_NORM, x, &norm);
        y = tmp(t, te_last_use(b, ROLE_NORM_ATTN, n), attention(b, n));
        te_discard(b, norm);
    } else
        y = kind == BLOCK_MAMBA ? te_mamba(b, x) : kind == BLOCK_EXPERTS ? mixture(b, x) : dense(b, x);
    y = add(b, "bias dropout add", y, t->half == 1 ? ROLE_DOWN : kind == BLOCK_MAMBA ? ROLE_SSM_OUT : ROLE_ATTN_OUT, x);
    tape_drop(t, x);
    return y;
}

var te_block(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    int norm;

    t->half = 0;
    t->module = -1;
    if (b->m->hybrid)
        return mixer_block(b, x);
    var n = through(b, TE_INPUT_NORM, x, &norm);
    var y = tmp(t, te_last_use(b, ROLE_NORM_ATTN, n), attention(b, n));
    te_discard(b, norm);
    var mid = add(b, "bias dropout add", y, ROLE_ATTN_OUT, x);
    t->half = 1;
    y = has_experts(b) ? mixture(b, mid) : dense(b, mid);
    var out = add(b, "mlp bias dropout add", y, ROLE_DOWN, mid);
    tape_drop(t, mid);
    tape_drop(t, x);
    return out;
}

/* ---- the ends ---- */

/* With sequence parallelism the sum over ranks is scattered, unless positions are added to it first (reduce_scatter_embeddings). */
var te_embedded(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    bool adds = m->position == POS_LEARNED;

    if (b->sequence && !adds) {
        x = tmp(t, x, te_contiguous(t, "positions first", x));
        return tmp(t, x, te_move(t, TE_SCATTER, x, b->ranks));
    }
    if (b->ranks > 1)
        x = tmp(t, x, te_move(t, TE_SUM, x, b->ranks));
    if (adds) {
        t->module = torch_piece_module(m, TENSOR_EMBED, ROLE_POSITIONS, ADAPTER_NONE);
        var wpe = param(b, ROLE_POSITIONS, false), pos = op_embedding(t, "position embedding", b->positions, m->hidden, wpe);
        t->module = -1;
        x = tmp(t, x, op_add(t, "position add", x, pos));
        tape_drop(t, pos);
    }
    x = tmp(t, x, te_contiguous(t, "positions first", x));
    return b->sequence ? tmp(t, x, te_move(t, TE_SPLIT, x, b->ranks)) : x;
}

var te_embed(struct torch_model *b)
{
    struct tape *t = b->t;
    const struct model *m = b->m;

    t->half = 0;
    t->module = 0;
    t->tied_waits = (m->mtp > 0 || t->grads_apart) && !b->stages;
    b->ids = op_new(t, "input ids", KC_COPY, b->tokens, DT_INT64);
    b->labels = op_new(t, "labels", KC_COPY, b->tokens, DT_INT64);
    b->positions = op_new(t, "position ids", KC_COPY, b->tokens, DT_INT64);
    b->lasting[0] = op_new(t, "loss mask", KC_COPY, b->tokens, DT_FP32);
    var x = te_embedding(t, "token embedding", b->ids, m->hidden, param(b, ROLE_TOKENS, false), b->ranks);
    t->module = -1;
    x = te_embedded(b, x);
    x = tmp(t, x, op_dropout(t, "embedding dropout", x, b->p->dropout));
    if (program_input_requires_grad(b->as))     /* Megatron-Bridge's peft/recompute.py */
        tape_require_grad(t, x);
    if (m->position == POS_ROPE)        /* angles in fp32, kept from step to step (lru_cache) */
        b->lasting[1] = op_new(t, "rotary angles", KC_COPY, b->p->seq * m->rotary_dim, DT_FP32);
    return x;
}

/* The output layer's weight and its module; what several products of it hand on autograd adds up. */
static int weigh(struct torch_model *b, struct te_linear *l)
{
    struct tape *t = b->t;

    l->buffered = true;
    if (!tensor_of(b, ROLE_HEAD, false)) {
        int tied = b->stages ? -1 : torch_gradient_of(b, ROLE_HEAD, false);
        l->weight[0] = torch_param(b, tied, b->m->vocab * b->m->hidden);
        l->zeroed = tied >= 0;
        t->module = MODULE_TIED;
    }
    if (b->m->mtp > 0)
        l->weight[0] = op_shared(t, l->weight[0], false);
    return t->module;
}

/* LinearForLastLayer, a torch.nn.Linear whole on each rank, its values in fp32; with sequence parallelism they are gathered (verl 0.7.0,
 * models/mcore/bridge.py; Megatron-Bridge has the same, training/utils/train_utils.py). */
static var te_number(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    var own = torch_linear(b, GEMM("values"), n, 1, b->m->hidden, ROLE_HEAD);

    t->module = -1;
    tape_drop(t, n);
    var values = tmp(t, own, op_cast(t, own, DT_FP32));
    if (b->sequence)
        values = tmp(t, values, te_move(t, TE_GATHER_OWN, values, b->ranks));
    tape_drop(t, b->positions);
    b->positions = 0;
    return tmp(t, values, torch_number_of_tokens(b, values));
}

var te_head(struct torch_model *b, var x)
{
    static const enum tensor_role role[] = { ROLE_HEAD };
    struct tape *t = b->t;

    t->half = 0;
    t->module = -1;
    var n = tmp(t, x, te_norm_of(b, "final norm", x, ROLE_NORM_FINAL)), ahead = 0;
    if (b->m->head != HEAD_LOGITS)
        return te_number(b, n);
    struct te_linear l = te_linear_of(b, GEMM("logits"), b->m->vocab, b->m->hidden, role, 1);
    int module = weigh(b, &l);
    if (b->m->mtp > 0)
        te_mtp(b, b->m->tied && !b->stages ? l.weight[0] : 0, b->again, &n, &ahead);
    t->module = module;
    if (ahead)
        n = tmp(t, n, te_mtp_loss(b, &l, n, ahead));
    var losses = tmp(t, n, te_losses(b, &l, n, b->labels));
    tape_drop(t, b->positions);
    b->positions = 0;
    return tmp(t, losses, op_mean(t, "mean loss", losses));
}

/* ---- what stays ---- */

static int64_t kept(int64_t elems) { return round_up(2 * elems, 512); }

/* Weights whose gradients kernels add to main_grad: those of Transformer Engine's layers, and the head's. */
static bool has_dummy(const struct model *m, const struct tensor *t)
{
    if (t->frozen || (t->role == ROLE_HEAD && m->head != HEAD_LOGITS))
        return false;
    switch (t->role) {
    case ROLE_QKV: case ROLE_Q: case ROLE_ATTN_OUT: case ROLE_UP: case ROLE_GATE_UP: case ROLE_DOWN: case ROLE_Q_A: case ROLE_Q_B: case ROLE_KV_A:
    case ROLE_KV_B: case ROLE_EXPERTS_IN: case ROLE_EXPERTS_OUT: case ROLE_SHARED_GATE_UP: case ROLE_SHARED_DOWN: case ROLE_HEAD: case ROLE_MTP_PROJECT:
    case ROLE_SSM_IN: case ROLE_SSM_OUT: case ROLE_SHARED_UP:
        return !t->is_bias;
    case ROLE_TOKENS:
        return m->tied;
    default:
        return false;
    }
}

/* The layer's weight: of experts that of one. */
static const int64_t *shape_of(const struct tensor *t) { return t->shape + (t->ndim == 3); }

/* Weights of one shape have one dummy together. */
static int64_t dummies(const struct model *m)
{
    int64_t sum = 0;

    for (int i = 0; i < m->ntensors; i++) {
        const int64_t *of = shape_of(&m->tensors[i]);
        bool had = !has_dummy(m, &m->tensors[i]);
        for (int k = 0; k < i && !had; k++)
            had = has_dummy(m, &m->tensors[k]) && shape_of(&m->tensors[k])[0] == of[0] && shape_of(&m->tensors[k])[1] == of[1];
        sum += had ? 0 : kept(of[0] * of[1]);
    }
    return sum;
}

/* expert_bias and local_tokens_per_expert of each router that has them, in fp32 and in the model's 16 bits. */
static int64_t router_buffers(const struct model *m)
{
    return m->route_groups > 0 ? model_routers(m) * (round_up(4 * m->experts, 512) + round_up(2 * m->experts, 512)) : 0;
}

int64_t te_buffer_bytes(const struct local_model *local)
{
    const struct plan *p = local->plan;
    const struct model *m = local->model;
    int64_t sum = (p->megatron.gradient_accumulation_fusion ? dummies(m) : 0) + router_buffers(m);

    if (local->share.sequence && training_is_all(&p->train) && (p->kernels == KERNELS_MEGATRON_LOCAL || (local->share.heads && m->head == HEAD_LOGITS)))
        sum += kept(p->micro_batch * plan_rank_seq(p) * m->hidden);
    if (p->megatron.tp_comm_overlap)            /* userbuffers: of four layers forward, six products backward (initialize_ub()) */
        sum += 10 * kept(p->micro_batch * plan_rank_seq(p) * m->hidden);
    return sum;
}

bool te_is_cast(const struct plan *p, const struct tensor *t)
{
    if (t->adapter != ADAPTER_NONE || (t->block < 0 ? t->depth == 0 : program_unscaled(p, t->block)))
        return false;
    switch (t->role) {
    case ROLE_Q: case ROLE_K: case ROLE_V: case ROLE_QKV: case ROLE_ATTN_OUT: case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP: case ROLE_DOWN:
    case ROLE_Q_A: case ROLE_Q_B: case ROLE_KV_A: case ROLE_KV_B: case ROLE_EXPERTS_IN: case ROLE_EXPERTS_OUT: case ROLE_SHARED_GATE_UP:
    case ROLE_SHARED_DOWN: case ROLE_MTP_PROJECT: case ROLE_SSM_IN: case ROLE_SSM_OUT: case ROLE_SHARED_UP:
        return !t->is_bias;
    default:
        return false;
    }
}

int64_t te_cast_numel(const struct local_model *local, int block)
{
    int64_t sum = 0;

    for (int i = 0; i < local->model->ntensors && plan_scaled(local->plan); i++)
        if (te_is_cast(local->plan, &local->model->tensors[i]) && (block == -1 || local->model->tensors[i].block == block))
            sum += local->model->tensors[i].numel;
    return sum;
}

int te_ways(const struct plan *p) { return plan_scaled(p) == SCALED_FP8_TENSOR && !te_turns(p) ? 1 : 2; }

int64_t te_weights(const struct tensor *t) { return role_is_of_experts(t->role) ? t->shape[0] : 1; }

/* Queries, keys and values that are kept apart are one layer, as are gates and what they multiply. */
int64_t te_layers(const struct local_model *local)
{
    const struct model *m = local->model;
    int64_t sum = 0;

    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        bool again = t->role == ROLE_K || t->role == ROLE_V || (t->role == ROLE_UP && m->mlp == MLP_GATED);
        sum += te_is_cast(local->plan, t) && !again ? te_weights(t) : 0;
    }
    return sum;
}

/* Parameters in 8 bits have their rows in a buffer of DistributedDataParallel's, but for mxfp8's, which are gathered elsewhere. */
int64_t te_weight_bytes(const struct local_model *local)
{
    const struct plan *p = local->plan;
    enum scaled s = plan_scaled(p);
    int64_t sum = 0;
    int ways = te_ways(p) - (p->megatron.fp8_param_gather && s != SCALED_MXFP8);

    for (int i = 0; i < local->model->ntensors && s; i++)
        if (te_is_cast(p, &local->model->tensors[i])) {
            int64_t n = te_weights(&local->model->tensors[i]);
            sum += ways * n * round_up(dtype_scaled_bytes(s, local->model->tensors[i].numel / n), 512);
        }
    return sum;
}

int64_t te_scale_bytes(const struct local_model *local)
{
    const struct megatron_options *o = &local->plan->megatron;
    int64_t each = 4 * (o->fp8_amax_history_len + 2);

    if (o->fp8_format == FP8_OFF || o->fp8_recipe != FP8_DELAYED)
        return 0;
    return te_layers(local) * (TE_FORWARD_SCALES + TE_BACKWARD_SCALES) * each;
}
