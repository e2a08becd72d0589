"""What the recorders of this folder share: a plan's mesh, and the model of a plan cut over it.

Tensor and sequence parallelism are torchtitan 0.2.2's plans (models/llama3/infra/parallelize.py apply_tp; qwen3's for the
norms of q and k) by the names of transformers' modules; meshes are its ParallelDims.build_mesh(); the order is its own:
tensor parallelism, then recompute, then fully_shard of every block and of the root.  Pipeline stages are modules with the
blocks that its _generate_llm_fqn_per_model_part() gives them."""
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, ParallelStyle, PrepareModuleInput, RowwiseParallel,
                                               SequenceParallel, parallelize_module)
from torch.nn.parallel import DistributedDataParallel


class Sizes:
    """The axes of a plan: pipe, replica, shard, context, tensor."""

    def __init__(self, plan, world):
        grid = plan.get("parallel", {})
        self.tensor, self.context, self.pipe = (grid.get(k, 1) for k in ("tensor", "context", "pipeline"))
        self.sequence = grid.get("sequence", self.tensor > 1)
        self.loss_parallel = grid.get("loss_parallel", False)
        rest = world // (self.tensor * self.context * self.pipe)        # ranks that take other samples
        if plan["strategy"] == "ddp":
            self.replica, self.shard = rest, 1
        else:
            group = plan.get("shard_group", rest * self.context)        # context included
            self.shard = group // self.context
            self.replica = rest // self.shard
        assert self.pipe * self.replica * self.shard * self.context * self.tensor == world
        self.world = world


def meshes_of(sizes, device="cpu"):
    """torchtitan's: one world, seen as (pp, batch, cp, tp) and as (pp, dp_replicate, fsdp, tp).  Returns the meshes and
    what each process group is called in our lists."""
    world = init_device_mesh(device, (sizes.world,), mesh_dim_names=("world",))
    s = sizes
    data = world._unflatten(0, (s.pipe, s.replica * s.shard, s.context, s.tensor), ("pp", "batch", "cp", "tp"))
    dense = world._unflatten(0, (s.pipe, s.replica, s.shard * s.context, s.tensor), ("pp", "dp_replicate", "fsdp", "tp"))
    mesh = {"pp": data["pp"], "cp": data["cp"], "tp": data["tp"], "fsdp": dense["fsdp"], "dp_replicate": dense["dp_replicate"],
            "hsdp": dense["dp_replicate", "fsdp"]}
    every = "world" if s.replica * s.shard * s.context == s.world else "data"
    hsdp = s.replica > 1 and s.shard * s.context > 1
    names = {"pp": "pipe", "cp": "context", "tp": "tensor", "fsdp": "shard" if hsdp else every,
             "dp_replicate": "replica" if hsdp else every}
    return mesh, {mesh[k].get_group(): name for k, name in names.items()}


# ---- tensor parallelism ----


class Replicated(ParallelStyle):
    """torchtitan's NoParallel: every rank has the whole of it and computes the same, activations are plain tensors."""

    def _apply(self, module, mesh):
        def cut(name, module, mesh):
            for key, p in list(module.named_parameters(recurse=False)):
                module.register_parameter(key, nn.Parameter(distribute_tensor(p, mesh, [Replicate()], src_data_rank=None)))

        return distribute_module(module, mesh, cut,
                                 lambda mod, inputs, mesh: (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False),),
                                 lambda mod, out, mesh: out.to_local())


