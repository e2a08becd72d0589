/* op_cost.c -- what a schedule's entries cost, and what issuing them costs.
 *
 * Running sums: cost of kernels [k0,k1) = at[k1] - at[k0]. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/plan/attention.h"
#include "model/plan/graphs.h"
#include "sim/price/coded_cost.h"
#include "sim/price/gemm_cost.h"
#include "sim/price/kernel_cost.h"
#include "sim/price/measured_cost.h"
#include "sim/price/space_cost.h"

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
 * (pytorch/pytorch#173680, many small modules).  FSDP1's and DeepSpeed's hooks are taken to be as dear.  Of a unit that one rank has alone
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
/* A wait or an allocation. */
#define ISSUE_EVENT    2e-6
/* A CUDA graph's replay, which issues all of its kernels: cudaGraphLaunch() of a straight line, 2.5 us and 1 ns a kernel (NVIDIA's blog
 * "Constant Time Launch for Straight-Line CUDA Graphs", CUDA 12.6, Ampere and later), and the Python around it, measured on a CPU by
 * tests/bench/graph_cost.py in the same unit: a block under torch.compile(); Megatron-core's _CudagraphReplayNode with what
 * CudaGraphManager does before; torch.cuda.make_graphed_callables(), of which Transformer Engine's is a variant (26 November 2026, the least of three runs on a quiet machine).  Lower bounds: what cudagraph trees check
 * needs a GPU, and Transformer Engine's and Megatron's code around make_graphed_callables() was not timed. */
#define ISSUE_REPLAY   2.5e-6
static const double replay_python[][NPASS] = { [GRAPHS_BY_COMPILER] = { 5.8, 3.9 }, [GRAPHS_BY_MEGATRON] = { 9.7, 4.9 }, [GRAPHS_BY_TE] = { 0.9, 2.8 } };

/* What a kernel's error comes from: the rate of products, of attention, of memory.  Sources are
 * unrelated: their half-intervals add as squares do.  Kernels of one source are off together in part,
 * since the rate is one figure, and each by itself in part, since shapes differ: of the variance this
 * share is common.  A100's publications of products put the rate at 0.753 to 0.925 of its peak while
 * nine in ten shapes of one publication lie within 1.35 (gpu_rates.c): (ln(0.925/0.753)/2 / ln 1.35)^2. */
enum source { SOURCE_GEMM, SOURCE_ATTENTION, SOURCE_MEMORY, NSOURCE };
#define COMMON 0.12

struct running {
    double s, less[NSOURCE], more[NSOURCE];     /* s - low_s, high_s - s */
    double less2[NSOURCE], more2[NSOURCE];      /* and the sums of their squares */
    double streams;                             /* of s, in kernels that live off memory */
    double ready;                               /* bytes of gradients that are complete */
    enum basis basis;
    bool   outside;
    double variance;
};

struct sums {
    struct running *at;         /* at[i]: kernels 0 .. i-1 */
    int         *launches;      /* of kernels that no CUDA graph holds, */
    double      *more;          /* units that these take beside their launches, */
    int         *replays;       /* and graphs that begin: at their first kernel */
    int          n;
    uint64_t     key;           /* of the kernels (struct piece), */
    bool         hooked;        /* whether hooks of Python gather and reduce, */
    enum flash   flash;         /* and what their fused attention is, */
    bool         cuda_12_8;     /* and their products */
    double       common;        /* share of the variance of one source that its kernels have in common */
    struct cost  all;           /* the whole pass, as most entries are */
    double      *held[2];       /* of products and attention, as `at`, while a collective leaves them left[i] multiprocessors; */
    int          left[2];       /* NULL: not asked for yet */
};

/* All that the sums of a pass depend on beside its kernels, compared byte by byte.  Made by price_inputs() alone, which sets every
 * byte of it. */
struct price_inputs {
    struct gpu gpu;
    enum kernel_set set;
    enum dtype precision;
    int64_t  seq, head_dim;
    double   attention_forward, limited;        /* struct kernel_context */
    bool     dropout, is_host;
    bool     masked[NPIECE];        /* the blocks of a piece hand sdpa a mask */
    const struct measured_device *measured;     /* of the executor's own kernels; NULL: nothing */
    const struct measured_device *traced;       /* of a framework's; NULL: nothing */
};

