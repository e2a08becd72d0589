"""Plans with options drawn at random, and FSDP2's units of several blocks, for record_cpu_ranks.py --drawn."""
import random


def drawn_cases(ds, ddp, plan_of):
    def drawn_ds2(seed):
        rng = random.Random(seed)
        some = {"overlap_comm": (False, True), "contiguous_gradients": (True, False), "reduce_scatter": (True, True, False),
                "round_robin_gradients": (False, False, True), "reduce_bucket_size": (50000, 300000, 2000000, 500000000),
                "allgather_bucket_size": (50000, 500000000)}
        return ds(rng.choice(("gpt2", "llama", "gpt2odd")), 2, precision=rng.choice(("fp32", "fp32", "bf16")), accumulation=rng.choice((1, 2, 3)),
                  clip=rng.choice((None, 1.0)), **{key: rng.choice(values) for key, values in some.items() if rng.random() < 0.6})

    def drawn_ddp(seed):
        rng = random.Random(seed)
        pure = dict(model_dtype="bf16") if seed % 3 else {}
        plan = ddp(rng.choice(("gpt2", "llama", "gpt2odd")), precision="bf16" if pure else "fp32", accumulation=rng.choice((1, 2, 3)),
                   sync=rng.random() < 0.3, clip=rng.choice((None, 1.0)), gradient_as_bucket_view=rng.random() < 0.7, **pure)
        return dict(plan, **({"reduce_dtype": "bf16"} if pure else {}), optimizer_form=rng.choice(("loop", "fused", "foreach")))

    def fsdp2(model, unit, reshard=True, recompute="none", **more):
        return dict(plan_of(model, "fsdp", "torch", **more), fsdp={"reshard_after_forward": reshard}, unit=unit, recompute=recompute)

    UNITS = {"fsdp2_%s_%s_%s_%d" % (model, unit.replace(" ", ""), recompute, reshard): fsdp2(model, unit, reshard, recompute, accumulation=2)
             for model in ("gpt2", "llama") for unit in ("2 blocks", "3 blocks") for recompute, reshard in (("none", True), ("full", False))}

    return dict({"ds2_drawn_%d" % seed: drawn_ds2(seed) for seed in range(16)}, **{"ddp_drawn_%d" % seed: drawn_ddp(seed) for seed in range(8)}, **UNITS)
