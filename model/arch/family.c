/* The tables.  A list is in registration order; where that surprises, the
 * source is named. */
#include "model/arch/family.h"

#include <string.h>

/* ---- GPT-2 ---- */

static const struct part gpt2_before[] = {
    { "transformer.wte", ROLE_TOKENS,    EXT_VOCAB,     EXT_HIDDEN, ALWAYS },
    { "transformer.wpe", ROLE_POSITIONS, EXT_POSITIONS, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct part gpt2_block[] = {
    { "ln_1",        ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "attn.c_attn", ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "attn.c_proj", ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "ln_2",        ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "mlp.c_fc",    ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.c_proj",  ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};
/* Bloom and falcon name their last norm alike. */
static const struct part gpt2_after[] = {
    { "transformer.ln_f", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",          ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

/* ---- GPT-NeoX: both norms are registered before the layers they feed ---- */

static const struct part neox_before[] = {
    { "gpt_neox.embed_in", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct part neox_block[] = {
    { "input_layernorm",           ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "post_attention_layernorm",  ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "attention.query_key_value", ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "attention.dense",           ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "mlp.dense_h_to_4h",         ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.dense_4h_to_h",         ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};
static const struct part neox_after[] = {
    { "gpt_neox.final_layer_norm", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",                   ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

/* ---- OPT: the final norm precedes the blocks, project_out project_in; k, v, q in this order ---- */

static const struct part opt_before[] = {
    { "model.decoder.embed_tokens",     ROLE_TOKENS,      EXT_VOCAB,     EXT_TOKEN,  ALWAYS },
    { "model.decoder.embed_positions",  ROLE_POSITIONS,   EXT_POSITIONS, EXT_HIDDEN, ALWAYS },
    { "model.decoder.project_out",      ROLE_PROJECT_OUT, EXT_TOKEN,     EXT_HIDDEN, IF_PROJECTED },
    { "model.decoder.project_in",       ROLE_PROJECT_IN,  EXT_HIDDEN,    EXT_TOKEN,  IF_PROJECTED },
    { "model.decoder.final_layer_norm", ROLE_NORM_FINAL,  EXT_HIDDEN,    EXT_NONE,   IF_NORM_FIRST },
    { 0 }
};
static const struct part opt_block[] = {
    { "self_attn.k_proj",     ROLE_K,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj",     ROLE_V,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.q_proj",     ROLE_Q,         EXT_Q,      EXT_HIDDEN, ALWAYS },
    { "self_attn.out_proj",   ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "self_attn_layer_norm", ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "fc1",                  ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "fc2",                  ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { "final_layer_norm",     ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { 0 }
};
static const struct part head_only[] = {
    { "lm_head", ROLE_HEAD, EXT_VOCAB, EXT_TOKEN, IF_UNTIED },
    { 0 }
};

/* ---- BLOOM ---- */

static const struct part bloom_before[] = {
    { "transformer.word_embeddings", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { "transformer.word_embeddings_layernorm", ROLE_EMBED_NORM, EXT_HIDDEN, EXT_NONE, ALWAYS },
    { 0 }
};
static const struct part bloom_block[] = {
    { "input_layernorm",                ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "self_attention.query_key_value", ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "self_attention.dense",           ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "post_attention_layernorm",       ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "mlp.dense_h_to_4h",              ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.dense_4h_to_h",              ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};

/* ---- MPT, as transformers has it: no positions, no biases ---- */

static const struct part mpt_before[] = {
    { "transformer.wte", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct part mpt_block[] = {
    { "norm_1",        ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "attn.Wqkv",     ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "attn.out_proj", ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "norm_2",        ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "ffn.up_proj",   ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "ffn.down_proj", ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};
static const struct part mpt_after[] = {
    { "transformer.norm_f", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",            ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

/* ---- Llama and those who follow it: the norms come last in a block.  With
 * post-norms (gemma2) "post_attention_layernorm" changes its meaning. ---- */

static const struct part llama_before[] = {
    { "model.embed_tokens", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct part llama_block[] = {
    { "self_attn.q_proj", ROLE_Q,         EXT_Q,        EXT_HIDDEN, ALWAYS },
    { "self_attn.k_proj", ROLE_K,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj", ROLE_V,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.o_proj", ROLE_ATTN_OUT,  EXT_HIDDEN,   EXT_Q,      ALWAYS },
    { "self_attn.q_norm", ROLE_Q_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "mlp.gate_proj",    ROLE_GATE,      EXT_FFN,      EXT_HIDDEN, ALWAYS },
    { "mlp.up_proj",      ROLE_UP,        EXT_FFN,      EXT_HIDDEN, ALWAYS },
    { "mlp.down_proj",    ROLE_DOWN,      EXT_HIDDEN,   EXT_FFN,    ALWAYS },
    { "input_layernorm",  ROLE_NORM_ATTN, EXT_HIDDEN,   EXT_NONE,   ALWAYS },
    { "post_attention_layernorm",   ROLE_NORM_MLP, EXT_HIDDEN, EXT_NONE, IF_NORM_FIRST },
    { "post_attention_layernorm",   ROLE_NORM_ATTN_POST, EXT_HIDDEN, EXT_NONE, IF_NORM_AROUND },
    { "pre_feedforward_layernorm",  ROLE_NORM_MLP, EXT_HIDDEN, EXT_NONE, IF_NORM_AROUND },
    { "post_feedforward_layernorm", ROLE_NORM_MLP_POST, EXT_HIDDEN, EXT_NONE, IF_NORM_AROUND },
    { 0 }
};
static const struct part llama_after[] = {
    { "model.norm", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",    ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

/* ---- Phi-3: o_proj is registered before qkv_proj ---- */

static const struct part phi3_block[] = {
    { "self_attn.o_proj",         ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "self_attn.qkv_proj",       ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "mlp.gate_up_proj",         ROLE_GATE_UP,   EXT_2FFN,   EXT_HIDDEN, ALWAYS },
    { "mlp.down_proj",            ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { "input_layernorm",          ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "post_attention_layernorm", ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { 0 }
};

/* ---- StarCoder2 ---- */

static const struct part starcoder2_block[] = {
    { "self_attn.q_proj",         ROLE_Q,         EXT_Q,      EXT_HIDDEN, ALWAYS },
    { "self_attn.k_proj",         ROLE_K,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj",         ROLE_V,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.o_proj",         ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "mlp.c_fc",                 ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.c_proj",               ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { "input_layernorm",          ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "post_attention_layernorm", ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { 0 }
};

/* ---- Falcon: the MLP precedes the norms, and of the two norms of sequential
 * blocks the MLP's comes first (FalconDecoderLayer.__init__) ---- */

static const struct part falcon_before[] = {
    { "transformer.word_embeddings", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct part falcon_block[] = {
    { "self_attention.query_key_value", ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "self_attention.dense",           ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "mlp.dense_h_to_4h",              ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.dense_4h_to_h",              ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { "post_attention_layernorm", ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE, IF_SEQUENTIAL },
    { "input_layernorm",          ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE, IF_SEQUENTIAL },
    { "ln_attn",                  ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE, IF_TWO_NORMS },
    { "ln_mlp",                   ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE, IF_TWO_NORMS },
    { "input_layernorm",          ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE, IF_ONE_NORM },
    { 0 }
};

/* ---- OLMo 2 and 3 norm what the halves add, and all of q and k at once; EXAONE 4 each head ---- */

#define ATTENTION \
    { "self_attn.q_proj", ROLE_Q,        EXT_Q,      EXT_HIDDEN, ALWAYS }, \
    { "self_attn.k_proj", ROLE_K,        EXT_KV,     EXT_HIDDEN, ALWAYS }, \
    { "self_attn.v_proj", ROLE_V,        EXT_KV,     EXT_HIDDEN, ALWAYS }, \
    { "self_attn.o_proj", ROLE_ATTN_OUT, EXT_HIDDEN, EXT_Q,      ALWAYS }
#define GATED_MLP \
    { "mlp.gate_proj",    ROLE_GATE,     EXT_FFN,    EXT_HIDDEN, ALWAYS }, \
    { "mlp.up_proj",      ROLE_UP,       EXT_FFN,    EXT_HIDDEN, ALWAYS }, \
    { "mlp.down_proj",    ROLE_DOWN,     EXT_HIDDEN, EXT_FFN,    ALWAYS }
#define FUSED_MLP \
    { "mlp.gate_up_proj", ROLE_GATE_UP,  EXT_2FFN,   EXT_HIDDEN, ALWAYS }, \
    { "mlp.down_proj",    ROLE_DOWN,     EXT_HIDDEN, EXT_FFN,    ALWAYS }
#define PLAIN_MLP \
    { "mlp.up_proj",      ROLE_UP,       EXT_FFN,    EXT_HIDDEN, ALWAYS }, \
    { "mlp.down_proj",    ROLE_DOWN,     EXT_HIDDEN, EXT_FFN,    ALWAYS }
#define NORM(name, role, when)  { name, role, EXT_HIDDEN, EXT_NONE, when }
#define TWO_NORMS \
    NORM("input_layernorm", ROLE_NORM_ATTN, ALWAYS), NORM("post_attention_layernorm", ROLE_NORM_MLP, ALWAYS)

static const struct part olmo2_block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_Q,  EXT_NONE, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_KV, EXT_NONE, IF_QK_NORM },
    GATED_MLP,
    NORM("post_attention_layernorm", ROLE_NORM_ATTN_POST, ALWAYS),
    NORM("post_feedforward_layernorm", ROLE_NORM_MLP_POST, ALWAYS),
    { 0 }
};
static const struct part exaone4_block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    GATED_MLP,
    NORM("post_attention_layernorm", ROLE_NORM_ATTN_POST, ALWAYS),
    NORM("post_feedforward_layernorm", ROLE_NORM_MLP_POST, ALWAYS),
    { 0 }
};

static const struct part hunyuan_block[] = {
    ATTENTION,
    { "self_attn.query_layernorm", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    { "self_attn.key_layernorm",   ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    GATED_MLP, TWO_NORMS,
    { 0 }
};

/* ---- GLM: norms only before the halves, GLM-4 around them ---- */

static const struct part glm_block[] = { ATTENTION, FUSED_MLP, TWO_NORMS, { 0 } };
static const struct part glm4_block[] = {
    ATTENTION, FUSED_MLP, TWO_NORMS,
    NORM("post_self_attn_layernorm", ROLE_NORM_ATTN_POST, ALWAYS),
    NORM("post_mlp_layernorm", ROLE_NORM_MLP_POST, ALWAYS),
    { 0 }
};

/* ---- Nemotron, Arcee: no gate ---- */

static const struct part nemotron_block[] = { ATTENTION, PLAIN_MLP, TWO_NORMS, { 0 } };

/* ---- Cohere: one norm for both halves, and one weight for every element of q and k ---- */

static const struct part cohere_block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_HEADS,    EXT_HEAD_DIM, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_KV_HEADS, EXT_HEAD_DIM, IF_QK_NORM },
    GATED_MLP,
    NORM("input_layernorm", ROLE_NORM_ATTN, ALWAYS),
    { 0 }
};

/* ---- StableLM: a norm for each head ---- */

static const struct part stablelm_block[] = {
    ATTENTION,
    { "self_attn.q_layernorm.norms", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM_EACH },
    { "self_attn.k_layernorm.norms", ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM_EACH },
    GATED_MLP,
    NORM("input_layernorm", ROLE_NORM_ATTN, ALWAYS),
    NORM("post_attention_layernorm", ROLE_NORM_MLP, IF_SEQUENTIAL),
    { 0 }
};

/* ---- Phi: one norm for both halves, biases everywhere ---- */

static const struct part phi_block[] = {
    { "self_attn.q_proj",      ROLE_Q,         EXT_Q,        EXT_HIDDEN, ALWAYS },
    { "self_attn.k_proj",      ROLE_K,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj",      ROLE_V,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.dense",       ROLE_ATTN_OUT,  EXT_HIDDEN,   EXT_Q,      ALWAYS },
    { "self_attn.q_layernorm", ROLE_Q_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "self_attn.k_layernorm", ROLE_K_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "mlp.fc1",               ROLE_UP,        EXT_FFN,      EXT_HIDDEN, ALWAYS },
    { "mlp.fc2",               ROLE_DOWN,      EXT_HIDDEN,   EXT_FFN,    ALWAYS },
    { "input_layernorm",       ROLE_NORM_ATTN, EXT_HIDDEN,   EXT_NONE,   ALWAYS },
    { 0 }
};
static const struct part phi_after[] = {
    { "model.final_layernorm", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",               ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

/* ---- Mixtures of experts: all experts' weights of one kind are one parameter; in qwen3_moe, deepseek_v3 and llama4 the
 * router is registered behind them ---- */

#define EXPERTS(path) \
    { path ":gate_up_proj", ROLE_EXPERTS_IN,  EXT_2EXPERT_FFN, EXT_HIDDEN,     ALWAYS }, \
    { path ":down_proj",    ROLE_EXPERTS_OUT, EXT_HIDDEN,      EXT_EXPERT_FFN, ALWAYS }
#define ROUTER(path)    { path, ROLE_ROUTER, EXT_EXPERTS, EXT_HIDDEN, ALWAYS }
#define SHARED(path) \
    { path ".gate_proj", ROLE_SHARED_GATE, EXT_SHARED_FFN, EXT_HIDDEN,     ALWAYS }, \
    { path ".up_proj",   ROLE_SHARED_UP,   EXT_SHARED_FFN, EXT_HIDDEN,     ALWAYS }, \
    { path ".down_proj", ROLE_SHARED_DOWN, EXT_HIDDEN,     EXT_SHARED_FFN, ALWAYS }

static const struct part mixtral_block[] = { ATTENTION, ROUTER("mlp.gate"), EXPERTS("mlp.experts"), TWO_NORMS, { 0 } };

#define QWEN3_ATTENTION \
    ATTENTION, \
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM }, \
    { "self_attn.k_norm", ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM }
static const struct part qwen3_moe_block[] = { QWEN3_ATTENTION, EXPERTS("mlp.experts"), ROUTER("mlp.gate"), TWO_NORMS, { 0 } };
static const struct part qwen3_moe_dense[] = { QWEN3_ATTENTION, GATED_MLP, TWO_NORMS, { 0 } };

#define LATENT_ATTENTION \
    { "self_attn.q_proj",             ROLE_Q,         EXT_Q,            EXT_HIDDEN,  IF_NO_Q_RANK }, \
    { "self_attn.q_a_proj",           ROLE_Q_A,       EXT_Q_RANK,       EXT_HIDDEN,  IF_Q_RANK }, \
    { "self_attn.q_a_layernorm",      ROLE_Q_A_NORM,  EXT_Q_RANK,       EXT_NONE,    IF_Q_RANK }, \
    { "self_attn.q_b_proj",           ROLE_Q_B,       EXT_Q,            EXT_Q_RANK,  IF_Q_RANK }, \
    { "self_attn.kv_a_proj_with_mqa", ROLE_KV_A,      EXT_KV_RANK_ROPE, EXT_HIDDEN,  ALWAYS }, \
    { "self_attn.kv_a_layernorm",     ROLE_KV_A_NORM, EXT_KV_RANK,      EXT_NONE,    ALWAYS }, \
    { "self_attn.kv_b_proj",          ROLE_KV_B,      EXT_KV_UP,        EXT_KV_RANK, ALWAYS }, \
    { "self_attn.o_proj",             ROLE_ATTN_OUT,  EXT_HIDDEN,       EXT_VALUES,  ALWAYS }
static const struct part deepseek_v3_block[] = {
    LATENT_ATTENTION, EXPERTS("mlp.experts"), ROUTER("mlp.gate"), SHARED("mlp.shared_experts"), TWO_NORMS, { 0 }
};
static const struct part deepseek_v3_dense[] = { LATENT_ATTENTION, GATED_MLP, TWO_NORMS, { 0 } };

static const struct part glm4_moe_block[] = {
    QWEN3_ATTENTION, EXPERTS("mlp.experts"), ROUTER("mlp.gate"), SHARED("mlp.shared_experts"), TWO_NORMS, { 0 }
};

static const struct part gpt_oss_block[] = {
    { "self_attn:sinks", ROLE_SINKS, EXT_HEADS, EXT_NONE, ALWAYS },
    ATTENTION,
    ROUTER("mlp.router"),
    { "mlp.experts:gate_up_proj",      ROLE_EXPERTS_IN,  EXT_HIDDEN,      EXT_2EXPERT_FFN, ALWAYS },
    { "mlp.experts:gate_up_proj_bias", ROLE_EXPERTS_IN,  EXT_2EXPERT_FFN, EXT_NONE,        ALWAYS },
    { "mlp.experts:down_proj",         ROLE_EXPERTS_OUT, EXT_EXPERT_FFN,  EXT_HIDDEN,      ALWAYS },
    { "mlp.experts:down_proj_bias",    ROLE_EXPERTS_OUT, EXT_HIDDEN,      EXT_NONE,        ALWAYS },
    TWO_NORMS,
    { 0 }
};

static const struct part llama4_block[] = {
    ATTENTION,
    { "feed_forward.experts:gate_up_proj", ROLE_EXPERTS_IN,  EXT_HIDDEN,     EXT_2EXPERT_FFN, ALWAYS },
    { "feed_forward.experts:down_proj",    ROLE_EXPERTS_OUT, EXT_EXPERT_FFN, EXT_HIDDEN,      ALWAYS },
    ROUTER("feed_forward.router"), SHARED("feed_forward.shared_expert"), TWO_NORMS,
    { 0 }
};
static const struct part llama4_dense[] = {
    ATTENTION,
    { "feed_forward.gate_proj", ROLE_GATE, EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "feed_forward.up_proj",   ROLE_UP,   EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "feed_forward.down_proj", ROLE_DOWN, EXT_HIDDEN, EXT_FFN,    ALWAYS },
    TWO_NORMS,
    { 0 }
};

static const struct part granitemoe_block[] = {
    ATTENTION, TWO_NORMS, ROUTER("block_sparse_moe.router"), EXPERTS("block_sparse_moe.experts"), { 0 }
};

static const struct part olmoe_block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_Q,  EXT_NONE, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_KV, EXT_NONE, IF_QK_NORM },
    ROUTER("mlp.gate"), EXPERTS("mlp.experts"), TWO_NORMS,
    { 0 }
};

/* ---- All of them ---- */

/* What most have in common: rotary positions and Llama's names around the blocks. */
#define LLAMA_LIKE(type, parts, norm_, mlp_) \
    .name = type, .blocks = "model.layers", .before = llama_before, .block = parts, .after = llama_after, \
    .norm = norm_, .mlp = mlp_, .position = POS_ROPE

static const struct family families[] = {
    { .name = "gpt2", .blocks = "transformer.h",
      .before = gpt2_before, .block = gpt2_block, .after = gpt2_after, .in_out = true,
      .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_LEARNED,
      .fused_qkv = true, .norm_bias = true },
    { .name = "gpt_neox", .blocks = "gpt_neox.layers",
      .before = neox_before, .block = neox_block, .after = neox_after,
      .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ROPE,
      .fused_qkv = true, .qkv_grouped = true, .norm_bias = true },
    /* OPTLearnedPositionalEmbedding: positions start at 2. */
    { .name = "opt", .blocks = "model.decoder.layers", .extra_positions = 2,
      .before = opt_before, .block = opt_block, .after = head_only,
      .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_LEARNED, .norm_bias = true },
    { .name = "bloom", .blocks = "transformer.h",
      .before = bloom_before, .block = bloom_block, .after = gpt2_after,
      .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ALIBI,
      .fused_qkv = true, .qkv_grouped = true, .norm_bias = true },
    { .name = "mpt", .blocks = "transformer.blocks",
      .before = mpt_before, .block = mpt_block, .after = mpt_after,
      .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ALIBI, .fused_qkv = true },
    { .name = "llama", .blocks = "model.layers",
      .before = llama_before, .block = llama_block, .after = llama_after,
      .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE },
    { .name = "mistral", .blocks = "model.layers",
      .before = llama_before, .block = llama_block, .after = llama_after,
      .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE },
    { .name = "qwen2", .blocks = "model.layers",
      .before = llama_before, .block = llama_block, .after = llama_after,
      .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE },
    { .name = "qwen3", .blocks = "model.layers",
      .before = llama_before, .block = llama_block, .after = llama_after,
      .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE, .qk_norm = true },
    { .name = "gemma", .blocks = "model.layers",
      .before = llama_before, .block = llama_block, .after = llama_after,
      .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE },
    { .name = "gemma2", .blocks = "model.layers",
      .before = llama_before, .block = llama_block, .after = llama_after,
      .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE, .norm_place = NORM_AROUND },
    { .name = "phi3", .blocks = "model.layers",
      .before = llama_before, .block = phi3_block, .after = llama_after,
      .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE,
      .fused_qkv = true, .fused_gate_up = true },
    { .name = "falcon", .blocks = "transformer.h",
      .before = falcon_before, .block = falcon_block, .after = gpt2_after,
      .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ROPE,
      .fused_qkv = true, .qkv_grouped = true, .norm_bias = true },
    { .name = "starcoder2", .blocks = "model.layers",
      .before = llama_before, .block = starcoder2_block, .after = llama_after,
      .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ROPE, .norm_bias = true },
    { LLAMA_LIKE("gemma3_text", llama_block, NORM_RMS, MLP_GATED), .qk_norm = true,
      .norm_place = NORM_AROUND },
    { LLAMA_LIKE("ministral", llama_block, NORM_RMS, MLP_GATED) },
    { LLAMA_LIKE("ministral3", llama_block, NORM_RMS, MLP_GATED) },
    { LLAMA_LIKE("olmo2", olmo2_block, NORM_RMS, MLP_GATED), .qk_norm = true, .norm_place = NORM_BEHIND },
    { LLAMA_LIKE("olmo3", olmo2_block, NORM_RMS, MLP_GATED), .qk_norm = true, .norm_place = NORM_BEHIND },
    { .name = "phi", .blocks = "model.layers", .before = llama_before, .block = phi_block,
      .after = phi_after, .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ROPE, .parallel = true,
      .one_norm = true, .qk_norm_bias = true, .norm_bias = true, .head_bias = true },
    { LLAMA_LIKE("granite", llama_block, NORM_RMS, MLP_GATED), .scaled_logits = true },
    { LLAMA_LIKE("smollm3", llama_block, NORM_RMS, MLP_GATED) },
    { LLAMA_LIKE("stablelm", stablelm_block, NORM_LAYER, MLP_GATED), .norm_bias = true },
    { LLAMA_LIKE("cohere", cohere_block, NORM_LAYER, MLP_GATED), .parallel = true, .one_norm = true, .scaled_logits = true },
    { LLAMA_LIKE("cohere2", cohere_block, NORM_LAYER, MLP_GATED), .parallel = true, .one_norm = true, .scaled_logits = true },
    { LLAMA_LIKE("glm", glm_block, NORM_RMS, MLP_GATED), .fused_gate_up = true },
    { LLAMA_LIKE("glm4", glm4_block, NORM_RMS, MLP_GATED), .fused_gate_up = true,
      .norm_place = NORM_AROUND },
    { LLAMA_LIKE("nemotron", nemotron_block, NORM_LAYER, MLP_PLAIN), .norm_bias = true },
    { LLAMA_LIKE("arcee", nemotron_block, NORM_RMS, MLP_PLAIN) },
    { LLAMA_LIKE("seed_oss", llama_block, NORM_RMS, MLP_GATED) },
    { LLAMA_LIKE("exaone4", exaone4_block, NORM_RMS, MLP_GATED), .qk_norm = true,
      .norm_place = NORM_BEHIND },
    { LLAMA_LIKE("ernie4_5", llama_block, NORM_RMS, MLP_GATED) },
    { LLAMA_LIKE("hunyuan_v1_dense", hunyuan_block, NORM_RMS, MLP_GATED), .qk_norm = true },
    { LLAMA_LIKE("mixtral", mixtral_block, NORM_RMS, MLP_GATED) },
    { LLAMA_LIKE("qwen3_moe", qwen3_moe_block, NORM_RMS, MLP_GATED), .dense = qwen3_moe_dense, .qk_norm = true },
    { LLAMA_LIKE("deepseek_v3", deepseek_v3_block, NORM_RMS, MLP_GATED), .dense = deepseek_v3_dense, .wide_router = true },
    { LLAMA_LIKE("glm4_moe", glm4_moe_block, NORM_RMS, MLP_GATED), .dense = qwen3_moe_dense, .wide_router = true },
    { LLAMA_LIKE("gpt_oss", gpt_oss_block, NORM_RMS, MLP_GATED), .router_bias = true, .experts_in_out = true },
    { LLAMA_LIKE("llama4_text", llama4_block, NORM_RMS, MLP_GATED), .dense = llama4_dense, .experts_in_out = true },
    { LLAMA_LIKE("granitemoe", granitemoe_block, NORM_RMS, MLP_GATED), .scaled_logits = true },
    { LLAMA_LIKE("olmoe", olmoe_block, NORM_RMS, MLP_GATED), .qk_norm = true },
};

const struct family *family_at(int i)
{
    int n = (int)(sizeof families / sizeof *families);

    return i >= 0 && i < n ? &families[i] : NULL;
}

const struct family *family_find(const char *model_type)
{
    const struct family *f;

    for (int i = 0; (f = family_at(i)) != NULL; i++)
        if (!strcmp(f->name, model_type))
            return f;
    return NULL;
}
