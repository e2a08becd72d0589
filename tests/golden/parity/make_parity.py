#!/usr/bin/env python3
"""Trains a small GPT-2 and a small Llama for 20 steps with PyTorch and records what came out.

    python make_parity.py [FOLDER]                 default: the script's own folder

Reads MODEL/config.json; writes tokens.bin, and for each model init.safetensors,
grads.safetensors, final.safetensors and expected.json.  README.md says what they hold.
"""
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama import modeling_llama

SEQ, BATCH, STEPS = 24, 12, 20
LR, MIN_LR, WARMUP = 1e-3, 1e-4, 5
BETAS, EPS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
VOCAB = 97


# ---- Tokens ----

def make_tokens():
    """A chain that can be learnt: mostly 5k+3, sometimes another multiple."""
    rng = np.random.default_rng(20240520)
    tokens = [int(rng.integers(VOCAB))]
    while len(tokens) < STEPS * BATCH * SEQ + 1:
        step = rng.choice([3, 11, 40], p=[0.7, 0.2, 0.1])
        tokens.append((5 * tokens[-1] + int(step)) % VOCAB)
    return np.array(tokens, dtype=np.uint16)


def write_tokens(path, tokens):
    """llm.c's format: 256 numbers of 32 bits (magic, version, count), tokens of 16 bits."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = 20240520, 1, len(tokens)
    with open(path, "wb") as f:
        f.write(header.tobytes())
        f.write(tokens.astype("<u2").tobytes())


def batch_of(tokens, step):
    """Samples step*BATCH ... of the windows in their order in the file."""
    ids, labels = [], []
    for i in range(step * BATCH, (step + 1) * BATCH):
        window = tokens[i * SEQ:(i + 1) * SEQ + 1].astype(np.int64)
        ids.append(window[:-1])
        labels.append(window[1:])
    return torch.from_numpy(np.stack(ids)), torch.from_numpy(np.stack(labels))


# ---- Models ----

def rms_norm_any_dtype(self, x):
    """LlamaRMSNorm computes in fp32 whatever it is given; this does not narrow fp64."""
    wide = x if x.dtype == torch.float64 else x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
    return self.weight * wide.to(x.dtype)


def rotary_any_dtype(self, x, position_ids):
    """Likewise LlamaRotaryEmbedding: angles in fp64 where the model is."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    dim = self.config.hidden_size // self.config.num_attention_heads
    inv_freq = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = position_ids[:, :, None].to(dtype) * inv_freq.to(dtype)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def initial_values(model, spread=0.1):
    """Larger than usual, and biases and norms too, so that an error in any term shows."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            if p.ndim == 2:
                p.copy_((spread * noise).float())
            elif name.endswith("bias"):
                p.copy_((0.05 * noise).float())
            else:
                p.copy_((1 + 0.1 * noise).float())
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def build(config, init, dtype):
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(init[name].to(dtype))
    return model.train()


# ---- Training ----

def lr_of(step):
    """step from 0: linear to LR at the end of the warm-up, then half a cosine to MIN_LR."""
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    along = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * along)) * (LR - MIN_LR)


def loss_of(model, ids, labels, bf16):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        logits = model(input_ids=ids, use_cache=False).logits
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    return F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


def train(config, init, tokens, dtype, bf16=False):
    """Losses, norms before clipping, gradients of the first step before clipping, weights."""
    model = build(config, init, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS,
                                  weight_decay=WEIGHT_DECAY, foreach=False, fused=False)
    run = {"losses": [], "grad_norms": []}
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = lr_of(step)
        optimizer.zero_grad()
        loss = loss_of(model, *batch_of(tokens, step), bf16)
        loss.backward()
        if step == 0:
            run["grads"] = {n: p.grad.detach().clone() for n, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        run["losses"].append(loss.item())
        run["grad_norms"].append(norm.item())
    run["weights"] = {n: p.detach().clone() for n, p in model.named_parameters()}
    return run


def check_fp64(config, init, tokens, grads, h=1e-5):
    """Along the gradient, the loss's difference quotient is the gradient's squared norm: to
    1e-8 only if nothing between the weights and the loss was narrowed to fp32."""
    model = build(config, init, torch.float64)
    ids, labels = batch_of(tokens, 0)
    loss = []
    with torch.no_grad():
        for sign in (1, -1):
            for name, p in model.named_parameters():
                p.copy_(init[name].double() + sign * h * grads[name])
            loss.append(loss_of(model, ids, labels, False).item())
    quotient = (loss[0] - loss[1]) / (2 * h)
    squared = sum(g.pow(2).sum().item() for g in grads.values())
    if abs(quotient - squared) > 1e-8 * squared:
        sys.exit(f"fp64 is not fp64: {quotient!r} is not {squared!r}")


# ---- Results ----

def without_key_bias(name, t):
    """GPT-2's fused bias without its middle third."""
    return torch.cat(t.chunk(3)[::2]) if name.endswith("c_attn.bias") else t


