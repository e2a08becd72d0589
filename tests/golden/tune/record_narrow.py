#!/usr/bin/env python3
"""Records the memory of steps whose adapters are in the model's 16 bits, without autocast, as torchtune, litgpt and Automodel train them.

    python record_narrow.py [--only SUBSTRING] [--more] [-o narrow.jsonl]

By record_memory.py's machinery: PEFT's layers with autocast_adapter_dtype=False compute what theirs do, in one dtype.
"""
import record_memory as tuned           # replaces this process by one with its shim


def narrow(model, strategy, lora, **options):
    plan = tuned.plan_of(model, dict(lora, narrow=True), strategy=strategy, precision="bf16", **options)
    plan[strategy]["model_dtype"] = "bf16"
    return dict(plan, reduce_dtype="fp32") if strategy == "fsdp" else plan


def chunks(plan):
    return dict(plan, loss="linear-chunks")


def whole(model, strategy, **options):
    plan = tuned.steps.plan_of(model, strategy=strategy, precision="bf16", **options)
    plan[strategy]["model_dtype"] = "bf16"
    return chunks(dict(plan, reduce_dtype="fp32") if strategy == "fsdp" else plan)


def cases():
    every, some = {"rank": 16, "target_modules": "all-linear"}, {"rank": 8, "target_modules": ["q_proj", "v_proj"]}
    small = dict(world=4, batch=2, seq=256)
    for strategy in ("fsdp", "ddp"):
        yield narrow("llama-10m", strategy, some, **small)
        yield narrow("llama-10m", strategy, every, **small)
        yield narrow("llama-10m", strategy, dict(every, dropout=0.05), **small)
        yield narrow("llama-10m", strategy, dict(some, target_modules=["q_proj", "v_proj", "lm_head"]), **small)
        yield narrow("llama-15m-gqa-tied", strategy, every, **small, accumulation=2)
        yield narrow("llama-8b", strategy, dict(every, rank=64), world=4, batch=1, seq=1024)
        for family in ("qwen2", "gemma", "mistral", "qwen3"):
            yield narrow(family, strategy, every, **small)
        yield chunks(narrow("llama-10m", strategy, some, **small))
        yield chunks(narrow("llama-10m", strategy, dict(every, target_modules=["q_proj", "v_proj", "lm_head"]), **small))
        yield chunks(narrow("llama-15m-gqa-tied", strategy, every, **dict(small, batch=3, seq=100)))
        yield whole("llama-10m", strategy, **small)
        yield whole("llama-15m-gqa-tied", strategy, world=4, batch=1, seq=100, accumulation=2)
        yield whole("llama-1b", strategy, world=4, batch=2, seq=512)
        yield chunks(narrow("llama-8b", strategy, dict(every, rank=64), world=4, batch=1, seq=1024))
    yield narrow("llama-10m", "fsdp", every, **small, recompute="full")
    yield chunks(narrow("llama-8b", "fsdp", dict(every, rank=64), world=8, batch=2, seq=2048, recompute="full"))
    yield narrow("llama-8b", "fsdp", dict(every, rank=64), world=8, batch=2, seq=2048, recompute="full")


if __name__ == "__main__":
    tuned.cases = cases
    tuned.main()
