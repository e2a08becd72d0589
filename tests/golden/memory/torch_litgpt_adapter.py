"""The bytes that litgpt's LoRAQKVLinear holds, a layer that is q, k and v in one with adapters of some of them, on the CPU.

    python tests/golden/memory/torch_litgpt_adapter.py LITGPT > tests/golden/memory/torch_litgpt_adapter.jsonl

LITGPT is a checkout of litgpt's repository; of litgpt/lora.py the layers' classes run, without what else it imports."""
import ast
import json
import math
import subprocess
import sys
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F

from torch_actor_loss import Live

CLASSES = ("LoRALayer", "LoRALinear", "LoRAQKVLinear")
SIZES = (("falcon", 128, 4, 1), ("gpt_neox", 128, 4, 4))
PARTS = {"q+v": (True, False, True), "q+k+v": (True, True, True), "k": (False, True, False), "k+v": (False, True, True)}
ROWS, RANK = 512, 8


def layers(where):
    tree = ast.parse(open(where + "/litgpt/lora.py").read())
    tree.body = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name in CLASSES]
    names = {"nn": nn, "torch": torch, "F": F, "math": math, "Any": Any, "cast": cast}
    exec(compile(tree, "lora.py", "exec"), names)
    return names["LoRAQKVLinear"]


def record(layer, family, hidden, heads, groups, parts):
    size = hidden // heads
    one = layer(hidden, (heads + 2 * groups) * size, size, heads, groups, r=RANK, lora_alpha=16, enable_lora=PARTS[parts],
                bias=family == "gpt_neox").to(torch.bfloat16)
    for name, p in one.named_parameters():
        p.requires_grad = "lora_" in name
    x = torch.randn(1, ROWS, hidden, dtype=torch.bfloat16)           # without a gradient: the adapter's way back alone
    one(x.detach()[:, :1])                      # its index becomes a buffer
    with Live() as live:
        for known in (x, *one.parameters(), *one.buffers()):
            live.known.add(known.untyped_storage()._cdata)
        y = one(x)
        forward, kept = live.peak, live.live
        gradient = torch.ones_like(y)
        live.peak = before = live.live
        y.backward(gradient)
        backward = live.peak - before
    trains = sum(p.numel() for p in one.parameters() if p.requires_grad)
    return {"family": family, "hidden": hidden, "heads": heads, "kv_heads": groups, "rank": RANK, "rows": ROWS, "parts": parts, "trains": trains,
            "forward": forward, "kept": kept, "backward": backward}


if __name__ == "__main__":
    commit = subprocess.run(["git", "-C", sys.argv[1], "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(json.dumps({"torch": torch.__version__, "litgpt": commit or sys.argv[2]}))
    of = layers(sys.argv[1])
    for shape in SIZES:
        for parts in PARTS:
            print(json.dumps(record(of, *shape, parts)))
