"""One recorded step of a user's module, at a batch and a size."""
import collections
import contextlib
import functools
import gc

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.parameter import is_lazy
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from .build import build, to_fake
from .recorder import Recorder, Unrecordable, graph_task, settled, tensors_in
from .selective import by_operator
from .stage3 import Stage3, own_linear, views_saved, watch_parameters
from .units import of_classes, units_of


class Subject:
    """What the user's function returned: a module, (module, inputs) or (module, inputs, loss)."""

    def __init__(self, made, name):
        parts = made if isinstance(made, tuple) else (made,)
        if not isinstance(parts[0], nn.Module) or len(parts) > 3:
            raise Unrecordable("%s: returned %s; it has to return a module, (module, inputs) or (module, inputs, loss)" % (name, type(made).__name__))
        self.module = parts[0]
        self.inputs = parts[1] if len(parts) > 1 else self.token_inputs(name)
        self.loss = parts[2] if len(parts) > 2 else None
        self.name = name

    def token_inputs(self, name):
        """Of transformers' models for text: ids, which are the labels too."""
        import inspect
        takes = inspect.signature(self.module.forward).parameters
        if not {"input_ids", "labels"} <= set(takes):
            raise Unrecordable("%s: forward(%s) does not say what it reads: return (module, inputs), where inputs(batch, size) makes its arguments"
                               % (name, ", ".join(takes)))
        return lambda b, s: {k: torch.zeros((b, s), dtype=torch.long) for k in ("input_ids", "labels")}

    def fake_inputs_at(self, b, s, device, known):
        """Under a FakeTensorMode, tensors of the device; `known` is given each that is not too large, and its value."""
        def fake(t):
            if not isinstance(t, torch.Tensor) or t.layout is not torch.strided:
                return t
            n = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)
            if not t.is_meta:
                known(n, t)
            return n
        with unset_fake_temporarily(), torch.device("cpu"):
            x = build(lambda: self.inputs_at(b, s))
        return tree_map(fake, dict(x) if isinstance(x, collections.abc.Mapping) else x)

    def inputs_at(self, b, s):
        if callable(self.inputs):
            return self.inputs(b, s)
        old = {t.shape[0] for t in tensors_in(self.inputs) if t.dim()}
        if len(old) != 1:
            raise Unrecordable("%s: the example inputs differ in dimension 0: give a function inputs(batch, size)" % self.name)
        return tree_map(lambda t: torch.zeros((b, *t.shape[1:]), dtype=t.dtype) if isinstance(t, torch.Tensor) and t.dim() else t, self.inputs)

    def loss_of(self, model, x):
        if self.loss:
            return self.loss(model, x)
        out = model(**x) if isinstance(x, dict) else model(*x) if isinstance(x, (tuple, list)) else model(x)
        named = out.get("loss") if isinstance(out, collections.abc.Mapping) else getattr(out, "loss", None)
        if named is not None:
            return named
        scalars = [t for t in tensors_in(out) if t.dim() == 0 and t.requires_grad]
        if len(scalars) > 1:
            raise Unrecordable("forward returns %d tensors of no dimension, each of which may be the loss: return (module, inputs, loss) where "
                               "loss(module, inputs) computes it" % len(scalars))
        if not scalars:
            raise Unrecordable("%s: forward returns no loss (a tensor of no dimension): return (module, inputs, loss) where loss(module, inputs) "
                               "computes one" % self.name)
        return scalars[0]


def what_sizes_count(x, s):
    """"tokens" where a batch has ids or labels for each, "side" where an image has it twice, else "size"."""
    shapes = [(tuple(t.shape[1:]), t.is_floating_point()) for t in tensors_in(x)]
    if any(shape[:1] == (s,) and not real for shape, real in shapes):
        return "tokens"
    return "side" if any(shape.count(s) > 1 for shape, _ in shapes) else "size"


def check_parameters(model):
    """A file has one dtype for all: what trains is kept in fp32, and --precision says what the step computes in."""
    for path, p in list(model.named_parameters()) + list(model.named_buffers()):
        if is_lazy(p):
            raise Unrecordable("%s has no shape before the first forward (%s is lazy): run a batch through the module in the function that makes it" %
                               (path, type(model.get_submodule(path.rpartition(".")[0])).__name__))
    other = [(path, str(p.dtype).replace("torch.", "")) for path, p in model.named_parameters() if p.dtype is not torch.float32]
    if other:
        real = other[0][1] in ("bfloat16", "float16", "float64")
        raise Unrecordable("%d parameters are not fp32 (%s is %s first): %s" % (len(other), *other[0],
                           "return the module in fp32 (.float()); --precision says what a step computes in" if real else "such are not planned"))


