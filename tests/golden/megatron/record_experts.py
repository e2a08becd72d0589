#!/usr/bin/env python3
"""Records the collectives of megatron-core's mixtures of experts: MoELayer with the all-to-all dispatcher, expert parallelism, experts that
tensor-parallel ranks cut or have whole; DeepSeek-V3's latent attention, shared experts and first layers without experts.

    PYTHONPATH=WHERE_MEGATRON_IS python record_experts.py OUTDIR             experts.txt, latent.txt, modules.txt ...; with TE_SOURCE latent_context.txt
    PYTHONPATH=WHERE_MEGATRON_IS python record_experts.py OUTDIR NAME ...    these lists, printed

With record_megatron.py beside it.  The CPU has no grouped products: experts are SequentialMLP, whose collectives are TEGroupedMLP's, and the
plans have kernels te.  Tokens go to experts in turn, so that every rank gets as many rows.  CUDA's streams are stood in by objects that
do nothing.

Latent attention's down-projections are Transformer Engine's TELinear with parallel_mode "duplicated", whole on every tensor-parallel rank
(extensions/transformer_engine.py); local layers would cut them.  `Duplicated` stands in, with TELinear's attributes.  Local attention has
one width for keys and values: `Attention` stands in, which has no collectives; over a context's ranks record_context.py's.

Recompute of modules (modules.txt) is megatron-core's own: CheckpointFunction, and CheckpointWithoutOutput, whose hooks are counted."""
import contextlib
import os
import sys
import types

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

import torch

import record_megatron as rm
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import layers
from megatron.core.tensor_parallel import random as mrandom
from megatron.core.transformer import multi_latent_attention as latent
from megatron.core.fusions.fused_bias_geglu import quick_gelu
from megatron.core.transformer.moe import moe_utils, router
from megatron.core.transformer.transformer_config import MLATransformerConfig
from megatron.core.utils import unwrap_model

case_now = {}


class Stream:
    def wait_stream(self, other):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        return self

    def synchronize(self):
        pass


torch.cuda.Stream = Stream
torch.cuda.Event = Stream
torch.cuda.current_stream = lambda *a: Stream()
torch.cuda.stream = lambda s: contextlib.nullcontext()


def in_turn(logits, topk, *args, **more):
    tokens, experts = logits.shape
    index = torch.arange(tokens * topk).view(tokens, topk) % experts
    probs = torch.softmax(logits.gather(1, index), dim=-1, dtype=torch.float32).type_as(logits)
    return torch.zeros_like(logits).scatter(1, index, probs), torch.zeros_like(logits).int().scatter(1, index, 1).bool()


router.topk_routing_with_score_function = in_turn
moe_utils.te_general_gemm = None            # the name is not made where Transformer Engine is not found


class Recorder(rm.Recorder):
    def all_to_all_single(self, output, inp, out_splits, in_splits, opts=None):
        self.note("all_to_all", [inp])
        output.zero_()
        return rm.base.done(output)

    alltoall_base = all_to_all_single


rm.dist.Backend.register_backend("experts", lambda store, rank, size, timeout: Recorder(rank, size), devices=["cpu"])
rm.Recorder = Recorder                                   # what "megatron" makes
initialize, spec, config_of = mpu.initialize_model_parallel, rm.specs.get_gpt_layer_local_spec, rm.config_of


def with_experts(tensor, pipe, virtual, **more):
    grid = case_now["plan"]["parallel"]
    initialize(tensor, pipe, virtual, **more, expert_model_parallel_size=grid.get("expert", 1), expert_tensor_parallel_size=grid.get("expert_tensor", 1))
    for name, group in (("expert_data", mpu.get_expert_data_parallel_group()), ("tensor", mpu.get_expert_tensor_parallel_group()),
                        ("tensor" if mpu.get_context_parallel_world_size() == 1 else "context", mpu.get_tensor_and_context_parallel_group()),
                        ("expert", mpu.get_expert_model_parallel_group()), ("stage", mpu.get_tensor_and_data_parallel_group(with_context_parallel=True)),
                        ("expert_tensor", mpu.get_expert_tensor_and_model_parallel_group())):
        if name == "stage" and tensor == 1:
            name = "world" if group.size() == case_now["world"] else "data"
        rm.names[group] = "expert" if name == "expert_tensor" and grid.get("expert_tensor", 1) == 1 else name


