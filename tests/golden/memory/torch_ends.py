"""FSDP2 whose embedding and head are units of their own (fsdp.root_units), first step and steady one, for record_torch_memory.py
--cases ends.  Vocabularies outweigh blocks, or do not."""
from torch.distributed.fsdp import fully_shard

SMALL = {"hidden_size": 192, "num_hidden_layers": 4, "intermediate_size": 504, "num_attention_heads": 6, "num_key_value_heads": 3,
         "max_position_embeddings": 1024}
GPT2 = {"model_type": "gpt2", "activation_function": "gelu_new", "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "n_positions": 1024,
        "n_layer": 4, "n_embd": 192, "n_head": 6}
ENDS = {"ends-%s%s-%d" % (family, "-tied" if tied else "", vocab): SMALL | {"model_type": family, "vocab_size": vocab, "tie_word_embeddings": tied}
        for family in ("llama", "qwen2") for tied in (False, True) for vocab in (1009, 50304)}
ENDS |= {"ends-gpt2-%d" % vocab: GPT2 | {"vocab_size": vocab, "tie_word_embeddings": True} for vocab in (1009, 50257)}


def shard_ends(model, how, mesh, policy, reshard, last):
    """As accelerate's fsdp2_prepare_model() does, and torchtitan's apply_fsdp_to_decoder(); Automodel leaves the norm to the root."""
    embed, head = model.get_input_embeddings(), model.get_output_embeddings()
    base = getattr(model, model.base_model_prefix)
    norm = [m for m in base.children() if "Norm" in type(m).__name__][-1]
    tail = [head] if how == "embed-head" else [norm, head]
    if embed.weight is head.weight:
        tail = tail[:-1] + [embed, head]
    else:
        fully_shard(embed, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(tail, mesh=mesh, mp_policy=policy, reshard_after_forward=last)


def end_cases(plan_of):
    def case(model, units="apart", reshard=True, last=None, **options):
        plan = plan_of(model, kernels="torch-eager", reshard=reshard, **options)
        plan["fsdp"] |= {"root_units": units} | ({} if last is None else {"root_reshard_after_forward": last})
        return plan

    for model in ENDS:
        yield case(model, batch=1, seq=96)
        yield case(model, batch=2, seq=333, recompute="full", precision="fp32", world=4)
        yield case(model, batch=1, seq=96, accumulation=2, sync=False, clip=1.0, world=16, group=8, optimizer_form="fused")
        yield case(model, batch=1, seq=128, reshard=False, accumulation=2)
    for model in ("ends-llama-50304", "ends-llama-tied-50304"):
        yield case(model, last=True, batch=1, seq=96)
        yield case(model, last=True, batch=3, seq=256, recompute="full", accumulation=2)
        yield case(model, reshard=2, batch=1, seq=96)
        yield case(model, batch=1, seq=512, loss="bf16", optimizer_form="loop")
    for model in ("ends-qwen2-50304", "ends-qwen2-1009"):
        yield case(model, units="embed-head", batch=1, seq=96, accumulation=2)
    for model in ("ends-llama-1009", "ends-qwen2-50304", "ends-gpt2-1009"):        # NeMo Automodel's last block
        for units in ("together", "embed-head") if "gpt2" not in model else ("together",):
            for options in ({"batch": 1, "seq": 96}, {"batch": 2, "seq": 333, "recompute": "full", "accumulation": 2, "sync": False}):
                plan = case(model, units=units, **options)
                plan["fsdp"]["keeps_last_unit"] = True
                yield plan
