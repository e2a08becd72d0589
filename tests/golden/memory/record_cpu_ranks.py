#!/usr/bin/env python3
"""Records, storage by storage, the memory of training steps on two real CPU ranks.

    python record_cpu_ranks.py [--only SUBSTRING] [-o cpu_ranks.jsonl]
    python record_cpu_ranks.py -o cpu_ranks_0.19.8.jsonl        with deepspeed 0.19.8 installed: its own cases
    python record_cpu_ranks.py --kept -o cpu_ranks_kept.jsonl       what stage 3 gathered and autograd keeps
    python record_cpu_ranks.py --tuned -o cpu_ranks_tuned.jsonl     with peft: adapters and frozen tensors
    python record_cpu_ranks.py --forms -o cpu_ranks_forms.jsonl     torch.optim.AdamW, foreach or a loop, that DeepSpeed is given; zero.Init
    python record_cpu_ranks.py --drawn -o cpu_ranks_drawn.jsonl     options of DDP and stage 2 drawn at random

FSDP1, DDP and ZeroRedundancyOptimizer of PyTorch, DeepSpeed's stages 0 to 3, each on two gloo ranks.
PyTorch's CPU allocator is interposed (LD_PRELOAD): every storage is counted from its allocation to its
release, rounded up to 512 bytes as CUDA's allocator rounds it.  No GPU is needed.  README.md says what is
counted, what is not, and what this script changes.
"""
import argparse
import contextlib
import ctypes
import fnmatch
import gc
import importlib
import json
import os
import sys
import tempfile
import time

from drawn_ranks import drawn_cases
from cpu_ranks_trainer import in_8_bits, trainer_cases
from preload import preload

# c10::alloc_cpu() and c10::free_cpu(), through which every storage of the CPU comes and goes.  Only what
# threads allocate that asked to be counted is logged: gloo's own threads stage what they send.
SHIM = r"""
#include <pthread.h>
#include <stdlib.h>
struct event { void *at; long bytes; };            /* bytes < 0: freed */
static struct event *events;
static long n, cap;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int counted;
static void note(void *at, long bytes)
{
    pthread_mutex_lock(&lock);
    if (n == cap && !(events = realloc(events, (size_t)(cap = 2 * cap + 4096) * sizeof *events)))
        abort();
    events[n++] = (struct event){ at, bytes };
    pthread_mutex_unlock(&lock);
}
void *_ZN3c109alloc_cpuEm(size_t bytes)
{
    void *at = NULL;
    if (bytes && posix_memalign(&at, 64, bytes))
        abort();
    if (bytes && counted)
        note(at, (long)bytes);
    return at;
}
void _ZN3c108free_cpuEPv(void *at)
{
    if (at)
        note(at, -1);
    free(at);
}
int dpx_count(int yes) { int was = counted; counted = yes; return was; }
long dpx_take(struct event *to, long max)          /* the oldest events; returns how many */
{
    pthread_mutex_lock(&lock);
    long k = n < max ? n : max;
    for (long i = 0; i < k; i++)
        to[i] = events[i];
    for (long i = k; i < n; i++)
        events[i - k] = events[i];
    n -= k;
    pthread_mutex_unlock(&lock);
    return k;
}
"""


