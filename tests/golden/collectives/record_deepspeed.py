#!/usr/bin/env python3
"""Records the collectives that DeepSpeed issues, as golden lists for dpx.

    python record_deepspeed.py OUTDIR [CASE ...]

Each case trains a small Hugging Face model for three optimizer steps on two or three CPU ranks
(gloo) under deepspeed.initialize() and writes OUTDIR/CASE.txt, or with the family's other cases
OUTDIR/families/FAMILY.txt:

    # versions; what ran; for stage 3 the module trace
    plan {a dpx plan.json on one line}
    rank 0
    init                 everything that deepspeed.initialize() issued
    first                first optimizer step, all its micro-steps
    steady               second optimizer step
    steady2              third one, only where it differs from the second: stage 3 without
                         accumulation, where the second step still compares its module trace
                         among the ranks (six broadcasts); steady2 is then the steady state
    rank 1 ...           only where that rank differs from rank 0

A line is `op group dtype elements [reduce-op] [root R] [xK]`: elements of the full buffer (all_gather: the
whole output, reduce_scatter: the whole input, else the tensor), xK for K identical lines in a row.
A group is NAME/SIZE; one that spans every rank is `world`, else hpZ's is `secondary`, qgZ's `node` and `across`.  Broadcast and reduce end in `root R`,
a rank of the group.

What is intercepted is torch.distributed's own functions, below deepspeed.comm: whatever DeepSpeed
wraps, renames or coalesces, it ends there.  Nothing is emulated: gloo carries out every call.

Needs torch, transformers and deepspeed (installed with DS_BUILD_OPS=0); no compiler is used,
because the one op DeepSpeed would build, the shared-memory all-reduce, serves inference only and
is switched off below; ds_quantizer.py stands in for ZeRO++'s quantiser, which is CUDA.  Ranks are forked from this process, after the slow imports.
"""
import importlib
import inspect
import json
import os
import sys
import tempfile

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TORCHDYNAMO_DISABLE"] = "1"         # Muon's functions: no compiler is used
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29500")

import torch
import torch.distributed as td
import torch.distributed.distributed_c10d as c10d
import torch.multiprocessing as mp
import transformers
import deepspeed
from deepspeed.utils import groups

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../quant"))
import ds_quantizer
import families
import ulysses
from deepspeed_cases import CASES, FAILS, NEW_VERSION, SMALL, TINY, case, family_cases   # also for the recorders that import this one
from deepspeed_models import GPT2, LLAMA, MODELS

DPX_DEFAULT = "0.19.6"      # the framework_version of a plan that names none
STEPS = 3
SEQ = 16
MICRO_BATCH = 2


def config_of(c):
    config = dict(MODELS[c["model"]])
    if c["dropout"]:
        config.update({key: c["dropout"] for key in config if "drop" in key})
    return config


def build(c):
    torch.manual_seed(7)
    model = families.build(config_of(c), "sdpa" if c["kernels"] == "torch-sdpa" else "eager")
    if c["recompute"] == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    return model


# ------------------------------------------------------------------------------- their configs

def ds_config(c):
    """The ds_config.json of a case.  Only what the case names departs from DeepSpeed's defaults."""
    ds = dict(c["ds"])
    config = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": c["accumulation"],
        "gradient_clipping": c["clip"] or 0.0,
        "steps_per_print": 1 << 30,
    }
    if c["precision"] == "bf16":
        config["bf16"] = {"enabled": True}
        if "check_grad_overflow" in ds:
            config["bf16"]["check_grad_overflow"] = ds.pop("check_grad_overflow")
    elif c["precision"] == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 8}    # no overflow in three steps
    if "grad_accum_dtype" in ds:
        config["data_types"] = {"grad_accum_dtype": ds.pop("grad_accum_dtype")}
    ds.pop("decay_groups", None)        # the optimizer's, which the script makes
    if "communication_data_type" in ds:
        config["communication_data_type"] = ds.pop("communication_data_type")
    config["zero_optimization"] = dict(stage=c["stage"], **ds)
    if c["tp"] > 1:
        config["tensor_parallel"] = {"autotp_size": c["tp"]}
    if c["optimizer"]:          # its AdamW would be FusedAdam, which is CUDA
        config["optimizer"] = {"type": c["optimizer"], "params": {"lr": 1e-4, "torch_adam": True}}
    return config


