#!/usr/bin/env python3
"""Records the bytes of what bitsandbytes and torchao keep of a weight in 4 and 8 bits, tensor by tensor, on the CPU.

torchao's NF4 takes whole blocks of 64 x 256 weights alone: other shapes have no line.

torchao's int4 is made on the meta device (Int4Tensor with mslk, of whose CUDA library there is no need; the tiled form wants a GPU's capability
but no kernel of it); no bytes: the weight stays as it is.

    python record_packed.py -o packed.jsonl

Each line: {"as", "shape" ([out, in]), "bytes" (of each tensor)}.
"""
import argparse
import json
import os

os.environ["MSLK_PYTHON_ONLY"] = "1"

import bitsandbytes
import torch
import torchao
from bitsandbytes import functional
from torchao.quantization import Int4WeightOnlyConfig, Int8Tensor, PerRow, quantize_
from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import to_nf4

SHAPES = [[16, 16], [64, 48], [63, 65], [128, 384], [768, 768], [768, 3072], [1024, 4096], [4096, 1024], [11008, 4096], [100, 41]]


def bytes_of(*tensors):
    return [t.untyped_storage().nbytes() for t in tensors]


def four_bits(weight, double):
    packed, state = functional.quantize_4bit(weight, blocksize=64, compress_statistics=double, quant_type="nf4")
    if not double:
        return bytes_of(packed, state.absmax, state.code)
    return bytes_of(packed, state.absmax, state.state2.absmax, state.state2.code, state.offset, state.code)


def eight_bits(weight):
    layer = bitsandbytes.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    codes, maxima, _ = functional.int8_vectorwise_quant(weight.to(torch.float16))
    assert layer.has_fp16_weights is False
    return bytes_of(codes, maxima)


def torchao_eight_bits(weight):
    kept = Int8Tensor.from_hp(weight, granularity=PerRow())
    return bytes_of(kept.qdata, kept.scale, kept.zero_point)


def torchao_four_bits(weight, packing):
    torch.cuda.get_device_capability = lambda *device: (8, 0)
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta", dtype=weight.dtype)
    quantize_(layer, Int4WeightOnlyConfig(int4_packing_format=packing))
    kept = layer.weight
    return [] if type(kept) is torch.nn.Parameter else bytes_of(*(getattr(kept, name) for name in kept.tensor_data_names))


def torchao_nf4(weight):
    if weight.numel() % (64 * 256):
        return None
    kept = to_nf4(weight)
    return bytes_of(kept.quantized_data, kept.quantized_scalers, kept.quantization_factor, kept.scaler_mean, kept.nf4)


KINDS = {"nf4": lambda w: four_bits(w, False), "nf4-double": lambda w: four_bits(w, True), "int8": eight_bits,
         "int8-torchao": torchao_eight_bits, "int4-torchao": lambda w: torchao_four_bits(w, "plain"),
         "int4-torchao-tiled": lambda w: torchao_four_bits(w, "tile_packed_to_4d"), "nf4-torchao": torchao_nf4}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-o", default="packed.jsonl")
    a = a.parse_args()
    with open(a.o, "w") as out:
        print(json.dumps({"torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__, "torchao": torchao.__version__}), file=out)
        for name, keep in KINDS.items():
            for shape in SHAPES:
                weight = torch.randn(shape, dtype=torch.bfloat16)
                kept = keep(weight)
                if kept is not None:
                    print(json.dumps({"as": name, "shape": shape, "bytes": kept}), file=out)


main()
