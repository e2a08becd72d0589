#!/usr/bin/env python3
"""Records PyTorch's own account of the memory of a training step.

    python record_torch_memory.py [--cases steps|alone|attention|options|hooks|experts|activations|liger|trl|units|ends|numbers|hybrid|modules|choices] [--only SUBSTRING] [--family NAME ...] [-o torch_memory.jsonl]

FSDP2 and HSDP by torch.distributed._tools.fsdp2_mem_tracker.FSDPMemTracker, DDP by
MemTracker, both under FakeTensorMode with a fake process group: the modelling code,
autograd and FSDP run for real, tensors have no storage.  No GPU is needed.  README.md says more.
"""
import argparse
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import sysconfig

from preload import preload

# Without a GPU, autograd's engine still asks CUDA for streams of the fake tensors'
# device, and DDP's reducer wants to time itself with CUDA events and to broadcast the
# order of its buckets.  Four functions of libtorch_cpu are interposed so that they do not.
# scaled_dot_product_attention asks the device's properties to choose its kernel: two more,
# of libtorch_cuda and libc10_cuda, answer with those of the GPU that the plan names while
# that choice is made (dpx_major is 0 otherwise: no GPU).
SHIM = r"""
#include <driver_types.h>
int dpx_major, dpx_minor;
static struct cudaDeviceProp properties;
struct cudaDeviceProp *_ZN2at4cuda26getCurrentDevicePropertiesEv(void)
{
    properties.major = dpx_major;
    properties.minor = dpx_minor;
    return &properties;
}
signed char _ZN3c104cuda12device_countEv(void) { return dpx_major ? 1 : 0; }
unsigned short _ZN2at11accelerator14getAcceleratorEb(_Bool checked) { (void)checked; return 0x0100; }
_Bool _ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE(signed char t) { (void)t; return 0; }
_Bool _ZN4c10d7Reducer28should_collect_runtime_statsEv(void *self) { (void)self; return 0; }
void _ZN4c10d7Reducer19sync_bucket_indicesERSt6vectorIS1_ImSaImEESaIS3_EE(void *self, void *v) { (void)self; (void)v; }
"""


# The CUDA runtime's headers come with torch, as the package nvidia.cu13.
preload(SHIM, "-I" + os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "cu13", "include"))

import torch
import torch.distributed as dist
import torch.distributed._tools.fake_collectives  # registers collectives for fake tensors
import transformers
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools import mod_tracker
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from plan_names import gpu_of, name_of, world_of
from torch_alone import alone_cases, optimizer_of, optimizers
from torch_activations import ACTIVATIONS, activation_cases
from torch_attention import attention_cases
from torch_liger import liger, liger_cases
from torch_trl import trl, trl_cases
from torch_ends import ENDS, end_cases, shard_ends
from torch_hybrid import HYBRID, hybrid, hybrid_cases
from torch_hooks import hook_cases, kept, register_hook, steps_before
from torch_mixtures import MIXTURES, PUTS, expert_cases, operator_cases, take_grouped_products
from torch_numbers import NUMBERS, class_of, number_cases, number_loss
from torch_options import module_cases, option_cases, recompute_attention, recompute_by_operator, recompute_modules, replace_loss
from torch_units import UNITS, unit_cases
from hook_without_gradients import hook_without_gradients

# ---- models ----

GPT2 = {"model_type": "gpt2", "activation_function": "gelu_new", "attn_pdrop": 0.1,
        "embd_pdrop": 0.1, "resid_pdrop": 0.1, "n_positions": 1024, "vocab_size": 50257,
        "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 8192,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_dropout": 0.0}
MODELS = {
    "gpt2-10m": dict(GPT2, n_layer=6, n_embd=256, n_head=8, vocab_size=8192),
    "gpt2-tiny": dict(GPT2, n_layer=3, n_embd=96, n_head=3, vocab_size=1009, n_positions=256),
    "gpt2-124m": dict(GPT2, n_layer=12, n_embd=768, n_head=12),
    "gpt2-355m": dict(GPT2, n_layer=24, n_embd=1024, n_head=16),
    "gpt2-124m-nodrop": dict(GPT2, n_layer=12, n_embd=768, n_head=12, attn_pdrop=0.0, embd_pdrop=0.0,
                             resid_pdrop=0.0),
    "llama-10m": dict(LLAMA, num_hidden_layers=6, hidden_size=256, intermediate_size=704,
                      num_attention_heads=8, num_key_value_heads=8, vocab_size=8192),
    "llama-15m-gqa-tied": dict(LLAMA, num_hidden_layers=6, hidden_size=288, intermediate_size=768,
                               num_attention_heads=6, num_key_value_heads=2, vocab_size=32000,
                               tie_word_embeddings=True),
    "llama-1b": dict(LLAMA, num_hidden_layers=16, hidden_size=2048, intermediate_size=8192,
                     num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
                     tie_word_embeddings=True, head_dim=64),
    "llama-8b": dict(LLAMA, num_hidden_layers=32, hidden_size=4096, intermediate_size=14336,
                     num_attention_heads=32, num_key_value_heads=8, vocab_size=128256),
}
SMALL = {"hidden_size": 512, "num_hidden_layers": 4, "intermediate_size": 1536, "num_attention_heads": 8,
         "vocab_size": 8192, "max_position_embeddings": 1024}
