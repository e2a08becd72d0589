/* issue_cost.c -- what issuing a schedule's entries costs the thread that does it. */
#include <string.h>

#include "model/plan/graphs.h"
#include "sim/price/op_cost_internal.h"

/* Seconds on the issuing thread.
 *
 * A kernel of transformers' modelling code without gradients is the unit: 12.8 us where a cluster states none (node.issue_us), since
 * Llama-3.2-1B's forward of 512 tokens takes 8.1 ms eagerly on B200 and 1.9 as a graph, in 633 kernels by our count
 * (stas00/ml-engineering, training/performance).  An H200's host took 16.8, and 7.05 for a bare add_; H100's takes 4.7 for that
 * (tusharhqq/napkin-math-gpu, tiny_kernel).  The rest are ratios to the unit.  On that H200's host tests/bench/issue_gpu.py measured (torch 2.11,
 * 26 November 2026; tests/gpu/h200/issue.txt): forward with gradients 1.15, backward 0.89, a collective of FSDP2's hooks 66 in fp32 and 53 in bf16 over 2
 * ranks, 46 and 40 over one, AdamW 1.91 a tensor in 8 foreach passes and 0.53 fused. */
#define ISSUE_UNIT     12.8e-6
#define ISSUE_FORWARD  1.15
#define ISSUE_BACKWARD 0.89
/* With the Python of a hook around it, which picks the unit, its streams and buffers.  1 ms each has been seen
 * (pytorch/pytorch#173680, many small modules).  FSDP1's hooks are taken to be as dear.  Of a unit that one rank has alone
 * the same hook copies. */
#define ISSUE_HOOK       60
#define ISSUE_HOOK_ALONE 43
/* A collective with which DTensor brings an operator's input to its place (Muon under FSDP2), with what the operator itself takes more on
 * DTensors: tests/bench/issue_cost.py on a CPU, torch 2.15, 2026-11, 24.7 for tall matrices and 25.7 for wide ones. */
#define ISSUE_DTENSOR    25
/* A collective of an eager layer of DTensors (parallelize_module() of a Llama's blocks, as torchtitan does it), with what the operators of the
 * layer take more on DTensors: the same script, `tensor`, on a CPU, torch 2.15, 29 November 2026, five runs: 101 in forward (91 to 109), 151
 * in backward (126 to 160).  Their mean: a recomputed forward lies in backward.  DTensor took more before (pytorch#107305: an addmm 0.34 ms). */
#define ISSUE_LAYER      125
/* A hook of DeepSpeed's stage 3 before or after a module, which finds all it needs there: half of what a module takes more
 * than without DeepSpeed, 10.3 and 8.2 (0.19.6; the same script and way of counting, `deepspeed`; its work on gradients is in the
 * latter).  0.13 and 0.1 ms; 0.12 were counted back from GPTlite's rows (sim/notebook.md). */
#define ISSUE_MODULE_FORWARD  10
#define ISSUE_MODULE_BACKWARD 8
/* What DeepSpeed's stage 3 does in such a hook to gather parameters in one collective and to await them, and to reduce a bucket of
 * gradients; each parameter or gradient takes more.  tests/bench/zero3_cost.py on a CPU (torch 2.15, DeepSpeed 0.19.8, 30 November 2026, twelve runs
 * beside others'; medians, kernels that the schedule lists left out): a gather of one 16 (15 to 20), of 29 140 (110 to 205); a flush of
 * three 44 (31 to 73), of eleven 66 (60 to 81). */
#define ISSUE_GATHER     12
#define ISSUE_GATHERED   4.4
#define ISSUE_FLUSH      36
#define ISSUE_FLUSHED    2.7
/* Of stages 1 and 2: a gradient that goes into the bucket, beside its copy, and a reduction.  Of the same script: 6.2 (5.7 to 6.8) with 1.3
 * kernels; 8 (7 to 9) with 2.4. */
#define ISSUE_GRADIENT   5
#define ISSUE_REDUCTION  5.5
/* The Python around a send or receive of PyTorch's pipeline schedules (_batch_p2p(), Work.wait(); the same script), beside ISSUE_COLL. */
#define ISSUE_MESSAGE    0.5
/* A tensor in a list of an optimizer's foreach pass, and in the list of a fused one. */
#define ISSUE_TENSOR_FOREACH 0.24
#define ISSUE_TENSOR_FUSED   0.53
/* What it takes more there where it is a DTensor: by issue_cost.py `optimizer` on a CPU (torch 2.15, three runs of a quiet machine) 2.0 on one rank and 0.9 on two in
 * foreach passes, 2.0 and 1.8 fused: their mean.  By the same script a loop over DTensors takes four times as long as one over tensors; six published
 * steps with a loop under FSDP2 (GPT-2 XL on H100s, tests/accuracy/steps.jsonl) leave no room for that, and it is not counted. */
