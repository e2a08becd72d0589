#!/usr/bin/env python3
"""Records PyTorch's own account of the memory of a training step with torchao's float8 linear layers.

    python record_steps.py [--only SUBSTRING] [-o memory.jsonl]        torch 2.15.0, transformers 5.23.0, torchao 0.18.0, no GPU

As ../grid/record_memory.py, whose trackers, models and lines these are; linear layers are converted before anything wraps them."""
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "memory"), os.path.join(HERE, "..", "grid"), HERE]

import record_torch_memory as base      # starts this script again, with its library before torch's

from torch.distributed.tensor import DTensor
from torchao.float8.float8_training_tensor import Float8TrainingTensor

from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor
from float8 import after_step, convert, tensor_styles

spec = importlib.util.spec_from_file_location("grid_memory", os.path.join(HERE, "..", "grid", "record_memory.py"))
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)

NO_GRID = {"tensor": 1}
# Few tokens to know, so that blocks are at the peak, not the head.
plain.MODELS["llama-few"] = dict(plain.MODELS["llama-8m"], vocab_size=256)
plain.MODELS["llama-8b-few"] = dict(plain.MODELS["llama-8b-4"], vocab_size=1024)
plain.MODELS["qwen2-few"] = dict(plain.MODELS["qwen2-small"], vocab_size=256)
plain.MODELS["qwen3-few"] = dict(plain.MODELS["qwen3-small"], vocab_size=256)
import grid
STYLES = grid.tensor_plan


def inner_tensor(t):
    """What lies in memory: a rank's own of a DTensor, what a collective will give, the bytes of a float8 tensor."""
    if isinstance(t, DTensor):
        return inner_tensor(t._local_tensor)
    if isinstance(t, Float8TrainingTensor):
        return inner_tensor(t._data)
    return inner_tensor(t.elem) if hasattr(t, "elem") else t


class Saved(plain.Saved):
    @staticmethod
    def key(t):
        return inner_tensor(t).untyped_storage()._cdata

    def pack(self, t):
        super().pack(inner_tensor(t))
        return t


plain.Saved = Saved


def scales_are_there():
    """__tensor_flatten__ asks whether a scale is there by its truth: of a fake tensor that is a question about its value."""
    def flatten(self):
        there = ["_precomputed_scale"] if self._precomputed_scale is not None else []
        return ["_tensor"] + there, {"mm_config": self._linear_mm_config, "dtype": self._dtype}
    WeightWithDynamicFloat8CastTensor.__tensor_flatten__ = flatten


def converts():
    """Before the model is cut."""
    inner = plain.wrap

    def wrap(model, plan, sizes, mesh):
        return inner(convert(model, plan), plan, sizes, mesh)
    plain.wrap = wrap
    step = plain.Run.step

    def stepped(self, *args, **kwargs):
        step(self, *args, **kwargs)
        after_step(self.model, self.plan)
    plain.Run.step = stepped


def plan_of(model, world, recipe, tensor=1, gather=None, filtered=None, **options):
    grid_of = plain.tp(tensor) if tensor > 1 else NO_GRID
    plan = plain.plan_of(model, world, grid_of, **options)
    plan["fp8"] = recipe
    if filtered is not None:
        plan["fp8_filter"] = filtered
    if gather:
        plan["fsdp"] = dict(plan["fsdp"], enable_fsdp_float8_all_gather=True, precompute_float8_dynamic_scale_for_fsdp=gather == "precomputed")
    return plan


def name_of(p):
    gather = p["fsdp"].get("enable_fsdp_float8_all_gather") and ("precomputed" if p["fsdp"]["precompute_float8_dynamic_scale_for_fsdp"] else "gathered")
    return " ".join([plain.name_of(p), p["fp8"]] + [gather or "", ",".join(p.get("fp8_filter", []))]).strip()


def cases():
    small = "llama-few"
    for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
        yield plan_of(small, 4, recipe, batch=4)
        yield plan_of(small, 4, recipe, batch=2, recompute="full")
        yield plan_of("llama-8b-few", 8, recipe, batch=1, seq=4096)
        yield plan_of("llama-8b-few", 8, recipe, batch=1, seq=2048, recompute="full")
        yield plan_of(small, 4, recipe, tensor=2, batch=2)
        yield plan_of("llama-8b-few", 16, recipe, tensor=8, batch=1, seq=8192)
    yield plan_of(small, 4, "tensorwise", batch=4, recompute="op")
    yield plan_of("llama-8b-few", 8, "tensorwise", batch=1, seq=4096, recompute="op")
    for gather in ("gathered", "precomputed"):
        yield plan_of(small, 4, "tensorwise", gather=gather, batch=4)
        yield plan_of("llama-8b-few", 8, "tensorwise", gather=gather, batch=1, seq=512)
        yield plan_of("llama-8b-few", 8, "tensorwise", gather=gather, batch=1, seq=4096, recompute="full")
        yield plan_of(small, 8, "tensorwise", tensor=2, gather=gather, batch=2)
    yield plan_of(small, 8, "tensorwise", gather="precomputed", batch=2, group=4)
    yield plan_of(small, 4, "tensorwise", gather="precomputed", batch=1, seq=64, accumulation=2)
    yield plan_of(small, 4, "tensorwise", batch=2, fsdp={"reshard_after_forward": False})
    yield plan_of(small, 4, "tensorwise", batch=2, filtered=["none"])
    yield plan_of(small, 4, "tensorwise", batch=2, filtered=["lm_head", "mlp"])
    yield plan_of(small, 8, "tensorwise", tensor=4, batch=2, recompute="full")
    yield plan_of("qwen3-few", 4, "tensorwise", batch=2)
    kept = {"fsdp": {"reshard_after_forward": True, "model_dtype": "bf16"}}
    for gather in (None, "gathered", "precomputed"):
        yield plan_of(small, 4, "tensorwise", gather=gather, batch=2, **kept)
        yield plan_of("llama-8b-few", 8, "tensorwise", gather=gather, batch=1, seq=512, **kept)
        yield plan_of("llama-8b-few", 8, "tensorwise", gather=gather, batch=1, seq=4096, recompute="full", **kept)
        yield plan_of("qwen2-few", 4, "tensorwise", gather=gather, batch=2, **kept)
        yield plan_of("qwen2-few", 4, "tensorwise", gather=gather, batch=2, recompute="full")
    yield plan_of("qwen2-few", 4, "rowwise", batch=2)


def run(plan):
    grid.tensor_plan = STYLES
    tensor_styles(plan)
    return plain.run(plan)


def main():
    import torchao
    args = plain.options(__doc__, "memory.jsonl")
    base.without_gpu()
    plain.meshes_are_real()
    plain.shapes_are_not_counted()
    scales_are_there()
    converts()
    plain.record(args.o, [p for p in cases() if args.only in name_of(p)], name_of, run, torchao=torchao.__version__)


if __name__ == "__main__":
    main()