def dpx_plan(c):
    version = {"framework_version": deepspeed.__version__} if deepspeed.__version__ != DPX_DEFAULT else {}
    return {"dpx_plan": 1, **version, "model": config_of(c),
            "cluster": "%dx%dxh100" % (c["world"] // c["node"], c["node"]) if c["node"] else "localhost:%d" % c["world"],
            "strategy": ["ddp", "zero1", "zero2", "zero3"][c["stage"]], "dialect": "deepspeed",
            "kernels": c["kernels"], "seq": SEQ, "micro_batch": MICRO_BATCH,
            "accumulation": c["accumulation"], "precision": c["precision"], "clip": c["clip"],
            **({"parallel": {"context": c["sp"]}} if c["sp"] > 1 else {}),
            **({"parallel": {"tensor": c["tp"]}} if c["tp"] > 1 else {}),
            **({"optimizer": c["optimizer"]} if c["optimizer"] else {}),
            "recompute": c["recompute"], "dropout": c["dropout"], "deepspeed": c["ds"]}


# ------------------------------------------------------------------------- listening to the wire

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32",
          torch.float64: "fp64", torch.uint8: "u8", torch.int8: "i8", torch.int32: "i32",
          torch.int64: "i64", torch.bool: "bool"}
log = []            # collectives of the current phase
tensor_ranks = [1]  # AutoTP's
nested = [0]        # torch implements some collectives by others: only the outermost counts


def group_name(group):
    """NAME/SIZE."""
    ranks = td.get_process_group_ranks(group) if group is not None else range(td.get_world_size())
    second = group is not None and group is groups._get_zero_param_intra_parallel_group()
    if group is not None and group is ulysses.group():
        return "context/%d" % len(ranks)
    if group is not None and tensor_ranks[0] > 1 and group is groups.get_tensor_model_parallel_group():
        return "tensor/%d" % len(ranks)
    if tensor_ranks[0] > 1 and len(ranks) < td.get_world_size():
        return "data/%d" % len(ranks)
    level = next((k.split("_")[0] for k, g in groups._ALL_TO_ALL_GROUP.items() if g is group), None)
    name = ("world" if len(ranks) == td.get_world_size() else {"local": "node", "global": "across"}[level] if level else
            "secondary" if second else ",".join(map(str, ranks)))
    return "%s/%d" % (name, len(ranks))


def root_of(arguments):
    """The root's rank in the group, from its global rank."""
    for name, group_name in (("src", "group_src"), ("dst", "group_dst")):
        if arguments.get(group_name) is not None:
            return " root %d" % arguments[group_name]
        if arguments.get(name) is not None:
            group = arguments.get("group")
            return " root %d" % (td.get_group_rank(group, arguments[name]) if group is not None else arguments[name])
    return ""


def reduce_name(op):
    return str(op).split(".")[-1].lower()


def numel(x):
    return sum(t.numel() for t in x) if isinstance(x, (list, tuple)) else x.numel()


def one_dtype(x):
    return DTYPES[(x[0] if isinstance(x, (list, tuple)) else x).dtype]


def listen(name, op, full, reduces=False):
    """Wraps torch.distributed.<name>; `full` names the argument that holds its full buffer."""
    real = getattr(c10d, name, None)
    if real is None:
        return
    signature = inspect.signature(real)

    def heard(*args, **kwargs):
        if nested[0] == 0:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            group = group_name(bound.arguments.get("group"))
            if full is None:
                log.append("%s %s - 0" % (op, group))
            else:
                buffer = bound.arguments[full]
                tail = " " + reduce_name(bound.arguments["op"]) if reduces else ""
                tail += root_of(bound.arguments) if op in ("reduce", "broadcast") else ""
                log.append("%s %s %s %d%s" % (op, group, one_dtype(buffer), numel(buffer), tail))
        nested[0] += 1
        try:
            return real(*args, **kwargs)
        finally:
            nested[0] -= 1

    setattr(c10d, name, heard)
    if hasattr(td, name):
        setattr(td, name, heard)


def listen_to_everything():
    listen("all_reduce", "all_reduce", "tensor", True)
    listen("all_reduce_coalesced", "all_reduce_coalesced", "tensors", True)
    listen("reduce", "reduce", "tensor", True)
    listen("broadcast", "broadcast", "tensor")
    listen("all_gather", "all_gather", "tensor_list")
    listen("all_gather_into_tensor", "all_gather", "output_tensor")
    listen("_all_gather_base", "all_gather", "output_tensor")
    listen("all_gather_coalesced", "all_gather_coalesced", "output_tensor_lists")
    listen("reduce_scatter", "reduce_scatter", "input_list", True)
    listen("reduce_scatter_tensor", "reduce_scatter", "input", True)
    listen("_reduce_scatter_base", "reduce_scatter", "input", True)
    listen("all_to_all", "all_to_all", "output_tensor_list")
    listen("all_to_all_single", "all_to_all", "output")
    listen("send", "send", "tensor")
    listen("recv", "recv", "tensor")
    listen("isend", "send", "tensor")
    listen("irecv", "recv", "tensor")
    listen("barrier", "barrier", None)
    listen("monitored_barrier", "barrier", None)


def take():
    out, log[:] = list(log), []
    return out


