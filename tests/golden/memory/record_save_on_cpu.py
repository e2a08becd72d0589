#!/usr/bin/env python3
"""Records what a step takes on the device and on the host, and what it copies, with torch.autograd.graph.save_on_cpu() around the model.

    python record_save_on_cpu.py [--only SUBSTRING] [-o torch_save_on_cpu.jsonl]

The step, the trackers and what stands in for a GPU are record_torch_memory.py's, the host's account is record_offload.py's.  save_on_cpu() is
PyTorch's own.  A fake tensor cannot be pinned, so with pin_memory torch.cuda.is_available() stays false, and what the hook makes by torch.empty()
is counted as pinned.  The step runs outside of `with torch.device("cuda")`, in which that torch.empty() would be on the device.
"""
import argparse
import contextlib
import json
import sys

import record_torch_memory as base
import record_offload as away
import torch
import torch.distributed as dist
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM


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
                cfg = transformers.AutoConfig.for_model(**base.MODELS[plan["model"]])
                cfg.bos_token_id = cfg.eos_token_id = cfg.pad_token_id = None
                cfg.use_cache = False
                attn = {"torch-eager": "eager", "torch-sdpa": "sdpa"}[plan["kernels"]]
                model = AutoModelForCausalLM.from_config(cfg, attn_implementation=attn, dtype=torch.float32)
                model.train()
                model = base.shard(model, plan, mesh) if fsdp else base.wrap_ddp(model, plan)
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
                shape = (plan["micro_batch"], plan["seq"])
                ids, labels = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
            autocast = not fsdp and plan["precision"] == "bf16"
            host.pins = plan["activation_offload"] == "save_on_cpu-pinned"
            base.step(model, optimizer, ids, labels, plan, autocast)
            host.keep([])                   # Adam's numbers of steps, which lie on the host on a GPU too
            host.begin()
            if fsdp:
                tracker = base.FSDPPeaks(model, optimizer)
                tracker.track_inputs((ids, labels))
            else:
                tracker = base.DDPPeaks()
                tracker.track_external(model, optimizer, ids, labels)
            with tracker:
                base.step(model, optimizer, ids, labels, plan, autocast, tracker.reset_mod_stats)
            peak = base.named(tracker.get_tracker_snapshot("peak"))
            return {"peak_total": peak.pop("Total"), "peak_by_category": peak,
                    "max_by_category": {k: v for k, v in tracker.most.items() if v},
                    "after": base.named(tracker.get_tracker_snapshot("current")),
                    "host": {"most": host.most, "after": host.sum, "copied": host.copied}}
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


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--only", default="")
    args.add_argument("-o", default="torch_save_on_cpu.jsonl")
    args = args.parse_args()
    base.without_gpu()
    base.micro_step = micro_step
    plans = [p for p in cases() if args.only in base.name_of(p)]
    with open(args.o, "w") as out:
        meta = {"torch": torch.__version__, "transformers": transformers.__version__,
                "models": {name: base.MODELS[name] for name in dict.fromkeys(p["model"] for p in plans)}}
        print(json.dumps(meta, separators=(",", ":")), file=out)
        for plan in plans:
            name = base.name_of(plan) + (" pinned" if plan["activation_offload"] == "save_on_cpu-pinned" else "")
            print(name, end=" ", flush=True, file=sys.stderr)
            result = run(plan)
            print(result["peak_total"], result["host"], file=sys.stderr)
            print(json.dumps({"name": name, "plan": plan, "steady": result}, separators=(",", ":")), file=out)


if __name__ == "__main__":
    main()
