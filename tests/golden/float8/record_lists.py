#!/usr/bin/env python3
"""Records the collectives that PyTorch issues with torchao's float8 linear layers, FSDP2 and tensor parallelism.

    python record_lists.py lists.txt [NAME ...]         torch 2.15.0, transformers 5.23.0, torchao 0.18.0; a minute

As ../grid/record_collectives.py, whose process group, phases and format these are; products are emulated (Float8LinearConfig.emulate), since
a CPU has none of 8-bit floats: what is cast, reduced and gathered is the same."""
import importlib.util
import os
import sys
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from float8 import after_step, convert, tensor_styles

import torch

spec = importlib.util.spec_from_file_location("grid_lists", os.path.join(HERE, "..", "grid", "record_collectives.py"))
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)
plain.base.DTYPES.update({torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8"})
import grid
STYLES = grid.tensor_plan


def converts():
    inner, step = plain.wrap, plain.Run.step

    def wrap(model, plan, sizes, mesh):
        grid.tensor_plan = STYLES
        tensor_styles(plan)
        model = model.to(torch.bfloat16) if plan["fsdp"].get("model_dtype") else model
        return inner(convert(model, plan, emulate=True), plan, sizes, mesh)

    def stepped(self):
        step(self)
        for part in self.parts:
            after_step(part, self.plan)
    plain.wrap, plain.Run.step = wrap, stepped


WIDE = dict(plain.LLAMA, num_key_value_heads=8, intermediate_size=192, vocab_size=256)


def case(name, what, world, recipe, tensor=1, gather=None, **options):
    fsdp = {"reshard_after_forward": True}
    if gather:
        fsdp |= {"enable_fsdp_float8_all_gather": True, "precompute_float8_dynamic_scale_for_fsdp": gather == "precomputed"}
    fsdp |= options.pop("fsdp", {})
    plan = {"dpx_plan": 1, "model": WIDE, "cluster": "%dxh100" % world, "strategy": "fsdp", "dialect": "torch", "kernels": "torch-sdpa", "seq": 16,
            "micro_batch": 2, "accumulation": 1, "precision": "bf16", "reduce_dtype": "fp32", "recompute": "none", "unit": "block", "clip": None,
            "sync_every_micro_step": True, "fp8": recipe, "fsdp": fsdp} | options
    if tensor > 1:
        plan["parallel"] = {"tensor": tensor, "sequence": True, "loss_parallel": True} | plan.get("parallel", {})
    return {"name": name, "what": what, "world": world, "plan": plan}


def cases():
    yield case("fsdp-tensorwise", "gathers in bf16", 4, "tensorwise")
    yield case("fsdp-rowwise", "gathers in bf16", 4, "rowwise")
    yield case("fsdp-gathered", "float8 gathers, a scale at a time", 4, "tensorwise", gather="gathered")
    yield case("fsdp-precomputed", "float8 gathers, all scales behind the optimizer", 4, "tensorwise", gather="precomputed")
    yield case("fsdp-precomputed-acc", "two micro-steps", 4, "tensorwise", gather="precomputed", accumulation=2)
    yield case("fsdp-gathered-keep", "not resharded after forward", 4, "tensorwise", gather="gathered", fsdp={"reshard_after_forward": False})
    yield case("hsdp-gathered", "a scale at a time, in groups of 2", 4, "tensorwise", gather="gathered", shard_group=2)
    yield case("hsdp-precomputed", "in groups of 2", 4, "tensorwise", gather="precomputed", shard_group=2)
    yield case("fsdp-precomputed-clip", "with clipping", 4, "tensorwise", gather="precomputed", clip=1.0)
    yield case("fsdp-filtered", "the MLP left out: its weights travel in bf16 beside", 4, "tensorwise", gather="gathered", fp8_filter=["lm_head", "mlp"])
    yield case("fsdp-gathered-kept", "parameters in bf16: largest values, too", 4, "tensorwise", gather="gathered", fsdp={"model_dtype": "bf16"})
    yield case("fsdp-precomputed-kept", "parameters in bf16: all of one list", 4, "tensorwise", gather="precomputed", fsdp={"model_dtype": "bf16"})
    yield case("tensor-tensorwise", "tensor 2, activations gathered in float8", 4, "tensorwise", tensor=2)
    yield case("tensor-rowwise", "tensor 2, activations gathered in bf16", 4, "rowwise", tensor=2)
    yield case("tensor-gw-hp", "tensor 2, weights' gradients in bf16", 4, "rowwise_with_gw_hp", tensor=2)
    yield case("tensor-gathered", "tensor 2, weights gathered in float8", 4, "tensorwise", tensor=2, gather="gathered")
    yield case("tensor-precomputed", "tensor 2, all scales behind the optimizer", 4, "tensorwise", tensor=2, gather="precomputed")
    yield case("tensor-full", "tensor 2, blocks recomputed", 4, "tensorwise", tensor=2, gather="precomputed", recompute="full")
    yield case("pipeline-precomputed", "pipeline of 2, 1F1B", 4, "tensorwise", gather="precomputed", micro_batch=1, accumulation=4,
               sync_every_micro_step=False, fsdp={"reshard_after_forward": False},
               parallel={"pipeline": 2, "pipeline_schedule": "1f1b", "first_stage_less_layers": 0, "last_stage_less_layers": 0})


def main():
    warnings.filterwarnings("ignore")
    converts()
    with open(sys.argv[1], "w") as out:
        for c in cases():
            if sys.argv[2:] and c["name"] not in sys.argv[2:]:
                continue
            try:
                print("\n".join(plain.recording(c)), file=out, flush=True)
            except RuntimeError as e:
                print(c["name"], "not recorded:", str(e)[-1500:], file=sys.stderr)
                print("# %s: not recorded: %s" % (c["name"], str(e).strip().splitlines()[-1]), file=out, flush=True)


if __name__ == "__main__":
    main()
