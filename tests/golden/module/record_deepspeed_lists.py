#!/usr/bin/env python3
"""The collectives that DeepSpeed's stages issue for modules of modules.py, as ../collectives/record_deepspeed.py records them: three steps on CPU ranks.

    python record_deepspeed_lists.py OUTDIR [CASE ...]            torch 2.15.0, transformers 5.24.0, deepspeed 0.19.8 (DS_BUILD_OPS=0)"""
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "collectives"), os.path.join(here, "..", "..", "..", "lib")]
import record_deepspeed as R
import torch

import modules
from dpx_record.step import Subject, checkpointed
from dpx_record.units import units_of

CHECKPOINT = {name: options.split("--checkpoint ")[1].split()[0].split(",") for name, options in modules.OPTIONS.items() if "--checkpoint" in options}
SMALL = dict(stage3_param_persistence_threshold=3000, reduce_bucket_size=300000, stage3_prefetch_bucket_size=200000, stage3_max_reuse_distance=400000)

BUCKETS = dict(reduce_bucket_size=300000, allgather_bucket_size=400000)


def case(module, stage=3, **more):
    return R.case(module, stage, more.pop("precision", "bf16"), **more)


CASES = {
    "nanogpt": case("nanogpt"),
    "nanogpt-small-w3-acc2-clip": case("nanogpt", world=3, accumulation=2, clip=1.0, **SMALL),
    "nanogpt-full": case("nanogpt", recompute="full", **SMALL),
    "bert-small": case("bert", **SMALL),
    "bert-full": case("bert", recompute="full", **SMALL),
    "llama-small-w3": case("llama", world=3, **SMALL),
    "llama-full-acc3": case("llama", recompute="full", accumulation=3, **SMALL),
    "translator-zero1-small-acc2-clip": case("translator", 1, accumulation=2, clip=1.0, **BUCKETS),
    "translator-zero2-small-w3": case("translator", 2, world=3, **BUCKETS),
}


def rank_main(rank, c, folder):
    R.begin(rank, c, folder)
    torch.manual_seed(7)
    subject = Subject(getattr(modules, c["model"])(), c["model"])
    model = subject.module
    model.train()
    if c["recompute"] == "full":
        checkpointed(model, units_of(model, None), CHECKPOINT.get(c["model"], ()))
    module_names = {id(m): n or "." for n, m in model.named_modules()}
    param_names = {id(p): n for n, p in model.named_parameters()}
    R.take()
    engine, _, _, _ = R.deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4), config=R.ds_config(c))
    phases, events = [("init", R.take())], []
    if c["stage"] == 3:
        R.trace_modules(engine, module_names, events)
    R.trace_gradients(engine, param_names, events)
    x = subject.inputs_at(R.MICRO_BATCH, R.SEQ)
    if c["precision"] == "bf16":
        cast = lambda t: t.bfloat16() if t.is_floating_point() else t
        x = {k: cast(t) for k, t in x.items()} if isinstance(x, dict) else tuple(cast(t) for t in x)
    for step in range(R.STEPS):
        for _ in range(c["accumulation"]):
            events.clear()
            engine.backward(subject.loss_of(engine, x))
            engine.step()
        if step == 1:
            comments = R.wrap_comment("last micro-step of step 2", events)
        phases.append((["first", "steady", "steady2"][step], R.take()))
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump({"phases": phases, "comments": comments, "sizes": [], "optimizer": type(engine.optimizer).__name__, "adam": "torch.optim.AdamW"}, f)
    os._exit(0)


def plan(c):
    of = R.dpx_plan(dict(c, model="gpt2", dropout=0.0))
    del of["dropout"]
    return dict(of, kernels="torch-sdpa", model="tests/golden/module/%s.json" % c["model"], seq=R.SEQ)


def main():
    R.rank_main = rank_main
    outdir, names = sys.argv[1], sys.argv[2:] or list(CASES)
    for name in names:
        results = R.train(name, CASES[name])
        if not results:
            sys.exit("failed: " + name)
        lines = ["# recorded by record_deepspeed_lists.py: deepspeed %s, torch %s, transformers %s" % (R.deepspeed.__version__, torch.__version__, R.transformers.__version__)]
        lines += R.recording(CASES[name], results, False, plan(CASES[name]), R.ds_config(CASES[name])) + results[0]["comments"]
        with open(os.path.join(outdir, name + ".txt"), "w") as f:
            f.write("\n".join(lines) + "\n")
        print("recorded", name, flush=True)


if __name__ == "__main__":
    main()
