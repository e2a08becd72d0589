#!/usr/bin/env python3
"""Records the collectives, sends and receives that PyTorch issues under tensor, sequence, context and pipeline
parallelism with FSDP2, HSDP and DDP.

    python record_collectives.py OUTDIR [FILE ...]        tp, cp, pp, mixed, ddp: all without names

As ../collectives/record_torch.py, whose process group, phases and format these are: one real rank trains a small
transformers model on CPU, the other ranks do not exist.  What is added here: sends and receives, exchanges of one part
(permutations), the names of a mesh's groups.  Attention under context parallelism is PyTorch's own ring over its flash
operator, which has no CPU kernel: the two below stand in, with the right shapes.  README.md says what the lists hold."""
import contextlib
import copy
import json
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "collectives"), os.path.join(HERE, "..", "memory"), HERE]

import torch
import torch.distributed as dist
import transformers
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F

import record_torch as base
from alone import alone
from families import build
from grid import Sizes, Stage, adapt, blocks_of_stages, meshes_of, stages_of_rank, wrap

STEPS = {"fsdp": 3, "ddp": 5}       # DDP rebuilds its buckets in the second
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "looped-bfs": "LoopedBFS",
             "zb1p": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}


# ---------------------------------------------------------------- the process group

names = {}             # process group -> its name in our lists


in_ring = False        # while attention's ring runs: a mesh may use one group for several axes


def group_name(pg):
    return f"{'context' if in_ring else names.get(pg, 'world')}/{pg.size()}"


base.group_name = group_name


def ring_is_context(name):
    inner = getattr(ring, name)

    def named(*args, **kwargs):
        global in_ring
        in_ring = True
        try:
            return inner(*args, **kwargs)
        finally:
            in_ring = False
    setattr(ring, name, named)


ring_is_context("_templated_ring_attention")
ring_is_context("_templated_ring_attention_backward")


class Recorder(base.Recorder):
    def all_to_all_single(self, output, inp, out_splits, in_splits, opts=None):
        sent = [i for i, n in enumerate(in_splits) if n] if in_splits else []
        if len(sent) == 1:          # permute_tensor(): all goes to one
            base.log.append(f"all_to_all {group_name(self)} {base.DTYPES[inp.dtype]} {inp.numel()} to " +
                            ("next" if sent[0] == (self.rank() + 1) % self.size() else str(sent[0])))
        else:
            self.note("all_to_all", [inp])
        output.zero_()
        return base.done(output)

    def peer(self, op, tensors, word, rank):
        for t in tensors:
            base.log.append(f"{op} {group_name(self)} {base.DTYPES[t.dtype]} {t.numel()} {word} {rank}" + (" batch" if in_batch else ""))
        return base.done(tensors)

    def send(self, tensors, dst, tag):
        return self.peer("send", tensors, "to", dst)

    def recv(self, tensors, src, tag):
        for t in tensors:
            t.zero_()
        return self.peer("recv", tensors, "from", src)


in_batch = False


def batch_isend_irecv(ops):
    """Under NCCL one coalesced group."""
    global in_batch
    in_batch = True
    works = [op.op(op.tensor, group=op.group, tag=op.tag, **{"group_dst" if op.op is dist.isend else "group_src": op.group_peer}) for op in ops]
    in_batch = False
    return works


dist.batch_isend_irecv = batch_isend_irecv
dist.Backend.register_backend("grid", lambda store, rank, size, timeout: Recorder(rank, size), devices=["cpu"])


# ---------------------------------------------------------------- flash attention's operator, shapes only

kernels = torch.library.Library("aten", "IMPL")


def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    state = torch.empty(2, dtype=torch.int64)
    lse = torch.zeros(q.shape[:3], dtype=torch.float32)
    return q.new_zeros(*q.shape[:3], v.shape[3]), lse, None, None, q.shape[2], k.shape[2], state, torch.empty((), dtype=torch.int64), q.new_empty(0)


def flash_backward(grad_out, q, k, v, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None):
    return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)


def flash_only():
    """scaled_dot_product_attention() as on a GPU that takes flash."""
    kernels.impl("_scaled_dot_product_flash_attention", flash, "CPU")
    kernels.impl("_scaled_dot_product_flash_attention_backward", flash_backward, "CPU")

    def scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        assert attn_mask is None
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]

    F.scaled_dot_product_attention = scaled_dot_product_attention


