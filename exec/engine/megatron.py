"""The plan in megatron-core: its GPTModel, DistributedDataParallel, distributed optimizer and pipeline schedules under the options that
`dpxplan export --to megatron` writes.

dpxrun starts it on every rank and says what to do in job.json (common.py reads it).  pip's megatron-core has no pretrain_gpt.py: the
options become its configurations as training/arguments.py makes them, and a step is that of training/training.py.  dpxrun has refused
options that nothing here reads.  On the CPU whatever asks for a CUDA device gets the CPU, and the norms, which need Apex,
are PyTorch's."""
import contextlib

import dpx_common as common
from dpx_common import cuda, device, job, need, plan, start

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

# ---- the options ----

NUMBERS = {"num-layers": "num_layers", "hidden-size": "hidden_size", "ffn-hidden-size": "ffn_hidden_size", "num-attention-heads": "num_attention_heads",
           "num-query-groups": "num_query_groups", "kv-channels": "kv_channels", "tensor-model-parallel-size": "tensor_model_parallel_size",
           "pipeline-model-parallel-size": "pipeline_model_parallel_size", "recompute-num-layers": "recompute_num_layers",
           "microbatch-group-size-per-virtual-pipeline-stage": "microbatch_group_size_per_vp_stage",
           "num-virtual-stages-per-pipeline-rank": "virtual_pipeline_model_parallel_size"}
REALS = {"norm-epsilon": "layernorm_epsilon", "hidden-dropout": "hidden_dropout", "attention-dropout": "attention_dropout"}
WORDS = {"normalization": "normalization", "recompute-granularity": "recompute_granularity", "recompute-method": "recompute_method"}
FLAGS = {"sequence-parallel": ("sequence_parallel", True), "bf16": ("bf16", True), "swiglu": ("gated_linear_unit", True), "qk-layernorm": ("qk_layernorm", True),
         "add-qkv-bias": ("add_qkv_bias", True), "disable-bias-linear": ("add_bias_linear", False), "calculate-per-token-loss": ("calculate_per_token_loss", True),
         "account-for-embedding-in-pipeline-split": ("account_for_embedding_in_pipeline_split", True),
         "account-for-loss-in-pipeline-split": ("account_for_loss_in_pipeline_split", True)}

def options():
    """{"num-layers": "3", "swiglu": "", ...}"""
    return {name[2:]: value for name, _, value in (line.partition(" ") for line in job["config"])}


given = options()


def transformer_fields():
    out = {"add_bias_linear": True, "gradient_accumulation_fusion": "no-gradient-accumulation-fusion" not in given,
           "bias_activation_fusion": "swiglu" in given and "no-bias-swiglu-fusion" not in given, "masked_softmax_fusion": cuda, "persist_layer_norm": False,
           "apply_rope_fusion": False, "use_cpu_initialization": not cuda, "deallocate_pipeline_outputs": True,
           "activation_func": torch.nn.functional.silu if "swiglu" in given else torch.nn.functional.gelu}
    for name, value in given.items():
        if name in NUMBERS:
            out[NUMBERS[name]] = int(value)
        elif name in REALS:
            out[REALS[name]] = float(value)
        elif name in WORDS:
            out[WORDS[name]] = value
        elif name in FLAGS:
            out[FLAGS[name][0]] = FLAGS[name][1]
        elif name == "recompute-modules":
            out["recompute_modules"] = value.split()
        elif name == "pipeline-model-parallel-layout":
            out["pipeline_model_parallel_layout"] = value
    kind = torch.bfloat16 if "bf16" in given else torch.float32
    overlaps = out.get("virtual_pipeline_model_parallel_size", 1) > 1 and "no-overlap-p2p-communication" not in given
    return dict(out, params_dtype=kind, pipeline_dtype=kind, overlap_p2p_comm=overlaps, batch_p2p_comm=not overlaps)


# ---- no CUDA ----

