#!/usr/bin/env python3
"""tests/gpu/traces.py [BUILD] -- the traces of PyTorch's profiler that GPUs gave (h200, h100), each taken in as a calibration; from the root of the
tree, after `make`.  Each of the two profiled steps by the other one, and the step without a profiler by both."""
import glob
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"


def predicted(trace, plan, steps, folder):
    """Milliseconds of the plan's step by those steps of the trace."""
    db = os.path.join(folder, "".join(["db"] + steps))
    subprocess.run([BUILD + "/dpxcal", "import", "kineto", trace, "--plan", plan, "--db", db, *steps], stdout=subprocess.DEVNULL, check=True)
    document = subprocess.run([BUILD + "/dpxplan", "eval", plan, "--json", "--db", db], stdout=subprocess.PIPE, text=True, check=True).stdout
    return 1e3 * float(re.search(r'"step_s": ([\d.e-]+)', document)[1])


def profiled(trace):
    with gzip.open(trace) as f:
        return [e["dur"] / 1e3 for e in json.load(f)["traceEvents"]
                if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]


def unprofiled(folder, plan):
    rows = [json.loads(line) for line in open(os.path.join(folder, "steps.jsonl"))]
    return 1e3 * next(r["step_s"] for r in rows if r["plan"] == plan and "step_s" in r)


for trace in sorted(glob.glob(os.path.join(HERE, "h[12]00", "trace-*.json.gz")), reverse=True):
    folder, name = os.path.dirname(trace), os.path.basename(trace)[len("trace-"):-len(".json.gz")]
    plan = os.path.join(folder, "plan-%s.json" % name)
    first, second = profiled(trace)
    with tempfile.TemporaryDirectory() as to:
        for what, steps, measured in (("step 2 by step 1", ["--steps", "1"], second), ("step 1 by step 2", ["--steps", "2"], first),
                                      ("without a profiler by both", [], unprofiled(folder, json.load(open(plan))))):
            now = predicted(trace, plan, steps, to)
            print("%s %-19s %-27s measured %7.2f ms, predicted %7.2f (%+.1f %%)"
                  % (os.path.basename(folder), name, what, measured, now, 100 * (now / measured - 1)))
