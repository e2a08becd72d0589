"""GPT-2 and Llama in plain PyTorch, operation by operation as transformers 5 computes them, so that
a machine without transformers can train them: what autograd saves is what it saves there."""
import json

import torch
from torch import nn
from torch.nn import functional as F


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.empty(inputs, outputs).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(x.size()[:-1] + (self.outputs,))


class GPT2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, self.heads = c["n_embd"], c["n_head"]
        self.ln_1, self.ln_2 = nn.LayerNorm(h, eps=1e-5), nn.LayerNorm(h, eps=1e-5)
        self.c_attn, self.c_proj = Conv1D(h, 3 * h), Conv1D(h, h)
        self.c_fc, self.mlp_proj = Conv1D(h, 4 * h), Conv1D(4 * h, h)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(h, dim=2)
        q, k, v = (a.view(b, t, self.heads, -1).transpose(1, 2) for a in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous()
        x = self.c_proj(a.reshape(b, t, h).contiguous()) + x
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["n_embd"]
        self.wte, self.wpe = nn.Embedding(c["vocab_size"], h), nn.Embedding(c["n_positions"], h)
        self.blocks = nn.ModuleList(GPT2Block(c) for _ in range(c["n_layer"]))
        self.ln_f = nn.LayerNorm(h, eps=1e-5)
        self.lm_head = nn.Linear(h, c["vocab_size"], bias=False)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return loss_of(self.lm_head(self.ln_f(x)), labels)


class RMSNorm(nn.Module):
    def __init__(self, h, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(h)), eps

    def forward(self, x):
        dtype, x = x.dtype, x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotate_half(x):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-b, a), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, f = c["hidden_size"], c["intermediate_size"]
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.dim = h // self.heads
        self.input_norm, self.post_norm = RMSNorm(h, 1e-5), RMSNorm(h, 1e-5)
        self.q_proj = nn.Linear(h, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(h, self.kv * self.dim, bias=False)
        self.v_proj = nn.Linear(h, self.kv * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, h, bias=False)
        self.gate_proj, self.up_proj = nn.Linear(h, f, bias=False), nn.Linear(h, f, bias=False)
        self.down_proj = nn.Linear(f, h, bias=False)

    def attend(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, -1, self.dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, -1, self.dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, -1, self.dim).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        return self.o_proj(a.transpose(1, 2).contiguous().reshape(b, t, -1).contiguous())

    def forward(self, x, cos, sin):
        x = x + self.attend(self.input_norm(x), cos, sin)
        y = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        h = c["hidden_size"]
        dim = h // c["num_attention_heads"]
        self.embed_tokens = nn.Embedding(c["vocab_size"], h)
        self.blocks = nn.ModuleList(LlamaBlock(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(h, 1e-5)
        self.lm_head = nn.Linear(h, c["vocab_size"], bias=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        if c.get("tie_word_embeddings"):
            self.lm_head.weight = self.embed_tokens.weight
        self.register_buffer("inv_freq", 1.0 / (10000.0 ** (torch.arange(0, dim, 2).float() / dim)), persistent=False)

    def forward(self, ids, labels):
        x = self.embed_tokens(ids)
        with torch.autocast(x.device.type, enabled=False):
            angle = torch.outer(torch.arange(ids.shape[1], device=ids.device).float(), self.inv_freq.float())
            angle = torch.cat((angle, angle), dim=-1)
            cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return loss_of(self.lm_head(self.norm(x)), labels)


def loss_of(logits, labels):
    """transformers' ForCausalLMLoss: fp32 logits, labels one place further."""
    logits = logits.float()
    labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100)


def model_of(plan):
    """The module of a plan.json whose model is an object, not a name."""
    c = plan["model"]
    return {"gpt2": GPT2, "llama": Llama}[c["model_type"]](c)


def read_plan(path):
    with open(path) as f:
        return json.load(f)
