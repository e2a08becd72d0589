#!/usr/bin/env python3
"""Records a trace of one rank of a model that ranks share: four ranks on gloo train a small llama by torchtitan's tensor and
sequence parallelism over 2 ranks and FSDP2 over 2, and one of them writes what the profiler saw of two steps.

    python record_tensor.py 3 tensor_rank3.json.gz

Needs torch and transformers (recorded with 2.15 and 5.24).  The plan is plan_tensor.json beside this file; how modules are cut
is ../grid/grid.py's."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "grid")]

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule
from transformers import LlamaConfig, LlamaForCausalLM

from grid import Sizes, cut_by_tensors, fully_sharded, meshes_of

PLAN = os.path.join(HERE, "plan_tensor.json")
WORLD = 4


def run(rank, wanted, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29513")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    plan = json.load(open(PLAN))
    plan.setdefault("fsdp", {})
    keys = {k: v for k, v in plan["model"].items() if k != "model_type"}
    model = LlamaForCausalLM(LlamaConfig(**keys, attn_implementation="sdpa", tie_word_embeddings=False, use_cache=False))
    sizes = Sizes(plan, WORLD)
    mesh, _ = meshes_of(sizes)
    cut_by_tensors(model, sizes, mesh["tp"])
    fully_sharded(model, plan, sizes, mesh, model.model.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    position = torch.arange(plan["seq"])[None]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=schedule(wait=2, warmup=1, active=2)) as profiler:
        for _ in range(5):
            ids = torch.randint(0, keys["vocab_size"], (plan["micro_batch"], plan["seq"]))
            optimizer.zero_grad()
            logits = model(input_ids=ids, position_ids=position).logits
            F.cross_entropy(logits.float().view(-1, keys["vocab_size"]), ids.view(-1)).backward()
            optimizer.step()
            profiler.step()
    if rank == wanted:
        profiler.export_chrome_trace(out)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (int(sys.argv[1]), sys.argv[2]), nprocs=WORLD)
