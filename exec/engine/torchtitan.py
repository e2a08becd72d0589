"""The plan in torchtitan: its Trainer, of the options that `dpxplan export --to torchtitan` writes, read by its own ConfigManager.

dpxrun starts it on every rank and says what to do in job.json (common.py reads it).  The model is torchtitan's Llama of the plan's
sizes, with q, k and v apart and PyTorch's fused attention; its loss is of whole logits.  Tokens come from dpxrun, so the Trainer gets no
tokenizer and no data set.  On the CPU its device is the CPU, which counts no memory."""
import sys
import types

import dpx_common as common
from dpx_common import cuda, job, plan, start, unsaid

import torch

if not cuda:
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.get_device_name = lambda *a: "cpu"
    torch.cpu.get_device_properties = lambda *a: types.SimpleNamespace(total_memory=1)
    torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda *a: None
    torch.cpu.memory_stats = lambda *a: {}

import torchtitan
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import ConfigManager
from torch.distributed.tensor import DTensor, distribute_tensor
from torchtitan.distributed import utils as dist_utils
from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer as TitanTrainer

fields = plan["model"]


def model_config():
    width, heads = fields["hidden_size"], fields["num_attention_heads"]
    as_is = {"weight": lambda t: None, "bias": lambda t: None}
    norm = lambda: RMSNorm.Config(normalized_shape=width, eps=fields["rms_norm_eps"], param_init=as_is)
    rope = ComplexRoPE.Config(dim=fields["head_dim"], max_seq_len=plan["seq"], theta=fields["rope_theta"])
    layers = [llama3.Llama3TransformerBlock.Config(
        attention_norm=norm(), ffn_norm=norm(),
        attention=llama3.make_gqa_config(dim=width, n_heads=heads, n_kv_heads=fields["num_key_value_heads"], head_dim=fields["head_dim"], wqkv_param_init=as_is,
                                         wo_param_init=as_is, inner_attention=ScaledDotProductAttention.Config(), fuse_qkv=False, rope=rope),
        feed_forward=llama3.make_ffn_config(dim=width, hidden_dim=fields["intermediate_size"], w1_param_init=as_is, w2w3_param_init=as_is))
        for _ in range(fields["num_hidden_layers"])]
    return llama3.Llama3Model.Config(
        dim=width, vocab_size=fields["vocab_size"], norm=norm(), layers=layers, enable_weight_tying=fields["tie_word_embeddings"],
        tok_embeddings=Embedding.Config(num_embeddings=fields["vocab_size"], embedding_dim=width, param_init=as_is),
        lm_head=Linear.Config(in_features=width, out_features=fields["vocab_size"], param_init=as_is))


def registered():
    """What --config names: a function of a registry."""
    spec = ModelSpec(name="llama3", flavor="plan", model=model_config(), parallelize_fn=llama3.parallelize_llama, pipelining_fn=llama3.pipeline_llm,
                     post_optimizer_build_fn=None, state_dict_adapter=llama3.Llama3StateDictAdapter)
    return TitanTrainer.Config(model_spec=spec, loss=CrossEntropyLoss.Config(global_vocab_size=fields["vocab_size"]), metrics=MetricsProcessor.Config(log_freq=1 << 30),
                               optimizer=default_adamw(lr=job["lr"][0], betas=(job["beta1"], job["beta2"]), eps=job["eps"], weight_decay=job["weight_decay"]),
                               tokenizer=Nothing(), dataloader=Nothing(), dump_folder=job["folder"])


class Nothing:
    """In the place of a tokenizer's and a data set's configuration."""

    def build(self, **more):
        return self


class Recorded(TitanTrainer):
    """Keeps each micro-step's loss, which is a part of the sum over all ranks."""

    def _forward_backward_body(self, *args):
        loss = super()._forward_backward_body(*args)
        self.losses.append(float(loss.detach()))
        return loss


def load(model, adapter):
    if not job["init"]:
        return
    from safetensors.torch import load_file
    given = adapter.from_hf(load_file(job["init"]))
    with torch.no_grad():
        for name, p in model.named_parameters():
            full = given.pop(name.replace("_checkpoint_wrapped_module.", ""))
            p.copy_(distribute_tensor(full, p.device_mesh, p.placements, src_data_rank=None) if isinstance(p, DTensor) else full)


clip = dist_utils.clip_grad_norm_


def in_no_plan(function):
    """Ranks agree on a seed, 8 bytes once, and add up how many tokens have labels, 8 bytes a step."""
    def call(*args, **more):
        with unsaid():
            return function(*args, **more)
    return call


def clip_and_keep(*args, **more):
    Recorded.norm = clip(*args, **more)
    return Recorded.norm


class Trainer:
    def __init__(self, model):
        sys.modules["dpx_registry"] = types.SimpleNamespace(registered=registered)
        words = [word for line in job["config"] for word in line.split(" ")]
        dist_utils.dist_sum_tensor, dist_utils.set_determinism = in_no_plan(dist_utils.dist_sum_tensor), in_no_plan(dist_utils.set_determinism)
        dist_utils.clip_grad_norm_ = clip_and_keep
        self.titan = Recorded(ConfigManager().parse_args(["--module", "dpx_registry", "--config", "registered", *words]))
        load(self.titan.model_parts[0], llama3.Llama3StateDictAdapter(self.titan.model_config, None))
        for m in self.titan.model_parts[0].modules() if not cuda else []:      # gloo has no sum times a factor, which is 1 here
            if hasattr(m, "set_force_sum_reduction_for_comms"):
                m.set_force_sum_reduction_for_comms(True)
        self.titan.step = 2         # it logs the first one, with sums over ranks

    def groups(self):
        return [g for optimizer in self.titan.optimizers for g in optimizer.param_groups]

    def counters(self):
        """Of AdamW's steps: on the host, but for the fused form."""
        return [s["step"] for o in self.titan.optimizers for s in o.state.values() if "step" in s and plan["optimizer_form"] != "fused"]

    def step(self, given, lr):
        for group in self.groups():
            group["lr"] = lr
        self.titan.losses = []
        self.titan.train_step(iter([({"input": ids}, labels) for ids, labels in given]))
        return sum(self.titan.losses) * job["batch_ranks"], Recorded.norm


if __name__ == "__main__":
    common.build = lambda: None         # its model is not transformers'
    start(Trainer, {"torchtitan": torchtitan.__version__})