preload(SHIM, "-lpthread", DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29533")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
import deepspeed
import torch.distributed.fsdp._init_utils as fsdp_init
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

WORLD, SEQ, MICRO_BATCH, STEPS = 2, 16, 1, 3

# Parameters outweigh activations, whose kernels are the CPU's here; no dropout, whose masks are.
GPT2 = {"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 8, "vocab_size": 4096, "n_positions": 256,
        "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8,
         "num_key_value_heads": 4, "intermediate_size": 704, "vocab_size": 4096, "max_position_embeddings": 256,
         "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": False,
         "mlp_bias": False}
# Neither the model nor its parameters divide by two.
GPT2_ODD = dict(GPT2, n_embd=225, n_head=5, vocab_size=4093, n_positions=101)
MODELS = {"gpt2": GPT2, "llama": LLAMA, "gpt2odd": GPT2_ODD}

# ---- cases ----


def plan_of(model, strategy, dialect, precision="fp32", accumulation=1, clip=None, sync=False, **section):
    plan = {"dpx_plan": 1, "model": model, "cluster": "localhost:%d" % WORLD, "strategy": strategy, "dialect": dialect,
            "kernels": "torch-eager", "seq": SEQ, "micro_batch": MICRO_BATCH, "accumulation": accumulation,
            "precision": precision, "clip": clip}
    if dialect == "deepspeed" and deepspeed.__version__ != "0.19.6":
        plan["framework_version"] = deepspeed.__version__
    if dialect != "deepspeed":
        plan["sync_every_micro_step"] = sync
    if dialect == "torch-fsdp1" and precision == "bf16":
        plan["reduce_dtype"] = "fp32"
    if dialect == "torch-fsdp1":
        plan["unit"] = "block"
    name = {"torch": "ddp", "torch-fsdp1": "fsdp", "deepspeed": "deepspeed"}[dialect]
    plan[name] = section
    return plan


def ddp(model, **more):
    return plan_of(model, "ddp", "torch", **more)


def zro(model, **more):
    return plan_of(model, "zero1", "torch", **more)


def fsdp1(model, strategy="FULL_SHARD", **more):
    return plan_of(model, "fsdp", "torch-fsdp1", sharding_strategy=strategy, **more)


def ds(model, stage, **more):
    return plan_of(model, ["ddp", "zero1", "zero2", "zero3"][stage], "deepspeed", **more)


SMALL = dict(reduce_bucket_size=300000)     # below gpt2's embedding of 1048576 elements
LARGE = dict(reduce_bucket_size=2000000)    # above it, below the model
NONE_KEPT = dict(stage3_param_persistence_threshold=0, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=200000)
CASES = {
    "ddp_gpt2": ddp("gpt2"),
    "ddp_gpt2_view": ddp("gpt2", gradient_as_bucket_view=True),
    "ddp_gpt2_nosync": ddp("gpt2", accumulation=2),
    "ddp_gpt2_view_nosync": ddp("gpt2", accumulation=2, gradient_as_bucket_view=True),
    "ddp_gpt2_view_nosync3": ddp("gpt2", accumulation=3, gradient_as_bucket_view=True),
    "ddp_llama_view_nosync_cap1": ddp("llama", accumulation=2, gradient_as_bucket_view=True, bucket_cap_mb=1),
    "ddp_gpt2_view_sync": ddp("gpt2", accumulation=2, sync=True, gradient_as_bucket_view=True),
    "ddp_gpt2_clip_nosync": ddp("gpt2", accumulation=2, clip=1.0),
    "zro_gpt2": zro("gpt2"),
    "zro_gpt2_params_view": zro("gpt2", parameters_as_bucket_view=True),
    "zro_llama_params_view": zro("llama", parameters_as_bucket_view=True),
    "zro_llama_view_nosync": zro("llama", accumulation=2, gradient_as_bucket_view=True),
    "fsdp1_gpt2": fsdp1("gpt2"),
    "fsdp1_gpt2odd": fsdp1("gpt2odd"),
    "fsdp1_llama": fsdp1("llama"),
    "fsdp1_gpt2_bf16": fsdp1("gpt2", precision="bf16"),
    "fsdp1_llama_bf16": fsdp1("llama", precision="bf16"),
    "fsdp1_gpt2_gradop": fsdp1("gpt2", "SHARD_GRAD_OP"),
    "fsdp1_gpt2_noshard": fsdp1("gpt2", "NO_SHARD"),
    "fsdp1_gpt2_orig": fsdp1("gpt2", use_orig_params=True),
    "fsdp1_llama_orig_bf16": fsdp1("llama", precision="bf16", use_orig_params=True),
    "fsdp1_gpt2odd_orig_bf16": fsdp1("gpt2odd", precision="bf16", use_orig_params=True),
    "fsdp1_gpt2_nosync": fsdp1("gpt2", accumulation=2),
    "fsdp1_gpt2_clip": fsdp1("gpt2", clip=1.0),
    "ds0_gpt2_fp32": ds("gpt2", 0),
    "ds0_llama_fp32_gas2": ds("llama", 0, accumulation=2),
}
for precision in ("fp32", "bf16"):
    CASES["ds1_gpt2_%s" % precision] = ds("gpt2", 1, precision=precision, **LARGE)
    CASES["ds1_llama_%s_small_gas2" % precision] = ds("llama", 1, precision=precision, accumulation=2, **SMALL)
    CASES["ds2_gpt2_%s" % precision] = ds("gpt2", 2, precision=precision, **LARGE)
    CASES["ds2_gpt2_%s_small" % precision] = ds("gpt2", 2, precision=precision, **SMALL)
    CASES["ds2_llama_%s" % precision] = ds("llama", 2, precision=precision, **LARGE)
    CASES["ds2_llama_%s_small_gas2" % precision] = ds("llama", 2, precision=precision, accumulation=2, **SMALL)
    CASES["ds2_gpt2odd_%s" % precision] = ds("gpt2odd", 2, precision=precision, **SMALL)
    CASES["ds3_gpt2_%s" % precision] = ds("gpt2", 3, precision=precision, **LARGE)
    CASES["ds3_gpt2_%s_partitioned" % precision] = ds("gpt2", 3, precision=precision, **NONE_KEPT, **SMALL)
    CASES["ds3_llama_%s_gas2" % precision] = ds("llama", 3, precision=precision, accumulation=2, **NONE_KEPT, **LARGE)
    CASES["ds3_gpt2odd_%s" % precision] = ds("gpt2odd", 3, precision=precision, **SMALL)
FP32 = dict(grad_accum_dtype="fp32")
BF16 = {
    "ds1_gpt2_bf16_accum_fp32": ds("gpt2", 1, precision="bf16", **FP32),
    "ds1_llama_bf16_accum_fp32_gas2": ds("llama", 1, precision="bf16", accumulation=2, **FP32),
}
FP16 = {        # under 0.19.8 alone: model/framework/deepspeed_012/README.md says what 0.19.6 does there
    "ds1_gpt2_fp16_accum_fp32": ds("gpt2", 1, precision="fp16", **FP32, **LARGE),
    "ds1_llama_fp16_accum_fp32_small_gas2": ds("llama", 1, precision="fp16", accumulation=2, **FP32, **SMALL),
}
CASES.update(BF16)
# What 0.19.8 does otherwise than 0.19.6: fp32 accumulation at stages 1 and 2, and what it returns from a reduction in
# another dtype.
if deepspeed.__version__ == "0.19.8":
    def accum(model, **more):
        return ds(model, 2, **dict({"precision": "bf16"}, **more), **FP32)
    CASES = dict(BF16, **FP16)
    CASES.update({
        "ds1_gpt2odd_fp16_accum_fp32_small_overlap": ds("gpt2odd", 1, precision="fp16", overlap_comm=True, **FP32,
                                                        **SMALL),
        "ds1_gpt2_fp16_accum_fp32_noncontiguous": ds("gpt2", 1, precision="fp16", contiguous_gradients=False, **FP32,
                                                     **LARGE),
        "ds2_gpt2_bf16_comm_fp32": ds("gpt2", 2, precision="bf16", communication_data_type="fp32", **LARGE),
        "ds2_llama_bf16_small_gas2": ds("llama", 2, precision="bf16", accumulation=2, **SMALL),
        "ds2_gpt2_bf16_accum_fp32": accum("gpt2", **LARGE),
        "ds2_gpt2_bf16_accum_fp32_small_gas3": accum("gpt2", accumulation=3, **SMALL),
        "ds2_llama_bf16_accum_fp32_small_gas2": accum("llama", accumulation=2, **SMALL),
        "ds2_llama_bf16_accum_fp32_overlap": accum("llama", overlap_comm=True, **LARGE),
        "ds2_gpt2_bf16_accum_fp32_comm_fp32_gas2": accum("gpt2", accumulation=2, communication_data_type="fp32", **LARGE),
        "ds2_gpt2_bf16_accum_fp32_noncontiguous_gas2": accum("gpt2", accumulation=2, contiguous_gradients=False, **SMALL),
        "ds2_llama_bf16_accum_fp32_noncontiguous_overlap": accum("llama", contiguous_gradients=False, overlap_comm=True,
                                                                 **SMALL),
        "ds2_gpt2_bf16_accum_fp32_noscatter_gas2": accum("gpt2", accumulation=2, reduce_scatter=False, **SMALL),
        "ds2_llama_bf16_accum_fp32_owners": accum("llama", use_multi_rank_bucket_allreduce=False, **LARGE),
        "ds2_gpt2odd_bf16_accum_fp32_roundrobin_gas2": accum("gpt2odd", accumulation=2, round_robin_gradients=True,
                                                             **SMALL),
        "ds2_llama_fp16_accum_fp32_gas2_clip": accum("llama", precision="fp16", accumulation=2, clip=1.0, **LARGE),
    })

# Adapters by PEFT, and frozen tensors; the plan's words.
EVERY = {"train": "lora", "lora": {"rank": 8, "target_modules": "all-linear"}}
USUAL = {"train": "lora", "lora": {"rank": 16}}
SAVED = {"train": "lora", "lora": {"rank": 8, "target_modules": "all-linear", "modules_to_save": ["lm_head"]}}
MLPS = {"train": ["*.mlp.*"]}
NORMS = {"train": ["*norm.weight"]}
ORIG = dict(use_orig_params=True)
NO_REUSE = dict(stage3_param_persistence_threshold=3000, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=200000)
TUNED = {
    "fsdp1_llama_lora": dict(fsdp1("llama", **ORIG), **EVERY),
    "fsdp1_llama_usual_bf16_clip": dict(fsdp1("llama", precision="bf16", clip=1.0, **ORIG), **USUAL),
    "fsdp1_llama_lora_gradop": dict(fsdp1("llama", "SHARD_GRAD_OP", **ORIG), **EVERY),
    "fsdp1_llama_lora_noshard_nosync": dict(fsdp1("llama", "NO_SHARD", accumulation=2, **ORIG), **EVERY),
    "fsdp1_llama_mlps": dict(fsdp1("llama", **ORIG), **MLPS),
    "fsdp1_gpt2_usual": dict(fsdp1("gpt2", **ORIG), **USUAL),
    "ds1_llama_lora_bf16": dict(ds("llama", 1, precision="bf16", **SMALL), **EVERY),
    "ds2_llama_saved_bf16_gas2": dict(ds("llama", 2, precision="bf16", accumulation=2, **LARGE), **SAVED),
    "ds3_llama_lora_bf16": dict(ds("llama", 3, precision="bf16", **SMALL), **EVERY),
    "ds3_llama_lora_fp32_partitioned": dict(ds("llama", 3, **NONE_KEPT, **SMALL), **EVERY),
    "ds3_llama_usual_bf16_gas2": dict(ds("llama", 3, precision="bf16", accumulation=2, **NO_REUSE, **LARGE), **USUAL),
    "ds3_llama_saved_bf16": dict(ds("llama", 3, precision="bf16", **NO_REUSE, **SMALL), **SAVED),
    "ds3_gpt2_usual_bf16": dict(ds("gpt2", 3, precision="bf16", **NO_REUSE, **SMALL), **USUAL),
    "ds3_llama_mlps_bf16": dict(ds("llama", 3, precision="bf16", **NONE_KEPT, **SMALL), **MLPS),
    "ds3_llama_norms_fp32_gas2": dict(ds("llama", 3, accumulation=2, **NO_REUSE, **SMALL), **NORMS),
}

# What stage 3 gathers and autograd keeps: blocks checkpointed by torch.utils.checkpoint, not reentrant; layers that save a view of their
# weight.  Blocks outweigh embedding and head, so that a block's backward is the peak.
def again(model, **more):
    return dict(ds(model, 3, **more), recompute="full")


CUT = dict(sub_group_size=500000)
PARTED = dict(NONE_KEPT, **SMALL)
FALCON = {"model_type": "falcon", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "vocab_size": 512,
          "multi_query": True, "parallel_attn": True, "bias": False, "alibi": False, "new_decoder_architecture": False}
WIDE = {"falcon": FALCON, "gpt2wide": dict(GPT2, n_embd=384, vocab_size=512), "llamawide": dict(LLAMA, intermediate_size=2048, vocab_size=512)}
KEPT = {
    "ds3_falcon_bf16": ds("falcon", 3, precision="bf16", **PARTED, **CUT),
    "ds3_falcon_bf16_gas2": ds("falcon", 3, precision="bf16", accumulation=2, **PARTED, **CUT),
    "ds3_llama_bf16": again("llamawide", precision="bf16", **SMALL),
    "ds3_llama_bf16_partitioned": again("llamawide", precision="bf16", **PARTED),
    "ds3_llama_bf16_partitioned_gas2": again("llamawide", precision="bf16", accumulation=2, **NONE_KEPT, **LARGE),
    "ds3_llama_bf16_no_reuse": again("llamawide", precision="bf16", **NO_REUSE, **SMALL),
    "ds3_llama_bf16_some_reuse": again("llamawide", precision="bf16", **dict(PARTED, stage3_max_reuse_distance=1000000)),
    "ds3_llama_bf16_views": again("llamawide", precision="bf16", stage3_use_all_reduce_for_fetch_params=True, **PARTED),
    "ds3_llama_fp32_sequential": again("llamawide", stage3_allgather_sequential=True, **PARTED),
    "ds3_gpt2_bf16": again("gpt2wide", precision="bf16", **SMALL),
    "ds3_gpt2_bf16_partitioned": again("gpt2wide", precision="bf16", **PARTED),
    "ds3_gpt2_fp32_partitioned": again("gpt2wide", **PARTED),
    # Where the step's own peak is low, that of every step is in a block's backward.
    "ds3_llama_bf16_subgroups": again("llamawide", precision="bf16", **PARTED, **CUT),
    "ds3_llama_bf16_subgroups_views_gas2": again("llamawide", precision="bf16", accumulation=2, stage3_use_all_reduce_for_fetch_params=True,
                                                 **PARTED, **CUT),
    "ds3_gpt2_bf16_subgroups": again("gpt2wide", precision="bf16", **PARTED, **CUT),
    "ds3_llama_bf16_mlps": dict(again("llamawide", precision="bf16", **PARTED), **MLPS),
}

# torch.optim.AdamW as a script gives it to deepspeed.initialize(), where the step is the peak; models built under zero.Init.
FORMS = {}
for form in ("foreach", "loop"):
    made = {
        "ds0_llama_fp32": ds("llama", 0),
        "ds1_gpt2_bf16": ds("gpt2", 1, precision="bf16", **LARGE),
        "ds1_llama_bf16_accum_fp32": ds("llama", 1, precision="bf16", **FP32),
        "ds2_llama_bf16_small_gas2": ds("llama", 2, precision="bf16", accumulation=2, **SMALL),
        "ds2_gpt2odd_fp32": ds("gpt2odd", 2, **SMALL),
        "ds3_llama_bf16": ds("llama", 3, precision="bf16", **LARGE),
        "ds3_llama_bf16_subgroups": ds("llama", 3, precision="bf16", **PARTED, **CUT),
        "ds3_gpt2odd_fp32": ds("gpt2odd", 3, **SMALL),
    }
    FORMS.update({"%s_%s" % (name, form): dict(plan, optimizer_form=form) for name, plan in made.items()})
FORMS.update({
    "ds3_llama_bf16_zero_init": ds("llama", 3, precision="bf16", zero_init=True, **SMALL),
    "ds3_gpt2odd_fp32_zero_init": ds("gpt2odd", 3, zero_init=True, **PARTED),
    "ds3_llama_bf16_zero_init_loop": dict(ds("llama", 3, precision="bf16", zero_init=True, **PARTED), optimizer_form="loop"),
})
FORMS.update(trainer_cases(ds, fsdp1, LARGE, NONE_KEPT))

DRAWN = drawn_cases(ds, ddp, plan_of)

# ---- the account of storages ----


class Event(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("bytes", ctypes.c_long)]


class Account:
    """What is live, its sum and the peak since mark(); storages can be given a category or set aside."""

    def __init__(self):
        self.shim = ctypes.CDLL(os.environ["DPX_SHIM"])
        self.shim.dpx_take.restype = ctypes.c_long
        self.chunk = (Event * 65536)()
        self.live, self.category = {}, {}       # address -> bytes; address -> category
        self.sum = self.peak = 0
        self.of, self.most = {}, {}             # per category: live now, and the most since mark()
        self.log, self.at_peak = [], []         # events since mark(); sizes live at the peak

    def counted(self, yes):
        return self.shim.dpx_count(int(yes))

    def drain(self):
        n = len(self.chunk)
        while n == len(self.chunk):
            n = self.shim.dpx_take(self.chunk, n)
            for e in self.chunk[:n]:
                self.event(e.at, e.bytes)

    def event(self, at, size):
        if size >= 0:
            self.live[at] = rounded = -(-size // 512) * 512
            self.sum += rounded
            if self.sum > self.peak:
                self.peak, self.at_peak = self.sum, None
        elif at in self.live:
            if self.at_peak is None:
                self.at_peak = sorted(self.live.values(), reverse=True)
            self.forget(at)

    def forget(self, at):
        size = self.live.pop(at)
        self.sum -= size
        if at in self.category:
            self.of[self.category.pop(at)] -= size

    def mark(self):
        self.drain()
        self.peak, self.at_peak, self.most = self.sum, None, dict(self.of)

    def call_it(self, category, tensor):
        """From now to its release, the tensor's storage belongs to `category`.  None: it is the host's."""
        self.drain()
        at = getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr()          # a DTensor has no storage
        if at not in self.live:
            return
        if category is None:
            return self.forget(at)
        if at in self.category:
            self.of[self.category[at]] -= self.live[at]
        self.category[at] = category
        self.of[category] = self.of.get(category, 0) + self.live[at]
        self.most[category] = max(self.most.get(category, 0), self.of[category])


    def category_of(self, tensor):
        self.drain()
        return self.category.get(tensor.untyped_storage().data_ptr())


account = None
# Position of the full buffer among the arguments; None: what is sent has no category.
COLLECTIVES = {"all_gather_into_tensor": 0, "all_gather_single": 0, "_all_gather_base": 0, "all_gather": 0,
               "reduce_scatter_tensor": 1, "reduce_scatter_single": 1, "_reduce_scatter_base": 1, "all_reduce": 0,
               "broadcast": 0, "reduce": 0, "barrier": None}


def kind_of(name):
    return next(k for k in ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "barrier") if k in name)


def listen():
    """Collectives' buffers get their category; what gloo's front end allocates is not counted."""
    c10d = dist.distributed_c10d
    for name, position in COLLECTIVES.items():
        def heard(*args, real=getattr(c10d, name), kind=kind_of(name), position=position, **kwargs):
            if position is not None:
                buffer = args[position] if len(args) > position else list(kwargs.values())[position - len(args)]
                buffer = buffer[0] if isinstance(buffer, list) else buffer
                if account.category_of(buffer) is None:
                    account.call_it(kind, buffer)
            was = account.counted(False)
            try:
                result = real(*args, **kwargs)
            finally:
                account.counted(was)
            if hasattr(result, "wait"):
                result.wait()
            time.sleep(0.001)           # gloo's thread lets go of the tensors a moment after they are done
            return result
        setattr(c10d, name, heard)
        if hasattr(dist, name):
            setattr(dist, name, heard)
    coalesced = dist._broadcast_coalesced

    def broadcast_coalesced(*args):
        coalesced(*args)
        time.sleep(0.01)
    dist._broadcast_coalesced = broadcast_coalesced


# ---- one rank ----


def tune(model, plan):
    """What the plan's "train" and "lora" say."""
    if plan.get("train") == "lora":
        from peft import LoraConfig, get_peft_model
        lora = dict(plan["lora"])
        return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=lora.pop("rank"), **lora))
    for name, p in model.named_parameters():
        p.requires_grad_("train" not in plan or any(fnmatch.fnmatchcase(name, x) for x in plan["train"]))
    return model