def config(case):
    model, grid, options = case["plan"]["model"], case["plan"]["parallel"], dict(case["plan"]["megatron"])
    modules = options.pop("recompute_modules", None)    # config_of() makes no latent attention, without which mla_up_proj is refused
    made = config_of(dict(case, plan=dict(case["plan"], megatron=options)))
    fields = {f: getattr(made, f) for f in made.__dataclass_fields__}
    fields.update(recompute_modules=modules, num_moe_experts=experts_of(model), moe_router_topk=model["num_experts_per_tok"],
                  moe_ffn_hidden_size=model.get("moe_intermediate_size", model["intermediate_size"]), moe_token_dispatcher_type="alltoall",
                  expert_model_parallel_size=grid.get("expert", 1), expert_tensor_parallel_size=grid.get("expert_tensor", 1),
                  moe_router_load_balancing_type=case["plan"]["megatron"].get("moe_router_load_balancing_type", "aux_loss"),
                  moe_aux_loss_coeff=case["plan"]["megatron"].get("moe_aux_loss_coeff", 0.0), qk_layernorm=model["model_type"] == "qwen3_moe",
                  **{key: options.get(key, usual)
                     for key, usual in (("moe_expert_capacity_factor", None), ("moe_pad_expert_input_to_capacity", False))})
    if model["model_type"] == "gpt_oss":
        fields.update(add_bias_linear=True, gated_linear_unit=True, activation_func=quick_gelu, bias_activation_fusion=False, glu_linear_offset=1.0,
                      activation_func_clamp_value=7.0, softmax_type="learnable", window_size=(model["sliding_window"], 0), window_attn_skip_freq=2)
    if model["model_type"] != "deepseek_v3":
        return type(made)(**fields)
    dense = model["first_k_dense_replace"]
    fields.update(multi_latent_attention=True, q_lora_rank=model["q_lora_rank"], kv_lora_rank=model["kv_lora_rank"], qk_head_dim=model["qk_nope_head_dim"],
                  qk_pos_emb_head_dim=model["qk_rope_head_dim"], v_head_dim=model["v_head_dim"], qk_layernorm=True,
                  moe_layer_freq=[0] * dense + [1] * (made.num_layers - dense), moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True,
                  moe_router_num_groups=model["n_group"], moe_router_group_topk=model["topk_group"],
                  moe_shared_expert_intermediate_size=model["n_shared_experts"] * model["moe_intermediate_size"])
    return MLATransformerConfig(**fields)


def experts_of(model):
    return model.get("num_local_experts", model.get("num_experts", model.get("n_routed_experts")))


def moe_spec(**more):
    return spec(num_experts=experts_of(case_now["plan"]["model"]), moe_grouped_gemm=False, **more)


class Duplicated(torch.nn.Module):
    """TELinear, parallel_mode "duplicated": the gradient of a share of the positions is summed over the tensor-parallel ranks."""

    def __init__(self, input_size, output_size, config, parallel_mode=None, **more):
        super().__init__()
        assert parallel_mode == "duplicated"
        self.weight = torch.nn.Parameter(torch.zeros(output_size, input_size, dtype=config.params_dtype))
        self.weight.allreduce, self.weight.sequence_parallel = True, config.sequence_parallel

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight), None


class Attention(torch.nn.Module):
    def __init__(self, **more):
        super().__init__()

    def forward(self, q, k, v, mask, **more):
        scores = torch.einsum("sbhd,tbhd->bhst", q, k).masked_fill(mask, float("-inf"))
        return torch.einsum("bhst,tbhd->sbhd", scores.softmax(-1), v).flatten(2)


row_parallel = layers.RowParallelLinear.forward


def apart(self, x):
    """An expert adds its bias in place, which autograd refuses of what one rank's _ReduceFromModelParallelRegion hands on."""
    y, bias = row_parallel(self, x)
    return y.clone(), bias


layers.RowParallelLinear.forward = apart
latent.TELinear = Duplicated
GPTModel = rm.GPTModel


