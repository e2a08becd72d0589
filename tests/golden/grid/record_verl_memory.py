#!/usr/bin/env python3
"""Records the memory of steps under verl's Ulysses around FSDP2 and FSDP1.

    python record_verl_memory.py --verl FOLDER [--only SUBSTRING] [-o verl_memory.jsonl]         five minutes; -o verl_fsdp1.jsonl of FSDP1
    -o verl_lora.jsonl, verl_lora_fsdp1.jsonl: PEFT's adapters beside it (0.21), as get_fsdp_wrap_policy(is_lora=True) wraps them
    FOLDER: verl 0.9.1, unpacked (pip download verl==0.9.1 --no-deps); of it verl/utils/ulysses.py runs

record_memory.py's steps.  Attention is that of verl/models/transformers/monkey_patch.py (_ulysses_flash_attention_forward), with
scaled_dot_product_attention() where flash_attn is called: all samples of a micro-batch lie in one row, as they do without padding.  The
loss is fsdp_sft_trainer's: of each token, gathered.  Under FSDP1 ../memory/record_fsdp1_offload.py counts the device."""
import contextlib
import importlib.util
import os
import sys
from functools import partial

import record_memory as steps
import record_fsdp1_offload as one

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, _or_policy, lambda_auto_wrap_policy
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.nn import functional as F
from transformers import AttentionInterface

WIDE = dict(steps.base.LLAMA, num_hidden_layers=4, hidden_size=128, intermediate_size=128, num_attention_heads=16,
            num_key_value_heads=4, head_dim=128, vocab_size=512)
QWEN3 = dict(steps.MODELS["qwen3-small"], num_hidden_layers=4, hidden_size=256, head_dim=64, num_attention_heads=16, num_key_value_heads=4,
             vocab_size=512, max_position_embeddings=65536)
steps.MODELS.update({"wide": WIDE, "wide-heads": dict(WIDE, num_key_value_heads=16), "wide-one": dict(WIDE, num_key_value_heads=1),
                     "wide-words": dict(WIDE, vocab_size=16384), "qwen3-wide": QWEN3})
RUN = {}        # verl's module and the run that its attention is in


def repeat_kv(x, times):
    batch, rows, heads, dim = x.shape
    return x if times == 1 else x[:, :, :, None, :].expand(batch, rows, heads, times, dim).reshape(batch, rows, heads * times, dim)


def kernel(q, k, v, samples):
    """flash_attn_varlen_func(): samples behind each other in a row."""
    q, k, v = (x.view(samples, -1, *x.shape[2:]).transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2).reshape(1, -1, out.shape[1], out.shape[3])


def forward(q, k, v, positions):
    verl, samples = RUN["verl"], RUN["run"].plan["micro_batch"]
    ranks = verl.get_ulysses_sequence_parallel_world_size()
    times = max(ranks // k.size(2), 1)
    k = repeat_kv(k, times)
    v = repeat_kv(v, times)
    q = verl.gather_seq_scatter_heads(q, seq_dim=1, head_dim=2)
    k = verl.gather_seq_scatter_heads(k, seq_dim=1, head_dim=2)
    v = verl.gather_seq_scatter_heads(v, seq_dim=1, head_dim=2)
    position_ids_list = [torch.empty_like(positions) for _ in range(ranks)]
    dist.all_gather(position_ids_list, positions, group=verl.get_ulysses_sequence_parallel_group())
    positions = torch.concat(position_ids_list, dim=-1)
    out = kernel(q, k, v, samples)
    return verl.gather_heads_scatter_seq(out, seq_dim=1, head_dim=2)


def attention(module, query, key, value, attention_mask, **kwargs):
    """transformers' flash_attention_forward(), which takes positions outermost."""
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    return forward(query, key, value, RUN["run"].positions), None


def tune(model, plan):
    """Adapters in fp32, as PEFT makes them of verl's actor in fp32; inputs of blocks require gradients where these are checkpoints."""
    if plan.get("train") != "lora":
        return model
    from peft import LoraConfig, get_peft_model
    if plan["recompute"] == "full":
        model.enable_input_require_grads()
    words = {"rank": "r", "alpha": "lora_alpha"}
    move, torch.nn.Module.to = torch.nn.Module.to, lambda module, *args, **kwargs: module
    try:
        return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **{words.get(k, k): v for k, v in plan["lora"].items()})).get_base_model()
    finally:
        torch.nn.Module.to = move


