#!/usr/bin/env python3
"""Records the collectives, sends and receives that megatron-core issues under its DistributedDataParallel and its
distributed optimizer, with tensor, sequence and pipeline parallelism.

    PYTHONPATH=WHERE_MEGATRON_IS python record_megatron.py OUTDIR [FILE ...]       tensor, pipeline, buckets: all without names
    PYTHONPATH=WHERE_MEGATRON_IS python record_megatron.py OUTDIR NAME ...         these lists, printed

As ../collectives/record_torch.py, whose process group, phases and format these are: one real rank trains a small GPTModel
of megatron-core's local layers on CPU, the other ranks do not exist.  What asks for a CUDA device gets the CPU.  Its own norms
need Apex or refuse sequence parallelism: the two below stand in, with the attribute `sequence_parallel`, by which their
gradients are summed over the tensor-parallel ranks.  The training loop is Megatron-LM's training/training.py in short."""
import contextlib
import copy
import json
import os
import sys
import warnings
from functools import partial

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "collectives"), os.path.join(HERE, "..", "memory")]

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import record_context
import record_torch as base
from alone import alone

warnings.filterwarnings("ignore")

# ---------------------------------------------------------------- a process group that records

STEPS = 3                       # megatron-core's hooks only count in the first
names = {}                      # process group -> its name in our lists
in_batch = False


def group_name(pg):
    return f"{names.get(pg, 'world')}/{pg.size()}"


base.group_name = group_name


class Recorder(base.Recorder):
    def note(self, op, tensors, reduction=None, root=None):
        if self.size() > 1:     # alone a rank has nobody to send to
            super().note(op, tensors, reduction, root)

    def peer(self, op, tensors, word, rank):
        name = group_name(self)
        if name.startswith("context"):      # keys go round a ring: backward the other way, which has as many neighbours
            if op == "send":
                assert rank % self.size() in ((self.rank() + 1) % self.size(), (self.rank() - 1) % self.size())
                for t in tensors:
                    base.log.append(f"all_to_all {name} {base.DTYPES[t.dtype]} {t.numel()} to next")
            return base.done(tensors)
        if not name.startswith("pipe"):     # of two ranks one direction goes through the world's communicator: the same ranks
            rank, name = rank // (self.size() // 2), "pipe/2"
        for t in tensors:
            base.log.append(f"{op} {name} {base.DTYPES[t.dtype]} {t.numel()} {word} {rank}" + (" batch" if in_batch else ""))
        return base.done(tensors)

    def send(self, tensors, dst, tag):
        return self.peer("send", tensors, "to", dst)

    def recv(self, tensors, src, tag):
        for t in tensors:
            t.detach().zero_()
        return self.peer("recv", tensors, "from", src)

    def barrier(self, opts=None):
        return base.done([])    # of process groups that are made


def batch_isend_irecv(ops):
    """Under NCCL one coalesced group."""
    global in_batch
    in_batch = len(ops) > 1
    works = [op.op(op.tensor, group=op.group, tag=op.tag, **{"group_dst" if op.op is dist.isend else "group_src": op.group_peer}) for op in ops]
    in_batch = False
    return works


dist.batch_isend_irecv = batch_isend_irecv
made = dist.new_group
dist.new_group = lambda *a, **k: made(*a, **dict(k, backend="megatron", pg_options=None))       # some are asked for with gloo
dist.all_gather_object = lambda out, o, group=None: out.__setitem__(slice(None), [o] * len(out))     # what ranks tell each other of parameter groups
dist.distributed_c10d._store_based_barrier = lambda *a, **k: None
dist.Backend.register_backend("megatron", lambda store, rank, size, timeout: Recorder(rank, size), devices=["cpu"])


# ---------------------------------------------------------------- no CUDA

