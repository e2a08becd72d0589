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


def train(clip, *args, **more):
    parity.CLIP = clip
    return parity.train(*args, **more)


# ---- what bf16 costs ----

def train_bf16(clip, config, init, tokens, parts):
    """As train(): weights, activations and gradients in bf16, the latter summed in bf16 over `parts` parts of the batch;
    the optimizer has an fp32 copy of the weights."""
    master = {n: init[n].float().clone().requires_grad_() for n in init}
    model = parity.build(config, init, torch.bfloat16)
    optimizer = torch.optim.AdamW(master.values(), lr=parity.LR, betas=parity.BETAS, eps=parity.EPS,
                                  weight_decay=parity.WEIGHT_DECAY, foreach=False, fused=False)
    run = {"losses": []}
    for step in range(parity.STEPS):
        for group in optimizer.param_groups:
            group["lr"] = parity.lr_of(step)
        model.zero_grad()
        loss = 0
        for ids, labels in zip(*(t.chunk(parts) for t in parity.batch_of(tokens, step))):
            part = parity.loss_of(model, ids, labels, False) / parts
            part.backward()
            loss += part.item()
        for name, p in model.named_parameters():
            master[name].grad = p.grad.float()
        if step == 0:
            run["grads"] = {n: p.grad.clone() for n, p in master.items()}
        torch.nn.utils.clip_grad_norm_(master.values(), clip)
        optimizer.step()
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(master[name])
        run["losses"].append(loss)
    run["weights"] = {n: p.detach() for n, p in master.items()}
    return run


def farthest(runs, kind, truth):
    """Per tensor: the largest distance of any run."""
    far = [parity.distance(run[kind], truth[kind]) for run in runs]
    return {name: max(f[name] for f in far) for name in far[0]}


def bf16_from_fp64(free, clipped, *args):
    """By autocast, and with everything in bf16 and the batch in 1, 8 and 48 parts."""
    runs = {}
    for clip, truth in ((math.inf, free), (CLIP, clipped)):
        runs[clip] = [train(clip, *args, torch.float32, bf16=True)] + [train_bf16(clip, *args, parts) for parts in (1, 8, 48)]
    return {
        "loss": max(parity.largest(run["losses"], truth["losses"])
                    for clip, truth in ((math.inf, free), (CLIP, clipped)) for run in runs[clip]),
        "grads": farthest(runs[math.inf], "grads", free),
    }


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
        "bf16_from_fp64": bf16_from_fp64(free, clipped, config, init, tokens),
        "weights_moved": {"final": parity.distance(init, free["weights"]), "final-clipped": parity.distance(init, clipped["weights"])},
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
