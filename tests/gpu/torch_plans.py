#!/usr/bin/env python3
"""The trainings that torch_steps.py measures on one GPU, one JSON object a line.

    python3 torch_plans.py h100 [LIST...] > plans.jsonl

Lists are timed, held (rank 0 of many) and beyond (mixtures of experts, float8, 4-bit weights); without one the first two.  `what` names a row, `plan` is dpx's.  On one GPU both time and memory count; on a cluster of many the collectives
are a fake process group's, which send nothing: memory counts alone.  `trace`: the
profiler's trace is kept; `history`: what the caching allocator was asked for."""
import json
import sys

GPT2 = {"model_type": "gpt2", "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "n_positions": 1024, "vocab_size": 50257, "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 8192, "rms_norm_eps": 1e-5}
MODELS = {
    "gpt2": dict(GPT2, n_layer=12, n_embd=768, n_head=12),
    "gpt2 with dropout": dict(GPT2, n_layer=12, n_embd=768, n_head=12, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1),
    "gpt2-xl": dict(GPT2, n_layer=48, n_embd=1600, n_head=25),
    "llama-3.2-1b": dict(LLAMA, num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=32,
                         num_key_value_heads=8, head_dim=64, vocab_size=128256, tie_word_embeddings=True),
    "llama-3.1-8b": dict(LLAMA, num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=False),
    "llama-3.1-70b": dict(LLAMA, num_hidden_layers=80, hidden_size=8192, intermediate_size=28672, num_attention_heads=64,
                          num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=False),
    "qwen3-0.6b": {"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024, "intermediate_size": 3072,
                   "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
                   "max_position_embeddings": 40960, "tie_word_embeddings": True},
    "gemma-2b": {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
                 "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000,
                 "tie_word_embeddings": True},
    "pythia-1.4b": {"model_type": "gpt_neox", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                    "intermediate_size": 8192, "vocab_size": 50304, "max_position_embeddings": 2048, "rotary_pct": 0.25,
                    "hidden_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": False},
    "bloom-560m": {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880,
                   "hidden_dropout": 0.0, "attention_dropout": 0.0},
    "opt-1.3b": {"model_type": "opt", "hidden_size": 2048, "num_hidden_layers": 24, "ffn_dim": 8192, "num_attention_heads": 32,
                 "vocab_size": 50272, "word_embed_proj_dim": 2048, "max_position_embeddings": 2048, "dropout": 0.0,
                 "attention_dropout": 0.0},
}
MODELS["mixtral of 2 layers"] = {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2,
                                 "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
                                 "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": None, "tie_word_embeddings": False}
MODELS["qwen3-30b-a3b of 4 layers"] = {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                                       "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
                                       "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True, "vocab_size": 151936,
                                       "max_position_embeddings": 40960, "tie_word_embeddings": False}
MODELS["llama-3.1-8b of 6 layers"] = dict(MODELS["llama-3.1-8b"], num_hidden_layers=6)
ALL_LINEAR = {"rank": 16, "alpha": 32, "dropout": 0.0, "target_modules": "all-linear"}
LORA = {"rank": 16, "alpha": 32, "dropout": 0.0, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}


def plan(model, strategy, batch, seq, gpus="1", keep=None, **keys):
    names = [model, strategy, "%d x %d" % (batch, seq)]
    names += [gpus + " GPUs"] if gpus != "1" else []
    names += ["%s %s" % (k, v) if not isinstance(v, (dict, list)) else " ".join("%s %s" % x for x in v.items() if x[0] != "target_modules")
              for k, v in keys.items() if k != "dropout"]
    p = {"dpx_plan": 1, "model": MODELS[model], "cluster": "%sx%s" % (gpus, sys.argv[1]), "strategy": strategy, "dialect": "torch",
         "framework_version": "2.11", "kernels": "torch-sdpa", "loss": "fp32", "seq": seq, "micro_batch": batch, "precision": "bf16"}
    if strategy == "fsdp":
        p.update(unit="block", reduce_dtype="fp32")
    row = {"what": ", ".join(names), "plan": dict(p, **keys)}
    return dict(row, **{keep: True}) if keep else row