def checkpointed(model, plan):
    if plan.get("recompute") == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    return model


def build(plan):
    shape = dict(MODELS[plan["model"]])
    kind = shape.pop("model_type")
    config = {"gpt2": transformers.GPT2Config, "llama": transformers.LlamaConfig, "falcon": transformers.FalconConfig}[kind](
        **shape, attn_implementation="eager", use_cache=False)
    model = tune({"gpt2": transformers.GPT2LMHeadModel, "llama": transformers.LlamaForCausalLM, "falcon": transformers.FalconForCausalLM}
                 [kind](config), plan)
    if plan["dialect"] == "deepspeed" and plan["precision"] != "fp32":
        model = model.to(torch.bfloat16 if plan["precision"] == "bf16" else torch.float16)  # else the engine does it
    if plan.get("ddp", {}).get("model_dtype"):
        model = model.to(torch.bfloat16)
    return checkpointed(model, plan)


def ds_config(plan):
    zero = dict(plan["deepspeed"], stage=["ddp", "zero1", "zero2", "zero3"].index(plan["strategy"]))
    zero.pop("zero_init", None)
    config = {"train_micro_batch_size_per_gpu": MICRO_BATCH, "gradient_accumulation_steps": plan["accumulation"],
              "gradient_clipping": plan["clip"] or 0.0, "steps_per_print": 1 << 30, "zero_optimization": zero,
              "zero_allow_untested_optimizer": True}
    if "grad_accum_dtype" in zero:
        config["data_types"] = {"grad_accum_dtype": zero.pop("grad_accum_dtype")}
    if "communication_data_type" in zero:
        config["communication_data_type"] = zero.pop("communication_data_type")
    if plan["precision"] == "bf16":
        config["bf16"] = {"enabled": True}
    if plan["precision"] == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 4}    # no overflow in three steps
    return config


