"""dpx.answers: what dpx's functions return: the documents, as dicts with a few more things.

    answer = dpx.search("llama-3.1-8b", "8xh100", seq="8k", global_batch=64)
    answer.best().step_s                seconds; NothingFits is raised where nothing fits
    answer.to_frame()                   a pandas DataFrame, a row for each plan or point
    answer                              in a notebook: a table, with memory by category drawn
    answer.plot()                       the same by matplotlib
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
        world = cluster.get("world_size") if isinstance(cluster, Mapping) else None
        return Plan(label=doc.get("label") or "", fits=doc.get("fits", doc.get("gpus") is not None if "gpus" in doc else None),
                    gpus=doc.get("gpus", world), step_s=time.get("step_s"), low_s=time.get("low_s"), high_s=time.get("high_s"),
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
            rows.append({**plan.at, **figures})
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

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in (
                ", ".join(f"{k} {v}" for k, v in plan.at.items()) or plan.label, {True: "yes", False: "no", None: ""}[plan.fits],
                "" if plan.taken_bytes is None else f"{plan.taken_bytes / _GIB:.2f} GiB", "" if plan.step_s is None else f"{plan.step_s:.4g} s",
                "" if plan.tokens_per_s is None else f"{plan.tokens_per_s:.4g}")) + "</tr>" for plan in self.plans)
        table = f"<table><tr><th>plan</th><th>fits</th><th>memory</th><th>step</th><th>tokens/s</th></tr>{rows}</table>"
        return table + "".join(_bar(*of) for of in self._memory()[:3])

    def plot(self, axes: Any = None) -> Any:
        """Memory by category of each plan, by matplotlib; returns the axes."""
        from matplotlib import pyplot

        axes = axes or pyplot.gca()
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
