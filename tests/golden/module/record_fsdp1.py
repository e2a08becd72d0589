#!/usr/bin/env python3
"""The collectives that FSDP1, FSDP2, HSDP of either, DDP and ZeroRedundancyOptimizer issue for modules of modules.py, as ../collectives/record_torch.py records
them: seen from one rank of a world whose other ranks do not exist.

    python record_fsdp1.py OUTDIR [CASE ...]            torch 2.15.0, transformers 5.24.0, torchvision"""
import contextlib
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "collectives"), os.path.join(here, "..", "..", "..", "lib")]
import record_torch as R
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer

sys.path.insert(0, here)
import modules
from dpx_record.step import Subject
from dpx_record.units import units_of

SIZE = {"vit": 224, "resnet": 64}        # else 16


def case(module, api, world=4, accumulation=1, shard_group=None, **options):
    return dict(module=module, api=api, world=world, accumulation=accumulation, shard_group=shard_group, options=options)


CASES = {
    "translator-fsdp1": case("translator", "fsdp1", world=3, sharding_strategy="SHARD_GRAD_OP"),
    "translator-fsdp1-acc2": case("translator", "fsdp1", accumulation=2, backward_prefetch=None),
    "translator-hsdp": case("translator", "fsdp2", shard_group=2),
    "translator-zero1": case("translator", "zero1", world=3),
    "bert-fsdp1": case("bert", "fsdp1", world=3),
    "vit-ddp": case("vit", "ddp", world=3, bucket_cap_mb=1),
    "resnet-ddp-acc2": case("resnet", "ddp", accumulation=2),
    "frozen-fsdp2": case("frozen", "fsdp2"),
    "frozen-fsdp2-acc2": case("frozen", "fsdp2", accumulation=2),
    "frozen-hsdp": case("frozen", "fsdp2", shard_group=2),
    "tables-ddp-acc2": case("tables", "ddp", world=2, accumulation=2),
    "tables-ddp-quiet": case("tables", "ddp", world=2, broadcast_buffers=False),
    "translator-ddp": case("translator", "ddp", bucket_cap_mb=2),
    "dit-fsdp2": case("dit", "fsdp2", world=3),
    "llama-fsdp2-acc2": case("llama", "fsdp2", accumulation=2),
    "vit-fsdp2": case("vit", "fsdp2"),
}


def wrap(c, model, units):
    plan, options = {"shard_group": c["shard_group"]}, dict(c["options"])
    modules_of = {id(model.get_submodule(u)) for u in units}
    if c["api"] == "fsdp2":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = R.hsdp_mesh(c["shard_group"]) if c["shard_group"] else init_device_mesh("cpu", (c["world"],))
        for u in units:
            fully_shard(model.get_submodule(u), mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        return model
    if c["api"] in ("ddp", "zero1"):
        return R.DistributedDataParallel(model, **options)
    strategy = options.pop("sharding_strategy", "FULL_SHARD")
    kw = {"device_mesh": R.hsdp_mesh(plan["shard_group"])} if "HYBRID" in strategy else {}
    prefetch = options.pop("backward_prefetch", "BACKWARD_PRE")
    return FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy[strategy], device_id=torch.device("cpu"), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
                                    auto_wrap_policy=CustomPolicy(lambda m: id(m) in modules_of), backward_prefetch=prefetch and BackwardPrefetch[prefetch], **kw, **options)


@contextlib.contextmanager
def without_sync(wrapped):
    if hasattr(wrapped, "no_sync"):
        with wrapped.no_sync():
            yield
    else:
        wrapped.set_requires_gradient_sync(False)
        yield
        wrapped.set_requires_gradient_sync(True)


def as_sent(line):
    """As NCCL moves it: a yes or no as a byte, a complex number as two (ProcessGroupNCCL's view_as_real)."""
    words = line.split()
    for dtype, real in (("torch.complex64", "fp32"), ("torch.complex128", "fp64")):
        if dtype in words:
            i = words.index(dtype)
            words[i:i + 2] = [real, str(2 * int(words[i + 1]))]
    return " ".join({"bool": "uint8", "torch.int8": "int8"}.get(w, w) for w in words)


def run(c, rank):
    R.groups.clear()
    R.log.clear()
    dist.init_process_group("recorder", store=dist.HashStore(), rank=rank, world_size=c["world"])
    try:
        torch.manual_seed(0)
        subject = Subject(getattr(modules, c["module"])(), c["module"])
        model = subject.module.train()
        wrapped = wrap(c, model, units_of(model, None))
        optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4) if c["api"] == "zero1" else torch.optim.AdamW(wrapped.parameters(), lr=1e-4)
        phases = [list(R.log)]
        for _ in range(R.STEPS):
            R.log.clear()
            for micro in range(c["accumulation"]):
                last, x = micro == c["accumulation"] - 1, subject.inputs_at(2, SIZE.get(c["module"], 16))
                with contextlib.nullcontext() if last else without_sync(wrapped):
                    with torch.autocast("cpu", torch.bfloat16) if c["api"] in ("ddp", "zero1") else contextlib.nullcontext():
                        loss = subject.loss_of(wrapped, x)
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            phases.append(list(R.log))
        return [[as_sent(line) for line in phase] for phase in phases]
    finally:
        dist.destroy_process_group()


def plan_of(c):
    key = {"fsdp1": "fsdp", "fsdp2": "fsdp", "zero1": "zero1", "ddp": "ddp"}[c["api"]]
    plan = {"dpx_plan": 1, "model": "tests/golden/module/%s.json" % c["module"], "cluster": "1x%dxh100" % c["world"], "strategy": key,
            "dialect": "torch-fsdp1" if c["api"] == "fsdp1" else "torch", "seq": SIZE.get(c["module"], 16), "micro_batch": 2, "accumulation": c["accumulation"], "sync_every_micro_step": False,
            "precision": "bf16"}
    if c["shard_group"]:
        plan["shard_group"] = c["shard_group"]
    if c["options"]:
        plan["ddp" if c["api"] == "ddp" else "fsdp"] = c["options"]
    return plan


def main():
    outdir, names = sys.argv[1], sys.argv[2:] or list(CASES)
    for name in names:
        c = CASES[name]
        phases = R.alone(run, c, 0)
        lines = ["# recorded from torch %s, CPU, by record_fsdp1.py" % torch.__version__.split("+")[0], "plan " + json.dumps(plan_of(c))] + R.sections(0, phases)
        theirs = R.alone(run, c, c["world"] - 1)
        lines += R.sections(c["world"] - 1, theirs) if theirs != phases else []
        with open(os.path.join(outdir, name + ".txt"), "w") as f:
            f.write("\n".join(lines) + "\n")
        print("recorded", name, flush=True)


if __name__ == "__main__":
    main()