class OnCPU(TorchFunctionMode):
    """What is to be made on a CUDA device is made on the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if isinstance(kwargs.get("device"), int) or str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


@contextlib.contextmanager
def fork(self, name=None):
    yield


class Norm(torch.nn.Module):
    """RMSNorm or LayerNorm whose parameters say that they saw a share of the positions."""

    def __init__(self, config, hidden_size, eps=1e-5, **more):
        super().__init__()
        self.rms, self.eps = config.normalization == "RMSNorm", eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.bias = None if self.rms else torch.nn.Parameter(torch.zeros(hidden_size, dtype=config.params_dtype))
        for p in self.parameters():
            p.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        of = torch.nn.functional
        if self.rms:
            return of.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        return of.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


def prepare_cpu():
    """Before megatron.core is imported, which asks for devices."""
    made, kind = dist.new_group, torch.Tensor.type
    dist.new_group = lambda *a, **k: made(*a, **dict(k, backend="noting", pg_options=None))       # some are asked for with gloo
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = torch.cuda.set_device = lambda *a, **k: None
    torch.cuda.get_rng_state = lambda *a, **k: torch.get_rng_state()
    torch.Tensor.cuda = lambda self, *a, **k: self
    # optimizers ask for the name
    torch.Tensor.type = lambda self, *a, **k: kind(self, *a, **k) if a or k else kind(self).replace("torch.cuda.", "torch.").replace("torch.", "torch.cuda.")


class FusedAdamW(torch.optim.AdamW):
    """Where neither Apex nor Transformer Engine is there, whose optimizer has no temporaries either."""

    def __init__(self, *args, **more):
        super().__init__(*args, **dict(more, fused=True))


def norms_of_pytorch():
    import megatron.core.models.backends as backends
    import megatron.core.transformer.transformer_block as block
    from megatron.core.tensor_parallel import random
    random.CudaRNGStatesTracker.fork = fork
    random._set_cuda_rng_state = lambda *a, **k: None
    random._get_cuda_rng_state = lambda *a, **k: torch.get_rng_state()
    backends.LocalSpecProvider.layer_norm = lambda self, rms_norm=False, for_qk=False, **more: Norm
    block.LayerNormImpl = Norm


tell_objects = dist.all_gather_object


def all_gather_object(*args, **more):
    """Which ranks have which groups of parameters."""
    with common.unsaid():
        tell_objects(*args, **more)


dist.all_gather_object = all_gather_object


# ---- weights ----

def of_queries(given, at, config):
    """Queries, keys and values of a group of heads lie together."""
    kinds = [given[at + ".self_attn.%s_proj." % k] for k in "qkv"]
    n = config.num_query_groups
    return torch.cat([t.view(n, t.shape[0] // n, *t.shape[1:]) for t in kinds], 1).flatten(0, 1)


def whole(name, given, config, first):
    """transformers' tensors as megatron-core has them, before they are cut."""
    ends = {"embedding.word_embeddings.weight": "model.embed_tokens.weight", "decoder.final_layernorm.weight": "model.norm.weight", "output_layer.weight": "lm_head.weight"}
    if name in ends:
        return given[ends[name]]
    _, _, index, part, *rest = name.split(".")
    at, kind = "model.layers.%d" % (int(index) + first), rest[-1]
    if rest[0] == "linear_qkv":
        return of_queries({k[:-len(kind)]: v for k, v in given.items() if k.endswith("." + kind)}, at, config)
    if rest[0] == "linear_fc1":
        return torch.stack([given[at + ".mlp.gate_proj." + kind], given[at + ".mlp.up_proj." + kind]])
    words = {"input_layernorm": "input_layernorm", "pre_mlp_layernorm": "post_attention_layernorm", "linear_proj": "self_attn.o_proj",
             "q_layernorm": "self_attn.q_norm", "k_layernorm": "self_attn.k_norm", "linear_fc2": "mlp.down_proj"}
    return given[at + ".%s.%s" % (words[part if part in words else rest[0]], kind)]


def load(model, config, rank, ranks):
    """dpxrun's weights: each tensor-parallel rank its rows or columns; rows of the vocabulary that are filled up are 0."""
    if not job["init"]:
        return
    from safetensors.torch import load_file
    given = load_file(job["init"])
    first = model.decoder.layers[0].layer_number - 1 if len(model.decoder.layers) else 0
    with torch.no_grad():
        for name, p in model.named_parameters():
            t = whole(name, given, config, first)
            if "linear_fc1" in name:
                t = t.chunk(ranks, 1)[rank].flatten(0, 1)
            elif t.shape[0] != p.shape[0] and p.dim() == t.dim():
                t = torch.nn.functional.pad(t, [0, 0] * (t.dim() - 1) + [0, p.shape[0] * ranks - t.shape[0]]).chunk(ranks)[rank]
            elif t.shape != p.shape:
                t = t.chunk(ranks, 1)[rank]
            p.copy_(t)


# ---- steps ----

