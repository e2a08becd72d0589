/* op_cost.c -- what a schedule's entries cost, and what issuing them costs.
 *
 * Running sums: cost of kernels [k0,k1) = at[k1] - at[k0]. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/kernel_cost.h"

/* Seconds on the issuing thread; all but the first are assumed: no public measurement of them
 * was found.
 *
 * An operator called from Python: 4.7 us for a bare add_ on H100's host, 5.2 on A100's
 * (tusharhqq/napkin-math-gpu, tiny_kernel); with the modules of transformers around it 12.8,
 * since Llama-3.2-1B's forward of 512 tokens takes 8.1 ms eagerly and 1.9 as a graph, in 633
 * kernels by our count (stas00/ml-engineering, training/performance, B200).  Taken: the
 * geometric mean, since code varies between the two. */
#define ISSUE_FORWARD  8e-6
/* The same called by autograd's engine, without Python. */
#define ISSUE_BACKWARD 5e-6
/* An entry of the executor: one message to a thread. */
#define ISSUE_OWN      1e-6
/* A collective called from C++ (DistributedDataParallel's reducer, an executor). */
#define ISSUE_COLL     15e-6
/* And with the Python of a hook around it, which picks the unit, its streams and buffers:
 * 1 ms each has been seen (pytorch/pytorch#173680, many small modules). */
#define ISSUE_HOOK     120e-6
/* A wait or an allocation. */
#define ISSUE_EVENT    2e-6
/* A tensor in an optimizer's list. */
#define ISSUE_TENSOR   4e-6

/* PCIe as copied: 55.4 of 63 GB/s (H200, nvbandwidth), 26.4 of 31 (A100, napkin-math). */
#define PCIE 0.87

/* What a kernel's error comes from: the rate of products, of attention, of memory.  Kernels of one
 * source are off together, so their half-intervals add; sources are unrelated, so theirs add as
 * squares do. */
enum source { SOURCE_GEMM, SOURCE_ATTENTION, SOURCE_MEMORY, NSOURCE };

struct running {
    double s, less[NSOURCE], more[NSOURCE];     /* s - low_s, high_s - s */
    enum basis basis;
};

struct sums {
    struct running *at;         /* at[i]: kernels 0 .. i-1 */
    int         *launches;
    int          n;
    struct cost  all;           /* the whole pass, as most entries are */
};

struct cost_cache {
    const struct plan          *p;
    const struct kernel_points *points;
    struct kernel_context       in;
    struct gemm_residuals       gemm;
    struct sums                 pass[NPIECE][NPASS];
    struct plan                 of;     /* what the sums are of; no pointer is followed */
};

static enum flash flash_of(const struct plan *p)
{
    bool torch = p->dialect == DIALECT_TORCH || p->dialect == DIALECT_TORCH_FSDP1;

    /* PyTorch 2.2's release notes: "now supports FlashAttention-2, yielding around 2x speedups". */
    if (p->kernels != KERNELS_DPX && torch && plan_version(p) > 0 && plan_version(p) < 2002)
        return FLASH_1;
    /* sdp_utils.cpp, check_prefer_cudnn_attention(): Hopper and datacenter Blackwell. */
    if (p->kernels == KERNELS_DPX || (torch && plan_version(p) > 0 && plan_version(p) < 2013))
        return FLASH_2;
    return FLASH_CUDNN;
}

static void describe(struct cost_cache *c, const struct plan *p)
{
    const struct model *m = &p->model;
    double pairs = (double)p->micro_batch * (double)p->seq * (double)p->seq;

    c->p = p;
    c->of = *p;
    kernel_residuals(&p->cluster.gpu, p->precision, c->points, &c->gemm);
    c->in = (struct kernel_context){
        .points = c->points, .gemm = &c->gemm, .seq = p->seq, .head_dim = m->head_dim,
        .attention_forward = 4 * pairs * (double)m->heads * (double)m->head_dim,
        .flash = flash_of(p), .sustained = true,
    };
}

