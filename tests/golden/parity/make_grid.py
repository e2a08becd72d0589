#!/usr/bin/env python3
"""Trains the tiny models of the grid's plans for three steps with PyTorch, as make_parity.py does.

    python make_grid.py [FOLDER]                   default: grid, beside the script

Reads MODEL/config.json; writes tokens.bin, and for each model init.safetensors, grads.safetensors,
final.safetensors, final-clipped.safetensors and expected.json.  README.md says what they hold.
"""
import json
import math
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import make_parity as parity

MODELS = "gpt2", "gpt2-untied", "llama"
CLIP = 0.3

parity.SEQ, parity.BATCH, parity.STEPS, parity.VOCAB = 24, 48, 3, 37
parity.LR, parity.MIN_LR, parity.WARMUP = 3e-3, 1e-3, 1


def train(clip, *args):
    parity.CLIP = clip
    return parity.train(*args)


def record(folder, tokens):
    config = AutoConfig.from_pretrained(folder)
    init = parity.initial_values(AutoModelForCausalLM.from_config(config), 0.25)
    free = train(math.inf, config, init, tokens, torch.float64)
    clipped = train(CLIP, config, init, tokens, torch.float64)
    fp32 = train(CLIP, config, init, tokens, torch.float32)
    parity.check_fp64(config, init, tokens, free["grads"], 2e-6)
    result = {
        "versions": {"torch": parity.torch.__version__, "transformers": parity.transformers.__version__},
        "clip": CLIP, "grad_norm": clipped["grad_norms"], "loss": free["losses"], "loss_clipped": clipped["losses"],
        "fp32_from_fp64": {
            "loss": parity.largest(fp32["losses"], clipped["losses"]),
            "grads": max(parity.distance(fp32["grads"], clipped["grads"]).values()),
            "weights": max(parity.distance(fp32["weights"], clipped["weights"]).values()),
        },
        "weights_moved": min(parity.distance(clipped["weights"], init).values()),
    }
    for name, tensors in (("init", init), ("grads", free["grads"]), ("final", free["weights"]),
                          ("final-clipped", clipped["weights"])):
        parity.save(os.path.join(folder, name + ".safetensors"), tensors)
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(folder, json.dumps(result))


def main():
    here = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "grid")
    parity.exactly()
    tokens = parity.make_tokens()
    parity.write_tokens(os.path.join(here, "tokens.bin"), tokens)
    for model in MODELS:
        record(os.path.join(here, model), tokens)


main()
