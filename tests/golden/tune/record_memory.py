#!/usr/bin/env python3
"""Records PyTorch's own account of the memory of fine-tuning steps: LoRA by PEFT, and frozen tensors.

    python record_memory.py [--only SUBSTRING] [-o memory.jsonl]

As ../memory/record_torch_memory.py records steps in which everything trains, whose machinery this is.
"""
import argparse
import contextlib
import fnmatch
import importlib
import json
import logging
import os
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "memory"))

import record_torch_memory as steps     # replaces this process by one with its shim

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model

WORDS = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout"}
BASES = {"nf4": False, "nf4-double": True}
WIDE = []                               # the plan's adapters are in fp32 beside a model in 16 bits
EXTRAS = []                             # what quantised layers keep beside their parameter
INT8 = []                               # contexts of MatMul8bitLt, which keep their input until the graph goes


class FusedOrNot:
    """bitsandbytes' gemm_4bit as its CUDA backend has it for many rows (_dequant_linear_fallback): a fake tensor has no backend."""
    @staticmethod
    def default(a, b, shape, absmax, blocksize, quant_type, bias=None, absmax_8bit=None, absmax_code=None, absmax_offset=None):
        if absmax_8bit is not None:
            absmax_dq = torch.empty_like(absmax_8bit, dtype=torch.float32)
            absmax = absmax_dq + absmax_offset
        b_dq = torch.empty(shape, dtype=a.dtype, device=a.device)
        return torch.nn.functional.linear(a, b_dq, bias)


