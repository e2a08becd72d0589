"""The plan in plain PyTorch: DDP, ZeroRedundancyOptimizer, FSDP1, FSDP2 and HSDP, tensor and pipeline parallelism by its own API.

dpxrun starts it on every rank and says what to do in job.json (common.py reads it).  Only PyTorch's interface is called here, in the
order of a user's script: cut tensors, checkpoint blocks, wrap, make the optimizer, train."""
import contextlib
import dataclasses
import importlib

from dpx_common import blocks_of, cuda, device, grid, is_packed, job, loss_of, need, plan, start, to_device, units_moved_on_cpu, world

import dpx_torch_axes as cut

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

strategy, dialect = plan["strategy"], plan["dialect"]
options = dict(plan.get("ddp" if strategy in ("ddp", "zero1") else "fsdp") or {})
last_only = not plan["sync_every_micro_step"]       # gradients are reduced in the last micro-step alone
BF16 = plan["precision"] == "bf16"
REDUCE = torch.float32 if plan["reduce_dtype"] == "fp32" else None


def meshes():
    """Of the axes that are there: pp, then replica, then shard, then tp."""
    tensor, pipe = grid.get("tensor", 1), grid.get("pipeline", 1)
    rest = world // tensor // pipe
    shard = 1 if strategy in ("ddp", "zero1") else plan["shard_group"] or rest
    axes = [("pp", pipe), ("replica", rest // shard), ("shard", shard), ("tp", tensor)]
    if pipe == tensor == 1:
        axes = [a for a in axes if a[1] > 1] or [("shard", 1)]
    mesh = init_device_mesh(device.type, tuple(n for _, n in axes), mesh_dim_names=tuple(a for a, _ in axes))
    return mesh, dict(axes)


# ---- the wrappers ----

# torchtitan up to 0.2, distributed/activation_checkpoint.py: what `selective op` saves, of products every second.
SAVED = {"aten.mm.default", "aten.max.default", "_c10d_functional.reduce_scatter_tensor.default",
         *("aten._scaled_dot_product_%s.default" % kind for kind in
           ("efficient_attention", "flash_attention", "cudnn_attention", "attention_math", "fused_attention_overrideable"))}


def by_operator():
    policies, contexts = need(torch.utils.checkpoint, "CheckpointPolicy", "create_selective_checkpoint_contexts")
    products = {False: 0, True: 0}

    def policy(context, func, *args, **kwargs):
        if func is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            if products[context.is_recompute] % 2 == 0:
                return policies.PREFER_RECOMPUTE
        return policies.MUST_SAVE if str(func) in SAVED else policies.PREFER_RECOMPUTE
    return contexts(policy)


def in_float8(model):
    """torchao's linear layers, but those that the filter names or with a side that 16 does not divide, as torchtitan chooses them."""
    if plan.get("fp8", "none") == "none":
        return
    kind, convert, by_recipe = need(importlib.import_module("torchao.float8"), "Float8LinearConfig", "convert_to_float8_training", "_auto_filter_for_recipe")
    recipe, left_out = plan["fp8"], ["lm_head"] if plan["fp8_filter"] is None else [n for n in plan["fp8_filter"] if n != "none"]
    config = kind.from_recipe_name(recipe)
    if options.get("enable_fsdp_float8_all_gather"):
        config = dataclasses.replace(config, enable_fsdp_float8_all_gather=True)
    if not cuda:
        config = dataclasses.replace(config, emulate=True)      # the CPU multiplies no float8: the same numbers in 32 bits
    takes = lambda m, name: not any(n in name for n in left_out) and m.in_features % 16 == m.out_features % 16 == 0
    if "auto_filter_small_kn" in left_out:
        left_out.remove("auto_filter_small_kn")
        takes = by_recipe(recipe, filter_fqns=left_out)
    convert(model, config=config, module_filter_fn=takes)


def checkpointed(model):
    """Every k-th block, not reentrant: all of it, or all but what SAVED has."""
    if plan["recompute"] == "none":
        return
    wrapper, impl = need(__import__("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", fromlist=["x"]), "checkpoint_wrapper", "CheckpointImpl")
    how = {"context_fn": by_operator} if plan["recompute"] == "op" else {}
    blocks = blocks_of(model)
    for i in range(0, len(blocks), plan["recompute_interval"]):
        blocks[i] = wrapper(blocks[i], checkpoint_impl=impl.NO_REENTRANT, **how)


def compiled(model):
    """Every block by itself, as torchtitan does."""
    if plan["kernels"] == "torch-compile":
        for block in blocks_of(model):
            block.compile(fullgraph=True)


def ddp(model, mesh, axes):
    known = ("bucket_cap_mb", "gradient_as_bucket_view", "find_unused_parameters", "static_graph", "broadcast_buffers")
    more = {k: options[k] for k in known if k in options}
    if "tp" in axes:
        return nn.parallel.DistributedDataParallel(model, device_mesh=mesh["replica"], **more)
    return nn.parallel.DistributedDataParallel(model, device_ids=[device] if cuda else None, **more)


def fsdp1(model, mesh, axes):
    fsdp = torch.distributed.fsdp
    how = options["sharding_strategy"]
    more = {"sharding_strategy": fsdp.ShardingStrategy[how], "device_id": device, "forward_prefetch": options.get("forward_prefetch", False),
            "limit_all_gathers": options.get("limit_all_gathers", True), "use_orig_params": options.get("use_orig_params", False),
            "backward_prefetch": fsdp.BackwardPrefetch[options["backward_prefetch"]] if options.get("backward_prefetch") else None}
    if "HYBRID" in how:
        more["device_mesh"] = mesh
    if BF16:
        more["mixed_precision"] = fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=REDUCE)
    if plan["unit"] == "block":
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        more["auto_wrap_policy"] = ModuleWrapPolicy({type(blocks_of(model)[0])})
    if not cuda:
        units_moved_on_cpu()
    return fsdp.FullyShardedDataParallel(model, **more)


def shard_ends(fully_shard, model, how, inner, last):
    """Embedding and head as units of their own; tied, they are one."""
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    base = getattr(model, "base_model", model)
    norms = [m for n, m in base.named_modules() if "Norm" in type(m).__name__ and not any(p.isdigit() for p in n.split("."))]
    tail = [norms[-1], head] if how == "apart" else [head]
    if embed.weight is head.weight:
        tail[-1:] = [embed, head]
    else:
        fully_shard(embed, **inner)
    if how != "embed":
        fully_shard(tail, **last)


def fsdp2(model, mesh, axes, blocks):
    fully_shard, policy = need(torch.distributed.fsdp, "fully_shard", "MixedPrecisionPolicy")
    common = {"mesh": mesh[("replica", "shard")] if axes.get("replica", 1) > 1 else mesh["shard"],
              "mp_policy": policy(param_dtype=torch.bfloat16, reduce_dtype=REDUCE) if BF16 else policy()}
    inner, root = dict(common), dict(common)
    if options.get("reshard_after_forward") is not None:
        inner["reshard_after_forward"] = options["reshard_after_forward"]
    if options.get("root_reshard_after_forward") is not None:
        root["reshard_after_forward"] = options["root_reshard_after_forward"]
    how, last = options.get("root_units", "together"), options.get("root_reshard_after_forward")
    if how != "together":
        root.pop("reshard_after_forward", None) if how != "embed" else None
        shard_ends(fully_shard, model, how, inner, dict(common, reshard_after_forward=bool(last) if last in (None, True, False) else last))
    each = int(plan["unit"].split()[0]) if plan["unit"].endswith("blocks") else 1 if plan["unit"] == "block" else 0
    for i in range(0, len(blocks) if each else 0, each or 1):
        if options.get("keeps_last_unit") and i + each >= len(blocks):
            inner["reshard_after_forward"] = False
        fully_shard(list(blocks[i:i + each]) if each > 1 else blocks[i], **inner)
    return fully_shard(model, **root)


def wrapped(model, mesh, axes, blocks):
    if strategy == "fsdp" and dialect == "torch-fsdp1":
        return fsdp1(model, mesh, axes)
    to_device(model)
    return fsdp2(model, mesh, axes, blocks) if strategy == "fsdp" else ddp(model, mesh, axes)


# ---- steps ----

def number(t):
    """The whole of a DTensor."""
    return getattr(t, "full_tensor", lambda: t)()


def typed(model):
    """In 16 bits where the plan says so: all, by model.to(bfloat16), or what adapters leave frozen, as from_pretrained() loads it."""
    if options.get("model_dtype") != "bf16":
        return
    if plan.get("train") != "lora":
        model.to(torch.bfloat16)
        return
    for p in model.parameters():
        if not p.requires_grad and not is_packed(p):
            p.data = p.data.to(torch.bfloat16)


class Trainer:
    def __init__(self, model):
        mesh, axes = meshes()
        self.pipe = axes.get("pp", 1) > 1
        typed(model)
        if self.pipe:
            index = mesh["pp"].get_local_rank()
            blocks = cut.blocks_of_stage(index, axes["pp"])
            model = cut.Stage(model, blocks, index == 0, index == axes["pp"] - 1)
            model.config.num_hidden_layers = len(blocks)
        if axes.get("tp", 1) > 1:
            cut.never_packed()
            cut.cut_by_tensors(model, mesh["tp"])
        in_float8(model)
        checkpointed(model)
        compiled(model)
        self.model = wrapped(model, mesh, axes, blocks_of(model))
        self.optimizer = self.adamw(self.model.parameters())
        if self.pipe:
            self.schedule = cut.pipeline_of(self.model, index, axes["pp"], mesh["pp"], device)
            self.first, self.last = index == 0, index == axes["pp"] - 1
            self.pipe_group = mesh["pp"].get_group()

    def adamw(self, params):
        form = plan["optimizer_form"]
        words = {"lr": job["lr"][0], "betas": (job["beta1"], job["beta2"]), "eps": job["eps"], "weight_decay": job["weight_decay"],
                 "foreach": form == "foreach", "fused": form == "fused"}
        params = [p for p in params if p.requires_grad]
        if strategy != "zero1":
            return torch.optim.AdamW(params, **words)
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(params, optimizer_class=torch.optim.AdamW,
                                       parameters_as_bucket_view=options.get("parameters_as_bucket_view", False), **words)

    def counters(self):
        """Of AdamW's steps: on the host, but for the fused form."""
        states = getattr(self.optimizer, "optim", self.optimizer).state.values()
        return [s["step"] for s in states if "step" in s and plan["optimizer_form"] != "fused"]

    def micro_step(self, ids, labels, last):
        sync = last or not last_only
        quiet = contextlib.nullcontext()
        if strategy == "fsdp" and dialect == "torch":
            self.model.set_requires_gradient_sync(sync)
        elif not sync:
            quiet = self.model.no_sync()
        cast = strategy in ("ddp", "zero1") and BF16 and (plan.get("train") == "lora" or not options.get("model_dtype"))     # adapters are in fp32
        with quiet, cut.parallel.loss_parallel() if cut.loss_is_cut else contextlib.nullcontext():
            with torch.autocast(device.type, torch.bfloat16) if cast else contextlib.nullcontext():
                loss = loss_of(self.model, ids, labels, cut.cut_loss if cut.loss_is_cut else None) / plan["accumulation"]
            loss.backward()
        return loss.detach()

    def pipeline_step(self, given):
        ids, labels = (torch.cat(parts) for parts in zip(*given))
        losses = []
        self.schedule.step(*([ids] if self.first else []), return_outputs=False, **({"target": labels, "losses": losses} if self.last else {}))
        return float(sum(losses)) if self.last else None

    def clip(self):
        if dialect == "torch-fsdp1":
            return self.model.clip_grad_norm_(plan["clip"])
        if not self.pipe:
            return nn.utils.clip_grad_norm_(self.model.parameters(), plan["clip"])
        norm = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])     # as torchtitan over its stages
        norm = number(norm) ** 2
        torch.distributed.all_reduce(norm, group=self.pipe_group)
        norm = norm ** 0.5
        nn.utils.clip_grads_with_norm_(self.model.parameters(), plan["clip"], norm)
        return norm

    def step(self, given, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if self.pipe:
            total = self.pipeline_step(given)
        else:
            total = sum(float(number(self.micro_step(ids, labels, i == len(given) - 1))) for i, (ids, labels) in enumerate(given))
        norm = self.clip() if plan["clip"] is not None else None
        self.optimizer.step()
        if options.get("precompute_float8_dynamic_scale_for_fsdp"):
            need(importlib.import_module("torchao.float8"), "precompute_float8_dynamic_scale_for_fsdp")(self.model)
        self.optimizer.zero_grad(set_to_none=True)
        return total, number(norm)


if __name__ == "__main__":
    start(Trainer, {})
