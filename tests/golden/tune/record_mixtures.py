#!/usr/bin/env python3
"""Records the memory of fine-tuning mixtures of experts: LoRA by PEFT of attention, beside frozen experts and routers.

    python record_mixtures.py [--only SUBSTRING] [-o mixtures.jsonl]

As record_memory.py records dense models, with the models of ../memory/torch_mixtures.py.  PEFT's "all-linear" is another thing in a mixture,
whose experts are one tensor: not recorded.
"""
import record_memory as tuned           # replaces this process by one with its shim
import torch_mixtures as mixtures

steps = tuned.steps
steps.MODELS.update(mixtures.MIXTURES)


def cases():
    attention, usual = {"rank": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}, {"rank": 8, "target_modules": ["q_proj", "v_proj"]}
    half = dict(precision="bf16", world=4, batch=2, seq=256)
    for model in ("mixtral", "qwen3_moe"):
        yield tuned.plan_of(model, attention, model_dtype="bf16", **half)
        yield tuned.plan_of(model, usual, model_dtype="bf16", recompute="full", **half)
        yield tuned.plan_of(model, attention, **dict(half, batch=1, seq=64), accumulation=2)
        yield tuned.plan_of(model, dict(usual, dropout=0.1), model_dtype="bf16", clip=1.0, **dict(half, world=8))
        yield tuned.packed(model, None, attention, narrow=True, world=2, batch=2, seq=256)
        yield tuned.packed(model, None, usual, narrow=True, world=2, batch=1, seq=64, accumulation=2)


if __name__ == "__main__":
    mixtures.take_grouped_products()
    tuned.cases = cases
    tuned.main()
