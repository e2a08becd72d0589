#!/usr/bin/env python3
"""Trains the models of make_parity.py in fp32 on two ranks (gloo) under DDP's fp16_compress_hook and bf16_compress_hook.

    python make_hooks.py [FOLDER]                  default: the script's own folder

Writes MODEL/hook-FORMAT.json (losses of each step, averaged over the ranks) and MODEL/hook-FORMAT.safetensors (the first step's
gradients as the hook left them, before clipping).  README.md says what is compared.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from safetensors.torch import load_file
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig

import make_parity as parity

RANKS = 2
EACH = parity.BATCH // RANKS


def hook(name):
    """bf16_compress_hook under another name: where PyTorch reads that one it looks for NCCL."""
    return None if name == "none" else lambda state, bucket: getattr(default_hooks, name + "_compress_hook")(state, bucket)


def step(ddp, optimizer, tokens, s, rank):
    for group in optimizer.param_groups:
        group["lr"] = parity.lr_of(s)
    optimizer.zero_grad()
    ids, labels = (t[rank * EACH:(rank + 1) * EACH] for t in parity.batch_of(tokens, s))
    loss = parity.loss_of(ddp, ids, labels, False)
    loss.backward()
    return loss.detach()


def train(rank, folder, name, at):
    parity.exactly()
    dist.init_process_group("gloo", init_method="file://" + at, rank=rank, world_size=RANKS)
    tokens = parity.make_tokens()
    model = parity.build(AutoConfig.from_pretrained(folder), load_file(os.path.join(folder, "init.safetensors")), torch.float32)
    ddp = DistributedDataParallel(model)
    if name != "none":
        ddp.register_comm_hook(None, hook(name))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=parity.LR, betas=parity.BETAS, eps=parity.EPS, weight_decay=parity.WEIGHT_DECAY,
                                  foreach=False, fused=False)
    losses = []
    for s in range(parity.STEPS):
        loss = step(ddp, optimizer, tokens, s, rank)
        if s == 0:
            grads = {n: p.grad.detach().clone() for n, p in model.named_parameters()}
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), parity.CLIP)
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(loss.item() / RANKS)
    if rank == 0:
        torch.save({"losses": losses, "grads": grads}, at + ".result")
    dist.destroy_process_group()


def run(folder, name):
    at = os.path.join("/tmp", "make_hooks-%d-%s" % (os.getpid(), name))
    torch.multiprocessing.spawn(train, (folder, name, at), RANKS)
    result = torch.load(at + ".result")
    for path in (at, at + ".result"):
        if os.path.exists(path):
            os.remove(path)
    return result


def norm_of(grads):
    return sum(g.double().pow(2).sum().item() for g in grads.values()) ** 0.5


def main():
    here = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for model in ("gpt2", "llama"):
        folder = os.path.join(here, model)
        plain = run(folder, "none")
        for name in ("fp16", "bf16"):
            got = run(folder, name)
            far = parity.distance(got["grads"], plain["grads"])
            loss = parity.largest(got["losses"], plain["losses"])
            parity.save(os.path.join(folder, "hook-%s.safetensors" % name), got["grads"])
            with open(os.path.join(folder, "hook-%s.json" % name), "w") as f:
                json.dump({"versions": {"torch": torch.__version__}, "clip": parity.CLIP, "loss": got["losses"],
                           "grad_norm": [norm_of(got["grads"])], "from_no_hook": {"loss": loss, "grads": far}}, f, indent=1)
                f.write("\n")
            print(f"{model} {name}: from no hook: loss {loss:.1e}, grads {min(far.values()):.1e} to {max(far.values()):.1e}")


if __name__ == "__main__":
    main()
