#!/usr/bin/env python3
"""Records the collectives of Megatron-Bridge's LoRA: src/megatron/bridge/peft/ as it is, around megatron-core's local layers.

    BRIDGE_SOURCE=A_CHECKOUT TE_SOURCE=A_CHECKOUT PYTHONPATH=WHERE_MEGATRON_IS python record_adapters.py OUTDIR     adapters.txt; two minutes
    BRIDGE_SOURCE=A_CHECKOUT PYTHONPATH=WHERE_MEGATRON_IS python record_adapters.py OUTDIR NAME ...     these lists, printed

With record_megatron.py beside it, whose stand-ins these are.  Adapters come before Float16Module and DistributedDataParallel, as
Megatron-Bridge's training/setup.py has it (a pre-wrap hook).  What its files import and do not need here (Transformer Engine, the training
loop's utilities) is empty.  Behind `init` stands how many parameters the rank has, and how many of them train."""
import os
import sys
import types

BRIDGE = os.path.join(os.environ["BRIDGE_SOURCE"], "src", "megatron", "bridge")


def package(name, path=None, **has):
    made = types.ModuleType(name)
    if path:
        made.__path__ = [path]
    for key, value in has.items():
        setattr(made, key, value)
    sys.modules[name] = made
    return made


import megatron.core.transformer.moe.moe_utils as moe_utils

import record_megatron as rm

if not hasattr(moe_utils, "apply_random_logits"):
    moe_utils.apply_random_logits = None
package("transformer_engine", "")
package("transformer_engine.pytorch", ops=types.SimpleNamespace(Sequential=None))
for at in ("", "peft", "utils"):
    package("megatron.bridge" + ("." + at if at else ""), os.path.join(BRIDGE, at) if at else BRIDGE)
package("megatron.bridge.utils.common_utils", print_rank_0=lambda *a, **k: None)
for missing, where in (("get_standard_config_overrides", "megatron.core.optimizer"), ("ParamKey", "megatron.core.optimizer"),
                       ("ParamGroupOverride", "megatron.core.optimizer_param_scheduler"), ("unwrap_model", "megatron.core.utils")):
    if not hasattr(sys.modules[where], missing):
        setattr(sys.modules[where], missing, lambda model, *a, **k: model)
import megatron.bridge.peft.utils as peft_utils
from megatron.bridge.peft.lora import LoRA

peft_utils.HAVE_TE = False      # layers are megatron-core's own

model_of = rm.GPTModel


def exchanged(self, outputs, inputs, opts=None):
    """Lists of tensors, one for each rank: one collective of them all."""
    self.note("all_to_all", [rm.torch.cat([t.reshape(-1) for t in inputs])])
    return rm.base.done(outputs)


rm.Recorder.alltoall = exchanged


def adapted(config, *args, **more):
    made = model_of(config, *args, **more)
    lora = case_now["plan"]["lora"]
    LoRA(dim=lora["rank"], alpha=lora.get("alpha", 32), dropout=lora.get("dropout", 0.0), dropout_position=lora.get("dropout_position", "pre"),
         a2a_experimental=lora.get("a2a_experimental", False), **({"target_modules": lora["target_modules"]} if "target_modules" in lora else {}))([made])
    return made


class Run(rm.Run):
    def __init__(self, case, rank):
        global case_now
        case_now = case
        super().__init__(case, rank)
        of = [p for m in self.model for p in m.parameters()]
        rm.base.log.append(f"# {sum(p.numel() for p in of)} parameters, {sum(p.numel() for p in of if p.requires_grad)} train")


rm.GPTModel, rm.Run = adapted, Run


