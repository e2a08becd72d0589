#!/usr/bin/env python3
"""Trains the models of make_parity.py in fp32 on two ranks (gloo) under DDP's communication hooks.

    python make_hooks.py [FOLDER [HOOK...]]        default: the script's own folder, all hooks

Writes MODEL/hook-NAME.json (losses of each step, averaged over the ranks) and MODEL/hook-NAME.safetensors (a step's gradients as
the hook left them, before clipping: the first step's, of powerSGD_hook the fifth's).  README.md says what is compared.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from safetensors.torch import load_file
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig

import make_parity as parity

RANKS = 2
EACH = parity.BATCH // RANKS
GRADS_STEP = 5                  # of powerSGD_hook, counted from 1


# PowerSGDState's arguments; buckets of 50 KiB, of which the models have four and more.
POWERSGD = {
    "powersgd": {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2},
    "powersgd4": {"matrix_approximation_rank": 4, "start_powerSGD_iter": 3, "min_compression_rate": 1},
    "powersgd-cold": {"matrix_approximation_rank": 3, "start_powerSGD_iter": 2, "min_compression_rate": 1, "warm_start": False,
                      "use_error_feedback": False},
}
BUCKET_MB = 0.05


def powersgd(state, bucket):
    """One bucket after the other, as torch.cuda.synchronize() has it on a GPU: gloo's two threads would wait for each other."""
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


def hook(name):
    """The state and the hook.  bf16_compress_hook under another name: where PyTorch reads that one it looks for NCCL."""
    if name in POWERSGD:
        return powerSGD_hook.PowerSGDState(process_group=None, **POWERSGD[name]), powersgd
    return None, lambda state, bucket: getattr(default_hooks, name + "_compress_hook")(state, bucket)


def shaken(weights):
    """Each weight moved by up to a rounding of fp32: what that does to a run is how near another one can be."""
    generator = torch.Generator().manual_seed(1)
    return {n: w * (1 + 2.0**-24 * (2 * torch.rand(w.shape, generator=generator) - 1)) for n, w in weights.items()}


def step(ddp, optimizer, tokens, s, rank):
    for group in optimizer.param_groups:
        group["lr"] = parity.lr_of(s)
    optimizer.zero_grad()
    ids, labels = (t[rank * EACH:(rank + 1) * EACH] for t in parity.batch_of(tokens, s))
    loss = parity.loss_of(ddp, ids, labels, False)
    loss.backward()
    return loss.detach()


def train(rank, folder, name, at, shake):
    parity.exactly()
    dist.init_process_group("gloo", init_method="file://" + at, rank=rank, world_size=RANKS)
    tokens = parity.make_tokens()
    init = load_file(os.path.join(folder, "init.safetensors"))
    model = parity.build(AutoConfig.from_pretrained(folder), shaken(init) if shake else init, torch.float32)
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB if name in POWERSGD else None)
    if name != "none":
        ddp.register_comm_hook(*hook(name))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=parity.LR, betas=parity.BETAS, eps=parity.EPS, weight_decay=parity.WEIGHT_DECAY,
                                  foreach=False, fused=False)
    losses = []
    for s in range(parity.STEPS):
        loss = step(ddp, optimizer, tokens, s, rank)
        if s == (GRADS_STEP - 1 if name in POWERSGD else 0):
            grads = {n: p.grad.detach().clone() for n, p in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), parity.CLIP)
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(loss.item() / RANKS)
    if rank == 0:
        torch.save({"losses": losses, "grads": grads}, at + ".result")
    dist.destroy_process_group()


def run(folder, name, shake=False):
    at = os.path.join("/tmp", "make_hooks-%d-%s" % (os.getpid(), name))
    torch.multiprocessing.spawn(train, (folder, name, at, shake), RANKS)
    result = torch.load(at + ".result")
    for path in (at, at + ".result"):
        if os.path.exists(path):
            os.remove(path)
    return result


def norm_of(grads):
    return sum(g.double().pow(2).sum().item() for g in grads.values()) ** 0.5


def write(folder, name, got, more):
    parity.save(os.path.join(folder, "hook-%s.safetensors" % name), got["grads"])
    with open(os.path.join(folder, "hook-%s.json" % name), "w") as f:
        json.dump({"versions": {"torch": torch.__version__}, "clip": parity.CLIP, "loss": got["losses"],
                   "grad_norm": [norm_of(got["grads"])]} | more, f, indent=1)
        f.write("\n")


def beside(got, other):
    return {"loss": parity.largest(got["losses"], other["losses"]), "grads": parity.distance(got["grads"], other["grads"])}


def say(model, name, what, d):
    print(f"{model} {name}: from {what}: loss {d['loss']:.1e}, grads {min(d['grads'].values()):.1e} to {max(d['grads'].values()):.1e}")


def main():
    here = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    names = sys.argv[2:] or ["fp16", "bf16", *POWERSGD]
    for model in ("gpt2", "llama"):
        folder = os.path.join(here, model)
        plain = run(folder, "none") if {"fp16", "bf16"} & set(names) else None
        for name in names:
            got = run(folder, name)
            what, other = ("itself, shaken", run(folder, name, True)) if name in POWERSGD else ("no hook", plain)
            d = beside(got, other)
            write(folder, name, got, {"from_itself_shaken" if name in POWERSGD else "from_no_hook": d})
            say(model, name, what, d)


if __name__ == "__main__":
    main()
