#!/usr/bin/env python3
"""Records PyTorch's own account of the memory of a training step under tensor and sequence parallelism.

    python record_memory.py [--only SUBSTRING] [-o memory.jsonl]         ten minutes

As ../memory/record_torch_memory.py, whose trackers, models and stand-ins for a GPU these are (its head and README.md say what
is counted); the model is cut as grid.py says.  Beside it: what autograd keeps for backward, block by block, by
saved_tensors_hooks, each storage once, parameters left out, in 512 bytes as the allocator gives them."""
import argparse
import contextlib
import json
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "memory"), HERE]

import record_torch_memory as base      # starts this script again, with its library before torch's

import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.fsdp2_mem_tracker import _FSDPRefType, _FSDPState
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
import torch.distributed.tensor.parallel.loss as parallel_loss
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM

from grid import Sizes, adapt, meshes_of, wrap

MODELS = dict(base.MODELS)
MODELS["llama-8m"] = dict(base.LLAMA, num_hidden_layers=4, hidden_size=256, intermediate_size=704, num_attention_heads=8,
                          num_key_value_heads=4, vocab_size=8192)
MODELS["llama-1b-untied"] = dict(base.MODELS["llama-1b"], tie_word_embeddings=False, num_hidden_layers=4)
MODELS["llama-8b-4"] = dict(base.MODELS["llama-8b"], num_hidden_layers=4)
MODELS["qwen2-small"] = dict(base.MODELS["qwen2"], tie_word_embeddings=False, num_key_value_heads=4)
MODELS["qwen3-small"] = dict(base.MODELS["qwen3"], tie_word_embeddings=False, num_key_value_heads=4)


def meshes_are_real():
    """What makes or reads a mesh reads its ranks: not under fake tensors."""
    def real(inner):
        def outside(*args, **kwargs):
            with unset_fake_temporarily(), torch.device("cpu"):
                return inner(*args, **kwargs)
        return outside
    DeviceMesh.__init__, DeviceMesh.__getitem__ = real(DeviceMesh.__init__), real(DeviceMesh.__getitem__)
    DeviceMesh._concatenate = staticmethod(real(DeviceMesh._concatenate))


