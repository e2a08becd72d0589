#!/usr/bin/env python3
"""What PyTorch costs the thread that issues kernels, as ratios: sim/price/issue_cost.c takes its constants from them.

    tests/bench/issue_cost.py        needs torch (2.9 or later) and transformers; no GPU, half a minute
    tests/bench/issue_cost.py deepspeed        the hooks of DeepSpeed's stage 3; needs deepspeed as well
    tests/bench/issue_cost.py tensor           layers of DTensors (parallelize_module(), as torchtitan does it): a collective and its layer's operators
    tests/bench/issue_cost.py experts          what each expert of Megatron's costs beside its products; needs megatron-core as well
    tests/bench/issue_cost.py optimizer        AdamW's step and the clip of FSDP2's DTensors on one and two ranks, and without

A Llama of 16 tiny blocks on the CPU, whose kernels have next to nothing to do.  The least CPU time of this thread over
25 repeats, so that what else runs does not count; kernels are operators that the dispatcher hands to a device, views and
allocations left out.  Ratios to forward without gradients carry over to another host, for which that one is known.
FSDP2 runs over PyTorch's fake process group of 2 ranks, which does nothing: what is left is its Python and its copies.
"""
import os, sys, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
from issue_unit import LAYERS, Count, forward, ids, kernel_without_gradients, model, seconds

torch.set_num_threads(1)
m = model()
f, kernels = kernel_without_gradients(m)
with Count() as c:
    loss = forward(m)
    before = c.n
    loss.backward()
    behind = c.n - before
forward(m).backward()
bare = torch.zeros(8)
a = seconds(lambda: [bare.add_(1.0) for _ in range(1000)]) / 1000
g = seconds(lambda: forward(m)) / kernels
step = seconds(lambda: forward(m).backward())
b = (step - g * kernels) / behind
positions = torch.arange(1, 1001)       # prime-rl's get_response_lengths() (sim/price/issue_cost.c, READ_PYTHON)
compared = seconds(lambda: [i for i in range(1000) if positions[i] == 0]) / 1000
print("a bare add_                                  %7.2f us" % (1e6 * a))
print("forward, a kernel of %4d, without gradients  %7.2f us" % (kernels, 1e6 * f))
print("forward with gradients                       %7.2f of that" % (g / f))
print("backward, a kernel of %4d                    %7.2f" % (behind, b / f))

print("an index, a comparison and its truth         %7.2f" % (compared / f))

if sys.argv[1:] == ["deepspeed"]:
    # One rank, so that nothing communicates, and every parameter is persistent: after the first step no hook fetches or
    # releases anything.  The forward and backward that dpx counts hooks in are this model's; a module has one before and one
    # after it in each.
    os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="localhost", MASTER_PORT="29742", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    import deepspeed
    import importlib
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None    # compiles an extension for ranks that share memory
    deepspeed.init_distributed("gloo", verbose=False)
    m0 = model()
    modules = sum(1 for _ in m0.modules()) - 1          # the list of blocks is not called
    engine, *_ = deepspeed.initialize(model=m0, optimizer=torch.optim.SGD(m0.parameters(), lr=0.0), config={
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 10 ** 6, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 10 ** 6, "overlap_comm": False}})

    def wrapped():
        return engine(input_ids=ids, labels=ids, use_cache=False).loss

    for _ in range(3):
        engine.backward(wrapped())
    before = seconds(wrapped)
    both = seconds(lambda: engine.backward(wrapped()))
    plain = g * kernels
    print("DeepSpeed stage 3, a hook of forward         %7.1f" % ((before - plain) / (2 * modules) / f))
    print("a hook of backward, gradients included       %7.1f" % ((both - before - (step - plain)) / (2 * modules) / f))
    sys.exit()