def model_of(config, layer, *args, vp_stage=None, **more):
    if isinstance(config, MLATransformerConfig):
        layer = rm.specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm", vp_stage=vp_stage)
        for one in layer.layer_specs:
            parts = one.submodules.self_attention.submodules
            parts.linear_q_down_proj = parts.linear_kv_down_proj = Duplicated
            parts.core_attention = rm.record_context.attention() if config.context_parallel_size > 1 else Attention
    return GPTModel(config, layer, *args, vp_stage=vp_stage, **more)


rm.GPTModel = model_of

# names that are not made where Transformer Engine is not found: CheckpointWithoutOutput of a norm asks for them without fp8, too
mrandom.FP8GlobalStateManager = types.SimpleNamespace(is_fp8_enabled=lambda: False)
mrandom.activation_recompute_forward = mrandom.fp8_autocast = lambda **more: contextlib.nullcontext()
without_output = mrandom.CheckpointWithoutOutput
discard, recompute = without_output.discard_output_and_register_recompute, without_output._recompute
hooks = {"registered": 0, "ran": 0}


def count_registered(self, hook_tensor):
    hooks["registered"] += 1
    return discard(self, hook_tensor)


def count_ran(self, grad):
    hooks["ran"] += self.ctx is not None            # None: it ran already
    return recompute(self, grad)


without_output.discard_output_and_register_recompute, without_output._recompute = count_registered, count_ran


class Run(rm.Run):
    """Its list says how many parameters the rank has.  Biases of TEGroupedLinear's second layer are not summed over tensor-parallel ranks, as
    SequentialMLP's are: it is made with parallel_mode None (extensions/transformer_engine.py, explicit_expert_comm)."""

    def __init__(self, case, rank):
        super().__init__(case, rank)
        for name, p in (of for m in self.model for of in m.named_parameters()):
            if ".experts." in name and name.endswith("linear_fc2.bias"):
                p.sequence_parallel = False
        if case["plan"]["model"]["model_type"] in ("deepseek_v3", "gpt_oss"):
            rm.base.log.append(f"# {sum(p.numel() for m in self.model for p in m.parameters())} parameters")

    def hooks_of_step(self):
        """Outputs that a step's forward passes discard and hooks compute again: each layer has two norms that are modules."""
        names, latent = self.options.get("recompute_modules", []), isinstance(self.config, MLATransformerConfig)
        layers = sum(len(unwrap_model(m).decoder.layers) for m in self.model)
        return self.plan["accumulation"] * layers * (2 * ("layernorm" in names) + (latent and "mla_up_proj" in names))

    def step(self):
        hooks.update(registered=0, ran=0)
        super().step()
        assert hooks["registered"] == hooks["ran"] == self.hooks_of_step(), hooks


rm.Run = Run


mpu.initialize_model_parallel = with_experts
rm.config_of = config
rm.specs.get_gpt_layer_local_spec = lambda **more: spec(**more) if "num_experts" in more else moe_spec(**more)

MIXTRAL = dict(rm.LLAMA, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2)
QWEN3 = dict(rm.LLAMA, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], head_dim=16, num_experts=8, num_experts_per_tok=4,
             moe_intermediate_size=96, norm_topk_prob=True)
DEEPSEEK = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 4, "intermediate_size": 160, "max_position_embeddings": 64, "vocab_size": 250, "tie_word_embeddings": False,
            "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 1,
            "n_routed_experts": 8, "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_intermediate_size": 96, "n_group": 4, "topk_group": 2}


GPT_OSS = {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4,
           "head_dim": 16, "intermediate_size": 96, "max_position_embeddings": 64, "vocab_size": 250, "tie_word_embeddings": False, "num_local_experts": 8,
           "num_experts_per_tok": 4, "sliding_window": 8}


def make(name, what, world, grid, model=MIXTRAL, **more):
    case = rm.make(name, what, world, model=model, grid=grid, **dict(rm.REDUCED, **more))
    case["plan"]["kernels"] = "te"
    return case


