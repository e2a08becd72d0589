/* blockwise.c -- see blockwise.h.  Blocks are independent: threads share them. */
#include "exec/kernels/blockwise.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "exec/kernels/blockwise_code.h"
#include "exec/kernels/half.h"

enum { MAP = 256, BLOCK_8 = 256, BLOCK_4 = 64 };

/* ---- tables ---- */

/* functional.py, get_4bit_type("nf4"): the quantiles of a normal distribution, exact in fp32. */
const float blockwise_nf4[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
    -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f,
};

static float maps[2][MAP];

/* blockwise_code() without its seven steps, which a processor cannot foresee: codes never fall while x grows, so a code is how
 * many thresholds x has reached, counted from the code of the least number with the same upper 16 bits. */
static struct codes {
    float threshold[MAP + 1];           /* [k]: the least x whose code is k or more */
    uint8_t least[1 << 16];
} codes[2];

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* torch.linspace(0.1, 1, n) in fp32 as PyTorch's builds for x86-64 compute it, fused: from the nearer end. */
static float boundary(int i, int n)
{
    float step = (1.0f - 0.1f) / (float)(n - 1);

    return i < n / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(n - i - 1), 1.0f);
}

/* Seven decades, each with twice as many values as the one below it. */
static void make_map(float *map, bool is_signed)
{
    static const double decade[7] = { 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1 };
    int n = 0;

    for (int i = 0; i < 7; i++) {
        int items = (is_signed ? 1 << i : 2 << i) + 1;
        for (int j = 0; j + 1 < items; j++) {
            float value = (float)decade[i] * ((boundary(j, items) + boundary(j + 1, items)) / 2.0f);
            map[n++] = value;
            if (is_signed)
                map[n++] = -value;
        }
    }
    map[n++] = 0;
    map[n++] = 1;
    assert(n == MAP);
    qsort(map, MAP, sizeof *map, ascending);
}

/* Integers in the order of the floats that they stand for, 0 for 0: to halve an interval of floats. */
static float float_at(int32_t i)
{
    float x;

    i = i < 0 ? -i | INT32_MIN : i;
    memcpy(&x, &i, sizeof x);
    return x;
}

static void make_codes(struct codes *c, const float *map)
{
    for (int k = 1; k < MAP; k++) {
        int32_t below = -0x7f800000, from = 0x7f800000;         /* of -infinity the code is 0, of infinity 255 */
        while ((int64_t)from - below > 1) {
            int32_t middle = (int32_t)(((int64_t)from + below) >> 1);
            if (blockwise_code(map, float_at(middle)) < k)
                below = middle;
            else
                from = middle;
        }
        c->threshold[k] = float_at(from);
    }
    c->threshold[MAP] = NAN;            /* which no x reaches */
    for (uint32_t upper = 0; upper < 1 << 16; upper++) {
        uint32_t bits = upper << 16 | (upper >> 15 ? 0xffff : 0);       /* of negative ones the largest is the least */
        float x;
        memcpy(&x, &bits, sizeof x);
        c->least[upper] = blockwise_code(map, x);
    }
}

static void make_maps(void)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        make_map(maps[is_signed], is_signed);
        make_codes(&codes[is_signed], maps[is_signed]);
    }
}

const float *blockwise_map(bool is_signed)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_maps);
    return maps[is_signed];
}

/* ---- codes ---- */

static uint8_t code_in(const struct codes *c, const float *map, float x)
{
    uint32_t bits;

    if (!(fabsf(x) <= FLT_MAX))
        return blockwise_code(map, x);
    memcpy(&bits, &x, sizeof bits);
    int k = c->least[bits >> 16];
    while (x >= c->threshold[k + 1])
        k++;
    return (uint8_t)k;
}

uint8_t blockwise_code_of(bool is_signed, float x) { return code_in(&codes[is_signed], blockwise_map(is_signed), x); }

/* The middles of NF4's values: dQuantizeNF4()'s tree compares with them. */
static uint8_t nf4_of(float x)
{
    uint8_t code = 0;

    for (int i = 0; i < 15; i++)
        code = (uint8_t)(code + (x > (blockwise_nf4[i] + blockwise_nf4[i + 1]) / 2));
    return code;
}

static float magnitude(const float *x, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* ---- AdamW in 8 bits ---- */

/* kOptimizerStatic8bit2StateBlockwise<ADAM>, and kOptimizer32bit2State<ADAM>, whose arithmetic is the same: the decay follows the
 * update.  A first moment keeps its sign. */
static void old_moments(const struct adamw8 *s, int64_t at, int64_t n, float *m, float *v)
{
    const float *map1 = blockwise_map(true), *map2 = blockwise_map(false);

    for (int64_t i = 0; i < n; i++) {
        m[i] = s->code1 ? map1[s->code1[at + i]] * s->max1[at / BLOCK_8] : s->max1[at + i];
        v[i] = s->code2 ? map2[s->code2[at + i]] * s->max2[at / BLOCK_8] : s->max2[at + i];
    }
}

static void code_moments(const struct adamw8 *s, int64_t at, int64_t n, const float *m, const float *v)
{
    const float *map1 = blockwise_map(true), *map2 = blockwise_map(false);
    uint8_t *c1 = s->code1 + at, *c2 = s->code2 + at;
    float max1 = s->max1[at / BLOCK_8] = magnitude(m, n), max2 = s->max2[at / BLOCK_8] = magnitude(v, n);

    for (int64_t i = 0; i < n; i++) {
        c1[i] = code_in(&codes[1], map1, m[i] / max1);
        c2[i] = code_in(&codes[0], map2, v[i] / max2);
        if (!signbit(map1[c1[i]]) != !signbit(m[i]))
            c1[i] = (uint8_t)(m[i] > 0 ? c1[i] + 1 : c1[i] - 1);
    }
}

static void one_block(const struct adamw8_rates *r, const struct adamw8 *s, int64_t at, int64_t n, const float *g)
{
    float m[BLOCK_8], v[BLOCK_8], *p = s->p + at;

    old_moments(s, at, n, m, v);
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * r->scale;
        m[i] = m[i] * r->b1 + r->keep1 * gi;
        v[i] = v[i] * r->b2 + r->keep2 * gi * gi;
        p[i] += r->step_size * (m[i] / (sqrtf(v[i]) + r->eps));
        p[i] *= r->decay;
    }
    if (s->code1) {
        code_moments(s, at, n, m, v);
    } else {
        memcpy(s->max1 + at, m, (size_t)n * sizeof *m);
        memcpy(s->max2 + at, v, (size_t)n * sizeof *v);
    }
}

