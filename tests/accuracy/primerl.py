#!/usr/bin/env python3
"""Steps and reserved memory of prime-rl's own benchmarks (benchmarks/baselines), beside `dpxplan eval`.

    B=build python3 tests/accuracy/primerl.py           a line a row, then means by kind
    B=build python3 tests/accuracy/primerl.py --check   only complaints: a mean above what must hold, experts' adapters of which nothing is told

Nothing was fitted to them, and nothing is added to what dpx says.  A row's plan states what its run had: who computes attention
(`attention`), and that the loop of reinforcement learning reads each position back from the GPU (`fsdp.reads_positions`), as
prime-rl's did until 14 June 2026 (trainer/utils.py: get_response_lengths()).  The weights' broadcast and checkpoints lie before the
clock that prints time/step (trainer/rl/train.py).
"""
import json
import os
import subprocess
import sys

DPXPLAN = os.path.join(os.environ.get("B", "build"), "dpxplan")
KINDS = ("dense, adapters", "dense, whole", "experts, whole", "experts, adapters")
# What must hold, in per cent on average: reserved memory, steps.  Experts' kernels and their adapters are said not to be known.
MOST = {"dense, adapters": (4, 12), "dense, whole": (4, 12)}


def kind(what: str) -> str:
    return KINDS[2 * ("-A3B" in what or "-A22B" in what) + (("LoRA" in what) == ("-A3B" in what or "-A22B" in what))]


def evaluated(plan: dict) -> dict:
    run = subprocess.run([DPXPLAN, "eval", "-", "--json"], input=json.dumps(plan), capture_output=True, text=True, check=False)
    return json.loads(run.stdout)


def tells_adapters(plan: dict) -> bool:
    return "Adapters of experts" in subprocess.run([DPXPLAN, "eval", "-"], input=json.dumps(plan), capture_output=True, text=True, check=False).stdout


def main() -> None:
    off: dict[str, list[tuple[float, float]]] = {k: [] for k in KINDS}
    check = "--check" in sys.argv[1:]
    with open("tests/accuracy/primerl.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.startswith("{")]
    for row in rows:
        if row.get("left_out"):
            continue
        said = evaluated(row["plan"])
        reserved = 100 * (said["memory"]["reserved_peak_bytes"] / row["reserved"] - 1)
        took = 100 * (said["time"]["step_s"] / row["step_s"] - 1)
        off[kind(row["what"])].append((reserved, took))
        if check and tells_adapters(row["plan"]) != (kind(row["what"]) == "experts, adapters"):
            print(f"{row['what']}: eval has to tell that the time of experts' adapters is not known where there are some, and there alone")
        if not check:
            print(f"  {row['what']:<92} reserved {reserved:+6.1f} %  step {row['step_s']:7.2f} s {took:+6.1f} %")
    for k, errors in off.items():
        memory, time = ([abs(e[i]) for e in errors] for i in (0, 1))
        mean = (sum(memory) / len(memory), sum(time) / len(time))
        if not check:
            print(f"  {k:<18} {len(errors):2d} rows  reserved {mean[0]:4.1f} % on average, at most {max(memory):2.0f}; steps {mean[1]:4.1f} %, at most {max(time):2.0f}")
        if k in MOST and (mean[0] > MOST[k][0] or mean[1] > MOST[k][1]):
            print(f"prime-rl, {k}: reserved {mean[0]:.1f} %, steps {mean[1]:.1f} % on average: {MOST[k][0]} and {MOST[k][1]} are what must hold")


if __name__ == "__main__":
    main()
