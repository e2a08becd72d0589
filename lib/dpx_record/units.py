"""Which modules are units, and which part of the step is which unit's."""
from torch import nn

from .recorder import Unrecordable

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.Embedding, nn.BatchNorm2d, nn.GroupNorm)


def has_parameters(m):
    return any(True for _ in m.parameters())


def of_classes(model, names):
    """Modules of these classes that lie in no other such."""
    out = []
    for path, m in model.named_modules():
        if type(m).__name__ in names and path and not any(path.startswith(p + ".") for p in out):
            out.append(path)
    return out


def repeated(model):
    """Children of lists of modules of one class."""
    out = []

    def walk(m, path):
        children = list(m.named_children())
        alike = len({type(k) for _, k in children}) == 1
        if isinstance(m, (nn.ModuleList, nn.Sequential)) and len(children) > 1 and alike and all(has_parameters(k) for _, k in children) \
                and not isinstance(children[0][1], LAYERS + (nn.ModuleList, nn.ModuleDict)):
            out.extend(path + n for n, _ in children)
            return
        for n, k in children:
            walk(k, path + n + ".")
    walk(model, "")
    return out


def children(model, path=""):
    """Of a module that repeats none: its parts with parameters; a list of modules does not run, so its own parts."""
    out = []
    for name, m in model.named_children():
        if has_parameters(m):
            out += children(m, path + name + ".") if isinstance(m, (nn.ModuleList, nn.ModuleDict)) else [path + name]
    return out


def apart(model, path=""):
    """Parts with parameters, none of which is another part's, too: in the place of one that shares some, its own parts, down to single layers."""
    out = []
    for p in children(model.get_submodule(path), path and path + "."):
        if not shares(model, p):
            out.append(p)
        elif not isinstance(model.get_submodule(p), LAYERS):
            out += [q for q in apart(model, p) if not isinstance(model.get_submodule(q), LAYERS)]
    return out


def shares(model, path):
    """Has a module a parameter that another one has, too, which does not lie in it?"""
    inside = {id(p) for p in model.get_submodule(path).parameters()}
    return any(id(p) in inside and not n.startswith(path + ".") for n, p in model.named_parameters(remove_duplicate=False))


def units_of(model, chosen):
    """Paths in the order of registration."""
    if chosen:
        found = of_classes(model, chosen)
        if not found:
            raise Unrecordable("no module is a %s: classes of this module's parts are %s" %
                               (" or ".join(chosen), ", ".join(sorted({type(m).__name__ for _, m in model.named_modules()})[:30])))
        return found
    for found in of_classes(model, set(getattr(model, "_no_split_modules", None) or ())), repeated(model), children(model), apart(model):
        several = [p for p in found if sum(type(model.get_submodule(q)) is type(model.get_submodule(p)) for q in found) > 1]
        alone = [p for p in (several or found) if not shares(model, p)]     # fully_shard() wants a shared parameter in one unit
        if alone:
            return alone
    raise Unrecordable("no unit was found: name a class with --unit")


def unit_of(owner, units):
    for path in owner:
        if path in units:
            return path
    for path in owner:              # a checkpoint runs a block's forward() again, not the block
        while "." in path:
            path = path.rpartition(".")[0]
            if path in units:
                return path
    return ""


def runs(step):
    """[unit, pass, events] in the order of the step: what runs without a break for one unit, or for none ("")."""
    units, out = set(step.units), []
    unit, inside, now = "", None, "forward"
    for e in step.r.events:
        if e[0] == "phase":
            now, unit, inside = e[1], "", None
        elif now == "forward" and e[0] == "enter" and e[1] in units and inside is None:
            unit = inside = e[1]
        elif now == "forward" and e[0] == "enter" and inside is None and unit_of((e[1],), units):
            raise Unrecordable("%s runs outside of %s, the unit that it lies in, whose parameters FSDP then has not gathered: give other classes with --unit, or run it "
                               "within the unit's forward" % (e[1], unit_of((e[1],), units)))
        elif e[0] == "op" and now in ("forward", "backward"):
            unit = unit_of(step.r.ops[e[1]]["owner"], units) if now == "backward" else inside or ""
        elif e[0] == "hook" and now == "backward":
            unit = unit_of((e[2],), units)
        if not out or out[-1][:2] != [unit, now]:
            out.append([unit, now, []])
        out[-1][2].append(e)
        if now == "forward" and e[0] == "exit" and e[1] == inside:
            unit, inside = "", None
    return out


def has_ops(events):
    return any(e[0] == "op" for e in events)


class Chain:
    """The step as first, units in their order, last.  parts[name] = {"forward": events, "backward": events, "before": events of none that run
    in forward before the unit is entered, "after": those in backward behind it}."""

    def __init__(self, step):
        self.notes = []
        all_runs = runs(step)
        self.order = []
        for unit, now, _ in all_runs:
            if unit and now == "forward":
                if unit in self.order:
                    raise Unrecordable("%s runs more than once in a forward: give the class of a module around it with --unit" % unit)
                self.order.append(unit)
        if not self.order:
            raise Unrecordable("no unit runs in forward (%s do not): name a class with --unit; parameters outside of modules that run, as in an "
                               "nn.ParameterList, are in no unit" % ", ".join(step.units[:3]))
        unused = [u for u in step.units if u not in self.order]
        if unused:
            self.notes.append("%d units do not run (%s): their parameters get no gradient" % (len(unused), unused[0]))
        self.parts = {name: dict(forward=[], backward=[], before=[], after=[]) for name in ["first"] + self.order + ["last"]}
        self.forward([r for r in all_runs if r[1] == "forward"])
        self.backward([r for r in all_runs if r[1] == "backward"])
        self.end = [e for unit, now, events in all_runs if now in ("end", "over") for e in events]

    def forward(self, all_runs):
        at, waiting = "first", []
        for unit, _, events in all_runs:
            if unit:
                self.parts[unit]["before"] += waiting
                self.parts[unit]["forward"] += events
                at, waiting = unit, []
            elif at == "first" or waiting or has_ops(events):
                waiting += events
            else:
                self.parts[at]["forward"] += events     # locals of a caller that go
            if at == "first":
                self.parts["first"]["forward"] += waiting
                waiting = []
        self.parts["last"]["forward"] = waiting

    def backward(self, all_runs):
        """A unit's backward ends where the next unit's begins; what others still do then is that one's."""
        left, at, waiting, self.without = list(reversed(self.order)), "last", [], set()
        for unit, _, events in all_runs:
            if unit in left:
                skipped = left[:left.index(unit)]
                for u in skipped:                       # without a gradient: it has no backward
                    left.remove(u)
                    self.notes.append("%s has no backward" % u)
                self.without |= set(skipped)
                self.parts[at]["after" if at != "last" else "backward"] += waiting
                left.remove(unit)
                at, waiting = unit, []
                self.parts[unit]["backward"] += events
            elif unit:
                if unit != at and has_ops(events):
                    self.notes.append("%s goes on in the backward of %s" % (unit, at))
                self.parts[at]["backward"] += waiting + events
                waiting = []
            elif has_ops(events) or waiting:
                waiting += events
            else:
                self.parts[at]["backward"] += events
        self.without |= set(left)
        self.parts["first"]["backward"] = waiting
