/* Columns of a narrow matrix made orthonormal, step by step as kernels_columns.c: one block, as each column needs those before it.
 * A thread has every THREADS-th row to itself, so that only what all threads read of row i needs a barrier: it is read before a sum,
 * and written after it.  Sums are fp64 in an order that the number of rows decides: each rank has the same bits. */
#include "exec/cuda/columns.h"
#include "exec/cuda/common.cuh"

#include <math.h>

enum { THREADS = 512, GRAM_SCHMIDT = 2 };       /* columns, at most: as _orthogonalize() */

struct columns { int64_t rows, cols; float *a; double *buffer; };

/* The first row from `from` on that is this thread's. */
DEVICE int64_t own(int64_t from)
{
    return from + (THREADS + (int64_t)threadIdx.x - from % THREADS) % THREADS;
}

/* Of columns i and j from row `from` on. */
DEVICE double dot(const columns &c, int64_t from, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t r = own(from); r < c.rows; r += THREADS)
        sum += (double)c.a[r * c.cols + i] * (double)c.a[r * c.cols + j];
    return block_sum(sum, c.buffer);
}

/* Column j += by * column i, from row `from` on. */
DEVICE void add(const columns &c, int64_t from, int64_t i, int64_t j, float by)
{
    for (int64_t r = own(from); r < c.rows; r += THREADS)
        c.a[r * c.cols + j] = __fadd_rn(c.a[r * c.cols + j], __fmul_rn(by, c.a[r * c.cols + i]));
}

DEVICE void scale(const columns &c, int64_t from, int64_t i, double by)
{
    for (int64_t r = own(from); r < c.rows; r += THREADS)
        c.a[r * c.cols + i] = (float)(c.a[r * c.cols + i] * by);
}

__global__ void __launch_bounds__(THREADS) gram_schmidt(int64_t rows, int64_t cols, float *a)
{
    SHARED double buffer[32];
    columns c = { rows, cols, a, buffer };

    for (int64_t i = 0; i < cols; i++) {
        float norm = (float)sqrt(dot(c, 0, i, i));
        for (int64_t r = own(0); r < rows; r += THREADS)
            a[r * cols + i] = a[r * cols + i] / norm;
        for (int64_t j = i + 1; j < cols; j++)
            add(c, 0, i, j, (float)-dot(c, 0, i, j));
    }
}

/* I - tau v v' with v = (1, column i below row i), applied to column j. */
DEVICE void reflect(const columns &c, int64_t i, int64_t j, double tau)
{
    double at = c.a[i * c.cols + j];
    float by = (float)(-tau * (at + dot(c, i + 1, i, j)));

    if (own(i) == i)
        c.a[i * c.cols + j] = __fadd_rn((float)at, by);
    add(c, i + 1, i, j, by);
}

__global__ void __launch_bounds__(THREADS) householder(int64_t rows, int64_t cols, float *a)
{
    SHARED double buffer[32];
    columns c = { rows, cols, a, buffer };

    for (int64_t i = 0; i < cols; i++) {
        double below = dot(c, i + 1, i, i), at = a[i * cols + i], norm = sqrt(at * at + below);
        if (below > 0)
            scale(c, i + 1, i, 1 / (at + (at < 0 ? -norm : norm)));
        double tau = 2 / (1 + dot(c, i + 1, i, i));
        for (int64_t j = i + 1; j < cols; j++)
            reflect(c, i, j, tau);
    }
    for (int64_t i = cols - 1; i >= 0; i--) {
        double tau = 2 / (1 + dot(c, i + 1, i, i));
        for (int64_t j = i + 1; j < cols; j++)
            reflect(c, i, j, tau);
        scale(c, i + 1, i, -tau);
        if (own(i) == i)
            a[i * cols + i] = (float)(1 - tau);
        for (int64_t r = own(0); r < i; r += THREADS)
            a[r * cols + i] = 0;
    }
}

extern "C" int columns_cuda_orthonormal(int64_t rows, int64_t cols, float *a, struct CUstream_st *s)
{
    if (rows < 1 || cols < 1)
        return 0;
    if (cols <= GRAM_SCHMIDT)
        LAUNCH(gram_schmidt, 1, THREADS, 0, s, rows, cols, a);
    else
        LAUNCH(householder, 1, THREADS, 0, s, rows, cols, a);
    return cuda_launched("orthonormal columns");
}
