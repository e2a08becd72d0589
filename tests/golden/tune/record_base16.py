#!/usr/bin/env python3
"""Records FSDP whose frozen weights are in 16 bits beside adapters in fp32, as accelerate prepares a model that was loaded in bf16.

    python record_base16.py lists lists/base16.txt          collectives of FSDP2, and of FSDP1 with each adapter matrix a unit
    python record_base16.py device base16.jsonl             memory of FSDP2, and of FSDP1 where nothing is offloaded
    python record_base16.py host base16_host.jsonl          of both with parameters on the host
    python record_base16.py WHICH-mixtures FILE             the same of mixtures of experts: lists/base16_mixtures.txt, base16_mixtures.jsonl, ..._host.jsonl

Collectives are counted as record_lists.py and record_wrapped.py do, the device by record_memory.py and ../memory/record_fsdp1_offload.py,
the host by ../memory/record_offload.py and record_fsdp1_offload.py; FSDP1's steps run under autocast, as the Trainer's do.  What is in which dtype is accelerate's (record_dtypes.py): all that
trains in fp32, the rest as it was loaded.  "base_dtype" nf4 under FSDP1 is bitsandbytes' Linear4bit with bnb_4bit_quant_storage bf16.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "collectives"))

WHICH, MIXED = (sys.argv[1].removesuffix("-mixtures"), sys.argv[1].endswith("-mixtures")) if len(sys.argv) > 1 else ("", False)
if WHICH in ("device", "host"):
    import record_memory as tuned       # replaces this process by one with its shim
from record_lists import ATTENTION, EVERY, LORA, MIXTURES, SAVED, TWO, USUAL

WIDE = dict(EVERY, rank=16)


def widened(model):
    """accelerate's fsdp2_prepare_model() and prepare_model(): what trains is in fp32 whatever PEFT left it in."""
    import torch
    for p in model.parameters():
        if p.requires_grad and p.dtype != torch.float32:
            p.data = p.data.to(torch.float32)
    return model


# ---- collectives

def lists(path, names):
    import record_wrapped as w
    r, build, run, wrapper = w.r, w.build, w.run, w.alone_wrapper
    now = {}

    def tuned_model(config, *args):
        import torch
        model = build(config, *args).to(torch.bfloat16)
        if now["recompute"]:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        return widened(w.tune(model, now))

    def tuned_run(case, rank):
        now.update(case["tune"], recompute=case["checkpoints"])
        ours = ("wrap_adapters", "model_dtype")
        return run(dict(case, plan=dict(case["plan"], recompute="none"), fsdp={k: v for k, v in case["fsdp"].items() if k not in ours}), rank)
    r.build, r.run, r.FullyShardedDataParallel = tuned_model, tuned_run, w.wrapper
    policy = r.MixedPrecisionPolicy     # set_mixed_precision(): without a word gradients are reduced in param_dtype, not in the shards' own
    r.MixedPrecisionPolicy = lambda param_dtype=None, reduce_dtype=None: policy(param_dtype=param_dtype, reduce_dtype=reduce_dtype or param_dtype)
    r.ready_order = lambda names, ready: ""
    for config in MIXTURES.values() if MIXED else (r.LLAMA_TINY, r.GPT2_TINY):
        r.load_classes(config)
    print("peft", w.peft.__version__)
    r.write(path, [c for c in list_cases(r) if not names or c["name"] in names])


