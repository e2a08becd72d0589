#!/usr/bin/env python3
"""Records the collectives of FSDP2 with expert parallelism as torchtitan applies them.

    TORCHTITAN=A_CHECKOUT python record_titan.py OUTDIR [NAME ...]     one list a name, printed; all without names, into titan.txt

As ../collectives/record_torch.py, whose process group, phases and format these are: small mixtures of transformers whose MoE modules are
torchtitan's own (models/common/moe.py, token_dispatcher.py, models/gpt_oss/moe.py), with balanced routing.  torchtitan itself does not run beside this PyTorch
without its own packages: of it are read the three files above, ops/scatter_add.py and clip_grad_norm_ of distributed/utils.py; stubs stand
for what they import beside.  What apply_fsdp_to_decoder() (distributed/fsdp.py) does is in wrap(), with the units of our plans: a block is
one, the rest the root."""
import ast
import contextlib
import dataclasses
import math
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "collectives"), os.path.join(HERE, "..", "grid")]

import torch
import torch._dynamo                    # which FSDP2 and custom operators would import in each child
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
from torch.distributed.tensor import DTensor, Shard

import record_torch as base
from families import block_list, build
from grid import adapt

TITAN = os.environ["TORCHTITAN"]
base.STEPS = 3

# ---------------------------------------------------------------- torchtitan's files, and stubs

owners = {}


class Configurable:
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config:
        def build(self):
            return owners[type(self)](self)

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        owners.setdefault(cls.Config, cls)


class Module(nn.Module, Configurable):
    pass


class Linear(nn.Linear, Module):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        in_features: int
        out_features: int
        bias: bool = False

    def __init__(self, config):
        super().__init__(config.in_features, config.out_features, bias=config.bias)


def stub(name, **have):
    m = types.ModuleType(name)
    m.__dict__.update(have)
    m.__path__ = []
    sys.modules[name] = m


def real(name):
    """A file of torchtitan's as a module."""
    path = os.path.join(TITAN, name.replace(".", "/") + ".py")
    m = types.ModuleType(name)
    m.__package__ = name.rpartition(".")[0]
    sys.modules[name] = m
    exec(compile(open(path).read(), path, "exec"), m.__dict__)
    return m


for name in ("torchtitan", "torchtitan.distributed", "torchtitan.models", "torchtitan.models.common", "torchtitan.ops", "torchtitan.protocols",
             "torchtitan.tools", "spmd_types"):
    stub(name)
stub("torchtitan.config", Configurable=Configurable)
stub("torchtitan.protocols.module", Module=Module)
stub("torchtitan.models.common.linear", Linear=Linear)
class FeedForward(Module):
    """FeedForward of models/common/feed_forward.py."""
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        dim: int
        hidden: int

    def __init__(self, config):
        super().__init__()
        self.w1, self.w3 = nn.Linear(config.dim, config.hidden, bias=False), nn.Linear(config.dim, config.hidden, bias=False)
        self.w2 = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


stub("torchtitan.models.common.feed_forward", FeedForward=FeedForward)
stub("torchtitan.distributed.minimal_async_ep", combine_op=None, dispatch_op=None, init_buffer=None, MinimalAsyncEPDispatchMetadata=object)
stub("torchtitan.distributed.spmd_types", current_spmd_mesh=None, maybe_set_sparse_mesh=contextlib.nullcontext, spmd_mesh_size=None)
stub("torchtitan.distributed.utils", get_spmd_backend=lambda: "partial_dtensor")
stub("torchtitan.tools.utils", device_module=None, device_type="cpu")
real("torchtitan.ops.scatter_add")
dispatcher = real("torchtitan.models.common.token_dispatcher")
moe = real("torchtitan.models.common.moe")
sys.modules["spmd_types"].register_autograd_function = lambda c: c
stub("torchtitan.models.gpt_oss")
oss = real("torchtitan.models.gpt_oss.moe")


