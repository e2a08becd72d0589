"""The unit of issue_cost.py and graph_cost.py: what a kernel of a tiny Llama's forward without gradients costs the thread that issues it."""
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

LAYERS = 16
NO_KERNEL = set("view t transpose expand unsqueeze slice detach alias _unsafe_view select permute as_strided lift_fresh empty "
                "empty_like reshape squeeze is_same_size unbind split".split())


class Count(TorchDispatchMode):
    """Counts the operators that the dispatcher hands to a device."""
    n = 0

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        self.n += f._schema.name.split("::")[1] not in NO_KERNEL
        return f(*args, **(kwargs or {}))


def seconds(f):
    """The least CPU time of this thread over 25 repeats."""
    best = float("inf")
    for _ in range(25):
        t = time.thread_time()
        f()
        best = min(best, time.thread_time() - t)
    return best


def model():
    m = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
                                     num_key_value_heads=2, head_dim=16, vocab_size=64, max_position_embeddings=64))
    return m.train()


ids = torch.zeros(1, 4, dtype=torch.long)


def forward(of):
    return of(input_ids=ids, labels=ids, use_cache=False).loss


def kernel_without_gradients(of):
    """Seconds of a kernel, and how many a forward has."""
    def without_grad():
        with torch.no_grad():
            forward(of)

    with torch.no_grad(), Count() as c:
        forward(of)
        n = c.n
    return seconds(without_grad) / n, n