def list_cases(r):
    found = []

    def add(name, how, api, config, world, *, fsdp=None, reduce_dtype="fp32", **kw):
        case = r.make(name, "", api, config, world, fsdp=dict(fsdp or {}, model_dtype="bf16"), precision="bf16", reduce_dtype=reduce_dtype, **kw)
        case.update(tune=how, checkpoints=kw.get("recompute") == "full")
        case["plan"].update(how)
        found.append(case)

    def one(name, how, config, world, strategy="FULL_SHARD", fsdp=None, **kw):
        add(name, how, "fsdp1", config, world, fsdp=dict({"sharding_strategy": strategy, "use_orig_params": False, "wrap_adapters": True}, **(fsdp or {})), **kw)
    if MIXED:
        for family in ("mixtral", "qwen3_moe", "gpt_oss", "llama4"):
            one("base16-fsdp1-%s-w4" % family, ATTENTION, MIXTURES[family], 4)
            one("base16-fsdp1-%s-recompute-w3" % family, TWO, MIXTURES[family], 3, recompute="full", clip=1.0)
        return found
    llama, gpt2 = r.LLAMA_TINY, r.GPT2_TINY
    add("base16-fsdp2-llama-lora-w4", LORA, "fsdp2", llama, 4)
    add("base16-fsdp2-llama-usual-w3", USUAL, "fsdp2", llama, 3, clip=1.0)
    add("base16-fsdp2-llama-saved-w4", SAVED, "fsdp2", llama, 4)
    add("base16-fsdp2-llama-reduce16-w2", LORA, "fsdp2", llama, 2, reduce_dtype="bf16")
    add("base16-fsdp2-llama-keep-w4", LORA, "fsdp2", llama, 4, fsdp={"reshard_after_forward": False})
    add("base16-fsdp2-llama-reshard2-w4", LORA, "fsdp2", llama, 4, fsdp={"reshard_after_forward": 2})
    add("base16-fsdp2-llama-hsdp-2x2", LORA, "fsdp2", llama, 4, shard_group=2, cluster="2x2xh100", clip=1.0)
    add("base16-fsdp2-llama-acc3-nosync-w4", LORA, "fsdp2", llama, 4, accumulation=3)
    add("base16-fsdp2-llama-acc3-sync-w4", LORA, "fsdp2", llama, 4, accumulation=3, sync=True)
    add("base16-fsdp2-llama-recompute-w2", USUAL, "fsdp2", llama, 2, recompute="full")
    add("base16-fsdp2-gpt2-usual-w4", USUAL, "fsdp2", gpt2, 4)
    one("base16-fsdp1-llama-lora-w4", LORA, llama, 4)
    one("base16-fsdp1-llama-usual-w3", USUAL, llama, 3, clip=1.0)
    one("base16-fsdp1-llama-reduce16-w2", LORA, llama, 2, reduce_dtype="bf16")
    one("base16-fsdp1-llama-gradop-w2", LORA, llama, 2, strategy="SHARD_GRAD_OP")
    one("base16-fsdp1-llama-noshard-w2", LORA, llama, 2, strategy="NO_SHARD")
    one("base16-fsdp1-llama-hybrid-2x2", LORA, llama, 4, strategy="HYBRID_SHARD", shard_group=2, cluster="2x2xh100")
    one("base16-fsdp1-llama-acc3-nosync-w2", USUAL, llama, 2, accumulation=3)
    one("base16-fsdp1-llama-post-w2", USUAL, llama, 2, fsdp={"backward_prefetch": "BACKWARD_POST"})
    one("base16-fsdp1-llama-recompute-w2", USUAL, llama, 2, recompute="full")
    one("base16-fsdp1-gpt2-usual-w4", USUAL, gpt2, 4)
    return found


# ---- memory

def adapted(plan, lora, base=None):
    plan.update(train="lora", lora=lora)
    if base:
        plan["base_dtype"] = base
    return plan


def two(lora, model="llama-10m", base=None, plan_of=None, **options):
    """A plan of FSDP2."""
    options = dict(dict(precision="bf16", model_dtype="bf16", world=4, batch=2, seq=256), **options)
    pin = options.pop("pin", None)
    plan = tuned.steps.plan_of(model, **options)
    if pin is not None:
        plan["fsdp"].update(cpu_offload=True, pin_memory=pin)
    return adapted(plan, lora, base)


def one(first, lora, model="llama-10m", base=None, offload=False, **options):
    """A plan of FSDP1 whose adapters are units."""
    options = dict(dict(precision="bf16", model_dtype="bf16", world=4, batch=2, seq=256), **options)
    plan = adapted(first.plan_of(model, **options), lora, base)
    plan["fsdp"]["wrap_adapters"] = True
    if not offload:
        plan["fsdp"].pop("cpu_offload")
    return plan


