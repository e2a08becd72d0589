"""One GPU that no DistributedDataParallel wraps, with its optimizer behind backward or within it, for record_torch_memory.py --cases alone."""
import torch


class InBackward:
    """torchtune 0.6, training/_optim_utils.py (create_optim_in_bwd_wrapper(), register_optim_in_bwd_hooks()): an optimizer of each parameter,
    which steps when its gradient has been accumulated and then frees it."""

    def __init__(self, model, make):
        self.optimizers = {p: make([p]) for p in model.parameters()}
        for p in self.optimizers:
            p.register_post_accumulate_grad_hook(self.update)

    def update(self, param):
        self.optimizers[param].step()
        self.optimizers[param].zero_grad()

    def step(self):
        pass

    def zero_grad(self, set_to_none=True):
        pass


def optimizer_of(model, plan, make):
    return InBackward(model, make) if plan.get("ddp", {}).get("optimizer_in_backward") else make(model.parameters())


def optimizers(optimizer):
    return list(optimizer.optimizers.values()) if isinstance(optimizer, InBackward) else [optimizer]


def alone_cases(plan_of):
    def plan(model, within=False, pure=False, **more):
        p = plan_of(model, "ddp", world=1, **more)
        p["ddp"] = {"wrapped": False} | ({"optimizer_in_backward": True} if within else {}) | ({"model_dtype": "bf16"} if pure else {})
        if within:
            p["clip"] = None
        return p
    for model in ("gpt2-10m", "llama-10m", "llama-15m-gqa-tied"):
        for pure in (False, True):
            small = {"pure": pure, "batch": 1, "seq": 64}           # gradients outweigh activations
            yield plan(model, **small)
            yield plan(model, **small, accumulation=3)
            yield plan(model, **small, clip=1.0, optimizer_form="fused")
            yield plan(model, True, **small, optimizer_form="fused")
            yield plan(model, True, pure=pure, batch=4, seq=512, recompute="full", optimizer_form="fused")
    yield plan("llama-1b", True, pure=True, batch=2, seq=2048, recompute="full", optimizer_form="fused")
    yield plan("llama-1b", pure=True, batch=2, seq=2048, recompute="full", optimizer_form="fused")
