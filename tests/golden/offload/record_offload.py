#!/usr/bin/env python3
"""Records DeepSpeed with offload on CPU ranks: collectives, what it pins, its host buffers, files and copies.

    python record_offload.py OUTDIR [CASE ...]

Writes OUTDIR/CASE.txt, the collectives in the format of ../collectives/record_deepspeed.py, and OUTDIR/CASE.json:

    {"plan": a dpx plan.json, "versions": {...}, "ranks": [one object a rank:
        {"pinned":  {PHASE: [[bytes, function], ...]},      each call of accelerator.pin_memory()
         "locked":  {PHASE: [[bytes, function], ...]},      each aio_handle.new_cpu_locked_tensor()
         "buffers": {NAME: [bytes, ...]},                   tensors that the optimizer keeps, after the last step
         "copies":  {PHASE: [[function, calls, bytes read, bytes written], ...]},   Tensor.copy_() called from DeepSpeed's
                                                            runtime/zero: the CPU stands for both sides, the function tells
                                                            which copy it is on a GPU
         "files":   {PHASE: [[name, bytes], ...]}}]}        below nvme_path, after the phase

PHASE is init, first, steady (the second step).  Three steps are trained, as there.  Nothing is really pinned on the CPU:
accelerator.pin_memory() is a no-op, of which the arguments are recorded.

Needs torch, transformers and deepspeed (DS_BUILD_OPS=0), ninja and g++ (DeepSpeedCPUAdam is compiled on first use) and
libaio-dev (its asynchronous reads and writes, likewise).  Files go below $TMPDIR, on a file system that has O_DIRECT.
"""
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "collectives"), os.path.join(HERE, "..", "tune")]
import record_deepspeed as rec          # sets the environment, then imports torch and deepspeed

import torch
import torch.multiprocessing as mp
import transformers
import deepspeed
import record_lists as tuned

# A tensor goes to disk from 1 MiB on: half of 4 * 384 * 384 fp32 elements is more, half of 384 * 384 less.
GPT2_DISK = dict(rec.GPT2, n_layer=2, n_embd=384, n_head=4)
rec.MODELS["gpt2disk"] = GPT2_DISK
# Half of 4 * 384 * 384 + 1 elements is no multiple of 256: a tail that stays behind.
LLAMA_DISK = dict(rec.LLAMA, num_hidden_layers=2, hidden_size=400, intermediate_size=1507)
rec.MODELS["llamadisk"] = LLAMA_DISK

NVME = "NVME_PATH"                      # replaced by a folder


def opt(device="cpu", **more):
    return dict(device=device, **more) if device == "cpu" else dict(device=device, nvme_path=NVME, **more)


def case(*args, optimizer=None, param=None, aio=None, tune=None, **ds):
    if optimizer:
        ds["offload_optimizer"] = optimizer
    if param:
        ds["offload_param"] = param
    c = rec.case(*args, **ds)
    c["aio"], c["tune"] = aio, tune
    return c


