#!/usr/bin/env python3
"""PyTorch's speed on this GPU: bf16 training at one rank, torch.compile, SDPA, fused AdamW.

    python3 torch_train.py PLAN.json [SECONDS]

Trains the plan's model with weights kept in fp32 under autocast, and with weights and optimizer in bf16
(which is less work than dpx does), and prints the faster one's JSON: {"tokens_per_s": ..., "step_s": ...,
"how": "..."}.  A step is timed between two waits over several steps, after the compiler's."""
import json
import statistics
import sys
import time

import torch

from torch_models import model_of, read_plan


def timed(plan, how, seconds):
    """Median seconds of a step.  how: "autocast", or "bf16" for weights in bf16."""
    torch.manual_seed(1)
    torch._dynamo.reset()
    torch.set_float32_matmul_precision("high")
    model = model_of(plan).cuda().train()
    if how == "bf16":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    vocab = plan["model"]["vocab_size"]
    ids = torch.randint(vocab, (plan["micro_batch"], plan["seq"]), device="cuda")
    compiled = torch.compile(model)

    def step():
        for _ in range(plan.get("accumulation", 1)):
            with torch.autocast("cuda", torch.bfloat16, enabled=how == "autocast"):
                loss = compiled(ids, ids)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    times, begun = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        for _ in range(5):              # a wait after each would keep the host from running ahead
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 5)
    return statistics.median(times)


def main():
    plan, seconds = read_plan(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 5
    found = {}
    for how in ("autocast", "bf16"):
        try:
            found[how] = timed(plan, how, seconds)
        except torch.OutOfMemoryError:
            pass
        torch.cuda.empty_cache()
    if not found:
        sys.exit("neither way fits this GPU")
    how = min(found, key=found.get)
    tokens = plan["micro_batch"] * plan.get("accumulation", 1) * plan["seq"]
    print(json.dumps({"tokens_per_s": tokens / found[how], "step_s": found[how], "how": how, "steps_s": found,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
