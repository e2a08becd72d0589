#!/usr/bin/env python3
"""Records how many parameters PEFT trains, and in which order it registers them.

    python record_counts.py -o counts.jsonl

Models are built by transformers on the meta device from the configs below, adapters by peft.get_peft_model(); nothing
has storage.  README.md says what is in a line.
"""
import argparse
import json

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict
from transformers import AutoConfig, AutoModelForCausalLM

LLAMA2 = dict(model_type="llama", hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
              num_key_value_heads=32, vocab_size=32000, tie_word_embeddings=False)
MODELS = {
    "llama-2-7b": LLAMA2,
    "llama-2-13b": dict(LLAMA2, hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40,
                        num_key_value_heads=40),
    "llama-2-70b": dict(LLAMA2, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64,
                        num_key_value_heads=8),
    "llama-65b": dict(LLAMA2, hidden_size=8192, intermediate_size=22016, num_hidden_layers=80, num_attention_heads=64,
                      num_key_value_heads=64),
    "llama-3.1-8b": dict(LLAMA2, intermediate_size=14336, num_key_value_heads=8, vocab_size=128256),
    "llama-3.2-1b": dict(LLAMA2, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_key_value_heads=8,
                         head_dim=64, vocab_size=128256, tie_word_embeddings=True),
    "mistral-7b": dict(LLAMA2, model_type="mistral", intermediate_size=14336, num_key_value_heads=8),
    "qwen2.5-7b": dict(model_type="qwen2", hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
                       num_key_value_heads=4, vocab_size=152064, tie_word_embeddings=False),
    "qwen3-0.6b": dict(model_type="qwen3", hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                       num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True),
    "gemma-2b": dict(model_type="gemma", hidden_size=2048, intermediate_size=16384, num_hidden_layers=18, num_attention_heads=8,
                     num_key_value_heads=1, head_dim=256, vocab_size=256000, tie_word_embeddings=True),
    "gemma2-2b": dict(model_type="gemma2", hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8,
                      num_key_value_heads=4, head_dim=256, vocab_size=256000, sliding_window=4096, tie_word_embeddings=True),
    "gpt2": dict(model_type="gpt2", n_layer=12, n_embd=768, n_head=12, vocab_size=50257, n_positions=1024),
    "gpt2-xl": dict(model_type="gpt2", n_layer=48, n_embd=1600, n_head=25, vocab_size=50257, n_positions=1024),
    "pythia-1b": dict(model_type="gpt_neox", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                      num_attention_heads=8, vocab_size=50304, tie_word_embeddings=False),
    "opt-125m": dict(model_type="opt", hidden_size=768, num_hidden_layers=12, ffn_dim=3072, num_attention_heads=12,
                     vocab_size=50272, word_embed_proj_dim=768, max_position_embeddings=2048),
    "opt-350m": dict(model_type="opt", hidden_size=1024, num_hidden_layers=24, ffn_dim=4096, num_attention_heads=16,
                     vocab_size=50272, word_embed_proj_dim=512, do_layer_norm_before=False, max_position_embeddings=2048),
    "bloom-560m": dict(model_type="bloom", hidden_size=1024, n_layer=24, n_head=16, vocab_size=250880),
    "falcon-7b": dict(model_type="falcon", hidden_size=4544, num_hidden_layers=32, num_attention_heads=71, vocab_size=65024,
                      multi_query=True, parallel_attn=True, bias=False, new_decoder_architecture=False, alibi=False),
    "mpt-7b": dict(model_type="mpt", d_model=4096, n_layers=32, n_heads=32, expansion_ratio=4, max_seq_len=2048, vocab_size=50432),
    "phi-2": dict(model_type="phi", hidden_size=2560, intermediate_size=10240, num_hidden_layers=32, num_attention_heads=32,
                  vocab_size=51200, tie_word_embeddings=False),
    "phi3-mini": dict(model_type="phi3", hidden_size=3072, intermediate_size=8192, num_hidden_layers=32, num_attention_heads=32,
                      num_key_value_heads=32, vocab_size=32064, tie_word_embeddings=False, pad_token_id=0),
    "stablelm-3b": dict(model_type="stablelm", hidden_size=2560, intermediate_size=6912, num_hidden_layers=32,
                        num_attention_heads=32, num_key_value_heads=32, vocab_size=50304, tie_word_embeddings=False),
    "starcoder2-3b": dict(model_type="starcoder2", hidden_size=3072, intermediate_size=12288, num_hidden_layers=30,
                          num_attention_heads=24, num_key_value_heads=2, vocab_size=49152, tie_word_embeddings=True),
    "olmo2-1b": dict(model_type="olmo2", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=16,
                     num_key_value_heads=16, vocab_size=100352, tie_word_embeddings=False),
    "cohere-small": dict(model_type="cohere", hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8,
                         num_key_value_heads=2, vocab_size=8192, tie_word_embeddings=True, use_qk_norm=True),
}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# (model, LoraConfig's arguments)
RECIPES = [
    ("llama-2-7b", {}), ("llama-2-7b", dict(r=64, target_modules="all-linear")), ("llama-2-7b", dict(r=16, target_modules=ALL)),
    ("llama-2-7b", dict(r=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])),
    ("llama-2-7b", dict(r=32, target_modules=ALL, modules_to_save=["embed_tokens", "lm_head"])),
    ("llama-2-13b", dict(r=64, target_modules="all-linear")), ("llama-2-70b", dict(r=64, target_modules="all-linear")),
    ("llama-65b", dict(r=64, target_modules="all-linear")),
    ("llama-3.1-8b", dict(r=16, target_modules=ALL)), ("llama-3.1-8b", dict(r=8, lora_alpha=16)),
    ("llama-3.1-8b", dict(r=256, target_modules="all-linear", modules_to_save=["lm_head"])),
    ("llama-3.1-8b", dict(r=8, target_modules=["down_proj"], modules_to_save=["norm"])),
    ("llama-3.1-8b", dict(r=8, target_modules=["self_attn.q_proj"], modules_to_save=["model.norm"])),
    ("llama-3.2-1b", {}), ("llama-3.2-1b", dict(r=16, target_modules="all-linear")),
    ("mistral-7b", {}), ("mistral-7b", dict(r=64, target_modules="all-linear", lora_dropout=0.1)),
    ("qwen2.5-7b", {}), ("qwen2.5-7b", dict(r=16, target_modules=ALL)),
    ("qwen3-0.6b", {}), ("qwen3-0.6b", dict(r=16, target_modules="all-linear")),
    ("gemma-2b", {}), ("gemma2-2b", dict(r=16, target_modules="all-linear")),
    ("gpt2", {}), ("gpt2", dict(r=16, target_modules=["c_attn", "c_proj"])), ("gpt2-xl", dict(r=8, target_modules="all-linear")),
    ("pythia-1b", {}), ("pythia-1b", dict(r=16, target_modules="all-linear", modules_to_save=["embed_in", "lm_head"])),
    ("opt-125m", {}), ("opt-125m", dict(r=16, target_modules=["fc1", "fc2"])),
    ("bloom-560m", {}), ("bloom-560m", dict(r=16, target_modules="all-linear")),
    ("falcon-7b", {}), ("falcon-7b", dict(r=64, target_modules="all-linear")),
    ("mpt-7b", {}), ("mpt-7b", dict(r=16, target_modules="all-linear")),
    ("phi-2", {}), ("phi-2", dict(r=16, target_modules=["dense", "fc2"])),
    ("phi3-mini", dict(r=16, target_modules=["qkv_proj", "o_proj"])), ("phi3-mini", dict(r=16, target_modules="all-linear")),
    ("stablelm-3b", {}), ("starcoder2-3b", dict(r=16, target_modules="all-linear")),
    ("starcoder2-3b", dict(r=8, target_modules=["c_fc"], modules_to_save=["input_layernorm"])),
    ("olmo2-1b", dict(r=16, target_modules="all-linear")), ("cohere-small", dict(r=4, target_modules="all-linear")),
    ("llama-3.2-1b", dict(r=8, target_modules=["q_proj", "lm_head"])), ("opt-125m", dict(r=4, target_modules=["fc1", "lm_head"])),
    # One text is a regular expression of a module's whole name.
    ("llama-3.1-8b", dict(r=8, target_modules=r"model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj")),
    ("qwen3-0.6b", dict(r=8, target_modules=r".*\.self_attn\.(?:q|v)_proj")), ("gpt2", dict(r=4, target_modules=r"transformer\.h\.\w+\.mlp\.c_fc")),
    # Copies of a tied head.
    ("llama-3.2-1b", dict(r=32, target_modules="all-linear", modules_to_save=["embed_tokens", "lm_head"])),
    ("qwen3-0.6b", dict(r=8, modules_to_save=["lm_head"])),
]


