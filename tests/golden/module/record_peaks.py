#!/usr/bin/env python3
"""What PyTorch's own trackers say of a step of the modules of modules.py: FSDPMemTracker under FSDP2 and HSDP (each unit, then the root; bf16, fp32 reduction; two
replicas of four), MemTracker under DDP (autocast), on 8 ranks of a fake process group, plain and with each unit under
torch.utils.checkpoint, as a whole and (OP) by operator.

    python record_peaks.py [NAME ...] > peaks.jsonl         ONLY=hsdp, RECOMPUTE=op: those alone

The trackers and what they are corrected by are those of ../memory/record_torch_memory.py (its README.md); dpx's own recorder is used for two things alone: to
make modules without memory, and to name units."""
import contextlib
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "memory"), os.path.join(here, "..", "..", "..", "lib")]
import record_torch_memory as R
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import modules
from dpx_record.build import build, to_fake
from dpx_record.recorder import tensors_in
from dpx_record.step import Subject, checkpointed
from dpx_record.units import units_of

WORLD, GROUP = 8, 4
CHECKPOINT = {name: options.split("--checkpoint ")[1].split()[0].split(",") for name, options in modules.OPTIONS.items() if "--checkpoint" in options}

OP = [name for name, options in modules.OPTIONS.items() if "op" in options.partition("--recompute ")[2].split(" ")[0].split(",")]
UNUSED = ("spare",)         # modules with parameters that no gradient reaches


class Parts:
    """Subject.loss_of() of a module that DDP has wrapped."""

    def __init__(self, subject, model):
        self.subject, self.model = subject, model

    def loss(self, x):
        return self.subject.loss_of(self.model, x)


def without_hooks_on_frozen(tracker, model):
    """MemTracker hooks the gradients of parameters that have none, which PyTorch refuses."""
    class Nothing:
        remove = staticmethod(lambda: None)
    for p in model.parameters():
        if not p.requires_grad:
            tracker._param_to_grad_hook_handles[p] = Nothing, Nothing


def peak(make, name, b, s, strategy, recompute, chosen=None, unused=False):
    R.PLANNED["capability"] = 9
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    try:
        mesh = init_device_mesh("cuda", (WORLD // GROUP, GROUP), mesh_dim_names=("replicate", "shard")) if strategy == "hsdp" else init_device_mesh("cuda", (WORLD,))
        subject = Subject(build(make), name)
        model = subject.module
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
            to_fake(model, "cuda")
            model.train()
            units = units_of(model, chosen)
            if recompute != "none":
                checkpointed(model, units, CHECKPOINT.get(name, ()), recompute)
            if strategy != "ddp":
                policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
                for path in units:
                    fully_shard(model.get_submodule(path), mesh=mesh, mp_policy=policy, reshard_after_forward=True)
                fully_shard(model, mesh=mesh, mp_policy=policy)
            else:
                model = torch.nn.parallel.DistributedDataParallel(model, init_sync=False, find_unused_parameters=unused)
                R.register_hook(model, {})
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
            given, parts = subject.inputs_at(b, s), Parts(subject, model)

            def step(between=lambda: None):
                between()
                x = subject.inputs_at(b, s) if strategy == "ddp" else given     # a step's batch goes when backward ends, as a plan has it
                with torch.autocast("cuda", torch.bfloat16) if strategy == "ddp" else contextlib.nullcontext():
                    loss = parts.loss(x)
                loss.backward()
                del x
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if strategy == "ddp":
                step()
                tracker = R.DDPPeaks()
                tracker.track_external(model, optimizer)
                without_hooks_on_frozen(tracker, model)
                with tracker:
                    step(tracker.reset_mod_stats)
            else:
                tracker = R.FSDPPeaks(model, optimizer)
                tracker.track_inputs(tuple(tensors_in(given)))
                with tracker:
                    step(tracker.reset_mod_stats)
                    tracker.reset_mod_stats()
                    tracker._peak_mem.clear()
                    tracker._peak_mem_snap.clear()
                    step(tracker.reset_mod_stats)
            return R.peaks(tracker)
    finally:
        dist.destroy_process_group()


def main():
    R.without_gpu()
    print(json.dumps({"torch": torch.__version__, "models": {name: {"file": "tests/golden/module/%s.json" % name} for name in modules.CASES}}))
    for name in sys.argv[1:] or modules.CASES:
        for b, s in modules.CASES[name][1]:
            for strategy in [x for x in ("fsdp", "hsdp", "ddp") if x == os.environ.get("ONLY", x)]:
                for recompute in ("none", "full", "op")[:2 + (name in OP and strategy != "hsdp")]:
                    if recompute != os.environ.get("RECOMPUTE", recompute):
                        continue
                    try:
                        p = peak(getattr(modules, name), name, b, s, strategy, recompute, unused=name in UNUSED)
                    except Exception as e:          # a tracker that fails is no witness
                        print("%s %s recompute %s: %s: %s" % (name, strategy, recompute, type(e).__name__, str(e)[:200]), file=sys.stderr)
                        continue
                    plan = {"dpx_plan": 1, "model": name, "cluster": "8xh100", "strategy": strategy.replace("hsdp", "fsdp"), **({"shard_group": GROUP} if strategy == "hsdp" else {}),
                            "dialect": "torch", "seq": s, "micro_batch": b, "precision": "bf16", "recompute": recompute}
                    if strategy == "ddp" and name in UNUSED:
                        plan["ddp"] = {"find_unused_parameters": True}
                    print(json.dumps({"name": "%s %s b%d s%d%s" % (name, strategy, b, s, {"none": "", "full": " recomputed", "op": " recomputed by operator"}[recompute]), "plan": plan, "steady": p},
                                     separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
