#!/usr/bin/env python3
"""tests/gpu/h200/hindsight.py [BUILD] -- what today's dpx makes of what this H200 gave; from the root of the tree, after `make`.
The 17 plans of accuracy.txt from the same calibration: measured, as it was predicted before the run, and now.  The two traces as calibrations: each
profiled step by the other one, and the step without a profiler by both."""
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"


def gpt(layers, width, heads):
    return {"model_type": "gpt2", "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "n_layer": layers, "n_embd": width, "n_head": heads,
            "n_positions": 1024, "vocab_size": 50257}


# As tests/gpu/stage_accuracy.sh has them.
MODELS = {"gpt-896": gpt(12, 896, 14), "gpt-1280": gpt(8, 1280, 20),
          "llama-1536": {"model_type": "llama", "tie_word_embeddings": False, "num_hidden_layers": 8, "hidden_size": 1536, "num_attention_heads": 12,
                         "num_key_value_heads": 6, "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 4096}}
LINE = re.compile(r"\d+\s+(\S+) b(\d+)x(\d+) (\S+) recompute (\S+)\s+([\d.]+)ms\s+([\d.]+)ms")


def predicted(plan, *options):
    """Milliseconds of a step."""
    document = subprocess.run([BUILD + "/dpxplan", "eval", plan, "--json", *options],
                              env=dict(os.environ, XDG_DATA_HOME=os.path.join(HERE, "none"), DPX_MEASURED=os.path.join(HERE, "..", "..", "..", "calib", "measured")),
                              stdout=subprocess.PIPE, text=True, check=True).stdout
    return 1e3 * float(re.search(r'"step_s": ([\d.e-]+)', document)[1])


def of(plan):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(plan, f)
        f.flush()
        return predicted(f.name)


def by_trace(name, steps, folder):
    plan, db = os.path.join(HERE, "plan-%s.json" % name), os.path.join(folder, "%s-%s.db" % (name, "".join(steps)))
    subprocess.run([BUILD + "/dpxcal", "import", "kineto", os.path.join(HERE, "trace-%s.json.gz" % name), "--plan", plan, "--db", db, *steps],
                   stdout=subprocess.DEVNULL, check=True)
    return predicted(plan, "--db", db)


def traces():
    rows = [json.loads(line) for line in open(os.path.join(HERE, "steps.jsonl"))]
    for name in ("gpt2-ddp", "llama-fsdp2"):
        plan = json.load(open(os.path.join(HERE, "plan-%s.json" % name)))
        with gzip.open(os.path.join(HERE, "trace-%s.json.gz" % name)) as f:
            first, second = [e["dur"] / 1e3 for e in json.load(f)["traceEvents"]
                             if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]
        unprofiled = 1e3 * next(r["step_s"] for r in rows if r["plan"] == plan)
        with tempfile.TemporaryDirectory() as folder:
            for what, steps, measured in (("step 2 by step 1", ["--steps", "1"], second), ("step 1 by step 2", ["--steps", "2"], first),
                                          ("without a profiler by both", [], unprofiled)):
                now = by_trace(name, steps, folder)
                print("%-12s %-27s measured %7.2f ms, predicted %7.2f (%+.1f %%)" % (name, what, measured, now, 100 * (now / measured - 1)))


errors = [], []
for line in open(os.path.join(HERE, "accuracy.txt")):
    found = LINE.match(line)
    if not found:
        continue
    model, samples, seq, precision, recompute, measured, then = found.groups()
    now = of({"dpx_plan": 1, "cluster": "1xh200", "kernels": "dpx", "seq": int(seq), "micro_batch": int(samples), "strategy": "ddp",
              "dialect": "paper", "precision": precision, "recompute": recompute, "model": MODELS[model]})
    off = [100 * (x / float(measured) - 1) for x in (float(then), now)]
    for i in range(2):
        errors[i].append(abs(off[i]))
    print("%-10s %2s x %4s %s recompute %-4s  measured %7.2f ms, then %7.2f (%+5.1f %%), now %7.2f (%+5.1f %%)"
          % (model, samples, seq, precision, recompute, float(measured), float(then), off[0], now, off[1]))
print("%d plans: mean error %.1f %% then, %.1f %% now" % (len(errors[0]), sum(errors[0]) / len(errors[0]), sum(errors[1]) / len(errors[1])))
traces()
