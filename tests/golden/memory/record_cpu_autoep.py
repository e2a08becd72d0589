#!/usr/bin/env python3
"""Records, storage by storage, the memory of DeepSpeed's AutoEP (expert parallelism), and of its own mixture of experts
(deepspeed.moe.layer.MoE), on real CPU ranks.

    python record_cpu_autoep.py [--only SUBSTRING] [-o cpu_ranks_autoep.jsonl]

The account, and the form of the file, are record_cpu_ranks.py's; the router, whose choice is balanced, and the configuration are
../experts/record_autoep.py's.  DeepSpeed puts its experts in the modules' place before the model moves to the device: what it has then is
copied into counted storages, and the account begins.  README.md says what else is changed.
"""
import argparse
import gc
import importlib
import json
import os
import sys
import tempfile
import time

import record_cpu_ranks as base         # preloads, and starts this script anew

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../experts"))
import record_autoep as autoep
import record_moe as moe
from record_cpu_ranks import deepspeed, dist, mp, torch, transformers
from deepspeed.runtime.engine import DeepSpeedEngine

SEQ, MICRO_BATCH = 16, 1
SMALL = {"num_hidden_layers": 3, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 256,
         "vocab_size": 4096}
MODELS = {
    "mixtral": dict(SMALL, model_type="mixtral", intermediate_size=352, num_local_experts=8, num_experts_per_tok=2),
    "qwen3_moe": dict(SMALL, model_type="qwen3_moe", intermediate_size=512, moe_intermediate_size=160, head_dim=32, num_experts=16,
                      num_experts_per_tok=4, norm_topk_prob=True),
}
MODELS["top1"] = dict(MODELS["mixtral"], num_experts_per_tok=1)


def case(model, stage, ep, world=4, accumulation=1, clip=None, recompute="none", **ds):
    plan = {"dpx_plan": 1, "model": model, "cluster": "localhost:%d" % world, "strategy": ["ddp", "zero1", "zero2", "zero3"][stage],
            "dialect": "deepspeed", "framework_version": deepspeed.__version__, "kernels": "torch-eager", "seq": SEQ,
            "micro_batch": MICRO_BATCH, "accumulation": accumulation, "precision": "bf16", "clip": clip, "parallel": {"expert": ep},
            "deepspeed": ds}
    return dict(plan, recompute=recompute) if recompute != "none" else plan


def whole(plan):
    """Experts that no ranks share out: transformers' own."""
    return {key: value for key, value in plan.items() if key != "parallel"}


def native(plan, **more):
    return dict(plan, deepspeed=dict(plan["deepspeed"], moe_layer="MoE", **more))


BUCKET = dict(reduce_bucket_size=1000000)
PARTED = dict(BUCKET, stage3_param_persistence_threshold=0)
CASES = {
    "s0_mixtral_ep2": case("mixtral", 0, 2),
    "s0_mixtral_ep4_gas2_clip": case("mixtral", 0, 4, accumulation=2, clip=1.0),
    "s0_qwen3_moe_ep2": case("qwen3_moe", 0, 2),
    "s1_mixtral_ep2": case("mixtral", 1, 2, **BUCKET),
    "s1_mixtral_ep4_gas2": case("mixtral", 1, 4, accumulation=2, **BUCKET),
    "s1_qwen3_moe_ep2_clip": case("qwen3_moe", 1, 2, clip=1.0, **BUCKET),
    "s2_mixtral_ep2": case("mixtral", 2, 2, **BUCKET),
    "s2_mixtral_ep4_gas2_clip": case("mixtral", 2, 4, accumulation=2, clip=1.0, **BUCKET),
    "s2_mixtral_ep2_small": case("mixtral", 2, 2, reduce_bucket_size=300000),
    "s2_qwen3_moe_ep4": case("qwen3_moe", 2, 4, **BUCKET),
    "s2_mixtral_ep2_recompute": case("mixtral", 2, 2, recompute="full", **BUCKET),
    "s3_mixtral_ep2": case("mixtral", 3, 2, **PARTED),
    "s3_mixtral_ep4_gas2_clip": case("mixtral", 3, 4, accumulation=2, clip=1.0, **PARTED),
    "s3_qwen3_moe_ep2": case("qwen3_moe", 3, 2, **BUCKET),
    "s3_mixtral_ep2_recompute": case("mixtral", 3, 2, recompute="full", **PARTED),
    "s3_mixtral_whole": whole(case("mixtral", 3, 1, **PARTED)),
    "s0_moe_ep2": native(case("mixtral", 0, 2)),
    "s1_moe_ep4_gas2": native(case("mixtral", 1, 4, accumulation=2, **BUCKET)),
    "s2_moe_ep2": native(case("mixtral", 2, 2, **BUCKET)),
    "s2_moe_top4_ep2": native(case("qwen3_moe", 2, 2, **BUCKET), moe_capacity_factor=1.5),
    "s1_moe_top1_ep2": native(case("top1", 1, 2, **BUCKET)),
    "s0_moe_ep2_recompute": native(case("mixtral", 0, 2, recompute="full")),
    "s1_moe_ep4_gas2_recompute": native(case("mixtral", 1, 4, accumulation=2, recompute="full", **BUCKET)),
    "s2_moe_ep2_recompute": native(case("mixtral", 2, 2, recompute="full", **BUCKET)),
    "s1_moe_top1_ep2_recompute": native(case("top1", 1, 2, recompute="full", **BUCKET)),
    "s2_moe_top4_ep2_recompute": native(case("qwen3_moe", 2, 2, recompute="full", **BUCKET)),
}


