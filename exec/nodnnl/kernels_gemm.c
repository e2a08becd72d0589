/* kernels_gemm.c -- matrix products of our own, where oneDNN is not built in (`make DNNL=0`).
 *
 * For machines whose GPU computes: the host must be able to, not to be fast.  Operands are copied as
 * fp32 (rounded first where they are multiplied in 16 bits) into tiles, those of b for all threads,
 * those of a for each thread; tiles are multiplied by simd.multiply() and summed in an fp32 tile. */
#include "exec/kernels/kernels_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"

enum { TILE = 256, STRIP = 32 };        /* of m, n and k; rows of a thread at a time: 32 KiB of a */

struct gemm { int threads; };

/* What kernels.h says, so that plans need the same with and without oneDNN; a part of it is used. */
int64_t gemm_workspace(int threads)
{
    return (7 + (int64_t)threads) * (1 << 20) + 4 * 64;
}

/* Rows of all three are TILE apart; each thread has strips of a and c of its own. */
struct tiles { float *a, *b, *c; struct dropout_rule drop; };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Element `at` as it takes part in the product. */
static float element(const struct simd *s, const void *x, enum dtype t, int64_t at, enum dtype as)
{
    float v;
    uint16_t half;

    v = *floats(s, x, t, at, 1, &v);
    if (t == DT_FP32 && as != DT_FP32) {
        floats_put(s, &half, as, 0, 1, &v);
        floats(s, &half, as, 0, 1, &v);
    }
    return v;
}

/* n elements, `step` apart from `at` on; those after them are zeros up to `room`. */
static void copy_line(const struct simd *s, const void *x, enum dtype t, int64_t at, int64_t step, int64_t n,
                      int64_t room, enum dtype as, float *to)
{
    if (step == 1 && t != DT_FP32)
        floats(s, x, t, at, n, to);
    else if (step == 1 && as == DT_FP32)
        memcpy(to, (const float *)x + at, (size_t)n * sizeof *to);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = element(s, x, t, at + i * step, as);
    memset(to + n, 0, (size_t)(room - n) * sizeof *to);
}

/* Rows of b: [depth, n], TILE apart. */
static void copy_b(struct kernels *k, const struct product *p, int64_t l, int64_t depth, int64_t j, int64_t n, float *b)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < depth; r++)
        copy_line(k->simd, p->b, p->tb, (l + r) * p->b_row + j * p->b_col, p->b_col, n, TILE, p->as, b + r * TILE);
}

/* Products of a tile are summed apart and then added: rounding grows with the tile's depth and the
 * number of tiles, not with k. */
static void multiply_strip(struct kernels *k, const struct product *p, const struct tiles *t, float *a, int64_t i,
                           int64_t m, int64_t l, int64_t depth, float *c)
{
    float sum[STRIP * TILE];

    for (int64_t r = 0; r < STRIP; r++)
        if (r < m)
            copy_line(k->simd, p->a, p->ta, (i + r) * p->a_row + l * p->a_col, p->a_col, depth, TILE, p->as,
                      a + r * TILE);
        else
            memset(a + r * TILE, 0, TILE * sizeof *a);
    k->simd->multiply(STRIP, TILE, depth, a, TILE, 1, t->b, TILE, l > 0 ? sum : c, TILE, false);
    if (l > 0)
        k->simd->axpy(STRIP * TILE, 1, sum, c);
}

/* A row of the tile of c, from column j of the product on, on its way out. */
static void put_row(const struct simd *s, const struct product *p, const struct dropout_rule *drop, int64_t row, int64_t j,
                    int64_t n, float *sum)
{
    float tmp[TILE];

    scales_apply(&p->scales, row, j, n, sum);
    if (p->bias)
        s->axpy(n, 1, floats(s, p->bias, p->tbias, j, n, tmp), sum);
    if (drop->limit)
        s->drop(n, sum, drop->seed, row * p->n + j, drop->limit, drop->keep);
    if (p->residual)
        s->axpy(n, 1, floats(s, p->residual, p->tc, row * p->ldc + j, n, tmp), sum);
    floats_put(s, p->c, p->tc, row * p->ldc + j, n, sum);
}

static void tile_product(struct kernels *k, const struct product *p, const struct tiles *t, int64_t i, int64_t j)
{
    int64_t m = least(TILE, p->m - i), n = least(TILE, p->n - j);

    for (int64_t l = 0; l < p->k; l += TILE) {
        int64_t depth = least(TILE, p->k - l);
        copy_b(k, p, l, depth, j, n, t->b);
#pragma omp parallel for num_threads(k->threads) schedule(static)
        for (int64_t strip = 0; strip < TILE / STRIP; strip++) {
            int64_t r = strip * STRIP;
            if (r < m)
                multiply_strip(k, p, t, t->a + r * TILE, i + r, least(STRIP, m - r), l, depth, t->c + r * TILE);
        }
    }
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < m; r++)
        put_row(k->simd, p, &t->drop, i + r, j, n, t->c + r * TILE);
}

int gemm_product(struct kernels *k, const struct product *p)
{
    struct cut c = kernels_cut(k);
    struct tiles t = { .drop = dropout_rule(p->drop) };
    const int64_t bytes = (int64_t)TILE * TILE * (int64_t)sizeof(float);

    if (p->m < 1 || p->n < 1 || p->k < 1)
        return fail("a matrix product of %" PRId64 "x%" PRId64 "x%" PRId64, p->m, p->n, p->k);
    if (!(t.a = kernels_take(&c, bytes, "matrix product")) || !(t.b = kernels_take(&c, bytes, "matrix product")) ||
        !(t.c = kernels_take(&c, bytes, "matrix product")))
        return -1;
    for (int64_t j = 0; j < p->n; j += TILE)
        for (int64_t i = 0; i < p->m; i += TILE)
            tile_product(k, p, &t, i, j);
    return 0;
}

struct gemm *gemm_open(int threads)
{
    struct gemm *g = malloc(sizeof *g);

    if (g)
        g->threads = threads;
    else
        fail("out of memory for the kernels");
    return g;
}

void gemm_close(struct gemm *g) { free(g); }
void gemm_name(char *into, size_t size) { snprintf(into, size, "own (no oneDNN)"); }

/* It does, and on every machine: not worth a note. */
bool gemm_widens(const struct gemm *g) { (void)g; return false; }