def device_cases(first):
    usual = {"rank": 8}
    saved = {"rank": 8, "modules_to_save": ["embed_tokens", "lm_head"]}
    yield two(WIDE)
    yield two(usual)
    yield two(saved)
    yield two(usual, recompute="full")
    yield two(dict(WIDE, dropout=0.1), kernels="torch-eager")
    yield two(WIDE, accumulation=3, sync=False, batch=1, seq=64)
    yield two(WIDE, accumulation=2)
    yield two(WIDE, reshard=2, clip=1.0, batch=1, seq=64)
    yield two(WIDE, reshard=False)
    yield two(WIDE, world=1)
    yield two(WIDE, world=1, model="llama-15m-gqa-tied", recompute="full", batch=1, seq=64)
    yield two(WIDE, world=16, group=4)
    yield two(WIDE, model="gpt2-10m")
    yield two(WIDE, model="llama-15m-gqa-tied", accumulation=2)
    yield two(WIDE, optimizer_form="fused", clip=1.0, batch=1, seq=64)
    yield two(WIDE, model="qwen2")
    yield two(WIDE, model="gemma")
    yield two(dict(EVERY, rank=64), model="llama-8b", world=8, batch=1, seq=2048, recompute="full")
    yield two(dict(WIDE, autocast_adapter_dtype=True), base="nf4")
    yield two(dict(usual, autocast_adapter_dtype=True), base="nf4-double", recompute="full", clip=1.0)
    yield one(first, WIDE)
    yield one(first, usual, world=3)
    yield one(first, usual, recompute="full")
    yield one(first, WIDE, recompute="full", clip=1.0)
    yield one(first, WIDE, how="SHARD_GRAD_OP")
    yield one(first, WIDE, how="NO_SHARD")
    yield one(first, WIDE, world=8, group=4, how="HYBRID_SHARD")
    yield one(first, WIDE, accumulation=3)
    yield one(first, usual, clip=1.0, backward_prefetch="BACKWARD_POST")
    yield one(first, usual, model="gpt2-10m")
    yield one(first, dict(EVERY, rank=4), model="llama-15m-gqa-tied", backward_prefetch="NO_PREFETCH")
    yield one(first, dict(EVERY, rank=64), model="llama-8b", world=8, batch=1, seq=2048, recompute="full")
    yield one(first, WIDE, orig=True)
    yield one(first, dict(usual, dropout=0.1), orig=True, recompute="full", kernels="torch-eager")
    yield one(first, usual, orig=True, model="llama-15m-gqa-tied", accumulation=2, clip=1.0)
    yield one(first, usual, orig=True, world=3, model_dtype=None)
    yield one(first, WIDE, orig=True, base="nf4-double", recompute="full")
    for base in ("nf4", "nf4-double"):
        yield one(first, WIDE, base=base)
        yield one(first, usual, base=base, recompute="full")
    yield one(first, WIDE, base="nf4-double", how="SHARD_GRAD_OP", accumulation=2)
    yield one(first, usual, base="nf4-double", world=3, clip=1.0)
    yield one(first, dict(EVERY, rank=64), base="nf4-double", model="llama-8b", world=2, batch=1, seq=1024, recompute="full")


def mixture_cases(first, host):
    attention, usual = dict(ATTENTION["lora"], rank=16), dict(TWO["lora"])
    for model in ("mixtral", "qwen3_moe", "gpt_oss", "llama4"):
        kernels = {"kernels": "torch-eager"} if model == "gpt_oss" else {}
        if host:
            yield one(first, attention, model=model, offload=True, base="nf4-double", recompute="full", clip=1.0, **kernels)
            yield one(first, usual, model=model, offload=True, world=3, **kernels)
            continue
        yield one(first, attention, model=model, **kernels)
        yield one(first, usual, model=model, world=3, recompute="full", **kernels)
        yield one(first, attention, model=model, base="nf4-double", recompute="full", clip=1.0, **kernels)
        yield one(first, usual, model=model, orig=True, how="SHARD_GRAD_OP", accumulation=2, **kernels)


