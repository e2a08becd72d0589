"""What the recorders of this folder share: a plan's linear layers as torchao's, and tensor parallelism with its styles."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", folder) for folder in ("grid", "memory", "collectives")]

import torch
from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training, precompute_float8_dynamic_scale_for_fsdp
from torchao.float8.float8_tensor_parallel import Float8ColwiseParallel, Float8RowwiseParallel, PrepareFloat8ModuleInput

import grid


def config_of(plan, emulate=False):
    if plan["fp8"] == "tensorwise":
        return Float8LinearConfig(enable_fsdp_float8_all_gather=plan.get("fsdp", {}).get("enable_fsdp_float8_all_gather", False), emulate=emulate)
    config = Float8LinearConfig.from_recipe_name(plan["fp8"])
    if emulate:
        object.__setattr__(config, "emulate", True)
    return config


def convert(model, plan, emulate=False):
    """torchtitan's module_filter_fn: the head and what is no multiple of 16 stay."""
    names = plan.get("fp8_filter", ["lm_head"])

    def chosen(module, name):
        return (isinstance(module, nn.Linear) and module.in_features % 16 == 0 and module.out_features % 16 == 0
                and not any(part in name for part in names))

    return convert_to_float8_training(model, config=config_of(plan, emulate), module_filter_fn=chosen)


def after_step(model, plan):
    if plan.get("fsdp", {}).get("precompute_float8_dynamic_scale_for_fsdp"):
        precompute_float8_dynamic_scale_for_fsdp(model)


def tensor_styles(plan):
    """torchtitan: with tensorwise scales, styles that gather in float8 in blocks (models/llama3/infra/parallelize.py of 0.2.2)."""
    if plan["fp8"] != "tensorwise":
        return
    plain, styles = grid.tensor_plan, {"ColwiseParallel": Float8ColwiseParallel, "RowwiseParallel": Float8RowwiseParallel,
                                       "PrepareModuleInput": PrepareFloat8ModuleInput}

    def float8_plan(sizes, block):
        was = {name: getattr(grid, name) for name in styles}
        for name, style in styles.items():
            setattr(grid, name, style)
        try:
            return plain(sizes, block)
        finally:
            for name, style in was.items():
                setattr(grid, name, style)

    grid.tensor_plan = float8_plan
