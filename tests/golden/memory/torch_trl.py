"""TRL's fused head (trl/trainer/utils.py, add_fused_lm_head()) in the place of transformers' logits and loss, and the plans that
record_torch_memory.py --cases trl records with it (trl 1.16.0).  The Python around the Triton kernels runs, the kernels do not: tensors are fake.
Every label counts: a mask that picks positions is answered with all of them."""
import contextlib
import types

import torch
from torch.utils._python_dispatch import TorchDispatchMode

OUTPUTS = ("log_probs", "entropy", "is_top1")           # SFTTrainer's


class NoKernel:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: None


class AllCount(TorchDispatchMode):
    """Results whose sizes depend on a mask's values: those of a mask that is true throughout."""

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        if func is torch.ops.aten.index.Tensor and args[1][0].dtype == torch.bool:
            x, mask = args[0], args[1][0]
            return x.new_empty([mask.numel(), *x.shape[mask.dim():]])
        if func in (torch.ops.aten._index_put_impl_.default, torch.ops.aten.index_put_.default) and args[1][0].dtype == torch.bool:
            return args[0]
        if func is torch.ops.aten.index_put.default and args[1][0].dtype == torch.bool:
            return torch.empty_like(args[0])
        if func is torch.ops.aten.masked_scatter_backward.default:
            return args[0].new_empty(args[2])
        return func(*args, **(kwargs or {}))


def two_results(function):
    """The same, but for the results that are None or have no gradient: without a GPU the engine asks the CPU, which they are said to be on, for
    a stream.  The last is made behind it."""
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            return function.forward(ctx, *args)[:2]

        @staticmethod
        def backward(ctx, *grads):
            return function.backward(ctx, *grads, None, None, None)

    def apply(*args):
        logp, entropy = Two.apply(*args)
        return logp, entropy, None, None, torch.empty(logp.shape, dtype=torch.bool)
    return types.SimpleNamespace(apply=apply)


@contextlib.contextmanager
def trl(plan):
    """While a plan that asks for it is recorded.  Yields what puts the head into a model."""
    if plan.get("loss") != "chunked-logprob":
        yield lambda model: None
        return
    import trl.kernels.chunked_logprob as kernels
    import trl.trainer.utils as utils
    before = vars(kernels).copy(), utils._use_triton, utils._ChunkedLogProbFunction
    kernels._forward_kernel = kernels._backward_kernel = NoKernel()
    kernels._use_triton = utils._use_triton = lambda device: True
    utils._ChunkedLogProbFunction = two_results(kernels.ChunkedLogProbFunction)
    kernels._addmm_fp32 = lambda acc, a, b: None         # in place on a GPU

    def put(model):
        utils.add_fused_lm_head(model, outputs=OUTPUTS)
        forward = model.forward

        def fused(self, *args, **kwargs):
            return forward(*args, fused_lm_head=True, **kwargs)
        model.forward = types.MethodType(fused, model)
    try:
        with AllCount():
            yield put
    finally:
        vars(kernels).update(before[0])
        utils._use_triton, utils._ChunkedLogProbFunction = before[1:]


def trl_cases(plan_of):
    loss = "chunked-logprob"
    yield plan_of("llama-10m", world=4, batch=4, seq=256, loss=loss)
    yield plan_of("llama-10m", world=4, batch=4, seq=2048, loss=loss)
    yield plan_of("llama-15m-gqa-tied", world=8, batch=1, seq=512, loss=loss)
    yield plan_of("llama-1b", batch=2, seq=1024, loss=loss)
    yield plan_of("llama-8b", world=16, batch=1, seq=4096, loss=loss)
    yield plan_of("llama-8b", world=16, batch=2, seq=4096, loss=loss, recompute="full")
    yield plan_of("llama-10m", world=4, batch=2, seq=256, loss=loss, precision="fp32")
    yield plan_of("llama-10m", "ddp", world=2, batch=4, seq=256, loss=loss)
    yield plan_of("llama-1b", "ddp", world=8, batch=2, seq=2049, loss=loss)
    yield plan_of("llama-15m-gqa-tied", "ddp", world=2, batch=2, seq=256, loss=loss)
    yield plan_of("llama-10m", "ddp", world=2, batch=2, seq=256, loss=loss, precision="fp32")
    yield plan_of("gemma2", world=4, kernels="torch-eager", batch=4, seq=256, loss=loss)
    yield plan_of("granite", world=4, batch=4, seq=256, loss=loss)
