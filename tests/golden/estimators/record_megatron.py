#!/usr/bin/env python3
"""Records Megatron-LM's own theoretical memory report, as golden numbers for dpx.

    python record_megatron.py MEGATRON_LM > megatron.txt
    python record_megatron.py MEGATRON_LM mixtures > megatron_mixtures.txt

MEGATRON_LM is a clone of NVIDIA/Megatron-LM (recorded at d98e8a64), or megatron/training/theoretical_memory_usage.py itself, which is run
as it is but for two helpers that it imports.  Every line is one set of inputs and what the report returns of it:

    swiglu rms untied distributed sp_selective  h f layers heads groups channels vocab s b tp pp vp dp micro_batches  weights activations

of mixtures (and of latent attention, kv_rank > 0) with  experts moe_f shared dense etp ep biased q_rank kv_rank qk rope v  before the results,
dense: so many first layers without experts.  vocab is padded already; vp 1: no virtual stages; the two results are bytes, in hexadecimal floats, so that a reader gets the same bits.
The inputs are published models on published grids, and pseudo-random ones from a fixed seed.
"""
import os
import random
import sys
import types

path = sys.argv[1]
if os.path.isdir(path):
    path = os.path.join(path, "megatron/training/theoretical_memory_usage.py")
source = open(path).read().replace("from .utils import is_hybrid_model, print_rank_0", "")
report = types.ModuleType("theoretical_memory_usage")
report.is_hybrid_model = lambda args: False
report.print_rank_0 = lambda text: None
exec(compile(source, path, "exec"), report.__dict__)

MB = 1024 * 1024
FLAGS = "swiglu rms untied distributed sp_selective".split()
SIZES = "h f layers heads groups channels vocab s b tp pp vp dp micro_batches".split()
MORE = "experts moe_f shared dense etp ep biased q_rank kv_rank qk rope v".split()


def returns(x):
    args = types.SimpleNamespace(
        swiglu=bool(x["swiglu"]), normalization="RMSNorm" if x["rms"] else "LayerNorm",
        untie_embeddings_and_output_weights=bool(x["untied"]), use_distributed_optimizer=bool(x["distributed"]),
        sequence_parallel=bool(x["sp_selective"]), recompute_granularity="selective" if x["sp_selective"] else None,
        hidden_size=x["h"], ffn_hidden_size=x["f"], num_layers=x["layers"], num_attention_heads=x["heads"],
        num_query_groups=x["groups"], group_query_attention=x["groups"] != x["heads"], kv_channels=x["channels"],
        padded_vocab_size=x["vocab"], seq_length=x["s"], micro_batch_size=x["b"], tensor_model_parallel_size=x["tp"],
        pipeline_model_parallel_size=x["pp"], virtual_pipeline_model_parallel_size=x["vp"] if x["vp"] > 1 else None,
        data_parallel_size=x["dp"], world_size=x["tp"] * x["pp"] * x["dp"], num_experts=None,
        moe_shared_expert_intermediate_size=None, moe_layer_freq=1, mtp_num_layers=None, multi_latent_attention=False,
        moe_latent_size=None, add_bias_linear=True, expert_tensor_parallel_size=x["tp"], expert_model_parallel_size=1)
    if "experts" in x:
        vars(args).update(
            num_experts=x["experts"], moe_ffn_hidden_size=x["moe_f"], moe_shared_expert_intermediate_size=x["shared"] or None, moe_router_topk=2,
            moe_layer_freq=[0] * x["dense"] + [1] * (x["layers"] - x["dense"]), expert_tensor_parallel_size=x["etp"],
            expert_model_parallel_size=x["ep"], add_bias_linear=bool(x["biased"]), multi_latent_attention=x["kv_rank"] > 0,
            q_lora_rank=x["q_rank"] or None, kv_lora_rank=x["kv_rank"], qk_head_dim=x["qk"], qk_pos_emb_head_dim=x["rope"], v_head_dim=x["v"])
    silent, sys.stdout = sys.stdout, open(os.devnull, "w")
    weights, activations, _ = report.report_theoretical_memory(args, num_microbatches=x["micro_batches"])
    sys.stdout.close()
    sys.stdout = silent
    return weights * MB, activations * MB           # a power of two: nothing is rounded


def line(*values):
    x = dict(zip(FLAGS + SIZES + MORE, values))
    weights, activations = returns(x)
    print(*values, weights.hex(), activations.hex())


