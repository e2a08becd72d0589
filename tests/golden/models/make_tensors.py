#!/usr/bin/env python3
"""Golden truth for the tensor tables of model/transformer.h.

    python3 make_tensors.py          (torch 2.15.0, transformers 5.23.0; no network)

writes configs/<case>.json, a Hugging Face config each, and tensors.json: what
named_parameters() of that config's model lists, built on the meta device.  Per
case the tensors before the blocks, those of block 0, and those after; the script
checks that every other block equals block 0 with its index replaced.  A tensor is
[name, extents...]; in block 0 names are below the block.

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


def parameters(config):
    cfg = AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(cfg)
    return [(name, list(p.shape)) for name, p in model.named_parameters()]


BLOCK = re.compile(r"^(.*?\.(?:h|layers|blocks))\.(\d+)\.(.*)$")


def split(params):
    """Before the blocks, block 0, after; and the checks that there is no more to say."""
    found = [BLOCK.match(name) for name, _ in params]
    where = [i for i, m in enumerate(found) if m]
    first, last = where[0], where[-1] + 1
    assert where == list(range(first, last)), "blocks are not contiguous"
    blocks = int(found[last - 1][2]) + 1
    prefix, size = found[first][1], (last - first) // blocks
    block0 = [[found[i][3]] + params[i][1] for i in range(first, first + size)]
    for b in range(blocks):
        for j, (name, *shape) in enumerate(block0):
            assert params[first + b * size + j] == (f"{prefix}.{b}.{name}", shape)
    assert (last - first) == blocks * size
    return {
        "blocks": blocks, "prefix": prefix,
        "total": sum(torch.Size(s).numel() for _, s in params),
        "before": [[n] + s for n, s in params[:first]],
        "block": block0,
        "after": [[n] + s for n, s in params[last:]],
    }


def write(path, text):
    with open(os.path.join(HERE, path), "w") as f:
        f.write(text + "\n")


def main():
    os.makedirs(os.path.join(HERE, "configs"), exist_ok=True)
    rows = []
    for name, config in CASES.items():
        write(f"configs/{name}.json", json.dumps(config, indent=2))
        golden = split(parameters(dict(config)))
        rows.append(json.dumps(name) + ": " + json.dumps(golden, separators=(",", ":")))
        print(f"{name:24} {golden['total']:>18,}", file=sys.stderr)
    write("tensors.json", "{\n" + ",\n".join(rows) + "\n}")


if __name__ == "__main__":
    main()
