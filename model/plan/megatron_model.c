/* megatron_model.c -- see megatron_model.h. */
#include "model/plan/megatron_model.h"
#include "model/arch/training.h"
#include "model/arch/training_bridge.h"
#include "model/family/family.h"
#include "model/family/hybrid.h"
#include "model/arch/recorded.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

int64_t megatron_vocab(int64_t vocab, int64_t divisor, int64_t tensor_ranks)
{
    return round_up(vocab, divisor * tensor_ranks);
}

const char *megatron_model_refused(const struct model *m)
{
    const struct family *f = family_for(m);

    if (f->not_megatron)
        return f->not_megatron;
    if (!f->megatron)
        return "its family is not among those that Megatron-LM's options state: gpt2, llama, mistral, ministral, qwen2, qwen3, starcoder2, "
               "nemotron, arcee, megatron_gpt, mixtral, qwen3_moe, deepseek_v3, glm4_moe, gpt_oss";
    if (family_for(m)->sinks)
        return m->qkv_bias && m->out_bias ? NULL : "its experts have biases and its attention has none, which --disable-bias-linear cannot say";
    if (m->kv_rank > 0 && (m->qkv_bias || m->out_bias || m->mlp_bias))
        return "Megatron-LM's latent attention has no biases";
    if (m->out_bias != m->mlp_bias || (m->out_bias && !m->qkv_bias))
        return "its linear layers have other biases than --disable-bias-linear and --add-qkv-bias leave";
    return NULL;
}

/* ---- the table ---- */

/* One tensor of GPTModel: rows and columns (0: a vector). */
struct row {
    const char *module, *name;
    enum tensor_role role;
    int64_t rows, columns;
    bool bias;
};

/* Of a depth of multi-token prediction what is not in its transformer layer. */
static bool is_outer(enum tensor_role role)
{
    return role == ROLE_MTP_EMBED_NORM || role == ROLE_MTP_HIDDEN_NORM || role == ROLE_MTP_PROJECT || role == ROLE_NORM_FINAL;
}

/* `experts`: so many of them in one tensor; 0: it is one.  `block`: TENSOR_HEAD - d, of the depth d. */
static void add_all(struct model *m, int block, const struct row *r, int64_t experts)
{
    struct tensor *t = &m->tensors[m->ntensors];
    char module[sizeof m->modules->name];

    int depth = block < TENSOR_HEAD ? TENSOR_HEAD - block : 0;

    if (block >= 0)
        snprintf(module, sizeof module, "decoder.layers.%d.%s", block, r->module);
    else if (depth > 0)
        snprintf(module, sizeof module, "mtp.layers.%d.%s%s", depth - 1, is_outer(r->role) ? "" : "transformer_layer.", r->module);
    else
        snprintf(module, sizeof module, "%s", r->module);
    if (m->nmodules == 0 || strcmp(m->modules[m->nmodules - 1].name, module)) {
        struct module *owner = &m->modules[m->nmodules++];
        memset(owner, 0, sizeof *owner);
        memcpy(owner->name, module, sizeof module);
        owner->first = m->ntensors;
    }
    *t = (struct tensor){ .shape = { r->rows, r->columns ? r->columns : 1 }, .ndim = r->columns ? 2 : 1, .role = r->role,
                          .is_bias = r->bias, .module = m->nmodules - 1 };
    if (experts) {
        t->ndim++;
        t->shape[2] = t->shape[1];
        t->shape[1] = t->shape[0];
        t->shape[0] = experts;
    }
    t->numel = r->rows * (r->columns ? r->columns : 1) * (experts ? experts : 1);
    t->depth = depth;
    t->block = block >= 0 ? block : depth > 0 || r->role == ROLE_NORM_FINAL || r->role == ROLE_HEAD ? TENSOR_HEAD : TENSOR_EMBED;
    t->mlp_half = block >= 0 && (r->role == ROLE_NORM_MLP || r->role == ROLE_UP || r->role == ROLE_GATE_UP || r->role == ROLE_DOWN ||
                                 r->role == ROLE_ROUTER || r->role == ROLE_SHARED_GATE_UP || r->role == ROLE_SHARED_UP || r->role == ROLE_SHARED_DOWN ||
                                 role_is_of_experts(r->role));
    snprintf(t->name, sizeof t->name, "%.*s.%s", (int)(sizeof t->name - 24), module, r->name);
    m->modules[t->module].ntensors++;
    m->modules[t->module].block = t->block;
    m->ntensors++;
    t->frozen = !training_is_all(&m->training);
    m->ntrainable += !t->frozen;
    m->params += t->numel;
    m->trainable += t->frozen ? 0 : t->numel;
}

