#!/usr/bin/env python3
"""Records when megatron-core computes the output layer's weight gradients with defer_embedding_wgrad_compute, and what waits for them.

    PYTHONPATH=WHERE_MEGATRON_IS python record_deferred.py > deferred.jsonl

With record_megatron.py beside it, whose stand-ins these are; the CUDA extension that adds products to main_grad is PyTorch's own product.
A line has a plan; what the pipeline's last rank does in a step, in order: F a forward, B a backward, P the output layer's product; and the bytes
that wait after the last backward."""
import copy
import json
import os
import sys
import types

stub = types.ModuleType("fused_weight_gradient_mlp_cuda")
sys.modules[stub.__name__] = stub
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record_megatron as rm
from alone import alone
from megatron.core.pipeline_parallel import schedules

config_of, did, head = rm.config_of, [], {}


def product(x, dy, grad):
    if grad.shape == head["shape"]:
        did.append("P")
    grad.add_(dy.float().t() @ x.float())


def config(case):
    made = config_of(case)
    made.gradient_accumulation_fusion = True
    made.defer_embedding_wgrad_compute = True
    made.wgrad_deferral_limit = case["plan"]["megatron"]["wgrad_deferral_limit"]
    return made


def waits(config, module, last, group):
    if last:
        head["waits"] = sum(x.numel() * x.element_size() for x in module.embedding_activation_buffer + module.grad_output_buffer)
    return finish(config, module, last, group)


stub.wgrad_gemm_accum_fp32 = stub.wgrad_gemm_accum_fp16 = product
rm.config_of = config
finish, back = schedules.finish_embedding_wgrad_compute, schedules.backward_step
schedules.finish_embedding_wgrad_compute = waits


def backward(*args, **more):
    did.append("B")
    return back(*args, **more)


schedules.backward_step = backward


class Run(rm.Run):
    def __init__(self, case, rank):
        super().__init__(case, rank)
        plain = copy.copy(self.config)      # local layers fail: only the output layer has the buffer (ColumnParallelLinear.forward())
        plain.defer_embedding_wgrad_compute = False
        for m in self.model:
            for layer in m.modules():
                if isinstance(layer, rm.tensor_parallel.ColumnParallelLinear) and layer.embedding_activation_buffer is None:
                    layer.config = plain
            for p in m.parameters():
                p.grad_added_to_main_grad = False
        head["shape"] = (self.vocab // case["plan"]["parallel"].get("tensor", 1), self.config.hidden_size)

    def forward_step(self, data, model):
        did.append("F")
        return super().forward_step(data, model)


def run(case, rank):
    rm.dist.init_process_group("megatron", store=rm.dist.HashStore(), rank=rank, world_size=case["world"])
    with rm.OnCPU():
        made = Run(case, rank)
        made.step()
        did.clear()
        made.step()
    return ["".join(did), head["waits"]]


def cases():
    for steps, limit, tensor in ((4, 0, 1), (4, 2, 1), (5, 3, 2), (2, 4, 1)):
        yield rm.make("deferred", "", 2 * tensor, grid=rm.pp(2) | ({"tensor": tensor, "sequence": False} if tensor > 1 else {}), layers=4, accumulation=steps,
                      strategy="ddp", precision="bf16", reduce_dtype="fp32", kernels="te", defer_embedding_wgrad_compute=True, wgrad_deferral_limit=limit)


for case in cases():
    order, bytes_ = alone(run, case, case["world"] - 1)
    print(json.dumps({"plan": case["plan"], "does": order, "waits": bytes_}, separators=(",", ":")))
