#!/usr/bin/env python3
"""Record the collectives that PyTorch's data-parallel wrappers really issue.

    python record_torch.py OUTDIR [NAME ...]

Trains small Hugging Face models on CPU for five optimizer steps under DDP, ZeroRedundancyOptimizer, FSDP1 and FSDP2, seen
from one rank of a world whose other ranks do not exist, and writes one text file per case, or per family of families.json (format: README.md beside this).

Every collective passes through Recorder, a ProcessGroup written in Python.  Both Python (torch.distributed, FSDP,
DeviceMesh) and C++ (DDP's reducer, the functional collectives behind DTensor) call a process group's virtual methods, so
nothing can go past it.  (torch's own "fake" backend cannot carry DDP in 2.15: its futures hold no tensor.)  Recorder makes
up the others' data: an all-gather yields my shard N times, everything else leaves what is there.  Values are therefore
wrong, but no library decides what to send by looking at values.
"""
import contextlib
import copy
import json
import os
import re
import sys
import warnings

import torch
import torch.distributed as dist
import transformers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy,
                                    ShardingStrategy, fully_shard)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from alone import alone
from families import FAMILIES, block_list, build, load_classes

STEPS = 5
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64", torch.uint8: "uint8",
          torch.int32: "int32", torch.int64: "int64", torch.bool: "bool"}


# ---------------------------------------------------------------- the recording process group

log = []           # lines of the phase now running
groups = {}        # frozenset of global ranks -> name, for groups that are not the whole world


def group_name(pg):
    """NAME/SIZE."""
    ranks = frozenset(dist.get_process_group_ranks(pg))
    name = "world" if len(ranks) == dist.get_world_size() else groups.get(ranks, "reshard")
    return f"{name}/{len(ranks)}"


def reduce_op(op):
    """SUM, AVG, ... of a ReduceOp object or of its plain enum, in lower case."""
    for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT", "PREMUL_SUM", "BAND", "BOR", "BXOR"):
        if op == getattr(dist.ReduceOp.RedOpType, name):
            return name.lower()
    return "unknown"


def done(result):
    future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


class Recorder(dist.ProcessGroup):
    def __init__(self, rank, size):
        super().__init__(rank, size)
        self._size = size

    def size(self):
        return self._size

    def getBackendName(self):
        return "recorder"

    @property
    def pg_name(self):
        return dist.distributed_c10d._world.pg_names[self]

    @property
    def group_name(self):
        return self.pg_name

    def note(self, op, tensors, reduction=None, root=None):
        for t in tensors:
            words = [op, group_name(self), DTYPES.get(t.dtype, str(t.dtype)), str(t.numel())]
            words += [reduce_op(reduction)] if reduction is not None else []
            words += [f"root {root}"] if root is not None else []
            log.append(" ".join(words))

    def broadcast(self, tensors, opts=None):
        self.note("broadcast", tensors, root=opts.rootRank if opts else 0)
        return done(tensors)

    def allreduce(self, tensors, opts=None):
        self.note("all_reduce", tensors, opts.reduceOp if opts else dist.ReduceOp.SUM)
        return done(tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        self.note("all_reduce", tensors, opts.reduceOp)
        return done(tensors)

    def reduce(self, tensors, opts=None):
        self.note("reduce", tensors, opts.reduceOp, opts.rootRank)
        return done(tensors)

    def allgather(self, outputs, inputs, opts=None):
        for out, inp in zip(outputs, inputs):
            self.note("all_gather", [inp.new_empty(sum(t.numel() for t in out), device="meta")])
            for t in out:
                t.copy_(inp.view_as(t))
        return done(outputs)

    def all_gather_single(self, output, inp, opts=None):
        self.note("all_gather", [output])
        output.view(self._size, -1).copy_(inp.reshape(1, -1).expand(self._size, -1).clone())
        return done(output)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        for out, inp in zip(outputs, inputs):
            self.all_gather_single(out, inp)
        return done(outputs)

    def reduce_scatter(self, outputs, inputs, opts=None):
        for out, parts in zip(outputs, inputs):
            self.note("reduce_scatter", [out.new_empty(sum(t.numel() for t in parts), device="meta")], opts.reduceOp)
            out.copy_(parts[self.rank()])
        return done(outputs)

    def reduce_scatter_single(self, output, inp, opts=None):
        self.note("reduce_scatter", [inp], opts.reduceOp)
        output.copy_(inp.view(self._size, -1)[self.rank()].view_as(output).clone())
        return done(output)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        for out, inp in zip(outputs, inputs):
            self.reduce_scatter_single(out, inp, opts)
        return done(outputs)

    def scatter(self, outputs, inputs, opts=None):
        self.note("scatter", [outputs[0].new_empty(outputs[0].numel() * self._size, device="meta")], root=opts.rootRank)
        return done(outputs)

    def gather(self, outputs, inputs, opts=None):
        self.note("gather", [inputs[0].new_empty(inputs[0].numel() * self._size, device="meta")], root=opts.rootRank)
        return done(outputs)

    def all_to_all_single(self, output, inp, out_splits, in_splits, opts=None):
        self.note("all_to_all", [inp])
        return done(output)

    def alltoall(self, outputs, inputs, opts=None):
        self.note("all_to_all", inputs)
        return done(outputs)

    def barrier(self, opts=None):
        log.append(f"barrier {group_name(self)} none 0")
        return done([])


dist.Backend.register_backend("recorder", lambda store, rank, size, timeout: Recorder(rank, size), devices=["cpu"])


# ---------------------------------------------------------------- models

GPT2_TINY = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 4, "n_embd": 48, "n_head": 4, "n_positions": 32,
             "vocab_size": 101, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": True}
GPT2_TINY3 = dict(GPT2_TINY, n_layer=3)
GPT2_124M = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 12, "n_embd": 768, "n_head": 12,
             "n_positions": 1024, "vocab_size": 50257, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
             "tie_word_embeddings": True}
LLAMA_TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 48,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 112, "max_position_embeddings": 32,
              "vocab_size": 103, "tie_word_embeddings": False}


# ---------------------------------------------------------------- the wrappers

