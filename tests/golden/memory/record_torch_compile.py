#!/usr/bin/env python3
"""Records what torch.compile() keeps of a transformer block for backward.

    python record_torch_compile.py -o torch_compile.txt         torch 2.15.0, transformers 5.23.0, no GPU
    python record_torch_compile.py --adapters -o torch_compile_lora.txt         the same with PEFT 0.21.2
    python record_torch_compile.py --ddp -o torch_compile_ddp.txt               inside DistributedDataParallel.forward()

A block of each model is traced and differentiated by AOTAutograd on fake CUDA tensors, as torch.compile() does, with
inductor's decompositions, and cut into forward and backward by inductor's partitioner (min-cut).  A line a case:

    model batch seq recompute bytes
    model batch seq recompute targets bytes          of --adapters: LoRA of rank 8 in bf16, beside weights that are frozen
    model batch seq dtype cap graphs bytes           of --ddp: weights in bf16, or in fp32 under autocast; bucket_cap_mb in MiB, 0: no DDP

bytes: storages among the forward graph's results, rounded up to 512 bytes each, that are neither parameters nor inputs
of the graph: what forward saves, and the block's own output.  Recompute: none, full (torch.utils.checkpoint) or op
(torch_options.by_operator), inside of the compiled graph, where torchtitan has it; Dynamo's tags are set by hand.

--ddp: TorchDynamo traces the block, DDPOptimizer cuts its graph, and AOTAutograd and the partitioner make a forward and a backward of each piece;
they run on fake tensors, and what the nodes of autograd have saved is counted once a storage: the block's input among it, where it is saved.
"""
import argparse
import functools
import json
import operator

import record_torch_memory as steps
from torch_options import SAVED

import torch
import transformers
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils.checkpoint import CheckpointPolicy

MODELS = ("llama-10m", "llama-15m-gqa-tied", "llama-1b", "llama-8b", "mistral", "qwen2", "qwen3", "gemma", "smollm3",
          "arcee", "granite", "starcoder2", "ministral", "olmo2", "nemotron", "seed_oss", "exaone4", "hunyuan_v1_dense")


ADAPTED = ("llama-10m", "llama-8b")
TARGETS = ("all-linear", "q_proj,v_proj", "o_proj,down_proj")


def rounded(storage):
    return -(-storage.nbytes() // 512) * 512


def tag(graph, recompute):
    """What Dynamo does with a checkpoint in the graph: forward's nodes say whether they are recomputed, by its policy."""
    backward, products = set(), 0
    for node in graph.graph.nodes:
        if "tangents" in node.name or any(n in backward for n in node.all_input_nodes):
            backward.add(node)
        elif node.op == "call_function":
            product = node.target is torch.ops.aten.mm.default
            products += product
            source = node.args[0] if node.target is operator.getitem else node
            saves = str(source.target) in SAVED and not (product and products % 2 == 0)
            node.meta["recompute"] = (CheckpointPolicy.MUST_SAVE if recompute == "op" and saves
                                      else CheckpointPolicy.PREFER_RECOMPUTE)
            node.meta["ac_graph_id"] = 0


def partitioned(recompute, graph, inputs, **options):
    if recompute != "none":
        tag(graph, recompute)
    return min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **options)


def block_of(name, targets, dtype=torch.bfloat16):
    config = transformers.AutoConfig.for_model(**dict(steps.MODELS[name], num_hidden_layers=1))
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    if targets:
        import peft
        torch.set_default_dtype(torch.bfloat16)     # adapters are made as they are used: fake tensors cannot be moved
        move, torch.nn.Module.to = torch.nn.Module.to, lambda self, *_, **__: self
        names = targets if targets == "all-linear" else targets.split(",")
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=names),
                                    autocast_adapter_dtype=False).base_model.model
        torch.nn.Module.to = move
        torch.set_default_dtype(torch.float32)
    return model.train(), config.hidden_size