struct cost_cache {
    const struct plan          *p;
    const struct measured_device *measured;     /* of the executor's own kernels; NULL: nothing */
    const struct measured_device *traced;       /* of a framework's; NULL: nothing */
    struct kernel_context       in;
    struct gemm_residuals       gemm;
    bool                        hooked;         /* of the schedules at hand: schedules.hooks */
    struct sums                 pass[NPIECE][NPASS];
    struct price_inputs         of;     /* what the sums are of; no pointer is followed */
};

/* Do the blocks of a piece hand sdpa a mask?  Where some do and some do not, the former have pieces of
 * their own. */
static bool piece_masked(const struct plan *p, enum piece_id id)
{
    return program_piece_windowed(p, id) || !attention_mixed(p);
}

static void price_inputs(const struct plan *p, struct price_inputs *out)
{
    const struct model *m = &p->model;
    const struct measured_device *device = p->cluster.measured;
    int64_t seq = plan_attention_seq(p), heads = ceil_div(m->heads, p->parallel.tensor > 1 ? p->parallel.tensor : 1) * plan_rank_seq(p) / seq;
    double pairs = (double)p->micro_batch * (double)seq * (double)seq;
    bool masks = kernels_take_sdpa(p->kernels) && attention_masked(p);

    memset(out, 0, sizeof *out);
    memcpy(&out->gpu, &p->cluster.gpu, sizeof out->gpu);
    out->set = p->kernels;
    out->precision = p->precision;
    out->seq = seq;
    out->head_dim = m->head_dim;
    out->attention_forward = 4 * pairs * (double)heads * (double)m->head_dim;
    out->limited = p->cluster.power_limit_w > 0 ? gpu_power_share(&p->cluster.gpu, p->cluster.power_limit_w) : 0;
    out->dropout = p->dropout > 0;
    out->is_host = p->cluster.is_host;
    for (int i = 0; masks && i < NPIECE; i++)
        out->masked[i] = piece_masked(p, (enum piece_id)i);
    out->measured = p->kernels == KERNELS_DPX ? device : NULL;
    out->traced = device && device->traced[p->kernels] ? device : NULL;
}

/* c->of is set. */
static void describe(struct cost_cache *c, const struct plan *p)
{
    const struct price_inputs *of = &c->of;

    c->p = p;
    c->measured = of->measured;
    c->traced = of->traced;
    kernel_residuals(&p->cluster.gpu, p->precision, &c->gemm);
    c->in = (struct kernel_context){
        .measured = c->measured ? c->measured : c->traced, .set = of->set, .gemm = &c->gemm, .seq = of->seq, .head_dim = of->head_dim,
        .dropout = of->dropout, .attention_forward = of->attention_forward, .sustained = true, .limited = of->limited,
    };
}

static void drop(struct sums *of)
{
    free(of->at);
    free(of->launches);
    free(of->more);
    free(of->replays);
    free(of->held[0]);
    free(of->held[1]);
    memset(of, 0, sizeof *of);
}

static void forget(struct cost_cache *c)
{
    for (int piece = 0; piece < NPIECE; piece++)
        for (int pass = 0; pass < NPASS; pass++)
            drop(&c->pass[piece][pass]);
}

struct cost_cache *cost_cache_new(const struct plan *p)
{
    struct cost_cache *c = calloc(1, sizeof *c);

    if (!c)
        abort();
    price_inputs(p, &c->of);
    describe(c, p);
    return c;
}

void cost_cache_free(struct cost_cache *c)
{
    if (!c)
        return;
    forget(c);
    free(c);
}

/* Which kernels there are is in the keys of their passes. */
bool cost_cache_fits(const struct cost_cache *c, const struct plan *p)
{
    struct price_inputs now;

    price_inputs(p, &now);
    return !memcmp(&c->of, &now, sizeof now);
}

