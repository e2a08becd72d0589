#!/usr/bin/env python3
"""Records codes of bitsandbytes: its 8-bit tables, NF4 of weights with and without double quantisation, and steps of AdamW in 8 bits.

    TRITON_INTERPRET=1 python record_codes.py -o codes.jsonl

Numbers come from numbers(), which tests/exec/test_blockwise.c has in C.  NF4 and the tables are what bitsandbytes' functions return
on the CPU.  Codes of maxima (double quantisation) there are of a table of 65,536 numbers (csrc/cpu_ops.cpp), GPUs' are not: they are
recorded from dQuantize<0>() of csrc/kernels.cu, which blockwise.py has line by line; "cpu_differs": how many the CPU has otherwise.  AdamW in 8 bits
has no kernel for the CPU at all: recorded is the CUDA kernel as blockwise.py has it, beside bitsandbytes' own Triton kernel under Triton's
interpreter, whose decay comes first and whose moments may lose their sign ("triton_differs": codes).
"""
import argparse
import json

import bitsandbytes
import numpy as np
import torch
from bitsandbytes import functional
from bitsandbytes.backends.triton import kernels_optim

import blockwise

F = np.float32


def numbers(seed, n):
    """Cubes of uniform numbers in [-1, 1), each exact in fp32 before it is cubed."""
    i = np.arange(n, dtype=np.uint64)
    h = (i * np.uint64(2654435761) + np.uint64(seed) * np.uint64(40503)) & np.uint64(0xFFFFFFFF)
    h = (h ^ (h >> np.uint64(15))) * np.uint64(2246822519) & np.uint64(0xFFFFFFFF)
    u = (h >> np.uint64(8)).astype(np.int64) - (1 << 23)
    x = u.astype(F) * F(2.0 ** -23)
    return x * x * x


def text(codes):
    return np.asarray(codes, dtype=np.uint8).tobytes().hex()


def floats(x):
    return [float(v) for v in np.asarray(x).flatten()]


# ---- tables, NF4 ----

def tables():
    for signed in (False, True):
        yield {"what": "map", "signed": signed, "values": floats(functional.create_dynamic_map(signed).numpy())}


def nf4(seed, n):
    x = torch.from_numpy(numbers(seed, n))
    packed, state = functional.quantize_4bit(x, blocksize=64, quant_type="nf4")
    back = functional.dequantize_4bit(packed, state)
    return {"what": "nf4", "seed": seed, "n": n, "codes": text(packed.flatten().numpy()), "maxima": floats(state.absmax.numpy()),
            "back": floats(back.numpy())}


def nf4_double(seed, n):
    x = torch.from_numpy(numbers(seed, n))
    packed, state = functional.quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=True)
    _, single = functional.quantize_4bit(x, blocksize=64, quant_type="nf4")
    codes, _ = blockwise.code_maxima(single.absmax.numpy(), F(state.offset.item()), state.state2.code.numpy())
    differ = int((codes != state.absmax.numpy()).sum())
    print(f"nf4-double, {n} numbers: {differ} of {len(codes)} maxima have another code on the CPU")
    return {"what": "nf4-double", "seed": seed, "n": n, "codes": text(packed.flatten().numpy()), "coded": text(codes),
            "maxima": floats(state.state2.absmax.numpy()), "mean": state.offset.item(), "cpu_differs": differ}


# ---- AdamW in 8 bits ----

def triton_step(s, p, g, a, step):
    t = {k: torch.from_numpy(v) for k, v in s.items()}
    kernels_optim.optimizer_update_8bit_blockwise_impl(
        "adam", torch.from_numpy(g), torch.from_numpy(p), t["code1"], t["code2"], a["beta1"], a["beta2"], 0.0, 0.0, a["eps"], step, a["lr"],
        t["map1"], t["map2"], t["max1"], t["max2"], a["weight_decay"], 1.0, False)


def adamw8(seed, n, steps, a, make):
    s, p = blockwise.new_states(n, True), numbers(seed, n)
    for step in range(1, steps + 1):
        make(s, p, numbers(seed + 100 * step, n), a, step)
    return dict(s, p=p)


def adamw8_line(seed, n, steps, weight_decay):
    a = {"lr": 2.0 ** -7, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": weight_decay}
    s, own = adamw8(seed, n, steps, a, blockwise.cuda_step), adamw8(seed, n, steps, a, triton_step)
    far, other = np.abs(s["p"] - own["p"]).max(), [int((s[k] != own[k]).sum()) for k in ("code1", "code2")]
    print(f"adamw8, {n} numbers, {steps} steps, decay {weight_decay}: bitsandbytes' Triton kernel has {other} other codes, its p is {far:.1e} away")
    return {"what": "adamw8", "seed": seed, "n": n, "steps": steps, **a, "code1": text(s["code1"]), "code2": text(s["code2"]),
            "max1": floats(s["max1"]), "max2": floats(s["max2"]), "p": floats(s["p"]), "triton_differs": other}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-o", default="codes.jsonl")
    a = a.parse_args()
    lines = list(tables())
    lines += [nf4(s, n) for s, n in ((1, 64), (2, 1000), (3, 63), (4, 4097))]
    lines += [nf4_double(s, n) for s, n in ((5, 64 * 300), (6, 1000), (7, 64 * 256 * 2 + 1))]
    lines += [adamw8_line(s, n, k, wd) for s, n, k, wd in ((8, 256, 1, 0.0), (9, 1000, 5, 0.0), (10, 1000, 5, 0.1), (11, 4096, 3, 0.1))]
    with open(a.o, "w") as out:
        print(json.dumps({"torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__}), file=out)
        for line in lines:
            print(json.dumps(line), file=out)


main()
