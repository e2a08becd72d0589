#!/usr/bin/env python3
"""Records the collectives of fine-tuning: LoRA by PEFT, and frozen tensors.

    python record_lists.py torch|deepspeed|torch-mixtures|deepspeed-mixtures|torch-copies lists/FILE.txt [CASE ...]

Models, wrappers and the process groups that write down what is issued are those of ../collectives/record_torch.py and
record_deepspeed.py; between a model's construction and its wrapping, PEFT's adapters are added or tensors frozen, as the
plan's "train" and "lora" say.  The format is that of ../collectives/README.md.
"""
import fnmatch
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "collectives"))

EVERY = {"rank": 4, "target_modules": "all-linear"}
LORA = {"train": "lora", "lora": EVERY}
USUAL = {"train": "lora", "lora": {"rank": 8}}
SAVED = {"train": "lora", "lora": dict(EVERY, modules_to_save=["embed_tokens", "lm_head"])}
NORM = {"train": "lora", "lora": {"rank": 4, "target_modules": ["down_proj", "o_proj"], "modules_to_save": ["model.norm"]}}
HEAD = {"train": "lora", "lora": {"rank": 4, "target_modules": ["q_proj", "v_proj", "lm_head"]}}
ENDS = {"train": "lora", "lora": {"rank": 4, "target_modules": ["q_proj", "embed_tokens", "lm_head"]}}
BIASES = {"train": ["*.bias"]}
NORMS = {"train": ["*norm.weight"]}
MLPS = {"train": ["*.mlp.*", "model.embed_tokens.weight"]}
WORDS = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout"}


def reads_head(model, kind):
    """A loss that reads the head's weight outside of the head's forward: Liger-Kernel's makes gradients in its forward, cut-cross-entropy keeps the
    weight for backward.  Their kernels are CUDA: here their sums in PyTorch."""
    import torch
    from transformers.modeling_outputs import CausalLMOutputWithPast

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, labels):
            ctx.kept = (x.detach(), labels, torch.softmax(x @ w.t(), -1) @ w, x.new_ones(w.shape)) if kind == "fused-linear" else None
            if kind != "fused-linear":
                ctx.save_for_backward(x, w)
            return (x @ w.t()).float().logsumexp(-1).mean()

        @staticmethod
        def backward(ctx, g):
            if ctx.kept:
                return ctx.kept[2] * g, ctx.kept[3] * g, None
            x, w = ctx.saved_tensors
            return torch.softmax(x @ w.t(), -1) @ w * g, torch.ones_like(w) * g, None

    def forward(input_ids=None, labels=None, **kwargs):
        hidden = model.model(input_ids=input_ids).last_hidden_state
        return CausalLMOutputWithPast(loss=Loss.apply(hidden, model.lm_head.weight, labels))
    model.forward = forward
    return model


def tune(model, how):
    if how.get("loss"):
        model = reads_head(model, how["loss"])
    if how.get("train", "all") == "all":
        return model
    if how["train"] == "lora":
        from peft import LoraConfig, get_peft_model
        arguments = {WORDS.get(k, k): v for k, v in how.get("lora", {}).items()}
        return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **arguments))
    for name, p in model.named_parameters():
        p.requires_grad_(any(fnmatch.fnmatchcase(name, pattern) for pattern in how["train"]))
    return model


