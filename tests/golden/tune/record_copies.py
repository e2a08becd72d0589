#!/usr/bin/env python3
"""Records the memory of DDP's steps in which PEFT's copies (modules_to_save) train in the model's bf16 beside adapters in fp32, under autocast.

    python record_copies.py [--only SUBSTRING] [--more] [-o copies.jsonl]

By record_memory.py's machinery.  PEFT's cast_adapter_dtype() widens adapters alone, so autograd, buckets and AdamW have two dtypes.
"""
import record_memory as tuned           # replaces this process by one with its shim


def copies(model, base, lora, saved, **options):
    options = dict(dict(world=4, batch=2, seq=256), **options)
    return tuned.packed(model, base, dict(lora, modules_to_save=saved), True, **options)


def cases():
    some, every = {"rank": 8}, {"rank": 16, "target_modules": "all-linear"}
    both = ["embed_tokens", "lm_head"]
    yield copies("llama-10m", None, some, both)
    yield copies("llama-10m", None, every, both, accumulation=2)
    yield copies("llama-10m", None, every, ["lm_head"], accumulation=3, sync=False, batch=1, seq=64)
    yield copies("llama-10m", None, dict(every, dropout=0.05), ["embed_tokens"])
    yield copies("llama-10m", None, some, ["norm"])
    yield copies("llama-10m", None, every, both, view=True)
    yield copies("llama-10m", "int8", every, both)
    yield copies("llama-10m", "nf4-double", every, both)
    yield copies("llama-8b", None, dict(every, rank=64), both, world=2, batch=1, seq=1024)
    yield copies("llama-8b", "int8", dict(every, rank=32), both, world=8, batch=1, seq=512)
    yield copies("llama-15m-gqa-tied", None, every, both)
    yield copies("qwen2", None, every, ["lm_head"])
    yield copies("mistral", "nf4", every, both)


if __name__ == "__main__":
    tuned.cases = cases
    tuned.main()