# in plan["ddp"]: no arguments of DistributedDataParallel
OUR_WORDS = ("parameters_as_bucket_view", "model_dtype", "comm_hook", "PowerSGDState")


def hook_of(options):
    """Python's own hooks, and their state.  A PyTorch without CUDA refuses bf16_compress_hook by its name (_check_comm_hook())."""
    name = options["comm_hook"]
    if name == "powerSGD_hook":
        return powerSGD_hook.PowerSGDState(None, **options.get("PowerSGDState", {})), powerSGD_hook.powerSGD_hook
    if name == "bf16_compress_hook":
        return None, lambda state, bucket: default_hooks.bf16_compress_hook(state, bucket)
    return None, getattr(quantization_hooks if name.startswith("quantization") else default_hooks, name)


def wrap_ddp(case, model):
    ddp = DistributedDataParallel(model, **{k: v for k, v in case["ddp"].items() if k not in OUR_WORDS})
    if "comm_hook" in case["ddp"]:
        ddp.register_comm_hook(*hook_of(case["ddp"]))
    return ddp


def wrap_fsdp2(case, model):
    plan, world = case["plan"], dist.get_world_size()
    if plan.get("shard_group"):
        mesh = hsdp_mesh(plan["shard_group"])
    else:
        mesh = init_device_mesh("cpu", (world,))
    policy = MixedPrecisionPolicy()
    if plan["precision"] == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32 if plan["reduce_dtype"] == "fp32" else None)
    common = {"mesh": mesh, "mp_policy": policy}
    inner = dict(common)
    if "reshard_after_forward" in case["fsdp"]:
        inner["reshard_after_forward"] = case["fsdp"]["reshard_after_forward"]
    blocks, unit = block_list(model), plan["unit"]
    if unit == "block":
        for block in blocks:
            fully_shard(block, **inner)
    elif unit == "half-block":
        for block in blocks:
            if hasattr(block, "ln_1"):
                halves = [block.ln_1, block.attn], [block.ln_2, block.mlp]
            else:
                halves = [block.input_layernorm, block.self_attn], [block.post_attention_layernorm, block.mlp]
            for half in halves:
                fully_shard(list(half), **inner)
    elif unit.endswith("blocks"):
        n = int(unit.split()[0])
        for i in range(0, len(blocks), n):
            fully_shard(list(blocks[i:i + n]), **inner)
    root = dict(common)
    if "root_reshard_after_forward" in case["fsdp"]:
        root["reshard_after_forward"] = case["fsdp"]["root_reshard_after_forward"]
    fully_shard(model, **root)
    return model


def hsdp_mesh(shard):
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // shard, shard), mesh_dim_names=("replicate", "shard"))
    groups[frozenset(dist.get_process_group_ranks(mesh.get_group("replicate")))] = "replica"
    groups[frozenset(dist.get_process_group_ranks(mesh.get_group("shard")))] = "shard"
    return mesh


def wrap_fsdp1(case, model):
    plan, options = case["plan"], dict(case["fsdp"])
    strategy = options.pop("sharding_strategy")
    kw = {"sharding_strategy": ShardingStrategy[strategy], "device_id": torch.device("cpu")}
    if "HYBRID" in strategy:
        kw["device_mesh"] = hsdp_mesh(plan["shard_group"])
    if "backward_prefetch" in options:
        name = options.pop("backward_prefetch")
        kw["backward_prefetch"] = BackwardPrefetch[name] if name else None
    if plan["precision"] == "bf16":
        kw["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32 if plan["reduce_dtype"] == "fp32" else None)
    if plan["unit"] == "block":
        kw["auto_wrap_policy"] = ModuleWrapPolicy({type(block_list(model)[0])})
    return FullyShardedDataParallel(model, **kw, **options)


def micro_step_context(case, model, last):
    """What a user wraps around a micro-step so that only the last one communicates gradients."""
    plan = case["plan"]
    sync = last or plan["sync_every_micro_step"]
    if case["api"] == "fsdp2":
        model.set_requires_gradient_sync(sync)
        return contextlib.nullcontext()
    return contextlib.nullcontext() if sync else model.no_sync()


# ---------------------------------------------------------------- one case, seen from one rank

def run(case, rank):
    """Returns the collectives of [init, step 1, ..., step STEPS] and the comment lines."""
    plan, config = case["plan"], case["plan"]["model"]
    groups.clear()
    log.clear()
    dist.init_process_group("recorder", store=dist.HashStore(), rank=rank, world_size=case["world"])
    try:
        phases, comments = [], []
        torch.manual_seed(0)
        model = build(config).train()
        if case.get("param_dtype") == "bf16":
            model = model.to(torch.bfloat16)
        if plan["recompute"] == "full":
            blocks = block_list(model)
            for i, block in enumerate(blocks):
                blocks[i] = checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
        names = [n for n, _ in model.named_parameters()]
        ready = []
        if case["api"] in ("ddp", "zero1"):
            for name, p in ((n, p) for n, p in model.named_parameters() if p.requires_grad):
                p.register_post_accumulate_grad_hook(lambda _, name=name: ready.append(name))
        wrapped = {"ddp": wrap_ddp, "zero1": wrap_ddp, "fsdp1": wrap_fsdp1, "fsdp2": wrap_fsdp2}[case["api"]](case, model)
        if case["api"] == "zero1":
            optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4,
                                                parameters_as_bucket_view=case["ddp"].get("parameters_as_bucket_view", False))
        else:
            optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-4)
        phases.append(list(log))
        seq, batch, accumulation = plan["seq"], plan["micro_batch"], plan["accumulation"]
        for _ in range(STEPS):
            log.clear()
            for micro in range(accumulation):
                ready.clear()
                tokens = torch.randint(0, config["vocab_size"], (batch, seq))
                with micro_step_context(case, wrapped, micro == accumulation - 1):
                    cast = torch.autocast("cpu", torch.bfloat16) if case.get("autocast") else contextlib.nullcontext()
                    with cast:
                        loss = wrapped(input_ids=tokens, labels=tokens).loss / accumulation
                    loss.backward()
            if plan["clip"] is not None:
                if case["api"] == "fsdp1":
                    wrapped.clip_grad_norm_(plan["clip"])
                else:
                    torch.nn.utils.clip_grad_norm_(wrapped.parameters(), plan["clip"])
            optimizer.step()
            optimizer.zero_grad()
            phases.append(list(log))
        if ready:
            comments.append(ready_order(names, ready))
            data = wrapped._get_ddp_logging_data()
            comments.append("DDP: bucket_sizes %s rebuilt_bucket_sizes %s (bytes)" % (data.get("bucket_sizes"), data.get("rebuilt_bucket_sizes")))
        buffers = [f"{n} {DTYPES.get(b.dtype)} {b.numel()}" for n, b in model.named_buffers()]
        if buffers and case["api"] in ("ddp", "zero1"):
            comments.append("module buffers: " + ", ".join(buffers))
        return phases, comments
    finally:
        dist.destroy_process_group()


