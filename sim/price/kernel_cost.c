/* kernel_cost.c -- kernels of a segment priced once for each shape; the price of issuing. */
#include "sim/price/kernel_cost.h"

#include <math.h>
#include <string.h>

#include "sim/price/measured_cost.h"
#include "sim/price/stream_rates.h"

/* Launch to end of an empty kernel, kernels queued back to back: as gemm_cost.c. */
#define LAUNCH_S 2e-6

/* Fused attention climbs to its rate as rate / (1 + HALF/s) over sequences of s tokens: half of
 * it at 300.  FlashAttention-2 forward on H100, causal, d = 128: 191 260 298 319 333 335 TFLOP/s
 * at 512 ... 16384; with rate 346 the form gives 218 268 302 322 334 340.  cuDNN's: 315 410 484
 * 518 529 539; with 544: 343 421 474 507 525 534 (arXiv 2407.08608, figure 5). */
#define HALF 300.0
/* flash-attn's own kernel of a generation (FLASH_3) climbs later: 292 423 521 579 602 616 on H100 (figure 5); with rate 639 the form gives
 * 294 403 494 557 595 616. */
#define HALF_3 600.0
/* Heads narrower than 128: 299 of 335 TFLOP/s forward, 291 of 322 backward at d = 64 (same). */
#define NARROW 0.89
/* FlashAttention-3's: 473 of 616 forward, 474 of 561 backward (figures 5 and 6). */
#define NARROW_3_FORWARD  0.77
#define NARROW_3_BACKWARD 0.845
/* Five products backward for two forward, since the scores are computed again. */
#define BACKWARD_PRODUCTS 2.5
/* Half of the scores are above the diagonal and skipped; struct kernel counts them all. */
#define CAUSAL 0.5

/* What the executor's own kernels make of the rates of the best ones is not known yet. */
#define OWN_SPREAD 1.5

static void within(struct cost *out, double s, double spread, enum basis basis)
{
    *out = (struct cost){ s, s / spread, s * spread, basis, false, 0 };
}

static double alternatives(enum kernel_set set)
{
    return set == KERNELS_DPX ? OWN_SPREAD : 1;
}

/* A number that PyTorch's scatter_add_() and index_add_() add to memory by an atomic of its own (fastAtomicAdd()), all Megatron-LM's unfused permutation
 * does: on H100 index_add_() of 4M rows of 128 takes 4,719 us in bf16 and 4,400 in fp32 (pytorch/pytorch pull 175760), 9.2 and 8.6 ps a number; 65,536 rows
 * of 4,096 in fp16 2,304 us with the zeros (DeepLink-org/DLBlas pull 66, index_select()'s backward; its GPU, not named, copies at 2.2 TB/s), 8.6.  Their
 * mean.  B200's 12 to 21 where half of all fall on one row (pytorch pull 183950) bound it there; other types are taken to be as fast.  PyTorch adds
 * rows by TMA from May 2026 on (pulls 182675, 189506), after the PyTorch that the planned Megatron-LM ran on. */
#define ATOMIC_S 8.8e-12

static void stream_cost(const struct gpu *g, enum kernel_set set, const struct kernel *k, struct cost *out)
{
    const struct gpu_rates *r = gpu_rates(g);

    bool others = set == KERNELS_TORCH_COMPILE || kernels_are_megatron(set);

    /* Of inductor's kernels and of Transformer Engine's no timings are published either: others of Triton stand for them. */
    within(out, kernel_launches(set, PASS_FORWARD, k) * LAUNCH_S +
           fmax((double)k->bytes / (gpu_stream(g) * stream_share(g, set, k)), (double)k->adds * ATOMIC_S),
           r->hbm_spread * (others ? OWN_SPREAD : 1), r->basis);
}

static bool half(enum dtype t)
{
    return t == DT_BF16 || t == DT_FP16;
}

static enum gemm_of product_of(const struct kernel *k)
{
    const char *name = k->name ? k->name : "";

    return strstr(name, " dW") ? GEMM_DW : strstr(name, " dX") ? GEMM_DX : GEMM_FORWARD;
}

/* fp32's own units load numbers one by one; operands in 8 bits have rows of 16. */
static enum gemm_rows rows_of(const struct gpu *g, enum dtype t, const struct kernel *k)
{
    int64_t other = product_of(k) == GEMM_DW ? k->m : k->k;

    if (gpu_is_host(g))
        return ROWS_WHOLE;
    if (k->scaled)
        return k->n % 16 || other % 16 ? ROWS_OFF : ROWS_WHOLE;
    return half(t) ? gemm_rows_16(product_of(k), k->m, k->n, k->k) : ROWS_WHOLE;
}

