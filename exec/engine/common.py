"""What the engines share: the job, the model, tokens, and what is recorded of them.  dpxrun writes the job; nothing of a plan is
decided here.

A rank appends one JSON object a line to rankN.jsonl: versions, then of each phase (init, first, second, steady) its memory and the
collectives in their order, of each step its loss and seconds.  On a GPU memory is torch.cuda.memory_stats() and collectives are
NCCL's flight recorder; on the CPU PyTorch's profiler counts storages, each rounded up to 512 bytes as CUDA's allocator rounds it,
and a process group that hands everything to gloo notes what it is asked for."""
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback

# ---- the job ----

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.json")) as f:
    job = json.load(f)
plan = job["plan"]
grid = plan.get("parallel", {})
cuda = job["device"] == "cuda"


def of_launcher(*names):
    return int(next((os.environ[n] for n in names if n in os.environ), 0))


def meeting_host():
    """Rank 0's, which it writes into the folder that all of them see."""
    path = os.path.join(job["folder"], "host")
    if rank == 0:
        with open(path + ".new", "w") as f:
            f.write(socket.gethostname())
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.1)
    with open(path) as f:
        return f.read()


rank = of_launcher("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
local = of_launcher("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
world = job["world_size"]
os.environ.update(RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=str(world), OMP_NUM_THREADS=str(job["threads"]),
                  TOKENIZERS_PARALLELISM="false", DS_ACCELERATOR="cuda" if cuda else "cpu", TORCH_FR_BUFFER_SIZE="200000")
if "MASTER_ADDR" not in os.environ:
    os.environ["MASTER_ADDR"] = meeting_host()
os.environ.setdefault("MASTER_PORT", str(job["port"]))
ctypes.CDLL(None).prctl(1, signal.SIGKILL)          # PR_SET_PDEATHSIG: no rank outlives its launcher
for stream in (1, 2):
    os.dup2(os.open(os.path.join(job["folder"], "rank%d.log" % rank), os.O_CREAT | os.O_APPEND | os.O_WRONLY), stream)

rows = open(os.path.join(job["folder"], "rank%d.jsonl" % rank), "a", buffering=1)


def tell(event, **fields):
    print(json.dumps(dict(event=event, **fields)), file=rows, flush=True)


def missing(kind, why, trace):
    """Before start(): what a version has not, or has under another name."""
    traceback.print_exception(kind, why, trace)
    lacks = issubclass(kind, (ImportError, AttributeError, Refused))
    root = sys.modules.get((getattr(why, "name", None) or "").split(".")[0])
    version = "%s %s: " % (root.__name__, root.__version__) if hasattr(root, "__version__") else ""
    tell("refused" if lacks else "failed", text="%s%s" % (version, why if lacks else "%s: %s" % (kind.__name__, why)))


class Refused(Exception):
    """What this version of a framework lacks; the message names it."""


sys.excepthook = missing
tell("begin")
import torch
import torch.distributed as dist
import transformers

device = torch.device("cuda", local) if cuda else torch.device("cpu")
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64", torch.uint8: "uint8",
          torch.int8: "int8", torch.int32: "int32", torch.int64: "int64", torch.bool: "bool"}
FLIGHT = {"Float": "fp32", "BFloat16": "bf16", "Half": "fp16", "Double": "fp64", "Byte": "uint8", "Char": "int8", "Int": "int32",
          "Long": "int64", "Bool": "bool"}


def need(module, *names):
    """Attributes of a module, or the version that lacks them by name."""
    root = module.__name__.split(".")[0]
    for name in names:
        if not hasattr(module, name):
            raise Refused("%s %s has no %s.%s" % (root, getattr(sys.modules.get(root), "__version__", "as installed"), module.__name__, name))
    found = [getattr(module, name) for name in names]
    return found[0] if len(found) == 1 else found


# ---- collectives, as they are issued ----

log = []            # [op, the group's ranks, dtype, elements of the full buffer, reduction, root or peer]
memory_is_tracked = False


def reduce_word(op):
    """The name of a ReduceOp, or of its plain enum."""
    kinds = dist.ReduceOp.RedOpType
    return next((n.lower() for n in ("SUM", "AVG", "MAX", "MIN", "PRODUCT", "BAND", "BOR", "BXOR", "PREMUL_SUM") if op == getattr(kinds, n)), "unknown")


def done(result):
    future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def copied(x):
    """Gloo's thread lets go of what it was given some time after wait(), where the profiler sees nothing: of a copy, then."""
    if isinstance(x, (list, tuple)):
        return [copied(y) for y in x]
    return x.detach().clone() if torch.is_tensor(x) else x


def copied_back(to, results):
    """As gloo writes: autograd counts no change."""
    if torch.is_tensor(to):
        to.data.copy_(results)
    elif isinstance(to, (list, tuple)):
        for t, r in zip(to, results):
            copied_back(t, r)


class Noting(dist.ProcessGroup):
    """Gloo, and a note of each call.  Python and C++ alike call these methods.  An average, which gloo lacks, is a sum divided."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.inner, self._size = dist.ProcessGroupGloo(store, rank, size, timeout), size

    def size(self):
        return self._size

    def getBackendName(self):
        return "noting"

    @property
    def pg_name(self):
        return dist.distributed_c10d._world.pg_names[self]

    @property
    def group_name(self):
        return self.pg_name

    def note(self, op, like, elements, reduction=None, root=None):
        ranks = dist.get_process_group_ranks(self)
        log.append([op, ranks, DTYPES.get(like.dtype, str(like.dtype)) if like is not None else None, elements,
                    reduce_word(reduction) if reduction is not None else None, root])

    def ask(self, name, *args, opts=None, result=None):
        average = opts is not None and hasattr(opts, "reduceOp") and reduce_word(opts.reduceOp) == "avg"
        if average:
            opts.reduceOp = dist.ReduceOp.SUM
        tracked = memory_is_tracked and name not in ("send", "recv")       # a message waits for the other's
        given = args
        with torch.profiler.record_function("dpx::backend"):        # what is allocated here is not the framework's
            if tracked:
                given = copied(args)
            work = getattr(self.inner, name)(*given, *([opts] if opts is not None else []))
            if not average and not tracked:
                return work
            work.wait()
            if tracked and args:
                copied_back(args[0], given[0])
        if average:
            for t in result if isinstance(result, (list, tuple)) else [result]:
                t.div_(self._size)
        return done(result)

    def broadcast(self, tensors, opts=None):
        opts = opts or dist.BroadcastOptions()
        self.note("broadcast", tensors[0], tensors[0].numel(), root=opts.rootRank)
        return self.ask("broadcast", tensors, opts=opts, result=tensors)

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        for t in tensors:
            self.note("all_reduce", t, t.numel(), opts.reduceOp)
        return self.ask("allreduce", tensors, opts=opts, result=tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        for t in tensors:
            self.note("all_reduce", t, t.numel(), opts.reduceOp)
        return self.ask("allreduce_coalesced", tensors, opts=opts, result=tensors)

    def reduce(self, tensors, opts):
        self.note("reduce", tensors[0], tensors[0].numel(), opts.reduceOp, opts.rootRank)
        return self.ask("reduce", tensors, opts=opts, result=tensors)

    def allgather(self, outputs, inputs, opts=None):
        for out in outputs:
            self.note("all_gather", out[0], sum(t.numel() for t in out))
        return self.ask("allgather", outputs, inputs, opts=opts or dist.AllgatherOptions(), result=outputs[0])

    def all_gather_single(self, output, inp, opts=None):
        self.note("all_gather", output, output.numel())
        return self.ask("_allgather_base", output, inp, opts=opts or dist.AllgatherOptions(), result=output)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return [self.all_gather_single(out, inp, opts) for out, inp in zip(outputs, inputs)][-1]

    def reduce_scatter(self, outputs, inputs, opts):
        for parts in inputs:
            self.note("reduce_scatter", parts[0], sum(t.numel() for t in parts), opts.reduceOp)
        return self.ask("reduce_scatter", outputs, inputs, opts=opts, result=outputs)

    def reduce_scatter_single(self, output, inp, opts):
        self.note("reduce_scatter", inp, inp.numel(), opts.reduceOp)
        return self.ask("_reduce_scatter_base", output, inp, opts=opts, result=output)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        return [self.reduce_scatter_single(out, inp, opts) for out, inp in zip(outputs, inputs)][-1]

    def scatter(self, outputs, inputs, opts):
        self.note("scatter", outputs[0], outputs[0].numel() * self._size, root=opts.rootRank)
        return self.ask("scatter", outputs, inputs, opts=opts, result=outputs)

    def gather(self, outputs, inputs, opts):
        self.note("gather", inputs[0], inputs[0].numel() * self._size, root=opts.rootRank)
        return self.ask("gather", outputs, inputs, opts=opts, result=outputs)

    def all_to_all_single(self, output, inp, out_splits, in_splits, opts=None):
        self.note("all_to_all", inp, inp.numel())
        return self.ask("alltoall_base", output, inp, out_splits, in_splits, opts=opts or dist.AllToAllOptions(), result=output)

    def send(self, tensors, to, tag):
        self.note("send", tensors[0], tensors[0].numel(), root=to)
        with torch.profiler.record_function("dpx::backend"):        # NCCL has read it in the order of its stream; the sender may drop it
            kept = [t.detach().clone() for t in tensors]
        return self.ask("send", kept, to, tag, result=tensors)

    def recv(self, tensors, source, tag):
        self.note("recv", tensors[0], tensors[0].numel(), root=source)
        return self.ask("recv", tensors, source, tag, result=tensors)

    def barrier(self, opts=None):
        self.note("barrier", None, 0)
        return self.ask("barrier", opts=opts or dist.BarrierOptions(), result=[])

    # what they were called before torch 2.13
    _allgather_base, _reduce_scatter_base, alltoall_base = all_gather_single, reduce_scatter_single, all_to_all_single
    allgather_into_tensor_coalesced, reduce_scatter_tensor_coalesced = all_gather_single_coalesced, reduce_scatter_single_coalesced


def flight():
    """NCCL's own record since the last call, in the same form."""
    c10d = torch._C._distributed_c10d
    dump = getattr(c10d, "_dump_fr_trace", None) or getattr(c10d, "_dump_nccl_trace", None)
    if dump is None:
        raise Refused("torch %s has no flight recorder" % torch.__version__)
    found = []
    for e in pickle.loads(dump()).get("entries", []):
        if e["record_id"] < flight.seen:
            continue
        flight.seen = e["record_id"] + 1
        op, _, more = e["profiling_name"].split(":")[-1].partition(" ")
        op = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter", "all_gather_into_tensor": "all_gather",
              "reduce_scatter_tensor": "reduce_scatter"}.get(op, op)
        sizes = e["output_sizes"] if op == "all_gather" else e["input_sizes"]
        dtypes = e["output_dtypes"] if op == "all_gather" else e["input_dtypes"]
        elements = sum(torch.Size(s).numel() for s in sizes)
        group = next((g for g in dist.distributed_c10d._world.pg_names if dist.distributed_c10d._world.pg_names[g] == e["process_group"][0]), None)
        found.append([op, dist.get_process_group_ranks(group), FLIGHT.get(dtypes[0], dtypes[0]) if dtypes else None, elements, None, None])
    return found


