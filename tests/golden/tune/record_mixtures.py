#!/usr/bin/env python3
"""Records the memory of fine-tuning mixtures of experts: LoRA by PEFT of linear layers, beside frozen experts and routers.

    python record_mixtures.py [--only SUBSTRING] [-o mixtures.jsonl]

As record_memory.py records dense models, with the models of ../memory/torch_mixtures.py.  bitsandbytes packs nn.Linear layers alone, which
neither experts nor routers are.  PEFT's "all-linear" is attention in gpt_oss; in llama4 it takes the router, too, whose adapter fails in its
forward: "AttributeError: 'tuple' object has no attribute 'dtype'" (peft/tuners/lora/layer.py, Linear.forward); in mixtral and qwen3_moe it
takes the experts' parameters and the router; "target_parameters" names the former alone.  Beside a router's adapter checkpoints fail under fake
tensors alone: FSDP2 on two gloo ranks, and one CPU, train so.
"""
import record_memory as tuned           # replaces this process by one with its shim
import torch_mixtures as mixtures

steps = tuned.steps
steps.MODELS.update(mixtures.MIXTURES)
SECOND = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]      # of shared experts and of layers without experts
SHARED = ["q_proj", "k_proj", "v_proj", "o_proj", "shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert.down_proj"]


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
    for model in ("gpt_oss", "llama4", "llama4-second", "qwen3_moe-second", "qwen3_moe-first"):
        kernels = {"kernels": "torch-eager"} if model == "gpt_oss" else {}      # whose sinks sdpa has not
        yield tuned.plan_of(model, attention, model_dtype="bf16", **half, **kernels)
        yield tuned.plan_of(model, usual, model_dtype="bf16", recompute="full", **half, **kernels)
        yield tuned.plan_of(model, attention, **dict(half, batch=1, seq=64), accumulation=2, **kernels)
        yield tuned.packed(model, None, attention, narrow=True, world=2, batch=2, seq=256, **kernels)
    for model in ("mixtral", "qwen3_moe", "gpt_oss", "llama4", "llama4-second", "qwen3_moe-second"):
        kernels = {"kernels": "torch-eager"} if model == "gpt_oss" else {}
        yield tuned.packed(model, "nf4", attention, narrow=True, world=2, batch=2, seq=256, **kernels)
        yield tuned.packed_fsdp(model, "nf4-double", attention, world=4, batch=2, seq=256, **kernels)
        yield tuned.packed_fsdp(model, "nf4", usual, world=4, batch=2, seq=256, recompute="full", **kernels)
    for model in ("mixtral", "qwen3_moe"):
        yield tuned.packed(model, "int8", attention, narrow=True, world=2, batch=2, seq=256)
    shared = {"rank": 16, "target_modules": SHARED}
    yield tuned.plan_of("llama4", shared, model_dtype="bf16", **half)
    yield tuned.plan_of("llama4", shared, model_dtype="bf16", recompute="full", **half)
    yield tuned.plan_of("llama4-second", dict(shared, target_modules=SECOND), model_dtype="bf16", **half)
    yield tuned.packed_fsdp("llama4", "nf4", shared, world=4, batch=2, seq=256)
    yield tuned.packed("llama4", None, shared, narrow=True, world=2, batch=2, seq=256)
    yield tuned.plan_of("gpt_oss", {"rank": 16, "target_modules": "all-linear"}, model_dtype="bf16", **half, kernels="torch-eager")
    for model in ("mixtral", "qwen3_moe", "gpt_oss", "llama4"):
        kernels = {"kernels": "torch-eager"} if model == "gpt_oss" else {}
        experts = ["%s.experts.%s" % ("feed_forward" if model == "llama4" else "mlp", name) for name in ("gate_up_proj", "down_proj")]
        both = {"rank": 8, "target_modules": ["q_proj"], "target_parameters": experts}
        yield tuned.plan_of(model, both, model_dtype="bf16", **half, **kernels)
        yield tuned.plan_of(model, dict(both, target_parameters=experts[1:]), model_dtype="bf16", recompute="full", **half, **kernels)
        yield tuned.plan_of(model, both, **dict(half, batch=1, seq=64), accumulation=2, **kernels)
        yield tuned.packed(model, None, both, narrow=True, world=2, batch=2, seq=256, **kernels)
        yield tuned.plan_of(model, both, model_dtype="bf16", recompute="full", **half, **kernels)
    for model, names in (("mixtral", ["q_proj", "w1", "w3"]), ("qwen3_moe", ["v_proj", "gate", "down_proj"])):
        every = {"rank": 8, "target_modules": "all-linear"}
        yield tuned.plan_of(model, every, model_dtype="bf16", **half)
        yield tuned.plan_of(model, every, **dict(half, batch=1, seq=64), accumulation=2)
        yield tuned.packed(model, None, every, narrow=True, world=2, batch=2, seq=256)
        yield tuned.plan_of(model, {"rank": 8, "target_modules": names}, model_dtype="bf16", **half)
    yield tuned.packed_fsdp("mixtral", "nf4", {"rank": 8, "target_modules": "all-linear"}, world=4, batch=2, seq=256)


if __name__ == "__main__":
    mixtures.take_grouped_products()
    tuned.cases = cases
    tuned.main()