def ready_order(names, ready):
    """One line on the order in which gradients became ready; identical blocks are told once."""
    if ready == list(reversed(names)):
        return "gradients became ready in exactly the reverse of registration order"
    alike = {}
    short = []
    for name in ready:
        match = re.match(r"(.*\.(?:h|layers|blocks)\.)(\d+)\.(.*)", name.replace("_checkpoint_wrapped_module.", ""))
        if not match:
            short.append(name)
            continue
        if match[2] not in alike:
            alike[match[2]] = []
            short.append(int(match[2]))
        alike[match[2]].append(match[3])
    assert len({tuple(v) for v in alike.values()}) == 1, "blocks differ in the order of their gradients"
    per_block = next(iter(alike.values()))
    return ("gradients became ready not in the reverse of registration order but: " + " ".join(f"block{x}" if isinstance(x, int) else x for x in short) +
            "; within a block: " + " ".join(per_block))


def collapse(lines):
    out, i = [], 0
    while i < len(lines):
        n = 1
        while i + n < len(lines) and lines[i + n] == lines[i]:
            n += 1
        out.append(lines[i] + (f" x{n}" if n > 1 else ""))
        i += n
    return out


def sections(rank, phases):
    """steady is step 2; steady2, steady3 are steps 3 and 4 where they differ from the step before and the list settles later."""
    text = [f"rank {rank}", "init"] + collapse(phases[0]) + ["first"] + collapse(phases[1])
    for i in range(settled(phases) - 1):
        text += ["steady" + (str(i + 1) if i else "")] + collapse(phases[2 + i])
    return text


def settled(phases):
    """The first step, 2 or later, whose list all later steps repeat."""
    assert phases[-1] == phases[-2], "the last step still differs from the one before"
    step = len(phases) - 2
    while step > 2 and phases[step - 1] == phases[step]:
        step -= 1
    return step


def recording(case):
    """The text of one case: comments, plan, lists."""
    phases, comments = alone(run, case, 0)
    text = [f"# {case['name']}: {case['what']}"] + ["# " + c for c in comments]
    if settled(phases) > 2:
        text.append(f"# the list settles only at step {settled(phases)}: 'steady' is step 2, " + ("'steady2' is steps 3 and later" if settled(phases) == 3 else
                    "'steady2' step 3, 'steady3' steps 4 and later"))
    body = sections(0, phases)
    if case["world"] > 1:
        other = case["world"] - 1
        theirs = alone(run, case, other)[0]
        if theirs != phases:
            body += sections(other, theirs)
            text.append(f"# rank {other} issues another list")
        else:
            text.append(f"# rank {other} issues the same list")
    text.append("plan " + json.dumps(case["plan"]))
    return text + body


def write(path, cases, by="record_torch.py"):
    text = [f"# recorded from torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, CPU, by {by}"]
    for case in cases:
        text += ([] if len(cases) == 1 else ["", "list " + case["name"]]) + recording(case)
    with open(path, "w") as f:
        f.write("\n".join(text) + "\n")


# ---------------------------------------------------------------- the cases

def make(name, what, api, config, world, *, ddp=None, fsdp=None, precision="fp32", reduce_dtype=None, accumulation=1, sync=False,
         unit="block", shard_group=None, clip=None, recompute="none", cluster=None, **more):
    plan = {"dpx_plan": 1, "model": copy.deepcopy(config), "cluster": cluster or f"{max(1, world // 8)}x{min(world, 8)}xh100",
            "strategy": {"ddp": "ddp", "zero1": "zero1", "fsdp1": "fsdp", "fsdp2": "fsdp"}[api],
            "dialect": "torch-fsdp1" if api == "fsdp1" else "torch", "kernels": "torch-eager", "seq": 16, "micro_batch": 2,
            "accumulation": accumulation, "precision": precision, "reduce_dtype": reduce_dtype, "sync_every_micro_step": sync, "clip": clip,
            "recompute": recompute}
    if config is GPT2_124M:
        plan["seq"], plan["micro_batch"] = 8, 1
    if api in ("fsdp1", "fsdp2"):
        plan["unit"] = unit
        if shard_group:
            plan["shard_group"] = shard_group
        plan["fsdp"] = fsdp or {}
    elif ddp:
        plan["ddp"] = ddp
    return dict(name=name, what=what, api=api, world=world, plan=plan, ddp=ddp or {}, fsdp=fsdp or {}, **more)


