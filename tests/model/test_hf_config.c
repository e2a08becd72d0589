/* Hugging Face configs: what is read, what is refused and with which words, and that what is written reads back the same. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/transformer.h"

#define GOLDEN "tests/golden/models"

static char why[1024];

/* JSON with ' for ". */
static json_t *parse(const char *text)
{
    char json[2048];
    json_error_t e;
    json_t *v;
    size_t n = strlen(text);

    assert_true(n < sizeof json);
    for (size_t i = 0; i <= n; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    v = json_loads(json, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!v)
        fail_msg("%s: %s", json, e.text);
    return v;
}

static int read_text(const char *text, struct model *m)
{
    json_t *config = parse(text);
    int rc = model_from_config(config, "some/config.json", m);

    json_decref(config);
    return rc;
}

static void read_ok(const char *text, struct model *m)
{
    fail_capture(why, sizeof why);
    if (read_text(text, m) < 0)
        fail_msg("%s: %s", text, why);
    fail_capture(NULL, 0);
}

/* Refused in one line that names the file and contains all of `words`. */
static void said(const char *text, const char *file, const char *const words[3])
{
    if (strncmp(why, file, strlen(file)) != 0)
        fail_msg("%s: does not begin with %s: %s", text, file, why);
    for (int i = 0; i < 3 && words[i]; i++)
        if (!strstr(why, words[i]))
            fail_msg("%s: no %s in: %s", text, words[i], why);
    if (strpbrk(why, "\n\r\t"))
        fail_msg("%s: more than a line: %s", text, why);
}

struct refusal { const char *text; const char *words[3]; };

static void check_refusals(const struct refusal *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct model m;
        fail_capture(why, sizeof why);
        if (read_text(list[i].text, &m) == 0)
            fail_msg("%s: accepted", list[i].text);
        fail_capture(NULL, 0);
        said(list[i].text, "some/config.json: ", list[i].words);
    }
}

#define CHECK(list) check_refusals(list, sizeof list / sizeof *list)

/* ---- Refusals ---- */

static void a_number_out_of_range_is_refused_with_its_field(void **state)
{
    static const struct refusal list[] = {
        { "{'model_type':'llama','num_hidden_layers':0}",
          { "\"num_hidden_layers\" is 0", "an integer from 1 to 4096" } },
        { "{'model_type':'llama','num_hidden_layers':1000000}",
          { "\"num_hidden_layers\" is 1000000", "from 1 to 4096" } },
        { "{'model_type':'llama','hidden_size':-4096}", { "\"hidden_size\" is -4096" } },
        { "{'model_type':'llama','hidden_size':16777217}",
          { "\"hidden_size\"", "from 1 to 16777216" } },
        { "{'model_type':'llama','intermediate_size':0}", { "\"intermediate_size\"" } },
        { "{'model_type':'llama','vocab_size':9223372036854775807}", { "\"vocab_size\"" } },
        { "{'model_type':'llama','num_attention_heads':0}", { "\"num_attention_heads\"" } },
        { "{'model_type':'llama','num_key_value_heads':0}", { "\"num_key_value_heads\"" } },
        { "{'model_type':'llama','head_dim':-1}", { "\"head_dim\"" } },
        { "{'model_type':'llama','max_position_embeddings':0}",
          { "\"max_position_embeddings\"" } },
        { "{'model_type':'gpt2','n_inner':0}", { "\"n_inner\" is 0" } },
        { "{'model_type':'gpt2','n_embd':16777212}", { "\"n_embd\"", "at most 4194304" } },
        { "{'model_type':'gpt2','resid_pdrop':1.0}", { "\"resid_pdrop\"", "below 1" } },
        { "{'model_type':'gpt2','attn_pdrop':-0.1}", { "\"attn_pdrop\"" } },
        { "{'model_type':'mpt','attn_config':{'attn_pdrop':2}}", { "\"attn_config.attn_pdrop\"" } },
        { "{'model_type':'llama','rms_norm_eps':-1e-6}", { "\"rms_norm_eps\"" } },
        { "{'model_type':'llama','rope_theta':0}", { "\"rope_theta\" is 0", "above 0" } },
        { "{'model_type':'llama','rope_parameters':{'rope_theta':-1}}",
          { "\"rope_parameters.rope_theta\" is -1" } },
        { "{'model_type':'gpt_neox','rotary_pct':1.5}", { "\"rotary_pct\"", "up to 1" } },
        { "{'model_type':'falcon','num_ln_in_parallel_attn':3}",
          { "\"num_ln_in_parallel_attn\" is 3" } },
        { "{'model_type':'mistral','sliding_window':0}", { "\"sliding_window\"" } },
        { "{'model_type':'qwen3','num_hidden_layers':3,'use_sliding_window':true,'layer_types':"
          "['full_attention','sliding_attention','full_attention']}", { "\"layer_types\"", "full attention first" } },
        { "{'model_type':'gemma2','query_pre_attn_scalar':0}", { "\"query_pre_attn_scalar\"" } },
    };

    (void)state;
    CHECK(list);
}

