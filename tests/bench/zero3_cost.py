#!/usr/bin/env python3
"""What DeepSpeed's stage 3 costs the thread that issues kernels: hooks, gathers and flushes of the gradient bucket.

    tests/bench/zero3_cost.py        needs torch, transformers and deepspeed; no GPU, five minutes on a quiet machine

In the unit of issue_cost.py, beside which everything is measured in turns.  The model is issue_cost.py's, over PyTorch's
fake process group, which does nothing: what is left is DeepSpeed's Python and its copies, which have next to nothing to
copy.  What a gather takes is the difference between runs with and without gathers, over their number; so with flushes.
sim/price/issue_cost.c takes its constants from here.
"""
import json, os, subprocess, sys, time, warnings
warnings.filterwarnings("ignore")
ALL = 10 ** 9
flushes = {2: ("all_reduce", "reduce"), 3: ("reduce_scatter_tensor",)}


def once(f):
    t = time.thread_time()
    f()
    return time.thread_time() - t


def measure(stage, ranks, persistent, prefetch, bucket):
    """Units of a forward and a backward beside those without DeepSpeed, and how many collectives each issues."""
    import torch, importlib
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from issue_unit import Count, forward, ids, model
    torch.set_num_threads(1)
    os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="localhost", MASTER_PORT="29742", RANK="0", WORLD_SIZE=str(ranks), LOCAL_RANK="0")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    import deepspeed
    import deepspeed.comm.comm as comm
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None    # compiles an extension for ranks that share memory
    deepspeed.init_distributed("fake", verbose=False)
    plain, made = model(), model()
    engine, *_ = deepspeed.initialize(model=made, optimizer=torch.optim.SGD(made.parameters(), lr=0.0), config={
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 10 ** 6, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": ALL if persistent else 0, "overlap_comm": False,
                              "stage3_prefetch_bucket_size": prefetch, "stage3_max_live_parameters": ALL if prefetch else 0,
                              "stage3_max_reuse_distance": 0, "reduce_bucket_size": bucket}})
    issued = {"gather": 0, "gathered": 0, "flush": 0}

    def counted(name, as_what):
        real = getattr(comm.cdb, name)

        def call(*args, **kwargs):
            issued[as_what] += 1
            return real(*args, **kwargs)
        setattr(comm.cdb, name, call)
    counted("all_gather_into_tensor", "gather")
    for name in flushes[stage]:
        counted(name, "flush")

    def no_gradients():
        with torch.no_grad():
            forward(plain)

    def wrapped():
        return engine(input_ids=ids, labels=ids, use_cache=False).loss

    with torch.no_grad(), Count() as c:
        forward(plain)
    for _ in range(3):
        engine.backward(wrapped())
    counts = []
    for f in (wrapped, lambda: engine.backward(wrapped())):
        issued.update(gather=0, flush=0)
        f()
        counts.append(dict(issued))
    for name in ("all_gather_into_tensor", *flushes[stage]):
        delattr(comm.cdb, name)
    timed = [no_gradients, lambda: forward(plain), lambda: forward(plain).backward(), wrapped, lambda: engine.backward(wrapped())]
    best = [float("inf")] * len(timed)
    for _ in range(30):
        best = [min(b, once(f)) for b, f in zip(best, timed)]
    unit = best[0] / c.n
    return {"unit": unit, "forward": (best[3] - best[1]) / unit, "backward": (best[4] - best[3] - best[2] + best[1]) / unit,
            "gathers": (counts[0]["gather"], counts[1]["gather"]), "flushes": counts[1]["flush"] - counts[0]["flush"],
            "parameters": len(list(made.parameters())), "modules": sum(1 for _ in made.modules()) - 1}


def run(*args):
    """In a process of its own: DeepSpeed has one world."""
    out = subprocess.run([sys.executable, __file__, *map(str, args)], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    return json.loads(out.stdout.strip().splitlines()[-1])


if len(sys.argv) > 1:
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4]), int(sys.argv[5]))))
    sys.exit()

for ranks in (2, 8, 32):
    hooks = run(3, ranks, True, 0, ALL)
    flushing = run(3, ranks, True, 0, 9000)
    one = run(3, ranks, False, 0, ALL)
    several = run(3, ranks, False, 40000, ALL)
    n, p = 2 * hooks["modules"], hooks["parameters"]
    print("%d ranks; the unit %.1f us" % (ranks, 1e6 * hooks["unit"]))
    print("  a hook of forward, of backward (gradients included)   %5.1f %5.1f" % (hooks["forward"] / n, hooks["backward"] / n))
    print("  a flush, of %d for %d gradients                       %5.1f" % (flushing["flushes"], p, (flushing["backward"] - hooks["backward"]) / (flushing["flushes"] - hooks["flushes"])))
    for name, r in (("of one parameter", one), ("of several", several)):
        f, b = r["gathers"][0], r["gathers"][1] - r["gathers"][0]
        print("  a gather %-18s forward, backward         %5.1f %5.1f   (%d and %d of them, %d parameters)" % (
            name, (r["forward"] - hooks["forward"]) / max(f, 1), (r["backward"] - hooks["backward"]) / max(b, 1), f, b, p))
    hooks, flushing = run(2, ranks, True, 0, ALL), run(2, ranks, True, 0, 9000)
    print("  stage 2: forward, backward in all                     %5.1f %5.1f" % (hooks["forward"], hooks["backward"]))
    print("  a flush, of %d                                        %5.1f" % (flushing["flushes"], (flushing["backward"] - hooks["backward"]) / max(flushing["flushes"] - hooks["flushes"], 1)))