class OnCPU(TorchFunctionMode):
    """What is to be made on a CUDA device is made on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if isinstance(device, int) or str(device).startswith("cuda"):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


torch.cuda.current_device = lambda: "cpu"      # in backward the mode above is not asked
torch.cuda.synchronize = lambda *a, **k: None
torch.cuda.set_device = lambda *a, **k: None


class Stream:
    """Of several instances of the optimizer: the CPU does one thing after another."""

    def __init__(self, *a, **k):
        pass

    def wait_stream(self, other):
        pass


torch.cuda.Stream, torch.cuda.stream = Stream, lambda s: contextlib.nullcontext()
torch.cuda.current_stream = torch.cuda.default_stream = Stream
torch.cuda.get_rng_state = lambda *a, **k: torch.get_rng_state()
torch.Tensor.cuda = lambda self, *a, **k: self
kind = torch.Tensor.type
torch.Tensor.type = lambda self, *a, **k: kind(self, *a, **k) if a or k else kind(self).replace("torch.cuda.", "torch.").replace("torch.", "torch.cuda.")     # optimizers ask for the name

import megatron.core
from megatron.core import parallel_state as mpu
from megatron.core import tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt import gpt_layer_specs as specs
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random as mrandom
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig


class Norm(torch.nn.Module):
    """RMSNorm or LayerNorm whose parameters say that they saw a share of the positions."""

    def __init__(self, config, hidden_size, eps=1e-5, **more):
        super().__init__()
        self.rms, self.eps = config.normalization == "RMSNorm", eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.bias = None if self.rms else torch.nn.Parameter(torch.zeros(hidden_size))
        for p in self.parameters():
            p.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        if self.rms:
            return torch.nn.functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        return torch.nn.functional.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


@contextlib.contextmanager
def fork(self, name=None):
    yield


mrandom.CudaRNGStatesTracker.fork = fork
mrandom._set_cuda_rng_state = lambda *a, **k: None
mrandom._get_cuda_rng_state = lambda *a, **k: torch.get_rng_state()
specs.LNImpl = Norm
import megatron.core.models.backends as backends
import megatron.core.transformer.transformer_block as block
backends.LocalSpecProvider.layer_norm = lambda self, rms_norm=False, for_qk=False, **more: Norm
block.LayerNormImpl = Norm


# ---------------------------------------------------------------- a rank

def sizes_of(case):
    p = case["plan"]["parallel"]
    return p.get("tensor", 1), p.get("pipeline", 1), p.get("virtual_stages", 1)


def padded(vocab, tensor):
    return -(-vocab // (128 * tensor)) * 128 * tensor


def context_of(case):
    """Ranks, cp_comm_type and, hierarchical, how many of them exchange heads and pass keys on."""
    p, run = case["plan"]["parallel"], case["plan"]["megatron"].get("hierarchical_a2a_ranks", 1)
    ranks = p.get("context", 1)
    kind = {"all-gather": "all_gather", "ulysses": "a2a", "ring": "p2p"}[p.get("context_method", "ring")]
    return ranks, "a2a+p2p" if run > 1 else kind, [run, ranks // run] if run > 1 else None


def config_of(case):
    plan, model, (t, pipe, virtual) = case["plan"], case["plan"]["model"], sizes_of(case)
    (context, comm_type, hierarchy), options = context_of(case), case["plan"]["megatron"]
    bf16, gpt2, own = plan["precision"] == "bf16", model["model_type"] == "gpt2", model["model_type"] == "megatron_gpt"
    gated = model["gated_linear_unit"] if own else not gpt2
    full = plan["recompute"] == "full"
    less = plan["parallel"].get("first_stage_less_layers", 0)
    return TransformerConfig(
        num_layers=model.get("num_hidden_layers", model.get("n_layer")), hidden_size=model.get("hidden_size", model.get("n_embd")),
        num_attention_heads=model.get("num_attention_heads", model.get("n_head")),
        num_query_groups=model.get("num_key_value_heads", model.get("n_head")), ffn_hidden_size=model.get("intermediate_size", 4 * model.get("n_embd", 0)),
        kv_channels=model.get("head_dim"), normalization=model.get("normalization", "LayerNorm" if gpt2 or own else "RMSNorm"),
        gated_linear_unit=gated, activation_func=torch.nn.functional.silu if gated else torch.nn.functional.gelu,
        add_bias_linear=model["add_bias_linear"] if own else gpt2,
        add_qkv_bias=model["model_type"] == "qwen2", qk_layernorm=model["model_type"] == "qwen3" or model.get("qk_layernorm", False), hidden_dropout=0.0, attention_dropout=0.0,
        bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False, gradient_accumulation_fusion=False,
        apply_rope_fusion=False, use_cpu_initialization=True, perform_initialization=True,
        tensor_model_parallel_size=t, sequence_parallel=plan["parallel"].get("sequence", False) and t > 1, pipeline_model_parallel_size=pipe,
        virtual_pipeline_model_parallel_size=virtual if virtual > 1 else None,
        microbatch_group_size_per_vp_stage=plan["megatron"].get("microbatch_group_size_per_vp_stage", pipe),
        account_for_embedding_in_pipeline_split=less == 1, account_for_loss_in_pipeline_split=less == 1,
        overlap_p2p_comm=virtual > 1 and plan["megatron"].get("overlap_p2p_comm", True),
        batch_p2p_comm=not (virtual > 1 and plan["megatron"].get("overlap_p2p_comm", True)), deallocate_pipeline_outputs=True,
        recompute_granularity="full" if full else "selective" if plan["recompute"] == "selective" else None,
        recompute_method=("block" if options.get("recompute_num_layers") else "uniform") if full else None,
        recompute_num_layers=options.get("recompute_num_layers") or 1 if full else None, recompute_modules=options.get("recompute_modules"),
        pipeline_model_parallel_layout=None if any(case["ends"]) else options.get("pipeline_model_parallel_layout"), calculate_per_token_loss=options.get("calculate_per_token_loss", False),
        context_parallel_size=context, cp_comm_type=comm_type if context > 1 else None, hierarchical_context_parallel_sizes=hierarchy,
        num_layers_in_first_pipeline_stage=case["ends"][0], num_layers_in_last_pipeline_stage=case["ends"][1],
        bf16=bf16, params_dtype=torch.bfloat16 if bf16 else torch.float32, pipeline_dtype=torch.bfloat16 if bf16 else torch.float32)


class Run:
    def __init__(self, case, rank):
        plan, model = case["plan"], case["plan"]["model"]
        t, pipe, virtual = sizes_of(case)
        self.plan, self.options = plan, plan["megatron"]
        context, _, hierarchy = context_of(case)
        instances = case["world"] // (t * pipe * plan["shard_group"]) if "shard_group" in plan else 1
        mpu.initialize_model_parallel(t, pipe, virtual if virtual > 1 else None, context_parallel_size=context,
                                      hierarchical_context_parallel_sizes=hierarchy, num_distributed_optimizer_instances=instances)
        levels = mpu.get_hierarchical_context_parallel_groups(check_initialized=False) if hierarchy else None
        for name, group in (("model", mpu.get_model_parallel_group()), ("tied", mpu.get_embedding_group(check_initialized=False)), ("pipe", mpu.get_pipeline_model_parallel_group()),
                            ("data", mpu.get_data_parallel_group()), ("data", mpu.get_data_parallel_group(with_context_parallel=True)),
                            ("tensor", mpu.get_tensor_model_parallel_group()), ("context", mpu.get_context_parallel_group()),
                            ("context_a2a", levels and levels[0]), ("context_p2p", levels and levels[1])):
            if group is not None and not isinstance(group, int):
                names[group] = "world" if name == "data" and group.size() == case["world"] else name
        if instances > 1:       # the last first: without tensor and pipeline parallelism an instance is the ranks of a shard
            names[mpu.get_intra_distributed_optimizer_instance_group()] = "instance" if t * pipe > 1 else "shard"
            names[mpu.get_inter_distributed_optimizer_instance_group()] = "replica"
            names[mpu.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=True)] = "shard"
        self.config = config = config_of(case)
        tensor_parallel.model_parallel_cuda_manual_seed(1, force_reset_rng=True)
        self.vocab = padded(model["vocab_size"], t)
        learned = model["model_type"] == "gpt2" or model.get("position_embedding_type") == "learned_absolute"
        spec = specs.get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)
        if context > 1:
            spec.submodules.self_attention.submodules.core_attention = record_context.attention()
        chunks = []
        for i in range(virtual):
            vp = i if virtual > 1 else None
            if virtual > 1:
                mpu.set_virtual_pipeline_model_parallel_rank(i)
            chunk = GPTModel(config, spec, self.vocab, model.get("n_positions", model["max_position_embeddings"] if learned else plan["seq"]), pre_process=mpu.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp),
                             post_process=mpu.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp), parallel_output=True,
                             share_embeddings_and_output_weights=model["tie_word_embeddings"], position_embedding_type="learned_absolute" if learned else "rope",
                             vp_stage=vp)
            chunks.append(Float16Module(config, chunk) if config.bf16 else chunk)
        sharded = plan["strategy"] == "zero1"
        overlap, gather = self.options.get("overlap_grad_reduce", False), self.options.get("overlap_param_gather", False)
        ddp = dict(grad_reduce_in_fp32=plan["reduce_dtype"] == "fp32", overlap_grad_reduce=overlap, overlap_param_gather=gather,
                   use_distributed_optimizer=sharded, bucket_size=self.options.get("ddp_bucket_size"),
                   average_in_collective=self.options.get("ddp_average_in_collective", False), num_distributed_optimizer_instances=instances,
                   pad_buckets_for_high_nccl_busbw=self.options.get("ddp_pad_buckets_for_high_nccl_busbw", False))
        self.model = [DistributedDataParallel(config, DistributedDataParallelConfig(**ddp), chunk, disable_bucketing=i > 0) for i, chunk in enumerate(chunks)]
        opt = OptimizerConfig(optimizer="adam", lr=1e-4, bf16=config.bf16, params_dtype=config.params_dtype, use_distributed_optimizer=sharded,
                              overlap_param_gather=gather, clip_grad=plan["clip"] or 0.0)
        self.optimizer = get_megatron_optimizer(opt, self.model)
        one = len(self.model) == 1
        if overlap:
            config.no_sync_func = self.model[0].no_sync if one else [m.no_sync for m in self.model]
            config.grad_sync_func = self.model[0].start_grad_sync if one else [m.start_grad_sync for m in self.model]
        if one:                 # arguments.py: without an interleaved pipeline align_param_gather is False
            config.param_sync_func = None
        elif gather:
            config.param_sync_func = [m.start_param_sync for m in self.model]
        self.param_sync_func = config.param_sync_func
        config.finalize_model_grads_func = finalize_model_grads
        self.started = False
        if gather:              # training.py: hooks begin with the second step
            for m in self.model:
                m.disable_forward_pre_hook(param_sync=False)
            config.param_sync_func = None

    def forward_step(self, data, model):
        b, s = self.plan["micro_batch"], self.plan["seq"] // self.config.context_parallel_size
        tokens = torch.zeros(b, s, dtype=torch.long)
        positions = torch.arange(s).unsqueeze(0).expand(b, s)
        mask = torch.triu(torch.ones(1, 1, s, s, dtype=torch.bool), 1)
        out = model(tokens, positions, mask, labels=tokens)
        if self.config.calculate_per_token_loss:
            return out, lambda loss: (loss.float().sum(), torch.tensor(loss.numel(), dtype=torch.int), {})
        return out, lambda loss: (loss.float().mean(), {})

    def step(self):
        for m in self.model:
            m.zero_grad_buffer()
        self.optimizer.zero_grad()
        get_forward_backward_func()(forward_step_func=self.forward_step, data_iterator=[None] * len(self.model), model=self.model,
                                    num_microbatches=self.plan["accumulation"], seq_length=self.plan["seq"],
                                    micro_batch_size=self.plan["micro_batch"], forward_only=False)
        self.optimizer.step()
        if not self.started and self.options.get("overlap_param_gather", False):
            for m in self.model:
                m.enable_forward_pre_hook()
            self.config.param_sync_func = self.param_sync_func
        self.started = True


def run(case, rank):
    base.log.clear()
    dist.init_process_group("megatron", store=dist.HashStore(), rank=rank, world_size=case["world"])
    with OnCPU():
        made = Run(case, rank)
        phases = [list(base.log)]
        for _ in range(STEPS):
            base.log.clear()
            made.step()
            phases.append(list(base.log))
    return phases


def recording(case):
    """As record_torch.sections(), for the first rank of each stage and the world's last."""
    size = case["world"] // sizes_of(case)[1]
    seen, body, same = {}, [], []
    for rank in sorted(set(range(0, case["world"], size)) | {case["world"] - 1}):
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
         "num_key_value_heads": 4, "intermediate_size": 160, "max_position_embeddings": 64, "vocab_size": 250, "tie_word_embeddings": False}