def tensor_plan(sizes, block):
    """torchtitan's layer_plan, by transformers' names."""
    rows = Shard(1) if sizes.sequence else Replicate()
    norm = SequenceParallel if sizes.sequence else Replicated

    def whole(name=None):
        if name:
            return PrepareModuleInput(input_kwarg_layouts={name: rows}, desired_input_kwarg_layouts={name: Replicate()})
        return PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(Replicate(),))

    plan = {
        "input_layernorm": norm(),
        "self_attn": whole("hidden_states"),
        "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=rows),
        "post_attention_layernorm": norm(),
        "mlp": whole(),
        "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=rows),
    }
    if hasattr(block.self_attn, "q_norm"):      # of heads, which are cut: sequence_dim is that of the heads
        plan["self_attn.q_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
        plan["self_attn.k_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
    return plan


class Adapted(nn.Linear):
    """NeMo Automodel's LinearLoRA (components/_peft/lora.py) without dropout, where weights are DTensors: its forward."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias) + self.lora_B(self.lora_A(x) * self.scale)


def adapt(model, names, rank, alpha=32):
    """patch_linear_module() of the layers with these names; all else is frozen."""
    model.requires_grad_(False)
    for name, layer in list(model.named_modules()):
        if name.rsplit(".", 1)[-1] in names:
            of = {"bias": False, "dtype": layer.weight.dtype, "device": layer.weight.device}
            layer.lora_A, layer.lora_B = nn.Linear(layer.in_features, rank, **of), nn.Linear(rank, layer.out_features, **of)
            layer.__class__, layer.scale = Adapted, alpha / rank
    return model


def automodel_plan(sizes, adapted):
    """_parallelize_llama() and _parallelize_qwen() (components/distributed/optimized_tp_plans.py), of NeMo Automodel, which is on PYTHONPATH; _parallelize_phi()
    has other names.  Layers are translated for adapters, whether they have any or not."""
    from nemo_automodel.components.distributed.parallel_styles import translate_to_lora
    columns = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "fc1")
    plan = {f"model.layers.*.{part}.{name}": ColwiseParallel() for part in ("self_attn", "mlp") for name in columns}
    leaving = dict(output_layouts=Shard(1), use_local_output=False) if sizes.sequence else {}
    plan |= {f"model.layers.*.{part}.{name}": RowwiseParallel(**leaving) for part in ("self_attn", "mlp") for name in ("o_proj", "down_proj", "dense", "fc2")}
    plan |= {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), **leaving),
             "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False, **({"input_layouts": Shard(1)} if sizes.sequence else {}))}
    if sizes.sequence:
        gathering = gathering_norm()
        plan |= {"model.norm": SequenceParallel(), "model.layers.*.input_layernorm": gathering, "model.layers.*.post_attention_layernorm": gathering}
    return {k: translate_to_lora(v) if adapted else v for k, v in plan.items()}


def gathering_norm():
    """SequenceParallelAllGatherActivation(use_local_output=False)."""
    class Gathering(SequenceParallel):
        @staticmethod
        def _prepare_output_fn(local, mod, outputs, mesh):
            return SequenceParallel._prepare_output_fn(local, mod, outputs.redistribute(device_mesh=mesh, placements=[Replicate()]), mesh)

    return Gathering(use_local_output=False)


def cut_as_automodel(model, sizes, mesh, adapted):
    parallelize_module(model, mesh, automodel_plan(sizes, adapted), src_data_rank=None)
    head = model.lm_head if hasattr(model, "lm_head") else None
    if head is not None and not sizes.loss_parallel:        # MaskedCrossEntropy: logits.float(), then full_tensor()
        head.register_forward_hook(lambda mod, args, out: out.float().full_tensor() if isinstance(out, DTensor) else out.float())


def cut_by_tensors(model, sizes, mesh):
    rows = Shard(1) if sizes.sequence else Replicate()
    norm = SequenceParallel if sizes.sequence else Replicated
    head = ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1) if sizes.loss_parallel else Replicate(),
                           use_local_output=not sizes.loss_parallel)
    outer = {"embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows), "norm": norm()}
    parallelize_module(model.model, mesh, {k: v for k, v in outer.items() if getattr(model.model, k) is not None}, src_data_rank=None)
    if model.lm_head is not None:
        parallelize_module(model, mesh, {"lm_head": head}, src_data_rank=None)
    for block in model.model.layers:
        parallelize_module(block, mesh, tensor_plan(sizes, block), src_data_rank=None)


# ---- data parallelism ----


def policy_of(plan):
    if plan["precision"] != "bf16":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32 if plan["reduce_dtype"] == "fp32" else None)


def fully_sharded(model, plan, sizes, mesh, blocks):
    common = {"mesh": mesh["hsdp"] if sizes.replica > 1 else mesh["fsdp"], "mp_policy": policy_of(plan)}
    if plan["fsdp"].get("cpu_offload"):
        common["offload_policy"] = CPUOffloadPolicy(pin_memory=plan["fsdp"].get("pin_memory", True))
    reshard = plan["fsdp"].get("reshard_after_forward")
    inner = dict(common) if reshard is None else dict(common, reshard_after_forward=reshard)
    root = plan["fsdp"].get("root_reshard_after_forward")
    for block in blocks:
        fully_shard(block, **inner)
    fully_shard(model, **(common if root is None else dict(common, reshard_after_forward=root)))
    return model


def recompute(plan, layers):
    if plan["recompute"] == "none":
        return
    if plan["recompute"] == "op":
        from torch_options import recompute_by_operator
        recompute_by_operator(layers)
        return
    for i, block in enumerate(layers):
        layers[i] = checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.NO_REENTRANT)


def wrap(model, plan, sizes, mesh):
    """The model, or a stage of it, as a rank trains it."""
    if sizes.tensor > 1 and plan["parallel"].get("inputs_apart"):
        cut_as_automodel(model, sizes, mesh["tp"], plan.get("train") == "lora")
    elif sizes.tensor > 1:
        cut_by_tensors(model, sizes, mesh["tp"])
    recompute(plan, model.model.layers)
    if plan["strategy"] == "ddp":
        return DistributedDataParallel(model, device_mesh=mesh["dp_replicate"], **plan.get("ddp", {}))
    return fully_sharded(model, plan, sizes, mesh, model.model.layers)


# ---- pipeline stages ----


def blocks_of_stages(layers, stages, first_less, last_less):
    """torchtitan's split: the first and the last stage have fewer, in place of embedding and head."""
    base, extra = divmod(layers + first_less + last_less, stages)
    out, at = [], 0
    for i in range(stages):
        n = base + (i < extra) - (first_less if i == 0 else 0) - (last_less if i == stages - 1 else 0)
        assert n >= 0
        out.append(range(at, at + n))
        at += n
    assert at == layers
    return out


class Body(nn.Module):
    """A stage's part of transformers' LlamaModel."""

    def __init__(self, body, blocks, first, last):
        super().__init__()
        self.embed_tokens = body.embed_tokens if first else None
        self.layers = nn.ModuleList(body.layers[i] for i in blocks)
        self.norm = body.norm if last else None
        self.rotary_emb = body.rotary_emb

    def forward(self, x, position_ids):
        if self.embed_tokens is not None:
            x = self.embed_tokens(x)
        rotary = self.rotary_emb(x, position_ids=position_ids)
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_embeddings=rotary, position_ids=position_ids)
        return x if self.norm is None else self.norm(x)


class Stage(nn.Module):
    def __init__(self, model, blocks, first, last, position_ids):
        super().__init__()
        self.model = Body(model.model, blocks, first, last)
        self.lm_head = model.lm_head if last else None
        self.position_ids = position_ids

    def forward(self, x):
        x = self.model(x, self.position_ids)
        return x if self.lm_head is None else self.lm_head(x)


def stages_of_rank(kind, pipe, virtual, rank):
    """loop: r, r + p, ...; V: r and 2p - 1 - r."""
    if kind in ("zbv", "dualpipev"):
        return [rank, 2 * pipe - 1 - rank]
    return [rank + i * pipe for i in range(virtual)]