def saved(name, batch, seq, recompute, targets=None):
    graphs = []
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        model, hidden = block_of(name, targets)
        block = steps.blocks_of(model)[0]
        x = torch.empty(batch, seq, hidden, dtype=torch.bfloat16, requires_grad=True)
        tables = [t.detach() for t in model.base_model.rotary_emb(x, torch.arange(seq)[None])]

        def forward(params, x, cos, sin):
            out = functional_call(block, params, (x,), {"position_embeddings": (cos, sin)})
            return out[0] if isinstance(out, tuple) else out

        def keep(graph, _inputs):
            graphs.append(graph)
            return graph

        compiled = aot_function(forward, keep, keep, partition_fn=functools.partial(partitioned, recompute),
                                decompositions=select_decomp_table())
        compiled(dict(block.named_parameters()), x, *tables).sum().backward()
    nodes = graphs[0].graph.nodes
    given = {n.meta["val"].untyped_storage()._cdata for n in nodes if n.op == "placeholder"}
    results = [n for n in nodes if n.op == "output"][0].args[0]
    kept = {n.meta["val"].untyped_storage()._cdata: n.meta["val"].untyped_storage() for n in results}
    return sum(rounded(s) for key, s in kept.items() if key not in given)


def kept_by(output):
    """Storages that the compiled nodes behind a tensor have saved, and how many nodes there are."""
    storages, seen, todo = {}, set(), [output.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [of for of, _ in node.next_functions]
        for t in node.saved_tensors if "CompiledFunction" in type(node).__name__ else ():
            storages[t.untyped_storage()._cdata] = t.untyped_storage()
    return storages, sum("CompiledFunction" in type(node).__name__ for node in seen)


def saved_in_ddp(name, batch, seq, dtype, cap):
    def compiler(graph, inputs, **options):
        steps.GPU.value = steps.PLANNED["capability"]
        try:
            return traced(graph, inputs, **options)
        finally:
            steps.GPU.value = 0

    torch._dynamo.reset()
    traced = aot_autograd(fw_compiler=lambda g, _: g, bw_compiler=lambda g, _: g, decompositions=select_decomp_table(),
                          partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"))
    backend = DDPOptimizer(cap << 20, compiler).compile_fn if cap else compiler
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        model, hidden = block_of(name, None, getattr(torch, dtype))
        block = steps.blocks_of(model)[0]
        x = torch.empty(batch, seq, hidden, dtype=getattr(torch, dtype), requires_grad=True)
        tables = [t.detach() for t in model.base_model.rotary_emb(x, torch.arange(seq)[None])]
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "float32"):
            out = torch.compile(block, backend=backend, fullgraph=True)(x, position_embeddings=tuple(tables))
        out = out[0] if isinstance(out, tuple) else out
        kept, graphs = kept_by(out)
        given = {t.untyped_storage()._cdata for t in (*tables, *block.parameters())}    # x stands for the output, another block's x
        return graphs, sum(rounded(s) for key, s in kept.items() if key not in given)


def without_rng():
    """Dynamo looks after the state of the GPU's random generator, and asks by itself for attention's kernel."""
    torch.cuda.get_rng_state = lambda *_, **__: torch.zeros(16, dtype=torch.uint8, device="cpu")
    torch.cuda.set_rng_state = lambda *_, **__: None
    torch.nn.functional.scaled_dot_product_attention = steps.SDPA


def record_ddp(out):
    without_rng()
    print(json.dumps({name: steps.MODELS[name] for name in MODELS}, separators=(",", ":")), file=out)
    for name in MODELS:
        for batch, seq in (1, 512), (4, 256):
            for dtype in "bfloat16", "float32":
                for cap in 0, 2, 25:
                    print(name, batch, seq, dtype, cap, *saved_in_ddp(name, batch, seq, dtype, cap), file=out, flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("-o", default="torch_compile.txt")
    args.add_argument("--adapters", action="store_true")
    args.add_argument("--ddp", action="store_true")
    args = args.parse_args()
    steps.without_gpu()
    steps.PLANNED["capability"] = 9
    with open(args.o, "w") as out:
        if args.ddp:
            return record_ddp(out)
        models = ADAPTED if args.adapters else MODELS
        print(json.dumps({name: steps.MODELS[name] for name in models}, separators=(",", ":")), file=out)
        for name in models:
            for batch, seq in ((1, 512),) if args.adapters else ((1, 512), (4, 256)):
                for recompute in ("none", "full") if args.adapters else ("none", "op", "full"):
                    for targets in TARGETS if args.adapters else (None,):
                        print(name, batch, seq, recompute, *((targets,) if targets else ()),
                              saved(name, batch, seq, recompute, targets), file=out, flush=True)


if __name__ == "__main__":
    main()