static void a_value_of_the_wrong_type_is_refused_with_its_field(void **state)
{
    static const struct refusal list[] = {
        { "[]", { "must be a JSON object" } },
        { "17", { "must be a JSON object" } },
        { "{'model_type':17}", { "\"model_type\" is 17", "a string" } },
        { "{'model_type':'llama','num_hidden_layers':32.0}",
          { "\"num_hidden_layers\" is 32.0", "an integer" } },
        { "{'model_type':'llama','num_hidden_layers':'32'}",
          { "\"num_hidden_layers\" is \"32\"" } },
        { "{'model_type':'llama','hidden_size':true}", { "\"hidden_size\" is true" } },
        { "{'model_type':'llama','vocab_size':null}", { "\"vocab_size\" is null" } },
        { "{'model_type':'llama','num_attention_heads':[32]}",
          { "\"num_attention_heads\" is [32]" } },
        { "{'model_type':'mistral','num_key_value_heads':null}",
          { "\"num_key_value_heads\" is null" } },
        { "{'model_type':'llama','tie_word_embeddings':1}",
          { "\"tie_word_embeddings\" is 1", "true or false" } },
        { "{'model_type':'llama','attention_bias':null}", { "\"attention_bias\" is null" } },
        { "{'model_type':'llama','hidden_act':3}", { "\"hidden_act\" is 3", "a string" } },
        { "{'model_type':'llama','rms_norm_eps':'1e-6'}", { "\"rms_norm_eps\"" } },
        { "{'model_type':'llama','rope_scaling':'linear'}", { "\"rope_scaling\"", "an object" } },
        { "{'model_type':'llama','rope_scaling':{'rope_type':3}}",
          { "\"rope_scaling.rope_type\" is 3" } },
        { "{'model_type':'llama','_name_or_path':{}}", { "\"_name_or_path\" is {}" } },
        { "{'model_type':'mpt','attn_config':'torch'}", { "\"attn_config\"", "an object" } },
        { "{'model_type':'falcon','multi_query':'yes'}", { "\"multi_query\"" } },
        { "{'model_type':'llama','num_experts':'8'}", { "\"num_experts\" is \"8\"" } },
    };

    (void)state;
    CHECK(list);
}

static void heads_that_do_not_divide_are_refused_with_both_fields(void **state)
{
    static const struct refusal list[] = {
        { "{'model_type':'gpt2','n_embd':100,'n_head':3}",
          { "\"n_embd\" is 100", "a multiple of \"n_head\", which is 3" } },
        { "{'model_type':'bloom','n_embed':100,'num_attention_heads':7}",
          { "\"n_embed\" is 100", "\"num_attention_heads\", which is 7" } },
        { "{'model_type':'llama','hidden_size':100,'num_attention_heads':3,'head_dim':32}",
          { "\"hidden_size\" is 100", "\"num_attention_heads\"" } },
        { "{'model_type':'mistral','hidden_size':100,'num_attention_heads':3}",
          { "\"hidden_size\" is 100", "\"num_attention_heads\"" } },
        { "{'model_type':'llama','num_attention_heads':32,'num_key_value_heads':5}",
          { "\"num_key_value_heads\" is 5", "must divide \"num_attention_heads\"" } },
        { "{'model_type':'llama','num_attention_heads':8,'num_key_value_heads':16}",
          { "\"num_key_value_heads\" is 16" } },
        { "{'model_type':'falcon','new_decoder_architecture':true,'num_kv_heads':8}",
          { "\"num_kv_heads\" is 8", "\"num_attention_heads\", which is 71" } },
        { "{'model_type':'llama','hidden_size':96,'num_attention_heads':32}",
          { "3 of the 3 elements", "even" } },
        { "{'model_type':'stablelm','head_dim':32}", { "\"head_dim\" is 32" } },
    };

    (void)state;
    CHECK(list);
}

