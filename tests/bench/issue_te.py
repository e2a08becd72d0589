#!/usr/bin/env python3
"""What Transformer Engine's modules cost the thread that issues kernels, beside its Linear: sim/price/issue_cost.c takes ratios from it.

    tests/bench/issue_te.py DIR        DIR: a copy of TransformerEngine's sources (v2.9), of which the Python alone runs; it is changed there.
                                       Needs torch and transformers; no GPU, no build, a minute on a quiet machine

What C++ and the GPU do is replaced: its extension by functions that allocate results, CUDA's contexts by empty ones.  So the seconds are lower
bounds, and only ratios of modules that are timed alike are used.  The least CPU time of this thread over 25 repeats of 40 calls in a row."""
import os, re, subprocess, sys, types
import torch
from issue_unit import kernel_without_gradients, model, seconds

os.environ.update(NVTE_FRAMEWORK="pytorch", NVTE_FLASH_ATTN="0")
torch.set_num_threads(1)
unit = kernel_without_gradients(model())[0]
TE = os.path.join(sys.argv[1], "transformer_engine")


def change(path, *pairs):
    path = os.path.join(TE, path)
    text = open(path).read()
    for old, new in pairs:
        text = re.sub(old, new, text, flags=re.S)
    open(path, "w").write(text)


change("__init__.py", (r'str\(metadata.version\("transformer_engine"\)\)', '"2.9.0"'))
change("common/__init__.py", (r"def load_framework_extension.*?\ndef sanity", "def load_framework_extension(framework):\n    pass\n\n\ndef sanity"),
       (r'if "NVTE_PROJECT_BUILDING" not in.*', ""))
change("pytorch/onnx_extensions.py", (r".*", "def __getattr__(n):\n    if n[:2] == '__':\n        raise AttributeError(n)\n    return object()\n"))
change("pytorch/utils.py", (r"torch.Tensor\(\).cuda\(\)", "torch.Tensor()"))
change("pytorch/module/base.py", (r'assert inp.is_cuda, "TransformerEngine needs CUDA."', "pass"))
for name in subprocess.run(["grep", "-rlE", 'device="cuda"|_layer.is_cuda', TE + "/pytorch", "--include=*.py"], capture_output=True, text=True).stdout.split():
    change(os.path.relpath(name, TE), ('device="cuda"', 'device="cpu"'), ("query_layer.is_cuda and key_layer.is_cuda and value_layer.is_cuda", "True"))


class Names(type):
    def __getattr__(cls, n):
        if n[:2] == "__":
            raise AttributeError(n)
        setattr(cls, n, cls())
        return getattr(cls, n)


class Word(metaclass=Names):
    def __int__(self):
        return 1


def missing(n):
    if n[:2] == "__":
        raise AttributeError(n)
    setattr(tex, n, type(n, (Word,), {}) if n[0].isupper() else lambda *a: 4)
    return getattr(tex, n)


class Empty:
    def __init__(self, *a, **k): pass
    def __enter__(self): return self
    def __exit__(self, *a): return False


tex = types.ModuleType("transformer_engine_torch")
tex.__getattr__ = missing
tex.get_cudnn_version = lambda: 91300
sys.modules["transformer_engine_torch"] = tex
for n, v in {"is_available": lambda: True, "get_device_capability": lambda *a: (9, 0), "device": Empty, "current_device": lambda: torch.device("cpu"),
             "is_current_stream_capturing": lambda: False, "get_rng_state": lambda *a: torch.get_rng_state(),
             "get_device_properties": lambda *a: types.SimpleNamespace(major=9, minor=0, multi_processor_count=132, name="H100", total_memory=80 << 30)}.items():
    setattr(torch.cuda, n, v)
torch.cuda.nvtx.range = Empty
torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *a: None

sys.path.insert(0, sys.argv[1])
import transformer_engine.pytorch as te
import transformer_engine.pytorch.ops.basic.rmsnorm as norm
from transformer_engine.pytorch.cpp_extensions.fused_attn import FusedAttnBackend

TOKENS, HEADS, KEYS, WIDTH, HIDDEN, REPEATS = 4, 4, 2, 16, 64, 40


def product(a, ta, b, tb, *more, **named):
    a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    y = torch.mm(b.t() if tb else b, a.t() if ta else a)
    return (y.view(TOKENS, 1, -1) if y.shape[0] == TOKENS else y), None, None, None


tex.generic_gemm = product
norm.rmsnorm_fwd = lambda x, w, *a: (torch.empty_like(x), None, torch.empty(x.shape[0]))
norm.rmsnorm_bwd = lambda dy, x, *a: (torch.empty_like(x), torch.empty(x.shape[1]))
tex.fused_attn_fwd = lambda *a: [torch.empty_like(a[13]), torch.empty(HEADS, TOKENS, 1), torch.empty(2)]
tex.fused_attn_bwd = lambda *a: [torch.empty_like(x) for x in a[13:16]]
backend = FusedAttnBackend["F16_arbitrary_seqlen"]
tex.get_fused_attn_backend = lambda *a: backend


def show(name, f, x, back):
    def chain():
        y = x
        for _ in range(REPEATS):
            y = f(y)
        return y

    chain().backward(back)
    t = seconds(chain) / REPEATS
    both = seconds(lambda: chain().backward(back)) / REPEATS
    print("%-18s forward %6.1f us %5.2f units, backward %6.1f us %5.2f units" % (name, 1e6 * t, t / unit, 1e6 * (both - t), (both - t) / unit))


x, ones = torch.randn(TOKENS, 1, HIDDEN, requires_grad=True), torch.ones(TOKENS, 1, HIDDEN)
q, k, v = (torch.randn(TOKENS, 1, n, WIDTH, dtype=torch.bfloat16, requires_grad=True) for n in (HEADS, KEYS, KEYS))
heads = torch.randn(1, HEADS, TOKENS, WIDTH, requires_grad=True)
attention = te.DotProductAttention(HEADS, WIDTH, num_gqa_groups=KEYS, attention_dropout=0.0, qkv_format="sbhd", attn_mask_type="causal", layer_number=1)
show("torch Linear", torch.nn.Linear(HIDDEN, HIDDEN, bias=False), x, ones)
show("TE Linear", te.Linear(HIDDEN, HIDDEN, bias=False, device="cpu"), x, ones)
show("TE RMSNorm", te.RMSNorm(HIDDEN, device="cpu"), x, ones)
show("torch attention", lambda y: torch.nn.functional.scaled_dot_product_attention(y, heads, heads, is_causal=True), heads, torch.ones_like(heads))
show("TE attention", lambda y: attention(y.view(TOKENS, 1, HEADS, WIDTH), k, v), q, torch.ones(TOKENS, 1, HEADS * WIDTH, dtype=torch.bfloat16))
