/* gemm_cost.c -- a product's time from tiles, waves and bandwidth, corrected by what was measured nearby. */
#include "sim/price/gemm_cost.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "sim/price/gpu_rates.h"

/* The tiles and splits that cuBLAS and CUTLASS offer: NVIDIA, "Matrix Multiplication
 * Background User's Guide" (DU-09799), section "Tile quantization". */
static const int tiles[][2] = {
    { 256, 128 }, { 128, 256 }, { 128, 128 }, { 256, 64 }, { 64, 256 },
    { 128, 64 }, { 64, 128 }, { 64, 64 },
};
#define NTILES ((int)(sizeof tiles / sizeof tiles[0]))
#define MAX_SPLIT 8

/* Structure common to all types, by least absolute log error over the published points of
 * A100, H100 and B200 (the minimum is flat: 40 to 120, 1 to 2 us).
 * Feeding a tile m x n costs m+n operands per step of k against m*n products, so small tiles
 * lose: 128x128 reaches 0.86, 64x64 0.55 of what 256x128 does. */
#define FEED 80.0
/* Filling the pipeline and writing the result, for a tile of 256x128. */
#define BLOCK_S 1e-6
/* From the first block's launch to the last one's end, kernels queued back to back. */
#define LAUNCH_S 2e-6

/* A dimension that leaves rows off the 16-byte boundary: 272.7 against 395 TFLOP/s on H100 at
 * d_ff 10922 against 10912 and 10944 (stas00/ml-engineering, training/performance). */
#define MISALIGNED 0.69
/* An odd number of elements of 16 bits, as GPT-2's 50257 tokens: cuBLAS then has nothing newer than cutlass_75_tensorop_*_align1.  8192 x 768
 * by 50257 on H200 (tests/gpu/h200, torch 2.11, CUDA 13.0, 26 November 2026): logits in 6.69 ms, 94.5 TFLOP/s; the gradients of hidden states
 * and weights in 4.54 and 4.32 ms, 139 and 146.  Shares of the 750 that whole rows reach by the table (gpu_rates.c).  Of other architectures, whose own
 * kernels are slower beside the same ones, no timings were found: they keep MISALIGNED. */
#define ODD_RESULT  0.127
#define ODD_OPERAND 0.19

/* cuBLAS on Hopper starts as many blocks as there are SMs, 132, and gives each its tiles in advance: "all the matmuls
 * look like they are using persistent kernels ... take 2x as long ... when they are overlapped with a NCCL kernel"
 * (pytorch#143988, 30 December 2024; #147966, whose knob takes SMs from them); a product of 1.35 ms in 2 x 66 blocks
 * (NVIDIA/Fuser#5742, 1 January 2026); 132 blocks (forums.developer.nvidia.com/t/337991).  Ampere's have a block for each
 * tile, and Blackwell's take the next tile when they are done (cluster launch control). */
#define HOPPER 90

/* A result that is added to is read and written when a tile is done, and the next tile's products hide the rest of that time.  Weights' gradients
 * summed up in fp32, 20 of A100 PCIe and 20 of B200 (MooreThreads/SimuMax, rows `wgrad` of tests/sim/data/gemm_published.csv), are then as far
 * off as the same source's forward products and gradients of inputs: 0.60 and 0.56. */
#define SUMS_APART 0.58

/* The residual's reach in ln m, ln n, ln k, and the weight of "no measurement nearby", by
 * leaving out whole weight matrices of the published sets. */
#define REACH 0.7
#define NOWHERE 0.5

struct gemm_device gemm_device(const struct gpu *g, enum dtype t)
{
    bool is_host = gpu_is_host(g);

    return (struct gemm_device){
        .sms    = is_host || g->sms < 1 ? 1 : g->sms,
        .flops  = gpu_peak(g, t) * gpu_rates(g)->gemm,
        .bytes  = gpu_stream(g),
        .launch = LAUNCH_S,
        .block  = is_host ? 0 : BLOCK_S,
        .feed   = FEED,
        .persistent = g->sm_arch == HOPPER,
        .calm   = 1,
    };
}

enum gemm_rows gemm_rows_16(enum gemm_of of, int64_t m, int64_t n, int64_t k)
{
    int64_t other = of == GEMM_DW ? m : k;

    if (n % 8 == 0 && other % 8 == 0)
        return ROWS_WHOLE;
    if (n % 2 == 0 && other % 2 == 0)
        return ROWS_OFF;
    return n % 2 && of == GEMM_FORWARD ? ROWS_ODD_RESULT : ROWS_ODD_OPERAND;
}

static double rows_share(const struct gemm_device *d, enum gemm_rows rows)
{
    switch (rows) {
    case ROWS_WHOLE:       return 1;
    case ROWS_OFF:         return MISALIGNED;
    case ROWS_ODD_OPERAND: return d->persistent ? ODD_OPERAND : MISALIGNED;
    case ROWS_ODD_RESULT:  return d->persistent ? ODD_RESULT : MISALIGNED;
    }
    return 1;
}

