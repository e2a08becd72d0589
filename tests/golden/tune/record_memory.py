#!/usr/bin/env python3
"""Records PyTorch's own account of the memory of fine-tuning steps: LoRA by PEFT, and frozen tensors.

    python record_memory.py [--only SUBSTRING] [-o memory.jsonl]

As ../memory/record_torch_memory.py records steps in which everything trains, whose machinery this is.
"""
import argparse
import fnmatch
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "memory"))

import record_torch_memory as steps     # replaces this process by one with its shim

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model

WORDS = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout"}


def tune(model, plan):
    if plan["train"] == "lora":
        arguments = {WORDS.get(k, k): v for k, v in plan.get("lora", {}).items()}
        move = torch.nn.Module.to       # adapters are made where they belong, and fake tensors cannot be moved
        torch.nn.Module.to = lambda module, *args, **kwargs: module
        try:
            return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **arguments))
        finally:
            torch.nn.Module.to = move
    for name, p in model.named_parameters():
        p.requires_grad_(any(fnmatch.fnmatchcase(name, pattern) for pattern in plan["train"]))
    return model


def only_trained(name):
    """MemTracker hooks every parameter's gradient; a frozen one has none."""
    register = getattr(torch.Tensor, name)

    class Nothing:
        def remove(self): pass
    setattr(torch.Tensor, name, lambda p, hook: register(p, hook) if p.requires_grad else Nothing())


only_trained("register_hook")
only_trained("register_post_accumulate_grad_hook")
blocks_of, shard, wrap_ddp = steps.blocks_of, steps.shard, steps.wrap_ddp
steps.blocks_of = lambda model: blocks_of(model.get_base_model() if hasattr(model, "get_base_model") else model)
steps.shard = lambda model, plan, mesh: shard(tune(model, plan), plan, mesh)
steps.wrap_ddp = lambda model, plan: wrap_ddp(tune(model, plan), plan)


def plan_of(model, lora=None, train="lora", **options):
    plan = steps.plan_of(model, **options)
    plan["train"] = train
    if lora:
        plan["lora"] = lora
    return plan


def cases():
    every = {"rank": 16, "target_modules": "all-linear"}
    for precision in ("fp32", "bf16"):
        for strategy in ("fsdp", "ddp"):
            small = {"strategy": strategy, "precision": precision, "world": 4, "batch": 2, "seq": 256}
            yield plan_of("llama-10m", **small)
            yield plan_of("llama-10m", every, **small)
            if strategy == "fsdp":      # of DDP under fake tensors autograd refuses the input that requires a gradient
                yield plan_of("llama-10m", every, **small, recompute="full")
            yield plan_of("llama-10m", dict(every, dropout=0.1), **small, kernels="torch-eager")
            yield plan_of("gpt2-10m", **small)
            yield plan_of("llama-15m-gqa-tied", every, **small, accumulation=2)
            yield plan_of("llama-10m", {"rank": 8, "modules_to_save": ["embed_tokens", "lm_head"]}, **small)
            yield plan_of("llama-10m", train=["*norm.weight"], **small)
            yield plan_of("gpt2-10m", train=["*.bias"], **small)
    yield plan_of("llama-10m", {"rank": 8, "target_modules": ["down_proj"]}, world=4, batch=2, seq=256)
    yield plan_of("llama-10m", {"rank": 8, "target_modules": ["q_proj"], "modules_to_save": ["norm"]}, world=4, batch=2, seq=256)
    yield plan_of("llama-10m", train=["*.mlp.*", "model.embed_tokens.weight"], world=4, batch=2, seq=256)
    yield plan_of("llama-10m", every, world=4, batch=1, seq=64, accumulation=3, sync=False)
    yield plan_of("llama-10m", every, strategy="ddp", world=4, batch=1, seq=64, accumulation=3, sync=False, view=True)
    yield plan_of("llama-10m", every, world=4, batch=1, seq=64, clip=1.0, reshard=2)
    yield plan_of("llama-1b", every, batch=2, seq=1024, reshard=False)
    yield plan_of("llama-1b", every, world=64, group=8, batch=1, seq=2048, recompute="full")
    yield plan_of("llama-8b", every, batch=1, seq=2048)
    yield plan_of("llama-8b", dict(every, rank=64), batch=2, seq=4096, recompute="full")
    yield plan_of("llama-8b", every, strategy="ddp", world=2, batch=1, seq=1024)
    for family in ("mistral", "qwen2", "qwen3", "gemma", "phi3", "gpt_neox", "opt", "olmo2", "cohere", "starcoder2"):
        yield plan_of(family, every, world=4, batch=2, seq=256)
    for family in ("gemma2", "bloom", "falcon", "mpt"):
        yield plan_of(family, every, world=4, batch=2, seq=256, kernels="torch-eager")


def name_of(plan):
    what = ["lora"] + ["%s%s" % (k[0], "+".join(v) if isinstance(v, list) else v) for k, v in plan.get("lora", {}).items()]
    return steps.name_of(plan) + " " + (" ".join(what) if plan["train"] == "lora" else "train " + ",".join(plan["train"]))


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--only", default="")
    a.add_argument("--more", action="store_true", help="only what the file lacks, appended")
    a.add_argument("-o", default="memory.jsonl")
    a = a.parse_args()
    steps.without_gpu()
    have = {json.loads(line).get("name") for line in open(a.o)} if a.more else set()
    with open(a.o, "a" if a.more else "w") as out:
        todo = [p for p in cases() if a.only in name_of(p)]
        models = {p["model"]: steps.MODELS[p["model"]] for p in todo}
        if not a.more:
            print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
                              "models": models}), file=out)
        for plan in (p for p in todo if name_of(p) not in have):
            print(json.dumps({"name": name_of(plan), "plan": plan, "steady": steps.run(plan)}), file=out, flush=True)


main()