TIED = dict(LLAMA, tie_word_embeddings=True)
QWEN2 = dict(LLAMA, model_type="qwen2", architectures=["Qwen2ForCausalLM"])
QWEN3 = dict(LLAMA, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=16)
OWN = dict(LLAMA, model_type="megatron_gpt", normalization="LayerNorm", position_embedding_type="learned_absolute", gated_linear_unit=False,
           hidden_act="gelu", add_bias_linear=True, qk_layernorm=False)
OWN.pop("architectures")
GPT2 = dict(base.GPT2_TINY, n_layer=2, n_embd=64, n_head=4)
REDUCED = {"precision": "bf16", "reduce_dtype": "fp32"}


def make(name, what, world, model=LLAMA, strategy="zero1", grid=None, precision="fp32", reduce_dtype="fp32", accumulation=1, clip=1.0,
         recompute="none", seq=32, micro_batch=2, layers=0, kernels="megatron-local", ends=(None, None), **options):
    model = dict(copy.deepcopy(model), **({"n_layer" if "n_layer" in model else "num_hidden_layers": layers} if layers else {}))
    options.setdefault("check_for_nan_in_loss_and_grad", False)
    plan = {"dpx_plan": 1, "model": model, "cluster": f"{max(1, world // 8)}x{min(world, 8)}xh100", "strategy": strategy, "dialect": "megatron", "kernels": kernels,
            "seq": seq, "micro_batch": micro_batch, "accumulation": accumulation, "precision": precision, "reduce_dtype": reduce_dtype,
            "clip": clip, "recompute": recompute, "parallel": dict(grid or {}), "megatron": options}
    return {"name": name, "what": what, "world": world, "plan": plan, "ends": ends}


