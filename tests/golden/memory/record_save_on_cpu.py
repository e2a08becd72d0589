#!/usr/bin/env python3
"""Records what a step takes on the device and on the host, and what it copies, with torch.autograd.graph.save_on_cpu() around the model.

    python record_save_on_cpu.py [--only SUBSTRING] [-o torch_save_on_cpu.jsonl]

The step, the trackers and what stands in for a GPU are record_torch_memory.py's, the host's account is record_offload.py's.  save_on_cpu() is
PyTorch's own.  A fake tensor cannot be pinned, so with pin_memory torch.cuda.is_available() stays false, and what the hook makes by torch.empty()
is counted as pinned.  The step runs outside of `with torch.device("cuda")`, in which that torch.empty() would be on the device.
"""
import contextlib

import record_torch_memory as base
import record_offload as away
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore


class Host(away.Host):
    pins = packing = False

    def see(self, tensor, pinned):
        super().see(tensor, pinned or self.packing)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.packing = self.pins and func is torch.ops.aten.empty.memory_format
        return super().__torch_dispatch__(func, types, args, kwargs)


def micro_step(model, ids, labels, autocast):
    with torch.autocast("cuda", torch.bfloat16) if autocast else contextlib.nullcontext():
        with torch.autograd.graph.save_on_cpu(pin_memory=away.HOST.pins):
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    loss.backward()


def run(plan):
    fsdp = plan["strategy"] == "fsdp"
    base.PLANNED["capability"] = base.CAPABILITY[base.gpu_of(plan)]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=base.world_of(plan))
    try:
        mesh = base.mesh_of(plan) if fsdp else None
        with FakeTensorMode(allow_non_fake_inputs=True), Host() as host:
            away.HOST = host
            with torch.device("cuda"):
                model = base.built(plan)
                model = base.shard(model, plan, mesh) if fsdp else base.wrap_ddp(model, plan)
                optimizer, batch = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True), base.batch_of(plan)
            autocast = not fsdp and plan["precision"] == "bf16"
            host.pins = plan["activation_offload"] == "save_on_cpu-pinned"
            base.step(model, optimizer, *batch, plan, autocast)
            host.keep([])                   # Adam's numbers of steps, which lie on the host on a GPU too
            host.begin()
            result = base.tracked_step(model, optimizer, batch, plan, autocast)
            return result | {"host": {"most": host.most, "after": host.sum, "copied": host.copied}}
    finally:
        dist.destroy_process_group()


def plan_of(*args, pin=True, **options):
    return base.plan_of(*args, **options) | {"activation_offload": "save_on_cpu-pinned" if pin else "save_on_cpu"}


def cases():
    for precision in ("fp32", "bf16"):
        small = dict(precision=precision, batch=2, seq=256, world=4)
        for strategy in ("fsdp", "ddp"):
            yield plan_of("gpt2-10m", strategy=strategy, **small)
            yield plan_of("llama-10m", strategy=strategy, pin=False, **small)
        yield plan_of("llama-15m-gqa-tied", kernels="torch-eager", **small)
        yield plan_of("gpt2-tiny", kernels="torch-eager", pin=False, **dict(small, seq=64))
        yield plan_of("llama-10m", accumulation=2, **small)
    yield plan_of("gpt2-124m", batch=4, seq=1024)
    yield plan_of("llama-1b", batch=1, seq=2048)
    yield plan_of("llama-8b", batch=1, seq=4096, pin=False)


def name_of(plan):
    return base.name_of(plan) + (" pinned" if plan["activation_offload"] == "save_on_cpu-pinned" else "")


def setup():
    base.without_gpu()
    base.micro_step = micro_step


if __name__ == "__main__":
    away.write(__doc__, "torch_save_on_cpu.jsonl", cases, name_of, run, setup)
