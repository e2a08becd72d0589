#!/usr/bin/env python3
"""Records the memory of steps whose linear layers round what they multiply as if to 8 and 4 bits (torchao's fake quantisation), as torchtune
trains them: qat_distributed.py and qat_single_device.py every nn.Linear, qat_lora_finetune_distributed.py those with adapters.

    pip install torchao==0.18.0
    python record_qat.py [--only SUBSTRING] [--more] [-o qat.jsonl]
    python record_qat.py --mslk -o qat_mslk.jsonl       as axolotl has it (utils/quantization.py, prepare_model_for_qat(), int8 and int4)

By record_narrow.py's machinery.  Int8DynActInt4WeightQATQuantizer makes the layers; a tied head is torchtune's TiedLinear, which is no nn.Linear.
"""
import sys

import record_narrow as narrow
import torch
from torchao.quantization import quantize_
from torchao.quantization.qat import Int8DynActInt4WeightQATQuantizer, QATConfig
from torchao.quantization.qat.fake_quantize_config import Int4WeightFakeQuantizeConfig, IntxFakeQuantizeConfig

tuned = narrow.tuned
steps, tune = tuned.steps, tuned.tune


def rounded(model, plan):
    if not plan.get("qat"):
        return tune(model, plan)
    if plan["qat"] == "8da4w-mslk":
        weights = Int4WeightFakeQuantizeConfig(group_size=plan["qat_group"], activation_dtype=torch.bfloat16)
        inputs = IntxFakeQuantizeConfig(dtype=torch.int8, granularity="per_token", is_symmetric=False)
        quantize_(model, QATConfig(weight_config=weights, activation_config=inputs))
        return tune(model, plan)
    quantizer = Int8DynActInt4WeightQATQuantizer(groupsize=plan["qat_group"], precision=torch.bfloat16)
    tied = model.lm_head if model.config.tie_word_embeddings else None
    if tied:
        model.lm_head = None
    if "train" not in plan:
        model = quantizer.prepare(model)
    if tied:
        model.lm_head = tied
    model = tune(model, plan)
    if "train" in plan:             # QATLoRALinear rounds as these layers do
        for module in model.modules():
            if hasattr(module, "lora_A"):
                swap(module, quantizer)
    return model


def swap(adapted, quantizer):
    holder = torch.nn.Module()
    holder.layer = adapted.base_layer
    adapted.base_layer = quantizer.prepare(holder).layer
    adapted.base_layer.requires_grad_(False)


def qat(plan, group):
    return dict(plan, qat="8da4w", qat_group=group)


def cases():
    every, some = {"rank": 16, "target_modules": "all-linear"}, {"rank": 8, "target_modules": ["q_proj", "v_proj", "o_proj"]}
    small = dict(world=4, batch=2, seq=256)
    for strategy in ("fsdp", "ddp"):
        yield qat(narrow.whole("llama-10m", strategy, **small), 64)
        yield qat(narrow.whole("llama-10m", strategy, **small), 256)
        yield qat(narrow.whole("llama-15m-gqa-tied", strategy, world=4, batch=1, seq=100, accumulation=2), 32)
        yield qat(narrow.whole("llama-1b", strategy, world=4, batch=2, seq=512), 256)
        yield qat(narrow.narrow("llama-10m", strategy, some, **small), 64)
        yield qat(narrow.chunks(narrow.narrow("llama-10m", strategy, every, **small)), 64)
        yield qat(narrow.chunks(narrow.narrow("llama-15m-gqa-tied", strategy, some, **small)), 32)
        yield qat(narrow.narrow("qwen3", strategy, every, **small), 256)
    yield qat(narrow.whole("llama-8b", "fsdp", world=8, batch=1, seq=1024, recompute="full"), 256)
    yield qat(narrow.chunks(narrow.narrow("llama-8b", "fsdp", dict(every, rank=64), world=8, batch=2, seq=2048, recompute="full")), 256)
    yield qat(narrow.chunks(narrow.narrow("llama-8b", "fsdp", dict(some), world=8, batch=1, seq=1024)), 256)


def mslk_cases():
    """Weights in fp32 and in bf16."""
    small = dict(world=4, batch=2, seq=256)
    for strategy in ("fsdp", "ddp"):
        plans = [steps.plan_of("llama-10m", strategy=strategy, precision="bf16", **small)] if strategy == "fsdp" else []
        for options in (small, dict(world=4, batch=1, seq=100, accumulation=2), dict(small, recompute="full")):
            plan = steps.plan_of("llama-10m", strategy=strategy, precision="bf16", **options)
            plan[strategy]["model_dtype"] = "bf16"
            plans.append(dict(plan, reduce_dtype="fp32") if strategy == "fsdp" else plan)
        yield from (dict(plan, qat="8da4w-mslk", qat_group=64) for plan in plans)


if __name__ == "__main__":
    mslk = "--mslk" in sys.argv
    sys.argv = [a for a in sys.argv if a != "--mslk"]
    tuned.tune = rounded
    tuned.cases = mslk_cases if mslk else cases
    name_of = tuned.name_of
    tuned.name_of = lambda plan: name_of(plan) + (" qat %d" % plan["qat_group"] if plan.get("qat") else "")
    tuned.main()