void kernel_residuals(const struct gpu *g, enum dtype precision, struct gemm_residuals *out)
{
    const struct gemm_point *published;
    const struct gpu *on;
    double level;
    int n = half(precision) ? gemm_published(g, &on, &published, &level) : 0;

    out->n = 0;
    out->mean = 0;
    if (n > 0) {
        struct gemm_device d = gemm_device(on, precision);
        d.flops *= level / gpu_rates(on)->gemm;
        gemm_residuals(&d, published, n, out);
    }
}

/* As it is in a training step.  The power limit is one, whatever is multiplied: what `sustained` was counted from is a library of
 * products in fp8. */
static struct gemm_device device_in(const struct gpu *g, enum dtype t, const struct kernel_context *in, enum scaled scaled)
{
    const struct gpu_rates *r = gpu_rates(g);
    struct gemm_device d = gemm_device(g, t);
    bool published;

    if (scaled)
        d.flops *= gpu_scaled_peak(g, scaled) * gpu_scaled_share(g, scaled, &published) / gpu_peak(g, t);
    if (in->sustained && half(t)) {
        d.calm = in->cuda_12_8 ? r->sustained_12_8 : r->sustained;
        if (in->limited > 0)            /* of the most that is known at the board's own limit */
            d.calm = fmin(d.calm, r->sustained_12_8 * in->limited);
        d.flops *= d.calm;
    }
    return d;
}

static struct gemm product(const struct gpu *g, enum dtype t, const struct kernel *k)
{
    return (struct gemm){ k->batch, k->m, k->n, k->k, k->bytes, rows_of(g, t, k), k->sums };
}

/* Products that are launched one by one, over four streams (nvte_get_num_compute_streams(), multi_stream_cublas_gemm(); Transformer Engine):
 * each four take as long as a batch of four, for the next of a stream begins when its last has ended.  On Blackwell each takes as long as it does
 * alone.  12 published on A100 PCIe are then 5.3 % off (as one batch 5.9, alone 13.2), two on H100 -8 and -4 % (-9 and -20; +27 and +27), 60 on B200
 * 13.0 % (in fours 23.0, as one batch 22.4); tests/sim/test_gemm_cost.c computes them again. */
#define COMPUTE_STREAMS 4

static struct gemm at_once(const struct gpu *g, const struct kernel *k, struct gemm what, double *times)
{
    int64_t batch = what.batch, together = !k->apart ? batch : g->sm_arch >= 100 ? 1 : batch < COMPUTE_STREAMS ? batch : COMPUTE_STREAMS;

    *times = batch > 0 ? (double)batch / (double)together : 1;
    what.batch = together;
    what.bytes = (int64_t)((double)what.bytes / *times);
    what.sums = (int64_t)((double)what.sums / *times);
    return what;
}

static void gemm_cost(const struct gpu *g, enum kernel_set set, enum dtype t,
                      const struct kernel_context *in, const struct kernel *k, struct cost *out)
{
    const struct gpu_rates *r = gpu_rates(g);
    enum scaled scaled = (enum scaled)k->scaled;
    struct gemm_device d = device_in(g, t, in, scaled);
    double times;
    struct gemm what = at_once(g, k, product(g, t, k), &times);
    struct gemm_residuals made;
    bool published = half(t);
    double s = times * gemm_prior(&d, &what, NULL);

    if (scaled) {                       /* the residuals are of products in 16 bits */
        gpu_scaled_share(g, scaled, &published);
    } else {
        if (!in->gemm)
            kernel_residuals(g, t, &made);
        s *= gemm_residual(in->gemm ? in->gemm : &made, &what);
    }
    within(out, s, r->gemm_spread * alternatives(set), published ? r->basis : BASIS_DATASHEET);
}

static double fused_share(const struct gpu_rates *r, enum flash flash, enum pass pass)
{
    double backward = pass == PASS_BACKWARD ? FLASH_BACKWARD : 1;

    if (flash != FLASH_1)
        return r->attention[flash] * backward;
    return r->attention[FLASH_2] * backward * (pass == PASS_FORWARD ? FLASH_1_FORWARD : FLASH_1_BACKWARD);
}

static double narrow_share(enum flash flash, enum pass pass)
{
    if (flash == FLASH_1)
        return 1;                   /* its range is over both widths */
    if (flash == FLASH_3)
        return pass == PASS_BACKWARD ? NARROW_3_BACKWARD : NARROW_3_FORWARD;
    return NARROW;
}

