#!/usr/bin/env python3
"""Records the collectives of FSDP1 where PEFT's adapters are units of their own, and the memory of such steps.

    python record_wrapped.py lists/wrapped.txt [CASE ...]
    python record_wrapped.py memory wrapped.jsonl           what ../memory/record_fsdp1_offload.py counts of the device, without offload

transformers' Trainer gives FullyShardedDataParallel PEFT's fsdp_auto_wrap_policy (peft/utils/other.py): beside each block every module
without children whose weight trains.  Models, the process group that writes down what is issued and the format are those of
record_lists.py; `"fsdp": {"wrap_adapters": true}` is how a plan says it.  Blocks are checkpointed by transformers' own layers, inside of
their unit, as gradient_checkpointing_enable() does it.

In 16 bits the Trainer has autocast as well, and needs it: an adapter's own unit is resharded when PEFT asks for the dtype of its weight
(_cast_input_dtype), which is fp32 in the first step, and with use_orig_params in each.  The adapter's input is cast to that, and without
autocast its product fails ("expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16"; torch 2.15, PEFT 0.21.2, two CPU
ranks).  Fake tensors do not ask: without autocast the second step of use_orig_params False is that of autocast.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "collectives"))

if sys.argv[1:2] == ["memory"]:
    import record_memory as tuned       # replaces this process by one with its shim
import peft
import record_torch as r
from peft.utils.other import fsdp_auto_wrap_policy
from record_lists import EVERY, LORA, USUAL, tune

DOWN = {"train": "lora", "lora": {"rank": 4, "target_modules": ["down_proj", "o_proj"]}}
now = {}
build, run, alone_wrapper = r.build, r.run, r.FullyShardedDataParallel


def tuned_model(config, *args):
    model = build(config, *args)
    if now["recompute"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return tune(model, now)


def wrapper(model, *args, **kw):
    kw["auto_wrap_policy"] = fsdp_auto_wrap_policy(model)
    model = alone_wrapper(model, *args, **kw)
    if kw.get("mixed_precision") and kw["mixed_precision"].param_dtype == r.torch.bfloat16:
        model.forward = r.torch.autocast("cpu", r.torch.bfloat16)(model.forward)
    return model


def tuned_run(case, rank):
    now.update(case["tune"], recompute=case["checkpoints"])
    plan = dict(case["plan"], recompute="none")         # by the model, not by a wrapper
    return run(dict(case, plan=plan, fsdp={k: v for k, v in case["fsdp"].items() if k != "wrap_adapters"}), rank)


def cases():
    found = []

    def add(name, how, config, world, orig=False, strategy="FULL_SHARD", fsdp=None, **kw):
        options = dict({"sharding_strategy": strategy, "use_orig_params": orig, "wrap_adapters": True}, **(fsdp or {}))
        case = r.make(name, "", "fsdp1", config, world, fsdp=options, **kw)
        case.update(tune=how, checkpoints=kw.get("recompute") == "full")
        case["plan"].update(how)
        found.append(case)
    llama, gpt2 = r.LLAMA_TINY, r.GPT2_TINY
    add("wrapped-llama-lora-w4", LORA, llama, 4)
    add("wrapped-llama-lora-orig-w4", LORA, llama, 4, orig=True)
    add("wrapped-llama-usual-w3", USUAL, llama, 3)
    add("wrapped-llama-usual-orig-w3", USUAL, llama, 3, orig=True, clip=1.0)
    add("wrapped-llama-down-w2", DOWN, llama, 2)
    add("wrapped-llama-lora-gradop-w2", LORA, llama, 2, strategy="SHARD_GRAD_OP")
    add("wrapped-llama-lora-noshard-w2", LORA, llama, 2, strategy="NO_SHARD")
    add("wrapped-llama-lora-hybrid-2x2", LORA, llama, 4, strategy="HYBRID_SHARD", shard_group=2, cluster="2x2xh100")
    add("wrapped-llama-lora-bf16-w3", LORA, llama, 3, precision="bf16", clip=1.0)
    add("wrapped-llama-usual-acc3-nosync-w2", USUAL, llama, 2, accumulation=3)
    add("wrapped-llama-usual-acc3-sync-w2", USUAL, llama, 2, accumulation=3, sync=True)
    add("wrapped-llama-usual-post-w2", USUAL, llama, 2, fsdp={"backward_prefetch": "BACKWARD_POST"})
    add("wrapped-llama-usual-none-w2", USUAL, llama, 2, fsdp={"backward_prefetch": None})
    add("wrapped-gpt2-usual-w4", USUAL, gpt2, 4)
    add("wrapped-gpt2-every-orig-w2", {"train": "lora", "lora": EVERY}, gpt2, 2, orig=True)
    add("wrapped-llama-usual-recompute-w2", USUAL, llama, 2, recompute="full")
    add("wrapped-llama-lora-recompute-w2", LORA, llama, 2, recompute="full")
    add("wrapped-llama-lora-recompute-gradop-w2", LORA, llama, 2, strategy="SHARD_GRAD_OP", recompute="full")
    return found


def memory_cases(first):
    for precision in ("fp32", "bf16"):
        small = dict(precision=precision, world=4, batch=2, seq=256)
        for orig in (False, True)[:1 if precision == "bf16" else 2]:       # in bf16 it is refused
            yield first.plan_of("llama-10m", orig=orig, **small), dict(EVERY, rank=16)
        yield first.plan_of("llama-10m", **dict(small, world=3)), {"rank": 8}
        yield first.plan_of("llama-10m", how="SHARD_GRAD_OP", **small), dict(EVERY, rank=16)
        yield first.plan_of("llama-10m", accumulation=3, **small), dict(EVERY, rank=16)
        yield first.plan_of("llama-10m", clip=1.0, backward_prefetch="BACKWARD_POST", **small), {"rank": 8}
        yield first.plan_of("gpt2-10m", **small), {"rank": 8}
        yield first.plan_of("llama-15m-gqa-tied", backward_prefetch="NO_PREFETCH", **small), dict(EVERY, rank=4)
    yield first.plan_of("llama-8b", precision="bf16", world=8, batch=1, seq=2048), dict(EVERY, rank=64)


def memory(path):
    import json
    import record_fsdp1_offload as first
    import record_torch_memory as steps

    def shard(model, plan, groups):
        model = tuned.tune(model, plan)
        first.ModuleWrapPolicy = lambda classes: fsdp_auto_wrap_policy(model)
        first.CPUOffload = lambda offload_params: None
        return usual(model, dict(plan, fsdp=dict({k: v for k, v in plan["fsdp"].items() if k != "wrap_adapters"}, cpu_offload=False)), groups)
    usual, first.shard = first.shard, shard
    first.without_gpu()
    plans = []
    for plan, lora in memory_cases(first):
        plan["fsdp"].pop("cpu_offload")
        plan.update(train="lora", lora=lora)
        plan["fsdp"]["wrap_adapters"] = True
        plans.append(plan)
    with open(path, "w") as out:
        print(json.dumps({"torch": steps.torch.__version__, "transformers": r.transformers.__version__, "peft": peft.__version__,
                          "models": {p["model"]: steps.MODELS[p["model"]] for p in plans}}), file=out)
        for plan in plans:
            name = first.name_of(dict(plan, fsdp=dict(plan["fsdp"], cpu_offload=True))) + " lora r%d" % plan["lora"]["rank"]
            steady = r.alone(first.run, plan)
            print(json.dumps({"name": name, "plan": plan, "steady": {k: steady[k] for k in ("peak_total", "after")}}), file=out, flush=True)


def main(path, names):
    r.build, r.run, r.FullyShardedDataParallel = tuned_model, tuned_run, wrapper
    r.ready_order = lambda names, ready: ""
    for config in (r.LLAMA_TINY, r.GPT2_TINY):
        r.load_classes(config)
    print("peft", peft.__version__)
    r.write(path, [c for c in cases() if not names or c["name"] in names])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "memory":
        memory(sys.argv[2])
    else:
        main(sys.argv[1], sys.argv[2:])