def cases():
    yield make("d4", "no expert parallelism: experts are reduced with the rest", 4, {})
    yield make("e2-d4", "experts over 2 of 4 ranks", 4, {"expert": 2})
    yield make("e4-d4", "experts over all ranks: theirs are not reduced", 4, {"expert": 4})
    yield make("e8-d8", "one expert a rank", 8, {"expert": 8})
    yield make("e2-d4-acc2", "2 micro-steps", 4, {"expert": 2}, accumulation=2)
    yield make("e2-d4-noclip", "no clipping: the norm is taken all the same", 4, {"expert": 2}, clip=None)
    yield make("e2-d4-avg", "the collective averages", 4, {"expert": 2}, ddp_average_in_collective=True)
    yield make("e2-d4-full", "every layer recomputed", 4, {"expert": 2}, recompute="full")
    yield make("e4-t2-sp-whole", "experts over data- and tensor-parallel ranks, whole", 8, {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 1})
    yield make("e2-t2-sp-whole-d4", "the same, over tensor-parallel ranks alone", 8, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 1})
    yield make("e2-t2-sp-cut-d4", "experts that tensor-parallel ranks cut", 8, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 2})
    yield make("e4-t2-sp-cut-d4", "the same, over all data-parallel ranks", 8, {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 2})
    yield make("t2-sp-cut-d2", "cut, not shared out", 4, {"tensor": 2, "sequence": True, "expert_tensor": 2})
    yield make("qwen3-e4-d4", "norms of q and k, 4 experts a token", 4, {"expert": 4}, model=QWEN3)
    yield make("e2-1f1b-p2-m4-d2", "1F1B", 4, dict(rm.pp(2), expert=2), layers=4, accumulation=4)
    yield make("e2-interleaved-p2-v2-m4-d2", "interleaved", 4, dict(rm.pp(2, 2), expert=2), layers=8, accumulation=4)


    padded = dict(moe_expert_capacity_factor=1.25, moe_pad_expert_input_to_capacity=True)
    yield make("d4-padded", "every expert gets its capacity of every rank", 4, {}, **padded)
    yield make("e2-d4-padded", "the same, experts over 2 of 4 ranks", 4, {"expert": 2}, **padded)
    yield make("e2-d4-padded-full", "the same, every layer recomputed", 4, {"expert": 2}, recompute="full", **padded)
    yield make("e4-t2-sp-whole-padded", "the same, whole experts over tensor-parallel ranks too", 8,
               {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 1}, **padded)
    yield make("e2-t2-sp-cut-d4-padded", "the same, experts that tensor-parallel ranks cut", 8,
               {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 2}, **padded)
    yield make("e2-d4-capacity", "rows beyond the capacity are dropped: none is", 4, {"expert": 2}, moe_expert_capacity_factor=1.25)
    yield make("e2-d4-half", "half of the rows are dropped", 4, {"expert": 2}, moe_expert_capacity_factor=0.5)


def latent_cases():
    def deepseek(name, what, world, grid, **more):
        return make(name, what, world, grid, model=dict(DEEPSEEK, **more.pop("model", {})), layers=more.pop("layers", 3), **more)

    yield deepseek("d2", "one layer without experts, two with", 2, {})
    yield deepseek("e4-d4", "experts over all ranks", 4, {"expert": 4})
    yield deepseek("e2-d4-acc2", "2 micro-steps", 4, {"expert": 2}, accumulation=2)
    yield deepseek("e2-d4-full", "every layer recomputed", 4, {"expert": 2}, recompute="full")
    yield deepseek("e4-t2-sp-whole", "tensor and sequence parallelism, whole experts", 8, {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 1})
    yield deepseek("e2-t2-sp-cut-d4", "experts that tensor-parallel ranks cut", 8, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 2})
    yield deepseek("e4-t4-sp-whole", "4 tensor-parallel ranks, experts over them", 4, {"tensor": 4, "sequence": True, "expert": 4, "expert_tensor": 1})
    yield deepseek("t2-sp-cut-d2-shared2", "two shared experts, one matrix", 4, {"tensor": 2, "sequence": True, "expert_tensor": 2}, model={"n_shared_experts": 2})
    yield deepseek("t2-sp-cut-d2-noqrank", "queries from the hidden width", 4, {"tensor": 2, "sequence": True, "expert_tensor": 2}, model={"q_lora_rank": None})
    yield deepseek("e2-1f1b-p2-m4-d2", "1F1B, the first stage with both kinds of layers", 4, dict(rm.pp(2), expert=2), layers=4, accumulation=4)
    yield deepseek("e2-1f1b-p2-m4-d2-dense", "1F1B, the first stage without experts", 4, dict(rm.pp(2), expert=2), layers=4, accumulation=4,
                   model={"first_k_dense_replace": 2})
    yield deepseek("e2-interleaved-p2-v2-m4-d2", "interleaved: a rank's first chunk without experts", 4, dict(rm.pp(2, 2), expert=2), layers=8, accumulation=4,
                   model={"first_k_dense_replace": 3})
    yield deepseek("e2-t2-sp-1f1b-p2-m4-d2", "tensor, sequence, expert and pipeline parallelism", 8,
                   dict(rm.pp(2), tensor=2, sequence=True, expert=2, expert_tensor=1), layers=4, accumulation=4)