def to_device(params, buffers=(), device=None):
    """Copies what was built uncounted, on the "host", into storages that count, as Module.to() does."""
    with torch.no_grad():
        for t in [*params, *buffers]:
            t.data = t.data.clone()


def wrap(model, plan):
    """Returns (what is called, its optimizer)."""
    options = dict(plan.get("ddp") or plan.get("fsdp") or {})
    form = plan.get("optimizer_form", "foreach")        # the default on CUDA
    adamw = {"lr": 1e-4, "foreach": form == "foreach", "fused": form == "fused"}
    options.pop("model_dtype", None)
    if plan["dialect"] == "deepspeed":
        # FusedAdam, which the configuration's "AdamW" means, has no temporaries either.
        form = plan.get("optimizer_form", "fused")
        if plan.get("optimizer"):       # as the Trainer hands it over, and accelerate's word for it
            return deepspeed.initialize(model=model, optimizer=in_8_bits(model), config=dict(ds_config(plan), zero_allow_untested_optimizer=True))[:2]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=form == "fused", foreach=form == "foreach")
        return deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config(plan))[:2]
    if plan["dialect"] == "torch-fsdp1":
        options["sharding_strategy"] = ShardingStrategy[options["sharding_strategy"]]
        if plan["precision"] == "bf16":
            options["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        inner = model.base_model.model if plan.get("train") == "lora" else model
        blocks = inner.transformer.h if hasattr(inner, "transformer") else inner.model.layers
        model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({type(blocks[0])}),
                                         device_id=torch.device("cpu"), **options)
        return model, torch.optim.AdamW(model.parameters(), **adamw)
    if plan["strategy"] == "fsdp":
        blocks = list(model.transformer.h if hasattr(model, "transformer") else model.model.layers)
        each = int(plan["unit"].split()[0]) if "blocks" in plan["unit"] else 1
        for i in range(0, len(blocks), each):
            fully_shard(blocks[i:i + each] if each > 1 else blocks[i], **options)
        return fully_shard(model), torch.optim.AdamW(model.parameters(), **adamw)
    params_view = options.pop("parameters_as_bucket_view", False)
    model = DistributedDataParallel(model, **options)
    if plan["strategy"] == "ddp":
        return model, torch.optim.AdamW(model.parameters(), **adamw)
    return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW,
                                          parameters_as_bucket_view=params_view, **adamw)


