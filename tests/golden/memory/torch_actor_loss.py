"""The bytes that verl's own head and losses hold, as their Python makes and drops tensors on the CPU: those of chunks by PyTorch
(verl/utils/experimental/torch_functional.py) and of Triton's kernels (verl/utils/kernel/), which do not run.

    python -O tests/golden/memory/torch_actor_loss.py VERL > tests/golden/memory/torch_actor_loss.jsonl

VERL is a checkout of verl's repository.  -O leaves out what the second asserts, that tensors are on a GPU."""
import json
import subprocess
import sys
import types
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = ((768, 128, 20000), (512, 256, 1024), (1280, 128, 9504), (256, 128, 19008))


class Live(TorchDispatchMode):
    """Bytes of storages made since it was entered, and their peak since the last look."""

    def __init__(self):
        super().__init__()
        self.known, self.live, self.peak = set(), 0, 0

    def gone(self, key, size):
        self.known.discard(key)
        self.live -= size

    def see(self, x):
        if not isinstance(x, torch.Tensor):
            return
        s = x.untyped_storage()
        if s._cdata in self.known:
            return
        self.known.add(s._cdata)
        self.live += s.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(s, self.gone, s._cdata, s.nbytes())

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        torch.utils._pytree.tree_map(self.see, out)
        return out


class NoKernel:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: None


def stub(name, **of):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(of)


def functions(where):
    sys.path.insert(0, where)
    stub("verl", __path__=[where + "/verl"])
    stub("verl.utils", __path__=[where + "/verl/utils"])
    stub("verl.utils.device", get_device_capability=lambda: (None, None), get_device_name=lambda: "cpu",
         get_torch_device=lambda: torch.cpu, is_cuda_available=False)
    from verl.utils.experimental.torch_functional import FusedLinearForPPOFunction
    stub("verl.utils.kernel", __path__=[where + "/verl/utils/kernel"])
    import verl.utils.kernel.kernels as kernels
    from verl.utils.kernel.linear_cross_entropy import LinearCrossEntropy
    for name in vars(kernels):
        if name.startswith("efficient_entropy") and name not in ("efficient_entropy_forward", "efficient_entropy_backward"):
            setattr(kernels, name, NoKernel())
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *a: None
    return {"actor-chunks": lambda x, w, y: FusedLinearForPPOFunction.apply(x, w, y, 1.0, 512),
            "actor-triton": lambda x, w, y: LinearCrossEntropy.apply(x, w, y, 1.0, "none")}


def record(loss, of, rows, hidden, vocab, trains):
    x = torch.randn(rows, hidden, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(vocab, hidden, dtype=torch.bfloat16, requires_grad=trains)
    labels = torch.randint(vocab, (rows,))
    with Live() as live:
        for known in (x, w, labels):
            live.known.add(known.untyped_storage()._cdata)
        logp, entropy = of(x, w, labels)
        forward, kept = live.peak, live.live
        gradient = torch.ones_like(logp)
        live.peak = live.live
        before = live.live
        torch.autograd.backward([logp], [gradient])
        backward = live.peak - before
    return {"loss": loss, "rows": rows, "hidden": hidden, "vocab": vocab, "trains": trains, "forward": forward, "kept": kept, "backward": backward}


if __name__ == "__main__":
    commit = subprocess.run(["git", "-C", sys.argv[1], "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(json.dumps({"torch": torch.__version__, "verl": commit or sys.argv[2]}))
    for loss, of in functions(sys.argv[1]).items():
        for size in SIZES:
            for trains in (True, False):
                print(json.dumps(record(loss, of, *size, trains)))
