#!/usr/bin/env python3
"""tests/gpu/kept.py GPU -- tests/calib/measured/GPU.json, of which `make fits` makes what comes with dpx, from tests/gpu/GPU/calibration.json.gz: the same series and samples, seconds rounded to four
digits, without which the file would be four times as large."""
import gzip
import json
import os
import sys

HERE, GPU = os.path.dirname(os.path.abspath(__file__)), sys.argv[1]


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, list):
        return [rounded(v) for v in x]
    return float("%.4g" % x) if isinstance(x, float) and abs(x) < 1 else x


with gzip.open(os.path.join(HERE, GPU, "calibration.json.gz"), "rt") as f:
    document = rounded(json.load(f))
with open(os.path.join(HERE, "..", "calib", "measured", GPU + ".json"), "w") as f:
    json.dump(document, f, separators=(",", ":"))
    f.write("\n")
