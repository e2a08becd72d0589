#!/usr/bin/env python3
"""Steps and reserved memory of prime-rl's own benchmarks (benchmarks/baselines), beside `dpxplan eval`.

    B=build python3 tests/accuracy/primerl.py           a line a row, then means by kind
    B=build python3 tests/accuracy/primerl.py --check   only complaints: a mean above what docs/evidence says

Nothing was fitted to them.  To the plan's step this script adds one thing of prime-rl's own trainer, which no plan and no import has; the means stand
with it and, "by the plan alone", without.  Until July 2026 its loop over micro-batches of
reinforcement learning reads each position of a row back from the GPU (trainer/utils.py: get_response_lengths(), `position_ids[i] == 0`), while the
GPU waits, between forward and backward.  The weights' broadcast and checkpoints lie before the clock that prints time/step (trainer/rl/train.py).

A position takes a small operator, 4.66 us (tusharhqq/napkin-math-gpu, tiny_kernel, H100), a blocking copy to the host, 13.95 us (pytorch/tensordict
pull 1545, H200: 1000 copies of 16 KB in 13.95 ms), and the Python of an index, a comparison and a truth value, 0.25 of a kernel's 12.8 us
(tests/bench/issue_cost.py: the same loop over a tensor of the CPU).
"""
import json
import os
import subprocess
import sys

DPXPLAN = os.path.join(os.environ.get("B", "build"), "dpxplan")
POSITION_S = 4.66e-6 + 13.95e-6 + 0.25 * 12.8e-6
KINDS = ("dense, adapters", "dense, whole", "experts, whole", "experts, adapters", "FlashAttention-2 on Blackwell")


def kind(what: str) -> str:
    if "B200" in what and "flash-attn 2" in what:
        return KINDS[4]
    experts = "-A3B" in what or "-A22B" in what
    return KINDS[2 * experts + ("LoRA" in what if experts else "LoRA" not in what)]


def step(row: dict, said: dict) -> float:
    plan = row["plan"]
    positions = plan["seq"] * plan["micro_batch"] * plan.get("accumulation", 1) if ", RL," in row["what"] else 0
    return said["time"]["step_s"] + positions * POSITION_S


def main() -> None:
    off = {k: ([], [], []) for k in KINDS}
    for line in open("tests/accuracy/primerl.jsonl"):
        row = json.loads(line) if line.startswith("{") else {}
        if not row or row.get("left_out"):
            continue
        said = json.loads(subprocess.run([DPXPLAN, "eval", "-", "--json"], input=json.dumps(row["plan"]), capture_output=True, text=True).stdout)
        reserved = said["memory"]["reserved_peak_bytes"] / row["reserved"] - 1
        took = step(row, said) / row["step_s"] - 1
        off[kind(row["what"])][0].append(abs(reserved))
        off[kind(row["what"])][1].append(abs(took))
        off[kind(row["what"])][2].append(abs(said["time"]["step_s"] / row["step_s"] - 1))
        if "--check" not in sys.argv[1:]:
            print(f"  {row['what']:<92} reserved {100 * reserved:+6.1f} %  step {row['step_s']:7.2f} s {100 * took:+6.1f} %")
    for k, (memory, time, alone) in off.items():
        mean = [100 * sum(x) / len(x) for x in (memory, time, alone)]
        if "--check" not in sys.argv[1:]:
            print(f"  {k:<30} {len(time):2d} rows  reserved {mean[0]:4.1f} % on average, at most {100 * max(memory):2.0f}; steps {mean[1]:4.1f} %, at most {100 * max(time):2.0f} "
                  f"({mean[2]:.1f} % by the plan alone)")
        if k == KINDS[0] and (mean[0] > 4 or mean[1] > 12):
            print(f"prime-rl, {k}: reserved {mean[0]:.1f} %, steps {mean[1]:.1f} % on average: 4 and 12 are what must hold")


if __name__ == "__main__":
    main()