struct adamw8_rates blockwise_rates(const struct adamw *a)
{
    double t = (double)a->step, root = sqrt(1 - pow(a->beta2, t));

    return (struct adamw8_rates){ .b1 = (float)a->beta1, .keep1 = 1 - (float)a->beta1, .b2 = (float)a->beta2, .keep2 = 1 - (float)a->beta2,
                                  .step_size = (float)(-a->lr * root / (1 - pow(a->beta1, t))), .eps = (float)(root * a->eps),
                                  .decay = (float)(1 - a->lr * a->weight_decay), .scale = (float)a->grad_scale };
}

int blockwise_adamw8(struct kernels *k, const struct adamw *a, const struct adamw8 *s, const void *g, enum dtype gt, void *out,
                     enum dtype ot)
{
    struct adamw8_rates r = blockwise_rates(a);

    blockwise_map(true);
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < s->n; i += BLOCK_8) {
        int64_t n = s->n - i < BLOCK_8 ? s->n - i : BLOCK_8;
        float grad[BLOCK_8];
        for (int64_t j = 0; j < n; j++)
            grad[j] = element_at(g, gt, i + j);
        one_block(&r, s, i, n, grad);
        for (int64_t j = i; out && j < i + n; j++)
            element_put(out, ot, j, s->p[j]);
    }
    return 0;
}

/* ---- frozen weights in NF4 ---- */

/* quantize_4bit(..., compress_statistics=True): the maxima less their mean, in 8 bits. */
static void code_maxima(const struct packed_weight *w, const float *maxima, int64_t blocks)
{
    const float *map = blockwise_map(true);
    double sum = 0;

    for (int64_t i = 0; i < blocks; i++)
        sum += (double)maxima[i];
    *w->mean = (float)(sum / (double)blocks);
    for (int64_t i = 0; i < blocks; i += BLOCK_8) {
        int64_t n = blocks - i < BLOCK_8 ? blocks - i : BLOCK_8;
        float rest[BLOCK_8], most;
        for (int64_t j = 0; j < n; j++)
            rest[j] = maxima[i + j] - *w->mean;
        w->maxima[i / BLOCK_8] = most = magnitude(rest, n);
        for (int64_t j = 0; j < n; j++)
            w->coded[i + j] = code_in(&codes[1], map, rest[j] * (1 / most));
    }
    memcpy(w->map, map, MAP * sizeof *map);
}

int blockwise_pack(struct kernels *k, const struct packed_weight *w, const float *x)
{
    int64_t blocks = ceil_div(w->n, BLOCK_4);
    float *maxima = w->coded ? malloc((size_t)blocks * sizeof *maxima) : w->maxima;

    if (!maxima)
        abort();
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t at = b * BLOCK_4, n = w->n - at < BLOCK_4 ? w->n - at : BLOCK_4;
        uint8_t code[BLOCK_4 + 2] = { 0 };
        maxima[b] = magnitude(x + at, n);
        float inverse = 1 / fmaxf(maxima[b], 1e-38f);
        for (int64_t i = 0; i < n; i++)
            code[i] = nf4_of(x[at + i] * inverse);
        code[n] = nf4_of(0);            /* of an odd number the last byte's lower half */
        for (int64_t i = 0; i < n; i += 2)
            w->codes[(at + i) / 2] = (uint8_t)(code[i] << 4 | code[i + 1]);
    }
    memcpy(w->values, blockwise_nf4, sizeof blockwise_nf4);
    if (w->coded) {
        code_maxima(w, maxima, blocks);
        free(maxima);
    }
    return 0;
}

static float maximum(const struct packed_weight *w, int64_t block)
{
    return w->coded ? w->map[w->coded[block]] * w->maxima[block / BLOCK_8] + *w->mean : w->maxima[block];
}

int blockwise_unpack(struct kernels *k, const struct packed_weight *w, void *x, enum dtype at)
{
    int64_t blocks = ceil_div(w->n, BLOCK_4);

#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        float most = maximum(w, b);
        for (int64_t i = b * BLOCK_4; i < w->n && i < (b + 1) * BLOCK_4; i++) {
            float value = w->values[i % 2 ? w->codes[i / 2] & 15 : w->codes[i / 2] >> 4] * most;
            element_put(x, at, i, value);
        }
    }
    return 0;
}
