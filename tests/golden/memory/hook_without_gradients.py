"""A hook for ModTracker in place of register_multi_grad_hook(), which keeps the gradients of a module's inputs until the last is there, and so
holds memory that no training does."""
import torch
from torch.autograd.graph import _get_grad_fn_or_grad_acc, register_multi_grad_hook


def hook_without_gradients(tensors, fn, *, mode="all"):
    """As register_multi_grad_hook(), without what it keeps."""
    if mode != "all":
        return register_multi_grad_hook(tensors, fn, mode=mode)
    nodes, left = [_get_grad_fn_or_grad_acc(t) for t in tensors], {}

    def one(grad):
        task = torch._C._current_graph_task_id()
        left[task] = left.get(task) or sum(map(torch._C._will_engine_execute_node, nodes))
        left[task] -= 1
        if not left[task]:
            del left[task]
            fn([None] * len(nodes))
    for t in tensors:
        t.register_hook(one)