@contextlib.contextmanager
def autocast(plan):
    """Under the trackers' modes torch.is_autocast_enabled() says no; PEFT asks."""
    if "lora" not in plan or plan["dialect"] != "torch-fsdp1":
        yield
        return
    asked, torch.is_autocast_enabled = torch.is_autocast_enabled, lambda *device: (
        asked(*device) if sys._getframe(1).f_code.co_filename.endswith("autocast_mode.py") else True)
    try:
        with torch.autocast("cuda", torch.bfloat16):
            yield
    finally:
        torch.is_autocast_enabled = asked


class Run(steps.Run):
    def build(self):
        AttentionInterface.register("sdpa", attention)
        inner, steps.wrap = steps.wrap, lambda model, plan, *rest: inner(tune(model, plan), plan, *rest)
        try:
            super().build()
        finally:
            steps.wrap = inner
        RUN["verl"].set_ulysses_sequence_parallel_group(self.mesh["cp"].get_group())
        RUN["run"] = self
        rows = self.plan["micro_batch"] * self.plan["seq"] // self.sizes.context
        self.ids, self.labels = (torch.zeros((1, rows), dtype=torch.long) for _ in range(2))
        self.positions = torch.zeros((1, rows), dtype=torch.long)

    def forward(self):
        """verl's actor computes under autocast, which adapters that are units of their own need (../tune/record_wrapped.py)."""
        with autocast(self.plan):
            return self.loss()

    def loss(self):
        logits = self.model(input_ids=self.ids, attention_mask=None, position_ids=self.positions, use_cache=False).logits.squeeze(0)
        loss = F.cross_entropy(logits.float(), self.labels.squeeze(0), reduction="none")
        return RUN["verl"].gather_outputs_and_unpad(loss, gather_dim=0, unpad_dim=0, padding_size=0).mean()

    def as_planned(self):
        return steps.contextlib.nullcontext()


def _or_policy_of(blocks):
    """Beside blocks every module without children whose weight trains."""
    def trains(module):
        return not list(module.children()) and getattr(module, "weight", None) is not None and module.weight.requires_grad
    return partial(_or_policy, policies=[partial(lambda_auto_wrap_policy, lambda_fn=trains), blocks])


class RunOne(Run):
    """The same under FSDP1."""

    def __init__(self, plan):
        super().__init__(plan)
        self.groups = one.groups_of(plan)

    def shard(self, model, plan, sizes, mesh):
        options = {k: v for k, v in plan["fsdp"].items() if k != "model_dtype"}
        options["sharding_strategy"] = ShardingStrategy[options["sharding_strategy"]]
        if plan["precision"] == "bf16":
            options["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if plan["recompute"] == "full":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        policy = ModuleWrapPolicy({type(steps.base.blocks_of(model)[0])})
        if options.pop("wrap_adapters", False):
            policy = _or_policy_of(policy)
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, process_group=self.groups, device_id=torch.device("cuda", 0), **options)

    def step(self):
        for m in range(self.plan["accumulation"]):
            with steps.base.synchronized(self.model, dict(self.plan, strategy="fsdp1"), m == self.plan["accumulation"] - 1):
                self.forward().backward()
        if self.plan.get("clip"):
            self.model.clip_grad_norm_(self.plan["clip"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def run_one(plan):
    steps.base.PLANNED["capability"] = steps.base.CAPABILITY[steps.base.gpu_of(plan)]
    resize, wrap = torch.UntypedStorage.resize_, steps.wrap
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=steps.base.world_of(plan))
    try:
        made = RunOne(plan)
        steps.wrap = made.shard
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), one.Both() as host:
            one.away.HOST = host
            resize = host.resized()
            made.build()
            made.step()
            host.begin()
            made.step()
            return {"peak_total": host.device_most, "after": host.device}, {}
    finally:
        torch.UntypedStorage.resize_, steps.wrap = resize, wrap
        dist.destroy_process_group()


def run(plan):
    return run_one(plan) if plan["dialect"] == "torch-fsdp1" else steps.run(plan)


