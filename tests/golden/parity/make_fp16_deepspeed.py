#!/usr/bin/env python3
"""Trains the models of make_parity.py in fp16 under DeepSpeed, stages 1 to 3, and records losses and loss scales.

    python make_fp16_deepspeed.py [FOLDER]         default: the script's own folder; under two minutes

Two CPU ranks (gloo) of deepspeed.initialize(), torch's AdamW.  Writes MODEL/fp16/deepspeed-STAGE.json: the first scale is 2^24, so that
the first steps overflow and are skipped.  Stage 0 is left out: here its optimizers train nothing (0.19.8 on the CPU), and say of no step that it
was skipped.  README.md says what is compared.
"""
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../collectives"))
import record_deepspeed as recorder     # sets the environment, loads DeepSpeed

import deepspeed
import torch
import torch.distributed as td
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoConfig

import make_parity as parity

RANKS, FIRST = 2, 24


def ds_config(stage):
    return {"train_micro_batch_size_per_gpu": parity.BATCH // RANKS, "gradient_accumulation_steps": 1, "gradient_clipping": parity.CLIP,
            "steps_per_print": 1 << 30, "fp16": {"enabled": True, "initial_scale_power": FIRST}, "zero_optimization": {"stage": stage}}


def mean(loss):
    total = loss.detach().double()
    td.all_reduce(total)
    return total.item() / RANKS


def train(folder, tokens, stage, rank):
    model = parity.build(AutoConfig.from_pretrained(folder), load_file(os.path.join(folder, "init.safetensors")), torch.float32)
    adamw = torch.optim.AdamW(model.parameters(), lr=parity.LR, betas=parity.BETAS, eps=parity.EPS, weight_decay=parity.WEIGHT_DECAY,
                              foreach=False, fused=False)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=adamw, config=ds_config(stage))
    out, each = {"loss": [], "loss_scale": [], "skipped_steps": 0}, parity.BATCH // RANKS
    for step in range(parity.STEPS):
        for group in engine.optimizer.param_groups:
            group["lr"] = parity.lr_of(step - engine.skipped_steps)     # DeepSpeed's schedulers wait with the optimizer
        ids, labels = (t[rank * each:(rank + 1) * each] for t in parity.batch_of(tokens, step))
        logits = engine(input_ids=ids, use_cache=False).logits
        loss = F.cross_entropy(logits.float().reshape(-1, parity.VOCAB), labels.reshape(-1))
        out["loss"].append(mean(loss))
        out["loss_scale"].append(float(engine.optimizer.loss_scale))
        engine.backward(loss)
        engine.step()
    return {**out, "skipped_steps": engine.skipped_steps, "optimizer": type(engine.optimizer).__name__}


def rank_main(rank, folder, stage, scratch):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    log = os.open(os.path.join(scratch, f"log{rank}"), os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    parity.exactly()
    recorder.prepare()
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=RANKS,
                               init_method=f"file://{scratch}/store")
    run = train(folder, parity.make_tokens(), stage, rank)
    if rank == 0:
        with open(os.path.join(folder, "fp16", f"deepspeed-{stage}.json"), "w") as f:
            json.dump({"deepspeed": deepspeed.__version__, "torch": torch.__version__, "ranks": RANKS, **run}, f, indent=1)
            f.write("\n")
    os._exit(0)


def record(folder, stage):
    with tempfile.TemporaryDirectory() as scratch:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, folder, stage, scratch)) for r in range(RANKS)]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join(240)
        if any(p.exitcode != 0 for p in ranks):
            for p in ranks:
                p.kill()
            sys.exit("".join(open(os.path.join(scratch, f"log{r}"), errors="replace").read()[-2000:] for r in range(RANKS)))
    with open(os.path.join(folder, "fp16", f"deepspeed-{stage}.json")) as f:
        run = json.load(f)
    print(f"{os.path.basename(folder)} stage {stage} ({run['optimizer']}): loss {run['loss'][0]:.6f} -> {run['loss'][-1]:.6f}; "
          f"{run['skipped_steps']} skipped, scale {run['loss_scale'][0]:g} -> {run['loss_scale'][-1]:g}", flush=True)


def main():
    for model in ("gpt2", "llama"):
        for stage in (1, 2, 3):
            record(os.path.join(sys.argv[1] if len(sys.argv) > 1 else HERE, model), stage)


main()
