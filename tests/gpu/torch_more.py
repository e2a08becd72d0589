"""What torch_steps.py trains beyond PyTorch itself: torchao's float8 layers and bitsandbytes' 4-bit weights."""
import torch
from torch import nn


def linear_layers(model):
    head = model.get_output_embeddings()
    return [(name, m) for name, m in model.named_modules() if type(m) is nn.Linear and m is not head]


def to_float8(model, plan):
    """torchao's, of all linear layers but the head."""
    import dataclasses
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    config = Float8LinearConfig.from_recipe_name(plan["fp8"])
    if plan.get("fsdp", {}).get("enable_fsdp_float8_all_gather"):
        config = dataclasses.replace(config, enable_fsdp_float8_all_gather=True)
    chosen = {id(m) for _, m in linear_layers(model)}
    return convert_to_float8_training(model, config=config, module_filter_fn=lambda module, name: id(module) in chosen)


def to_nf4(model, double):
    """bitsandbytes' Linear4bit in place of linear layers but the head; each weight is quantised on the GPU."""
    import bitsandbytes as bnb
    for name, module in linear_layers(model):
        layer = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=module.bias is not None, compute_dtype=torch.bfloat16,
                                  compress_statistics=double, quant_type="nf4", device="meta")
        layer.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, compress_statistics=double, quant_type="nf4", module=layer)
        if module.bias is not None:
            layer.bias = module.bias
        model.set_submodule(name, layer.to("cuda"))
    model.is_loaded_in_4bit = True
    return model
