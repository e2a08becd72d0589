"""python -m dpx.record MODULE:FUNCTION -o model.json: see README.md."""
import argparse
import collections
import importlib
import json
import math
import os
import resource
import sys
import time

if __name__ == "__main__" or os.environ.get("DPX_RECORD"):
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from dpx_record import shim

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
    try:
        return [tuple(int(x) for x in p.split(":")) for p in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError("%r: BATCH:SIZE, separated by commas, as 7:640" % text) from None


def told(text):
    from dpx_record.values import Told
    try:
        Told([text])
    except (ValueError, SyntaxError, ZeroDivisionError):
        raise argparse.ArgumentTypeError("%r: a number in b and s, as 1/8 or MoE=b*s*2/8" % text) from None
    return text


def options(argv):
    a = argparse.ArgumentParser(prog="python -m dpx.record", description="Records a training step of a torch.nn.Module as a model that dpxplan reads.")
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
    a.add_argument("--gpu", default="9.0", metavar="CAPABILITY", help="compute capability that attention chooses its kernel for (default 9.0)")
    a.add_argument("--name", default="", help="the model's name (default: the function's)")
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
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as e:
        raise Unrecordable("%s: %s" % (what, e)) from None
    except AttributeError:
        raise Unrecordable("%s: %s has no %s" % (what, module, name)) from None


def said_of(precision, recompute, stage3):
    """A program, in words."""
    return precision + {"none": "", "full": ", recomputed", "op": ", recomputed by operator"}[recompute] + (", stage 3" if stage3 else "")


class Variant:
    """All recordings of one precision and recompute; `stage3`: under the hooks of DeepSpeed's stage 3."""

    def __init__(self, o, make, precision, recompute, stage3=False):
        from dpx_record import fit, pieces
        from dpx_record.recorder import Unrecordable
        from dpx_record.step import Step
        self.said = said_of(precision, recompute, stage3)
        grid, columns, inputs, self.first = [(b, s) for b in o.batch for s in o.size], [], [], None
        step_at = lambda b, s: Step(make, o.what, b, s, precision, recompute, o.unit, o.checkpoint, stage3=stage3, found=o.found, read=o.read)
        batch_of = lambda x: [n for k, n in sorted(x.live.items()) if x.r.what.get(k) == "input"]
        for b, s in grid:
            x = step_at(b, s)
            shape, column = pieces.structure(x.r)
            if self.first is None:
                self.first, shape0 = x, shape
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
            x = step_at(b, s)
            shape, column = pieces.structure(x.r)
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
    ready = {e[1] for v in variants for e in v.first.r.events if e[0] == "ready"}
    unused = [t[0] for t in tensors if len(t) == 2 and t[0] not in ready]
    doc = {"dpx_model": VERSION, "name": o.name or o.what.partition(":")[0].rpartition("/")[2].replace(".py", ""),
           "made": {"by": "dpx.record", "of": o.what, "torch": x_version(), "gpu": o.gpu, "checked": [list(p) for p in variants[0].checked]},
           **({"batch": o.batch[0]} if len(o.batch) == 1 else {}), "size": size, "tensors": tensors}
    assumed = ["%s in %s" % (said, where) for v in variants for said, where in
               list(v.first.r.assumed) + [("yes, or 1, for what a value decides", where) for where in v.first.r.values_read]]
    if assumed:
        doc["assumed"] = [text[:200] for text in dict.fromkeys(assumed)][:64]
    if shared:
        doc["shared"] = shared
    if unused:
        doc["unused"] = unused
    if x.buffers or x.kept:         # a cache that the first step made is as a buffer
        doc["buffers"] = [[n, list(shape), dtype] for n, shape, dtype, _ in x.buffers] + [["kept.%d" % i, [n], "uint8"] for i, n in enumerate(x.kept)]
    classes = [type(x.model.get_submodule(u)).__name__ for u in order]
    doc["units"] = [[u, c] for u, c in zip(order, classes)]
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
        programs.append('{"precision": "%s", "recompute": "%s",\n  %s"units": %s,\n  "pieces": {\n%s\n  }}' %
                        (p["precision"], p["recompute"], views, line(p["units"]), ",\n".join(pieces)))
    out.append('"programs": [\n%s\n]\n}' % ",\n".join(programs))
    return "\n".join(out) + "\n"


def bytes_text(n):
    return "%.2f GiB" % (n / 2**30) if n >= 2**30 else "%.1f MiB" % (n / 2**20) if n >= 2**20 else "%d bytes" % n


def report(o, doc, variants, seconds):
    """Ten lines that a person can check, and what it could not do."""
    x, v = variants[0].first, variants[0]
    count = sum(math.prod(t[1]) for t in doc["tensors"])
    trains = sum(math.prod(t[1]) for t in doc["tensors"] if len(t) == 2)
    kinds = collections.Counter(c for _, c in doc["units"])
    print("module      %s, %d parameters in %d tensors%s%s" % (type(x.model).__name__, count, len(doc["tensors"]),
          "" if trains == count else ", %d of them train" % trains, ", %d shared (%s)" % (len(doc["shared"]), doc["shared"][0][0]) if "shared" in doc else ""))
    print("units       %d: %s, of %d different programs; first %s" % (len(doc["units"]), ", ".join("%d %s" % (n, c) for c, n in kinds.items()),
          len(v.program["pieces"]) - 2, doc["units"][0][0]))
    print("inputs      %s" % ", ".join("%s bytes" % t for t in v.writer.inputs))
    print("largest     %s" % ", ".join("%s %s" % (t[0], "x".join(map(str, t[1]))) for t in sorted(doc["tensors"], key=lambda t: -math.prod(t[1]))[:3]))
    by = collections.Counter(op["cls"] for op in x.r.ops)
    print("operators   %d of a step: %s" % (len(x.r.ops), ", ".join("%d %s" % (n, c) for c, n in by.most_common())))
    print("recorded    %s, at batch %s and size %s" % ("; ".join(v.said for v in variants), ",".join(map(str, o.batch)), ",".join(map(str, o.size))))
    print("numbers     %d, in %d polynomials of degree %d in the batch and %d in the size" % (len(v.fitted.of), len(v.fitted.polynomials), *v.fitted.degree()))
    print("checked     %s" % (", ".join("batch %d and size %d" % p for p in v.checked) + ": no number differs" if v.checked else "nothing: it was recorded at one batch and size"))
    if "batch" in doc:
        print("batch       %d alone" % doc["batch"])
    print("sizes       %s" % ("%d alone" % doc["size"]["only"] if "only" in doc["size"] else ("any" if doc["size"]["step"] == 1 else "multiples of %d" % doc["size"]["step"]) + (" up to %d" % doc["size"]["most"] if "most" in doc["size"] else "")))
    print("written     %s, %d bytes, in %.0f s with %s" % (o.output, os.path.getsize(o.output), seconds,
          bytes_text(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)))
    for (name, where), n in sorted({k: c for w in variants for k, c in w.first.r.unclassed.items()}.items()):
        print("not known   %s in %s, %d times: it counts by its bytes" % (name, where, n))
    for (said, where), n in x.r.assumed.items():
        print("assumed     %s, %d times in %s: what a mask finds or a count is there depends on the data" % (said, n, where))
    for where, n in x.r.values_read.items():
        print("value read  %d times in %s: a number decides there what runs; it was taken as 1 (true)" % (n, where))
    if "unused" in doc:
        print("unused      %d parameters get no gradient: %s" % (len(doc["unused"]), ", ".join(doc["unused"][:3])))
    for note in sorted({n for w in variants for n in w.writer.chain.notes})[:5]:
        print("note        %s" % note)


def place_of(e):
    """Of an exception: the module, and the line of what is not PyTorch's or the recorder's."""
    import traceback
    from dpx_record.recorder import of_user
    lines = [f for f in traceback.extract_tb(e.__traceback__) if of_user(f.filename)]
    return "%s%s" % (" (in %s)" % (e.dpx_in or "the module") if hasattr(e, "dpx_in") else "",
                     ": %s:%d, %s" % (os.path.basename(lines[-1].filename), lines[-1].lineno, lines[-1].line) if lines else "")


def recorded(o, make):
    """All programs that can be recorded, and those that cannot, with the reason.  Where none can, the first reason is the answer."""
    from dpx_record.recorder import Unrecordable
    variants, failed = [], []
    for precision in o.precision:
        for recompute in o.recompute:
            for stage3 in (False, True)[:1 + (precision in o.stage3 and recompute != "op")]:
                try:
                    variants.append(Variant(o, make, precision, recompute, stage3))
                except Exception as e:          # of the module's own code
                    why = str(e) if isinstance(e, Unrecordable) else "%s: %s%s" % (type(e).__name__, " ".join(str(e).split())[:300], place_of(e))
                    failed.append((said_of(precision, recompute, stage3), why))
    if not variants:
        raise Unrecordable("%s: %s" % (o.what, failed[0][1]))
    return variants, failed


def run(o):
    shim.without_gpu()
    began = time.process_time()
    with shim.attention_of(o.gpu):
        make = function(o.what)
        variants, failed = recorded(o, make)
    doc = document(o, variants)
    with open(o.output, "w") as f:
        f.write(dumped(doc))
    report(o, doc, variants, time.process_time() - began)
    for said, why in failed:
        print("not done    %s: %s" % (said, why))


def main():
    o = options(sys.argv[1:])
    shim.preload()
    from dpx_record.recorder import Unrecordable
    try:
        run(o)
    except Unrecordable as e:
        print("dpx.record: %s" % e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
