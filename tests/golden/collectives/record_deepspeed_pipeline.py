#!/usr/bin/env python3
"""Records the collectives and messages of DeepSpeed's PipelineEngine, as record_deepspeed.py does those of its other engines.

    python record_deepspeed_pipeline.py OUTDIR [CASE ...]          writes OUTDIR/pipeline.txt, or some of its lists to the output

Each case trains a PipelineModule for three optimizer steps (train_batch()) on two to four CPU ranks over gloo.  Its list of layers is
the token embedding, learned positions where there are any, each block of transformers' model, the final norm and the head; a tied
head is a TiedLayerSpec of the token embedding.  A line of a message is `send pipe/N dtype elements to K` or `recv ... from K`, K the
peer's stage.  What PipelineEngine refuses, or does not survive, is at the end of the file as comments, with the error.
"""
import json
import os
import sys
import tempfile
import time

import record_deepspeed as base
from record_deepspeed import MICRO_BATCH, MODELS, SEQ, SMALL, TINY, deepspeed, td, torch, transformers
import families

import torch.multiprocessing as mp
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec


def case(model, stage, precision, pp, world=None, accumulation=4, clip=None, recompute="none", method="parameters", micro=MICRO_BATCH, **ds):
    return dict(model=model, stage=stage, precision=precision, pp=pp, world=world or pp, accumulation=accumulation, clip=clip,
                recompute=recompute, method=method, micro=micro, ds=ds)


CASES = {
    "s1_llama_bf16_pp2":                 case("llama", 1, "bf16", 2),
    "s1_llama_bf16_pp2_w4_clip":         case("llama", 1, "bf16", 2, 4, 3, clip=1.0, **SMALL),
    "s1_llama_fp32_pp4_gas6":            case("llama", 1, "fp32", 4, 4, 6, **SMALL),
    "s1_llama_bf16_pp4_gas2":            case("llama", 1, "bf16", 4, 4, 2),
    "s1_llama_bf16_pp2_gas1":            case("llama", 1, "bf16", 2, 2, 1),
    "s1_llama_bf16_pp3_uniform":         case("llama", 1, "bf16", 3, method="uniform"),
    "s1_llama_fp16_pp3_type":            case("llama", 1, "fp16", 3, method="type:block", **TINY),
    "s1_llama_bf16_pp2_recompute":       case("llama", 1, "bf16", 2, 4, recompute="full", **SMALL),
    "s1_llama_bf16_pp2_w4_noncontiguous": case("llama", 1, "bf16", 2, 4, contiguous_gradients=False, **SMALL),
    "s1_llama_bf16_pp2_w4_multirank_off": case("llama", 1, "bf16", 2, 4, use_multi_rank_bucket_allreduce=False, **SMALL),
    "s1_llama_bf16_pp2_w4_nooverflow":   case("llama", 1, "bf16", 2, 4, check_grad_overflow=False, **SMALL),
    "s1_gpt2_bf16_pp2":                  case("gpt2", 1, "bf16", 2, method="type:block"),
    "s1_gpt2_bf16_pp3_gas5":             case("gpt2", 1, "bf16", 3, 3, 5, method="type:block", **TINY),
    "s1_gpt2_fp32_pp2_w4":               case("gpt2", 1, "fp32", 2, 4, clip=1.0, method="type:block", **SMALL),
    "s1_gpt2_bf16_pp2_w4_accum_fp32":    case("gpt2", 1, "bf16", 2, 4, clip=1.0, method="type:block", grad_accum_dtype="fp32"),
    "s0_llama_fp32_pp2_w4_clip":         case("llama", 0, "fp32", 2, 4, clip=1.0),
    "s0_gpt2_fp32_pp2_w4":               case("gpt2", 0, "fp32", 2, 4, method="type:block"),
    "s0_gpt2_fp16_pp2_w4":               case("gpt2", 0, "fp16", 2, 4, clip=1.0, method="type:block"),
    "s0_llama_bf16_pp2_w4":              case("llama", 0, "bf16", 2, 4),
    "s0_gpt2_bf16_pp3":                  case("gpt2", 0, "bf16", 3, method="type:block"),
}
REFUSED = {
    "s2_llama_bf16_pp2":                 case("llama", 2, "bf16", 2),
    "s3_llama_bf16_pp2":                 case("llama", 3, "bf16", 2),
}


# ------------------------------------------------------------------------------------------ layers

class Tokens(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(config.vocab_size, config.hidden_size) * 0.02)

    def forward(self, ids):
        return torch.nn.functional.embedding(ids, self.weight)