SMALL, TINY = rec.SMALL, rec.TINY
CPU = dict(optimizer=opt())
PART = dict(stage3_param_persistence_threshold=0)
CASES = {
    "s1_gpt2_bf16":             case("gpt2", 1, "bf16", **CPU, **SMALL),
    "s1_gpt2_bf16_gas3_clip":   case("gpt2", 1, "bf16", 3, clip=1.0, **CPU, **TINY),
    "s1_gpt2_fp32_overlap":     case("gpt2", 1, "fp32", overlap_comm=True, **CPU, **TINY),
    "s1_llama_fp16_w3":         case("llama", 1, "fp16", world=3, **CPU, **SMALL),
    "s1_gpt2odd_bf16_gas2_w3":  case("gpt2odd", 1, "bf16", 2, world=3, **CPU, reduce_bucket_size=1000),
    "s1_gpt2_bf16_noncontiguous": case("gpt2", 1, "bf16", contiguous_gradients=False, **CPU, **SMALL),
    "s2_gpt2_bf16":             case("gpt2", 2, "bf16", **CPU, **SMALL),
    "s2_gpt2_bf16_gas3":        case("gpt2", 2, "bf16", 3, clip=1.0, **CPU, **TINY),
    "s2_llama_bf16_overlap_gas2": case("llama", 2, "bf16", 2, overlap_comm=True, **CPU, **TINY),
    "s2_gpt2odd_bf16_gas2_w3":  case("gpt2odd", 2, "bf16", 2, world=3, **CPU, reduce_bucket_size=1000),
    "s2_gpt2_fp32":             case("gpt2", 2, "fp32", **CPU, **TINY),
    "s2_gpt2_fp16_gas2":        case("gpt2", 2, "fp16", 2, **CPU, **SMALL),
    "s2_llama_bf16_unpinned":   case("llama", 2, "bf16", 2, optimizer=opt(pin_memory=False), **SMALL),
    "s2_gpt2_bf16_nvme":        case("gpt2", 2, "bf16", optimizer=dict(device="nvme"), **SMALL),
    "s2_gpt2_bf16_roundrobin_w3": case("gpt2", 2, "bf16", 2, world=3, round_robin_gradients=True, **CPU, **TINY),
    "s2_gpt2_bf16_multirank_off": case("gpt2", 2, "bf16", use_multi_rank_bucket_allreduce=False, **CPU, **SMALL),
    "s2_llama_bf16_noscatter_wire": case("llama", 2, "bf16", 2, reduce_scatter=False, communication_data_type="fp32", **CPU,
                                         **SMALL),
    "s3_gpt2_bf16":             case("gpt2", 3, "bf16", **CPU, **PART, **SMALL),
    "s3_gpt2_bf16_gas3_clip":   case("gpt2", 3, "bf16", 3, clip=1.0, **CPU, **PART, **TINY),
    "s3_gpt2_fp32_gas2":        case("gpt2", 3, "fp32", 2, **CPU, **PART, **SMALL),
    "s3_llama_fp16_unpinned":   case("llama", 3, "fp16", 2, optimizer=opt(pin_memory=False), **PART, **SMALL),
    "s3_gpt2_bf16_persistent":  case("gpt2", 3, "bf16", 2, **CPU, stage3_param_persistence_threshold=1000, **SMALL),
    "s3_gpt2w_bf16_subgroups_w3": case("gpt2w", 3, "bf16", 2, world=3, sub_group_size=100000, **CPU, **PART, **SMALL),
    "s3_gpt2w_bf16_ratio":      case("gpt2w", 3, "bf16", 2, sub_group_size=100000, optimizer=opt(ratio=0.4), **PART, **SMALL),
    "s3_gpt2w_bf16_ratio09":    case("gpt2w", 3, "bf16", 1, sub_group_size=60000, optimizer=opt(ratio=0.9), **PART, **SMALL),
    "s3_gpt2_bf16_param_cpu":   case("gpt2", 3, "bf16", 2, param=opt(), **PART, **SMALL),
    "s3_gpt2_bf16_both_cpu":    case("gpt2", 3, "bf16", 2, param=opt(), **CPU, **PART, **SMALL),
    "s3_llama_bf16_both_cpu_unpinned": case("llama", 3, "bf16", param=opt(pin_memory=False), optimizer=opt(pin_memory=False),
                                            stage3_param_persistence_threshold=100, **SMALL),
    "s3_gpt2odd_bf16_both_cpu_w3": case("gpt2odd", 3, "bf16", 2, world=3, param=opt(), **CPU, **PART, reduce_bucket_size=1000),
    "s3_gpt2_bf16_both_cpu_prefetch": case("gpt2", 3, "bf16", 2, param=opt(), **CPU, **PART, **SMALL,
                                           stage3_prefetch_bucket_size=10000, stage3_max_reuse_distance=0),
    "s3_gpt2disk_bf16_nvme":    case("gpt2disk", 3, "bf16", 2, optimizer=opt("nvme"), sub_group_size=1000000, **PART),
    "s3_gpt2disk_bf16_nvme_pipeline": case("gpt2disk", 3, "bf16", 2, sub_group_size=700000, clip=1.0, **PART,
                                           optimizer=opt("nvme", pipeline_read=True, pipeline_write=True, buffer_count=8)),
    "s3_gpt2disk_fp32_nvme_read": case("gpt2disk", 3, "fp32", 1, sub_group_size=700000, **PART,
                                       optimizer=opt("nvme", pipeline_read=True, buffer_count=8)),
    "s3_llamadisk_bf16_nvme_aio": case("llamadisk", 3, "bf16", 2, optimizer=opt("nvme"), sub_group_size=1000000, **PART,
                                       aio=dict(block_size=262144, queue_depth=16, intra_op_parallelism=2)),
    "s3_gpt2disk_bf16_param_nvme": case("gpt2disk", 3, "bf16", 2, param=opt("nvme", buffer_size=600000, max_in_cpu=0), **CPU,
                                        **PART),
    "s3_gpt2disk_bf16_param_nvme_some": case("gpt2disk", 3, "bf16", 1, **CPU, **PART,
                                             param=opt("nvme", buffer_size=600000, max_in_cpu=500000)),
    "s3_gpt2disk_bf16_both_nvme": case("gpt2disk", 3, "bf16", 2, param=opt("nvme", buffer_size=600000, max_in_cpu=0),
                                       optimizer=opt("nvme"), sub_group_size=1000000, **PART),
    "s3_gpt2disk_bf16_both_nvme_fast": case("gpt2disk", 3, "bf16", 1, param=opt("nvme", buffer_size=1200000, max_in_cpu=0),
                                            optimizer=opt("nvme", fast_init=True), sub_group_size=1000000, **PART),
}
# Adapters, and frozen tensors: partitions of these are pinned one by one, and stay so.
LORA, USUAL, SAVED, BIASES = tuned.LORA, tuned.USUAL, tuned.SAVED, tuned.BIASES
SOME = dict(reduce_bucket_size=3000)
CASES.update({
    "s1_llama_lora":      case("llama", 1, "bf16", tune=LORA, **CPU, **SOME),
    "s1_gpt2_usual_gas3_w3": case("gpt2", 1, "bf16", 3, world=3, clip=1.0, tune=USUAL, **CPU, **SOME),
    "s2_llama_lora_gas2": case("llama", 2, "bf16", 2, tune=LORA, **CPU, **SOME),
    "s2_gpt2_biases_fp16_unpinned": case("gpt2", 2, "fp16", tune=BIASES, optimizer=opt(pin_memory=False), reduce_bucket_size=500),
    "s2_llama_saved_overlap_gas3": case("llama", 2, "bf16", 3, overlap_comm=True, tune=SAVED, **CPU, **SOME),
    "s3_llama_lora":      case("llama", 3, "bf16", tune=LORA, **CPU, **PART, **SOME),
    "s3_llama_lora_gas3_clip": case("llama", 3, "bf16", 3, clip=1.0, tune=LORA, **CPU, **PART, **SOME),
    "s3_gpt2_usual_subgroups_w3": case("gpt2", 3, "bf16", 2, world=3, tune=USUAL, sub_group_size=300, **CPU, **PART, **SOME),
    "s3_llama_lora_param": case("llama", 3, "bf16", 2, param=opt(), tune=LORA, **PART, **SOME),
    "s3_llama_lora_both": case("llama", 3, "bf16", 2, param=opt(), tune=LORA, **CPU, **PART, **SOME),
    "s3_llama_saved_both_unpinned": case("llama", 3, "bf16", param=opt(pin_memory=False), optimizer=opt(pin_memory=False), tune=SAVED,
                                               stage3_param_persistence_threshold=100, **SOME),
    "s3_gpt2_biases_both_fp32_w3": case("gpt2", 3, "fp32", 2, world=3, param=opt(), tune=BIASES, **CPU, **PART, reduce_bucket_size=500),
    "s3_llama_usual_both_persistent": case("llama", 3, "bf16", 2, param=opt(), tune=USUAL, **CPU, stage3_param_persistence_threshold=300,
                                                 stage3_prefetch_bucket_size=5000, stage3_max_reuse_distance=9000, **SOME),
    "s3_llama_lora_ratio": case("llama", 3, "bf16", 2, sub_group_size=700, optimizer=opt(ratio=0.4), tune=LORA, **PART, **SOME),
})
FP32 = dict(grad_accum_dtype="fp32")
if deepspeed.__version__ == "0.19.8":
    CASES["s1_gpt2_bf16_accum_fp32"] = case("gpt2", 1, "bf16", 2, **CPU, **FP32, **SMALL)
    CASES["s2_gpt2_bf16_accum_fp32"] = case("gpt2", 2, "bf16", 3, clip=1.0, **CPU, **FP32, **TINY)
    CASES["s2_gpt2odd_bf16_accum_fp32_w3"] = case("gpt2odd", 2, "bf16", 2, world=3, **CPU, **FP32, reduce_bucket_size=1000)
    CASES["s2_llama_fp16_accum_fp32_overlap"] = case("llama", 2, "fp16", 2, overlap_comm=True, **CPU, **FP32, **TINY)


