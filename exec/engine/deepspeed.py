"""The plan in DeepSpeed: deepspeed.initialize() with the configuration that `dpxplan export --to deepspeed` writes.

dpxrun starts it on every rank and says what to do in job.json (common.py reads it).  On the CPU torch.optim.AdamW stands for
DeepSpeed's FusedAdam, which is CUDA: it has no temporaries either; and for its CPUAdam, which would be compiled first."""
from dpx_common import cuda, job, loss_of, plan, prepare_deepspeed_on_cpu, start, to_device

import torch
import deepspeed


class Trainer:
    def __init__(self, model):
        if not cuda:
            prepare_deepspeed_on_cpu()
        if plan["recompute"] == "full":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if plan["precision"] == "bf16":
            model.to(torch.bfloat16)            # the engine would; here before anything counts
        to_device(model)
        deepspeed.init_distributed(dist_init_required=False, auto_mpi_discovery=False)
        config, trained = dict(job["config"]), [p for p in model.parameters() if p.requires_grad]
        form = plan.get("optimizer_form", "fused")
        words = {"lr": job["lr"][0], "betas": (job["beta1"], job["beta2"]), "eps": job["eps"], "weight_decay": job["weight_decay"]}
        given, away = None, (config["zero_optimization"].get("offload_optimizer") or {}).get("device", "none")
        if cuda and (away != "none" or form == "fused"):        # of states on the host DeepSpeedCPUAdam, which it compiles once
            config["optimizer"] = {"type": "AdamW", "params": words}
        else:
            config.pop("optimizer", None)
            config["zero_allow_untested_optimizer"], config["zero_force_ds_cpu_optimizer"] = True, False
            given = torch.optim.AdamW(trained, foreach=form == "foreach", fused=form == "fused", **words)
        self.engine = deepspeed.initialize(model=model, model_parameters=None if given else trained, optimizer=given, config=config)[0]

    def counters(self):
        """AdamW's of steps: on the host."""
        inner = self.engine.optimizer
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        return [s["step"] for s in inner.state.values() if torch.is_tensor(s.get("step"))]

    def step(self, given, lr):
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr
        total = 0.0
        for ids, labels in given:
            loss = loss_of(self.engine, ids, labels)
            self.engine.backward(loss)
            total += float(loss.detach()) / len(given)
            del loss
            self.engine.step()
        return total, self.engine.get_global_grad_norm() if plan["clip"] is not None else None


if __name__ == "__main__":
    start(Trainer, {"deepspeed": deepspeed.__version__})