def ds_config(plan):
    """AdamW(fused=True), by name: then DeepSpeed makes the experts' parameter groups itself."""
    options = {key: value for key, value in plan["deepspeed"].items() if not key.startswith("moe_")}
    config = base.ds_config(dict(plan, deepspeed=options))
    config["train_micro_batch_size_per_gpu"] = MICRO_BATCH
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True, "fused": True}}
    if "parallel" in plan and not is_native(plan):
        config["expert_parallel"] = {"enabled": True, "autoep_size": plan["parallel"]["expert"],
                                     "preset_model": MODELS[plan["model"]]["model_type"]}
    return config


def is_native(plan):
    return plan["deepspeed"].get("moe_layer") == "MoE"


def build(plan):
    model = autoep.families.build(MODELS[plan["model"]], "eager")
    if is_native(plan):
        moe.replace(model, MODELS[plan["model"]], plan["parallel"]["expert"], plan["deepspeed"])
    model = model.to(torch.bfloat16)
    if plan.get("recompute") == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    return model


def count_from_the_move_on():
    real = DeepSpeedEngine._broadcast_model

    def broadcast(engine):
        base.account.counted(True)
        base.to_device(engine.module.parameters(), engine.module.buffers())
        gc.collect()
        base.account.mark()
        real(engine)
    DeepSpeedEngine._broadcast_model = broadcast


def listen_to_exchanges():
    """Of these nothing is counted, as of collectives."""
    def heard(*args, real=dist.distributed_c10d.all_to_all_single, **kwargs):
        was = base.account.counted(False)
        try:
            return real(*args, **kwargs)
        finally:
            base.account.counted(was)
            time.sleep(0.001)           # as in listen()
    dist.distributed_c10d.all_to_all_single = dist.all_to_all_single = heard


def micro_step(engine, plan):
    ids = torch.randint(MODELS[plan["model"]]["vocab_size"], (MICRO_BATCH, SEQ))
    engine.backward(engine(input_ids=ids, labels=ids).loss)


def rank_main(rank, name, folder):
    plan = CASES[name]
    world = int(plan["cluster"].split(":")[1])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    quiet = os.open(os.path.join(folder, "log%d" % rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    autoep.base.prepare()
    autoep.ep_router.torch = autoep.Balanced()
    autoep.mend_registry()
    if plan["strategy"] == "ddp":
        importlib.import_module("deepspeed.runtime.engine").FusedAdam = torch.optim.AdamW
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=world,
                               init_method="file://%s/store" % folder)
    base.account = account = base.Account()
    torch.manual_seed(7)
    model = build(plan)
    base.listen()
    listen_to_exchanges()
    count_from_the_move_on()
    engine, optimizer = deepspeed.initialize(model=model, config=ds_config(plan))[:2]
    gc.collect()
    phases = {"init": base.phase(engine, optimizer, plan)}
    torch.manual_seed(100 + rank)
    for step in ("first", "second", "steady"):
        for micro in range(plan["accumulation"]):
            micro_step(engine, plan)
            account.drain()
            before = account.peak
            engine.step()
        phases[step] = dict(base.phase(engine, optimizer, plan), peak_before_step=before)
    assert engine.skipped_steps == 0, "a step overflowed"
    phases["optimizer"] = type(optimizer).__name__
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump(phases, f)
    os._exit(0)         # gloo's tear-down is not what is recorded


def run(name):
    world = int(CASES[name]["cluster"].split(":")[1])
    with tempfile.TemporaryDirectory() as folder:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, name, folder)) for r in range(world)]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join(1200)
        if any(p.exitcode != 0 for p in ranks):
            for p in ranks:
                p.kill()
            for r in range(world):
                sys.stderr.write(open(os.path.join(folder, "log%d" % r), errors="replace").read()[-3000:])
            sys.exit(name + ": failed")
        return [json.load(open(os.path.join(folder, "out%d" % r))) for r in range(world)]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--only", default="")
    args.add_argument("-o", default="cpu_ranks_autoep.jsonl")
    args = args.parse_args()
    for config in MODELS.values():
        autoep.families.load_classes(config)
    with open(args.o, "w") as out:
        print(json.dumps({"torch": torch.__version__, "deepspeed": deepspeed.__version__, "transformers": transformers.__version__,
                          "models": MODELS}, separators=(",", ":")), file=out)
        for name, plan in CASES.items():
            if args.only not in name:
                continue
            print(name, file=sys.stderr, flush=True)
            print(json.dumps({"name": name, "plan": plan, "ranks": run(name)}, separators=(",", ":")), file=out, flush=True)


if __name__ == "__main__":
    main()