def with_path(x, path):
    if isinstance(x, dict):
        return {k: with_path(v, path) for k, v in x.items()}
    return path if x == NVME else x


def ds_config(c, path):
    config = with_path(rec.ds_config(c), path)
    if c["aio"]:
        config["aio"] = c["aio"]
    return config


def dpx_plan(c):
    plan = dict(with_path(rec.dpx_plan(c), "/local_nvme"), **(c["tune"] or {}))
    if c["aio"]:
        plan["deepspeed"] = dict(plan["deepspeed"], aio=c["aio"])
    return plan


# ----------------------------------------------------------------------------------- listening

phase = ["init"]
pinned, locked, copies = {}, {}, {}


def caller(skip):
    """The nearest function of DeepSpeed's runtime above."""
    f = sys._getframe(skip)
    while f and "/deepspeed/runtime/" not in f.f_code.co_filename:
        f = f.f_back
    return f.f_code.co_name if f else "?"


def listen():
    acc = deepspeed.accelerator.get_accelerator()
    pin = acc.pin_memory

    def pin_memory(tensor, *args, **kwargs):
        pinned.setdefault(phase[0], []).append([tensor.numel() * tensor.element_size(), caller(2)])
        return pin(tensor, *args, **kwargs)
    acc.pin_memory = pin_memory
    copy = torch.Tensor.copy_

    def copy_(self, src, *args, **kwargs):
        f = sys._getframe(1)
        if "/deepspeed/runtime/zero/" in f.f_code.co_filename:
            at = copies.setdefault(phase[0], {}).setdefault(f.f_code.co_name, [0, 0, 0])
            at[0] += 1
            at[1] += src.numel() * src.element_size()
            at[2] += self.numel() * self.element_size()
        return copy(self, src, *args, **kwargs)
    torch.Tensor.copy_ = copy_