def tp(tensor, sequence=True, **more):
    return dict({"tensor": tensor, "sequence": sequence}, **more)


def pp(pipe, virtual=1, less=0):
    grid = {"pipeline": pipe, "pipeline_schedule": "interleaved" if virtual > 1 else "1f1b", "first_stage_less_layers": less, "last_stage_less_layers": less}
    return dict(grid, virtual_stages=virtual) if virtual > 1 else grid


def tensor_cases():
    for t in (2, 4):
        for sequence in (True, False):
            tag = f"t{t}" + ("-sp" if sequence else "")
            yield make(f"zero1-{tag}-d2", "distributed optimizer over 2 ranks", 2 * t, grid=tp(t, sequence), **REDUCED)
            yield make(f"ddp-{tag}-d2", "plain DDP over 2 ranks", 2 * t, strategy="ddp", grid=tp(t, sequence))
    yield make("zero1-t2-sp-d2-acc2", "2 micro-steps", 4, grid=tp(2), accumulation=2, **REDUCED)
    yield make("zero1-t2-sp-d2-full", "every layer recomputed", 4, grid=tp(2), recompute="full", **REDUCED)
    yield make("zero1-t2-d2-full", "every layer recomputed, no sequence parallelism", 4, grid=tp(2, False), recompute="full", **REDUCED)
    yield make("zero1-t2-sp-d2-core", "attention's core recomputed", 4, grid=tp(2), recompute="selective", **REDUCED)
    yield make("zero1-qwen2-t2-sp-d2", "biases of q, k, v", 4, model=QWEN2, grid=tp(2), **REDUCED)
    yield make("zero1-qwen3-t2-sp-d2", "norms of q and k", 4, model=QWEN3, grid=tp(2), **REDUCED)
    yield make("zero1-qwen3-t2-d2", "norms of q and k, no sequence parallelism", 4, model=QWEN3, grid=tp(2, False), **REDUCED)
    yield make("zero1-gpt2-t2-sp-d2", "learned positions, biases, tied embedding", 4, model=GPT2, grid=tp(2), **REDUCED)
    yield make("zero1-gpt2-t2-d2", "the same without sequence parallelism", 4, model=GPT2, grid=tp(2, False), **REDUCED)
    yield make("zero1-gpt2-t4-d2-acc3", "more positions than the sequence has", 8, model=dict(GPT2, n_embd=48, n_positions=128), grid=tp(4, False),
               accumulation=3, **REDUCED)