static void unknown_families_are_refused_by_name(void **state)
{
    static const struct refusal list[] = {
        { "{'model_type':'rwkv'}", { "\"model_type\" is \"rwkv\"", "gpt2", "starcoder2" } },
        { "{'model_type':'LLAMA'}", { "\"model_type\" is \"LLAMA\"" } },
        { "{'model_type':'a\\nb'}", { "\"model_type\" is \"a\\nb\"" } },
        { "{'hidden_size':64}", { "\"model_type\" is missing", "one of arcee" } },
        { "{'model_type':'qwen2_vl','text_config':{'model_type':'qwen2_vl_text'}}",
          { "\"text_config.model_type\" is \"qwen2_vl_text\"", "gemma3_text", "hunyuan_v1_dense" } },
    };

    (void)state;
    CHECK(list);
}

static void mixtures_of_experts_are_refused_by_name(void **state)
{
    static const struct refusal list[] = {
        { "{'model_type':'qwen2_moe'}", { "\"qwen2_moe\"", "MoE", "qwen3_moe" } },
        { "{'model_type':'deepseek_v2'}", { "\"deepseek_v2\"", "MoE", "deepseek_v3" } },
        { "{'model_type':'llama','num_local_experts':8}",
          { "\"num_local_experts\" is 8", "MoE", "absent or 1" } },
        { "{'model_type':'qwen2','num_experts':60}", { "\"num_experts\" is 60", "MoE" } },
        { "{'model_type':'qwen3','n_routed_experts':2}", { "\"n_routed_experts\" is 2", "MoE" } },
        { "{'model_type':'mixtral','num_local_experts':4,'num_experts_per_tok':5}", { "\"num_experts_per_tok\" is 5", "\"num_local_experts\", which is 4" } },
        { "{'model_type':'mixtral','num_local_experts':0}", { "\"num_local_experts\" is 0", "from 1" } },
        { "{'model_type':'mixtral','num_local_experts':4,'num_experts':8}", { "\"num_local_experts\" and \"num_experts\"" } },
        { "{'model_type':'qwen3_moe','use_sliding_window':true}", { "\"use_sliding_window\"", "false" } },
        { "{'model_type':'qwen3_moe','mlp_only_layers':[3]}", { "\"mlp_only_layers\"", "the first layers" } },
        { "{'model_type':'qwen3_moe','mlp_only_layers':[24]}", { "\"mlp_only_layers\"", "counted from 0" } },
        { "{'model_type':'qwen3_moe','decoder_sparse_step':25}", { "none of the 24 layers has experts" } },
        { "{'model_type':'deepseek_v3','first_k_dense_replace':-1}", { "\"first_k_dense_replace\" is -1" } },
        { "{'model_type':'deepseek_v3','first_k_dense_replace':61}", { "none of the 61 layers has experts" } },
        { "{'model_type':'deepseek_v3','num_key_value_heads':64}", { "\"num_key_value_heads\" is 64", "latent" } },
        { "{'model_type':'llama4_text','moe_layers':[0,2]}", { "\"moe_layers\"", "every n-th" } },
        { "{'model_type':'olmoe','clip_qkv':8.0}", { "\"clip_qkv\" is 8.0" } },
    };
    struct model m;

    (void)state;
    CHECK(list);
    read_ok("{'model_type':'llama','num_hidden_layers':1,'num_local_experts':1}", &m);
    model_free(&m);
}

static void layers_with_experts_are_read_from_steps_and_lists(void **state)
{
    struct model m;

    (void)state;
    read_ok("{'model_type':'qwen3_moe','num_hidden_layers':6,'mlp_only_layers':[0],'decoder_sparse_step':2}", &m);
    for (int i = 0; i < 6; i++)
        assert_int_equal(model_has_experts(&m, i), i % 2 == 1);
    model_free(&m);
    read_ok("{'model_type':'deepseek_v3','num_hidden_layers':5,'first_k_dense_replace':2,'head_dim':64}", &m);
    for (int i = 0; i < 5; i++)
        assert_int_equal(model_has_experts(&m, i), i >= 2);
    assert_int_equal(m.head_dim, 192);
    assert_int_equal(m.rotary_dim, 64);
    model_free(&m);
    read_ok("{'model_type':'llama4','text_config':{'num_hidden_layers':4,'moe_layers':[1,3],'no_rope_layers':[]}}", &m);
    for (int i = 0; i < 4; i++)
        assert_int_equal(model_has_experts(&m, i), i % 2 == 1);
    assert_int_equal(m.nope_every, 4);
    assert_int_equal(m.shared_ffn, 8192);
    model_free(&m);
    read_ok("{'model_type':'gpt_oss','num_hidden_layers':2}", &m);
    assert_true(model_windowed(&m, 0) && !model_windowed(&m, 1));
    assert_non_null(m.rope_scaling);
    model_free(&m);
}

