/* kernels_codes.c -- quantisers of the host: group by group, threads share the groups. */
#include "exec/kernels/kernels_codes.h"

#include <math.h>

#include "exec/kernels/half.h"
#include "model/schedule/schedule.h"

/* Numbers from first to first + n, made or taken by another array of the same order. */
struct code_group { int64_t first, n; };

static struct code_group group_at(const struct quant *q, int64_t i)
{
    int64_t n = q->elems / q->groups;

    return (struct code_group){ i * n, n };
}

static float magnitude(const uint16_t *x, int64_t n)
{
    float most = -INFINITY;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(half_from_fp16(x[i])));        /* of a number and a NaN the number */
    return most;
}

/* Round to nearest even; NaN: 0. */
static int code_of(float x, float scale, int bits)
{
    float v = x * scale, low = (float)-(1 << (bits - 1)), high = (float)((1 << (bits - 1)) - 1);

    return isnan(v) ? 0 : (int)rintf(v < low ? low : v > high ? high : v);
}

/* One group's codes from byte `codes` on, and its scale. */
static void encode(const uint16_t *x, int64_t n, int bits, uint8_t *codes, float *kept)
{
    float most = magnitude(x, n), scale = most == 0 ? 1 : (float)(1 << bits) / (2 * most);

    *kept = 1 / scale;
    for (int64_t i = 0; i < n && bits == 8; i++)
        codes[i] = (uint8_t)code_of(half_from_fp16(x[i]), scale, 8);
    for (int64_t i = 0; i + 1 < n && bits == 4; i += 2)
        codes[i / 2] = (uint8_t)((unsigned)code_of(half_from_fp16(x[i]), scale, 4) << 4 | ((unsigned)code_of(half_from_fp16(x[i + 1]), scale, 4) & 15));
}

static float decoded(const uint8_t *codes, int64_t i, int bits, float scale)
{
    int code = bits == 8 ? (int8_t)codes[i] : (int8_t)(i % 2 ? codes[i / 2] << 4 : codes[i / 2] & 0xf0) >> 4;

    return (float)code * scale;
}

/* Where the i-th group goes: with its part. */
static int64_t place_of(const struct quant *q, int64_t i)
{
    int64_t parts = (int64_t)q->ranks * q->nodes, each = q->groups / parts, part = i / each;

    return (part % q->ranks * q->nodes + part / q->ranks) * each + i % each;
}

int codes_quantize(struct kernels *k, const struct quant *q, const void *x, void *codes, float *scales)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < q->groups; i++) {
        struct code_group g = group_at(q, i);
        int64_t to = place_of(q, i);
        encode((const uint16_t *)x + g.first, g.n, q->bits, (uint8_t *)codes + to * g.n * q->bits / 8, &scales[to]);
    }
    return 0;
}

int codes_dequantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *x)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < q->groups; i++) {
        struct code_group g = group_at(q, i);
        for (int64_t j = 0; j < g.n; j++)
            ((uint16_t *)x)[g.first + j] = half_to_fp16(decoded(codes, g.first + j, q->bits, scales[i]));
    }
    return 0;
}

/* The sum is fp16 after each of the arrays. */
int codes_requantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *sum, float *sum_scales)
{
    enum { MOST = 40960 };              /* elements of a group (lower_zero3_int4.c) */

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < q->groups; i++) {
        struct code_group g = group_at(q, i);
        uint16_t total[MOST];
        assert(g.n <= MOST);
        for (int64_t j = 0; j < g.n; j++) {
            float at = 0;
            for (int64_t r = 0; r < q->ranks; r++) {
                const uint8_t *from = (const uint8_t *)codes + r * q->elems * q->bits / 8;
                float one = half_from_fp16(half_to_fp16(decoded(from, g.first + j, q->bits, scales[r * q->groups + i])));
                at = half_from_fp16(half_to_fp16(at + one));
            }
            total[j] = half_to_fp16(at);
        }
        encode(total, g.n, q->bits, (uint8_t *)sum + g.first * q->bits / 8, &sum_scales[i]);
    }
    return 0;
}

int codes_mean(struct kernels *k, const struct quant *q, double scale, const void *x, void *y)
{
    const uint16_t *from = x;

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < q->elems; i++) {
        float sum = 0;
        for (int64_t m = 0; m < q->nodes; m++)
            sum = half_from_fp16(half_to_fp16(sum + half_from_fp16(from[m * q->elems + i])));
        ((uint16_t *)y)[i] = half_to_fp16(sum * (float)scale);
    }
    return 0;
}