def timed():
    full, fused = {"recompute": "full"}, {"optimizer_form": "fused"}
    compiled = {"kernels": "torch-compile", "loss": "compiled"}
    pure = {"ddp": {"model_dtype": "bf16"}}
    yield plan("gpt2", "ddp", 8, 1024, keep="trace")
    yield plan("gpt2", "ddp", 32, 1024, **fused)
    yield plan("gpt2", "ddp", 8, 1024, precision="fp32", keep="history")
    yield plan("gpt2", "ddp", 16, 1024, **pure)
    yield plan("gpt2", "fsdp", 16, 1024)
    yield plan("gpt2", "fsdp", 32, 1024, **full)
    yield plan("gpt2", "fsdp", 1, 1024)
    yield plan("gpt2", "fsdp", 8, 512, clip=1.0, accumulation=2)
    yield plan("gpt2 with dropout", "fsdp", 8, 1024)
    yield plan("gpt2-xl", "fsdp", 4, 1024)
    yield plan("gpt2-xl", "fsdp", 8, 1024, **full, **fused)
    yield plan("llama-3.2-1b", "fsdp", 2, 2048, keep="trace")
    yield plan("llama-3.2-1b", "fsdp", 4, 4096, **full)
    yield plan("llama-3.2-1b", "fsdp", 1, 8192, recompute="op")
    yield plan("llama-3.2-1b", "fsdp", 2, 4096, fsdp={"model_dtype": "bf16"}, **fused)
    yield plan("llama-3.2-1b", "ddp", 2, 2048)
    yield plan("llama-3.2-1b", "ddp", 1, 4096, **pure, clip=1.0, keep="history")
    yield plan("llama-3.2-1b", "fsdp", 1, 2048, accumulation=4)
    yield plan("llama-3.1-8b of 6 layers", "fsdp", 1, 8192, keep="history")
    yield plan("llama-3.1-8b of 6 layers", "fsdp", 2, 4096, **full, **fused, keep="history")
    yield plan("llama-3.1-8b", "ddp", 1, 4096, **pure, **full, train="lora", lora=LORA)
    yield plan("llama-3.1-8b", "ddp", 1, 2048, **pure, train="lora", lora=dict(LORA, target_modules="all-linear"))
    yield plan("qwen3-0.6b", "fsdp", 4, 2048)
    yield plan("gemma-2b", "fsdp", 2, 1024)
    yield plan("pythia-1.4b", "fsdp", 4, 2048)
    yield plan("bloom-560m", "fsdp", 4, 1024, kernels="torch-eager")
    yield plan("opt-1.3b", "fsdp", 4, 2048, **full)
    yield plan("llama-3.2-1b", "fsdp", 2, 4096, **compiled, keep="trace")
    yield plan("llama-3.2-1b", "fsdp", 1, 8192, **compiled, recompute="op", **fused)
    yield plan("llama-3.1-8b of 6 layers", "fsdp", 1, 8192, **compiled, keep="trace")


def held():
    full, compiled = {"recompute": "full"}, {"kernels": "torch-compile", "loss": "compiled"}
    yield plan("llama-3.1-8b", "fsdp", 1, 4096, "8")
    yield plan("llama-3.1-8b", "fsdp", 2, 8192, "8", **full)
    yield plan("llama-3.1-8b", "fsdp", 1, 8192, "8x8", recompute="op")
    yield plan("llama-3.1-8b", "fsdp", 1, 4096, "8x8", shard_group=8, **full)
    yield plan("llama-3.1-8b", "fsdp", 1, 8192, "4x8", fsdp={"reshard_after_forward": False}, **full)
    yield plan("llama-3.1-70b", "fsdp", 1, 4096, "16x8", **full)
    yield plan("gpt2-xl", "fsdp", 4, 1024, "8")
    yield plan("gpt2-xl", "fsdp", 2, 1024, "64x8", accumulation=2)
    yield plan("llama-3.2-1b", "fsdp", 4, 4096, "8", optimizer_form="fused")
    yield plan("gemma-2b", "fsdp", 2, 2048, "8", **full)
    yield plan("llama-3.1-8b", "fsdp", 1, 8192, "8", **compiled, recompute="op")


def beyond():
    full, compiled = {"recompute": "full"}, {"kernels": "torch-compile", "loss": "compiled"}
    pure, narrow = {"ddp": {"model_dtype": "bf16"}}, {"ddp": {"model_dtype": "bf16"}, "train": "lora"}
    yield plan("mixtral of 2 layers", "fsdp", 2, 2048)
    yield plan("qwen3-30b-a3b of 4 layers", "fsdp", 1, 4096, **full, keep="trace")
    yield plan("llama-3.1-8b of 6 layers", "fsdp", 1, 8192, **compiled, fp8="tensorwise", keep="trace")
    yield plan("llama-3.1-8b of 6 layers", "fsdp", 1, 8192, **compiled, fp8="rowwise")
    yield plan("llama-3.1-8b", "ddp", 1, 4096, **narrow, **full, lora=LORA)
    yield plan("llama-3.1-8b", "ddp", 1, 2048, **narrow, lora=ALL_LINEAR)
    yield plan("llama-3.1-8b", "ddp", 1, 4096, **narrow, **full, lora=ALL_LINEAR, base_dtype="nf4-double")
    yield plan("llama-3.1-8b", "ddp", 1, 2048, **narrow, lora=LORA, base_dtype="nf4")


if __name__ == "__main__":
    for named in sys.argv[2:] or ["timed", "held"]:
        for row in {"timed": timed, "held": held, "beyond": beyond}[named]():
            print(json.dumps(row))