static void add(struct model *m, int block, const struct row *r) { add_all(m, block, r, 0); }

/* One of an adapter's layers, linear_in or linear_out, behind what it adapts. */
static void add_half(struct model *m, int block, const char *module, enum tensor_role role, enum adapter as, int64_t out, int64_t in)
{
    char name[48];

    snprintf(name, sizeof name, "%s.adapter.linear_%s", module, as == ADAPTER_LORA_A ? "in" : "out");
    add(m, block, &(struct row){ name, "weight", role, out, in, false });
    struct tensor *t = &m->tensors[m->ntensors - 1];
    t->adapter = as;
    t->frozen = false;
    m->ntrainable++;
    m->trainable += t->numel;
}

/* A weight and, where it has one, its bias; an adapter (Megatron-Bridge's ParallelLinearAdapter). */
static void add_linear(struct model *m, int block, const char *module, enum tensor_role role, int64_t out, int64_t in, bool bias)
{
    const char *last = strrchr(module, '.');

    add(m, block, &(struct row){ module, "weight", role, out, in, false });
    if (bias)
        add(m, block, &(struct row){ module, "bias", role, out, 0, true });
    if (block < 0 || !training_is_lora(&m->training) || !training_bridge_adapts(&m->training, last ? last + 1 : module))
        return;
    add_half(m, block, module, role, ADAPTER_LORA_A, m->training.rank, in);
    add_half(m, block, module, role, ADAPTER_LORA_B, out, m->training.rank);
}

/* A norm's own, by these names. */
static void add_norm(struct model *m, int block, const char *module, enum tensor_role role, const char *weight, const char *bias)
{
    add(m, block, &(struct row){ module, weight, role, m->hidden, 0, false });
    if (m->norm_bias)
        add(m, block, &(struct row){ module, bias, role, m->hidden, 0, true });
}

/* Of q or k, each head alike. */
static void add_head_norm(struct model *m, int block, const char *module, enum tensor_role role, int64_t width, bool bias)
{
    add(m, block, &(struct row){ module, "weight", role, width, 0, false });
    if (bias)
        add(m, block, &(struct row){ module, "bias", role, width, 0, true });
}

/* MoELayer's: the router, then all experts' first matrices, then their second ones (TEGroupedMLP); then what every token takes
 * (SharedExpertMLP).  The norm is a module of its own. */