GROUPED = dict(SMALL, num_key_value_heads=2)
FAMILIES = {
    "mistral": dict(GROUPED, tie_word_embeddings=False, sliding_window=None),
    "qwen2": dict(GROUPED, tie_word_embeddings=True),
    "qwen3": dict(GROUPED, tie_word_embeddings=True, head_dim=64),
    "gemma": dict(GROUPED, tie_word_embeddings=True, head_dim=64),
    "gemma2": dict(GROUPED, tie_word_embeddings=True, head_dim=64, sliding_window=4096),
    "phi3": dict(GROUPED, tie_word_embeddings=False, resid_pdrop=0.0, embd_pdrop=0.0),
    "starcoder2": dict(GROUPED, tie_word_embeddings=True, residual_dropout=0.0, embedding_dropout=0.0),
    "gpt_neox": dict(SMALL, tie_word_embeddings=False, rotary_pct=0.25, hidden_dropout=0.0),
    "opt": dict(hidden_size=512, num_hidden_layers=4, ffn_dim=2048, num_attention_heads=8, vocab_size=8192,
                word_embed_proj_dim=512, max_position_embeddings=1024, dropout=0.1, attention_dropout=0.0),
    "bloom": dict(hidden_size=512, n_layer=4, n_head=8, vocab_size=8192, hidden_dropout=0.0,
                  attention_dropout=0.0),
    "falcon": dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, vocab_size=8192, multi_query=True,
                   parallel_attn=True, bias=False, new_decoder_architecture=False, alibi=False),
    "mpt": dict(d_model=512, n_layers=4, n_heads=8, expansion_ratio=4, max_seq_len=1024, vocab_size=8192),
}
# Windows are longer than the sequence: then transformers' sdpa passes no mask for them.
FAMILIES.update({
    "gemma3_text": dict(GROUPED, tie_word_embeddings=True, head_dim=64, sliding_window=4096,
                        sliding_window_pattern=2),
    "ministral": dict(GROUPED, tie_word_embeddings=False, head_dim=64, sliding_window=4096),
    "ministral3": dict(GROUPED, tie_word_embeddings=True, head_dim=80, sliding_window=None),
    "olmo2": dict(GROUPED, tie_word_embeddings=False),
    "olmo3": dict(GROUPED, tie_word_embeddings=False, sliding_window=4096),
    "phi": dict(SMALL, tie_word_embeddings=False, embd_pdrop=0.1, resid_pdrop=0.1, attention_dropout=0.1),
    "granite": dict(GROUPED, tie_word_embeddings=True, embedding_multiplier=12.0, logits_scaling=8.0,
                    residual_multiplier=0.22, attention_multiplier=0.015625),
    "smollm3": dict(GROUPED, tie_word_embeddings=True),
    "stablelm": dict(GROUPED, tie_word_embeddings=False, use_qkv_bias=True),
    "stablelm-heads": dict(GROUPED, model_type="stablelm", tie_word_embeddings=True, qk_layernorm=True,
                           use_parallel_residual=True),
    "cohere": dict(GROUPED, tie_word_embeddings=True),
    "cohere-norms": dict(GROUPED, model_type="cohere", tie_word_embeddings=True, use_qk_norm=True),
    "cohere2": dict(GROUPED, tie_word_embeddings=True, sliding_window=4096),
    "glm": dict(GROUPED, tie_word_embeddings=False, head_dim=64),
    "glm4": dict(GROUPED, tie_word_embeddings=False, head_dim=64),
    "nemotron": dict(GROUPED, tie_word_embeddings=False),
    "opt-350m": dict(FAMILIES["opt"], model_type="opt", do_layer_norm_before=False, word_embed_proj_dim=256),
    "arcee": dict(GROUPED, tie_word_embeddings=False),
    "gptj": dict(n_embd=512, n_layer=4, n_head=8, n_inner=1536, n_positions=1024, vocab_size=8192, rotary_dim=32, embd_pdrop=0.1,
                 resid_pdrop=0.1, attn_pdrop=0.1),
    "jais2": dict(GROUPED, tie_word_embeddings=False),
    "seed_oss": dict(GROUPED, tie_word_embeddings=False, head_dim=64, residual_dropout=0.0, attention_dropout=0.0),
    "exaone4": dict(GROUPED, tie_word_embeddings=False, sliding_window=4096),
    "ernie4_5": dict(GROUPED, tie_word_embeddings=True, head_dim=64),
    "hunyuan_v1_dense": dict(GROUPED, tie_word_embeddings=True, head_dim=64),
})
# Released shapes, for what shows at real sizes only; some with fewer blocks.
LLAMA2 = dict(hidden_act="silu", tie_word_embeddings=False, hidden_size=4096, intermediate_size=14336,
              num_attention_heads=32, num_key_value_heads=8, vocab_size=32000)
