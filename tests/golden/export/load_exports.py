#!/usr/bin/env python3
"""Loads what `dpxplan export` writes in the packages that it is written for.

    load_exports.py [--dpxplan build/dpxplan] [--torchtitan DIR]

For each plan below: `export --to` every target; deepspeed through DeepSpeedConfig,
accelerate through `accelerate launch`'s own argument check and plugin, torchtitan
through tyro with its configuration classes, fsdp by running the Python on a fake
process group over CPU.  What was loaded is compared with the plan.  A target that
refuses a plan by name counts as refused, a package that is not installed as
skipped.  DIR is an unpacked torchtitan wheel (pip install --no-deps --target DIR
torchtitan==0.3.0 tyro docstring_parser typeguard spmd_types) where it is not importable.

Ran with torch 2.15.0, transformers 5.24.0, accelerate 1.15.0, deepspeed 0.19.8,
torchtitan 0.3.0."""
import argparse
import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import tempfile

GPT2 = dict(model_type="gpt2", n_layer=4, n_embd=64, n_head=4, n_positions=128, vocab_size=257)
LLAMA = dict(model_type="llama", num_hidden_layers=4, hidden_size=64, intermediate_size=128,
             num_attention_heads=4, num_key_value_heads=2, vocab_size=257,
             max_position_embeddings=128, rms_norm_eps=1e-5)


def plan(strategy, dialect, model=GPT2, cluster="2x4xh100", **keys):
    return dict(dpx_plan=1, model=model, cluster=cluster, seq=64, micro_batch=2,
                strategy=strategy, dialect=dialect, **keys)


PLANS = {
    "ds0": plan("ddp", "deepspeed", precision="bf16"),
    "ds1": plan("zero1", "deepspeed", precision="bf16", deepspeed=dict(grad_accum_dtype="fp32")),
    "ds1_fp16": plan("zero1", "deepspeed", precision="fp16", accumulation=3),
    "ds2": plan("zero2", "deepspeed", precision="bf16", clip=0.5, accumulation=4,
                deepspeed=dict(reduce_bucket_size=2e8, overlap_comm=True, round_robin_gradients=True,
                               communication_data_type="fp32", check_grad_overflow=False)),
    "ds2_fp32": plan("zero2", "deepspeed", kernels="dpx", recompute="full"),
    "ds3": plan("zero3", "deepspeed", precision="bf16",
                deepspeed=dict(stage3_max_live_parameters=1e8, stage3_prefetch_bucket_size=1e6)),
    "ds3_loop": plan("zero3", "deepspeed", precision="bf16", optimizer_form="loop"),
    "ds3_plain": plan("zero3", "deepspeed", precision="bf16", clip=1.0),
    "fsdp2": plan("fsdp", "torch", LLAMA, precision="bf16"),
    "fsdp2_bf16": plan("fsdp", "torch", LLAMA, precision="bf16", reduce_dtype="bf16",
                       shard_group=4, recompute="full"),
    "fsdp2_full": plan("fsdp", "torch", LLAMA, precision="bf16", shard_group=4, recompute="full",
                       accumulation=2, clip=1.0, fsdp=dict(reshard_after_forward=False)),
    "fsdp2_keep": plan("fsdp", "torch", LLAMA, precision="bf16", unit="2 blocks",
                       fsdp=dict(reshard_after_forward=False)),
    "fsdp2_half": plan("fsdp", "torch", GPT2, precision="bf16", unit="half-block", accumulation=2,
                       sync_every_micro_step=False, fsdp=dict(reshard_after_forward=2)),
    "fsdp2_half_llama": plan("fsdp", "torch", LLAMA, unit="half-block"),
    "fsdp1": plan("fsdp", "torch-fsdp1", GPT2, precision="bf16", unit="block",
                  fsdp=dict(backward_prefetch="BACKWARD_POST", forward_prefetch=True,
                            use_orig_params=True, limit_all_gathers=True)),
    "fsdp1_hybrid": plan("fsdp", "torch-fsdp1", LLAMA, precision="fp16",
                         fsdp=dict(sharding_strategy="HYBRID_SHARD")),
    "fsdp2_1f1b": plan("fsdp", "torch", LLAMA, precision="bf16", accumulation=6,
                       parallel=dict(pipeline=2, pipeline_schedule="1f1b")),
    "fsdp2_tensor_interleaved": plan("fsdp", "torch", dict(LLAMA, num_hidden_layers=8), precision="bf16", accumulation=4,
                                     parallel=dict(tensor=2, pipeline=2, pipeline_schedule="interleaved", virtual_stages=2)),
    "ddp": plan("ddp", "torch", GPT2, precision="bf16", accumulation=2),
    "ddp_views": plan("ddp", "torch", LLAMA, ddp=dict(bucket_cap_mb=10, static_graph=True,
                                                      gradient_as_bucket_view=True)),
    "zero1": plan("zero1", "torch", GPT2, ddp=dict(parameters_as_bucket_view=True)),
}


