"""Values that are known while tensors are fake: of the user's inputs where they are small, of buffers of whole numbers, of constants, and of what is
computed from such alone.  What a mask selects, and what a number decides, are then the module's own.

What chance decides is taken at its middle: torch.rand() as 0.5, so that a layer that is dropped with less than that probability runs."""
import ast
import operator
from fractions import Fraction

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

aten = torch.ops.aten
WHOLE, REAL = 1 << 18, 1 << 12          # most elements of integers, and of others, that are followed
MADE = {"arange", "zeros", "ones", "full", "scalar_tensor", "linspace", "eye", "tril_indices", "triu_indices"}
SHAPED = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}      # of the first argument only the shape counts
FIXED = {"nonzero", "masked_select", "repeat_interleave", "unique", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount"}  # whose shape is a value


def name_of(func):
    return func._schema.name.split("::")[-1]


def elements_of(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def chance(func, args, kwargs, shape, dtype):
    """The middle of a random operator's result; None: it is none, or has none."""
    name = name_of(func).rstrip("_").replace("_like", "")
    numbers = [a for a in args if isinstance(a, (int, float)) and not isinstance(a, bool)]
    if name == "uniform":
        low, high = (numbers + [0.0, 1.0][len(numbers):])[:2] if numbers else (kwargs.get("from", 0.0), kwargs.get("to", 1.0))
        middle = (low + high) / 2
    elif name in ("rand", "randn", "normal"):
        middle = 0.5 if name == "rand" else numbers[0] if name == "normal" and numbers else 0.0
    elif name == "randint" and numbers:
        middle = (numbers[0] + numbers[1]) // 2 if len(numbers) > 1 else numbers[0] // 2
    else:
        return None
    with unset_fake_temporarily():
        return aten.full.default(shape, middle, dtype=dtype, device=torch.device("cpu"))


def expression(text, b, s):
    """A whole number from b, s and numbers by + - * /."""
    ops = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}

    def value(e):
        if isinstance(e, ast.Constant) and isinstance(e.value, int):
            return Fraction(e.value)
        if isinstance(e, ast.Name) and e.id in ("b", "s"):
            return Fraction(b if e.id == "b" else s)
        if isinstance(e, ast.BinOp) and type(e.op) in ops:
            return ops[type(e.op)](value(e.left), value(e.right))
        raise ValueError(text)
    return value(ast.parse(text, mode="eval").body)


class Told:
    """What the user says of values that are not known: [(class or "", text)]."""

    def __init__(self, said=()):
        self.said = [tuple(t.rpartition("=")[::2]) for t in said]
        for _, text in self.said:
            expression(text, 1, 1)

    def of(self, classes):
        """The text for a module inside of modules of these classes, the innermost last; None: nothing is said."""
        for cls in list(reversed(classes)) + [""]:
            for wanted, text in self.said:
                if wanted == cls:
                    return text
        return None


class Values:
    def __init__(self, number_of):
        self.real, self.number_of, self.gone = WeakTensorKeyDictionary(), number_of, set()
        self.drawn = WeakTensorKeyDictionary()          # of what is known, what chance decides

    def know(self, fake, real):
        if real.numel() <= (REAL if real.is_floating_point() or real.is_complex() else WHOLE):
            self.real[fake] = real

    def of(self, t):
        """The tensor's value, on the CPU; None: it is not known."""
        if type(t) is torch.Tensor and t.device.type == "cpu":          # no fake one: torch.tensor(5)
            return t
        real = self.real.get(t)
        return None if real is None or self.number_of(t) in self.gone else real

    def computed(self, func, args, kwargs):
        """The operator's results where all that it reads is known; None."""
        name, flat = name_of(func), [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        base = name.rstrip("_")
        of_numbers = base in MADE or all(isinstance(a, (int, float)) for a in args)         # torch.div(5, 2)
        if torch.Tag.nondeterministic_seeded in func.tags or (not flat and not of_numbers):
            return None
        if base in SHAPED and elements_of(args[1] if base.startswith("new_") else args[0].shape) > WHOLE:
            return None
        if not flat and elements_of(next((a for a in args if isinstance(a, (list, tuple))), ())) > WHOLE:
            return None
        known = {id(t): torch.empty(t.shape, dtype=t.dtype, device="meta") if base in SHAPED else self.of(t) for t in flat}
        if any(v is None for v in known.values()):
            return None
        swap = lambda x: known[id(x)] if isinstance(x, torch.Tensor) else torch.device("cpu") if isinstance(x, torch.device) else x
        kwargs = tree_map(swap, dict(kwargs))
        if base in SHAPED:
            kwargs["device"] = torch.device("cpu")
        try:
            with unset_fake_temporarily(), torch.no_grad():
                return func(*tree_map(swap, args), **kwargs)
        except Exception:       # which the fake tensors' own operator will say, or CPUs have none
            return None

    def all_found(self, rows, shape):
        """Of a mask that finds all there are, the places."""
        if rows.shape[0] == elements_of(shape) <= REAL:
            with unset_fake_temporarily():
                self.know(rows, torch.ones(shape, dtype=torch.bool, device="cpu").nonzero())
        return rows

    def written(self, func, args, kwargs):
        """What it writes is not known any longer."""
        for i, a in enumerate(func._schema.arguments):
            if a.alias_info is not None and a.alias_info.is_write:
                for t in tree_flatten(args[i] if i < len(args) else kwargs.get(a.name))[0]:
                    if isinstance(t, torch.Tensor) and t in self.real:
                        self.real.pop(t)
                        self.gone.add(self.number_of(t) or -1)

    def follow(self, func, args, kwargs, out, value):
        """After an operator that gave `out`; `value` is computed()'s."""
        outs = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
        if value is None and func._schema.is_mutable:
            self.written(func, args, kwargs)
        drawn = any(t in self.drawn for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor))
        if value is None and len(outs) == 1 and torch.Tag.nondeterministic_seeded in func.tags and outs[0].numel() <= REAL:
            drawn = True
            value = chance(func, args, kwargs, outs[0].shape, outs[0].dtype)
            self.gone -= {self.number_of(outs[0])} if value is not None else set()
        if value is None:
            return
        for t, v in zip(outs, [v for v in tree_flatten(value)[0] if isinstance(v, torch.Tensor)]):
            if v.shape == t.shape:
                self.know(t, v)
                if drawn:
                    self.drawn[t] = True
