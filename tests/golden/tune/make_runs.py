#!/usr/bin/env python3
"""Fine-tunes the models of ../parity for 20 steps with PyTorch and PEFT and records what came out.

    python make_runs.py [CASE ...]                  default: all; into runs/CASE

Weights and tokens are ../parity's; what trains, and by which optimizer, is in CASES below and, in dpx's words, in
tests/mpi/test_tune.sh.  README.md says what the files hold.
"""
import json
import os
import shutil
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "parity"))
import make_parity as parity  # noqa: E402
import blockwise  # noqa: E402

EPS1 = 2.0 ** -23       # Adafactor's None is the dtype's own: fp32's in the fp64 run as well


class Lion(torch.optim.Optimizer):
    """bitsandbytes 0.50.2, csrc/kernels.cu, kOptimizer32bit1State, in any dtype; check_lion() has it beside bitsandbytes' own."""

    def __init__(self, params, lr, betas):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                b1, b2 = group["betas"]
                p.sub_(group["lr"] * torch.sign(b1 * m + (1 - b1) * p.grad))
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class AdamW8(torch.optim.Optimizer):
    """bitsandbytes' adamw_bnb_8bit as transformers sets it up: moments of embeddings, and of tensors below 4096 elements, in 32 bits.
    Weights and gradients are fp32 in it, whatever the model computes in."""

    def __init__(self, named, lr, betas, weight_decay):
        super().__init__([p for _, p in named], {"lr": lr})
        self.rates = {"beta1": betas[0], "beta2": betas[1], "eps": 1e-8, "weight_decay": weight_decay}
        self.narrow = {p: p.numel() >= 4096 and not is_embedding(n) for n, p in named}
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p] or blockwise.new_states(p.numel(), self.narrow[p])
                self.state[p] = s
                value = p.detach().float().flatten().numpy().copy()
                blockwise.cuda_step(s, value, p.grad.float().flatten().numpy(), dict(self.rates, lr=group["lr"]), self.steps)
                p.copy_(torch.from_numpy(value).view(p.shape))


def is_embedding(name):
    return "wte" in name or "wpe" in name or "embed_tokens" in name


def plain(make):
    return lambda named, lr: make([p for _, p in named], lr)


OPTIMIZERS = {
    "adamw8": lambda named, lr: AdamW8(named, lr=lr, betas=(0.9, 0.95), weight_decay=0.1),
    "adamw": plain(lambda p, lr: torch.optim.AdamW(p, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)),
    "sgd": plain(lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, foreach=False)),
    "sgd-decay": plain(lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=0.1, foreach=False)),
    "lion": plain(lambda p, lr: Lion(p, lr=lr, betas=(0.9, 0.99))),
    "adafactor": plain(lambda p, lr: torch.optim.Adafactor(p, lr=lr, eps=(EPS1, 1e-3), weight_decay=0.0, foreach=False)),
}

