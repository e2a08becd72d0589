#!/usr/bin/env python3
"""Records the bytes of optimizers' states, tensor by tensor, from bitsandbytes, torchao and torch on the CPU.

    python record_optimizers.py -o optimizers.jsonl

Each optimizer's own code makes the states of tensors of several shapes, on both sides of where it goes to 8 or 4 bits.
"""
import argparse
import json

import bitsandbytes
import pytorch_optimizer
import torch
import torchao
from bitsandbytes.optim import AdamW8bit, Lion32bit, Lion8bit
from torchao.optim import AdamW4bit, AdamW8bit as TorchAdamW8bit, _AdamW

SHAPES = [[7], [768], [4096], [4097], [12288], [16, 256], [63, 65], [64, 64], [100, 41], [128, 33], [16, 4096], [4096, 16],
          [768, 768], [768, 3072], [3072, 768], [101, 48], [50257, 48], [1024, 2816], [255, 17], [5000, 3]]


def bytes_of(x):
    """Of a state's tensors; a table of codes that all share is counted apart."""
    if hasattr(x, "tensor_attrs"):
        return [getattr(x, name).untyped_storage().nbytes() for name in x.tensor_attrs]
    return [x.untyped_storage().nbytes()]


def torch_states(make, parameter):
    optimizer = make([parameter])
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return [v for k, v in optimizer.state[parameter].items() if isinstance(v, torch.Tensor) and k != "step"]


def bnb_states(make, parameter):
    optimizer = make([parameter])
    parameter.grad = torch.zeros_like(parameter)
    optimizer.init_state(optimizer.param_groups[0], parameter, 0, 0)
    return [v for k, v in optimizer.state[parameter].items() if isinstance(v, torch.Tensor) and not k.startswith("qmap")]


def ao_states(make, parameter):
    optimizer = make([parameter])
    return [optimizer._new_buffer(parameter, signed) for signed in (True, False)]


def soap_states(make, parameter):
    """Its lists of preconditioners and of their eigenbases, empty where a side has none; shapes are enough, no decomposition is made."""
    parameter = torch.nn.Parameter(parameter.to("meta"))
    optimizer = make([parameter])
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = optimizer.state[parameter]
    return [state["exp_avg"], state["exp_avg_sq"]] + [x for x in state["GG"] + state["Q"] if isinstance(x, torch.Tensor)]


OPTIMIZERS = {
    "adamw": (torch_states, lambda p: torch.optim.AdamW(p)),
    "sgd": (torch_states, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "adafactor": (torch_states, lambda p: torch.optim.Adafactor(p)),
    "adamw_bnb_8bit": (bnb_states, lambda p: AdamW8bit(p)),
    "lion_32bit": (bnb_states, lambda p: Lion32bit(p)),
    "lion_8bit": (bnb_states, lambda p: Lion8bit(p)),
    "adamw_torch_8bit": (ao_states, lambda p: TorchAdamW8bit(p)),
    "adamw_torch_4bit": (ao_states, lambda p: AdamW4bit(p)),
    "adamw_stochastic_bf16": (ao_states, lambda p: _AdamW(p, bf16_stochastic_round=True)),
}
OPTIMIZERS["soap"] = (soap_states, lambda p: pytorch_optimizer.SOAP(p))
# torch.optim.Muon takes matrices alone; a vector is AdamW's.
OPTIMIZERS["muon"] = (torch_states, lambda p: (torch.optim.Muon if p[0].ndim == 2 else torch.optim.AdamW)(p))
# Of parameters in bf16: in lines with "kept".
IN_BF16 = ("adamw_torch_8bit", "adamw_torch_4bit", "adamw_stochastic_bf16", "adamw_bnb_8bit", "lion_32bit", "lion_8bit")


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-o", default="optimizers.jsonl")
    a.add_argument("--only", help="of one optimizer, behind what the file has")
    a = a.parse_args()
    with open(a.o, "a" if a.only else "w") as out:
        if not a.only:
            print(json.dumps({"torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__, "torchao": torchao.__version__}), file=out)
        for name, (states, make) in OPTIMIZERS.items():
            if a.only and name != a.only:
                continue
            for kept in [torch.float32] * (name != "adamw_stochastic_bf16") + [torch.bfloat16] * (name in IN_BF16):
                for shape in SHAPES:
                    made = [b for x in states(make, torch.nn.Parameter(torch.zeros(shape, dtype=kept))) for b in bytes_of(x)]
                    more = {"kept": "bf16"} if kept == torch.bfloat16 else {}
                    print(json.dumps({"optimizer": name, "shape": shape, "bytes": made, **more}), file=out)


main()
