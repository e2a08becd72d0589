#!/usr/bin/env python3
"""Records the graphs of a tensor-parallel block under torch.compile(): products, attention, collectives, what is kept.

    python record_compile.py -o compile.jsonl           torch 2.15.0, transformers 5.23.0, no GPU; ten minutes

A block of each model is cut by torchtitan's plan (grid.py), wrapped in a checkpoint where the case recomputes, and compiled
with fullgraph=True on fake CUDA tensors and a fake process group: Dynamo, AOTAutograd, inductor's decompositions and its
partitioner, as torchtitan's apply_compile() has it.  A line a case:

    {"model", "batch", "seq", "tensor", "recompute", "async",
     "saved": bytes, "forward": [...], "backward": [...]}

saved: as ../memory/record_torch_compile.py counts it: storages among forward's results that are no inputs, each rounded up to
512 bytes.  The lists have the graph's calls in order: "mm rows x inner x columns", "attention", "all_gather elements",
"reduce_scatter elements" (of the whole buffer).  async: inductor's micro-pipeline pass ran over the graph (after its own
passes, as with _micro_pipeline_tp): "gather_mm elements: ..." and "mm_scatter elements: ..." are its fused operators.
"""
import argparse
import copy
import functools
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "memory"))
import record_torch_memory as base
from record_memory import meshes_are_real
from grid import Sizes, cut_by_tensors, meshes_of, recompute

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import transformers
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

MODELS = ("llama-10m", "llama-8b", "qwen2", "qwen3", "mistral")


def numel(node):
    return node.meta["val"].numel()