if sys.argv[1:] == ["experts"]:
    # A number more of chunks, or of weights, costs so much more: 256 beside 16, 136 beside 8.  Rows are few, so that joining them takes no time.
    from types import SimpleNamespace
    from megatron.core.distributed.distributed_data_parallel import DistributedDataParallel
    from megatron.core.distributed.param_and_grad_buffer import _ParamAndGradBucketGroup
    from megatron.core.transformer.moe.moe_utils import sort_chunks_by_idxs

    def sorts(n):
        x, one = torch.zeros(n, 8, requires_grad=True), torch.ones(n, dtype=torch.long)
        order = torch.arange(n).reshape(-1, n // 8).T.ravel()
        come = torch.zeros(n, 8)
        return seconds(lambda: sort_chunks_by_idxs(x, one, order)), seconds(lambda: sort_chunks_by_idxs(x, one, order)[0].backward(come))

    class Products(torch.autograd.Function):
        """Of GroupedLinear what it hands to autograd: a dummy for each weight, whose gradient is in main_grad."""
        @staticmethod
        def forward(ctx, x, *weights):
            ctx.weights = weights
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            for w in ctx.weights:
                w.grad_added_to_main_grad = True
            return g, *[dummy] * len(ctx.weights)

    dummy = torch.zeros(8, 8)

    def hooks(n):
        weights, x = [torch.nn.Parameter(torch.zeros(8, 8)) for _ in range(n)], torch.zeros(8, requires_grad=True)
        config = SimpleNamespace(overlap_grad_reduce=True)
        group = SimpleNamespace(ddp_config=config, is_last_microbatch=False)
        group.register_grad_ready = lambda *of: _ParamAndGradBucketGroup.register_grad_ready(group, *of)
        ddp = SimpleNamespace(param_to_bucket_group={w: group for w in weights}, ddp_config=config, force_all_reduce=False)
        kept = []
        for w in weights:
            w.main_grad, w.grad_added_to_main_grad = torch.zeros(8, 8), False
            kept.append(w.expand_as(w).grad_fn.next_functions[0][0])
            kept[-1].register_hook(DistributedDataParallel._make_backward_post_hook(ddp, w))
        return seconds(lambda: Products.apply(x, *weights).sum().backward())

    def exchanges():
        from megatron.core.tensor_parallel.mappings import all_to_all
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
        torch.cuda.current_device = lambda: "cpu"
        x, rows, group = torch.zeros(16, 8, requires_grad=True), [2] * 8, dist.new_group(list(range(8)))
        return seconds(lambda: [all_to_all(group, x, rows, rows) for _ in range(50)]) / 50

    def layer():
        """A MoELayer whose experts do nothing: router in fp64, unfused permutation, all-to-alls of 8 ranks as copies."""
        import megatron.core.tensor_parallel.mappings as mappings
        import megatron.core.transformer.moe.moe_utils as utils
        import megatron.core.transformer.moe.token_dispatcher as dispatcher
        from megatron.core import parallel_state
        from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
        from megatron.core.transformer.spec_utils import ModuleSpec
        from megatron.core.transformer.transformer_config import TransformerConfig

        class Nothing:
            def __init__(self, *a, **k): pass
            def __getattr__(self, name): return lambda *a, **k: Nothing()
            def __enter__(self): return self
            def __exit__(self, *a): return False

        class Experts(torch.nn.Module):
            def __init__(self, *a, **k): super().__init__()
            def forward(self, rows, counts, probs): return rows * 1, None

        def gathered(out, part, group=None, async_op=False):
            out.view(out.shape[0] // part.shape[0], -1).copy_(part.reshape(1, -1).expand(out.shape[0] // part.shape[0], -1))

        def exchanged(out, rows, *a, **k):
            n = min(out.shape[0], rows.shape[0])
            out[:n].copy_(rows[:n])

        def to_host(t, as_numpy=False, record_stream=False):
            return t.clone().numpy() if as_numpy and torch.is_tensor(t) else t

        torch.cuda.Stream = torch.cuda.Event = torch.cuda.stream = Nothing
        torch.cuda.current_stream, torch.cuda.is_current_stream_capturing = lambda *a: Nothing(), lambda: False
        mappings.dist_all_gather_func, dist.all_to_all_single = gathered, exchanged
        dispatcher.maybe_move_tensor_to_cpu, utils.te_general_gemm = to_host, None
        parallel_state.initialize_model_parallel(expert_model_parallel_size=8, expert_tensor_parallel_size=1, create_gloo_process_groups=False)
        config = TransformerConfig(num_layers=1, hidden_size=16, num_attention_heads=4, num_moe_experts=128, moe_router_topk=8, moe_ffn_hidden_size=16,
                                   moe_token_dispatcher_type="alltoall", moe_router_load_balancing_type="none", moe_router_dtype="fp64", bf16=True,
                                   expert_model_parallel_size=8, gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
                                   moe_grouped_gemm=True, params_dtype=torch.bfloat16, use_cpu_initialization=True, moe_aux_loss_coeff=0)
        made = MoELayer(config, MoESubmodules(experts=ModuleSpec(module=Experts)), layer_number=1).train()
        x = torch.randn(16, 1, 16, dtype=torch.bfloat16, requires_grad=True)
        come, once = torch.ones_like(x), lambda: made(x)[0]
        once().backward(come)
        fore = seconds(once)
        with torch.no_grad():
            bare = seconds(once)
        return fore, bare, seconds(lambda: once().backward(come)) - fore

    (few, few_both), (many, many_both) = sorts(16), sorts(256)
    print("an all-to-all of a mixture, forward          %7.2f" % (exchanges() / f))
    print("a chunk of a sort, forward                   %7.3f" % ((many - few) / 240 / f))
    print("backward                                     %7.3f" % ((many_both - few_both - many + few) / 240 / f))
    print("a weight whose gradient is added by itself   %7.3f" % ((hooks(136) - hooks(8)) / 128 / f))
    print("a mixture's layer without its experts: %.0f forward, %.0f without gradients, %.0f backward" % tuple(s / f for s in layer()))
    sys.exit()

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore


def sharded_over(ranks):
    """The model under FSDP2 over so many ranks, 0: without."""
    made = model()
    if ranks:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        over = init_device_mesh("cpu", (ranks,))
        for block in made.model.layers:
            fully_shard(block, mesh=over)
        fully_shard(made, mesh=over)
    return made


def cut(made, mesh):
    """The model with tensors cut, and the sequence between: torchtitan's plan of a block, in transformers' names."""
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
    down = {"output_layouts": Shard(1)}
    parallelize_module(made, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), **down), "model.norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    for block in made.model.layers:
        parallelize_module(block, mesh, {
            "input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": Shard(1)},
                                            desired_input_kwarg_layouts={"hidden_states": Replicate()}),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "self_attn.o_proj": RowwiseParallel(**down), "mlp.down_proj": RowwiseParallel(**down),
            **{name: ColwiseParallel() for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}})
    return made