static void parts_that_dpx_does_not_know_are_refused_by_field(void **state)
{
    static const struct refusal list[] = {
        { "{'model_type':'gpt2','add_cross_attention':true}",
          { "\"add_cross_attention\" is true", "must be false" } },
        { "{'model_type':'gpt2','is_encoder_decoder':true}", { "\"is_encoder_decoder\"" } },
        { "{'model_type':'opt','_remove_final_layer_norm':true}",
          { "\"_remove_final_layer_norm\"" } },
        { "{'model_type':'mpt','no_bias':false}", { "\"no_bias\" is false" } },
        { "{'model_type':'mpt','expansion_ratio':3}", { "\"expansion_ratio\" is 3", "must be 4" } },
        { "{'model_type':'mpt','attn_config':{'alibi':false}}", { "\"attn_config.alibi\"" } },
        { "{'model_type':'mpt','attn_config':{'attn_type':'multiquery_attention'}}",
          { "\"attn_config.attn_type\"" } },
        { "{'model_type':'falcon','new_decoder_architecture':true,'parallel_attn':false}",
          { "\"parallel_attn\" is false", "\"new_decoder_architecture\"" } },
        { "{'model_type':'falcon','num_ln_in_parallel_attn':2}",
          { "\"num_ln_in_parallel_attn\" is 2" } },
        { "{'model_type':'gemma2','use_bidirectional_attention':true}",
          { "\"use_bidirectional_attention\"" } },
        { "{'model_type':'llama','hidden_act':'quick_gelu'}",
          { "\"hidden_act\" is \"quick_gelu\"", "silu" } },
        { "{'model_type':'gemma3_text','use_bidirectional_attention':true}",
          { "\"use_bidirectional_attention\"" } },
        { "{'model_type':'gemma3_text','attn_logit_softcapping':50.0}",
          { "\"attn_logit_softcapping\" is 50.0", "must be null" } },
        { "{'model_type':'phi','tie_word_embeddings':true}",
          { "\"tie_word_embeddings\" is true", "bias" } },
        { "{'model_type':'gptj','tie_word_embeddings':true}", { "\"tie_word_embeddings\" is true", "bias" } },
        { "{'model_type':'gptj','rotary_dim':null}", { "\"rotary_dim\" is null" } },
        { "{'model_type':'gptj','rotary_dim':258}", { "\"rotary_dim\" is 258", "n_embd / n_head" } },
        { "{'model_type':'gptj','rotary_dim':63}", { "\"rotary_dim\" is 63", "an even number" } },
        { "{'model_type':'smollm3','use_sliding_window':true}", { "\"use_sliding_window\" is true" } },
        { "{'model_type':'cohere2','sliding_window':null}", { "\"sliding_window\" is null" } },
        { "{'model_type':'stablelm','qk_layernorm':true,'hidden_size':2048,'num_attention_heads':512,"
          "'num_key_value_heads':512}", { "\"num_attention_heads\" is 512", "at most 256" } },
        { "{'model_type':'gemma3_text','num_hidden_layers':2,'layer_types':['full_attention']}",
          { "\"layer_types\"", "one entry a layer" } },
        { "{'model_type':'gemma3_text','num_hidden_layers':1,'layer_types':['linear_attention']}",
          { "\"layer_types\"", "layers that dpx knows" } },
        { "{'model_type':'olmo3','num_hidden_layers':3,"
          "'layer_types':['full_attention','full_attention','sliding_attention']}",
          { "\"layer_types\"", "every n-th layer" } },
        { "{'model_type':'olmo3','rope_parameters':{'full_attention':{'rope_theta':5e5},"
          "'sliding_attention':{'rope_theta':1e4}}}",
          { "\"rope_parameters.sliding_attention.rope_theta\" is 10000.0" } },
        { "{'model_type':'gpt2','n_embd':64,'hidden_size':128}",
          { "\"n_embd\" and \"hidden_size\"", "differ" } },
    };

    (void)state;
    CHECK(list);
}

static void more_parameters_than_can_be_counted_are_refused(void **state)
{
    static const struct refusal list[] = {
        /* One matrix of 2^24 x 2^48, and a sum of 4096 blocks of 2^49. */
        { "{'model_type':'mistral','hidden_size':16777216,'num_attention_heads':16777216,"
          "'num_key_value_heads':1,'head_dim':16777216}",
          { "2^60", "self_attn.q_proj.weight" } },
        { "{'model_type':'llama','hidden_size':16777216,'intermediate_size':16777216,"
          "'num_hidden_layers':4096}", { "2^60", "are too large together" } },
    };

    (void)state;
    CHECK(list);
}

