"""The bytes that torchtune's DoRALinear holds in forward, and in backward, on the CPU.

    python tests/golden/memory/torch_dora.py TORCHTUNE > tests/golden/memory/torch_dora.jsonl

TORCHTUNE is a checkout of torchtune's repository; of torchtune/modules/peft/dora.py the class runs, without what else it imports.
x is a result of what came before, which the layer alone has, and so is what flows into backward, which is not counted."""
import ast
import json
import math
import subprocess
import sys
from typing import Optional, Union

import torch
from torch import nn
from torch.nn import functional as F

from torch_actor_loss import Live

SIZES = ((256, 128, 8), (1024, 512, 4), (512, 512, 16))
ROWS = (64, 2048)


def layers(where):
    tree = ast.parse(open(where + "/torchtune/modules/peft/dora.py").read())
    tree.body = [n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    names = {"nn": nn, "torch": torch, "F": F, "math": math, "Optional": Optional, "Union": Union, "AdapterModule": object}
    exec(compile(tree, "dora.py", "exec"), names)
    return names["DoRALinear"]


def record(layer, k, n, rank, rows):
    one = layer(k, n, rank, 16.0).to(torch.bfloat16)
    one.initialize_dora_magnitude()
    for name, p in one.named_parameters():
        p.requires_grad = name in one.adapter_params()
    leaf, scale = torch.randn(1, rows, k, dtype=torch.bfloat16, requires_grad=True), torch.ones(1, rows, n, dtype=torch.bfloat16)
    with Live() as live:
        for known in (leaf, scale, *one.parameters()):
            live.known.add(known.untyped_storage()._cdata)
        x = leaf.clone()
        before = live.live
        y = one(x)
        del x
        forward, kept = live.peak - before, live.live - before
        z = y * scale
        del y
        gradient = torch.ones_like(z)
        live.peak = before = live.live
        z.backward(gradient)
        backward = live.peak - before - 2 * rows * n
    
    return {"in": k, "out": n, "rank": rank, "rows": rows, "trains": sum(p.numel() for p in one.parameters() if p.requires_grad),
            "forward": forward, "kept": kept, "backward": backward}


if __name__ == "__main__":
    commit = subprocess.run(["git", "-C", sys.argv[1], "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(json.dumps({"torch": torch.__version__, "torchtune": commit or sys.argv[2]}))
    of = layers(sys.argv[1])
    for size in SIZES:
        for rows in ROWS:
            print(json.dumps(record(of, *size, rows)))
