#!/usr/bin/env python3
"""What torch.amp.GradScaler and DeepSpeed's scalers make of a row of steps, with and without overflow.

    python record_scalers.py >scalers.txt          torch 2.15.0, deepspeed 0.19.8

A line: whose, the first scale, and then N STEPS SCALE: after N more steps, which overflowed (over) or did not (good), it is SCALE.
"""
import contextlib
import sys
import types

import torch
with contextlib.redirect_stdout(sys.stderr):        # it logs there while it is loaded
    import deepspeed  # noqa: F401
from deepspeed.runtime.fp16 import fused_optimizer, loss_scaler
from deepspeed.runtime.precision_config import DeepSpeedFP16Config

ROWS = [
    [(3, "over"), (1999, "good"), (1, "good"), (1, "over"), (2000, "good"), (2000, "good")],
    [(1, "good"), (1, "over"), (1, "good"), (1, "over"), (1, "over"), (999, "good"), (1, "good"), (1, "good"), (1, "over"), (1, "over")],
    [(999, "good"), (1, "good"), (1, "good"), (998, "good"), (1, "good"), (1, "good"), (1, "good"), (2, "over"), (1, "over")],
    [(16, "over"), (1, "good"), (1001, "good"), (2, "over")],
]


class Torch:
    def __init__(self):
        self.p = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([self.p], lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu")
        self.scaler.scale(torch.zeros(1))

    def step(self, overflow):
        self.p.grad = torch.tensor([float("inf") if overflow else 1.0])
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def scale(self):
        return self.scaler.get_scale()


class DeepSpeed:
    """Stages 1 to 3."""

    def __init__(self):
        self.scaler = loss_scaler.CreateLossScaler(torch.half, 0, True, DeepSpeedFP16Config(enabled=True).dynamic_loss_scale_args())

    def step(self, overflow):
        self.scaler.update_scale(overflow)

    def scale(self):
        return self.scaler.cur_scale


class DeepSpeed0:
    """FP16_Optimizer."""

    def __init__(self):
        c = DeepSpeedFP16Config(enabled=True)
        self.of = types.SimpleNamespace(verbose=False, loss_scale_config=loss_scaler.LossScaleConfig(
            torch.float16, True, 0, c.dynamic_loss_scale_args(), initial_dynamic_scale=c.initial_dynamic_scale()))

    def step(self, overflow):
        fused_optimizer.FP16_Optimizer._update_scale(self.of, overflow)

    def scale(self):
        return self.of.loss_scale_config.cur_scale


def main():
    loss_scaler.dist.get_rank = lambda: 1       # it asks before it logs
    for name, make in (("torch", Torch), ("deepspeed", DeepSpeed), ("deepspeed-0", DeepSpeed0)):
        for row in ROWS:
            scaler = make()
            line = [name, f"{scaler.scale():g}"]
            for n, kind in row:
                for _ in range(n):
                    scaler.step(kind == "over")
                line += [str(n), kind, f"{scaler.scale():.17g}"]
            print(*line)


main()