def cp(context):
    return {"context": context, "context_method": "ulysses", "context_balance": False}


def cases():
    plan = steps.plan_of
    for model in ("wide", "wide-heads", "wide-one", "qwen3-wide"):
        for c in (2, 4, 8):
            yield plan(model, 8, cp(c), batch=1, seq=16384, recompute="full")
            yield plan(model, 8, cp(c), batch=2, seq=8192)
    yield plan("wide", 8, cp(16 // 2), batch=1, seq=16384, precision="fp32")
    yield plan("wide", 8, cp(4), batch=1, seq=16384, accumulation=2, recompute="full")
    yield plan("wide", 8, cp(4), batch=1, seq=16384, accumulation=2, sync_every_micro_step=False)
    yield plan("wide", 8, cp(2), batch=2, seq=8192, group=4, recompute="full")
    yield plan("wide", 8, cp(2), batch=1, seq=16384, gpu="a100-80gb", recompute="full")
    for c in (2, 4):
        yield plan("wide-words", 8, cp(c), batch=1, seq=16384, recompute="full")
        yield plan("wide-words", 8, cp(c), batch=2, seq=4096, clip=1.0)


def cases_of_fsdp1():
    def plan(*args, how="FULL_SHARD", orig=False, **more):
        return steps.plan_of(*args, **more) | {"dialect": "torch-fsdp1", "sync_every_micro_step": False,
                                               "fsdp": {"sharding_strategy": how, "use_orig_params": orig}}
    of = lambda context: {"context": context}           # it has no other method
    for model in ("wide", "wide-one", "qwen3-wide", "wide-words"):
        for c in (2, 4):
            yield plan(model, 8, of(c), batch=1, seq=16384, recompute="full")
            yield plan(model, 8, of(c), batch=2, seq=4096, orig=True, clip=1.0)
    yield plan("wide", 8, of(2), batch=2, seq=8192, group=4, how="HYBRID_SHARD", recompute="full")
    yield plan("wide", 8, of(4), batch=1, seq=16384, accumulation=2, recompute="full")


def cases_of_adapters(fsdp1):
    lora = {"train": "lora", "lora": {"rank": 16, "alpha": 32, "target_modules": "all-linear"}}
    few = {"train": "lora", "lora": {"rank": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj"]}}
    options = {"dialect": "torch-fsdp1", "sync_every_micro_step": False, "fsdp": {"sharding_strategy": "FULL_SHARD", "use_orig_params": False, "wrap_adapters": True, "model_dtype": None}}
    two = {"fsdp": {"reshard_after_forward": True, "model_dtype": None}}        # the actor is loaded in fp32
    for model in ("wide", "wide-one", "qwen3-wide", "wide-words"):
        for c in (2, 4):
            for how in (lora, few):
                grid = {"context": c} if fsdp1 else cp(c)
                more = dict(how, **(options if fsdp1 else two))
                yield dict(steps.plan_of(model, 8, grid, batch=1, seq=16384, recompute="full"), **more)
                yield dict(steps.plan_of(model, 8, grid, batch=2, seq=4096, clip=1.0), **more)


def load(folder):
    spec = importlib.util.spec_from_file_location("ulysses", os.path.join(folder, "verl", "utils", "ulysses.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_of(plan):
    return steps.name_of(dict(plan, parallel=cp(plan["parallel"]["context"]), fsdp={"reshard_after_forward": True} | plan["fsdp"])) + (" lora " + str(plan["lora"]["rank"]) if "lora" in plan else "") + (" fsdp1" if plan["dialect"] == "torch-fsdp1" else "")


def main():
    at = sys.argv.index("--verl")
    RUN["verl"] = load(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    args = steps.options(__doc__, "verl_memory.jsonl")
    steps.base.without_gpu()
    steps.meshes_are_real()
    steps.shapes_are_not_counted()
    steps.Run = Run
    if "fsdp1" in args.o:
        one.setup()
    plans = cases_of_adapters("fsdp1" in args.o) if "lora" in args.o else cases_of_fsdp1() if "fsdp1" in args.o else cases()
    steps.record(args.o, [p for p in plans if args.only in name_of(p)], name_of, run, verl="0.9.1",
                 cudnn=torch.backends.cudnn.version())


if __name__ == "__main__":
    main()
