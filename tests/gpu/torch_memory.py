#!/usr/bin/env python3
"""PyTorch's peak memory of a plan on this GPU: fully_shard as rank 0 of N over a fake process group.

    python3 torch_memory.py PLAN.json...

One line a plan: its path, bytes allocated and bytes reserved at most over two steps (the second is a
steady one), tab-separated; or the path, "failed" and why.  Nothing is sent: a fake group's collectives
leave their results as they are, and memory comes and goes as with a real one."""
import gc
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

from torch_models import model_of, read_plan


def world_of(plan):
    *nodes, gpus, _ = plan["cluster"].split("x")
    return int(gpus) * int(nodes[0] if nodes else 1)


def mesh_of(plan):
    world, group = world_of(plan), plan.get("shard_group", 0)
    if group and group < world:
        return init_device_mesh("cuda", (world // group, group), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cuda", (world,))


def checkpointed(block):
    whole = block.forward
    block.forward = lambda *a: checkpoint(whole, *a, use_reentrant=False)


def shard(model, plan):
    mesh, policy = mesh_of(plan), MixedPrecisionPolicy()
    if plan["precision"] == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if plan.get("recompute") == "full":
            checkpointed(block)
        fully_shard(block, mesh=mesh, mp_policy=policy,
                    reshard_after_forward=plan.get("fsdp", {}).get("reshard_after_forward"))
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def step(model, optimizer, ids, labels, plan):
    for _ in range(plan.get("accumulation", 1)):
        model(ids, labels).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def peak(plan):
    """On the meta device first: a whole model of fp32 need not fit, its shards must."""
    with torch.device("meta"):
        model = model_of(plan).train()
    model = shard(model, plan)
    model.to_empty(device="cuda")
    with torch.no_grad():
        for p in model.parameters():
            p.to_local().normal_(std=0.02)
        for b in model.buffers():
            b.fill_(0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shape = (plan["micro_batch"], plan["seq"])
    ids, labels = (torch.zeros(shape, dtype=torch.long, device="cuda") for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        step(model, optimizer, ids, labels, plan)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def alone(plan):
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_of(plan))
    try:
        return peak(plan)
    finally:
        dist.destroy_process_group()
        gc.collect()
        torch.cuda.empty_cache()


def main():
    for path in sys.argv[1:]:
        try:
            allocated, reserved = alone(read_plan(path))
            print(path, allocated, reserved, sep="\t", flush=True)
        except Exception as why:        # the next plan is another matter
            print(path, "failed", " ".join(str(why).split())[:200], sep="\t", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
