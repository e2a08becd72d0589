"""Tensor and pipeline parallelism by torch's own API, as torchtitan 0.2.2 cuts a llama (models/llama3/infra/parallelize.py,
distributed/pipeline_parallel.py), by the names of transformers' modules."""
from dpx_common import blocks_of, grid, need, plan

import torch
import torch.distributed.tensor.parallel as parallel
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

sequence = grid.get("sequence", False)
loss_is_cut = grid.get("tensor", 1) > 1 and grid.get("loss_parallel", False)      # of logits that stay cut by the vocabulary
ROWS = Shard(1) if sequence else Replicate()


class Whole(parallel.ParallelStyle):
    """torchtitan's NoParallel: every rank has the whole of it and computes the same."""

    def _apply(self, module, mesh):
        def cut(name, module, mesh):
            for key, p in list(module.named_parameters(recurse=False)):
                module.register_parameter(key, nn.Parameter(distribute_tensor(p, mesh, [Replicate()], src_data_rank=None)))

        return distribute_module(module, mesh, cut,
                                 lambda mod, inputs, mesh: (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False),),
                                 lambda mod, out, mesh: out.to_local())


def norm():
    return parallel.SequenceParallel() if sequence else Whole()


def block_plan(block):
    column, row, given = parallel.ColwiseParallel, parallel.RowwiseParallel, parallel.PrepareModuleInput
    out = {
        "input_layernorm": norm(),
        "self_attn": given(input_kwarg_layouts={"hidden_states": ROWS}, desired_input_kwarg_layouts={"hidden_states": Replicate()}),
        "self_attn.q_proj": column(), "self_attn.k_proj": column(), "self_attn.v_proj": column(),
        "self_attn.o_proj": row(output_layouts=ROWS),
        "post_attention_layernorm": norm(),
        "mlp": given(input_layouts=(ROWS,), desired_input_layouts=(Replicate(),)),
        "mlp.gate_proj": column(), "mlp.up_proj": column(),
        "mlp.down_proj": row(output_layouts=ROWS),
    }
    if hasattr(block.self_attn, "q_norm"):      # of heads, which are cut: sequence_dim is that of the heads
        out["self_attn.q_norm"] = parallel.SequenceParallel(sequence_dim=2, use_local_output=True)
        out["self_attn.k_norm"] = parallel.SequenceParallel(sequence_dim=2, use_local_output=True)
    return out


def cut_by_tensors(model, mesh):
    outer = {"embed_tokens": parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=ROWS), "norm": norm()}
    parallel.parallelize_module(model.model, mesh, outer, src_data_rank=None)
    head = parallel.ColwiseParallel(input_layouts=ROWS, output_layouts=Shard(-1) if loss_is_cut else Replicate(), use_local_output=not loss_is_cut)
    parallel.parallelize_module(model, mesh, {"lm_head": head}, src_data_rank=None)
    for block in blocks_of(model):
        parallel.parallelize_module(block, mesh, block_plan(block), src_data_rank=None)


def cut_loss(logits, labels):
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(0, 1))


def never_packed():
    """transformers looks for packed samples in the positions that it is given, and would make a mask of the cut sequence."""
    import transformers.masking_utils as masks
    masks.find_packed_sequence_indices = lambda *args, **kwargs: None


# ---- stages ----

class Body(nn.Module):
    """A stage's part of transformers' model."""

    def __init__(self, body, blocks, first, last):
        super().__init__()
        self.embed_tokens = body.embed_tokens if first else None
        self.layers = nn.ModuleList(body.layers[i] for i in blocks)
        self.norm = body.norm if last else None
        self.rotary_emb = body.rotary_emb

    def forward(self, x, positions):
        if self.embed_tokens is not None:
            x = self.embed_tokens(x)
        rotary = self.rotary_emb(x, position_ids=positions)
        for layer in self.layers:
            x = layer(x, attention_mask=None, position_embeddings=rotary, position_ids=positions)
        return x if self.norm is None else self.norm(x)


class Stage(nn.Module):
    def __init__(self, model, blocks, first, last):
        super().__init__()
        self.model = Body(model.model, blocks, first, last)
        self.lm_head = model.lm_head if last else None
        self.config = model.config
        self.register_buffer("positions", torch.arange(plan["seq"]).unsqueeze(0), persistent=False)

    def forward(self, x):
        x = self.model(x, self.positions)
        return x if self.lm_head is None else self.lm_head(x)


def blocks_of_stage(index, stages):
    """torchtitan's split: the first and the last stage have fewer blocks, in place of embedding and head."""
    less = grid.get("first_stage_less_layers", 0), grid.get("last_stage_less_layers", 0)
    base, extra = divmod(plan["model"]["num_hidden_layers"] + sum(less), stages)
    counts = [base + (i < extra) - (less[0] if i == 0 else 0) - (less[1] if i == stages - 1 else 0) for i in range(stages)]
    return range(sum(counts[:index]), sum(counts[:index + 1]))


def pipeline_of(module, index, stages, mesh, device):
    """The stage's schedule; its loss is the mean over the step's samples."""
    pipelining = __import__("torch.distributed.pipelining", fromlist=["x"])
    stage_class, one, gpipe = need(pipelining, "PipelineStage", "Schedule1F1B", "ScheduleGPipe")
    b, t = plan["micro_batch"], plan["seq"]
    dtype = torch.bfloat16 if plan["precision"] == "bf16" else torch.float32
    hidden = (b, t // (grid["tensor"] if sequence else 1), plan["model"]["hidden_size"])
    given = torch.zeros(b, t, dtype=torch.long, device=device) if index == 0 else torch.zeros(hidden, dtype=dtype, device=device, requires_grad=True)
    left = torch.zeros((b, t, plan["model"]["vocab_size"]) if index == stages - 1 else hidden, dtype=dtype, device=device, requires_grad=True)
    stage = stage_class(module, index, stages, device, group=mesh.get_group(), input_args=given, output_args=left)

    def loss(logits, labels):
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(0, 1)) / plan["accumulation"]
    return (gpipe if grid["pipeline_schedule"] == "gpipe" else one)(stage, n_microbatches=plan["accumulation"], loss_fn=loss, scale_grads=False)