class Handle:
    """aio_handle with its locked buffers counted."""

    def __init__(self, real):
        self.real = real

    def __getattr__(self, name):
        return getattr(self.real, name)

    def new_cpu_locked_tensor(self, numel, example):
        locked.setdefault(phase[0], []).append([int(numel) * example.element_size(), caller(2)])
        return self.real.new_cpu_locked_tensor(numel, example)


def listen_to_aio():
    from deepspeed.ops.op_builder import AsyncIOBuilder
    load = AsyncIOBuilder.load

    class Ops:
        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            return getattr(self.real, name)

        def aio_handle(self, *args, **kwargs):
            return Handle(self.real.aio_handle(*args, **kwargs))
    AsyncIOBuilder.load = lambda self, *args, **kwargs: Ops(load(self, *args, **kwargs))


def size(t):
    return t.numel() * t.element_size()


def buffers_of(o):
    out = {}

    def note(name, tensors):
        sizes = [size(t) for t in tensors if torch.is_tensor(t) and t.numel()]
        if sizes:
            out[name] = sizes
    for name in ("single_partition_of_fp32_groups", "param_buffer_of_bit16_for_cpu_offload_groups", "fp32_partitioned_groups_flat",
                 "param_groups_fp16_flat_cpu_memory", "fp16_partitioned_groups_flat"):
        note(name, getattr(o, name, None) or [])
    for name in ("temp_grad_buffer_for_cpu_offload", "temp_grad_buffer_for_gpu_offload", "grad_partitions_flat_buffer"):
        note(name, [getattr(o, name, None)])
    note("accumulated_grads_in_cpu", list((getattr(o, "accumulated_grads_in_cpu", None) or {}).values()))
    masters = getattr(o, "single_partition_of_fp32_groups", None) or getattr(o, "fp32_partitioned_groups_flat", None) or []
    note("grad of masters", [p.grad for p in masters])
    states = list(o.optimizer.state.values())
    note("exp_avg", [s.get("exp_avg") for s in states])
    note("exp_avg_sq", [s.get("exp_avg_sq") for s in states])
    return out