# ---------------------------------------------------------------- one case, seen from one rank

def clip_grad_norm(parameters, most, pipe):
    """torchtitan 0.2.2, distributed/utils.py."""
    parameters = list(parameters)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], 2.0)
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    if pipe:
        norm **= 2.0
        dist.all_reduce(norm, op=dist.ReduceOp.SUM, group=pipe)
        norm **= 0.5
    torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)


def mean_loss(vocab):
    def loss(logits, labels):
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(0, 1))
    return loss


def tune(model, plan):
    """PEFT's adapters (0.21), of one dtype with the model."""
    if plan.get("train") != "lora":
        return model
    if plan["parallel"].get("inputs_apart"):
        return adapt(model, plan["lora"]["target_modules"], plan["lora"]["rank"])
    from peft import LoraConfig, get_peft_model
    return get_peft_model(model, LoraConfig(r=plan["lora"]["rank"], target_modules=plan["lora"]["target_modules"])).get_base_model()


class Run:
    """A rank's model and how it takes a step."""

    def __init__(self, case, rank):
        self.plan, self.case = case["plan"], case
        self.sizes = Sizes(self.plan, case["world"])
        self.grid = self.plan.get("parallel", {})
        self.mesh, of = meshes_of(self.sizes)
        names.clear()
        names.update(of)
        torch.manual_seed(0)
        model = build(self.plan["model"], attention="sdpa").train()
        model = tune(model.bfloat16() if self.plan.get("fsdp", {}).get("model_dtype") == "bf16" else model, self.plan)
        self.seq = self.plan["seq"] // self.sizes.context
        self.vocab = self.plan["model"]["vocab_size"]
        self.positions = torch.arange(self.seq).unsqueeze(0)
        if self.sizes.context > 1:
            flash_only()
            ring.set_rotate_method({"all-gather": "allgather", "ring": "alltoall"}[self.grid.get("context_method", "all-gather")])
            ring._cp_options.enable_load_balance = self.grid.get("context_balance", True)
        if self.sizes.pipe > 1:
            self.make_stages(model)
        else:
            self.model = wrap(model, self.plan, self.sizes, self.mesh)
            self.parts = [self.model]
        self.optimizer = torch.optim.AdamW([p for m in self.parts for p in m.parameters()], lr=1e-4)

    def make_stages(self, model):
        kind, pipe, s = self.grid["pipeline_schedule"], self.sizes.pipe, self.sizes
        self.flushes = self.grid.get("pipeline_flushes", 1)
        virtual = 2 if kind in ("zbv", "dualpipev") else self.grid.get("virtual_stages", 1)
        count = pipe * virtual
        split = blocks_of_stages(self.plan["model"]["num_hidden_layers"], count, self.grid.get("first_stage_less_layers", 0),
                                 self.grid.get("last_stage_less_layers", 0))
        me = self.mesh["pp"].get_local_rank()
        hidden = (self.plan["micro_batch"], self.seq // (s.tensor if s.sequence else 1), self.plan["model"]["hidden_size"])
        dtype = torch.bfloat16 if self.plan["precision"] == "bf16" else torch.float32
        stages = []
        for index in stages_of_rank(kind, pipe, virtual, me):
            first, last = index == 0, index == count - 1
            module = wrap(Stage(copy.deepcopy(model), split[index], first, last, self.positions), self.plan, s, self.mesh)
            given = torch.zeros(self.plan["micro_batch"], self.seq, dtype=torch.long) if first else torch.zeros(hidden, dtype=dtype, requires_grad=True)
            logits = (self.plan["micro_batch"], self.seq, self.vocab)
            left = torch.zeros(logits if last else hidden, dtype=dtype, requires_grad=True)
            static = {} if last and s.loss_parallel else {"input_args": given, "output_args": left}
            if last and s.loss_parallel:      # a DTensor: its metadata need its gradient's as well
                local = torch.zeros(*logits[:2], -(-self.vocab // s.tensor), dtype=dtype, requires_grad=True)
                out = DTensor.from_local(local, self.mesh["tp"], [torch.distributed.tensor.Shard(-1)], run_check=False)
                static = {"input_args": given, "output_args": out, "output_grads": out, "input_grads": torch.zeros(hidden, dtype=dtype)}
            stages.append(PipelineStage(module, index, count, torch.device("cpu"), group=self.mesh["pp"].get_group(), **static))
        self.parts = [stage.submod for stage in stages]
        cls = get_schedule_class(SCHEDULES[kind])
        one = kind in ("gpipe", "1f1b")
        self.schedule = cls(stages[0] if one else stages, n_microbatches=self.plan["accumulation"] // self.flushes, loss_fn=mean_loss(self.vocab), scale_grads=False)
        self.first, self.last = any(s.is_first for s in stages), any(s.is_last for s in stages)

    def tokens(self, batch):
        return [torch.randint(0, self.vocab, (batch, self.plan["seq"])) for _ in range(2)] + [torch.arange(self.plan["seq"]).unsqueeze(0)]

    @contextlib.contextmanager
    def cut_context(self, buffers):
        """Within: every rank of the context group has its part of each buffer, and attention is the ring."""
        if self.sizes.context == 1:
            yield
            return
        with context_parallel(self.mesh["cp"], buffers=buffers, buffer_seq_dims=[1] * len(buffers), no_restore_buffers=set(buffers)):
            yield

    def micro_step(self, last):
        sync = last or self.plan["sync_every_micro_step"]
        ids, labels, positions = self.tokens(self.plan["micro_batch"])
        nosync = contextlib.nullcontext()
        if self.plan["strategy"] == "fsdp":
            self.model.set_requires_gradient_sync(sync)
        elif not sync:
            nosync = self.model.no_sync()
        with nosync, self.cut_context([ids, labels, positions]):
            logits = self.model(input_ids=ids, position_ids=positions, use_cache=False).logits
            (mean_loss(self.vocab)(logits, labels) / self.plan["accumulation"]).backward()

    def step(self):
        with loss_parallel() if self.sizes.loss_parallel else contextlib.nullcontext():
            if self.sizes.pipe > 1:
                for _ in range(self.flushes):
                    ids, labels, positions = self.tokens(self.plan["micro_batch"] * self.plan["accumulation"] // self.flushes)
                    with self.cut_context([ids, labels, positions]):
                        args = (ids,) if self.first else ()
                        more = {"target": labels, "losses": []} if self.last else {}
                        self.schedule.step(*args, return_outputs=False, **more)
            else:
                for micro in range(self.plan["accumulation"]):
                    self.micro_step(micro == self.plan["accumulation"] - 1)
        if self.plan["clip"] is not None:
            clip_grad_norm([p for m in self.parts for p in m.parameters()], self.plan["clip"],
                           self.mesh["pp"].get_group() if self.sizes.pipe > 1 else None)
        self.optimizer.step()
        self.optimizer.zero_grad()


def run(case, rank):
    base.log.clear()
    import transformers.masking_utils as masks
    masks.find_packed_sequence_indices = lambda *a, **k: None       # sequences are not packed, whatever their positions
    dist.init_process_group("grid", store=dist.HashStore(), rank=rank, world_size=case["world"])
    phases = []
    made = Run(case, rank)
    phases.append(list(base.log))
    for _ in range(STEPS[case["plan"]["strategy"]]):
        base.log.clear()
        made.step()
        phases.append(list(base.log))
    return phases


def ranks_of(case):
    """Of each stage the first rank; and the world's last."""
    size = case["world"] // case["plan"].get("parallel", {}).get("pipeline", 1)
    return sorted(set(range(0, case["world"], size)) | {case["world"] - 1})


def recording(case):
    """As record_torch.sections(), for several ranks; one that issues what an earlier one does is named in a comment."""
    seen, body, same = {}, [], []
    for rank in ranks_of(case):
        phases = alone(run, case, rank)
        key = json.dumps(phases)
        if key in seen:
            same.append(f"# rank {rank} issues rank {seen[key]}'s list")
            continue
        seen[key] = rank
        body += base.sections(rank, phases)
    return ["list " + case["name"], f"# {case['what']}"] + same + ["plan " + json.dumps(case["plan"], separators=(",", ":"))] + body


# ---------------------------------------------------------------- the cases

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
         "num_key_value_heads": 4, "intermediate_size": 160, "max_position_embeddings": 64, "vocab_size": 256, "tie_word_embeddings": False}
FOUR, SIX = dict(LLAMA, num_hidden_layers=4), dict(LLAMA, num_hidden_layers=6)
ODD = dict(LLAMA, vocab_size=259)
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
         "num_key_value_heads": 4, "intermediate_size": 160, "max_position_embeddings": 64, "vocab_size": 256, "tie_word_embeddings": False}
QWEN3 = dict(QWEN2, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=16)
HEADS = dict(LLAMA, num_key_value_heads=8)         # in fp32 shared keys and values have a fused kernel, hence a ring, only since torch 2.15
MISTRAL = dict(LLAMA, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None)
REDUCED = {"precision": "bf16", "reduce_dtype": "fp32"}


def make(name, what, world, model=LLAMA, strategy="fsdp", grid=None, precision="fp32", reduce_dtype=None, accumulation=1, sync=False,
         clip=None, recompute="none", group=None, seq=32, micro_batch=2, options=None):
    plan = {"dpx_plan": 1, "model": copy.deepcopy(model), "cluster": f"{max(1, world // 8)}x{min(world, 8)}xh100", "strategy": strategy, "dialect": "torch",
            "kernels": "torch-sdpa", "seq": seq, "micro_batch": micro_batch, "accumulation": accumulation, "precision": precision,
            "reduce_dtype": reduce_dtype, "sync_every_micro_step": sync, "clip": clip, "recompute": recompute,
            "parallel": {k: v for k, v in (grid or {}).items()}}
    if strategy == "fsdp":
        plan["unit"] = "block"
        if group:
            plan["shard_group"] = group
        plan["fsdp"] = options or {}
    elif options:
        plan["ddp"] = options
    return {"name": name, "what": what, "world": world, "plan": plan}


def tp(tensor, sequence=True, loss=False, **more):
    return dict({"tensor": tensor, "sequence": sequence, "loss_parallel": loss}, **more)


def tensor_cases():
    for t in (2, 4):
        for sequence in (True, False):
            for loss in (False, True):
                grid = tp(t, sequence, loss)
                tag = f"t{t}" + ("-sp" if sequence else "") + ("-lp" if loss else "")
                yield make(f"fsdp-{tag}-d2", "FSDP2 over 2 ranks", 2 * t, grid=grid)
    for loss in (False, True):
        tag = "-lp" if loss else ""
        yield make(f"fsdp-t4-sp{tag}-d2-bf16", "bf16 parameters, fp32 reduction", 8, grid=tp(4, loss=loss), **REDUCED)
        yield make(f"fsdp-t4{tag}-d2-bf16", "bf16 parameters, fp32 reduction, no sequence parallelism", 8, grid=tp(4, False, loss), **REDUCED)
    yield make("fsdp-t2-sp-lp-d2-bf16-none", "bf16 parameters, reduce_dtype=None: norms' sums in bf16?", 4, grid=tp(2, loss=True), precision="bf16")
    yield make("fsdp-t2-sp-lp-d3", "FSDP2 over 3 ranks: padding", 6, grid=tp(2, loss=True))
    yield make("fsdp-t4-sp-lp-d1", "tensor parallelism alone: fully_shard over one rank", 4, grid=tp(4, loss=True))
    yield make("fsdp-t4-d1", "tensor parallelism alone, no sequence parallelism: fully_shard over one rank", 4, grid=tp(4, False))
    yield make("fsdp-t4-sp-lp-odd-d2", "a vocabulary that 4 does not divide", 8, model=ODD, grid=tp(4, loss=True))
    yield make("fsdp-t2-sp-lp-d2-clip", "clip_grad_norm_", 4, grid=tp(2, loss=True), clip=1.0)
    yield make("fsdp-t2-d2-clip", "clip_grad_norm_, no sequence parallelism", 4, grid=tp(2, False), clip=1.0)
    yield make("fsdp-t4-sp-lp-d2-clip-bf16", "clip_grad_norm_, bf16", 8, grid=tp(4, loss=True), clip=1.0, **REDUCED)
    yield make("fsdp-t2-sp-lp-d2-acc2", "2 micro-steps, set_requires_gradient_sync(False) on the first", 4, grid=tp(2, loss=True), accumulation=2)
    yield make("fsdp-t2-sp-lp-d2-acc2-sync", "2 micro-steps, all reduced", 4, grid=tp(2, loss=True), accumulation=2, sync=True)
    yield make("fsdp-t4-sp-lp-d2-acc2-bf16-clip", "2 micro-steps, bf16, clip", 8, grid=tp(4, loss=True), accumulation=2, clip=1.0, **REDUCED)
    yield make("fsdp-t2-sp-lp-d2-ckpt", "every block checkpointed", 4, grid=tp(2, loss=True), recompute="full")
    yield make("fsdp-t2-d2-ckpt", "every block checkpointed, no sequence parallelism", 4, grid=tp(2, False), recompute="full")
    yield make("fsdp-t4-sp-lp-d2-ckpt-bf16", "every block checkpointed, bf16", 8, grid=tp(4, loss=True), recompute="full", **REDUCED)
    yield make("fsdp-t2-sp-lp-d2-sac", "torchtitan's selective op recompute", 4, grid=tp(2, loss=True), recompute="op")
    yield make("fsdp-t2-sp-lp-d2-keep", "reshard_after_forward=False", 4, grid=tp(2, loss=True), options={"reshard_after_forward": False})
    yield make("hsdp-t2-sp-lp-2x2", "HSDP 2 x 2", 8, grid=tp(2, loss=True), group=2)
    yield make("hsdp-t2-sp-lp-2x2-bf16-clip", "HSDP 2 x 2, bf16, clip", 8, grid=tp(2, loss=True), group=2, clip=1.0, **REDUCED)
    yield make("hsdp-t2-2x2-acc2", "HSDP 2 x 2, no sequence parallelism, 2 micro-steps", 8, grid=tp(2, False), group=2, accumulation=2)
    yield make("hsdp-t2-sp-lp-2x2-ckpt", "HSDP 2 x 2, every block checkpointed", 8, grid=tp(2, loss=True), group=2, recompute="full")
    for model, name in ((QWEN2, "qwen2"), (QWEN3, "qwen3"), (MISTRAL, "mistral")):
        yield make(f"fsdp-{name}-t2-sp-lp-d2-clip", f"{name}: biases of q, k, v; norms of q and k" if name != "mistral" else name, 4, model=model,
                   grid=tp(2, loss=True), clip=1.0)
        yield make(f"fsdp-{name}-t4-sp-d2-bf16", name, 8, model=model, grid=tp(4), **REDUCED)


def cp(context, method="all-gather", balance=True, **more):
    return dict({"context": context, "context_method": method, "context_balance": balance}, **more)


def context_cases():
    for c in (2, 4):
        for method in ("all-gather", "ring"):
            for balance in (True, False):
                tag = f"c{c}" + ("-ring" if method == "ring" else "") + ("" if balance else "-flat")
                yield make(f"fsdp-{tag}", "FSDP2 over the context group", c, model=HEADS, grid=cp(c, method, balance))
                yield make(f"fsdp-{tag}-bf16", "bf16 parameters, fp32 reduction", c, grid=cp(c, method, balance), **REDUCED)
    yield make("fsdp-c2-d2-bf16", "bf16, FSDP2 over 2 x 2", 4, grid=cp(2), **REDUCED)
    yield make("fsdp-c2-ring-d2-bf16-clip", "bf16, clip", 4, grid=cp(2, "ring"), clip=1.0, **REDUCED)
    yield make("fsdp-c2-d2-acc2", "2 micro-steps", 4, model=HEADS, grid=cp(2), accumulation=2)
    yield make("fsdp-c2-d2-ckpt", "every block checkpointed", 4, model=HEADS, grid=cp(2), recompute="full")
    yield make("fsdp-c4-ring-ckpt-bf16", "every block checkpointed, bf16", 4, grid=cp(4, "ring"), recompute="full", **REDUCED)
    yield make("fsdp-c2-d2-sac", "torchtitan's selective op recompute", 4, model=HEADS, grid=cp(2), recompute="op")
    yield make("hsdp-c2-2x2", "HSDP: 2 replicas of groups of 4, context among them", 8, model=HEADS, grid=cp(2), group=4)
    yield make("fsdp-c2-qwen3-d2", "qwen3", 4, model=QWEN3, grid=cp(2), **REDUCED)
    yield make("fsdp-t2-sp-lp-c2", "with tensor and sequence parallelism", 4, model=HEADS, grid=tp(2, loss=True) | cp(2))
    yield make("fsdp-t2-sp-lp-c2-ring-d2-bf16-clip", "with tensor and sequence parallelism, bf16, clip", 8, grid=tp(2, loss=True) | cp(2, "ring"),
               clip=1.0, **REDUCED)
    yield make("fsdp-t2-c2-d2-acc2", "with tensor parallelism, 2 micro-steps", 8, model=HEADS, grid=tp(2, False) | cp(2), accumulation=2)
    yield make("fsdp-t2-sp-lp-c2-d2-ckpt", "with tensor and sequence parallelism, every block checkpointed", 8, model=HEADS, grid=tp(2, loss=True) | cp(2), recompute="full")


def pp(pipe, kind, virtual=1, less=0, **more):
    grid = dict({"pipeline": pipe, "pipeline_schedule": kind}, **more)
    if kind not in ("gpipe", "1f1b", "zbv", "dualpipev"):
        grid["virtual_stages"] = virtual
    grid["first_stage_less_layers"] = grid["last_stage_less_layers"] = less
    return grid


def pipeline_cases():
    kinds = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("looped-bfs", 2), ("zb1p", 1), ("zb1p", 2), ("zbv", 2), ("dualpipev", 2)]
    for kind, v in kinds:
        tag = kind + (f"-v{v}" if kind == "zb1p" else "")
        yield make(f"fsdp-{tag}-p2-m4", "a pipeline of 2; fully_shard over one rank", 2, model=FOUR, grid=pp(2, kind, v), accumulation=4,
                   options={"reshard_after_forward": False})
        yield make(f"fsdp-{tag}-p2-m4-d2", "FSDP2 over 2 ranks, kept after forward as torchtitan does", 4, model=FOUR, grid=pp(2, kind, v),
                   accumulation=4, options={"reshard_after_forward": False}, **REDUCED)
    yield make("fsdp-1f1b-p2-m4-d2-always", "reshard_after_forward: always", 4, model=FOUR, grid=pp(2, "1f1b"), accumulation=4,
               options={"reshard_after_forward": True})
    yield make("fsdp-interleaved-p2-m4-d2-always", "reshard_after_forward: always", 4, model=FOUR, grid=pp(2, "interleaved", 2), accumulation=4,
               options={"reshard_after_forward": True})
    yield make("fsdp-1f1b-p4-m8-less", "stages of 1, 2, 2, 1 blocks", 4, model=SIX, grid=pp(4, "1f1b", less=1), accumulation=8,
               options={"reshard_after_forward": False})
    yield make("fsdp-1f1b-p4-m4-clip", "clip over the stages", 4, model=FOUR, grid=pp(4, "1f1b"), accumulation=4, clip=1.0,
               options={"reshard_after_forward": False})
    yield make("fsdp-zbv-p4-m8", "V of 4", 4, model=dict(LLAMA, num_hidden_layers=8), grid=pp(4, "zbv"), accumulation=8, options={"reshard_after_forward": False})
    yield make("fsdp-1f1b-p2-m4-d2-clip-ckpt", "clip, every block checkpointed", 4, model=FOUR, grid=pp(2, "1f1b"), accumulation=4, clip=1.0,
               recompute="full", options={"reshard_after_forward": False}, **REDUCED)
    yield make("hsdp-1f1b-p2-m4-2x2", "HSDP 2 x 2", 8, model=FOUR, grid=pp(2, "1f1b"), accumulation=4, group=2, options={"reshard_after_forward": False})
    keep = {"reshard_after_forward": False}
    for kind, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
        yield make(f"fsdp-{kind}-p2-m4-f2-d2", "a schedule of 4 micro-steps, twice a step", 4, model=FOUR, grid=pp(2, kind, v, pipeline_flushes=2), accumulation=8,
                   options=keep, **REDUCED)
    yield make("fsdp-1f1b-p2-m2-f3-clip", "three times, clip", 4, model=FOUR, grid=pp(2, "1f1b", pipeline_flushes=3), accumulation=6, clip=1.0, options=keep)
    yield make("hsdp-1f1b-p2-m2-f2-2x2", "twice, HSDP 2 x 2", 8, model=FOUR, grid=pp(2, "1f1b", pipeline_flushes=2), accumulation=4, group=2, options=keep)
    for kind, v in (("1f1b", 1), ("interleaved", 2)):
        for targets in (["q_proj", "v_proj"], "all-linear"):
            case = make(f"fsdp-{kind}-p2-m4-lora-{targets if isinstance(targets, str) else 'qv'}-full", "adapters", 4, model=FOUR, grid=pp(2, kind, v),
                        accumulation=4, recompute="full", options=keep, **REDUCED)
            case["plan"] |= {"train": "lora", "lora": {"rank": 8, "target_modules": targets}}
            case["plan"]["fsdp"]["model_dtype"] = None
            yield case


def ddp_cases():
    yield make("ddp-t2-sp-lp-d2", "DDP over 2 ranks", 4, strategy="ddp", grid=tp(2, loss=True))
    yield make("ddp-t2-d2", "DDP over 2 ranks, no sequence parallelism", 4, strategy="ddp", grid=tp(2, False))
    yield make("ddp-t4-sp-lp-d2-cap", "DDP, several buckets", 8, strategy="ddp", grid=tp(4, loss=True), options={"bucket_cap_mb": 0.02})
    yield make("ddp-t2-sp-lp-d2-acc2", "DDP, no_sync on the first of 2", 4, strategy="ddp", grid=tp(2, loss=True), accumulation=2)
    yield make("ddp-t2-sp-lp-d2-clip", "DDP, clip_grad_norm_", 4, strategy="ddp", grid=tp(2, loss=True), clip=1.0)
    yield make("ddp-t2-sp-lp-d2-ckpt", "DDP, every block checkpointed", 4, strategy="ddp", grid=tp(2, loss=True), recompute="full")
    for kind, v in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zbv", 2)):
        yield make(f"ddp-{kind}-p2-m4-d2", "DDP over 2 ranks", 4, model=FOUR, strategy="ddp", grid=pp(2, kind, v), accumulation=4)
    for kind, v, more in (("gpipe", 1, {}), ("1f1b", 1, {}), ("interleaved", 2, {"clip": 1.0})):
        yield make(f"ddp-t2-sp-lp-{kind}-p2-m4-d2" + ("-clip" if more else ""), "DDP over 2 ranks, tensor, sequence and loss parallelism", 8,
                   model=FOUR, strategy="ddp", grid=tp(2, loss=True) | pp(2, kind, v), accumulation=4, **more)


def mixed_cases():
    keep = {"reshard_after_forward": False}
    yield make("fsdp-t2-sp-lp-1f1b-p2-m4", "tensor, sequence and loss parallelism in a pipeline of 2", 4, model=FOUR,
               grid=tp(2, loss=True) | pp(2, "1f1b"), accumulation=4, options=keep)
    yield make("fsdp-t2-sp-lp-1f1b-p2-m4-d2-clip", "and FSDP2 over 2 ranks, bf16, clip", 8, model=FOUR, grid=tp(2, loss=True) | pp(2, "1f1b"),
               accumulation=4, clip=1.0, options=keep, **REDUCED)
    yield make("fsdp-t2-sp-interleaved-p2-m4-d2", "interleaved, no loss parallelism", 8, model=FOUR, grid=tp(2) | pp(2, "interleaved", 2),
               accumulation=4, options=keep)
    yield make("fsdp-t2-gpipe-p2-m4-d2", "no sequence parallelism", 8, model=FOUR, grid=tp(2, False) | pp(2, "gpipe"), accumulation=4, options=keep)
    yield make("fsdp-t2-sp-lp-zb1p-p2-m4-d2", "zero bubble", 8, model=FOUR, grid=tp(2, loss=True) | pp(2, "zb1p", 2), accumulation=4, options=keep)
    yield make("fsdp-c2-1f1b-p2-m4", "context parallelism in a pipeline of 2", 4, model=dict(FOUR, num_key_value_heads=8), grid=cp(2) | pp(2, "1f1b"), accumulation=4, options=keep)
    yield make("fsdp-t2-sp-lp-c2-1f1b-p2-m4", "tensor and context parallelism in a pipeline of 2", 8, model=dict(FOUR, num_key_value_heads=8),
               grid=tp(2, loss=True) | cp(2) | pp(2, "1f1b"), accumulation=4, options=keep)
    yield make("fsdp-t2-sp-lp-c2-interleaved-p2-m4-d2-clip", "all axes, FSDP2 over 2 x 2, clip, bf16", 16, model=FOUR,
               grid=tp(2, loss=True) | cp(2) | pp(2, "interleaved", 2), accumulation=4, clip=1.0, options=keep, **REDUCED)
    yield make("fsdp-t2-sp-lp-1f1b-p2-m4-d2-ckpt", "every block checkpointed", 8, model=FOUR, grid=tp(2, loss=True) | pp(2, "1f1b"), accumulation=4,
               recompute="full", options=keep, **REDUCED)
    yield make("hsdp-t2-sp-lp-1f1b-p2-m4-2x2", "HSDP 2 x 2", 16, model=FOUR, grid=tp(2, loss=True) | pp(2, "1f1b"), accumulation=4, group=2, options=keep)


PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PHI = {"model_type": "phi", "architectures": ["PhiForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
       "num_key_value_heads": 8, "intermediate_size": 160, "max_position_embeddings": 64, "vocab_size": 256, "tie_word_embeddings": False,
       "hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0}


def adapter_cases():
    """NeMo Automodel's cut, alone and around its adapters."""
    def one(name, what, world, grid, rank=8, names=PROJECTIONS, **more):
        case = make(name, what, world, grid=dict(grid, inputs_apart=True), options=more.pop("options", {"model_dtype": "bf16"}), **REDUCED, **more)
        if names:
            case["plan"].update({"train": "lora", "lora": {"rank": rank, "target_modules": names, "narrow": True}})
        return case
    yield one("automodel-t2-d2", "everything trains", 4, tp(2, False), names=None)
    yield one("automodel-t4-sp-d2", "everything trains", 8, tp(4), names=None)
    yield one("automodel-qwen3-t2-d2", "everything trains; norms of q and k", 4, tp(2, False), model=QWEN3, names=None)
    for t in (2, 4):
        yield one(f"automodel-t{t}-d2-lora", "adapters of all projections", 2 * t, tp(t, False))
    yield one("automodel-t2-d2-lora-qv", "adapters of two", 4, tp(2, False), names=["q_proj", "v_proj"])
    yield one("automodel-t2-d2-lora-row", "adapters of row-parallel layers", 4, tp(2, False), names=["o_proj", "down_proj"])
    yield one("automodel-t4-d1-lora", "tensor parallelism alone", 4, tp(4, False))
    yield one("automodel-t2-d2-lora-ckpt", "every block checkpointed", 4, tp(2, False), recompute="full")
    yield one("automodel-t2-d2-lora-acc2", "2 micro-steps", 4, tp(2, False), accumulation=2)
    yield one("automodel-t2-d2-lora-wide", "more positions than columns", 4, tp(2, False), seq=64, micro_batch=8)
    keep = {"reshard_after_forward": False, "model_dtype": "bf16"}
    for kind, v in (("1f1b", 1), ("interleaved", 2)):
        yield one(f"automodel-t2-{kind}-p2-m4-lora-full", "in stages, every block checkpointed", 4, tp(2, False) | pp(2, kind, v), model=FOUR, accumulation=4,
                  recompute="full", options=keep)
    yield one("automodel-t2-interleaved-p2-m4-d2-lora-qv-full", "and FSDP2 over 2 ranks", 8, tp(2, False) | pp(2, "interleaved", 2), model=FOUR, accumulation=4,
              names=["q_proj", "v_proj"], recompute="full", options=keep)
    yield one("automodel-qwen2-t2-d2-lora", "biases of q, k, v", 4, tp(2, False), model=QWEN2)
    yield one("automodel-qwen3-t2-d2-lora", "norms of q and k", 4, tp(2, False), model=QWEN3)
    yield one("automodel-phi-t2-d2-lora", "attention beside the MLP", 4, tp(2, False), model=PHI, names=["q_proj", "k_proj", "v_proj"])


FILES = {"adapters": adapter_cases, "tp": tensor_cases, "cp": context_cases, "pp": pipeline_cases, "mixed": mixed_cases, "ddp": ddp_cases}


def main():
    outdir, wanted = sys.argv[1], sys.argv[2:]
    only = [w for w in wanted if w not in FILES]        # names of lists: printed, not kept
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if only:
        for make_cases in FILES.values():
            for case in make_cases():
                if case["name"] in only:
                    print("\n".join(recording(case)))
        return 0
    failed = 0
    for name in wanted or FILES:
        text = [f"# recorded from torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, CPU, by record_collectives.py"]
        missing = []
        for case in FILES[name]():
            try:
                text += [""] + recording(case)
                print("recorded", name, case["name"], flush=True)
            except Exception as e:
                failed += 1
                missing.append(f"# not recorded: {case['name']}: {str(e).strip().splitlines()[-1]}")
                print("FAILED", name, case["name"], e, file=sys.stderr, flush=True)
        with open(os.path.join(outdir, name + ".txt"), "w") as f:
            f.write("\n".join(text + [""] * bool(missing) + missing) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
