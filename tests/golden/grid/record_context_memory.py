#!/usr/bin/env python3
"""Records the memory of steps under context parallelism, whose peak is attention's.

    python record_context_memory.py [--only SUBSTRING] [-o context_memory.jsonl]         five minutes
    python record_context_memory.py -o context_mixtures.jsonl                            of mixtures of experts, three minutes

record_memory.py's steps, of models with few words and long sequences, followed from the first and from the last rank of a
context group, each in a process of its own: DTensor keeps process groups that are gone."""
import json
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "collectives"))

import record_memory as steps
from alone import alone

import torch
import transformers
from torch.distributed.tensor import DTensor

# Attention outweighs all else: its heads are wider than the model.
WIDE = dict(steps.base.LLAMA, num_hidden_layers=4, hidden_size=128, intermediate_size=128, num_attention_heads=16,
            num_key_value_heads=4, head_dim=128, vocab_size=512)
steps.MODELS.update({"wide": WIDE, "wide-heads": dict(WIDE, num_key_value_heads=16), "wide-one": dict(WIDE, num_key_value_heads=1)})


def cp(context, method="all-gather", balance=True):
    return {"context": context, "context_method": method, "context_balance": balance}


def cases():
    plan = steps.plan_of
    for model in ("wide", "wide-heads"):
        for c in (2, 4):
            for method in ("all-gather", "ring"):
                for balance in (True, False):
                    yield plan(model, 4, cp(c, method, balance), batch=2, seq=8192, recompute="full")
    for c, method in ((2, "all-gather"), (4, "ring"), (8, "all-gather")):
        yield plan("wide", 8, cp(c, method), batch=1, seq=16384)
        yield plan("wide", 8, cp(c, method), batch=1, seq=16384, recompute="op")
        yield plan("wide", 8, cp(c, method), batch=1, seq=16384, precision="fp32", recompute="full")
        yield plan("wide-one", 8, cp(c, method), batch=1, seq=16384, recompute="full")
    yield plan("wide-heads", 4, cp(4), batch=2, seq=8192, gpu="a100-80gb", recompute="full")
    yield plan("wide", 4, cp(2), batch=1, seq=8192, gpu="a100-80gb")
    yield plan("wide", 8, cp(4), batch=1, seq=16384, accumulation=2, recompute="full")
    yield plan("wide", 8, cp(2), batch=1, seq=8192, group=4, recompute="full")
    yield plan("wide", 8, steps.tp(2) | cp(2), batch=1, seq=16384, recompute="full")
    yield plan("wide", 8, steps.tp(4) | cp(2, "ring"), batch=2, seq=16384, recompute="full")
    yield plan("wide", 8, steps.tp(2, False, False) | cp(4), batch=1, seq=16384, recompute="full")


def mixture_cases():
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "memory"))
    import torch_mixtures as mixtures
    mixtures.take_grouped_products()
    steps.MODELS.update(mixtures.MIXTURES)
    for model in ("mixtral", "qwen3_moe"):
        yield steps.plan_of(model, 4, cp(2), batch=2, seq=1024)
        yield steps.plan_of(model, 4, cp(4, "ring"), batch=1, seq=1024, recompute="full")
        yield steps.plan_of(model, 8, cp(2), batch=1, seq=1024, recompute="full", accumulation=2)


def shapes_are_not_counted():
    """The ring's handler asks for the shapes of attention over the whole sequence, under the fake mode that stands in for the
    device here: these tensors are not counted."""
    propagator, asks = DTensor._op_dispatcher.sharding_propagator, []
    inner, count = propagator.propagate, steps.base.Peaks.__torch_dispatch__

    def propagate(*args):
        asks.append(True)
        try:
            return inner(*args)
        finally:
            asks.pop()

    def dispatch(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) if asks else count(self, func, types, args, kwargs)
    propagator.propagate, steps.base.Peaks.__torch_dispatch__ = propagate, dispatch


def main():
    args = steps.options(__doc__, "context_memory.jsonl")
    steps.base.without_gpu()
    steps.meshes_are_real()
    shapes_are_not_counted()
    steps.base.sdpa.__name__ = "scaled_dot_product_attention"         # context_parallel() puts its own in place of it by name
    plans = [p for p in (mixture_cases() if "mixtures" in args.o else cases()) if args.only in steps.name_of(p)]
    with open(args.o, "w") as out:
        print(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "transformers": transformers.__version__,
                          "models": {name: steps.MODELS[name] for name in dict.fromkeys(p["model"] for p in plans)},
                          "optimizer": "AdamW(foreach=True)"}, separators=(",", ":")), file=out)
        for plan in plans:
            for rank in (0, (plan["parallel"]["context"] - 1) * plan["parallel"].get("tensor", 1)):
                try:
                    steady, saved = alone(steps.run, plan, rank)
                except RuntimeError as e:
                    print("FAILED", steps.name_of(plan), rank, e, file=sys.stderr, flush=True)
                    continue
                print(steps.name_of(plan), rank, steady["peak_total"], saved, file=sys.stderr, flush=True)
                print(json.dumps({"name": steps.name_of(plan), "plan": plan, "rank": rank, "steady": steady, "saved": saved},
                                 separators=(",", ":")), file=out, flush=True)


if __name__ == "__main__":
    main()