def quantise(model, double, storage):
    """Linear layers but the head become bitsandbytes' Linear4bit, with weights as quantize_4bit() would leave them."""
    import bitsandbytes as bnb
    from bitsandbytes.functional import QuantState
    torch.ops.bitsandbytes.gemm_4bit = FusedOrNot
    # FSDP's parameter has lost its class, which bitsandbytes gives back; a fake tensor's it cannot.
    bnb.nn.modules.fix_4bit_weight_quant_state_from_module = lambda layer: setattr(layer.weight, "quant_state", layer.quant_state)
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or module is model.get_output_embeddings():
            continue
        n, blocks = module.weight.numel(), -(-module.weight.numel() // 64)
        make = lambda count, dtype: torch.empty(count, dtype=dtype, device="cuda")
        layer = bnb.nn.Linear4bit.__new__(bnb.nn.Linear4bit)
        torch.nn.Module.__init__(layer)
        layer.in_features, layer.out_features, layer.bias = module.in_features, module.out_features, module.bias
        layer.compute_dtype, layer.compute_type_is_set, layer.support_avx512bf16_for_cpu = torch.bfloat16, True, False
        state2 = QuantState(absmax=make(-(-blocks // 256), torch.float32), code=make(256, torch.float32), blocksize=256, dtype=torch.float32)
        state = QuantState(absmax=make(blocks, torch.uint8 if double else torch.float32), shape=module.weight.shape, dtype=torch.bfloat16,
                           blocksize=64, code=make(16, torch.float32), quant_type="nf4", offset=make((), torch.float32) if double else None,
                           state2=state2 if double else None)
        # A fake tensor can be no Params4bit: a parameter with its attributes.
        layer.weight = torch.nn.Parameter(make((-(-n // (2 * storage.itemsize)), 1), storage), requires_grad=False)
        layer.weight.quant_state = layer.quant_state = state
        layer.weight.compress_statistics, layer.weight.quant_type = double, "nf4"
        EXTRAS.extend([state.absmax, state.code] + ([state.offset, state2.absmax, state2.code] if double else []))
        model.set_submodule(name, layer)
    model.is_loaded_in_4bit = True
    return model


class Library:
    """Stands for bitsandbytes' kernels, which fake tensors cannot enter."""
    def __getattr__(self, name):
        setattr(self, name, lambda *args: 0)
        return getattr(self, name)


class Written:
    """An operator of bitsandbytes that is the Python of its backend; no input has an outlier."""

    def __init__(self, function):
        self.function = function

    def default(self, *args, **kwargs):
        kept = torch.Tensor.__bool__, torch.Tensor.data_ptr
        torch.Tensor.__bool__, torch.Tensor.data_ptr = lambda t: False, lambda t: 0
        try:
            return self.function(*args, **kwargs)
        finally:
            torch.Tensor.__bool__, torch.Tensor.data_ptr = kept

    __call__ = default


def write_int8_operators():
    """8-bit products as bitsandbytes' CUDA backend has them: backends/cuda/ops.py, and where that has none, backends/default/ops.py."""
    import bitsandbytes as bnb
    import bitsandbytes.backends.default.ops as usual
    taken = {}
    register, library = bnb._ops.register_kernel, bnb.cextension.lib
    bnb._ops.register_kernel = lambda name, device: lambda function: taken.__setitem__((name.split("::")[1], device), function)
    bnb.cextension.lib = Library()
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    try:
        importlib.reload(usual)
        source = importlib.import_module("bitsandbytes.backends.cuda.ops")
    finally:
        bnb._ops.register_kernel, bnb.cextension.lib = register, library
    source._cuda_device_of = lambda t: contextlib.nullcontext()
    source.CUBLAS_Context = types.SimpleNamespace(get_instance=lambda: types.SimpleNamespace(get_context=lambda device: 0))
    for name in ("int8_vectorwise_quant", "int8_linear_matmul", "int8_mm_dequant", "int8_scaled_mm", "int8_mixed_scaled_mm"):
        setattr(torch.ops.bitsandbytes, name, Written(taken.get((name, "cuda")) or taken[(name, "default")]))
    from bitsandbytes.autograd._functions import MatMul8bitLt
    if not hasattr(MatMul8bitLt, "written"):
        MatMul8bitLt.written = MatMul8bitLt.forward
        MatMul8bitLt.forward = staticmethod(lambda ctx, *args: (INT8.append(ctx), MatMul8bitLt.written(ctx, *args))[1])


def quantise_int8(model):
    """The same layers become bitsandbytes' Linear8bitLt, with transformers' threshold."""
    import bitsandbytes as bnb
    write_int8_operators()
    logging.disable(logging.WARNING)
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or module is model.get_output_embeddings():
            continue
        layer = bnb.nn.Linear8bitLt.__new__(bnb.nn.Linear8bitLt)
        torch.nn.Module.__init__(layer)
        layer.in_features, layer.out_features, layer.bias, layer.index = module.in_features, module.out_features, module.bias, None
        layer.weight = torch.nn.Parameter(torch.empty(module.weight.shape, dtype=torch.int8, device="cuda"), requires_grad=False)
        layer.weight.CB = layer.weight.SCB = None
        layer.state = bnb.MatmulLtState()
        layer.state.threshold, layer.state.has_fp16_weights, layer.state.use_pool = 6.0, False, True
        layer.state.CB, layer.state.SCB = layer.weight.data, torch.empty(module.out_features, dtype=torch.float32, device="cuda")
        EXTRAS.append(layer.state.SCB)
        model.set_submodule(name, layer)
    model.is_loaded_in_8bit = True
    return model


def quantise_torchao(model):
    """The same layers' weights become torchao's Int8Tensor."""
    from torchao.quantization import Int8Tensor
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or module is model.get_output_embeddings():
            continue
        rows, columns = module.weight.shape
        make = lambda width, dtype: torch.empty(rows, width, dtype=dtype, device="cuda")
        kept = Int8Tensor(make(columns, torch.int8), make(1, torch.float32), [1, columns], torch.bfloat16, zero_point=make(1, torch.int8))
        module.weight = torch.nn.Parameter(kept, requires_grad=False)
    return model


def tune(model, plan):
    EXTRAS.clear()
    if "train" not in plan:
        WIDE.clear()
        return model
    wide = dict(plan.get("lora", {})).pop("autocast_adapter_dtype", plan["dialect"] == "torch-fsdp1")
    pure = plan.get("lora", {}).get("narrow", False)        # adapters in the model's 16 bits, and no autocast
    narrow = pure or (plan.get("base_dtype") and plan["strategy"] == "fsdp" and not wide)
    WIDE[:] = [True] * (plan["train"] == "lora" and bool(plan.get("ddp", {}).get("model_dtype")) and not pure)
    if plan.get("base_dtype") == "int8-torchao":
        model = quantise_torchao(model)
    elif plan.get("base_dtype") == "int8":
        model = quantise_int8(model)
    elif plan.get("base_dtype"):
        model = quantise(model, BASES[plan["base_dtype"]], torch.bfloat16 if plan["strategy"] == "fsdp" else torch.uint8)
    if plan["train"] == "lora":
        arguments = {WORDS.get(k, k): v for k, v in plan.get("lora", {}).items() if k not in ("autocast_adapter_dtype", "narrow")}
        move = torch.nn.Module.to       # adapters are made where they belong, and fake tensors cannot be moved
        torch.nn.Module.to = lambda module, *args, **kwargs: module
        # FSDP2 with packed weights needs all of a unit in one dtype, to which PEFT moves adapters.
        torch.set_default_dtype(torch.bfloat16 if narrow else torch.float32)
        try:
            return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **arguments),
                                  autocast_adapter_dtype=not narrow)
        finally:
            torch.nn.Module.to = move
            torch.set_default_dtype(torch.float32)
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
micro_step, is_autocast_enabled = steps.micro_step, torch.is_autocast_enabled


def with_autocast(model, ids, labels, autocast):
    """A model in 16 bits beside adapters in fp32 is the Trainer's, under autocast.  Under the trackers' modes this says no, although products
    are cast; on a GPU it says yes, and PEFT asks.
    torch.autocast itself hears the truth: it leaves behind what it heard, and backward and Muon would be under autocast too."""
    autocast = autocast or bool(WIDE)
    torch.is_autocast_enabled = lambda *device: (is_autocast_enabled(*device) if sys._getframe(1).f_code.co_filename.endswith("autocast_mode.py")
                                                 else autocast)
    try:
        return micro_step(model, ids, labels, autocast)
    finally:
        for ctx in INT8:                # the graph has gone with the loss, were it not for the tracker's hooks
            ctx.tensors = ctx.tensor_states = None
        INT8.clear()
        torch.is_autocast_enabled = is_autocast_enabled


steps.micro_step = with_autocast
track_external = steps.DDPPeaks.track_external
steps.DDPPeaks.track_external = lambda self, *external: track_external(self, *external, *EXTRAS)
track_inputs = steps.FSDPPeaks.track_inputs
steps.FSDPPeaks.track_inputs = lambda self, inputs: track_inputs(self, (*inputs, *EXTRAS))
steps.shard = lambda model, plan, mesh: shard(tune(model, plan), plan, mesh)
steps.wrap_ddp = lambda model, plan: wrap_ddp(tune(model, plan), plan)


def plan_of(model, lora=None, train="lora", **options):
    plan = steps.plan_of(model, **options)
    plan["train"] = train
    if lora:
        plan["lora"] = lora
    if plan["strategy"] == "ddp" and plan["precision"] == "bf16" and train == "lora":
        plan["ddp"]["model_dtype"] = None       # the model is loaded in fp32
    return plan


def packed_fsdp(model, base, lora, **options):
    return dict(plan_of(model, lora, precision="bf16", model_dtype="bf16", **options), base_dtype=base)


def packed(model, base, lora, narrow=False, **options):
    plan = plan_of(model, lora, strategy="ddp", precision="bf16", **options)
    if base:
        plan["base_dtype"] = base
    plan["ddp"]["model_dtype"] = "bf16" if narrow else None
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
    for base in (None, "nf4", "nf4-double"):
        for narrow in (False, True):
            if base or narrow:
                yield packed("llama-10m", base, {"rank": 8}, narrow, world=4, batch=2, seq=256)
                yield packed("llama-10m", base, every, narrow, world=4, batch=2, seq=256)
                yield packed("llama-8b", base, dict(every, rank=64), narrow, world=2, batch=1, seq=1024)
                yield packed("llama-1b", base, every, narrow, world=2, batch=1, seq=512, accumulation=2, sync=False)
                yield packed("qwen2", base, every, narrow, world=4, batch=2, seq=256)
                yield packed("gemma", base, every, narrow, world=4, batch=2, seq=256)
    yield packed_fsdp("llama-10m", "nf4", every, world=4, batch=2, seq=256)
    yield packed_fsdp("llama-10m", "nf4-double", {"rank": 8}, world=4, batch=2, seq=256, recompute="full")
    yield packed_fsdp("llama-8b", "nf4-double", dict(every, rank=64), world=2, batch=1, seq=1024, recompute="full")
    yield packed("llama-10m", "nf4-double", dict(every, dropout=0.05), world=4, batch=2, seq=256)
    yield packed("llama-10m", "nf4", every, world=4, batch=2, seq=256, kernels="torch-eager")
    for narrow in (False, True):
        yield packed("llama-10m", "int8", {"rank": 8}, narrow, world=4, batch=2, seq=256)
        yield packed("llama-10m", "int8", every, narrow, world=4, batch=2, seq=256)
        yield packed("llama-10m", "int8", dict(every, dropout=0.05), narrow, world=4, batch=2, seq=256, accumulation=2)
        yield packed("qwen2", "int8", every, narrow, world=4, batch=2, seq=256)
        yield packed("llama-8b", "int8", dict(every, rank=64), narrow, world=2, batch=1, seq=1024)
    ao = dict(narrow=True, world=1, batch=2, seq=256)
    yield packed("llama-10m", "int8-torchao", {"rank": 8}, **ao)
    yield packed("llama-10m", "int8-torchao", every, **ao)
    yield packed("llama-10m", "int8-torchao", dict(every, dropout=0.05), **ao, accumulation=2)
    yield packed("qwen2", "int8-torchao", every, **ao)
    yield packed("gemma", "int8-torchao", every, **ao)
    yield packed("llama-8b", "int8-torchao", dict(every, rank=64), narrow=True, world=1, batch=1, seq=1024)
    for family in ("mistral", "qwen2", "qwen3", "gemma", "phi3", "gpt_neox", "opt", "olmo2", "cohere", "starcoder2"):
        yield plan_of(family, every, world=4, batch=2, seq=256)
    for family in ("gemma2", "bloom", "falcon", "mpt"):
        yield plan_of(family, every, world=4, batch=2, seq=256, kernels="torch-eager")


def name_of(plan):
    if "train" not in plan:
        return steps.name_of(plan)
    what = [plan.get("base_dtype", ""), plan.get("ddp", {}).get("model_dtype") or "", "lora"] + ["%s%s" % (k[0], "+".join(v) if isinstance(v, list) else v) for k, v in plan.get("lora", {}).items()]
    return steps.name_of(plan).replace(" pure", "") + " " + (" ".join(w for w in what if w) if plan["train"] == "lora" else "train " + ",".join(plan["train"]))


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--only", default="")
    a.add_argument("--more", action="store_true", help="only what the file lacks, appended")
    a.add_argument("-o", default="memory.jsonl")
    a = a.parse_args()
    steps.without_gpu()
    todo = [p for p in cases() if a.only in name_of(p)]
    head = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__, "models": {}}
    lines = open(a.o).read().splitlines() if a.more else []
    have = {json.loads(line)["name"] for line in lines[1:]}
    head = json.loads(lines[0]) if lines else head
    head["models"].update({p["model"]: steps.MODELS[p["model"]] for p in todo})
    with open(a.o, "w") as out:
        for line in [json.dumps(head)] + lines[1:]:
            print(line, file=out)
        for plan in (p for p in todo if name_of(p) not in have):
            print(json.dumps({"name": name_of(plan), "plan": plan, "steady": steps.run(plan)[1]}), file=out, flush=True)


if __name__ == "__main__":
    main()
