#!/usr/bin/env python3
"""Records in which dtypes accelerate leaves a model that was loaded in bf16 and got PEFT's adapters: what FSDP then keeps and gathers.

    python record_dtypes.py >> dtypes.jsonl         with each of accelerate 1.10.1, 1.12.0, 1.13.0, 1.15.0 (pip install accelerate==...)

accelerate's own fsdp2_prepare_model() and Accelerator.prepare_model() run, on the CPU with a process group that answers at once.  A line is
one model: "fsdp" 1 or 2, "base" bf16 or nf4 (bitsandbytes' Linear4bit, bnb_4bit_quant_storage bf16), "cast": PEFT's autocast_adapter_dtype.
"trains" and "frozen" hold the dtypes of shards (FSDP1: of FlatParameters), "fails" what was raised instead.  With FSDP1 adapters are units of
their own, as the Trainer has it, or ("apart" false) in their block's, with use_orig_params.
"""
import json
import warnings

import accelerate
import bitsandbytes as bnb
import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import DistributedType
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from peft import LoraConfig, get_peft_model
from peft.utils.other import fsdp_auto_wrap_policy
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=128, max_position_embeddings=64)


def model_of(base, cast):
    model = LlamaForCausalLM(CONFIG).to(torch.bfloat16)
    if base == "nf4":
        for name, module in list(model.named_modules()):
            if type(module) is torch.nn.Linear and module is not model.get_output_embeddings():
                layer = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4",
                                          quant_storage=torch.bfloat16)
                layer.weight.data = module.weight.data
                model.set_submodule(name, layer.to("cpu"))
        model.is_loaded_in_4bit = True
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"), autocast_adapter_dtype=cast)


def plugin_of(version, model, apart):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=version, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False,
                                            transformer_cls_names_to_wrap=["LlamaDecoderLayer"])
    plugin.set_mixed_precision("bf16")
    plugin.set_auto_wrap_policy(model)
    plugin.use_orig_params = not apart
    if version == 1 and apart:
        plugin.auto_wrap_policy = fsdp_auto_wrap_policy(model)      # update_fsdp_plugin_peft()
    return plugin


class Stub(Accelerator):
    """What prepare_model() asks of an accelerator, without its search for GPUs."""

    def __init__(self, plugin, version):
        self.state = type("State", (), dict(fsdp_plugin=plugin, dynamo_plugin=type("Dynamo", (), {"backend": accelerate.utils.DynamoBackend.NO}),
                                            mixed_precision="bf16", is_main_process=False, num_processes=2, distributed_type=DistributedType.FSDP,
                                            device=torch.device("cpu"), is_fsdp2=version == 2, parallelism_config=None, device_mesh=None,
                                            process_index=1, local_process_index=1, deepspeed_plugin=None, torch_tp_plugin=None,
                                            use_distributed=True))()
        self._models, self.native_amp, self.delayed_fp8_autocast = [], False, False
        self.has_fp8_handler = False
        self.fp8_recipe_handler = self.ao_recipe_handler = self.te_recipe_handler = None
        self.device_placement = False


def dtypes(parameters):
    return sorted({str(p.dtype).split(".")[1] for p in parameters})


def prepared(version, base, cast, apart):
    row = {"accelerate": accelerate.__version__, "torch": torch.__version__.split("+")[0], "fsdp": version, "base": base, "cast": cast}
    if version == 1:
        row["apart"] = apart
    model = model_of(base, cast)
    accelerator = Stub(plugin_of(version, model, apart), version)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        if version == 2:
            parameters = list(fsdp2_prepare_model(accelerator, model).parameters())
        else:
            model = accelerator.prepare_model(model, device_placement=False)
            parameters = [m._flat_param for m in FullyShardedDataParallel.fsdp_modules(model) if m._has_params]
        row["trains"], row["frozen"] = (dtypes(p for p in parameters if p.requires_grad == wanted) for wanted in (True, False))
    except ValueError as e:
        row["fails"] = str(e)
    finally:
        dist.destroy_process_group()
    return row


def main():
    warnings.simplefilter("ignore")
    for version in (1, 2):
        for base in ("bf16", "nf4"):
            for cast in (True, False):
                for apart in (True, False)[:3 - version]:
                    print(json.dumps(prepared(version, base, cast, apart)), flush=True)


if __name__ == "__main__":
    main()