class Saved:
    """Bytes that autograd keeps, by the block during whose forward they were packed."""

    def __init__(self, model):
        self.bytes, self.seen, self.now = {}, set(), "outside"
        self.params = {self.key(p) for p in model.parameters()}
        self.handles = []
        for i, block in enumerate(model.model.layers):
            self.handles.append(block.register_forward_pre_hook(lambda *a, i=i: self.enter(f"block {i}"), prepend=True))
            self.handles.append(block.register_forward_hook(lambda *a: self.enter("outside")))

    def enter(self, name):
        self.now = name

    @staticmethod
    def key(t):
        t = t._local_tensor if isinstance(t, DTensor) else t
        if hasattr(t, "elem"):           # AsyncCollectiveTensor
            t = t.elem
        return t.untyped_storage()._cdata

    def pack(self, t):
        key = self.key(t)
        if key not in self.seen and key not in self.params:
            self.seen.add(key)
            local = t._local_tensor if isinstance(t, DTensor) else t
            local = local.elem if hasattr(local, "elem") else local
            size = -(-local.untyped_storage().nbytes() // 512) * 512
            self.bytes[self.now] = self.bytes.get(self.now, 0) + size
        return t

    @contextlib.contextmanager
    def watching(self):
        with torch.autograd.graph.saved_tensors_hooks(self.pack, lambda t: t):
            yield
        for h in self.handles:
            h.remove()


class Tracker(base.FSDPPeaks):
    """Counts what exists on a GPU. loss_parallel() asks for the shapes of the whole logits' operations under the fake mode that
    stands in for the device here, and under one of its own there: these tensors are not counted. Sums of gradients that are
    DTensors are new tensors: the engine adds in place into plain ones alone (can_accumulate_inplace). Around a unit's
    post_backward the tracker's own name for its last gradient is gone."""

    shapes, of_dtensors = False, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if Tracker.shapes:
            return func(*args, **(kwargs or {}))
        adds = func is torch.ops.aten.add.Tensor
        if any(t is DTensor for t in types):
            self.of_dtensors = adds
            return NotImplemented
        apart, self.of_dtensors = adds and self.of_dtensors, False
        parent = super(base.Peaks, self) if apart else super()
        return parent.__torch_dispatch__(func, types, args, kwargs)


    def named_as(self, module, grads, what, **how):
        group = module._get_fsdp_state()._fsdp_param_group
        for param in group.fsdp_params if group else ():
            if (grad := grads(param)) is not None:
                self._update_and_maybe_create_winfos(grad, what, **how)

    def _fsdp_param_group_post_backward(self, module, inner):
        def post_backward(*args, **kwargs):
            self.named_as(module, lambda p: p._unsharded_param.grad, _FSDPRefType.UNSHARDED_GRAD, update_existing=True)
            self._fsdp_state = _FSDPState.POST_BW
            inner(*args, **kwargs)
            self.named_as(module, lambda p: p.sharded_param.grad, _FSDPRefType.SHARDED_GRAD)
        return post_backward


def shapes_are_not_counted():
    inner = parallel_loss._propagate_tensor_meta

    def propagate(*args):
        Tracker.shapes = True
        try:
            return inner(*args)
        finally:
            Tracker.shapes = False
    parallel_loss._propagate_tensor_meta = propagate


def loss_of(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(0, 1))


def dtype_of(plan):
    return torch.bfloat16 if plan["fsdp"].get("model_dtype") == "bf16" else torch.float32


class Run:
    def __init__(self, plan):
        self.plan, self.world = plan, base.world_of(plan)
        self.sizes, self.grid = Sizes(plan, self.world), plan["parallel"]
        self.mesh, _ = meshes_of(self.sizes, "cuda")        # reads ranks: not under fake tensors

    def build(self):
        cfg = transformers.AutoConfig.for_model(**MODELS[self.plan["model"]])
        cfg.bos_token_id = cfg.eos_token_id = cfg.pad_token_id = None
        cfg.use_cache = False
        self.model = AutoModelForCausalLM.from_config(cfg, attn_implementation="sdpa", dtype=dtype_of(self.plan))
        self.model.train()
        if self.plan.get("train") == "lora":
            adapt(self.model, self.plan["lora"]["target_modules"], self.plan["lora"]["rank"])
        self.model = wrap(self.model, self.plan, self.sizes, self.mesh)
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-4, foreach=True)
        seq = self.plan["seq"] // self.sizes.context
        shape = (self.plan["micro_batch"], seq)
        self.ids, self.labels = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
        self.positions = torch.arange(seq).unsqueeze(0)

    def tracked_step(self):
        tracker = Tracker(self.model, self.optimizer)
        tracker.track_inputs((self.ids, self.labels))
        with tracker:
            self.step(tracker.reset_mod_stats)
        return base.peaks(tracker)

    def forward(self):
        logits = self.model(input_ids=self.ids, position_ids=self.positions, use_cache=False).logits
        return loss_of(logits, self.labels)

    def step(self, between=lambda: None):
        for m in range(self.plan["accumulation"]):
            between()
            self.model.set_requires_gradient_sync(m == self.plan["accumulation"] - 1 or self.plan.get("sync_every_micro_step", True))
            self.forward().backward()
        if self.plan.get("clip"):
            nn.utils.clip_grad_norm_(self.model.parameters(), self.plan["clip"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @contextlib.contextmanager
    def as_planned(self):
        with contextlib.ExitStack() as stack:
            if self.sizes.loss_parallel:
                stack.enter_context(loss_parallel())
            if self.sizes.context > 1:       # its buffers are cut already: only attention is replaced
                ring.set_rotate_method({"all-gather": "allgather", "ring": "alltoall"}[self.grid.get("context_method", "all-gather")])
                ring._dispatch_mode = ring._DispatchMode.MONKEY_PATCH
                ring._cp_options.enable_load_balance = self.grid.get("context_balance", True)
                ring._enable_context_parallel_dispatcher_impl(seq_dim=2, mesh=self.mesh["cp"])
                stack.callback(ring._disable_context_parallel_dispatcher_impl)
            yield


def run(plan, rank=0):
    base.PLANNED["capability"] = base.CAPABILITY[base.gpu_of(plan)]
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=base.world_of(plan))
    try:
        made = Run(plan)
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
            made.build()
            with made.as_planned():
                made.step()
                result = made.tracked_step()
                saved = Saved(made.model)
                with saved.watching():
                    made.forward()
        return result, saved.bytes
    finally:
        dist.destroy_process_group()


def plan_of(model, world, grid, precision="bf16", batch=1, seq=512, accumulation=1, recompute="none", group=0, gpu="h100", **options):
    nodes = "%dx8" % (world // 8) if world > 8 else "%d" % world
    plan = {"dpx_plan": 1, "model": model, "cluster": "%sx%s" % (nodes, gpu), "strategy": "fsdp", "dialect": "torch", "kernels": "torch-sdpa",
            "seq": seq, "micro_batch": batch, "accumulation": accumulation, "precision": precision, "reduce_dtype": "fp32", "recompute": recompute,
            "dropout": 0.0, "unit": "block", "fsdp": {"reshard_after_forward": True}, "parallel": grid}
    if group:
        plan["shard_group"] = group
    return plan | options


def name_of(p):
    g = p["parallel"]
    parts = [p["model"], "w%d" % base.world_of(p), p["precision"], "b%d" % p["micro_batch"], "s%d" % p["seq"]]
    if g.get("tensor", 1) > 1:
        parts.append("t%d" % g["tensor"] + (" sp" if g["sequence"] else "") + (" lp" if g["loss_parallel"] else ""))
    if g.get("inputs_apart"):
        parts.append("apart")
    if g.get("context", 1) > 1:
        parts.append("c%d %s" % (g["context"], g["context_method"]) + ("" if g["context_balance"] else " flat"))
    if p.get("shard_group"):
        parts.append("hsdp%d" % p["shard_group"])
    if p["accumulation"] > 1:
        parts.append("acc%d" % p["accumulation"])
    if p["recompute"] != "none":
        parts.append(p["recompute"])
    if p.get("clip"):
        parts.append("clip")
    if not p["fsdp"]["reshard_after_forward"]:
        parts.append("keep")
    if p["fsdp"].get("model_dtype"):
        parts.append("kept in " + p["fsdp"]["model_dtype"])
    if p.get("train"):
        parts.append("adapters %d of %s" % (p["lora"]["rank"], "all" if len(p["lora"]["target_modules"]) > 4 else " ".join(p["lora"]["target_modules"])))
    return " ".join(parts)


def tp(tensor, sequence=True, loss=True):
    return {"tensor": tensor, "sequence": sequence, "loss_parallel": loss}


def cases():
    small = "llama-8m"
    for t in (2, 4):
        for sequence in (True, False):
            for loss in (True, False):
                for precision in ("bf16", "fp32"):
                    yield plan_of(small, 2 * t, tp(t, sequence, loss), precision=precision, batch=2)
    for recompute in ("full", "op"):
        for sequence in (True, False):
            yield plan_of(small, 4, tp(2, sequence), batch=4, recompute=recompute)
        yield plan_of(small, 8, tp(4), batch=4, recompute=recompute, precision="fp32")
    yield plan_of(small, 4, tp(4), batch=2)
    yield plan_of(small, 8, tp(2), batch=2, group=2)
    yield plan_of(small, 4, tp(2), batch=1, seq=64, accumulation=2)
    yield plan_of(small, 4, tp(2), batch=1, seq=64, accumulation=2, sync_every_micro_step=False)
    yield plan_of(small, 4, tp(2), batch=1, seq=64, clip=1.0)
    yield plan_of(small, 4, tp(2), batch=2, fsdp={"reshard_after_forward": False})
    yield plan_of(small, 4, tp(2), batch=1, seq=2048)
    for model in ("qwen2-small", "qwen3-small"):
        yield plan_of(model, 4, tp(2), batch=2)
        yield plan_of(model, 8, tp(4, False, False), batch=2, precision="fp32")
    yield plan_of("llama-1b-untied", 8, tp(8), batch=1, seq=2048)
    yield plan_of("llama-1b-untied", 16, tp(4), batch=2, seq=1024, recompute="full")
    yield plan_of("llama-8b-4", 8, tp(4), batch=1, seq=4096)
    yield plan_of("llama-8b-4", 16, tp(8), batch=1, seq=8192)
    yield plan_of("llama-8b-4", 16, tp(8, False, False), batch=1, seq=2048)
    yield plan_of("llama-8b-4", 16, tp(8), batch=1, seq=8192, recompute="op")


PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def adapted_cases():
    """NeMo Automodel's cut, alone and around its adapters; weights in bf16, logits gathered."""
    def one(model, world, t, sequence=False, names=PROJECTIONS, rank=16, fsdp={}, **more):
        plan = plan_of(model, world, dict(tp(t, sequence, False), inputs_apart=True), fsdp={"reshard_after_forward": True, "model_dtype": "bf16"} | fsdp, **more)
        return plan | ({"train": "lora", "lora": {"rank": rank, "target_modules": names, "narrow": True}} if names else {})
    small = "llama-8m"
    for t in (2, 4):
        for sequence in (False, True):
            yield one(small, 2 * t, t, sequence, batch=2, names=None)
        yield one(small, 2 * t, t, batch=2)
    yield one(small, 4, 2, batch=1, seq=128)
    yield one(small, 4, 2, batch=2, names=["q_proj", "v_proj"])
    yield one(small, 4, 2, batch=2, names=["o_proj", "down_proj"])
    yield one(small, 4, 2, batch=4, recompute="full")
    yield one(small, 4, 4, batch=2)
    yield one(small, 4, 2, batch=1, seq=64, accumulation=2)
    yield one(small, 4, 2, batch=1, seq=64, accumulation=2, sync_every_micro_step=False)
    for model in ("qwen2-small", "qwen3-small"):
        yield one(model, 4, 2, batch=2)
    yield one("llama-8b-4", 8, 8, batch=1, seq=2048)
    yield one("llama-8b-4", 8, 4, batch=1, seq=4096, rank=8)
    yield one("llama-8b-4", 16, 8, batch=1, seq=2048, recompute="full")


def options(about, to):
    args = argparse.ArgumentParser(description=about)
    args.add_argument("--only", default="")
    args.add_argument("--automodel", action="store_true", help="adapted_cases(); its folder is on PYTHONPATH")
    args.add_argument("-o", default=to)
    return args.parse_args()


def record(to, plans, name_of, run, **versions):
    """A line on what recorded, a line for each plan, and at last the plans that could not be."""
    missing = []
    with open(to, "w") as out:
        meta = {"torch": torch.__version__, **versions, "transformers": transformers.__version__,
                "models": {name: MODELS[name] for name in dict.fromkeys(p["model"] for p in plans)},
                "optimizer": "AdamW(foreach=True)"}
        print(json.dumps(meta, separators=(",", ":")), file=out)
        for plan in plans:
            try:
                steady, saved = run(plan)
            except Exception as e:
                traceback.print_exc()
                missing.append({"name": name_of(plan), "not recorded": (str(e).strip().splitlines() or [repr(e)])[0][:200]})
                continue
            print(name_of(plan), steady["peak_total"], saved, file=sys.stderr, flush=True)
            print(json.dumps({"name": name_of(plan), "plan": plan, "steady": steady, "saved": saved}, separators=(",", ":")),
                  file=out, flush=True)
        for m in missing:
            print(json.dumps(m), file=out)


def main():
    args = options(__doc__, "memory.jsonl")
    base.without_gpu()
    meshes_are_real()
    shapes_are_not_counted()
    record(args.o, [p for p in (adapted_cases() if args.automodel else cases()) if args.only in name_of(p)], name_of, run, cudnn=torch.backends.cudnn.version())


if __name__ == "__main__":
    main()