RELEASED = {
    "bloom-560m": dict(model_type="bloom", hidden_size=1024, n_layer=24, n_head=16, vocab_size=250880,
                       hidden_dropout=0.0, attention_dropout=0.0),
    "mpt-7b": dict(model_type="mpt", d_model=4096, n_layers=32, n_heads=32, expansion_ratio=4, max_seq_len=2048,
                   vocab_size=50432),
    "gemma2-2b": dict(model_type="gemma2", hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
                      num_attention_heads=8, num_key_value_heads=4, head_dim=256, vocab_size=256000,
                      sliding_window=4096, tie_word_embeddings=True),
    "gemma-2b": dict(model_type="gemma", hidden_size=2048, intermediate_size=16384, num_hidden_layers=18,
                     num_attention_heads=8, num_key_value_heads=1, head_dim=256, vocab_size=256000,
                     tie_word_embeddings=True),
    "falcon-7b": dict(model_type="falcon", hidden_size=4544, num_hidden_layers=32, num_attention_heads=71,
                      vocab_size=65024, multi_query=True, parallel_attn=True, bias=False,
                      new_decoder_architecture=False, alibi=False),
    "falcon-40b": dict(model_type="falcon", hidden_size=8192, num_hidden_layers=12, num_attention_heads=128,
                       num_kv_heads=8, vocab_size=65024, parallel_attn=True, bias=False,
                       new_decoder_architecture=True, alibi=False),
    "falcon-rw-1b": dict(model_type="falcon", hidden_size=2048, num_hidden_layers=24, num_attention_heads=32,
                         vocab_size=50304, multi_query=False, parallel_attn=False, bias=True,
                         new_decoder_architecture=False, alibi=True),
    "mistral-7b": dict(LLAMA2, model_type="mistral", num_hidden_layers=32, sliding_window=4096),
    "starcoder2-3b": dict(model_type="starcoder2", hidden_size=3072, intermediate_size=12288, num_hidden_layers=30,
                          num_attention_heads=24, num_key_value_heads=2, vocab_size=49152, sliding_window=4096,
                          residual_dropout=0.0, embedding_dropout=0.0, tie_word_embeddings=True),
    "phi3-mini": dict(model_type="phi3", hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
                      num_attention_heads=32, num_key_value_heads=32, vocab_size=32064, sliding_window=2047,
                      resid_pdrop=0.0, embd_pdrop=0.0, tie_word_embeddings=False),
    "qwen2-7b-window": dict(model_type="qwen2", hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
                            num_attention_heads=28, num_key_value_heads=4, vocab_size=152064, sliding_window=4096,
                            use_sliding_window=True, max_window_layers=0, tie_word_embeddings=False),
    "qwen2-7b-half": dict(model_type="qwen2", hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
                          num_attention_heads=28, num_key_value_heads=4, vocab_size=152064, sliding_window=4096,
                          use_sliding_window=True, max_window_layers=14, tie_word_embeddings=False),
    # Layers with a window and layers without, both kinds several times over.
    "gemma3-mixed": dict(FAMILIES["gemma3_text"], model_type="gemma3_text", num_hidden_layers=13, sliding_window=256,
                         sliding_window_pattern=6),
    "gemma3-1b": dict(model_type="gemma3_text", hidden_size=1152, intermediate_size=6912, num_hidden_layers=26,
                      num_attention_heads=4, num_key_value_heads=1, head_dim=256, vocab_size=262144,
                      sliding_window=512, tie_word_embeddings=True),
    "olmo3-mixed": dict(FAMILIES["olmo3"], model_type="olmo3", num_hidden_layers=12, sliding_window=256),
    "cohere2-mixed": dict(FAMILIES["cohere2"], model_type="cohere2", num_hidden_layers=12, sliding_window=256),
    "exaone4-mixed": dict(FAMILIES["exaone4"], model_type="exaone4", num_hidden_layers=12, sliding_window=256),
    "ministral-window": dict(FAMILIES["ministral"], model_type="ministral", sliding_window=256),
}
MODELS.update(RELEASED)
# Their modelling code has no fused attention, or none that CUDA's fused kernels take.
EAGER_ONLY = {"gemma2", "bloom", "falcon", "mpt"}
MODELS.update({name: {"model_type": name, **shape} for name, shape in FAMILIES.items()}, **MIXTURES, **ACTIVATIONS, **UNITS, **ENDS, **NUMBERS, **HYBRID)

# ---- what stands in for a GPU ----


class Stream:
    def __init__(self, *a, **k): pass
    def wait_stream(self, *a): pass
    def wait_event(self, *a): pass
    def record_event(self, *a): return Event()
    def synchronize(self): pass


