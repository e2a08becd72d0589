"""Records the orders in which torch.distributed.pipelining runs a pipeline.

    python record_pipeline_orders.py        about a minute; torch 2.15.0, no GPU; writes pipeline_orders.csv

For each schedule, p ranks (1..8), v stages a rank (1..4) and m micro-batches (1..32): what the class of
torch.distributed.pipelining.schedules does, or "refused". The stages are stubs: they compute nothing.

order   compute actions of every rank as torch prints them ("2F0", "2B0", "2I0", "2W0", "(0F7;7B3)OVERLAP_F_B")
comms   what a rank does, in order: of multi-stage schedules pipeline_order_with_comms (UNSHARD, SEND_F, WAIT_SEND_F,
        REDUCE_GRAD and so on); of GPipe and 1F1B, whose code has no such list, what _step_microbatches() of the
        class calls: computation, the batch of sends and receives that it issues ("{0SEND_F3,0RECV_B0}") and waits
        for ("wait{...}"). A rank's line without stages of its own has none.

Each is 32 bits of FNV-1a over the ranks' lines: actions joined by one space, then a newline.
"""
import csv
import os

import torch.distributed.pipelining.schedules as schedules

KINDS = {
    "gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B,
    "interleaved": schedules.ScheduleInterleaved1F1B, "looped-bfs": schedules.ScheduleLoopedBFS,
    "zb1p": schedules.ScheduleInterleavedZeroBubble, "zbv": schedules.ScheduleZBVZeroBubble,
    "dualpipev": schedules.ScheduleDualPipeV,
}
SINGLE = ("gpipe", "1f1b")


class Stage:
    """What the constructors read of a stage; for single-stage schedules also what a step calls."""

    submod = None
    has_backward = True

    def __init__(self, index, ranks, stages, log=None):
        self.stage_index, self.num_stages = index, stages
        self.group_size, self.group_rank = ranks, index % ranks
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.log = log

    def get_fwd_recv_ops(self, i):
        return [] if self.is_first else [f"{self.stage_index}RECV_F{i}"]

    def get_fwd_send_ops(self, i):
        return [] if self.is_last else [f"{self.stage_index}SEND_F{i}"]

    def get_bwd_recv_ops(self, i):
        return [] if self.is_last else [f"{self.stage_index}RECV_B{i}"]

    def get_bwd_send_ops(self, i):
        return [] if self.is_first else [f"{self.stage_index}SEND_B{i}"]

    def forward_one_chunk(self, i, *args, **kwargs):
        self.log.append(f"{self.stage_index}F{i}")

    def backward_one_chunk(self, i, **kwargs):
        self.log.append(f"{self.stage_index}B{i}")

    def release_fwd_send_outputs(self, i):
        pass

    def perform_reduce_grad(self, factor):
        self.log.append(f"{self.stage_index}REDUCE_GRAD")


def single(cls, ranks, rank, steps):
    """What one rank of a single-stage schedule does, by running its own loop."""
    log = []

    def batch(ops, desc=None):
        if not ops:
            return []
        name = "{" + ",".join(ops) + "}"
        log.append(name)
        return [name]

    def sorted_batch(ops, desc=None):
        return {0: batch(ops)} if ops else {}       # all to one peer

    def wait(work):
        for name in work:
            log.append("wait" + name)

    schedules._batch_p2p, schedules._sorted_batch_p2p, schedules._wait_batch_p2p = batch, sorted_batch, wait
    run = cls(Stage(rank, ranks, ranks, log), steps)
    run._check_inputs = lambda a, k, t, l: ([()] * steps, [{}] * steps)
    run._initialize_stage = run._maybe_compute_loss = run._maybe_get_loss = run._update_losses = lambda *args: None
    run._step_microbatches()
    return log


def actions(kind, ranks, chunks, steps):
    """(compute actions, actions with communication) of every rank."""
    cls = KINDS[kind]
    if kind in SINGLE:
        if chunks > 1:
            raise ValueError("one stage a rank")
        comms = [single(cls, ranks, r, steps) for r in range(ranks)]
        order = [[a for a in line if a[-1].isdigit() and "_" not in a] for line in comms]
        return order, comms
    stages = [Stage(r, ranks, ranks * chunks) for r in range(chunks)]
    run = cls(stages, steps, loss_fn=len)
    return ([[str(a) for a in run.pipeline_order[r] if a is not None] for r in range(ranks)],
            [[str(a) for a in run.pipeline_order_with_comms[r]] for r in range(ranks)])


def digest(lines):
    h = 0x811c9dc5
    for byte in "".join(" ".join(line) + "\n" for line in lines).encode():
        h = (h ^ byte) * 0x01000193 & 0xffffffff
    return f"{h:08x}"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "pipeline_orders.csv"), "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["schedule", "p", "v", "m", "order", "comms"])
        for kind in KINDS:
            for ranks in range(1, 9):
                for chunks in range(1, 5):
                    for steps in range(1, 33):
                        try:
                            order, comms = actions(kind, ranks, chunks, steps)
                        except ValueError:
                            out.writerow([kind, ranks, chunks, steps, "refused", ""])
                            continue
                        out.writerow([kind, ranks, chunks, steps, digest(order), digest(comms)])


if __name__ == "__main__":
    main()
