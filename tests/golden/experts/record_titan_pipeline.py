#!/usr/bin/env python3
"""Records the collectives, sends and receives of a pipeline of mixtures of experts under FSDP2, experts shared out within each stage or not.

    TORCHTITAN=A_CHECKOUT python record_titan_pipeline.py OUTDIR [NAME ...]     one list a name, printed; all without names, into titan-pipeline.txt

record_titan.py's mixtures and units in the stages of ../grid/record_collectives.py: PyTorch's own PipelineStage and schedules.  Without
parallel.expert the blocks are transformers' own.  With parallel.context attention is that recorder's ring, in a pipeline or without one."""
import contextlib
import copy
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "grid"), os.path.join(HERE, "..", "memory")]

import record_titan as titan
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F

import record_collectives as rings
from families import build
from grid import Stage, blocks_of_stages, stages_of_rank

base = titan.base
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "looped-bfs": "LoopedBFS"}
in_batch = False


def group_name(pg):
    return f"context/{pg.size()}" if rings.in_ring else titan.group_name(pg)


base.group_name = group_name


class Recorder(titan.Recorder):
    def all_to_all_single(self, output, inp, out_splits, in_splits, opts=None):
        if rings.in_ring:
            return rings.Recorder.all_to_all_single(self, output, inp, out_splits, in_splits, opts)
        return super().all_to_all_single(output, inp, out_splits, in_splits, opts)

    def peer(self, op, tensors, word, rank):
        for t in tensors:
            base.log.append(f"{op} {base.group_name(self)} {base.DTYPES[t.dtype]} {t.numel()} {word} {rank}" + (" batch" if in_batch else ""))
        return base.done(tensors)

    def send(self, tensors, dst, tag):
        return self.peer("send", tensors, "to", dst)

    def recv(self, tensors, src, tag):
        for t in tensors:
            t.zero_()
        return self.peer("recv", tensors, "from", src)


def batch_isend_irecv(ops):
    global in_batch
    in_batch = True
    works = [op.op(op.tensor, group=op.group, tag=op.tag, **{"group_dst" if op.op is dist.isend else "group_src": op.group_peer}) for op in ops]
    in_batch = False
    return works


dist.batch_isend_irecv = batch_isend_irecv
dist.Backend.register_backend("stages", lambda store, rank, size, timeout: Recorder(rank, size), devices=["cpu"])


