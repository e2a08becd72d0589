/* Options of Megatron-LM that describe a model: lists of layers, DeepSeek-V3's command line and recipe, what is refused by name and what is listed;
 * of dense models what a line leaves out; and the line of each model that the export can write. */
#include "tests/model/plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/notes.h"
#include "model/exchange/export.h"
#include "model/exchange/megatron_layers.h"
#include "tests/model/megatron_text.h"

/* What Python makes of the text; "": refused. */
static void lists_are_read_as_python_does(void **state)
{
    static const struct { const char *json; int64_t layers, every; const char *list; } cases[] = {
        { "3", 6, 3, NULL }, { "1", 2, 1, NULL }, { "[1, 0, 1]", 3, 0, "101" }, { "\"[0]*3+[1]*2\"", 5, 0, "00011" }, { "\"([0]*1+[1]*2)*2\"", 6, 0, "011011" },
        { "\"2*([1,0]+[0])\"", 6, 0, "100100" }, { "\"[1]*(1+2)*2\"", 6, 0, "111111" }, { "\"[0]*0+[1]*2\"", 2, 0, "11" }, { "\"[1,0,]\"", 2, 0, "10" },
        { "[\"([0]\", \"*\", 1, \"+\", \"[1]\", \"*\", \"1)\"]", 2, 0, "01" },
        { "\"[1]+[0]*2*[1]\"", 3, 0, "" }, { "\"[2]\"", 1, 0, "" }, { "\"[1]*2+1\"", 3, 0, "" }, { "\"[1\"", 1, 0, "" }, { "\"4\"", 4, 0, "" },
        { "\"[1]*9999\"", 4, 0, "" }, { "\"[1]*3\"", 4, 0, "" }, { "\"[[1]]\"", 1, 0, "" }, { "0", 1, 0, "" }, { "\"[1]; x\"", 1, 0, "" }, { "\"\"", 1, 0, "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        unsigned char of[MODEL_MAX_LAYERS];
        char why[512] = "";
        int64_t every;
        bool refused = cases[i].list && !*cases[i].list;
        assert_non_null(v);
        fail_capture(why, sizeof why);
        int rc = megatron_layers_read(v, "t", "moe_layer_freq", cases[i].layers, &every, of);
        fail_capture(NULL, 0);
        json_decref(v);
        if ((rc < 0) != refused)
            fail_msg("%s: %d: %s", cases[i].json, rc, why);
        if (refused)
            continue;
        assert_int_equal(every, cases[i].every);
        for (int64_t k = 0; cases[i].list && k < cases[i].layers; k++)
            assert_int_equal(of[k], cases[i].list[k] - '0');
    }
}

/* 1000 times "(": it is refused, and no stack runs out. */
static void deep_nesting_is_refused(void **state)
{
    char text[1001], why[256] = "";
    unsigned char of[MODEL_MAX_LAYERS];
    int64_t every;

    (void)state;
    memset(text, '(', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    json_t *v = json_string(text);
    fail_capture(why, sizeof why);
    assert_int_equal(megatron_layers_read(v, "t", "moe_layer_freq", 4, &every, of), -1);
    fail_capture(NULL, 0);
    json_decref(v);
}

/* ---- DeepSeek-V3 ---- */

#define SIZES "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --vocab-size 129280 --max-position-embeddings 163840 "  \
              "--swiglu --normalization RMSNorm --norm-epsilon 1e-6 --position-embedding-type rope --rotary-base 10000 "                                    \
              "--untie-embeddings-and-output-weights --disable-bias-linear --qk-layernorm --hidden-dropout 0 --attention-dropout 0 "
#define LATENT "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 "             \
               "--rotary-scaling-factor 40 --mscale 1.0 --mscale-all-dim 1.0 "
#define EXPERTS "--num-experts 256 --moe-layer-freq ([0]*3+[1]*58) --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 "               \
                "--moe-router-topk 8 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
#define ROUTER "--moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-3 --moe-router-num-groups 8 "        \
               "--moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 "
#define TRAINS "--bf16 --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 512 --seq-length 4096 --expert-model-parallel-size 32 "      \
               "--expert-tensor-parallel-size 1 --tensor-model-parallel-size 2 --sequence-parallel "

static int read_deepseek(const char *text, const char *end, struct plan *out, json_t **said)
{
    json_t *notes = json_array(), *before = notes_divert(notes);
    struct plan model;

    plan_of(&model, "deepseek-v3", 0, 64, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    int rc = imported(text, end, &model, out);
    notes_divert(before);
    plan_free(&model);
    if (said)
        *said = notes;
    else
        json_decref(notes);
    return rc;
}

static void deepseeks_command_line_is_read(void **state)
{
    struct plan p;
    json_t *said;

    (void)state;
    assert_int_equal(read_deepseek("pretrain_gpt.py " SIZES LATENT EXPERTS ROUTER TRAINS, "txt", &p, &said), 0);
    assert_int_equal(p.parallel.expert, 32);
    assert_int_equal(p.parallel.expert_tensor, 1);
    assert_int_equal(p.parallel.tensor, 2);
    assert_int_equal(p.accumulation, 512 / 32);
    assert_int_equal(json_array_size(said), 0);
    json_decref(said);
    plan_free(&p);
}

/* A recipe of Megatron-Bridge: fields of MLATransformerConfig, whose ranks are 512 where they are left out. */
#define BRIDGE "train:\n  micro_batch_size: 1\n  global_batch_size: 128\nddp:\n  use_distributed_optimizer: true\nmixed_precision:\n  bf16: true\n  grad_reduce_in_fp32: true\n"  \
    "model:\n  seq_length: 4096\n  num_layers: 61\n  hidden_size: 7168\n  normalization: RMSNorm\n  position_embedding_type: rope\n  gated_linear_unit: true\n"        \
    "  add_bias_linear: false\n  share_embeddings_and_output_weights: false\n  qk_layernorm: true\n  hidden_dropout: 0.0\n  attention_dropout: 0.0\n"               \
    "  multi_latent_attention: true\n  qk_head_dim: 128\n  num_moe_experts: 256\n  moe_layer_freq: [0, 0, 0" FIFTY_EIGHT "]\n  moe_ffn_hidden_size: 2048\n"      \
    "  moe_shared_expert_intermediate_size: 2048\n  moe_router_topk: 8\n  moe_grouped_gemm: true\n  moe_token_dispatcher_type: alltoall\n"                      \
    "  moe_router_score_function: sigmoid\n  moe_router_enable_expert_bias: true\n  moe_router_num_groups: 8\n  moe_router_group_topk: 4\n"                     \
    "  expert_model_parallel_size: 16\n  pipeline_model_parallel_size: 1\n  apply_rope_fusion: true\n"
#define TEN ", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1"
#define FIFTY_EIGHT TEN TEN TEN TEN TEN ", 1, 1, 1, 1, 1, 1, 1, 1"

static void a_recipe_in_sections_is_read(void **state)
{
    struct plan p;
    char why[512] = "";

    (void)state;
    assert_int_equal(read_deepseek(BRIDGE "  q_lora_rank: 1536\n", "yaml", &p, NULL), 0);
    assert_int_equal(p.parallel.expert, 16);
    plan_free(&p);
    fail_capture(why, sizeof why);
    assert_int_equal(read_deepseek(BRIDGE, "yaml", &p, NULL), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "q_lora_rank: 512, but deepseek-v3 has 1536"));
    fail_capture(why, sizeof why);
    assert_int_equal(read_deepseek(BRIDGE "  q_lora_rank: null\n", "yaml", &p, NULL), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "q_lora_rank: 0 where it is left out, but"));
}

/* What is left out, or other than the model's, is another model's; what is not modelled is refused by name. */
/* Of latent attention the command line fuses rotary positions unless it says not to; a recipe does where it says so. */
static void rotary_positions_are_fused_where_somebody_says_so(void **state)
{
    static const char *const recipe[] = { BRIDGE "  q_lora_rank: 1536\n", BRIDGE "  q_lora_rank: 1536\n  apply_rope_fusion: false\n",
                                          BRIDGE "  q_lora_rank: 1536\n  apply_rope_fusion: null\n" };
    struct plan model, p;
    char text[4096];

    (void)state;
    plan_of(&model, "deepseek-v3", 0, 64, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (int k = 0; k < 5; k++) {
        const char *stated = "  apply_rope_fusion: true\n", *from = k < 2 ? SIZES LATENT EXPERTS ROUTER TRAINS : recipe[k - 2], *at = strstr(from, stated);
        if (k < 3)
            snprintf(text, sizeof text, "%s%s", from, k == 1 ? " --no-rope-fusion --attention-backend unfused" : "");
        else                            /* the first of both is left out */
            snprintf(text, sizeof text, "%.*s%s", (int)(at - from), from, at + strlen(stated));
        assert_int_equal(imported(text, k < 2 ? "txt" : "yaml", &model, &p), 0);
        assert_int_equal(p.megatron.apply_rope_fusion, k == 0 || k == 2);
        plan_free(&p);
    }
    plan_free(&model);
}

static void other_models_are_refused(void **state)
{
    static const struct { const char *text, *says; } cases[] = {
        { SIZES EXPERTS ROUTER TRAINS, "multi_latent_attention: deepseek-v3 has it" },
        { SIZES "--multi-latent-attention --q-lora-rank 1536 " EXPERTS ROUTER TRAINS, "kv_lora_rank: 32 where it is left out, but deepseek-v3 has 512" },
        { SIZES "--multi-latent-attention --kv-lora-rank 512 " EXPERTS ROUTER TRAINS, "q_lora_rank: 0 where it is left out" },
        { SIZES LATENT "--v-head-dim 192 " EXPERTS ROUTER TRAINS, "v_head_dim: 192, but deepseek-v3 has 128" },
        { SIZES LATENT "--rope-type rope " EXPERTS ROUTER TRAINS, "rope_type: Megatron-LM has fused rotary positions of latent attention of YaRN alone" },
        { SIZES LATENT EXPERTS TRAINS, "moe_router_score_function: missing: deepseek-v3 is modelled with sigmoid alone" },
        { SIZES LATENT EXPERTS TRAINS "--moe-router-score-function sigmoid", "moe_router_enable_expert_bias: missing" },
        { SIZES LATENT EXPERTS TRAINS "--moe-router-score-function sigmoid --moe-router-enable-expert-bias", "moe_router_num_groups: 1 where it is left out" },
        { TRAINS ROUTER "--moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-layer-freq 1", "moe_layer_freq: layer 0 with experts, but of deepseek-v3 it has none" },
        { TRAINS ROUTER "--moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-layer-freq [0]*4+[1]*57", "layer 3 without experts" },
        { TRAINS ROUTER "--moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-layer-freq [0]*3+[1]*57", "moe_layer_freq: 60 layers" },
        { SIZES LATENT "--num-experts 256 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-router-topk 8 --moe-grouped-gemm "
          "--moe-token-dispatcher-type alltoall " ROUTER TRAINS, "layer 0 with experts" },
        { TRAINS "--moe-shared-expert-intermediate-size 4096", "moe_shared_expert_intermediate_size: 4096, but deepseek-v3 has 2048" },
        { TRAINS "--moe-shared-expert-gate", "a gate of shared experts" }, { TRAINS "--moe-latent-size 1024", "fewer dimensions" },
        { TRAINS "--overlap-moe-expert-parallel-comm", "another micro-batch" }, { TRAINS "--mtp-use-repeated-layer 1", "one layer of multi-token prediction" },
        { TRAINS "--multi-latent-attention 1", "it is there or not" },
        { TRAINS ROUTER "--moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-expert-capacity-factor 0", "drops every token" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        char why[512] = "";
        fail_capture(why, sizeof why);
        int rc = read_deepseek(cases[i].text, "txt", &p, NULL);
        fail_capture(NULL, 0);
        if (rc == 0 || !strstr(why, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", why, cases[i].says);
    }
}

/* GPTModel's own blocks of 64 x 256 in 2 layers, 50257 tokens, 32 positions.  A block has 2 norms of 64, products of 64 x 192, 64 x 64 and of its
 * MLP; biases of their outputs; a norm of q and one of k, of 16 each. */
static void own_blocks_have_these_parameters(void **state)
{
    enum { TABLE = 50257 * 64, POSITIONS = 32 * 64, NORM = 64, ATTENTION = 64 * 192 + 64 * 64, PLAIN = 2 * 64 * 256, GATED = 3 * 64 * 128 };
    static const struct { const char *options; int64_t params; } cases[] = {
        { "'disable_bias_linear':true", TABLE + POSITIONS + 2 * (4 * NORM + ATTENTION + PLAIN) + 2 * NORM },
        { "'swiglu':true,'ffn_hidden_size':128", TABLE + POSITIONS + 2 * (4 * NORM + ATTENTION + 192 + 64 + GATED + 256 + 64) + 2 * NORM },
        { "'swiglu':true", TABLE + POSITIONS + 2 * (4 * NORM + ATTENTION + 192 + 64 + GATED + 256 + 64) + 2 * NORM },  /* 8/3 of 64 in steps of 64: 128 */
        { "'qk_layernorm':true", TABLE + POSITIONS + 2 * (4 * NORM + 4 * 16 + ATTENTION + 192 + 64 + PLAIN + 256 + 64) + 2 * NORM },
        { "'normalization':'RMSNorm','disable_bias_linear':true", TABLE + POSITIONS + 2 * (2 * NORM + ATTENTION + PLAIN) + NORM },
        { "'swiglu':true,'disable_bias_linear':true,'position_embedding_type':'rope'", TABLE + 2 * (4 * NORM + ATTENTION + GATED) + 2 * NORM },
        { "'disable_bias_linear':true,'untie_embeddings_and_output_weights':true", 2 * TABLE + POSITIONS + 2 * (4 * NORM + ATTENTION + PLAIN) + 2 * NORM },
        { "'disable_bias_linear':true,'group_query_attention':true,'num_query_groups':2", TABLE + POSITIONS + 2 * (4 * NORM + 64 * 128 + 64 * 64 + PLAIN) + 2 * NORM },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct model m;
        snprintf(text, sizeof text, "{'num_layers':2,'hidden_size':64,'num_attention_heads':4,'seq_length':32,'max_position_embeddings':32,'vocab_size':50257,%s}",
                 cases[i].options);
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        json_t *options = json_loads(text, 0, NULL), *config = megatron_config(options, "t");
        assert_non_null(config);
        assert_int_equal(model_from_config(config, "t", &m), 0);
        assert_string_equal(m.family, "megatron_gpt");
        if (m.params != cases[i].params)
            fail_msg("%s: %lld parameters, not %lld", cases[i].options, (long long)m.params, (long long)cases[i].params);
        model_free(&m);
        json_decref(config);
        json_decref(options);
    }
}

/* What no class of transformers has is Megatron-LM's alone. */
static void own_blocks_are_of_megatron_alone(void **state)
{
    struct plan p;
    char why[512] = "";

    (void)state;
    fail_capture(why, sizeof why);
    json_t *j = json_pack("{s:i, s:{s:s}, s:s, s:s, s:s, s:i, s:i}", "dpx_plan", 1, "model", "model_type", "megatron_gpt", "cluster", "1x2xh100",
                          "strategy", "fsdp", "dialect", "torch", "seq", 64, "micro_batch", 1);
    int rc = plan_from_json(j, "plan", &p);
    fail_capture(NULL, 0);
    json_decref(j);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(why, "dialect megatron trains it"));
}

/* DeepSeek-V3's blocks, but for what no family has. */
static void other_mixtures_are_refused_by_the_option(void **state)
{
    static const struct { const char *options, *says; } cases[] = {
        { "'moe_shared_expert_intermediate_size':96", "moe_shared_expert_intermediate_size: 96 is no multiple of an expert's width, 64" },
        { "'moe_shared_expert_intermediate_size':32", "moe_shared_expert_intermediate_size: 32 is no multiple" },
        { "'moe_shared_expert_intermediate_size':64,'moe_layer_freq':2", "moe_layer_freq: 2: " },
        { "'moe_shared_expert_intermediate_size':64,'moe_layer_freq':'[0,1,0,1]'", "moe_layer_freq: layer 2 is dense behind layers with experts" },
        { "'moe_shared_expert_intermediate_size':64,'moe_layer_freq':'[0]*3'", "moe_layer_freq: " },
        { "'moe_shared_expert_intermediate_size':64,'num_layers':5000,'moe_layer_freq':'[1]*5000'", "num_layers: 5000: at most 4096 are planned" },
        { "'mtp_num_layers':1", "mtp_num_layers: the options describe such a model only with" },
        { "'kv_lora_rank':8", "multi_latent_attention: the options describe such a model only with" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512], why[512] = "";
        snprintf(text, sizeof text, "{%s'hidden_size':64,'num_attention_heads':4,'seq_length':32,'max_position_embeddings':32,'vocab_size':500,"
                 "'normalization':'RMSNorm','swiglu':true,'position_embedding_type':'rope','num_experts':8,'moe_ffn_hidden_size':64%s,%s}",
                 strstr(cases[i].options, "num_layers':5") ? "" : "'num_layers':4,", strstr(cases[i].options, "mtp") ? "" : ",'multi_latent_attention':true", cases[i].options);
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        json_t *options = json_loads(text, 0, NULL);
        assert_non_null(options);
        fail_capture(why, sizeof why);
        assert_null(megatron_config(options, "t"));
        fail_capture(NULL, 0);
        if (!strstr(why, cases[i].says))
            fail_msg("%s: %s", cases[i].options, why);
        json_decref(options);
    }
}

/* Of a model without them. */
static void latent_attention_is_not_llamas(void **state)
{
    struct plan model, p;
    char why[512] = "";

    (void)state;
    plan_of(&model, "llama-3.1-8b", 8, 16, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    fail_capture(why, sizeof why);
    assert_int_equal(imported("--micro-batch-size 1 --seq-length 512 --bf16 --multi-latent-attention", "txt", &model, &p), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "multi_latent_attention: llama-3.1-8b does not have it"));
    plan_free(&model);
}

/* ---- gpt_oss ---- */

#define OSS_SIZES "--num-layers 24 --hidden-size 2880 --ffn-hidden-size 2880 --num-attention-heads 64 --group-query-attention --num-query-groups 8 "            \
                  "--kv-channels 64 --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --hidden-dropout 0 "              \
                  "--attention-dropout 0 --num-experts 32 --moe-ffn-hidden-size 2880 --moe-router-topk 4 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
#define OSS_KIND "--quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value 7.0 --softmax-type learnable --no-bias-dropout-fusion "
#define OSS_TRAINS "--bf16 --use-distributed-optimizer --micro-batch-size 1 --seq-length 4096 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "

static void gpt_oss_is_read_or_another_model(void **state)
{
    static const struct { const char *text, *says; } cases[] = {
        { OSS_SIZES OSS_KIND "--window-size 128,0 --window-attn-skip-freq 2 " OSS_TRAINS, NULL },
        { OSS_SIZES OSS_KIND "--window-size (127,0) --window-attn-skip-freq [1,0]*12 " OSS_TRAINS, NULL },
        { OSS_SIZES OSS_KIND "--window-size 256,0 --window-attn-skip-freq 2 " OSS_TRAINS, "window_size: expected 128,0" },
        { OSS_SIZES OSS_KIND "--window-size 128,1 --window-attn-skip-freq 2 " OSS_TRAINS, "window_size: expected 128,0" },
        { OSS_SIZES OSS_KIND "--window-attn-skip-freq 2 " OSS_TRAINS, "window_size: expected 128,0" },
        { OSS_SIZES OSS_KIND "--window-size 128,0 --window-attn-skip-freq 3 " OSS_TRAINS, "window_attn_skip_freq: layer 1 with a window" },
        { OSS_SIZES OSS_KIND "--window-size 128,0 " OSS_TRAINS, "window_attn_skip_freq: layer 1 with a window" },
        { OSS_SIZES "--swiglu --softmax-type learnable --no-bias-dropout-fusion --window-size 128,0 --window-attn-skip-freq 2 " OSS_TRAINS, "swiglu: gpt-oss-20b does not have it" },
        { OSS_SIZES "--quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value 7.0 --softmax-type learnable --window-size 128,0 --window-attn-skip-freq 2 " OSS_TRAINS,
          "no_bias_dropout_fusion: missing" },
        { OSS_SIZES OSS_KIND "--disable-bias-linear --window-size 128,0 --window-attn-skip-freq 2 " OSS_TRAINS, "disable_bias_linear: gpt-oss-20b does not have it" },
        { OSS_TRAINS "--moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-router-score-function sigmoid", "softmax alone is modelled" },
    };
    struct plan model, p;

    (void)state;
    plan_of(&model, "gpt-oss-20b", 0, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[512] = "";
        fail_capture(why, sizeof why);
        int rc = imported(cases[i].text, "txt", &model, &p);
        fail_capture(NULL, 0);
        if ((rc < 0) != (cases[i].says != NULL) || (cases[i].says && !strstr(why, cases[i].says)))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, why, cases[i].says ? cases[i].says : "");
        if (rc == 0)
            plan_free(&p);
    }
    plan_free(&model);
}

/* What costs something and no plan has a word for is listed; a coefficient of 0 asks for nothing. */
static void what_is_not_followed_is_told(void **state)
{
    struct plan p;
    json_t *said;

    (void)state;
    assert_int_equal(read_deepseek("pretrain_gpt.py " SIZES LATENT EXPERTS ROUTER TRAINS "--moe-aux-loss-coeff 0.0001 --moe-z-loss-coeff 0 --moe-router-dtype fp32 "
                                   "--moe-router-load-balancing-type seq_aux_loss", "txt", &p, &said), 0);
    assert_int_equal(json_array_size(said), 1);
    assert_non_null(strstr(json_string_value(json_array_get(said, 0)), "moe_router_dtype is not in the plan"));
    assert_true(p.megatron.moe_aux_loss_coeff > 0.00009 && p.megatron.moe_aux_loss_coeff < 0.00011);
    json_decref(said);
    plan_free(&p);
}

/* No size depends on them, so that the plan is the same; the training is not. */
static void numbers_of_another_model_are_named(void **state)
{
    static const struct { const char *text, *says; } cases[] = {
        { SIZES LATENT EXPERTS ROUTER TRAINS "--rotary-base 500000", "rotary_base: 500000, but deepseek-v3 has 10000" },
        { SIZES LATENT EXPERTS ROUTER TRAINS "--moe-router-topk-scaling-factor 1", "moe_router_topk_scaling_factor: 1, but deepseek-v3 has 2.5" },
        { SIZES LATENT EXPERTS ROUTER TRAINS "--moe-router-group-topk 2", "moe_router_group_topk: 2, but deepseek-v3 has 4" },
        { SIZES LATENT EXPERTS ROUTER TRAINS "--rotary-scaling-factor 20", "rotary_scaling_factor: 20, but deepseek-v3 has 40" },
        { SIZES LATENT EXPERTS ROUTER TRAINS "--mscale 0.7", "mscale: 0.7, but deepseek-v3 has 1" },
        { SIZES LATENT EXPERTS "--moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-num-groups 8 "
          "--moe-router-group-topk 4 " TRAINS,
          "moe_router_topk_scaling_factor: 1 where it is left out, but deepseek-v3 has 2.5" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p;
        json_t *said;
        assert_int_equal(read_deepseek(cases[i].text, "txt", &p, &said), 0);
        assert_int_equal(json_array_size(said), 1);
        if (!strstr(json_string_value(json_array_get(said, 0)), cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", json_string_value(json_array_get(said, 0)), cases[i].says);
        json_decref(said);
        plan_free(&p);
    }
}

/* ---- dense models ---- */

#define LLAMA_SIZES "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --max-position-embeddings 131072 --vocab-size 128256 "
#define FFN "--ffn-hidden-size 14336 "
#define GROUPS "--group-query-attention --num-query-groups 8 "
#define LLAMA_KIND "--swiglu --normalization RMSNorm --position-embedding-type rope --rotary-base 500000 --use-rope-scaling "                             \
                   "--untie-embeddings-and-output-weights --disable-bias-linear "
#define DENSE_TRAINS "--seq-length 1024 --micro-batch-size 1 --bf16 --hidden-dropout 0 --attention-dropout 0 --use-distributed-optimizer "
#define LLAMA LLAMA_SIZES FFN GROUPS LLAMA_KIND DENSE_TRAINS
#define MINITRON "--num-layers 32 --hidden-size 3072 --ffn-hidden-size 9216 --num-attention-heads 24 " GROUPS "--max-position-embeddings 4096 "          \
                 "--vocab-size 256000 --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear "
#define QWEN "--num-layers 24 --hidden-size 896 --ffn-hidden-size 4864 --num-attention-heads 14 --group-query-attention --num-query-groups 2 "            \
             "--max-position-embeddings 32768 --vocab-size 151936 --swiglu --normalization RMSNorm --norm-epsilon 1e-6 --position-embedding-type rope "    \
             "--rotary-base 1000000 --disable-bias-linear "
#define GPT2 "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257 --seq-length 1024 --micro-batch-size 1 --bf16 "               \
             "--use-distributed-optimizer "
#define QWEN3 "--num-layers 28 --hidden-size 1024 --ffn-hidden-size 3072 --num-attention-heads 16 " GROUPS "--vocab-size 151936 --swiglu "                 \
              "--normalization RMSNorm --norm-epsilon 1e-6 --position-embedding-type rope --rotary-base 1000000 --disable-bias-linear "

/* A line's change, and what is said of it: a refusal, or where it is accepted the one note; NULL: nothing. */
static void what_a_line_leaves_out_is_held_against_the_model(void **state)
{
    static const struct { const char *model, *text; bool accepted; const char *says; } cases[] = {
        { "llama-3.1-8b", LLAMA, true, NULL },
        { "llama-3.1-8b", DENSE_TRAINS, true, NULL },
        { "llama-3.1-8b", DENSE_TRAINS "--kv-channels 64", false, "kv_channels: 64, but llama-3.1-8b has 128" },
        { "llama-3.1-8b", LLAMA_SIZES FFN "--num-query-groups 8 " LLAMA_KIND DENSE_TRAINS, false,
          "group_query_attention: missing: without it Megatron-LM has a key/value head for each of the 32 attention heads, but llama-3.1-8b has 8: "
          "--group-query-attention --num-query-groups 8" },
        { "llama-3.1-8b", LLAMA_SIZES FFN LLAMA_KIND DENSE_TRAINS, false, "group_query_attention: missing" },
        { "llama-3.1-8b", LLAMA_SIZES FFN "--group-query-attention " LLAMA_KIND DENSE_TRAINS, false, "num_query_groups: 1 where it is left out, but llama-3.1-8b has 8" },
        { "llama-3.1-8b", "--hidden-size 4096 " FFN LLAMA_KIND DENSE_TRAINS, false, "group_query_attention: missing" },
        { "llama-3.1-8b", "--hidden-size 4096 " GROUPS DENSE_TRAINS, false, "swiglu: llama-3.1-8b has it: without it" },
        { "llama-3.1-8b", LLAMA_SIZES GROUPS LLAMA_KIND DENSE_TRAINS, false, "ffn_hidden_size: 10880 where it is left out, but llama-3.1-8b has 14336" },
        { "llama-3.1-8b", LLAMA "--kv-channels 128", true, NULL },
        { "llama-3.1-8b", LLAMA "--kv-channels 64", false, "kv_channels: 64, but llama-3.1-8b has 128" },
        { "llama-3.1-8b", LLAMA "--squared-relu", false, "squared_relu: llama-3.1-8b does not have it: with it" },
        { "llama-3.1-8b", LLAMA "--add-qkv-bias", false, "add_qkv_bias: llama-3.1-8b does not have biases of q, k and v: with it" },
        { "llama-3.1-8b", LLAMA "--norm-epsilon 1e-6", true, "norm_epsilon: 1e-06, but llama-3.1-8b has 1e-05" },
        { "llama-3.1-8b", LLAMA "--rotary-percent 0.5", true, "rotary_percent: 0.5, but llama-3.1-8b has 1" },
        { "llama-3.1-8b", LLAMA "--rotary-percent half", false, "rotary_percent: expected a number" },
        { "llama-3.1-8b", LLAMA "--apply-layernorm-1p", true, "apply_layernorm_1p: given, but llama-3.1-8b does not have it" },
        { "llama-3.1-8b", LLAMA "--rotary-interleaved", true, "rotary_interleaved: given, but llama-3.1-8b does not have it" },
        { "llama-2-7b", "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --vocab-size 32000 " LLAMA_KIND DENSE_TRAINS
          "--rotary-base 10000 --group-query-attention", false, "num_query_groups: 1 where it is left out, but llama-2-7b has 32" },
        { "minitron-4b", MINITRON "--squared-relu --rotary-percent 0.5 --apply-layernorm-1p " DENSE_TRAINS, true, NULL },
        { "minitron-4b", MINITRON "--rotary-percent 0.5 --apply-layernorm-1p " DENSE_TRAINS, false, "squared_relu: minitron-4b has it: without it" },
        { "minitron-4b", MINITRON "--swiglu --squared-relu --rotary-percent 0.5 --apply-layernorm-1p " DENSE_TRAINS, false, "swiglu: minitron-4b does not have it" },
        { "minitron-4b", MINITRON "--squared-relu --apply-layernorm-1p " DENSE_TRAINS, true, "rotary_percent: 1 where it is left out, but minitron-4b has 0.5" },
        { "minitron-4b", MINITRON "--squared-relu --rotary-percent 0.5 " DENSE_TRAINS, true, "apply_layernorm_1p: left out, but minitron-4b has it" },
        { "qwen2.5-0.5b", QWEN "--add-qkv-bias " DENSE_TRAINS, true, NULL },
        { "qwen2.5-0.5b", QWEN DENSE_TRAINS, false, "add_qkv_bias: qwen2.5-0.5b has biases of q, k and v: without it" },
        { "qwen3-0.6b", QWEN3 "--qk-layernorm --kv-channels 128 " DENSE_TRAINS, true, NULL },
        { "qwen3-0.6b", QWEN3 "--qk-layernorm " DENSE_TRAINS, false, "kv_channels: 64 where it is left out, but qwen3-0.6b has 128" },
        { "qwen3-0.6b", QWEN3 "--kv-channels 128 " DENSE_TRAINS, false, "qk_layernorm: qwen3-0.6b has it" },
        { "gpt2", GPT2 "--max-position-embeddings 1024", true, NULL },
        { "gpt2", GPT2 "--max-position-embeddings 1024 --squared-relu", false, "squared_relu: gpt2 does not have it" },
        { "gpt2", GPT2 "--max-position-embeddings 2048", false, "max_position_embeddings: 2048, but gpt2 has 1024" },
        { "gpt2", GPT2 "--max-position-embeddings 1024 --position-embedding-type none", false, "position_embedding_type learned_absolute: gpt2 has it" },
        { "gpt2", GPT2 "--max-position-embeddings 1024 --disable-bias-linear", false, "disable_bias_linear: gpt2 does not have it" },
        { "deepseek-v3", SIZES LATENT EXPERTS ROUTER TRAINS "--group-query-attention", false, "mutually exclusive with multi latent attention" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan model, p;
        char why[512] = "";
        json_t *said = json_array(), *before = notes_divert(said);
        plan_of(&model, cases[i].model, 0, cases[i].model[0] == 'd' ? 64 : 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
        fail_capture(why, sizeof why);
        int rc = imported(cases[i].text, "txt", &model, &p);
        fail_capture(NULL, 0);
        notes_divert(before);
        const char *says = rc < 0 ? why : json_string_value(json_array_get(said, 0));
        if ((rc == 0) != cases[i].accepted || (says != NULL) != (cases[i].says != NULL) || (says && !strstr(says, cases[i].says)) || json_array_size(said) > 1)
            fail_msg("%zu, %s: %s: \"%s\"", i, cases[i].text, rc < 0 ? "refused" : "accepted", says ? says : "");
        if (rc == 0)
            plan_free(&p);
        json_decref(said);
        plan_free(&model);
    }
}

/* Of a recipe in sections what is left out is the class's that it is made from; what it states is held against the model. */
static void a_recipe_of_a_dense_model_is_read(void **state)
{
    static const char recipe[] =
        "train:\n  micro_batch_size: 1\nmixed_precision:\n  bf16: true\nmodel:\n  seq_length: 512\n  num_layers: 32\n  hidden_size: 4096\n"
        "  normalization: RMSNorm\n  position_embedding_type: rope\n  gated_linear_unit: true\n  add_bias_linear: false\n"
        "  share_embeddings_and_output_weights: false\n";
    static const struct { const char *more, *says; } cases[] = {
        { "", NULL }, { "  num_query_groups: 8\n  kv_channels: null\n", NULL }, { "  kv_channels: 64\n", "kv_channels: 64, but" },
        { "  num_query_groups: 32\n", "num_query_groups: 32, but" }, { "  add_qkv_bias: true\n", "add_qkv_bias: llama-3.1-8b does not have" },
    };
    struct plan model, p;

    (void)state;
    plan_of(&model, "llama-3.1-8b", 0, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[512] = "", text[1024];
        json_t *said = json_array(), *before = notes_divert(said);
        snprintf(text, sizeof text, "%s%s", recipe, cases[i].more);
        fail_capture(why, sizeof why);
        int rc = imported(text, "yaml", &model, &p);
        fail_capture(NULL, 0);
        notes_divert(before);
        if ((rc < 0) != (cases[i].says != NULL) || (cases[i].says && !strstr(why, cases[i].says)))
            fail_msg("%s: \"%s\"", cases[i].more, why);
        if (rc == 0) {
            assert_int_equal(json_array_size(said), 0);
            plan_free(&p);
        }
        json_decref(said);
    }
    plan_free(&model);
}

/* The command line of a plan, or NULL: there is none. */
static char *exported(const struct plan *p, json_t *notes)
{
    char *text = NULL, why[512] = "";
    size_t size;
    FILE *to = open_memstream(&text, &size);
    json_t *before = notes_divert(notes);

    fail_capture(why, sizeof why);
    int rc = plan_check(p, "t") < 0 ? -1 : export_plan(p, "megatron", to);
    fail_capture(NULL, 0);
    notes_divert(before);
    fclose(to);
    if (rc == 0)
        return text;
    free(text);
    return NULL;
}

/* The plan is read back, and the import has nothing to add to what the export said. */
static void comes_back(const struct plan *p, const char *text, const char *name, bool scaled_otherwise)
{
    json_t *said = json_array(), *before = notes_divert(said);
    struct plan back;

    if (imported(text, "txt", p, &back) < 0)
        fail_msg("%s is not read back: %s", name, text);
    notes_divert(before);
    json_t *a = plan_to_json(p), *b = plan_to_json(&back);
    if (!json_equal(a, b))
        fail_msg("%s: %s\n%s\n%s", name, text, json_dumps(a, 0), json_dumps(b, 0));
    if (json_array_size(said) != scaled_otherwise)
        fail_msg("%s: %s", name, json_dumps(said, 0));
    json_decref(a);
    json_decref(b);
    json_decref(said);
    plan_free(&back);
}

static bool tensor_is(const struct tensor *a, const struct tensor *b)
{
    return !strcmp(a->name, b->name) && a->role == b->role && a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof a->shape);
}

/* The options alone, without the model's name: 1, and the same tensors where no option tells its family from another; or 0: --model is asked for. */
static int options_alone_make_it(const struct model *is, const char *text)
{
    char path[64], why[512] = "";
    struct model m;

    snprintf(path, sizeof path, "/tmp/dpx-test-%ld.txt", (long)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    json_t *options = megatron_options_of(path), *before = notes_divert(NULL);
    unlink(path);
    fail_capture(why, sizeof why);
    json_t *config = megatron_config(options, "t");
    fail_capture(NULL, 0);
    notes_divert(before);
    json_decref(options);
    if (!config) {
        if (!strstr(why, "give --model"))
            fail_msg("%s: %s", is->name, why);
        return 0;
    }
    assert_int_equal(model_from_config(config, "t", &m), 0);
    json_decref(config);
    bool same = m.params == is->params;
    for (int t = 0; same && t < m.ntensors && !strcmp(m.family, is->family); t++)
        same = tensor_is(&m.tensors[t], &is->tensors[t]);
    if (same && is->experts > 0)
        same = m.experts_used == is->experts_used && m.route_groups == is->route_groups && m.route_best == is->route_best && m.shared_ffn == is->shared_ffn
            && m.rope_dim == is->rope_dim && m.route_scale == is->route_scale;
    int64_t params = m.params;
    model_free(&m);
    if (!same)
        fail_msg("%s (%s): the options make %lld parameters, not %lld: %s", is->name, is->family, (long long)params, (long long)is->params, text);
    return 1;
}

/* Whose experts' biases, sinks and windows no family but gpt_oss has: its options are refused without --model. */
static bool is_oss(const char *name) { return !strncmp(name, "gpt-oss", 7); }

static void every_models_command_line_makes_it(void **state)
{
    static const struct { const char *model, *has; } lines[] = {
        { "minitron-4b", "--squared-relu\n" }, { "minitron-4b", "--apply-layernorm-1p\n" }, { "minitron-4b", "--rotary-percent 0.5\n" },
        { "llama-3.1-8b", "--use-rope-scaling\n" }, { "qwen2.5-7b", "--add-qkv-bias\n" }, { "qwen3-0.6b", "--qk-layernorm\n" },
        { "qwen3-0.6b", "--kv-channels 128\n" }, { "gpt2", "--position-embedding-type learned_absolute\n" }, { "llama-2-7b", "--disable-bias-linear\n" },
        { "starcoder2-3b", "--num-query-groups 2\n" }, { "gpt-oss-20b", "--quick-geglu\n" }, { "mixtral-8x7b", "--swiglu\n" },
        { "deepseek-v3", "--q-lora-rank 1536\n" }, { "moonlight-16b-a3b", "--multi-latent-attention\n" }, { "kimi-k2", "--num-experts 384\n" },
        { "glm-4.5", "--moe-shared-expert-intermediate-size 1536\n" },
    };
    const char *name, *about;
    int count = 0, found = 0, alone = 0;

    (void)state;
    for (int i = 0; (name = model_builtin(i, &about)); i++) {
        struct plan p = { .seq = 1024, .micro_batch = 1 };
        json_t *notes = json_array();
        assert_int_equal(model_load(name, &p.model), 0);
        assert_int_equal(cluster_load("1x8xh100", &p.cluster), 0);
        plan_defaults(&p, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
        p.accumulation = 2;
        plan_resolve(&p);
        char *text = exported(&p, notes);
        bool otherwise = !strncmp(name, "llama-3.2", 9) || !strcmp(name, "orpheus-3b"), spread = p.model.experts > 0;
        bool lost = otherwise || !strncmp(name, "deepseek-coder", 14);     /* scaled linearly, which no option says */
        if (text) {
            count++;
            alone += options_alone_make_it(&p.model, text) || is_oss(name);
            comes_back(&p, text, name, otherwise);
            if (!spread && json_array_size(notes) != lost)
                fail_msg("%s: %s", name, json_dumps(notes, 0));
        }
        for (size_t k = 0; text && k < sizeof lines / sizeof *lines; k++)
            if (!strcmp(lines[k].model, name)) {
                found++;
                if (!strstr(text, lines[k].has))
                    fail_msg("%s lacks %s: %s", name, lines[k].has, text);
            }
        free(text);
        json_decref(notes);
        plan_free(&p);
    }
    assert_true(count >= 60);
    assert_int_equal(alone, count);
    assert_int_equal(found, sizeof lines / sizeof *lines);
}

/* Megatron-LM has no GELU beside gates, and no ReLU. */
static void another_activation_is_not_written(void **state)
{
    static const struct { const char *model; enum activation act; } of[] = { { "llama-2-7b", ACT_GELU_TANH }, { "gpt2", ACT_RELU } };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct plan p;
        char why[512] = "", *text = NULL;
        size_t size;
        plan_of(&p, of[i].model, 2, 8, STRAT_ZERO1, DIALECT_MEGATRON, DT_BF16);
        p.model.act = of[i].act;
        FILE *to = open_memstream(&text, &size);
        fail_capture(why, sizeof why);
        assert_int_equal(export_plan(&p, "megatron", to), -1);
        fail_capture(NULL, 0);
        fclose(to);
        free(text);
        assert_non_null(strstr(why, "an activation that no option of Megatron-LM states"));
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_as_python_does),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(deepseeks_command_line_is_read),
        cmocka_unit_test(a_recipe_in_sections_is_read),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(own_blocks_have_these_parameters), cmocka_unit_test(own_blocks_are_of_megatron_alone),
        cmocka_unit_test(rotary_positions_are_fused_where_somebody_says_so),
        cmocka_unit_test(latent_attention_is_not_llamas), cmocka_unit_test(other_mixtures_are_refused_by_the_option),
        cmocka_unit_test(gpt_oss_is_read_or_another_model),
        cmocka_unit_test(what_is_not_followed_is_told),
        cmocka_unit_test(numbers_of_another_model_are_named),
        cmocka_unit_test(what_a_line_leaves_out_is_held_against_the_model),
        cmocka_unit_test(a_recipe_of_a_dense_model_is_read),
        cmocka_unit_test(every_models_command_line_makes_it),
        cmocka_unit_test(another_activation_is_not_written),
    };
    return cmocka_run_group_tests_name("model/megatron_describes", tests, NULL, NULL);
}
