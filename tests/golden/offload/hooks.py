"""What the saved-tensor hooks of an activation offload see of a block that is checkpointed, compiled or not, with adapters or not.

    python tests/golden/offload/hooks.py

Printed with PyTorch 2.15: of a block that is not compiled its input alone, also of the first one, whose input needs no gradient beside frozen
weights.  Of a compiled one its tensor arguments (the input, two rotary tables) and parameters, which prime-rl's hooks leave on the device."""
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper


class Adapted(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.base = nn.Linear(columns, rows, bias=False).requires_grad_(False)
        self.a, self.b = nn.Linear(columns, 8, bias=False), nn.Linear(8, rows, bias=False)

    def forward(self, x):
        return self.base(x) + 2 * self.b(self.a(x))


class Block(nn.Module):
    def __init__(self, d, lora):
        super().__init__()
        linear = (lambda rows, columns: Adapted(rows, columns)) if lora else (lambda rows, columns: nn.Linear(columns, rows, bias=False))
        self.up, self.down, self.norm = linear(4 * d, d), linear(d, 4 * d), nn.LayerNorm(d).requires_grad_(not lora)

    def forward(self, x, rotary):
        h = self.norm(x)
        h = h * rotary[0] + h * rotary[1]
        return x + self.down(nn.functional.silu(self.up(h)))


class Seen(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        self.tensors = []
        super().__init__(self.pack, lambda t: t)

    def pack(self, t):
        if not isinstance(t, nn.Parameter):
            self.tensors.append(tuple(t.shape))
        return t


def seen(compiled, lora):
    torch._dynamo.reset()
    blocks = nn.ModuleList(checkpoint_wrapper(Block(32, lora), preserve_rng_state=False) for _ in range(3))
    for b in blocks if compiled else []:
        b.compile(backend="aot_eager")
    x, rotary, hooks = torch.randn(8, 32, requires_grad=not lora), (torch.randn(8, 32), torch.randn(8, 32)), Seen()
    with hooks:
        for b in blocks:
            x = b(x, rotary)
    x.sum().backward()
    return len(hooks.tensors) / 3, set(hooks.tensors)


for compiled in (False, True):
    for lora in (False, True):
        print("compiled" if compiled else "eager", "adapters" if lora else "all", *seen(compiled, lora))