class Positions(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(config.max_position_embeddings, config.hidden_size) * 0.02)

    def forward(self, h):
        return h + self.weight[:h.shape[1]]


class Block(torch.nn.Module):
    """A block of transformers, with its own rotary tables."""

    def __init__(self, make, rotary, config, index):
        super().__init__()
        self.block = make(config, index)
        self.rotary = rotary(config) if rotary else None

    def forward(self, h):
        positions = torch.arange(h.shape[1], device=h.device)[None]
        words = {"position_embeddings": self.rotary(h, positions)} if self.rotary else {}
        out = self.block(h, **words)
        return out[0] if isinstance(out, tuple) else out


def tied_head(tokens, h):
    return torch.nn.functional.linear(h, tokens.weight)


def loss_of(logits, labels):
    """transformers' ForCausalLMLoss()."""
    logits = logits.float()
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), shifted.view(-1))


def layers(c):
    made = families.load_classes(MODELS[c["model"]])[0]
    config = made(**{k: v for k, v in MODELS[c["model"]].items() if k not in ("model_type", "architectures")})
    config._attn_implementation = "sdpa"
    tied = MODELS[c["model"]]["tie_word_embeddings"]
    if MODELS[c["model"]]["model_type"] == "gpt2":
        from transformers.models.gpt2 import modeling_gpt2 as code
        make, rotary, norm = code.GPT2Block, None, (torch.nn.LayerNorm, config.hidden_size)
    else:
        from transformers.models.llama import modeling_llama as code
        make, rotary, norm = code.LlamaDecoderLayer, code.LlamaRotaryEmbedding, (code.LlamaRMSNorm, config.hidden_size)
    return ([TiedLayerSpec("tokens", Tokens, config) if tied else LayerSpec(Tokens, config)] +
            ([] if rotary else [LayerSpec(Positions, config)]) +
            [LayerSpec(Block, make, rotary, config, i) for i in range(config.num_hidden_layers)] +
            [LayerSpec(*norm)] +
            [TiedLayerSpec("tokens", Tokens, config, forward_fn=tied_head) if tied else
             LayerSpec(torch.nn.Linear, config.hidden_size, config.vocab_size, bias=False)])


# --------------------------------------------------------------------------------------- groups

grid = [None, None]     # PipelineParallelGrid, PipelineModule
heard = []              # (line before the group, group, line after it, its peer)


def name_of(group):
    ranks = td.get_process_group_ranks(group) if group is not None else list(range(td.get_world_size()))
    tied = any(group is d["group"] for d in grid[1].tied_comms.values())
    stages = {grid[1].topology().get_coord(r).pipe for r in ranks}
    if tied:
        return "tied/%d" % len(ranks)
    if len(stages) > 1:
        return "pipe/%d" % len(ranks)
    return "data/%d" % len(ranks)


def listen_to_messages(name, op):
    real = getattr(base.c10d, name)

    def sent(tensor, dst=None, *args, src=None, **kwargs):
        peer = dst if dst is not None else src
        base.log.append((op, base.DTYPES[tensor.dtype], tensor.numel(), peer))
        base.nested[0] += 1
        try:
            return real(tensor, peer, *args, **kwargs)
        finally:
            base.nested[0] -= 1

    setattr(base.c10d, name, sent)
    setattr(td, name, sent)


def listen_to_everything():
    """Group names wait until the pipeline's groups are known."""
    base.group_name = lambda group: "@%d@" % (heard.append(group) or len(heard) - 1)
    base.listen_to_everything()
    listen_to_messages("send", "send")
    listen_to_messages("recv", "recv")


def take():
    out = []
    for line in base.take():
        if isinstance(line, tuple):
            op, dtype, elements, peer = line
            stage = grid[1].topology().get_coord(peer).pipe
            out.append("%s pipe/%d %s %d %s %d" % (op, grid[1].num_stages, dtype, elements, "to" if op == "send" else "from", stage))
            continue
        at, rest = line.split("@")[1], line.split("@")
        out.append(rest[0] + name_of(heard[int(at)]) + rest[2])
    return out


def ds_config(c):
    config = base.ds_config(dict(c, tp=1))
    config["train_micro_batch_size_per_gpu"] = c["micro"]
    if c["recompute"] == "full":
        config["pipeline"] = {"activation_checkpoint_interval": 1}
    return config