ALL_GPT2 = ["c_attn", "c_proj", "c_fc"]
# case: model, optimizer, lr, what trains: None, a test of a name, or LoraConfig's arguments
CASES = {
    "sgd": ("gpt2", "sgd-decay", 3e-2, None),
    "lion": ("llama", "lion", 2e-4, None),
    "adafactor": ("llama", "adafactor", 1e-2, None),
    "adafactor-gpt2": ("gpt2", "adafactor", 1e-2, None),
    "mlp": ("llama", "adamw", 3e-3, lambda n: ".mlp." in n or n.endswith("input_layernorm.weight")),
    "down": ("llama", "sgd", 3e-2, lambda n: ".down_proj." in n),
    "bias": ("gpt2", "adamw", 3e-3, lambda n: n.endswith(".bias")),
    "tokens": ("gpt2", "adamw", 1e-3, lambda n: "wte" in n or ".ln_2." in n),
    "lora": ("llama", "adamw", 5e-3, {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}),
    "lora-attention": ("llama", "lion", 5e-4, {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj"]}),
    "lora-head": ("llama", "sgd", 3e-2, {"r": 4, "lora_alpha": 4, "target_modules": ["o_proj", "gate_proj"],
                                         "modules_to_save": ["lm_head"]}),
    "lora-gpt2": ("gpt2", "adamw", 5e-3, {"r": 8, "lora_alpha": 8}),
    "adamw8": ("gpt2", "adamw8", 1e-3, None),
    "qlora": ("llama", "adamw", 5e-3, {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "base": "nf4"}),
    "qlora-double": ("llama", "adamw", 5e-3, {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "base": "nf4-double"}),
    "lora-dropout": ("llama", "adamw", 5e-3, {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "lora_dropout": 0.2}),
    "lora-conv1d": ("gpt2", "adafactor", 1e-2, {"r": 2, "lora_alpha": 6, "target_modules": ALL_GPT2, "fan_in_fan_out": True}),
}


def build(model, what, dtype, folder):
    """The model as it trains.  Adapters begin as `folder` has them: made, where it is not there yet."""
    at = os.path.join(HERE, "..", "parity", model)
    base = parity.build(AutoConfig.from_pretrained(at), load_file(os.path.join(at, "init.safetensors")), dtype)
    if not isinstance(what, dict):
        for name, p in base.named_parameters():
            p.requires_grad_(what is None or what(name))
        return base
    what = dict(what)
    code_base(base, what.pop("base", None))
    tuned = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **what)).to(dtype)
    adapters = os.path.join(folder, "adapters")
    if not os.path.exists(adapters):
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for name, p in tuned.named_parameters():
                if "lora_" in name:         # PEFT's B is 0: half of the gradients would be
                    p.copy_(0.1 * torch.randn(p.shape, generator=generator))
        tuned.peft_config["default"].base_model_name_or_path = "../parity/" + model     # not where this script lies
        tuned.save_pretrained(adapters)
        os.remove(os.path.join(adapters, "README.md"))
    start = load_file(os.path.join(adapters, "adapter_model.safetensors"))
    own = dict(tuned.named_parameters())
    with torch.no_grad():
        for name, value in start.items():
            own[full_name(own, name)].copy_(value.to(dtype))
    count_dropout(tuned)
    return tuned.train()


def code_base(model, base):
    """Linear layers of blocks have what their weights in NF4 are worth; Linear4bit computes with that."""
    with torch.no_grad():
        for name, module in model.named_modules():
            if base and isinstance(module, torch.nn.Linear) and "lm_head" not in name:
                module.weight.copy_(blockwise.nf4(module.weight, base == "nf4-double").to(module.weight.dtype))


# ---- dropout: dpx's function of a counter (exec/kernels/rng.c, kernels_simd.h; exec_kernel.c, adapter_dropout()) ----

MASK = (1 << 64) - 1
RNG_ADAPTER, FOR_KEYS, SEED = 7, 1, 1
LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def philox(c, key):
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def rng_key(index):
    c = philox([index & 0xFFFFFFFF, index >> 32, RNG_ADAPTER, FOR_KEYS], SEED)
    return c[0] | c[1] << 32