def equal(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: the package has {got!r}, the plan {want!r}")


# ---- DeepSpeed ----

def load_deepspeed(p, text, path, args):
    from types import SimpleNamespace
    from unittest import mock
    from deepspeed.runtime import config

    # The only two things it asks of the process group.
    ranks = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: p["cluster"]["world_size"])
    with mock.patch.object(config, "dist", ranks):
        c = config.DeepSpeedConfig(path)
    z, d = c.zero_config, p["deepspeed"]
    equal("stage", int(z.stage), {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}[p["strategy"]])
    equal("micro batch", c.train_micro_batch_size_per_gpu, p["micro_batch"])
    equal("accumulation", c.gradient_accumulation_steps, p["accumulation"])
    equal("clip", c.gradient_clipping, p["clip"] or 0.0)
    equal("bf16", c.bfloat16_config.enabled, p["precision"] == "bf16")
    equal("fp16", c.float16_config.enabled, p["precision"] == "fp16")
    elsewhere = {"grad_accum_dtype": lambda: c.grad_accum_dtype,
                 "check_grad_overflow": lambda: c.bfloat16_config.check_grad_overflow,
                 "communication_data_type": lambda: c.communication_data_type and
                 {"torch.float32": "fp32", "torch.bfloat16": "bf16"}[str(c.communication_data_type)],
                 "gradient_predivide_factor": lambda: c.gradient_predivide_factor}
    for key, value in d.items():
        if key == "check_grad_overflow" and p["precision"] != "bf16":
            continue                    # no option of that precision
        name = key.removeprefix("stage3_")
        if key == "zero_init":
            continue                    # of the script
        if value is None and "threshold" in key:
            value = sys.maxsize         # no limit
        if key == "compute_grad_norm" and not hasattr(z, name):
            continue                    # from 0.19.8 on
        equal(key, elsewhere[key]() if key in elsewhere else getattr(z, name), value)


    check_filled_in(p, path)


def check_filled_in(p, path):
    """transformers' Trainer puts its own numbers into the optimizer's section, and finds nothing that contradicts it."""
    from types import SimpleNamespace
    from transformers.integrations import HfTrainerDeepSpeedConfig

    c = HfTrainerDeepSpeedConfig(path)
    c.trainer_config_process(SimpleNamespace(
        world_size=p["cluster"]["world_size"], per_device_train_batch_size=p["micro_batch"], gradient_accumulation_steps=p["accumulation"],
        max_grad_norm=p["clip"] or 0.0, learning_rate=2e-5, adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-6, weight_decay=0.1,
        save_on_each_node=False, fp16=p["precision"] == "fp16", fp16_full_eval=False, bf16=p["precision"] == "bf16", bf16_full_eval=False))
    equal("mismatches", c.mismatches, [])
    equal("optimizer", {k: v for k, v in c.config["optimizer"]["params"].items() if k not in ("torch_adam", "foreach")},
          {"lr": 2e-5, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1})


# ---- accelerate ----

def load_accelerate(p, text, path, args):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    config = load_config_from_file(path)
    equal("num_processes", config.num_processes, p["cluster"]["world_size"])
    launch, _, _ = _validate_launch_command(
        launch_command_parser().parse_args(["--config_file", path, "train.py"]))
    equal("mixed_precision", launch.mixed_precision,
          {"fp32": "no"}.get(p["precision"], p["precision"]))
    if p["dialect"] == "deepspeed":
        equal("zero_stage", launch.zero_stage, int(p["strategy"][-1]) if "zero" in p["strategy"] else 0)
        equal("accumulation", int(launch.gradient_accumulation_steps), p["accumulation"])
        return
    equal("use_fsdp", bool(launch.use_fsdp), p["strategy"] == "fsdp")
    if p["strategy"] == "fsdp":
        check_plugin(p, prepare_multi_gpu_env(launch))