class Event:
    def __init__(self, *a, **k): pass
    def record(self, *a): return self
    def wait(self, *a): pass
    def synchronize(self): pass
    def query(self): return True


class Handle:
    Stream, Event = Stream, Event
    _current = Stream()
    current_stream = staticmethod(lambda *a: Handle._current)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 8)
    is_available = staticmethod(lambda: True)
    is_initialized = staticmethod(lambda: True)
    set_device = staticmethod(lambda *a: None)
    synchronize = staticmethod(lambda *a: None)

    @staticmethod
    def stream(_stream):
        return contextlib.nullcontext()


def without_gpu():
    handle = lambda *a, **k: Handle
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and hasattr(module, "_get_device_handle"):
            module._get_device_handle = handle
    import torch.distributed.device_mesh as mesh
    mesh._get_device_handle = handle
    import torch.distributed.fsdp._fully_shard._fsdp_collectives as collectives
    collectives.record_grad_output_stream = lambda *a: None
    # An integer reshard_after_forward makes a mesh, whose ranks it reads: not under fake tensors.
    import torch.distributed.fsdp._fully_shard._fully_shard as fully
    real_mesh = fully._get_post_forward_mesh_info

    def mesh_of_ranks(*args):
        with unset_fake_temporarily(), torch.device("cpu"):
            return real_mesh(*args)
    fully._get_post_forward_mesh_info = mesh_of_ranks
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False      # autocast("cuda")
    torch.cuda.is_bf16_supported = lambda *a, **k: True
    # Whether sequences are packed depends on values; ours are not.
    import transformers.masking_utils as masks
    masks.find_packed_sequence_indices = lambda *a, **k: None
    torch.nn.functional.scaled_dot_product_attention = sdpa
    mod_tracker.register_multi_grad_hook = hook_without_gradients
    take_grouped_products()


SDPA = torch.nn.functional.scaled_dot_product_attention
CAPABILITY = {"a100-80gb": 8, "h100": 9}
GPU = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["DPX_SHIM"]), "dpx_major")
MINOR = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["DPX_SHIM"]), "dpx_minor")
PLANNED = {}        # of the plan that is being recorded: its GPU's capability


def sdpa(*args, **kwargs):
    """PyTorch's own choice of kernel (sdp_utils.cpp) for the GPU of the plan, and what it wraps around it."""
    GPU.value = PLANNED["capability"]
    try:
        return SDPA(*args, **kwargs)
    finally:
        GPU.value = 0


# ---- trackers ----


class Peaks:
    """Mixed into a tracker: the largest of each category, and the engine's sums in place."""

    most = None

    def _update_peak_stats(self, state):
        super()._update_peak_stats(state)
        if self.most is None:
            self.most = {}
        for dev, snap in self._curr_mem_snap.items():
            if dev.type == "cuda":
                for key, value in snap.items():
                    name = getattr(key, "value", key)
                    self.most[name] = max(self.most.get(name, 0), value)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # Gradients that meet: autograd adds in place unless a tensor is a subclass, as fake ones are, or the
        # first is a view, as a linear layer's gradient of its weight is: its base refers to the storage too; or
        # another node has yet to read it (HELD: dpx_record/recorder.py).
        if (IN_PLACE and not (args and isinstance(args[0], torch.Tensor) and (args[0]._is_view() or args[0]._use_count() > HELD)) and func is torch.ops.aten.add.Tensor and self._mod_tracker.is_bw and not self._in_ac
                and not self._in_opt and len(args) == 2 and not kwargs
                and all(isinstance(a, torch.Tensor) for a in args)
                and args[0].shape == args[1].shape and args[0].dtype == args[1].dtype):
            func = torch.ops.aten.add_.Tensor
        # Back from x[[i]] into zeros: likewise.
        func = PUTS.get(func, func) if IN_PLACE and self._mod_tracker.is_bw else func
        return super().__torch_dispatch__(func, types, args, kwargs)

IN_PLACE, HELD = True, 4


class FSDPPeaks(Peaks, FSDPMemTracker):
    pass


class UnitPeaks(FSDPPeaks):
    """FSDPMemTracker without its hooks, which change what they measure: a unit of several blocks has one pair of hooks, and it
    would put a pair on each block in their place; and its post_backward holds the gradient of a unit's last parameter
    (`unsharded_grad`) while the unit is reduced, which is the head's in an untied root.  It sees all steps, because nothing
    else tells it of parameters that an earlier step unsharded."""

    def __init__(self, model, optimizer, blocks):
        super().__init__(model, optimizer)
        self.blocks = blocks

    def _instrument_fsdp_module(self):
        for module in self._root_mod.modules():
            group = module._get_fsdp_state()._fsdp_param_group if isinstance(module, FSDPModule) else None
            if group:
                self._instrument_fsdp_sharded_params_grads(group)
        for block in self.blocks:       # a forward within backward is one that runs again
            block.register_forward_pre_hook(lambda *a: setattr(self, "_in_ac", self._mod_tracker.is_bw))
            block.register_forward_hook(lambda *a: setattr(self, "_in_ac", False), always_call=True)     # stopped early, too

    def begin_again(self):
        self._peak_mem_snap = self.get_tracker_snapshot()
        self._peak_mem = {dev: snap["Total"] for dev, snap in self._peak_mem_snap.items()}
        self.most = None


