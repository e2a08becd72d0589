#!/usr/bin/env python3
"""Records what FSDP1 with CPUOffload(offload_params=True) takes on the device and on the host, and what it copies.

    python record_fsdp1_offload.py [--only SUBSTRING] [-o fsdp1_offload.jsonl]

The step and what stands in for a GPU are record_torch_memory.py's, the host's account is record_offload.py's; a second account
counts the device.  Four things stand in for what FSDP1 alone asks of a GPU: its device handle, record_stream(), pointers to data (a fake
tensor has none) and FakeTensor.data, whose setter leaves a fake tensor's device as it was.  README.md has the format: `first` holds the host
in the first step, which pins.
"""
import warnings
import weakref

import record_torch_memory as base
import record_offload as away
import torch
import torch.distributed as dist
import torch.distributed.fsdp._common_utils as common
import torch.distributed.fsdp._flat_param as flat_param
import torch.distributed.fsdp._runtime_utils as runtime
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves


def without_gpu():
    base.without_gpu()
    away.without_cuda()
    common._FSDPDeviceHandle.from_device = classmethod(lambda cls, device: base.Handle)
    for module in (common, flat_param, runtime):
        module._no_dispatch_record_stream = lambda *a: None
    flat_param._data_ptr_allocated = lambda t: t.untyped_storage().nbytes() > 0
    FakeTensor.data_ptr = lambda t: t.untyped_storage()._cdata     # whose it is: _catch_all_reshard() compares them
    flat_param._same_storage = lambda a, b: a.untyped_storage()._cdata == b.untyped_storage()._cdata
    data = torch.Tensor.data

    def set_data(self, value):
        data.__set__(self, value)
        self.fake_device = value.fake_device
    FakeTensor.data = property(data.__get__, set_data)


class Both(away.Host):
    """The device's live bytes beside the host's: each storage from its creation, or resize, to its last reference."""

    def __init__(self):
        self.device, self.sizes = 0, {}
        super().__init__()

    def begin(self):
        super().begin()
        self.device_most = self.device

    def take(self, storage, size):
        if storage not in self.number:
            self.number[storage] = self.next
            weakref.finalize(storage, self.take_number, self.next, 0)
            self.next += 1
        self.take_number(self.number[storage], size)

    def take_number(self, number, size):
        size = (size + 511) // 512 * 512
        self.device += size - self.sizes.pop(number, 0)
        self.sizes[number] = size
        self.device_most = max(self.device_most, self.device)

    def resized(self):
        """UntypedStorage.resize_(), by which FSDP1 frees and allocates, is seen by no dispatch mode."""
        real = torch.UntypedStorage.resize_

        def resize_(storage, size):
            real(storage, size)
            if self.number.get(storage) in self.sizes:     # a fake tensor's storage is of the meta device
                self.take(storage, size)
        torch.UntypedStorage.resize_ = resize_
        return real

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # As base.Peaks: in backward, outside of recomputed forwards, gradients that meet are added in place.
        if torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled():
            if (func is torch.ops.aten.add.Tensor and len(args) == 2 and not kwargs and all(isinstance(a, torch.Tensor) for a in args)
                    and not args[0]._is_view() and args[0].shape == args[1].shape and args[0].dtype == args[1].dtype):
                func = torch.ops.aten.add_.Tensor
            if func is torch.ops.aten.index_put.default:
                func = torch.ops.aten.index_put_.default
        out = super().__torch_dispatch__(func, types, args, kwargs)
        for t in tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.device.type == "cuda" and t.untyped_storage() not in self.number:
                self.take(t.untyped_storage(), t.untyped_storage().nbytes())
        return out


DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def groups_of(plan):
    """The process group, or FSDP1's pair of them: within a shard group, and between."""
    world, group = base.world_of(plan), plan.get("shard_group", 0)
    if not group or group == world:
        return None
    return dist.new_group(list(range(group))), dist.new_group(list(range(0, world, group)))


def shard(model, plan, groups):
    options = dict(plan["fsdp"])
    options.pop("cpu_offload")
    options.pop("model_dtype", None)
    options["sharding_strategy"] = ShardingStrategy[options["sharding_strategy"]]
    if "backward_prefetch" in options:
        options["backward_prefetch"] = {"BACKWARD_PRE": BackwardPrefetch.BACKWARD_PRE, "BACKWARD_POST": BackwardPrefetch.BACKWARD_POST,
                                        "NO_PREFETCH": None}[options["backward_prefetch"]]
    if plan["precision"] == "bf16":
        options["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, DTYPES[plan["reduce_dtype"]]))
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({type(base.blocks_of(model)[0])}),
                                    process_group=groups, device_id=torch.device("cuda", 0),
                                    cpu_offload=CPUOffload(offload_params=True), **options)


