#!/usr/bin/env python3
"""Golden truth for the tensor tables of model/arch/transformer.h.

    python3 make_tensors.py          (torch 2.15.0, transformers 5.23.0; -heads cases 5.24.0; no network)

writes configs/<case>.json, a Hugging Face config each, and tensors.json: what
named_parameters() of that config's model lists, built on the meta device.  Per
case the tensors before the blocks, those of a block, and those after; the script
checks that every block equals it with its index replaced, but for the blocks of a
mixture of experts that have none, which are listed as "dense_layers" and have the
tensors "dense".  A tensor is [name, extents...]; of a block names are below it.
"active" counts of the experts' tensors, whose first extent counts them, those that
a token takes (num_experts_per_tok).

The configs marked "published" are the fields of released models that say
something about shapes, with some that do not, as such files have them.
"""
import json
import os
import re
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {}


def case(name, **config):
    assert name not in CASES
    CASES[name] = config


def gpt2(name, **kw):
    case(name, model_type="gpt2", **kw)


# ---- gpt2 (published: gpt2 to gpt2-xl) ----
gpt2("gpt2", architectures=["GPT2LMHeadModel"], activation_function="gelu_new", attn_pdrop=0.1,
     bos_token_id=50256, embd_pdrop=0.1, eos_token_id=50256, initializer_range=0.02,
     layer_norm_epsilon=1e-05, n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_positions=1024,
     resid_pdrop=0.1, summary_type="cls_index", vocab_size=50257)
gpt2("gpt2-medium", n_ctx=1024, n_embd=1024, n_head=16, n_layer=24, n_positions=1024,
     vocab_size=50257)
gpt2("gpt2-xl", n_ctx=1024, n_embd=1600, n_head=25, n_layer=48, n_positions=1024,
     vocab_size=50257, output_past=True)
gpt2("gpt2-padded-vocab", n_embd=768, n_head=12, n_layer=12, n_positions=1024, vocab_size=50304)
gpt2("gpt2-untied-inner", hidden_size=96, num_attention_heads=3, num_hidden_layers=2,
     max_position_embeddings=77, n_inner=131, vocab_size=65, tie_word_embeddings=False)
gpt2("gpt2-lite", n_positions=2048, vocab_size=65, activation_function="relu",
     tie_word_embeddings=False)
gpt2("gpt3-175b", n_layer=96, n_embd=12288, n_head=96, n_positions=2048)
gpt2("gpt2-defaults")

# ---- gpt_neox (published: gpt-neox-20b, pythia) ----
case("gpt-neox-20b", model_type="gpt_neox", architectures=["GPTNeoXForCausalLM"],
     hidden_act="gelu_fast", hidden_size=6144, intermediate_size=24576, layer_norm_eps=1e-05,
     max_position_embeddings=2048, num_attention_heads=64, num_hidden_layers=44,
     rotary_emb_base=10000, rotary_pct=0.25, tie_word_embeddings=False, vocab_size=50432)
case("pythia-70m", model_type="gpt_neox", hidden_act="gelu", hidden_size=512,
     intermediate_size=2048, num_attention_heads=8, num_hidden_layers=6, rotary_pct=0.25,
     use_parallel_residual=True, vocab_size=50304)
case("pythia-1.4b", model_type="gpt_neox", hidden_size=2048, intermediate_size=8192,
     num_attention_heads=16, num_hidden_layers=24, vocab_size=50304, use_parallel_residual=True)
case("pythia-12b", model_type="gpt_neox", hidden_size=5120, intermediate_size=20480,
     num_attention_heads=40, num_hidden_layers=36, vocab_size=50688, use_parallel_residual=True)
case("gpt-neox-tied-no-bias", model_type="gpt_neox", hidden_size=64, intermediate_size=100,
     num_attention_heads=4, num_hidden_layers=3, vocab_size=999, attention_bias=False,
     use_parallel_residual=False, rotary_pct=1.0, tie_word_embeddings=True)

# ---- opt (published: opt-125m to opt-175b; galactica is OPT without biases and affine norms) ----
case("opt-125m", model_type="opt", _name_or_path="opt-125m", activation_function="relu",
     attention_dropout=0.0, do_layer_norm_before=True, dropout=0.1, ffn_dim=3072, hidden_size=768,
     init_std=0.02, layerdrop=0.0, max_position_embeddings=2048, num_attention_heads=12,
     num_hidden_layers=12, prefix="</s>", vocab_size=50272, word_embed_proj_dim=768)
case("opt-1.3b", model_type="opt", ffn_dim=8192, hidden_size=2048, num_attention_heads=32,
     num_hidden_layers=24, vocab_size=50272, word_embed_proj_dim=2048)
case("opt-350m", model_type="opt", do_layer_norm_before=False, ffn_dim=4096, hidden_size=1024,
     num_attention_heads=16, num_hidden_layers=24, vocab_size=50272, word_embed_proj_dim=512)
case("opt-wide-tokens-untied", model_type="opt", ffn_dim=200, hidden_size=60, num_attention_heads=5,
     num_hidden_layers=2, vocab_size=301, max_position_embeddings=33, word_embed_proj_dim=70,
     tie_word_embeddings=False)
case("opt-13b", model_type="opt", ffn_dim=20480, hidden_size=5120, num_attention_heads=40,
     num_hidden_layers=40, vocab_size=50272, word_embed_proj_dim=5120)
case("galactica-125m", model_type="opt", activation_function="gelu", enable_bias=False,
     layer_norm_elementwise_affine=False, ffn_dim=3072, hidden_size=768, num_attention_heads=12,
     num_hidden_layers=12, vocab_size=50000, max_position_embeddings=2048)
case("opt-untied-no-bias", model_type="opt", enable_bias=False, ffn_dim=200, hidden_size=60,
     num_attention_heads=5, num_hidden_layers=2, vocab_size=301, max_position_embeddings=33,
     tie_word_embeddings=False)

