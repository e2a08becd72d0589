#!/usr/bin/env python3
"""Records what torch, torchao, PEFT and transformers say of a frozen base in torchao's int4: none of them trains with it.

    python record_int4.py [-o int4.jsonl]

Each line: {"packing" (Int4PackingFormat), "case", "says": null, or the error}.  Two gloo ranks on the CPU.  mslk is taken without its CUDA
library, and torch has no kernel on the CPU for two operators of tile_packed_to_4d: functions of the same schema (mslk's has kernels of devices
alone, none of autograd) that make tensors of the shapes stand in for these products here; autograd above them is torch's own.  Packing
"preshuffled" is not among them: mslk makes it on a GPU only.
"""
import argparse
import json
import os
import warnings

os.environ["MSLK_PYTHON_ONLY"] = "1"

import peft
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchao
import transformers
from torch.distributed.fsdp import fully_shard
from torchao.quantization import Int4WeightOnlyConfig, quantize_
from transformers import AutoModelForCausalLM, LlamaConfig, TorchAoConfig
from transformers.quantizers.quantizer_torchao import TorchAoHfQuantizer
from transformers.trainer_utils import validate_quantization_for_training

PACKINGS = ["plain", "plain_int32", "tile_packed_to_4d"]
TOKENS = torch.zeros(1, 16, dtype=torch.long)


def stand_in(library, mslk):
    torch.cuda.get_device_capability = lambda *device: (8, 0)
    library.impl("_convert_weight_to_int4pack", lambda w, tiles: torch.zeros(
        w.shape[0] // 8, 2 * w.shape[1] // (tiles * 16), 32, tiles // 2, dtype=torch.int32), "CPU")
    mslk.define("bf16i4bf16_rowwise(Tensor X, Tensor W, Tensor w_scale_group, Tensor w_zero_group) -> Tensor")
    mslk.impl("bf16i4bf16_rowwise", lambda x, w, scale, zero: x.new_ones(x.shape[0], w.shape[0]), "CPU")
    library.impl("_weight_int4pack_mm", lambda x, w, group, scales: x.new_ones(x.shape[0], 8 * w.shape[0]), "CPU")


def quantised(packing):
    model = AutoModelForCausalLM.from_config(LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                                         vocab_size=256), dtype=torch.bfloat16)
    quantize_(model.model, Int4WeightOnlyConfig(int4_packing_format=packing))
    model.model.requires_grad_(False)
    return model


def adapted(packing):
    return peft.get_peft_model(quantised(packing), peft.LoraConfig(task_type="CAUSAL_LM"))


def trainer(packing):
    model = adapted(packing)
    base = model.get_base_model()
    base.is_quantized = True
    base.hf_quantizer = TorchAoHfQuantizer(TorchAoConfig(Int4WeightOnlyConfig(int4_packing_format=packing)))
    validate_quantization_for_training(model)


def step(packing):
    adapted(packing)(input_ids=TOKENS, labels=TOKENS).loss.backward()


def step_of_norms(packing):
    model = quantised(packing)
    norms = [p.requires_grad_() for name, p in model.named_parameters() if "layernorm" in name]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model(input_ids=TOKENS, labels=TOKENS).loss.backward()
    without = sum(p.grad is None or not p.grad.any() for p in norms)
    assert without == 0, f"{without} of {len(norms)} norms have no gradient; " + " ".join(sorted({str(w.message).partition(". ")[0] for w in heard}))


def ddp(packing):
    torch.nn.parallel.DistributedDataParallel(quantised(packing))


def fsdp2(packing):
    model = quantised(packing)
    for block in model.model.layers:
        fully_shard(block)
    fully_shard(model)


CASES = {"quantize_": quantised, "get_peft_model": adapted, "a step": step, "a step of norms": step_of_norms,
         "Trainer": trainer, "DistributedDataParallel": ddp, "fully_shard": fsdp2}


def record(rank, path):
    libraries = torch.library.Library("aten", "IMPL"), torch.library.Library("mslk", "FRAGMENT")
    stand_in(*libraries)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29751", rank=rank, world_size=2)
    with open(path if rank == 0 else os.devnull, "w") as out:
        print(json.dumps({"torch": torch.__version__, "torchao": torchao.__version__, "peft": peft.__version__,
                          "transformers": transformers.__version__}), file=out)
        for packing in PACKINGS:
            for case, do in CASES.items():
                says = None
                try:
                    do(packing)
                except Exception as error:
                    says = f"{type(error).__name__}: {error}"
                print(json.dumps({"packing": packing, "case": case, "says": says}), file=out)
                if case == "quantize_" and says:
                    break
    dist.destroy_process_group()


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("-o", default="int4.jsonl")
    mp.spawn(record, (a.parse_args().o,), nprocs=2)