static void attention_cost(const struct gpu *g, enum kernel_set set, enum dtype t,
                           const struct kernel_context *in, const struct kernel *k,
                           struct cost *out)
{
    const struct gpu_rates *r = gpu_rates(g);
    bool all = k->attends != ATTENDS_BEFORE;
    enum pass pass = all ? k->attends == ATTENDS_ALL_BACK : in->attention_forward > 0 && k->flops > 1.5 * in->attention_forward;
    /* q, k, v and output once each, s*d elements a head: flops/bytes = s/elem when every
     * query head has its own keys, up to twice that when they are shared. */
    double bytes = k->bytes > 0 ? (double)k->bytes : 1;
    double s = in->seq > 0 ? (double)in->seq : k->flops / bytes * (double)dtype_bytes(t);
    double forward = all ? k->flops / 2 : in->attention_forward;
    double own = pass == PASS_BACKWARD ? forward * BACKWARD_PRODUCTS : k->flops;
    double rate = gpu_peak(g, t) * fused_share(r, in->flash, pass) / (1 + (in->flash == FLASH_3 ? HALF_3 : HALF) / fmax(s, 1));

    if (in->head_dim > 0 && in->head_dim < 128)
        rate *= narrow_share(in->flash, pass);
    if (in->limited > 0)            /* its multiplications draw no less than those of a product */
        rate = fmin(rate, device_in(g, t, in, SCALED_NONE).flops);
    within(out, LAUNCH_S * kernel_launches(set, pass, k)
                + fmax(own * (in->masked || all ? 1 : CAUSAL) / rate, (double)k->bytes / gpu_stream(g)),
           r->attention_spread * alternatives(set), half(t) ? r->basis : BASIS_DATASHEET);
}

void kernel_held(const struct gpu *g, enum dtype precision, const struct kernel_context *in, const struct kernel *k, const int sms[2],
                 double out[2])
{
    if (k->m > 0) {
        struct gemm_device d = device_in(g, precision, in, (enum scaled)k->scaled);
        double times;
        struct gemm what = at_once(g, k, product(g, precision, k), &times);
        gemm_held_each(&d, &what, sms, 2, out);
        return;
    }
    for (int i = 0; i < 2; i++)
        out[i] = k->kind == KC_ATTENTION ? (double)g->sms / sms[i] : 1;
}

int kernel_launches(enum kernel_set set, enum pass pass, const struct kernel *k)
{
    if (k->flops <= 0 && k->bytes <= 0)
        return 0;
    if (set == KERNELS_DPX || k->kind == KC_GEMM)
        return 1;
    /* pow, mean, add, rsqrt; and their derivatives */
    if (k->name && !strcmp(k->name, "rms"))
        return pass == PASS_FORWARD ? 4 : 5;
    if (pass == PASS_FORWARD)
        return 1;
    switch (k->kind) {
    case KC_ATTENTION: return k->m ? 1 : 3;     /* dot of dO and O; dQ dK dV; conversion of dQ */
    case KC_NORM:      return set == KERNELS_TORCH_COMPILE && k->name && !strncmp(k->name, "fused", 5) ? 1 : 2;    /* input; weight */
    case KC_EMBEDDING: return 4;                /* sort, segments, sums, zeroing */
    default:           return 1;
    }
}

/* As it was timed on this machine, if it was. */
static bool own_cost(const struct gpu *g, enum dtype t, const struct kernel_context *in, const struct kernel *k,
                     struct cost *out)
{
    struct kernel_query q = { .k = k, .seq = in->seq, .dim = in->head_dim, .dropout = in->dropout, .set = in->set,
                              .pass = in->pass };
    struct gemm_device on = k->scaled ? device_in(g, t, in, (enum scaled)k->scaled) : gemm_device(g, t);
    struct estimate e;

    if (!in->measured || (k->scaled && in->set == KERNELS_DPX) || !measured_kernel(in->measured, &on, &q, &e))
        return false;
    *out = (struct cost){ e.s, e.s / (1 + e.error), e.s * (1 + e.error),
                          in->set == KERNELS_DPX ? BASIS_MEASURED : BASIS_TRACED, e.outside, estimate_variance(&e) };
    return true;
}

void kernel_cost_in(const struct gpu *g, enum kernel_set set, enum dtype precision,
                    const struct kernel_context *in, const struct kernel *k, struct cost *out)
{
    if (k->flops <= 0 && k->bytes <= 0)
        *out = (struct cost){ .basis = BASIS_MEASURED };        /* nothing runs */
    else if (own_cost(g, precision, in, k, out))
        return;
    else if (k->m > 0)
        gemm_cost(g, set, precision, in, k, out);
    else if (k->kind == KC_ATTENTION)
        attention_cost(g, set, precision, in, k, out);
    else
        stream_cost(g, set, k, out);
    if (k->rough > 1) {
        out->low_s /= k->rough;
        out->high_s *= k->rough;
    }
}

void kernel_cost(const struct gpu *g, enum kernel_set set, enum dtype precision,
                 const struct kernel *k, struct cost *out)
{
    kernel_cost_in(g, set, precision, &(struct kernel_context){ .flash = FLASH_CUDNN }, k, out);
}