def micro_step(model, plan, last):
    """One micro-step; DeepSpeed's step() is left to optimizer_step() if it is the last one."""
    ids = torch.randint(MODELS[plan["model"]]["vocab_size"], (MICRO_BATCH, SEQ))
    if plan["dialect"] == "deepspeed":
        loss = model(input_ids=ids, labels=ids).loss
        model.backward(loss)
        if not last:
            model.step()
        return
    if plan["strategy"] == "fsdp" and plan["dialect"] == "torch":
        model.set_requires_gradient_sync(last or plan["sync_every_micro_step"])
    if last or plan.get("sync_every_micro_step") or not hasattr(model, "no_sync"):
        (model(input_ids=ids, labels=ids).loss / plan["accumulation"]).backward()
        return
    with model.no_sync():
        (model(input_ids=ids, labels=ids).loss / plan["accumulation"]).backward()


def optimizer_step(model, optimizer, plan):
    if plan["dialect"] == "deepspeed":
        return model.step()
    if plan["clip"]:
        if plan["dialect"] == "torch-fsdp1":
            model.clip_grad_norm_(plan["clip"])
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), plan["clip"])
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def inner_optimizer(optimizer):
    while hasattr(optimizer, "optimizer") and not isinstance(optimizer, ZeroRedundancyOptimizer):
        optimizer = optimizer.optimizer
    return getattr(optimizer, "optim", optimizer)


