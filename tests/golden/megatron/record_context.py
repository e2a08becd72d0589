"""Transformer Engine's own context parallelism on a CPU, for record_megatron.py: context_parallel.py of its sources is loaded as it is
(TE_SOURCE names a checkout), with what it imports stood in for: attention itself, by functions that return tensors of the right shapes;
its two collectives, by torch.distributed's; streams and events, by nothing.  What it sends depends on shapes and options alone."""
import contextlib
import importlib.util
import os
import sys
import types

import torch
import torch.distributed as dist

FILE = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"


class Nothing:
    """A CUDA stream or event."""

    def __init__(self, *a, **k):
        pass

    def __getattr__(self, name):
        return lambda *a, **k: None

    def record_event(self, event=None):
        return self


def fused_attn_fwd(is_training, max_q, max_kv, cu_q, cu_kv, q, k, v, *a, **more):
    """[s, b, h, d] each, the output as wide as values; log-sum-exp [b, h, s, 1], a random generator's state."""
    s, b, h, _ = q.shape
    return torch.zeros((s, b, h, v.shape[-1]), dtype=q.dtype), [torch.zeros(b, h, s, 1), torch.zeros(2, dtype=torch.int64)]


def fused_attn_bwd(max_q, max_kv, cu_q, cu_kv, q, k, v, *a, **more):
    made = (*(torch.zeros(x.shape, dtype=x.dtype) for x in (q, k, v)), None)    # no bias has a gradient
    return made if more.get("softmax_type", "vanilla") == "vanilla" else (*made, torch.zeros(1, q.shape[2], 1, 1))


def gather_along_first_dim(x, group, **more):
    out = torch.empty((x.shape[0] * group.size(), *x.shape[1:]), dtype=x.dtype)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out, None


def reduce_scatter_along_first_dim(x, group, **more):
    out = torch.empty((x.shape[0] // group.size(), *x.shape[1:]), dtype=x.dtype)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out, None


def prepare_for_saving(*tensors):
    return list(tensors), [None] * len(tensors)


def stand_ins():
    class Quantized:
        pass

    fa = types.SimpleNamespace(v2_3_plus=True, v2_4_plus=True, v2_4_1_plus=True, v2_5_7_plus=True, v2_6_0_plus=True, v2_7_0_plus=True)
    recipe = types.SimpleNamespace(**{name: lambda: False for name in ("delayed", "mxfp8", "float8_current_scaling", "custom")})
    state = types.SimpleNamespace(get_fp8_recipe=lambda: recipe, is_fp8_enabled=lambda: False)
    utils = dict(FlashAttentionUtils=fa, combine_and_quantize=None, combine_and_dequantize=None, print_quantizers=lambda *a, **k: None,
                 mxfp8_quantize_fast_path=None, get_attention_quantizers=lambda *a, **k: (None,) * 6,
                 get_full_cu_seqlens=lambda n, s, device: torch.arange(n + 1, dtype=torch.int32) * s)
    top, attention = "transformer_engine.pytorch", "transformer_engine.pytorch.attention.dot_product_attention"
    modules = {
        "transformer_engine_torch": {}, "transformer_engine": {}, top: {}, top + ".cpp_extensions": {}, top + ".tensor": {}, top + ".tensor.storage": {},
        top + ".attention": {}, attention: {}, attention + ".utils": utils,
        top + ".utils": dict(get_cudnn_version=lambda: (9, 18, 0), nvtx_range_pop=lambda *a: None, nvtx_range_push=lambda *a: None,
                             get_device_compute_capability=lambda: (9, 0)),
        top + ".cpp_extensions.fused_attn": dict(fused_attn_fwd=fused_attn_fwd, fused_attn_bwd=fused_attn_bwd, FusedAttnBackend={"F16_arbitrary_seqlen": 1, "FP8": 2}),
        top + ".quantization": dict(FP8GlobalStateManager=state), top + ".tensor.float8_tensor": dict(Float8Tensor=Quantized),
        top + ".tensor.storage.float8_tensor_storage": dict(Float8TensorStorage=Quantized),
        top + ".quantized_tensor": dict(QuantizedTensorStorage=Quantized, prepare_for_saving=prepare_for_saving,
                                        restore_from_func_ctx=lambda ctx: ctx.saved_tensors),
        top + ".jit": dict(jit_fuser=lambda f: f), top + ".graph": dict(is_graph_capturing=lambda: False),
        top + ".constants": dict(dist_group_type=dist.ProcessGroup),
        top + ".distributed": dict(get_distributed_world_size=lambda g: g.size(), get_distributed_rank=lambda g: g.rank(),
                                   gather_along_first_dim=gather_along_first_dim, reduce_scatter_along_first_dim=reduce_scatter_along_first_dim),
    }
    for name, has in modules.items():
        module = types.ModuleType(name)
        module.__path__ = []
        module.__dict__.update(has)
        sys.modules[name] = module
    sys.modules[attention].utils = sys.modules[attention + ".utils"]
    for what in ("Stream", "Event"):
        setattr(torch.cuda, what, Nothing)
    torch.cuda.current_stream = lambda *a, **k: Nothing()
    torch.cuda.stream = lambda *a, **k: contextlib.nullcontext()


def load():
    """The module context_parallel.py."""
    stand_ins()
    spec = importlib.util.spec_from_file_location("context_parallel", os.path.join(os.environ["TE_SOURCE"], FILE))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in [n for n in sys.modules if n.startswith("transformer_engine")]:
        del sys.modules[name]               # megatron-core looks whether it is there
    return module


def attention():
    """What a layer's core_attention is: megatron-core's TEDotProductAttention around that file."""
    from megatron.core import parallel_state as mpu
    te = load()

    class ContextAttention(torch.nn.Module):
        def __init__(self, config, *a, **more):
            super().__init__()
            self.config, self.stream = config, Nothing()
            layer = more.get("layer_number", a[0] if a else 1)
            self.sinks = config.softmax_type == "learnable"
            self.window = (-1, 0)
            if config.window_size and layer % (config.window_attn_skip_freq or layer + 1) != 0:     # is_layer_window_attention()
                self.window = config.window_size
            if self.sinks:                                              # DotProductAttention's
                heads = config.num_attention_heads // config.tensor_model_parallel_size
                self.softmax_offset = torch.nn.Parameter(torch.zeros(heads, dtype=config.params_dtype))

        def forward(self, q, k, v, *a, **more):
            c, kind = self.config.context_parallel_size, self.config.cp_comm_type
            q, k, v = (x.contiguous() for x in (q, k, v))       # as DotProductAttention.forward() hands them on
            group = mpu.get_hierarchical_context_parallel_groups() if kind == "a2a+p2p" else mpu.get_context_parallel_group()
            ranks = mpu.get_context_parallel_global_ranks()
            full = q.shape[0] * c
            lengths = torch.arange(q.shape[1] + 1, dtype=torch.int32) * full
            sinks = dict(softmax_type="learnable", softmax_offset=self.softmax_offset.reshape(1, -1, 1, 1).to(torch.float32)) if self.sinks else {}
            out = te.attn_forward_func_with_cp(True, q, k, v, lengths, lengths, full, full, None, None, 0.0, group, ranks, self.stream, kind,
                                               qkv_format="sbhd", attn_mask_type="causal", use_fused_attention=True, window_size=self.window,
                                               **sinks)
            return out.reshape(q.shape[0], q.shape[1], -1)

    return ContextAttention