flight.seen = 0


def issued():
    out, log[:] = log + (flight() if cuda else []), []
    return out


@contextlib.contextmanager
def unsaid():
    """Objects that ranks tell each other meanwhile are in nobody's plan."""
    log.extend(flight() if cuda else [])
    n = len(log)
    yield
    if cuda:
        flight()
    del log[n:]


def one_by_one(ops):
    """What NCCL sends as one group."""
    return [op.op(op.tensor, group=op.group, tag=op.tag, **{"group_dst" if op.op is dist.isend else "group_src": op.group_peer}) for op in ops]


def connect():
    if cuda:
        torch.cuda.set_device(device)
        return dist.init_process_group("nccl", device_id=device)
    dist.batch_isend_irecv = one_by_one
    dist.Backend.register_backend("noting", Noting, devices=["cpu"])
    dist.init_process_group("noting")


# ---- memory ----

class Tracker:
    """Storages of the CPU by PyTorch's profiler, from its start to stop(); peaks of the phases between marks."""

    def __init__(self):
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        self.phases = []

    def start(self):
        global memory_is_tracked
        memory_is_tracked = True
        self.profiler.start()

    def mark(self, phase):
        gc.collect()
        self.phases.append(phase)
        with torch.profiler.record_function("dpx::mark"):
            pass

    def stop(self, on_host):
        """[(phase, peak bytes, bytes left)]; on_host: addresses of storages that are host memory on a GPU, too."""
        global memory_is_tracked
        memory_is_tracked = False
        self.profiler.stop()
        events, marks = [], []
        self.walk(self.profiler.profiler.kineto_results.experimental_event_tree(), events, marks)
        own, marks = marks[0][1], sorted(when for when, _ in marks)      # the thread of the rank
        events = sorted((when, address, size) for when, address, size, thread in events if size < 0 or thread == own)
        last = {address: i for i, (_, address, size) in enumerate(events) if size > 0}
        hidden = {last[a] for a in on_host if a in last}
        live, total, peak, out = {}, 0, 0, []
        for i, (when, address, size) in enumerate(events + [(float("inf"), 0, 0)]):
            while len(out) < len(marks) and when > marks[len(out)]:
                out.append((self.phases[len(out)], peak, total))
                peak = total
            if size < 0:
                total -= live.pop(address, 0)
            elif size > 0 and i not in hidden:
                live[address] = -(-size // 512) * 512
                total += live[address]
                peak = max(peak, total)
        return out

    def walk(self, nodes, events, marks, inside=()):
        """What a GPU would not hold does not count; see on_gpu_too()."""
        for n in nodes:
            if n.name == "dpx::mark":
                marks.append((n.start_time_ns, n.start_tid))
            if n.tag.name == "Allocation":
                size = n.extra_fields.alloc_size
                if size < 0 or on_gpu_too(inside, size):
                    events.append((n.start_time_ns, n.extra_fields.ptr, size, n.start_tid))
            self.walk(n.children, events, marks, (*inside, n.name))


ARITHMETIC = {"aten::%s%s" % (op, end) for op in ("add", "sub", "mul", "div") for end in ("", "_")}


def host_memory(function):
    """What it makes is the host's on every device."""
    def call(*args):
        with torch.profiler.record_function("dpx::host"):
            return function(*args)
    return call


def on_gpu_too(inside, size):
    """Whether a GPU would hold a storage that the CPU made inside these calls, the outermost first."""
    if "dpx::backend" in inside or "dpx::host" in inside:           # gloo's, or no tensor of the device
        return False
    if "aten::_chunk_cat" in inside:                # pads each tensor into a new one; one kernel on a GPU
        return False
    if any(outer in ARITHMETIC and inner == "aten::to" for outer, inner in zip(inside, inside[1:])):    # operands of another dtype
        return False
    # A number beside a tensor becomes a tensor of the host on every device: outside of any operator.  Autograd keeps it.
    return size > 16 or any(name.startswith("aten::") for name in inside)


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


class Driver:
    """What NVIDIA's library says of this rank's GPU: its clocks while steps run, what the driver counts for this process.  What it does not
    say is None."""

    def __init__(self):
        self.samples, self.over, self.gpu = [], threading.Event(), ctypes.c_void_p()
        uuid = "GPU-%s" % getattr(torch.cuda.get_device_properties(device), "uuid", "")
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.there = self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.gpu)) == 0
        except (OSError, AttributeError):
            self.there = False

    def clock(self, function, kind):
        value = ctypes.c_uint()
        return value.value if getattr(self.nvml, function)(self.gpu, kind, ctypes.byref(value)) == 0 else None

    def watch(self):
        """Every 50 ms, from now on."""
        def sample():
            while not self.over.is_set():
                self.samples.append([self.clock("nvmlDeviceGetClockInfo", kind) for kind in (1, 2)])       # SM, memory
                self.over.wait(0.05)
        if self.there and not self.samples:
            threading.Thread(target=sample, daemon=True).start()

    def clocks(self):
        """The median in MHz, beside the most that the GPU can."""
        self.over.set()
        if not self.samples:
            return None
        seen = [sorted(v for v in values if v is not None) for values in zip(*self.samples)]
        sm, memory = [v[len(v) // 2] if v else None for v in seen]
        return {"sm_mhz": sm, "sm_most_mhz": self.clock("nvmlDeviceGetMaxClockInfo", 1),
                "memory_mhz": memory, "memory_most_mhz": self.clock("nvmlDeviceGetMaxClockInfo", 2)}

    def bytes(self):
        if not self.there or not hasattr(self.nvml, "nvmlDeviceGetComputeRunningProcesses_v3"):
            return None
        n, list_of = ctypes.c_uint(256), (Process * 256)()
        if self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.gpu, ctypes.byref(n), list_of) != 0:
            return None
        return next((p.bytes for p in list_of[:n.value] if p.pid == os.getpid() and p.bytes < 1 << 63), None)   # all ones: not known


def forget():
    """What building a model took of a GPU, and nobody holds."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def gpu_memory():
    stats = torch.cuda.memory_stats()
    out = {"allocated": stats["allocated_bytes.all.peak"], "active": stats["active_bytes.all.peak"],
           "reserved": stats["reserved_bytes.all.peak"], "retries": stats["num_alloc_retries"], "left": stats["allocated_bytes.all.current"]}
    torch.cuda.reset_peak_memory_stats()
    return out


# ---- the model ----

def blocks_of(model):
    """The ModuleList of the transformer blocks."""
    n = model.config.num_hidden_layers
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == n)


def first_weights(model):
    """All of them by their names; of adapters PEFT's, with the adapter's own name left out."""
    if not job["init"]:
        return
    from safetensors.torch import load_file
    given = load_file(job["init"])
    with torch.no_grad():
        for name, p in model.named_parameters():
            known = name.replace(".default.", "."), name.removeprefix("base_model.model.").replace(".base_layer.", ".")
            name = next((k for k in known if k in given), name)
            if name not in given:
                raise Refused("%s: holds no %s, which transformers %s has" % (job["init"], name, transformers.__version__))
            p.copy_(given.pop(name))
    if given:
        raise Refused("%s: transformers %s has no %s" % (job["init"], transformers.__version__, ", ".join(sorted(given)[:3])))


def packed(model):
    """Frozen weights of blocks in 4 bits: bitsandbytes' layers in the place of linear ones.  to_device() packs what first_weights() gave."""
    if plan.get("base_dtype", "plain") == "plain":
        return model
    layers, params = need(importlib.import_module("bitsandbytes.nn"), "Linear4bit", "Params4bit")
    words = {"quant_type": "nf4", "compress_statistics": plan["base_dtype"] == "nf4-double"}
    compute = torch.bfloat16 if plan["precision"] == "bf16" else torch.float32
    for module in [m for block in blocks_of(model) for m in block.modules()]:
        for name, of in list(module.named_children()):
            if type(of) is torch.nn.Linear:
                new = layers(of.in_features, of.out_features, bias=of.bias is not None, compute_dtype=compute, device="meta", **words)
                new.weight, new.bias = params(of.weight.data, requires_grad=False, **words), of.bias
                setattr(module, name, new)
    model.is_loaded_in_4bit = True              # for PEFT
    return model


def is_packed(p):
    return type(p).__name__ == "Params4bit"


def with_adapters(model):
    """What "train" and "lora" say, by PEFT."""
    if plan.get("train", "all") == "all":
        return model
    try:
        import peft
    except ImportError as why:
        raise Refused("adapters need peft, which this python lacks: %s" % why)
    lora = plan["lora"]
    return peft.get_peft_model(model, peft.LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"],
                                                      target_modules=lora["target_modules"], task_type="CAUSAL_LM"))