ATTENTION = {"train": "lora", "lora": {"rank": 4, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}}
TWO = {"train": "lora", "lora": {"rank": 8, "target_modules": ["q_proj", "v_proj"]}}
SHAPE = dict(num_hidden_layers=3, hidden_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=32, vocab_size=103)
MIXTURES = {
    "mixtral": dict(SHAPE, model_type="mixtral", intermediate_size=56, num_local_experts=5, num_experts_per_tok=2),
    "qwen3_moe": dict(SHAPE, model_type="qwen3_moe", intermediate_size=112, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=3,
                      norm_topk_prob=True),
    "gpt_oss": dict(SHAPE, model_type="gpt_oss", intermediate_size=24, num_local_experts=6, num_experts_per_tok=2, sliding_window=64),
    "llama4": dict(SHAPE, model_type="llama4_text", intermediate_size=24, intermediate_size_mlp=112, num_local_experts=5, num_experts_per_tok=1,
                   interleave_moe_layer_step=1),
    "llama4-four": dict(SHAPE, model_type="llama4_text", num_hidden_layers=4, intermediate_size=24, intermediate_size_mlp=112, num_local_experts=5,
                        num_experts_per_tok=1, interleave_moe_layer_step=1),        # the fourth layer has no rotary positions
    # Experts in every second layer.
    "llama4-second": dict(SHAPE, model_type="llama4_text", num_hidden_layers=4, intermediate_size=24, intermediate_size_mlp=112, num_local_experts=5,
                          num_experts_per_tok=1, interleave_moe_layer_step=2),
}


def torch_lists(path, names, mixtures=False):
    import peft                         # noqa: before ranks are forked
    import record_torch as r
    now = {}
    build, run = r.build, r.run

    def tuned_run(case, rank):
        now.clear()
        now.update(case["tune"])
        return run(dict(case, ddp={k: v for k, v in case["ddp"].items() if k != "model_dtype"}), rank)
    def tuned_model(config, *args):     # narrow: parameters are loaded in bf16, but no buffers, and PEFT makes adapters in fp32
        model = build(config, *args)
        for p in model.parameters():
            p.data = p.data.to(r.torch.bfloat16) if now.get("narrow") else p.data
        return tune(model, now)
    r.build = tuned_model
    r.run = tuned_run
    r.ready_order = lambda names, ready: "gradients became ready: %d" % len(ready)
    cases = []

    def add(name, how, *args, **kw):
        case = r.make(name, "", *args, **kw)
        case["tune"] = how
        case["plan"].update({k: v for k, v in how.items() if k != "narrow"})
        cases.append(case)
    if sys.argv[1] == "torch-copies":
        torch_copies(r, add)
    elif mixtures:
        torch_mixtures(r, add)
    else:
        torch_cases(r, add)
    for config in MIXTURES.values() if mixtures else (r.LLAMA_TINY, r.GPT2_TINY):
        r.load_classes(config)
    r.write(path, [c for c in cases if not names or c["name"] in names])


def torch_copies(r, add):
    """DDP, whose copies (modules_to_save) train in the model's bf16 beside adapters in fp32: buckets have one dtype each."""
    def copies(name, saved, how=EVERY, world=2, cap=0.01, autocast=True, **kw):
        ddp = {k: kw.pop(k) for k in ("gradient_as_bucket_view", "static_graph", "find_unused_parameters") if k in kw}
        tune = {"train": "lora", "lora": dict(how, modules_to_save=saved), "narrow": True}
        add("ddp-llama-copies-" + name, tune, "ddp", r.LLAMA_TINY, world, ddp=dict(ddp, bucket_cap_mb=cap, model_dtype="bf16"), precision="bf16",
            autocast=autocast, **kw)
    both = ["embed_tokens", "lm_head"]
    copies("w2", both)
    copies("one-w2", both, cap=25)                       # both dtypes' buckets stay open
    copies("small-w2", both, cap=0.002)
    copies("head-w3", ["lm_head"], world=3, cap=0.004)
    copies("embed-acc3-w2", ["embed_tokens"], accumulation=3)
    copies("usual-w2", both, how={"rank": 8}, cap=0.003)
    copies("norm-w2", ["model.norm"], how={"rank": 4, "target_modules": ["down_proj", "o_proj"]}, cap=0.001)
    copies("view-acc2-w2", both, accumulation=2, cap=0.005, gradient_as_bucket_view=True)
    copies("static-w2", both, static_graph=True)
    copies("unused-w2", both, find_unused_parameters=True)