def tensors_in(thing, depth=3):
    if isinstance(thing, torch.Tensor):
        yield thing
    elif depth and isinstance(thing, dict):
        for value in thing.values():
            yield from tensors_in(value, depth - 1)
    elif depth and isinstance(thing, (list, tuple)):
        for value in thing:
            yield from tensors_in(value, depth - 1)


def name_what_persists(model, optimizer, plan):
    """Categories for storages that outlive a phase."""
    inner = inner_optimizer(optimizer)
    for p in model.parameters():
        account.call_it("params", p)
        if getattr(p, "ds_tensor", None) is not None:
            account.call_it("params", p.ds_tensor)
        for name in ("_local_shard", "_cpu_grad"):
            if getattr(p, name, None) is not None:
                account.call_it("params", getattr(p, name))
    for group in inner.param_groups:
        for p in group["params"]:
            if plan["dialect"] == "deepspeed":
                account.call_it(account.category_of(p) or "optimizer", p)
    for state in inner.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                counted = key != "step" or (plan["dialect"] != "deepspeed" and plan.get("optimizer_form") == "fused")   # else it is on the host
                account.call_it("optimizer" if counted else None, value)
    for p in model.parameters():
        for name in ("grad", "_saved_grad_shard"):
            if getattr(p, name, None) is not None:
                account.call_it("grads", getattr(p, name))