def build():
    """transformers' model of the plan's config, in fp32; with random weights of its own where it trains."""
    fields = {k: v for k, v in plan["model"].items() if k != "_name_or_path"}
    config = transformers.AutoConfig.for_model(**fields)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    config.use_cache, config.loss_type = False, "ForCausalLM"
    words = {"attn_implementation": "eager" if plan["kernels"] == "torch-eager" else "sdpa"}
    if any(k in fields for k in ("num_experts", "num_local_experts")):
        words["experts_implementation"] = "grouped_mm"
    torch.manual_seed(job["seed"])
    with contextlib.nullcontext() if job["init"] else device:
        model = with_adapters(packed(transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, **words)).train())
    first_weights(model)
    return model


def to_device(model):
    """Moves it; on the CPU into storages that count."""
    if cuda:
        return model.to(device)
    for module in model.modules():
        if is_packed(module._parameters.get("weight")):         # not the one that an adapter's layer shows
            module.weight = module.weight.to(device)
    moved(t for t in [*model.parameters(), *model.buffers()] if not is_packed(t))
    return model


def moved(tensors):
    with torch.no_grad():
        for t in tensors:
            t.data = t.data.clone()


# ---- wrappers on the CPU ----

def units_moved_on_cpu():
    """FSDP1 moves each unit as it wraps it: on the CPU into storages that count."""
    init = torch.distributed.fsdp._init_utils
    init._move_states_to_device = lambda params, buffers, at: moved([*params, *buffers])


