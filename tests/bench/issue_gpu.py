#!/usr/bin/env python3
"""issue_cost.py's figures where there is a GPU: what this host takes to issue what PyTorch runs, in microseconds and as ratios.

    tests/bench/issue_gpu.py        needs torch, transformers and a CUDA device; a quarter of a minute

The same tiny Llama, on the device: its kernels take less than the host takes to issue them, so that the time of a pass
between two waits is the host's.  Medians of 15 repeats.  FSDP2 runs over a fake process group of 2 ranks, and over NCCL's
of one; its collectives are counted as issue_cost.py counts them."""
import os, statistics, time, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
import issue_unit
from issue_unit import LAYERS, Count, forward, model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.set_default_device("cuda")
issue_unit.ids = torch.zeros(1, 4, dtype=torch.long)


def seconds(f, repeats=15):
    times = []
    for _ in range(repeats + 3):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        f()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[3:])


def no_grad(m):
    def f():
        with torch.no_grad():
            forward(m)
    return f


m = model()
with torch.no_grad(), Count() as c:
    forward(m)
    kernels = c.n
with Count() as c:
    loss = forward(m)
    ahead = c.n
    loss.backward()
    behind = c.n - ahead
unit = seconds(no_grad(m)) / kernels
one = torch.zeros(8)
add = seconds(lambda: [one.add_(1.0) for _ in range(1000)]) / 1000
with_grad = seconds(lambda: forward(m))
step = seconds(lambda: forward(m).backward())
print("%-60s %8.2f us" % ("a bare add_", 1e6 * add))
print("%-60s %8.2f us" % ("forward without gradients, a kernel of %d" % kernels, 1e6 * unit))
print("%-60s %8.2f of that" % ("forward with gradients", with_grad / kernels / unit))
print("%-60s %8.2f" % ("backward, a kernel of %d" % behind, (step - with_grad) / behind / unit))


def autocast():
    with torch.autocast("cuda", torch.bfloat16):
        loss = forward(m)
    loss.backward()


with Count() as c:
    autocast()
    cast = c.n
print("%-60s %8.2f, %d more kernels" % ("autocast: forward and backward, a kernel", seconds(autocast) / cast / unit, cast - ahead - behind))
tensors = list(m.parameters())
for form in ("foreach", "fused"):
    optimizer = torch.optim.AdamW(tensors, lr=1e-5, foreach=form == "foreach", fused=form == "fused")
    optimizer.step()
    print("%-60s %8.2f us" % ("AdamW %s, a tensor of %d" % (form, len(tensors)), 1e6 * seconds(optimizer.step) / len(tensors)))
clip = lambda: torch.nn.utils.clip_grad_norm_(tensors, 1.0)
print("%-60s %8.2f us" % ("clip_grad_norm_, a tensor", 1e6 * seconds(clip) / len(tensors)))

collectives = 3 * LAYERS + 2
for group, ranks in (("fake", 2), ("nccl", 1)):
    dist.init_process_group(group, store=FakeStore() if group == "fake" else dist.HashStore(), rank=0, world_size=ranks)
    for name, policy in (("fp32", MixedPrecisionPolicy()), ("bf16", MixedPrecisionPolicy(torch.bfloat16, torch.float32))):
        mesh, sharded = init_device_mesh("cuda", (ranks,)), model()
        for block in sharded.model.layers:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(sharded, mesh=mesh, mp_policy=policy)
        more = seconds(lambda: forward(sharded).backward()) - step
        print("%-60s %8.1f, %.0f us" % ("FSDP2 in %s over %s of %d, a collective" % (name, group, ranks), more / collectives / unit, 1e6 * more / collectives))
    dist.destroy_process_group()
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel(model())
print("%-60s %8.2f ms" % ("DDP over nccl of 1: more than without", 1e3 * (seconds(lambda: forward(ddp).backward()) - step)))
dist.destroy_process_group()
