#!/usr/bin/env python3
"""Records what FSDP2 with CPUOffloadPolicy takes on the device and on the host, and what it copies.

    python record_offload.py [--only SUBSTRING] [-o torch_offload.jsonl]

The step, the trackers and what stands in for a GPU are record_torch_memory.py's.  Beside FSDPMemTracker, which counts
the device, a dispatch mode counts every storage of the CPU from its creation to its last reference: pinned ones (what
Tensor.pin_memory() returns, and the CPU result of a non-blocking copy from the device, as aten's _to_copy makes it)
rounded up to powers of two, as CachingHostAllocator does, others as they are.  README.md says what it leaves out.
"""
import argparse
import json
import sys
import weakref

import record_torch_memory as base
import torch
import torch.distributed as dist
import torch.optim.adam as adam
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


def power(n):
    return 1 << (n - 1).bit_length() if n > 0 else 0


class Host(TorchDispatchMode):
    """Live bytes of the CPU's storages, and bytes copied between it and the device."""

    def __init__(self):
        super().__init__()
        self.number, self.table, self.next = weakref.WeakKeyDictionary(), {}, 0     # of a storage; (kind, bytes)
        self.sum = {"pinned": 0, "pageable": 0}
        self.begin()

    def begin(self):
        self.most, self.copied = dict(self.sum), {"up": 0, "down": 0, "copies": 0}

    def leave(self, number):
        kind, size = self.table.pop(number, ("pageable", 0))
        self.sum[kind] -= size

    def enter(self, storage, kind, size):
        if storage not in self.number:
            self.number[storage] = self.next
            weakref.finalize(storage, self.leave, self.next)
            self.next += 1
        self.leave(self.number[storage])
        self.table[self.number[storage]] = (kind, size)
        self.sum[kind] += size
        self.most[kind] = max(self.most[kind], self.sum[kind])

    def pin(self, storage):
        if storage.nbytes():
            self.enter(storage, "pinned", power(storage.nbytes()))

    def pinned(self, storage):
        return self.table.get(self.number.get(storage, -1), ("", 0))[0] == "pinned"

    def see(self, tensor, pinned):
        storage = tensor.untyped_storage()
        if storage in self.number or storage.nbytes() == 0:
            return
        if pinned:
            self.pin(storage)
        else:
            self.enter(storage, "pageable", storage.nbytes())

    def forget(self, tensor):
        """Adam's `step`, which lies on the host on a GPU too."""
        self.leave(self.number.get(tensor.untyped_storage(), -1))

    def keep(self, tensors):
        """Of what is there now, these alone: a mesh lists its ranks in a tensor, too."""
        kept = {self.number.get(t.untyped_storage()) for t in tensors}
        for number in [n for n in self.table if n not in kept]:
            self.leave(number)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        pinned = False
        if func in COPIES:
            source = args[0] if func is COPIES[0] else args[1]
            if source.device.type != out.device.type:
                up = out.device.type == "cuda"
                pinned = not up and func is COPIES[0] and kwargs.get("non_blocking", False)
                self.copied["up" if up else "down"] += out.numel() * out.element_size()
                self.copied["copies"] += 1
        for t in tree_leaves(out):
            # A DTensor has a storage only in name: its local tensor has one.
            t = t._local_tensor if isinstance(t, DTensor) else t
            if isinstance(t, torch.Tensor) and t.device.type == "cpu":
                self.see(t, pinned)
        return out


HOST = None


def without_cuda():
    def pin_memory(self, device=None):
        most = dict(HOST.most)
        pinned = self.detach().clone()
        HOST.most = most
        HOST.pin(pinned.untyped_storage())
        return pinned

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = lambda self, device=None: HOST.pinned(self.untyped_storage())
    adam._get_value = lambda x: 2.0         # the number of the step: a value, which fake tensors lack


def shard(model, plan, mesh):
    policy = MixedPrecisionPolicy()
    if plan["precision"] == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    away = CPUOffloadPolicy(pin_memory=plan["fsdp"]["pin_memory"])
    for block in base.blocks_of(model):
        fully_shard(block, mesh=mesh, mp_policy=policy, offload_policy=away,
                    reshard_after_forward=plan["fsdp"]["reshard_after_forward"])
    fully_shard(model, mesh=mesh, mp_policy=policy, offload_policy=away)
    return model