# ---- bloom (published) ----
case("bloom-560m", model_type="bloom", architectures=["BloomForCausalLM"],
     apply_residual_connection_post_layernorm=False, attention_dropout=0.0,
     attention_softmax_in_fp32=True, hidden_dropout=0.0, n_embed=1024, n_layer=24,
     num_attention_heads=16, pretraining_tp=1, seq_length=2048, slow_but_exact=False,
     vocab_size=250880)
case("bloom-7b1", model_type="bloom", n_embed=4096, n_layer=30, num_attention_heads=32,
     vocab_size=250880)
case("bloom-176b", model_type="bloom", n_embed=14336, n_layer=70, num_attention_heads=112,
     vocab_size=250880)
case("bloom-untied", model_type="bloom", hidden_size=48, n_layer=2, n_head=6, vocab_size=131,
     tie_word_embeddings=False)

# ---- mpt (published: mpt-7b, mpt-30b) ----
case("mpt-7b", model_type="mpt", architectures=["MPTForCausalLM"], d_model=4096, n_heads=32,
     n_layers=32, expansion_ratio=4, max_seq_len=2048, vocab_size=50432, no_bias=True,
     learned_pos_emb=True, norm_type="low_precision_layernorm", emb_pdrop=0, resid_pdrop=0,
     attn_config={"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0,
                  "attn_type": "multihead_attention", "clip_qkv": None, "prefix_lm": False,
                  "qk_ln": False, "softmax_scale": None})
case("mpt-30b", model_type="mpt", d_model=7168, n_heads=64, n_layers=48, max_seq_len=8192,
     vocab_size=50432)
case("mpt-untied", model_type="mpt", d_model=72, n_heads=9, n_layers=3, vocab_size=77,
     tie_word_embeddings=False)


# ---- llama and its kin ----
def llama(name, layers, hidden, heads, kv, ffn, vocab, model_type="llama", **kw):
    case(name, model_type=model_type, hidden_size=hidden, intermediate_size=ffn,
         num_attention_heads=heads, num_hidden_layers=layers, num_key_value_heads=kv,
         vocab_size=vocab, **kw)


LLAMA3 = dict(max_position_embeddings=131072, rms_norm_eps=1e-05, rope_theta=500000.0)


def scaled(factor):
    return {"factor": factor, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}


case("llama-7b", model_type="llama", hidden_act="silu", hidden_size=4096,
     intermediate_size=11008, max_position_embeddings=2048, num_attention_heads=32,
     num_hidden_layers=32, rms_norm_eps=1e-06, tie_word_embeddings=False, vocab_size=32000)
llama("llama-2-13b", 40, 5120, 40, 40, 13824, 32000, max_position_embeddings=4096,
      pretraining_tp=1, rope_scaling=None, rms_norm_eps=1e-05)
llama("llama-2-70b", 80, 8192, 64, 8, 28672, 32000, max_position_embeddings=4096)
llama("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256, rope_scaling=scaled(8.0),
      attention_bias=False, attention_dropout=0.0, mlp_bias=False, torch_dtype="bfloat16",
      transformers_version="4.42.3", **LLAMA3)