def torch_mixtures(r, add):
    """Of mixtures of experts, in bf16, which their grouped products need."""
    half = dict(precision="bf16", reduce_dtype="fp32")
    full = {"sharding_strategy": "FULL_SHARD", "use_orig_params": True}
    for family, config in MIXTURES.items():
        if family == "llama4-four":
            continue
        add("ddp-%s-w2" % family, dict(TWO, narrow=True), "ddp", config, 2, ddp={"bucket_cap_mb": 0.01, "model_dtype": "bf16"}, precision="bf16", autocast=True)
        add("fsdp2-%s-w4" % family, ATTENTION, "fsdp2", config, 4, **half)
        add("fsdp2-%s-recompute-w3" % family, TWO, "fsdp2", config, 3, recompute="full", clip=1.0, **half)
        if not family.startswith("llama4-"):
            add("fsdp1-%s-all-w3" % family, {"train": "all"}, "fsdp1", config, 3, fsdp=dict(full, use_orig_params=False), **half)
            add("fsdp1-%s-all-recompute-gradop-w2" % family, {"train": "all"}, "fsdp1", config, 2, recompute="full", clip=1.0,
                fsdp=dict(full, sharding_strategy="SHARD_GRAD_OP"), **half)
        if family == "llama4-second":               # FSDP1's units of two kinds of blocks are not planned
            continue
        add("fsdp1-%s-w4" % family, ATTENTION, "fsdp1", config, 4, fsdp=full, **half)
        add("fsdp1-%s-recompute-gradop-w3" % family, TWO, "fsdp1", config, 3, fsdp=dict(full, sharding_strategy="SHARD_GRAD_OP"), recompute="full", **half)