void cost_cache_use(struct cost_cache *c, const struct plan *p)
{
    struct price_inputs now;

    price_inputs(p, &now);
    if (!memcmp(&c->of, &now, sizeof now)) {
        c->p = p;
        return;
    }
    forget(c);
    memcpy(&c->of, &now, sizeof now);
    describe(c, p);
}

static enum source source_of(const struct kernel *k)
{
    return k->m > 0 ? SOURCE_GEMM : k->kind == KC_ATTENTION ? SOURCE_ATTENTION : SOURCE_MEMORY;
}

/* Of a pass's half-interval L, L^2 = sum of c (sum l)^2 + (1 - c) sum l^2 over sources, what kernels k0 to k1 are the cause of: their part of L dL.
 * Those of all segments add up to L, wherever a collective cuts the pass: kernels that err by themselves do not err together for lying in different
 * segments. */
static double part_of(double common, double all, double l, double l2) { return common * all * l + (1 - common) * l2; }

static void between(const struct sums *of, int k0, int k1, struct cost *out)
{
    const struct running *a = &of->at[k0], *b = &of->at[k1], *all = &of->at[of->n];
    double t = b->s - a->s, less = 0, more = 0, low = 0, high = 0;

    for (int i = 0; i < NSOURCE; i++) {
        less += part_of(of->common, all->less[i], all->less[i], all->less2[i]);
        more += part_of(of->common, all->more[i], all->more[i], all->more2[i]);
        low += part_of(of->common, all->less[i], b->less[i] - a->less[i], b->less2[i] - a->less2[i]);
        high += part_of(of->common, all->more[i], b->more[i] - a->more[i], b->more2[i] - a->more2[i]);
    }
    *out = (struct cost){ t, t - (less > 0 ? low / sqrt(less) : 0), t + (more > 0 ? high / sqrt(more) : 0), b->basis, b->outside, b->variance - a->variance };
}

/* The lane takes one task a kernel, which the issuing thread has made on the same core: where ranks
 * compute on all cores of a machine, every thread's time is the computing thread's.  A GPU's is not. */
static double kernel_overhead(const struct cost_cache *c, const struct kernel *k)
{
    if (!c->measured || kernel_launches(c->p->kernels, PASS_FORWARD, k) == 0)
        return 0;
    return c->measured->own.handover.s + (c->p->cluster.is_host ? c->measured->own.issue_kernel.s : 0);
}

static bool traced_with_hooks(const struct cost_cache *c)
{
    return c->traced && c->hooked && c->traced->traced_issue[c->p->kernels][TRACED_HOOKED + TRACED_FORWARD] > 0;
}

/* As a trace has it, one thing of its kind, however many kernels that is in reality; 0: not known.  Of a training with hooks kernels are
 * issued as in one without, if only that was traced; its collectives are not. */
static double traced_issue(const struct cost_cache *c, enum traced_issue what)
{
    if (traced_with_hooks(c))
        return c->traced->traced_issue[c->p->kernels][TRACED_HOOKED + what];
    return c->traced && !(c->hooked && what == TRACED_COLL) ? c->traced->traced_issue[c->p->kernels][what] : 0;
}

/* In units. */
static double one_by_one(enum pass pass, const struct kernel *k)
{
    double products = k->apart ? (double)(k->batch - 1) * ISSUE_PRODUCT : 0, added = k->apart && k->sums > 0 ? (double)k->batch * ISSUE_ADDED : 0;

    return products + added + k->chunks * (pass == PASS_FORWARD ? ISSUE_CHUNK_FORWARD : ISSUE_CHUNK_BACKWARD);
}

static void sum_up(struct cost_cache *c, const struct piece *piece, enum pass pass, const struct program *g,
                   struct sums *out)
{
    int n = piece->nkernels[pass];
    const struct kernel *k = piece->kernels[pass];