static void add_experts(struct model *m, int b)
{
    int64_t f = (m->mlp == MLP_GATED ? 2 : 1) * m->expert_ffn;

    add(m, b, &(struct row){ "pre_mlp_layernorm", "weight", ROLE_NORM_MLP, m->hidden, 0, false });
    bool biased = m->out_bias;          /* --disable-bias-linear is of all layers */

    add_linear(m, b, "mlp.router", ROLE_ROUTER, m->experts, m->hidden, biased);
    add_all(m, b, &(struct row){ "mlp.experts.linear_fc1", "weight", ROLE_EXPERTS_IN, f, m->hidden, false }, m->experts);
    if (biased)
        add_all(m, b, &(struct row){ "mlp.experts.linear_fc1", "bias", ROLE_EXPERTS_IN, f, 0, true }, m->experts);
    add_all(m, b, &(struct row){ "mlp.experts.linear_fc2", "weight", ROLE_EXPERTS_OUT, m->hidden, m->expert_ffn, false }, m->experts);
    if (biased)
        add_all(m, b, &(struct row){ "mlp.experts.linear_fc2", "bias", ROLE_EXPERTS_OUT, m->hidden, 0, true }, m->experts);
    if (m->shared_ffn > 0) {
        bool gated = m->mlp == MLP_GATED;
        add(m, b, &(struct row){ "mlp.shared_experts.linear_fc1", "weight", gated ? ROLE_SHARED_GATE_UP : ROLE_SHARED_UP, (gated ? 2 : 1) * m->shared_ffn,
                                 m->hidden, false });
        add(m, b, &(struct row){ "mlp.shared_experts.linear_fc2", "weight", ROLE_SHARED_DOWN, m->hidden, m->shared_ffn, false });
    }
}

/* MLASelfAttention with Transformer Engine's layers: down-projections (TELinear) and, with the norm before them, up-projections. */
static void add_latent(struct model *m, int b)
{
    int64_t heads = m->heads, plain = m->head_dim - m->rope_dim;

    add(m, b, &(struct row){ "input_layernorm", "weight", ROLE_NORM_ATTN, m->hidden, 0, false });
    add(m, b, &(struct row){ "self_attention.linear_proj", "weight", ROLE_ATTN_OUT, m->hidden, heads * m->value_dim, false });
    if (m->q_rank > 0) {
        add(m, b, &(struct row){ "self_attention.linear_q_down_proj", "weight", ROLE_Q_A, m->q_rank, m->hidden, false });
        add(m, b, &(struct row){ "self_attention.linear_q_up_proj", "layer_norm_weight", ROLE_Q_A_NORM, m->q_rank, 0, false });
        add(m, b, &(struct row){ "self_attention.linear_q_up_proj", "weight", ROLE_Q_B, heads * m->head_dim, m->q_rank, false });
    } else {
        add(m, b, &(struct row){ "self_attention.linear_q_proj", "weight", ROLE_Q, heads * m->head_dim, m->hidden, false });
    }
    add(m, b, &(struct row){ "self_attention.linear_kv_down_proj", "weight", ROLE_KV_A, m->kv_rank + m->rope_dim, m->hidden, false });
    add(m, b, &(struct row){ "self_attention.linear_kv_up_proj", "layer_norm_weight", ROLE_KV_A_NORM, m->kv_rank, 0, false });
    add(m, b, &(struct row){ "self_attention.linear_kv_up_proj", "weight", ROLE_KV_B, heads * (plain + m->value_dim), m->kv_rank, false });
}

static void add_attention(struct model *m, int b, bool local)
{
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;

    if (local)
        add_norm(m, b, "input_layernorm", ROLE_NORM_ATTN, "weight", "bias");
    if (family_for(m)->sinks)
        add(m, b, &(struct row){ "self_attention.core_attention", "softmax_offset", ROLE_SINKS, m->heads, 0, false });
    add_linear(m, b, "self_attention.linear_proj", ROLE_ATTN_OUT, m->hidden, q, m->out_bias);
    if (!local)
        add_norm(m, b, "self_attention.linear_qkv", ROLE_NORM_ATTN, "layer_norm_weight", "layer_norm_bias");
    add_linear(m, b, "self_attention.linear_qkv", ROLE_QKV, q + 2 * kv, m->hidden, m->qkv_bias);
    if (m->qk_norm) {
        add_head_norm(m, b, "self_attention.q_layernorm", ROLE_Q_NORM, m->head_dim, m->qk_norm_bias);
        add_head_norm(m, b, "self_attention.k_layernorm", ROLE_K_NORM, m->head_dim, m->qk_norm_bias);
    }
}

