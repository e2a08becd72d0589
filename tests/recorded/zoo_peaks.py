#!/usr/bin/env python3
"""What PyTorch's own trackers say of a step of modules of zoo.py, in the format of ../golden/module/peaks.jsonl: FSDPMemTracker under FSDP2, MemTracker under DDP.

    python zoo_peaks.py FOLDER NAME ... > peaks.jsonl       FOLDER has the recordings, NAME.json

The batch is 4, or the one that was recorded, the size the first that was recorded.  A tracker that fails is said, as a line
{"name": ..., "failed": why}."""
import json
import os
import re
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "golden", "module")]
import record_peaks as P
import zoo


def steps_of(folder, name):
    path = os.path.join(folder, name + ".json")
    with open(path) as f:
        doc = json.load(f)
    size = doc["size"].get("only") or (doc["size"]["least"] if doc["size"]["least"] > 1 else 64)
    unit = re.search(r"--unit (\S+)", zoo.OPTIONS[name])
    for strategy, precision in (("fsdp", "bf16"), ("ddp", "autocast")):
        if any(p["precision"] == precision for p in doc["programs"]):
            yield strategy, doc.get("batch", 4), size, unit and unit.group(1).split(","), "unused" in doc


def line_of(folder, name, strategy, b, s, chosen, unused):
    out = {"name": "%s %s" % (name, strategy)}
    try:
        steady = P.peak(getattr(zoo, name), name, b, s, strategy, "none", chosen, unused)
    except Exception as e:      # of the tracker, as of a module that it cannot wrap
        return dict(out, failed="%s: %s" % (type(e).__name__, " ".join(str(e).split())[:200]))
    plan = {"dpx_plan": 1, "model": name, "cluster": "8xh100", "strategy": strategy, "dialect": "torch", "seq": s, "micro_batch": b, "precision": "bf16"}
    if strategy == "ddp" and unused:
        plan["ddp"] = {"find_unused_parameters": True}
    return dict(out, plan=plan, steady=steady)


def main():
    folder, names = sys.argv[1], sys.argv[2:]
    P.R.without_gpu()
    print(json.dumps({"torch": P.torch.__version__, "models": {n: {"file": os.path.join(folder, n + ".json")} for n in names}}))
    for name in names:
        for step in steps_of(folder, name):
            print(json.dumps(line_of(folder, name, *step), separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
