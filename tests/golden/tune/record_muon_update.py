#!/usr/bin/env python3
"""Records what DeepSpeed's muon_update() of one gradient holds at most, its result included, and what its products take.

    python record_muon_update.py -o muon_update.jsonl

On the CPU, without torch.compile: every storage that is made, rounded up to 512 bytes as PyTorch's allocator for GPUs does, while it is
alive; operations of matrix products as PyTorch's own counter has them.
"""
import argparse
import json
import os
import weakref

os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from deepspeed.runtime.zero.muon.original_muon import muon_update
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import FlopCounterMode

deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
SHAPES = [[64, 64], [64, 192], [192, 64], [48, 768], [768, 48], [100, 101], [33, 2000], [256, 256]]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Storages(TorchDispatchMode):
    def __init__(self, there):
        super().__init__()
        self.there, self.now, self.most = {t.untyped_storage()._cdata for t in there}, {}, 0

    def gone(self, key):
        self.now.pop(key, None)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tree_flatten(out)[0]:
            if not isinstance(t, torch.Tensor):
                continue
            storage = t.untyped_storage()
            key = storage._cdata
            if key in self.there or key in self.now or storage.nbytes() == 0:
                continue
            self.now[key] = -(-storage.nbytes() // 512) * 512
            weakref.finalize(storage, self.gone, key)
        self.most = max(self.most, sum(self.now.values()))
        return out


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-o", default="muon_update.jsonl")
    a = a.parse_args()
    with open(a.o, "w") as out:
        print(json.dumps({"deepspeed": deepspeed.__version__, "torch": torch.__version__}), file=out)
        for name, dtype in DTYPES.items():
            for shape in SHAPES:
                grad, momentum = torch.randn(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
                with torch.no_grad(), Storages([grad, momentum]) as s:
                    muon_update(grad, momentum)
                with torch.no_grad(), FlopCounterMode(display=False) as counter:
                    muon_update(torch.randn(shape, dtype=dtype), torch.zeros(shape, dtype=dtype))
                print(json.dumps({"shape": shape, "dtype": name, "bytes": s.most, "flops": counter.get_total_flops()}), file=out)


main()
