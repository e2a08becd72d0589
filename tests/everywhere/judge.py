"""Has each tool itself read what dpxplan exports for it: judge.py DPXPLAN [TOOL...]; a line "NAME<TAB>ok|skip|WHY" for each export.

Nothing is trained but plain PyTorch's and PEFT's scripts, two steps on two CPU ranks."""
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile

DPXPLAN = sys.argv[1]
os.environ.update(DISABLE_VERSION_CHECK="1", TRANSFORMERS_VERBOSITY="error", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")


def plan(model="llama-3.1-8b", cluster="8xh100", strategy="fsdp", dialect="torch", **keys):
    """A plan of defaults with some keys; "ddp.static_graph" is written ddp__static_graph."""
    doc = {"dpx_plan": 1, "model": model, "cluster": cluster, "strategy": strategy, "dialect": dialect, "seq": 512,
           "micro_batch": 2, "accumulation": 4, "precision": "bf16"}
    for key, value in keys.items():
        at = doc
        *objects, last = key.split("__")
        for name in objects:
            at = at.setdefault(name, {})
        at[last] = value
    return doc


def export(doc, target):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(doc, f)
        f.flush()
        return subprocess.run([DPXPLAN, "export", f.name, "--to", target], check=True, capture_output=True, text=True).stdout


def same(what, is_, should):
    assert is_ == should, f"{what} is {is_!r}, the plan has {should!r}"


# ---- DeepSpeed: its own reader, and transformers' Trainer, which fills in "auto" ----

def deepspeed(doc):
    import deepspeed.comm
    from deepspeed.runtime.config import DeepSpeedConfig
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
    from transformers import TrainingArguments

    deepspeed.comm.get_world_size = lambda group=None: 8
    deepspeed.comm.get_rank = lambda group=None: 0
    text = json.loads(export(doc, "deepspeed"))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, learning_rate=2e-5, per_device_train_batch_size=2, gradient_accumulation_steps=4, use_cpu=True,
                                 max_grad_norm=text["gradient_clipping"])
        args._n_gpu = 1
        filled = HfTrainerDeepSpeedConfig(json.loads(json.dumps(text)))
        type(args).world_size = property(lambda self: 8)
        args.bf16, args.fp16 = doc["precision"] == "bf16", doc["precision"] == "fp16"
        filled.trainer_config_process(args)
        assert not filled.mismatches, filled.mismatches
        if "optimizer" in filled.config:
            same("lr", filled.config["optimizer"]["params"]["lr"], 2e-5)
    for optimizer in [text.get("optimizer", {})]:
        optimizer.get("params", {}).update(lr=2e-5, betas=[0.9, 0.999], eps=1e-8, weight_decay=0)
    read = DeepSpeedConfig(text)
    same("stage", read.zero_optimization_stage, {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}[doc["strategy"]])
    same("micro-batch", read.train_micro_batch_size_per_gpu, 2)
    same("accumulation", read.gradient_accumulation_steps, 4)
    same("bf16", read.bfloat16_config.enabled if hasattr(read, "bfloat16_config") else read.bfloat16_enabled, doc["precision"] == "bf16")


# ---- accelerate: its launcher's reading, then the plugin that a training makes of the environment ----

def accelerate(doc):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env
    import accelerate.utils.dataclasses as of

    of.get_current_device_type = lambda: ("cuda", "cuda")       # it only names the device

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(export(doc, "accelerate"))
        f.flush()
        config = load_config_from_file(f.name)
        args = launch_command_parser().parse_args(["--config_file", f.name, "train.py"])
        with contextlib.redirect_stdout(io.StringIO()):
            args = _validate_launch_command(args)[0]
        back = subprocess.run([DPXPLAN, "import", f.name, "--model", doc["model"], "--cluster", doc["cluster"]], capture_output=True, text=True, check=True)
        for key in ("seq", "micro_batch", "accumulation"):
            same(key, json.loads(back.stdout)[key], doc[key])
    same("processes", config.num_processes, 8)
    same("precision", config.mixed_precision, {"fp32": "no"}.get(doc["precision"], doc["precision"]))
    if doc["strategy"] != "fsdp":
        return
    env = prepare_multi_gpu_env(args)
    os.environ.update({k: v for k, v in env.items() if k.startswith(("FSDP", "ACCELERATE"))})
    plugin = FullyShardedDataParallelPlugin()
    same("version", plugin.fsdp_version, 2 if doc["dialect"] == "torch" else 1)
    same("checkpointing", plugin.activation_checkpointing, doc.get("recompute") == "full")
    for key in [k for k in os.environ if k.startswith(("FSDP", "ACCELERATE"))]:
        del os.environ[key]


