#!/usr/bin/env python3
"""tests/gpu/h200/hindsight.py [BUILD] -- what today's dpx makes of what this H200 gave; from the root of the tree, after `make`.
The 17 plans of accuracy.txt from the same calibration: measured, as it was predicted before the run, and now."""
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
