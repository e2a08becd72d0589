#!/usr/bin/env python3
"""Writes which layers DeepSpeed's PipelineModule gives each stage, by its own functions (deepspeed/runtime/utils.py).

    python record_deepspeed_parts.py > deepspeed_parts.csv

A line is model,method,stages and the first layer of each stage, with the number of layers at the end.  Layers are the token embedding, learned
positions where there are any, the blocks, the final norm and the head; `parameters` balances their numbers of parameters.
"""
import os

os.environ["DS_ACCELERATOR"] = "cpu"
from deepspeed.runtime.utils import partition_balanced, partition_uniform


def gpt2(hidden, blocks):
    block = 12 * hidden * hidden + 13 * hidden
    return [50257 * hidden, 1024 * hidden] + [block] * blocks + [2 * hidden, 50257 * hidden]


def llama(hidden, blocks, kv, ffn, vocab):
    block = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn + 2 * hidden
    return [vocab * hidden] + [block] * blocks + [hidden, vocab * hidden]


MODELS = {"gpt2": gpt2(768, 12), "gpt2-xl": gpt2(1600, 48), "llama-3.1-8b": llama(4096, 32, 1024, 14336, 128256),
          "llama-3.1-70b": llama(8192, 80, 1024, 28672, 128256), "llama-3.1-405b": llama(16384, 126, 1024, 53248, 128256)}

for name, weights in MODELS.items():
    lead = 2 if name.startswith("gpt2") else 1
    blocks = [int(lead <= i < len(weights) - 2) for i in range(len(weights))]
    for stages in (2, 3, 4, 5, 8, 16):
        for method, parts in (("parameters", partition_balanced(weights, stages)), ("uniform", partition_uniform(len(weights), stages)),
                              ("type:block", partition_balanced(blocks, stages))):
            print("%s,%s,%d,%s" % (name, method, stages, " ".join(str(int(p)) for p in parts)))
