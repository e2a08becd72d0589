"""The programs of a step's parts, as the file has them (docs/howto/model-file.md)."""
import json

from .units import Chain


def structure(r):
    """What happens without its numbers, storages named by their order; and the numbers."""
    names, shape, numbers = {}, [], []
    name = lambda s: None if s is None else names.setdefault(s, len(names))
    for e in r.events:
        if e[0] == "op":
            o = r.ops[e[1]]
            shape.append(("op", o["name"], o["owner"], o["back"], tuple(map(name, o["ins"])), tuple(map(name, o["outs"])), o["dtype"]))
            numbers += [o["bytes"], o["flops"]] + [n for p in o["products"] for n in p]
        elif e[0] == "alloc":
            shape.append((e[0], name(e[1])))
            numbers.append(e[2])
        elif e[0] == "free":
            shape.append((e[0], name(e[1])))
        elif e[0] == "ready":
            shape.append((e[0], e[1], name(e[2])))
        elif e[0] == "hook":
            shape.append(e)
        else:
            shape.append(e[:2])
    return shape, numbers


def of_number(r, wanted):
    """What the number of structure() counts, in words."""
    n, op = 0, "the batch"
    for e in r.events:
        if e[0] == "op":
            o = r.ops[e[1]]
            op = "%s in %s" % (o["name"], o["owner"][-1] or "the module" if o["owner"] else "the module")
            n += 2 + 4 * len(o["products"])
        elif e[0] == "alloc":
            n += 1
        if n > wanted:
            return "%s %s" % ("a tensor behind" if e[0] == "alloc" else "bytes or products of", op)
    return "the batch"


def first_difference(a, b):
    """Of two structures, in words."""
    for x, y in zip(a, b):
        if x != y:
            say = lambda e: "%s in %s" % (e[1], e[2][-1] if e[2] else "the module") if e[0] == "op" else " ".join(map(str, e))
            return "%s, but %s" % (say(x), say(y))
    return "%d events, but %d" % (len(a), len(b))


class Writer:
    """Parts of one step; `numbers` are the texts of its numbers, in their order, `inputs` those of the batch's tensors."""

    def __init__(self, step, numbers, inputs):
        self.step, self.r = step, step.r
        self.chain = Chain(step)
        self.of_op, self.of_storage = {}, {}
        it = iter(numbers)
        for e in self.r.events:
            if e[0] == "op":
                self.of_op[e[1]] = [next(it) for _ in range(2 + 4 * len(self.r.ops[e[1]]["products"]))]
            elif e[0] == "alloc":
                self.of_storage[e[1]] = next(it)
        self.made, self.gone, self.gradient = {}, {}, {}        # storage -> (part, pass); parameter
        self.inputs = inputs
        for name, part in self.chain.parts.items():
            for now, events in self.passes(part):
                for e in events:
                    if e[0] == "alloc":
                        self.made[e[1]] = name, now
                    elif e[0] == "free":
                        self.gone[e[1]] = name, now
                    elif e[0] == "ready":
                        self.gradient[e[2]] = e[1]
        self.ready_in = {e[2]: name for name, part in self.chain.parts.items() for _, events in self.passes(part) for e in events if e[0] == "ready"}
        self.wide = self.products_of_gradients()

    @staticmethod
    def passes(part):
        return ("forward", part["before"] + part["forward"]), ("backward", part["backward"] + part["after"])

    def products_of_gradients(self):
        """Storages that are a parameter's gradient, or become one by a cast or a sum."""
        wide = set(self.gradient)
        for o in reversed(self.r.ops):
            if o["back"] and o["cls"] in ("elementwise", "copy") and any(x in wide for x in o["outs"]):
                wide |= {x for x in o["ins"] if self.made.get(x, ("", ""))[1] == "backward"}
        return wide

    def kernel(self, i):
        """One line for an operator; a convolution's backward is two."""
        o, (bytes_, flops, *products) = self.r.ops[i], self.of_op[i]
        side = (" dW" if any(x in self.wide for x in o["outs"]) else " dX") if o["back"] and o["cls"] == "gemm" else ""
        row = {"op": o["name"] + side, "class": o["cls"]}
        if o["causal"]:
            row["causal"] = True
        if o["dim"]:
            row["head_dim"] = o["dim"]
        products = [products[k:k + 4] for k in range(0, len(products), 4)]
        for p in products[:-1]:
            yield dict(row, op=o["name"] + " dX", product=p)
        if products:
            row["product"] = products[-1]
            if o["grouped"]:
                row["grouped"] = o["grouped"]
            if len(products) > 1:
                row["op"] = o["name"] + " dW"
        elif flops != 0:
            row["flops"] = flops
        row["bytes"] = bytes_
        yield row

    def add(self, rows, row, does):
        """A kernel, with what comes and goes once it runs."""
        row["does"] = does
        rows.append(row)

    def write(self, name, unit, now, events):
        rows, does, local = [], None, self.local
        self.hooks[now] = hooks = []
        within = lambda path: path[len(unit):] or "." if unit and (path + ".").startswith(unit + ".") else path
        for e in events:
            if e[0] == "op":
                *before, row = self.kernel(e[1])
                rows += [dict(b, bytes=0, does=[]) for b in before]
                does = []
                self.add(rows, row, does)
            elif e[0] in ("alloc", "free", "ready") and does is None:
                does = []
                self.add(rows, {"op": "begin", "class": "copy", "bytes": 0}, does)
            if e[0] == "alloc":
                local[e[1]] = len(local)
                elsewhere = self.ready_in.get(e[1], name) != name
                does.append(["+", local[e[1]], self.of_storage[e[1]]] + (["gradient"] if elsewhere else []))
            elif e[0] == "free" and e[1] in local:
                does.append(["-", local[e[1]]])
            elif e[0] == "free" and e[1] in self.made:
                does.append(["-" + self.made[e[1]][1], self.of_storage[e[1]]])
            elif e[0] == "ready":
                does.append(["=", within(e[1]), local.get(e[2])])
                hooks.append([len(rows), "gradient", within(e[1])])
            elif e[0] == "hook":
                hooks.append([len(rows), e[1], within(e[2])])
        return rows

    def part(self, name):
        part, self.local, self.hooks = self.chain.parts[name], {}, {}
        unit = name if name in self.step.units else ""
        out = {"forward": self.write(name, unit, "forward", part["before"] + part["forward"]), "backward": []}
        if part["before"]:
            out["before"] = len(self.counted(part["before"]))
        backward = part["backward"] + part["after"]
        if name == "first":
            batch = [{"op": "batch", "class": "copy", "bytes": 0, "does": [["+", -1 - i, n] for i, n in enumerate(self.inputs)]}]
            out["forward"] = batch + out["forward"]
            self.hooks["forward"] = [[k + 1, *rest] for k, *rest in self.hooks["forward"]]
            backward = backward + [e for e in self.chain.end if e[0] == "free" and e[1] in self.made and e[1] not in self.gradient]
            out["backward"] = self.write(name, unit, "backward", backward)
            out["backward"].append({"op": "batch", "class": "copy", "bytes": 0, "does": [["-", -1 - i] for i in range(len(self.inputs))]})
        else:
            out["backward"] = self.write(name, unit, "backward", backward)
        if part["after"]:
            out["after"] = len(self.counted(part["after"]))
        if name == "last" and self.loss_apart(part):
            out["loss"] = self.loss_apart(part)
            out["loss"][1] += out["backward"][0]["op"] == "begin"
        if self.r.stage3:
            out["hooks"] = self.hooks
        return out

    def loss_apart(self, part):
        """Kernels of the loss outside of the module: the last of forward, the first of backward; None: it is the module's."""
        left = [i for i, e in enumerate(part["forward"]) if e == ("exit", "")]
        owned = [i for i, e in enumerate(part["backward"]) if e[0] == "op" and self.r.ops[e[1]]["owner"]]
        n = len(self.counted(part["forward"][left[-1]:])) if left else 0
        return [n, len(self.counted(part["backward"][:owned[0] if owned else None]))] if n else None

    def counted(self, events):
        """Lines that these events make: those of operators."""
        return [row for e in events if e[0] == "op" for row in self.kernel(e[1])]

    def program(self):
        """{"pieces": {...}, "units": [the piece of each]}"""
        pieces, names, of = {"first": self.part("first")}, {}, []
        for unit in self.chain.order:
            piece = self.part(unit)
            key = json.dumps(piece)
            if key not in names:
                names[key] = letters(len(names))
                pieces[names[key]] = piece
            of.append(names[key])
        pieces["last"] = self.part("last")
        return {"pieces": pieces, "units": of, "cut": Cuts(self).found()}