def bucket_cases():
    for strategy in ("ddp", "zero1"):
        yield make(f"{strategy}-d2", "one bucket", 2, strategy=strategy, **REDUCED)
        yield make(f"{strategy}-d2-noclip", "no clipping: the norm is taken all the same", 2, strategy=strategy, clip=None, **REDUCED)
        yield make(f"{strategy}-d2-bf16", "gradients in bf16", 2, strategy=strategy, precision="bf16", reduce_dtype="bf16")
        yield make(f"{strategy}-d2-overlap", "overlap_grad_reduce, several buckets", 2, strategy=strategy, overlap_grad_reduce=True, ddp_bucket_size=20000, **REDUCED)
        yield make(f"{strategy}-d4-overlap-acc2-avg", "the collective averages, 2 micro-steps", 4, strategy=strategy, accumulation=2, overlap_grad_reduce=True,
                   ddp_bucket_size=12000, ddp_average_in_collective=True, **REDUCED)
        yield make(f"{strategy}-d2-tied-overlap", "tied embedding", 2, model=TIED, strategy=strategy, overlap_grad_reduce=True, ddp_bucket_size=12000, **REDUCED)
        yield make(f"{strategy}-gpt2-d2-overlap", "gpt2", 2, model=GPT2, strategy=strategy, overlap_grad_reduce=True, ddp_bucket_size=12000, **REDUCED)
    yield make("zero1-d3-overlap", "3 ranks: buckets are filled up", 3, overlap_grad_reduce=True, ddp_bucket_size=12000, **REDUCED)
    yield make("zero1-d2-pad", "ddp_pad_buckets_for_high_nccl_busbw", 2, ddp_pad_buckets_for_high_nccl_busbw=True, overlap_grad_reduce=True, ddp_bucket_size=12000, **REDUCED)
    yield make("zero1-d2-gather", "overlap_param_gather", 2, overlap_grad_reduce=True, overlap_param_gather=True, ddp_bucket_size=12000, **REDUCED)
    yield make("zero1-t2-sp-d2-gather-acc2", "overlap_param_gather with tensor parallelism, 2 micro-steps", 4, grid=tp(2), accumulation=2, overlap_grad_reduce=True,
               overlap_param_gather=True, ddp_bucket_size=12000, **REDUCED)