static void forget(struct cost_cache *c)
{
    for (int piece = 0; piece < NPIECE; piece++)
        for (int pass = 0; pass < NPASS; pass++) {
            free(c->pass[piece][pass].at);
            free(c->pass[piece][pass].launches);
        }
    memset(c->pass, 0, sizeof c->pass);
}

struct cost_cache *cost_cache_new(const struct plan *p, const struct kernel_points *points)
{
    struct cost_cache *c = calloc(1, sizeof *c);

    if (!c)
        abort();
    c->points = points;
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

static bool same_shapes(const struct model *a, const struct model *b)
{
    return a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads
           && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->ffn == b->ffn
           && a->vocab == b->vocab && a->params == b->params && a->mlp == b->mlp
           && a->norm == b->norm && a->act == b->act && a->position == b->position
           && a->tied == b->tied && !strcmp(a->name, b->name) && !strcmp(a->family, b->family);
}

static bool same_gpu(const struct gpu *a, const struct gpu *b)
{
    return !strcmp(a->name, b->name) && a->sms == b->sms && a->hbm == b->hbm
           && a->fp32 == b->fp32 && a->fp16 == b->fp16 && a->bf16 == b->bf16;
}

/* The dialect decides what autograd runs (autocast or not), as the precision does; its version
 * which attention, and how much a checkpoint runs again. */
bool cost_cache_fits(const struct cost_cache *c, const struct plan *p)
{
    const struct plan *o = &c->of;

    return same_shapes(&o->model, &p->model) && same_gpu(&o->cluster.gpu, &p->cluster.gpu)
           && o->kernels == p->kernels && o->precision == p->precision && o->seq == p->seq
           && o->micro_batch == p->micro_batch && o->dropout == p->dropout
           && o->recompute == p->recompute && o->dialect == p->dialect
           && o->strategy == p->strategy && !strcmp(o->framework_version, p->framework_version);
}

void cost_cache_use(struct cost_cache *c, const struct plan *p)
{
    if (cost_cache_fits(c, p)) {
        c->p = p;
        return;
    }
    forget(c);
    describe(c, p);
}

static enum source source_of(const struct kernel *k)
{
    return k->m > 0 ? SOURCE_GEMM : k->kind == KC_ATTENTION ? SOURCE_ATTENTION : SOURCE_MEMORY;
}

static void between(const struct sums *of, int k0, int k1, struct cost *out)
{
    const struct running *a = &of->at[k0], *b = &of->at[k1];
    double t = b->s - a->s, less = 0, more = 0;

    for (int i = 0; i < NSOURCE; i++) {
        less += (b->less[i] - a->less[i]) * (b->less[i] - a->less[i]);
        more += (b->more[i] - a->more[i]) * (b->more[i] - a->more[i]);
    }
    *out = (struct cost){ t, t - sqrt(less), t + sqrt(more), b->basis };
}

static void sum_up(struct cost_cache *c, const struct piece *piece, enum pass pass,
                   struct sums *out)
{
    int n = piece->nkernels[pass];
    const struct kernel *k = piece->kernels[pass];

    out->at = calloc((size_t)n + 1, sizeof *out->at);
    out->launches = calloc((size_t)n + 1, sizeof *out->launches);
    if (!out->at || !out->launches)
        abort();
    out->n = n;
    for (int i = 0; i < n; i++) {
        enum source source = source_of(&k[i]);
        struct running *sum = &out->at[i + 1];
        struct cost one;

        kernel_cost_in(&c->p->cluster.gpu, c->p->kernels, c->p->precision, &c->in, &k[i], &one);
        *sum = out->at[i];
        sum->s += one.s;
        sum->less[source] += one.s - one.low_s;
        sum->more[source] += one.high_s - one.s;
        sum->basis = basis_worst(sum->basis, one.basis);
        out->launches[i + 1] = out->launches[i] + kernel_launches(c->p->kernels, pass, &k[i]);
    }
    between(out, 0, n, &out->all);
}

static const struct sums *sums_of(struct cost_cache *c, const struct schedules *s,
                                  const struct op *o)
{
    enum piece_id piece = (enum piece_id)o->u.compute.piece;
    enum pass     pass = (enum pass)o->u.compute.pass;
    struct sums  *of = &c->pass[piece][pass];

    if (!of->at)
        sum_up(c, &s->program.piece[piece], pass, of);
    assert(of->n == s->program.piece[piece].nkernels[pass]);
    assert(o->u.compute.k0 <= o->u.compute.k1 && o->u.compute.k1 <= of->n);
    return of;
}

static void compute(struct cost_cache *c, const struct schedules *s, const struct op *o,
                    struct cost *out)
{
    const struct sums *of = sums_of(c, s, o);