/* A value as large as the file: shown cut, not whole. */
static void a_long_value_is_cut_in_the_message(void **state)
{
    json_t *config = parse("{'model_type':'llama'}"), *list = json_array();
    struct model m;

    (void)state;
    for (int i = 0; i < 10000; i++)
        json_array_append_new(list, json_integer(i));
    json_object_set_new(config, "hidden_size", list);
    fail_capture(why, sizeof why);
    assert_int_equal(model_from_config(config, "x.json", &m), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "...: must be an integer"));
    json_decref(config);
}

/* ---- Reading ---- */

/* The kernels that an activation takes survive writing: what a plan embeds is what was read. */
static void a_gelu_is_computed_as_its_name_says(void **state)
{
    static const struct { const char *name; enum activation act; enum activation_code code; const char *written; } names[] = {
        { "gelu", ACT_GELU, ACT_ONE_KERNEL, "gelu" }, { "gelu_python", ACT_GELU, ACT_OF_ERF, "gelu_python" },
        { "gelu_pytorch_tanh", ACT_GELU_TANH, ACT_ONE_KERNEL, "gelu_pytorch_tanh" }, { "gelu_new", ACT_GELU_TANH, ACT_OF_POWER, "gelu_new" },
        { "gelu_accurate", ACT_GELU_TANH, ACT_OF_POWER, "gelu_new" }, { "gelu_fast", ACT_GELU_TANH, ACT_OF_PRODUCTS, "gelu_fast" },
    };
    struct model m;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[128];
        snprintf(text, sizeof text, "{'model_type':'phi','num_hidden_layers':1,'hidden_act':'%s'}", names[i].name);
        read_ok(text, &m);
        assert_int_equal(m.act, names[i].act);
        assert_int_equal(m.act_code, names[i].code);
        json_t *config = model_to_config(&m);
        assert_string_equal(json_string_value(json_object_get(config, "hidden_act")), names[i].written);
        json_decref(config);
        model_free(&m);
    }
    for (int i = 0; i < 2; i++) {       /* GPT2Config's and PhiConfig's own */
        read_ok(i ? "{'model_type':'phi','num_hidden_layers':1}" : "{'model_type':'gpt2','n_layer':1}", &m);
        assert_int_equal(m.act_code, ACT_OF_POWER);
        model_free(&m);
    }
}

static void what_is_missing_has_the_default_of_the_family(void **state)
{
    struct model m;

    (void)state;
    read_ok("{'model_type':'starcoder2'}", &m);
    assert_int_equal(m.layers, 30);
    assert_int_equal(m.kv_heads, 2);
    assert_int_equal(m.head_dim, 128);
    assert_int_equal(m.act, ACT_GELU_TANH);
    assert_true(m.tied && m.mlp_bias && m.norm == NORM_LAYER && m.mlp == MLP_PLAIN);
    model_free(&m);
    read_ok("{'model_type':'falcon'}", &m);
    assert_int_equal(m.kv_heads, 1);
    assert_int_equal(m.ffn, 4 * 4544);
    assert_true(m.parallel && !m.mlp_norm && m.position == POS_ROPE);
    model_free(&m);
    read_ok("{'model_type':'falcon','num_hidden_layers':1,'num_kv_heads':null,"
            "'new_decoder_architecture':true}", &m);
    assert_int_equal(m.kv_heads, 71);
    assert_true(m.mlp_norm);
    model_free(&m);
    read_ok("{'model_type':'opt'}", &m);
    assert_int_equal(m.positions, 2048 + 2);
    assert_int_equal(m.context, 2048);
    assert_close(m.dropout, 0.1, 0);
    assert_close(m.attn_dropout, 0, 0);
    model_free(&m);
}

/* No message may propose what is refused itself. */
static void every_family_that_a_message_proposes_is_read(void **state)
{
    struct model m;
    char *at, text[96];
    int n = 0;

    (void)state;
    fail_capture(why, sizeof why);
    assert_int_equal(read_text("{'model_type':'rwkv'}", &m), -1);
    fail_capture(NULL, 0);
    at = strstr(why, "one of ");
    assert_non_null(at);
    for (at = strtok(at + 7, ", "); at; at = strtok(NULL, ", "), n++) {
        char type[32];
        snprintf(type, sizeof type, "%s", at);
        /* Glm4MoeConfig's defaults have 96 heads in 4096: every released model states head_dim; NemotronHConfig's have experts. */
        snprintf(text, sizeof text, "{'model_type':'%s'%s}", type, !strcmp(type, "glm4_moe") ? ",'head_dim':128" : !strcmp(type, "nemotron_h") ? ",'hybrid_override_pattern':'M-*-'" : "");
        json_t *config = parse(text);
        assert_int_equal(model_from_config(config, "x", &m), 0);
        json_decref(config);
        assert_string_equal(m.family, type);
        model_free(&m);
    }
    assert_true(n >= 33);
}

