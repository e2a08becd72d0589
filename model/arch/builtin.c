/* The built-in models, as Hugging Face configs with ' for ".  What a row leaves
 * out is the family's default (hf_keys.c).  Sources: the papers and model cards
 * named; tests/model/test_builtin.c holds the totals they publish. */
#include "model/arch/builtin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"

struct builtin { const char *name, *about, *config; };

/* Radford et al. 2019. */
#define GPT2(l, d, h)   "{'model_type':'gpt2','n_layer':" #l ",'n_embd':" #d ",'n_head':" #h "}"

/* Brown et al. 2020, table 2.1.  Two of its rows contradict themselves: XL has 24
 * heads of 128 in 2048 (16 are meant), and 13B a width of 5140 (40 heads of 128
 * are 5120).  GPT-2's vocabulary and tying, no dropout. */
#define GPT(l, d, h, ctx, v) \
    "{'model_type':'gpt2','n_layer':" #l ",'n_embd':" #d ",'n_head':" #h ",'n_positions':" #ctx \
    ",'vocab_size':" #v ",'resid_pdrop':0,'embd_pdrop':0,'attn_pdrop':0}"
#define GPT3(l, d, h)   GPT(l, d, h, 2048, 50257)
/* llm-foundry's scripts/train/yamls/pretrain: biases, learned positions. */
#define MPT(l, d, h)    GPT(l, d, h, 2048, 50368)
/* Narayanan et al. 2021, table 1: vocabulary 51200, sequences of 2048. */
#define MEGATRON(l, d, h) GPT(l, d, h, 2048, 51200)

/* Zhang et al. 2022, table 1. */
#define OPT(l, d, h, f) \
    "{'model_type':'opt','num_hidden_layers':" #l ",'hidden_size':" #d \
    ",'num_attention_heads':" #h ",'ffn_dim':" #f "}"

#define LLAMA(type, l, d, h, kv, f, v, ctx, more) \
    "{'model_type':'" type "','num_hidden_layers':" #l ",'hidden_size':" #d \
    ",'num_attention_heads':" #h ",'num_key_value_heads':" #kv ",'intermediate_size':" #f \
    ",'vocab_size':" #v ",'max_position_embeddings':" #ctx more "}"
#define LLAMA2(l, d, h, kv, f) \
    LLAMA("llama", l, d, h, kv, f, 32000, 4096, ",'rms_norm_eps':1e-5")
#define LLAMA31(l, d, h, kv, f, factor, more) \
    LLAMA("llama", l, d, h, kv, f, 128256, 131072, ",'rms_norm_eps':1e-5," \
          "'rope_theta':500000.0,'rope_scaling':{'rope_type':'llama3','factor':" #factor "," \
          "'low_freq_factor':1.0,'high_freq_factor':4.0," \
          "'original_max_position_embeddings':8192}" more)
