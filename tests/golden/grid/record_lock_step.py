"""Records what torch 2.9 does under pipelines with several stages a rank: PipelineScheduleMulti._step_microbatches(), which runs in lock step.

    pip download --no-deps torch==2.9.1 -d W && unzip W/torch-2.9.1*.whl 'torch/distributed/pipelining/*' -d W
    python record_lock_step.py W          a minute, beside any torch; writes lock_step.csv

For Interleaved1F1B and LoopedBFS, p ranks (2..8), v stages a rank (1..4), m micro-batches (1..32): "refused", or whether every pass comes after
the time step whose batch brings what it needs ("early" where not: it would read a buffer that nothing was received into), and what all ranks
do, as record_pipeline_orders.py writes it: passes, batches of sends and receives, waits for them. The stages are stubs; the
loop is torch's own."""
import csv
import importlib
import os
import shutil
import sys
import tempfile

from record_pipeline_orders import Stage, digest

KINDS = {"interleaved": "ScheduleInterleaved1F1B", "looped-bfs": "ScheduleLoopedBFS"}


def torch_29(folder):
    """Its torch.distributed.pipelining by another name, among the installed torch."""
    home = tempfile.mkdtemp()
    shutil.copytree(os.path.join(folder, "torch", "distributed", "pipelining"), os.path.join(home, "pipelining29"))
    open(os.path.join(home, "pipelining29", "__init__.py"), "w").close()        # else it registers operators that are there
    sys.path.insert(0, home)
    return importlib.import_module("pipelining29.schedules")


class Peer(Stage):
    def clear_runtime_states(self):
        pass

    def scale_grads(self, factor):
        pass


def one_rank(schedules, cls, ranks, rank, chunks, steps):
    log = []

    def batch(ops, desc=None):
        if ops:
            log.append("{" + ",".join(ops) + "}")
        return list(log[-1:]) if ops else []

    def wait(work):
        for name in work:
            log.append("wait" + name)

    schedules._batch_p2p, schedules._wait_batch_p2p = batch, wait
    stages = [Peer(rank + c * ranks, ranks, ranks * chunks, log) for c in range(chunks)]
    run = cls(stages, steps, loss_fn=len)
    run._stages_initialized = True
    run._check_inputs = lambda a, k, t, l: ([()] * steps, [{}] * steps)
    run._maybe_compute_loss = run._maybe_get_loss = run._update_losses = lambda *args: None
    run._step_microbatches()
    return log


def early(lines, last):
    """A pass whose input no batch before it has brought, or a receive that nobody sends in the same time step (it is waited for by its rank)."""
    for line in lines:
        here = set()
        for word in line:
            if word.startswith("{"):
                here.update(w for w in word[1:-1].split(",") if "RECV" in w)
            elif not word.startswith("wait"):
                verb = "F" if "F" in word else "B"
                stage, step = word.split(verb)
                if (verb == "F" and stage != "0" or verb == "B" and int(stage) < last) and f"{stage}RECV_{verb}{step}" not in here:
                    return True
    return False


def main():
    schedules = torch_29(sys.argv[1])
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "lock_step.csv"), "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(["schedule", "p", "v", "m", "what", "comms"])
        for kind, name in KINDS.items():
            for ranks in range(2, 9):
                for chunks in range(1, 5):
                    for steps in range(1, 33):
                        try:
                            lines = [one_rank(schedules, getattr(schedules, name), ranks, r, chunks, steps) for r in range(ranks)]
                        except ValueError:
                            out.writerow([kind, ranks, chunks, steps, "refused", ""])
                            continue
                        out.writerow([kind, ranks, chunks, steps, "early" if early(lines, ranks * chunks - 1) else "runs", digest(lines)])


if __name__ == "__main__":
    main()
