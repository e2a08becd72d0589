"""Optimizers as transformers' Trainer makes them: cases of record_cpu_ranks.py --forms."""


def trainer_cases(ds, fsdp1, large, none_kept):
    cases = {}
    # bitsandbytes' AdamW in 8 bits, of flat partitions.
    for stage in (1, 2, 3):
        for model in ("gpt2odd", "llama"):
            plan = ds(model, stage, precision="bf16", **(large if stage < 3 else none_kept))
            cases["ds%d_%s_bf16_8bit" % (stage, model)] = dict(plan, optimizer="adamw_bnb_8bit")
    # AdamW with a counter of steps beside each tensor that it sees: with use_orig_params the pieces in a rank's shard.
    orig = dict(use_orig_params=True)
    for name, plan in {
        "fsdp1_gpt2_fused": fsdp1("gpt2"),
        "fsdp1_gpt2_orig_fused": fsdp1("gpt2", **orig),
        "fsdp1_gpt2odd_orig_bf16_fused": fsdp1("gpt2odd", precision="bf16", **orig),
        "fsdp1_llama_orig_bf16_fused_clip": fsdp1("llama", precision="bf16", clip=1.0, **orig),
    }.items():
        cases[name] = dict(plan, optimizer_form="fused")
    return cases


def in_8_bits(model):
    """The update is one kernel on a GPU; the CPU's stand-in is a loop of temporaries, which is left out."""
    import bitsandbytes
    for update in ("optimizer_update_8bit_blockwise", "optimizer_update_32bit"):
        setattr(bitsandbytes.functional, update, lambda *args, **kwargs: None)
    return bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4)
