#!/usr/bin/env python3
"""Real training steps of plans on this GPU: time, memory and kernels of transformers' models under PyTorch.

    python3 torch_steps.py PLANS.jsonl OUT.jsonl [SECONDS]

Each line of PLANS.jsonl (torch_plans.py) is one training.  On one GPU DDP or FSDP2 runs over NCCL, alone; on a cluster of
many rank 0 runs beside a fake process group, whose collectives send nothing: its memory is real, its time is not asked for.
A line that OUT.jsonl has already is not run again; nothing is begun when SECONDS have passed.  DPX_SECONDS says how long
steps are timed (1.5; 0: not at all).  A row gives
  step_s      median of groups of steps, the host running ahead within a group, and their least and most
  allocated, active, reserved, driver     peaks of two steady steps by the allocator, of the whole run, and of the process (NVML)
  kernels     what one step ran on the GPU: name -> [calls, microseconds], by the profiler
  error       why there is nothing of the above
`trace` keeps the profiler's trace of two steps beside OUT.jsonl, `history` what the caching allocator did in the first two (torch_history.py)."""
import contextlib
import functools
import gc
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.profiler import ProfilerActivity, profile, schedule
from torch.testing._internal.distributed.fake_pg import FakeStore

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "memory"))
from torch_options import recompute_by_operator, shifted
import torch_history as history
import torch_more as more

CUDA = torch.cuda.is_available()        # without, the script can be tried
DEVICE = "cuda" if CUDA else "cpu"
SECONDS_TIMED, FEWEST, GROUP = float(os.environ.get("DPX_SECONDS", 1.5)), 3, 4


def world_of(plan):
    *nodes, gpus, _ = plan["cluster"].split("x")
    return int(gpus) * int(nodes[0] if nodes else 1)


def blocks_of(model):
    body = model.base_model
    body = getattr(body, "model", body)
    body = getattr(body, "model", body)         # PEFT's is one further in
    body = getattr(body, "decoder", body)
    return next(getattr(body, name) for name in ("h", "layers") if hasattr(body, name))


def compiled_loss():
    def loss(logits, labels, vocab_size, **_):
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), shifted(labels).flatten(0, 1))
    return torch.compile(loss)


def with_adapters(model, lora):
    from peft import LoraConfig, get_peft_model
    return get_peft_model(model, LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"],
                                            target_modules=lora["target_modules"], task_type="CAUSAL_LM"))


def built(plan):
    """transformers' model with the plan's kernels, recompute and adapters; blocks are compiled as torchtitan compiles them."""
    fields = dict(plan["model"])
    config = transformers.AutoConfig.for_model(**fields)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    config.use_cache = False
    pure = dict(plan.get("fsdp", {}), **plan.get("ddp", {})).get("model_dtype")
    with torch.device(DEVICE):
        model = transformers.AutoModelForCausalLM.from_config(config, **kernels_of(plan), dtype=torch.bfloat16 if pure else torch.float32)
    return finished(model.train(), plan)


def kernels_of(plan):
    """from_config()'s words for the plan's kernels; experts are grouped products."""
    words = {"attn_implementation": "eager" if plan["kernels"] == "torch-eager" else "sdpa"}
    if any(k in plan["model"] for k in ("num_experts", "num_local_experts")):
        words["experts_implementation"] = "grouped_mm"
    return words


def finished(model, plan):
    if plan.get("base_dtype"):
        model = more.to_nf4(model, plan["base_dtype"] == "nf4-double")
    if plan.get("fp8"):
        model = more.to_float8(model, plan)
    if plan.get("train") == "lora":
        model = with_adapters(model, plan["lora"])
    if plan.get("recompute") == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if plan.get("train") == "lora":
            model.enable_input_require_grads()
    if plan.get("recompute") == "op":
        recompute_by_operator(blocks_of(model))
    if plan["kernels"] == "torch-compile":
        for block in blocks_of(model):
            block.compile(fullgraph=True)
    if plan.get("loss") == "compiled":
        model.loss_function = compiled_loss()
    return model