def cases():
    def lora(name, what, world, grid, model=rm.LLAMA, of={}, **more):
        made = rm.make(name, what, world, model=model, grid=grid, **dict(rm.REDUCED, **more))
        made["plan"].update(train="lora", lora=dict({"rank": 16}, **of))
        return made

    qkv = {"target_modules": ["linear_qkv"]}
    yield lora("d2", "all layers adapted", 2, {})
    yield lora("ddp-d2-acc2", "plain DDP, 2 micro-steps", 2, {}, strategy="ddp", accumulation=2)
    yield lora("d2-qkv", "queries, keys and values alone", 2, {}, of=qkv)
    yield lora("d2-overlap", "buckets of adapters", 2, {}, overlap_grad_reduce=True, overlap_param_gather=True, ddp_bucket_size=4000)
    yield lora("d2-full", "every layer recomputed", 2, {}, recompute="full")
    yield lora("d2-tied", "tied embedding, frozen", 2, {}, model=rm.TIED)
    yield lora("d2-gpt2", "learned positions, biases, tied embedding", 2, {}, model=rm.GPT2)
    for t in (2, 4):
        yield lora(f"t{t}-sp-d2", "tensor and sequence parallelism", 2 * t, rm.tp(t))
        yield lora(f"t{t}-d2", "tensor parallelism alone", 2 * t, rm.tp(t, False))
    for layer in ("qkv", "proj", "fc1", "fc2"):
        yield lora(f"t2-sp-d2-{layer}", f"linear_{layer} alone", 4, rm.tp(2), of={"target_modules": [f"linear_{layer}"]})
        yield lora(f"t2-d2-{layer}", f"linear_{layer} alone, no sequence parallelism", 4, rm.tp(2, False), of={"target_modules": [f"linear_{layer}"]})
    yield lora("t2-sp-d2-a2a", "a2a_experimental", 4, rm.tp(2), of={"a2a_experimental": True})
    yield lora("t2-d2-a2a", "a2a_experimental, which without sequence parallelism does nothing", 4, rm.tp(2, False), of={"a2a_experimental": True})
    yield lora("t2-sp-d2-full", "every layer recomputed", 4, rm.tp(2), recompute="full")
    yield lora("t2-sp-d2-core", "attention's core recomputed", 4, rm.tp(2), recompute="selective")
    yield lora("t2-sp-d2-mlp", "--recompute-modules mlp", 4, rm.tp(2), recompute="selective", recompute_modules=["mlp"])
    yield lora("t2-sp-d2-gpt2", "learned positions, biases, tied embedding", 4, rm.tp(2), model=rm.GPT2)
    yield lora("t2-sp-d2-qwen3", "norms of q and k", 4, rm.tp(2), model=rm.QWEN3)
    yield lora("1f1b-p2-m4-d2", "1F1B", 4, rm.pp(2), layers=4, accumulation=4)
    yield lora("1f1b-p2-m4-d2-tied", "1F1B, tied embedding", 4, rm.pp(2), model=rm.TIED, layers=4, accumulation=4)
    yield lora("1f1b-p2-m4-d2-overlap", "hooks on the first stage, gathers beside forward", 4, rm.pp(2), layers=4, accumulation=4, overlap_grad_reduce=True,
               overlap_param_gather=True, ddp_bucket_size=4000)
    yield lora("interleaved-p2-v2-m4-d2", "interleaved", 4, rm.pp(2, 2), layers=8, accumulation=4, overlap_grad_reduce=True, overlap_param_gather=True)
    yield lora("t2-sp-interleaved-p2-v2-m4-full", "with tensor and sequence parallelism, recomputed", 4, rm.tp(2) | rm.pp(2, 2), layers=8, accumulation=4, recompute="full")
    for method in ("all-gather", "ulysses", "ring") if os.environ.get("TE_SOURCE") else ():
        yield lora(f"c2-{method}", "context parallelism", 2, rm.cp(2, method), kernels="te")
    yield lora("t2-sp-1f1b-p2-m4-qkv", "with tensor and sequence parallelism, queries, keys and values", 4, rm.tp(2) | rm.pp(2), layers=4, accumulation=4, of=qkv)


if __name__ == "__main__":
    rm.FILES = {"adapters": cases}
    failed = rm.main()
    made = os.path.join(sys.argv[1], "adapters.txt")
    if len(sys.argv) == 2:
        text = open(made).read().replace("record_megatron.py", "record_adapters.py", 1)
        open(made, "w").write(text)
    sys.exit(failed)
