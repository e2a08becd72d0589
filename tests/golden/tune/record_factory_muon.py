"""The most bytes above parameters, gradients and states that a step of LLaMA-Factory's Muon holds, of one tensor, on the CPU.

    python record_factory_muon.py LLAMA_FACTORY > factory_muon.jsonl

LLAMA_FACTORY is a checkout of its repository; src/llamafactory/third_party/muon/muon.py runs as it is."""
import json
import os
import subprocess
import sys

sys.path[:0] = [sys.argv[1] + "/src/llamafactory/third_party/muon", os.path.dirname(os.path.abspath(__file__)) + "/../memory"]
import torch
from muon import Muon
from torch_actor_loss import Live

MATRICES = ((256, 256), (704, 256), (256, 704), (64, 2048), (1024, 512))
OTHERS = ((512, 256), (4096,))


def record(shape, muon):
    p = torch.nn.Parameter(torch.randn(*shape))
    optimizer = Muon(lr=1e-3, wd=0.1, muon_params=[p] if muon else [], adamw_params=[] if muon else [p])
    for _ in range(2):              # the second has its states
        p.grad = torch.randn(*shape)
        with Live() as live:
            for known in (p, p.grad, *(s for s in optimizer.state[p].values() if isinstance(s, torch.Tensor))):
                live.known.add(known.untyped_storage()._cdata)
            optimizer.step()
            peak = live.peak
    return {"shape": shape, "muon": muon, "peak": peak}


if __name__ == "__main__":
    commit = subprocess.run(["git", "-C", sys.argv[1], "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(json.dumps({"torch": torch.__version__, "llama_factory": commit or sys.argv[2]}))
    for muon, shapes in ((True, MATRICES), (False, OTHERS)):
        for shape in shapes:
            print(json.dumps(record(shape, muon)))