def step(model, optimizer, ids, labels, plan):
    for m in range(plan["accumulation"]):
        with base.synchronized(model, dict(plan, strategy="fsdp1"), m == plan["accumulation"] - 1):
            base.micro_step(model, ids, labels, False)
    if plan.get("clip"):
        model.clip_grad_norm_(plan["clip"])
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def run(plan):
    base.PLANNED["capability"] = base.CAPABILITY[base.gpu_of(plan)]
    resize = torch.UntypedStorage.resize_
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=base.world_of(plan))
    try:
        groups = groups_of(plan)
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), Both() as host:
            away.HOST = host
            resize = host.resized()
            model = shard(base.built(plan, getattr(torch, DTYPES[plan["fsdp"].get("model_dtype", "fp32")])), plan, groups)
            optimizer, batch = torch.optim.AdamW(model.parameters(), lr=1e-4), base.batch_of(plan)
            host.keep(m._handle.flat_param for m in FullyShardedDataParallel.fsdp_modules(model))
            host.begin()
            before = dict(host.sum)
            step(model, optimizer, *batch, plan)
            for state in optimizer.state.values():
                host.forget(state["step"])
            first = dict(host.most)
            host.begin()
            step(model, optimizer, *batch, plan)
            return {"peak_total": host.device_most, "after": host.device, "host": {
                "params": before, "first": first, "most": dict(host.most), "after": dict(host.sum), "copied": host.copied}}
    finally:
        torch.UntypedStorage.resize_ = resize
        dist.destroy_process_group()


def plan_of(*args, how="FULL_SHARD", orig=False, model_dtype=None, reduce_dtype="fp32", **more):
    options = {k: more.pop(k) for k in ("backward_prefetch", "forward_prefetch") if k in more}
    plan = base.plan_of(*args, **more)
    plan["dialect"] = "torch-fsdp1"
    plan["fsdp"] = {"sharding_strategy": how, "cpu_offload": True, "use_orig_params": orig, **options}
    plan["sync_every_micro_step"] = False
    if plan["precision"] == "bf16":
        plan["reduce_dtype"] = reduce_dtype
    if model_dtype:
        plan["fsdp"]["model_dtype"] = model_dtype
    return plan


def name_of(plan):
    fsdp = plan["fsdp"]
    words = [base.name_of(plan), fsdp["sharding_strategy"]] + [w for w in ("use_orig_params", "forward_prefetch") if fsdp.get(w)]
    if "model_dtype" in fsdp and plan["reduce_dtype"] != fsdp["model_dtype"]:
        words.append("reduce %s" % plan["reduce_dtype"])
    return " ".join(words + ["prefetch %s" % fsdp["backward_prefetch"]] if "backward_prefetch" in fsdp else words)


def cases():
    for precision in ("fp32", "bf16"):
        both = dict(precision=precision, batch=1, seq=64)
        yield plan_of("gpt2-124m", precision=precision, batch=2, seq=512)
        yield plan_of("llama-10m", world=4, clip=1.0, **both)
        yield plan_of("gpt2-tiny", world=4, orig=True, **both)
        yield plan_of("llama-10m", world=3, orig=True, clip=1.0, **both)
        yield plan_of("gpt2-10m", world=4, how="SHARD_GRAD_OP", **both)
        yield plan_of("gpt2-10m", world=4, how="SHARD_GRAD_OP", orig=True, accumulation=2, **both)
        yield plan_of("gpt2-10m", world=4, how="SHARD_GRAD_OP", accumulation=3, **both)
        yield plan_of("llama-10m", world=4, accumulation=2, **both)
        yield plan_of("gpt2-tiny", world=8, group=4, how="HYBRID_SHARD", **both)
        yield plan_of("gpt2-10m", world=4, backward_prefetch="BACKWARD_POST", **both)
        yield plan_of("gpt2-10m", world=4, forward_prefetch=True, **both)
        yield plan_of("llama-15m-gqa-tied", world=3, backward_prefetch="NO_PREFETCH", **both)
    pure = dict(precision="bf16", model_dtype="bf16", batch=1, seq=64)
    for reduce_dtype in ("bf16", "fp32"):
        yield plan_of("gpt2-10m", world=4, reduce_dtype=reduce_dtype, **pure)
        yield plan_of("llama-10m", world=3, orig=True, clip=1.0, reduce_dtype=reduce_dtype, **pure)
        yield plan_of("gpt2-tiny", world=8, group=4, how="HYBRID_SHARD", reduce_dtype=reduce_dtype, **pure)
        yield plan_of("llama-10m", world=4, how="SHARD_GRAD_OP", accumulation=2, reduce_dtype=reduce_dtype, **pure)
        yield plan_of("gpt2-tiny", world=4, orig=True, accumulation=2, reduce_dtype=reduce_dtype, **pure)
    yield plan_of("llama-1b", world=8, batch=1, seq=1024, recompute="full")
    yield plan_of("llama-8b", world=16, batch=1, seq=2048)


def setup():
    warnings.simplefilter("ignore")
    without_gpu()


if __name__ == "__main__":
    away.write(__doc__, "fsdp1_offload.jsonl", cases, name_of, run, setup, optimizer=away.LOOPS)