    drop(out);
    out->key = piece->key[pass];
    out->hooked = c->hooked;
    out->flash = c->in.flash = g->flash;
    out->cuda_12_8 = c->in.cuda_12_8 = g->cuda_12_8;
    out->at = calloc((size_t)n + 1, sizeof *out->at);
    out->launches = calloc((size_t)n + 1, sizeof *out->launches);
    out->more = calloc((size_t)n + 1, sizeof *out->more);
    out->replays = calloc((size_t)n + 1, sizeof *out->replays);
    if (!out->at || !out->launches || !out->more || !out->replays)
        abort();
    out->n = n;
    out->common = c->in.measured ? 1 : COMMON;  /* one calibration: off together */
    c->in.pass = pass;
    for (int i = 0; i < n; i++) {
        enum source source = source_of(&k[i]);
        struct running *sum = &out->at[i + 1];
        struct cost one;

        kernel_cost_in(&c->p->cluster.gpu, c->p->kernels, c->p->precision, &c->in, &k[i], &one);
        *sum = out->at[i];
        sum->s += one.s;
        sum->less[source] += one.s - one.low_s;
        sum->more[source] += one.high_s - one.s;
        sum->less2[source] += (one.s - one.low_s) * (one.s - one.low_s);
        sum->more2[source] += (one.high_s - one.s) * (one.high_s - one.s);
        sum->s += kernel_overhead(c, &k[i]);
        sum->streams += source == SOURCE_MEMORY ? one.s : 0;
        sum->ready += (double)k[i].ready_bytes;
        sum->basis = basis_worst(sum->basis, one.basis);
        sum->outside |= one.outside;
        sum->variance += one.variance;
        int launches = k[i].captured ? 0 : kernel_launches(c->p->kernels, pass, &k[i]);
        out->replays[i + 1] = out->replays[i] + (k[i].captured && (i == 0 || !k[i - 1].captured));
        out->more[i + 1] = out->more[i] + (launches > 0 ? one_by_one(pass, &k[i]) : 0);
        out->launches[i + 1] = out->launches[i] + (traced_issue(c, TRACED_FORWARD) > 0 ? launches > 0 : launches);
    }
    between(out, 0, n, &out->all);
}

static struct sums *sums_of(struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    enum pass pass = (enum pass)o->u.compute.pass;
    const struct piece *piece = &s->program.piece[o->u.compute.piece];
    struct sums *of = &c->pass[o->u.compute.piece][pass];

    c->hooked = s->hooks;
    if (!of->at || of->key != piece->key[pass] || of->hooked != s->hooks || of->flash != s->program.flash
        || of->cuda_12_8 != s->program.cuda_12_8) {
        c->in.masked = c->of.masked[o->u.compute.piece];
        sum_up(c, piece, pass, &s->program, of);
    }
    assert(of->n == piece->nkernels[pass]);
    assert(o->u.compute.k0 <= o->u.compute.k1 && o->u.compute.k1 <= of->n);
    return of;
}

static void add_estimate(const struct estimate *e, struct cost *out)
{
    out->s += e->s;
    out->low_s += e->s / (1 + e->error);
    out->high_s += e->s * (1 + e->error);
    out->outside |= e->outside;
    out->variance += estimate_variance(e);
}

/* Gradients that are not written where they belong are copied or added there, and dropped. */
static void hand_out(const struct cost_cache *c, const struct schedules *s, const struct op *o, double bytes,
                     struct cost *out)
{
    struct estimate e;
    bool adds = false;

    if (!c->measured || o->u.compute.fate != GRADS_DROP || !(bytes > 0))
        return;
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++)
        adds |= (s->acts[k].what & ACT_ADD) != 0;
    if (measured_pass(c->measured, KERNELS_DPX, adds ? MP_ADD : MP_COPY, (adds ? 3 : 2) * bytes, &e))
        add_estimate(&e, out);
}

static void compute(struct cost_cache *c, const struct schedules *s, const struct op *o,
                    struct cost *out)
{
    const struct sums *of = sums_of(c, s, o);
    int k0 = o->u.compute.k0, k1 = o->u.compute.k1;

    if (k0 == 0 && k1 == of->n)
        *out = of->all;
    else
        between(of, k0, k1, out);
    hand_out(c, s, o, of->at[k1].ready - of->at[k0].ready, out);
}