def after_first(plan, model, optimizer, batch):
    """The first step pins, and makes Adam's `step`."""
    base.step(model, optimizer, *batch, plan, False)
    for state in optimizer.state.values():
        HOST.forget(getattr(state["step"], "_local_tensor", state["step"]))
    HOST.begin()


def counted(before):
    return {"host": {"params": before, "most": HOST.most, "after": HOST.sum, "copied": HOST.copied}}


def run(plan):
    global HOST
    base.PLANNED["capability"] = base.CAPABILITY[base.gpu_of(plan)]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=base.world_of(plan))
    try:
        mesh = base.mesh_of(plan)
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), Host() as HOST:
            model = shard(base.built(plan, torch.bfloat16 if plan["fsdp"].get("model_dtype") else torch.float32), plan, mesh)
            optimizer, batch = torch.optim.AdamW(model.parameters(), lr=1e-4), base.batch_of(plan)
            HOST.keep(p._local_tensor for p in model.parameters())
            before = dict(HOST.sum)
            after_first(plan, model, optimizer, batch)
            return base.tracked_step(model, optimizer, batch, plan, False) | counted(before)
    finally:
        dist.destroy_process_group()


def plan_of(*args, pin=True, **options):
    plan = base.plan_of(*args, **options)
    plan["fsdp"].update(cpu_offload=True, pin_memory=pin)
    return plan


def cases():
    for precision in ("fp32", "bf16"):
        for pin in (True, False):
            yield plan_of("gpt2-124m", precision=precision, batch=2, seq=512, pin=pin)
        yield plan_of("llama-10m", world=4, precision=precision, batch=2, seq=256, clip=1.0)
        yield plan_of("gpt2-10m", world=4, precision=precision, batch=1, seq=64, accumulation=3)
        yield plan_of("gpt2-10m", world=4, precision=precision, batch=1, seq=64, accumulation=3, pin=False)
        yield plan_of("llama-10m", world=4, precision=precision, batch=1, seq=64, accumulation=2, sync=False)
        yield plan_of("gpt2-tiny", world=8, group=4, precision=precision, batch=1, seq=64)
        yield plan_of("gpt2-tiny", world=1, precision=precision, batch=1, seq=64)
    yield plan_of("llama-15m-gqa-tied", world=3, batch=1, seq=64)
    yield plan_of("gpt2-10m", world=8, batch=1, seq=64, reshard=False)
    yield plan_of("gpt2-10m", world=8, batch=1, seq=64, reshard=4)
    yield plan_of("llama-1b", world=8, batch=1, seq=1024, recompute="full")
    yield plan_of("llama-8b", world=8, batch=1, seq=2048, recompute="full")
    yield plan_of("llama-8b", world=64, group=8, batch=1, seq=2048)


def write(doc, to, cases, name_of, run, setup, models=base.MODELS, **more):
    """A recorder's command line: every case, or those with a word in their names, one JSON line each."""
    args = argparse.ArgumentParser(description=doc)
    args.add_argument("--only", default="")
    args.add_argument("-o", default=to)
    args = args.parse_args()
    setup()
    plans = [p for p in cases() if args.only in name_of(p)]
    with open(args.o, "w") as out:
        meta = {"torch": torch.__version__, "transformers": transformers.__version__,
                "models": {name: models[name] for name in dict.fromkeys(p["model"] for p in plans)}} | more
        print(json.dumps(meta, separators=(",", ":")), file=out)
        for plan in plans:
            print(name_of(plan), end=" ", flush=True, file=sys.stderr)
            result = run(plan)
            print(result["peak_total"], result["host"], file=sys.stderr)
            print(json.dumps({"name": name_of(plan), "plan": plan, "steady": result}, separators=(",", ":")), file=out, flush=True)


LOOPS = "AdamW, which loops over parameters of the CPU"


def name_of(plan):
    return base.name_of(plan) + ("" if plan["fsdp"]["pin_memory"] else " pageable")


def setup():
    base.without_gpu()
    without_cuda()


if __name__ == "__main__":
    write(__doc__, "torch_offload.jsonl", cases, name_of, run, setup, optimizer=LOOPS)