/* MambaMixer's own parameters, then its modules'. */
static void add_mamba(struct model *m, int b)
{
    int64_t inner = m->ssm_heads * m->ssm_head_dim, conv = inner + 2 * m->ssm_groups * m->ssm_state;

    add(m, b, &(struct row){ "mixer", "conv1d_weight", ROLE_SSM_CONV, conv, m->ssm_conv, false });
    add(m, b, &(struct row){ "mixer", "conv1d_bias", ROLE_SSM_CONV, conv, 0, true });
    add(m, b, &(struct row){ "mixer", "dt_bias", ROLE_SSM_DT, m->ssm_heads, 0, false });
    add(m, b, &(struct row){ "mixer", "A_log", ROLE_SSM_A, m->ssm_heads, 0, false });
    add(m, b, &(struct row){ "mixer", "D", ROLE_SSM_D, m->ssm_heads, 0, false });
    add_norm(m, b, "mixer.in_proj", ROLE_NORM_ATTN, "layer_norm_weight", "layer_norm_bias");
    add(m, b, &(struct row){ "mixer.in_proj", "weight", ROLE_SSM_IN, inner + conv + m->ssm_heads, m->hidden, false });
    add(m, b, &(struct row){ "mixer.norm", "weight", ROLE_SSM_NORM, inner, 0, false });
    add(m, b, &(struct row){ "mixer.out_proj", "weight", ROLE_SSM_OUT, m->hidden, inner, false });
}

/* Transformer Engine's layers own the norm before them; megatron-core's have it as a module of its own, registered first. */
static void add_block(struct model *m, int b, bool local)
{
    bool gated = m->mlp == MLP_GATED;
    enum block_kind only = m->hybrid ? hybrid_kind(m, b) : NBLOCK_KIND;         /* the layer's one mixer */

    if (m->kv_rank > 0)
        add_latent(m, b);
    else if (only == BLOCK_MAMBA)
        add_mamba(m, b);
    else if (only != BLOCK_MLP && only != BLOCK_EXPERTS)
        add_attention(m, b, local);
    if (only < BLOCK_MLP)
        return;
    if (model_has_experts(m, b < 0 ? m->layers - 1 : b)) {
        add_experts(m, b);
        return;
    }
    add_norm(m, b, local ? "pre_mlp_layernorm" : "mlp.linear_fc1", ROLE_NORM_MLP, local ? "weight" : "layer_norm_weight",
             local ? "bias" : "layer_norm_bias");
    add_linear(m, b, "mlp.linear_fc1", gated ? ROLE_GATE_UP : ROLE_UP, gated ? 2 * m->ffn : m->ffn, m->hidden, m->mlp_bias);
    add_linear(m, b, "mlp.linear_fc2", ROLE_DOWN, m->hidden, m->ffn, m->mlp_bias);
}

/* What a block's modules and tensors are named after. */
static int block_prefix(int b, char to[32]) { return snprintf(to, 32, "decoder.layers.%d.", b); }

/* `name` of the block before becomes that of block b. */
static void rename_block(char *name, size_t room, const char *was, const char *is)
{
    size_t from = strlen(was), to = strlen(is), left = strlen(name + from) + 1;

    assert(to + left <= room);
    memmove(name + to, name + from, left);
    memcpy(name, is, to);
}

/* Block b, of the same tensors as the n before it: those of the block before. */
static void add_block_again(struct model *m, int b, int n)
{
    int from = m->ntensors - n, modules = m->nmodules - m->tensors[from].module;
    char was[32], is[32];

    block_prefix(b - 1, was);
    block_prefix(b, is);
    for (int i = m->nmodules; i < m->nmodules + modules; i++) {
        struct module *own = &m->modules[i];
        *own = m->modules[i - modules];
        own->first += n;
        own->block = b;
        rename_block(own->name, sizeof own->name, was, is);
    }
    m->nmodules += modules;
    for (int i = from; i < from + n; i++) {
        struct tensor *t = &m->tensors[m->ntensors++];
        *t = m->tensors[i];
        t->module += modules;
        t->block = b;
        rename_block(t->name, sizeof t->name, was, is);
        m->ntrainable += !t->frozen;
        m->params += t->numel;
        m->trainable += t->frozen ? 0 : t->numel;
    }
}