    if (o->u.compute.k0 == 0 && o->u.compute.k1 == of->n)
        *out = of->all;
    else
        between(of, o->u.compute.k0, o->u.compute.k1, out);
}

static void copy(const struct cost_cache *c, const struct op *o, struct cost *out)
{
    const struct gpu *g = &c->p->cluster.gpu;
    const struct kernel_points *pts = c->points;
    double reads = (double)o->u.copy.reads, writes = (double)o->u.copy.writes;
    struct kernel k = { .kind = KC_COPY, .bytes = o->u.copy.reads + o->u.copy.writes };

    if ((o->stream == STREAM_H2D || o->stream == STREAM_D2H) && g->pcie > 0) {
        double t = (reads > writes ? reads : writes) / (g->pcie * PCIE);
        *out = (struct cost){ t, t / 1.2, t * 1.5, BASIS_PUBLISHED };
    } else {
        kernel_cost_in(g, c->p->kernels, c->p->precision,
                       &(struct kernel_context){ .points = pts }, &k, out);
    }
}

static void optimizer(const struct cost_cache *c, const struct op *o, struct cost *out)
{
    int passes;
    double bytes = optimizer_bytes(c->p, &passes) * (double)o->u.optimizer.elems;
    struct kernel_points as_bytes = { 0 };
    struct kernel k = { .kind = KC_ELEMENTWISE, .bytes = (int64_t)bytes };

    if (c->points && c->points->noptimizer > 0) {
        as_bytes.bytes[KC_ELEMENTWISE] = c->points->optimizer;
        as_bytes.nbytes[KC_ELEMENTWISE] = c->points->noptimizer;
    }
    kernel_cost_in(&c->p->cluster.gpu, c->p->kernels, c->p->precision,
                   &(struct kernel_context){ .points = &as_bytes }, &k, out);
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
        copy(c, o, out);
        break;
    case OP_OPTIMIZER:
        optimizer(c, o, out);
        break;
    case OP_COLL:
    case OP_WAIT:
    case OP_MEMORY:
    case OP_REPEAT:
    case OP_END:
        break;
    }
}

/* Units are gathered and reduced by Python hooks there. */
static bool has_hooks(const struct plan *p)
{
    return p->strategy == STRAT_FSDP
           || (p->strategy == STRAT_ZERO3 && p->dialect == DIALECT_DEEPSPEED);
}

double issue_cost(struct cost_cache *c, const struct schedules *s, const struct op *o)
{
    const struct plan *p = c->p;
    bool   own = p->kernels == KERNELS_DPX;
    int    passes;

    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE: {
        const struct sums *of = sums_of(c, s, o);
        int launches = of->launches[o->u.compute.k1] - of->launches[o->u.compute.k0];
        if (own)
            return ISSUE_OWN;
        return launches * (o->u.compute.pass == PASS_FORWARD ? ISSUE_FORWARD : ISSUE_BACKWARD);
    }
    case OP_COLL:
        return own ? ISSUE_OWN : has_hooks(p) ? ISSUE_HOOK : ISSUE_COLL;
    case OP_COPY:
        return own ? ISSUE_OWN : ISSUE_FORWARD;
    case OP_OPTIMIZER:
        optimizer_bytes(p, &passes);
        return own ? ISSUE_OWN : passes * ISSUE_FORWARD + p->model.ntensors * ISSUE_TENSOR;
    case OP_WAIT:
    case OP_MEMORY:
        return own ? ISSUE_OWN : ISSUE_EVENT;
    case OP_REPEAT:
    case OP_END:
        break;
    }
    return 0;
}
