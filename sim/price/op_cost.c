/* op_cost.c -- what a schedule's entries cost.
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
#include "sim/price/op_cost_internal.h"
#include "sim/price/space_cost.h"

/* What a kernel's error comes from: the rate of products, of attention, of memory.  Sources are
 * unrelated: their half-intervals add as squares do.  Kernels of one source are off together in part,
 * since the rate is one figure, and each by itself in part, since shapes differ: of the variance this
 * share is common.  A100's publications of products put the rate at 0.753 to 0.925 of its peak while
 * nine in ten shapes of one publication lie within 1.35 (gpu_rates.c): (ln(0.925/0.753)/2 / ln 1.35)^2. */
#define COMMON 0.12

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

bool op_traced_with_hooks(const struct cost_cache *c)
{
    return c->traced && c->hooked && c->traced->traced_issue[c->p->kernels][TRACED_HOOKED + TRACED_FORWARD] > 0;
}

/* As a trace has it, one thing of its kind, however many kernels that is in reality; 0: not known.  Of a training with hooks kernels are
 * issued as in one without, if only that was traced; its collectives are not. */
double op_traced_issue(const struct cost_cache *c, enum traced_issue what)
{
    if (op_traced_with_hooks(c))
        return c->traced->traced_issue[c->p->kernels][TRACED_HOOKED + what];
    return c->traced && !(c->hooked && what == TRACED_COLL) ? c->traced->traced_issue[c->p->kernels][what] : 0;
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
        out->more[i + 1] = out->more[i] + (launches > 0 ? op_issue_one_by_one(pass, &k[i]) : 0);
        out->launches[i + 1] = out->launches[i] + (op_traced_issue(c, TRACED_FORWARD) > 0 ? launches > 0 : launches);
    }
    between(out, 0, n, &out->all);
}

struct sums *op_sums_of(struct cost_cache *c, const struct schedules *s, const struct op *o)
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
    const struct sums *of = op_sums_of(c, s, o);
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
    of = op_sums_of(c, s, o);
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
    }
    for (int k = 0; k < of->n; k++) {
        const struct running *at = &of->at[k];
        double t = at[1].s - at[0].s, times[2] = { 0, 0 };
        if (t > 0 && !lives_off_memory(&at[0], &at[1]))
            kernel_held(&c->p->cluster.gpu, c->p->precision, &c->in, &piece->kernels[pass][k], left, times);
        for (int i = 0; i < 2; i++)
            of->held[i][k + 1] = of->held[i][k] + t * times[i];
    }
}

void op_held(struct cost_cache *c, const struct schedules *s, const struct op *o, const int left[2], struct op_held *out)
{
    *out = (struct op_held){ .streams = 1 };
    if (o->kind != OP_COMPUTE)
        return;
    struct sums *of = op_sums_of(c, s, o);
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
