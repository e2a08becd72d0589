"""DeepSpeed-Ulysses around a model of transformers, as accelerate and the Trainer set it up."""
import torch
import torch.distributed as td
import torch.distributed.nn.functional as tdf
from deepspeed.utils import groups


def group():
    """The ranks that share positions with this one; None without Ulysses."""
    return groups._get_sequence_parallel_group() if hasattr(groups.mpu, "get_sequence_parallel_group") else None


def share_positions(model, size, micro_batch, seq):
    """transformers' attention is replaced, ranks form groups (accelerate/accelerator.py).  Returns deepspeed.initialize()'s mpu."""
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
    # So that the gradient of a gathered loss comes by the reduce-scatter that NCCL has, and gloo too.
    tdf.dist = type("nccl", (), {"__getattr__": lambda _, name: (
        (lambda group=None: td.Backend.NCCL) if name == "get_backend" else getattr(td, name))})()
    return UlyssesSPAttentionHF.register_with_transformers(
        model_name_or_path=model, core_attn_implementation="sdpa", sequence_parallel_size=size,
        micro_batch_size=micro_batch, seq_length=seq, seq_length_is_variable=False)


def loss(engine, ids, size, rank):
    """The loss of a rank's positions joined to that of all (transformers' deepspeed_sp_compute_loss())."""
    seq = ids.shape[1]
    share, at = seq // size, seq // size * (rank % size)
    labels = torch.nn.functional.pad(ids, (0, 1), value=-100)[:, 1:]
    part = {"input_ids": ids, "position_ids": torch.arange(seq).expand_as(ids), "labels": labels, "shift_labels": labels}
    part = {k: v[:, at:at + share].contiguous() for k, v in part.items()}
    mean = engine(**part).loss
    losses = torch.stack(tdf.all_gather(mean, group=group()))
    good = torch.stack(tdf.all_gather((part["shift_labels"] != -100).view(-1).sum(), group=group()))
    return (losses * good).sum() / good.sum()
