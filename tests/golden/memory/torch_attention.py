"""The plans that record_torch_memory.py --cases attention records: kernels that transformers and CUDA choose between."""


def attention_cases(plan_of, families):
    """What transformers and CUDA choose: defaults, masks, windows, shared keys and values."""
    default = None
    for family in families:
        yield plan_of(family, world=4, kernels=default, precision="bf16", batch=1, seq=256)
    yield plan_of("bloom-560m", kernels=default, seq=2048)
    yield plan_of("mpt-7b", kernels=default, seq=2048)
    yield plan_of("gemma2-2b", kernels=default, seq=2048)
    for gpu in ("h100", "a100-80gb"):
        yield plan_of("falcon-7b", kernels=default, seq=2048, gpu=gpu)
        yield plan_of("mistral-7b", kernels=default, seq=8192, gpu=gpu)
    yield plan_of("falcon-7b", kernels=default, batch=2, seq=1024, precision="fp32")
    yield plan_of("falcon-7b", kernels="torch-eager", seq=2048)
    yield plan_of("falcon-7b", kernels="torch-eager", batch=2, seq=1024)
    yield plan_of("falcon-40b", kernels=default, world=16, seq=2048)
    yield plan_of("falcon-40b", kernels="torch-eager", world=16, seq=2048)
    yield plan_of("falcon-rw-1b", kernels=default, seq=2048)
    yield plan_of("falcon", "ddp", kernels=default, world=4, batch=2, seq=256)
    yield plan_of("gemma-2b", kernels="torch-eager", seq=2048)
    yield plan_of("gemma-2b", kernels=default, seq=2048)
    yield plan_of("mistral-7b", kernels=default, seq=4095)
    yield plan_of("mistral-7b", kernels=default, seq=4096)
    yield plan_of("mistral-7b", kernels=default, seq=4100, precision="fp32")
    yield plan_of("mistral-7b", kernels=default, batch=2, seq=4096, recompute="full")
    yield plan_of("mistral-7b", "ddp", kernels=default, seq=4096)
    yield plan_of("mistral-7b", kernels="torch-eager", seq=4096)
    yield plan_of("starcoder2-3b", kernels=default, seq=4096)
    yield plan_of("starcoder2-3b", kernels=default, batch=2, seq=2048, recompute="full")
    yield plan_of("starcoder2-3b", kernels=default, seq=8192, recompute="full")
    yield plan_of("phi3-mini", kernels=default, seq=2046)
    yield plan_of("phi3-mini", kernels=default, seq=4096)
    yield plan_of("qwen2-7b-window", kernels=default, seq=8192)
    yield plan_of("qwen2-7b-half", kernels=default, seq=2048)
    yield plan_of("qwen2-7b-half", kernels="torch-eager", seq=8192)
    yield plan_of("qwen2-7b-half", kernels=default, seq=8192)
    yield plan_of("ministral-window", kernels=default, world=4, batch=2, seq=512)
    for model in ("gemma3-mixed", "olmo3-mixed", "cohere2-mixed", "exaone4-mixed"):
        yield plan_of(model, kernels=default, world=4, batch=2, seq=512)
        yield plan_of(model, kernels=default, world=4, batch=2, seq=512, precision="fp32")
        yield plan_of(model, kernels=default, world=4, batch=2, seq=512, recompute="full")
        yield plan_of(model, "ddp", kernels=default, world=4, batch=2, seq=512)
        yield plan_of(model, kernels="torch-eager", world=4, batch=2, seq=512)
    yield plan_of("gemma3-1b", kernels=default, seq=4096)
    yield plan_of("gemma3-1b", kernels=default, seq=4096, gpu="a100-80gb")
