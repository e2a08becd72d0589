/* kernels_float8.c -- see kernels_float8.h. */
#include "exec/kernels/kernels_float8.h"

#include "exec/kernels/fp8.h"

enum { NCODES = 256 };

static const struct fp8_kind *format_of(enum float8_format f) { return f == FLOAT8_E5M2 ? &fp8_e5m2 : &fp8_e4m3; }

/* What each code stands for. */
static void decode_all(const struct fp8_kind *t, float number[NCODES])
{
    for (int i = 0; i < NCODES; i++)
        number[i] = fp8_decode(t, (uint8_t)i);
}

/* Magnitudes as integers: in the order of the numbers, infinity and NaN above them. */
static uint32_t most_of(const float *x, int64_t n, uint32_t most)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = fp8_bits(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Of n elements from element `at` on. */
static uint32_t most_from(const struct simd *s, const void *x, enum dtype dt, int64_t at, int64_t n)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < n; i += CHUNK) {
        float tmp[CHUNK];
        int64_t m = chunk_at(i, n);
        most = most_of(floats(s, x, dt, at + i, m, tmp), m, most);
    }
    return most;
}

static void most_of_rows(struct kernels *k, const struct strided *s, const void *x, enum dtype dt, float *amax)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < s->rows; r++)
        amax[r] = fp8_of_bits(most_from(k->simd, x, dt, r * s->ld, s->cols));
}

static float most_of_all(struct kernels *k, const struct strided *s, const void *x, enum dtype dt)
{
    uint32_t most = 0;

#pragma omp parallel for num_threads(k->threads) schedule(static) collapse(2) reduction(max : most)
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = 0; i < s->cols; i += CHUNK) {
            uint32_t here = most_from(k->simd, x, dt, r * s->ld + i, chunk_at(i, s->cols));
            most = here > most ? here : most;
        }
    return fp8_of_bits(most);
}

static void most_of_columns(struct kernels *k, const struct strided *s, const void *x, enum dtype dt, float *amax)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < s->cols; i += CHUNK) {
        float tmp[CHUNK];
        uint32_t most[CHUNK] = { 0 };
        int64_t n = chunk_at(i, s->cols);
        for (int64_t r = 0; r < s->rows; r++) {
            const float *row = floats(k->simd, x, dt, r * s->ld + i, n, tmp);
            for (int64_t j = 0; j < n; j++)
                most[j] = most_of(row + j, 1, most[j]);
        }
        for (int64_t j = 0; j < n; j++)
            amax[i + j] = fp8_of_bits(most[j]);
    }
}

int float8_amax(struct kernels *k, const struct strided *s, enum float8_by by, const void *x, enum dtype dt, float *amax)
{
    if (by == FLOAT8_BY_ROWS)
        most_of_rows(k, s, x, dt, amax);
    else if (by == FLOAT8_BY_COLUMNS)
        most_of_columns(k, s, x, dt, amax);
    else
        *amax = most_of_all(k, s, x, dt);
    return 0;
}

int float8_largest(struct kernels *k, int64_t n, const void *x, enum dtype dt, float *most)
{
    *most = fp8_larger(*most, most_of_all(k, &(struct strided){ 1, n, n }, x, dt));
    return 0;
}

int float8_to_scales(struct kernels *k, enum float8_format f, int64_t n, float *amax, bool powers_of_two)
{
    (void)k;
    for (int64_t i = 0; i < n; i++)
        amax[i] = fp8_scale(format_of(f), amax[i], powers_of_two);
    return 0;
}

int float8_cast(struct kernels *k, enum float8_format f, const struct strided *s, enum float8_by by, const void *x, enum dtype dt,
                const float *scale, void *y, enum dtype yt)
{
    const struct fp8_kind *t = format_of(f);
    float number[NCODES];

    decode_all(t, number);
#pragma omp parallel for num_threads(k->threads) schedule(static) collapse(2)
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = 0; i < s->cols; i += CHUNK) {
            float tmp[CHUNK], out[CHUNK];
            uint8_t code[CHUNK];
            int64_t n = chunk_at(i, s->cols), to = r * s->cols + i;
            const float *in = floats(k->simd, x, dt, r * s->ld + i, n, tmp), *each = by == FLOAT8_BY_COLUMNS ? scale + i : NULL;
            float one = each ? 1 : scale[by == FLOAT8_BY_ROWS ? r : 0];
            for (int64_t j = 0; j < n; j++)
                code[j] = fp8_saturated(t, in[j] * (each ? each[j] : one));
            if (yt == DT_FP8) {
                memcpy((uint8_t *)y + to, code, (size_t)n);
                continue;
            }
            for (int64_t j = 0; j < n; j++)
                out[j] = number[code[j]];
            floats_put(k->simd, y, yt, to, n, out);
        }
    return 0;
}

int float8_codes(struct kernels *k, int64_t n, const void *x, enum dtype dt, float scale, uint8_t *codes)
{
    return float8_cast(k, FLOAT8_E4M3, &(struct strided){ 1, n, n }, FLOAT8_BY_TENSOR, x, dt, &scale, codes, DT_FP8);
}

int float8_numbers(struct kernels *k, int64_t n, const uint8_t *codes, void *x, enum dtype dt)
{
    float number[NCODES];

    decode_all(&fp8_e4m3, number);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float out[CHUNK];
        int64_t m = chunk_at(i, n);
        for (int64_t j = 0; j < m; j++)
            out[j] = number[codes[i + j]];
        floats_put(k->simd, x, dt, i, m, out);
    }
    return 0;
}
