/* falcon.c -- models/falcon/ of transformers 5.23.  The MLP is registered before the norms, and of the two norms of sequential
 * blocks the MLP's first
 * (FalconDecoderLayer.__init__). */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    INT("vocab_size", vocab, 65024), TIED(true),
    INT2("hidden_size", "n_embed", hidden, 4544), INT_NULL("ffn_hidden_size", ffn, HF_DERIVED),
    INT("num_hidden_layers", layers, 32), INT("num_attention_heads", heads, 71),
    INT("max_position_embeddings", context, 2048), ACT("activation", ACT_GELU),
    BOOL("bias", qkv_bias, false), BOOL("bias", out_bias, false), BOOL("bias", mlp_bias, false),
    RATE("hidden_dropout", dropout, 0), ATTN_DROPOUT,
    NORMS("layer_norm_epsilon", 1e-5), INIT(0.02), END
};

/* FalconAttention and FalconDecoderLayer: the new architecture groups queries by
 * key/value head and gives each half its norm; the old one has one key/value
 * head or as many as there are heads, and parallel halves share a norm. */
static int read_config(const struct hf *c, struct model *m)
{
    bool grouped, multi_query, alibi;
    int64_t norms, kv;

    if (hf_bool(c, "new_decoder_architecture", false, &grouped) < 0
        || hf_bool(c, "multi_query", true, &multi_query) < 0
        || hf_bool(c, "parallel_attn", true, &m->parallel) < 0
        || hf_bool(c, "alibi", false, &alibi) < 0)
        return -1;
    kv = m->heads;
    if (!hf_is_null(c, "num_kv_heads")
        && hf_int(c, "num_kv_heads", m->heads, MODEL_MAX_DIM, &kv) < 0)
        return -1;
    norms = grouped ? 2 : 1;
    if (!hf_is_null(c, "num_ln_in_parallel_attn")
        && hf_int(c, "num_ln_in_parallel_attn", norms, 2, &norms) < 0)
        return -1;
    if (grouped && !m->parallel)
        return hf_refuse(c, "parallel_attn",
                         "true with \"new_decoder_architecture\", which has no other form");
    if (!grouped && norms == 2)
        return hf_refuse(c, "num_ln_in_parallel_attn",
                         "1 unless \"new_decoder_architecture\" is true");
    m->kv_heads = grouped ? kv : multi_query ? 1 : m->heads;
    m->mlp_norm = !m->parallel || norms == 2;
    m->position = alibi ? POS_ALIBI : POS_ROPE;
    return 0;
}

static int write_config(const struct model *m, json_t *config)
{
    bool few = m->kv_heads != 1 && m->kv_heads != m->heads;
    bool grouped = m->parallel && (m->mlp_norm || few);
    json_t *own = json_pack("{s:b,s:b,s:b,s:b,s:I,s:i}", "new_decoder_architecture", grouped,
                            "multi_query", m->kv_heads == 1, "parallel_attn", m->parallel,
                            "alibi", m->position == POS_ALIBI,
                            "num_kv_heads", (json_int_t)m->kv_heads,
                            "num_ln_in_parallel_attn", grouped && m->mlp_norm ? 2 : 1);
    int rc = json_object_update(config, own);

    json_decref(own);
    return rc;
}

static const struct module_row before[] = {
    { "transformer.word_embeddings", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct module_row block[] = {
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

const struct family falcon_family = {
    .name = "falcon",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta", .read = read_config, .write = write_config,
    .blocks = "transformer.h", .before = before, .after = rows_gpt2_after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_ROPE, .fused_qkv = true, .qkv_grouped = true, .norm_bias = true,
    .calls = { { "", "transformer![ word_embeddings! rotary_emb~ @ ln_f ] lm_head",
          "input_layernorm* ln_attn* ln_mlp* self_attention[ query_key_value attention_dropout& dense ] "
          "post_attention_layernorm* mlp[ dense_h_to_4h act dense_4h_to_h ] dropout%?" } },
    .hidden_dropout = true, .low_softmax = true, .falcon = true,
    .always_masked = true, .own_groups = true,
    .block_class = "FalconDecoderLayer", .lora_targets = "query_key_value",
    .no_kv_heads = true,
};