def latent_context_cases():
    """Transformer Engine's context parallelism, its keys of 24 and values of 16: TE_SOURCE names a checkout."""
    def deepseek(name, what, world, grid, **more):
        return make(name, what, world, grid, model=DEEPSEEK, layers=2, **more)

    for method in ("ring", "all-gather", "ulysses"):
        yield deepseek(f"c2-{method}", "context parallelism", 2, rm.cp(2, method))
        yield deepseek(f"e4-c2-d2-{method}", "experts over the context's ranks, too", 4, dict(rm.cp(2, method), expert=4))
    yield deepseek("c4-ring", "4 ranks in a ring", 4, rm.cp(4, "ring"))
    yield deepseek("c4-ring-core", "attention's core recomputed", 4, rm.cp(4, "ring"), recompute="selective")
    yield deepseek("e2-t2-sp-c2-all-gather-full", "tensor and sequence parallelism, every layer recomputed", 4,
                   dict(rm.cp(2, "all-gather"), tensor=2, sequence=True, expert=2, expert_tensor=1), recompute="full")
    yield deepseek("t2-sp-cut-c2-ulysses", "heads cut by tensor parallelism and dealt out", 4, dict(rm.cp(2, "ulysses"), tensor=2, sequence=True, expert_tensor=2))
    yield deepseek("c4-a2a-p2p", "hierarchical: 2 ranks exchange heads", 4, rm.cp(4, "ring"), hierarchical_a2a_ranks=2)


def sink_cases():
    def oss(name, what, world, grid, **more):
        return make(name, what, world, grid, model=GPT_OSS, **more)

    yield oss("d2", "sinks, biases of every layer, routers and experts", 2, {})
    yield oss("e4-d4", "experts over all ranks", 4, {"expert": 4})
    yield oss("e2-d4-acc2", "2 micro-steps", 4, {"expert": 2}, accumulation=2)
    yield oss("e2-d4-full", "every layer recomputed", 4, {"expert": 2}, recompute="full")
    yield oss("e2-d4-core", "attention's core recomputed", 4, {"expert": 2}, recompute="selective")
    yield oss("e4-t2-sp-whole", "tensor and sequence parallelism, whole experts", 8, {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 1})
    yield oss("e2-t2-sp-whole-d4", "the same, experts over tensor-parallel ranks alone", 8, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 1})
    yield oss("e2-1f1b-p2-m4-d2", "1F1B", 4, dict(rm.pp(2), expert=2), layers=4, accumulation=4)
    yield oss("e2-interleaved-p2-v2-m4-d2", "interleaved", 4, dict(rm.pp(2, 2), expert=2), layers=8, accumulation=4)


def sink_context_cases():
    """Transformer Engine's context parallelism with sinks, which exchanges heads alone: TE_SOURCE names a checkout."""
    def oss(name, what, world, grid, **more):
        return make(name, what, world, grid, model=GPT_OSS, **more)

    yield oss("c2-ulysses", "context parallelism", 2, rm.cp(2, "ulysses"))
    yield oss("c4-ulysses", "4 ranks, a head of keys each", 4, rm.cp(4, "ulysses"))
    yield oss("c2-d2-ulysses-acc2", "2 micro-steps", 4, rm.cp(2, "ulysses"), accumulation=2)
    yield oss("e4-c2-d2-ulysses", "experts over the context's ranks, too", 4, dict(rm.cp(2, "ulysses"), expert=4))
    yield oss("c2-ulysses-core", "attention's core recomputed", 2, rm.cp(2, "ulysses"), recompute="selective")
    yield oss("e2-t2-sp-c2-ulysses-full", "tensor and sequence parallelism, every layer recomputed", 4,
              dict(rm.cp(2, "ulysses"), tensor=2, sequence=True, expert=2, expert_tensor=1), recompute="full")