def hook_cases(add):
    """DDP's communication hooks.  PowerSGD begins at the third reduction: its lists settle there."""
    fp16, bf16 = {"comm_hook": "fp16_compress_hook"}, {"comm_hook": "bf16_compress_hook"}
    cap = {"bucket_cap_mb": 0.05}
    add("ddp-gpt2-fp16hook-w2", "DDP, fp16_compress_hook", "ddp", GPT2_TINY, 2, ddp=fp16 | cap)
    add("ddp-gpt2-fp16hook-w3", "DDP, fp16_compress_hook, default buckets", "ddp", GPT2_TINY, 3, ddp=fp16)
    add("ddp-gpt2-fp16hook-view-w2", "DDP, fp16_compress_hook, gradients are views of the buckets", "ddp", GPT2_TINY, 2, ddp=fp16 | cap | {"gradient_as_bucket_view": True})
    add("ddp-gpt2-fp16hook-static-w2", "DDP, fp16_compress_hook, static graph", "ddp", GPT2_TINY, 2, ddp=fp16 | cap | {"static_graph": True})
    add("ddp-gpt2-fp16hook-unused-w2", "DDP, fp16_compress_hook, find_unused_parameters", "ddp", GPT2_TINY, 2, ddp=fp16 | cap | {"find_unused_parameters": True})
    add("ddp-llama-fp16hook-bf16params-w2", "DDP over model.to(bfloat16), fp16_compress_hook", "ddp", LLAMA_TINY, 2, precision="bf16", param_dtype="bf16", ddp=fp16 | cap)
    add("ddp-llama-bf16hook-w3", "DDP, bf16_compress_hook, untied", "ddp", LLAMA_TINY, 3, ddp=bf16 | cap)
    add("ddp-llama-bf16hook-autocast-w2", "DDP, bf16_compress_hook, forward under autocast(bf16)", "ddp", LLAMA_TINY, 2, ddp=bf16 | cap, precision="bf16", autocast=True)
    add("ddp-llama-bf16hook-acc4-nosync-w2", "DDP, bf16_compress_hook, 4 micro-steps, no_sync on 3", "ddp", LLAMA_TINY, 2, ddp=bf16 | cap, accumulation=4)
    add("ddp-gpt2-bf16hook-acc4-sync-w2", "DDP, bf16_compress_hook, 4 micro-steps, all reduced", "ddp", GPT2_TINY, 2, ddp=bf16 | cap, accumulation=4, sync=True)
    add("ddp-gpt2-bf16hook-bf16params-w2", "DDP over model.to(bfloat16), bf16_compress_hook", "ddp", GPT2_TINY, 2, precision="bf16", param_dtype="bf16", ddp=bf16 | cap)
    add("zero1-llama-bf16hook-w3", "ZeroRedundancyOptimizer over DDP, bf16_compress_hook, untied", "zero1", LLAMA_TINY, 3, ddp=bf16 | cap)
    add("ddp-gpt2-124m-fp16hook-w8", "DDP, fp16_compress_hook, true GPT-2", "ddp", GPT2_124M, 8, ddp=fp16)

    def powersgd(**options):
        return {"comm_hook": "powerSGD_hook", "PowerSGDState": dict(options, start_powerSGD_iter=2)}

    add("ddp-gpt2-powersgd-w2", "DDP, powerSGD_hook of rank 1", "ddp", GPT2_TINY, 2, ddp=powersgd() | cap)
    add("ddp-llama-powersgd4-w3", "DDP, powerSGD_hook of rank 4, untied", "ddp", LLAMA_TINY, 3, ddp=powersgd(matrix_approximation_rank=4) | cap)
    add("ddp-llama-powersgd2-rate1-w2", "DDP, powerSGD_hook of rank 2, all that becomes smaller is compressed", "ddp", LLAMA_TINY, 2, ddp=powersgd(matrix_approximation_rank=2, min_compression_rate=1) | cap)
    add("ddp-gpt2-powersgd60-w2", "DDP, powerSGD_hook of rank 60, above some matrices' sides: nothing is compressed", "ddp", GPT2_TINY, 2, ddp=powersgd(matrix_approximation_rank=60) | cap)
    add("ddp-gpt2-powersgd60-rate0-w2", "DDP, powerSGD_hook of rank 60, everything is compressed, vectors too", "ddp", GPT2_TINY, 2, ddp=powersgd(matrix_approximation_rank=60, min_compression_rate=0) | cap)
    add("ddp-llama-powersgd-cold-w2", "DDP, powerSGD_hook without warm start", "ddp", LLAMA_TINY, 2, ddp=powersgd(warm_start=False) | cap)
    add("ddp-llama-powersgd-noerror-w2", "DDP, powerSGD_hook without error feedback", "ddp", LLAMA_TINY, 2, ddp=powersgd(use_error_feedback=False) | cap)
    add("ddp-llama-powersgd2-acc4-nosync-w2", "DDP, powerSGD_hook of rank 2, 4 micro-steps, no_sync on 3", "ddp", LLAMA_TINY, 2, ddp=powersgd(matrix_approximation_rank=2) | cap, accumulation=4)
    add("ddp-gpt2-powersgd2-bf16params-w2", "DDP over model.to(bfloat16), powerSGD_hook of rank 2", "ddp", GPT2_TINY, 2, precision="bf16", param_dtype="bf16", ddp=powersgd(matrix_approximation_rank=2) | cap)
    add("ddp-gpt2-powersgd-unused-w2", "DDP, powerSGD_hook, find_unused_parameters", "ddp", GPT2_TINY, 2, ddp=powersgd() | cap | {"find_unused_parameters": True})
    add("ddp-gpt2-124m-powersgd4-w8", "DDP, powerSGD_hook of rank 4, true GPT-2", "ddp", GPT2_124M, 8, ddp=powersgd(matrix_approximation_rank=4))
    rows = {"comm_hook": "quantization_perchannel_hook"}
    add("ddp-gpt2-byterows-w2", "DDP, quantization_perchannel_hook", "ddp", GPT2_TINY, 2, ddp=rows | cap)
    add("ddp-llama-byterows-w3", "DDP, quantization_perchannel_hook, untied, default buckets", "ddp", LLAMA_TINY, 3, ddp=rows)
    add("ddp-gpt2-byterows-view-unused-w2", "DDP, quantization_perchannel_hook, gradients are views of the buckets, find_unused_parameters", "ddp", GPT2_TINY, 2, ddp=rows | cap | {"gradient_as_bucket_view": True, "find_unused_parameters": True})
    add("ddp-llama-byterows-acc4-nosync-w2", "DDP, quantization_perchannel_hook, 4 micro-steps, no_sync on 3", "ddp", LLAMA_TINY, 2, ddp=rows | cap, accumulation=4)
    add("zero1-llama-byterows-w3", "ZeroRedundancyOptimizer over DDP, quantization_perchannel_hook, untied", "zero1", LLAMA_TINY, 3, ddp=rows | cap)
    add("zero1-gpt2-powersgd-w2", "ZeroRedundancyOptimizer over DDP, powerSGD_hook", "zero1", GPT2_TINY, 2, ddp=powersgd() | cap)


