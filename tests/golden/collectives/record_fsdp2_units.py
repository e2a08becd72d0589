#!/usr/bin/env python3
"""Record FSDP2's collectives where the embedding and the head are units of their own ("fsdp": {"root_units": ...}).

    python record_fsdp2_units.py OUTDIR [NAME ...]      all to OUTDIR/fsdp2-root-units.txt, the NAMEs given to files of their own

Written like record_torch.py's lists, and run by it: one rank, a process group that notes each call.  accelerate's units are made by
accelerate itself (utils/fsdp_utils.py, fsdp2_prepare_model()), which is given what it reads of an Accelerator.  torchtitan's and
NeMo Automodel's are made here with fully_shard(), as their code does: [norm, head] that is freed after forward (--parallelism.
fsdp-reshard-after-forward always), and a head without its norm (components/distributed/parallelizer.py)."""
import os
import sys
import types
import warnings

import accelerate
import record_torch as recorder
import torch
import torch.distributed as dist
import transformers
from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils
from families import FAMILIES, build as build_model, load_classes
from peft import LoraConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from record_torch import GPT2_TINY, LLAMA_TINY, block_list, groups, make

LLAMA_TIED = dict(LLAMA_TINY, tie_word_embeddings=True)
GPT2_UNTIED = dict(GPT2_TINY, tie_word_embeddings=False)
LORA = {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}
LORA_GPT2 = {"rank": 4, "alpha": 8, "target_modules": ["c_attn"]}


def mesh_of(plan):
    world, shard = dist.get_world_size(), plan.get("shard_group")
    names = ("dp_replicate", "dp_shard_cp") if shard else ("dp_shard_cp",)
    mesh = init_device_mesh("cpu", (world // shard, shard) if shard else (world,), mesh_dim_names=names)
    if shard:
        groups[frozenset(dist.get_process_group_ranks(mesh.get_group("dp_replicate")))] = "replica"
        groups[frozenset(dist.get_process_group_ranks(mesh.get_group("dp_shard_cp")))] = "shard"
    return mesh


def by_accelerate(case, model):
    plan, mesh = case["plan"], mesh_of(case["plan"])
    bf16 = plan["precision"] == "bf16"
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=[type(raw(block_list(model)[0])).__name__],
        cpu_ram_efficient_loading=False, reshard_after_forward=True)
    if bf16:
        plugin.set_mixed_precision("bf16")
    plugin.reshard_after_forward = plan["fsdp"].get("reshard_after_forward", True)
    reads = types.SimpleNamespace(state=types.SimpleNamespace(fsdp_plugin=plugin), torch_device_mesh=mesh, is_main_process=False,
                                  mixed_precision="bf16" if bf16 else "no", device=torch.device("cpu"),
                                  parallelism_config=types.SimpleNamespace(fsdp_dim_names=mesh.mesh_dim_names))
    return fsdp_utils.fsdp2_prepare_model(reads, model)


def raw(block):
    return getattr(block, "_checkpoint_wrapped_module", block)


def by_hand(case, model):
    """torchtitan's and Automodel's."""
    options, mesh = case["plan"]["fsdp"], mesh_of(case["plan"])
    embed, head, norm = model.get_input_embeddings(), model.get_output_embeddings(), model.model.norm
    ends = [head] if options["root_units"] == "embed-head" else [norm, head]
    tied = embed.weight is head.weight
    last = {"reshard_after_forward": options.get("root_reshard_after_forward", False)}
    units = {"reshard_after_forward": options.get("reshard_after_forward", True)}
    if tied:
        fully_shard([embed] + ends, mesh=mesh, **last)
    else:
        fully_shard(embed, mesh=mesh, **units)
        fully_shard(ends, mesh=mesh, **last)
    blocks = block_list(model)
    for i, block in enumerate(blocks):
        stays = {"reshard_after_forward": False} if options.get("keeps_last_unit") and i + 1 == len(blocks) else {}
        fully_shard(block, mesh=mesh, **(units | stays))
    if case["plan"].get("loss") == "linear-chunks":
        return LossInParts(model, mesh)
    return fully_shard(model, mesh=mesh)


class LossInParts:
    """torchtune's: the model returns hidden states, and the loss calls the head for each of 8 chunks (modules/loss/cross_entropy_loss.py)."""

    def __init__(self, model, mesh):
        model.forward = lambda input_ids: model.model(input_ids=input_ids).last_hidden_state
        self.model = fully_shard(model, mesh=mesh, reshard_after_forward=False)

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, input_ids, labels):
        hidden, total = self.model(input_ids=input_ids), torch.tensor(0.0)
        for x, y in zip(hidden.reshape(-1, hidden.shape[-1]).tensor_split(8), labels.reshape(-1).tensor_split(8)):
            total += torch.nn.functional.cross_entropy(self.model.lm_head(x).float(), y, reduction="sum")
        return types.SimpleNamespace(loss=total / labels.numel())


def build(config):
    lora = config.get("lora")
    model = build_model({k: v for k, v in config.items() if k != "lora"})
    if not lora:
        return model
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=lora["rank"], lora_alpha=lora["alpha"], target_modules=lora["target_modules"],
                                            fan_in_fan_out=config["model_type"] == "gpt2"))


def run(case, rank):
    recorder.build, recorder.wrap_fsdp2 = build, by_hand if case.get("by_hand") else by_accelerate
    if "lora" in case["plan"]:
        case = case | {"plan": case["plan"] | {"model": case["plan"]["model"] | {"lora": case["plan"]["lora"]}}}
    return recorded(case, rank)


