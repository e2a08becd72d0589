#!/usr/bin/env python3
"""Records torch.optim.Muon of matrices that FSDP2 shards: collectives, and what PyTorch's tracker counts of a step's memory.

    python record_muon.py lists lists/muon.txt [CASE ...]
    python record_muon.py memory muon.jsonl [SUBSTRING]
    python record_muon.py lists lists/muon_lora.txt lora
    python record_muon.py lora muon_lora.jsonl [SUBSTRING]

Matrices of blocks are Muon's, the rest (embedding, head, norms, biases) is AdamW's, a step of its own after it, where anything is.  With
`lora` PEFT's adapters train: A and B are matrices.  Models, wrappers and
process groups are those of ../collectives/record_torch.py and ../memory/record_torch_memory.py.

DTensor asks the device how many GPUs a node has, and prices collectives by that; of a CPU it would hear 1.  The lists' ranks answer what
the plan's cluster has.  Between two dimensions DTensor exchanges all to all on a GPU, on a CPU it gathers: the lists' ranks do the former.
PyTorch's fake kernel of that exchange returns a part of the whole tensor's storage (_shard_dim_alltoall_meta); a GPU's returns its own.
Its tracker keeps each unit's last gradient in a variable until the unit has reduced (fsdp2_mem_tracker.py, `unsharded_grad`): a step
whose peak is the root's reduce-scatter would have a gradient too many, so the short ones here do not peak there.
"""
import contextlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def hidden_matrices(blocks):
    return [p for block in blocks for p in block.parameters() if p.ndim == 2 and p.requires_grad]


def both_of(torch, AdamW):
    """An optimizer that is Muon and AdamW, as one to those who hook its step."""

    class MuonAndAdamW(torch.optim.Optimizer):
        def __init__(self, hidden, parameters, **options):
            parameters = list(parameters)
            matrices = {id(p) for p in hidden}
            super().__init__(parameters, {})
            rest = [p for p in parameters if id(p) not in matrices and p.requires_grad]
            self.each = [torch.optim.Muon(hidden)] + ([AdamW(rest, **options)] if rest else [])
            for optimizer in self.each:
                optimizer.state = self.state

        def step(self, closure=None):
            for optimizer in self.each:
                optimizer.step()
    return MuonAndAdamW


@contextlib.contextmanager
def in_place_of_adamw(torch, hidden):
    AdamW = torch.optim.AdamW
    both = both_of(torch, AdamW)
    torch.optim.AdamW = lambda parameters, **options: both(hidden(), parameters, **options)
    try:
        yield
    finally:
        torch.optim.AdamW = AdamW


# ---- collectives ----

def gpus_of_a_node(cluster):
    *_, gpus, _ = cluster.split("x")
    return int(gpus)


