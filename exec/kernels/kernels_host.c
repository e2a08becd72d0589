/* The host kernels' table, and those that go through arrays element by element: chunks of
 * 1024, which stay in the first-level cache while bf16 is widened, worked on and narrowed. */
#include "exec/kernels/blockwise.h"
#include "exec/kernels/kernels_codes.h"
#include "exec/kernels/kernels_columns.h"
#include "exec/kernels/kernels_float8.h"
#include "exec/kernels/kernels_internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/fail.h"

enum { BLOCKS = 4096 };         /* of sums of squares, each of a chunk */

static int host_dropout_back(struct kernels *k, int64_t count, void *dx, enum dtype at,
                             const struct dropout *d)
{
    const struct simd *s = k->simd;
    struct dropout_rule r = dropout_rule(d);

    if (!r.limit)
        return 0;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < count; i += CHUNK) {
        float tmp[CHUNK], *x = floats_into(dx, at, i, tmp);
        int64_t m = chunk_at(i, count);
        floats(s, dx, at, i, m, tmp);
        s->drop(m, x, r.seed, i, r.limit, r.keep);
        floats_put(s, dx, at, i, m, x);
    }
    return 0;
}

static int host_activation(struct kernels *k, enum activation act, int64_t count, const void *gate,
                           const void *up, void *product, enum dtype at)
{
    const struct simd *s = k->simd;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < count; i += CHUNK) {
        float g[CHUNK], u[CHUNK], y[CHUNK], *to = floats_into(product, at, i, y);
        int64_t m = chunk_at(i, count);
        s->activation(act, m, gate ? floats(s, gate, at, i, m, g) : NULL, floats(s, up, at, i, m, u), to);
        floats_put(s, product, at, i, m, to);
    }
    return 0;
}

static int host_activation_back(struct kernels *k, enum activation act, int64_t count, const void *gate,
                                const void *up, void *du, void *dgate, enum dtype at)
{
    const struct simd *s = k->simd;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < count; i += CHUNK) {
        float g[CHUNK], u[CHUNK], d[CHUNK], dg[CHUNK];
        float *to = floats_into(du, at, i, d), *gate_to = gate ? floats_into(dgate, at, i, dg) : NULL;
        int64_t m = chunk_at(i, count);
        floats(s, du, at, i, m, d);
        s->activation_back(act, m, gate ? floats(s, gate, at, i, m, g) : NULL, floats(s, up, at, i, m, u),
                           to, gate_to);
        floats_put(s, du, at, i, m, to);
        if (gate)
            floats_put(s, dgate, at, i, m, gate_to);
    }
    return 0;
}

static int host_copy(struct kernels *k, int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st,
                     double scale, bool add)
{
    const struct simd *s = k->simd;
    float by = (float)scale;

    if (dt == DT_UINT8 || dt == DT_FP8)
        return move_upload(k, n, dst, src);

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float from[CHUNK], sum[CHUNK], *to = floats_into(dst, dt, i, sum);
        int64_t m = chunk_at(i, n);
        const float *x = floats(s, src, st, i, m, from);
        if (add) {
            floats(s, dst, dt, i, m, sum);
            s->axpy(m, by, x, to);
        } else if (by != 1) {
            s->scale(m, by, x, to);
        } else {
            to = (float *)(uintptr_t)x;         /* only read */
        }
        floats_put(s, dst, dt, i, m, to);
    }
    return 0;
}

static int host_residual(struct kernels *k, int64_t n, int64_t h, void *y, enum dtype at, const void *b,
                         enum dtype wt, const void *residual, const struct dropout *d)
{
    const struct simd *s = k->simd;
    struct dropout_rule r = dropout_rule(d);

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < h; j += CHUNK) {
            float ys[CHUNK], more[CHUNK];
            int64_t m = chunk_at(j, h), e = i * h + j;
            float *to = floats_into(y, at, e, ys);
            floats(s, y, at, e, m, ys);
            if (b)
                s->axpy(m, 1, floats(s, b, wt, j, m, more), to);
            if (r.limit)
                s->drop(m, to, r.seed, e, r.limit, r.keep);
            s->axpy(m, 1, floats(s, residual, at, e, m, more), to);
            floats_put(s, y, at, e, m, to);
        }
    return 0;
}

static void copy_run(const struct simd *s, const struct runs *r, void *dst, int64_t to, const void *src, int64_t from)
{
    for (int64_t i = 0; i < r->run; i += CHUNK) {
        float tmp[CHUNK], sum[CHUNK], *y;
        int64_t m = chunk_at(i, r->run);
        const float *x = floats(s, src, r->st, from + i, m, tmp);
        if (r->add) {
            y = floats_into(dst, r->dt, to + i, sum);
            floats(s, dst, r->dt, to + i, m, sum);
            s->axpy(m, 1, x, y);
        } else {
            y = (float *)(uintptr_t)x;          /* only read */
        }
        floats_put(s, dst, r->dt, to + i, m, y);
    }
}