def check_plugin(p, env):
    import torch
    from accelerate.utils import FullyShardedDataParallelPlugin
    before = dict(os.environ)
    # synchronising module states wants a GPU, which is not what is checked here
    os.environ.update({k: v for k, v in env.items() if isinstance(v, str)},
                      FSDP_SYNC_MODULE_STATES="false", FSDP_CPU_RAM_EFFICIENT_LOADING="false")
    try:
        plugin = FullyShardedDataParallelPlugin()
    finally:
        os.environ.clear()
        os.environ.update(before)
    f = p["fsdp"]
    equal("fsdp_version", plugin.fsdp_version, 2 if p["dialect"] == "torch" else 1)
    if plugin.fsdp_version == 2:
        equal("reshard", plugin.reshard_after_forward, f["reshard_after_forward"] is not False)
        return
    prefetch = plugin.backward_prefetch.name if plugin.backward_prefetch else "NO_PREFETCH"
    equal("strategy", plugin.sharding_strategy.name, f["sharding_strategy"])
    equal("backward_prefetch", prefetch, f["backward_prefetch"])
    equal("forward_prefetch", plugin.forward_prefetch, f["forward_prefetch"])
    equal("use_orig_params", plugin.use_orig_params, f["use_orig_params"])
    equal("limit_all_gathers", plugin.limit_all_gathers, f["limit_all_gathers"])
    equal("cpu_offload", bool(plugin.cpu_offload.offload_params), False)
    policy = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(p["precision"])
    if policy:
        plugin.set_mixed_precision(p["precision"])
        equal("reduce_dtype", plugin.mixed_precision_policy.reduce_dtype, policy)


# ---- torchtitan ----