def host_cases(first):
    usual = {"rank": 8}
    yield two(WIDE, pin=True)
    yield two(WIDE, pin=False, accumulation=3, batch=1, seq=64)
    yield two(usual, pin=True, recompute="full", clip=1.0)
    yield two(usual, pin=True, world=1)
    yield two(WIDE, pin=True, model="llama-15m-gqa-tied", accumulation=2, sync=False)
    yield two(WIDE, pin=True, world=16, group=4, batch=1, seq=64)
    yield two(dict(WIDE, autocast_adapter_dtype=True), pin=True, base="nf4-double")
    for base in (None, "nf4-double"):
        yield one(first, WIDE, offload=True, base=base)
        yield one(first, usual, offload=True, base=base, recompute="full", clip=1.0)
        yield one(first, WIDE, offload=True, base=base, how="SHARD_GRAD_OP", accumulation=2)
        yield one(first, usual, offload=True, base=base, world=3, backward_prefetch="BACKWARD_POST")
    yield one(first, WIDE, offload=True, world=8, group=4, how="HYBRID_SHARD", batch=1, seq=64)
    yield one(first, WIDE, offload=True, precision="fp32", model_dtype=None, batch=1, seq=64)
    yield one(first, WIDE, offload=True, orig=True, recompute="full")
    yield one(first, usual, offload=True, orig=True, world=3, base="nf4-double")
    yield one(first, usual, offload=True, orig=True, precision="fp32", model_dtype=None, batch=1, seq=64, clip=1.0)


def memory(which, path, only):
    import record_fsdp1_offload as first
    import record_offload as away
    from alone import alone
    from peft.utils.other import fsdp_auto_wrap_policy
    steps = tuned.steps
    tune, shard1, shard2, offload = tuned.tune, first.shard, away.shard, first.CPUOffload
    tuned.tune = lambda model, plan: widened(tune(model, plan))

    def wrapped(model, plan, groups):
        model = tuned.tune(model, plan)
        # The Trainer's autocast: record_wrapped.py says why.  It makes LayerNorm's results fp32, which is not planned.
        tuned.WIDE[:] = [True] * (plan["precision"] == "bf16" and "gpt2" not in plan["model"])
        on_host = plan["fsdp"].get("cpu_offload", False)
        first.ModuleWrapPolicy = lambda classes: fsdp_auto_wrap_policy(model)
        first.CPUOffload = lambda offload_params: offload(offload_params=True) if on_host else None
        return shard1(model, dict(plan, fsdp=dict({k: v for k, v in plan["fsdp"].items() if k != "wrap_adapters"}, cpu_offload=on_host)), groups)
    first.shard = wrapped
    away.shard = lambda model, plan, mesh: shard2(tuned.tune(model, plan), plan, mesh)
    host = which == "host"
    if MIXED:
        import torch_mixtures as mixtures
        mixtures.take_grouped_products()
        steps.MODELS.update(mixtures.MIXTURES)
    plans = list(mixture_cases(first, host) if MIXED else (host_cases if host else device_cases)(first))
    of = {"torch-fsdp1": first, "torch": away if host else steps}
    names = [of[p["dialect"]].name_of(p).replace(" pure", "") + tuned.name_of(p)[len(steps.name_of(p).replace(" pure", "")):] for p in plans]
    todo = [(n, p) for n, p in zip(names, plans) if only in n]
    if todo:
        first.setup()
    have = {json.loads(line).get("name") for line in open(path)} if os.path.exists(path) else set()
    with open(path, "a") as out:
        if not have:
            print(json.dumps({"torch": steps.torch.__version__, "transformers": tuned.transformers.__version__, "peft": tuned.peft.__version__,
                              "optimizer": away.LOOPS, "models": {p["model"]: steps.MODELS[p["model"]] for p in plans}}), file=out)
        for name, plan in todo:
            if name not in have:
                print(name, file=sys.stderr, flush=True)
                print(json.dumps({"name": name, "plan": plan, "steady": alone(of[plan["dialect"]].run, plan)}), file=out, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3 or WHICH not in ("lists", "device", "host"):
        sys.exit(__doc__)
    if WHICH == "lists":
        lists(sys.argv[2], sys.argv[3:])
    else:
        memory(WHICH, sys.argv[2], " ".join(sys.argv[3:]))
