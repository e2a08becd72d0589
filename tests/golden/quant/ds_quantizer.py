"""DeepSpeed's quantiser without CUDA: what csrc/quantization of 0.19.6 and 0.19.8 computes, in torch on the CPU.

Written from quantize.cu, dequantize.cu, swizzled_quantize.cu, quant_reduce.cu and includes/{quantization_utils,dequantization_utils,
conversion_utils}.h, symmetric codes alone.  ../collectives/record_deepspeed.py puts it in place of the op that DeepSpeed would build with nvcc.
--use_fast_math, with which DeepSpeed builds it, makes divisions inexact in the last bits: here they are IEEE's.

    python ds_quantizer.py > vectors.txt

prints blocks of numbers (fp16, as bits) with their codes and scales (fp32, as bits), and sums of codes that are coded again.
"""
import sys

import torch

Symmetric = 1
Asymmetric = 0


def _rint(x):
    """conversion::to<int32_t>(float), __float2int_rn: NaN is 0, what is beyond saturates."""
    x = torch.nan_to_num(x, nan=0.0, posinf=2.0 ** 31, neginf=-2.0 ** 31)
    return torch.round(x.double()).clamp(-2 ** 31, 2 ** 31 - 1)


def _code(values, bits):
    """Groups of halves [groups, elems]: codes (one an int8) and the scales that are stored."""
    x = values.abs()
    # __hmax2, fmaxf: of a number and a NaN the number; they begin with -inf
    most = torch.where(x.isnan(), torch.full_like(x, float("-inf")), x).amax(1).float()
    scale = torch.where(most == 0, torch.ones_like(most), float(1 << bits) / (2 * most))
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    codes = _rint(values.float() * scale[:, None]).clamp(low, high).to(torch.int8)
    return codes, 1 / scale


def _pack(codes, bits):
    """PackedInt4{second, first}: the first number is in the upper half (`high` is declared first: the lower bits)."""
    if bits == 8:
        return codes
    first, second = codes.view(-1, 2).unbind(1)
    return ((first.to(torch.int16) << 4) | (second.to(torch.int16) & 15)).to(torch.uint8).view(torch.int8)


def _unpack(packed, bits):
    if bits == 8:
        return packed
    p = packed.view(torch.uint8).to(torch.int16)
    signed = lambda v: torch.where(v > 7, v - 16, v).to(torch.int8)
    return torch.stack((signed(p >> 4), signed(p & 15)), 1).view(-1)


def halves(t):
    """(__half *)t.data_ptr(): the bits, whatever they are."""
    flat = t.contiguous().view(-1)
    return flat if flat.dtype == torch.float16 else flat.view(torch.float16)[:flat.numel()]


def quantize(values, groups, bits, kind):
    codes, scales = _code(halves(values).view(groups, -1), bits)
    shape = list(values.shape)
    shape[-1] = shape[-1] * bits // 8
    return _pack(codes.view(-1), bits).view(shape), scales.view(groups, 1)


def dequantize(packed, scales, groups, bits, kind):
    codes = _unpack(packed.contiguous().view(-1), bits).float()
    shape = list(packed.shape)
    shape[-1] = shape[-1] * 8 // bits
    each = codes.numel() // groups
    return (codes.view(-1, each) * scales.view(-1)[:groups, None]).to(torch.float16).view(shape)


def swizzle_quant(values, groups, bits, kind, pipelining, nodes, devices):
    assert pipelining == 1 and groups % (nodes * devices) == 0
    codes, scales = _code(halves(values).view(groups, -1), bits)
    order = [node * devices + rank for rank in range(devices) for node in range(nodes)]
    parts = nodes * devices
    codes = codes.view(parts, -1)[order].contiguous().view(-1)
    return _pack(codes, bits), scales.view(parts, -1)[order].contiguous().view(groups, 1)


def quantized_reduction(packed, scales, in_groups, out_groups, bits, kind, devices):
    numbers = dequantize(packed, scales, in_groups, bits, kind).view(devices, -1)
    total = torch.zeros_like(numbers[0])
    for x in numbers:                   # in fp16, one after the other
        total = total + x
    return quantize(total, out_groups, bits, kind)


class QuantizerBuilder:
    def load(self):
        return sys.modules[__name__]


# ------------------------------------------------------------------------------------ vectors for the executor's own quantisers

def blocks():
    torch.manual_seed(11)
    n = 64
    small = torch.finfo(torch.float16).smallest_normal
    yield "random", torch.randn(n)
    yield "wide", torch.randn(n) * torch.logspace(-6, 3, n)
    yield "constant", torch.full((n,), -0.7)
    yield "zero", torch.zeros(n)
    yield "denormal", (torch.arange(n) - 31) * small / 512
    yield "largest", torch.linspace(-65504, 65504, n)
    yield "infinite", torch.where(torch.arange(n) == 5, torch.tensor(float("inf")), torch.randn(n))
    yield "nan", torch.where(torch.arange(n) == 7, torch.tensor(float("nan")), torch.randn(n))
    yield "all nan", torch.full((n,), float("nan"))
    yield "halfway", (torch.arange(n) - 32) / 2.0


def bits_of(t):
    if t.dtype == torch.float16:
        return " ".join("%04x" % (v & 0xffff) for v in t.view(-1).view(torch.int16).tolist())
    if t.dtype == torch.float32:
        return " ".join("%08x" % (v & 0xffffffff) for v in t.view(-1).view(torch.int32).tolist())
    return " ".join("%02x" % (v & 0xff) for v in t.view(-1).tolist())


def main():
    print("# written by tests/golden/quant/ds_quantizer.py, torch " + torch.__version__)
    for name, x in blocks():
        x = x.to(torch.float16)
        for bits, groups in ((8, 1), (8, 4), (4, 1), (4, 8)):
            codes, scales = quantize(x, groups, bits, Symmetric)
            back = dequantize(codes, scales, groups, bits, Symmetric)
            print("quantise %d bits %d groups # %s" % (bits, groups, name))
            for t in (x, codes, scales, back):
                print(bits_of(t))
    torch.manual_seed(12)
    for ranks, nodes, groups in ((2, 2, 8), (4, 2, 8), (3, 2, 6)):
        n = groups * 16
        x = torch.randn(n).to(torch.float16)
        codes, scales = swizzle_quant(x, groups, 4, Symmetric, 1, nodes, ranks)
        print("swizzle %d ranks %d nodes %d groups" % (ranks, nodes, groups))
        for t in (x, codes, scales):
            print(bits_of(t))
        total, again = quantized_reduction(codes, scales, groups, groups // ranks, 4, Symmetric, ranks)
        print("reduce %d ranks %d groups" % (ranks, groups))
        for t in (codes, scales, total, again):
            print(bits_of(t))


if __name__ == "__main__":
    main()