/* NVIDIA et al. 2025 (arXiv 2504.03624, 2508.14444): the shapes as Megatron-Bridge's recipes state them (recipes/nemotronh/h100/). */
#define NEMOTRON_H(l, d, h, f, ctx, heads, hd, state, pattern) \
    LLAMA("nemotron_h", l, d, h, 8, f, 131072, ctx, ",'head_dim':128,'mamba_num_heads':" #heads ",'mamba_head_dim':" #hd \
          ",'ssm_state_size':" #state ",'n_groups':8,'hybrid_override_pattern':'" pattern "'")
#define NEMOTRON_3(l, d, h, kv, f, heads, hd, experts, shared, used, pattern) \
    LLAMA("nemotron_h", l, d, h, kv, f, 131072, 262144, ",'head_dim':128,'mamba_num_heads':" #heads ",'mamba_head_dim':" #hd \
          ",'ssm_state_size':128,'n_groups':8,'n_routed_experts':" #experts ",'num_experts_per_tok':" #used ",'moe_intermediate_size':" #f \
          ",'moe_shared_expert_intermediate_size':" #shared ",'routed_scaling_factor':2.5,'hybrid_override_pattern':'" pattern "'")
#define NEMOTRON_H_PATTERN "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
#define QWEN25(l, d, h, kv, f, v, tied) \
    LLAMA("qwen2", l, d, h, kv, f, v, 32768, ",'rope_theta':1e6,'tie_word_embeddings':" #tied)
#define QWEN3(l, d, h, kv, f, tied) \
    LLAMA("qwen3", l, d, h, kv, f, 151936, 40960, \
          ",'rope_theta':1e6,'head_dim':128,'tie_word_embeddings':" #tied)
#define GEMMA(type, l, d, h, kv, hd, f, more) \
    LLAMA(type, l, d, h, kv, f, 256000, 8192, ",'head_dim':" #hd more)

/* The text models of the multimodal ones; 1B has no other. */
#define GEMMA3(l, d, h, kv, hd, f, more) \
    LLAMA("gemma3_text", l, d, h, kv, f, 262208, 131072, ",'head_dim':" #hd ",'sliding_window':1024," \
          "'rope_scaling':{'rope_type':'linear','factor':8.0}" more)
#define OLMO2(l, d, h, kv, f) \
    LLAMA("olmo2", l, d, h, kv, f, 100352, 4096, ",'rms_norm_eps':1e-6,'rope_theta':5e5")
#define OLMO3(l, d, h, kv, f) \
    LLAMA("olmo3", l, d, h, kv, f, 100278, 65536, ",'rms_norm_eps':1e-6,'rope_theta':5e5," \
          "'rope_scaling':{'rope_type':'yarn','factor':8.0,'original_max_position_embeddings':8192," \
          "'attention_factor':1.2079441541679836,'beta_fast':32,'beta_slow':1}")

#define LLAMA1(l, d, h, f) LLAMA("llama", l, d, h, h, f, 32000, 2048, "")
#define LLAMA3(l, d, h, kv, f) \
    LLAMA("llama", l, d, h, kv, f, 128256, 8192, ",'rms_norm_eps':1e-5,'rope_theta':500000.0")
#define CODELLAMA(l, d, h, kv, f, v) \
    LLAMA("llama", l, d, h, kv, f, v, 16384, ",'rms_norm_eps':1e-5,'rope_theta':1e6")
#define SMOLLM2(l, d, h, kv, f, theta) \
    LLAMA("llama", l, d, h, kv, f, 49152, 8192, ",'rms_norm_eps':1e-5,'tie_word_embeddings':true,'rope_theta':" #theta)
#define FALCON3(l, d, h, f, ctx) \
    LLAMA("llama", l, d, h, 4, f, 131072, ctx, ",'head_dim':256,'rope_theta':1000042")
#define DEEPSEEK_CODER(l, d, h, kv, f) \
    LLAMA("llama", l, d, h, kv, f, 32256, 16384, ",'rope_theta':1e5,'rope_scaling':{'type':'linear','factor':4.0}")
#define PYTHIA(l, d, h, f, v) \
    "{'model_type':'gpt_neox','num_hidden_layers':" #l ",'hidden_size':" #d ",'num_attention_heads':" #h \
    ",'intermediate_size':" #f ",'vocab_size':" #v ",'max_position_embeddings':2048}"

/* Mixtures of experts: d wide, h heads, kv of keys; f wide experts, k of n used. */
#define MIXTRAL(l, d, h, f, v, ctx) \
    LLAMA("mixtral", l, d, h, 8, f, v, ctx, ",'rope_theta':1e6")
#define QWEN3_MOE(l, d, h, ffn, f) \
    LLAMA("qwen3_moe", l, d, h, 4, ffn, 151936, 40960, \
          ",'rope_theta':1e6,'head_dim':128,'norm_topk_prob':true,'moe_intermediate_size':" #f)
#define GRANITE_MOE(l, d, h, n) \
    LLAMA("granitemoe", l, d, h, 8, 512, 49155, 4096, \
          ",'num_local_experts':" #n ",'num_experts_per_tok':8,'tie_word_embeddings':true," \
          "'embedding_multiplier':12.0,'residual_multiplier':0.22,'logits_scaling':6.0," \
          "'attention_multiplier':0.015625")

static const struct builtin builtins[] = {
    { "gpt2",        "GPT-2 124M",  GPT2(12, 768, 12) },
    { "gpt2-medium", "GPT-2 355M",  GPT2(24, 1024, 16) },
    { "gpt2-large",  "GPT-2 774M",  GPT2(36, 1280, 20) },
    { "gpt2-xl",     "GPT-2 1.5B",  GPT2(48, 1600, 25) },

    { "gpt-lite", "12 layers of 768 for 65 characters, untied head; every GPT-2 bias: 86,728,704",
      "{'model_type':'gpt2','n_positions':2048,'vocab_size':65,"
      "'activation_function':'relu','tie_word_embeddings':false}" },
    { "gpt-lite-matrices", "gpt-lite without biases and norm weights: the 86,607,360 of its tables",
      "{'model_type':'opt','max_position_embeddings':2046,'vocab_size':65,'enable_bias':false,"
      "'layer_norm_elementwise_affine':false,'attention_dropout':0.1,"
      "'tie_word_embeddings':false}" },

    { "gpt3-125m", "GPT-3 Small",  GPT3(12, 768, 12) },
    { "gpt3-350m", "GPT-3 Medium", GPT3(24, 1024, 16) },
    { "gpt3-760m", "GPT-3 Large",  GPT3(24, 1536, 16) },
    { "gpt3-1.3b", "GPT-3 XL, with 16 heads of 128", GPT3(24, 2048, 16) },
    { "gpt3-2.7b", "GPT-3 2.7B",   GPT3(32, 2560, 32) },
    { "gpt3-6.7b", "GPT-3 6.7B",   GPT3(32, 4096, 32) },
    { "gpt3-13b",  "GPT-3 13B, with a width of 5120", GPT3(40, 5120, 40) },
    { "gpt3-175b", "GPT-3 175B",   GPT3(96, 12288, 96) },

    { "mpt-125m", "llm-foundry's benchmark shape, as a GPT-2: 125,311,488", MPT(12, 768, 12) },
    { "mpt-350m", "llm-foundry's benchmark shape, as a GPT-2: 355,985,408", MPT(24, 1024, 16) },
    { "mpt-760m", "llm-foundry's benchmark shape, as a GPT-2: 760,470,528", MPT(24, 1536, 12) },
    { "mpt-1b",   "llm-foundry's benchmark shape, as a GPT-2: 1,315,950,592", MPT(24, 2048, 16) },
    { "mpt-3b",   "llm-foundry's benchmark shape, as a GPT-2", MPT(32, 2560, 20) },
    { "mpt-7b",   "llm-foundry's benchmark shape, as a GPT-2: 6,658,859,008", MPT(32, 4096, 32) },
    { "mpt-13b",  "llm-foundry's benchmark shape, as a GPT-2", MPT(40, 5120, 40) },
    { "mpt-30b",  "llm-foundry's benchmark shape, as a GPT-2", MPT(48, 7168, 56) },
    { "mpt-70b",  "llm-foundry's benchmark shape, as a GPT-2: 64,862,437,376",
      MPT(80, 8192, 64) },

    { "turing-nlg-17b", "Turing-NLG: 78 layers of 4256", GPT(78, 4256, 28, 1024, 50257) },
    { "megatron-1.7b", "Megatron-LM 2021",          MEGATRON(24, 2304, 24) },
    { "megatron-3.6b", "Megatron-LM 2021",          MEGATRON(30, 3072, 32) },
    { "megatron-7.5b", "Megatron-LM 2021",          MEGATRON(36, 4096, 32) },
    { "megatron-18b",  "Megatron-LM 2021, 18.4B",   MEGATRON(40, 6144, 48) },
    { "megatron-39b",  "Megatron-LM 2021, 39.1B",   MEGATRON(48, 8192, 64) },
    { "megatron-76b",  "Megatron-LM 2021, 76.1B",   MEGATRON(60, 10240, 80) },
    { "megatron-145b", "Megatron-LM 2021, 145.6B",  MEGATRON(80, 12288, 96) },
    { "megatron-310b", "Megatron-LM 2021, 310.1B",  MEGATRON(96, 16384, 128) },
    { "megatron-530b", "Megatron-LM 2021, 529.6B",  MEGATRON(105, 20480, 128) },
    { "megatron-1t",   "Megatron-LM 2021, 1008.0B", MEGATRON(128, 25600, 160) },

    { "opt-125m", "OPT 125M", OPT(12, 768, 12, 3072) },
    { "opt-350m", "OPT 350M: norms of the sums, tokens of 512 projected to 1024",
      "{'model_type':'opt','num_hidden_layers':24,'hidden_size':1024,'num_attention_heads':16,"
      "'ffn_dim':4096,'word_embed_proj_dim':512,'do_layer_norm_before':false}" },
    { "opt-1.3b", "OPT 1.3B", OPT(24, 2048, 32, 8192) },
    { "opt-2.7b", "OPT 2.7B", OPT(32, 2560, 32, 10240) },
    { "opt-6.7b", "OPT 6.7B", OPT(32, 4096, 32, 16384) },
    { "opt-13b",  "OPT 13B",  OPT(40, 5120, 40, 20480) },
    { "opt-30b",  "OPT 30B",  OPT(48, 7168, 56, 28672) },
    { "opt-66b",  "OPT 66B",  OPT(64, 9216, 72, 36864) },
    { "opt-175b", "OPT 175B", OPT(96, 12288, 96, 49152) },

    { "llama-2-7b",  "Llama 2 7B",  LLAMA2(32, 4096, 32, 32, 11008) },
    { "llama-2-13b", "Llama 2 13B", LLAMA2(40, 5120, 40, 40, 13824) },
    { "llama-2-70b", "Llama 2 70B", LLAMA2(80, 8192, 64, 8, 28672) },
    { "llama-3.1-8b",   "Llama 3.1 8B",   LLAMA31(32, 4096, 32, 8, 14336, 8.0, "") },
    { "llama-3.1-70b",  "Llama 3.1 70B",  LLAMA31(80, 8192, 64, 8, 28672, 8.0, "") },
    { "llama-3.1-405b", "Llama 3.1 405B", LLAMA31(126, 16384, 128, 8, 53248, 8.0, "") },
    { "llama-3.2-1b",   "Llama 3.2 1B, tied",
      LLAMA31(16, 2048, 32, 8, 8192, 32.0, ",'tie_word_embeddings':true") },
    { "llama-3.2-3b",   "Llama 3.2 3B, tied",
      LLAMA31(28, 3072, 24, 8, 8192, 32.0, ",'tie_word_embeddings':true") },
    { "llama-3.3-70b",  "Llama 3.3 70B",  LLAMA31(80, 8192, 64, 8, 28672, 8.0, "") },

    { "qwen2.5-0.5b", "Qwen2.5 0.5B, tied", QWEN25(24, 896, 14, 2, 4864, 151936, true) },
    { "qwen2.5-1.5b", "Qwen2.5 1.5B, tied", QWEN25(28, 1536, 12, 2, 8960, 151936, true) },
    { "qwen2.5-3b",   "Qwen2.5 3B, tied",   QWEN25(36, 2048, 16, 2, 11008, 151936, true) },
    { "qwen2.5-7b",   "Qwen2.5 7B",         QWEN25(28, 3584, 28, 4, 18944, 152064, false) },
    { "qwen2.5-14b",  "Qwen2.5 14B",        QWEN25(48, 5120, 40, 8, 13824, 152064, false) },
    { "qwen2.5-32b",  "Qwen2.5 32B",        QWEN25(64, 5120, 40, 8, 27648, 152064, false) },
    { "qwen2.5-72b",  "Qwen2.5 72B",        QWEN25(80, 8192, 64, 8, 29568, 152064, false) },
    { "qwen3-0.6b",   "Qwen3 0.6B, tied",   QWEN3(28, 1024, 16, 8, 3072, true) },
    { "qwen3-1.7b",   "Qwen3 1.7B, tied",   QWEN3(28, 2048, 16, 8, 6144, true) },
    { "qwen3-4b",     "Qwen3 4B, tied",     QWEN3(36, 2560, 32, 8, 9728, true) },
    { "qwen3-8b",     "Qwen3 8B",           QWEN3(36, 4096, 32, 8, 12288, false) },
    { "qwen3-14b",    "Qwen3 14B",          QWEN3(40, 5120, 40, 8, 17408, false) },
    { "qwen3-32b",    "Qwen3 32B",          QWEN3(64, 5120, 64, 8, 25600, false) },

    { "mistral-7b", "Mistral 7B v0.1",
      LLAMA("mistral", 32, 4096, 32, 8, 14336, 32000, 32768, ",'rms_norm_eps':1e-5") },
    { "mistral-nemo-12b", "Mistral Nemo 12B: heads of 128 in 5120",
      LLAMA("mistral", 40, 5120, 32, 8, 14336, 131072, 131072,
            ",'head_dim':128,'rms_norm_eps':1e-5,'rope_theta':1e6,'sliding_window':null") },
    { "mistral-small-3-24b", "Mistral Small 3 24B: heads of 128 in 5120",
      LLAMA("mistral", 40, 5120, 32, 8, 32768, 131072, 32768,
            ",'head_dim':128,'rms_norm_eps':1e-5,'rope_theta':1e8,'sliding_window':null") },
    { "ministral-8b", "Ministral 8B (2410)",
      LLAMA("ministral", 36, 4096, 32, 8, 12288, 131072, 32768,
            ",'head_dim':128,'rms_norm_eps':1e-5,'rope_theta':1e8,'sliding_window':32768") },
    { "ministral-3-8b", "Ministral 3 8B, its text model", "{'model_type':'ministral3'}" },

    { "gemma-2b",    "Gemma 2B",    GEMMA("gemma", 18, 2048, 8, 1, 256, 16384, "") },
    { "gemma-7b",    "Gemma 7B",    GEMMA("gemma", 28, 3072, 16, 16, 256, 24576, "") },
    { "gemma-2-2b",  "Gemma 2 2B",  GEMMA("gemma2", 26, 2304, 8, 4, 256, 9216, "") },
    { "gemma-2-9b",  "Gemma 2 9B",  GEMMA("gemma2", 42, 3584, 16, 8, 256, 14336, "") },
    { "gemma-2-27b", "Gemma 2 27B", GEMMA("gemma2", 46, 4608, 32, 16, 128, 36864,
                                          ",'query_pre_attn_scalar':144") },
    { "gemma-3-1b",  "Gemma 3 1B",
      LLAMA("gemma3_text", 26, 1152, 4, 1, 6912, 262144, 32768, ",'head_dim':256,'sliding_window':512") },
    { "gemma-3-4b",  "Gemma 3 4B, its text model",  GEMMA3(34, 2560, 8, 4, 256, 10240, "") },
    { "gemma-3-12b", "Gemma 3 12B, its text model", GEMMA3(48, 3840, 16, 8, 256, 15360, "") },
    { "gemma-3-27b", "Gemma 3 27B, its text model",
      GEMMA3(62, 5376, 32, 16, 128, 21504, ",'query_pre_attn_scalar':168") },

    { "olmo-2-1b",  "OLMo 2 1B",  OLMO2(16, 2048, 16, 16, 8192) },
    { "olmo-2-7b",  "OLMo 2 7B",  OLMO2(32, 4096, 32, 32, 11008) },
    { "olmo-2-13b", "OLMo 2 13B", OLMO2(40, 5120, 40, 40, 13824) },
    { "olmo-2-32b", "OLMo 2 32B", OLMO2(64, 5120, 40, 8, 27648) },
    { "olmo-3-7b",  "Olmo 3 7B",  OLMO3(32, 4096, 32, 32, 11008) },
    { "olmo-3-32b", "Olmo 3 32B", OLMO3(64, 5120, 40, 8, 27648) },

    { "granite-3.1-8b", "Granite 3.1 8B, tied",
      LLAMA("granite", 40, 4096, 32, 8, 12800, 49155, 131072,
            ",'tie_word_embeddings':true,'rms_norm_eps':1e-5,'rope_theta':1e7,"
            "'embedding_multiplier':12.0,'residual_multiplier':0.22,'logits_scaling':16.0,"
            "'attention_multiplier':0.0078125") },
    { "smollm3-3b", "SmolLM3 3B, tied: every fourth layer without positions",
      LLAMA("smollm3", 36, 2048, 16, 4, 11008, 128256, 65536, ",'rope_theta':5e6") },

    { "stablelm-3b",     "StableLM 3B (4e1t)", "{'model_type':'stablelm'}" },
    { "stablelm-2-1.6b", "StableLM 2 1.6B",
      LLAMA("stablelm", 24, 2048, 32, 32, 5632, 100352, 4096, ",'use_qkv_bias':true") },
    { "stablelm-2-12b",  "StableLM 2 12B: parallel, a norm for each head",
      LLAMA("stablelm", 40, 5120, 32, 8, 13824, 100352, 4096,
            ",'qk_layernorm':true,'use_parallel_residual':true") },

    { "command-r-35b", "Command R 35B, tied", LLAMA("cohere", 40, 8192, 64, 64, 22528, 256000, 131072,
                                                    ",'rope_theta':8e6") },
    { "command-r-plus-104b", "Command R+ 104B, tied: norms of q and k",
      LLAMA("cohere", 64, 12288, 96, 8, 33792, 256000, 131072,
            ",'use_qk_norm':true,'logit_scale':0.8333333333333334,'rope_theta':75e6") },
    { "command-r7b", "Command R7B, tied: windows and layers without positions",
      LLAMA("cohere2", 32, 4096, 32, 8, 14336, 256000, 132096, ",'logit_scale':0.25,'rope_theta':50000") },

    { "glm-4-9b",       "GLM-4 9B", "{'model_type':'glm'}" },
    { "glm-4-9b-0414",  "GLM-4 9B (0414): norms around the halves", "{'model_type':'glm4'}" },
    { "glm-4-32b-0414", "GLM-4 32B (0414)",
      LLAMA("glm4", 61, 6144, 48, 2, 23040, 151552, 32768, ",'attention_bias':false,'rms_norm_eps':1e-5") },

    { "minitron-4b",     "Minitron 4B (Nemotron)",
      LLAMA("nemotron", 32, 3072, 24, 8, 9216, 256000, 4096, ",'head_dim':128") },
    { "nemotron-h-4b",   "Nemotron-H 4B, 8K context (Mamba-2, attention and MLP)",
      NEMOTRON_H(52, 3072, 32, 12288, 8192, 112, 64, 128, NEMOTRON_H_PATTERN) },
    { "nemotron-h-8b",   "Nemotron-H 8B, 8K context (Mamba-2, attention and MLP)",
      NEMOTRON_H(52, 4096, 32, 21504, 8192, 128, 64, 128, NEMOTRON_H_PATTERN) },
    { "nemotron-h-47b",  "Nemotron-H 47B, 8K context (Mamba-2, attention and MLP)",
      NEMOTRON_H(98, 8192, 64, 30720, 8192, 256, 64, 256,
                 "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-") },
    { "nemotron-h-56b",  "Nemotron-H 56B, 8K context (Mamba-2, attention and MLP)",
      NEMOTRON_H(118, 8192, 64, 32768, 8192, 256, 64, 256,
                 "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-") },
    { "nemotron-nano-9b-v2", "Nemotron Nano 9B v2 (Mamba-2, attention and MLP)",
      NEMOTRON_H(56, 4480, 40, 15680, 131072, 128, 80, 128, "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-") },
    { "nemotron-3-nano-30b-a3b", "Nemotron 3 Nano 30B-A3B (Mamba-2, attention and experts)",
      NEMOTRON_3(52, 2688, 32, 2, 1856, 64, 64, 128, 3712, 6, "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME") },
    { "nemotron-nano-12b-v2", "Nemotron Nano 12B v2 (Mamba-2, attention and MLP)",
      NEMOTRON_H(62, 5120, 40, 20480, 131072, 128, 80, 128, "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-") },
    { "seed-oss-36b",    "Seed-OSS 36B", LLAMA("seed_oss", 64, 5120, 80, 8, 27648, 155136, 524288,
                                               ",'rope_theta':1e7") },
    { "exaone-4.0-32b",  "EXAONE 4.0 32B", LLAMA("exaone4", 64, 5120, 40, 8, 27392, 102400, 131072,
                                                 ",'rope_theta':1e6") },
    { "ernie-4.5-0.3b",  "ERNIE 4.5 0.3B, tied", "{'model_type':'ernie4_5'}" },

    { "phi-1.5",    "Phi-1.5", "{'model_type':'phi'}" },
    { "phi-2",      "Phi-2 2.7B", LLAMA("phi", 32, 2560, 32, 32, 10240, 51200, 2048,
                                        ",'partial_rotary_factor':0.4,'resid_pdrop':0.1") },
    { "phi-3-mini", "Phi-3 mini 4k", "{'model_type':'phi3','sliding_window':2047}" },
    { "phi-4",      "Phi-4 14B", LLAMA("phi3", 40, 5120, 40, 10, 17920, 100352, 16384,
                                       ",'rope_theta':250000") },

    { "falcon-7b",  "Falcon 7B: multi-query, parallel, one norm", "{'model_type':'falcon'}" },
    { "falcon-40b", "Falcon 40B: new decoder architecture",
      "{'model_type':'falcon','num_hidden_layers':60,'hidden_size':8192,"
      "'num_attention_heads':128,'num_kv_heads':8,'new_decoder_architecture':true}" },
    { "falcon-180b", "Falcon 180B: new decoder architecture",
      "{'model_type':'falcon','num_hidden_layers':80,'hidden_size':14848,"
      "'num_attention_heads':232,'num_kv_heads':8,'new_decoder_architecture':true}" },

    { "gpt-j-6b", "GPT-J 6B", "{'model_type':'gptj'}" },
    { "gpt-neox-20b", "GPT-NeoX 20B", "{'model_type':'gpt_neox'}" },
    { "bloom-560m",   "BLOOM 560M", "{'model_type':'bloom','n_layer':24,'hidden_size':1024,"
                                    "'n_head':16}" },
    { "bloom-7b1",    "BLOOM 7.1B", "{'model_type':'bloom','n_layer':30,'hidden_size':4096,"
                                    "'n_head':32}" },
    { "bloom-176b",   "BLOOM 176B", "{'model_type':'bloom','n_layer':70,'hidden_size':14336,"
                                    "'n_head':112}" },

    { "starcoder2-3b",  "StarCoder2 3B",
      LLAMA("starcoder2", 30, 3072, 24, 2, 12288, 49152, 16384,
            ",'rope_theta':999999.44,'sliding_window':4096") },
    { "starcoder2-7b",  "StarCoder2 7B",
      LLAMA("starcoder2", 32, 4608, 36, 4, 18432, 49152, 16384, ",'rope_theta':1e6,'sliding_window':4096") },
    /* Dropout: as Huawei's class of its config has it (ATB, Starcoder2Config); that of the smaller ones stands nowhere that was read. */
    { "starcoder2-15b", "StarCoder2 15B, untied",
      LLAMA("starcoder2", 40, 6144, 48, 4, 24576, 49152, 16384,
            ",'rope_theta':1e5,'sliding_window':4096,'tie_word_embeddings':false,'attention_dropout':0.1,'residual_dropout':0.1,'embedding_dropout':0.1") },

    { "mixtral-8x7b",  "Mixtral 8x7B, 12.9B active", MIXTRAL(32, 4096, 32, 14336, 32000, 32768) },
    { "mixtral-8x22b", "Mixtral 8x22B (Instruct: 32,768 tokens), 39.2B active", MIXTRAL(56, 6144, 48, 16384, 32768, 65536) },
    { "qwen3-30b-a3b",   "Qwen3 30B, 3.4B active: 128 experts, 8 used",  QWEN3_MOE(48, 2048, 32, 6144, 768) },
    { "qwen3-235b-a22b", "Qwen3 235B, 22.2B active: 128 experts, 8 used", QWEN3_MOE(94, 4096, 64, 12288, 1536) },
    { "deepseek-v3", "DeepSeek-V3 671B without its layer of MTP, 37.6B active: MLA, 3 dense layers",
      "{'model_type':'deepseek_v3','max_position_embeddings':163840,'rope_scaling':{'type':'yarn','factor':40,'mscale':1.0,"
      "'mscale_all_dim':1.0,'beta_fast':32,'beta_slow':1,'original_max_position_embeddings':4096}}" },
    { "moonlight-16b-a3b", "Moonlight 16B (deepseek_v3), 2.9B active: MLA, 1 dense layer",
      "{'model_type':'deepseek_v3','first_k_dense_replace':1,'hidden_size':2048,'intermediate_size':11264,"
      "'max_position_embeddings':8192,'moe_intermediate_size':1408,'n_routed_experts':64,'n_shared_experts':2,"
      "'n_group':1,'topk_group':1,'num_attention_heads':16,'num_key_value_heads':16,'num_experts_per_tok':6,'num_hidden_layers':27,"
      "'q_lora_rank':null,'rope_theta':50000.0,'vocab_size':163840}" },
    { "kimi-k2", "Kimi K2 1.03T (deepseek_v3), 32.9B active: MLA, 384 experts, 1 dense layer",
      "{'model_type':'deepseek_v3','first_k_dense_replace':1,'max_position_embeddings':131072,'n_group':1,'topk_group':1,'n_routed_experts':384,"
      "'num_attention_heads':64,'num_key_value_heads':64,'rope_theta':50000.0,'routed_scaling_factor':2.827,'vocab_size':163840,"
      "'rope_scaling':{'type':'yarn','factor':32.0,'mscale':1.0,'mscale_all_dim':1.0,'beta_fast':1.0,'beta_slow':1.0,"
      "'original_max_position_embeddings':4096}}" },
    { "glm-4.5", "GLM-4.5 and 4.6 355B without MTP, 33.6B active: 160 experts, 8 used",
      "{'model_type':'glm4_moe','attention_bias':true,'first_k_dense_replace':3,'head_dim':128,'hidden_size':5120,'intermediate_size':12288,"
      "'moe_intermediate_size':1536,'n_routed_experts':160,'num_hidden_layers':92,'rope_theta':1e6,'routed_scaling_factor':2.5,'use_qk_norm':true}" },
    { "glm-4.5-air", "GLM-4.5-Air 106B without MTP, 13.4B active: 128 experts, 8 used",
      "{'model_type':'glm4_moe','attention_bias':true,'head_dim':128,'rope_theta':1e6}" },
    { "gpt-oss-20b",  "gpt-oss 20B, 4.2B active: 32 experts, 4 used",
      "{'model_type':'gpt_oss','num_hidden_layers':24,'num_local_experts':32}" },
    { "gpt-oss-120b", "gpt-oss 120B, 5.7B active: 128 experts, 4 used", "{'model_type':'gpt_oss'}" },
    { "llama-4-scout",    "Llama 4 Scout, its text model, 17.2B active",
      "{'model_type':'llama4_text','max_position_embeddings':10485760,'rope_scaling':{'rope_type':'llama3','factor':16.0,"
      "'high_freq_factor':1.0,'low_freq_factor':1.0,'original_max_position_embeddings':8192}}" },
    { "llama-4-maverick", "Llama 4 Maverick, its text model, 17.2B active: experts in every second layer",
      "{'model_type':'llama4_text','max_position_embeddings':1048576,'num_local_experts':128,'interleave_moe_layer_step':2,'use_qk_norm':false}" },
    { "granite-3.0-1b-a400m", "Granite 3.0 1B, tied, 0.4B active: 32 experts, 8 used", GRANITE_MOE(24, 1024, 16, 32) },
    { "granite-3.0-3b-a800m", "Granite 3.0 3B, tied, 0.9B active: 40 experts, 8 used", GRANITE_MOE(32, 1536, 24, 40) },
    { "olmoe-1b-7b", "OLMoE 7B, 1.3B active: 64 experts, 8 used",
      "{'model_type':'olmoe','intermediate_size':1024}" },

    /* Shapes as litgpt/config.py (litgpt 0.5) states them beside their ids of the hub, or as the model cards do. */
    { "distilgpt2",  "DistilGPT2 82M", GPT2(6, 768, 12) },
    { "llama-7b",    "LLaMA 7B (2023)",  LLAMA1(32, 4096, 32, 11008) },
    { "llama-13b",   "LLaMA 13B (2023)", LLAMA1(40, 5120, 40, 13824) },
    { "llama-30b",   "LLaMA 30B (2023)", LLAMA1(60, 6656, 52, 17920) },
    { "llama-65b",   "LLaMA 65B (2023)", LLAMA1(80, 8192, 64, 22016) },
    { "open-llama-3b", "OpenLLaMA 3B",   LLAMA1(26, 3200, 32, 8640) },
    { "llama-3-8b",  "Llama 3 8B: 8192 tokens",  LLAMA3(32, 4096, 32, 8, 14336) },
    { "llama-3-70b", "Llama 3 70B: 8192 tokens", LLAMA3(80, 8192, 64, 8, 28672) },
    { "codellama-7b",  "Code Llama 7B",  CODELLAMA(32, 4096, 32, 32, 11008, 32016) },
    { "codellama-7b-python",  "Code Llama 7B Python",  CODELLAMA(32, 4096, 32, 32, 11008, 32000) },
    { "codellama-13b", "Code Llama 13B", CODELLAMA(40, 5120, 40, 40, 13824, 32016) },
    { "codellama-13b-python", "Code Llama 13B Python", CODELLAMA(40, 5120, 40, 40, 13824, 32000) },
    { "codellama-34b", "Code Llama 34B", CODELLAMA(48, 8192, 64, 8, 22016, 32000) },
    { "codellama-70b", "Code Llama 70B", CODELLAMA(80, 8192, 64, 8, 28672, 32016) },
    { "tinyllama-1.1b", "TinyLlama 1.1B", LLAMA("llama", 22, 2048, 32, 4, 5632, 32000, 2048, ",'rms_norm_eps':1e-5") },
    { "mistral-7b-v0.2", "Mistral 7B v0.2: no window",
      LLAMA("mistral", 32, 4096, 32, 8, 14336, 32000, 32768, ",'rms_norm_eps':1e-5,'rope_theta':1e6,'sliding_window':null") },
    { "mistral-7b-v0.3", "Mistral 7B v0.3: no window, 32,768 tokens in the vocabulary",
      LLAMA("mistral", 32, 4096, 32, 8, 14336, 32768, 32768, ",'rms_norm_eps':1e-5,'rope_theta':1e6,'sliding_window':null") },
    { "mistral-large-123b", "Mistral Large 2 123B",
      LLAMA("mistral", 88, 12288, 96, 8, 28672, 32768, 131072, ",'head_dim':128,'rms_norm_eps':1e-5,'rope_theta':1e6,'sliding_window':null") },
    { "smollm2-135m", "SmolLM2 135M, tied", SMOLLM2(30, 576, 9, 3, 1536, 100000) },
    { "smollm2-360m", "SmolLM2 360M, tied", SMOLLM2(32, 960, 15, 5, 2560, 100000) },
    { "smollm2-1.7b", "SmolLM2 1.7B, tied", SMOLLM2(24, 2048, 32, 32, 8192, 130000) },
    { "falcon3-1b",  "Falcon3 1B",  FALCON3(18, 2048, 8, 8192, 4096) },
    { "falcon3-3b",  "Falcon3 3B",  FALCON3(22, 3072, 12, 9216, 32768) },
    { "falcon3-7b",  "Falcon3 7B",  FALCON3(28, 3072, 12, 23040, 32768) },
    { "falcon3-10b", "Falcon3 10B", FALCON3(40, 3072, 12, 23040, 32768) },
    { "pythia-14m",  "Pythia 14M",  PYTHIA(6, 128, 4, 512, 50304) },
    { "pythia-70m",  "Pythia 70M",  PYTHIA(6, 512, 8, 2048, 50304) },
    { "pythia-160m", "Pythia 160M", PYTHIA(12, 768, 12, 3072, 50304) },
    { "pythia-410m", "Pythia 410M", PYTHIA(24, 1024, 16, 4096, 50304) },
    { "pythia-1b",   "Pythia 1B",   PYTHIA(16, 2048, 8, 8192, 50304) },
    { "pythia-1.4b", "Pythia 1.4B", PYTHIA(24, 2048, 16, 8192, 50304) },
    { "pythia-2.8b", "Pythia 2.8B", PYTHIA(32, 2560, 32, 10240, 50304) },
    { "pythia-6.9b", "Pythia 6.9B", PYTHIA(32, 4096, 32, 16384, 50432) },
    { "pythia-12b",  "Pythia 12B",  PYTHIA(36, 5120, 40, 20480, 50688) },
    { "qwen1.5-0.5b", "Qwen1.5 0.5B, tied", QWEN25(24, 1024, 16, 16, 2816, 151936, true) },
    { "qwen1.5-1.8b", "Qwen1.5 1.8B", QWEN25(24, 2048, 16, 16, 5504, 151936, false) },
    { "qwen1.5-4b",   "Qwen1.5 4B",   QWEN25(40, 2560, 20, 20, 6912, 151936, false) },
    { "qwen1.5-7b",   "Qwen1.5 7B",   QWEN25(32, 4096, 32, 32, 11008, 151936, false) },
    { "qwen1.5-14b",  "Qwen1.5 14B",  QWEN25(40, 5120, 40, 40, 13696, 152064, false) },
    { "deepseek-r1-distill-qwen-1.5b", "DeepSeek-R1-Distill-Qwen 1.5B: Qwen2.5's shape, untied",
      LLAMA("qwen2", 28, 1536, 12, 2, 8960, 151936, 131072, ",'rope_theta':10000,'tie_word_embeddings':false") },
    { "qwen3-4b-2507", "Qwen3 4B of July 2025, tied: 262,144 tokens",
      LLAMA("qwen3", 36, 2560, 32, 8, 9728, 151936, 262144, ",'rope_theta':5e6,'head_dim':128,'tie_word_embeddings':true") },
    { "qwen3-30b-a3b-2507", "Qwen3 30B of July 2025, 3.4B active: 262,144 tokens",
      LLAMA("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, 262144,
            ",'rope_theta':1e7,'head_dim':128,'norm_topk_prob':true,'moe_intermediate_size':768") },
    { "qwen3-235b-a22b-2507", "Qwen3 235B of July 2025, 22.2B active: 262,144 tokens",
      LLAMA("qwen3_moe", 94, 4096, 64, 4, 12288, 151936, 262144,
            ",'rope_theta':5e6,'head_dim':128,'norm_topk_prob':true,'moe_intermediate_size':1536") },
    { "deepseek-llm-7b",  "DeepSeek LLM 7B",  LLAMA("llama", 30, 4096, 32, 32, 11008, 102400, 4096, "") },
    { "deepseek-llm-67b", "DeepSeek LLM 67B", LLAMA("llama", 95, 8192, 64, 8, 22016, 102400, 4096, "") },
    { "deepseek-coder-1.3b", "DeepSeek Coder 1.3B", DEEPSEEK_CODER(24, 2048, 16, 16, 5504) },
    { "deepseek-coder-6.7b", "DeepSeek Coder 6.7B", DEEPSEEK_CODER(32, 4096, 32, 32, 11008) },
    { "deepseek-coder-33b",  "DeepSeek Coder 33B",  DEEPSEEK_CODER(62, 7168, 56, 8, 19200) },
    { "yi-6b",  "Yi 6B",  LLAMA("llama", 32, 4096, 32, 4, 11008, 64000, 4096, ",'rms_norm_eps':1e-5,'rope_theta':5e6") },
    { "yi-34b", "Yi 34B", LLAMA("llama", 60, 7168, 56, 8, 20480, 64000, 4096, ",'rms_norm_eps':1e-5,'rope_theta':5e6") },
    { "solar-10.7b", "SOLAR 10.7B", LLAMA("llama", 48, 4096, 32, 8, 14336, 32000, 4096, ",'rms_norm_eps':1e-5") },
    { "salamandra-2b", "Salamandra 2B", LLAMA("llama", 24, 2048, 16, 16, 5440, 256000, 8192, ",'rms_norm_eps':1e-5") },
    { "salamandra-7b", "Salamandra 7B", LLAMA("llama", 32, 4096, 32, 8, 11008, 256000, 8192, ",'rms_norm_eps':1e-6") },
    { "gemma-3-270m", "Gemma 3 270M",
      LLAMA("gemma3_text", 18, 640, 4, 1, 2048, 262144, 32768, ",'head_dim':256,'sliding_window':512") },
    { "granite-3.1-2b", "Granite 3.1 2B, tied",
      LLAMA("granite", 40, 2048, 32, 8, 8192, 49155, 131072,
            ",'tie_word_embeddings':true,'rms_norm_eps':1e-5,'rope_theta':5e6,'embedding_multiplier':12.0,'residual_multiplier':0.22,"
            "'logits_scaling':8.0,'attention_multiplier':0.015625") },

    /* Of litgpt/config.py again. */
    { "stablelm-alpha-3b", "StableLM Base Alpha 3B",
      "{'model_type':'gpt_neox','num_hidden_layers':16,'hidden_size':4096,'num_attention_heads':32,'intermediate_size':16384,"
      "'vocab_size':50688,'max_position_embeddings':4096}" },
    { "redpajama-3b", "RedPajama-INCITE 3B",
      "{'model_type':'gpt_neox','num_hidden_layers':32,'hidden_size':2560,'num_attention_heads':32,'intermediate_size':10240,"
      "'vocab_size':50432,'max_position_embeddings':2048,'rotary_pct':1.0,'use_parallel_residual':false}" },
    { "microllama-300m", "MicroLlama 300M", LLAMA("llama", 12, 1024, 16, 4, 5632, 32000, 2048, ",'rms_norm_eps':1e-5") },
    { "phi-3.5-mini", "Phi-3.5 mini: 131,072 tokens",
      "{'model_type':'phi3','sliding_window':262144,'max_position_embeddings':131072}" },
    /* Of the models' own config.json, as their cards show it and others quote it (Granite 3.3, Seed-Coder, Orpheus, Ministral 3); with the vocabulary
     * that the card names (OpenHermes, XGen), and the totals that tests/model/test_builtin.c has. */
    { "granite-3.3-2b", "Granite 3.3 2B, tied",
      LLAMA("granite", 40, 2048, 32, 8, 8192, 49159, 131072,
            ",'tie_word_embeddings':true,'rms_norm_eps':1e-5,'rope_theta':1e7,'embedding_multiplier':12.0,'residual_multiplier':0.22,"
            "'logits_scaling':8.0,'attention_multiplier':0.015625") },
    { "granite-3.3-8b", "Granite 3.3 8B, tied",
      LLAMA("granite", 40, 4096, 32, 8, 12800, 49159, 131072,
            ",'tie_word_embeddings':true,'rms_norm_eps':1e-5,'rope_theta':1e7,'embedding_multiplier':12.0,'residual_multiplier':0.22,"
            "'logits_scaling':16.0,'attention_multiplier':0.0078125") },
    { "seed-coder-8b", "Seed-Coder 8B", LLAMA("llama", 32, 4096, 32, 8, 14336, 155136, 32768, ",'rms_norm_eps':1e-6,'rope_theta':5e5") },
    { "orpheus-3b", "Orpheus 3B, tied: Llama 3.2 3B with tokens of sound",
      LLAMA("llama", 28, 3072, 24, 8, 8192, 156940, 131072,
            ",'rms_norm_eps':1e-5,'rope_theta':500000.0,'rope_scaling':{'rope_type':'llama3','factor':32.0,'low_freq_factor':1.0,"
            "'high_freq_factor':4.0,'original_max_position_embeddings':8192},'tie_word_embeddings':true") },
    { "ministral-3-3b", "Ministral 3 3B, its text model, tied",
      "{'model_type':'ministral3','num_hidden_layers':26,'hidden_size':3072,'num_attention_heads':32,'num_key_value_heads':8,"
      "'intermediate_size':9216,'head_dim':128,'vocab_size':131072,'tie_word_embeddings':true}" },
    { "mixtral-8x22b-v0.1", "Mixtral 8x22B of April 2024: 32,000 tokens in the vocabulary", MIXTRAL(56, 6144, 48, 16384, 32000, 65536) },
    { "mosaicml-mpt-7b", "MosaicML's MPT 7B",
      "{'model_type':'mpt','n_layers':32,'d_model':4096,'n_heads':32,'max_seq_len':2048,'vocab_size':50432}" },
    { "xgen-7b", "XGen 7B", LLAMA("llama", 32, 4096, 32, 32, 11008, 51200, 8192, "") },
    { "cerebras-gpt-1.3b", "Cerebras-GPT 1.3B",
      "{'model_type':'gpt2','n_layer':24,'n_embd':2048,'n_head':16,'n_inner':8192,'n_positions':2048,'activation_function':'gelu',"
      "'resid_pdrop':0,'embd_pdrop':0,'attn_pdrop':0}" },
    { "openhermes-2.5-mistral-7b", "OpenHermes 2.5: Mistral 7B with 32,002 tokens in the vocabulary",
      LLAMA("mistral", 32, 4096, 32, 8, 14336, 32002, 32768, ",'rms_norm_eps':1e-5") },
};

#define NBUILTINS ((int)(sizeof builtins / sizeof *builtins))

const char *model_builtin(int i, const char **about)
{
    if (i < 0 || i >= NBUILTINS)
        return NULL;
    if (about)
        *about = builtins[i].about;
    return builtins[i].name;
}

static const struct builtin *find(const char *name)
{
    for (int i = 0; i < NBUILTINS; i++)
        if (!strcmp(builtins[i].name, name))
            return &builtins[i];
    return NULL;
}

bool builtin_exists(const char *name)
{
    return find(name) != NULL;
}

static json_t *parse(const char *config)
{
    char text[768];
    size_t n = strlen(config);

    assert(n < sizeof text);
    for (size_t i = 0; i <= n; i++)
        text[i] = config[i] == '\'' ? '"' : config[i];
    return json_loads(text, JSON_REJECT_DUPLICATES, NULL);
}

int builtin_load(const char *name, struct model *out)
{
    const struct builtin *b = find(name);
    json_t *config;
    int rc;

    assert(b);
    config = parse(b->config);
    if (!config)
        return fail("out of memory for the built-in model %s", name);
    rc = model_from_config(config, name, out);
    json_decref(config);
    if (rc == 0)
        snprintf(out->name, sizeof out->name, "%s", name);
    return rc;
}
