#!/usr/bin/env python3
"""Records the collectives of megatron-core's multi-token prediction: models/gpt/gpt_model.py with a block of
transformer/multi_token_prediction.py on the last stage.

    PYTHONPATH=WHERE_MEGATRON_IS python record_mtp.py OUTDIR              mtp.txt; one minute
    PYTHONPATH=WHERE_MEGATRON_IS python record_mtp.py OUTDIR NAME ...     these lists, printed

With record_experts.py beside it, whose stand-ins these are.  Behind `init` stands how many parameters the rank has."""
import sys

import record_experts as re
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec
from megatron.core.transformer import multi_token_prediction as mtp

rm = re.rm
config_of, model_of, spec_of = rm.config_of, rm.GPTModel, rm.specs.get_gpt_layer_local_spec
dense_config = re.config_of


def layers_of(case):
    return case["plan"]["megatron"].get("mtp_num_layers")


def config(case):
    made = config_of(case) if re.experts_of(case["plan"]["model"]) else dense_config(case)
    fields = {f: getattr(made, f) for f in made.__dataclass_fields__}
    return type(made)(**dict(fields, mtp_num_layers=layers_of(case)))


def with_mtp(config, layer, *args, vp_stage=None, **more):
    """re.model_of() puts its layers' stand-ins in as the model is made: the block of MTP has the decoder's last layer."""
    last, kept = config.mtp_num_layers and rm.mpu.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp_stage), re.GPTModel
    made = (lambda c, spec, *a, vp_stage=None, **m: kept(c, spec, *a, vp_stage=vp_stage, **m, mtp_block_spec=get_gpt_mtp_block_spec(
        c, spec, use_transformer_engine=False, vp_stage=vp_stage) if last else None))
    re.GPTModel = made
    try:
        return model_of(config, layer, *args, vp_stage=vp_stage, **more)
    finally:
        re.GPTModel = kept


class Run(re.Run.__base__):
    def __init__(self, case, rank):
        super().__init__(case, rank)
        rm.base.log.append(f"# {sum(p.numel() for m in self.model for p in m.parameters())} parameters")


rm.config_of, rm.GPTModel, rm.Run = config, with_mtp, Run
rm.specs.get_gpt_layer_local_spec = lambda **more: spec_of(**more) if re.experts_of(re.case_now["plan"]["model"]) else re.spec(**more)


def cases():
    def dense(name, what, world, grid, model=rm.LLAMA, **more):
        return rm.make(name, what, world, model=model, grid=grid, **dict(dict(rm.REDUCED, mtp_num_layers=1), **more))

    def deepseek(name, what, world, grid, **more):
        return re.make(name, what, world, grid, model=re.DEEPSEEK, layers=more.pop("layers", 3), mtp_num_layers=1, **more)

    yield dense("d2", "one depth", 2, {})
    yield dense("d2-depths2", "two depths", 2, {}, mtp_num_layers=2)
    yield dense("d2-tied", "tied embedding", 2, {}, model=rm.TIED)
    yield dense("ddp-d2-acc2", "plain DDP, 2 micro-steps", 2, {}, strategy="ddp", accumulation=2)
    yield dense("d2-full", "every layer recomputed, that of MTP too", 2, {}, recompute="full")
    yield dense("d2-token", "calculate_per_token_loss", 2, {}, calculate_per_token_loss=True)
    yield dense("t2-sp-d2", "tensor and sequence parallelism", 4, rm.tp(2))
    yield dense("t2-sp-d2-depths2", "the same, two depths", 4, rm.tp(2), mtp_num_layers=2)
    yield dense("t2-d2", "tensor parallelism alone", 4, rm.tp(2, False))
    yield dense("t2-sp-d2-full", "tensor and sequence parallelism, recomputed", 4, rm.tp(2), recompute="full")
    yield dense("t2-sp-d2-mlp", "--recompute-modules mlp", 4, rm.tp(2), recompute="selective", recompute_modules=["mlp"])
    yield dense("t2-sp-d2-core-mlp", "--recompute-modules core_attn mlp", 4, rm.tp(2), recompute="selective", recompute_modules=["core_attn", "mlp"])
    yield dense("t2-sp-d2-block1", "--recompute-method block, 1 of 2 layers: that of MTP is not", 4, rm.tp(2), recompute="full", recompute_num_layers=1)
    yield dense("1f1b-p2-m4-d2", "1F1B: the last stage has an embedding of its own", 4, rm.pp(2), layers=4, accumulation=4)
    yield dense("1f1b-p2-m4-d2-tied", "the same, tied", 4, rm.pp(2), model=rm.TIED, layers=4, accumulation=4)
    yield dense("t2-sp-1f1b-p2-m4", "with tensor and sequence parallelism", 4, rm.tp(2) | rm.pp(2), layers=4, accumulation=4)
    yield dense("interleaved-p2-v2-m4", "interleaved", 2, rm.pp(2, 2), layers=8, accumulation=4)
    on = {"overlap_grad_reduce": True, "overlap_param_gather": True, "ddp_bucket_size": 12000}
    yield dense("interleaved-p2-v2-m4-d2-gather", "and gathers by chunk", 4, rm.pp(2, 2), layers=8, accumulation=4, **on)
    yield dense("1f1b-p2-m4-d2-gather", "1F1B, gathers beside forward", 4, rm.pp(2), layers=4, accumulation=4, **on)
    yield dense("1f1b-p2-m4-d2-gather-tied", "the same, tied", 4, rm.pp(2), model=rm.TIED, layers=4, accumulation=4, **on)
    yield dense("t2-sp-interleaved-p2-v2-m4-d2-gather", "with tensor and sequence parallelism", 8, rm.tp(2) | rm.pp(2, 2), layers=8, accumulation=4, **on)
    yield deepseek("deepseek-d2", "DeepSeek-V3: latent attention and experts", 2, {})
    yield deepseek("deepseek-e4-d4", "experts over all ranks", 4, {"expert": 4})
    yield deepseek("deepseek-e4-t2-sp-whole", "tensor and sequence parallelism, whole experts", 8, {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 1})
    yield deepseek("deepseek-e2-d4-full", "every layer recomputed", 4, {"expert": 2}, recompute="full")
    yield deepseek("deepseek-e2-1f1b-p2-m4-d2", "1F1B", 4, dict(rm.pp(2), expert=2), layers=4, accumulation=4)


re.FILES = {"mtp": cases}

if __name__ == "__main__":
    sys.exit(re.main())
