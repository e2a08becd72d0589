#!/usr/bin/env python3
"""Records the collectives that DeepSpeed issues with its own mixture of experts, deepspeed.moe.layer.MoE, as golden lists for dpx.

    python record_moe.py OUTDIR [NAME ...]      one list a name, printed; all without names, into moe-VERSION.txt

Ranks, phases and format are record_autoep.py's.  A block's mixture is replaced by a MoE whose expert is a gated MLP of three linear layers;
k, capacity_factor, min_capacity and drop_tokens are the case's.  The optimizer is made by DeepSpeed, which puts the experts into
parameter groups of their own.  Tokens name experts one after the other, in place of the largest scores: what MoE sends depends on its
capacity alone, but without drop_tokens that is the busiest expert's rows."""
import os
import sys

import record_autoep as autoep
import deepspeed
import deepspeed.moe.sharded_moe as sharded
import torch
from deepspeed.moe.layer import MoE

base = autoep.base
ARGUMENTS = {"moe_capacity_factor": "capacity_factor", "moe_min_capacity": "min_capacity", "moe_drop_tokens": "drop_tokens"}


class Expert(torch.nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj = torch.nn.Linear(hidden, width, bias=False)
        self.up_proj = torch.nn.Linear(hidden, width, bias=False)
        self.down_proj = torch.nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Mixture(MoE):
    def forward(self, x):
        return super().forward(x)[0]


class Turns:
    """torch as TopKGate sees it, for tokens that take `used` experts."""
    def __init__(self, used):
        self.used, self.turn = used, 0

    def __getattr__(self, name):
        return getattr(torch, name)

    def argmax(self, x, dim):
        places = (torch.arange(x.shape[0]) * self.used + self.turn).remainder(x.shape[1])
        self.turn = (self.turn + 1) % self.used
        return places

    def topk(self, x, k, dim=-1, **more):
        if dim != 1:
            return torch.topk(x, k=int(k), dim=dim, **more)
        places = torch.arange(x.shape[0] * k).remainder(x.shape[1]).view(x.shape[0], k)
        return x.gather(1, places), places


def replace(model, config, ranks, options):
    """Every block's mixture by a MoE over so many ranks."""
    width = config.get("moe_intermediate_size", config["intermediate_size"])
    experts = config.get("num_local_experts", config.get("num_experts"))
    used = config["num_experts_per_tok"]
    sharded.torch = Turns(used)
    for layer in model.model.layers:
        layer.mlp = Mixture(config["hidden_size"], Expert(config["hidden_size"], width), experts, ep_size=ranks, k=used,
                            **{ARGUMENTS[key]: value for key, value in options.items() if key in ARGUMENTS})
    return model


def case(model, stage, ep, **more):
    moe = {key: more.pop(key) for key in list(more) if key in ARGUMENTS}
    return dict(autoep.case(model, stage, ep, **more), moe=moe)


MODELS = dict(autoep.MODELS, top1=dict(autoep.MODELS["mixtral"], num_experts_per_tok=1), top4=dict(autoep.MODELS["qwen3_moe"], num_experts_per_tok=4))
CASES = {
    "mixtral-z0-e2": case("mixtral", 0, 2),
    "mixtral-z0-e4": case("mixtral", 0, 4),
    "mixtral-z1-e2": case("mixtral", 1, 2),
    "mixtral-z1-e4": case("mixtral", 1, 4),
    "mixtral-z2-e2": case("mixtral", 2, 2),
    "mixtral-z2-e4": case("mixtral", 2, 4),
    "mixtral-z2-e2-capacity": case("mixtral", 2, 2, moe_capacity_factor=1.25),
    "mixtral-z1-e2-least": case("mixtral", 1, 2, moe_min_capacity=16),
    "mixtral-z2-e2-undropped": case("mixtral", 2, 2, moe_drop_tokens=False),
    "top1-z1-e2": case("top1", 1, 2),
    "top1-z0-e4-undropped": case("top1", 0, 4, moe_drop_tokens=False),
    "top4-z2-e4": case("top4", 2, 4),
    "top4-z1-e2-undropped-acc2": case("top4", 1, 2, moe_drop_tokens=False, accumulation=2),
    "qwen3_moe-z2-e2-acc2-clip": case("qwen3_moe", 2, 2, accumulation=2, clip=1.0),
    "qwen3_moe-z0-e2-acc2-clip": case("qwen3_moe", 0, 2, accumulation=2, clip=1.0),
    "mixtral-z2-e2-small-buckets": case("mixtral", 2, 2, reduce_bucket_size=20000),
    "mixtral-z2-e2-overlap": case("mixtral", 2, 2, reduce_bucket_size=20000, overlap_comm=True),
    "mixtral-z2-e2-full": case("mixtral", 2, 2, recompute="full"),
}
now = None


def ds_config(c):
    config = dict(autoep_config(c))
    del config["expert_parallel"]
    return config


def dpx_plan(c):
    plan = autoep_plan(c)
    return dict(plan, deepspeed=dict(plan.get("deepspeed", {}), moe_layer="MoE", **c["moe"]))


def build(config, kind):
    return replace(build_whole(config, kind), config, now["ep"], now["moe"])


autoep_config, autoep_plan, build_whole = autoep.ds_config, autoep.dpx_plan, autoep.families.build


def main():
    global now
    outdir, chosen = sys.argv[1], sys.argv[2:]
    autoep.MODELS, autoep.CASES, autoep.ds_config, autoep.dpx_plan, autoep.families.build = MODELS, CASES, ds_config, dpx_plan, build
    lines = ["# recorded by record_moe.py: deepspeed %s, torch %s, transformers %s" % (
        deepspeed.__version__, torch.__version__, base.transformers.__version__)]
    for model in MODELS.values():
        autoep.families.load_classes(model)
    for name in chosen or CASES:
        now = CASES[name]
        lines += autoep.record(name)
    if chosen:
        print("\n".join(lines))
        return
    path = os.path.join(outdir, "moe-%s.txt" % deepspeed.__version__)
    with open(path + ".new", "w") as f:
        f.write("\n".join(lines) + "\n")
    os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