class DDPPeaks(Peaks, MemTracker):
    pass


# ---- one case ----


def blocks_of(model):
    body = model.base_model
    body = getattr(body, "model", body)         # Llama4ForCausalLM's prefix is not its own
    body = getattr(body, "decoder", body)
    return next(getattr(body, name) for name in ("h", "layers", "blocks") if hasattr(body, name))


def mesh_of(plan):
    world, group = world_of(plan), plan.get("shard_group", 0)
    if group and group < world:
        return init_device_mesh("cuda", (world // group, group), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cuda", (world,))


def shard(model, plan, mesh):
    policy = MixedPrecisionPolicy()
    if plan["precision"] == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    reshard = plan["fsdp"]["reshard_after_forward"]
    if plan["fsdp"].get("root_units", "together") != "together":
        shard_ends(model, plan["fsdp"]["root_units"], mesh, policy, reshard, plan["fsdp"].get("root_reshard_after_forward", False))
    blocks, each = list(blocks_of(model)), int(plan.get("unit", "1 block").split()[0])
    for i in range(0, len(blocks), each):
        unit = blocks[i:i + each] if each > 1 else blocks[i]
        stays = plan["fsdp"].get("keeps_last_unit") and i + each >= len(blocks)
        fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=not stays and reshard)
    return fully_shard(model, mesh=mesh, mp_policy=policy)      # the root is left at its default, which keeps it gathered


def wrap_ddp(model, plan):
    if not plan["ddp"].get("wrapped", True):
        return model
    ddp = nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=plan["ddp"]["gradient_as_bucket_view"], init_sync=False)
    register_hook(ddp, plan["ddp"])
    return ddp


def micro_step(model, ids, labels, autocast):
    with torch.autocast("cuda", torch.bfloat16) if autocast else contextlib.nullcontext():
        inner = getattr(model, "module", model).config
        if inner.architectures:
            loss = number_loss(model, ids, labels, inner)
        else:
            loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    loss.backward()


def synchronized(model, plan, last):
    """What a user wraps around a micro-step so that only the last one reduces, if the plan says so."""
    sync = last or plan.get("sync_every_micro_step", True)
    if plan["strategy"] == "fsdp":
        model.set_requires_gradient_sync(sync)
        return contextlib.nullcontext()
    return contextlib.nullcontext() if sync else model.no_sync()


def step(model, optimizer, ids, labels, plan, autocast, between=lambda: None):
    for m in range(plan["accumulation"]):
        between()
        with synchronized(model, plan, m == plan["accumulation"] - 1):
            micro_step(model, ids, labels, autocast)
    if plan.get("clip"):
        nn.utils.clip_grad_norm_(model.parameters(), plan["clip"])
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def named(snapshot):
    for dev, snap in snapshot.items():
        if dev.type == "cuda":
            return {getattr(k, "value", k): v for k, v in snap.items() if v}
    return {}