def build(config):
    fields = dict(config)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(fields.pop("model_type"), **fields))


def record(name, arguments):
    model = get_peft_model(build(MODELS[name]), LoraConfig(task_type="CAUSAL_LM", **arguments))
    parameters = list(model.named_parameters())
    saved = get_peft_model_state_dict(model, save_embedding_layers=False)
    return {"model": name, "lora": arguments,
            "trainable": sum(p.numel() for _, p in parameters if p.requires_grad),
            "total": sum(p.numel() for _, p in parameters),
            # In the order of named_parameters(): of what trains, its shape.
            "shapes": [list(p.shape) for _, p in parameters if p.requires_grad],
            # Of all, one letter each: is it trained or frozen?
            "order": "".join("t" if p.requires_grad else "f" for _, p in parameters),
            "saved": sorted(saved)}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-o", default="counts.jsonl")
    a.add_argument("--from", type=int, default=0, dest="first", help="only recipes from this one on, behind what the file has")
    a = a.parse_args()
    with open(a.o, "a" if a.first else "w") as out:
        head = {"peft": peft.__version__, "transformers": transformers.__version__, "torch": torch.__version__, "models": MODELS}
        if not a.first:
            print(json.dumps(head), file=out)
        for name, arguments in RECIPES[a.first:]:
            case = record(name, arguments)
            # Blocks are alike: a count of many lines, the rest by its beginning.
            case["shapes"], case["nshapes"] = case["shapes"][:40], len(case["shapes"])
            case["saved"], case["nsaved"] = case["saved"][:12], len(case["saved"])
            print(json.dumps(case), file=out)


main()
