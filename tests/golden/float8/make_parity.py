#!/usr/bin/env python3
"""Trains a small Llama whose linear layers are torchao's float8 for 20 steps under FSDP2, on two ranks (gloo) and CPUs.

    python make_parity.py [NAME ...]        torch 2.15.0, torchao 0.18.0, transformers 5.23.0; about two minutes

Products are emulated (Float8LinearConfig.emulate): operands cast as on GPUs, their numbers multiplied in fp32.  Settings, tokens and first
weights are made as ../parity/make_parity.py makes them.  Writes parity/init.safetensors, and of each run parity/NAME.json (losses, norms; how far
PyTorch is from itself) and parity/NAME.safetensors (the first step's gradients before clipping).  README.md says what is compared.
"""
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
FOLDER = os.path.join(HERE, "parity")

import torch
import torch.distributed as dist
import torch.multiprocessing
import torchao
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

from float8 import convert

spec = importlib.util.spec_from_file_location("parity", os.path.join(HERE, "..", "parity", "make_parity.py"))
parity = importlib.util.module_from_spec(spec)
spec.loader.exec_module(parity)

RANKS = 2
EACH = parity.BATCH // RANKS
GATHERS = {"enable_fsdp_float8_all_gather": True}

# recipe; dtype of parameters as they are used; keys of the plan's fsdp
RUNS = {
    "fp32": ("tensorwise", torch.float32, {}),
    "bf16": ("tensorwise", torch.bfloat16, {}),
    "gathered": ("tensorwise", torch.bfloat16, GATHERS),
    "head": ("tensorwise", torch.bfloat16, GATHERS),
    "rowwise-fp32": ("rowwise", torch.float32, {}),
    "rowwise": ("rowwise", torch.bfloat16, {}),
    "gw-hp-fp32": ("rowwise_with_gw_hp", torch.float32, {}),
}
FILTERS = {"head": ["k_proj"]}      # the head in float8 as well, keys not
MANNERS = "as_is", "shaken", "no_float8", "fp32"


def shaken(weights):
    """Each weight moved by up to a rounding of fp32: what that does to a run is how near another one can be."""
    generator = torch.Generator().manual_seed(1)
    return {n: w * (1 + 2.0**-24 * (2 * torch.rand(w.shape, generator=generator) - 1)) for n, w in weights.items()}


def build(name, init, manner):
    recipe, used, fsdp = RUNS[name]
    used = torch.float32 if manner == "fp32" else used
    model = parity.build(AutoConfig.from_pretrained(FOLDER), init, torch.float32)
    plan = {"fp8": recipe, "fsdp": fsdp} | ({"fp8_filter": FILTERS[name]} if name in FILTERS else {})
    if manner != "no_float8":
        model = convert(model, plan, emulate=True)
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(param_dtype=used, reduce_dtype=torch.float32) if used == torch.bfloat16 else MixedPrecisionPolicy()
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    for module in (model, *model.model.layers):         # gloo has no averages
        module.set_force_sum_reduction_for_comms(True)
    return model


def step(model, optimizer, tokens, s, rank):
    for group in optimizer.param_groups:
        group["lr"] = parity.lr_of(s)
    optimizer.zero_grad()
    ids, labels = (t[rank * EACH:(rank + 1) * EACH] for t in parity.batch_of(tokens, s))
    loss = parity.loss_of(model, ids, labels, False)
    loss.backward()
    return loss.detach()


def train(rank, name, manner, tokens):
    init = load_file(os.path.join(FOLDER, "init.safetensors"))
    model = build(name, shaken(init) if manner == "shaken" else init, manner)
    optimizer = torch.optim.AdamW(model.parameters(), lr=parity.LR, betas=parity.BETAS, eps=parity.EPS, weight_decay=parity.WEIGHT_DECAY,
                                  foreach=False, fused=False)
    losses, norms, grads = [], [], {}
    for s in range(parity.STEPS):
        loss = step(model, optimizer, tokens, s, rank)
        if s == 0:
            grads = {n: p.grad.full_tensor().detach().clone() for n, p in model.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), parity.CLIP).full_tensor().item())
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(loss.item() / RANKS)
    return {"losses": losses, "grad_norms": norms, "grads": grads}


def beside(got, other):
    far = parity.distance(got["grads"], other["grads"])
    return {"loss": parity.largest(got["losses"], other["losses"]), "grads": far, "most": max(far.values())}


def record(name, runs):
    got = runs["as_is"]
    far = {manner: beside(got, other) for manner, other in runs.items() if manner != "as_is"}
    parity.save(os.path.join(FOLDER, name + ".safetensors"), got["grads"])
    with open(os.path.join(FOLDER, name + ".json"), "w") as f:
        json.dump({"versions": {"torch": torch.__version__, "torchao": torchao.__version__}, "clip": parity.CLIP, "loss": got["losses"],
                   "grad_norm": got["grad_norms"], "from": far}, f, indent=1)
        f.write("\n")
    for manner, d in far.items():
        print(f"{name}: from {manner}: loss {d['loss']:.1e}, grads {min(d['grads'].values()):.1e} to {d['most']:.1e}", flush=True)


def work(rank, names, at):
    parity.exactly()
    dist.init_process_group("gloo", init_method="file://" + at, rank=rank, world_size=RANKS)
    tokens = parity.make_tokens()                       # of 97; the model has 112, a multiple of 16
    parity.VOCAB = 112
    for name in names:
        manners = [m for m in MANNERS if m != "fp32" or RUNS[name][1] != torch.float32]
        runs = {manner: train(rank, name, manner, tokens) for manner in manners}
        if rank == 0:
            record(name, runs)
    dist.destroy_process_group()


def main():
    parity.exactly()
    init = parity.initial_values(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(FOLDER)))
    parity.save(os.path.join(FOLDER, "init.safetensors"), init)
    at = os.path.join("/tmp", "make_float8_parity-%d" % os.getpid())
    torch.multiprocessing.spawn(work, (sys.argv[1:] or list(RUNS), at), RANKS)
    if os.path.exists(at):
        os.remove(at)


if __name__ == "__main__":
    main()