def built(plan, dtype=torch.float32):
    """transformers' model in training, with the plan's kernels and recompute."""
    attn = {"torch-eager": "eager", "torch-sdpa": "sdpa", None: None}[plan.get("kernels")]
    cfg = transformers.AutoConfig.for_model(**MODELS[plan["model"]])
    cfg.bos_token_id = cfg.eos_token_id = cfg.pad_token_id = None
    cfg.use_cache = False
    model = class_of(cfg).from_config(cfg, attn_implementation=attn, dtype=dtype)
    model.train()
    if plan["recompute"] in ("full", "reentrant"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": plan["recompute"] == "reentrant"})
    if plan["recompute"] in ("op", "modules"):
        (recompute_by_operator if plan["recompute"] == "op" else recompute_modules)(blocks_of(model))
    recompute_attention(model, plan["recompute"] == "selective")
    return model


def batch_of(plan):
    return tuple(torch.zeros((plan["micro_batch"], plan["seq"]), dtype=torch.long) for _ in range(2))


def peaks(tracker):
    peak = named(tracker.get_tracker_snapshot("peak"))
    return {"peak_total": peak.pop("Total"), "peak_by_category": peak, "max_by_category": {k: v for k, v in tracker.most.items() if v},
            "after": named(tracker.get_tracker_snapshot("current"))}


def tracked_step(model, optimizer, batch, plan, autocast):
    """A step under PyTorch's tracker."""
    if plan["strategy"] == "fsdp":
        tracker = FSDPPeaks(model, optimizer)
        tracker.track_inputs(batch)
    else:
        tracker = DDPPeaks()
        tracker.track_external(model, *optimizers(optimizer), *batch, *kept(model))
    with tracker:
        step(model, optimizer, *batch, plan, autocast, tracker.reset_mod_stats)
    return peaks(tracker)


def first_and_steady(model, optimizer, batch, plan, autocast):
    """Two steps; of FSDP2 under one tracker."""
    if plan["strategy"] != "fsdp":
        return tuple(tracked_step(model, optimizer, batch, plan, autocast) for _ in range(2))
    tracker = UnitPeaks(model, optimizer, blocks_of(model))
    tracker.track_inputs(batch)
    with tracker:
        step(model, optimizer, *batch, plan, autocast)
        first = peaks(tracker)
        tracker.begin_again()
        step(model, optimizer, *batch, plan, autocast)
    return first, peaks(tracker)


def run(plan, rehearsed=False):
    fsdp = plan["strategy"] == "fsdp"
    PLANNED["capability"] = CAPABILITY[gpu_of(plan)]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_of(plan))
    try:
        mesh = mesh_of(plan) if fsdp else None      # reads ranks: not under fake tensors
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), contextlib.ExitStack() as stack:
            pure = dict(plan.get("fsdp", {}), **plan.get("ddp", {})).get("model_dtype")
            stack.enter_context(liger(plan, MODELS[plan["model"]])), stack.enter_context(hybrid(plan, gpu_of(plan)))
            model = built(plan, torch.bfloat16 if pure else torch.float32)
            stack.enter_context(trl(plan))(model)
            replace_loss(model, plan.get("loss"))
            model = shard(model, plan, mesh) if fsdp else wrap_ddp(model, plan)
            # The default on CUDA is foreach, but it is not chosen for fake tensors.
            form = plan.get("optimizer_form", "foreach")
            optimizer = optimizer_of(model, plan, lambda params: torch.optim.AdamW(params, lr=1e-4, foreach=form == "foreach", fused=form == "fused"))
            batch, autocast = batch_of(plan), not fsdp and plan["precision"] == "bf16" and not plan["ddp"].get("model_dtype")
            if plan["model"] in UNITS or plan["model"] in ENDS:
                if fsdp and not rehearsed:
                    # DTensor computes shapes once for each operator and shape, with whole tensors, in the same fake mode.
                    step(model, optimizer, *batch, plan, autocast)
                    return None
                return first_and_steady(model, optimizer, batch, plan, autocast)
            for _ in range(steps_before(plan.get("ddp", {}))):
                step(model, optimizer, *batch, plan, autocast)
            return None, tracked_step(model, optimizer, batch, plan, autocast)
    finally:
        dist.destroy_process_group()