def load_torchtitan(p, text, path, args):
    if args.torchtitan:
        sys.path.insert(0, args.torchtitan)
    import tyro
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config.configs import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import ActivationCheckpointingConfig, FullAC

    # The sections of Trainer.Config that an export sets; the registry's functions
    # also build tokenizer and data loader, which want their files.  They start as in
    # llama3_405b(), which switches on what a plan does not have.
    section = dataclasses.make_dataclass("Sections", [
        ("training", TrainingConfig, dataclasses.field(default_factory=TrainingConfig)),
        ("parallelism", ParallelismConfig, dataclasses.field(
            default_factory=lambda: ParallelismConfig(tensor_parallel_degree=8))),
        ("compile", CompileConfig, dataclasses.field(
            default_factory=lambda: CompileConfig(enable=True, enable_async_tensor_parallel=True))),
        ("optimizer", type(default_adamw(lr=1e-4)), dataclasses.field(default_factory=lambda: default_adamw(lr=1e-4))),
        ("activation_checkpoint", ActivationCheckpointingConfig, None)])
    words = [w for line in text.splitlines() if not line.startswith(("#", "--module"))
             for w in line.split()]
    c = tyro.cli(section, args=words)
    degrees = p.get("parallel", {})
    stages, tensor = degrees.get("pipeline", 1), degrees.get("tensor", 1)
    t, par, n = c.training, c.parallelism, p["cluster"]["world_size"] // stages // tensor
    equal("seq_len", t.seq_len, p["seq"])
    equal("local_batch_size", t.local_batch_size, p["micro_batch"] * (p["accumulation"] if stages > 1 else 1))
    equal("global_batch_size", t.global_batch_size, p["micro_batch"] * p["accumulation"] * n)
    equal("tensor parallel", par.tensor_parallel_degree, tensor)
    equal("pipeline parallel", par.pipeline_parallel_degree, stages)
    if stages > 1:              # as _build_pipeline_schedule() counts them
        equal("micro-batches", t.local_batch_size // par.pipeline_parallel_microbatch_size, p["accumulation"])
    equal("CUDA graphs", t.disable_cuda_graphs, True)
    equal("AdamW", c.optimizer.implementation, {"loop": "for-loop"}.get(p["optimizer_form"], p["optimizer_form"]))
    equal("compile", c.compile.enable, False)
    equal("param", t.mixed_precision_param, {"bf16": "bfloat16", "fp32": "float32"}[p["precision"]])
    equal("reduce", t.mixed_precision_reduce, "float32")
    equal("shard", par.data_parallel_shard_degree, p["shard_group"])
    equal("replicate", par.data_parallel_replicate_degree, n // p["shard_group"])
    equal("reshard", par.fsdp_reshard_after_forward,
          "never" if p["fsdp"]["reshard_after_forward"] is False else
          "always" if p["fsdp"]["root_reshard_after_forward"] else "default")
    equal("recompute", isinstance(c.activation_checkpoint, FullAC.Config), p["recompute"] == "full")


# ---- PyTorch ----

def load_fsdp(p, text, path, args):
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers import AutoConfig, AutoModelForCausalLM

    # The text as it is, but for the device: there need be no GPU here.
    code = (text.replace('"cuda"', '"cpu"')
            .replace("device_ids=[torch.cuda.current_device()],", "")
            .replace("torch.cuda.current_device()", 'torch.device("cpu")'))
    settings = {k: v for k, v in p["model"].items() if k != "_name_or_path"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=p["cluster"]["world_size"])
    try:
        scope = {"model": model}
        exec(compile(code, path, "exec"), scope)
        check_wrapped(p, scope["model"], scope["optimizer"])
    finally:
        dist.destroy_process_group()


def check_wrapped(p, model, optimizer):
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    if p["strategy"] != "fsdp":
        equal("DDP", isinstance(model, DistributedDataParallel), True)
        equal("views", model.gradient_as_bucket_view, p["ddp"]["gradient_as_bucket_view"])
        equal("static_graph", model.static_graph, p["ddp"]["static_graph"])
        equal("bucket", model.bucket_bytes_cap, int((p["ddp"]["bucket_cap_mb"] or 25) * 1024 * 1024))
        equal("ZRO", isinstance(optimizer, ZeroRedundancyOptimizer), p["strategy"] == "zero1")
        return
    layers = p["model"].get("n_layer") or p["model"]["num_hidden_layers"]
    units = {"model": 0, "block": layers, "half-block": 2 * layers, "2 blocks": layers // 2}[p["unit"]]
    if p["dialect"] == "torch-fsdp1":
        wrapped = FullyShardedDataParallel.fsdp_modules(model)
        equal("units", len(wrapped), units + 1)
        equal("strategy", wrapped[0].sharding_strategy.name, p["fsdp"]["sharding_strategy"])
        equal("reduce_dtype", str(wrapped[0].mixed_precision.reduce_dtype), dtype(p["reduce_dtype"]))
        return
    states = [m._get_fsdp_state() for m in model.modules() if isinstance(m, FSDPModule)]
    groups = {id(g): g for s in states for g in s._fsdp_param_groups}
    equal("units", len(groups), units + 1)
    group = next(iter(groups.values()))
    equal("shard group", group.mesh_info.shard_mesh_size, p["shard_group"])
    equal("param_dtype", str(states[0]._mp_policy.param_dtype), dtype(p["precision"]))
    equal("reduce_dtype", str(states[0]._mp_policy.reduce_dtype), dtype(p["reduce_dtype"]))
    sizes = sorted(len(g.fsdp_params) for g in groups.values())
    equal("parameters", sum(sizes), len(list(model.parameters())))


def dtype(word):
    return {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}[word]


# ---- the matrix ----

LOADERS = {"deepspeed": (load_deepspeed, "json"), "accelerate": (load_accelerate, "yaml"),
           "torchtitan": (load_torchtitan, "txt"), "fsdp": (load_fsdp, "py")}


def export(args, path, target):
    return subprocess.run([args.dpxplan, "export", "--to", target, path], capture_output=True, text=True)


def complete(args, path):
    """The plan with every default, as `dpxplan eval --json` prints it, or as it is."""
    r = subprocess.run([args.dpxplan, "eval", path, "--json"], capture_output=True, text=True)
    return json.loads(r.stdout)["plan"] if r.returncode in (0, 3) else None


def one(args, folder, name, target):
    load, suffix = LOADERS[target]
    path = os.path.join(folder, name + ".json")
    r = export(args, path, target)
    if r.returncode != 0:
        return "refused: " + r.stderr.strip().removeprefix("dpx: ")
    out = os.path.join(folder, f"{name}.{target}.{suffix}")
    with open(out, "w") as f:
        f.write(r.stdout)
    p = complete(args, path)
    if p is None:
        return "FAILED: dpxplan eval"
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            load(p, r.stdout, out, args)
    except ModuleNotFoundError as e:
        return f"skipped: {e}"
    except BaseException as e:          # tyro exits
        return f"FAILED: {type(e).__name__}: {e}"
    return "loaded"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dpxplan", default="build/dpxplan")
    parser.add_argument("--torchtitan", help="folder of an unpacked torchtitan")
    args = parser.parse_args()
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, p in PLANS.items():
            with open(os.path.join(folder, name + ".json"), "w") as f:
                json.dump(p, f)
            for target in LOADERS:
                result = one(args, folder, name, target)
                print(f"{name:17} {target:11} {result}")
                kind = result.split(":")[0]
                counts[kind] = counts.get(kind, 0) + 1
    print(counts)
    return 1 if counts.get("FAILED") else 0


if __name__ == "__main__":
    sys.exit(main())
