"""Liger-Kernel's and Apple's Functions in the place of transformers' operations, and the plans that record_torch_memory.py --cases liger
records with them.  The Python around the Triton kernels runs, the kernels do not: tensors are fake."""
import contextlib
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SMS = {"a100-80gb": 108, "h100": 132}
TRITON = {"cross_entropy": ("liger_cross_entropy_kernel", "element_mul_kernel"),
          "fused_linear_cross_entropy": ("liger_cross_entropy_kernel", "element_mul_kernel"),
          "rms_norm": ("_rms_norm_forward_kernel", "_rms_norm_backward_kernel", "_block_rms_norm_forward_kernel", "_block_rms_norm_backward_kernel"),
          "swiglu": ("_swiglu_forward_kernel", "_swiglu_backward_kernel"), "rope": ("_triton_rope",),
          "geglu": ("_geglu_tanh_forward_kernel", "_geglu_tanh_backward_kernel")}
MODULES = {"gemma3_text": "gemma3"}         # whose modelling code has another name than its model_type


class Torch:
    """The module, but for tensor(1.0, device="cuda"), which asks for a driver also where tensors are fake, and for autocast, which
    is asked for of the accelerator: there is none here."""
    tensor = staticmethod(lambda value, device: torch.ones((), device=device))
    is_autocast_enabled = staticmethod(lambda: torch.is_autocast_enabled("cuda"))

    def __getattr__(self, name):
        return getattr(torch, name)


class NoKernel:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: None


class Answers(TorchDispatchMode):
    """What the code asks of values: there is a label in every row; the loss's gradient is not 1."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1
        if func is torch.ops.aten.equal.default:
            return False
        return func(*args, **(kwargs or {}))


def one_result(function):
    """The same, but for the results that are None: without a GPU the engine asks the CPU, which they are said to be on, for a stream."""
    class OneResult(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            return function.forward(ctx, *args)[0]

        @staticmethod
        def backward(ctx, grad):
            return function.backward(ctx, grad, None, None, None)
    return type(function.__name__, (), {"apply": staticmethod(lambda *args: (OneResult.apply(*args), None, None, None)),
                                        "supports_inner_impl_dispatch": True})


def without_kernels():
    import liger_kernel.backends as backends
    import liger_kernel.transformers.rope as rope
    from liger_kernel.ops.rope import LigerRopeFunction
    for name, kernels in TRITON.items():
        module = __import__("liger_kernel.ops." + name, fromlist=["x"])
        for kernel in kernels:
            setattr(module, kernel, NoKernel())
        if "cross_entropy" in name:
            module.torch = Torch()
        if hasattr(module, "_should_tile"):
            module._should_tile = lambda n_cols: False          # of Blackwell
    import liger_kernel.transformers.functional as functional
    for name in ("LigerFusedLinearCrossEntropyFunction", "LigerCrossEntropyFunction"):
        if not isinstance(getattr(functional, name).apply, type(one_result)):
            setattr(functional, name, one_result(getattr(functional, name)))
    rope.dispatch = lambda name, *args, **kwargs: LigerRopeFunction.apply(*args, **kwargs)
    import liger_kernel.ops.utils as utils
    for name, module in list(sys.modules.items()):
        if name.startswith("liger_kernel") and hasattr(module, "device_context"):
            module.device_context = contextlib.nullcontext


def options_of(plan):
    of = plan.get("liger", {})
    glu = of.get("glu_activation", False)
    return {"rope": of.get("rope", False), "rms_norm": of.get("rms_norm", False), "swiglu": glu, "geglu": glu,
            "cross_entropy": plan.get("loss") == "liger-cross-entropy", "fused_linear_cross_entropy": plan.get("loss") == "fused-linear"}


@contextlib.contextmanager
def liger(plan, config):
    """apply_liger_kernel_to_...(), of the classes, while a plan that asks for it is recorded."""
    if "liger" not in plan and plan.get("loss") not in ("fused-linear", "liger-cross-entropy"):
        yield
        return
    import inspect

    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    without_kernels()
    kind = MODULES.get(config["model_type"], config["model_type"])
    module = __import__("transformers.models.%s.modeling_%s" % (kind, kind), fromlist=["x"])
    before, loss = dict(vars(module)), torch.nn.functional.cross_entropy
    classes = [c for c in before.values() if isinstance(c, type) and hasattr(c, "forward")]
    forwards = [(c, c.__dict__.get("forward")) for c in classes if "forward" in c.__dict__]
    apply = MODEL_TYPE_TO_APPLY_LIGER_FN[config["model_type"]]
    capability, properties = torch.cuda.get_device_capability, torch.cuda.get_device_properties
    gpu = plan["cluster"].split("x")[-1]
    torch.cuda.get_device_capability = lambda *a: (9, 0) if gpu == "h100" else (8, 0)
    torch.cuda.get_device_properties = lambda *a: type("P", (), {"multi_processor_count": SMS[gpu]})
    apply(**{k: v for k, v in options_of(plan).items() if k in inspect.signature(apply).parameters})
    try:
        with Answers():
            yield
    finally:
        torch.cuda.get_device_capability, torch.cuda.get_device_properties = capability, properties
        torch.nn.functional.cross_entropy = loss
        vars(module).update(before)
        for c, forward in forwards:
            c.forward = forward


ALL = {"rope": True, "rms_norm": True, "glu_activation": True}


def liger_cases(plan_of):
    for part in ALL:
        yield plan_of("llama-10m", world=4, batch=4, seq=256, liger={part: True})
        yield plan_of("llama-10m", "ddp", world=2, batch=2, seq=256, liger={part: True})
    for loss in ("fused-linear", "liger-cross-entropy"):
        yield plan_of("llama-10m", world=4, batch=4, seq=256, loss=loss)
        yield plan_of("llama-15m-gqa-tied", world=8, batch=1, seq=512, loss=loss)
        yield plan_of("llama-1b", batch=2, seq=1024, loss=loss)
        yield plan_of("llama-8b", world=16, batch=1, seq=4096, loss=loss)
        yield plan_of("llama-8b", world=16, batch=1, seq=4096, loss=loss, recompute="full", liger=ALL)
        yield plan_of("llama-10m", world=4, batch=2, seq=256, loss=loss, precision="fp32")
        yield plan_of("llama-10m", "ddp", world=2, batch=4, seq=256, loss=loss)
        yield plan_of("llama-15m-gqa-tied", "ddp", world=2, batch=2, seq=256, loss=loss, liger=ALL)
        yield plan_of("llama-10m", "ddp", world=2, batch=2, seq=256, loss=loss, precision="fp32", liger=ALL)
    for family in ("mistral", "ministral", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "gemma3_text", "olmo2", "olmo3", "glm4", "exaone4"):
        parts = dict(ALL, rope=False) if family == "glm4" else dict(ALL, rms_norm=False) if family == "exaone4" else ALL
        yield plan_of(family, world=4, batch=4, seq=256, loss="fused-linear", liger=parts)
        yield plan_of(family, world=4, batch=4, seq=256, liger=parts)
        yield plan_of(family, "ddp", world=4, batch=2, seq=256, liger=parts)
    yield plan_of("gemma2", world=4, kernels="torch-eager", batch=4, seq=256, loss="fused-linear", liger=ALL)
    yield plan_of("granite", world=4, batch=4, seq=256, loss="liger-cross-entropy", liger=ALL)
    yield plan_of("llama-10m", world=4, kernels="torch-eager", batch=4, seq=256, liger=ALL)
    yield plan_of("qwen3", world=4, batch=4, seq=256, recompute="full", loss="fused-linear", liger=ALL)