#define ISSUE_TENSOR_SHARDED 1.7
/* What the issuing thread does for each of many things of one kernel, beside the launch of the first.
 * A product of Transformer Engine's GroupedLinear, which C++ launches one by one: 60 groups on B200 by the clock (MooreThreads/SimuMax@4dcaae51,
 * configs/system/b200_bf16_ceperm.json) take 8.6 us a product at least, and 8.6 to 9.4 in four shapes whose work differs by a factor of two; an upper
 * bound of the thread's own.  A gradient of a weight that such a product adds to main_grad by itself, handed through autograd to Megatron's hook
 * (_make_backward_post_hook(), and where buckets fill register_grad_ready()), and a tensor that torch.split() cuts off and torch.cat() joins, forward
 * and back: tests/bench/issue_cost.py `experts` on a CPU (torch 2.15, megatron-core 0.16.1, 29 November 2026; medians of
 * four runs beside others': 0.30 to 0.53; 0.03 to 0.07 and 0.08 to 0.13). */
#define ISSUE_PRODUCT  0.70
#define ISSUE_ADDED    0.50
#define ISSUE_CHUNK_FORWARD  0.05
#define ISSUE_CHUNK_BACKWARD 0.10
/* Assumed; no measurement of them was found.  An entry of the executor: one message to a thread. */
#define ISSUE_OWN      1e-6
/* A collective called from C++ (DistributedDataParallel's reducer, an executor). */
#define ISSUE_COLL     15e-6
/* The Python around one of Megatron-core's between a block's kernels (an autograd.Function that calls torch.distributed): issue_cost.py `experts` on a
 * CPU (torch 2.15, megatron-core 0.16.1), 3.0 with gradients, 4.2 without. */
#define ISSUE_MEGATRON   3.0
/* A wait or an allocation. */
#define ISSUE_EVENT    2e-6
/* A number that Python reads back from the GPU, nothing else being there to do: a small operator from launch to end, 4.66 us (tusharhqq/
 * napkin-math-gpu, tiny_kernel, H100), and a blocking copy to the host, 13.95 us (pytorch/tensordict pull 1545, H200: 1000 copies of 16 KB
 * in 13.95 ms); the Python of an index, a comparison and a truth value, in units of a kernel (tests/bench/issue_cost.py: the
 * same loop over a tensor of the CPU, torch 2.15, 29 November 2026). */
#define READ_BACK   (4.66e-6 + 13.95e-6)
#define READ_PYTHON 0.25
/* A CUDA graph's replay, which issues all of its kernels: cudaGraphLaunch() of a straight line, 2.5 us and 1 ns a kernel (NVIDIA's blog
 * "Constant Time Launch for Straight-Line CUDA Graphs", CUDA 12.6, Ampere and later), and the Python around it, measured on a CPU by
 * tests/bench/graph_cost.py in the same unit: a block under torch.compile(); Megatron-core's _CudagraphReplayNode with what
 * CudaGraphManager does before; torch.cuda.make_graphed_callables(), of which Transformer Engine's is a variant (26 November 2026, the least of three runs on a quiet machine).  Lower bounds: what cudagraph trees check
 * needs a GPU, and Transformer Engine's and Megatron's code around make_graphed_callables() was not timed. */
#define ISSUE_REPLAY   2.5e-6
static const double replay_python[][NPASS] = { [GRAPHS_BY_COMPILER] = { 5.8, 3.9 }, [GRAPHS_BY_MEGATRON] = { 9.7, 4.9 }, [GRAPHS_BY_TE] = { 0.9, 2.8 } };

/* Transformer Engine's modules are Python: its Linear's forward takes 99.66 us where PyTorch's takes 37.08 (GB200), 90.53 where it takes 33.17 (GH200;
 * NVIDIA/TransformerEngine issue 2053): so many units beside the product's.  A GroupedLinear is taken to be as dear.  Of what Linear's forward takes more
 * than PyTorch's, its backward takes 0.76, RMSNorm (of te.ops) 0.8 and 0.5, DotProductAttention (cuDNN's, causal) 2.6 and 1.1: tests/bench/issue_te.py on
 * a CPU, Transformer Engine 2.9, torch 2.15, 30 November 2026, of the least times in six runs beside others' work; single runs are off by up to half. */
