#!/usr/bin/env python3
"""Records the collectives of megatron-core's mixtures of experts: MoELayer with the all-to-all dispatcher, expert parallelism, experts that
tensor-parallel ranks cut or have whole.

    PYTHONPATH=WHERE_MEGATRON_IS python record_experts.py OUTDIR             experts.txt
    PYTHONPATH=WHERE_MEGATRON_IS python record_experts.py OUTDIR NAME ...    these lists, printed

With record_megatron.py beside it.  The CPU has no grouped products: experts are SequentialMLP, whose collectives are TEGroupedMLP's, and the
plans have kernels te.  Tokens go to experts in turn, so that every rank gets as many rows.  CUDA's streams are stood in by objects that
do nothing."""
import contextlib
import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

import torch

import record_megatron as rm
from megatron.core import parallel_state as mpu
from megatron.core.transformer.moe import moe_utils, router

case_now = {}


class Stream:
    def wait_stream(self, other):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        return self

    def synchronize(self):
        pass


torch.cuda.Stream = Stream
torch.cuda.Event = Stream
torch.cuda.current_stream = lambda *a: Stream()
torch.cuda.stream = lambda s: contextlib.nullcontext()


def in_turn(logits, topk, *args, **more):
    tokens, experts = logits.shape
    index = torch.arange(tokens * topk).view(tokens, topk) % experts
    probs = torch.softmax(logits.gather(1, index), dim=-1, dtype=torch.float32).type_as(logits)
    return torch.zeros_like(logits).scatter(1, index, probs), torch.zeros_like(logits).int().scatter(1, index, 1).bool()


router.topk_routing_with_score_function = in_turn
moe_utils.te_general_gemm = None            # the name is not made where Transformer Engine is not found


class Recorder(rm.Recorder):
    def all_to_all_single(self, output, inp, out_splits, in_splits, opts=None):
        self.note("all_to_all", [inp])
        output.zero_()
        return rm.base.done(output)

    alltoall_base = all_to_all_single


rm.dist.Backend.register_backend("experts", lambda store, rank, size, timeout: Recorder(rank, size), devices=["cpu"])
rm.Recorder = Recorder                                   # what "megatron" makes
initialize, spec, config_of = mpu.initialize_model_parallel, rm.specs.get_gpt_layer_local_spec, rm.config_of


def with_experts(tensor, pipe, virtual):
    grid = case_now["plan"]["parallel"]
    initialize(tensor, pipe, virtual, expert_model_parallel_size=grid.get("expert", 1), expert_tensor_parallel_size=grid.get("expert_tensor", 1))
    for name, group in (("expert_data", mpu.get_expert_data_parallel_group()), ("tensor", mpu.get_expert_tensor_parallel_group()),
                        ("expert", mpu.get_expert_model_parallel_group()), ("expert_tensor", mpu.get_expert_tensor_and_model_parallel_group())):
        rm.names[group] = "expert" if name == "expert_tensor" and grid.get("expert_tensor", 1) == 1 else name


def config(case):
    model, grid = case["plan"]["model"], case["plan"]["parallel"]
    made = config_of(case)
    fields = {f: getattr(made, f) for f in made.__dataclass_fields__}
    fields.update(num_moe_experts=model.get("num_local_experts", model.get("num_experts")), moe_router_topk=model["num_experts_per_tok"],
                  moe_ffn_hidden_size=model.get("moe_intermediate_size", model["intermediate_size"]), moe_token_dispatcher_type="alltoall",
                  expert_model_parallel_size=grid.get("expert", 1), expert_tensor_parallel_size=grid.get("expert_tensor", 1),
                  moe_router_load_balancing_type="none", qk_layernorm=model["model_type"] == "qwen3_moe")
    return type(made)(**fields)


def moe_spec(**more):
    model = case_now["plan"]["model"]
    return spec(num_experts=model.get("num_local_experts", model.get("num_experts")), moe_grouped_gemm=False, **more)


mpu.initialize_model_parallel = with_experts
rm.config_of = config
rm.specs.get_gpt_layer_local_spec = moe_spec

MIXTRAL = dict(rm.LLAMA, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2)
QWEN3 = dict(rm.LLAMA, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], head_dim=16, num_experts=8, num_experts_per_tok=4,
             moe_intermediate_size=96, norm_topk_prob=True)


def cases():
    def make(name, what, world, grid, model=MIXTRAL, **more):
        case = rm.make(name, what, world, model=model, grid=grid, **dict(rm.REDUCED, **more))
        case["plan"]["kernels"] = "te"
        return case

    yield make("d4", "no expert parallelism: experts are reduced with the rest", 4, {})
    yield make("e2-d4", "experts over 2 of 4 ranks", 4, {"expert": 2})
    yield make("e4-d4", "experts over all ranks: theirs are not reduced", 4, {"expert": 4})
    yield make("e8-d8", "one expert a rank", 8, {"expert": 8})
    yield make("e2-d4-acc2", "2 micro-steps", 4, {"expert": 2}, accumulation=2)
    yield make("e2-d4-noclip", "no clipping: the norm is taken all the same", 4, {"expert": 2}, clip=None)
    yield make("e2-d4-avg", "the collective averages", 4, {"expert": 2}, ddp_average_in_collective=True)
    yield make("e2-d4-full", "every layer recomputed", 4, {"expert": 2}, recompute="full")
    yield make("e4-t2-sp-whole", "experts over data- and tensor-parallel ranks, whole", 8, {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 1})
    yield make("e2-t2-sp-whole-d4", "the same, over tensor-parallel ranks alone", 8, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 1})
    yield make("e2-t2-sp-cut-d4", "experts that tensor-parallel ranks cut", 8, {"tensor": 2, "sequence": True, "expert": 2, "expert_tensor": 2})
    yield make("e4-t2-sp-cut-d4", "the same, over all data-parallel ranks", 8, {"tensor": 2, "sequence": True, "expert": 4, "expert_tensor": 2})
    yield make("t2-sp-cut-d2", "cut, not shared out", 4, {"tensor": 2, "sequence": True, "expert_tensor": 2})
    yield make("qwen3-e4-d4", "norms of q and k, 4 experts a token", 4, {"expert": 4}, model=QWEN3)
    yield make("e2-1f1b-p2-m4-d2", "1F1B", 4, dict(rm.pp(2), expert=2), layers=4, accumulation=4)
    yield make("e2-interleaved-p2-v2-m4-d2", "interleaved", 4, dict(rm.pp(2, 2), expert=2), layers=8, accumulation=4)


def main():
    global case_now
    outdir, wanted = sys.argv[1], sys.argv[2:]
    torch.set_num_threads(1)
    text = [f"# recorded from megatron-core {rm.megatron.core.__version__}, torch {torch.__version__.split('+')[0]}, CPU, by record_experts.py"]
    missing, failed = [], 0
    for case in cases():
        if wanted and case["name"] not in wanted:
            continue
        case_now = case
        try:
            text += [""] + rm.recording(case)
            print("recorded", case["name"], file=sys.stderr, flush=True)
        except Exception as e:
            failed += 1
            missing.append(f"# not recorded: {case['name']}: {str(e).strip().splitlines()[-1]}")
            print("FAILED", case["name"], e, file=sys.stderr, flush=True)
    text = "\n".join(text + [""] * bool(missing) + missing)
    if wanted:
        print(text)
    else:
        with open(os.path.join(outdir, "experts.txt"), "w") as f:
            f.write(text + "\n")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