class Cuts:
    """What crosses the cuts before units and behind the last one, where a pipeline may cut."""

    def __init__(self, writer):
        self.w, self.r = writer, writer.r
        self.order = ["first"] + writer.chain.order + ["last"]
        self.maker = {s: i for i, o in enumerate(self.r.ops) for s in o["outs"]}        # storage -> the last operator that wrote it

    def read_by(self, part, now):
        """Storages that a part's pass reads and did not make, batch and parameters left out."""
        events = dict(self.w.passes(self.w.chain.parts[part]))[now]
        read = {s for e in events if e[0] == "op" for s in self.r.ops[e[1]]["ins"]}
        return {s for s in read if s in self.w.made and self.w.made[s] != (part, now)}

    def where(self, storage):
        """The module that made it."""
        owner = self.r.ops[self.maker[storage]]["owner"] if storage in self.maker else ()
        return owner and owner[-1] or "the module itself"

    def found(self):
        """[size, dtype] where each unit reads what the one before it hands on, and nothing else; else why not, in words."""
        hands = []
        for before, part in zip(self.order, self.order[1:]):
            if self.w.chain.parts[part]["before"] or self.w.chain.parts[part]["after"]:
                return "operators run between units before %s" % part
            given = self.read_by(part, "forward")
            other = sorted(s for s in given if self.w.made[s][0] != before)
            if other or len(given) > 1:
                s = (other or sorted(given))[-1]
                return "%s reads what %s makes, beside what the unit before it hands on" % (part if part != "last" else "what runs behind the units", self.where(s))
            hands += given
        if len(hands) < len(self.order) - 1:
            return "a unit reads nothing of the one before it"
        for k, part in enumerate(self.order):
            mine = ({hands[k - 1]} if k else set()) | {s for s in self.read_by(part, "backward") if self.w.made[s][0] == part}
            grads = [s for s in self.read_by(part, "backward") - mine if self.w.made[s][1] == "backward"]
            other = sorted(self.read_by(part, "backward") - mine - set(grads))
            if other or len(grads) > 1 or (k + 1 < len(self.order) and len(grads) != 1):
                return "backward of %s reads what other units make" % part
        said = {(self.w.of_storage[s], self.r.ops[self.maker[s]]["dtype"]) for s in hands}
        return list(said.pop()) if len(said) == 1 else "its units hand on tensors of different sizes"


def letters(i):
    return (letters(i // 26 - 1) if i >= 26 else "") + chr(ord("a") + i % 26)