def empty(plan):
    """A model of which one GPU holds a shard only: on the meta device, random weights once it is sharded."""
    config = transformers.AutoConfig.for_model(**plan["model"])
    config.use_cache = False
    pure = plan.get("fsdp", {}).get("model_dtype")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **kernels_of(plan), dtype=torch.bfloat16 if pure else torch.float32)
    return shard(finished(model.train(), plan), plan)


def materialised(model, plan):
    model.to_empty(device=DEVICE)
    with torch.no_grad():
        for p in model.parameters():
            p.to_local().normal_(std=0.02)
        for name, b in model.named_buffers():       # tables of rotations: as the model's own code makes them
            if name.endswith("inv_freq"):
                b.copy_(10000.0 ** -(torch.arange(b.numel(), device=DEVICE) / b.numel()))
            elif b.is_floating_point():
                b.fill_(0.01)
            else:
                b.copy_(torch.arange(b.numel(), device=DEVICE).view_as(b)) if "position" in name else b.fill_(1)
    return model


def mesh_of(plan):
    world, group = world_of(plan), plan.get("shard_group", 0)
    if group and group < world:
        return init_device_mesh(DEVICE, (world // group, group), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(DEVICE, (world,))


def shard(model, plan):
    mesh, keys = mesh_of(plan), plan.get("fsdp", {})
    policy = MixedPrecisionPolicy()
    if plan["precision"] == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=keys.get("reshard_after_forward", True))
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def begin(plan):
    """The plan's model, wrapped.  A model with tied weights is made whole: on the meta device it would come untied."""
    world = world_of(plan)
    if world == 1:
        if CUDA:
            torch.cuda.set_device(0)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if CUDA else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    if plan["strategy"] == "fsdp" and world > 1 and plan["model"].get("tie_word_embeddings") is False:
        return materialised(empty(plan), plan)
    model = built(plan)
    return shard(model, plan) if plan["strategy"] == "fsdp" else nn.parallel.DistributedDataParallel(model)


def with_autocast(plan):
    """FSDP2 has its own policy; a model in bf16 needs none, but for adapters, which PEFT keeps in fp32."""
    pure = plan.get("ddp", {}).get("model_dtype") and plan.get("train") != "lora"
    return plan["strategy"] == "ddp" and plan["precision"] == "bf16" and not pure


def stepper(model, plan):
    shape, vocab = (plan["micro_batch"], plan["seq"]), plan["model"]["vocab_size"]
    ids = torch.randint(vocab, shape, device=DEVICE)
    form = plan.get("optimizer_form", "foreach")
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, foreach=form == "foreach", fused=form == "fused")
    autocast = with_autocast(plan)

    def step():
        for _ in range(plan.get("accumulation", 1)):
            with torch.autocast(DEVICE, torch.bfloat16) if autocast else contextlib.nullcontext():
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            del loss
        if plan.get("clip"):
            nn.utils.clip_grad_norm_(trained, plan["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def wait():
    if CUDA:
        torch.cuda.synchronize()


def timed(step):
    times, begun, start = [], time.perf_counter(), 0.0
    while start - begun < SECONDS_TIMED or (len(times) < FEWEST and start - begun < 4 * SECONDS_TIMED):
        start = time.perf_counter()
        for _ in range(GROUP):
            step()
        wait()
        times.append((time.perf_counter() - start) / GROUP)
    return {"step_s": statistics.median(times), "least_s": min(times), "most_s": max(times), "groups": len(times)}


@functools.cache
def nvml():
    import pynvml
    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)


def driver_bytes():
    """What nvidia-smi shows of this process; and of the whole GPU."""
    try:
        library, gpu = nvml()
        mine = [p.usedGpuMemory for p in library.nvmlDeviceGetComputeRunningProcesses(gpu) if p.pid == os.getpid()]
        return (mine[0] if mine else None), library.nvmlDeviceGetMemoryInfo(gpu).used
    except Exception as why:
        return None, str(why)[:80]


def memory():
    if not CUDA:
        return {}
    stats = torch.cuda.memory_stats()
    mine, whole = driver_bytes()
    return {"allocated": stats["allocated_bytes.all.peak"], "active": stats["active_bytes.all.peak"],
            "reserved": stats["reserved_bytes.all.peak"], "retries": stats["num_alloc_retries"], "driver": mine, "gpu_used": whole}


def annotation(event):
    """What code around kernels calls itself, which the profiler lists beside them."""
    return getattr(event, "is_user_annotation", False) or event.name.startswith(("ProfilerStep", "FSDP::", "nccl:", "Optimizer."))


def profiled(step, trace):
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if CUDA else [])
    with profile(activities=activities, record_shapes=bool(trace), schedule=schedule(wait=0, warmup=1, active=2, repeat=1)) as seen:
        for _ in range(3):
            step()
            wait()
            seen.step()
    if trace:
        seen.export_chrome_trace(trace)
    kernels = {}
    for e in seen.events():
        if e.device_type == torch.autograd.DeviceType.CUDA and not annotation(e):
            k = kernels.setdefault(e.name[:160], [0, 0.0])
            k[0] += 0.5
            k[1] += round(e.time_range.elapsed_us() / 2, 2)
    return {name: [calls, round(us, 1)] for name, (calls, us) in sorted(kernels.items(), key=lambda x: -x[1][1])}