double op_streams(struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    const struct sums *of;
    double all;

    if (o->kind != OP_COMPUTE)
        return 1;
    of = sums_of(c, s, o);
    all = of->at[o->u.compute.k1].s - of->at[o->u.compute.k0].s;
    return all > 0 ? (of->at[o->u.compute.k1].streams - of->at[o->u.compute.k0].streams) / all : 0;
}

static bool lives_off_memory(const struct running *before, const struct running *behind) { return behind->streams > before->streams; }

static void sum_held(struct cost_cache *c, const struct piece *piece, enum pass pass, struct sums *of, const int left[2])
{
    c->in.cuda_12_8 = of->cuda_12_8;
    for (int i = 0; i < 2; i++) {
        if (!of->held[i])
            of->held[i] = room_new((size_t)of->n + 1, sizeof *of->held[i]);
        of->left[i] = left[i];
        for (int k = 0; k < of->n; k++) {
            const struct running *at = &of->at[k];
            double t = at[1].s - at[0].s;
            if (t > 0 && !lives_off_memory(&at[0], &at[1]))
                t *= kernel_held(&c->p->cluster.gpu, c->p->precision, &c->in, &piece->kernels[pass][k], left[i]);
            else
                t = 0;
            of->held[i][k + 1] = of->held[i][k] + t;
        }
    }
}

void op_held(struct cost_cache *c, const struct schedules *s, const struct op *o, const int left[2], struct op_held *out)
{
    *out = (struct op_held){ .streams = 1 };
    if (o->kind != OP_COMPUTE)
        return;
    struct sums *of = sums_of(c, s, o);
    int k0 = o->u.compute.k0, k1 = o->u.compute.k1;
    double all = of->at[k1].s - of->at[k0].s;

    if (!of->held[0] || of->left[0] != left[0] || of->left[1] != left[1])
        sum_held(c, &s->program.piece[o->u.compute.piece], (enum pass)o->u.compute.pass, of, left);
    if (!(all > 0))
        return;
    out->streams = (of->at[k1].streams - of->at[k0].streams) / all;
    for (int i = 0; i < 2; i++)
        out->products[i] = (of->held[i][k1] - of->held[i][k0]) / all;
}

/* What is read is also what is written. */
static bool in_place(const struct schedules *s, const struct op *o)
{
    bool other = false;

    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        int what = s->acts[k].what & (ACT_READ | ACT_WRITE);
        other |= what && what != (ACT_READ | ACT_WRITE);
    }
    return !other;
}

/* Did what was measured run on what runs this?  Of the host's threads beside a GPU only the optimizer was. */
static bool measured_there(const struct cost_cache *c, const struct op *o)
{
    return c->measured && (c->p->cluster.is_host || o->stream != STREAM_HOST);
}

static bool to_host(const struct schedules *s, const struct op *o)
{
    enum space from, to;

    return sched_crosses(s, o, &from, &to) && from == SPACE_DEVICE;
}

static enum measured_pass pass_of(const struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    if (space_cost_is_file(o))
        return o->stream == STREAM_DISK_READ ? MP_DISK_READ : MP_DISK_WRITE;
    if (space_cost_over_link(c->p, s, o))
        return to_host(s, o) ? MP_TO_HOST : MP_FROM_HOST;
    enum measured_pass coded = coded_pass(c->p, s, o);
    if (coded != NMEASURED_PASS)
        return coded;
    switch ((enum copy_fn)o->u.copy.fn) {
    case COPY_ADD:  return MP_ADD;
    case COPY_ZERO: return MP_ZERO;
    case COPY_NORM: case COPY_OVERFLOW: case COPY_AMAX: return MP_SQUARES;
    case COPY_CLIP: return in_place(s, o) ? MP_RESCALE : MP_SCALE;
    default:        break;
    }
    if (o->u.copy.scale == 1)
        return MP_COPY;
    return in_place(s, o) ? MP_RESCALE : MP_SCALE;
}

