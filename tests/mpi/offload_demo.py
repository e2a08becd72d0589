"""GPT-2 1.5B's first weights, and PyTorch's forward loss on them, for offload_demo.sh.

    offload_demo.py weights OUT.safetensors     normal(0, 0.02) as GPT2PreTrainedModel._init_weights() has them, from a fixed
                                                seed, in fp32: 6.2 GB, written tensor by tensor; of NUMBERS numbers, again and again
    offload_demo.py loss FILE.safetensors DATA SEQ SAMPLES
                                                GPT2LMHeadModel's loss on the first SAMPLES windows of SEQ bytes of DATA, each
                                                byte a token (exec/data/tokens.h); parameters are mapped from the file
"""
import json
import math
import struct
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

CONFIG = GPT2Config(n_layer=48, n_embd=1600, n_head=25, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)


def on_meta():
    with torch.device("meta"):
        return GPT2LMHeadModel(CONFIG)


class Normal:
    """Normal numbers: drawn once, since 1.6 billion take a minute and more, and then repeated; a prime number of them, so that no two rows are
    alike."""
    NUMBERS = 16777213

    def __init__(self):
        self.drawn = torch.empty(self.NUMBERS).normal_(generator=torch.Generator().manual_seed(1))
        self.at = 0

    def take(self, n):
        parts = []
        while n > 0:
            part = self.drawn[self.at:self.at + n]
            parts.append(part)
            self.at = (self.at + len(part)) % self.NUMBERS
            n -= len(part)
        return torch.cat(parts)


def first_value(name, shape, normal):
    if name.endswith("bias"):
        return torch.zeros(shape)
    if "ln_" in name:
        return torch.ones(shape)
    std = CONFIG.initializer_range
    if name.endswith("c_proj.weight"):
        std /= math.sqrt(2 * CONFIG.n_layer)
    return normal.take(math.prod(shape)) * std


def write_weights(path):
    shapes = {n: tuple(p.shape) for n, p in on_meta().named_parameters()}     # the tied head is named once
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    normal = Normal()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            f.write(first_value(name, shape, normal).numpy().tobytes())


def loss(path, data, seq, samples):
    from safetensors.torch import load_file
    model = on_meta()
    model.load_state_dict(load_file(path), strict=False, assign=True)
    model.tie_weights()
    model.eval()
    with open(data, "rb") as f:
        tokens = f.read(samples * seq + 1)
    total = 0.0
    with torch.no_grad():
        for i in range(samples):                # one by one: as many logits as one sample has
            window = torch.tensor(list(tokens[i * seq:i * seq + seq + 1]))
            logits = model(window[None, :-1]).logits[0]
            total += torch.nn.functional.cross_entropy(logits.double(), window[1:]).item()
    return total / samples


if __name__ == "__main__":
    if sys.argv[1] == "weights":
        write_weights(sys.argv[2])
    else:
        print("%.9g" % loss(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
