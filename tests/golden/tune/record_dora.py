#!/usr/bin/env python3
"""Records the memory of steps whose linear layers are torchtune's DoRALinear, as its LoRA recipes train them.

    python record_dora.py TORCHTUNE [--only SUBSTRING] [--more] [-o dora.jsonl]

By record_narrow.py's machinery; of torchtune/modules/peft/dora.py the class runs (../memory/torch_dora.py)."""
import gc
import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)) + "/../memory")
WHERE = sys.argv[1]
import record_narrow as narrow
import torch

tuned = narrow.tuned
tune = tuned.tune


def layers():
    from torch_dora import layers as of
    return of(WHERE)


def weighed(model, plan):
    lora = plan.get("lora", {})
    if not lora.get("use_dora"):
        return tune(model, plan)
    layer = layers()
    model.register_forward_hook(lambda *_: (gc.collect(), None)[1])     # the tracker's hooks hold the last layer's unit matrix in a cycle
    for p in model.parameters():
        p.requires_grad = False
    for name, module in list(model.named_modules()):
        if name.split(".")[-1] not in lora["target_modules"]:
            continue
        torch.set_default_dtype(module.weight.dtype)
        new = layer(module.in_features, module.out_features, lora["rank"], 16.0)
        torch.set_default_dtype(torch.float32)
        new.weight = module.weight
        for key, p in new.named_parameters():
            p.requires_grad = key in new.adapter_params()
        model.get_submodule(name.rpartition(".")[0]).register_module(name.split(".")[-1], new)
    return model


def cases():
    some, every = ["q_proj", "v_proj", "o_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    small = dict(world=4, batch=2, seq=256)
    for strategy in ("fsdp", "ddp"):
        yield narrow.narrow("llama-10m", strategy, {"rank": 8, "target_modules": some}, **small)
        yield narrow.narrow("llama-10m", strategy, {"rank": 16, "target_modules": every}, **small)
    yield narrow.narrow("llama-10m", "fsdp", {"rank": 16, "target_modules": every}, **small, recompute="full")


if __name__ == "__main__":
    del sys.argv[1]
    tuned.tune = weighed
    tuned.cases = lambda: (dict(plan, lora=dict(plan["lora"], use_dora=True)) for plan in cases())
    name_of = tuned.name_of
    tuned.name_of = lambda plan: name_of(plan) + (" dora" if plan["lora"].get("use_dora") else "")
    tuned.main()