def plan(c):
    version = {"framework_version": deepspeed.__version__} if deepspeed.__version__ != base.DPX_DEFAULT else {}
    return {"dpx_plan": 1, **version, "model": MODELS[c["model"]], "cluster": "localhost:%d" % c["world"],
            "strategy": ["ddp", "zero1", "zero2", "zero3"][c["stage"]], "dialect": "deepspeed", "kernels": "torch-sdpa", "seq": SEQ,
            "micro_batch": c["micro"], "accumulation": c["accumulation"], "precision": c["precision"], "clip": c["clip"],
            "parallel": {"pipeline": c["pp"]}, "recompute": c["recompute"], "dropout": 0.0,
            "deepspeed": dict(c["ds"], partition_method=c["method"])}


# ------------------------------------------------------------------------------------- one rank

def batches(c, rank):
    torch.manual_seed(100 + rank)
    while True:
        ids = torch.randint(MODELS[c["model"]]["vocab_size"], (c["micro"], SEQ))
        yield ids, ids


def prepare_checkpointing():
    """DeepSpeed's makes a stream for copies, which the CPU's accelerator has none of."""
    type(deepspeed.accelerator.get_accelerator()).Stream = property(lambda self: lambda **words: None)


def rank_main(rank, c, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(c["world"]))
    torch.set_num_threads(1)
    quiet = os.open(os.path.join(folder, "log%d" % rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    base.prepare()
    prepare_checkpointing()
    listen_to_everything()
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=rank, world_size=c["world"],
                               init_method="file://%s/store" % folder)
    base.take()
    model = PipelineModule(layers(c), num_stages=c["pp"], loss_fn=loss_of, partition_method=c["method"], checkpointable_layers=["Block"])
    grid[1] = model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config(c))
    phases = [("init", take())]
    data = batches(c, rank % (c["world"] // c["pp"]))
    for step in ("first", "steady", "steady2"):
        loss = engine.train_batch(data)
        phases.append((step, take()))
        assert torch.isfinite(loss)
    assert engine.skipped_steps == 0, "a step overflowed: the lists would not be typical"
    with open(os.path.join(folder, "out%d" % rank), "w") as f:
        json.dump({"phases": phases, "optimizer": type(engine.optimizer).__name__, "adam": "torch.optim.AdamW", "parts": [int(n) for n in model.parts]}, f)
    os._exit(0)


def train(c):
    """What each rank recorded, and the last lines of the first rank that failed."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [mp.get_context("fork").Process(target=rank_main, args=(r, c, folder)) for r in range(c["world"])]
        for p in ranks:
            p.start()
        deadline = time.monotonic() + 120
        while any(p.exitcode is None for p in ranks) and not any(p.exitcode for p in ranks) and time.monotonic() < deadline:
            time.sleep(0.1)
        if all(p.exitcode == 0 for p in ranks):
            return [json.load(open(os.path.join(folder, "out%d" % r))) for r in range(c["world"])], None
        for p in ranks:
            p.kill()
        return None, [open(os.path.join(folder, "log%d" % r), errors="replace").read() for r in range(c["world"])]


def recording(name, c):
    results, logs = train(c)
    if not results:
        print("%s failed:\n%s" % (name, "\n".join("\n".join(log.splitlines()[-12:]) for log in logs)), file=sys.stderr, flush=True)
        return []
    first = results[0]
    out = ["", "list " + name,
           "# %d CPU ranks (gloo); engine.optimizer is %s; %s, one parameter group; layers %s"
           % (c["world"], first["optimizer"], first["adam"], first["parts"]),
           "# ds_config " + json.dumps(ds_config(c)), "plan " + json.dumps(plan(c))]
    for rank, result in enumerate(results):
        out.append("rank %d" % rank)
        for phase, lines in result["phases"]:
            if phase != "steady2" or lines != result["phases"][2][1]:
                out += [phase] + base.collapse(lines)
    print("recorded", name, file=sys.stderr, flush=True)
    return out


def refusal(name, c):
    results, logs = train(c)
    lines = [line for log in logs or [] for line in log.splitlines() if "Error" in line]
    return "#     %s: %s" % (name, "ran" if results else lines[-1] if lines else "no answer")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    names = sys.argv[2:]
    for c in CASES.values():
        families.load_classes(MODELS[c["model"]])
    out = ["# recorded by record_deepspeed_pipeline.py: deepspeed %s, torch %s, transformers %s"
           % (deepspeed.__version__, torch.__version__, transformers.__version__)]
    for name in names or CASES:
        out += recording(name, {**CASES, **REFUSED}[name])
    if names:
        print("\n".join(out))
        return
    out += ["", "# What does not run, and its error:"] + [refusal(name, c) for name, c in REFUSED.items()]
    with open(os.path.join(sys.argv[1], "pipeline.txt"), "w") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
