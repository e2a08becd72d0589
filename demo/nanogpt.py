"""A GPT of 124 million parameters as one writes one, with the function that dpx.record asks for: docs/howto/own-model.md."""
import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, h, drop):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.c_fc, self.c_out = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        self.h, self.drop = h, drop
        self.resid, self.mlp_drop = nn.Dropout(drop), nn.Dropout(drop)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop if self.training else 0, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        x = x + self.resid(self.c_proj(y))
        return x + self.mlp_drop(self.c_out(F.gelu(self.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, V=50304, T=1024, L=12, d=768, h=12, drop=0.1):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(V, d), nn.Embedding(T, d), nn.Dropout(drop)
        self.h = nn.ModuleList(Block(d, h, drop) for _ in range(L))
        self.ln_f, self.head = nn.LayerNorm(d, bias=False), nn.Linear(d, V, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for b in self.h:
            x = b(x)
        logits = self.head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def make():
    ids = lambda b, s: torch.zeros((b, s), dtype=torch.long)
    return GPT(), lambda b, s: (ids(b, s), ids(b, s))         # the module, and what its forward reads
