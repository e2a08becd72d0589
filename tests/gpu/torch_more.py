"""What torch_steps.py trains beyond PyTorch itself: torchao's float8 layers, bitsandbytes' 4-bit weights, DeepSpeed's engine."""
import json
import os
import subprocess
import tempfile

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


def config_of(plan):
    """What `dpxplan export --to deepspeed` writes of it."""
    build = os.environ.get("DPX_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build"))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(plan, f)
        f.flush()
        return json.loads(subprocess.run([build + "/dpxplan", "export", "--to", "deepspeed", f.name], stdout=subprocess.PIPE, check=True).stdout)


def engine_of(model, plan):
    import deepspeed
    from torch import distributed
    if not distributed.is_initialized():
        os.environ.update(LOCAL_RANK="0", RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
        deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False)
    trained = [p for p in model.parameters() if p.requires_grad]
    return deepspeed.initialize(model=model, model_parameters=trained, config=config_of(plan))[0]


def engine_step(engine, ids, plan):
    for _ in range(plan.get("accumulation", 1)):
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        engine.backward(loss)
        del loss
        engine.step()