def lists(path, names):
    sys.path.insert(0, os.path.join(HERE, "..", "collectives"))
    import record_torch as r
    import torch
    import peft                         # noqa: before ranks are forked
    import torch.distributed._functional_collectives as funcol
    import torch.distributed.tensor.placement_types as placements

    def alltoall(tensor, gather_dim, shard_dim, mesh, mesh_dim):
        group = funcol._group_or_group_name(funcol._resolve_group((mesh, mesh_dim)))
        return torch.ops._dtensor.shard_dim_alltoall(tensor, gather_dim, shard_dim, group)

    placements.shard_dim_alltoall = alltoall
    from record_lists import LORA, SAVED, USUAL, tune
    now = {}
    run, wrap, build = r.run, r.wrap_fsdp2, r.build

    def wrapped(case, model):
        now["blocks"] = r.block_list(model)
        return wrap(case, model)

    def tuned(config, *args):
        model = build(config, *args)
        return tune(model, now["tune"]) if now["tune"] else model

    def muon_run(case, rank):
        now["tune"] = case["tune"]
        torch.cpu.device_count = lambda: gpus_of_a_node(case["plan"]["cluster"])
        with in_place_of_adamw(torch, lambda: hidden_matrices(now["blocks"])):
            return run(case, rank)
    r.wrap_fsdp2, r.run, r.build = wrapped, muon_run, tuned
    torch.set_num_threads(2)
    wide = dict(r.GPT2_TINY, n_layer=2, n_embd=768)
    llama = dict(r.LLAMA_TINY, num_hidden_layers=2, hidden_size=512, intermediate_size=1536)
    cases = []

    def add(name, *args, kept=None, tune=None, **kw):
        case = r.make(name, "", "fsdp2", *args, **kw)
        case["plan"].update(tune or {}, optimizer="muon")
        case["tune"] = tune
        if kept:
            case["param_dtype"] = case["plan"]["fsdp"]["model_dtype"] = kept
        cases.append(case)
    add("muon-llama-w4", r.LLAMA_TINY, 4)
    add("muon-llama-clip-acc2-w2", r.LLAMA_TINY, 2, clip=1.0, accumulation=2)
    add("muon-llama-uneven-w3", r.LLAMA_TINY, 3)
    add("muon-llama-uneven-clip-w5", r.LLAMA_TINY, 5, clip=1.0)
    add("muon-llama-bf16-w4", r.LLAMA_TINY, 4, precision="bf16", reduce_dtype="fp32")
    add("muon-llama-kept-bf16-w4", r.LLAMA_TINY, 4, precision="bf16", kept="bf16")
    add("muon-llama-keep-unit-2-w4", r.LLAMA_TINY, 4, fsdp={"reshard_after_forward": False}, unit="2 blocks")
    add("muon-llama-unit-model-w2", r.LLAMA_TINY, 2, unit="model")
    add("muon-llama-row-each-w24", r.LLAMA_TINY, 24, cluster="3x8xh100")
    add("muon-gpt2-w2", r.GPT2_TINY, 2, clip=1.0)
    add("muon-gpt2-w4-nodes", r.GPT2_TINY, 4, cluster="2x2xh100")
    add("muon-gpt2-recompute-w4", r.GPT2_TINY, 4, recompute="full")
    add("muon-gpt2-768-w4", wide, 4)
    add("muon-gpt2-768-w8", wide, 8, clip=1.0)
    add("muon-gpt2-768-w8-nodes", wide, 8, cluster="2x4xh100")
    add("muon-gpt2-768-uneven-w7", wide, 7)
    add("muon-llama-512-w8", llama, 8)
    add("muon-llama-512-w16-nodes", llama, 16, cluster="2x8xh100")
    wider = {"train": "lora", "lora": dict(LORA["lora"], rank=64)}
    add("muon-llama-lora-w4", r.LLAMA_TINY, 4, tune=LORA)
    add("muon-llama-lora-uneven-clip-w3", r.LLAMA_TINY, 3, clip=1.0, tune=LORA)
    add("muon-llama-lora-usual-acc2-w2", r.LLAMA_TINY, 2, accumulation=2, tune=USUAL)
    add("muon-llama-lora-saved-w4", r.LLAMA_TINY, 4, tune=SAVED)
    add("muon-gpt2-lora-usual-w4-nodes", r.GPT2_TINY, 4, cluster="2x2xh100", tune=USUAL)
    add("muon-llama-512-lora64-w8", llama, 8, tune=wider)
    add("muon-llama-512-lora64-w16-nodes", llama, 16, cluster="2x8xh100", tune=wider)
    for config in (r.LLAMA_TINY, r.GPT2_TINY):
        r.load_classes(config)
    wanted = [c for c in cases if c["tune"]] if names == ["lora"] else [c for c in cases if c["name"] in names or not (names or c["tune"])]
    r.write(path, wanted)
    with open(path) as f:
        text = f.read().replace("by record_torch.py", "by record_muon.py", 1)
    with open(path, "w") as f:
        f.write(text)


# ---- memory ----

