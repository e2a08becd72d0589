#!/usr/bin/env python3
"""Records what DeepSpeed makes of zero_quantized_nontrainable_weights, on two CPU ranks (gloo).

    python record_frozen_int8.py >> frozen_int8.jsonl      (with deepspeed 0.19.6, then 0.19.8)

A small Llama under LoRA is initialised and runs a forward and a backward pass; ds_quantizer.py stands in for the quantiser, which is CUDA.
Each case is a line of JSON: how the model came to be and

    "int8", "frozen"    frozen tensors whose partitions are codes with scales, and all
    "whole"             of a frozen matrix, gathered by itself: whether its values are those it had, but for a code's width
    "zeros"             the share of rank 0's codes that are 0
    "says"              the last line of what initialize(), the call or the passes raised; null: nothing

Ways: "frozen first" is PEFT's model given to initialize(); "zero.Init" builds the base under it, as transformers do beside
HfDeepSpeedConfig, and adds adapters then; "call" then calls the optimizer's quantize_nontrainable_params().
Several tensors of unequal groups in one gather: the stand-in fails; DeepSpeed's op divides all elements by all scales (pt_binding.cpp), so that
most groups get another one's scale.
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "collectives"))

import record_deepspeed as r
from record_lists import tune

import peft             # before ranks are forked
import torch
import deepspeed

MATRIX = "layers.0.mlp.up_proj.base_layer.weight"
LARGE = dict(r.MODELS["llamaq"], num_hidden_layers=1, hidden_size=512, intermediate_size=1024)     # the call leaves tensors up to 500000
r.MODELS["llama8"] = LARGE
APART = dict(stage3_param_persistence_threshold=0, stage3_max_reuse_distance=0)
LORA = {"train": "lora", "lora": {"rank": 4, "target_modules": "all-linear"}}
WAYS = [("frozen first", "bf16", 0), ("frozen first", "bf16", 10000000), ("zero.Init", "bf16", 10000000), ("zero.Init, call", "bf16", 10000000),
        ("zero.Init, call", "fp16", 10000000), ("zero.Init, call", "fp16", 0)]


def case(precision, prefetch):
    return r.case("llama8", 3, precision, zero_quantized_nontrainable_weights=True, stage3_prefetch_bucket_size=prefetch, **APART)


def observe(engine, was):
    named = [(n, p) for n, p in engine.module.named_parameters() if not p.requires_grad]
    tensor = next(p for n, p in named if n.endswith(MATRIX))
    out = {"int8": sum(hasattr(p.ds_tensor, "ds_quant_scale") for _, p in named), "frozen": len(named), "whole": None, "zeros": None}
    if tensor.ds_tensor.dtype == torch.int8:
        out["zeros"] = round((tensor.ds_tensor == 0).double().mean().item(), 3)
    tensor.all_gather_coalesced([tensor], quantize=tensor.ds_tensor.dtype == torch.int8).wait()
    out["whole"] = bool((tensor.data.float() - was.float()).abs().max() <= was.float().abs().max() / 100)
    tensor.partition()
    return out


def passes(engine, c):
    ids = torch.randint(r.MODELS[c["model"]]["vocab_size"], (r.MICRO_BATCH, r.SEQ))
    for _ in range(2):                  # the first one records the order of modules and prefetches nothing
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()


def of_rank(rank, way, c, path):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    quiet = os.open(path + ".log%d" % rank, os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    r.prepare()
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=2, init_method="file://%s.store" % path)
    base, says, out = r.build(c), None, {}
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[c["precision"]]
    was = next(p for n, p in base.named_parameters() if n.endswith(MATRIX.replace(".base_layer", ""))).detach().to(dtype)
    config = dict(r.ds_config(c), train_micro_batch_size_per_gpu=r.MICRO_BATCH)
    if way != "frozen first":
        torch.manual_seed(7)
        values = {n: p.detach().to(dtype) for n, p in base.named_parameters()}
        with deepspeed.zero.Init(config_dict_or_path=config, dtype=dtype):
            base = r.families.build(r.config_of(c), "eager")
        for n, p in base.named_parameters():
            with deepspeed.zero.GatheredParameters([p], modifier_rank=0):
                p.data.copy_(values[n])
    try:
        model = tune(base, LORA)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        if way.endswith("call"):
            engine.optimizer.quantize_nontrainable_params()
        out = observe(engine, was)
        passes(engine, c)
    except Exception as e:              # noqa: what it says is what is recorded
        says = "%s: %s" % (type(e).__name__, str(e).strip().split("\n")[-1])
    with open(path + ".out%d" % rank, "w") as f:
        json.dump(dict(out, says=says), f)
    os._exit(0)


def main():
    of = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "transformers": r.transformers.__version__, "peft": peft.__version__}
    for way, precision, prefetch in WAYS:
        c = case(precision, prefetch)
        r.families.load_classes(r.config_of(c))
        with tempfile.TemporaryDirectory() as folder:
            ranks = [r.mp.get_context("fork").Process(target=of_rank, args=(i, way, c, os.path.join(folder, "x"))) for i in range(2)]
            for p in ranks:
                p.start()
            for p in ranks:
                p.join(120)
                p.kill()
            path = os.path.join(folder, "x.out0")
            if not os.path.exists(path):
                sys.exit("failed: %s\n%s" % (way, open(os.path.join(folder, "x.log0"), errors="replace").read()[-3000:]))
            row = json.load(open(path))
        print(json.dumps({**of, "way": way, "precision": precision, "prefetch": prefetch, **row}), flush=True)


if __name__ == "__main__":
    main()