def prepare_deepspeed_on_cpu():
    """Before it is initialised: operators that it would build serve inference only, and gradients are sorted by the names of CUDA's
    tensor types, so that without contiguous_gradients none would be reduced."""
    importlib.import_module("deepspeed.comm.ccl").build_ccl_op = lambda: None
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    zero12 = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2")
    kinds = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
    zero12.split_half_float_double = lambda tensors: [[t for t in tensors if t.dtype == k] for k in kinds if any(t.dtype == k for t in tensors)]


def loss_of(model, ids, labels, of_logits=None):
    """transformers' own loss; the labels are already those of the next token."""
    positions = {"position_ids": torch.arange(plan["seq"], device=device).unsqueeze(0)} if grid.get("tensor", 1) > 1 else {}
    if of_logits:
        return of_logits(model(input_ids=ids, use_cache=False, **positions).logits, labels)
    return model(input_ids=ids, labels=ids, shift_labels=labels, use_cache=False, **positions).loss


def batches(step):
    """Ids and labels of the step's micro-steps, as dpxrun wrote them: [step][micro-step][batch rank][sample][ids, labels][seq]."""
    b, t, n, of = plan["micro_batch"], plan["seq"], plan["accumulation"], job["batch_ranks"]
    mine, size = job["batch_rank"][rank], 8 * b * t
    for micro in range(n):
        with open(os.path.join(job["folder"], "tokens.bin"), "rb") as f:
            f.seek(((step * n + micro) * of + mine) * size)
            both = torch.frombuffer(bytearray(f.read(size)), dtype=torch.int32).view(b, 2, t).long().to(device)
        yield both[:, 0].contiguous(), both[:, 1].contiguous()