static int host_copy_runs(struct kernels *k, const struct runs *r, void *dst, const void *src)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < r->n[0] * r->n[1]; i++) {
        int64_t a = i / r->n[1], b = i % r->n[1];
        copy_run(k->simd, r, dst, a * r->to[0] + b * r->to[1], src, a * r->from[0] + b * r->from[1]);
    }
    return 0;
}

/* A wave of blocks at a time: the sums of a wave are added up in the blocks' order, so that
 * the result is the same for any number of threads, and for an array summed in pieces of
 * whole blocks. */
static int host_sum_squares(struct kernels *k, int64_t n, const void *x, enum dtype dt, double *sum)
{
    const struct simd *s = k->simd;
    double block[BLOCKS];               /* not of the workspace, which the compute stream alone has */

    for (int64_t first = 0; first < n; first += BLOCKS * CHUNK) {
        int64_t left = n - first, here = left < BLOCKS * CHUNK ? (left + CHUNK - 1) / CHUNK : BLOCKS;
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t b = 0; b < here; b++) {
            float tmp[CHUNK];
            int64_t i = first + b * CHUNK, m = chunk_at(i, n);
            block[b] = s->sum_squares(m, floats(s, x, dt, i, m, tmp));
        }
        for (int64_t b = 0; b < here; b++)
            *sum += block[b];
    }
    return 0;
}

/* ---- rotary ---- */

enum { MOST_PAIRS = 1024 };

/* The heads of one token. */
static void rotate_token(const struct simd *s, const struct attention *a, int64_t half, const float *cosine,
                         const float *sine, void *qkv, int64_t token)
{
    float x[MOST_PAIRS], y[MOST_PAIRS];

    for (int64_t h = 0; h < a->heads + a->kv_heads; h++) {
        int64_t at = token * a->ld + h * a->dim;
        float *first = floats_into(qkv, a->at, at, x), *second = floats_into(qkv, a->at, at + half, y);
        floats(s, qkv, a->at, at, half, x);
        floats(s, qkv, a->at, at + half, half, y);
        s->rotate(half, cosine, sine, first, second);
        floats_put(s, qkv, a->at, at, half, first);
        floats_put(s, qkv, a->at, at + half, half, second);
    }
}

static int host_rotary(struct kernels *k, const struct attention *a, int64_t rot, const float *inv_freq,
                       void *qkv, bool inverse)
{
    int64_t half = rot / 2;

    if (half > MOST_PAIRS)
        return fail("rotary: %" PRId64 " elements of a head are rotated, %d is the most", rot,
                    2 * MOST_PAIRS);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t t = 0; t < a->seq; t++) {
        float cosine[MOST_PAIRS], sine[MOST_PAIRS];
        for (int64_t j = 0; j < half; j++) {
            float angle = (float)(a->first + t) * inv_freq[j];       /* fp32, as PyTorch's */
            cosine[j] = cosf(angle);
            sine[j] = inverse ? -sinf(angle) : sinf(angle);
        }
        for (int64_t b = 0; b < a->batch; b++)
            rotate_token(k->simd, a, half, cosine, sine, qkv, b * a->seq + t);
    }
    return 0;
}

const struct kernel_ops kernels_host_ops = {
    .embed = host_embed, .embed_positions = host_embed_positions, .dropout_back = host_dropout_back,
    .embed_back = host_embed_back, .embed_positions_back = host_embed_positions_back,
    .norm = host_norm, .norm_back = host_norm_back,
    .linear = host_linear, .linear_dw = host_linear_dw, .linear_dx = host_linear_dx,
    .rotary = host_rotary, .attention = host_attention, .attention_back = host_attention_back,
    .attention_part = host_attention_part, .attention_delta = host_attention_delta,
    .attention_part_back = host_attention_part_back, .copy_runs = host_copy_runs,
    .activation = host_activation, .activation_back = host_activation_back,
    .cross_entropy = host_cross_entropy,
    .embed_rows = host_embed_rows, .embed_rows_back = host_embed_rows_back, .residual = host_residual,
    .linear_db = host_linear_db, .logits_most = host_logits_most, .logits_label = host_logits_label,
    .logits_sum = host_logits_sum, .logits_loss = host_logits_loss, .logits_whole = host_logits_whole,
    .adamw = host_adamw, .sgd = host_sgd, .lion = host_lion, .adafactor = host_adafactor,
    .adamw8 = blockwise_adamw8, .pack = blockwise_pack, .unpack = blockwise_unpack, .copy = host_copy, .quantize = codes_quantize, .dequantize = codes_dequantize,
    .requantize = codes_requantize, .mean = codes_mean, .orthonormal = columns_orthonormal,
    .amax = float8_amax, .scales8 = float8_to_scales, .cast8 = float8_cast, .codes8 = float8_codes, .numbers8 = float8_numbers,
    .sum_squares = host_sum_squares, .largest = float8_largest,
    .sum = move_sum, .not_finite = move_not_finite, .exact_squares = move_exact_squares, .finish = move_finish,
    .zero = move_zero, .upload = move_upload, .download = move_download, .load = move_load,
};