def cast_inputs(module):
    """FSDP2's cast_forward_inputs."""
    to = lambda v: v.to(torch.bfloat16) if isinstance(v, torch.Tensor) and v.is_floating_point() else v
    module.register_forward_pre_hook(lambda m, a, k: (tree_map(to, a), tree_map(to, k)), with_kwargs=True)


class Given(torch.autograd.Function):
    """FSDP2's RegisterPostBackwardFunction: gradients of what a unit is given leave it together, zeros of what it does not use."""

    @staticmethod
    def forward(ctx, *inputs):
        return inputs

    @staticmethod
    def backward(ctx, *grads):
        return grads


def zeros_for_unused(module):
    def hook(m, a, k):
        leaves, spec = tree_flatten((a, k))
        trained = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.requires_grad]
        for i, t in zip(trained, Given.apply(*(leaves[i] for i in trained)) if trained else ()):
            leaves[i] = t
        return tree_unflatten(leaves, spec)
    module.register_forward_pre_hook(hook, with_kwargs=True)


class Shared:
    """What units are given that requires a gradient: units of which some does not reach what they return (`unused`), and those in which the node of Given decides
    what is held (`meet`): a gradient that comes in several parts, or beside another, is whole before it meets those of other modules."""

    def __init__(self, model, units):
        self.given, self.uses, self.unused = {}, {}, set()
        for path in units:
            model.get_submodule(path).register_forward_pre_hook(functools.partial(self.enter, path), with_kwargs=True)
            model.get_submodule(path).register_forward_hook(functools.partial(self.exit, path))

    def enter(self, path, m, a, k):
        if graph_task() == -1:                      # no checkpoint's second run
            self.given[path] = [tuple(get_gradient_edge(t)[:2]) for t in tensors_in((a, k)) if t.requires_grad]

    def exit(self, path, m, a, out):
        given = self.given.pop(path, [])
        uses = uses_behind(out, given)
        if set(given) - set(uses):
            self.unused.add(path)
        self.uses.setdefault(path, []).append({e: uses[e] for e in given})

    def meet(self, loss):
        """Before backward, which frees the graph."""
        of_all = uses_behind(loss)
        several = lambda uses: [e for e, n in uses.items() if len(uses) > 1 or n > 1]
        found = sorted(path for path, runs in self.uses.items() if any(of_all[e] > uses[e] for uses in runs for e in several(uses)))
        self.uses.clear()                           # its nodes hold tensors
        return found


class Turns:
    """Units that are given nothing that requires a gradient ("late": FSDP2's hook behind their backward does not run), and those that return nothing that does
    ("forward")."""

    def __init__(self, model, units):
        self.of = {}
        for path in units:
            model.get_submodule(path).register_forward_pre_hook(functools.partial(self.enter, path), with_kwargs=True)
            model.get_submodule(path).register_forward_hook(functools.partial(self.exit, path))

    def enter(self, path, m, a, k):
        if graph_task() == -1 and not any(t.requires_grad for t in tensors_in((a, k))):
            self.of[path] = "late"

    def exit(self, path, m, a, out):
        if graph_task() == -1 and not any(t.requires_grad for t in tensors_in(out)):
            self.of[path] = "forward"


def uses_behind(out, stop=()):
    """Edges of autograd's graph from results back to `stop`, (node, number), each with the times that it is used."""
    uses = collections.Counter(tuple(get_gradient_edge(t)[:2]) for t in tensors_in(out) if t.requires_grad)
    edges, nodes = list(uses), set()
    while edges:
        edge = edges.pop()
        if edge in stop or edge[0] in nodes:
            continue
        nodes.add(edge[0])
        behind = [e for e in edge[0].next_functions if e[0] is not None]
        uses.update(behind)
        edges += behind
    return uses


def checkpointed(model, paths, classes=(), how="full"):
    """Recomputed as the module itself does it where it can (transformers), else each unit, or each module of the classes that were named."""
    from torch.utils.checkpoint import checkpoint
    options = dict(use_reentrant=False, **({"context_fn": by_operator} if how == "op" else {}))
    if classes:
        paths = of_classes(model, classes)
        if not paths:
            raise Unrecordable("--checkpoint: no module is a %s" % " or ".join(classes))
    elif getattr(model, "supports_gradient_checkpointing", False) and hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        return
    for path in paths:
        m = model.get_submodule(path)
        m.forward = functools.partial(checkpoint, m.forward, **options)


def same_modules(before, now):
    """A step that runs others than the one before it stands for no step."""
    other = sorted(before ^ now)
    if other:
        raise Unrecordable("%s runs in one step and not in the next: a recorded step stands for all: make it run in every step, or in none" % other[0])


