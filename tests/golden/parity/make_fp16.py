#!/usr/bin/env python3
"""Trains the models of make_parity.py in fp16 under torch.amp.GradScaler and records losses and loss scales.

    python make_fp16.py [FOLDER]                   default: the script's own folder; under a minute

Writes MODEL/fp16/NAME.json, and gpt2/fp16/hot.safetensors, with which the runs named hot begin.  But for those named autocast weights, activations
and gradients are fp16, and AdamW updates fp32 copies of the weights; under torch.autocast(float16) weights are fp32, and a product's gradient
is fp16 before it is fp32.  Ranks are played one after the other: each has a part of the batch and gradients of its own, which are added in
fp16, or in fp32 as FSDP2 and DDP reduce them, and divided by the ranks.  README.md says what is compared.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoConfig

import make_parity as parity

QUIET, FORCED = 2.0**10, 2.0**24
GRAD_SCALER = 2.0**16       # GradScaler's own
HOT = 16.0                  # times the last norm's weight: gradients that leave fp16 at GradScaler's own first scale
# NAME: ranks, what gradients are added in, the first scale
RUNS = {
    "quiet": (1, torch.float16, QUIET),
    "forced-1": (1, torch.float16, FORCED),
    "forced-2": (2, torch.float16, FORCED),
    "forced-4": (4, torch.float16, FORCED),
    "forced-2-fp32": (2, torch.float32, FORCED),
    "autocast-2": (2, torch.float32, FORCED),
    "autocast-hot-2": (2, torch.float32, GRAD_SCALER),
}


def gradients(model, scaler, tokens, step, ranks, add_in, autocast):
    """The mean loss, and the average of what each rank's backward leaves."""
    each, sums, losses = parity.BATCH // ranks, None, []
    batch = parity.batch_of(tokens, step)
    for rank in range(ranks):
        model.zero_grad()
        ids, labels = (t[rank * each:(rank + 1) * each] for t in batch)
        with torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
            logits = model(input_ids=ids, use_cache=False).logits
        loss = F.cross_entropy(logits.float().reshape(-1, parity.VOCAB), labels.reshape(-1))
        scaler.scale(loss).backward()
        losses.append(loss.item())
        mine = [p.grad.to(add_in) for p in model.parameters()]
        sums = mine if sums is None else [a + b for a, b in zip(sums, mine)]
    return sum(losses) / ranks, [s / ranks for s in sums]


def train(folder, tokens, ranks, add_in, first, name):
    config = AutoConfig.from_pretrained(folder)
    autocast = name.startswith("autocast")
    init = load_file(os.path.join(folder, "fp16/hot.safetensors" if "hot" in name else "init.safetensors"))
    model = parity.build(config, init, torch.float32 if autocast else torch.float16)
    masters = [torch.nn.Parameter(init[n].float().clone()) for n, _ in model.named_parameters()]
    optimizer = torch.optim.AdamW(masters, lr=parity.LR, betas=parity.BETAS, eps=parity.EPS, weight_decay=parity.WEIGHT_DECAY,
                                  foreach=False, fused=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=first)
    out = {"loss": [], "loss_scale": [], "grad_norm": [], "skipped_steps": 0}
    for step in range(parity.STEPS):
        for group in optimizer.param_groups:
            group["lr"] = parity.lr_of(step - out["skipped_steps"])     # accelerate's and DeepSpeed's schedulers wait with the optimizer
        loss, grads = gradients(model, scaler, tokens, step, ranks, add_in, autocast)
        for m, g in zip(masters, grads):
            m.grad = g.float()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(masters, parity.CLIP).item()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        out["loss"].append(loss)
        out["loss_scale"].append(scale)
        out["grad_norm"].append(norm if scaler.get_scale() >= scale else None)
        out["skipped_steps"] += scaler.get_scale() < scale
        with torch.no_grad():
            for p, m in zip(model.parameters(), masters):
                p.copy_(m)
    return out


def main():
    here = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    parity.exactly()
    tokens = parity.make_tokens()
    for model in ("gpt2", "llama"):
        folder = os.path.join(here, model)
        os.makedirs(os.path.join(folder, "fp16"), exist_ok=True)
        with open(os.path.join(folder, "expected.json")) as f:
            fp64 = json.load(f)["loss"]
        hot = load_file(os.path.join(folder, "init.safetensors"))
        if model == "gpt2":
            hot["transformer.ln_f.weight"] *= HOT
            parity.save(os.path.join(folder, "fp16/hot.safetensors"), hot)
        for name, (ranks, add_in, first) in RUNS.items():
            if "hot" in name and model != "gpt2":
                continue
            run = train(folder, tokens, ranks, add_in, first, name)
            with open(os.path.join(folder, "fp16", name + ".json"), "w") as f:
                json.dump({"torch": torch.__version__, "ranks": ranks, **run}, f, indent=1)
                f.write("\n")
            far = f", from fp64 {parity.largest(run['loss'], fp64):.1e}" if name == "quiet" else ""
            print(f"{model} {name}: loss {run['loss'][0]:.6f} -> {run['loss'][-1]:.6f}{far}; {run['skipped_steps']} skipped, scale "
                  f"{run['loss_scale'][0]:g} -> {run['loss_scale'][-1]:g}")


main()