def cases():
    c = []

    def add(*args, **kw):
        c.append(make(*args, **kw))

    # DDP
    for world in (1, 2, 3, 8):
        add(f"ddp-gpt2-w{world}", "DDP, fp32, defaults", "ddp", GPT2_TINY, world)
    add("ddp-llama-w2", "DDP, fp32, defaults, untied", "ddp", LLAMA_TINY, 2)
    add("ddp-llama-cap005-w2", "DDP, several buckets, untied", "ddp", LLAMA_TINY, 2, ddp={"bucket_cap_mb": 0.05})
    for cap, tag in ((0.05, "005"), (1, "1"), (10, "10")):
        add(f"ddp-gpt2-cap{tag}-w2", f"DDP, bucket_cap_mb={cap}", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": cap})
    add("ddp-gpt2-view-w2", "DDP, gradients are views of the buckets", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05, "gradient_as_bucket_view": True})
    add("ddp-gpt2-static-w2", "DDP, static graph", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05, "static_graph": True})
    add("ddp-llama-static-w2", "DDP, static graph, module buffers", "ddp", LLAMA_TINY, 2, ddp={"bucket_cap_mb": 0.05, "static_graph": True})
    add("ddp-llama-static-acc2-sync-w2", "DDP, static graph, 2 micro-steps, all reduced", "ddp", LLAMA_TINY, 2, ddp={"bucket_cap_mb": 0.05, "static_graph": True}, accumulation=2, sync=True)
    add("ddp-llama-nobuffers-w2", "DDP, broadcast_buffers=False: none at construction either", "ddp", LLAMA_TINY, 2, ddp={"broadcast_buffers": False})
    add("ddp-llama-nofwdsync-w2", "DDP, forward_sync_buffers=False: buffers at construction only", "ddp", LLAMA_TINY, 2, ddp={"forward_sync_buffers": False})
    add("ddp-llama-fwdsync-over-w2", "DDP, forward_sync_buffers=True beside broadcast_buffers=False, which it replaces", "ddp", LLAMA_TINY, 2, ddp={"forward_sync_buffers": True, "broadcast_buffers": False})
    add("ddp-llama-bf16params-w2", "DDP over model.to(bfloat16), buffers as well; ddp.model_dtype is our word, not PyTorch's", "ddp", LLAMA_TINY, 2, precision="bf16", param_dtype="bf16", ddp={"bucket_cap_mb": 0.05})
    add("ddp-gpt2-unused-w2", "DDP, find_unused_parameters (there are none)", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05, "find_unused_parameters": True})
    add("ddp-llama-unused-w3", "DDP, find_unused_parameters, default buckets", "ddp", LLAMA_TINY, 3, ddp={"find_unused_parameters": True})
    add("ddp-gpt2-unused-static-w2", "DDP, find_unused_parameters and static graph", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05, "find_unused_parameters": True, "static_graph": True})
    add("ddp-gpt2-acc4-nosync-w2", "DDP, 4 micro-steps, no_sync on 3", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05}, accumulation=4)
    add("ddp-llama-acc4-nosync-w2", "DDP, 4 micro-steps, no_sync on 3, untied", "ddp", LLAMA_TINY, 2, ddp={"bucket_cap_mb": 0.05}, accumulation=4)
    add("ddp-gpt2-acc4-sync-w2", "DDP, 4 micro-steps, all reduced", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05}, accumulation=4, sync=True)
    add("ddp-gpt2-clip-w2", "DDP, gradient clipping", "ddp", GPT2_TINY, 2, clip=1.0)
    add("ddp-gpt2-recompute-w2", "DDP, every block checkpointed", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05}, recompute="full")
    add("ddp-gpt2-autocast-w2", "DDP, fp32 parameters, forward under autocast(bf16)", "ddp", GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.05}, precision="bf16", autocast=True)
    add("ddp-llama-autocast-w2", "DDP, fp32 parameters, forward under autocast(bf16), untied", "ddp", LLAMA_TINY, 2, ddp={"bucket_cap_mb": 0.05}, precision="bf16", autocast=True)
    add("ddp-gpt2-bf16params-w2", "DDP over model.to(bfloat16); ddp.model_dtype is our word, not PyTorch's", "ddp", GPT2_TINY, 2, precision="bf16", param_dtype="bf16", ddp={"bucket_cap_mb": 0.05})
    add("ddp-gpt2-124m-w8", "DDP, fp32, defaults, true GPT-2", "ddp", GPT2_124M, 8)
    add("ddp-gpt2-124m-cap10-w2", "DDP, bucket_cap_mb=10, true GPT-2", "ddp", GPT2_124M, 2, ddp={"bucket_cap_mb": 10})
    add("ddp-gpt2-124m-bf16params-w8", "DDP over model.to(bfloat16), true GPT-2; ddp.model_dtype is our word, not PyTorch's", "ddp", GPT2_124M, 8, precision="bf16", param_dtype="bf16")
    hook_cases(add)
    for case in c:
        if case.get("param_dtype"):
            case["plan"].setdefault("ddp", {})
            case["plan"]["ddp"] = dict(case["plan"]["ddp"], model_dtype="bf16")

    # ZeRO-1
    for world in (2, 3):
        for view in (False, True):
            add(f"zero1-gpt2{'-view' if view else ''}-w{world}", "ZeroRedundancyOptimizer over DDP", "zero1", GPT2_TINY, world,
                ddp={"parameters_as_bucket_view": view})
    add("zero1-llama-w3", "ZeroRedundancyOptimizer over DDP, untied", "zero1", LLAMA_TINY, 3, ddp={"parameters_as_bucket_view": False})
    add("zero1-llama-view-w8", "ZeroRedundancyOptimizer over DDP, untied", "zero1", LLAMA_TINY, 8, ddp={"parameters_as_bucket_view": True})

    add("zero1-gpt2-124m-w8", "ZeroRedundancyOptimizer over DDP, true GPT-2", "zero1", GPT2_124M, 8, ddp={"parameters_as_bucket_view": True})
    add("zero1-gpt2-acc4-nosync-w2", "ZeroRedundancyOptimizer over DDP, 4 micro-steps, no_sync on 3", "zero1", GPT2_TINY, 2, accumulation=4,
        ddp={"bucket_cap_mb": 0.05, "parameters_as_bucket_view": False})

    # FSDP2
    for world in (1, 2, 3, 4, 7, 8):
        add(f"fsdp2-gpt2-w{world}", "FSDP2, fp32, defaults", "fsdp2", GPT2_TINY, world)
    add("fsdp2-llama-w2", "FSDP2, fp32, defaults, untied", "fsdp2", LLAMA_TINY, 2)
    add("fsdp2-llama-w7", "FSDP2, fp32, defaults, untied", "fsdp2", LLAMA_TINY, 7)
    add("fsdp2-gpt2-bf16-w4", "FSDP2, bf16 parameters, fp32 reduction", "fsdp2", GPT2_TINY, 4, precision="bf16", reduce_dtype="fp32")
    add("fsdp2-gpt2-bf16-none-w4", "FSDP2, bf16 parameters, reduce_dtype=None", "fsdp2", GPT2_TINY, 4, precision="bf16")
    add("fsdp2-llama-bf16-w3", "FSDP2, bf16 parameters, fp32 reduction, untied", "fsdp2", LLAMA_TINY, 3, precision="bf16", reduce_dtype="fp32")
    add("fsdp2-gpt2-reshard-true-w4", "FSDP2, blocks True", "fsdp2", GPT2_TINY, 4, fsdp={"reshard_after_forward": True})
    add("fsdp2-gpt2-reshard-false-w4", "FSDP2, blocks False", "fsdp2", GPT2_TINY, 4, fsdp={"reshard_after_forward": False})
    add("fsdp2-gpt2-reshard-2-w4", "FSDP2, blocks 2 of 4", "fsdp2", GPT2_TINY, 4, fsdp={"reshard_after_forward": 2})
    add("fsdp2-llama-reshard-4-w8", "FSDP2, blocks 4 of 8, untied", "fsdp2", LLAMA_TINY, 8, fsdp={"reshard_after_forward": 4})
    add("fsdp2-gpt2-reshard-2-bf16-w4", "FSDP2, blocks 2 of 4, bf16", "fsdp2", GPT2_TINY, 4, fsdp={"reshard_after_forward": 2}, precision="bf16", reduce_dtype="fp32")
    add("fsdp2-gpt2-root-true-w4", "FSDP2, root explicitly True (root_reshard_after_forward is our word)", "fsdp2", GPT2_TINY, 4, fsdp={"reshard_after_forward": True, "root_reshard_after_forward": True})
    add("fsdp2-gpt2-root-false-w4", "FSDP2, root explicitly False (root_reshard_after_forward is our word)", "fsdp2", GPT2_TINY, 4, fsdp={"reshard_after_forward": True, "root_reshard_after_forward": False})
    add("fsdp2-gpt2-root-2-w4", "FSDP2, blocks and root explicitly 2 of 4 (root_reshard_after_forward is our word)", "fsdp2", GPT2_TINY, 4, fsdp={"reshard_after_forward": 2, "root_reshard_after_forward": 2})
    add("fsdp2-gpt2-root-2-units-4-w8", "FSDP2, blocks 4 of 8, root 2 of 8 (root_reshard_after_forward is our word)", "fsdp2", GPT2_TINY, 8, fsdp={"reshard_after_forward": 4, "root_reshard_after_forward": 2})
    add("fsdp2-llama-root-4-units-2-acc2-w8", "FSDP2, blocks 2 of 8, root 4 of 8, no gradient synchronisation on the first of 2, untied", "fsdp2", LLAMA_TINY, 8, accumulation=2, fsdp={"reshard_after_forward": 2, "root_reshard_after_forward": 4})
    add("fsdp2-gpt2-unit-model-w4", "FSDP2, the whole model one unit", "fsdp2", GPT2_TINY, 4, unit="model")
    add("fsdp2-gpt2-unit-model-true-w4", "FSDP2, the whole model one unit, explicitly True (root_reshard_after_forward is our word)", "fsdp2", GPT2_TINY, 4, unit="model", fsdp={"root_reshard_after_forward": True})
    add("fsdp2-gpt2-unit-2blocks-w4", "FSDP2, fully_shard([b0, b1])", "fsdp2", GPT2_TINY, 4, unit="2 blocks")
    add("fsdp2-gpt2-unit-2blocks-odd-w4", "FSDP2, 3 layers in groups of 2", "fsdp2", GPT2_TINY3, 4, unit="2 blocks")
    add("fsdp2-gpt2-unit-half-w4", "FSDP2, half-block units", "fsdp2", GPT2_TINY, 4, unit="half-block")
    add("fsdp2-llama-unit-half-w4", "FSDP2, half-block units, untied", "fsdp2", LLAMA_TINY, 4, unit="half-block")
    add("fsdp2-gpt2-hsdp-2x2", "FSDP2, HSDP 2 x 2", "fsdp2", GPT2_TINY, 4, shard_group=2, cluster="2x2xh100")
    add("fsdp2-gpt2-hsdp-2x4", "FSDP2, HSDP 2 x 4", "fsdp2", GPT2_TINY, 8, shard_group=4, cluster="2x4xh100")
    add("fsdp2-llama-hsdp-2x4-bf16", "FSDP2, HSDP 2 x 4, bf16, fp32 reduction, untied", "fsdp2", LLAMA_TINY, 8, shard_group=4, cluster="2x4xh100", precision="bf16", reduce_dtype="fp32")
    add("fsdp2-gpt2-acc3-nosync-w4", "FSDP2, 3 micro-steps, set_requires_gradient_sync(False) on 2", "fsdp2", GPT2_TINY, 4, accumulation=3)
    add("fsdp2-gpt2-acc3-sync-w4", "FSDP2, 3 micro-steps, all reduced", "fsdp2", GPT2_TINY, 4, accumulation=3, sync=True)
    add("fsdp2-gpt2-acc3-nosync-bf16-w4", "FSDP2, 3 micro-steps, set_requires_gradient_sync(False) on 2, bf16", "fsdp2", GPT2_TINY, 4, accumulation=3, precision="bf16", reduce_dtype="fp32")
    add("fsdp2-gpt2-hsdp-2x2-acc3-nosync", "FSDP2, HSDP, 3 micro-steps, set_requires_gradient_sync(False) on 2", "fsdp2", GPT2_TINY, 4, shard_group=2, cluster="2x2xh100", accumulation=3)
    add("fsdp2-gpt2-hsdp-2x2-acc3-sync", "FSDP2, HSDP, 3 micro-steps, all reduced", "fsdp2", GPT2_TINY, 4, shard_group=2, cluster="2x2xh100", accumulation=3, sync=True)
    add("fsdp2-gpt2-recompute-w4", "FSDP2, every block checkpointed", "fsdp2", GPT2_TINY, 4, recompute="full")
    add("fsdp2-llama-recompute-w2", "FSDP2, every block checkpointed, untied", "fsdp2", LLAMA_TINY, 2, recompute="full")
    add("fsdp2-gpt2-clip-w4", "FSDP2, clip_grad_norm_", "fsdp2", GPT2_TINY, 4, clip=1.0)
    add("fsdp2-gpt2-clip-bf16-w4", "FSDP2, clip_grad_norm_, bf16", "fsdp2", GPT2_TINY, 4, clip=1.0, precision="bf16", reduce_dtype="fp32")
    add("fsdp2-gpt2-clip-w1", "FSDP2, clip_grad_norm_, world 1", "fsdp2", GPT2_TINY, 1, clip=1.0)
    add("fsdp2-gpt2-clip-hsdp-2x2", "FSDP2, clip_grad_norm_, HSDP", "fsdp2", GPT2_TINY, 4, clip=1.0, shard_group=2, cluster="2x2xh100")
    add("fsdp2-gpt2-124m-w8", "FSDP2, fp32, true GPT-2", "fsdp2", GPT2_124M, 8)
    add("fsdp2-gpt2-124m-bf16-w7", "FSDP2, bf16, true GPT-2, 7 ranks", "fsdp2", GPT2_124M, 7, precision="bf16", reduce_dtype="fp32")

    # FSDP1
    def fsdp1(name, what, config, world, strategy="FULL_SHARD", options=None, **kw):
        add("fsdp1-" + name, "FSDP1, " + what, "fsdp1", config, world, fsdp=dict({"sharding_strategy": strategy}, **(options or {})), **kw)

    for world in (1, 2, 3, 8):
        fsdp1(f"gpt2-full-w{world}", "FULL_SHARD, defaults", GPT2_TINY, world)
    fsdp1("llama-full-w3", "FULL_SHARD, defaults, untied", LLAMA_TINY, 3)
    for world in (2, 3):
        fsdp1(f"gpt2-gradop-w{world}", "SHARD_GRAD_OP", GPT2_TINY, world, "SHARD_GRAD_OP")
        fsdp1(f"gpt2-noshard-w{world}", "NO_SHARD", GPT2_TINY, world, "NO_SHARD")
    fsdp1("gpt2-hybrid-2x2", "HYBRID_SHARD", GPT2_TINY, 4, "HYBRID_SHARD", shard_group=2, cluster="2x2xh100")
    fsdp1("gpt2-hybrid-2x4", "HYBRID_SHARD", GPT2_TINY, 8, "HYBRID_SHARD", shard_group=4, cluster="2x4xh100")
    fsdp1("gpt2-hybridz2-2x2", "_HYBRID_SHARD_ZERO2", GPT2_TINY, 4, "_HYBRID_SHARD_ZERO2", shard_group=2, cluster="2x2xh100")
    fsdp1("gpt2-post-w2", "BACKWARD_POST", GPT2_TINY, 2, options={"backward_prefetch": "BACKWARD_POST"})
    fsdp1("gpt2-noprefetch-w2", "no backward prefetch", GPT2_TINY, 2, options={"backward_prefetch": None})
    fsdp1("gpt2-post-fwd-w2", "BACKWARD_POST, forward_prefetch", GPT2_TINY, 2, options={"backward_prefetch": "BACKWARD_POST", "forward_prefetch": True})
    fsdp1("gpt2-noprefetch-fwd-w2", "no backward prefetch, forward_prefetch", GPT2_TINY, 2, options={"backward_prefetch": None, "forward_prefetch": True})
    fsdp1("llama-orig-bf16-odd-w7", "use_orig_params, bf16, 7 ranks: aligned and padded", LLAMA_TINY, 7, options={"use_orig_params": True}, precision="bf16", reduce_dtype="fp32")
    fsdp1("gpt2-pre-fwd-w2", "BACKWARD_PRE, forward_prefetch", GPT2_TINY, 2, options={"backward_prefetch": "BACKWARD_PRE", "forward_prefetch": True})
    for world in (2, 3):
        fsdp1(f"gpt2-orig-w{world}", "use_orig_params", GPT2_TINY, world, options={"use_orig_params": True})
    fsdp1("llama-orig-bf16-w3", "use_orig_params, bf16, fp32 reduction, untied", LLAMA_TINY, 3, options={"use_orig_params": True}, precision="bf16", reduce_dtype="fp32")
    fsdp1("gpt2-bf16-w3", "bf16, fp32 reduction", GPT2_TINY, 3, precision="bf16", reduce_dtype="fp32")
    fsdp1("gpt2-bf16-none-w3", "MixedPrecision(param_dtype=bf16) alone", GPT2_TINY, 3, precision="bf16")
    fsdp1("gpt2-noshard-bf16-w2", "NO_SHARD, bf16, fp32 reduction", GPT2_TINY, 2, "NO_SHARD", precision="bf16", reduce_dtype="fp32")
    fsdp1("gpt2-acc3-nosync-w2", "FULL_SHARD, 3 micro-steps, no_sync on 2", GPT2_TINY, 2, accumulation=3)
    fsdp1("gpt2-acc3-sync-w2", "FULL_SHARD, 3 micro-steps, all reduced", GPT2_TINY, 2, accumulation=3, sync=True)
    fsdp1("gpt2-gradop-acc3-nosync-w2", "SHARD_GRAD_OP, 3 micro-steps, no_sync on 2", GPT2_TINY, 2, "SHARD_GRAD_OP", accumulation=3)
    fsdp1("gpt2-hybrid-2x2-acc3-nosync", "HYBRID_SHARD, 3 micro-steps, no_sync on 2", GPT2_TINY, 4, "HYBRID_SHARD", accumulation=3, shard_group=2, cluster="2x2xh100")
    fsdp1("gpt2-noshard-acc3-nosync-w2", "NO_SHARD, 3 micro-steps, no_sync on 2", GPT2_TINY, 2, "NO_SHARD", accumulation=3)
    fsdp1("gpt2-clip-w2", "FULL_SHARD, clip_grad_norm_", GPT2_TINY, 2, clip=1.0)
    fsdp1("gpt2-clip-hybrid-2x2", "HYBRID_SHARD, clip_grad_norm_", GPT2_TINY, 4, "HYBRID_SHARD", clip=1.0, shard_group=2, cluster="2x2xh100")
    fsdp1("gpt2-clip-noshard-w2", "NO_SHARD, clip_grad_norm_", GPT2_TINY, 2, "NO_SHARD", clip=1.0)
    fsdp1("gpt2-unit-model-w2", "the whole model one unit", GPT2_TINY, 2, unit="model")
    fsdp1("gpt2-recompute-w2", "every block checkpointed", GPT2_TINY, 2, recompute="full")
    fsdp1("gpt2-124m-orig-bf16-w7", "FULL_SHARD, use_orig_params, bf16, fp32 reduction, true GPT-2, 7 ranks", GPT2_124M, 7,
          options={"use_orig_params": True}, precision="bf16", reduce_dtype="fp32")
    fsdp1("gpt2-124m-w7", "FULL_SHARD, true GPT-2, 7 ranks", GPT2_124M, 7)
    return c