def check_kept(r):
    """What a step makes it also frees: the next one finds what this one found."""
    made, op = {}, None
    for e in r.events:
        if e[0] == "op":
            op = r.ops[e[1]]
        elif e[0] == "alloc":
            made[e[1]] = op
        elif e[0] == "free":
            made.pop(e[1], None)
    for op in made.values():
        raise Unrecordable("%s in %s makes a tensor that stays behind the step: free what forward keeps before it returns, and write into buffers in place "
                           "(copy_, mul_) where they are replaced" % (op["name"] if op else "it", op["owner"][-1] or "the module" if op and op["owner"] else "the module"))


class Step:
    """The recorder behind a step, and what there was at its begin: `live`, bytes of storages; `kept`, of those that nothing names.

    The second step is recorded, for the first makes what stays; `settles`: it was as the first.  `once`: the first is recorded.  `zeros`: as FSDP2
    runs it, each unit's inputs go through one node of autograd's; `unused`, `meet`: units of which it matters (Shared), looked for without `zeros`."""

    def __init__(self, make, name, b, s, precision="fp32", recompute="none", chosen=None, checkpoint=(), device="cuda", stage3=False, found=(), read=(), once=False, zeros=False):
        gc.collect()
        gc.freeze()                 # what was imported is not walked again
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        torch.manual_seed(0)
        subject = Subject(build(make), name)
        model = self.model = subject.module
        self.r = r = Recorder(device, found, read, (b, s))
        r.reentrant, r.casts = precision == "autocast", precision == "bf16"
        with mode, torch.device(device):
            check_parameters(model)
            to_fake(model, device, r.values.know)
            self.units = units_of(model, chosen)
            if precision == "bf16":
                for p in model.parameters():
                    p.data = p.data.to(torch.bfloat16) if p.is_floating_point() else p.data
                for path in [""] + list(self.units):
                    cast_inputs(model.get_submodule(path))
            if zeros:
                for path in self.units:
                    zeros_for_unused(model.get_submodule(path))
            model.train()
            if recompute != "none":
                checkpointed(model, self.units, checkpoint, recompute)
            x = subject.fake_inputs_at(b, s, device, r.values.know)
            self.size_of = what_sizes_count(x, s)
            self.views = set()
            if stage3:
                self.find_views(subject, model, x, precision, device)
                r.stage3 = Stage3(r)
                watch_parameters(model, r)
            r.watch(model)
            for t in tensors_in(x):
                r.name(t, "input")
            turns = Turns(model, self.units)
            self.shared = Shared(model, self.units) if not zeros and not stage3 and precision != "autocast" else None
            self.meet = []
            gc.collect()
            gc.disable()
            try:
                with r, own_linear() if stage3 else contextlib.nullcontext():
                    self.live = r.begin()
                    before = None if once else self.run(subject, model, x, precision, device)
                    if not once:
                        gc.collect()
                        self.live = r.begin()
                    now = self.run(subject, model, x, precision, device)
                if not once:
                    same_modules({e[1] for e in before if e[0] == "enter"}, {e[1] for e in now if e[0] == "enter"})
            finally:
                gc.enable()
        self.unused, self.turns = sorted(self.shared.unused) if self.shared else [], turns.of
        r.events = settled(r.events)
        check_kept(r)
        self.settles = not once and before == now and all(number in r.what for number in self.live)
        self.kept = sorted(n for number, n in self.live.items() if number not in r.what)
        self.parameters = [(n, tuple(p.shape), p.requires_grad) for n, p in model.named_parameters()]
        self.buffers = [(n, tuple(t.shape), str(t.dtype).replace("torch.", ""), t.numel() * t.element_size()) for n, t in model.named_buffers()]

    def find_views(self, subject, model, x, precision, device):
        """By a step of its own: what is watched so lives on."""
        with own_linear(), views_saved(model, self.views):
            subject.loss_of(model, x).backward()
        model.zero_grad(set_to_none=True)

    def run(self, subject, model, x, precision, device):
        """What it did: the operators, the bytes that they read and write and that came, the modules that were entered."""
        r = self.r
        auto = torch.autocast(device, torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()
        r.events.append(("phase", "forward"))
        with auto:
            loss = subject.loss_of(model, x)
        if not isinstance(loss, torch.Tensor) or loss.dim():
            raise Unrecordable("%s: the loss is no tensor of no dimension" % subject.name)
        if self.shared:
            self.meet = self.shared.meet(loss)
        r.events.append(("phase", "backward"))
        loss.backward()
        r.events.append(("phase", "end"))
        model.zero_grad(set_to_none=True)
        for t in tensors_in(x):         # a module may ask for its inputs' gradients, which go with them
            t.grad = None
        del loss
        r.events.append(("phase", "over"))
        return [("alloc", e[2]) if e[0] == "alloc" else ("op", r.ops[e[1]]["name"], r.ops[e[1]]["bytes"]) if e[0] == "op" else e for e in r.events if e[0] in ("alloc", "op", "enter")]