class Trainer:
    def __init__(self, model):
        if not cuda:
            prepare_cpu()
        from megatron.core import parallel_state as mpu
        from megatron.core import tensor_parallel
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
        from megatron.core.models.gpt import GPTModel
        from megatron.core.models.gpt import gpt_layer_specs as specs
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.pipeline_parallel import get_forward_backward_func
        from megatron.core.transformer.module import Float16Module
        from megatron.core.transformer.transformer_config import TransformerConfig
        torch.optim.AdamW = FusedAdamW
        if not cuda:
            norms_of_pytorch()
        self.fields = transformer_fields()
        self.virtual = self.fields.get("virtual_pipeline_model_parallel_size", 1)
        mpu.initialize_model_parallel(self.fields["tensor_model_parallel_size"], self.fields["pipeline_model_parallel_size"], self.virtual if self.virtual > 1 else None)
        self.config = config = TransformerConfig(**self.fields)
        tensor_parallel.model_parallel_cuda_manual_seed(job["seed"], force_reset_rng=True)
        if given["transformer-impl"] == "local":
            spec = specs.get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)
        else:
            spec = need(specs, "get_gpt_layer_with_transformer_engine_spec")(qk_layernorm=config.qk_layernorm)
        every = int(given["make-vocab-size-divisible-by"]) * config.tensor_model_parallel_size
        chunks = []
        for i in range(self.virtual):
            vp = i if self.virtual > 1 else None
            if self.virtual > 1:
                mpu.set_virtual_pipeline_model_parallel_rank(i)
            ends = {"pre_process": mpu.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp), "post_process": mpu.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp)}
            chunk = GPTModel(config, spec, -(-int(given["vocab-size"]) // every) * every, int(given["max-position-embeddings"]), parallel_output=True, vp_stage=vp,
                             share_embeddings_and_output_weights="untie-embeddings-and-output-weights" not in given,
                             position_embedding_type=given["position-embedding-type"], rotary_base=float(given.get("rotary-base", 10000)),
                             rope_scaling="use-rope-scaling" in given, **ends)
            load(chunk, config, mpu.get_tensor_model_parallel_rank(), config.tensor_model_parallel_size)
            chunks.append(Float16Module(config, chunk.to(device)) if config.bf16 else chunk.to(device))
        sharded, gathers, reduces = ("use-distributed-optimizer" in given, "overlap-param-gather" in given, "overlap-grad-reduce" in given)
        ddp = DistributedDataParallelConfig(
            grad_reduce_in_fp32=plan["reduce_dtype"] == "fp32", overlap_grad_reduce=reduces, overlap_param_gather=gathers, use_distributed_optimizer=sharded,
            bucket_size=int(given["ddp-bucket-size"]) if "ddp-bucket-size" in given else None, average_in_collective="ddp-average-in-collective" in given,
            pad_buckets_for_high_nccl_busbw="ddp-pad-buckets-for-high-nccl-busbw" in given, check_for_nan_in_grad="no-check-for-nan-in-loss-and-grad" not in given)
        self.model = [DistributedDataParallel(config, ddp, chunk, disable_bucketing=i > 0) for i, chunk in enumerate(chunks)]
        self.optimizer = get_megatron_optimizer(OptimizerConfig(
            optimizer="adam", lr=job["lr"][0], weight_decay=job["weight_decay"], adam_beta1=job["beta1"], adam_beta2=job["beta2"], adam_eps=job["eps"], bf16=config.bf16,
            params_dtype=config.params_dtype, use_distributed_optimizer=sharded, overlap_param_gather=gathers, clip_grad=float(given["clip-grad"])), self.model)
        self.schedule, self.late = get_forward_backward_func(), gathers
        self.set_functions(reduces, gathers, finalize_model_grads)

    def set_functions(self, reduces, gathers, finalize):
        """As train() does; gathers beside forward begin with the second step."""
        config, one = self.config, len(self.model) == 1
        if reduces:
            config.no_sync_func = self.model[0].no_sync if one else [m.no_sync for m in self.model]
            config.grad_sync_func = self.model[0].start_grad_sync if one else [m.start_grad_sync for m in self.model]
        self.param_sync = [m.start_param_sync for m in self.model] if gathers and not one else None
        config.finalize_model_grads_func, config.param_sync_func = finalize, None
        for m in self.model if gathers else []:
            m.disable_forward_pre_hook(param_sync=False)

    def counters(self):
        """Of AdamW's steps: on the host."""
        found = [o.optimizer for o in getattr(self.optimizer, "chained_optimizers", [self.optimizer])]
        return [s["step"] for o in found for s in o.state.values() if torch.is_tensor(s.get("step"))]

    def forward_step(self, batches, model):
        ids, labels = next(batches)
        seq = ids.shape[1]
        mask = torch.triu(torch.ones(1, 1, seq, seq, dtype=torch.bool, device=device), 1) if given["transformer-impl"] == "local" else None
        out = model(ids, torch.arange(seq, device=device).unsqueeze(0).expand_as(ids), mask, labels=labels)

        def loss_of(loss):
            self.losses.append(float(loss.detach().float().mean()))
            if self.config.calculate_per_token_loss:
                return loss.float().sum(), torch.tensor(loss.numel(), dtype=torch.int, device=device), {}
            return loss.float().mean(), {}
        return out, loss_of

    def step(self, batches, lr):
        self.losses = []
        for group in self.optimizer.param_groups:
            group["lr"], group["weight_decay"] = lr, job["weight_decay"] * group.get("wd_mult", 1)
        with contextlib.nullcontext() if cuda else OnCPU():
            for m in self.model:
                m.zero_grad_buffer()
            self.optimizer.zero_grad()
            self.schedule(forward_step_func=self.forward_step, data_iterator=[iter(batches) for _ in self.model], model=self.model, num_microbatches=plan["accumulation"],
                          seq_length=plan["seq"], micro_batch_size=plan["micro_batch"], forward_only=False)
            norm = self.optimizer.step()[1]
        if self.late:
            for m in self.model:
                m.enable_forward_pre_hook()
            self.config.param_sync_func, self.late = self.param_sync, False
        return sum(self.losses) / len(self.losses) if self.losses else None, norm


if __name__ == "__main__":
    import importlib.metadata
    common.build = lambda: None         # its model is not transformers'
    with contextlib.nullcontext() if cuda else OnCPU():
        start(Trainer, {"megatron-core": importlib.metadata.version("megatron-core")})