def dense():
    line(0, 0, 0, 0, 1, 12288, 49152, 96, 96, 96, 128, 51200, 2048, 1, 8, 8, 3, 1, 64)      # GPT-3 175B
    line(0, 0, 0, 0, 0, 12288, 49152, 96, 96, 96, 128, 51200, 2048, 1, 8, 8, 3, 1, 64)
    line(0, 0, 0, 1, 1, 6144, 24576, 48, 64, 64, 96, 51200, 2048, 4, 8, 1, 1, 1, 1)         # 22B
    line(0, 0, 0, 1, 1, 20480, 81920, 105, 128, 128, 160, 51200, 2048, 1, 8, 35, 3, 9, 280)     # 530B
    line(1, 1, 1, 1, 1, 8192, 28672, 80, 64, 8, 128, 129024, 8192, 1, 8, 4, 1, 2, 16)       # Llama-3 70B
    line(1, 1, 1, 1, 1, 16384, 53248, 126, 128, 8, 128, 129024, 8192, 1, 8, 9, 7, 8, 126)   # Llama-3.1 405B
    line(1, 1, 1, 1, 0, 4096, 14336, 32, 32, 8, 128, 128256, 8192, 1, 1, 1, 1, 64, 2)       # Llama-3 8B
    rng = random.Random(26)
    for _ in range(200):
        heads = rng.choice([8, 16, 40, 64])
        channels = rng.choice([64, 80, 96, 128])
        tp = rng.choice([1, 2, 3, 8])
        line(*(rng.randrange(2) for _ in range(4)), tp > 1 and rng.randrange(2) or 0, heads * rng.choice([64, 96, 128]), rng.randrange(1, 60000),
             rng.randrange(1, 130), heads, heads // rng.choice([1, 4, 8]), channels, 128 * tp * rng.randrange(100, 2000), rng.randrange(1, 40000),
             rng.randrange(1, 9), tp, rng.choice([1, 1, 2, 3, 8, 35]), rng.choice([1, 1, 2, 7]), rng.randrange(1, 300), rng.randrange(1, 100))


def mixtures():
    line(1, 1, 1, 1, 0, 7168, 18432, 61, 128, 128, 56, 129280, 4096, 1, 1, 16, 1, 128, 480, 256, 2048, 2048, 3, 1, 64, 0, 1536, 512, 128, 64, 128)     # DeepSeek-V3
    line(1, 1, 1, 1, 1, 7168, 18432, 61, 128, 128, 56, 130048, 4096, 1, 8, 16, 1, 32, 480, 256, 2048, 2048, 3, 1, 32, 0, 1536, 512, 128, 64, 128)
    line(1, 1, 1, 1, 0, 2048, 11264, 27, 16, 16, 128, 163840, 8192, 1, 1, 1, 1, 8, 4, 64, 1408, 2816, 1, 1, 8, 0, 0, 512, 128, 64, 128)              # Moonlight
    line(1, 1, 1, 1, 1, 4096, 14336, 32, 32, 8, 128, 32000, 4096, 1, 2, 4, 8, 8, 64, 8, 14336, 0, 0, 2, 4, 0, 0, 0, 0, 0, 0)                         # Mixtral 8x7B
    line(1, 1, 1, 1, 0, 4096, 12288, 94, 64, 4, 128, 151936, 4096, 1, 1, 2, 1, 64, 64, 128, 1536, 0, 0, 1, 32, 0, 0, 0, 0, 0, 0)                     # Qwen3 235B
    rng = random.Random(26)
    for _ in range(150):
        heads, channels, tp, pp = rng.choice([8, 16, 40, 64]), rng.choice([64, 80, 96, 128]), rng.choice([1, 2, 3, 8]), rng.choice([1, 1, 2, 3, 8])
        layers, latent, ep, etp = rng.randrange(2, 130), rng.randrange(2), rng.choice([1, 2, 4, 8]), rng.choice([1, tp])
        line(*(rng.randrange(2) for _ in range(4)), tp > 1 and rng.randrange(2) or 0, heads * rng.choice([64, 96, 128]), rng.randrange(1, 60000), layers, heads,
             heads if latent else heads // rng.choice([1, 4, 8]), channels, 128 * tp * rng.randrange(100, 2000), rng.randrange(1, 40000), rng.randrange(1, 9), tp, pp,
             rng.choice([1, 1, 2, 7]), ep * etp * rng.randrange(1, 40), rng.randrange(1, 100), ep * rng.randrange(1, 64), rng.randrange(1, 9000),
             rng.choice([0, 2048]), rng.randrange(layers), etp, ep, rng.randrange(2), *((rng.choice([0, 1536]), 512, 128, 64, rng.choice([64, 128])) if latent
                                                                                       else (0, 0, 0, 0, 0)))


mixtures() if "mixtures" in sys.argv[2:] else dense()
