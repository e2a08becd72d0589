"""Steps of FSDP2 with prime-rl's mixtures (fsdp.grouped_experts), as record_torch_memory.py records them.

    PRIMERL=A_CHECKOUT python torch_grouped.py > torch_grouped.jsonl

Of the checkout (30bf494fe) trainer/models/layers/moe.py and lora/multi_moe.py run: MoE and MultiLoRAGroupedExperts in the place of transformers' modules.
torchtitan's expert_parallel() leaves alone what is no DTensor.  Of the adapters one is there, whose number and scale fake tensors cannot tell."""
import json
import os
import sys
import types

import record_torch_memory as base

import torch
from torch import nn

LAYERS = os.path.join(os.environ["PRIMERL"], "src/prime_rl/trainer/models/layers")


def stub(name, **have):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(have)
    sys.modules[name].__path__ = []


def real(name, path):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(open(os.path.join(LAYERS, path)).read(), path, "exec"), module.__dict__)
    return module


class Number(list):
    """The first of several, which item() tells."""

    def argmax(self):
        return self

    def __getitem__(self, i):
        return self

    def item(self):
        return list.__getitem__(self, 0)


for name in ("torchtitan", "torchtitan.distributed", "prime_rl", "prime_rl.trainer", "prime_rl.trainer.models", "prime_rl.trainer.models.layers",
             "prime_rl.trainer.models.layers.lora"):
    stub(name)
stub("torchtitan.distributed.expert_parallel", expert_parallel=lambda f: f)
moe = real("prime_rl.trainer.models.layers.moe", "moe.py")
adapters = real("prime_rl.trainer.models.layers.lora.base", "lora/base.py")
adapters.get_lora_num_tokens, adapters.get_multilora_scaling = (lambda: Number([0])), (lambda: Number([2]))
multi = real("prime_rl.trainer.models.layers.lora.multi_moe", "lora/multi_moe.py")

BLOCKS = "qwen3-30b-a3b-4-layers"       # whose head is not where the peak is
base.MODELS[BLOCKS] = dict(base.MODELS["qwen3-30b-a3b"], num_hidden_layers=4, vocab_size=1024)
built = base.built


def with_mixtures(plan, dtype):
    """In fp32, which is a model_dtype too."""
    model, config = built(plan, torch.float32), base.MODELS[plan["model"]]
    for block in base.blocks_of(model):
        args = moe.MoEArgs(num_experts=config["num_experts"], num_shared_experts=0, score_func="softmax", route_norm=config["norm_topk_prob"], score_before_experts=False,
                           top_k=config["num_experts_per_tok"], load_balance_coeff=None)
        block.mlp = moe.MoE(args, dim=config["hidden_size"], hidden_dim=config["moe_intermediate_size"])
    if plan.get("train") == "lora":
        model.requires_grad_(False)
        for block in base.blocks_of(model):
            block.mlp.experts = multi.MultiLoRAGroupedExperts(block.mlp.experts, plan["lora"]["rank"], 1)
            for name, p in block.mlp.experts.named_parameters():
                p.requires_grad_("lora" in name)
    return model


def cases():
    lora = {"train": "lora", "lora": {"rank": 16, "alpha": 32, "target_modules": ["gate_proj", "up_proj", "down_proj"]}}
    for more in ({}, lora):
        for options in (dict(batch=4, seq=256), dict(batch=2, seq=256, recompute="full"), dict(batch=1, seq=64, accumulation=2, reshard=False)):
            if not more or "recompute" in options:          # else the first block's attention, where nothing trains, has no history, which dpx plans as the others
                yield base.plan_of("qwen3_moe", world=4, **options, **more)
        for options in (dict(batch=1, seq=8192), dict(batch=1, seq=16384, recompute="full"), dict(batch=2, seq=4096, recompute="full", reshard=False)):
            if not more or "recompute" in options:
                yield base.plan_of(BLOCKS, world=8, **options, **more)


if __name__ == "__main__":
    base.built = with_mixtures
    base.without_gpu()
    plans = list(cases())
    for plan in plans:
        plan["fsdp"]["grouped_experts"] = True
        if "train" in plan:
            plan["fsdp"]["model_dtype"] = "fp32"
    print(json.dumps({"torch": torch.__version__, "prime-rl": "30bf494fe", "models": {name: base.MODELS[name] for name in dict.fromkeys(p["model"] for p in plans)}}, separators=(",", ":")))
    base.record(plans, sys.stdout)