def torch_cases(r, add):
    few = {"bucket_cap_mb": 0.01}
    add("ddp-llama-lora-w2", LORA, "ddp", r.LLAMA_TINY, 2)
    add("ddp-llama-lora-few-w2", LORA, "ddp", r.LLAMA_TINY, 2, ddp=few)
    add("ddp-llama-usual-w3", USUAL, "ddp", r.LLAMA_TINY, 3, ddp=few)
    add("ddp-llama-saved-w2", SAVED, "ddp", r.LLAMA_TINY, 2, ddp=few)
    add("ddp-llama-norm-acc3-w2", NORM, "ddp", r.LLAMA_TINY, 2, ddp=few, accumulation=3)
    add("ddp-llama-head-w2", HEAD, "ddp", r.LLAMA_TINY, 2, ddp=few)
    add("ddp-llama-ends-acc2-w3", ENDS, "ddp", r.LLAMA_TINY, 3, ddp=few, accumulation=2)
    add("ddp-llama-norms-w2", NORMS, "ddp", r.LLAMA_TINY, 2, ddp={"bucket_cap_mb": 0.0005})
    add("ddp-gpt2-biases-w2", BIASES, "ddp", r.GPT2_TINY, 2, ddp={"bucket_cap_mb": 0.001})
    add("ddp-gpt2-usual-static-w2", USUAL, "ddp", r.GPT2_TINY, 2, ddp=dict(few, static_graph=True))
    add("ddp-gpt2-usual-unused-w2", USUAL, "ddp", r.GPT2_TINY, 2, ddp=dict(few, find_unused_parameters=True))
    add("ddp-llama-lora-autocast-w2", LORA, "ddp", r.LLAMA_TINY, 2, ddp=dict(few, model_dtype=None), precision="bf16", autocast=True)
    add("fsdp2-llama-lora-w4", LORA, "fsdp2", r.LLAMA_TINY, 4)
    add("fsdp2-llama-usual-w3", USUAL, "fsdp2", r.LLAMA_TINY, 3)
    add("fsdp2-llama-saved-w4", SAVED, "fsdp2", r.LLAMA_TINY, 4)
    add("fsdp2-llama-norm-w4", NORM, "fsdp2", r.LLAMA_TINY, 4, clip=1.0)
    add("fsdp2-llama-lora-bf16-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, precision="bf16", reduce_dtype="fp32")
    add("fsdp2-llama-lora-keep-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, fsdp={"reshard_after_forward": False})
    add("fsdp2-llama-lora-reshard2-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, fsdp={"reshard_after_forward": 2})
    add("fsdp2-llama-lora-hsdp-2x2", LORA, "fsdp2", r.LLAMA_TINY, 4, shard_group=2, cluster="2x2xh100", clip=1.0)
    add("fsdp2-llama-lora-acc3-nosync-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, accumulation=3)
    add("fsdp2-llama-lora-acc3-sync-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, accumulation=3, sync=True)
    add("fsdp2-llama-lora-root-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, fsdp={"reshard_after_forward": True, "root_reshard_after_forward": True})
    add("fsdp2-llama-lora-unit-2-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, unit="2 blocks")
    add("fsdp2-llama-lora-unit-model-w4", LORA, "fsdp2", r.LLAMA_TINY, 4, unit="model")
    add("fsdp2-llama-head-w4", HEAD, "fsdp2", r.LLAMA_TINY, 4)
    add("fsdp2-llama-ends-recompute-w3", ENDS, "fsdp2", r.LLAMA_TINY, 3, clip=1.0, recompute="full")
    add("fsdp2-llama-norms-w4", NORMS, "fsdp2", r.LLAMA_TINY, 4, clip=1.0)
    add("fsdp2-llama-mlps-w2", MLPS, "fsdp2", r.LLAMA_TINY, 2)
    add("fsdp2-gpt2-usual-w4", USUAL, "fsdp2", r.GPT2_TINY, 4)
    add("fsdp2-gpt2-biases-w4", BIASES, "fsdp2", r.GPT2_TINY, 4)
    orig = {"sharding_strategy": "FULL_SHARD", "use_orig_params": True}
    add("fsdp1-llama-lora-w4", LORA, "fsdp1", r.LLAMA_TINY, 4, fsdp=orig)
    add("fsdp1-llama-usual-w3", USUAL, "fsdp1", r.LLAMA_TINY, 3, fsdp=orig)
    add("fsdp1-llama-lora-gradop-w2", LORA, "fsdp1", r.LLAMA_TINY, 2, fsdp=dict(orig, sharding_strategy="SHARD_GRAD_OP"))
    add("fsdp1-llama-lora-noshard-w2", LORA, "fsdp1", r.LLAMA_TINY, 2, fsdp=dict(orig, sharding_strategy="NO_SHARD"))
    add("fsdp1-llama-lora-hybrid-2x2", LORA, "fsdp1", r.LLAMA_TINY, 4, fsdp=dict(orig, sharding_strategy="HYBRID_SHARD"), shard_group=2,
        cluster="2x2xh100")
    add("fsdp1-llama-lora-bf16-w3", LORA, "fsdp1", r.LLAMA_TINY, 3, fsdp=orig, precision="bf16", reduce_dtype="fp32", clip=1.0)
    add("fsdp1-llama-lora-acc3-nosync-w2", LORA, "fsdp1", r.LLAMA_TINY, 2, fsdp=orig, accumulation=3)
    add("fsdp1-llama-lora-acc3-sync-w2", LORA, "fsdp1", r.LLAMA_TINY, 2, fsdp=orig, accumulation=3, sync=True)
    add("fsdp1-llama-lora-unit-model-w2", LORA, "fsdp1", r.LLAMA_TINY, 2, fsdp=orig, unit="model")
    add("fsdp1-llama-head-w4", HEAD, "fsdp1", r.LLAMA_TINY, 4, fsdp=orig)
    add("fsdp1-llama-ends-w2", ENDS, "fsdp1", r.LLAMA_TINY, 2, fsdp=orig)
    add("fsdp1-llama-norms-w4", NORMS, "fsdp1", r.LLAMA_TINY, 4, fsdp=orig, clip=1.0)
    add("fsdp1-llama-mlps-w2", MLPS, "fsdp1", r.LLAMA_TINY, 2, fsdp=orig)
    add("fsdp1-gpt2-usual-forward-w4", USUAL, "fsdp1", r.GPT2_TINY, 4, fsdp=dict(orig, forward_prefetch=True))
    add("fsdp1-gpt2-biases-w4", BIASES, "fsdp1", r.GPT2_TINY, 4, fsdp=dict(orig, backward_prefetch="BACKWARD_POST"))


def deepspeed_lists(path, names, mixtures=False):
    import record_deepspeed as r
    r.MODELS.update(MIXTURES if mixtures else {})
    build, plan = r.build, r.dpx_plan
    r.build = lambda c: tune(build(c), c["tune"])
    r.dpx_plan = lambda c: dict(plan(c), **c["tune"])
    cases = {}

    def add(name, how, *args, **kw):
        cases[name] = dict(r.case(*args, traces=False, **kw), tune=how)
    if path.endswith("head_loss.txt"):
        head_losses(add)
    else:
        (deepspeed_mixtures if mixtures else deepspeed_cases)(add)
    import peft                         # before ranks are forked
    out = ["# recorded by record_lists.py: deepspeed %s, torch %s, transformers %s, peft %s" % (
        r.deepspeed.__version__, r.torch.__version__, r.transformers.__version__, peft.__version__)]
    for name, c in cases.items():
        if names and name not in names:
            continue
        r.families.load_classes(r.config_of(c))
        results = r.train(name, c)
        if not results:
            sys.exit("failed: " + name)
        out += ["", "list " + name] + r.recording(c, results, False, r.dpx_plan(c), r.ds_config(c))
        print("recorded", name, flush=True)
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def head_losses(add):
    """Stage 3 with losses that read the head's weight."""
    some = dict(reduce_bucket_size=3000)
    apart = dict(stage3_param_persistence_threshold=0, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0, **some)
    ahead = dict(apart, stage3_prefetch_bucket_size=6000)
    short = dict(some, stage3_param_persistence_threshold=300, stage3_max_reuse_distance=9000, stage3_prefetch_bucket_size=5000)
    for word, loss in (("linear", "fused-linear"), ("cut", "cut-cross-entropy")):
        add("s3_%s_apart" % word, {"train": "all", "loss": loss}, "llama", 3, "bf16", **apart)
        add("s3_%s_ahead_gas2" % word, {"train": "all", "loss": loss}, "llama", 3, "bf16", 2, **ahead)
        add("s3_%s_recompute_short_w3" % word, {"train": "all", "loss": loss}, "llama", 3, "bf16", world=3, recompute="full", clip=1.0, **short)
        add("s3_%s_lora_short" % word, dict(LORA, loss=loss), "llama", 3, "bf16", **short)
        add("s3_%s_usual_gas2" % word, {"train": "all", "loss": loss}, "llama", 3, "bf16", 2, **some)


def deepspeed_mixtures(add):
    """Of mixtures of experts, in bf16."""
    some = dict(reduce_bucket_size=3000)
    apart = dict(stage3_param_persistence_threshold=0, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0, **some)
    short = dict(some, stage3_param_persistence_threshold=300, stage3_max_reuse_distance=9000, stage3_prefetch_bucket_size=5000)
    for family in MIXTURES:
        if family == "llama4-second":               # blocks of two kinds are not planned
            continue
        if family in ("gpt_oss", "llama4-four"):    # the others are among ../collectives
            everything = {"train": "all"}
            add("s1_%s_all_w3" % family, everything, family, 1, "bf16", world=3, **some)
            add("s2_%s_all" % family, everything, family, 2, "bf16", **some)
            add("s2_%s_all_recompute" % family, everything, family, 2, "bf16", recompute="full", **some)
            add("s3_%s_all_apart" % family, everything, family, 3, "bf16", **apart)
            add("s3_%s_all_short_gas2" % family, everything, family, 3, "bf16", 2, **short)
            add("s3_%s_all_recompute_short_w3" % family, everything, family, 3, "bf16", world=3, recompute="full", **short)
        add("s0_%s" % family, ATTENTION, family, 0, "bf16", **some)
        add("s1_%s_gas2_w3" % family, TWO, family, 1, "bf16", 2, world=3, clip=1.0, **some)
        add("s2_%s" % family, ATTENTION, family, 2, "bf16", **some)
        add("s2_%s_recompute" % family, TWO, family, 2, "bf16", recompute="full", **some)
        add("s3_%s_apart" % family, ATTENTION, family, 3, "bf16", **apart)
        add("s3_%s_short_gas2" % family, TWO, family, 3, "bf16", 2, **short)
        add("s3_%s_recompute_short_w3" % family, ATTENTION, family, 3, "bf16", world=3, recompute="full", **short)
        add("s3_%s_usual" % family, ATTENTION, family, 3, "bf16", **some)


def deepspeed_cases(add):
    some = dict(reduce_bucket_size=3000)
    for stage in (0, 1, 2):
        for precision in ("fp32", "bf16"):
            add("s%d_llama_lora_%s" % (stage, precision), LORA, "llama", stage, precision, **some)
        add("s%d_llama_usual_bf16_gas3_w3" % stage, USUAL, "llama", stage, "bf16", 3, world=3, clip=1.0, **some)
        add("s%d_llama_saved_bf16" % stage, SAVED, "llama", stage, "bf16", **some)
        add("s%d_gpt2_biases_bf16" % stage, BIASES, "gpt2", stage, "bf16", reduce_bucket_size=500)
    add("s1_llama_ends_gas2_w3", ENDS, "llama", 1, "bf16", 2, world=3, **some)
    add("s2_llama_head", HEAD, "llama", 2, "bf16", **some)
    add("s3_llama_head_apart", HEAD, "llama", 3, "bf16", stage3_param_persistence_threshold=0, stage3_max_reuse_distance=0,
        stage3_prefetch_bucket_size=0, **some)
    add("s3_llama_head_usual_gas2", HEAD, "llama", 3, "bf16", 2, **some)
    add("s1_llama_lora_accum_fp32", LORA, "llama", 1, "bf16", grad_accum_dtype="fp32", **some)
    add("s2_llama_norm_overlap", NORM, "llama", 2, "bf16", overlap_comm=True, **some)
    add("s2_llama_lora_noncontiguous", LORA, "llama", 2, "bf16", contiguous_gradients=False, **some)
    add("s2_llama_lora_roundrobin_w3", LORA, "llama", 2, "bf16", world=3, round_robin_gradients=True, **some)
    add("s1_llama_norms_fp32_gas3", NORMS, "llama", 1, "fp32", 3, reduce_bucket_size=100)
    # Stage 3: what is fetched, kept and released depends on these four.
    apart = dict(stage3_param_persistence_threshold=0, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0, **some)
    ahead = dict(apart, stage3_prefetch_bucket_size=6000)
    short = dict(some, stage3_param_persistence_threshold=300, stage3_max_reuse_distance=9000, stage3_prefetch_bucket_size=5000)
    tight = dict(short, stage3_max_live_parameters=9000)
    add("s3_llama_lora", LORA, "llama", 3, "bf16", **some)
    add("s3_llama_lora_fp32_apart", LORA, "llama", 3, "fp32", **apart)
    add("s3_llama_lora_ahead_gas3", LORA, "llama", 3, "bf16", 3, **ahead)
    add("s3_llama_usual_short_w3", USUAL, "llama", 3, "bf16", world=3, clip=1.0, **short)
    add("s3_llama_usual_tight_gas3", USUAL, "llama", 3, "bf16", 3, **tight)
    add("s3_llama_usual_subgroups", USUAL, "llama", 3, "bf16", sub_group_size=700, **short)
    add("s3_llama_saved_ahead", SAVED, "llama", 3, "bf16", **ahead)
    add("s3_llama_norm_short_gas2", NORM, "llama", 3, "bf16", 2, overlap_comm=False, **short)
    add("s3_llama_norms_ahead", NORMS, "llama", 3, "fp32", **ahead)
    add("s3_llama_mlps_tight", MLPS, "llama", 3, "bf16", **tight)
    add("s3_gpt2_usual_apart", USUAL, "gpt2", 3, "bf16", **apart)
    add("s3_gpt2_biases_short_gas2", BIASES, "gpt2", 3, "bf16", 2, **dict(short, reduce_bucket_size=200))
    add("s3_gpt2odd_usual_short_w3", USUAL, "gpt2odd", 3, "bf16", 2, world=3, **short)
    add("s3_gpt2_usual_noscatter", USUAL, "gpt2", 3, "bf16", reduce_scatter=False, **short)
    add("s3_llama_lora_sequential", LORA, "llama", 3, "bf16", stage3_allgather_sequential=True, **apart)
    add("s3_llama_lora_allreduce_fetch", LORA, "llama", 3, "bf16", stage3_use_all_reduce_for_fetch_params=True, **ahead)
    add("s3_llama_lora_recompute_apart_gas2", LORA, "llama", 3, "bf16", 2, recompute="full", **apart)
    add("s3_llama_usual_recompute_ahead", USUAL, "llama", 3, "bf16", recompute="full", **ahead)
    add("s3_gpt2_usual_recompute_short_gas3", USUAL, "gpt2", 3, "bf16", 3, recompute="full", **short)
    add("s3_gpt2_biases_recompute_ahead", BIASES, "gpt2", 3, "bf16", recompute="full", **ahead)
    add("s3_llama_lora_hpz2_w4", LORA, "llama", 3, "bf16", 2, world=4, zero_hpz_partition_size=2, **ahead)
    # ZeRO++'s codes: frozen tensors are gathered in int8 as those that train.
    qwz = dict(zero_quantized_weights=True)
    add("s3_llamaq_lora_qwz_w4", LORA, "llamaq", 3, "bf16", 2, world=4, **qwz, **ahead)
    add("s3_llamaq_saved_qwz_fp16", SAVED, "llamaq", 3, "fp16", **qwz, **short)
    add("s3_gpt2q_biases_qwz_apart", BIASES, "gpt2q", 3, "bf16", **qwz, **apart)
    add("s3_llamaq_lora_qwz_recompute", LORA, "llamaq", 3, "bf16", recompute="full", **qwz, **ahead)
    add("s3_llamaq_usual_qwz_hpz2_w4", USUAL, "llamaq", 3, "fp16", 2, world=4, zero_hpz_partition_size=2, **qwz, **ahead)
    add("s3_llamaq_usual_qgz_2x2", USUAL, "llamaq", 3, "bf16", 2, world=4, node=2, zero_quantized_gradients=True, **apart)
    # Adapters of rank 4 would be groups of 4 elements, which DeepSpeed's kernels do not take and ds_quantizer.py does.
    add("s3_llamaq_rank8_three_2x2", {"train": "lora", "lora": dict(EVERY, rank=8)}, "llamaq", 3, "fp16", 2, world=4, node=2,
        zero_quantized_gradients=True, zero_hpz_partition_size=2, **qwz, **ahead)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].removesuffix("-mixtures").removesuffix("-copies") not in ("torch", "deepspeed"):
        sys.exit(__doc__)
    lists = {"torch": torch_lists, "deepspeed": deepspeed_lists}[sys.argv[1].removesuffix("-mixtures").removesuffix("-copies")]
    lists(sys.argv[2], sys.argv[3:], sys.argv[1].endswith("-mixtures"))
