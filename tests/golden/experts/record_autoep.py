#!/usr/bin/env python3
"""Records the collectives that DeepSpeed issues with AutoEP (expert parallelism), as golden lists for dpx.

    python record_autoep.py OUTDIR [NAME ...]      one list a name, printed; all without names, into autoep-VERSION.txt and, of
                                                   stage 3, into autoep-VERSION-stage3.txt

As ../collectives/record_deepspeed.py, whose ranks (CPU, gloo, four of them), phases and format these are.  `expert` is the group that
shares out a block's experts, `expert_data` the ranks that have the same.  The router's choice is balanced: its top-k names experts one
after the other, in place of the largest scores; all else is DeepSpeed's own.  The optimizer is made by DeepSpeed (AdamW, torch_adam),
which then makes parameter groups of the experts by itself.  At stage 0 that AdamW goes by the name of FusedAdam, which is CUDA and what the
configuration's "AdamW" is on a GPU: the engine puts FP16_Optimizer around it, and around no other optimizer.  transformers 5.23's registry of outputs (router logits, which no code here asks for
here) has no second argument of get(), which AutoEP of 0.19.6 and 0.19.8 passes: it gets one."""
import importlib
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "collectives"))

import record_deepspeed as base
import torch
import torch.multiprocessing as mp
import deepspeed
import deepspeed.moe.ep_router as ep_router
import families
from deepspeed.utils import groups

WORLD, STEPS = 4, 3
SMALL = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
         "vocab_size": 103}
MODELS = {
    "mixtral": dict(SMALL, model_type="mixtral", intermediate_size=56, num_local_experts=8, num_experts_per_tok=2),
    "qwen3_moe": dict(SMALL, model_type="qwen3_moe", intermediate_size=64, moe_intermediate_size=24, head_dim=16, num_experts=8,
                      num_experts_per_tok=2, norm_topk_prob=True),
}


def case(model, stage, ep, accumulation=1, clip=None, recompute="none", **ds):
    return {"model": model, "stage": stage, "ep": ep, "accumulation": accumulation, "clip": clip, "recompute": recompute, "ds": ds}


CASES = {
    "mixtral-z1-e2": case("mixtral", 1, 2),
    "mixtral-z1-e4": case("mixtral", 1, 4),
    "mixtral-z2-e2": case("mixtral", 2, 2),
    "mixtral-z2-e4": case("mixtral", 2, 4),
    "qwen3_moe-z2-e2-acc2-clip": case("qwen3_moe", 2, 2, accumulation=2, clip=1.0),
    "qwen3_moe-z1-e2-acc2": case("qwen3_moe", 1, 2, accumulation=2),
    "mixtral-z2-e2-small-buckets": case("mixtral", 2, 2, reduce_bucket_size=20000),
    "mixtral-z2-e2-overlap": case("mixtral", 2, 2, reduce_bucket_size=20000, overlap_comm=True),
    "mixtral-z1-e2-reduce": case("mixtral", 1, 2, use_multi_rank_bucket_allreduce=False),
    "mixtral-z2-e2-full": case("mixtral", 2, 2, recompute="full"),
    "mixtral-z0-e2": case("mixtral", 0, 2),
    "mixtral-z0-e4": case("mixtral", 0, 4),
    "qwen3_moe-z0-e2-acc2-clip": case("qwen3_moe", 0, 2, accumulation=2, clip=1.0),
    "mixtral-z0-e4-full": case("mixtral", 0, 4, recompute="full"),
    "mixtral-z3-e2": case("mixtral", 3, 2),
    "mixtral-z3-e4": case("mixtral", 3, 4),
    "qwen3_moe-z3-e2-acc2-clip": case("qwen3_moe", 3, 2, accumulation=2, clip=1.0),
    "mixtral-z3-e2-partitioned": case("mixtral", 3, 2, accumulation=2, stage3_param_persistence_threshold=0),
    "mixtral-z3-e4-partitioned": case("mixtral", 3, 4, stage3_param_persistence_threshold=0),
    "mixtral-z3-e2-ahead": case("mixtral", 3, 2, stage3_param_persistence_threshold=100, stage3_prefetch_bucket_size=6000,
                                stage3_max_reuse_distance=0),
    "qwen3_moe-z3-e2-full": case("qwen3_moe", 3, 2, recompute="full", stage3_param_persistence_threshold=0),
    "mixtral-z3-e2-small-buckets": case("mixtral", 3, 2, reduce_bucket_size=20000),
    "qwen3_moe-z3-e4-noscatter": case("qwen3_moe", 3, 4, reduce_scatter=False),
    "mixtral-z3-e2-sub-groups": case("mixtral", 3, 2, sub_group_size=8000),
}


def ds_config(c):
    config = {"train_micro_batch_size_per_gpu": base.MICRO_BATCH, "gradient_accumulation_steps": c["accumulation"],
              "gradient_clipping": c["clip"] or 0.0, "steps_per_print": 1 << 30, "bf16": {"enabled": True},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
              "zero_optimization": dict(stage=c["stage"], **c["ds"]),
              "expert_parallel": {"enabled": True, "autoep_size": c["ep"], "preset_model": c["model"]}}
    return config


