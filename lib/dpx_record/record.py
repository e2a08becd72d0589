"""python -m dpx.record MODULE:FUNCTION -o model.json: see README.md."""
import argparse
import importlib
import json
import math
import os
import re
import sys
import time

if __name__ == "__main__" or os.environ.get("DPX_RECORD"):
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from dpx_record import outcome, report, shim

VERSION = 1


def numbers(text):
    try:
        out = [int(x) for x in text.split(",")]
    except ValueError:
        out = []
    if not out or min(out) < 1:
        raise argparse.ArgumentTypeError("%r: positive numbers, separated by commas" % text)
    return sorted(set(out))


def points(text):
    if not re.fullmatch("[1-9][0-9]*:[1-9][0-9]*(,[1-9][0-9]*:[1-9][0-9]*)*", text):
        raise argparse.ArgumentTypeError("%r: BATCH:SIZE, separated by commas, as 7:640" % text)
    return [tuple(int(x) for x in p.split(":")) for p in text.split(",")]


def told(text):
    from dpx_record.values import Told
    try:
        Told([text])
    except (ValueError, SyntaxError, ZeroDivisionError):
        raise argparse.ArgumentTypeError("%r: a number in b and s, as 1/8 or MoE=b*s*2/8" % text) from None
    return text


def capability(text):
    if not re.fullmatch(r"[0-9]{1,2}\.[0-9]", text):
        raise argparse.ArgumentTypeError("%r: a compute capability, as 9.0" % text)
    return text


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise outcome.Refused(message)


