#!/usr/bin/env python3
"""Records, storage by storage, the memory of DeepSpeed's pipelines, and of AutoTP at stage 0, on two real CPU ranks.

    python record_cpu_pipeline.py [--only SUBSTRING] [-o cpu_ranks_pipeline.jsonl]
    python record_cpu_pipeline.py --only s3_ -o cpu_ranks_autotp3.jsonl     AutoTP at stage 3

The account, and the form of the file, are record_cpu_ranks.py's.  Activations are a large part here: samples are longer, and as many
micro-steps are in flight as the engine itself lets be.  The layers of a PipelineModule are those of
../collectives/record_deepspeed_pipeline.py, with rotary tables that are made once, uncounted.  README.md says what else is changed.
"""
import argparse
import gc
import importlib
import json
import os
import sys
import tempfile
import time

import record_cpu_ranks as base         # preloads, and starts this script anew

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../collectives"))
import record_deepspeed_pipeline as pipeline
from record_cpu_ranks import deepspeed, dist, mp, torch, transformers
from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe import engine as pipe_engine

SEQ, MICRO_BATCH, STEPS = 128, 2, 3
MODELS = {"gpt2": dict(base.GPT2, architectures=["GPT2LMHeadModel"], use_cache=False),
          "llama": dict(base.LLAMA, num_key_value_heads=8, architectures=["LlamaForCausalLM"], use_cache=False),
          "gpt2-124m": dict(base.GPT2, n_layer=12, n_embd=768, n_head=12, vocab_size=50257, n_positions=1024,
                            architectures=["GPT2LMHeadModel"], use_cache=False)}


def case(model, stage, precision="bf16", parallel=None, world=2, accumulation=4, clip=1.0, recompute="none", seq=SEQ, **ds):
    plan = {"dpx_plan": 1, "model": model, "cluster": "localhost:%d" % world, "strategy": ["ddp", "zero1", "zero2", "zero3"][stage],
            "dialect": "deepspeed", "kernels": "torch-sdpa", "seq": seq, "micro_batch": MICRO_BATCH, "accumulation": accumulation, "precision": precision,
            "clip": clip, "parallel": parallel or {"pipeline": 2}, "deepspeed": ds}
    if recompute != "none":
        plan["recompute"] = recompute
    if deepspeed.__version__ != "0.19.6":
        plan["framework_version"] = deepspeed.__version__
    return plan


SMALL = dict(reduce_bucket_size=300000)
BLOCKS = dict(partition_method="type:block")
PIPE4 = dict(parallel={"pipeline": 4}, world=4)
CASES = {
    "s0_llama_fp32_pp2": case("llama", 0, "fp32"),
    "s0_gpt2_fp32_pp2": case("gpt2", 0, "fp32", **BLOCKS),
    "s0_llama_fp16_pp2": case("llama", 0, "fp16"),
    "s0_gpt2_fp16_pp2": case("gpt2", 0, "fp16", **BLOCKS),
    "s0_llama_bf16_pp2": case("llama", 0),
    "s1_llama_fp32_pp2": case("llama", 1, "fp32", **SMALL),
    "s1_llama_bf16_pp2": case("llama", 1, **SMALL),
    "s1_gpt2_bf16_pp2": case("gpt2", 1, **BLOCKS, **SMALL),
    "s1_llama_bf16_pp2_w4": case("llama", 1, world=4, **SMALL),
    "s1_llama_bf16_pp4_gas6": case("llama", 1, accumulation=6, **PIPE4, **BLOCKS, **SMALL),
    "s1_gpt2_fp32_pp2_gas3": case("gpt2", 1, "fp32", accumulation=3, **BLOCKS, **SMALL),
    "s0_llama_fp16_pp2_gas1": case("llama", 0, "fp16", accumulation=1),
    "s1_llama_bf16_pp2_recompute": case("llama", 1, recompute="full", **SMALL),
    "s1_gpt2_bf16_pp3_gas5": case("gpt2", 1, parallel={"pipeline": 3}, world=3, accumulation=5, **BLOCKS, **SMALL),
    "s1_gpt2-124m_bf16_pp2_gas3": case("gpt2-124m", 1, accumulation=3, seq=64, **BLOCKS),
    "s0_gpt2-124m_fp32_pp3": case("gpt2-124m", 0, "fp32", parallel={"pipeline": 3}, world=3, seq=256, **BLOCKS),
    "s0_llama_bf16_tp2": case("llama", 0, parallel={"tensor": 2}, accumulation=1),
    "s0_llama_fp32_tp2": case("llama", 0, "fp32", parallel={"tensor": 2}, accumulation=2),
    "s3_llama_bf16_tp2_w4": case("llama", 3, world=4, parallel={"tensor": 2}, accumulation=1, **base.PARTED, **base.CUT),
    "s3_llama_bf16_tp2_w4_recompute": case("llama", 3, world=4, parallel={"tensor": 2}, accumulation=1, recompute="full", **base.PARTED,
                                           **base.CUT),
}


