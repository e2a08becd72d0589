#!/usr/bin/env python3
"""Records traces of PyTorch's profiler (Kineto) with real collectives: two ranks on gloo train a
small GPT-2, by DDP or by FSDP2, and rank 0 writes what the profiler saw of two steps.

    python record.py ddp ddp.json.gz
    python record.py fsdp2 fsdp2.json.gz

Needs torch (recorded with 2.15).  The model is that of plan_ddp.json and plan_fsdp2.json beside this
file: blocks of 198,272 parameters, embeddings and last norm of 73,984.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule

VOCAB, POSITIONS, HIDDEN, HEADS, LAYERS, BATCH = 512, 64, 128, 4, 3, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(HIDDEN)
        self.attn = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.proj = nn.Linear(HIDDEN, HIDDEN)
        self.ln_2 = nn.LayerNorm(HIDDEN)
        self.fc = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.out = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = self.attn(self.ln_1(x)).view(b, t, 3, HEADS, h // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, h))
        return x + self.out(F.gelu(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, HIDDEN)
        self.wpe = nn.Embedding(POSITIONS, HIDDEN)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(HIDDEN)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def wrap(model, kind):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def run(rank, kind, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = wrap(GPT(), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=2, warmup=1, active=2)) as profiler:
        for _ in range(5):
            ids = torch.randint(0, VOCAB, (BATCH, POSITIONS))
            optimizer.zero_grad()
            logits = model(ids)
            F.cross_entropy(logits.view(-1, VOCAB), ids.view(-1)).backward()
            optimizer.step()
            profiler.step()
    if rank == 0:
        profiler.export_chrome_trace(out)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (sys.argv[1], sys.argv[2]), nprocs=2)