def function(path, name):
    """One function of a file, without the rest of it."""
    tree = ast.parse(open(os.path.join(TITAN, path)).read())
    found = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    found.returns = None
    for arg in found.args.args:
        arg.annotation = None
    space = {"torch": torch, "dist": dist, "math": math, "DTensor": DTensor, "DeviceMesh": DeviceMesh}
    exec(compile(ast.Module([found], []), path, "exec"), space)
    return space[name]


clip_grad_norm = function("torchtitan/distributed/utils.py", "_clip_grad_norm_with_ep")

# ---------------------------------------------------------------- a process group whose groups have names, and no one-rank collectives

names = {}
shared = set()                          # groups that are all ranks: DeviceMesh makes one for the experts and for the rest
expert_norm = False                     # the norm of the experts' gradients is being added up


def group_name(pg):
    name = names.get(pg, "world")
    if pg in shared:
        name = "expert" if expert_norm else "world"
    return f"{name}/{pg.size()}"


base.group_name = group_name
total_norm = torch.nn.utils.get_total_norm


def noted_total_norm(grads, *args, **more):
    global expert_norm
    expert_norm = bool(grads) and "ep" in grads[0].device_mesh.mesh_dim_names
    try:
        return total_norm(grads, *args, **more)
    finally:
        expert_norm = False


torch.nn.utils.get_total_norm = noted_total_norm


class Recorder(base.Recorder):
    def note(self, op, tensors, reduction=None, root=None):
        if self.size() > 1:
            super().note(op, tensors, reduction, root)

    def all_to_all_single(self, output, inp, out_splits, in_splits, opts=None):
        """Balanced: every rank sends what this one does."""
        global expert_norm
        expert_norm = True              # an all-to-all is the experts', whoever else has the group
        self.note("all_to_all", [inp])
        expert_norm = False
        output.copy_(inp.reshape(output.shape))
        return base.done(output)

    alltoall_base = all_to_all_single


dist.Backend.register_backend("experts", lambda store, rank, size, timeout: Recorder(rank, size), devices=["cpu"])

# ---------------------------------------------------------------- a rank


class Flat(moe.MoE):
    def forward(self, x):
        return super().forward(x.flatten(0, -2)).view_as(x)


def titan_moe(config, hf):
    experts, used = getattr(hf.experts, "num_experts", 0) or hf.gate.n_routed_experts, config.get("num_experts_per_tok")
    width, of_oss, sigmoid = config.get("moe_intermediate_size", config["intermediate_size"]), config["model_type"] == "gpt_oss", "n_group" in config
    router = moe.TokenChoiceTopKRouter.Config(num_experts=experts, top_k=used, score_func="sigmoid" if sigmoid else "softmax",
                                              route_norm=config["model_type"] != "olmoe" and config.get("norm_topk_prob", True),
                                              num_expert_groups=config.get("n_group"), num_limited_groups=config.get("topk_group"),
                                              gate=Linear.Config(in_features=config["hidden_size"], out_features=experts, bias=of_oss), _debug_force_load_balance=True)
    kind = oss.GptOssGroupedExperts if of_oss else moe.GroupedExperts
    routed = moe.RoutedExperts.Config(inner_experts=kind.Config(dim=config["hidden_size"], hidden_dim=width, num_experts=experts),
                                      token_dispatcher=dispatcher.AllToAllTokenDispatcher.Config(num_experts=experts, top_k=used))
    shared = FeedForward.Config(dim=config["hidden_size"], hidden=width * config["n_shared_experts"]) if config.get("n_shared_experts") else None
    made = Flat(moe.MoE.Config(num_experts=experts, routed_experts=routed, router=router, shared_experts=shared))
    for p in made.parameters():
        nn.init.normal_(p, std=0.02)
    made._init_self_buffers()
    return made