# ---- the run ----

def wait():
    if cuda:
        torch.cuda.synchronize()


@contextlib.contextmanager
def traced():
    """One step into rankN.trace.json, which dpxrun reads."""
    activities = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activities.CPU] + ([activities.CUDA] if cuda else []), record_shapes=True) as profiler:
        with torch.profiler.record_function("ProfilerStep#1"):
            yield
    profiler.export_chrome_trace(os.path.join(job["folder"], "rank%d.trace.json" % rank))


def host_is_apart():
    """Whether memory can be counted: on the CPU a plan's host and its device are the same memory."""
    sections = plan.get("deepspeed") or {}
    return cuda or all((sections.get(name) or {}).get("device", "none") == "none" for name in ("offload_optimizer", "offload_param"))


def run(trainer_of):
    """trainer_of(model) returns an object with step(batches, lr) -> (loss or None, gradient norm or None) and optimizer_states()."""
    connect()
    model = build()
    tracker, driver = Tracker() if not cuda and host_is_apart() else None, Driver() if cuda else None
    if tracker:
        tracker.start()
    trainer = trainer_of(model)
    del model

    def phase(name, calls):
        wait()
        if tracker:
            tracker.mark(name)
        tell("phase", name=name, collectives=calls, **(gpu_memory() if cuda else {}))

    phase("init", issued())
    if cuda:
        forget()
    names = ["first", "second", "steady"]
    for step in range(job["steps"]):
        given = list(batches(step))
        wait()
        if driver and step == min(3, job["steps"] - 1):
            driver.watch()
        with traced() if job["trace"] and step == job["steps"] - 1 else contextlib.nullcontext():
            begun = time.perf_counter()
            loss, norm = trainer.step(given, job["lr"][step])
            wait()
            seconds = time.perf_counter() - begun
        del given
        tell("step", step=step + 1, seconds=seconds, loss=None if loss is None else float(loss), grad_norm=None if norm is None else float(norm))
        calls = issued()
        if step < 3:
            phase(names[step], calls)
        if tracker and (step == 2 or step == job["steps"] - 1):
            on_host = [] if cuda else [t.untyped_storage().data_ptr() for t in trainer.counters()]
            for name, peak, left in tracker.stop(on_host):
                tell("memory", name=name, allocated=peak, left=left)
            tracker = None
    tell("end", driver=driver.bytes() if driver else None, clocks=driver.clocks() if driver else None)


def start(trainer_of, versions):
    torch.set_num_threads(job["threads"])
    if not cuda:
        torch.backends.mkldnn.enabled = False           # its reordered weights are the CPU's alone
        torch.get_rng_state = host_memory(torch.get_rng_state)      # a checkpoint keeps the host's
    tell("start", device=torch.cuda.get_device_name(device) if cuda else "cpu",
         versions=dict(versions, torch=torch.__version__, transformers=transformers.__version__, python=sys.version.split()[0]))
    try:
        run(trainer_of)
    except (Refused, ImportError) as why:
        missing(type(why), why, why.__traceback__)
    except torch.OutOfMemoryError as why:
        tell("oom", text=str(why))
    except BaseException as why:
        traceback.print_exc()
        tell("oom" if "can't allocate memory" in str(why) else "failed", text="%s: %s" % (type(why).__name__, " ".join(str(why).split())[:600]))
    os._exit(0)         # gloo's tear-down is not what is recorded