def pipeline_cases():
    on = {"overlap_grad_reduce": True, "ddp_bucket_size": 12000}
    for pipe, m in ((2, 4), (4, 8), (4, 2)):
        yield make(f"zero1-1f1b-p{pipe}-m{m}", "1F1B", pipe, grid=pp(pipe), layers=4, accumulation=m, **REDUCED)
    yield make("zero1-1f1b-p2-m4-d2", "1F1B, distributed optimizer over 2 ranks", 4, grid=pp(2), layers=4, accumulation=4, **REDUCED)
    yield make("zero1-1f1b-p2-m4-d2-overlap", "hooks on the first stage", 4, grid=pp(2), layers=4, accumulation=4, **on, **REDUCED)
    yield make("zero1-1f1b-p2-m4-d2-gather", "and gathers beside forward", 4, grid=pp(2), layers=4, accumulation=4, overlap_param_gather=True, **on, **REDUCED)
    yield make("ddp-1f1b-p2-m4-d2", "1F1B, plain DDP", 4, strategy="ddp", grid=pp(2), layers=4, accumulation=4)
    yield make("zero1-1f1b-p2-m4-d2-tied", "tied embedding", 4, model=TIED, grid=pp(2), layers=4, accumulation=4, **on, **REDUCED)
    yield make("ddp-1f1b-p2-m4-d2-tied", "tied embedding, plain DDP", 4, model=TIED, strategy="ddp", grid=pp(2), layers=4, accumulation=4, **REDUCED)
    yield make("zero1-1f1b-p4-m4-less", "account_for_embedding_in_pipeline_split and ..._loss_...", 4, grid=pp(4, less=1), layers=6, accumulation=4, **REDUCED)
    for pipe, v, m in ((2, 2, 4), (4, 2, 8), (2, 4, 2), (4, 2, 4)):
        yield make(f"zero1-interleaved-p{pipe}-v{v}-m{m}", "interleaved", pipe, grid=pp(pipe, v), layers=8, accumulation=m, **REDUCED)
        yield make(f"zero1-interleaved-p{pipe}-v{v}-m{m}-batch", "overlap_p2p_comm false", pipe, grid=pp(pipe, v), layers=8, accumulation=m, overlap_p2p_comm=False, **REDUCED)
    yield make("zero1-interleaved-p2-v2-m6-g3", "rounds of 3 micro-steps", 2, grid=pp(2, 2), layers=8, accumulation=6, microbatch_group_size_per_vp_stage=3, **REDUCED)
    yield make("zero1-interleaved-p2-v2-m5-g3", "rounds of 3 micro-steps, the last of 2", 2, grid=pp(2, 2), layers=8, accumulation=5, microbatch_group_size_per_vp_stage=3, **REDUCED)
    yield make("zero1-interleaved-p2-v2-m4-d2", "distributed optimizer over 2 ranks", 4, grid=pp(2, 2), layers=8, accumulation=4, **REDUCED)
    yield make("zero1-interleaved-p2-v2-m4-d2-overlap", "reductions by chunk", 4, grid=pp(2, 2), layers=8, accumulation=4, **on, **REDUCED)
    yield make("zero1-interleaved-p4-v4-m8-d2-gather", "and gathers by chunk", 8, grid=pp(4, 4), layers=16, accumulation=8, overlap_param_gather=True, **on, **REDUCED)
    yield make("zero1-t2-sp-1f1b-p2-m4-d2", "with tensor and sequence parallelism", 8, grid=tp(2) | pp(2), layers=4, accumulation=4, **on, **REDUCED)
    yield make("zero1-t2-1f1b-p2-m4", "with tensor parallelism", 4, grid=tp(2, False) | pp(2), layers=4, accumulation=4, **REDUCED)
    yield make("zero1-t2-sp-interleaved-p2-v2-m4-d2-full", "interleaved, tensor and sequence parallelism, recomputed", 8, grid=tp(2) | pp(2, 2), layers=8,
               accumulation=4, recompute="full", **on, **REDUCED)
    yield make("ddp-t2-sp-interleaved-p2-v2-m4-tied", "interleaved, tied embedding, plain DDP", 4, model=TIED, strategy="ddp", grid=tp(2) | pp(2, 2), layers=8, accumulation=4, **REDUCED)