def collapse(lines):
    out = []
    for line in lines:
        if out and out[-1][0] == line:
            out[-1][1] += 1
        else:
            out.append([line, 1])
    return [l if k == 1 else "%s x%d" % (l, k) for l, k in out]


# -------------------------------------------------------- how gradients and modules come and go

def trace_modules(engine, names, events):
    """Writes every fetch (> forward, < backward) and release ()) of ZeRO-3 into `events`."""
    coordinator = engine.optimizer.parameter_offload.get_param_coordinator()
    fetch, release = coordinator.fetch_sub_module, coordinator.release_sub_module

    def fetched(module, forward):
        events.append((">" if forward else "<") + names[id(module)])
        return fetch(module, forward)

    def released(module, forward=False):
        events.append(")" + names[id(module)])
        return release(module, forward)

    coordinator.fetch_sub_module = fetched
    coordinator.release_sub_module = released


def trace_gradients(engine, names, events):
    """Writes every gradient that enters a bucket (+) into `events`."""
    real = getattr(engine.optimizer, "reduce_independent_p_g_buckets_and_remove_grads", None)
    if real is None:
        return

    def seen(param, *args, **kwargs):
        events.append("+" + names[id(param)])
        return real(param, *args, **kwargs)
    engine.optimizer.reduce_independent_p_g_buckets_and_remove_grads = seen


def wrap_comment(title, words, width=110):
    lines, line = [], "# %s:" % title
    for w in words:
        if len(line) + 1 + len(w) > width:
            lines.append(line)
            line = "#  "
        line += " " + w
    return lines + [line]


# ------------------------------------------------------------------------------------- one rank

def prepare():
    """What CPU ranks need before DeepSpeed is initialised."""
    # DeepSpeed would JIT-build its shared-memory all-reduce and oneCCL ops, if a compiler is there.
    # (By name: the attribute deepspeed.comm.torch is PyTorch itself.)
    importlib.import_module("deepspeed.comm.ccl").build_ccl_op = lambda: None
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    # Sorts gradients by type name, "torch.cuda.BFloat16Tensor"; the CPU's is "torch.BFloat16Tensor",
    # without a device, so that no gradient would be reduced at all (contiguous_gradients=false).
    import deepspeed.runtime.zero.stage_1_and_2 as ds_zero12
    ds_zero12.split_half_float_double = lambda tensors: [
        [t for t in tensors if t.dtype == d] for d in (torch.float16, torch.float32, torch.float64,
                                                       torch.bfloat16)
        if any(t.dtype == d for t in tensors)]

    deepspeed.ops.op_builder.QuantizerBuilder = ds_quantizer.QuantizerBuilder
    column = ds_quantizer.quantize      # its scales are a column, of which gloo gathers none
    ds_quantizer.quantize = lambda *args: [t.view(-1) if i else t for i, t in enumerate(column(*args))]
    # Without AMX or AVX512-FP16 DeepSpeed refuses fp16, which PyTorch computes all the same.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True


def begin(rank, c, folder):
    """A rank of the case's gloo group, whose collectives are heard; what it prints goes to a file in the folder."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(c["world"]))
    torch.set_num_threads(1)
    quiet = os.open(os.path.join(folder, "log%d" % rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)

    prepare()
    if c["node"]:
        deepspeed.accelerator.get_accelerator().device_count = lambda: c["node"]
    listen_to_everything()
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank,
                               world_size=c["world"], init_method="file://%s/store" % folder)


def parameters_of(model, c):
    """What the optimizer is given: with decay_groups the two parameter groups of transformers' Trainer."""
    if not c["ds"].get("decay_groups"):
        return model.parameters()
    decay = set(transformers.Trainer.get_decay_parameter_names(None, model))
    return [{"params": [p for n, p in model.named_parameters() if (n in decay) == decays], "weight_decay": 0.1 * decays}
            for decays in (True, False)]


def count_emptied():
    """Calls of empty_cache(), which a CPU has nothing to do for."""
    calls = []
    accelerator = deepspeed.accelerator.get_accelerator()
    accelerator.empty_cache = lambda: calls.append(1)
    return calls