# ---- torchtitan: its ConfigManager ----

def torchtitan(doc):
    from importlib.metadata import version
    from torchtitan.config import ConfigManager

    old = version("torchtitan").startswith("0.2")
    once = doc.get("recompute") == "op" or "recompute_interval" in doc          # 0.2.2 has it, 0.3.0 has not
    try:
        lines = [line for line in export(doc, "torchtitan-0.2.2" if old else "torchtitan").splitlines() if not line.startswith("#")]
    except subprocess.CalledProcessError as e:
        assert once and not old and e.returncode == 2, e.stderr
        return
    with contextlib.redirect_stdout(io.StringIO()):
        read = ConfigManager().parse_args([word for line in lines for word in line.split()])
    parallel = doc.get("parallel", {})
    same("tensor", read.parallelism.tensor_parallel_degree, parallel.get("tensor", 1))
    same("pipeline", read.parallelism.pipeline_parallel_degree, parallel.get("pipeline", 1))
    same("length", read.training.seq_len, 512)
    same("CUDA graphs", getattr(read.training, "disable_cuda_graphs", True), True)
    same("compile", read.compile.enable, doc.get("kernels") == "torch-compile")
    same("samples", read.training.global_batch_size, 8 * (8 // (parallel.get("tensor", 1) * parallel.get("pipeline", 1))))
    checkpoint = read.activation_checkpoint
    same("recompute", checkpoint.mode if old else "full" if type(checkpoint).__qualname__.startswith("FullAC") else "none",
         "selective" if once else doc.get("recompute", "none"))
    same("offload", read.training.enable_cpu_offload, bool(doc.get("fsdp", {}).get("cpu_offload")))
    same("clip", read.training.max_norm, doc.get("clip", float("inf")))
    if old:
        if once:
            same("which", checkpoint.selective_ac_option, str(doc.get("recompute_interval", "op")))
        same("model", (read.model.name, read.model.flavor), ("llama3", "8B"))
        same("float8", read.quantize.linear.float8.recipe_name, doc.get("fp8"))
        same("converters", read.model.converters, ["quantize.linear.float8"] if "fp8" in doc else [])


# ---- Megatron-LM: the parser and validate_args() of a checkout (MEGATRON=, its root), then the config that its model is made of ----

def megatron(doc):
    import shlex
    import typing

    import torch

    sys.path.insert(0, os.environ["MEGATRON"])
    if not hasattr(typing, "override"):                 # Python 3.12's, which its newest releases import
        typing.override = lambda method: method
    import megatron.core.utils as utils
    utils.get_te_version = lambda: utils.PkgVersion("2.13.0")
    import megatron.core.models.common.embeddings.rope_utils as rope
    rope.fused_apply_rotary_pos_emb = rope.fused_apply_rotary_pos_emb or len
    from megatron.training import arguments

    # A node of eight H100 with Transformer Engine, as far as the arguments ask for one.
    gpu = type("gpu", (), {"major": 9, "minor": 0, "name": "NVIDIA H100", "multi_processor_count": 132, "total_memory": 80 << 30})
    for name, is_ in {"get_device_capability": (9, 0), "get_device_properties": gpu, "is_available": True, "device_count": 8, "current_device": 0}.items():
        setattr(torch.cuda, name, lambda *_, is_=is_: is_)
    os.environ.update(WORLD_SIZE="8", RANK="0", LOCAL_RANK="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
    of_the_training = "--train-iters 10 --lr 1e-4 --tokenizer-type NullTokenizer --mock-data --split 1"
    before, sys.argv = sys.argv, ["pretrain_gpt.py", *shlex.split(export(doc, "megatron"), comments=True), *of_the_training.split()]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            args = arguments.parse_args()
            args = arguments.validate_args(args) or args
            config = arguments.core_transformer_config_from_args(args)
    finally:
        sys.argv = before
    degree = {key: doc.get("parallel", {}).get(key, 1) for key in ("tensor", "pipeline", "context", "expert", "virtual_stages")}
    same("tensor", config.tensor_model_parallel_size, degree["tensor"])
    same("pipeline", config.pipeline_model_parallel_size, degree["pipeline"])
    same("chunks", config.virtual_pipeline_model_parallel_size or 1, degree["virtual_stages"])
    same("context", config.context_parallel_size, degree["context"])
    same("expert", config.expert_model_parallel_size, degree["expert"])
    same("data ranks", args.data_parallel_size, 8 // (degree["tensor"] * degree["pipeline"] * degree["context"]))
    same("micro-batch", args.micro_batch_size, 2)
    same("samples", args.global_batch_size, 8 * args.data_parallel_size)
    same("length", args.seq_length, 512)
    same("sequence parallelism", bool(config.sequence_parallel), bool(doc.get("parallel", {}).get("sequence")))
    same("type", args.params_dtype, {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[doc["precision"]])
    same("distributed optimizer", args.use_distributed_optimizer, doc["strategy"] == "zero1")
    same("recompute", config.recompute_granularity, {"none": None}.get(doc.get("recompute", "none"), doc.get("recompute")))
    same("fp8", config.fp8 or "none", doc.get("megatron", {}).get("fp8_format", "none"))
    same("blocks and width", (config.num_layers, config.hidden_size),
         {"llama-3.1-8b": (32, 4096), "gpt2": (12, 768), "mixtral-8x7b": (32, 4096), "qwen3-8b": (36, 4096), "deepseek-v3": (61, 7168)}[doc["model"]])


# ---- axolotl and LLaMA-Factory: their own schemas ----

def axolotl(doc):
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig

    read = AxolotlInputConfig(**yaml.safe_load(export(doc, "axolotl")))
    same("length", read.sequence_len, 512)
    same("adapter", read.adapter, "qlora" if "nf4" in doc.get("base_dtype", "") else "lora")
    same("rank", read.lora_r, doc["lora"]["rank"])


def llamafactory(doc):
    import yaml
    from llamafactory.hparams.parser import _parse_train_args

    text = yaml.safe_load(export(doc, "llamafactory"))
    text.update(bf16=False, use_cpu=True)           # this machine has no GPU
    text.pop("deepspeed", None)
    with contextlib.redirect_stdout(io.StringIO()):
        model, data, training, finetuning, _ = _parse_train_args(text)
    assert data.cutoff_len in (511, 512), data.cutoff_len        # packing takes one off, and pads to a multiple of 8
    same("rank", finetuning.lora_rank, doc["lora"]["rank"])
    same("accumulation", training.gradient_accumulation_steps, 4)
    same("recompute", model.disable_gradient_checkpointing, doc.get("recompute", "none") == "none")
    same("bits", model.quantization_bit, 4 if "nf4" in doc.get("base_dtype", "") else None)


# ---- plain PyTorch and PEFT: the script itself runs, on two ranks of gloo ----

RUN = """
import os, sys, torch, torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM
dist.init_process_group("gloo")
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                     num_key_value_heads=2, vocab_size=256))
script = open(sys.argv[1]).read()
script = script.replace('"cuda"', '"cpu"').replace("device_ids=[torch.cuda.current_device()],", "").replace("device_id=torch.cuda.current_device(),", "")
exec(script)
for step in range(2):
    tokens = torch.randint(0, 256, (2, 16))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled="torch.autocast" in script):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert torch.isfinite(loss), loss
wide = all(p.dtype == torch.float32 for p in model.parameters() if p.requires_grad)
assert wide, {p.dtype for p in model.parameters()}
dist.destroy_process_group()
"""


def torch(doc):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ("run.py", RUN), ("wrap.py", export(doc, "fsdp")):
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
        ran = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29617", "run.py", "wrap.py"],
                             cwd=folder, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert ran.returncode == 0, ran.stderr[-1500:]


lora = {"train": "lora", "lora__rank": 16, "lora__alpha": 32, "lora__target_modules": ["q_proj", "v_proj"]}
ddp = {"strategy": "ddp", "dialect": "torch"}
adapts = {**ddp, **lora, "ddp__model_dtype": "bf16", "optimizer_form": "fused", "sync_every_micro_step": False}
two = {"cluster": "2xh100"}


def mega(strategy="zero1", **keys):
    return plan(strategy=strategy, dialect="megatron", **keys)


EXPORTS = {
    deepspeed: ["deepspeed", [plan(strategy=s, dialect="deepspeed", **more)
                              for s in ("ddp", "zero1", "zero2", "zero3") for more in ({}, {"precision": "fp16"}, {"clip": 0.5})]
                + [plan(strategy="zero3", dialect="deepspeed", deepspeed__offload_optimizer__device="cpu"),
                   plan(strategy="zero2", dialect="deepspeed", recompute="full", optimizer_form="foreach")]],
    accelerate: ["accelerate", [plan(reduce_dtype="bf16", recompute=r, fsdp__reshard_after_forward=f) for r in ("none", "full") for f in (None, False)]
                 + [plan(dialect="torch-fsdp1", reduce_dtype="bf16"), plan(dialect="torch-fsdp1", reduce_dtype="bf16", fsdp__sharding_strategy="SHARD_GRAD_OP"),
                    plan(**ddp), plan(strategy="zero2", dialect="deepspeed", clip=1.0), plan(strategy="zero3", dialect="deepspeed", deepspeed__zero_init=True)]],
    torchtitan: ["torchtitan", [plan(recompute=r) for r in ("none", "full")] + [plan(fsdp__reshard_after_forward=False)]
                 + [plan(parallel__tensor=2, parallel__sequence=True), plan(parallel__tensor=4, parallel__sequence=True), plan(kernels="torch-compile")]
                 + [plan(parallel__pipeline=2, parallel__pipeline_schedule=s) for s in ("1f1b", "gpipe", "interleaved")]
                 + [plan(fp8="rowwise", kernels="torch-compile"), plan(fsdp__cpu_offload=True, clip=0.5), plan(recompute="op"),
                    plan(recompute="full", recompute_interval=2), plan(parallel__tensor=2, parallel__sequence=True, kernels="torch-compile", parallel__async_tensor=True)]],
    megatron: ["megatron", [mega(), mega(strategy="ddp"), mega(precision="fp16"), mega(precision="fp32"), mega(model="gpt2"), mega(model="qwen3-8b"),
                            mega(kernels="te"), mega(kernels="te", recompute="selective"), mega(recompute="full"), mega(kernels="te", megatron__fp8_format="hybrid"),
                            mega(parallel__tensor=2, parallel__sequence=True), mega(parallel__context=2, kernels="te"), mega(parallel__pipeline=4),
                            mega(parallel__pipeline=4, parallel__pipeline_schedule="interleaved", parallel__virtual_stages=2),
                            mega(parallel__pipeline=2, parallel__tensor=2, parallel__sequence=True, recompute="full"),
                            mega(model="mixtral-8x7b", parallel__expert=4), mega(model="mixtral-8x7b", parallel__expert=4, parallel__tensor=2, parallel__sequence=True),
                            mega(model="mixtral-8x7b", parallel__expert=2, parallel__pipeline=4, kernels="te"), mega(model="deepseek-v3", parallel__expert=8, kernels="te")]],
    axolotl: ["axolotl", [plan(recompute=r, **adapts) for r in ("none", "full")] + [plan(base_dtype="nf4-double", recompute="full", **adapts)]],
    llamafactory: ["llamafactory", [plan(recompute=r, **adapts) for r in ("none", "full")] + [plan(base_dtype="nf4-double", recompute="full", **adapts)]],
    torch: ["torch", [plan(**two), plan(**two, recompute="full"), plan(**two, unit="half-block"), plan(**two, **ddp),
                      plan(**two, strategy="zero1"), plan(**two, **ddp, **lora, ddp__model_dtype="bf16")]],
}


def found(module):
    if module == "megatron":
        return os.path.exists(os.path.join(os.environ.get("MEGATRON", ""), "megatron/training/arguments.py")) and importlib.util.find_spec("torch")
    return importlib.util.find_spec(module)


for judge, (module, plans) in EXPORTS.items():
    if sys.argv[2:] and judge.__name__ not in sys.argv[2:]:
        continue
    for n, doc in enumerate(plans):
        name = f"{judge.__name__} {n + 1}: {doc['strategy']}/{doc['dialect']}"
        if not found(module) or (judge is torch and not importlib.util.find_spec("peft")):
            print(f"{name}\tskip", flush=True)
            continue
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):     # a file: some ask for its number
                judge(doc)
            print(f"{name}\tok", flush=True)
        except RuntimeError as e:
            print(f"{name}\t{'skip' if 'no available devices' in str(e) else e}", flush=True)     # FSDP1's plugin asks for a GPU
        except subprocess.CalledProcessError as e:
            print(f"{name}\t{' '.join(e.stderr.split())[-300:]}", flush=True)
        except (Exception, SystemExit) as e:
            print(f"{name}\t{type(e).__name__}: {' '.join(str(e).split())[-700:]}", flush=True)
