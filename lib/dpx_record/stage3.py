"""The step as DeepSpeed's stage 3 sees it: its hooks around every module, and its own linear layer.

    recorder.stage3 = Stage3(recorder)
    with own_linear():
        ... a step ...

Events of the recorder: ("hook", kind, path).  fetch, release: before a module's forward and behind it; fetch back, release back: the same of its backward.

Sources (DeepSpeed 0.19): runtime/zero/parameter_offload.py, DeepSpeedZeRoOffload._register_deepspeed_module(); runtime/zero/linear.py,
LinearFunctionForZeroStage3.  Hooks of backward are nodes of the graph: one behind each output of a module, of which the first
that backward reaches counts once for each; one before each of its positional inputs, of which the last counts."""
import contextlib

import torch
from torch import nn

from .recorder import Unrecordable, users_line


class Linear(torch.autograd.Function):
    """What stage 3 puts in the place of nn.functional.linear: it saves the weight itself, not a view of it."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        if x.dim() == 2 and bias is not None:
            return torch.addmm(bias, x, weight.t())
        out = x.matmul(weight.t())
        if bias is not None:
            out += bias
        return out

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = g.matmul(weight)
        if ctx.needs_input_grad[1]:
            dw = g.reshape(-1, g.shape[-1]).t().matmul(x.reshape(-1, x.shape[-1])) if g.dim() > 2 else g.t().matmul(x)
        if bias is not None and ctx.needs_input_grad[2]:
            db = g.sum(list(range(g.dim() - 1)))
        return dx, dw, db


class Pass(torch.autograd.Function):
    """Hands a tensor on; `back` runs when its gradient comes."""

    @staticmethod
    def forward(ctx, t, back):
        ctx.back = back
        return t.detach()

    @staticmethod
    def backward(ctx, g):
        ctx.back()
        return g, None


def through(tree, back):
    """Every tensor of a module's inputs or outputs through a node: of tuples, lists and dicts as DeepSpeed looks into them; and the tensors."""
    if isinstance(tree, (tuple, list)):
        made = [through(t, back) for t in tree]
        return (type(tree)(*(t for t, _ in made)) if hasattr(tree, "_fields") else type(tree)(t for t, _ in made)), sum((found for _, found in made), [])
    if isinstance(tree, dict):
        found = []
        for key in list(tree):
            tree[key], more = through(tree[key], back)
            found += more
        return tree, found
    return (Pass.apply(tree, back), [tree]) if isinstance(tree, torch.Tensor) else (tree, [])


class Stage3:
    """Of a recorder, whose enter() and exit() call it."""

    def __init__(self, recorder):
        self.r = recorder
        self.before, self.after = {}, {}            # of a module: nodes that backward has not reached, behind its outputs, before its inputs

    def event(self, kind, m):
        self.r.events.append(("hook", kind, self.r.path_of[id(m)]))

    def enter(self, m, args):
        def back():
            self.after[m] -= 1
            if self.after[m] == 0:
                self.event("release back", m)
        self.event("fetch", m)
        args, tensors = through(args, back)
        self.after[m] = sum(t.requires_grad for t in tensors)
        return args

    def leave(self, m, out):
        def back():
            if self.before[m] > 0:
                self.before[m] -= 1
                self.event("fetch back", m)
        self.event("release", m)
        out, tensors = through(out, back)
        self.before[m] = self.before.get(m, 0) + len(tensors)
        return out


class Own(dict):
    """The parameters of a module, which its own forward may ask for.  Where another module's does, as nn.MultiheadAttention for its out_proj's, stage 3
    gathers them there and then, and from then on with that module's own ("external parameters")."""

    def __init__(self, parameters, path, recorder):
        super().__init__(parameters)
        self.path, self.r = path, recorder

    def __getitem__(self, name):
        p = super().__getitem__(name)
        if p is not None and self.r.stack and self.path not in self.r.stack:
            raise Unrecordable("%s asks for %s.%s while %s does not run%s: what stage 3 gathers then is not followed" %
                               (self.r.where(), self.path, name, self.path, users_line()))
        return p


def watch_parameters(model, recorder):
    for path, m in model.named_modules():
        m.__dict__["_parameters"] = Own(m._parameters, path, recorder)


@contextlib.contextmanager
def own_linear():
    functional = nn.functional
    torchs, functional.linear = functional.linear, Linear.apply
    try:
        yield
    finally:
        functional.linear = torchs


@contextlib.contextmanager
def views_saved(model, found):
    """Adds to `found` parameters of which backward keeps a view: stage 3 cannot free those."""
    parameters = {p.untyped_storage()._cdata: (name, p) for name, p in model.named_parameters()}

    def pack(t):
        name, p = parameters.get(t.untyped_storage()._cdata, (None, None)) if t.layout is torch.strided else (None, None)
        if name and (t.shape != p.shape or t.stride() != p.stride()):
            found.add(name)
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        yield
