"""The bytes that verl's entropy of logits holds where it is not compiled, as its Python makes and drops tensors on the CPU.

    python tests/golden/memory/torch_entropy.py VERL > tests/golden/memory/torch_entropy.jsonl

VERL is a checkout of verl's repository; of verl/utils/torch_functional.py entropy_from_logits() runs, without what else it imports."""
import ast
import json
import subprocess
import sys

import torch

from torch_actor_loss import Live

SIZES = ((768, 20000), (512, 1024), (1280, 9504))


def function(where):
    tree = ast.parse(open(where + "/verl/utils/torch_functional.py").read())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "entropy_from_logits"]
    names = {"torch": torch}
    exec(compile(tree, "torch_functional.py", "exec"), names)
    return names["entropy_from_logits"]


def record(of, rows, vocab):
    logits = torch.randn(rows, vocab, dtype=torch.bfloat16, requires_grad=True)
    with Live() as live:
        live.known.add(logits.untyped_storage()._cdata)
        entropy = of(logits)
        forward, kept = live.peak, live.live
        gradient = torch.ones_like(entropy)
        live.peak = before = live.live
        entropy.backward(gradient)
        backward = live.peak - before
    return {"rows": rows, "vocab": vocab, "forward": forward, "kept": kept, "backward": backward}


if __name__ == "__main__":
    commit = subprocess.run(["git", "-C", sys.argv[1], "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(json.dumps({"torch": torch.__version__, "verl": commit or sys.argv[2]}))
    of = function(sys.argv[1])
    for size in SIZES:
        print(json.dumps(record(of, *size)))