def memory(path, only, lora):
    sys.path.insert(0, os.path.join(HERE, "..", "memory"))
    import json
    import record_torch_memory as steps     # replaces this process by one with its shim
    import torch
    import transformers
    if lora:
        import record_memory            # tunes the model of a plan before it is wrapped
    now = {}
    shard, wrap_ddp = steps.shard, steps.wrap_ddp

    def sharded(model, plan, mesh):
        now["blocks"] = steps.blocks_of(model)
        return shard(model, plan, mesh)

    def wrapped(model, plan):
        now["blocks"] = steps.blocks_of(model)
        return wrap_ddp(model, plan)
    steps.shard, steps.wrap_ddp = sharded, wrapped
    steps.without_gpu()
    import torch.distributed.tensor.placement_types as placements

    def alltoall(tensor, gather_dim, shard_dim, mesh, mesh_dim):
        sizes = list(tensor.shape)
        sizes[gather_dim] *= mesh.size(mesh_dim)
        sizes[shard_dim] //= mesh.size(mesh_dim)
        return tensor.new_empty(sizes)
    placements.shard_dim_alltoall = alltoall

    def cases():
        for precision in ("fp32", "bf16"):
            yield steps.plan_of("llama-10m", world=4, batch=1, seq=64, precision=precision)
            yield steps.plan_of("gpt2-10m", world=8, batch=1, seq=64, precision=precision)
        yield steps.plan_of("llama-10m", world=4, batch=2, seq=256, clip=1.0)
        yield steps.plan_of("llama-10m", world=4, batch=1, seq=16, reshard=False)
        yield steps.plan_of("llama-10m", world=2, batch=1, seq=256)
        yield steps.plan_of("llama-10m", world=3, batch=1, seq=256)
        yield steps.plan_of("llama-10m", world=16, batch=1, seq=16)
        yield steps.plan_of("gpt2-124m", world=4, batch=1, seq=16, recompute="full")
        yield steps.plan_of("gpt2-124m", world=16, batch=1, seq=16, recompute="full")
        yield steps.plan_of("llama-10m", world=4, batch=1, seq=256, model_dtype="bf16")
        yield steps.plan_of("llama-1b", world=8, batch=1, seq=64, recompute="full")
        yield steps.plan_of("llama-1b", world=32, batch=1, seq=64, recompute="full", accumulation=2)
        yield steps.plan_of("llama-8b", world=8, batch=1, seq=512, recompute="full")
        yield steps.plan_of("llama-8b", world=64, batch=1, seq=16, recompute="full")
        for family in ("qwen2", "gemma", "phi3", "gpt_neox"):
            yield steps.plan_of(family, world=4, batch=1, seq=16, recompute="full")

    def of_adapters():
        every = {"rank": 16, "target_modules": "all-linear"}
        for strategy in ("fsdp", "ddp"):
            yield record_memory.plan_of("llama-10m", every, strategy=strategy, world=4, batch=2, seq=64)
            yield record_memory.plan_of("llama-10m", every, strategy=strategy, world=4, batch=1, seq=16)
            yield record_memory.plan_of("gpt2-10m", strategy=strategy, world=4, batch=1, seq=64)
            yield record_memory.plan_of("llama-10m", {"rank": 8, "modules_to_save": ["embed_tokens", "lm_head"]}, strategy=strategy, world=4,
                                        batch=1, seq=16)
        yield record_memory.plan_of("llama-8b", dict(every, rank=64), world=8, batch=1, seq=512, recompute="full")
        yield record_memory.plan_of("llama-8b", every, strategy="ddp", world=2, batch=1, seq=16)
    name_of = record_memory.name_of if lora else steps.name_of
    plans = [dict(p, optimizer="muon") for p in (of_adapters if lora else cases)() if only in name_of(p)]
    with open(path, "w") as out, in_place_of_adamw(torch, lambda: hidden_matrices(now["blocks"])):
        print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__,
                          "models": {p["model"]: steps.MODELS[p["model"]] for p in plans}}), file=out)
        for plan in plans:
            print(json.dumps({"name": "muon " + name_of(plan), "plan": plan, "steady": steps.run(plan)[1]}), file=out, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("lists", "memory", "lora"):
        sys.exit(__doc__)
    if sys.argv[1] == "lists":
        lists(sys.argv[2], sys.argv[3:])
    else:
        memory(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "", sys.argv[1] == "lora")