def phase(model, optimizer, plan):
    """What init or a step took, and what it leaves."""
    account.drain()
    taken = {"peak": account.peak, "most": {k: v for k, v in account.most.items() if v}}
    at_peak = account.at_peak or sorted(account.live.values(), reverse=True)
    name_what_persists(model, optimizer, plan)
    taken["persistent"] = {k: v for k, v in account.of.items() if v}
    taken["other"] = sorted((size for at, size in account.live.items() if at not in account.category), reverse=True)
    if os.environ.get("DPX_DEBUG"):
        taken["at_peak"] = [(k, at_peak.count(k)) for k in sorted(set(at_peak), reverse=True)][:14]
    account.mark()
    return taken


def rank_main(rank, name, folder):
    global account
    plan = CASES[name]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False       # its reordered weights are the CPU's alone
    quiet = os.open(os.path.join(folder, "log%d" % rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    # DeepSpeed would build its shared-memory and oneCCL all-reduces, if a compiler is there.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    importlib.import_module("deepspeed.comm.ccl").build_ccl_op = lambda: None
    # Without AMX or AVX512-FP16 DeepSpeed refuses fp16, which PyTorch computes all the same.
    importlib.import_module("deepspeed.accelerator").get_accelerator().is_fp16_supported = lambda: True
    store = "file://%s/store" % folder
    if plan["dialect"] == "deepspeed":
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=WORLD,
                                   init_method=store)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=WORLD, init_method=store)
    account = Account()
    torch.manual_seed(7)
    zero_init = plan.get("deepspeed", {}).get("zero_init", False)
    account.counted(zero_init)
    if zero_init:
        listen()
    with deepspeed.zero.Init(config_dict_or_path=ds_config(plan)) if zero_init else contextlib.nullcontext():
        model = build(plan)
    account.counted(True)
    if plan["dialect"] == "torch-fsdp1":        # moves each unit as it wraps it
        fsdp_init._move_states_to_device = to_device
    elif not zero_init:
        to_device(model.parameters(), model.buffers())
    gc.collect()
    if not zero_init:               # whose peak is that of building and of wrap()
        listen()
        account.mark()
    phases = {}
    model, optimizer = wrap(model, plan)
    gc.collect()
    phases["init"] = phase(model, optimizer, plan)
    for step in range(STEPS):
        for micro in range(plan["accumulation"]):
            micro_step(model, plan, micro == plan["accumulation"] - 1)
        account.drain()
        before = account.peak
        optimizer_step(model, optimizer, plan)
        phases[("first", "second", "steady")[step]] = dict(phase(model, optimizer, plan), peak_before_step=before)
    assert getattr(model, "skipped_steps", 0) == 0, "a step overflowed"
    phases["optimizer"] = type(optimizer).__name__
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump(phases, f)
    os._exit(0)         # gloo's tear-down is not what is recorded


