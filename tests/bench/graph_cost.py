#!/usr/bin/env python3
"""What the Python around the replay of a CUDA graph costs the thread that issues it: sim/price/issue_cost.c takes replay_python from here.

    tests/bench/graph_cost.py        needs torch (2.9 or later), transformers and megatron-core; no GPU, half a minute

In the unit of issue_cost.py, a kernel of a tiny Llama's forward without gradients.  The graphs themselves are left out: what would be replayed
returns results that exist.  So it is what the frameworks' own code does for a block of nine weights around each replay:

    torch.compile()     guards, AOTAutograd's wrapper and autograd's node, with as many saved tensors as a block's cut has; without what
                        cudagraph trees check before a replay and make of its results, which needs a GPU: a lower bound
    Megatron-core       CudaGraphManager.__call__() of a layer of 24 modules, its runner's _CudagraphReplayNode
    make_graphed_callables()    torch.cuda's; Transformer Engine's has one more loop for fp8
"""
import os, sys, types, warnings
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"        # no worker processes
warnings.filterwarnings("ignore")
import torch
from torch import nn
from issue_unit import kernel_without_gradients, model, seconds

WEIGHTS, MODULES = 9, 24
torch.set_num_threads(1)
unit, kernels = kernel_without_gradients(model())
print("a kernel of %4d, forward without gradients    %7.2f us" % (kernels, 1e6 * unit))
N = 200                                 # blocks, one after the other


def report(what, forward, x):
    """forward(x) N times; and with backward."""
    def both():
        y = x
        for _ in range(N):
            y = forward(y)
        y.backward(gradient)

    def only():
        y = x
        for _ in range(N):
            y = forward(y)

    gradient = torch.ones_like(x)
    both()
    only()
    f = seconds(only) / N
    b = seconds(both) / N - f
    print("%-28s forward %6.1f   backward %6.1f" % (what, f / unit, b / unit))


# ---- torch.compile() ----

from torch._dynamo.backends.common import aot_autograd
from functorch.compile import make_boxed_func


def nothing(gm, example):
    """A compiled graph that returns what it returned the first time."""
    kept = []

    def run(args):
        if not kept:
            kept.append(gm(*args))
        args.clear()
        return list(kept[0])
    run._boxed_call = True
    return run


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.ParameterList(nn.Parameter(torch.randn(8)) for _ in range(WEIGHTS))

    def forward(self, x):
        for w in self.w:
            x = torch.sin(x * w)        # backward keeps its operands
        return x


x = torch.randn(8, requires_grad=True)
block = torch.compile(Block(), backend=aot_autograd(fw_compiler=nothing, bw_compiler=nothing), fullgraph=True)
report("torch.compile()", block, x)

# ---- torch.cuda.make_graphed_callables() ----


class Graphed(torch.autograd.Function):         # torch/cuda/graphs.py, its forward and backward
    @staticmethod
    def forward(ctx, *inputs):
        for i in range(1):
            if static_in[i].data_ptr() != inputs[i].data_ptr():
                static_in[i].copy_(inputs[i])
        return tuple(o.detach() for o in static_out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *grads):
        for g, grad in zip(static_grad_out, grads):
            if g is not None and g.data_ptr() != grad.data_ptr():
                g.copy_(grad)
        return tuple(b.detach() if b is not None else b for b in static_grad_in)


weights = tuple(nn.Parameter(torch.randn(8)) for _ in range(WEIGHTS))
static_in, static_out, static_grad_out = [torch.randn(8)], [torch.randn(8)], [torch.randn(8)]
static_grad_in = [torch.randn(8)] + [torch.randn(8) for _ in weights]


def graphed(y):
    flat = torch.utils._pytree.arg_tree_leaves(y)
    return Graphed.apply(*(tuple(flat) + weights))[0]


report("make_graphed_callables()", graphed, x)

# ---- Megatron-core ----

try:
    from megatron.core.transformer import cuda_graphs as graphs
except ImportError as e:
    sys.exit("megatron-core: %s" % e)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Identity() for _ in range(MODULES - 2))
        self.w = nn.ParameterList(nn.Parameter(torch.randn(8)) for _ in range(WEIGHTS))


replay = types.SimpleNamespace(replay=lambda: None)


class Runner(graphs._CudaGraphRunner):
    def __init__(self, layer):
        nn.Module.__init__(self)
        hidden = torch.randn(8, requires_grad=True)
        self.base_module = layer
        self.fwd_graph_input_arg_metas = []
        self.fwd_graph_input_kwarg_metas = {"hidden_states": graphs.ArgMetadata(hidden), "attention_mask": graphs.ArgMetadata(None)}
        self.fwd_graph = self.bwd_graph = replay
        self.status = graphs._GraphStatus.FWD_READY
        self.fp8_enabled = self.fp4_enabled = False
        self.grad_enabled = True
        self.params_to_backprop = tuple(layer.w)
        self.num_wgrads, self.num_dgrads = len(layer.w), 1
        self.fwd_graph_input_surface = [torch.randn(8)] + [w.detach() for w in layer.w]    # as make_weak_ref(): same memory, nothing copied
        self.fwd_graph_outputs = (torch.randn(8),)
        self.fwd_graph_output_surface = self.fwd_graph_outputs
        self.static_grad_outputs = (torch.randn(8),)
        self.static_grad_inputs = (torch.randn(8),) + tuple(torch.randn(8) for _ in layer.w)
        self.groundtruth_grad_added_to_main_grad = {w: True for w in layer.w}


layer = Layer().train()
runners = [Runner(layer) for _ in range(N)]
manager = graphs.CudaGraphManager.__new__(graphs.CudaGraphManager)
nn.Module.__init__(manager)
manager.train()
manager.need_backward, manager.reuse_cudagraphs, manager.is_first_microbatch, manager.func = True, False, False, None
manager.cudagraph_runners = runners
graphs._CudagraphGlobalRecord.cudagraph_created = True


def megatron(y):
    return manager(layer, (), {"hidden_states": y, "attention_mask": None})[0]


def reset():
    for r in runners:
        r.status = graphs._GraphStatus.FWD_READY


def only():
    reset()
    with torch.enable_grad():
        y = x
        for _ in range(N):
            y = megatron(y)
    return y


def both():
    only().backward(torch.ones_like(x))


both()
bare = seconds(reset)
f = (seconds(only) - bare) / N
b = (seconds(both) - bare) / N - f
print("%-28s forward %6.1f   backward %6.1f" % ("Megatron-core", f / unit, b / unit))