/* The language model of a multimodal config is the one that its own config describes. */
static void the_text_model_of_a_multimodal_config_is_read(void **state)
{
    struct model m, alone;

    (void)state;
    read_ok("{'model_type':'gemma3','text_config':{'hidden_size':2560,'intermediate_size':10240,"
            "'num_hidden_layers':34,'model_type':'gemma3_text'},'vision_config':{'hidden_size':1152}}", &m);
    read_ok("{'model_type':'gemma3_text','hidden_size':2560,'intermediate_size':10240,"
            "'num_hidden_layers':34}", &alone);
    assert_string_equal(m.family, "gemma3_text");
    assert_int_equal(m.params, alone.params);
    model_free(&alone);
    model_free(&m);
    read_ok("{'model_type':'mistral3','text_config':{'num_hidden_layers':1}}", &m);
    assert_string_equal(m.family, "mistral");
    assert_false(m.tied);
    model_free(&m);
    read_ok("{'model_type':'mistral3','tie_word_embeddings':true,"
            "'text_config':{'num_hidden_layers':1,'model_type':'ministral3'}}", &m);
    assert_string_equal(m.family, "ministral3");
    assert_true(m.tied);
    model_free(&m);
    static const struct refusal list[] = {
        { "{'model_type':'gemma3'}", { "\"text_config\" is missing" } },
        { "{'model_type':'gemma3','text_config':{'hidden_size':0}}", { "\"text_config.hidden_size\" is 0" } },
    };
    CHECK(list);
}

static void layers_that_differ_are_read_from_lists_and_from_patterns(void **state)
{
    struct model m;

    (void)state;
    read_ok("{'model_type':'gemma3_text','num_hidden_layers':7,'sliding_window':512}", &m);
    assert_int_equal(m.window, 512);
    assert_int_equal(m.full_every, 6);
    assert_close(m.rope_theta, 1e6, 0);
    assert_close(m.rope_local_theta, 1e4, 0);
    model_free(&m);
    read_ok("{'model_type':'gemma3_text','num_hidden_layers':4,'rope_parameters':{"
            "'full_attention':{'rope_type':'linear','factor':8.0,'rope_theta':2e6},"
            "'sliding_attention':{'rope_type':'default','rope_theta':3e4}},'layer_types':"
            "['sliding_attention','full_attention','sliding_attention','full_attention']}", &m);
    assert_int_equal(m.full_every, 2);
    assert_close(m.rope_theta, 2e6, 0);
    assert_close(m.rope_local_theta, 3e4, 0);
    assert_non_null(m.rope_scaling);
    model_free(&m);
    read_ok("{'model_type':'gemma3_text','num_hidden_layers':2,'sliding_window':null}", &m);
    assert_int_equal(m.window, 0);
    model_free(&m);
    read_ok("{'model_type':'smollm3','num_hidden_layers':5,'no_rope_layers':[1,1,0,1,1]}", &m);
    assert_int_equal(m.nope_every, 3);
    model_free(&m);
    read_ok("{'model_type':'cohere2','num_hidden_layers':8}", &m);
    assert_int_equal(m.full_every, 4);
    assert_int_equal(m.nope_every, 4);
    model_free(&m);
    read_ok("{'model_type':'ministral3','num_hidden_layers':1}", &m);
    assert_non_null(m.rope_scaling);
    assert_int_equal(m.window, 0);
    model_free(&m);
}

/* What only the kernels' arithmetic needs is kept all the same. */
static void multipliers_and_projections_are_read(void **state)
{
    struct model m;

    (void)state;
    read_ok("{'model_type':'granite','num_hidden_layers':1,'residual_multiplier':0.22,"
            "'logits_scaling':8,'attention_multiplier':0.0078125}", &m);
    assert_close(m.residual_scale, 0.22, 0);
    assert_close(m.logit_scale, 8, 0);
    assert_close(m.attn_scale, 0.0078125, 0);
    assert_close(m.embed_scale, 1, 0);
    model_free(&m);
    read_ok("{'model_type':'opt','hidden_size':1024,'num_attention_heads':16,'word_embed_proj_dim':512,"
            "'do_layer_norm_before':false}", &m);
    assert_int_equal(m.token_width, 512);
    assert_int_equal(m.norm_place, NORM_OF_SUM);
    model_free(&m);
    read_ok("{'model_type':'opt'}", &m);
    assert_int_equal(m.token_width, 768);
    assert_int_equal(m.norm_place, NORM_FIRST);
    model_free(&m);
}

