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
    from torchtitan.config import ConfigManager

    lines = [line for line in export(doc, "torchtitan").splitlines() if not line.startswith("#")]
    with contextlib.redirect_stdout(io.StringIO()):
        read = ConfigManager().parse_args([word for line in lines for word in line.split()])
    parallel = doc.get("parallel", {})
    same("tensor", read.parallelism.tensor_parallel_degree, parallel.get("tensor", 1))
    same("pipeline", read.parallelism.pipeline_parallel_degree, parallel.get("pipeline", 1))
    same("length", read.training.seq_len, 512)
    same("CUDA graphs", getattr(read.training, "disable_cuda_graphs", True), True)


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
                 + [plan(parallel__pipeline=2, parallel__pipeline_schedule=s) for s in ("1f1b", "gpipe", "interleaved")]],
    axolotl: ["axolotl", [plan(recompute=r, **adapts) for r in ("none", "full")] + [plan(base_dtype="nf4-double", recompute="full", **adapts)]],
    llamafactory: ["llamafactory", [plan(recompute=r, **adapts) for r in ("none", "full")] + [plan(base_dtype="nf4-double", recompute="full", **adapts)]],
    torch: ["torch", [plan(**two), plan(**two, recompute="full"), plan(**two, unit="half-block"), plan(**two, **ddp),
                      plan(**two, strategy="zero1"), plan(**two, **ddp, **lora, ddp__model_dtype="bf16")]],
}
for judge, (module, plans) in EXPORTS.items():
    if sys.argv[2:] and judge.__name__ not in sys.argv[2:]:
        continue
    for n, doc in enumerate(plans):
        name = f"{judge.__name__} {n + 1}: {doc['strategy']}/{doc['dialect']}"
        if not importlib.util.find_spec(module) or (judge is torch and not importlib.util.find_spec("peft")):
            print(f"{name}\tskip", flush=True)
            continue
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                judge(doc)
            print(f"{name}\tok", flush=True)
        except RuntimeError as e:
            print(f"{name}\t{'skip' if 'no available devices' in str(e) else e}", flush=True)     # FSDP1's plugin asks for a GPU
        except subprocess.CalledProcessError as e:
            print(f"{name}\t{' '.join(e.stderr.split())[-300:]}", flush=True)
        except (Exception, SystemExit) as e:
            print(f"{name}\t{type(e).__name__}: {' '.join(str(e).split())[-700:]}", flush=True)