/* As it was timed on this machine, if it was. */
static bool own_copy(const struct cost_cache *c, const struct schedules *s, const struct op *o, struct cost *out)
{
    double bytes = (double)(o->u.copy.reads + o->u.copy.writes);
    enum measured_pass pass;
    struct estimate e;

    if (!measured_there(c, o))
        return false;
    *out = (struct cost){ .basis = BASIS_MEASURED };
    if (o->u.copy.fn == COPY_NOTHING || o->u.copy.fn == COPY_LOSS || !(bytes > 0))
        return true;
    pass = pass_of(c, s, o);
    if (space_cost_is_file(o) || space_cost_over_link(c->p, s, o))
        bytes = fmax((double)o->u.copy.reads, (double)o->u.copy.writes);
    if (!measured_pass(c->measured, KERNELS_DPX, pass, bytes, &e) &&
        (pass != MP_RESCALE || !measured_pass(c->measured, KERNELS_DPX, MP_SCALE, bytes, &e)))
        return false;
    add_estimate(&e, out);
    return true;
}

/* As a trace has it: copies and casts by their bytes, whatever they do on the way. */
static bool traced_pass(const struct cost_cache *c, enum measured_pass pass, double bytes, struct cost *out)
{
    struct estimate e;

    if (!c->traced || !(bytes > 0) || !measured_pass(c->traced, c->p->kernels, pass, bytes, &e))
        return false;
    *out = (struct cost){ .basis = BASIS_TRACED };
    add_estimate(&e, out);
    return true;
}

static bool traced_copy(const struct cost_cache *c, const struct schedules *s, const struct op *o, struct cost *out)
{
    if (stream_is_host((enum stream)o->stream))
        return false;
    if (space_cost_over_link(c->p, s, o))
        return traced_pass(c, to_host(s, o) ? MP_TO_HOST : MP_FROM_HOST,
                           fmax((double)o->u.copy.reads, (double)o->u.copy.writes), out);
    return traced_pass(c, MP_COPY, (double)(o->u.copy.reads + o->u.copy.writes), out);
}

static void copy_once(const struct cost_cache *c, const struct schedules *s, const struct op *o, struct cost *out)
{
    const struct gpu *g = &c->p->cluster.gpu;
    struct kernel k = { .name = o->what, .kind = KC_COPY, .bytes = o->u.copy.reads + o->u.copy.writes };

    if (!own_copy(c, s, o, out) && !traced_copy(c, s, o, out) && !space_cost(c->p, s, o, out))
        kernel_cost_in(g, c->p->kernels, c->p->precision, &(struct kernel_context){ 0 }, &k, out);
}

/* Of several kernels each has an equal share of the bytes; they are off together. */
static void copy(const struct cost_cache *c, const struct schedules *s, const struct op *o, struct cost *out)
{
    struct op one = *o;
    struct estimate e;
    int n = o->u.copy.kernels > 1 ? o->u.copy.kernels : 1;

    if (measured_there(c, o) && coded_matrices(c->measured, s, o, &e)) {
        *out = (struct cost){ .basis = BASIS_MEASURED };
        add_estimate(&e, out);
        return;
    }

    one.u.copy.reads /= n;
    one.u.copy.writes /= n;
    copy_once(c, s, &one, out);
    out->s *= n;
    out->low_s *= n;
    out->high_s *= n;
    out->variance *= (double)n * n;
}

/* Products of an optimizer, at the rate of large ones. */
static void add_products(double s, struct cost *out)
{
    out->s += s;
    out->low_s += s;
    out->high_s += s;
}