def rank_main(rank, c, folder):
    begin(rank, c, folder)
    model = build(c)
    module_names = {id(m): n or "." for n, m in model.named_modules()}
    param_names = {id(p): n for n, p in model.named_parameters()}
    sizes = [(n, p.numel()) for n, p in model.named_parameters()]
    vocab = MODELS[c["model"]]["vocab_size"]

    tensor_ranks[0] = c["tp"]
    mpu = ulysses.share_positions(model, c["sp"], MICRO_BATCH, SEQ) if c["sp"] > 1 else None
    take()
    emptied = count_emptied()
    optimizer = None if c["optimizer"] else torch.optim.AdamW(parameters_of(model, c), lr=1e-4)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters() if c["optimizer"] else None,
                                           optimizer=optimizer, config=ds_config(c), mpu=mpu)
    phases, emptied_in_init = [("init", take())], len(emptied)

    if c["tp"] > 1:     # the batch of the first step, pickled, is compared among the ranks once: not in the lists
        engine.first_dataloader_check.remove()
        module_names = {id(m): n or "." for n, m in engine.module.named_modules()}
    events, comments = [], []
    if c["stage"] == 3:
        trace_modules(engine, module_names, events)
    if c["stage"] >= 1:
        trace_gradients(engine, param_names, events)
    torch.manual_seed(100 + rank // (c["sp"] * c["tp"]))
    for step in range(STEPS):
        for micro in range(c["accumulation"]):
            events.clear()
            ids = torch.randint(vocab, (MICRO_BATCH, SEQ))
            loss = ulysses.loss(engine, ids, c["sp"], rank) if c["sp"] > 1 else engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            engine.step()
        if step == 1 and events:
            comments = wrap_comment(
                "last micro-step of step 2; + a gradient enters its bucket" +
                ("; module hooks: > forward fetch, < backward fetch, ) release; . is the whole model"
                 if c["stage"] == 3 else ""), events)
        phases.append((["first", "steady", "steady2"][step], take()))
        assert torch.isfinite(loss)
    assert len(emptied) == emptied_in_init
    assert engine.skipped_steps == 0, "a step overflowed: the lists would not be typical"
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump({"phases": phases, "comments": comments, "sizes": sizes, "emptied": emptied_in_init,
                   "optimizer": type(engine.optimizer).__name__,
                   "adam": "MuonWithAuxAdam, two parameter groups" if c["optimizer"] else
                           "torch.optim.AdamW, %s" % ("two parameter groups" if c["ds"].get("decay_groups") else "one parameter group")}, f)
    # Left without destroying the process group: gloo's tear-down is not what is recorded.
    os._exit(0)


def train(name, c):
    """What each rank recorded, or None with the reason on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, c, folder))
                 for r in range(c["world"])]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join(240)
        if all(p.exitcode == 0 for p in ranks):
            return [json.load(open(os.path.join(folder, "out%d" % r))) for r in range(c["world"])]
        for p in ranks:
            p.kill()
        sys.stderr.write("%s: FAILED\n" % name)
        for r in range(c["world"]):
            path = os.path.join(folder, "log%d" % r)
            if os.path.exists(path):
                sys.stderr.write("".join(open(path, errors="replace").readlines()[-12:]))
    return None


def recording(c, results, traces, plan, config):
    """The text of one case: comments (with `traces` also parameters and module hooks), plan, lists."""
    first = results[0]
    out = ["# %d CPU ranks (gloo); engine.optimizer is %s; %s"
           % (c["world"], first["optimizer"], first["adam"]),
           "# ds_config " + json.dumps(config)]
    out.append("# empty_cache() was called %d times in init, and in no step" % first["emptied"])
    if traces:
        out += wrap_comment("parameters in registration order",
                            ["%s=%d" % (n, k) for n, k in first["sizes"]])
        out += first["comments"]
    if first["phases"][3][1] != first["phases"][2][1]:
        out.append("# step 3 differs from step 2: recorded as steady2")
    out.append("plan " + json.dumps(plan))
    for rank, result in enumerate(results):
        if rank > 0 and result["phases"] == first["phases"]:
            continue
        out.append("rank %d" % rank)
        for phase, lines in result["phases"]:
            if phase == "steady2" and lines == result["phases"][2][1]:
                continue
            out.append(phase)
            out += collapse(lines)
    return out


def run(name, cases, outdir):
    out = ["# recorded by record_deepspeed.py: deepspeed %s, torch %s, transformers %s"
           % (deepspeed.__version__, torch.__version__, transformers.__version__)]
    for case_name, c in cases.items():
        families.load_classes(config_of(c))
        results = train(name + " " + case_name, c)
        if not results:
            return False
        out += ([] if len(cases) == 1 else ["", "list " + case_name]) + recording(c, results, c["traces"], dpx_plan(c), ds_config(c))
    path = os.path.join(outdir, name + ".txt")
    with open(path + ".new", "w") as f:
        f.write("\n".join(out) + "\n")
    os.replace(path + ".new", path)
    print("recorded", name, flush=True)
    return True


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    files = {name: {name: c} for name, c in CASES.items()}
    files.update({"families/" + f: family_cases(f) for f in families.FAMILIES})
    failing = {name: {name: c} for name, c in FAILS.items()}
    usual = list(files) if deepspeed.__version__ == DPX_DEFAULT else NEW_VERSION.split()
    outdir, names = sys.argv[1], sys.argv[2:] or usual
    os.makedirs(os.path.join(outdir, "families"), exist_ok=True)
    failed = [n for n in names if not run(n, {**files, **failing}[n], outdir)]
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
