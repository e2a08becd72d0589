"""Losses that replace transformers' own, recompute by operator, and the plans that record_torch_memory.py --cases
options records with them."""
import collections
import functools
import sys

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

class FlashLoss(torch.autograd.Function):
    """What flash_attn.losses.cross_entropy.CrossEntropyLoss allocates (its kernels need a GPU): losses and log-sum-exp
    of rows; it keeps logits, and makes their gradient anew (inplace_backward=False)."""

    @staticmethod
    def forward(ctx, logits, labels):
        losses, lse = (torch.empty(logits.shape[0], dtype=torch.float32) for _ in range(2))
        ctx.save_for_backward(logits, lse, labels)
        return losses

    @staticmethod
    def backward(ctx, grad):
        return torch.empty_like(ctx.saved_tensors[0]), None


def shifted(labels):
    """transformers.loss.loss_utils.ForCausalLMLoss."""
    padded = nn.functional.pad(labels, (0, 1), value=-100)
    return padded[..., 1:].contiguous()


def low_loss(logits, labels, vocab_size, **kwargs):
    return nn.functional.cross_entropy(logits.view(-1, vocab_size), shifted(labels).view(-1))


def flash_loss(logits, labels, vocab_size, **kwargs):
    return FlashLoss.apply(logits.view(-1, vocab_size), shifted(labels).view(-1)).mean()


def linear_chunks(model, parts=8):
    """torchtune 0.6, modules/loss/cross_entropy_loss.py, LinearCrossEntropyLoss: the model stops before its head; of the tokens that count,
    here all, head and loss come part by part.  (torch.where() of a fake tensor has no size.)"""
    def skip(body, args):
        head = model.get_output_embeddings()            # PEFT's layer, by now
        if not hasattr(head, "project"):
            head.project, head.forward = head.forward, lambda x: x

    def loss(logits, labels, **ignored):
        hidden, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        counts = torch.arange(len(labels))
        hidden, labels = hidden.index_select(0, counts), labels.index_select(0, counts)
        del counts
        total = torch.tensor(0.0)
        for x, y in zip(hidden.tensor_split(parts), labels.tensor_split(parts)):
            total += part(x, y)
        return total / len(labels)

    def part(x, y):
        logits = model.get_output_embeddings().project(x)
        return nn.functional.cross_entropy(logits.float(), y, reduction="sum")
    model.model.register_forward_pre_hook(skip)
    return loss


def replace_loss(model, kind):
    own = {"bf16": low_loss, "fused": flash_loss}
    if kind == "linear-chunks":
        model.loss_function = linear_chunks(model)
    if kind in own:
        model.loss_function = own[kind]


# torchtitan up to 0.2, distributed/activation_checkpoint.py: what `selective op` saves, of products every second.
SAVED = {"aten.mm.default", "aten._scaled_dot_product_efficient_attention.default",
         "aten._scaled_dot_product_flash_attention.default", "aten._scaled_dot_product_cudnn_attention.default",
         "aten._scaled_dot_product_attention_math.default", "aten._scaled_dot_product_fused_attention_overrideable.default",
         "_c10d_functional.reduce_scatter_tensor.default", "aten.max.default"}


def by_operator(routers=()):
    products = collections.Counter()

    def policy(ctx, func, *args, **kwargs):
        mode = "recompute" if ctx.is_recompute else "forward"
        if func is torch.ops.aten.mm.default:
            if tuple(args[1].shape) in routers:
                return CheckpointPolicy.PREFER_RECOMPUTE
            products[mode] += 1
        save = str(func) in SAVED and not (func is torch.ops.aten.mm.default and products[mode] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)


def recompute_by_operator(blocks):
    """per_op_sac_force_recompute_mm_shapes_by_fqns is by default the routers' products."""
    for i, block in enumerate(blocks):
        routers = {tuple(m.weight.shape)[::-1] for name, m in block.named_modules() if name in ("mlp.gate", "block_sparse_moe.router.layer")}
        blocks[i] = checkpoint_wrapper(block, context_fn=functools.partial(by_operator, routers), preserve_rng_state=False)


