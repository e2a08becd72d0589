#!/usr/bin/env python3
"""Bytes that a later optimizer step takes for the moment: storages that live at its fullest, each a multiple of 512 bytes as on a GPU.

    python record_steps.py -o steps.jsonl

On the CPU, where torch.optim runs the operations of its default form on a GPU, which for Adafactor is the loop over parameters.
Each line: {"optimizer", "shapes": of the parameters in their order, "bytes"}.
"""
import argparse
import json
import weakref

import pytorch_optimizer
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

LISTS = [
    [[300, 64], [64], [64, 64], [192, 64], [192], [64, 192], [64], [300, 64]],
    [[64, 64]],
    [[4096]],
    [[256], [512, 128], [128, 512], [256]],
    [[8192], [32, 16], [8192], [9000]],
    [[1000, 48], [48], [48, 48], [96, 48], [48, 96], [48], [48, 1000]],
]


class MuonAndAdamW:
    """Matrices by torch.optim.Muon, the rest by AdamW in the form that is a GPU's default; every matrix is taken as a hidden layer's."""

    def __init__(self, p):
        rest = [x for x in p if x.ndim != 2]
        self.each = [torch.optim.Muon([x for x in p if x.ndim == 2])] if len(rest) < len(p) else []
        self.each += [torch.optim.AdamW(rest, foreach=True)] if rest else []

    def step(self):
        for optimizer in self.each:
            optimizer.step()

    @property
    def state(self):
        return {p: s for optimizer in self.each for p, s in optimizer.state.items()}


OPTIMIZERS = {"adafactor": lambda p: torch.optim.Adafactor(p), "muon": MuonAndAdamW, "soap": lambda p: pytorch_optimizer.SOAP(p)}
STEPS_BEFORE = {"soap": 10}             # its 11th makes QR decompositions,
DEVICE = {"soap": "meta"}               # of which shapes are enough
WIDE = [[[10001, 8], [8], [8, 16]], [[16, 10001], [10001]]]     # sides that SOAP leaves alone


class Live(TorchDispatchMode):
    def __init__(self, known):
        super().__init__()
        self.seen = set()
        self.now = self.most = 0
        for tensor in known:
            self.add(tensor)
        self.now = self.most = 0        # one of these that is replaced leaves room

    def add(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, (storage.nbytes() + 511) // 512 * 512
        if key in self.seen:
            return
        self.seen.add(key)
        self.now += size
        self.most = max(self.most, self.now)

        def gone():
            self.seen.discard(key)
            self.now -= size
        weakref.finalize(storage, gone)

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        out = f(*args, **(kwargs or {}))
        for t in tree_iter(out):
            if isinstance(t, torch.Tensor):
                self.add(t)
        return out


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-o", default="steps.jsonl")
    a.add_argument("--only", help="of one optimizer, behind what the file has")
    a = a.parse_args()
    with open(a.o, "a" if a.only else "w") as out:
        if not a.only:
            print(json.dumps({"torch": torch.__version__}), file=out)
        for name, make in OPTIMIZERS.items():
            if a.only and name != a.only:
                continue
            for shapes in LISTS + (WIDE if name == "soap" else []):
                torch.manual_seed(0)
                ps = [torch.nn.Parameter(torch.randn(*s, device=DEVICE.get(name, "cpu"))) for s in shapes]
                optimizer = make(ps)
                for p in ps:
                    p.grad = torch.randn_like(p)
                for _ in range(STEPS_BEFORE.get(name, 1)):
                    optimizer.step()
                states = [t for s in optimizer.state.values() for t in tree_iter(s) if torch.is_tensor(t)]
                live = Live(ps + [p.grad for p in ps] + states)
                del states
                with live:
                    optimizer.step()
                print(json.dumps({"optimizer": name, "shapes": shapes, "bytes": live.most}), file=out)


main()