def dpx_plan(c):
    version = {"framework_version": deepspeed.__version__} if deepspeed.__version__ != base.DPX_DEFAULT else {}
    return {"dpx_plan": 1, **version, "model": MODELS[c["model"]], "cluster": "localhost:%d" % WORLD,
            "strategy": ["ddp", "zero1", "zero2", "zero3"][c["stage"]], "dialect": "deepspeed", "kernels": "torch-eager", "seq": base.SEQ,
            "micro_batch": base.MICRO_BATCH, "accumulation": c["accumulation"], "precision": "bf16", "clip": c["clip"],
            "recompute": c["recompute"], "parallel": {"expert": c["ep"]}, **({"deepspeed": c["ds"]} if c["ds"] else {})}


class Balanced:
    """torch as the router sees it."""
    def __getattr__(self, name):
        return getattr(torch, name)

    def topk(self, x, k, **more):
        return None, torch.arange(x.shape[0] * k).remainder(x.shape[1]).view(x.shape[0], k)


def mend_registry():
    """dict's own get() for keys that are no models."""
    from transformers.utils import output_capturing
    registry = output_capturing._CanRecordRegistry
    real = registry.get
    registry.get = lambda self, key, *rest: real(self, key) if isinstance(key, torch.nn.Module) else dict.get(self, key, *rest)


name_of_group = base.group_name


def group_name(group):
    for of, name in ((groups._EXPERT_PARALLEL_GROUP, "expert"), (groups._EXPERT_DATA_PARALLEL_GROUP, "expert_data")):
        if any(group is g for g in of.values()):
            return "%s/%d" % (name, torch.distributed.get_world_size(group))
    return name_of_group(group)


def rank_main(rank, c, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    quiet = os.open(os.path.join(folder, "log%d" % rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    base.prepare()
    base.group_name = group_name
    base.listen_to_everything()
    ep_router.torch = Balanced()
    mend_registry()
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=WORLD,
                               init_method="file://%s/store" % folder)
    torch.manual_seed(7)
    model = families.build(MODELS[c["model"]], "eager")
    if c["recompute"] == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    if c["stage"] == 0:
        importlib.import_module("deepspeed.runtime.engine").FusedAdam = torch.optim.AdamW
    base.take()
    engine, _, _, _ = deepspeed.initialize(model=model, config=ds_config(c))
    names = {id(p): n for n, p in engine.module.named_parameters()}
    sizes = [(n, p.numel()) for n, p in engine.module.named_parameters()]
    phases, events, comments = [("init", base.take())], [], []
    if c["stage"] in (1, 2):
        base.trace_gradients(engine, names, events)
    torch.manual_seed(100 + rank)
    for step in range(STEPS):
        for micro in range(c["accumulation"]):
            events.clear()
            ids = torch.randint(MODELS[c["model"]]["vocab_size"], (base.MICRO_BATCH, base.SEQ))
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            engine.step()
        if step == 1 and events:
            comments = base.wrap_comment("last micro-step of step 2; + a gradient enters its bucket", events)
        phases.append((["first", "steady", "steady2"][step], base.take()))
        assert torch.isfinite(loss)
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump({"phases": phases, "comments": comments, "sizes": sizes, "optimizer": type(engine.optimizer).__name__,
                   "adam": "torch.optim.AdamW, parameter groups of the experts by DeepSpeed"}, f)
    os._exit(0)


def record(name):
    c = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, c, folder)) for r in range(WORLD)]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join(120)
        if any(p.exitcode != 0 for p in ranks):
            for p in ranks:
                p.kill()
            for r in range(WORLD):
                path = os.path.join(folder, "log%d" % r)
                sys.stderr.write("".join(open(path, errors="replace").readlines()[-12:]) if os.path.exists(path) else "")
            raise SystemExit("%s: FAILED" % name)
        results = [json.load(open(os.path.join(folder, "out%d" % r))) for r in range(WORLD)]
    text = base.recording(c | {"world": WORLD}, results, True, dpx_plan(c), ds_config(c))
    return ["", "list " + name] + text


def main():
    outdir, chosen = sys.argv[1], sys.argv[2:]
    head = "# recorded by record_autoep.py: deepspeed %s, torch %s, transformers %s" % (
        deepspeed.__version__, torch.__version__, base.transformers.__version__)
    planned, stage3 = ("autoep-%s%s" % (deepspeed.__version__, end) for end in (".txt", "-stage3.txt"))
    lists = {planned: [head], stage3: [head]}
    for model in MODELS.values():
        families.load_classes(model)
    for name in chosen or CASES:
        lists[stage3 if CASES[name]["stage"] == 3 else planned] += record(name)
    for name, out in lists.items():
        if chosen:
            print("\n".join(out))
            continue
        path = os.path.join(outdir, name)
        with open(path + ".new", "w") as f:
            f.write("\n".join(out) + "\n")
        os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
