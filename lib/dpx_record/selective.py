"""Recompute by operator, as torchtitan up to 0.2 has it (`selective op`): of a checkpointed block the results of these are kept, of products every second one."""
import collections

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

KEPT = {"aten.mm.default", "aten._scaled_dot_product_efficient_attention.default", "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_cudnn_attention.default", "aten._scaled_dot_product_attention_math.default",
        "aten._scaled_dot_product_fused_attention_overrideable.default", "_c10d_functional.reduce_scatter_tensor.default", "aten.max.default"}


def by_operator():
    products = collections.Counter()

    def policy(ctx, func, *args, **kwargs):
        mode = "recompute" if ctx.is_recompute else "forward"
        products[mode] += func is torch.ops.aten.mm.default
        kept = str(func) in KEPT and not (func is torch.ops.aten.mm.default and products[mode] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)
