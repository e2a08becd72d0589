"""What torch's caching allocator did: torch_steps.py's `history`.

A file is JSON: `where`, code that asked, and `events`, each [action, bytes, address, index into `where`].  Actions are the allocator's: alloc,
free_requested, free_completed, segment_alloc, segment_free.  `reserved` and `allocated` are bytes when recording began."""
import gzip
import json

import torch

BEGAN = {}


def begin():
    BEGAN.update(reserved=torch.cuda.memory_reserved(), allocated=torch.cuda.memory_allocated())
    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=1_000_000)


def end(path):
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    places, rows = {}, []
    for e in events:
        frames = [f for f in e.get("frames", []) if f["filename"].endswith(".py")][:4]
        where = " < ".join("%s:%d %s" % (f["filename"].rsplit("/", 1)[-1], f["line"], f["name"]) for f in frames)
        rows.append([e["action"], e["size"], e["addr"], places.setdefault(where, len(places))])
    with gzip.open(path, "wt") as f:
        json.dump(dict(BEGAN, where=list(places), events=rows), f)
    return path.rsplit("/", 1)[-1]
