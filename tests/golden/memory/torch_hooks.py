"""DDP's communication hooks under a fake process group, and the plans that record_torch_memory.py --cases hooks records
with them."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook


class Done:
    """The work of a collective that is done: the fake group's own futures hold no tensor."""

    def __init__(self, tensor):
        self.future = torch.futures.Future()
        self.future.set_result([tensor])

    def get_future(self):
        return self.future


torch_tensor = torch.tensor


def no_elements(data, **options):
    """torch.tensor([]) asks for a driver even among fake tensors."""
    return torch.empty(0, **options) if isinstance(data, list) and not data else torch_tensor(data, **options)


def all_reduced(_state, bucket):
    """Without a hook: the fake group's work has no result to wait for."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def register_hook(ddp, options):
    """A hook of PyTorch's; its all-reduce leaves the tensor as it is.  bf16_compress_hook goes by another name, since PyTorch looks
    for NCCL where it reads that one."""
    name = options.get("comm_hook")
    if name is None:
        ddp.register_comm_hook(None, all_reduced)
        return
    dist.all_reduce = lambda tensor, group=None, async_op=False: Done(tensor)
    torch.tensor = no_elements
    if name == "powerSGD_hook":
        state = powerSGD_hook.PowerSGDState(None, **options["PowerSGDState"])
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        ddp.powersgd_state = state
    else:
        ddp.register_comm_hook(None, lambda state, bucket: getattr(default_hooks, name)(state, bucket))


def steps_before(options):
    """Of which the last begins PowerSGD: its matrices exist then."""
    return 3 if options.get("comm_hook") == "powerSGD_hook" else 1


def kept(ddp):
    """PowerSGD's errors: a tracker meets tensors as results of operators, which these are when they are replaced."""
    state = getattr(ddp, "powersgd_state", None)
    return list(state.error_dict.values()) if state else []


def hook_cases(plan_of):
    """Gradients outweigh activations, and AdamW's temporaries are left out, so that peaks are in hooks."""
    def plan(model, hook, precision="fp32", world=4, accumulation=1, view=False, seq=64, **state):
        p = plan_of(model, "ddp", world=world, precision=precision, batch=1, seq=seq, accumulation=accumulation,
                    sync=accumulation == 1, view=view, optimizer_form="fused")
        p["ddp"]["comm_hook"] = hook
        if hook == "powerSGD_hook":
            p["ddp"]["PowerSGDState"] = dict(state, start_powerSGD_iter=2)
        return p

    for hook in ("fp16_compress_hook", "bf16_compress_hook"):
        for model in ("gpt2-10m", "llama-10m", "gpt2-124m"):
            yield plan(model, hook)
        yield plan("llama-15m-gqa-tied", hook, view=True)
        yield plan("llama-10m", hook, precision="bf16", accumulation=2)
    for rank in (1, 2, 8):
        yield plan("gpt2-10m", "powerSGD_hook", matrix_approximation_rank=rank)
        yield plan("llama-10m", "powerSGD_hook", matrix_approximation_rank=rank)
    yield plan("gpt2-124m", "powerSGD_hook", matrix_approximation_rank=2)
    yield plan("llama-10m", "powerSGD_hook", view=True, matrix_approximation_rank=2)
    yield plan("llama-10m", "powerSGD_hook", precision="bf16", matrix_approximation_rank=4)
    yield plan("llama-10m", "powerSGD_hook", warm_start=False)
    yield plan("gpt2-124m", "powerSGD_hook", use_error_feedback=False)
    yield plan("llama-10m", "powerSGD_hook", min_compression_rate=200)
    yield plan("gpt2-10m", "powerSGD_hook", use_error_feedback=False, warm_start=False)
    yield plan("llama-10m", "powerSGD_hook", accumulation=2, matrix_approximation_rank=2)