#define ISSUE_TE_MODULE ((99.66 / 37.08 + 90.53 / 33.17) / 2 - 1)
static const double te_python[][NPASS] = { [TE_PYTHON_LINEAR] = { 1, .76 }, [TE_PYTHON_NORM] = { .8, .5 }, [TE_PYTHON_ATTENTION] = { 2.6, 1.1 }, [TE_PYTHON_DISPATCH_BARE] = { 0 } };     /* of the rest below */
/* What Megatron-core's router and dispatcher take beside the kernels, collectives and chunks that a plan prices of them: small operators that it does not
 * (maps, numbers of rows by rank and expert, casts), and Python.  tests/bench/issue_cost.py `experts` on a CPU (torch 2.15,
 * megatron-core 0.16.1, 128 experts over 8 ranks, 30 November 2026, beside others' work): of a layer without its experts 88 to 114 units in forward, 65 to 92
 * without gradients, 62 to 99 in backward (middles 105, 77, 80); of these the plan prices 50, 50 and 56. */
static const double dispatch_python[] = { [TE_PYTHON_DISPATCH] = 79, [TE_PYTHON_DISPATCH_BARE] = 27 };

/* In units. */
double op_issue_one_by_one(enum pass pass, const struct kernel *k)
{
    bool by_hook = k->te_module == TE_PYTHON_GRADS;     /* a kernel adds each, of which the plan has one */
    double dispatch = k->te_module >= TE_PYTHON_DISPATCH ? dispatch_python[k->te_module] : 0;
    double products = k->apart ? (double)(k->batch - 1) * ISSUE_PRODUCT : 0, added = k->apart && (k->sums > 0 || by_hook) ? (double)k->batch * ISSUE_ADDED : 0;

    added += by_hook ? (double)(k->batch - 1) * ISSUE_BACKWARD : 0;
    return te_python[k->te_module][pass] * ISSUE_TE_MODULE + dispatch + products + added + k->chunks * (pass == PASS_FORWARD ? ISSUE_CHUNK_FORWARD : ISSUE_CHUNK_BACKWARD);
}

double issue_unit_of(const struct cluster *c) { return c->node.issue > 0 ? c->node.issue : ISSUE_UNIT; }

static double issue_unit(const struct cost_cache *c) { return issue_unit_of(&c->p->cluster); }

/* In units: of the hooks around the modules of a whole pass a segment has as large a share as of its kernels. */
static double module_hooks(const struct schedules *s, const struct op *o, int kernels)
{
    const uint16_t *n = s->module_hooks[o->u.compute.piece][o->u.compute.pass];
    double all = n[PASS_FORWARD] * ISSUE_MODULE_FORWARD + n[PASS_BACKWARD] * ISSUE_MODULE_BACKWARD;

    return kernels > 0 ? all * (o->u.compute.k1 - o->u.compute.k0) / kernels : all;
}

/* The executor's own: a message to a lane, and one for each kernel. */
static double issue_own(struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    double entry = c->measured && c->measured->own.issue_entry.s > 0 ? c->measured->own.issue_entry.s : ISSUE_OWN;

    if (o->kind == OP_REPEAT || o->kind == OP_END)
        return 0;
    if (o->kind != OP_COMPUTE || !c->measured)
        return entry;
    const struct sums *of = op_sums_of(c, s, o);
    return entry + (of->launches[o->u.compute.k1] - of->launches[o->u.compute.k0]) * c->measured->own.issue_kernel.s;
}

static double issue_compute(struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    const struct sums *of = op_sums_of(c, s, o);
    bool   forward = o->u.compute.pass == PASS_FORWARD;
    int    launches = of->launches[o->u.compute.k1] - of->launches[o->u.compute.k0];
    int    replays = of->replays[o->u.compute.k1] - of->replays[o->u.compute.k0];
    double graphs = replays * (ISSUE_REPLAY + replay_python[graphs_by(c->p)][o->u.compute.pass] * issue_unit(c));
    double traced = op_traced_issue(c, forward ? TRACED_FORWARD : TRACED_BACKWARD);

    if (op_traced_issue(c, TRACED_FORWARD) > 0)
        return graphs + launches * traced;
    double more = of->more[o->u.compute.k1] - of->more[o->u.compute.k0];
    return graphs + (launches * (forward ? ISSUE_FORWARD : ISSUE_BACKWARD) + more + module_hooks(s, o, of->n)) * issue_unit(c);
}