def again_cases():
    """Recompute of some blocks and by module."""
    core, both = ["core_attn"], ["core_attn", "mlp"]
    for n in (1, 3):
        yield make(f"zero1-t2-sp-d2-block{n}", f"--recompute-method block, {n} of 4 layers", 4, grid=tp(2), layers=4, recompute="full", recompute_num_layers=n, **REDUCED)
    yield make("zero1-t2-sp-1f1b-p2-m4-block1", "the first layer of each stage", 4, grid=tp(2) | pp(2), layers=4, accumulation=4, recompute="full",
               recompute_num_layers=1, **REDUCED)
    yield make("zero1-t2-sp-interleaved-p2-v2-m4-block1", "the first layer of each chunk", 4, grid=tp(2) | pp(2, 2), layers=8, accumulation=4, recompute="full",
               recompute_num_layers=1, **REDUCED)
    yield make("zero1-t2-sp-d2-mlp", "--recompute-modules mlp", 4, grid=tp(2), recompute="selective", recompute_modules=["mlp"], **REDUCED)
    yield make("zero1-t2-sp-d2-core-mlp", "--recompute-modules core_attn mlp", 4, grid=tp(2), recompute="selective", recompute_modules=both, **REDUCED)
    yield make("zero1-t2-d2-mlp", "the same without sequence parallelism", 4, grid=tp(2, False), recompute="selective", recompute_modules=["mlp"], **REDUCED)


def layout_cases():
    """Uneven stages, and the loss by token."""
    yield make("zero1-1f1b-p4-m4-layout", "a layout", 4, grid=pp(4), layers=6, accumulation=4, pipeline_model_parallel_layout="Et|tt|tt|tL", **REDUCED)
    yield make("zero1-1f1b-p4-m4-layout-alone", "embedding and loss alone", 4, grid=pp(4), layers=4, accumulation=4, pipeline_model_parallel_layout="E|tt|tt|L", **REDUCED)
    yield make("zero1-1f1b-p2-m4-layout-tied", "a layout, tied embedding", 2, model=TIED, grid=pp(2), layers=5, accumulation=4, pipeline_model_parallel_layout="Ett|tttL", **REDUCED)
    yield make("zero1-t2-sp-interleaved-p2-v2-m4-layout", "a layout of two chunks a rank", 4, grid=tp(2) | pp(2, 2), layers=6, accumulation=4,
               pipeline_model_parallel_layout="Et*2|(tt|)*1t|tL", **REDUCED)
    # the option itself is what megatron-core gets; the plan says it as a layout
    yield make("zero1-1f1b-p4-m4-ends", "--decoder-first-pipeline-num-layers 1, ..-last-.. 3", 4, grid=pp(4), layers=8, accumulation=4, ends=(1, 3),
               pipeline_model_parallel_layout="Et|(t*2|)*2t*3L", **REDUCED)
    yield make("zero1-interleaved-p4-v2-m4-ends", "the first rank 2 of 14, two chunks a rank", 4, grid=pp(4, 2), layers=14, accumulation=4, ends=(2, None),
               pipeline_model_parallel_layout="Et|(tt|)*3t|tt|tt|ttL", **REDUCED)
    yield make("zero1-d2-token", "calculate_per_token_loss", 2, calculate_per_token_loss=True, **REDUCED)
    yield make("ddp-t2-sp-d2-acc2-token", "the same, 2 micro-steps", 4, strategy="ddp", grid=tp(2), accumulation=2, calculate_per_token_loss=True, **REDUCED)
    yield make("zero1-1f1b-p2-m4-d2-token", "and of a pipeline", 4, grid=pp(2), layers=4, accumulation=4, calculate_per_token_loss=True, **REDUCED)


def cp(ranks, method):
    return {"context": ranks, "context_method": method}


