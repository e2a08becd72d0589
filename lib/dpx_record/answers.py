"""dpx.answers: what dpx's functions return: the documents, as dicts with a few more things.

    answer = dpx.search("llama-3.1-8b", "8xh100", seq="8k", global_batch=64)
    answer.best().step_s                seconds; NothingFits is raised where nothing fits
    answer.to_frame()                   a pandas DataFrame, a row for each plan or point
    answer                              in a notebook: a table; memory by category, over the step, a sweep's speeds drawn
    answer.plot()                       memory by category or a sweep's speeds by matplotlib
"""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping, Optional

__all__ = ["Answer", "Plan", "NothingFits"]

#: Memory by category, in the colours of the page: key of "memory", label, colour.
_PARTS = (("params_bytes", "parameters", "#2a78d6"), ("grads_bytes", "gradients", "#1baf7a"), ("optimizer_bytes", "optimizer", "#eda100"),
          ("activations_bytes", "activations", "#e34948"), ("temporaries_bytes", "temporaries", "#4a3aa7"), ("buffers_bytes", "buffers", "#8a8a8a"))
_GIB = 1 << 30


class NothingFits(Exception):
    """No plan of the answer fits.  `nearest` is the plan that lacks least, as the answer has it; None where there is none."""

    def __init__(self, why: str, nearest: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(why)
        self.nearest = nearest


@dataclass(frozen=True)
class Plan:
    """The figures of one plan or point: bytes and seconds; None is a figure that there is not."""

    label: str
    fits: Optional[bool]
    gpus: Optional[int] = None
    gpu: Optional[str] = None                               #: their type
    step_s: Optional[float] = None
    low_s: Optional[float] = None
    high_s: Optional[float] = None
    tokens_per_s: Optional[float] = None
    mfu: Optional[float] = None
    allocated_bytes: Optional[int] = None
    taken_bytes: Optional[int] = None
    usable_bytes: Optional[int] = None
    days: Optional[float] = None
    cost: Optional[float] = None
    at: Dict[str, Any] = field(default_factory=dict)        #: of a sweep: the point
    plan: Optional[Dict[str, Any]] = None                   #: plan.json
    document: Dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(doc: Mapping[str, Any]) -> "Plan":
        """From a plan of a search, an eval, a row of fit, or a point of a sweep."""
        memory, time, training = doc.get("memory") or {}, doc.get("time") or doc, doc.get("training") or doc
        cluster = (doc.get("plan") or {}).get("cluster")
        cluster = cluster if isinstance(cluster, Mapping) else {}
        gpu = doc.get("gpu", cluster.get("gpu"))
        return Plan(label=doc.get("label") or "", fits=doc.get("fits", doc.get("gpus") is not None if "gpus" in doc else None),
                    gpus=doc.get("gpus", cluster.get("world_size")), gpu=gpu if isinstance(gpu, str) else None,
                    step_s=time.get("step_s"), low_s=time.get("low_s"), high_s=time.get("high_s"),
                    tokens_per_s=time.get("tokens_per_s"), mfu=time.get("mfu"), allocated_bytes=memory.get("allocated_peak_bytes", doc.get("memory_bytes")),
                    taken_bytes=memory.get("taken_bytes", doc.get("taken_bytes")),
                    usable_bytes=memory.get("available_bytes", memory.get("usable_bytes", doc.get("available_bytes"))),
                    days=training.get("days"), cost=training.get("cost"), at=dict(doc.get("at") or {}), plan=doc.get("plan"), document=dict(doc))


class Answer(Dict[str, Any]):
    """A document of dpx.  All that a dict has; `fits` is its first key where it has one."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        first = {"fits": document["fits"]} if "fits" in document else {}
        super().__init__({**first, **document})

    @property
    def plans(self) -> List[Plan]:
        """The plans of a search, the rows of a fit, the points of a sweep, or the one plan of an eval."""
        rows = self.get("plans", self.get("points", self.get("gpus") if isinstance(self.get("gpus"), list) else None))
        return [Plan.of(row) for row in ([self] if rows is None else rows)]

    def best(self) -> Plan:
        """The first plan that fits: of a search the one that it recommends.  NothingFits where none does."""
        for plan in self.plans:
            if plan.fits:
                return plan
        nearest = self.get("nearest_that_does_not_fit")
        why = (nearest or {}).get("why_not") or self.get("why_not") or self.get("why") or "nothing fits"
        raise NothingFits(str(why), nearest)

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each plan; of a sweep the axes are its first columns."""
        import pandas

        rows = []
        for plan in self.plans:
            figures = {k: v for k, v in asdict(plan).items() if k not in ("at", "plan", "document")}
            rows.append({**plan.at, **figures, **plan.at})      # the axes first, and as they were asked
        return pandas.DataFrame(rows)

    def _memory(self) -> List[tuple]:
        """(label, [(what, bytes, colour)], usable bytes) of each plan with memory by category."""
        out = []
        for plan in self.plans[:10]:
            memory = plan.document.get("memory") or {}
            parts = [(what, memory[key], colour) for key, what, colour in _PARTS if memory.get(key)]
            if parts:
                out.append((plan.label, parts, plan.usable_bytes))
        return out

    def _curves(self) -> List[tuple]:
        """(what, values, limit, a name for each): memory over the step of an explain, tokens/s of a sweep's points."""
        curve = self.get("memory_curve_bytes") or []
        if curve:
            return [("allocated over the step, GiB", [size / _GIB for size in curve], (self.plans[0].usable_bytes or 0) / _GIB, [""] * len(curve))]
        points = [(plan.tokens_per_s, _at(plan)) for plan in self.plans if plan.at and plan.tokens_per_s is not None]
        return [("tokens/s", [speed for speed, _ in points], 0, [name for _, name in points])] if len(points) > 1 else []

    def _table(self) -> List[List[str]]:
        """Head and rows: of plans, points and GPUs, else of the answer's own rows (limits, phases), else its figures one below the other."""
        if any(isinstance(self.get(key), list) for key in ("plans", "points", "gpus")) or "memory" in self:
            return [["plan", "fits", "memory", "step", "tokens/s"]] + [
                [_at(plan) or plan.label, {True: "yes", False: "no", None: ""}[plan.fits], "" if plan.taken_bytes is None else f"{plan.taken_bytes / _GIB:.2f} GiB",
                 "" if plan.step_s is None else f"{plan.step_s:.4g} s", "" if plan.tokens_per_s is None else f"{plan.tokens_per_s:.4g}"] for plan in self.plans]
        rows = self.get("limits") or self.get("phases")
        if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows):
            keys = [key for key in rows[0] if not any(isinstance(row.get(key), (list, Mapping)) for row in rows)]
            return [[_word(key) for key in keys]] + [[_figure(key, row.get(key)) for key in keys] for row in rows]
        return [["figure", "value"]] + [[_word(key), _figure(key, value)] for key, value in _figures(self)]

    def _repr_html_(self) -> str:
        def row(cells: List[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        head, *rows = self._table()
        table = f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"
        return table + "".join(_bar(*of) for of in self._memory()[:3]) + "".join(_curve(*of) for of in self._curves())

    def plot(self, axes: Any = None) -> Any:
        """Memory by category of each plan, of a sweep tokens/s of each point, by matplotlib; returns the axes."""
        from matplotlib import pyplot

        axes = axes or pyplot.gca()
        if not self._memory():
            for what, values, _, names in self._curves():
                axes.plot(names, values, marker="o")
                axes.set_ylabel(what)
                axes.set_ylim(bottom=0)
            return axes
        for row, (label, parts, usable) in enumerate(self._memory()):
            left = 0.0
            for what, size, colour in parts:
                axes.barh(row, size / _GIB, left=left, color=colour, label=what if row == 0 else None)
                left += size / _GIB
            if usable:
                axes.plot([usable / _GIB] * 2, [row - 0.4, row + 0.4], color="black")
        axes.set_xlabel("GiB on a GPU")
        axes.legend()
        return axes


def _at(plan: Plan) -> str:
    """What tells a row from the others beside its plan: the point of a sweep, the GPUs of a fit."""
    if plan.at:
        return ", ".join(f"{key} {value}" for key, value in plan.at.items())
    gpu = plan.document.get("gpu")
    return "" if not isinstance(gpu, str) else gpu if plan.gpus is None else f"{plan.gpus} x {gpu}: {plan.label}"


def _word(key: str) -> str:
    return key.replace("_bytes", "").replace("_s", "", 1 if key.endswith("_s") else 0).replace("_", " ")


def _figure(key: str, value: Any) -> str:
    """A figure with the unit that its key names."""
    if value is None or isinstance(value, (bool, str)):
        return {None: "", True: "yes", False: "no"}.get(value, str(value))
    return f"{value / _GIB:.2f} GiB" if key.endswith("_bytes") else f"{value:.4g} s" if key.endswith("_s") else f"{value:.6g}"


def _figures(doc: Mapping[str, Any], of: str = "") -> List[tuple]:
    """(key, value) of what is a figure or a text, and of the objects one below."""
    out = []
    for key, value in doc.items():
        if isinstance(value, Mapping) and not of and key not in ("model", "cluster", "plan", "frameworks"):
            out += _figures(value, f"{key} ")
        elif not isinstance(value, (list, Mapping)) and value is not None and key != "dpx":
            out.append((of + key, value))
    return out


def _curve(what: str, values: List[float], limit: float, names: List[str]) -> str:
    """Values over the step or the points, from 0, in 600 by 100 pixels; a line where the memory ends."""
    top = max(max(values), limit) or 1
    places = [(600 * i / max(len(values) - 1, 1), 112 - 96 * value / top) for i, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#2a78d6"><title>{html.escape(name)}: {value:.4g}</title></circle>'
                   for (x, y), value, name in zip(places, values, names) if name)
    line = f'<line x1="0" x2="600" y1="{112 - 96 * limit / top:.1f}" y2="{112 - 96 * limit / top:.1f}" stroke="currentColor"/>' if limit else ""
    return (f'<svg width="610" height="116" role="img"><text x="0" y="11" font-size="11" fill="currentColor">{html.escape(what)}, at most '
            f'{max(values):.4g}</text><polyline points="{path}" fill="none" stroke="#2a78d6" stroke-width="2"/>{dots}{line}</svg>')


def _bar(label: str, parts: List[tuple], usable: Optional[int]) -> str:
    """One plan's memory as a bar of 600 by 40 pixels; a line where the memory ends."""
    whole = max(sum(size for _, size, _ in parts), usable or 0)
    x, drawn = 0.0, []
    for what, size, colour in parts:
        width = 600 * size / whole
        drawn.append(f'<rect x="{x:.1f}" y="16" width="{width:.1f}" height="20" fill="{colour}"><title>{html.escape(what)}: {size / _GIB:.2f} GiB</title></rect>')
        x += width
    if usable:
        drawn.append(f'<line x1="{600 * usable / whole:.1f}" x2="{600 * usable / whole:.1f}" y1="12" y2="40" stroke="currentColor"/>')
    return (f'<svg width="600" height="42" role="img"><text x="0" y="11" font-size="11" fill="currentColor">{html.escape(label)}</text>{"".join(drawn)}</svg>')