static void optimizer(const struct cost_cache *c, const struct schedules *s, const struct op *o, struct cost *out)
{
    double bytes = (double)o->u.optimizer.bytes * (double)o->u.optimizer.elems;
    enum measured_pass pass = o->stream == STREAM_HOST && !c->p->cluster.is_host ? MP_HOST_ADAMW : MP_ADAMW;
    struct kernel k = { .name = "optimizer", .kind = KC_ELEMENTWISE, .bytes = (int64_t)bytes };
    struct estimate e;

    if (!stream_is_host((enum stream)o->stream) && traced_pass(c, MP_ADAMW, bytes, out))
        return;
    if (c->measured && bytes > 0 && measured_pass(c->measured, KERNELS_DPX, pass, bytes, &e)) {
        *out = (struct cost){ .basis = BASIS_MEASURED };
        add_estimate(&e, out);
        return;
    }
    if (space_cost(c->p, s, o, out))
        return;
    kernel_cost_in(&c->p->cluster.gpu, c->p->kernels, c->p->precision, &(struct kernel_context){ 0 }, &k, out);
    if (o->u.optimizer.flops > 0) {
        struct gemm_device d = gemm_device(&c->p->cluster.gpu, o->u.optimizer.fp32 ? DT_FP32 : DT_BF16);
        add_products(o->u.optimizer.flops / d.flops, out);
    }
}

void op_cost(struct cost_cache *c, const struct schedules *s, const struct op *o,
             struct cost *out)
{
    *out = (struct cost){ .basis = BASIS_MEASURED };
    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:
        compute(c, s, o, out);
        break;
    case OP_COPY:
        copy(c, s, o, out);
        break;
    case OP_OPTIMIZER:
        optimizer(c, s, o, out);
        break;
    case OP_COLL:
    case OP_WAIT:
    case OP_MEMORY:
    case OP_REPEAT:
    case OP_END:
        break;
    }
}

static double issue_unit(const struct cost_cache *c) { return c->p->cluster.node.issue > 0 ? c->p->cluster.node.issue : ISSUE_UNIT; }

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
    const struct sums *of = sums_of(c, s, o);
    return entry + (of->launches[o->u.compute.k1] - of->launches[o->u.compute.k0]) * c->measured->own.issue_kernel.s;
}

static double issue_compute(struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    const struct sums *of = sums_of(c, s, o);
    bool   forward = o->u.compute.pass == PASS_FORWARD;
    int    launches = of->launches[o->u.compute.k1] - of->launches[o->u.compute.k0];
    int    replays = of->replays[o->u.compute.k1] - of->replays[o->u.compute.k0];
    double graphs = replays * (ISSUE_REPLAY + replay_python[graphs_by(c->p)][o->u.compute.pass] * issue_unit(c));
    double traced = traced_issue(c, forward ? TRACED_FORWARD : TRACED_BACKWARD);

    if (traced_issue(c, TRACED_FORWARD) > 0)
        return graphs + launches * traced;
    double more = of->more[o->u.compute.k1] - of->more[o->u.compute.k0];
    return graphs + (launches * (forward ? ISSUE_FORWARD : ISSUE_BACKWARD) + more + module_hooks(s, o, of->n)) * issue_unit(c);
}

static double issue_coll(const struct cost_cache *c, const struct op *o)
{
    if (traced_issue(c, TRACED_COLL) > 0)
        return traced_issue(c, TRACED_COLL);
    if (o->flags & OPF_DTENSOR)
        return ISSUE_DTENSOR * issue_unit(c);
    if (o->flags & OPF_LAYER)
        return ISSUE_LAYER * issue_unit(c);
    if (coll_is_message((enum coll_op)o->u.coll.op))
        return ISSUE_COLL + ISSUE_MESSAGE * issue_unit(c);
    return o->flags & OPF_HOOK ? ISSUE_HOOK * issue_unit(c) : ISSUE_COLL;
}

static double issue_copy(const struct cost_cache *c, const struct op *o)
{
    bool hook = o->flags & OPF_HOOK;

    if (hook && !traced_with_hooks(c))
        return ISSUE_HOOK_ALONE * issue_unit(c);
    if (traced_issue(c, TRACED_FORWARD) > 0)    /* where a trace with hooks has no collectives, the hooks' time is in its kernels' */
        return traced_issue(c, hook && traced_issue(c, TRACED_COLL) > 0 ? TRACED_COLL : TRACED_FORWARD);
    return (o->u.copy.kernels > 1 ? o->u.copy.kernels : 1) * issue_unit(c);
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
    case OP_MEMORY:
        return ISSUE_EVENT;
    case OP_REPEAT:
    case OP_END:
        break;
    }
    return 0;
}
