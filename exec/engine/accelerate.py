"""The plan in accelerate: Accelerator.prepare() under the configuration that `dpxplan export --to accelerate` writes.

dpxrun starts it on every rank and says what to do in job.json (common.py reads it).  The configuration is read by the code of
`accelerate launch`, into the environment that it gives a script's ranks.  Each rank has the whole model here, so that nothing is
loaded by one and sent to the others.  On the CPU accelerate knows no FSDP and no DeepSpeed: there it is told that the ranks that meet
over gloo are several GPUs, and that their device is the CPU."""
import json
import os

from dpx_common import cuda, device, job, loss_of, need, plan, prepare_deepspeed_on_cpu, rank, start, to_device, units_moved_on_cpu

import torch
import accelerate
from accelerate.commands import launch as launcher
from accelerate.utils import launch as environment

config = job["config"]
kind = config["distributed_type"]
fsdp1 = kind == "FSDP" and config["fsdp_config"]["fsdp_version"] == 1


def read_configuration():
    path = os.path.join(job["folder"], "accelerate%d.json" % rank)
    if kind == "FSDP":
        config["fsdp_config"].update(fsdp_cpu_ram_efficient_loading=False, fsdp_sync_module_states=False)
    with open(path, "w") as f:
        json.dump(config, f)
    args = need(launcher, "launch_command_parser")().parse_args(["--config_file", path, "--main_process_port", "0", "script"])
    args.num_cpu_threads_per_process = job["threads"]
    args = need(launcher, "_validate_launch_command")(args)[0]
    if kind == "DEEPSPEED":
        args.deepspeed_fields_from_accelerate_config = ",".join(config["deepspeed_config"])
        return need(environment, "prepare_deepspeed_cmd_env")(args)[1]
    return need(environment, "prepare_multi_gpu_env")(args)


def on_cpu():
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType
    if kind in ("MULTI_GPU", "NO"):
        os.environ["ACCELERATE_USE_CPU"] = "true"
        return
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState._prepare_backend = lambda self, *args: ("gloo", DistributedType.MULTI_GPU)
    if kind == "DEEPSPEED":
        prepare_deepspeed_on_cpu()
    else:
        units_moved_on_cpu()


class Trainer:
    def __init__(self, model):
        mine = {k: os.environ[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        os.environ.update(read_configuration())
        os.environ.update(mine)
        if not cuda:
            on_cpu()
        GradientAccumulationPlugin = need(accelerate.utils, "GradientAccumulationPlugin")
        self.accelerator = accelerate.Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(
            num_steps=plan["accumulation"], sync_each_batch=plan["sync_every_micro_step"] and kind != "DEEPSPEED"))
        if kind == "DEEPSPEED":
            self.accelerator.state.deepspeed_plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = plan["micro_batch"]
            self.accelerator.state.deepspeed_plugin.deepspeed_config["zero_allow_untested_optimizer"] = True
            if plan["recompute"] == "full":         # DDP's and DeepSpeed's are the script's
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if not fsdp1:
            to_device(model)
        if fsdp1:       # its parameters are others afterwards
            model = self.accelerator.prepare(model)
        form = plan.get("optimizer_form", "fused")
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=job["lr"][0], betas=(job["beta1"], job["beta2"]),
                                      eps=job["eps"], weight_decay=job["weight_decay"], foreach=form == "foreach", fused=form == "fused")
        if fsdp1:
            self.model, self.optimizer = model, self.accelerator.prepare(optimizer)
        else:
            self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def counters(self):
        """Of AdamW's steps: on the host, but for the fused form."""
        inner = self.optimizer
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        return [s["step"] for s in inner.state.values() if torch.is_tensor(s.get("step")) and plan.get("optimizer_form") != "fused"]

    def step(self, given, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        total, norm = 0.0, None
        for ids, labels in given:
            with self.accelerator.accumulate(self.model):
                loss = loss_of(self.model, ids, labels)
                self.accelerator.backward(loss)
                total += float(loss.detach()) / len(given)
                del loss
                if self.accelerator.sync_gradients and plan["clip"] is not None:
                    norm = self.accelerator.clip_grad_norm_(self.model.parameters(), plan["clip"])
                self.optimizer.step()
                self.optimizer.zero_grad()
        return total, getattr(norm, "full_tensor", lambda: norm)()


if __name__ == "__main__":
    start(Trainer, {"accelerate": accelerate.__version__})
