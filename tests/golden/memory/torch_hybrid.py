"""Models whose blocks have one mixer each, for record_torch_memory.py --cases hybrid: nemotron_h with mamba_ssm's fused Mamba-2 function.

    git clone https://github.com/state-spaces/mamba && git clone https://github.com/Dao-AILab/causal-conv1d
    DPX_MAMBA=mamba:causal-conv1d python record_torch_memory.py --cases hybrid -o torch_hybrid.jsonl

Recorded with mamba e9594ce1 and causal-conv1d of 23 July 2026.  Their Python runs as it is, so that every tensor that it makes, keeps and drops
is PyTorch's; its kernels, Triton's and causal_conv1d_cuda's, are left out: they write into tensors that are there.
"""
import contextlib
import os
import sys
import types

import torch

SMALL = {"model_type": "nemotron_h", "hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 2,
         "head_dim": 64, "vocab_size": 8192, "max_position_embeddings": 1024, "mamba_num_heads": 16, "mamba_head_dim": 64, "n_groups": 2,
         "ssm_state_size": 64, "chunk_size": 128, "tie_word_embeddings": False}
HYBRID = {
    "hybrid-small": dict(SMALL, num_hidden_layers=8, hybrid_override_pattern="M-M*-MM-"),
    "hybrid-odd": dict(SMALL, num_hidden_layers=7, hybrid_override_pattern="M-*M-M-", mamba_num_heads=6),
    "hybrid-mamba": dict(SMALL, num_hidden_layers=6, hybrid_override_pattern="MMMMMM", n_groups=8, vocab_size=512),
    "hybrid-8b-9": dict(SMALL, num_hidden_layers=9, hybrid_override_pattern="M-M-M-M*-", hidden_size=4096, intermediate_size=21504,
                        num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=131072, max_position_embeddings=8192,
                        mamba_num_heads=128, n_groups=8, ssm_state_size=128),
}
SMS = {"h100": 132, "a100-80gb": 108}


def nothing(*args, **kwargs):
    pass


def load():
    for folder in os.environ["DPX_MAMBA"].split(":"):
        sys.path.insert(0, folder)
    for package in ("mamba_ssm", "causal_conv1d"):      # without what their __init__ files load
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = [os.path.join(p, package) for p in sys.path if os.path.isdir(os.path.join(p, package))]
    cuda = types.ModuleType("causal_conv1d_cuda")
    cuda.causal_conv1d_fwd = cuda.causal_conv1d_bwd = cuda.causal_conv1d_update = nothing
    sys.modules["causal_conv1d_cuda"] = cuda
    import triton.runtime.autotuner as tuner
    import triton.runtime.jit as jit
    jit.JITFunction.run = tuner.Autotuner.run = tuner.Heuristics.run = nothing
    tuner.Autotuner.best_config = types.SimpleNamespace(kwargs={"BLOCK_SIZE_M": 64, "BLOCK_SIZE": 64})
    from causal_conv1d import causal_conv1d_interface
    sys.modules["causal_conv1d"].causal_conv1d_fn = causal_conv1d_interface.causal_conv1d_fn
    from mamba_ssm.ops.triton import ssd_combined
    return ssd_combined


@contextlib.contextmanager
def hybrid(plan, gpu):
    """transformers takes mamba_ssm's function where it is installed."""
    if plan["model"] not in HYBRID:
        yield
        return
    from transformers.models.nemotron_h import modeling_nemotron_h as code
    function = load().mamba_split_conv1d_scan_combined
    names = function.__code__.co_varnames[:function.__code__.co_argcount]

    def fused(*args, **kwargs):
        return function(*args, **{k: v for k, v in kwargs.items() if k in names})
    code.mamba2_split_conv1d_scan_combined = fused
    torch.cuda.get_device_properties = lambda *a: types.SimpleNamespace(multi_processor_count=SMS[gpu])
    torch.cuda.device = lambda *a: contextlib.nullcontext()
    enabled = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda device="cuda": enabled(device)        # it asks for CUDA, and is not told where there is none
    try:
        yield
    finally:
        torch.is_autocast_enabled = enabled


def hybrid_cases(plan_of):
    for precision in ("fp32", "bf16"):
        for model in ("hybrid-small", "hybrid-odd", "hybrid-mamba"):
            yield plan_of(model, world=4, precision=precision, batch=2, seq=256)
            yield plan_of(model, world=4, precision=precision, batch=2, seq=256, recompute="full")
            yield plan_of(model, "ddp", world=4, precision=precision, batch=2, seq=256)
        yield plan_of("hybrid-small", world=8, precision=precision, batch=3, seq=200)          # no whole number of chunks
        yield plan_of("hybrid-small", "ddp", world=2, precision=precision, batch=1, seq=512, recompute="full", accumulation=2)
        yield plan_of("hybrid-small", world=4, kernels="torch-eager", precision=precision, batch=2, seq=256)
    yield plan_of("hybrid-small", world=8, batch=2, seq=1024, accumulation=2)
    for model in ("hybrid-small", "hybrid-odd", "hybrid-mamba"):        # activations outweigh the optimizer's
        yield plan_of(model, "ddp", world=2, batch=8, seq=512)
        yield plan_of(model, "ddp", world=2, batch=8, seq=512, recompute="full")
    yield plan_of("hybrid-8b-9", world=8, batch=1, seq=2048)
    yield plan_of("hybrid-8b-9", world=8, batch=1, seq=8192, recompute="full")
    yield plan_of("hybrid-8b-9", world=16, batch=2, seq=4096, gpu="a100-80gb")
    yield plan_of("hybrid-8b-9", "ddp", world=8, batch=1, seq=2048)