def distance(got, want):
    """Per tensor: norm of the difference over norm."""
    far = {}
    for name in want:
        a, b = (without_key_bias(name, t.double()) for t in (got[name], want[name]))
        far[name] = ((a - b).norm() / b.norm()).item()
    return far


def largest(got, want):
    return max(abs(a - b) / abs(b) for a, b in zip(got, want))


def expected(init, fp64, fp32, bf16):
    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "seq": SEQ, "global_batch": BATCH, "steps": STEPS,
        "lr": LR, "min_lr": MIN_LR, "warmup": WARMUP, "beta1": BETAS[0], "beta2": BETAS[1],
        "eps": EPS, "weight_decay": WEIGHT_DECAY, "clip": CLIP,
        "lr_of_step": [lr_of(s) for s in range(STEPS)],
        "loss": fp64["losses"], "loss_fp32": fp32["losses"], "loss_bf16": bf16["losses"],
        "grad_norm": fp64["grad_norms"], "grad_norm_fp32": fp32["grad_norms"],
        "fp32_from_fp64": {
            "loss": largest(fp32["losses"], fp64["losses"]),
            "grad_norm": largest(fp32["grad_norms"], fp64["grad_norms"]),
            "grads": distance(fp32["grads"], fp64["grads"]),
            "weights": distance(fp32["weights"], fp64["weights"]),
        },
        "bf16_from_fp64": {"loss": largest(bf16["losses"], fp64["losses"])},
        "weights_moved": distance(fp64["weights"], init),
    }


def save(path, tensors):
    save_file({n: t.float().contiguous() for n, t in tensors.items()}, path, {"format": "pt"})
    os.chmod(path, 0o644)


def record(folder, tokens):
    config = AutoConfig.from_pretrained(folder)
    init = initial_values(AutoModelForCausalLM.from_config(config))
    fp64 = train(config, init, tokens, torch.float64)
    fp32 = train(config, init, tokens, torch.float32)
    bf16 = train(config, init, tokens, torch.float32, bf16=True)
    check_fp64(config, init, tokens, fp64["grads"])
    result = expected(init, fp64, fp32, bf16)
    save(os.path.join(folder, "init.safetensors"), init)
    save(os.path.join(folder, "grads.safetensors"), fp64["grads"])
    save(os.path.join(folder, "final.safetensors"), fp64["weights"])
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    report(folder, result)


def report(folder, r):
    far = r["fp32_from_fp64"]
    print(f"{folder}: loss {r['loss'][0]:.6f} -> {r['loss'][-1]:.6f}, norms {r['grad_norm'][0]:.3f} -> "
          f"{r['grad_norm'][-1]:.3f}; fp32 from fp64: loss {far['loss']:.1e}, "
          f"grads {max(far['grads'].values()):.1e}, weights {max(far['weights'].values()):.1e}; "
          f"bf16 loss {r['bf16_from_fp64']['loss']:.1e}")


def exactly():
    """One thread, the same sums each time, nothing narrowed."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    modeling_llama.LlamaRMSNorm.forward = rms_norm_any_dtype
    modeling_llama.LlamaRotaryEmbedding.forward = rotary_any_dtype


def main():
    here = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    exactly()
    tokens = make_tokens()
    write_tokens(os.path.join(here, "tokens.bin"), tokens)
    for model in ("gpt2", "llama"):
        record(os.path.join(here, model), tokens)


if __name__ == "__main__":
    main()
