#!/usr/bin/env python3
"""Records the most bytes that live at once in a steady step of DDP in which PEFT's adapters train beside int8 layers.

    python record_live.py -o live.jsonl

memory.jsonl's trackers hook every module and tensor: their hooks keep the graph of a step, and autograd refuses them beside
checkpoints under DDP.  This counts storages alone, from the operator that makes one to its last reference, with nothing hooked: what
MatMul8bitLt's contexts keep lives as long as it does in a training loop.  A storage counts in steps of 512 bytes.
"""
import argparse
import json
import weakref

import record_memory as tune            # replaces this process by one with its shim

import peft
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

steps = tune.steps


class Live(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.known, self.now, self.peak = WeakIdKeyDictionary(), 0, 0

    def gone(self, size):
        self.now -= size

    def meet(self, tensor):
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
            return
        storage = tensor.untyped_storage()
        if storage not in self.known:
            size = -(-storage.nbytes() // 512) * 512
            self.known[storage] = True
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.gone, size)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # The engine adds gradients that meet in place, but not those of a subclass, which fake tensors are; nor where the first is a view.
        # It runs without grad mode; a block that runs again has it.
        if (func is torch.ops.aten.add.Tensor and torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled() and not kwargs
                and len(args) == 2 and all(isinstance(a, torch.Tensor) for a in args) and not args[0]._is_view()
                and args[0].shape == args[1].shape and args[0].dtype == args[1].dtype):
            func = torch.ops.aten.add_.Tensor
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            self.meet(leaf)
        return out


class Nothing(list):
    """memory.jsonl's recorder has a list of contexts, to drop what the trackers keep; here the graph alone has them."""
    def append(self, ctx): pass


tune.INT8 = Nothing()
LIVE = []
built = steps.built


def built_live(plan, dtype=torch.float32):
    LIVE[:] = [Live()]
    LIVE[0].__enter__()
    return built(plan, dtype)


def live_step(model, optimizer, batch, plan, autocast):
    """The second step: optimizer states and buckets are there."""
    steps.step(model, optimizer, *batch, plan, autocast)
    live = LIVE[0]
    after, live.peak = live.now, live.now
    steps.step(model, optimizer, *batch, plan, autocast)
    live.__exit__(None, None, None)
    assert live.now == after, "a step leaves what it made"
    return {"peak": live.peak, "after": after}


steps.built, steps.tracked_step = built_live, live_step


def cases():
    every = {"rank": 16, "target_modules": "all-linear"}
    for narrow in (False, True):
        for recompute in ("none", "full", "reentrant"):
            for lora in ({"rank": 8}, every, {"rank": 8, "target_modules": ["q_proj", "v_proj"]}, {"rank": 8, "target_modules": ["down_proj"]}):
                yield tune.packed("llama-10m", "int8", lora, narrow, world=4, batch=2, seq=256, recompute=recompute)
            yield tune.packed("llama-10m", "int8", dict(every, dropout=0.05), narrow, world=4, batch=2, seq=256, accumulation=2, recompute=recompute)
            for family in ("qwen2", "gemma"):
                yield tune.packed(family, "int8", every, narrow, world=4, batch=2, seq=256, recompute=recompute)
        for recompute in ("full", "reentrant"):
            yield tune.packed("llama-8b", "int8", dict(every, rank=64), narrow, world=2, batch=1, seq=1024, recompute=recompute)
            yield tune.packed("llama-8b", "int8", {"rank": 8}, narrow, world=2, batch=4, seq=2048, recompute=recompute)


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--only", default="")
    a.add_argument("--more", action="store_true", help="only what the file lacks, appended")
    a.add_argument("-o", default="live.jsonl")
    a = a.parse_args()
    steps.without_gpu()
    have = {json.loads(line).get("name") for line in open(a.o)} if a.more else set()
    todo = [p for p in cases() if a.only in tune.name_of(p) and tune.name_of(p) not in have]
    with open(a.o, "a" if a.more else "w") as out:
        if not a.more:
            print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
                              "models": {p["model"]: steps.MODELS[p["model"]] for p in todo}}), file=out)
        for plan in todo:
            print(json.dumps({"name": tune.name_of(plan), "plan": plan, "steady": steps.run(plan)[1]}), file=out, flush=True)


if __name__ == "__main__":
    main()