if sys.argv[1:] == ["tensor"]:
    from torch.distributed.tensor.debug import CommDebugMode
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29744")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    layers = cut(model(), init_device_mesh("cpu", (2,)))
    positions = torch.arange(ids.shape[1])[None]        # of the whole sequence: the hidden states say half of it

    def pass_of(made):
        return made(input_ids=ids, labels=ids, position_ids=positions, use_cache=False).loss

    pass_of(layers).backward()
    with CommDebugMode() as issued:
        loss = pass_of(layers)
    there = issued.get_total_counts()
    with CommDebugMode() as issued:
        loss.backward()
    back = issued.get_total_counts()
    before, both = (seconds(lambda: pass_of(layers)), seconds(lambda: pass_of(layers).backward()))
    plain = seconds(lambda: pass_of(m))
    behind = seconds(lambda: pass_of(m).backward()) - plain
    print("a collective of %d in forward, its layer's DTensors included  %6.1f" % (there, (before - plain) / there / f))
    print("a collective of %d in backward                               %6.1f" % (back, (both - before - behind) / back / f))
    sys.exit()


def steps_of(made):
    """Units a tensor: AdamW in its three forms, and the clip."""
    tensors = list(made.parameters())
    for t in tensors:
        t.grad = torch.zeros_like(t)
    found = []
    for form in ({"foreach": True}, {"fused": True}, {"foreach": False}):
        optimizer = torch.optim.AdamW(tensors, lr=1e-5, **form)
        optimizer.step()
        found.append(seconds(optimizer.step) / len(tensors) / f)
    return *found, seconds(lambda: torch.nn.utils.clip_grad_norm_(tensors, 1.0)) / len(tensors) / f


if sys.argv[1:] == ["optimizer"]:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29743")
    for ranks in (0, 1, 2):
        print("a tensor, FSDP2 over %d: AdamW foreach %4.2f, fused %4.2f, loop %5.2f; clip %4.2f" % (ranks, *steps_of(sharded_over(ranks))))
        if ranks:
            dist.destroy_process_group()
    sys.exit()
os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29741")
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
mesh = init_device_mesh("cpu", (2,))
sharded = model()
for block in sharded.model.layers:
    fully_shard(block, mesh=mesh)
fully_shard(sharded, mesh=mesh)
forward(sharded).backward()
more = seconds(lambda: forward(sharded).backward()) - step
collectives = 3 * LAYERS + 2                    # two all-gathers and a reduction a block; the root is gathered once
print("FSDP2, a collective                          %7.1f" % (more / collectives / f))

from torch.distributed.pipelining.schedules import _batch_p2p, _wait_batch_p2p
sent = torch.zeros(8)


def messages():
    for _ in range(100):
        _wait_batch_p2p(_batch_p2p([dist.P2POp(dist.isend, sent, 1, dist.group.WORLD)]))


print("pipeline, a message                          %7.1f" % (seconds(messages) / 100 / f))

# torch.optim.Muon of matrices that FSDP2 shards: what DTensor takes more than whole tensors, by its collectives: one of the norm, and
# five times three gathers of a wide matrix or two sums of a tall one.

def muon_step(shape, place):
    p = torch.nn.Parameter(place(torch.randn(shape)))
    p.grad = place(torch.randn(shape))
    muon = torch.optim.Muon([p])
    muon.step()
    return seconds(muon.step)


for shape, moves in (((64, 96), 16), ((96, 64), 11)):
    more = muon_step(shape, lambda t: distribute_tensor(t, mesh, [Shard(0)])) - muon_step(shape, lambda t: t)
    print("Muon's DTensors of %d x %d, a collective      %7.1f" % (*shape, more / moves / f))
