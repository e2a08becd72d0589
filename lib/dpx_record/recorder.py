"""One training step as a list of events, in the order in which they happen:

    ("op", i)                   ops[i] runs
    ("alloc", s, bytes)         storage s comes: a result of the operator before
    ("free", s)                 the last reference to it went
    ("enter", path), ("exit", path)     of a module's forward
    ("hook", kind, path)        of DeepSpeed's stage 3 (stage3.py)
    ("ready", parameter, s)     a parameter's gradient is complete and lies in s
    ("phase", name)             forward, backward, end
"""
import collections
import contextlib
import os
import sys
import weakref

import torch
from torch import nn
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from . import classes
from .outcome import Refused
from .values import FIXED, Told, Values, expression

aten = torch.ops.aten
graph_task = torch._C._current_graph_task_id
graph_node = torch._C._current_autograd_node
sequence_number = torch.autograd._get_sequence_nr
uses_of = torch._C._storage_Use_Count
# areAnyTensorSubclassLike() of FunctionsManual.cpp
INTO_ZEROS = {aten.index_put.default: aten.index_put_.default, aten.scatter.src: aten.scatter_.src, aten.scatter_add.default: aten.scatter_add_.default,
              aten.index_add.default: aten.index_add_.default}
HELD = 4                                # _use_count() of a sum's first addend that nothing but the engine's buffer holds: its Python object and the call hold it too


class Unrecordable(Refused):
    """What cannot be recorded, in one line that names the module or operator."""


def tensors_in(tree):
    return [t for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor)]


def touched(t):
    """Bytes that a kernel reads or writes of a tensor; a dimension that is expanded counts once."""
    if t.layout is not torch.strided:
        return 0
    n = 1
    for size, stride in zip(t.shape, t.stride()):
        n *= size if stride or size == 0 else 1
    return n * t.element_size()


def is_causal(func, args, kwargs):
    """By the argument's name: other arguments of attention are truths, too."""
    given = dict(zip((a.name for a in func._schema.arguments), args), **kwargs)
    return any(given.get(name) is True for name in ("is_causal", "causal")) or given.get("custom_mask_type", 0) in (1, 2)


def of_user(filename):
    """Is it neither PyTorch's nor the recorder's?"""
    return not any(os.sep + folder + os.sep in filename for folder in ("torch", "dpx_record")) and not filename.startswith("<frozen ")


def users_line():
    """Where the user's code is: " (file.py:7)"."""
    f = sys._getframe(1)
    while f is not None and not of_user(f.f_code.co_filename):
        f = f.f_back
    return " (%s:%d)" % (os.path.basename(f.f_code.co_filename), f.f_lineno) if f else ""


def from_engine():
    """Is the caller autograd's engine, with no Python function between?"""
    f = sys._getframe(3)         # behind in_place() and __torch_dispatch__()
    while f is not None and f.f_code.co_name in ("_fn", "inner"):
        f = f.f_back
    return f is None or f.f_code.co_name == "_engine_run_backward"