def module_cases():
    """Recompute of modules."""
    def again(name, what, world, grid, *names, **more):
        return make(name, what, world, grid, recompute="selective", recompute_modules=list(names), **more)

    def deepseek(name, what, world, grid, *names, **more):
        return again("deepseek-" + name, what, world, grid, *names, model=dict(DEEPSEEK, **more.pop("model", {})), layers=more.pop("layers", 3), **more)

    whole, whole_d4 = {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 1}, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 1}
    cut, cut_d4 = {"tensor": 2, "sequence": True, "expert_tensor": 2}, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 2}
    padded = dict(moe_expert_capacity_factor=1.25, moe_pad_expert_input_to_capacity=True)
    yield again("e2-d4-moe", "--recompute-modules moe", 4, {"expert": 2}, "moe")
    yield again("e2-d4-acc2-moe", "2 micro-steps", 4, {"expert": 2}, "moe", accumulation=2)
    yield again("e4-t2-sp-whole-moe", "tensor and sequence parallelism, whole experts", 8, whole, "moe")
    yield again("e2-t2-sp-cut-d4-moe", "experts that tensor-parallel ranks cut", 8, cut_d4, "moe")
    yield again("e2-d4-padded-moe", "every expert gets its capacity of every rank", 4, {"expert": 2}, "moe", **padded)
    yield again("e2-t2-sp-cut-d4-padded-moe", "the same, experts that tensor-parallel ranks cut", 8, cut_d4, "moe", **padded)
    yield again("t2-sp-cut-d2-layernorm", "norms alone: they have no collectives", 4, cut, "layernorm")
    yield again("e2-t2-sp-whole-d4-moe-layernorm", "experts and norms", 8, whole_d4, "moe", "layernorm")
    yield again("e2-t2-sp-whole-d4-core-layernorm", "attention's core and norms", 8, whole_d4, "core_attn", "layernorm")
    yield again("e2-t2-sp-whole-d4-core-moe", "attention's core and experts", 8, whole_d4, "core_attn", "moe")
    yield again("e2-d4-mlp", "mlp: no layer is without experts, nothing is recomputed", 4, {"expert": 2}, "mlp")
    yield again("e2-1f1b-p2-m4-d2-moe", "1F1B", 4, dict(rm.pp(2), expert=2), "moe", layers=4, accumulation=4)
    yield again("e2-interleaved-p2-v2-m4-d2-moe", "interleaved", 4, dict(rm.pp(2, 2), expert=2), "moe", layers=8, accumulation=4)
    yield again("qwen3-e4-d4-moe", "norms of q and k, 4 experts a token", 4, {"expert": 4}, "moe", model=QWEN3)
    yield again("qwen3-e4-t2-sp-whole-moe-layernorm", "the same, tensor and sequence parallelism, and the layers' norms", 8, whole, "moe", "layernorm", model=QWEN3)
    yield deepseek("e2-d4-shared", "shared experts: they are those of one rank", 4, {"expert": 2}, "shared_experts")
    yield deepseek("e4-t2-sp-whole-shared", "the same, tensor and sequence parallelism", 8, whole, "shared_experts")
    yield deepseek("e4-t2-sp-whole-mlp", "mlp: its first layer", 8, whole, "mlp")
    yield deepseek("e2-d4-moe", "experts, shared ones too", 4, {"expert": 2}, "moe")
    yield deepseek("e4-t2-sp-whole-moe", "the same, tensor and sequence parallelism", 8, whole, "moe")
    yield deepseek("e2-t2-sp-cut-d4-moe-shared", "moe with shared_experts: those are recomputed twice", 8, cut_d4, "moe", "shared_experts")
    yield deepseek("e2-d4-up", "mla_up_proj: queries, keys and values", 4, {"expert": 2}, "mla_up_proj")
    yield deepseek("e4-t2-sp-whole-up", "the same, tensor and sequence parallelism", 8, whole, "mla_up_proj")
    yield deepseek("e4-t2-sp-whole-up-layernorm-core-mlp", "all but the experts", 8, whole, "mla_up_proj", "layernorm", "core_attn", "mlp")
    yield deepseek("e4-t4-sp-whole-shared-mlp-up", "4 tensor-parallel ranks", 4, {"tensor": 4, "sequence": True, "expert": 4, "expert_tensor": 1},
                   "shared_experts", "mlp", "mla_up_proj")
    yield deepseek("t2-sp-cut-d2-noqrank-up-layernorm", "queries from the hidden width", 4, cut, "mla_up_proj", "layernorm", model={"q_lora_rank": None})
    yield deepseek("e2-t2-sp-1f1b-p2-m4-d2-moe-up", "1F1B, tensor, sequence and expert parallelism", 8, dict(rm.pp(2), **whole_d4), "moe", "mla_up_proj",
                   layers=4, accumulation=4)
    yield again("oss-e4-d4-moe", "gpt_oss: sinks and biases", 4, {"expert": 4}, "moe", model=GPT_OSS)
    yield again("oss-e4-t2-sp-whole-moe", "the same, tensor and sequence parallelism", 8, whole, "moe", model=GPT_OSS)
    yield again("oss-e2-t2-sp-whole-d4-layernorm", "norms alone", 8, whole_d4, "layernorm", model=GPT_OSS)