/* MultiTokenPredictionLayer: the decoder's last layer once more (get_gpt_mtp_block_spec()). */
static void add_depth(struct model *m, int depth, bool local)
{
    int at = TENSOR_HEAD - depth;

    add_norm(m, at, "enorm", ROLE_MTP_EMBED_NORM, "weight", "bias");
    add_norm(m, at, "hnorm", ROLE_MTP_HIDDEN_NORM, "weight", "bias");
    add_linear(m, at, "eh_proj", ROLE_MTP_PROJECT, m->hidden, 2 * m->hidden, false);
    add_block(m, at, local);
    add_norm(m, at, "final_layernorm", ROLE_NORM_FINAL, "weight", "bias");
    m->mtp++;
}

/* Most tensors of a block, of a depth beside its layer, and outside of both. */
enum { BLOCK_TENSORS = 24, DEPTH_TENSORS = 8, OTHER_TENSORS = 8 };

int megatron_model(const struct plan *p, struct model *out)
{
    size_t room = (size_t)p->model.layers * BLOCK_TENSORS + (size_t)p->megatron.mtp_num_layers * (BLOCK_TENSORS + DEPTH_TENSORS) + OTHER_TENSORS;

    *out = p->model;
    out->vocab = megatron_vocab(p->model.vocab, p->megatron.make_vocab_size_divisible_by, p->parallel.tensor > 1 ? p->parallel.tensor : 1);
    out->fused_qkv = out->qkv_grouped = true;
    out->fused_gate_up = out->mlp == MLP_GATED;
    out->ntensors = out->nmodules = out->ntrainable = out->block0 = out->per_block = out->per_dense = 0;
    out->params = out->trainable = out->mtp = 0;
    out->tensors = malloc(room * sizeof *out->tensors);
    out->modules = malloc(room * sizeof *out->modules);
    json_incref(out->rope_scaling);
    recorded_share(out->recorded);
    hybrid_share(out->hybrid);
    if (!out->tensors || !out->modules) {
        model_free(out);
        return fail("out of memory for Megatron's tensor table");
    }
    add_linear(out, -1, "embedding.word_embeddings", ROLE_TOKENS, out->vocab, out->hidden, false);
    if (out->position == POS_LEARNED)
        add_linear(out, -1, "embedding.position_embeddings", ROLE_POSITIONS, out->positions, out->hidden, false);
    out->block0 = out->ntensors;
    for (int b = 0; b < (int)out->layers; b++) {
        int before = out->ntensors, *per = out->experts > 0 && !model_has_experts(out, b) ? &out->per_dense : &out->per_block;
        if (b > 0 && !out->hybrid && model_has_experts(out, b) == model_has_experts(out, b - 1))
            add_block_again(out, b, *per);
        else
            add_block(out, b, p->kernels == KERNELS_MEGATRON_LOCAL);
        *per = out->ntensors - before;
    }
    if (hybrid_lay_out(out, 0, out->name) < 0) {
        model_free(out);
        return -1;
    }
    out->per_block = out->hybrid ? model_block_tensors(out, 0) : out->per_block;
    out->per_dense = out->hybrid ? 0 : out->per_dense;
    add_norm(out, -1, out->hybrid ? "decoder.final_norm" : "decoder.final_layernorm", ROLE_NORM_FINAL, "weight", "bias");
    for (int d = 1; d <= (int)p->megatron.mtp_num_layers; d++)
        add_depth(out, d, p->kernels == KERNELS_MEGATRON_LOCAL);
    if (!out->tied)
        add_linear(out, -1, "output_layer", ROLE_HEAD, out->head == HEAD_LOGITS ? out->vocab : 1, out->hidden, false);
    return 0;
}

bool megatron_exchanges_heads(const struct model *m) { return family_for(m)->sinks; }