def by(a, b):
    a, b = a.meta["val"], b.meta["val"]
    return "%d x %d x %d" % (a.numel() // a.shape[-1], a.shape[-1], b.shape[-1])


def call(node):
    name = str(node.target)
    if name.startswith("aten.mm."):
        return "mm " + by(*node.args)
    if name.startswith("aten.addmm."):
        return "mm " + by(*node.args[1:3])
    if "scaled_dot_product" in name:
        return "attention"
    if "fused_all_gather_matmul" in name:
        shard, weights = node.args[0], node.args[1]
        ranks = dist.distributed_c10d._get_group_size_by_name(node.args[3])
        rows = numel(shard) * ranks // shard.meta["val"].shape[-1]
        return "gather_mm %d: %s" % (numel(shard) * ranks, ", ".join("%d x %d x %d" % (
            rows, shard.meta["val"].shape[-1], w.meta["val"].shape[-1]) for w in weights))
    if "fused_matmul_reduce_scatter" in name:
        a, b = node.args[0], node.args[1]
        whole = a.meta["val"].numel() // a.meta["val"].shape[-1] * b.meta["val"].shape[-1]
        return "mm_scatter %d: %s" % (whole, by(a, b))
    if "all_gather_into_tensor" in name:
        return "all_gather %d" % numel(node)
    if "reduce_scatter_tensor" in name:
        return "reduce_scatter %d" % numel(node.args[0])
    return None


def calls(graph):
    return [c for n in graph.graph.nodes if n.op == "call_function" and (c := call(n))]


def saved(graph):
    storage = lambda n: n.meta["val"].untyped_storage() if hasattr(n.meta.get("val"), "untyped_storage") else None
    given = {storage(n)._cdata for n in graph.graph.nodes if n.op == "placeholder" and storage(n) is not None}
    results = [n for n in graph.graph.nodes if n.op == "output"][0].args[0]
    kept = {storage(n)._cdata: storage(n) for n in results if hasattr(n, "meta") and storage(n) is not None}
    return sum(-(-s.nbytes() // 512) * 512 for key, s in kept.items() if key not in given)


def pipelined(graph, fake):
    """inductor's passes over a copy of a forward or backward graph, the last of which is micro_pipeline_tp_pass()."""
    graph = copy.deepcopy(graph)
    with symmetric._test_mode(), config.patch(_micro_pipeline_tp=True), V.set_fake_mode(fake):
        view_to_reshape(graph)
        post_grad_passes(graph, is_inference=False)
    return graph


def attention(*args, **kwargs):
    base.GPU.value = base.PLANNED["capability"]
    try:
        return base.SDPA(*args, **kwargs)
    finally:
        base.GPU.value = 0


def graphs_of(model, batch, seq, tensor, how):
    plan = {"parallel": {"tensor": tensor}, "strategy": "fsdp", "recompute": how}
    sizes = Sizes(plan, 2 * tensor)
    mesh, _ = meshes_of(sizes, "cuda")
    fake, graphs = FakeTensorMode(allow_non_fake_inputs=True), []
    torch._dynamo.reset()
    with fake, torch.device("cuda"):
        cfg = transformers.AutoConfig.for_model(**dict(base.MODELS[model], num_hidden_layers=1, tie_word_embeddings=False))
        cfg.bos_token_id = cfg.eos_token_id = cfg.pad_token_id = None
        cfg.use_cache = False
        whole = transformers.AutoModelForCausalLM.from_config(cfg, attn_implementation="sdpa", dtype=torch.bfloat16).train()
        cut_by_tensors(whole, sizes, mesh["tp"])
        x = torch.empty(batch, seq // tensor, cfg.hidden_size, dtype=torch.bfloat16, requires_grad=True)
        tables = [t.detach() for t in whole.base_model.rotary_emb(x, torch.arange(seq)[None])]
        layers = [whole.model.layers[0]]
        recompute(plan, layers)

        def keep(graph, _inputs):
            graphs.append(graph)
            return graph

        compile_graph = aot_autograd(fw_compiler=keep, bw_compiler=keep, decompositions=select_decomp_table(),
                                     partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"))

        def backend(graph, inputs):
            for part in graph.modules():
                if isinstance(part, torch.fx.GraphModule):
                    for node in part.graph.nodes:
                        if "built-in function scaled_dot_product" in str(node.target):
                            node.target = attention
                    part.recompile()
            return compile_graph(graph, inputs)

        out = torch.compile(layers[0], fullgraph=True, backend=backend)(x, position_embeddings=tuple(tables))
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        return graphs, [pipelined(g, fake) for g in graphs]


def cases():
    for batch, seq in ((1, 512), (4, 256)):
        for how in ("none", "op", "full"):
            yield "llama-10m", batch, seq, 2, how
            yield "llama-10m", batch, seq, 4, how
            yield "llama-8b", batch, seq, 8, how
            yield "mistral", batch, seq, 2, how
            yield "qwen2", batch, seq, 2, how
            yield "qwen3", batch, seq, 2, how


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--only", default="")
    args.add_argument("-o", default="compile.jsonl")
    args = args.parse_args()
    base.without_gpu()
    meshes_are_real()
    base.PLANNED["capability"] = 9
    torch.nn.functional.scaled_dot_product_attention = base.SDPA
    dist.is_nccl_available = lambda: True           # the pass asks
    with open(args.o, "w") as out:
        print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__,
                          "models": {m: base.MODELS[m] for m in MODELS}}, separators=(",", ":")), file=out)
        for model, batch, seq, tensor, how in cases():
            if args.only not in "%s %d %d t%d %s" % (model, batch, seq, tensor, how):
                continue
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2 * tensor)
            try:
                plain, fused = graphs_of(model, batch, seq, tensor, how)
            finally:
                dist.destroy_process_group()
            for is_async, (forward, backward) in ((False, plain), (True, fused)):
                line = {"model": model, "batch": batch, "seq": seq, "tensor": tensor, "recompute": how, "async": is_async,
                        "saved": saved(forward), "forward": calls(forward), "backward": calls(backward)}
                print(json.dumps(line), file=out, flush=True)


if __name__ == "__main__":
    main()