/* In units, the collective with it. */
static double hook_that_sends(const struct cost_cache *c, const struct op *o)
{
    int tensors = o->u.coll.op == COLL_ALL_TO_ALL ? 0 : o->u.coll.tensors;

    if (c->hooked == HOOKS_OF_GRADIENTS)
        return o->phase == PHASE_REDUCE ? ISSUE_REDUCTION : ISSUE_COLL / issue_unit(c);
    if (c->hooked != HOOKS_OF_PARAMETERS)
        return ISSUE_HOOK;
    if (o->phase == PHASE_REDUCE)
        return ISSUE_FLUSH + tensors * ISSUE_FLUSHED;
    return tensors > 0 ? ISSUE_GATHER + tensors * ISSUE_GATHERED : ISSUE_COLL / issue_unit(c);
}

static double issue_coll(const struct cost_cache *c, const struct op *o)
{
    if (op_traced_issue(c, TRACED_COLL) > 0)
        return op_traced_issue(c, TRACED_COLL);
    if (o->flags & OPF_DTENSOR)
        return ISSUE_DTENSOR * issue_unit(c);
    if (o->flags & OPF_LAYER)
        return ISSUE_LAYER * issue_unit(c);
    if (coll_is_message((enum coll_op)o->u.coll.op))
        return ISSUE_COLL + ISSUE_MESSAGE * issue_unit(c);
    if (kernels_are_megatron(c->p->kernels) && (o->stream == STREAM_TENSOR || o->stream == STREAM_CONTEXT))
        return ISSUE_COLL + ISSUE_MEGATRON * issue_unit(c);
    return o->flags & OPF_HOOK ? hook_that_sends(c, o) * issue_unit(c) : ISSUE_COLL;
}

static double issue_copy(const struct cost_cache *c, const struct op *o)
{
    bool hook = o->flags & OPF_HOOK;
    int kernels = o->u.copy.kernels > 1 ? o->u.copy.kernels : 1;

    if (hook && !op_traced_with_hooks(c))
        return (c->hooked == HOOKS_OF_GRADIENTS ? kernels * (1 + ISSUE_GRADIENT) : ISSUE_HOOK_ALONE) * issue_unit(c);
    if (op_traced_issue(c, TRACED_FORWARD) > 0)    /* where a trace with hooks has no collectives, the hooks' time is in its kernels' */
        return op_traced_issue(c, hook && op_traced_issue(c, TRACED_COLL) > 0 ? TRACED_COLL : TRACED_FORWARD);
    return kernels * issue_unit(c);
}

static double issue_optimizer(const struct cost_cache *c, const struct op *o)
{
    int passes = o->u.optimizer.passes, tensors = o->u.optimizer.tensors;
    double each = passes > 1 ? passes * ISSUE_TENSOR_FOREACH : ISSUE_TENSOR_FUSED;

    if (o->u.optimizer.each)
        return passes * tensors * issue_unit(c);
    return (passes + tensors * (each + (o->flags & OPF_DTENSOR ? ISSUE_TENSOR_SHARDED : 0))) * issue_unit(c);
}

double op_issue_cost(struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    c->hooked = s->hooks;
    if ((o->kind == OP_COLL && (o->flags & OPF_GRAPH)) || (graphs_of_step(c->p) && op_is_of_passes(o)))
        return 0;             /* a step's one replay is nothing beside the step */
    if (c->p->kernels == KERNELS_DPX)
        return issue_own(c, s, o);
    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:
        return issue_compute(c, s, o);
    case OP_COLL:
        return issue_coll(c, o);
    case OP_COPY:
        return issue_copy(c, o);
    case OP_OPTIMIZER:
        return issue_optimizer(c, o);
    case OP_WAIT:
        return ISSUE_EVENT + (double)o->u.wait.reads * (READ_BACK + READ_PYTHON * issue_unit(c));
    case OP_MEMORY:
        return ISSUE_EVENT;
    case OP_REPEAT:
    case OP_END:
        break;
    }
    return 0;
}
