#!/usr/bin/env python3
"""The collectives, sends and receives of torch.distributed.pipelining, whose stages are parts of the module `chain` of modules.py under FSDP2, HSDP or DDP, seen as
../grid/record_collectives.py sees those of families.

    python record_pipeline.py OUTDIR [CASE ...]         torch 2.15.0"""
import copy
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "grid"), os.path.join(here, "..", "collectives")]
import grid
import modules
import record_collectives as R
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

UNITS, WIDTH, VOCAB = 5, 64, 1024


def case(kind, pipe, world, strategy="fsdp", recompute="none", group=None, micro=4, **options):
    plan = {"dpx_plan": 1, "model": "tests/golden/module/chain.json", "cluster": "1x%dxh100" % world, "strategy": strategy, "dialect": "torch", "seq": 32, "micro_batch": 2,
            "accumulation": micro, "precision": "bf16" if strategy == "fsdp" else "fp32", "reduce_dtype": "fp32" if strategy == "fsdp" else None, "recompute": recompute,
            "parallel": {"pipeline": pipe, "pipeline_schedule": kind, "first_stage_less_layers": 0, "last_stage_less_layers": 0},
            **({"shard_group": group} if group else {}), **({strategy: options} if options else {})}
    return {"world": world, "plan": plan}


CASES = {
    "chain-fsdp-gpipe-p2": case("gpipe", 2, 2),
    "chain-fsdp-1f1b-p2-d2": case("1f1b", 2, 4, reshard_after_forward=False),
    "chain-fsdp-1f1b-p2-d2-always": case("1f1b", 2, 4, reshard_after_forward=True),
    "chain-fsdp-1f1b-p3-ckpt": case("1f1b", 3, 3, recompute="full", micro=5),
    "chain-hsdp-1f1b-p2": case("1f1b", 2, 8, group=2, reshard_after_forward=False),
    "chain-ddp-gpipe-p2-d2": case("gpipe", 2, 4, "ddp"),
    "chain-ddp-1f1b-p2-d2": case("1f1b", 2, 4, "ddp"),
}


class Run(R.Run):
    def __init__(self, c, rank):
        self.plan, self.case = c["plan"], c
        self.sizes = R.Sizes(dict(self.plan, fsdp=self.plan.get("fsdp", {})), c["world"])
        self.grid, self.seq, self.vocab = self.plan["parallel"], self.plan["seq"], VOCAB
        self.mesh, of = R.meshes_of(self.sizes)
        R.names.clear()
        R.names.update(of)
        torch.manual_seed(0)
        self.stage(modules.chain()[0].train())
        self.optimizer = torch.optim.AdamW([p for m in self.parts for p in m.parameters()], lr=1e-4)

    def wrapped(self, part):
        if self.plan["recompute"] == "full":
            for i, block in enumerate(part.h):
                part.h[i] = checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
        if self.plan["strategy"] == "ddp":
            return DistributedDataParallel(part, device_mesh=self.mesh["dp_replicate"])
        return grid.fully_sharded(part, dict(self.plan, fsdp=self.plan.get("fsdp", {})), self.sizes, self.mesh, part.h)

    def stage(self, model):
        pipe, me = self.sizes.pipe, self.mesh["pp"].get_local_rank()
        self.flushes, self.first, self.last = 1, me == 0, me == pipe - 1
        split = R.blocks_of_stages(UNITS, pipe, 0, 0)
        dtype = torch.bfloat16 if self.plan["precision"] == "bf16" else torch.float32
        hidden = lambda n: torch.zeros(2, self.seq, n, dtype=dtype, requires_grad=True)
        given = torch.zeros(2, self.seq, dtype=torch.long) if self.first else hidden(WIDTH)
        part = self.wrapped(modules.Part(copy.deepcopy(model), split[me], self.first, self.last))
        stage = PipelineStage(part, me, pipe, torch.device("cpu"), group=self.mesh["pp"].get_group(), input_args=given, output_args=hidden(VOCAB if self.last else WIDTH))
        loss = lambda logits, labels: F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))
        self.parts, self.schedule = [part], get_schedule_class(R.SCHEDULES[self.grid["pipeline_schedule"]])(stage, n_microbatches=self.plan["accumulation"], loss_fn=loss,
                                                                                                              scale_grads=False)

    def step(self):
        batch = self.plan["micro_batch"] * self.plan["accumulation"]
        x = torch.randint(0, VOCAB, (batch, self.seq))
        self.schedule.step(*((x,) if self.first else ()), return_outputs=False, **({"target": x, "losses": []} if self.last else {}))
        self.optimizer.step()
        self.optimizer.zero_grad()


def run(c, rank):
    R.base.log.clear()
    dist.init_process_group("grid", store=dist.HashStore(), rank=rank, world_size=c["world"])
    made = Run(c, rank)
    phases = [list(R.base.log)]
    for _ in range(R.STEPS[c["plan"]["strategy"]]):
        R.base.log.clear()
        made.step()
        phases.append(list(R.base.log))
    return phases


def main():
    outdir, names = sys.argv[1], sys.argv[2:] or list(CASES)
    for name in names:
        c, seen = CASES[name], []
        lines = ["# recorded from torch %s, CPU, by record_pipeline.py" % torch.__version__.split("+")[0], "plan " + json.dumps(c["plan"])]
        for rank in R.ranks_of(c):
            phases = R.alone(run, c, rank)
            lines += R.base.sections(rank, phases) if phases not in seen else []
            seen.append(phases)
        with open(os.path.join(outdir, name + ".txt"), "w") as f:
            f.write("\n".join(lines) + "\n")
        print("recorded", name, flush=True)


if __name__ == "__main__":
    main()