llama("llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256, rope_scaling=scaled(8.0), **LLAMA3)
llama("llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256, rope_scaling=scaled(8.0), **LLAMA3)
llama("llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256, head_dim=64, tie_word_embeddings=True,
      rope_scaling=scaled(32.0), **LLAMA3)
llama("llama-3.2-3b-v5", 28, 3072, 24, 8, 8192, 128256, head_dim=128, tie_word_embeddings=True,
      dtype="bfloat16", rope_parameters=dict(scaled(32.0), rope_theta=500000.0))
llama("llama-all-biases-mqa", 2, 96, 6, 1, 257, 1009, attention_bias=True, mlp_bias=True)
llama("llama-head-dim", 3, 64, 4, 2, 96, 513, head_dim=24, attention_bias=True)
llama("llama-tiny", 1, 2, 1, 1, 1, 1)
case("llama-defaults", model_type="llama")

llama("mistral-7b", 32, 4096, 32, 8, 14336, 32000, "mistral", max_position_embeddings=32768,
      rms_norm_eps=1e-05, rope_theta=10000.0, sliding_window=4096)
llama("mistral-nemo-12b", 40, 5120, 32, 8, 14336, 131072, "mistral", head_dim=128,
      rope_theta=1000000.0, sliding_window=None, max_position_embeddings=131072)
case("mistral-defaults-tied", model_type="mistral", num_hidden_layers=1,
     head_dim=None, tie_word_embeddings=True)

QWEN = dict(max_position_embeddings=32768, rms_norm_eps=1e-06, rope_theta=1000000.0,
            use_sliding_window=False, sliding_window=32768, max_window_layers=28)
llama("qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151936, "qwen2", tie_word_embeddings=True, **QWEN)
llama("qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, "qwen2", tie_word_embeddings=False, **QWEN)
llama("qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, "qwen2", tie_word_embeddings=False, **QWEN)
llama("qwen2-head-dim", 2, 100, 5, 5, 77, 333, "qwen2", head_dim=16)
llama("qwen3-0.6b", 28, 1024, 16, 8, 3072, 151936, "qwen3", head_dim=128,
      max_position_embeddings=40960, rope_theta=1000000, tie_word_embeddings=True)
llama("qwen3-32b", 64, 5120, 64, 8, 25600, 151936, "qwen3", head_dim=128,
      max_position_embeddings=40960, rope_theta=1000000, tie_word_embeddings=False)
llama("qwen3-biased", 2, 96, 4, 2, 128, 500, "qwen3", head_dim=32, attention_bias=True)

llama("gemma-2b", 18, 2048, 8, 1, 16384, 256000, "gemma", head_dim=256,
      hidden_act="gelu_pytorch_tanh", max_position_embeddings=8192)
llama("gemma-7b", 28, 3072, 16, 16, 24576, 256000, "gemma", head_dim=256, hidden_act="gelu",
      hidden_activation=None)
llama("gemma-untied", 2, 40, 2, 1, 60, 97, "gemma", head_dim=32, tie_word_embeddings=False)
llama("gemma-2-2b", 26, 2304, 8, 4, 9216, 256000, "gemma2", head_dim=256,
      attn_logit_softcapping=50.0, final_logit_softcapping=30.0, hidden_act="gelu_pytorch_tanh",
      hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=256, sliding_window=4096)
llama("gemma-2-27b", 46, 4608, 32, 16, 36864, 256000, "gemma2", head_dim=128,
      query_pre_attn_scalar=144)
llama("gemma2-biased-no-cap", 4, 48, 4, 2, 64, 200, "gemma2", head_dim=20, attention_bias=True,
      final_logit_softcapping=None, attn_logit_softcapping=None)

llama("phi-3-mini", 32, 3072, 32, 32, 8192, 32064, "phi3", embd_pdrop=0.0, resid_pdrop=0.0,
      max_position_embeddings=4096, original_max_position_embeddings=4096, rms_norm_eps=1e-05,
      rope_scaling=None, rope_theta=10000.0, sliding_window=2047, tie_word_embeddings=False)
llama("phi-4", 40, 5120, 40, 10, 17920, 100352, "phi3", max_position_embeddings=16384,
      rope_theta=250000, bos_token_id=100257, eos_token_id=100257, pad_token_id=100257)
llama("phi3-partial-tied", 2, 128, 4, 2, 96, 400, "phi3", partial_rotary_factor=0.75,
      tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2)

# ---- falcon (published: falcon-rw-1b, 7b, 40b, 180b, 11b) ----
case("falcon-rw-1b", model_type="falcon", alibi=True, bias=True, hidden_size=2048,
     multi_query=False, new_decoder_architecture=False, num_attention_heads=32,
     num_hidden_layers=24, parallel_attn=False, vocab_size=50304)
case("falcon-7b", model_type="falcon", alibi=False, bias=False, hidden_size=4544,
     multi_query=True, new_decoder_architecture=False, num_attention_heads=71,
     num_hidden_layers=32, parallel_attn=True, vocab_size=65024)
case("falcon-40b", model_type="falcon", alibi=False, bias=False, hidden_size=8192,
     new_decoder_architecture=True, num_attention_heads=128, num_hidden_layers=60,
     num_kv_heads=8, parallel_attn=True, vocab_size=65024)
case("falcon-180b", model_type="falcon", hidden_size=14848, new_decoder_architecture=True,
     num_attention_heads=232, num_hidden_layers=80, num_kv_heads=8, parallel_attn=True,
     vocab_size=65024)
case("falcon-11b", model_type="falcon", hidden_size=4096, ffn_hidden_size=16384,
     new_decoder_architecture=True, num_attention_heads=32, num_hidden_layers=60,
     num_kv_heads=8, num_ln_in_parallel_attn=1, max_position_embeddings=8192, vocab_size=65024)
case("falcon-biased-untied", model_type="falcon", hidden_size=60, num_attention_heads=5,
     num_hidden_layers=2, multi_query=False, bias=True, ffn_hidden_size=100, vocab_size=111,
     tie_word_embeddings=False)

# ---- starcoder2 (published: 3b, 15b) ----
llama("starcoder2-3b", 30, 3072, 24, 2, 12288, 49152, "starcoder2", use_bias=True,
      hidden_act="gelu_pytorch_tanh", max_position_embeddings=16384, norm_epsilon=1e-05,
      norm_type="layer_norm", residual_dropout=0.1, embedding_dropout=0.1, attention_dropout=0.1,
      mlp_type="default", rope_theta=999999.4420358813, bos_token_id=0, eos_token_id=0)
llama("starcoder2-15b", 40, 6144, 48, 4, 24576, 49152, "starcoder2", use_bias=True,
      tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)
llama("starcoder2-no-bias", 2, 64, 4, 4, 130, 321, "starcoder2", use_bias=False, bos_token_id=0,
      eos_token_id=0)


# ---- gemma3 (published: gemma-3-1b-pt, the text halves of 4b, 12b and 27b) ----
def gemma3(name, layers, hidden, heads, kv, ffn, vocab=262208, **kw):
    llama(name, layers, hidden, heads, kv, ffn, vocab, "gemma3_text", **kw)


GEMMA3 = dict(head_dim=256, hidden_activation="gelu_pytorch_tanh", max_position_embeddings=131072,
              rope_scaling={"factor": 8.0, "rope_type": "linear"}, sliding_window=1024)
gemma3("gemma-3-1b", 26, 1152, 4, 1, 6912, 262144, head_dim=256, attention_bias=False,
       attn_logit_softcapping=None, final_logit_softcapping=None, query_pre_attn_scalar=256,
       max_position_embeddings=32768, rope_local_base_freq=10000, rope_scaling=None,
       rope_theta=1000000, sliding_window=512, sliding_window_pattern=6)
gemma3("gemma-3-4b-text", 34, 2560, 8, 4, 10240, **GEMMA3)
gemma3("gemma-3-27b-text", 62, 5376, 32, 16, 21504, **dict(GEMMA3, head_dim=128, query_pre_attn_scalar=168))
gemma3("gemma3-biased-untied", 3, 48, 4, 2, 64, 200, head_dim=20, attention_bias=True,
       tie_word_embeddings=False, final_logit_softcapping=30.0, sliding_window=None,
       layer_types=["full_attention"] * 3)

# ---- ministral, ministral3 (published: Ministral-8B, Ministral-3-8B's text half) ----
llama("ministral-8b", 36, 4096, 32, 8, 12288, 131072, "ministral", head_dim=128, rms_norm_eps=1e-05,
      rope_theta=100000000.0, max_position_embeddings=32768, sliding_window=32768)
llama("ministral-tied-wide", 2, 64, 4, 4, 96, 301, "ministral", head_dim=24, sliding_window=None,
      tie_word_embeddings=True)
case("ministral-almost-defaults", model_type="ministral", num_hidden_layers=1, head_dim=128)
llama("ministral-3-8b-text", 34, 4096, 32, 8, 14336, 131072, "ministral3", head_dim=128,
      rope_parameters={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1,
                       "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
                       "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn"})
llama("ministral3-tied-mqa", 2, 64, 4, 1, 96, 301, "ministral3", head_dim=24, sliding_window=17,
      tie_word_embeddings=True)
case("ministral3-defaults", model_type="ministral3", num_hidden_layers=1)

# ---- olmo2, olmo3 (published: OLMo-2-1124-7B and 13B, OLMo-2-0425-1B, Olmo-3-7B, 32B) ----
llama("olmo-2-1b", 16, 2048, 16, 16, 8192, 100352, "olmo2", rope_theta=500000, rms_norm_eps=1e-06,
      max_position_embeddings=4096)
llama("olmo-2-7b", 32, 4096, 32, 32, 11008, 100352, "olmo2", rope_theta=500000, rms_norm_eps=1e-06,
      max_position_embeddings=4096, attention_bias=False, rope_scaling=None)
llama("olmo-2-13b", 40, 5120, 40, 40, 13824, 100352, "olmo2", rope_theta=500000)
llama("olmo2-biased-gqa-tied", 2, 96, 6, 2, 130, 401, "olmo2", attention_bias=True,
      tie_word_embeddings=True)
llama("olmo-3-7b", 32, 4096, 32, 32, 11008, 100278, "olmo3", sliding_window=4096, rope_theta=500000,
      rope_scaling={"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
                    "original_max_position_embeddings": 8192, "rope_type": "yarn"},
      max_position_embeddings=65536,
      layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 8)
llama("olmo-3-32b", 64, 5120, 40, 8, 27648, 100278, "olmo3", sliding_window=4096)
llama("olmo3-biased-tied", 5, 96, 6, 3, 130, 401, "olmo3", attention_bias=True, tie_word_embeddings=True,
      rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 20000.0},
                       "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}})

# ---- phi (published: phi-1, phi-1_5, phi-2) ----
case("phi-1", model_type="phi", hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
     num_hidden_layers=24, num_key_value_heads=None, vocab_size=51200, partial_rotary_factor=0.5,
     layer_norm_eps=1e-05, hidden_act="gelu_new", qk_layernorm=False, embd_pdrop=0.0, resid_pdrop=0.0)
llama("phi-2", 32, 2560, 32, 32, 10240, 51200, "phi", partial_rotary_factor=0.4, resid_pdrop=0.1,
      hidden_act="gelu_new", layer_norm_eps=1e-05, max_position_embeddings=2048, rope_theta=10000.0)
llama("phi-qk-norm-gqa", 2, 96, 6, 2, 130, 401, "phi", qk_layernorm=True)

# ---- granite (published: granite-3.0-2b and 8b, 3.1-8b) ----
llama("granite-3.0-2b", 40, 2048, 32, 8, 8192, 49155, "granite", tie_word_embeddings=True,
      attention_multiplier=0.015625, embedding_multiplier=12.0, logits_scaling=8.0,
      residual_multiplier=0.22, rope_theta=10000.0, max_position_embeddings=4096, attention_dropout=0.1)
llama("granite-3.1-8b", 40, 4096, 32, 8, 12800, 49155, "granite", tie_word_embeddings=True,
      attention_multiplier=0.0078125, embedding_multiplier=12.0, logits_scaling=16.0,
      residual_multiplier=0.22, rope_theta=10000000.0, max_position_embeddings=131072)
llama("granite-biased-untied", 2, 96, 6, 3, 130, 401, "granite", attention_bias=True, mlp_bias=True)

# ---- smollm3 (published: SmolLM3-3B) ----
llama("smollm3-3b", 36, 2048, 16, 4, 11008, 128256, "smollm3", max_position_embeddings=65536,
      rope_theta=5000000.0, rms_norm_eps=1e-06, no_rope_layer_interval=4,
      no_rope_layers=[1, 1, 1, 0] * 9, layer_types=["full_attention"] * 36, use_sliding_window=False,
      sliding_window=None)
llama("smollm3-biased-untied", 3, 96, 6, 3, 130, 401, "smollm3", attention_bias=True, mlp_bias=True,
      tie_word_embeddings=False, no_rope_layers=[1, 0, 1], pad_token_id=0, bos_token_id=1, eos_token_id=2)
case("smollm3-defaults", model_type="smollm3")

# ---- stablelm (published: stablelm-3b-4e1t, stablelm-2-1_6b, stablelm-2-12b) ----
llama("stablelm-3b", 32, 2560, 32, 32, 6912, 50304, "stablelm", layer_norm_eps=1e-05,
      partial_rotary_factor=0.25, use_qkv_bias=False, tie_word_embeddings=False)
llama("stablelm-2-1.6b", 24, 2048, 32, 32, 5632, 100352, "stablelm", partial_rotary_factor=0.25,
      use_qkv_bias=True)
llama("stablelm-2-12b", 40, 5120, 32, 8, 13824, 100352, "stablelm", partial_rotary_factor=0.25,
      qk_layernorm=True, use_parallel_residual=True, use_qkv_bias=False)
llama("stablelm-parallel-tied", 2, 96, 6, 3, 130, 401, "stablelm", use_parallel_residual=True,
      use_qkv_bias=True, tie_word_embeddings=True)

# ---- cohere, cohere2 (published: command-r-v01, command-r-plus, aya-23-8b, command-r7b) ----
llama("command-r", 40, 8192, 64, 64, 22528, 256000, "cohere", layer_norm_eps=1e-05, logit_scale=0.0625,
      rope_theta=8000000.0, max_position_embeddings=8192)
llama("command-r-plus", 64, 12288, 96, 8, 33792, 256000, "cohere", logit_scale=0.8333333333333334,
      use_qk_norm=True, rope_theta=75000000.0)
llama("aya-23-8b", 32, 4096, 32, 8, 14336, 256000, "cohere", use_qk_norm=False)
llama("cohere-biased-untied", 2, 96, 6, 3, 130, 401, "cohere", attention_bias=True, use_qk_norm=True,
      tie_word_embeddings=False)
llama("command-r7b", 32, 4096, 32, 8, 14336, 256000, "cohere2", logit_scale=0.25, sliding_window=4096,
      sliding_window_pattern=4, rope_theta=50000, layer_norm_eps=1e-05, max_position_embeddings=132096)
llama("cohere2-biased-untied", 6, 96, 6, 3, 130, 401, "cohere2", attention_bias=True,
      tie_word_embeddings=False, layer_types=["sliding_attention", "full_attention"] * 3)
case("cohere2-defaults", model_type="cohere2")

# ---- glm, glm4 (published: glm-4-9b, GLM-4-9B-0414, GLM-4-32B-0414) ----
llama("glm-4-9b", 40, 4096, 32, 2, 13696, 151552, "glm", head_dim=128, partial_rotary_factor=0.5,
      attention_bias=True, max_position_embeddings=131072)
llama("glm-no-bias-tied", 2, 64, 4, 2, 96, 301, "glm", head_dim=24, attention_bias=False,
      tie_word_embeddings=True, pad_token_id=0, eos_token_id=1)
case("glm-defaults", model_type="glm", num_hidden_layers=2)
llama("glm-4-9b-0414", 40, 4096, 32, 2, 13696, 151552, "glm4", head_dim=128, partial_rotary_factor=0.5,
      attention_bias=True, rms_norm_eps=1e-05)
llama("glm-4-32b-0414", 61, 6144, 48, 2, 23040, 151552, "glm4", head_dim=128, partial_rotary_factor=0.5,
      attention_bias=False)
llama("glm4-odd-tied", 2, 64, 4, 1, 97, 301, "glm4", head_dim=24, tie_word_embeddings=True,
      pad_token_id=0, eos_token_id=1)

# ---- nemotron_h (published: shapes as Megatron-Bridge's recipes have them, recipes/nemotronh/h100/) ----
def hybrid(name, layers, hidden, heads, kv, width, vocab, mamba, pattern, **more):
    case(name, model_type="nemotron_h", num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv,
         intermediate_size=width, vocab_size=vocab, mamba_num_heads=mamba[0], mamba_head_dim=mamba[1], ssm_state_size=mamba[2],
         hybrid_override_pattern=pattern, **more)


H8 = "M-M-M-M*-" + 3 * "M-M-M-M-M*-" + "M-M-M-M-M-"
hybrid("nemotron-h-8b", 52, 4096, 32, 8, 21504, 131072, (128, 64, 128), H8, n_groups=8, max_position_embeddings=8192)
hybrid("nemotron-h-47b", 98, 8192, 64, 8, 30720, 131072, (256, 64, 256),
       "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-", n_groups=8)
hybrid("nemotron-h-56b", 118, 8192, 64, 8, 32768, 131072, (256, 64, 256), "M-M-M-M*-" + 9 * "M-M-M-M-M*-" + "M-M-M-M-M-", n_groups=8)
hybrid("nemotron-nano-9b-v2", 56, 4480, 40, 8, 15680, 131072, (128, 80, 128), "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
       n_groups=8, head_dim=128, max_position_embeddings=131072)
hybrid("nemotron-nano-12b-v2", 62, 5120, 40, 8, 20480, 131072, (128, 80, 128), "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
       n_groups=8, head_dim=128, max_position_embeddings=131072)
hybrid("nemotron-h-odd-biased", 5, 96, 6, 2, 130, 401, (6, 20, 24), "-M*MM", n_groups=3, head_dim=24, conv_kernel=3, use_conv_bias=False,
       attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
case("nemotron-h-listed", model_type="nemotron_h", layers_block_type=["mamba", "mlp", "attention", "mlp"], hidden_size=64, vocab_size=301)

# ---- nemotron, arcee (published: Minitron-4B, Nemotron-4-15B's shape by default, AFM-4.5B) ----
llama("minitron-4b", 32, 3072, 24, 8, 9216, 256000, "nemotron", head_dim=128, partial_rotary_factor=0.5,
      norm_eps=1e-05, hidden_act="relu2", max_position_embeddings=4096, rope_theta=10000)
case("nemotron-defaults", model_type="nemotron", num_key_value_heads=8)
llama("nemotron-biased-tied", 2, 96, 6, 3, 130, 401, "nemotron", attention_bias=True, mlp_bias=True,
      tie_word_embeddings=True, hidden_act="gelu")
llama("afm-4.5b", 36, 2560, 20, 4, 18432, 128004, "arcee", head_dim=128, rms_norm_eps=1e-05,
      max_position_embeddings=65536, rope_theta=10000.0,
      rope_scaling={"rope_type": "yarn", "factor": 20.0, "original_max_position_embeddings": 4096,
                    "mscale": 1.0, "beta_fast": 32.0, "beta_slow": 1.0})
llama("arcee-biased-tied", 2, 96, 6, 3, 130, 401, "arcee", attention_bias=True, mlp_bias=True,
      tie_word_embeddings=True, bos_token_id=0, eos_token_id=1)
case("arcee-defaults", model_type="arcee")

# ---- jais2 (transformers 5.24.0; published: Jais-2-8B, its config's defaults) ----
case("jais2-defaults", model_type="jais2")
llama("jais2-no-bias-gqa", 2, 96, 6, 3, 130, 401, "jais2", attention_bias=False, mlp_bias=False, bos_token_id=0, eos_token_id=1)
llama("jais2-wide-heads-tied", 2, 96, 6, 2, 130, 401, "jais2", head_dim=24, tie_word_embeddings=True, hidden_act="gelu",
      bos_token_id=0, eos_token_id=1)

# ---- gptj (transformers 5.24.0; published: GPT-J 6B, its config's defaults) ----
case("gptj-defaults", model_type="gptj")
case("gptj-small", model_type="gptj", n_embd=96, n_head=6, n_layer=2, vocab_size=401, rotary_dim=8, n_inner=130, n_positions=64)
case("gptj-own-keys", model_type="gptj", hidden_size=64, num_attention_heads=2, num_hidden_layers=3, vocab_size=301, rotary_dim=32, max_position_embeddings=96, bos_token_id=0, eos_token_id=1)

# ---- seed_oss, exaone4, ernie4_5, hunyuan (published: the names say which) ----
llama("seed-oss-36b", 64, 5120, 80, 8, 27648, 155136, "seed_oss", head_dim=128, attention_bias=True,
      attention_out_bias=False, mlp_bias=False, rope_theta=10000000.0, attention_dropout=0.1,
      residual_dropout=0.1, max_position_embeddings=524288, rope_scaling={"rope_type": "default"})
llama("seed-oss-all-biases-tied", 2, 64, 4, 2, 96, 301, "seed_oss", head_dim=24, attention_out_bias=True,
      mlp_bias=True, tie_word_embeddings=True)
case("seed-oss-defaults", model_type="seed_oss", num_hidden_layers=1)
llama("exaone-4.0-32b", 64, 5120, 40, 8, 27392, 102400, "exaone4", head_dim=128, sliding_window=4096,
      sliding_window_pattern="LLLG", rope_theta=1000000,
      layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16, max_position_embeddings=131072)
llama("exaone-4.0-1.2b", 30, 2048, 32, 8, 4096, 102400, "exaone4", head_dim=64, sliding_window=None,
      tie_word_embeddings=True, layer_types=["full_attention"] * 30, max_position_embeddings=65536)
case("exaone4-defaults", model_type="exaone4", num_hidden_layers=3)
llama("ernie-4.5-0.3b", 18, 1024, 16, 2, 3072, 103424, "ernie4_5", head_dim=128, use_bias=False,
      rope_theta=500000.0, tie_word_embeddings=True, max_position_embeddings=131072)
llama("ernie4-5-biased-untied", 2, 64, 4, 2, 96, 301, "ernie4_5", head_dim=24, use_bias=True,
      tie_word_embeddings=False)
case("ernie4-5-defaults", model_type="ernie4_5")
llama("hunyuan-7b", 32, 4096, 32, 8, 14336, 128167, "hunyuan_v1_dense", head_dim=128,
      max_position_embeddings=32768, tie_word_embeddings=True, rope_theta=10000.0, eod_token_id=3,
      rope_scaling={"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                    "mscale_all_dim": 1.0, "type": "dynamic"})
llama("hunyuan-biased-untied", 2, 64, 4, 2, 96, 301, "hunyuan_v1_dense", head_dim=24, attention_bias=True)
llama("hunyuan-mqa", 2, 64, 4, 1, 96, 301, "hunyuan_v1_dense", head_dim=16, tie_word_embeddings=True)

# ---- mixtures of experts (published: the names say which; deepseek-v3 is R1 too, moonlight has no q_lora_rank) ----
def experts(name, model_type, layers, hidden, heads, kv, vocab, **kw):
    case(name, model_type=model_type, hidden_size=hidden, num_attention_heads=heads, num_hidden_layers=layers,
         num_key_value_heads=kv, vocab_size=vocab, **kw)


def mixtral(name, layers, hidden, heads, kv, ffn, vocab, **kw):
    experts(name, "mixtral", layers, hidden, heads, kv, vocab, intermediate_size=ffn, **kw)


mixtral("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2, rms_norm_eps=1e-05,
        rope_theta=1000000.0, max_position_embeddings=32768, sliding_window=None, output_router_logits=False,
        router_aux_loss_coef=0.02, attention_dropout=0.0)
mixtral("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, num_local_experts=8, num_experts_per_tok=2, rope_theta=1000000.0,
        max_position_embeddings=65536, sliding_window=None)
mixtral("mixtral-odd-tied", 3, 96, 6, 3, 130, 401, num_local_experts=5, num_experts_per_tok=3, head_dim=24,
        tie_word_embeddings=True, sliding_window=17)
case("mixtral-defaults", model_type="mixtral")


def qwen3_moe(name, layers, hidden, heads, kv, ffn, expert_ffn, vocab=151936, **kw):
    experts(name, "qwen3_moe", layers, hidden, heads, kv, vocab, intermediate_size=ffn, moe_intermediate_size=expert_ffn, **kw)


QWEN3_MOE = dict(head_dim=128, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1,
                 mlp_only_layers=[], max_position_embeddings=40960, rope_theta=1000000.0, use_sliding_window=False,
                 sliding_window=None, max_window_layers=48)
qwen3_moe("qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 768, **QWEN3_MOE)
qwen3_moe("qwen3-235b-a22b", 94, 4096, 64, 4, 12288, 1536, **QWEN3_MOE)
qwen3_moe("qwen3-moe-first-dense", 5, 96, 6, 3, 130, 50, 401, head_dim=24, num_experts=6, num_experts_per_tok=2,
          mlp_only_layers=[1, 0], attention_bias=True)
qwen3_moe("qwen3-moe-every-second-tied", 5, 96, 6, 3, 130, 50, 401, num_experts=6, num_experts_per_tok=1,
          decoder_sparse_step=2, tie_word_embeddings=True)
case("qwen3-moe-defaults", model_type="qwen3_moe")

case("deepseek-v3", model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], attention_bias=False,
     first_k_dense_replace=3, hidden_size=7168, intermediate_size=18432, kv_lora_rank=512, max_position_embeddings=163840,
     moe_intermediate_size=2048, moe_layer_freq=1, n_group=8, n_routed_experts=256, n_shared_experts=1, norm_topk_prob=True,
     num_attention_heads=128, num_experts_per_tok=8, num_hidden_layers=61, num_key_value_heads=128, num_nextn_predict_layers=1,
     q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, rope_theta=10000, routed_scaling_factor=2.5, topk_group=4,
     rope_scaling={"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                   "original_max_position_embeddings": 4096, "type": "yarn"}, v_head_dim=128, vocab_size=129280)
case("moonlight-16b-a3b", model_type="deepseek_v3", first_k_dense_replace=1, hidden_size=2048, intermediate_size=11264,
     kv_lora_rank=512, max_position_embeddings=8192, moe_intermediate_size=1408, n_group=1, n_routed_experts=64,
     n_shared_experts=2, num_attention_heads=16, num_experts_per_tok=6, num_hidden_layers=27, num_key_value_heads=16,
     q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, rope_theta=50000.0, topk_group=1, v_head_dim=128,
     vocab_size=163840)
case("deepseek-v3-biased-all-experts-tied", model_type="deepseek_v3", attention_bias=True, first_k_dense_replace=0,
     hidden_size=60, intermediate_size=100, kv_lora_rank=24, moe_intermediate_size=30, n_group=2, n_routed_experts=6,
     num_attention_heads=5, num_experts_per_tok=2, num_hidden_layers=2, num_key_value_heads=5, q_lora_rank=36,
     qk_nope_head_dim=10, qk_rope_head_dim=6, topk_group=1, v_head_dim=14, vocab_size=301, head_dim=6,
     tie_word_embeddings=True)

# (published: slime's and Megatron-Bridge's scripts of them; Kimi K2 is deepseek_v3 under a name of its own)
case("glm-4.5", model_type="glm4_moe", attention_bias=True, first_k_dense_replace=3, head_dim=128, hidden_size=5120,
     intermediate_size=12288, max_position_embeddings=131072, moe_intermediate_size=1536, n_group=1, n_routed_experts=160,
     n_shared_experts=1, norm_topk_prob=True, num_attention_heads=96, num_experts_per_tok=8, num_hidden_layers=92,
     num_key_value_heads=8, num_nextn_predict_layers=1, partial_rotary_factor=0.5, rope_theta=1000000, routed_scaling_factor=2.5,
     topk_group=1, use_qk_norm=True, vocab_size=151552)
case("glm-4.5-air", model_type="glm4_moe", attention_bias=True, first_k_dense_replace=1, head_dim=128, hidden_size=4096,
     intermediate_size=10944, max_position_embeddings=131072, moe_intermediate_size=1408, n_group=1, n_routed_experts=128,
     n_shared_experts=1, num_attention_heads=96, num_experts_per_tok=8, num_hidden_layers=46, num_key_value_heads=8,
     num_nextn_predict_layers=1, partial_rotary_factor=0.5, rope_theta=1000000, routed_scaling_factor=1.0, topk_group=1,
     use_qk_norm=False, vocab_size=151552)
case("glm4-moe-odd-tied", model_type="glm4_moe", first_k_dense_replace=0, hidden_size=60, intermediate_size=100, head_dim=20,
     moe_intermediate_size=30, n_group=2, n_routed_experts=6, n_shared_experts=2, num_attention_heads=6, num_experts_per_tok=2,
     num_hidden_layers=2, num_key_value_heads=3, topk_group=1, use_qk_norm=True, vocab_size=301, tie_word_embeddings=True)
case("kimi-k2", model_type="deepseek_v3", first_k_dense_replace=1, hidden_size=7168, intermediate_size=18432, kv_lora_rank=512,
     max_position_embeddings=131072, moe_intermediate_size=2048, n_group=1, n_routed_experts=384, n_shared_experts=1,
     norm_topk_prob=True, num_attention_heads=64, num_experts_per_tok=8, num_hidden_layers=61, num_key_value_heads=64,
     q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, rope_theta=50000.0, routed_scaling_factor=2.827, topk_group=1,
     rope_scaling={"beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                   "original_max_position_embeddings": 4096, "type": "yarn"}, v_head_dim=128, vocab_size=163840)
case("gpt-oss-20b", model_type="gpt_oss", attention_bias=True, head_dim=64, hidden_size=2880, intermediate_size=2880,
     experts_per_token=4, num_attention_heads=64, num_experts_per_tok=4, num_hidden_layers=24, num_key_value_heads=8,
     num_local_experts=32, rope_theta=150000, sliding_window=128, swiglu_limit=7.0, vocab_size=201088,
     layer_types=["sliding_attention", "full_attention"] * 12, initial_context_length=4096, max_position_embeddings=131072,
     rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                   "rope_type": "yarn", "truncate": False})
case("gpt-oss-120b", model_type="gpt_oss", num_hidden_layers=36, num_local_experts=128)
case("gpt-oss-no-bias-tied", model_type="gpt_oss", attention_bias=False, head_dim=24, hidden_size=96, intermediate_size=50,
     num_attention_heads=6, num_experts_per_tok=2, num_hidden_layers=3, num_key_value_heads=3, num_local_experts=5,
     sliding_window=17, vocab_size=401, tie_word_embeddings=True)


def llama4(name, layers, hidden, heads, kv, ffn, dense, vocab=202048, **kw):
    experts(name, "llama4_text", layers, hidden, heads, kv, vocab, intermediate_size=ffn, intermediate_size_mlp=dense, **kw)


LLAMA4 = dict(head_dim=128, num_experts_per_tok=1, rope_theta=500000.0, attention_chunk_size=8192, use_qk_norm=True,
              no_rope_layers=[])
llama4("llama-4-scout-text", 48, 5120, 40, 8, 8192, 16384, num_local_experts=16, interleave_moe_layer_step=1,
       max_position_embeddings=10485760, **LLAMA4)
llama4("llama-4-maverick-text", 48, 5120, 40, 8, 8192, 16384, num_local_experts=128, interleave_moe_layer_step=2,
       max_position_embeddings=1048576, **dict(LLAMA4, use_qk_norm=False))
llama4("llama4-listed-biased-tied", 4, 96, 6, 3, 50, 130, 401, head_dim=24, num_local_experts=5, num_experts_per_tok=2,
       moe_layers=[1, 3], attention_bias=True, tie_word_embeddings=True, no_rope_layers=[1, 0, 1, 0])

experts("granite-3.0-1b-a400m", "granitemoe", 24, 1024, 16, 8, 49155, intermediate_size=512, num_local_experts=32,
        num_experts_per_tok=8, tie_word_embeddings=True, attention_multiplier=0.015625, embedding_multiplier=12.0,
        logits_scaling=6.0, residual_multiplier=0.22, rope_theta=10000.0, max_position_embeddings=4096)
experts("granite-3.0-3b-a800m", "granitemoe", 32, 1536, 24, 8, 49155, intermediate_size=512, num_local_experts=40,
        num_experts_per_tok=8, tie_word_embeddings=True, attention_multiplier=0.015625, embedding_multiplier=12.0,
        logits_scaling=6.0, residual_multiplier=0.22, rope_theta=10000.0, max_position_embeddings=4096)
experts("granitemoe-biased-untied", "granitemoe", 2, 96, 6, 3, 401, intermediate_size=50, num_local_experts=5,
        num_experts_per_tok=2, attention_bias=True)

experts("olmoe-1b-7b", "olmoe", 16, 2048, 16, 16, 50304, intermediate_size=1024, num_experts=64, num_experts_per_tok=8,
        norm_topk_prob=False, clip_qkv=None, rope_theta=10000.0, max_position_embeddings=4096, attention_bias=False)
experts("olmoe-gqa-biased-tied", "olmoe", 2, 96, 6, 3, 401, intermediate_size=50, num_experts=6, num_experts_per_tok=2,
        attention_bias=True, tie_word_embeddings=True)
case("olmoe-defaults", model_type="olmoe")

# ---- head_dim in the config of a family whose config class has no such field: attention takes it all the same, or looks at none ----
for family in ("olmo2", "olmo3", "phi", "granite", "smollm3", "cohere", "cohere2"):
    llama(family + "-own-heads", 2, 96, 6, 3, 130, 401, family, head_dim=24, pad_token_id=None)
experts("granitemoe-own-heads", "granitemoe", 2, 96, 6, 3, 401, intermediate_size=50, num_local_experts=5, num_experts_per_tok=2, head_dim=24)
gpt2("gpt2-ignored-heads", n_embd=96, n_head=6, n_layer=2, vocab_size=401, head_dim=24)
case("opt-ignored-heads", model_type="opt", hidden_size=96, num_attention_heads=6, num_hidden_layers=2, ffn_dim=130, vocab_size=401,
     word_embed_proj_dim=96, head_dim=24)
case("bloom-ignored-heads", model_type="bloom", hidden_size=96, n_head=6, n_layer=2, vocab_size=401, head_dim=24)
case("mpt-ignored-heads", model_type="mpt", d_model=96, n_heads=6, n_layers=2, vocab_size=401, head_dim=24)


def parameters(config):
    cfg = AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(cfg)
    if config["model_type"] == "nemotron_h":
        return [(name, list(p.shape)) for name, p in model.named_parameters()], None, cfg.hybrid_override_pattern
    return [(name, list(p.shape)) for name, p in model.named_parameters()], getattr(cfg, "num_experts_per_tok", None)


BLOCK = re.compile(r"^(.*?\.(?:h|layers|blocks))\.(\d+)\.(.*)$")


def active(params, used):
    return sum(torch.Size(s).numel() // (s[0] if ".experts." in n else 1) * (used if ".experts." in n else 1) for n, s in params)


def split(params, used, pattern=None):
    """Before the blocks, a block, after; and the checks that there is no more to say."""
    found = [BLOCK.match(name) for name, _ in params]
    where = [i for i, m in enumerate(found) if m]
    first, last = where[0], where[-1] + 1
    assert where == list(range(first, last)), "blocks are not contiguous"
    blocks, prefix = int(found[last - 1][2]) + 1, found[first][1]
    of = [[[m[3]] + params[i][1] for i, m in enumerate(found) if m and int(m[2]) == b] for b in range(blocks)]
    if pattern:
        kinds = {letter: of[pattern.index(letter)] for letter in sorted(set(pattern))}
        assert all(of[b] == kinds[pattern[b]] for b in range(blocks))
        return {"blocks": blocks, "prefix": prefix, "total": sum(torch.Size(s).numel() for _, s in params), "before": [[n] + s for n, s in params[:first]],
                "pattern": pattern, "kinds": kinds, "after": [[n] + s for n, s in params[last:]]}
    dense = [b for b in range(blocks) if used and not any(".experts." in t[0] for t in of[b])]
    block = next(of[b] for b in range(blocks) if b not in dense)
    assert [(f"{prefix}.{b}.{n}", s) for b in range(blocks) for n, *s in of[b]] == params[first:last]
    assert all(of[b] == (of[dense[0]] if b in dense else block) for b in range(blocks))
    golden = {
        "blocks": blocks, "prefix": prefix,
        "total": sum(torch.Size(s).numel() for _, s in params),
        "before": [[n] + s for n, s in params[:first]],
        "block": block,
        "after": [[n] + s for n, s in params[last:]],
    }
    if used:
        golden["active"] = active(params, used)
    if dense:
        golden.update(dense=of[dense[0]], dense_layers=dense)
    return golden


def write(path, text):
    with open(os.path.join(HERE, path), "w") as f:
        f.write(text + "\n")


def main():
    """All cases; `make_tensors.py WORD` those with the word in their names, whose rows it adds or replaces."""
    os.makedirs(os.path.join(HERE, "configs"), exist_ok=True)
    rows, word = [], sys.argv[1] if len(sys.argv) > 1 else ""
    with open(os.path.join(HERE, "tensors.json")) as f:
        before = json.load(f) if word else {}
    for name, config in CASES.items():
        if word not in name:
            rows += [json.dumps(name) + ": " + json.dumps(before[name], separators=(",", ":"))] if name in before else []
            continue
        write(f"configs/{name}.json", json.dumps(config, indent=2))
        golden = split(*parameters(dict(config)))
        rows.append(json.dumps(name) + ": " + json.dumps(golden, separators=(",", ":")))
        print(f"{name:24} {golden['total']:>18,}", file=sys.stderr)
    write("tensors.json", "{\n" + ",\n".join(rows) + "\n}")


if __name__ == "__main__":
    main()