def context_cases():
    for method in ("all-gather", "ulysses", "ring"):
        yield make(f"zero1-c2-{method}", "context parallelism", 2, kernels="te", grid=cp(2, method), **REDUCED)
        yield make(f"zero1-c4-d2-{method}", "of 4 ranks, 2 batches", 8, kernels="te", grid=cp(4, method), **REDUCED)
        yield make(f"zero1-t2-sp-c2-{method}", "with tensor and sequence parallelism", 4, kernels="te", grid=tp(2) | cp(2, method), **REDUCED)
    yield make("zero1-c4-a2a-p2p", "hierarchical: 2 ranks exchange heads", 4, kernels="te", grid=cp(4, "ring"), hierarchical_a2a_ranks=2, **REDUCED)
    yield make("zero1-c8-a2a4-p2p", "hierarchical: 4 ranks exchange heads", 8, kernels="te", grid=cp(8, "ring"), hierarchical_a2a_ranks=4, **REDUCED)
    yield make("zero1-c4-all-gather-full", "every layer recomputed", 4, kernels="te", grid=cp(4, "all-gather"), recompute="full", **REDUCED)
    yield make("zero1-c2-all-gather-core", "attention's core recomputed", 2, kernels="te", grid=cp(2, "all-gather"), recompute="selective", **REDUCED)
    yield make("zero1-t2-sp-c2-1f1b-p2-m4-all-gather", "with tensor parallelism and a pipeline", 8, kernels="te", grid=tp(2) | pp(2) | cp(2, "all-gather"), layers=4,
               accumulation=4, **REDUCED)


def instances(name, what, world, shard, **more):
    case = make(name, what, world, **more, **REDUCED)
    case["plan"]["shard_group"] = shard
    return case


def instance_cases():
    """--num-distributed-optimizer-instances: states are sharded within an instance, their gradients summed over instances."""
    on = {"overlap_grad_reduce": True, "ddp_bucket_size": 12000}
    yield instances("zero1-d4-i2", "2 instances of 2 ranks", 4, 2)
    yield instances("zero1-d6-i2-overlap", "2 of 3 ranks: buckets are filled up for 3", 6, 3, **on)
    yield instances("zero1-d6-i3-avg", "3 of 2 ranks; the collectives average, 2 micro-steps", 6, 2, accumulation=2, ddp_average_in_collective=True, **on)
    yield instances("zero1-d4-i2-gather", "overlap_param_gather", 4, 2, overlap_param_gather=True, **on)
    yield instances("zero1-t2-sp-d4-i2-gather", "with tensor and sequence parallelism", 8, 2, grid=tp(2), overlap_param_gather=True, **on)
    yield instances("zero1-1f1b-p2-m4-d4-i2-tied", "of a pipeline, tied embedding", 8, 2, model=TIED, grid=pp(2), layers=4, accumulation=4, **on)
    yield instances("zero1-d4-i2-token", "calculate_per_token_loss", 4, 2, calculate_per_token_loss=True)


def own_cases():
    """Blocks that no class of transformers has (megatron_gpt)."""
    bare, gated, normed = dict(OWN, add_bias_linear=False), dict(OWN, gated_linear_unit=True, hidden_act="silu"), dict(OWN, qk_layernorm=True)
    yield make("zero1-own-bare-t2-sp-d2", "LayerNorm, learned positions, GELU, no biases", 4, model=bare, grid=tp(2), **REDUCED)
    yield make("zero1-own-gated-t2-sp-d2", "SwiGLU with biases", 4, model=gated, grid=tp(2), **REDUCED)
    yield make("zero1-own-gated-t4-d2", "the same without sequence parallelism", 8, model=gated, grid=tp(4, False), **REDUCED)
    yield make("zero1-own-normed-t2-sp-d2", "LayerNorm of q and k", 4, model=normed, grid=tp(2), **REDUCED)
    yield make("zero1-own-normed-t2-d2", "the same without sequence parallelism", 4, model=normed, grid=tp(2, False), **REDUCED)
    yield make("zero1-own-rms-t2-sp-d2", "RMSNorm, learned positions, a tied table", 4, model=dict(OWN, normalization="RMSNorm", tie_word_embeddings=True), grid=tp(2), **REDUCED)
    yield make("ddp-own-rope-d2-overlap", "LayerNorm, rotary positions, SwiGLU", 2, model=dict(gated, position_embedding_type="rope"), strategy="ddp", overlap_grad_reduce=True,
               ddp_bucket_size=12000, **REDUCED)


FILES = {"own": own_cases, "tensor": tensor_cases, "buckets": bucket_cases, "pipeline": pipeline_cases, "again": again_cases, "layouts": layout_cases, "context": context_cases, "instances": instance_cases}


def main():
    outdir, wanted = sys.argv[1], sys.argv[2:]
    only = [w for w in wanted if w not in FILES]        # names of lists: printed, not kept
    torch.set_num_threads(1)
    if only:
        for make_cases in FILES.values():
            for case in make_cases():
                if case["name"] in only:
                    print("\n".join(recording(case)))
        return 0
    failed = 0
    for name in wanted or FILES:
        text = [f"# recorded from megatron-core {megatron.core.__version__}, torch {torch.__version__.split('+')[0]}, CPU, by record_megatron.py"]
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
