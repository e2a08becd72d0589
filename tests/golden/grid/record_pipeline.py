#!/usr/bin/env python3
"""Records the orders of torch.distributed.pipelining's schedules.

    python record_pipeline.py OUTDIR        orders.txt, listings.txt, lowered.txt; two minutes

The generators run with stages that do nothing.  GPipe and 1F1B have none: their step loop runs, and what it asks of its
stage is written down (Schedule1F1B._get_pipeline_order(), which is for drawing, has another order on the last rank).
README.md gives the rows."""
import logging
import os
import sys
import types

import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules

NAMES = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B, "interleaved": schedules.ScheduleInterleaved1F1B,
         "looped-bfs": schedules.ScheduleLoopedBFS, "zb1p": schedules.ScheduleInterleavedZeroBubble,
         "zbv": schedules.ScheduleZBVZeroBubble, "dualpipev": schedules.ScheduleDualPipeV}
SINGLE, VEE = ("gpipe", "1f1b"), ("zbv", "dualpipev")


class Stub:
    """What a schedule reads of a stage, and of one that it runs what it asks."""

    def __init__(self, index, stages, ranks, rank):
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, stages, ranks, rank
        self.is_first, self.is_last, self.has_backward = index == 0, index == stages - 1, True
        self.stage_index_to_group_rank = {}
        self.submod, self.device, self.log = torch.nn.Identity(), "cpu", []

    def forward_one_chunk(self, i, *a, **k):
        self.log.append(f"{self.stage_index}F{i}")

    def backward_one_chunk(self, i, *a, **k):
        self.log.append(f"{self.stage_index}B{i}")

    def __getattr__(self, name):
        if name.startswith("get_"):
            return lambda *a: []
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: None


def words(actions):
    for a in actions:
        if a is None:
            continue
        if a.sub_actions:
            yield "[" + ";".join(str(s) for s in a.sub_actions) + "]"
        else:
            yield str(a)


def made(name, p, m, v):
    """Lists of words of all ranks: computations, and with communication (None for single-stage schedules)."""
    if name in SINGLE:
        out = []
        for r in range(p):
            stage = Stub(r, p, p, r)
            s = NAMES[name](stage, n_microbatches=m, loss_fn=None, scale_grads=False)
            s._has_backward = True
            s._maybe_compute_loss = s._update_losses = lambda *a, **k: None
            s._initialize_stage = lambda *a, **k: None
            s._step_microbatches([()] * m, [{}] * m, None, None, return_outputs=False)
            out.append(stage.log)
        return out, None
    mine = lambda r: [r, 2 * p - 1 - r] if name in VEE else [r + i * p for i in range(v)]
    s = NAMES[name]([Stub(i, p * v, p, 0) for i in mine(0)], n_microbatches=m, loss_fn=lambda *a: None)
    return ([list(words(s.pipeline_order[r])) for r in range(p)], [list(words(s.pipeline_order_with_comms[r])) for r in range(p)])


def fnv1a(text):
    h = 0xcbf29ce484222325
    for b in text.encode():
        h = (h ^ b) * 0x100000001b3 & 0xffffffffffffffff
    return h


def combinations():
    for name in NAMES:
        for p in range(1, 9):
            for v in (1,) if name in SINGLE else (2,) if name in VEE else (1, 2, 3, 4):
                for m in range(1, 33):
                    yield name, p, m, v


LISTED = [(name, 4, 8, v) for name, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("looped-bfs", 2), ("zb1p", 1), ("zb1p", 2), ("zbv", 2), ("dualpipev", 2))]
LISTED += [("interleaved", 4, 10, 2), ("interleaved", 4, 6, 2), ("interleaved", 4, 4, 2), ("zbv", 4, 3, 2), ("zb1p", 3, 5, 2), ("dualpipev", 2, 4, 2), ("dualpipev", 3, 7, 2)]
LOWERED = [(name, p, m, v) for name, vs in (("interleaved", (1, 2, 4)), ("looped-bfs", (1, 2, 4)), ("zb1p", (1, 2, 3)), ("zbv", (2,)), ("dualpipev", (2,)))
           for v in vs for p, m in ((2, 4), (3, 6), (4, 4), (4, 8)) if (p, m) != (4, 8) or v == 2]


def write(path, lines):
    with open(path, "w") as f:
        f.write(f"# recorded from torch {torch.__version__.split('+')[0]} by record_pipeline.py\n")
        f.write("".join(line + "\n" for line in lines))


def main():
    out = sys.argv[1]
    logging.disable(logging.CRITICAL)
    dist.get_rank, dist.is_initialized = lambda *a: 0, lambda: False
    rows, why = [], {}
    for name, p, m, v in combinations():
        try:
            order, _ = made(name, p, m, v)
            rows.append(f"{name} {p} {m} {v} {fnv1a(''.join(' '.join(r) + chr(10) for r in order)):016x}")
        except Exception as e:
            rows.append(f"{name} {p} {m} {v} refused")
            why.setdefault(f"{name}: {type(e).__name__}: {e}".split(" (")[0].split(", but got")[0], (p, m, v))
    write(os.path.join(out, "orders.txt"), [f"# refused, first at (p, m, v) = {at}: {text}" for text, at in why.items()] + rows)
    listed = []
    for case in LISTED:
        order, _ = made(*case)
        listed += ["%s %d %d %d" % case] + [f"{r}: " + " ".join(a) for r, a in enumerate(order)]
    write(os.path.join(out, "listings.txt"), listed)
    lowered = []
    for case in LOWERED:
        try:
            _, comms = made(*case)
        except Exception:
            continue
        lowered += ["%s %d %d %d" % case] + [f"{r}: " + " ".join(a) for r, a in enumerate(comms)]
    write(os.path.join(out, "lowered.txt"), lowered)


if __name__ == "__main__":
    main()
