"""A module without the memory of its parameters: what is large is made on the meta device, what is small (rates of dropout, rotary frequencies,
window indices, whose values __init__ reads) for real; then each parameter and buffer becomes a fake tensor of the device."""
import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

LARGE = 1 << 18         # elements


def elements(args):
    """Of the first argument that is a shape."""
    n = 1
    for d in next((a for a in args if isinstance(a, (list, tuple, torch.Size)) and all(isinstance(x, int) for x in a)), ()):
        n *= int(d)
    return n


class Build(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        if not tensors:
            if elements(args) > LARGE and any(a.name == "device" for a in func._schema.arguments):
                kwargs["device"] = torch.device("meta")
            elif kwargs.get("device") is not None and torch.device(kwargs["device"]).type != "meta":
                kwargs["device"] = torch.device("cpu")
            return func(*args, **kwargs)
        if any(t.is_meta for t in tensors) and not all(t.is_meta or t.dim() == 0 for t in tensors):
            up = lambda a: a.to("meta") if isinstance(a, torch.Tensor) and not a.is_meta and a.dim() else a
            if func is torch.ops.aten.copy_.default and not args[0].is_meta:
                return args[0]          # values that nobody will have
            if func is torch.ops.aten.copy_.default or not func._schema.is_mutable:
                args, kwargs = tree_map(up, args), tree_map(up, kwargs)
        return func(*args, **kwargs)


def build(make):
    with Build():
        return make()


def to_fake(module, device, known=None):
    """In place, under a FakeTensorMode: parameters and buffers keep shape, strides, dtype and what they share.  `known` is given each buffer of whole
    numbers and its value."""
    done = {}

    def fake(t):
        if id(t) not in done:
            n = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)
            if isinstance(t, nn.Parameter):
                n = nn.Parameter(n, requires_grad=t.requires_grad)
                for key, value in t.__dict__.items():
                    setattr(n, key, value)
            elif known and not t.is_meta and not t.is_floating_point() and not t.is_complex():
                with unset_fake_temporarily():
                    known(n, t.detach().clone())
            done[id(t)] = t, n
        return done[id(t)][1]
    for m in module.modules():
        for table in (m._parameters, m._buffers):
            for key, t in table.items():
                if t is not None:
                    table[key] = fake(t)
    return module