def family_cases(family):
    """What every family is recorded with: all go to one file."""
    c, config = [], FAMILIES[family]

    def add(name, *args, **kw):
        c.append(make(name, *args, **kw))

    def fsdp1(name, what, world, strategy="FULL_SHARD", options=None, **kw):
        add(name, "FSDP1, " + what, "fsdp1", config, world, fsdp=dict({"sharding_strategy": strategy}, **(options or {})), **kw)

    if "num_experts_per_tok" in config:         # planned in bf16 without autocast (model/plan/experts_check.c)
        bf16 = dict(precision="bf16", reduce_dtype="fp32")
        pure = dict(precision="bf16", param_dtype="bf16")
        add("ddp-bf16params", "DDP over model.to(bfloat16)", "ddp", config, 2, ddp={"bucket_cap_mb": 0.02, "model_dtype": "bf16"}, **pure)
        add("ddp-bf16params-recompute", "DDP over model.to(bfloat16), broadcast_buffers off, every block checkpointed, no_sync on the first of 2", "ddp",
            config, 2, ddp={"bucket_cap_mb": 0.03, "broadcast_buffers": False, "model_dtype": "bf16"}, accumulation=2, recompute="full", **pure)
        add("fsdp2-bf16", "FSDP2, bf16, fp32 reduction, 7 ranks: more than experts, or fewer", "fsdp2", config, 7, **bf16)
        add("fsdp2-bf16-reshard2-clip", "FSDP2, bf16, fp32 reduction, blocks 2 of 4, clip_grad_norm_", "fsdp2", config, 4,
            fsdp={"reshard_after_forward": 2}, clip=1.0, **bf16)
        add("fsdp2-hsdp-acc2-recompute", "FSDP2, HSDP, bf16, no gradient synchronisation on the first of 2, every block checkpointed", "fsdp2", config, 4,
            shard_group=2, cluster="2x2xh100", accumulation=2, recompute="full", **bf16)
        return c
    add("ddp-cap", "DDP, several buckets", "ddp", config, 2, ddp={"bucket_cap_mb": 0.05})
    add("ddp-bf16params", "DDP over model.to(bfloat16)", "ddp", config, 2, precision="bf16", param_dtype="bf16", ddp={"bucket_cap_mb": 0.02, "model_dtype": "bf16"})
    add("ddp-acc3-static", "DDP, 3 micro-steps, all reduced, static graph", "ddp", config, 3, ddp={"bucket_cap_mb": 0.05, "static_graph": True}, accumulation=3, sync=True)
    add("ddp-nobuffers-recompute", "DDP, broadcast_buffers off, every block checkpointed, no_sync on the first of 2", "ddp", config, 2,
        ddp={"bucket_cap_mb": 0.03, "broadcast_buffers": False}, accumulation=2, recompute="full")
    fsdp1("fsdp1-full", "FULL_SHARD, defaults", 3)
    fsdp1("fsdp1-orig-bf16", "use_orig_params, bf16, fp32 reduction, 7 ranks: aligned and padded", 7, options={"use_orig_params": True}, precision="bf16", reduce_dtype="fp32")
    fsdp1("fsdp1-hybrid-acc2-clip", "HYBRID_SHARD, no_sync on the first of 2, clip_grad_norm_", 4, "HYBRID_SHARD", accumulation=2, clip=1.0, shard_group=2, cluster="2x2xh100")
    add("fsdp2", "FSDP2, defaults, 7 ranks", "fsdp2", config, 7)
    add("fsdp2-bf16-reshard2-clip", "FSDP2, bf16, fp32 reduction, blocks 2 of 4, clip_grad_norm_", "fsdp2", config, 4, fsdp={"reshard_after_forward": 2},
        precision="bf16", reduce_dtype="fp32", clip=1.0)
    add("fsdp2-hsdp-acc2-recompute", "FSDP2, HSDP, no gradient synchronisation on the first of 2, every block checkpointed", "fsdp2", config, 4,
        shard_group=2, cluster="2x2xh100", accumulation=2, recompute="full")
    return c


def main():
    outdir, wanted = sys.argv[1], sys.argv[2:]
    os.makedirs(os.path.join(outdir, "families"), exist_ok=True)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)      # tiny tensors; the children are many
    files = {case["name"]: [case] for case in cases()}
    files.update({"families/" + family: family_cases(family) for family in FAMILIES})
    failed = 0
    for name in wanted or files:
        try:
            for case in files[name]:
                load_classes(case["plan"]["model"])
            write(os.path.join(outdir, name + ".txt"), files[name])
            print("recorded", name, flush=True)
        except Exception as e:      # a case that cannot run is named, the others are still recorded
            failed += 1
            print("FAILED", name, e, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