EAGER = {}      # transformers' function of each family that was replaced


def recompute_attention(model, again):
    """Recompute "selective": of eager attention what follows q, k and v is checkpointed."""
    module = sys.modules[type(model).__module__]
    if not hasattr(module, "eager_attention_forward"):
        return
    eager = EAGER.setdefault(module, module.eager_attention_forward)
    module.eager_attention_forward = functools.partial(checkpoint, eager, use_reentrant=False) if again else eager


def recompute_modules(blocks):
    """Recompute "modules": what NeMo Automodel's apply_submodule_checkpointing() wraps of a block."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    for block in blocks:
        for name in ("mlp", "self_attn", "input_layernorm", "post_attention_layernorm"):
            setattr(block, name, checkpoint_wrapper(getattr(block, name)))


def module_cases(plan_of):
    for model in ("llama-10m", "llama-15m-gqa-tied"):
        for strategy in ("fsdp", "ddp"):
            yield plan_of(model, strategy, world=4, batch=2, seq=256, precision="bf16" if strategy == "fsdp" else "fp32", recompute="modules")
            yield plan_of(model, strategy, world=4, batch=1, seq=512, precision="fp32", accumulation=2, recompute="modules")
    yield plan_of("llama-10m", world=4, batch=2, seq=256, kernels="torch-eager", recompute="modules")
    yield plan_of("llama-1b", batch=2, seq=1024, recompute="modules")
    yield plan_of("llama-1b", batch=1, seq=2048, recompute="modules", model_dtype="bf16", reshard=False)
    yield plan_of("llama-8b", world=16, batch=1, seq=4096, recompute="modules")
    for family in ("qwen2", "qwen3", "mistral", "granite"):
        yield plan_of(family, world=4, batch=2, seq=256, recompute="modules")


def option_cases(plan_of):
    """Losses, recompute by operator, forms of AdamW, parameters in bf16."""
    for loss in ("bf16", "fused"):
        yield plan_of("llama-10m", world=4, batch=4, seq=256, loss=loss)
        yield plan_of("llama-15m-gqa-tied", world=8, batch=1, seq=512, loss=loss)
        yield plan_of("llama-1b", batch=2, seq=1024, loss=loss)
        yield plan_of("llama-8b", world=16, batch=1, seq=4096, loss=loss)
        yield plan_of("gpt2-124m", batch=4, seq=1024, loss=loss)
    yield plan_of("gpt2-124m", "ddp", world=8, precision="fp32", batch=4, seq=512, loss="fused")
    yield plan_of("llama-10m", "ddp", world=2, batch=4, seq=512, loss="fused")
    for model in ("llama-10m", "llama-15m-gqa-tied", "llama-1b"):
        yield plan_of(model, batch=2, seq=1024, recompute="op")
    yield plan_of("llama-8b", world=16, batch=1, seq=4096, recompute="op")
    for family in ("mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "olmo2", "granite", "smollm3", "glm", "phi3", "gpt_neox", "opt", "cohere"):
        yield plan_of(family, world=4, batch=4, seq=256, recompute="op")
    yield plan_of("gpt2-124m-nodrop", batch=2, seq=1024, recompute="op")
    yield plan_of("llama-10m", "ddp", world=2, batch=2, seq=512, recompute="op")
    for form in ("fused", "loop"):
        for strategy in ("fsdp", "ddp"):
            yield plan_of("gpt2-10m", strategy, world=4, batch=1, seq=64, optimizer_form=form)
            yield plan_of("llama-15m-gqa-tied", strategy, world=2, batch=1, seq=64, optimizer_form=form)
    for model in ("llama-10m", "gpt2-124m", "llama-1b"):
        yield plan_of(model, world=4, batch=1, seq=256, model_dtype="bf16")
        yield plan_of(model, world=4, batch=1, seq=256, model_dtype="bf16", optimizer_form="fused", clip=1.0)
        yield plan_of(model, world=4, batch=1, seq=256, model_dtype="bf16", accumulation=2)
