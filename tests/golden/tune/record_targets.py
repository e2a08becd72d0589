#!/usr/bin/env python3
"""Records the memory of fine-tuning with adapters of some layers: of none of q and k, among others.

    python record_targets.py [--only SUBSTRING] [--more] [-o targets.jsonl]

As record_memory.py.  Where neither q nor k nor v of a block's first layers has an adapter, its first block keeps no rotary tables.
"""
import record_memory as tuned           # replaces this process by one with its shim


def cases():
    half = dict(precision="bf16", world=4, batch=2, seq=256)
    mlp = ["gate_proj", "up_proj", "down_proj"]
    for targets in (mlp, ["v_proj"], ["up_proj"], ["o_proj"], ["v_proj", "o_proj"], ["k_proj"], ["q_proj"], ["k_proj", "down_proj"]):
        lora = {"rank": 8, "target_modules": targets}
        yield tuned.plan_of("llama-10m", lora, **half)
        yield tuned.plan_of("llama-10m", lora, strategy="ddp", precision="fp32", world=2, batch=2, seq=256)
    for targets in (mlp, ["v_proj"]):
        lora = {"rank": 8, "target_modules": targets}
        yield tuned.plan_of("llama-10m", dict(lora, dropout=0.1), **half, kernels="torch-eager")
        yield tuned.packed("llama-10m", None, lora, narrow=True, world=2, batch=2, seq=256)
        for family in ("qwen2", "qwen3", "mistral", "gemma"):
            yield tuned.plan_of(family, lora, world=4, batch=2, seq=256)
        yield tuned.plan_of("gemma2", lora, world=4, batch=2, seq=256, kernels="torch-eager")
    yield tuned.plan_of("gpt2-10m", {"rank": 8, "target_modules": ["c_fc"]}, **half)
    yield tuned.plan_of("opt", {"rank": 8, "target_modules": ["fc1", "fc2"]}, world=4, batch=2, seq=256)


if __name__ == "__main__":
    tuned.cases = cases
    tuned.main()