static void rotary_positions_are_read_in_both_spellings(void **state)
{
    struct model m;

    (void)state;
    read_ok("{'model_type':'llama','num_hidden_layers':1,'rope_theta':5e5,"
            "'rope_scaling':{'type':'linear','factor':2.0}}", &m);
    assert_close(m.rope_theta, 5e5, 0);
    assert_non_null(m.rope_scaling);
    model_free(&m);
    read_ok("{'model_type':'llama','num_hidden_layers':1,"
            "'rope_parameters':{'rope_theta':5e5,'rope_type':'default'}}", &m);
    assert_close(m.rope_theta, 5e5, 0);
    assert_null(m.rope_scaling);
    assert_int_equal(m.rotary_dim, 128);
    model_free(&m);
    read_ok("{'model_type':'gpt_neox','num_hidden_layers':1}", &m);
    assert_int_equal(m.rotary_dim, 24);         /* a quarter of 6144 / 64 */
    model_free(&m);
}

/* ---- Writing ---- */

static void same_tables(const struct model *a, const struct model *b)
{
    assert_int_equal(a->ntensors, b->ntensors);
    assert_int_equal(a->nmodules, b->nmodules);
    assert_int_equal(a->params, b->params);
    for (int i = 0; i < a->ntensors; i++) {
        assert_string_equal(a->tensors[i].name, b->tensors[i].name);
        assert_int_equal(a->tensors[i].shape[0], b->tensors[i].shape[0]);
        assert_int_equal(a->tensors[i].shape[1], b->tensors[i].shape[1]);
    }
}

/* Fields that a config states are compared by writing the second model too;
 * those that follow from several of them one by one. */
static void check_round_trip(const struct model *m)
{
    json_t *config = model_to_config(m), *again;
    struct model back;

    assert_non_null(config);
    fail_capture(why, sizeof why);
    if (model_from_config(config, "written.json", &back) < 0)
        fail_msg("%s: %s", m->name, why);
    fail_capture(NULL, 0);
    same_tables(m, &back);
    again = model_to_config(&back);
    assert_true(json_equal(config, again));
    assert_string_equal(m->name, back.name);
    assert_int_equal(m->positions, back.positions);
    assert_int_equal(m->rotary_dim, back.rotary_dim);
    assert_int_equal(m->attn_scalar, back.attn_scalar);
    assert_int_equal(m->parallel, back.parallel);
    assert_int_equal(m->mlp_norm, back.mlp_norm);
    assert_int_equal(m->position, back.position);
    assert_int_equal(m->norm_place, back.norm_place);
    assert_int_equal(m->token_width, back.token_width);
    assert_int_equal(m->window, back.window);
    assert_close(m->rope_local_theta, back.rope_local_theta, 0);
    for (int64_t i = 1; i <= m->layers; i++) {      /* the same layers, whatever the period says */
        assert_int_equal(m->full_every && i % m->full_every == 0, back.full_every && i % back.full_every == 0);
        assert_int_equal(m->nope_every && i % m->nope_every == 0, back.nope_every && i % back.nope_every == 0);
    }
    json_decref(again);
    json_decref(config);
    model_free(&back);
}

static void every_golden_config_reads_back_as_written(void **state)
{
    json_error_t e;
    json_t *all = json_load_file(GOLDEN "/tensors.json", 0, &e), *want;
    const char *name;
    char path[256];
    struct model m;

    (void)state;
    json_object_foreach(all, name, want) {
        snprintf(path, sizeof path, GOLDEN "/configs/%s.json", name);
        assert_int_equal(model_load(path, &m), 0);
        check_round_trip(&m);
        model_free(&m);
    }
    json_decref(all);
}

/* configuration_<family>.py: mistral's default is 4096, the others' none; qwen's needs use_sliding_window, and then
 * holds from max_window_layers (28 by default) on, which layer_types may state layer by layer. */