def shared_tables(c):
    """layers(), whose blocks get tables that all of them share."""
    made = pipeline.layers({"model": c["model"]})
    tables = {}

    def rotary_once(make):
        class Rotary(make):
            def forward(self, h, positions):
                if h.dtype not in tables:
                    was = base.account.counted(False)
                    with torch.no_grad():
                        tables[h.dtype] = super().forward(h.detach(), positions)
                    base.account.counted(was)
                return tables[h.dtype]
        return Rotary
    for spec in made:
        if spec.typename is pipeline.Block and spec.module_args[1]:
            spec.module_args = (spec.module_args[0], rotary_once(spec.module_args[1]), *spec.module_args[2:])
    return made


def cast(model, plan):
    """Before anything counts: the engine would do it."""
    return model if plan["precision"] == "fp32" else model.to(torch.bfloat16 if plan["precision"] == "bf16" else torch.float16)


def build(plan):
    if "tensor" in plan["parallel"]:
        shape = {k: v for k, v in MODELS[plan["model"]].items() if k not in ("model_type", "architectures")}
        config = transformers.LlamaConfig(**shape)
        config._attn_implementation = "sdpa"
        return base.checkpointed(cast(transformers.LlamaForCausalLM(config), plan), plan)
    return cast(PipelineModule(shared_tables(plan), num_stages=plan["parallel"]["pipeline"], loss_fn=pipeline.loss_of,
                               partition_method=plan["deepspeed"].get("partition_method", "parameters"), checkpointable_layers=["Block"]), plan)


def ds_config(plan):
    rest = {k: v for k, v in plan["deepspeed"].items() if k != "partition_method" and plan["strategy"] != "ddp"}
    config = base.ds_config(dict(plan, deepspeed=rest))
    config["train_micro_batch_size_per_gpu"] = MICRO_BATCH
    if "tensor" in plan["parallel"]:
        config["tensor_parallel"] = {"autotp_size": plan["parallel"]["tensor"]}
    if plan.get("recompute") == "full" and "pipeline" in plan["parallel"]:
        config["pipeline"] = {"activation_checkpoint_interval": 1}
    return config


def batches(plan, rank):
    torch.manual_seed(100 + rank)
    while True:
        was = base.account.counted(False)
        ids = torch.randint(MODELS[plan["model"]]["vocab_size"], (MICRO_BATCH, plan["seq"]))
        base.account.counted(was)
        yield ids, ids


def random_states_are_the_hosts():
    """Checkpoints keep them, on a GPU in the host's memory too."""
    def uncounted(real):
        def state(*args, **kwargs):
            was = base.account.counted(False)
            try:
                return real(*args, **kwargs)
            finally:
                base.account.counted(was)
        return state
    torch.get_rng_state = uncounted(torch.get_rng_state)
    accelerator = deepspeed.accelerator.get_accelerator()
    type(accelerator).get_rng_state = uncounted(type(accelerator).get_rng_state)


def listen_to_messages():
    """Of messages nothing is counted, as of collectives."""
    for name in ("send", "recv"):
        def heard(*args, real=getattr(dist.distributed_c10d, name), **kwargs):
            was = base.account.counted(False)
            try:
                return real(*args, **kwargs)
            finally:
                base.account.counted(was)
                time.sleep(0.001)       # as in listen()
        setattr(dist.distributed_c10d, name, heard)
        setattr(dist, name, heard)