static double feed_cost(const struct gemm_device *d, int m, int n)
{
    return 1 + d->feed * (1.0 / m + 1.0 / n);
}

/* A host has neither tiles nor waves. */
static double host_prior(const struct gemm_device *d, const struct gemm *g)
{
    double work = 2.0 * (double)g->batch * (double)g->m * (double)g->n * (double)g->k / d->flops;

    return d->launch + fmax(work, (double)g->bytes / d->bytes);
}

double gemm_prior(const struct gemm_device *d, const struct gemm *g, struct gemm_choice *how)
{
    double best = INFINITY, memory = (double)g->bytes / d->bytes, sums = SUMS_APART * (double)g->sums / d->bytes;
    double sm = d->flops / d->sms * rows_share(d, g->rows);

    assert(d->sms >= 1 && d->flops > 0 && d->bytes > 0);
    if (how)
        *how = (struct gemm_choice){ 0 };
    if (g->batch < 1 || g->m < 1 || g->n < 1 || g->k < 1)
        return 0;
    if (d->sms == 1)
        return host_prior(d, g);
    for (int i = 0; i < NTILES; i++) {
        int    tm = tiles[i][0], tn = tiles[i][1];
        double area = (double)tm * tn, reach = feed_cost(d, 256, 128) / feed_cost(d, tm, tn);
        double grid = (double)g->batch * (double)ceil_div(g->m, tm) * (double)ceil_div(g->n, tn);

        for (int split = 1; split <= MAX_SPLIT; split *= 2) {
            double blocks = grid * split, waves = ceil(blocks / d->sms);
            double work = waves * (d->block * area / (256 * 128)
                                   + 2 * area * ((double)g->k / split) / (sm * reach));
            /* Partial results in fp32, written and read once. */
            double partial = split == 1 ? 0 : 8.0 * split * (double)g->batch * (double)g->m
                                              * (double)g->n / d->bytes;
            double t = d->launch + fmax(work + sums, memory + partial);

            if (t < best) {
                best = t;
                if (how)
                    *how = (struct gemm_choice){ tm, tn, split, (int64_t)blocks, (int64_t)waves,
                                                 memory + partial > work + sums };
            }
        }
    }
    return best;
}

/* Of a product that takes t seconds with all of them. */
static double held(const struct gemm_device *d, const struct gemm_choice *how, double t, int sms)
{
    if (sms >= d->sms || how->waves < 1 || how->memory_bound)
        return 1;
    double all = (double)how->blocks, own = d->persistent ? ceil(all / (double)how->waves) : all;
    double turns = ceil(own / sms);                     /* of blocks on a multiprocessor */
    if (d->persistent)
        turns = 1 + (turns - 1) * d->calm;
    turns *= all / own;
    return (d->launch + (t - d->launch) * turns / (double)how->waves) / t;
}

void gemm_held_each(const struct gemm_device *d, const struct gemm *g, const int *sms, int n, double *out)
{
    struct gemm_choice how;
    double t = gemm_prior(d, g, &how);

    for (int i = 0; i < n; i++)
        out[i] = held(d, &how, t, sms[i]);
}

double gemm_held(const struct gemm_device *d, const struct gemm *g, int sms)
{
    double times;

    gemm_held_each(d, g, &sms, 1, &times);
    return times;
}

static double square(double x)
{
    return x * x;
}

void gemm_residuals(const struct gemm_device *d, const struct gemm_point *points, int n,
                    struct gemm_residuals *out)
{
    out->n = n < GEMM_MAX_POINTS ? n : GEMM_MAX_POINTS;
    out->mean = 0;
    for (int i = 0; i < out->n; i++) {
        const struct gemm_point *p = &points[i];
        struct gemm g = { .batch = 1, .m = p->m, .n = p->n, .k = p->k };

        g.bytes = 2 * (p->m * p->k + p->n * p->k + p->m * p->n);
        out->at[i][0] = log((double)p->m);
        out->at[i][1] = log((double)p->n);
        out->at[i][2] = log((double)p->k);
        out->r[i] = log(p->s / gemm_prior(d, &g, NULL));
        out->mean += out->r[i] / out->n;
    }
}

double gemm_residual(const struct gemm_residuals *all, const struct gemm *g)
{
    double weights = NOWHERE, sum = 0;
    double m = log((double)g->m * (double)g->batch), n = log((double)g->n), k = log((double)g->k);

    for (int i = 0; i < all->n; i++) {
        const double *at = all->at[i];
        double w = exp(-(square(m - at[0]) + square(n - at[1]) + square(k - at[2]))
                       / (2 * REACH * REACH));
        weights += w;
        sum += w * (all->r[i] - all->mean);
    }
    return exp(all->mean + sum / weights);
}
