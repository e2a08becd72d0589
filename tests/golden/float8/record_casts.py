"""Records torch's casts to 8-bit floats and torchao's scales: python record_casts.py > casts.jsonl

One line a format, numbers as the hexadecimal bits of fp32.  "codes": each code's value.  "x" and "cast", "saturated": each halfway point
between two neighbours, its neighbours in fp32, both signs, and numbers at and beyond the edges; NaN's code is compared without its sign.
"amax", "scale", "power": amax_to_scale()."""
import json
import math

import torch
from torchao.float8.float8_utils import amax_to_scale, to_fp8_saturated


def bits(x):
    return [int(i) & 0xffffffff for i in x.float().view(torch.int32).tolist()]


def hexed(x, width):
    return "".join(f"{i:0{width}x}" for i in x)


for name, t in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
    codes = torch.arange(256, dtype=torch.uint8).view(t).float()
    least = codes[:128][torch.isfinite(codes[:128])]
    half = (least[1:] + least[:-1]) / 2
    top = least[-1] + (least[-1] - least[-2]) / 2
    some = torch.cat([half, top[None], least, torch.tensor([2.0 ** -149, 1e-30, 1e6, 3.4e38, math.inf])])
    some = torch.cat([some, torch.nextafter(some, torch.tensor(0.0)), torch.nextafter(some, torch.tensor(math.inf))])
    some = torch.cat([some, -some, torch.tensor([math.nan])])
    amax = torch.cat([torch.tensor([0.0, 1e-20, 1e-12, 1e-6, 1.0, 3.0, 447.0, 448.0, 449.0, 57344.0, 1e5, 1e30]),
                      torch.rand(200, generator=torch.Generator().manual_seed(1)) * 8])
    print(json.dumps({"format": name, "codes": hexed(bits(codes), 8), "x": hexed(bits(some), 8),
                      "cast": hexed(some.to(t).view(torch.uint8).tolist(), 2),
                      "saturated": hexed(to_fp8_saturated(some, t).view(torch.uint8).tolist(), 2),
                      "amax": hexed(bits(amax), 8),
                      "scale": hexed(bits(torch.stack([amax_to_scale(a, t) for a in amax])), 8),
                      "power": hexed(bits(torch.stack([amax_to_scale(a, t, round_scales_to_power_of_2=True) for a in amax])), 8)}))
