#!/usr/bin/env python3
"""Records the memory of steps whose linear layers round what they multiply as if to 8 and 4 bits (torchao's fake quantisation), as torchtune
trains them: qat_distributed.py and qat_single_device.py every nn.Linear, qat_lora_finetune_distributed.py those with adapters.

    pip install torchao==0.18.0
    python record_qat.py [--only SUBSTRING] [--more] [-o qat.jsonl]

By record_narrow.py's machinery.  Int8DynActInt4WeightQATQuantizer makes the layers; a tied head is torchtune's TiedLinear, which is no nn.Linear.
"""
import record_narrow as narrow
import torch
from torchao.quantization.qat import Int8DynActInt4WeightQATQuantizer

tuned = narrow.tuned
steps, tune = tuned.steps, tuned.tune


def rounded(model, plan):
    if not plan.get("qat"):
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


if __name__ == "__main__":
    tuned.tune = rounded
    tuned.cases = cases
    name_of = tuned.name_of
    tuned.name_of = lambda plan: name_of(plan) + (" qat %d" % plan["qat_group"] if plan.get("qat") else "")
    tuned.main()
