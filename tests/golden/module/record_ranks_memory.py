#!/usr/bin/env python3
"""The memory of modules of modules.py on two CPU ranks, storage by storage, as ../memory/record_cpu_ranks.py records that of models of transformers: FSDP1 and
DeepSpeed's stages 0 to 3.

    python record_ranks_memory.py [--only SUBSTRING] [-o ranks_memory.jsonl]          torch 2.15.0, transformers 5.24.0, deepspeed 0.19.8, cc; no GPU

The modules drop nothing out, for the CPU's masks are not CUDA's."""
import argparse
import contextlib
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "memory"), os.path.join(here, "..", "..", "..", "lib")]
import record_cpu_ranks as R
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy

import modules
from dpx_record.step import Subject
from dpx_record.units import units_of

FILE = "tests/golden/module/%s.json"
SUBJECT = {}        # of this rank


def case(of, module, *args, **more):
    plan = of(module, *args, precision="bf16", **more)
    for key in ("kernels", "unit"):
        plan.pop(key, None)
    return dict(plan, model=FILE % module)


def fsdp1(module, strategy="FULL_SHARD", **more):
    return case(R.fsdp1, module, strategy, **more)


def ds(module, stage, **more):
    return case(R.ds, module, stage, **more)


PARTED = dict(R.NONE_KEPT, **R.SMALL)
CASES = {}
for module in ("gpt", "llama", "translator"):
    CASES.update({
        "fsdp1_%s" % module: fsdp1(module),
        "fsdp1_%s_gradop_gas2" % module: fsdp1(module, "SHARD_GRAD_OP", accumulation=2),
        "ds1_%s" % module: ds(module, 1, **R.LARGE),
        "ds1_%s_gas2" % module: ds(module, 1, accumulation=2, **R.SMALL),
        "ds2_%s" % module: ds(module, 2, **R.LARGE),
        "ds2_%s_gas2_clip" % module: ds(module, 2, accumulation=2, clip=1.0, **R.SMALL),
    })
for module in ("gpt", "llama", "classifier"):
    CASES.update({"ds3_%s" % module: ds(module, 3, **R.LARGE), "ds3_%s_partitioned_gas2" % module: ds(module, 3, accumulation=2, **PARTED)})


def build(plan):
    name = os.path.basename(plan["model"])[:-5]
    subject = SUBJECT["is"] = Subject(getattr(modules, name)(), name)
    return subject.module.to(torch.bfloat16) if plan["dialect"] == "deepspeed" else subject.module


def wrap(model, plan):
    if plan["dialect"] != "torch-fsdp1":
        return of_families(model, plan)
    units = {id(model.get_submodule(u)) for u in units_of(model, None)}
    wrapped = FullyShardedDataParallel(model, auto_wrap_policy=CustomPolicy(lambda m: id(m) in units), device_id=torch.device("cpu"),
                                       sharding_strategy=ShardingStrategy[plan["fsdp"]["sharding_strategy"]],
                                       mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    return wrapped, torch.optim.AdamW(wrapped.parameters(), lr=1e-4, foreach=True, fused=False)


def loss_of(model):
    return SUBJECT["is"].loss_of(model, SUBJECT["is"].inputs_at(R.MICRO_BATCH, R.SEQ))


def micro_step(model, plan, last):
    if plan["dialect"] == "deepspeed":
        model.backward(loss_of(model))
        if not last:
            model.step()
        return
    with contextlib.nullcontext() if last else model.no_sync():
        (loss_of(model) / plan["accumulation"]).backward()


def main():
    global of_families
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--only", default="")
    args.add_argument("-o", default="ranks_memory.jsonl")
    args = args.parse_args()
    of_families = R.wrap
    R.CASES, R.build, R.wrap, R.micro_step = CASES, build, wrap, micro_step
    with open(args.o, "w") as out:
        print(json.dumps({"torch": torch.__version__, "deepspeed": R.deepspeed.__version__, "transformers": R.transformers.__version__, "models": {}}), file=out)
        for name, plan in CASES.items():
            if args.only in name:
                print(name, file=sys.stderr, flush=True)
                print(json.dumps({"name": name, "plan": plan, "ranks": R.run(name)}, separators=(",", ":")), file=out, flush=True)


if __name__ == "__main__":
    main()
