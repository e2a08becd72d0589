"""What PyTorch does in the place of `dpxrun PLAN.json`: the same GPT-2, DDP or fully_shard, gloo on CPU ranks.

    torchrun --nproc-per-node 2 tests/bench/torch_train.py ddp|fsdp CONFIG.json SEQ MICRO_BATCH STEPS

Prints tokens per second: the median step after two of warm-up.  transformers' GPT2LMHeadModel with SDPA attention,
fp32, AdamW (foreach, PyTorch's default), clip 1.0, random tokens; one thread a rank (OMP_NUM_THREADS=1).
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    how, config, seq, batch, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    fields = json.load(open(config))
    fields.pop("model_type", None)
    model = GPT2LMHeadModel(GPT2Config(**fields, attn_implementation="sdpa"))
    if how == "ddp":
        model = DistributedDataParallel(model)
    else:
        for block in model.transformer.h:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    ids = torch.randint(0, fields["vocab_size"], (batch, seq))
    times = []
    for _ in range(steps + 2):
        dist.barrier()
        began = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        step = statistics.median(times[2:])
        print(f"{seq * batch * dist.get_world_size() / step:.1f}")
    dist.destroy_process_group()


main()