def dropped(p, key, first, shape):
    """Whether each element is dropped, counted from `first` on."""
    n = int(np.prod(shape))
    z = np.arange(first + 1, first + 1 + n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z = z ^ z >> np.uint64(31)
    return torch.from_numpy((z >> np.uint64(32) < np.uint64(int(p * 2 ** 32))).reshape(shape))


class Counted(torch.nn.Module):
    """In place of an adapter's Dropout; `step` is the run's, from 1."""
    step = 0

    def __init__(self, p, block, layer):
        super().__init__()
        self.p, self.block, self.layer = p, block, layer

    def forward(self, x):
        key = rng_key((Counted.step * 4096 + self.block + 2) * 8 + self.layer)
        first = (Counted.step - 1) * parity.BATCH * x.shape[1] * x.shape[2]
        return torch.where(dropped(self.p, key, first, x.shape), torch.zeros_like(x), x * float(np.float32(1 / (1 - self.p))))


def count_dropout(tuned):
    for name, module in tuned.named_modules():
        if hasattr(module, "lora_dropout") and isinstance(module.lora_dropout["default"], torch.nn.Dropout):
            block = int(name.split(".layers.")[1].split(".")[0])
            module.lora_dropout["default"] = Counted(module.lora_dropout["default"].p, block, LAYERS.index(name.split(".")[-1]))


def check_lion():
    """Three steps of Lion32bit on the CPU."""
    from bitsandbytes.optim import Lion32bit
    generator = torch.Generator().manual_seed(3)
    mine = torch.nn.Parameter(torch.randn(5000, generator=generator))
    theirs = torch.nn.Parameter(mine.detach().clone())
    steps = [Lion([mine], 1e-2, (0.9, 0.99)), Lion32bit([theirs], lr=1e-2, betas=(0.9, 0.99))]
    for _ in range(3):
        mine.grad = torch.randn(5000, generator=generator)
        theirs.grad = mine.grad.clone()
        for s in steps:
            s.step()
    far = (mine - theirs).abs().max().item()
    if far > 1e-6:
        sys.exit(f"bitsandbytes' Lion is {far} away")


def full_name(own, saved):
    """The parameter that PEFT saves under a name without its adapter's."""
    for name in own:
        if name.replace(".default", "").replace(".modules_to_save", "") == saved and own[name].requires_grad:
            return name
    sys.exit(f"no parameter is saved as {saved}")


def run(model, optimizer, lr, what, dtype, folder, tokens):
    tuned = build(model, what, dtype, folder)
    named = [(n, p) for n, p in tuned.named_parameters() if p.requires_grad]
    trains = [p for _, p in named]
    steps = OPTIMIZERS[optimizer](named, lr)
    parity.LR, parity.MIN_LR = lr, lr / 10
    out = {"loss": [], "grad_norm": []}
    for step in range(parity.STEPS):
        for group in steps.param_groups:
            group["lr"] = parity.lr_of(step)
        steps.zero_grad()
        Counted.step = step + 1
        loss = parity.loss_of(tuned, *parity.batch_of(tokens, step), False)
        loss.backward()
        out["grad_norm"].append(torch.nn.utils.clip_grad_norm_(trains, parity.CLIP).item())
        steps.step()
        out["loss"].append(loss.item())
    out["trained"] = (get_peft_model_state_dict(tuned) if isinstance(what, dict) else
                      {n: p.detach() for n, p in tuned.named_parameters() if p.requires_grad})
    return out


def record(case, tokens):
    model, optimizer, lr, what = CASES[case]
    folder = os.path.join(HERE, "runs", case)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    fp32 = run(model, optimizer, lr, what, torch.float32, folder, tokens)     # first: it saves the adapters
    fp64 = run(model, optimizer, lr, what, torch.float64, folder, tokens)
    far = {"loss": parity.largest(fp32["loss"], fp64["loss"]), "grad_norm": parity.largest(fp32["grad_norm"], fp64["grad_norm"]),
           "trained": max(parity.distance(fp32["trained"], fp64["trained"]).values())}
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"model": model, "optimizer": optimizer, "lr": lr, "min_lr": lr / 10, "warmup": parity.WARMUP, "clip": parity.CLIP,
                   "loss": fp64["loss"], "loss_fp32": fp32["loss"], "grad_norm": fp64["grad_norm"], "fp32_from_fp64": far}, f, indent=1)
        f.write("\n")
    if isinstance(what, dict):
        parity.save(os.path.join(folder, "trained.safetensors"), fp64["trained"])
    print(f"{case}: {len(fp64['trained'])} tensors, loss {fp64['loss'][0]:.6f} -> {fp64['loss'][-1]:.6f}, norm "
          f"{fp64['grad_norm'][0]:.3f}; fp32 from fp64: loss {far['loss']:.1e}, norm {far['grad_norm']:.1e}, trained {far['trained']:.1e}")


def main():
    parity.exactly()
    check_lion()
    tokens = parity.make_tokens()
    for case in sys.argv[1:] or CASES:
        record(case, tokens)


main()