before_step = [0]
instructions = []           # of a step: name, what is live when it is done, the most within it


def watch_instructions():
    """What each of PipelineEngine's instructions takes and leaves, and the peak when the optimizer's turn came."""
    def watched(name, real):
        def run(self, *args, **kwargs):
            account = base.account
            account.drain()
            if name == "OptimizerStep":
                before_step[0] = account.peak
            before, account.peak = account.peak, account.sum
            real(self, *args, **kwargs)
            account.drain()
            instructions.append([name, account.sum, account.peak])
            account.peak = max(before, account.peak)
        return run
    table = pipe_engine.PipelineEngine._INSTRUCTION_MAP
    table.update({kind: watched(kind.__name__, real) for kind, real in table.items()})


def optimizer_step(engine, plan, data):
    if "pipeline" in plan["parallel"]:
        engine.train_batch(data)
        return
    for micro in range(plan["accumulation"]):
        ids, labels = next(data)
        engine.backward(engine(input_ids=ids, labels=labels).loss)
        base.account.drain()
        before_step[0] = base.account.peak
        engine.step()


def rank_main(rank, name, folder):
    plan = CASES[name]
    world = int(plan["cluster"].split(":")[1])
    cut = plan["parallel"].get("pipeline", plan["parallel"].get("tensor"))
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    quiet = os.open(os.path.join(folder, "log%d" % rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pipeline.base.prepare()
    pipeline.prepare_checkpointing()
    # FusedAdam is CUDA; which optimizer is around it goes by its class.
    importlib.import_module("deepspeed.runtime.engine").FusedAdam = torch.optim.AdamW
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=world,
                               init_method="file://%s/store" % folder)
    base.account = account = base.Account()
    torch.manual_seed(7)
    model = build(plan)
    account.counted(True)
    base.to_device(model.parameters(), model.buffers())
    gc.collect()
    base.listen()
    listen_to_messages()
    random_states_are_the_hosts()
    watch_instructions()
    account.mark()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    engine, optimizer = deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config(plan))[:2]
    if "tensor" in plan["parallel"]:
        engine.first_dataloader_check.remove()
    gc.collect()
    phases = {"init": base.phase(engine, optimizer, plan)}
    data = batches(plan, rank % (world // cut) if "pipeline" in plan["parallel"] else rank // cut)
    for step in ("first", "second", "steady"):
        instructions.clear()
        optimizer_step(engine, plan, data)
        phases[step] = dict(base.phase(engine, optimizer, plan), peak_before_step=before_step[0])
    if "pipeline" in plan["parallel"]:
        phases["instructions"] = instructions[:]        # of the steady step
    assert engine.skipped_steps == 0, "a step overflowed"
    phases["optimizer"] = type(optimizer).__name__
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump(phases, f)
    os._exit(0)         # gloo's tear-down is not what is recorded


def run(name):
    world = int(CASES[name]["cluster"].split(":")[1])
    with tempfile.TemporaryDirectory() as folder:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, name, folder)) for r in range(world)]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join(1200)
        if any(p.exitcode != 0 for p in ranks):
            for p in ranks:
                p.kill()
            for r in range(world):
                sys.stderr.write(open(os.path.join(folder, "log%d" % r), errors="replace").read()[-3000:])
            sys.exit(name + ": failed")
        return [json.load(open(os.path.join(folder, "out%d" % r))) for r in range(world)]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--only", default="")
    args.add_argument("-o", default="cpu_ranks_pipeline.jsonl")
    args = args.parse_args()
    pipeline.MODELS.update(MODELS)
    for config in MODELS.values():
        pipeline.families.load_classes(config)
    with open(args.o, "w") as out:
        print(json.dumps({"torch": torch.__version__, "deepspeed": deepspeed.__version__, "transformers": transformers.__version__,
                          "models": MODELS}, separators=(",", ":")), file=out)
        for name, plan in CASES.items():
            if args.only not in name:
                continue
            print(name, file=sys.stderr, flush=True)
            print(json.dumps({"name": name, "plan": plan, "ranks": run(name)}, separators=(",", ":")), file=out, flush=True)


if __name__ == "__main__":
    main()