def run(name):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, name, folder)) for r in range(WORLD)]
        for p in ranks:
            p.start()
        for p in ranks:
            p.join(240)
        if any(p.exitcode != 0 for p in ranks):
            for p in ranks:
                p.kill()
            for r in range(WORLD):
                sys.stderr.write(open(os.path.join(folder, "log%d" % r), errors="replace").read()[-3000:])
            sys.exit(name + ": failed")
        return [json.load(open(os.path.join(folder, "out%d" % r))) for r in range(WORLD)]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--only", default="")
    args.add_argument("--tuned", action="store_true")
    args.add_argument("--kept", action="store_true")
    args.add_argument("--forms", action="store_true")
    args.add_argument("--drawn", action="store_true")
    args.add_argument("-o", default="cpu_ranks.jsonl")
    args = args.parse_args()
    if args.tuned:
        import peft                     # before ranks are forked
    if args.forms:
        importlib.import_module("torch._dynamo")    # later it would compare signatures that zero.Init has replaced
    if args.tuned or args.kept or args.forms or args.drawn:
        CASES.clear()
        CASES.update(TUNED if args.tuned else KEPT if args.kept else DRAWN if args.drawn else FORMS)
        MODELS.update(WIDE if args.kept else {})
    with open(args.o, "w") as out:
        meta = {"torch": torch.__version__, "deepspeed": deepspeed.__version__, "transformers": transformers.__version__,
                "models": MODELS, **({"peft": peft.__version__} if args.tuned else {})}
        print(json.dumps(meta, separators=(",", ":")), file=out)
        for name, plan in CASES.items():
            if args.only not in name:
                continue
            print(name, file=sys.stderr, flush=True)
            ranks = run(name)
            print(json.dumps({"name": name, "plan": plan, "ranks": ranks}, separators=(",", ":")), file=out, flush=True)


if __name__ == "__main__":
    main()