def meshes(case):
    grid, world = case["plan"]["parallel"], case["world"]
    pipe, ep, context = grid["pipeline"], grid.get("expert", 1), grid.get("context", 1)
    data = world // pipe
    shard = case["plan"].get("shard_group") or data
    dense = init_device_mesh("cpu", (pipe, data // shard, shard), mesh_dim_names=("pp", "dp_replicate", "fsdp"))
    sparse = init_device_mesh("cpu", (pipe, data // shard, shard // ep, ep), mesh_dim_names=("pp", "dp_replicate", "efsdp", "ep"))
    seen = init_device_mesh("cpu", (pipe, data // context, context), mesh_dim_names=("pp", "batch", "cp"))
    every = "world" if pipe == 1 else "data"
    for mesh, name, dim in ((dense, "pipe", "pp"), (dense, "replica", "dp_replicate"), (dense, every if shard == data else "shard", "fsdp"),
                            (sparse, "pipe", "pp"), (sparse, "replica", "dp_replicate"), (sparse, "expert_data", "efsdp"), (sparse, "expert", "ep")):
        titan.names.setdefault(mesh.get_group(dim), name)
    return dense, sparse, seen["cp"]


def clip(parameters, most, pipe):
    """torchtitan 0.2.2's clip_grad_norm_() of one mesh."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters], 2.0).full_tensor() ** 2.0
    dist.all_reduce(norm, op=dist.ReduceOp.SUM, group=pipe)
    torch.nn.utils.clip_grads_with_norm_(parameters, most, norm ** 0.5)


def loss(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(0, 1))


class Run:
    def __init__(self, case):
        self.plan, plan = case["plan"], case["plan"]
        grid, config = plan["parallel"], plan["model"]
        dense, sparse, self.context = meshes(case)
        model, pipe = build(config, **({"attention": "sdpa"} if self.context.size() > 1 else {})).train(), grid["pipeline"]
        seq = plan["seq"] // self.context.size()
        if self.context.size() > 1:
            rings.flash_only()
            rings.ring.set_rotate_method({"all-gather": "allgather", "ring": "alltoall"}[grid.get("context_method", "all-gather")])
            rings.ring._cp_options.enable_load_balance = grid.get("context_balance", True)
        kind, virtual = grid.get("pipeline_schedule"), grid.get("virtual_stages", 1)
        split = blocks_of_stages(config["num_hidden_layers"], pipe * virtual, 0, 0)
        hidden, dtype = (plan["micro_batch"], seq, config["hidden_size"]), torch.bfloat16
        positions, stages, last_one = torch.arange(seq).unsqueeze(0), [], pipe * virtual - 1
        self.mesh, self.pipe, self.flushes = dense, dense["pp"].get_group(), grid.get("pipeline_flushes", 1)
        if pipe == 1:
            self.parts = [Stage(model, split[0], True, True, positions)]
            self.wrap(self.parts[0], dense, sparse)
            self.optimizer = torch.optim.AdamW(self.parts[0].parameters(), lr=1e-4)
            return
        for index in stages_of_rank(kind, pipe, virtual, dense["pp"].get_local_rank()):
            module = Stage(copy.deepcopy(model), split[index], index == 0, index == last_one, positions)
            self.wrap(module, dense, sparse)
            given = torch.zeros(hidden[:2], dtype=torch.long) if index == 0 else torch.zeros(hidden, dtype=dtype, requires_grad=True)
            left = torch.zeros((*hidden[:2], config["vocab_size"]) if index == last_one else hidden, dtype=dtype, requires_grad=True)
            stages.append(PipelineStage(module, index, pipe * virtual, torch.device("cpu"), group=dense["pp"].get_group(), input_args=given, output_args=left))
        self.parts = [s.submod for s in stages]
        self.first, self.last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        self.schedule = get_schedule_class(SCHEDULES[kind])(
            stages[0] if kind in ("gpipe", "1f1b") else stages, n_microbatches=plan["accumulation"] // self.flushes, scale_grads=False,
            loss_fn=loss)
        self.optimizer = torch.optim.AdamW([p for m in self.parts for p in m.parameters()], lr=1e-4)

    def wrap(self, module, dense, sparse):
        plan = self.plan
        hybrid = dense["dp_replicate"].size() > 1
        fsdp = dense["dp_replicate", "fsdp"] if hybrid else dense["fsdp"]
        if plan["parallel"].get("expert", 1) > 1:
            titan.wrap_units(plan, module, module.model.layers, fsdp, sparse["dp_replicate", "efsdp"] if hybrid else sparse["efsdp"], sparse["ep"])
            return
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32 if plan["reduce_dtype"] == "fp32" else torch.bfloat16)
        layers = module.model.layers
        for i, block in enumerate(layers):
            if plan["recompute"] == "full":
                layers[i] = block = base.checkpoint_wrapper(block, checkpoint_impl=base.CheckpointImpl.NO_REENTRANT)
            fully_shard(block, mesh=fsdp, mp_policy=policy, reshard_after_forward=plan["fsdp"]["reshard_after_forward"])
        fully_shard(module, mesh=fsdp, mp_policy=policy)

    @contextlib.contextmanager
    def tokens(self, samples):
        ids, labels = (torch.randint(0, self.plan["model"]["vocab_size"], (samples, self.plan["seq"])) for _ in range(2))
        if self.context.size() == 1:
            yield ids, labels
            return
        with context_parallel(self.context, buffers=[ids, labels], buffer_seq_dims=[1, 1], no_restore_buffers={ids, labels}):
            yield ids, labels

    def step(self):
        plan = self.plan
        for micro in range(plan["accumulation"] if len(self.parts) == 1 and self.pipe.size() == 1 else 0):
            self.parts[0].set_requires_gradient_sync(micro == plan["accumulation"] - 1)
            with self.tokens(plan["micro_batch"]) as (ids, labels):
                loss(self.parts[0](ids), labels).backward()
        for _ in range(self.flushes if self.pipe.size() > 1 else 0):
            with self.tokens(plan["micro_batch"] * plan["accumulation"] // self.flushes) as (ids, labels):
                self.schedule.step(*((ids,) if self.first else ()), return_outputs=False, **({"target": labels, "losses": []} if self.last else {}))
        if plan["clip"] is not None:
            if plan["parallel"].get("expert", 1) > 1:
                titan.clip_grad_norm([p for m in self.parts for p in m.parameters()], plan["clip"], 2.0, False, None, self.mesh["pp"] if self.pipe.size() > 1 else None)
            else:
                clip([p for m in self.parts for p in m.parameters()], plan["clip"], self.pipe)
        self.optimizer.step()
        self.optimizer.zero_grad()


def run(case, rank):
    import transformers.masking_utils as masks
    masks.find_packed_sequence_indices = lambda *a, **k: None
    base.log.clear()
    dist.init_process_group("stages", store=dist.HashStore(), rank=rank, world_size=case["world"])
    torch.manual_seed(0)
    made = Run(case)
    phases = [list(base.log)]
    for _ in range(base.STEPS):
        base.log.clear()
        made.step()
        phases.append(list(base.log))
    return phases, []


base.run = run


def recording(case):
    """Of each stage the first rank, and the world's last."""
    import json
    size = case["world"] // case["plan"]["parallel"]["pipeline"]
    seen, body, same = {}, [], []
    for rank in sorted(set(range(0, case["world"], size)) | {case["world"] - 1}):
        phases = base.alone(run, case, rank)[0]
        key = json.dumps(phases)
        if key in seen:
            same.append(f"# rank {rank} issues rank {seen[key]}'s list")
            continue
        seen[key] = rank
        body += base.sections(rank, phases)
    return ["list " + case["name"], f"# {case['what']}"] + same + ["plan " + json.dumps(case["plan"], separators=(",", ":"))] + body


def cases():
    def make(name, what, model, world, pipe, kind, expert=1, virtual=1, layers=4, **more):
        plan = {"dpx_plan": 1, "model": dict(model, num_hidden_layers=layers), "cluster": f"{-(-world // 8)}x{world // -(-world // 8)}xh100", "strategy": "fsdp",
                "dialect": "torch", "kernels": "torch-eager", "unit": "block", "seq": 16, "micro_batch": 2, "accumulation": 4, "sync_every_micro_step": False,
                "precision": "bf16", "reduce_dtype": "fp32", "clip": None, "recompute": "none", "fsdp": {"reshard_after_forward": False},
                "parallel": {"expert": expert, "pipeline": pipe}}
        if pipe > 1:
            plan["parallel"] |= {"pipeline_schedule": kind, "virtual_stages": virtual, "first_stage_less_layers": 0, "last_stage_less_layers": 0}
        if "context" in more:
            plan["parallel"] |= {"context": more["context"], "context_method": more["method"]}
            plan["kernels"], plan["seq"] = "torch-sdpa", 32
        plan.update({k: v for k, v in more.items() if k not in ("flushes", "context", "method")})
        if "flushes" in more:
            plan["parallel"]["pipeline_flushes"] = more["flushes"]
        return {"name": name, "what": what, "world": world, "plan": plan}

    always = {"reshard_after_forward": True}
    yield make("mixtral-1f1b-p2-d2", "a mixture's blocks are units", titan.MIXTRAL, 4, 2, "1f1b")
    yield make("deepseek-interleaved-p2-d2-full-clip", "two blocks without experts in the first chunk, recomputed", titan.DEEPSEEK, 4, 2, "interleaved", virtual=2,
               layers=6, recompute="full", clip=1.0)
    yield make("mixtral-gpipe-p2-e2-w8", "experts over 2 of a stage's 4 ranks", titan.MIXTRAL, 8, 2, "gpipe", 2)
    yield make("mixtral-1f1b-p2-e2-w8-clip", "the same, clip_grad_norm_", titan.MIXTRAL, 8, 2, "1f1b", 2, clip=1.0)
    yield make("qwen3-interleaved-p2-e4-w8", "experts over all ranks of a stage: none are gathered", titan.QWEN3, 8, 2, "interleaved", 4, 2)
    yield make("qwen3-1f1b-p2-e2-w8-flushes", "the schedule runs twice a step", titan.QWEN3, 8, 2, "1f1b", 2, accumulation=8, flushes=2)
    yield make("deepseek-1f1b-p3-e2-w12-clip", "no experts in the first stage's blocks", titan.DEEPSEEK, 12, 3, "1f1b", 2, layers=6, clip=1.0)
    yield make("deepseek-interleaved-p2-e2-w8-full-clip", "a first chunk without experts, recomputed", titan.DEEPSEEK, 8, 2, "interleaved", 2, 2, layers=6,
               recompute="full", clip=1.0)
    yield make("glm4-interleaved-p2-e2-w8-hsdp", "two copies of 2 ranks in each stage", titan.GLM, 8, 2, "interleaved", 2, 2, shard_group=2)
    yield make("mixtral-1f1b-p2-e2-w8-always", "resharded after forward", titan.MIXTRAL, 8, 2, "1f1b", 2, fsdp=always)
    yield make("qwen3-c2-e4-w8-clip", "a sequence over 2 of 8 ranks, experts over 4", titan.QWEN3, 8, 1, None, 4, context=2, method="ring", clip=1.0)
    yield make("qwen3-c2-e2-w8-full", "the same, keys and values gathered, experts over 2, recomputed", titan.QWEN3, 8, 1, None, 2, context=2, method="all-gather",
               recompute="full")
    yield make("mixtral-1f1b-p2-c2-e4-w16", "stages, sequences and experts", titan.MIXTRAL, 16, 2, "1f1b", 4, context=2, method="ring")
    yield make("deepseek-interleaved-p2-c2-e2-w8", "stages, sequences and experts; a first chunk without experts", dict(titan.DEEPSEEK, qk_rope_head_dim=8), 8, 2, "interleaved", 2, 2,
               layers=6, context=2, method="ring")
    yield make("glm4-c2-e2-w4-full", "a first block without experts", titan.GLM, 4, 1, None, 2, context=2, method="ring", recompute="full")
    yield make("mixtral-interleaved-p2-e2-w8-always", "the same, two chunks a rank", titan.MIXTRAL, 8, 2, "interleaved", 2, 2, fsdp=always)


def main():
    outdir, wanted = sys.argv[1], sys.argv[2:]
    base.warnings.filterwarnings("ignore")
    base.transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    text = [f"# recorded from torchtitan's MoE and PyTorch's pipelines, FSDP2 of torch {torch.__version__.split('+')[0]}, CPU, by record_titan_pipeline.py"]
    failed = 0
    for case in cases():
        if wanted and case["name"] not in wanted:
            continue
        try:
            text += [""] + recording(case)
            print("recorded", case["name"], file=sys.stderr, flush=True)
        except Exception as e:
            failed += 1
            print("FAILED", case["name"], e, file=sys.stderr, flush=True)
        if not wanted:
            with open(os.path.join(outdir, "titan-pipeline.txt"), "w") as f:
                f.write("\n".join(text) + "\n")
    if wanted:
        print("\n".join(text))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
