#!/usr/bin/env python3
"""tests/gpu/h100/addresses.py -- where the driver mapped the segments of the caching allocator (history-*.json.gz): below all before, above all before,
or in a hole between them."""
import glob
import gzip
import json
import os

for path in sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "history-*.json.gz"))):
    with gzip.open(path) as f:
        at = [(address, size) for action, size, address, _ in json.load(f)["events"] if action == "segment_alloc"]
    below = sum(a < min(x for x, _ in at[:i]) for i, (a, _) in enumerate(at) if i)
    above = sum(a > max(x for x, _ in at[:i]) for i, (a, _) in enumerate(at) if i)
    print("%-44s %4d segments, %4d below all before, %3d above, %3d between" % (os.path.basename(path), len(at), below, above, len(at) - 1 - below - above))
