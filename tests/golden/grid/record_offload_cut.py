#!/usr/bin/env python3
"""Records what FSDP2 with CPUOffloadPolicy takes and copies where tensor parallelism cuts the model.

    python record_offload_cut.py [--only SUBSTRING] [-o offload.jsonl]         three minutes

The model and its cuts are record_memory.py's; the host and the copies are counted as ../memory/record_offload.py does."""
import record_memory as cut

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

import record_offload as away

base = cut.base


def run(plan):
    base.PLANNED["capability"] = base.CAPABILITY[base.gpu_of(plan)]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=base.world_of(plan))
    try:
        made = cut.Run(plan)
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), away.Host() as away.HOST:
            made.build()
            made.optimizer = torch.optim.AdamW(made.model.parameters(), lr=1e-4)
            host = away.HOST
            host.keep(p._local_tensor for p in made.model.parameters())
            before = dict(host.sum)
            with made.as_planned():
                made.step()
                for state in made.optimizer.state.values():
                    host.forget(getattr(state["step"], "_local_tensor", state["step"]))
                host.begin()
                return made.tracked_step() | away.counted(before)
    finally:
        dist.destroy_process_group()


def plan_of(*args, pin=True, **options):
    plan = cut.plan_of(*args, **options)
    plan["fsdp"] = plan["fsdp"] | {"cpu_offload": True, "pin_memory": pin}
    return plan


def cases():
    small = "llama-8m"
    for precision in ("fp32", "bf16"):
        for pin in (True, False):
            yield plan_of(small, 4, cut.tp(2), precision=precision, batch=2, pin=pin)
        yield plan_of(small, 8, cut.tp(4, False, False), precision=precision, batch=2)
        yield plan_of(small, 4, cut.tp(2), precision=precision, batch=1, seq=64, accumulation=2)
        yield plan_of(small, 4, cut.tp(2), precision=precision, batch=1, seq=64, accumulation=2, sync_every_micro_step=False)
    yield plan_of(small, 8, cut.tp(2), batch=2, group=2)
    yield plan_of(small, 4, cut.tp(2), batch=1, seq=64, clip=1.0)
    yield plan_of("qwen3-small", 4, cut.tp(2), batch=2)
    yield plan_of("llama-8b-4", 16, cut.tp(8), batch=1, seq=8192, recompute="full")


def name_of(plan):
    pinned = "" if plan["fsdp"]["pin_memory"] else " pageable"
    return cut.name_of(plan) + pinned + ("" if plan.get("sync_every_micro_step", True) else " no_sync")


def setup():
    away.setup()
    cut.meshes_are_real()
    cut.shapes_are_not_counted()


if __name__ == "__main__":
    away.write(__doc__, "offload.jsonl", cases, name_of, run, setup, cut.MODELS, optimizer=away.LOOPS)
