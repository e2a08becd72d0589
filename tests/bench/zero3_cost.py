#!/usr/bin/env python3
"""What DeepSpeed's stages 2 and 3 cost the thread that issues kernels: hooks, gathers and flushes of the gradient bucket.

    tests/bench/zero3_cost.py [RANKS]    needs torch, transformers and deepspeed; no GPU, two minutes

In the unit of issue_cost.py.  The model is issue_cost.py's, over PyTorch's fake process group, which does nothing: what is left
is DeepSpeed's Python and its copies, which have next to nothing to copy.  Engines that gather and flush differently, and the model
without DeepSpeed, take turns in one process, so that what else the machine does meets all of them.  What a gather takes is the
difference of two engines over the difference of their gathers; so with flushes.  sim/price/issue_cost.c takes its constants from here.
"""
import importlib, os, sys, time, warnings
warnings.filterwarnings("ignore")
ALL, TURNS = 10 ** 9, int(os.environ.get("TURNS", 40))
#            stage, persistent, prefetched, gradient bucket
ENGINES = {"hooks": (3, True, 0, ALL), "flushing": (3, True, 0, 9000), "flushing less": (3, True, 0, 36000), "one": (3, False, 0, ALL), "several": (3, False, 40000, ALL),
           "stage 2": (2, True, 0, ALL), "stage 2, flushing": (2, True, 0, 9000)}


def engine_of(stage, persistent, prefetch, bucket):
    import deepspeed, torch
    from issue_unit import model
    made = model()
    engine, *_ = deepspeed.initialize(model=made, optimizer=torch.optim.SGD(made.parameters(), lr=0.0), config={
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 10 ** 6, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": ALL if persistent else 0, "overlap_comm": False,
                              "stage3_prefetch_bucket_size": prefetch, "stage3_max_live_parameters": ALL if prefetch else 0,
                              "stage3_max_reuse_distance": 0, "reduce_bucket_size": bucket}})
    return engine


def main(ranks):
    import torch
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
    plain, linear = model(), torch.nn.functional.linear
    engines = {name: engine_of(*how) for name, how in ENGINES.items()}
    issued = {"gather": 0, "flush": 0}

    def counted(name, as_what):
        real = getattr(comm.cdb, name)

        def call(*args, **kwargs):
            issued[as_what] += 1
            return real(*args, **kwargs)
        setattr(comm.cdb, name, call)

    of_deepspeed = torch.nn.functional.linear           # stage 3 puts its own in the place of PyTorch's, for all

    def step(name):
        """CPU seconds of a forward and of a backward."""
        torch.nn.functional.linear = of_deepspeed if name in ENGINES and ENGINES[name][0] == 3 else linear
        t = time.thread_time()
        loss = forward(plain) if name == "plain" else engines[name](input_ids=ids, labels=ids, use_cache=False).loss
        u = time.thread_time()
        loss.backward() if name == "plain" else engines[name].backward(loss)
        return u - t, time.thread_time() - u

    def unit():
        torch.nn.functional.linear = linear
        t = time.thread_time()
        with torch.no_grad():
            forward(plain)
        return time.thread_time() - t

    torch.nn.functional.linear = linear
    with torch.no_grad(), Count() as c:
        forward(plain)
    for _ in range(3):
        for name in engines:
            step(name)
    names = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce", "reduce")
    for name, what in zip(names, ("gather", "flush", "flush", "flush")):
        counted(name, what)
    counts = {}
    for name in ("plain", *engines):
        issued.update(gather=0, flush=0)
        with Count() as c2:
            step(name)
        counts[name] = dict(issued, kernels=c2.n)
    for name in names:
        delattr(comm.cdb, name)
    best = {name: [float("inf")] * 2 for name in ("plain", *engines)}
    of_unit = float("inf")
    for _ in range(TURNS):
        of_unit = min(of_unit, unit() / c.n)
        for name in best:
            best[name] = [min(a, b) for a, b in zip(best[name], step(name))]
    took = {name: [x / of_unit for x in both] for name, both in best.items()}
    more = {name: [a - b for a, b in zip(took[name], took["plain"])] for name in engines}
    modules, parameters = sum(1 for _ in plain.modules()) - 1, len(list(plain.parameters()))

    def per(of, beside, what):
        passes = slice(1, None) if what == "flush" else slice(None)     # a flush is in backward
        return (sum(more[of][passes]) - sum(more[beside][passes])) / max(counts[of][what] - counts[beside][what], 1)
    print("%d ranks; the unit %.1f us; plain %.0f and %.0f units, %d parameters, %d modules" % (ranks, 1e6 * of_unit, *took["plain"], parameters, modules))

    def kernels(of, beside, what):
        return (counts[of]["kernels"] - counts[beside]["kernels"]) / max(counts[of][what] - counts[beside][what], 1)
    for name in engines:
        print("  %-18s forward %7.1f, backward %7.1f, %s" % (name, *more[name], counts[name]))
    print("  a hook around a module, before or after, in forward %.1f, in backward (gradients included) %.1f" % tuple(x / (2 * modules) for x in more["hooks"]))
    for name in ("one", "several"):
        print("  a gather of %4.1f parameters %.1f, with %.1f kernels" % (2 * parameters / counts[name]["gather"], per(name, "hooks", "gather"), kernels(name, "hooks", "gather")))
    for name, beside in (("flushing", "hooks"), ("flushing less", "hooks"), ("stage 2, flushing", "stage 2")):
        print("  %s: a flush of %4.1f gradients %.1f, with %.1f kernels" % (
            name, parameters / counts[name]["flush"], per(name, beside, "flush"), kernels(name, beside, "flush")))
    print("  stage 2: a gradient %.1f, with %.1f kernels" % (more["stage 2"][1] / parameters, (counts["stage 2"]["kernels"] - counts["plain"]["kernels"]) / parameters))


main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