class Recorder(TorchDispatchMode):
    supports_higher_order_operators = True      # those come here, to be refused by name

    def __init__(self, device, found=(), read=(), at=(1, 1)):
        super().__init__()
        self.values, self.at = Values(self.number_of), at
        self.found, self.read, self.assumed = Told(found), Told(read), {}       # assumed: what was told and used -> times
        self.device = torch.device(device).type
        self.events, self.ops = [], []
        self.storages = {}              # address of the storage's object -> (weak reference, number)
        self.sizes, self.what = {}, {}  # of a number: bytes; "param NAME", "buffer NAME" or "input" of what was there before
        self.path_of, self.class_of, self.stack = {}, {}, []
        self.owner_of_seq, self.owner = {}, ()
        self.values_read = collections.Counter()        # where a value decides: module -> times
        self.unclassed = collections.Counter()
        self.count = 0
        self.stage3, self.reentrant = None, False       # may a checkpoint be reentrant?
        self.casts = False              # parameters and inputs were cast to bf16
        self.positions, self.rows = set(), {}        # storages of 0, 1, 2 ..., and tables that such are looked up in: module -> rows

    # ---- storages ----

    def number_of(self, t):
        if t.layout in (torch.sparse_coo, torch.sparse_csr):
            raise Unrecordable("%s makes a sparse tensor (as nn.Embedding(sparse=True) does of its gradient), whose bytes the data decide: make it dense" % self.where())
        try:
            storage = t.untyped_storage()
        except Exception:
            raise Unrecordable("%s: %s has no storage" % (self.where(), type(t).__name__)) from None
        known = self.storages.get(storage._cdata)
        if known is not None:
            if storage.nbytes() != self.sizes[known[1]]:
                raise Unrecordable("%s: a storage is resized in place" % self.where())
            return known[1]
        if t.device.type != self.device:
            return None
        self.count += 1
        number, address = self.count, storage._cdata

        def gone(_):
            self.storages.pop(address, None)
            self.events.append(("free", number))
        self.storages[address] = weakref.ref(storage, gone), number
        self.sizes[number] = storage.nbytes()
        self.events.append(("alloc", number, storage.nbytes()))
        return number

    def name(self, t, what):
        number = self.number_of(t)
        if number is not None:
            self.what.setdefault(number, what)

    # ---- modules ----

    def where(self):
        return self.stack[-1] or "the module" if self.stack else "the module"

    def watch(self, model):
        for path, m in model.named_modules():
            self.path_of.setdefault(id(m), path)
            self.class_of.setdefault(path, type(m).__name__)
        for path, p in model.named_parameters():
            self.name(p, "param " + path)
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda p, path=path: self.events.append(("ready", path, self.number_of(p.grad))))
        for path, b in model.named_buffers():
            self.name(b, "buffer " + path)

    def __enter__(self):
        hooks = nn.modules.module
        self.handles = [hooks.register_module_forward_pre_hook(self.enter), hooks.register_module_forward_hook(self.exit, always_call=True)]
        return super().__enter__()

    def __exit__(self, *exception):
        for h in self.handles:
            h.remove()
        return super().__exit__(*exception)

    def enter(self, module, args):
        if id(module) in self.path_of:
            self.stack.append(self.path_of[id(module)])
            self.events.append(("enter", self.stack[-1]))
            return self.stage3.enter(module, args) if self.stage3 else None

    def exit(self, module, args, out):
        if id(module) in self.path_of and self.stack:
            stopped = sys.exc_info()[0] is not None         # a checkpoint has what it needs
            made = self.stage3.leave(module, out) if self.stage3 and not stopped else None
            self.events.append(("exit", self.stack.pop()))
            if stopped and not hasattr(sys.exc_info()[1], "dpx_in"):
                sys.exc_info()[1].dpx_in = self.events[-1][1]
            return made

    def begin(self):
        """What happened so far was a step before; what is there now was there before."""
        self.events.clear()
        self.ops.clear()
        self.owner_of_seq.clear()
        self.values_read.clear()
        self.assumed.clear()
        self.unclassed.clear()
        return {number: self.sizes[number] for _, number in self.storages.values()}

    # ---- operators ----

    def owner_now(self, back):
        """The modules inside of which an operator runs; in backward those in which its node was made."""
        if not back:
            self.owner_of_seq.setdefault(sequence_number() - 1, tuple(self.stack))
            return tuple(self.stack)
        node = graph_node()
        if node is not None and node.name() == "CheckpointFunctionBackward" and not self.reentrant:
            raise Unrecordable("%s is under a reentrant checkpoint, whose memory is known under DDP alone (autocast): set use_reentrant=False, which keeps as much" %
                               self.where())
        made = self.owner_of_seq.get(node._sequence_nr()) if node is not None else None
        if made is not None or self.stack:
            self.owner = (made or ()) + tuple(self.stack)
        return self.owner       # of a node without a number, as AccumulateGrad: of the one before it

    def in_place(self, func, args, kwargs):
        """What the engine does in place, but not to tensor subclasses, as fake ones are: sums of gradients that meet, the first of which nothing else refers to,
        and what is put into zeros, as the backward of x[[i]] does."""
        if func in INTO_ZEROS:
            zeros = self.ops and self.ops[-1]["name"] in ("new_zeros", "zeros") and self.number_of(args[0]) in self.ops[-1]["outs"]
            return INTO_ZEROS[func] if zeros and from_engine() else func
        if func is not aten.add.Tensor or len(args) != 2 or kwargs or not all(isinstance(a, torch.Tensor) for a in args) or not from_engine():
            return func
        a, b = args
        fits = a.shape == b.shape and a.dtype == b.dtype and a._use_count() <= HELD and uses_of(a.untyped_storage()._cdata) <= 2 and \
            aten.is_non_overlapping_and_dense(a)
        return aten.add_.Tensor if fits else func

    # ---- values ----

    def classes_now(self):
        return [self.class_of.get(path, "") for path in self.stack]

    def scalar(self, t):
        """The program asks for a number that is not known: a truth is true, a real number 1; a whole number may be a length, so it has to be told."""
        if t.dtype is torch.bool or t.is_floating_point():
            self.values_read[self.where()] += 1
            return True if t.dtype is torch.bool else 1.0
        text = self.read.of(self.classes_now())
        if text is None:
            raise Unrecordable("%s reads a whole number that its weights or the data decide%s: say what it is with --read N, in b and s "
                               "(experts that share the tokens of a batch evenly: --read b*s*TOP_K/EXPERTS)" % (self.where(), users_line()))
        return self.whole(expression(text, *self.at), "--read " + text)

    def whole(self, value, said):
        if value.denominator != 1 or value < 0:
            raise Unrecordable("%s: %s is %s at batch %d and size %d: no whole number" % (said, self.where(), value, *self.at))
        self.assumed[said, self.where()] = self.assumed.get((said, self.where()), 0) + 1
        return int(value)

    def rows_found(self, most):
        """Of so many that a mask may find, where it is not known."""
        text = self.found.of(self.classes_now())
        if text is not None:
            return self.whole(most * expression(text, *self.at), "--found " + text)
        said = "as many as there can be"
        self.assumed[said, self.where()] = self.assumed.get((said, self.where()), 0) + 1
        return most

    def of_known_shape(self, func, args, value):
        """What makes the result of an operator whose shape is a value; None: it is no such."""
        name = classes.name_of(func)
        if name not in FIXED:
            return None
        like = lambda shape, dtype: aten.new_empty.default(args[0], shape, dtype=dtype)
        if value is not None and not any(t in self.values.drawn for t in tensors_in(args)):        # what a middle finds stands for nothing
            outs = value if isinstance(value, tuple) else (value,)
            return lambda: tuple(like(v.shape, v.dtype) for v in outs) if isinstance(value, tuple) else like(value.shape, value.dtype)
        if name == "nonzero":
            rows = self.rows_found(args[0].numel())
            return lambda: self.values.all_found(like((rows, args[0].dim()), torch.int64), args[0].shape)
        if name == "masked_select":
            rows = self.rows_found(args[1].numel())
            return lambda: like((rows,), args[0].dtype)
        raise Unrecordable("%s in %s%s: the shape of what it makes is a value that is not known" % (name, self.where(), users_line()))

    @contextlib.contextmanager
    def watching(self):
        """Operators of its own are the module's, too."""
        super().__enter__()
        try:
            yield
        finally:
            super().__exit__(None, None, None)

    def same_dtypes(self, name, args):
        """Of a kernel's operands, which on a device it checks itself."""
        clash = classes.clash_of(name, args)
        if clash:
            raise Unrecordable("%s%s: %s of %s and %s, which PyTorch refuses%s" % (self.where(), users_line(), name, *(str(d).replace("torch.", "") for d in clash),
                               ": FSDP2 and DeepSpeed cast parameters and inputs to bf16, not what forward makes: cast that, as x.to(self.weight.dtype)" if self.casts else ""))

    def without_masks(self, indices):
        """An index that is a mask is the rows that it finds, which is how the kernel goes about it."""
        out = []
        for i in indices:
            if i is None or i.dtype not in (torch.bool, torch.uint8):
                out.append(i)
                continue
            with self.watching():
                rows = aten.nonzero.default(i)
                out += [aten.select.int(rows, 1, k) for k in range(i.dim())]
        return out

    def follow_positions(self, name, cls, args, ins, outs):
        """A table of positions has as many rows as the longest size."""
        made_of_positions = ins and (cls == "copy" or name in ("add", "add_")) and all(n in self.positions for n, _ in ins)
        if name == "arange" or made_of_positions:
            self.positions |= {n for n, _ in outs}
        elif name == "embedding" and (ins[1][0] in self.positions or self.what.get(ins[1][0], "").startswith("buffer")):
            self.rows[self.where()] = args[0].shape[0]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        torch._C._set_only_lift_cpu_tensors(True)       # as the fake mode has it, in autograd's threads too
        if isinstance(func, HigherOrderOperator):
            raise Unrecordable("%s calls %s%s, an operator of functions, which is not recorded: call scaled_dot_product_attention, or plain operators, for the recording" %
                               (self.where(), func.name(), users_line()))
        if func.namespace in ("prim", "profiler"):
            return func(*args, **kwargs)
        value = self.values.computed(func, args, kwargs)
        if func is aten._local_scalar_dense.default:
            if args[0] in self.values.drawn:
                said = "the middle of what chance draws"
                self.assumed[said, self.where()] = self.assumed.get((said, self.where()), 0) + 1
            return self.scalar(args[0]) if value is None else value
        if func in (aten.index.Tensor, aten._unsafe_index.Tensor):
            args = (args[0], self.without_masks(args[1]))
        made = self.of_known_shape(func, args, value)
        back = graph_task() != -1
        if back:
            func = self.in_place(func, args, kwargs)
        cls, name, ins, operands = classes.class_of(func), classes.name_of(func), [], {}
        for t in tensors_in((args, kwargs)):
            number = self.number_of(t)
            ins.append((number, touched(t)))
            operands[number, t.storage_offset() if t.layout is torch.strided else 0, tuple(t.shape)] = ins[-1][1]
        self.same_dtypes(name, args)
        out = func(*args, **kwargs) if made is None else made()
        self.values.follow(func, args, kwargs, out, value)
        results = tensors_in(out)
        if cls == "view" and all(self.storages.get(t.untyped_storage()._cdata) for t in results):
            if not back:
                self.owner_now(False)
            return out
        self.events.append(("op", len(self.ops)))
        outs = [(self.number_of(t), touched(t)) for t in results]
        owner = self.owner_now(back)
        self.follow_positions(name, cls, args, ins, outs)
        products = [classes.product_of(name.rstrip("_"), args, out)] if cls == "gemm" else classes.convolution_of(name, args, out) if cls == "conv" else None
        flops = classes.flops_of(func, args, kwargs, out) if cls in ("gemm", "attention", "conv", "custom", "?") else 0
        read, written = sum(operands.values()), sum(b for _, b in outs)
        if (flops is None and not any(products or [])) or cls == "?":
            self.unclassed[("" if func.namespace == "aten" else func.namespace + ".") + name, owner and owner[-1] or "the module"] += 1
        self.ops.append(dict(name=("" if func.namespace == "aten" else func.namespace + ".") + name, cls={"?": "custom", "view": "copy"}.get(cls, cls),
                             ins=[n for n, _ in ins], outs=[n for n, _ in outs], products=[p for p in products or [] if p], flops=flops or 0, grouped=classes.shared_out(name, args),
                             bytes=classes.bytes_of(func, cls, read, ins[-1][1] if len(ins) > 1 else 0, written), owner=owner, back=back,
                             dim=next((t.shape[-1] for t in tensors_in(args) if t.dim() > 2), 0) if cls == "attention" else 0, causal=cls == "attention" and is_causal(func, args, kwargs),
                             dtype=str(results[0].dtype).replace("torch.", "") if results else ""))
        return out


def settled(events):
    """Frees that follow each other, in the order in which their storages came: a cache is emptied in the order of addresses."""
    out, run = [], []
    for e in events:
        if e[0] == "free":
            run.append(e)
            continue
        out += sorted(run)
        run = []
        out.append(e)
    return out + sorted(run)