def balance_cases():
    """Losses that balance experts: tokens are counted over the ranks that share a sample."""
    def balanced(name, what, world, grid, kind="aux_loss", **more):
        return make(name, what, world, grid, moe_aux_loss_coeff=0.01, moe_router_load_balancing_type=kind, **more)

    whole = {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 1}
    yield balanced("e2-d4", "no ranks share a sample", 4, {"expert": 2})
    yield balanced("e2-t2-sp-whole-d4", "two do", 8, whole)
    yield balanced("e2-t2-sp-whole-d4-seq", "of each sample by itself", 8, whole, kind="seq_aux_loss")
    yield balanced("e2-t2-sp-whole-d4-acc2", "2 micro-steps", 8, whole, accumulation=2)
    yield balanced("e2-t2-sp-cut-d4", "experts that tensor-parallel ranks cut", 8, dict(whole, expert_tensor=2))
    yield balanced("e2-t2-sp-whole-full", "every layer recomputed: counted when it runs again", 4, whole, recompute="full")
    yield balanced("e2-t2-sp-whole-moe", "mixtures recomputed", 4, whole, recompute="selective", recompute_modules=["moe"])
    yield balanced("e2-t2-sp-whole-layernorm", "norms recomputed", 4, whole, recompute="selective", recompute_modules=["layernorm"])
    yield balanced("deepseek-e2-t2-sp-whole", "sigmoids, of two of three layers", 4, whole, kind="seq_aux_loss", model=DEEPSEEK, layers=3)
    yield balanced("qwen3-e2-t2-sp-1f1b-p2-m4", "1F1B", 4, dict(rm.pp(2), **whole), model=QWEN3, layers=4, accumulation=4)


FILES = {"balance": balance_cases, "modules": module_cases, "sink_context": sink_context_cases, "sinks": sink_cases, "experts": cases, "latent": latent_cases, "latent_context": latent_context_cases}


def record(outdir, file, wanted):
    global case_now
    text = [f"# recorded from megatron-core {rm.megatron.core.__version__}, torch {torch.__version__.split('+')[0]}, CPU, by {os.path.basename(sys.argv[0])}"]
    missing, failed = [], 0
    for case in FILES[file]():
        if wanted and file + ":" + case["name"] not in wanted and case["name"] not in wanted:
            continue
        case_now = case
        try:
            text += [""] + rm.recording(case)
            print("recorded", case["name"], file=sys.stderr, flush=True)
        except Exception as e:
            failed += 1
            missing.append(f"# not recorded: {case['name']}: {str(e).strip().splitlines()[-1]}")
            print("FAILED", case["name"], e, file=sys.stderr, flush=True)
    text = "\n".join(text + [""] * bool(missing) + missing)
    if wanted:
        print(text)
    else:
        with open(os.path.join(outdir, file + ".txt"), "w") as f:
            f.write(text + "\n")
    return failed


def main():
    outdir, wanted = sys.argv[1], sys.argv[2:]
    torch.set_num_threads(1)
    files = [w for w in wanted if w in FILES] or list(FILES)
    return sum(record(outdir, file, [w for w in wanted if w not in FILES]) for file in files) > 0


if __name__ == "__main__":
    sys.exit(main())
