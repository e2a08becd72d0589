"""dpx in Python: what a distributed training needs and takes, and which plan is best.

    import dpx

    answer = dpx.search("llama-3.1-8b", "2x8xh100", seq="8k", global_batch=128)
    best = answer["plans"][0]
    print(best["label"], best["time"]["step_s"], best["memory"]["peak_bytes"])

    longer = dpx.evaluate(best["plan"], set={"seq": "16k"})
    config = dpx.export(best["plan"], "torchtitan")

Answers are the documents that dpxplan prints with --json, as dicts.  What is wrong with a question is a DpxError whose
text is one line: what, where, and what would be right.  That nothing fits is an answer, not an error: `fits` is False, and
`answer.best()` raises NothingFits.  Answers are dicts with to_frame(), plot() and pictures in notebooks (dpx.answers).

One file, the standard library and libdpx.so.0, which is looked for in $DPX_LIBRARY, beside this file (dpx_native, as the wheel
has it), in the build folder, where `make install` put it, and where the system looks.  Calls may come from any thread; they run without the
interpreter's lock.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional, Union

__all__ = ["Answer", "DpxError", "Cancelled", "NothingFits", "Plan", "fit", "search", "evaluate", "explain", "sweep", "bill", "phases", "limits", "known",
           "import_plan", "export", "version"]

#: A document, or the name of a file (of a model or cluster: also a name that dpx knows).
Named = Union[Mapping[str, Any], str, "os.PathLike[str]"]
#: Called with the steps done and in all; False ends the search.
Progress = Callable[[int, int], Optional[bool]]

_DONE, _FAILED, _MISUSE, _NO, _CANCELLED = range(5)
_INSTALLED = None       # make install writes the library's path here
#: dpx.record and dpx.answers: in the folder dpx_record beside this file; beside the package dpx, which the wheel has.
_HERE = Path(__file__).resolve().parent
__path__ = list(globals().get("__path__", [])) + [str(at / "dpx_record") for at in (_HERE, _HERE.parent) if (at / "dpx_record").is_dir()]

from dpx.answers import Answer, NothingFits, Plan       # noqa: E402 - found by the path above

Document = Answer


class DpxError(Exception):
    """A question that has no answer.  The text is one line; `status` is what dpxplan would exit with."""

    def __init__(self, message: str, status: int = _MISUSE) -> None:
        super().__init__(message)
        self.status = status


class Cancelled(DpxError):
    """`progress` returned False."""


_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong)


class _Watch(ctypes.Structure):
    _fields_ = [("progress", _PROGRESS), ("data", ctypes.c_void_p)]


def _load() -> ctypes.CDLL:
    """The library, its functions with their types."""
    given = os.environ.get("DPX_LIBRARY")
    here = Path(__file__).resolve().parent
    beside = [path / "libdpx.so.0" for path in (here / "dpx_native", here.parent / "dpx_native", here.parent / "build")
              if (path / "libdpx.so.0").exists()]
    name = given or (str(beside[0]) if beside else _INSTALLED or "libdpx.so.0")
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(f"{name}: {error}; DPX_LIBRARY=/path/to/libdpx.so.0 says where it is") from None
    answer = ctypes.POINTER(ctypes.c_void_p)
    for function in (library.dpx_search, library.dpx_sweep):
        function.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Watch), answer]
    for function in (library.dpx_fit, library.dpx_eval, library.dpx_explain, library.dpx_bill, library.dpx_phases, library.dpx_limits, library.dpx_list, library.dpx_import,
                     library.dpx_export):
        function.argtypes = [ctypes.c_char_p, answer]
    library.dpx_free.argtypes = [ctypes.c_void_p]
    library.dpx_free.restype = None
    library.dpx_version.restype = ctypes.c_char_p
    return library


class _Library:
    """The library once something is asked of it: dpx.record needs none."""

    loaded: Optional[ctypes.CDLL] = None

    def __getattr__(self, name: str) -> Any:
        if _Library.loaded is None:
            _Library.loaded = _load()
        return getattr(_Library.loaded, name)


_library = _Library()


def _plain(value: Any) -> Any:
    """What json has no word for: paths, and the numbers of numpy and torch."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, (Mapping, Iterable)):
        return dict(value) if isinstance(value, Mapping) else list(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _call(function: Any, request: Mapping[str, Any], *watch: Any) -> Document:
    """One call of the library: the answer as a document, or its line as an error."""
    given = {key: value for key, value in request.items() if value is not None}
    try:
        text = json.dumps(given, default=_plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DpxError(f"the request is no JSON: {error}") from None
    answer = ctypes.c_void_p()
    status = function(text.encode(), *watch, ctypes.byref(answer))
    try:
        said = ctypes.string_at(answer.value or 0).decode("utf-8", "replace")
    finally:
        _library.dpx_free(answer)
    if status in (_DONE, _NO):
        return Answer(json.loads(said))
    raise (Cancelled if status == _CANCELLED else DpxError)(said, status)


def fit(model: Named, *gpus: Union[str, Iterable[str]], **options: Any) -> Document:
    """The least number of each GPU that holds a model (`gpus`), with the plan that search recommends there.

    `model` is a built-in name, a Hugging Face id, a config.json, its folder, a training recipe, or one of these as a dict; `gpus`
    types such as "h100", without one eight that people rent.  `options` are those of `dpxplan fit`: train, seq, batch, tokens,
    samples, epochs, price, lora, framework, offload, db.  Of a row `gpus` is None where no number of them holds it.
    """
    named = [text for given in (*gpus, options.pop("gpu", None) or []) for text in (given if isinstance(given, (list, tuple)) else [given])]
    return _call(_library.dpx_fit, dict(options, model=model, gpu=named or None))


def search(model: Named, cluster: Named, seq: Union[int, str], global_batch: Union[int, str], *,
           progress: Optional[Progress] = None, **options: Any) -> Document:
    """The fastest plan that fits, and those next to it.

    `model` is a built-in name, a Hugging Face id of one, a config.json, its folder, or the config as a dict; `cluster`
    "4x8xh100", a file, or a dict; `seq` tokens per sample; `global_batch` samples per optimizer step.  `options` are
    those of `dpxplan search` with _ for -: framework, export_to, strategy, dialect, kernels, micro_batch, precision,
    recompute, memory, host_memory, headroom, no_offload, grid, no_grid, threads, db, tokens, price, days, watts, top.

    The answer has `plans`, the best first, `why`, `not_looked_at`, `pareto`, and `nearest_that_does_not_fit`.  `progress` is called in
    this thread about twenty times a second, and at the end; it ends the search by False (Cancelled is raised) or by an
    exception (which is raised).  Ctrl-C ends it, too.
    """
    request = dict(options, model=model, cluster=cluster, seq=seq, global_batch=global_batch)
    return _Watched(_library.dpx_search, request).run(progress)


class _Watched:
    """A call in a thread of its own, so that the caller's, which alone has signals, can wait for both."""

    def __init__(self, function: Any, request: Mapping[str, Any]) -> None:
        self._function = function
        self._request = request
        self._at = (0, 0)
        self._stop = False
        self._done = threading.Event()
        self._answer: Optional[Document] = None
        self._error: Optional[BaseException] = None

    def _watch(self, _data: Any, done: int, total: int) -> int:
        self._at = (done, total)
        return int(self._stop)

    def _find(self) -> None:
        try:
            watch = _Watch(_PROGRESS(self._watch), None)
            self._answer = _call(self._function, self._request, ctypes.byref(watch))
        except BaseException as error:
            self._error = error
        self._done.set()

    def run(self, progress: Optional[Progress]) -> Document:
        thread = threading.Thread(target=self._find, daemon=True)
        thread.start()
        try:
            while not self._done.wait(0.05):
                self._stop |= progress is not None and progress(*self._at) is False
            if progress is not None and not self._stop and self._error is None:
                progress(max(self._at[1], 1), max(self._at[1], 1))      # 100 %
        finally:
            self._stop = True
            thread.join()
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer


def evaluate(plan: Named, set: Optional[Mapping[str, Any]] = None, **options: Any) -> Document:
    """Every figure of one plan: `fits`, `memory`, `comm`, `time`.

    `plan` is a plan.json or the document itself, such as `answer["plans"][0]["plan"]`; `set` changes keys of it first,
    {"nodes": 4, "fsdp.reshard_after_forward": False}.  `options` are those of `dpxplan eval`: tokens, price, days, watts,
    host_memory, jitter, alloc_conf, db.
    """
    return _call(_library.dpx_eval, dict(options, plan=plan, set=set))


def explain(plan: Named, other: Optional[Named] = None, *, set: Optional[Mapping[str, Any]] = None,
            oom: Optional[Named] = None, oom_text: Optional[str] = None, schedule: bool = False,
            detail: bool = False, rank: Optional[int] = None, stage: Optional[int] = None, db: Optional[str] = None) -> Document:
    """Why a plan holds what it holds (`peaks`, `memory_curve_bytes`, `advice`); `set` changes keys of it first.

    With `other`: what differs between two plans (`options`) and what each option makes of it (`changes`).  With
    `oom_text`, str() of a torch.OutOfMemoryError, or `oom`, a file with it or torch.cuda.memory_stats() as a dict: what
    it was, and what would make it fit (`text`).  `schedule` adds the entries of the schedules:
    of `rank`, or of a pipeline's `stage`, instead of the fullest rank's.  `detail` adds what pictures need: the `step` on
    its streams with memory by category, and the plan behind each advice.
    """
    return _call(_library.dpx_explain, dict(plan=plan, other=other, set=set, oom=oom, oom_text=oom_text,
                                            schedule=schedule, detail=detail, rank=rank, stage=stage,
                                            db=db))


def sweep(over: Mapping[str, Any], plan: Optional[Named] = None, *, set: Optional[Mapping[str, Any]] = None,
          progress: Optional[Progress] = None, **options: Any) -> Document:
    """One plan, or one search, at many points: `points`, the last axis fastest.

    `over` has the axes, {"nodes": [1, 2, 4], "seq": "4k..32k*2"}.  With `plan` each point is that plan, with `set` changed
    first; without it each point is searched, and `options` are those of search().  A point has `at`, `label`, `fits`,
    `step_s`, `low_s`, `high_s`, `tokens_per_s`, `efficiency`, `memory_bytes`, `days` and `cost`; what there is not is None.
    `progress` as in search().
    """
    return _Watched(_library.dpx_sweep, dict(options, over=over, plan=plan, set=set)).run(progress)


def bill(plan: Named, *, set: Optional[Mapping[str, Any]] = None, **options: Any) -> Document:
    """A whole training with its checkpoints and interruptions: when it ends (`run`), what it costs (`money`).

    `options` are those of `dpxplan bill`: tokens, or samples and epochs; mtbf and storage, without which seconds are unknown (None); every,
    asynchronous checkpoints by **{"async": True}, neighbour, memory_lost, spares, repair, shrink, recover, worlds, price, start.
    """
    return _call(_library.dpx_bill, dict(options, plan=plan, set=set))


def phases(file: Named, *, cluster: Optional[Named] = None, **options: Any) -> Document:
    """Post-training, models that take turns on the same GPUs: memory and time of each of `phases`, the `largest` moment, `changes` that make it fit.

    `file` is a phase plan ("dpx_phases": 1), or a config of TRL's GRPO or DPO or of verl, which needs a cluster; `response` "700,2048" says how long
    responses are then.
    """
    return _call(_library.dpx_phases, dict(options, file=file, cluster=cluster))


def limits(cluster: Optional[Named] = None, model: Optional[Named] = None, seq: Union[int, str, None] = None,
           **options: Any) -> Document:
    """Per strategy (`limits`): the largest model, the largest micro-batch, the fewest GPUs.

    `options` are those of `dpxplan limits`: memory, host_memory, world, states_only, dialect, kernels, precision, recompute, offload,
    tokens, price, days, watts.
    """
    return _call(_library.dpx_limits, dict(options, cluster=cluster, model=model, seq=seq))


def known(what: str) -> list:
    """What dpx knows by name: "models", "clusters", "gpus", "strategies", "parallel", "keys" or "refused", a dict each."""
    return _call(_library.dpx_list, {"what": what})[what]


def import_plan(model: Named, cluster: Named, seq: Union[int, str], **options: Any) -> Document:
    """A plan from a config: give one of `ds_config`, `accelerate`, `torchtitan` and `recipe`, a file or a dict.

    `options` are those of `dpxplan import`: micro_batch, accumulation, global_batch, recompute, precision.  The answer
    has `plan`, `label`, and in `notes` what was filled in.
    """
    return _call(_library.dpx_import, dict(options, model=model, cluster=cluster, seq=seq))


def export(plan: Named, to: str) -> str:
    """A plan as the config of "deepspeed", "accelerate", "torchtitan" or "fsdp" (Python)."""
    return _call(_library.dpx_export, dict(plan=plan, to=to))["text"]


def version() -> str:
    """The library's version."""
    return _library.dpx_version().decode()
