#!/usr/bin/env python3
"""Records the memory of fine-tuning with adapters of the embedding and the head.

    python record_ends.py [--only SUBSTRING] [--more] [-o ends.jsonl]

As record_memory.py records adapters of blocks.  With accumulation and checkpoints together the tracker counts 65,536 bytes more of such a small step
than the plan has, with adapters of blocks alone as well: not among the cases.
"""
import record_memory as tuned           # replaces this process by one with its shim


def cases():
    half = dict(precision="bf16", world=4, batch=2, seq=256)
    head = {"rank": 8, "target_modules": ["q_proj", "v_proj", "lm_head"]}
    ends = {"rank": 8, "target_modules": ["q_proj", "embed_tokens", "lm_head"]}
    for lora in (head, ends):
        yield tuned.plan_of("llama-10m", lora, model_dtype="bf16", **half)
        yield tuned.plan_of("llama-10m", lora, **half)
        yield tuned.packed("llama-10m", None, lora, narrow=True, world=2, batch=2, seq=256)
        yield tuned.packed("llama-10m", "nf4", lora, world=2, batch=2, seq=256)
        yield tuned.packed_fsdp("llama-10m", "nf4", lora, world=4, batch=2, seq=256)
        yield tuned.plan_of("llama-10m", lora, strategy="ddp", precision="fp32", world=2, batch=2, seq=256)
        yield tuned.plan_of("llama-10m", dict(lora, dropout=0.1), **half)
    tied = "llama-15m-gqa-tied"
    for lora in (head, dict(head, target_modules=["lm_head", "down_proj"])):
        yield tuned.plan_of(tied, lora, model_dtype="bf16", **half)
        yield tuned.plan_of(tied, lora, **half)
        yield tuned.plan_of(tied, dict(lora, narrow=True), model_dtype="bf16", reduce_dtype="fp32", **half)
    yield tuned.plan_of(tied, head, strategy="ddp", precision="fp32", world=2, batch=2, seq=256)
    yield tuned.plan_of(tied, head, **dict(half, batch=1, seq=64), recompute="full")
    yield tuned.plan_of("llama-10m", {"rank": 8, "target_modules": ["q_proj", "embed_tokens"]}, model_dtype="bf16", **half)
    yield tuned.plan_of("llama-10m", {"rank": 8, "target_modules": ["q_proj", "lm_head"]}, **dict(half, batch=1, seq=64), recompute="full")


if __name__ == "__main__":
    tuned.cases = cases
    tuned.main()
