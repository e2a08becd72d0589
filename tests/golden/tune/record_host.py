#!/usr/bin/env python3
"""Records what fine-tuning with weights in host memory takes on the device and on the host, and what it copies.

    python record_host.py fsdp2|fsdp1 [--only SUBSTRING] [-o FILE]

FSDP2 with CPUOffloadPolicy, FSDP1 with CPUOffload(offload_params=True): the step, and who counts, are those of
../memory/record_offload.py and record_fsdp1_offload.py; what trains is made as record_memory.py does.
"""
import sys

import record_memory as tuned           # replaces this process by one with its shim; puts ../memory before this folder
import record_fsdp1_offload as first
import record_offload as away
import record_torch_memory as steps

EVERY = {"rank": 16, "target_modules": "all-linear"}


def tuned_plan(plan, lora=None, train="lora", base=None):
    plan["train"] = train
    if lora:
        plan["lora"] = lora
    if base:
        plan["base_dtype"] = base
        plan["fsdp"]["model_dtype"], plan["reduce_dtype"] = "bf16", "fp32"
    return plan


def fsdp2(model, lora=None, train="lora", base=None, pin=True, **options):
    return tuned_plan(away.plan_of(model, pin=pin, **options), lora, train, base)


def fsdp1(model, lora=None, train="lora", **options):
    return tuned_plan(first.plan_of(model, orig=True, **options), lora, train)


def fsdp2_cases():
    small, wide = (dict(world=4, precision=precision, batch=1, seq=64) for precision in ("fp32", "bf16"))
    for pin in (True, False):
        yield fsdp2("llama-10m", EVERY, pin=pin, **small)
        yield fsdp2("llama-10m", EVERY, pin=pin, accumulation=3, **small)
    yield fsdp2("llama-10m", {"rank": 8}, clip=1.0, **small)
    yield fsdp2("llama-10m", {"rank": 8, "modules_to_save": ["embed_tokens", "lm_head"]}, **small)
    yield fsdp2("llama-10m", train=["*norm.weight"], **small)
    yield fsdp2("llama-10m", EVERY, reshard=False, **small)
    yield fsdp2("llama-10m", EVERY, **wide)
    yield fsdp2("llama-10m", EVERY, pin=False, accumulation=3, **wide)
    yield fsdp2("llama-15m-gqa-tied", EVERY, accumulation=2, sync=False, **wide)
    yield fsdp2("gpt2-10m", train=["*.bias"], **wide)
    yield fsdp2("llama-10m", EVERY, **dict(wide, world=8), group=4)
    one, lone = dict(wide, world=1), dict(small, world=1)
    yield fsdp2("llama-10m", EVERY, **one)
    yield fsdp2("llama-10m", EVERY, pin=False, accumulation=3, **lone)
    yield fsdp2("llama-10m", {"rank": 8}, recompute="full", reshard=False, **one)
    yield fsdp2("llama-15m-gqa-tied", EVERY, accumulation=2, sync=False, **one)
    yield fsdp2("gpt2-10m", train=["*.bias"], **lone)
    yield fsdp2("llama-10m", EVERY, base="nf4-double", **one)
    yield fsdp2("llama-8b", dict(EVERY, rank=64), recompute="full", precision="bf16", world=1, batch=1, seq=1024)
    packed = dict(precision="bf16", world=4, batch=2, seq=256)
    yield fsdp2("llama-10m", EVERY, base="nf4", **packed)
    yield fsdp2("llama-10m", EVERY, base="nf4-double", pin=False, **packed)
    yield fsdp2("llama-10m", {"rank": 8}, base="nf4-double", recompute="full", accumulation=2, **packed)
    yield fsdp2("llama-8b", dict(EVERY, rank=64), base="nf4-double", precision="bf16", world=2, batch=1, seq=1024, recompute="full")


def fsdp1_cases():
    small, wide = (dict(world=4, precision=precision, batch=1, seq=64) for precision in ("fp32", "bf16"))
    yield fsdp1("llama-10m", EVERY, clip=1.0, **small)
    yield fsdp1("llama-10m", {"rank": 8}, **dict(small, world=3))
    yield fsdp1("llama-10m", EVERY, how="SHARD_GRAD_OP", accumulation=3, **small)
    yield fsdp1("llama-10m", train=["*norm.weight"], **small)
    yield fsdp1("llama-10m", EVERY, clip=1.0, **wide)
    yield fsdp1("llama-15m-gqa-tied", EVERY, accumulation=2, **wide)
    yield fsdp1("llama-10m", EVERY, how="HYBRID_SHARD", group=4, **dict(wide, world=8))
    yield fsdp1("llama-10m", train=["*.mlp.*"], backward_prefetch="BACKWARD_POST", **wide)


def main():
    which = sys.argv.pop(1)
    of = {"fsdp2": away, "fsdp1": first}[which]
    name_of, shard = of.name_of, of.shard
    of.shard = lambda model, plan, groups: shard(tuned.tune(model, plan), plan, groups)
    away.write(__doc__, which + "_host.jsonl", {"fsdp2": fsdp2_cases, "fsdp1": fsdp1_cases}[which],
               lambda plan: name_of(plan).replace(" pure", "") + tuned.name_of(plan)[len(steps.name_of(plan).replace(" pure", "")):],
               of.run, of.setup, optimizer=away.LOOPS, peft=tuned.peft.__version__)


if __name__ == "__main__":
    main()
