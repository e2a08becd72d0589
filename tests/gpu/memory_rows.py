#!/usr/bin/env python3
"""What torch_steps.py recorded as rows of tests/accuracy/memory.jsonl.

    python3 memory_rows.py h200/steps.jsonl "own run, one H200, November 2026" >> ../accuracy/memory.jsonl

A row of plans that the file has already, of another GPU say, is left out: the allocator asks no GPU.  `first`: the plan was the first of its process; what ran
before it there may change what DDP's are.  torch_steps.py empties the allocator's cache once the model is made: `emptied`.  `driver` is given where the plan has one GPU alone: a fake process group of many has no communicators."""
import json
import os
import sys

NO_AUTOCAST = "LoRA without autocast, by an error of the recorder: adapters in fp32 computed and kept fp32, where the plan has bf16"


ONE_RANK = "NCCL takes 484 to 508 MiB for a communicator of one rank, which no plan counts (model/memory/README.md)"


HAVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "accuracy", "memory.jsonl")


def left_out(row):
    if row.get("error"):
        return row["error"]
    plan = row["plan"]
    if plan.get("train") == "lora" and plan.get("ddp", {}).get("model_dtype") and not row.get("autocast"):
        return NO_AUTOCAST
    return None


def named(row):
    """Rank 0 of many ran beside a fake process group."""
    return row["what"] + ("" if row["plan"]["cluster"].startswith("1x") else " (fake process group)") + (", first in its process" if row.get("first") else "")


def main():
    have = {json.loads(line)["what"]: json.loads(line) for line in open(HAVE)}
    for line in open(sys.argv[1]):
        row = json.loads(line)
        alone = row["plan"]["cluster"].startswith("1x")
        out = {"what": named(row), "source": sys.argv[2]}
        known = have.get(row["what"])
        if known and not known.get("left_out") and (not row.get("first") or known["reserved"] == row["reserved"]):
            continue
        reason = left_out(row)
        if reason:
            print(json.dumps(dict(out, left_out=reason)))
            continue
        if alone and row["plan"]["strategy"] == "ddp":
            out["note"] = ONE_RANK
        meters = ("allocated", "active", "reserved") + (("driver",) if alone else ())
        print(json.dumps(dict(out, **{m: row[m] for m in meters}, emptied=True, plan=row["plan"])))


main()