static void windows_are_read_and_written_back(void **state)
{
    (void)state;
    static const struct { const char *text; int window, from, every; } rows[] = {
        { "{'model_type':'llama','num_hidden_layers':2}", 0, 0, 0 },
        { "{'model_type':'mistral','num_hidden_layers':2}", 4096, 0, 0 },
        { "{'model_type':'mistral','num_hidden_layers':2,'sliding_window':null}", 0, 0, 0 },
        { "{'model_type':'phi3','num_hidden_layers':2}", 0, 0, 0 },
        { "{'model_type':'phi3','num_hidden_layers':2,'sliding_window':2047}", 2047, 0, 0 },
        { "{'model_type':'starcoder2','num_hidden_layers':2,'sliding_window':4096}", 4096, 0, 0 },
        { "{'model_type':'qwen2','num_hidden_layers':30,'sliding_window':512}", 0, 0, 0 },
        { "{'model_type':'qwen2','num_hidden_layers':30,'use_sliding_window':true}", 4096, 28, 0 },
        { "{'model_type':'qwen2','num_hidden_layers':28,'use_sliding_window':true}", 0, 0, 0 },
        { "{'model_type':'qwen3','num_hidden_layers':3,'use_sliding_window':true,'max_window_layers':0}", 4096, 0, 0 },
        { "{'model_type':'qwen3','num_hidden_layers':3,'use_sliding_window':true,'sliding_window':512,"
          "'layer_types':['full_attention','sliding_attention','sliding_attention']}", 512, 1, 0 },
        { "{'model_type':'qwen3','num_hidden_layers':3,'use_sliding_window':true,'sliding_window':512,"
          "'layer_types':['sliding_attention','full_attention','sliding_attention']}", 512, 0, 2 },
        { "{'model_type':'ministral3','num_hidden_layers':2}", 0, 0, 0 },
        { "{'model_type':'ministral3','num_hidden_layers':2,'sliding_window':4096}", 4096, 0, 0 },
        { "{'model_type':'gemma3_text','num_hidden_layers':12}", 4096, 0, 6 },
        { "{'model_type':'exaone4','num_hidden_layers':8}", 4096, 0, 4 },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m, back;
        read_ok(rows[i].text, &m);
        json_t *config = model_to_config(&m);
        assert_int_equal(model_from_config(config, "written", &back), 0);
        if (m.window != rows[i].window || m.window_from != rows[i].from || m.full_every != rows[i].every ||
            back.window != m.window || back.window_from != m.window_from || back.full_every != m.full_every)
            fail_msg("%s: a window of %d from layer %d on but every %dth, written back as %d from %d but every %dth",
                     rows[i].text, (int)m.window, (int)m.window_from, (int)m.full_every, (int)back.window,
                     (int)back.window_from, (int)back.full_every);
        json_decref(config);
        model_free(&m);
        model_free(&back);
    }
}

static void a_synthetic_model_reads_back_as_written(void **state)
{
    struct model m, back;
    json_t *config;

    (void)state;
    assert_int_equal(model_synthetic(123456789, &m), 0);
    config = model_to_config(&m);
    assert_int_equal(model_from_config(config, "x", &back), 0);
    assert_int_equal(back.params, 123456789);
    json_decref(config);
    model_free(&back);
    model_free(&m);
}

static void a_rotated_share_survives_writing_to_the_element(void **state)
{
    char text[256];
    struct model m;

    (void)state;
    for (int share = 1; share <= 100; share++) {
        snprintf(text, sizeof text, "{'model_type':'gpt_neox','hidden_size':344,"
                 "'num_attention_heads':4,'num_hidden_layers':1,'rotary_pct':%g}", share / 100.0);
        fail_capture(why, sizeof why);
        if (read_text(text, &m) == 0) {
            check_round_trip(&m);
            model_free(&m);
        }
        fail_capture(NULL, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_out_of_range_is_refused_with_its_field),
        cmocka_unit_test(a_value_of_the_wrong_type_is_refused_with_its_field),
        cmocka_unit_test(heads_that_do_not_divide_are_refused_with_both_fields),
        cmocka_unit_test(unknown_families_are_refused_by_name),
        cmocka_unit_test(mixtures_of_experts_are_refused_by_name),
        cmocka_unit_test(layers_with_experts_are_read_from_steps_and_lists),
        cmocka_unit_test(parts_that_dpx_does_not_know_are_refused_by_field),
        cmocka_unit_test(more_parameters_than_can_be_counted_are_refused),
        cmocka_unit_test(a_long_value_is_cut_in_the_message),
        cmocka_unit_test(what_is_missing_has_the_default_of_the_family),
        cmocka_unit_test(every_family_that_a_message_proposes_is_read),
        cmocka_unit_test(the_text_model_of_a_multimodal_config_is_read),
        cmocka_unit_test(layers_that_differ_are_read_from_lists_and_from_patterns),
        cmocka_unit_test(multipliers_and_projections_are_read),
        cmocka_unit_test(rotary_positions_are_read_in_both_spellings),
        cmocka_unit_test(every_golden_config_reads_back_as_written),
        cmocka_unit_test(windows_are_read_and_written_back),
        cmocka_unit_test(a_gelu_is_computed_as_its_name_says),
        cmocka_unit_test(a_synthetic_model_reads_back_as_written),
        cmocka_unit_test(a_rotated_share_survives_writing_to_the_element),
    };
    return cmocka_run_group_tests_name("model/hf_config", tests, NULL, NULL);
}
