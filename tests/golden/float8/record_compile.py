#!/usr/bin/env python3
"""Records what torch.compile() makes of a transformer block with torchao's float8 linear layers: products, collectives, what is kept.

    python record_compile.py -o compile.jsonl           torch 2.15.0, transformers 5.23.0, torchao 0.18.0, no GPU

As ../grid/record_compile.py, whose lines these are, with the recipe: "scaled_mm" are products of 8-bit floats, "all_reduce elements".
"kept": dtype and elements of each tensor that forward keeps, the block's output among them."""
import argparse
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "memory"), os.path.join(HERE, "..", "grid"), HERE]

import record_torch_memory as base      # starts this script again, with its library before torch's

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from float8 import convert, tensor_styles

spec = importlib.util.spec_from_file_location("grid_compile", os.path.join(HERE, "..", "grid", "record_compile.py"))
plain = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)
import grid
STYLES = grid.tensor_plan
PLAN = {}
CALL = plain.call


def call(node):
    name = str(node.target)
    if "_scaled_mm" in name:
        return "scaled_mm " + plain.by(*node.args[:2])
    if "all_reduce" in name:
        return "all_reduce %d" % plain.numel(node)
    if "all_gather_into_tensor" in name:
        return "all_gather %s %d" % (str(node.meta["val"].dtype).removeprefix("torch."), plain.numel(node))
    return CALL(node)


def kept(graph):
    results = [n for n in graph.graph.nodes if n.op == "output"][0].args[0]
    given = {n for n in graph.graph.nodes if n.op == "placeholder"}
    return ["%s %s" % (str(n.meta["val"].dtype).removeprefix("torch."), "x".join(map(str, n.meta["val"].shape)))
            for n in results if hasattr(n, "meta") and n not in given and hasattr(n.meta.get("val"), "dtype")]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("-o", default="compile.jsonl")
    args.add_argument("--only", default="")
    args = args.parse_args()
    base.without_gpu()
    plain.call = call
    cut = plain.cut_by_tensors
    seen = []
    calls_of = plain.calls

    def calls(graph):
        seen.append(kept(graph))
        return calls_of(graph)
    plain.calls = calls

    def converted(model, sizes, mesh):
        convert(model, PLAN)
        if sizes.tensor > 1:
            cut(model, sizes, mesh)
    plain.cut_by_tensors = converted
    plain.meshes_are_real()
    base.PLANNED["capability"] = 9
    torch.nn.functional.scaled_dot_product_attention = base.SDPA
    dist.is_nccl_available = lambda: True           # the pass asks
    with open(args.o, "w") as out:
        print(json.dumps({"models": {m: base.MODELS[m] for m in ("llama-8b", "qwen3")}}, separators=(",", ":")), file=out)
        for model, batch, seq in (("llama-8b", 1, 512), ("llama-8b", 2, 512)):
            for tensor in (1, 2):
                for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
                    for how in ("none", "op", "full"):
                        name = f"{model} {batch} {seq} t{tensor} {recipe} {how}"
                        if args.only not in name:
                            continue
                        PLAN.update({"fp8": recipe, "fsdp": {}})
                        grid.tensor_plan = STYLES
                        tensor_styles(PLAN)
                        seen.clear()
                        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2 * tensor)
                        try:
                            lines = plain.graphs_of(model, batch, seq, tensor, how)
                        except Exception as e:
                            import traceback
                            traceback.print_exc()
                            print(json.dumps({"not recorded": name, "why": repr(e)[:300]}), file=out, flush=True)
                            dist.destroy_process_group()
                            continue
                        print(name, type(lines), str(lines)[:3000], seen[:1], file=sys.stderr)
                        print(json.dumps({"name": name, "lines": lines, "kept": seen[:1]}, default=str), file=out, flush=True)
                        dist.destroy_process_group()


if __name__ == "__main__":
    main()
