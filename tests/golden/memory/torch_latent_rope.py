"""The bytes that multi-head latent attention of megatron-core holds between its up-projections and the scores, without apply_rope_fusion, on the CPU.

    PYTHONPATH=WHERE_MEGATRON_IS python tests/golden/memory/torch_latent_rope.py > tests/golden/memory/torch_latent_rope.jsonl

Of MLASelfAttention the inner function runs that turns what the up-projections give into queries, keys and values
(core/transformer/multi_latent_attention.py, qkv_up_proj_and_rope_apply); projections give what they are given."""
import ast
import json
from types import SimpleNamespace as Of

import megatron.core
import torch
from megatron.core.models.common.embeddings import apply_rotary_pos_emb
from megatron.core.transformer import multi_latent_attention

from torch_actor_loss import Live

SIZES = ((512, 1, 4, 128, 64, 128), (256, 2, 8, 64, 32, 96), (128, 4, 2, 128, 64, 64))        # seq, batch, heads, plain, rotated, value


class Gradients(torch.autograd.Function):
    """Hands out gradients that nothing else names; says what there is then."""

    @staticmethod
    def forward(ctx, live, *of):
        ctx.live, ctx.shapes = live, [x.shape for x in of]
        return torch.zeros(1)

    @staticmethod
    def backward(ctx, _):
        out = [torch.ones(s, dtype=torch.bfloat16) for s in ctx.shapes]
        ctx.live.before = ctx.live.peak = ctx.live.live
        return (None, *out)


def function():
    tree = ast.parse(open(multi_latent_attention.__file__).read())
    name = "qkv_up_proj_and_rope_apply"
    tree.body = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    names = dict(vars(multi_latent_attention), inference_context=None, packed_seq_params=None, cu_seqlens_q=None, cu_seqlens_kv=None, mscale=1.1,
                 apply_rotary_pos_emb=apply_rotary_pos_emb)
    exec(compile(tree, name, "exec"), names)
    return names


def record(names, seq, batch, heads, plain, rotated, value):
    group = Of(size=lambda: 1, rank=lambda: 0)
    config = Of(q_lora_rank=1, apply_rope_fusion=False, qk_head_dim=plain, qk_pos_emb_head_dim=rotated, v_head_dim=value, context_parallel_size=1,
                rotary_interleaved=False, multi_latent_attention=True)
    names["self"] = Of(config=config, num_attention_heads_per_partition=heads, q_head_dim=plain + rotated, pg_collection=Of(cp=group),
                       linear_q_up_proj=lambda x: (x, None), linear_kv_up_proj=lambda x: (x, None))
    shapes = (heads * (plain + rotated), heads * (plain + value), rotated)
    inputs = [torch.randn(seq, batch, n, dtype=torch.bfloat16, requires_grad=True) for n in shapes]
    angles = torch.randn(seq, 1, 1, rotated)
    with Live() as live:
        for known in (*inputs, angles):
            live.known.add(known.untyped_storage()._cdata)
        of = [x.view_as(x) for x in inputs]
        qkv = names["qkv_up_proj_and_rope_apply"](*of, angles)
        forward, kept = live.peak, live.live
        loss = Gradients.apply(live, *qkv)
        del qkv, of
        loss.backward()
        backward = live.peak - live.before
    return {"seq": seq, "batch": batch, "heads": heads, "plain": plain, "rotated": rotated, "value": value, "forward": forward, "kept": kept,
            "backward": backward}


if __name__ == "__main__":
    print(json.dumps({"torch": torch.__version__, "megatron-core": megatron.core.__version__}))
    of = function()
    for size in SIZES:
        print(json.dumps(record(of, *size)))