def forget():
    """Gives back what nobody holds; returns the bytes that are still allocated."""
    gc.collect()
    if not CUDA:
        return 0
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    return torch.cuda.memory_allocated()


def file_word(row):
    return "".join(c if c.isalnum() else "-" for c in row["what"][:60])


def measured(row, folder):
    """What main() adds to the row."""
    plan = row["plan"]
    found = {"left_over": forget(), "autocast": with_autocast(plan)}
    torch.manual_seed(1)
    model = begin(plan)
    step = stepper(model, plan)
    forget()                                # what making the model took
    if row.get("history"):
        history.begin()
    begun = time.perf_counter()
    step()
    wait()
    found["first_step_s"] = time.perf_counter() - begun
    step()
    wait()
    first = memory()
    if row.get("history"):
        found["history"] = history.end(os.path.join(folder, "history-%s.json.gz" % file_word(row)))
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        step()
    wait()
    found.update(memory())
    if CUDA:
        found.update(reserved=max(first["reserved"], found["reserved"]))
    if world_of(plan) == 1:
        found.update(timed(step) if SECONDS_TIMED else {})
        trace = "trace-%s.json.gz" % file_word(row) if row.get("trace") else None
        found["kernels"] = profiled(step, trace and os.path.join(folder, trace))
        if trace:
            found["trace"] = trace
    return found


def main():
    plans, to = sys.argv[1:3]
    until = time.monotonic() + (float(sys.argv[3]) if len(sys.argv) > 3 else 1e9)
    done = {json.loads(line)["what"] for line in open(to)} if os.path.exists(to) else set()
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
             "transformers": transformers.__version__, "gpu": torch.cuda.get_device_name(0) if CUDA else "none"}
    for line in open(plans):
        row = json.loads(line)
        if row["what"] in done or time.monotonic() > until:
            continue
        try:
            found = measured(row, os.path.dirname(to) or ".")
        except Exception as why:            # the next plan is another matter
            found = {"error": "%s: %s" % (type(why).__name__, " ".join(str(why).split())[:600])}
        with open(to, "a") as out:
            print(json.dumps(dict(row, **found, **about)), file=out)
        print(row["what"], found.get("error") or "%.2f ms, %.3f GB" % (1e3 * found.get("step_s", 0), found.get("reserved", 0) / 1e9),
              flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