def files_in(path):
    out = []
    for folder, _, names in os.walk(path):
        out += [[os.path.relpath(os.path.join(folder, n), path), os.path.getsize(os.path.join(folder, n))] for n in names]
    return sorted(out)


def rank_main(rank, c, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(c["world"]))
    torch.set_num_threads(1)
    quiet = os.open(os.path.join(folder, "log%d" % rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    rec.prepare()
    listen()
    listen_to_aio()
    rec.listen_to_everything()
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=c["world"],
                               init_method="file://%s/store" % folder)
    nvme = os.path.join(folder, "nvme")
    model = tuned.tune(rec.build(c), c["tune"]) if c["tune"] else rec.build(c)
    vocab = rec.MODELS[c["model"]]["vocab_size"]
    groups = model.parameters()
    if c["ds"].get("offload_optimizer"):
        optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(groups, lr=1e-4)
    else:
        optimizer = torch.optim.AdamW(groups, lr=1e-4)
    rec.take()
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config(c, nvme))
    phases, files = [("init", rec.take())], {"init": files_in(nvme)}
    torch.manual_seed(100 + rank)
    for step in range(rec.STEPS):
        name = phase[0] = ["first", "steady", "steady2"][step]
        for micro in range(c["accumulation"]):
            ids = torch.randint(vocab, (rec.MICRO_BATCH, rec.SEQ))
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            engine.step()
        phases.append((name, rec.take()))
        files[name] = files_in(nvme)
        assert torch.isfinite(loss)
    assert engine.skipped_steps == 0, "a step overflowed: the lists would not be typical"
    mine = "rank%d/" % rank
    out = {"phases": phases, "comments": [], "sizes": [], "optimizer": type(engine.optimizer).__name__,
           "adam": ("DeepSpeedCPUAdam" if c["ds"].get("offload_optimizer") else "torch.optim.AdamW") + ", one parameter group",
           "memory": {"pinned": pinned, "locked": locked, "buffers": buffers_of(engine.optimizer),
                      "copies": {p: [[f] + v for f, v in sorted(x.items())] for p, x in copies.items() if p != "steady2"},
                      "files": {p: [f for f in x if mine in f[0]] for p, x in files.items() if p != "steady2"}}}
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump(out, f)
    os._exit(0)


def collapse(entries):
    """[bytes, function] xN"""
    out = []
    for e in entries:
        if out and out[-1][:2] == e:
            out[-1][2] += 1
        else:
            out.append(e + [1])
    return out


def run(name, c, outdir):
    if c["tune"]:
        import peft                     # noqa: before ranks are forked
    rec.families.load_classes(rec.config_of(c))
    folder = tempfile.mkdtemp()
    try:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, c, folder)) for r in range(c["world"])]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join(900)
        if any(p.exitcode != 0 for p in ranks):
            for p in ranks:
                p.kill()
            print("%s: FAILED" % name)
            for r in range(c["world"]):
                print("".join(open(os.path.join(folder, "log%d" % r), errors="replace").readlines()[-8:]), flush=True)
            return False
        results = [json.load(open(os.path.join(folder, "out%d" % r))) for r in range(c["world"])]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    versions = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    lines = rec.recording(c, results, False, dpx_plan(c), with_path(ds_config(c, NVME), "/local_nvme"))
    with open(os.path.join(outdir, name + ".txt"), "w") as f:
        f.write("\n".join(["# recorded by record_offload.py: deepspeed %s, torch %s, transformers %s" % tuple(versions.values())] +
                          lines) + "\n")
    ranks = [r["memory"] for r in results]
    for r in ranks:
        for what in ("pinned", "locked"):
            r[what] = {p: collapse(x) for p, x in r[what].items() if p != "steady2"}
    with open(os.path.join(outdir, name + ".json"), "w") as f:
        head = json.dumps({"plan": dpx_plan(c), "versions": versions})
        f.write(head[:-1] + ',\n "ranks": [\n' + ",\n".join(json.dumps(r) for r in ranks) + "]}\n")
    print("recorded", name, flush=True)
    return True


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    outdir, names = sys.argv[1], sys.argv[2:] or list(CASES)
    os.makedirs(outdir, exist_ok=True)
    failed = [n for n in names if not run(n, CASES[n], outdir)]
    if failed:
        sys.exit("not recorded: " + " ".join(failed))


if __name__ == "__main__":
    main()