def plan_of(model, strategy="fsdp", world=8, kernels="torch-sdpa", precision="bf16", batch=1, seq=None,
            accumulation=1, recompute="none", reshard=True, group=0, view=False, gpu="h100", sync=True, clip=None,
            model_dtype=None, **options):
    nodes = "%dx8" % (world // 8) if world > 8 else "%d" % world
    plan = {"dpx_plan": 1, "model": model, "cluster": "%sx%s" % (nodes, gpu), "strategy": strategy,
            "dialect": "torch", "kernels": kernels, "seq": seq or 512, "micro_batch": batch,
            "accumulation": accumulation, "precision": precision, "recompute": recompute,
            "dropout": MODELS[model].get("embd_pdrop", MODELS[model].get("dropout", 0.0))}
    if not sync:
        plan["sync_every_micro_step"] = False
    if not kernels:             # what transformers takes by itself, and what a plan that does not say means
        del plan["kernels"]
    if strategy == "fsdp":
        plan["fsdp"] = {"reshard_after_forward": reshard}
        if group:
            plan["shard_group"] = group
    else:
        plan["ddp"] = {"gradient_as_bucket_view": view}
    if clip:
        plan["clip"] = clip
    if model_dtype:
        plan["fsdp"]["model_dtype"], plan["reduce_dtype"] = model_dtype, "fp32"
    return plan | options


def cases():
    eager, sdpa_ = "torch-eager", "torch-sdpa"
    for world in (1, 2, 4, 8, 16, 64):
        yield plan_of("gpt2-10m", world=world, kernels=eager, precision="fp32", batch=2, seq=256)
        yield plan_of("llama-10m", world=world, kernels=sdpa_, precision="bf16", batch=4, seq=256)
    for kernels in (eager, sdpa_):
        for precision in ("fp32", "bf16"):
            yield plan_of("gpt2-124m", kernels=kernels, precision=precision, batch=4, seq=1024)
            yield plan_of("gpt2-124m", kernels=kernels, precision=precision, batch=1, seq=512, recompute="full")
            yield plan_of("llama-10m", world=4, kernels=kernels, precision=precision, batch=8, seq=512)
            yield plan_of("llama-10m", world=4, kernels=kernels, precision=precision, batch=2, seq=512,
                          recompute="full")
    for precision in ("fp32", "bf16"):
        yield plan_of("gpt2-355m", kernels=sdpa_, precision=precision, batch=2, seq=1024, reshard=False)
        yield plan_of("gpt2-355m", kernels=eager, precision=precision, batch=2, seq=1024, accumulation=2)
        yield plan_of("gpt2-124m-nodrop", world=16, kernels=eager, precision=precision, batch=2, seq=512)
        yield plan_of("llama-15m-gqa-tied", world=2, kernels=eager, precision=precision, batch=1, seq=256)
        yield plan_of("llama-15m-gqa-tied", world=8, kernels=eager, precision=precision, batch=4, seq=512,
                      accumulation=2)
    yield plan_of("gpt2-124m", world=8, group=4, batch=2, seq=1024)
    yield plan_of("gpt2-124m", world=16, group=8, kernels=eager, precision="fp32", batch=1, seq=512)
    yield plan_of("llama-1b", world=8, batch=2, seq=1024)
    yield plan_of("llama-1b", world=64, group=8, batch=1, seq=2048)
    yield plan_of("llama-1b", world=64, group=8, batch=4, seq=1024, recompute="full")
    yield plan_of("llama-1b", world=8, batch=1, seq=1024, reshard=False)
    yield plan_of("llama-1b", world=8, kernels=eager, batch=1, seq=1024)
    yield plan_of("llama-8b", world=8, batch=1, seq=2048)
    yield plan_of("llama-8b", world=64, batch=1, seq=4096)
    yield plan_of("llama-8b", world=16, batch=1, seq=4096, recompute="full")
    yield plan_of("llama-8b", world=64, group=8, batch=1, seq=2048, recompute="full")
    yield plan_of("llama-8b", world=64, batch=2, seq=2048, recompute="full", reshard=False)
    yield plan_of("llama-8b", world=16, kernels=eager, precision="fp32", batch=1, seq=1024)
    for precision in ("fp32", "bf16"):
        for kernels in (eager, sdpa_):
            yield plan_of("gpt2-10m", "ddp", world=4, kernels=kernels, precision=precision, batch=4, seq=256)
        yield plan_of("gpt2-124m", "ddp", world=8, kernels=sdpa_, precision=precision, batch=4, seq=512, view=True)
        yield plan_of("gpt2-124m", "ddp", world=2, kernels=eager, precision=precision, batch=2, seq=512,
                      recompute="full")
        yield plan_of("llama-10m", "ddp", world=2, kernels=sdpa_, precision=precision, batch=4, seq=512)
        yield plan_of("llama-10m", "ddp", world=8, kernels=eager, precision=precision, batch=2, seq=256,
                      accumulation=2)
    yield plan_of("llama-1b", "ddp", world=8, batch=1, seq=512)
    for model in ("gpt2-10m", "llama-10m"):
        for precision in ("fp32", "bf16"):
            small = {"precision": precision, "batch": 1, "seq": 64}     # gradients outweigh activations
            yield plan_of(model, "ddp", world=4, **small, accumulation=2, sync=False)
            yield plan_of(model, "ddp", world=4, **small, accumulation=3, sync=False, view=True)
            yield plan_of(model, "ddp", world=4, **small, clip=1.0)
            yield plan_of(model, world=4, **small, accumulation=2, sync=False)
            yield plan_of(model, world=4, **small, accumulation=3, sync=False, reshard=False)
            yield plan_of(model, world=4, **small, clip=1.0)
            yield plan_of(model, world=8, **small, reshard=2)
            yield plan_of(model, world=8, **small, reshard=4)
    for family in FAMILIES:
        kernels = eager if family in EAGER_ONLY else sdpa_
        yield plan_of(family, world=4, kernels=eager, precision="fp32", batch=2, seq=256)
        if family == "gptj":            # scores of fp32 factors
            yield from (plan_of(family, strategy, world=4, kernels=eager, precision="bf16", batch=n, seq=256, recompute=again)
                        for strategy, n, again in (("fsdp", 4, "none"), ("ddp", 2, "none"), ("fsdp", 1, "full")))
        if family == "qwen2":
            yield plan_of(family, world=4, kernels=sdpa_, precision="fp32", batch=2, seq=256)
        yield plan_of(family, world=4, kernels=kernels, precision="bf16", batch=4, seq=256)
        yield plan_of(family, "ddp", world=4, kernels=kernels, precision="bf16", batch=2, seq=256)
        if family != "falcon":      # its checkpoint asks a GPU for its random state
            yield plan_of(family, world=4, kernels=kernels, precision="bf16", batch=4, seq=256, recompute="full")
    for model in ("gpt2-10m", "llama-10m"):
        yield plan_of(model, batch=2, seq=256, accumulation=2, sync=False)
        yield plan_of(model, batch=2, seq=256, accumulation=3, sync=False, precision="fp32")


# ---- which kernel, for what sdpa is handed ----

# Compute capability.
CHOICE_GPUS = {"a100-80gb": (8, 0), "a10g": (8, 6), "l4": (8, 9), "h100": (9, 0), "b200": (10, 0)}


class Taken(TorchDispatchMode):
    """Which fused operator runs, if any."""

    kernel = "math"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for kernel in ("cudnn", "flash", "efficient"):
            if str(func).startswith("aten._scaled_dot_product_%s_attention." % kernel):
                self.kernel = kernel
        return func(*args, **(kwargs or {}))


def choices(gpu):
    """Of llama (grouped, no mask), mistral with a window (mask, k and v repeated) and falcon (mask, as they are)."""
    PLANNED["capability"], MINOR.value = CHOICE_GPUS[gpu]
    with FakeTensorMode(), torch.device("cuda"):
        for family in ("llama", "mistral", "falcon"):
            for dtype, precision in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
                for kv in ((1, 2, 8) if family != "falcon" else (1, 8)):
                    for dim in (20, 32, 64, 72, 80, 100, 128, 160, 192, 200, 256):
                        heads = kv if family != "mistral" else 8
                        q = torch.zeros(2, 8, 64, dim, dtype=dtype, requires_grad=True)
                        k = torch.zeros(2, heads, 64, dim, dtype=dtype, requires_grad=True)
                        mask = None if family == "llama" else torch.ones(2, 1, 64, 64, dtype=torch.bool)
                        with Taken() as taken:
                            sdpa(q, k, k, mask, 0.0, mask is None, enable_gqa=mask is None and heads != 8)
                        yield " ".join([gpu, family, precision, str(kv), str(dim), taken.kernel])
        for value, key in ((128, 192), (64, 96), (192, 192)) if gpu in ("h100", "a100-80gb", "b200") else ():     # latent attention's
            k = torch.zeros(2, 8, 64, key, dtype=torch.bfloat16, requires_grad=True)
            v = torch.zeros(2, 8, 64, value, dtype=torch.bfloat16, requires_grad=True)
            with Taken() as taken:
                sdpa(k, k, v, None, 0.0, True)
            yield " ".join([gpu, "latent", "bf16", str(value), str(key), taken.kernel])


CASES = {"steps": cases, "alone": lambda: alone_cases(plan_of), "attention": lambda: attention_cases(plan_of, FAMILIES), "options": lambda: option_cases(plan_of), "modules": lambda: module_cases(plan_of),
         "hooks": lambda: hook_cases(plan_of), "experts": lambda: expert_cases(plan_of), "operators": lambda: operator_cases(plan_of),
         "activations": lambda: activation_cases(plan_of), "liger": lambda: liger_cases(plan_of), "trl": lambda: trl_cases(plan_of),
         "units": lambda: unit_cases(plan_of), "ends": lambda: end_cases(plan_of), "numbers": lambda: number_cases(plan_of), "hybrid": lambda: hybrid_cases(plan_of)}


def record(plans, out):
    for plan in plans:
        name = name_of(plan)
        print(name, end=" ", flush=True, file=sys.stderr)
        first, steady = run(plan) or run(plan, rehearsed=True)
        print(steady["peak_total"], file=sys.stderr)
        line = {"name": name, "plan": plan} | ({"first": first} if first else {}) | {"steady": steady}
        print(json.dumps(line, separators=(",", ":")), file=out, flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--cases", choices=sorted(CASES) + ["choices"], default="steps")
    args.add_argument("--only", default="")
    args.add_argument("--family", nargs="+", help="steps of these models alone")
    args.add_argument("--raw", action="store_true", help="leave the engine's sums out of place")
    args.add_argument("--gpu", help="only plans for this GPU, appended to the file")
    args.add_argument("-o", default="torch_memory.jsonl")
    args = args.parse_args()
    global IN_PLACE
    IN_PLACE = not args.raw
    if args.cases == "choices":
        with open(args.o, "a" if args.gpu else "w") as out:
            print(*(choices(args.gpu) if args.gpu else ()), sep="\n", end="\n" if args.gpu else "", file=out)
        for gpu in () if args.gpu else CHOICE_GPUS:
            subprocess.run([sys.executable] + sys.argv + ["--gpu", gpu], check=True)
        return
    without_gpu()
    plans = [p for p in CASES[args.cases]()
             if args.only in name_of(p) and (not args.family or p["model"] in args.family)]
    if args.gpu:
        with open(args.o, "a") as out:
            record([p for p in plans if gpu_of(p) == args.gpu], out)
        return
    with open(args.o, "w") as out:
        meta = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                "transformers": transformers.__version__,
                "models": {name: MODELS[name] for name in dict.fromkeys(p["model"] for p in plans)},
                "optimizer": "AdamW(foreach=True), the default on CUDA"}
        print(json.dumps(meta, separators=(",", ":")), file=out)
    # PyTorch decides once per process in which order it tries kernels: a process for each GPU.
    for gpu in dict.fromkeys(gpu_of(p) for p in plans):
        subprocess.run([sys.executable] + sys.argv + ["--gpu", gpu], check=True)


if __name__ == "__main__":
    main()