recorded, recorder.run = recorder.run, run


def cases():
    c = []

    def add(name, what, config, world=4, *, units="apart", fsdp=None, lora=None, by_hand=False, chunks=False, **kw):
        case = make("fsdp2-apart-" + name, what, "fsdp2", config, world, fsdp={"root_units": units, **(fsdp or {})}, **kw)
        if chunks:
            case["plan"].update(loss="linear-chunks")
        if lora:
            case["plan"].update(train="lora", lora=lora)
        c.append(case | {"by_hand": by_hand})

    bf16 = dict(precision="bf16", reduce_dtype="bf16")
    hsdp = dict(shard_group=2, cluster="2x2xh100")
    for name, config in (("llama", LLAMA_TINY), ("llama-tied", LLAMA_TIED), ("gpt2", GPT2_TINY), ("gpt2-untied", GPT2_UNTIED)):
        add(name + "-w4", "accelerate's units", config)
        add(name + "-bf16-recompute-w3", "accelerate's units, bf16, every block checkpointed", config, 3, recompute="full", **bf16)
        add(name + "-acc3-nosync-w4", "accelerate's units, 3 micro-steps, no_sync() in 2", config, accumulation=3)
        add(name + "-acc3-sync-bf16-w4", "accelerate's units, 3 micro-steps, all reduced, bf16", config, accumulation=3, sync=True, **bf16)
        add(name + "-hsdp-2x2-acc2", "accelerate's units, HSDP, 2 micro-steps, no_sync() in 1, clipped", config, accumulation=2, clip=1.0, **hsdp)
        add(name + "-reshard-false-w4", "accelerate's units, reshard_after_forward False", config, fsdp={"reshard_after_forward": False})
        add(name + "-reshard-2-w4", "accelerate's units, reshard_after_forward 2", config, fsdp={"reshard_after_forward": 2})
    for name, config in (("llama", LLAMA_TINY), ("llama-tied", LLAMA_TIED)):
        add(name + "-lora-w4", "accelerate's units of PEFT's model: the last norm is not found", config, units="embed-head", lora=LORA)
        add(name + "-lora-recompute-acc2-w4", "accelerate's units of PEFT's model, checkpointed, no_sync() in 1 of 2", config, units="embed-head",
            lora=LORA, recompute="full", accumulation=2)
        always = {"root_reshard_after_forward": True}
        add(name + "-always-w4", "torchtitan's units, all freed after forward", config, fsdp=always, by_hand=True)
        add(name + "-always-hsdp-acc2", "torchtitan's units, all freed after forward, HSDP, 2 micro-steps, all reduced", config, fsdp=always,
            accumulation=2, sync=True, by_hand=True, **hsdp)
    add("llama-head-w4", "Automodel's units: the last norm is the root's", LLAMA_TINY, units="embed-head", by_hand=True)
    add("llama-chunks-w4", "torchtune's units and loss, which calls the head for each chunk", LLAMA_TINY, units="embed-head", by_hand=True, chunks=True,
        fsdp={"root_reshard_after_forward": True}, recompute="full")
    add("llama-chunks-kept-w4", "the same, a head that is not freed after forward", LLAMA_TINY, units="embed-head", by_hand=True, chunks=True)
    add("llama-chunks-hsdp-acc2", "torchtune's units and loss, HSDP, 2 micro-steps, all reduced", LLAMA_TINY, units="embed-head", by_hand=True, chunks=True,
        fsdp={"root_reshard_after_forward": True}, accumulation=2, sync=True, **hsdp)
    last = {"keeps_last_unit": True}
    add("llama-last-w4", "Automodel's units, whose last block is not freed after forward", LLAMA_TINY, units="embed-head", fsdp=last, by_hand=True)
    add("llama-last-recompute-acc3-nosync-w4", "likewise, checkpointed, no_sync() in 2 of 3", LLAMA_TINY, units="embed-head", fsdp=last, by_hand=True,
        recompute="full", accumulation=3)
    add("llama-last-reshard-2-w4", "likewise, the others to 2 ranks", LLAMA_TINY, fsdp=last | {"reshard_after_forward": 2}, by_hand=True)
    add("llama-tied-last-hsdp-acc2", "likewise, tied, HSDP, 2 micro-steps, all reduced", LLAMA_TIED, fsdp=last, accumulation=2, sync=True, by_hand=True,
        **hsdp)
    add("gpt2-lora-w4", "accelerate's units of PEFT's model", GPT2_TINY, lora=LORA_GPT2)
    add("opt-w4", "accelerate's units: the last norm is not found in OPT's decoder", FAMILIES["opt"], units="embed-head")
    for family in ("bloom", "gpt_neox", "qwen3", "olmo2", "gemma2", "phi", "falcon", "gptj"):
        if family in FAMILIES:
            add(family + "-w4", "accelerate's units", FAMILIES[family])
    return c


def main():
    outdir, wanted = sys.argv[1], sys.argv[2:]
    os.makedirs(outdir, exist_ok=True)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    files = {case["name"]: [case] for case in cases() if case["name"] in wanted} if wanted else {"fsdp2-root-units": cases()}
    for name, those in files.items():
        for case in those:
            load_classes(case["plan"]["model"])
            case["what"] += "" if case["by_hand"] else f" (accelerate {accelerate.__version__})"
        recorder.write(os.path.join(outdir, name + ".txt"), those, "record_fsdp2_units.py")
        print("recorded", name, flush=True)


if __name__ == "__main__":
    main()