def options(argv):
    a = Parser(prog="python -m dpx.record", allow_abbrev=False, description="Records a training step of a torch.nn.Module as a model that dpxplan reads.")
    a.add_argument("what", metavar="MODULE:FUNCTION", help="FUNCTION() returns a module, (module, inputs) or (module, inputs, loss)")
    a.add_argument("-o", "--output", default="model.json", metavar="FILE", help="default: model.json")
    a.add_argument("--batch", type=numbers, default=[2, 3], metavar="N,N", help="batches to record at (default 2,3: bytes are linear in the batch)")
    a.add_argument("--size", type=numbers, default=[128, 256, 384], metavar="N,N,N",
                   help="sizes to record at: tokens, or an image's side, which needs five; one: the size is fixed (default 128,256,384)")
    a.add_argument("--step", type=int, default=0, metavar="N", help="plans take multiples of N as size (default: any size where all sizes are whole, else the sizes' common divisor)")
    a.add_argument("--most", type=int, default=0, metavar="N", help="the largest size (default: the rows of the table in which positions are looked up)")
    a.add_argument("--check", type=points, default=None, metavar="B:S,...", help="where the polynomials are checked (default: three points)")
    a.add_argument("--precision", default="bf16,autocast,fp32", metavar="NAMES", help="bf16 (FSDP2's mixed precision, DeepSpeed), autocast (DDP), fp32; default all")
    a.add_argument("--recompute", default="none,full", metavar="NAMES", help="none, full (as the module itself checkpoints, else each unit under torch.utils.checkpoint; default both), "
                   "op (such a checkpoint that keeps what torchtitan's selective op keeps)")
    a.add_argument("--stage3", action="store_true", help="also under the hooks of DeepSpeed's ZeRO-3: bf16 and fp32")
    a.add_argument("--checkpoint", default="", metavar="CLASS,...", help="with recompute full or op: classes whose modules are checkpointed")
    a.add_argument("--unit", default="", metavar="CLASS,...", help="classes whose modules are units (default: _no_split_modules, else repeated blocks)")
    a.add_argument("--found", type=told, action="append", default=[], metavar="[CLASS=]SHARE", help="of the rows that a mask may find, where its values are not known, so many, "
                   "as 1/8 where 8 experts have each an even share (default: all); CLASS: within modules of that class")
    a.add_argument("--read", type=told, action="append", default=[], metavar="[CLASS=]N", help="a whole number that the module reads of its data, as a count: in b and s, as b*s/8")
    a.add_argument("--gpu", type=capability, default="9.0", metavar="CAPABILITY", help="compute capability that attention chooses its kernel for (default 9.0)")
    a.add_argument("--name", default="", help="the model's name (default: the function's)")
    a.add_argument("--json", action="store_true", help="what it found, or what is wrong, as one JSON document")
    out = a.parse_args(argv)
    out.precision, out.recompute = out.precision.split(","), out.recompute.split(",")
    for said, known in ((out.precision, ("bf16", "autocast", "fp32")), (out.recompute, ("none", "full", "op"))):
        for x in said:
            if x not in known:
                a.error("%r is none of %s" % (x, ", ".join(known)))
    out.unit, out.checkpoint = [x for x in out.unit.split(",") if x], [x for x in out.checkpoint.split(",") if x]
    out.stage3 = ("bf16", "fp32") if out.stage3 else ()
    if out.check is None:
        gap = out.size[-1] - out.size[-2] if len(out.size) > 1 else 0
        out.check = [(out.batch[-1] + 4, out.size[-1] + gap), (out.batch[-1] + 1, out.size[len(out.size) // 2]), (out.batch[-1] + 2, out.size[0])]
    if len(out.batch) == 1:
        out.check = [(out.batch[0], s) for _, s in out.check]
    for _, s in out.check:
        if len(out.size) == 1 and s != out.size[0]:
            a.error("--check %d: the size is fixed at %d" % (s, out.size[0]))
    if min(out.step, out.most) < 0:
        a.error("--step and --most are positive numbers")
    folder = os.path.dirname(os.path.abspath(out.output))
    if os.path.isdir(out.output) or not os.access(folder, os.W_OK):
        a.error("-o %s: no file can be written there" % out.output)
    return out


def function(what):
    from dpx_record.recorder import Unrecordable
    module, _, name = what.partition(":")
    sys.path.insert(0, os.getcwd())
    if not name:
        raise Unrecordable("%s: MODULE:FUNCTION is wanted, as mymodel:make" % what)
    if module.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(module)))
        module = os.path.basename(module)[:-3]
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as e:
        raise Unrecordable("%s: %s" % (what, e)) from None
    except (Exception, SystemExit) as e:        # of its own lines
        raise Unrecordable("%s: %s" % (what, told_of(e))) from None
    if not callable(getattr(loaded, name, None)):
        raise Unrecordable("%s: %s has no function %s" % (what, module, name))
    return getattr(loaded, name)


class Variant:
    """All recordings of one precision and recompute; `stage3`: under the hooks of DeepSpeed's stage 3."""

    def __init__(self, o, make, precision, recompute, stage3=False):
        from dpx_record import fit, pieces
        from dpx_record.recorder import Unrecordable
        from dpx_record.step import Step
        self.said = report.program_text(report.program(precision, recompute, stage3))
        grid, columns, inputs, self.first = [(b, s) for b in o.batch for s in o.size], [], [], None
        self.unused, self.zeros, self.precision = [], False, precision
        self.step = lambda b, s, once: Step(make, o.what, b, s, precision, recompute, o.unit, o.checkpoint, stage3=stage3, found=o.found, read=o.read, once=once,
                                            zeros=self.zeros)
        self.stage3 = stage3
        batch_of = lambda x: [n for k, n in sorted(x.live.items()) if x.r.what.get(k) == "input"]
        for b, s in grid:
            x, shape, column = self.at(b, s)
            if self.first is None:
                self.first, shape0 = x, shape
                self.shape = shape0
            if shape != shape0:
                same = "batch with --batch %d, or batches" % b if s == grid[0][1] else "size with --size %d, or sizes" % s
                raise Unrecordable("%s: it does other operations at batch %d and size %d than at %d and %d: %s; record one %s at which it does the same" %
                                   (self.said, b, s, *grid[0], pieces.first_difference(shape0, shape), same))
            if x.kept != self.first.kept:
                raise Unrecordable("%s: it keeps %d bytes from step to step at batch %d and size %d, %d at %d and %d: only what depends on neither is planned" %
                                   (self.said, sum(x.kept), b, s, sum(self.first.kept), *grid[0]))
            columns.append(column)
            inputs.append(batch_of(x))
        self.fitted, fitted_inputs = fit.Fitted(grid, columns), fit.Fitted(grid, inputs)
        self.checked = []
        for b, s in o.check:
            if (b, s) in grid:          # of one batch and size there is no polynomial to check
                continue
            x, shape, column = self.at(b, s)
            if shape != shape0:
                raise Unrecordable("%s: it does other operations at batch %d and size %d than at %d and %d: %s" %
                                   (self.said, b, s, *grid[0], pieces.first_difference(shape0, shape)))
            wrong = self.fitted.wrong_at(b, s, column) + [len(column) + i for i in fitted_inputs.wrong_at(b, s, batch_of(x))]
            self.checked.append((b, s))
            if wrong:
                raise Unrecordable("%s: at batch %d and size %d %d of %d numbers (first: %s) are not the polynomials' of degree %d in the batch and %d in "
                                   "the size: give more sizes (an image's side needs five), or multiples of 32; of what grows with the batch's square "
                                   "give three batches (--batch 2,3,4)" % (self.said, b, s, len(wrong), len(column), pieces.of_number(x.r, wrong[0]),
                                                                           len(o.batch) - 1, len(o.size) - 1))
        texts = [self.fitted.text_of(i) for i in range(len(self.fitted.of))]
        self.writer = pieces.Writer(self.first, texts, [fitted_inputs.text_of(i) for i in range(len(fitted_inputs.of))])
        self.program = dict(precision=precision, recompute=recompute, **self.writer.program())
        if stage3:
            self.program["views"] = sorted(self.first.views)


    def at(self, b, s):
        """A step, its structure and its numbers.  Where a module's first step is as its second, one is enough, if it is as that was."""
        from dpx_record import pieces
        from dpx_record.recorder import Unrecordable
        if self.first is not None and self.first.settles and not self.stage3:
            try:
                x = self.step(b, s, True)
                shape, column = pieces.structure(x.r)
                if shape == self.shape:
                    return x, shape, column
            except Unrecordable:
                pass
        x = self.step(b, s, False)
        if x.unused and self.precision == "fp32":
            raise Unrecordable("%s: %s is given a tensor that it does not use: FSDP2 makes its gradient zeros, DDP leaves it out, and an fp32 program stands for both: "
                               "give it only what it uses, or record bf16 and autocast, each apart" % (self.said, x.unused[0]))
        if x.unused or (x.meet and self.precision == "bf16"):       # an fp32 program is DDP's, too
            self.unused, self.zeros = x.unused, True
            x = self.step(b, s, False)
        return (x, *pieces.structure(x.r))

    def trained(self):
        """Parameters that get a gradient."""
        return {e[1] for e in self.first.r.events if e[0] == "ready"}


def document(o, variants):
    x, order = variants[0].first, variants[0].writer.chain.order
    for v in variants[1:]:
        if v.writer.chain.order != order:
            from dpx_record.recorder import Unrecordable
            raise Unrecordable("units run in another order in %s than in %s" % (v.said, variants[0].said))
    whole = all(v.fitted.whole() for v in variants)
    size = {"least": 1, "step": o.step or (1 if whole else math.gcd(*o.size))} if len(o.size) > 1 else {"only": o.size[0]}
    if o.step:
        size["least"] = o.step
    elif len(o.size) > 1:
        size["least"] = size["step"]
    if "only" not in size and (o.most or x.r.rows):
        size["most"] = o.most or min(x.r.rows.values())
    size = {"of": x.size_of, **size}
    known, tensors, shared = {}, [], []
    for name, p in x.model.named_parameters(remove_duplicate=False):
        if id(p) in known:
            shared.append([name, known[id(p)]])
            continue
        known[id(p)] = name
        tensors.append([name, list(p.shape)] + ([] if p.requires_grad else ["frozen"]))
    ready = variants[0].trained()
    unused = [t[0] for t in tensors if len(t) == 2 and t[0] not in ready]
    doc = {"dpx_model": VERSION, "name": o.name or o.what.partition(":")[0].rpartition("/")[2].replace(".py", ""),
           "made": {"by": "dpx.record", "of": o.what, "torch": x_version(), "gpu": o.gpu, "checked": [list(p) for p in variants[0].checked]},
           **({"batch": o.batch[0]} if len(o.batch) == 1 else {}), "size": size, "tensors": tensors}
    assumed = ["%s in %s" % (said, where) for v in variants for said, where in
               list(v.first.r.assumed) + [("yes, or 1, for what a value decides", where) for where in v.first.r.values_read] +
               [("zeros, as FSDP2 gives them, for the gradient of what it is given and does not use", where) for where in v.unused]]
    if assumed:
        doc["assumed"] = [text[:200] for text in dict.fromkeys(assumed)][:64]
    if shared:
        doc["shared"] = shared
    if unused:
        doc["unused"] = unused
    if x.buffers:
        doc["buffers"] = [[n, list(shape), dtype] for n, shape, dtype, _ in x.buffers]
    if x.kept:
        doc["kept"] = x.kept
    classes = [type(x.model.get_submodule(u)).__name__ for u in order]
    turns = {**x.turns, **dict.fromkeys(variants[0].writer.chain.without, "forward")}
    doc["units"] = [[u, c, *([turns[u]] if u in turns else [])] for u, c in zip(order, classes)]
    doc["programs"] = [v.program for v in variants]
    return doc


def x_version():
    import torch
    return torch.__version__.partition("+")[0]


def dumped(doc):
    """JSON with a line for each tensor and kernel: a person can read it."""
    line = lambda x: json.dumps(x, separators=(",", ":"))
    out = ["{"]
    for key in doc:
        if key == "programs":
            continue
        if key in ("tensors", "units", "buffers"):
            out.append('"%s": [\n  %s\n],' % (key, ",\n  ".join(line(x) for x in doc[key])))
        else:
            out.append('"%s": %s,' % (key, line(doc[key])))
    programs = []
    for p in doc["programs"]:
        pieces = []
        for name, piece in p["pieces"].items():
            passes = ",\n".join('      "%s": [\n        %s\n      ]' % (now, ",\n        ".join(line(k) for k in piece[now])) if piece[now] else '      "%s": []' % now
                                for now in ("forward", "backward"))
            more = "".join('      "%s": %s,\n' % (k, line(piece[k])) for k in ("before", "after", "loss", "hooks") if k in piece)
            pieces.append('    "%s": {\n%s%s\n    }' % (name, more, passes))
        views = '"stage3": true, "views": %s, ' % line(p["views"]) if "views" in p else ""
        programs.append('{"precision": "%s", "recompute": "%s",\n  %s"units": %s, "cut": %s,\n  "pieces": {\n%s\n  }}' %
                        (p["precision"], p["recompute"], views, line(p["units"]), line(p["cut"]), ",\n".join(pieces)))
    out.append('"programs": [\n%s\n]\n}' % ",\n".join(programs))
    return "\n".join(out) + "\n"


def told_of(e):
    """An exception in a line: the module, and the line of what is not PyTorch's or the recorder's."""
    import traceback
    from dpx_record.recorder import of_user
    lines = [f for f in traceback.extract_tb(e.__traceback__) if of_user(f.filename)]
    why = " ".join(str(e).split())[:300]
    if "no NVIDIA driver" in why:
        why = "an operator asks the GPU itself, which a recording does not have"
    return "%s: %s%s%s" % (type(e).__name__, why, " (in %s)" % (e.dpx_in or "the module") if hasattr(e, "dpx_in") else "",
                     ": %s:%d, %s" % (os.path.basename(lines[-1].filename), lines[-1].lineno, lines[-1].line) if lines else "")


def recorded(o, make):
    """All programs that can be recorded, and those that cannot, with the reason.  Where none can, the first reason is the answer."""
    def as_before(v):
        other = sorted(v.trained() ^ variants[0].trained()) if variants else []
        if other:
            one, none = (v, variants[0]) if other[0] in v.trained() else (variants[0], v)
            raise Unrecordable("%s gets a gradient in %s and none in %s: a file has one list of what trains: record each apart (--precision)" % (other[0], one.said, none.said))
        return v

    from dpx_record.recorder import Unrecordable
    variants, failed = [], []
    for precision in o.precision:
        for recompute in o.recompute:
            for stage3 in (False, True)[:1 + (precision in o.stage3 and recompute != "op")]:
                try:
                    variants.append(as_before(Variant(o, make, precision, recompute, stage3)))
                except Exception as e:      # of the module, too
                    why = str(e) if isinstance(e, Unrecordable) else told_of(e)
                    failed.append(report.program(precision, recompute, stage3, why=why))
    if not variants:
        raise Unrecordable("%s: %s" % (o.what, failed[0]["why"]))
    return variants, failed


def run(o):
    """Writes the file, and returns what to say of it."""
    shim.without_gpu()
    began = time.process_time()
    with shim.attention_of(o.gpu):
        make = function(o.what)
        variants, failed = recorded(o, make)
    doc = document(o, variants)
    with open(o.output, "w") as f:
        f.write(dumped(doc))
    return report.of(o, doc, variants, failed, time.process_time() - began)


def main():
    outcome.begin(sys.argv[1:])
    try:
        o = options(sys.argv[1:])
        shim.preload()
        outcome.alone()
        found = run(o)
    except outcome.Refused as e:
        return outcome.refuse(e)
    except OSError as e:
        return outcome.refuse(outcome.Refused("%s: %s" % (e.filename or o.output, e.strerror or e), 1))
    return outcome.give(found, report.lines(found))


def leave(status):
    """Without tearing down what the recorder froze, of which Triton's bindings print a page as leaks."""
    import atexit
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(status)


if __name__ == "__main__":
    try:
        status = main()
    except SystemExit as e:             # of argparse
        status = e.code if isinstance(e.code, int) else 1
    leave(status or 0)