def wrap(case, model):
    plan = case["plan"]
    world, ep = case["world"], plan["parallel"]["expert"]
    shard = plan.get("shard_group") or world
    dense = init_device_mesh("cpu", (world // shard, shard), mesh_dim_names=("dp_replicate", "fsdp"))
    sparse = init_device_mesh("cpu", (world // shard, shard // ep, ep), mesh_dim_names=("dp_replicate", "efsdp", "ep"))
    for mesh, name, dim in ((dense, "replica", "dp_replicate"), (sparse, "replica", "dp_replicate"), (dense, "world" if shard == world else "shard", "fsdp"),
                            (sparse, "expert_data", "efsdp"), (sparse, "expert", "ep")):
        group = mesh.get_group(dim)
        if group in names and names[group] != name:
            shared.add(group)
        names[group] = name
    hybrid = world > shard
    dense, efsdp = dense["dp_replicate", "fsdp"] if hybrid else dense["fsdp"], sparse["dp_replicate", "efsdp"] if hybrid else sparse["efsdp"]
    return wrap_units(plan, model, block_list(model), dense, efsdp, sparse["ep"])


def wrap_units(plan, model, blocks, dense, efsdp, ep_mesh):
    """Of a model, or a stage of one, with its blocks."""
    hybrid, ep, shard = dense.ndim > 1, ep_mesh.size(), dense.size(-1)

    def info(mesh):
        return HSDPMeshInfo(mesh=mesh, replicate_mesh_dim=0, shard_mesh_dim=1) if hybrid else FSDPMeshInfo(mesh=mesh, shard_mesh_dim=0)

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32 if plan["reduce_dtype"] == "fp32" else torch.bfloat16, cast_forward_inputs=False)
    reshard = plan.get("fsdp", {}).get("reshard_after_forward", True)
    dense_info, sparse_info = info(dense), info(efsdp)
    for i, block in enumerate(blocks):
        hf_name = next(n for n in ("mlp", "block_sparse_moe") if hasattr(block, n))
        own, placement = set(), Shard(0)
        if hasattr(getattr(block, hf_name), "experts"):
            made = titan_moe(plan["model"], getattr(block, hf_name)).requires_grad_(plan.get("train") != "lora")
            setattr(block, hf_name, made)
            inner = made.routed_experts.inner_experts
            for name, p in list(inner.named_parameters()):
                inner.register_parameter(name, nn.Parameter(DTensor.from_local(p.data.chunk(ep)[ep_mesh.get_local_rank()].clone(), ep_mesh, [Shard(0)], run_check=False),
                                                            requires_grad=p.requires_grad))
            made.routed_experts.token_dispatcher.wire_meshes(ep_mesh=ep_mesh)
            own = set(inner.parameters())
            placement = Shard(1 if shard > inner.num_experts else 0)

        def of(param, own=own, placement=placement):
            return ShardPlacementResult(placement=placement, mesh_info=sparse_info) if param in own else ShardPlacementResult(placement=Shard(0), mesh_info=dense_info)

        if plan["recompute"] == "full":
            blocks[i] = block = base.checkpoint_wrapper(block, checkpoint_impl=base.CheckpointImpl.NO_REENTRANT)
        fully_shard(block, mesh=dense, mp_policy=policy, reshard_after_forward=reshard, shard_placement_fn=of)
    fully_shard(model, mesh=dense, mp_policy=policy)
    for module in model.modules():
        if isinstance(module, torch.distributed.fsdp.FSDPModule):
            module.set_gradient_divide_factor(1.0)
    units = [model] + list(blocks)
    for unit, following in zip(units, units[1:]):
        unit.set_modules_to_forward_prefetch([following])
    model.set_modules_to_backward_prefetch([blocks[-1]])
    for unit, before in zip(blocks[1:], blocks):
        unit.set_modules_to_backward_prefetch([before])
    return model


def run(case, rank):
    plan, config = case["plan"], case["plan"]["model"]
    base.log.clear()
    dist.init_process_group("experts", store=dist.HashStore(), rank=rank, world_size=case["world"])
    torch.manual_seed(0)
    model = build(config).train()
    if plan.get("train") == "lora":
        model = adapt(model.bfloat16(), plan["lora"]["target_modules"], plan["lora"]["rank"])
    model = wrap(case, model)
    if plan.get("train") == "lora":
        model.bfloat16()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    phases = [list(base.log)]
    for _ in range(base.STEPS):
        base.log.clear()
        for micro in range(plan["accumulation"]):
            model.set_requires_gradient_sync(micro == plan["accumulation"] - 1 or plan["sync_every_micro_step"])
            tokens = torch.randint(0, config["vocab_size"], (plan["micro_batch"], plan["seq"]))
            (model(input_ids=tokens, labels=tokens).loss / plan["accumulation"]).backward()
        if plan["clip"] is not None:
            clip_grad_norm(list(model.parameters()), plan["clip"], 2.0, False, None, None)
        optimizer.step()
        optimizer.zero_grad()
        phases.append(list(base.log))
    return phases, []


base.run = run

# ---------------------------------------------------------------- cases

SIZES = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32, "vocab_size": 103}
MIXTRAL = dict(SIZES, model_type="mixtral", intermediate_size=56, num_local_experts=8, num_experts_per_tok=2)
QWEN3 = dict(SIZES, model_type="qwen3_moe", head_dim=16, intermediate_size=112, moe_intermediate_size=24, num_experts=16, num_experts_per_tok=4, norm_topk_prob=True)
GRANITE = dict(SIZES, model_type="granitemoe", intermediate_size=24, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=True)
OLMOE = dict(SIZES, model_type="olmoe", intermediate_size=24, num_experts=8, num_experts_per_tok=2)

GPT_OSS = dict(SIZES, model_type="gpt_oss", head_dim=16, intermediate_size=24, num_local_experts=8, num_experts_per_tok=2, sliding_window=8)
DEEPSEEK = dict(SIZES, model_type="deepseek_v3", num_hidden_layers=4, num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8,
                intermediate_size=88, moe_intermediate_size=24, n_routed_experts=8, n_shared_experts=1, n_group=2, topk_group=1, num_experts_per_tok=2,
                first_k_dense_replace=2, norm_topk_prob=True)
GLM = dict(SIZES, model_type="glm4_moe", head_dim=16, intermediate_size=88, moe_intermediate_size=24, n_routed_experts=8, n_shared_experts=1, n_group=1, topk_group=1,
           num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=True)


def cases():
    def make(name, what, model, world, expert, **more):
        plan = {"dpx_plan": 1, "model": dict(model), "cluster": f"{max(1, world // 8)}x{min(world, 8)}xh100", "strategy": "fsdp", "dialect": "torch", "kernels": "torch-eager",
                "unit": "block", "seq": 16, "micro_batch": 2, "accumulation": 1, "sync_every_micro_step": False, "precision": "bf16",
                "reduce_dtype": "fp32", "clip": None, "recompute": "none", "parallel": {"expert": expert}}
        plan.update(more)
        return {"name": name, "what": what, "world": world, "plan": plan, "api": "fsdp2"}

    yield make("mixtral-e2-w4", "experts over 2 of 4 ranks", MIXTRAL, 4, 2)
    yield make("mixtral-e4-w4", "experts over all ranks: none are gathered", MIXTRAL, 4, 4)
    yield make("mixtral-e2-w4-clip", "clip_grad_norm_", MIXTRAL, 4, 2, clip=1.0)
    yield make("mixtral-e4-w4-clip", "experts over all ranks, clip_grad_norm_", MIXTRAL, 4, 4, clip=1.0)
    yield make("mixtral-e2-w8-hsdp-clip", "two copies of 4 ranks, experts over 2", MIXTRAL, 8, 2, shard_group=4, clip=1.0)
    yield make("mixtral-e4-w16", "more ranks than experts: cut on the second dimension", MIXTRAL, 16, 4)
    yield make("qwen3-e4-w8-acc2", "2 micro-steps, gradients reduced after the last", QWEN3, 8, 4, accumulation=2)
    yield make("qwen3-e2-w8-acc2-sync", "2 micro-steps, both reduced", QWEN3, 8, 2, accumulation=2, sync_every_micro_step=True)
    yield make("qwen3-e2-w4-full", "every block recomputed", QWEN3, 4, 2, recompute="full")
    yield make("granite-e2-w4-bf16", "gradients reduced in bf16, tied embedding", GRANITE, 4, 2, reduce_dtype="bf16")
    yield make("gpt-oss-e2-w4-clip", "experts with biases, attention with sinks", GPT_OSS, 4, 2, clip=1.0)
    yield make("gpt-oss-e4-w16-acc2", "more ranks than experts: biases are cut on their second dimension, too", GPT_OSS, 16, 4, accumulation=2)
    yield make("deepseek-e2-w4-full-clip", "two blocks without experts before two that have some, recomputed", DEEPSEEK, 4, 2, recompute="full", clip=1.0)
    yield make("deepseek-e4-w4-acc2", "the same, experts over all ranks, 2 micro-steps", DEEPSEEK, 4, 4, accumulation=2)
    yield make("glm4-e2-w8-hsdp", "a first block without experts, two copies of 4 ranks", GLM, 8, 2, shard_group=4)
    yield make("glm4-e4-w8-keep", "a first block without experts, parameters stay after forward", GLM, 8, 4, fsdp={"reshard_after_forward": False})
    def adapted(name, what, model, world, expert, names=("q_proj", "k_proj", "v_proj", "o_proj"), **more):
        fsdp = {"model_dtype": "bf16"} | more.pop("fsdp", {})
        return make(name, what, model, world, expert, train="lora", lora={"rank": 8, "target_modules": list(names), "narrow": True}, fsdp=fsdp, **more)

    yield adapted("mixtral-e2-w4-lora", "adapters of attention", MIXTRAL, 4, 2)
    yield adapted("mixtral-e4-w4-lora-keep", "adapters of attention, experts over all ranks, parameters stay after forward", MIXTRAL, 4, 4, fsdp={"reshard_after_forward": False})
    yield adapted("gpt-oss-e2-w4-lora-acc2", "adapters of attention, 2 micro-steps", GPT_OSS, 4, 2, accumulation=2)
    yield adapted("gpt-oss-e4-w4-lora-qv", "adapters of q and v, experts over all ranks", GPT_OSS, 4, 4, names=("q_proj", "v_proj"))
    yield adapted("qwen3-e2-w4-lora-full", "adapters of attention, every block recomputed", QWEN3, 4, 2, recompute="full")
    yield make("olmoe-e4-w8-keep", "parameters stay after forward", OLMOE, 8, 4, fsdp={"reshard_after_forward": False})


def main():
    outdir, wanted = sys.argv[1], sys.argv[2:]
    base.warnings.filterwarnings("ignore")
    base.transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    text = [f"# recorded from torchtitan's MoE, FSDP2 of torch {torch.__version__.split('+')[0]}, CPU, by record_titan.py"]
    failed = 0
    for case in cases():
        if wanted and case["name"] not in wanted:
            continue
        try:
            text += ["", "list " + case["name"]] + base.recording(case)
            print("recorded", case["name"], file=sys.stderr, flush=True)
        except Exception as e:
            failed += 1
            print("FAILED", case["name"], e, file=sys.stderr, flush=True)
        if not wanted:
            with open(os.path.join(outdir, "titan.txt"), "w") as f:
                f.write("\n".join(text) + "\n")
    if wanted:
        print("\n".join(text))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
